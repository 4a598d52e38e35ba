"""A run that was stopped any number of times is the run that was never stopped: all it reports is the same."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import policytest as pt
from policytest.questions import driver

TWO = pt.instances.paper(2)
FOUR = pt.instances.random(1, 4, 2)
REPORTED = (
    "answer", "samples", "certified", "evidence", "estimate", "interval", "witness", "lower_bound", "solves",
    "proof_samples", "dimension", "proved", "refuted", "reason",
)  # fmt: skip


class Called(pt.TabularSimulator):
    """Called step by step, as an environment is."""

    replayable = False

    def draw(self, states, actions, rng):
        return super().draw(states, actions, rng)


SIMULATORS = {"table": pt.TabularSimulator, "called": Called}
ZONE = {"threshold": 1.87, "indifference": 0.24, "delta": 0.01}  # the value of FOUR is 1.93
SMALL_ZONE = {"threshold": 0.178, "indifference": 0.125, "delta": 0.01}  # that of TWO is 0.21
NEAR = {"threshold": 1.5, "delta": 0.1, "max_samples": 3_000}
CASES = {
    "combined, zone": (FOUR, pt.Combined(), ZONE),
    "combined, small zone": (TWO, pt.Combined(), SMALL_ZONE),
    "betting, zone": (FOUR, pt.TDBetting(), ZONE),
    "betting, draws, zone": (TWO, pt.TDBetting(draws=3), SMALL_ZONE | {"max_samples": 3000}),
    "combined": (TWO, pt.Combined(), {"threshold": 0.0, "delta": 1e-6}),
    "combined, mostly KL": (TWO, pt.Combined(weight=1e-3), {"threshold": 0.0, "delta": 1e-6}),
    "PTST": (FOUR, pt.PTST(), NEAR),
    "PTST, batches": (TWO, pt.PTST(batch=30), {"threshold": 0.0, "delta": 1e-3}),
    "PTST, forward": (FOUR, pt.PTST(allocation=pt.Forward()), NEAR),
    "PTST, adaptive": (FOUR, pt.PTST(allocation=pt.Adaptive()), NEAR),
    "PTST as printed": (TWO, pt.PTST.as_printed(), {"threshold": 0.0, "max_samples": 30}),
    "KLB-TS": (TWO, pt.KLBTS(), {"threshold": -0.5, "max_samples": 3_000}),
    "boxes": (TWO, pt.RectangularKL(), {"threshold": -0.2, "max_samples": 1_000}),
    "Monte Carlo": (TWO, pt.MonteCarlo(), {"threshold": -0.5, "max_samples": 60_000}),
}


class Killed(KeyboardInterrupt):
    """The end of a process, as far as the run can tell."""


@cache
def uninterrupted(case, kind):
    return run(case, kind)


def run(case, kind, **options):
    instance, method, question = CASES[case]
    sim = SIMULATORS[kind](instance.kernel)
    return pt.decide(instance.task, sim, method=method, rng=3, **question | options)


def assert_same(found, expected):
    for name in REPORTED:
        np.testing.assert_equal(getattr(found, name), getattr(expected, name), err_msg=name)
    assert found.counts == expected.counts


@pytest.mark.parametrize("kind", SIMULATORS)
@pytest.mark.parametrize("case", CASES)
def test_a_run_that_is_killed_many_times(case, kind, tmp_path, monkeypatch):
    """Killed after every few looks, and gone on with from what was on disk a look earlier."""
    monkeypatch.setattr(driver._Saver, "now_and_then", lambda saver: saver.save())
    file, seen = tmp_path / "run.npz", 0

    def kill(check):
        nonlocal seen
        seen += 1
        if seen % 3 == 0:
            raise Killed

    for attempt in range(20):
        try:
            go_on = {"resume": file} if attempt else {}
            found = run(case, kind, checkpoint=file, progress=kill if attempt < 19 else None, **go_on)
        except Killed:
            continue
        break
    assert seen >= 3, "never killed"
    assert_same(found, uninterrupted(case, kind))


@pytest.mark.parametrize("kind", SIMULATORS)
@pytest.mark.parametrize("case", [case for case in CASES if "Monte Carlo" not in case])
def test_a_run_in_small_slices(case, kind):
    """Slices that end anywhere: within a block, a batch, a rollout. A limit may bring a look of KL forward."""
    expected = uninterrupted(case, kind)
    kept, limit = None, 0
    while kept is None or (kept.answer is None and limit < expected.samples):
        limit = min(limit + max(expected.samples // 9, 1), expected.samples)
        kept = run(case, kind, max_samples=limit, resume=kept)
    if kept.samples < expected.samples and not isinstance(CASES[case][1], pt.Combined | pt.TDBetting):
        assert kept.answer == expected.answer
    else:
        assert_same(kept, expected)


@pytest.mark.parametrize("kind", SIMULATORS)
@pytest.mark.parametrize("indifference", [0.0, 0.1])
def test_a_comparison_in_small_slices(kind, indifference):
    """The same for the difference of two policies, with a zone and without."""
    task, sim = FOUR.task, SIMULATORS[kind](FOUR.kernel)
    other = replace(task, policy=task.policy[::-1])
    gap = pt.value(task, FOUR.kernel) - pt.value(other, FOUR.kernel)
    question = {"margin": gap if indifference else gap - 0.1, "indifference": indifference, "rng": 2, "delta": 0.2}
    expected = pt.compare(task, other, sim, **question)
    assert expected.answer == ("within" if indifference else "above")
    kept = None
    for limit in range(97, expected.samples + 97, 97):
        kept = pt.compare(task, other, sim, max_samples=limit, resume=kept, **question)
    assert_same(kept, expected)
