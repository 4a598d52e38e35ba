"""``policytest evaluate``: how good is it?"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from policytest._display import number, plural
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.inputs import check_place, find_model, find_simulator
from policytest.cli.options import (
    Debug,
    Delta,
    Html,
    Json,
    MaxSamples,
    ModelName,
    Quiet,
    Seed,
    SimulatorPlace,
)
from policytest.cli.results import quiet_stdout, show

if TYPE_CHECKING:
    pass


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
    with quiet_stdout(json):
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
    show(found, json, html, "How good is this policy?", f"Model: {model}")
    return DONE if found.reached else Code.UNDECIDED


_shown_at = 0.0


def _narrowing(samples: int, low: float, high: float) -> None:
    """The interval so far, on stderr, at most twice a second."""
    global _shown_at
    if time.monotonic() >= _shown_at:
        _shown_at = time.monotonic() + 0.5
        complain(f"{plural(samples, 'sample')}: {number(low)} to {number(high)}")
