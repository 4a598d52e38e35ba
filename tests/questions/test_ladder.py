"""A ladder of assumptions on one log: hidden states refute the Markov table, and a Markov process hardly ever is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy import stats

import policytest as pt
from policytest.plots import ladder as draw_ladder
from policytest.report import render
from policytest.results.ladder import AssumptionLadder, Rung
from policytest.results.load import parse

GAMMA = 0.9
TASK = pt.Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], GAMMA, terminal=[1])


def visits(rng, episodes, leave):
    """Visitors who leave with a probability of their own, which the state does not show; reward 1 for each step."""
    rows = []
    for one in range(episodes):
        gone, leaves = 0, rng.choice(leave)
        while not gone:
            gone = int(rng.random() < leaves)
            rows.append((one, gone))
    one, x = (np.array(column) for column in zip(*rows, strict=True))
    return pt.Transitions(0 * x, 0 * x, x), one


def both(data, one, discount=GAMMA, **weights):
    return data, pt.LoggedEpisodes(one, np.ones(len(one)), discount=discount, reward_range=(0, 1), **weights)


def test_hidden_states_refute_the_table():
    """Half leave with 0.9, half with 0.05: V = 4.00; the table has 0.095 for all, and V = 5.40, too high by 35%."""
    data, log = both(*visits(np.random.default_rng(1), 300, (0.9, 0.05)))
    data = data.counts(TASK, len(data))
    with pytest.warns(
        pt.AssumptionWarning, match="the Markov model is refuted: by independent episodes alone the value"
    ):
        verdict = pt.assess(TASK, data, 4.5, episodes=log)
    plain = pt.assess(TASK, data, 4.5)
    assert (plain.answer, plain.certified) == ("above", True)  # what the table alone says, with certainty, and wrongly
    assert (verdict.answer, verdict.certified, verdict.ladder.refuted) == ("above", False, True)
    table, episodes = verdict.ladder.rungs
    assert table.interval[0] > episodes.interval[1]
    assert (table.assumption, episodes.assumption, episodes.episodes) == ("markov", "episodes", 300)
    truth = 0.5 * (1 / (1 - GAMMA * 0.1) + 1 / (1 - GAMMA * 0.95))
    assert episodes.interval[0] <= truth <= episodes.interval[1]
    assert "the data refute the Markov model: no guarantee holds" in str(verdict)
    assert "The Markov model is refuted" in str(verdict)
    saved = parse(verdict.to_json(), "verdict.json")
    assert saved.ladder.data() == verdict.ladder.data() == json.loads(verdict.to_json())["ladder"]
    page = render(verdict)
    assert "What each assumption gives" in page
    assert "no guarantee" in page
    assert draw_ladder(verdict.ladder).get_yticklabels()[1].get_text() == "independent episodes"


def refutations(leave, runs, episodes=40):
    rng, found = np.random.default_rng(8), 0
    for _ in range(runs):
        data, log = both(*visits(rng, episodes, leave))
        table = pt.value_interval(TASK, data.counts(TASK, len(data)), 0.05)
        found += _refuted(table, pt.value_interval(log, delta=0.05))
    return found


def _refuted(table, episodes):
    rungs = (
        Rung("markov", (table.lower, table.upper), None, 1),
        Rung("episodes", (episodes.lower, episodes.upper), None, 1),
    )
    return AssumptionLadder(rungs, 0.0, 0.1).refuted


def test_a_markov_process_is_hardly_ever_refuted():
    """At delta = 0.1; small, the full size is benchmarks/ladder.py. Hidden states are refuted more often than that."""
    assert refutations((0.13,), 60) <= stats.binom.ppf(1 - 1e-6, 60, 0.1)
    assert refutations((0.9, 0.05), 20, episodes=300) > stats.binom.ppf(1 - 1e-6, 20, 0.1)


def test_rows_in_their_order_refute_the_table_too():
    data, log = both(*visits(np.random.default_rng(1), 250, (0.9, 0.05)))
    with pytest.warns(pt.AssumptionWarning, match="the Markov model is refuted"):
        verdict = pt.assess(TASK, data, 4.5, episodes=log)
    assert (verdict.ladder.refuted, verdict.certified) == (True, False)


def test_propensities_are_a_rung_too_and_a_process_without_hidden_states_is_quiet():
    data, one = visits(np.random.default_rng(3), 80, (0.3,))
    _, log = both(data, one, propensity=np.full(len(one), 0.5), target=np.full(len(one), 0.5))
    verdict = pt.assess(TASK, data, 2.0, episodes=log)
    assert [rung.assumption for rung in verdict.ladder.rungs] == ["markov", "propensities"]
    assert not verdict.ladder.refuted
    assert (verdict.answer, verdict.certified, verdict.ladder.words) == ("above", True, "")


def test_an_empty_interval_refutes_its_own_rung():
    whole, empty = Rung("markov", (1.0, 2.0), None, 10), Rung("episodes", (3.0, 2.5), None, 10, 5)
    ladder = AssumptionLadder((whole, empty), 1.0, 0.05)
    assert (ladder.refuted, ladder.notes) == (False, ("The data refute the assumptions of independent episodes.",))
    ladder = AssumptionLadder(
        (Rung("markov", (2.0, 1.0), None, 10), Rung("episodes", (0.0, 3.0), None, 10, 5)), 1.0, 0.05
    )
    assert ladder.refuted
    assert "no value agrees with what a Markov table makes of the log" in ladder.words


def test_episodes_of_another_value_are_refused():
    data, one = visits(np.random.default_rng(3), 20, (0.3,))
    _, other = both(data, one, discount=0.8)
    with pytest.raises(pt.InputError, match=r"episodes has the discount 0.8, and the task 0.9; pass the same discount"):
        pt.assess(TASK, data, 1.0, episodes=other)
    endless = pt.Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], GAMMA)
    with pytest.raises(pt.InputError, match="those of this task never end"):
        pt.assess(endless, data, 1.0, episodes=both(data, one)[1])


def test_episodes_that_another_policy_made_are_refused():
    """Half of the steps are of an action that the task's policy never takes."""
    stay = pt.Task([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0]] * 2, [1.0, 0.0], GAMMA, terminal=[1])
    found, one = visits(np.random.default_rng(3), 80, (0.3,))
    data = pt.Transitions(found.s, np.arange(len(found)) % 2, found.x)
    reward = 1.0 - data.a
    about = {"discount": GAMMA, "reward_range": (0, 1)}
    whole = pt.LoggedEpisodes(one, reward, **about)
    for seen in (data, data.counts(stay, len(data))):
        with pytest.raises(pt.InputError, match="the action is one that the policy of the task never takes, so some"):
            pt.assess(stay, seen, 1.0, episodes=whole)
    target = {"propensity": np.full(len(one), 0.5), "target": reward}
    weighed = pt.assess(stay, data, 1.0, episodes=pt.LoggedEpisodes(one, reward, **target, **about))
    assert weighed.ladder.rungs[1].assumption == "propensities"
    own = np.flatnonzero(one < 10)  # its own episodes in the same log, say
    part = pt.LoggedEpisodes(one[own], reward[own], **about)
    assert pt.assess(stay, data, 1.0, episodes=part).ladder is not None


def test_wrong_propensities_refute_themselves_not_the_table():
    data, one = visits(np.random.default_rng(3), 80, (0.3,))
    _, log = both(data, one, propensity=np.full(len(one), 0.5), target=np.full(len(one), 0.7))
    with pytest.warns(pt.AssumptionWarning, match="the weights target/propensity of episodes average"):
        verdict = pt.assess(TASK, data.counts(TASK, len(data)), 2.0, episodes=log)
    assert (verdict.ladder.refuted, verdict.ladder.rungs[1].empty) == (False, True)
    assert "The data refute the assumptions of episodes with propensities." in verdict.ladder.notes
