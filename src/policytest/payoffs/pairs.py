r"""Two agents in pairs of episodes: both episodes of a pair have the same seed, so what they share cancels.

The outcome of a pair is D = G_A - G_B. Seeds are drawn independently, so that pairs are independent with mean
V_A - V_B, however much the two returns of a pair depend on each other; and

    low_A - high_B  <=  D  <=  high_A - low_B.

So bets on returns apply, with the margin in the place of the threshold. Their growth is
about (V_A - V_B - margin)^2 / (2 Var D) a pair, and Var D = Var G_A + Var G_B - 2 Cov(G_A, G_B): a positive covariance
is what pairing saves. It comes from the environment's own luck, such as the start, the cards or the weather, where
`reset(seed=...)` fixes it. An environment that does not honour its seed has none: the two episodes are then
independent, and the test is as valid and takes more pairs.

With one end of a range unknown, one end of D is: for "above" bets need low_A and high_B, for "below" high_A and low_B.

Both agents may share one environment object: an episode is over before the next begins. More than two agents, of which
some are not asked for any more, play in the same way: each seed is used for an episode of each.

Vectors of environments, which run several episodes at once, are in `policytest.payoffs.side_by_side`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from policytest._base import arrays
from policytest._base.arrays import Arrays
from policytest._base.errors import InputError
from policytest._base.record import part_of, record
from policytest.data.episodes import Episodes
from policytest.payoffs.known_range import TASKS, check_equal
from policytest.payoffs.returns import Drawing, Episode, GivenUp, Played, WholeEpisodes

NO_DIFFERENCE = (
    'the difference of their returns has no known end: "above" needs the low end of task_a and the high end of task_b, '
    '"below" the other two; pass both ends of return_range in one of them at least'
)
Shown = tuple[Played | None, ...]
"""The episode of each agent from one seed; None where an agent was not asked."""


class TogetherEpisodes(WholeEpisodes):
    """Episodes of several agents, each time from one seed. The plan says which of them are asked."""

    def __init__(self, *agents: Episodes, names: Sequence[str] = ()) -> None:
        super().__init__(agents[0])
        called = names or [f"agents[{i}]" for i in range(len(agents))]
        self.players = [WholeEpisodes(one, f" of {name}") for one, name in zip(agents, called, strict=True)]
        self.asked = tuple(range(len(agents)))

    @property
    def agents(self) -> tuple[Episodes, ...]:
        """All of them."""
        return tuple(player.about for player in self.players)

    def ask(self, agents: tuple[int, ...]) -> None:
        """From the next seed on, these agents have an episode."""
        self.asked = agents

    def plan_of(self, ahead: int) -> tuple[int, ...]:
        """Which agents have an episode."""
        return self.asked

    def run(self, seed: int, plan: tuple[int, ...]) -> Shown:
        """The episodes of those that are asked, one after the other."""
        steps, found = 0, list[Played | None]([None] * len(self.players))
        for i in plan:
            self.players[i].allow(self.most - steps, self.stop)
            try:
                played: Played = self.players[i].run(seed, None)
            except GivenUp as given_up:
                raise GivenUp(steps + given_up.steps) from None
            steps, found[i] = steps + played.steps, played
        return tuple(found)

    def steps_of(self, seen: Shown) -> int:
        """The transitions of all."""
        return sum(played.steps for played in seen if played is not None)

    def given_up_at(self, seen: Shown, most: float) -> int | None:
        """In the first one, or in a later one."""
        steps = 0
        for player, played in zip(self.players, seen, strict=True):
            if played is not None:
                if (at := player.given_up_at(played, most - steps)) is not None:
                    return steps + at
                steps += played.steps
        return None

    def settled(self, seen: Shown) -> Any:
        """The episode of each agent; None of one that was not asked."""
        both = zip(self.players, seen, strict=True)
        return [None if played is None else player.settled(played) for player, played in both]

    @property
    def outside(self) -> tuple[str, ...]:
        """That of each agent."""
        return tuple(words for player in self.players for words in player.outside)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Whether seeds fix the episodes of each. (Agents that always do the same differ by a constant.)"""
        return tuple(filter(None, (player.unlike for player in self.players)))

    def examine(self) -> None:
        """Repeat an episode of each."""
        for player in self.players:
            player.examine()

    def repeat(self, drawing: Drawing) -> None:
        """All agents repeat their latest episodes."""
        for player in self.players:
            player.repeat(drawing)

    def state(self) -> Arrays:
        """The latest episodes of all."""
        return record(**{f"agent_{i}": player.state() for i, player in enumerate(self.players)})

    def restore(self, state: Arrays) -> None:
        """Those of the run that goes on."""
        for i, player in enumerate(self.players):
            player.restore(part_of(state, f"agent_{i}"))


class PairedEpisodes(TogetherEpisodes):
    """Pairs of episodes, each from one seed."""

    def __init__(self, a: Episodes, b: Episodes) -> None:
        super().__init__(a, b, names=("agent A", "agent B"))
        self.low, self.high = difference_bounds(a, b)

    def settled(self, seen: Shown) -> Episode:
        """The difference of the returns of a pair, and the steps of both."""
        (first, steps, (low, high)), (second, more, (low_b, high_b)) = super().settled(seen)
        return Episode(first - second, steps + more, (low - high_b, high - low_b))


def difference_bounds(a: Episodes, b: Episodes) -> tuple[float, float]:
    """Where G_A - G_B lies."""
    return a.bounds[0] - b.bounds[1], a.bounds[1] - b.bounds[0]


def whole_episodes(name: str, given: object) -> Episodes:
    """Whole episodes of an agent: a critic, which may end them early, has no part in pairs."""
    if not isinstance(given, Episodes):
        raise InputError(f"{name} is a {type(given).__name__}; Episodes are compared with Episodes: pass two of them")
    if given.score is not None:
        raise InputError(f"{name} has a score, and pairs compare mean returns; leave it out")
    return given if given.critic is None else replace(given, critic=None)


def check_same_return(a: Episodes, b: Episodes, called: tuple[str, str] = TASKS) -> None:
    """Refuse returns that do not mean the same, and say in what they differ."""
    told = "their returns are only comparable with the same: pass the same"
    check_equal(a, b, ("discount", "horizon"), told, called)
    if a.judge != b.judge:
        first, second = arrays.shown(a.outcome), arrays.shown(b.outcome)
        raise InputError(
            f"{called[0]}.outcome is {first} and {called[1]}.outcome is {second}; their episodes are only comparable "
            "with the same: pass the same function, or the same words"
        )


def has_no_difference(a: Episodes, b: Episodes) -> bool:
    """Whether their difference has no known end: then no bet on it is sure to lose no more than its stake."""
    sides = zip(a.bounds, b.bounds[::-1], strict=True)
    return not any(all(map(math.isfinite, side)) for side in sides)


def check_difference(a: Episodes, b: Episodes) -> None:
    """Refuse a difference without a known end, on which there are no bets."""
    if has_no_difference(a, b):
        raise InputError(NO_DIFFERENCE)
