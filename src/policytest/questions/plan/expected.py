r"""Where samples should go, and the evidence to expect of them, if a kernel is true. No simulation.

Of the KL rule with visits n and counts N so far, and t further samples with shares omega, expect

    e(t) = distance(p, n + t omega) - (dimension term of N + t omega p),        and it stops where e(t) = log(1/delta).

At the true kernel that is 2% above the mean number of samples, with a standard deviation of 4 to 5%, over random
instances of 2 to 8 states (`benchmarks/planning.py`).

Paper: `thm:stat_lower`, `thm:sample`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from policytest._base.arrays import FloatArray, Kernel
from policytest.data.counts import Counts
from policytest.kl.boundaries import Boundary, average, boundary_terms
from policytest.mdp.task import Task
from policytest.mdp.values import occupancy, state_values
from policytest.worst_case import nearest_kernel
from policytest.worst_case.lower_bound import Allocation, characteristic_time, optimal_allocation, uniform_allocation
from policytest.worst_case.projection_free import ProjectionFree

MANY_ENTRIES = 5_000  # tasks with more allowed transitions are solved for less accurately
EXPLORE = 0.05  # the share of the best allocation that goes to all pairs equally
ALLOCATION_WORK, MOST_SOLVES, FEWEST_SOLVES = 6_000, 300, 6  # solves times pairs, for the best allocation
NO_END = 1e15  # more samples than this are not looked for


def any_unknown(task: Task) -> bool:
    """Whether there is a row to sample from."""
    return bool(task.layout.unknown_pairs.any())


def fast_solver(task: Task) -> ProjectionFree:
    """Of all distances here; in large tasks no more accurate than a plan can be. What it finds is feasible anyway."""
    return (
        ProjectionFree() if task.layout.n_entries <= MANY_ENTRIES else ProjectionFree(tolerance=1e-5, max_iterations=25)
    )


# ---------------------------------------------------------------- where


def best_allocation(task: Task, kernel: Kernel, threshold: float) -> Allocation:
    """`optimal_allocation`; with fewer solves in tasks of many pairs, where the shares of `_neyman` may be better."""
    pairs = int(task.layout.unknown_pairs.sum())
    solves = max(FEWEST_SOLVES, ALLOCATION_WORK // max(pairs, 1))
    is_large = task.layout.n_entries > MANY_ENTRIES
    if is_large and task.any_successor:  # each solve lists the successors it wants, one after the other
        solves = 1
    solver = fast_solver(task) if is_large else None
    best = optimal_allocation(task, kernel, threshold, solver, max_solves=min(MOST_SOLVES, solves))
    if solves >= MOST_SOLVES or best.time in (0.0, math.inf) or task.horizon is not None:  # values change with the step
        return best
    weights = _neyman(task, kernel)
    time = characteristic_time(task, kernel, weights, threshold, fast_solver(task)).time
    return replace(best, weights=weights, time=time) if time < best.time else best


def _neyman(task: Task, kernel: Kernel) -> FloatArray:
    """[S,A] the best shares for a threshold close to the value: in proportion to d(s) pi(a|s) sd(r + gamma V(x)).

    The variance of the estimated value is, to first order, the sum of (d pi)^2 var(r + gamma V)/n over pairs.
    """
    rows, p, _ = task.rows_of("kernel", task.check_kernel("kernel", kernel))
    gain = rows.rewards() + task.discount * state_values(task, kernel)[rows.successor]
    centred = gain - rows.per_entry(rows.sums(p * gain))
    weights = np.zeros(task.policy.size)
    weights[rows.pair] = occupancy(task, kernel)[rows.state] * rows.prob * np.sqrt(rows.sums(p * centred**2))
    even = uniform_allocation(task)
    weights = np.where(even > 0, weights.reshape(even.shape), 0.0)
    return explored(weights / weights.sum(), even) if weights.any() else even


def explored(weights: FloatArray, even: FloatArray) -> FloatArray:
    """Most of it as these shares say, and a little everywhere."""
    return np.asarray((1.0 - EXPLORE) * weights + EXPLORE * even)


# ---------------------------------------------------------------- how many


class Prospect:
    """The evidence to expect after further samples, if a kernel is true: e = distance - (dimension term)."""

    def __init__(
        self,
        task: Task,
        threshold: float,
        delta: float,
        kernel: Kernel,
        boundary: Boundary,
        counts: Counts | None = None,
        share: float = 1.0,  # of the distance that counts: a solver with a proof may fall a little short of it
    ) -> None:
        self.task, self.threshold, self.required, self.share = task, threshold, -math.log(delta), share
        self.kernel = kernel
        self.rows, self.p, _ = task.rows_of("kernel", kernel)
        self.terms = boundary_terms(boundary, task, self.rows)
        self.N, self.n = np.zeros(self.rows.n_entries), np.zeros(len(self.rows.pair))
        if counts is not None:
            self.N = self.rows.pick(counts.N, task.n_states)
            self.n = counts.visits.ravel()[self.rows.pair].astype(np.float64)

    def visits(self) -> FloatArray:
        """[S,A] the visits so far."""
        table = np.zeros(self.task.n_states * self.task.n_actions)
        table[self.rows.pair] = self.n
        return table.reshape(self.task.n_states, self.task.n_actions)

    def distance(self, more: FloatArray) -> float:
        """The distance to the other side after these further samples [S,A], if they turn out as expected."""
        visits = self.visits() + more
        return nearest_kernel(self.task, self.kernel, visits, self.threshold, fast_solver(self.task)).upper

    def dimension(self, more: FloatArray) -> float:
        """The dimension term then."""
        extra = more.ravel()[self.rows.pair]
        N = self.N + self.rows.per_entry(extra) * self.p
        return average(self.terms.dimensions(self.rows.start, N, self.n + extra))

    def time(self, more: Callable[[float], FloatArray], distance: Callable[[float], float]) -> float:
        """The least t at which distance(t) - dimension(more(t)) reaches log(1/delta), to one in a thousand."""

        def missing(t: float) -> float:
            return self.required + self.dimension(more(t)) - self.share * distance(t)

        if missing(0.0) <= 0.0:
            return 0.0
        low, high = 0.0, 64.0
        while missing(high) > 0.0:
            low, high = high, 4.0 * high
            if high > NO_END:
                return math.inf
        while high - low > max(1e-3 * high, 0.5):
            middle = 0.5 * (low + high) if low == 0.0 or high < 4.0 * low else math.sqrt(low * high)
            low, high = (low, middle) if missing(middle) <= 0.0 else (middle, high)
        return float(math.ceil(high))


def expected_samples(
    task: Task, threshold: float, delta: float, kernel: Kernel, boundary: Boundary, omega: FloatArray | None = None
) -> float:
    """The t at which the expected evidence of the KL rule, t/T* - (dimension term of t omega p), suffices."""
    shares = uniform_allocation(task) if omega is None else omega
    rate = nearest_kernel(task, kernel, shares, threshold, fast_solver(task)).upper
    return Prospect(task, threshold, delta, kernel, boundary).time(lambda t: t * shares, lambda t: t * rate)
