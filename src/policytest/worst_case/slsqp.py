r"""The heuristic of the paper's experiments: gradient steps in the reversed MDP, each projected by SLSQP.

From q = p, at most M = 20 steps of length 1/L with L = 400 along the gradient of the value, every iterate projected in
the Euclidean norm onto the joint ball sum_sa w_sa KL(p_sa, q_sa) <= sigma by SciPy's SLSQP (analytic gradients,
0 log 0 = 0). Twenty short steps do not reach the optimum, so the value it reports is too high for "min", a test
that believes it stops too early, and its error probability is not bounded. Kept for comparison; never certified.

Paper: the appendix "Experimental Details".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.problem import Extreme, InverseProblem, Nearest

SMALLEST = 1e-12  # SLSQP may not step to q = 0 where p > 0: the divergence is infinite there


@dataclass(frozen=True)
class SLSQPHeuristic:
    """The experiments' inner solver; fixed step length, few steps, no guarantee.

    Parameters
    ----------
    smoothness
        L; a step has length 1/L.
    steps
        M, the number of steps.
    bisections
        Halvings of the radius when a distance is asked for.
    """

    smoothness: float = 400.0
    steps: int = 20
    bisections: int = 20

    def __post_init__(self) -> None:
        arrays.positive(smoothness=self.smoothness, steps=self.steps, bisections=self.bisections)

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """The value after the last step; the other end is the value range."""
        entries = self._descend(problem, problem.radius)
        ends = problem.trivial_ends(problem.value(entries))
        kernel = problem.kernel(entries)
        return Bracket(*ends, kernel, np.nan, Status.HEURISTIC, certified=False, iterations=self.steps)

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """The smallest radius, by bisection, at which the steps reach the threshold; the lower end is 0."""
        low, high = 0.0, float(problem.n.sum())
        found = None
        for _ in range(self.bisections):
            middle = 0.5 * (low + high)
            entries = self._descend(problem, middle)
            if problem.sign * (problem.value(entries) - problem.threshold) <= 0:
                high, found = min(middle, problem.loss(entries)), entries
            else:
                low = middle
        if found is None:
            return Bracket(0.0, np.inf, None, np.nan, Status.NOT_REACHED, certified=False)
        return Bracket(0.0, problem.loss(found), problem.kernel(found), np.nan, Status.HEURISTIC, certified=False)

    def _descend(self, problem: InverseProblem, radius: float) -> FloatArray:
        problem.must_be_closed()
        entries = problem.p.copy()
        for _ in range(self.steps):
            step = problem.sign / self.smoothness
            moved = entries - step * problem.value_gradient(entries)
            entries = project_joint(problem, moved, radius, start=entries)
        return entries


def project_joint(problem: InverseProblem, point: FloatArray, radius: float, start: FloatArray) -> FloatArray:
    """argmin |q - point|^2 over kernels with loss(q) <= radius, by SLSQP; then made exactly feasible."""
    N = problem.N
    seen = N > 0
    owner = problem.rows.of_entry()
    sums = np.zeros((len(problem.rows.pair), len(N)))
    sums[owner, np.arange(len(N))] = 1.0
    entropy = float((N[seen] * np.log(problem.p[seen])).sum())

    def slack(q: FloatArray) -> float:
        return radius - entropy + float(N[seen] @ np.log(np.maximum(q[seen], SMALLEST)))

    def slack_gradient(q: FloatArray) -> FloatArray:
        gradient = np.zeros(len(q))
        gradient[seen] = N[seen] / np.maximum(q[seen], SMALLEST)
        return gradient

    constraints: list[dict[str, object]] = [
        {"type": "eq", "fun": lambda q: sums @ q - 1.0, "jac": lambda q: sums},
        {"type": "ineq", "fun": slack, "jac": slack_gradient},
    ]
    found = scipy.optimize.minimize(
        lambda q: 0.5 * float((q - point) @ (q - point)),
        start,
        jac=lambda q: q - point,
        method="SLSQP",
        bounds=list(zip(np.where(seen, SMALLEST, 0.0), np.ones(len(N)), strict=True)),
        constraints=constraints,
    ).x
    return problem.into_ball(problem.rows.to_one(np.maximum(found, 0.0)), radius)
