"""Betting on temporal differences: the validity of one rollout exactly, and the process built from rollouts."""

from __future__ import annotations

import itertools
import math
import os
import signal

import numpy as np
import pytest
from scipy import sparse, stats

import policytest as pt
from policytest._base.compiled import rollouts as kernels
from policytest.methods.betting import run as run_module
from policytest.methods.betting.run import INTERVAL_FRACTIONS, LOG_WEIGHTS, STEADY, Plan
from policytest.methods.boundaries import level_of
from policytest.methods.combined import one_action
from policytest.methods.sampler import Recorded

METHODS = {"rollouts": pt.TDBetting(), "plain": pt.TDBetting(draws=5), "combined": pt.Combined()}
every_method = pytest.mark.parametrize("method", list(METHODS.values()), ids=list(METHODS))
GAMMAS = (0.0, 0.5, 0.9, 0.99)
FRACTIONS = np.concatenate([STEADY, [0.2, 0.4, 0.8]])  # as many bets as there are weights


def instance(seed, S=None, A=None, gamma=None, on_successor=None, supports=True, zeros=True):
    """A random task with rows of all widths, known ones too, and a kernel it allows."""
    rng = np.random.default_rng(seed)
    S, A = S or int(rng.integers(2, 5)), A or int(rng.integers(1, 4))
    gamma = GAMMAS[seed % 4] if gamma is None else gamma
    on_successor = bool(rng.integers(2)) if on_successor is None else on_successor
    support = rng.random((S, A, S)) < 0.6 if supports else np.ones((S, A, S), dtype=bool)
    support[np.arange(S)[:, None], np.arange(A), rng.integers(S, size=(S, A))] = True
    policy = rng.dirichlet(np.ones(A), size=S)
    initial = rng.dirichlet(np.ones(S))
    if zeros:
        policy = np.where((rng.random((S, A)) < 0.2) & (policy < policy.max(axis=1, keepdims=True)), 0.0, policy)
        initial = np.where((rng.random(S) < 0.3) & (initial < initial.max()), 0.0, initial)
    rewards = rng.normal(size=(S, A, S) if on_successor else (S, A))
    task = pt.Task(rewards, policy, initial, gamma, support if supports else None, normalise=True)
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * support
    return task, kernel / kernel.sum(axis=2, keepdims=True), rng


def extreme_kernels(task, rng, count):
    """Deterministic kernels within the support."""
    S, A = task.n_states, task.n_actions
    support = np.ones((S, A, S), dtype=bool) if task.support is None else np.asarray(task.support)
    for _ in range(count):
        yield np.eye(S)[np.where(support, rng.random((S, A, S)), -1.0).argmax(axis=2)]


def centred_rewards(task, threshold):
    """r(s,a,x) less (1-gamma) R, as [S,A,S]."""
    rewards = task.rewards if task.rewards.ndim == 3 else task.rewards[..., None]
    return rewards + np.zeros(task.n_states) - (1 - task.discount) * threshold


def make_run(task, kernel, threshold, method=METHODS["rollouts"], rng=0):
    return method.start(task, pt.TabularSimulator(kernel), threshold, rng)


def arbitrary_plan(run, rng, sign, draws=0):
    """A bet with any V0 and any centred advantages, and the residuals D [S,A,S] written out independently."""
    task, rows = run.task, run.tally.rows
    S, A = task.policy.shape
    V = rng.normal(scale=rng.choice([0.0, 0.3, 3.0]), size=S)
    eta = rng.normal(scale=rng.choice([0.0, 1.0]), size=(S, A))
    eta -= (task.policy * eta).sum(axis=1, keepdims=True)
    rewards = centred_rewards(task, run.threshold)
    if task.rewards_on_successor:
        base = -eta
        D = rewards - eta[..., None]
    else:
        base = (task.policy * rewards[..., 0]).sum(axis=1, keepdims=True) - eta
        D = np.repeat(base[..., None], S, axis=2)
    D = sign * (D + task.discount * V - V[:, None, None])
    base = base.ravel()[rows.pair]
    lead = sign * float(task.initial @ V)
    if draws:
        allowed = np.zeros((S, A, S), dtype=bool)
        allowed.reshape(-1, S)[rows.pair[rows.of_entry()], rows.successor] = True
        L = max(-D[allowed].min(), 0.0) / (1 - task.discount) + 1e-9
        return Plan(V, np.zeros(S), base, L, sign, lead, draws), D
    B = run._worst(V, base, sign)
    return Plan(V, B, base, float(-B[task.initial > 0].min()), sign, lead, 0), D


def rollouts(run, plan, u):
    """The sums of the rollouts that the compiled code makes of these random numbers."""
    sums, size = np.empty(len(u)), len(u)
    places = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    capital, walker = np.zeros(len(FRACTIONS)), np.zeros(5)
    _, used, steps, samples, ended, *_ = kernels.bet(
        run._world(), tuple(plan[:-1]), (FRACTIONS, LOG_WEIGHTS, capital), walker, run.source.arrays(), u,
        (np.inf, 2**62, np.inf, False), *places, sums,
    )  # fmt: skip
    assert used == size
    assert samples <= steps <= used
    return sums[:ended], capital


def chance(weight, budget, least):
    """Of going on: with the largest weight, at most 50 and ten times the present one, that no path makes too much."""
    target = min(50.0, budget / -least) if least < 0 else 50.0
    return min(1.0, max(0.1, weight / target)) if target > 0 else 1.0


def expected_sum(task, kernel, plan, D, R, paths):
    """The mean of S at the end, over all actions, successors and coins, from (probability, s, S, weight) on.

    On good paths the weight stays large for as long as coins allow. Paths of tiny probability count with their bound.
    """
    total, nodes, bound = 0.0, 0, plan.sign * (pt.state_values(task, kernel) - R - plan.V)
    while paths:
        mass, s, earned, weight = paths.pop()
        if mass < 2e-6:
            total += mass * (earned + weight * bound[s])
            continue
        for a, x in np.argwhere(task.policy[s][:, None] * kernel[s] > 0):
            nodes += 1
            p = mass * task.policy[s, a] * kernel[s, a, x]
            now, after = earned + weight * D[s, a, x], task.discount * weight
            g = chance(after, now + plan.L, plan.B[x])
            after /= g
            assert now >= -plan.L - 1e-12 * (1 + plan.L)
            assert now + after * plan.B[x] >= -plan.L - 1e-12 * (1 + plan.L)
            total += p * (1 - g) * now
            if after < 1e-3:
                total += p * g * (now + after * plan.B[x])
            else:
                paths.append((p * g, x, now, after))
    assert nodes < 300_000
    return total


def expected_rollout(task, kernel, plan, D, R):
    paths = []
    for s in np.flatnonzero(task.initial > 0):
        g = chance(1.0, plan.L, plan.B[s])
        paths.append((task.initial[s] * g, int(s), 0.0, 1.0 / g))
    return expected_sum(task, kernel, plan, D, R, paths)


def shortfall(task, kernel, plan, R):
    """The most that ending at weights below 1e-3 can cost."""
    better = plan.sign * (pt.state_values(task, kernel) - R - plan.V) - plan.B
    return 1e-3 * max(float(better.max()), 0.0)


# ---------------------------------------------------------------- one rollout


@pytest.mark.parametrize("seed", range(24))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_b_is_below_every_step_and_below_every_value(seed, sign):
    task, kernel, rng = instance(seed)
    run = make_run(task, kernel, 0.3)
    plan, D = arbitrary_plan(run, rng, sign)
    support = np.asarray(task.support)
    assert (plan.B <= 0).all()
    for s, a, x in np.argwhere(support & (task.policy > 0)[..., None]):
        assert plan.B[s] <= D[s, a, x] + task.discount * plan.B[x] + 1e-13
    for q in (kernel, *extreme_kernels(task, rng, 20)):
        gain = sign * (pt.state_values(task, q) - 0.3 - plan.V)
        assert (gain + 1e-9 >= plan.B).all()


@pytest.mark.parametrize("seed", range(8))
def test_b_is_not_lower_than_it_must_be(seed):
    task, kernel, rng = instance(seed)
    run = make_run(task, kernel, 0.0)
    plan, D = arbitrary_plan(run, rng, 1.0)
    allowed = np.asarray(task.support) & (task.policy > 0)[..., None]
    B = np.zeros(task.n_states)
    for _ in range(4000):
        B = np.minimum(0.0, np.where(allowed, D + task.discount * B, np.inf).min(axis=(1, 2)))
    assert pytest.approx(B, abs=1e-8 * (1 + np.abs(B).max())) == plan.B


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("seed", range(6))
def test_b_of_tasks_where_any_state_may_follow(seed, sign):
    task, kernel, rng = instance(seed, supports=False, on_successor=False)
    run = make_run(task, kernel, 0.1)
    plan, D = arbitrary_plan(run, rng, sign)
    taken = (task.policy > 0)[..., None]
    assert np.where(taken, D + task.discount * plan.B - plan.B[:, None, None], 0.0).min() >= -1e-13


@pytest.mark.parametrize("gamma", [0.99, 0.999])
@pytest.mark.parametrize("length", [99, 100, 101, 300])
def test_b_of_long_rings(length, gamma):
    """One loss, seen from far away: where the search for the worst path ends early B must still be sound."""
    S = length + 1
    targets = np.append((np.arange(length) + 1) % length, 1)
    support = sparse.csr_array((np.ones(S), (np.arange(S), targets)), shape=(S, S))
    task = pt.Task(np.append(-1.0, np.zeros(S - 1))[:, None], np.ones((S, 1)), np.eye(S)[S - 1], gamma, support)
    B = kernels.worst_paths(task.layout.rows, task.layout.rows.reward, np.zeros(S), 1.0, gamma)
    exact = -(gamma ** ((length - np.arange(length)) % length)) / (1 - gamma**length)
    assert (np.minimum(0.0, task.rewards[:, 0] + gamma * B[targets]) + 1e-9 >= B).all()
    assert B[:length] == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_no_rollout_falls_below_its_range(seed, sign):
    task, kernel, rng = instance(seed)
    for q in (kernel, *extreme_kernels(task, rng, 3)):
        run = make_run(task, q, -0.2)
        plan, _ = arbitrary_plan(run, rng, sign)
        sums, _ = rollouts(run, plan, rng.random((40_000, 3)))
        assert len(sums) > 50
        assert sums.min() >= -plan.L - 1e-12 * (1 + plan.L)
        mean = sign * (pt.value(task, q) + 0.2) - plan.sign * float(task.initial @ plan.V)
        assert sums.mean() <= mean + 4.5 * sums.std() / math.sqrt(len(sums)) + 1e-9


@pytest.mark.parametrize("seed", range(10))
def test_compiled_rollouts_are_those_of_the_definition(seed):
    task, kernel, rng = instance(seed)
    run = make_run(task, kernel, 0.0)
    plan, D = arbitrary_plan(run, rng, -1.0 if seed % 2 else 1.0)
    u = rng.random((3000, 3))
    found, capital = rollouts(run, plan, u)

    def pick(weights, number):
        return int(np.flatnonzero((np.cumsum(weights) > number) & (weights > 0))[0])

    sums, s = [], None
    for first, second, third in u:
        if s is None:
            s, earned = pick(task.initial, first), 0.0
            g = chance(1.0, plan.L, plan.B[s])
            ended, weight = second >= g, 1.0 / g
        else:
            a = pick(task.policy[s], first)
            row = np.asarray(task.support)[s, a]
            x = int(np.argmax(row)) if row.sum() == 1 else pick(kernel[s, a], second)
            earned, s, weight = earned + weight * D[s, a, x], x, task.discount * weight
            g = chance(weight, earned + plan.L, plan.B[s])
            ended, weight = third >= g, weight / g
            if not ended and weight < 1e-3:
                earned, ended = earned + weight * plan.B[s], True
        if ended:
            sums.append(earned)
            s = None
    assert found == pytest.approx(sums, abs=1e-9)
    ratios = np.outer((plan.lead + np.array(sums)) / plan.room, FRACTIONS)
    if plan.room > 0 and (ratios > -1).all():
        assert capital == pytest.approx(np.log1p(ratios).sum(axis=0), abs=1e-6)


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize(("gamma", "A"), [(0.0, 3), (0.3, 2), (0.5, 1)])
@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_a_rollout_exactly(seed, gamma, A, sign):
    task, kernel, rng = instance(seed, S=2, A=A, gamma=gamma)
    run = make_run(task, kernel, 0.1)
    plan, D = arbitrary_plan(run, rng, sign)
    bound = sign * (pt.value(task, kernel) - 0.1) - plan.lead
    mean = expected_rollout(task, kernel, plan, D, 0.1)
    assert mean <= bound + 1e-9
    assert mean >= bound - shortfall(task, kernel, plan, 0.1) - 1e-9


@pytest.mark.parametrize("sign", [1.0, -1.0])
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_under_deterministic_kernels_exactly(seed, gamma, sign):
    task, _, rng = instance(seed, A=1, gamma=gamma)
    for q in extreme_kernels(task, rng, 6):
        run = make_run(task, q, -0.4)
        plan, D = arbitrary_plan(run, rng, sign)
        bound = sign * (pt.value(task, q) + 0.4) - plan.lead
        mean = expected_rollout(task, q, plan, D, -0.4)
        assert bound - shortfall(task, q, plan, -0.4) - 1e-9 <= mean <= bound + 1e-9


@pytest.mark.parametrize("seed", range(6))
def test_what_stands_for_an_unfinished_rollout_is_at_most_its_mean(seed):
    """S + w B(s) is no bound on every path, since coins raise the weight; it is one on the mean, under any kernel."""
    task, _, rng = instance(seed, A=1, gamma=(0.5, 0.9)[seed % 2])
    for q in extreme_kernels(task, rng, 5):
        run = make_run(task, q, 0.0)
        plan, D = arbitrary_plan(run, rng, 1.0)
        for s in range(task.n_states):
            weight = float(rng.uniform(0.01, 1.0))
            earned = weight * -plan.B[s] - plan.L + float(rng.uniform(0.0, 3.0))
            mean = expected_sum(task, q, plan, D, 0.0, [(1.0, s, earned, weight)])
            assert mean >= earned + weight * plan.B[s] - 1e-9


@pytest.mark.parametrize("gamma", [0.5, 0.9, 0.99])
def test_on_the_worst_path_everything_is_lost(gamma):
    """No coin ends it; where the weight has become very small, the rest of the loss is counted."""
    task = pt.Task([[-1.0], [1.0]], np.ones((2, 1)), [1.0, 0.0], gamma)
    run = make_run(task, np.array([[[1.0, 0.0]], [[1.0, 0.0]]]), 0.0)
    plan = run._plan(np.zeros(2), None, 1.0, 0.0)
    sums, _ = rollouts(run, plan, np.random.default_rng(0).random((5000, 3)))
    assert pytest.approx(1 / (1 - gamma)) == plan.L
    assert len(sums) > 3
    assert sums == pytest.approx(np.full(len(sums), -plan.L), rel=1e-9)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_the_plain_process_is_unbiased_and_in_range(seed, sign):
    task, kernel, rng = instance(seed)
    draws = int(rng.integers(1, 7))
    run = make_run(task, kernel, 0.2, pt.TDBetting(draws=draws))
    plan, D = arbitrary_plan(run, rng, sign, draws)
    sums, _ = rollouts(run, plan, rng.random((300_000, 3)))
    occupancy = pt.occupancy(task, kernel)
    mean = float(np.einsum("s,sa,sax,sax->", occupancy, task.policy, kernel, D))
    assert mean == pytest.approx(sign * (pt.value(task, kernel) - 0.2) - plan.lead, abs=1e-9)
    assert abs(sums.mean() - mean) <= 4.5 * sums.std() / math.sqrt(len(sums)) + 1e-9
    assert sums.min() >= -plan.L - 1e-9
    fitted = run.plan
    allowed = np.asarray(task.support) & (task.policy > 0)[..., None]
    rewards = centred_rewards(task, 0.2)
    base = np.zeros(task.policy.shape)
    base.ravel()[run.tally.rows.pair] = fitted.base
    residual = base[..., None] + task.discount * fitted.V - fitted.V[:, None, None]
    residual = fitted.sign * (residual + (rewards if task.rewards_on_successor else 0.0))
    assert fitted.L * (1 - task.discount) >= -residual[allowed].min() - 1e-12


@pytest.mark.parametrize("seed", range(8))
def test_fitted_plans_are_sound(seed):
    """The advantages are centred and B is below: checked on the plan that a run has made for itself."""
    task, kernel, _ = instance(seed)
    R = float(np.mean(pt.value_range(task)))
    run = make_run(task, kernel, R)
    for _ in range(6):
        run.step(np.inf, 200)
        plan, rows = run.plan, run.tally.rows
        mean = np.bincount(rows.state, rows.prob * plan.base, minlength=task.n_states)
        rewards = centred_rewards(task, R)
        on_pairs = 0.0 if task.rewards_on_successor else (task.policy * rewards[..., 0]).sum(axis=1)
        assert mean == pytest.approx(on_pairs + np.zeros(task.n_states), abs=1e-9)
        assert plan.lead == pytest.approx(plan.sign * float(task.initial @ plan.V))
        D = plan.sign * (rows.per_entry(plan.base - plan.V[rows.state]) + task.discount * plan.V[rows.successor])
        D += plan.sign * (rows.gain if len(rows.gain) else 0.0)
        assert (plan.B[rows.state[rows.of_entry()]] <= D + task.discount * plan.B[rows.successor] + 1e-12).all()
        assert -plan.B[task.initial > 0].min() <= plan.L


# ---------------------------------------------------------------- error probabilities


def rare_reward():
    """One transition in a hundred is worth much: V = R, and most runs look as if V were below."""
    support = np.ones((2, 1, 2), dtype=bool)
    rewards = np.array([[[0.0, 50.0]], [[0.0, 50.0]]])
    kernel = np.array([[[0.99, 0.01]], [[0.99, 0.01]]])
    return pt.Task(rewards, np.ones((2, 1)), [1.0, 0.0], 0.5, support), kernel


def calibration_cases():
    two, three = pt.instances.paper(2), pt.instances.paper(3)
    yield "2x2", two.task, two.kernel, 400
    yield "3x3", three.task, three.kernel, 600
    yield "rare", *rare_reward(), 600
    yield "known", *instance(5, S=4, A=2, gamma=0.9, on_successor=False)[:2], 400
    yield "successors", *instance(9, S=3, A=2, gamma=0.9, on_successor=True, supports=False)[:2], 400


def too_often(count, runs, delta):
    return stats.binom.sf(count - 1, runs, delta) < 1e-4


@every_method
@pytest.mark.parametrize("case", list(calibration_cases()), ids=lambda case: case[0])
def test_both_sides_err_at_most_as_often_as_delta_allows(case, method):
    _, task, kernel, most = case
    R, runs, delta = pt.value(task, kernel), 150, 0.1
    sim = pt.TabularSimulator(kernel)
    answers = [
        pt.stopping_times(task, sim, R, [delta], method, rng=seed, max_samples=most).answers[0] for seed in range(runs)
    ]
    assert not too_often(answers.count("above"), runs, delta)
    assert not too_often(answers.count("below"), runs, delta)


def test_bets_suit_the_lead():
    """Where the lead is small beside the noise every steady bet loses, and the fitted one decides."""
    found = pt.instances.random(3, 2, 1, discount=0.5)
    sim, V = pt.TabularSimulator(found.kernel), pt.value(found.task, found.kernel)
    low, high = pt.value_range(found.task)
    run = pt.TDBetting().start(found.task, sim, V - 0.01 * (high - low), 0)
    while run.answer is None and run.samples < 500_000:
        run.step(math.log(1e6), 100_000)
    assert run.answer == "above"
    assert all((bets[: len(STEADY)] == STEADY).all() for bets in run.fractions)
    assert all(((bets > 0) & (bets < 1)).all() for bets in run.fractions)
    assert run.fractions[-1][len(STEADY)] < STEADY.min() / 2
    assert run.capital[0, len(STEADY)] > 10.0
    assert (run.capital[0, : len(STEADY)] < 0.0).all()


def test_too_small_a_range_is_caught():
    """The control: with a quarter of the range, factors cut off at 0, the same bets err far more often than delta."""
    task, kernel = rare_reward()
    R = pt.value(task, kernel)
    run = make_run(task, kernel, R)
    runs, crossed = 200, [0, 0]
    for sign, part in itertools.product((1.0, -1.0), (1.0, 0.25)):
        plan = run._plan(np.zeros(2), None, sign, 0.0)
        room = part * plan.L - plan.lead
        count = 0
        for seed in range(runs):
            sums, _ = rollouts(run, plan, np.random.default_rng(seed).random((400, 3)))
            factors = np.maximum(1.0 + np.outer((plan.lead + sums) / room, run._fractions(plan, None, None)), 1e-9)
            capital = np.logaddexp.reduce(np.cumsum(np.log(factors), axis=0) + LOG_WEIGHTS, axis=1)
            count += capital.max() >= -math.log(0.1)
        crossed[part < 1] = max(crossed[part < 1], count)
    assert not too_often(crossed[0], runs, 0.1)
    assert too_often(crossed[1], runs, 0.1)


@pytest.mark.parametrize("offset", [-0.5, 0.0, 0.5])
def test_intervals_hold_the_value(offset):
    inst = pt.instances.paper(3)
    value, (low, high) = pt.value(inst.task, inst.kernel), pt.value_range(inst.task)
    sim, runs, missed, widths = pt.TabularSimulator(inst.kernel), 50, 0, []
    for seed in range(runs):
        run = METHODS["rollouts"].start(inst.task, sim, value + offset, seed)
        ends = []
        for number in range(24):
            run.step(np.inf, 100)
            if number % 4 == 3:
                ends.append(run.interval(-math.log(0.1)))
        bottom, top = np.array(ends).T
        assert (bottom >= low - 1e-9).all()
        assert (top <= high + 1e-9).all()
        missed += bool((bottom > value).any() or (top < value).any())
        widths.append((top - bottom)[[0, -1]])
    assert not too_often(missed, runs, 0.1)
    first, last = np.mean(widths, axis=0)
    assert last < first


def test_intervals_end_where_the_capital_is_two_over_delta():
    inst = pt.instances.paper(2)
    value, level = pt.value(inst.task, inst.kernel), -math.log(0.05)
    run = make_run(inst.task, inst.kernel, value, rng=4)
    while run.samples < 20_000:
        run.step(np.inf, 20_000 - run.samples)
    state = run.state()
    parts = np.split(state["sums"], np.cumsum(state["lengths"])[:-1])
    for sign, end in zip((1.0, -1.0), run.interval(level), strict=True):
        log_capital = np.zeros(len(INTERVAL_FRACTIONS))
        for sums, (L, start, side) in zip(parts, state["stretches"], strict=True):
            if side == sign:
                lead = sign * (start - (end - value))
                log_capital += np.log1p(np.outer((lead + sums) / (L - lead), INTERVAL_FRACTIONS)).sum(axis=0)
        assert np.log(np.mean(np.exp(log_capital))) == pytest.approx(level + math.log(2), abs=1e-6)


def test_intervals_shrink_to_the_value():
    inst = pt.instances.paper(2)
    value, sim = pt.value(inst.task, inst.kernel), pt.TabularSimulator(inst.kernel)
    low, high = pt.value_range(inst.task)
    for share in (0.2, 0.8):
        run = METHODS["rollouts"].start(inst.task, sim, low + share * (high - low), 3)
        while run.samples < 20_000:
            run.step(np.inf, 20_000 - run.samples)
        bottom, top = run.interval(3.0)
        one_sided = value - bottom if share < 0.5 else top - value  # the side that is bet on
        assert bottom <= value <= top
        assert one_sided < 0.1 * (high - low)


# ---------------------------------------------------------------- answers


@every_method
@pytest.mark.parametrize("seed", range(41, 48))
def test_right_answers_on_both_sides(seed, method):
    task, kernel, _ = instance(seed)
    value, (low, high) = pt.value(task, kernel), pt.value_range(task)
    assert high > low
    for end, answer in ((low, "above"), (high, "below")):
        for share in (0.5, 0.97):
            R = value + share * (end - value)
            verdict = pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, method, rng=seed, max_samples=200_000)
            assert verdict.answer == answer
            assert verdict.certified
            assert 0 <= verdict.p_value <= 1e-4 * 1.001
            assert verdict.counts.total == verdict.samples


@every_method
@pytest.mark.parametrize("scale", [1e-9, 1.0, 1e9])
@pytest.mark.parametrize("offset", [0.0, 1e6])
def test_units_do_not_matter(method, scale, offset):
    task, kernel, _ = instance(7, S=3, A=2, gamma=0.9, on_successor=False)
    low, high = pt.value_range(task)
    value = pt.value(task, kernel)
    for end in (low, high):
        R = 0.6 * value + 0.4 * end
        other = pt.Task(scale * (task.rewards + offset), task.policy, task.initial, 0.9, task.support)
        sim = pt.TabularSimulator(kernel)
        mine = pt.decide(task, sim, R, 0.01, method, rng=2, max_samples=50_000)
        theirs = pt.decide(other, sim, scale * (R + offset / 0.1), 0.01, method, rng=2, max_samples=50_000)
        assert mine.answer == theirs.answer is not None
        assert mine.samples == theirs.samples
        assert max(mine.evidence) == pytest.approx(max(theirs.evidence), rel=1e-3)


@every_method
def test_sparse_tasks_are_the_dense_ones(method):
    task, kernel, _ = instance(11, S=4, A=2, gamma=0.9, on_successor=False)
    flat = sparse.csr_array(task.support.reshape(8, 4))
    twin = pt.Task(task.rewards, task.policy, task.initial, 0.9, flat)
    R = 0.5 * (pt.value(task, kernel) + pt.value_range(task)[0])
    first = pt.decide(task, pt.TabularSimulator(kernel), R, 0.01, method, rng=1)
    second = pt.decide(twin, pt.TabularSimulator(sparse.csr_array(kernel.reshape(8, 4))), R, 0.01, method, rng=1)
    assert (first.answer, first.samples) == (second.answer, second.samples) == ("above", first.samples)


@every_method
def test_one_unknown_row_among_known_ones(method):
    """A corridor of known rows to absorbing states, with one toss on the way."""
    S = 6
    support = np.zeros((S, 1, S), dtype=bool)
    for s, targets in enumerate(([1], [2], [3, 4], [5], [4], [5])):
        support[s, 0, targets] = True
    kernel = support / support.sum(axis=2, keepdims=True)
    kernel[2, 0] = [0, 0, 0, 0.7, 0.3, 0]
    task = pt.Task(np.eye(S)[3][:, None], np.ones((S, 1)), np.eye(S)[0], 0.95, support)
    value = pt.value(task, kernel)
    assert value == pytest.approx(0.7 * 0.95**3)
    for R, answer in ((0.8 * value, "above"), (1.2 * value, "below")):
        verdict = pt.decide(task, pt.TabularSimulator(kernel), R, 0.01, method)
        assert verdict.answer == answer
        assert verdict.counts.visits[2, 0] == verdict.samples


@every_method
def test_one_state_with_rewards_needs_no_sample(method):
    task = pt.Task([[1.0, 3.0]], [[0.5, 0.5]], [1.0], 0.5)
    verdict = pt.decide(task, pt.TabularSimulator(np.ones((1, 2, 1))), 3.9, 0.05, method)
    assert (verdict.answer, verdict.samples) == ("above", 0)
    at = pt.decide(task, pt.TabularSimulator(np.ones((1, 2, 1))), 4.0, 0.05, method)
    assert at.answer is None


def exactly(function, seconds):
    """Call, and fail where that takes so long."""

    def late(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        return function()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@every_method
def test_rollouts_that_meet_nothing_unknown_end(method):
    """The unknown row is out of reach and V = R: there is nothing to draw, and no answer."""
    support = np.eye(3, dtype=bool)[:, None, :].copy()
    support[2] = True
    kernel = support / support.sum(axis=2, keepdims=True)
    task = pt.Task([[1.0], [2.0], [3.0]], np.ones((3, 1)), [0.5, 0.5, 0.0], 0.5, support)
    sim = pt.TabularSimulator(kernel)
    verdict = exactly(lambda: pt.decide(task, sim, 3.0, 0.05, method, max_samples=50), 3)
    assert verdict.answer is None
    data = pt.Transitions([2, 2], [0, 0], [1, 0])
    assert exactly(lambda: pt.assess(task, data, 3.0, 0.05, method), 3).answer is None


@every_method
@pytest.mark.parametrize("gamma", [0.0, 0.5, 0.9])
def test_where_every_kernel_has_the_value_of_the_threshold(method, gamma):
    task = pt.Task(np.ones((3, 2)), np.full((3, 2), 0.5), [0.25, 0.25, 0.5], gamma)
    verdict = pt.decide(
        task, pt.TabularSimulator(np.full((3, 2, 3), 1 / 3)), 1 / (1 - gamma), 0.05, method, max_samples=200
    )
    assert verdict.answer is None
    assert np.isfinite(verdict.evidence).all()
    assert 0 <= verdict.p_value <= 1


def dyadic(seed):
    """A task whose extreme values are dyadic numbers, that is, exact; with a kernel that attains the largest."""
    rng = np.random.default_rng(seed)
    S, A, gamma = int(rng.integers(2, 5)), 2, float(rng.choice([0.5, 0.75, 0.875]))
    share = rng.integers(1, 8, size=S) / 8
    rewards = rng.integers(-40, 41, size=(S, A, S)) / 16
    rewards[S - 1] = 0.0
    support = np.broadcast_to(np.triu(np.ones((S, S), dtype=bool), 1)[:, None, :], (S, A, S)).copy()
    support[S - 1, :, S - 1] = True
    initial = np.eye(S)[0] if S < 3 else np.append([0.5, 0.5], np.zeros(S - 2))
    task = pt.Task(rewards, np.stack([share, 1 - share], axis=1), initial, gamma, support)
    V, kernel = np.zeros(S), np.zeros((S, A, S))
    kernel[S - 1, :, S - 1] = 1.0
    for s in range(S - 2, -1, -1):
        worth = np.where(support[s], rewards[s] + gamma * V, -np.inf)
        kernel[s, [0, 1], worth.argmax(axis=1)] = 1.0
        V[s] = task.policy[s] @ worth.max(axis=1)
    return task, kernel, float(initial @ V)


@pytest.mark.parametrize("method", [METHODS["rollouts"], METHODS["plain"]])
def test_rounding_is_not_evidence_at_the_end_of_the_range(method):
    """V = R = the largest value, exactly: what there is to win is of the size of rounding, and still fair."""
    runs = crossed = 0
    for seed in range(40):
        task, kernel, R = dyadic(seed)
        low, high = pt.value_range(task)
        assert pytest.approx(high, abs=1e-12) == R
        for rng in range(8 if high > low else 0):
            run = make_run(task, kernel, R, method, rng)
            for _ in range(20):
                if run.answer is None and run.samples < 200:
                    run.step(3.0, 200 - run.samples)
            runs, crossed = runs + 1, crossed + (run.answer is not None)
    assert runs > 200
    assert not too_often(crossed, runs, math.exp(-3.0))


@every_method
@pytest.mark.parametrize("form", [np.asarray, lambda kernel: sparse.csr_array(kernel.reshape(4, 2))])
def test_empty_rows_of_a_table_are_refused(method, form):
    kernel = np.full((2, 2, 2), 0.5)
    kernel[1, 1] = 0.0
    task = pt.Task([[1.0, 0.0], [2.0, 1.0]], np.full((2, 2), 0.5), [0.5, 0.5], 0.9)
    with pytest.raises(pt.InputError, match="sums to 0"):
        pt.decide(task, pt.TabularSimulator(form(kernel)), 12.0, 0.05, method, max_samples=100)


# ---------------------------------------------------------------- seeds, limits, pauses


class Counting:
    """A simulator that is called for every draw, and remembers what it answered."""

    def __init__(self, kernel, stop_at=None):
        self.table, self.seen, self.stop_at = pt.TabularSimulator(kernel), [], stop_at

    def __call__(self, states, actions, rng):
        if self.stop_at is not None and len(self.seen) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)
            self.stop_at = None
        x = self.table.draw(states, actions, rng)
        self.seen += [(int(s), int(a), int(y)) for s, a, y in zip(states, actions, x, strict=True)]
        return x

    def counts(self, task):
        N = np.zeros((task.n_states, task.n_actions, task.n_states), dtype=int)
        for place in self.seen:
            N[place] += 1
        return N


def same(first, second):
    assert (first.answer, first.samples) == (second.answer, second.samples)
    assert first.evidence == second.evidence
    assert first.interval == second.interval
    assert (first.counts.N == second.counts.N).all()


def question(seed=3):
    """Neither at once nor late: some hundred samples."""
    inst = pt.instances.paper(seed)
    return inst.task, inst.kernel, 0.0


@every_method
def test_same_seed_same_run(method):
    task, kernel, R = question()
    first, second = (pt.decide(task, pt.TabularSimulator(kernel), R, 0.05, method, rng=5) for _ in range(2))
    same(first, second)
    assert pt.decide(task, pt.TabularSimulator(kernel), R, 0.05, method, rng=6).samples != first.samples


@every_method
def test_a_slow_clock_changes_no_result(method, monkeypatch):
    """How many draws fit into a moment is the machine's affair, also where the test may answer "within"."""
    task, kernel, _ = instance(6, S=4, A=3, gamma=0.5)
    found = []
    for patience in (-1.0, 1e9):
        monkeypatch.setattr(run_module, "PATIENCE", patience)
        R = pt.value(task, kernel)
        found.append(pt.decide(task, Counting(kernel), R, 0.1, method, rng=1, indifference=0.5, max_samples=20_000))
    assert found[0].answer == "within"
    same(*found)


@every_method
@pytest.mark.parametrize("most", [0, 1, 2, 7, 64, 65, 200])
def test_a_called_simulator_is_called_once_a_sample_and_never_too_often(method, most):
    task, kernel, _ = instance(6, S=4, A=3, gamma=0.9)
    sim = Counting(kernel)
    verdict = pt.decide(task, sim, pt.value(task, kernel), 1e-6, method, rng=1, max_samples=most)
    assert len(sim.seen) == verdict.samples == most
    assert (sim.counts(task) == verdict.counts.N).all()


@every_method
def test_called_simulators_and_tables_agree_in_distribution(method):
    task, kernel, R = question(2)
    samples = [
        [pt.stopping_times(task, sim, R, [0.05], method, rng=seed).samples[0] for seed in seeds]
        for sim, seeds in ((pt.TabularSimulator(kernel), range(150)), (Counting(kernel), range(500, 560)))
    ]
    assert stats.mannwhitneyu(*samples).pvalue > 1e-4
    assert stats.ks_2samp(*samples).pvalue > 1e-4


@every_method
@pytest.mark.parametrize("kind", [pt.TabularSimulator, Counting])
def test_stopping_times_are_those_of_decide(method, kind):
    task, kernel, R = question(2)
    deltas = (0.2, 0.05, 1e-3, 0.01, 1e-6)
    times = pt.stopping_times(task, kind(kernel), R, deltas, method, rng=4)
    for delta, samples, answer in zip(deltas, times.samples, times.answers, strict=True):
        verdict = pt.decide(task, kind(kernel), R, delta, method, rng=4)
        assert (verdict.samples, verdict.answer) == (samples, answer)


@every_method
@pytest.mark.parametrize("kind", [pt.TabularSimulator, Counting])
def test_a_paused_run_goes_on_to_the_same_end(method, kind):
    task, kernel, R = question(2)
    whole = pt.decide(task, kind(kernel), R, 1e-4, method, rng=8)
    inside = 0
    for cut in (0, 1, 2, 5, 17, 18, 19, 64, whole.samples - 1):
        sim = kind(kernel)
        part = pt.decide(task, sim, R, 1e-4, method, rng=8, max_samples=cut)
        inside += part.snapshot["walker"][0] != 0
        assert part.answer is None
        assert part.samples == cut
        again = pt.decide(task, kind(kernel), R, 1e-4, method, rng=99, max_samples=cut + 3, resume=part)
        same(pt.decide(task, kind(kernel), R, 1e-4, method, resume=again), whole)
    assert inside > 3  # rollouts were cut
    same(
        pt.decide(task, kind(kernel), R, 1e-7, method, resume=whole),
        pt.decide(task, kind(kernel), R, 1e-7, method, rng=8),
    )


@every_method
@pytest.mark.parametrize("at", [0, 3, 30])
def test_an_interrupted_draw_is_not_lost(method, at):
    task, kernel, R = question(2)
    whole = pt.decide(task, Counting(kernel), R, 1e-4, method, rng=8)
    sim = Counting(kernel, stop_at=at)
    part = pt.decide(task, sim, R, 1e-4, method, rng=8)
    assert part.answer is None
    same(pt.decide(task, sim, R, 1e-4, method, resume=part), whole)
    assert len(sim.seen) == whole.samples


@every_method
def test_checkpoints(method, tmp_path):
    task, kernel, R = question(2)
    path = tmp_path / "run.npz"
    whole = pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, method, rng=8)
    pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, method, rng=8, max_samples=40, checkpoint=path)
    same(pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, method, resume=path, checkpoint=path), whole)
    path.write_bytes(path.read_bytes()[:-50] + bytes(50))
    with pytest.raises(pt.InputError, match="damaged"):
        pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, method, resume=path)
    other = pt.TDBetting(draws=3)
    part = pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, method, rng=8, max_samples=40)
    with pytest.raises(pt.InputError, match="the method"):
        pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, other, resume=part)


def tampered():
    def add(*numbers):
        return lambda v: v + np.array(numbers)

    def times(*numbers):
        return lambda v: v * np.array(numbers)

    for case, name, alter in (
        ("samples", "samples", add(1)),
        ("rollouts", "rollouts", add(1000)),
        ("capital", "capital", add(1.0)),
        ("sums", "sums", add(0.5)),
        ("lengths", "lengths", lambda v: v[:-1]),
        ("stretches", "stretches", times(2.0)),
        ("V", "plan_V", lambda v: v[:-1]),
        ("B", "plan_B", times(0.5)),
        ("base", "plan_base", add(0.5)),
        ("base-length", "plan_base", lambda v: v[:-1]),
        ("range", "plan_numbers", times(0.25, 1.0, 1.0)),
        ("sign", "plan_numbers", times(1.0, -1.0, 1.0)),
        ("lead", "plan_numbers", add(0.0, 0.0, 0.3)),
        ("walker-sum", "walker", add(0.0, 0.0, -5000.0, 0.0, 0.0)),
        ("walker-state", "walker", add(0.0, 1000.0, 0.0, 0.0, 0.0)),
        ("walker-weight", "walker", times(1.0, 1.0, 1.0, 1000.0, 1.0)),
        ("numbers", "numbers", lambda v: v[:, :2]),
        ("numbers-range", "numbers", add(1.0)),
        ("block", "block", times(0)),
        ("generator", "generator", lambda v: v[:-1]),
        ("counts", "tally.N", add(1)),
        ("refit", "refit_at", times(np.nan)),
    ):
        yield pytest.param(name, alter, id=case)


@pytest.fixture(scope="module")
def cut_short():
    """A run in the middle of a rollout, with some weight left."""
    task, kernel, R = question(3)
    run = make_run(task, kernel, R, rng=8)
    while run.samples < 50 or not (run.walker[0] and run.walker[3] > 0.1):
        run.step(np.inf, 1)
    return run


@pytest.mark.parametrize(("name", "alter"), list(tampered()))
def test_tampered_states_are_refused(cut_short, name, alter):
    """By `restore` itself: what is accepted there goes into compiled code, which checks nothing."""
    state = cut_short.state()
    fresh = make_run(*question(3))
    fresh.restore(dict(state))
    assert fresh.evidence() == cut_short.evidence()
    state[name] = alter(np.array(state[name]))
    with pytest.raises(pt.InputError):
        make_run(*question(3)).restore(state)
    del state[name]
    with pytest.raises(pt.InputError):
        make_run(*question(3)).restore(state)


@every_method
def test_evidence_of_an_unfinished_rollout_counts_it_at_worst(method):
    task, kernel, R = question(3)
    run, seen = make_run(task, kernel, R, method, rng=2), 0
    for _ in range(400):
        run.step(np.inf, 1)
        bet = run._bet_evidence() if isinstance(method, pt.Combined) else run.evidence()
        side = 0 if run.plan.sign > 0 else 1
        capital = run.capital.copy()
        if run.walker[0]:
            _, s, earned, weight, left = run.walker
            plan = run.plan
            worst = earned - plan.L * left / 5 if run.draws else earned + weight * plan.B[int(s)]
            assert worst >= -plan.L - 1e-9
            assert worst <= earned + 1e-12
            capital[side] += np.log1p(plan.bets * (plan.lead + worst) / plan.room)
            seen += 1
        assert bet == pytest.approx(tuple(np.log((np.exp(capital) * np.exp(LOG_WEIGHTS)).sum(axis=1))), abs=1e-9)
    assert seen > 50


# ---------------------------------------------------------------- recorded data


def a_log(task, kernel, size, rng):
    s, a = rng.integers(task.n_states, size=size), rng.integers(task.n_actions, size=size)
    return pt.Transitions(s, a, pt.TabularSimulator(kernel).draw(s, a, rng))


@every_method
def test_recorded_draws_are_used_once_and_in_their_order(method):
    task, kernel, _ = instance(13, S=3, A=2, gamma=0.9, zeros=False, supports=False)
    log = a_log(task, kernel, 400, np.random.default_rng(0))
    k = task.layout.row_of_pair[log.s * 2 + log.a]
    run = method.replay(task, pt.value(task, kernel), Recorded(k, log.x))
    heads, record = {}, run._record

    def watch(pair, x):
        for p, y in zip(pair, x, strict=True):
            heads.setdefault(int(p), []).append(int(y))
        record(pair, x)

    run._record = watch
    while not run.exhausted:
        run.step(np.inf, 10_000)
    assert sum(map(len, heads.values())) == run.samples > 50
    for pair, ys in heads.items():
        recorded = log.x[log.s * 2 + log.a == pair]
        assert len(ys) <= len(recorded)
        assert ys == recorded[: len(ys)].tolist()
    assert any(len(ys) == (log.s * 2 + log.a == pair).sum() for pair, ys in heads.items())  # one ran out


@every_method
@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_verdict_on_a_log_is_that_on_its_shortest_prefix(method, share):
    inst = pt.instances.paper(2)
    value, low = pt.value(inst.task, inst.kernel), pt.value_range(inst.task)[0]
    R = value + share * (low - value)
    log = a_log(inst.task, inst.kernel, 3000, np.random.default_rng(1))
    verdict = pt.assess(inst.task, log, R, 0.05, method)
    assert verdict.answer == "above"
    first = verdict.samples
    assert 0 < first < 3000
    prefix = pt.Transitions(log.s[:first], log.a[:first], log.x[:first])
    again = pt.assess(inst.task, prefix, R, 0.05, method)
    assert (again.answer, again.samples, again.evidence) == ("above", first, verdict.evidence)
    assert (verdict.counts.N == prefix.counts(inst.task, first).N).all()
    shorter = pt.Transitions(log.s[: first - 1], log.a[: first - 1], log.x[: first - 1])
    undecided = pt.assess(inst.task, shorter, R, 0.05, method)
    assert undecided.answer is None
    assert "recorded" in undecided.reason
    assert 0 <= undecided.p_value <= 1


@every_method
def test_a_missing_draw_is_waited_for(method):
    """A pair that the policy takes often is never recorded: nothing is skipped, so there is no answer."""
    task = pt.Task([[1.0, 0.5], [0.0, 0.5]], np.full((2, 2), 0.5), [1.0, 0.0], 0.9)
    rng = np.random.default_rng(3)
    s, a = rng.integers(2, size=5000), rng.integers(2, size=5000)
    keep = ~((s == 0) & (a == 1))
    x = rng.integers(2, size=5000)
    low, high = pt.value_range(task)
    whole = pt.assess(task, pt.Transitions(s, a, x), low + 0.05 * (high - low), 0.05, method)
    assert whole.answer == "above"
    verdict = pt.assess(task, pt.Transitions(s[keep], a[keep], x[keep]), low + 0.05 * (high - low), 0.05, method)
    assert verdict.answer is None
    assert max(verdict.evidence) < 3.0


@every_method
def test_logs_that_were_collected_adaptively(method):
    """Each pair is chosen by the last successor and stops being drawn once it looks good: delta holds at V = R."""
    task, kernel, _ = instance(21, S=2, A=2, gamma=0.9, zeros=False, supports=False, on_successor=False)
    R, runs, answers = pt.value(task, kernel), 120, []
    sim = pt.TabularSimulator(kernel)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        log, good = [], np.zeros((2, 2), dtype=int)
        s = 0
        for _ in range(300):
            a = int(good[s].argmin())
            x = int(sim.draw(np.array([s]), np.array([a]), rng)[0])
            good[s, a] += x == 0
            log.append((s, a, x))
            s = x if rng.random() < 0.7 else 1 - x
        answers.append(pt.assess(task, pt.Transitions(*map(list, zip(*log, strict=True))), R, 0.1, method).answer)
    assert not too_often(answers.count("above"), runs, 0.1)
    assert not too_often(answers.count("below"), runs, 0.1)


@pytest.mark.parametrize("method", [METHODS["rollouts"], METHODS["plain"]])
def test_counts_have_no_order(method):
    inst = pt.instances.paper(2)
    counts = pt.Counts(2, 2)
    counts.record([0, 1], [0, 0], [1, 1])
    with pytest.raises(pt.InputError, match="Transitions"):
        pt.assess(inst.task, counts, 0.0, 0.05, method)


def test_recorded_transitions_outside_the_support_are_refused():
    task = pt.Task(
        [[1.0], [0.0], [2.0]], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9, np.array([[[1, 1, 0]]] * 3, dtype=bool)
    )
    data = pt.Transitions([0] * 40, [0] * 40, [2] * 40)
    with pytest.raises(pt.InputError, match="support"):
        pt.assess(task, data, 5.0, 0.05, METHODS["rollouts"])


@pytest.mark.parametrize("on_successor", [False, True])
@pytest.mark.parametrize("kind", [pt.TabularSimulator, Counting])
def test_simulators_that_leave_the_support_are_refused(kind, on_successor):
    support = np.ones((3, 1, 3), dtype=bool)
    support[0, 0, 2] = False
    rewards = np.array([[[1.0, 1.0, 9.0]], [[0.0] * 3], [[2.0] * 3]])
    task = pt.Task(rewards if on_successor else rewards[..., 0], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9, support)
    with pytest.raises(pt.InputError, match="support"):
        pt.decide(task, kind(np.full((3, 1, 3), 1 / 3)), 9.0, 0.05, METHODS["rollouts"], max_samples=300)


@every_method
def test_counts_of_a_fixed_design(method):
    """An average of e-values over random orders: at V = R rarely large, and large where the value is far away."""
    inst = pt.instances.paper(2)
    value, (low, _) = pt.value(inst.task, inst.kernel), pt.value_range(inst.task)
    rng, sim = np.random.default_rng(5), pt.TabularSimulator(inst.kernel)
    s, a = np.repeat([0, 0, 1, 1], 150), np.tile(np.repeat([0, 1], 150), 2)
    crossed = 0
    for _ in range(15):
        counts = pt.Counts(2, 2)
        counts.record(s, a, sim.draw(s, a, rng))
        at = pt.assess(inst.task, counts, value, 0.1, method, design="fixed")
        crossed += at.answer is not None
        assert np.isfinite(at.evidence).all()
        assert 0 <= at.p_value <= 1
    far = pt.assess(inst.task, counts, value + 0.7 * (low - value), 0.1, method, design="fixed")
    assert not too_often(crossed, 15, 0.2)
    assert far.answer == "above"
    assert far.samples == 600


# ---------------------------------------------------------------- combined


@pytest.mark.parametrize("seed", range(12))
def test_the_task_of_one_action_has_the_same_value(seed):
    task, kernel, rng = instance(seed)
    reduced = one_action(task)
    if reduced is task:
        assert task.rewards_on_successor or task.n_actions == 1 or (task.known_rows & (task.policy > 0)).any()
        return
    for q in (kernel, *extreme_kernels(task, rng, 5)):
        rows = np.einsum("sa,sax->sx", task.policy, q)[:, None, :]
        assert pt.value(reduced, rows) == pytest.approx(pt.value(task, q), abs=1e-9)
    allowed = ((task.policy > 0)[..., None] & np.asarray(task.support)).any(axis=1)
    assert (np.asarray(reduced.support)[:, 0] == allowed).all()


def test_some_random_tasks_are_reduced():
    assert sum(one_action(instance(seed)[0]) is not instance(seed)[0] for seed in range(40)) > 0
    task = instance(3, S=3, A=2, supports=False, on_successor=False)[0]
    assert one_action(task).n_actions == 1


def test_the_evidence_of_the_combination():
    """log(weight e_bet + (1-weight) e_KL), the KL part from its own definition on the counts of the rollouts."""
    inst = pt.instances.paper(2)
    task, method = inst.task, pt.Combined(weight=0.6)
    run = make_run(task, inst.kernel, 0.0, method, rng=1)
    while run.answer is None:
        run.step(-math.log(1e-12), 100_000)
    assert run.walker[0] == 0
    state_counts = run.counts().N.sum(axis=1)
    assert (run.rule.tally.counts().N[:, 0] == state_counts).all()
    reduced = one_action(task)
    alone = pt.Counts(2, 1)
    for s, x in np.argwhere(state_counts):
        alone.record([s], [0], [x], [int(state_counts[s, x])])
    visits = alone.visits
    bracket = pt.nearest_kernel(reduced, alone.N / visits[..., None], visits, 0.0)
    dimension = level_of(pt.MixtureBoundary(), alone, 0.05, reduced) - math.log(20)
    bet = np.log((np.exp(run.capital) * np.exp(LOG_WEIGHTS)).sum(axis=1))
    combined = np.logaddexp(math.log(0.6) + bet[0], math.log(0.4) + bracket.upper - dimension)
    assert run.evidence()[0] <= combined + 1e-6
    lower = run.rule.finding.distance.lower  # evidence is what the certificate proves
    proved = np.logaddexp(math.log(0.6) + bet[0], math.log(0.4) + lower - dimension)
    assert run.evidence()[0] == pytest.approx(proved, abs=1e-9)
    assert run.evidence()[0] >= -math.log(1e-12)
    assert run.rollouts > 10


def test_kl_decides_at_tiny_delta_and_is_certified():
    inst = pt.instances.paper(2)
    verdict = pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0, 1e-40, METHODS["combined"])
    alone = pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0, 1e-40, METHODS["rollouts"])
    assert verdict.answer == alone.answer == "above"
    assert verdict.certified
    assert max(verdict.evidence) >= 40 * math.log(10)
    assert verdict.samples < alone.samples


@every_method
def test_answers_are_given_at_ends_of_rollouts(method):
    task, kernel, R = question(3)
    for seed in range(12):
        run = make_run(task, kernel, R, method, rng=seed)
        while run.answer is None:
            run.step(3.0, 1)
        assert run.walker[0] == 0
        assert max(run.evidence()) >= 3.0


def test_with_many_parameters_betting_is_alone():
    inst = pt.instances.random(3, 12, 2)
    value, low = pt.value(inst.task, inst.kernel), pt.value_range(inst.task)[0]
    R = value + 0.2 * (low - value)
    first, second = (
        pt.decide(inst.task, pt.TabularSimulator(inst.kernel), R, 0.05, METHODS[m], rng=3)
        for m in ("rollouts", "combined")
    )
    same(first, second)
    assert second.solves == 0
    assert make_run(inst.task, inst.kernel, R, METHODS["combined"]).rule is None
    assert make_run(*question(2), METHODS["combined"]).rule is not None


def test_wrong_settings_are_refused():
    for wrong in (lambda: pt.TDBetting(draws=0), lambda: pt.TDBetting(draws=1.5), lambda: pt.Combined(weight=1.0)):
        with pytest.raises(pt.InputError):
            wrong()
