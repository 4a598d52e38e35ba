"""The figure of a study: samples against delta, a panel for each instance, with the lower bounds."""

from __future__ import annotations

import io
import math
from collections.abc import Sequence
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING

from policytest._base import errors
from policytest._base.errors import InputError
from policytest._base.files import write_file
from policytest.plots import style
from policytest.plots.studies import stopping_times
from policytest.study.table import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

CREATOR = "policytest study"
FORMATS: dict[str, dict[str, str | None]] = {
    ".svg": {"Creator": CREATOR, "Date": None},
    ".pdf": {"Creator": CREATOR, "CreationDate": None},
    ".png": {"Software": CREATOR},
}
"""Endings, and what is written into the file: no date, so that the same study gives the same file."""
WIDTH, HEIGHT = 7.0, 4.2  # inches, of a panel


def check_figure(path: str | PathLike[str]) -> None:
    """Refuse a figure that could not be drawn, before the work rather than after it."""
    if Path(path).suffix.lower() not in FORMATS:
        raise InputError(f"{path}: the format is unknown; use a name that ends in {', '.join(FORMATS)}")
    errors.needs("matplotlib", "report")


def draw(study: Study, path: str | PathLike[str]) -> None:
    """Write the figure, in one step; the same study gives the same file."""
    check_figure(path)
    matplotlib = errors.needs("matplotlib", "report")
    names = list(dict.fromkeys(row["instance"] for row in study.table))
    if not names:
        raise InputError("the study has no finished run, so there is nothing to draw")
    figure = errors.needs("matplotlib.figure", "report").Figure(
        figsize=(WIDTH, HEIGHT * len(names)), layout="constrained"
    )
    panels = [study.only(instances=[name]) for name in names]
    axes = figure.subplots(len(names), squeeze=False)[:, 0]
    for ax, name, panel in zip(axes, names, panels, strict=True):
        stopping_times([{**row, "lower_bound": row["best_bound"]} for row in panel.table], ax=ax)
        _uniform_bound(ax, panel)
        ax.set_ylabel(f"{style.escape(name)}: {ax.get_ylabel()}")
    if len({tuple(dict.fromkeys(row["method"] for row in panel.table)) for panel in panels}) == 1:
        _one_legend(figure, axes)
    content, kind = io.BytesIO(), Path(path).suffix.lower()
    with matplotlib.rc_context({"svg.hashsalt": "policytest"}):
        figure.savefig(content, format=kind[1:], metadata=FORMATS[kind], dpi=150)
    write_file(path, content.getbuffer())


def _uniform_bound(ax: Axes, panel: Study) -> None:
    """The lower bound for methods that sample all pairs equally; the one drawn already holds for any sampling."""
    bound = {row["delta"]: row["lower_bound"] for row in panel.table if 0 < row["lower_bound"] < math.inf}
    if bound:
        deltas, values = zip(*sorted(bound.items()), strict=True)
        ax.plot(deltas, values, color="0.5", linestyle=":", linewidth=1.4, label="lower bound, uniform sampling")
        style.legend(ax)


def _one_legend(figure: Figure, axes: Sequence[Axes]) -> None:
    """One legend for all panels, where each has the same lines."""
    for ax in axes:
        if (legend := ax.get_legend()) is not None:
            legend.remove()
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=2, frameon=False)
