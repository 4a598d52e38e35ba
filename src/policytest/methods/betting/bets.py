"""The bets of both sides: their capital, the rollouts they were settled with, and the thresholds these would refute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.rollouts import Stakes, log_capitals
from policytest.methods.betting.plan import LOG_WIDE, BettingPlan

MANY_PARTS = 512  # pieces after which the sums of rollouts are put together
LEAST_FACTOR = 1e-15  # of a bet on an unfinished rollout, and of bets settled against other thresholds


@dataclass
class Stretch:
    """Consecutive rollouts with the same bets."""

    parts: list[FloatArray]  # the sums S of its rollouts, in pieces
    L: float
    start: float  # rho.V0, less the threshold
    sign: float
    fractions: FloatArray
    wide: FloatArray  # the fractions of intervals

    @property
    def sums(self) -> FloatArray:
        """The sums S of its rollouts."""
        if len(self.parts) > 1:
            self.parts[:] = [np.concatenate(self.parts)]
        return self.parts[0]

    @property
    def ratios(self) -> FloatArray:
        """(lead + S)/(L - lead): what a full bet wins."""
        lead = self.sign * self.start
        return np.asarray((lead + self.sums) / (self.L - lead))


class Bets:
    """The logarithms of the capital of both sides [2, F], and the rollouts that it was made with."""

    def __init__(self, log_weights: FloatArray) -> None:
        self.log_weights = log_weights
        self.capital = np.zeros((2, len(log_weights)))
        self.stretches: list[Stretch] = []

    @property
    def rollouts(self) -> int:
        """How many rollouts were settled."""
        return sum(sum(map(len, stretch.parts)) for stretch in self.stretches)

    def mean_square(self, plan: BettingPlan) -> float:
        """The mean of S^2 so far, in units of the room, with one rollout more that has lost all."""
        squares, room = sum(float((stretch.sums**2).sum()) for stretch in self.stretches), max(plan.room, 1e-150)
        return (1.0 + squares / room**2) / (self.rollouts + 1)

    def stakes(self, plan: BettingPlan) -> Stakes:
        """The bets of the plan's side, for the compiled code, which settles them."""
        return Stakes(plan.fractions, self.log_weights, self.capital[plan.side], plan.L, plan.sign, plan.lead)

    def keep(self, plan: BettingPlan, sums: FloatArray) -> None:
        """Rollouts with this plan were settled."""
        about = plan.L, plan.sign * plan.lead, plan.sign
        last = self.stretches[-1] if self.stretches else None
        if last and (last.L, last.start, last.sign) == about and np.array_equal(last.fractions, plan.fractions):
            last.parts.append(sums)
            if len(last.parts) > MANY_PARTS:
                last.parts[:] = [np.concatenate(last.parts)]
        else:
            self.stretches.append(Stretch([sums], *about, plan.fractions, plan.wide))

    def pending(self, plan: BettingPlan, worst: float) -> FloatArray:
        """The logarithms of the factors of an unfinished rollout that ends with the sum ``worst``."""
        factors = plan.fractions * (plan.lead + worst) / plan.room
        return np.asarray(np.log1p(np.maximum(factors, LEAST_FACTOR - 1.0)))

    def evidence(self, plan: BettingPlan, worst: float | None) -> tuple[float, float]:
        """The logarithm of the capital of each side; with an unfinished rollout, whose sum is at worst this."""
        capital = self.capital.copy()
        if worst is not None:
            capital[plan.side] += self.pending(plan, worst)
        first, second = np.logaddexp.reduce(capital + self.log_weights, axis=1)
        return float(first), float(second)

    def refuter(self, sign: float, as_staked: bool, plan: BettingPlan, worst: float | None = None) -> Refuter:
        """The rollouts of one side, to be settled against any threshold; with an unfinished one that ends at worst."""
        stretches = [*self.stretches]
        if worst is not None:
            about = plan.L, plan.sign * plan.lead, plan.sign
            stretches.append(Stretch([np.array([worst])], *about, plan.fractions, plan.wide))
        chosen = [stretch for stretch in stretches if stretch.sign == sign]
        return Refuter(chosen, self.log_weights if as_staked else None)

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """The capital and the rollouts, as arrays."""
        stretches = self.stretches
        about = [(stretch.L, stretch.start, stretch.sign) for stretch in stretches]
        return {
            "capital": self.capital.copy(),
            "lengths": np.array([len(stretch.sums) for stretch in stretches], dtype=np.int64),
            "sums": np.concatenate([np.zeros(0), *(stretch.sums for stretch in stretches)]),
            "stretches": np.array(about).reshape(-1, 3),
            "fractions": np.array([stretch.fractions for stretch in stretches]).reshape(-1, len(self.log_weights)),
            "wide": np.array([stretch.wide for stretch in stretches]).reshape(-1, len(LOG_WIDE)),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; capital that the rollouts do not make is refused."""
        shape, lengths = self.capital.shape, state["lengths"]
        self.capital = np.array(state["capital"], dtype=np.float64)
        sums = np.split(np.array(state["sums"], dtype=np.float64), np.cumsum(lengths)[:-1]) if len(lengths) else []
        fractions, wide = (np.array(state[name], dtype=np.float64) for name in ("fractions", "wide"))
        self.stretches = [
            Stretch([part], float(L), float(start), float(sign), chosen, near)
            for part, (L, start, sign), chosen, near in zip(sums, state["stretches"], fractions, wide, strict=True)
        ]
        if not all(self.are_fractions(stretch.fractions, stretch.wide) for stretch in self.stretches):
            raise ValueError("the bets are not fractions")
        capital = np.zeros(shape)
        for stretch in self.stretches:
            capital[0 if stretch.sign > 0 else 1] += np.log1p(np.outer(stretch.ratios, stretch.fractions)).sum(axis=0)
        if self.capital.shape != shape or not np.allclose(capital, self.capital, rtol=1e-9, atol=1e-9):
            raise ValueError("the capital is not that of the rollouts")

    def are_fractions(self, fractions: FloatArray, wide: FloatArray) -> bool:
        """Whether these can be the fractions of a bet, and of intervals."""
        both = np.concatenate([fractions, wide])
        fits = fractions.shape == self.log_weights.shape and wide.shape == LOG_WIDE.shape
        return fits and bool(((both >= 0) & (both < 1)).all())


class Refuter:
    """The rollouts of one side, in its units: which thresholds would their bets refute?

    The same rollouts serve every threshold at once: 1 + f (rho.V0 - R + S)/(L - rho.V0 + R) falls in R, and is fair for
    every R, since f was chosen beforehand. With ``log_weights`` the fractions are those that were staked: at the tested
    threshold the capital is that of the test. Without, they are those of intervals.
    """

    def __init__(self, stretches: Sequence[Stretch], log_weights: FloatArray | None = None) -> None:
        self.lengths = np.array([len(stretch.sums) for stretch in stretches], dtype=np.int64)
        start = np.array([stretch.sign * stretch.start for stretch in stretches])
        L = np.array([stretch.L for stretch in stretches])
        sums = np.concatenate([np.zeros(0), *(stretch.sums for stretch in stretches)])
        self.earned, self.room = sums + np.repeat(start, self.lengths), np.repeat(L - start, self.lengths)
        self.log_weights = LOG_WIDE if log_weights is None else log_weights
        chosen = [stretch.wide if log_weights is None else stretch.fractions for stretch in stretches]
        self.fractions = np.array(chosen).reshape(-1, len(self.log_weights))

    def log_capital(self, R: float) -> float:
        """The logarithm of the capital, averaged over fractions."""
        total = log_capitals(self.earned, self.room, self.lengths, self.fractions, R, LEAST_FACTOR)
        return float(np.logaddexp.reduce(total + self.log_weights))

    def largest(self) -> float:
        """The largest rho.V0 + S: beyond it no threshold is refuted."""
        return float(self.earned.max(initial=-np.inf))

    def up_to(self, worst: float, best: float, level: float) -> float:
        """The largest R, up to 2^-40 of the range, for which "V <= R" is refuted; ``worst`` where none is."""
        if np.isinf(worst):
            return worst
        low, high = worst, max(self.largest(), worst) if np.isinf(best) else best
        if self.log_capital(low + 1e-9 * (high - low)) < level:
            return worst
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_capital(middle) >= level else (low, middle)
        return low


class AveragedRefuter(Refuter):
    """Several refuters: the average of e-values is one."""

    def __init__(self, parts: Sequence[Refuter]) -> None:
        self.parts = parts

    def largest(self) -> float:
        """The largest of all."""
        return max((part.largest() for part in self.parts), default=-np.inf)

    def log_capital(self, R: float) -> float:
        """The logarithm of their average capital."""
        return float(np.logaddexp.reduce([part.log_capital(R) for part in self.parts]) - np.log(len(self.parts)))


def not_refuted(
    above: Refuter, below: Refuter, ends: tuple[float, float], threshold: float, level: float
) -> tuple[float, float]:
    """The values between these ends that the capital of neither side refutes at this level."""
    low, high = (end - threshold for end in ends)
    return above.up_to(low, high, level) + threshold, threshold - below.up_to(-high, -low, level)


def surely(level: float) -> float:
    """A little more than a level: what reaches it in compiled code reaches the level, however it is added up."""
    return level + 1e-12 * (1.0 + abs(level))
