"""Rounds of agents, from tables of outcomes whose means are known."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes
from policytest.payoffs.rounds import Round, RoundSupply
from policytest.questions.identify import elimination
from policytest.questions.identify.elimination import Elimination


class Rows(RoundSupply):
    """The rows of a table [n, K] of outcomes in [0, 1]; nan where an agent has none."""

    def __init__(self, table, bounds=None):
        self.table, self.at, self.asked = np.asarray(table, dtype=float), 0, []
        self.bounds = bounds or [(0.0, 1.0)] * self.table.shape[1]

    def take(self, agents, most):
        if self.at == len(self.table):
            self.exhausted = True
            return None
        self.asked.append(agents)
        found = np.full(self.table.shape[1], np.nan)
        found[list(agents)] = self.table[self.at, list(agents)]
        self.at += 1
        return Round.of(found)


def normal(means, n=1500, sd=0.15, seed=0):
    rng = np.random.default_rng(seed)
    return np.clip(np.array(means) + sd * rng.standard_normal((n, len(means))), 0.0, 1.0)


def coins(means, n, seed):
    return (np.random.default_rng(seed).random((n, len(means))) < means).astype(float)


def played(table, **settings):
    found = Elimination(Rows(table), **{"delta": 0.05, **settings})
    for _ in found.go(10**9):
        pass
    return found


def test_the_best_is_named_and_the_far_ones_leave_first():
    found = played(normal([0.35, 0.5, 0.55]))
    assert (found.left, found.answered, found.settled) == ([2], True, (2, 2))
    counts = found.counts
    assert counts[0] < 0.5 * counts[1]
    assert counts[1] == counts[2] == len(found.rounds)
    assert found.source.asked[-1] == (1, 2)
    assert found.samples_used == found.outcomes == counts.sum()


class Differences(EpisodeSupply):
    """What `compare` bets on."""

    def __init__(self, table):
        self.low, self.high, self.rest = -1.0, 1.0, table[:, 0] - table[:, 1]

    def take(self, most):
        if not len(self.rest):
            return NO_OUTCOMES
        first, self.rest = self.rest[:1], self.rest[1:]
        return Outcomes(first, first, first, np.array([2]))


@pytest.mark.parametrize("budget", [None, 120])
def test_two_agents_are_compared_as_compare_does(budget):
    for seed in range(6):
        table = normal([0.5, 0.56] if seed % 2 else [0.58, 0.5], 400, seed=seed)
        level, run = -math.log(0.05), ReturnsRun(None, elimination._MeanOutcome(), 0.0, Differences(table))
        if budget is not None:
            run.aim_at(budget, pairs=True)
        run.begin(level)
        while run.answer is None and not run.exhausted and len(run.source.rest):
            run.step(level, 10)
        found = played(table, budget=None if budget is None else 2 * budget)
        named = {"above": [0], "below": [1], None: [0, 1]}[run.answer]
        assert (found.left, len(found.rounds)) == (named, run.episodes)


def test_outcomes_may_be_missing():
    """A record that ends: its agent is not bet on any more, and neither thrown out nor named for that."""
    table = normal([0.3, 0.5, 0.55], 40)
    table[5:, 1] = np.nan
    found = played(table)
    assert found.left == [1, 2]
    assert not found.answered
    assert list(found.counts) == [found.counts[0], 5, 40]
    assert found.why_undecided("") == "the data do not settle it"


def test_ranges_alone_may_decide():
    found = Elimination(Rows(np.zeros((0, 3)), [(0, 1), (1, 2), (0.0, 0.5)]), 0.05)
    assert (found.left, found.answered, found.settled) == ([1], True, (2, 2))
    assert [standing.outcomes for standing in found.standings()] == [0, 0, 0]


def test_a_tie_ends_by_indifference():
    table = normal([0.5, 0.5, 0.4], seed=1)
    without, found = played(table), played(table, indifference=0.05)
    assert without.left == [0, 1]
    assert not without.answered
    assert found.answered
    assert found.left == [0, 1]
    assert len(found.rounds) < 300
    assert found.settled == (2, 2)


def test_intervals_hold_the_means():
    found = played(normal([0.35, 0.5, 0.55]))
    for mean, standing in zip([0.35, 0.5, 0.55], found.standings(), strict=True):
        assert standing.lower < mean < standing.upper
        assert standing.lower <= standing.value <= standing.upper


def test_a_budget_is_kept_and_what_is_left_over_serves_the_others():
    table = normal([0.2, 0.5, 0.52], seed=2)
    found = played(table, budget=300)
    assert 298 <= found.outcomes <= 300
    assert len(found.rounds) > 110  # it would be 100 if nobody had left
    assert found.why_undecided("") == "the budget of 300 episodes is used up"
    assert found.why_undecided("interrupted") == "interrupted"


# ---------------------------------------------------------------- errors

DELTA, RUNS, ROUNDS = 0.2, 40, 50
MEANS = [0.5, 0.5, 0.5, 0.45]


class ByOutcome(Rows):
    """Presence that depends on outcomes, which a supply must not have: the best ones are missing when they win."""

    def take(self, agents, most):
        found = super().take(agents, most)
        if found is not None:
            found.returns[:3][found.returns[:3] == 1] = np.nan
        return found


def thrown_out(supply):
    """In how many runs the first agent, which is one of the best, is thrown out; and in how many the last is named."""
    found = np.zeros(2, dtype=int)
    for seed in range(RUNS):
        search = Elimination(supply(coins(MEANS, ROUNDS, seed)), DELTA)
        for _ in search.go(10**9):
            pass
        found += 0 not in search.left, search.left == [3]
    return found


def test_a_best_agent_is_thrown_out_with_probability_delta_at_most():
    """Three tied best ones and a worse: any of the three may be named."""
    first, worse = thrown_out(Rows)
    assert worse <= first
    assert binom.sf(first - 1, RUNS, DELTA) > 1e-6


def test_presence_that_looks_at_outcomes_is_caught():
    """The control."""
    assert binom.sf(thrown_out(ByOutcome) - 1, RUNS, DELTA).max() < 1e-6
