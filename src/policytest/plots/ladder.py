"""Pictures of a ladder of assumptions: one interval a rung, over the threshold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from policytest.plots import style
from policytest.results.ladder import AssumptionLadder

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def ladder(found: AssumptionLadder, ax: Axes | None = None) -> Axes:
    """The interval of each rung, the strongest assumption on top, and the threshold."""
    ax = style.axes(ax, height=1.2 + 0.35 * len(found.rungs))
    ends = [end for rung in found.rungs for end in (*rung.interval, found.threshold) if np.isfinite(end)]
    ax.set_xlim(style.reach(ends))
    for row, rung in enumerate(found.rungs):
        style.number_line(ax, rung.interval, row, 13, "interval" if row == 0 else None)
    style.threshold_line(ax, found.threshold)
    ax.set_yticks(range(len(found.rungs)), [rung.words for rung in found.rungs])
    ax.set_ylim(len(found.rungs) - 0.4, -0.6)
    return style.finished(ax, "value of the policy", columns=3)
