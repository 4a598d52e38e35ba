"""Tasks with listed rewards, for the methods that need known ones: these work on the outcome table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.listed_rewards import OutcomeSimulator, outcome_counts, outcome_transitions
from policytest.data.transitions import Transitions
from policytest.kl.sampler import SampledMethod, check_size
from policytest.kl.sampling import Forward, Optimal
from policytest.mdp.listed_rewards import Outcomes, lists_rewards, outcomes_of
from policytest.mdp.task import Task


def outcomes_for(task: Task, method: Any) -> Outcomes | None:
    """The outcomes of a task with listed rewards, where the method works on their table; None: on the task itself.

    `TDBetting` and `LogBetting` need no table. A method that wraps another one, such as `Trace.watch(method)`, is
    treated as the one in it.
    """
    needs_table = isinstance(getattr(method, "method", method), SampledMethod) and lists_rewards(task)
    return outcomes_of(task) if needs_table else None


def on_outcomes(outcomes: Outcomes, method: Any) -> Any:
    """The method with its allocation, and whatever else has one entry for each pair, for the rows of the table."""
    if hasattr(method, "method"):
        return replace(method, method=on_outcomes(outcomes, method.method))
    allocation = getattr(method, "allocation", None)
    if isinstance(allocation, Forward):
        raise InputError(
            "allocation is Forward(), which follows the states of a table, and here rewards are observed; leave it "
            "out, or use TDBetting(), which follows trajectories"
        )
    if isinstance(allocation, np.ndarray):
        arrays.check_shape("allocation", allocation.shape, outcomes.task.policy.shape)
        return replace(method, allocation=outcomes.shares(allocation))
    if isinstance(allocation, Optimal):
        kernel = outcomes.kernel("allocation.kernel", allocation.kernel)
        return replace(method, allocation=replace(allocation, kernel=kernel))
    if getattr(method, "alternative", None) is not None:
        raise InputError("alternative: rewards are observed, and KLBTS(policies=2) needs known ones; pass policies=1")
    return method


def source_of_outcomes(outcomes: Outcomes, source: Any) -> Any:
    """A simulator, transitions or counts, for the outcome table."""
    if isinstance(source, Counts):
        return outcome_counts(outcomes, source)
    if isinstance(source, Transitions):
        return outcome_transitions(outcomes, source)
    check_size(source, outcomes.task)
    return OutcomeSimulator(outcomes, source)


def in_outcomes(task: Any, method: Any, source: Any) -> tuple[Any, Any, Any]:
    """The task, the method and the source, or the outcome table and what belongs to it where the method needs that."""
    outcomes = outcomes_for(task, method) if isinstance(task, Task) else None
    if outcomes is None:
        return task, method, source
    return outcomes.table, on_outcomes(outcomes, method), source_of_outcomes(outcomes, source)
