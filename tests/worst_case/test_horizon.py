"""Values with a horizon in the worst-case problems: the gradient, the limit without a horizon, and one step."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, each
from policytest.worst_case.ball import KLBall
from policytest.worst_case.horizon import value_with_horizon


def random_task(seed, gamma, H, S=3, A=2):
    """Rewards on (s,a) or on (s,a,x), by the parity of the seed; and a kernel."""
    rng = np.random.default_rng(seed)
    rewards = rng.normal(size=(S, A, S) if seed % 2 else (S, A))
    policy, initial = rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S))
    return pt.Task(rewards, policy, initial, gamma, horizon=H), rng.dirichlet(np.ones(S), size=(S, A)), rng


@each(("seed", "gamma", "H"), [(seed, gamma, H) for seed in range(4) for gamma in (1.0, 0.7) for H in (1, 2, 5)])
def test_the_gradient_is_that_of_the_value(seed, gamma, H):
    task, kernel, rng = random_task(seed, gamma, H)
    value, gradient = value_with_horizon(task, task.layout.rows).linear(kernel.ravel())
    assert value == pytest.approx(pt.value(task, kernel), abs=1e-13)
    along = rng.normal(size=kernel.shape)
    along -= along.mean(axis=2, keepdims=True)
    step = 1e-5
    slope = (pt.value(task, kernel + step * along) - pt.value(task, kernel - step * along)) / (2 * step)
    assert gradient @ along.ravel() == pytest.approx(slope, abs=1e-7)


@each("seed", range(4))
def test_a_long_horizon_has_the_bounds_of_the_discounted_table(seed):
    """Against the compiled solver of the task without a horizon."""
    task, kernel, _ = random_task(seed, 0.5, 60)
    endless = pt.Task(task.rewards, task.policy, task.initial, 0.5)
    R = pt.value(task, kernel) - 0.3
    mine, its = (pt.characteristic_time(one, kernel, threshold=R) for one in (task, endless))
    assert mine.time == pytest.approx(its.time, rel=1e-6)
    assert not mine.certified
    best, other = (pt.optimal_allocation(one, kernel, R) for one in (task, endless))
    assert best.time == pytest.approx(other.time, rel=3e-3)
    ball = KLBall(kernel, np.full((3, 2), 100.0), 3.0)
    low, low_endless = (pt.extreme_value(one, ball) for one in (task, endless))
    assert low.upper == pytest.approx(low_endless.upper, rel=1e-7)


def test_one_step_is_a_coin():
    """One step from one state: the nearest coin on the other side of R is R."""
    task = pt.Task([[[0.0, 1.0]], [[0.0, 0.0]]], [[1.0]] * 2, [1.0, 0.0], 1.0, horizon=1, terminal=[1])
    kernel = [[[0.3, 0.7]], [[0.0, 1.0]]]
    found = pt.characteristic_time(task, kernel, threshold=0.5)
    assert 1.0 / found.time == pytest.approx(0.3 * np.log(0.6) + 0.7 * np.log(1.4), rel=1e-9)


def test_refused():
    task, kernel, _ = random_task(0, 1.0, 3)
    ask = {"threshold": pt.value(task, kernel) - 0.1}
    assert_refused(lambda: pt.characteristic_time(task, kernel, solver=pt.Certified(), **ask), "ProjectionFree()")
    goal = pt.Task.reaching([1], policy=[[1.0]] * 3, initial=[1.0, 0.0, 0.0])
    assert_refused(lambda: pt.characteristic_time(goal, np.full((3, 1, 3), 1 / 3), threshold=0.5), "discount 1")
