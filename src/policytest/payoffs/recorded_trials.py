"""Recorded trials as a supply of outcomes, in rounds (`policytest.data.trials`): all of them, in their order."""

from __future__ import annotations

from policytest.data.trials import MatchedTrials
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes


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

    def take(self, most: int = 0) -> Outcomes:
        """All of them."""
        if self.taken:
            return NO_OUTCOMES
        self.taken, found = True, self.trials.outcomes
        return Outcomes(found, found, found, self.trials.steps)
