"""``policytest compare``: is one policy better than another?"""

from __future__ import annotations

import sys
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from policytest.cli.exit_codes import CODES, complain
from policytest.cli.files import check_files, files_of_model
from policytest.cli.inputs import find_model, find_policy, find_simulator
from policytest.cli.options import (
    AllocationName,
    BoundaryName,
    Checkpoint,
    Debug,
    Delta,
    Discount,
    Html,
    InitialState,
    Json,
    MaxSamples,
    ModelName,
    PolicyName,
    Prior,
    Quiet,
    RequireCertified,
    RewardModel,
    Seed,
    SimulatorPlace,
)
from policytest.cli.output import certified_or_not, how_to_go_on, quiet_stdout, show
from policytest.cli.pairs import method_of_pairs
from policytest.cli.progress import progress


class ComparisonMethod(StrEnum):
    """Names of the methods that compare policies."""

    betting = "betting"
    ptst = "ptst"


def compare(
    model: ModelName,
    other: Annotated[
        str,
        typer.Argument(help="A .csv file of another policy; or the same task with another policy, or other rewards."),
    ],
    margin: Annotated[float, typer.Option(help="By how much it must be better.")] = 0.0,
    delta: Delta = 0.05,
    method: Annotated[ComparisonMethod | None, typer.Option(help="How to compare; otherwise betting.")] = None,
    indifference: Annotated[float, typer.Option(help='Answer "within" where A - B is this near to the margin.')] = 0.0,
    boundary: BoundaryName = None,
    prior: Prior = None,
    allocation: AllocationName = None,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
    checkpoint: Checkpoint = None,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    require_certified: RequireCertified = False,
    policy: PolicyName = None,
    discount: Discount = None,
    rewards: RewardModel = None,
    initial: InitialState = None,
    debug: Debug = False,
) -> int:
    """Is the policy of the first model better than that of the second? Sample until it is known.

    Exit codes: 0 better by more than the margin, 1 not, 2 usage or input error, 3 undecided or interrupted, 4 internal
    error, 5 within the indifference zone.
    """
    read = (*files_of_model(model), *files_of_model(other), policy)
    check_files(read, {"--checkpoint": checkpoint, "--html": html})
    with quiet_stdout(json), progress(sys.stderr, quiet) as shown:
        from policytest._base.errors import InputError
        from policytest.questions.compare import compare as compare_policies

        problem = find_model(model, policy, discount, rewards, initial)
        is_policy = Path(other).suffix.lower() == ".csv" and not other.startswith("gym:")
        rival = (
            find_policy(other, problem.task) if is_policy else find_model(other, None, discount, rewards, initial).task
        )
        chosen = method_of_pairs(method, boundary, prior, allocation, problem)
        if indifference and method == ComparisonMethod.ptst:
            raise InputError("--indifference belongs to --method betting, which is the default")
        verdict = compare_policies(
            problem.task,
            rival,
            find_simulator(simulator, problem, model),
            delta,
            margin,
            chosen,
            rng=seed,
            max_samples=max_samples,
            indifference=indifference,
            checkpoint=checkpoint,
            resume=checkpoint if checkpoint is not None and checkpoint.exists() else None,
            progress=shown,
        )
    show(verdict, json, html, "Which policy is better?", f"{model} against {other}")
    if verdict.answer is None:
        complain(how_to_go_on(verdict, checkpoint))
    return certified_or_not(verdict, require_certified, CODES[verdict.answer])
