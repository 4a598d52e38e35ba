"""The paper's figure: stopping times against delta on its three instances, with the lower bound.

Departures: PTST runs with the exact stopping rule instead of the heuristic, which is there for comparison on request;
the other methods of the package are shown beside it; KLB-TS is run in both readings (see `klbts.KLBTS`).

Paper: `fig:stopping_times_comparison`, `app:exp_details`.
"""

from __future__ import annotations

import dataclasses
from typing import NamedTuple

import numpy as np

from policytest._base.text import plural
from policytest.data.simulators import TabularSimulator
from policytest.kl.boundaries import PaperBoundary
from policytest.methods.ptst import PTST
from policytest.questions.decide import decide
from policytest.study.cells import Problem, Sweep, stream
from policytest.study.spec import Description, sweep
from policytest.study.table import Study
from policytest.worst_case import extreme_value
from policytest.worst_case.ball import KLBall
from policytest.worst_case.projection_free import ProjectionFree
from policytest.worst_case.slsqp import SLSQPHeuristic

SIZES = (2, 3, 5)
SEEDS = 30
DELTAS = tuple(float(f"1e-{power}") for power in range(15, 1, -1))
CAP = 200_000_000
"""No run of the figure reaches it: it ends what would go on for ever."""
EXACT, PRINTED = "PTST, paper's boundary, unproved", "PTST as printed"
METHODS: dict[str, Description] = {
    "PTST, paper's boundary": {"method": "PTST", "boundary": "paper"},
    "PTST, mixture": {"method": "PTST"},
    EXACT: {"method": "PTST", "boundary": "paper", "solver": "projection-free"},
    "PTST, mixture, unproved": {"method": "PTST", "solver": "projection-free"},
    "KLB-TS, two policies": {"method": "KLBTS", "policies": 2, "boundary": "paper"},
    "KLB-TS, one policy": {"method": "KLBTS", "boundary": "paper"},
    "TDBetting": {"method": "TDBetting"},
    "KL boxes": {"method": "RectangularKL"},
    "Monte Carlo": {"method": "MonteCarlo"},
}
HEURISTIC_CAP = 2_000
"""The heuristic solves a problem by SLSQP at every sample, so its runs are cut early."""
HEURISTIC = {"method": "PTST.as_printed", "max_samples": HEURISTIC_CAP}
QUICK_CAP, QUICK_SEEDS, QUICK_DELTAS = 100_000, 3, (1e-15, 1e-8, 1e-2)
GAPS, STARTS = 5, 12  # runs on which the heuristic's gap is measured; descents that look for the true minimum
LEFT_OUT = ", unproved"
UNPROVED = (
    '"Unproved" is the exact rule on the best kernel found by descent: when it would stop if proofs were free. '
    "The others wait for a proof."
)


def paper_sweep(seeds: object = None, heuristic: bool = False, quick: bool = False) -> Sweep:
    """The sweep of the figure: three instances, delta from 1e-15 to 1e-2, 30 seeds.

    ``heuristic`` adds the stopping rule of the paper's experiments as printed. ``quick``: two instances, three deltas,
    three seeds and a cap of 100,000 samples, to see that everything works.
    """
    methods = {**METHODS, PRINTED: HEURISTIC} if heuristic else METHODS
    found = sweep(
        {
            "title": "The paper's experiments" + (", quickly" if quick else ""),
            "instances": {f"{n}x{n}": {"paper": n} for n in (SIZES[:2] if quick else SIZES)},
            "methods": methods,
            "deltas": QUICK_DELTAS if quick else DELTAS,
            "seeds": (QUICK_SEEDS if quick else SEEDS) if seeds is None else seeds,
            "max_samples": QUICK_CAP if quick else CAP,
        }
    )
    return dataclasses.replace(found, notes=(UNPROVED,))


class Gap(NamedTuple):
    """At one stop of the heuristic: the value of the estimate, the extreme value it reports, and the one found here.

    ``found`` is the best of several descents: the heuristic misses the extreme value by at least reported - found.
    ``crossed``: a kernel on the other side of the threshold is in the ball, so that stopping was wrong.
    """

    samples: int
    estimate: float
    reported: float
    found: float
    crossed: bool

    @property
    def share(self) -> float:
        """How far the heuristic came, of the way from the estimate to the extreme value found."""
        return (self.estimate - self.reported) / (self.estimate - self.found) if self.estimate != self.found else 1.0


def heuristic_gap(problem: Problem, seed: int, delta: float, max_samples: int = HEURISTIC_CAP) -> Gap | None:
    """What the heuristic's stop on this run rests on; None where it does not stop."""
    task, sim = problem.table, TabularSimulator(problem.kernel)
    rng = stream(problem.name, seed)
    verdict = decide(problem.task, sim, problem.threshold, delta, PTST.as_printed(), rng, max_samples)
    if task is None or verdict.answer is None:
        return None
    counts, t = verdict.counts, verdict.counts.total
    ball = KLBall(counts.kernel(), counts.visits / t, PaperBoundary().level(counts, delta, task) / t)
    sense, sign = ("min", 1) if verdict.answer == "above" else ("max", -1)
    ends = [extreme_value(task, ball, sense, solver) for solver in (SLSQPHeuristic(), ProjectionFree(starts=STARTS))]
    reported, found = (end.upper if sign > 0 else end.lower for end in ends)
    return Gap(verdict.samples, verdict.estimate, reported, found, sign * (found - problem.threshold) <= 0)


def in_figure(study: Study) -> Study:
    """What the figure shows: not the unproved rules, whose lines lie on those of the proved ones."""
    return study.only(
        methods=dict.fromkeys(row["method"] for row in study.table if not row["method"].endswith(LEFT_OUT))
    )


def with_heuristic_notes(study: Study, plan: Sweep) -> Study:
    """The study, with notes on how early the heuristic stops and how far from the extreme value it ends."""
    notes = [note for problem in plan.problems for note in _notes(study, problem, max(plan.deltas))]
    return dataclasses.replace(study, notes=(*study.notes, *notes))


def _notes(study: Study, problem: Problem, delta: float) -> list[str]:
    rows = {(row["method"], row["delta"], row["seed"]): row for row in study.table if row["instance"] == problem.name}
    pairs = [
        (row["samples"], rows[EXACT, at, seed]["samples"])
        for (method, at, seed), row in rows.items()
        if method == PRINTED and row["answer"] is not None and (EXACT, at, seed) in rows
    ]
    if not pairs:
        return []
    printed, exact = np.array(pairs, dtype=np.float64).T
    early = int((printed < exact).sum())
    notes = [
        f"{problem.name}: as printed, the heuristic stops before the exact rule in {early:,} of {len(pairs):,} cases, "
        f"after {printed.mean():,.0f} samples instead of {exact.mean():,.0f} on average."
    ]
    seeds = [seed for method, at, seed in rows if method == PRINTED and at == delta][:GAPS]
    gaps = [gap for gap in (heuristic_gap(problem, seed, delta) for seed in seeds) if gap is not None]
    if gaps:
        crossed = sum(gap.crossed for gap in gaps)
        share = float(np.mean([gap.share for gap in gaps]))
        missed = float(np.mean([abs(gap.reported - gap.found) for gap in gaps]))
        notes.append(
            f"{problem.name}: at delta = {delta:g} its steps go {share:.0%} of the way from the estimate to the "
            f"extreme value over the ball and miss that by {missed:.3g} on average; in {crossed} of "
            f"{plural(len(gaps), 'stop')} the ball still holds a kernel on the other side of the threshold."
        )
    return notes
