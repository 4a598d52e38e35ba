"""Tasks with listed rewards, for the methods that need known ones: these work on the outcome table."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from policytest.data.counts import Counts
from policytest.data.listed_rewards import OutcomeSimulator, outcome_counts, outcome_transitions
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.kl.sampler import check_size
from policytest.mdp.listed_rewards import Outcomes, lists_rewards, outcomes_of
from policytest.mdp.task import Task
from policytest.methods.run import Method, traits_of


def outcomes_for(task: object, method: object) -> Outcomes | None:
    """The outcomes of a task with listed rewards, where the method works on their table; None: on the task itself."""
    return outcomes_of(task) if isinstance(task, Task) and traits_of(method).table and lists_rewards(task) else None


@runtime_checkable
class OnTables(Method, Protocol):
    """A method that works on outcome tables."""

    def on_outcomes(self, outcomes: Outcomes) -> Method:
        """The same method, for the rows of the table."""


def on_outcomes(outcomes: Outcomes, method: Method) -> Method:
    """The method with whatever has one entry for each pair, for the rows of the table."""
    return method.on_outcomes(outcomes) if isinstance(method, OnTables) else method


def source_of_outcomes(
    outcomes: Outcomes, source: SimulatorLike | Transitions | Counts
) -> OutcomeSimulator | Transitions | Counts:
    """A simulator, transitions or counts, for the outcome table."""
    if isinstance(source, Counts):
        return outcome_counts(outcomes, source)
    if isinstance(source, Transitions):
        return outcome_transitions(outcomes, source)
    check_size(source, outcomes.task)
    return OutcomeSimulator(outcomes, source)


def in_outcomes(task: Any, method: Any, source: Any) -> tuple[Any, Any, Any]:
    """The task, the method and the source, or the outcome table and what belongs to it where the method needs that."""
    if (outcomes := outcomes_for(task, method)) is None:
        return task, method, source
    return outcomes.table, on_outcomes(outcomes, method), source_of_outcomes(outcomes, source)
