"""The row problem: the cheapest change of one row of a kernel, and Euclidean projections onto KL balls."""

from __future__ import annotations

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.compiled import search
from policytest.worst_case.ball import check_weights


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
        z = scipy.optimize.brentq(surplus, low, high, xtol=1e-300, rtol=1e-15)
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
    mu = scipy.optimize.brentq(
        lambda m: _kl(p, _on_simplex(x, p, m)) - b, low, high, xtol=1e-300, rtol=1e-14, maxiter=2000
    )
    return _on_simplex(x, p, mu)


def project_box(x: Kernel, centre: Kernel, budgets: FloatArray) -> FloatArray:
    """The Euclidean projection onto the product box {q : KL(centre_sa, q_sa) <= budgets[s,a]}; dense [S,A,S].

    Paper: the factorised projection after `prop:product_box_reduction`.
    """
    point = arrays.real_array("x", x, (None, None, None))
    S, A, _ = point.shape
    arrays.check_shape("x", point.shape, (S, A, S))
    p = arrays.real_array("centre", centre, (S, A, S))
    b = check_weights(budgets, (S, A), "budgets")
    start = np.arange(S * A + 1) * S
    return np.asarray(search.project_rows(start, point.ravel(), p.ravel(), b.ravel())).reshape(S, A, S)


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
    y = scipy.optimize.brentq(lambda y: entries(y).sum() - 1, low, high, xtol=1e-16, rtol=1e-15)
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
