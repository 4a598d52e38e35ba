"""Linear functionals of a kernel: the value of a policy, a difference of two, the gain of another action."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import search
from policytest._base.errors import check_precision
from policytest._base.rows import Rows

NEGLIGIBLE = 1e-200  # stands for no flow, so that rows nobody visits still have an order of successors


class Term(NamedTuple):
    """One policy of a functional, on the rows: pi_j [K], rewards [K] or on entries [E], and the measure mu_j [K]."""

    prob: FloatArray
    reward: FloatArray
    gain: FloatArray
    start: FloatArray


@dataclass(frozen=True, eq=False)
class Functional:
    """F(q) = sum_j mu_j.Q_q^j on listed rows."""

    rows: Rows
    discount: float
    n_states: int
    terms: tuple[Term, ...]

    def value(self, entries: FloatArray) -> float:
        """F(q) of a kernel given by its entries."""
        return self.linear(entries)[0]

    def linear(self, entries: FloatArray) -> tuple[float, FloatArray]:
        """F(q), and its gradient [E] up to a constant in each row."""
        rows, gamma = self.rows, self.discount
        total, gradient = 0.0, np.zeros(rows.n_entries)
        for term in self.terms:
            own = rows._replace(prob=term.prob, reward=term.reward, gain=term.gain)
            inflow = gamma * np.bincount(rows.successor, rows.per_entry(term.start) * entries, minlength=self.n_states)
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


def difference_of(rows: Rows, discount: float, initial: FloatArray, first: Term, second: Term) -> Functional:
    """V^A - V^B from rho; the measures of the two terms are not looked at."""
    mu = initial[rows.state]
    terms = first._replace(start=mu * first.prob), second._replace(start=-mu * second.prob)
    return Functional(rows, discount, len(initial), terms)


def deviation_of(rows: Rows, discount: float, n_states: int, policy: Term, own: int, other: int) -> Functional:
    """Q^pi of row ``own``, which pi takes, less that of row ``other`` of the same state."""
    start = np.zeros(len(rows.pair))
    start[own], start[other] = 1.0, -1.0
    return Functional(rows, discount, n_states, (policy._replace(start=start),))
