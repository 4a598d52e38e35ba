"""Large samples: an e-process for normal outcomes, one for the limit, silent where that is far; and its intervals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats
from scipy.integrate import quad

from builders import each
from policytest.eprocess.large_sample import (
    BEST_SCALE,
    FEWEST,
    SKEWED,
    TUNED,
    AnyTime,
    LargeSampleProcess,
    OneLook,
    ShapeSoFar,
    hall,
    speaks,
    unhall,
)

LEVEL = -math.log(0.05)


def process_of(x, rule=None):
    """The process after these outcomes."""
    process = LargeSampleProcess(rule)
    process.add(np.asarray(x, dtype=np.float64))
    return process


# ---------------------------------------------------------------- the formula


def test_the_evidence_is_the_mixture_of_likelihood_ratios_over_effects_and_variances():
    """By the integral that its docstring names: effects in sds are |N(0, rho^2)|, and the sd has the density 1/sd."""
    x = np.array([0.9, -0.3, 1.4, 0.2, 1.1, 0.6])
    n, total, square = len(x), x.sum(), (x**2).sum()
    T = np.array(math.sqrt(n) * x.mean() / x.std(ddof=1))

    def marginal(effect):  # of sd, up to a constant: sd^(-n-1) exp(-sum (x/sd - effect)^2 / 2)
        def density(u):  # u = 1/sd
            return u ** (n - 1) * math.exp(-0.5 * (u * u * square - 2 * u * effect * total + n * effect**2))

        return quad(density, 0, np.inf)[0]

    found = []
    for scale in BEST_SCALE / np.array(TUNED):
        rho = math.sqrt(scale)
        mixed = quad(lambda e, rho=rho: marginal(e) * 2 * stats.norm.pdf(e, 0, rho), 0, 12 * rho)[0]
        found.append(mixed / marginal(0.0))
    assert float(AnyTime().evidence(T, np.array(n))) == pytest.approx(math.log(np.mean(found)), abs=1e-6)


def test_with_many_outcomes_it_is_the_mixture_with_a_known_variance():
    """The asymptotic confidence sequence, its formula written by hand."""
    n = 1e7
    s = n * BEST_SCALE / np.array(TUNED)
    s = s / (1 + s)
    for T in (-2.0, 0.0, 1.5, 4.0):
        known = 2 * np.sqrt(1 - s) * np.exp(s * T**2 / 2) * stats.norm.cdf(np.sqrt(s) * T)
        assert float(AnyTime().evidence(np.array(T), np.array(n))) == pytest.approx(math.log(known.mean()), abs=1e-5)


@each("n", [2, 30, 1000, 10**6])
def test_evidence_rises_in_the_lead_also_where_the_tail_of_students_t_underflows(n):
    found = AnyTime().evidence(np.linspace(-3000, 3000, 4001), np.full(4001, float(n)))
    assert np.isfinite(found).all()
    assert (np.diff(found) >= -1e-9).all()


def test_one_look_is_the_t_test():
    x = stats.norm.ppf((np.arange(80) + 0.5) / 80) + 0.3  # without skewness
    above, below = process_of(x, OneLook(80)).evidence(0.1)
    assert above == pytest.approx(-math.log(stats.ttest_1samp(x, 0.1, alternative="greater").pvalue), rel=1e-9)
    assert below == pytest.approx(-math.log(stats.ttest_1samp(x, 0.1, alternative="less").pvalue), rel=1e-9)
    low, high = process_of(x, OneLook(80)).ends(-math.log(0.025))
    assert (low, high) == pytest.approx(stats.ttest_1samp(x, 0.0).confidence_interval(0.95), rel=1e-9)


def test_halls_transformation_rises_and_is_inverted():
    for a in (-0.2, -1e-9, 0.0, 1e-9, 0.05, 0.2):
        T = np.linspace(-20, 20, 81)
        assert (np.diff(hall(T, np.array(a))) >= 0).all()
        back = [unhall(float(h), a) for h in hall(T, np.array(a))]
        assert back == pytest.approx(list(T), abs=1e-3)  # flat where 1 + a T = 0


# ---------------------------------------------------------------- moments, and keeping


def test_outcomes_one_by_one_and_many_at_once_are_the_same_to_the_last_bit():
    x = np.random.default_rng(1).lognormal(size=300) + 1e6
    one, many = LargeSampleProcess(), process_of(x)
    for outcome in x:
        one.add(np.array([outcome]))
    assert one.evidence(1e6 + 1.5) == many.evidence(1e6 + 1.5)
    assert (one.shape.mean, one.shape.sd) == pytest.approx((x.mean(), x.std(ddof=1)), rel=1e-9)
    assert float(one.shape.skewness) == pytest.approx(stats.skew(x), rel=1e-6)


def test_what_was_looked_at_and_not_kept_leaves_no_trace():
    x = np.tile([1.0, 1.0, 0.0, 2.0], 20)
    process, plain = LargeSampleProcess(), process_of(x[:42])
    look = process.look(x)
    process.keep(look, 42)
    assert process.evidence(0.5) == plain.evidence(0.5)
    assert np.array_equal(look.evidence(0.5)[:, 41], plain.evidence(0.5))


# ---------------------------------------------------------------- intervals


@each("rule", [AnyTime(), OneLook(200)])
@each("sign", [1.0, -1.0])
def test_the_ends_are_where_the_evidence_reaches_the_level(rule, sign):
    x = sign * np.random.default_rng(3).gamma(2.0, size=200)
    process = process_of(x, rule)
    low, high = process.ends(LEVEL)
    assert low < x.mean() < high
    assert process.evidence(low)[0] == pytest.approx(LEVEL, abs=1e-6)
    assert process.evidence(high)[1] == pytest.approx(LEVEL, abs=1e-6)
    assert process.evidence(low - 0.01)[0] > LEVEL > process.evidence(low + 0.01)[0]


def test_a_level_that_no_outcomes_can_reach_leaves_all_values():
    assert process_of(np.random.default_rng(1).normal(size=30)).ends(60.0) == (-math.inf, math.inf)


# ---------------------------------------------------------------- silence

TWO_VALUES = np.repeat([0.0, 1.0], [26, 9])


@each(
    ("x", "words"),
    [
        ([], "needs at least 30 episodes"),
        (np.arange(29.0), "29 episodes so far"),
        (np.full(50, 3.0), "all 50 episodes returned 3"),
        (np.full(50, 0.1) + np.arange(50) * 1e-17, "all 50 episodes returned 0.1"),
        (TWO_VALUES, "the rarer one in 9 of 35 episodes"),
        (np.append(np.random.default_rng(1).normal(size=99), 200.0), "so skewed"),
    ],
)
def test_it_is_silent_and_says_why(x, words):
    process = process_of(x)
    assert process.evidence(-1e9) == process.evidence(1e9) == (0.0, 0.0)
    assert process.ends(0.1) == (-math.inf, math.inf)
    assert words in process.silent()


def test_it_speaks_from_the_first_outcome_that_suffices():
    for x in (np.append(TWO_VALUES, 1.0), np.append(TWO_VALUES, 0.5), np.tile([0.0, 1.0, 3.0], 10)):
        before, now = process_of(x[:-1]), process_of(x)
        assert before.evidence(-5.0) == (0.0, 0.0)
        assert now.evidence(-5.0)[0] > LEVEL
        assert not now.silent()
    assert FEWEST == 30


def test_one_outcome_that_carries_a_third_of_the_variance_keeps_it_silent():
    """The rule on skewness in other words: 25 g^2 <= n allows a share of 25^(-1/3)."""
    x = np.random.default_rng(5).normal(size=400)
    x -= x.mean()
    for share, told in ((0.28, True), (0.40, False)):
        outlier = math.sqrt(share / (1 - share) * (x @ x))
        shape, _ = ShapeSoFar().after(np.append(x, outlier))
        assert bool(speaks(AnyTime(), shape.at(-1))) is told
    assert pytest.approx(0.342, abs=1e-3) == SKEWED ** (-1 / 3)


# ---------------------------------------------------------------- errors


def missed(draw, runs, n, at, level, seed=0):
    """[3] how often "above", and "below", are ever answered at a threshold; and by a t interval, looked at always."""
    found, quantile = np.zeros(3), -stats.t.ppf(math.exp(-level), np.maximum(np.arange(n), 1))
    for run in range(runs):
        look = LargeSampleProcess().look(draw(np.random.default_rng([seed, run]), n))
        above, below = look.evidence(at)
        T = np.sqrt(look.shape.n) * (look.shape.mean - at) / np.where(look.shape.sd > 0, look.shape.sd, np.inf)
        found += above.max() >= level, below.max() >= level, (quantile < T)[FEWEST:].any()
    return found


@each(
    ("draw", "mean"),
    [
        (lambda rng, n: rng.normal(size=n), 0.0),
        (lambda rng, n: (rng.random(n) < 0.05) * 1.0, 0.05),
        (lambda rng, n: -rng.lognormal(size=n), -math.exp(0.5)),
    ],
)
def test_errors_at_all_times_keep_to_delta_and_those_of_a_t_interval_do_not(draw, mean):
    """An alarm is a binomial tail below one in a million; `benchmarks/large_sample.py` has more of them."""
    runs, delta = 150, 0.05
    above, below, peeking = missed(draw, runs, 400, mean, -math.log(delta))
    assert stats.binom.sf(above - 1, runs, delta) > 1e-6
    assert stats.binom.sf(below - 1, runs, delta) > 1e-6
    if mean <= 0:  # of a distribution whose errors are on this side
        assert stats.binom.sf(peeking - 1, runs, delta) < 1e-6
