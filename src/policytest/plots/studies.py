"""Pictures of studies, from tidy rows: one row a run, with the columns instance, method, delta, seed, samples, cut.

A table may be a list of dicts, a dict of columns, a data frame, or a study that has one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.errors import InputError, needs
from policytest.kl.boundaries import information
from policytest.plots import style
from policytest.plots.style import INK, MUTED, SERIES

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes

TableRow: TypeAlias = dict[str, Any]
"""What a row holds, by the names of its columns; numbers are read by ``float``."""
Key: TypeAlias = tuple[Any, ...]
"""What the rows of a group have in common: what is in the columns by which they are grouped."""
BOUND = "lower bound"
BOUNDS = ("best_bound", "lower_bound", "uniform_bound")
"""Columns with lower bounds on the mean number of samples: of any allocation, or of that of the table."""


def rows_of(table: Any) -> list[TableRow]:
    """The rows of a study, a list of dicts, a dict of columns, or a data frame.

    >>> rows_of({"delta": [0.1, 0.01], "samples": [20, 40]})
    [{'delta': 0.1, 'samples': 20}, {'delta': 0.01, 'samples': 40}]
    """
    if isinstance(table, Mapping):
        columns = {str(name): list(column) for name, column in table.items()}
        lengths = {len(column) for column in columns.values()}
        if len(lengths) > 1:
            raise InputError(f"table has columns of {sorted(lengths)} entries; all columns must have the same length")
        return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    if isinstance(table, list | tuple) and all(isinstance(row, Mapping) for row in table):
        return [dict(row) for row in table]
    for method, arguments in (("to_pylist", ()), ("to_dicts", ()), ("to_dict", ("records",))):
        if hasattr(table, method):
            return list(getattr(table, method)(*arguments))
    for attribute in ("table", "rows"):
        if hasattr(table, attribute):
            inner = getattr(table, attribute)
            return rows_of(inner() if callable(inner) else inner)
    if hasattr(table, "deltas") and hasattr(table, "samples"):  # the stopping times of one run
        pairs = zip(table.deltas, table.samples, table.answers, strict=True)
        return [{"delta": float(d), "samples": int(n), "cut": answer is None} for d, n, answer in pairs]
    raise InputError(f"table is a {type(table).__name__}; pass a list of dicts, a dict of columns, or a study")


def stopping_times(table: object, ax: Axes | None = None, lower_bound: object = None) -> Axes:
    """Mean samples, with standard errors, against delta; both axes logarithmic. The lower bound is drawn in.

    A method has its colour and marker; where there are several instances, each has its line style.

    ``lower_bound`` is T*, or {instance: T*}: the line is T* kl(delta, 1-delta). Without it, a column of `BOUNDS` of the
    table is used, in samples, where there is one. An open marker: some runs were cut, so that the mean is larger.
    """
    ax = style.axes(ax)
    rows = _with(rows_of(table), "delta", "samples")
    if not rows:
        return style.nothing(ax, "there are no runs to show")
    groups = grouped(rows, "instance", "method")
    instances, methods = (list(dict.fromkeys(names)) for names in zip(*groups, strict=True))
    many = len(instances) > 1
    for key, mine in groups.items():
        color, dashes, marker = _series(methods.index(key[1]))
        dashes = _series(instances.index(key[0]))[1] if many else dashes
        deltas, means, errors, cut = _summary(mine, "delta", "samples")
        label = _label(key, many)
        ax.errorbar(deltas, means, errors, color=color, linestyle=dashes, linewidth=1.5, capsize=2.5, label=label)
        for at, inside in ((~cut, color), (cut, "none")):
            if at.any():
                ax.plot(deltas[at], means[at], marker, color=color, markersize=5.5, markerfacecolor=inside)
    _bounds(ax, rows, lower_bound, many)
    ax.set_xscale("log")
    if not ax.xaxis_inverted():
        ax.invert_xaxis()  # to the right it gets harder
    style.log_axis(ax, "y")
    handles = _apart(ax, methods, instances) if many else ()
    return style.finished(ax, "delta, the probability of error", "samples (mean ± s.e.)", "both", handles=handles)


def _series(at: int) -> tuple[str, style.Dashes, str]:
    """Colour, line style and marker of the line at this place."""
    return SERIES[at % len(SERIES)]


def _apart(ax: Axes, methods: Sequence[object], instances: Sequence[object]) -> list[Artist]:
    """The colours of the methods and the styles of the instances, each once: not a line for each of their pairs."""
    line = needs("matplotlib.lines", "report").Line2D
    found = []
    for at, method in enumerate(methods):
        color, _, marker = _series(at)
        found.append(line([], [], color=color, marker=marker, markersize=5.5, label=style.short(str(method), 34)))
    for at, name in enumerate(instances):
        found.append(line([], [], color=MUTED, linestyle=_series(at)[1], label=style.short(str(name), 34)))
    if any(str(one.get_label()).startswith(BOUND) for one in ax.lines):
        found.append(line([], [], color=INK, linewidth=1.0, label=BOUND))
    return found


def _bounds(ax: Axes, rows: list[TableRow], lower_bound: Any, many: bool) -> None:
    """T* kl(delta, 1-delta) for each instance, as far as it is known; of several, in the line style of each."""
    for index, (key, mine) in enumerate(grouped(rows, "instance").items()):
        time = lower_bound.get(key[0]) if isinstance(lower_bound, Mapping) else lower_bound
        column = next((name for name in BOUNDS if all(_is_number(row.get(name)) for row in mine)), None)
        if time is None and column is None:
            continue
        deltas, bound, _, _ = _summary(mine, "delta", column or "delta")
        if time is not None:
            bound = float(time) * np.array([information(-math.log(delta)) for delta in deltas])
        use = np.isfinite(bound) & (bound > 0)
        if use.any():
            dashes, width = (_series(index)[1], 1.0) if many else (":", 1.4)
            name = f"{BOUND}, {style.short(str(key[0]))}" if many else BOUND
            ax.plot(deltas[use], bound[use], color=INK, linestyle=dashes, linewidth=width, label=name)


def sample_efficiency(table: object, ax: Axes | None = None, delta: float | None = None) -> Axes:
    """Mean samples of each method on each instance, at one delta (the smallest unless given): a dot plot, log axis."""
    rows = _with(rows_of(table), "samples")
    deltas = sorted({float(row["delta"]) for row in rows if "delta" in row})
    wanted = deltas[0] if deltas and delta is None else delta
    rows = [row for row in rows if "delta" not in row or math.isclose(float(row["delta"]), float(wanted or 0.0))]
    groups = grouped(rows, "instance")
    ax = style.axes(ax, height=1.3 + 0.34 * max(len(groups), 2))
    if not rows:
        return style.nothing(ax, "there are no runs to show")
    places = {key: place for place, key in enumerate(groups)}
    methods = grouped(rows, "method")
    for index, (key, mine) in enumerate(methods.items()):
        color, _, marker = _series(index)
        shift = 0.5 * (index - 0.5 * (len(methods) - 1)) / max(len(methods), 2)
        look: style.Look = {"color": color, "marker": marker, "markersize": 6, "linestyle": "none"}
        label: str | None = style.short(str(key[0] or ""), 30)
        for instance, own in grouped(mine, "instance").items():
            mean, error = mean_and_error(own, "samples")
            inside = "none" if any(row.get("cut") for row in own) else color
            look |= {"markerfacecolor": inside, "label": label}
            ax.errorbar([mean], [places[instance] + shift], xerr=[error], capsize=2.5, **look)
            label = None
    style.log_axis(ax, "x")
    ax.set_yticks(range(len(groups)), [style.short(str(key[0])) for key in groups])
    ax.set_ylim(len(groups) - 0.4, -0.6)
    at_delta = f", delta = {wanted:g}" if wanted is not None else ""
    return style.finished(ax, f"samples, mean ± standard error{at_delta}", grid="x")


def time_against_size(table: object, ax: Axes | None = None, size: str = "states", time: str = "seconds") -> Axes:
    """How long it takes against how large it is, a line for each method; both axes logarithmic.

    ``size`` and ``time`` are the names of columns; several rows of one size are averaged.
    """
    ax = style.axes(ax)
    rows = _with(rows_of(table), size, time)
    if not rows:
        return style.nothing(ax, "there is nothing to show")
    for index, (key, mine) in enumerate(grouped(rows, "method").items()):
        color, dashes, marker = _series(index)
        sizes, means, errors, _ = _summary(mine, size, time)
        look: style.Look = {"color": color, "linestyle": dashes, "linewidth": 1.5, "marker": marker, "markersize": 5.5}
        ax.errorbar(sizes, means, errors, capsize=2.5, label=_label(key, False), **look)
    style.log_axis(ax, "x")
    style.log_axis(ax, "y")
    return style.finished(ax, size, time, "both")


# ---------------------------------------------------------------- rows


def _with(rows: list[TableRow], *columns: str) -> list[TableRow]:
    """The rows with finite numbers in these columns; a column that no row has is an error."""
    for column in columns:
        if rows and not any(column in row for row in rows):
            raise InputError(f"table has no column {column!r}; it has {', '.join(map(str, rows[0])) or 'none'}")
    return [row for row in rows if all(_is_number(row.get(column)) for column in columns)]


def _is_number(x: Any) -> bool:
    try:
        return math.isfinite(float(x))
    except (TypeError, ValueError):
        return False


def grouped(rows: list[TableRow], *columns: str) -> dict[Key, list[TableRow]]:
    """The rows by what they have in these columns, in order."""
    groups: dict[Key, list[TableRow]] = {}
    for row in rows:
        groups.setdefault(tuple(row.get(column) for column in columns), []).append(row)
    return groups


def _summary(rows: list[TableRow], x: str, y: str) -> tuple[FloatArray, FloatArray, FloatArray, BoolArray]:
    """For each x in order: mean and standard error of y, and whether a run was cut."""
    places = np.unique([float(row[x]) for row in rows])
    groups = [[row for row in rows if float(row[x]) == place] for place in places]
    means, errors = np.array([mean_and_error(mine, y) for mine in groups]).T
    return places, means, errors, np.array([any(bool(row.get("cut")) for row in mine) for mine in groups])


def mean_and_error(rows: list[TableRow], column: str) -> tuple[float, float]:
    """The mean of a column and its standard error, 0 for a single row."""
    numbers = np.array([float(row[column]) for row in rows])
    error = float(numbers.std(ddof=1) / math.sqrt(len(numbers))) if len(numbers) > 1 else 0.0
    return float(numbers.mean()), error


def _label(key: Key, many: bool) -> str | None:
    """The name of a line: its method, with its instance where there are several."""
    parts = [str(part) for part in (reversed(key) if many else key[-1:]) if part is not None]
    return style.short(", ".join(parts), 34) or None
