"""Is this policy good enough? Policy testing in tabular Markov decision processes."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from policytest import plots as plots
    from policytest import report as report
    from policytest import sources as sources
    from policytest import study as study
    from policytest._base.errors import AssumptionWarning as AssumptionWarning
    from policytest._base.errors import InputError as InputError
    from policytest._base.errors import NotGoodEnough as NotGoodEnough
    from policytest._base.errors import Undecided as Undecided
    from policytest.data.counts import Counts as Counts
    from policytest.data.episodes import Episodes as Episodes
    from policytest.data.logged_episodes import LoggedEpisodes as LoggedEpisodes
    from policytest.data.outcome import at_least as at_least
    from policytest.data.outcome import at_most as at_most
    from policytest.data.simulators import TabularSimulator as TabularSimulator
    from policytest.data.transitions import Transitions as Transitions
    from policytest.kl.boundaries import MixtureBoundary as MixtureBoundary
    from policytest.kl.boundaries import PaperBoundary as PaperBoundary
    from policytest.kl.sampling import Adaptive as Adaptive
    from policytest.kl.sampling import Forward as Forward
    from policytest.kl.sampling import Optimal as Optimal
    from policytest.mdp import instances as instances
    from policytest.mdp.observed import Observed as Observed
    from policytest.mdp.task import Task as Task
    from policytest.mdp.values import occupancy as occupancy
    from policytest.mdp.values import state_values as state_values
    from policytest.mdp.values import value as value
    from policytest.mdp.values import value_range as value_range
    from policytest.methods.baselines.boxes import RectangularKL as RectangularKL
    from policytest.methods.baselines.klbts import KLBTS as KLBTS
    from policytest.methods.baselines.monte_carlo import MonteCarlo as MonteCarlo
    from policytest.methods.large_sample import LargeSample as LargeSample
    from policytest.methods.log_betting import LogBetting as LogBetting
    from policytest.methods.ptst import PTST as PTST
    from policytest.methods.return_betting import ReturnBetting as ReturnBetting
    from policytest.methods.td_betting import TDBetting as TDBetting
    from policytest.payoffs.critics import RidgeCritic as RidgeCritic
    from policytest.questions.compare import compare as compare
    from policytest.questions.decide import checks as checks
    from policytest.questions.decide import decide as decide
    from policytest.questions.decide import stopping_times as stopping_times
    from policytest.questions.diagnose import diagnose as diagnose
    from policytest.questions.evaluate import evaluate as evaluate
    from policytest.questions.identify import identify as identify
    from policytest.questions.in_training import InTraining as InTraining
    from policytest.questions.plan.plan import plan as plan
    from policytest.questions.plan.plan import still_needed as still_needed
    from policytest.results.diagnosis import Diagnosis as Diagnosis
    from policytest.results.estimate import Estimate as Estimate
    from policytest.results.estimate import Interval as Interval
    from policytest.results.needed import Needed as Needed
    from policytest.results.plan import Plan as Plan
    from policytest.results.selection import Selection as Selection
    from policytest.results.stopping_times import StoppingTimes as StoppingTimes
    from policytest.results.verdict import Check as Check
    from policytest.results.verdict import Verdict as Verdict
    from policytest.sources.logged.api import assess as assess
    from policytest.sources.logged.api import value_interval as value_interval
    from policytest.worst_case import Bracket as Bracket
    from policytest.worst_case import Status as Status
    from policytest.worst_case import extreme_value as extreme_value
    from policytest.worst_case import nearest_kernel as nearest_kernel
    from policytest.worst_case.ball import KLBall as KLBall
    from policytest.worst_case.certificate import Certificate as Certificate
    from policytest.worst_case.certified import Certified as Certified
    from policytest.worst_case.lower_bound import Allocation as Allocation
    from policytest.worst_case.lower_bound import LowerBound as LowerBound
    from policytest.worst_case.lower_bound import characteristic_time as characteristic_time
    from policytest.worst_case.lower_bound import optimal_allocation as optimal_allocation
    from policytest.worst_case.nested_pgd import NestedPGD as NestedPGD
    from policytest.worst_case.projection_free import ProjectionFree as ProjectionFree
    from policytest.worst_case.slsqp import SLSQPHeuristic as SLSQPHeuristic

__version__ = "0.1.0"

# Where each public name lives. They are imported on first use, so that `import policytest` costs nothing.
_HOME = {
    "Adaptive": "kl.sampling",
    "Allocation": "worst_case.lower_bound",
    "AssumptionWarning": "_base.errors",
    "Bracket": "worst_case",
    "Certificate": "worst_case.certificate",
    "Certified": "worst_case.certified",
    "Check": "results.verdict",
    "Counts": "data.counts",
    "Diagnosis": "results.diagnosis",
    "Episodes": "data.episodes",
    "Estimate": "results.estimate",
    "Forward": "kl.sampling",
    "InTraining": "questions.in_training",
    "InputError": "_base.errors",
    "Interval": "results.estimate",
    "KLBTS": "methods.baselines.klbts",
    "KLBall": "worst_case.ball",
    "LargeSample": "methods.large_sample",
    "LogBetting": "methods.log_betting",
    "LoggedEpisodes": "data.logged_episodes",
    "LowerBound": "worst_case.lower_bound",
    "MixtureBoundary": "kl.boundaries",
    "MonteCarlo": "methods.baselines.monte_carlo",
    "Needed": "results.needed",
    "NestedPGD": "worst_case.nested_pgd",
    "NotGoodEnough": "_base.errors",
    "Observed": "mdp.observed",
    "Optimal": "kl.sampling",
    "PTST": "methods.ptst",
    "PaperBoundary": "kl.boundaries",
    "Plan": "results.plan",
    "ProjectionFree": "worst_case.projection_free",
    "RectangularKL": "methods.baselines.boxes",
    "ReturnBetting": "methods.return_betting",
    "RidgeCritic": "payoffs.critics",
    "SLSQPHeuristic": "worst_case.slsqp",
    "Selection": "results.selection",
    "Status": "worst_case",
    "StoppingTimes": "results.stopping_times",
    "TDBetting": "methods.td_betting",
    "TabularSimulator": "data.simulators",
    "Task": "mdp.task",
    "Transitions": "data.transitions",
    "Undecided": "_base.errors",
    "Verdict": "results.verdict",
    "assess": "sources.logged.api",
    "at_least": "data.outcome",
    "at_most": "data.outcome",
    "characteristic_time": "worst_case.lower_bound",
    "checks": "questions.decide",
    "compare": "questions.compare",
    "decide": "questions.decide",
    "diagnose": "questions.diagnose",
    "evaluate": "questions.evaluate",
    "extreme_value": "worst_case",
    "identify": "questions.identify",
    "nearest_kernel": "worst_case",
    "occupancy": "mdp.values",
    "optimal_allocation": "worst_case.lower_bound",
    "state_values": "mdp.values",
    "plan": "questions.plan.plan",
    "still_needed": "questions.plan.plan",
    "stopping_times": "questions.decide",
    "value": "mdp.values",
    "value_interval": "sources.logged.api",
    "value_range": "mdp.values",
}

# The modules among them.
_ROOMS = {"instances": "mdp.instances", "plots": "plots", "report": "report", "sources": "sources", "study": "study"}

__all__ = sorted([*_HOME, *_ROOMS])


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(importlib.import_module(f"policytest.{_HOME[name]}"), name)
    elif name in _ROOMS:
        found = importlib.import_module(f"policytest.{_ROOMS[name]}")
    elif name == "Combined":
        from policytest.methods.names import REPLACED

        raise ImportError(f"policytest.Combined is gone; {REPLACED['combined']}")
    else:
        raise AttributeError(f"module 'policytest' has no attribute {name!r}")
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
