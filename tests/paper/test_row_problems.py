"""The row problem and the projections: optimality conditions, and a second optimiser."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy.optimize import minimize

from builders import each
from policytest._base.compiled import search
from policytest.paper.row_problems import project_box, project_row, tilt_row
from policytest.worst_case.ball import kl_rows
from problems import divergence, random_kernel

SEEDS = st.integers(0, 2**32 - 1)


def assert_in_simplex(q):
    assert (q >= 0).all()
    assert q.sum() == pytest.approx(1.0, abs=1e-12)


# ---------------------------------------------------------------- the row problem


def random_row(rng, most=8):
    """Weights with zeros, over six orders of magnitude, and costs, often tied, with smallest 0."""
    m = int(rng.integers(1, most + 1))
    weights = rng.exponential(size=m) * 10.0 ** rng.uniform(-3, 3)
    weights[rng.random(m) < rng.choice([0.0, 0.3, 0.7])] = 0.0
    cost = rng.integers(0, 3, size=m).astype(float) if rng.random() < 0.3 else rng.exponential(size=m)
    return weights, (cost - cost.min()) * 10.0 ** rng.uniform(-3, 3)


def assert_solves_row_problem(weights, cost, lam, q, rtol=1e-9):
    """The optimality conditions of min lam cost.q - sum w log q over the simplex, which is convex.

    With y the multiplier of the sum, q_x (y + lam cost_x) = w_x and y + lam cost_x >= 0 for every x. Summing over
    x gives y = sum w - lam cost.q, so the conditions can be checked from q alone.
    """
    assert_in_simplex(q)
    total = weights.sum()
    price = total + lam * (cost - cost @ q)
    assert_allclose(q * price, weights, rtol=0, atol=rtol * total + 1e-300)
    assert price.min() >= -rtol * (total + lam * cost @ q)
    assert (q[weights > 0] > 0).all()


@settings(max_examples=150)
@given(seed=SEEDS, exponent=st.floats(-6, 6))
def test_tilted_rows_are_optimal(seed, exponent):
    weights, cost = random_row(np.random.default_rng(seed))
    assert_solves_row_problem(weights, cost, 10.0**exponent, tilt_row(weights, cost, 10.0**exponent))


@each("seed", range(12))
def test_tilted_rows_by_a_second_optimiser(seed):
    """SLSQP on the same convex problem: no better value, and nearly the same row."""
    rng = np.random.default_rng(seed)
    weights, cost = rng.exponential(size=4), rng.exponential(size=4)
    if seed % 3 == 0:  # the cheapest successor is unseen
        weights[np.argmin(cost)] = 0.0
    lam = 10.0 ** rng.uniform(-1, 1)
    seen = weights > 0

    def objective(q):
        return lam * cost @ q - weights[seen] @ np.log(q[seen])

    other = minimize(
        objective,
        np.full(4, 0.25),
        method="SLSQP",
        bounds=[(1e-9 if s else 0.0, 1.0) for s in seen],
        constraints={"type": "eq", "fun": lambda q: q.sum() - 1},
        options={"ftol": 1e-14, "maxiter": 1000},
    ).x
    q = tilt_row(weights, cost, lam)
    assert objective(q) <= objective(other) + 1e-10
    assert_allclose(q, other, rtol=0, atol=1e-4)


def test_tilted_rows_in_closed_form():
    """Two seen successors give a quadratic; an unseen cheapest one takes what the others leave."""
    weights, cost, lam = np.array([0.3, 0.7]), np.array([0.0, 1.0]), 2.0
    z = (-1 + np.sqrt(1 + 8 * 0.3)) / 2  # 0.3/z + 0.7/(z+2) = 1, that is z^2 + z - 0.6 = 0
    assert_allclose(tilt_row(weights, cost, lam), [0.3 / z, 0.7 / (z + 2)], rtol=1e-13)
    assert_allclose(tilt_row(np.array([0.0, 2.0, 1.0]), np.array([5.0, 6.0, 7.0]), 10.0), [0.75, 0.2, 0.05], rtol=1e-13)
    # still cheap enough to be left out: the seen ones sum to 1 before the price of the unseen one is reached
    left_out = tilt_row(np.array([0.0, 2.0, 1.0]), np.array([5.0, 6.0, 7.0]), 2.0)
    assert left_out[0] == 0.0
    assert_solves_row_problem(np.array([0.0, 2.0, 1.0]), np.array([0.0, 1.0, 2.0]), 2.0, left_out)


def test_tilted_rows_in_the_limits():
    """Without a price, or at equal costs, the weights; at a huge price, or without weights, the cheapest successor."""
    weights = np.array([3.0, 0.0, 1.0, 4.0])
    for lam in (0.0, 1e-300, 1e-12):
        for cost in (np.array([1.0, 0.0, 2.0, 3.0]), np.full(4, 5.0)):
            assert_allclose(tilt_row(weights, cost, lam), weights / 8, rtol=1e-11)
    for weights in np.array([[5.0, 1.0, 0.0], [5.0, 0.0, 1.0], [0.0, 1.0, 0.0]]):
        q = tilt_row(weights, np.array([1.0, 0.0, 2.0]), 1e15)
        assert_allclose(q, [0.0, 1.0, 0.0], rtol=0, atol=1e-14)
        assert (q[weights > 0] > 0).all()
    rng = np.random.default_rng(0)
    for _ in range(500):  # whatever the rounding of their sum
        weights = rng.exponential(size=rng.integers(1, 8)) * 10.0 ** rng.uniform(-3, 3)
        q = tilt_row(weights, np.full(len(weights), rng.normal()), 10.0 ** rng.uniform(-6, 6))
        assert_allclose(q, weights / weights.sum(), rtol=1e-12)
    assert_array_equal(tilt_row(np.zeros(4), np.array([2.0, 1.0, 1.0, 3.0]), 1.0), [0.0, 1.0, 0.0, 0.0])


@given(seed=SEEDS, exponent=st.floats(-4, 4), shift=st.floats(-10, 10))
def test_a_higher_price_buys_a_lower_cost(seed, exponent, shift):
    """cost.q decreases in lam, and adding a constant to the costs changes nothing."""
    weights, cost = random_row(np.random.default_rng(seed))
    lam = 10.0**exponent
    q = tilt_row(weights, cost, lam)
    assert cost @ tilt_row(weights, cost, 3 * lam) <= cost @ q * (1 + 1e-12)
    moved = tilt_row(weights, cost + shift * cost.max(), lam)
    assert cost @ moved == pytest.approx(cost @ q, rel=1e-6, abs=1e-12 * cost.max())


@each("lam", 10.0 ** np.arange(-6, 7))
def test_the_compiled_row_problem_agrees(lam):
    """Rows to 5e-8 (the compiled root stops at |sum - 1| <= 1e-8, then rescales), the objective to rounding."""
    rng = np.random.default_rng(17)
    rows = [random_row(rng) for _ in range(150)]
    start = np.concatenate([[0], np.cumsum([len(w) for w, _ in rows])])
    N, gap = (np.concatenate([row[i] for row in rows]) for i in range(2))
    q, height = search.tilt(start, N, np.array([w.sum() for w, _ in rows]), gap, lam)
    assert height == pytest.approx(gap @ q, rel=1e-12)
    for (weights, cost), row in zip(rows, np.split(q, start[1:-1]), strict=True):
        expected = tilt_row(weights, cost, lam)
        assert_allclose(row, expected, rtol=5e-8)
        assert_solves_row_problem(weights, cost, lam, row, rtol=1e-7)
        seen = weights > 0
        excess = lam * cost @ (row - expected) - weights[seen] @ np.log(row[seen] / expected[seen])
        assert abs(excess) <= 1e-13 * (weights.sum() + lam * cost @ expected)


# ---------------------------------------------------------------- the projection


def random_projection(rng, rare=1e-3, m=None):
    """A point, a centre with zeros and no other entry much below ``rare``, and a budget."""
    m = int(rng.integers(2, 7)) if m is None else m
    p = np.maximum(rng.dirichlet(np.full(m, rng.choice([0.2, 1.0, 5.0]))), rare)
    p[rng.random(m) < 0.2] = 0.0
    p[rng.integers(m)] += 0.1
    p /= p.sum()
    return p + rng.normal(size=m) * 10.0 ** rng.uniform(-2, 1), p, 10.0 ** rng.uniform(-6, 0.5)


def nearest_in_simplex(x):
    """The Euclidean projection onto the simplex, by sorting."""
    ordered = np.sort(x)[::-1]
    levels = (np.cumsum(ordered) - 1) / np.arange(1, len(x) + 1)
    return np.maximum(x - levels[np.flatnonzero(ordered > levels)[-1]], 0.0)


def assert_on_boundary(p, b, q):
    """KL(p, q) = b. Where the boundary is at a q of about exp(-b/p) it may be out of the range of floats."""
    least = q[p > 0].min()
    assert least > 0
    if least > 1e-300:
        assert divergence(p, q) <= b * (1 + 1e-8)
    if least > 1e-150:
        assert divergence(p, q) >= b * (1 - 1e-6)


def assert_projects(x, p, b, q):
    """q is in the set, on its boundary if the simplex' own projection is outside, and meets the KKT conditions."""
    assert_in_simplex(q)
    free = nearest_in_simplex(x)
    if divergence(p, free) <= b:
        assert_allclose(q, free, rtol=0, atol=1e-12 * (1 + np.abs(x).max()))
        return
    assert_on_boundary(p, b, q)
    seen = p > 0
    # q - x = mu p/q - y where p > 0: two unknowns, fitted; where p = 0, q = max(x - y, 0)
    weight = q[seen] / (q[seen] + p[seen])  # keeps rows with large p/q from dominating, and q from being divided by
    columns = np.column_stack([p[seen] / (q[seen] + p[seen]), -weight])
    (mu, y), *_ = np.linalg.lstsq(columns, weight * (q - x)[seen], rcond=None)
    scale = 1 + np.abs(x).max()
    if seen.sum() > 1:
        assert mu >= -1e-12 * scale
        assert_allclose(columns @ [mu, y], weight * (q - x)[seen], rtol=0, atol=1e-6 * scale)
    if seen.sum() > 1 and not seen.all():
        assert_allclose(q[~seen], np.maximum(x[~seen] - y, 0.0), rtol=0, atol=1e-6 * scale)


@given(seed=SEEDS)
def test_projection_meets_its_optimality_conditions(seed):
    x, p, b = random_projection(np.random.default_rng(seed))
    assert_projects(x, p, b, project_row(x, p, b))


@given(seed=SEEDS)
def test_projection_makes_an_obtuse_angle_with_the_whole_set(seed):
    """(x - q).(z - q) <= 0 for every z of the convex set: this alone characterises the projection q."""
    rng = np.random.default_rng(seed)
    x, p, b = random_projection(rng)
    q = project_row(x, p, b)
    for _ in range(20):
        z = rng.dirichlet(np.full(len(p), rng.choice([0.3, 3.0])))
        while divergence(p, z) > b:
            z = 0.5 * (z + p) if rng.random() < 0.5 else 0.5 * (z + q)
            if np.abs(z - p).max() < 1e-12:
                z = p
        assert (x - q) @ (z - q) <= 1e-7 * (1 + np.abs(x).max())


@given(seed=SEEDS, distance=st.sampled_from([1e-4, 1e-1, 10.0]))
def test_projection_does_not_expand_distances(seed, distance):
    rng = np.random.default_rng(seed)
    x, p, b = random_projection(rng)
    other = x + distance * rng.normal(size=len(x))
    moved = np.linalg.norm(project_row(x, p, b) - project_row(other, p, b))
    assert moved <= np.linalg.norm(x - other) * (1 + 1e-6) + 1e-9


@given(seed=SEEDS)
def test_points_of_the_set_stay_where_they_are(seed):
    rng = np.random.default_rng(seed)
    _, p, _ = random_projection(rng)
    z = 0.5 * p + 0.5 * rng.dirichlet(np.ones(len(p)))
    b = divergence(p, z) * (1 + 1e-6) + 1e-12
    assert_allclose(project_row(z, p, b), z, rtol=0, atol=1e-12)
    compiled = search.project_rows(np.array([0, len(z)]), z, p, np.array([b]))
    assert_allclose(compiled, z, rtol=0, atol=1e-12)
    x = p + rng.normal(size=len(p))
    once = project_row(x, p, b)
    assert_allclose(project_row(once, p, b), once, rtol=0, atol=1e-7)  # projecting twice is projecting once


@pytest.mark.parametrize("seed", range(10))
def test_projection_by_a_second_optimiser(seed):
    rng = np.random.default_rng(seed)
    p = rng.dirichlet(np.ones(4)) + 0.02
    if seed % 2:
        p[rng.integers(4)] = 0.0
    p /= p.sum()
    x, b = p + 0.5 * rng.normal(size=4), 10.0 ** rng.uniform(-3, -0.5)
    seen = p > 0
    other = minimize(
        lambda q: 0.5 * (q - x) @ (q - x),
        p,
        jac=lambda q: q - x,
        method="SLSQP",
        bounds=[(1e-9 if s else 0.0, 1.0) for s in seen],
        constraints=[
            {"type": "eq", "fun": lambda q: q.sum() - 1},
            {"type": "ineq", "fun": lambda q: b - p[seen] @ np.log(p[seen] / q[seen])},
        ],
        options={"ftol": 1e-15, "maxiter": 1000},
    ).x
    assert_allclose(project_row(x, p, b), other, rtol=0, atol=1e-6)


@pytest.mark.parametrize("b", [0.0, 1e-10, 1e-14, 1e-18])
def test_small_budgets_stay_near_the_centre(b):
    """For b = 0 the centre itself; for small b the ball is the ellipsoid sum v^2/p <= 2b, to first order."""
    x, p = np.array([0.9, 0.3, 0.1]), np.array([0.2, 0.3, 0.5])
    compiled = search.project_rows(np.array([0, 3]), x, p, np.array([b]))
    for q in (compiled, project_row(x, p, b)):
        if b == 0.0:
            assert_array_equal(q, p)
        else:
            assert ((q - p) ** 2 / (2 * p)).sum() == pytest.approx(b, rel=1e-3, abs=0)
            assert (x - p) @ (q - p) > 0


def test_a_large_budget_leaves_the_simplex_only():
    x, p = np.array([2.0, -1.0, 0.3, 0.3]), np.array([0.5, 0.0, 0.25, 0.25])
    assert_allclose(project_row(np.array([0.5, 0.1, 0.3, 0.3]), p, 1e3), np.array([0.45, 0.05, 0.25, 0.25]), rtol=1e-12)
    far = project_row(x, p, 50.0)
    assert divergence(p, far) == pytest.approx(50.0, rel=1e-9)
    assert far[0] == pytest.approx(1.0, abs=1e-12)
    assert (far[p > 0] > 0).all()


def compiled_projections(problems):
    start = np.concatenate([[0], np.cumsum([len(x) for x, _, _ in problems])])
    x, p = (np.concatenate([problem[i] for problem in problems]) for i in range(2))
    q = search.project_rows(start, x, p, np.array([b for _, _, b in problems]))
    return np.split(q, start[1:-1])


def test_a_lone_seen_successor_in_closed_form():
    """KL((1, 0), (q, 1-q)) = -log q, so the projection keeps at least exp(-b) on the seen successor."""
    assert_array_equal(project_row(np.array([-3.0]), np.array([1.0]), 0.5), [1.0])
    rng = np.random.default_rng(19)
    p = np.array([1.0, 0.0])
    problems = [(10.0 ** rng.uniform(-2, 1) * rng.normal(size=2), p, 10.0 ** rng.uniform(-5, 0)) for _ in range(300)]
    for (x, _, b), q in zip(problems, compiled_projections(problems), strict=True):
        kept = max(np.exp(-b), nearest_in_simplex(x)[0])
        assert_allclose(q, [kept, 1 - kept], rtol=0, atol=1e-12)
        assert_allclose(project_row(x, p, b), [kept, 1 - kept], rtol=0, atol=1e-12)


def test_the_compiled_projection_agrees():
    rng = np.random.default_rng(23)
    problems = [random_projection(rng) for _ in range(300)]
    for (x, p, b), q in zip(problems, compiled_projections(problems), strict=True):
        assert_allclose(q, project_row(x, p, b), rtol=0, atol=1e-8)
        assert divergence(p, q) <= b * (1 + 1e-9)


def test_projections_around_centres_with_rare_successors():
    """Successors of probability down to 1e-12: still feasible, still on the boundary. 3,000 compiled, 150 plain."""
    rng = np.random.default_rng(29)
    problems = [random_projection(rng, rare=10.0 ** rng.uniform(-12, -3)) for _ in range(3000)]
    compiled = compiled_projections(problems)
    for (x, p, b), q in zip(problems, compiled, strict=True):
        assert_in_simplex(q)
        if divergence(p, nearest_in_simplex(x)) > b:
            assert_on_boundary(p, b, q)
    for (x, p, b), q in zip(problems[:150], compiled, strict=False):
        plain = project_row(x, p, b)
        assert divergence(p, plain) <= b * (1 + 1e-8)
        assert np.linalg.norm(x - q) == pytest.approx(np.linalg.norm(x - plain), rel=1e-9)


def test_a_box_is_projected_row_by_row():
    rng = np.random.default_rng(31)
    S, A = 4, 3
    p = random_kernel(rng, S, A, zeros=0.1)
    x = p + 0.5 * rng.normal(size=p.shape)
    budgets = 10.0 ** rng.uniform(-3, 0, size=(S, A))
    budgets[1, 2] = 0.0
    q = project_box(x, p, budgets)
    assert q.shape == (S, A, S)
    for s in range(S):
        for a in range(A):
            assert_allclose(q[s, a], project_row(x[s, a], p[s, a], budgets[s, a]), rtol=0, atol=1e-8)
    assert_array_equal(q[1, 2], p[1, 2])
    assert (kl_rows(p, q) <= budgets.ravel() * (1 + 1e-9)).all()
