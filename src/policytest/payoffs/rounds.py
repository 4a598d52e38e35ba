"""Rounds: one outcome of each of several agents, round after round, wherever the outcomes come from."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest.data.episodes import Range
from policytest.payoffs.outcomes import Outcomes, never


class Round(NamedTuple):
    """[K] one outcome of each agent; nan for an agent that has none in this round.

    Where the rest of an episode was not seen, its return lies between ``low`` and ``high``, and ``returns`` is the
    middle; otherwise the three are the same.
    """

    low: FloatArray
    high: FloatArray
    returns: FloatArray
    steps: IntArray

    @classmethod
    def of(cls, returns: FloatArray, steps: IntArray | None = None) -> Round:
        """Whole outcomes; of one step each, where nothing else is said."""
        steps = (~np.isnan(returns)).astype(np.int64) if steps is None else steps
        return cls(returns, returns, returns, steps)

    @property
    def present(self) -> list[int]:
        """The agents that have an outcome."""
        return np.flatnonzero(~np.isnan(self.returns)).tolist()

    def difference(self, a: int, b: int) -> Outcomes:
        """A's outcome less B's."""
        ends = self.low[a] - self.high[b], self.high[a] - self.low[b], self.returns[a] - self.returns[b]
        above, below, middle = (np.array([end]) for end in ends)
        return Outcomes(above, below, middle, np.array([self.steps[a] + self.steps[b]]))


class RoundSupply:
    """Where rounds come from. The default of every method suits a supply that has all of its outcomes at hand.

    What a supply must provide, so that an answer is right with probability 1 - delta:

    1. *Means.* Given all earlier rounds, the outcome of agent i in the next one has the mean V_i if i is present, and
       lies in ``bounds[i]``. Within a round outcomes may depend on each other in any way: the same seed, or the same
       task, for all agents is what makes an answer come early.
    2. *Presence.* Which agents are present is decided by earlier rounds, or beforehand: never by the outcomes of the
       round itself. All that are asked for should be; an agent whose record has ended is not.
    3. *One order.* A round is taken once, and rounds are handed on in an order that does not depend on outcomes of
       rounds that come later.
    """

    bounds: Sequence[Range]
    """Where the outcomes of each agent lie."""
    drawing: bool = False
    """Whether something is at work that Ctrl-C should not interrupt at once."""
    exhausted: bool = False
    """Whether there are no more rounds."""
    rounds_left: float = math.inf
    stop: Callable[[], bool] = staticmethod(never)

    def take(self, agents: Sequence[int], most: int) -> Round | None:
        """The next round of these agents, with at most this many transitions; None where it is not there yet.

        None without ``exhausted`` means: ask again, unless ``stop()`` or ``most`` has ended it.
        """
        raise NotImplementedError

    @property
    def extra(self) -> int:
        """The transitions that are in no round that was handed on."""
        return 0

    def expect(self, rounds: float) -> None:
        """No more rounds than these will be asked for."""
        self.rounds_left = rounds

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Give up the round at hand where this is true."""
        self.stop = stopped

    def wait(self) -> None:
        """Nothing more is taken: wait for what has begun, whose transitions are then ``extra``."""

    def close(self) -> None:
        """Nothing more is taken for now: end processes, with what they are doing."""
