r"""Recorded episodes from the data people have: files, data frames, engines.

The columns are `reward` and, where they are, `episode`, `order`, `propensity` and `target`. Without `episode` each row
is an episode, as in a contextual bandit. With `order`, rows are sorted by it: within episodes, and episodes by their
first row; without it rows are taken in the order of the table.

Episodes of the policy itself without a discount need no order within them: one group-by in the engine adds them up.
With weights or a discount the rows themselves come, five numbers each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError, Needed
from policytest._base.text import plural
from policytest.data.episodes import WIDEN
from policytest.data.logged_episodes import (
    COLUMNS,
    LONGER,
    NOT_ITS_OWN,
    WEIGH_OR_NOT,
    LoggedEpisodes,
    against_smallest,
)
from policytest.data.ranges import REFUSE, GivenRange, Range, ends_of, outside
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.sources.environments.bins import Bins
from policytest.sources.labels import MISSING, Column, Places, distinct, entry, numbers, places_in, whole
from policytest.sources.logged import frames
from policytest.sources.logged.columns import BINNED, EPISODE_ROLES, PROBABILITIES, check_episode_mapping
from policytest.sources.logged.exits import EXIT, steps, with_exits
from policytest.sources.logged.frames import Batch, Frame, Table
from policytest.sources.logged.log import dates_in, short

nw = Needed("narwhals", "data")
MOST_ROWS = 2**32 - 2  # what Polars can count


def logged_episodes(
    data: object,
    *,
    columns: object = None,
    task: Task | None = None,
    discount: float | None = None,
    horizon: int | None = None,
    reward_range: GivenRange = None,
    return_range: GivenRange = None,
    smallest_propensity: float | None = None,
    on_range: str = REFUSE,
    cut: bool = False,
    bins: Bins | None = None,
) -> LoggedEpisodes:
    """The episodes of a table, wherever it lies.

    Parameters
    ----------
    data
        A path, a list of paths, a folder or a pattern (CSV, TSV and JSON lines, also with .gz; Parquet); or a frame of
        pandas, Polars, PyArrow, DuckDB, Dask or Spark.
    columns
        Other names for the columns episode, order, reward, propensity, target: ``{"reward": "paid"}``; None for a
        column that is there but is not to be used.
    task
        Gives the discount, the horizon and the range of rewards unless these are passed; and, where the table has
        propensities and no target, the target: its policy at the columns s and a. Without propensities, rows with
        actions that its policy never takes are refused: they are of another policy. Rows that only say that an episode
        has ended (a terminal state without an action, or without a reward) are left out: they are no steps.
    discount, horizon, reward_range, return_range, smallest_propensity, on_range, cut
        As in `LoggedEpisodes`.
    bins
        Of a task file (``load_model(...).bins``): the states are cells of these columns of numbers.

    >>> import pandas as pd
    >>> frame = pd.DataFrame({"episode": ["a", "a", "b"], "order": [1, 2, 1], "reward": [1.0, 0.0, 1.0]})
    >>> logged_episodes(frame, reward_range=(0, 1), horizon=5)
    LoggedEpisodes(2 episodes of the policy itself, 3 rows)
    """
    if task is not None:
        arrays.instance("task", task, Task)
        discount = task.discount if discount is None else discount
        horizon = task.horizon if horizon is None else horizon
        reward_range = _rewards_of(task) if reward_range is None else reward_range
    if smallest_propensity is not None:
        smallest_propensity = arrays.real_number("smallest_propensity", smallest_propensity)
    ends = ends_of("reward_range", reward_range)
    bound, gamma = smallest_propensity, 1.0 if discount is None else discount
    about = Stated(gamma, horizon, ends, return_range, bound, on_range, cut)
    mapping = check_episode_mapping(columns, task is not None, () if bins is None else bins.names)
    with frames.with_bins_named(task, bins), frames.readable():
        opened = frames.opened(data, mapping, (*EPISODE_ROLES, "s", "a"), in_order=True)
        kinds = opened.table.collect_schema()
        for role in (role for role in ("reward", *PROBABILITIES, "order") if role in opened.roles):
            frames.check_type(role, kinds[role])
        frame = _with_cells(opened, bins)
    with frames.readable():
        frame = with_exits(frame, task)
        if "propensity" not in frame.roles and task is not None and {"s", "a"} <= set(frame.roles):
            _check_own(frame, task)
        if "propensity" not in frame.roles and "episode" in frame.roles and about.discount == 1.0 and not about.cut:
            if "target" in frame.roles:
                raise InputError('data has a column target and no propensity; name it with columns={"propensity": ...}')
            found = _added_up(frame, about)
            if found is not None:
                return found
        return _row_by_row(frame, task, about)


class Stated(NamedTuple):
    """What is said of the episodes beside the table, as `LoggedEpisodes` takes it."""

    discount: float
    horizon: int | None
    reward_range: Range | None
    return_range: GivenRange
    smallest_propensity: float | None
    on_range: str = REFUSE
    cut: bool = False


def _rewards_of(task: Task) -> Range:
    """The range of all rewards of the task, as they are paid: also of actions that its policy does not take."""
    rewards = task.rewards
    if isinstance(rewards, Observed):
        low, high = float(rewards.low.min()), float(rewards.high.max())
    else:
        listed = rewards.data if arrays.is_sparse(rewards) else rewards
        low, high = min(float(listed.min()), 0.0), max(float(listed.max()), 0.0)
    return low * task.reward_scale, high * task.reward_scale


def _with_cells(frame: Frame, bins: Bins | None) -> Frame:
    """The frame with the number of each row's cell, where the columns of the bins are there."""
    there = frame.table.collect_schema().names()
    if bins is None or any(BINNED + name not in there for name in bins.names):
        return frame
    found = frames.with_cells(frame, replace(bins, following=()))
    return replace(found, roles=(*dict.fromkeys((*frame.roles, "s")), "cell"))


# ---------------------------------------------------------------- one group-by


def _added_up(frame: Frame, about: Stated) -> LoggedEpisodes | None:
    """The returns of episodes, added up by the engine; None where a row is wrong, which has to be found."""
    reward = nw.col("reward").cast(nw.Float64)
    table = steps(frame).with_columns(
        reward.alias("reward"), frames.flag(reward.is_null() | ~reward.is_finite()).alias("bad")
    )
    how = {"total": nw.col("reward").sum(), "least": nw.col("reward").min(), "most": nw.col("reward").max()}
    how |= {"bad": nw.col("bad").sum(), "rows": nw.len()}
    if "order" in frame.roles:
        how["first"] = nw.col("order").min()
    pieces = _fetched(table.group_by("episode").agg(**how), ("episode", *how))
    ids, codes = distinct(pieces["episode"])
    total, least, most = (numbers(pieces[name], missing=np.nan) for name in ("total", "least", "most"))
    bad, rows = whole(pieces["bad"]), whole(pieces["rows"])
    ends = about.reward_range
    if not len(total) or bad.any() or (codes < 0).any():
        return None
    if ends is not None and (outside(least, ends).any() or outside(most, ends).any()):
        return None
    _check_lengths(rows, about.horizon, [ids[code] for code in codes])
    keys: list[npt.NDArray[Any]] = [_by_id(ids)[codes]]
    if "order" in frame.roles:
        keys.append(frames.sortable([pieces["first"]])[0])
    order = np.lexsort(keys)
    return LoggedEpisodes(None, total[order], rows=rows[order], **about._asdict())


def _by_id(ids: Sequence[Any]) -> IntArray:
    """The rank of each id: numbers by size, other ids by their text."""
    numeric = all(isinstance(one, int | float) for one in ids)
    return np.argsort(sorted(range(len(ids)), key=(lambda i: ids[i]) if numeric else (lambda i: str(ids[i]))))


# ---------------------------------------------------------------- rows


def _row_by_row(frame: Frame, task: Task | None, about: Stated) -> LoggedEpisodes:
    """The rows themselves, checked in the order of the table, then sorted."""
    pieces = _fetched(frame.table.select(*frame.roles, *frame.flags), (*frame.roles, *frame.flags))
    number = np.arange(1, len(pieces["reward"]) + 1)  # of the row in the table
    if EXIT in pieces:
        number = number[whole(pieces.pop(EXIT)) == 0]
        pieces = {role: _taken(column, number - 1) for role, column in pieces.items()}
    listed = (role for role in ("reward", *PROBABILITIES) if role in pieces)
    columns: dict[str, Any] = {role: numbers(pieces[role], missing=np.nan) for role in listed}
    if not len(number):
        raise InputError("data has no rows; there is nothing to assess")
    if task is not None and "propensity" in columns and "target" not in columns:
        columns["target"] = _targets(frame, task, pieces, number)
    ids, codes = distinct(pieces["episode"]) if "episode" in pieces else ([], None)
    if codes is not None and (at := arrays.first(codes < 0)) is not None:
        raise InputError(f"row {number[at]:,} has no episode; every row needs the id of its episode")
    for wrong, role, rule in _rules(columns, about):
        if (at := arrays.first(wrong)) is not None:
            where = "" if codes is None else f", episode {short(ids[codes[at]])}"
            shown = _written(frame, role) if np.isnan(columns[role][at]) else f"{columns[role][at]:.9g}"
            raise InputError(f"row {number[at]:,}{where}: the {role} is {shown}; {rule}")
    if codes is not None and not about.cut:
        _check_lengths(np.bincount(codes), about.horizon, ids)
    if "order" in pieces:
        order = _sorted(frame, pieces["order"], codes, ids, number)
        columns = {role: column[order] for role, column in columns.items()}
        codes = None if codes is None else codes[order]
    return LoggedEpisodes(codes, **columns, **about._asdict())


def _rules(columns: dict[str, FloatArray], about: Stated) -> Iterator[tuple[BoolArray, str, str]]:
    """Which entries of which column break which rule."""
    for role, column in columns.items():
        right, rule = COLUMNS[role]
        yield ~right(column), role, rule
    if (bound := about.smallest_propensity) is not None and {"propensity", "target"} <= columns.keys():
        for wrong, rule in against_smallest(columns["propensity"], columns["target"], bound):
            yield wrong, "propensity", rule
    if (ends := about.reward_range) is not None and about.on_range == REFUSE:
        rule = f"it is outside reward_range ({ends[0]:g}, {ends[1]:g}); {WIDEN}"
        yield outside(columns["reward"], ends), "reward", rule


def _fetched(table: Table, names: Sequence[str]) -> Batch:
    """The columns of a query, whole."""
    found: dict[str, list[Column]] = {name: [] for name in names}
    for batch in frames.batches(table, MOST_ROWS):
        for name in names:
            found[name].append(frames.owned(batch[name]))
    return {name: frames.joined(parts) for name, parts in found.items()}


def _taken(column: Column, rows: IntArray) -> Column:
    """These rows of a column."""
    return [column[row] for row in rows] if isinstance(column, list) else column.take(rows)


def _written(frame: Frame, role: str) -> str:
    """What stands in the first entry that is not a number."""
    text = f"{role}_text"
    if text not in frame.table.collect_schema().names():
        return "missing"
    found = frames.rows(steps(frame).filter(nw.col(role).is_null()).select(text), 1)
    return short(found[0][text]) if found and found[0][text] not in (None, "") else "missing"


def _targets(frame: Frame, task: Task, pieces: Batch, number: IntArray) -> FloatArray:
    """pi(a|s) of each row, by the policy of the task."""
    at, s, a = _places(frame, task, pieces)
    for role, found in (("s", s), ("a", a)):
        if (row := arrays.first(found < 0)) is not None:
            lookup = at.states if role == "s" else at.actions
            what = f"{role} is {short(entry(pieces[role], row), frame.form)}, unknown to the task"
            add = f"fix the data, or add the {lookup.kind} to the task"
            if found[row] == MISSING:
                binned = role == "s" and ", ".join(frame.binned)
                what = f"no number in column {binned}" if binned else f"{role} is missing"
                add = "fix the data" + (" (only rows in terminal states need no action)" if role == "a" else "")
                add = frames.forgotten_bins(task, frame.binned) or add if role == "s" else add
            raise InputError(f"row {number[row]:,}: {what}; {add}")
    return np.asarray(task.policy[s, a])


def _places(frame: Frame, task: Task, pieces: Batch) -> tuple[Places, IntArray, IntArray]:
    """The state and the action of each row, and where the task has them; the cell if a state has no label."""
    at = places_in(task)
    s, a = (lookup.translated(pieces[role], frame.form)[0] for role, lookup in (("s", at.states), ("a", at.actions)))
    if "cell" in pieces:
        cell = np.nan_to_num(numbers(pieces["cell"], missing=np.nan), nan=MISSING)
        s = np.where(s == MISSING, cell, s).astype(np.int64)
    return at, s, a


def _check_own(frame: Frame, task: Task) -> None:
    """Refuse episodes of another policy: some of their actions are never taken by that of the task."""
    by = ("s", "a", *(("cell",) if "cell" in frame.roles else ()))
    pieces = _fetched(steps(frame).group_by(*by).agg(rows=nw.len()), (*by, "rows"))
    (at, s, a), rows = _places(frame, task, pieces), whole(pieces["rows"])
    never = (s >= 0) & ~np.isin(s, at.free) & (a != MISSING)
    never &= (a < 0) | (task.policy[np.maximum(s, 0), np.maximum(a, 0)] == 0)
    if never.any():
        first = int(np.argmax(np.where(never, rows, 0.0)))
        action, state = (entry(pieces[role], first) for role in ("a", "s"))
        raise InputError(
            f"in {int(rows[never].sum()):,} of {int(rows.sum()):,} rows the action is one that the policy of the task "
            f"never takes, such as {short(action, frame.form)} in {short(state, frame.form)}; {NOT_ITS_OWN}; "
            f"{WEIGH_OR_NOT}"
        )


def _check_lengths(rows: IntArray, horizon: int | None, ids: Sequence[object]) -> None:
    if horizon is not None and (at := arrays.first(rows > horizon)) is not None:
        raise InputError(
            f"episode {short(ids[at])} has {plural(int(rows[at]), 'row')}, and the horizon is {horizon:,}; {LONGER}"
        )


def _sorted(frame: Frame, column: Column, codes: IntArray | None, ids: Sequence[object], number: IntArray) -> IntArray:
    """Rows by their order; in an episode no order comes twice."""
    missing = (
        np.array([value is None for value in column])
        if isinstance(column, list)
        else column.is_null().to_numpy(zero_copy_only=False)
    )
    if (at := arrays.first(missing)) is not None:
        shown = _written(frame, "order")
        rule = f"every row needs a number or a time{dates_in(shown)}"
        raise InputError(f"row {number[at]:,}: the order is {shown}; {rule}")
    keys, _ = frames.sortable([column])
    if codes is not None:
        both = np.lexsort((keys, codes))
        twice = (np.diff(codes[both]) == 0) & (keys[both][1:] == keys[both][:-1])
        if (first := arrays.first(twice)) is not None:
            at = both[first]
            raise InputError(f"episode {short(ids[codes[at]])} has the order {keys[at]} twice; an order comes once")
    return np.asarray(np.argsort(keys, kind="stable"))
