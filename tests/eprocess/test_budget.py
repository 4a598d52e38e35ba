"""Bets that aim at the end of a budget: their walks over all paths, the fairness of their capital, and their power."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import binom

from builders import each
from policytest._base.compiled import budget as kernels
from policytest.eprocess.budget import PLANS, PLANS_OF_OTHERS, BudgetTarget, aimed_capital, walk

DELTA = 0.05
LAWS = (0.7, 0.3, 0.0), (0.05, 0.95, 0.0), (0.98, 0.02, 0.0), (0.1, 0.8, 0.1), (0.3, 0.4, 0.3)


def by_enumeration(law, first, steps=0, place=0):
    """The probability of crossing, over all paths."""
    if place >= first[steps]:
        return 1.0
    if steps == len(first) - 1:
        return 0.0
    return sum(p * by_enumeration(law, first, steps + 1, place + up) for up, p in enumerate(law) if p)


@each("law", LAWS)
@each("level", [0.3, 0.05])
def test_chances_are_those_of_all_paths_and_the_level_is_kept(law, level):
    found = walk(law, 7, level, PLANS)
    for place in range(3):
        assert found.chance[0, place] == pytest.approx(
            1.0 if place >= found.first[0] else by_enumeration(law, found.first, 0, place), abs=1e-12
        )
    assert found.chance[0, 0] <= level * (1 + 1e-12)


@each("law", LAWS)
def test_a_long_walk_uses_its_level(law):
    assert 0.9 * DELTA < walk(law, 400, DELTA, PLANS_OF_OTHERS).chance[0, 0] <= DELTA * (1 + 1e-9)


@each(("early", "late"), [(0.0, 8.0), (0.5, 8.0), (0.5, 4.0), (1.0, 8.0)])
def test_the_level_is_spent_over_time_as_the_formula_says(early, late):
    """s(tau) = e tau + (1 - e) tau^l, scaled, less what whole places leave over: at most one place's mass."""
    law, K = np.array([0.5, 0.5, 0.0]), 400
    first, reached = kernels.boundary(law, K, DELTA, (early, late))
    mass, spent = np.zeros(K + 2), np.zeros(K + 1)
    mass[0] = 1.0
    for t in range(1, K + 1):
        mass = 0.5 * mass + 0.5 * np.append(0.0, mass[:-1])
        spent[t] = spent[t - 1] + mass[first[t] :].sum()
        mass[first[t] :] = 0.0
    assert spent[-1] == pytest.approx(reached, abs=1e-12)
    tau = np.arange(K + 1) / K
    assert np.abs(spent / reached - (early * tau + (1 - early) * tau**late)).max() < 0.12


def games(values, mean):
    """Probabilities of these values with this mean: two at the ends, or three with a half of the mass in between."""
    low, high = values[0], values[-1]
    p = (mean - low) / (high - low)
    return {low: 1 - p, high: p} if len(values) == 2 else {low: (1 - p) / 2, mean: 0.5, high: p / 2}


@each("values", [(-0.4, 0.6), (-0.05, 0.95), (-0.9, 0.1), (-1.0, 0.0, 1.0), (-0.5, 0.0, 0.8)])
@each("pairs", [False, True])
def test_the_capital_is_fair_whatever_the_law(values, pairs):
    """E[W] = 1 over all paths if the mean is the threshold: exact for two values, and with fitted moments."""
    law = games(values, 0.0)
    assert mean_capital(law, 6, lambda target, W, i, z: target.fraction(W, i), pairs) == pytest.approx(1.0, abs=1e-9)


def mean_by_nature(choose, differ, n=7):
    """E[W] over all paths of differences, where the share that differs depends on the capital."""

    def onwards(past, W):
        if len(past) == n:
            return W
        target = BudgetTarget(0.2, n, 1.0, pairs=True)
        target.add(np.array(past))
        q = differ(W)
        chances = {-1.0: q / 2, 0.0: 1 - q, 1.0: q / 2}
        return sum(p * onwards([*past, z], W * (1.0 + choose(target, W, len(past), z) * z)) for z, p in chances.items())

    return onwards([], 1.0)


@each("differ", [lambda W: 0.9 if W < 1 else 0.1, lambda W: 0.1 if W < 1 else 1.0, lambda W: min(1.0, W / 4)])
def test_the_capital_of_pairs_is_fair_whatever_nature_makes_of_it(differ):
    assert mean_by_nature(lambda target, W, i, z: target.fraction(W, i), differ) == pytest.approx(1.0, abs=1e-9)
    looks = mean_by_nature(lambda target, W, i, z: target.fraction(W, i) * (z > 0), differ)
    assert looks > 1.1  # the control


def test_capital_that_looks_at_the_outcome_is_not_fair():
    """The control."""
    law = games((-0.4, 0.6), 0.0)
    assert mean_capital(law, 6, lambda target, W, i, z: target.fraction(W, i) * (z > 0)) > 1.1


def mean_capital(law, n, choose, pairs=False):
    total = 0.0
    for path in itertools.product(law, repeat=n):
        target, W = BudgetTarget(0.2, n, max(law) / -min(law), pairs), 1.0
        for i, z in enumerate(path):
            W *= 1.0 + choose(target, W, i, z) * z / -min(law)
            target.add(np.array([z]) / -min(law))
        total += W * np.prod([law[z] for z in path])
    return total


def runs(draw, low, high, N, seeds, pairs=False):
    """(how often the capital reached 1/delta, the mean number of outcomes)."""
    answered, used = 0, 0
    for seed in range(seeds):
        won = draw(np.random.default_rng(seed))
        target, W, i = BudgetTarget(DELTA, N, high / -low, pairs), 1.0, 0
        while i < N and W < 1.0 / DELTA:
            f = target.fraction(W, i)
            assert 0 <= f < 1
            W *= 1.0 + f * won[i] / -low
            target.add(won[i : i + 1] / -low)
            i += 1
        answered, used = answered + (W >= 1.0 / DELTA), used + i
    return answered, used / seeds


@each(("R", "truth", "N"), [(0.6, 0.78, 60), (0.8, 0.9, 110), (0.1, 0.2, 80)])
def test_the_power_is_nearly_that_of_the_exact_test_at_the_end(R, truth, N):
    """Against a bar: answered as often as by the binomial test at N, up to 5 points and the noise of 400 runs."""
    least = next(k for k in range(N + 2) if binom.sf(k - 1, N, R) <= DELTA)
    exact = binom.sf(least - 1, N, truth)
    answered, mean = runs(lambda rng: (rng.random(N) < truth) - R, -R, 1 - R, N, 400)
    assert binom.cdf(answered, 400, exact - 0.05) > 1e-6
    assert mean < 0.9 * N


@each("N", [30, 75, 180, 420])
def test_early_answers_cost_hardly_any_power(N):
    """Two values: at most 2 points less than the exact test at N, where that has a power of 0.7 or 0.85."""
    for R in (0.04, 0.13, 0.37, 0.52, 0.66, 0.81, 0.93):
        least = next(k for k in range(N + 2) if binom.sf(k - 1, N, R) <= DELTA)
        if least <= N:
            first = walk((1 - R, R, 0.0), N, DELTA, PLANS).first
            for power in (0.7, 0.85):
                truth = brentq(lambda p, least=least, power=power: binom.sf(least - 1, N, p) - power, R, 1.0)
                assert kernels.power(np.array([1 - truth, truth, 0.0]), first) > power - 0.02


@each(("A", "B", "step"), [(0.22, 0.1, 0.9201), (0.47, 0.33, 0.8352), (0.97, 0.9, 0.8437)])
def test_pairs_are_answered_as_often_as_by_step(A, B, step):
    """Its power within 200 pairs is exact, from the table of sequentialized-barnard-tests; 2 points less would fail."""
    rng, count = np.random.default_rng(3), 1000
    differences = (rng.random((count, 200)) < A) - 1.0 * (rng.random((count, 200)) < B)
    answered = sum(aimed_capital(x, 1.0, DELTA, 200, pairs=True)[-1] >= -np.log(DELTA) for x in differences)
    assert binom.cdf(answered, count, step - 0.02) > 1e-3


def test_pairs_stake_no_more_than_an_answer_needs():
    rng = np.random.default_rng(5)
    for _ in range(50):
        x = (rng.random(60) < 0.7) - 1.0 * (rng.random(60) < 0.3)
        assert aimed_capital(x, 1.0, DELTA, 60, pairs=True).max() < -np.log(DELTA) + 1e-8


@each("kind", ["two values", "uniform", "skewed", "pairs"])
def test_at_the_threshold_it_errs_with_probability_delta_at_most(kind):
    N, seeds = 40, 400
    draw, low, high = {
        "two values": (lambda rng: (rng.random(N) < 0.3) - 0.3, -0.3, 0.7),
        "uniform": (lambda rng: rng.random(N) - 0.5, -0.5, 0.5),
        "skewed": (lambda rng: (rng.random(N) < 0.1) * rng.random(N) - 0.05, -0.05, 0.95),
        "pairs": (lambda rng: (rng.random(N) < 0.4) - 1.0 * (rng.random(N) < 0.4), -1.0, 1.0),
    }[kind]
    answered, _ = runs(draw, low, high, N, seeds, kind == "pairs")
    assert binom.sf(answered - 1, seeds, DELTA) > 1e-6


@each(("total", "all_of_it"), [(40, True), (4000, False)])
def test_all_is_staked_where_steady_bets_would_need_more(total, all_of_it):
    """f^2 v/2 an outcome, with f = 1: not enough for log(1/delta) = 3 within 40 outcomes of variance 0.01."""
    target = BudgetTarget(DELTA, total, 1.0)
    target.add(0.1 * np.tile([1.0, -1.0, 0.9, -0.9], 9))
    assert (target.fraction(1.0, 36) == kernels.LARGEST_FRACTION) == all_of_it


def test_beyond_its_budget_and_without_capital_nothing_is_staked():
    target = BudgetTarget(DELTA, 10, 1.0)
    assert target.fraction(1.0, 3) > 0 == target.fraction(1.0, 10) == target.fraction(0.0, 3)
    assert BudgetTarget(DELTA, 10, 1.0, capital=1e-20).fraction(1e-20, 0) == 0


def test_a_target_that_is_set_again_starts_from_the_capital_that_is_left():
    """The walk spends delta times that capital, so that over both budgets the null probability is delta."""
    target = BudgetTarget(DELTA, 50, 1.0, capital=0.2)
    assert target.level == pytest.approx(0.2 * DELTA)
    f = target.fraction(0.2, 0)
    there = walk((0.5, 0.5, 0.0), 50, target.level, PLANS)
    gains = np.array([there.chance[1, 1] - there.chance[1, 0], 0.0])  # nothing is gained beyond the boundary
    slope = np.interp(target.level, there.chance[0, :2], gains)
    assert f == pytest.approx(0.5 * slope / target.level)


@each("pairs", [False, True])
@each("kind", ["ends", "ties", "changes", "continuous", "after the budget"])
def test_capital_along_outcomes_is_that_of_fractions_one_by_one(kind, pairs):
    rng, total = np.random.default_rng(7), 60
    x = {
        "ends": 2.0 * (rng.random(total) < 0.65) - 1.0,
        "ties": (rng.random(total) < 0.5) - 1.0 * (rng.random(total) < 0.3),
        "changes": np.append(2.0 * (rng.random(30) < 0.6) - 1.0, rng.random(30) - 0.4),
        "continuous": 1.9 * rng.random(total) - 0.9,
        "after the budget": 2.0 * (rng.random(2 * total) < 0.55) - 1.0,
    }[kind]
    target, W, path = BudgetTarget(DELTA, total, 1.0, pairs), 1.0, []
    for i, won in enumerate(x):
        W *= 1.0 + target.fraction(W, i) * won
        target.add(x[i : i + 1])
        path.append(W)
    assert W != 1.0
    assert np.exp(aimed_capital(x, 1.0, DELTA, total, pairs)) == pytest.approx(np.array(path), rel=1e-9)


def extended(seed, keeps):
    """Whether a budget of 15, extended to 30 and 60, answers at the threshold; with a capital that is kept or not."""
    won, W, i = (np.random.default_rng(seed).random(60) < 0.5) - 0.5, 1.0, 0
    for end in (15, 30, 60):
        W = W if keeps else 1.0
        target, begun = BudgetTarget(0.1, end - i, 1.0, capital=W), i
        while i < end:
            W *= 1.0 + target.fraction(W, i - begun) * won[i] / 0.5
            target.add(won[i : i + 1] / 0.5)
            i += 1
            if W >= 10.0:
                return True
    return False


def test_extensions_together_err_with_probability_delta_at_most():
    wrong, anew = (sum(extended(seed, keeps) for seed in range(600)) for keeps in (True, False))
    assert binom.sf(wrong - 1, 600, 0.1) > 1e-6
    assert binom.sf(anew - 1, 600, 0.1) < 1e-6  # the control: each target starts from the whole capital
