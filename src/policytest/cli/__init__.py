"""The command line: ``policytest decide MODEL`` and its companions.

The exit code is the answer, so that a script or a CI job can act on it: `policytest.cli.exit_codes` has them, and sees
to it that no other path ends with 0 or 1.

A new command is a file in ``commands`` with a function that returns an exit code, listed in `COMMANDS`. Its arguments
are options, or groups of options that it shares with other commands (`policytest.cli.options`); every command has
``--debug``. NumPy, numba and the rest of the package are imported inside the functions, so that ``--help`` answers at
once.
"""

from __future__ import annotations

import functools
import importlib
import os
import sys
from collections.abc import Callable
from typing import Annotated

import typer

from policytest.cli import options as o
from policytest.cli.commands.assess import assess
from policytest.cli.commands.compare import compare
from policytest.cli.commands.decide import decide
from policytest.cli.commands.demo import demo
from policytest.cli.commands.evaluate import evaluate
from policytest.cli.commands.identify import identify
from policytest.cli.commands.init import init
from policytest.cli.commands.plan import plan
from policytest.cli.commands.report import report
from policytest.cli.commands.selftest import selftest
from policytest.cli.commands.study import study
from policytest.cli.commands.warmup import warmup
from policytest.cli.commands.watch import watch
from policytest.cli.exit_codes import debugging, exit_code, say
from policytest.cli.groups import Grouped, flat
from policytest.cli.output import arguments
from policytest.cli.progress import compiling_told

COMMANDS = (decide, assess, watch, evaluate, compare, plan, identify, study, report, init, demo, selftest, warmup)
"""In the order in which ``--help`` lists them."""


def _telling(command: Callable[..., int]) -> Callable[..., int]:
    """The command, which says so where it has to compile."""

    @functools.wraps(command)
    def run(**options: object) -> int:
        with compiling_told(quiet=options.get("quiet", False) is True):
            return command(**options)

    return run


app = typer.Typer(add_completion=False, rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]})
for command in COMMANDS:
    app.command(cls=Grouped)(_telling(flat(command, debug=o.Debug)))


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; the console script ends with it."""
    debugging.set(os.environ.get("POLICYTEST_DEBUG", "") not in ("", "0"))
    return exit_code(lambda: _invoke(sys.argv[1:] if argv is None else argv))


_command = functools.cache(lambda: typer.main.get_command(app))
"""All commands with their options; made once, because that takes longer than many a command."""


def _invoke(argv: list[str]) -> int:
    """Typer without its `main`, which exits with 1 when a pipe breaks."""
    arguments.set(tuple(argv))
    command = _command()
    with command.make_context("policytest", list(argv)) as context:
        return int(command.invoke(context))


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"policytest {importlib.import_module('policytest').__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: o.Debug = False,
) -> None:
    """Is this policy good enough? Policy testing in tabular Markov decision processes."""
