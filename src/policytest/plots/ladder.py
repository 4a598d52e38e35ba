"""Pictures of a ladder of assumptions: one interval a rung, over the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policytest._base.text import number
from policytest.plots import style
from policytest.plots.style import BLUE, VERMILION
from policytest.results.ladder import AssumptionLadder

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ladder(found: AssumptionLadder, ax: Axes | None = None) -> Axes:
    """The interval of each rung, the strongest assumption on top, and the threshold."""
    ax = style.axes(ax, height=1.2 + 0.35 * len(found.rungs))
    ends = [end for rung in found.rungs for end in (*rung.interval, found.threshold) if np.isfinite(end)]
    room = 0.12 * (max(ends) - min(ends)) or max(abs(ends[0]), 1.0) * 0.1
    left, right = min(ends) - room, max(ends) + room
    for row, rung in enumerate(found.rungs):
        low, high = max(rung.interval[0], left), min(rung.interval[1], right)
        label = "interval" if row == 0 else None
        ax.plot([low, high], [row, row], color=BLUE, linewidth=7, solid_capstyle="butt", alpha=0.45, label=label)
        finite = [end for end in rung.interval if np.isfinite(end)]
        ax.plot(finite, [row] * len(finite), color=BLUE, linestyle="none", marker="|", markersize=13, markeredgewidth=2)
    words = f"threshold {number(found.threshold)}"
    ax.axvline(found.threshold, color=VERMILION, linestyle="--", linewidth=1.6, label=words)
    ax.set_yticks(range(len(found.rungs)), [rung.words for rung in found.rungs])
    ax.set_ylim(len(found.rungs) - 0.4, -0.6)
    ax.set_xlim(left, right)
    return style.finished(ax, "value of the policy", columns=3)
