r"""The interval at the end of a budget: the thresholds that bets aimed at an answer by then do not refute.

For every threshold R there is a bet against "V <= R" of its own, aimed at R (`policytest.eprocess.budget`). With 0/1
outcomes that is nearly the exact binomial test at the end, so that the interval is nearly that of Clopper and Pearson.
Thresholds that are not refuted need not be an interval, as bets depend on R. Hence the lower end is the largest R such
that it *and every smaller one* are refuted, and the upper end likewise, with -Z in the place of Z.

*The bets of all R.* The range is cut into cells that are fixed before the first outcome. In a cell with the largest
point T the bet is aimed at T: with the fractions f_t that are chosen for T from the past, R has the capital

    W_t(R) = prod_{i <= t} (1 + f_i (Z_i - R)/(T - low)),       fair if V <= R, and it falls in R within the cell.

So every R in a cell is refuted if T is. The first cell whose T is not refuted has the end, which is found by halving.

*Beside them* steady bets, whose capital falls in R everywhere, at the share `STEADY` of delta: below their end all R
are refuted, so that only the cells beyond it are looked at.

*Validity.* If the lower end is above V, then V itself is refuted, by one of its two bets: with probability at most
(1 - `STEADY`) delta, or `STEADY` delta, by Ville's inequality, at any time up to the end of the budget.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest.eprocess.budget import aimed_capital
from policytest.eprocess.interval import HALF, Score, last_above

STEADY = 0.02  # the share of delta of the steady bets
CELLS = 64  # of the range, times the square root of the budget: a few in the width of an interval
TIED = 1e-7  # of the room: outcomes so close to T do not tell the fraction


class Goal(NamedTuple):
    """What bets aim at: an answer at delta = exp(-level) within the budget, about outcomes in this range."""

    budget: int
    level: float
    span: tuple[float, float]
    score: Score | None = None

    @property
    def steady_level(self) -> float:
        """The level of the steady bets."""
        return self.level - math.log(STEADY)

    @property
    def tops(self) -> FloatArray:
        """The largest points of the cells, which are equally long for the arc sine of the square root of the share."""
        count, (low, high) = math.ceil(CELLS * math.sqrt(self.budget)), self.span
        share = np.sin(0.5 * math.pi * np.arange(1.0, count) / count) ** 2
        return np.asarray(low + (high - low) * share)

    def mirrored(self) -> Goal:
        """The same about the outcomes with the other sign."""
        low, high = self.span
        return self._replace(span=(-high, -low))


def aimed_interval(
    goal: Goal, outcomes: tuple[FloatArray, FloatArray], steady: tuple[float, float]
) -> tuple[float, float]:
    """Where the value lies, with probability 1 - exp(-level) for both ends together; at half of that each.

    ``outcomes`` are those of the sides "above" and "below", the first ones of the budget; ``steady`` is the interval
    of steady bets at `Goal.steady_level`, less what was refuted here before.
    """
    above, below = outcomes
    return lower_end(goal, above, steady[0]), -lower_end(goal.mirrored(), -below, -steady[1])


def lower_end(goal: Goal, outcomes: FloatArray, steady: float) -> float:
    """The largest R that is refuted together with all below; those up to ``steady`` are."""
    Z, end, tops = outcomes[: goal.budget], steady, goal.tops
    required = goal.level + HALF - math.log1p(-STEADY)
    for top in tops[tops > steady]:
        x, best = full_bets(goal, Z, float(top), float(top))
        path = aimed_capital(x, best, math.exp(-required), goal.budget)
        if path.max(initial=0.0) < required:
            return _within(goal, Z, x, path, (end, float(top)), required)
        end = float(top)
    return end


def full_bets(goal: Goal, Z: FloatArray, R: float, top: float) -> tuple[FloatArray, float]:
    """(what full bets against "V <= R" win, in units of what they can lose against the top of its cell; the most)."""
    if goal.score is not None:
        return goal.score.of(Z - R) / goal.score.room, 1.0
    low, high = goal.span
    return (Z - R) / (top - low), (high - R) / (top - low)


def _within(
    goal: Goal, Z: FloatArray, x: FloatArray, path: FloatArray, cell: tuple[float, float], required: float
) -> float:
    """The end in a cell, whose top is not refuted: ``path`` is the log-capital there.

    The fractions are read off the path. Where an outcome is so close to the top that they cannot be, the smaller R get
    what is worse for them: no stake if they win, all of it if they lose.
    """
    clear = np.abs(x) > TIED
    grown = np.expm1(np.diff(path, prepend=0.0))
    fractions = np.clip(np.divide(grown, x, out=np.zeros_like(x), where=clear), 0.0, 1.0)

    def evidence(R: float) -> float:
        won, _ = full_bets(goal, Z, R, cell[1])
        factors = np.where(clear, fractions * won, np.minimum(won, 0.0))
        return float(np.add.accumulate(np.log1p(np.maximum(factors, -1.0 + 1e-12))).max(initial=0.0))

    return last_above(evidence, *cell, required)
