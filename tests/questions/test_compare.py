"""Comparing two policies, and selecting one, by betting along coupled rollouts."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import optimize, sparse
from scipy.stats import binom

import policytest as pt
from betting_builders import (
    Enumeration,
    a_policy,
    extreme_kernels,
    optimal,
    rare_reward,
    rollouts,
    shortfall,
    too_often,
    two_tasks,
    with_fractions,
    with_policy,
)
from builders import each
from policytest.methods import stacks
from policytest.methods.td_betting import CoupledBetting
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import maximal_coupling, shared_pool
from policytest.payoffs.known_range import known_difference
from policytest.payoffs.two_policies import two_policies
from policytest.questions import compare as compare_module
from policytest.questions.compare import compare
from policytest.questions.identify import identify
from policytest.questions.identify.deviations import BettingSearch, Candidate
from policytest.questions.logged_policy import BY_THE_STATE, logged_task

TWO = pt.instances.paper(2)
TWO_SIM = pt.TabularSimulator(TWO.kernel)
OTHER = with_policy(TWO.task, TWO.alternative_policy)


@each("seed", range(10))
def test_the_coupling_has_the_two_policies_as_marginals_and_agrees_most(seed):
    rng = np.random.default_rng(seed)
    first, second = a_policy(rng, 4, 3, True), a_policy(rng, 4, 3, True)
    coupling = maximal_coupling(first, second)
    assert coupling.common + coupling.first == pytest.approx(first, abs=1e-15)
    assert coupling.common + coupling.second == pytest.approx(second, abs=1e-15)
    assert (coupling.first * coupling.second == 0).all()
    assert coupling.common == pytest.approx(np.minimum(first, second), abs=1e-15)
    same = maximal_coupling(first, first * (1 + 1e-16))
    assert (same.first == 0).all()
    assert (same.second == 0).all()


# ---------------------------------------------------------------- error probabilities


def mixed_to_a_tie(task, low, high, kernel):
    """The mixture of two policies that is as good as the policy of the task."""

    def of(share):
        mixed = share * high + (1 - share) * low
        return pt.Task(task.rewards, mixed, task.initial, task.discount, task.support, normalise=True)

    goal = pt.value(task, kernel)
    return of(optimize.brentq(lambda share: pt.value(of(share), kernel) - goal, 0.0, 1.0, xtol=1e-15))


def tie(seed, **settings):
    """Two different policies that are as good under the kernel."""
    task, _, kernel, _ = two_tasks(seed, zeros=False, on_successor=False, **settings)
    Q = task.rewards + task.discount * kernel @ pt.state_values(task, kernel)
    best, worst = np.eye(task.n_actions)[Q.argmax(axis=1)], np.eye(task.n_actions)[Q.argmin(axis=1)]
    return task, mixed_to_a_tie(task, worst, best, kernel), kernel


def calibration_cases():
    rare, kernel = rare_reward(2)
    yield "rare", *rare, kernel, 0.0
    yield "mixture", *tie(2, S=3, gamma=0.9, supports=False), 0.0
    yield "three actions", *tie(5, S=2, A=3, gamma=0.5, supports=False), 0.0
    yield "supports", *tie(9, S=4, gamma=0.9), 0.0
    task_a, task_b, kernel, _ = two_tasks(4, S=3, gamma=0.9)
    yield "margin", task_a, task_b, kernel, pt.value(task_a, kernel) - pt.value(task_b, kernel)


@pytest.mark.parametrize("case", list(calibration_cases()), ids=lambda case: case[0])
def test_both_sides_err_at_most_as_often_as_delta_allows(case):
    _, task_a, task_b, kernel, margin = case
    difference = pt.value(task_a, kernel) - pt.value(task_b, kernel)
    assert difference == pytest.approx(margin, abs=1e-12)
    sim, runs, delta = pt.TabularSimulator(kernel), 40, 0.1
    answers = [compare(task_a, task_b, sim, delta, margin, rng=r, max_samples=300).answer for r in range(runs)]
    assert not too_often(answers.count("above"), runs, delta)
    assert not too_often(answers.count("below"), runs, delta)


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("seed", range(12))
def test_right_answers_on_both_sides(seed):
    task_a, task_b, kernel, _ = two_tasks(seed + 40, A=2 + seed % 2)
    known = known_difference(task_a, task_b)
    difference = pt.value(task_a, kernel) - pt.value(task_b, kernel)
    assert known.low - 1e-9 <= difference <= known.high + 1e-9
    if known.high - known.low < 1e-9:
        pytest.skip("one difference")
    for end, answer in ((known.low, "above"), (known.high, "below")):
        margin = difference + 0.5 * (end - difference)
        verdict = compare(task_a, task_b, pt.TabularSimulator(kernel), 1e-4, margin, rng=seed, max_samples=300_000)
        assert verdict.answer == answer
        assert verdict.certified
        assert verdict.p_value <= 1e-4 * 1.001
        assert verdict.counts.total == verdict.samples
        assert verdict.threshold == margin
        assert "policy A" in verdict.method
        assert "policy B" in verdict.method
        assert math.isnan(verdict.lower_bound) or verdict.samples == 0
        assert str(verdict)
        assert json.loads(verdict.to_json())["answer"] == answer


def test_estimates_are_differences():
    inst = pt.instances.paper(3)
    other = with_policy(inst.task, inst.alternative_policy)
    verdict = compare(inst.task, other, pt.TabularSimulator(inst.kernel), margin=-0.3, max_samples=20_000, delta=1e-200)
    model = verdict.counts.kernel()
    assert verdict.answer is None
    assert verdict.estimate == pytest.approx(pt.value(inst.task, model) - pt.value(other, model), abs=1e-9)
    assert verdict.interval[0] < verdict.estimate < verdict.interval[1]


def test_swapping_the_policies_mirrors_the_answer():
    assert compare(TWO.task, OTHER, TWO_SIM).answer == "above"
    assert compare(OTHER, TWO.task, TWO_SIM).answer == "below"
    assert compare(TWO.task, OTHER, TWO_SIM, margin=0.6).answer == "below"


def test_action_costs_can_turn_the_answer():
    dear = pt.Task(TWO.task.rewards - 0.05, TWO.task.policy, TWO.task.initial, 0.9)
    assert compare(dear, OTHER, TWO_SIM).answer == "below"
    assert compare(TWO.task, dear, TWO_SIM, margin=0.4).answer == "above"


@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("offset", [0.0, 1e5])
def test_units_do_not_matter(scale, offset):
    task_a, task_b, kernel, _ = two_tasks(7, S=3, gamma=0.9, on_successor=False)
    known, sim = known_difference(task_a, task_b), pt.TabularSimulator(kernel)
    margin = 0.5 * (pt.value(task_a, kernel) - pt.value(task_b, kernel) + known.low)
    others = [pt.Task(scale * (t.rewards + offset), t.policy, t.initial, 0.9, t.support) for t in (task_a, task_b)]
    mine = compare(task_a, task_b, sim, 0.01, margin, rng=2)
    theirs = compare(*others, sim, 0.01, scale * margin, rng=2)
    assert mine.answer == theirs.answer == "above"
    assert mine.samples == pytest.approx(theirs.samples, rel=0.05)


def test_any_callable_will_do_and_gives_the_samples_it_is_asked_for():
    calls = []

    def draw(states, actions, rng):
        calls.append(len(states))
        return TWO_SIM.draw(states, actions, rng)

    verdict = compare(TWO.task, OTHER, draw)
    assert verdict.answer == "above"
    assert sum(calls) == verdict.samples == verdict.counts.total
    few = compare(TWO.task, OTHER, draw, max_samples=37)
    assert (few.answer, few.samples, few.certified) == (None, 37, False)
    assert "sample limit" in few.reason


def test_a_seed_fixes_the_run_and_max_samples_cuts_it():
    task_a, task_b, kernel = tie(2, S=3, gamma=0.9, supports=False)
    sim = pt.TabularSimulator(kernel)
    first, second = (compare(task_a, task_b, sim, 0.05, rng=3, max_samples=2000) for _ in range(2))
    assert (first.evidence, first.samples) == (second.evidence, second.samples)
    assert compare(task_a, task_b, sim, max_samples=0).samples == 0


def test_sparse_tasks_are_the_dense_ones():
    task_a, task_b, kernel, _ = two_tasks(11, S=4, gamma=0.9, on_successor=False)
    twins = [
        pt.Task(t.rewards, t.policy, t.initial, 0.9, sparse.csr_array(t.support.reshape(8, 4)))
        for t in (task_a, task_b)
    ]
    margin = 0.5 * (pt.value(task_a, kernel) - pt.value(task_b, kernel) + known_difference(task_a, task_b).low)
    first = compare(task_a, task_b, pt.TabularSimulator(kernel), 0.01, margin, rng=1)
    flat = pt.TabularSimulator(sparse.csr_array(kernel.reshape(8, 4)))
    second = compare(*twins, flat, 0.01, margin, rng=1)
    assert (first.answer, first.samples) == (second.answer, second.samples) == ("above", first.samples)
    assert compare(task_a, twins[1], flat, 0.01, margin, rng=1).samples == first.samples


def test_rows_that_list_only_what_was_seen():
    """Many states, any of which may follow: nothing of size S A S is built."""
    rng = np.random.default_rng(0)
    S, A = 400, 2
    x = rng.integers(S, size=(S * A, 3))
    kernel = sparse.csr_array(
        (np.full(3 * S * A, 1 / 3), (np.repeat(np.arange(S * A), 3), x.ravel())), shape=(S * A, S)
    )
    rewards = rng.normal(size=(S, A))
    good, bad = (np.eye(A)[choice(rewards, axis=1)] for choice in (np.argmax, np.argmin))
    tasks = [pt.Task(rewards, 0.5 * p + 0.25, np.full(S, 1 / S), 0.8) for p in (good, bad)]
    pool = shared_pool(tasks, pt.TabularSimulator(kernel), 0)
    assert pool.tally.is_open
    payoff = two_policies(*tasks, 0.0, pool)
    run = TDRun(CoupledBetting(), payoff)
    for _ in range(400):
        if run.answer is None:
            run.step(3.0, 100_000)
    assert run.answer == "above"
    closed = two_policies(*tasks, 0.0, shared_pool(tasks, pt.TabularSimulator(kernel), 0, 10**9))
    for sign in (1.0, -1.0):
        values = rng.normal(size=(2, S))
        plans = [
            found.planned(values, [one.base(V, None, 0.0) for one, V in zip(found.policies, values, strict=True)], sign)
            for found in (payoff, closed)
        ]
        assert pytest.approx(plans[1].B) == plans[0].B
        assert pytest.approx(plans[1].L) == plans[0].L


def test_known_rows_need_no_samples_of_their_own():
    support = np.zeros((3, 2, 3), dtype=bool)
    support[0, :, 1] = support[1, 0, 0] = support[1, 0, 2] = support[1, 1, 2] = support[2, :, 0] = True
    rewards = np.array([[0.0, 0.0], [0.0, 0.0], [1.0, 1.0]])
    tasks = [
        pt.Task(rewards, p, [1.0, 0.0, 0.0], 0.9, support) for p in (np.tile([0, 1.0], (3, 1)), np.full((3, 2), 0.5))
    ]
    kernel = np.where(support, 1.0, 0.0) / support.sum(axis=2, keepdims=True)
    with pytest.warns(pt.AssumptionWarning, match='margin is 0, the least .* only "above" can be answered'):
        verdict = compare(*tasks, pt.TabularSimulator(kernel))
    assert verdict.answer == "above"
    visits = verdict.counts.visits
    assert visits[1, 0] == visits.sum() == verdict.samples > 0


def test_answers_without_samples():
    task, sim = TWO.task, TWO_SIM
    for margin, answer in ((-0.1, "above"), (0.1, "below"), (0.0, None)):
        verdict = compare(task, task, sim, margin=margin)
        assert (verdict.answer, verdict.samples, verdict.estimate) == (answer, 0, 0.0)
        assert verdict.interval == (0.0, 0.0)
        assert bool(verdict.reason) == (answer is None)
        assert verdict.certified == (answer is not None)
    better = pt.Task(task.rewards + 10.0, TWO.alternative_policy, task.initial, 0.9)
    verdict = compare(better, task, sim)
    assert (verdict.answer, verdict.samples, verdict.certified) == ("above", 0, True)
    assert compare(task, better, sim).answer == "below"


def test_policies_that_differ_only_where_nobody_gets():
    support = np.zeros((3, 2, 3), dtype=bool)
    support[:2, :, :2] = support[2] = True
    first = np.array([[0.3, 0.7], [1.0, 0.0], [1.0, 0.0]])
    second = np.array([[0.3, 0.7], [1.0, 0.0], [0.0, 1.0]])
    kernel = np.where(support, 1.0, 0.0) / support.sum(axis=2, keepdims=True)
    for rewards in (np.arange(6.0).reshape(3, 2), np.arange(18.0).reshape(3, 2, 3)):
        tasks = [pt.Task(rewards, p, [0.5, 0.5, 0.0], 0.9, support) for p in (first, second)]
        verdict = compare(*tasks, pt.TabularSimulator(kernel))
        assert (verdict.answer, verdict.samples, verdict.estimate) == (None, 0, 0.0)
    open_tasks = [pt.Task(t.rewards, t.policy, t.initial, 0.9) for t in tasks]
    assert compare(*open_tasks, pt.TabularSimulator(kernel), max_samples=300).samples == 300


def test_observations_outside_the_support_are_refused():
    support = np.array([[[1, 1, 0], [1, 1, 0]]] * 3, dtype=bool)
    tasks = [
        pt.Task(np.arange(6.0).reshape(3, 2), p, [1.0, 0.0, 0.0], 0.9, support) for p in np.eye(2)[:, None].repeat(3, 1)
    ]
    with pytest.raises(pt.InputError, match="support"):
        compare(*tasks, lambda s, a, rng: np.full(len(s), 2))


@each(
    ("changes", "message"),
    [
        ({"initial": [1.0, 0.0]}, "initial"),
        ({"discount": 0.8}, "discount"),
        ({"support": np.ones((2, 2, 2), dtype=bool)}, "support"),
    ],
)
def test_tasks_that_differ_in_more_than_policy_and_rewards(changes, message):
    about = {"initial": TWO.task.initial, "discount": 0.9, "support": None, **changes}
    other = pt.Task(TWO.task.rewards, TWO.alternative_policy, **about)
    with pytest.raises(pt.InputError, match=message):
        compare(TWO.task, other, TWO_SIM)


WRONG = {
    "another task": (TWO.task, pt.instances.paper(3).task, TWO_SIM, {}),
    "no second task": (TWO.task, TWO_SIM, TWO_SIM, {}),
    "no first task": (TWO_SIM, TWO.task, TWO_SIM, {}),
    "no simulator": (TWO.task, OTHER, "x", {}),
    "another simulator": (TWO.task, OTHER, pt.TabularSimulator(pt.instances.paper(3).kernel), {}),
    "states that are none": (TWO.task, OTHER, lambda s, a, rng: np.full(len(s), 7), {}),
    "another method": (TWO.task, OTHER, TWO_SIM, {"method": pt.MonteCarlo()}),
    "delta": (TWO.task, OTHER, TWO_SIM, {"delta": 0.0}),
    "margin": (TWO.task, OTHER, TWO_SIM, {"margin": np.nan}),
    "max_samples": (TWO.task, OTHER, TWO_SIM, {"max_samples": -1}),
    "rng": (TWO.task, OTHER, TWO_SIM, {"rng": "x"}),
}


@each(("task_a", "task_b", "sim", "settings"), WRONG.values())
def test_wrong_arguments_are_refused(task_a, task_b, sim, settings):
    with pytest.raises(pt.InputError):
        compare(task_a, task_b, sim, **settings)
    assert compare(TWO.task, OTHER, TWO_SIM, method=pt.TDBetting()).answer == "above"


# ---------------------------------------------------------------- the best of some


def several(seed, K=5):
    rng = np.random.default_rng(seed)
    rewards, initial = rng.normal(size=(3, 2)), np.full(3, 1 / 3)
    kernel = rng.dirichlet(np.ones(3), size=(3, 2))
    policies = rng.dirichlet(np.ones(2), size=(K, 3))
    values = [pt.value(pt.Task(rewards, p, initial, 0.9), kernel) for p in policies]
    return rewards, initial, kernel, policies, np.array(values)


@pytest.mark.parametrize("seed", [0, 1, 3, 4, 5])
def test_the_best_of_some(seed):
    rewards, initial, kernel, policies, values = several(seed)
    found = identify(
        rewards, initial, 0.9, pt.TabularSimulator(kernel), 1e-3, policies, rng=seed, max_samples=2_000_000
    )
    assert (found.answered, found.certified, found.index) == (True, True, int(values.argmax()))
    assert (found.policy == policies[found.index]).all()
    assert found.counts.total == found.samples
    assert (found.settled, found.questions) == (4, 4)
    assert len(found.values) == 5
    assert "best" in str(found)
    assert json.loads(found.to_json())["index"] == found.index


def test_a_tie_of_the_two_best_is_not_claimed_wrongly():
    rewards, initial, kernel, policies, values = several(1)
    order = np.argsort(values)
    task = pt.Task(rewards, policies[order[-1]], initial, 0.9)
    Q = rewards + 0.9 * kernel @ pt.state_values(task, kernel)
    rival = mixed_to_a_tie(task, np.eye(2)[Q.argmin(axis=1)], np.eye(2)[Q.argmax(axis=1)], kernel).policy
    field = [*policies[order], rival]
    sim, runs, answered, wrong = pt.TabularSimulator(kernel), 15, 0, 0
    for seed in range(runs):
        found = identify(rewards, initial, 0.9, sim, 0.1, field, rng=seed, max_samples=3000)
        answered += found.answered
        wrong += found.answered and found.index not in (4, 5)
        assert found.certified == found.answered
    assert not too_often(wrong, runs, 0.1)
    assert not too_often(answered, runs, 0.2)  # either of the two may be thrown out, each with probability delta


def test_policies_known_to_be_as_good_need_no_samples():
    rewards, initial, kernel, policies, _ = several(2)
    sim = pt.TabularSimulator(kernel)
    found = identify(rewards, initial, 0.9, sim, policies=[policies[0], policies[0]])
    assert (found.answered, found.index, found.samples) == (True, 0, 0)
    assert identify(rewards, initial, 0.9, sim, policies=policies[:1]).answered
    few = identify(rewards, initial, 0.9, sim, 1e-9, policies, max_samples=200)
    assert (few.answered, few.samples, few.certified) == (False, 200, False)
    assert few.reason
    assert str(few).startswith("Undecided")


# ---------------------------------------------------------------- the best of all


@pytest.mark.parametrize("seed", range(12))
def test_the_best_of_all(seed):
    rng = np.random.default_rng(seed)
    S, A, gamma = int(rng.integers(3, 6)), int(rng.integers(2, 4)), (0.5, 0.8, 0.9)[seed % 3]
    rewards = rng.normal(size=(S, A, S) if seed % 4 == 3 else (S, A))
    kernel, initial = rng.dirichlet(np.ones(S), size=(S, A)), rng.dirichlet(np.ones(S))
    actions, Q = optimal(rewards, kernel, gamma)
    if (Q[:, -1] - Q[:, -2]).min() < 0.05:
        pytest.skip("nearly a tie")
    found = identify(rewards, initial, gamma, pt.TabularSimulator(kernel), 1e-3, rng=seed, max_samples=3_000_000)
    assert (found.answered, found.certified, found.index) == (True, True, None)
    assert (found.policy.argmax(axis=1) == actions).all()
    assert found.settled == found.questions == S * (A - 1)
    assert found.counts.total == found.samples
    assert found.values == pytest.approx(Q[:, -1], abs=0.5 * np.abs(Q).max())
    assert "optimal" in str(found)
    assert "samples" in found.to_json()


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("gamma", [0.0, 0.4])
def test_the_mean_of_a_deviation_exactly(seed, gamma):
    """V^pi(s) - Q^pi(s,a) by rollouts that move in turn until they meet; any V0."""
    rng = np.random.default_rng(seed)
    S, A = 2, 2
    support = rng.random((S, A, S)) < 0.8
    support[..., 0] = True
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * support
    kernel /= kernel.sum(axis=2, keepdims=True)
    rewards = rng.normal(size=(S, A, S) if seed % 2 else (S, A))
    sim, task = pt.TabularSimulator(kernel), pt.Task(rewards, np.full((S, A), 0.5), [0.5, 0.5], gamma, support)
    candidate = Candidate(
        task, rng.integers(A, size=S), shared_pool([task], sim, 0, 10**9), np.ones(S, dtype=bool), 3.0
    )
    for _ in range(2):
        candidate.pool.tally.observe(rng.integers(S * A, size=3), np.zeros(3, dtype=np.int64), np.inf)
        candidate.pool.samples += 3
        for s in range(S):
            a = 1 - int(candidate.actions[s])
            run = candidate.test((s, a))
            plan = run._fitted()
            mean = deviation_mean(run, kernel, plan, s, a)
            V = pt.state_values(run.task, kernel)
            on_pairs = run.task.rewards[s, a] if run.task.rewards.ndim == 2 else kernel[s, a] @ run.task.rewards[s, a]
            bound = V[s] - on_pairs - gamma * kernel[s, a] @ V - plan.lead
            assert bound - shortfall(run, kernel, plan) - 1e-8 <= mean <= bound + 1e-8
            candidate.tests.clear()


def deviation_mean(run, kernel, plan, s, a):
    """By enumeration, with residuals written out."""
    task, S = run.task, run.task.n_states
    rewards = task.rewards if task.rewards.ndim == 3 else np.repeat(task.rewards[..., None], S, axis=2)
    V = plan.a.V[:S]
    D = rewards + task.discount * V - V[:, None, None]
    starts = [np.concatenate([D, (rewards[s] + task.discount * V - part.V[S])[None]]) for part in plan.parts]
    walk = Enumeration(run, kernel, plan, [starts[0], -starts[1]], in_turn=True)

    def on(p, earned, weight):
        walk.part(p, S, earned, weight, task.policy[s], np.eye(task.n_actions)[a])

    walk.coin(1.0, 0.0, 1.0, plan.L, plan.B[S], on, walk.finish)
    return walk.rest()


@pytest.mark.parametrize("seed", range(3))
def test_no_deviation_falls_below_its_range(seed):
    rng = np.random.default_rng(seed)
    S, A = 4, 3
    kernel, rewards = rng.dirichlet(np.ones(S), size=(S, A)), rng.normal(size=(S, A))
    task = pt.Task(rewards, np.full((S, A), 1 / A), np.full(S, 1 / S), 0.9)
    for q in (kernel, *extreme_kernels(task, rng, 2)):
        pool = shared_pool([task], pt.TabularSimulator(q), seed, 10**9)
        candidate = Candidate(task, rng.integers(A, size=S), pool, np.ones(S, dtype=bool), np.inf)
        for s, a in candidate.undecided[:4]:
            run = candidate.test((s, a))
            for _ in range(3):
                run.step(np.inf, 50)
            V = pt.state_values(run.task, q)
            gap = V[s] - run.task.rewards[s, a] - 0.9 * q[s, a] @ V
            plan = with_fractions(run, run._fitted())
            sums, _ = rollouts(run, plan, rng.random((100_000, 3)))
            assert sums.min() >= -plan.L - 1e-12 * (1 + plan.L)
            error = sums.mean() + plan.lead - gap
            assert error <= 4.5 * sums.std() / math.sqrt(len(sums)) + 1e-6 * plan.L


def test_deviations_that_make_no_difference_are_settled_at_most_as_often_as_delta_allows():
    """Two actions that are the same under the kernel, which is not known: gap = 0, and the candidate is optimal."""
    rng = np.random.default_rng(3)
    kernel, rewards = (
        rng.dirichlet(np.ones(3), size=(3, 1)).repeat(2, axis=1),
        rng.normal(size=(3, 1)).repeat(2, axis=1),
    )
    task, runs, crossed = pt.Task(rewards, np.full((3, 2), 0.5), np.full(3, 1 / 3), 0.8), 100, 0
    for seed in range(runs):
        pool = shared_pool([task], pt.TabularSimulator(kernel), seed, 10**9)
        run = Candidate(task, np.zeros(3, dtype=np.int64), pool, np.ones(3, dtype=bool), 0.0).test((1, 1))
        while run.answer is None and run.samples < 400:
            run.step(math.log(10), 400 - run.samples)
        crossed += run.answer is not None
    assert not too_often(crossed, runs, 0.1)
    found = identify(rewards, np.full(3, 1 / 3), 0.8, pt.TabularSimulator(kernel), max_samples=1500)
    assert (found.answered, found.samples) == (False, 1500)


def test_a_wrong_first_candidate_is_replaced():
    """The few draws of the exploration mislead about rare successors: candidates change, each with its own delta."""
    kernel = np.array([[[0.97, 0.03], [1.0, 0.0]], [[1.0, 0.0], [1.0, 0.0]]])
    rewards = np.array([[0.0, 0.3], [30.0, 29.0]])
    changed = 0
    for seed in range(20):
        search = BettingSearch(*search_arguments(rewards, kernel, 0.5), 0.05, seed)
        steps = search.go(100_000)
        next(steps)
        first = search.candidate.actions.copy()
        for _ in steps:
            pass
        assert search.answered
        assert (search.candidate.actions == [0, 0]).all()
        changed += (first != [0, 0]).any()
        levels = sorted(c.level for c in search.tried.values())
        shares = [6 / (math.pi * (j + 1)) ** 2 for j in range(len(levels))]
        assert levels == pytest.approx([-math.log(0.05 * share) for share in shares])
    assert changed > 0


def search_arguments(rewards, kernel, gamma):
    S, A = rewards.shape
    return pt.Task(rewards, np.full((S, A), 1 / A), np.full(S, 1 / S), gamma), pt.TabularSimulator(kernel)


def test_deviations_that_ranges_decide_need_no_samples():
    rewards = np.array([[10.0, 0.0], [10.0, 0.0]])
    kernel = np.full((2, 2, 2), 0.5)
    found = identify(rewards, [0.5, 0.5], 0.4, pt.TabularSimulator(kernel))
    assert (found.answered, found.settled, found.questions) == (True, 2, 2)
    assert found.samples == 0
    support = np.zeros((3, 2, 3), dtype=bool)
    support[:, :, 1] = True
    known = identify(np.arange(6.0).reshape(3, 2), [1.0, 0.0, 0.0], 0.9, lambda s, a, rng: s, support=support)
    assert (known.answered, known.samples, known.questions) == (True, 0, 2)  # the third state is never reached
    assert (known.policy[:2, 1] == 1.0).all()


def test_identify_with_supports_sparse_rewards_and_a_callable():
    inst = pt.instances.random(3, 5, 2, successors=2, discount=0.8)
    table = pt.TabularSimulator(inst.kernel)
    actions, Q = optimal(inst.task.rewards, inst.kernel, 0.8)
    assert (Q[:, -1] - Q[:, -2]).min() > 0.02
    on_successor = sparse.csr_array(np.where(inst.task.support, inst.task.rewards[..., None], 0.0).reshape(10, 5))
    flat = sparse.csr_array(inst.task.support.reshape(10, 5))
    for rewards, support in ((inst.task.rewards, inst.task.support), (on_successor, flat)):
        found = identify(rewards, inst.task.initial, 0.8, table, support=support, max_samples=2_000_000)
        assert found.answered
        assert (found.policy.argmax(axis=1) == actions).all()
    called = identify(inst.task.rewards, inst.task.initial, 0.8, table.draw, support=inst.task.support, max_samples=900)
    assert called.samples == called.counts.total <= 900


REWARDS, INITIAL, KERNEL, POLICIES, _ = several(0)


@each(
    "wrong",
    [
        {"delta": 2.0},
        {"discount": 1.0},
        {"initial": INITIAL[:2]},
        {"rewards": REWARDS[0]},
        {"rewards": np.zeros((3, 0))},
        {"policies": []},
        {"policies": 3},
        {"policies": POLICIES[0]},
        {"policies": [POLICIES[0], 2 * POLICIES[1]], "match": r"policies\[1\]"},
        {"policies": [POLICIES[0], POLICIES[1][:2]]},
        {"max_samples": 1.5},
        {"sim": "x"},
        {"sim": lambda s, a, rng: np.full(len(s), 9)},
    ],
)
def test_wrong_arguments_of_identify_are_refused(wrong):
    wrong, sim = dict(wrong), pt.TabularSimulator(KERNEL)
    match = wrong.pop("match", None)
    with pytest.raises(pt.InputError, match=match):
        identify(**{"rewards": REWARDS, "initial": INITIAL, "discount": 0.9, "sim": sim, **wrong})


# ---------------------------------------------------------------- on a log


def logged(seed: int, rows: int = 4000) -> pt.Transitions:
    """One trajectory of the 2-state instance, of uniformly random actions."""
    rng, s, found = np.random.default_rng(seed), 0, []
    for a in rng.integers(0, 2, size=rows):
        x = int(rng.choice(2, p=TWO.kernel[s, a]))
        found.append((s, int(a), x))
        s = x
    return pt.Transitions(*np.array(found).T)


def test_a_log_says_which_policy_is_better():
    """Both signs; the answer falls at a row, estimate and interval rest on all of them."""
    first, second = TWO.task, OTHER
    better = pt.compare(first, second, logged(0))
    assert (better.answer, better.certified, better.about) == ("above", True, "difference")
    assert pt.compare(second, first, logged(0)).answer == "below"
    assert 0 < better.samples < better.counts.total == 4000
    data = logged(0)
    again = pt.compare(
        first, second, pt.Transitions(*(column[: better.samples] for column in (data.s, data.a, data.x)))
    )
    assert (again.answer, again.samples) == ("above", better.samples)
    short = pt.compare(first, second, logged(0, 20))
    assert short.answer is None
    assert "no unused transition left for" in short.reason


@pytest.mark.calibration
def test_policies_that_are_as_good_are_seldom_told_apart_on_a_log(monkeypatch):
    """At an exact tie an answer is wrong: 40 logs at delta = 0.2 a side; the control claims two nats that it lacks."""
    monkeypatch.setattr(compare_module, "replicate_seeds", lambda seed: stacks.replicate_seeds(seed, 2))
    mixed = with_policy(TWO.task, np.full((2, 2), 0.5))
    gap = pt.value(TWO.task, TWO.kernel) - pt.value(mixed, TWO.kernel)
    answers = [pt.compare(TWO.task, mixed, logged(seed, 600), 0.2, margin=gap).answer for seed in range(40)]
    monkeypatch.setattr(stacks, "HALF", -2.0)
    careless = [pt.compare(TWO.task, mixed, logged(seed, 600), 0.2, margin=gap).answer for seed in range(40)]
    most = binom.isf(1e-4, 40, 0.2)
    assert max(answers.count("above"), answers.count("below")) <= most
    assert max(careless.count("above"), careless.count("below")) > most


def test_what_is_for_simulators_is_refused_on_a_log():
    for settings in ({"method": pt.PTST()}, {"max_samples": 5}, {"checkpoint": "run.npz"}):
        with pytest.raises(pt.InputError, match="is for a simulator, and these are recorded transitions"):
            pt.compare(TWO.task, OTHER, logged(0, 20), **settings)
    with pytest.raises(pt.InputError, match=r"data\.s"):
        pt.compare(TWO.task, OTHER, pt.Transitions([5], [0], [0]))


def test_the_best_of_some_policies_on_a_log():
    """As the comparisons at delta/(K-1) say; of policies that are the same, one is as good as the other."""
    data, given = logged(0), [TWO.alternative_policy, TWO.task.policy, np.full((2, 2), 0.5)]
    found = pt.identify(TWO.task.rewards, TWO.task.initial, TWO.task.discount, data, policies=given)
    tasks = [with_policy(TWO.task, policy) for policy in given]
    best = int(np.argmax([pt.value(task, TWO.kernel) for task in tasks]))
    each_one = [pt.compare(tasks[best], tasks[j], data, 0.025).answer for j in range(3) if j != best]
    assert (found.index, found.answered, found.certified, each_one) == (best, True, True, ["above"] * 2)
    np.testing.assert_allclose(found.values, [pt.value(task, found.counts.kernel(task)) for task in tasks])
    twins = pt.identify(TWO.task.rewards, TWO.task.initial, TWO.task.discount, data, policies=given[1:2] * 2)
    assert (twins.answered, twins.settled) == (True, 1)
    short = pt.identify(TWO.task.rewards, TWO.task.initial, TWO.task.discount, logged(0, 30), policies=given[:2])
    assert (short.answered, short.certified, short.reason) == (False, False, "the data do not settle it")
    with pytest.raises(pt.InputError, match="pass policies="):
        pt.identify(TWO.task.rewards, TWO.task.initial, TWO.task.discount, data)


# ---------------------------------------------------------------- the policy of the log


def test_the_logged_policy_is_the_action_frequencies():
    """Computed by hand; uniform over what is available where there are no rows, and the result says so."""
    task = pt.Task(
        np.arange(12).reshape(4, 3) / 12,
        [[1.0, 0.0, 0.0]] * 4,
        [1.0, 0.0, 0.0, 0.0],
        0.5,
        available=[[True] * 3, [True] * 3, [True, True, False], [True] * 3],
        support=[[[True] * 4] * 3] * 3 + [[[False] * 3 + [True]] * 3],
    )
    ends = pt.Task(task.rewards * (np.arange(4) < 3)[:, None], task.policy, task.initial, 0.5, terminal=[3])
    data = pt.Transitions([0, 0, 0, 0, 1], [0, 2, 2, 2, 1], [1, 0, 2, 0, 0])
    found = logged_task(task, data, "policy B")
    assert found.policy[:3].tolist() == [[0.25, 0.0, 0.75], [0.0, 1.0, 0.0], [0.5, 0.5, 0.0]]
    assert found.policy[3] == pytest.approx(1 / 3)
    words = "policy B is given by the action frequencies of the log (uniform in {} without rows)"
    assert found.assumptions == (words.format("2 states"), BY_THE_STATE)
    assert logged_task(ends, data, "policy B").assumptions[0] == words.format("1 state")
    verdict = compare(task, "logged", data)
    by_hand = compare(task, with_policy(task, found.policy), data)
    assert (verdict.answer, verdict.samples, verdict.evidence) == (by_hand.answer, by_hand.samples, by_hand.evidence)
    assert json.loads(verdict.to_json())["assumptions"] == [words.format("2 states"), BY_THE_STATE]
    assert verdict.task.policy.tolist() == task.policy.tolist()


def rows_of_bandits(states, rows, rng, choose):
    """In each state as many rows, which end in the states after them, the first being the good one, by a fair coin."""
    good = rng.random((rows, states)) < 0.5
    actions = choose(good, rng)
    s = np.broadcast_to(np.arange(states), good.shape)
    return pt.Transitions(s.ravel(), actions.ravel(), np.where(good, states, states + 1).ravel())


def by_the_state(good, rng):
    return (rng.random(good.shape) < 0.2 + 0.3 * (np.arange(good.shape[1]) % 3)).astype(int)


def what_went_well(good, rng):
    """After ten rows of each action mostly the one that has won more often: its frequencies tell about outcomes."""
    better = good[1:20:2].sum(axis=0) > good[:20:2].sum(axis=0)
    actions = np.where(rng.random(good.shape) < 0.15, ~better, better).astype(int)
    actions[:20] = np.arange(20)[:, None] % 2
    return actions


@pytest.fixture
def one_set(monkeypatch):
    """One set of coins for each side, which then decides alone."""
    monkeypatch.setattr(compare_module, "replicate_seeds", lambda seed: stacks.replicate_seeds(seed, 1))
    monkeypatch.setattr(stacks, "HALF", 0.0)


@pytest.mark.calibration
def test_the_logged_policy_keeps_delta_if_actions_were_chosen_by_the_state_alone(one_set):
    """All policies are as good, so that each answer is wrong; a rule that reacts to outcomes is caught."""
    states, delta, runs = 40, 0.2, 40
    kernel = np.zeros((states + 2, 2, states + 2))
    kernel[:states, :, states:] = 0.5
    kernel[states, :, states] = kernel[states + 1, :, states + 1] = 1.0
    rewards = np.zeros(kernel.shape)
    rewards[:states, :, states] = 1.0
    initial = np.append(np.full(states, 1 / states), [0.0, 0.0])
    half = np.full((states + 2, 2), 0.5)
    task = pt.Task(rewards, half, initial, 0.9, support=kernel > 0, terminal=[states, states + 1])
    for rule, alarm in ((by_the_state, False), (what_went_well, True)):
        logs = (rows_of_bandits(states, 60, np.random.default_rng(seed), rule) for seed in range(runs))
        answers = [compare(task, "logged", data, delta).answer for data in logs]
        wrong = max(answers.count("above"), answers.count("below"))
        assert (binom.sf(wrong - 1, runs, delta) < 1e-6) == alarm, (rule, answers)
        assert answers.count(None) < runs


def test_the_logged_policy_keeps_delta_on_trajectories(one_set):
    """At the margin V^A - V^B of each log, by the true kernel, where errors are most likely."""
    rng, delta, runs, answers = np.random.default_rng(2), 0.2, 30, []
    kernel = rng.dirichlet([0.7] * 3, (3, 2))
    task = pt.Task(rng.random((3, 2)), rng.dirichlet([1.0] * 2, 3), [1.0, 0.0, 0.0], 0.8)
    for _ in range(runs):
        s, a, x = [], rng.integers(0, 2, 600).tolist(), []
        for t in range(600):
            s.append(x[-1] if t % 10 else 0)
            x.append(int(rng.choice(3, p=kernel[s[-1], a[t]])))
        data = pt.Transitions(s, a, x)
        margin = pt.value(task, kernel) - pt.value(logged_task(task, data), kernel)
        answers.append(compare(task, "logged", data, delta, margin).answer)
    for side in ("above", "below"):
        assert binom.sf(answers.count(side) - 1, runs, delta) > 1e-6, answers
    assert answers.count(None) < runs


def test_the_logged_policy_is_found_not_to_be_the_best():
    """identify, with the policy of the log among those that are given."""
    rng = np.random.default_rng(0)
    s, a = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    data = pt.Transitions(s, a, TWO_SIM.draw(s, a, rng))
    best = np.eye(2)
    asked = (TWO.task.rewards, TWO.task.initial, 0.9, data)
    found = identify(*asked, policies=["logged", best])
    assert (found.index, found.answered, found.certified) == (1, True, True)
    assert found.assumptions[1] == BY_THE_STATE
    same = identify(*asked, policies=[logged_task(TWO.task, data).policy, best])
    assert (same.index, same.settled, same.values.tolist()) == (1, found.settled, found.values.tolist())
    assert identify(*asked, policies=[best]).assumptions == ()


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: compare(TWO.task, "logged", TWO_SIM), r'policy B is "logged", which needs the rows of a log'),
        (lambda: compare(TWO.task, "loged", TWO_SIM), r"task_b is 'loged', expected a Task, or \"logged\""),
        (lambda: compare(TWO.task, TWO.task.policy, TWO_SIM), "task_b is a ndarray, expected a Task"),
        (lambda: compare(TWO.task, "logged", pt.Transitions([0], [5], [0])), r"data.a\[0\] is 5"),
        (
            lambda: identify(TWO.task.rewards, TWO.task.initial, 0.9, TWO_SIM, policies=["logged"]),
            "needs the rows of a log",
        ),
    ],
)
def test_a_logged_policy_needs_a_log(call, words):
    with pytest.raises(pt.InputError, match=words):
        call()
