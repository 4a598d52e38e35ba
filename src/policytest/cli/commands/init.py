"""``policytest init``: files to start from."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Annotated

import typer

from policytest._base.text import plain
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, say
from policytest.cli.groups import option


def init(
    folder: Annotated[Path, typer.Argument(help="Where to write them; it is created.")] = Path("policytest-example"),
    seed: int = option(o.SEED, default=0),
) -> int:
    """Write an example task, policy and log to start from. Nothing is overwritten.

    Exit codes: 0 done, 2 usage or input error, 4 internal error.
    """
    from policytest.cli.starter import NEXT, write_starter

    for file in write_starter(folder, seed):
        say(plain(str(file)))
    shown = str(folder) if not str(folder).startswith("-") else f"./{folder}"
    say(f"\nNow try:\n{NEXT.format(folder=shlex.quote(shown))}".rstrip())
    return DONE
