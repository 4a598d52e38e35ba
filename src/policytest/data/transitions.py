"""Observed transitions, in their order."""

from __future__ import annotations

from dataclasses import dataclass, replace

from policytest._base import arrays
from policytest._base.arrays import AsArray
from policytest._base.errors import InputError
from policytest.data.counts import REFUTED, Counts, flaws
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task


@dataclass(frozen=True, eq=False)
class Transitions:
    """Observed transitions (s, a, x), in the order in which they were observed; three integer arrays of one length.

    ``r`` are the rewards that were observed with them, for tasks whose rewards are `Observed`. ``selected``: some were
    left out because of their outcome x; ``other_rewards``: the data report other rewards than the task. With either, no
    answer is certified. ``cells``: where states are cells, what a diagnosis says of them, as in `Counts`;
    ``episode``: a label of the episode of each, which only that diagnosis needs.
    """

    s: AsArray
    a: AsArray
    x: AsArray
    r: AsArray = None
    selected: bool = False
    other_rewards: bool = False
    cells: str | None = None
    episode: AsArray = None

    def __post_init__(self) -> None:
        for name in ("s", "a", "x"):
            object.__setattr__(self, name, arrays.index_list(name, getattr(self, name)))
        if not len(self.s) == len(self.a) == len(self.x):
            raise InputError(f"s, a and x have {len(self.s)}, {len(self.a)} and {len(self.x)} entries; they must agree")
        if self.r is not None:
            object.__setattr__(self, "r", arrays.real_array("r", self.r, (len(self.s),)))

    def __len__(self) -> int:
        return len(self.s)

    def first(self, size: int) -> Transitions:
        """The first ``size`` of them."""
        r = None if self.r is None else self.r[:size]
        episode = None if self.episode is None else self.episode[:size]
        return replace(self, s=self.s[:size], a=self.a[:size], x=self.x[:size], r=r, episode=episode)

    def check_rewards(self, task: Task) -> None:
        """Refuse rewards that are missing where the task's are observed, or outside their range; name the row."""
        if not isinstance(task.rewards, Observed):
            return
        if self.r is None:
            raise InputError("data has no rewards, and the task's are observed; pass Transitions(s, a, x, r=rewards)")
        pair = self.s * task.n_actions + self.a
        wrong = task.rewards.outside(pair, self.r / task.reward_scale) & (task.policy.ravel()[pair] > 0)
        if (at := arrays.first(wrong)) is not None:
            expected = task.rewards.expected(int(pair[at]), task.reward_scale)
            raise InputError(
                f"data.r[{at}] is {self.r[at]:g} at {task.place(int(pair[at]), int(self.x[at]))}, {expected}; "
                f"fix the row or {task.rewards.remedy}"
            )

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no answer from these transitions is certified, in words; empty where nothing is wrong with them."""
        return flaws(self.selected, self.other_rewards, self.cells)

    @property
    def refutes_model(self) -> bool:
        """Whether these transitions refute the model of the task."""
        return self.cells == REFUTED

    def with_cells(self, cells: str) -> Transitions:
        """The same transitions, with what a diagnosis says of the cells."""
        return replace(self, cells=cells)

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self)

    def all_counts(self, task: Task) -> Counts:
        """The counts of all of them."""
        return self.counts(task, len(self))

    def counts(self, task: Task, first: int) -> Counts:
        """The counts of the first ``first`` of them."""
        counts = Counts(
            task.n_states, task.n_actions, arrays.is_sparse(task.support), self.selected, self.other_rewards, self.cells
        )
        counts.record(self.s[:first], self.a[:first], self.x[:first])
        return counts
