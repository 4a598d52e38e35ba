"""Recorded trials, matched: which belong together, in which order, and that bets on them are fair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import policytest as pt
from policytest.data.trials import NOT_BY_THE_PARTNER, MatchedTrials
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.recorded_trials import RecordedTrials, TrialRounds
from policytest.questions.trials import TrialBetting


def log(outcomes, return_range=(0, 1), **labels):
    return pt.LoggedEpisodes(None, outcomes, return_range=return_range, **labels)


def matched(*logs, **settings):
    return MatchedTrials.of(logs, **settings)


def test_without_labels_the_kth_trials_belong_together_and_the_surplus_waits():
    found = matched(log([1, 0, 1, 1], agent="new"), log([0, 0, 1]))
    assert found.outcomes.tolist() == [1, 0, 0]
    assert found.waiting == (1, 0)
    assert found.rivals == ("new", "policy B")
    assert found.bounds == (-1, 1)
    assert NOT_BY_THE_PARTNER not in found.assumptions


def test_with_labels_pairs_come_in_the_order_in_which_they_were_complete():
    a = log([1, 0.5, 0], pair=["x", "y", "z"], order=[0, 2, 4])
    b = log([0, 1, 1, 0], pair=["z", "y", "w", "x"], order=[1, 3, 5, 7])
    found = matched(a, b)
    assert found.outcomes.tolist() == [-0.5, 0, 1]  # y is complete at 3, z at 4, x at 7
    assert found.waiting == (0, 1)
    assert NOT_BY_THE_PARTNER in found.assumptions


def test_a_round_has_the_kth_pair_of_each_task():
    a = log([1, 0, 1, 1, 0], task=["u", "u", "v", "v", "u"])
    b = log([0, 0, 0, 1], task=["v", "u", "u", "v"])
    found = matched(a, b)
    assert found.tasks == ("u", "v")
    assert (found.outcomes.tolist(), found.rounds) == ([1, 1, 0, 0], 2)
    assert found.of_task(1).outcomes.tolist() == [1, 0]
    assert "success rate in its task" in found.assumptions[0]


def test_a_ratio_compares_with_the_mean_of_the_next_ones():
    found = matched(log([1, 0, 1]), log([1, 0, 0, 0, 1, 1, 1]), ratio=(1, 2))
    assert found.outcomes.tolist() == [0.5, 0, 0]
    assert found.waiting == (0, 1)
    assert found.steps.tolist() == [3, 3, 3]
    with pytest.raises(pt.InputError, match="ratio is for trials without labels"):
        matched(log([1], pair=[1]), log([1], pair=[1]), ratio=(1, 2))


def test_rows_of_an_episode_are_one_trial():
    a = pt.LoggedEpisodes([1, 1, 2], [0.5, 0.25, 1], return_range=(0, 1), task=["u", "u", "v"])
    assert a.task.tolist() == ["u", "v"]
    assert matched(a).outcomes.tolist() == [0.75, 1]
    with pytest.raises(pt.InputError, match=r"task of episode 1 is 'u' in one row and 'v' in another"):
        pt.LoggedEpisodes([1, 1], [0.5, 0.25], return_range=(0, 1), task=["u", "v"])


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        ({"pair": [1, 2]}, {}, r"log 1 has pair and log 2 has not; pass pair for all, or none"),
        ({"pair": [1, 1]}, {"pair": [1, 2]}, r"log 1 has 2 trials with the pair 1; label each trial"),
        ({"pair": [1, 2]}, {"pair": [3, 4]}, r"no pair is in all logs .*; leave pair out"),
        ({"task": ["u", "u"]}, {"task": ["u", "v"]}, r"log 1 has no trial of 1 task that others have \('v'\)"),
        ({"order": [1, 2]}, {}, "log 1 has order and log 2 has not"),
        ({"order": [2, 1]}, {"order": [1, 2]}, r"order\[1\] is less than order\[0\]"),
        ({"task": ["u"]}, {}, r"task has shape \(1,\), expected \(2,\)"),
        ({"task": ["u", None]}, {}, r"task\[1\] is missing"),
    ],
)
def test_what_does_not_match_is_refused(a, b, message):
    with pytest.raises(pt.InputError, match=message):
        matched(log([1, 0], **a), log([0, 1], **b))


# ---------------------------------------------------------------- fairness, by enumeration


def expected_capital(rates_a, rates_b, rounds, named, budget=None):
    """The mean capital against V_A <= V_B over all outcomes of two agents, with these success rates in each task."""
    tasks, total = len(rates_a), 0.0
    kinds = []
    for a, b in zip(rates_a, rates_b, strict=True):
        kinds.append([(1.0, a * (1 - b)), (0.0, a * b + (1 - a) * (1 - b)), (-1.0, b * (1 - a))])
    for drawn in itertools.product(*(kinds * rounds)):
        D, chance = np.array([one for one, _ in drawn]), math.prod(share for _, share in drawn)
        first, second = (D > 0).astype(float), (D < 0).astype(float)
        labels = {"task": np.tile(np.arange(tasks), rounds)} if named else {}
        trials = matched(log(first, **labels), log(second, **labels))
        run = ReturnsRun(TrialBetting(("A", "B"), False, tasks), trials, 0.0, RecordedTrials(trials))
        if budget is not None:
            run.aim_at(budget, pairs=True)
        run.begin(3.0)
        run.step(math.inf, 10**9)
        total += chance * math.exp(run.evidence()[0])
    return total


@pytest.mark.parametrize("budget", [None, 6])
def test_capital_after_rounds_is_fair_for_the_mean_over_tasks(budget):
    assert expected_capital([0.9, 0.2], [0.2, 0.9], 2, named=True, budget=budget) <= 1 + 1e-9
    assert expected_capital([0.5, 0.5], [0.5, 0.5], 2, named=True, budget=budget) == pytest.approx(1, abs=1e-9)


def test_tasks_that_are_not_named_are_not_fair():
    """The control: the same trials, one task after the other, looked at after each pair."""
    assert expected_capital([0.9, 0.9], [0.2, 0.2], 1, named=False) > 1.2  # those of which A is better come first
    assert expected_capital([0.9, 0.9, 0.2, 0.2], [0.2, 0.2, 0.9, 0.9], 1, named=True) <= 1 + 1e-9


# ---------------------------------------------------------------- several agents


def test_rounds_of_agents_wait_for_all_of_their_trials():
    logs = [log([1, 1, 0], task=["u", "v", "u"]), log([0, 1], task=["v", "u"]), log([1, 0, 0, 1], task=list("uvuv"))]
    supply = TrialRounds(logs)
    assert (supply.tasks, supply.bounds) == (2, [(0, 1)] * 3)
    assert supply.take((0, 1, 2), 10).returns.tolist() == [[1, 1], [1, 0], [1, 0]]
    assert supply.take((0, 2), 10) is None  # the first agent has no second trial of v
    assert supply.exhausted


def test_rounds_of_agents_with_labels_have_those_of_all():
    labels = [[1, 2, 3], [3, 1], [1, 3, 4]]
    supply = TrialRounds([log(np.array(own) / 10, pair=own) for own in labels])
    rounds = [supply.take((0, 1, 2), 10).by_agent.ravel().tolist() for _ in range(2)]
    assert rounds == [[0.1] * 3, [0.3] * 3]
    assert supply.take((0, 1, 2), 10) is None
