"""The capital is an e-process: its mean, and the chance that it is ever large, over all paths of a game.

Outcomes take two values and have their mean at the threshold, the worst laws in the hypothesis; strategies are fitted
to the past all along. No number here is simulated.
"""

from __future__ import annotations

import numpy as np
import pytest

from fair_games import ALL, LAWS, Law, breaks_ville, game
from policytest.eprocess.strategies import ENDS, ENDS_OF_LOGS

DEPTH = 8
EXACT = 1e-12


def mean_capital(found, evidence):
    return sum(path.chance * np.exp(value) for path, value in zip(found, evidence, strict=True))


@pytest.mark.parametrize("name", ALL)
def test_the_mean_of_the_capital_is_one_and_it_is_seldom_ever_large(name):
    """With the mean at the threshold nothing is lost but what the shares leave; below it the capital shrinks."""
    strategy = ALL[name]
    shared_out = np.exp(strategy.log_weights).sum()
    assert shared_out <= 1.0 + EXACT
    for law in LAWS:
        found = game(strategy, law, DEPTH)
        assert sum(path.chance for path in found) == pytest.approx(1.0)
        mean = mean_capital(found, [path.process.evidence() for path in found])
        assert mean == pytest.approx(shared_out, abs=EXACT)
        assert not breaks_ville([path.chance for path in found], [path.peak for path in found])
        lower = game(strategy, law._replace(mean=0.5 * law.worst), DEPTH)
        assert mean_capital(lower, [path.process.evidence() for path in lower]) < shared_out


@pytest.mark.parametrize("name", ALL)
def test_fractions_that_know_the_outcome_break_both(name):
    """The control."""
    found = game(ALL[name], LAWS[0], DEPTH, peeks=True)
    assert mean_capital(found, [path.process.evidence() for path in found]) > 1.05
    assert breaks_ville([path.chance for path in found], [path.peak for path in found])


@pytest.mark.parametrize("wide", [ENDS, ENDS_OF_LOGS], ids=["ends", "ends of logs"])
def test_the_same_bets_are_fair_against_every_other_threshold(wide):
    """Fractions of intervals, and as staked: chosen from the past, which knows no threshold."""
    strategy = ALL["returns"]
    for law in LAWS:
        for R in (0.9 * law.worst, 0.3 * law.worst, 0.7 * law.best):
            found = game(strategy, law._replace(mean=R), DEPTH, wide)
            chances = [path.chance for path in found]
            for as_staked, grid in ((True, strategy), (False, wide)):
                after = [path.process.settled(as_staked).log_capital(R) for path in found]
                assert mean_capital(found, after) == pytest.approx(np.exp(grid.log_weights).sum(), abs=EXACT)
                ever = [path.process.settled(as_staked, along=True).log_capital(R) for path in found]
                assert (np.array(ever) >= np.array(after)).all()
                assert not breaks_ville(chances, ever)
                assert mean_capital(found, ever) > 1.02, "the largest capital so far is no e-value"


def test_other_thresholds_with_fractions_that_know_the_outcome():
    """The control."""
    law = LAWS[0]
    found = game(ALL["returns"], law._replace(mean=0.3 * law.worst), DEPTH, peeks=True)
    for as_staked in (True, False):
        after = [path.process.settled(as_staked).log_capital(0.3 * law.worst) for path in found]
        assert mean_capital(found, after) > 1.05


def test_outcomes_below_their_bound_break_both():
    """The control: what loses more than the room is settled as if it had lost the room."""
    for law in (Law(-2.0, 0.25), Law(-25.0, 0.5)):
        found = game(ALL["returns"], law, DEPTH)
        assert mean_capital(found, [path.process.evidence() for path in found]) > 1.05
        assert breaks_ville([path.chance for path in found], [path.peak for path in found])


def test_at_the_tested_threshold_the_settled_outcomes_have_the_capital_of_the_test():
    for name, strategy in ALL.items():
        for path in game(strategy, LAWS[1], 4):
            settled = path.process.settled(as_staked=True)
            assert settled.log_capital(0.0) == pytest.approx(path.process.evidence(), abs=1e-13), name
            along = path.process.settled(as_staked=True, along=True)
            before_any = np.log(path.process.shares.sum())
            assert along.log_capital(0.0) == pytest.approx(max(path.peak, before_any), abs=1e-13)
            assert settled.largest() == path.process.settled(False).won.max()


def test_one_more_outcome_is_settled_at_its_worst():
    """What is not over yet counts as its worst: the evidence is that after such an outcome."""
    bet_on = {name: strategy.fractions(0.3, 0.1, 9.0) for name, strategy in ALL.items() if name != "ends"}
    for name, fractions in bet_on.items():
        path = game(ALL[name], LAWS[2], 3)[5]
        bet = path.process.segments[-1].bet._replace(fractions=fractions)
        for worst in (-0.3, 0.2, -5.0):
            ahead, seen = path.process.evidence(bet, worst), path.process.settled(True, bet, worst)
            assert ahead == pytest.approx(seen.log_capital(0.0), abs=1e-13)
            path.process.settle(bet, np.array([worst]))
            assert path.process.evidence() == pytest.approx(ahead, abs=1e-13)
