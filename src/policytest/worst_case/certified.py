r"""A global method with a proof: a local search for one end of the bracket, branch and bound for the other.

Both problems ask the same: is there a kernel with V_q beyond R and loss(q) <= B? The upper end comes from
`ProjectionFree`. For the lower end the claim that there is none is proved with B (or R) a relative `gap` short of it,
by `worst_case.branch_and_bound`. Running out of nodes leaves a weaker bound, never a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from policytest._base import arrays
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.branch_and_bound import ClaimSearch
from policytest.worst_case.problem import Extreme, InverseProblem, Nearest
from policytest.worst_case.projection_free import ProjectionFree

MOST_STATES, MOST_ENTRIES = 400, 400_000  # in larger tasks no proof is tried


@dataclass(frozen=True)
class Certified:
    """Both ends proved, or an honest account of how far the proof got.

    Parameters
    ----------
    gap
        Relative: of the distance, or of the way from the centre's value to the extreme one.
    max_nodes
        Limit on the boxes examined; a number, not a time, so that results do not depend on the machine.
    starts
        Of the local search that gives the upper end.
    """

    proves: ClassVar[bool] = True

    gap: float = 0.01
    max_nodes: int = 200
    starts: int = 8

    def __post_init__(self) -> None:
        arrays.positive(gap=self.gap, max_nodes=self.max_nodes, starts=self.starts)

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """The least loss beyond the threshold, with a proved lower end."""
        found, closed = ProjectionFree(starts=self.starts).nearest(problem, warm), _every_successor(problem)
        while True:
            if found.certified or found.kernel is None:
                return found
            radius = (1.0 - self.gap) * found.upper
            if closed is None or radius < problem.enough < np.inf:  # out of reach, or not enough
                return replace(found, status=Status.LOOSE if found.status is Status.CONVERGED else found.status)
            radius = min(radius, (1.0 + 1e-9) * problem.enough)
            search = ClaimSearch(closed, problem.threshold, radius, found)
            lower = max(search.run(self.max_nodes) - _off_by(problem), 0.0)
            if search.better is None:
                break
            found = search.better
        proof = search.proof
        return replace(
            found,
            lower=min(lower, found.upper),
            status=Status.LOOSE if proof is None else Status.PROVED,
            certified=proof is not None,
            certificate=proof,
        )

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """The extreme value over the ball, with a proved outer end."""
        local = ProjectionFree(starts=self.starts)
        found, closed = local.extreme(problem, warm), _every_successor(problem)
        sign, centre = problem.sign, problem.value(problem.p)
        radius = problem.radius + _off_by(problem)
        while True:
            if found.certified or found.kernel is None:
                return found
            value = found.upper if sign > 0 else found.lower
            beyond = value - sign * self.gap * abs(centre - value)
            if closed is None:
                return replace(found, status=Status.LOOSE)
            search = ClaimSearch(closed, beyond, radius, found)
            search.run(self.max_nodes)
            if search.better is None:
                break
            other = local.extreme(problem, search.better)
            if sign * (value - (other.upper if sign > 0 else other.lower)) <= 0:  # better by rounding only
                break
            found = other
        if search.proof is None:
            return replace(found, status=Status.LOOSE)
        ends = (beyond, value) if sign > 0 else (value, beyond)
        return replace(
            found, lower=ends[0], upper=ends[1], status=Status.PROVED, certified=True, certificate=search.proof
        )


def _every_successor(problem: InverseProblem) -> InverseProblem | None:
    """The problem with every allowed successor listed; None where that, or the proof, is out of reach."""
    S = problem.task.n_states
    entries = len(problem.n) * S if problem.is_open else problem.rows.n_entries
    if S > MOST_STATES or entries > MOST_ENTRIES:
        return None
    return problem.closed() if problem.is_open else problem


def _off_by(problem: InverseProblem) -> float:
    """What it can mean for a loss that rows of the centre sum to 1 only up to a rounding."""
    return 3.0 * float(np.abs(problem.rows.sums(problem.N) - problem.n).sum())
