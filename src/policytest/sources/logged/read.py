r"""Logs: from the data people have to counts of transitions.

`logs` reads a table with a row for each transition (s, a, s_next), on files or on any engine, once:

    N[s,a,x] = number of rows (or sum of `count`) with these labels.

A table with a column `order` comes row by row, and its rows are kept as indices, in their order. From one without an
order only groups come back; from a larger one groups, and its first rows by their order.

What makes the result sound is that *which* transitions are counted was settled without looking at their outcome. So
rows may be left out for their s or a (``skip=("s", "a")``), which were there before the outcome. Rows that are left
out for their s_next are selected by the outcome: the law of what remains is p(x|s,a, x is known), not p(x|s,a). Then
the counts say ``selected``, and no answer from them is certified.

Nothing is repaired silently. Unknown labels, nulls, negative or fractional counts, rewards that contradict
the task, successors outside the declared support and repeated keys are refused, with examples.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from policytest._base import arrays
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.text import plural
from policytest.data.counts import Counts
from policytest.mdp.task import Task
from policytest.sources.environments.bins import Bins
from policytest.sources.labels import Places, places_in
from policytest.sources.logged import frames
from policytest.sources.logged import log as log_module
from policytest.sources.logged.columns import LABELS
from policytest.sources.logged.counting import Reading, most_frequent, repeated_key
from policytest.sources.logged.frames import Frame
from policytest.sources.logged.log import CELLS, COUNTS_ONLY, LeftOut, Log, first_rows, stopped_early
from policytest.sources.logged.paths import File, provenance
from policytest.sources.logged.rewards import NO_REWARDS

NO_ORDER = 'data has no column order; name the column that has it with columns={"order": ...}'


def logs(
    data: object,
    task: Task,
    *,
    columns: object = None,
    skip: Sequence[str] = (),
    add_to: Counts | Log | None = None,
    reward_tolerance: float = 1e-9,
    progress: Callable[[float], None] | None = None,
    bins: Bins | None = None,
) -> Log:
    """The counts of the transitions in a table, wherever it lies.

    Parameters
    ----------
    data
        A path, a list of paths, a folder or a pattern (CSV, TSV and JSON lines, also with .gz; Parquet); or a frame of
        pandas, Polars, PyArrow, DuckDB, Dask or Spark. The engine of the frame does the work, DuckDB that on files.
    task
        Gives the names of states and actions (without names, labels are indices), the rewards and the support.
    columns
        Other names for the columns s, a, s_next, count, order, episode, reward: ``{"s": "state"}``; None for a
        column that is there but is not to be used.
    skip
        Of "s", "a" and "s_next": drop rows whose label there is null or unknown, instead of refusing the data.
        Dropping rows for s_next loses the guarantee, and warns. Also "last": where s_next is found in the next row,
        you say that recording stopped for reasons of its own wherever an episode has no end.
    add_to
        Yesterday's `Log` or `Counts`; a new log with both is returned.
    reward_tolerance
        How far the column reward may be from the task's, in absolute or relative terms.
    progress
        Called with the share that is done, from 0 to 1; for files, from another thread.
    bins
        Of a task file (``load_model(...).bins``): the states are cells of these columns of numbers.

    >>> import policytest as pt, pandas as pd
    >>> two = pt.instances.paper(2)
    >>> log = logs(pd.DataFrame({"s": [0, 0, 1], "a": [1, 1, 0], "s_next": [1, 0, 1]}), two.task)
    >>> log.counts
    Counts(2 states, 2 actions, 3 transitions, 2 of 4 pairs visited)
    """
    arrays.instance("task", task, Task)
    tolerance = arrays.real_number("reward_tolerance", reward_tolerance)
    if tolerance < 0:
        raise InputError(f"reward_tolerance is {tolerance}; it is a distance, from 0 on")
    leave, at = _skip(skip), places_in(task)
    earlier = None if add_to is None else _earlier(add_to, task, at)
    with frames.with_bins_named(task, bins):
        frame = frames.open_frame(data, columns, bins)
    frame = frames.with_first_rows(frame) if task.start is not None else frame
    _no_file_twice(frame.files, () if earlier is None else earlier.files)
    if task.observes_rewards and "reward" not in frame.roles:
        raise InputError(NO_REWARDS.format(place="data"))
    no_order = "" if "order" in frame.roles else NO_ORDER
    long = "" if no_order else _long(frame)
    kept = not (no_order or long)
    with frames.watched(frame, progress, 0.0, 0.5 if long else 1.0):
        found = _read(task, frame, at, tolerance, kept)
    found.check(leave, empty_too=earlier is not None)
    in_order = found.in_order() if kept else None
    if long:
        with frames.watched(frame, progress, 0.5, 1.0):
            _no_key_twice(frame)
            if earlier is None:  # all of these rows were checked before
                first = frames.first_in_order(frame, log_module.TRANSITION_LIMIT)
                in_order = _read(task, first, at, tolerance, keep=True).in_order()
    said = long if earlier is None else ""
    if said:
        warnings.warn(said, UserWarning, stacklevel=2)
    stopped = 0 if "last" in leave else found.stopped
    for flaw in _flaws(found, stopped, kept):
        warnings.warn(flaw, AssumptionWarning, stacklevel=2)
    counts, left_out = found.counts, found.left_out()
    flaws = found.selected or stopped > 0, bool(found.other_reward)
    counts.merge(Counts(task.n_states, task.n_actions, True, *flaws))  # of no transitions
    cells = "" if bins is None else CELLS.format(names=", ".join(bins.names))
    log = Log(
        counts,
        found.rows,
        found.used,
        left_out,
        found.idle,
        frame.files,
        at,
        task.layout.unknown_pairs.ravel(),
        columns=in_order,
        no_order=no_order,
        told=tuple(filter(None, (said, *first_rows(task), cells))),
        frame=frame if long else None,
        rewards=found.paid,
        binned=bins is not None,
    )
    return log if earlier is None else _added(earlier, log)


# ---------------------------------------------------------------- before


def _skip(skip: object) -> tuple[str, ...]:
    leave = (skip,) if isinstance(skip, str) else tuple(skip) if isinstance(skip, Iterable) else (skip,)
    for role in leave:
        if role not in (*LABELS, "last"):
            raise InputError(f'skip has {role!r}; it may have "s", "a", "last" and "s_next"')
    return leave


def _long(frame: Frame) -> str:
    """What is said of a log with more rows than are kept in their order; "" otherwise."""
    rows, limit = frame.length(), log_module.TRANSITION_LIMIT
    return log_module.LONG.format(rows=rows, limit=limit) if rows > limit else ""


def _read(task: Task, frame: Frame, at: Places, tolerance: float, keep: bool) -> Reading:
    """All rows of a table, or its groups unless the rows are to be kept in their order."""
    found = Reading(task, frame, at, tolerance, keep)
    with frames.readable():
        for batch in frames.batches(frames.scanned(frame) if keep else frames.tallied(frame, task.observes_rewards)):
            found.add(batch)
    return found


def _earlier(add_to: object, task: Task, at: Places) -> Log:
    """What is added to, as a log."""
    if isinstance(add_to, Counts):
        add_to.check_same_shape("task", task)
        return Log(add_to, 0, 0, (), 0, (), at, None, before=add_to.total)
    if not isinstance(add_to, Log):
        raise InputError(f"add_to is a {type(add_to).__name__}; pass a Log or Counts")
    if add_to.at.mark != at.mark:
        raise InputError("add_to has other states or actions than the task; pass the task of that log")
    return add_to


def _no_file_twice(files: Sequence[File], earlier: Sequence[File]) -> None:
    """Refuse a file whose content was counted already, under whichever name."""
    seen = {(file.size, file.fingerprint): file for file in earlier if not file.empty}
    for file in files:
        _not_grown(file, earlier)
        other = None if file.empty else seen.setdefault((file.size, file.fingerprint), file)
        if other is not None and other is not file:
            raise InputError(
                f"{file.name} has the same content as {other.name}, which is counted already; leave it out (if both "
                "are observations of their own that happen to agree, read one alone and pass add_to=log.counts)"
            )


def _not_grown(file: File, earlier: Sequence[File]) -> None:
    """Refuse a file of the same name that begins with what was counted already."""
    path = Path(file.name)
    for before in earlier:
        longer = not before.empty and before.size < file.size and Path(before.name).name == path.name
        if longer and provenance(path, False, before.size).fingerprint == before.fingerprint:
            raise InputError(
                f"{file.name} has grown: its first {before.size:,} bytes are counted already; pass the new rows as a "
                "file of their own, or read all of it again, without add_to"
            )


def _no_key_twice(frame: Frame) -> None:
    with frames.readable():
        again = frames.rows(frames.repeated(frame, [role for role in ("episode", "order") if role in frame.roles]), 1)
    if again:
        raise repeated_key(int(again[0].pop("rows")), again[0], frame)


# ---------------------------------------------------------------- after


def _flaws(found: Reading, stopped: int, sure: bool) -> Iterator[str]:
    """Why no answer from these counts is certified, as warnings."""
    if stopped:
        yield stopped_early(stopped, sure)
    if found.selected:
        lost = [f"{plural(found.lost, 'row')} dropped for s_next"] * (found.lost > 0)
        lost += [f"{plural(found.lost_starts, 'first row')} dropped for s"] * (found.lost_starts > 0)
        yield (
            f"{' and '.join(lost)}, which is the outcome: what remains is a selection, "
            "delta bounds nothing, and no answer from these counts is certified; fix the labels instead"
        )
    if found.other_reward:
        yield f"the column reward is {found.other_reward}: no answer from these counts is certified"


def _added(earlier: Log, log: Log) -> Log:
    """The counts of both logs, without an order."""
    log.counts.merge(earlier.counts)
    rewards = log.rewards
    if rewards is not None and earlier.counts.total:  # perhaps of counts that came without them
        rewards = None if earlier.rewards is None else rewards.plus(earlier.rewards)
    return replace(
        log,
        rows=log.rows + earlier.rows,
        used=log.used + earlier.used,
        left_out=joined(earlier.left_out + log.left_out),
        idle=log.idle + earlier.idle,
        files=earlier.files + log.files,
        before=earlier.before,
        columns=None,
        no_order=COUNTS_ONLY,
        frame=None,
        rewards=rewards,
    )


def joined(entries: Iterable[LeftOut]) -> tuple[LeftOut, ...]:
    """Entries of the same column and reason as one."""
    found: dict[tuple[str, str], LeftOut] = {}
    for entry in entries:
        key = (entry.column, entry.reason)
        if key in found:
            labels = Counter(dict(found[key].examples)) + Counter(dict(entry.examples))
            entry = replace(entry, rows=entry.rows + found[key].rows, examples=most_frequent(labels))
        found[key] = entry
    return tuple(found.values())
