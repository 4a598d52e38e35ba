"""Does the package keep its promises on this machine? Seeded runs whose truth is known, in a minute or so.

Checked are: error frequencies at thresholds on the value itself, where they are largest, for each kind of method; that
right answers are given on the paper's instances; that a certificate verifies and a forged one does not; that the
compiled code agrees with NumPy; that a seed fixes a result. One control must be caught: a test that is run with a
larger delta than it states. Alarms are exact binomial tails below one in a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.stats import binom

from policytest._base.table import Row, Shown, Table, to_json
from policytest._base.text import plural, probability
from policytest.data.simulators import TabularSimulator
from policytest.mdp import instances
from policytest.mdp.values import state_values, value
from policytest.methods.betting.run import TDBetting
from policytest.methods.combined import Combined
from policytest.methods.ptst import PTST
from policytest.questions.decide import decide, stopping_times
from policytest.worst_case.projection_free import ProjectionFree

DELTA, ALARM = 0.1, 1e-6
CONTROL_DELTA = 0.6
"""The delta of the control, which states `DELTA`."""
LIMIT = 2_000


@dataclass(frozen=True)
class Finding:
    """One promise: its name, whether it was kept, and what was seen."""

    name: str
    kept: bool
    seen: str


@dataclass(frozen=True)
class Selftest(Shown):
    """All findings; ``kept`` if every promise was."""

    findings: tuple[Finding, ...]

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return all(finding.kept for finding in self.findings)

    @property
    def summary(self) -> Table:
        """The findings as a table."""
        broken = sum(not finding.kept for finding in self.findings)
        title = "Every promise was kept." if self.kept else f"NOT as it should be: {plural(broken, 'promise')} broken."
        rows = (Row(f.name, "kept" if f.kept else "BROKEN", f.seen, f.name, f.kept) for f in self.findings)
        return Table(title, tuple(rows))

    def to_json(self) -> str:
        """The findings as a JSON document."""
        found = [{"name": f.name, "kept": f.kept, "seen": f.seen} for f in self.findings]
        return to_json({"schema": 1, "kept": self.kept, "findings": found})


def selftest(runs: int = 300, seed: int = 0, progress: Callable[[Finding], None] | None = None) -> Selftest:
    """Check everything; ``runs`` is the number of runs for each error frequency. ``progress`` sees each finding."""
    found = []
    for finding in _findings(runs, seed):
        found.append(finding)
        if progress is not None:
            progress(finding)
    return Selftest(tuple(found))


def _findings(runs: int, seed: int) -> Iterator[Finding]:
    yield _agreement()
    yield _same_twice(seed)
    yield _right_answers(seed)
    yield _certificate()
    for name, method in _METHODS.items():
        yield _errors(name, method, runs, seed)
    yield _control(runs, seed)


_METHODS: dict[str, Any] = {
    "delta: the default method": Combined(rule=PTST(solver=ProjectionFree())),
    "delta: betting": TDBetting(),
    "delta: the KL rule": PTST(solver=ProjectionFree()),
}


def wrong_at_the_threshold(method: Any, delta: float, runs: int, seed: int) -> tuple[int, int]:
    """How often "above" and "below" were answered where the value is the threshold: each at most delta of the runs."""
    instance = instances.random(3, 2, 1, discount=0.5)
    sim, threshold = TabularSimulator(instance.kernel), value(instance.task, instance.kernel)
    seeds = np.random.SeedSequence(seed).spawn(runs)
    answers = [
        stopping_times(instance.task, sim, threshold, [delta], method, np.random.default_rng(one), LIMIT).answers[0]
        for one in seeds
    ]
    return answers.count("above"), answers.count("below")


def _tail(wrong: tuple[int, int], runs: int) -> float:
    return float(binom.sf(max(wrong) - 1, runs, DELTA))


def _errors(name: str, method: Any, runs: int, seed: int) -> Finding:
    wrong = wrong_at_the_threshold(method, DELTA, runs, seed)
    seen = f"{wrong[0]} and {wrong[1]} of {plural(runs, 'run')} at the threshold answered, delta {probability(DELTA)}"
    return Finding(name, _tail(wrong, runs) >= ALARM, seen)


def _control(runs: int, seed: int) -> Finding:
    """The alarm must be raised for a test that states a smaller delta than it has."""
    wrong = wrong_at_the_threshold(TDBetting(), CONTROL_DELTA, runs, seed)
    caught = _tail(wrong, runs) < ALARM
    seen = f"{wrong[0]} and {wrong[1]} of {plural(runs, 'run')}, where at most {probability(DELTA)} was stated"
    return Finding("control: a false delta is noticed", caught, seen)


def _right_answers(seed: int) -> Finding:
    """At the paper's threshold, which the value exceeds, and at its mirror image."""
    right, asked = 0, 0
    for n in (2, 3, 5):
        instance = instances.paper(n)
        sim, truth = TabularSimulator(instance.kernel), value(instance.task, instance.kernel)
        for threshold, answer in ((0.0, "above"), (2.0 * truth, "below")):
            right += decide(instance.task, sim, threshold, 1e-6, rng=seed).answer == answer
            asked += 1
    return Finding("answers on the paper's instances", right == asked, f"{right} of {asked} right at delta 1e-06")


def _certificate() -> Finding:
    two = instances.paper(2)
    verdict = decide(two.task, TabularSimulator(two.kernel), 0.0, method=PTST())
    forged = replace(verdict, threshold=value(two.task, two.kernel) - 1e-3)
    kept = verdict.certified and verdict.verify() and not forged.verify()
    return Finding("certificate", kept, "verified anew; with another threshold it is refused")


def _agreement() -> Finding:
    """Compiled values against NumPy's solver."""
    worst = 0.0
    for n in (2, 3, 5):
        task, p = instances.paper(n).task, instances.paper(n).kernel
        P = np.einsum("sa,sax->sx", task.policy, p)
        V = np.linalg.solve(np.eye(n) - task.discount * P, (task.policy * task.rewards).sum(axis=1))
        worst = max(worst, float(np.abs(V - state_values(task, p)).max() / np.abs(V).max()))
    return Finding("compiled code agrees with NumPy", worst < 1e-9, f"values differ by {worst:.1e}, relatively")


def _same_twice(seed: int) -> Finding:
    three = instances.paper(3)
    first, second = (decide(three.task, TabularSimulator(three.kernel), 0.0, rng=seed) for _ in range(2))
    kept = first.samples == second.samples and first.evidence == second.evidence
    return Finding("a seed fixes the result", kept, f"twice {plural(first.samples, 'sample')}")
