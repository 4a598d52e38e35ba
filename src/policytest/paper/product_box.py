r"""Robust policy evaluation on a product box: the inner problem of Algorithm 2, solved exactly.

Proposition `prop:product_box_reduction` writes the KL ball as a union of product boxes
Q(b) = {q : KL(p_sa, q_sa) <= b_sa for every pair}. Over one box the rows do not compete for a common budget, so the
minimum of V_q is an (s,a)-rectangular robust policy evaluation, solved by robust policy iteration: each row moves to
its worst distribution against the current values, the values of the new kernel are computed, and so on. With lam_sa
the multiplier of row (s,a), the envelope theorem gives the slope of phi(b) = min over Q(b) of V_q,

    d phi / d b_sa = - d_q(s,a) / lam_sa          (minus infinity at b_sa = 0).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.compiled import search
from policytest.mdp.task import Task
from policytest.worst_case.ball import check_weights
from policytest.worst_case.problem import lay_out


@dataclass(frozen=True, eq=False)
class RobustValue:
    """The extreme value over a product box: ``value``, the ``kernel`` attaining it, and ``slope`` [S,A] = dV/db."""

    value: float
    kernel: Kernel
    slope: FloatArray
    converged: bool


def robust_value(
    task: Task, centre: object, budgets: object, sense: str = "min", max_iterations: int = 1000
) -> RobustValue:
    """The smallest or largest value over {q : KL(centre_sa, q_sa) <= budgets[s,a]}, by robust policy iteration.

    Paper: the inner minimum of `prop:product_box_reduction`.
    """
    sign = arrays.sense_sign(sense)
    problem = lay_out(task, centre, np.ones((task.n_states, task.n_actions)))
    problem.must_be_closed()
    b = check_weights(budgets, (task.n_states, task.n_actions), "budgets").ravel()[problem.rows.pair]
    converged, entries, value, row_slope = search.robust_box(
        problem.rows, task.discount, task.initial, problem.p, b, sign, max_iterations
    )
    slope = np.zeros(task.n_states * task.n_actions)
    slope[problem.rows.pair] = sign * row_slope
    return RobustValue(value, problem.kernel(entries), slope.reshape(task.n_states, task.n_actions), bool(converged))
