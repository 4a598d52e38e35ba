"""The largest refuted threshold against plain bisection, in few evaluations; both ends; the part of an answer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from builders import each
from policytest.eprocess.capital import Bet, EProcess, TwoSided
from policytest.eprocess.interval import (
    NEARLY_WORST,
    PRECISION,
    Average,
    average,
    clip_to_answer,
    ends,
    largest_refuted,
    last_above,
)
from policytest.eprocess.strategies import ENDS, ENDS_OF_LOGS, ON_RETURNS

FEW, MOST = 17, 60  # evaluations, on average for evidence as bets have it, and for anything


class Counted:
    """Evidence, and how often it was asked for."""

    def __init__(self, evidence, outcomes=()):
        self.evidence, self.calls, self.outcomes = evidence, 0, outcomes

    def log_capital(self, R):
        self.calls += 1
        return self.evidence(R)

    def largest(self):
        return max(self.outcomes, default=-math.inf)


def by_bisection(evidence, low, high, level):
    """The largest R with evidence(R) >= level; ``low`` if none has, next to it."""
    low, first = low + NEARLY_WORST * (high - low), low
    if not evidence(low) >= level:
        return first
    if evidence(high) >= level:
        return high
    for _ in range(60):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if evidence(middle) >= level else (low, middle)
    return low


def assert_found(evidence, low, high, level):
    """The end itself reaches the level; next to it nothing does; as plain bisection has it."""
    counted = Counted(evidence)
    found = last_above(counted.log_capital, low, high, level)
    near = max(PRECISION * (high - low), 4.0 * np.spacing(max(abs(low), abs(high))))
    assert low <= found <= high
    if found > low:
        assert evidence(found) >= level
    if low < found < high:
        assert evidence(min(found + 1.01 * near, high)) < level
    assert found == pytest.approx(by_bisection(evidence, low, high, level), abs=1.01 * near)
    assert counted.calls <= MOST
    return found, counted.calls


# ---------------------------------------------------------------- functions written out

SHAPES = {
    "straight": lambda x: 10.0 * (0.4 - x),
    "steep": lambda x: 1e8 * (0.4 - x),
    "flat near the end": lambda x: (0.4 - x) ** 3,
    "a pole": lambda x: -math.log(max(x, 1e-300)) - 3.0,
    "squares": lambda x: 500.0 * math.copysign((0.4 - x) ** 2, 0.4 - x),
    "infinite below": lambda x: math.inf if x < 0.2 else 10.0 * (0.4 - x),
    "infinite above": lambda x: -math.inf if x > 0.6 else 10.0 * (0.4 - x),
    "exponential": lambda x: math.exp(20.0 * (0.4 - x)) - 1.0,
}


@each("name", SHAPES)
@each("span", [(0.0, 1.0), (-3.0, 1e6), (5.0, 5.0 + 1e-6), (-1e-300, 1e-300)])
@each("mirrored", [False, True])
def test_an_end_is_that_of_bisection_in_few_evaluations(name, span, mirrored):
    low, high = span
    shape = SHAPES[name]
    unit = shape if not mirrored else (lambda x: -shape(1.0 - x))

    def evidence(R):
        return 3.0 + unit((R - low) / (high - low))

    assert_found(evidence, low, high, 3.0)


@each("at", [1e-8, 0.3, 0.999, 1.0 - 1e-13])
@each("size", [0.5, math.inf])
def test_a_step_is_found_by_halving(at, size):
    """Nothing is known but on which side of it one is."""
    found, _ = assert_found(lambda R: 3.0 + (size if at >= R else -size), 0.0, 1.0, 3.0)
    assert found == pytest.approx(at, abs=2 * PRECISION)


def test_the_ends_of_the_range_are_told_apart():
    assert last_above(lambda R: 2.9, 0.0, 1.0, 3.0) == 0.0, "nothing is refuted"
    assert last_above(lambda R: 3.0, 0.0, 1.0, 3.0) == 1.0, "all of it"
    assert last_above(lambda R: -math.inf, 0.0, 1.0, 3.0) == 0.0
    assert last_above(lambda R: math.inf, 0.0, 1.0, 3.0) == 1.0
    assert last_above(lambda R: math.nan, 0.0, 1.0, 3.0) == 0.0, "what is not a number proves nothing"
    for value in (2.9, 3.1):
        assert last_above(lambda R, value=value: value, 0.7, 0.7, 3.0) == 0.7
    just = 2.0 * NEARLY_WORST
    assert last_above(lambda R: 4.0 if just >= R else 0.0, 0.0, 1.0, 3.0) == pytest.approx(just, abs=2 * PRECISION)
    assert last_above(lambda R: 4.0 if R <= 0.5 * NEARLY_WORST else 0.0, 0.0, 1.0, 3.0) == 0.0


def test_infinite_ranges():
    """No threshold is refuted without a worst value; without a best one the largest outcome bounds the search."""
    falls = Counted(lambda R: 3.0 + 0.4 - R, outcomes=(0.2, 7.0))
    assert largest_refuted(falls, -math.inf, 1.0, 3.0) == -math.inf
    assert largest_refuted(falls, 0.0, math.inf, 3.0) == pytest.approx(0.4, abs=8 * PRECISION)
    assert largest_refuted(falls, 0.0, 1.0, 3.0) == pytest.approx(0.4, abs=2 * PRECISION)
    assert largest_refuted(falls, 0.0, math.inf, -50.0) == 7.0
    nothing_seen = Counted(lambda R: 0.0)
    assert largest_refuted(nothing_seen, 0.3, math.inf, 3.0) == 0.3
    assert largest_refuted(nothing_seen, 0.3, math.inf, -1.0) == 0.3


# ---------------------------------------------------------------- the evidence of bets


def process_on(won, room=1.0, seed=0):
    process = EProcess(np.exp(ON_RETURNS.log_weights), np.exp(ENDS.log_weights))
    fractions = ON_RETURNS.fractions(0.1, 0.05, 20.0), ENDS.fractions(0.1, 20.0)
    for part in np.split(won, [len(won) // 3, len(won) // 2]):
        process.settle(Bet(room, *fractions), part)
    return process


@pytest.mark.parametrize("as_staked", [True, False])
@pytest.mark.parametrize("along", [True, False])
def test_the_ends_of_bets_are_found_in_few_evaluations(as_staked, along):
    """Many and few outcomes, of large and small variance, with and without rare large gains."""
    rng, calls = np.random.default_rng(0), []
    for n in (1, 5, 40, 4000):
        for won in (
            rng.uniform(-1.0, 1.0, size=n),
            rng.choice([-1.0, 0.01], p=[0.01, 0.99], size=n),
            rng.exponential(size=n) ** 3 - 1.0,
            np.full(n, 0.3),
            np.full(n, -1.0),
        ):
            settled = process_on(won).settled(as_staked, along=along)
            for level in (0.1, 3.0, 30.0):
                found, asked = assert_found(settled.log_capital, -1.0, max(settled.largest(), 1.0), level)
                calls += [asked] * (found > -1.0)
    assert np.mean(calls) <= FEW


@given(some.lists(some.floats(-1.0, 30.0), max_size=60).map(np.array), some.floats(0.05, 20.0))
def test_the_evidence_falls_in_the_threshold_and_no_outcome_is_below_the_end(won, level):
    settled = process_on(won).settled(as_staked=False)
    high = max(settled.largest(), 0.0) + 1.0
    values = [settled.log_capital(R) for R in np.linspace(-0.999, high, 25)]
    assert (np.diff(values) <= 1e-9).all()
    end = largest_refuted(settled, -1.0, math.inf, level)
    assert -1.0 <= end <= max(settled.largest(), -1.0)
    assert end == -1.0 or settled.log_capital(end) >= level


def test_a_higher_level_refutes_less():
    won = np.random.default_rng(1).uniform(-0.5, 1.0, size=300)
    settled = process_on(won).settled(as_staked=False)
    found = [largest_refuted(settled, -1.0, 1.0, level) for level in (0.5, 1.0, 3.0, 10.0, 50.0)]
    assert (np.diff(found) < 0).all()
    assert found[0] < won.mean()


@given(some.lists(some.floats(-1.0, 1.0), min_size=2, max_size=50).map(np.array), some.floats(-2.0, 5.0))
def test_both_ends_are_mirrored_and_around_the_threshold(won, threshold):
    """Against the definition, in the units of the question."""
    above, below = process_on(won), process_on(-won)
    sides = [process.settled(as_staked=False) for process in (above, below)]
    span = threshold - 1.0, threshold + 1.0
    low, high = ends(*sides, span, threshold, 2.0)
    assert low == pytest.approx(threshold + by_bisection(sides[0].log_capital, -1.0, 1.0, 2.0), abs=1e-10)
    assert high == pytest.approx(threshold - by_bisection(sides[1].log_capital, -1.0, 1.0, 2.0), abs=1e-10)
    mirrored = ends(sides[1], sides[0], (-span[1], -span[0]), -threshold, 2.0)
    assert mirrored == pytest.approx((-high, -low), abs=1e-10)


def test_an_answer_and_the_interval_of_its_bets_agree():
    """As staked, the end of the interval passes the threshold when the evidence reaches the level, and not before."""
    won = np.random.default_rng(2).uniform(-0.8, 1.0, size=120)
    for n in range(1, 120, 7):
        both = TwoSided(ON_RETURNS, ENDS_OF_LOGS)
        bet = Bet(1.0, ON_RETURNS.fractions(0.3, 0.1, 9.0), ENDS_OF_LOGS.steady)
        for sign, process in ((1.0, both.above), (-1.0, both.below)):
            process.settle(bet, sign * won[:n])
        for level in (0.2, 1.0, 3.0):
            low, high = both.not_refuted((-1.0, 1.0), 0.0, level, as_staked=True)
            assert (low >= -2 * PRECISION) == (both.above.evidence() >= level)
            assert (high <= 2 * PRECISION) == (both.below.evidence() >= level)


# ---------------------------------------------------------------- the part of an answer


@each(
    ("answer", "zone", "expected"),
    [
        (None, 0.0, (0.1, 0.9)),
        (None, 0.2, (0.1, 0.9)),
        ("above", 0.0, (0.5, 0.9)),
        ("above", 0.2, (0.5, 0.9)),
        ("below", 0.0, (0.1, 0.5)),
        ("below", 0.2, (0.1, 0.5)),
        ("within", 0.2, (0.3, 0.7)),
        ("within", 1.0, (0.1, 0.9)),
    ],
)
def test_an_interval_is_cut_to_the_answer(answer, zone, expected):
    assert clip_to_answer((0.1, 0.9), 0.5, answer, zone) == pytest.approx(expected)
    assert clip_to_answer((0.6, 0.9), 0.5, "above") == (0.6, 0.9)
    assert clip_to_answer((0.1, 0.4), 0.5, "below") == (0.1, 0.4)
    assert clip_to_answer((-math.inf, math.inf), 0.5, "below") == (-math.inf, 0.5)


# ---------------------------------------------------------------- averages


@given(some.lists(some.floats(-50.0, 50.0), min_size=1, max_size=8))
def test_an_average_is_that_of_the_capitals(logs):
    assert average(logs) == pytest.approx(np.log(np.mean(np.exp(logs))), abs=1e-9)
    parts = [Counted(lambda R, value=value: value - R, outcomes=(value,)) for value in logs]
    together = Average(parts)
    assert together.log_capital(0.3) == pytest.approx(average(logs) - 0.3, abs=1e-9)
    assert together.largest() == max(logs)


def test_an_average_at_the_ends_of_the_range():
    assert average([-math.inf, -math.inf]) == -math.inf
    assert average([math.inf, 0.0]) == math.inf
    assert average([1e5, 1e5]) == 1e5
    assert average([0.0, -math.inf]) == pytest.approx(-math.log(2.0))
    assert Average([]).largest() == -math.inf


def test_the_end_of_an_average_is_that_of_bisection():
    rng = np.random.default_rng(3)
    parts = [process_on(rng.uniform(-1.0, 1.2, size=n)).settled(as_staked=False) for n in (10, 300, 2000)]
    assert_found(Average(parts).log_capital, -1.0, 1.2, 3.0)
