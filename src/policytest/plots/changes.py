"""The witness as a picture: which transitions would have to be different for the answer to be wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policytest.mdp.task import Names, Task
from policytest.plots import style
from policytest.plots.style import BLUE, MUTED, VERMILION
from policytest.results.changes import Change
from policytest.results.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

TOP = 8


def witness(verdict: Verdict, ax: Axes | None = None, top: int = TOP, suppress_below: int = 0) -> Axes:
    """Before and after: the observed share of a transition, and the probability it would need to have.

    Of the rows (s,a) that cost most, n_sa KL(p_hat_sa, q_sa), the transition that changes most. Rows with fewer than
    ``suppress_below`` samples, and transitions seen less often than that, are left out.
    """
    shown = top_changes(verdict, top, suppress_below)
    ax = style.axes(ax, height=1.15 + 0.3 * max(len(shown), 2))
    if not shown:
        return style.nothing(ax, "no kernel on the other side of the threshold to show")
    rows = np.arange(len(shown))
    before, after = (np.array([getattr(change, end) for change in shown]) for end in ("observed", "needed"))
    ax.hlines(rows, before, after, color=MUTED, linewidth=1.6)
    ax.plot(before, rows, "o", color=BLUE, markersize=7, linestyle="none", label="observed")
    ax.plot(after, rows, "D", color=VERMILION, markersize=6.5, linestyle="none", label="would have to be")
    ax.set_yticks(rows, [transition(verdict.task, change) for change in shown])
    ax.invert_yaxis()
    ends = np.concatenate([before, after])
    room = 0.1 * float(np.ptp(ends)) or 0.05
    low, high = max(ends.min() - room, -0.02), min(ends.max() + room, 1.02)
    ax.set_xlim(low, high)
    return style.finished(ax, "probability", "state, action → next", "x")


def top_changes(verdict: Verdict, top: int = TOP, suppress_below: int = 0) -> tuple[Change, ...]:
    """The changes worth showing, the most costly rows first."""
    found = verdict.changes if verdict.answer != "within" else ()  # there are two other sides then
    if verdict.witness is not None and top > len(found) > 0:
        found = verdict.largest_changes(top)
    seen = [change for change in found if _may_be_shown(change, suppress_below)]
    return tuple(seen[:top])


def _may_be_shown(change: Change, below: int) -> bool:
    """Neither the row nor the transition, nor the row without it, is a small cell."""
    times = round(change.observed * change.visits)
    return below <= 1 or (change.visits >= below and all(n == 0 or n >= below for n in (times, change.visits - times)))


def transition(task: Task | Names, change: Change, longest: int = 12) -> str:
    """The transition in words, with names where the task has them."""
    s, a = style.name(change.state, task.states, longest), style.name(change.action, task.actions, longest)
    return f"{s}, {a} → {style.name(change.successor, task.states, longest)}"
