"""``policytest study``: methods compared over instances, deltas and seeds."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files
from policytest.cli.groups import option
from policytest.cli.output import quiet_stdout, show, write
from policytest.cli.progress import Lines, progress

if TYPE_CHECKING:
    from policytest.study.cells import Sweep
    from policytest.study.runner import Step
    from policytest.study.table import Study

SHOWN_FAILURES = 10
THREADS = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")


def study(
    what: Annotated[str, typer.Argument(metavar="paper|FILE.toml", help="The paper's experiments, or your own study.")],
    *,
    out: Path | None = option("Save runs and tables here; if it exists, resume from it.", "FOLDER"),
    jobs: int = option("Runs in parallel.", default=2, min=1),
    cluster: str | None = option("Run on the Dask cluster of this scheduler.", "ADDRESS"),
    seeds: int | None = option("Number of runs (seeds) of each method on each instance.", min=1),
    quick: bool = option("A few short runs, to check that everything works.", default=False),
    heuristic: bool = option(
        "With paper: also run the heuristic of its experiments, and measure its gap.", default=False
    ),
    figure: Path | None = option("Draw samples against delta.", "FILE.svg"),
    max_seconds: float | None = option("Begin no run after this many seconds.", "SECONDS"),
    output: o.Shown,
) -> int:
    """Compare methods over instances, deltas and seeds: mean samples with standard errors, and one tidy table.

    Exit codes: 0 done, 2 usage or input error, 3 interrupted or some runs failed, 4 internal error.
    """
    _one_thread_each()
    with quiet_stdout(output.json):
        from policytest.study.runner import run

        plan = _plan(what, seeds, quick, heuristic)
        check_files(_files(what, out), {"--figure": figure, "--html": output.html})
        if figure is not None:
            from policytest.paper.figure import check_figure

            check_figure(figure)
        with progress(sys.stderr, output.quiet) as shown:
            found = run(plan, out, jobs, cluster, FinishedRuns(shown), max_seconds)
        if heuristic and not found.missing:
            from policytest.paper.experiments import with_heuristic_notes

            found = with_heuristic_notes(found, plan)
            if out is not None:
                write(out / "summary.json", found.to_json())
    show(found, output, found.title, f"Study: {what}")
    if figure is not None and found.table:
        _draw(found, figure, what == "paper")
    _finish(found, out, output.quiet)
    return DONE if found.complete else Code.UNDECIDED


def _plan(what: str, seeds: int | None, quick: bool, heuristic: bool) -> Sweep:
    """The sweep that is meant."""
    from policytest.paper.experiments import paper_sweep
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


class FinishedRuns:
    """Shows how many runs of a study are finished, and the first failures."""

    def __init__(self, shown: Lines) -> None:
        self._shown, self._failures = shown, 0

    def __call__(self, step: Step) -> None:
        """Show a step."""
        problem = ""
        if step.error is not None and step.cell is not None and self._failures < SHOWN_FAILURES:
            self._failures += 1
            problem = f"failed: {step.cell.method} on {step.cell.instance}, seed {step.cell.seed}: {step.error}"
        self._shown.count(step.done, step.total, problem)


def _draw(found: Study, figure: Path, papers: bool) -> None:
    from policytest.paper.experiments import in_figure
    from policytest.paper.figure import draw

    draw(in_figure(found) if papers else found, figure)


def _finish(found: Study, out: Path | None, quiet: bool) -> None:
    """Words on what is kept and what went wrong."""
    if found.missing:
        kept = f"{out} holds what is finished, and the same command goes on from there"
        lost = "nothing was kept; with --out FOLDER a study can be continued"
        complain(
            f"interrupted, or out of time: {plural(found.missing, 'run')} not made; {lost if out is None else kept}"
        )
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
