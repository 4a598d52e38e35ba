"""A log: counts of transitions, and how they came about. `tables.logs` makes one."""

from __future__ import annotations

import hashlib
import json
import os
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np

from policytest._base import arrays, errors
from policytest._base.arrays import IntArray
from policytest._base.errors import InputError
from policytest._base.files import write_arrays
from policytest._base.table import Row, Shown, Table
from policytest._base.text import number, plain, plural
from policytest.data.counts import Counts, read_counts
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.sources.labels import Lookup, whole
from policytest.sources.logged import frames
from policytest.sources.logged.columns import LABELS
from policytest.sources.logged.frames import Frame
from policytest.sources.logged.paths import File

TRANSITION_LIMIT = 50_000_000  # transitions that are brought into memory in their order
EXAMPLES = 3  # labels that are shown


@dataclass(frozen=True)
class LeftOut:
    """Rows that are not counted, for a label in this column: how many, and the most frequent labels with their rows."""

    column: str
    reason: str
    rows: int
    examples: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, eq=False)
class Log(Shown):
    """Counts of transitions, and how they came about.

    Attributes
    ----------
    counts
        What `assess`, `value_interval` and `still_needed` take.
    rows, used
        Rows read, and rows that were counted.
    left_out
        The others, by column and reason.
    idle
        Rows of pairs with pi(a|s) = 0. They are counted, and no test looks at them.
    files
        Name, size and fingerprint of every file, so that none is counted twice.
    before
        Transitions that ``add_to`` brought along as bare counts.
    """

    counts: Counts
    rows: int
    used: int
    left_out: tuple[LeftOut, ...]
    idle: int
    files: tuple[File, ...]
    states: Lookup = field(repr=False)
    actions: Lookup = field(repr=False)
    taken: Any = field(repr=False)  # [S*A] pairs with pi > 0 whose rows are not known
    before: int = 0
    frame: Frame | None = field(default=None, repr=False)
    suppress_below: int = 0

    @property
    def selected(self) -> bool:
        """Whether rows were left out because of their outcome; then no answer from these counts is certified."""
        return self.counts.selected

    @property
    def other_rewards(self) -> bool:
        """Whether the rows report other rewards than the task; then no answer from these counts is certified."""
        return self.counts.other_rewards

    def transitions(self, by_episode: bool = False) -> Transitions:
        """The transitions in the order in which they were observed, for methods that need it.

        That is the order of the column `order`, which must not have ties: a time, or a number that runs through all
        episodes. Where it begins anew in each episode, ``by_episode=True`` takes one episode after another in the order
        of their ids (numbers by size, text by letters). It is for you to say so, because it is right only if ids were
        given when episodes *began*, and each began after the one before had ended, or the rule that chose the actions
        learnt nothing from other episodes. Ids given at the end put short episodes first, and then the order tells
        about outcomes.

        Rows that stand for several transitions (``count`` above 1) have no order among each other, and are refused.
        """
        return _in_order(self, by_episode)

    def in_order(self, by_episode: bool = False) -> bool:
        """Whether it is known in which order the transitions were observed, so that `transitions` gives them."""
        frame = self.frame
        if frame is None or "order" not in frame.roles or self.counts.total > TRANSITION_LIMIT or summed_up(frame):
            return False
        return by_episode or tie_between_episodes(frame) is None

    def shown(self, suppress_below: int = 0) -> Log:
        """The same log, which shows no number of rows or transitions between 1 and ``suppress_below`` - 1."""
        if arrays.whole_number("suppress_below", suppress_below) < 0:
            raise InputError(f"suppress_below is {suppress_below}; it cannot be negative")
        return replace(self, suppress_below=int(suppress_below))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write counts and provenance to one file (NPZ), which `Log.load` and `Counts.load` both read."""
        about = {
            "rows": self.rows,
            "used": self.used,
            "idle": self.idle,
            "before": self.before,
            "labels": mark(self.states, self.actions),
            "left_out": [[entry.column, entry.reason, entry.rows, entry.examples] for entry in self.left_out],
            "files": [[file.name, file.size, file.fingerprint, file.empty] for file in self.files],
        }
        write_arrays(path, **self.counts.as_arrays(), log=json.dumps(about))

    @classmethod
    def load(cls, path: str | os.PathLike[str], task: Task) -> Log:
        """The log in a file that `save` wrote, for the same task (its states and actions must be the same)."""
        arrays.instance("task", task, Task)
        return read_counts(path, lambda file: cls._from_file(file, task))

    @classmethod
    def _from_file(cls, file: Any, task: Task) -> Log:
        if "log" not in file:
            raise InputError("it has counts only, no log; read it with Counts.load")
        about = json.loads(str(file["log"]))
        states, actions = lookups(task)
        if about["labels"] != mark(states, actions):
            raise InputError("it was made for other states or actions; pass the task it was made for")
        left_out = tuple(
            LeftOut(column, reason, rows, tuple((label, times) for label, times in examples))
            for column, reason, rows, examples in about["left_out"]
        )
        files = tuple(File(*entry) for entry in about["files"])
        rows, used, idle, before = (about[name] for name in ("rows", "used", "idle", "before"))
        counts = Counts._from_file(file)
        return cls(counts, rows, used, left_out, idle, files, states, actions, taken_pairs(task), before)

    @cached_property
    def summary(self) -> Table:
        """The log as one table, for text, HTML and JSON."""
        return _summary(self)

    def data(self) -> dict[str, Any]:
        """What a program reads; small numbers are left out as they are in the table."""
        left = [
            {
                "column": entry.column,
                "reason": entry.reason,
                "rows": self._raw(entry.rows),
                "examples": self._named(entry),
            }
            for entry in self.left_out
        ]
        files = [{"name": file.name, "size": file.size, "fingerprint": file.fingerprint} for file in self.files]
        return {**self.summary.data(), "left_out": left, "files": files}

    def _raw(self, n: int) -> int | None:
        """The number, or None where it is too small to be shown."""
        return None if 0 < n < self.suppress_below else n

    def _number(self, n: int) -> str:
        return number(n) if self._raw(n) is not None else f"fewer than {self.suppress_below}"

    def _named(self, entry: LeftOut) -> list[list[Any]]:
        """The labels left out in so many rows that they may be named."""
        return [[label, rows] for label, rows in entry.examples if self._raw(rows) is not None]


def lookups(task: Task) -> tuple[Lookup, Lookup]:
    """The labels of the states and of the actions."""
    return Lookup("state", task.states, task.n_states), Lookup("action", task.actions, task.n_actions)


def mark(states: Lookup, actions: Lookup) -> str:
    """A fingerprint of the names, by which a saved log is recognised."""
    text = repr([(lookup.count, lookup.names) for lookup in (states, actions)])
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()


def taken_pairs(task: Task) -> Any:
    """[S*A] which pairs a test looks at: pi > 0, and the row is not known."""
    return task.layout.unknown_pairs.ravel()


def short(value: Any, form: str = "typed") -> str:
    """A value from the data, on one short line."""
    text = plain(str(value) if form == "json" and value is not None else repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------- in order


def tie_between_episodes(frame: Frame) -> Any:
    """Two rows of different episodes with the same order, if there are any."""
    if "episode" not in frame.roles:
        return None
    with frames.readable():
        return frames.repeated(replace(frame, roles=tuple(role for role in frame.roles if role != "episode")))


def summed_up(frame: Frame) -> bool:
    """Whether some row stands for several transitions: then their order is lost."""
    if "count" not in frame.roles:
        return False
    narwhals = errors.needs("narwhals", "data")
    return bool(frames.rows(frame.table.filter(narwhals.col("count") > 1).select("count"), 1))


def _in_order(log: Log, by_episode: bool) -> Transitions:
    frame = log.frame
    if frame is None:
        raise InputError(
            "this log has counts only (it was loaded, or added to another); pass all files to logs at once"
        )
    if "order" not in frame.roles:
        raise InputError('data has no column order; name the one that has it with columns={"order": ...}')
    if summed_up(frame):
        raise InputError(
            "data has rows with a count above 1: a row that stands for several transitions does not say in which order "
            "they came among those of other rows; use log.counts, or pass one row for each transition"
        )
    if log.counts.total > TRANSITION_LIMIT:
        raise InputError(
            f"there are {number(log.counts.total)} transitions, more than {TRANSITION_LIMIT:,} to keep in order; use "
            "log.counts, or a part of the data"
        )
    by = ["order"]
    if "episode" in frame.roles:
        with frames.readable():
            tie = frames.repeated(replace(frame, roles=tuple(role for role in frame.roles if role != "episode")))
        if by_episode:
            numbered = "episode_number" in frame.table.collect_schema().names()  # ids in text: 9 comes before 10
            by = ["episode_number", "episode", "order"] if numbered else ["episode", "order"]
        elif tie is not None:
            raise InputError(
                f"order is {short(tie['order'])} in several episodes, so it does not say which transition came first; "
                "give a time, or pass by_episode=True: right only if ids were given when episodes began, and each "
                "began after the one before had ended, or the rule that chose the actions learnt nothing from other "
                "episodes"
            )
    parts: list[tuple[IntArray, ...]] = [(np.zeros(0, np.int64),) * 3]
    with frames.readable():
        table = frames.prepared(frame).select(*LABELS, *by, "weight").sort(*by, nulls_last=True)
        for batch in frames.batches(table, max(log.rows, frames.GROUP_LIMIT)):
            kinds = zip(LABELS, (log.states, log.actions, log.states), strict=True)
            columns = [lookup.indices(batch[role], frame.form) for role, lookup in kinds]
            times = np.where(np.min(columns, axis=0) >= 0, whole(batch["weight"]), 0)
            parts.append(tuple(np.repeat(column, times) for column in columns))
    s, a, x = (np.concatenate(column) for column in zip(*parts, strict=True))
    if len(s) != log.counts.total:
        raise InputError(
            f"data had {number(log.counts.total)} transitions, and now has {number(len(s))}; it changed while it was "
            "read: read it again"
        )
    return Transitions(s, a, x, log.selected, log.other_rewards)


# ---------------------------------------------------------------- on show


def _summary(log: Log) -> Table:
    counts, taken = log.counts, log.taken
    visits = counts.visits.ravel()[taken] if taken is not None else counts.visits.ravel()
    fewest = int(visits.min())
    hidden = any(log._raw(entry.rows) is None for entry in log.left_out)
    rows = [
        Row("rows read", log._number(log.rows), "", "rows", log._raw(log.rows)),
        Row(
            "rows counted",
            "not shown" if hidden else log._number(log.used),
            "so that the small numbers below cannot be computed" if hidden else "",
            "used",
            None if hidden else log._raw(log.used),
        ),
    ]
    for entry in log.left_out:
        named = ", ".join(f"{label} ({number(times)})" for label, times in log._named(entry)[:EXAMPLES])
        rows.append(Row(f"left out: {entry.column}, {entry.reason}", log._number(entry.rows), named))
    if log.before:
        rows.append(Row("transitions added to", log._number(log.before), "", "before", log._raw(log.before)))
    rows += [
        Row("transitions", log._number(counts.total), "", "transitions", log._raw(counts.total)),
        Row(
            "pairs visited",
            number(int(np.count_nonzero(visits))),
            f"of {number(visits.size)} that the policy takes",
            "visited",
            int(np.count_nonzero(visits)),
        ),
        Row("fewest visits", log._number(fewest), "of a pair that the policy takes", "fewest", log._raw(fewest)),
        Row(
            "rows never looked at",
            log._number(log.idle),
            "of actions that the policy never takes",
            "idle",
            log._raw(log.idle),
        ),
        Row("files", number(len(log.files)), "", "n_files", len(log.files)),
        Row(
            "selected by outcome",
            "yes" if log.selected else "no",
            "no guarantee holds" if log.selected else "",
            "selected",
            log.selected,
        ),
    ]
    if log.other_rewards:
        rows.append(Row("other rewards", "yes", "than the task's: no guarantee holds", "other_rewards", True))
    total = log._number(counts.total)
    source = f"from {plural(len(log.files), 'file')}" if log.files else "from a table"
    warning = ", selected by their outcome: not certified" if log.selected else ""
    warning += ", with other rewards than the task's: not certified" if log.other_rewards else ""
    return Table(f"{total} transition{'' if counts.total == 1 else 's'} {source}{warning}", tuple(rows))
