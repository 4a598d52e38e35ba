"""The characteristic time and the best allocation, against printed numbers, closed forms and bounds."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from policytest.paper.product_box import robust_value
from policytest.worst_case.ball import kl_rows
from policytest.worst_case.lower_bound import uniform_allocation
from problems import Case, draw, nearest_by_slsqp

# S, T* at the uniform allocation (from two independent solvers, agreeing to 1e-10), T* at the best allocation at most
TIMES = [(2, 31.356532, 20.4), (3, 244.863278, 173.6), (5, 62.799474, 52.0)]


@pytest.mark.parametrize(("n", "uniform", "best"), TIMES)
def test_the_papers_instances(n, uniform, best):
    instance = pt.instances.paper(n)
    found = pt.characteristic_time(instance.task, instance.kernel)
    assert found.time == pytest.approx(uniform, rel=1e-6)
    assert found.bracket == (found.time, np.inf)
    assert not found.certified
    assert pt.value(instance.task, found.kernel) <= 0
    allocation = pt.optimal_allocation(instance.task, instance.kernel)
    assert allocation.time <= best
    assert 0 <= allocation.gap <= 2e-3


def test_the_distance_agrees_with_an_independent_solver_on_the_2x2_instance():
    instance = pt.instances.paper(2)
    case = Case("paper", instance.task, instance.kernel, np.full((2, 2), 0.25), 0.0)
    other, _ = nearest_by_slsqp(case, case.centre)
    assert 1 / pt.characteristic_time(instance.task, instance.kernel).time == pytest.approx(other, rel=1e-7)


def test_one_coin_has_a_closed_form():
    """A single unknown coin: V = r.(1, p)-like value crosses R at a known bias, so T* = 1/kl(p, p_R)."""
    task = pt.Task(
        rewards=[[0.0], [1.0], [0.0]],
        policy=np.ones((3, 1)),
        initial=[1.0, 0.0, 0.0],
        discount=0.5,
        support=[[[0, 1, 1]], [[0, 1, 0]], [[0, 0, 1]]],
    )
    p = 0.7  # V = gamma p/(1-gamma) = p
    kernel = np.array([[[0.0, p, 1 - p]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
    assert pt.value(task, kernel) == pytest.approx(p)
    for threshold in (0.5, 0.9):
        expected = p * np.log(p / threshold) + (1 - p) * np.log((1 - p) / (1 - threshold))
        assert pt.characteristic_time(task, kernel, threshold=threshold).time == pytest.approx(1 / expected, rel=1e-9)
        allocation = pt.optimal_allocation(task, kernel, threshold=threshold)
        assert allocation.weights.ravel() == pytest.approx([1.0, 0.0, 0.0])


def test_uniform_leaves_out_known_rows_and_pairs_never_taken():
    instance = pt.instances.grid_world(3, 3)
    weights = uniform_allocation(instance.task)
    assert weights.sum() == pytest.approx(1.0)
    assert (weights[instance.task.known_rows] == 0).all()
    assert np.unique(weights[weights > 0]).size == 1
    policy = np.array([[1.0, 0.0], [0.5, 0.5]])
    task = pt.Task(np.zeros((2, 2)), policy, [0.5, 0.5], 0.9)
    assert uniform_allocation(task) == pytest.approx(np.array([[1 / 3, 0.0], [1 / 3, 1 / 3]]))


@pytest.mark.parametrize("seed", range(8))
def test_no_allocation_beats_the_bound(seed):
    """1/T* is concave in the allocation; its maximum lies between what was found and `upper_bound`."""
    case = draw(seed)
    found = pt.optimal_allocation(case.task, case.centre, case.threshold)
    uniform = pt.characteristic_time(case.task, case.centre, threshold=case.threshold)
    assert found.time <= uniform.time * (1 + 1e-9)
    assert found.weights.sum() == pytest.approx(1.0)
    assert found.gap <= 1e-2
    rng = np.random.default_rng(seed)
    for _ in range(30):
        other = rng.dirichlet(np.ones(found.weights.size)).reshape(found.weights.shape)
        rate = 1 / pt.characteristic_time(case.task, case.centre, other, case.threshold).time
        assert rate <= found.upper_bound * (1 + 1e-9)
    again = pt.characteristic_time(case.task, case.centre, found.weights, case.threshold)
    assert again.time <= found.time * (1 + 1e-9)
    assert again.time == pytest.approx(found.time, rel=0.02)


@pytest.mark.parametrize("n", [2, 3])
def test_at_the_best_allocation_all_divergences_are_equal(n):
    """1/T* = c, at which the product box {KL_sa <= c} reaches the threshold; SLSQP finds no nearer kernel."""
    instance = pt.instances.paper(n)
    best = pt.optimal_allocation(instance.task, instance.kernel)
    assert best.gap <= 1e-8
    box = robust_value(instance.task, instance.kernel, np.full((n, n), best.upper_bound))
    assert box.value == pytest.approx(0.0, abs=1e-9)
    assert robust_value(instance.task, instance.kernel, np.full((n, n), 0.999 * best.upper_bound)).value > 1e-5
    case = Case("best", instance.task, instance.kernel, best.weights, 0.0)
    other, _ = nearest_by_slsqp(case, case.centre)
    assert 1 / best.time == pytest.approx(other, rel=1e-6)


@pytest.mark.parametrize("side", [0, 1])
def test_a_sparse_task_has_its_best_allocation_at_once(side):
    """Near the value one kernel is the most confusing at the best allocation: the bounds from both sides meet."""
    instance = pt.instances.random(4, 60, 3, successors=5)
    value, ends = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    threshold = value + 0.05 * (ends[side] - value)
    best = pt.optimal_allocation(instance.task, instance.kernel, threshold, max_solves=1)
    assert best.gap <= 1e-8
    assert best.status is pt.Status.CONVERGED
    again = pt.characteristic_time(instance.task, instance.kernel, best.weights, threshold)
    assert again.time == pytest.approx(best.time, rel=1e-8)


@pytest.mark.parametrize("index", [0, 1, 2])
def test_far_from_the_value_several_kernels_may_be_equally_confusing(index):
    """There the smallest box is not the answer: its bound is beaten by a mixture of kernels."""
    instance, threshold = pt.instances.several_minima(index)
    task, kernel = instance.task, instance.kernel
    best = pt.optimal_allocation(task, kernel, threshold)
    sense = "min" if pt.value(task, kernel) > threshold else "max"
    box = robust_value(task, kernel, np.full(task.policy.shape, best.upper_bound), sense)
    sign = 1 if sense == "min" else -1
    assert sign * (box.value - threshold) > 1e-4
    assert 0 <= best.gap <= 1e-3


@pytest.mark.parametrize("seed", range(5))
def test_the_supergradient_is_the_divergence_of_the_confusing_kernel(seed):
    """1/T*_omega' <= sum omega' KL(p, q*) for every omega', with equality at omega."""
    case = draw(seed)
    found = pt.characteristic_time(case.task, case.centre, threshold=case.threshold)
    cut = kl_rows(case.centre, found.kernel).reshape(case.weights.shape)
    assert (uniform_allocation(case.task) * cut).sum() == pytest.approx(1 / found.time, rel=1e-9)
    other = np.random.default_rng(seed).dirichlet(np.ones(cut.size)).reshape(cut.shape)
    solver = pt.ProjectionFree(starts=6)
    rate = 1 / pt.characteristic_time(case.task, case.centre, other, case.threshold, solver).time
    assert rate <= (other * cut).sum() * (1 + 1e-9)


def test_at_the_threshold_no_number_of_samples_is_enough():
    instance = pt.instances.paper(3)
    value = pt.value(instance.task, instance.kernel)
    found = pt.characteristic_time(instance.task, instance.kernel, threshold=value)
    assert found.time == np.inf
    assert found.certified


def test_beyond_the_range_no_samples_are_needed():
    instance = pt.instances.paper(3)
    _, high = pt.value_range(instance.task)
    found = pt.characteristic_time(instance.task, instance.kernel, threshold=high + 1)
    assert (found.time, found.kernel, found.certified) == (0.0, None, True)
    assert pt.optimal_allocation(instance.task, instance.kernel, threshold=high + 1).time == 0.0


def test_proposition_1_the_characteristic_time_is_finite():
    """T* < infinity whenever V_p differs from R and every pair is sampled, also very near the threshold."""
    for seed in range(10):
        case = draw(seed)
        value = pt.value(case.task, case.centre)
        near = value + 1e-5 * (case.threshold - value)
        found = pt.characteristic_time(case.task, case.centre, threshold=near)
        assert 0 < found.time < np.inf
