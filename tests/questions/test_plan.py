"""Plans: predicted means against measured ones, ranges that cover, and further samples that do settle it."""

from __future__ import annotations

import json
import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse
from scipy.stats import binom, chi2

import policytest as pt
from builders import drawn_counts, each, known_task
from policytest import report
from policytest.data.randomness import generator
from policytest.questions.plan.expected import Prospect
from policytest.questions.plan.plan import UNSURE, plan, still_needed
from policytest.questions.plan.posterior import Posterior
from policytest.results.plan import Plan

FAST = pt.PTST(solver=pt.ProjectionFree())
SHAPES = [(2, 2, None), (3, 2, None), (4, 2, None), (5, 3, None), (6, 2, 3), (8, 2, None)]
INSTANCES = range(8)  # `benchmarks/planning.py` looks at 150
ALARM = 1e-3  # one test in so many may fail by chance, at other seeds


def problem(index):
    """A random instance and a threshold 20, 25 or 30% of the way to one end of the value range."""
    S, A, successors = SHAPES[index % len(SHAPES)]
    instance = pt.instances.random(index, S, A, successors=successors)
    at, ends = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    return instance, at + (0.2, 0.25, 0.3)[index % 3] * (ends[index % 2] - at)


MEASURED: dict[tuple, float] = {}


def measured(instance, threshold, method, runs):
    """The mean stopping time; what was measured once is not measured again."""
    key = instance.kernel.tobytes(), threshold, method.describe(), runs
    if key not in MEASURED:
        sim = pt.TabularSimulator(instance.kernel)
        found = [pt.stopping_times(instance.task, sim, threshold, method=method, rng=10**6 + i) for i in range(runs)]
        MEASURED[key] = float(np.mean([run.samples[0] for run in found]))
    return MEASURED[key]


def study(indices, draws=50, runs=24, measurements=30):
    """{method: [(predicted / measured, covered, high / low of the range)]} of plans from pilots on random instances."""
    table: dict[str, list] = {}
    for index in indices:
        instance, threshold = problem(index)
        pilot = drawn_counts(instance, draws, np.random.default_rng(index))
        found = plan(instance.task, pilot, threshold, runs=runs, rng=index)
        for name, (mean, low, high) in found.samples.items():
            true = measured(instance, threshold, found.methods[name], measurements)
            table.setdefault(name, []).append((mean / true, low <= true <= high, high / low))
    return table


# ---------------------------------------------------------------- accuracy


@pytest.mark.calibration
def test_ranges_cover_the_true_mean_and_predictions_are_near_where_the_pilot_says_so():
    """Nine times in ten is promised, for each method. (Eight instances say little; the benchmark says 90% and more.)

    Within a factor of one and a half where the stated range spans less than a factor of 2.7; elsewhere 50 draws a pair
    do not tell.
    """
    studied = study(INSTANCES)
    for name, rows in studied.items():
        assert binom.cdf(sum(row[1] for row in rows), len(rows), 0.9) >= ALARM, name
    sure = [ratio for rows in studied.values() for ratio, _, width in rows if width < 2.7]
    assert len(sure) >= 9
    assert np.mean([1 / 1.5 < ratio < 1.5 for ratio in sure]) >= 0.8


def test_plans_say_how_sure_they_are():
    """With twenty times the draws the gap is known better, and so is the mean; KL rules need it most."""
    instance, threshold = problem(18)
    few, many = (
        plan(instance.task, drawn_counts(instance, n, np.random.default_rng(18)), threshold, runs=48) for n in (40, 800)
    )
    for name in few.samples:
        assert few.sure[name] < many.sure[name]
        assert f"with probability {round(many.sure[name], 2):.4g}" in str(many)
    assert few.sure["PTST, uniform"] < few.sure["TDBetting"]
    assert plan(instance.task, instance.kernel, threshold, methods=[FAST], runs=4).sure == {}


def test_the_posterior_knows_how_well_it_knows_the_gap():
    """The true gap, in standard errors from the pilot's, is a standard normal variable, about."""
    off, many = [], 36
    for index in range(many):
        instance, threshold = problem(index)
        rng = np.random.default_rng(index)
        posterior = Posterior(instance.task, threshold, drawn_counts(instance, 50, rng), rng)
        off.append((pt.value(instance.task, instance.kernel) - threshold - posterior.middle) / posterior.gaps.std())
    assert abs(np.mean(off)) < 4 / math.sqrt(many)
    assert chi2.cdf(np.sum(np.square(off)), many) > ALARM
    assert chi2.sf(np.sum(np.square(off)), many) > ALARM
    assert chi2.sf(4 * np.sum(np.square(off)), many) < ALARM  # half the error would be noticed


@pytest.mark.calibration
def test_a_range_that_ignores_the_uncertainty_of_the_pilot_does_not_cover():
    """Negative control: at the empirical kernel the Monte-Carlo range misses the truth more often than not."""
    missed = 0
    for index in INSTANCES:
        instance, threshold = problem(index)
        guess = drawn_counts(instance, 50, np.random.default_rng(index)).kernel()
        _, low, high = plan(instance.task, guess, threshold, methods={"": FAST}, runs=48, rng=index).samples[""]
        missed += not low <= measured(instance, threshold, FAST, 30) <= high
    assert missed >= 5


@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_papers_instances(n):
    """A right guess predicts right, for methods that were measured independently (see test_stopping_times)."""
    instance = pt.instances.paper(n)
    found = plan(instance.task, instance.kernel, threshold=0.0, runs=8 if n == 5 else 24)
    known = {2: 350, 3: 17300, 5: 19750}[n]
    mean, low, high = found.samples["PTST, uniform"]
    assert abs(mean / known - 1) < 0.2
    assert low < mean < high
    assert found.samples["PTST, best allocation"][0] < mean
    for name in found.samples:
        assert found.samples[name][0] > found.bound
    assert found.samples["TDBetting"][0] < 1250
    assert found.time[0] <= found.allocation.time <= found.time[1] < 1.05 * found.time[0]
    assert found.saving == pytest.approx(
        pt.characteristic_time(instance.task, instance.kernel).time / found.allocation.time, rel=1e-6
    )
    assert 1.1 < found.saving < 1.8


@pytest.mark.parametrize(
    ("n", "boundary"), [(2, pt.MixtureBoundary()), (3, pt.MixtureBoundary()), (5, pt.PaperBoundary())]
)
def test_the_expected_evidence_stands_for_a_simulation(n, boundary):
    instance = pt.instances.paper(n)
    prospect = Prospect(instance.task, 0.0, 0.05, instance.kernel, boundary)
    even = np.full((n, n), 1 / n**2)
    rate = 1 / pt.characteristic_time(instance.task, instance.kernel).time
    expected = prospect.time(lambda t: t * even, lambda t: t * rate)
    method = pt.PTST(boundary=boundary, solver=pt.ProjectionFree())
    assert abs(expected / measured(instance, 0.0, method, 30) - 1) < (0.2 if n == 2 else 0.07)


def test_the_bound_is_that_of_the_paper():
    instance = pt.instances.paper(2)
    found = plan(instance.task, instance.kernel, threshold=0.0, delta=0.01, methods={}, runs=2)
    kl = 0.01 * math.log(0.01 / 0.99) + 0.99 * math.log(0.99 / 0.01)
    assert found.bound == pytest.approx(found.time[0] * kl)
    assert found.samples == {}
    assert plan(instance.task, instance.kernel, threshold=0.0, delta=0.7, methods={}).bound == 0.0


# ---------------------------------------------------------------- guesses of all kinds


def test_several_kernels_give_the_range_between_them():
    instance = pt.instances.paper(2)
    far, near = (plan(instance.task, q, -0.1, methods={"": FAST}, runs=40) for q in _two(instance))
    both = plan(instance.task, _two(instance), -0.1, methods={"": FAST}, runs=40)
    mean, low, high = both.samples[""]
    assert low <= far.samples[""][0] * 1.2
    assert high >= near.samples[""][0] / 1.2
    assert far.samples[""][0] < mean < near.samples[""][0]
    assert (far.guesses, both.guesses) == (1, 2)


def _two(instance):
    even = np.full_like(instance.kernel, 0.5)
    return [instance.kernel, 0.8 * instance.kernel + 0.2 * even]


def test_sparse_and_dense_guesses_agree():
    instance = pt.instances.paper(3)
    flat = sparse.csr_array(instance.kernel.reshape(9, 3))
    first, second = (
        plan(instance.task, q, threshold=0.0, methods={"": pt.TDBetting()}, runs=4) for q in (instance.kernel, flat)
    )
    assert first.samples == second.samples
    mixed = plan(instance.task, [instance.kernel, flat], threshold=0.0, methods={"": pt.TDBetting()}, runs=4)
    assert mixed.value == pytest.approx(first.value)
    listed = plan(instance.task, instance.kernel.tolist(), threshold=0.0, methods={"": pt.TDBetting()}, runs=4)
    assert listed.samples == first.samples


def test_a_guess_that_does_not_say_the_side_is_reported():
    instance = pt.instances.paper(2)
    pilot = drawn_counts(instance, 10, np.random.default_rng(0))
    threshold = pt.value(instance.task, pilot.kernel())
    found = plan(
        instance.task, pilot, threshold, methods={"bet": pt.TDBetting(), "KL": FAST}, runs=16, max_samples=5000
    )
    assert all(high == math.inf for _, _, high in found.samples.values())
    assert UNSURE in str(found)
    below, above = instance.kernel, np.full_like(instance.kernel, 0.5)
    ends = sorted(pt.value(instance.task, q) for q in (below, above))
    split = plan(instance.task, [below, above], sum(ends) / 2, methods={"KL": FAST}, runs=4)
    assert UNSURE in str(split)


def test_a_guess_on_the_threshold_needs_no_end_of_samples():
    instance = pt.instances.paper(2)
    found = plan(instance.task, instance.kernel, pt.value(instance.task, instance.kernel), runs=4)
    assert found.time == (math.inf, math.inf)
    assert found.bound == math.inf
    assert all(mean == math.inf for mean, _, _ in found.samples.values())
    assert found.summary.title == "No number of samples is enough"
    assert str(found).count("without end") == 3
    assert "indifference" in str(found)
    assert "inf" not in str(found).replace("infinite", "").replace("indifference", "")
    data = json.loads(found.to_json(), parse_constant=pytest.fail)
    assert data["bound"] == "inf" == data["samples"]["TDBetting"][0]
    assert data["at_least"] == sorted(found.samples)


def test_runs_that_are_cut_are_lower_bounds():
    instance = pt.instances.paper(2)
    near = pt.value(instance.task, instance.kernel) - 1e-3
    found = plan(instance.task, instance.kernel, near, methods={"bet": pt.TDBetting()}, max_samples=1000)
    assert found.at_least == {"bet"}
    assert found.samples["bet"][0] == found.bound > 1000  # no test needs fewer
    assert found.samples["bet"][2] == math.inf
    assert found.summary.title.startswith("bet: at least")
    assert json.loads(found.to_json())["at_least"] == ["bet"]
    pilot = pt.Counts.from_array(np.rint(10**6 * instance.kernel))
    assert plan(instance.task, pilot, near, methods={"bet": pt.TDBetting()}, max_samples=1000).at_least == {"bet"}


def test_a_threshold_out_of_reach_needs_no_samples():
    instance = pt.instances.paper(2)
    for guess in (instance.kernel, drawn_counts(instance, 5, np.random.default_rng(1))):
        found = plan(instance.task, guess, 100.0, runs=4)
        assert all(samples[0] <= 1 for samples in found.samples.values())
        assert found.bound == 0.0


def test_an_empty_pilot_says_little():
    instance = pt.instances.paper(2)
    found = plan(instance.task, pt.Counts(2, 2), 0.0, runs=8, max_samples=2000)
    assert all(high == math.inf for _, _, high in found.samples.values())


def test_large_sparse_tasks_are_planned_for():
    instance = pt.instances.random(3, 300, 2, successors=4)
    at, (low, _) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    found = plan(instance.task, instance.kernel, at + 0.3 * (low - at), runs=2)
    assert found.time[1] == math.inf
    assert found.saving > 1.2
    assert found.samples["PTST, best allocation"][0] < found.samples["PTST, uniform"][0]
    assert found.samples["TDBetting"][0] < 1000


# ---------------------------------------------------------------- form


def test_the_same_seed_gives_the_same_plan():
    instance = pt.instances.paper(2)
    pilot = drawn_counts(instance, 50, np.random.default_rng(0))
    plans = [plan(instance.task, pilot, threshold=0.0, methods=[pt.TDBetting()], runs=16, rng=rng) for rng in (7, 7, 8)]
    assert plans[0].to_json() == plans[1].to_json() != plans[2].to_json()
    again = [plan(instance.task, pilot, 0.0, methods=[pt.TDBetting()], runs=16, rng=generator(7)) for _ in range(2)]
    assert again[0].samples == again[1].samples == plans[0].samples


def test_json_and_html_say_what_the_text_says():
    instance = pt.instances.paper(2)
    found = plan(instance.task, instance.kernel, threshold=0.0, methods=[pt.TDBetting(), pt.TDBetting()], runs=4)
    data = json.loads(found.to_json())
    assert data["schema"] == 1
    assert {name: tuple(row) for name, row in data["samples"].items()} == found.samples
    assert len(found.samples) == 2
    assert data["time"] == list(found.time)
    assert np.allclose(data["allocation"], found.allocation.weights)
    assert data["guesses"] == found.guesses == 1
    assert found.summary.title in found._repr_html_()
    assert isinstance(found, Plan)


@each(
    ("change", "words"),
    [
        ({"task": None}, "task is a NoneType"),
        ({"guess": np.ones((2, 2))}, "guess has shape"),
        ({"guess": np.ones((2, 2, 2))}, "guess at .* sums to 2"),
        ({"guess": []}, "guess is empty"),
        ({"guess": pt.Counts(3, 2)}, "guess has shape"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"delta": 1.5}, "delta is 1.5"),
        ({"methods": pt.TDBetting}, "methods is"),
        ({"methods": [pt.TDBetting]}, "must be an instance"),
        ({"methods": {"a": 3}}, r"methods\['a'\] must be an instance, .*; got 3"),
        ({"runs": 1}, "runs is 1; it must be at least 2"),
        ({"runs": 2.5}, "runs is 2.5"),
        ({"max_samples": 0}, "max_samples is 0"),
    ],
)
def test_bad_input_is_named(change, words):
    instance = pt.instances.paper(2)
    with pytest.raises(pt.InputError, match=words):
        plan(**{"task": instance.task, "guess": instance.kernel, "threshold": 0.0, **change})


# ---------------------------------------------------------------- what is still needed


def further(index, draws, chance):
    """Whether the samples asked for settle it; None where there is nothing to ask."""
    instance, threshold = problem(index)
    rng = np.random.default_rng(index)
    counts = drawn_counts(instance, draws, rng)
    verdict = pt.assess(instance.task, counts, threshold, method=FAST)
    if verdict.answer is not None:
        return None
    needed = still_needed(verdict, methods={}, chance=chance)
    if needed.samples == math.inf:
        return None
    assert needed.pairs.sum() == needed.samples >= needed.expected
    return (
        pt.assess(instance.task, drawn_counts(instance, needed.pairs, rng, counts), threshold, method=FAST).answer
        is not None
    )


def test_the_samples_asked_for_settle_it_as_often_as_stated():
    outcomes = [further(index, 30, 0.8) for index in range(20)]
    settled = [outcome for outcome in outcomes if outcome is not None]
    assert len(settled) >= 15
    assert binom.cdf(sum(settled), len(settled), 0.8) > ALARM
    assert sum(settled) > 0.6 * len(settled)


def test_a_greater_chance_asks_for_more_and_the_best_allocation_for_fewer():
    instance, threshold = problem(3)
    verdict = pt.assess(instance.task, drawn_counts(instance, 40, np.random.default_rng(0)), threshold, method=FAST)
    half, most = (still_needed(verdict, methods={}, chance=chance) for chance in (0.5, 0.9))
    assert half.expected == half.samples < most.samples
    assert most.samples < most.uniform
    assert verdict.answer is None


def test_the_answer_names_pairs_and_a_new_run():
    instance = pt.instances.grid_world(3, 2)
    counts = drawn_counts(instance, 5, np.random.default_rng(0))
    at = pt.value(instance.task, instance.kernel)
    needed = still_needed(pt.assess(instance.task, counts, at - 1.0), runs=8)
    assert list(needed.fresh) == ["TDBetting"]
    assert "from (s=" in needed.words
    assert "'" in needed.words  # names of actions
    data = json.loads(needed.to_json())
    assert data["schema"] == 1
    assert np.array_equal(data["pairs"], needed.pairs)
    assert data["samples"] == needed.samples
    assert needed.words in str(needed)
    assert needed._repr_html_().count("<tr>") == 6


def test_data_that_do_not_say_the_side_need_no_end_of_samples():
    instance = pt.instances.paper(2)
    counts = drawn_counts(instance, 20, np.random.default_rng(0))
    verdict = pt.assess(instance.task, counts, pt.value(instance.task, counts.kernel()) - 1e-3)
    needed = still_needed(verdict, methods={})
    assert needed.samples == needed.uniform == math.inf > needed.expected
    assert needed.pairs.sum() == 0
    assert "do not say" in needed.words
    nothing = still_needed(pt.assess(instance.task, pt.Counts(2, 2), threshold=0.0), methods={})
    assert nothing.samples == math.inf


def test_a_run_that_was_limited_and_one_that_is_decided():
    instance = pt.instances.paper(3)
    sim = pt.TabularSimulator(instance.kernel)
    verdict = pt.decide(instance.task, sim, threshold=0.0, max_samples=100)
    assert verdict.answer is None
    limited = still_needed(verdict, methods={})
    assert limited.samples == limited.pairs.sum() > limited.expected > 0
    assert limited.uniform is None
    assert "resumed" in limited.method
    decided = still_needed(pt.decide(instance.task, sim, threshold=0.0))
    assert decided.samples == decided.uniform == 0
    assert decided.words == "No more samples are needed."


def test_runs_that_go_on_end_within_what_was_said_as_often_as_stated():
    """Betting, stopped at 100 samples and resumed; by the kernels that the counts leave possible."""
    outcomes = []
    for index in range(18):
        instance, threshold = problem(index)
        sim = pt.TabularSimulator(instance.kernel)
        verdict = pt.decide(instance.task, sim, threshold, method=pt.TDBetting(), rng=index, max_samples=60)
        if verdict.answer is not None:
            continue
        more = verdict.still_needed(0.8, rng=index, max_samples=2000).samples
        if more < math.inf:
            again = pt.decide(
                instance.task, sim, threshold, method=pt.TDBetting(), max_samples=60 + int(more), resume=verdict
            )
            outcomes.append(again.answer is not None)
    assert len(outcomes) >= 10
    assert binom.cdf(sum(outcomes), len(outcomes), 0.8) > ALARM
    assert sum(outcomes) > 0.55 * len(outcomes)


def test_an_undecided_verdict_says_how_many_more_where_that_was_asked():
    """Printing computes nothing: it names the function to call, or shows the forecast that was kept."""
    instance, threshold = problem(3)
    counts = drawn_counts(instance, 40, np.random.default_rng(0))
    for method, words in ((FAST, "more samples should settle it, "), (pt.PTST(boundary=pt.PaperBoundary()), "more")):
        verdict = pt.assess(instance.task, counts, threshold, method=method)
        assert verdict.answer is None
        assert "Call still_needed()" in str(verdict)
        assert json.loads(verdict.to_json())["still_needed"] is None
        kept = replace(verdict, forecast=replace(verdict.forecast, needed=verdict.still_needed()))
        assert kept.forecast.needed.words in str(kept)
        assert words in str(kept)
        assert json.loads(kept.to_json())["still_needed"]["samples"] == verdict.still_needed().samples
    mixture, paper = (
        pt.assess(instance.task, counts, threshold, method=pt.PTST(boundary=boundary)).still_needed().samples
        for boundary in (pt.MixtureBoundary(), pt.PaperBoundary())
    )
    assert paper > 1.2 * mixture  # the rule of the verdict itself
    rng = np.random.default_rng(3)
    pair = rng.permutation(np.repeat(np.arange(15), 20))
    log = pt.Transitions(pair // 3, pair % 3, pt.TabularSimulator(instance.kernel).draw(pair // 3, pair % 3, rng))
    replayed = pt.assess(instance.task, log, threshold, delta=1e-6)
    assert replayed.answer is None
    assert "more rows like these should settle it, " in replayed.still_needed().words
    decided = pt.decide(instance.task, pt.TabularSimulator(instance.kernel), threshold)
    assert json.loads(decided.to_json())["still_needed"] is None


def test_a_zone_is_kept_by_a_run_that_goes_on():
    instance = pt.instances.paper(2)
    at, sim = pt.value(instance.task, instance.kernel), pt.TabularSimulator(instance.kernel)
    with_zone, without = (
        pt.decide(instance.task, sim, at, max_samples=200, indifference=eps).still_needed(max_samples=3000).samples
        for eps in (0.3, 0.0)
    )
    assert with_zone < without == math.inf


def test_where_nothing_is_unknown_a_plan_is_made_at_once():
    task, kernel = known_task()
    for guess in (kernel, pt.Counts(2, 1)):
        found = plan(task, guess, 0.0)
        assert set(found.samples.values()) == {(0.0, 0.0, 0.0)}
        assert (found.allocation, found.bound, found.value) == (None, 0.0, pytest.approx(8 / 3))
        assert "nothing to sample" in str(found)
        assert json.loads(found.to_json())["allocation"] is None
    on_it = plan(task, kernel, pt.value(task, kernel))
    assert on_it.bound == math.inf
    assert "No number of samples" in str(on_it)
    verdict = pt.decide(task, pt.TabularSimulator(kernel), pt.value(task, kernel))
    assert still_needed(verdict).words.startswith("No samples can settle it")
    assert still_needed(verdict).samples == math.inf


def log_of(instance, n, seed):
    """A log of a random instance, pairs uniform."""
    rng, (S, A) = np.random.default_rng(seed), instance.task.policy.shape
    pair = rng.integers(S * A, size=n)
    return pt.Transitions(pair // A, pair % A, pt.TabularSimulator(instance.kernel).draw(pair // A, pair % A, rng))


FORECASTS = [(0, 4, 2, 0.01, "bound"), (0, 4, 2, 0.03, "cut"), (2, 20, 3, 0.01, "bound"), (2, 20, 3, 0.15, "number")]


@each(("seed", "states", "actions", "part", "kind"), FORECASTS)
def test_a_forecast_is_never_below_the_lower_bound_and_never_its_own_limit(seed, states, actions, part, kind):
    """It says what is enough, or what was simulated, or the bound: in its text, its page and its JSON."""
    instance, limit = pt.instances.random(seed, states, actions), 3000
    at, (low, _) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    rows = 2000 if kind != "number" else 300
    verdict = pt.assess(instance.task, log_of(instance, rows, seed), at + part * (low - at))
    assert verdict.answer is None
    found = verdict.still_needed(max_samples=limit)
    least = max(math.ceil(verdict.lower_bound) - verdict.samples, 0)
    assert found.least == least
    assert min(found.samples, found.expected) >= least
    assert kind == ("number" if found.samples < math.inf else "bound" if least > limit else "cut")
    data, more = json.loads(found.to_json()), f"{limit:,}"
    kept = replace(verdict, forecast=replace(verdict.forecast, needed=found))
    for text in (found.words, str(found), found._repr_html_(), str(kept), report.render(kept)):
        if kind == "bound":
            assert more not in text
            assert f"{least:,} more rows like these" in text or text == found._repr_html_()
        assert more not in text.replace(f"reached an answer within {more} more rows", "")
        assert "infinite" not in text
    if kind == "cut":
        runs, settled = found.simulated.runs, found.simulated.settled
        assert 0 < settled < 0.8 * runs
        assert f"{settled} of {runs} simulated tests" in found.words
        assert data["simulated"] == {"runs": runs, "settled": settled, "most": limit, "unit": "rows like these"}
    if kind == "bound":
        assert data["simulated"] is None
        assert data["least"] == least


@pytest.mark.calibration
def test_a_comparison_on_a_log_is_forecast(monkeypatch):
    """About as often as stated so many more rows settle it: of 13, so that an eighth of the rows would be noticed."""
    monkeypatch.setattr("policytest.questions.plan.still_needed.LOGS", 10)
    two = pt.instances.paper(2)
    other = pt.Task(two.task.rewards, two.alternative_policy, two.task.initial, two.task.discount)
    settled, early, asked = 0, 0, 0

    def compared(rows):
        return pt.compare(two.task, other, rows, margin=-0.5)

    for seed in range(13):
        log = log_of(two, 4000, seed)
        verdict = compared(log.first(60))
        if verdict.answer is not None:
            continue
        assert verdict.may_be_forecast
        assert "still_needed()" in str(verdict)
        needed = still_needed(verdict, rng=seed, max_samples=1000)
        if needed.samples == math.inf:
            assert "is not known" in needed.words
            continue
        asked += 1
        assert "more rows like these should settle it" in needed.words
        assert needed.pairs.sum() == needed.samples
        settled += compared(log.first(60 + int(needed.samples))).answer is not None
        early += compared(log.first(60 + int(needed.samples) // 8)).answer is not None
    assert asked >= 8
    assert binom.cdf(settled, asked, 0.8) > ALARM
    assert binom.cdf(early, asked, 0.8) < ALARM
    assert still_needed(compared(log_of(two, 4000, 0))).samples == 0
    assert not compared(log_of(two, 0, 0)).counts.total


def test_single_runs_vary_more_than_their_mean_is_unknown():
    """Nine single runs in ten are in the range that a plan states for them. Control: not in that of the mean."""
    instance, threshold = problem(3)
    found = plan(instance.task, instance.kernel, threshold, methods={"bet": pt.TDBetting()}, runs=64)
    sim = pt.TabularSimulator(instance.kernel)
    new = [pt.decide(instance.task, sim, threshold, method=pt.TDBetting(), rng=1000 + i).samples for i in range(60)]
    for (low, high), fits in ((found.runs["bet"], True), (found.samples["bet"][1:], False)):
        inside = sum(low <= samples <= high for samples in new)
        assert (binom.cdf(inside, len(new), 0.85) > ALARM) == fits
    words = "nine runs in ten take"
    assert words in str(found)
    assert words in report.render(found)
    assert "a single run may need fewer" in str(found)
    assert json.loads(found.to_json())["runs"] == {"bet": list(found.runs["bet"])}
    assert plan(instance.task, instance.kernel, threshold, methods={"bet": pt.TDBetting()}, runs=4).runs == {}


def test_recorded_episodes_have_no_forecast():
    rng, n = np.random.default_rng(0), 40
    odds = np.full(n, 0.5)
    log = pt.LoggedEpisodes(np.arange(n), rng.random(n), odds, odds, reward_range=(0, 1), smallest_propensity=0.5)
    verdict = pt.assess(log, threshold=0.5)
    assert verdict.answer is None
    assert not verdict.may_be_forecast
    for ask in (still_needed, pt.Verdict.still_needed):
        with pytest.raises(pt.InputError, match="recorded episodes"):
            ask(verdict)


def test_a_comparison_that_draws_samples_has_no_such_number():
    one, two = pt.instances.paper(2), pt.instances.paper(2)
    other = pt.Task(two.task.rewards, two.alternative_policy, two.task.initial, two.task.discount)
    verdict = pt.compare(one.task, other, pt.TabularSimulator(one.kernel), max_samples=20)
    with pytest.raises(pt.InputError, match="compares two policies"):
        still_needed(verdict)


@each(("change", "words"), [({"verdict": None}, "verdict is"), ({"chance": 0.4}, "chance is 0.4")])
def test_bad_input_to_still_needed_is_named(change, words):
    instance = pt.instances.paper(2)
    verdict = pt.assess(instance.task, pt.Counts(2, 2), threshold=0.0)
    with pytest.raises(pt.InputError, match=words):
        still_needed(**{"verdict": verdict, **change})


def test_printing_an_undecided_verdict_simulates_nothing(monkeypatch):
    """Negative control: the forecast itself does start runs."""
    two, started = pt.instances.paper(2), []
    start = pt.TDBetting.start
    sim = pt.TabularSimulator(two.kernel)
    verdict = pt.decide(two.task, sim, 0.0, delta=1e-6, method=pt.TDBetting(), max_samples=50)
    monkeypatch.setattr(pt.TDBetting, "start", lambda *given: started.append(1) or start(*given))
    assert verdict.answer is None
    assert str(verdict)
    assert verdict._repr_html_()
    assert verdict.to_json()
    assert not started
    verdict.still_needed(max_samples=5_000)
    assert started


# ---------------------------------------------------------------- forecasts beyond the discounted table


def with_horizon(S=16, H=3):
    """More states than steps, and more pairs than the best allocation is sought for without a shortcut."""
    rng = np.random.default_rng(0)
    kernel = rng.dirichlet(np.ones(S), (S, 2))
    task = pt.Task(rng.random((S, 2)), np.full((S, 2), 0.5), np.eye(S)[0], 1.0, horizon=H)
    return task, kernel, pt.value(task, kernel)


def test_the_kl_rule_forecasts_with_a_horizon():
    """Of a run, and of a log in its order."""
    task, kernel, bar = with_horizon(8)
    verdict = pt.decide(task, pt.TabularSimulator(kernel), threshold=bar, method=pt.PTST(), max_samples=60)
    assert 1_000 < verdict.still_needed().expected < 1e7
    rng = np.random.default_rng(1)
    s, a = rng.integers(0, 8, 100), rng.integers(0, 2, 100)
    x = pt.TabularSimulator(kernel).draw(s, a, rng)
    verdict = pt.assess(task, pt.Transitions(s, a, x), bar, method=pt.PTST())
    assert verdict.answer is None
    assert 1_000 < verdict.still_needed().expected < 1e7


@pytest.mark.parametrize("kind", ["horizon", "goal", "observed", "discounted"])
def test_nothing_is_forecast_from_no_data(kind):
    task, _, bar = with_horizon()
    policy, initial = task.policy, task.initial
    task = {
        "horizon": task,
        "goal": pt.Task.reaching([5], [4], policy=policy, initial=initial),
        "observed": pt.Task(pt.Observed(0.0, 1.0), policy, initial, 0.9),
        "discounted": pt.Task(task.rewards, policy, initial, 0.8),
    }[kind]
    none = np.zeros(0, dtype=np.int64)
    rewards = (np.zeros(0),) if kind == "observed" else ()
    verdict = pt.assess(task, pt.Transitions(none, none, none, *rewards), 0.5 if kind == "goal" else bar)
    found = verdict.still_needed()
    assert found.samples == found.expected == np.inf
    assert found.words == "The data have no transition of this task, so nothing can be forecast from them."


def test_a_bound_at_the_middle_of_guesses_is_not_above_a_mean_over_them():
    """With few rows the guesses differ widely: a mean over them may be below the bound at their middle."""
    instance, threshold = problem(3)
    counts = drawn_counts(instance, 5, np.random.default_rng(0))
    found = plan(instance.task, counts, threshold, methods={"bet": pt.TDBetting()}, runs=8, max_samples=5000)
    assert math.isfinite(found.bound)
    assert found.guesses > 1
    for factor in (0.9, 1.1):
        mean = factor * found.bound
        shown, remark = replace(found, samples={"bet": (mean, 0.5 * mean, 2.0 * mean)}).fewest_in_words()
        assert (shown == "not known") == ("the guesses differ too much" in remark) == (factor < 1)
