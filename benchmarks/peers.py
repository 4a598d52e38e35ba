"""Other tools on the questions of this package, where they are installed: ville (betting on returns) and Storm.

Neither is a dependency. `pip install ville stormpy` makes them available to the benchmarks; with ``--target FOLDER``
and FOLDER on PYTHONPATH they stay apart from everything else.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

import policytest as pt

BATCH = 256  # returns that are drawn at a time


def chain_of(instance: pt.instances.Instance) -> tuple[Any, Any]:
    """P[s,x] and r[s] under the policy of an instance with rewards on (s,a)."""
    task, S = instance.task, instance.task.n_states
    kernel = instance.kernel if sparse.issparse(instance.kernel) else instance.kernel.reshape(-1, S)
    weights = sparse.csr_array((task.policy.ravel(), np.arange(task.policy.size), np.arange(S + 1) * task.n_actions))
    return sparse.csr_array(weights @ sparse.csr_array(kernel)), (task.policy * task.rewards).sum(axis=1)


def write_drn(path: Path, P: Any, reward: Any, labels: dict[int, str]) -> None:
    """A Markov chain in the format that Storm and policytest read."""
    size = ["@nr_states", str(len(reward)), "@nr_choices", str(len(reward))]
    lines = ["@type: DTMC", "@parameters", "", "@reward_models", "gain", *size, "@model"]
    for s, earned in enumerate(reward.tolist()):
        lines += [f"state {s} [{earned!r}] {labels.get(s, '')}".rstrip(), "\taction 0"]
        row = slice(P.indptr[s], P.indptr[s + 1])
        entries = zip(P.indices[row].tolist(), P.data[row].tolist(), strict=True)
        lines += [f"\t\t{x} : {mass!r}" for x, mass in entries]
    path.write_text("\n".join([*lines, ""]))


def ville_on_returns(
    instance: pt.instances.Instance, threshold: float, deltas: Sequence[float], seed: int, cap: int
) -> list[int | None]:
    """Is the value above the threshold? Betting on truncated returns by ville: transitions until it says so.

    Looked at after every return, for each delta. The horizon is chosen from the true gap, in its favour; what is cut
    off counts at its lowest.
    """
    task, rng, sim = instance.task, np.random.default_rng(seed), pt.TabularSimulator(instance.kernel)
    gamma, (low, high) = task.discount, task.reward_bounds
    gap = abs(pt.value(task, instance.kernel) - threshold)
    horizon = int(np.ceil(np.log(0.02 * gap * (1 - gamma) / (high - low)) / np.log(gamma)))
    rest = low * gamma**horizon / (1 - gamma)
    weight = (1 - gamma**horizon) / (1 - gamma)
    bounds = (low * weight + rest, high * weight + rest)
    test, drawn = importlib.import_module("ville").BettingTest(threshold, bounds, alternative="greater"), 0
    while drawn < cap and test.stopping_time(min(deltas)) is None:
        s = rng.choice(task.n_states, size=BATCH, p=task.initial)
        returns = np.full(len(s), rest)
        for step in range(horizon):
            a = (task.policy[s].cumsum(axis=1) > rng.random((len(s), 1))).argmax(axis=1)
            returns += gamma**step * task.rewards[s, a]
            s = sim.draw(s, a, rng)
        test.update(np.clip(returns, *bounds))
        drawn += len(s) * horizon
    stops = [test.stopping_time(delta) for delta in deltas]
    return [None if stop is None else stop * horizon for stop in stops]


class Storm:
    """A model in Storm, read from a DRN file."""

    def __init__(self, path: Path) -> None:
        self.storm = importlib.import_module("stormpy")
        self.model = self.storm.build_model_from_drn(str(path))

    def checked(self, formula: str) -> float:
        """The value of a formula in the initial state."""
        found = self.storm.model_checking(self.model, self.storm.parse_properties(formula)[0])
        return float(found.get_value(self.model.initial_states[0]))

    def simulator(self, seed: int) -> Any:
        """Storm's simulator."""
        return importlib.import_module("stormpy.simulator").create_simulator(self.model, seed=seed)

    def steps(self, number: int) -> int:
        """So long a path of Storm's simulator, without a test; the number of steps."""
        simulator = self.simulator(0)
        simulator.restart()
        for _ in range(number):
            simulator.step()
        return number

    def reaches(self, goal: int, avoid: int, threshold: float, delta: float, seed: int) -> int:
        """Is P [!avoid U goal] above the threshold? Episodes of Storm's simulator, bets of ville: the steps it took."""
        test = importlib.import_module("ville").BettingTest(threshold, alternative="greater", alpha=delta)
        simulator, steps = self.simulator(seed), 0
        while test.stopping_time(delta) is None:
            state = simulator.restart()[0]
            while state not in (goal, avoid):
                state = simulator.step()[0]
                steps += 1
            test.update(np.array([float(state == goal)]))
        return steps
