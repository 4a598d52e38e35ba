"""A plan as a picture: how many samples each method will take, beside what no test can do without."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest.plots import style
from policytest.plots.style import BLUE, FAINT, MUTED, VERMILION


def plan(found: Any, ax: Any = None) -> Any:
    """The mean number of samples of each method with its range, and the lower bound of all tests.

    An open triangle: at least so many, since simulated runs were cut.
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
            ax.plot(
                [mean], [row], ">" if cut else "o", color=BLUE, markersize=8, markerfacecolor="none" if cut else BLUE
            )
            ax.annotate(
                f"{'> ' if cut else ''}{style.few_digits(mean)}", (mean, row), (0, 7), textcoords="offset points",
                ha="center", fontsize=8, color=style.INK,
            )  # fmt: skip
    if np.isfinite(found.bound) and found.bound > 0:
        ax.axvline(
            found.bound, color=VERMILION, linestyle="--", linewidth=1.5,
            label=f"no test needs fewer: {style.few_digits(found.bound)}",
        )  # fmt: skip
    ax.set_xscale("log")
    ax.set_yticks(rows, [style.short(name, 24) for name in names])
    ax.set_ylim(len(names) - 0.4, -0.7)
    style.sparse_log(ax.xaxis)
    ax.grid(axis="x", color=FAINT, linewidth=0.5)
    style.labels(ax, "samples, on average")
    style.legend(ax)
    return ax
