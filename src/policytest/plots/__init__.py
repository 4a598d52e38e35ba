"""Pictures of results. Each function takes ``ax`` and returns it; without one it makes a figure of its own.

    ax = plots.evidence(trace)
    ax.figure.savefig("evidence.pdf")

In a notebook the last line of a cell shows the picture. No pyplot, no screen, nothing global. Colours are told apart by
the colour-blind, and lines by their style as well.
Needs matplotlib.
"""

from __future__ import annotations

from policytest.plots.changes import witness
from policytest.plots.maps import allocation, occupancy
from policytest.plots.plans import plan
from policytest.plots.runs import comparison, estimate, evidence, interval, ladder, returns, selection
from policytest.plots.studies import sample_efficiency, stopping_times, time_against_size
from policytest.plots.trace import Trace

__all__ = [
    "Trace",
    "allocation",
    "comparison",
    "estimate",
    "evidence",
    "interval",
    "ladder",
    "occupancy",
    "plan",
    "returns",
    "sample_efficiency",
    "selection",
    "stopping_times",
    "time_against_size",
    "witness",
]
