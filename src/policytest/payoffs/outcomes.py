"""What bets on episodes are settled with, and where it comes from."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, BoolArray, FloatArray, IntArray


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

    def where(self, wanted: BoolArray) -> Outcomes:
        """Those of them that are wanted."""
        return Outcomes(self.above[wanted], self.below[wanted], self.returns[wanted], self.steps[wanted])


NO_OUTCOMES = Outcomes(np.zeros(0), np.zeros(0), np.zeros(0), np.zeros(0, dtype=np.int64))


def never() -> bool:
    """Nobody stops the run."""
    return False


class EpisodeSupply:
    """Where episodes come from: environments with an agent. ``stop()``: whether to give up the episodes at hand."""

    drawing: bool = False
    compares: bool = False  # whether outcomes are differences of two agents
    stop: Callable[[], bool] = staticmethod(never)

    low: float  # no outcome above is less
    high: float  # no outcome below is more
    episodes_left: float = math.inf
    together: int = 1  # outcomes of a round: bets are the same for all of them, and evidence counts after the last
    recorded: bool = False  # all of it is read, whenever the answer was reached
    words: tuple[str, str] | None = None  # what one outcome is, and several, if not episodes or pairs of them

    @property
    def exhausted(self) -> bool:
        """Whether recorded episodes have no more to give."""
        return False

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Give up the episodes at hand where this is true."""
        self.stop = stopped

    def expect(self, episodes: int) -> None:
        """No more episodes than these will be asked for."""
        self.episodes_left = episodes

    def wait(self) -> None:
        """Nothing more is taken: wait for the episodes that have begun, whose transitions are then ``extra``."""

    def close(self) -> None:
        """Nothing more is taken for now: end processes, with what they are doing."""

    @property
    def extra(self) -> int:
        """The transitions of episodes that were not handed on."""
        return 0

    @property
    def outside(self) -> tuple[str, ...]:
        """Which return, or reward, was outside its declared range, in words."""
        return ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """What independent episodes hardly ever do, and these did, in words."""
        return ()

    def examine(self) -> None:
        """The run is over: look whether seeds fix episodes."""

    def take(self, most: int) -> Outcomes:
        """The next episodes, in their order, with at most this many transitions."""
        raise NotImplementedError

    def put_back(self, episodes: int) -> None:
        """The last episodes that were handed on are the next."""

    def repeat(self) -> None:
        """Check that a run that is resumed goes on with the same environment and agent."""

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """What the next episodes are for: the threshold, and the estimate less the threshold; called now and then.

        No-op by default: full returns are unbiased on both sides.
        """

    def state(self) -> Arrays:
        """What is needed to go on, as arrays."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""
