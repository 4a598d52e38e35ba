"""Large samples at work: the evidence of `policytest.eprocess.large_sample` about episodes, drawn or recorded."""

from __future__ import annotations

import math

import numpy as np

from policytest._base.arrays import Arrays, BoolArray, FloatArray
from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.data.episodes import Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.returns import Returns
from policytest.eprocess.capital import with_rounding_margin
from policytest.eprocess.large_sample import LargeSampleProcess, Look, OneLook
from policytest.methods.episode_run import EpisodesRun
from policytest.methods.run import Outcome, Settings
from policytest.payoffs.independence import drift
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes
from policytest.payoffs.weighted_returns import estimates_of, flaws_of

MOST_ALIKE = 1_000  # episodes with the same return, after which nothing else is expected
UNITS = ("episode", "episodes"), ("pair of episodes", "pairs of episodes")


class LargeSampleRun(EpisodesRun):
    """A large-sample test on episodes; looked at after each of them, or once, after ``one_look`` of them."""

    def __init__(
        self,
        method: Settings,
        task: Episodes | LoggedEpisodes,
        threshold: float,
        source: EpisodeSupply,
        indifference: float = 0.0,
        one_look: bool = False,
    ) -> None:
        super().__init__(method, task, threshold, source, indifference)
        self.one_look, self.budget = one_look, 0
        self.process = LargeSampleProcess()
        self.now = 0.0, 0.0  # the evidence

    def aim_at(self, budget: int, pairs: bool = False) -> None:
        """End there; one look is then."""
        self.budget = budget
        self.stop_after(budget)
        if self.one_look:
            self.process = LargeSampleProcess(OneLook(budget))

    # ------------------------------------------------------------ going on

    def begin(self, required: float) -> None:
        """What was seen may suffice; the budget may be larger than before."""
        if self.one_look and not self.budget:
            raise InputError(
                'looks="one" looks once, after a number of episodes that is fixed beforehand; pass budget=, that number'
            )
        self.exhausted = self._has_no_more
        super().begin(required)

    def step(self, required: float, most: int) -> None:
        """The next episodes, up to the first at which the evidence suffices; a vector gets the others back."""
        if self.budget:
            self.source.expect(self.budget - self.episodes)
        taken = self.source.take(most)
        if not len(taken.returns):
            return
        looked = self.process.look(taken.returns[: self._left])
        evidence = looked.evidence(self.threshold)
        reached = np.flatnonzero(self._reached(looked, evidence, with_rounding_margin(required)))
        used = int(reached[0]) + 1 if len(reached) else len(looked.x)
        self.now = float(evidence[0, used - 1]), float(evidence[1, used - 1])
        self.process.keep(looked, used)
        self.keep(taken, used)
        self.update_answer(required)
        self.exhausted = self._has_no_more
        if used < len(taken.returns):
            self.source.put_back(len(taken.returns) - used)

    def _reached(self, looked: Look, evidence: FloatArray, level: float) -> BoolArray:
        """[n] whether there is an answer after each of these episodes."""
        found = np.asarray(evidence.max(axis=0) >= level)
        if self.indifference:
            above = looked.evidence(self.threshold - self.indifference)[0]
            below = looked.evidence(self.threshold + self.indifference)[1]
            found |= np.minimum(above, below) >= level
        return found

    @property
    def _left(self) -> int | None:
        """How many more episodes may be looked at; None without a limit."""
        return None if math.isinf(self.most_episodes) else int(self.most_episodes) - self.episodes

    @property
    def _has_no_more(self) -> bool:
        """Whether the budget is used up, or every episode is like the first."""
        return self.is_spent or (not self.budget and self.episodes >= MOST_ALIKE and self.process.is_constant)

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """Of each side, in nats; 0 while it is silent."""
        return self.now

    def outcome(self, required: float) -> Outcome:
        """The evidence, which is approximate."""
        return Outcome(self.evidence(), approximate=True)

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference."""
        zone = self.indifference
        return self.process.evidence(self.threshold - zone)[0], self.process.evidence(self.threshold + zone)[1]

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        (low, high), (first, last) = (self.source.low, self.source.high), self.process.ends(level)
        return min(max(first, low), high), max(min(last, high), low)

    def why_undecided(self) -> str:
        """That the budget is used up, and why nothing was said, if so."""
        units = UNITS[self.is_comparison]
        spent = f"the budget of {plural(self.budget, *units)} is used up" if self.budget and self.is_spent else ""
        return "; ".join(part for part in (spent, self.process.silent(*units)) if part)

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The episodes, from which all else follows, the source, and when one look is."""
        return super().state() | {"one_look": np.array([self.budget if self.one_look else 0], dtype=np.int64)}

    def _restore(self, state: Arrays) -> None:
        super()._restore(state)
        kept = int(state["one_look"][0])
        if kept != (self.budget if self.one_look else 0):
            raise InputError(f"resume: the one look of that run is after {kept:,} episodes; pass budget={kept}")
        self.process.add(np.array(self.returns, dtype=np.float64))
        self.now = self.process.evidence(self.threshold)


class LoggedReturns(EpisodeSupply):
    """All episodes of a log, in their order: their returns, weighted where another policy was at work."""

    def __init__(self, log: LoggedEpisodes) -> None:
        self.log = log
        self.low, self.high = log.bounds

    def take(self, most: float) -> Outcomes:
        """All of them."""
        found = estimates_of(self.log)
        return Outcomes(found, found, found, self.log.steps)


class LoggedSampleRun(LargeSampleRun):
    """A large-sample test on recorded episodes: all of them are looked at; the answer is given at one of them.

    The evidence of a side is the largest that it ever was, which exp(-evidence) is a p-value of.
    """

    reads_all = True

    def __init__(self, method: Settings, log: LoggedEpisodes, threshold: float, one_look: bool = False) -> None:
        super().__init__(method, log, threshold, LoggedReturns(log), one_look=one_look)
        if one_look:
            self.aim_at(log.n_episodes)

    def step(self, required: float, most: int) -> None:
        """All episodes; the first at which the evidence suffices is the answer."""
        taken = self.source.take(most)
        looked = self.process.look(taken.returns)
        evidence = looked.evidence(self.threshold)
        reached = np.flatnonzero(evidence.max(axis=0) >= with_rounding_margin(required))
        if len(reached):
            first = int(reached[0])
            self.answer = "above" if evidence[0, first] >= evidence[1, first] else "below"
            self.answered_at = int(taken.steps[: first + 1].sum())
        self.now = float(evidence[0].max()), float(evidence[1].max())
        self.process.keep(looked, len(taken.returns))
        self.keep(taken, len(taken.returns))
        self.exhausted = True

    def counts(self) -> Returns:
        """What was observed."""
        log, found = self.task, np.array(self.returns)
        doubts = () if log.weighted else drift(found)
        return Returns(found, log.steps, contradictions=flaws_of(log), outside=log.outside, doubts=doubts)

    @property
    def estimate(self) -> float:
        """The mean of all episodes, within the range of returns."""
        low, high = self.task.bounds
        return min(max(float(np.mean(self.returns)), low), high) if self.returns else math.nan
