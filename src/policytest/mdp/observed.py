"""Rewards that come with the data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError


@dataclass(frozen=True, eq=False)
class Observed:
    """The rewards of a task that are observed with each transition.

    Given state, action and next state, a reward may have any law on [low, high]; numbers, or arrays [S,A].

    >>> Observed(0.0, 1.0)
    Observed(low=array(0.), high=array(1.))
    """

    low: Any
    high: Any

    def __post_init__(self) -> None:
        for name in ("low", "high"):
            table = np.array(arrays.real_array(f"rewards.{name}", getattr(self, name)))
            if table.ndim not in (0, 2):
                raise InputError(f"rewards.{name} has shape {table.shape}; pass a number, or an array [S,A]")
            arrays.freeze(table)
            object.__setattr__(self, name, table)
        if self.low.ndim and self.high.ndim and self.low.shape != self.high.shape:
            raise InputError(f"rewards.low has shape {self.low.shape} and rewards.high {self.high.shape}")
        wrong = np.argwhere(self.low > self.high)
        if len(wrong):
            low, high = np.broadcast_arrays(self.low, self.high)
            at = tuple(int(i) for i in wrong[0])
            place = str(list(at)) if at else ""
            raise InputError(f"rewards.low{place} is {low[at]:g}, above rewards.high{place}, which is {high[at]:g}")

    def filled(self, shape: tuple[int, int]) -> Observed:
        """The same with arrays [S,A]."""
        for name in ("low", "high"):
            table = getattr(self, name)
            if table.ndim:
                arrays.check_shape(f"rewards.{name}", table.shape, shape)
        return Observed(np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape))

    def without(self, states: Any) -> Observed:
        """The same with reward 0 in these states, in which episodes have ended."""
        low, high = self.low.copy(), self.high.copy()
        low[states], high[states] = 0.0, 0.0
        return Observed(low, high)

    def outside(self, pair: Any, rewards: FloatArray) -> Any:
        """Which of these rewards of pairs s*A + a lie outside their range."""
        low, high = self.low.ravel()[pair], self.high.ravel()[pair]
        slack = 1e-12 * np.maximum(np.abs(low), np.abs(high))
        return ~((low - slack <= rewards) & (rewards <= high + slack))
