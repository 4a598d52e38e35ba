"""The smallest budget that answers with a wanted probability, if the guess is right: by simulation of the same bets.

Tests with different budgets are simulated with the same random numbers. The budget is doubled until the share of tests
that give the right answer reaches the wanted one, and then halved in, to a twentieth of it. It is the smallest of those
that were tried, and as exact as the number of tests allows: the share has the standard error of that many tosses.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy import special

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest.eprocess.aimed_interval import Goal, full_bets
from policytest.eprocess.budget import aimed_capital
from policytest.results.plan import Powered

RUNS = 400  # tests with returns that are drawn from a pilot
CLOSE = 0.05  # of the budget, to which it is found


class Wanted(NamedTuple):
    """The probability of an answer that is wanted, and the number of tests that are simulated with each budget."""

    power: float
    runs: int

    @classmethod
    def checked(cls, power: object, runs: int) -> Wanted:
        """From what the user passed."""
        found = arrays.real_number("power", power)
        if not 0.0 < found < 1.0:
            raise InputError(f"power is {found:g}; it is a probability strictly between 0 and 1, such as 0.8")
        return cls(found, runs)

    def smallest(self, share: Callable[[int], float], start: int, limit: int, unit: str) -> Powered:
        """The smallest budget tried whose share of answers suffices; none where the largest one does not."""
        low, high = 0, min(max(start, 1), limit)
        while (found := share(high)) < self.power:
            if high >= limit:
                return Powered(None, self.power, found, self._error(found), self.runs, unit, limit)
            low, high = high, min(2 * high, limit)
        while high - low > max(CLOSE * high, 1.0):
            middle = (low + high) // 2
            at_middle = share(middle)
            if at_middle >= self.power:
                high, found = middle, at_middle
            else:
                low = middle
        return Powered(high, self.power, found, self._error(found), self.runs, unit, limit)

    def _error(self, share: float) -> float:
        """The standard error of a share of the tests."""
        return math.sqrt(share * (1.0 - share) / self.runs)


def power_of_returns(
    wanted: Wanted,
    goal: Goal,
    returns: FloatArray,
    threshold: float,
    middle: float,
    rng: np.random.Generator,
    pairs: bool,
) -> Powered:
    """The budget of tests on outcomes drawn from these, whose value is ``middle``; ``goal.budget`` is the largest."""
    seeds, level, sides = rng.integers(2**62, size=wanted.runs), goal.level, [(goal, 1.0), (goal.mirrored(), -1.0)]
    right, wrong = sides if middle > threshold else sides[::-1]

    def reached(side: tuple[Goal, float], drawn: FloatArray, budget: int) -> int:
        """The outcome at which a side has its answer; their number if it has none."""
        about, sign = side
        x, best = full_bets(about, sign * drawn, sign * threshold, sign * threshold)
        enough = aimed_capital(x, best, math.exp(-level), budget, pairs) >= level
        return int(enough.argmax()) if enough.any() else len(x)

    def share(budget: int) -> float:
        answered = 0
        for seed in seeds:
            drawn = returns[np.random.default_rng(seed).integers(len(returns), size=budget)]
            first = reached(right, drawn, budget)
            answered += first < budget and reached(wrong, drawn[:first], budget) == first
        return answered / wanted.runs

    z = special.ndtri(wanted.power) + special.ndtri(1.0 - math.exp(-level))
    start = (max(z, 0.1) * float(np.std(returns)) / max(abs(middle - threshold), 1e-300)) ** 2
    unit = "pairs of episodes" if pairs else "episodes"
    return wanted.smallest(share, math.ceil(min(start, goal.budget)), goal.budget, unit)
