"""Every solver meets every problem: whatever it returns must be a bracket that holds, with a feasible kernel."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from problems import Case, draw, nearest_by_slsqp

SOLVERS = [
    pt.ProjectionFree(),
    pt.ProjectionFree(starts=4),
    pt.SLSQPHeuristic(),
    pt.NestedPGD(zeta=0.5, mesh=0.05, steps=300, smoothness=20.0, bisections=6),
]


def two_states(seed: int, sense: str) -> Case:
    """S = 2, A = 1, small gamma: small enough for Algorithm 2's grid."""
    rng = np.random.default_rng(seed)
    task = pt.Task([[1.0], [-0.8]], np.ones((2, 1)), [0.6, 0.4], discount=0.3)
    kernel = rng.dirichlet(np.full(2, 3.0), size=(2, 1))
    value = pt.value(task, kernel)
    low, high = pt.value_range(task)
    threshold = value + 0.3 * ((low if sense == "min" else high) - value)
    return Case(f"two-{seed}-{sense}", task, kernel, np.full((2, 1), 0.5), threshold)


CASES = [two_states(seed, sense) for seed in range(2) for sense in ("min", "max")]


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_extreme_value_brackets_hold(solver, case):
    ball = pt.KLBall(case.centre, case.weights, 0.05)
    found = pt.extreme_value(case.task, ball, case.sense, solver=solver)
    best = pt.extreme_value(case.task, ball, case.sense, solver=pt.ProjectionFree(starts=8))
    optimum = best.upper if case.sense == "min" else best.lower
    assert found.lower - 1e-9 <= optimum <= found.upper + 1e-9
    assert found.kernel in ball
    attained = found.upper if case.sense == "min" else found.lower
    assert pt.value(case.task, found.kernel) == pytest.approx(attained, abs=1e-12)
    assert not found.certified  # without a proof


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("solver", SOLVERS, ids=lambda s: type(s).__name__)
def test_nearest_kernel_brackets_hold(solver, case):
    found = case.nearest(solver)
    best = case.nearest(pt.ProjectionFree(starts=8))
    assert found.lower <= best.upper * (1 + 1e-9)
    assert found.upper >= best.upper * (1 - 1e-9)
    if found.kernel is not None:
        assert case.sign * (pt.value(case.task, found.kernel) - case.threshold) <= 0
        assert case.loss(found.kernel) == pytest.approx(found.upper, rel=1e-9)
    else:
        assert found.upper == np.inf
    assert not found.certified


PATIENT = [  # each solver with settings at which it does reach the optimum on two states
    pt.ProjectionFree(),
    pt.SLSQPHeuristic(smoothness=2.0, steps=150, bisections=30),
    pt.NestedPGD(mesh=1e-3, steps=1000, smoothness=2.0, bisections=12),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_all_solvers_agree(case):
    ball = pt.KLBall(case.centre, case.weights, 0.05)
    found = [pt.extreme_value(case.task, ball, case.sense, solver=solver) for solver in PATIENT]
    ends = [bracket.upper if case.sense == "min" else bracket.lower for bracket in found]
    low, high = pt.value_range(case.task)
    assert ends == pytest.approx([ends[0]] * 3, abs=1e-4 * (high - low))
    if case in CASES[:2]:
        distances = [case.nearest(solver).upper for solver in PATIENT]
        assert distances == pytest.approx([distances[0]] * 3, rel=0.02)


def test_projection_free_is_never_worse_than_an_independent_slsqp():
    """At least 80 random instances, both signs, counts with unseen successors, rewards on (s,a,x), to 1e-6."""
    compared = 0
    for seed in range(120):
        case = draw(seed, counts=seed % 3 == 1, on_successor=seed % 5 == 2)
        found = case.nearest()
        other, _ = nearest_by_slsqp(case, case.centre)
        if not 0 < other < np.inf:
            continue  # SLSQP gave up, or the distance is 0
        compared += 1
        assert found.upper <= other * (1 + 1e-6), f"seed {seed}"
    assert compared >= 80


@pytest.mark.parametrize("gamma", [0.1, 0.5, 0.9, 0.99, 0.999])
def test_extreme_value_and_nearest_kernel_invert_each_other(gamma):
    """Proposition 2, at radii small enough for the stationary points of both problems to coincide."""
    for seed in range(10):
        case = draw(seed, discount=gamma)
        value = pt.value(case.task, case.centre)
        threshold = value + 0.1 * (case.threshold - value)
        distance = pt.nearest_kernel(case.task, case.centre, case.weights, threshold)
        ball = pt.KLBall(case.centre, case.weights, distance.upper)
        extreme = pt.extreme_value(case.task, ball, case.sense)
        reached = extreme.upper if case.sense == "min" else extreme.lower
        assert reached == pytest.approx(threshold, abs=1e-7 * abs(value - threshold))
        assert extreme.multiplier == pytest.approx(distance.multiplier, rel=1e-4)


def test_radius_zero_is_the_centre_itself_and_moves_free_rows_only():
    case = draw(3)
    found = pt.extreme_value(case.task, pt.KLBall(case.centre, case.weights, 0.0))
    assert found.lower == found.upper == pytest.approx(pt.value(case.task, case.centre))
    assert found.certified
    case = draw(4)
    weights = case.weights.copy()
    weights[0] = 0.0
    found = pt.extreme_value(case.task, pt.KLBall(case.centre, weights, 0.0), "min")
    assert found.kernel[1:] == pytest.approx(case.centre[1:])
    best = min(
        pt.value(case.task, _with_rows(case.centre, choice))
        for choice in np.ndindex(*(case.task.n_states,) * case.task.n_actions)
    )
    assert found.upper == pytest.approx(best, abs=1e-12)


def _with_rows(centre, choice):
    kernel = centre.copy()
    for a, x in enumerate(choice):
        kernel[0, a] = np.eye(kernel.shape[2])[x]
    return kernel


def test_a_warm_start_finds_the_same_optimum_in_fewer_steps():
    instance = pt.instances.paper(5)
    weights = np.full((5, 5), 1 / 25)
    cold = pt.nearest_kernel(instance.task, instance.kernel, weights, 0.0)
    near = pt.nearest_kernel(instance.task, instance.kernel, weights, 0.002, warm=cold)
    fresh = pt.nearest_kernel(instance.task, instance.kernel, weights, 0.002)
    assert near.upper == pytest.approx(fresh.upper, rel=1e-10)
    assert near.iterations < fresh.iterations
    assert "not certified" in repr(cold)


def test_pairs_the_policy_never_takes_cost_nothing_and_keep_their_rows():
    rng = np.random.default_rng(5)
    policy = np.array([[1.0, 0.0], [0.4, 0.6], [0.0, 1.0]])
    kernel = rng.dirichlet(np.ones(3), size=(3, 2))
    rewards = rng.normal(size=(3, 2))
    task = pt.Task(rewards, policy, [0.2, 0.5, 0.3], 0.9)
    threshold = pt.value(task, kernel) - 0.2
    few, many = np.ones((3, 2)), np.ones((3, 2))
    many[policy == 0] = 1000.0
    one = pt.nearest_kernel(task, kernel, few, threshold)
    other = pt.nearest_kernel(task, kernel, many, threshold)
    assert one.upper == pytest.approx(other.upper, rel=1e-12)
    assert np.array_equal(one.kernel[policy == 0], kernel[policy == 0])


def test_a_shifted_reward_is_the_same_problem():
    """Threshold R with reward r, and threshold 0 with r - (1-gamma) R (the footnote of section 3.2)."""
    for seed in range(5):
        case = draw(seed)
        task = case.task
        shifted = pt.Task(task.rewards - (1 - task.discount) * case.threshold, task.policy, task.initial, task.discount)
        one = pt.nearest_kernel(task, case.centre, case.weights, case.threshold)
        two = pt.nearest_kernel(shifted, case.centre, case.weights, 0.0)
        assert one.upper == pytest.approx(two.upper, rel=1e-9)
