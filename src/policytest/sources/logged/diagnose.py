r"""The diagnosis of a log: what is known of each row before its outcome, from the rows in their order.

The previous row is the one before in the column `order`, in the same `episode` where there are episodes; it counts only
if it ended in the state in which the row begins. Periods have equal numbers of transitions, in the order of `order`.

Both tables come from the rows that were kept in order; where there were too many to keep all, the engine that has the
data is asked for them, with window functions, and only groups come back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import IntArray
from policytest._base.errors import InputError
from policytest._base.text import number
from policytest.mdp.task import Task
from policytest.questions.cells import has_cells, said_of_cells
from policytest.questions.diagnose import PERIODS, diagnose, diagnose_grouped, followers
from policytest.results.diagnosis import Diagnosis
from policytest.sources.environments.minari import Dataset
from policytest.sources.labels import places_in, whole
from policytest.sources.logged import frames
from policytest.sources.logged.columns import LABELS
from policytest.sources.logged.frames import Frame, Table
from policytest.sources.logged.log import IndexColumns, Log, short


def diagnose_log(
    task: Task, log: Log, by_episode: bool = False, periods: int = PERIODS, level: float = 0.05
) -> Diagnosis:
    """Do the transitions of a log look Markov and stationary? As `policytest.diagnose`.

    Parameters
    ----------
    log
        What `logs` made of data with a column `order`, or `minari` of a dataset.
    by_episode
        `order` restarts in each episode, and episodes followed one another by their ids: needed to look for changes
        over time where `order` says nothing about it.
    """
    arrays.instance("task", task, Task)
    arrays.instance("log", log, Log, ", which policytest.sources.logs makes")
    if places_in(task).mark != log.at.mark:
        raise InputError("log has other states or actions than the task; pass the task it was made for")
    if arrays.whole_number("periods", periods) < 2:
        raise InputError(f"periods is {periods}; to compare, at least 2 are needed")
    if isinstance(log, Dataset):
        return diagnose(task, log.recorded, log.episodes, periods, level)
    rows = _Asked(log, log.frame) if log.frame is not None else _Kept(log.columns) if log.columns is not None else None
    if rows is None:
        raise InputError(log.no_order)
    lagged, broken = (None, 0) if rows.counted else rows.lagged()
    restarts = "" if by_episode else rows.restarts()
    table = None if restarts else rows.by_period(by_episode, periods)
    if lagged is None and table is None:
        raise InputError(
            "the rows are counts, and order restarts in each episode: neither the previous row nor the time of "
            "a row is known; pass by_episode=True if episodes followed one another by their ids"
        )
    found = diagnose_grouped(task, lagged, table, level, periods, broken)
    notes = []
    if lagged is None:
        notes.append(
            "Not tested: the previous state and action, since a row of the log stands for several transitions."
        )
    if restarts:
        notes.append(
            f"Not tested: changes over time, since order begins with {restarts} in every episode and does not "
            "say which came first; pass by_episode=True if episodes followed one another by their ids."
        )
    return replace(found, notes=tuple(notes))


def diagnosed_log(task: Task, log: Log, by_episode: bool) -> Log:
    """A log whose states are cells, with what it says of them; another one, or one that says it, as it is."""
    if log.counts.cells is not None or not (log.binned or has_cells(task)):
        return log
    diagnosis = None
    with contextlib.suppress(InputError):  # without an order there is nothing to test
        diagnosis = diagnose_log(task, log, by_episode)
    return log.with_cells(said_of_cells(diagnosis))


class _Kept(NamedTuple):
    """Rows that were kept in their order."""

    columns: IndexColumns

    @property
    def counted(self) -> bool:
        """Whether a row may stand for several transitions."""
        return self.columns.times is not None

    def restarts(self) -> str:
        """The number with which the order begins in every episode, in words; "" if they differ, or are times."""
        return self.columns.restarts

    def lagged(self) -> tuple[tuple[IntArray, ...], int]:
        """The previous state and action, s, a, x and how many; and how many rows do not begin where one ended."""
        columns = self.columns
        before, now, broken = followers(columns.s, columns.x, columns.episode, columns.known)
        ones = np.ones(len(now), dtype=np.int64)
        return (columns.s[before], columns.a[before], columns.s[now], columns.a[now], columns.x[now], ones), broken

    def by_period(self, by_episode: bool, periods: int) -> tuple[IntArray, ...]:
        """The period, s, a, x and how many transitions."""
        columns = self.columns.by_episode() if by_episode else self.columns
        times = np.ones(len(columns.s), dtype=np.int64) if columns.times is None else columns.times
        running = np.cumsum(times)
        period = np.clip((running - 1) * periods // max(int(times.sum()), 1), 0, periods - 1)
        return tuple(column[columns.known] for column in (period, *columns[:3], times))


class _Asked(NamedTuple):
    """The same of rows that were too many to keep: their engine is asked."""

    log: Log
    frame: Frame

    @property
    def counted(self) -> bool:
        return "count" in self.frame.roles

    def restarts(self) -> str:
        if "episode" not in self.frame.roles:
            return ""
        with frames.readable():
            found = frames.rows(frames.first_orders(self.frame), 1)[0]
        same = found["episodes"] > 1 and found["least"] == found["largest"]
        return short(found["least"]) if same and isinstance(found["least"], int | float) else ""

    def lagged(self) -> tuple[tuple[IntArray, ...], int]:
        found = self._groups(frames.lagged)
        same = np.minimum.reduce([found[f"before_{role}"] for role in LABELS]) >= 0
        joined = same & (found["before_s_next"] == found["s"])
        broken = int(found["rows"][same & ~joined].sum()) if "episode" in self.frame.roles else 0
        return tuple(found[name][joined] for name in ("before_s", "before_a", *LABELS, "rows")), broken

    def by_period(self, by_episode: bool, periods: int) -> tuple[IntArray, ...]:
        found = self._groups(lambda frame: frames.by_period(frame, by_episode, periods))
        period = np.clip(found["period"], 0, periods - 1)
        return (period, *(found[name] for name in (*LABELS, "n")))

    def _groups(self, query: Callable[[Frame], Table]) -> dict[str, IntArray]:
        """The groups of known labels, as indices; the labels of the row before may be unknown or missing (below 0)."""
        lookups, parts = self.log.at.by_role, dict[str, list[IntArray]]()
        with frames.readable():
            for batch in frames.batches(query(frames.with_windows(self.frame))):
                for name, column in batch.items():
                    lookup = lookups.get(name.removeprefix("before_"))
                    found = whole(column) if lookup is None else lookup.indices(column, self.frame.form)
                    parts.setdefault(name, []).append(found)
        groups = {name: np.concatenate(part) for name, part in parts.items()}
        known = np.minimum.reduce([groups[role] for role in LABELS]) >= 0
        groups = {name: column[known] for name, column in groups.items()}
        if groups["rows"].sum() != self.log.used:
            raise InputError(
                f"data has {number(groups['rows'].sum())} rows with known labels now, and had {number(self.log.used)} "
                "when logs read it; call logs again"
            )
        return groups
