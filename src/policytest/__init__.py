"""Is this policy good enough? Policy testing in tabular Markov decision processes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policytest import instances as instances
    from policytest import plots as plots
    from policytest import report as report
    from policytest import sources as sources
    from policytest import study as study
    from policytest._checks import AssumptionWarning, InputError
    from policytest.baselines import KLBTS, MonteCarlo, RectangularKL
    from policytest.betting import TDBetting
    from policytest.boundaries import MixtureBoundary, PaperBoundary
    from policytest.combined import Combined
    from policytest.comparison import compare
    from policytest.confidence import Estimate, Interval, evaluate, value_interval
    from policytest.counts import Counts
    from policytest.diagnosis import Diagnosis
    from policytest.diagnostics import diagnose
    from policytest.kl import KLBall
    from policytest.lower_bound import Allocation, LowerBound, characteristic_time, optimal_allocation
    from policytest.needed import Needed
    from policytest.planning import Plan, plan, still_needed
    from policytest.ptst import PTST
    from policytest.sampling import Adaptive, Forward, Optimal
    from policytest.selection import Selection, identify
    from policytest.sequential import StoppingTimes, Transitions, assess, checks, decide, stopping_times
    from policytest.simulators import TabularSimulator
    from policytest.task import Task, occupancy, state_values, value, value_range
    from policytest.verdict import Check, Verdict
    from policytest.worst_case import Bracket, Status, extreme_value, nearest_kernel
    from policytest.worst_case.certificate import Certificate
    from policytest.worst_case.certified import Certified
    from policytest.worst_case.nested_pgd import NestedPGD
    from policytest.worst_case.projection_free import ProjectionFree
    from policytest.worst_case.slsqp import SLSQPHeuristic

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `import policytest` costs nothing.
_HOME = {
    "Adaptive": "sampling",
    "Allocation": "lower_bound",
    "AssumptionWarning": "_checks",
    "Bracket": "worst_case",
    "Certificate": "worst_case.certificate",
    "Certified": "worst_case.certified",
    "Check": "verdict",
    "Combined": "combined",
    "Counts": "counts",
    "Diagnosis": "diagnosis",
    "Estimate": "confidence",
    "Forward": "sampling",
    "InputError": "_checks",
    "Interval": "confidence",
    "KLBTS": "baselines",
    "KLBall": "kl",
    "LowerBound": "lower_bound",
    "MixtureBoundary": "boundaries",
    "MonteCarlo": "baselines",
    "Needed": "needed",
    "NestedPGD": "worst_case.nested_pgd",
    "Optimal": "sampling",
    "PTST": "ptst",
    "PaperBoundary": "boundaries",
    "Plan": "planning",
    "ProjectionFree": "worst_case.projection_free",
    "RectangularKL": "baselines",
    "SLSQPHeuristic": "worst_case.slsqp",
    "Selection": "selection",
    "Status": "worst_case",
    "StoppingTimes": "sequential",
    "TDBetting": "betting",
    "TabularSimulator": "simulators",
    "Task": "task",
    "Transitions": "sequential",
    "Verdict": "verdict",
    "assess": "sequential",
    "characteristic_time": "lower_bound",
    "checks": "sequential",
    "compare": "comparison",
    "decide": "sequential",
    "diagnose": "diagnostics",
    "evaluate": "confidence",
    "extreme_value": "worst_case",
    "identify": "selection",
    "nearest_kernel": "worst_case",
    "occupancy": "task",
    "optimal_allocation": "lower_bound",
    "state_values": "task",
    "plan": "planning",
    "still_needed": "planning",
    "stopping_times": "sequential",
    "value": "task",
    "value_interval": "confidence",
    "value_range": "task",
}

__all__ = [
    "KLBTS",
    "PTST",
    "Adaptive",
    "Allocation",
    "AssumptionWarning",
    "Bracket",
    "Certificate",
    "Certified",
    "Check",
    "Combined",
    "Counts",
    "Diagnosis",
    "Estimate",
    "Forward",
    "InputError",
    "Interval",
    "KLBall",
    "LowerBound",
    "MixtureBoundary",
    "MonteCarlo",
    "Needed",
    "NestedPGD",
    "Optimal",
    "PaperBoundary",
    "Plan",
    "ProjectionFree",
    "RectangularKL",
    "SLSQPHeuristic",
    "Selection",
    "Status",
    "StoppingTimes",
    "TDBetting",
    "TabularSimulator",
    "Task",
    "Transitions",
    "Verdict",
    "assess",
    "characteristic_time",
    "checks",
    "compare",
    "decide",
    "diagnose",
    "evaluate",
    "extreme_value",
    "identify",
    "instances",
    "nearest_kernel",
    "occupancy",
    "optimal_allocation",
    "plan",
    "plots",
    "report",
    "sources",
    "state_values",
    "still_needed",
    "stopping_times",
    "study",
    "value",
    "value_interval",
    "value_range",
]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(importlib.import_module(f"policytest.{_HOME[name]}"), name)
    elif name in ("instances", "plots", "report", "sources", "study"):
        found = importlib.import_module(f"policytest.{name}")
    else:
        raise AttributeError(f"module 'policytest' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
