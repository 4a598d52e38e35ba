"""The course of a run, kept small: its evidence and intervals at sample counts that grow geometrically.

A `Trace` is handed to `decide` as ``progress``, and keeps some of the checks it is called with. Tests are compiled and
may run from the first sample to the last between two checks; `Trace.watch` makes a method pause for the trace, which
changes neither its samples nor its answer:

    trace = Trace()
    verdict = decide(task, sim, method=trace.watch())

Nothing of it goes into a result.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray, IntArray, positive
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.mdp.listed_rewards import Outcomes
from policytest.mdp.task import Task
from policytest.methods.baselines.boxes import RectangularKL
from policytest.methods.kl_run import KLRun
from policytest.methods.listed_rewards import on_outcomes
from policytest.methods.ptst import PTST
from policytest.methods.run import Method, Run, Traits, traits_of
from policytest.methods.td_betting import TDBetting
from policytest.questions.driver import check_of
from policytest.results.estimate import inside
from policytest.results.verdict import Check, Verdict
from policytest.worst_case import nearest_kernel
from policytest.worst_case.projection_free import ProjectionFree

GROWTH, INTERVAL_GROWTH, LARGE_GROWTH = 1.08, 1.3, 2.0
MOST_INTERVALS, FEW_INTERVALS = 60, 8
LARGE, HUGE = 1_000, 10_000  # allowed transitions, from which on points of the KL rules are dear, and too dear


@dataclass(frozen=True)
class Point:
    """One moment of a run. The interval is NaN where it was not computed."""

    samples: int
    evidence: tuple[float, float] = (math.nan, math.nan)
    required: float = math.nan
    estimate: float = math.nan
    interval: tuple[float, float] = (math.nan, math.nan)

    def __post_init__(self) -> None:
        """The estimate lies in the interval, where there is one."""
        object.__setattr__(self, "estimate", inside(self.estimate, self.interval))


class Trace:
    """Points of a run at sample counts that grow by ``growth``, with at most ``intervals`` intervals.

    Also the ``progress`` of `evaluate`, which is called with (samples, lower, upper).

    >>> import policytest as pt
    >>> two, trace = pt.instances.paper(2), Trace()
    >>> verdict = pt.decide(two.task, pt.TabularSimulator(two.kernel), 0.0, method=trace.watch(), progress=trace)
    >>> bool(trace.samples[-1] == verdict.samples and (np.diff(trace.samples) > 0).all())
    True
    """

    def __init__(self, growth: float = GROWTH, intervals: int = MOST_INTERVALS) -> None:
        positive(growth=growth - 1.0)
        self.points: list[Point] = []
        self.growth, self.intervals_left = growth, intervals
        self._interval_growth = INTERVAL_GROWTH
        self._next, self._next_interval = 0.0, 0.0

    # ------------------------------------------------------------ recording

    def __call__(self, check: Check | int, lower: float = math.nan, upper: float = math.nan) -> None:
        """Keep this check if it is due; the one that answers always is."""
        if isinstance(check, int | np.integer):
            if self.is_due(int(check)):
                self._add(Point(int(check), estimate=0.5 * (lower + upper), interval=(float(lower), float(upper))))
            return
        if self.is_due(check.samples) or check.answer is not None:
            self._record(check)

    def is_due(self, samples: int) -> bool:
        """Whether a point is due at this sample count."""
        return samples >= self._next

    def wants_interval(self, samples: int, ended: bool = False) -> bool:
        """Whether an interval is due as well."""
        return self.intervals_left > 0 and samples > 0 and (ended or samples >= self._next_interval)

    def few(self) -> None:
        """From now on few points, each with its interval: they are dear."""
        self.intervals_left = min(self.intervals_left, FEW_INTERVALS)
        self.growth = self._interval_growth = max(self.growth, LARGE_GROWTH)

    @property
    def wait(self) -> int:
        """The sample count at which the next point is due."""
        return math.ceil(self._next)

    def _record(self, check: Check, evidence: tuple[float, float] | None = None, interval: bool = True) -> None:
        found = (math.nan, math.nan)
        if interval and self.wants_interval(check.samples, check.answer is not None):
            self.intervals_left -= 1
            self._next_interval = max(self._interval_growth * check.samples, check.samples + 1)
            low, high = check.interval()
            found = float(low), float(high)
        self._add(Point(check.samples, evidence or check.evidence, check.required, check.estimate, found))

    def _add(self, point: Point) -> None:
        if self.points and self.points[-1].samples >= point.samples:
            if self.points[-1].samples > point.samples:
                return  # another run has begun; a trace is of one
            last = self.points.pop()
            if math.isnan(point.interval[0]):
                point = Point(point.samples, point.evidence, point.required, point.estimate, last.interval)
        self.points.append(point)
        self._next = max(self.growth * point.samples, point.samples + 1)

    @classmethod
    def of(cls, checks: Iterable[Check], growth: float = GROWTH, intervals: int = MOST_INTERVALS) -> Trace:
        """From ``checks(...)``, which is exhausted; or from a list of them, which has no intervals any more."""
        trace = cls(growth, 0 if isinstance(checks, list | tuple) else intervals)
        last = None
        for last in checks:
            trace(last)
        if last is not None:
            trace._record(last)
        return trace

    def ended(self, verdict: Verdict) -> Trace:
        """This trace with the verdict as its last point, where that is not there yet."""
        whole = Trace(self.growth, 0)
        whole.points.extend(point for point in self.points if point.samples < verdict.samples)
        alone = bool(whole.points) and math.isnan(whole.points[-1].required)
        evidence = (math.nan, math.nan) if alone else verdict.evidence
        whole._add(Point(verdict.samples, evidence, verdict.required, verdict.estimate, verdict.interval))
        return whole

    def watch(self, method: Method | None = None) -> Method:
        """The method, pausing where this trace wants a point; otherwise as it is. By default that of `decide`."""
        return Watched(TDBetting() if method is None else method, self, method is None)

    # ------------------------------------------------------------ pausing

    def most(self, run: Run, most: int) -> int:
        """How many samples to the next point. Runs that cannot be cut anywhere, and very large ones, are not cut."""
        if not _can_pause(run) or traits_of(run.method).episodes:  # which is looked at after every episode
            return most
        if _entries(run) > LARGE:
            self.few()
        return int(min(most, max(self.wait - run.samples, _first_pause(run) - run.samples, 1)))

    def look(self, run: Run, required: float) -> None:
        """Keep a point where one is due.

        Within a rollout the evidence of betting counts the rest of it at worst. Between its solves the KL rule knows
        only what its witness allows, so its evidence is computed here, from the counts.
        """
        due = run.samples >= _first_pause(run) and self.is_due(run.samples)
        if _can_pause(run) and (run.answer is not None or due):
            open_ptst = run.answer is None and isinstance(run.method, PTST)
            exact = _exact(run) if open_ptst and isinstance(run, KLRun) else None
            self._record(replace(check_of(run, required), samples=run.samples), exact)

    # ------------------------------------------------------------ reading

    def __len__(self) -> int:
        return len(self.points)

    def __iter__(self) -> Iterator[Point]:
        return iter(self.points)

    @property
    def samples(self) -> IntArray:
        """[n] sample counts, increasing."""
        return np.array([point.samples for point in self.points], dtype=np.int64)

    @property
    def evidence(self) -> FloatArray:
        """[n,2] against V <= R and against V >= R, in nats."""
        return np.array([point.evidence for point in self.points], dtype=float).reshape(-1, 2)

    @property
    def required(self) -> float:
        """The evidence that decides; NaN where none was wanted."""
        return self.points[-1].required if self.points else math.nan

    @property
    def estimates(self) -> FloatArray:
        """[n] estimates."""
        return np.array([point.estimate for point in self.points], dtype=float)

    @property
    def intervals(self) -> FloatArray:
        """[n,2] intervals; NaN where none was computed."""
        return np.array([point.interval for point in self.points], dtype=float).reshape(-1, 2)


@dataclass(frozen=True, eq=False)
class Watched:
    """A method whose runs pause where a trace wants a point. The runs are those of the method, and say so.

    ``is_default``: no method was chosen, so that of `Episodes` is the one that they have.
    """

    method: Method
    pause: Trace
    is_default: bool = False

    @property
    def traits(self) -> Traits:
        """Those of the method, with the pauses."""
        return traits_of(self.method)._replace(pause=self.pause, is_default=self.is_default)

    def on_outcomes(self, outcomes: Outcomes) -> Watched:
        """The method for the outcome table of listed rewards; only where `traits` say that it needs one."""
        return replace(self, method=on_outcomes(outcomes, self.method))

    def start(self, task: Task, sim: SimulatorLike, threshold: float, rng: Seed, **zone: Any) -> Run:
        """The test at work on a simulator."""
        return self.method.start(task, sim, threshold, rng, **zone)

    def replay(self, task: Task, threshold: float, source: object, **zone: Any) -> Run:
        """The test at work on recorded transitions."""
        return self.method.replay(task, threshold, source, **zone)

    def describe(self) -> str:
        """The name of the method."""
        return self.method.describe()


def _can_pause(run: Run) -> bool:
    """Whether the run may be stopped and resumed anywhere, and a point of it is not too dear."""
    is_cheap = traits_of(run.method).episodes or isinstance(run.method, PTST | TDBetting | RectangularKL)
    return _entries(run) <= HUGE and is_cheap


def _entries(run: Run) -> int:
    """How many transitions the KL rule searches over; 0 for other rules, whose points cost little."""
    return run.task.layout.n_entries if isinstance(run, KLRun) else 0


def _first_pause(run: Run) -> int:
    """Before every pair was seen the KL ball is everything."""
    return len(run.task.layout.pairs.pair) if isinstance(run, KLRun) else 0


def _exact(run: KLRun) -> tuple[float, float]:
    """(distance to the nearest kernel beyond R) - (dimension term), on the estimate's side, as the search finds it."""
    task, tally, counts = run.task, run.tally, run.tally.counts()
    base, side = -float(tally.dimension()), tally.value()[1]
    if side == 0:
        return base, base
    found = nearest_kernel(task, counts.kernel(task), counts.visits.astype(float), run.threshold, ProjectionFree())
    reached = found.upper + base
    return (reached, base) if side > 0 else (base, reached)
