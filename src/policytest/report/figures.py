"""The pictures of a report: those that the result has the numbers for, each with a caption and alt text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import singledispatch
from typing import TYPE_CHECKING

import numpy as np

from policytest import plots
from policytest._base.arrays import IntArray
from policytest._base.text import nats, number
from policytest.mdp.task import Names, Task
from policytest.plots import Trace
from policytest.plots.changes import top_changes, transition
from policytest.plots.studies import BOUNDS, TableRow, grouped
from policytest.report.svg import inline
from policytest.results import sentences
from policytest.results.estimate import Estimate
from policytest.results.plan import Plan
from policytest.results.selection import Selection
from policytest.results.verdict import Verdict
from policytest.study.table import Study

if TYPE_CHECKING:
    from matplotlib.axes import Axes

FEWEST_POINTS = 3  # of a course that is worth a picture
MOST_PANELS = 8  # instances of a study with a picture of their own


@dataclass(frozen=True)
class Figure:
    """One picture: the function that draws it, and its words."""

    key: str
    title: str
    caption: str
    description: str
    draw: Callable[[], Axes]

    def svg(self) -> str:
        """The picture itself."""
        return inline(self.draw(), self.key, self.title, self.description)


@singledispatch
def figures_of(result: object, trace: Trace | None, suppress_below: int) -> Iterator[Figure]:
    """The pictures for this result, the most telling first."""
    return iter(())


@figures_of.register
def _of_verdict(verdict: Verdict, trace: Trace | None, suppress_below: int) -> Iterator[Figure]:
    what, bar = sentences.measured(verdict), "threshold" if verdict.about == "value" else "margin"
    reach = f"{_reach(*verdict.interval)}, the estimate is {number(verdict.estimate)}, the {bar} "
    yield from _returns(verdict, suppress_below)
    yield _place(
        verdict,
        f"The interval for the {what}: {sentences.about_interval(verdict)}.",
        f"{reach}{number(verdict.threshold)}.",
    )
    if (ladder := verdict.ladder) is not None:
        refuted = f"{ladder.words}." if ladder.refuted else "Where two of them are disjoint, the stronger is refuted."
        yield Figure(
            "ladder",
            "What each assumption gives",
            f"The interval for the value by each set of assumptions, the strongest on top. {refuted}",
            "; ".join(f"{rung.words}: {rung.reach}" for rung in ladder.rungs),
            lambda: plots.ladder(ladder),
        )
    if trace is not None and verdict.samples:
        yield from _course(trace.ended(verdict), verdict)
    if changes := top_changes(verdict, suppress_below=suppress_below):
        rows = [
            f"{transition(verdict.task, change)}: observed {change.observed:.3f}, needed {change.needed:.3f}"
            for change in changes
        ]
        yield Figure(
            "witness",
            "What would have to be different" if verdict.answer else "What still speaks for the other side",
            f"Transitions of a world with its {what} on the other side of the {bar}, beside what was observed.",
            "; ".join(rows),
            lambda: plots.witness(verdict, suppress_below=suppress_below),
        )
    yield from _samples(verdict.counts.visits, verdict.task, suppress_below)


def _place(result: Verdict | Estimate, caption: str, reach: str) -> Figure:
    """Where the value lies at the end."""
    title = f"Where the {sentences.measured(result)} lies"
    return Figure("place", title, caption, reach, lambda: plots.estimate(result))


def _returns(result: Verdict | Estimate, suppress_below: int) -> Iterator[Figure]:
    """The returns of episodes; not where small counts are hidden."""
    found = getattr(result.counts, "histogram", None)
    if found is None or suppress_below > 1:
        return
    what, one = f"{sentences.counted(result.task)}s", "episode"
    title, which = f"The {what} of the episodes", f"episodes have which {what[:-1]}"
    if result.about == "difference":
        title, which = "The differences of the pairs", "pairs of episodes have which difference, A less B"
        what, one = "differences", "pair"
    yield Figure(
        "returns",
        title,
        f"How many {which}. The shaded interval is for their mean, not for a single {one}.",
        f"{number(int(found.episodes.sum()))} {one}s with {what} from {number(float(found.edges[0]))} to "
        f"{number(float(found.edges[-1]))}.",
        lambda: plots.returns(result),
    )


def _reach(low: float, high: float) -> str:
    return f"The interval reaches from {number(low)} to {number(high)}"


def _course(trace: Trace, verdict: Verdict) -> Iterator[Figure]:
    """Evidence and interval along the run."""
    about = sentences.measured(verdict)
    known = np.isfinite(trace.evidence).all(axis=1)
    if known.sum() >= FEWEST_POINTS and verdict.answer != "within":  # which has evidence of its own
        yield Figure(
            "evidence",
            "How the evidence grew",
            f"Evidence is the log of an e-value. The test stops where a side reaches {nats(verdict.required)}.",
            f"At the end, after {number(verdict.samples)} samples, the evidence for above is "
            f"{nats(verdict.evidence[0])}, for below {nats(verdict.evidence[1])}; {nats(verdict.required)} decide.",
            lambda: plots.evidence(trace, about=about),
        )
    yield from _narrowing(trace, verdict.threshold, about, sentences.one_sided(verdict.delta))


def _narrowing(trace: Trace, threshold: float | None, about: str, kind: str) -> Iterator[Figure]:
    known = trace.intervals[np.isfinite(trace.intervals).all(axis=1)]
    if len(known) < FEWEST_POINTS:
        return
    (low, high), last = known[0], known[-1]
    yield Figure(
        "interval",
        "How the interval narrowed",
        f"{sentences.capital(kind)}: it may be looked at as often as one likes.",
        f"{_reach(low, high)} at first, from {number(last[0])} to {number(last[1])} at the end.",
        lambda: plots.interval(trace, threshold=threshold, about=about),
    )


@figures_of.register
def _of_estimate(found: Estimate, trace: Trace | None, suppress_below: int) -> Iterator[Figure]:
    kind, reach = sentences.two_sided(found.delta), _reach(found.lower, found.upper)
    yield from _returns(found, suppress_below)
    yield _place(found, f"{sentences.capital(kind)}.", f"{reach}, around {number(found.value)}.")
    if trace is not None:
        yield from _narrowing(trace, None, sentences.measured(found), kind)
    yield from _samples(found.counts.visits, Names(found.task.states, found.task.actions), suppress_below)


@figures_of.register
def _of_plan(found: Plan, *_: object) -> Iterator[Figure]:
    if any(math.isfinite(mean) and mean > 0 for mean, _, _ in found.samples.values()):
        yield Figure(
            "methods",
            "How many samples each method takes",
            "Mean samples with their ranges. An open triangle: at least this many, since runs were cut.",
            "; ".join(f"{name}: about {number(mean)}" for name, (mean, _, _) in found.samples.items()),
            lambda: plots.plan(found),
        )
    weights = np.asarray(getattr(found.allocation, "weights", ()))
    if weights.ndim == 2 and weights.size:
        s, a = (int(index) for index in np.unravel_index(int(weights.argmax()), weights.shape))
        names = Names(found.task.states, found.task.actions)
        yield Figure(
            "allocation",
            "Where samples should go",
            "The best allocation at the guess: the share of samples of each pair.",
            f"The largest share, {weights.max():.1%}, is that of {names.place(s, a)}.",
            lambda: plots.allocation(weights, names),
        )


@figures_of.register
def _of_selection(found: Selection, _: object, suppress_below: int) -> Iterator[Figure]:
    values, among = np.asarray(found.values), found.index is not None
    if values.size and np.isfinite(values).all():
        about = "From the fitted model; the answer does not rest on these estimates alone."
        if found.agents:
            about = "From the episodes of each agent; agents are compared within rounds, so that intervals may overlap."
        yield Figure(
            "values",
            "Estimated values" if among else "Estimated values of the states under it",
            about,
            f"The largest of {values.size} values is {number(float(values.max()))}.",
            lambda: plots.selection(found),
        )
    yield from _samples(found.counts.visits, found.names, suppress_below)


@figures_of.register
def _of_study(study: Study, *_: object) -> Iterator[Figure]:
    rows = study.table
    if len({row["delta"] for row in rows}) > 1:
        groups = list(grouped(rows, "instance").values())
        for at, own in enumerate(groups[:MOST_PANELS]):
            yield _against_delta(own, at, len(groups))
    if rows:
        yield Figure(
            "efficiency",
            "Samples of each method",
            "Mean over the runs, with standard errors, at the smallest delta. An open marker: some runs were cut.",
            "The same numbers are in the table below.",
            lambda: plots.sample_efficiency(rows),
        )


def _against_delta(rows: list[TableRow], at: int, of: int) -> Figure:
    """The samples of one instance against delta: a picture for each, so that lines and legend stay few."""
    is_known = any(0 < row[column] < math.inf for row in rows for column in BOUNDS if column in row)
    return Figure(
        f"stopping-{at}",
        "Samples against delta" + (f": {rows[0]['instance']}" if of > 1 else ""),
        "Mean over the runs, with standard errors" + (", and the lower bound of all tests." if is_known else "."),
        "The same numbers are in the table below.",
        lambda: plots.stopping_times(rows),
    )


def _samples(visits: IntArray, task: Task | Names, suppress_below: int) -> Iterator[Figure]:
    """Where the samples came from."""
    if visits.ndim != 2 or not visits.sum():
        return
    seen, total = int((visits > 0).sum()), visits.size
    hidden = f" “few” stands for 1 to {suppress_below - 1}." if suppress_below > 1 else ""
    yield Figure(
        "samples",
        "Where the samples came from",
        f"Samples of each state (row) and action (column).{hidden}",
        f"{number(seen)} of {number(total)} pairs of state and action were sampled.",
        lambda: plots.allocation(visits, task, suppress_below=suppress_below),
    )
