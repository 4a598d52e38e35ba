"""What all tests of episodes share, by bets or by large samples: the supply, what was seen, limits, and keeping."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.returns import Returns
from policytest.eprocess.capital import with_rounding_margin
from policytest.eprocess.interval import Score
from policytest.methods.run import Run, Settings
from policytest.payoffs.independence import drift
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes
from policytest.payoffs.parallel_returns import in_processes


class Asked(Protocol):
    """What is asked about outcomes; `Episodes` say it of theirs."""

    @property
    def score(self) -> Score | None:
        """What is compared with the threshold, if not the mean."""

    @property
    def critic(self) -> object:
        """What may end an episode early, if anything."""

    @property
    def asked_about(self) -> str:
        """What the value is, in words."""

    def value_of(self, returns: FloatArray) -> float:
        """The mean of these outcomes, or what the score is about."""


class EpisodesRun(Run):
    """A test on episodes from any supply."""

    source: EpisodeSupply

    def __init__(
        self,
        method: Settings,
        task: Asked | LoggedEpisodes,
        threshold: float,
        source: EpisodeSupply,
        indifference: float = 0.0,
    ) -> None:
        self.method, self.task, self.threshold, self.source = method, task, threshold, source
        self.indifference, self.most_episodes = indifference, math.inf
        self.returns: list[float] = []
        self.steps: list[int] = []

    def work_in_parallel(self, workers: int) -> None:
        """Have so many episodes, or pairs of them, under way in as many processes."""
        self.source = in_processes(self.source, workers)

    def stop_after(self, episodes: int) -> None:
        """Look at so many episodes at most."""
        self.most_episodes = episodes

    @property
    def is_comparison(self) -> bool:
        """Whether outcomes are differences of two agents."""
        return self.source.compares

    @property
    def episodes(self) -> int:
        """How many episodes were looked at."""
        return len(self.returns)

    @property
    def is_spent(self) -> bool:
        """Whether no more episodes may be looked at."""
        return self.episodes >= self.most_episodes

    def keep(self, taken: Outcomes, used: int) -> None:
        """The first of these episodes were looked at."""
        self.returns += taken.returns[:used].tolist()
        self.steps += taken.steps[:used].tolist()
        self.samples += int(taken.steps[:used].sum())

    def finish(self) -> None:
        """Wait for the episodes that have begun."""
        self.source.wait()

    def update_answer(self, required: float) -> None:
        """Answer if the evidence reaches what is required."""
        level = with_rounding_margin(required)
        super().update_answer(level)
        if self.answer is None and self.indifference and min(self.ends_refuted()) >= level:
            self.answer = "within"

    def judge_counts(self, counts: Counts, required: float, design: str) -> None:
        """Counts have no episodes."""
        raise InputError("counts have no episodes; pass LoggedEpisodes(episode, reward)")

    # ------------------------------------------------------------ what it can say

    @property
    def estimate(self) -> float:
        """The mean return, or what the score is about."""
        return self.task.value_of(self.returns) if self.returns else math.nan

    def counts(self) -> Returns:
        """What was observed."""
        doubts = *self.source.doubts, *self._drift()
        steps = np.array(self.steps, dtype=np.int64)
        return Returns(np.array(self.returns), steps, outside=self.source.outside, doubts=doubts)

    def examine(self) -> None:
        """Look whether seeds fix episodes, where one more is free."""
        if self.most_episodes == math.inf:
            self.source.examine()

    def _drift(self) -> tuple[str, ...]:
        """Whether the mean seems to change; a critic changes how returns are spread, and ranks with it."""
        if self.task.critic is not None or self.task.score is not None:
            return ()
        return drift(self.returns, "mean difference" if self.is_comparison else self.task.asked_about)

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The episodes, and the source."""
        return {
            "returns": np.array(self.returns, dtype=np.float64),
            "steps": np.array(self.steps, dtype=np.int64),
            **self.source.state(),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state; the latest episodes are repeated, to see that they still earn the same."""
        super().restore(state)
        self.source.repeat()

    def _restore(self, state: Arrays) -> None:
        self.returns, self.steps = state["returns"].tolist(), state["steps"].tolist()
        if len(self.returns) != len(self.steps) or min(self.steps, default=0) < 0:
            raise ValueError("the episodes have no lengths")
        self.samples = sum(self.steps)
        self.source.restore(state)
