"""Comparing two policies, and selecting one: the validity of a coupled rollout exactly, and what is built from them."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import optimize, sparse, stats

import policytest as pt
from policytest._base.compiled import rollouts as kernels
from policytest.methods.betting.coupled import LOG_WEIGHTS, MULTIPLES, STEADY, CoupledRun
from policytest.methods.betting.coupling import Half, Pool, maximal_coupling
from policytest.methods.known_range import known_difference
from policytest.questions.compare import compare
from policytest.questions.identify import identify
from policytest.questions.identify.deviations import BettingSearch, Candidate

BETS = np.concatenate([STEADY, 0.1 * MULTIPLES])
GAMMAS = (0.0, 0.5, 0.9, 0.99)
signs = pytest.mark.parametrize("sign", [1.0, -1.0])


def a_policy(rng, S, A, zeros):
    policy = rng.dirichlet(np.ones(A), size=S)
    if zeros:
        policy = np.where((rng.random((S, A)) < 0.3) & (policy < policy.max(axis=1, keepdims=True)), 0.0, policy)
    return policy / policy.sum(axis=1, keepdims=True)


def two_tasks(seed, S=None, A=2, gamma=None, supports=True, zeros=True, on_successor=None):
    """Two policies, with rewards of their own, in one kernel with rows of all widths; in one state they agree."""
    rng = np.random.default_rng(seed)
    S = S or int(rng.integers(2, 5))
    gamma = GAMMAS[seed % 4] if gamma is None else gamma
    support = rng.random((S, A, S)) < 0.6 if supports else np.ones((S, A, S), dtype=bool)
    support[np.arange(S)[:, None], np.arange(A), rng.integers(S, size=(S, A))] = True
    initial = rng.dirichlet(np.ones(S))
    policies = [a_policy(rng, S, A, zeros) for _ in range(2)]
    policies[1][0] = policies[0][0]
    on = [bool(rng.integers(2)) for _ in range(2)] if on_successor is None else [on_successor] * 2
    tasks = [
        pt.Task(rng.normal(size=(S, A, S) if here else (S, A)), p, initial, gamma, support if supports else None)
        for p, here in zip(policies, on, strict=True)
    ]
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * support
    return *tasks, kernel / kernel.sum(axis=2, keepdims=True), rng


def extreme_kernels(task, rng, count):
    """Deterministic kernels within the support."""
    S, A = task.n_states, task.n_actions
    support = np.ones((S, A, S), dtype=bool) if task.support is None else np.asarray(task.support)
    for _ in range(count):
        yield np.eye(S)[np.where(support, rng.random((S, A, S)), -1.0).argmax(axis=2)]


def make_run(task_a, task_b, kernel, margin=0.0, rng=0):
    return CoupledRun(task_a, task_b, margin, Pool([task_a, task_b], pt.TabularSimulator(kernel), rng))


def arbitrary_half(side, rng, sign):
    """Any V0 and any centred advantages, with residuals [S,A,S] written out independently."""
    task, rows, S = side.task, side.pool.tally.rows, side.task.n_states
    V = rng.normal(scale=rng.choice([0.0, 0.3, 3.0]), size=S)
    eta = rng.normal(scale=rng.choice([0.0, 1.0]), size=task.policy.shape)
    eta -= (task.policy * eta).sum(axis=1, keepdims=True)
    if task.rewards_on_successor:
        base, D = -eta, task.rewards - eta[..., None]
    else:
        base = (task.policy * task.rewards).sum(axis=1, keepdims=True) - eta
        D = np.repeat(base[..., None], S, axis=2)
    base = base.ravel()[rows.pair]
    D = sign * (D + task.discount * V - V[:, None, None])
    return Half(V, side.worst(V, base, sign), base, side.gain), D


def arbitrary_plan(run, rng, sign):
    (a, D_a), (b, D_b) = arbitrary_half(run.a, rng, sign), arbitrary_half(run.b, rng, -sign)
    return run.joined(a, b, sign)._replace(bets=BETS), D_a, D_b


def rollouts(run, plan, u):
    """The sums of the rollouts that the compiled code makes of these random numbers."""
    sums, size = np.empty(len(u)), len(u)
    places = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
    capital = np.zeros(len(LOG_WEIGHTS))
    _, used, steps, samples, ended, *_ = kernels.bet_coupled(
        run._world(), (tuple(plan.a), tuple(plan.b), *plan[2:6]), (plan.bets, LOG_WEIGHTS, capital), np.zeros(6),
        run.source.arrays(), u, (np.inf, 2**62, np.inf), *places, sums,
    )  # fmt: skip
    assert used == size
    assert samples <= steps <= used
    return sums[:ended], capital


def chance(weight, budget, least):
    """Of going on: with the largest weight, at most 50 and ten times the present one, that keeps S above -L."""
    target = min(50.0, budget / -least) if least < 0 else 50.0
    return min(1.0, max(0.1, weight / target)) if target > 0 else 1.0


def errors(run, kernel, plan):
    """sign (V^A - V0_A) and -sign (V^B - V0_B): what is still to come, for each policy."""
    first = pt.state_values(run.a.task, kernel) - plan.a.V[: run.task.n_states]
    second = pt.state_values(run.b.task, kernel) - plan.b.V[: run.task.n_states]
    return plan.sign * first, -plan.sign * second


class Enumeration:
    """The mean of S at the end of a rollout, over all actions, successors and coins. Every path is held against -L.

    A path is (probability, phase, x, S, weight, y, weight of B). Paths of tiny probability count with their mean.
    """

    def __init__(self, run, kernel, plan, D_a, D_b, in_turn=False):
        self.run, self.kernel, self.plan, self.D_a, self.D_b = run, kernel, plan, D_a, D_b
        self.gamma, self.in_turn = run.a.task.discount, in_turn
        self.E_a, self.E_b = errors(run, kernel, plan)
        self.total, self.paths, self.nodes = 0.0, [], 0
        self.slack, self.least = 1e-9 * (1 + plan.L), 1e-3 if self.gamma > 0.95 else 1e-5

    def coin(self, p, earned, weight, budget, least, on, off):
        """Go on to `on(p, earned, weight)`, or to `off(p, earned)`."""
        assert earned >= -self.plan.L - self.slack
        g = chance(weight, budget, least)
        if g < 1:
            off(p * (1 - g), earned)
        after = weight / g
        assert budget + after * least >= -self.slack
        if after < 1e-3:
            off(p * g, earned + after * least)
        else:
            on(p * g, earned, after)

    def finish(self, p, earned):
        self.total += p * earned

    def join(self, p, s, earned, weight):
        def on(p, earned, weight):
            self.paths.append((p, "together", s, earned, weight, -1, 0.0))

        self.coin(p, earned, weight, earned + self.plan.L, self.plan.B[s], on, self.finish)

    def a_alone(self, p, x, earned, w_a, y, w_b):
        reserve = w_b * self.plan.b.B[y]

        def on(p, earned, w_a):
            self.paths.append((p, "a", x, earned, w_a, y, w_b))

        def off(p, earned):
            self.b_alone(p, earned, y, w_b)

        self.coin(p, earned, w_a, earned + self.plan.L + reserve, self.plan.a.B[x], on, off)

    def b_alone(self, p, earned, y, w_b):
        def on(p, earned, w_b):
            self.paths.append((p, "b", -1, earned, 0.0, y, w_b))

        self.coin(p, earned, w_b, earned + self.plan.L, self.plan.b.B[y], on, self.finish)

    def both(self, p, x, earned, weight, y):
        """In turn, with one weight; nothing is left to differ where they meet."""

        def on(p, earned, weight):
            self.paths.append((p, "turn", x, earned, weight, y, weight))

        if x == y:
            assert earned >= -self.plan.L - self.slack
            self.finish(p, earned)
        else:
            self.coin(p, earned, weight, earned + self.plan.L, self.plan.a.B[x] + self.plan.b.B[y], on, self.finish)

    def part(self, p, s, earned, weight, first, second):
        """Each takes an action of its own from s: a from `first`, b from `second`."""
        real, after = self.run._tables()[1][s], self.gamma * weight
        for a, x in np.argwhere(first[:, None] * self.kernel[real] > 0):
            for b, y in np.argwhere(second[:, None] * self.kernel[real] > 0):
                self.nodes += 1
                q = p * first[a] * self.kernel[real, a, x] * second[b] * self.kernel[real, b, y]
                now = earned + weight * (self.D_a[s, a, x] + self.D_b[s, b, y])
                if self.in_turn:
                    self.both(q, x, now, after, y)
                else:
                    self.a_alone(q, x, now, after, y, after)

    def mean(self):
        for s in np.flatnonzero(self.run.a.task.initial > 0):
            self.join(self.run.a.task.initial[s], int(s), 0.0, 1.0)
        return self.rest()

    def rest(self):
        """From the paths at hand on."""
        policies = self.run.a.task.policy, self.run.b.task.policy
        coupling = None if self.in_turn else self.run.coupling
        while self.paths:
            p, phase, x, earned, w_a, y, w_b = self.paths.pop()
            if p < self.least:
                expected = {"together": w_a * (self.E_a[x] + self.E_b[x]), "b": w_b * self.E_b[y]}
                self.total += p * (earned + expected.get(phase, w_a * self.E_a[x] + w_b * self.E_b[y]))
                continue
            if phase == "turn":
                self.turn(p, x, earned, w_a, y, *policies)
                continue
            s = y if phase == "b" else x
            law = coupling.common if phase == "together" else policies[phase == "b"]
            for a, z in np.argwhere(law[s][:, None] * self.kernel[s] > 0):
                self.nodes += 1
                q = p * law[s, a] * self.kernel[s, a, z]
                if phase == "together":
                    gain = self.D_a[s, a, z] + self.D_b[s, a, z]
                    self.join(q, z, earned + w_a * gain, self.gamma * w_a)
                elif phase == "a":
                    self.a_alone(q, z, earned + w_a * self.D_a[s, a, z], self.gamma * w_a, y, w_b)
                else:
                    self.b_alone(q, earned + w_b * self.D_b[s, a, z], z, self.gamma * w_b)
            rest = coupling.first[s].sum()
            if phase == "together" and rest > 0:
                self.part(p * rest, s, earned, w_a, coupling.first[s] / rest, coupling.second[s] / rest)
        assert self.nodes < 2_000_000
        return self.total

    def turn(self, p, x, earned, weight, y, policy_a, policy_b):
        after = self.gamma * weight
        for a, s in np.argwhere(policy_a[x][:, None] * self.kernel[x] > 0):
            for b, z in np.argwhere(policy_b[y][:, None] * self.kernel[y] > 0):
                self.nodes += 1
                q = p * policy_a[x, a] * self.kernel[x, a, s] * policy_b[y, b] * self.kernel[y, b, z]
                now = earned + weight * (self.D_a[x, a, s] + self.D_b[y, b, z])
                self.both(q, s, now, after, z)


def shortfall(run, kernel, plan):
    """The most that ending at weights below 1e-3 can cost: once together, or once for each alone."""
    E_a, E_b = errors(run, kernel, plan)
    S = run.task.n_states
    alone = max((E_a - plan.a.B).max(), 0.0) + max((E_b - plan.b.B).max(), 0.0)
    return 1e-3 * max(alone, (E_a + E_b - plan.B[:S]).max(), 0.0)


# ---------------------------------------------------------------- one rollout


@pytest.mark.parametrize("seed", range(10))
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


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("supports", [True, False])
@signs
def test_worst_paths_are_below_every_step_every_parting_and_every_value(seed, supports, sign):
    task_a, task_b, kernel, rng = two_tasks(seed, supports=supports)
    run = make_run(task_a, task_b, kernel, 0.3)
    plan, D_a, D_b = arbitrary_plan(run, rng, sign)
    allowed = np.ones(kernel.shape, dtype=bool) if task_a.support is None else np.asarray(task_a.support)
    coupling, gamma = run.coupling, task_a.discount
    for s in range(task_a.n_states):
        assert plan.B[s] <= 0
        for a, x in np.argwhere(allowed[s] & (coupling.common[s] > 0)[:, None]):
            assert plan.B[s] <= D_a[s, a, x] + D_b[s, a, x] + gamma * plan.B[x] + 1e-12
        for a, x in np.argwhere(allowed[s] & (coupling.first[s] > 0)[:, None]):
            for b, y in np.argwhere(allowed[s] & (coupling.second[s] > 0)[:, None]):
                alone = D_a[s, a, x] + gamma * plan.a.B[x] + D_b[s, b, y] + gamma * plan.b.B[y]
                assert plan.B[s] <= alone + 1e-12
    for q in (kernel, *extreme_kernels(task_a, rng, 10)):
        E_a, E_b = errors(run, q, plan)
        assert (E_a + E_b + 1e-9 >= plan.B).all()
    assert (plan.B + 1e-7 * (1 + plan.L) >= plan.a.B + plan.b.B).all()  # together nothing is worse than apart
    assert -plan.B[task_a.initial > 0].min() <= plan.L


@pytest.mark.parametrize("seed", range(6))
def test_joint_worst_paths_are_not_lower_than_they_must_be(seed):
    task_a, task_b, kernel, rng = two_tasks(seed, supports=seed % 2 == 0)
    run = make_run(task_a, task_b, kernel)
    plan, D_a, D_b = arbitrary_plan(run, rng, 1.0)
    allowed = np.ones(kernel.shape, dtype=bool) if task_a.support is None else np.asarray(task_a.support)
    common, gamma = allowed & (run.coupling.common > 0)[..., None], task_a.discount
    apart = np.zeros(task_a.n_states)
    for D, B, law in ((D_a, plan.a.B, run.coupling.first), (D_b, plan.b.B, run.coupling.second)):
        apart += np.where(allowed & (law > 0)[..., None], D + gamma * B, np.inf).min(axis=(1, 2))
    B = np.zeros(task_a.n_states)
    for _ in range(4000):
        B = np.minimum(np.minimum(0.0, apart), np.where(common, D_a + D_b + gamma * B, np.inf).min(axis=(1, 2)))
    assert pytest.approx(B, abs=1e-8 * (1 + np.abs(B).max())) == plan.B


@signs
@pytest.mark.parametrize(("gamma", "S"), [(0.0, 2), (0.3, 2), (0.5, 2), (0.0, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_the_mean_of_a_coupled_rollout_exactly(seed, gamma, S, sign):
    task_a, task_b, kernel, rng = two_tasks(seed, S=S, gamma=gamma)
    run = make_run(task_a, task_b, kernel, 0.1)
    plan, D_a, D_b = arbitrary_plan(run, rng, sign)
    bound = sign * (pt.value(task_a, kernel) - pt.value(task_b, kernel) - 0.1) - plan.lead
    mean = Enumeration(run, kernel, plan, D_a, D_b).mean()
    assert bound - shortfall(run, kernel, plan) - 1e-8 <= mean <= bound + 1e-8


@signs
@pytest.mark.parametrize("gamma", GAMMAS)
@pytest.mark.parametrize("seed", range(3))
def test_the_mean_under_adversarial_kernels_exactly(seed, gamma, sign):
    """Deterministic kernels, deterministic policies that agree in one state only: long paths, and few of them."""
    task_a, task_b, _, rng = two_tasks(seed, S=3, gamma=gamma)
    first = np.eye(2)[rng.integers(2, size=3)]
    policies = first, np.where(np.arange(3)[:, None] == seed, first, 1.0 - first)
    tasks = [
        pt.Task(t.rewards, p, t.initial, gamma, t.support) for t, p in zip((task_a, task_b), policies, strict=True)
    ]
    for q in extreme_kernels(task_a, rng, 4):
        run = make_run(*tasks, q, -0.4)
        plan, D_a, D_b = arbitrary_plan(run, rng, sign)
        bound = sign * (pt.value(tasks[0], q) - pt.value(tasks[1], q) + 0.4) - plan.lead
        mean = Enumeration(run, q, plan, D_a, D_b).mean()
        assert bound - shortfall(run, q, plan) - 1e-8 <= mean <= bound + 1e-8


@signs
@pytest.mark.parametrize("seed", range(8))
def test_no_coupled_rollout_falls_below_its_range(seed, sign):
    task_a, task_b, kernel, rng = two_tasks(seed, A=3)
    for q in (kernel, *extreme_kernels(task_a, rng, 2)):
        run = make_run(task_a, task_b, q, -0.2)
        plan, _, _ = arbitrary_plan(run, rng, sign)
        sums, _ = rollouts(run, plan, rng.random((30_000, 3)))
        assert len(sums) > 50
        assert sums.min() >= -plan.L - 1e-12 * (1 + plan.L)
        mean = sign * (pt.value(task_a, q) - pt.value(task_b, q) + 0.2) - plan.lead
        assert sums.mean() <= mean + 4.5 * sums.std() / math.sqrt(len(sums)) + 1e-9


@pytest.mark.parametrize("seed", range(8))
def test_compiled_rollouts_are_those_of_the_definition(seed):
    task_a, task_b, kernel, rng = two_tasks(seed, A=2 + seed % 3)
    run = make_run(task_a, task_b, kernel)
    plan, D_a, D_b = arbitrary_plan(run, rng, -1.0 if seed % 2 else 1.0)
    u = rng.random((4000, 3))
    found, capital = rollouts(run, plan, u)
    sums = replayed(run, kernel, plan, D_a, D_b, iter(u))
    assert found == pytest.approx(sums, abs=1e-9)
    ratios = np.outer((plan.lead + np.array(sums)) / plan.room, BETS)
    if plan.room > 0 and (ratios > -1).all():
        assert capital == pytest.approx(np.log1p(ratios).sum(axis=0), abs=1e-6)


def replayed(run, kernel, plan, D_a, D_b, u):
    """The definition in plain words, with the same random numbers: one row for each start, step and coin of B."""
    coupling, L, gamma = run.coupling, plan.L, run.a.task.discount
    support, A, sums = np.asarray(run.a.task.support), run.task.n_actions, []

    def pick(weights, number):
        return int(np.flatnonzero((np.cumsum(weights) > number * np.sum(weights)) & (weights > 0))[0])

    def successor(s, a, number):
        return int(np.argmax(support[s, a])) if support[s, a].sum() == 1 else pick(kernel[s, a], number)

    def tossed(weight, budget, least, number):
        """(ended, weight, what is added at the end)."""
        g = chance(weight, budget, least)
        if number >= g:
            return True, 0.0, 0.0
        return (True, 0.0, weight / g * least) if weight / g < 1e-3 else (False, weight / g, 0.0)

    def alone(s, weight, S, D, B, policy, reserve):
        while True:
            row = next(u)
            a = pick(policy[s], row[0])
            x = successor(s, a, row[1])
            S, s = S + weight * D[s, a, x], x
            ended, weight, extra = tossed(gamma * weight, S + L + reserve, B[s], row[2])
            S += extra
            if ended:
                return S

    try:
        while True:
            row = next(u)
            s, S = pick(run.a.task.initial, row[0]), 0.0
            ended, weight, _ = tossed(1.0, L, plan.B[s], row[1])
            while not ended:
                row = next(u)
                choice = pick(np.concatenate([coupling.common[s], coupling.first[s]]), row[0])
                a = choice % A
                x = successor(s, a, row[1])
                S += weight * D_a[s, a, x]
                if choice < A:
                    S += weight * D_b[s, a, x]
                    s = x
                    ended, weight, extra = tossed(gamma * weight, S + L, plan.B[s], row[2])
                    S += extra
                    continue
                row = next(u)
                b = pick(coupling.second[s], row[0])
                y = successor(s, b, row[1])
                S, kept = S + weight * D_b[s, b, y], gamma * weight
                reserve = kept * plan.b.B[y]
                ended, mine, extra = tossed(kept, S + L + reserve, plan.a.B[x], row[2])
                S += extra
                S = S if ended else alone(x, mine, S, D_a, plan.a.B, run.a.task.policy, reserve)
                ended, mine, extra = tossed(kept, S + L, plan.b.B[y], next(u)[2])
                S += extra
                S = S if ended else alone(y, mine, S, D_b, plan.b.B, run.b.task.policy, 0.0)
                ended = True
            sums.append(S)
    except StopIteration:
        return sums


@pytest.mark.parametrize("seed", range(8))
def test_fitted_plans_are_sound(seed):
    task_a, task_b, kernel, _ = two_tasks(seed)
    run = make_run(task_a, task_b, kernel, 0.2)
    for _ in range(6):
        run.step(np.inf, 200)
        rows, plan = run.tally.rows, run.plan
        halves = [(run.a, plan.a), (run.b, plan.b)]
        for side, half in halves:
            mean = np.bincount(rows.state, side.prob * half.base, minlength=task_a.n_states)
            on_pairs = 0.0 if side.on_successor else (side.task.policy * side.task.rewards).sum(axis=1)
            assert mean == pytest.approx(on_pairs, abs=1e-9)
        again = run.joined(*(half for _, half in halves), plan.sign)
        assert plan.L >= again.L - 1e-12
        assert plan.lead == pytest.approx(plan.sign * float(task_a.initial @ (plan.a.V - plan.b.V)))
        assert ((plan.bets > 0) & (plan.bets < 1)).all()
        assert np.exp(LOG_WEIGHTS).sum() == pytest.approx(1.0)


@signs
@pytest.mark.parametrize("seed", range(8))
def test_without_partings_joint_paths_are_those_of_one_policy(seed, sign):
    task, _, _, rng = two_tasks(seed)
    rows, V = task.layout.rows, rng.normal(size=task.n_states)
    base, nowhere = rng.normal(size=len(rows.pair)), np.full(task.n_states, np.inf)
    mine = kernels.coupled_paths(rows, base, V, nowhere, sign, task.discount)
    assert mine == pytest.approx(kernels.worst_paths(rows, base, V, sign, task.discount), rel=1e-9, abs=1e-9)


def test_a_rollout_that_is_cut_short_goes_on():
    """One sample at a time, or all at once: the same run. Within a rollout evidence is what is left at worst."""
    task_a, task_b, kernel = tie(2, S=3, gamma=0.9, supports=False)
    whole, parts = (make_run(task_a, task_b, kernel, 0.0, 5) for _ in range(2))
    while whole.samples < 300:
        whole.step(np.inf, 300 - whole.samples)
    phases, before = set(), parts.evidence()
    while parts.samples < 300:
        parts.step(np.inf, 1)
        phases.add(float(parts.walker[0]))
        assert np.isfinite(parts.evidence()).all()
    assert (parts.capital == whole.capital).all()
    assert (parts.walker == whole.walker).all()
    assert parts.evidence() == whole.evidence() != before
    assert {kernels.TOGETHER, kernels.A_ALONE, kernels.B_ALONE, kernels.B_PARTS} <= phases


# ---------------------------------------------------------------- error probabilities


def too_often(count, runs, delta):
    return stats.binom.sf(count - 1, runs, delta) < 1e-4


def rare_reward():
    """A takes one action, B the other. They are alike under the kernel: one transition in a hundred is worth much."""
    rewards = np.tile([0.0, 50.0], (2, 2, 1))
    kernel = np.tile([0.99, 0.01], (2, 2, 1))
    a, b = np.tile([1.0, 0.0], (2, 1)), np.tile([0.0, 1.0], (2, 1))
    return *(pt.Task(rewards, p, [1.0, 0.0], 0.5, np.ones((2, 2, 2), dtype=bool)) for p in (a, b)), kernel


def mixed_to_a_tie(task, low, high, kernel):
    """The mixture of two policies that is as good as the policy of the task."""

    def of(share):
        return pt.Task(
            task.rewards, share * high + (1 - share) * low, task.initial, task.discount, task.support, normalise=True
        )

    value = pt.value(task, kernel)
    share = optimize.brentq(lambda share: pt.value(of(share), kernel) - value, 0.0, 1.0, xtol=1e-15)
    return of(share)


def tie(seed, **settings):
    """Two different policies that are as good under the kernel."""
    task, _, kernel, _ = two_tasks(seed, zeros=False, on_successor=False, **settings)
    Q = task.rewards + task.discount * kernel @ pt.state_values(task, kernel)
    best, worst = np.eye(task.n_actions)[Q.argmax(axis=1)], np.eye(task.n_actions)[Q.argmin(axis=1)]
    return task, mixed_to_a_tie(task, worst, best, kernel), kernel


def calibration_cases():
    yield "rare", *rare_reward(), 0.0
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
    sim, runs, delta = pt.TabularSimulator(kernel), 80, 0.1
    answers = [compare(task_a, task_b, sim, delta, margin, rng=r, max_samples=300).answer for r in range(runs)]
    assert not too_often(answers.count("above"), runs, delta)
    assert not too_often(answers.count("below"), runs, delta)


@signs
def test_near_ties_err_at_most_as_often_as_delta_allows(sign):
    task_a, task_b, kernel = tie(2, S=3, gamma=0.9, supports=False)
    low, high = known_difference(task_a, task_b).low, known_difference(task_a, task_b).high
    margin, sim = sign * 1e-3 * (high - low), pt.TabularSimulator(kernel)
    answers = [compare(task_a, task_b, sim, 0.1, margin, rng=r, max_samples=300).answer for r in range(80)]
    assert not too_often(answers.count("above" if sign > 0 else "below"), 80, 0.1)


def test_too_small_a_range_is_caught():
    """The control: with a quarter of the range, factors cut off at 0, the same bets err far more often than delta."""
    task_a, task_b, kernel = rare_reward()
    run = make_run(task_a, task_b, kernel)
    runs, zero, crossed = 200, np.zeros(2), {1.0: 0, 0.25: 0}
    for sign in (1.0, -1.0):
        plan = run._coupled_plan((zero, zero), None, sign, 0.0)
        every = [
            rollouts(run, plan._replace(bets=BETS), np.random.default_rng(r).random((500, 3)))[0] for r in range(runs)
        ]
        for part in crossed:
            count = 0
            for sums in every:
                factors = np.maximum(1.0 + np.outer((plan.lead + sums) / (part * plan.L - plan.lead), BETS), 1e-9)
                capital = np.logaddexp.reduce(np.cumsum(np.log(factors), axis=0) + LOG_WEIGHTS, axis=1)
                count += capital.max() >= -math.log(0.1)
            crossed[part] = max(crossed[part], count)
    assert not too_often(crossed[1.0], runs, 0.1)
    assert too_often(crossed[0.25], runs, 0.1)


def test_intervals_hold_the_difference():
    task_a, task_b, kernel = tie(2, S=3, gamma=0.9, supports=False)
    known, missed, widths = known_difference(task_a, task_b), 0, []
    for seed in range(40):
        run = make_run(task_a, task_b, kernel, 0.2, seed)
        ends = []
        for _ in range(5):
            run.step(np.inf, 400)
            ends.append(run.interval(-math.log(0.1)))
        bottom, top = np.array(ends).T
        assert (bottom >= known.low - 1e-9).all()
        assert (top <= known.high + 1e-9).all()
        missed += bool((bottom > 1e-12).any() or (top < -1e-12).any())
        widths.append((top - bottom)[[0, -1]])
    assert not too_often(missed, 40, 0.1)
    assert np.mean(widths, axis=0)[1] < np.mean(widths, axis=0)[0]


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
    other = pt.Task(inst.task.rewards, inst.alternative_policy, inst.task.initial, 0.9)
    verdict = compare(inst.task, other, pt.TabularSimulator(inst.kernel), margin=-0.3, max_samples=20_000, delta=1e-200)
    model = verdict.counts.kernel()
    assert verdict.answer is None
    assert verdict.estimate == pytest.approx(pt.value(inst.task, model) - pt.value(other, model), abs=1e-9)
    assert verdict.interval[0] < verdict.estimate < verdict.interval[1]


def test_swapping_the_policies_mirrors_the_answer():
    inst = pt.instances.paper(2)
    other = pt.Task(inst.task.rewards, inst.alternative_policy, inst.task.initial, 0.9)
    sim = pt.TabularSimulator(inst.kernel)
    assert compare(inst.task, other, sim).answer == "above"
    assert compare(other, inst.task, sim).answer == "below"
    assert compare(inst.task, other, sim, margin=0.6).answer == "below"


def test_action_costs_can_turn_the_answer():
    inst = pt.instances.paper(2)
    other = pt.Task(inst.task.rewards, inst.alternative_policy, inst.task.initial, 0.9)
    dear = pt.Task(inst.task.rewards - 0.05, inst.task.policy, inst.task.initial, 0.9)
    assert compare(dear, other, pt.TabularSimulator(inst.kernel)).answer == "below"
    same = pt.Task(inst.task.rewards - 0.05, inst.task.policy, inst.task.initial, 0.9)
    assert compare(inst.task, same, pt.TabularSimulator(inst.kernel), margin=0.4).answer == "above"


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
    inst = pt.instances.paper(2)
    other = pt.Task(inst.task.rewards, inst.alternative_policy, inst.task.initial, 0.9)
    table, calls = pt.TabularSimulator(inst.kernel), []

    def draw(states, actions, rng):
        calls.append(len(states))
        return table.draw(states, actions, rng)

    verdict = compare(inst.task, other, draw)
    assert verdict.answer == "above"
    assert sum(calls) == verdict.samples == verdict.counts.total
    few = compare(inst.task, other, draw, max_samples=37)
    assert (few.answer, few.samples, few.certified) == (None, 37, False)
    assert "samples" in few.reason


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
    pool = Pool(tasks, pt.TabularSimulator(kernel), 0)
    assert pool.tally.is_open
    run = CoupledRun(*tasks, 0.0, pool)
    for _ in range(400):
        if run.answer is None:
            run.step(3.0, 100_000)
    assert run.answer == "above"
    closed = CoupledRun(*tasks, 0.0, Pool(tasks, pt.TabularSimulator(kernel), 0, 10**9))
    for sign in (1.0, -1.0):
        V = rng.normal(size=(2, S))
        plans = [r._coupled_plan((V[0], V[1]), None, sign, 0.0) for r in (run, closed)]
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
    verdict = compare(*tasks, pt.TabularSimulator(kernel))
    assert verdict.answer == "above"
    visits = verdict.counts.visits
    assert visits[1, 0] == visits.sum() == verdict.samples > 0


def test_answers_without_samples():
    inst = pt.instances.paper(2)
    task, sim = inst.task, pt.TabularSimulator(inst.kernel)
    for margin, answer in ((-0.1, "above"), (0.1, "below"), (0.0, None)):
        verdict = compare(task, task, sim, margin=margin)
        assert (verdict.answer, verdict.samples, verdict.estimate) == (answer, 0, 0.0)
        assert verdict.interval == (0.0, 0.0)
        assert bool(verdict.reason) == (answer is None)
        assert verdict.certified == (answer is not None)
    better = pt.Task(task.rewards + 10.0, inst.alternative_policy, task.initial, 0.9)
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"initial": [1.0, 0.0]}, "initial"),
        ({"discount": 0.8}, "discount"),
        ({"support": np.ones((2, 2, 2), dtype=bool)}, "support"),
    ],
)
def test_tasks_that_differ_in_more_than_policy_and_rewards(changes, message):
    inst = pt.instances.paper(2)
    about = {"initial": inst.task.initial, "discount": 0.9, "support": None, **changes}
    other = pt.Task(inst.task.rewards, inst.alternative_policy, **about)
    with pytest.raises(pt.InputError, match=message):
        compare(inst.task, other, pt.TabularSimulator(inst.kernel))


def test_wrong_arguments_are_refused():
    inst = pt.instances.paper(2)
    task, sim = inst.task, pt.TabularSimulator(inst.kernel)
    other = pt.Task(task.rewards, inst.alternative_policy, task.initial, 0.9)
    for wrong in (
        lambda: compare(task, pt.instances.paper(3).task, sim),
        lambda: compare(task, sim, sim),
        lambda: compare(sim, task, sim),
        lambda: compare(task, other, sim, method=pt.Combined()),
        lambda: compare(task, other, sim, method=pt.TDBetting(draws=3)),
        lambda: compare(task, other, sim, delta=0.0),
        lambda: compare(task, other, sim, margin=np.nan),
        lambda: compare(task, other, sim, max_samples=-1),
        lambda: compare(task, other, sim, rng="x"),
        lambda: compare(task, other, "x"),
        lambda: compare(task, other, pt.TabularSimulator(pt.instances.paper(3).kernel)),
        lambda: compare(task, other, lambda s, a, rng: np.full(len(s), 7)),
    ):
        with pytest.raises(pt.InputError):
            wrong()
    assert compare(task, other, sim, method=pt.TDBetting()).answer == "above"


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
    sim, runs, answered, wrong = pt.TabularSimulator(kernel), 25, 0, 0
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


def optimal(rewards, kernel, gamma):
    """The optimal actions, by value iteration."""
    expected = rewards if rewards.ndim == 2 else (kernel * rewards).sum(axis=2)
    V = np.zeros(len(rewards))
    for _ in range(3000):
        Q = expected + gamma * kernel @ V
        V = Q.max(axis=1)
    return Q.argmax(axis=1), np.sort(Q, axis=1)


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
    candidate = Candidate(task, rng.integers(A, size=S), Pool([task], sim, 0, 10**9), np.ones(S, dtype=bool), 3.0)
    for _ in range(2):
        candidate.pool.tally.observe(rng.integers(S * A, size=3), np.zeros(3, dtype=np.int64), np.inf)
        candidate.pool.samples += 3
        for s in range(S):
            a = 1 - int(candidate.actions[s])
            run = candidate.test((s, a))
            plan = run._fit()
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
    start_a = np.concatenate([D, (rewards[s] + task.discount * V - plan.a.V[S])[None]])
    start_b = -np.concatenate([D, (rewards[s] + task.discount * V - plan.b.V[S])[None]])
    walk = Enumeration(run, kernel, plan, start_a, start_b, in_turn=True)
    first, second = task.policy[s], np.eye(task.n_actions)[a]

    def on(p, earned, weight):
        walk.part(p, S, earned, weight, first, second)

    walk.coin(1.0, 0.0, 1.0, plan.L, plan.B[S], on, walk.finish)
    return walk.rest()


@pytest.mark.parametrize("seed", range(3))
def test_no_deviation_falls_below_its_range(seed):
    rng = np.random.default_rng(seed)
    S, A = 4, 3
    kernel, rewards = rng.dirichlet(np.ones(S), size=(S, A)), rng.normal(size=(S, A))
    task = pt.Task(rewards, np.full((S, A), 1 / A), np.full(S, 1 / S), 0.9)
    for q in (kernel, *extreme_kernels(task, rng, 2)):
        pool = Pool([task], pt.TabularSimulator(q), seed, 10**9)
        candidate = Candidate(task, rng.integers(A, size=S), pool, np.ones(S, dtype=bool), np.inf)
        for s, a in candidate.undecided[:4]:
            run = candidate.test((s, a))
            for _ in range(3):
                run.step(np.inf, 50)
            V = pt.state_values(run.task, q)
            gap = V[s] - run.task.rewards[s, a] - 0.9 * q[s, a] @ V
            plan = run._fit()._replace(bets=BETS)
            sums, _ = rollouts(run, plan, rng.random((100_000, 3)))
            assert sums.min() >= -plan.L - 1e-12 * (1 + plan.L)
            error = sums.mean() + plan.lead - gap
            assert error <= 4.5 * sums.std() / math.sqrt(len(sums)) + 1e-6 * plan.L


def test_deviations_that_make_no_difference_are_settled_at_most_as_often_as_delta_allows():
    """Two actions that are alike under the kernel, though that is not known: gap = 0, and the candidate is optimal."""
    rng = np.random.default_rng(3)
    kernel, rewards = (
        rng.dirichlet(np.ones(3), size=(3, 1)).repeat(2, axis=1),
        rng.normal(size=(3, 1)).repeat(2, axis=1),
    )
    task, runs, crossed = pt.Task(rewards, np.full((3, 2), 0.5), np.full(3, 1 / 3), 0.8), 200, 0
    for seed in range(runs):
        pool = Pool([task], pt.TabularSimulator(kernel), seed, 10**9)
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


def test_wrong_arguments_of_identify_are_refused():
    rewards, initial, kernel, policies, _ = several(0)
    sim = pt.TabularSimulator(kernel)
    for wrong in (
        lambda: identify(rewards, initial, 0.9, sim, delta=2.0),
        lambda: identify(rewards, initial, 1.0, sim),
        lambda: identify(rewards, initial[:2], 0.9, sim),
        lambda: identify(rewards[0], initial, 0.9, sim),
        lambda: identify(np.zeros((3, 0)), initial, 0.9, sim),
        lambda: identify(rewards, initial, 0.9, sim, policies=[]),
        lambda: identify(rewards, initial, 0.9, sim, policies=3),
        lambda: identify(rewards, initial, 0.9, sim, policies=policies[0]),
        lambda: identify(rewards, initial, 0.9, sim, policies=[policies[0], 2 * policies[1]]),
        lambda: identify(rewards, initial, 0.9, sim, policies=[policies[0], policies[1][:2]]),
        lambda: identify(rewards, initial, 0.9, sim, max_samples=1.5),
        lambda: identify(rewards, initial, 0.9, "x"),
        lambda: identify(rewards, initial, 0.9, lambda s, a, rng: np.full(len(s), 9)),
    ):
        with pytest.raises(pt.InputError):
            wrong()
    with pytest.raises(pt.InputError, match=r"policies\[1\]"):
        identify(rewards, initial, 0.9, sim, policies=[policies[0], 2 * policies[1]])
