"""Sampling rules: tracking as printed, the tracking lemma, and nothing wasted on what is known."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import chi2

import policytest as pt
from builders import each
from plain import PTST, decide
from policytest._base.compiled import draws
from policytest.data.simulators import draw_function
from policytest.kl.sampling import sampling_rule, shares

ALARM = 1e-6
TWO = pt.instances.paper(2)


def naive_tracking(n: np.ndarray, omega: np.ndarray, count: int) -> list[int]:
    """Line 4 of Algorithm 1: argmin N/omega over omega > 0, ties to the first."""
    visits, chosen = n.astype(float).copy(), []
    for _ in range(count):
        best = min((k for k in range(len(omega)) if omega[k] > 0), key=lambda k: visits[k] / omega[k])
        visits[best] += 1
        chosen.append(best)
    return chosen


@st.composite
def allocations(draw, largest: int = 8):
    """Shares that sum to 1: of any size, equal ones among them, with zeros."""
    raw = draw(st.lists(st.sampled_from([0.0, 1.0, 1.0, 2.0, 0.1, 1e-6, 7.3]), min_size=1, max_size=largest))
    omega = np.array(raw)
    if not omega.any():
        omega[draw(st.integers(0, len(omega) - 1))] = 1.0
    return omega / omega.sum()


# ---------------------------------------------------------------- tracking


@given(allocations(), st.integers(0, 60), st.integers(0, 2**32))
def test_tracking_is_the_argmin_ties_to_the_first(omega, count, seed):
    for n in (np.zeros(len(omega)), np.random.default_rng(seed).integers(0, 9, size=len(omega)).astype(float)):
        before = n.copy()
        assert draws.track(n, omega, count).tolist() == naive_tracking(n, omega, count)
        np.testing.assert_array_equal(n, before)
    rng, size = np.random.default_rng(seed), 1 + seed % 9
    equal = np.full(size, 1 / size) * (rng.random(size) < 0.7)  # equal shares, from visits that differ by one
    equal[rng.integers(size)] = 1 / size
    n = rng.integers(3, 5, size=size).astype(float)
    assert draws.track(n, equal, count).tolist() == naive_tracking(n, equal, count)


@given(allocations(), st.integers(1, 200), st.integers(0, 200))
def test_tracking_in_two_parts_is_tracking_at_once(omega, count, part):
    n, part = np.zeros(len(omega)), min(part, count)
    first = draws.track(n, omega, part)
    second = draws.track(np.bincount(first, minlength=len(n)).astype(float), omega, count - part)
    np.testing.assert_array_equal(draws.track(n, omega, count), np.concatenate([first, second]))


@given(allocations(largest=30), st.integers(1, 400))
def test_the_tracking_lemma(omega, count):
    """t omega - W <= N <= t omega + 1 at every t, with W the number of positive shares."""
    chosen = draws.track(np.zeros(len(omega)), omega, count)
    N = np.cumsum(np.eye(len(omega))[chosen], axis=0)
    t, W = np.arange(1, count + 1)[:, None], (omega > 0).sum()
    assert (t * omega + 1 + 1e-9 >= N).all()
    assert (t * omega - W - 1e-9 <= N).all()
    assert (N[:, omega == 0] == 0).all()
    if count >= W:
        assert (N[W - 1, omega > 0] == 1).all()  # each once at the start


# ---------------------------------------------------------------- rules on a task


def with_known_rows() -> tuple[pt.Task, np.ndarray]:
    """Three states, two actions: a known row, and a pair that the policy never takes."""
    support = np.ones((3, 2, 3), dtype=bool)
    support[0, 1] = [False, False, True]
    rewards, policy = [[1.0, 0.2], [-0.5, 0.3], [0.4, -1.0]], [[0.6, 0.4], [1.0, 0.0], [0.3, 0.7]]
    task = pt.Task(rewards, policy, [0.5, 0.5, 0.0], 0.8, support=support)
    kernel = np.random.default_rng(8).dirichlet(np.full(3, 2.0), size=(3, 2))
    kernel[0, 1] = [0.0, 0.0, 1.0]
    return task, kernel


def matters(task: pt.Task) -> np.ndarray:
    return task.layout.unknown_pairs


def everywhere(task: pt.Task) -> np.ndarray:
    """Shares on all pairs, those that do not matter as well."""
    weights = np.random.default_rng(0).uniform(0.5, 1.0, size=task.policy.shape)
    return weights / weights.sum()


def visits(task, kernel, allocation, samples, threshold=None):
    """[S,A] the visits after this many samples of a test that cannot stop."""
    threshold = pt.value(task, kernel) if threshold is None else threshold
    method = PTST(allocation=allocation)
    sim = pt.TabularSimulator(kernel)
    verdict = decide(task, sim, threshold, delta=1e-300, method=method, rng=3, max_samples=samples)
    assert verdict.samples == samples
    return verdict.counts.visits


RULES = {
    "uniform": lambda task, kernel: "uniform",
    "shares": lambda task, kernel: everywhere(task),
    "optimal": lambda task, kernel: pt.Optimal(kernel),
    "optimal, no exploration asked": lambda task, kernel: pt.Optimal(kernel, explore=1.0),
    "adaptive": lambda task, kernel: pt.Adaptive(first=3),
}


@each("rule", RULES)
@each("samples", [3, 4, 57, 400])
def test_known_rows_and_pairs_never_taken_are_never_sampled(rule, samples):
    task, kernel = with_known_rows()
    n = visits(task, kernel, RULES[rule](task, kernel), samples, threshold=pt.value(task, kernel) - 0.05)
    assert n.sum() == samples
    assert (n[~matters(task)] == 0).all()
    assert (n[matters(task)] > 0).all() or samples < matters(task).sum()


def test_uniform_sampling_takes_the_pairs_in_turn_and_given_shares_are_tracked():
    """Over the pairs that matter; forward sampling never takes an action of probability 0."""
    task, kernel = with_known_rows()
    assert (visits(task, kernel, pt.Forward(), 3000)[task.policy == 0] == 0).all()
    for samples in (1, 4, 6, 57):
        n = visits(task, kernel, "uniform", samples)[matters(task)]
        count = matters(task).sum()
        np.testing.assert_array_equal(n, samples // count + (np.arange(count) < samples % count))
    weights = everywhere(task)
    n = visits(task, kernel, weights, 250)
    omega = np.where(matters(task), weights, 0.0).ravel()
    chosen = naive_tracking(np.zeros(omega.size), omega / omega.sum(), 250)
    np.testing.assert_array_equal(n.ravel(), np.bincount(chosen, minlength=omega.size))


@pytest.mark.parametrize("explore", [0.05, 0.3, 1.0])
def test_optimal_tracks_the_optimum_of_its_guess(explore):
    task, kernel = with_known_rows()
    threshold = pt.value(task, kernel) - 0.1
    best = pt.optimal_allocation(task, kernel, threshold).weights
    target = (1 - explore) * best + explore * matters(task) / matters(task).sum()
    n = visits(task, kernel, pt.Optimal(kernel, explore), 600, threshold)
    assert (np.abs(n - 600 * target) <= matters(task).sum()).all()


# ---------------------------------------------------------------- adaptive


def test_adaptive_shares_approach_the_optimum():
    task, kernel, threshold = TWO.task, TWO.kernel, pt.value(TWO.task, TWO.kernel) - 0.05
    best = pt.optimal_allocation(task, kernel, threshold)
    uniform = pt.characteristic_time(task, kernel, None, threshold).time
    gaps = []
    for samples in (80, 60_000):
        n = visits(task, kernel, pt.Adaptive(), samples, threshold)
        time = pt.characteristic_time(task, kernel, n / n.sum(), threshold).time
        assert time >= best.time * (1 - 1e-3)  # nothing beats the optimum
        gaps.append(time / best.time - 1)
    assert gaps[1] < 0.02  # its tolerance
    assert gaps[1] < gaps[0] < uniform / best.time - 1
    np.testing.assert_allclose(n / n.sum(), best.weights, atol=0.04)


def test_adaptive_explores_every_pair():
    """The target gives each of K pairs at least sqrt(K/t)/K, whatever the estimate says."""
    known, kernel = with_known_rows()
    policy = [[0.9, 0.1], [1.0, 0.0], [0.01, 0.99]]  # the optimum gives the rare action 0.0004
    task = pt.Task(known.rewards, policy, [1.0, 0.0, 0.0], 0.5, support=known.support)
    threshold = pt.value(task, kernel) - 0.2
    assert 0 < pt.optimal_allocation(task, kernel, threshold).weights[matters(task)].min() < 0.01
    rule = pt.Adaptive(first=4, growth=1.3).begin(task, threshold)
    tracked = matters(task).ravel()[task.layout.pairs.pair]
    K, n = int(tracked.sum()), np.zeros(len(tracked))
    np.testing.assert_allclose(rule.omega, tracked / K)
    targets = 0
    while n.sum() < 3000:
        due, omega = rule.due, rule.omega
        t = n.sum()
        k = rule.plan(n, lambda: kernel, 10_000)
        np.testing.assert_array_equal(k, naive_tracking(n, rule.omega, len(k)))
        assert t + len(k) == rule.due  # never past the next target
        if t >= due:
            targets += 1
            assert rule.due == int(np.ceil(1.3 * t)) + 1
            assert rule.omega[tracked].min() >= min(1.0, np.sqrt(K / t)) / K - 1e-12
            assert rule.omega.sum() == pytest.approx(1.0)
            assert (rule.omega[~tracked] == 0).all()
        else:
            assert rule.omega is omega
        n += np.bincount(k, minlength=len(n))
    assert targets > 10
    assert n[tracked].min() >= 0.5 * np.sqrt(3000 / K)


def test_adaptive_starts_uniformly_and_asks_for_the_estimate_only_when_due():
    task, kernel = with_known_rows()
    asked = []

    def estimate():
        asked.append(True)
        return kernel

    rule, K = pt.Adaptive(first=5).begin(task, pt.value(task, kernel) - 0.2), int(matters(task).sum())
    n = np.zeros(len(task.layout.pairs.pair))
    k = rule.plan(n, estimate, 3)
    assert len(k) == 3
    n += np.bincount(k, minlength=len(n))
    k = rule.plan(n, estimate, 10_000)
    n += np.bincount(k, minlength=len(n))
    assert not asked
    assert n.sum() == 5 * K
    assert set(n[n > 0]) == {5.0}
    rule.plan(n, estimate, 1)
    assert len(asked) == 1


# ---------------------------------------------------------------- forward


def trajectory(task, sim, forward, steps, seed=0):
    """The pairs and successors of a walk, drawn by the rule itself."""
    walk, rng = forward.begin(task, 0.0), np.random.default_rng(seed)
    parts, drawn = [], 0
    while drawn < steps:
        parts.append(walk.steps(sim, draw_function(sim), rng, steps))
        drawn += len(parts[-1][1])
    pair, x = (np.concatenate(column)[:steps] for column in zip(*parts, strict=True))
    return pair, x


def walked(table):
    """A task, its kernel, and a simulator that walks by itself (table) or step by step."""
    task, kernel = with_known_rows()
    sim = pt.TabularSimulator(kernel)
    return task, kernel, sim if table else sim.draw


@pytest.mark.parametrize("table", [True, False], ids=["table", "plain"])
def test_forward_starts_from_rho_and_visits_states_in_proportion_to_the_discounted_occupancy(table):
    task, kernel, sim = walked(table)
    first = [int(trajectory(task, sim, pt.Forward(), 1, seed)[0][0]) // 2 for seed in range(1000)]
    assert chi_square_tail(np.bincount(first, minlength=3)[None].astype(float), task.initial[None]) > ALARM
    steps = 200_000 if table else 20_000
    pair, x = trajectory(task, sim, pt.Forward(), steps)
    N = np.zeros((6, 3))
    np.add.at(N, (pair, x), 1)
    occupancy = pt.occupancy(task, kernel) * (1 - task.discount)
    frequency = N.sum(axis=1).reshape(3, 2).sum(axis=1) / steps
    episodes = steps * (1 - task.discount)
    np.testing.assert_allclose(frequency, occupancy, atol=5 / np.sqrt(episodes))
    # the actions follow the policy, the successors the kernel
    assert chi_square_tail(N.sum(axis=1).reshape(3, 2), task.policy) > ALARM
    assert chi_square_tail(N, kernel.reshape(6, 3)) > ALARM


def chi_square_tail(N: np.ndarray, law: np.ndarray) -> float:
    expected = N.sum(axis=1, keepdims=True) * law
    assert (N[expected == 0] == 0).all()
    parts = (N - expected)[expected > 0] ** 2 / expected[expected > 0]
    return float(chi2.sf(parts.sum(), max(1, (expected > 0).sum() - (N.sum(axis=1) > 0).sum())))


@pytest.mark.parametrize("table", [True, False], ids=["table", "plain"])
@pytest.mark.parametrize("restart", [1.0, 0.5, 0.01])
def test_forward_goes_on_where_it_is_or_starts_again_from_rho(restart, table):
    task, _, sim = walked(table)
    at_home = pt.Task(task.rewards, task.policy, [0.0, 1.0, 0.0], 0.8)
    pair, x = trajectory(at_home, sim, pt.Forward(restart), 4000)
    state = pair // 2
    assert state[0] == 1
    jumps = state[1:] != x[:-1]
    assert (state[1:][jumps] == 1).all()
    away = x[:-1] != 1  # there a restart shows
    count = int(away.sum())
    assert abs(jumps[away].sum() - count * restart) <= 5 * np.sqrt(count * restart * (1 - restart)) + 1e-9


def test_forward_asks_a_plain_simulator_for_one_step_at_a_time():
    task, kernel = with_known_rows()
    table, calls = pt.TabularSimulator(kernel), []

    def draw(states, actions, rng):
        assert len(states) == len(actions) == 1
        x = table.draw(states, actions, rng)
        calls.append((int(states[0]), int(x[0])))
        return x

    method = PTST(allocation=pt.Forward(restart=1e-6))
    verdict = decide(task, draw, threshold=pt.value(task, kernel) - 1.0, method=method, rng=1)
    assert verdict.answer == "above"
    assert len(calls) == verdict.samples == verdict.counts.total
    assert all(calls[i + 1][0] == calls[i][1] for i in range(len(calls) - 1))  # one long trajectory


# ---------------------------------------------------------------- warnings and refusals


def decided(allocation, instance=(TWO.task, TWO.kernel), **settings):
    task, kernel = instance
    return decide(task, pt.TabularSimulator(kernel), threshold=0.0, method=PTST(allocation=allocation), **settings)


def test_a_share_of_zero_on_a_pair_that_matters_is_a_lost_assumption():
    weights = np.array([[0.5, 0.5], [0.0, 0.0]])
    with pytest.warns(pt.AssumptionWarning, match=r"never samples \(s=1, a=0\) and 1 more pairs") as caught:
        verdict = decided(weights, max_samples=50)
    assert len(caught) == 1
    assert verdict.answer is None
    with pytest.warns(pt.AssumptionWarning, match=r"never samples \(s=1, a=1\) that the policy takes"):
        shares(TWO.task, np.array([[0.5, 0.3], [0.2, 0.0]]))
    task, _ = with_known_rows()  # fine where nothing can be learned
    weights = matters(task) / matters(task).sum()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rule = sampling_rule(weights, task, 0.0)
    np.testing.assert_allclose(rule.omega, weights.ravel()[task.layout.pairs.pair])


@each(
    ("make", "message"),
    [
        (lambda: "greedy", "allocation is 'greedy'"),
        (lambda: np.ones(4) / 4, r"allocation has shape \(4,\)"),
        (lambda: np.ones((2, 2)), "allocation sums to 4"),
        (lambda: [[1.5, -0.5], [0.0, 0.0]], r"allocation\[0, 1\] is -0.5"),
        (lambda: [[np.nan, 1.0], [0.0, 0.0]], r"allocation\[0, 0\] is nan"),
        (lambda: {}, "allocation is not an array"),
        (lambda: pt.Forward, r"pass an object, Forward\(\)"),
        (lambda: pt.Optimal(np.ones((2, 2, 2))), "kernel at"),
        (lambda: pt.Optimal(TWO.kernel[0]), "kernel has shape"),
        (lambda: pt.Optimal(TWO.kernel, explore=1.1), "explore is 1.1"),
        (lambda: pt.Optimal(TWO.kernel, explore=-0.1), "explore is -0.1"),
        (lambda: pt.Optimal(TWO.kernel, explore="all"), "explore is not an array"),
        (lambda: pt.Forward(restart=0), "restart is 0"),
        (lambda: pt.Forward(restart=1.5), "restart is 1.5"),
        (lambda: pt.Forward(restart=np.nan), "restart is nan"),
        (lambda: pt.Adaptive(first=0), "first is 0"),
        (lambda: pt.Adaptive(growth=1.0), "growth is 1"),
        (lambda: pt.Adaptive(growth=np.nan), "growth is nan"),
        (lambda: pt.Adaptive(tolerance=0), "tolerance is 0"),
        (lambda: pt.Adaptive(max_solves=0), "max_solves is 0"),
        (lambda: pt.Adaptive(first=0.5), "first is 0.5"),
        (lambda: pt.Adaptive(growth=np.inf), "growth is inf"),
        (lambda: pt.Adaptive(max_solves=1.5), "max_solves is 1.5"),
    ],
)
def test_bad_allocations_are_refused(make, message):
    with pytest.raises(pt.InputError, match=message):
        decided(make(), delta=1e-9)


def test_shares_only_where_nothing_can_be_learned_are_refused():
    with pytest.raises(pt.InputError, match="gives nothing"):
        decided([[0.0, 0.5], [0.0, 0.5], [0.0, 0.0]], with_known_rows())
