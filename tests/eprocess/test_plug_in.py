"""Plug-in processes against their formulas and, over all paths of a game, against what an e-process promises."""

from __future__ import annotations

import numpy as np
import pytest

from builders import each
from fair_games import Law, breaks_ville
from policytest.eprocess.plug_in import TUNED, PlugIn

KINDS = ("hoeffding", "bernstein")
EXACT = 1e-12


def written_out(kind, X, m):
    """[n + 1] the evidence after each outcome; what a bet depends on comes before it."""
    logs, past, mean, squares = [0.0], [], 0.5, 0.25
    for t, x in enumerate(X, start=1):
        if kind == "hoeffding":
            bet = min(np.sqrt(8 * TUNED / (t * np.log(t + 1))), 1)
            logs.append(logs[-1] + bet * (x - m) - bet**2 / 8)
        else:
            bet = min(np.sqrt(2 * TUNED / (squares * np.log(t + 1))), 0.5)
            logs.append(logs[-1] + bet * (x - m) - (x - mean) ** 2 * (-np.log(1 - bet) - bet))
        past.append(x)
        mean = (0.5 + sum(past)) / (t + 1)
        squares += (x - mean) ** 2
    return logs


@each("kind", KINDS)
@each("m", [0.05, 0.35, 0.9])
def test_they_are_one_bet_after_the_other(kind, m):
    X = np.random.default_rng(0).beta(2, 3, size=200)
    largest = np.maximum.accumulate(written_out(kind, X, m))
    found = [PlugIn(kind, X[:t], 0.0, 1.0).log_capital(m) for t in range(201)]
    assert np.allclose(found, largest, rtol=1e-9, atol=1e-9)


def plug_in_paths(kind, law, depth):
    """(probability, outcomes in [0, 1]) of every path."""
    for bits in np.ndindex(*[2] * depth):
        X = np.where(np.array(bits) == 1, law.best, law.worst)
        yield float(np.prod(np.where(np.array(bits) == 1, law.chance, 1.0 - law.chance))), X


@each("kind", KINDS)
@each("law", [Law(0.0, 1.0, 0.05), Law(0.0, 1.0, 0.5), Law(0.2, 0.5, 0.4), Law(0.0, 0.3, 0.2)])
def test_plug_in_processes_are_seldom_ever_large_and_never_look_ahead(kind, law):
    """By enumeration; the mean of the last capital is at most 1."""
    chances, ever, last = [], [], []
    for chance, X in plug_in_paths(kind, law, 9):
        process = PlugIn(kind, X, 0.0, 1.0)
        logs = np.cumsum(process.bet * (X - law.mean) - process.paid)
        chances.append(chance)
        last.append(logs[-1])
        ever.append(process.log_capital(law.mean))
        assert ever[-1] == pytest.approx(max(logs.max(), 0.0))
        other = PlugIn(kind, np.append(X[:5], 1.0 - X[5:]), 0.0, 1.0)
        assert (process.bet[:6] == other.bet[:6]).all(), "a bet depends on what comes after it"
    assert np.dot(chances, np.exp(last)) <= 1.0 + EXACT
    assert not breaks_ville(chances, ever)


@each("kind", KINDS)
def test_without_what_is_paid_for_noise_the_mean_is_above_one(kind):
    """The control."""
    law = Law(0.0, 1.0, 0.5)
    chances, unpaid = [], []
    for chance, X in plug_in_paths(kind, law, 9):
        chances.append(chance)
        unpaid.append(np.sum(PlugIn(kind, X, 0.0, 1.0).bet * (X - law.mean)))
    assert np.dot(chances, np.exp(unpaid)) > 1.05


def test_plug_in_processes_in_units_of_a_range():
    """Outcomes between low and low + span, and thresholds beyond the range."""
    X = np.random.default_rng(0).uniform(size=40)
    for kind in KINDS:
        plain, moved = PlugIn(kind, X, 0.0, 1.0), PlugIn(kind, 3.0 * X - 2.0, -2.0, 3.0)
        for m in (0.1, 0.5, 0.9):
            assert moved.log_capital(3.0 * m - 2.0) == pytest.approx(plain.log_capital(m), abs=1e-9)
        assert moved.log_capital(-50.0) == moved.log_capital(-2.0)
        assert moved.log_capital(50.0) == 0.0
        assert moved.largest() == pytest.approx(3.0 * X.max() - 2.0)
