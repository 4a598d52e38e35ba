r"""What may be true: a kernel, and where rewards are observed, their law given state, action and next state.

Of rewards a guess says the mean; the law that is simulated has two values. With a mean m and nothing else they are the
ends of the declared range, the law of the largest variance: a plan is then on the safe side. With a variance v, too,
they are a and b with

    (m - a) (b - m) = v,        a = m - sqrt(v) and b = m + sqrt(v) where both are in the range, else one is its end.

Where rewards are listed, a and b move outwards to listed values; the mean stays.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray, Kernel
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.data.reward_moments import RewardMoments
from policytest.data.simulators import TabularSimulator
from policytest.mdp import horizon
from policytest.mdp.listed_rewards import listed_law
from policytest.mdp.task import Task
from policytest.mdp.values import value

WITH_REWARDS = (
    "the rewards of the task are observed, so that a kernel alone does not tell its value; pass rewards=, the mean "
    "reward of each pair [S,A] or transition [S,A,S], or recorded Transitions(s, a, x, r) as the guess"
)


class RewardLaw(NamedTuple):
    """The law of the reward of each allowed transition, [E,m]: values in units of the task's, and their chances."""

    values: FloatArray
    chances: FloatArray

    @property
    def mean(self) -> FloatArray:
        """[E]."""
        return np.asarray((self.values * self.chances).sum(axis=1))


class Truth(NamedTuple):
    """A kernel, and the law of rewards where these are observed."""

    kernel: Kernel
    rewards: RewardLaw | None = None

    def value(self, task: Task, name: str = "guess") -> float:
        """V of the policy."""
        if self.rewards is None:
            return value(task, self.kernel)
        rows = task.layout.rows
        found = horizon.evaluated(
            task, with_means(rows, self.rewards.mean), rows.gather(name, self.kernel, task.n_states, task.place)
        )
        horizon.refuse_improper(task, found, name)
        return float(np.nan_to_num(task.initial * (found.V if task.horizon is None else found.V[0])).sum())

    def simulator(self, task: Task) -> TabularSimulator:
        """A simulator of it; rewards are drawn as they are paid."""
        if self.rewards is None:
            return TabularSimulator(self.kernel)
        rows, S = task.layout.rows, task.n_states
        keys, (values, chances) = rows.pair[rows.of_entry()] * S + rows.successor, self.rewards
        sums = np.cumsum(chances, axis=1)[:, :-1]

        def paid(s: IntArray, a: IntArray, x: IntArray, rng: np.random.Generator) -> FloatArray:
            e = np.minimum(np.searchsorted(keys, (s * task.n_actions + a) * S + x), len(keys) - 1)
            drawn: IntArray = (rng.random(len(e))[:, None] >= sums[e]).sum(axis=1)
            return np.asarray(values[e, drawn] * task.reward_scale)

        return TabularSimulator(self.kernel, rewards=paid)


def with_means(rows: Rows, mean: FloatArray) -> Rows:
    """The rows with these rewards [E] on transitions."""
    return rows._replace(reward=np.zeros(len(rows.pair)), gain=mean)


def mixed(laws: list[RewardLaw | None]) -> RewardLaw | None:
    """The law of a reward from any of these, chosen with equal chances."""
    found = [law for law in laws if law is not None]
    if not found:
        return None
    return RewardLaw(np.hstack([law.values for law in found]), np.hstack([law.chances for law in found]) / len(found))


# ---------------------------------------------------------------- the laws


def law_with_means(task: Task, rewards: object) -> RewardLaw:
    """Rewards at the ends of their range, with these means [S,A] or [S,A,S], as they are paid."""
    (low, high), rows = _range(task), task.layout.rows
    table = arrays.real_array("rewards", rewards)
    shape = task.policy.shape
    arrays.check_shape("rewards", table.shape, (*shape, task.n_states) if table.ndim == 3 else shape)
    given = rows.pick(table, task.n_states) if table.ndim == 3 else rows.per_entry(table.ravel()[rows.pair])
    mean, slack = given / task.reward_scale, 1e-9 * np.maximum(np.abs(low), np.abs(high))
    wrong = (mean < low - slack) | (mean > high + slack)
    over = horizon.over_in(task)[rows.state[rows.of_entry()]]
    if (wrong & ~over).any():
        at = int(np.argmax(wrong & ~over))
        place = task.place(int(rows.pair[rows.of_entry()[at]]), int(rows.successor[at]) if table.ndim == 3 else None)
        first, last = (float(end[at]) * task.reward_scale for end in (low, high))
        raise InputError(f"rewards: the mean at {place} is {given[at]:g}, outside the range [{first:g}, {last:g}]")
    return two_valued(task, np.clip(mean, low, high), np.full(len(mean), np.inf))


def law_of_values(task: Task, q: object) -> Truth:
    """The kernel, and the law of listed rewards, of q[s,a,x,j]."""
    (kernel, law, values), rows = listed_law(task, q), task.layout.rows
    chances = law.reshape(-1, task.n_states, len(values))[rows.pair[rows.of_entry()], rows.successor]
    total = chances.sum(axis=1, keepdims=True)
    chances = np.where(total > 0, chances / np.where(total > 0, total, 1.0), 1.0 / len(values))
    over = horizon.over_in(task)[rows.state[rows.of_entry()]]
    return Truth(kernel, RewardLaw(np.where(over[:, None], 0.0, values), chances))


def law_after(task: Task, seen: RewardMoments, rng: np.random.Generator | None = None) -> RewardLaw:
    """A law that these rewards leave possible; without ``rng`` the middle one.

    The mean and the variance of a transition are those of its rewards and of one more like its pair's; those of the
    pair have one more at either end of its range. Means are off by a normal error.
    """
    (low, high), rows = _range(task), task.layout.rows
    k, middle = rows.of_entry(), 0.5 * (low + high)
    by_pair = [rows.sums(line)[k] for line in seen.table]
    mean, variance = _moments(by_pair, middle, 0.25 * (high - low) ** 2)
    mean, variance = _moments(list(seen.table), mean, variance)
    if rng is not None:
        mean = mean + np.sqrt(variance / (seen.table[0] + 1.0)) * rng.standard_normal(len(mean))
    return two_valued(task, np.clip(mean, low, high), variance)


def _moments(seen: list[FloatArray], mean: FloatArray, variance: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The mean and the variance of what was seen, and of one more with these."""
    n, sums, squares = seen
    found = (sums + mean) / (n + 1.0)
    return found, np.maximum((squares + variance + mean**2) / (n + 1.0) - found**2, 0.0)


def two_valued(task: Task, mean: FloatArray, variance: FloatArray) -> RewardLaw:
    """The law of two values with these means [E], and these variances where the range allows them."""
    low, high = _range(task)
    v = np.minimum(variance, (mean - low) * (high - mean))
    sd = np.sqrt(v)
    down, up = np.minimum(sd, mean - low), np.minimum(sd, high - mean)
    a = mean - np.where(up < sd, v / np.where(up > 0, up, 1.0), down)
    b = mean + np.where(down < sd, v / np.where(down > 0, down, 1.0), up)
    a, b = np.clip(a, low, mean), np.clip(b, mean, high)
    values = task.rewards.values
    if values is not None:  # the ends of the range of a pair are listed
        below = np.maximum(values[np.maximum(np.searchsorted(values, a, side="right") - 1, 0)], low)
        above = np.minimum(values[np.minimum(np.searchsorted(values, b), len(values) - 1)], high)
        a, b = np.where(low < high, below, low), np.where(low < high, above, high)
    chance = np.where(b > a, (mean - a) / np.where(b > a, b - a, 1.0), 0.0)
    return RewardLaw(np.column_stack([a, b]), np.column_stack([1.0 - chance, chance]))


def _range(task: Task) -> tuple[FloatArray, FloatArray]:
    """[E] the ends of the range of each allowed transition."""
    rows, rewards = task.layout.rows, task.rewards
    low, high = (rows.per_entry(end.ravel()[rows.pair]) for end in (rewards.low, rewards.high))
    return low, high
