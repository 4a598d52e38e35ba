"""The projection-free solver: unseen successors, free and known rows, sparse tasks, hard cases, honest ends."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import policytest as pt
from policytest.worst_case.problem import lay_out
from problems import as_csr, draw


def stationarity(task, centre, weights, kernel, lam, sign):
    """KKT by hand: y_sa = N_x/q_x - c_x is the same for all successors with q > 0, and no smaller for the others."""
    problem = lay_out(task, centre, weights)
    q = problem.rows.pick(kernel, task.n_states)
    cost = lam * sign * problem.value_gradient(q)
    worst = 0.0
    for k in np.flatnonzero(problem.n > 0):
        row = slice(problem.rows.start[k], problem.rows.start[k + 1])
        N, qk, c = problem.N[row], q[row], cost[row]
        has = qk > 0
        y = np.where(has, N / np.where(has, qk, 1.0) - c, np.nan)
        level = np.average(y[has], weights=qk[has])
        scale = problem.n[k] + np.ptp(c)
        worst = max(worst, float((np.abs(y[has] - level) * qk[has]).max()) / scale)
        if (~has).any():
            worst = max(worst, float((-c[~has] - level).max()) / scale)
    return worst


@given(st.integers(0, 10_000), st.booleans(), st.booleans())
def test_the_result_satisfies_the_stationarity_conditions(seed, counts, on_successor):
    case = draw(seed, counts=counts, on_successor=on_successor)
    found = case.nearest()
    if found.status is not pt.Status.CONVERGED:
        assert found.status is pt.Status.IMMEDIATE  # free rows alone reach the threshold
        return
    error = stationarity(case.task, case.centre, case.weights, found.kernel, 1 / found.multiplier, case.sign)
    assert error < 1e-5
    assert pt.value(case.task, found.kernel) == pytest.approx(case.threshold, abs=1e-9 * (1 + abs(case.threshold)))


def test_mass_goes_to_unseen_successors():
    """Closed form: one free choice. State 0 was seen to stay put n times; moving to state 1 was never seen."""
    task = pt.Task([[1.0], [0.0]], np.ones((2, 1)), [1.0, 0.0], discount=0.5, support=[[[1, 1]], [[0, 1]]])
    centre = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    n = 10.0
    found = pt.nearest_kernel(task, centre, [[n], [5.0]], threshold=1.5)
    stay = 2 * (1 - 1 / 1.5)  # V(0) = 1/(1 - stay/2)
    assert found.kernel[0, 0] == pytest.approx([stay, 1 - stay], rel=1e-9)
    assert found.upper == pytest.approx(-n * np.log(stay), rel=1e-9)
    # the control: forbidding the unseen successor (a narrower support) makes the threshold unreachable
    make = partial(pt.Task, [[1.0], [0.0]], np.ones((2, 1)), [1.0, 0.0], discount=0.5)
    open_ended = pt.nearest_kernel(make(), centre, np.ones((2, 1)), threshold=1.5)
    closed = pt.nearest_kernel(make(support=[[[1, 0]], [[0, 1]]]), centre, np.ones((2, 1)), threshold=1.5)
    assert open_ended.upper < 1
    assert closed.upper == np.inf
    assert closed.kernel is None
    assert closed.status is pt.Status.UNREACHABLE


def test_free_rows_may_reach_the_threshold_at_no_cost():
    case = draw(11)
    weights = np.zeros_like(case.weights)
    found = pt.nearest_kernel(case.task, case.centre, weights, case.threshold)
    assert found.upper == 0.0
    assert case.sign * (pt.value(case.task, found.kernel) - case.threshold) <= 0


def test_a_free_row_can_only_help():
    for seed in range(20):
        case = draw(seed)
        weights = case.weights.copy()
        weights[0, 0] = 0.0
        full = case.nearest()
        free = pt.nearest_kernel(case.task, case.centre, weights, case.threshold, solver=pt.ProjectionFree(starts=4))
        assert free.upper <= full.upper * (1 + 1e-9)


def test_known_rows_do_not_move():
    instance = pt.instances.grid_world(4, 3)
    low, _ = pt.value_range(instance.task)
    value = pt.value(instance.task, instance.kernel)
    found = pt.nearest_kernel(instance.task, instance.kernel, np.ones((12, 4)), value + 0.2 * (low - value))
    known = instance.task.known_rows
    assert known.any()
    assert np.array_equal(found.kernel[known], instance.kernel[known])
    assert (found.kernel[~instance.task.support] == 0).all()


def test_more_starts_never_hurt_and_sometimes_help():
    """On the adversarial instances the descent from the centre ends at a local minimum; others do better."""
    better = 0
    for index in range(len(pt.instances.SEVERAL_MINIMA_SEEDS)):
        instance, threshold = pt.instances.several_minima(index)
        weights = np.full(instance.task.policy.shape, 1 / instance.task.n_states)
        one = pt.nearest_kernel(instance.task, instance.kernel, weights, threshold)
        many = pt.nearest_kernel(instance.task, instance.kernel, weights, threshold, pt.ProjectionFree(starts=40))
        assert one.status is pt.Status.CONVERGED
        assert many.upper <= one.upper
        assert pt.value(instance.task, many.kernel) <= threshold
        assert not one.certified
        better += many.upper < 0.9 * one.upper
    assert better >= 10


@pytest.mark.parametrize("sense", ["min", "max"])
@pytest.mark.parametrize("declared", [True, False])
def test_sparse_and_dense_agree(sense, declared):
    """Same problem as arrays and as CSR; without declared support the sparse rows are open to every state."""
    for seed in range(10):
        instance = pt.instances.random(seed, 12, 2, successors=3)
        known = instance.task
        task = known if declared else replace(known, support=None)
        sparse_task = replace(task, support=as_csr(known.support) if declared else None)
        weights = np.random.default_rng(seed).uniform(0.5, 2.0, size=(12, 2))
        value = pt.value(task, instance.kernel)
        end = pt.value_range(task)[0 if sense == "min" else 1]
        threshold = value + 0.15 * (end - value)
        dense = pt.nearest_kernel(task, instance.kernel, weights, threshold)
        thin = pt.nearest_kernel(sparse_task, as_csr(instance.kernel), weights, threshold)
        assert pt.value_range(sparse_task) == pytest.approx(pt.value_range(task), rel=1e-12)
        assert thin.upper == pytest.approx(dense.upper, rel=1e-8)
        assert sparse.issparse(thin.kernel)
        assert thin.kernel.toarray().reshape(dense.kernel.shape) == pytest.approx(dense.kernel, abs=1e-4)
        small = pt.extreme_value(task, pt.KLBall(instance.kernel, weights, dense.upper), sense)
        large = pt.extreme_value(sparse_task, pt.KLBall(as_csr(instance.kernel), weights, dense.upper), sense)
        assert large.upper == pytest.approx(small.upper, rel=1e-9)
        assert large.lower == pytest.approx(small.lower, rel=1e-9)


def test_a_sparse_problem_with_unvisited_rows_and_open_support():
    instance = pt.instances.random(2, 10, 2, successors=2)
    task, weights = replace(instance.task, support=None), np.ones((10, 2))
    weights[3] = 0.0
    value = pt.value(task, instance.kernel)
    threshold = value + 0.5 * (pt.value_range(task)[0] - value)
    dense = pt.nearest_kernel(task, instance.kernel, weights, threshold)
    thin = pt.nearest_kernel(task, as_csr(instance.kernel), weights, threshold)
    assert thin.upper == pytest.approx(dense.upper, rel=1e-8)


def test_ten_thousand_sparse_states():
    instance = pt.instances.random(0, 10_000, 4, successors=5)
    value = pt.value(instance.task, instance.kernel)
    low, _ = pt.value_range(instance.task)
    found = pt.characteristic_time(instance.task, instance.kernel, threshold=value + 0.05 * (low - value))
    assert pt.value(instance.task, found.kernel) <= value + 0.05 * (low - value)
    assert np.isfinite(found.time)


@pytest.mark.parametrize("gamma", [0.1, 0.9, 0.999])
@pytest.mark.parametrize("share", [1e-6, 0.5, 0.999])
def test_extreme_thresholds_end_with_a_feasible_kernel(gamma, share):
    for seed in range(20):
        case = draw(seed, counts=seed % 2 == 0, discount=gamma)
        value = pt.value(case.task, case.centre)
        end = pt.value_range(case.task)[0 if case.sense == "min" else 1]
        threshold = value + share * (end - value)
        found = pt.nearest_kernel(case.task, case.centre, case.weights, threshold)
        assert found.kernel is not None
        assert case.sign * (pt.value(case.task, found.kernel) - threshold) <= 0
        assert case.loss(found.kernel) == pytest.approx(found.upper, rel=1e-7, abs=1e-12)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_scale_of_rewards_and_weights_does_not_matter(scale):
    for seed in range(5):
        case = draw(seed)
        task = case.task
        scaled = pt.Task(scale * task.rewards, task.policy, task.initial, task.discount)
        one = pt.nearest_kernel(task, case.centre, case.weights, case.threshold)
        two = pt.nearest_kernel(scaled, case.centre, case.weights / scale, scale * case.threshold)
        assert two.upper * scale == pytest.approx(one.upper, rel=1e-9)


def test_an_iteration_limit_is_said_and_the_kernel_is_still_feasible():
    instance = pt.instances.paper(5)
    found = pt.nearest_kernel(
        instance.task, instance.kernel, np.full((5, 5), 0.04), 0.0, solver=pt.ProjectionFree(max_iterations=1)
    )
    assert found.status is pt.Status.ITERATION_LIMIT
    assert pt.value(instance.task, found.kernel) <= 0.0
    assert found.upper >= 1 / 62.799474 - 1e-12


def one_row_moves(task, centre, weights, radius):
    """Every kernel of the ball that moves a single row towards a single state: plain competitors."""
    for s, a in np.argwhere(task.policy > 0):
        share = 1 - np.exp(-radius / weights[s, a])  # KL(p, (1-t) p + t e) <= -log(1-t)
        for x in range(task.n_states):
            kernel = centre.copy()
            kernel[s, a] = (1 - share) * centre[s, a] + share * np.eye(task.n_states)[x]
            yield kernel


@pytest.mark.parametrize("sense", ["min", "max"])
def test_rows_with_a_single_seen_successor_still_move(sense):
    """Deterministic data: nothing moves until the multiplier is large, and then only to unseen successors."""
    sign = 1.0 if sense == "min" else -1.0
    for seed in range(60):
        rng = np.random.default_rng(seed)
        S, A = int(rng.integers(2, 6)), int(rng.integers(1, 3))
        centre = np.eye(S)[rng.integers(S, size=(S, A))]
        if seed % 2:
            centre[0, 0] = rng.dirichlet(np.ones(S))
        task = pt.Task(rng.normal(size=(S, A)), rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S)), 0.9)
        weights = rng.integers(1, 60, size=(S, A)).astype(float)
        ball = pt.KLBall(centre, weights, float(rng.choice([0.1, 1.0, 5.0])))
        found = pt.extreme_value(task, ball, sense)
        assert found.kernel in ball
        best = found.upper if sense == "min" else found.lower
        for kernel in one_row_moves(task, centre, weights, ball.radius):
            assert kernel in ball
            assert sign * pt.value(task, kernel) >= sign * best - 1e-9


def test_the_extreme_value_of_one_repeated_transition_in_closed_form():
    """State 0 stayed put n times. Leaving it was never seen, yet costs only -n log(stay)."""
    task = pt.Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], 0.9, support=[[[1, 1]], [[0, 1]]])
    centre = np.array([[[1.0, 0.0]], [[0.0, 1.0]]])
    for n in (10.0, 50.0, 1000.0):
        for radius in (0.1, 1.0, 5.0):
            found = pt.extreme_value(task, pt.KLBall(centre, [[n], [1.0]], radius))
            assert found.upper == pytest.approx(1 / (1 - 0.9 * np.exp(-radius / n)), rel=1e-9)


@pytest.mark.parametrize("radius", [1e-12, 1e-3, 1.0, 13.0, 100.0, 1e4])
def test_the_kernel_is_in_the_ball_at_any_radius(radius):
    """Also where q falls below the rounding of 1: a probability may be tiny, but not lost."""
    for n in (2, 3):
        instance = pt.instances.paper(n)
        for sense in ("min", "max"):
            ball = pt.KLBall(instance.kernel, np.ones((n, n)), radius)
            found = pt.extreme_value(instance.task, ball, sense)
            assert found.kernel in ball
            assert found.lower <= found.upper


def test_the_extreme_value_falls_with_the_radius():
    for seed in range(10):
        case = draw(seed, counts=True)
        weights = np.maximum(case.weights, 1.0)
        radii = np.geomspace(1e-3, 50, 40)
        values = [pt.extreme_value(case.task, pt.KLBall(case.centre, weights, r)).upper for r in radii]
        assert (np.diff(values) <= 1e-9 * (1 + np.abs(values[:-1]))).all()


def test_a_slow_search_near_absorbing_states_does_not_overstate_the_distance():
    """Three states absorbing in the data, gamma = 0.99: against a patient search, and against the inverse problem."""
    centre = np.array([[[1.0, 0, 0, 0]], [[0, 1.0, 0, 0]], [[0, 0, 1.0, 0]], [[0.4, 0.1, 0.3, 0.2]]])
    task = pt.Task([[1.0], [-0.1], [0.5], [-0.3]], np.ones((4, 1)), [0, 0, 0, 1.0], 0.99)
    weights = np.full((4, 1), 10.0)
    found = pt.nearest_kernel(task, centre, weights, 27.8)
    patient = pt.nearest_kernel(task, centre, weights, 27.8, solver=pt.ProjectionFree(max_iterations=20_000))
    assert pt.value(task, found.kernel) <= 27.8
    assert found.upper <= patient.upper * (1 + 1e-4)
    less = pt.extreme_value(task, pt.KLBall(centre, weights, 0.99 * found.upper))
    more = pt.extreme_value(task, pt.KLBall(centre, weights, 1.01 * found.upper))
    assert more.upper < 27.8 < less.upper


def test_free_rows_of_states_that_nobody_visits_yet():
    """Two free rows in a chain: the first pays only once the second has moved, and neither is on the way at first."""
    task = pt.Task([[0.0], [0.0], [-1.0]], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.5)
    centre = np.array([[[1.0, 0, 0]], [[1.0, 0, 0]], [[1.0, 0, 0]]])
    weights = np.array([[0.0], [0.0], [0.0]])
    found = pt.extreme_value(task, pt.KLBall(centre, weights, 0.0))
    assert found.upper == pytest.approx(pt.value_range(task)[0])


@pytest.mark.parametrize("scale", [1e-250, 1e-100, 1e100, 1e250])
def test_the_unit_of_the_weights_does_not_matter(scale):
    instance = pt.instances.paper(2)
    one = pt.extreme_value(instance.task, pt.KLBall(instance.kernel, np.ones((2, 2)), 0.1))
    two = pt.extreme_value(instance.task, pt.KLBall(instance.kernel, np.full((2, 2), scale), 0.1 * scale))
    assert two.upper == pytest.approx(one.upper, rel=1e-9)
