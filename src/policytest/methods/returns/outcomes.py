"""What bets on episodes are settled with, and where it comes from."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from policytest._base.arrays import FloatArray, IntArray


class Outcomes(NamedTuple):
    """Episodes in their order.

    ``above`` and ``below`` have mean V given the past; above >= low and below <= high, the bounds of their supply. They
    are nan where an episode is not bet on that side. ``returns`` estimate V without bias, ``steps`` are transitions.
    """

    above: FloatArray
    below: FloatArray
    returns: FloatArray
    steps: IntArray

    def part(self, first: int, last: int) -> Outcomes:
        """Some of them, in their order."""
        return Outcomes(
            self.above[first:last], self.below[first:last], self.returns[first:last], self.steps[first:last]
        )


NO_OUTCOMES = Outcomes(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))


def never() -> bool:
    """Nobody stops the run."""
    return False


class EpisodeSupply(Protocol):
    """Where episodes come from: an environment, or a log.

    Those that run environments also have ``stop``, a function that says whether to give up the episodes at hand, and
    `repeat`, which checks that a run that is resumed goes on with the same environment and agent.
    """

    drawing: bool

    @property
    def low(self) -> float:
        """No outcome above is less."""

    @property
    def high(self) -> float:
        """No outcome below is more."""

    @property
    def exhausted(self) -> bool:
        """Whether a log has no more episodes."""

    def take(self, most: int) -> Outcomes:
        """The next episodes, in their order, with at most this many transitions; of a log at least one."""

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """What the next episodes are for: the threshold, and the estimate less the threshold; called now and then."""

    def state(self) -> dict[str, Any]:
        """What is needed to go on, as arrays."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
