"""Files to start from: a question by names, a model, a policy to try, and a log of the deployed one.

``policytest init`` writes them. The question has observed rewards: visits pay now more, now less than their mean.
"""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.files import write_file
from policytest.data.simulators import TabularSimulator
from policytest.sources.tasks.files import Model, load_model

FILES = ("task.toml", "paid.toml", "policy.csv")
"""As in ``starter_files``; ``paid.toml`` asks the question of ``task.toml``, with rewards that are observed."""
NEXT = """\
# do the logs settle it already, by what was paid?
policytest assess {folder}/paid.toml {folder}/log.csv --column reward=paid
# or in a model with mean rewards: sample until it is known
policytest decide {folder}/task.toml
# another policy, and a report
policytest decide {folder}/task.toml --policy {folder}/policy.csv --html report.html
"""

VISITORS = 600
"""In the log. Each is followed until gone, or for at most `VISITS`."""
VISITS = 12
NOISE = 0.5
"""A visit pays its mean, give or take this."""


def write_starter(folder: Path, seed: int = 0) -> list[Path]:
    """Write ``task.toml``, ``paid.toml``, ``policy.csv`` and ``log.csv``; refused where one is there already."""
    if arrays.whole_number("seed", seed) < 0:
        raise InputError(f"seed is {seed}; it is a whole number from 0 on")
    there = [name for name in (*FILES, "log.csv") if os.path.lexists(folder / name)]
    if there:
        raise InputError(f"{folder / there[0]} exists, and nothing is overwritten; choose another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror or error}); choose another folder") from None
    for name in FILES:
        write_file(folder / name, resources.files("policytest.cli").joinpath("starter_files", name).read_bytes())
    write_file(folder / "log.csv", _log(load_model(folder / "task.toml"), seed).encode())
    return [folder / name for name in (*FILES, "log.csv")]


def _log(model: Model, seed: int) -> str:
    """Visits under the deployed policy, which chooses among all actions evenly; the noise of what they pay is apart."""
    task, rng, noise = model.task, np.random.default_rng(seed), np.random.default_rng([seed, 1])
    sim, states, actions = TabularSimulator(model.kernel), task.states or (), task.actions or ()
    rows = ["episode,order,s,a,s_next,paid"]
    for visitor in range(VISITORS):
        s = int(rng.choice(task.n_states, p=task.initial))
        for _ in range(VISITS):
            a = int(rng.integers(task.n_actions))
            x = int(sim.draw(np.array([s]), np.array([a]), rng)[0])
            paid = task.rewards[s, a] + NOISE * (2.0 * noise.random() - 1.0)
            rows.append(f"{visitor},{len(rows) - 1},{states[s]},{actions[a]},{states[x]},{paid:.2f}")
            s = x
            if s == task.n_states - 1:  # gone
                break
    return "\n".join([*rows, ""])
