r"""Observed rewards of finitely many values: (next state, reward) is the outcome of a row, and the task is a table.

Let rewards take the values v_1, ..., v_m. The *outcome table* has the states of the task and one more for each outcome
(x, v_j). A row (s,a) is followed by outcomes, at reward v_j, and (x, v_j) by x, at reward 0; the row of an outcome is
known, so that it is never sampled. With the discount sqrt(gamma) a step, two steps of the table are one of the task
(a horizon is twice as long):

    V(s) = sum_a pi(a|s) sum_{x,j} q(x,j|s,a) [ v_j + sqrt(gamma) V(x,j) ],      V(x,j) = sqrt(gamma) V(x),

which are the values of the task. So every method for known rewards works on it, with its proof. Rows of states in
which episodes have ended stay as they are.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray, Kernel, SparseArray, Table
from policytest._base.errors import InputError
from policytest._base.rows import flat
from policytest.mdp.horizon import over_in
from policytest.mdp.observed import Observed, nearest
from policytest.mdp.task import Task

DENSE_ENTRIES = 1_000_000  # of a table [S,A,S], up to which it is not sparse


@dataclass(frozen=True, eq=False)
class Outcomes:
    """A task with listed rewards, its outcome table, and the values [m]; outcome (x, v_j) is state S + x*m + j."""

    task: Task
    table: Task
    values: FloatArray

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """(S, A, S, m), the shape of a kernel of outcomes."""
        S, A = self.task.policy.shape
        return S, A, S, len(self.values)

    def states(self, s: IntArray, x: IntArray, r: FloatArray) -> IntArray:
        """The states of the table that follow s, where x followed at reward r, in units of the task's."""
        S, _, _, m = self.shape
        return np.asarray(np.where(over_in(self.task)[s], x, S + x * m + nearest(self.values, r)))

    def kernel(self, name: str, kernel: Kernel) -> Kernel:
        """The kernel of the table for one of outcomes, q[s,a,x,j]; a kernel of the table is left as it is."""
        if arrays.is_sparse(kernel) or np.ndim(kernel) == 3:
            return self.table.check_kernel(name, kernel)
        S, A, _, m = self.shape
        over, size = over_in(self.task), self.table.n_states
        given = arrays.real_array(name, kernel, self.shape)
        flat = np.where(over[:, None, None], 0.0, given.reshape(S, A, S * m))
        later = np.repeat(np.arange(S), m)  # what follows an outcome
        if arrays.is_sparse(self.table.support):
            loops = sparse.csr_array(np.repeat(np.diag(over.astype(float)), A, axis=0))
            first = sparse.hstack([loops, sparse.csr_array(flat.reshape(S * A, S * m))])
            ends = (np.arange(S * m)[:, None] * A + np.arange(A)).ravel()
            known = sparse.csr_array((np.ones(len(ends)), (ends, np.repeat(later, A))), shape=(S * m * A, size))
            return sparse.csr_array(sparse.vstack([first, known]))
        found = np.zeros((size, A, size))
        found[:S, :, S:] = flat
        found[np.flatnonzero(over), :, np.flatnonzero(over)] = 1.0
        found[S + np.arange(S * m), :, later] = 1.0
        return found

    def law(self, kernel: Kernel) -> FloatArray:
        """q[s,a,x,j] of a kernel of the table; episodes that have ended stay where they are, at any reward."""
        S, A = self.task.policy.shape
        dense = kernel.toarray() if arrays.is_sparse(kernel) else kernel
        dense = dense.reshape(self.table.n_states, A, -1)[:S]
        found = dense[:, :, S:].reshape(self.shape).copy()
        found[:, :, :, 0] += dense[:, :, :S]
        return np.asarray(found)

    def shares(self, weights: FloatArray) -> FloatArray:
        """Shares [S,A] of the pairs, as shares of the rows of the table: outcomes have none."""
        return np.vstack([weights, np.zeros((self.table.n_states - self.task.n_states, self.task.n_actions))])


def lists_rewards(task: Task) -> bool:
    """Whether an outcome table has the values of this task: listed rewards, a discount below 1 or a horizon."""
    listed = isinstance(task.rewards, Observed) and task.rewards.values is not None
    return listed and not task.is_total


def outcomes_of(task: Task) -> Outcomes:
    """The outcome table of a task with listed rewards; see `lists_rewards`."""
    rewards = task.rewards
    if not (isinstance(rewards, Observed) and lists_rewards(task)):
        raise InputError("task: outcomes need rewards Observed(values=[...]), and a discount below 1 or a horizon")
    (S, A), over, values = task.policy.shape, over_in(task), _values(task, rewards)
    size = S * (1 + len(values))
    policy, initial = np.zeros((size, A)), np.zeros(size)
    policy[:S], policy[S:, 0], initial[:S] = task.policy, 1.0, task.initial
    support = _support(task, values, over)
    earned = np.concatenate([np.zeros(S), np.tile(values, S)])
    table: Table = sparse.csr_array(support.astype(np.float64) @ sparse.diags_array(earned))
    if size * A * size <= DENSE_ENTRIES and not arrays.is_sparse(task.support):
        support, table = (part.toarray().reshape(size, A, size) for part in (support, table))
    found = Task(
        table,
        policy,
        initial,
        float(np.sqrt(task.discount)),
        support,
        _names(task, values),
        task.actions,
        terminal=task.terminal,
        assumptions=task.assumptions,
        horizon=None if task.steps is None else 2 * task.steps,
    )
    return Outcomes(task, found, values)


def _values(task: Task, rewards: Observed) -> FloatArray:
    """[m] the declared values, and those of pairs with a single reward that is not declared, such as an added start."""
    single = (rewards.low == rewards.high) & ~over_in(task)[:, None]
    return np.unique(np.concatenate([rewards.values, rewards.low[single]]))


def _support(task: Task, values: FloatArray, over: BoolArray) -> SparseArray:
    """CSR (S'*A, S'): the outcomes of a pair are its successors, each with each of its values."""
    (S, A), m, rewards = task.policy.shape, len(values), task.rewards
    if task.support is None and S * A * S * m > arrays.TABLE_LIMIT:
        raise InputError(
            f"{S * A:,} pairs with any of {S:,} successors and {m} rewards are too many outcomes to list; declare "
            "`support`, the successors that each pair can have, or use TDBetting()"
        )
    if task.support is None:
        pair, x = (part.ravel() for part in np.indices((S * A, S)))
    else:
        pair, x = flat(task.support, S).tocoo().coords
    onward = ~over[pair // A]
    low, high = rewards.low.ravel(), rewards.high.ravel()
    listed = np.isin(values, rewards.values)
    allowed = (values >= low[:, None]) & (values <= high[:, None]) & (listed | (low == high)[:, None])  # [S*A, m]
    entry, j = np.nonzero(allowed[pair] & onward[:, None])
    known = S * A + np.arange(S * m * A)
    rows = np.concatenate([pair[entry], pair[~onward], known])
    columns = np.concatenate([S + x[entry] * m + j, x[~onward], np.repeat(np.arange(S), m * A)])
    return sparse.csr_array((np.ones(len(rows), dtype=bool), (rows, columns)), shape=(S * (m + 1) * A, S * (m + 1)))


def _names(task: Task, values: FloatArray) -> list[Hashable]:
    """The names of the states, and of the outcomes in words."""
    names = list(task.states) if task.states is not None else [str(s) for s in range(task.n_states)]
    scale = task.reward_scale
    return [*names, *(f"reward {v * scale:.9g} and next state {x}" for x in names for v in values)]


def listed_law(task: Task, q: Kernel) -> tuple[FloatArray, FloatArray, FloatArray]:
    """A kernel of outcomes q[s,a,x,j], checked: the kernel of its states, itself, and the values [m]."""
    rewards = task.rewards
    if not isinstance(rewards, Observed) or rewards.values is None or np.ndim(q) != 4:
        raise InputError(
            "rewards: these are observed, so that a kernel alone has no value; pass a task with the mean rewards, or "
            "declare Observed(values=[...]) and pass q[s,a,x,j], the law of next state and value"
        )
    values = _values(task, rewards)
    law = arrays.real_array("q", q, (*task.policy.shape, task.n_states, len(values)))
    return law.sum(axis=3), law, values


def with_mean_rewards(task: Task, q: Kernel) -> tuple[Task, FloatArray]:
    """The task with the mean rewards of a kernel of outcomes q[s,a,x,j], and the kernel of its states."""
    kernel, law, values = listed_law(task, q)
    mean = np.where(over_in(task)[:, None], 0.0, (law @ values).sum(axis=2))
    return replace(task, rewards=mean), kernel
