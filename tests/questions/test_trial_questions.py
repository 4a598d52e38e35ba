"""Questions about recorded trials: the same answer whenever they are asked, with tasks, budgets and ratios."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from policytest.results.load import parse


def log(outcomes, return_range=(0, 1), **labels):
    return pt.LoggedEpisodes(None, outcomes, return_range=return_range, **labels)


def successes(rate, n, seed, **labels):
    return log(np.random.default_rng(seed).random(n) < rate, **labels)


def both(n=60, more=0, **labels):
    return successes(0.75, n, 0, agent="new", **labels), successes(0.45, n + more, 1, agent="old", **labels)


def test_two_agents_by_their_names():
    verdict = pt.compare(*both(more=20))
    assert (verdict.answer, verdict.certified, verdict.counts.episodes) == ("above", True, 60)
    assert str(verdict).startswith("new is better than old (certified)")
    assert "not used: 20 of old" in str(verdict)
    assert verdict.samples < 120
    assert verdict.samples % 2 == 0
    assert verdict.estimate == pytest.approx(float(verdict.counts.returns.mean()))
    assert verdict.task.assumptions == (
        "trials are independent runs of their agent, each with the same success rate",
        "they are listed in the order in which they were made, and none was left out for its outcome",
        "outcomes lie in [0, 1]",
    )


def test_the_answer_and_its_evidence_stay_whatever_comes_later():
    a, b = both(200)
    verdict = pt.compare(a, b)
    pairs = verdict.samples // 2
    up_to = [pt.compare(log(a.reward[:n]), log(b.reward[:n])) for n in (pairs - 1, pairs, pairs + 1, 150)]
    assert [one.answer for one in up_to] == [None, "above", "above", "above"]
    assert {one.evidence for one in up_to[1:]} == {verdict.evidence}
    assert {one.samples for one in up_to[1:]} == {verdict.samples}


@pytest.mark.parametrize("labelled", [True, False])
def test_asked_after_every_row_it_is_the_same_test(labelled):
    """Rows of two agents in two tasks, in any order: each prefix has the evidence of its complete rounds."""
    rng = np.random.default_rng(4)
    rows, n = [(agent, task, seed) for agent in "AB" for task in "uv" for seed in range(14)], 56
    rows = [rows[i] for i in rng.permutation(n)]
    outcome = rng.random(n) < np.where([row[0] == "A" for row in rows], 0.9, 0.3)
    seen, answers = {}, []
    for upto in range(12, n + 1):
        logs = []
        for agent in "AB":
            own = [k for k in range(upto) if rows[k][0] == agent]
            labels = {"pair": [rows[k][2] for k in own]} if labelled else {}
            logs.append(log(outcome[own], task=[rows[k][1] for k in own], order=own, **labels))
        try:
            verdict = pt.compare(*logs)
        except pt.InputError:  # no pair is complete yet
            continue
        rounds = verdict.task.rounds
        assert seen.setdefault(rounds, verdict.evidence) == verdict.evidence
        answers.append(verdict.answer)
    assert answers == sorted(answers, key=lambda one: one is not None)
    assert answers[-1] == "above"


def test_pairs_by_their_seeds_need_fewer_trials_where_these_share_their_luck():
    rng = np.random.default_rng(0)
    luck = rng.random(200)
    seeds, other = np.arange(200), rng.permutation(200)
    a, b = log(luck < 0.7, pair=seeds), log(luck[other] < 0.5, pair=other)
    paired, apart = pt.compare(a, b), pt.compare(log(a.reward), log(b.reward))
    assert paired.answer == apart.answer == "above"
    assert paired.samples < 0.8 * apart.samples


def test_the_mean_over_tasks_and_each_task_by_itself():
    tasks = np.tile(["lift", "push", "turn"], 40)
    rates = np.tile([0.9, 0.5, 0.6], 40)
    rng = np.random.default_rng(3)
    a, b = log(rng.random(120) < rates, task=tasks), log(rng.random(120) < np.tile([0.2, 0.5, 0.4], 40), task=tasks)
    verdict = pt.compare(a, b)
    assert verdict.answer == "above"
    assert verdict.samples % 6 == 0
    assert [(one.task, one.answer, one.outcomes) for one in verdict.by_task] == [
        ("lift", "above", 40),
        ("push", None, 40),
        ("turn", None, 40),
    ]
    alone = [pt.compare(log(a.reward[k::3]), log(b.reward[k::3]), delta=0.05 / 3) for k in range(3)]
    assert [one.interval for one in alone] == [one.interval for one in verdict.by_task]
    assert "at delta = 0.05/3 each" in str(verdict)


def test_one_trial_of_each_of_many_tasks_may_suffice():
    rng, named = np.random.default_rng(5), np.arange(120)
    a, b = log(rng.random(120) < 0.7, task=named), log(rng.random(120) < 0.4, task=named)
    verdict = pt.compare(a, b)
    assert (verdict.answer, verdict.task.rounds, verdict.samples) == ("above", 1, 240)


def test_a_budget_needs_fewer_trials_and_no_later_ones():
    a, b = both(400)
    plain, aimed = pt.compare(a, b), pt.compare(a, b, budget=50)
    assert aimed.answer == "above"
    assert aimed.samples < plain.samples
    assert aimed.counts.episodes == 50
    assert "pairs of trials, fixed beforehand" in str(aimed)
    tie = pt.compare(successes(0.5, 80, 1), successes(0.5, 80, 2), budget=40)
    assert (tie.answer, tie.counts.episodes) == (None, 40)
    assert tie.reason == "the budget of 40 pairs of trials is used up"
    tasks = {"task": np.tile(["u", "v"], 40)}
    both_tasks = pt.compare(successes(0.8, 80, 1, **tasks), successes(0.4, 80, 2, **tasks), budget=30)
    assert (both_tasks.answer, both_tasks.counts.episodes) == ("above", 60)


def test_a_ratio_needs_fewer_trials_of_the_agent_that_is_scarce():
    a, b = successes(0.75, 60, 0), successes(0.45, 240, 1)
    plain, grouped = pt.compare(a, b), pt.compare(a, b, ratio=(1, 4))
    assert plain.answer == grouped.answer == "above"
    assert grouped.samples / 5 < plain.samples / 2
    assert grouped.counts.episodes == 60


def test_margins_zones_and_known_answers():
    assert pt.compare(*both(), margin=0.7).answer != "above"
    assert pt.compare(*both(), margin=1.5).answer == "below"
    same = pt.compare(successes(0.5, 3000, 1), successes(0.5, 3000, 2), indifference=0.1)
    assert (same.answer, same.certified) == ("within", True)
    assert min(same.refuted) >= same.required
    half = log([1.0, 2.0], return_range=(0, np.inf)), log([1.0, 0.5], return_range=(-np.inf, 2))
    with pytest.warns(pt.AssumptionWarning, match='only "above" can be answered'):
        assert pt.compare(*half).answer is None


def test_one_agent_against_a_threshold():
    trials = successes(0.9, 120, 1, agent="new", task=np.tile(["u", "v"], 60))
    verdict = pt.assess(trials, threshold=0.6)
    assert verdict.answer == "above"
    assert str(verdict).startswith("The success rate over all tasks is above the threshold (certified)")
    assert len(verdict.by_task) == 2
    aimed = pt.assess(successes(0.9, 120, 1), threshold=0.75, budget=60)
    assert (aimed.answer, aimed.counts.episodes) == ("above", 60)
    two = pt.instances.paper(2)
    with pytest.raises(pt.InputError, match="budget is for LoggedEpisodes"):
        pt.assess(two.task, pt.Counts(2, 2), 0.0, budget=5)


def test_several_agents():
    rates, tasks = {"a": 0.4, "b": 0.5, "c": 0.85}, np.tile(["u", "v"], 50)
    logs = [successes(rate, 100, k, agent=name, task=tasks) for k, (name, rate) in enumerate(rates.items())]
    found = pt.identify(logs)
    assert (found.policy, found.index, found.certified) == ("c", 2, True)
    assert [one.name for one in found.agents] == ["a", "b", "c"]
    assert "success rate over all tasks" in str(found)
    assert "2 tasks in rounds of trials in their order" in found.method
    assert pt.identify(logs, budget=30).reason.startswith("the budget of 30")
    with pytest.raises(pt.InputError, match="max_samples is for samples that are drawn"):
        pt.identify(logs, max_samples=10)


@pytest.mark.parametrize("seed", range(3))
def test_two_agents_are_identified_as_they_are_compared(seed):
    tasks = {"task": np.tile(["u", "v"], 40)}
    a, b = successes(0.7, 80, seed, **tasks), successes(0.4, 80, 100 + seed, **tasks)
    found, verdict = pt.identify([a, b]), pt.compare(a, b)
    assert found.answered == (verdict.answer is not None)
    assert found.samples == verdict.samples
    assert not found.answered or found.index == {"above": 0, "below": 1}[verdict.answer]


def test_a_saved_verdict_has_its_agents_and_tasks():
    tasks = {"task": np.tile(["u", "v"], 30)}
    verdict = pt.compare(*both(**tasks))
    again = parse(verdict.to_json(), "it")
    assert again.alongside.by_task == verdict.alongside.by_task
    assert str(again).splitlines()[0] == str(verdict).splitlines()[0] == "new is better than old (certified)"
    assert again.to_json() == verdict.to_json()


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (lambda a, b: pt.compare(a, pt.Episodes(lambda rng: 1.0, return_range=(0, 1))), "task_b is a Episodes"),
        (lambda a, b: pt.compare(a, b, lambda s, a, rng: s), "sim is for samples that are drawn"),
        (lambda a, b: pt.compare(a, b, max_samples=5), "max_samples is for samples that are drawn"),
        (lambda a, b: pt.compare(a, b, parallel=2), "parallel is for samples that are drawn"),
        (lambda a, b: pt.compare(a, b, ratio=(0, 1)), r"ratio is \(0, 1\); both must be at least 1"),
        (lambda a, b: pt.compare(a, b, ratio=2), "ratio is 2; pass two numbers"),
        (lambda a, b: pt.identify([a, 3]), r"agents\[1\] is a int"),
        (lambda a, b: pt.value_interval(successes(0.5, 4, 1, task=list("uvuv"))), "assess"),
    ],
)
def test_what_does_not_fit_is_refused(ask, message):
    with pytest.raises(pt.InputError, match=message):
        ask(*both(10))


def test_logs_with_propensities_are_no_trials():
    weighted = pt.LoggedEpisodes(None, [1.0], [0.5], [0.5], reward_range=(0, 1))
    with pytest.raises(pt.InputError, match="the log has propensities"):
        pt.compare(weighted, weighted)


@pytest.mark.parametrize("labels", [{}, {"task": ["u", "v"] * 30}])
def test_an_outcome_outside_its_range_ends_the_certificate(labels):
    with pytest.warns(pt.AssumptionWarning, match="is certified"):
        wide = log(np.random.default_rng(2).uniform(0.7, 1.2, 60), on_range="warn", agent="new", **labels)
    old = successes(0.2, 60, 1, **labels)
    verdicts = [pt.compare(wide, old), pt.compare(old, wide, budget=60), pt.assess(wide, threshold=0.5)]
    found = [*verdicts, pt.assess(wide, threshold=0.5, budget=60), pt.identify([wide, old], names=["new", "old"])]
    for one in found:
        assert one.certified is False
        assert "outside return_range (0, 1)" in str(one).splitlines()[0]


def test_ranges_that_the_outcomes_refute_prove_nothing():
    with pytest.warns(pt.AssumptionWarning, match="is certified"):
        wrong = log([0.5, 0.7], (5, 7), on_range="warn")
    old = log([0.0, 1.0])
    for verdict in (pt.compare(wrong, old), pt.assess(wrong, threshold=3), pt.assess(wrong, threshold=3, budget=9)):
        assert (verdict.answer, verdict.certified, verdict.samples) == ("above", False, 0)
        assert "outside return_range (5, 7)" in str(verdict)
    assert not pt.identify([wrong, old]).certified


def test_without_the_ends_that_bets_need_there_is_an_error_and_not_a_verdict():
    new, old = 0.5 * np.random.default_rng(0).random((2, 60)) + [[0.5], [0.0]]
    for ends in (None, (0, None), (None, 1)):
        a, b = log(new, ends), log(old, ends)
        with pytest.raises(pt.InputError, match="no known end"):
            pt.compare(a, b)
        with pytest.raises(pt.InputError, match="no agent can be thrown out"):
            pt.identify([a, b])
    with pytest.raises(pt.InputError, match="no known range"):
        pt.assess(log(new, None), threshold=0.5, budget=60)
    with pytest.warns(pt.AssumptionWarning, match='only "above"'):
        assert pt.compare(log(new, (0, None)), log(old, (None, 0.5))).answer == "above"
    with pytest.warns(pt.AssumptionWarning, match="large-sample"):
        assert pt.assess(pt.LoggedEpisodes(None, new - old), threshold=0.0).answer == "above"


def test_words_are_about_trials_and_declared_ranges():
    a, b = both()
    with pytest.warns(pt.AssumptionWarning, match="budget: 2 trials"):
        found = pt.identify([a, b], budget=2)
    assert "the budget of 2 trials is used up" in found.reason
    tied = pt.compare(log([1.0, 1.0], (1, 1)), log([1.0], (1, 1)))
    assert tied.reason == "the difference equals the margin by the declared ranges"
