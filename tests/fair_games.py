"""All paths of a game with two outcomes, and what bets make of each of them: probabilities without simulation."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from policytest.eprocess.capital import Bet, EProcess
from policytest.eprocess.strategies import (
    ENDS,
    ENDS_OF_LOGS,
    ON_LOGS,
    ON_RETURNS,
    ON_STACKS,
    ONE_POLICY,
    OWN_DRAWS,
    TRUNCATED,
    TWO_POLICIES,
    IntervalGrid,
    Moments,
)

STRATEGIES = {
    "one policy": ONE_POLICY,
    "two policies": TWO_POLICIES,
    "returns": ON_RETURNS,
    "stacks": ON_STACKS,
    "logs": ON_LOGS,
    "own draws": OWN_DRAWS,
    "truncated": TRUNCATED,
}
ALL = {**STRATEGIES, "ends": ENDS, "ends of logs": ENDS_OF_LOGS}
ROOM = 1.0


class Law(NamedTuple):
    """Two outcomes, less the threshold."""

    worst: float
    best: float
    mean: float = 0.0

    @property
    def chance(self) -> float:
        """The probability of the best one."""
        return (self.mean - self.worst) / (self.best - self.worst)


LAWS = Law(-1.0, 0.25), Law(-1.0, 30.0), Law(-0.3, 0.4)


class Path(NamedTuple):
    chance: float
    process: EProcess
    peak: float  # the largest evidence along it


def fitted(strategy: Any, past: np.ndarray) -> np.ndarray:
    """The fractions that a strategy chooses after these outcomes."""
    seen = Moments()
    seen.add(past)
    if isinstance(strategy, IntervalGrid):
        return strategy.fractions(seen.variance(), seen.count)
    if not len(past):
        return strategy.fractions(None, 0.0, 0.0)
    return strategy.fractions(seen.variance(), seen.mean(), seen.count, 1.0, past - past.mean())


def bets_of(strategy: Any, wide: Any = ENDS) -> Callable[[tuple[float, ...]], Bet]:
    """The bet after each past; its room changes with the past, and is at least what can be lost."""

    @functools.cache
    def bet(past: tuple[float, ...]) -> Bet:
        x = np.array(past)
        return Bet(ROOM * (1.5 if len(past) % 3 == 2 else 1.0), fitted(strategy, x), fitted(wide, x))

    return bet


def peeking(strategy: Any, wide: Any = ENDS) -> Callable[[tuple[float, ...]], Bet]:
    """The control: nothing is staked on what will be lost, which nobody can know before."""
    fair = bets_of(strategy, wide)

    def bet(path: tuple[float, ...]) -> Bet:
        room, fractions, wide = fair(path[:-1])
        return Bet(room, fractions * (path[-1] > 0), wide * (path[-1] > 0))

    return bet


def paths(law: Law, depth: int, shares: tuple[np.ndarray, np.ndarray], bet: Any, peeks: bool) -> Iterator[Path]:
    """Every path of this length."""
    for path in itertools.product((law.worst, law.best), repeat=depth):
        process, peak = EProcess(*shares), -np.inf
        for t, x in enumerate(path):
            process.settle(bet(path[: t + 1] if peeks else path[:t]), np.array([x]))
            peak = max(peak, process.evidence())
        wins = path.count(law.best)
        yield Path(law.chance**wins * (1.0 - law.chance) ** (depth - wins), process, peak)


def game(strategy: Any, law: Law, depth: int, wide: Any = ENDS, peeks: bool = False) -> list[Path]:
    """All paths of a game with the fractions of a strategy; those of intervals are the strategy ``wide``."""
    shares = np.exp(strategy.log_weights), np.exp(wide.log_weights)
    return list(paths(law, depth, shares, (peeking if peeks else bets_of)(strategy, wide), peeks))


def breaks_ville(chances: Any, evidence: Any) -> bool:
    """Whether for some delta the evidence is log(1/delta) or more with probability above delta."""
    order = np.argsort(evidence)[::-1]
    at_least = np.cumsum(np.asarray(chances)[order])
    return bool((at_least > np.exp(-np.asarray(evidence)[order]) * (1.0 + 1e-9)).any())
