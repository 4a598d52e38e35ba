"""The returns of episodes: how they spread, and where their mean lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policytest._base.text import number
from policytest.plots import style
from policytest.plots.style import BLUE, INK, SKY, VERMILION
from policytest.results.estimate import Estimate
from policytest.results.sentences import sure
from policytest.results.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def returns(result: Verdict | Estimate, ax: Axes | None = None) -> Axes:
    """A histogram of the returns, with the interval for their mean, the estimate of it, and the threshold."""
    ax = style.axes(ax)
    paired = getattr(result, "about", "value") == "difference"
    found = getattr(result.counts, "histogram", None)
    if found is None:
        return style.nothing(ax, "no episodes were run")
    if isinstance(result, Verdict):
        (low, high), middle, bar = result.interval, result.estimate, result.threshold
        words = f"interval for the mean (each end {sure(result.delta)})"
    else:
        (low, high), middle, bar = (result.lower, result.upper), result.value, None
        words = f"interval for the mean ({sure(result.delta)})"
    ax.bar(
        found.edges[:-1],
        found.episodes,
        width=np.diff(found.edges),
        align="edge",
        color=SKY,
        alpha=0.6,
        edgecolor="white",
        linewidth=0.6,
        label="pairs of episodes" if paired else "episodes",
    )
    ax.axvspan(low, high, color=BLUE, alpha=0.18, linewidth=0, label=words)
    name = "estimate" if bar is not None else "middle"
    ax.axvline(middle, color=INK, linewidth=1.5, label=f"{name} {number(middle)}")
    if bar is not None:
        ax.axvline(
            bar,
            color=VERMILION,
            linestyle="--",
            linewidth=1.6,
            label=f"{'margin' if paired else 'threshold'} {number(bar)}",
        )
    if paired:
        return style.finished(ax, "return of A less that of B", "pairs of episodes", "y")
    return style.finished(ax, "return of an episode", "episodes", "y")
