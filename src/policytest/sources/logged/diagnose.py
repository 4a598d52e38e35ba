r"""The diagnosis of a log: what is known of each row before its outcome, from the rows in their order.

The previous row is the one before in the column `order`, in the same `episode` where there are episodes; it counts only
if it ended in the state in which the row begins. Periods have equal numbers of transitions, in the order of `order`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import IntArray
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.questions.diagnose import PERIODS, diagnose, diagnose_grouped, followers
from policytest.results.diagnosis import Diagnosis
from policytest.sources.environments.minari import Dataset
from policytest.sources.labels import places_in
from policytest.sources.logged.log import IndexColumns, Log


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
    columns = log.columns
    if columns is None:
        raise InputError(log.no_order)
    lagged, broken = (None, 0) if columns.times is not None else _lagged(columns)
    untimed = bool(columns.tie) and not by_episode
    table = None if untimed else _by_period(columns.by_episode() if by_episode else columns, periods)
    if lagged is None and table is None:
        raise InputError(
            "the rows are counts, and order is the same in several episodes: neither the previous row nor the time of "
            "a row is known; pass by_episode=True if episodes followed one another by their ids"
        )
    found = diagnose_grouped(task, lagged, table, level, periods, broken)
    notes = []
    if lagged is None:
        notes.append(
            "Not tested: the previous state and action, since a row of the log stands for several transitions."
        )
    if untimed:
        notes.append(
            f"Not tested: changes over time, since order is {columns.tie} in several episodes and does not say which "
            "came first; pass by_episode=True if episodes followed one another by their ids."
        )
    return replace(found, notes=tuple(notes))


def _lagged(columns: IndexColumns) -> tuple[tuple[IntArray, ...], int]:
    """The previous state and action, s, a, x and 1 for each row; and how many rows do not begin where it ended."""
    before, now, broken = followers(columns.s, columns.x, columns.episode, columns.known)
    ones = np.ones(len(now), dtype=np.int64)
    return (columns.s[before], columns.a[before], columns.s[now], columns.a[now], columns.x[now], ones), broken


def _by_period(columns: IndexColumns, periods: int) -> tuple[IntArray, ...]:
    """The period, s, a, x and the number of transitions for each row."""
    times = np.ones(len(columns.s), dtype=np.int64) if columns.times is None else columns.times
    running = np.cumsum(times)
    period = np.clip((running - 1) * periods // max(int(times.sum()), 1), 0, periods - 1)
    return tuple(column[columns.known] for column in (period, *columns[:3], times))
