"""The capital against products written out, however it is settled, paused, kept and restored."""

from __future__ import annotations

import math
import re

import numba
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as some

from builders import each
from fair_games import ALL
from policytest._base.compiled.capital import settle_path
from policytest._base.compiled.small import MOST_WON, settle_again, stake
from policytest.eprocess.capital import AGREES, Bet, BetSegment, EProcess, TwoSided, with_rounding_margin
from policytest.eprocess.interval import Settled
from policytest.eprocess.strategies import ENDS, ENDS_OF_LOGS, ON_RETURNS, RESERVE

STEADY = np.array([0.9, 0.3, 0.01, 0.0])
SHARES = np.array([0.4, 0.3, 0.2, 0.1])
UNIT = np.array([1.0])

outcomes = some.lists(some.floats(-1.0, 40.0), min_size=0, max_size=60).map(np.array)


@numba.njit
def staked(capital, fractions, ratio):
    stake(capital, fractions, ratio)


@numba.njit
def replaced(capital, fractions, before, after):
    settle_again(capital, fractions, before, after)


def written_out(shares, fractions, ratios):
    """The logarithm of sum over b of share_b prod over i of (1 + f_b x_i)."""
    with np.errstate(divide="ignore"):
        logs = np.log(shares) + np.log1p(np.outer(ratios, fractions)).sum(axis=0)
        return float(np.logaddexp.reduce(logs))


def process_of(shares=SHARES, wide=SHARES):
    return EProcess(shares, wide)


def bet(room=1.0, fractions=STEADY, wide=STEADY):
    return Bet(room, fractions, wide)


def settled_in(process, bet, won, cuts):
    """Settle in parts, cut at these places."""
    for part in np.split(won, sorted(cuts)):
        process.settle(bet, part)
    return process


# ---------------------------------------------------------------- closed forms


@given(outcomes, some.floats(0.1, 50.0))
def test_the_capital_is_the_sum_of_products(won, room):
    process = process_of()
    process.settle(bet(room), won)
    assert process.evidence() == pytest.approx(written_out(SHARES, STEADY, np.maximum(won / room, -1.0)), abs=1e-10)
    assert process.count == len(won)


@each("factor", [1e-3, 0.1, 0.7, 1.9, 100.0])
def test_the_logarithm_is_exact_far_beyond_the_range_of_numbers(factor):
    """After losses to below 1e-400 and gains to above 1e400, and all the way back."""
    n = math.ceil(1000 / abs(math.log(factor)))
    there, back = np.full(n, factor - 1.0), np.full(n, 1.0 / factor - 1.0)
    process = process_of(UNIT, UNIT)
    process.settle(bet(1.0, UNIT, UNIT), there)
    assert abs(process.evidence()) > 1000 - 1e-9
    assert process.evidence() == pytest.approx(n * math.log(factor), rel=1e-12)
    process.settle(bet(1.0, UNIT, UNIT), back)
    assert process.evidence() == pytest.approx(0.0, abs=1e-9)
    assert process.settled(as_staked=True).log_capital(0.0) == pytest.approx(0.0, abs=1e-9)


@given(some.lists(some.floats(-1.0, 1e6), min_size=1, max_size=200).map(np.array))
def test_what_is_too_small_to_be_kept_is_lost_and_nothing_is_ever_won_by_it(won):
    """So that the capital stays an e-process; and fractions that stay close to the others lose nothing."""
    process = process_of()
    process.settle(bet(), won)
    exact = written_out(SHARES, STEADY, won)
    assert process.evidence() <= exact + 1e-9 * (1.0 + abs(exact))
    assert process.evidence() >= np.log(SHARES[-1]) - 1e-9, "nothing is staked there"


def test_a_share_that_lost_everything_stays_at_nothing():
    process = process_of(np.array([0.5, 0.5]), SHARES)
    all_of_it = bet(1.0, np.array([1.0, 0.0]))
    process.settle(all_of_it, np.array([3.0, -1.0]))
    assert process.capital.tolist() == [0.0, 0.5, 0.0]
    process.settle(all_of_it, np.full(50, 1e90))
    assert process.evidence() == np.log(0.5)


def test_what_is_won_is_cut_at_both_ends():
    """No outcome loses more than all, by rounding; and one that wins very much does not overflow."""
    for ratio, worth in ((-1.0 - 1e-12, -1.0), (-7.0, -1.0), (MOST_WON, MOST_WON), (1e300, MOST_WON), (0.3, 0.3)):
        capital = np.append(SHARES, 0.0)
        staked(capital, STEADY, ratio)
        assert capital[:-1] == pytest.approx(SHARES * (1.0 + STEADY * worth))
    process = process_of()
    process.settle(bet(), np.full(100, 1e300))
    assert process.evidence() == pytest.approx(written_out(SHARES, STEADY, np.full(100, MOST_WON)))


@given(outcomes.filter(len), some.floats(-0.9, 5.0), some.floats(-0.9, 5.0), some.data())
def test_an_outcome_may_be_replaced_by_another(won, before, after, data):
    """As if it had been worth that in the first place, wherever it came."""
    at = data.draw(some.integers(0, len(won)))
    capital, expected = np.append(SHARES, 0.0), np.append(SHARES, 0.0)
    for evidence, worth in ((capital, before), (expected, after)):
        settle_path(evidence, STEADY, np.insert(won, at, worth), 1.0, math.inf, False)
    replaced(capital, STEADY, before, after)
    assert capital[:-1] * math.exp(capital[-1] - expected[-1]) == pytest.approx(expected[:-1], rel=1e-9)
    replaced(capital, STEADY, after, after)
    assert capital[:-1] * math.exp(capital[-1] - expected[-1]) == pytest.approx(expected[:-1], rel=1e-9)


# ---------------------------------------------------------------- many at once, and pauses


@given(outcomes, some.floats(-3.0, 6.0))
def test_a_path_is_settled_as_one_by_one_and_tells_where_it_crosses(won, level):
    one_by_one, evidence = np.append(SHARES, 0.0), []
    for x in won:
        evidence.append(settle_path(one_by_one, STEADY, np.array([x]), 2.0, math.inf, False)[1])
    crossing = next((i for i, value in enumerate(evidence) if value >= level), len(won))
    at_once = np.append(SHARES, 0.0)
    assert settle_path(at_once, STEADY, won, 2.0, level, False) == (
        len(won),
        max(evidence, default=-math.inf),
        crossing,
    )
    assert (at_once == one_by_one).all()
    stopped, until = np.append(SHARES, 0.0), min(crossing + 1, len(won))
    found = settle_path(stopped, STEADY, won, 2.0, level, True)
    assert found == (until, max(evidence[:until], default=-math.inf), crossing)
    again = np.append(SHARES, 0.0)
    settle_path(again, STEADY, won[:until], 2.0, math.inf, False)
    assert (stopped == again).all()


@given(outcomes, some.floats(-3.0, 6.0))
def test_how_far_it_is_to_a_level_is_told_without_settling(won, level):
    process = process_of()
    until = process.reach(bet(2.0), won, level)
    assert process.count == 0
    assert (process.capital == np.append(SHARES, 0.0)).all()
    largest, crossed = process.settle(bet(2.0), won, level)
    assert until == min(crossed + 1, len(won))
    assert (largest >= level) == (crossed < len(won))


@given(outcomes, some.data())
def test_pauses_change_no_bit(won, data):
    cuts = data.draw(some.lists(some.integers(0, len(won)), max_size=6))
    whole, parts = settled_in(process_of(), bet(), won, []), settled_in(process_of(), bet(), won, cuts)
    assert (whole.capital == parts.capital).all()
    assert len(parts.segments) == min(len(won), 1)
    for along in (False, True):
        for R in (-0.5, 0.0, 1.0):
            assert whole.settled(False, along=along).log_capital(R) == parts.settled(False, along=along).log_capital(R)
    for name, value in whole.state().items():
        assert np.array_equal(value, parts.state()[name]), name


def test_segments_grow_in_place_and_keep_a_copy():
    won = np.arange(5.0)
    segment = BetSegment(bet(), won)
    won[:] = -1.0
    for i in range(5, 300):
        segment.add(np.array([float(i)]))
    assert segment.won.tolist() == list(map(float, range(300)))
    assert len(segment) == 300


def test_outcomes_settled_in_place_are_kept():
    """As compiled code does it."""
    first, second, won = process_of(), process_of(), np.array([0.4, -0.2, 3.0])
    first.settle(bet(), won)
    settle_path(second.capital, STEADY, won, 1.0, math.inf, False)
    second.keep(bet(), won)
    second.keep(bet(), won[:0])
    assert all(np.array_equal(value, second.state()[name]) for name, value in first.state().items())


# ---------------------------------------------------------------- other thresholds


@given(some.lists(outcomes, max_size=4), some.floats(-0.4, 3.0))
def test_many_segments_against_any_threshold(parts, R):
    """Each with its room and its fractions, from a formula."""
    process, expected, bets = process_of(), np.log(SHARES), []
    for i, won in enumerate(parts):
        bets.append(bet(0.5 + i, STEADY / (i + 1), STEADY[::-1] / (i + 2)))
        process.settle(bets[-1], won)
        ratios = np.maximum((won - R) / (0.5 + i + R), -1.0)
        expected = expected + np.log1p(np.outer(ratios, bets[-1].wide)).sum(axis=0)
    settled = process.settled(as_staked=False)
    assert settled.log_capital(R) == pytest.approx(np.logaddexp.reduce(expected), abs=1e-9)
    assert settled.largest() == max((won.max() for won in parts if len(won)), default=-math.inf)
    assert process.settled(True, along=True).log_capital(0.0) >= process.evidence() - 1e-12


def test_the_largest_evidence_is_that_of_every_prefix():
    won = np.random.default_rng(0).normal(0.1, 1.0, size=90).clip(-1.0, None)
    for R in (-0.3, 0.0, 0.2):
        prefixes = []
        for n in range(len(won) + 1):
            process = process_of()
            process.settle(bet(), won[:n])
            prefixes.append(process.settled(True).log_capital(R))
        assert process.settled(True, along=True).log_capital(R) == pytest.approx(max(prefixes), abs=1e-12)


@each("gains", [[1e9], [1e15], [1e60], [1e100], [1e6] * 15 + [1e100], [1e100] + [1e6] * 15])
@each("lost", [0, 40])
def test_no_threshold_is_so_close_to_the_worst_value_that_the_capital_overflows(gains, lost):
    """Very large gains, and losses after them: the logarithm of the capital stays that of the product."""
    ratios = np.concatenate([np.tile(gains, 40), np.full(lost, -1.0)])
    settled = Settled(ratios, np.array([1.0]), np.array([len(ratios)]), STEADY, SHARES)
    assert settled.log_capital(0.0) == pytest.approx(written_out(SHARES, STEADY, ratios), rel=1e-12)


# ---------------------------------------------------------------- the end of the range


def test_at_the_end_of_the_range_one_outcome_beyond_it_is_certain():
    process = EProcess(SHARES, SHARES, rounding=1e-9)
    assert process.settle(bet(0.0), np.array([0.0, 1e-10]), 3.0) == (-math.inf, 2)
    assert process.reach(bet(0.0), np.array([0.0, 0.0]), 3.0) == 2
    assert not process.certain
    assert process.evidence() == pytest.approx(0.0)
    assert process.reach(bet(0.0), np.array([0.0, 0.2, 0.3]), 3.0) == 2
    assert process.settle(bet(0.0), np.array([0.0, 0.2, 0.3]), 3.0) == (math.inf, 1)
    assert process.evidence() == process.evidence(bet(), -1.0) == math.inf
    process.settle(bet(0.0), np.array([0.0]))
    assert process.certain
    assert process.count == 0, "nothing was staked"


def test_without_a_bound_nothing_is_staked():
    process = process_of()
    assert process.settle(bet(math.inf), np.array([5.0, -5.0]), 0.1) == (-math.inf, 2)
    assert process.reach(bet(math.inf), np.array([5.0, -5.0]), 0.1) == 2
    assert (process.count, process.certain, process.evidence()) == (0, False, pytest.approx(0.0))


# ---------------------------------------------------------------- keeping


def filled(seed=0, sizes=(3, 1, 40)):
    """A process on several segments."""
    rng, process = np.random.default_rng(seed), process_of()
    for i, size in enumerate(sizes):
        process.settle(bet(1.0 + i, STEADY / (i + 1)), rng.exponential(size=size) - 1.0)
    return process


@each("process", [process_of(), filled(), filled(1, (5000,))])
def test_a_restored_process_is_the_same_to_the_bit_and_goes_on_alike(process):
    again = process_of()
    again.restore(process.state())
    for one in (process, again):
        one.settle(bet(7.0), np.array([0.3, -2.0]))
    for name, value in process.state().items():
        assert np.array_equal(value, again.state()[name]), name
    for as_staked in (True, False):
        assert process.settled(as_staked).log_capital(0.3) == again.settled(as_staked).log_capital(0.3)


def test_a_kept_state_is_a_copy():
    process = filled()
    state = process.state()
    process.settle(bet(), np.ones(3))
    assert (state["capital"] != process.capital).any()
    assert len(state["won"]) == 44


def changed(name, change):
    def tamper(state):
        state[name] = change(state[name].copy())

    return tamper


def put(at, value):
    def change(array):
        array[at] = value
        return array

    return change


REFUSED = {
    "capital, one share": changed("capital", lambda kept: kept * np.array([1 + 1e-6, 1, 1, 1, 1])),
    "capital, the common factor": changed("capital", put(-1, 0.1)),
    "capital, nothing": changed("capital", lambda kept: 0.0 * kept),
    "capital, below 0": changed("capital", put(3, -0.1)),
    "capital, not a number": changed("capital", put(0, math.nan)),
    "capital, infinite": changed("capital", put(0, math.inf)),
    "capital, another length": changed("capital", lambda kept: kept[1:]),
    "an outcome": changed("won", put(2, 5.0)),
    "an outcome, not a number": changed("won", put(2, math.nan)),
    "an outcome, infinite": changed("won", put(2, math.inf)),
    "an outcome less": changed("won", lambda won: won[:-1]),
    "an outcome more": changed("won", lambda won: np.append(won, 0.0)),
    "no outcomes": changed("won", lambda won: won[:0]),
    "a length": changed("lengths", put(0, 4.0)),
    "lengths moved": changed("lengths", lambda lengths: lengths[::-1]),
    "a length of 0": changed("lengths", lambda lengths: lengths * np.array([0, 1, 1]) + np.array([0, 3, 0])),
    "a length below 0": changed("lengths", lambda lengths: lengths + np.array([-4, 4, 0])),
    "a segment less": changed("lengths", lambda lengths: np.append(lengths[:1], lengths[1:].sum())),
    "a fraction": changed("bets", put((1, 1), 0.11)),
    "a fraction of 1": changed("bets", put((0, 1), 1.0)),
    "a fraction below 0": changed("bets", put((0, 1), -1e-3)),
    "a fraction, not a number": changed("bets", put((0, 1), math.nan)),
    "a fraction of intervals": changed("bets", put((0, -1), 1.5)),
    "a room": changed("bets", put((2, 0), 2.0)),
    "a room of 0": changed("bets", put((2, 0), 0.0)),
    "a room, infinite": changed("bets", put((2, 0), math.inf)),
    "a room, not a number": changed("bets", put((2, 0), math.nan)),
    "bets that are too short": changed("bets", lambda bets: bets[:, :-1]),
    "a bet less": changed("bets", lambda bets: bets[:-1]),
    "no capital": lambda state: state.pop("capital"),
}


@each("name", REFUSED)
def test_a_state_that_was_changed_is_refused(name):
    process, before = filled(), filled(3)
    state = process.state()
    process_of().restore({**state})
    REFUSED[name](state)
    expected = {part: value.copy() for part, value in before.state().items()}
    with pytest.raises((ValueError, KeyError, IndexError)):
        before.restore(state)
    assert all(np.array_equal(value, before.state()[part]) for part, value in expected.items()), "half restored"


@each("room", [0.0, -1.0, math.inf, math.nan])
def test_outcomes_without_a_bet_are_refused(room):
    """Even with the capital that they leave, which is that of the beginning: they were never settled."""
    process = process_of()
    process.settle(bet(), np.array([0.5, -0.2]))
    state = process.state()
    state["capital"], state["bets"][0, 0] = np.append(SHARES, 0.0), room
    with pytest.raises(ValueError, match="outcomes"):
        process_of().restore(state)


def test_rounding_of_another_processor_is_accepted():
    state = filled().state()
    state["capital"][:-1] *= 1.0 + 0.1 * AGREES
    process_of().restore(state)


def test_a_share_without_hope_may_have_been_lost_on_one_machine_only():
    """Its capital is below 1e-260 of the whole: kept, or 0."""
    process = process_of(np.array([0.5, 0.5]), SHARES)
    won = np.concatenate([np.full(490, -0.9), np.full(5, 0.1)])
    process.settle(bet(1.0, np.array([0.8, 0.0])), won)
    state = process.state()
    hopeless = state["capital"][0]
    assert 0.0 < hopeless < 1e-260
    for kept in (0.0, hopeless, 1e-280):
        state["capital"][0] = kept
        process_of(np.array([0.5, 0.5]), SHARES).restore(state)
    state["capital"][0] = 1e-100
    with pytest.raises(ValueError, match="capital"):
        process_of(np.array([0.5, 0.5]), SHARES).restore(state)


def test_certainty_is_kept():
    process, again = process_of(), process_of()
    process.settle(bet(0.0), np.array([1.0]))
    again.restore(process.state())
    assert again.evidence() == math.inf


@each("name", ALL)
def test_bets_are_kept_as_rows(name):
    shares = np.exp(ALL[name].log_weights)
    fractions = RESERVE[: len(shares)] if len(shares) <= len(RESERVE) else np.linspace(0.0, 0.9, len(shares))
    process = EProcess(shares, SHARES)
    bets = [Bet(2.0 + i, fractions / (i + 1), STEADY) for i in range(3)]
    again = process.of_rows(process.as_rows(bets))
    assert all(one.same_as(two) and (one.wide == two.wide).all() for one, two in zip(bets, again, strict=True))
    assert process.of_rows(process.as_rows([])) == []


# ---------------------------------------------------------------- both sides


def two_sided(won=()):
    process = TwoSided(ON_RETURNS, ENDS)
    for sign, side in ((1.0, process.above), (-1.0, process.below)):
        assert process[sign] is side
        fractions = ON_RETURNS.fractions(0.3, 0.1, 5.0), ENDS.fractions(0.3, 5.0)
        if len(won):
            side.settle(Bet(1.0, *fractions), sign * np.array(won))
    return process


def test_the_two_sides_are_each_others_mirror_image():
    won = np.random.default_rng(0).uniform(-1.0, 1.0, size=200)
    process, mirrored = two_sided(won), two_sided(-won)
    assert process.evidence() == tuple(reversed(mirrored.evidence()))
    assert process.count == 400
    for as_staked in (True, False):
        low, high = process.not_refuted((-0.7, 1.3), 0.3, 3.0, as_staked)
        assert mirrored.not_refuted((-1.3, 0.7), -0.3, 3.0, as_staked) == pytest.approx((-high, -low), abs=1e-11)
        assert -0.7 <= low < high <= 1.3


def test_both_sides_are_restored_together():
    process, again = two_sided([0.3, -0.4, 0.9]), two_sided()
    state = process.state()
    assert all(re.match(r"(above|below)\.", name) for name in state)
    again.restore(state)
    for name, value in process.state().items():
        assert np.array_equal(value, again.state()[name]), name
    swapped = {name: state[f"{'below' if name[0] == 'a' else 'above'}{name[5:]}"] for name in state}
    assert again.evidence() == process.evidence() != TwoSided(ON_RETURNS).evidence()
    again.restore(swapped)
    assert again.evidence() == tuple(reversed(process.evidence()))


def test_the_fractions_of_intervals_are_their_own():
    """The two grids may have different lengths."""
    process = TwoSided(ON_RETURNS, ENDS_OF_LOGS)
    steady = Bet(1.0, ON_RETURNS.fractions(None, 0.0, 0.0), ENDS_OF_LOGS.steady)
    won = np.random.default_rng(1).uniform(-0.8, 1.0, size=50)
    process.above.settle(steady, won)
    for as_staked, strategy, f in ((True, ON_RETURNS, steady.fractions), (False, ENDS_OF_LOGS, steady.wide)):
        found = process.above.settled(as_staked).log_capital(0.1)
        shares = np.exp(strategy.log_weights)
        assert found == pytest.approx(written_out(shares, f, (won - 0.1) / 1.1), abs=1e-10)


def test_the_level_of_compiled_code_is_a_little_higher():
    for level in (0.0, 3.0, 1e5, -2.0):
        assert level < with_rounding_margin(level) <= level + 2e-12 * (1.0 + abs(level))
    assert with_rounding_margin(math.inf) == math.inf
