"""`ReturnBetting`: bets on the returns of episodes, with nothing assumed of what happens inside them.

And on pairs of episodes: two agents, each pair with one seed (`policytest.payoffs.pairs`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed
from policytest.data.vector_walks import VectorWalk
from policytest.mdp.task import Task
from policytest.methods.return_run import ReturnsRun
from policytest.methods.run import Traits
from policytest.payoffs.cut_returns import CutEpisodes
from policytest.payoffs.outcomes import EpisodeSupply
from policytest.payoffs.returns import DrawnEpisodes, WholeEpisodes
from policytest.payoffs.side_by_side import pairs_of, takes_seeds
from policytest.payoffs.vector_returns import VectoredEpisodes


@dataclass(frozen=True)
class ReturnBetting:
    """Bets on episodes: the method of `Episodes`. Its answers are certified, whatever happens within an episode."""

    traits: ClassVar = Traits(zone=True, episodes=True)

    def start(
        self,
        task: Task | Episodes,
        sim: object,
        threshold: float,
        rng: Seed,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> ReturnsRun:
        """The test at work."""
        if not isinstance(task, Episodes):
            raise InputError("ReturnBetting() is for Episodes; of a table, MonteCarlo() bets on returns")
        return ReturnsRun(self, task, threshold, supply_of(task, rng), indifference, both_sides)

    def replay(self, task: object, threshold: float, source: object) -> ReturnsRun:
        """Recorded transitions of a table have no episodes."""
        raise InputError("ReturnBetting() needs episodes, which these data do not have; pass LoggedEpisodes")

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on returns"


def supply_of(episodes: Episodes, rng: Seed) -> EpisodeSupply:
    """The episodes of an environment: several at once, or one after the other, whole or cut short by a critic."""
    if isinstance(episodes.walk, VectorWalk):
        return VectoredEpisodes(episodes, episodes.walk, rng)
    return DrawnEpisodes(WholeEpisodes(episodes) if episodes.critic is None else CutEpisodes(episodes), rng)


SAME_SEED = "with the same seed"
IN_ORDER = "in the order in which they begin, independent of each other"
"""How the episodes of two agents are paired."""


@dataclass(frozen=True)
class PairedBetting:
    """The method of a comparison of `Episodes`, for its verdict; and which policy of each agent is run."""

    policies: tuple[str, str] = ("", "")
    pairing: str = SAME_SEED

    def describe(self) -> str:
        """The method in a few words."""
        a, b = (f" ({which})" if which else "" for which in self.policies)
        return f"betting on returns, agent A{a} against agent B{b} in pairs of episodes {self.pairing}"


def paired_run(a: Episodes, b: Episodes, margin: float, rng: Seed, indifference: float = 0.0) -> ReturnsRun:
    """The test at work."""
    method = PairedBetting((a.agent_policy, b.agent_policy), SAME_SEED if takes_seeds((a, b)) else IN_ORDER)
    return ReturnsRun(method, a, margin, pairs_of(a, b, rng), indifference)
