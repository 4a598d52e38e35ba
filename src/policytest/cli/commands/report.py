"""``policytest report``: a saved result as a web page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from policytest._display import plain
from policytest.cli.exit_codes import DONE, say
from policytest.cli.inputs import check_place
from policytest.cli.options import Debug
from policytest.cli.results import fingerprint


def report(
    result: Annotated[str, typer.Argument(help="What --json printed: a file, or - for standard input.")],
    out: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the web page.")],
    title: Annotated[str | None, typer.Option(help="The question that was asked.")] = None,
    suppress_below: Annotated[int, typer.Option(help="Do not show counts from 1 to this, less one.")] = 0,
    debug: Debug = False,
) -> int:
    """Turn a result that --json printed into one HTML file, with pictures.

    The file is complete in itself: it loads nothing, and opens offline. Exit codes: 0 done, 2 usage or input error, 4
    internal error.
    """
    check_place(out, result)
    from policytest._checks import InputError
    from policytest.report import write
    from policytest.report.saved import parse, read

    if result == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; pass the name of a file")
        found, source = parse(sys.stdin.read(), "standard input"), "standard input"
    else:
        found, source = read(result), fingerprint(result)
    write(found, out, title=title, provenance={"result": source}, suppress_below=suppress_below)
    say(plain(f"The report is in {out}"))
    return DONE
