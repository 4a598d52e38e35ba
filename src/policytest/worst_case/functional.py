"""Functionals of a kernel that the KL rule compares with 0: a value, a difference of two, the gain of an action."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import search
from policytest._base.errors import check_precision
from policytest._base.rows import Rows
from policytest.mdp.task import Task

NEGLIGIBLE = 1e-200  # stands for no flow, so that rows nobody visits still have an order of successors


class Term(NamedTuple):
    """One policy of a functional, on the rows: pi_j [K], rewards [K] or on entries [E], and the measure mu_j [K]."""

    prob: FloatArray
    reward: FloatArray
    gain: FloatArray
    start: FloatArray


@dataclass(frozen=True, eq=False)
class Functional:
    """F(q) = sum_j mu_j.Q_q^j on listed rows.

    ``initial`` is rho where F is the value of the rows' own policy from rho: then compiled solvers serve it.
    """

    rows: Rows
    discount: float
    n_states: int
    terms: tuple[Term, ...]
    initial: FloatArray | None = None

    def value(self, entries: FloatArray) -> float:
        """F(q) of a kernel given by its entries."""
        return self.measured(entries)[0]

    def measured(self, entries: FloatArray) -> tuple[float, float]:
        """F(q), and a bound on what rounding did to it."""
        if self.initial is None:
            return self.linear(entries)[0], 2e-14 * self.size
        return evaluated(self.rows, self.discount, self.initial, entries)[1:]

    def linear(self, entries: FloatArray) -> tuple[float, FloatArray]:
        """F(q), and its gradient [E] up to a constant in each row."""
        rows, gamma = self.rows, self.discount
        total, gradient = 0.0, np.zeros(rows.n_entries)
        for term in self.terms:
            own = rows._replace(prob=term.prob, reward=term.reward, gain=term.gain)
            arriving = np.bincount(rows.successor, rows.per_entry(term.start) * entries, minlength=self.n_states)
            inflow = np.asarray(gamma * arriving, dtype=np.float64)
            inflow.flags.writeable = False  # as the initial laws of tasks are: compiled once for both
            V, d, error = search.values_and_occupancy(own, entries, gamma, inflow)
            check_precision(error)
            worth = gamma * V[rows.successor] + (term.gain if len(term.gain) else 0.0)
            total += float(term.start @ (term.reward + rows.sums(entries * worth)))
            flow = term.start + term.prob * (d[rows.state] + NEGLIGIBLE * np.sign(term.start.sum()))
            gradient += rows.per_entry(flow) * worth
        return total, gradient

    @cached_property
    def size(self) -> float:
        """How large F and its parts may be, for tolerances."""
        largest = 0.0
        for term in self.terms:
            reward = np.abs(term.reward).max(initial=0.0) + np.abs(term.gain).max(initial=0.0)
            largest = max(largest, float(reward) * float(np.abs(term.start).sum()) / (1.0 - self.discount))
        return max(largest, 1e-300)

    def alone(self, index: int) -> Functional:
        """The part of F that is one policy's."""
        return Functional(self.rows, self.discount, self.n_states, (self.terms[index],))


def evaluated(rows: Rows, discount: float, initial: FloatArray, entries: FloatArray) -> tuple[FloatArray, float, float]:
    """[S] the values of the rows' policy in a kernel given by its entries, the value from rho, a bound on its error."""
    V, _, error = search.values_and_occupancy(rows, entries, discount, initial)
    check_precision(error)
    return V, float(initial @ V), max(2e-14, 2.0 * error) * float(np.abs(V).max())


def value_of_policy(task: Task, rows: Rows) -> Functional:
    """V from rho: one term, with the measure rho pi. The rows are those of the task."""
    term = Term(rows.prob, rows.reward, rows.gain, task.initial[rows.state] * rows.prob)
    return Functional(rows, task.discount, task.n_states, (term,), task.initial)


def term_of(task: Task, rows: Rows) -> Term:
    """A policy with its rewards on given rows, which may be more than its own; its measure is rho pi."""
    on_successor, prob = task.rewards_on_successor, task.policy.ravel()[rows.pair]
    reward = np.zeros(len(rows.pair)) if on_successor else task.rewards.ravel()[rows.pair]
    gain = rows.pick(task.rewards, task.n_states) if on_successor else np.zeros(0)
    return Term(prob, reward, gain, task.initial[rows.state] * prob)


def value_on(rows: Rows, task: Task) -> Functional:
    """V from rho of a policy on given rows, which may be more than its own."""
    return Functional(rows, task.discount, task.n_states, (term_of(task, rows),))


def difference_of(rows: Rows, task_a: Task, task_b: Task) -> Functional:
    """V^A - V^B from rho, in one kernel on the given rows."""
    first, second = term_of(task_a, rows), term_of(task_b, rows)
    return Functional(rows, task_a.discount, task_a.n_states, (first, second._replace(start=-second.start)))


def deviation_of(rows: Rows, task: Task, policy: Term, own: int, other: int) -> Functional:
    """Q^pi of row ``own``, which pi takes, less that of row ``other`` of the same state."""
    start = np.zeros(len(rows.pair))
    start[own], start[other] = 1.0, -1.0
    return Functional(rows, task.discount, task.n_states, (policy._replace(start=start),))
