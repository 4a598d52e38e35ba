"""`identify` of several `Episodes`: the best agent, and what the result says."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest

import policytest as pt
from builders import assert_refused
from episode_envs import vector
from policytest.results.load import from_data
from test_side_by_side import Luck, SeededOnce, lucky


class Gain:
    """An episode of one number: luck that all share, of most of the range, and a little of its own."""

    def __init__(self, mean):
        self.mean = mean

    def __call__(self, rng):
        return np.clip(self.mean + 0.8 * (rng.random() - 0.5) + 0.02 * (rng.random() < self.mean), 0.0, 1.0)


def gain(mean, **options):
    return pt.Episodes(Gain(mean), **{"return_range": (0, 1), **options})


THREE = [gain(0.4), gain(0.5), gain(0.55)]


def test_the_best_is_named_and_the_others_are_not_run_for_longer_than_needed():
    found = pt.identify(THREE, delta=0.05, names=["low", "middle", "high"])
    assert (found.policy, found.index, found.answered, found.certified) == ("high", 2, True, True)
    assert (found.settled, found.questions) == (2, 2)
    low, middle, high = found.agents
    assert low.episodes < 0.5 * middle.episodes
    assert middle.episodes == high.episodes
    assert [one.is_in for one in found.agents] == [False, False, True]
    assert found.samples == found.counts.episodes == sum(one.episodes for one in found.agents)
    assert found.values.tolist() == [one.value for one in found.agents]
    assert all(one.lower < one.value < one.upper for one in found.agents)
    assert "in rounds of episodes with the same seed" in found.method
    text = str(found)
    assert text.startswith("high is the best (certified)")
    assert "mean return" in text
    assert "episodes, out" in text


@pytest.mark.parametrize("budget", [None, 150])
def test_two_agents_get_the_answer_of_compare(budget):
    for seed in range(4):
        a, b = THREE[1:] if seed % 2 else THREE[:0:-1]
        verdict = pt.compare(a, b, rng=seed, budget=budget)
        found = pt.identify([a, b], rng=seed, budget=None if budget is None else 2 * budget)
        assert {"above": 0, "below": 1}[verdict.answer] == found.index
        assert found.answered
        assert (found.samples, found.counts.episodes) == (verdict.samples, 2 * verdict.counts.episodes)


def test_a_tie_is_undecided_and_says_who_is_left_unless_it_may_be_close():
    tied = [gain(0.5), gain(0.5), gain(0.3)]
    found = pt.identify(tied, max_samples=300)
    assert (found.answered, found.certified) == (False, False)
    assert found.reason == "the sample limit is reached; still in: agent 0, agent 1"
    assert str(found).startswith("Undecided: the sample limit is reached")
    assert found.samples <= 300
    spent = pt.identify(tied, budget=200)
    assert "the budget of 200 episodes is used up" in spent.reason
    assert 198 <= spent.counts.episodes <= 200
    close = pt.identify(tied, indifference=0.05)
    assert close.answered
    assert close.index in (0, 1)
    assert "or worse than the best by less than 0.05" in str(close)


def test_what_is_shown_is_what_is_saved_and_a_page():
    pytest.importorskip("matplotlib")
    found = pt.identify(THREE, names=["<low>", "middle", "high"], indifference=0.01)
    document = json.loads(found.to_json())
    assert document["policy"] == "high"
    assert document["agents"][0] | {"name": "<low>", "is_in": False} == document["agents"][0]
    again = from_data(document)
    assert again.agents == found.agents
    assert str(again) == str(found)
    page = pt.report.render(found)
    assert "Which agent is best?" in page
    assert "&lt;low&gt;" in page
    assert "<low>" not in page
    nothing = pt.identify(THREE, max_samples=0)
    assert json.loads(nothing.to_json())["values"] == [None] * 3
    assert str(from_data(json.loads(nothing.to_json()))) == str(nothing)
    assert pt.report.render(nothing)
    for key, wrong in (("is_in", 1), ("value", 1e300), ("episodes", -1)):
        broken = json.loads(found.to_json())
        broken["agents"][0][key] = wrong
        assert_refused(lambda broken=broken: from_data(broken), "agents")


def test_ctrl_c_keeps_what_was_found():
    def press(check):
        if check.episodes == 30:
            signal.raise_signal(signal.SIGINT)

    seen = []
    found = pt.identify(THREE, progress=lambda check: (seen.append(check.estimate), press(check)))
    assert (found.answered, found.reason) == (False, "interrupted; still in: agent 0, agent 1, agent 2")
    assert found.counts.episodes == 30
    assert len(seen) == 11
    assert "the time limit is reached" in pt.identify(THREE, max_seconds=0.0).reason


def test_in_processes_the_answer_is_that_of_one_after_the_other():
    """A round is run for all agents that are still in when it begins; the end of a round decides nothing."""
    one, several = pt.identify(THREE, rng=1), pt.identify(THREE, rng=1, parallel=2)
    assert one.agents == several.agents
    assert one.samples <= several.samples <= one.samples + 6


def test_agents_on_vectors():
    agents = [lucky(action) for action in (0, 1)] + [lucky(0, Luck())]
    found = pt.identify(agents)
    assert found.index == 1
    assert "with the same seed" in found.method
    assert found.samples > found.counts.total  # those under way
    once = pt.identify([lucky(0, SeededOnce(vector(n=2, env=Luck))), lucky(1)], max_samples=200)
    assert "independent of each other" in once.method
    assert pt.compare(agents[0], agents[1]).counts.episodes == pt.identify(agents[:2]).agents[0].episodes
    env = vector("DISABLED", 2, Luck)
    assert pt.identify([lucky(0, env), lucky(1, env), lucky(0, env)]).index == 1
    assert_refused(lambda: pt.identify(agents, parallel=2), "parallel")


def test_a_success_can_be_asked_about():
    agents = [gain(mean, outcome=pt.at_least(0.5), return_range=None) for mean in (0.4, 0.7)]
    found = pt.identify(agents)
    assert found.index == 1
    assert f"the {pt.at_least(0.5).name}, its interval" in str(found)


def test_ranges_alone_may_settle_it():
    found = pt.identify([gain(0.5), pt.Episodes(lambda rng: 2.0, return_range=(1, 3))])
    assert (found.index, found.samples, found.certified) == (1, 0, True)


def test_a_budget_that_cannot_do_is_told():
    with pytest.warns(pt.AssumptionWarning, match=r"budget: 9 episodes of 3 agents cannot settle it.*at least 15"):
        pt.identify(THREE, budget=9)


def test_what_does_not_apply_is_refused_in_words():
    two = pt.instances.paper(2)
    task = two.task
    sim = pt.TabularSimulator(two.kernel)
    for call, *words in (
        (lambda: pt.identify(THREE[0]), "pass a list of them"),
        (lambda: pt.identify([THREE[0], 3]), "agents[1] is a int"),
        (lambda: pt.identify([THREE[0], gain(0.5, discount=0.9)]), "agents[0].discount is 1.0 and agents[1].discount"),
        (lambda: pt.identify([THREE[0], gain(0.5, outcome=pt.at_least(0.5), return_range=None)]), "agents[1].outcome"),
        (lambda: pt.identify(THREE, sim=sim), "sim is for a Markov task"),
        (lambda: pt.identify(THREE, horizon=3), "horizon is for a Markov task"),
        (lambda: pt.identify(THREE, policies=[task.policy]), "policies is for a Markov task"),
        (lambda: pt.identify(THREE, method=pt.PTST()), "ReturnBetting()"),
        (lambda: pt.identify(THREE, names=["a", "b"]), "names has 2 names, expected 3"),
        (lambda: pt.identify(THREE, names=[1, "1", "b"]), "names has '1' twice"),
        (lambda: pt.identify(THREE, indifference=-1), "indifference is -1"),
        (lambda: pt.identify(THREE, delta=2), "delta"),
        (lambda: pt.identify(task.rewards), "initial is missing"),
        (lambda: pt.identify(task.rewards, task.initial, 0.9), "sim is missing"),
        (lambda: pt.identify(task.rewards, task.initial, 0.9, sim, names=["a"]), "names is for agents"),
        (lambda: pt.identify(task.rewards, task.initial, 0.9, sim, indifference=0.1), "indifference is for agents"),
    ):
        assert_refused(call, *words)
