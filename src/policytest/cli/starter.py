"""Files to start from: a question by names, a model, a policy to try, and a log of the deployed one.

``policytest init`` writes them. The question has observed rewards: visits pay now more, now less than their mean.
"""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest._base.files import write_file
from policytest.data.simulators import TabularSimulator
from policytest.sources.tasks.files import Model, load_model

ABOUT = """\
# Visitors of a shop are new, browsing or keen; who leaves is gone for good. At each visit we show what is popular, or
# a personal choice, or a discount. Rewards are what a visit earns. The bar is what the deployed policy earns.
"""
QUESTION = """\
states = ["new", "browsing", "keen", "gone"]
actions = ["popular", "personal", "discount"]
discount = 0.9
threshold = 3.0
terminal = ["gone"] # nothing follows, and nothing is earned: no row of the log begins there
initial = { new = 0.8, browsing = 0.2 }

[policy] # the new policy, which is to be tested
new = { popular = 0.5, personal = 0.5 }
browsing = { personal = 0.8, discount = 0.2 }
keen = "personal"
"""
RANGE = "reward_range = [-1.0, 3.0] # what a visit pays is in the log, in the column paid, and lies between these\n"
PAID = ABOUT + RANGE + QUESTION
MODEL = """
[rewards] # their means; what is left out earns 0
new = { popular = 0.2, personal = 0.1, discount = -0.2 }
browsing = { popular = 0.6, personal = 0.8, discount = 0.1 }
keen = { popular = 1.5, personal = 2.0, discount = 1.0 }

[kernel] # the truth that a simulator draws from (`decide`); no test knows it. With logs alone, leave it out.
new.popular = { browsing = 0.5, keen = 0.1, gone = 0.4 }
new.personal = { browsing = 0.5, keen = 0.2, gone = 0.3 }
new.discount = { browsing = 0.6, keen = 0.2, gone = 0.2 }
browsing.popular = { browsing = 0.6, keen = 0.2, gone = 0.2 }
browsing.personal = { browsing = 0.5, keen = 0.35, gone = 0.15 }
browsing.discount = { browsing = 0.4, keen = 0.5, gone = 0.1 }
keen.popular = { browsing = 0.4, keen = 0.4, gone = 0.2 }
keen.personal = { browsing = 0.3, keen = 0.6, gone = 0.1 }
keen.discount = { browsing = 0.2, keen = 0.7, gone = 0.1 }
"""

TASK = ABOUT + QUESTION + MODEL
POLICY = """\
state,action,probability
new,personal,1
browsing,personal,1
keen,personal,1
"""

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
    names = ("task.toml", "paid.toml", "policy.csv", "log.csv")
    there = [name for name in names if os.path.lexists(folder / name)]
    if there:
        raise InputError(f"{folder / there[0]} exists, and nothing is overwritten; choose another folder, or remove it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(f"{folder}: cannot be created ({error.strerror or error}); choose another folder") from None
    write_file(folder / "task.toml", TASK.encode())
    write_file(folder / "paid.toml", PAID.encode())
    write_file(folder / "policy.csv", POLICY.encode())
    write_file(folder / "log.csv", _log(load_model(folder / "task.toml"), seed).encode())
    return [folder / name for name in names]


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
