"""What is known before any sample is drawn: the range of a value or difference; whether two tasks can be compared."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.payoffs.coupling import SAME, reached
from policytest.payoffs.policy_bet import MOST_LISTED, is_large


def check_alike(task_a: Task, task_b: Task) -> None:
    """Refuse tasks that differ in more than policy and rewards, and say in what."""
    check_equal(
        task_a, task_b, ("n_states", "n_actions", "discount", "horizon", "total_rewards"), "they must be the same"
    )
    _check_observed(task_a, task_b)
    if not np.array_equal(task_a.initial, task_b.initial):
        at = int(np.argmax(task_a.initial != task_b.initial))
        raise InputError(
            f"task_a.initial[{at}] is {task_a.initial[at]:.9g} and task_b.initial[{at}] is {task_b.initial[at]:.9g}; "
            "both policies must start from the same law; pass the same"
        )
    if not _same_table(task_a.support, task_b.support, task_a.n_states):
        raise InputError("task_a.support and task_b.support differ; both policies meet the same kernel: pass the same")


TASKS = "task_a", "task_b"
"""What the two sides of a comparison are called in errors."""


def check_equal(a: object, b: object, names: tuple[str, ...], otherwise: str, called: tuple[str, str] = TASKS) -> None:
    """Both sides of a comparison have the same."""
    for name in names:
        first, second = getattr(a, name), getattr(b, name)
        if first != second:
            raise InputError(f"{called[0]}.{name} is {first} and {called[1]}.{name} is {second}; {otherwise}")


def _check_observed(task_a: Task, task_b: Task) -> None:
    """Both rewards are observed, in the same range, or none are."""
    first, second = task_a.rewards, task_b.rewards
    if isinstance(first, Observed) != isinstance(second, Observed):
        raise InputError("the rewards of one of task_a and task_b are observed; both must be, or none")
    names = ("low", "high", "values") if isinstance(first, Observed) else ()
    if not all(np.array_equal(getattr(first, name), getattr(second, name)) for name in names):
        raise InputError("task_a.rewards and task_b.rewards are observed in different ranges; pass the same range")


def _same_table(first: Any, second: Any, S: int) -> bool:
    """Whether two tables on (s,a,x), dense or sparse, have the same entries."""
    if first is None or second is None:
        return first is second
    if not arrays.is_sparse(first) and not arrays.is_sparse(second):
        return bool(np.array_equal(first, second))
    one, two = (
        sparse.csr_array(t if arrays.is_sparse(t) else t.reshape(-1, S)).astype(np.float64) for t in (first, second)
    )
    return bool(abs(one - two).sum() == 0)


@dataclass(frozen=True)
class KnownRange:
    """Where a value, or a difference of two, lies for every kernel that is allowed, and how exactly the ends are known.

    ``is_fixed``: no row is unknown, so that samples cannot help.
    """

    low: float
    high: float
    error: float
    is_fixed: bool = False

    def settles(self, bar: float, zone: float = 0.0) -> bool:
        """Whether no sample is needed, or none can help."""
        return self.answer(bar, zone) is not None or self.is_fixed or self.high - self.low <= self.error

    def only_answer(self, bar: float) -> str | None:
        """The only answer that is possible where the bar is at an end of the range."""
        if abs(bar - self.high) <= self.error:
            return "below"
        return "above" if abs(bar - self.low) <= self.error else None

    def answer(self, bar: float, zone: float = 0.0) -> str | None:
        """Where the bar is outside the range; or where all of the range is within the zone around it."""
        if bar < self.low - self.error:
            return "above"
        if bar > self.high + self.error:
            return "below"
        within = bar - zone < self.low - self.error and self.high + self.error < bar + zone
        return "within" if within else None


def known_value(task: Task) -> KnownRange:
    """The range of the value over all kernels."""
    unknown = task.layout.unknown_pairs.any()
    return KnownRange(*value_range(task), 4.0 * value_range_error(task), not unknown)


def is_open_question(task: Task, bar: float, zone: float = 0.0) -> bool:
    """Whether a large task surely needs samples: there are kernels on both sides of the bar, one outside of the zone.

    Shown by a few sweeps, without the ends of the range; False where that is not shown.
    """
    if not is_large(task) or not task.layout.unknown_pairs.any():
        return False
    return task.layout.surely_reaches(bar - zone, 1.0) and task.layout.surely_reaches(bar, -1.0)


def known_difference(task_a: Task, task_b: Task) -> KnownRange:
    """The range of V^A - V^B: 0 where the two never differ, else that of the values on their own."""
    if never_differ(task_a, task_b):
        return KnownRange(0.0, 0.0, 0.0)
    (low_a, high_a), (low_b, high_b) = value_range(task_a), value_range(task_b)
    error = 4.0 * (value_range_error(task_a) + value_range_error(task_b))
    return KnownRange(low_a - high_b, high_a - low_b, error)


def never_differ(task_a: Task, task_b: Task) -> bool:
    """Whether policies and rewards agree wherever the two can get together, whatever the kernel."""
    S = task_a.n_states
    same = (np.abs(task_a.policy - task_b.policy) <= SAME).all(axis=1)
    same[sorted({*task_a.ends} & {*task_b.ends})] = True  # what is done after the end earns nothing
    if not same[task_a.initial > 0].all() or task_a.reached_at_start != task_b.reached_at_start:
        return False
    if task_a.support is None and S * len(task_a.layout.pairs.pair) > MOST_LISTED:
        return bool(same.all()) and _same_rewards(task_a, task_b)
    rows = task_a.layout.rows
    equal = _rewards_on(task_a, rows) == _rewards_on(task_b, rows)
    state = rows.state[rows.of_entry()]
    same[state[~equal]] = False
    edges = sparse.csr_array((np.ones(rows.n_entries), (state, rows.successor)), shape=(S, S))
    return bool(same[reached(edges, task_a.initial > 0)].all())


def _rewards_on(task: Task, rows: Rows) -> FloatArray:
    """[E] the rewards of a task on the entries of any rows; observed ones are the same for both policies."""
    if task.observes_rewards:
        return np.zeros(rows.n_entries)
    if task.rewards_on_successor:
        return rows.pick(task.rewards, task.n_states)
    return rows.per_entry(task.rewards.ravel()[rows.pair])


def _same_rewards(task_a: Task, task_b: Task) -> bool:
    if task_a.observes_rewards:
        return True
    if task_a.rewards_on_successor != task_b.rewards_on_successor:
        return False
    return task_a.rewards is task_b.rewards or _same_table(task_a.rewards, task_b.rewards, task_a.n_states)
