"""The plan of a bet, and its choice: how much of the advantages to subtract, and which fractions to stake.

Everything here is chosen from the past, before the rollouts it is for; that is all that validity asks.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.rollouts import Residuals, best_fractions

REFIT = 1.2  # V0 is fitted again when the samples have grown by this factor
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the fitted advantages, to choose from
LARGE = 2_000_000  # entries up to which a share is chosen
UNDERFLOW = 8.0  # standard errors beyond which the tail of a normal law is left out, or expanded
TIED = 1e-9  # numbers that are equal up to this are equal up to rounding
MULTIPLES = np.array([1.0, 2.0, 4.0])  # of the fitted fraction
SMALLEST_FRACTION, LARGEST_FRACTION = 1e-6, 0.995
NEAR = np.array([0.5, 1.0, 2.0])  # multiples of a fraction that suits, with half of the capital on the middle one
LOG_NEAR = np.log(np.array([0.25, 0.5, 0.25]))
RESERVE: FloatArray = np.append(LARGEST_FRACTION * 0.25 ** np.arange(11.0), 0.0)
RESERVED, RESERVED_UNDISCOUNTED = 0.05, 0.2  # shares of the capital in the reserve; the second for tables
NATS = 4.0  # about the evidence at the ends of an interval
WIDE_STEADY, WIDE_FALLING = LARGEST_FRACTION * 0.5 ** np.arange(10), 0.85 ** np.arange(10)  # of intervals
WIDE_GAPS = 0.5 ** np.arange(1.0, 11.0)  # in their place where the pace of rollouts changes


def with_reserve(log_weights: FloatArray, share: float = RESERVED) -> FloatArray:
    """The logarithms of the shares of the capital, this share of it in equal parts on the fractions of `RESERVE`.

    A fitted fraction is only as good as the past: before the first loss nothing speaks against staking nearly all, and
    the first losses may then leave nothing. The fractions f of the reserve are constant, and 0 is one of them. So,
    whatever the payoffs Z_i in units of the largest loss, and whatever was fitted, the capital K never falls below

        log K >= log(share/k) + max over the k constants f of sum_i log(1 + f Z_i) >= log(share/k).
    """
    reserve = np.full(len(RESERVE), np.log(share / len(RESERVE)))
    return np.concatenate([log_weights + np.log1p(-share), reserve])


LOG_WIDE = with_reserve(np.concatenate([LOG_NEAR + np.log(0.3), np.log(0.7 * WIDE_FALLING / WIDE_FALLING.sum())]))

NONE = np.zeros(0)
MOST_SUMS = 4000  # simulated rollouts to which fractions are fitted
NO_POLICY = Residuals(*(np.zeros(0) for _ in range(4)))


class BettingPlan(NamedTuple):
    """What the next rollouts bet with."""

    a: Residuals
    b: Residuals  # of the second policy; empty where there is none
    B: FloatArray  # [S] the worst sum along any path, of the two together where there are two
    L: float  # at least the worst sum; more where weights need room
    sign: float
    lead: float  # sign (rho.V0 - R), with the difference of the two V0 where there are two
    fractions: FloatArray = np.zeros(0)  # of the largest bet
    wide: FloatArray = np.zeros(0)  # those of intervals
    targets: FloatArray = np.zeros(0)  # [places] the weights to aim at by splits; empty: rollouts do not split
    mirrored: BettingPlan | None = None  # the bet of the other side on the same rollouts
    wider: float = 1.0  # L as a multiple of the worst sum

    @property
    def parts(self) -> tuple[Residuals, ...]:
        """Those of one policy, or of both."""
        return (self.a, self.b) if len(self.b.V) else (self.a,)

    @property
    def room(self) -> float:
        """L - lead: what a full bet stakes."""
        return self.L - self.lead

    @property
    def narrow_room(self) -> float:
        """The room that the worst sum leaves."""
        return self.L / self.wider - self.lead

    def widened(self, wider: float) -> BettingPlan:
        """With a range that is this many times the worst sum, on both sides."""
        mirrored = None if self.mirrored is None else self.mirrored.widened(wider)
        return self._replace(L=self.L * (wider / self.wider), wider=wider, mirrored=mirrored)

    @property
    def side(self) -> int:
        """The row of the capital: 0 bets on "above", 1 on "below"."""
        return 0 if self.sign > 0 else 1


class Ladder(NamedTuple):
    """Fractions of the largest bet: steady ones, and multiples of one that is fitted; how the capital is shared out."""

    steady: FloatArray
    log_weights: FloatArray  # first of the steady ones, then of the multiples
    multiples: FloatArray = MULTIPLES

    def fractions(
        self, v: float | None, lead: float, rollouts: float, narrow: float = 1.0, sums: FloatArray = NONE
    ) -> FloatArray:
        """The steady fractions, and multiples of f = gap/(v + gap^2), the best one where gains are small.

        In units of the room: v is the mean of S^2, gap the one to expect. Without a v the largest bet is taken, the
        best where one rollout says much. The last two arguments are those of a `GapLadder`.
        """
        best = 1.0
        if v is not None and 0 < v + (gap := expected_gap(v, lead, rollouts)) ** 2 < np.inf:
            best = gap / (v + gap * gap)
        fitted = np.clip(self.multiples * best, SMALLEST_FRACTION, self.steady[0])
        return np.concatenate([self.steady, fitted, RESERVE])


def fractions_near(best: float) -> FloatArray:
    """Some fractions around one that suits."""
    return np.clip(NEAR * best, SMALLEST_FRACTION, LARGEST_FRACTION)


def wide_gap(v: float, rollouts: float) -> float:
    """The distance g of the ends of an interval from the mean: `NATS` of evidence are at g^2 n = 2 NATS v."""
    return math.sqrt(2.0 * NATS * v / (rollouts + 1.0))


def wide_fractions(v: float, rollouts: float, narrow: float | None = None) -> FloatArray:
    """The fractions of intervals, where the threshold is not known: those that suit the ends by now, and steady ones.

    At the distance g of the ends, with rollouts of variance v in units of the room, the best fraction is g/v. After n
    rollouts bets that follow it have lost NATS log n; the steady one that suits has not, and decides if n is large.
    Where the pace of rollouts changes, gaps are steady instead; ``narrow`` is the room that the worst sum leaves.
    """
    near = fractions_near(wide_gap(v, rollouts) / max(v, 1e-300))
    if narrow is None:
        return np.concatenate([near, WIDE_STEADY, RESERVE])
    gaps = narrow * WIDE_GAPS / max(v, 1e-300)
    return np.concatenate([near, np.clip(gaps, SMALLEST_FRACTION, LARGEST_FRACTION), RESERVE])


def _steady(count: int) -> FloatArray:
    return np.asarray(LARGEST_FRACTION * 2.0 ** (-0.5 * np.arange(count)), dtype=np.float64)


def _shared(steady: float, falling: float, count: int, fitted: float) -> FloatArray:
    """The logarithms of the shares: of steady fractions, falling from the largest one, and of the fitted one."""
    weights = falling ** np.arange(count)
    return np.asarray(np.log(np.append(steady * weights / weights.sum(), fitted)) - 1e-15)  # in all not above 1


class GapLadder(NamedTuple):
    """A bet for each gap that V may have from the threshold, and one for the gap that was fitted.

    The best fraction for a gap depends on what rollouts win and lose, which changes with every plan; the gap does not.
    So a bet on "the gap is about g" stakes little while rollouts are noisy, and more as values become known: over all
    rollouts it is the mixture for which g would be the best guess. Where rollouts say much all these fractions are the
    largest one, and sharing out the capital costs nothing.
    """

    gaps: FloatArray  # as shares of the distance from the threshold to the worst value
    log_weights: FloatArray  # of these, and of the fitted one

    @property
    def steady(self) -> FloatArray:
        """The fractions where nothing is known about rollouts."""
        return _steady(len(self.gaps))

    def fractions(
        self, v: float | None, lead: float, rollouts: float, narrow: float = 1.0, sums: FloatArray = NONE
    ) -> FloatArray:
        """The fraction for each gap: the best of small bets, g/(v + g^2), or less where that is best for these sums.

        In units of the room: v is the mean of S^2, ``narrow`` the room that the worst value leaves (the range may be
        wider), ``sums`` simulated ones with mean 0. Without a v, steady fractions and the largest. A larger gap never
        stakes less: beyond g = sqrt(v), where g/(v + g^2) falls again, it stakes as much as there. Rare large losses
        ask for less than g/(v + g^2). Rare large gains would ask for more, but few of them are simulated, and the model
        knows their chances poorly: whoever relied on them took up to twice the samples.
        """
        if v is None:
            return np.concatenate([self.steady, [LARGEST_FRACTION], RESERVE])
        gaps = np.append(narrow * self.gaps, expected_gap(v, lead, rollouts))
        small = np.minimum(gaps, math.sqrt(v))
        best = small / np.maximum(v + small * small, 1e-300)
        if len(sums):
            best = np.minimum(best, best_fractions(sums[:MOST_SUMS], gaps, LARGEST_FRACTION))
        return np.concatenate([np.clip(best, SMALLEST_FRACTION, LARGEST_FRACTION), RESERVE])


ONE = np.array([1.0])
ONE_POLICY = GapLadder(0.5 ** np.arange(8.0), _shared(0.6, 0.9, 8, 0.4))
ON_STACKS = Ladder(_steady(10), _shared(0.2, 0.7, 10, 0.8), ONE)  # of recorded draws
TWO_POLICIES = Ladder(_steady(4), np.log(np.array([0.63, 0.063, 0.0063, 0.0007, 0.1, 0.1, 0.1])))
ON_RETURNS = Ladder(_steady(12), _shared(0.8, 0.8, 12, 0.2), ONE)  # of whole episodes, where little is fitted


def expected_gap(v: float, lead: float, rollouts: float) -> float:
    """The gap to expect if the side is right: the mean of a normal law about the lead, given that it is positive.

    With the standard error e = sqrt(v/(rollouts + 1)) of the lead and z = lead/e it is  lead + e phi(z)/Phi(z): the
    lead where that is many standard errors, 0.8 e where it is 0, about e/|z| where the other side is far ahead.
    """
    error = math.sqrt(v / (rollouts + 1.0))
    if lead >= UNDERFLOW * error:
        return lead
    if lead <= -UNDERFLOW * error:  # by an expansion for large -z
        return error * error * -lead / (lead * lead + 2.0 * error * error)
    z = lead / error
    return lead + error * math.sqrt(2.0 / math.pi) * math.exp(-0.5 * z * z) / math.erfc(-z / math.sqrt(2.0))


def expected_growth(v: float, lead: float, rollouts: float) -> float:
    """f gap - f^2 (v + gap^2)/2 at the best f <= 1: the growth of the capital a rollout, for gains of variance v.

    All in units of the room. The gap is the one to expect.
    """
    gap = expected_gap(v, lead, rollouts)
    fraction = min(1.0, gap / (v + gap * gap)) if v + gap > 0 else 0.0
    return float(fraction * gap - 0.5 * fraction**2 * (v + gap * gap))


def most_promising(growth: list[float]) -> int:
    """The index of the largest expected growth; of those that are equal up to rounding, the first.

    While noise hides the lead all growths are equal, and their last bits, which differ between processors, say nothing.
    """
    return next((index for index, value in enumerate(growth) if value >= max(growth) * (1.0 - TIED)), 0)
