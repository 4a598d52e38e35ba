"""Where states are cells of continuous ones: do the data refute that the cells are Markov?

An answer about cells rests on their being Markov, which they generally are not. So every answer from data looks at what
the data say of it. By the diagnosis of `policytest.diagnose` the cells are "refuted", "doubtful" (only the usual G-test
speaks against them, which is approximate and more sensitive), "untested" where there is no order, or else "held"; only
with "held" an answer is certified.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from policytest._base.errors import InputError
from policytest.data.counts import CELLS_ARE_MARKOV, DOUBTFUL, HELD, REFUTED, UNTESTED, Counts
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.questions.diagnose import diagnose, diagnose_grouped
from policytest.results.diagnosis import Diagnosis
from policytest.results.estimate import Estimate
from policytest.results.selection import Selection
from policytest.results.verdict import Verdict

LEAST_SHARE = 0.2  # of the rows that matter: those that follow another one

Data = TypeVar("Data", bound=Counts | Transitions)
Result = TypeVar("Result", Verdict, Estimate, Selection)


def has_cells(task: Task) -> bool:
    """Whether the states of a task are cells."""
    return CELLS_ARE_MARKOV in task.assumptions


def said_of_cells(diagnosis: Diagnosis | None) -> str:
    """What a diagnosis says of the cells; None is one that was not made.

    They are tested by the state before, in rows that follow another one: if few rows do, the order is not that of time,
    or episodes are not those of the log.
    """
    tested = {finding.key: finding.transitions for finding in diagnosis.findings} if diagnosis is not None else {}
    followed = tested.get("previous_state", 0)
    if diagnosis is None or not followed or followed < LEAST_SHARE * max(tested.values()):
        return UNTESTED
    return REFUTED if diagnosis.refuted else DOUBTFUL if diagnosis.hints else HELD


def diagnosed(task: Task, data: Data) -> Data:
    """Data about cells with what they say of them; other data, and those that say it already, as they are."""
    if not has_cells(task) or data.cells is not None:
        return data
    diagnosis = _diagnosis(task, data) if isinstance(data, Transitions) else None  # counts have no order
    return data.with_cells(said_of_cells(diagnosis))  # type: ignore[return-value]


def _diagnosis(task: Task, data: Transitions) -> Diagnosis | None:
    try:
        return diagnose(task, data, data.episode)
    except InputError:  # labels of episodes that cannot be compared
        return None


def diagnosed_run(task: object, sim: object, found: Result) -> Result:
    """A result from an environment that was stepped, with what its steps say of the cells."""
    cells = cells_of_run(task, sim, found.samples)
    if cells is None or not isinstance(found.counts, Counts):
        return found
    return replace(found, counts=found.counts.with_cells(cells), certified=found.certified and cells == HELD)


def cells_of_run(task: object, sim: object, samples: int) -> str | None:
    """What the steps of an environment say of the cells; None where nothing is to be said.

    Draws of another simulator are those of a Markov kernel by what a simulator is. Of a run that was resumed the first
    steps are not known any more.
    """
    if not (samples and isinstance(task, Task) and has_cells(task)):
        return None
    walked = getattr(sim, "walked", None)
    if walked is None:
        return None
    lagged, moves = walked
    return said_of_cells(diagnose_grouped(task, lagged)) if moves >= samples else UNTESTED
