"""A log that grows: the verdict is the one of `assess`, however the log arrives."""

import threading

import numpy as np
import pytest

import policytest as pt
from builders import first, uniform_log
from policytest.questions.watch import Watch

THREE = pt.instances.paper(3)


def fed(watch, data, cuts):
    """The verdict, with the log handed over in pieces that end at the cuts."""
    for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        found = watch.add(data.s[begin:end], data.a[begin:end], data.x[begin:end])
        if found is not None:
            return found
    return watch.verdict()


def same(first, second):
    assert (first.answer, first.samples, first.certified) == (second.answer, second.samples, second.certified)
    assert first.evidence == pytest.approx(second.evidence)
    assert first.interval == pytest.approx(second.interval)
    assert (first.counts.N == second.counts.N).all()


@pytest.mark.parametrize("method", [None, pt.TDBetting(), pt.PTST(solver=pt.ProjectionFree())], ids=repr)
def test_the_verdict_is_that_of_assess_on_the_prefix(method):
    for seed, pieces in ((0, 0), (1, 7), (2, 400)):
        data = uniform_log(THREE, 20_000, seed)
        cuts = np.sort(np.random.default_rng(seed + pieces).integers(0, len(data), pieces)).tolist()
        found = fed(Watch(THREE.task, 0.0, 0.05, method), data, cuts)
        assert found.answer is not None, (seed, pieces)
        same(found, pt.assess(THREE.task, first(data, found.samples), 0.0, 0.05, method or pt.LogBetting()))


def test_betting_speaks_at_the_same_transition_however_the_log_arrives():
    data = uniform_log(THREE, 20_000, 5)
    whole = pt.assess(THREE.task, data, threshold=0.0)
    for cuts in ([], [1, 2, 3], list(range(10, 20_000, 10))):
        found = fed(Watch(THREE.task, threshold=0.0), data, cuts)
        assert (found.answer, found.samples) == (whole.answer, whole.samples)
        same(found, pt.assess(THREE.task, first(data, whole.samples), threshold=0.0))


def test_undecided_and_then_more():
    data = uniform_log(THREE, 20_000, 1)
    watch = Watch(THREE.task, threshold=0.0)
    assert watch.add(data.s[:20], data.a[:20], data.x[:20]) is None
    assert watch.verdict().answer is None
    same(watch.verdict(), pt.assess(THREE.task, first(data, 20), threshold=0.0))
    assert watch.size == 20
    assert watch.add(data.s[20:], data.a[20:], data.x[20:]).answer == "above"


def test_a_missing_pair_leaves_it_waiting():
    """Betting needs draws of all pairs; additions of others cost nothing and change nothing."""
    data = uniform_log(THREE, 20_000, 1)
    there = data.s != 2
    watch = Watch(THREE.task, threshold=0.0)
    for part in np.array_split(np.flatnonzero(there), 50):
        assert watch.add(data.s[part], data.a[part], data.x[part]) is None
    assert "no unused transition left for (s=2" in watch.verdict().reason
    assert watch.add(data.s[~there], data.a[~there], data.x[~there]).answer == "above"


def test_a_known_answer_needs_no_log():
    task = pt.instances.paper(2).task
    watch = Watch(task, threshold=1e6)
    assert watch.verdict().answer == "below"
    assert watch.add([0], [0], [0]).samples == 0


def test_bad_transitions_are_refused():
    watch = Watch(pt.instances.paper(2).task, threshold=0.0)
    with pytest.raises(pt.InputError, match=r"data.x\[1\] is 2"):
        watch.add([0, 0], [0, 0], [1, 2])
    assert watch.size == 0


@pytest.mark.parametrize("flaw", ["selected", "other_rewards"])
def test_flawed_transitions_cost_the_certificate(flaw):
    """Also where nothing comes with them: rows were left out at the end of a log."""
    data = uniform_log(THREE, 20_000, 1)
    for begin in (0, 20_000):
        watch = Watch(THREE.task, threshold=0.0)
        watch.add(data.s[:10], data.a[:10], data.x[:10])
        watch.add(data.s[begin:10], data.a[begin:10], data.x[begin:10], **{flaw: True})
        assert not watch.verdict().certified
        found = watch.add(data.s, data.a, data.x)
        assert (found.answer, found.certified) == ("above", False)


def test_additions_by_two_threads_at_once_are_refused(monkeypatch):
    """Their order would be lost; one after the other they may."""
    watch, data, refused = Watch(THREE.task, 0.0), uniform_log(THREE, 20, 1), []
    added = Watch._added

    def slow(self, part):
        if not refused:
            refused.append(None)
            thread = threading.Thread(target=add)
            thread.start()
            thread.join()
        return added(self, part)

    def add():
        with pytest.raises(pt.InputError, match="the Watch is used by another thread at the same time") as caught:
            watch.add(data.s, data.a, data.x)
        refused.append(caught)

    monkeypatch.setattr(Watch, "_added", slow)
    watch.add(data.s, data.a, data.x)
    watch.add(data.s, data.a, data.x)
    assert (watch.size, len(refused)) == (40, 2)
