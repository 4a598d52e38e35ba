"""The pairs that a policy takes, numbered as rows: what every solver and every test works on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import AnyArray, BoolArray, FloatArray, IntArray, Table
from policytest._base.compiled import search
from policytest._base.errors import InputError, check_precision
from policytest._base.linear import solved, system_of
from policytest._base.rows import Rows, first_of_state
from policytest.mdp import horizon
from policytest.mdp.observed import Observed

if TYPE_CHECKING:
    from policytest.mdp.task import Task

Made = TypeVar("Made")
MOST_KEPT = 100  # states up to which another task that belongs to this one is kept


SWEEPS = 30  # after which a range is computed exactly
CLOSE = 1e-5  # the residual of values of uniform rows, relative to the rewards


class Layout:
    """The rows of a task: each is a pair with pi(a|s) > 0, in the order of s*A + a. Everything is made on first use."""

    def __init__(self, task: Task) -> None:
        self._task = task
        self._kept: dict[str, tuple[Hashable, Any]] = {}

    def kept(self, key: tuple[str, Hashable], make: Callable[[], Made]) -> Made:
        """What was made for this key (name, details): in small tasks kept until it is made with other details."""
        name, details = key
        if self._task.n_states > MOST_KEPT:
            return make()
        if name not in self._kept or self._kept[name][0] != details:
            self._kept[name] = details, make()
        found: Made = self._kept[name][1]
        return found

    @cached_property
    def pairs(self) -> Rows:
        """The pairs with pi > 0, with no successor listed."""
        task = self._task
        pair = np.flatnonzero(task.policy.ravel() > 0)
        reward = np.zeros(len(pair)) if task.rewards_on_successor else task.reward_table.ravel()[pair]
        return Rows(
            pair=pair.astype(np.int64),
            state=(pair // task.n_actions).astype(np.int64),
            prob=task.policy.ravel()[pair],
            reward=reward,
            start=np.zeros(len(pair) + 1, dtype=np.int64),
            successor=np.zeros(0, dtype=np.int32),
            gain=np.zeros(0),
        )

    @cached_property
    def row_of_pair(self) -> IntArray:
        """[S*A] the row of a pair s*A + a, -1 where pi(a|s) = 0."""
        row = np.full(self._task.n_states * self._task.n_actions, -1, dtype=np.int64)
        row[self.pairs.pair] = np.arange(len(self.pairs.pair))
        return row

    @property
    def unknown_pairs(self) -> BoolArray:
        """[S,A] the pairs that the policy takes and whose row is unknown: those that are worth a sample."""
        return np.asarray((self._task.policy > 0) & ~self._task.known_rows)

    @cached_property
    def rows(self) -> Rows:
        """The pairs with pi > 0 and all their allowed successors; a sparse task may never need the list."""
        task, S, pair = self._task, self._task.n_states, self.pairs.pair
        if task.support is None:
            if len(pair) * S > arrays.TABLE_LIMIT:
                raise InputError(
                    f"{len(pair):,} pairs with any of {S:,} successors are {len(pair) * S:,} entries, too many to "
                    "list; declare `support`, the successors that each pair can have, as a SciPy CSR array"
                )
            return self.listed(np.full(len(pair), S), np.tile(np.arange(S, dtype=np.int32), len(pair)))
        if arrays.is_sparse(task.support):
            chosen = task.support[pair]
            return self.listed(np.diff(chosen.indptr), chosen.indices)
        allowed = task.support.reshape(-1, S)[pair]
        return self.listed(allowed.sum(axis=1), np.nonzero(allowed)[1])

    @property
    def n_entries(self) -> int:
        """How many transitions are allowed, without listing them where any state may follow any pair."""
        return len(self.pairs.pair) * self._task.n_states if self._task.support is None else self.rows.n_entries

    def listed(self, width: IntArray, successor: AnyArray) -> Rows:
        """Rows with these successors, `width` of them for each pair."""
        task = self._task
        start = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
        rows = self.pairs._replace(start=start, successor=successor.astype(np.int32))
        return rows._replace(gain=rows.pick(task.rewards, task.n_states)) if task.rewards_on_successor else rows

    def extreme_values(self, sense: str) -> tuple[FloatArray, float]:
        """[S] the smallest ("min") or largest ("max") values over all kernels, and a bound on their relative error.

        The error is that of the solve, and of improvements too small to be made.
        """
        task, sign = self._task, arrays.sense_sign(sense)
        if not task.is_discounted_table:
            return horizon.extreme_values(task, self.rewarded(sign), sign)
        rows = self.pairs if task.any_successor else self.rows
        _, values, error = search.extreme_rows(rows, task.discount, task.initial, sign, task.any_successor)
        check_precision(error)
        return np.asarray(values), 2.0 * error + 1e-13 / (1.0 - task.discount)

    @cached_property
    def uniform_values(self) -> tuple[FloatArray, float]:
        """[S] U, about the values of the kernel whose rows are uniform, and a bound on its error."""
        rows, gamma = self.rows, self._task.discount
        moves, reward = system_of(rows, rows.per_entry(1.0 / np.diff(rows.start)), gamma)
        U = solved(moves, reward, reward / (1.0 - gamma), CLOSE)
        return U, float(np.abs(reward + moves @ U - U).max()) / (1.0 - gamma) + 1e-9 * float(np.abs(U).max())

    def surely_reaches(self, bar: float, sign: float) -> bool:
        """Whether some kernel has sign V <= sign bar: shown by sweeps from the values U of uniform rows, or not at all.

        The sweeps  V(s) <- sum_a pi(a|s) min_x [r + gamma V(x)]  (max for sign -1) come closer to the end of the range.
        Uniform rows raise no value of U by more than e, nor does the first sweep: so the end is at most V + e/(1-gamma)
        after each of them.
        """
        rows, task, (V, over) = self.rows, self._task, self.uniform_values
        least, first = np.minimum if sign > 0 else np.maximum, first_of_state(rows)
        for _ in range(SWEEPS):
            if sign * (bar - float(task.initial @ V)) >= over:
                return True
            worth = V[rows.successor]
            worth *= task.discount
            worst = rows.reward + least.reduceat(worth + rows.gain if len(rows.gain) else worth, rows.start[:-1])
            V = np.add.reduceat(rows.prob * worst, first)
        return False

    def take_over(self, other: Layout, threshold: float) -> None:
        """What another task has found that differs in its rewards alone: these are less by (1-gamma) times this."""
        done = vars(other)
        if "rows" in done:
            rewards = self.pairs.reward
            gain = done["rows"].gain - (1.0 - self._task.discount) * threshold
            self.rows = done["rows"]._replace(reward=rewards, gain=gain)
        if "uniform_values" in done:
            U, error = done["uniform_values"]
            self.uniform_values = U - threshold, error + 1e-9 * abs(threshold)

    def rewarded(self, sign: float) -> Rows:
        """The rows with the least rewards (sign 1) or the largest, where these are observed; else with the rewards."""
        rewards = self._task.rewards
        if not isinstance(rewards, Observed):
            return self.rows
        return self.rows._replace(reward=(rewards.low if sign > 0 else rewards.high).ravel()[self.pairs.pair])

    @cached_property
    def value_ends(self) -> tuple[float, float, float]:
        """The ends of the value range, and a bound on their error; infinite where totals have no bound."""
        task, steps = self._task, self._task.expected_steps
        low, high = (self.extreme_values(sense) for sense in ("min", "max"))
        off = max(np.abs(task.policy.sum(axis=1) - 1.0).max() * steps, abs(task.initial.sum() - 1.0))
        starts = task.initial > 0
        error = max((end[1] + 2.0 * off) * np.abs(end[0][np.isfinite(end[0])]).max(initial=0.0) for end in (low, high))
        ends = (float(task.initial[starts] @ end[0][starts]) for end in (low, high))
        lowest, highest = (end + task.reached_at_start for end in ends)
        if task.total_rewards is not None:
            lowest, highest = max(lowest, task.total_rewards[0]), min(highest, task.total_rewards[1])
        return lowest, highest, float(error)


def support_sizes(support: Table) -> IntArray:
    """[S*A] the number of allowed successors of each pair."""
    if arrays.is_sparse(support):
        return np.asarray(np.diff(support.indptr))
    return np.asarray(support.reshape(-1, support.shape[-1]).sum(axis=1))
