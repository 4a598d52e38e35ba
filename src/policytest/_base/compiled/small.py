"""Small compiled loops that every unit uses, and the decorators that compile.

Explicit loops, not array expressions: they compile in a tenth of the time. numba's cache on disk does not notice an
edit of a callee in another file: after a change of this file delete the cached code of the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import wraps
from typing import Any

import numba
import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints

TINY = 1e-300
SETTINGS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INSIDE: Any = {**SETTINGS, "no_cpython_wrapper": True}  # for what only compiled code calls


def _jitted(function: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """numba-compile, cached on disk where the machine allows it (a read-only install may not)."""
    njit: Any = numba.njit
    try:
        return njit(cache=True, **settings)(function)
    except RuntimeError:  # no writable place for the cache
        return njit(**settings)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile what only compiled code calls: a wrapper for Python would be optimised with it, in the same time again.

    A call from Python ends the process; `entry` is for that.
    """
    return _jitted(function, INSIDE)


def entry(function: Callable[..., Any]) -> Any:
    """A kernel that Python calls: says what to delete when the cache on disk is damaged."""
    kernel: Any = _jitted(function, SETTINGS)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return kernel(*arguments)
        except (EOFError, pickle.UnpicklingError) as error:
            folder = kernel.stats.cache_path
            raise RuntimeError(
                f"the compiled-code cache is damaged ({error}); delete the folder {folder} and run again"
            ) from error

    call.kernel = kernel  # type: ignore[attr-defined]
    return call


# ---------------------------------------------------------------- small loops
# Explicit loops, not array expressions: they compile in a tenth of the time.


@compiled
def copy_to(source: Reals, out: Reals) -> None:
    for i in range(len(out)):
        out[i] = source[i]


@compiled
def dot(x: Reals, y: Reals) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@compiled
def largest_of(x: Reals) -> float:
    """max |x_i|; not a number if any entry is."""
    top = 0.0
    for i in range(len(x)):
        if not abs(x[i]) <= top:
            top = abs(x[i])
            if np.isnan(top):
                break
    return top


@compiled
def add_to(x: Reals, factor: float, y: Reals) -> None:
    """x <- x + factor y."""
    for i in range(len(x)):
        x[i] += factor * y[i]


@compiled
def mix_to(q: Reals, step: float, target: Reals, out: Reals) -> None:
    """out = (1 - step) q + step target; exactly the target at step 1, however small its entries."""
    for i in range(len(out)):
        out[i] = (1.0 - step) * q[i] + step * target[i]


@compiled
def total_of(x: Reals) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@compiled
def kept_inside(proposal: float, low: float, high: float, current: float, factor: float) -> float:
    """The proposal, if strictly inside the bracket of a positive root; else a step of the search for its far end."""
    if low < proposal < high:
        return proposal
    if high == np.inf:
        return factor * current + TINY
    if low == 0.0:
        return high / factor
    return np.sqrt(low) * np.sqrt(high)


# ---------------------------------------------------------------- KL and the row problem


@compiled
def excess_of(q: float, p: float) -> float:
    """u - 1 - log u at u = q/p > 0, accurate near 1 (a series in q - p) and near 0 (no difference is taken)."""
    delta = (q - p) / p
    if abs(delta) < 0.02:
        total = 0.0
        for power in range(11, 1, -1):  # Horner: delta^2/2 - delta^3/3 + ...
            total = total * delta + (1.0 if power % 2 == 0 else -1.0) / power
        return total * delta * delta
    return delta - np.log(q / p)


@compiled
def row_loss(N: Reals, n: float, q: Reals, first: int, last: int) -> float:
    """n KL(N/n, q) of one row as a sum of non-negative terms: N (u - 1 - log u) with u = q n/N, plus n q(unseen)."""
    loss = 0.0
    for e in range(first, last):
        if N[e] > 0.0:
            if q[e] <= 0.0:
                return np.inf
            loss += N[e] * excess_of(q[e] * n, N[e])
        else:
            loss += n * q[e]
    return loss


@compiled
def loss_of(start: Ints, N: Reals, n: Reals, q: Reals) -> float:
    """loss(q) = sum_k n_k KL(N_k/n_k, q_k), centre first."""
    loss = 0.0
    for k in range(len(n)):
        if n[k] > 0.0:
            loss += row_loss(N, n[k], q, start[k], start[k + 1])
    return loss


@compiled
def place_of(start: Ints, successor: Ints, k: int, x: int) -> int:
    """The entry of successor x in row k, or -1 where it is not listed; at once in rows that list every state."""
    low = start[k]
    high = start[k + 1]
    if low + x < high and successor[low + x] == x:
        return low + x
    while low < high:
        middle = (low + high) // 2
        if successor[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low if low < start[k + 1] and successor[low] == x else -1


@compiled
def first_above(cumulative: Reals, first: int, last: int, u: float) -> int:
    """The first entry whose cumulative probability exceeds u."""
    while first < last:
        middle = (first + last) // 2
        if cumulative[middle] > u:
            last = middle
        else:
            first = middle + 1
    return first


# ---------------------------------------------------------------- the evidence of a witness

MIXTURE = 1  # the kind of boundary whose evidence is the likelihood ratio of a mixture


@compiled
def mean_log(x: Reals) -> float:
    """log of the mean of exp(x_j), without overflow."""
    if len(x) == 1:
        return x[0]
    top = x[0]
    for j in range(1, len(x)):
        top = max(top, x[j])
    if np.isinf(top):
        return top
    total = 0.0
    for j in range(len(x)):
        total += np.exp(x[j] - top)
    return top + np.log(total / len(x))


@compiled
def _step(z: float) -> float:
    """z log(1 + 1/z), by its series where that is exact to rounding; 0 at 0."""
    if z <= 0.0:
        return 0.0
    if z < 200.0:
        return z * np.log1p(1.0 / z)
    u = 1.0 / z
    return 1.0 - u * (0.5 - u * (1.0 / 3.0 - u * (0.25 - u * (0.2 - u * (1.0 / 6.0 - u / 7.0)))))


@compiled
def growth_of(kind: int, count: float, visits: float, prior: float, width: float, chance: float) -> float:
    """What one observation adds to the evidence of a witness that gives it this chance.

    Mixture: log of the predictive probability (N + a)/(n + m a) over the chance. Paper: the growth of N log N less
    that of n log n and of width log(1 + n/width), less the log of the chance.
    """
    if kind == MIXTURE:
        return np.log((count + prior) / ((visits + width * prior) * chance))
    likelihood = np.log((count + 1.0) / ((visits + 1.0) * chance)) + _step(count) - _step(visits)
    reach = width + visits
    return likelihood - (width / reach * _step(reach) if width > 0.0 else 0.0)


@compiled
def counted(
    start: Ints,
    successor: Ints,
    kind: int,
    priors: Reals,
    width: Reals,
    N: Reals,
    n: Reals,
    w: Reals,
    evidence: Reals,
    row: int,
    x: int,
) -> bool:
    """Count the transition from a row to x, and what it adds to the evidence [J] of w; False where x is not listed."""
    e = place_of(start, successor, row, x)
    if e < 0:
        return False
    for j in range(len(priors)):
        evidence[j] += growth_of(kind, N[e], n[row], priors[j], width[row], w[e])
    N[e] += 1.0
    n[row] += 1.0
    return True


# ---------------------------------------------------------------- capital
# The capital of F bets is an array [F + 1]: what each has made of its share of the first unit, divided by a common
# factor, and the logarithm of that factor. Powers of two, so that dividing by them changes no digit.

NEGLIGIBLE = 1e-290  # of the common unit: what has lost more than that has lost all
LARGEST_CAPITAL = 2.0**300  # in the common unit; another one is taken beyond it, and below one over it
LOG_LARGEST = 300.0 * 0.6931471805599453
MOST_WON = 1e100  # in units of what a full bet can lose; to take more as this makes the capital smaller


@compiled
def stake(capital: Reals, fractions: Reals, ratio: float) -> None:
    """Settle one outcome: each capital times 1 + f ratio, where ``ratio`` >= -1 is what a full bet wins."""
    ratio = min(max(ratio, -1.0), MOST_WON)
    for b in range(len(fractions)):
        after = capital[b] * (1.0 + fractions[b] * ratio)
        capital[b] = after if after > NEGLIGIBLE else 0.0


@compiled
def evidence_of(capital: Reals) -> float:
    """The logarithm of the sum of all capitals; takes another common unit where that is needed."""
    F = len(capital) - 1
    total, odd, last = 0.0, 0.0, F - F % 2
    for b in range(0, last, 2):  # two sums, which the processor forms at once
        total += capital[b]
        odd += capital[b + 1]
    if last < F:
        total += capital[last]
    total += odd
    while LARGEST_CAPITAL < total < np.inf:
        for b in range(F):
            capital[b] /= LARGEST_CAPITAL
        total /= LARGEST_CAPITAL
        capital[F] += LOG_LARGEST
    while 0.0 < total < 1.0 / LARGEST_CAPITAL:
        for b in range(F):
            capital[b] *= LARGEST_CAPITAL
        total *= LARGEST_CAPITAL
        capital[F] -= LOG_LARGEST
    return np.log(total) + capital[F]


@compiled
def settle(capital: Reals, fractions: Reals, ratio: float) -> float:
    """Settle one outcome; the evidence: the logarithm of the sum of all capitals."""
    stake(capital, fractions, ratio)
    return evidence_of(capital)


@compiled
def settle_again(capital: Reals, fractions: Reals, before: float, after: float) -> None:
    """An outcome that was settled with the ratio ``before`` is worth ``after`` instead."""
    for b in range(len(fractions)):
        changed = capital[b] * ((1.0 + fractions[b] * after) / (1.0 + fractions[b] * before))
        capital[b] = changed if changed > NEGLIGIBLE else 0.0
