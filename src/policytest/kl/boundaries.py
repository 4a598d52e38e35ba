r"""How much the loss of the true kernel can be, at all times at once: the level beta(t, delta) of the stopping rule.

With counts N[s,a,x], visits n[s,a] and p_hat = N/n, each boundary controls one event,

    P( loss_t(p) >= beta(t, delta) for some t ) <= delta,      loss_t(q) = sum_sa n_sa KL(p_hat_sa, q_sa),

whatever the kernel p, for every *predictable* sampling rule: the next pair may depend on all that was seen, not on
what its own draw will be. All levels are log(1/delta) plus a *dimension term* that depends on the counts alone.

Why it holds. Conditionally on the past, the next successor x of the chosen pair has law p_sa. So for any predictive
law that is fixed by the past, the ratio of its probability of x to p_sa(x) has mean 1 given the past, and the running
product W_t of these ratios is a non-negative martingale with mean 1. By Ville's inequality it reaches 1/delta with
probability at most delta. Both boundaries below are of this kind: log W_t = loss_t(p) - (dimension term).

Only pairs with pi(a|s) > 0 count, and rows with a single allowed successor have nothing to be learned.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import evidence
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.data.counts import Counts
from policytest.mdp.layout import support_sizes
from policytest.mdp.task import Task

LARGEST_PRIOR = 1e9


def information(level: float) -> float:
    """kl(delta, 1-delta) at level = log(1/delta), in nats: what an answer needs on average; 0 at delta of 1/2 and more.

    Paper: `thm:stat_lower`.
    """
    delta = math.exp(-level)
    return (1.0 - 2.0 * delta) * (math.log1p(-delta) + level) if delta < 0.5 else 0.0


class Terms(NamedTuple):
    """A boundary as the compiled code reads it; ``width`` [K] is what it needs to know of each row."""

    kind: int
    priors: FloatArray
    width: FloatArray

    def dimensions(self, start: IntArray, N: FloatArray, n: FloatArray) -> FloatArray:
        """[J] the dimension term for each prior, in nats."""
        return evidence.dimensions(start, N, n, self.kind, self.priors, self.width)


class Boundary(Protocol):
    """Settings of a boundary."""

    def terms(self, widths: FloatArray, n_states: int) -> Terms:
        """The boundary for rows with this many allowed successors [K]."""


def level_of(boundary: Boundary, counts: Counts, delta: float, task: Task | None = None) -> float:
    """beta(t, delta), in nats."""
    arrays.instance("counts", counts, Counts)
    S, A = counts.n_states, counts.n_actions
    used = np.ones(S * A, dtype=bool)
    sizes = np.full(S * A, float(S))
    if task is not None:
        arrays.instance("task", task, Task)
        arrays.check_shape("counts", (S, A), (task.n_states, task.n_actions))
        used, sizes = task.policy.ravel() > 0, widths(task)
        task.check_support("counts", counts.N)
    terms = boundary.terms(np.where(used, sizes, 1.0), S)  # a row that does not matter costs as much as a known one
    table = counts.N
    if arrays.is_sparse(table):
        start, entries = table.indptr.astype(np.int64), table.data.astype(np.float64)
    else:
        start, entries = np.arange(S * A + 1) * S, table.ravel().astype(np.float64)
    visits = np.where(used, counts.visits.ravel(), 0).astype(np.float64)
    return -float(np.log(check_delta(delta))) + average(terms.dimensions(start, entries, visits))


@dataclass(frozen=True)
class PaperBoundary:
    r"""The paper's level: log(1/delta) + (S-1) sum_sa log(e [1 + n_sa/(S-1)]).

    Paper: equation (5), `eq:beta guarantee`.

    It controls the event above because it is never below the mixture's level with a = 1 (the uniform prior), whose
    product W_t is a martingale. Pairs that the policy never takes and rows with one allowed successor are left out.

    >>> counts = Counts.from_array([[[3, 1]], [[0, 2]]])
    >>> print(f"{PaperBoundary().level(counts, delta=0.1):.6f}")
    7.010635
    """

    level = level_of

    def terms(self, widths: FloatArray, n_states: int) -> Terms:
        """For the compiled code: S - 1 for each row, 0 for known ones."""
        return Terms(evidence.PAPER, np.zeros(1), np.where(widths > 1, n_states - 1.0, 0.0))


@dataclass(frozen=True)
class MixtureBoundary:
    r"""The level of a Dirichlet mixture: log(1/delta) + sum_sa g_a(N_sa), with m the number of allowed successors,

        g_a(N) = sum_x N_x log(N_x/n) - sum_x [lnG(N_x + a) - lnG(a)] + lnG(n + m a) - lnG(m a).

    The predictive law (N_x + a)/(n + m a) of the prior Dir(a,...,a) is fixed by the past, so the product W_t of its
    ratios to p is a martingale. a = 1/2 (Krichevsky and Trofimov) costs about (m-1)/2 log n a row, half of the
    paper's; a smaller a suits rows with few successors among many allowed. With several priors W_t is the average
    of theirs, again a martingale: the level is within log(number of priors) of the best of them.

    Parameters
    ----------
    prior
        a > 0, or several of them.

    >>> counts = Counts.from_array([[[3, 1]], [[0, 2]]])
    >>> print(f"{MixtureBoundary().level(counts, delta=0.1):.6f}")
    4.276666
    """

    prior: float | Sequence[float] = 0.5

    def __post_init__(self) -> None:
        priors = np.atleast_1d(arrays.real_array("prior", self.prior))
        if priors.ndim != 1 or len(priors) == 0:
            raise InputError(f"prior has shape {priors.shape}; pass one number, or a list of them")
        for index, a in enumerate(priors):
            name = f"prior[{index}]" if len(priors) > 1 else "prior"
            arrays.positive(**{name: float(a)})
            if a > LARGEST_PRIOR:
                raise InputError(f"{name} is {a:.6g}; it must be at most {LARGEST_PRIOR:g}")
        object.__setattr__(self, "prior", tuple(priors.tolist()) if len(priors) > 1 else float(priors[0]))

    level = level_of

    def terms(self, widths: FloatArray, n_states: int) -> Terms:
        """For the compiled code: the number of allowed successors of each row."""
        return Terms(evidence.MIXTURE, np.atleast_1d(np.asarray(self.prior, dtype=np.float64)), widths)


def boundary_terms(boundary: Boundary, task: Task, rows: Rows) -> Terms:
    """The boundary of a task, for these of its rows."""
    return boundary.terms(widths(task)[rows.pair], task.n_states)


def average(dimensions: FloatArray) -> float:
    """The dimension term of an average of martingales: -log mean exp(-term)."""
    if len(dimensions) == 1:
        return float(dimensions[0])
    least = float(dimensions.min())
    return least - float(np.log(np.exp(least - dimensions).mean()))


def check_delta(delta: object) -> float:
    """A probability of error, strictly between 0 and 1."""
    number = arrays.real_number("delta", delta)
    if not 0 < number < 1:
        raise InputError(f"delta is {number:.6g}; it is a probability of error and must lie strictly between 0 and 1")
    return number


def widths(task: Task) -> FloatArray:
    """[S*A] how many successors each pair may have."""
    if task.support is None:
        return np.full(task.n_states * task.n_actions, float(task.n_states))
    return np.asarray(support_sizes(task.support), dtype=np.float64)
