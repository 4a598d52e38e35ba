r"""Evidence about a mean where outcomes have no known range: right as their number grows, not for every number.

Without a range no test is valid at every n (Bahadur and Savage, 1956). If outcomes have a finite variance, there is an
asymptotic confidence sequence: valid at all times at once, as the time from which on it is looked at grows
(Waudby-Smith, Arbour, Sinha, Kennedy and Ramdas, 2024). In terms of T = sqrt(n) (mean - R)/sd it is the set of all R at
which a mixture of normal likelihood ratios is small. Against "V <= R", at the scale rho,

    2 sqrt(1 - s) exp(s T^2/2) Phi(sqrt(s) T),      s = n rho^2/(1 + n rho^2).

*The variance is estimated*: here it is mixed over, too (the density is 1/sd), which gives, u = T^2/(n - 1 + T^2),

    2 sqrt(1 - s) (1 - s u)^(-n/2) F_n(T'),         T' = sqrt(n s u/(1 - s u)) with the sign of T,

F_n the distribution function of Student's t with n degrees of freedom. It has the same limit; for normal outcomes it is
an e-process at every n, whatever their variance. Scales are those that are best at about 30, 300 and 3,000 outcomes,
rho^2 = 8.8/n, in equal shares: that costs at most log 3 nats, and at delta = 0.05 some 3.0 to 3.3
standard errors are enough from 30 to 10,000 outcomes.

*Skewness.* Mean and sd of skewed outcomes depend on each other, which makes one tail of T heavier: by an error of order
1/sqrt(n). Hall's transformation (1992) removes it. With the skewness g and a = g/(3 sqrt(n)),

    H(T) = ((1 + a T)^3 - 1)/(3 a) + a/2,

which rises in T. Evidence against "V <= R" is that of min(T, H(T)), and against "V >= R" that of -max(T, H(T)): what
skewness takes away counts, what it might add does not.

*Silence.* Where the limit is far the evidence is 0: before `FEWEST` outcomes; while they are all equal; before
`RAREST` of the rarer one, if there are two values; and while n < `SKEWED` g^2. If one outcome carries the share q of
the sum of squares then g^2 > n q^3, about, so that the last rule is also silent wherever q > 0.34. A mixture that is
only looked at where data allow it is looked at less often: that costs no validity.

*One look.* For a number of outcomes that was fixed beforehand the evidence is -log of the p-value of the t-test, with
the same T, the same rules of silence, and before that number it is 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
import scipy

from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.text import number, plural
from policytest.eprocess.interval import last_above

FEWEST, RAREST, SKEWED = 30, 10, 25.0
"""Outcomes, outcomes of the rarer of two values, and outcomes in units of the squared skewness, before it speaks."""
TUNED = (30, 300, 3000)  # numbers of outcomes at which a scale is best
BEST_SCALE = 8.8  # n rho^2 where an answer at delta = 0.05 is likeliest
SCALES = BEST_SCALE / np.array(TUNED)
SHARE = math.log(2.0 / len(TUNED))
LARGEST_T = 1e4  # no larger one is sought
NO_SPREAD = 1e-12  # an sd, relative to the mean, that is rounding
TINY = 1e-200


class Rule(Protocol):
    """How much evidence a standardised lead is."""

    def speaks(self, n: FloatArray) -> BoolArray:
        """Whether it may be looked at after so many outcomes."""

    def evidence(self, T: FloatArray, n: FloatArray) -> FloatArray:
        """In nats; rises in T."""

    def needed(self, n: float, level: float) -> float:
        """The T whose evidence is this level; infinite where none has."""

    def waits(self, n: int) -> str:
        """Why it may not be looked at, if so."""


@dataclass(frozen=True)
class AnyTime:
    """The mixture, which may be looked at after every outcome.

    >>> rule = AnyTime()
    >>> [round(rule.needed(n, math.log(20)), 2) for n in (100, 1000, 10_000)]
    [3.05, 2.96, 3.12]
    """

    def speaks(self, n: FloatArray) -> BoolArray:
        """From `FEWEST` on."""
        return n >= FEWEST

    def evidence(self, T: FloatArray, n: FloatArray) -> FloatArray:
        """The logarithm of the mixture."""
        square = T * T
        u = square / (square + np.maximum(n - 1.0, 1.0))
        scale = np.multiply.outer(SCALES, n)
        su = scale / (1.0 + scale) * u
        left = 1.0 - su
        share = scipy.special.stdtr(n, np.sign(T) * np.sqrt(n * su / left))
        logs = -0.5 * n * np.log(left) + np.log(np.maximum(share, TINY))
        if (share < TINY).any():  # both terms are huge: the tail of Student's t as a power, times the other
            logs = np.where(share < TINY, -0.5 * np.log(2.0 * math.pi * n * np.maximum(su, TINY)), logs)
        return np.asarray(np.logaddexp.reduce(logs - 0.5 * np.log1p(scale), axis=0) + SHARE)

    def needed(self, n: float, level: float) -> float:
        """By bisection."""
        size = np.array(n)
        found = last_above(lambda T: float(self.evidence(np.array(-T), size)), -LARGEST_T, LARGEST_T, level)
        return -found if found > -LARGEST_T else math.inf

    def waits(self, n: int) -> str:
        """For the first outcomes."""
        return f"a large-sample answer needs at least {FEWEST} of them" if n < FEWEST else ""


@dataclass(frozen=True)
class OneLook:
    """The t-test at a number of outcomes that was fixed beforehand."""

    size: int

    def speaks(self, n: FloatArray) -> BoolArray:
        """At that number, if that is at least `FEWEST`."""
        return np.asarray((n == self.size) & (n >= FEWEST))

    def evidence(self, T: FloatArray, n: FloatArray) -> FloatArray:
        """The logarithm of 1/p."""
        tail = scipy.special.stdtr(np.maximum(n - 1.0, 1.0), -T)
        return np.asarray(-np.log(np.maximum(tail, TINY)))

    def needed(self, n: float, level: float) -> float:
        """The quantile."""
        return -float(scipy.special.stdtrit(n - 1.0, math.exp(-level)))

    def waits(self, n: int) -> str:
        """For the end."""
        if self.size < FEWEST:
            return f"a large-sample answer needs at least {FEWEST} of them, and the one look is at {self.size}"
        return f"the one look is at {self.size:,} of them" if n < self.size else ""


class Shape(NamedTuple):
    """What was seen after each of some outcomes [n], or after one of them: moments, and how often the rarer value was.

    ``rarer`` is infinite where there are more than two values.
    """

    n: FloatArray
    mean: FloatArray
    sd: FloatArray
    skewness: FloatArray
    rarer: FloatArray

    def at(self, index: int) -> Shape:
        """After one of them."""
        return Shape(*(part[index] for part in self))

    def standardised(self, R: float) -> FloatArray:
        """[2, n] min(T, H(T)) and -max(T, H(T)), T the lead of the mean over R in standard errors."""
        T = np.sqrt(self.n) * (self.mean - R) / np.where(self.sd > 0, self.sd, 1.0)  # without spread it is silent
        H = hall(T, self.bend)
        return np.array([np.fmin(T, H), -np.fmax(T, H)])

    @property
    def bend(self) -> FloatArray:
        """The a of Hall's transformation."""
        return np.asarray(self.skewness / (3.0 * np.sqrt(np.maximum(self.n, 1.0))))


class ShapeSoFar:
    """Running moments about the first outcome; the same whether outcomes come one by one or many at once."""

    def __init__(self) -> None:
        self.first, self.second = math.nan, math.nan  # the first two values that differ
        self.sums = np.zeros((6, 1))  # of 1, y, y^2, y^3 with y = x - first, and of each of these values

    def after(self, x: FloatArray) -> tuple[Shape, FloatArray]:
        """What was seen after each of these outcomes, and the sums there."""
        first = float(x[0]) if math.isnan(self.first) else self.first
        y = x - first
        second = self._second(x)
        with np.errstate(over="ignore", invalid="ignore"):
            terms = np.array([np.ones(len(x)), y, y * y, y * y * y, x == first, x == second])
            sums = np.cumsum(np.concatenate([self.sums, terms], axis=1), axis=1)[:, 1:]
            n, (m1, m2, m3) = sums[0], sums[1:4] / sums[0]
            variance = np.maximum(m2 - m1 * m1, 0.0)
            sd, mean = np.sqrt(variance * (n / np.maximum(n - 1.0, 1.0))), first + m1
            sd = np.where(sd > NO_SPREAD * (np.abs(mean) + abs(first)), sd, 0.0)
            third = m3 - 3.0 * m1 * m2 + 2.0 * m1**3
            skewness = np.where(sd > 0, third / np.where(sd > 0, variance, 1.0) ** 1.5, 0.0)
        rarer = np.where(sums[4] + sums[5] < n, math.inf, np.minimum(sums[4], sums[5]))
        return Shape(n, mean, sd, skewness, rarer), sums

    def keep(self, x: FloatArray, sums: FloatArray) -> None:
        """These outcomes were seen, with these sums at the end."""
        if len(x):
            self.second = self._second(x)
            self.first = float(x[0]) if math.isnan(self.first) else self.first
            self.sums = sums[:, len(x) - 1 : len(x)].copy()

    def _second(self, x: FloatArray) -> float:
        if not math.isnan(self.second):
            return self.second
        others = np.flatnonzero(x != (x[0] if math.isnan(self.first) else self.first))
        return float(x[others[0]]) if len(others) else math.nan


class LargeSampleProcess:
    """The evidence about a mean, on both sides of any threshold.

    >>> process = LargeSampleProcess()
    >>> process.add(np.tile([0.0, 1.0, 3.0], 20))
    >>> above, below = process.evidence(0.5)
    >>> round(above, 1), below < 0, [round(end, 2) for end in process.ends(math.log(20))]
    (8.6, True, [0.82, 1.87])
    """

    def __init__(self, rule: Rule | None = None) -> None:
        self.rule, self.seen = rule or AnyTime(), ShapeSoFar()
        nothing = np.zeros(())
        self.shape = Shape(nothing, nothing, nothing, nothing, nothing)

    # ------------------------------------------------------------ outcomes

    def look(self, x: FloatArray) -> Look:
        """These outcomes, and what they would have it say; nothing is kept."""
        return Look(self.rule, x, *self.seen.after(x))

    def keep(self, look: Look, used: int) -> None:
        """The first of the outcomes that were looked at were seen."""
        if used:
            self.seen.keep(look.x[:used], look.sums)
            self.shape = look.shape.at(used - 1)

    def add(self, x: FloatArray) -> None:
        """More outcomes."""
        if len(x):
            self.keep(self.look(x), len(x))

    # ------------------------------------------------------------ what it says

    def evidence(self, R: float) -> tuple[float, float]:
        """(against V <= R, against V >= R), in nats; 0 while it is silent."""
        above, below = evidence_of(self.rule, self.shape, R)
        return float(above), float(below)

    def ends(self, level: float) -> tuple[float, float]:
        """The values that neither side refutes at this level; all while it is silent."""
        shape = self.shape
        if not speaks(self.rule, shape):
            return -math.inf, math.inf
        n, mean, sd, bend = float(shape.n), float(shape.mean), float(shape.sd), float(shape.bend)
        T = self.rule.needed(n, level)
        if math.isinf(T):
            return -math.inf, math.inf
        error = sd / math.sqrt(n)
        return mean - error * max(T, unhall(T, bend)), mean - error * min(-T, unhall(-T, bend))

    def silent(self, one: str = "episode", many: str = "episodes") -> str:
        """Why it is silent, in words; "" where it is not."""
        shape = self.shape
        n, seen = int(shape.n), plural(int(shape.n), one, many)
        if n == 0:
            return self.rule.waits(0).replace("of them", many)
        if waits := self.rule.waits(n):
            return f"{seen} so far, and {waits}"
        if not speaks(self.rule, shape) and shape.sd <= 0:
            return f"all {seen} returned {number(float(shape.mean))}, which says nothing of how much they vary"
        if shape.rarer < RAREST:
            often = f"{int(shape.rarer)} of {seen}"
            return f"there are two returns, the rarer one in {often}; a large-sample answer needs {RAREST} of them"
        if shape.n < (wanted := SKEWED * shape.skewness**2):
            about = f"about {math.ceil(wanted):,} {many}" if wanted < 1e9 else f"many more {many}"
            return (
                f"returns are so skewed (skewness {number(float(shape.skewness))} in {seen}) that a large-sample "
                f"answer waits for {about}"
            )
        return ""

    @property
    def is_constant(self) -> bool:
        """Whether all outcomes so far are equal."""
        return bool(self.shape.sd <= 0)


class Look(NamedTuple):
    """Outcomes that were looked at, before they are kept."""

    rule: Rule
    x: FloatArray
    shape: Shape
    sums: FloatArray

    def evidence(self, R: float) -> FloatArray:
        """[2, n] the evidence of both sides after each of them."""
        return evidence_of(self.rule, self.shape, R)


def speaks(rule: Rule, shape: Shape) -> BoolArray:
    """Where it is not silent."""
    told = (shape.sd > 0) & (shape.rarer >= RAREST) & (shape.n >= SKEWED * shape.skewness**2)
    return np.asarray(rule.speaks(shape.n) & told)


def evidence_of(rule: Rule, shape: Shape, R: float) -> FloatArray:
    """[2, n] the evidence against V <= R and against V >= R; 0 where it is silent."""
    told = speaks(rule, shape)
    if not told.any():
        return np.zeros((2, *told.shape))
    T = np.where(told, shape.standardised(R), 0.0)
    return np.where(told, rule.evidence(T, np.broadcast_to(shape.n, T.shape)), 0.0)


def hall(T: FloatArray, a: FloatArray) -> FloatArray:
    """Hall's transformation.

    >>> round(float(hall(np.float64(-2.0), np.float64(0.1))), 6)
    -1.576667
    """
    return np.asarray(T + a * T * T + a * a * T**3 / 3.0 + a / 2.0)


def unhall(H: float, a: float) -> float:
    """Its inverse.

    >>> round(unhall(-1.5766666666666667, 0.1), 9), round(unhall(2.0, 1e-9), 6)
    (-2.0, 2.0)
    """
    if abs(a) < 1e-7:
        return H - a * (H * H + 0.5)
    return (float(np.cbrt(1.0 + 3.0 * a * (H - a / 2.0))) - 1.0) / a
