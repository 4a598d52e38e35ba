"""Bets on recorded episodes: what they promise at V = R, a control that must fail, and the kinds of outcomes."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import policytest as pt
from builders import each
from policytest.methods.episode_log_betting import EpisodeLogBetting
from policytest.payoffs.weighted_returns import RecordedEpisodes, flaws_of
from policytest.plots.trace import Point
from policytest.results.ladder import Alongside
from policytest.results.load import parse

DELTA, RUNS, ALARM = 0.1, 120, 1e-6
MOST = int(stats.binom.ppf(1 - ALARM, RUNS, DELTA))


def bandit(rng, rows, after_the_fact=False):
    """Three actions, weights up to 10; propensities may be made smaller when the reward is known."""
    mu, pi, mean = np.array([0.85, 0.1, 0.05]), np.array([0.3, 0.2, 0.5]), np.array([0.3, 0.5, 0.7])
    action = rng.choice(3, rows, p=mu)
    reward = (rng.random(rows) < mean[action]).astype(float)
    propensity = mu[action] * np.where(after_the_fact & (reward > 0), 0.6, 1.0)
    return {"reward": reward, "propensity": propensity, "target": pi[action]}, mean[action], float(pi @ mean)


def log_of(rng, kind, rows=200, after_the_fact=False):
    columns, q, value = bandit(rng, rows, after_the_fact)
    more = {} if kind == "weights" else {"smallest_propensity": 0.03}
    if kind == "critics":
        more |= {"q": np.clip(q + 0.1, 0, 1), "v": np.full(rows, value + 0.1)}
    return pt.LoggedEpisodes(None, **columns, reward_range=(0, 1), **more), value


def answers(kind, after_the_fact=False):
    rng, found = np.random.default_rng(7), []
    for _ in range(RUNS):
        log, value = log_of(rng, kind, after_the_fact=after_the_fact)
        found.append(pt.assess(log, threshold=value, delta=DELTA).answer)
    return found


@pytest.mark.parametrize("kind", ["weights", "bound", "critics"])
def test_at_the_threshold_wrong_answers_are_rare_on_both_sides(kind):
    found = answers(kind)
    assert found.count("above") <= MOST
    assert found.count("below") <= MOST


def adaptive_log(rng, rows):
    """A logging policy that favours the action with the best mean so far; propensities are fixed before each draw."""
    mean, pi = np.array([0.3, 0.6]), np.array([0.4, 0.6])
    wins, plays, columns = np.ones(2), np.full(2, 2.0), np.zeros((rows, 3))
    for row, (first, second) in enumerate(rng.random((rows, 2))):
        mu = np.where(np.arange(2) == np.argmax(wins / plays), 0.85, 0.15)
        a = int(first >= mu[0])
        r = float(second < mean[a])
        columns[row] = r, mu[a], pi[a]
        wins[a], plays[a] = wins[a] + r, plays[a] + 1
    return pt.LoggedEpisodes(None, *columns.T, reward_range=(0, 1), smallest_propensity=0.15), float(pi @ mean)


def test_a_logging_policy_may_adapt_to_the_past():
    rng, found = np.random.default_rng(12), []
    for _ in range(RUNS):
        log, value = adaptive_log(rng, 150)
        found.append(pt.assess(log, threshold=value, delta=DELTA).answer)
    assert found.count("above") <= MOST
    assert found.count("below") <= MOST


@pytest.mark.filterwarnings("ignore:the weights:policytest.AssumptionWarning")
def test_propensities_after_the_fact_are_caught_by_the_same_test():
    assert answers("weights", after_the_fact=True).count("above") > MOST


@pytest.mark.parametrize("kind", ["weights", "bound", "critics"])
def test_intervals_hold_over_time(kind):
    """An interval misses the value at some moment exactly if the capital of a side against it ever reaches 2/delta."""
    rng, misses = np.random.default_rng(3), 0
    for _ in range(RUNS):
        log, value = log_of(rng, kind)
        run = EpisodeLogBetting().replay(log, value, for_interval=True)
        run.step(math.inf, len(log))
        largest = [side.settled(as_staked=False, along=True).log_capital(0.0) for side in run.bets]
        misses += max(largest) >= math.log(2 / DELTA)
    assert misses <= MOST


def test_the_capital_of_a_run_is_the_product_of_its_bets():
    """Written out for plain returns and the fractions of intervals."""
    rng = np.random.default_rng(1)
    G = rng.beta(2, 3, 300)
    log = pt.LoggedEpisodes(None, G, return_range=(0, 1))
    run = EpisodeLogBetting().replay(log, 0.3, for_interval=True)
    run.step(math.inf, 300)
    f = 0.995 * 0.5 ** np.arange(20)
    weights = 0.9 ** np.arange(20) / (0.9 ** np.arange(20)).sum()
    for R in (0.2, 0.35, 0.39):
        by_hand = math.log(weights @ np.prod(1 + np.outer(f, (G - R) / R), axis=1))
        assert run.bets.above.settled(as_staked=False).log_capital(R - 0.3) == pytest.approx(by_hand, abs=1e-8)
    lower, upper = run.interval(math.log(1 / DELTA))
    at_the_end = run.bets.above.settled(as_staked=False).log_capital(lower - 0.3)
    assert at_the_end == pytest.approx(math.log(2 / DELTA), abs=1e-6)
    assert 0 < lower < G.mean() < upper < 1


@pytest.mark.parametrize("kind", ["weights", "critics"])
def test_a_verdict_and_its_interval_do_not_contradict_each_other(kind):
    rng = np.random.default_rng(5)
    log, value = log_of(rng, kind, rows=3000)
    for bar, answer in ((value - 0.2, "above"), (value + 0.2, "below")):
        verdict = pt.assess(log, threshold=bar)
        assert (verdict.answer, verdict.certified) == (answer, True)
        assert (verdict.interval[0] >= bar) if answer == "above" else (verdict.interval[1] <= bar)
        assert 0 < verdict.samples < 3000
        assert max(verdict.evidence) >= verdict.required
        assert verdict.counts.episodes == 3000
        found = pt.value_interval(log)
        assert found.certified
        assert value in found


def test_a_bound_of_the_weights_and_a_critic_narrow_the_interval():
    rng, widths = np.random.default_rng(2), {}
    columns, q, value = bandit(rng, 20_000)
    for kind, more in (
        ("weights", {}),
        ("bound", {"smallest_propensity": 0.05}),
        ("critics", {"smallest_propensity": 0.05, "q": q, "v": np.full(20_000, value)}),
    ):
        log = pt.LoggedEpisodes(None, **columns, reward_range=(0, 1), **more)
        widths[kind] = pt.value_interval(log).width
    assert widths["bound"] < 0.9 * widths["weights"]
    assert widths["critics"] < 0.9 * widths["weights"]


def test_units_and_signs_of_rewards_do_not_matter():
    """Rewards r -> a + b r change answers as they change the threshold; with b < 0 the sides change places."""
    columns, _, _ = bandit(np.random.default_rng(4), 800)
    plain = pt.value_interval(pt.LoggedEpisodes(None, **columns, reward_range=(0, 1)))
    for a, b in ((3.0, 2.0), (-1.0, -0.5)):
        changed = columns | {"reward": a + b * columns["reward"]}
        found = pt.value_interval(pt.LoggedEpisodes(None, **changed, reward_range=tuple(sorted((a, a + b)))))
        ends = sorted((a + b * plain.lower, a + b * plain.upper))
        assert (found.lower, found.upper) == pytest.approx(ends, abs=1e-6)


def test_episodes_are_taken_in_their_order():
    log = pt.LoggedEpisodes([0, 0, 1, 2, 2, 2], [1, 0, 1, 0, 1, 1], horizon=3, reward_range=(0, 1))
    supply = RecordedEpisodes(log)
    assert ([side.bound for side in supply.sides], supply.exhausted) == ([0.0, 3.0], False)
    first = supply.take(1)
    assert (first.above.tolist(), first.steps.tolist()) == ([1.0], [2])
    assert supply.take(4).returns.tolist() == [1.0, 2.0]
    assert supply.exhausted


def test_only_one_side_can_be_tested_where_returns_have_one_bound():
    rng = np.random.default_rng(0)
    log = pt.LoggedEpisodes(np.repeat(np.arange(300), 3), rng.random(900), reward_range=(0, 1))
    found = pt.value_interval(log)
    assert 0 < found.lower < 1.5
    assert math.isinf(found.upper)
    assert pt.assess(log, threshold=1.0).answer == "above"
    open_end = pt.assess(log, threshold=2.0)
    assert open_end.answer is None
    assert 'only "above" can be answered' in open_end.reason


def test_answers_that_need_no_data_and_questions_that_are_wrong():
    log = pt.LoggedEpisodes(None, [0.5, 0.7], return_range=(0, 1))
    assert (pt.assess(log, threshold=1.5).answer, pt.assess(log, threshold=-0.5).answer) == ("below", "above")
    for call, words in (
        (lambda: pt.assess(log, 0.5), r"data is a float, and LoggedEpisodes are the data; pass threshold=0.5"),
        (lambda: pt.assess(log), "threshold is missing"),
        (lambda: pt.assess(log, threshold=0.5, method=pt.PTST()), "recorded episodes are assessed by bets on them"),
        (lambda: pt.value_interval(log, looks="two"), 'looks is \'two\'; pass "any" or "one"'),
        (lambda: pt.assess(log, threshold=0.5, columns={"s": "x"}), "leave them out"),
        (lambda: pt.assess(log, threshold=0.5, episodes=log), "episodes is for a task"),
    ):
        with pytest.raises(pt.InputError, match=words):
            call()


def test_one_look_covers_about_as_often_as_it_says():
    """Small: 400 logs of each kind between 92% and 98%; the control, no allowance for noise, covers far less."""
    rng = np.random.default_rng(6)
    hits = {"returns": 0, "weights": 0, "control": 0}
    for _ in range(400):
        own = pt.LoggedEpisodes(None, rng.beta(0.5, 2.5, 100), return_range=(0, 1))
        found = pt.value_interval(own, looks="one")
        hits["returns"] += 1 / 6 in found
        middle = 0.5 * (found.lower + found.upper)
        hits["control"] += abs(middle - 1 / 6) <= found.width / 4  # half as wide
        columns, _, value = bandit(rng, 600)
        log = pt.LoggedEpisodes(None, **columns, reward_range=(0, 1))
        one = pt.value_interval(log, looks="one")
        assert (one.certified, one.looks) == (False, "one")
        hits["weights"] += value in one
    assert 0.92 < hits["returns"] / 400 < 0.98
    assert 0.92 < hits["weights"] / 400 < 0.98
    assert hits["control"] / 400 < 0.8


def shown_together(verdict):
    """No estimate is shown outside an interval beside it."""
    low, high = verdict.interval
    assert low <= verdict.estimate <= high
    assert verdict.one_look is None or verdict.one_look[0] <= verdict.estimate <= verdict.one_look[1]
    return verdict.estimate


def test_the_estimate_of_weighted_episodes_is_that_of_one_look():
    """A range of returns that is declared far too wide makes intervals wide; it hardly moves the estimate."""
    rng, means, found, value = np.random.default_rng(0), [], [], 6 * 0.7 * 1.5
    for _ in range(20):
        call = rng.random((300, 6)) < 0.2
        reward, propensity, target = 3 * call * rng.random((300, 6)), np.where(call, 0.2, 0.8), np.where(call, 0.7, 0.3)
        columns = [column.ravel() for column in (reward, propensity, target)]
        for range_of_returns in (None, (0, 1000)):
            about = {"horizon": 6, "reward_range": (0, 3), "return_range": range_of_returns}
            log = pt.LoggedEpisodes(np.repeat(np.arange(300), 6), *columns, **about)
            found.append(shown_together(pt.assess(log, threshold=3.0)))
            shown_together(pt.assess(log, threshold=8.0))
        log = pt.LoggedEpisodes(np.repeat(np.arange(300), 6), *columns, return_range=(0, 1000))
        found.append(shown_together(pt.assess(log, threshold=3.0)))
        means.append(float(log.outcomes.estimates.mean()))
    assert np.abs(np.array(found) - value).mean() < 0.25 * np.abs(np.array(means) - value).mean()


def test_an_estimate_that_later_episodes_moved_stays_in_its_interval():
    """The first half is good and the second is not: the interval rests on the best moment, the mean on all."""
    G = np.random.default_rng(1).random(400) * 0.4 + np.repeat([0.59, 0.0], 200)
    log = pt.LoggedEpisodes(None, G, return_range=(0, 1))
    with pytest.warns(pt.AssumptionWarning, match="the mean return seems to change over the episodes: 0.79"):
        verdict = pt.assess(log, threshold=0.5)
    assert "Beware: the mean return seems to change" in str(verdict)
    assert G.mean() < verdict.interval[0] == shown_together(verdict) == 0.5
    assert verdict.to_json() == parse(verdict.to_json(), "verdict.json").to_json()
    old = json.dumps(json.loads(verdict.to_json()) | {"estimate": float(G.mean())})  # of an earlier version
    shown_together(parse(old, "verdict.json"))
    apart = replace(verdict, alongside=Alongside((0.1, 0.2)))
    assert apart.one_look is None  # what the interval refutes is not shown beside it
    empty = replace(verdict, interval=(0.7, 0.6))
    assert math.isnan(empty.estimate)
    assert "the data contradict every value" in str(empty)
    assert Point(1, estimate=0.9, interval=(0.2, 0.5)).estimate == 0.5


def test_weights_that_average_more_than_one_are_told():
    """Propensities too small by a fifth. Right ones, and large weights that were not seen, are not called wrong."""
    rng = np.random.default_rng(9)
    columns, _, value = bandit(rng, 4000)
    wrong = pt.LoggedEpisodes(None, **columns | {"propensity": 0.8 * columns["propensity"]}, reward_range=(0, 1))
    with pytest.warns(
        pt.AssumptionWarning, match=r"the weights target/propensity of episodes average 1\.[12]\d?, not 1"
    ):
        verdict = pt.assess(wrong, threshold=value - 0.2)
    assert (verdict.answer, verdict.certified) == ("above", False)
    assert "so that some are wrong" in str(verdict).splitlines()[0]
    assert "no guarantee holds" in str(verdict)
    with pytest.warns(pt.AssumptionWarning, match="check propensity and target"):
        assert not pt.value_interval(wrong).certified
    for _ in range(200):
        assert flaws_of(log_of(rng, "weights", rows=300)[0]) == ()
    rare = pt.LoggedEpisodes(None, np.ones(500), np.full(500, 0.999), np.zeros(500), reward_range=(0, 1))
    assert flaws_of(rare) == ()


@each("weighted", [False, True])
@each(("threshold", "answer"), [(1.0, "below"), (0.0, "above")])
def test_at_the_end_of_the_range_one_recorded_episode_settles_it(threshold, answer, weighted):
    """If no return exceeds R, one below R refutes V >= R; before it nothing does."""
    returns = np.full(50, threshold)
    returns[30] = 0.5
    half = np.full(50, 0.5)
    known = {"propensity": half, "target": half, "smallest_propensity": 0.5} if weighted else {}
    log = pt.LoggedEpisodes(np.arange(50), returns, reward_range=(0, 1), horizon=1, **known)
    verdict = pt.assess(log, threshold=threshold)
    assert (verdict.answer, verdict.samples, verdict.certified) == (answer, 31, True)
    assert max(verdict.evidence) == math.inf
    before = pt.LoggedEpisodes(np.arange(30), returns[:30], reward_range=(0, 1), horizon=1)
    none = pt.assess(before, threshold=threshold)
    assert none.answer is None
    assert f'only "{answer}" can be answered' in none.reason
