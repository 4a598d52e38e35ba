"""What comparisons of policies share: the rows that some policy takes, a supply of draws, a model, and the coupling.

Two policies that meet the same kernel can be run side by side: while they are in the same state, the same action is
taken as often as their probabilities allow, and one draw serves both. See `policytest.questions.compare`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.compiled import rollouts, search
from policytest._base.rows import Rows
from policytest.data.simulators import cumulative_rows
from policytest.mdp.task import Task
from policytest.methods.betting.run import MOST_LISTED, PAIR_MASS, STATE_MASS, Supply, rounded
from policytest.methods.boundaries import MixtureBoundary
from policytest.methods.witness import WitnessedCounts

SAME = 1e-14  # probabilities that differ by less are rounded ones of the same number


def joint_task(tasks: list[Task]) -> Task:
    """The task whose rows are all that some of these policies take; its own policy is their mean."""
    first = tasks[0]
    with_successor = next((task for task in tasks if task.rewards_on_successor), None)
    policy = np.mean([task.policy for task in tasks], axis=0)
    return replace(
        first,
        policy=policy / policy.sum(axis=1, keepdims=True),
        rewards=np.zeros(first.policy.shape) if with_successor is None else with_successor.rewards,
    )


class Pool:
    """What all comparisons of one question share: the rows that some policy takes, the counts, the supply of draws."""

    def __init__(self, tasks: list[Task], sim: Any, rng: Any, most_listed: int = MOST_LISTED) -> None:
        self.task = joint_task(tasks)
        self.tally = WitnessedCounts(self.task, 0.0, MixtureBoundary(), most_listed)
        self.source = Supply(self.task, sim, rng)
        self.samples = 0
        self._fitted: tuple[int, FloatArray] | None = None

    @property
    def paid(self) -> int:
        """The samples, and the steps that the simulator made on the way to them."""
        return self.samples + self.source.extra

    def model(self) -> FloatArray | None:
        """[E] the fitted kernel, the same for all policies; None where few of the allowed successors are listed."""
        tally = self.tally
        if tally.is_open:
            return None
        if self._fitted is None or self._fitted[0] != self.samples:
            q = rollouts.shrunk_rows(tally.rows, tally.N, tally.n, self.task.n_states, PAIR_MASS, STATE_MASS)
            self._fitted = self.samples, q
        return self._fitted[1]


class Side:
    """One policy on the shared rows. Rewards are centred."""

    def __init__(self, task: Task, pool: Pool) -> None:
        self.task, self.pool = task, pool
        rows, S = pool.tally.rows, task.n_states
        self.prob = task.policy.ravel()[rows.pair]
        self.k = np.flatnonzero(self.prob > 0)
        self.on_successor = task.rewards_on_successor
        self.reward = np.zeros(len(rows.pair)) if self.on_successor else task.rewards.ravel()[rows.pair]
        self.gain = rows.pick(task.rewards, S) if self.on_successor else np.zeros(0)
        self.policy_reward = np.bincount(rows.state, self.prob * self.reward, minlength=S).astype(np.float64)

    def rows(self) -> Rows:
        """The shared rows, with this policy and these rewards."""
        return self.pool.tally.rows._replace(prob=self.prob, reward=self.reward, gain=self.gain)

    def values(self, q: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """V0, and the occupancy of the fitted kernel."""
        task = self.task
        if q is None:
            return rounded(self._open_values()), None
        V, d, _ = search.values_and_occupancy(self.rows(), q, task.discount, task.initial)
        return rounded(np.where(np.isfinite(V), V, 0.0)), d

    def _open_values(self) -> FloatArray:
        """Values where any state may follow and few do: rows of pairs drawn to those of states, and these to the mean.

        As in `betting.run`, but counts come from more than one policy: actions are weighted by this one.
        """
        tally, S, gamma = self.pool.tally, self.task.n_states, self.task.discount
        rows = tally.rows
        visits = np.bincount(rows.state, tally.n, minlength=S)
        P = sparse.csr_array((tally.N, rows.successor, rows.start), shape=(len(rows.pair), S))
        V = self.policy_reward / (1.0 - gamma)
        for _ in range(2000):
            earned = P @ V
            by_state = np.bincount(rows.state, earned, minlength=S) + STATE_MASS * V.mean()
            by_state /= visits + STATE_MASS
            mean = (earned + PAIR_MASS * by_state[rows.state]) / (tally.n + PAIR_MASS)
            new = self.policy_reward + gamma * np.bincount(rows.state, self.prob * mean, minlength=S)
            moved, V = np.abs(new - V).max(), new
            if moved <= 1e-6 * np.abs(V).max():
                break
        return V

    def base(self, V: FloatArray, q: FloatArray | None, share: float) -> FloatArray:
        """[K] r^pi(s) - eta(s,a), eta a share of the advantages of the model; without rewards on successors."""
        rows, S = self.pool.tally.rows, self.task.n_states
        base = np.zeros(len(rows.pair)) if self.on_successor else self.policy_reward[rows.state]
        if share == 0.0 or q is None:
            return base
        worth = self.task.discount * V[rows.successor] + (self.gain if self.on_successor else 0.0)
        mean = rows.sums(q * worth)
        by_state = np.bincount(rows.state, self.prob * mean, minlength=S)
        return np.asarray(base - share * (mean - by_state[rows.state]))

    def worst(self, V: FloatArray, base: FloatArray, sign: float) -> FloatArray:
        """[S] B_A or B_B: the worst sum of residuals along any path of this policy."""
        task, gamma = self.task, self.task.discount
        if not task.any_successor:
            rows, _ = part_of(self.rows(), self.k)
            return np.asarray(rollouts.worst_paths(rows, base[self.k], V, sign, gamma))
        least = least_by_state(sign * base, self.pool.tally.rows.state, self.k, task.n_states)
        lowest = min(float((sign * V).min()), float(least.min()) / (1.0 - gamma))
        size = np.abs(base).max() / (1.0 - gamma) + np.abs(V).max()
        return np.asarray(np.minimum(0.0, least - sign * V + gamma * lowest) - 1e-12 * size)

    def lowest_steps(self, V: FloatArray, base: FloatArray, B: FloatArray, sign: float) -> FloatArray:
        """[K] the least of D(s,a,x) + gamma B(x) over x."""
        rows, gamma = self.pool.tally.rows, self.task.discount
        if self.task.any_successor:
            return np.asarray(sign * (base - V[rows.state]) + gamma * float((sign * V + B).min()))
        step = sign * self.residuals(V, base) + gamma * B[rows.successor]
        return np.minimum.reduceat(step, rows.start[:-1])

    def residuals(self, V: FloatArray, base: FloatArray) -> FloatArray:
        """[E] r - eta + gamma V0(x) - V0(s)."""
        rows, gamma = self.pool.tally.rows, self.task.discount
        gain = self.gain if self.on_successor else 0.0
        return np.asarray(rows.per_entry(base - V[rows.state]) + gain + gamma * V[rows.successor])


def part_of(rows: Rows, k: IntArray) -> tuple[Rows, IntArray]:
    """Some of the rows, with their entries; and which entries these are."""
    width = np.diff(rows.start)[k]
    start = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
    entries = np.repeat(rows.start[k] - start[:-1], width) + np.arange(start[-1])
    gain = rows.gain[entries] if len(rows.gain) else rows.gain
    chosen = Rows(rows.pair[k], rows.state[k], rows.prob[k], rows.reward[k], start, rows.successor[entries], gain)
    return chosen, entries


def least_by_state(values: FloatArray, state: IntArray, k: IntArray, S: int) -> FloatArray:
    """[S] the least value over these rows of a state, infinite where there is none."""
    least = np.full(S, np.inf)
    np.minimum.at(least, state[k], values[k])
    return least


class Half(NamedTuple):
    """What one policy of a comparison bets with."""

    V: FloatArray  # V0
    B: FloatArray  # the worst sum along any path of its own
    base: FloatArray  # [K] r^pi(s) - eta(s,a); without the reward where that is on the successor
    gain: FloatArray  # [E] that reward, or empty


class Coupling(NamedTuple):
    """The maximal coupling of two policies, [S,A] each: common + first = pi_A, common + second = pi_B."""

    common: FloatArray
    first: FloatArray
    second: FloatArray


def maximal_coupling(policy_a: FloatArray, policy_b: FloatArray) -> Coupling:
    """The same action with the largest probability: common = min(pi_A, pi_B)."""
    first, second = np.maximum(policy_a - policy_b, 0.0), np.maximum(policy_b - policy_a, 0.0)
    first[first <= SAME], second[second <= SAME] = 0.0, 0.0
    part = (first.sum(axis=1) > 0) & (second.sum(axis=1) > 0)
    first[~part], second[~part] = 0.0, 0.0
    return Coupling(policy_a - first, first, second)


def cumulative(table: FloatArray) -> FloatArray:
    """Running sums of each row of a table, for draws."""
    count, width = table.shape
    return cumulative_rows(np.arange(count + 1) * width, table.ravel()).reshape(count, width)


def exact(task: Task, centre: float) -> Task:
    """The task with centred rewards, and a policy whose rows sum to 1 to the last digit."""
    return replace(task.centred(centre), policy=task.policy / task.policy.sum(axis=1, keepdims=True))


def reached(edges: Any, start: BoolArray) -> BoolArray:
    """[S] the states to which the edges lead from the start, and the start."""
    found = start.copy()
    while True:
        wider = found | ((edges.T @ found.astype(np.float64)) > 0)
        if (wider == found).all():
            return found
        found = wider
