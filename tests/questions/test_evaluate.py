"""Intervals and estimates: they contain the value as often as they say, and a test at V = R ends."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import TWO, drawn_counts, each, first, known_task, uniform_log
from policytest.eprocess.interval import HALF, Settled, ends
from policytest.eprocess.strategies import NEAR
from policytest.results.estimate import Interval

SIM = pt.TabularSimulator(TWO.kernel)
RUNS = 40
FEW = pt.LogBetting(coins=1)
METHODS = {"betting": pt.TDBetting(), "ball": pt.PTST()}


@pytest.mark.parametrize("n", [2, 3, 5])
def test_intervals_from_counts_are_the_range_over_the_ball(n):
    """Certified ends, beside the best of many local searches on the same ball."""
    instance = pt.instances.paper(n)
    counts = uniform_log(instance, 30_000, 1).counts(instance.task, 30_000)
    found = pt.value_interval(instance.task, counts, 0.05)
    assert found.certified
    level = pt.MixtureBoundary().level(counts, 0.05, instance.task)
    ball = pt.KLBall(counts.kernel(), counts.visits, level)
    low = pt.extreme_value(instance.task, ball, "min", pt.ProjectionFree(starts=8)).upper
    high = pt.extreme_value(instance.task, ball, "max", pt.ProjectionFree(starts=8)).lower
    estimate = pt.value(instance.task, counts.kernel())
    assert low - 0.011 * (estimate - low) <= found.lower <= low + 1e-9
    assert high + 0.011 * (high - estimate) >= found.upper >= high - 1e-9
    assert pt.value(instance.task, instance.kernel) in found


@pytest.mark.parametrize("method", [None, *METHODS.values()], ids=["default", *METHODS])
def test_intervals_contain_the_value_as_often_as_they_say(method):
    """Looked at three times in each of 40 runs; a miss at any time counts."""
    value, misses, delta = pt.value(TWO.task, TWO.kernel), 0, 0.2
    for seed in range(RUNS):
        log = uniform_log(TWO, 1600, seed)
        found = [pt.value_interval(TWO.task, first(log, t), delta, method or FEW) for t in (200, 600, 1600)]
        misses += not all(value in interval for interval in found)
        assert all(one.certified for one in found)
    assert binom.sf(misses - 1, RUNS, delta) > 1e-4
    assert found[-1].width < 0.5 * found[0].width


def test_intervals_that_are_too_narrow_would_be_noticed(monkeypatch):
    """The control: bets that claim eight nats more than they have miss too often."""
    honest = Settled.log_capital
    monkeypatch.setattr(Settled, "log_capital", lambda self, R: 8.0 + honest(self, R))
    value = pt.value(TWO.task, TWO.kernel)
    misses = sum(
        value not in pt.value_interval(TWO.task, uniform_log(TWO, 1600, seed), 0.2, pt.TDBetting())
        for seed in range(RUNS)
    )
    assert binom.sf(misses - 1, RUNS, 0.2) < 1e-4


@pytest.mark.parametrize("method", METHODS.values(), ids=METHODS)
@pytest.mark.parametrize("seed", range(4))
def test_estimates_are_within_epsilon(seed, method):
    instance = pt.instances.random(seed, 3, 2, discount=0.7)
    low, high = pt.value_range(instance.task)
    epsilon = 0.1 * (high - low)
    found = pt.evaluate(instance.task, pt.TabularSimulator(instance.kernel), epsilon, 0.01, method, rng=seed)
    assert found.reached
    assert found.certified
    assert found.upper - found.lower <= 2 * epsilon
    assert abs(found.value - pt.value(instance.task, instance.kernel)) <= epsilon
    assert found.samples == found.counts.total
    again = pt.evaluate(instance.task, pt.TabularSimulator(instance.kernel), epsilon, 0.01, method, rng=seed)
    assert (again.samples, again.value) == (found.samples, found.value)


def test_estimates_miss_as_rarely_as_they_say():
    value = pt.value(TWO.task, TWO.kernel)
    found = [pt.evaluate(TWO.task, SIM, 0.2, delta=0.2, rng=seed) for seed in range(RUNS)]
    misses = sum(not one.lower <= value <= one.upper for one in found)
    assert binom.sf(misses - 1, RUNS, 0.2) > 1e-4


def test_a_short_range_of_values_needs_no_samples():
    low, high = pt.value_range(TWO.task)
    found = pt.evaluate(TWO.task, SIM, 0.51 * (high - low))
    assert (found.samples, found.reached) == (0, True)
    assert found.value == pytest.approx(0.5 * (low + high))


def test_where_samples_run_out_the_interval_so_far_is_returned():
    seen = []
    found = pt.evaluate(TWO.task, SIM, 0.01, max_samples=500, progress=lambda *look: seen.append(look))
    assert (found.samples, found.reached) == (500, False)
    assert "not reached" in str(found)
    lowers, uppers = zip(*[look[1:] for look in seen], strict=True)
    assert list(lowers) == sorted(lowers)  # intervals are intersected along the run
    assert list(uppers) == sorted(uppers, reverse=True)
    read = json.loads(found.to_json())
    assert (read["schema"], read["reached"], read["samples"]) == (1, False, 500)
    assert "<table" in found._repr_html_()


def test_intersections():
    both = Interval(0.0, 2.0, True) & Interval(1.0, 3.0, False)
    assert (both.lower, both.upper, both.certified, both.width) == (1.0, 2.0, False, 1.0)
    assert 1.5 in both


@each(
    ("call", "words"),
    [
        (lambda: pt.value_interval(TWO.task, [1, 2]), "data is a list"),
        (lambda: pt.value_interval(TWO.task, uniform_log(TWO, 9, 0), 0.0), "delta is 0"),
        (lambda: pt.value_interval(TWO.task, pt.Counts(2, 2), method=pt.TDBetting()), "no order"),
        (lambda: pt.value_interval(TWO.task, pt.Counts(2, 2), method=pt.MonteCarlo()), "method is MonteCarlo"),
        (lambda: pt.evaluate(TWO.task, SIM, 0.0), "epsilon"),
        (lambda: pt.evaluate(TWO.task, SIM, 0.1, method=pt.MonteCarlo()), "method is"),
        (
            lambda: pt.decide(TWO.task, SIM, threshold=0.0, indifference=-1.0),
            "indifference is -1",
        ),
        (
            lambda: pt.decide(TWO.task, SIM, threshold=0.0, indifference=0.1, method=pt.PTST()),
            "indifference: the method",
        ),
    ],
)
def test_bad_input_is_named(call, words):
    with pytest.raises(pt.InputError, match=words):
        call()


def fixed_counts(draws, seed):
    """As many draws from each pair, as was fixed beforehand."""
    return drawn_counts(TWO, draws, np.random.default_rng(seed))


def test_bets_on_counts_of_a_fixed_design_give_an_interval():
    """On the side of the bets its end is not that of the range, and it misses as rarely as it says."""
    value, (low, high), misses = pt.value(TWO.task, TWO.kernel), pt.value_range(TWO.task), 0
    for seed in range(10):
        method = pt.TDBetting(seed=seed)
        found = pt.assess(TWO.task, fixed_counts(60, seed), -0.3, 0.2, method, design="fixed").interval
        misses += not found[0] <= value <= found[1]
        assert low < found[0]
        assert found[1] <= high
    assert binom.sf(misses - 1, 10, 0.2) > 1e-4
    wide, narrow = (
        pt.assess(TWO.task, fixed_counts(n, 0), -0.3, 0.2, pt.TDBetting(), design="fixed").interval[0]
        for n in (60, 400)
    )
    assert wide < narrow < value


def test_where_nothing_is_unknown_the_value_is_known_at_once():
    task, kernel = known_task()
    for method in (None, pt.PTST()):
        found = pt.evaluate(task, pt.TabularSimulator(kernel), 1e-6, method=method)
        assert (found.samples, found.reached, found.value) == (0, True, pytest.approx(8 / 3))


# ---------------------------------------------------------------- practically equal


@pytest.mark.parametrize("n", [2, 3])
def test_a_test_at_the_value_itself_ends(n):
    instance = pt.instances.paper(n)
    value, sim = pt.value(instance.task, instance.kernel), pt.TabularSimulator(instance.kernel)
    verdict = pt.decide(instance.task, sim, value, 0.01, indifference=0.1)
    assert (verdict.answer, verdict.certified) == ("within", True)
    assert "within" in str(verdict)
    assert min(verdict.refuted) >= verdict.required
    assert verdict.p_value == pytest.approx(np.exp(-min(verdict.refuted)))
    for line in ("evidence against V <= R - 0.1", "evidence against V >= R + 0.1", "of |V - R| >= 0.1"):
        assert line in str(verdict)
    assert json.loads(verdict.to_json())["proof"]["refuted"] == list(verdict.refuted)


def test_far_from_the_threshold_the_zone_does_not_matter():
    for threshold, answer in ((-0.2, "above"), (0.6, "below")):
        assert pt.decide(TWO.task, SIM, threshold, indifference=0.05).answer == answer


def test_within_is_rarely_wrong():
    """The value is at the edge of the zone: "within" and the wrong side together stay below delta."""
    value, delta = pt.value(TWO.task, TWO.kernel), 0.2
    verdicts = [
        pt.decide(TWO.task, SIM, value + 0.3, delta, pt.TDBetting(), seed, 3000, indifference=0.3 - 1e-9).answer
        for seed in range(RUNS)
    ]
    wrong = sum(answer in ("within", "above") for answer in verdicts)
    assert binom.sf(wrong - 1, RUNS, delta) > 1e-4


def test_a_zone_that_covers_all_values_needs_no_samples():
    low, high = pt.value_range(TWO.task)
    verdict = pt.decide(TWO.task, SIM, 0.5 * (low + high), indifference=high - low)
    assert (verdict.answer, verdict.samples) == ("within", 0)


def test_a_run_goes_on_with_its_zone_or_without():
    """Half of delta is for "within": a run that was begun without a zone has none left."""
    plain = pt.decide(TWO.task, SIM, 0.2, max_samples=300)
    zone = pt.decide(TWO.task, SIM, 0.2, max_samples=300, indifference=0.02)
    assert zone.required == pytest.approx(plain.required + np.log(2))
    for verdict, other in ((plain, 0.1), (zone, 0.0)):
        with pytest.raises(pt.InputError, match="indifference zone"):
            pt.decide(TWO.task, SIM, 0.2, resume=verdict, indifference=other)
    assert pt.decide(TWO.task, SIM, 0.2, resume=zone, indifference=0.1).answer == "within"


def test_intervals_where_nothing_is_unknown():
    support = np.zeros((2, 1, 2), dtype=bool)
    support[0, 0, 0] = support[1, 0] = True
    task = pt.Task([[1.0], [2.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5, support)
    found = pt.value_interval(task, pt.Transitions([1, 1], [0, 0], [0, 1]))
    assert (found.lower, found.upper, found.certified) == (2.0, 2.0, True)


@pytest.mark.parametrize("scale", [1e-200, 1e-100, 1e-9, 1e9, 1e100, 1e300])
def test_units_do_not_matter(scale):
    task = pt.Task(TWO.task.rewards * scale, TWO.task.policy, TWO.task.initial, TWO.task.discount)
    scaled, plain = (pt.decide(one, SIM, 0.0, rng=5) for one in (task, TWO.task))
    assert scaled.samples == plain.samples
    found = pt.evaluate(task, SIM, 0.3 * scale)
    assert found.reached
    assert 150 < found.samples < 900  # coins fall differently by rounding


@pytest.mark.parametrize("method", [pt.TDBetting(), pt.PTST()], ids=["betting", "ptst"])
def test_ctrl_c_gives_the_estimate_so_far(method):
    drawn = [0]

    def draw(states, actions, rng):
        drawn[0] += len(states)
        if drawn[0] > 3000:
            signal.raise_signal(signal.SIGINT)
        return SIM.draw(states, actions, rng)

    found = pt.evaluate(TWO.task, draw, 1e-6, method=method)
    assert not found.reached
    assert found.samples >= 3000
    assert found.lower <= pt.value(TWO.task, TWO.kernel) <= found.upper
    low, high = pt.value_range(TWO.task)
    assert found.upper - found.lower < high - low


def test_a_log_gives_the_interval_of_value_interval():
    rng = np.random.default_rng(0)
    s, a = rng.integers(0, 2, 4000), rng.integers(0, 2, 4000)
    data = pt.Transitions(s, a, SIM.draw(s, a, rng))
    for method in (None, pt.PTST(), pt.TDBetting()):
        found, interval = (
            pt.evaluate(TWO.task, data, 0.3, method=method),
            pt.value_interval(TWO.task, data, 0.05, method),
        )
        assert (found.lower, found.upper, found.certified) == (interval.lower, interval.upper, interval.certified)
        assert (found.samples, found.reached) == (4000, interval.width <= 0.6)
    assert not pt.evaluate(TWO.task, data, 1e-3).reached
    with pytest.raises(pt.InputError, match="max_samples is for a simulator"):
        pt.evaluate(TWO.task, data, 0.3, max_samples=10)


def settled_with_fitted_fractions(side):
    """The same outcomes, with shares on the fractions of intervals that are fitted, and on no others."""
    segments, shares = side.segments, np.where(np.arange(len(side.wide_shares)) < len(NEAR), side.wide_shares, 0.0)
    bets, lengths = [segment.bet for segment in segments], [len(segment) for segment in segments]
    won, rooms = np.concatenate([segment.won for segment in segments]), np.array([bet.room for bet in bets])
    return Settled(won, rooms, np.array(lengths), np.array([bet.wide for bet in bets]), shares)


def test_intervals_of_many_rollouts_are_not_much_wider_than_the_usual_ones():
    """Bets that follow the width of the interval alone lose a little with every rollout; steady ones do not."""
    kernel, n = np.array([[[0.0, 0.6, 0.4]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]]), 200_000
    task = pt.Task.reaching([1], [2], policy=np.ones((3, 1)), initial=np.eye(3)[0])
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.5, 0, both_sides=True)
    while run.samples < n:
        run.step(np.inf, n - run.samples)
    level, usual = np.log(20.0), 2 * 1.96 * np.sqrt(0.24 / (n / 2))  # each side has half of the rollouts
    fitted = ends(*map(settled_with_fitted_fractions, run.bets), (0.0, 1.0), 0.5, level + HALF)
    for (lower, upper), narrow in ((run.interval(level), True), (fitted, False)):
        assert lower < 0.6 < upper
        assert (upper - lower < 2.5 * usual) == narrow, (upper - lower) / usual
