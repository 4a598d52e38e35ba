"""Rounds: one outcome of each of several agents, round after round, wherever the outcomes come from.

Of several tasks a round has one outcome of each agent in each task, and the value of an agent is its mean over tasks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest.data.ranges import Range
from policytest.payoffs.outcomes import Outcomes, never


class Round(NamedTuple):
    """[K] one outcome of each agent, or [K, T] one in each task; nan for an agent that has none in this round.

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
        if steps is None:
            there = ~np.isnan(returns)
            steps = there.reshape(len(there), -1).sum(axis=1)
        return cls(returns, returns, returns, steps)

    @property
    def present(self) -> list[int]:
        """The agents that have an outcome."""
        return np.flatnonzero(~np.isnan(self.by_agent).any(axis=1)).tolist()

    @property
    def by_agent(self) -> FloatArray:
        """[K, T] the returns of each agent."""
        return self.returns.reshape(len(self.returns), -1)

    def of_agent(self, i: int) -> Outcomes:
        """The outcomes of one agent."""
        low, high, middle = (np.ravel(part[i]) for part in (self.low, self.high, self.returns))
        return Outcomes(low, high, middle, _shared(int(self.steps[i]), len(middle)))

    def only(self, agents: Sequence[int]) -> Round:
        """The same without the outcomes of other agents."""
        others = np.ones(len(self.returns), dtype=np.bool_)
        others[list(agents)] = False
        if np.isnan(self.returns[others]).all():
            return self
        low, high, returns = (part.copy() for part in (self.low, self.high, self.returns))
        for part in (low, high, returns):
            part[others] = np.nan
        return Round(low, high, returns, np.where(others, 0, self.steps))

    def difference(self, a: int, b: int) -> Outcomes:
        """A's outcome less B's."""
        ends = self.low[a] - self.high[b], self.high[a] - self.low[b], self.returns[a] - self.returns[b]
        above, below, middle = (np.ravel(end) for end in ends)
        return Outcomes(above, below, middle, _shared(int(self.steps[a] + self.steps[b]), len(middle)))


def _shared(steps: int, outcomes: int) -> IntArray:
    """So many steps, of so many outcomes."""
    found = np.full(outcomes, steps // outcomes, dtype=np.int64)
    found[: steps % outcomes] += 1
    return found


class RoundSupply:
    """Where rounds come from. The default of every method suits a supply that has all of its outcomes at hand.

    What a supply must provide, so that an answer is right with probability 1 - delta:

    1. *Means.* Given all earlier rounds, the outcome of agent i in the next one has the mean V_i if i is present, and
       lies in ``bounds[i]``. Within a round outcomes may depend on each other in any way: the same seed, or the same
       task, for all agents is what makes an answer come early. Only those of different ``tasks``, of which V_i is the
       mean, are independent of each other.
    2. *Presence.* Which agents are present is decided by earlier rounds, or beforehand: never by the outcomes of the
       round itself. All that are asked for should be; an agent whose record has ended is not.
    3. *One order.* A round is taken once, and rounds are handed on in an order that does not depend on outcomes of
       rounds that come later.
    """

    bounds: Sequence[Range]
    """Where the outcomes of each agent lie."""
    tasks: int = 1
    """How many outcomes an agent has in a round."""
    unit: str = "episode"
    """What an outcome of an agent is."""
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

    @property
    def outside(self) -> tuple[str, ...]:
        """Which outcome was outside its declared range, in words."""
        return ()

    @property
    def doubts(self) -> tuple[str, ...]:
        """What independent episodes hardly ever do, and these did, in words."""
        return ()

    def examine(self) -> None:
        """The search is over: look whether seeds fix episodes."""

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
