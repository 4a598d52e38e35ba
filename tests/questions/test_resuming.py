"""A comparison that was stopped any number of times is the one that was never stopped (methods: `test_contract`)."""

from __future__ import annotations

from dataclasses import replace

import pytest

import policytest as pt
from builders import Called, assert_same_verdict

FOUR = pt.instances.random(1, 4, 2)


@pytest.mark.parametrize("kind", [pt.TabularSimulator, Called], ids=["table", "called"])
@pytest.mark.parametrize("indifference", [0.0, 0.1])
def test_a_comparison_in_small_slices(kind, indifference):
    """With an indifference zone and without."""
    task, sim = FOUR.task, kind(FOUR.kernel)
    other = replace(task, policy=task.policy[::-1])
    gap = pt.value(task, FOUR.kernel) - pt.value(other, FOUR.kernel)
    question = {"margin": gap if indifference else gap - 0.1, "indifference": indifference, "rng": 2, "delta": 0.2}
    expected = pt.compare(task, other, sim, **question)
    assert expected.answer == ("within" if indifference else "above")
    kept, slice_ = None, max(97, expected.samples // 15)
    for limit in range(slice_, expected.samples + slice_, slice_):
        kept = pt.compare(task, other, sim, max_samples=limit, resume=kept, **question)
    assert_same_verdict(kept, expected)
