"""Compiled: random walks that cross a boundary by the end of a budget, and how bets follow their chances.

A step goes up by 0, 1 or 2 places with probabilities ``law``: (1 - r, r, 0) for outcomes of two values, and
(q/2, 1 - q, q/2) for differences of two. ``first[t]`` is the lowest place that is beyond the boundary after t steps,
and ``chance[t, k]`` the probability of getting there from place k: 1 beyond the boundary.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import TINY, compiled, entry

DOUBLINGS, HALVINGS = 4, 14  # of the factor by which the spending is scaled
NO_MASS = 1e-15  # of the level, in a place that is left out
USED = 0.99  # of the level, which suffices
STEPS = 400  # of a walk whose steps are not outcomes
GRID, LARGEST_LOGIT = 40, 4.0  # walks differ by their chances: this many, by logit, between plus and minus the largest
SAME = 1e-9  # of the range: outcomes that differ by less are the same
LARGEST_FRACTION, LARGEST_EXACT = 0.995, 1.0 - 1e-6  # the second where a walk says what a loss leaves
AHEAD, AHEAD_IN_PAIRS = 1.1, 1.15  # capital follows a chance smaller by this, so that it gets there in spite of errors
PAIRS, DIFFERENT = 6.0, 0.4  # pairs that the share of those that differ begins with, and how many of them differ
PRIOR, SKEW_PRIOR = 0.5, 20.0  # outcomes of mean R that the moments begin with; those that the third one needs
VARIANCES = (0.3, 3.0)  # the variance if V = R, in units of the mean square: between these


@compiled
def most_up(law: Reals) -> int:
    """The largest step."""
    return 2 if law[2] > 0.0 else 1


@compiled
def _spent(mass: Reals, first: Ints, law: Reals, level: float, plan: tuple[float, float], scale: float) -> float:
    """The level of the boundary that takes whole places from the top while the spending allows it; fills it in."""
    K, up, total, top, bottom = len(first) - 1, most_up(law), 0.0, 0, 0
    early, late = plan
    mass[:] = 0.0
    mass[0] = 1.0
    first[0] = 1
    for t in range(1, K + 1):
        for k in range(top + up, bottom - 1, -1):
            arrived = law[0] * mass[k]
            for step in range(1, min(up, k) + 1):
                arrived += law[step] * mass[k - step]
            mass[k] = arrived
        top += up
        while bottom < top and mass[bottom] < NO_MASS * level:
            mass[bottom] = 0.0
            bottom += 1
        allowed = scale * level * (early * (t / K) + (1.0 - early) * (t / K) ** late)
        while top >= 0 and total + mass[top] <= allowed:
            total += mass[top]
            mass[top] = 0.0
            top -= 1
        first[t] = top + 1
    return total


@entry
def boundary(law: Reals, K: int, level: float, plan: tuple[float, float]) -> Any:
    """(first [K+1], its level): the boundary that spends the level over time by  s(tau) = e tau + (1 - e) tau^l.

    The plan is (e, l).

    Whole places are taken, so that less is spent; the spending is scaled up until nearly all of the level is.
    """
    mass = np.zeros(2 * K + 3)
    first, best = np.zeros(K + 1, dtype=np.int64), np.zeros(K + 1, dtype=np.int64)
    low, high = 1.0, 1.0
    reached = _spent(mass, best, law, level, plan, low)
    for _ in range(DOUBLINGS):
        high *= 2.0
        if _spent(mass, first, law, level, plan, high) > level:
            break
    for _ in range(HALVINGS):
        if reached >= USED * level:
            break
        middle = 0.5 * (low + high)
        found = _spent(mass, first, law, level, plan, middle)
        if found > level:
            high = middle
            continue
        low = middle
        if found > reached:
            reached = found
            best[:] = first
    return best, reached


@entry
def power(law: Reals, first: Ints) -> float:
    """The probability that a walk with these chances crosses the boundary."""
    up, crossed = most_up(law), 0.0
    mass = np.zeros(first.max() + up + 1)
    mass[0] = 1.0
    for t in range(1, len(first)):
        for k in range(len(mass) - 1, -1, -1):
            mass[k] = law[0] * mass[k] + law[1] * mass[max(k - 1, 0)] * (k > 0) + law[2] * mass[max(k - 2, 0)] * (k > 1)
        crossed += mass[first[t] :].sum()
        mass[first[t] :] = 0.0
    return crossed


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


@compiled
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


# ---------------------------------------------------------------- bets

# What was seen [6]: how many outcomes, the sums of their first three powers, how many were ties of pairs, and whether
# all were at the ends of the range, or such ties. All fractions are made from that, by `policytest.eprocess.budget`.


class Target(NamedTuple):
    """What bets aim at: outcomes are at least -1 and at most ``best``, and the capital 1/delta is an answer."""

    delta: float
    best: float
    total: int
    pairs: bool  # outcomes are differences of two, at most 1


@compiled
def _place(chance: float) -> int:
    """The place on the grid of logits that is nearest to a chance."""
    chance = min(max(chance, 1e-9), 1.0 - 1e-9)
    logit = min(max(math.log(chance / (1.0 - chance)), -LARGEST_LOGIT), LARGEST_LOGIT)
    return round((logit + LARGEST_LOGIT) * GRID / (2.0 * LARGEST_LOGIT))


@compiled
def _add(seen: Reals, x: float, target: Target) -> None:
    """One more outcome."""
    x = min(x, target.best)
    slack = SAME * (1.0 + target.best)
    tied = target.pairs and abs(x) <= slack
    for power in range(4):
        seen[power] += x**power
    if tied:
        seen[4] += 1.0
    elif abs(x + 1.0) > slack and abs(x - target.best) > slack:
        seen[5] = 0.0


@compiled
def _null_law(seen: Reals, best: float) -> tuple[float, float]:
    """The variance and the skewness of outcomes if their mean is the threshold."""
    count = seen[0] + PRIOR
    m = seen[1] / count
    e2 = (seen[2] + PRIOR * best) / count
    e3 = (seen[3] + PRIOR * best * (best - 1.0)) / count
    k2 = max(e2 - m * m, 1e-12 * e2)
    k3 = (e3 - 3.0 * m * e2 + 2.0 * m**3) * seen[0] / (seen[0] + SKEW_PRIOR)
    return min(max(e2 - m * k3 / k2, VARIANCES[0] * e2), VARIANCES[1] * e2), k3 / k2**1.5


@compiled
def _wanted(seen: Reals, target: Target) -> int:
    """Which walk the next bet follows: 0, or (GRID + 1) times its kind plus the place of its chance."""
    if seen[5] > 0.0 and target.pairs:
        return GRID + 1 + _place((seen[0] - seen[4] + DIFFERENT * PAIRS) / (seen[0] + PAIRS))
    if seen[5] > 0.0:
        return 0
    g = _null_law(seen, target.best)[1] / math.sqrt(target.total / STEPS)  # the skewness of a step of so many outcomes
    return 2 * (GRID + 1) + _place(0.5 * (1.0 - g / math.sqrt(4.0 + g * g)))


@compiled
def _fraction(seen: Reals, target: Target, x: float, spent: int, law: Reals, first: Ints, U: Reals) -> float:
    """The fraction of the next outcome, where delta times the capital is x."""
    if not 0.0 < x < 1.0:
        return 0.0
    if seen[5] == 0.0:
        x /= AHEAD
        v, r, outcomes = _null_law(seen, target.best)[0], law[1], target.total / STEPS
        unit = math.sqrt(v * outcomes / (r * (1.0 - r)))
        f, largest = slope(U, first, STEPS * spent // target.total, x, 1) / (x * unit), LARGEST_FRACTION
        if -2.0 * math.log(x) >= v * (target.total - spent):  # steady bets would get there with 1 and more
            f = largest
    elif target.pairs:
        followed = x / AHEAD_IN_PAIRS
        f, largest = (
            slope(U, first, spent, followed, 2) / followed,
            min((1.0 - x) / x, LARGEST_EXACT),
        )  # enough to answer
    else:
        f, largest = law[1] * slope(U, first, spent, x, 1) / x, LARGEST_EXACT
    return min(max(f, 0.0), largest)


@entry
def fraction(
    seen: Reals, target: Target, x: float, spent: int, walk: int, law: Reals, first: Ints, U: Reals
) -> tuple[int, float]:
    """(the walk that is wanted, the fraction of the next outcome): the second if the walk is the one that was given."""
    wanted = _wanted(seen, target)
    return wanted, _fraction(seen, target, x, spent, law, first, U) if wanted == walk else 0.0


@entry
def capital_along(
    seen: Reals, target: Target, path: Reals, at: int, won: Reals, walk: int, law: Reals, first: Ints, U: Reals
) -> tuple[int, int]:
    """Bet on outcomes from number ``at`` on, as long as this walk is the one that is wanted: (how far, the next walk).

    ``path[i]`` is the capital before outcome i.
    """
    for i in range(at, len(won)):
        wanted = _wanted(seen, target)
        if wanted != walk:
            return i, wanted
        f = _fraction(seen, target, target.delta * path[i], i, law, first, U) if i < target.total else 0.0
        path[i + 1] = path[i] * (1.0 + f * min(max(won[i], -1.0), target.best))
        _add(seen, won[i], target)
    return len(won), walk


@entry
def add(seen: Reals, won: Reals, target: Target) -> None:
    """More outcomes, one by one, so that a resumed run has the same sums."""
    for i in range(len(won)):
        _add(seen, won[i], target)


# ---------------------------------------------------------------- other clocks than the number of outcomes


@entry
def chance_for(skewness: float) -> float:
    """The chance r, on the grid, of a step up of a walk whose steps are this skewed."""
    place = _place(0.5 * (1.0 - skewness / math.sqrt(4.0 + skewness * skewness)))
    return 1.0 / (1.0 + math.exp(LARGEST_LOGIT * (1.0 - 2.0 * place / GRID)))


@entry
def relative_slope(U: Reals, first: Ints, t: int, x: float) -> float:
    """How much the chance of crossing, which is x after t steps, grows by a step up, as a share of it."""
    return slope(U, first, t, x, 1) / x
