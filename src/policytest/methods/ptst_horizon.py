r"""PTST on the value of a task with a horizon: the KL rule with a search that proves nothing.

Counts have one boundary beta(t, delta), whatever is asked of them, and all steps share the kernel. So PTST runs on
the value with a horizon as it does on a difference (`methods.ptst_difference`): if V <= R, "above" is answered only if
*every* kernel with V_q <= R has a loss of at least beta, which has probability at most delta. That every one has is
what the search (`worst_case.horizon`) cannot prove, so answers say ``certified=False``. `TDBetting` needs no search.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from policytest._base.errors import InputError
from policytest.kl.boundaries import Boundary
from policytest.kl.sampling import Forward
from policytest.kl.witness import Target, WitnessedCounts, check_listed
from policytest.mdp.task import Task, counting_task
from policytest.mdp.values import value_range, value_range_error
from policytest.worst_case.certified import Certified
from policytest.worst_case.horizon import value_with_horizon
from policytest.worst_case.projection_free import ProjectionFree

if TYPE_CHECKING:
    from policytest.methods.ptst import PTST


def counts_with_horizon(task: Task, threshold: float, boundary: Boundary) -> WitnessedCounts:
    """Counts of a task with a horizon, whose value is compared with the threshold."""
    counted = replace(counting_task(task), states=task.states, actions=task.actions)
    check_listed(counted)
    low, high = value_range(task)
    value = value_with_horizon(task, task.layout.rows, threshold)
    target = Target(value, threshold - low, high - threshold, 4.0 * value_range_error(task))
    return WitnessedCounts(counted, 0.0, boundary, target=target)


def settings_with_horizon(method: PTST) -> PTST:
    """The settings with the solver that runs; those that have no meaning here are refused."""
    if method.zeta is not None or not isinstance(method.solver, Certified | ProjectionFree):
        raise InputError(
            f"method: the task has a horizon, and {method.describe()} needs one without; pass PTST() or TDBetting()"
        )
    if isinstance(method.allocation, Forward) and method.allocation.restart is None:
        raise InputError(
            "allocation: the task has a horizon; pass Forward(restart=...), the probability of a new start"
        )
    return method if isinstance(method.solver, ProjectionFree) else replace(method, solver=ProjectionFree())
