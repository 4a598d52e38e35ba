"""A log that is still being written: lines as they arrive, as transitions.

Two forms: JSON lines, an object with the keys s, a and s_next on each line, and CSV, with a header. `lines` waits for
complete lines at the end of a file or a pipe; `Parser` turns them into indices, and refuses what it does not
understand with the number of the line, since a test that guesses at its data proves nothing. The rules are those of
files that are read whole (`policytest.sources.logged.lines`). A column ``order`` must rise from line to line, within an
episode where there are episodes: then the order of the lines is the one that it tells. With one row for each visit, a
row is a transition when the next row of its episode is there (`policytest.sources.logged.visits`).
"""

from __future__ import annotations

import contextlib
import datetime
import json
import os
import select
import stat
import sys
import time
import warnings
from collections.abc import Collection, Iterator
from dataclasses import replace
from typing import Any, TypeAlias

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import AssumptionWarning, InputError, unreadable
from policytest._base.rows import entries_at
from policytest._base.text import plain
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.questions.cells import has_cells
from policytest.sources.checks import IGNORED_REWARDS, ROUNDING, check_support, first_other, wrong_reward
from policytest.sources.environments.bins import Bins
from policytest.sources.labels import MISSING, places_in
from policytest.sources.logged import lines as rules
from policytest.sources.logged.columns import (
    BINNED,
    IGNORED,
    NEXT_BINNED,
    Columns,
    check_bins,
    check_mapping,
    ignoring,
    resolve,
    with_bins,
)
from policytest.sources.logged.lines import Record
from policytest.sources.logged.log import CELLS, NEXT_ROW, dates_in, stopped_early
from policytest.sources.logged.rewards import NO_REWARDS, missing, outside, wrong_range
from policytest.sources.logged.visits import Arrived, Waiting

CHUNK = 1 << 16
TOLERANCE = 1e-9  # of rewards, absolute or relative
Moment: TypeAlias = tuple[str, Any]
"""An order as something to compare: "number" with a number, or "time" with a time."""
STDIN = 0
"""The file number of standard input."""


def lines(name: str, follow: bool = True, poll: float = 0.2, idle: float | None = None) -> Iterator[list[bytes]]:
    """Lists of complete lines with their ends, as they arrive; an empty list where none came for a while.

    ``name`` is a path, or "-" for standard input. A file is followed until ``idle`` seconds brought nothing new (None:
    for ever); standard input until it ends. Without ``follow``, a file ends where it ends.
    """
    with _opened(name) as file:
        is_file, follow = stat.S_ISREG(os.fstat(file).st_mode), follow and name != "-"
        left, read, since = b"", 0, time.monotonic()
        while True:
            chunk = os.read(file, CHUNK) if is_file or select.select([file], [], [], poll)[0] else None
            if chunk:
                read, since = read + len(chunk), time.monotonic()
                *whole, left = (left + chunk).split(b"\n")
                if len(left) > rules.LONGEST + 1:
                    raise InputError(
                        f"{name}: a line has no end after {len(left):,} bytes; each transition is one line"
                    )
                yield [line + b"\n" for line in whole]
                continue
            if (chunk == b"" and not (is_file and follow)) or (idle is not None and time.monotonic() - since >= idle):
                break
            if is_file:
                if _is_deleted(name, file, read):
                    warnings.warn(f"{name}: it was deleted while it was followed; nothing more is read", stacklevel=2)
                    break
                time.sleep(poll)
            yield []
        if left and not (is_file and follow):  # otherwise the line is still being written
            yield [left]


@contextlib.contextmanager
def _opened(name: str) -> Iterator[int]:
    if name == "-":
        if sys.stdin is None:
            raise InputError("standard input is closed; pass the name of a file")
        yield STDIN
        return
    try:
        file = os.open(name, os.O_RDONLY)
    except OSError as error:
        raise unreadable(name, error) from None
    try:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise InputError(f"{name} is a folder; one growing file is followed, or standard input (-)")
        yield file
    finally:
        os.close(file)


def _is_deleted(name: str, file: int, read: int) -> bool:
    """Whether there is no file of this name any more; if there is, what was read must still be its beginning."""
    try:
        now = os.stat(name)
    except FileNotFoundError:
        return True
    except OSError:  # such as a network that is away for a moment
        return False
    if not os.path.samestat(now, os.fstat(file)):
        raise InputError(f"{name}: it was replaced by another file; start again, on both if both matter")
    if now.st_size < read:
        raise InputError(f"{name}: it was cut short while it was followed; start again")
    return False


class Parser:
    """Lines in, transitions out.

    Parameters
    ----------
    task
        Gives the names of states and actions, and the rewards that a column ``reward`` is checked against.
    columns
        Other names for s, a, s_next, count, order, episode and reward.
    skip
        Of "s" and "a": drop rows whose label there is missing or unknown; they are counted in ``left_out``. Also
        "last": where a row is a visit, episodes may stop without an end.
    bins
        Of a task file: the states are cells of these columns of numbers.

    ``other_rewards`` says of a column reward that is ignored whether it differs from the task's rewards so far;
    ``waiting`` holds the rows whose outcome is not known yet, and those after them.
    """

    def __init__(
        self,
        task: Task,
        columns: Columns | None = None,
        skip: Collection[str] = (),
        place: str = "the log",
        bins: Bins | None = None,
    ) -> None:
        self.task, self.place, self.bins, self.columns = task, place, bins, check_mapping(columns)
        if bins is not None:
            self.columns = with_bins(self.columns, bins.names, bins.following)
        at = places_in(task)
        self._ends = frozenset(at.ends)
        self._lookups = at.by_role
        for part in skip:
            if part not in ("s", "a", "last"):
                raise InputError(f"skip has {part!r}; rows of a growing log can be dropped for their s or a only")
        self.skip, self.line, self.left_out, self.other_rewards = frozenset(skip), 0, 0, False
        self._taken = task.layout.unknown_pairs.ravel()
        self._form = self._delimiter = ""
        self._crlf = False
        self._header: list[str] = []
        self._parts: dict[str, str] = {}
        self._keys: rules.Keys | None = None
        self._known: dict[tuple[str, str], int] = {}
        self._last: dict[str, Moment] = {}
        self._begun: set[str] = set()
        self._over: dict[str, int] = {}
        self._episodes: dict[str, int] = {}
        self.waiting, self.visits, self.unfinished = Waiting(), False, 0
        if task.start is not None and "s" in skip:
            raise InputError("skip has 's', and the log is to tell where episodes start: unknown first states are lost")

    def transitions(self, lines: list[bytes]) -> Transitions:
        """The transitions that are known with these lines, in the order of their rows. Empty lines are skipped."""
        wrong = None
        for line in lines:
            self.line += 1
            try:
                row = self._row(rules.text(rules.without_end(line)), line[-2:])
                if row is not None:
                    self._take(row)
            except InputError as error:
                wrong = InputError(f"{self.place}, line {self.line}: {error}")
                break
        found = self._checked(self.waiting.released())
        if wrong is not None:
            raise wrong
        return found

    def end(self) -> Transitions:
        """At the end of the log: the transitions after rows that have waited in vain, which are left out."""
        rows, self.unfinished, stopped = self.waiting.closed()
        stopped = 0 if "last" in self.skip else stopped
        if stopped:
            warnings.warn(stopped_early(stopped), AssumptionWarning, stacklevel=2)
        found = self._checked(rows)
        return replace(found, selected=stopped > 0)

    @property
    def notes(self) -> tuple[str, ...]:
        """What the reading rests on, in sentences."""
        cells = () if self.bins is None else (CELLS.format(names=", ".join(self.bins.names)),)
        return (*cells, *((NEXT_ROW,) if self.visits else ()))

    def _checked(self, rows: list[Arrived]) -> Transitions:
        """These rows as transitions, which must agree with the task."""
        found = [(row.s, row.a, row.x, row.copies, row.line, row.reward, row.ignored) for row in rows]
        table = np.array(found, dtype=np.float64).reshape(-1, 7)
        s, a, x, copies, at = table[:, :5].T.astype(np.int64)
        self._check(s * self.task.n_actions + a, x, copies, at, table[:, 5], table[:, 6])
        s, a, x, r = (np.repeat(column, copies) for column in (s, a, x, np.nan_to_num(table[:, 5])))
        episode = np.repeat(np.array([row.episode for row in rows], dtype=np.int64), copies)
        rewards = r if self.task.observes_rewards else None
        return Transitions(s, a, x, rewards, other_rewards=self.other_rewards, episode=episode)

    def _check(
        self, pair: IntArray, x: IntArray, copies: IntArray, at: IntArray, reward: FloatArray, ignored: FloatArray
    ) -> None:
        """Refuse what contradicts the task, as `logs` does, naming the line; note rewards that are only compared."""
        seen = np.flatnonzero(copies)

        def line(i: int) -> str:
            return f"{self.place}, line {at[i]}: "

        check_support(self.task, pair[seen], x[seen], self._taken, lambda i: f"{line(seen[i])}there is")
        if self.task.observes_rewards:
            off = np.flatnonzero(outside(self.task, pair, np.nan_to_num(reward)))
            if len(off):
                raise InputError(
                    f"{line(off[0])}{wrong_range(self.task, int(pair[off[0]]), int(x[off[0]]), reward[off[0]])}"
                )
            return
        rewards = entries_at(self.task.rewards, pair, x) * self.task.reward_scale
        i = first_other(rewards, *_ends(reward), TOLERANCE, self._taken[pair])
        if i is not None:
            place = self.task.place(pair[i], x[i])
            wrong = wrong_reward(f"{line(i)}the reward", place, rewards[i], reward[i], reward[i], TOLERANCE)
            raise InputError(f"{wrong}. {IGNORED_REWARDS}")
        other = first_other(rewards, *_ends(ignored), ROUNDING, self.task.policy.ravel()[pair] > 0)
        self.other_rewards |= other is not None

    def _row(self, text: str, end: bytes) -> Record | None:
        """The entries of a line by their roles; None for the header of a CSV file, and for an empty line."""
        if self._form == "text" and end.endswith(b"\n") and (end == b"\r\n") != self._crlf:
            raise InputError(rules.MIXED)
        if not (text if self._form == "text" else text.strip(rules.BLANKS)):
            return None
        if not self._form:
            self._form = "json" if text.lstrip(rules.BLANKS + "\ufeff").startswith("{") else "text"
            if self._form == "text":
                self._begin(text, end)
                return None
        row = self._cells(text) if self._form == "text" else self._record(text)
        return {part: row.get(name) for part, name in self._parts.items()}

    def _begin(self, text: str, end: bytes) -> None:
        """Read the header of a CSV file."""
        if self.line > 1:
            raise InputError("the lines before are empty; a CSV file begins with the names of its columns")
        self._header, self._delimiter = rules.header(text.removeprefix("\ufeff"), self.columns)
        self._crlf, self._parts = end == b"\r\n", self._resolved(self._header)

    def _resolved(self, there: list[str]) -> dict[str, str]:
        parts = resolve(self.columns, there, "it")
        if self.bins is not None:
            check_bins(parts, self.bins.names, self.bins.following)
        self.visits = "s_next" not in parts and not (self.bins is not None and self.bins.following)
        if self.task.observes_rewards and "reward" not in parts:
            raise InputError(NO_REWARDS.format(place="it"))
        return parts

    def _cells(self, text: str) -> Record:
        cells = rules.cells(text, self._delimiter)
        while len(cells) > len(self._header) and not cells[-1]:  # as DuckDB reads them
            cells.pop()
        if len(cells) != len(self._header):
            raise InputError(f"there are {len(cells)} entries, but the header has {len(self._header)}; fix the line")
        return dict(zip(self._header, cells, strict=True))

    def _record(self, text: str) -> Record:
        row = rules.record(text)
        if self._keys is None:
            self._keys = rules.Keys(self.columns, row, "it")
            self._parts = self._resolved(list(row))
        self._keys.check(row)
        return row

    def _take(self, row: Record) -> None:
        """Add a row to those that wait, unless it is dropped; it is what followed the row before in its episode."""
        copies, moment = self._copies(row.get("count", 1)), self._moment(row)
        reward = rules.number(row["reward"]) if "reward" in row else np.nan
        s, a = self._state("s", row), self._index("a", row["a"])
        episode = _written(row.get("episode", ""))
        if self.visits:
            self._follow(episode, moment, s, row)
        self._start(row, episode, s)
        x = None if self.visits else self._state("s_next", row)
        if reward is None and x not in (None, MISSING):
            if self.task.observes_rewards:
                raise InputError(missing(self.task, _shown(row["reward"])))
            raise InputError(f"the reward is {_shown(row['reward'])}; it must be a finite number")
        if self._ended(s, a, x, episode) or self._dropped({"s": s, "a": a, "s_next": x}, row):
            return
        place = self._episodes.setdefault(episode, len(self._episodes)) if has_cells(self.task) else 0
        ignored = self._ignored(row.get(IGNORED))
        self.waiting.add(Arrived(s, a, x, copies, self.line, reward, ignored, moment, place), episode)

    def _state(self, part: str, row: Record) -> int:
        """The index of a state: of its label, or of the cell of its numbers where it has none."""
        found = self._index(part, row[part]) if part in row else MISSING
        names = () if self.bins is None else self.bins.names if part == "s" else self.bins.following
        if found != MISSING or not names or self.bins is None:
            return found
        numbers = [rules.number(row[(BINNED if part == "s" else NEXT_BINNED) + name]) for name in names]
        return MISSING if None in numbers else int(self.bins([numbers])[0])

    def _follow(self, episode: str, moment: float, s: int, row: Record) -> None:
        """The state of this row is the outcome of the row before in its episode."""
        before = self.waiting.previous(episode, moment)
        over = self._over.get(episode, s)
        if over != s:
            names = self._lookups["s"]
            raise InputError(
                f"the terminal state {names.label(over)} is followed by {names.label(s) if s >= 0 else 'no state'}; "
                "correct terminal in the task, or the data"
            )
        if before is None:
            return
        if s < 0:
            raise InputError(f"{self._unknown('s', s, row)}, which is what followed line {before.line}; fix the data")
        if before.reward is None:
            raise InputError(
                f"the reward of line {before.line}, which this row follows, is not a finite number; fix it"
            )
        before.lead_to(s)

    def _ended(self, s: int, a: int, x: int | None, episode: str) -> bool:
        """Whether the row only says that its episode has ended: nothing follows a terminal state."""
        if s not in self._ends or not (self.visits or MISSING in (a, x)):
            return False
        if self.visits:
            self._over[episode] = s
        elif x not in (s, MISSING):
            raise InputError(
                f"the terminal state {self._lookups['s'].label(s)} has a next state and no action; correct terminal in "
                "the task, or the data"
            )
        return True

    def _dropped(self, index: dict[str, int | None], row: Record) -> bool:
        """Whether the row is dropped for its labels; refused, if they are wrong and nobody said so."""
        for part, found in index.items():
            if found is not None and found < 0:
                if part in self.skip:
                    self.left_out += 1
                    return True
                drop = f", or drop such rows with --skip {part}" if part != "s_next" else ""
                add = f"fix the data or add the {self._lookups[part].kind} to the task"
                raise InputError(f"{self._unknown(part, found, row)}; {add}{drop}")
        if self.task.available is not None and not self.task.available[index["s"], index["a"]]:
            if "a" not in self.skip:
                raise InputError(
                    f"action {_shown(row['a'])} is not available in state {self._lookups['s'].label(index['s'] or 0)}; "
                    "fix the data or available in the task, or drop such rows with --skip a"
                )
            self.left_out += 1
            return True
        return False

    def _unknown(self, part: str, found: int, row: Record) -> str:
        """What is wrong with a label."""
        kind = self._lookups[part].kind
        if found != MISSING:
            return f"unknown {kind} {_shown(row[part])} in column {part}"
        names = "" if self.bins is None or part == "a" else ", ".join(self.bins.names)
        return f"no number in column {names}" if names else f"no {kind} in column {part}"

    def _start(self, row: Record, episode: str, s: int) -> None:
        """Where the log is to tell how episodes start: a transition from the start to the first state of a new one."""
        if self.task.start is None or s < 0:
            return
        if "episode" not in row:
            raise InputError("the log is to tell where episodes start, and it has no column episode; add it")
        if episode not in self._begun:
            self.waiting.add(Arrived(self.task.start, 0, s, 1, self.line, np.nan, np.nan))
        self._begun.add(episode)

    def _ignored(self, reward: object) -> float:
        """A reward that is only compared; nan where there is none, inf where it is not a number."""
        if reward is None or not _written(reward).strip(rules.BLANKS):
            return np.nan
        found = rules.number(reward)
        return np.inf if found is None else found

    def _index(self, part: str, label: object) -> int:
        if isinstance(label, str) and not label and self._form == "text":
            return MISSING
        if not isinstance(label, str):
            return self._lookups[part].index(label)
        key = (part, label)
        if key not in self._known:
            self._known[key] = self._lookups[part].index(label, "text" if self._form == "text" else "typed")
        return self._known[key]

    def _copies(self, count: object) -> int:
        """0 or 1, as a number or written out."""
        copies = rules.number(count)
        if copies not in (0.0, 1.0):
            raise InputError(
                f"count is {_shown(count)}; a growing log has one line for each transition, in the order in which they "
                "were observed: count is 0 or 1 here (assess takes sums)"
            )
        return int(copies)

    def _or_ignore(self, role: str) -> str:
        """How to do without a column; the next row of an episode is found by its order."""
        return "" if self.visits else f", or {ignoring(role)}"

    def _moment(self, row: Record) -> float:
        """When the row was observed (0: it does not say); refused unless later than the row before in its episode."""
        if "episode" in row and row["episode"] in (None, ""):
            raise InputError(f"episode is missing; give it to all rows{self._or_ignore('episode')}")
        if "order" not in row:
            return 0.0
        now, episode = _moment(row["order"]), _written(row.get("episode", ""))
        last = self._last.get(episode, now[:1])
        if not (last[:1] == now[:1] and last < now):
            raise InputError(
                f"order is {_shown(row['order'])}, which is not after the row before, and a transition counts once, in "
                f"the order in which it was observed; sort the log{self._or_ignore('order')}"
            )
        self._last[episode] = now
        return float(now[1].timestamp() if now[0] == "time" else now[1])


def _ends(rewards: FloatArray) -> tuple[FloatArray, FloatArray]:
    """The least and largest reward of each row; where there is none (nan), ends that contradict nothing."""
    missing = np.isnan(rewards)
    return np.where(missing, np.inf, rewards), np.where(missing, -np.inf, rewards)


def _shown(value: object) -> str:
    return plain(repr(value))[:80]


def _written(value: object) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _moment(value: object) -> Moment:
    """An order as something to compare: a number, or a time."""
    written = _written(value).strip(rules.BLANKS)
    if rules.number(written) is not None:
        return "number", int(written) if written.lstrip("+-").isdigit() else float(written)
    try:
        time = datetime.datetime.fromisoformat(written)
    except ValueError:
        rule = f"it must be a number or a time, of one kind{dates_in(written)}"
        raise InputError(f"order is {_shown(value)}; {rule}") from None
    return "time", time if time.tzinfo else time.replace(tzinfo=datetime.UTC)
