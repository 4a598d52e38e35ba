"""Pictures of one run: how the evidence grew, how the interval narrowed; and of its result: where the value lies."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from policytest._base.text import number
from policytest.plots import style
from policytest.plots.style import BLUE, FAINT, GREEN, INK, MUTED, SKY, VERMILION
from policytest.plots.trace import Trace
from policytest.results.estimate import Estimate, Interval
from policytest.results.ladder import AssumptionLadder
from policytest.results.selection import Selection
from policytest.results.sentences import ONE_SIDED, counted, measured, sure
from policytest.results.verdict import Check, Verdict

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MANY_TIMES = 50.0  # beyond this ratio of the last to the first sample count the axis of an interval is logarithmic


def evidence(trace: Trace | Iterable[Check], ax: Axes | None = None, about: str = "value") -> Axes:
    """The evidence on both sides along a run, in nats, against the level that decides.

    Evidence is the logarithm of an e-value: at log(1/delta) the other side is refuted with error delta. ``about`` is
    "value", "difference" or "mean return".
    """
    trace, ax = _traced(trace), style.axes(ax)
    t, both = trace.samples, trace.evidence
    if not len(t) or np.isnan(both).all():
        return style.nothing(ax, "no evidence was recorded along this run")
    sides = ("better", "not better") if about == "difference" else ("above", "below")
    for column, word, (color, dashes) in zip((0, 1), sides, ((BLUE, "-"), (VERMILION, "--")), strict=True):
        ax.plot(t, both[:, column], color=color, linestyle=dashes, linewidth=1.8, label=f"evidence for “{word}”")
    ax.axhline(trace.required, color=INK, linestyle=":", linewidth=1.3, label=f"decides: {trace.required:.3g} nats")
    finite = both[np.isfinite(both)]
    leading = both[:, int(both[-1, 1] > both[-1, 0])]
    leading = leading[np.isfinite(leading)]
    if len(finite) and len(leading):
        top, low = max(trace.required, leading.max()), min(0.0, leading.min())
        ax.set_ylim(low - 0.08 * (top - low), top + 0.12 * (top - low))
    ax.set_xlim(0, max(int(t[-1]), 1) * 1.02)
    style.few_ticks(ax.xaxis)
    style.thousands(ax.xaxis)
    return style.finished(ax, "samples", "evidence (nats)", "y")


def interval(
    trace: Trace | Iterable[Check], ax: Axes | None = None, threshold: float | None = None, about: str = ""
) -> Axes:
    """The interval for the value along a run, valid at all times at once, and the threshold."""
    trace, ax = _traced(trace), style.axes(ax)
    known = np.isfinite(trace.intervals).all(axis=1) & (trace.samples > 0)
    t, (low, high) = trace.samples[known], trace.intervals[known].T
    if not len(t):
        return style.nothing(ax, "no intervals were recorded along this run")
    what = about or "value"
    ax.fill_between(t, low, high, color=BLUE, alpha=0.22, linewidth=0, label=f"interval for the {what}")
    for end in (low, high):
        ax.plot(t, end, color=BLUE, linewidth=1.1)
    ax.plot(t, np.clip(trace.estimates[known], low, high), color=INK, linewidth=1.3, marker=".", label="estimate")
    if threshold is not None:
        style.threshold_line(ax, threshold, what, 1.4, level=True)
    if t[-1] > MANY_TIMES * t[0]:
        style.log_axis(ax, "x")
    else:
        style.few_ticks(ax.xaxis)
        style.thousands(ax.xaxis)
    return style.finished(ax, "samples", what, "y")


def estimate(result: Verdict | Estimate | Interval, ax: Axes | None = None) -> Axes:
    """Where the value lies: a number line with the interval, the estimate, and the threshold where there is one.

    ``result`` is a `Verdict`, an `Estimate` or an `Interval`; the legend says which interval it is.
    """
    ax = style.axes(ax, height=1.55)
    bar, zone, what, label = None, 0.0, "value", "interval"
    if isinstance(result, Interval):
        low, high, middle = result.lower, result.upper, 0.5 * (result.lower + result.upper)
    elif isinstance(result, Estimate):
        low, high, middle, what = result.lower, result.upper, result.value, measured(result)
        label = f"interval ({sure(result.delta)})"
    else:
        (low, high), middle, what = result.interval, result.estimate, measured(result)
        bar, zone = result.threshold, result.indifference
        kind = f"{'each end ' if result.provenance.interval_kind == ONE_SIDED else ''}{sure(result.delta)}"
        label = "interval" if result.is_known else f"interval ({kind})"
    around = () if bar is None else (bar - zone, bar + zone)
    places = [x for x in (low, high, middle, *around) if np.isfinite(x)]
    if not places:
        return style.nothing(ax, f"nothing is known about the {what}")
    ax.set_xlim(style.reach(places))
    style.number_line(ax, (low, high), 0, 15, label)
    if np.isfinite(middle):
        ax.plot([middle], [0], color=INK, marker="o", markersize=6, linestyle="none", label="estimate")
    if bar is not None and np.isfinite(bar):
        style.threshold_line(ax, bar, what)
    if zone and bar is not None:
        ax.axvspan(bar - zone, bar + zone, color=VERMILION, alpha=0.12, linewidth=0, label=f"± {number(zone)}")
    ax.set_ylim(-1, 1)
    ax.set_yticks([])
    ax.spines["left"].set_visible(False)
    style.few_ticks(ax.xaxis, 6)
    words = {"value": "value of the policy", "difference": "value of policy A less value of policy B"}.get(what, what)
    return style.finished(ax, words, columns=4)


def comparison(verdict: Verdict, ax: Axes | None = None) -> Axes:
    """By how much policy A is better than policy B: the interval for the difference, and the margin."""
    return estimate(verdict, ax)


def returns(result: Verdict | Estimate, ax: Axes | None = None) -> Axes:
    """A histogram of the returns, with the interval for their mean, the estimate of it, and the threshold."""
    ax = style.axes(ax)
    found = getattr(result.counts, "histogram", None)
    if found is None:
        return style.nothing(ax, "no episodes were run")
    what = counted(result.task)
    words, unit = f"{what} of an episode", "episodes"
    if result.about == "difference":
        words, unit = f"{what} of A less that of B", "pairs of episodes"
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


def selection(found: Selection, ax: Axes | None = None, top: int = 20) -> Axes:
    """The estimated values of the policies among which one was chosen, or of the states under the one returned.

    For agents: their mean returns, with intervals.
    """
    values = np.asarray(found.values, dtype=float)
    among = found.index is not None
    chosen = np.argsort(-values, kind="stable")[:top] if among else np.arange(min(top, len(values)))
    ax = style.axes(ax, height=1.0 + 0.24 * max(len(chosen), 2))
    if not len(chosen):
        return style.nothing(ax, "there are no values to show")
    rows, best = np.arange(len(chosen)), np.array([among and int(i) == found.index for i in chosen])
    ax.axvline(0.0, color=FAINT, linewidth=0.8)
    ax.hlines(rows, 0.0, values[chosen], color=MUTED, linewidth=1.2)
    ax.plot(values[chosen][~best], rows[~best], "o", color=BLUE, markersize=6)
    if best.any():
        ax.plot(values[chosen][best], rows[best], "D", color=GREEN, markersize=8, label="the one chosen")
    kind, names = ("policy", None) if among else ("state", found.states)
    words = [f"{kind} {style.name(int(i), names)}" for i in chosen]
    for row, one in enumerate(found.agents[i] for i in chosen if found.agents):
        words[row] = style.escape(style.short(one.name))
        ax.hlines(row, one.lower, one.upper, color=BLUE, linewidth=7, alpha=0.3)
    ax.set_yticks(rows, words)
    ax.invert_yaxis()
    rest = len(values) - len(chosen)
    what = "mean, with its interval" if found.agents else "estimated value"
    return style.finished(ax, what + (f" ({rest:,} more are not shown)" if rest else ""))


def _traced(trace: Trace | Iterable[Check]) -> Trace:
    return trace if isinstance(trace, Trace) else Trace.of(trace)
