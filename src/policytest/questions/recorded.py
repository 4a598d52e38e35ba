"""Recorded transitions of a task, checked."""

from __future__ import annotations

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.transitions import Transitions
from policytest.kl.sampler import Recorded
from policytest.mdp.task import Task


def checked_data(data: object) -> Counts | Transitions:
    """Recorded data, if it is one of the two kinds."""
    if not isinstance(data, Counts | Transitions):
        raise InputError(f"data is a {type(data).__name__}; pass Counts, or Transitions(s, a, x) in order")
    return data


def recorded(task: Task, data: Transitions) -> Recorded:
    """The rows and successors of transitions, checked."""
    check_indices(task, data)
    return Recorded.of(task, data)


def check_indices(task: Task, data: Transitions, name: str = "data") -> None:
    """Refuse states and actions that the task does not have."""
    for letter, count in (("s", task.n_states), ("a", task.n_actions), ("x", task.n_states)):
        arrays.index_list(f"{name}.{letter}", getattr(data, letter), count)
