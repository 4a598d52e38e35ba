r"""Bets that aim at an answer by the end of a budget.

With outcomes that take two values every test is a bet: if a test rejects "V <= R" with probability at most delta, its
capital after t outcomes is  W_t = P_R(the test rejects | what was seen)/delta.  So choose a test with the power that is
wanted at the end of the budget, and stake what keeps W at this ratio. The test here crosses a boundary which spends
delta over time as  s(tau) = e tau + (1 - e) tau^l  by the share tau of the budget: some of it early, so that large gaps
are answered early, the rest near the end, for power there.

- *Two values*: a walk that goes up with probability r = (R - low)/(high - low), one step an outcome. Of several plans
  (e, l) the first is taken that has nearly the power of a look at the end: a lattice may have no room for early looks.
- *Differences of two values*, D = A - B with V = E[A] - E[B] and R = 0: a walk that goes up or down with probability
  q/2 each, where q is the share of pairs that differ, fitted to the past, from PAIRS pairs on of which the share
  DIFFERENT did. No more is staked than an answer needs: (1 - delta W)/(delta W).
- *Any other law*: the capital moves as that of a walk of two values whose sum is as skewed, a step for each outcome in
  units of the standard deviation. Variance and skewness are those if the mean were R, fitted to the past:
  v = e2 - m k3/k2, as in an exponential family through the law that was seen. All is staked where the walk asks for
  more than there is: where f is the best bet, it makes the capital grow by f^2 v/2 an outcome, too little with f = 1.

All fractions come from the past: the capital is fair whatever was fitted, and however few outcomes there will be.

*Pairs may depend on each other.* E[1 + f D | past] = 1 + f E[D | past] <= 1 if V <= 0 for every pair given the past,
whatever the joint law of A and B: agents may share their luck, and the share that differs may change over time, by the
capital even. No other bet on a pair is fair for all of these laws and ever better. For let it multiply the capital by
1 + a, 1 + b, 1 + c, where D is 1, 0, -1, or by several such b for the ties. D = 0 for sure gives each b <= 0; D = 1 or
-1 with probability 1/2 each gives c <= -a; and D = -1 for sure gives c <= 0. So it is at most 1 + max(a, 0) D. What
is known of independent agents alone, such as the two shares of successes, can only choose a.
"""

from __future__ import annotations

import math
import warnings
from functools import lru_cache
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.compiled import budget
from policytest._base.compiled.small import MOST_WON, TINY
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.record import Record
from policytest._base.text import plural

# Plans (e, l) of spending delta, in order of preference. All are compared with the last one, nearly a look at the end.
PLANS = (0.4, 8.0), (0.5, 8.0), (0.3, 8.0), (0.4, 16.0), (0.2, 16.0), (0.1, 32.0), (0.0, 64.0)
PLANS_OF_PAIRS = (0.8, 8.0), (0.85, 8.0), (0.75, 8.0), (0.7, 8.0)
PLANS_OF_OTHERS = (0.4, 8.0), (0.45, 8.0), (0.35, 8.0)
LESS, MOST_TILTED = 0.015, 20.0  # power, than with the last one; the logarithm of the odds for which it is
MOST_EXACT = 1000  # outcomes, up to which each is a step of the walk
LARGEST_LOG = 700.0  # of a capital
SURPLUS = 1e-9  # of the capital, so that rounding does not hide an answer
CUT = 2.0  # in units of what a full bet can lose: outcomes without an upper bound count as this at most, in moments
LEAST_LEVEL = 1e-12  # of a walk: nothing is staked where there is hardly any capital left


class Walk(NamedTuple):
    """A walk towards its boundary: the chances of its steps, the boundary, and the chance of crossing."""

    law: FloatArray
    first: IntArray
    chance: FloatArray


@lru_cache(maxsize=64)
def walk(law: tuple[float, float, float], steps: int, level: float, plans: tuple[tuple[float, float], ...]) -> Walk:
    """The walk with these chances of a step by 0, 1 and 2, which crosses with at most the probability ``level``.

    On a lattice the level cannot always be used up. So the first plan is taken whose power is hardly less than that of
    the last one, if V is where a look at the end would see it with probability 0.8.
    """
    chances, places, normal = np.array(law), np.arange(3.0), NormalDist()
    spread = math.sqrt(max(chances @ places**2 - (chances @ places) ** 2, TINY))
    tilt = min((normal.inv_cdf(0.8) - normal.inv_cdf(level)) / (spread * math.sqrt(steps)), MOST_TILTED)
    likely = chances * np.exp(tilt * places)
    likely /= likely.sum()
    found = (budget.boundary(chances, steps, level, plan)[0] for plan in (plans[-1], *plans))
    least = budget.power(likely, next(found)) - LESS
    first = next(boundary for boundary in found if budget.power(likely, boundary) >= least)
    return Walk(chances, first, budget.chances(chances, first))


NO_WALK = -1, np.zeros(3), np.zeros(1, dtype=np.int64), np.zeros((1, 1))


class BudgetTarget:
    """The fractions of one side, aimed at an answer by the end of the budget.

    Outcomes are in units of what a full bet can lose: the worst is -1, and 0 is the threshold.

    Parameters
    ----------
    delta
        The capital 1/delta is an answer.
    total
        The budget from now on.
    best
        The largest outcome; infinite if it has no bound. Moments are then those of outcomes cut at `CUT`.
    pairs
        Whether outcomes are differences of two.
    capital
        What there is now, in units of the first capital.
    """

    def __init__(
        self,
        delta: float,
        total: int,
        best: float,
        pairs: bool = False,
        capital: float = 1.0,
    ) -> None:
        pairs, self.bounded = pairs and abs(best - 1.0) <= budget.SAME, best < math.inf
        best = best if self.bounded else CUT
        self.target = budget.Target((1.0 - SURPLUS) * delta, min(float(best), MOST_WON), int(total), pairs)
        self.level = self.target.delta * capital  # of the walk: the chance of an answer, if the mean is the threshold
        self.seen = np.zeros(6)
        self.seen[5] = (
            total <= MOST_EXACT and self.bounded
        )  # as long as outcomes are at the ends of their range, or ties of pairs

    @property
    def stakes(self) -> bool:
        """Whether there is enough capital to stake any."""
        return self.level >= LEAST_LEVEL

    def add(self, x: FloatArray) -> None:
        """More outcomes."""
        budget.add(self.seen, x, self.target)

    def fraction(self, capital: float, spent: int) -> float:
        """The fraction of the next outcome, with this capital and so much of the budget spent."""
        if spent >= self.target.total or not self.stakes:
            return 0.0
        asked = self.seen, self.target, self.target.delta * capital, spent
        wanted, _ = budget.fraction(*asked, *NO_WALK)
        return float(budget.fraction(*asked, wanted, *self._walk(wanted))[1])

    def along(self, x: FloatArray) -> FloatArray:
        """[n + 1] the capital before each of these outcomes, the first ones of the budget, and after the last."""
        path, at, walk = np.ones(len(x) + 1), 0, NO_WALK
        while at < len(x) and self.stakes:
            at, wanted = budget.capital_along(self.seen, self.target, path, at, x, *walk)
            walk = wanted, *self._walk(wanted)
        return path

    def _walk(self, wanted: int) -> Walk:
        """The walk with this number: of outcomes at the ends of the range, with ties of pairs, or of any others."""
        kind, place = divmod(wanted, budget.GRID + 1)
        chance = 1.0 / (1.0 + math.exp(budget.LARGEST_LOGIT * (1.0 - 2.0 * place / budget.GRID)))
        if kind == 0:
            r = 1.0 / (1.0 + self.target.best)
            return walk((1.0 - r, r, 0.0), self.target.total, self.level, PLANS)
        plans = PLANS_OF_PAIRS if self.target.pairs else PLANS_OF_OTHERS
        if kind == 1:
            return walk((0.5 * chance, 1.0 - chance, 0.5 * chance), self.target.total, self.level, plans)
        return walk((1.0 - chance, chance, 0.0), budget.STEPS, self.level, plans)

    def state(self) -> FloatArray:
        """[6] the outcomes so far."""
        return self.seen.copy()

    def restore(self, kept: FloatArray) -> None:
        """Go on from these."""
        self.seen = np.array([*kept[:5], self.seen[5] and kept[5]], dtype=np.float64)


def aimed_capital(x: FloatArray, best: float, delta: float, total: int, pairs: bool = False) -> FloatArray:
    """[n] the logarithm of the capital after each outcome, staked as a `BudgetTarget` stakes it from the capital 1 on.

    Outcomes are in units of what a full bet can lose: the worst is -1, the best ``best``, and 0 is the threshold.
    """
    along = BudgetTarget(delta, total, best, pairs).along(np.asarray(x, dtype=np.float64))[1:]
    return np.asarray(np.log(np.maximum(along, TINY)), dtype=np.float64)


class Begun(NamedTuple):
    """Where a run stood when its target was set; before that nothing is required."""

    budget: int
    required: float = 0.0
    spent: int = 0
    above: float = 0.0  # the evidence
    below: float = 0.0


def begun_of(state: Arrays) -> Begun:
    """Where a kept run stood."""
    begun = np.array(state["begun"], dtype=np.float64)
    if begun.shape != (5,) or np.isnan(begun).any() or not 0 <= begun[2] <= begun[0]:
        raise ValueError("the budget is not that of a run")
    return Begun(int(begun[0]), float(begun[1]), int(begun[2]), float(begun[3]), float(begun[4]))


class Aim:
    """What both sides of a run aim at: an answer within a budget that was fixed beforehand.

    A larger budget, or another level, is a new target, from the capital that is left.
    """

    def __init__(
        self,
        budget: int,
        best: tuple[float, float],
        pairs: bool = False,
        tested: tuple[bool, bool] = (True, True),
        words: tuple[str, str] | None = None,
    ) -> None:
        self.budget, self.tested = budget, tested
        self.begun = Begun(budget)  # that is kept, even before the run has begun
        self.tells = True  # which answer cannot come
        self.unit = words or (("pair of episodes", "pairs of episodes") if pairs else ("episode", "episodes"))
        self.targets = [BudgetTarget(1.0, budget, end, pairs) for end in best]

    @property
    def words(self) -> str:
        """50 episodes."""
        return plural(self.budget, *self.unit)

    def extend(self, budget: int) -> None:
        """The budget is another one from now on; nobody is warned."""
        self.budget, self.tells = budget, False

    def begin(self, required: float, spent: int, evidence: tuple[float, float]) -> bool:
        """Set the target, or go on with the one that was set; whether it is a new one."""
        is_new = self.begun[:2] != (self.budget, required)
        if is_new:
            self.begun = Begun(self.budget, required, spent, *evidence)
            if self.tells:
                self._warn()
        delta, total = math.exp(-required), self.budget - self.begun.spent
        for index, (before, log_capital) in enumerate(zip(self.targets, self.begun[-2:], strict=True)):
            capital = math.exp(min(log_capital, required))
            best = before.target.best if before.bounded else math.inf
            self.targets[index] = BudgetTarget(delta, total, best, before.target.pairs, capital)
            self.targets[index].restore(before.state())
        return is_new

    def _warn(self) -> None:
        """Tell which answer cannot come: n outcomes make the capital at most (1 + best)^n times as large."""
        left = self.budget - self.begun.spent
        sides = zip(("above", "below"), self.targets, self.begun[-2:], self.tested, strict=True)
        for side, target, log_capital, tested in sides:
            least = (self.begun.required - log_capital) / max(math.log1p(target.target.best), TINY)
            if least > left and tested and target.bounded:
                far = "would take too many; move the threshold away from the end of the range"
                how_many = f"takes {math.ceil(least):,}; pass a larger budget" if least < 1e12 else far
                warnings.warn(
                    f'budget: "{side}" cannot be answered within {plural(left, *self.unit)}, even if all of them are '
                    f"the best possible, which {how_many}",
                    AssumptionWarning,
                    stacklevel=9,
                )

    def add(self, sign: float, x: FloatArray) -> None:
        """More outcomes of a side, in units of what a full bet can lose."""
        self.targets[0 if sign > 0 else 1].add(x)

    def fractions(self, evidence: tuple[float, float], spent: int) -> list[FloatArray]:
        """[1] for each side: the fraction of its next outcome."""
        done = spent - self.begun.spent
        return [
            np.array([target.fraction(math.exp(min(log_capital, LARGEST_LOG)), done)])
            for target, log_capital in zip(self.targets, evidence, strict=True)
        ]

    def state(self) -> Arrays:
        """What was aimed at, and the outcomes so far."""
        seen = np.array([target.state() for target in self.targets])
        return {"begun": np.array(self.begun, dtype=np.float64), "seen": seen}

    def restore(self, state: Arrays) -> None:
        """Go on with that."""
        seen, self.begun = np.array(state["seen"], dtype=np.float64), begun_of(state)
        if seen.shape != (2, 6) or not np.isfinite(seen).all() or not (seen[:, 0] >= 0).all():
            raise ValueError("what was aimed at is not that of a run")
        for target, row in zip(self.targets, seen, strict=True):
            target.restore(row)


def refuse_other_budgets(budget: int, state: Record) -> None:
    """Refuse a kept state whose budget is larger than that of this run, and one without a budget for a run with one."""
    kept = int(np.ravel(state["begun"])[0]) if "begun" in state else 0
    if kept > budget:
        raise InputError(f"resume: that run had a budget of {kept:,}; pass budget={kept}, or a larger one")
    if budget and not kept:
        raise InputError("resume: that run had no budget; leave out budget, or start a new run")
