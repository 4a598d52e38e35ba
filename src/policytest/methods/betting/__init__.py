"""Betting on temporal differences, for one policy and for two: the settings of the method."""

from __future__ import annotations

from dataclasses import dataclass

from policytest._base import arrays
from policytest.methods.betting.bettor import Bettor


@dataclass(frozen=True)
class TDBetting(Bettor):
    """Settings of the betting test.

    Parameters
    ----------
    draws
        None: every transition of a rollout is bet on. A number m: the plain process, which bets on m draws at the last
        state of each rollout; for comparison.
    seed
        Seed of the coins and actions, where recorded transitions are replayed: choose it before looking at the data.
    """

    draws: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws is not None:
            arrays.positive(draws=arrays.whole_number("draws", self.draws))

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences" + (f", {self.draws} draws a rollout" if self.draws else "")
