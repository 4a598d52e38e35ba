r"""Algorithm 2 as printed: projected gradient descent on every product box of a budget grid.

For a radius sigma and weights omega the KL ball is the union of the boxes Q(b), sum omega_sa b_sa <= sigma. The outer
loop visits every b on a grid of mesh h; the inner loop takes M projected gradient steps of length 1/L from the centre
in the reversed MDP. The printed constants, with r_max, V_p taken after the shift r - (1-gamma) R of the reward,

    L = 2 (gamma S + 1) r_max / (1-gamma)^3,
    h = zeta^2 (1-gamma)^4 / (18 S^2 A^2 V_p^2 r_max^2),
    M = ceil( 384 (gamma S + 1) S A r_max |V_p| max 1/(rho pi)^2 / ((1-gamma)^5 zeta) ),

give Theorem `thm:proj_pg_rate`: the best product V_p V_q found exceeds the optimum by at most zeta. In units of value
that is zeta/|V_p|, which is how the bracket below is stated. (In those units V_p cancels from h and M, as it should.)

Its guarantee is real and its constants are far out of reach: on the paper's smallest instance with zeta = 0.1 the
grid has about 1e23 points. A grid above ``max_grid`` is refused, with its size. It is here as the reference that
the fast solvers are compared with on instances small enough for it.

Departures: "S^2 A^2" and "S A" count the pairs with pi > 0 (the others do not matter); the projection is exact to
rounding; if V_p = R the printed algorithm returns 0, and so the bracket proves nothing. The distance (NC) is
bracketed by bisection on sigma, through the bijection of Proposition `prop:bijection in main`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.compiled import search
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.problem import Extreme, InverseProblem, Nearest


@dataclass(frozen=True)
class Constants:
    """The constants of Algorithm 2: smoothness L, mesh h, steps M, in the paper's letters."""

    L: float
    h: float
    M: float

    def grid_size(self, omega: FloatArray, sigma: float) -> float:
        """About how many budget vectors the grid holds, from above: (sigma + h sum omega)^K / (K! h^K prod omega).

        Unit cubes around the grid points fill a simplex of this volume.
        """
        K = len(omega)
        reach = sigma / self.h + float(omega.sum())
        log_size = K * math.log(reach) - math.lgamma(K + 1) - float(np.log(omega).sum())
        return max(1.0, math.exp(min(log_size, 700.0)))


def printed_constants(task: Task, value: float, zeta: float, threshold: float = 0.0) -> Constants:
    """L, h and M by the formulas of Algorithm 2, for a centre of this value. Paper: `alg:constrained_pg`.

    M is infinite where min rho(s) pi(a|s) = 0: the theorem's rate then says nothing.
    """
    gamma, S, pairs = task.discount, task.n_states, int((task.policy > 0).sum())
    shift = (1 - gamma) * threshold
    low, high = task.reward_bounds
    r_max = max(abs(low - shift), abs(high - shift))
    start = float((task.initial[:, None] * task.policy)[task.policy > 0].min())
    relative = zeta / abs(value - threshold) / r_max  # the tolerance in units of value, over r_max
    L = 2 * (gamma * S + 1) * r_max / (1 - gamma) ** 3
    h = relative**2 * (1 - gamma) ** 4 / (18 * pairs**2)
    rate = 384 * (gamma * S + 1) * pairs / ((1 - gamma) ** 5 * relative)
    M = math.ceil(rate / start**2) if start > 0 and rate / start**2 < 1e18 else math.inf
    return Constants(L, h, M)


@dataclass(frozen=True)
class NestedPGD:
    """Nested projected gradient descent, faithful to Algorithm 2. Paper: `alg:constrained_pg`, `thm:proj_pg_rate`.

    Parameters
    ----------
    zeta
        Tolerance in the paper's product units: the bracket of an extreme value has width zeta/|V_p - R|.
    threshold
        R of the product units when an extreme value is asked for (a nearest-kernel call brings its own).
    smoothness, mesh, steps
        L, h and M; None takes the printed formula. Values weaker than the printed ones forfeit the proof, and so does
        a larger L without as many more steps (the rate of the inner loop is L/M).
    max_grid
        The largest grid that is attempted.
    bisections
        Halvings of the radius when a distance is bracketed.
    gap
        A distance is called certified when its ends are within this fraction of the upper one.
    """

    zeta: float = 0.1
    threshold: float = 0.0
    smoothness: float | None = None
    mesh: float | None = None
    steps: int | None = None
    max_grid: int = 1_000_000
    bisections: int = 12
    gap: float = 0.5

    def __post_init__(self) -> None:
        arrays.positive(zeta=self.zeta, smoothness=self.smoothness, mesh=self.mesh, steps=self.steps)
        arrays.positive(max_grid=self.max_grid, bisections=self.bisections, gap=self.gap)

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """Theorem 2's bracket of the extreme value: [best - zeta/|V_p - R|, best] for "min"."""
        centre = problem.value(problem.p)
        if centre == self.threshold:
            ends = problem.trivial_ends(centre)
            return Bracket(*ends, problem.centre, np.nan, Status.ON_THRESHOLD, certified=False)
        constants, proved = self._constants(problem, centre)
        entries, best, _, points = self._search(problem, constants, problem.radius)
        width = self.zeta / abs(centre - self.threshold)
        lower, upper = problem.trivial_ends(best)
        certified = proved and upper - lower > width  # the theorem says more than the value range does
        if certified:
            lower, upper = (best - width, best) if problem.sign > 0 else (best, best + width)
        status = Status.PROVED if certified else Status.LOOSE if proved else Status.HEURISTIC
        return Bracket(lower, upper, problem.kernel(entries), np.nan, status, certified, iterations=points)

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """Two bisections on the radius: the largest one proved too small, and the smallest one found large enough."""
        solver = replace(self, threshold=problem.threshold)
        centre = problem.value(problem.p)
        constants, proved = solver._constants(problem, centre)
        width = self.zeta / abs(centre - problem.threshold)
        points = 0

        def excess(sigma: float) -> tuple[float, FloatArray]:
            nonlocal points
            entries, best, _, visited = solver._search(problem, constants, sigma)
            points += visited
            return problem.sign * (best - problem.threshold), entries

        large, found = self._first_reached(problem, excess)
        if found is None:
            return Bracket(0.0, np.inf, None, np.nan, Status.NOT_REACHED, certified=False, iterations=points)
        small = 0.0
        for _ in range(self.bisections):
            middle = 0.5 * (small + large)
            beyond, entries = excess(middle)
            if beyond <= 0:
                large, found = middle, entries
            else:
                small = middle
        upper = problem.loss(found)
        lower, large = 0.0, min(large, upper)
        for _ in range(self.bisections if proved else 0):
            middle = 0.5 * (lower + large)
            if excess(middle)[0] > width:
                lower = middle
            else:
                large = middle
        certified = proved and upper - lower <= self.gap * upper
        status = Status.PROVED if certified else Status.LOOSE if proved else Status.HEURISTIC
        return Bracket(lower, upper, problem.kernel(found), np.nan, status, certified, iterations=points)

    def _first_reached(
        self, problem: Nearest, excess: Callable[[float], tuple[float, FloatArray]]
    ) -> tuple[float, FloatArray | None]:
        """A radius at which the threshold is reached, by doubling; none where the grid's limit ends the search."""
        sigma = 2.0**-10 * float(problem.n.sum())
        beyond, entries = excess(sigma)
        while beyond > 0:
            sigma *= 2.0
            try:
                beyond, entries = excess(sigma)
            except InputError:
                return sigma, None
        return sigma, entries

    def _constants(self, problem: InverseProblem, centre: float) -> tuple[Constants, bool]:
        """The constants in use, and whether they are at least as strong as the printed ones."""
        printed = printed_constants(problem.task, centre, self.zeta, self.threshold)
        used = Constants(
            printed.L if self.smoothness is None else self.smoothness,
            printed.h if self.mesh is None else self.mesh,
            printed.M if self.steps is None else self.steps,
        )
        if math.isinf(used.M):
            raise InputError(
                "Algorithm 2's number of steps is infinite (or above 1e18) here: it divides by the smallest "
                "rho(s) pi(a|s), squared; pass steps=..., without a guarantee, or use another solver"
            )
        enough_steps = used.M * printed.L >= printed.M * used.L
        return used, used.L >= printed.L and used.h <= printed.h and enough_steps

    def _search(
        self, problem: InverseProblem, constants: Constants, sigma: float
    ) -> tuple[FloatArray, float, FloatArray, int]:
        problem.must_be_closed()
        known = np.diff(problem.rows.start) == 1
        if (problem.n[~known] <= 0).any():
            pair = problem.rows.pair[int(np.argmax((problem.n <= 0) & ~known))]
            raise InputError(
                f"weights at {problem.task.place(pair)} is 0; Algorithm 2 needs a positive weight on every pair the "
                "policy takes (Assumption 2), or its budget grid is infinite; use another solver"
            )
        omega = np.where(known, 1.0 + 2.0 * sigma / constants.h, problem.n)  # a known row gets budget 0 only
        size = constants.grid_size(omega[~known], sigma) if sigma > 0 and not known.all() else 1.0
        if size > self.max_grid:
            raise InputError(
                f"Algorithm 2's budget grid has about {size:.1e} points (mesh h = {constants.h:.3g}, radius "
                f"{sigma:.3g}, {int((~known).sum())} pairs), above max_grid = {self.max_grid}; raise zeta or max_grid, "
                "pass a larger mesh (without a guarantee), or use another solver"
            )
        task = problem.task
        grid = problem.p, omega, sigma, constants.h, problem.sign, constants.L, int(constants.M)
        return search.search_budgets(problem.rows, task.discount, task.initial, *grid)
