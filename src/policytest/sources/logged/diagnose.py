r"""The diagnosis of a log where it lies: the engine looks back one row and cuts the log into periods; counts come back.

The previous row is the one before in the column `order`, in the same `episode` where there are episodes; it counts only
if it ended in the state in which the row begins. Periods have equal numbers of transitions, in the order of `order`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from policytest._base import arrays, errors
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.questions.diagnose import PERIODS, diagnose, diagnose_grouped
from policytest.results.diagnosis import Diagnosis
from policytest.sources.environments.minari import Dataset
from policytest.sources.logged import frames
from policytest.sources.logged.columns import LABELS
from policytest.sources.logged.frames import Frame
from policytest.sources.logged.log import Log, lookups, mark, short, tie_between_episodes

WINDOWLESS = ("DASK",)  # engines that cannot look back one row
UNDIVIDED = ("PYARROW",)  # engines that can, but not episode by episode


def diagnose_log(
    task: Task, log: Log, by_episode: bool = False, periods: int = PERIODS, level: float = 0.05
) -> Diagnosis:
    """Do the transitions of a log look Markov and stationary? As `policytest.diagnose`, computed by the engine.

    Parameters
    ----------
    log
        What `logs` made of data with a column `order`, or `minari` of a dataset.
    by_episode
        The order begins anew in each episode, and episodes followed one another by their ids: needed to look for
        changes over time where `order` says nothing about it.
    """
    arrays.instance("task", task, Task)
    arrays.instance("log", log, Log, ", which policytest.sources.logs makes")
    if mark(*lookups(task)) != mark(log.states, log.actions):
        raise InputError("log has other states or actions than the task; pass the task it was made for")
    if arrays.whole_number("periods", periods) < 2:
        raise InputError(f"periods is {periods}; to compare, at least 2 are needed")
    if isinstance(log, Dataset):
        return diagnose(task, log.recorded, log.episodes, periods, level)
    frame = _usable(log)
    lagged, broken = (None, 0) if "count" in frame.roles else _lagged(log, frame)
    tie = None if by_episode else tie_between_episodes(frame)
    table = None if tie is not None else _by_period(log, frame, by_episode, periods)
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
    if tie is not None:
        notes.append(
            f"Not tested: changes over time, since order is {short(tie['order'])} in several episodes and does not say "
            "which came first; pass by_episode=True if episodes followed one another by their ids."
        )
    return replace(found, notes=tuple(notes))


def _usable(log: Log) -> Frame:
    frame = log.frame
    if frame is None:
        raise InputError("this log has counts only (it was loaded, or added to another), which have lost the order")
    if "order" not in frame.roles:
        raise InputError(
            "data has no column order, so that nothing is known about time; name the one that has it with "
            'columns={"order": ...}'
        )
    if frame.engine.upper() in WINDOWLESS:
        raise InputError(
            f"{frame.engine} cannot look back one row; use diagnose(task, log.transitions()) if the log fits into "
            "memory, or read the files themselves"
        )
    return frame


def _lagged(log: Log, frame: Frame) -> tuple[tuple[Any, ...], int]:
    """The counts by the previous row; and how many rows of an episode do not begin where that one ended."""
    nw = errors.needs("narwhals", "data")
    episodes = "episode" in frame.roles
    together = episodes and frame.engine.upper() not in UNDIVIDED
    parts, by = (("episode",), ["order"]) if together else ((), ["episode", "order"] if episodes else ["order"])

    def before(role: str) -> Any:
        return nw.col(role).shift(1).over(*parts, order_by=by)

    keys: dict[str, Any] = {role: nw.col(role) for role in LABELS}
    keys |= {f"before_{role}": before(role) for role in LABELS}
    if episodes and not together:
        keys["same"] = before("episode") == nw.col("episode")
    kinds = dict(zip(LABELS, (log.states, log.actions, log.states), strict=True))
    found = frames.grouped(frame, keys, {**kinds, **{f"before_{role}": kind for role, kind in kinds.items()}})
    known = np.min([found[name] for name in keys if name != "same"], axis=0) >= 0
    if "same" in keys:
        known &= np.array([value is True for value in found["same"]], dtype=bool)
    follows = known & (found["before_s_next"] == found["s"])
    columns = ("before_s", "before_a", *LABELS, "n")
    broken = int(found["n"][known & ~follows].sum()) if episodes else 0
    return tuple(found[name][follows] for name in columns), broken


def _by_period(log: Log, frame: Frame, by_episode: bool, periods: int) -> tuple[Any, ...]:
    """The counts by period: the running number of transitions, of all of them."""
    nw = errors.needs("narwhals", "data")
    by = ["episode", "order"] if by_episode and "episode" in frame.roles else ["order"]
    total = max(int(log.counts.total + sum(entry.rows for entry in log.left_out)), 1)
    running = nw.col("weight").cum_sum().over(order_by=by)
    period = ((running - nw.lit(1)) * periods // total).cast(nw.Int64)
    keys = {"period": period, **{role: nw.col(role) for role in LABELS}}
    found = frames.grouped(frame, keys, dict(zip(LABELS, (log.states, log.actions, log.states), strict=True)))
    known = np.min([found[role] for role in LABELS], axis=0) >= 0
    at = np.clip(np.array(found["period"], dtype=np.int64), 0, periods - 1)
    return (at[known], *(found[name][known] for name in (*LABELS, "n")))
