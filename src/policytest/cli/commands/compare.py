"""``policytest compare``: is one policy better than another?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from policytest.cli.exit_codes import CODES
from policytest.cli.inputs import check_place, find_model, find_simulator
from policytest.cli.options import (
    Debug,
    Delta,
    Html,
    Json,
    MaxSamples,
    ModelName,
    Seed,
    SimulatorPlace,
)
from policytest.cli.results import quiet_stdout, show

if TYPE_CHECKING:
    pass


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
    with quiet_stdout(json):
        from policytest.comparison import compare as compare_policies

        sim = find_simulator(simulator, problem, model)
        verdict = compare_policies(
            problem.task, find_model(other).task, sim, delta, margin, rng=seed, max_samples=max_samples
        )
    show(verdict, json, html, "Which policy is better?", f"{model} against {other}")
    return CODES[verdict.answer]
