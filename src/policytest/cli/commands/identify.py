"""``policytest identify``: which policy is best?"""

from __future__ import annotations

import sys
from enum import StrEnum
from typing import Annotated, Any

import typer

from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files, files_of_model
from policytest.cli.inputs import find_model, find_policy, find_simulator
from policytest.cli.options import (
    AllocationName,
    BoundaryName,
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
from policytest.cli.output import quiet_stdout, show
from policytest.cli.pairs import method_of_pairs
from policytest.cli.progress import progress


class IdentificationMethod(StrEnum):
    """Names of the methods that find the best policy."""

    betting = "betting"
    ptst = "ptst"
    klb_ts = "klb-ts"


def identify(
    model: ModelName,
    candidates: Annotated[
        list[str] | None,
        typer.Option("--candidate", metavar="FILE", help="A policy file; with several, the best of these is sought."),
    ] = None,
    delta: Delta = 0.05,
    method: Annotated[IdentificationMethod | None, typer.Option(help="How to search; otherwise betting.")] = None,
    boundary: BoundaryName = None,
    prior: Prior = None,
    allocation: AllocationName = None,
    seed: Seed = 0,
    max_samples: MaxSamples = None,
    simulator: SimulatorPlace = None,
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
    """Which policy is best, of all or of some candidates? The model's own policy is ignored.

    Exit codes: 0 found, 2 usage or input error, 3 not settled or interrupted, 4 internal error.
    """
    check_files((*files_of_model(model), policy, *(candidates or ())), {"--html": html})
    with quiet_stdout(json), progress(sys.stderr, quiet) as shown:
        from policytest.questions.identify import identify as find_best

        problem = find_model(model, policy, discount, rewards, initial)
        task = problem.task
        given = [find_policy(file, task).policy for file in candidates] if candidates else None
        found = find_best(
            task.rewards,
            task.initial,
            task.discount,
            find_simulator(simulator, problem, model),
            delta,
            given,
            rng=seed,
            max_samples=max_samples,
            support=task.support,
            method=_method(method, boundary, prior, allocation, problem),
            states=task.states,
            actions=task.actions,
            assumptions=task.assumptions,
            progress=shown,
        )
    listed = [f"Candidate {index}: {file}" for index, file in enumerate(candidates or ())]
    show(found, json, html, "Which policy is best?", (f"Model: {model}", *listed))
    if candidates and found.answered and found.index is not None:
        complain(f"policy {found.index} is {candidates[found.index]}")
    if found.answered and require_certified and not found.certified:
        complain("not certified: a policy was found but not proved to be the best, and --require-certified wants proof")
        return Code.UNDECIDED
    return DONE if found.answered else Code.UNDECIDED


def _method(method: Any, boundary: Any, prior: Any, allocation: Any, problem: Any) -> Any:
    """The method that the options describe."""
    chosen = method_of_pairs(method, boundary, prior, allocation, problem)
    if method == IdentificationMethod.klb_ts:
        from policytest.methods.baselines.klbts import KLBTS

        return KLBTS()
    return chosen
