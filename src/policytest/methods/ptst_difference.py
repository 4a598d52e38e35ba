r"""Which of two policies is better? The KL rule on the difference of their values.

Counts of the rows that either policy takes have one boundary beta(t, delta) (`methods.boundaries`), whatever is
asked of them. So PTST (`methods.ptst`) runs on the difference as it does on a value: it goes on while some kernel q
with V_q^A - V_q^B on the other side of the margin has loss_t(q) < beta. A standing witness, whose difference is the
margin, proves that at a constant cost for each sample. If V^A - V^B <= m, "above" is answered only if *every* such
kernel has a loss of at least beta, the true one included, which has probability at most delta.

That every one has is what the search cannot prove: its descents (`worst_case.functional_solver`) end in stationary
points. Before an answer many starts are tried, and the extreme difference over the ball; the answer says
``certified=False``. Betting on coupled rollouts, the default, needs no such search.

Paper: `app:extension`.
"""

from __future__ import annotations

from functools import partial

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.kl.boundaries import Boundary
from policytest.kl.sampler import Source
from policytest.kl.sampling import Adaptive, Optimal
from policytest.kl.sampling_balanced import balancing
from policytest.kl.witness import Target, WitnessedCounts, centring_error, check_listed
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.kl_rules import ExactRule, KLQuestion
from policytest.methods.kl_run import KLRun
from policytest.methods.ptst import PTST
from policytest.payoffs.coupling import joint_task
from policytest.payoffs.known_range import known_difference
from policytest.worst_case.certified import Certified
from policytest.worst_case.functional import Functional, difference_of
from policytest.worst_case.functional_solver import DifferenceSolver
from policytest.worst_case.projection_free import ProjectionFree


class ComparingPTST(PTST):
    """PTST for a comparison: its solver searches stationary points, whatever was asked for."""

    def describe(self) -> str:
        """The method in a few words."""
        return super().describe().replace("PTST", "PTST on the difference of policy A and policy B", 1)


def check_settings(method: PTST) -> ProjectionFree:
    """Refuse settings that have no meaning for differences; the solver to search with."""
    if method.zeta is not None:
        raise InputError("method: PTST.as_printed() is the rule for one policy's value; pass PTST() here")
    if not isinstance(method.solver, Certified | ProjectionFree):
        raise InputError(
            f"method: the solver {type(method.solver).__name__} is for one policy's value; pass "
            "PTST(solver=ProjectionFree()), whose descent also runs on differences"
        )
    if isinstance(method.allocation, Optimal):
        raise InputError(
            "method: Optimal(kernel) is for one policy's value; pass allocation=Adaptive(), or shares [S,A]"
        )
    return method.solver if isinstance(method.solver, ProjectionFree) else ProjectionFree()


def kl_comparison(method: PTST, task_a: Task, task_b: Task, margin: float, sim: SimulatorLike, rng: Seed) -> KLRun:
    """PTST at work on a difference."""
    solver, known = check_settings(method), known_difference(task_a, task_b)
    tally = _difference_counts(task_a, task_b, margin, (margin - known.low, known.high - margin), method.boundary)
    allocation = method.allocation
    if isinstance(allocation, Adaptive):
        allocation = balancing(allocation, partial(_cut, tally))
    source = Source(tally.task, sim, allocation, 0.0, rng, method.batch)
    question = KLQuestion(task_a, margin, tally, (known.low, known.high))
    settings = ComparingPTST(method.boundary, solver, method.allocation, method.batch)
    return KLRun(settings, source, ExactRule(question, solver))


def _difference_counts(
    task_a: Task, task_b: Task, margin: float, reach: tuple[float, float], boundary: Boundary
) -> WitnessedCounts:
    """Counts of the rows that policy A or B takes. Rewards are centred: V^A - V^B - margin is compared with 0."""
    joint = joint_task([task_a, task_b])
    check_listed(joint)
    centre = 0.25 * (sum(value_range(task_a)) + sum(value_range(task_b)))
    rounding = sum(value_range_error(task) + centring_error(task, centre) for task in (task_a, task_b))
    functional = difference_of(joint.layout.rows, task_a.centred(centre + margin), task_b.centred(centre))
    return WitnessedCounts(joint, 0.0, boundary, target=Target(functional, *reach, rounding))


def _cut(tally: WitnessedCounts, entries: FloatArray, weights: FloatArray) -> FloatArray | None:
    """KL(p, q) row by row, of the nearest q on the other side of the margin at these weights."""
    found = nearest_cut(tally, tally.functional, entries, weights, DifferenceSolver())
    return None if found is None else found[1]


def nearest_cut(
    tally: WitnessedCounts, functional: Functional, entries: FloatArray, weights: FloatArray, solver: DifferenceSolver
) -> tuple[float, FloatArray] | None:
    """The distance of the nearest kernel at which a functional is beyond 0, and its KL(p_k, q_k) [K]; None if missed.

    Around a kernel given by its entries, with weights [K].
    """
    sign = float(np.sign(functional.value(entries))) or 1.0
    found = solver.nearest(tally.laid_out(entries, weights, functional).nearest(sign, 0.0))
    if found.trail is None:
        return None
    return found.upper, tally.laid_out(entries, np.ones(len(weights)), functional).row_losses(found.trail[1])
