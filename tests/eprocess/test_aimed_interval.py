"""Intervals at the end of a budget: exact misses over all paths, their length beside the exact test, and a control."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy.stats import beta

from builders import each
from policytest.eprocess import aimed_interval as intervals
from policytest.eprocess.aimed_interval import STEADY, Goal, aimed_interval, full_bets, lower_end
from policytest.eprocess.budget import aimed_capital

N, DELTA = 5, 0.4
LAWS = {"two values": (0.0, 1.0), "three values": (0.0, 0.35, 1.0), "mostly high": (0.0, 0.9, 1.0)}
GOAL = Goal(N, -math.log(DELTA), (0.0, 1.0))


def chances_of(values, mean):
    """A law of these values with this mean, with as much on the middle one as on the others together."""
    if len(values) == 2:
        return [1.0 - mean, mean]
    share = 0.5 * min(mean / values[1], (1.0 - mean) / (1.0 - values[1]))
    up = mean - share * values[1]
    return [1.0 - share - up, share, up]


def most_misses(values):
    """The largest probability over means that the lower end is above the mean."""
    paths = list(itertools.product(range(len(values)), repeat=N))
    ends = np.array([lower_end(GOAL, np.array([values[i] for i in path]), 0.0) for path in paths])
    found = []
    for mean in np.linspace(0.03, 0.97, 48):
        chances = np.array(chances_of(values, mean))
        weights = np.array([chances[list(path)].prod() for path in paths])
        assert weights.sum() == pytest.approx(1.0)
        found.append(float(weights[ends > mean].sum()))
    return max(found)


@pytest.fixture
def few_cells(monkeypatch):
    monkeypatch.setattr(intervals, "CELLS", 10)


@pytest.mark.usefixtures("few_cells")
@each("law", LAWS)
def test_the_lower_end_is_above_the_mean_with_at_most_half_of_delta(law):
    assert most_misses(LAWS[law]) <= 0.5 * DELTA * (1.0 - STEADY)


@pytest.mark.usefixtures("few_cells")
def test_losses_that_count_a_fifth_break_the_promise(monkeypatch):
    """The control."""

    def generous(*about):
        steps = np.diff(aimed_capital(*about), prepend=0.0)
        return np.add.accumulate(np.maximum(steps, 0.2 * steps))

    monkeypatch.setattr(intervals, "aimed_capital", generous)
    assert most_misses(LAWS["two values"]) > 0.5 * DELTA


@each("successes", [70, 93, 8])
def test_it_is_nearly_the_interval_of_clopper_and_pearson(successes):
    outcomes = np.zeros(100)
    outcomes[np.random.default_rng(3).permutation(100)[:successes]] = 1.0
    goal = Goal(100, -math.log(0.05), (0.0, 1.0))
    low, high = aimed_interval(goal, (outcomes, outcomes), (0.0, 1.0))
    exact = beta.ppf(0.975, successes + 1, 100 - successes) - beta.ppf(0.025, successes, 101 - successes)
    assert low < successes / 100 < high
    assert high - low < 1.15 * exact


@each("scale", [1.0, 250.0])
def test_both_ends_are_mirror_images_and_follow_the_scale(scale):
    Z = np.random.default_rng(0).beta(2, 5, 60)
    low, high = aimed_interval(Goal(60, 3.0, (0.0, 1.0)), (Z, Z), (0.0, 1.0))
    goal = Goal(60, 3.0, (-scale, 0.0))
    mirrored = aimed_interval(goal, (-scale * Z, -scale * Z), (-scale, 0.0))
    assert mirrored == pytest.approx((-scale * high, -scale * low), rel=1e-9)


def test_every_threshold_below_the_end_is_refuted_and_the_top_of_its_cell_is_not():
    Z, goal = np.random.default_rng(1).beta(4, 2, 80), Goal(80, 3.0, (0.0, 1.0))
    end, required = lower_end(goal, Z, 0.0), 3.0 + math.log(2.0) - math.log1p(-STEADY)

    def refuted(R):
        x, best = full_bets(goal, Z, R, R)
        return aimed_capital(x, best, math.exp(-required), 80).max() >= required

    tops = goal.tops
    assert all(refuted(R) for R in tops[tops <= end])
    assert not refuted(tops[tops > end][0])
    assert 0.5 < end < Z.mean()


def test_outcomes_at_the_top_of_a_cell_and_beyond_the_budget():
    """The fractions of ties are not known, and nothing is won there; outcomes after the budget are not used."""
    goal = Goal(30, 3.0, (0.0, 1.0))
    Z = np.where(np.arange(30) % 2 == 0, goal.tops[200], 0.9)
    low, high = aimed_interval(goal, (Z, Z), (0.0, 1.0))
    assert 0.0 < low < Z.mean() < high < 1.0
    more = np.append(Z, np.ones(50))
    assert aimed_interval(goal, (more, more), (0.0, 1.0)) == (low, high)
