"""A log that is still being written: lines as they arrive, as transitions.

Two forms: JSON lines, an object with the keys s, a and s_next on each line, and CSV, with a header. `lines` waits for
complete lines at the end of a file or a pipe; `Parser` turns them into indices, and refuses what it does not
understand with the number of the line, since a test that guesses at its data proves nothing.
"""

from __future__ import annotations

import contextlib
import csv
import json
import os
import select
import stat
import sys
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np

from policytest._checks import InputError, is_sparse
from policytest._display import plain
from policytest.sequential import Transitions
from policytest.sources.columns import IGNORED, LABELS, check_mapping, resolve
from policytest.sources.labels import MISSING, UNKNOWN, Lookup
from policytest.sources.tallied import ROUNDING, UNPROVED
from policytest.task import Task

CHUNK = 1 << 16
LONGEST = 1 << 24
"""Bytes of a line that is never ended, at most."""
DELIMITERS = (",", "\t", ";", "|")
STDIN = 0
"""The file number of standard input."""


def lines(name: str, follow: bool = True, poll: float = 0.2, idle: float | None = None) -> Iterator[list[bytes]]:
    """Lists of complete lines, as they arrive; an empty list where none came for a while.

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
                if len(left) > LONGEST:
                    raise InputError(f"{name}: a line has no end after {LONGEST:,} bytes; each transition is one line")
                yield whole
                continue
            if (chunk == b"" and not (is_file and follow)) or (idle is not None and time.monotonic() - since >= idle):
                break
            if is_file:
                _check_file(name, file, read)
                time.sleep(poll)
            yield []
        if left and not (is_file and follow):  # a line that is still being written is none yet
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
        raise InputError(f"{name}: cannot be read ({error.strerror or error}); check the path") from None
    try:
        if stat.S_ISDIR(os.fstat(file).st_mode):
            raise InputError(f"{name} is a folder; one growing file is followed, or standard input (-)")
        yield file
    finally:
        os.close(file)


def _check_file(name: str, file: int, read: int) -> None:
    """What was read must still be the beginning of the file of this name."""
    with contextlib.suppress(OSError):  # removed: nothing more will come, and what came stays valid
        now = os.stat(name)
        if not os.path.samestat(now, os.fstat(file)):
            raise InputError(f"{name}: it was replaced by another file; start again, on both if both matter")
        if now.st_size < read:
            raise InputError(f"{name}: it was cut short while it was followed; start again")


class Parser:
    """Lines in, transitions out.

    Parameters
    ----------
    task
        Gives the names of states and actions, and the rewards that a column ``reward`` is checked against.
    columns
        Other names for s, a, s_next, count and reward.
    skip
        Of "s" and "a": leave rows out whose label there is missing or unknown; they are counted in ``left_out``.

    ``other_rewards`` says of a column reward that is left alone whether it differs from the task's rewards so far.
    """

    def __init__(
        self,
        task: Task,
        columns: Mapping[str, str | None] | None = None,
        skip: Collection[str] = (),
        place: str = "the log",
        tolerance: float = 1e-9,
    ) -> None:
        self.task, self.columns, self.place, self.tolerance = task, check_mapping(columns), place, tolerance
        states = Lookup("state", task.states, task.n_states)
        self._lookups = dict(zip(LABELS, (states, Lookup("action", task.actions, task.n_actions), states), strict=True))
        for part in skip:
            if part not in ("s", "a"):
                raise InputError(f"skip has {part!r}; rows of a growing log may be left out for their s or a, no more")
        self.skip, self.line, self.left_out, self.other_rewards = frozenset(skip), 0, 0, False
        self._header: list[str] | None = None
        self._form = ""
        self._known: dict[tuple[str, str], int] = {}

    def transitions(self, lines: list[bytes]) -> Transitions:
        """The transitions in these lines, in their order. Blank lines are none."""
        found = []
        for line in lines:
            self.line += 1
            text = self._text(line).strip("\r\n\ufeff")
            row = self._row(text) if text.strip() else None
            if row is not None and (entry := self._entry(row)) is not None:
                found.append(entry)
        table = np.array(found, dtype=np.int64).reshape(-1, 4)
        s, a, x = (np.repeat(table[:, column], table[:, 3]) for column in range(3))
        return Transitions(s, a, x, other_rewards=self.other_rewards)

    def _text(self, line: bytes) -> str:
        try:
            return line.decode("utf-8")
        except UnicodeDecodeError as error:
            raise self._wrong(f"byte {error.start} is not UTF-8 text; write the log as UTF-8") from None

    def _wrong(self, message: str) -> InputError:
        return InputError(f"{self.place}, line {self.line}: {message}")

    def _row(self, text: str) -> dict[str, Any] | None:
        """The entries of a line by the names of their columns; None for the header of a CSV file."""
        if not self._form:
            self._form = "json" if text.lstrip().startswith("{") else "text"
            if self._form == "text":
                self._header = self._cells(text)
                self._parts = resolve(self.columns, self._header, self.place)
                return None
        if self._form == "text":
            cells, header = self._cells(text), self._header or []
            if len(cells) != len(header):
                raise self._wrong(f"there are {len(cells)} entries, but the header has {len(header)}; mend the line")
            row: dict[str, Any] = dict(zip(header, cells, strict=True))
        else:
            row = self._json(text)
            self._parts = resolve(self.columns, list(row), f"{self.place}, line {self.line},")
        return {part: row[name] for part, name in self._parts.items()}

    def _cells(self, text: str) -> list[str]:
        if text.count('"') % 2:
            raise self._wrong("a quoted entry is not closed; line breaks inside entries are not followed")
        if self._header is None:
            self._delimiter = max(DELIMITERS, key=text.count)
        try:
            return [
                cell.strip() if self._header is None else cell
                for cell in next(csv.reader([text], delimiter=self._delimiter))
            ]
        except csv.Error as error:
            raise self._wrong(f"this is not a row of CSV ({error}); mend the line") from None

    def _json(self, text: str) -> dict[str, Any]:
        try:
            row = json.loads(text)
        except (ValueError, RecursionError) as error:
            raise self._wrong(f"this is not JSON ({plain(str(error))}); write one object a line") from None
        if not isinstance(row, dict):
            raise self._wrong(f"this is a {type(row).__name__}; write one object a line, with the keys s, a and s_next")
        return row

    def _entry(self, row: dict[str, Any]) -> tuple[int, int, int, int] | None:
        """(s, a, x) and how often; None where the row is left out."""
        index = {part: self._index(part, row[part]) for part in LABELS}
        for part, found in index.items():
            if found < 0:
                if part in self.skip:
                    self.left_out += 1
                    return None
                lookup, label = self._lookups[part], plain(repr(row[part]))[:80]
                what = "is missing" if found == MISSING else f"is {label}, which is no {lookup.kind} of the task"
                remedy = f"; --skip {part} leaves such rows out" if part != "s_next" else ""
                raise self._wrong(f"{part} {what}{remedy or '; mend the task or the log'}")
        self._check_reward(index, row.get("reward"))
        self._note_reward(index, row.get(IGNORED))
        return index["s"], index["a"], index["s_next"], self._copies(row.get("count", 1))

    def _index(self, part: str, label: Any) -> int:
        if isinstance(label, str) and not label and self._form == "text":
            return MISSING
        if not isinstance(label, str):
            return self._lookups[part].index(label)
        key = (part, label)
        if key not in self._known:
            self._known[key] = self._lookups[part].index(label, "text" if self._form == "text" else "typed")
        return self._known[key]

    def _copies(self, count: Any) -> int:
        """A whole number from 0 on, as a number or written out."""
        try:
            copies = int(count) if not isinstance(count, float | bool) or count == int(count) else UNKNOWN
        except (TypeError, ValueError, OverflowError):
            copies = UNKNOWN
        if not 0 <= copies <= 1 or isinstance(count, bool):
            raise self._wrong(
                f"count is {plain(repr(count))[:80]}; a growing log has one line for each transition, in the order in "
                "which they were observed: count is 0 or 1 here (assess takes sums)"
            )
        return copies

    def _check_reward(self, index: dict[str, int], reward: Any) -> None:
        if reward is None:
            return
        expected, off = self._reward(index, reward)
        if not off <= self.tolerance * max(1.0, abs(expected)):
            raise self._wrong(
                f"the reward is {plain(repr(reward))[:80]}, but the task says {expected!r} there; correct one of them. "
                f"{UNPROVED}"
            )

    def _note_reward(self, index: dict[str, int], reward: Any) -> None:
        """Whether a reward that is left alone is the task's, where the policy goes."""
        if reward not in (None, "") and self.task.policy[index["s"], index["a"]] > 0:
            expected, off = self._reward(index, reward)
            self.other_rewards |= not off <= ROUNDING * max(1.0, abs(expected))

    def _reward(self, index: dict[str, int], reward: Any) -> tuple[float, float]:
        """The task's reward of a transition, and how far another one is from it; NaN where that is no number."""
        s, a, x = (index[part] for part in LABELS)
        rewards, A = self.task.rewards, self.task.n_actions
        expected = float(
            rewards[s * A + a, x] if is_sparse(rewards) else rewards[s, a, x] if rewards.ndim == 3 else rewards[s, a]
        )
        try:
            seen = float(reward)
        except (TypeError, ValueError, OverflowError):
            seen = np.nan
        return expected, abs(seen - expected)
