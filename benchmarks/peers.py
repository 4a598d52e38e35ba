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


def plays(task: pt.Task, sim: Any, rng: np.random.Generator, size: int, horizon: int, rest: Any) -> tuple[Any, Any]:
    """[size] discounted returns of plain rollouts, and the steps of each, until they end or for ``horizon`` steps.

    ``rest`` [S] is what counts for all that follows a rollout which was cut off in that state.
    """
    gamma, ended = task.discount, np.isin(np.arange(task.n_states), task.ends)
    s = rng.choice(task.n_states, size=size, p=task.initial)
    returns, steps, going = np.zeros(size), np.zeros(size, dtype=np.int64), np.flatnonzero(~ended[s])
    for step in range(horizon):
        if not len(going):
            break
        at = s[going]
        a = (task.policy[at].cumsum(axis=1) > rng.random((len(at), 1))).argmax(axis=1)
        x = sim.draw(at, a, rng)
        returns[going] += gamma**step * (task.rewards[at, a] if task.rewards.ndim == 2 else task.rewards[at, a, x])
        s[going], steps[going] = x, step + 1
        going = going[~ended[x]]
    returns[going] += gamma**horizon * rest[s[going]]
    return returns, steps


def least_returns(task: pt.Task, sign: float) -> Any:
    """[S] the least return (sign 1), or the largest with its sign turned (-1), of a path that the task allows."""
    S, A = task.policy.shape
    support = np.ones((S, A, S), dtype=bool) if task.support is None else np.asarray(task.support)
    rewards = task.rewards if task.rewards.ndim == 3 else task.rewards[:, :, None]
    cost = np.where(support & (task.policy > 0)[:, :, None], sign * rewards, np.inf)
    least, change = np.zeros(S), np.inf
    while change > 1e-12:
        before, least = least, (cost + task.discount * least).min(axis=(1, 2))
        change = abs(least - before).max()
    return least


def ville_on_returns(
    instance: pt.instances.Instance,
    threshold: float,
    deltas: Sequence[float],
    seed: int,
    cap: int,
    side: str = "above",
    paths: bool = False,
) -> list[int | None]:
    """Is the value on this side of the threshold? Bets on truncated returns by ville: transitions until it says so.

    Looked at after every return, for each delta. The horizon is chosen from the true gap, in its favour; what is cut
    off counts at its worst. The range of returns follows from that of rewards; with ``paths``, from the allowed paths.
    """
    task, rng, sim = instance.task, np.random.default_rng(seed), pt.TabularSimulator(instance.kernel)
    gamma, (low, high) = task.discount, task.reward_bounds
    gap, above = abs(pt.value(task, instance.kernel) - threshold), side == "above"
    horizon = int(np.ceil(np.log(0.02 * gap * (1 - gamma) / (high - low)) / np.log(gamma)))
    if paths:
        least, most = least_returns(task, 1.0), -least_returns(task, -1.0)
        starts, rest = task.initial > 0, least if above else most
        bounds = (float(least[starts].min()), float(most[starts].max()))
    else:
        rest = np.full(task.n_states, (low if above else high) / (1 - gamma))
        weight, after = (1 - gamma**horizon) / (1 - gamma), gamma**horizon * float(rest[0])
        bounds = (low * weight + after, high * weight + after)
    alternative = "greater" if above else "less"
    test = importlib.import_module("ville").BettingTest(threshold, bounds, alternative=alternative)
    taken = np.zeros(1, dtype=np.int64)  # transitions up to each return
    while taken[-1] < cap and test.stopping_time(min(deltas)) is None:
        returns, steps = plays(task, sim, rng, BATCH, horizon, rest)
        test.update(np.clip(returns, *bounds))
        taken = np.concatenate([taken, taken[-1] + steps.cumsum()])
    stops = [test.stopping_time(delta) for delta in deltas]
    return [None if stop is None else int(taken[stop]) for stop in stops]


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
