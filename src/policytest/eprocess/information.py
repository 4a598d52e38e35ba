r"""Bets that aim at an answer by the end of a budget of samples, on outcomes that get less noisy on the way.

Outcomes Z_1, Z_2, ... have the mean V each; Z_j has the variance v_j, which is predicted before it and falls as values
are learned. Among their weighted sums  M = sum (Z_j - R)/v_j  tells V from R best. Its clock is the *information*
I = sum 1/v_j:  at V = R the variance of M is I. So the walk of `policytest.eprocess.budget` is followed with the share
of the information as its time. With I so far, n outcomes left in the budget, and v the variance of the next one,

    tau = I/(I + n/v),

and the fraction is the one that keeps delta times the capital at the chance of crossing: a step of the walk is a share
1/K of all information, so that M moves by  sqrt((I + n/v)/K)  where the walk moves by the standard deviation of a step.

*Large gaps.* A budget may be many times what an answer takes. Therefore the capital is shared out among `PARTS` of the
budget: each part aims at an answer by its own end, and afterwards at one by the end of the budget, with what is left.

*Larger budgets.* If there is no answer by the end, bets on one have lost nearly all. So the share `KEPT` of the capital
is not staked: with it a larger budget begins.

n, v and the skewness are predicted from the past. A poor prediction costs power; the capital is fair whatever it is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.compiled import budget
from policytest._base.compiled.small import TINY
from policytest._base.record import numbers_of
from policytest._base.text import plural
from policytest.eprocess.budget import LEAST_LEVEL, SURPLUS, Begun, begun_of, walk
from policytest.eprocess.capital import SIDES
from policytest.eprocess.strategies import NONE, FractionGrid

PARTS, SHARES = (1.0, 1 / 8, 1 / 64, 1 / 512), (0.85, 0.06, 0.05, 0.04)  # of the budget, and of the capital
KEPT = 0.05  # the share of the capital that is not staked
PLANS = ((0.5, 8.0),)  # how the level is spent: half of it evenly, the rest near the end
TRUSTED, FADE = 10.0, 0.7  # outcomes that the predicted variance counts for; what of the past is kept at a new one
LOOKS, EARLY_LOOKS = 200, 30  # fractions are chosen again after this share of the samples left, or of those so far
STEPS = 100  # of a walk
LEAST_VARIANCE = 1e-12  # in units of the room^2
TO_PARTS = FractionGrid(NONE, np.log(np.array(SHARES)), np.ones(len(SHARES)), reserved=0.0)
"""A fraction for each of `PARTS`, which `SampleAim` chooses."""


class Noise:
    """Of one side: how outcomes S compare with the variance that was predicted for each of them.

    The variance of the next one is the predicted v times the mean of S^2/v over the latest ones.
    """

    def __init__(self) -> None:
        self.information, self.expected = 0.0, 0.0  # the sum of 1/v so far; the variance of the next outcome
        self.count, self.squares = 0.0, 0.0  # of the latest outcomes: their number, and the sum of S^2/v
        self.all, self.cubes = 0.0, 0.0  # of all: their number, and the sum of (S^2/v)^(3/2)

    def expect(self, predicted: float) -> float:
        """The variance of the next outcomes."""
        self.expected = predicted * (TRUSTED + self.squares) / (TRUSTED + self.count)
        return self.expected

    @property
    def skewness(self) -> float:
        """Of an outcome, drawn towards 0."""
        return self.cubes / (self.all + budget.SKEW_PRIOR)

    def add(self, sums: FloatArray, predicted: float) -> None:
        """More outcomes."""
        v = self.expected or predicted
        self.information += len(sums) / v
        self.count, self.all = self.count + len(sums), self.all + len(sums)
        self.squares += float((sums * sums).sum()) / predicted
        self.cubes += float((sums**3).sum()) / v**1.5

    def fade(self) -> None:
        """What was seen of the variance counts less, since another prediction is made."""
        self.count, self.squares = FADE * self.count, FADE * self.squares

    def state(self) -> FloatArray:
        """[6] to go on from."""
        return np.array([self.information, self.expected, self.count, self.squares, self.all, self.cubes])

    def restore(self, kept: FloatArray) -> None:
        """Go on from what was kept."""
        self.information, self.expected, self.count, self.squares, self.all, self.cubes = map(float, kept)
        if (kept[:5] < 0).any():
            raise ValueError("the outcomes are not those of a run")


class Goal(NamedTuple):
    """What a part of the capital aims at."""

    end: float  # samples
    level: float  # the chance of an answer, if the mean is the threshold
    before: float  # the information when it was set
    kept: float  # what of the part is not staked


class SampleAim:
    """What both sides of a run aim at: an answer within a budget of samples that was fixed beforehand.

    A larger budget, or another level, is a new aim, from the capital that is left. Outcomes are in units of the room of
    the first one.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.begun = budget, Begun(budget)
        self.unit, self.look_at = 0.0, 0.0  # of outcomes; the samples from which on fractions are chosen again
        self.noise = {sign: Noise() for sign in SIDES}
        self.goals = {sign: [Goal(0.0, 0.0, 0.0, 0.0)] * len(PARTS) for sign in SIDES}

    @property
    def words(self) -> str:
        """20,000 transitions."""
        return plural(self.budget, "transition")

    def left(self, spent: int) -> int:
        """The samples that are left."""
        return self.budget - spent

    def extend(self, budget: int) -> None:
        """Allow more; a new aim is set when the run begins again."""
        self.budget = budget

    def begin(self, required: float, spent: int, capitals: Sequence[FloatArray]) -> None:
        """Set the aim, or go on with the one that was set. ``capitals`` [parts] are those of both sides."""
        if self.begun[:2] == (self.budget, required):
            return
        above, below = (math.log(max(float(capital.sum()), TINY)) for capital in capitals)
        self.begun, self.look_at = Begun(self.budget, required, spent, above, below), 0.0
        ends = [round(spent + share * self.left(spent)) for share in PARTS]
        for sign, capital in zip(SIDES, capitals, strict=True):
            self.goals[sign] = [self._goal(sign, end, part) for end, part in zip(ends, capital, strict=True)]

    def _goal(self, sign: float, end: int, part: float) -> Goal:
        """From now to this end, with this part of the capital."""
        return Goal(float(end), self._delta * (1.0 - KEPT) * part, self.noise[sign].information, KEPT * part)

    @property
    def _delta(self) -> float:
        """The capital 1/delta is an answer."""
        return (1.0 - SURPLUS) * math.exp(-self.begun.required)

    def is_due(self, spent: int, is_fitted: bool) -> bool:
        """Whether fractions are to be chosen now; ``is_fitted``: there is another prediction of the variance."""
        if not is_fitted and spent < self.look_at:
            return False
        self.look_at = spent + max(min(self.left(spent) / LOOKS, spent / EARLY_LOOKS), 1.0)
        for noise in self.noise.values() if is_fitted else ():
            noise.fade()
        return True

    def add(self, sign: float, sums: FloatArray, v: float, room: float) -> None:
        """More outcomes of a side, less their expected mean; v is their predicted variance in units of the room^2."""
        self.noise[sign].add(sums / self._unit(room), self._variance(v, room))

    def _unit(self, room: float) -> float:
        self.unit = self.unit or room
        return self.unit

    def _variance(self, v: float, room: float) -> float:
        return max(v, LEAST_VARIANCE) * (room / self._unit(room)) ** 2

    def fractions(self, sign: float, capital: FloatArray, v: float, room: float, spent: int, cost: float) -> FloatArray:
        """[parts] of the next outcome of a side: it can lose the room, and has the variance v in units of the room^2.

        ``cost`` are the samples that it takes, ``spent`` those so far.
        """
        found, goals, noise = np.zeros(len(PARTS)), self.goals[sign], self.noise[sign]
        if not 0.0 < room < math.inf:
            return found
        variance = noise.expect(self._variance(v, room))
        for i, part in enumerate(capital):
            if goals[i].end <= spent < self.budget:  # its own end has come
                goals[i] = self._goal(sign, self.budget, part)
            goal = goals[i]
            x = self._delta * (part - goal.kept) / budget.AHEAD
            if spent >= goal.end or goal.level < LEAST_LEVEL or not 0.0 < x < 1.0:
                continue
            done = noise.information - goal.before
            total = done + max((goal.end - spent) / cost, 1.0) / variance
            outcomes = total * variance / STEPS  # like the next one, in a step of the walk
            r = budget.chance_for(noise.skewness / math.sqrt(outcomes))
            _, first, chance = walk((1.0 - r, r, 0.0), STEPS, float(goal.level), PLANS)
            slope = budget.relative_slope(chance, first, min(int(STEPS * done / total), STEPS - 1), x)
            step = math.sqrt(outcomes * variance / (r * (1.0 - r)))
            found[i] = slope * (room / self.unit) / step * (1.0 - goal.kept / part)
        return np.clip(found, 0.0, budget.LARGEST_FRACTION)

    def state(self) -> Arrays:
        """What was aimed at, and the outcomes so far."""
        return {
            "begun": np.array(self.begun, dtype=np.float64),
            "aimed": np.array([self.unit, self.look_at]),
            "noise": np.array([one.state() for one in self.noise.values()]),
            "goals": np.array(list(self.goals.values())),
        }

    def restore(self, state: Arrays) -> None:
        """Go on with that."""
        self.begun, (self.unit, self.look_at) = begun_of(state), map(float, numbers_of(state, "aimed", 2))
        noise, goals = numbers_of(state, "noise", 2, 6), numbers_of(state, "goals", 2, len(PARTS), len(Goal._fields))
        if (goals < 0).any() or min(self.unit, self.look_at) < 0:
            raise ValueError("what was aimed at is not that of a run")
        for sign, seen, rows in zip(SIDES, noise, goals, strict=True):
            self.noise[sign].restore(seen)
            self.goals[sign] = [Goal(*map(float, row)) for row in rows]
