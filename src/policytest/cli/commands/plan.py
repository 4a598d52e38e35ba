"""``policytest plan``: how many samples will it take?"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from policytest._base.errors import InputError
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE
from policytest.cli.files import check_files, files_of_model
from policytest.cli.inputs import Asked, find_model, the_bar
from policytest.cli.output import quiet_stdout, show
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.sources.tasks.files import Model


def plan(
    model: o.ModelName,
    threshold: o.Threshold = None,
    delta: o.Delta = 0.05,
    pilot: Annotated[
        list[Path] | None,
        typer.Option(metavar="FILE", help="Plan from pilot data, a file of Counts.save; may be repeated."),
    ] = None,
    guess: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="Also plan for the kernel of this model; may be repeated."),
    ] = None,
    seed: o.Seed = 0,
    json: o.Json = False,
    quiet: o.Quiet = False,
    html: o.Html = None,
    policy: o.PolicyName = None,
    discount: o.Discount = None,
    rewards: o.RewardModel = None,
    initial: o.InitialState = None,
    horizon: o.Horizon = None,
    goal: o.Goal = None,
    avoid: o.Avoid = None,
    terminal: o.Terminal = None,
    debug: o.Debug = False,
) -> int:
    """How many samples will it take, and where should they go? By the model's kernel, or by pilot data.

    Exit codes: 0 done, 2 usage or input error, 3 interrupted, 4 internal error.
    """
    guesses = [file for name in guess or () for file in files_of_model(name)]
    check_files((*files_of_model(model), policy, *(pilot or ()), *guesses), {"--html": html})
    with quiet_stdout(json):
        from policytest.questions.plan.plan import plan as make_plan

        asked = Asked(discount, rewards, initial, horizon, goal, avoid, terminal)
        problem = find_model(model, policy, asked)
        bar = the_bar(threshold, problem)
        given = _guess(problem, model, pilot or [], guess or [])
        with progress(sys.stderr, quiet) as shown:
            found = make_plan(
                problem.task, given, bar, delta, rng=seed, progress=lambda name: shown.notice(f"simulating {name}")
            )
    show(found, json, html, "How many samples will it take?", f"Model: {model}")
    return DONE


def _guess(problem: Model, model: str, pilot: list[Path], others: list[str]) -> Any:
    """The kernel of the model, several kernels, or the counts of all pilots together."""
    from policytest.data.counts import Counts

    if pilot and others:
        raise InputError("--pilot and --guess exclude each other", "pass pilot data, or guesses of the kernel")
    if pilot:
        first, *rest = (Counts.load(file) for file in pilot)
        for counts in rest:
            first = first + counts
        return first
    kernels = [
        (name, found.kernel) for name, found in ((model, problem), *((name, find_model(name)) for name in others))
    ]
    for name, kernel in kernels:
        if kernel is None:
            raise InputError(f"{name} has no kernel to plan with; add the key kernel, or pass --pilot FILE of counts")
    return kernels[0][1] if not others else [kernel for _, kernel in kernels]
