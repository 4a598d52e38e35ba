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

n, v and the skewness are predicted from the past. A poor prediction costs power; the capital is fair whatever it is.
"""

from __future__ import annotations

import math

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.compiled import budget as kernels
from policytest._base.record import numbers_of
from policytest.eprocess.budget import LEAST_LEVEL, SURPLUS, Begun, begun_of, walk
from policytest.eprocess.strategies import NONE, FractionGrid

PARTS, SHARES = (1.0, 1 / 16, 1 / 256), (0.9, 0.06, 0.04)  # of the budget, and of the capital
EARLY = 0.5  # the share of the level that is spent evenly
TRUSTED, FADE = 10.0, 0.7  # outcomes that the predicted variance counts for; what of the past is kept at a new one
TO_PARTS = FractionGrid(NONE, np.log(np.array(SHARES)), np.ones(len(SHARES)), reserved=0.0)
"""A fraction for each of `PARTS`, which `SampleAim` chooses."""


class Noise:
    """Of one side: how outcomes S compare with the variance that was predicted for each of them.

    The variance of the next one is the predicted v times the mean of S^2/v over the latest ones.
    """

    def __init__(self) -> None:
        self.kept = np.zeros(5)  # information; of the latest, their number and sum of S^2/v; of all, the number and cubes

    def of(self, predicted: float) -> float:
        """The variance to expect."""
        return predicted * float((TRUSTED + self.kept[2]) / (TRUSTED + self.kept[1]))

    @property
    def information(self) -> float:
        """The sum of 1/v so far."""
        return float(self.kept[0])

    @property
    def skewness(self) -> float:
        """Of an outcome, drawn towards 0."""
        return float(self.kept[4] / (self.kept[3] + kernels.SKEW_PRIOR))

    def add(self, sums: FloatArray, predicted: float) -> None:
        """More outcomes."""
        v, z = self.of(predicted), sums / math.sqrt(predicted)
        self.kept += len(sums) / v, len(sums), z @ z, len(sums), float((z**3).sum()) * (predicted / v) ** 1.5

    def fade(self) -> None:
        """What was seen of the variance counts less, since another prediction is made."""
        self.kept[1:3] *= FADE


class SampleAim:
    """What both sides of a run aim at: an answer within a budget of samples that was fixed beforehand.

    A larger budget, or another level, is a new aim, from the capital that is left.
    """

    def __init__(self, budget: int) -> None:
        self.budget, self.begun = budget, Begun(0, 0.0, 0, 0.0, 0.0)
        self.noise = {1.0: Noise(), -1.0: Noise()}
        self.goals = {sign: np.zeros((len(PARTS), 3)) for sign in self.noise}

    def begin(self, required: float, spent: int, capitals: dict[float, FloatArray]) -> None:
        """Set the aim, or go on with the one that was set. ``capitals`` [parts] are those of each side."""
        if self.begun[:2] == (self.budget, required):
            return
        self.begun = Begun(self.budget, required, spent, *(math.log(c.sum()) for c in capitals.values()))
        for sign, capital in capitals.items():
            ends = spent + np.array(PARTS) * (self.budget - spent)
            self.goals[sign] = np.column_stack([ends, self.delta * capital, np.full(len(ends), self._done(sign))])

    @property
    def delta(self) -> float:
        """The capital 1/delta is an answer."""
        return (1.0 - SURPLUS) * math.exp(-self.begun.required)

    def _done(self, sign: float) -> float:
        return self.noise[sign].information

    def fractions(
        self, sign: float, capital: FloatArray, predicted: float, room: float, spent: int, cost: float
    ) -> FloatArray:
        """[parts] of the next outcome of a side, which can lose its room.

        ``predicted`` is its variance, ``cost`` the samples that it takes, ``spent`` those so far.
        """
        found, goals, noise = np.zeros(len(PARTS)), self.goals[sign], self.noise[sign]
        v = noise.of(predicted)
        for i, (part, (end, _, _)) in enumerate(zip(capital, goals, strict=True)):
            if spent >= end and end < self.budget:  # its own end has come
                goals[i] = self.budget, self.delta * part, noise.information
            end, level, before = goals[i]
            x, n = self.delta * part / kernels.AHEAD, max((end - spent) / cost, 1.0)
            if spent >= end or level < LEAST_LEVEL or not 0.0 < x < 1.0:
                continue
            done = noise.information - before
            total = done + n / v
            steps = total * v / kernels.STEPS  # outcomes like the next one, in a step of the walk
            r = kernels.chance_for(noise.skewness / math.sqrt(steps))
            law, first, chance = walk((1.0 - r, r, 0.0), kernels.STEPS, level, EARLY)
            unit = math.sqrt(steps * v / (r * (1.0 - r)))
            t = min(int(kernels.STEPS * done / total), kernels.STEPS - 1)
            found[i] = kernels.relative_slope(chance, first, t, x) * room / unit
        return np.clip(found, 0.0, kernels.LARGEST_FRACTION)

    def state(self) -> Arrays:
        """What was aimed at, and the outcomes so far."""
        return {
            "begun": np.array(self.begun, dtype=np.float64),
            "noise": np.array([one.kept for one in self.noise.values()]),
            "goals": np.array(list(self.goals.values())),
        }

    def restore(self, state: Arrays) -> None:
        """Go on with that."""
        self.begun = begun_of(state)
        noise, goals = numbers_of(state, "noise", 2, 5), np.array(state["goals"], dtype=np.float64)
        if goals.shape != (2, len(PARTS), 3) or not (np.isfinite(goals).all() and (goals >= 0).all()):
            raise ValueError("what was aimed at is not that of a run")
        if not (noise[:, :4] >= 0).all():
            raise ValueError("the outcomes are not those of a run")
        for one, kept in zip(self.noise.values(), noise, strict=True):
            one.kept = kept
        self.goals = dict(zip(self.noise, goals, strict=True))
