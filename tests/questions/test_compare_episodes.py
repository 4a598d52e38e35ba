"""`compare` of two `Episodes`."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from builders import assert_same_verdict


def gain(mean, **options):
    """Episodes of one number: luck that both share, of most of the range, and a little of its own."""
    return pt.Episodes(
        lambda rng: np.clip(mean + 0.8 * (rng.random() - 0.5) + 0.02 * (rng.random() < mean), 0.0, 1.0),
        **{"return_range": (0, 1), **options},
    )


A, B = gain(0.55), gain(0.5)


def test_the_answer_both_ways_and_its_numbers():
    first, second = pt.compare(A, B), pt.compare(B, A)
    assert (first.answer, second.answer) == ("above", "below")
    assert first.certified
    assert second.certified
    assert first.about == "difference"
    assert first.samples == 2 * first.counts.episodes
    assert first.interval[0] > 0.0 > second.interval[1]
    assert first.interval[0] < 0.051 < first.interval[1]
    assert "pairs of episodes" in str(first)
    assert "Policy A is better than policy B" in str(first)
    assert json.loads(first.to_json())["episodes"] == first.counts.episodes


def test_pairs_take_fewer_episodes_than_two_tests_that_are_told_the_middle():
    """Luck that is shared cancels."""
    pairs, apart = [], []
    for seed in range(5):
        pairs.append(2 * pt.compare(A, B, rng=seed).counts.episodes)
        apart.append(sum(pt.decide(one, threshold=0.53, delta=0.025, rng=seed).counts.episodes for one in (A, B)))
    assert 2 * sum(pairs) < sum(apart)


def test_a_margin_a_tie_and_a_margin_out_of_reach():
    assert pt.compare(A, B, margin=0.2).answer == "below"
    tie = pt.compare(B, B, indifference=0.1, max_samples=2000)
    assert tie.answer == "within"
    assert tie.certified
    beyond = pt.compare(A, B, margin=1.5)
    assert (beyond.answer, beyond.samples) == ("below", 0)
    assert pt.compare(B, B, max_samples=40).answer is None


@pytest.mark.parametrize("indifference", [0.0, 0.15])
def test_in_small_slices_it_is_the_run_that_was_never_stopped(indifference, tmp_path):
    question = {"margin": 0.05 if indifference else 0.0, "indifference": indifference, "rng": 4}
    expected = pt.compare(A, B, **question)
    assert expected.answer == ("within" if indifference else "above")
    path = tmp_path / "run.npz"
    kept = pt.compare(A, B, checkpoint=path, max_samples=10, **question)
    while kept.answer is None:
        kept = pt.compare(A, B, checkpoint=path, resume=path, max_samples=kept.samples + 11, **question)
    np.testing.assert_array_equal(kept.counts.returns, expected.counts.returns)
    assert_same_verdict(replace(kept, counts=None), replace(expected, counts=None))


def test_progress_sees_every_pair():
    seen = []
    verdict = pt.compare(A, B, progress=lambda check: seen.append(check.samples))
    assert seen == list(range(0, verdict.samples + 1, 2))


def test_what_cannot_be_compared_is_refused_in_words():
    other = pt.instances.paper(2)
    for call, words in (
        (lambda: pt.compare(A, gain(0.5, discount=0.9)), r"task_a\.discount is 1.0 and task_b\.discount is 0\.9"),
        (lambda: pt.compare(A, gain(0.5, horizon=3)), r"task_b\.horizon is 3"),
        (lambda: pt.compare(A, other.task), "task_b is a Task; Episodes are compared with Episodes"),
        (lambda: pt.compare(other.task, B, pt.TabularSimulator(other.kernel)), "task_a is a Task"),
        (lambda: pt.compare(A, B, pt.TabularSimulator(other.kernel)), "need no simulator"),
        (lambda: pt.compare(other.task, other.task), "sim is missing"),
        (lambda: pt.compare(A, B, method=pt.PTST()), "ReturnBetting"),
        (lambda: pt.compare(A, B, max_samples=-1), "max_samples"),
    ):
        with pytest.raises(pt.InputError, match=words):
            call()


def test_a_run_of_other_episodes_is_not_resumed():
    kept = pt.compare(A, B, max_samples=10)
    with pytest.raises(pt.InputError, match="resume"):
        pt.compare(A, gain(0.5, return_range=(0, 2)), resume=kept)
