"""The worst case over a KL ball, and the nearest kernel on the other side of a threshold (sections 5 and 6)."""

from __future__ import annotations

import numpy as np

from policytest._base import arrays
from policytest._base.errors import not_an_instance
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.worst_case.ball import KLBall
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.horizon import has_gradient, searching, value_with_horizon
from policytest.worst_case.problem import InverseProblem, Solver, lay_out
from policytest.worst_case.projection_free import ProjectionFree

__all__ = ["Bracket", "Solver", "Status", "extreme_value", "nearest_kernel"]


def extreme_value(
    task: Task, ball: KLBall, sense: str = "min", solver: Solver | None = None, warm: Bracket | None = None
) -> Bracket:
    """The smallest ("min") or largest ("max") value of the policy over a KL ball of kernels, as a bracket.

    Paper: `opt:no sp`.

    ``warm``, the result of a similar problem, gives a local solver its starting point.
    """
    arrays.instance("task", task, Task)
    arrays.instance("ball", ball, KLBall)
    _check_solver(solver, warm)
    sign = arrays.sense_sign(sense)
    laid, solver = _laid_out(task, ball.centre, ball.weights, solver)
    fixed = (laid.n > 0) | ((np.diff(laid.rows.start) == 1) & (not laid.is_open))
    if ball.radius == 0 and fixed.all():
        value = laid.value(laid.p)
        return Bracket(value, value, laid.centre, np.inf, Status.IMMEDIATE, certified=True)
    return (solver or ProjectionFree()).extreme(laid.extreme(sign, ball.radius), warm)


def nearest_kernel(
    task: Task,
    centre: object,
    weights: object,
    threshold: float,
    solver: Solver | None = None,
    warm: Bracket | None = None,
) -> Bracket:
    """The least sum_sa weights[s,a] KL(centre_sa, q_sa) at which the value reaches the threshold, as a bracket.

    If the centre's value is above the threshold, kernels q with V_q <= threshold are searched; if below, those with
    V_q >= threshold; at equality the distance is 0. Where no kernel of finite divergence reaches the threshold both
    ends are infinite and the kernel is None.

    Paper: `opt:nc up`.

    ``warm``, the result of a similar problem, gives a local solver its starting point.
    """
    arrays.instance("task", task, Task)
    _check_solver(solver, warm)
    threshold = arrays.real_number("threshold", threshold)
    laid, solver = _laid_out(task, centre, weights, solver)
    value = laid.value(laid.p)
    if value == threshold:
        return Bracket(0.0, 0.0, laid.centre, np.inf, Status.IMMEDIATE, certified=True)
    sign = 1.0 if value > threshold else -1.0
    if not _reachable(laid, threshold, sign):
        return Bracket(np.inf, np.inf, None, 0.0, Status.UNREACHABLE, certified=True)
    return (solver or ProjectionFree()).nearest(laid.nearest(sign, threshold), warm)


def _laid_out(
    task: Task, centre: object, weights: object, solver: Solver | None
) -> tuple[InverseProblem, Solver | None]:
    """The problem, and its solver where the task has a horizon."""
    if has_gradient(task):
        return lay_out(task, centre, weights, value_with_horizon), searching(solver)
    return lay_out(task, centre, weights), solver


def _check_solver(solver: object, warm: object) -> None:
    if isinstance(solver, type) or (solver is not None and not hasattr(solver, "nearest")):
        raise not_an_instance("solver", solver, "ProjectionFree()")
    if warm is not None:
        arrays.instance("warm", warm, Bracket, ", the result of a similar problem")


def _reachable(problem: InverseProblem, threshold: float, sign: float) -> bool:
    """Whether some kernel lies strictly beyond the threshold, or free rows may bring one to it."""
    low, high = value_range(problem.task)
    end = low if sign > 0 else high
    return sign * (threshold - end) > 0 or bool((problem.n == 0).any() and threshold == end)
