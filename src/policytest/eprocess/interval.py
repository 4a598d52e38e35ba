"""Which other thresholds the same bets would refute, and the intervals that this gives; and several e-processes as one.

Each way to combine has its price: an average costs nothing, half of a vote and half of delta log 2.

*Average.* The mean of e-processes, with weights fixed beforehand, is one: what one set of coins has not found another
may have.

*Weighted-median vote.* Where capitals cannot be averaged, since each was stopped by what it had not yet used: if each
ever reaches 2/delta with probability at most delta/2, the mean share of those that do is at most delta/2, and the share
is ever as large as 1/2 with probability at most delta (Markov).

*Union.* Two tests at delta/2 each: one of them errs with probability at most delta.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.capital import settle_against

HALF = math.log(2.0)
"""The price, in nats, of a vote by weighted median, and of each of two parts of a union."""
PRECISION = 2.0**-40  # of the range, to which an end is found
NEARLY_WORST = 1e-9  # of the range: a threshold so close to the worst value is not told from it


class Refuter(Protocol):
    """Bets of one side that can be settled against any threshold, in the units and the direction of their side."""

    def log_capital(self, R: float) -> float:
        """The evidence against "V <= R"; falls in R."""

    def largest(self) -> float:
        """The largest outcome: beyond it no threshold is refuted."""


class Score(Protocol):
    """Another question than the mean's about the same outcomes: is their median above R, or a quantile?

    A function s of Z - R (of a side "below", of R - Z) that never falls in its argument, with s >= -room, and with a
    mean of at most 0 if the answer would be wrong. Bets are settled with it in the place of Z - R itself.
    """

    @property
    def name(self) -> str:
        """What is compared with the threshold, in words: "median return"."""

    @property
    def room(self) -> float:
        """What a full bet can lose."""

    def of(self, won: FloatArray) -> FloatArray:
        """[n] s of each Z - R."""

    def estimate(self, outcomes: FloatArray) -> float:
        """What is compared with the threshold, estimated."""


@dataclass(frozen=True, eq=False)
class Settled:
    """The outcomes of one side, which serve every threshold at once.

    1 + f (Z - R)/(R - low) falls in R, and is fair for every R, since f was chosen before Z. ``along``: the evidence is
    the largest at the end of any outcome, of which exp(-evidence) is a p-value, not an e-value.

    Parameters
    ----------
    won, room
        Z and -low, less the tested threshold, of each outcome [n] and of each segment of them.
    lengths, fractions
        Of each segment: the number of outcomes, and their fractions.
    shares
        [F] of the first capital.
    score
        What is settled in the place of Z - R.
    """

    won: FloatArray
    room: FloatArray
    lengths: IntArray
    fractions: FloatArray
    shares: FloatArray
    along: bool = False
    score: Score | None = None

    def log_capital(self, R: float) -> float:
        """The evidence against "V <= threshold + R"."""
        won, capital = self.won, np.append(self.shares, 0.0)
        if self.score is not None:  # its room is the same for every threshold
            won, R = self.score.of(won - R), 0.0
        fractions = np.ascontiguousarray(self.fractions.reshape(-1, len(self.shares)))
        return float(settle_against(capital, fractions, won, self.room, self.lengths, R, self.along))

    def largest(self) -> float:
        """The largest outcome, less the threshold."""
        return float(self.won.max(initial=-np.inf))


@dataclass(frozen=True, eq=False)
class Average:
    """The average of several capitals: of e-values it is one."""

    parts: Sequence[Refuter]

    def log_capital(self, R: float) -> float:
        """The logarithm of their average capital."""
        return average([part.log_capital(R) for part in self.parts])

    def largest(self) -> float:
        """The largest outcome of all."""
        return max((part.largest() for part in self.parts), default=-np.inf)


def average(evidence: Sequence[float] | FloatArray) -> float:
    """The logarithm of the average of capitals, by their logarithms."""
    return float(np.logaddexp.reduce(evidence) - np.log(len(evidence)))


def weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """The largest number that half of these reach, by weight."""
    order = np.argsort(-values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), 0.5 - 1e-9)])


def union(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The evidence of each side by the better of two tests, at delta/2 each."""
    return max(first[0], second[0]) - HALF, max(first[1], second[1]) - HALF


def intersection(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """What two intervals, at delta/2 each, leave."""
    return max(first[0], second[0]), min(first[1], second[1])


def largest_refuted(side: Refuter, worst: float, best: float, level: float) -> float:
    """The largest R, up to `PRECISION` of the range, for which "V <= R" is refuted; ``worst`` where none is."""
    if np.isinf(worst):
        return worst
    high = max(side.largest(), worst) if np.isinf(best) else best
    return last_above(side.log_capital, worst, high, level)


def last_above(evidence: Callable[[float], float], low: float, high: float, level: float) -> float:
    """The largest R, up to `PRECISION`, with evidence(R) >= level, for evidence that falls; ``low`` where none has.

    By Chandrupatla's method: the zero of the inverse quadratic through the last three points where these lie so that it
    is a good guess, and halving elsewhere.
    """
    near = max(PRECISION * (high - low), 4.0 * float(np.spacing(max(abs(low), abs(high)))))
    first = low + NEARLY_WORST * (high - low)
    above = evidence(first) - level
    if not above >= 0:
        return low
    below = evidence(high) - level
    if below >= 0:
        return high
    newest, other, share = (high, below), (first, above), 0.5  # on different sides of the end
    while (width := abs(other[0] - newest[0])) > near:
        share = min(max(share, 0.5 * near / width), 1.0 - 0.5 * near / width)
        R = newest[0] + share * (other[0] - newest[0])
        found = R, evidence(R) - level
        if (found[1] >= 0) == (newest[1] >= 0):
            newest, before = found, newest
        else:
            newest, other, before = found, newest, other
        share = _inverse_quadratic(newest, other, before)
    return min(newest, other)[0]


def _inverse_quadratic(a: tuple[float, float], b: tuple[float, float], c: tuple[float, float]) -> float:
    """How far it is from a to its zero, as a share of the way to b; 1/2 where it would be a poor guess.

    Through points (R, excess), of which a, the newest, is between b, on the other side, and c, on the same side.
    """
    if not np.isfinite(a[1] + b[1] + c[1]):
        return 0.5
    place, height = (a[0] - b[0]) / (c[0] - b[0]), (a[1] - b[1]) / (c[1] - b[1])
    if height * height >= place or (1.0 - height) * (1.0 - height) >= 1.0 - place:
        return 0.5
    first = a[1] / (b[1] - a[1]) * c[1] / (b[1] - c[1])
    return first + (c[0] - a[0]) / (b[0] - a[0]) * a[1] / (c[1] - a[1]) * b[1] / (c[1] - b[1])


def ends(
    above: Refuter, below: Refuter, span: tuple[float, float], threshold: float, level: float
) -> tuple[float, float]:
    """The values in this range that the capital of neither side refutes at this level.

    Both in units of their side, less the threshold: those of "below" are mirrored.
    """
    low, high = (end - threshold for end in span)
    first, last = largest_refuted(above, low, high, level), largest_refuted(below, -high, -low, level)
    return first + threshold, threshold - last


def clip_to_answer(
    interval: tuple[float, float], threshold: float, answer: str | None, zone: float = 0.0
) -> tuple[float, float]:
    """The part of an interval on the answer's side of the threshold; after "within", of the zone around it."""
    low, high = interval
    zone = zone if answer == "within" else 0.0
    low = max(low, threshold - zone) if answer in ("above", "within") else low
    return low, min(high, threshold + zone) if answer in ("below", "within") else high
