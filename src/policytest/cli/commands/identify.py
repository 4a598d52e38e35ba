"""``policytest identify``: which policy is best?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from policytest.cli.exit_codes import DONE, Code
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
    with quiet_stdout(json):
        from policytest.selection import identify as find_best

        task = problem.task
        found = find_best(
            task.rewards, task.initial, task.discount, find_simulator(simulator, problem, model), delta,
            rng=seed, max_samples=max_samples, support=task.support,
        )  # fmt: skip
    show(found, json, html, "Which policy is best?", f"Model: {model}")
    return DONE if found.answered else Code.UNDECIDED
