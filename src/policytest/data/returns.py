"""What was observed of episodes: their returns and their lengths."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, IntArray

MOST_BINS = 30
EQUAL = 1e-12  # relative to the largest: a difference that is rounding


class Histogram(NamedTuple):
    """How many episodes have a return between two edges, one of which follows the other."""

    edges: FloatArray
    episodes: IntArray


class Tails(NamedTuple):
    """How far returns are from normal ones, whose skewness is 0 and whose kurtosis is 3.

    ``largest_share``: of the return farthest from the mean, in the sum of the squared distances.
    """

    skewness: float
    kurtosis: float
    largest_share: float


@dataclass(frozen=True, eq=False)
class Returns:
    """Where `Counts` has transitions of a table: an unbiased estimate of the value by each episode, and its steps.

    Of two agents each is the difference of a pair, and the steps are those of both.
    ``contradictions``: how the data contradict what is said about them; ``outside``: which return lay outside its
    range; ``doubts``: what independent episodes hardly ever do, and these did.
    ``selected`` and ``other_rewards`` are as in `Counts`; ``visits`` is empty, since there are no states.
    """

    returns: FloatArray
    steps: IntArray
    selected: bool = False
    other_rewards: bool = False
    contradictions: tuple[str, ...] = ()
    outside: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no guarantee holds, in words."""
        return (*self.contradictions, *self.outside)

    @property
    def refutes_model(self) -> bool:
        """Whether the data contradict what is said about them, such as their propensities."""
        return bool(self.contradictions)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Returns):
            return NotImplemented
        return np.array_equal(self.returns, other.returns) and np.array_equal(self.steps, other.steps)

    __hash__ = None  # type: ignore[assignment]

    @property
    def episodes(self) -> int:
        """How many episodes were seen."""
        return len(self.returns)

    @property
    def total(self) -> int:
        """How many transitions they have."""
        return int(self.steps.sum())

    @property
    def histogram(self) -> Histogram | None:
        """The returns in at most 30 bins; None without episodes."""
        if not self.episodes:
            return None
        bins: int | FloatArray = min(MOST_BINS, max(5, math.isqrt(self.episodes)))
        if np.array_equal(self.returns, np.round(self.returns)):  # whole numbers: the same number of them in each bin
            low, high = float(self.returns.min()), float(self.returns.max())
            width = math.ceil((high - low + 1) / MOST_BINS)
            bins = np.arange(low - 0.5, high + width, width)
        episodes, edges = np.histogram(self.returns, bins=bins)
        return Histogram(edges, episodes)

    @property
    def tails(self) -> Tails | None:
        """How heavy the tails of returns are; None while all are equal.

        >>> Returns(np.array([0.0, 0.0, 0.0, 4.0]), np.ones(4, dtype=np.int64)).tails.largest_share
        0.75
        """
        if not self.episodes or np.ptp(self.returns) <= EQUAL * np.abs(self.returns).max():
            return None
        off = self.returns - self.returns.mean()
        off = off / np.abs(off).max()  # so that no power overflows
        second = float(np.mean(off**2))
        return Tails(
            float(np.mean(off**3)) / second**1.5, float(np.mean(off**4)) / second**2, 1.0 / float(np.sum(off**2))
        )

    @property
    def visits(self) -> IntArray:
        """No state was counted."""
        return np.zeros((0, 0), dtype=np.int64)
