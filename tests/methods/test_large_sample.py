"""Large-sample answers: the default where no range is known, labelled, kept, compared, planned; never certified."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from scipy import stats

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import vector
from policytest.data.ranges import LARGE_SAMPLE
from policytest.plots import Trace
from policytest.report import render
from policytest.results.estimate import Interval
from policytest.results.load import from_data
from policytest.study.spec import sweep

SAID = "no known range, so this will be a large-sample answer"


def noisy(rng):
    """Mean 10, standard deviation 5."""
    return rng.normal(10.0, 5.0)


def skewed(rng):
    """Mean 1.65, skewness 6."""
    return rng.lognormal()


FREE, SKEWED_RETURNS = pt.Episodes(noisy), pt.Episodes(skewed)
RANGED = pt.Episodes(noisy, return_range=(-1000, 1000))
ANY, ONE = pt.LargeSample(), pt.LargeSample("one")


def told(ask, *about, **settings):
    """What is answered, with one line that says what it will be."""
    with pytest.warns(pt.AssumptionWarning, match=SAID) as said:
        found = ask(*about, **settings)
    assert len(said) == 1
    return found


# ---------------------------------------------------------------- the default, and the labels


def test_without_a_range_it_is_the_default_and_says_so_once():
    verdict = told(pt.decide, FREE, threshold=8)
    assert (verdict.answer, verdict.certified, verdict.approximate) == ("above", False, True)
    assert verdict.settings == ANY
    assert_same_verdict(verdict, pt.decide(FREE, threshold=8, method=ANY))
    below = told(pt.decide, FREE, threshold=12)
    assert below.answer == "below"
    assert told(pt.evaluate, FREE, epsilon=2.0).approximate
    assert told(pt.compare, FREE, pt.Episodes(lambda rng: rng.normal(5.0, 4.0))).answer == "above"
    assert [check.answer for check in told(pt.checks, FREE, threshold=8)][-1] == "above"


def test_a_range_a_score_and_a_success_are_still_bet_on():
    assert isinstance(pt.decide(RANGED, threshold=8, max_samples=5).settings, pt.ReturnBetting)
    success = pt.Episodes(noisy, outcome=pt.at_least(0))
    found = pt.decide(success, threshold=0.5)
    assert (found.certified, found.approximate) == (True, False)
    assert_refused(lambda: pt.decide(FREE, threshold=8, method=pt.ReturnBetting()), "no known range: pass return_range")
    assert "pass return_range=(low, high)" in LARGE_SAMPLE


def test_the_first_line_the_page_and_the_json_say_what_it_is():
    verdict = pt.decide(FREE, threshold=8, method=ANY)
    assert str(verdict).splitlines()[0] == "The mean return is above the threshold (large-sample answer, not certified)"
    page = render(verdict)
    assert "Large-sample answer: yes. Its mean return is above 8." in page
    for words in (
        "returns have a finite variance",
        "not for every number",
        "outcome=pt.at_least(200)",
        "of about 0.95",
    ):
        assert words in page.replace("Returns have", "returns have")
    assert "at any time" in str(verdict)
    document = json.loads(verdict.to_json())
    assert (document["schema"], document["approximate"], document["certified"]) == (2, True, False)
    assert document["assumptions"][1:] == [
        "returns have a finite variance",
        "there are many episodes (the answer is valid as their number grows, not for every number)",
    ]
    again = from_data(document)
    assert again.approximate
    assert (str(again), again.to_json()) == (str(verdict), verdict.to_json())
    assert render(again)
    estimate = pt.evaluate(FREE, epsilon=2.0, method=ANY)
    assert "(large-sample answer, not certified)" in str(estimate).splitlines()[0]
    assert "Large-sample answer, not certified: The mean return is" in render(estimate)
    assert "large-sample 95% interval" in str(estimate)
    kept = from_data(json.loads(estimate.to_json()))
    assert (kept.approximate, kept.lower) == (True, estimate.lower)


def test_the_answer_and_its_interval_never_contradict_each_other():
    for seed in range(6):
        for threshold, episodes in ((8.0, FREE), (12.0, FREE), (1.1, SKEWED_RETURNS), (2.5, SKEWED_RETURNS)):
            verdict = pt.decide(episodes, threshold=threshold, method=ANY, rng=seed, max_samples=200)
            low, high = verdict.interval
            assert verdict.answer is None or (low >= threshold if verdict.answer == "above" else high <= threshold)
            assert low <= verdict.estimate <= high
            assert verdict.answer is None or verdict.p_value <= 0.05


# ---------------------------------------------------------------- heavy tails


def test_heavy_tails_are_told():
    heavy = pt.Episodes(lambda rng: rng.standard_t(2.2))
    verdict = pt.decide(heavy, threshold=10.0, method=ANY, rng=1)
    off = (verdict.counts.returns - verdict.counts.returns.mean()) ** 2
    tails = json.loads(verdict.to_json())["tails"]
    assert tails["largest_share"] == pytest.approx(off.max() / off.sum())
    assert tails["kurtosis"] == pytest.approx(stats.kurtosis(verdict.counts.returns, fisher=False))
    assert tails["skewness"] == pytest.approx(stats.skew(verdict.counts.returns))
    log = pt.LoggedEpisodes(None, np.append(np.random.default_rng(1).normal(size=411), 15.0))
    found = told(pt.assess, log, threshold=-1.0)
    share = 225 / (225 + 411)
    words = f"one episode of 412 carries {share:.0%}"
    assert "the answer may change with the next such episode" in str(found)
    assert words[:27] in str(found)
    assert words[:27] in json.loads(found.to_json())["tails"]["words"]
    assert "One episode of 412 carries" in render(found)
    assert json.loads(pt.decide(FREE, threshold=8, method=ANY).to_json())["tails"]["words"] == ""


def test_it_says_why_it_is_silent():
    for episodes, limit, words in (
        (FREE, 20, "20 episodes so far, and a large-sample answer needs at least 30"),
        (pt.Episodes(lambda rng: float(rng.random() < 0.05)), 60, "the rarer one in"),
        (SKEWED_RETURNS, 60, "returns are so skewed (skewness"),
    ):
        verdict = pt.decide(episodes, threshold=8, method=ANY, max_samples=limit, rng=3)
        assert verdict.answer is None
        assert words in verdict.reason
        assert verdict.evidence == (0.0, 0.0)
        assert "not known yet" in str(verdict)
    with pytest.warns(pt.AssumptionWarning, match="all 1,000 episodes were the same"):
        same = pt.decide(pt.Episodes(lambda rng: 3.0), threshold=8, method=ANY)
    assert "all 1,000 episodes returned 3" in same.reason
    found = pt.evaluate(SKEWED_RETURNS, budget=40, method=ANY)
    assert "so skewed" in str(found)
    assert (found.lower, found.upper) == (-math.inf, math.inf)


# ---------------------------------------------------------------- going on


def test_a_run_that_pauses_is_the_same_run(tmp_path):
    whole = pt.decide(FREE, threshold=8, method=ANY)
    paused = pt.decide(FREE, threshold=8, method=ANY, max_samples=whole.samples // 2, checkpoint=tmp_path / "run.npz")
    assert paused.answer is None
    assert_same_verdict(pt.decide(FREE, threshold=8, method=ANY, resume=paused), whole)
    assert_same_verdict(pt.decide(FREE, threshold=8, method=ANY, resume=tmp_path / "run.npz"), whole)
    assert_refused(lambda: pt.decide(FREE, threshold=8, method=ONE, budget=99, resume=paused), "resume")
    forecast = paused.still_needed()
    assert 0 < forecast.samples < math.inf


def test_in_parallel_on_vectors_with_a_trace_and_at_several_deltas_it_is_the_same():
    whole = pt.decide(FREE, threshold=7, method=ANY)
    together = pt.decide(FREE, threshold=7, method=ANY, parallel=2)
    assert (together.answer, together.evidence, together.interval) == (whole.answer, whole.evidence, whole.interval)
    trace = Trace()
    assert told(pt.decide, FREE, threshold=7, method=trace.watch(), progress=trace).samples == whole.samples
    assert trace.samples[-1] == whole.samples
    times = pt.stopping_times(FREE, threshold=7, deltas=[0.05, 0.001], method=ANY)
    strict = pt.decide(FREE, threshold=7, delta=0.001, method=ANY)
    assert times.samples.tolist() == [whole.samples, strict.samples]
    assert not times.certified.any()
    several = pt.Episodes(vector(n=3), lambda observations: np.zeros(3, dtype=int), batched=True)
    found = pt.decide(several, threshold=0.5, method=ANY, max_samples=400)
    assert found.counts.episodes > 30


def test_an_indifference_zone_and_a_budget():
    within = pt.decide(FREE, threshold=10, indifference=1.5, method=ANY)
    assert within.answer == "within"
    assert 8.5 <= within.interval[0] < within.interval[1] <= 11.5
    assert not within.certified
    spent = pt.decide(FREE, threshold=10, budget=60, method=ANY)
    assert (spent.answer, spent.counts.episodes) == (None, 60)
    assert spent.reason == "the budget of 60 episodes is used up"


# ---------------------------------------------------------------- one look


def test_one_look_is_at_the_end_of_the_budget_and_only_there():
    verdict = pt.decide(FREE, threshold=9, method=ONE, budget=80, rng=1)
    assert verdict.counts.episodes == 80
    returns = verdict.counts.returns
    p = stats.ttest_1samp(returns, 9, alternative="greater").pvalue
    assert verdict.p_value >= p * (1 - 1e-9), "skewness only takes away"
    assert verdict.p_value == pytest.approx(p, rel=0.5)
    assert "looked at once" in verdict.method
    assert "at any time" not in str(verdict)
    paused = pt.decide(FREE, threshold=9, method=ONE, budget=80, max_samples=70, rng=1)
    assert (paused.answer, paused.evidence) == (None, (0.0, 0.0))
    assert_same_verdict(pt.decide(FREE, threshold=9, method=ONE, budget=80, resume=paused), verdict)
    assert_refused(lambda: pt.decide(FREE, threshold=9, method=ONE, budget=90, resume=paused), "pass budget=80")
    missed = pt.decide(FREE, threshold=10, method=ONE, budget=40)
    assert missed.answer is None
    assert not missed.may_be_forecast
    assert "a second look" in render(missed)
    assert "One look is all that there is" in render(missed)
    estimate = pt.evaluate(FREE, budget=80, method=ONE, rng=1)
    assert (estimate.lower, estimate.upper) == pytest.approx(
        stats.ttest_1samp(returns, 0).confidence_interval(0.95), rel=0.02
    )


@each(
    ("ask", "words"),
    [
        (lambda: pt.decide(FREE, threshold=8, method=ONE), 'looks="one" looks once'),
        (lambda: pt.checks(FREE, threshold=8, method=ONE), "checks looks after every episode"),
        (lambda: pt.stopping_times(FREE, threshold=8, method=ONE), "stopping_times looks"),
        (lambda: pt.evaluate(FREE, epsilon=1.0, budget=100, method=ONE), "a precision is looked for"),
        (lambda: pt.LargeSample("two"), "looks is 'two'"),
        (lambda: pt.decide(pt.instances.paper(2).task, 0, threshold=0, method=ANY), "LargeSample() is for Episodes"),
        (lambda: pt.plan(FREE, threshold=8, power=0.8), "power: returns have no known range"),
        (
            lambda: pt.decide(pt.Episodes(noisy, return_range=(0, 1), score=Median()), threshold=0.5, method=ANY),
            "score",
        ),
    ],
)
def test_what_makes_no_sense_is_refused(ask, words):
    assert_refused(ask, words)


class Median:
    """A score."""

    name, room = "median return", 0.5

    def of(self, won):
        return np.where(won > 0, 0.5, -0.5)

    def estimate(self, returns):
        return float(np.median(returns))


# ---------------------------------------------------------------- comparisons, plans, logs, studies


def test_agents_are_compared_by_the_differences_of_pairs():
    def shared(shift):
        return pt.Episodes(lambda rng: rng.normal(0, 50.0) + rng.random() + shift)

    better, worse = shared(0.3), shared(0.0)
    verdict = pt.compare(better, worse, method=ANY, margin=0.1)
    assert verdict.answer is None, "the difference is always 0.3"
    assert "all 1,000 pairs of episodes returned 0.3" in verdict.reason
    free = pt.Episodes(lambda rng: (rng.normal(0, 50.0), 2 * rng.random())[1])
    found = pt.compare(free, pt.Episodes(lambda rng: (rng.normal(0, 50.0), rng.random())[1]), method=ANY)
    assert (found.answer, found.approximate) == ("above", True)
    assert "agent A against agent B" in found.method
    once = pt.compare(free, worse, method=ONE, budget=40)
    assert once.counts.episodes == 40


def test_a_plan_runs_the_test_that_will_be_run():
    plan = pt.plan(FREE, threshold=4, runs=20)
    mean, low, high = plan.episodes["LargeSample"]
    assert 30 <= low <= mean <= high < 500
    assert "not certified" in str(plan)


def test_logs_of_episodes_are_assessed():
    rng = np.random.default_rng(1)
    log = pt.LoggedEpisodes(None, rng.normal(10, 5, 300))
    verdict = told(pt.assess, log, threshold=8)
    assert (verdict.answer, verdict.certified, verdict.approximate) == ("above", False, True)
    assert verdict.samples < 300 == verdict.counts.episodes
    anytime, once = told(pt.value_interval, log), pt.value_interval(log, looks="one", method=ANY)
    assert anytime.lower < once.lower < 10 < once.upper < anytime.upper
    assert (anytime.approximate, anytime.certified, once.looks) == (True, False, "one")
    assert pt.assess(log, threshold=9, method=ONE).answer == "above"
    ranged = pt.LoggedEpisodes(None, log.reward, return_range=(-100, 100))
    assert pt.assess(ranged, threshold=1).certified
    assert pt.assess(ranged, threshold=8, method=ANY).evidence == pytest.approx(verdict.evidence)
    assert not Interval(0, 1, False).approximate


def test_weighted_returns_of_a_log_have_the_mean_of_the_target():
    """Without any range: the sum of w_t gamma^t r_t, against a loop."""
    rng, n = np.random.default_rng(2), 600
    episode, action = np.repeat(np.arange(n), 2), rng.integers(2, size=2 * n)
    reward = np.where(action == 1, rng.normal(3.0, 1.0, 2 * n), rng.normal(-1.0, 1.0, 2 * n))
    target = np.where(action == 1, 0.8, 0.2)
    log = pt.LoggedEpisodes(episode, reward, np.full(2 * n, 0.5), target, discount=0.5)
    for i in (0, 1, n - 1):
        first, second = 2 * i, 2 * i + 1
        w = target[first] / 0.5
        expected = w * reward[first] + 0.5 * w * target[second] / 0.5 * reward[second]
        assert log.outcomes.estimates[i] == pytest.approx(expected)
    value = 1.5 * (0.8 * 3.0 - 0.2)
    verdict = told(pt.assess, log, threshold=value - 1.0)
    assert verdict.answer == "above"
    assert verdict.interval[0] < value < verdict.interval[1]


def test_studies_name_it():
    plan = sweep({
        "deltas": [0.1],
        "seeds": 2,
        "instances": {"coin": {"episodes": "python:random:random", "threshold": 0.5}},
        "methods": {"large-sample": {"looks": "any"}},
    })  # fmt: skip
    assert [trial.method for trial in plan.trials] == [ANY]
