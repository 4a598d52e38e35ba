"""Is this policy good enough? Policy testing in tabular Markov decision processes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policytest import instances as instances
    from policytest._checks import AssumptionWarning, InputError
    from policytest.kl import KLBall
    from policytest.lower_bound import Allocation, LowerBound, characteristic_time, optimal_allocation
    from policytest.task import Task, occupancy, state_values, value, value_range
    from policytest.worst_case import Bracket, Status, extreme_value, nearest_kernel
    from policytest.worst_case.nested_pgd import NestedPGD
    from policytest.worst_case.projection_free import ProjectionFree
    from policytest.worst_case.slsqp import SLSQPHeuristic

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `import policytest` costs nothing.
_HOME = {
    "Allocation": "lower_bound",
    "AssumptionWarning": "_checks",
    "Bracket": "worst_case",
    "InputError": "_checks",
    "KLBall": "kl",
    "LowerBound": "lower_bound",
    "NestedPGD": "worst_case.nested_pgd",
    "ProjectionFree": "worst_case.projection_free",
    "SLSQPHeuristic": "worst_case.slsqp",
    "Status": "worst_case",
    "Task": "task",
    "characteristic_time": "lower_bound",
    "extreme_value": "worst_case",
    "nearest_kernel": "worst_case",
    "occupancy": "task",
    "optimal_allocation": "lower_bound",
    "state_values": "task",
    "value": "task",
    "value_range": "task",
}

__all__ = [
    "Allocation",
    "AssumptionWarning",
    "Bracket",
    "InputError",
    "KLBall",
    "LowerBound",
    "NestedPGD",
    "ProjectionFree",
    "SLSQPHeuristic",
    "Status",
    "Task",
    "characteristic_time",
    "extreme_value",
    "instances",
    "nearest_kernel",
    "occupancy",
    "optimal_allocation",
    "state_values",
    "value",
    "value_range",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(importlib.import_module(f"policytest.{_HOME[name]}"), name)
    elif name == "instances":
        found = importlib.import_module("policytest.instances")
    else:
        raise AttributeError(f"module 'policytest' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
