"""The dimension terms and the loss, written out row by row: what compiled code and boundaries are compared with."""

from __future__ import annotations

import math

import numpy as np
from scipy import sparse

import policytest as pt


def allowed(task: pt.Task) -> np.ndarray:
    """[S,A,S] the support as booleans."""
    shape = (task.n_states, task.n_actions, task.n_states)
    if task.support is None:
        return np.ones(shape, dtype=bool)
    return (task.support.toarray() if sparse.issparse(task.support) else task.support).reshape(shape)


def mixture_row(N: list[int], a: float) -> float:
    """g_a of section 4(b), with lnG."""
    n, m = sum(N), len(N)
    likelihood = math.fsum(c * math.log(c / n) for c in N if c)
    return (
        likelihood - sum(math.lgamma(c + a) - math.lgamma(a) for c in N) + math.lgamma(n + m * a) - math.lgamma(m * a)
    )


def paper_row(n: int, S: int) -> float:
    """(S-1) log(e [1 + n/(S-1)]): one row of eq. (5)."""
    return (S - 1) * math.log(math.e * (1 + n / (S - 1)))


def dimensions(boundary: pt.PaperBoundary | pt.MixtureBoundary, task: pt.Task, N: np.ndarray) -> list[float]:
    """The dimension term for each prior, row by row; known rows and pairs with pi = 0 cost nothing."""
    support, S = allowed(task), task.n_states
    rows = [(s, a) for s, a in np.argwhere(task.policy > 0) if support[s, a].sum() > 1]
    if isinstance(boundary, pt.PaperBoundary):
        return [sum(paper_row(int(N[s, a].sum()), S) for s, a in rows)]
    return [
        sum(mixture_row([int(c) for c in N[s, a][support[s, a]]], a_) for s, a in rows if N[s, a].any())
        for a_ in np.atleast_1d(boundary.prior).tolist()
    ]


def dimension(boundary: pt.PaperBoundary | pt.MixtureBoundary, task: pt.Task, N: np.ndarray) -> float:
    """The dimension term: an average of martingales is again one."""
    return -math.log(np.mean([math.exp(-term) for term in dimensions(boundary, task, N)]))


def loss(task: pt.Task, N: np.ndarray, q: np.ndarray) -> float:
    """sum N log(p_hat/q) over pairs with pi > 0."""
    total = 0.0
    for s, a in np.argwhere(task.policy > 0):
        seen = N[s, a] > 0
        total += float((N[s, a][seen] * np.log(N[s, a][seen] / N[s, a].sum() / q[s, a][seen])).sum())
    return total
