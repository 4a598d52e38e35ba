r"""How many samples any test needs (section 4), and the allocation that needs fewest.

For an allocation omega over pairs, Theorem `thm:stat_lower` bounds every delta-correct test from below,

    liminf E[tau] / log(1/delta) >= T*_omega(p),      1/T*_omega(p) = inf over q with V_q beyond R of sum omega KL(p, q),

which is `nearest_kernel` with weights omega. As an infimum of linear functions, omega -> 1/T*_omega is concave, with
supergradient KL_sa(p, q*), so the best allocation is found by exponentiated gradient steps. Each confusing kernel q met
on the way also bounds every allocation at once: 1/T*_omega <= sum omega KL(p, q). The smallest of these bounds,
maximised over omega, is a small linear program whose value shows how far from optimal the result can be.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import linprog

from policytest import _checks
from policytest._checks import FloatArray, InputError, Kernel
from policytest.kl import kl_rows
from policytest.task import Task
from policytest.worst_case import Bracket, Solver, nearest_kernel


@dataclass(frozen=True, eq=False)
class LowerBound:
    """The characteristic time T* of an allocation.

    ``time`` = 1/(upper end of the distance), itself a lower bound on T*; ``bracket`` = (1/upper, 1/lower);
    ``kernel``, the confusing kernel: the nearest one found on the other side of the threshold.
    """

    time: float
    bracket: tuple[float, float]
    kernel: Kernel | None
    certified: bool


@dataclass(frozen=True, eq=False)
class Allocation:
    """An allocation ``weights`` [S,A] summing to 1, and its characteristic ``time``.

    ``upper_bound`` bounds 1/T*_omega over *all* allocations omega: none has a characteristic time below
    1/upper_bound. Proved whatever the solver did, because it uses only kernels on the other side of the threshold.
    """

    weights: FloatArray
    time: float
    upper_bound: float

    @property
    def gap(self) -> float:
        """How much shorter, relatively, the best time can be: time * upper_bound - 1."""
        return self.time * self.upper_bound - 1.0


def uniform_allocation(task: Task) -> FloatArray:
    """[S,A] equal weights over pairs with pi(a|s) > 0 whose row is not known; they sum to 1."""
    sampled = (task.policy > 0) & ~task.known_rows
    if not sampled.any():
        raise InputError("every row the policy takes is known; there is nothing to sample")
    return np.asarray(sampled / sampled.sum())


def characteristic_time(
    task: Task,
    kernel: Kernel,
    allocation: Any = None,
    threshold: float = 0.0,
    solver: Solver | None = None,
) -> LowerBound:
    """T*_omega(p): any delta-correct test needs about T* log(1/delta) samples when p is the truth.

    Paper: `thm:stat_lower`, `eq:Tbo`. ``allocation`` [S,A] sums to 1; None is uniform.
    """
    weights = _allocation(task, allocation)
    distance = nearest_kernel(task, kernel, weights, threshold, solver)
    return LowerBound(
        _inverse(distance.upper), (_inverse(distance.upper), _inverse(distance.lower)), distance.kernel, distance.certified
    )


def optimal_allocation(
    task: Task,
    kernel: Kernel,
    threshold: float = 0.0,
    solver: Solver | None = None,
    tolerance: float = 1e-3,
    max_solves: int = 300,
) -> Allocation:
    """The allocation with the smallest characteristic time, by exponentiated gradient ascent on 1/T*.

    Stops when the bound shows it within ``tolerance`` (relative) of the optimum, or after ``max_solves`` solves.
    """
    start = uniform_allocation(task)
    centre = task.check_kernel("kernel", kernel)
    first = nearest_kernel(task, centre, start, threshold, solver)
    if first.kernel is None or first.upper == 0.0:
        return Allocation(start, _inverse(first.upper), first.upper)
    ascent = _Ascent(task, centre, threshold, solver, start, first)
    for solve in range(1, max_solves):
        ascent.step()
        if solve % 5 == 0 and ascent.bound() <= (1 + tolerance) * ascent.rate:
            break
    return Allocation(ascent.weights, _inverse(ascent.rate), ascent.bound())


class _Ascent:
    """The state of the exponentiated gradient: the best allocation so far, its cut, and all cuts met."""

    def __init__(
        self, task: Task, centre: Kernel, threshold: float, solver: Solver | None, weights: FloatArray, first: Bracket
    ) -> None:
        self.task, self.centre, self.threshold, self.solver = task, centre, threshold, solver
        self.sampled = weights > 0
        self.weights, self.rate, self.warm = weights, first.upper, first
        self.cuts = [self._cut(first)]
        self.slope = self.cuts[0]
        self.length = 1.0

    def step(self) -> None:
        """One trial step; a longer one next time if 1/T* rose, a shorter one if it fell."""
        relative = np.where(self.sampled, self.slope / self.slope[self.sampled].max(), -np.inf)
        trial = self.weights * np.exp(self.length * (relative - 1.0))
        trial = trial / trial.sum()
        found = nearest_kernel(self.task, self.centre, trial, self.threshold, self.solver, self.warm)
        if found.kernel is None:
            self.length *= 0.25
            return
        cut = self._cut(found)
        self.cuts.append(cut)
        if found.upper > self.rate:
            self.weights, self.rate, self.slope, self.warm = trial, found.upper, cut, found
            self.length *= 1.5
        else:
            self.length *= 0.4

    def bound(self) -> float:
        """max over allocations of the smallest cut: an upper bound of 1/T* for every allocation."""
        cuts = np.array([cut[self.sampled] for cut in self.cuts])
        scale = self.rate
        count = cuts.shape[1]
        result = linprog(
            c=np.append(np.zeros(count), -1.0),
            A_ub=np.column_stack([-cuts / scale, np.ones(len(cuts))]),
            b_ub=np.zeros(len(cuts)),
            A_eq=np.append(np.ones(count), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0, None)] * count + [(None, None)],
        )
        if result.status != 0:
            return float(cuts.max(axis=1).min())
        prices = np.maximum(-result.ineqlin.marginals, 0.0)  # a mixture of cuts bounds every allocation by its maximum
        return float((prices / prices.sum() @ cuts).max())

    def _cut(self, found: Bracket) -> FloatArray:
        """[S,A] KL_sa(p, q) of a kernel on the other side: 1/T*_omega <= sum omega KL(p, q) for every omega."""
        return kl_rows(self.centre, found.kernel).reshape(self.weights.shape)


def _allocation(task: Task, allocation: Any) -> FloatArray:
    if allocation is None:
        return uniform_allocation(task)
    weights = _checks.real_array("allocation", allocation, (task.n_states, task.n_actions))
    _checks.probability_rows("allocation", weights.ravel())
    return weights


def _inverse(distance: float) -> float:
    return np.inf if distance == 0 else 1.0 / distance
