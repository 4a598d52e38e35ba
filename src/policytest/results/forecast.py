"""What it takes to go on with a test: the run as it stands, and how many more samples it needs."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from policytest._base.record import Record
from policytest.data.randomness import Seed
from policytest.data.reward_moments import RewardMoments
from policytest.results.needed import Needed
from policytest.results.saved import SavedForecast

if TYPE_CHECKING:
    from policytest.results.verdict import Verdict


class Forecaster(Protocol):
    """Finds how many more samples a verdict needs."""

    def __call__(self, verdict: Verdict, chance: float, rng: Seed, max_samples: int, /) -> Needed:
        """The answer to `Verdict.still_needed`."""


@dataclass(frozen=True)
class Forecast:
    """What it takes to go on with a test.

    Attributes
    ----------
    needed
        What `Verdict.still_needed` found, if it was asked for and kept.
    forecaster
        The function that finds it; None for a verdict that was read from a file or made by hand.
    snapshot
        All that `decide(..., resume=verdict)` needs to go on; empty if there is nothing to go on from.
    reward_moments
        If rewards are observed, their sums by transition, from which further rewards are simulated.
    """

    needed: Needed | SavedForecast | None = None
    forecaster: Forecaster | None = None
    snapshot: Record = field(default_factory=dict)
    reward_moments: RewardMoments | None = None
