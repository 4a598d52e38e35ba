"""`plan` and `still_needed` of `Episodes`: what they foresee is what happens."""

from __future__ import annotations

import json

import numpy as np
import pytest

import policytest as pt
from policytest.data.returns import Returns
from policytest.results import load

SUCCESS = 0.6


def tries(rng):
    """One to three steps with a reward at the end, if it succeeds."""
    rewards = np.zeros(1 + rng.integers(3))
    rewards[-1] = rng.random() < SUCCESS
    return rewards


COIN = pt.Episodes(tries, horizon=3, reward_range=(0, 1), return_range=(0, 1))


def lengths(threshold, seeds):
    """Episodes of tests."""
    return [pt.decide(COIN, threshold=threshold, rng=1000 + seed).counts.episodes for seed in range(seeds)]


def test_a_plan_from_a_pilot_that_is_the_law_foresees_the_mean_and_the_spread():
    law = Returns(np.repeat([0.0, 1.0], [400, 600]), np.tile([1, 2, 3, 2], 250))
    found = pt.plan(COIN, law, 0.45)
    actual = lengths(0.45, 60)
    mean, low, high = found.episodes["ReturnBetting"]
    assert 0.7 < mean / np.mean(actual) < 1.4
    assert np.mean([low <= n <= high for n in actual]) >= 0.75  # nine in ten
    assert 1.8 < found.samples["ReturnBetting"][0] / mean < 2.2  # two steps an episode
    assert found.value == SUCCESS
    assert not found.at_least


@pytest.mark.calibration
def test_the_uncertainty_of_a_small_pilot_is_part_of_the_range():
    """Of pilots of 40 episodes, about nine in ten have a range that holds a test."""
    actual, held = lengths(0.4, 16), 0
    for seed, n in enumerate(actual):
        found = pt.plan(COIN, threshold=0.4, pilot=40, rng=seed, max_samples=1000, runs=20)
        _, low, high = found.episodes["ReturnBetting"]
        held += low <= n <= high
    assert held >= 11


def test_a_pilot_without_spread_has_a_range_without_one():
    """The control: each test has the same returns, and the same length."""
    mean, low, high = pt.plan(COIN, Returns(np.full(40, 0.6), np.full(40, 2)), 0.4).episodes["ReturnBetting"]
    assert mean == low == high


def test_a_pilot_near_the_threshold_says_that_it_does_not_know_the_side():
    found = pt.plan(COIN, threshold=0.6, max_samples=500)
    assert found.episodes["ReturnBetting"][2] == np.inf
    assert any("which side" in note for note in found.notes)
    assert "ReturnBetting" in found.at_least


def test_the_counts_of_a_verdict_are_a_pilot_and_a_seed_fixes_the_plan():
    counts = pt.decide(COIN, threshold=0.5).counts
    first, second = (pt.plan(COIN, counts, 0.45, rng=3) for _ in range(2))
    assert first.episodes == second.episodes
    assert f"The pilot has {counts.episodes} episodes with {counts.total} transitions" in str(first)
    again = load.from_data(json.loads(first.to_json()))
    assert again.episodes == first.episodes
    assert str(again) == str(first)


def test_a_threshold_outside_the_range_needs_no_pilot():
    asked = []
    found = pt.plan(pt.Episodes(lambda rng: asked.append(1), return_range=(0, 1)), threshold=1.5)
    assert found.episodes["ReturnBetting"] == (0.0, 0.0, 0.0)
    assert not asked


def test_bad_arguments_are_refused_in_words():
    two = pt.instances.paper(2)
    for call, words in (
        (lambda: pt.plan(COIN), "threshold is missing"),
        (lambda: pt.plan(COIN, threshold=0.5, pilot=1), "pilot is 1; it must be at least 2"),
        (lambda: pt.plan(COIN, two.kernel, 0.5), "leave it out, so that a pilot is run"),
        (lambda: pt.plan(COIN, threshold=0.5, methods={"PTST": pt.PTST()}), "methods is for tables"),
        (lambda: pt.plan(COIN, Returns(np.ones(1), np.ones(1, dtype=int)), 0.5), "1 episode; a pilot has at least 2"),
        (lambda: pt.plan(two.task, threshold=0.0), "guess is missing"),
    ):
        with pytest.raises(pt.InputError, match=words):
            call()


# ---------------------------------------------------------------- a test that goes on


@pytest.mark.calibration
def test_what_is_still_needed_is_enough_about_as_often_as_it_says():
    """With a chance of 0.8, over runs that were stopped early; the low end of the range is seldom enough."""
    enough, early = [], []
    for seed in range(12):
        question = {"threshold": 0.45, "rng": seed}
        kept = pt.decide(COIN, max_samples=60, **question)
        if kept.answer is None:
            needed = kept.still_needed(max_samples=500)
            for more, settled in ((needed.samples, enough), (needed.spread["transitions"][1], early)):
                most = kept.samples + int(min(more, 5000))
                settled.append(pt.decide(COIN, max_samples=most, resume=kept, **question).answer is not None)
    assert len(enough) >= 8
    assert np.mean(enough) >= 0.6
    assert np.mean(early) <= 0.4


def test_the_forecast_has_episodes_and_transitions_and_is_part_of_an_undecided_verdict():
    kept = pt.decide(COIN, threshold=0.5, max_samples=60)
    assert "still_needed()" in str(kept)
    needed = kept.still_needed(max_samples=500)
    assert needed.spread.keys() == {"episodes", "transitions"}
    for mean, low, high in needed.spread.values():
        assert low <= mean <= high
    assert "more episodes" in str(needed)
    assert pt.still_needed(kept, max_samples=500).words == needed.words
    assert json.loads(needed.to_json())["spread"]["episodes"][1] == needed.spread["episodes"][1]


def test_a_comparison_is_foreseen_too():
    other = pt.Episodes(lambda rng: rng.random() < 0.3, horizon=3, reward_range=(0, 1), return_range=(0, 1))
    kept = pt.compare(COIN, other, max_samples=80)
    assert kept.answer is None
    needed = kept.still_needed(max_samples=500)
    assert "pairs of episodes" in needed.spread
    assert "more pairs should settle it" in needed.words
    assert pt.compare(COIN, other, max_samples=0).still_needed().samples == np.inf
    assert pt.compare(COIN, other).still_needed().samples == 0
