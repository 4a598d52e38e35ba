"""The groups of a table, added up one batch after another: the counts, and everything that is wrong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.rows import entry_keys
from policytest._base.text import plural
from policytest.data.counts import Counts
from policytest.mdp.task import Task
from policytest.sources.labels import MISSING, Lookup, distinct, numbers, whole
from policytest.sources.logged import frames
from policytest.sources.logged.columns import LABELS, OPTIONAL
from policytest.sources.logged.frames import Frame
from policytest.sources.logged.log import EXAMPLES, LeftOut, short, taken_pairs

ROUNDING = 1e-6  # differences of rewards, absolute or relative, that may come from single precision
UNPROVED = (
    "Estimated rewards, such as means of this column, void the guarantee; if the column is left alone, with "
    'columns={"reward": None}, no answer is certified'
)
DENSE_LIMIT = 20_000_000  # entries of a dense table of counts; above that it is sparse
_DISTINCT = 10_000  # unknown labels that are told apart


def new_counts(task: Task, selected: bool = False, other_rewards: bool = False) -> Counts:
    """No transitions yet, in the form that suits the task."""
    S, A = task.n_states, task.n_actions
    sparse = arrays.is_sparse(task.support) or S * A * S > DENSE_LIMIT
    return Counts(S, A, sparse, selected, other_rewards)


def most_frequent(labels: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The ten labels with the most rows."""
    return tuple(sorted(labels.items(), key=lambda item: (-item[1], item[0]))[:10])


class Tally:
    """Adds up batches of groups: the counts, and everything that is wrong."""

    def __init__(self, task: Task, frame: Frame, states: Lookup, actions: Lookup, tolerance: float) -> None:
        self.task, self.frame, self.tolerance = task, frame, tolerance
        self.lookups = (states, actions, states)
        self.counts, self.taken = new_counts(task), taken_pairs(task)
        self.rows = self.used = self.idle = self.lost = self.total = 0
        self.missing = dict.fromkeys(LABELS, 0)
        self.unknown = dict.fromkeys(LABELS, 0)
        self.labels: dict[str, dict[str, int]] = {role: {} for role in LABELS}
        self.bad = {role: 0 for role in OPTIONAL if role in frame.roles}
        self.selected, self.other_reward = False, ""
        self._allowed = None if task.support is None else _keys(task.support)

    def add(self, batch: dict[str, Any]) -> None:
        """Count the groups of a batch whose labels are known; note the others, each for its first bad label."""
        rows = whole(batch["rows"])
        self.rows += int(rows.sum())
        for role in self.bad:
            self.bad[role] += int(whole(batch[f"bad_{role}"]).sum())
        high, times = (whole(batch["high"]), whole(batch["low"])) if "high" in batch else (0 * rows, rows)
        self.total += frames.HIGH * int(high.sum()) + int(times.sum())
        if any(self.bad.values()) or self.total >= frames.COUNT_LIMIT:
            return  # it will be refused
        times = high * frames.HIGH + times
        labels = zip(LABELS, self.lookups, strict=True)
        columns = [lookup.indices(batch[role], self.frame.form) for role, lookup in labels]
        well = np.ones(len(rows), dtype=bool)
        for role, indices in zip(LABELS, columns, strict=True):
            if role == "s_next":
                outcome = well & (indices < 0)  # at all pairs: another policy may take those that this one does not
                self.selected |= bool(outcome.any())
                self.lost += int(rows[outcome].sum())
            self._note(role, batch[role], indices, rows, well & (indices < 0))
            well &= indices >= 0
        s, a, x = (indices[well] for indices in columns)
        pair, times = s * self.task.n_actions + a, times[well]
        self._check_support(pair, x, times)
        if "least" in batch:
            self._check_reward(pair, x, numbers(batch["least"])[well], numbers(batch["largest"])[well])
        if "ignored_least" in batch:
            ends = (numbers(batch[name])[well] for name in ("ignored_least", "ignored_largest"))
            self._note_rewards(pair, x, *ends)
        self.used += int(rows[well].sum())
        self.idle += int(rows[well][~self.taken[pair]].sum())
        self.counts.record(s, a, x, times)

    def _note(self, role: str, column: Any, indices: IntArray, rows: IntArray, wrong: Any) -> None:
        if not wrong.any():
            return
        self.missing[role] += int(rows[wrong & (indices == MISSING)].sum())
        wrong = wrong & (indices != MISSING)
        self.unknown[role] += int(rows[wrong].sum())
        values, codes = distinct(column)
        sums = np.bincount(codes[wrong], weights=rows[wrong], minlength=len(values))
        known = self.labels[role]
        for code in np.flatnonzero(sums)[: max(0, _DISTINCT - len(known))]:
            label = short(values[code], self.frame.form)
            known[label] = known.get(label, 0) + int(sums[code])

    def _check_support(self, pair: IntArray, x: IntArray, times: IntArray) -> None:
        """Refuse successors outside the declared support, of pairs that the policy takes."""
        if self._allowed is None:
            return
        outside = self.taken[pair] & (times > 0) & ~_among(pair * self.task.n_states + x, self._allowed)
        if outside.any():
            at = int(np.argmax(outside))
            raise InputError(
                f"data has {plural(int(times[at]), 'time')} the transition {self.task.place(pair[at], x[at])}, which "
                "the support of the task excludes; one of them is wrong: widen the support, or mend the rows"
            )

    def _check_reward(self, pair: IntArray, x: IntArray, least: FloatArray, largest: FloatArray) -> None:
        """Refuse rewards that are not the task's, of pairs that the policy takes."""
        expected, matters = _rewards(self.task, pair, x), self.taken[pair]
        room = self.tolerance * np.maximum(1.0, np.abs(expected))
        varied = matters & (largest - least > 2 * room)
        if varied.any():
            at = int(np.argmax(varied))
            raise InputError(
                f"the column reward runs from {least[at]:.9g} to {largest[at]:.9g} at "
                f"{self.task.place(pair[at], x[at])}; it must be a function of (s, a, s_next): split the states by "
                f"what it depends on. {UNPROVED}"
            )
        off = matters & (np.maximum(expected - least, largest - expected) > room)
        if off.any():
            at = int(np.argmax(off))
            raise InputError(
                f"the column reward is {least[at]:.9g} at {self.task.place(pair[at], x[at])}, the task has "
                f"{expected[at]:.9g} there; correct one of them (reward_tolerance=1e-6 for single precision). "
                f"{UNPROVED}"
            )
        self._note_rewards(pair, x, least, largest)

    def _note_rewards(self, pair: IntArray, x: IntArray, least: FloatArray, largest: FloatArray) -> None:
        """Remember one reward that is not the task's, beyond rounding, of pairs that the policy takes."""
        expected = _rewards(self.task, pair, x)
        room = ROUNDING * np.maximum(1.0, np.abs(expected))
        off = (self.task.policy.ravel()[pair] > 0) & (np.maximum(expected - least, largest - expected) > room)
        if off.any() and not self.other_reward:
            at = int(np.argmax(off))
            seen = least[at] if expected[at] - least[at] > room[at] else largest[at]
            seen = f"{seen:.9g}" if np.isfinite(seen) else "no number"
            self.other_reward = f"{seen} at {self.task.place(pair[at], x[at])}, the task has {expected[at]:.9g} there"

    def check(self, leave: Sequence[str], empty_too: bool) -> None:
        """Refuse what cannot be counted, unless it is to be left out."""
        if self.frame.n_rows not in (None, self.rows):
            raise InputError(
                f"the files have {self.frame.n_rows:,} rows, but DuckDB read {self.rows:,}; perhaps they changed while "
                "they were read: read them again, or convert them to Parquet"
            )
        for role, times in self.bad.items():
            if times:
                listed = ", ".join(short(value) for value in frames.examples(self.frame, role))
                wrong = f"{plural(times, 'entry does', 'entries do')} not, such as {listed}"
                alone = "" if role == "count" else f', or leave the column alone with columns={{"{role}": None}}'
                raise InputError(f"the column {role} must hold {_RULES[role]}; {wrong}: mend these rows{alone}")
        if self.total >= frames.COUNT_LIMIT:
            raise InputError(f"the column count adds up to {float(self.total):.3g}; sums of counts stay below 2**62")
        if not self.rows and not empty_too:
            raise InputError("data has no rows; there is nothing to count")
        refused = [role for role in LABELS if role not in leave and self.missing[role] + self.unknown[role]]
        if refused:
            words = "; ".join(self._words(role) for role in refused)
            raise InputError(f"data has labels that are no names of the task: {words}; {self._remedy(refused)}")
        self.selected &= "s_next" in leave

    def _words(self, role: str) -> str:
        parts = [f"{label} in {plural(rows, 'row')}" for label, rows in most_frequent(self.labels[role])[:EXAMPLES]]
        if (more := len(self.labels[role]) - EXAMPLES) > 0:
            parts.append(f"{'at least ' if more + EXAMPLES >= _DISTINCT else ''}{more:,} more")
        if self.missing[role]:
            parts.append(f"null in {plural(self.missing[role], 'row')}")
        return f"{role} is {', '.join(parts)}"

    def _remedy(self, wrong: Sequence[str]) -> str:
        lookup = self.lookups[LABELS.index(wrong[0])]
        names = "names" if lookup.names is None else "these names too"
        remedy = f"mend the rows, or give the task {names}"
        if lookup.names is None:
            remedy = f"without names the {lookup.kind}s are 0 to {lookup.count - 1}; {remedy}"
        if set(wrong) & {"s", "a"}:
            listed = ", ".join(f'"{role}"' for role in wrong if role != "s_next")
            remedy += f", or leave them out with skip=({listed},)"
        return remedy

    def left_out(self) -> tuple[LeftOut, ...]:
        """The rows that are not counted, by column and reason."""
        found = []
        for role in LABELS:
            if self.unknown[role]:
                found.append(LeftOut(role, "no such name", self.unknown[role], most_frequent(self.labels[role])))
            if self.missing[role]:
                found.append(LeftOut(role, "null", self.missing[role]))
        return tuple(found)


_RULES = {
    "count": "whole numbers from 0 to 2**62 - 1",
    "order": "numbers or times, of one kind",
    "episode": "the id of an episode",
    "reward": "finite numbers",
}


def _keys(table: Any) -> Any:
    """A support as something `_among` can search."""
    return entry_keys(table) if arrays.is_sparse(table) else table.ravel()


def _among(keys: IntArray, allowed: Any) -> Any:
    if allowed.dtype == np.bool_:
        return allowed[keys]
    at = np.minimum(np.searchsorted(allowed, keys), max(len(allowed) - 1, 0))
    return allowed[at] == keys if len(allowed) else np.zeros(len(keys), dtype=bool)


def _rewards(task: Task, pair: IntArray, x: IntArray) -> Any:
    """r(s,a,x) of these transitions."""
    if not task.rewards_on_successor:
        return task.rewards.ravel()[pair]
    if not arrays.is_sparse(task.rewards):
        return task.rewards.reshape(-1, task.n_states)[pair, x]
    stored, keys = entry_keys(task.rewards), pair * task.n_states + x
    at = np.minimum(np.searchsorted(stored, keys), max(len(stored) - 1, 0))
    return np.where(_among(keys, stored), task.rewards.data[at] if len(stored) else 0.0, 0.0)
