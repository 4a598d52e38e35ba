"""Values of episodes: horizons, totals without a discount, success probabilities, observed rewards."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import assert_refused, each
from policytest.mdp import horizon


def chain(p=0.3, **settings):
    """From 0 to the goal 2 with probability p, to the pit 1 with 1/2, else back; one action."""
    kernel = np.zeros((3, 1, 3))
    kernel[0, 0] = [0.5 - p, 0.5, p]
    kernel[1, 0, 1] = kernel[2, 0, 2] = 1.0
    return pt.Task.reaching([2], [1], policy=np.ones((3, 1)), initial=[1.0, 0.0, 0.0], **settings), kernel


def random_episode(seed, H=None, gamma=1.0, on_successor=None):
    """A task of three states and a terminal one, rewards of both signs, and a kernel."""
    rng = np.random.default_rng(seed)
    S, A = 4, 2
    on_successor = bool(seed % 2) if on_successor is None else on_successor
    support = rng.random((S, A, S)) < 0.7
    support[:, :, S - 1] = True
    rewards = rng.normal(size=(S, A, S) if on_successor else (S, A))
    rewards[S - 1] = 0.0
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * support
    kernel[S - 1] = np.eye(S)[S - 1]
    kernel /= kernel.sum(axis=2, keepdims=True)
    policy, initial = rng.dirichlet(np.ones(A), size=S), np.append(rng.dirichlet(np.ones(S - 1)), 0.0)
    task = pt.Task(rewards, policy, initial, gamma, support, terminal=[S - 1], horizon=H)
    return task, kernel, rng


def paths(task, kernel, H):
    """All paths of at most H steps that end in the terminal state or at H: (probability, discounted sum of rewards)."""
    terminal, found = task.ends, []

    def go(s, t, p, total):
        if t == H or s in terminal:
            found.append((p, total))
            return
        for a, x in itertools.product(range(task.n_actions), range(task.n_states)):
            q = task.policy[s, a] * kernel[s, a, x]
            if q > 0:
                r = task.rewards[s, a, x] if task.rewards.ndim == 3 else task.rewards[s, a]
                go(x, t + 1, p * q, total + task.discount**t * r)

    for s in np.flatnonzero(task.initial):
        go(int(s), 0, task.initial[s], 0.0)
    return np.array(found)


@each(("seed", "H", "gamma"), [(seed, H, gamma) for seed in range(4) for H in (1, 2, 4) for gamma in (1.0, 0.7, 0.0)])
def test_the_value_with_a_horizon_is_the_mean_over_all_paths(seed, H, gamma):
    task, kernel, _ = random_episode(seed, H, gamma)
    p, total = paths(task, kernel, H).T
    assert p.sum() == pytest.approx(1.0)
    assert pt.value(task, kernel) == pytest.approx(p @ total, abs=1e-13)
    assert pt.state_values(task, kernel).shape == (H, 4)
    low, high = pt.value_range(task)
    assert low - 1e-12 <= pt.value(task, kernel) <= high + 1e-12


@each("seed", range(4))
def test_values_later_are_those_of_a_shorter_horizon(seed):
    task, kernel, _ = random_episode(seed, 4, 0.9)
    shorter = random_episode(seed, 3, 0.9)[0]
    assert np.allclose(pt.state_values(task, kernel)[1:], pt.state_values(shorter, kernel))


@each("seed", range(6))
def test_totals_are_the_solution_of_a_linear_system(seed):
    rng = np.random.default_rng(seed)
    S, A = 5, 2
    rewards, policy = rng.random((S, A)), rng.dirichlet(np.ones(A), size=S)
    rewards[S - 1] = 0.0
    kernel = rng.dirichlet(np.ones(S), size=(S, A))
    kernel[S - 1] = np.eye(S)[S - 1]
    initial = np.append(rng.dirichlet(np.ones(S - 1)), 0.0)
    task = pt.Task(rewards, policy, initial, 1.0, terminal=[S - 1])
    P = np.einsum("sa,sax->sx", policy, kernel)[: S - 1, : S - 1]
    inverse = np.linalg.inv(np.eye(S - 1) - P)
    V = inverse @ (policy * rewards).sum(axis=1)[: S - 1]
    assert np.allclose(pt.state_values(task, kernel), np.append(V, 0.0))
    assert np.allclose(pt.occupancy(task, kernel), np.append(initial[: S - 1] @ inverse, 0.0))
    assert pt.value_range(task)[0] <= pt.value(task, kernel)
    assert pt.value_range(task)[1] == np.inf


def test_success_probabilities_in_closed_form():
    task, kernel = chain(0.3)
    assert pt.value(task, kernel) == pytest.approx(0.3 / 0.8)
    assert pt.value_range(task) == (0.0, 1.0)
    assert task.terminal == (2, 1)
    for H in (1, 2, 7):
        assert pt.value(chain(0.3, within=H)[0], kernel) == pytest.approx(0.3 * (1 - 0.2**H) / 0.8)
    assert np.allclose(pt.occupancy(task, kernel), [1.25, 0, 0])


@each("within", [None, 1, 3])
def test_a_start_in_the_goal_has_reached_it_and_one_in_a_state_to_avoid_has_not(within):
    """V = rho(goal) + rho(elsewhere) V(elsewhere), as model checkers count it; all of rho in the goal: V is 1."""
    alone, kernel = chain(0.3, within=within)
    for rho in ([0.0, 0.0, 1.0], [0.0, 1.0, 0.0], [0.5, 0.2, 0.3]):
        task = pt.Task.reaching([2], [1], policy=np.ones((3, 1)), initial=rho, within=within)
        expected = rho[2] + rho[0] * pt.value(alone, kernel)
        assert pt.value(task, kernel) == pytest.approx(expected, rel=1e-12)
        assert pt.value_range(task) == pytest.approx((rho[2], rho[2] + rho[0]))
        known = pt.decide(task, pt.TabularSimulator(kernel), rho[2] - 0.1)
        assert (known.answer, known.samples) == ("above", 0)
        if rho[0]:
            sim = pt.TabularSimulator(kernel)
            for gap, answer in ((-0.1, "above"), (0.1, "below")):
                found = pt.decide(task, sim, expected + gap, rng=2)
                assert (found.answer, found.certified) == (answer, True)
                assert found.interval[0] <= expected <= found.interval[1]
                assert found.estimate == pytest.approx(expected, abs=0.15)
            found = pt.evaluate(task, sim, 0.1)
            assert found.lower <= expected <= found.upper
            if within is not None:
                by_kl = pt.decide(task, sim, expected - 0.16, method=pt.PTST())
                assert by_kl.answer == "above"
                assert by_kl.interval[0] <= expected <= by_kl.interval[1]
    task = pt.Task.reaching([2], policy=np.ones((3, 1)), initial=[0.0, 0.0, 1.0])
    assert pt.decide(task, pt.TabularSimulator(kernel), 1.1).answer == "below"


def test_named_states_and_sparse_tables_are_the_same_question():
    task, kernel = chain(0.3)
    named = pt.Task.reaching(
        ["well"], ["dead"], policy=np.ones((3, 1)), initial=[1.0, 0.0, 0.0], states=["ill", "dead", "well"]
    )
    assert named.terminal == ("well", "dead")
    assert pt.value(named, kernel) == pt.value(task, kernel)
    support = sparse.csr_array(np.ones((3, 3)))
    thin = pt.Task.reaching([2], [1], policy=np.ones((3, 1)), initial=[1.0, 0.0, 0.0], support=support)
    assert pt.value(thin, sparse.csr_array(kernel.reshape(3, 3))) == pytest.approx(pt.value(task, kernel))
    limited = pt.Task.reaching([2], [1], policy=np.ones((3, 1)), initial=[1.0, 0, 0], support=support, within=4)
    assert pt.value(limited, kernel) == pytest.approx(pt.value(chain(0.3, within=4)[0], kernel))


def test_the_structure_of_a_chain_is_the_same_by_paths_and_by_components():
    """Random graphs with few edges, so that there are classes of every kind."""
    seen = set()
    for seed in range(200):
        rng = np.random.default_rng(seed)
        S = int(rng.integers(1, 12))
        P = np.where(rng.random((S, S)) < 1.2 / S, rng.random((S, S)), 0.0)
        paid, start = rng.random(S) < 0.3, rng.random(S) < 0.3
        by_paths = horizon._closed(P, paid, start)
        by_components = horizon._connected(sparse.csr_array(P), paid, start)
        for mine, other in zip(by_paths, by_components, strict=True):
            assert (mine == other).all(), seed
        seen |= set(zip(*(part.tolist() for part in by_paths), strict=True))
    assert len(seen) == 8  # staying or not, improper or not, reached or not: all occur


def test_large_sparse_totals_are_those_of_a_long_walk():
    """A walk on a line of n states, up with 0.6, down with 0.4, ended at both ends: the ruin probabilities."""
    n = 900
    i = np.arange(1, n - 1)
    rows, columns = np.concatenate([i, i, [0, n - 1]]), np.concatenate([i + 1, i - 1, [0, n - 1]])
    kernel = sparse.csr_array((np.concatenate([np.full(n - 2, 0.6), np.full(n - 2, 0.4), [1, 1]]), (rows, columns)))
    support = sparse.csr_array((np.ones(len(rows)), (rows, columns)), shape=(n, n))
    initial = np.zeros(n)
    initial[3] = 1.0
    task = pt.Task.reaching([n - 1], [0], policy=np.ones((n, 1)), initial=initial, support=support)
    assert pt.value(task, kernel) == pytest.approx((1 - (2 / 3) ** 3) / (1 - (2 / 3) ** (n - 1)), abs=1e-12)


def test_a_policy_that_may_never_end():
    """From 0 with 0.25 to the goal, with 0.75 into a loop in which nothing, or something, is paid."""
    kernel = np.zeros((3, 1, 3))
    kernel[0, 0], kernel[1, 0, 1], kernel[2, 0, 2] = [0.0, 0.75, 0.25], 1.0, 1.0
    policy, initial = np.ones((3, 1)), [1.0, 0.0, 0.0]
    task = pt.Task.reaching([2], policy=policy, initial=initial)
    assert pt.value(task, kernel) == pytest.approx(0.25)
    assert pt.occupancy(task, kernel).tolist() == [1.0, np.inf, 0.0]
    paid = pt.Task([[0.0], [1.0], [0.0]], policy, initial, 1.0, terminal=[2])
    assert_refused(lambda: pt.value(paid, kernel), "s=0", "never reach a terminal state", "horizon", "total_rewards")
    elsewhere = pt.Task([[0.0], [1.0], [0.0]], policy, [0.0, 0.0, 1.0], 1.0, terminal=[2])
    assert pt.value(elsewhere, kernel) == 0.0
    assert np.isnan(pt.state_values(elsewhere, kernel)[:2]).all()


def extreme_value_by_enumeration(task, sense):
    """Over all deterministic kernels within the support."""
    S, A = task.policy.shape
    allowed = np.ones((S, A, S), dtype=bool) if task.support is None else task.support
    choices = [np.flatnonzero(allowed[s, a]) for s in range(S) for a in range(A)]
    values = [pt.value(task, np.eye(S)[np.array(x).reshape(S, A)]) for x in itertools.product(*choices)]
    return sense(values)


@each(("seed", "H"), [(seed, H) for seed in range(3) for H in (None, 1, 3)])
def test_the_range_is_never_narrower_than_that_of_all_kernels(seed, H):
    rng = np.random.default_rng(seed)
    task = pt.Task.reaching(
        [2], policy=rng.dirichlet(np.ones(2), size=3), initial=[0.6, 0.4, 0.0], within=H, support=None
    )
    low, high = pt.value_range(task)
    assert low <= extreme_value_by_enumeration(task, min) + 1e-12
    assert high >= extreme_value_by_enumeration(task, max) - 1e-12
    assert (low, high) == (0.0, pytest.approx(1.0))


def test_the_range_is_exact_where_one_kernel_attains_it():
    support = np.zeros((4, 1, 4), dtype=bool)
    support[0, 0, [1, 2]] = support[1, 0, [2, 3]] = support[2, 0, 2] = support[3, 0, 3] = True
    rewards = np.array([[1.0], [-3.0], [0.0], [0.0]])
    for H, expected in ((None, (-2.0, 1.0)), (1, (1.0, 1.0)), (2, (-2.0, 1.0))):
        task = pt.Task(rewards, np.ones((4, 1)), [1.0, 0, 0, 0], 1.0, support, terminal=[2, 3], horizon=H)
        assert pt.value_range(task) == pytest.approx(expected)


def test_observed_rewards():
    task = pt.Task(pt.Observed(-1.0, [[2.0], [3.0]]), np.ones((2, 1)), [1.0, 0.0], 0.5)
    assert pt.value_range(task) == pytest.approx((-2.0, 2.0 + 3.0))
    assert task.reward_bounds == (-1.0, 3.0)
    assert_refused(lambda: pt.value(task, np.full((2, 1, 2), 0.5)), "rewards", "observed")
    ends = pt.Task(pt.Observed(-1.0, 2.0), np.ones((2, 1)), [1.0, 0.0], 1.0, terminal=[1], horizon=3)
    assert ends.ends == [1]
    assert pt.value_range(ends) == pytest.approx((-3.0, 6.0))
    assert ends.known_rows.tolist() == [[False], [True]]


def test_a_goal_that_is_to_be_avoided_counts_as_reached():
    """As in PCTL's !avoid U goal, and said so."""
    settings = {"policy": np.ones((4, 1)), "initial": [1.0, 0, 0, 0], "states": ["a", "b", "c", "d"]}
    with pytest.warns(UserWarning, match="both have the state 1 'b' and 1 more state: entering it counts as reaching"):
        both = pt.Task.reaching(["b", 2], ["d", "c", 1], **settings)
    only = pt.Task.reaching(["b", 2], ["d"], **settings)
    assert (both.terminal, both.goal) == (only.terminal, only.goal)
    np.testing.assert_array_equal(both.rewards, only.rewards)


POLICY, START = np.ones((2, 1)), [1.0, 0.0]
REFUSED = {
    "horizon 0": (lambda: pt.Task([[1.0], [0.0]], POLICY, START, 0.9, horizon=0), ["horizon is 0", "at least 1"]),
    "horizon 1.5": (lambda: pt.Task([[1.0], [0.0]], POLICY, START, 0.9, horizon=1.5), ["horizon is 1.5", "whole"]),
    "discount nan": (lambda: pt.Task([[1.0], [0.0]], POLICY, START, np.nan), ["discount"]),
    "discount above 1": (lambda: pt.Task([[1.0], [0.0]], POLICY, START, 1.1), ["discount is 1.1", "[0, 1]"]),
    "no end": (
        lambda: pt.Task([[1.0], [0.0]], POLICY, START, 1.0),
        ["discount is 1", "below 1", "horizon", "terminal"],
    ),
    "no bound": (
        lambda: pt.Task([[1.0], [-1.0], [0.0]], np.ones((3, 1)), [1.0, 0, 0], 1.0, terminal=[2]),
        ["infinite on both sides", "horizon", "discount below 1", "total_rewards=(low, high)"],
    ),
    "too large to be dense": (
        lambda: pt.Task.reaching([1], policy=np.ones((9000, 1)), initial=np.eye(9000)[0]),
        ["support", "CSR"],
    ),
    "no goal": (lambda: pt.Task.reaching([], policy=POLICY, initial=START), ["goal is empty"]),
    "unknown goal": (
        lambda: pt.Task.reaching(["wel"], policy=POLICY, initial=START, states=["ill", "well"]),
        ["goal[0] is 'wel'", "not a state", "'ill'"],
    ),
    "goal that goes on": (
        lambda: pt.Task([[1.0], [0.0]], POLICY, START, 0.5, goal=[1]),
        ["goal", "terminal", "reaching"],
    ),
    "low above high": (lambda: pt.Observed(1.0, 0.0), ["rewards.low is 1", "above rewards.high"]),
    "low nan": (lambda: pt.Observed(np.nan, 0.0), ["rewards.low"]),
    "shape": (
        lambda: pt.Task(pt.Observed(np.zeros((3, 1)), 1.0), POLICY, START, 0.5),
        ["rewards.low has shape (3, 1)", "(2, 1)"],
    ),
    "totals with a discount": (
        lambda: pt.Task([[1.0], [0.0]], POLICY, START, 0.9, total_rewards=(0, 1)),
        ["total_rewards", "discount 1"],
    ),
    "totals upside down": (
        lambda: pt.Task([[1.0], [0.0]], POLICY, START, 1.0, terminal=[1], total_rewards=(1, 0)),
        ["total_rewards is (1, 0)"],
    ),
}


@each("case", REFUSED)
def test_bad_input_is_refused_in_one_line(case):
    call, words = REFUSED[case]
    assert_refused(call, *words)


def test_a_bound_on_the_total_is_the_range():
    task = pt.Task([[1.0], [-1.0], [0.0]], np.ones((3, 1)), [1.0, 0, 0], 1.0, terminal=[2], total_rewards=(-5, 7))
    assert pt.value_range(task) == (-5.0, 7.0)


@each(("gamma", "observed"), [(gamma, observed) for gamma in (1.0, 0.8) for observed in (False, True)])
def test_an_added_start_costs_no_step_of_the_horizon(gamma, observed):
    """The value is the mean over first states, with all of the horizon left; rewards are those that are paid."""
    rewards, policy = np.array([[1.0], [0.5]]), np.ones((2, 1))
    kernel, first = np.array([[[0.3, 0.7]], [[0.6, 0.4]]]), np.array([0.25, 0.75])
    known = pt.Task(rewards, policy, first, gamma, horizon=3)
    task = pt.sources.start_from_log(known)
    added = np.zeros((3, 1, 3))
    added[:2, :, :2], added[2, 0, :2] = kernel, first
    assert pt.value(task, added) == pytest.approx(pt.value(known, kernel))
    assert pt.value_range(task)[0] <= pt.value(task, added) <= pt.value_range(task)[1]
    if observed:
        task = pt.sources.start_from_log(pt.Task(pt.Observed(0.0, 1.0), policy, first, gamma, horizon=3))
        paid = np.array([1.0, 0.5, 0.0])
        rng = np.random.default_rng(0)
        s = rng.integers(3, size=2000)
        x = pt.TabularSimulator(added).draw(s, 0 * s, rng)
        found = pt.value_interval(task, pt.Transitions(s, 0 * s, x, paid[s]), method=pt.TDBetting())
        assert found.lower <= pt.value(known, kernel) <= found.upper < found.lower + 0.5
        assert_refused(
            lambda: pt.assess(task, pt.Transitions(s, 0 * s, x, 2 * paid[s]), 1.0), "is 2 at", "range [0, 1]"
        )


def test_a_horizon_whose_tables_do_not_fit_is_refused():
    settings = [[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], 1.0
    assert_refused(lambda: pt.Task(*settings, horizon=10**9), "horizon is 1,000,000,000", "at most 100,000,000 steps")
    assert pt.Task(*settings, horizon=10**6).horizon == 10**6
