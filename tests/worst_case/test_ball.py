"""KL balls: plain formulas, and the cases at which a divergence is infinite or ill-conditioned."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from scipy import sparse

from policytest.worst_case.ball import KLBall, kl_rows
from problems import as_csr, divergence, random_kernel

SEEDS = st.integers(0, 2**32 - 1)
FORMS = [(False, False), (True, True), (True, False), (False, True)]


# ---------------------------------------------------------------- the ball


@given(seed=SEEDS, S=st.integers(1, 6), A=st.integers(1, 3), missing=st.booleans())
def test_loss_is_the_weighted_sum_of_divergences(seed, S, A, missing):
    """In all four combinations of dense and sparse; infinite if q misses a seen successor of a weighted row."""
    rng = np.random.default_rng(seed)
    p = random_kernel(rng, S, A)
    q = random_kernel(rng, S, A) if missing else 0.5 * random_kernel(rng, S, A) + 0.5 * p
    weights = rng.exponential(size=(S, A)) * 10.0 ** rng.integers(-3, 6)
    weights[rng.random((S, A)) < 0.2] = 0.0
    terms = [weights[s, a] * divergence(p[s, a], q[s, a]) for s in range(S) for a in range(A) if weights[s, a] > 0]
    expected = sum(terms)
    for sparse_p, sparse_q in FORMS:
        ball = KLBall(as_csr(p) if sparse_p else p, weights, radius=1.0)
        given_q = as_csr(q) if sparse_q else q
        assert ball.loss(given_q) == pytest.approx(expected, rel=1e-10, abs=1e-14 * weights.sum())
        assert (given_q in ball) == (expected <= 1.0)
        rows = kl_rows(as_csr(p) if sparse_p else p, given_q)
        assert_allclose(rows, [divergence(*row) for row in zip(p.reshape(-1, S), q.reshape(-1, S), strict=True)], 1e-10)


def test_the_centre_comes_first():
    """KL((1/2, 1/2), (1/4, 3/4)) = (log 2 + log 2/3)/2, and not the other way round."""
    ball = KLBall([[[0.5, 0.5]], [[1.0, 0.0]]], [[2.0], [1.0]], radius=1.0)
    assert ball.loss([[[0.25, 0.75]], [[1.0, 0.0]]]) == pytest.approx(np.log(2) + np.log(2 / 3), rel=1e-14)
    other = KLBall([[[0.25, 0.75]], [[1.0, 0.0]]], [[2.0], [1.0]], radius=1.0)
    assert other.loss([[[0.5, 0.5]], [[1.0, 0.0]]]) == pytest.approx(
        0.5 * np.log(1 / 2) + 1.5 * np.log(3 / 2), rel=1e-14
    )


@pytest.mark.parametrize("kept", [0.9, 1e-3, 1e-8, 1e-12, 1e-16, 1e-30, 1e-300])
def test_unseen_successors_have_a_finite_price(kept):
    """KL((1, 0), (e, 1-e)) = log 1/e to full precision, however little mass the seen successor keeps."""
    p, q = np.array([[[1.0, 0.0]], [[0.0, 1.0]]]), np.array([[[kept, 1 - kept]], [[0.0, 1.0]]])
    for sparse_p, sparse_q in FORMS:
        ball = KLBall(as_csr(p) if sparse_p else p, [[3.0], [1.0]], radius=1.0)
        assert ball.loss(as_csr(q) if sparse_q else q) == pytest.approx(-3 * np.log(kept), rel=1e-11)


@pytest.mark.parametrize("seen", [1e-300, 1e-20, 1e-9, 0.3])
def test_loss_of_rarely_seen_successors(seen):
    """Both masses may be tiny, and equal ones cost nothing there."""
    p, q = np.array([[[seen, 1 - seen]]]), np.array([[[seen / 4, 1 - seen / 4]]])
    pad = np.array([[[1.0, 0.0]]])
    ball = KLBall(np.concatenate([p, pad]), [[1e9], [1.0]], radius=1.0)
    exact = seen * np.log(4) + (1 - seen) * (np.log1p(-seen) - np.log1p(-seen / 4))
    assert ball.loss(np.concatenate([q, pad])) == pytest.approx(1e9 * exact, rel=1e-6, abs=0)


@pytest.mark.parametrize("step", [1e-3, 1e-6, 1e-9])
def test_loss_near_the_centre_is_the_quadratic_form(step):
    """KL(p, p + v) = sum v^2/(2p) + O(v^3), without the cancellation of the textbook sum."""
    p, v = np.array([0.2, 0.3, 0.5]), step * np.array([1.0, -3.0, 2.0])
    ball = KLBall(np.tile(p, (3, 1, 1)), np.ones((3, 1)), radius=1.0)
    expected = 3 * (v**2 / (2 * p)).sum()
    assert ball.loss(np.tile(p + v, (3, 1, 1))) == pytest.approx(expected, rel=30 * step + 1e-6, abs=0)


def test_a_missing_seen_successor_is_infinitely_far():
    p = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    ball = KLBall(p, np.ones((2, 1)), radius=1e300)
    for missing in ([[[1.0, 0.0]], [[0.0, 1.0]]], [[[0.5, 0.5]], [[1.0, 0.0]]]):
        assert ball.loss(missing) == np.inf
        assert missing not in ball
        assert as_csr(np.array(missing)) not in ball


def test_rows_without_weight_are_free():
    p = np.array([[[0.5, 0.5]], [[0.0, 1.0]]])
    ball = KLBall(p, [[1.0], [0.0]], radius=0.0)
    for free in ([1.0, 0.0], [0.0, 1.0], [0.3, 0.7]):
        q = np.array([[[0.5, 0.5]], [free]])
        assert ball.loss(q) == 0.0
        assert q in ball
        assert as_csr(q) in ball
    assert np.array([[[0.5 + 1e-6, 0.5 - 1e-6]], [[0.0, 1.0]]]) not in ball


@given(seed=SEEDS, weight=st.sampled_from([1e-6, 1.0, 1e9]))
def test_membership_is_loss_at_most_radius(seed, weight):
    rng = np.random.default_rng(seed)
    p, q = random_kernel(rng, 3, 2), random_kernel(rng, 3, 2, zeros=0.0)
    weights = weight * rng.exponential(size=(3, 2))
    loss = KLBall(p, weights, 0.0).loss(q)
    assert p in KLBall(p, weights, 0.0)
    assert q in KLBall(p, weights, loss)
    assert q in KLBall(p, weights, 1.001 * loss)
    assert q not in KLBall(p, weights, 0.999 * loss)
    assert q in KLBall(p, 7 * weights, 7.001 * loss)  # weights and radius share their unit


@given(seed=SEEDS)
def test_loss_is_convex_and_obeys_pinsker(seed):
    rng = np.random.default_rng(seed)
    p, one, other = (random_kernel(rng, 4, 2, zeros) for zeros in (0.3, 0.0, 0.0))
    weights = rng.exponential(size=(4, 2))
    ball = KLBall(p, weights, 1.0)
    share = rng.random()
    mixed = share * one + (1 - share) * other
    assert ball.loss(mixed) <= share * ball.loss(one) + (1 - share) * ball.loss(other) + 1e-12
    distance = np.abs(p - one).sum(axis=2)
    assert ball.loss(one) >= (weights * distance**2).sum() / 2
    assert (kl_rows(p, p) <= 1e-30).all()


def test_stored_zeros_and_unsorted_entries_do_not_matter():
    p = np.array([[[0.25, 0.75, 0.0]], [[0.0, 0.5, 0.5]], [[1.0, 0.0, 0.0]]])
    stored = sparse.csr_array(
        (np.array([0.75, 0.25, 0.0, 0.5, 0.0, 0.5, 1.0, 0.0]), [1, 0, 2, 1, 0, 2, 0, 2], [0, 3, 6, 8]), shape=(3, 3)
    )
    assert_array_equal(stored.toarray(), p[:, 0])
    q = np.array([[[0.2, 0.7, 0.1]], [[0.4, 0.3, 0.3]], [[0.5, 0.5, 0.0]]])
    expected = KLBall(p, np.ones((3, 1)), 1.0).loss(q)
    assert KLBall(stored, np.ones((3, 1)), 1.0).loss(q) == pytest.approx(expected, rel=1e-14)
    assert KLBall(stored, np.ones((3, 1)), 1.0).loss(as_csr(q)) == pytest.approx(expected, rel=1e-14)
    assert KLBall(q, np.ones((3, 1)), 1.0).loss(stored) == np.inf
    within = np.array([[[0.5, 0.5, 0.0]], [[0.0, 0.1, 0.9]], [[1.0, 0.0, 0.0]]])  # zeros where zeros are stored
    expected = KLBall(p, np.ones((3, 1)), 1.0).loss(within)
    assert KLBall(stored, np.ones((3, 1)), 1.0).loss(as_csr(within)) == pytest.approx(expected, rel=1e-14)
    assert KLBall(as_csr(within), np.ones((3, 1)), 1.0).loss(stored) == KLBall(within, np.ones((3, 1)), 1.0).loss(p)
