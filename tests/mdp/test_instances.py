"""The instances are what they claim to be: the paper's numbers, honest supports, the same thing twice."""

from __future__ import annotations

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from policytest import instances
from policytest._base.errors import InputError
from policytest.mdp.paper_tables import TABLES
from policytest.mdp.task import Task
from policytest.mdp.values import value, value_range

SUMS = {"rtol": 0.0, "atol": 1e-12}


def table_of(kernel):
    """A kernel or support in either form, as a dense array of shape (S*A, S)."""
    return kernel.toarray() if sparse.issparse(kernel) else kernel.reshape(-1, kernel.shape[-1])


def assert_sound(instance):
    """Rows are probability vectors, within the declared support, and the value lies in its range, up to rounding."""
    task, rows = instance.task, table_of(instance.kernel)
    assert rows.shape == (task.n_states * task.n_actions, task.n_states)
    assert (rows >= 0).all()
    assert_allclose(rows.sum(axis=1), 1.0, **SUMS)
    assert_allclose(task.policy.sum(axis=1), 1.0, **SUMS)
    assert_allclose(task.initial.sum(), 1.0, **SUMS)
    if task.support is not None:
        assert sparse.issparse(task.support) == sparse.issparse(instance.kernel)
        assert not (rows[~table_of(task.support)] != 0).any()
    low, high = value_range(task)
    assert low - 1e-12 <= value(task, instance.kernel) <= high + 1e-12


def assert_same(one, other):
    for name in ("rewards", "policy", "initial", "discount"):
        assert_array_equal(getattr(one.task, name), getattr(other.task, name))
    assert_array_equal(table_of(one.kernel), table_of(other.kernel))
    assert (one.task.support is None) == (other.task.support is None)
    if one.task.support is not None:
        assert_array_equal(table_of(one.task.support), table_of(other.task.support))


# ---------------------------------------------------------------- the paper's tables


@pytest.mark.parametrize(("n", "expected"), [(2, 0.20923298), (3, 0.10001394), (5, 0.15612963)])
def test_paper_values_after_renormalisation(n, expected):
    instance = instances.paper(n)
    assert_sound(instance)
    assert value(instance.task, instance.kernel) == pytest.approx(expected, abs=5e-9)


@pytest.mark.parametrize("n", [2, 3, 5])
def test_paper_setting(n):
    task = instances.paper(n).task
    assert (task.n_states, task.n_actions, task.discount, task.support) == (n, n, 0.9, None)
    assert_allclose(task.initial, 1 / n)
    low, high = value_range(task)
    assert low < 0 < high  # apt:general: both answers are possible
    assert (task.policy > 0).all()  # apt:sampling


@pytest.mark.parametrize(("n", "expected"), [(2, -4.987e-5), (3, 6.434e-6), (5, 1.908e-5)])
def test_alternative_policies_have_value_zero_up_to_the_printed_digits(n, expected):
    instance = instances.paper(n)
    known = instance.task
    assert_allclose(instance.alternative_policy.sum(axis=1), 1.0, **SUMS)
    other = Task(known.rewards, instance.alternative_policy, known.initial, known.discount)
    assert value(other, instance.kernel) == pytest.approx(expected, abs=1e-8)
    assert abs(value(other, instance.kernel)) < 1e-3 * abs(value(known, instance.kernel))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_renormalised_rows_are_proportional_to_the_printed_ones(n):
    instance, printed = instances.paper(n), TABLES[n]
    for rows, table in (
        (instance.task.policy, printed.policy),
        (instance.kernel, printed.kernel),
        (instance.alternative_policy, printed.alternative_policy),
    ):
        table = np.array(table)
        assert rows.shape == table.shape
        totals = table.sum(axis=-1, keepdims=True)
        assert_allclose(rows * totals, table, **SUMS)
        assert np.abs(totals - 1).max() < 1.01e-3  # rounding, not a misprint
    assert_array_equal(instance.task.rewards, printed.rewards)


@pytest.mark.parametrize("n", [0, 1, 4, "2", None])
def test_other_sizes_are_refused_with_those_that_exist(n):
    with pytest.raises(InputError, match="n = 2, 3 and 5"):
        instances.paper(n)


def test_nonconvex_example():
    task, (p, q1, q2) = instances.nonconvex()
    assert_array_equal(p, (q1 + q2) / 2)
    values = [value(task, q) for q in (p, q1, q2)]
    assert_allclose(values, [-0.15364, 0.86667, 0.13557], rtol=0, atol=5e-6)
    assert values[0] < 0 < min(values[1:])  # the midpoint of two alternatives is not one


# ---------------------------------------------------------------- random instances


@given(data=st.data(), seed=st.integers(0, 2**32 - 1), S=st.integers(1, 9), A=st.integers(1, 4))
def test_random_instances(data, seed, S, A):
    k = data.draw(st.none() | st.integers(1, S), label="successors")
    gamma = data.draw(st.sampled_from([0.0, 0.5, 0.9, 0.99]), label="discount")
    instance = instances.random(seed, S, A, successors=k, discount=gamma)
    task = instance.task
    assert_sound(instance)
    assert task.discount == gamma
    assert (task.policy >= 0.1 / A).all()
    assert (task.initial >= 0.1 / S).all()
    assert (np.abs(task.rewards) <= 1).all()
    if S * A > 1:
        assert task.rewards.min() < 0 < task.rewards.max()
    if k is None:
        assert task.support is None
    else:
        assert_array_equal(task.support.sum(axis=2), k)
        assert_array_equal(instance.kernel > 0, task.support)
    assert_same(instance, instances.random(seed, S, A, successors=k, discount=gamma))


@pytest.mark.parametrize("k", [1, 3, 12])
def test_sparse_and_dense_forms_of_a_seed_are_one_instance(k, monkeypatch):
    dense = instances.random(4, 12, 3, successors=k)
    monkeypatch.setattr(instances, "DENSE_LIMIT", 0)
    compressed = instances.random(4, 12, 3, successors=k)
    assert sparse.issparse(compressed.kernel)
    assert_sound(compressed)
    assert_same(dense, compressed)
    assert value(dense.task, dense.kernel) == pytest.approx(value(compressed.task, compressed.kernel), rel=1e-12)


def test_seeds_differ():
    one, other = instances.random(0, 5, 2, successors=3), instances.random(1, 5, 2, successors=3)
    assert not np.array_equal(one.kernel, other.kernel)
    assert not np.array_equal(one.task.rewards, other.task.rewards)


def test_successors_are_uniform_subsets():
    """Each of the 10 pairs out of 5 states equally often: 20,000 rows, counts within 5.5 standard deviations."""
    chosen = instances._distinct(np.random.default_rng(0), 20_000, 2, 5)
    assert (chosen[:, 0] < chosen[:, 1]).all()
    counts = np.bincount(chosen[:, 0] * 5 + chosen[:, 1])
    counts = counts[counts > 0]
    assert len(counts) == 10
    assert np.abs(counts - 2000).max() < 5.5 * np.sqrt(20_000 * 0.1 * 0.9)


def test_random_values_are_not_centred_at_zero():
    """The mean over seeds is 0.15/(1-gamma) = 1.5, several standard errors away from 0."""
    values = np.array([value(i.task, i.kernel) for i in (instances.random(seed, 4, 2) for seed in range(200))])
    error = values.std() / np.sqrt(len(values))
    assert values.mean() > 6 * error
    assert abs(values.mean() - 1.5) < 5 * error
    assert (values < 0).any()  # and yet both answers occur
    assert (values > 0).any()


def test_ten_thousand_states_are_quick_and_sparse():
    S, A, k = 10_000, 4, 5
    begin = time.perf_counter()
    instance = instances.random(7, S, A, successors=k)
    elapsed = time.perf_counter() - begin
    kernel, support = instance.kernel, instance.task.support
    assert elapsed < 5.0  # measured: 0.02 s
    assert kernel.format == support.format == "csr"
    assert kernel.shape == support.shape == (S * A, S)
    assert (np.diff(kernel.indptr) == k).all()
    assert (np.diff(kernel.indices.reshape(-1, k), axis=1) > 0).all()  # sorted, so distinct
    assert_array_equal(kernel.indices, support.indices)
    assert support.data.all()
    assert_allclose(kernel.sum(axis=1), 1.0, **SUMS)
    low, high = value_range(instance.task)
    assert low < value(instance.task, kernel) < high


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"S": 0, "A": 2}, "S is 0; it must be at least 1"),
        ({"S": 3, "A": 1.5}, "A is 1.5; it must be a whole number"),
        ({"S": 3, "A": 2, "successors": 4}, "successors is 4, more than there are states; it must be at most 3"),
        ({"S": 3, "A": 2, "successors": 0}, "successors is 0; it must be at least 1"),
        ({"S": 10_000, "A": 4}, "400,000,000 entries; pass successors=k"),
        ({"S": 3, "A": 2, "discount": 1.0}, "discount is 1"),
    ],
)
def test_random_refuses(arguments, message):
    with pytest.raises(InputError, match=message):
        instances.random(0, **arguments)


# ---------------------------------------------------------------- the grid world


@pytest.mark.parametrize("size", [(1, 1), (1, 4), (4, 1), (2, 2), (5, 3), (3, 7)])
@pytest.mark.parametrize("slip", [0.0, 0.1, 1.0])
def test_grid_world(size, slip):
    grid = instances.grid_world(*size, slip=slip)
    task = grid.task
    assert_sound(grid)
    assert grid.alternative_policy is None
    assert task.states == tuple((x, y) for y in range(size[1]) for x in range(size[0]))
    assert set(task.actions) == {"up", "right", "down", "left"}
    assert task.support.sum(axis=2).max() <= 3
    assert (task.policy > 0).all()
    assert (task.initial > 0).all()


@pytest.mark.parametrize("size", [(3, 2), (4, 4)])
def test_grid_world_moves(size):
    """The kernel, cell by cell, as a slow loop over the rules gives it."""
    width, height, slip = *size, 0.3
    grid = instances.grid_world(width, height, slip=slip)
    moves = {"up": (0, 1), "right": (1, 0), "down": (0, -1), "left": (-1, 0)}
    sides = {"up": ("left", "right"), "down": ("left", "right"), "left": ("up", "down"), "right": ("up", "down")}
    at = {cell: s for s, cell in enumerate(grid.task.states)}
    goal = (width - 1, height - 1)
    expected = np.zeros_like(grid.kernel)
    for (x, y), s in at.items():
        for a, action in enumerate(grid.task.actions):
            for move, mass in ((action, 1 - slip), *((side, slip / 2) for side in sides[action])):
                aimed = (x + moves[move][0], y + moves[move][1])
                landed = aimed if aimed in at and (x, y) != goal else (x, y)
                expected[s, a, at[landed]] += mass
    assert_allclose(grid.kernel, expected, **SUMS)
    assert_array_equal(grid.task.support, expected > 0)


@pytest.mark.parametrize("size", [(2, 2), (5, 3)])
def test_the_goal_is_the_only_known_place(size):
    grid = instances.grid_world(*size)
    goal = grid.task.states.index((size[0] - 1, size[1] - 1))
    known = grid.task.known_rows
    assert known[goal].all()
    assert not np.delete(known, goal, axis=0).any()
    assert (grid.kernel[goal, :, goal] == 1).all()


def test_the_grid_policy_heads_for_the_goal():
    """Going the other way is worth less, and the policy's value beats an evenly wandering one."""
    grid = instances.grid_world(6, 5)
    task = grid.task
    even = Task(task.rewards, np.full_like(task.policy, 0.25), task.initial, task.discount)
    away = Task(task.rewards, task.policy[:, [2, 3, 0, 1]], task.initial, task.discount)
    assert value(away, grid.kernel) < value(even, grid.kernel) < value(task, grid.kernel)


def test_large_grids_are_sparse():
    large = instances.grid_world(100, 100)
    kernel, support = large.kernel, large.task.support
    assert kernel.format == support.format == "csr"
    assert kernel.shape == support.shape == (40_000, 10_000)
    assert np.diff(support.indptr).max() == 3
    assert_array_equal(kernel.indices, support.indices)
    assert_allclose(kernel.sum(axis=1), 1.0, **SUMS)


def test_sparse_and_dense_grids_are_one_instance(monkeypatch):
    dense = instances.grid_world(5, 4, slip=0.2)
    monkeypatch.setattr(instances, "DENSE_LIMIT", 0)
    compressed = instances.grid_world(5, 4, slip=0.2)
    assert sparse.issparse(compressed.kernel)
    assert_same(dense, compressed)
    assert_sound(compressed)
    assert (instances.grid_world(5, 4, slip=0.0).kernel.data == 1.0).all()  # no zeros are stored


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"width": 0, "height": 2}, "width is 0; it must be at least 1"),
        ({"width": 2, "height": 2.5}, "height is 2.5; it must be a whole number"),
        ({"width": 2, "height": 2, "slip": 1.2}, "slip is 1.2; it is a probability"),
        ({"width": 2, "height": 2, "slip": "a lot"}, "slip is not an array of numbers"),
    ],
)
def test_grid_world_refuses(arguments, message):
    with pytest.raises(InputError, match=message):
        instances.grid_world(**arguments)
