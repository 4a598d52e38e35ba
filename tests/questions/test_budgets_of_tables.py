"""Budgets of transitions: bets on rollouts that aim at an answer by the end, beside a z-test and plain bets."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import each
from policytest.eprocess import information
from policytest.methods.run import go_on

LEVEL = math.log(20.0)


def walk_to_goal(up=0.5, n=4):
    """From the middle of a line up or down, to the goal at one end or failure at the other."""
    kernel = np.zeros((n + 1, 1, n + 1))
    for s in range(1, n):
        kernel[s, 0, s + 1], kernel[s, 0, s - 1] = up, 1.0 - up
    kernel[0, 0, 0] = kernel[n, 0, n] = 1.0
    start = np.eye(n + 1)[n // 2]
    task = pt.Task.reaching([n], [0], policy=np.ones((n + 1, 1)), initial=start, support=kernel > 0)
    return task, kernel


def discounted():
    found = pt.instances.random(31, 5, 2, discount=0.9)
    return found.task, found.kernel


def in_steps():
    found = pt.instances.random(7, 6, 2, successors=3, discount=0.9)
    task = found.task
    return pt.Task(task.rewards, task.policy, task.initial, 1.0, task.support, horizon=6), found.kernel


QUESTIONS = {"goal": walk_to_goal, "discounted": discounted, "horizon": in_steps}


def run_of(task, kernel, R, seed, budget=None, most=None, required=LEVEL):
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), R, seed)
    if budget is not None:
        run.aim_at(budget)
    go_on(run, required, most or budget)
    return run


def share_of(answer, *about, runs, **limits):
    return sum(run_of(*about, seed, **limits).answer == answer for seed in range(runs))


@pytest.mark.calibration
def test_a_budget_is_used_about_as_well_as_by_a_test_at_its_end():
    """Paths to the goal or not, in a chain where each takes 4 steps on average: beside the z-test, and plain bets."""
    task, kernel = walk_to_goal(0.55)
    p, R, N, runs = pt.value(task, kernel), 0.5, 1100, 60
    z = math.sqrt(N / 4.0 / (p * (1 - p))) * (p - R) - 1.645
    aimed = share_of("above", task, kernel, R, budget=N, runs=runs)
    plain = share_of("above", task, kernel, R, most=N, runs=runs)
    best = 0.5 * math.erfc(-z / math.sqrt(2.0))
    assert aimed / runs > best - 0.15
    assert aimed > plain + 0.1 * runs


@each("name", QUESTIONS)
def test_errors_are_at_most_delta(name):
    task, kernel = QUESTIONS[name]()
    R, runs = pt.value(task, kernel), 60
    answers = [run_of(task, kernel, R, seed, 500, required=math.log(10.0)).answer for seed in range(runs)]
    assert not too_often(answers.count("above"), runs, 0.1)
    assert not too_often(answers.count("below"), runs, 0.1)


def test_fractions_that_see_the_outcome_err(monkeypatch):
    """The control: the same bets, which stake nothing where the outcome is a loss."""
    task, kernel = walk_to_goal()
    chosen, runs = information.SampleAim.fractions, 100
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.5, 0)

    def peeking(self, sign, *rest):
        return chosen(self, sign, *rest) * (coming[sign] > 0)

    monkeypatch.setattr(information.SampleAim, "fractions", peeking)
    wrong = 0
    for seed in range(runs):
        coin, aim, capital = np.random.default_rng(seed), information.SampleAim(400), np.array(information.SHARES)
        aim.begin(math.log(10.0), 0, [capital, capital])
        for t in range(400):
            won = float(coin.choice([-0.5, 0.5]))
            coming = {1.0: won}
            capital = capital * (1.0 + aim.fractions(1.0, capital, 1.0, 0.5, t, 1.0) * won / 0.5)
            aim.add(1.0, np.array([won]), 1.0, 0.5)
            if capital.sum() >= 10.0:
                wrong += 1
                break
    assert too_often(wrong, runs, 0.1)
    assert run.answer is None


@each("budget", [60, 2_000])
def test_a_run_stops_at_its_budget(budget):
    task, kernel = walk_to_goal()
    verdict = pt.decide(task, pt.TabularSimulator(kernel), 0.5, delta=1e-4, budget=budget, rng=1)
    assert (verdict.answer, verdict.samples) == (None, budget)
    assert verdict.reason == f"the budget of {budget:,} transitions is used up"
    assert json.loads(verdict.to_json())["provenance"]["budget"] == budget


def test_a_budget_many_times_too_large_costs_little():
    """Its parts aim at earlier answers: 1/256 of it, then 1/16."""
    task, kernel = discounted()
    R = pt.value(task, kernel) - 0.1
    plain = np.mean([run_of(task, kernel, R, seed, most=10**7).samples for seed in range(20)])
    ample = np.mean([run_of(task, kernel, R, seed, budget=int(100 * plain)).samples for seed in range(20)])
    assert ample < 2.5 * plain


@each("name", QUESTIONS)
def test_a_run_that_is_paused_goes_on_as_if_it_had_not_been(name, tmp_path):
    task, kernel = QUESTIONS[name]()
    sim, kept = pt.TabularSimulator(kernel), tmp_path / f"{name}.npz"
    R, limits = pt.value(task, kernel) + 0.05, {"budget": 1500, "rng": 5}
    whole = pt.decide(task, sim, R, **limits)
    part = pt.decide(task, sim, R, **limits, max_samples=311, checkpoint=kept)
    assert (part.answer, part.samples) == (None, 311)
    again = pt.decide(task, sim, R, **limits, resume=kept)
    assert (again.answer, again.samples) == (whole.answer, whole.samples)
    assert again.evidence == pytest.approx(whole.evidence, rel=1e-9)


@each("parallel", [1, 8])
def test_a_run_that_fails_at_its_first_draw_goes_on_from_its_checkpoint(parallel, tmp_path):
    task, kernel = discounted()
    draw, kept = pt.TabularSimulator(kernel).draw, tmp_path / f"{parallel}.npz"
    R, limits = pt.value(task, kernel) - 0.2, {"budget": 1500, "rng": 5, "parallel": parallel}

    def fails(states, actions, rng):
        raise ConnectionError("not there yet")

    with pytest.raises(ConnectionError):
        pt.decide(task, fails, R, **limits, checkpoint=kept)
    again, whole = (pt.decide(task, draw, R, **limits, resume=resume) for resume in (kept, None))
    assert (again.answer, again.samples, again.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_a_run_that_is_stopped_before_its_first_draw_goes_on():
    task, kernel = walk_to_goal(0.55)
    sim, limits = pt.TabularSimulator(kernel), {"budget": 1500, "rng": 5}
    none = pt.decide(task, sim, 0.5, **limits, max_seconds=1e-9)
    assert (none.answer, none.samples) == (None, 0)
    again, whole = (pt.decide(task, sim, 0.5, **limits, resume=kept) for kept in (none, None))
    assert (again.answer, again.samples) == (whole.answer, whole.samples)


def test_a_larger_budget_goes_on_with_the_capital_that_is_left():
    task, kernel = walk_to_goal(0.55)
    sim = pt.TabularSimulator(kernel)
    first = pt.decide(task, sim, 0.5, budget=150, rng=2)
    assert first.answer is None
    more = pt.decide(task, sim, 0.5, budget=20_000, resume=first)
    assert more.answer == "above"
    assert 150 < more.samples < 20_000
    for other in ({}, {"budget": 100}):
        with pytest.raises(pt.InputError, match=r"budget=150, or a larger"):
            pt.decide(task, sim, 0.5, resume=first, **other)
    plain = pt.decide(task, sim, 0.5, max_samples=100)
    with pytest.raises(pt.InputError, match="no budget"):
        pt.decide(task, sim, 0.5, budget=200, resume=plain)


def damaged():
    yield "begun", lambda v: v[:-1]
    yield "begun", lambda v: v * np.nan
    yield "noise", lambda v: v[:1]
    yield "noise", lambda v: v - 1e6
    yield "goals", lambda v: -1.0 - v
    yield "goals", lambda v: v[:, :1]
    yield "aimed", lambda v: v - 1e6


@each(("name", "alter"), damaged())
def test_damaged_aims_are_refused(name, alter):
    task, kernel = walk_to_goal()

    def fresh():
        run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.5, 0)
        run.aim_at(500)
        return run

    run = fresh()
    go_on(run, LEVEL, 200)
    state = run.state()
    fresh().restore(dict(state))
    with pytest.raises(pt.InputError):
        fresh().restore({**state, name: alter(np.array(state[name]))})


def test_comparisons_and_zones_have_a_budget_too():
    task, kernel = walk_to_goal()
    sim = pt.TabularSimulator(kernel)
    assert pt.decide(task, sim, 0.5, indifference=0.2, budget=20_000).answer == "within"
    found = pt.instances.random(31, 5, 2, discount=0.9)
    better = pt.Task(found.task.rewards, np.tile([0.9, 0.1], (5, 1)), found.task.initial, 0.9)
    worse = pt.Task(found.task.rewards, np.tile([0.1, 0.9], (5, 1)), found.task.initial, 0.9)
    sim, right = pt.TabularSimulator(found.kernel), pt.value(better, found.kernel) > pt.value(worse, found.kernel)
    verdict = pt.compare(better, worse, sim, budget=20_000)
    assert verdict.answer == ("above" if right else "below")
    assert pt.compare(better, worse, sim, budget=30).samples == 30


@each("method", [pt.PTST(), pt.MonteCarlo()])
def test_methods_that_do_not_aim_say_so(method):
    task, kernel = discounted()
    with pytest.raises(pt.InputError, match="max_samples"):
        pt.decide(task, pt.TabularSimulator(kernel), threshold=0.0, budget=100, method=method)
