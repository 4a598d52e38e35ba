"""The histogram of returns: what it counts, and where its lines are."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from builders import each
from policytest import plots
from policytest.data.returns import Returns

DICE = pt.Episodes(lambda rng: float(rng.integers(1, 7)), return_range=(1, 6))


@each("returns", [[2.0], [3.0] * 50, [0.1, 0.2, 0.2], np.arange(500.0), np.linspace(0, 1, 400), [-1e6, 1e6]])
def test_every_episode_is_in_one_bin(returns):
    found = Returns(np.array(returns, dtype=float), np.ones(len(returns), dtype=np.int64)).histogram
    assert found.episodes.sum() == len(returns)
    assert len(found.episodes) <= 31
    assert found.edges[0] <= min(returns) <= max(returns) <= found.edges[-1]
    assert (np.diff(found.edges) > 0).all()


def test_whole_numbers_have_a_bin_each_where_they_are_few():
    found = Returns(np.repeat([1.0, 2.0, 6.0], [3, 4, 5]), np.ones(12, dtype=np.int64)).histogram
    assert found.edges.tolist() == [0.5, 1.5, 2.5, 3.5, 4.5, 5.5, 6.5]
    assert found.episodes.tolist() == [3, 4, 0, 0, 0, 5]
    assert Returns(np.zeros(0), np.zeros(0, dtype=np.int64)).histogram is None


def test_the_picture_has_the_mean_the_interval_and_the_threshold():
    verdict = pt.decide(DICE, threshold=3.0)
    ax = plots.returns(verdict)
    assert sum(bar.get_height() for bar in ax.containers[0]) == verdict.counts.episodes
    lines = sorted(float(line.get_xdata()[0]) for line in ax.lines)
    assert lines == pytest.approx(sorted([verdict.estimate, 3.0]))
    words = [text.get_text() for text in ax.get_legend().get_texts()]
    assert {"episodes", "threshold 3"} <= set(words)
    estimate = pt.evaluate(DICE, epsilon=1.0)
    assert [float(line.get_xdata()[0]) for line in plots.returns(estimate).lines] == pytest.approx([estimate.value])
    nothing = pt.decide(DICE, threshold=7)
    assert "no episodes were run" in plots.returns(nothing).texts[0].get_text()


def test_a_trace_of_episodes_has_the_course_and_changes_nothing():
    trace = plots.Trace()
    watched = pt.decide(DICE, threshold=3.2, method=trace.watch(), rng=2)
    assert isinstance(watched.settings, pt.ReturnBetting)
    with pytest.raises(pt.InputError, match="tested by ReturnBetting"):
        pt.decide(DICE, threshold=3.2, method=trace.watch(pt.TDBetting()))
    plain = pt.decide(DICE, threshold=3.2, rng=2)
    assert watched.counts == plain.counts
    assert trace.samples[-1] == plain.samples
    assert len(trace) > 10
    assert trace.evidence[-1] == pytest.approx(plain.evidence)
    assert "mean return" in watched._repr_html_()
