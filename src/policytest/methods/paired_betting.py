"""Bets on pairs of episodes: two agents, each pair with one seed (`policytest.payoffs.pairs`)."""

from __future__ import annotations

from dataclasses import dataclass

from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import EpisodeSupply
from policytest.payoffs.pairs import PairedEpisodes


@dataclass(frozen=True)
class PairedBetting:
    """The method of a comparison of `Episodes`, for its verdict; and which policy of each agent is run."""

    policies: tuple[str, str] = ("", "")

    def on(self, task: Episodes, margin: float, supply: EpisodeSupply, indifference: float) -> ReturnsRun:
        """The test at work on any supply of pairs."""
        return ReturnsRun(self, task, margin, supply, indifference)

    def describe(self) -> str:
        """The method in a few words."""
        a, b = (f" ({which})" if which else "" for which in self.policies)
        return f"betting on returns, agent A{a} against agent B{b} in pairs of episodes with the same seed"


def paired_run(a: Episodes, b: Episodes, margin: float, rng: Seed, indifference: float = 0.0) -> ReturnsRun:
    """The test at work."""
    method = PairedBetting((a.agent_policy, b.agent_policy))
    return method.on(a, margin, PairedEpisodes(a, b, rng), indifference)
