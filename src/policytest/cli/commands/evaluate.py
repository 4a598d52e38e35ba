"""``policytest evaluate``: how good is it?"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated

import typer

from policytest._base.text import number
from policytest.cli.exit_codes import DONE, Code
from policytest.cli.files import check_files, files_of_model
from policytest.cli.inputs import find_method, find_model, find_simulator
from policytest.cli.options import (
    Debug,
    Delta,
    Discount,
    Html,
    InitialState,
    Json,
    MaxSamples,
    ModelName,
    PolicyName,
    Quiet,
    RewardModel,
    Seed,
    SimulatorPlace,
)
from policytest.cli.output import both, course, quiet_stdout, show
from policytest.cli.progress import progress


class Kind(StrEnum):
    """Names of the methods that give intervals."""

    betting = "betting"
    ptst = "ptst"


def evaluate(
    model: ModelName,
    epsilon: Annotated[float, typer.Option(help="How precisely the value is wanted.")],
    delta: Delta = 0.05,
    method: Annotated[Kind | None, typer.Option(help="How to measure; otherwise by betting.")] = None,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    policy: PolicyName = None,
    discount: Discount = None,
    rewards: RewardModel = None,
    initial: InitialState = None,
    debug: Debug = False,
) -> int:
    """How good is the policy? Sample until its value is known within epsilon.

    Exit codes: 0 done, 2 usage or input error, 3 the precision was not reached, 4 internal error.
    """
    check_files((*files_of_model(model), policy), {"--html": html})
    with quiet_stdout(json):
        problem = find_model(model, policy, discount, rewards, initial)
    trace = course(html)
    with quiet_stdout(json):
        from policytest.questions.evaluate import evaluate as estimate_value

        sim = find_simulator(simulator, problem, model)
        rule = find_method(method, None, None, None, problem)
        with progress(sys.stderr, quiet) as shown:

            def narrowing(samples: int, low: float, high: float) -> None:
                shown.tell(samples, f"value in [{low:.4g}, {high:.4g}], wanted within {number(epsilon)}")

            found = estimate_value(
                problem.task,
                sim,
                epsilon,
                delta,
                rule,
                seed,
                max_samples,
                both(narrowing, trace),
            )
    show(found, json, html, "How good is this policy?", f"Model: {model}", trace)
    return DONE if found.reached else Code.UNDECIDED
