"""Values, occupancies and value ranges of a task: closed forms, plain linear algebra, enumeration, and large chains."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import pickle

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse
from scipy.sparse.linalg import spsolve

import policytest.mdp.task as task_module
from builders import each
from policytest import instances
from policytest._base.compiled import search
from policytest._base.errors import PRECISION, InputError
from policytest.mdp.task import Task
from policytest.mdp.values import extreme_state_values, occupancy, state_values, value, value_range
from problems import as_csr

GAMMAS = [0.0, 0.1, 0.5, 0.9, 0.99, 0.999]
REWARDS = ["r[s,a]", "r[s,a,x]", "csr"]


@dataclasses.dataclass(frozen=True)
class Case:
    """A task, a kernel in both forms, and the dense tables that the task was made of."""

    task: Task
    q: np.ndarray
    rewards: np.ndarray
    support: np.ndarray

    @property
    def csr(self):
        return as_csr(self.q)


def make_case(seed, S=5, A=3, gamma=0.9, rewards="r[s,a]", declared=None, idle=False):
    """Random rewards of both signs, a kernel with zeros, a support around it; ``idle``: some pairs have pi = 0."""
    rng = np.random.default_rng([seed, S, A])
    policy = rng.dirichlet(np.ones(A), size=S)
    if idle:
        policy[rng.random((S, A)) < 0.4] = 0.0
        policy[policy.sum(axis=1) == 0, 0] = 1.0
        policy /= policy.sum(axis=1, keepdims=True)
    q = rng.dirichlet(np.full(S, 0.5), size=(S, A))
    q[rng.random(q.shape) < 0.3] = 0.0
    q[q.sum(axis=2) == 0, rng.integers(S)] = 1.0
    q /= q.sum(axis=2, keepdims=True)
    support = (q > 0) | (rng.random(q.shape) < 0.3)
    table = rng.uniform(-1.0, 1.7, size=(S, A) if rewards == "r[s,a]" else (S, A, S))
    stored = as_csr(table) if rewards == "csr" else table
    allowed = {None: None, "dense": support, "csr": as_csr(support)}[declared]
    known = Task(stored, policy, rng.dirichlet(np.ones(S)), gamma, allowed)
    return Case(known, q, table, support if declared else np.ones_like(support))


@st.composite
def cases(draw):
    return make_case(
        seed=draw(st.integers(0, 2**32 - 1)),
        S=draw(st.integers(1, 6)),
        A=draw(st.integers(1, 3)),
        gamma=draw(st.sampled_from(GAMMAS)),
        rewards=draw(st.sampled_from(REWARDS)),
        declared=draw(st.sampled_from([None, "dense", "csr"])),
        idle=draw(st.booleans()),
    )


def policy_chain(task, rewards, q):
    """P[s,x] and r^pi[s], written out densely."""
    P = np.einsum("sa,sax->sx", task.policy, q)
    if rewards.ndim == 2:
        return P, np.einsum("sa,sa->s", task.policy, rewards)
    return P, np.einsum("sa,sax,sax->s", task.policy, q, rewards)


def assert_matches_plain(case, q):
    """Value, state values and occupancy of a kernel in any form against `numpy.linalg.solve`."""
    task = case.task
    P, r = policy_chain(task, case.rewards, case.q)
    system = np.eye(len(P)) - task.discount * P
    V, d = np.linalg.solve(system, r), np.linalg.solve(system.T, task.initial)
    assert_allclose(state_values(task, q), V, rtol=0, atol=1e-11 * np.abs(V).max())
    assert_allclose(occupancy(task, q), d, rtol=0, atol=1e-11 / (1 - task.discount))
    assert value(task, q) == pytest.approx(task.initial @ V, rel=1e-11, abs=1e-11 * np.abs(V).max())


# ---------------------------------------------------------------- closed forms


@each("gamma", GAMMAS)
@each(("leave", "back"), [(0.3, 0.2), (0.0, 1.0), (1.0, 1.0), (1e-6, 1e-9)])
def test_two_states_in_closed_form(gamma, leave, back):
    """(I - gamma P)^{-1} = [[1-gamma(1-b), gamma a], [gamma b, 1-gamma(1-a)]] / ((1-gamma)(1-gamma(1-a-b)))."""
    task = Task([[1.0], [-2.5]], [[1.0], [1.0]], [1.0, 0.0], gamma)
    q = [[[1 - leave, leave]], [[back, 1 - back]]]
    determinant = (1 - gamma) * (1 - gamma * (1 - leave - back))
    d = np.array([1 - gamma * (1 - back), gamma * leave]) / determinant
    from_other = np.array([gamma * back, 1 - gamma * (1 - leave)]) / determinant
    assert_allclose(occupancy(task, q), d, rtol=1e-11)
    assert_allclose(state_values(task, q), [d @ [1.0, -2.5], from_other @ [1.0, -2.5]], rtol=1e-10)
    assert value(task, q) == pytest.approx(d @ [1.0, -2.5], rel=1e-10)


@each("gamma", GAMMAS)
def test_a_constant_reward_is_worth_its_geometric_series(gamma):
    case = make_case(1, gamma=gamma)
    task = dataclasses.replace(case.task, rewards=np.full((5, 3), -0.3))
    assert_allclose(state_values(task, case.q), -0.3 / (1 - gamma), rtol=1e-12)
    assert_allclose(value_range(task), -0.3 / (1 - gamma), rtol=1e-12)


def test_without_discounting_ahead_the_value_is_the_first_reward():
    case = make_case(2, gamma=0.0)
    assert value(case.task, case.q) == pytest.approx(case.task.initial @ (case.task.policy * case.rewards).sum(axis=1))
    assert_array_equal(occupancy(case.task, case.q), case.task.initial)


@each("scale", [1e-200, 1e-6, 1e6, 1e200])
@each("S", [5, 150])
def test_values_scale_with_rewards(S, scale):
    case = make_case(3, S=S, A=2)
    scaled = dataclasses.replace(case.task, rewards=scale * case.rewards)
    V = state_values(case.task, case.q)
    assert_allclose(state_values(scaled, case.q) / scale, V, rtol=0, atol=1e-11 * np.abs(V).max())
    assert_allclose(np.array(value_range(scaled)) / scale, value_range(case.task), rtol=1e-11)


@each("threshold", [-3.0, 0.7, 40.0])
@each("rewards", ["r[s,a]", "r[s,a,x]"])
def test_threshold_shift(threshold, rewards):
    """Footnote 1 of the paper: the reward r - (1-gamma) R has the value V - R."""
    case = make_case(4, rewards=rewards)
    shifted = dataclasses.replace(case.task, rewards=case.rewards - (1 - case.task.discount) * threshold)
    assert value(shifted, case.q) == pytest.approx(value(case.task, case.q) - threshold, abs=1e-12)
    assert_allclose(value_range(shifted), np.array(value_range(case.task)) - threshold, rtol=0, atol=1e-12)


# ---------------------------------------------------------------- plain linear algebra


@each("gamma", GAMMAS)
@each("rewards", REWARDS)
@each("declared", [None, "dense", "csr"])
def test_values_and_occupancies_by_plain_linear_algebra(gamma, rewards, declared):
    case = make_case(5, gamma=gamma, rewards=rewards, declared=declared)
    assert_matches_plain(case, case.q)
    assert_matches_plain(case, case.csr)


@given(case=cases())
def test_bellman_and_flow_equations(case):
    """V = r^pi + gamma P V; d = rho + gamma P^T d; sum d = 1/(1-gamma); rho.V = d.r^pi; in both forms."""
    task = case.task
    P, r = policy_chain(task, case.rewards, case.q)
    gamma, scale = task.discount, np.abs(case.rewards).max() / (1 - task.discount)
    V, d = state_values(task, case.q), occupancy(task, case.q)
    assert_allclose(V, r + gamma * P @ V, rtol=0, atol=1e-12 * scale)
    assert_allclose(d, task.initial + gamma * P.T @ d, rtol=0, atol=1e-12 / (1 - gamma))
    assert d.min() >= 0
    assert d.sum() == pytest.approx(1 / (1 - gamma), rel=1e-11)
    assert d @ r == pytest.approx(value(task, case.q), abs=1e-11 * scale)
    assert_allclose(state_values(task, case.csr), V, rtol=0, atol=1e-11 * scale)
    assert_allclose(occupancy(task, case.csr), d, rtol=0, atol=1e-11 / (1 - gamma))


@pytest.mark.parametrize("form", [sparse.coo_array, sparse.csc_array, sparse.csr_matrix])
def test_any_sparse_format_is_read_and_none_is_changed(form):
    case = make_case(6)
    kernel = form(case.csr)
    assert_matches_plain(case, kernel)
    assert_array_equal(kernel.toarray(), case.csr.toarray())


def test_repeated_and_unsorted_entries_add_up():
    """A CSR array may list a successor twice, here with a third and two thirds of its mass."""
    case = make_case(7)
    rows, columns = np.nonzero(case.q.reshape(15, 5))
    entries = case.q.reshape(15, 5)[rows, columns]
    rows, columns = np.tile(rows, 2), np.tile(columns, 2)
    entries = np.concatenate([entries / 3, entries * 2 / 3])
    order = np.lexsort([np.random.default_rng(0).random(len(rows)), rows])
    start = np.concatenate([[0], np.cumsum(np.bincount(rows, minlength=15))])
    kernel = sparse.csr_array((entries[order], columns[order], start), shape=(15, 5))
    before = kernel.data.copy()
    assert_matches_plain(case, kernel)
    assert_array_equal(kernel.data, before)


@each("declared", [None, "dense", "csr"])
@each("garbage", [0.0, 7.0])
@each("rewards", ["r[s,a]", "r[s,a,x]"])
def test_pairs_never_taken_are_ignored(declared, garbage, rewards):
    """Rows with pi(a|s) = 0 may hold anything, and their rewards and supports do not matter either."""
    case = make_case(8, idle=True, rewards=rewards, declared=declared)
    idle = case.task.policy == 0
    assert idle.any()
    spoiled, support, earned = case.q.copy(), case.support.copy(), case.rewards.copy()
    spoiled[idle], support[idle], earned[idle] = garbage, False, 1e6
    allowed = {None: None, "dense": support, "csr": as_csr(support)}[declared]
    other = dataclasses.replace(case.task, rewards=earned, support=allowed)
    for kernel in (spoiled, as_csr(spoiled)):
        assert_allclose(state_values(other, kernel), state_values(case.task, case.q), rtol=1e-12)
        assert_allclose(occupancy(other, kernel), occupancy(case.task, case.q), rtol=1e-12)
        assert not (other.policy.ravel()[other.rows_of("q", kernel)[0].pair] == 0).any()
    assert value_range(other) == value_range(case.task)
    assert other.reward_bounds == case.task.reward_bounds


# ---------------------------------------------------------------- the range of values


def reachable_values(case):
    """The values of all deterministic kernels: one allowed successor for each pair that the policy takes."""
    task = case.task
    S = task.n_states
    pairs = np.argwhere(task.policy > 0)
    options = [np.flatnonzero(case.support[s, a]) for s, a in pairs]
    choices = np.array(list(itertools.product(*options)))
    q = np.zeros((len(choices), *case.support.shape))
    for k, (s, a) in enumerate(pairs):
        q[np.arange(len(choices)), s, a, choices[:, k]] = 1.0
    P = np.einsum("sa,ksax->ksx", task.policy, q)
    rewards = case.rewards if case.rewards.ndim == 3 else np.repeat(case.rewards[:, :, None], S, axis=2)
    r = np.einsum("sa,ksax,sax->ks", task.policy, q, rewards)
    return np.linalg.solve(np.eye(S) - task.discount * P, r[:, :, None])[:, :, 0] @ task.initial


@each("seed", range(6))
@each("gamma", [0.0, 0.5, 0.9, 0.999])
@each("rewards", REWARDS)
@each("declared", [None, "dense", "csr"])
def test_value_range_by_enumeration(seed, gamma, rewards, declared):
    case = make_case(seed, S=3, A=2, gamma=gamma, rewards=rewards, declared=declared, idle=True)
    values = reachable_values(case)
    assert_allclose(value_range(case.task), (values.min(), values.max()), rtol=1e-11, atol=1e-12)


@given(seed=st.integers(0, 2**32 - 1), S=st.integers(1, 30), gamma=st.sampled_from(GAMMAS), idle=st.booleans())
def test_value_range_of_free_kernels_is_equations_1_and_2(seed, S, gamma, idle):
    """r^pi(rho) + gamma/(1-gamma) min_s r^pi(s), and the same with max."""
    task = make_case(seed, S=S, A=2, gamma=gamma, idle=idle).task
    r = (task.policy * task.rewards).sum(axis=1)
    ends = task.initial @ r + gamma / (1 - gamma) * np.array([r.min(), r.max()])
    assert_allclose(value_range(task), ends, rtol=1e-11, atol=1e-13 / (1 - gamma))


@given(case=cases(), seed=st.integers(0, 2**32 - 1), sharpness=st.sampled_from([0.05, 1.0, 10.0]))
def test_value_range_contains_the_value_of_every_allowed_kernel(case, seed, sharpness):
    rng = np.random.default_rng(seed)
    q = np.where(case.support, rng.gamma(sharpness, size=case.support.shape) + 1e-12, 0.0)
    q /= q.sum(axis=2, keepdims=True)
    low, high = value_range(case.task)
    slack = 1e-11 * np.abs(case.rewards).max() / (1 - case.task.discount)
    for kernel in (q, as_csr(q), case.q):
        assert low - slack <= value(case.task, kernel) <= high + slack


def test_extreme_state_values_are_fixed_points():
    """V(s) = sum_a pi(a|s) min over allowed x of [r(s,a,x) + gamma V(x)], and with max, in every state at once."""
    case = make_case(9, S=40, A=3, gamma=0.99, rewards="r[s,a,x]", declared="csr", idle=True)
    for sense, best, refused in (("min", np.min, np.inf), ("max", np.max, -np.inf)):
        V = extreme_state_values(case.task, sense)
        worth = np.where(case.support, case.rewards + 0.99 * V, refused)
        assert_allclose((case.task.policy * best(worth, axis=2)).sum(axis=1), V, rtol=1e-11)


def test_a_support_narrows_the_range():
    case = make_case(10, declared="dense")
    free = dataclasses.replace(case.task, support=None)
    known = dataclasses.replace(case.task, support=np.arange(5) == np.argmax(case.q, axis=2)[:, :, None])
    low, high = value_range(case.task)
    assert value_range(free)[0] < low < high < value_range(free)[1]
    only = (np.arange(5) == np.argmax(case.q, axis=2)[:, :, None]).astype(float)
    assert_allclose(value_range(known), value(known, only), rtol=1e-13)


# ---------------------------------------------------------------- the compiled solver, small and large


def sparse_chain(S, gamma, moves, seed=0):
    """A = 1; from s to s + move (clipped to the line, or modulo S on the cycle) with the given probabilities."""
    s = np.arange(S)
    wrap = moves.get("wrap", False)
    targets = [(s + m) % S if wrap else np.clip(s + m, 0, S - 1) for m in moves["steps"]]
    masses = np.tile(moves["masses"], (S, 1))
    table = sparse.csr_array((masses.T.ravel(), (np.tile(s, len(targets)), np.concatenate(targets))), shape=(S, S))
    rng = np.random.default_rng(seed)
    rho = rng.dirichlet(np.ones(S))
    return Task(rng.uniform(-0.4, 1.0, size=(S, 1)), np.ones((S, 1)), rho, gamma, support=table != 0), table


CHAINS = {
    "cycle": {"steps": [1], "masses": [1.0], "wrap": True},
    "line": {"steps": [1, -1], "masses": [0.5, 0.5]},
    "drift": {"steps": [1, -1], "masses": [0.9, 0.1]},
    "lazy": {"steps": [1, 0], "masses": [0.01, 0.99], "wrap": True},
}


def assert_within_bound(task, rows, entries, P):
    """The relative errors, |V - V*|_max and |d - d*|_1, are within the bound returned (and rounding), itself small."""
    gamma = task.discount
    V, d, bound = search.values_and_occupancy(rows, entries, gamma, task.initial)
    system = sparse.csc_array(sparse.eye_array(task.n_states) - gamma * P)
    exact_V, exact_d = spsolve(system, task.rewards[:, 0]), spsolve(sparse.csc_array(system.T), task.initial)
    assert 0 <= bound <= search.ACCEPTED_ERROR < PRECISION
    assert np.abs(V - exact_V).max() <= (bound + 1e-12) * np.abs(exact_V).max()
    assert np.abs(d - exact_d).sum() * (1 - gamma) <= bound + 1e-12
    return bound


def test_the_three_regimes_are_where_the_tests_below_look():
    assert 5 <= search.DIRECT_SMALL < 150


@pytest.mark.parametrize("gamma", [0.0, 0.1, 0.9, 0.999])
@pytest.mark.parametrize("S", [5, 150])
def test_elimination_and_iteration_agree_with_numpy(S, gamma):
    case = make_case(11, S=S, A=2, gamma=gamma, rewards="r[s,a,x]")
    assert_matches_plain(case, case.q)
    assert_matches_plain(case, case.csr)


@pytest.mark.parametrize("gamma", [0.9, 0.999])
def test_sparse_kernels_agree_with_numpy(gamma):
    """1200 states, three actions, four successors each: dense linear algebra on the same chain."""
    instance = instances.random(12, 1200, 3, successors=4, discount=gamma)
    assert sparse.issparse(instance.kernel)
    case = Case(instance.task, instance.kernel.toarray().reshape(1200, 3, 1200), instance.task.rewards, None)
    assert_matches_plain(case, instance.kernel)


@pytest.mark.parametrize("kind", CHAINS)
@pytest.mark.parametrize(("S", "gamma"), [(400, 0.9), (400, 0.999), (4000, 0.9), (4000, 0.99)])
def test_slow_chains_within_the_error_bound(kind, S, gamma):
    task, table = sparse_chain(S, gamma, CHAINS[kind])
    rows, entries, _ = task.rows_of("q", task.check_kernel("q", table))
    assert_within_bound(task, rows, entries, table)


@pytest.mark.parametrize("kind", ["cycle", "line"])
def test_long_chains_with_a_distant_horizon(kind):
    """4000 states, gamma = 0.999: beyond elimination, and no short cut mixes the chain. Relative error below 1e-8."""
    task, table = sparse_chain(4000, 0.999, CHAINS[kind])
    exact = spsolve(sparse.csc_array(sparse.eye_array(4000) - 0.999 * table), task.rewards[:, 0])
    assert_allclose(state_values(task, table), exact, rtol=0, atol=1e-8 * np.abs(exact).max())


def test_the_error_bound_of_elimination_is_rounding_over_one_minus_gamma():
    task, table = sparse_chain(5, 0.999, CHAINS["line"])
    rows, entries, _ = task.rows_of("q", task.check_kernel("q", table))
    assert assert_within_bound(task, rows, entries, table) == pytest.approx(4e-16 / (1 - 0.999))


@pytest.mark.parametrize("bound", [1e-7, np.inf, np.nan])
def test_an_inaccurate_solve_is_not_returned(monkeypatch, bound):
    """Negative control: a solver that reports a large error, or none, must not be believed."""
    case = make_case(13)

    def sloppy(rows, entries, gamma, rho):
        return np.zeros(5), np.zeros(5), bound

    monkeypatch.setattr(search, "values_and_occupancy", sloppy)
    for function in (value, state_values, occupancy):
        with pytest.raises(ArithmeticError, match="no value is returned"):
            function(case.task, case.q)


def test_tasks_too_large_to_list_every_successor():
    """45,000 states without declared support: 2e9 triples are never written down."""
    S, gamma = 45_000, 0.9
    task = Task(np.arange(S)[:, None] / S, np.ones((S, 1)), np.full(S, 1 / S), gamma)
    back = sparse.csr_array((np.ones(S), np.zeros(S, dtype=int), np.arange(S + 1)), shape=(S, S))
    mean = (S - 1) / (2 * S)
    assert value(task, back) == pytest.approx(mean, rel=1e-12)  # every state moves to state 0, which earns nothing
    assert occupancy(task, back)[0] == pytest.approx(1 / S + gamma / (1 - gamma), rel=1e-12)
    assert_allclose(value_range(task), (mean, mean + gamma / (1 - gamma) * (S - 1) / S), rtol=1e-12)


# ---------------------------------------------------------------- what a task knows of itself


def test_known_rows_have_one_allowed_successor():
    support = np.array([[[1, 0], [1, 1]], [[0, 1], [0, 0]]], dtype=bool)
    policy = [[0.5, 0.5], [1.0, 0.0]]
    for allowed in (support, as_csr(support), support.astype(int), support.tolist()):
        task = Task(np.zeros((2, 2)), policy, [0.5, 0.5], 0.9, support=allowed)
        assert_array_equal(task.known_rows, [[True, False], [True, False]])
    free = Task(np.zeros((2, 2)), policy, [0.5, 0.5], 0.9)
    assert not free.known_rows.any()
    assert Task([[0.0, 0.0]], [[0.5, 0.5]], [1.0], 0.9).known_rows.all()  # a single state follows every pair


# ---------------------------------------------------------------- terminal states


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("declared", [None, "dense", "csr"])
def test_terminal_states_are_followed_by_themselves_at_reward_0(rewards, declared):
    """The same task as with these rows in the support, whatever that said about them; and the value is in range."""
    case = make_case(31, rewards=rewards, declared=declared)
    S, A = case.task.policy.shape
    free = np.ones((S, A, S), dtype=bool) if declared is None else case.support
    table, allowed, q = case.rewards.copy(), free.copy(), case.q.copy()
    for s in (1, 4):
        table[s], allowed[s], q[s] = 0.0, False, 0.0
        allowed[s, :, s], q[s, :, s] = True, 1.0
    stored = as_csr(table) if rewards == "csr" else table
    task = dataclasses.replace(case.task, rewards=stored, terminal=[4, np.int64(1), 4])
    found = task.support.toarray() if declared == "csr" else np.asarray(task.support)
    assert_array_equal(found.reshape(S, A, S) > 0, allowed)
    assert task.ends == [1, 4]
    assert task.known_rows[[1, 4]].all()
    same = dataclasses.replace(case.task, rewards=stored, support=allowed)
    assert value(task, q) == value(same, q)
    assert_allclose(value_range(task), value_range(same), rtol=1e-12)
    assert_array_equal(state_values(task, q)[[1, 4]], 0.0)
    assert pickle.loads(pickle.dumps(task)).ends == [1, 4]


def test_terminal_states_by_name():
    """A name goes before an index: here the state called 0 is the second."""
    parts = ([[1.0], [0.0], [0.0]], [[1.0]] * 3, [1.0, 0.0, 0.0], 0.5)
    assert Task(*parts, states=["a", 0, "c"], terminal=["c"]).ends == [2]
    assert Task(*parts, states=["a", 0, "c"], terminal=[0]).ends == [1]
    assert Task(*parts, states=["a", ("b", 1), "c"], terminal=(("b", 1), 2)).ends == [1, 2]
    assert Task(*parts, terminal=[]).support is None
    assert Task(*parts).ends == []


def test_ends_are_known_without_being_called_terminal():
    """Followed by themselves whatever is done, at reward 0: one way out, or one reward, and it is no end."""
    support = np.ones((3, 2, 3), dtype=bool)
    support[1:] = np.eye(3, dtype=bool)[1:, None]
    for allowed in (support, as_csr(support)):
        assert Task(np.zeros((3, 2)), np.full((3, 2), 0.5), [1, 0, 0], 0.9, allowed).ends == [1, 2]
    assert Task([[0, 0], [0, 0], [0, 1]], np.full((3, 2), 0.5), [1, 0, 0], 0.9, support).ends == [1]
    support[1, 1, 0] = True
    assert Task(np.zeros((3, 2)), np.full((3, 2), 0.5), [1, 0, 0], 0.9, support).ends == [2]


@pytest.mark.parametrize(
    ("terminal", "changes", "words"),
    [
        ("c", {}, "terminal is 'c'; pass a list"),
        (2, {}, "terminal is 2; pass a list"),
        ({2}, {}, "pass a list"),
        (["d"], {}, r"terminal\[0\] is 'd', which is not a state; the states are 'a', 'b', 'c'"),
        ([2, 3], {}, r"terminal\[1\] is 3"),
        ([-1], {}, r"terminal\[0\] is -1"),
        ([True], {}, r"terminal\[0\] is True"),
        ([1.0], {}, r"terminal\[0\] is 1.0"),
        ([9], {"states": None}, "is 9, which is not a state; use an index"),
        (["a"], {}, r"rewards at \(s=0, a=0\) are 1, but nothing is earned after the end"),
        (["b"], {"rewards": np.eye(3)[:, None]}, r"rewards at \(s=1, a=0\) are 1"),
        (["b"], {"rewards": sparse.csr_array(np.eye(3))}, r"rewards at \(s=1, a=0\) are 1"),
    ],
)
def test_what_is_no_terminal_state(terminal, changes, words):
    parts = {"rewards": [[1.0], [0.0], [0.0]], "states": ["a", "b", "c"]} | changes
    with pytest.raises(InputError, match=words):
        Task(policy=[[1.0]] * 3, initial=[1, 0, 0], discount=0.5, terminal=terminal, **parts)


def test_terminal_states_of_a_large_task_need_a_sparse_support(monkeypatch):
    monkeypatch.setattr(task_module, "DENSE_REWARD_LIMIT", 8)
    parts = ([[1.0], [0.0], [0.0]], [[1.0]] * 3, [1, 0, 0], 0.5)
    with pytest.raises(InputError, match="with 3 states and any successor, 9 entries"):
        Task(*parts, terminal=[2])
    assert Task(*parts, sparse.csr_array(np.ones((3, 3))), terminal=[2]).ends == [2]


def test_stored_zeros_are_not_allowed_successors():
    stored = sparse.csr_array((np.array([True, False, True]), [0, 1, 1], [0, 2, 3]), shape=(2, 2))
    task = Task([[0.0], [1.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5, support=stored)
    assert task.known_rows.all()
    assert value_range(task) == (0.0, 0.0)


@pytest.mark.parametrize("rewards", REWARDS)
def test_reward_bounds_look_at_pairs_taken_and_successors_allowed(rewards):
    """Rewards that cannot be earned, here a hundred times as large, do not count."""
    case = make_case(14, rewards=rewards, declared="csr", idle=True)
    taken = case.task.policy > 0
    earned = taken if rewards == "r[s,a]" else taken[:, :, None] & case.support
    inflated = np.where(earned, case.rewards, 100 * case.rewards)
    assert np.abs(inflated).max() > 10
    task = dataclasses.replace(case.task, rewards=as_csr(inflated) if rewards == "csr" else inflated)
    assert task.reward_bounds == (case.rewards[earned].min(), case.rewards[earned].max())
    assert task.rewards_on_successor == (rewards != "r[s,a]")


def test_names_and_places():
    task = Task(np.zeros((2, 3)), np.full((2, 3), 1 / 3), [0.5, 0.5], 0.9, states=["wet", ("dry", 1)], actions="xyz")
    assert (task.n_states, task.n_actions) == (2, 3)
    assert task.states == ("wet", ("dry", 1))
    assert task.actions == ("x", "y", "z")
    assert task.place(0) == "(s=0 'wet', a=0 'x')"
    assert task.place(5, successor=0) == "(s=1 ('dry', 1), a=2 'z', x=0 'wet')"
    plain = Task(np.zeros((2, 3)), np.full((2, 3), 1 / 3), [0.5, 0.5], 0.9)
    assert plain.states is plain.actions is None
    assert plain.place(4, successor=1) == "(s=1, a=1, x=1)"


def test_normalise_divides_rows_by_their_sums():
    task = Task(np.zeros((2, 3)), [[0.333] * 3, [0.2, 0.2, 0.5]], [3.0, 1.0], 0.9, normalise=True)
    assert_allclose(task.policy, [[1 / 3] * 3, [2 / 9, 2 / 9, 5 / 9]], rtol=1e-15)
    assert_array_equal(task.initial, [0.75, 0.25])


@pytest.mark.parametrize("rewards", REWARDS)
@pytest.mark.parametrize("declared", ["dense", "csr"])
def test_a_task_does_not_change(rewards, declared):
    """Its arrays are copies, and read-only."""
    case = make_case(15, rewards=rewards, declared=declared)
    task = case.task
    for name in ("rewards", "policy", "initial", "support"):
        stored = getattr(task, name)
        for array in (stored.data, stored.indices, stored.indptr) if sparse.issparse(stored) else (stored,):
            with pytest.raises(ValueError, match="read-only"):
                array[...] = 0
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(task, name, stored)


@pytest.mark.parametrize("form", [np.array, as_csr])
def test_changing_the_arguments_afterwards_changes_nothing(form):
    case = make_case(16, rewards="r[s,a,x]", declared="dense")
    rewards, support = form(case.rewards), form(case.support)
    policy, initial = case.task.policy.copy(), case.task.initial.copy()
    task = Task(rewards, policy, initial, 0.9, support)
    before = value_range(task), value(task, case.q)
    for argument in (rewards, support, policy, initial):
        (argument.data if sparse.issparse(argument) else argument)[...] = 0
    again = dataclasses.replace(task)
    assert (value_range(again), value(again, case.q)) == before


def test_results_belong_to_the_caller():
    case = make_case(17)
    for function in (state_values, occupancy):
        first = function(case.task, case.q)
        kept = first.copy()
        first[:] = np.nan
        assert_array_equal(function(case.task, case.q), kept)


@numba.njit
def solve_in_envelope(rows, q, gamma, rho, V, d):
    """What only compiled code can call."""
    low, top = np.empty(len(rho), dtype=np.int64), np.empty(len(rho), dtype=np.int64)
    search._envelope(rows, q, len(rho), low, top)
    search._solve_in_envelope(rows, q, gamma, rho, V, d, low, top)


@pytest.mark.parametrize("gamma", [0.5, 0.999, 0.99999])
def test_elimination_in_the_envelope_agrees_with_scipy(gamma):
    """Grids and random graphs: the compiled L U over the envelope against SciPy's sparse solver, V and d."""
    for instance in (
        instances.grid_world(9, 7, discount=gamma),
        instances.random(3, 40, 2, successors=3, discount=gamma),
    ):
        task = instance.task
        rows, q, _ = task.rows_of("q", task.check_kernel("q", instance.kernel))
        S = task.n_states
        V, d = np.zeros(S), np.zeros(S)
        solve_in_envelope(rows, q, gamma, task.initial, V, d)
        P = np.einsum("sa,sax->sx", task.policy, np.asarray(instance.kernel))
        system = np.eye(S) - gamma * P
        assert np.allclose(V, np.linalg.solve(system, (task.policy * task.rewards).sum(axis=1)), rtol=1e-9, atol=0)
        assert np.allclose(d, np.linalg.solve(system.T, task.initial), rtol=1e-9, atol=1e-12)


def test_a_task_survives_pickling_and_copying_unchanged():
    """Same values, still read-only, and the same bytes whether or not it was used before."""
    instance = instances.random(1, 12, 2, successors=3)
    instance = dataclasses.replace(
        instance, task=dataclasses.replace(instance.task, assumptions=["the cells are Markov"])
    )
    fresh = pickle.dumps(instance.task)
    expected = value(instance.task, instance.kernel)
    assert pickle.dumps(instance.task) == fresh
    for twin in (pickle.loads(fresh), copy.deepcopy(instance.task)):
        assert value(twin, instance.kernel) == expected
        assert twin.assumptions == twin.centred(1.0).assumptions == ("the cells are Markov",)
        with pytest.raises(ValueError, match="read-only"):
            twin.rewards[0, 0] = 100.0


@pytest.mark.parametrize("wrong", ["the cells are Markov", [1], None, 3])
def test_assumptions_are_sentences(wrong):
    with pytest.raises(ValueError, match=r"assumptions is .*; pass a list of sentences"):
        Task([[1.0]], [[1.0]], [1.0], 0.5, assumptions=wrong)


@pytest.mark.parametrize("declared", [("gone", "won"), (3,), [np.int64(3), "won"], np.array(["won", "gone"]), ()])
def test_terminal_states_are_what_was_declared(declared):
    """In the task, its copies, and with another policy or discount; a centred task, which pays there, has none."""
    task = Task(
        [[1.0], [2.0], [0.0], [0.0]], np.ones((4, 1)), np.full(4, 0.25), 0.9,
        states=["a", "b", "won", "gone"], terminal=declared,
    )  # fmt: skip
    twins = (pickle.loads(pickle.dumps(task)), copy.deepcopy(task), dataclasses.replace(task, discount=0.5))
    for twin in (task, *twins, dataclasses.replace(task, policy=np.ones((4, 1)))):
        assert twin.terminal == tuple(declared)
        assert twin.ends == sorted({"won": 2, "gone": 3, 3: 3}[label] for label in declared)
    assert task.centred(1.0).terminal is None
    assert dataclasses.replace(task, terminal=None, support=None).terminal is None


def test_ends_are_found_in_every_form():
    """States that stay at reward 0: the same from dense and sparse tables, rewards on pairs and on successors."""
    ends, S, A = [1, 4], 5, 2
    plain = Task(np.ones((S, A)) * (~np.isin(np.arange(S), ends))[:, None], np.full((S, A), 0.5), np.full(S, 0.2), 0.9)
    dense = dataclasses.replace(plain, terminal=ends)
    on_arrival = np.broadcast_to(plain.rewards[:, :, None], (S, A, S))
    flat = sparse.csr_array(dense.support.reshape(S * A, S))
    for rewards in (plain.rewards, on_arrival, sparse.csr_array(on_arrival.reshape(S * A, S))):
        for support in (dense.support, flat):
            assert dataclasses.replace(dense, rewards=rewards, support=support, terminal=None).ends == ends
    assert dataclasses.replace(dense, rewards=np.ones((S, A)), terminal=None).ends == []
