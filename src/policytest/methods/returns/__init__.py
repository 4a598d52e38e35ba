"""`ReturnBetting`: bets on the returns of episodes, with nothing assumed of what happens inside them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed
from policytest.methods.returns.cutting import CutEpisodes
from policytest.methods.returns.drawn import DrawnEpisodes
from policytest.methods.returns.run import ReturnsRun


@dataclass(frozen=True)
class ReturnBetting:
    """Bets on episodes: the method of `Episodes`. Its answers are certified, whatever happens within an episode."""

    def start(
        self,
        task: Any,
        sim: Any,
        threshold: float,
        rng: Seed,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> ReturnsRun:
        """The test at work."""
        if not isinstance(task, Episodes):
            raise InputError("ReturnBetting() is for Episodes; of a table, MonteCarlo() bets on returns")
        source = DrawnEpisodes(task, rng) if task.critic is None else CutEpisodes(task, rng)
        return ReturnsRun(self, task, threshold, source, indifference, both_sides)

    def replay(self, task: Any, threshold: float, source: Any) -> ReturnsRun:
        """Recorded transitions of a table have no episodes."""
        raise InputError("ReturnBetting() needs episodes, which these data do not have; pass LoggedEpisodes")

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on returns"
