"""What the next rollouts bet with: values, worst paths, the range, and fractions. All of it is fixed before they start.

That is all that validity asks.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.small import Residuals, Stakes
from policytest.eprocess.capital import Bet

REFIT = 1.2  # V0 is fitted again when the samples have grown by this factor
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the fitted advantages, to choose from
LARGE = 2_000_000  # entries up to which a share is chosen
NO_POLICY = Residuals(*(np.zeros(0) for _ in range(4)))


class BettingPlan(NamedTuple):
    """What the next rollouts bet with."""

    a: Residuals
    b: Residuals  # of the second policy; empty where there is none
    B: FloatArray  # [S] the worst sum along any path, of the two together where there are two
    L: float  # at least the worst sum; more where weights need room
    sign: float
    lead: float  # sign (rho.V0 - R), with the difference of the two V0 where there are two
    fractions: FloatArray = np.zeros(0)  # of the largest bet
    wide: FloatArray = np.zeros(0)  # those of intervals
    targets: FloatArray = np.zeros(0)  # [places] the weights to aim at by splits; empty: rollouts do not split
    mirrored: BettingPlan | None = None  # the bet of the other side on the same rollouts
    wider: float = 1.0  # L as a multiple of the worst sum
    v: float = 0.0  # the mean of S^2 to expect, in units of room^2
    cost: float = 0.0  # the draws of a rollout to expect; 0: those of the others so far

    @property
    def parts(self) -> tuple[Residuals, ...]:
        """Those of one policy, or of both."""
        return (self.a, self.b) if len(self.b.V) else (self.a,)

    @property
    def is_even(self) -> bool:
        """Whether the range is the worst sum, and nothing splits."""
        return self.wider == 1.0 and not len(self.targets)

    @property
    def room(self) -> float:
        """L - lead: what a full bet stakes."""
        return self.L - self.lead

    @property
    def narrow_room(self) -> float:
        """The room that the worst sum leaves."""
        return self.L / self.wider - self.lead

    @property
    def bet(self) -> Bet:
        """What is staked on a rollout, whose outcome less the threshold is lead + S."""
        return Bet(self.room, self.fractions, self.wide)

    def stakes(self, capital: FloatArray) -> Stakes:
        """The bets of this side with this capital."""
        return Stakes(self.B, self.fractions, capital, self.L, self.sign, self.lead)

    def widened(self, wider: float) -> BettingPlan:
        """With a range that is this many times the worst sum, on both sides."""
        mirrored = None if self.mirrored is None else self.mirrored.widened(wider)
        return self._replace(L=self.L * (wider / self.wider), wider=wider, mirrored=mirrored)
