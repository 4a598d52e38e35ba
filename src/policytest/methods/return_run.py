r"""Bets on episodes at work: no table, no Markov property, any supply of independent outcomes.

Each episode gives Z with E[Z | past] = V and Z >= low, and on the other side Z' <= high: `policytest.eprocess.capital`
bets on both.
"""

from __future__ import annotations

import math

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.compiled.small import MOST_WON
from policytest._base.errors import InputError
from policytest.data.ranges import ROUNDING
from policytest.eprocess.budget import Aim, refuse_other_budgets
from policytest.eprocess.capital import SIDES, Bet, TwoSided, with_rounding_margin
from policytest.eprocess.interval import Score
from policytest.eprocess.strategies import AIMED, ENDS, ON_RETURNS, Moments
from policytest.methods.episode_run import Asked, EpisodesRun
from policytest.methods.run import Settings
from policytest.payoffs.known_range import only_answer
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes

REFIT = 1.05  # fractions are fitted again when the episodes have grown by this factor
PRIOR = 0.3  # of one episode: the mean square of what a full bet wins, before anything is seen


class ReturnsRun(EpisodesRun):
    """Bets on episodes; of those that were recorded all are looked at, and the answer is given at one of them."""

    def __init__(
        self,
        method: Settings,
        task: Asked,
        threshold: float,
        source: EpisodeSupply,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> None:
        super().__init__(method, task, threshold, source, indifference)
        self.both_sides = both_sides or indifference > 0
        self.bets = TwoSided(ON_RETURNS, rounding=ROUNDING * (1.0 + abs(threshold)), score=task.score)
        self.moments = tuple(Moments(PRIOR) for _ in SIDES)  # of what full bets win, in units of the room
        self.plans: list[Bet] = []
        self.refit_at = 0
        self.aim: Aim | None = None  # at an answer within a budget
        self.at_answer: tuple[tuple[float, float], tuple[float, float]] | None = None  # the evidence, where it was

    def aim_at(self, budget: int, pairs: bool = False) -> None:
        """One fraction a side, chosen before each episode for an answer by the last one of the budget."""
        (low, high), score = self._span, self.task.score
        rooms, best = (self.threshold - low, high - self.threshold), (1.0, 1.0)
        if score is None and 0 < min(rooms) < math.inf:  # otherwise no bet is needed, or none taken
            best = rooms[1] / rooms[0], rooms[0] / rooms[1]
        tested = score is not None or rooms[0] < math.inf, score is not None or rooms[1] < math.inf
        self.aim = Aim(budget, best, pairs, tested, self.source.words)
        self.stop_after(budget)
        self.bets = TwoSided(AIMED, rounding=self.bets.above.rounding, score=score)

    def extend(self, budget: int, required: float, pairs: bool = False) -> None:
        """Aim at an answer within this budget from now on, with the capital that is left; nobody is warned."""
        if self.aim is None:
            self.aim_at(budget, pairs)
        assert self.aim is not None
        self.aim.extend(budget)
        self.stop_after(budget)
        self.begin(required)

    def outcomes(self) -> tuple[FloatArray, FloatArray]:
        """Those of the sides "above" and "below" so far."""
        above, below = (side.settled(as_staked=True).won for side in self.bets)
        return self.threshold + above, self.threshold - below

    # ------------------------------------------------------------ going on

    def begin(self, required: float) -> None:
        """What was seen may suffice; the budget may be larger than before."""
        if self.aim is not None:
            if self.aim.begin(required, self.episodes, self.evidence()):
                self.refit_at = self.episodes  # the next fraction is for this target
            self.exhausted = self.is_spent
        super().begin(required)

    def step(self, required: float, most: int) -> None:
        """The next episodes, up to the first at which the evidence suffices; a vector gets the others back."""
        self._fit()
        if self.most_episodes < math.inf:
            self.source.expect(int(self.most_episodes) - self.episodes)
        taken, done, together = self.source.take(most), 0, self.source.together
        while done < len(taken.returns) and (self.answer is None or self.source.recorded) and not self.is_spent:
            until = together if together > 1 or self.indifference else self.refit_at - self.episodes
            done += self._settle(taken.part(done, done + until), with_rounding_margin(required))
            self.update_answer(required)
            if self.answer is None or self.source.recorded:
                self._fit()
        self.exhausted = self.is_spent or self.source.exhausted
        if done < len(taken.returns):
            self.source.put_back(len(taken.returns) - done)

    def update_answer(self, required: float) -> None:
        """Answer if the evidence reaches what is required; once, if what was recorded is read to its end."""
        if self.at_answer is not None:
            return
        super().update_answer(required)
        if self.answer is not None and self.source.recorded:
            self.at_answer, self.answered_at = (self.evidence(), self.ends_refuted()), self.samples

    def _settle(self, taken: Outcomes, level: float) -> int:
        """Settle bets with these episodes, up to the first at which the evidence suffices; with how many.

        Those of a round are settled together.
        """
        won = taken.above - self.threshold, self.threshold - taken.below
        served = [np.flatnonzero(~np.isnan(part)) for part in won]  # the others are not bet on
        sides = list(zip(self.bets, self.plans, won, served, self.moments, strict=True))
        used = len(taken.returns)
        for process, plan, x, at, _ in sides if used > self.source.together else ():
            last = process.reach(plan, x[at], level) if len(at) else 0
            used = min(used, int(at[last - 1]) + 1 if last < len(at) else used)
        for sign, (process, plan, x, at, seen) in zip(SIDES, sides, strict=True):
            settled = x[at[: np.searchsorted(at, used)]]
            scored = process.scored(settled)
            if self.task.score is not None:
                check_score(self.task.score, settled, scored)
            process.settle(plan, settled)
            if plan.room > 0:
                with np.errstate(over="ignore"):
                    ratios = np.minimum(scored / plan.room, MOST_WON)
                seen.add(ratios)
                if self.aim is not None:
                    self.aim.add(sign, ratios)
        self.keep(taken, used)
        return used

    def _fit(self) -> None:
        """Choose the fractions of the next episodes, if it is time."""
        if self.episodes < self.refit_at:
            return
        self.refit_at = max(self.episodes + 1, int(REFIT * self.episodes))
        aimed = None
        if self.aim is not None:
            self.refit_at, aimed = self.episodes + 1, self.aim.fractions(self.bets.evidence(), self.episodes)
        self.plans = []
        for index, (sign, bound, seen) in enumerate(zip(SIDES, self._span, self.moments, strict=True)):
            room = sign * (self.threshold - bound) if self.task.score is None else self.task.score.room
            v, here = seen.variance(), 1.0
            if self.one_ended and 0 < room < math.inf:
                here = self._room_here(sign, bound) / room
            wide = ENDS.fractions(v / here**2, seen.count)
            fractions = aimed[index] if aimed else ON_RETURNS.fractions(v, seen.mean(), seen.count)
            if self.aim is not None and self.at_answer is not None:  # what is left to find are the ends of the interval
                fractions = wide[1:2]
            self.plans.append(Bet(room, fractions, wide))
        self.source.look(self.threshold, self.estimate - self.threshold, self.both_sides)

    def _room_here(self, sign: float, bound: float) -> float:
        """What a full bet can lose at the estimate, about where the end of an interval is; the threshold may be far."""
        room = sign * (self.threshold - bound)
        return max(sign * (self.estimate - bound), 1e-3 * room) if self.returns else room

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side, of a log at its answer; infinite where the answer is certain."""
        return self.bets.evidence() if self.at_answer is None else self.at_answer[0]

    @property
    def _span(self) -> tuple[float, float]:
        """Where the value lies for certain."""
        return self.source.low, self.source.high

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        return self.bets.not_refuted(self._span, self.threshold, level, as_staked)

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference; infinite beyond the range."""
        if self.at_answer is not None:
            return self.at_answer[1]
        zone, low, high = self.indifference, self.source.low, self.source.high
        above, below = (side.settled(as_staked=False) for side in self.bets)
        return (
            math.inf if self.threshold - zone < low else above.log_capital(-zone),
            math.inf if self.threshold + zone > high else below.log_capital(-zone),
        )

    def why_undecided(self) -> str:
        """That the budget is used up."""
        return f"the budget of {self.aim.words} is used up" if self.aim is not None and self.is_spent else ""

    def only_answer(self) -> str:
        """With one known end, which answer can be given."""
        if not self.one_ended:
            return ""
        of = "the difference of returns has" if self.is_comparison else "returns have"
        return only_answer(self._span, self.threshold, of)

    @property
    def one_ended(self) -> bool:
        """Whether one end of the range is not known, so that one side is not bet on."""
        return self.task.score is None and any(map(math.isinf, self._span))

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The capital, the episodes, and the source."""
        return {
            **super().state(),
            **self.bets.state(),
            "moments": np.array([seen.state() for seen in self.moments]),
            "plans": self.bets.above.as_rows(self.plans),
            **({} if self.aim is None else self.aim.state()),
            "refit_at": np.array([self.refit_at], dtype=np.int64),
        }

    def _restore(self, state: Arrays) -> None:
        super()._restore(state)
        refuse_other_budgets(0 if self.aim is None else self.aim.budget, state)
        if self.aim is not None:
            self.aim.restore(state)
        self.bets.restore(state)
        for seen, kept in zip(self.moments, state["moments"], strict=True):
            seen.restore(kept)
        self.refit_at = int(state["refit_at"][0])
        self.plans = self.bets.above.of_rows(state["plans"])


def check_score(score: Score, won: FloatArray, scored: FloatArray) -> None:
    """Refuse a score below what it says a full bet can lose: all answers rest on that."""
    if np.shape(scored) != np.shape(won) or np.isnan(scored).any():
        raise InputError(f"score.of returned {scored!r} for {len(won)} returns; return an array with a number for each")
    if not (scored >= -score.room * (1.0 + ROUNDING)).all():
        least = float(np.min(scored))
        raise InputError(f"score.of returned {least:g}, below -score.room = {-score.room:g}; set a larger score.room")
