"""Recorded trials as a supply of outcomes, in rounds (`policytest.data.trials`): all of them, in their order."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.trials import MatchedTrials, assumptions_of, in_turn, outside_of
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes
from policytest.payoffs.rounds import Round, RoundSupply


class RecordedTrials(EpisodeSupply):
    """The outcomes of matched trials; those of a round are settled together."""

    recorded = True

    def __init__(self, trials: MatchedTrials) -> None:
        self.trials, self.taken = trials, False
        self.low, self.high = trials.bounds
        self.together, self.words = len(trials.tasks), trials.words

    @property
    def exhausted(self) -> bool:
        """Whether all were taken."""
        return self.taken

    @property
    def outside(self) -> tuple[str, ...]:
        """Which outcome was outside its declared range, in words."""
        return self.trials.outside

    def take(self, most: int = 0) -> Outcomes:
        """All of them."""
        if self.taken:
            return NO_OUTCOMES
        self.taken, found = True, self.trials.outcomes
        return Outcomes(found, found, found, self.trials.steps)


class TrialRounds(RoundSupply):
    """The trials of several agents in rounds, one of each agent and task.

    The next round is there if all agents that are asked for have a further trial in every task: no trial is left out,
    and a round waits for all of its trials, so that what is bet on does not depend on which were made first.
    """

    unit = "trial"

    def __init__(self, logs: Sequence[LoggedEpisodes]) -> None:
        self.logs, self.bounds = logs, [log.bounds for log in logs]
        self.names, trials = in_turn(logs)
        self.tasks, self.next = len(self.names), 0
        self.labelled = logs[0].pair is not None
        self.assumptions = assumptions_of(logs, self.tasks, self.labelled)
        returns = [log.outcomes.returns for log in logs]
        self.outcomes = [[returns[i][own] for i, own in enumerate(of_task)] for of_task in trials]

    @property
    def outside(self) -> tuple[str, ...]:
        """Which outcome of each agent was outside its declared range, in words."""
        return outside_of(self.logs)

    def take(self, agents: Sequence[int], most: int) -> Round | None:
        """The next round of these agents; None if one of them has no further trial."""
        if any(len(of_task[i]) <= self.next for of_task in self.outcomes for i in agents):
            self.exhausted = True
            return None
        found = np.full((len(self.bounds), self.tasks), np.nan)
        for t, of_task in enumerate(self.outcomes):
            found[agents, t] = [of_task[i][self.next] for i in agents]
        self.next += 1
        return Round.of(found)
