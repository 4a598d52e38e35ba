r"""The projection-free solver: conditional gradients in the reversed MDP, the direction the paper leaves open.

The gradient of the value is dV_q/dq(x|s,a) = d_q(s,a) (r(s,a,x) + gamma V_q(x)) (Lemma `lem:reversed_PG`).
A stationary point of either problem satisfies, row by row, with one multiplier lam = 1/eta for all rows,

    q(x|s,a) = n_sa p(x|s,a) / (y_sa + c_x),      c_x = +- lam d_q(s,a) (r(s,a,x) + gamma V_q(x)),

and y_sa fixed by sum_x q = 1: a linear cost against KL, solved exactly by one-dimensional roots
(`paper.row_problems.tilt_row`), unseen successors included. From the values and occupancies of the current kernel the
rows are computed for the lam at which

* (NO) the loss meets the radius: the exact linear minimisation over the ball. The segment to it stays in the
  convex ball, and a step along it never increases the value: the conditional gradient method;
* (NC) the linearised value meets the threshold: sequential convex programming with the convex loss kept exactly.
  The step never increases loss + mu [violation]_+, an exact penalty.

From q = p this takes 4 to 10 iterations on the paper's instances. In (NC) with few states, Newton's method on the
stationarity conditions, 2S+1 equations in (V, d, lam), jumps ahead once it converges: 2 or 3 iterations then do.
The limit is a *stationary point*: local minima exist, so nothing is proved (``certified`` is False), and ``starts`` > 1
tries other starting kernels. The kernel returned is feasible, and its value and loss are computed from it.

Rows without weight cost nothing: they go to their cheapest successor, by policy iteration. In sparse tasks
without declared support every state may succeed every pair; only the state with the lowest value can attract mass
as an unlisted successor, so it is listed, and the problem solved again, until no other state wants to be.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.compiled import search
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.problem import Extreme, InverseProblem, Nearest

STATUS = {
    search.CONVERGED: Status.CONVERGED,
    search.ITERATION_LIMIT: Status.ITERATION_LIMIT,
    search.STALLED: Status.STALLED,
    search.LINEAR_SOLVE_FAILED: Status.LINEAR_SOLVE_FAILED,
}
WIDENINGS = 50
MOST_KEPT = 10_000  # pseudo-random numbers of one start, up to which they are kept


@dataclass(frozen=True)
class ProjectionFree:
    """Conditional gradients: fast, feasible, a stationary point; never claims a proof.

    Parameters
    ----------
    starts
        How many starting kernels to try: the centre (or the warm start) first, then fixed pseudo-random ones.
    tolerance
        Stop when the linear model promises a relative improvement below this.
    max_iterations
        Limit for each start.
    """

    starts: int = 1
    tolerance: float = 1e-12
    max_iterations: int = 500

    def __post_init__(self) -> None:
        arrays.positive(starts=self.starts, tolerance=self.tolerance, max_iterations=self.max_iterations)

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """The best value found over the ball; the other end is the value range."""
        run = self._best(problem, warm)
        inside = run.problem.into_ball(run.entries, problem.radius)
        if inside is not run.entries:  # by rounding
            run = replace(run, entries=inside, value=run.problem.value(inside))
        return run.bracket(*problem.trivial_ends(run.value))

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """The least loss found among kernels on the other side; the lower end is 0."""
        run = self._best(problem, warm)
        if problem.task.n_states > search.DIRECT_SMALL:  # an iterative solve depends on its start: once more, from zero
            run = replace(run, value=run.problem.value(run.entries))
        if run.infeasibility > 0:  # rounding, or an unfinished search: step over the threshold
            run = self._cross(run)
        if run.infeasibility > 0:
            return Bracket(0.0, np.inf, None, run.price, run.status, certified=False, iterations=run.iterations)
        if run.loss == 0.0 and run.status is Status.CONVERGED:
            return Bracket(0.0, 0.0, run.problem.kernel(run.entries), np.inf, Status.IMMEDIATE, certified=True)
        return run.bracket(0.0, run.loss)

    def _cross(self, run: Descended) -> Descended:
        """Move a kernel that just misses the threshold across it: by aiming a little further, or else by mixing."""
        problem = run.problem
        for factor in (2.0, 10.0, 1e3, 1e5):
            further = replace(problem, threshold=problem.threshold - problem.sign * factor * run.infeasibility)
            again = self._run(further, run.entries, run.lam)
            again_value = again.problem.value(again.entries)
            if problem.sign * (again_value - problem.threshold) <= 0 and np.isfinite(again.loss):
                at = replace(again.problem, threshold=problem.threshold)
                return replace(run, problem=at, entries=again.entries, loss=again.loss, value=again_value)
        crossed = _beyond(problem, run.entries)
        if crossed is None:
            return run
        status = Status.STALLED if run.status is Status.CONVERGED else run.status
        loss, value = problem.loss(crossed), problem.value(crossed)
        return replace(run, entries=crossed, loss=loss, value=value, status=status)

    def _best(self, problem: Any, warm: Bracket | None) -> Descended:
        """The best end over all starts; a descent that does not reach the threshold is repeated from beyond it."""
        if problem.is_open:
            problem = _list_extreme_state(problem)
        runs = [self._run(problem, *_first_start(problem, warm))]
        first = runs[0]
        if first.infeasibility > 0 and (far := _beyond(first.problem, first.problem.p)) is not None:
            runs.append(self._run(first.problem, far, 0.0))
        for index in range(1, 1 if first.is_least else self.starts):
            runs.append(self._run(problem, _other_start(problem, index), 0.0))
        best = min(runs, key=lambda run: run.objective)
        return replace(best, iterations=sum(run.iterations for run in runs))

    def _run(self, problem: Any, start: FloatArray, lam: float) -> Descended:
        """Solve from one start; open rows list the successors they want, and the start is tried again."""
        task = problem.task
        nearest = isinstance(problem, Nearest)
        iterations = 0
        for widening in range(WIDENINGS + 1):
            entries = start.copy()
            unit, N, n = problem.scaled
            kernel, goal = (search.nearest, problem.threshold) if nearest else (search.extreme, problem.radius / unit)
            descent = search.Descent(problem.rows, task.discount, task.initial, N, n, goal, problem.sign)
            code, loss, value, found, steps = kernel(descent, entries, lam / unit, self.tolerance, self.max_iterations)
            iterations += steps
            wanted = _wanted_successor(problem, entries) if problem.is_open else None
            if wanted is None:
                break
            if widening == WIDENINGS:
                code = search.ITERATION_LIMIT
                break
            problem, places = problem.widened(wanted)
            start = problem.rows.spread(start, places)
        return Descended(problem, entries, float(found) * unit, float(loss) * unit, value, STATUS[code], iterations)


@dataclass(frozen=True, eq=False)
class Descended:
    """The end of a descent from one start."""

    problem: Any
    entries: FloatArray
    lam: float
    loss: float
    value: float
    status: Status
    iterations: int

    @property
    def objective(self) -> tuple[float, float]:
        """What to minimise: infeasibility first, then the loss or the value."""
        if not isinstance(self.problem, Nearest):
            return 0.0, self.problem.sign * self.value
        return self.infeasibility, self.loss

    @property
    def infeasibility(self) -> float:
        """How far the value is from reaching the threshold (NC); 0 if it is on the other side."""
        if not isinstance(self.problem, Nearest):
            return 0.0
        return float(max(self.problem.sign * (self.value - self.problem.threshold), 0.0))

    @property
    def is_least(self) -> bool:
        """Whether no other end can be better: the threshold is reached at the centre, up to rows without weight."""
        return isinstance(self.problem, Nearest) and self.objective == (0.0, 0.0)

    @property
    def price(self) -> float:
        """eta = 1/lam."""
        return 1.0 / self.lam if self.lam > 0 else np.inf

    def bracket(self, lower: float, upper: float) -> Bracket:
        """What a local search can say: these ends, this kernel, no proof."""
        kernel = self.problem.kernel(self.entries)
        trail = (self.problem.rows, self.entries)
        return Bracket(lower, upper, kernel, self.price, self.status, False, self.iterations, trail)


def _list_extreme_state(problem: InverseProblem) -> InverseProblem:
    """Open rows, with two successors listed: that of the kernel of extreme value, and the first to attract mass."""
    task = problem.task
    choice, _, _ = search.extreme_rows(problem.rows, task.discount, task.initial, problem.sign, True)
    wide, _ = problem.widened(int(choice[0]))
    wanted = _wanted_successor(wide, wide.p)
    return wide if wanted is None else wide.widened(wanted)[0]


def _first_start(problem: InverseProblem, warm: Bracket | None) -> tuple[FloatArray, float]:
    """The warm start's kernel where it fits the problem, else the centre."""
    entries = None
    if warm is not None and warm.trail is not None and warm.trail[0] is problem.rows:
        entries = warm.trail[1]
    elif warm is not None and warm.kernel is not None and warm.kernel.shape == problem.centre.shape:
        entries = problem.entries(warm.kernel)
    if warm is None or entries is None:
        return problem.p, 0.0
    if isinstance(problem, Extreme):
        entries = problem.into_ball(entries, problem.radius)
    return entries, 1.0 / warm.multiplier if 0 < warm.multiplier < np.inf else 0.0


def _other_start(problem: InverseProblem, index: int) -> FloatArray:
    """A fixed kernel: the centre mixed with pseudo-random rows."""
    mixed = mixed_start(problem, index, random_rows(problem, index))
    return problem.into_ball(mixed, problem.radius) if isinstance(problem, Extreme) else mixed


def mixed_start(problem: InverseProblem, index: int, aim: FloatArray) -> FloatArray:
    """The centre, moved a part of the way towards other rows: half of it, most of it, or a quarter, in turn."""
    share = (0.5, 0.9, 0.25)[index % 3]
    return np.asarray((1.0 - share) * problem.p + share * aim)


def random_rows(problem: InverseProblem, index: int) -> FloatArray:
    """[E] rows drawn towards pseudo-random states, or drawn freely."""
    rows = problem.rows
    if index % 2:
        return rows.to_one(_drawn(index, problem.task.n_states)[rows.successor])
    return rows.to_one((_drawn if rows.n_entries <= MOST_KEPT else _drawn.__wrapped__)(index, rows.n_entries))


@lru_cache(maxsize=32)
def _drawn(index: int, size: int) -> FloatArray:
    """Fixed pseudo-random numbers, of which small tasks ask for the same ones again and again."""
    return np.random.default_rng(index).exponential(size=size) ** 4


def _beyond(problem: Nearest, entries: FloatArray) -> FloatArray | None:
    """A kernel on the other side: the given one, with about as little as needed of the kernel of extreme value."""
    task, rows, sign = problem.task, problem.rows, problem.sign
    choice, _, _ = search.extreme_rows(rows, task.discount, task.initial, sign, False)
    extreme = (rows.successor == choice[rows.of_entry()]).astype(np.float64)
    for share in (*2.0 ** np.arange(-52, 0), *(1.0 - 2.0 ** -np.arange(2, 50))):
        mixed = entries + share * (extreme - entries)
        if sign * (problem.value(mixed) - problem.threshold) <= 0:
            return np.asarray(mixed) if np.isfinite(problem.loss(mixed)) else None
    return None


def _wanted_successor(problem: InverseProblem, entries: FloatArray) -> int | None:
    """The one state that open rows may want to move to although they do not list it, or None if all list it.

    An unlisted successor has weight 0, so it attracts mass only if it is cheaper than every seen one: it must be
    the state with the lowest value of all.
    """
    task, rows = problem.task, problem.rows
    values, _, _ = search.values_and_occupancy(rows, entries, task.discount, task.initial)
    lowest = int(np.argmin(problem.sign * values))
    listed = rows.sums((rows.successor == lowest).astype(np.float64)) > 0
    return None if listed.all() else lowest
