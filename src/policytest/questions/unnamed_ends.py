"""Ends of episodes that a task does not name: states which have only been seen to lead to themselves.

Where the discount is 1 and there is no horizon, an episode goes on until a terminal state. A sink that is not named,
and whose successors are not declared, may be left for all that the test knows: it goes on sampling there, and may need
any number of samples. The warning comes as soon as it shows.
"""

from __future__ import annotations

import warnings

import numpy as np

from policytest._base.arrays import BoolArray, IntArray
from policytest._base.errors import AssumptionWarning
from policytest._base.text import plural
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task

MANY, SOME = 100, 5
"""How often a state was sampled before the warning, and how often the others that the warning names."""
LISTED = 5
"""States that the warning names, at most."""


class UnnamedEnds:
    """Looks at the counts of a run when they have doubled, and warns once."""

    def __init__(self, task: Task, tally: WitnessedCounts | None) -> None:
        self.task, self.tally, self.due = task, tally, float(MANY)
        if tally is None or not task.is_total:  # episodes have no counts of a table
            self.due = np.inf

    def look(self) -> None:
        """Warn of such states, where there are some."""
        if self.tally is None or self.due == np.inf or (samples := self.tally.n.sum()) < self.due:
            return
        self.due = 2.0 * samples
        visits = np.bincount(self.tally.rows.state, self.tally.n, self.task.n_states)
        found = np.flatnonzero(_never_left(self.task, self.tally) & (visits >= SOME))
        if len(found) and visits[found].max() >= MANY:
            self.due = np.inf
            warnings.warn(_in_words(self.task, found), AssumptionWarning, stacklevel=5)


def _never_left(task: Task, tally: WitnessedCounts) -> BoolArray:
    """[S] no transition led away, and no known row does; ends that are named do not count."""
    rows, S = tally.rows, task.n_states
    source, row = rows.state[rows.of_entry()], rows.of_entry()
    away = rows.successor != source
    leaves = np.bincount(source, away & (tally.N > 0), S)
    leaves += np.bincount(source, away & (np.diff(rows.start)[row] == 1), S)
    found = leaves == 0
    found[task.ends] = False
    return np.asarray(found)


def _in_words(task: Task, found: IntArray) -> str:
    names = [s if task.states is None else task.states[s] for s in found[:LISTED].tolist()]
    more = f", and so have {plural(len(found) - 1, 'more state')}" if len(found) > 1 else ""
    name = f"avoid={names!r}" if task.goal else f"terminal = {names!r} to the task file"
    return (
        f"state {names[0]!r} has only been seen to lead to itself{more}: the test cannot know that it is never left, "
        "and may need very many samples. If the task has a kernel, declare the support with known_support=True of "
        f"load_model; or, if episodes end there, add {name}, and all states like it"
    )
