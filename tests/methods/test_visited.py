"""Bets fitted to visited states: their worst sums by enumeration, right verdicts, and resuming."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from policytest._base.compiled import rollouts
from policytest.payoffs import policy_bet, visited
from policytest.payoffs.visited import VisitedBet


@pytest.fixture(autouse=True)
def _all_are_large(monkeypatch):
    """Tasks of any size are treated as large ones; the reference is fitted rarely."""
    monkeypatch.setattr(policy_bet, "MANY_STATES", 0)
    monkeypatch.setattr(visited, "GROWN", 3.0)


def instance(seed, S=30, on_successor=False):
    """A random instance with declared supports, and with rewards on successors if asked for."""
    made = pt.instances.random(seed, S, 3, successors=4, discount=0.9)
    task = made.task
    if on_successor:
        rewards = np.random.default_rng(seed).normal(size=task.support.shape)
        task = pt.Task(rewards, task.policy, task.initial, task.discount, support=task.support)
    return task, made.kernel


def missed(run):
    """The largest violation of B(s) <= min(0, D(s,a,x) + gamma B(x)) over all allowed transitions."""
    plan, rows, gamma = run.plan, run.tally.rows, run.tally.task.discount
    V, base, gain, B = plan.a
    D = plan.sign * (rows.per_entry(base - V[rows.state]) + (gain if len(gain) else 0.0) + gamma * V[rows.successor])
    return max(-(D + gamma * B[rows.successor] - rows.per_entry(B[rows.state])).min(), B.max())


@pytest.mark.parametrize("on_successor", [False, True])
def test_the_worst_sums_hold_for_every_transition_and_advantages_are_centred(on_successor):
    for seed in range(4):
        task, kernel = instance(seed, on_successor=on_successor)
        for off in (0.02, -0.02):
            run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), pt.value(task, kernel) + off, seed)
            policy, used = run.payoff.policies[0], False
            assert isinstance(policy, VisitedBet)
            for _ in range(30):
                run.step(np.inf, 200)
                assert missed(run) <= 0.0, (seed, off, run.samples)
                assert policy.is_centred(run.plan.a.base, 1e-12)
                used = used or bool((run.plan.a.base != policy.centre[run.tally.rows.state]).any())
            assert run.samples > 500
            assert used


def test_the_check_sees_worst_sums_that_are_too_high():
    task, kernel = instance(0)
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), pt.value(task, kernel), 0)
    run.step(np.inf, 500)
    run.plan = run.plan._replace(a=run.plan.a._replace(B=0.9 * run.plan.a.B))
    assert missed(run) > 1e-3


def test_lowest_sums_are_those_of_value_iteration_whatever_the_paths_to_begin_with():
    for seed, sign in ((0, 1.0), (1, -1.0), (2, 1.0)):
        task, _ = instance(seed, on_successor=seed == 2)
        rows, gamma, rng = task.layout.rows, task.discount, np.random.default_rng(seed)
        base, ends = rng.normal(size=len(rows.pair)), rng.normal(size=task.n_states)
        exact, gain = ends.copy(), rows.gain if len(rows.gain) else 0.0
        for _ in range(400):
            best = np.full(task.n_states, np.inf)
            step = sign * (rows.per_entry(base) + gain) + gamma * exact[rows.successor]
            np.minimum.at(best, rows.per_entry(rows.state), step)
            exact = np.minimum(ends, best)
        onward = np.full(task.n_states, -1)
        for _ in range(2):
            found = rollouts.lowest_sums(rows, base, ends, sign, gamma, onward)
            assert (found <= exact + 1e-12).all()
            assert np.abs(found - exact).max() <= 4e-4 * np.abs(exact).max()


def test_verdicts_are_right_and_samples_are_about_those_of_the_fit_to_all_rows(monkeypatch):
    samples = {}
    for many in (0, 10**9):
        monkeypatch.setattr(policy_bet, "MANY_STATES", many)
        samples[many] = []
        for seed in range(6):
            task, kernel = instance(seed, 60)
            value, off = pt.value(task, kernel), pt.state_values(task, kernel).std() * (1 if seed % 2 else -1)
            verdict = pt.decide(task, pt.TabularSimulator(kernel), value - off, rng=seed)
            assert verdict.answer == ("above" if off > 0 else "below")
            assert verdict.certified
            assert verdict.interval[0] <= value <= verdict.interval[1]
            samples[many].append(verdict.samples)
    assert np.log(samples[0]).mean() <= np.log(samples[10**9]).mean() + np.log(1.25)


def test_at_the_threshold_few_runs_answer_and_residuals_that_are_not_centred_are_caught(monkeypatch):
    """V = R: an answer has probability 2 delta at most."""
    task, kernel = instance(3, 12)
    sim, value, runs = pt.TabularSimulator(kernel), pt.value(task, kernel), range(60)

    def answers():
        found = (pt.decide(task, sim, value, delta=0.1, rng=seed, max_samples=1000) for seed in runs)
        return sum(verdict.answer is not None for verdict in found)

    assert answers() <= 28  # more has a probability below 1e-5 for 60 runs of probability 0.2
    planned = VisitedBet.planned

    def shifted(self, V, sign, share):
        found = planned(self, V, sign, share)
        return found._replace(base=found.base + sign * 0.05)

    monkeypatch.setattr(VisitedBet, "planned", shifted)
    assert answers() > 28


def test_a_run_that_is_resumed_is_the_same_run():
    task, kernel = instance(5, 40)
    sim, bar = pt.TabularSimulator(kernel), pt.value(task, kernel) - 0.05
    whole = pt.decide(task, sim, bar, rng=2)
    paused = pt.decide(task, sim, bar, rng=2, max_samples=whole.samples // 2)
    resumed = pt.decide(task, sim, bar, rng=99, resume=paused)
    assert paused.answer is None
    assert (resumed.answer, resumed.samples, resumed.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_kept_advantages_that_the_worst_sums_do_not_allow_are_refused():
    task, kernel = instance(5, 40)
    sim, bar = pt.TabularSimulator(kernel), pt.value(task, kernel)
    run = pt.TDBetting().start(task, sim, bar, 0)
    while run.samples < 900:
        run.step(np.inf, 300)
    kept, fresh = run.state(), pt.TDBetting().start(task, sim, bar, 0)
    fresh.restore(kept)
    assert fresh.plan.L == run.plan.L
    assert (fresh.plan.B == run.plan.B).all()
    for name in ("plan.a.base", "plan.a.V", "payoff.reference_N"):
        with pytest.raises(pt.InputError, match="checkpoint is inconsistent"):
            pt.TDBetting().start(task, sim, bar, 0).restore({**kept, name: kept[name] - run.plan.sign * 5.0})


def test_sweeps_show_that_samples_are_needed_only_inside_the_range():
    for seed in range(5):
        task, _ = instance(seed, on_successor=seed % 2 == 1)
        low, high = pt.value_range(task)
        for bar in np.linspace(low - 0.2, high + 0.2, 25):
            assert not task.layout.surely_reaches(float(bar), 1.0) or bar >= low - 1e-9
            assert not task.layout.surely_reaches(float(bar), -1.0) or bar <= high + 1e-9
        middle = 0.5 * (low + high)
        assert task.layout.surely_reaches(middle, 1.0)
        assert task.layout.surely_reaches(middle, -1.0)


def test_the_estimate_is_the_value_of_the_empirical_kernel():
    task, kernel = instance(6, 50)
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.0, 0)
    run.step(np.inf, 400)
    assert run.estimate == pytest.approx(pt.value(task, run.tally.kernel()), abs=1e-4)


def closed_task(discount):
    """A coin is tossed until it shows heads twice in a row or tails twice; both ends are closed."""
    P = np.zeros((5, 1, 5))
    P[0, 0, [1, 2]], P[1, 0, [2, 3]], P[2, 0, [1, 4]] = 0.5, 0.5, 0.5
    P[3, 0, 3] = P[4, 0, 4] = 1.0
    rewards = np.zeros((5, 1, 5))
    rewards[1, 0, 3] = 1.0
    return pt.Task(rewards, np.ones((5, 1)), [1.0, 0, 0, 0, 0], discount, support=P > 0, terminal=[3, 4]), P


@pytest.mark.parametrize("many", [0, 10**9])
def test_close_to_discount_1_rollouts_end_in_closed_states_and_steps_do_not_grow(many, monkeypatch):
    monkeypatch.setattr(policy_bet, "MANY_STATES", many)
    for discount, ends in ((0.99999, True), (0.999, True), (0.9, False)):
        task, kernel = closed_task(discount)
        value = pt.value(task, kernel)
        run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), value - 0.1, 0)
        steps, record = [], run.pool.record
        monkeypatch.setattr(run.pool, "record", lambda *of, s=steps, r=record: (s.append(len(of[0])), r(*of)))
        while run.answer is None:
            run.step(3.0, 10_000)
            assert (run.plan.a.B[[3, 4]] > 0).all() == ends
            assert not ends or np.allclose(run.plan.a.V[[3, 4]] + value - 0.1, 0.0, atol=1e-9)
        assert run.answer == "above"
        assert sum(steps) == run.samples if ends else sum(steps) > run.samples


def test_tasks_of_many_entries_are_fitted_as_large_ones_and_others_are_not(monkeypatch):
    monkeypatch.setattr(policy_bet, "MANY_STATES", 2000)
    task, _ = instance(0)
    assert not policy_bet.is_large(task)
    monkeypatch.setattr(policy_bet, "MANY_ENTRIES", 100)
    assert policy_bet.is_large(task)
    free = pt.Task(task.rewards, task.policy, task.initial, task.discount)
    assert not policy_bet.is_large(free)
