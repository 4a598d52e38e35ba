"""Bets on a whole log of recorded episodes at once (`policytest.payoffs.weighted_returns`)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.randomness import Seed
from policytest.data.ranges import ROUNDING
from policytest.data.returns import Returns
from policytest.eprocess.capital import SIDES, Bet, TwoSided, with_rounding_margin
from policytest.eprocess.strategies import ENDS_OF_LOGS, LARGEST_FRACTION, ON_LOGS, Moments
from policytest.methods.return_run import ReturnsRun
from policytest.methods.run import Run, Settings
from policytest.payoffs.independence import drift
from policytest.payoffs.known_range import only_answer
from policytest.payoffs.outcomes import Outcomes
from policytest.payoffs.weighted_returns import FEWEST, RecordedEpisodes, flaws_of, regressed

FIRST_BLOCK, GROWTH, MOST_AT_ONCE = 8, 0.2, 2**18  # episodes of a block: at first, of those so far, and at most


class RecordedRun(Run):
    """A test on recorded episodes: all of them are looked at, in blocks; the answer is given at one of them.

    The evidence of a side is the largest that its capital ever reached, which exp(-evidence) is a p-value of. With
    ``for_interval`` the bets serve the ends of an interval, not a threshold.
    """

    source: RecordedEpisodes
    reads_all = True

    def __init__(self, method: Settings, log: LoggedEpisodes, threshold: float, for_interval: bool = False) -> None:
        self.method, self.task, self.threshold, self.source = method, log, threshold, RecordedEpisodes(log)
        self.bets = TwoSided(ON_LOGS, ENDS_OF_LOGS, ROUNDING * (1.0 + abs(threshold)))
        self.moments = Moments(), Moments()  # of what is won on each side
        self.for_interval = for_interval
        self.best, self.seen = [0.0, 0.0], 0
        self.estimates: list[FloatArray] = []

    # ------------------------------------------------------------ the loop

    def step(self, required: float, most: int) -> None:
        """All episodes; the first at which the evidence suffices is the answer."""
        while not self.source.exhausted:
            self.source.prepare(None if self.for_interval else self.threshold)
            plans = self._plans()
            taken = self.source.take(min(max(int(GROWTH * self.seen), FIRST_BLOCK), MOST_AT_ONCE))
            crossed = [self._settled(side, plans[side], taken, required) for side in range(2)]
            first = min(crossed)
            if self.answer is None and first < len(taken.steps):
                self.answer = "above" if crossed[0] == first else "below"
                self.answered_at = self.samples + int(taken.steps[: first + 1].sum())
            self.estimates.append(taken.returns)
            self.seen += len(taken.steps)
            self.samples += int(taken.steps.sum())
        self.exhausted = True

    def _plans(self) -> list[Bet]:
        """The bets of both sides for the next block, from the episodes so far."""
        plans = []
        for sign, side, seen in zip(SIDES, self.source.sides, self.moments, strict=True):
            room, plain = (sign * (self.threshold - bound) for bound in (side.bound, side.bounds[0]))
            known = 0 < plain < math.inf
            v, lead = (seen.variance(plain), seen.mean(plain)) if known else (None, 0.0)
            fractions = ON_LOGS.fractions(v, lead, seen.count)
            plans.append(Bet(room, _as_large(fractions, room, plain), _as_large(ENDS_OF_LOGS.steady, *side.rooms)))
        return plans

    def _settled(self, side: int, plan: Bet, taken: Outcomes, required: float) -> int:
        """Settle a block on one side; the first episode at which its capital suffices, or their number."""
        won, process = SIDES[side] * ((taken.above, taken.below)[side] - self.threshold), self.bets[SIDES[side]]
        if self.for_interval:
            if 0 < plan.room < math.inf:
                process.keep(plan, won)
            return len(won)
        best, crossed = process.settle(plan, won, with_rounding_margin(required))
        self.best[side] = max(self.best[side], best)
        if 0 < plan.room < math.inf:
            self.moments[side].add(won)
        return crossed

    # ------------------------------------------------------------ what it can say

    @property
    def episodes(self) -> int:
        """How many episodes were looked at."""
        return self.seen

    def evidence(self) -> tuple[float, float]:
        """The largest so far of each side, in nats."""
        return self.best[0], self.best[1]

    @property
    def estimate(self) -> float:
        """By the estimates of all episodes, regressed on their weights; within the range of returns."""
        if not self.estimates:
            return math.nan
        Z, (low, high) = np.concatenate(self.estimates), self.task.bounds
        value = float(Z.mean()) if len(Z) < FEWEST else regressed(Z, self.task.outcomes.weights[: len(Z)])[0]
        return float(min(max(value, low), high))

    def counts(self) -> Returns:
        """What was observed."""
        found = np.concatenate([np.zeros(0), *self.estimates])
        return Returns(
            found,
            self.task.steps[: self.seen],
            contradictions=flaws_of(self.task),
            outside=self.task.outside,
            doubts=self._drift(found),
        )

    def _drift(self, returns: FloatArray) -> tuple[str, ...]:
        """Whether the mean seems to change; the weights of weighted ones may."""
        return () if self.task.weighted else drift(returns)

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        return self.bets.not_refuted(self.task.bounds, self.threshold, level, as_staked)

    def only_answer(self) -> str:
        """Whether a side could not be tested."""
        return only_answer(self.task.bounds, self.threshold)


def _as_large(fractions: FloatArray, room: float, plain: float) -> FloatArray:
    """Fractions of a room that stake the same as these fractions of the plain one, as far as it goes."""
    return fractions if room == plain else np.asarray(np.minimum(fractions * (room / plain), LARGEST_FRACTION))


@dataclass(frozen=True)
class EpisodeLogBetting:
    """Bets on recorded episodes: the method of `LoggedEpisodes`. Its answers are certified."""

    def start(self, task: object, sim: object, threshold: float, rng: Seed) -> ReturnsRun:
        """Not on a simulator."""
        raise InputError("recorded episodes are assessed, not drawn; use assess(log, threshold)")

    def replay(
        self, task: LoggedEpisodes, threshold: float, source: object = None, for_interval: bool = False
    ) -> RecordedRun:
        """The test at work on a log."""
        arrays.instance("log", task, LoggedEpisodes)
        return RecordedRun(self, task, threshold, for_interval)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on recorded episodes"
