"""A payoff of one's own: is the *median* return of an agent above the threshold?

A score turns a return G and a threshold R into what is bet on. It has three duties:

- ``of(won)`` never falls in won = G - R (of the side "below": R - G),
- its mean is at most 0 if the answer would be wrong,
- it is never below ``-room``.

For the median: 1/2 if G is above R, else -1/2. If the median is at most R, then P(G > R) <= 1/2, so the mean is at most
0; and the room is 1/2. The engine does the rest: verdicts, intervals, checkpoints, reports, studies.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import policytest as pt


@dataclass(frozen=True)
class Median:
    """Bets on which side of the threshold a return is."""

    name: str = "median return"
    room: float = 0.5

    def of(self, won: np.ndarray) -> np.ndarray:
        """1/2 above the threshold, -1/2 at it or below."""
        return np.where(won > 0, 0.5, -0.5)

    def estimate(self, outcomes: np.ndarray) -> float:
        """The median of the returns so far."""
        return float(np.median(outcomes))


def run(rng: np.random.Generator) -> float:
    """A rare crash costs all: the mean return is 0.72, the median 0.78."""
    return 0.0 if rng.random() < 0.1 else 0.6 + 0.4 * rng.random()


AGENT = pt.Episodes(run, return_range=(0.0, 1.0))
MEDIAN = pt.Episodes(run, return_range=(0.0, 1.0), score=Median())

if __name__ == "__main__":
    print(pt.decide(MEDIAN, threshold=0.75, rng=1))
    print("of the mean return:", pt.decide(AGENT, threshold=0.75, rng=1).answer)
    print(pt.evaluate(MEDIAN, epsilon=0.05, rng=1))
