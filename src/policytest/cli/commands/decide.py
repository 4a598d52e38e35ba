"""``policytest decide``: is the value above the threshold?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policytest.cli.exit_codes import CODES, Code, complain, read_or_not, say
from policytest.cli.inputs import check_place, find_method, find_model, find_simulator
from policytest.cli.options import (
    Allocation,
    Boundary,
    Debug,
    Delta,
    Discount,
    Html,
    Json,
    MaxSamples,
    Method,
    ModelName,
    PolicyName,
    Quiet,
    Seed,
    SimulatorPlace,
)
from policytest.cli.progress import progress
from policytest.cli.results import course, how_to_go_on, quiet_stdout, show, watched

if TYPE_CHECKING:
    from policytest.sources.files import Model
    from policytest.verdict import Verdict


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
    policy: PolicyName = None,
    discount: Discount = None,
    debug: Debug = False,
) -> int:
    """Is the value of the policy above the threshold? Sample until it is known.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 undecided or interrupted, 4 internal error, 5 within.
    """
    for file in (checkpoint, html):
        check_place(file, model, policy)
    with quiet_stdout(json):
        problem = find_model(model, policy, discount)
    trace = course(html)
    with quiet_stdout(json):
        verdict = run_decide(
            problem,
            find_simulator(simulator, problem, model),
            quiet,
            threshold=threshold if threshold is not None else problem.threshold or 0.0,
            delta=delta,
            method=watched(find_method(method, boundary, prior, allocation, problem), trace),
            rng=seed,
            max_samples=max_samples,
            indifference=indifference,
            checkpoint=checkpoint,
            resume=checkpoint if checkpoint is not None and checkpoint.exists() else None,
        )
    show(verdict, json, html, "Is this policy good enough?", f"Model: {model}", trace)
    if model.startswith("gym:"):
        _beside(problem, json)
    if verdict.answer is None:
        complain(how_to_go_on(verdict, checkpoint))
    elif require_certified and not verdict.certified:
        complain(f'not certified: "{verdict.answer}" was found but not proved, and --require-certified wants proof')
        return Code.UNDECIDED
    return CODES[verdict.answer]


def _beside(model: Model, as_json: bool) -> None:
    """The exact value, which the table of an environment gives, to compare the verdict with; not into the JSON."""
    from policytest._display import number
    from policytest.task import value

    exact = number(value(model.task, model.kernel))
    line = f"exact value: {exact}, by the environment's table, which the test did not see"
    if as_json:
        complain(line)
        return
    with read_or_not():
        say(line)


def run_decide(model: Model, simulator: Any, quiet: bool = False, **settings: Any) -> Verdict:
    """The test, with its progress on stderr."""
    with progress(sys.stderr, quiet) as shown:
        from policytest.sequential import decide

        return decide(model.task, simulator, **settings, progress=shown)
