"""Compiled: random walks that cross a boundary by the end of a budget, and how bets follow their chances.

A step goes up by 0, 1 or 2 places with probabilities ``law``: (1 - r, r, 0) for outcomes of two values, and
(q/2, 1 - q, q/2) for differences of two. ``first[t]`` is the lowest place that is beyond the boundary after t steps,
and ``chance[t, k]`` the probability of getting there from place k: 1 beyond the boundary.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import TINY, compiled, entry

LATE = 8.0  # the power of time by which the part of the level that is kept for the end is spent
DOUBLINGS, HALVINGS = 4, 14  # of the factor by which the spending is scaled
USED = 0.98  # of the level, which suffices


@compiled
def most_up(law: Reals) -> int:
    """The largest step."""
    return 2 if law[2] > 0.0 else 1


@compiled
def _spent(mass: Reals, first: Ints, law: Reals, level: float, early: float, scale: float) -> float:
    """The level of the boundary that takes whole places from the top while the spending allows it; fills it in."""
    K, up, total, top = len(first) - 1, most_up(law), 0.0, 0
    mass[:] = 0.0
    mass[0] = 1.0
    first[0] = 1
    for t in range(1, K + 1):
        for k in range(top + up, -1, -1):
            arrived = law[0] * mass[k]
            for step in range(1, min(up, k) + 1):
                arrived += law[step] * mass[k - step]
            mass[k] = arrived
        top += up
        allowed = scale * level * (early * (t / K) + (1.0 - early) * (t / K) ** LATE)
        while top >= 0 and total + mass[top] <= allowed:
            total += mass[top]
            mass[top] = 0.0
            top -= 1
        first[t] = top + 1
    return total


@entry
def boundary(law: Reals, K: int, level: float, early: float) -> Any:
    """(first [K+1], its level): the boundary that spends the level over time by  s(tau) = e tau + (1 - e) tau^8.

    Whole places are taken, so that less is spent; the spending is scaled up until nearly all of the level is.
    """
    mass = np.zeros(2 * K + 3)
    first, best = np.zeros(K + 1, dtype=np.int64), np.zeros(K + 1, dtype=np.int64)
    low, high = 1.0, 1.0
    reached = _spent(mass, best, law, level, early, low)
    for _ in range(DOUBLINGS):
        high *= 2.0
        if _spent(mass, first, law, level, early, high) > level:
            break
    for _ in range(HALVINGS):
        if reached >= USED * level:
            break
        middle = 0.5 * (low + high)
        found = _spent(mass, first, law, level, early, middle)
        if found > level:
            high = middle
            continue
        low = middle
        if found > reached:
            reached = found
            best[:] = first
    return best, reached


@entry
def chances(law: Reals, first: Ints) -> Any:
    """[K+1, ...] the probability of crossing from each place: the mean of that one step later, and 1 beyond."""
    K, up = len(first) - 1, most_up(law)
    U = np.ones((K + 1, first.max() + up + 1))
    U[K, : first[K]] = 0.0
    for t in range(K - 1, -1, -1):
        for k in range(first[t]):
            mean = law[0] * U[t + 1, k]
            for step in range(1, up + 1):
                mean += law[step] * U[t + 1, k + step]
            U[t, k] = mean
    return U


@compiled
def _gain(U: Reals, first: Ints, t: int, k: int, up: int) -> float:
    """How much the largest step from this place is better than the least, a place; nothing is gained beyond."""
    return 0.0 if k >= first[t] else (U[t + 1, k + up] - U[t + 1, k]) / up


@entry
def slope(U: Reals, first: Ints, t: int, x: float, up: int) -> float:
    """How much the chance grows by a step up of one place, for a walk whose chance is x after t steps.

    Between two places the walk is a mixture of both; below the lowest one it is a share of the walk from there.
    """
    if x >= 1.0 or t >= len(first) - 1:
        return 0.0
    if x <= U[t, 0]:
        return x / max(U[t, 0], TINY) * _gain(U, first, t, 0, up)
    low, high = 0, first[t]  # U[t, low] < x <= U[t, high]
    while high - low > 1:
        middle = (low + high) // 2
        if U[t, middle] < x:
            low = middle
        else:
            high = middle
    share = (x - U[t, low]) / max(U[t, high] - U[t, low], TINY)
    return (1.0 - share) * _gain(U, first, t, low, up) + share * _gain(U, first, t, high, up)
