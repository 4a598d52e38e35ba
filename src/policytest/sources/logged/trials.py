"""Recorded trials from the data people have: a row a trial, in files, data frames or engines.

The columns are `agent` and `outcome` and, where they are, `task`, `pair` (what pairs trials of different agents, such
as a seed) and `order`. Rows are taken in the order of the table, or sorted by `order`.

An outcome is a truth value (true, false, yes, no) or a number. Its range must be known: truth values are 0 and 1, and
so are the numbers of a column that is called a success, if it holds nothing else; for other numbers the range has to be
declared, since what was seen does not tell what is possible.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.text import did_you_mean, number, plain
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.ranges import Range, ends_of, outside
from policytest.sources.labels import Column, distinct, listed
from policytest.sources.logged import frames
from policytest.sources.logged.columns import SUCCESSES, TRIAL_ROLES, TrialColumns
from policytest.sources.logged.log import short

MOST_ROWS = 2**32 - 2  # what Polars can count
MOST_NAMED = 8  # agents or tasks that a message lists
WORDS = {"true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
INDICATOR = (0.0, 1.0)
CRASHED = (
    "a trial that crashed has an outcome too, usually 0: write it down; or leave out rows for a reason that was fixed "
    "before the trials"
)


@dataclass(frozen=True, eq=False)
class Trials:
    """Recorded trials: `LoggedEpisodes` for each agent, by its name.

    ``columns`` says which column of the table has which role, ``rows`` how many rows there are, and ``left_out`` how
    many of them belong to other tasks than those that were asked for.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"policy": ["new", "old"], "success": [True, False], "seed": [1, 1]})
    >>> found = trials(frame)
    >>> found.agents, found["new"].n_episodes, found.columns["pair"]
    (('new', 'old'), 1, 'seed')
    """

    logs: Mapping[str, LoggedEpisodes] = field(repr=False)
    columns: Mapping[str, str]
    rows: int
    left_out: int = 0

    @property
    def agents(self) -> tuple[str, ...]:
        """Their names, in the order of their first rows."""
        return tuple(self.logs)

    @property
    def tasks(self) -> tuple[str, ...]:
        """The names of all tasks."""
        named = (log.task.tolist() for log in self.logs.values() if log.task is not None)
        return tuple(dict.fromkeys(task for tasks in named for task in tasks))

    def __getitem__(self, agent: str) -> LoggedEpisodes:
        if agent in self.logs:
            return self.logs[agent]
        some = ", ".join(map(repr, self.agents[:MOST_NAMED])) + (", ..." if self.agents[MOST_NAMED:] else "")
        raise InputError(
            f"there is no agent {plain(str(agent))!r} in column {self.columns['agent']}",
            did_you_mean(agent, self.agents, f"the agents are {some}"),
        )

    @property
    def about_columns(self) -> str:
        """Which column is what, in a sentence."""
        return "Columns: " + ", ".join(f"{role}={plain(name)}" for role, name in self.columns.items()) + "."

    def of_agents(self, agents: Sequence[str]) -> int:
        """How many rows belong to these agents."""
        return sum(self.logs[name].n_episodes for name in agents)


def trials(
    data: object, *, columns: object = None, return_range: Range | None = None, tasks: Sequence[str] | None = None
) -> Trials:
    """The trials of a table, wherever it is stored.

    Parameters
    ----------
    data
        A path, a list of paths, a folder or a pattern (CSV, TSV and JSON lines, also with .gz; Parquet); or a frame of
        pandas, Polars, PyArrow, DuckDB, Dask or Spark.
    columns
        Names of the columns agent, outcome, task, pair and order: ``{"agent": "policy", "outcome": "success"}``; None
        for one that is not to be used. Columns that are often called so are found: policy, success, seed, task.
    return_range
        (low, high), where every outcome lies, fixed beforehand. Truth values and successes need none.
    tasks
        The names of the tasks that are asked about, fixed beforehand; each must have a row. Rows of others are left out
        and counted.
    """
    return read_trials(data, columns, return_range, tasks)


def read_trials(
    data: object, columns: object, return_range: Range | None, tasks: Sequence[str] | None, *, growing: bool = False
) -> Trials:
    """`trials`; of a table that is growing, tasks may still be without a row."""
    mapping, ends = TrialColumns(columns), ends_of("return_range", return_range)
    with frames.readable():
        opened = frames.opened(data, mapping, TRIAL_ROLES, in_order=True)
        pieces = _fetched(opened)
    if not len(pieces["outcome"]):
        raise InputError("data has no rows; there is no trial")
    rows = _Rows(pieces, mapping.found)
    outcome, is_truth = rows.outcomes()
    ends = rows.range_of(outcome, is_truth) if ends is None else ends
    rows.check_range(outcome, ends)
    if not growing:
        rows.check_tasks(tasks or ())
    order, wanted = rows.in_order(), rows.wanted(tasks)
    order = order[wanted[order]]
    rows.check_pairs(order)
    logs = {name: rows.log_of(code, name, outcome, ends, order) for code, name in rows.agents(order)}
    return Trials(logs, mapping.found, len(outcome), int((~wanted).sum()))


def _fetched(opened: frames.Frame) -> dict[str, Column]:
    """The columns, whole."""
    names = [*opened.roles, *(["order_text"] if "order_text" in opened.table.collect_schema().names() else [])]
    found: dict[str, list[Column]] = {name: [] for name in names}
    for batch in frames.batches(opened.table.select(*names), MOST_ROWS):
        for name in names:
            found[name].append(frames.owned(batch[name]))
    return {name: frames.joined(parts) for name, parts in found.items()}


class _Rows:
    """The rows of a table, by the roles of their columns."""

    def __init__(self, pieces: Mapping[str, Column], names: Mapping[str, str]) -> None:
        self.pieces, self.names, self.n = pieces, names, len(pieces["outcome"])
        self.labels: dict[str, tuple[list[str], IntArray]] = {}
        for role in ("agent", "task", "pair"):
            if role in pieces:
                self.labels[role] = self._label(role)

    def _label(self, role: str) -> tuple[list[str], IntArray]:
        """The names in a column, and which of them each row has; blanks around them do not matter."""
        values, codes = distinct(self.pieces[role])
        written = ["" if _is_missing(value) else str(value).strip() for value in values]
        names = list(dict.fromkeys(written))
        places = np.array([names.index(text) for text in written] + [-1], dtype=np.int64)
        if len(names) > 1000:
            known = {text: place for place, text in enumerate(names)}
            places = np.array([*(known[text] for text in written), -1], dtype=np.int64)
        found = places[codes]
        empty = names.index("") if "" in names else -1
        if (at := arrays.first((found < 0) | (found == empty))) is not None:
            remedy = "fill it in"
            if role != "agent":
                remedy += f', or leave the column alone with columns={{"{role}": None}}'
            raise InputError(f"row {at + 1:,} has no {role} (column {self.names[role]}); {remedy}")
        return names, found

    def _place(self, at: int) -> str:
        """A row in words."""
        said = [f"{self.names[role]} {names[codes[at]]}" for role, (names, codes) in self.labels.items()]
        return plain(f"row {at + 1:,} ({', '.join(said)})")

    def outcomes(self) -> tuple[FloatArray, BoolArray]:
        """[n] the outcomes, and which of them are truth values."""
        values, codes = distinct(self.pieces["outcome"])
        read = [_number(value) for value in values]
        found = np.array([*(outcome for outcome, _ in read), math.nan])[codes]
        truth = np.array([*(is_truth for _, is_truth in read), False])[codes]
        if (at := arrays.first(~np.isfinite(found))) is not None:
            value = listed(self.pieces["outcome"][at : at + 1])[0]
            if _is_missing(value):
                raise InputError(
                    f"{self._place(at)}: the outcome (column {self.names['outcome']}) is missing; {CRASHED}"
                )
            raise InputError(
                f"{self._place(at)}: the outcome (column {self.names['outcome']}) is {short(value)}; it must be true, "
                "false, yes, no or a finite number"
            )
        return found, truth

    def range_of(self, outcome: FloatArray, is_truth: BoolArray) -> Range:
        """The range that needs no declaration."""
        name = self.names["outcome"]
        is_success = name.lower() in SUCCESSES and np.isin(outcome, INDICATOR).all()
        if is_truth.all() or is_success:
            return INDICATOR
        seen = f"from {number(float(outcome.min()))} to {number(float(outcome.max()))}"
        raise InputError(
            f"the outcomes (column {plain(name)}) are numbers {seen}, and their range is not declared",
            "pass return_range=(low, high), where outcomes must lie whatever happens; (0, 1) for successes",
        )

    def check_range(self, outcome: FloatArray, ends: Range) -> None:
        """Refuse an outcome that lies outside."""
        if (at := arrays.first(outside(outcome, ends))) is not None:
            raise InputError(
                f"{self._place(at)}: the outcome is {outcome[at]:.9g}, outside return_range "
                f"({ends[0]:g}, {ends[1]:g}); correct it, or widen the range"
            )

    def in_order(self) -> IntArray:
        """The rows in the order in which the trials were made."""
        if "order" not in self.pieces:
            return np.arange(self.n)
        column = self.pieces["order"]
        missing = np.array([_is_missing(value) for value in listed(column)])
        if (at := arrays.first(missing)) is not None:
            text = self.pieces.get("order_text")
            value = None if text is None else listed(text[at : at + 1])[0]
            shown = "missing" if _is_missing(value) else short(value)
            raise InputError(
                f"{self._place(at)}: the order (column {self.names['order']}) is {shown}; it must be a number or a "
                'time, of one kind in all rows; or take rows as they come with columns={"order": None}'
            )
        return np.argsort(frames.sortable([column])[0], kind="stable")

    def check_tasks(self, tasks: Sequence[str]) -> None:
        """Refuse a task that no row has: without it the answer would be about the others alone."""
        names = self.labels["task"][0] if "task" in self.labels else []
        for task in tasks if names else ():
            if str(task) not in names:
                some = ", ".join(map(repr, names[:MOST_NAMED])) + (", ..." if names[MOST_NAMED:] else "")
                raise InputError(
                    f"no row has the task {plain(str(task))!r} (column {self.names['task']})",
                    did_you_mean(task, names, f"the tasks are {plain(some)}"),
                )

    def wanted(self, tasks: Sequence[str] | None) -> BoolArray:
        """Which rows belong to these tasks."""
        if tasks is None:
            return np.ones(self.n, dtype=bool)
        if "task" not in self.labels:
            raise InputError('tasks are named, and the table has no column task; name it with columns={"task": ...}')
        names, codes = self.labels["task"]
        return np.isin(codes, [place for place, name in enumerate(names) if name in set(map(str, tasks))])

    def check_pairs(self, order: IntArray) -> None:
        """Refuse two trials of an agent in a task with the same label."""
        if "pair" not in self.labels:
            return
        keys = np.stack([codes[order] for _, codes in self.labels.values()])
        _, which, times = np.unique(keys, axis=1, return_inverse=True, return_counts=True)
        if (key := arrays.first(times > 1)) is not None:
            one, other = np.flatnonzero(which.ravel() == key)[:2]
            raise InputError(
                f"{self._place(int(order[one]))} and row {order[other] + 1:,} are of the same agent, with the same "
                f"{self.names['pair']}; remove what is there twice, name a column that tells trials apart, or pair "
                'them in their order with columns={"pair": None}'
            )

    def agents(self, order: IntArray) -> Iterator[tuple[int, str]]:
        """The agents, in the order of their first rows."""
        names, codes = self.labels["agent"]
        found, first = np.unique(codes[order], return_index=True)
        for code in found[np.argsort(first)].tolist():
            yield code, names[code]

    def log_of(self, code: int, name: str, outcome: FloatArray, ends: Range, order: IntArray) -> LoggedEpisodes:
        """The trials of an agent."""
        moment = np.flatnonzero(self.labels["agent"][1][order] == code)
        rows = order[moment]
        labels: dict[str, Any] = {
            role: np.array(self.labels[role][0])[self.labels[role][1][rows]]
            for role in ("task", "pair")
            if role in self.labels
        }
        return LoggedEpisodes(None, outcome[rows], return_range=ends, agent=name, order=moment, **labels)


def _is_missing(value: object) -> bool:
    return value is None or value != value or (isinstance(value, str) and value.strip().lower() in ("", "nan", "null"))


def _number(value: object) -> tuple[float, bool]:
    """An outcome as a number, nan if it is none, and whether it is a truth value."""
    if isinstance(value, bool | np.bool_):
        return float(value), True
    if isinstance(value, str):
        text = value.strip().lower()
        if text in WORDS:
            return WORDS[text], True
    try:
        found = math.nan if _is_missing(value) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return math.nan, False
    return found, False
