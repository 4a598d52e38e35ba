"""Statements of sections 4 and 5 and of the appendix on sensitivity, one test each."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from problems import draw


@pytest.fixture(params=range(6))
def case(request):
    return draw(request.param)


def minimum(case, radius, starts=3):
    """u(sigma): the extreme value over the ball, and its bracket."""
    ball = pt.KLBall(case.centre, case.weights, radius)
    found = pt.extreme_value(case.task, ball, case.sense, solver=pt.ProjectionFree(starts=starts))
    return (found.upper if case.sense == "min" else found.lower), found


def test_bijection_both_ways(case):
    """Proposition 2: sigma(u(sigma)) = sigma and u(sigma(u)) = u."""
    for radius in (1e-4, 1e-3, 1e-2):
        value, _ = minimum(case, radius)
        back = pt.nearest_kernel(case.task, case.centre, case.weights, value)
        assert back.upper == pytest.approx(radius, rel=1e-6)


def test_the_extreme_value_is_monotone_and_continuous_in_the_radius(case):
    """u is non-increasing in sigma (for "min"), without jumps."""
    radii = np.linspace(0.0, 0.05, 26)
    values = case.sign * np.array([minimum(case, radius)[0] for radius in radii])
    assert (np.diff(values) < 1e-12).all()
    assert np.abs(np.diff(values)).max() == pytest.approx(np.abs(np.diff(values))[0])  # steepest at the start


def test_the_multiplier_is_minus_the_slope(case):
    """Envelope theorem: eta = -du/dsigma, by central differences; and it is positive (sensitivity theorem)."""
    radius, step = 0.01, 1e-5
    _, found = minimum(case, radius, starts=1)
    above, _ = minimum(case, radius + step, starts=1)
    below, _ = minimum(case, radius - step, starts=1)
    slope = -case.sign * (above - below) / (2 * step)
    assert found.multiplier == pytest.approx(slope, rel=1e-5)
    assert found.multiplier > 0


def test_the_multiplier_has_the_appendix_formula_in_every_row(case):
    """`lem:eta`: gamma d(s,a) (V(x_M) - V(x_m)) / (omega_sa (p/q at x_M - p/q at x_m)), the same for all pairs.

    In units of value and with our unnormalised d, so that the paper's V_p and 1/(1-gamma) are absorbed.
    """
    _, found = minimum(case, 0.01, starts=1)
    task, p, q = case.task, case.centre, found.kernel
    values = pt.state_values(task, q)
    top, bottom = int(np.argmax(case.sign * values)), int(np.argmin(case.sign * values))
    flow = pt.occupancy(task, q)[:, None] * task.policy
    ratio = p[:, :, top] / q[:, :, top] - p[:, :, bottom] / q[:, :, bottom]
    eta = task.discount * flow * case.sign * (values[top] - values[bottom]) / (case.weights * ratio)
    assert eta == pytest.approx(np.full(eta.shape, found.multiplier), rel=1e-4)


def test_the_minimiser_uses_the_whole_budget(case):
    """`cor:min in Psigma`."""
    for radius in (1e-3, 0.1):
        _, found = minimum(case, radius)
        assert case.loss(found.kernel) == pytest.approx(radius, rel=1e-6)


def test_the_reverse_direction_has_a_multiplier_too(case):
    """For the distance the same price: d distance / d threshold = -1/eta (pushing down)."""
    found = case.nearest()
    step = 1e-5 * abs(pt.value(case.task, case.centre) - case.threshold)
    further = pt.nearest_kernel(case.task, case.centre, case.weights, case.threshold - case.sign * step)
    nearer = pt.nearest_kernel(case.task, case.centre, case.weights, case.threshold + case.sign * step)
    assert 1 / found.multiplier == pytest.approx((further.upper - nearer.upper) / (2 * step), rel=1e-4)


def test_the_alternatives_are_not_convex():
    """Section 4's example: two alternatives to p whose midpoint is p."""
    task, (p, q1, q2) = pt.instances.nonconvex()
    assert np.array_equal(p, (q1 + q2) / 2)
    assert pt.value(task, p) < 0 < min(pt.value(task, q1), pt.value(task, q2))


def test_values_are_never_constant_over_states(case):
    """Lemma 1 (`lem:from apt`): if r^pi is not constant, no kernel makes all states equally good."""
    rng = np.random.default_rng(int(case.name.removeprefix("draw")))
    r_pi = (case.task.policy * case.task.rewards).sum(axis=1)
    assert np.ptp(r_pi) > 0
    for _ in range(50):
        kernel = rng.dirichlet(np.full(case.task.n_states, 0.3), size=case.weights.shape)
        spread = np.ptp(pt.state_values(case.task, kernel))
        # V - V' >= (spread of r^pi)/(1+gamma): apply I - gamma P, whose norm on spreads is at most 1 + gamma
        assert spread >= np.ptp(r_pi) / (1 + case.task.discount) - 1e-12


def test_the_range_is_attained_in_the_limit_only(case):
    """Eqs. (1)-(2): distances grow without bound as the threshold approaches the end of the range."""
    value = pt.value(case.task, case.centre)
    end = pt.value_range(case.task)[0 if case.sense == "min" else 1]
    shares = (0.5, 0.9, 0.99, 0.999)
    distances = [
        pt.nearest_kernel(case.task, case.centre, case.weights, value + share * (end - value)).upper for share in shares
    ]
    assert (np.diff(distances) > 0).all()
    beyond = pt.nearest_kernel(case.task, case.centre, case.weights, end + (end - value))
    assert beyond.upper == np.inf
