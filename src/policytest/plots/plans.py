"""A plan as a picture: how many samples each method will take, and the lower bound of all tests."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policytest.plots import style
from policytest.plots.style import BLUE, MUTED, VERMILION
from policytest.results.plan import Plan

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def plan(found: Plan, ax: Axes | None = None) -> Axes:
    """The mean number of samples of each method with its range, and the lower bound of all tests.

    An open triangle is a lower bound, since simulated runs were cut.
    """
    names = list(found.samples)
    ax = style.axes(ax, height=1.15 + 0.34 * max(len(names), 2))
    ranges = np.array([found.samples[name] for name in names], dtype=float).reshape(-1, 3)
    known = np.isfinite(ranges[:, 0]) & (ranges[:, 0] > 0)
    if not known.any():
        return style.nothing(ax, "no method was simulated")
    rows = np.arange(len(names))
    finite = ranges[np.isfinite(ranges) & (ranges > 0)]
    far = 3.0 * finite.max()
    for row, (mean, low, high) in enumerate(ranges):
        if known[row]:
            cut = names[row] in found.at_least
            ax.plot([max(low, finite.min()), min(high, far)], [row, row], color=MUTED, linewidth=2.2)
            mark, inside, words = (">", "none", "> ") if cut else ("o", BLUE, "")
            ax.plot([mean], [row], mark, color=BLUE, markersize=8, markerfacecolor=inside)
            words += style.few_digits(mean)
            look: style.Look = {"ha": "center", "fontsize": 8, "color": style.INK}
            ax.annotate(words, (mean, row), (0, 7), textcoords="offset points", **look)
    if np.isfinite(found.bound) and found.bound > 0:
        label = f"lower bound: {style.few_digits(found.bound)}"
        ax.axvline(found.bound, color=VERMILION, linestyle="--", linewidth=1.5, label=label)
    ax.set_yticks(rows, [style.short(name, 24) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.7)
    style.log_axis(ax, "x")
    return style.finished(ax, "samples, on average", grid="x")
