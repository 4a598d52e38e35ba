"""Rollouts that serve both sides: the sums of the other side are -S, within its own range."""

from __future__ import annotations

import math

import numpy as np
import pytest

import policytest as pt
from betting_builders import instance, too_often
from policytest.payoffs.fit import Fit


def walk() -> tuple[pt.Task, np.ndarray]:
    """Two steps to a goal, each of which may fail: success has probability 0.64."""
    kernel = np.zeros((4, 1, 4))
    kernel[0, 0, [1, 3]] = kernel[1, 0, [2, 3]] = 0.8, 0.2
    kernel[2, 0, 2] = kernel[3, 0, 3] = 1.0
    return pt.Task.reaching(goal=[2], avoid=[3], policy=np.ones((4, 1)), initial=np.eye(4)[0]), kernel


def started(task, kernel, seed=0, threshold=None):
    ends = pt.value_range(task)
    middle = sum(ends) / 2 if threshold is None else threshold
    return pt.TDBetting().start(task, pt.TabularSimulator(kernel), middle, seed, both_sides=True)


@pytest.mark.parametrize("seed", range(12))
def test_sums_stay_in_both_ranges_and_have_the_right_means(seed: int) -> None:
    task, kernel, _ = instance(seed, gamma=(0.5, 0.9, 0.99)[seed % 3])
    run = started(task, kernel, seed)
    V = pt.value(task, kernel)
    if run.plan.mirrored is None:
        pytest.skip("nothing is unknown")
    while run.samples < 4000:
        run.step(math.inf, 4000 - run.samples)
    gains = []
    for sign, side in zip((1.0, -1.0), run.bets, strict=True):
        for segment in side.segments:
            assert segment.won.min() >= -segment.bet.room * (1.0 + 1e-9)
        assert side.count == run.rollouts
        gains.append(np.concatenate([segment.won for segment in side.segments]) + sign * (run.threshold - V))
    for found in gains:  # the mean of S is at most sign (V - rho.V0)
        assert found.mean() <= 4.5 * found.std() / math.sqrt(len(found)) + 1e-3 * np.abs(found).max()
        assert found.mean() >= -4.5 * found.std() / math.sqrt(len(found)) - 2e-2 * np.abs(found).max()


def test_each_rollout_is_bet_on_twice_and_an_interval_needs_fewer() -> None:
    task, kernel = walk()
    run = started(task, kernel)
    while run.samples < 1000:
        run.step(math.inf, 1000 - run.samples)
    assert run.bets.count == 2 * run.rollouts
    for first, second in zip(run.bets.above.segments, run.bets.below.segments, strict=True):
        assert first.won == pytest.approx(-second.won)  # no weight becomes small here
    twice = pt.evaluate(task, pt.TabularSimulator(kernel), 0.05).samples
    lower, upper = 1.96 * math.sqrt(0.64 * 0.36), 0.05  # a fixed number of rollouts of 1.8 steps, one look
    assert twice < 4 * 1.8 * (lower / upper) ** 2


@pytest.mark.parametrize("claimed", [0.0, 3.0], ids=["as promised", "the control"])
def test_intervals_ever_miss_as_rarely_as_promised(claimed: float) -> None:
    """Capital against the value itself, looked at after every step; the control claims three nats more."""
    task, kernel = walk()
    missed, runs, delta = 0, 40 if claimed else 80, 0.2
    for seed in range(runs):
        run = started(task, kernel, seed)
        found = False
        while run.samples < 1000 and not found:
            run.step(math.inf, 100)
            capital = max(run.refuter(sign).log_capital(sign * (0.64 - run.threshold)) for sign in (1.0, -1.0))
            found = capital + claimed >= math.log(2 / delta)
        missed += found
    assert too_often(missed, runs, delta) == (claimed > 0)


@pytest.mark.parametrize("threshold", [0.64, 0.5])
def test_a_run_with_a_zone_is_resumed_where_it_was(threshold: float) -> None:
    task, kernel = walk()
    settings = {"threshold": threshold, "indifference": 0.05, "rng": 5}
    sim = pt.TabularSimulator(kernel)
    whole = pt.decide(task, sim, **settings)
    part = pt.decide(task, sim, **settings, max_samples=whole.samples // 2)
    again = pt.decide(task, sim, **settings, resume=part)
    assert whole.answer == ("within" if threshold == 0.64 else "above")
    assert (again.samples, again.evidence, again.interval) == (whole.samples, whole.evidence, whole.interval)


def test_while_the_side_is_in_doubt_both_are_bet_on_and_either_may_win(monkeypatch):
    """Plans on the wrong side: the bet of the other one answers, in one call or in many, and as early."""
    task, kernel = walk()
    sim, taken = pt.TabularSimulator(kernel), []
    for wrong in (True, False):
        if wrong:
            monkeypatch.setattr(Fit, "_side", lambda fit, values, progress: -1.0)
        for most in (10_000, 7):
            found = []
            for seed in range(20):
                run = pt.TDBetting().start(task, sim, 0.35, seed)
                while run.answer is None:
                    run.step(math.log(20.0), most)
                assert (run.answer, run.plan.sign) == ("above", -1.0 if wrong else 1.0)
                assert run.evidence()[0] >= math.log(20.0)
                assert run.bets.count > 1.8 * run.rollouts or not wrong
                found.append(run.samples)
            taken.append(found)
        monkeypatch.undo()
    assert taken[0] == taken[1]
    assert taken[2] == taken[3]
    assert np.mean(taken[0]) < 1.5 * np.mean(taken[2])


def test_a_tampered_bet_of_the_other_side_is_refused() -> None:
    task, kernel = walk()
    run = started(task, kernel)
    run.step(math.inf, 100)
    state = run.state()
    started(task, kernel).restore(dict(state))
    state["plan.mirrored"] = np.full_like(state["plan.mirrored"], 1.5)
    with pytest.raises(pt.InputError, match="inconsistent"):
        started(task, kernel).restore(state)
