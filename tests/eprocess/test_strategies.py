"""Fractions come from the past alone and are never 1; the reserve bounds what they can lose; the formulas they use."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some
from scipy import stats

from builders import each
from fair_games import STRATEGIES, fitted
from policytest._base.compiled.capital import best_fractions
from policytest.eprocess.capital import Bet, EProcess
from policytest.eprocess.strategies import (
    ENDS,
    ENDS_OF_LOGS,
    LARGEST_FRACTION,
    NATS,
    NONE,
    ON_LOGS,
    ONE_POLICY,
    OWN_DRAWS,
    RESERVE,
    RESERVED,
    SMALLEST_FRACTION,
    TRUNCATED,
    Moments,
    best_growth,
    expected_gap,
    expected_growth,
    falling,
    growth_on,
    halving,
    interval_gap,
    most_promising,
    with_reserve,
)

K = len(RESERVE)
WHATEVER = some.floats(-1.0, 1e6)


# ---------------------------------------------------------------- fractions and shares


@each("name", STRATEGIES)
@each("reserved", [RESERVED, 0.2])
def test_every_strategy_ends_in_the_reserve_whatever_was_fitted(name, reserved):
    strategy = STRATEGIES[name]._replace(reserved=reserved)
    log_weights = strategy.log_weights
    assert np.exp(log_weights).sum() == pytest.approx(1.0)
    assert np.exp(log_weights).sum() <= 1.0 + 1e-12
    assert log_weights[-K:] == pytest.approx(np.log(reserved / K))
    for v in (None, 0.0, 1e-300, 1e-9, 0.1, 1e9, 1e300):
        for lead in (-1e9, -0.3, 0.0, 1e-300, 0.3, 1e9):
            for count in (0.0, 10.0, 1e15):
                fractions = strategy.fractions(v, lead, count)
                assert len(fractions) == len(log_weights)
                assert (fractions[-K:] == RESERVE).all()
                assert ((fractions >= 0) & (fractions < 1)).all(), (v, lead, count, fractions)


@each("v", [1e-12, 1e-6, 0.3, 1.0, 1e9])
@each("count", [0.0, 5.0, 1e12])
def test_the_fractions_of_intervals_follow_the_ends_between_steady_ones(v, count):
    fractions = ENDS.fractions(v, count)
    assert len(fractions) == len(ENDS.log_weights)
    assert ((fractions >= 0) & (fractions < 1)).all()
    assert (fractions[-K:] == RESERVE).all()
    assert (fractions[3:-K] == ENDS.steady).all()
    best = interval_gap(v, count) / v
    expected = np.clip(np.array([0.5, 1.0, 2.0]) * best, SMALLEST_FRACTION, LARGEST_FRACTION)
    assert fractions[:3] == pytest.approx(expected)
    gaps = ENDS.fractions(v, count, 0.4)
    assert gaps[3:-K] == pytest.approx(np.clip(0.4 * ENDS.gaps / v, SMALLEST_FRACTION, LARGEST_FRACTION))
    assert np.exp(ENDS.log_weights).sum() <= 1.0 + 1e-12


def test_steady_grids_are_steady_and_without_a_reserve_if_none_is_wanted():
    for v, lead, count in ((None, 0.0, 0.0), (0.3, 0.1, 50.0), (1e-9, -2.0, 1e6)):
        assert (ENDS_OF_LOGS.fractions(v, lead, count) == ENDS_OF_LOGS.steady).all()
        assert (TRUNCATED.fractions(v, lead, count) == np.append(TRUNCATED.steady, RESERVE)).all()
    assert len(ENDS_OF_LOGS.log_weights) == len(ENDS_OF_LOGS.steady)
    assert np.exp(ENDS_OF_LOGS.log_weights).sum() == pytest.approx(1.0)
    assert OWN_DRAWS.fractions(None, 0.0, 0.0)[:3].tolist() == [0.5, LARGEST_FRACTION, LARGEST_FRACTION]
    assert (ONE_POLICY.fractions(None, 0.0, 0.0)[:-K] == np.append(ONE_POLICY.steady, LARGEST_FRACTION)).all()


def test_the_fitted_fraction_is_the_best_of_small_bets():
    """It maximises f g - f^2 (v + g^2)/2."""
    for v, lead, count in ((0.3, 0.02, 1e4), (0.5, 0.1, 300.0), (2.0, -0.1, 40.0)):
        gap = expected_gap(v, lead, count)
        f = ON_LOGS.fractions(v, lead, count)[len(ON_LOGS.steady)]
        fine = np.linspace(1e-5, 0.99, 50_000)
        assert f == pytest.approx(fine[np.argmax(fine * gap - fine**2 * (v + gap**2) / 2.0)], abs=3e-5)
        growth = float((fine * gap - fine**2 * (v + gap**2) / 2.0).max())
        assert expected_growth(v, lead, count) == pytest.approx(growth, abs=1e-9)
    assert expected_growth(0.0, 0.0, 5.0) == 0.0
    assert expected_growth(1e-6, 0.4, 1e9) == pytest.approx(0.4 - 0.5 * 0.4**2, abs=1e-5), "all of it is staked"


@each("v", [1e-6, 0.01, 0.5, 4.0, 100.0])
def test_a_larger_gap_never_stakes_less(v):
    """g/(v + g^2) falls again beyond sqrt(v), where rollouts say much; the bets do not."""
    fractions = ONE_POLICY.fractions(v, 0.0, 100.0, 1.0)[: len(ONE_POLICY.gaps)]
    assert (np.diff(ONE_POLICY.gaps) < 0).all()
    assert (np.diff(fractions) <= 0).all()
    small = v + ONE_POLICY.gaps**2 > ONE_POLICY.gaps / LARGEST_FRACTION  # not cut at the largest
    small &= ONE_POLICY.gaps**2 <= v
    assert fractions[small] == pytest.approx((ONE_POLICY.gaps / (v + ONE_POLICY.gaps**2))[small])


def test_simulated_losses_lower_a_bet_and_simulated_gains_do_not_raise_it():
    gains = np.where(np.arange(1000) < 50, 0.95, -0.05)  # mean 0
    v = float((gains**2).mean())
    plain, lucky, unlucky = (ONE_POLICY.fractions(v, 0.02, 100.0, 0.2, sums) for sums in (NONE, gains, -gains))
    assert lucky == pytest.approx(plain)
    assert (unlucky < 0.9 * plain).any()
    assert (unlucky <= plain).all()


def test_the_best_fraction_for_a_gap_is_that_of_a_fine_search():
    """By Newton's method on simulated sums, clipped at both ends; also for sums with rare large losses."""
    rng = np.random.default_rng(0)
    for sums in (rng.normal(scale=0.2, size=500), rng.choice([-0.9, 0.1], p=[0.1, 0.9], size=500)):
        centred, gaps = np.maximum(sums - sums.mean(), -0.95), np.array([0.001, 0.02, 0.2, 0.9])
        fine = np.linspace(1e-4, LARGEST_FRACTION, 2_000)
        for gap, f in zip(gaps, best_fractions(centred, gaps, LARGEST_FRACTION), strict=True):
            won = np.maximum(gap + centred, -1.0)
            assert np.log1p(f * won).mean() >= np.log1p(fine[:, None] * won).mean(axis=1).max() - 1e-6
            assert 0 <= f <= LARGEST_FRACTION
    assert best_fractions(np.array([-1.0, 1.0]), np.array([0.0, -0.5]), 0.9) == pytest.approx([0.0, 0.0], abs=1e-2)
    assert best_fractions(NONE, np.array([0.1]), 0.9) == pytest.approx([0.9]), "nothing is lost where nothing is seen"


def test_grids_and_shares_are_geometric():
    assert halving(3) == pytest.approx([LARGEST_FRACTION, LARGEST_FRACTION / 2, LARGEST_FRACTION / 4])
    assert halving(3, 0.5)[2] == pytest.approx(LARGEST_FRACTION / 2)
    shares = np.exp(falling(0.6, 0.5, 3, 0.3, 0.1))
    assert shares == pytest.approx([0.6 * 4 / 7, 0.6 * 2 / 7, 0.6 / 7, 0.3, 0.1])
    assert np.exp(with_reserve(np.log(shares), 0.2))[:5] == pytest.approx(0.8 * shares)
    assert with_reserve(shares, 0.0) is shares
    assert RESERVE[0] == LARGEST_FRACTION
    assert RESERVE[-1] == 0.0
    assert RESERVE[1:-1] == pytest.approx(RESERVE[:-2] / 4)


# ---------------------------------------------------------------- the reserve


def regret(strategy, won, parts=8):
    """(log K less the best of the constants of the reserve, their share), for fractions fitted to the past."""
    shares = np.exp(strategy.log_weights)
    process, done = EProcess(shares, shares), np.zeros(0)
    for part in np.array_split(won, min(parts, max(len(won), 1))):
        fractions = fitted(strategy, done)
        process.settle(Bet(1.0, fractions, fractions), part)
        done = np.append(done, part)
    constants = np.log1p(np.outer(won, RESERVE)).sum(axis=0)
    return process, process.evidence() - constants.max()


@given(some.sampled_from(sorted(STRATEGIES)), some.lists(WHATEVER, max_size=80).map(np.array))
def test_no_fit_costs_more_than_the_share_of_the_best_constant(name, won):
    """Whatever the outcomes, and whatever is fitted to them: log K >= log(share/k) + max over the k constants."""
    strategy = STRATEGIES[name]
    process, less = regret(strategy, won)
    assert less >= math.log(strategy.reserved / K) - 1e-9
    assert process.evidence() >= math.log(strategy.reserved / K) - 1e-9, "0 is one of the constants"


def quiet_then_loud(quiet=400, loud=400):
    """An adversary: nothing is lost for a long time, then everything, again and again."""
    t = np.arange(quiet + loud)
    return np.where((t >= quiet) & (t % 7 != 0), -1.0, 0.02)


@pytest.mark.parametrize("name", STRATEGIES)
def test_the_bound_holds_all_along_against_an_adversary(name):
    won, strategy = quiet_then_loud(), STRATEGIES[name]
    floor, shares = math.log(strategy.reserved / K), np.exp(strategy.log_weights)
    for outcomes in (won, -won):
        process, constants = EProcess(shares, shares), np.zeros(K)
        for done in range(0, len(won), 40):
            fractions = fitted(strategy, outcomes[:done])
            for x in outcomes[done : done + 40]:
                process.settle(Bet(1.0, fractions, fractions), np.array([x]))
                constants += np.log1p(x * RESERVE)
                assert process.evidence() >= floor + constants.max() - 1e-9


def test_without_the_reserve_the_same_outcomes_ruin_fitted_bets():
    """The control: all of the capital is on fractions that were fitted."""
    process, less = regret(OWN_DRAWS._replace(reserved=0.0), quiet_then_loud(), parts=20)
    assert process.evidence() < math.log(RESERVED / K) - 20.0
    assert less < math.log(RESERVED / K) - 20.0


# ---------------------------------------------------------------- the gap to expect


@each("z", [-40.0, -8.0, -7.9, -3.0, -0.5, 0.0, 0.5, 2.0, 7.9, 8.0, 40.0])
def test_the_gap_to_expect_is_the_mean_of_a_normal_law_that_is_positive(z):
    """Against scipy; it rises in the lead, and is positive whatever the lead."""
    v, count = 0.36, 8.0
    error = math.sqrt(v / (count + 1.0))
    mean = float(stats.truncnorm.mean(-z, math.inf, loc=z * error, scale=error))
    assert expected_gap(v, z * error, count) == pytest.approx(mean, rel=2e-3 if z <= -8 else 1e-5)
    assert 0 < expected_gap(v, (z - 0.01) * error, count) < expected_gap(v, z * error, count)


def test_the_gap_to_expect_without_noise_is_the_lead():
    assert expected_gap(0.0, 0.3, 5.0) == 0.3
    assert expected_gap(0.0, 0.0, 5.0) == expected_gap(0.0, -0.3, 5.0) == 0.0


def test_the_gap_of_an_interval_is_where_its_evidence_is():
    """n outcomes of variance v with mean g give g^2 n/(2v) nats at the best fraction."""
    for v, count in ((0.3, 99.0), (2.0, 10**6)):
        assert interval_gap(v, count) ** 2 * (count + 1.0) / (2.0 * v) == pytest.approx(NATS)


# ---------------------------------------------------------------- growth


@given(some.lists(some.floats(-3.0, 5.0), min_size=1, max_size=30).map(np.array))
def test_the_growth_on_outcomes_is_that_of_the_best_fraction(x):
    growth = [np.log1p(f * np.maximum(x, -1.0)).mean() for f in halving(12)]
    assert growth_on(x) == pytest.approx(max(growth), abs=1e-12)
    twice = np.repeat(x, 2)
    assert growth_on(twice, np.full(len(twice), 1.0 / len(twice))) == pytest.approx(max(growth), abs=1e-12)
    assert growth_on(x, count=3) <= growth_on(x) + 1e-12


def test_the_growth_of_a_gap_is_that_of_the_best_fraction():
    sums = np.random.default_rng(0).choice([-0.5, 0.1], p=[1 / 6, 5 / 6], size=600)
    sums, fine = sums - sums.mean(), np.linspace(0.0, LARGEST_FRACTION, 2_000)
    for gap in (0.01, 0.2, 0.9):
        growth = np.log1p(fine[:, None] * (gap + sums)).mean(axis=1).max()
        assert best_growth(sums, gap) == pytest.approx(growth, abs=1e-6)
    assert best_growth(sums, -0.2) == pytest.approx(0.0, abs=1e-3), "nothing is staked"


def test_of_equal_growths_the_first_is_taken():
    """Equal up to rounding, so that processors agree."""
    assert most_promising([0.3, 0.3 * (1.0 + 1e-12), 0.1]) == 0
    assert most_promising([0.3 * (1.0 - 1e-12), 0.3]) == 0
    assert most_promising([0.2, 0.3]) == 1
    assert most_promising([0.0, 0.0]) == 0
    assert most_promising([-math.inf, -math.inf]) == 0
    assert most_promising([-math.inf, 0.1]) == 1


# ---------------------------------------------------------------- moments


@given(some.lists(some.floats(-5.0, 1e4), min_size=1, max_size=60).map(np.array), some.data())
def test_how_outcomes_are_taken_changes_no_bit_of_the_moments(x, data):
    cuts = sorted(data.draw(some.lists(some.integers(0, len(x)), max_size=5)))
    whole, parts = Moments(0.3), Moments(0.3)
    whole.add(x)
    for part in np.split(x, cuts):
        parts.add(part)
        again = Moments(0.3)
        again.restore(parts.state())
        assert (again.state() == parts.state()).all()
        parts = again
    assert (whole.state() == parts.state()).all()
    assert whole.state() == pytest.approx([len(x), x.sum(), (x**2).sum()], rel=1e-12, abs=1e-9)


def test_moments_are_shrunk_and_have_a_prior():
    nothing, seen = Moments(0.3), Moments(0.3)
    assert (nothing.mean(), nothing.square(), nothing.variance()) == (0.0, 0.3, 0.3)
    seen.add(np.array([1.0, -0.5, 2.0]))
    assert seen.mean(2.0) == pytest.approx(2.5 / 2.0 / 4.0)
    assert seen.square(2.0) == pytest.approx((0.3 + 5.25 / 4.0) / 4.0)
    assert seen.variance(2.0) == pytest.approx(seen.square(2.0) - seen.mean(2.0) ** 2)
    same = Moments(0.0)
    same.add(np.full(10**5, 0.3))
    assert same.variance() >= 1e-12
    seen.fade(0.5)
    assert seen.state() == pytest.approx([1.5, 1.25, 2.625])


@each(
    "kept",
    [
        [math.nan, 0.0, 0.0],
        [1.0, math.nan, 1.0],
        [1.0, math.inf, 1.0],
        [1.0, 0.0, math.inf],
        [-1.0, 0.0, 1.0],
        [1.0, 0.0, -1.0],
        [1.0, 1.0],
        [1.0, 1.0, 1.0, 1.0],
    ],
)
def test_moments_of_no_outcomes_are_refused(kept):
    seen = Moments()
    with pytest.raises(ValueError):  # noqa: PT011
        seen.restore(np.array(kept))


def test_moments_of_outcomes_of_any_size_stay_finite():
    """A kept state must be taken back, also where squares overflow."""
    seen, again = Moments(), Moments()
    for _ in range(2):
        seen.add(np.array([1e300, -1e299]))
        again.restore(seen.state())
        assert (again.state() == seen.state()).all()
    assert again.sum == pytest.approx(1.8e300)
