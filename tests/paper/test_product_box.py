"""Robust policy iteration on a product box: exact, with the right slope, and the limit of Algorithm 2's inner loop."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from policytest._base.compiled import search
from policytest.paper.product_box import robust_value
from policytest.worst_case.ball import kl_rows
from policytest.worst_case.problem import lay_out
from problems import draw


def boxes():
    for seed in range(12):
        case = draw(seed, counts=seed % 3 == 2, on_successor=seed % 4 == 3)
        rng = np.random.default_rng(1000 + seed)
        yield case, rng.uniform(0.01, 0.3, size=case.weights.shape)


@pytest.mark.parametrize("sense", ["min", "max"])
def test_no_kernel_of_the_box_does_better(sense):
    sign = 1.0 if sense == "min" else -1.0
    rng = np.random.default_rng(0)
    for case, budgets in boxes():
        found = robust_value(case.task, case.centre, budgets, sense)
        assert found.converged
        assert (kl_rows(case.centre, found.kernel) <= budgets.ravel() * (1 + 1e-9)).all()
        assert pt.value(case.task, found.kernel) == pytest.approx(found.value, abs=1e-12 * (1 + abs(found.value)))
        for _ in range(200):
            other = rng.dirichlet(np.ones(case.task.n_states), size=budgets.shape)
            share = 1.0
            while (kl_rows(case.centre, case.centre + share * (other - case.centre)) > budgets.ravel()).any():
                share *= 0.7
            inside = case.centre + share * (other - case.centre)
            assert sign * pt.value(case.task, inside) >= sign * found.value - 1e-10


@pytest.mark.parametrize("sense", ["min", "max"])
def test_the_slope_is_the_envelope_theorems(sense):
    """d phi/d b = -d(s,a)/lam against central differences."""
    for case, budgets in boxes():
        found = robust_value(case.task, case.centre, budgets, sense)
        for s, a in np.argwhere(case.task.policy > 0.05)[:3]:
            step = 1e-5
            up, down = budgets.copy(), budgets.copy()
            up[s, a] += step
            down[s, a] -= step
            difference = (
                robust_value(case.task, case.centre, up, sense).value
                - robust_value(case.task, case.centre, down, sense).value
            ) / (2 * step)
            assert found.slope[s, a] == pytest.approx(difference, rel=1e-4, abs=1e-7)


def test_budget_zero_keeps_the_centre():
    case = draw(1)
    found = robust_value(case.task, case.centre, np.zeros_like(case.weights))
    assert found.value == pytest.approx(pt.value(case.task, case.centre))
    assert np.array_equal(found.kernel, case.centre)


def test_the_inner_loop_of_algorithm_2_approaches_it():
    """Projected gradient descent on the box, as printed but with more steps, ends at the robust value."""
    for seed in range(3):
        case = draw(seed, discount=0.5)
        budgets = np.random.default_rng(seed).uniform(0.01, 0.2, size=case.weights.shape)
        exact = robust_value(case.task, case.centre, budgets)
        problem = lay_out(case.task, case.centre, case.weights)
        b = budgets.ravel()[problem.rows.pair]
        q, value = search.descend(problem.rows, case.task.discount, case.task.initial, problem.p, b, 1.0, 20.0, 20_000)
        assert value >= exact.value - 1e-9
        assert value == pytest.approx(exact.value, abs=1e-6 * (1 + abs(exact.value)))
        assert (kl_rows(case.centre, problem.kernel(q)) <= budgets.ravel() * (1 + 1e-9)).all()


def test_the_best_box_is_the_ball():
    """Proposition 3: the ball's minimum is attained in the box of its own budgets, and no box of the ball is lower."""
    for seed in range(5):
        case = draw(seed)
        ball = pt.KLBall(case.centre, case.weights, 0.05)
        found = pt.extreme_value(case.task, ball, "min", solver=pt.ProjectionFree(starts=6))
        own = kl_rows(case.centre, found.kernel).reshape(case.weights.shape)
        assert robust_value(case.task, case.centre, own).value == pytest.approx(found.upper, abs=1e-8)
        rng = np.random.default_rng(seed)
        for _ in range(30):
            share = rng.dirichlet(np.full(own.size, 0.5)).reshape(own.shape)
            budgets = share * ball.radius / case.weights
            assert robust_value(case.task, case.centre, budgets).value >= found.upper - 1e-9


def test_a_state_that_is_not_visited_yet_opens_the_way():
    """The first iteration improves only a state the centre never visits; the value follows in the next one."""
    task = pt.Task([[0.0], [0.0], [-1.0]], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.5)
    centre = np.array([[[1.0, 0, 0]], [[1.0, 0, 0]], [[1.0, 0, 0]]])
    found = robust_value(task, centre, np.full((3, 1), 0.5))
    leave = 1 - np.exp(-0.5)
    straight = centre.copy()
    straight[:, 0] = [1 - leave, 0.0, leave]
    assert found.converged
    assert found.value <= pt.value(task, straight) + 1e-12
