"""Questions with a budget: it is kept, kept runs go on, and what has no budget says so."""

from __future__ import annotations

import json
import runpy
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import each
from paths import ROOT
from policytest.data.returns import Returns
from policytest.eprocess import aimed_interval
from policytest.eprocess.budget import aimed_capital
from policytest.methods.td_run import TDRun
from policytest.results.load import parse

MEDIAN = runpy.run_path(str(ROOT / "examples" / "median_returns.py"))["MEDIAN"]


def success(p, stream=0):
    """An agent that succeeds with this probability, independently of agents with another stream."""
    return pt.Episodes(
        lambda rng: [float(np.random.default_rng([stream, int(rng.integers(2**62))]).random() < p)],
        return_range=(0, 1),
    )


def uniform(mean, width=0.5):
    return pt.Episodes(lambda rng: [mean + width * (rng.random() - 0.5)], return_range=(0, 1))


@each(("agent", "threshold", "answer"), [(success(0.8), 0.5, "above"), (uniform(0.3), 0.5, "below")])
def test_a_large_gap_is_answered_before_the_budget_is_used_up(agent, threshold, answer):
    verdict = pt.decide(agent, threshold=threshold, budget=200)
    assert verdict.answer == answer
    assert verdict.certified
    assert verdict.counts.episodes < 100
    assert verdict.interval[0] >= threshold or verdict.interval[1] <= threshold
    assert verdict.provenance.budget == 200
    assert "200" in str(verdict)


def test_without_an_answer_the_run_stops_at_the_budget():
    verdict = pt.decide(success(0.5), threshold=0.5, budget=37, rng=3)
    assert (verdict.answer, verdict.counts.episodes) == (None, 37)
    assert verdict.reason == "the budget of 37 episodes is used up"
    assert not verdict.certified
    assert json.loads(verdict.to_json())["provenance"]["budget"] == 37


@each("agent", [success(0.6), uniform(0.55)])
def test_a_run_that_is_paused_goes_on_as_if_it_had_not_been(agent, tmp_path):
    kept = tmp_path / f"{id(agent)}.npz"
    whole = pt.decide(agent, threshold=0.5, budget=120, rng=5)
    part = pt.decide(agent, threshold=0.5, budget=120, rng=5, max_samples=31, checkpoint=kept)
    assert (part.answer, part.counts.episodes) == (None, 31)
    again = pt.decide(agent, threshold=0.5, budget=120, rng=5, resume=kept)
    assert (again.answer, again.samples, again.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_a_run_that_fails_at_its_first_episode_goes_on_from_its_checkpoint(tmp_path):
    works = []

    def run(rng):
        if not works:
            raise ConnectionError("not there yet")
        return [float(rng.random() < 0.6)]

    agent, kept = pt.Episodes(run, return_range=(0, 1)), tmp_path / "run.npz"
    with pytest.raises(ConnectionError):
        pt.decide(agent, threshold=0.5, budget=120, rng=5, checkpoint=kept)
    works.append(True)
    again = pt.decide(agent, threshold=0.5, budget=120, resume=kept)
    whole = pt.decide(agent, threshold=0.5, budget=120, rng=5)
    assert (again.answer, again.samples, again.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_a_run_that_is_stopped_before_its_first_episode_goes_on():
    agent = success(0.6)
    none = pt.decide(agent, threshold=0.5, budget=120, rng=5, max_seconds=1e-9)
    assert (none.answer, none.counts.episodes) == (None, 0)
    again, whole = (pt.decide(agent, threshold=0.5, budget=120, rng=5, resume=kept) for kept in (none, None))
    assert (again.answer, again.evidence) == (whole.answer, whole.evidence)


def test_a_larger_budget_goes_on_with_the_capital_that_is_left():
    agent = success(0.6)
    first = pt.decide(agent, threshold=0.5, budget=30, rng=3)
    assert first.answer is None
    more = pt.decide(agent, threshold=0.5, budget=600, resume=first)
    assert more.counts.episodes > 30
    assert more.counts.returns[:30].tolist() == first.counts.returns.tolist()
    with pytest.raises(pt.InputError, match=r"budget=30, or a larger"):
        pt.decide(agent, threshold=0.5, resume=first)
    with pytest.raises(pt.InputError, match=r"budget=30, or a larger"):
        pt.decide(agent, threshold=0.5, budget=20, resume=first)
    plain = pt.decide(agent, threshold=0.5, max_samples=10)
    with pytest.raises(pt.InputError, match="no budget"):
        pt.decide(agent, threshold=0.5, budget=20, resume=plain)


def test_comparisons_count_pairs():
    a, b = success(0.85, 1), success(0.4, 2)
    verdict = pt.compare(a, b, budget=100)
    assert verdict.answer == "above"
    assert verdict.counts.episodes <= 100
    assert pt.compare(b, a, budget=100).answer == "below"
    tie = pt.compare(a, success(0.85, 3), budget=20)
    assert (tie.answer, tie.counts.episodes) == (None, 20)
    assert "pairs of episodes" in str(tie)


def test_checks_stop_at_the_budget():
    *_, last = pt.checks(success(0.5), threshold=0.5, budget=12)
    assert (last.answer, last.episodes) == (None, 12)


@each("budget", [0, -3, 2.5, "ten", float("nan"), True])
def test_what_is_no_budget_is_refused(budget):
    with pytest.raises(pt.InputError, match="budget"):
        pt.decide(success(0.5), threshold=0.5, budget=budget)


def test_a_score_and_a_zone_have_a_budget_too():
    verdict = pt.decide(uniform(0.5, 0.2), threshold=0.5, indifference=0.2, budget=400)
    assert verdict.answer == "within"


def test_a_forecast_says_what_goes_on():
    verdict = pt.decide(success(0.5), threshold=0.5, budget=12, rng=3)
    assert "larger budget" in verdict.still_needed().words
    paused = pt.decide(success(0.5), threshold=0.5, budget=50, max_samples=12, rng=3)
    assert "38 episodes left" in paused.still_needed().words
    two = pt.instances.paper(2)
    table = two.task, pt.TabularSimulator(two.kernel), pt.value(two.task, two.kernel)
    assert "larger budget" in pt.decide(*table, budget=100).still_needed().words
    assert "60 transitions left" in pt.decide(*table, budget=100, max_samples=40).still_needed().words


def test_a_budget_that_is_too_small_for_an_answer_is_told():
    """19 of 20 returns must be earned: 0.95^n reaches delta after 59 perfect episodes."""
    perfect = pt.Episodes(lambda rng: [float(rng.random() < 2)], return_range=(0, 1))
    with pytest.warns(pt.AssumptionWarning, match='"above" cannot be answered within 58 episodes.*takes 59'):
        assert pt.decide(perfect, threshold=0.95, budget=58).answer is None
    assert pt.decide(perfect, threshold=0.95, budget=59).answer == "above"


def test_capital_that_was_not_touched_serves_the_next_budget_as_a_new_run():
    perfect = pt.Episodes(lambda rng: [float(rng.random() < 2)], return_range=(0, 1))
    with pytest.warns(pt.AssumptionWarning):
        first = pt.decide(perfect, threshold=0.95, budget=50)
    more = pt.decide(perfect, threshold=0.95, budget=50 + 59, resume=first)
    assert (more.answer, more.counts.episodes) == ("above", 50 + 59)


def between(low, high, stream=0):
    def run(rng):
        u = np.random.default_rng([stream, int(rng.integers(2**62))]).random()
        return [low * (1 - u) + high * u]

    return pt.Episodes(run, return_range=(low, high))


@pytest.mark.filterwarnings("ignore::policytest.AssumptionWarning")
@each("threshold", [1e-310, 1e-300, 1e-160, 1 - 1e-16])
def test_a_threshold_next_to_the_end_of_the_range_is_answered(threshold):
    verdict = pt.decide(between(0.0, 1.0), threshold=threshold, budget=20)
    assert verdict.answer == ("above" if threshold < 0.5 else "below")


def test_a_budget_that_can_never_be_large_enough_says_what_helps():
    with pytest.warns(pt.AssumptionWarning, match='"below" cannot be answered.*move the threshold'):
        pt.decide(between(0.0, 1.0), threshold=1e-160, budget=20)


def test_a_comparison_of_the_widest_ranges_ends_at_its_budget():
    """Their differences have a range that no number holds, so that nothing can be staked."""
    verdict = pt.compare(between(-1e308, 1e308), between(-1e308, 1e308, 1), budget=5)
    assert (verdict.answer, verdict.counts.episodes) == (None, 5)
    assert pt.decide(between(-1e308, 1e308), threshold=0.0, budget=5).counts.episodes == 5


@each("kind", ["two values", "pairs", "continuous"])
def test_answers_come_when_the_aimed_capital_of_a_side_reaches_its_level(kind):
    """The run and `aimed_capital` stake the same, on both sides."""
    agent = {"two values": success(0.45), "pairs": success(0.55, 1), "continuous": uniform(0.62)}[kind]
    for seed in range(5):
        if kind == "pairs":
            verdict = pt.compare(agent, success(0.4, 2), budget=60, rng=seed)
            x, bests = np.asarray(verdict.counts.returns), (1.0, 1.0)
        else:
            verdict = pt.decide(agent, threshold=0.55, budget=60, rng=seed)
            x, bests = verdict.counts.returns - 0.55, (0.45 / 0.55, 0.55 / 0.45)
        sides = x / (0.55 if bests[0] < 1 else 1.0), -x / (0.45 if bests[0] < 1 else 1.0)
        for z, best, answer in zip(sides, bests, ("above", "below"), strict=True):
            reached = aimed_capital(z, best, 0.05, 60, kind == "pairs") >= np.log(20.0)
            assert reached.any() == (verdict.answer == answer)
            assert not reached[:-1].any()


# ---------------------------------------------------------------- intervals


def test_an_estimate_is_the_interval_at_the_end_of_the_budget():
    found = pt.evaluate(success(0.7), budget=60, rng=2)
    assert (found.samples, found.budget, found.epsilon, found.reached) == (60, 60, None, True)
    assert found.certified
    plain = pt.evaluate(success(0.7), epsilon=1e-3, rng=2, max_samples=60)
    assert found.upper - found.lower < 0.9 * (plain.upper - plain.lower)
    assert "fixed beforehand" in str(found)
    again = parse(found.to_json(), "found.json")
    assert (str(again), again.budget, again.epsilon) == (str(found), 60, None)
    short = pt.evaluate(success(0.7), budget=60, rng=2, max_samples=20)
    assert (short.samples, short.reached) == (20, False)
    assert "the budget is not used up" in str(short)


def test_a_precision_ends_it_before_the_budget_is_used_up():
    found = pt.evaluate(uniform(0.5), epsilon=0.08, budget=400)
    assert found.reached
    assert found.samples < 200
    assert found.upper - found.lower <= 0.16
    with pytest.raises(pt.InputError, match=r"epsilon is missing.*or a budget"):
        pt.evaluate(success(0.5))


def test_scores_have_an_interval_at_the_end_too():
    median = replace(uniform(0.6), score=MEDIAN.score)
    found = pt.evaluate(median, budget=80, rng=1)
    assert found.lower < 0.6 < found.upper
    assert found.upper - found.lower < 0.3


@pytest.fixture
def few_cells(monkeypatch):
    monkeypatch.setattr(aimed_interval, "CELLS", 12)


def misses(agent, truth, runs):
    ends = [pt.evaluate(agent, delta=0.2, budget=20, rng=seed) for seed in range(runs)]
    return sum(not one.lower <= truth <= one.upper for one in ends)


@pytest.mark.usefixtures("few_cells")
@each(("agent", "truth"), [(success(0.85), 0.85), (uniform(0.3, 0.6), 0.3)])
def test_intervals_miss_the_value_as_rarely_as_promised(agent, truth):
    assert binom.sf(misses(agent, truth, 50) - 1, 50, 0.2) > 1e-6


@pytest.mark.usefixtures("few_cells")
def test_intervals_that_forgive_losses_miss_it(monkeypatch):
    """The control."""

    def generous(*about):
        steps = np.diff(aimed_capital(*about), prepend=0.0)
        return np.add.accumulate(np.maximum(steps, 0.1 * steps))

    monkeypatch.setattr(aimed_interval, "aimed_capital", generous)
    assert binom.sf(misses(success(0.85), 0.85, 50) - 1, 50, 0.2) < 1e-6


def test_recorded_episodes_have_an_interval_at_the_end_of_their_budget():
    returns = np.random.default_rng(0).random(120) < 0.7
    log = pt.LoggedEpisodes(None, returns, return_range=(0, 1))
    aimed, plain = pt.value_interval(log, budget=120), pt.value_interval(log)
    assert aimed.certified
    assert aimed.budget == 120
    assert aimed.width < 0.9 * plain.width
    assert pt.value_interval(pt.LoggedEpisodes(None, returns[:50], return_range=(0, 1)), budget=120).width < 0.6
    two = pt.instances.paper(2)
    weighted = pt.LoggedEpisodes(None, [1, 0], [0.5, 0.5], [0.9, 0.1], reward_range=(0, 1))
    for task, data, looks in ((log, None, "one"), (weighted, None, "any"), (two.task, pt.Counts(2, 2), "any")):
        with pytest.raises(pt.InputError, match="leave out budget"):
            pt.value_interval(task, data, looks=looks, budget=5)


# ---------------------------------------------------------------- searches, plans, limits


def test_logs_have_no_budget():
    two = pt.instances.paper(2)
    rng = np.random.default_rng(0)
    s, a = rng.integers(2, size=(2, 50))
    log = pt.Transitions(s, a, pt.TabularSimulator(two.kernel).draw(s, a, rng))
    about = two.task.rewards, two.task.initial, 0.9, log
    for ask in (
        lambda: pt.compare(two.task, "logged", log, budget=5),
        lambda: pt.compare(two.task, two.task, log, budget=5),
        lambda: pt.identify(*about, policies=[two.task.policy], budget=5),
        lambda: pt.evaluate(two.task, log, 0.1, budget=5),
    ):
        with pytest.raises(pt.InputError, match="budget is for a simulator"):
            ask()


def test_a_plan_finds_the_smallest_budget_that_answers():
    """Of the returns of the pilot: the exact test has a power of 0.859 at 50 for 0.5, 0.7."""
    pilot = Returns(np.repeat([1.0, 0.0], [70, 30]), np.ones(100, dtype=np.int64))
    found = pt.plan(success(0.7), pilot, threshold=0.5, power=0.86)
    assert 40 <= found.budget <= 60
    assert found.powered.share >= 0.86
    assert f"a budget of {found.budget} episodes answers with probability 0.86" in str(found)
    answers = [pt.decide(success(0.7), threshold=0.5, budget=found.budget, rng=seed).answer for seed in range(40)]
    answered = answers.count("above")
    assert min(binom.cdf(answered, 40, 0.9), binom.sf(answered - 1, 40, 0.8)) > 1e-4
    again = parse(found.to_json(), "plan.json")
    assert (again.powered, str(again)) == (found.powered, str(found))
    close = pt.plan(success(0.7), pilot, threshold=0.695, power=0.9, max_samples=100)
    assert close.budget is None
    assert "no budget up to 100 episodes" in str(close)
    for power in (0, 1.0, 2):
        with pytest.raises(pt.InputError, match="power is"):
            pt.plan(success(0.7), pilot, threshold=0.5, power=power)


def test_a_comparison_is_planned_in_pairs():
    a, b = success(0.85, 1), success(0.5, 2)
    found = pt.plan((a, b), power=0.8, runs=50)
    assert found.about == "difference"
    assert f"a budget of {found.budget} pairs of episodes" in str(found)
    assert 15 < found.budget < 80
    assert pt.plan((b, a), power=0.8, runs=50).value == -found.value
    with pytest.raises(pt.InputError, match=r"two Episodes \(a, b\)"):
        pt.plan([a], power=0.8)


# ---------------------------------------------------------------- tables, whose runs are aimed by a stand-in


@pytest.fixture
def shares(monkeypatch):
    """What runs on rollouts are told to aim at; they bet as without a budget."""
    found = []
    monkeypatch.setattr(TDRun, "aim_at", lambda run, budget, pairs=False: found.append(budget))
    return found


def rivals():
    """Three policies of the paper's instance with five states, and what `identify` wants."""
    five = pt.instances.paper(5)
    policies = [five.task.policy, five.alternative_policy, np.eye(5)[np.zeros(5, dtype=int)]]
    return (five.task.rewards, five.task.initial, 0.9, pt.TabularSimulator(five.kernel)), policies


def test_comparisons_share_the_budget_of_a_search(shares):
    about, policies = rivals()
    found = pt.identify(*about, policies=policies, budget=60_000, rng=1)
    assert found.answered
    assert found.certified
    assert found.budget == 60_000
    assert shares[0] == 30_000
    assert 30_000 < shares[-1] <= 60_000
    assert "fixed beforehand" in str(found)
    assert parse(found.to_json(), "x").budget == 60_000
    assert found.index == pt.identify(*about, policies=policies, rng=1).index


def test_a_search_stops_at_its_budget(shares):
    about, policies = rivals()
    found = pt.identify(*about, policies=policies, budget=70, rng=1)
    assert (found.answered, found.certified, found.samples) == (False, False, 70)
    assert found.reason == "the budget of 70 transitions is used up"
    assert shares == [35]
    limited = pt.identify(*about, policies=policies, budget=70, rng=1, max_samples=30)
    assert limited.reason == "the sample limit is reached"


def test_searches_among_all_policies_and_by_kl_have_no_budget():
    about, policies = rivals()
    for more in ({}, {"policies": policies, "method": pt.PTST()}):
        with pytest.raises(pt.InputError, match=r"pass policies=\[\.\.\.\] and no method"):
            pt.identify(*about, budget=100, **more)


def test_tables_are_evaluated_and_planned_with_a_budget(shares):
    two = pt.instances.paper(2)
    sim = pt.TabularSimulator(two.kernel)
    assert pt.evaluate(two.task, sim, 0.5, budget=4000).budget == 4000
    planned = pt.plan(two.task, two.kernel, threshold=0.0, power=0.8, methods={}, runs=20)
    assert shares[0] == 4000
    assert planned.budget in shares
    assert planned.powered.unit == "transitions"
    assert 0.8 <= planned.powered.share <= 1
