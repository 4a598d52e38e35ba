"""The command line: ``policytest decide MODEL`` and its companions.

The exit code is the answer, so that a script or a CI job can act on it: 0 above (or done), 1 below, 2 usage or input
error, 3 undecided or interrupted, 4 internal error, 5 within the indifference zone. No other path ends with 0 or 1:
see `policytest.cli.exit_codes`.

A new command is a function under ``@app.command()`` that returns an exit code. NumPy, numba and the rest of the
package are imported inside the commands, so that ``--help`` answers at once.
"""

from __future__ import annotations

import contextlib
import importlib
import math
import os
import sys
import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policytest._display import number, page, paragraph, plural, probability
from policytest.cli.exit_codes import CODES, DONE, Code, complain, debugging, exit_code, read_or_not, say
from policytest.cli.inputs import BUILT_IN, check_place, find_method, find_model, find_simulator
from policytest.cli.progress import COMPILING, progress

if TYPE_CHECKING:
    from policytest.sources.files import Model
    from policytest.verdict import Verdict

app = typer.Typer(add_completion=False, context_settings={"help_option_names": ["-h", "--help"]})


# ---------------------------------------------------------------- the entry


def main(argv: list[str] | None = None) -> int:
    """Run one command and return its exit code; the console script ends with it."""
    debugging.set(os.environ.get("POLICYTEST_DEBUG", "") not in ("", "0"))
    return exit_code(lambda: _invoke(sys.argv[1:] if argv is None else argv))


def _invoke(argv: list[str]) -> int:
    """Typer without its `main`, which exits with 1 when a pipe breaks."""
    command = typer.main.get_command(app)
    with command.make_context("policytest", list(argv)) as context:
        return int(command.invoke(context))


# ---------------------------------------------------------------- options


def _show_version(wanted: bool) -> None:
    if wanted:
        say(f"policytest {importlib.import_module('policytest').__version__}")
        raise typer.Exit


def _set_debug(wanted: bool) -> None:
    if wanted:
        debugging.set(True)


class Method(StrEnum):
    """Names of the methods."""

    combined = "combined"
    betting = "betting"
    ptst = "ptst"
    boxes = "boxes"
    monte_carlo = "monte-carlo"


class Boundary(StrEnum):
    """Names of the boundaries."""

    mixture = "mixture"
    paper = "paper"


class Allocation(StrEnum):
    """Names of the sampling rules."""

    uniform = "uniform"
    optimal = "optimal"
    adaptive = "adaptive"
    forward = "forward"


Debug = Annotated[bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show where an error arose.")]
Delta = Annotated[float, typer.Option(help="The probability of a wrong answer, at most.")]
Seed = Annotated[int, typer.Option(help="The seed of all randomness.")]
ModelName = Annotated[str, typer.Argument(help=f"A .json or .npz task file, or one of: {', '.join(BUILT_IN)}.")]
MaxSamples = Annotated[int | None, typer.Option(help="Give up after this many samples.")]
SimulatorPlace = Annotated[str | None, typer.Option("--simulator", help="Sample from this: package.module:name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as a web page.")]


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version.")
    ] = False,
    debug: Debug = False,
) -> None:
    """Is this policy good enough? Policy testing in tabular Markov decision processes."""


# ---------------------------------------------------------------- commands


@app.command()
def decide(
    model: ModelName,
    threshold: Annotated[float | None, typer.Option(help="The bar R; otherwise the file's, otherwise 0.")] = None,
    delta: Delta = 0.05,
    method: Annotated[Method | None, typer.Option(help="How to test; otherwise the best: combined.")] = None,
    indifference: Annotated[float, typer.Option(help='Answer "within" where |V - R| is below this.')] = 0.0,
    boundary: Annotated[Boundary | None, typer.Option(help="The boundary of ptst.")] = None,
    prior: Annotated[float | None, typer.Option(help="The prior of its mixture boundary.")] = None,
    allocation: Annotated[Allocation | None, typer.Option(help="Which pairs ptst samples.")] = None,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
    checkpoint: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the run here, and go on from here if it exists.")
    ] = None,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    require_certified: Annotated[
        bool, typer.Option("--require-certified", help="Exit with 3 if the answer is not certified.")
    ] = False,
    debug: Debug = False,
) -> int:
    """Is the value of the policy above the threshold? Sample until it is known.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 undecided or interrupted, 4 internal error, 5 within.
    """
    for file in (checkpoint, html):
        check_place(file)
    problem = find_model(model)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        verdict = _decide(
            problem,
            find_simulator(simulator, problem, model),
            quiet,
            threshold=threshold if threshold is not None else problem.threshold or 0.0,
            delta=delta,
            method=find_method(method, boundary, prior, allocation, problem),
            rng=seed,
            max_samples=max_samples,
            indifference=indifference,
            checkpoint=checkpoint,
            resume=checkpoint if checkpoint is not None and checkpoint.exists() else None,
        )
    _show(verdict, json, html, "Is this policy good enough?", f"Model: {model}")
    if verdict.answer is None:
        complain(_how_to_go_on(verdict, checkpoint))
    elif require_certified and not verdict.certified:
        complain(f'not certified: "{verdict.answer}" was found but not proved, and --require-certified wants proof')
        return Code.UNDECIDED
    return CODES[verdict.answer]


@app.command()
def evaluate(
    model: ModelName,
    epsilon: Annotated[float, typer.Option(help="How precisely the value is wanted.")],
    delta: Delta = 0.05,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """How good is the policy? Sample until its value is known within epsilon.

    Exit codes: 0 done, 2 usage or input error, 3 the precision was not reached, 4 internal error.
    """
    check_place(html)
    problem = find_model(model)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        from policytest.confidence import evaluate as estimate_value

        found = estimate_value(
            problem.task,
            find_simulator(simulator, problem, model),
            epsilon,
            delta,
            rng=seed,
            max_samples=max_samples,
            progress=None if quiet else _narrowing,
        )
    _show(found, json, html, "How good is this policy?", f"Model: {model}")
    return DONE if found.reached else Code.UNDECIDED


@app.command()
def compare(
    model: ModelName,
    other: Annotated[str, typer.Argument(help="The same task with another policy, and perhaps other rewards.")],
    margin: Annotated[float, typer.Option(help="By how much it must be better.")] = 0.0,
    delta: Delta = 0.05,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
    json: Json = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """Is the policy of the first model better than that of the second? Sample until it is known.

    Exit codes: 0 better by more than the margin, 1 not, 2 usage or input error, 3 undecided, 4 internal error.
    """
    check_place(html)
    problem = find_model(model)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        from policytest.comparison import compare as compare_policies

        sim = find_simulator(simulator, problem, model)
        verdict = compare_policies(
            problem.task, find_model(other).task, sim, delta, margin, rng=seed, max_samples=max_samples
        )
    _show(verdict, json, html, "Which policy is better?", f"{model} against {other}")
    return CODES[verdict.answer]


@app.command()
def plan(
    model: ModelName,
    threshold: Annotated[float | None, typer.Option(help="The bar R; otherwise the file's, otherwise 0.")] = None,
    delta: Delta = 0.05,
    seed: Seed = 0,
    json: Json = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """How many samples will it take, and where should they go? The model's kernel is the guess."""
    check_place(html)
    problem = find_model(model)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        from policytest._checks import InputError
        from policytest.planning import plan as make_plan

        if problem.kernel is None:
            raise InputError(f"{model} has no kernel to plan with; add the key kernel: a guess, from pilot draws say")
        bar = threshold if threshold is not None else problem.threshold or 0.0
        found = make_plan(problem.task, problem.kernel, bar, delta, rng=seed)
    _show(found, json, html, "How many samples will it take?", f"Model: {model}")
    return DONE


@app.command()
def identify(
    model: ModelName,
    delta: Delta = 0.05,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
    json: Json = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """Which policy is best? The model's own policy is ignored.

    Exit codes: 0 found, 2 usage or input error, 3 not settled, 4 internal error.
    """
    check_place(html)
    problem = find_model(model)
    with contextlib.redirect_stdout(sys.stderr) if json else contextlib.nullcontext():
        from policytest.selection import identify as find_best

        task = problem.task
        found = find_best(
            task.rewards, task.initial, task.discount, find_simulator(simulator, problem, model), delta,
            rng=seed, max_samples=max_samples, support=task.support,
        )  # fmt: skip
    _show(found, json, html, "Which policy is best?", f"Model: {model}")
    return DONE if found.answered else Code.UNDECIDED


@app.command()
def demo(
    delta: Delta = 0.05,
    seed: Seed = 0,
    html: Annotated[Path, typer.Option(metavar="FILE", help="Where to write the web page.")] = Path(
        "policytest-demo.html"
    ),
    debug: Debug = False,
) -> int:
    """Watch the test answer a question of the paper, and get a web page of it."""
    check_place(html)
    question = (
        "The paper's instance with 5 states and 5 actions: is the value of its policy above 0?",
        "The test knows rewards and policy but not the transitions, which it may sample one by one.",
        f"It stops as soon as it can answer with probability of error at most {probability(delta)}.",
    )
    say("\n".join(question) + "\n")
    problem = find_model("paper-5")
    verdict = _decide(problem, find_simulator(None, problem, "paper-5"), delta=delta, rng=seed)
    bound = _lower_bound(problem, delta)
    say(f"{verdict.summary.text()}\n\n{bound}")
    if verdict.answer is None:
        complain(_how_to_go_on(verdict, None))
        return Code.UNDECIDED
    parts = (*map(paragraph, question), verdict.summary.html(), paragraph(bound))
    _write(html, page("Is this policy good enough?", *parts))
    say(f"The same as a web page: {html}")
    return DONE


@app.command()
def warmup(debug: Debug = False) -> int:
    """Compile everything the test needs, so that later runs start at once."""
    from policytest.cli.warmup import small_runs

    complain(COMPILING)
    begun = time.monotonic()
    small_runs()
    say(f"Ready after {time.monotonic() - begun:.1f} seconds.")
    return DONE


# ---------------------------------------------------------------- parts of commands


def _decide(model: Model, simulator: Any, quiet: bool = False, **settings: Any) -> Verdict:
    """The test, with its progress on stderr."""
    with progress(sys.stderr, quiet) as shown:
        from policytest.sequential import decide

        return decide(model.task, simulator, **settings, progress=shown)


def _show(found: Any, as_json: bool, html: Path | None, title: str, about: str) -> None:
    """The result on stdout, and as a web page where one is wanted."""
    with read_or_not():
        say(found.to_json() if as_json else found.summary.text())
    if html is not None:
        _write(html, page(title, paragraph(about), found.summary.html()))


_shown_at = 0.0


def _narrowing(samples: int, low: float, high: float) -> None:
    """The interval so far, on stderr, at most twice a second."""
    global _shown_at
    if time.monotonic() >= _shown_at:
        _shown_at = time.monotonic() + 0.5
        complain(f"{plural(samples, 'sample')}: {number(low)} to {number(high)}")


def _how_to_go_on(verdict: Verdict, checkpoint: Path | None) -> str:
    if not verdict.snapshot:
        return f"undecided: {verdict.reason}"
    remedy = (
        "with --checkpoint FILE a run can be continued"
        if checkpoint is None
        else f"{checkpoint} holds the run, and the same command continues it (with a larger --max-samples if need be)"
    )
    return f"undecided after {plural(verdict.samples, 'sample')}; {remedy}"


def _lower_bound(model: Model, delta: float) -> str:
    from policytest.lower_bound import characteristic_time

    scale = characteristic_time(model.task, model.kernel).time
    return (
        "For comparison: no test that samples all pairs equally can do, for small delta, with fewer than about "
        f"{number(math.ceil(scale * math.log(1 / delta)))} samples on average (T* log(1/delta), T* = {number(scale)})."
    )


def _write(file: Path, text: str) -> None:
    from policytest._files import write_file

    write_file(file, text.encode("utf-8"))
