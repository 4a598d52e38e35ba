"""Compiled: importance weights along recorded episodes, and the outcomes that bets on them are settled with."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import compiled, entry
from policytest._base.errors import InputError

LARGEST_WEIGHT = 1e100  # of an episode: more is taken as this, which makes outcomes less extreme on both sides
ROUNDING = 1e-9  # of the largest sum on the way: how far an outcome may fall below its bound


class Scale(NamedTuple):
    """What outcomes are measured by: discount, horizon (-1: none), and the ranges of rewards and of returns.

    ``low`` and ``high`` are the ends of the range of returns; ``floor`` and ``ceiling`` those that were declared for
    returns, infinite where none were.
    """

    discount: float
    horizon: int
    least: float
    most: float
    floor: float
    ceiling: float
    low: float
    high: float


@compiled
def _left(scale: Scale, t: int, d: float) -> float:
    """gamma^t + ... + gamma^(H-1), with d = gamma^t."""
    if scale.discount == 1.0:
        return np.inf if scale.horizon < 0 else float(scale.horizon - t)
    end = 0.0 if scale.horizon < 0 else scale.discount**scale.horizon
    return max(d - end, 0.0) / (1.0 - scale.discount)


@compiled
def _times(end: float, left: float) -> float:
    """A reward at every step that is left; 0 times infinity is 0."""
    return 0.0 if end == 0.0 or left <= 0.0 else end * left


@entry
def weigh_episodes(start: Ints, reward: Reals, ratio: Reals, scale: Scale) -> Any:
    """[4, n] for each episode: the outcomes above and below, the return, and the weight at the end.

    See `policytest.data.logged_episodes`. ``ratio`` is pi/mu of each row; empty: 1.
    """
    n = len(start) - 1
    found = np.empty((4, n))
    for i in range(n):
        C, d, w = 0.0, 1.0, 1.0
        L, U, above, below = scale.low, scale.high, scale.low, scale.high
        for j in range(start[i], start[i + 1]):
            if len(ratio) > 0:
                w = min(w * ratio[j], LARGEST_WEIGHT)
            C += d * reward[j]
            d *= scale.discount
            left = _left(scale, j + 1 - start[i], d)
            new = max(scale.floor, C + _times(min(scale.least, 0.0), left))
            if new > L:
                above += w * (new - L)
                L = new
            new = min(scale.ceiling, C + _times(max(scale.most, 0.0), left))
            if new < U:
                below -= w * (U - new)
                U = new
        found[0, i] = above + w * max(C - L, 0.0)
        found[1, i] = below - w * max(U - C, 0.0)
        found[2, i], found[3, i] = C, w
    return found


class CriticRows(NamedTuple):
    """The rows of some episodes, with what is expected of their actions and of their states."""

    start: Ints  # [n + 1]
    reward: Reals
    ratio: Reals  # pi/mu; empty: 1
    q: Reals
    v: Reals
    largest: Reals  # 1/(smallest propensity)
    scale: Scale


def doubly_robust(rows: CriticRows, side: float, slack: float) -> Reals:
    """[n] the doubly robust outcomes of one side (1: above, -1: below), which spend at most ``slack``.

    See `policytest.payoffs.weighted_returns`. Infinite slack: the estimator itself, which has no bound. An outcome that
    falls below its bound by more than rounding is refused: the bets on it would not be bets.
    """
    found = np.asarray(_doubly_robust(rows, side, slack))
    if np.isnan(found).any():
        raise InputError(
            f"smallest_propensity does not hold in episode {int(np.argmax(np.isnan(found)))} of these: its outcome is "
            "below the least possible one; pass propensity, smallest_propensity, q and v as they were before the draw"
        )
    return found


@entry
def _doubly_robust(rows: CriticRows, side: float, slack: float) -> Any:
    """[n] as `doubly_robust`; not a number where an outcome falls below its bound."""
    start, reward, ratio, q, v, largest, scale = rows
    n = len(start) - 1
    found = np.empty(n)
    first = scale.least if side > 0 else -scale.most  # of a mirrored reward: side * reward >= first
    later, begin = min(first, 0.0), scale.low if side > 0 else -scale.high
    for i in range(n):
        gained, spare, size, d, w = 0.0, slack, slack, 1.0, 1.0
        for j in range(start[i], start[i + 1]):
            t = j - start[i]
            base = first if t == 0 else later
            rest = d * base + _times(later, _left(scale, t + 1, d * scale.discount))
            expected, before = max(side * d * v[j] - rest, 0.0), w
            w = min(w * ratio[j], LARGEST_WEIGHT)
            most = before * expected * max(largest[j] - 1.0, 0.0)
            share = 1.0 if most <= spare else spare / most
            if before * largest[j] >= LARGEST_WEIGHT:
                share = 0.0
            change = share * (before * expected - w * max(side * d * q[j] - rest, 0.0)) + w * d * (
                side * reward[j] - base
            )
            gained += change
            size = max(size, abs(gained))
            spare = max(spare + change, 0.0)
            d *= scale.discount
        if start[i + 1] > start[i]:
            gained -= w * _times(later, _left(scale, start[i + 1] - start[i], d))
        within = gained >= -slack - ROUNDING * (1.0 + size)
        found[i] = side * (begin + max(gained, -slack)) if within else np.nan
    return found
