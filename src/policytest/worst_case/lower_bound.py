r"""How many samples any test needs (section 4), and the allocation that needs fewest.

For an allocation omega over pairs, Theorem `thm:stat_lower` bounds every delta-correct test from below,

    liminf E[tau] / log(1/delta) >= T*_omega(p),     1/T*_omega(p) = inf over q with V_q beyond R of sum omega KL(p, q),

which is `nearest_kernel` with weights omega. As an infimum of linear functions, omega -> 1/T*_omega is concave, with
supergradient KL_sa(p, q*): each confusing kernel q bounds every allocation at once, 1/T*_omega <= sum omega KL(p, q).
The smallest bound, maximised over omega, is a small linear program. Its value shows how far from optimal an
allocation can be, and drives the search for a better one.

One kernel alone bounds every allocation by its largest divergence, so that max over omega of 1/T*_omega <= c, the
smallest c at which {q : KL_sa(p, q) <= c for every pair} reaches the threshold. With the slopes of the value by the
budget of each pair as allocation, the kernel that reaches it is stationary for `nearest_kernel`. Where it is also the
nearest, the two bounds meet: the allocation is optimal, and 1/T* = c. That is so near the value; far from it several
kernels may be equally confusing, and the search goes on.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.compiled import search
from policytest._base.errors import InputError
from policytest.mdp.horizon import SERVED
from policytest.mdp.listed_rewards import lists_rewards, outcomes_of
from policytest.mdp.task import Task
from policytest.worst_case import Bracket, Solver, Status, nearest_kernel
from policytest.worst_case.ball import kl_rows
from policytest.worst_case.horizon import has_gradient
from policytest.worst_case.problem import InverseProblem, lay_out
from policytest.worst_case.projection_free import ProjectionFree

MOST_BOXES, MOST_SWEEPS = 40, 100  # of the search for the smallest box: sizes tried, and iterations for each
BEYOND = 1e-10  # how far beyond the threshold it aims, as a share of the way from the value


@dataclass(frozen=True, eq=False)
class LowerBound:
    """The characteristic time T* of an allocation.

    ``time`` = 1/(upper end of the distance), itself a lower bound on T*; ``bracket`` = (1/upper, 1/lower);
    ``kernel``, the confusing kernel: the nearest one found on the other side of the threshold; ``status``, how the
    search for it ended.
    """

    time: float
    bracket: tuple[float, float]
    kernel: Kernel | None
    certified: bool
    status: Status


@dataclass(frozen=True, eq=False)
class Allocation:
    """An allocation ``weights`` [S,A] summing to 1, and its characteristic ``time``, proved to be at least this.

    ``upper_bound`` bounds 1/T*_omega over *all* allocations omega: none has a characteristic time below
    1/upper_bound. Proved whatever the solver did, because it uses only kernels on the other side of the threshold.
    ``status``: how the last search for a confusing kernel ended.
    """

    weights: FloatArray
    time: float
    upper_bound: float
    status: Status

    @property
    def gap(self) -> float:
        """How much shorter, relatively, the best time can be: time * upper_bound - 1, if ``time`` is exact.

        A solver that proves nothing may have missed a nearer kernel; then the time is longer, and the gap larger.
        """
        if self.time in (0.0, np.inf):  # no samples help, or none are needed, whatever the allocation
            return 0.0
        return self.time * self.upper_bound - 1.0


def uniform_allocation(task: Task) -> FloatArray:
    """[S,A] equal weights over pairs with pi(a|s) > 0 whose row is not known; they sum to 1."""
    sampled = task.layout.unknown_pairs
    if not sampled.any():
        raise InputError("every row the policy takes is known; there is nothing to sample")
    return np.asarray(sampled / sampled.sum())


def characteristic_time(
    task: Task,
    kernel: Kernel,
    allocation: object = None,
    threshold: float = 0.0,
    solver: Solver | None = None,
) -> LowerBound:
    """T*_omega(p): any delta-correct test needs about T* log(1/delta) samples when p is the truth.

    Paper: `thm:stat_lower`, `eq:Tbo`. ``allocation`` [S,A] sums to 1; None or "uniform" is uniform. Where rewards are
    `Observed(values=[...])`, kernels are [S,A,S,m], the law of next state and value.
    """
    if lists_rewards(task):
        outcomes, weights = outcomes_of(task), check_allocation(task, allocation)
        centre = outcomes.kernel("kernel", kernel)
        found = characteristic_time(outcomes.table, centre, outcomes.shares(weights), threshold, solver)
        return found if found.kernel is None else replace(found, kernel=outcomes.law(found.kernel))
    weights = check_allocation(task, allocation)
    centre = _checked_kernel(task, kernel)
    distance = nearest_kernel(task, centre, weights, threshold, solver)
    return LowerBound(
        _inverse(distance.upper),
        (_inverse(distance.upper), _inverse(distance.lower)),
        distance.kernel,
        distance.certified,
        distance.status,
    )


def optimal_allocation(
    task: Task,
    kernel: Kernel,
    threshold: float = 0.0,
    solver: Solver | None = None,
    tolerance: float = 1e-3,
    max_solves: int = 300,
) -> Allocation:
    """The allocation with the smallest characteristic time: the maximum of the concave 1/T* over allocations.

    Tries the uniform allocation and the one of `_equal_divergences` first; then an entropic level method. All confusing
    kernels met so far give a concave upper model of 1/T*; the next allocation is the one nearest to the best so far (in
    KL) at which the model reaches half-way to its maximum. Stops when the model shows the best to be within
    ``tolerance`` (relative) of the optimum, or after about ``max_solves`` solves.
    """
    arrays.positive(tolerance=tolerance, max_solves=max_solves)
    if lists_rewards(task):
        outcomes = outcomes_of(task)
        centre = outcomes.kernel("kernel", kernel)
        best = optimal_allocation(outcomes.table, centre, threshold, solver, tolerance, max_solves)
        return replace(best, weights=best.weights[: task.n_states])
    start = uniform_allocation(task)
    centre = _checked_kernel(task, kernel)
    first = nearest_kernel(task, centre, start, threshold, solver)
    if first.kernel is None or first.upper == 0.0:
        return Allocation(start, _inverse(first.upper), first.upper, first.status)

    model = _Model(start)
    weights, found = start, first
    equal = _equal_divergences(task, centre, threshold)
    if equal is not None:
        model.add(start, _cuts(centre, first))
        weights, found = equal
    careful = solver or ProjectionFree(starts=8)
    for _ in range(0, max_solves, 2):
        model.add(weights, _cuts(centre, found))
        if model.bound <= (1 + tolerance) * model.rate:  # close, unless a nearer kernel was missed at the best
            other = nearest_kernel(task, centre, model.best, threshold, careful)
            model.add(model.best, _cuts(centre, other))
            found = other
            if model.bound <= (1 + tolerance) * model.rate:
                break
        weights = model.next_allocation()
        cold = nearest_kernel(task, centre, weights, threshold, solver)
        warm = nearest_kernel(task, centre, weights, threshold, solver, found)
        found = min(cold, warm, key=lambda bracket: bracket.upper)
    return Allocation(model.best, _inverse(model.rate), model.bound, found.status)


def _equal_divergences(task: Task, centre: Kernel, threshold: float) -> tuple[FloatArray, Bracket] | None:
    """The kernel of `_smallest_box`, and its allocation -d phi/d b_sa (envelope theorem); None where there is none."""
    problem = None if has_gradient(task) else lay_out(task, centre, task.layout.unknown_pairs)
    found = None if problem is None or problem.is_open else _smallest_box(problem, threshold)
    if problem is None or found is None:
        return None
    entries, price = found
    shares, weights = price / price.sum(), np.zeros(task.policy.size)
    weights[problem.rows.pair] = shares
    loss, trail = float(shares @ problem.row_losses(entries)), (problem.rows, entries)
    kernel, eta = problem.kernel(entries), float(price.sum())
    return weights.reshape(task.policy.shape), Bracket(0.0, loss, kernel, eta, Status.HEURISTIC, False, trail=trail)


def _smallest_box(problem: InverseProblem, threshold: float) -> tuple[FloatArray, FloatArray] | None:
    """The kernel [E] beyond the threshold with the smallest largest divergence, and -d phi/d b [K].

    phi(c), the extreme value over {q : KL_sa(p, q) <= b_sa = c}, is close to a line in sqrt(c): Newton's method there,
    aimed a little beyond the threshold. None where no such kernel was found.
    """
    task, free = problem.task, problem.n > 0
    gap = problem.value(problem.p) - threshold
    sign, margin = float(np.sign(gap)), BEYOND * abs(gap)
    low, root, high, found = 0.0, 0.1, np.inf, None
    for _ in range(MOST_BOXES):
        _, entries, value, slope = search.robust_box(
            problem.rows, task.discount, task.initial, problem.p, root * root * problem.n, sign, MOST_SWEEPS
        )
        price, above = np.where(np.isfinite(slope) & free, -slope, 0.0), sign * (value - threshold)
        if not price.any():
            break
        if above > 0:
            low = root
        else:
            high, found = root, (entries, price)
        if -2.0 * margin <= above <= 0:
            break
        ahead = root + (above + margin) / (2.0 * root * price.sum())
        root = ahead if low < ahead < min(high, 4.0 * root) else min(0.5 * (low + high), 2.0 * root)
    if found is None or sign * (problem.value(found[0]) - threshold) > 0:
        return None
    return found


def _cuts(centre: Kernel, found: Bracket) -> list[FloatArray]:
    """The divergences of the confusing kernel, row by row; none where no kernel was found."""
    cut = np.array([np.inf]) if found.kernel is None else kl_rows(centre, found.kernel)
    return [cut] if np.isfinite(cut).all() else []


class _Model:
    """Cuts <omega, KL(p, q)> >= 1/T*_omega, one for each confusing kernel q met, and the allocations tried.

    A cut holds for every allocation, so each new one may also lower what an earlier allocation is credited with:
    a descent that starts from another kernel can reveal a nearer one.
    """

    def __init__(self, start: FloatArray) -> None:
        self.shape, self.sampled = start.shape, start > 0
        self.cuts = np.empty((0, int(self.sampled.sum())))
        self.tried = np.empty_like(self.cuts)
        self.rates = np.empty(0)
        self.bound = np.inf

    @property
    def rate(self) -> float:
        """The best 1/T* so far."""
        return float(self.rates.max())

    @property
    def best(self) -> FloatArray:
        """[S,A] the best allocation so far."""
        weights = np.zeros(self.shape)
        weights[self.sampled] = self.tried[int(np.argmax(self.rates))]
        return weights

    def add(self, weights: FloatArray, cuts: list[FloatArray]) -> None:
        """Record an allocation and the cuts found at it, and tighten the bound."""
        new = np.array([cut.reshape(self.shape)[self.sampled] for cut in cuts]).reshape(-1, self.cuts.shape[1])
        self.cuts = np.vstack([self.cuts, new])
        self.rates = np.minimum(self.rates, (self.tried @ new.T).min(axis=1, initial=np.inf))
        mine = weights[self.sampled]
        self.tried = np.vstack([self.tried, mine])
        self.rates = np.append(self.rates, (self.cuts @ mine).min())
        self.bound = min(self.bound, self._maximum())

    def _maximum(self) -> float:
        """The maximum of the model over allocations, by linear programming; proved by its dual prices.

        A mixture of cuts bounds every allocation by its largest entry, whatever the accuracy of the prices.
        """
        count = self.cuts.shape[1]
        result = scipy.optimize.linprog(
            c=np.append(np.zeros(count), -1.0),
            A_ub=np.column_stack([-self.cuts / self.rate, np.ones(len(self.cuts))]),
            b_ub=np.zeros(len(self.cuts)),
            A_eq=np.append(np.ones(count), 0.0)[None, :],
            b_eq=[1.0],
            bounds=[(0, None)] * count + [(None, None)],
        )
        if result.status != 0:
            return float(self.cuts.max(axis=1).min())
        prices = np.maximum(-result.ineqlin.marginals, 0.0)
        return float((prices / prices.sum() @ self.cuts).max())

    def next_allocation(self) -> FloatArray:
        """[S,A] the allocation nearest to the best, in KL, whose cuts all reach half-way from the best to the bound.

        omega = omega_best exp(prices.cuts)/Z, with the prices of the constraints from a small dual problem.
        """
        cuts = self.cuts / self.rate
        halfway = 0.5 * (1.0 + self.bound / self.rate)
        origin = np.log(np.maximum(self.tried[int(np.argmax(self.rates))], 1e-300))

        def dual(prices: FloatArray) -> tuple[float, FloatArray]:
            tilted = origin + prices @ cuts
            top = tilted.max()
            weights = np.exp(tilted - top)
            total = weights.sum()
            return float(top + np.log(total) - halfway * prices.sum()), cuts @ (weights / total) - halfway

        start = np.zeros(len(cuts))
        found = scipy.optimize.minimize(dual, start, jac=True, method="L-BFGS-B", bounds=[(0, 1e6)] * len(cuts)).x
        tilted = origin + found @ cuts
        weights = np.zeros(self.shape)
        weights[self.sampled] = np.exp(tilted - tilted.max())
        return np.asarray(weights / weights.sum())


def _checked_kernel(task: Task, kernel: Kernel) -> Kernel:
    """The kernel, checked under its own name."""
    if not has_gradient(task):
        task.check_discounted_table("the lower bound", SERVED)
    checked = task.check_kernel("kernel", kernel)
    task.rows_of("kernel", checked)
    return checked


def check_allocation(task: Task, allocation: object) -> FloatArray:
    """[S,A] shares that sum to 1; None or "uniform" is uniform."""
    if allocation is None or (isinstance(allocation, str) and allocation == "uniform"):
        return uniform_allocation(task)
    weights = arrays.real_array("allocation", allocation, (task.n_states, task.n_actions))
    arrays.no_negative("allocation", weights, "shares")
    if abs(weights.sum() - 1) > arrays.SUM_TOLERANCE:
        raise InputError(f"allocation sums to {weights.sum():.9g}, not 1; divide it by its sum")
    return weights


def _inverse(distance: float) -> float:
    return np.inf if distance == 0 else 1.0 / distance
