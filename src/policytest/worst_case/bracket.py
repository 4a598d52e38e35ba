"""What a worst-case solver returns: a bracket around the optimum, and what of it is proved."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from policytest._base.arrays import FloatArray, Kernel
from policytest._base.rows import Rows


class Status(Enum):
    """How a solver ended, in words."""

    CONVERGED = "converged to a stationary point"
    PROVED = "both ends are proved"
    IMMEDIATE = "known without searching"
    LOOSE = "the ends are proved, but trivial or further apart than the solver's gap"
    ON_THRESHOLD = "the centre's value equals the threshold, where the algorithm has nothing to say"
    UNREACHABLE = "no kernel with a finite divergence reaches the threshold"
    HEURISTIC = "a heuristic ran its steps; nothing is known about the optimum beyond the kernel found"
    NOT_REACHED = "the search ended without a kernel on the other side of the threshold"
    ITERATION_LIMIT = "stopped at the iteration limit before converging"
    STALLED = "stopped because no step improved, before converging"
    LINEAR_SOLVE_FAILED = "stopped because a linear solve missed its accuracy"


@dataclass(frozen=True, eq=False)
class Bracket:
    """``lower <= optimum <= upper``, with the kernel that attains one end.

    Attributes
    ----------
    lower, upper
        The ends. A solver that proves nothing returns the trivial end (0 for a distance, the value range).
    kernel
        Attains ``upper`` for "min" and for distances, ``lower`` for "max"; None where no kernel was found.
    multiplier
        eta, the price of the budget: how much the extreme value moves per nat of radius (value units per nat),
        -du/dsigma in the paper. Paper: `lem:eta`.
    status
        How the solver ended.
    certified
        Both ends are proved and within the solver's tolerance of each other; a trivial end does not count.
    iterations
        Steps taken, over all starts.
    trail
        The kernel in the solver's own layout, which makes a warm start cheap.
    certificate
        The proof of the end that is not attained, where the solver has one.
    """

    lower: float
    upper: float
    kernel: Kernel | None
    multiplier: float
    status: Status
    certified: bool
    iterations: int = 0
    trail: tuple[Rows, FloatArray] | None = field(default=None, repr=False)
    certificate: Any = field(default=None, repr=False)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "trail": None}

    def __repr__(self) -> str:
        proof = "certified" if self.certified else "not certified"
        return f"Bracket([{self.lower:.9g}, {self.upper:.9g}], {proof}, {self.status.value})"


def started_at(rows: Rows, entries: FloatArray | None) -> Bracket | None:
    """A warm start at a kernel given by its entries on these rows; None where there is none."""
    if entries is None:
        return None
    return Bracket(0.0, float("inf"), None, 0.0, Status.HEURISTIC, certified=False, trail=(rows, entries))
