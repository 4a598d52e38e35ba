"""Strategies: which fractions to stake, chosen from the past alone, and how the capital is shared out among them.

A fraction f of the largest bet makes the capital 1 + f x times as large, where x is what a full bet wins in units of
what it can lose (the room). Whatever is chosen here before an outcome is drawn, the test is valid.
"""

from __future__ import annotations

import math
from typing import NamedTuple, Protocol

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.capital import best_fractions

SMALLEST_FRACTION, LARGEST_FRACTION = 1e-6, 0.995
RESERVE: FloatArray = np.append(LARGEST_FRACTION * 0.25 ** np.arange(11.0), 0.0)
RESERVED, RESERVED_UNDISCOUNTED = 0.05, 0.2  # shares of the capital in the reserve; the second for undiscounted tables
NATS = 4.0  # about the evidence at the ends of an interval
UNDERFLOW = 8.0  # standard errors beyond which the tail of a normal law is left out, or expanded
TIED = 1e-9  # numbers that are equal up to this are equal up to rounding
MOST_SUMS = 4000  # simulated rollouts to which fractions are fitted
LARGEST_SQUARES = float(np.finfo(np.float64).max)  # rewards may be as large as 1e300, and a kept state is finite
NONE: FloatArray = np.zeros(0)


def with_reserve(log_weights: FloatArray, share: float = RESERVED) -> FloatArray:
    """The logarithms of the shares of the capital, this share of it in equal parts on the fractions of `RESERVE`.

    A fitted fraction is only as good as the past: before the first loss nothing speaks against staking nearly all, and
    the first losses may then leave nothing. The fractions f of the reserve are constant, and 0 is one of them. So,
    whatever the payoffs Z_i in units of the largest loss, and whatever was fitted, the capital K never falls below

        log K >= log(share/k) + max over the k constants f of sum_i log(1 + f Z_i) >= log(share/k).
    """
    if not share:
        return log_weights
    reserve = np.full(len(RESERVE), np.log(share / len(RESERVE)))
    return np.concatenate([log_weights + np.log1p(-share), reserve])


def without_reserve(fractions: FloatArray) -> FloatArray:
    """Fractions that end with the reserve, which stakes nothing here."""
    return np.concatenate([fractions[: -len(RESERVE)], np.zeros(len(RESERVE))])


def halving(count: int, step: float = 1.0) -> FloatArray:
    """Fractions from the largest one down, each 2^-step times the one before."""
    return np.asarray(LARGEST_FRACTION * 2.0 ** (-step * np.arange(count)), dtype=np.float64)


def falling(total: float, factor: float, count: int, *others: float) -> FloatArray:
    """The logarithms of shares: this total in geometric progression, then the others."""
    weights = factor ** np.arange(count)
    return np.asarray(np.log(np.append(total * weights / weights.sum(), others)), dtype=np.float64)


class Strategy(Protocol):
    """What a run asks for its fractions."""

    @property
    def log_weights(self) -> FloatArray:
        """[F] the logarithms of the shares of the capital; the shares add up to at most 1."""

    def fractions(
        self, v: float | None, lead: float, count: float, narrow: float = 1.0, sums: FloatArray = NONE
    ) -> FloatArray:
        """[F] the fractions of the next outcomes, in units of the room.

        ``v`` is the mean square of x, ``lead`` its mean, estimated from ``count`` outcomes.
        """


class FractionGrid(NamedTuple):
    """Steady fractions, multiples of one that is fitted, and the reserve."""

    steady: FloatArray
    shares: FloatArray  # the logarithms, first of the steady ones, then of the multiples; of all but the reserve
    multiples: FloatArray = NONE
    reserved: float = RESERVED

    @property
    def log_weights(self) -> FloatArray:
        """[F] the logarithms of the shares of the capital."""
        return with_reserve(self.shares, self.reserved)

    def fractions(
        self, v: float | None, lead: float, count: float, narrow: float = 1.0, sums: FloatArray = NONE
    ) -> FloatArray:
        """The steady fractions, multiples of f = gap/(v + gap^2), the best one where gains are small, and the reserve.

        The gap is the one to expect. Without a v the largest bet is taken, the best where one outcome says much. The
        last two arguments are those of a `GapGrid`.
        """
        best = 1.0
        if v is not None and 0 < v + (gap := expected_gap(v, lead, count)) ** 2 < np.inf:
            best = gap / (v + gap * gap)
        largest = self.steady[0] if len(self.steady) else LARGEST_FRACTION
        fitted = np.clip(self.multiples * best, SMALLEST_FRACTION, largest)
        return np.concatenate([self.steady, fitted, RESERVE if self.reserved else NONE])


class GapGrid(NamedTuple):
    """A bet for each gap that V may have from the threshold, one for the gap that was fitted, and the reserve.

    The best fraction for a gap depends on what rollouts win and lose, which changes with every plan; the gap does not.
    So a bet on "the gap is about g" stakes little while rollouts are noisy, and more as values become known: over all
    rollouts it is the mixture for which g would be the best guess. Where rollouts say much all these fractions are the
    largest one, and sharing out the capital costs nothing.

    *All or nothing*, without a discount: a path that loses all is an ordinary outcome, which the model may not have
    seen yet. So v counts one more outcome that has lost all, v + 1/(n + 1), fractions are `safe_fractions`, and
    the reserve stakes nothing on rollouts at paces that are not even (`without_reserve`).

    *Regret.* Let Z_i be the outcomes at the even pace, in units of the room, a the share of the reserve, and K_even the
    capital of its k constants in equal parts on the Z_i alone. At every end of a rollout, whatever was fitted,
    and whatever happened at other paces,

        log K >= log a + log K_even >= log(a/k) + max over the constants f of sum_i log(1 + f Z_i):

    the capital of the reserve is (a/k) sum_f prod_i (1 + f Z_i), a factor 1 + 0 at other paces changes nothing, and the
    rest of K is not negative. Where rollouts at the even pace are whole paths (`policytest.payoffs.total_bet`), K_even
    is the capital of bets on whole paths. Suppose that such bets reach log(1/delta) + log(1/a) with N samples. All
    rollouts at the even pace bet on both sides, so the test ends before it has taken more than N samples at that pace.
    A rollout at another pace only begins while those have taken less than 8 times as many (`payoffs.splitting.Race`).
    So the test ends after at most 9 N samples and the rest of one rollout. (This is the worst case; the benchmark
    `whole_paths.py` has what is measured.)
    """

    gaps: FloatArray  # as shares of the distance from the threshold to the worst value
    shares: FloatArray  # the logarithms, of these and of the fitted one
    reserved: float = RESERVED
    all_or_nothing: bool = False

    @property
    def log_weights(self) -> FloatArray:
        """[F] the logarithms of the shares of the capital."""
        return with_reserve(self.shares, self.reserved)

    @property
    def steady(self) -> FloatArray:
        """The fractions where nothing is known about rollouts."""
        return halving(len(self.gaps), 0.5)

    def fractions(
        self, v: float | None, lead: float, count: float, narrow: float = 1.0, sums: FloatArray = NONE
    ) -> FloatArray:
        """The fraction for each gap: the best of small bets, g/(v + g^2), or less where that is best for these sums.

        All or nothing: `safe_fractions`, or less. In units of the room: ``narrow`` is the room that the worst value
        leaves (the range may be wider), ``sums`` are simulated outcomes with mean 0. Without a v, steady fractions and
        the largest. A larger gap never stakes less: beyond g = sqrt(v), where g/(v + g^2) falls again, it stakes as
        much as there. Rare large losses ask for less than g/(v + g^2). Rare large gains would ask for more, but few of
        them are simulated, and the model knows their chances poorly: whoever relied on them took up to twice the
        samples.
        """
        if v is None:
            return np.concatenate([self.steady, [LARGEST_FRACTION], RESERVE])
        gaps = np.append(narrow * self.gaps, expected_gap(v, lead, count))
        if self.all_or_nothing:
            best = safe_fractions(gaps, v + 1.0 / (count + 1.0))
        else:
            small = np.minimum(gaps, math.sqrt(v))
            best = small / np.maximum(v + small * small, 1e-300)
        if len(sums):
            best = np.minimum(best, best_fractions(sums[:MOST_SUMS], gaps, LARGEST_FRACTION))
        return np.concatenate([np.clip(best, SMALLEST_FRACTION, LARGEST_FRACTION), RESERVE])


class IntervalGrid(NamedTuple):
    """The fractions of intervals, where the threshold is not known: those that suit the ends by now, and steady ones.

    At the distance g of the ends, with outcomes of variance v in units of the room, the best fraction is g/v. After n
    outcomes bets that follow it have lost NATS log n; the steady one that suits has not, and decides if n is large.
    """

    steady: FloatArray
    gaps: FloatArray  # in the place of the steady ones, where the pace of rollouts changes
    shares: FloatArray

    @property
    def log_weights(self) -> FloatArray:
        """[F] the logarithms of the shares of the capital."""
        return with_reserve(self.shares)

    def fractions(self, v: float, count: float, narrow: float | None = None) -> FloatArray:
        """[F] in units of the room. ``narrow``, the room that the worst sum leaves: gaps are steady, not fractions."""
        near = NEAR * (interval_gap(v, count) / max(v, 1e-300))
        others = self.steady if narrow is None else narrow * self.gaps / max(v, 1e-300)
        return np.concatenate([np.clip([*near, *others], SMALLEST_FRACTION, LARGEST_FRACTION), RESERVE])


def interval_gap(v: float, count: float) -> float:
    """The distance g of the ends of an interval from the mean: `NATS` of evidence are at g^2 n = 2 NATS v."""
    return math.sqrt(2.0 * NATS * v / (count + 1.0))


def safe_fractions(gaps: FloatArray, v: float) -> FloatArray:
    """The fractions f = g/(g + v + g^2), for outcomes of mean g and variance v that may lose all.

    For every law of outcomes x >= -1 with the mean g, and with m = v + g^2, the growth is at least

        E log(1 + f x) >= f g - m (-log(1 - f) - f),

    since (log(1 + y) - y)/y^2 grows with y = f x >= -f. This f is where the bound is largest.
    """
    return np.asarray(gaps / (gaps + v + gaps * gaps))


def expected_gap(v: float, lead: float, count: float) -> float:
    """The gap to expect if the side is right: the mean of a normal law about the lead, given that it is positive.

    With the standard error e = sqrt(v/(count + 1)) of the lead and z = lead/e it is  lead + e phi(z)/Phi(z): the
    lead where that is many standard errors, 0.8 e where it is 0, about e/|z| where the other side is far ahead.
    """
    error = math.sqrt(v / (count + 1.0))
    if lead >= UNDERFLOW * error:
        return lead
    if lead <= -UNDERFLOW * error:  # by an expansion for large -z
        return error * error * -lead / (lead * lead + 2.0 * error * error)
    z = lead / error
    return lead + error * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * z * z) / math.erfc(-z / math.sqrt(2.0))


def expected_growth(v: float, lead: float, count: float) -> float:
    """f gap - f^2 (v + gap^2)/2 at the best f <= 1: the growth of the capital an outcome, for gains of variance v.

    All in units of the room. The gap is the one to expect.
    """
    return growth_of(v, expected_gap(v, lead, count))


def growth_of(v: float, gap: float) -> float:
    """The same for this gap."""
    fraction = min(1.0, gap / (v + gap * gap)) if v + gap > 0 else 0.0
    return float(fraction * gap - 0.5 * fraction**2 * (v + gap * gap))


def growth_on(x: FloatArray, chance: FloatArray | None = None, count: int = 12) -> float:
    """The mean of log(1 + f x) over these outcomes, in units of the room, at the best of some fractions f."""
    growth = np.log1p(np.outer(halving(count), np.maximum(x, -1.0)))
    return float((growth.mean(axis=1) if chance is None else growth @ chance).max())


def best_growth(sums: FloatArray, gap: float) -> float:
    """The mean of log(1 + f (gap + x)) over simulated outcomes x with mean 0, at the best f."""
    (f,) = best_fractions(sums, np.array([gap]), LARGEST_FRACTION)
    return float(np.log1p(f * np.maximum(gap + sums, -1.0)).mean())


def most_promising(growth: list[float]) -> int:
    """The index of the largest expected growth; of those that are equal up to rounding, the first.

    While noise hides the lead all growths are equal, and their last bits, which differ between processors, say nothing.
    """
    return next((index for index, value in enumerate(growth) if value >= max(growth) * (1.0 - TIED)), 0)


class Moments:
    """Of outcomes so far: how many, their sum, and the sum of their squares."""

    def __init__(self, prior: float = 1.0) -> None:
        self.prior = prior  # of one more outcome, which the mean squares begin with
        self.count, self.sum, self.squares = 0.0, 0.0, 0.0

    def add(self, x: FloatArray) -> None:
        """More outcomes, one after the other: how they are taken changes no result."""
        self.count += len(x)
        self.sum = float(np.add.accumulate(np.append(self.sum, x))[-1])
        with np.errstate(over="ignore"):
            squares = float(np.add.accumulate(np.append(self.squares, x * x))[-1])
        self.squares = min(squares, LARGEST_SQUARES)

    def fade(self, factor: float) -> None:
        """Let all of them count less."""
        self.restore(factor * self.state())

    def mean(self, room: float = 1.0) -> float:
        """The mean in units of the room, shrunk towards 0."""
        return self.sum / room / (self.count + 1.0)

    def square(self, room: float = 1.0) -> float:
        """The mean of the squares, with the prior."""
        return (self.prior + self.squares / room**2) / (self.count + 1.0)

    def variance(self, room: float = 1.0) -> float:
        """The variance, with the prior."""
        mean = self.mean(room)
        return max(self.square(room) - mean * mean, 1e-12)  # not a power of it, which refuses to overflow

    def state(self) -> FloatArray:
        """[3] to go on from."""
        return np.array([self.count, self.sum, self.squares])

    def restore(self, kept: FloatArray) -> None:
        """Go on from what was kept."""
        self.count, self.sum, self.squares = (float(value) for value in kept)
        if not (np.isfinite(kept).all() and self.count >= 0 and self.squares >= 0):
            raise ValueError("the moments are not those of outcomes")


# ---------------------------------------------------------------- the strategies of the methods

ONE, NEAR = np.array([1.0]), np.array([0.5, 1.0, 2.0])  # multiples of the fitted fraction
LOG_NEAR: FloatArray = np.log(np.array([0.25, 0.5, 0.25]))
_SLIGHTLY_LESS = 1e-15  # so that shares are in all not above 1

ONE_POLICY = GapGrid(0.5 ** np.arange(8.0), falling(0.6, 0.9, 8, 0.4) - _SLIGHTLY_LESS)
"""Rollouts of one policy."""
ON_STACKS = FractionGrid(halving(10, 0.5), falling(0.2, 0.7, 10, 0.8) - _SLIGHTLY_LESS, ONE)
"""Rollouts of recorded draws."""
TWO_POLICIES = FractionGrid(
    halving(4, 0.5), np.log(np.array([0.63, 0.063, 0.0063, 0.0007, 0.1, 0.1, 0.1])), np.array([1.0, 2.0, 4.0])
)
"""Coupled rollouts."""
ON_RETURNS = FractionGrid(halving(12, 0.5), falling(0.8, 0.8, 12, 0.2) - _SLIGHTLY_LESS, ONE)
"""Returns of whole episodes, where little is fitted."""
ON_LOGS = FractionGrid(halving(14), falling(0.7, 0.85, 14, 0.3), ONE)
"""Weighted returns of recorded episodes."""
OWN_DRAWS = FractionGrid(NONE, LOG_NEAR, NEAR)
"""Rollouts on a log that own their draws."""
TRUNCATED = FractionGrid(halving(12), falling(1.0, 0.7, 12))
"""Truncated returns of Monte Carlo."""
AIMED = FractionGrid(NONE, np.zeros(1), ONE, reserved=0.0)
"""One fraction, that of `policytest.eprocess.budget.BudgetTarget`."""
ENDS = IntervalGrid(
    halving(10), 0.5 ** np.arange(1.0, 11.0), np.concatenate([LOG_NEAR + np.log(0.3), falling(0.7, 0.85, 10)])
)
"""The ends of intervals."""
ENDS_AT_BUDGET = ENDS._replace(shares=np.concatenate([LOG_NEAR + np.log(0.9), falling(0.1, 0.85, 10)]) - _SLIGHTLY_LESS)
"""The ends of intervals at the end of a budget, which the fitted fractions are for."""
ENDS_OF_LOGS = FractionGrid(halving(20), falling(1.0, 0.9, 20), reserved=0.0)
"""The ends of intervals of weighted returns: steady, down to fractions that suit heavy weights and long logs."""
