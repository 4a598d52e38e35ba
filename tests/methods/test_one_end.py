"""Episodes with one known end of their returns: one answer can be proved, whatever the other tail is."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, each
from episode_envs import Endless, Lasting, vector
from policytest.data.ranges import NO_RANGE, ends_of
from policytest.eprocess.capital import Bet, EProcess
from policytest.payoffs.cut_returns import CutEpisodes, CutPlan

ONLY_ABOVE = 'only "above" can be answered, since returns have no known upper end'
ONLY_BELOW = 'only "below" can be answered, since returns have no known lower end'


def lognormal(rng):
    return float(rng.lognormal(1.0, 1.0))  # mean 4.48


def loss(rng):
    return -lognormal(rng)


GAINS, LOSSES = pt.Episodes(lognormal, return_range=(0, None)), pt.Episodes(loss, return_range=(-np.inf, 0))


def endless(**about):
    return pt.Episodes(Endless(), lambda observation: 0, **about)


def told(words, ask, *about, **settings):
    """What is answered, with one warning."""
    with pytest.warns(pt.AssumptionWarning, match=words) as said:
        found = ask(*about, **settings)
    assert len(said) == 1
    return found


@each(
    ("episodes", "threshold", "answer", "words"),
    [(GAINS, 2.0, "above", ONLY_ABOVE), (LOSSES, -2.0, "below", ONLY_BELOW)],
)
def test_one_known_end_answers_on_one_side(episodes, threshold, answer, words):
    verdict = told(words, pt.decide, episodes, threshold=threshold)
    assert (verdict.answer, verdict.certified) == (answer, True)
    assert sum(map(math.isinf, verdict.interval)) == 1
    assert ("inf" if answer == "above" else "-inf") in json.loads(verdict.to_json())["interval"]
    open_end = told(words, pt.decide, episodes, threshold=4 * threshold, max_samples=60)
    assert open_end.answer is None
    assert words in open_end.reason
    assert words in str(open_end)
    assert max(open_end.evidence) < 1e-9, "nothing is staked on the side without an end"


def test_both_sides_mirror_each_other():
    """The bets on -Z against -R are those on Z against R."""
    up = told(ONLY_ABOVE, pt.decide, GAINS, threshold=3.0)
    down = told(ONLY_BELOW, pt.decide, LOSSES, threshold=-3.0)
    assert up.samples == down.samples
    assert up.interval == pytest.approx([-end for end in down.interval[::-1]])


def test_the_capital_stays_nonnegative_and_only_grows_with_a_heavier_tail():
    rng, shares = np.random.default_rng(1), np.array([0.5, 0.5])
    bet = Bet(2.0, np.array([0.995, 0.3]), np.array([0.1]))
    Z = np.concatenate([[0.0], rng.pareto(0.8, 200), [1e300]])  # low = 0, R = 2
    plain, clipped = (EProcess(shares, np.array([1.0])) for _ in range(2))
    for outcome in Z:
        plain.settle(bet, np.array([outcome - 2.0]))
        clipped.settle(bet, np.array([min(outcome, 3.0) - 2.0]))
        assert np.isfinite(plain.capital).all()
        assert (plain.capital[:-1] >= 0).all()
        assert plain.evidence() >= clipped.evidence()


def test_rewards_without_a_horizon_bound_one_side():
    assert endless(reward_range=(0, 1), discount=1.0).bounds == (0.0, math.inf)
    assert endless(reward_range=(-2, 0), discount=1.0).bounds == (-math.inf, 0.0)
    assert endless(reward_range=(None, 0), discount=0.9).bounds == (-math.inf, 0.0)
    assert endless(reward_range=(0.5, None), discount=0.9).last_step == math.inf
    assert endless(reward_range=(0, None), discount=1.0).rest(3, 1.0) == (0.0, math.inf)
    assert endless(reward_range=(-1, 1), discount=1.0).bounds == NO_RANGE
    assert ends_of("reward_range", (None, None)) == NO_RANGE


def test_returns_outside_the_one_end_and_rewards_that_are_no_numbers_are_refused():
    low = pt.Episodes(lambda rng: -3.0, return_range=(-2, None))
    assert_refused(lambda: pt.evaluate(low, budget=2), "is -3, outside return_range (-2, inf)")
    endless_sum = pt.Episodes(lambda rng: [1e308, 1e308], return_range=(0, None))
    assert_refused(lambda: pt.evaluate(endless_sum, budget=2), "is inf, outside")


def test_a_precision_needs_both_ends_and_a_budget_gives_one():
    assert_refused(lambda: pt.evaluate(GAINS, epsilon=0.1), "no known upper end", "pass a budget")
    assert_refused(lambda: pt.evaluate(LOSSES, epsilon=0.1), "no known lower end")
    found = pt.evaluate(GAINS, budget=200)
    assert 2.0 < found.lower < found.value < 7.0
    assert found.upper == math.inf
    assert found.certified
    assert "or more" in str(found)


def test_comparisons_need_the_low_end_of_one_and_the_high_end_of_the_other():
    a = pt.Episodes(lambda rng: 1.0 + 2.0 * rng.random(), return_range=(0, 3))
    b = pt.Episodes(lambda rng: rng.random(), return_range=(None, 1))
    verdict = told("the difference of returns has no known upper end", pt.compare, a, b)
    assert verdict.answer == "above"
    assert verdict.interval[1] == math.inf
    bets = pt.ReturnBetting()
    assert_refused(lambda: pt.compare(GAINS, GAINS, method=bets), "no known end", "low end of task_a")
    approximate = told("difference of returns has no known range", pt.compare, GAINS, GAINS, max_samples=100)
    assert approximate.approximate


def test_a_critic_serves_the_side_that_is_bet_on():
    """Outcomes keep their mean, and stay at or above the one end that is known."""
    about = pt.Episodes(Lasting(), lambda observation: 0, reward_range=(0, None), critic=lambda observation: 1.0)
    player = CutEpisodes(about)
    player.plan = CutPlan(20.0, False, (True, False))
    found = [player.settled(player.run(seed, player.plan_of(0))) for seed in range(1500)]
    totals = np.array([episode.total for episode in found])
    assert totals.min() >= 0
    assert np.isnan([episode.unseen[1] for episode in found]).all()
    assert abs(totals.mean() - Lasting.mean) < 4 * totals.std() / math.sqrt(len(totals))
    assert np.mean([episode.steps for episode in found]) < 0.9 * Lasting.mean
    verdict = told(ONLY_ABOVE, pt.decide, about, threshold=2.5)
    assert (verdict.answer, verdict.certified) == ("above", True)


def test_plans_vectors_and_addresses():
    vectors = pt.Episodes(vector(n=4), lambda observation: 0, return_range=(0, None))
    assert told(ONLY_ABOVE, pt.decide, vectors, threshold=2.0).answer == "above"
    plan = pt.plan(GAINS, threshold=1.5, power=0.6, runs=20, rng=1, max_samples=200)
    assert 5 < plan.budget < 200
    assert "Beware: only" in str(plan)
    paused = told(ONLY_ABOVE, pt.decide, GAINS, threshold=2.5, max_samples=20)
    assert paused.still_needed(max_samples=100).samples > 0


def test_without_any_end_only_the_check_refuses(monkeypatch):
    """Behind `check_bounds` nothing needs an end: nothing is staked, and returns are looked at."""
    monkeypatch.setattr("policytest.methods.return_betting.check_bounds", lambda *about: None)
    free = pt.Episodes(lognormal)
    assert free.bounds == NO_RANGE
    assert free.assumptions == pt.Episodes(lognormal, return_range=(None, None)).assumptions
    verdict = pt.decide(free, threshold=3.0, max_samples=50, method=pt.ReturnBetting())
    assert (verdict.answer, verdict.counts.episodes) == (None, 50)
    assert verdict.interval == NO_RANGE
    assert max(map(abs, verdict.evidence)) < 1e-9
    nothing = pt.Episodes(lambda rng: np.nan)
    assert_refused(lambda: pt.decide(nothing, threshold=3.0, method=pt.ReturnBetting()), "run(rng)")


def test_a_budget_is_aimed_at_with_an_infinite_room():
    verdict = told(ONLY_ABOVE, pt.decide, GAINS, threshold=2.0, budget=80)
    assert verdict.answer == "above"
    assert verdict.samples <= 80


def test_a_run_goes_on_as_if_it_had_not_paused(tmp_path):
    kept = tmp_path / "run.npz"
    whole = told(ONLY_ABOVE, pt.decide, GAINS, threshold=3.0)
    told(ONLY_ABOVE, pt.decide, GAINS, threshold=3.0, max_samples=whole.samples // 2, checkpoint=kept)
    resumed = told(ONLY_ABOVE, pt.decide, GAINS, threshold=3.0, resume=kept)
    assert (resumed.samples, resumed.evidence) == (whole.samples, whole.evidence)


def test_an_undecided_verdict_shows_the_evidence_of_the_answer_that_can_come():
    """The other side has the evidence 0 throughout, which is the larger number where this one is against the answer."""
    for words, asked, threshold, subject in ((ONLY_ABOVE, GAINS, 8.0, "V <= R"), (ONLY_BELOW, LOSSES, -8.0, "V >= R")):
        verdict = told(words, pt.decide, asked, threshold=threshold, max_samples=60)
        assert verdict.answer is None
        assert f"evidence against {subject}" in str(verdict)
        assert "worst cases solved" not in str(verdict)
