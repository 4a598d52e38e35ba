"""A log: counts of transitions, and how they came about. `policytest.sources.logs` makes one."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policytest._base import arrays
from policytest._base.arrays import AnyArray, BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.files import write_arrays
from policytest._base.table import Row, Shown, Table
from policytest._base.text import number, plain, plural
from policytest.data.counts import Counts
from policytest.data.counts_file import as_arrays, from_arrays, read_counts
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.sources.labels import Places, places_in
from policytest.sources.logged.frames import Frame
from policytest.sources.logged.lines import number as written_number
from policytest.sources.logged.paths import File

TRANSITION_LIMIT = 50_000_000
"""Rows that are kept in memory in their order: of a longer log the first ones."""
EXAMPLES = 3  # labels that are shown
_DATE = re.compile(r"\b\d{1,2}[./-]\d{1,2}[./-]\d{2,4}\b")
"""A date that begins with its day or its month; nobody can tell which."""
COUNTS_ONLY = "this log has counts only, without an order (it was loaded, or added to another); pass all files to logs"
SAME_TIME = (
    "rows of the same time in different episodes are taken in the order of their episode ids; valid if actions do not "
    "react to rows of the same moment"
)
RESTARTS = (
    "the order begins with {first} in every episode: rows with the same number are taken in the order of their episode "
    "ids; valid if actions do not react to other episodes, and otherwise pass by_episode=True, if each episode began "
    "after the one before had ended"
)
LAST_ROW, IN_AN_END = ("s_next", "last row of its episode"), ("s", "in a terminal state")
NOT_OFFERED = ("a", "not available in its state")
"""Column and reason of rows without an outcome, and of actions that do not exist."""
LONG = (
    "the log has {rows:,} rows, and the first {limit:,} of them by the column order are kept in their order: bets are "
    "placed on these only. Methods that need no order (PTST(), RectangularKL()) use the counts of all rows"
)
FIRST_ROWS = (
    'the first state of each episode counts as a transition from the state "start"; valid if episodes begin with their '
    "first rows, and all by the same law"
)
CELLS = "states are cells of {names}: the answer is about the Markov model of the cells"
NEXT_ROW = (
    "s_next is the s of the next row of the episode, and last rows are left out; valid if whether an episode was "
    "recorded further does not depend on what followed: one that ended needs a last row in a terminal state"
)
_NUMBERS = ("rows", "used", "idle", "before")
"""The numbers of a log that its file keeps."""


class IndexColumns(NamedTuple):
    """The rows of a log by their `order`: indices of labels, negative where a label is unknown or missing."""

    s: IntArray
    a: IntArray
    x: IntArray
    times: IntArray | None  # how many transitions a row stands for; None: one each
    episode: IntArray | None  # the place of its episode's id
    ids: Sequence[object]
    form: str  # of the ids: "text", "json" or "typed"
    tied: bool = False  # whether episodes share an order; their rows are then in the order of the ids
    restarts: str = ""  # the number with which the order begins in every episode, in words
    r: FloatArray | None = None  # the rewards, where those of the task are observed

    @property
    def known(self) -> BoolArray:
        """Which rows have labels that are all known."""
        return (self.s >= 0) & (self.a >= 0) & (self.x >= 0)

    @property
    def summed(self) -> bool:
        """Whether some row stands for several transitions, whose order is then lost."""
        return self.times is not None and bool((self.times > 1).any())

    def by_episode(self) -> IndexColumns:
        """The same rows, one episode after another by their ids: numbers by size, text by letters."""
        if self.episode is None:
            return self
        order = np.argsort(ranks(self.ids, self.form)[self.episode], kind="stable")
        return self.taken(order)._replace(tied=False, restarts="")

    def taken(self, rows: IntArray | BoolArray) -> IndexColumns:
        """These rows, in this order."""
        return self._each(lambda name, column: column[rows])

    def inserted(self, at: IntArray, new: IndexColumns) -> IndexColumns:
        """These rows, and before those at these places new ones."""
        return self._each(lambda name, column: np.insert(column, at, getattr(new, name)))

    def _each(self, change: Callable[[str, npt.NDArray[Any]], npt.NDArray[Any]]) -> IndexColumns:
        """The columns that are there, each with a change."""
        columns = {name: getattr(self, name) for name in ("s", "a", "x", "times", "episode", "r")}
        new: dict[str, Any] = {name: change(name, column) for name, column in columns.items() if column is not None}
        return self._replace(**new)


@dataclass(frozen=True, eq=False)
class RewardSums:
    """The sums of observed rewards and of their squares, [S,A] each; ``means`` are these sums over ``visits``."""

    sums: FloatArray
    squares: FloatArray

    @classmethod
    def nothing(cls, task: Task) -> RewardSums:
        """No rewards yet."""
        return cls(np.zeros(task.policy.shape), np.zeros(task.policy.shape))

    def record(self, pair: IntArray, sums: FloatArray, squares: FloatArray) -> None:
        """Add what groups of rows of these pairs s*A + a have earned."""
        for table, new in ((self.sums, sums), (self.squares, squares)):
            table += np.bincount(pair, new, minlength=table.size).reshape(table.shape)

    def plus(self, other: RewardSums) -> RewardSums:
        """The sums of both."""
        return RewardSums(self.sums + other.sums, self.squares + other.squares)

    def means(self, visits: IntArray) -> FloatArray:
        """[S,A] the mean rewards; not numbers where a pair was not visited."""
        return np.where(visits > 0, self.sums / np.maximum(visits, 1), np.nan)


def ranks(ids: Sequence[object], form: str) -> IntArray:
    """The rank of each episode's id: numbers by size, text by letters."""

    def size(place: int) -> tuple[float, Any]:
        number = written_number(ids[place]) if form != "typed" else None
        return (np.inf if number is None else number, ids[place])

    try:
        return np.argsort(sorted(range(len(ids)), key=size))  # the place of each in this order
    except TypeError:
        raise InputError("the ids of episodes cannot be compared; use numbers or text") from None


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
    rewards
        The sums of the observed rewards, where those of the task come with the data; files do not keep them.
    binned
        Whether the states are cells of columns of numbers.
    """

    counts: Counts
    rows: int
    used: int
    left_out: tuple[LeftOut, ...]
    idle: int
    files: tuple[File, ...]
    at: Places = field(repr=False)
    taken: BoolArray | None = field(repr=False)  # [S*A] pairs that a test looks at: pi > 0, and the row is not known
    before: int = 0
    columns: IndexColumns | None = field(default=None, repr=False)
    no_order: str = field(default=COUNTS_ONLY, repr=False)  # why there are no columns
    suppress_below: int = 0
    told: tuple[str, ...] = field(default=(), repr=False)  # notes of the reading
    frame: Frame | None = field(default=None, repr=False)  # of rows that are too many to keep in order
    rewards: RewardSums | None = None
    binned: bool = False

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

        That is the order of the column `order`; rows of the same time in different episodes come in the order of their
        episode ids (numbers by size, text by letters), which is valid if actions do not react to rows of the same
        moment. ``by_episode=True`` takes one episode after another instead, for an order that restarts in each episode.
        It is for you to say so, because it is right only if ids were assigned when episodes *began*, and each began
        after the one before had ended, or the rule that chose the actions learnt nothing from other episodes. Ids
        assigned at the end put short episodes first, and then the order tells about outcomes.

        Rows that stand for several transitions (``count`` above 1) have no order among each other, and are refused.
        """
        columns = self.columns
        if columns is None:
            raise InputError(self.no_order)
        if columns.summed:
            raise InputError(
                "data has rows with a count above 1, and the order of the transitions that such a row stands for is "
                "lost; use log.counts, or pass one row for each transition"
            )
        columns = columns.by_episode() if by_episode else columns
        kept = columns.known if columns.times is None else columns.known & (columns.times > 0)
        columns = columns if kept.all() else columns.taken(kept)
        flags = self.selected, self.other_rewards, self.counts.cells
        return Transitions(*columns[:3], columns.r, *flags, columns.episode)

    def in_order(self) -> bool:
        """Whether it is known in which order the transitions were observed, so that `transitions` gives them."""
        return self.columns is not None and not self.columns.summed

    def observed(self, by_episode: bool = False) -> Transitions | Counts:
        """The transitions in their order where it is known, otherwise the counts."""
        return self.transitions(by_episode) if self.in_order() else self.counts

    def with_cells(self, cells: str) -> Log:
        """The same log, with what a diagnosis says of the cells that its states are."""
        return replace(self, counts=self.counts.with_cells(cells))

    def by_episode(self) -> Log:
        """The same log, one episode after another by their ids; `transitions` says when that is right."""
        return self if self.columns is None else replace(self, columns=self.columns.by_episode())

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reading rests on, in sentences."""
        columns = self.columns
        found = list(self.told)
        found += [NEXT_ROW] if any((entry.column, entry.reason) == LAST_ROW for entry in self.left_out) else []
        if columns is not None and columns.tied:
            found.append(RESTARTS.format(first=columns.restarts) if columns.restarts else SAME_TIME)
        return tuple(found)

    def shown(self, suppress_below: int = 0) -> Log:
        """The same log, which shows no number of rows or transitions between 1 and ``suppress_below`` - 1."""
        if arrays.whole_number("suppress_below", suppress_below) < 0:
            raise InputError(f"suppress_below is {suppress_below}; it cannot be negative")
        return replace(self, suppress_below=int(suppress_below))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write counts and provenance to one file (NPZ), which `Log.load` and `Counts.load` both read."""
        about: dict[str, object] = {name: getattr(self, name) for name in _NUMBERS}
        about |= {"labels": self.at.mark, "left_out": list(map(astuple, self.left_out))}
        about |= {"files": list(map(astuple, self.files))}
        write_arrays(path, **as_arrays(self.counts), log=json.dumps(about))

    @classmethod
    def load(cls, path: str | os.PathLike[str], task: Task) -> Log:
        """The log in a file that `save` wrote, for the same task (its states and actions must be the same)."""
        arrays.instance("task", task, Task)
        return read_counts(path, lambda file: cls._from_file(file, task))

    @classmethod
    def _from_file(cls, file: Mapping[str, AnyArray], task: Task) -> Log:
        if "log" not in file:
            raise InputError("it has counts only, no log; read it with Counts.load")
        about = json.loads(str(file["log"]))
        at = places_in(task)
        if about["labels"] != at.mark:
            raise InputError("it was made for other states or actions; pass the task it was made for")
        left_out = tuple(
            LeftOut(column, reason, rows, tuple((label, times) for label, times in examples))
            for column, reason, rows, examples in about["left_out"]
        )
        files = tuple(File(*entry) for entry in about["files"])
        numbers = {name: about[name] for name in _NUMBERS}
        known: dict[str, Any] = {"at": at, "taken": task.layout.unknown_pairs.ravel(), "told": first_rows(task)}
        return cls(from_arrays(file), left_out=left_out, files=files, **numbers, **known)

    @cached_property
    def summary(self) -> Table:
        """The log as one table, for text, HTML and JSON."""
        return _summary(self)

    def data(self) -> dict[str, Any]:
        """What a program reads; small numbers are left out as they are in the table."""
        left = [
            vars(entry) | {"rows": self._raw(entry.rows), "examples": [list(one) for one in self._named(entry)]}
            for entry in self.left_out
        ]
        files = [{"name": file.name, "size": file.size, "fingerprint": file.fingerprint} for file in self.files]
        return {**self.summary.data(), "left_out": left, "files": files, "notes": list(self.notes)}

    def _raw(self, n: int) -> int | None:
        """The number, or None where it is too small to be shown."""
        return None if 0 < n < self.suppress_below else n

    def _number(self, n: int) -> str:
        return number(n) if self._raw(n) is not None else f"fewer than {self.suppress_below}"

    def _row(self, label: str, n: int, remark: str, key: str) -> Row:
        return Row(label, self._number(n), remark, key, self._raw(n))

    def _named(self, entry: LeftOut) -> list[tuple[str, int]]:
        """The labels left out that are frequent enough to be named."""
        return [(label, rows) for label, rows in entry.examples if self._raw(rows) is not None]


def stopped_early(episodes: int, sure: bool = True) -> str:
    """The warning about episodes whose last row is not in a terminal state, though the log goes on."""
    return (
        f"{plural(episodes, 'episode stops', 'episodes stop')} in a state that is not terminal, "
        f"{'long' if sure else 'perhaps'} before the log ends: what followed is lost, and no answer from these counts "
        'is certified; give episodes that ended a last row in a terminal state, or pass skip=("last",) if recording '
        "stopped for reasons of its own"
    )


def dates_in(*found: object) -> str:
    """How to write dates, if one of these begins with its day or its month."""
    return " (write dates as 2026-12-31)" if any(_DATE.search(str(value)) for value in found) else ""


def first_rows(task: Task) -> tuple[str, ...]:
    """The note on first rows, where they tell where episodes start."""
    return (FIRST_ROWS,) if task.start is not None else ()


def short(value: object, form: str = "typed") -> str:
    """A value from the data, on one short line."""
    text = plain(str(value) if form == "json" and value is not None else repr(value))
    return text if len(text) <= 60 else text[:57] + "..."


# ---------------------------------------------------------------- on show


def _summary(log: Log) -> Table:
    counts, taken = log.counts, log.taken
    visits = counts.visits.ravel()[taken] if taken is not None else counts.visits.ravel()
    fewest = int(visits.min())
    hidden = any(log._raw(entry.rows) is None for entry in log.left_out)
    visited = int(np.count_nonzero(visits))
    secret = ("not shown", "so that the small numbers below cannot be computed", "used", None)
    rows = [log._row("rows read", log.rows, "", "rows")]
    rows.append(Row("rows counted", *secret) if hidden else log._row("rows counted", log.used, "", "used"))
    for entry in log.left_out:
        named = ", ".join(f"{label} ({number(times)})" for label, times in log._named(entry)[:EXAMPLES])
        rows.append(Row(f"left out: {entry.column}, {entry.reason}", log._number(entry.rows), named))
    if log.before:
        rows.append(log._row("transitions added to", log.before, "", "before"))
    of = f"of {number(visits.size)} that the policy takes"
    rows += [
        log._row("transitions", counts.total, "", "transitions"),
        Row("pairs visited", number(visited), of, "visited", visited),
        log._row("fewest visits", fewest, "of a pair that the policy takes", "fewest"),
        log._row("rows never looked at", log.idle, "of actions that the policy never takes", "idle"),
        Row("files", number(len(log.files)), "", "n_files", len(log.files)),
    ]
    if log.rewards is not None and log.used:
        mean = float(log.rewards.sums.sum()) / max(counts.total, 1)
        rows.append(Row("mean reward", number(mean), "of the transitions counted", "mean_reward", mean))
    flawed = ("yes", "no guarantee holds") if log.selected else ("no", "")
    rows.append(Row("selected by outcome", *flawed, "selected", log.selected))
    if log.other_rewards:
        rows.append(Row("other rewards", "yes", "than the task's: no guarantee holds", "other_rewards", True))
    total = log._number(counts.total)
    source = f"from {plural(len(log.files), 'file')}" if log.files else "from a table"
    warning = ", selected by their outcome: not certified" if log.selected else ""
    warning += ", with other rewards than the task's: not certified" if log.other_rewards else ""
    title = f"{total} transition{'' if counts.total == 1 else 's'} {source}{warning}"
    return Table(title, tuple(rows), tuple(f"Note: {note}." for note in log.notes))
