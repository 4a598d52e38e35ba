"""Observed transitions, in their order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.counts import Counts, flaws
from policytest.mdp.task import Task


@dataclass(frozen=True, eq=False)
class Transitions:
    """Observed transitions (s, a, x), in the order in which they were observed; three integer arrays of one length.

    ``selected``: some were left out because of their outcome x; ``other_rewards``: the data report other rewards than
    the task. With either, no answer is certified.
    """

    s: Any
    a: Any
    x: Any
    selected: bool = False
    other_rewards: bool = False

    def __post_init__(self) -> None:
        for name in ("s", "a", "x"):
            object.__setattr__(self, name, arrays.index_list(name, getattr(self, name)))
        if not len(self.s) == len(self.a) == len(self.x):
            raise InputError(f"s, a and x have {len(self.s)}, {len(self.a)} and {len(self.x)} entries; they must agree")

    def __len__(self) -> int:
        return len(self.s)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no answer from these transitions is certified, in words; empty where nothing is wrong with them."""
        return flaws(self.selected, self.other_rewards)

    def counts(self, task: Task, first: int) -> Counts:
        """The counts of the first ``first`` of them."""
        counts = Counts(
            task.n_states, task.n_actions, arrays.is_sparse(task.support), self.selected, self.other_rewards
        )
        counts.record(self.s[:first], self.a[:first], self.x[:first])
        return counts
