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

Both agents may share one environment object: an episode is over before the next begins.
"""

from __future__ import annotations

import math
from dataclasses import replace

from policytest._base import arrays
from policytest._base.arrays import Arrays
from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.walks import FunctionWalk, Walk
from policytest.payoffs.known_range import check_equal
from policytest.payoffs.returns import Drawing, Episode, GivenUp, Played, WholeEpisodes

NO_DIFFERENCE = (
    'the difference of their returns has no known end: "above" needs the low end of task_a and the high end of task_b, '
    '"below" the other two; pass both ends of return_range in one of them at least'
)


class PairedEpisodes(WholeEpisodes):
    """Pairs of episodes, each from one seed."""

    def __init__(self, a: Episodes, b: Episodes) -> None:
        super().__init__(a)
        self.one, self.other = WholeEpisodes(a, " of agent A"), WholeEpisodes(b, " of agent B")
        self.low, self.high = difference_bounds(a, b)

    @property
    def agents(self) -> tuple[Episodes, ...]:
        """Both of them."""
        return self.one.about, self.other.about

    def run(self, seed: int, plan: None) -> tuple[Played, Played]:
        """Both episodes of a pair."""
        self.one.allow(self.most, self.stop)
        first = self.one.run(seed, plan)
        self.other.allow(self.most - first.steps, self.stop)
        try:
            return first, self.other.run(seed, plan)
        except GivenUp as given_up:
            raise GivenUp(first.steps + given_up.steps) from None

    def steps_of(self, seen: tuple[Played, Played]) -> int:
        """The transitions of both."""
        return seen[0].steps + seen[1].steps

    def given_up_at(self, seen: tuple[Played, Played], most: float) -> int | None:
        """In the first one, or in the second."""
        first, second = seen
        if (at := self.one.given_up_at(first, most)) is not None:
            return at
        at = self.other.given_up_at(second, most - first.steps)
        return None if at is None else first.steps + at

    def settled(self, seen: tuple[Played, Played]) -> Episode:
        """The difference of the returns of a pair, and the steps of both."""
        first, steps, (low, high) = self.one.settled(seen[0])
        second, more, (low_b, high_b) = self.other.settled(seen[1])
        return Episode(first - second, steps + more, (low - high_b, high - low_b))

    @property
    def outside(self) -> tuple[str, ...]:
        """Of both agents."""
        return (*self.one.outside, *self.other.outside)

    @property
    def doubts(self) -> tuple[str, ...]:
        """Whether seeds fix the episodes of both. (Two agents that always do the same differ by a constant.)"""
        return tuple(filter(None, (self.one.unlike, self.other.unlike)))

    def examine(self) -> None:
        """Repeat an episode of each."""
        self.one.examine()
        self.other.examine()

    def repeat(self, drawing: Drawing) -> None:
        """Both agents repeat their latest episodes."""
        self.one.repeat(drawing)
        self.other.repeat(drawing)

    def state(self) -> Arrays:
        """The latest episodes of both."""
        return self.one.state() | {f"other_{name}": value for name, value in self.other.state().items()}

    def restore(self, state: Arrays) -> None:
        """Those of the run that goes on."""
        self.one.restore(state)
        self.other.restore({name.removeprefix("other_"): state[name] for name in state if name.startswith("other_")})


def difference_bounds(a: Episodes, b: Episodes) -> tuple[float, float]:
    """Where G_A - G_B lies."""
    return a.bounds[0] - b.bounds[1], a.bounds[1] - b.bounds[0]


def whole_episodes(name: str, given: object) -> Episodes:
    """Episodes that can be run one by one from a seed. A critic has no part in pairs, which are of whole episodes."""
    if not isinstance(given, Episodes):
        raise InputError(f"{name} is a {type(given).__name__}; Episodes are compared with Episodes: pass two of them")
    if not isinstance(given.walk, Walk | FunctionWalk):
        raise InputError(f"{name} has a vector of environments, and pairs are run one by one; pass one environment")
    if given.score is not None:
        raise InputError(f"{name} has a score, and pairs compare mean returns; leave it out")
    return given if given.critic is None else replace(given, critic=None)


def check_same_return(a: Episodes, b: Episodes) -> None:
    """Refuse returns that do not mean the same, and say in what they differ."""
    check_equal(a, b, ("discount", "horizon"), "their returns are only comparable with the same: pass the same")
    if a.judge != b.judge:
        first, second = arrays.shown(a.outcome), arrays.shown(b.outcome)
        raise InputError(
            f"task_a.outcome is {first} and task_b.outcome is {second}; their episodes are only comparable with the "
            "same: pass the same function, or the same words"
        )


def has_no_difference(a: Episodes, b: Episodes) -> bool:
    """Whether their difference has no known end: then no bet on it is sure to lose no more than its stake."""
    sides = zip(a.bounds, b.bounds[::-1], strict=True)
    return not any(all(map(math.isfinite, side)) for side in sides)


def check_difference(a: Episodes, b: Episodes) -> None:
    """Refuse a difference without a known end, on which there are no bets."""
    if has_no_difference(a, b):
        raise InputError(NO_DIFFERENCE)
