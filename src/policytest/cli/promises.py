"""Does the package keep its promises on this machine? Seeded runs whose truth is known, in a minute or so.

Checked are: error frequencies at thresholds on the value itself, where they are largest, for each kind of method; that
right answers are given on the paper's instances; that a certificate verifies and a forged one does not; that the
compiled code agrees with NumPy; that a seed fixes a result. One control must be caught: a test that is run with a
larger delta than it states. Alarms are exact binomial tails below one in a million.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace

import numpy as np
import scipy

from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import plural
from policytest.data.simulators import TabularSimulator
from policytest.mdp import instances
from policytest.mdp.values import state_values, value
from policytest.methods.ptst import PTST
from policytest.methods.run import Method
from policytest.methods.td_betting import TDBetting
from policytest.questions.decide import decide, stopping_times
from policytest.worst_case.projection_free import ProjectionFree

DELTA, ALARM = 0.1, 1e-6
CONTROL_DELTA = 0.6
"""The delta of the control, which states `DELTA`."""
LIMIT = 2_000


@dataclass(frozen=True)
class Promise:
    """One promise: its name, whether it was kept, and what was seen."""

    name: str
    kept: bool
    seen: str


@dataclass(frozen=True)
class Selftest(Shown):
    """All that was checked; ``kept`` if every promise was."""

    findings: tuple[Promise, ...]

    @property
    def kept(self) -> bool:
        """Whether every promise was kept."""
        return all(found.kept for found in self.findings)

    @property
    def summary(self) -> Table:
        """What was checked, as a table."""
        broken = sum(not found.kept for found in self.findings)
        title = "Every promise was kept." if self.kept else f"NOT as it should be: {plural(broken, 'promise')} broken."
        return Table(title, tuple(Row(f.name, "kept" if f.kept else "BROKEN", f.seen) for f in self.findings))

    def data(self) -> Document:
        """What a program reads."""
        return {"kept": self.kept, "findings": [asdict(found) for found in self.findings]}


def selftest(runs: int = 300, seed: int = 0, progress: Callable[[Promise], None] = lambda _: None) -> Selftest:
    """Check everything; ``runs`` is the number of runs for each error frequency. ``progress`` is told each promise."""
    found = []
    for promise in _checked(runs, seed):
        found.append(promise)
        progress(promise)
    return Selftest(tuple(found))


def _checked(runs: int, seed: int) -> Iterator[Promise]:
    yield _agreement()
    yield _same_twice(seed)
    yield _right_answers(seed)
    yield _certificate()
    for name, method in _METHODS.items():
        wrong = wrong_at_the_threshold(method, DELTA, runs, seed)
        seen = f"{wrong[0]} and {wrong[1]} of {plural(runs, 'run')} answered at the threshold, delta {DELTA:g}"
        yield Promise(name, _tail(wrong, runs) >= ALARM, seen)
    wrong = wrong_at_the_threshold(TDBetting(), CONTROL_DELTA, runs, seed)
    seen = f"{wrong[0]} and {wrong[1]} of {plural(runs, 'run')}, where at most {DELTA:g} was stated"
    yield Promise("control: a false delta is noticed", _tail(wrong, runs) < ALARM, seen)


_METHODS: dict[str, Method] = {
    "delta: the default method": TDBetting(),
    "delta: the KL rule": PTST(solver=ProjectionFree()),
}


def wrong_at_the_threshold(method: Method, delta: float, runs: int, seed: int) -> tuple[int, int]:
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
    return float(scipy.stats.binom.sf(max(wrong) - 1, runs, DELTA))


def _right_answers(seed: int) -> Promise:
    """At the paper's threshold, which the value exceeds, and at its mirror image."""
    right, asked = 0, 0
    for n in (2, 3, 5):
        instance = instances.paper(n)
        sim, truth = TabularSimulator(instance.kernel), value(instance.task, instance.kernel)
        for threshold, answer in ((0.0, "above"), (2.0 * truth, "below")):
            right += decide(instance.task, sim, threshold, 1e-6, rng=seed).answer == answer
            asked += 1
    return Promise("answers on the paper's instances", right == asked, f"{right} of {asked} right at delta 1e-06")


def _certificate() -> Promise:
    two = instances.paper(2)
    verdict = decide(two.task, TabularSimulator(two.kernel), 0.0, method=PTST())
    forged = replace(verdict, threshold=value(two.task, two.kernel) - 1e-3)
    kept = verdict.certified and verdict.verify() and not forged.verify()
    return Promise("certificate", kept, "verifies; with another threshold it is refused")


def _agreement() -> Promise:
    """Compiled values against NumPy's solver."""
    worst = 0.0
    for n in (2, 3, 5):
        task, p = instances.paper(n).task, instances.paper(n).kernel
        P = np.einsum("sa,sax->sx", task.policy, p)
        V = np.linalg.solve(np.eye(n) - task.discount * P, (task.policy * task.rewards).sum(axis=1))
        worst = max(worst, float(np.abs(V - state_values(task, p)).max() / np.abs(V).max()))
    return Promise("compiled code agrees with NumPy", worst < 1e-9, f"values differ by {worst:.1e}, relatively")


def _same_twice(seed: int) -> Promise:
    three = instances.paper(3)
    first, second = (decide(three.task, TabularSimulator(three.kernel), 0.0, rng=seed) for _ in range(2))
    kept = first.samples == second.samples and first.evidence == second.evidence
    return Promise("a seed fixes the result", kept, f"twice {plural(first.samples, 'sample')}")
