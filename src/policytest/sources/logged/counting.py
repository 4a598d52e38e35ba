"""A table read once, batch by batch: labels become indices, transitions are counted, and what is wrong is noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.rows import entries_at
from policytest._base.text import number, plural
from policytest.data.counts import Counts
from policytest.mdp.task import Task
from policytest.sources.checks import IGNORED_REWARDS, ROUNDING, check_support, first_other, room, wrong_reward
from policytest.sources.labels import MISSING, UNKNOWN, Column, Places, Translated, distinct, entry, numbers, whole
from policytest.sources.logged import frames
from policytest.sources.logged.columns import LABELS, OPTIONAL, ignoring
from policytest.sources.logged.frames import Batch, Frame, NumberArray
from policytest.sources.logged.log import (
    EXAMPLES,
    IN_AN_END,
    LAST_ROW,
    NOT_OFFERED,
    IndexColumns,
    LeftOut,
    RewardSums,
    dates_in,
    ranks,
    short,
)
from policytest.sources.logged.rewards import first_wrong, outside

DENSE_LIMIT = 20_000_000  # entries of a dense table of counts; above that it is sparse
_DISTINCT = 10_000  # unknown labels that are told apart
_RULES = {
    "count": "whole numbers from 0 to 2**62 - 1",
    "order": "numbers or times, of one kind",
    "episode": "the id of an episode",
    "reward": "finite numbers",
}


def new_counts(task: Task, selected: bool = False, other_rewards: bool = False) -> Counts:
    """No transitions yet, in the form that suits the task."""
    S, A = task.n_states, task.n_actions
    sparse = arrays.is_sparse(task.support) or S * A * S > DENSE_LIMIT
    return Counts(S, A, sparse, selected, other_rewards)


def most_frequent(labels: dict[str, int]) -> tuple[tuple[str, int], ...]:
    """The ten labels with the most rows."""
    return tuple(sorted(labels.items(), key=lambda item: (-item[1], item[0]))[:10])


class Reading:
    """Batches of rows, or of groups of them, added up: the counts, everything that is wrong, and rows to be ordered."""

    def __init__(self, task: Task, frame: Frame, at: Places, tolerance: float, keep: bool) -> None:
        self.task, self.frame, self.tolerance, self.keep = task, frame, tolerance, keep
        self.lookups = at.by_role
        self.counts, self.taken = new_counts(task), task.layout.unknown_pairs.ravel()
        self.paid = RewardSums.nothing(task) if task.observes_rewards else None
        self.rows = self.used = self.idle = self.lost = self.total = 0
        self.missing, self.unknown = dict.fromkeys(LABELS, 0), dict.fromkeys(LABELS, 0)
        self.labels: dict[str, Counter[str]] = {role: Counter() for role in LABELS}
        self.bad = {role: 0 for role in OPTIONAL if role in frame.roles}
        self.selected, self.other_reward, self.lost_starts, self.stopped = False, "", 0, 0
        self.outside = 0  # rows or groups with a reward outside its range
        self._is_end = np.append(np.isin(np.arange(at.n_states), at.ends), [False, False])  # at -1 and -2: no state
        self._over: dict[tuple[str, str], Counter[str]] = {key: Counter() for key in (NOT_OFFERED, IN_AN_END, LAST_ROW)}
        self._kept: dict[str, list[Any]] = {}

    def add(self, batch: Batch) -> None:
        """Count the rows of a batch whose labels are known; note the others, each for its first bad label."""
        rows = whole(batch["rows"]) if "rows" in batch else np.ones(len(batch["s"]), dtype=np.int64)
        self.rows += int(rows.sum())
        for role in self.bad:
            self.bad[role] += int(whole(batch[f"bad_{role}"]).sum())
        high, times = (whole(batch["high"]), whole(batch["low"])) if "high" in batch else (0 * rows, rows)
        self.total += frames.HIGH * int(high.sum()) + int(times.sum())
        if any(self.bad.values()) or self.total >= frames.COUNT_LIMIT:
            return  # it will be refused
        times = high * frames.HIGH + times
        found = self._found(batch)
        well = self._going_on(batch, rows, found)
        if "first" in batch:
            self._begin(found["s"][0], whole(batch["first"]) == 1, rows, times)
        for role, (indices, values, codes) in found.items():
            wrong = well & (indices < 0)
            if role == "s_next" and wrong.any():  # at all pairs: another policy may take those that this one does not
                self.selected, self.lost = True, self.lost + int(rows[wrong].sum())
            self._note(role, values, codes, indices, rows, wrong)
            well &= ~wrong
        s, a, x = (indices for indices, _, _ in found.values())
        if self.task.available is not None:
            there = self._available(s, a, rows, well)
            well, a = well & there, np.where(there, a, UNKNOWN)
        rewards = numbers(batch["reward_least"]) if self.paid is not None else None
        if self.keep:
            self._keep(batch, s, a, x, times, rewards)
        if not well.all():
            s, a, x, rows, times = (column[well] for column in (s, a, x, rows, times))
        pair = s * self.task.n_actions + a
        self._check(batch, pair, x, times, well)
        if self.paid is not None and rewards is not None:
            self.paid.record(pair, *self._earned(batch, rewards, times, well))
        self.used += int(rows.sum())
        self.idle += int(rows[~self.taken[pair]].sum())
        self.counts.record(s, a, x, times if "rows" in batch or "high" in batch else 1)

    def _found(self, batch: Batch) -> dict[str, Translated]:
        """For s, a and s_next: the indices of the labels, the labels, and the place of each among them."""
        found = {role: lookup.translated(batch[role], self.frame.form) for role, lookup in self.lookups.items()}
        for role, cell in (("s", "cell"), ("s_next", "cell_next")):
            if cell in batch:  # where there is no label
                indices, values, codes = found[role]
                found[role] = (np.where(indices == MISSING, whole(batch[cell]), indices), values, codes)
        return found

    def _wrong_reward(self) -> InputError:
        """The error that names the first row whose observed reward is missing or outside its range."""

        def indices(batch: Batch) -> tuple[IntArray, IntArray, IntArray]:
            s, a, x = (found for found, _, _ in self._found(batch).values())
            return s, a, np.where(whole(batch["last"]) == 1, MISSING, x) if "last" in batch else x

        return first_wrong(self.task, self.frame, indices)

    def _begin(self, s: IntArray, first: BoolArray, rows: IntArray, times: IntArray) -> None:
        """Count the first states of episodes as what follows the start; an unknown one is an outcome that is lost."""
        self.lost_starts += int(rows[first & (s < 0)].sum())
        known = first & (s >= 0)
        self.counts.record(self.task.start, 0, s[known], times[known])

    def _going_on(self, batch: Batch, rows: IntArray, found: dict[str, Translated]) -> BoolArray:
        """Which rows have an outcome: not those in a terminal state, and not the last one of a visitor."""
        s, a, x = (found[role][0] for role in LABELS)
        last = whole(batch["last"]) == 1 if "last" in batch else np.zeros(len(rows), dtype=bool)
        ended = self._is_end[s] & (last | (a == MISSING) | (x == MISSING))
        back = self._is_end[s] & (x >= 0) & (x != s) & ("last" in batch or a == MISSING)
        if (i := arrays.first(back)) is not None:
            names = self.lookups["s"]
            raise InputError(
                f"{plural(int(rows[back & (s == s[i]) & (x == x[i])].sum()), 'row')} in the terminal state "
                f"{names.label(s[i])} followed by {names.label(x[i])}; correct terminal in the task, or the data"
            )
        for key, over in ((IN_AN_END, ended), (LAST_ROW, last & ~ended)):
            sums = np.bincount(np.maximum(s[over], -1) + 1, weights=rows[over])
            for index in np.flatnonzero(sums):
                label = self.lookups["s"].label(int(index) - 1) if index else "no state"
                self._over[key][label] += int(sums[index])
        return np.asarray(~(last | ended))

    def _available(self, s: IntArray, a: IntArray, rows: IntArray, well: BoolArray) -> BoolArray:
        """Which rows have an action that there is in their state; the others are noted."""
        pair = np.where(well, s * self.task.n_actions + a, 0)
        there: BoolArray = self.task.available.ravel()[pair] | ~well
        for i in np.unique(pair[~there]):
            self._over[NOT_OFFERED][self.task.place(i)] += int(rows[~there & (pair == i)].sum())
        return there

    def _earned(
        self, batch: Batch, rewards: FloatArray, times: IntArray, well: BoolArray
    ) -> tuple[FloatArray, FloatArray]:
        """The sums of rewards and of their squares, of each row or group that is counted."""
        if "reward_sum" in batch:
            return numbers(batch["reward_sum"])[well], numbers(batch["reward_square"])[well]
        return times * rewards[well], times * rewards[well] ** 2

    def _keep(
        self, batch: Batch, s: IntArray, a: IntArray, x: IntArray, times: IntArray, rewards: FloatArray | None
    ) -> None:
        """Keep the rows of a batch, in as few bytes as their numbers need."""
        S, A = (np.min_scalar_type(-n) for n in (self.task.n_states, self.task.n_actions))
        new = {"s": s.astype(S), "a": a.astype(A), "x": x.astype(S), "order": frames.owned(batch["order"])}
        if rewards is not None:
            new["r"] = rewards.copy()
        if "count" in self.frame.roles:
            new["times"] = times
        if "episode" in self.frame.roles:
            new["episode"] = frames.owned(batch["episode"])
        if "first" in batch:
            new["first"] = whole(batch["first"]) == 1
        if "last" in batch:
            new["open"] = (whole(batch["last"]) == 1) & ~self._is_end[s]
        for name, column in new.items():
            self._kept.setdefault(name, []).append(column)

    def _note(
        self, role: str, values: list[object], codes: IntArray, indices: IntArray, rows: IntArray, wrong: BoolArray
    ) -> None:
        """Remember rows whose label is missing or unknown."""
        if not wrong.any():
            return
        self.missing[role] += int(rows[wrong & (indices == MISSING)].sum())
        wrong = wrong & (indices != MISSING)
        self.unknown[role] += int(rows[wrong].sum())
        sums = np.bincount(codes[wrong], weights=rows[wrong], minlength=len(values))
        known = self.labels[role]
        for code in np.flatnonzero(sums)[: max(0, _DISTINCT - len(known))]:
            known[short(values[code], self.frame.form)] += int(sums[code])

    def _check(self, batch: Batch, pair: IntArray, x: IntArray, times: IntArray, well: BoolArray) -> None:
        """Refuse what contradicts the task at pairs that the policy takes, and note other rewards that are let pass."""

        def same(i: int) -> BoolArray:
            return np.asarray((pair == pair[i]) & (x == x[i]))

        def place(i: int) -> str:
            return self.task.place(pair[i], x[i])

        seen = times > 0
        check_support(
            self.task,
            pair[seen],
            x[seen],
            self.taken,
            lambda i: f"data has {plural(int(times[same(np.flatnonzero(seen)[i])].sum()), 'time')}",
        )
        for name in ("reward", "ignored"):
            if f"{name}_least" not in batch:
                continue
            least, largest = (numbers(batch[f"{name}_{end}"])[well] for end in ("least", "largest"))
            if self.paid is not None:
                wrong_rows = outside(self.task, pair, least) | outside(self.task, pair, largest)
                self.outside += int(np.count_nonzero(wrong_rows))
                continue
            expected = entries_at(self.task.rewards, pair, x) * self.task.reward_scale
            i = first_other(expected, least, largest, self.tolerance, self.taken[pair]) if name == "reward" else None
            if i is not None:
                ends = least[same(i)].min(), largest[same(i)].max()
                wrong = wrong_reward("the column reward", place(i), expected[i], *ends, self.tolerance)
                single = " (reward_tolerance=1e-6 for single precision)" if "correct one" in wrong else ""
                raise InputError(f"{wrong}{single}. {IGNORED_REWARDS}")
            i = first_other(expected, least, largest, ROUNDING, self.task.policy.ravel()[pair] > 0)
            if i is not None and not self.other_reward:
                other = least[i] if expected[i] - least[i] > room(expected[i], ROUNDING) else largest[i]
                shown = f"{other:.9g}" if np.isfinite(other) else "not a number"
                self.other_reward = f"{shown} at {place(i)}, the task has {expected[i]:.9g} there"

    # ---------------------------------------------------------------- when all was read

    def check(self, leave: Sequence[str], empty_too: bool) -> None:
        """Refuse what cannot be counted, unless it is to be left out."""
        if self.frame.n_rows not in (None, self.rows):
            raise InputError(
                f"the files have {self.frame.n_rows:,} rows, but DuckDB read {self.rows:,}; perhaps they changed while "
                "they were read: read them again, or convert them to Parquet"
            )
        if self.paid is not None and self.bad["reward"] + self.outside:
            raise self._wrong_reward()
        for role in self.bad:
            self._check_numbers(role)
        if self.total >= frames.COUNT_LIMIT:
            raise InputError(
                f"the column count adds up to {float(self.total):.3g}; sums of counts must stay below 2**62"
            )
        if not self.rows and not empty_too:
            raise InputError("data has no rows; there is nothing to count")
        refused = [role for role in LABELS if role not in leave and self.missing[role] + self.unknown[role]]
        if refused:
            raise InputError(f"{', and '.join(self._words(role) for role in refused)}; {self._remedy(refused)}")
        if "a" not in leave and (off := most_frequent(self._over[NOT_OFFERED])):
            raise InputError(
                f"{plural(off[0][1], 'row')} at {off[0][0]}, an action that is not available in that state; fix the "
                'data or available in the task, or drop such rows with skip=("a",)'
            )
        self.selected = (self.selected and "s_next" in leave) or self.lost_starts > 0
        self.stopped = self._over[LAST_ROW].total()  # perhaps; in their order rows tell

    def _check_numbers(self, role: str) -> None:
        """Refuse a column with entries that cannot be used."""
        if not self.bad[role]:
            return
        found = frames.examples(self.frame, role)
        listed = ", ".join(short(value) for value in found)
        entries = f"{plural(self.bad[role], 'entry is', 'entries are')} not, such as {listed}"
        hint = dates_in(*found) if role == "order" else ""
        optional = role == "reward" or (role != "count" and not self.frame.flags)  # they find the next row
        remedy = f"fix the data{hint}" + (f", or {ignoring(role)}" if optional else "")
        raise InputError(f"the column {role} must hold {_RULES[role]}, and {entries}; {remedy}")

    def _words(self, role: str) -> str:
        """What is wrong with the labels of a column."""
        known, kind, parts = self.labels[role], self.lookups[role].kind, []
        place = "the next row" if role == "s_next" and "last" in self.frame.flags else f"column {role}"
        listed = [(label, plural(rows, "row")) for label, rows in most_frequent(known)[:EXAMPLES]]
        if len(known) == 1:
            parts.append(f"unknown {kind} {listed[0][0]} in {place} ({listed[0][1]})")
        elif known:
            more = len(known) - len(listed)
            least = "at least " if len(known) >= _DISTINCT else ""
            words = ", ".join(f"{label} ({rows})" for label, rows in listed)
            parts.append(f"unknown {kind}s in {place}: {words}{f', {least}{more:,} more' if more > 0 else ''}")
        if self.missing[role]:
            parts.append(self._missing(role))
        return ", ".join(parts)

    def _missing(self, role: str) -> str:
        """What is missing, in which column; the next state may be that of another row."""
        if role == "s_next" and "last" in self.frame.flags:
            return f"{plural(self.missing[role], 'row is', 'rows are')} followed by a row without a state"
        if role != "a" and (columns := self.frame.binned and frames.without_number(self.frame, role)):
            each = ", ".join(f"{name} ({plural(rows, 'row')})" for name, rows in columns.items())
            return f"no number in column {each}"
        return f"null in column {role} ({plural(self.missing[role], 'row')})"

    def _remedy(self, wrong: Sequence[str]) -> str:
        forgotten = frames.forgotten_bins(self.task, self.frame.binned)
        if forgotten and "s" in wrong and not self.unknown["s"]:
            return forgotten
        remedies = ["fix the data"]
        if unknown := [role for role in wrong if self.unknown[role]]:
            lookup = self.lookups[unknown[0]]
            named = f"give the task names, without which the {lookup.kind}s are 0 to {lookup.count - 1}"
            remedies.append(f"add the {lookup.kind} to the task" if lookup.names is not None else named)
        listed = ", ".join(f'"{role}"' for role in wrong)
        if "s_next" not in wrong:
            remedies.append(f"drop such rows with skip=({listed},)")
        elif len(wrong) > 1:  # rows with a known state are among them: what follows is unknown there
            remedies.append(f"drop such rows with skip=({listed},), after which no answer is certified")
        return f"{', '.join(remedies[:-1])}, or {remedies[-1]}" if remedies[1:] else remedies[0]

    def left_out(self) -> tuple[LeftOut, ...]:
        """The rows that are not counted, by column and reason."""
        found = []
        for role in LABELS:
            if self.unknown[role]:
                found.append(LeftOut(role, "no such name", self.unknown[role], most_frequent(self.labels[role])))
            if self.missing[role]:
                found.append(LeftOut(role, "null", self.missing[role]))
        return tuple(found) + tuple(
            LeftOut(*key, sum(labels.values()), most_frequent(labels)) for key, labels in self._over.items() if labels
        )

    def in_order(self) -> IndexColumns:
        """The rows that were kept, by their order, in which no row may be there twice."""
        s, a, x, first = (self._pop(name) for name in ("s", "a", "x", "first"))
        times = self._pop("times") if "count" in self.frame.roles else None
        r = self._pop("r") if self.paid is not None else None
        order, values = frames.sortable(self._kept.pop("order", []))
        order = _small(order)
        ids: list[object] = []
        episode = None
        if "episode" in self.frame.roles:
            ids, episode = distinct(frames.joined(self._kept.pop("episode", [])))
            episode = episode.astype(np.min_scalar_type(-len(ids) - 1))
            self.stopped = self._stopped(order, episode, self._pop("open"))
        columns = IndexColumns(s, a, x, times, episode, ids, self.frame.form, r=r)
        if not (order[1:] > order[:-1]).all():
            rising = np.sort(order, kind="stable")
            tied = bool((rising[1:] == rising[:-1]).any())
            by = self._untied(order, values, ids, episode) if tied else np.argsort(order, kind="stable")
            columns = columns.taken(by)
            restarts = self._begins(order, values, by, columns.episode, len(ids)) if tied else ""
            columns = columns._replace(tied=tied, restarts=restarts)
            first = first[by] if len(first) else first
        return self._with_starts(columns, first)

    def _pop(self, name: str) -> Any:
        """A column of the rows that were kept, which is not needed any more."""
        return np.concatenate(self._kept.pop(name, [np.zeros(0, dtype=np.int8)]))

    def _stopped(self, order: NumberArray, episode: IntArray, is_open: BoolArray) -> int:
        """Episodes that stop in a state that is not terminal, longer before the log ends than any ever paused."""
        if not is_open.any():
            return 0
        by = np.lexsort((order, episode))
        pauses = np.diff(order[by].astype(np.float64))[episode[by[1:]] == episode[by[:-1]]]
        return int((order[is_open] + pauses.max(initial=0.0) < order.max()).sum())

    def _with_starts(self, columns: IndexColumns, first: BoolArray) -> IndexColumns:
        """The rows with one more before the first row of each episode, from the start to its state."""
        if self.task.start is None:
            return columns
        at = np.flatnonzero(first)
        new, none = columns.taken(at), np.zeros(len(at), np.int64)
        return columns.inserted(at, new._replace(s=none + self.task.start, a=none, x=new.s, r=np.zeros(len(at))))

    def _untied(self, order: NumberArray, values: Column, ids: list[object], episode: IntArray | None) -> IntArray:
        """Rows by their order, those of the same order by the ids of their episodes; refused if an episode has two."""
        rank = np.zeros(len(order), np.int8) if episode is None else _small(ranks(ids, self.frame.form))[episode]
        by = np.lexsort((rank, order))
        same = (order[by[1:]] == order[by[:-1]]) & (rank[by[1:]] == rank[by[:-1]])
        if (at := arrays.first(same)) is not None:
            first = int(by[at])
            found = {} if episode is None else {"episode": ids[episode[first]]}
            times = int(((order == order[first]) & (rank == rank[first])).sum())
            raise repeated_key(times, found | {"order": entry(values, first)}, self.frame)
        return by

    def _begins(self, order: NumberArray, values: Column, by: IntArray, episode: IntArray | None, n: int) -> str:
        """The number with which every episode begins, in words; "" if they differ, or are times."""
        if episode is None or n < 2 or not np.bincount(episode[order[by] == order[by[0]]], minlength=n).all():
            return ""
        value = entry(values, int(by[0]))
        return short(value) if isinstance(value, int | float) else ""


def _small(numbers: NumberArray) -> NumberArray:
    """Numbers that sort and differ as these do, in as few bytes as they need: whole ones from 0 on."""
    if numbers.dtype.kind not in "iu" or not len(numbers):
        return numbers
    least, span = numbers.min(), int(numbers.max()) - int(numbers.min())
    return numbers if span >= 2**63 else (numbers - least).astype(np.min_scalar_type(span))


def repeated_key(rows: int, key: dict[str, object], frame: Frame) -> InputError:
    """The error for rows with the same order, in the same episode where there are episodes."""
    shown = ", ".join(f"{name}={short(value)}" for name, value in key.items())
    remedies = ["drop the repeated rows"]
    if "episode" not in key:
        remedies.append('if they are of different episodes, name these with columns={"episode": ...}')
    if frame.flags:  # the next row of an episode must be known
        remedies.append("if they are different visits, write into the column order which came first")
    else:
        remedies.append(f"if that column is not a key, {ignoring('order')}")
    return InputError(
        f"data has {number(rows)} rows with {shown}, and a transition that is logged twice counts once; "
        f"{', or, '.join(remedies)}"
    )
