"""PTST on values with a horizon: right on both sides, never certified, calibrated at V = R."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import assert_refused, assert_same_verdict

KERNEL = np.array([[[0.5, 0.3, 0.2]], [[0.2, 0.6, 0.2]], [[0.0, 0.0, 1.0]]])
TASK = pt.Task.reaching([2], policy=np.ones((3, 1)), initial=[1.0, 0.0, 0.0], within=4)
V = pt.value(TASK, KERNEL)
SIM = pt.TabularSimulator(KERNEL)


def test_answers_are_right_on_both_sides_and_not_certified():
    assert pytest.approx(1.0 - 0.8**4) == V  # the goal follows either state with probability 0.2
    for R, answer in ((V - 0.25, "above"), (V + 0.25, "below")):
        for allocation in ("uniform", pt.Optimal(KERNEL), pt.Adaptive(), pt.Forward(restart=0.2)):
            found = pt.decide(TASK, SIM, R, method=pt.PTST(allocation=allocation), max_samples=20_000)
            assert (found.answer, found.certified) == (answer, False)
            assert found.certificate is None
            assert pt.value(TASK, found.witness) == pytest.approx(R, abs=1e-7)
            assert "not certified" in str(found)


def test_counts_and_transitions():
    rng = np.random.default_rng(0)
    s, a = rng.integers(2, size=3000), np.zeros(3000, dtype=int)
    log = pt.Transitions(s, a, SIM.draw(s, a, rng))
    counts = log.counts(TASK, 3000)
    assert pt.assess(TASK, counts, V - 0.2).answer == "above"
    assert pt.assess(TASK, log, V + 0.2, method=pt.PTST()).answer == "below"
    found = pt.value_interval(TASK, counts)
    assert V in found
    assert not found.certified
    assert 0.0 < found.width < 0.3
    near = pt.evaluate(TASK, SIM, 0.15, method=pt.PTST())
    assert abs(near.value - V) <= 0.15
    assert not near.certified


def test_a_paused_run_goes_on():
    whole = pt.decide(TASK, SIM, V - 0.2, method=pt.PTST(), rng=1)
    part = pt.decide(TASK, SIM, V - 0.2, method=pt.PTST(), rng=1, max_samples=40)
    assert part.answer is None
    assert_same_verdict(pt.decide(TASK, SIM, V - 0.2, method=pt.PTST(), resume=part), whole)


def test_listed_rewards_with_a_horizon():
    """The reward of the goal, observed: the outcome table asks the same question in twice the steps."""
    paid = pt.Task(pt.Observed(values=[0.0, 1.0]), TASK.policy, TASK.initial, 1.0, terminal=[2], horizon=4)
    sim = pt.TabularSimulator(KERNEL, rewards=lambda s, a, x, rng: (x == 2).astype(float))
    for R, answer in ((V - 0.3, "above"), (V + 0.6, "below")):
        found = pt.decide(paid, sim, R, method=pt.PTST(), max_samples=20_000)
        assert (found.answer, found.certified) == (answer, False)
    law = np.zeros((3, 1, 3, 2))
    law[..., 0], law[:2, :, 2, 1] = KERNEL, KERNEL[:2, :, 2]
    law[:2, :, 2, 0] = 0.0
    assert pt.value(paid, law) == pytest.approx(V)
    for R in (V - 0.3, V + 0.2):  # where rewards are observed more kernels are possible, and no test needs fewer
        known, listed = (
            pt.characteristic_time(TASK, KERNEL, threshold=R),
            pt.characteristic_time(paid, law, threshold=R),
        )
        assert listed.time >= known.time * (1 - 1e-9)
    assert listed.time > 1.02 * known.time


def test_errors_at_the_threshold_are_rare():
    delta, runs = 0.2, 20

    def crossings(sim, side):
        found = [pt.decide(TASK, sim, V, delta, pt.PTST(), rng=seed, max_samples=200).answer for seed in range(runs)]
        return found.count(side)

    assert not any(too_often(crossings(SIM, side), runs, delta) for side in ("above", "below"))
    better = KERNEL.copy()
    better[:2] = [[0.3, 0.2, 0.5]]
    assert too_often(crossings(pt.TabularSimulator(better), "above"), runs, delta)


def test_refused():
    for method in (
        pt.RectangularKL(),
        pt.KLBTS(),
        pt.PTST.as_printed(),
        pt.PTST(solver=pt.NestedPGD()),
    ):
        assert_refused(lambda method=method: pt.decide(TASK, SIM, V, method=method), "horizon", "TDBetting()")
    assert_refused(lambda: pt.decide(TASK, SIM, V, method=pt.PTST(allocation=pt.Forward())), "Forward(restart=")
