r"""KL balls around a kernel, the row problem, and Euclidean projections onto them.

Divergences are written *centre first*, and only here: with a centre p and weights w,

    loss(q) = sum_{s,a} w_sa KL(p_sa, q_sa),        KL(p, q) = sum_x p_x log(p_x / q_x),     0 log 0 = 0.

The ball {q : loss(q) <= radius} contains kernels that put mass where p has none: KL(p, q) does not look there.
A solver that kept to the support of p would find a minimum that is too high, and break the error guarantee.

Two problems are solved row by row. The *row problem* (a linear cost against KL) is behind the projection-free
solver; the Euclidean *projection* onto a KL ball of the simplex is behind Algorithm 2. The functions below are
the plain versions, written for reading; `policytest._kernels` has compiled twins, tested equal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import brentq

from policytest import _checks, _kernels
from policytest._checks import FloatArray, InputError, Kernel
from policytest._rows import entry_keys, stored_at


@dataclass(frozen=True, eq=False)
class KLBall:
    """The kernels q with sum_sa weights[s,a] KL(centre_sa, q_sa) <= radius.

    Paper: the constraint set of (NO), `opt:no sp`.

    ``centre`` is an array [S,A,S] or a CSR array of shape (S*A, S), ``weights`` an array [S,A] (numbers of
    samples, or proportions), ``radius`` in the same unit of nats. Rows without weight are free.

    >>> ball = KLBall(centre=[[[0.5, 0.5]], [[0.0, 1.0]]], weights=[[2.0], [1.0]], radius=0.1)
    >>> [[[0.6, 0.4]], [[0.0, 1.0]]] in ball
    True
    >>> [[[0.6, 0.4]], [[1.0, 0.0]]] in ball
    False
    """

    centre: Any
    weights: Any
    radius: float

    def __post_init__(self) -> None:
        weights = check_weights(self.weights, (None, None))
        radius = _checks.real_number("radius", self.radius)
        if radius < 0:
            raise InputError(f"radius is {radius}; a ball needs a radius of at least 0")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "centre", self._checked("centre", self.centre))
        _checks.freeze(self.weights)
        _checks.freeze(self.centre)

    def _checked(self, name: str, kernel: Any) -> Kernel:
        """A kernel in one of the two forms, whose rows with weight are probability vectors."""
        S, A = self.weights.shape
        checked = _checks.kernel(name, kernel, S, A)
        return _checks.kernel_rows(
            name, checked, np.flatnonzero(self.weights > 0), S, lambda pair, *x: str((*divmod(pair, A), *x))
        )

    def loss(self, q: Kernel) -> float:
        """sum_sa weights[s,a] KL(centre_sa, q_sa), in nats."""
        divergences = kl_rows(self.centre, self._checked("q", q))
        weighted = self.weights.ravel() > 0
        return float(self.weights.ravel()[weighted] @ divergences[weighted])

    def __contains__(self, q: Kernel) -> bool:
        """Whether loss(q) <= radius, up to rounding (1e-12 of the radius, 1e-15 of the weights)."""
        return self.loss(q) <= self.radius * (1 + 1e-12) + 1e-15 * float(self.weights.sum())


def check_weights(weights: Any, shape: tuple[int | None, int | None], name: str = "weights") -> FloatArray:
    """Weights [S,A] (or budgets): finite and not negative."""
    array = _checks.real_array(name, weights, shape)
    _checks.no_negative(name, array, name)
    return array


def kl_rows(p: Kernel, q: Kernel) -> FloatArray:
    """[S*A] KL(p_sa, q_sa) of every row, centre first; infinite where q lacks a successor that p has.

    Computed as sum_x p_x (u - 1 - log u) + (mass of q outside p), u = q_x/p_x, whose terms are not negative.
    """
    if _checks.is_sparse(p) != _checks.is_sparse(q):
        p, q = (k if _checks.is_sparse(k) else _as_csr(k) for k in (p, q))
    if not _checks.is_sparse(p):
        S = p.shape[-1]
        p, q = p.reshape(-1, S), q.reshape(-1, S)
        start = np.arange(len(p) + 1) * S
        return np.asarray(_kernels.row_losses(start, p.ravel(), p.sum(axis=1), np.ascontiguousarray(q).ravel()))
    both = (p != 0).astype(np.float64) + (q != 0).astype(np.float64)  # the union of the two patterns
    both.sort_indices()
    p_entries, q_entries = (stored_at(kernel, entry_keys(both)) for kernel in (p, q))
    mass = np.asarray(p.sum(axis=1)).ravel()
    return np.asarray(_kernels.row_losses(both.indptr.astype(np.int64), p_entries, mass, q_entries))


def _as_csr(kernel: FloatArray) -> Any:
    return sparse.csr_array(kernel.reshape(-1, kernel.shape[-1]))


def tilt_row(weights: FloatArray, cost: FloatArray, lam: float) -> FloatArray:
    """The row problem: argmin over the simplex of lam cost.q - sum_x weights_x log q_x.

    q_x = weights_x / (y + lam cost_x) with y such that the row sums to 1. If an unseen successor (weight 0) is
    the cheapest and the seen ones sum to less than 1 at y = -lam cost_min, it takes the rest.

    Paper: stationarity in the proof of `lem:eta`, with lam = 1/eta.

    >>> tilt_row(np.array([1.0, 1.0]), np.array([0.0, 0.0]), lam=1.0)
    array([0.5, 0.5])
    >>> tilt_row(np.array([1.0, 0.0]), np.array([1.0, 0.0]), lam=4.0)
    array([0.25, 0.75])
    """
    gap = lam * (cost - cost.min())
    seen = weights > 0
    q = np.zeros(len(weights))
    if not seen.any():
        q[int(np.argmin(gap))] = 1.0
        return q

    def surplus(z: float) -> float:
        return float((weights[seen] / (z + gap[seen])).sum() - 1.0)

    if gap[seen].min() > 0 and surplus(0.0) <= 0:
        q[seen] = weights[seen] / gap[seen]
        q[int(np.argmin(gap))] += 1.0 - q.sum()
        return q
    low, high = float(np.maximum(weights[seen] - gap[seen], 0.0).max()), float(weights.sum())
    if surplus(low) > 0 > surplus(high):
        z = brentq(surplus, low, high, xtol=1e-300, rtol=1e-15)
    else:  # an end is the root, to rounding
        z = low if surplus(low) <= 0 else high
    q[seen] = weights[seen] / (z + gap[seen])
    return np.asarray(q / q.sum())


def project_row(x: FloatArray, p: FloatArray, b: float) -> FloatArray:
    """The Euclidean projection onto a KL ball of the simplex: argmin |q - x|^2 over {q in simplex : KL(p, q) <= b}.

    With a multiplier y for the sum and mu for the divergence, q = [(x-y) + sqrt((x-y)^2 + 4 mu p)]/2, which is
    max(x-y, 0) where p = 0. Two nested monotone roots.

    Paper: the block projection after `prop:product_box_reduction`.

    >>> project_row(np.array([0.3, 0.3]), np.array([0.5, 0.5]), b=0.1)
    array([0.5, 0.5])
    """
    if b <= 0:
        return p.copy()
    q = _on_simplex(x, p, 0.0)
    if _kl(p, q) <= b:
        return q
    high = 1.0
    while _kl(p, _on_simplex(x, p, high)) > b:
        high *= 10.0
    low = high
    while _kl(p, _on_simplex(x, p, low)) <= b:
        low *= 0.1
    mu = brentq(lambda m: _kl(p, _on_simplex(x, p, m)) - b, low, high, xtol=1e-300, rtol=1e-14, maxiter=2000)
    return _on_simplex(x, p, mu)


def project_box(x: Kernel, centre: Kernel, budgets: FloatArray) -> FloatArray:
    """The Euclidean projection onto the product box {q : KL(centre_sa, q_sa) <= budgets[s,a]}; dense [S,A,S].

    Paper: the factorised projection after `prop:product_box_reduction`.
    """
    point = _checks.real_array("x", x, (None, None, None))
    S, A, _ = point.shape
    _checks.check_shape("x", point.shape, (S, A, S))
    p = _checks.real_array("centre", centre, (S, A, S))
    b = check_weights(budgets, (S, A), "budgets")
    start = np.arange(S * A + 1) * S
    return np.asarray(_kernels.project_rows(start, point.ravel(), p.ravel(), b.ravel())).reshape(S, A, S)


def _on_simplex(x: FloatArray, p: FloatArray, mu: float) -> FloatArray:
    """argmin over the simplex of |q - x|^2/2 - mu sum p log q."""

    def entries(y: float) -> FloatArray:
        u = x - y
        root = np.sqrt(u * u + 4 * mu * p)
        return np.where(u >= 0, (u + root) / 2, 2 * mu * p / np.where(root - u > 0, root - u, 1.0))

    low = float((x - 1 + mu * p).max())
    high = float((x + np.sqrt(mu * p) * len(x) + mu * len(x) * p).max())
    if entries(low).sum() <= 1:
        return np.asarray(entries(low) / entries(low).sum())
    y = brentq(lambda y: entries(y).sum() - 1, low, high, xtol=1e-16, rtol=1e-15)
    return np.asarray(entries(y) / entries(y).sum())


def _kl(p: FloatArray, q: FloatArray) -> float:
    """KL(p, q) of one row: sum p (u - 1 - log u) + (mass of q outside p), u = q/p, accurate near u = 1 and near 0."""
    seen = p > 0
    if (q[seen] <= 0).any():
        return float("inf")
    moved = (q[seen] - p[seen]) / p[seen]
    near = np.abs(moved) < 0.5
    logs = np.where(near, np.log1p(np.where(near, moved, 0.0)), np.log(q[seen]) - np.log(p[seen]))
    return float(p[seen] @ (moved - logs) + q[~seen].sum())
