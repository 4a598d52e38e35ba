"""A payoff of one's own: the median of returns, by the example; and what it gets for free."""

from __future__ import annotations

import runpy
from dataclasses import dataclass, replace

import numpy as np
import pytest
from scipy import stats

import policytest as pt
from builders import assert_refused, each
from paths import ROOT
from policytest.plots.trace import Trace
from policytest.results.load import read

EXAMPLE = runpy.run_path(str(ROOT / "examples" / "median_returns.py"))
MEDIAN, AGENT = EXAMPLE["MEDIAN"], EXAMPLE["AGENT"]
SCORE = MEDIAN.score
TRUTH = 0.6 + 0.4 * (0.5 - 0.1) / 0.9  # P(G > m) = 0.9 (1 - (m - 0.6)/0.4) = 1/2
RUNS, DELTA, ALARM = 120, 0.2, 1e-6
MOST = stats.binom.ppf(1 - ALARM, RUNS, DELTA)


@dataclass(frozen=True)
class Overconfident:
    """The control: the room is said to be half of what a bet can lose."""

    name: str = "median return"
    room: float = 0.25

    def of(self, won):
        return np.maximum(SCORE.of(won), -0.25)

    def estimate(self, outcomes):
        return float(np.median(outcomes))


def test_the_example_is_short():
    assert len((ROOT / "examples" / "median_returns.py").read_text(encoding="utf-8").splitlines()) <= 60


def wrong_answers(score):
    """Answers at the median itself, where each is wrong."""
    about = replace(AGENT, score=score)
    found = [pt.decide(about, threshold=TRUTH, delta=DELTA, rng=seed, max_samples=80).answer for seed in range(RUNS)]
    return max(found.count("above"), found.count("below"))


def test_delta_is_kept_at_the_median_and_not_by_a_score_with_too_little_room():
    assert 0 < wrong_answers(SCORE) <= MOST
    assert wrong_answers(Overconfident()) > MOST


@each("seed", range(3))
def test_mean_and_median_are_on_different_sides(seed):
    assert pt.decide(MEDIAN, threshold=0.75, rng=seed).answer == "above"
    assert pt.decide(AGENT, threshold=0.75, rng=seed).answer == "below"


def test_ties_count_against_both_answers():
    """All returns are 1/2: no data can say that the median is above 1/2, or below."""
    about = pt.Episodes(lambda rng: 0.5, return_range=(0, 1), score=SCORE)
    with pytest.warns(pt.AssumptionWarning, match="all 200 episodes were the same"):
        found = pt.decide(about, threshold=0.5, max_samples=200)
    assert found.answer is None
    assert max(found.evidence) < 0


def test_the_interval_is_that_of_all_thresholds_that_are_not_refuted():
    found = pt.evaluate(MEDIAN, epsilon=0.04, rng=3)
    assert found.reached
    assert found.lower <= TRUTH <= found.upper
    misses = sum(
        not low <= TRUTH <= high
        for low, high in (pt.decide(MEDIAN, threshold=0.7, rng=seed, delta=0.1).interval for seed in range(60))
    )
    assert misses <= stats.binom.ppf(1 - ALARM, 60, 0.2)


def test_a_paused_run_goes_on_as_if_nothing_had_been(tmp_path):
    whole = pt.decide(MEDIAN, threshold=TRUTH - 0.06, rng=5, delta=0.01)
    part = pt.decide(MEDIAN, threshold=TRUTH - 0.06, rng=5, delta=0.01, max_samples=20, checkpoint=tmp_path / "run.npz")
    assert part.answer is None
    again = pt.decide(MEDIAN, threshold=TRUTH - 0.06, rng=5, delta=0.01, resume=tmp_path / "run.npz")
    assert (again.answer, again.samples, again.evidence) == (whole.answer, whole.samples, whole.evidence)
    assert_refused(lambda: pt.decide(AGENT, threshold=TRUTH - 0.06, delta=0.01, resume=part), "another task")


def test_results_say_median(tmp_path):
    trace = Trace()
    verdict = pt.decide(MEDIAN, threshold=0.75, rng=1, method=trace.watch())
    assert str(verdict).startswith("The median return is above the threshold")
    assert "each with the same median return" in str(verdict)
    assert "mean return" not in str(verdict)
    (tmp_path / "verdict.json").write_text(verdict.to_json(), encoding="utf-8")
    assert "median return" in str(read(tmp_path / "verdict.json"))
    pt.report.write(verdict, tmp_path / "verdict.html", trace=trace)
    assert "median return" in (tmp_path / "verdict.html").read_text(encoding="utf-8")
    planned = pt.plan(MEDIAN, threshold=0.75, rng=1, runs=20)
    assert planned.samples


def test_a_study_of_it(tmp_path):
    spec = {"instances": {"median": MEDIAN}, "methods": {"returns": pt.ReturnBetting()}, "threshold": 0.75}
    found = pt.study.run({**spec, "deltas": [0.05], "seeds": 5}, store=tmp_path / "study")
    assert set(found.column("answer")) == {"above"}


def test_what_a_score_cannot_have():
    assert_refused(lambda: pt.Episodes(lambda rng: 0.5, return_range=(0, 1), score=np.median), "score is", "room")
    assert_refused(lambda: pt.compare(MEDIAN, AGENT), "score", "pairs compare mean returns")
    with pytest.raises(pt.InputError, match="critic"):
        pt.Episodes("CartPole-v1", lambda o: 0, reward_range=(0, 1), critic=lambda o: 0.0, score=SCORE)


@dataclass(frozen=True)
class Changed:
    """The median with another room, or other values."""

    room: object = 0.5
    times: object = 1.0
    name: object = "median return"

    def of(self, won):
        return SCORE.of(won) * self.times

    def estimate(self, outcomes):
        return float(np.median(outcomes))


@each(("score", "words"), [(Changed(room), "score.room") for room in (0.0, -1.0, np.nan, "x")])
def test_a_room_that_cannot_be_is_refused(score, words):
    with pytest.raises(pt.InputError, match=words):
        replace(AGENT, score=score)


@each("score", [Changed, Changed(name=3), object()])
def test_what_is_no_score_is_refused(score):
    with pytest.raises(pt.InputError, match="score is"):
        replace(AGENT, score=score)


@each(("score", "words"), [(Changed(times=6.0), "below -score.room"), (Changed(times=np.nan), "score.of returned")])
def test_a_score_beyond_its_room_ends_the_run(score, words):
    """Its answers were wrong and certified."""
    with pytest.raises(pt.InputError, match=words):
        pt.decide(replace(AGENT, score=score), threshold=0.75, max_samples=50)
    assert pt.decide(replace(AGENT, score=Changed(times=0.5)), threshold=0.75, max_samples=2000).answer == "above"
