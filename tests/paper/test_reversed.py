"""The reversed MDP of the paper's section 5: its identities, the simulation lemma, both gradients, smoothness."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from policytest import instances
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.mdp.values import occupancy, state_values, value
from policytest.paper import reversed
from policytest.paper.reversed import (
    pair_occupancy,
    pair_value_gradient,
    pair_values,
    reverse,
    simulation_gap,
    smoothness_constant,
    value_gradient,
)

CLOSE = {"rtol": 1e-9, "atol": 1e-9}
STEP = 1e-5


@dataclass(frozen=True, eq=False)
class Case:
    """A task and two kernels."""

    task: Task
    p: np.ndarray
    p_tilde: np.ndarray


def random_kernel(rng, S, A, concentration):
    """Dirichlet rows; a small concentration gives rows close to the corners of the simplex."""
    return rng.dirichlet(np.full(S, concentration), size=(S, A))


def make_case(seed, S, A, discount, on_successor, concentration=1.0):
    known = instances.random(seed, S, A, discount=discount).task
    rng = np.random.default_rng([seed, 1])
    shape = (S, A, S) if on_successor else (S, A)
    task = Task(rng.uniform(-0.7, 2.0, size=shape), known.policy, known.initial, discount)
    return Case(task, random_kernel(rng, S, A, concentration), random_kernel(rng, S, A, concentration))


@st.composite
def cases(draw):
    """Sizes from one state and one action up, rewards in both forms, rows from even to nearly deterministic."""
    return make_case(
        seed=draw(st.integers(0, 2**32 - 1)),
        S=draw(st.integers(1, 5)),
        A=draw(st.integers(1, 3)),
        discount=draw(st.sampled_from([0.0, 0.3, 0.9, 0.97])),
        on_successor=draw(st.booleans()),
        concentration=draw(st.sampled_from([0.2, 1.0, 20.0])),
    )


@pytest.fixture(params=[False, True], ids=["r[s,a]", "r[s,a,x]"])
def case(request):
    return make_case(seed=11, S=3, A=2, discount=0.9, on_successor=request.param)


def pairs(task):
    return [(s, a) for s in range(task.n_states) for a in range(task.n_actions)]


def reward_table(task):
    return task.rewards if task.rewards_on_successor else np.repeat(task.rewards[:, :, None], task.n_states, axis=2)


def central_difference(function, kernel, direction):
    return (function(kernel + STEP * direction) - function(kernel - STEP * direction)) / (2 * STEP)


def assert_is_gradient(function, kernel, gradient, directions):
    """Central differences along each direction agree with <gradient, direction>."""
    assert gradient.shape == kernel.shape
    scale = np.abs(gradient).max()
    assert scale > 0
    for direction in directions:
        slope = central_difference(function, kernel, direction)
        assert_allclose(slope, np.sum(gradient * direction), rtol=0, atol=1e-6 * scale)


def coordinate_directions(shape):
    """One entry at a time: row sums are not kept."""
    return np.eye(np.prod(shape)).reshape(-1, *shape)


def tangent_directions(shape, count=8):
    """Random directions whose rows sum to 0, so that kernels stay kernels."""
    directions = np.random.default_rng(5).normal(size=(count, *shape))
    directions -= directions.mean(axis=-1, keepdims=True)
    return directions / np.abs(directions).max(axis=(1, 2, 3), keepdims=True)


# ---------------------------------------------------------------- subsec:reversed MDP


def test_the_construction_entry_by_entry(case):
    task, mdp = case.task, reverse(case.task)
    S, A = task.n_states, task.n_actions
    assert mdp.discount == task.discount
    for s, a in pairs(task):
        assert mdp.initial[s * A + a] == task.initial[s] * task.policy[s, a]
        for x in range(S):
            assert mdp.rewards[s * A + a, x] == reward_table(task)[s, a, x]
            for x_next, a_next in pairs(task):
                expected = task.policy[x, a_next] if x_next == x else 0.0
                assert mdp.transitions[s * A + a, x, x_next * A + a_next] == expected
    assert_array_equal(mdp.policy(case.p), case.p.reshape(S * A, S))


@given(case=cases())
def test_identities(case):
    task, q, mdp = case.task, case.p, reverse(case.task)
    S, A = task.n_states, task.n_actions
    policy_bar = mdp.policy(q)
    V, V_bar, Q_bar = state_values(task, q), mdp.state_values(policy_bar), mdp.action_values(policy_bar)
    assert_allclose(V_bar.reshape(S, A), pair_values(task, q), **CLOSE)  # V_bar = Q
    assert_allclose(np.einsum("sa,sa->s", task.policy, V_bar.reshape(S, A)), V, **CLOSE)
    assert_allclose(Q_bar.reshape(S, A, S), reward_table(task) + task.discount * V, **CLOSE)
    assert_allclose(mdp.value(policy_bar), value(task, q), **CLOSE)


@given(case=cases())
def test_occupancies_agree(case):
    task, q, mdp = case.task, case.p, reverse(case.task)
    S, A = task.n_states, task.n_actions
    visits = mdp.occupancy(mdp.policy(q)).reshape(S, A)
    assert_allclose(visits, occupancy(task, q)[:, None] * task.policy, **CLOSE)
    assert_allclose(visits.sum(), 1 / (1 - task.discount), **CLOSE)
    from_pairs = np.array([pair_occupancy(task, q, s, a) for s, a in pairs(task)])
    assert_allclose(from_pairs.sum(axis=(1, 2)), 1 / (1 - task.discount), **CLOSE)
    assert_allclose(np.einsum("k,ksa->sa", mdp.initial, from_pairs), visits, **CLOSE)


def test_pair_occupancy_is_the_discounted_sum_of_visits(case):
    """400 steps of the chain on pairs, begun at each pair."""
    task, q = case.task, case.p
    for s, a in pairs(task):
        law = np.zeros((task.n_states, task.n_actions))
        law[s, a] = 1.0
        total = np.zeros_like(law)
        for t in range(400):
            total += task.discount**t * law
            law = np.einsum("sa,sax->x", law, q)[:, None] * task.policy
        assert_allclose(pair_occupancy(task, q, s, a), total, rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_papers_instances_keep_their_value(n):
    instance = instances.paper(n)
    mdp = reverse(instance.task)
    assert_allclose(mdp.value(mdp.policy(instance.kernel)), value(instance.task, instance.kernel), rtol=1e-12)


def test_pairs_the_policy_never_takes_have_values_and_no_influence():
    task = Task([[1.0, 5.0], [-0.5, 0.2]], [[1.0, 0.0], [0.4, 0.6]], [0.3, 0.7], 0.8)
    q = np.array([[[0.5, 0.5], [0.1, 0.9]], [[0.7, 0.3], [0.2, 0.8]]])
    mdp = reverse(task)
    assert_allclose(mdp.state_values(mdp.policy(q)).reshape(2, 2), pair_values(task, q), **CLOSE)
    assert_allclose(pair_values(task, q)[0, 1], 5.0 + 0.8 * q[0, 1] @ state_values(task, q), **CLOSE)
    assert_array_equal(value_gradient(task, q)[0, 1], 0.0)
    assert (pair_value_gradient(task, q, 0, 1)[0, 1] != 0).all()


def test_sparse_rewards_and_declared_support():
    """The same task with rewards stored sparsely: same reversed MDP, same gradient."""
    known = instances.random(2, 4, 2, successors=2)
    gains = np.where(known.task.support, np.random.default_rng(0).normal(size=(4, 2, 4)), 0.0)
    common = (known.task.policy, known.task.initial, 0.9, known.task.support)
    dense, stored = Task(gains, *common), Task(sparse.csr_array(gains.reshape(8, 4)), *common)
    assert_array_equal(reverse(dense).rewards, reverse(stored).rewards)
    assert_allclose(value_gradient(dense, known.kernel), value_gradient(stored, known.kernel), rtol=1e-12)
    assert smoothness_constant(dense) == smoothness_constant(stored)


# ---------------------------------------------------------------- lem:simulation


@given(case=cases())
def test_simulation_lemma(case):
    gap = simulation_gap(case.task, case.p, case.p_tilde)
    assert_allclose(gap, pair_values(case.task, case.p) - pair_values(case.task, case.p_tilde), **CLOSE)


def test_simulation_gap_as_the_paper_writes_it():
    """For r[s,a] the reward cancels: a sum of V_p_tilde over the occupancies. Swapping the kernels swaps the sign."""
    case = make_case(seed=3, S=4, A=2, discount=0.9, on_successor=False)
    task, p, p_tilde = case.task, case.p, case.p_tilde
    D = np.einsum("x,sax->sa", state_values(task, p_tilde), p - p_tilde)
    written = [task.discount * np.sum(pair_occupancy(task, p, s, a) * D) for s, a in pairs(task)]
    assert_allclose(simulation_gap(task, p, p_tilde).ravel(), written, **CLOSE)
    assert_allclose(simulation_gap(task, p, p), 0.0, atol=1e-12)
    assert_allclose(simulation_gap(task, p, p_tilde), -simulation_gap(task, p_tilde, p), **CLOSE)
    assert np.abs(simulation_gap(task, p, p_tilde)).max() > 0.01


# ---------------------------------------------------------------- lem:reversed_PG


def test_value_gradient_in_every_coordinate(case):
    mdp = reverse(case.task)
    assert_is_gradient(
        lambda q: mdp.value(mdp.policy(q)),
        case.p,
        value_gradient(case.task, case.p),
        coordinate_directions(case.p.shape),
    )


def test_value_gradient_along_kernels(case):
    """Directions that keep the rows' sums, with the library's own value function."""
    assert_is_gradient(
        lambda q: value(case.task, q), case.p, value_gradient(case.task, case.p), tangent_directions(case.p.shape)
    )


def test_pair_value_gradient_in_every_coordinate(case):
    mdp, A = reverse(case.task), case.task.n_actions
    for s, a in pairs(case.task):
        assert_is_gradient(
            lambda q, pair=s * A + a: mdp.state_values(mdp.policy(q))[pair],
            case.p,
            pair_value_gradient(case.task, case.p, s, a),
            coordinate_directions(case.p.shape),
        )


def test_pair_value_gradient_along_kernels(case):
    for s, a in pairs(case.task):
        assert_is_gradient(
            lambda q, s=s, a=a: pair_values(case.task, q)[s, a],
            case.p,
            pair_value_gradient(case.task, case.p, s, a),
            tangent_directions(case.p.shape),
        )


@given(case=cases())
def test_value_gradient_averages_the_pair_value_gradients(case):
    task, q = case.task, case.p
    weights = (task.initial[:, None] * task.policy).ravel()
    gradients = np.array([pair_value_gradient(task, q, s, a) for s, a in pairs(task)])
    assert_allclose(np.einsum("k,ksax->sax", weights, gradients), value_gradient(task, q), **CLOSE)


def test_the_difference_check_notices_a_wrong_gradient(case):
    """Negative control: the gradient with the paper's normalised occupancy, 1-gamma times ours, does not pass."""
    mdp = reverse(case.task)
    wrong = (1 - case.task.discount) * value_gradient(case.task, case.p)
    with pytest.raises(AssertionError):
        assert_is_gradient(lambda q: mdp.value(mdp.policy(q)), case.p, wrong, coordinate_directions(case.p.shape))


# ---------------------------------------------------------------- lem:smoothness_parameter


def steepness(task, p, p_tilde, s, a):
    """|grad Q_p(s,a) - grad Q_p_tilde(s,a)| / |p - p_tilde|."""
    change = pair_value_gradient(task, p, s, a) - pair_value_gradient(task, p_tilde, s, a)
    return np.linalg.norm(change) / np.linalg.norm(p - p_tilde)


@given(case=cases(), nearness=st.sampled_from([1.0, 1e-3]))
def test_gradients_are_smooth(case, nearness):
    task, p = case.task, case.p
    p_tilde = p + nearness * (case.p_tilde - p)
    constant = smoothness_constant(task)
    distance = np.linalg.norm(p - p_tilde)
    slack = 1e-9 * (1 + constant)
    for s, a in pairs(task):
        change = pair_value_gradient(task, p, s, a) - pair_value_gradient(task, p_tilde, s, a)
        assert np.linalg.norm(change) <= constant * distance + slack
    change = value_gradient(task, p) - value_gradient(task, p_tilde)
    assert np.linalg.norm(change) <= constant * distance + slack


def test_smoothness_constant_is_the_printed_formula():
    task = instances.paper(5).task
    assert smoothness_constant(task) == pytest.approx(2 * 0.9 * 5 * 0.23644 / 0.1**3, rel=1e-12)
    negative = Task(-np.abs(task.rewards), task.policy, task.initial, task.discount)
    assert smoothness_constant(negative) == smoothness_constant(task)


def test_the_third_power_is_needed():
    """Two states that keep the walker, worth +1 and -1: a small leak moves the gradient by the order (1-gamma)^-3."""
    gamma, leak = 0.99, 1e-4
    task = Task([[1.0], [-1.0]], np.ones((2, 1)), [0.5, 0.5], gamma)
    p = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    p_tilde = np.array([[[1.0 - leak, leak]], [[0.0, 1.0]]])
    steep, constant = steepness(task, p, p_tilde, 0, 0), smoothness_constant(task)
    assert 0.2 * constant < steep <= constant
    assert steep > constant * (1 - gamma)  # so the square, 2 gamma S r_max/(1-gamma)^2, would be false


# ---------------------------------------------------------------- what is refused


def test_sparse_kernels_are_refused_with_the_remedy(case):
    task, mdp = case.task, reverse(case.task)
    kernel = sparse.csr_array(case.p.reshape(-1, task.n_states))
    for call in (
        lambda: pair_values(task, kernel),
        lambda: pair_occupancy(task, kernel, 0, 0),
        lambda: simulation_gap(task, case.p, kernel),
        lambda: pair_value_gradient(task, kernel, 0, 0),
        lambda: value_gradient(task, kernel),
        lambda: mdp.policy(kernel),
        lambda: mdp.value(kernel),
    ):
        with pytest.raises(InputError, match=r"is sparse .*toarray\(\)"):
            call()


def test_large_tasks_are_refused_before_anything_is_built(monkeypatch, case):
    large = instances.random(0, 2000, 4, successors=3)
    with pytest.raises(InputError, match=r"128,000,000,000 entries, .* use `value`"):
        reverse(large.task)
    monkeypatch.setattr(reversed, "DENSE_LIMIT", 17)
    with pytest.raises(InputError, match=r"an array \[3, 2, 3\] would have 18 entries"):
        value_gradient(case.task, case.p)


@pytest.mark.parametrize(
    ("s", "a", "message"),
    [(3, 0, r"s is 3; it must lie in 0..2"), (-1, 0, "s is -1"), (0, 2, "a is 2"), (0.5, 0, "s is 0.5; .* whole")],
)
def test_pairs_that_do_not_exist_are_refused(case, s, a, message):
    with pytest.raises(InputError, match=message):
        pair_occupancy(case.task, case.p, s, a)


def test_wrong_kernels_are_refused(case):
    with pytest.raises(InputError, match="not 1; divide each row"):
        value_gradient(case.task, 2 * case.p)
    with pytest.raises(InputError, match="policy_bar has shape"):
        reverse(case.task).value(case.p)
    idle = Task([[1.0, 5.0]], [[1.0, 0.0]], [1.0], 0.8)
    assert value_gradient(idle, [[[1.0], [0.0]]]).shape == (1, 2, 1)  # the row is not needed here
    with pytest.raises(InputError, match=r"\(s=0, a=1\) sums to 0, not 1; the policy never takes this pair"):
        pair_values(idle, [[[1.0], [0.0]]])
