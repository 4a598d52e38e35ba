"""Pictures of tables over states and actions: where samples went, and where the policy spends its time.

A table of thousands of states is not a picture. Its largest rows are shown and the others summed; a grid is shown as
a grid, large ones in blocks.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, instance, real_array
from policytest._base.errors import InputError
from policytest.mdp.task import Names, Task
from policytest.mdp.values import occupancy as occupancy_of
from policytest.plots import style

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_ROWS, MOST_COLUMNS, MOST_WRITTEN, MOST_BLOCKS = 16, 10, 120, 40


def allocation(
    weights_or_counts: object,
    task: Task | Names | None = None,
    ax: Axes | None = None,
    shape: tuple[int, int] | None = None,
    suppress_below: int = 0,
) -> Axes:
    """How samples are, or should be, shared out over state-action pairs: a heat map of the table [S,A].

    ``weights_or_counts`` is an array, an `Allocation`, or `Counts`. The ``task`` gives names. With ``shape`` = (rows,
    columns) the states are the cells of a grid, row by row, and actions are summed. Counts from 1 to
    ``suppress_below`` - 1 are hidden.
    """
    found = getattr(weights_or_counts, "visits", getattr(weights_or_counts, "weights", weights_or_counts))
    table = real_array("weights_or_counts", found, (None, None))
    if (table < 0).any():
        raise InputError("weights_or_counts has negative entries; pass shares or numbers of samples")
    if task is not None and not isinstance(task, Names):
        instance("task", task, Task)
        if table.shape != task.policy.shape:
            raise InputError(f"weights_or_counts has shape {table.shape}, expected {task.policy.shape} as in task")
    whole = bool((table == np.rint(table)).all() and table.sum() > 1.0)
    words = "samples" if whole else "share of samples"
    return _draw(_arranged(table, hide(table, suppress_below if whole else 0), task, shape), ax, words, whole)


def occupancy(task: Task, kernel: object, ax: Axes | None = None, shape: tuple[int, int] | None = None) -> Axes:
    """Where the policy spends its (discounted) time if the kernel is true: (1-gamma) d(s) pi(a|s), as a heat map."""
    instance("task", task, Task)
    visits = occupancy_of(task, kernel)
    scale = 1.0 - task.discount if task.is_discounted_table else 1.0 / visits.sum()
    table = scale * visits[:, None] * task.policy
    return _draw(_arranged(table, hide(table, 0), task, shape), ax, "share of time", False)


def hide(table: FloatArray, below: int) -> BoolArray:
    """Which counts are not to be shown: 1 to below-1; and where that hides one alone, which the sum would give away,
    the next larger one with it.
    """
    hidden = (table > 0) & (table < below)
    if hidden.sum() == 1 and (table > 0).sum() > 1:
        rest = np.where((table > 0) & ~hidden, table, np.inf)
        hidden.flat[int(np.argmin(rest))] = True
    return np.asarray(hidden)


class _Cells(NamedTuple):
    values: FloatArray  # [rows, columns]
    hidden: BoolArray
    rows: list[str]
    columns: list[str]


def _arranged(table: FloatArray, hidden: BoolArray, task: Task | Names | None, shape: tuple[int, int] | None) -> _Cells:
    """What is drawn of a table: its states on a grid of this shape, or its largest rows and columns."""
    return _largest(table, hidden, task) if shape is None else _grid(table, hidden, shape)


def _draw(cells: _Cells, ax: Axes | None, words: str, whole: bool) -> Axes:
    """The cells as a heat map: with names of rows and columns, or as a grid."""
    is_grid = not cells.rows
    rows, columns = cells.values.shape
    ax = style.axes(ax, height=3.2 if is_grid else 1.1 + 0.23 * max(rows, 4))
    shown, top = np.ma.masked_array(cells.values, cells.hidden), _top(cells)
    mesh = ax.pcolormesh(shown, cmap=style.blues(), vmin=0.0, vmax=top, edgecolors="white", linewidth=0.6)
    ax.invert_yaxis()
    ax.tick_params(length=0)
    for spine in ax.spines.values():
        spine.set_visible(False)
    if is_grid:
        ax.set_aspect("equal")
        ax.set_xticks([])
        ax.set_yticks([])
    else:
        ax.set_yticks(np.arange(rows) + 0.5, cells.rows)
        tilt, side = (35, "right") if max(map(len, cells.columns), default=0) * columns > 36 else (0, "center")
        ax.set_xticks(np.arange(columns) + 0.5, cells.columns, rotation=tilt, ha=side)
        style.labels(ax, "action", "state")
    if cells.values.size <= MOST_WRITTEN:
        _write(ax, cells, whole, top)
    bar = ax.figure.colorbar(mesh, ax=ax, shrink=0.9, pad=0.02, aspect=24)
    bar.outline.set_visible(False)
    bar.ax.tick_params(labelsize=8, colors=style.INK, length=2)
    bar.set_label(words, fontsize=9, color=style.INK)
    if whole:
        bar.ax.locator_params(axis="y", integer=True)
        style.thousands(bar.ax.yaxis)
    return ax


def _top(cells: _Cells) -> float:
    """Where the scale ends: a table of equal numbers is not to look like one of large numbers."""
    seen = np.where(cells.hidden, 0.0, cells.values)
    return max(float(seen.max()), 1.6 * float(seen.mean())) or 1.0


def _write(ax: Axes, cells: _Cells, whole: bool, top: float) -> None:
    """The numbers in the cells, dark on light and light on dark."""
    for (row, column), x in np.ndenumerate(cells.values):
        secret = cells.hidden[row, column]
        words = "few" if secret else style.few_digits(x) if whole else _share(x)
        color = "#ffffff" if not secret and x > 0.62 * top else "#10151a"
        ax.text(column + 0.5, row + 0.5, words, ha="center", va="center", fontsize=8, color=color)


def _share(x: float) -> str:
    return "0" if x == 0 else f"{x:.1%}" if x >= 0.001 else "<0.1%"


def _largest(table: FloatArray, hidden: BoolArray, task: Task | Names | None) -> _Cells:
    """The rows and columns with the largest sums, in their order, and the others summed."""
    states, actions = (task.states, task.actions) if task is not None else (None, None)
    values, secret, rows = _cut(table, hidden, MOST_ROWS, states)
    values, secret, columns = _cut(values.T, secret.T, MOST_COLUMNS, actions)
    return _Cells(values.T, secret.T, rows, columns)


def _cut(
    table: FloatArray, hidden: BoolArray, most: int, names: Sequence[Hashable] | None
) -> tuple[FloatArray, BoolArray, list[str]]:
    if len(table) <= most:
        return table, hidden, [style.name(i, names) for i in range(len(table))]
    kept = np.sort(np.argsort(-table.sum(axis=1), kind="stable")[: most - 1])
    rest = np.setdiff1d(np.arange(len(table)), kept)
    values = np.vstack([table[kept], table[rest].sum(axis=0)])
    secret = np.vstack([hidden[kept], np.zeros(table.shape[1], dtype=bool)])
    return values, secret, [*(style.name(int(i), names) for i in kept), f"{len(rest):,} others"]


def _grid(table: FloatArray, hidden: BoolArray, shape: tuple[int, int]) -> _Cells:
    """States on their grid; a large one in blocks, summed."""
    height, width = (int(side) for side in shape)
    if height * width != len(table):
        raise InputError(f"shape is {(height, width)}, which has {height * width} cells; there are {len(table)} states")
    values, secret = table.sum(axis=1).reshape(height, width), hidden.any(axis=1).reshape(height, width)
    for axis in (0, 1):
        size = values.shape[axis]
        if size > MOST_BLOCKS:
            starts = np.arange(0, size, -(-size // MOST_BLOCKS))
            values = np.add.reduceat(values, starts, axis=axis)
            secret = np.logical_or.reduceat(secret, starts, axis=axis) & (values < np.inf)
    return _Cells(values, secret, [], [])
