"""The bets of both sides: their capital, the rollouts they were settled with, and the thresholds these would refute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.rollouts import Stakes
from policytest.methods.betting.plan import BettingPlan

INTERVAL_FRACTIONS = 0.995 * 0.5 ** np.arange(12)  # for intervals, where no fraction is favoured
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
            self.stretches.append(Stretch([sums], *about, plan.fractions))

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
            stretches.append(Stretch([np.array([worst])], plan.L, plan.sign * plan.lead, plan.sign, plan.fractions))
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
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; capital that the rollouts do not make is refused."""
        shape, lengths = self.capital.shape, state["lengths"]
        self.capital = np.array(state["capital"], dtype=np.float64)
        sums = np.split(np.array(state["sums"], dtype=np.float64), np.cumsum(lengths)[:-1]) if len(lengths) else []
        fractions = np.array(state["fractions"], dtype=np.float64)
        self.stretches = [
            Stretch([part], float(L), float(start), float(sign), chosen)
            for part, (L, start, sign), chosen in zip(sums, state["stretches"], fractions, strict=True)
        ]
        if not all(self.are_fractions(stretch.fractions) for stretch in self.stretches):
            raise ValueError("the bets are not fractions")
        capital = np.zeros(shape)
        for stretch in self.stretches:
            capital[0 if stretch.sign > 0 else 1] += np.log1p(np.outer(stretch.ratios, stretch.fractions)).sum(axis=0)
        if self.capital.shape != shape or not np.allclose(capital, self.capital, rtol=1e-9, atol=1e-9):
            raise ValueError("the capital is not that of the rollouts")

    def are_fractions(self, fractions: FloatArray) -> bool:
        """Whether these can be the fractions of a bet."""
        return fractions.shape == self.log_weights.shape and bool(((fractions > 0) & (fractions < 1)).all())


class Refuter:
    """The rollouts of one side, in its units: which thresholds would their bets refute?

    The same rollouts serve every threshold at once: 1 + f (rho.V0 - R + S)/(L - rho.V0 + R) falls in R, and is fair for
    every R, since f was chosen beforehand. With ``log_weights`` the fractions are those that were staked: at the tested
    threshold the capital is that of the test. Without, `INTERVAL_FRACTIONS` with equal weights.
    """

    def __init__(self, stretches: Sequence[Stretch], log_weights: FloatArray | None = None) -> None:
        lengths = [len(stretch.sums) for stretch in stretches]
        start = np.array([stretch.sign * stretch.start for stretch in stretches])
        L = np.array([stretch.L for stretch in stretches])
        self.earned = np.concatenate([np.zeros(0), *(stretch.sums for stretch in stretches)]) + np.repeat(
            start, lengths
        )
        self.room = np.repeat(L - start, lengths)
        self.fractions, self.owner = INTERVAL_FRACTIONS[None, :], None
        self.log_weights = np.full(len(INTERVAL_FRACTIONS), -np.log(len(INTERVAL_FRACTIONS)))
        if log_weights is not None:
            self.log_weights, self.owner = log_weights, np.repeat(np.arange(len(stretches)), lengths)
            self.fractions = np.array([stretch.fractions for stretch in stretches]).reshape(-1, len(log_weights))

    def log_capital(self, R: float) -> float:
        """The logarithm of the capital, averaged over fractions."""
        ratio = (self.earned - R) / np.maximum(self.room + R, 1e-300)
        total = [
            np.log1p(np.maximum((f if self.owner is None else f[self.owner]) * ratio, LEAST_FACTOR - 1.0)).sum()
            for f in self.fractions.T
        ]
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


def surely(level: float) -> float:
    """A little more than a level: what reaches it in compiled code reaches the level, however it is added up."""
    return level + 1e-12 * (1.0 + abs(level))
