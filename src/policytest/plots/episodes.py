"""The returns of episodes: how they spread, and where their mean lies."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policytest._base.text import number
from policytest.plots import style
from policytest.plots.style import BLUE, INK, SKY
from policytest.results.estimate import Estimate
from policytest.results.sentences import sure
from policytest.results.verdict import Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def returns(result: Verdict | Estimate, ax: Axes | None = None) -> Axes:
    """A histogram of the returns, with the interval for their mean, the estimate of it, and the threshold."""
    ax = style.axes(ax)
    found = getattr(result.counts, "histogram", None)
    if found is None:
        return style.nothing(ax, "no episodes were run")
    words, unit = "return of an episode", "episodes"
    if result.about == "difference":
        words, unit = "return of A less that of B", "pairs of episodes"
    left, heights, widths = found.edges[:-1], found.episodes, np.diff(found.edges)
    ax.bar(left, heights, widths, color=SKY, alpha=0.6, edgecolor="white", linewidth=0.6, align="edge", label=unit)
    if isinstance(result, Verdict):
        ends, middle, name, kind = result.interval, result.estimate, "estimate", f"each end {sure(result.delta)}"
    else:
        ends, middle, name, kind = (result.lower, result.upper), result.value, "middle", sure(result.delta)
    ax.axvspan(*ends, color=BLUE, alpha=0.18, linewidth=0, label=f"interval for the mean ({kind})")
    ax.axvline(middle, color=INK, linewidth=1.5, label=f"{name} {number(middle)}")
    if (bar := getattr(result, "threshold", None)) is not None:
        style.threshold_line(ax, bar, result.about)
    return style.finished(ax, words, unit, "y")
