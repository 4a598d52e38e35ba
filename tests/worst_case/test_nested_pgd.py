"""Algorithm 2 as printed: its constants, its refusal of impossible grids, and Theorem 2 where it can run."""

from __future__ import annotations

import math

import numpy as np
import pytest

import policytest as pt
from policytest.worst_case.nested_pgd import Constants, printed_constants


def small(support=None):
    """Two states, one action, gamma = 0.3: the printed constants give a grid that can be searched."""
    task = pt.Task([[0.8], [-0.7]], np.ones((2, 1)), [0.5, 0.5], discount=0.3, support=support)
    kernel = np.array([[[0.7, 0.3]], [[0.4, 0.6]]])
    return task, kernel, np.full((2, 1), 0.5)


def test_the_constants_are_the_printed_formulas():
    """L, h and M of lines 7, 8 and 10, written out for the 2x2 instance at zeta = 0.1."""
    instance = pt.instances.paper(2)
    value = pt.value(instance.task, instance.kernel)
    found = printed_constants(instance.task, value, 0.1)
    r_max, smallest = 1.0, 0.5 * 0.15
    assert pytest.approx(2 * (0.9 * 2 + 1) * r_max / 0.1**3) == found.L
    assert found.h == pytest.approx(0.1**2 * 0.1**4 / (18 * 2**2 * 2**2 * value**2 * r_max**2))
    assert math.ceil(384 * (0.9 * 2 + 1) * 4 * r_max * value / smallest**2 / (0.1**5 * 0.1)) == pytest.approx(found.M)


def test_a_threshold_enters_through_the_shifted_reward():
    task, kernel, _ = small()
    threshold = 0.2
    shifted = pt.Task(task.rewards - (1 - task.discount) * threshold, task.policy, task.initial, task.discount)
    one = printed_constants(task, pt.value(task, kernel), 0.3, threshold)
    two = printed_constants(shifted, pt.value(shifted, kernel), 0.3, 0.0)
    assert (one.L, one.h, one.M) == pytest.approx((two.L, two.h, two.M))


def test_an_impossible_grid_is_refused_with_its_size():
    """On the paper's smallest instance at zeta = 0.1 the grid has about 1e23 points."""
    instance = pt.instances.paper(2)
    ball = pt.KLBall(instance.kernel, np.full((2, 2), 0.25), 1 / 31.356532)
    with pytest.raises(pt.InputError, match=r"about \d\.\de\+23 points") as caught:
        pt.extreme_value(instance.task, ball, solver=pt.NestedPGD(zeta=0.1))
    assert "max_grid" in str(caught.value)


def one_row():
    """One known row leaves a grid in one dimension, which can be fine enough to say much."""
    task, kernel, weights = small(support=[[[1, 1]], [[0, 1]]])
    kernel[1, 0] = [0.0, 1.0]
    return task, kernel, weights


@pytest.mark.parametrize("sense", ["min", "max"])
def test_theorem_2_holds_where_the_printed_constants_can_run(sense):
    """u_zeta >= u >= u_zeta - zeta, in product units, against an independent optimum."""
    task, kernel, weights = small()
    ball = pt.KLBall(kernel, weights, 0.02)
    zeta = 0.018
    found = pt.extreme_value(task, ball, sense, solver=pt.NestedPGD(zeta=zeta))
    assert found.certified
    assert found.status is pt.Status.PROVED
    best = pt.extreme_value(task, ball, sense, solver=pt.ProjectionFree(starts=10))
    optimum = best.upper if sense == "min" else best.lower
    assert found.lower <= optimum <= found.upper
    assert found.upper - found.lower == pytest.approx(zeta / abs(pt.value(task, kernel)))
    assert found.kernel in ball
    attained = found.upper if sense == "min" else found.lower
    assert attained == pytest.approx(optimum, abs=0.01 * (found.upper - found.lower))


def test_theorem_2_excludes_the_centre_where_its_width_is_small():
    """The bracket is narrower than the way from the centre to the optimum, so the inner loop must have worked."""
    task, kernel, weights = one_row()
    ball = pt.KLBall(kernel, weights, 0.1)
    found = pt.extreme_value(task, ball, solver=pt.NestedPGD(zeta=0.003))
    best = pt.extreme_value(task, ball)
    assert found.certified
    assert found.lower <= best.upper <= found.upper < pt.value(task, kernel) - (found.upper - found.lower)
    found = pt.extreme_value(task, ball, solver=pt.NestedPGD(zeta=0.01))
    assert found.lower <= best.upper <= found.upper
    assert np.array_equal(found.kernel[1], kernel[1])  # known rows get no budget


def test_a_distance_is_bracketed_by_bisection():
    task, kernel, weights = one_row()
    value = pt.value(task, kernel)
    low, _ = pt.value_range(task)
    threshold = value + 0.5 * (low - value)
    zeta = 0.4 * (value - threshold) ** 2
    found = pt.nearest_kernel(task, kernel, weights, threshold, solver=pt.NestedPGD(zeta=zeta, bisections=4, gap=0.7))
    best = pt.nearest_kernel(task, kernel, weights, threshold)
    assert found.certified
    assert 0 < found.lower <= best.upper <= found.upper < np.inf
    assert pt.value(task, found.kernel) <= threshold
    inner = pt.extreme_value(task, pt.KLBall(kernel, weights, found.lower))  # by Theorem 2 not even near the threshold
    assert inner.upper - threshold >= 0.9 * zeta / (value - threshold)


def test_a_larger_smoothness_needs_as_many_more_steps():
    """The rate of the inner loop is L/M: short steps, and not enough of them, leave the centre where it is."""
    task, kernel, weights = one_row()
    ball = pt.KLBall(kernel, weights, 0.0004)
    assert pt.extreme_value(task, ball, solver=pt.NestedPGD(zeta=0.009)).certified
    assert not pt.extreme_value(task, ball, solver=pt.NestedPGD(zeta=0.009, smoothness=1e4)).certified


def test_the_size_of_the_grid_is_bounded_from_above():
    """Counted by hand: vectors of non-negative integers with sum at most m, in K dimensions, are (m + K choose K)."""
    for K, m in ((2, 10), (5, 3), (30, 10)):
        bound = Constants(L=1.0, h=1.0, M=1).grid_size(np.ones(K), float(m))
        assert bound >= math.comb(m + K, K)


def test_weak_constants_that_never_reach_the_threshold_say_so():
    task, kernel, weights = small()
    solver = pt.NestedPGD(mesh=0.05, steps=1, smoothness=1e6, max_grid=1000)
    found = pt.nearest_kernel(task, kernel, weights, pt.value_range(task)[0] + 0.01, solver=solver)
    assert found.status is pt.Status.NOT_REACHED
    assert found.upper == np.inf


@pytest.mark.parametrize("setting", ["zeta", "mesh", "steps", "smoothness", "max_grid", "bisections", "gap"])
def test_settings_must_be_positive(setting):
    for value in (0, -1):
        with pytest.raises(pt.InputError, match=f"{setting} is {value}"):
            pt.NestedPGD(**{setting: value})


def test_weaker_constants_and_a_centre_on_the_threshold_prove_nothing():
    """Line 3 of the algorithm: V_p = 0 returns 0, and sampling goes on."""
    task, kernel, weights = small()
    for change in ({"mesh": 0.05}, {"steps": 10}, {"smoothness": 1.0}):
        found = pt.extreme_value(task, pt.KLBall(kernel, weights, 0.01), solver=pt.NestedPGD(zeta=0.02, **change))
        assert not found.certified
        assert found.lower == pt.value_range(task)[0]
    value = pt.value(task, kernel)
    trivial = pt.extreme_value(task, pt.KLBall(kernel, weights, 0.01), solver=pt.NestedPGD(zeta=1.0))
    assert (trivial.certified, trivial.status) == (False, pt.Status.LOOSE)
    found = pt.extreme_value(task, pt.KLBall(kernel, weights, 0.05), solver=pt.NestedPGD(threshold=value))
    assert not found.certified
    assert found.upper == value


def test_assumptions_are_asked_for():
    task, kernel, weights = small()
    free = weights.copy()
    free[1, 0] = 0.0
    with pytest.raises(pt.InputError, match=r"s=1, a=0.*Assumption 2"):
        pt.extreme_value(task, pt.KLBall(kernel, free, 0.05), solver=pt.NestedPGD(zeta=0.5))
    pointed = pt.Task(task.rewards, task.policy, [1.0, 0.0], task.discount)
    with pytest.raises(pt.InputError, match="number of steps is infinite"):
        pt.extreme_value(pointed, pt.KLBall(kernel, weights, 0.05), solver=pt.NestedPGD(zeta=0.5))
