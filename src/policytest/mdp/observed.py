"""Rewards that come with the data."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import AsArray, BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError

ROUNDING = 1e-12  # relative, up to which two rewards are the same


@dataclass(frozen=True, eq=False)
class Observed:
    """The rewards of a task that are observed with each transition.

    Given state, action and next state, a reward may have any law on [low, high]; numbers, or arrays [S,A]. With
    ``values``, a list of numbers, it is one of those that lie between low and high, which are then the smallest and
    the largest of them unless given.

    >>> Observed(0.0, 1.0)
    Observed(low=array(0.), high=array(1.), values=None)
    >>> Observed(values=[0, 1, 5]).high
    array(5.)
    """

    low: AsArray = None
    high: AsArray = None
    values: AsArray = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "values", None if self.values is None else _listed(self.values))
        for name, end in (("low", 0), ("high", -1)):
            given = getattr(self, name)
            if given is None and self.values is None:
                raise InputError(f"rewards.{name} is missing; pass Observed(low, high), or Observed(values=[...])")
            table = np.array(arrays.real_array(f"rewards.{name}", self.values[end] if given is None else given))
            if table.ndim not in (0, 2):
                raise InputError(f"rewards.{name} has shape {table.shape}; pass a number, or an array [S,A]")
            arrays.freeze(table)
            object.__setattr__(self, name, table)
        if self.low.ndim and self.high.ndim and self.low.shape != self.high.shape:
            raise InputError(f"rewards.low has shape {self.low.shape} and rewards.high {self.high.shape}")
        low, high = np.broadcast_arrays(self.low, self.high)
        if (at := arrays.first_place(low > high)) is not None:
            least, most, place = low[tuple(at)], high[tuple(at)], at or ""
            raise InputError(f"rewards.low{place} is {least:g}, above rewards.high{place}, which is {most:g}")
        self._check_values()

    def _check_values(self) -> None:
        """Refuse values outside the widest range."""
        if self.values is None:
            return
        low, high = float(self.low.min()), float(self.high.max())
        slack = ROUNDING * max(abs(low), abs(high))
        wrong = (self.values < low - slack) | (self.values > high + slack)
        if wrong.any():
            raise InputError(
                f"rewards.values has {self.values[wrong][0]:g}, outside [low, high] = [{low:g}, {high:g}]; widen the "
                "range, or leave low and high out"
            )

    def filled(self, shape: tuple[int, int]) -> Observed:
        """The same with arrays [S,A]; with values, the smallest and the largest one of each pair."""
        for name in ("low", "high"):
            table = getattr(self, name)
            if table.ndim:
                arrays.check_shape(f"rewards.{name}", table.shape, shape)
        low, high = np.broadcast_to(self.low, shape), np.broadcast_to(self.high, shape)
        if self.values is None:
            return Observed(low, high)
        slack = ROUNDING * np.maximum(np.abs(low), np.abs(high))
        first = np.searchsorted(self.values, low - slack)
        last = np.searchsorted(self.values, high + slack, side="right") - 1
        if (place := arrays.first_place((last < first) & (low < high))) is not None:
            s, a = place
            raise InputError(
                f"rewards.values has no number between low and high at [{s}, {a}], {low[s, a]:g} and {high[s, a]:g}"
            )
        fixed = last < first  # a single reward, which need not be listed
        low = np.where(fixed, low, self.values[np.minimum(first, len(self.values) - 1)])
        return Observed(low, np.where(fixed, high, self.values[last]), self.values)

    def without(self, states: IntArray) -> Observed:
        """The same with reward 0 in these states, in which episodes have ended."""
        low, high = self.low.copy(), self.high.copy()
        low[states], high[states] = 0.0, 0.0
        if self.values is None:
            return Observed(low, high)
        left = self.values[(self.values >= low.min()) & (self.values <= high.max())]
        return Observed(low, high, left if len(left) else [0.0])

    def outside(self, pair: IntArray, rewards: FloatArray) -> BoolArray:
        """Which of these rewards of pairs s*A + a lie outside their range, or are none of the declared values."""
        low, high = self.low.ravel()[pair], self.high.ravel()[pair]
        slack = ROUNDING * np.maximum(np.abs(low), np.abs(high))
        beyond = ~((low - slack <= rewards) & (rewards <= high + slack))
        if self.values is None:
            return np.asarray(beyond)
        listed = np.abs(self.values[nearest(self.values, rewards)] - rewards) <= slack
        return np.asarray(beyond | ((low < high) & ~listed))

    def expected(self, pair: int, scale: float) -> str:
        """What a reward of this pair, in units of ``scale``, is not: the end of a message that refuses it."""
        low, high = (float(end.ravel()[pair]) for end in (self.low, self.high))
        if self.values is None or low == high:
            return f"outside the declared range [{low * scale:g}, {high * scale:g}]"
        allowed = self.values[(self.values >= low) & (self.values <= high)]
        return f"not one of the declared values {', '.join(f'{v * scale:g}' for v in allowed[:8])}"

    @property
    def remedy(self) -> str:
        """What to do about a reward that is refused."""
        return "widen Observed(low, high)" if self.values is None else "add it to Observed(values=[...])"


def nearest(values: FloatArray, rewards: FloatArray) -> IntArray:
    """The index of the value nearest to each reward; values increase."""
    return np.asarray(np.searchsorted((values[1:] + values[:-1]) / 2, rewards))


def _listed(values: object) -> FloatArray:
    """The declared values, in increasing order, each once."""
    table = arrays.real_array("rewards.values", values, (None,))
    if not len(table):
        raise InputError("rewards.values is empty; list the numbers that a reward can be")
    listed = np.unique(table) + 0.0
    arrays.freeze(listed)
    return listed
