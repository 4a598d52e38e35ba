"""What is known of the difference of two policies before any sample is drawn, and whether two tasks can be compared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from policytest import _checks
from policytest._checks import FloatArray, InputError
from policytest._rows import Rows
from policytest.betting import MOST_LISTED
from policytest.counts import Counts
from policytest.coupling import SAME, reached
from policytest.task import Task, value_range, value_range_error
from policytest.verdict import Verdict

EQUAL = "the difference does not depend on what is unknown, and equals the margin"


def check_alike(task_a: Task, task_b: Task) -> None:
    """Refuse tasks that differ in more than policy and rewards, and say in what."""
    for name in ("n_states", "n_actions", "discount"):
        first, second = getattr(task_a, name), getattr(task_b, name)
        if first != second:
            raise InputError(f"task_a.{name} is {first} and task_b.{name} is {second}; they must be the same")
    if not np.array_equal(task_a.initial, task_b.initial):
        at = int(np.argmax(task_a.initial != task_b.initial))
        raise InputError(
            f"task_a.initial[{at}] is {task_a.initial[at]:.9g} and task_b.initial[{at}] is {task_b.initial[at]:.9g}; "
            "both policies must start alike"
        )
    if not _same_table(task_a.support, task_b.support, task_a.n_states):
        raise InputError("task_a.support and task_b.support differ; both policies meet the same kernel: pass the same")


def _same_table(first: Any, second: Any, S: int) -> bool:
    """Whether two tables on (s,a,x), dense or sparse, have the same entries."""
    if first is None or second is None:
        return first is second
    if not _checks.is_sparse(first) and not _checks.is_sparse(second):
        return bool(np.array_equal(first, second))
    one, two = (
        sparse.csr_array(t if _checks.is_sparse(t) else t.reshape(-1, S)).astype(np.float64) for t in (first, second)
    )
    return bool(abs(one - two).sum() == 0)


@dataclass(frozen=True)
class KnownDifference:
    """Where V^A - V^B lies for every kernel that is allowed, and how exactly the ends are known."""

    low: float
    high: float
    error: float

    def settles(self, margin: float, zone: float = 0.0) -> bool:
        """Whether no sample is needed, or none can help."""
        return self.answer(margin, zone) is not None or self.high - self.low <= self.error

    def answer(self, margin: float, zone: float = 0.0) -> str | None:
        """Where the margin is outside; or where all differences are within the zone around it."""
        if margin < self.low - self.error:
            return "above"
        if margin > self.high + self.error:
            return "below"
        within = margin - zone < self.low - self.error and self.high + self.error < margin + zone
        return "within" if within else None

    def verdict(self, task: Task, margin: float, delta: float, zone: float = 0.0) -> Verdict:
        """The answer without samples."""
        answer = self.answer(margin, zone)
        return Verdict(
            task=task,
            threshold=margin,
            delta=delta,
            answer=answer,
            samples=0,
            certified=answer is not None,
            evidence=(np.inf if answer == "above" else 0.0, np.inf if answer == "below" else 0.0),
            estimate=self.low if self.high - self.low <= self.error else math.nan,
            interval=(self.low, self.high),
            witness=None,
            lower_bound=0.0,
            solves=0,
            counts=Counts(task.n_states, task.n_actions, sparse=_checks.is_sparse(task.support)),
            reason="" if answer else EQUAL,
            method="the range of the difference of policy A and policy B over all kernels",
            about="difference",
            indifference=zone,
            refuted=(math.inf, math.inf) if answer == "within" else None,
        )


def known_difference(task_a: Task, task_b: Task) -> KnownDifference:
    """The range of V^A - V^B: 0 where the two never differ, else from the two ranges of values."""
    if never_differ(task_a, task_b):
        return KnownDifference(0.0, 0.0, 0.0)
    (low_a, high_a), (low_b, high_b) = value_range(task_a), value_range(task_b)
    error = 4.0 * (value_range_error(task_a) + value_range_error(task_b))
    return KnownDifference(low_a - high_b, high_a - low_b, error)


def never_differ(task_a: Task, task_b: Task) -> bool:
    """Whether policies and rewards agree wherever the two can get together, whatever the kernel."""
    S = task_a.n_states
    same = (np.abs(task_a.policy - task_b.policy) <= SAME).all(axis=1)
    if not same[task_a.initial > 0].all():
        return False
    if task_a.support is None and S * len(task_a._pairs.pair) > MOST_LISTED:
        return bool(same.all()) and _same_rewards(task_a, task_b)
    rows = task_a._rows
    alike = _rewards_on(task_a, rows) == _rewards_on(task_b, rows)
    state = rows.state[rows.of_entry()]
    same[state[~alike]] = False
    edges = sparse.csr_array((np.ones(rows.n_entries), (state, rows.successor)), shape=(S, S))
    return bool(same[reached(edges, task_a.initial > 0)].all())


def _rewards_on(task: Task, rows: Rows) -> FloatArray:
    """[E] the rewards of a task on the entries of any rows."""
    if task.rewards_on_successor:
        return rows.pick(task.rewards, task.n_states)
    return rows.per_entry(task.rewards.ravel()[rows.pair])


def _same_rewards(task_a: Task, task_b: Task) -> bool:
    if task_a.rewards_on_successor != task_b.rewards_on_successor:
        return False
    return task_a.rewards is task_b.rewards or _same_table(task_a.rewards, task_b.rewards, task_a.n_states)
