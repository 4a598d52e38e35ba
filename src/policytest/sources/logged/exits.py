"""Rows that only say that an episode has ended: a terminal state without an action, or without a reward.

The log of a Markov table needs them where a row is a visit. They are no steps of an episode: nothing is chosen in them
and nothing is earned.
"""

from __future__ import annotations

from dataclasses import replace

from policytest._base.errors import InputError, Needed
from policytest.mdp.task import Task
from policytest.sources.labels import places_in
from policytest.sources.logged import frames
from policytest.sources.logged.frames import Expression, Frame, Table
from policytest.sources.logged.log import short

nw = Needed("narwhals", "data")
EXIT = "exit"
"""The flag of a row that is no step."""


def with_exits(frame: Frame, task: Task | None) -> Frame:
    """The frame with the flag `EXIT`, where the task has terminal states and the log has rows in them."""
    if task is None or not task.ends or not {"s", "a", "episode"} <= set(frame.roles):
        return frame
    ends = _labels_of_ends(frame, task)
    if not ends:
        return frame
    missing = _missing(frame, "a") | _missing(frame, "reward")
    flag = frames.flag(nw.col("s").is_in(ends) & missing).alias(EXIT)
    found = replace(frame, table=frame.table.with_columns(flag), flags=(*frame.flags, EXIT))
    _check_rewards(found)
    _check_steps(found)
    return found


def steps(frame: Frame) -> Table:
    """The table without the rows that are no steps."""
    return frame.table.filter(nw.col(EXIT) == 0) if EXIT in frame.flags else frame.table


def _labels_of_ends(frame: Frame, task: Task) -> list[object]:
    """The labels of terminal states, as they are written in the log."""
    at = places_in(task)
    found = []
    for batch in frames.batches(frame.table.group_by("s").agg(rows=nw.len())):
        indices, labels, codes = at.states.translated(batch["s"], frame.form)
        found += [labels[code] for index, code in zip(indices, codes, strict=True) if index in at.ends]
    return [label for label in found if not isinstance(label, list | tuple | dict)]


def _missing(frame: Frame, role: str) -> Expression:
    """Whether there is no entry."""
    none = frames.missing(role, frame.table.collect_schema()[role])
    return none | (nw.col(role) == "null") if frame.form == "json" and role == "a" else none


def _check_rewards(frame: Frame) -> None:
    """Refuse a reward after the end, which the task would not pay."""
    paid = frame.table.filter((nw.col(EXIT) == 1) & ~_missing(frame, "reward") & (nw.col("reward") != 0))
    for row in frames.rows(paid.select("episode", "s", "reward"), 1):
        raise InputError(
            f"episode {short(row['episode'])} has the reward {row['reward']:g} in the terminal state "
            f"{short(row['s'], frame.form)}, in a row without an action; nothing is earned after the end: write it "
            "into the row before, whose action earned it"
        )


def _check_steps(frame: Frame) -> None:
    """Refuse an episode that has nothing but an end: leaving it out would be a selection."""
    went_on = frame.table.group_by("episode").agg(nw.col(EXIT).min()).filter(nw.col(EXIT) == 1)
    for row in frames.rows(went_on, 1):
        raise InputError(
            f"episode {short(row['episode'])} begins in a terminal state, and has no step; give that row an action, "
            "the reward 0 and, if the log has propensities, the propensity 1"
        )
