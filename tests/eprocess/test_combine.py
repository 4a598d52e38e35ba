"""Several e-processes as one: by enumeration of how they may depend on each other, at the price that is stated."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from builders import each
from fair_games import ALL, LAWS, breaks_ville, game
from policytest.eprocess.interval import HALF, average, intersection, union, weighted_median

DELTA = 0.1
LEVEL = -math.log(DELTA)
ATOMS = 5  # events of probability delta/2 each; what is left of 1 is another one
WEIGHTS = [(0.5, 0.5), (0.25, 0.25, 0.25, 0.25), (0.5, 0.3, 0.2), (0.4, 0.35, 0.25), (1.0,)]


def logs(capital):
    with np.errstate(divide="ignore"):
        return np.log(capital)


def games(law=LAWS[0], depth=7):
    """[3, paths] the evidence of three strategies on the same outcomes, and how probable each path is."""
    found = [game(ALL[name], law, depth) for name in ("returns", "truncated", "own draws")]
    return np.array([path.chance for path in found[0]]), [[path.process.evidence() for path in one] for one in found]


# ---------------------------------------------------------------- weighted median


@given(some.lists(some.tuples(some.floats(-5, 5), some.integers(1, 9)), min_size=1, max_size=8))
def test_the_weighted_median_is_the_largest_number_that_half_reach(pairs):
    values, parts = np.array([value for value, _ in pairs]), np.array([part for _, part in pairs], dtype=float)
    weights = parts / parts.sum()
    found = weighted_median(values, weights)
    assert found in values
    assert parts[values >= found].sum() >= 0.5 * parts.sum() - 1e-6
    assert all(parts[values >= value].sum() < 0.5 * parts.sum() for value in values if value > found)
    order = np.random.default_rng(0).permutation(len(values))
    assert weighted_median(values[order], weights[order]) == found


def test_the_weighted_median_of_few():
    assert weighted_median(np.array([3.0]), np.array([1.0])) == 3.0
    assert weighted_median(np.array([1.0, 3.0]), np.array([0.5, 0.5])) == 3.0, "half is enough"
    assert weighted_median(np.array([1.0, 3.0]), np.array([0.51, 0.49])) == 1.0
    assert weighted_median(np.array([-math.inf, math.inf, 2.0]), np.array([0.3, 0.3, 0.4])) == 2.0
    for n in range(2, 60, 2):
        assert weighted_median(np.arange(float(n)), np.full(n, 1.0 / n)) == n / 2, "half, but for rounding, is enough"


def chance_of_vote(weights, atoms, level):
    """P(the vote reaches log 1/delta), where voter i reaches its level on atom atoms[i], of probability delta/2."""
    chance = 0.0
    for atom in range(ATOMS):
        evidence = np.where(np.array(atoms) == atom, LEVEL + HALF, -math.inf)
        chance += 0.5 * DELTA * (weighted_median(evidence, np.array(weights)) - level >= LEVEL - 1e-12)
    return chance


@each("weights", WEIGHTS)
def test_the_vote_errs_at_most_with_delta_however_the_voters_depend(weights):
    """Voters that each ever reach 2/delta with probability delta/2; the largest error over all dependence is found."""
    worst = max(chance_of_vote(weights, atoms, HALF) for atoms in itertools.product(range(ATOMS), repeat=len(weights)))
    assert worst <= DELTA + 1e-12
    if any(math.isclose(sum(some), 0.5) for n in range(len(weights)) for some in itertools.combinations(weights, n)):
        assert worst == pytest.approx(DELTA), "Markov's bound is attained: half of them on one event, half on another"


def test_without_the_price_the_vote_errs_with_up_to_twice_delta():
    """The control: voters at 1/delta."""
    chance = 0.0
    for first in (True, False):  # two events of probability delta, one for each voter
        evidence = np.where([first, not first], LEVEL, -math.inf)
        chance += DELTA * (weighted_median(evidence, np.array([0.5, 0.5])) >= LEVEL)
    assert chance == 2.0 * DELTA


def stopped_by_the_future(depth=7):
    """[3, paths] capitals that stop where the next outcome would be a loss: by what they have not used yet."""
    law, found = LAWS[0], []
    for name in ("returns", "truncated", "own draws"):
        at = {}
        for t in range(depth + 1):
            at |= {tuple(path.process.settled(True).won): path.process.evidence() for path in game(ALL[name], law, t)}
        outcomes = itertools.product((law.worst, law.best), repeat=depth)
        found.append([at[path[: path.index(law.worst) if law.worst in path else depth]] for path in outcomes])
    return np.array(found)


def test_capitals_that_were_stopped_by_what_they_have_not_used_cannot_be_averaged_but_may_vote():
    """The control of averages, and why there is a vote."""
    chances, _ = games()
    stopped = stopped_by_the_future()
    assert chances @ np.exp(stopped).mean(axis=0) > 1.1
    assert chances @ np.exp(np.max(stopped, axis=0)) > 1.1
    vote = [weighted_median(one, np.array([0.4, 0.3, 0.3])) - HALF for one in stopped.T]
    assert not breaks_ville(chances, vote)


# ---------------------------------------------------------------- average


def test_the_average_of_e_values_is_an_e_value_whatever_their_dependence():
    """Over all paths, for strategies that bet on the same outcomes; the best of them is none, which is the control."""
    chances, evidence = games()
    together = [average(one) for one in zip(*evidence, strict=True)]
    assert chances @ np.exp(together) <= 1.0 + 1e-12
    assert not breaks_ville(chances, together)
    assert chances @ np.exp(np.max(evidence, axis=0)) > 1.02


@given(some.permutations(range(6)))
def test_an_average_of_two_dependent_e_values(order):
    """E = 6 on one face of a die and 0 elsewhere, for any two faces."""
    first, second = np.eye(6)[order[0]] * 6.0, np.eye(6)[order[1]] * 6.0
    mean = np.mean([math.exp(average(one)) for one in zip(logs(first), logs(second), strict=True)])
    assert mean == pytest.approx(1.0)


# ---------------------------------------------------------------- union


def test_the_union_of_two_tests_errs_at_most_with_delta():
    """Tests that ever reach 2/delta with probability delta/2 each; on different events the bound is attained."""
    for second in range(2):
        chance = 0.0
        for atom in range(2):
            tests = [(LEVEL + HALF if atom == at else -math.inf, -math.inf) for at in (0, second)]
            chance += 0.5 * DELTA * (union(*tests)[0] >= LEVEL - 1e-12)
        assert chance == pytest.approx(DELTA if second else 0.5 * DELTA)


def test_the_better_of_two_tests_breaks_ville_without_its_price():
    """Over all paths, with a control; the sides are those of the tests."""
    chances, (first, second, _) = games()
    both = [union((one, 0.0), (0.0, two)) for one, two in zip(first, second, strict=True)]
    assert np.array(both)[:, 0] == pytest.approx(np.maximum(first, 0.0) - HALF)
    assert np.array(both)[:, 1] == pytest.approx(np.maximum(second, 0.0) - HALF)
    united = [union((one, 0.0), (two, 0.0))[0] for one, two in zip(first, second, strict=True)]
    assert not breaks_ville(chances, united)
    assert chances @ np.exp(np.maximum(first, second)) > 1.0
    assert pytest.approx(math.log(2.0)) == HALF


@given(*[some.tuples(some.floats(-3, 3), some.floats(-3, 3)) for _ in range(2)], some.floats(-3, 3))
def test_an_intersection_holds_what_both_intervals_hold(first, second, value):
    low, high = intersection(first, second)
    assert (low <= value <= high) == all(end[0] <= value <= end[1] for end in (first, second))
