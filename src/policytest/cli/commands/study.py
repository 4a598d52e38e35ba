"""``policytest study``: methods compared over instances, deltas and seeds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TextIO

import typer

from policytest._base.text import plain, plural
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files
from policytest.cli.options import Debug, Html, Json, Quiet
from policytest.cli.output import quiet_stdout, show, write

if TYPE_CHECKING:
    from policytest.study.cells import Sweep
    from policytest.study.runner import Step
    from policytest.study.table import Study

LINES = 10
"""Plain lines of progress, at most."""
SHOWN_FAILURES = 10
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def study(
    what: Annotated[str, typer.Argument(metavar="paper|FILE.toml", help="The paper's experiments, or your own study.")],
    out: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Keep runs and tables here, and go on from here if it exists.")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, help="Runs at once.")] = 2,
    cluster: Annotated[str | None, typer.Option(metavar="ADDRESS", help="Run on this Dask scheduler instead.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="Runs of each method on each instance.")] = None,
    quick: Annotated[bool, typer.Option("--quick", help="A few short runs, to see that it works.")] = False,
    heuristic: Annotated[
        bool, typer.Option("--heuristic", help="paper: also the heuristic of its experiments, with its gap.")
    ] = False,
    figure: Annotated[Path | None, typer.Option(metavar="FILE.svg", help="Draw samples against delta.")] = None,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """Compare methods over instances, deltas and seeds: mean samples with standard errors, and one tidy table.

    Exit codes: 0 done, 2 usage or input error, 3 interrupted or some runs failed, 4 internal error.
    """
    _one_thread_each()
    with quiet_stdout(json):
        plan = _plan(what, seeds, quick, heuristic)
        check_files(_files(what, out), {"--figure": figure, "--html": html})
        if figure is not None:
            from policytest.study.figure import check_figure

            check_figure(figure)
        found = _run(plan, out, jobs, cluster, quiet)
        if heuristic and not found.missing:
            from policytest.study.paper import with_heuristic_notes

            found = with_heuristic_notes(found, plan)
            if out is not None:
                write(out / "summary.json", found.to_json())
    show(found, json, html, found.title, f"Study: {what}")
    if figure is not None and found.table:
        _draw(found, figure, what == "paper")
    _finish(found, out, quiet)
    return DONE if found.complete else Code.UNDECIDED


def _plan(what: str, seeds: int | None, quick: bool, heuristic: bool) -> Sweep:
    """The sweep that is meant."""
    from policytest._base.errors import InputError
    from policytest.study.paper import paper_sweep
    from policytest.study.spec import quickly, read, with_seeds

    if what == "paper":
        return paper_sweep(seeds, heuristic, quick)
    if heuristic:
        raise InputError('--heuristic belongs to "policytest study paper"; in a file, use method = "PTST.as_printed"')
    if Path(what).suffix.lower() != ".toml":
        raise InputError(f'{what!r} is not a study; pass "paper", or a file that ends in .toml')
    found = read(what)
    found = found if seeds is None else with_seeds(found, seeds)
    return quickly(found) if quick else found


def _files(what: str, out: Path | None) -> list[Path]:
    """What a study reads, and what it keeps in its folder."""
    from policytest.study.spec import files_of
    from policytest.study.store import FILES

    return [*(() if what == "paper" else files_of(what)), *((out, *(out / name for name in FILES)) if out else ())]


def _run(plan: Sweep, out: Path | None, jobs: int, cluster: str | None, quiet: bool) -> Study:
    from policytest.study.runner import run

    shown = bar(sys.stderr, quiet)
    try:
        return run(plan, out, jobs, cluster, shown)
    finally:
        shown.close()


def _draw(found: Study, figure: Path, papers: bool) -> None:
    from policytest.study.figure import draw
    from policytest.study.paper import in_figure

    draw(in_figure(found) if papers else found, figure)


def _finish(found: Study, out: Path | None, quiet: bool) -> None:
    """Words on what is kept and what went wrong."""
    if found.missing:
        kept = f"{out} holds what is finished, and the same command goes on from there"
        lost = "nothing was kept; with --out FOLDER a study can be continued"
        complain(f"interrupted: {plural(found.missing, 'run')} not made; {lost if out is None else kept}")
    elif found.failures:
        retry = "" if out is None else "; the same command tries them again"
        complain(f"{plural(len(found.failures), 'run')} failed{retry}")
    elif out is not None and not quiet:
        complain(f"{out} holds {', '.join(sorted(file.name for file in out.iterdir()))}")


def _one_thread_each() -> None:
    """Linear algebra on one thread for each run; it has to be said before NumPy is imported."""
    if "numpy" not in sys.modules:
        for name in THREADS:
            os.environ.setdefault(name, "1")


# ---------------------------------------------------------------- progress


class Lines:
    """A plain line whenever another tenth of the runs is finished, and one for each of the first failures."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream, self._next, self._failures = stream, 0.0, 0

    def __call__(self, step: Step) -> None:
        """Show a step, if it is time to."""
        if step.error is not None:
            self._failures += 1
            if self._failures <= SHOWN_FAILURES and step.cell is not None:
                cell = f"{step.cell.method} on {step.cell.instance}, seed {step.cell.seed}"
                self.say(f"failed: {plain(cell)}: {plain(step.error)}")
        self.update(step)

    def update(self, step: Step) -> None:
        """How many are done."""
        if step.done >= self._next or step.done == step.total:
            self._next = step.done + step.total / LINES
            self.say(f"{step.done:,} of {plural(step.total, 'run')}")

    def say(self, text: str) -> None:
        """A line; a stream that breaks is left alone."""
        if self._stream is not None:
            try:
                print(text, file=self._stream, flush=True)
            except (OSError, ValueError):
                self._stream = None

    def close(self) -> None:
        """Nothing to put back."""


class Bar(Lines):
    """One bar on a terminal, which disappears at the end."""

    def __init__(self, console: Any) -> None:
        super().__init__(None)
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        columns = (TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        self._progress = Progress(
            *columns, console=console, transient=True, redirect_stdout=sys.stdout is not None and sys.stdout.isatty()
        )
        self._task = self._progress.add_task("runs", total=None)
        self._progress.start()

    def update(self, step: Step) -> None:
        """How many are done."""
        self._progress.update(self._task, total=step.total, completed=step.done)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        """Remove the bar."""
        self._progress.stop()


def bar(stream: TextIO | None, quiet: bool = False) -> Lines:
    """What suits the stream: a bar on a terminal, plain lines elsewhere, nothing if quiet."""
    if quiet or stream is None:
        return Lines(None)
    if stream.isatty():
        from rich.console import Console

        console = Console(file=stream)
        if not console.is_dumb_terminal:
            return Bar(console)
    return Lines(stream)
