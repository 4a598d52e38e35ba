"""Comparing by the KL rule; ties with an indifference zone; comparisons that are interrupted, kept and resumed."""

from __future__ import annotations

import json
import math
import signal
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import optimize

import policytest as pt
from betting_builders import too_often
from policytest._base.compiled import evidence
from policytest.kl.boundaries import Terms
from policytest.kl.sampling_balanced import balanced
from policytest.methods.ptst_difference import kl_comparison


def two_policies(n=2):
    instance = pt.instances.paper(n)
    task = instance.task
    other = pt.Task(task.rewards, instance.alternative_policy, task.initial, task.discount)
    return task, other, pt.TabularSimulator(instance.kernel), instance.kernel


def tie():
    """Two policies of two states that are as good under the kernel; A takes one action, B mixes."""
    rewards, initial = np.array([[0.35, 0.3], [1.0, 0.4]]), [1.0, 0.0]
    kernel = np.array([[[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.2, 0.8]]])
    first = pt.Task(rewards, [[1.0, 0.0], [0.6, 0.4]], initial, 0.5)

    def rival(share):
        return pt.Task(rewards, [[0.5, 0.5], [share, 1.0 - share]], initial, 0.5)

    def gap(share):
        return pt.value(first, kernel) - pt.value(rival(share), kernel)

    assert gap(0.0) * gap(1.0) < 0
    return first, rival(optimize.brentq(gap, 0.0, 1.0, xtol=1e-15)), kernel


@dataclass(frozen=True)
class WithoutDimension:
    """The control: as if the unknown rows cost nothing."""

    def terms(self, widths, n_states):
        return Terms(evidence.PAPER, np.zeros(1), np.zeros(len(widths)))


# ---------------------------------------------------------------- the KL rule


@pytest.mark.parametrize("allocation", ["uniform", pt.Adaptive(), pt.Forward()], ids=["uniform", "adaptive", "forward"])
def test_right_answers_and_honest_words(allocation):
    first, second, sim, kernel = two_policies()
    method = pt.PTST(allocation=allocation)
    verdict = pt.compare(first, second, sim, method=method, rng=3, max_samples=30_000)
    assert (verdict.answer, verdict.certified, verdict.about) == ("above", False, "difference")
    assert pt.compare(second, first, sim, method=method, rng=3, max_samples=30_000).answer == "below"
    assert verdict.counts.total == verdict.samples
    model = verdict.counts.kernel()
    assert verdict.estimate == pytest.approx(pt.value(first, model) - pt.value(second, model), abs=1e-9)
    assert 0.0 <= verdict.interval[0] + 1e-6 < verdict.estimate < verdict.interval[1]
    assert max(verdict.evidence) >= -math.log(0.05)
    text = str(verdict)
    assert "not certified" in text.splitlines()[0]
    assert "local optimum" in text
    assert "PTST on the difference of policy A and policy B" in verdict.method
    assert json.loads(verdict.to_json())["certified"] is False
    assert abs(pt.value(first, verdict.witness) - pt.value(second, verdict.witness)) < 1e-7
    assert pt.value(first, kernel) > pt.value(second, kernel)


def test_the_rule_stops_as_soon_as_no_kernel_in_the_ball_is_on_the_other_side():
    """At the stop the extreme difference over the ball is just beyond the margin; one sample before it is not."""
    first, second, sim, _ = two_policies()
    method, margin = pt.PTST(), 0.05
    verdict = pt.compare(first, second, sim, margin=margin, method=method, rng=1)
    before = pt.compare(first, second, sim, margin=margin, method=method, rng=1, max_samples=verdict.samples - 1)
    assert (verdict.answer, before.answer) == ("above", None)
    assert verdict.interval[0] >= margin - 1e-9
    run = kl_comparison(method, first, second, margin, sim, 1)
    for _ in range(10_000):
        if run.samples == verdict.samples - 1:
            break
        run.step(-math.log(0.05), verdict.samples - 1 - run.samples)
    ends = run.interval(-math.log(0.05))
    assert ends[0] < margin < ends[1]
    assert run.tally.witness_evidence() < -math.log(0.05)


def test_different_rewards_margins_and_supports():
    rng = np.random.default_rng(5)
    support = rng.random((4, 2, 4)) < 0.7
    support[..., 1] = True
    kernel = rng.dirichlet(np.ones(4), size=(4, 2)) * support
    kernel /= kernel.sum(axis=2, keepdims=True)
    policies, initial = rng.dirichlet(np.ones(2), size=(2, 4)), rng.dirichlet(np.ones(4))
    tasks = [
        pt.Task(rng.normal(size=shape), p, initial, 0.6, support)
        for p, shape in zip(policies, ((4, 2), (4, 2, 4)), strict=True)
    ]
    difference = pt.value(tasks[0], kernel) - pt.value(tasks[1], kernel)
    for margin, answer in ((difference - 0.8, "above"), (difference + 0.8, "below")):
        verdict = pt.compare(*tasks, pt.TabularSimulator(kernel), margin=margin, method=pt.PTST(), max_samples=50_000)
        assert (verdict.answer, verdict.certified) == (answer, False)


def test_a_ptst_comparison_errs_at_most_as_often_as_delta_allows_and_the_control_is_caught():
    """The control pays nothing for unknown rows, and asks for an eighth of the evidence."""
    first, second, kernel = tie()
    sim, runs, delta = pt.TabularSimulator(kernel), 40, 0.1
    level = -math.log(delta)
    for boundary, asked, caught in ((pt.MixtureBoundary(), level, False), (WithoutDimension(), level / 8, True)):
        method, answers = pt.PTST(boundary=boundary), []
        for seed in range(runs):
            run = kl_comparison(method, first, second, 0.0, sim, seed)
            while run.answer is None and run.samples < 120:
                run.step(asked, 120 - run.samples)
            answers.append(run.answer)
        alarms = [too_often(answers.count(side), runs, delta) for side in ("above", "below")]
        assert any(alarms) == caught


@pytest.mark.parametrize(
    ("method", "message"),
    [
        (pt.PTST.as_printed(), "as_printed"),
        (pt.PTST(solver=pt.SLSQPHeuristic()), "SLSQPHeuristic"),
        (pt.PTST(allocation=pt.Optimal(np.full((2, 2, 2), 0.5))), "Optimal"),
        (pt.KLBTS(), "KLBTS"),
    ],
)
def test_settings_without_a_meaning_here_are_refused(method, message):
    first, second, sim, _ = two_policies()
    with pytest.raises(pt.InputError, match=message):
        pt.compare(first, second, sim, method=method)


def test_balanced_shares_raise_the_least_cut():
    cuts = np.array([[4.0, 1.0, 0.0], [1.0, 4.0, 0.0]])
    even = np.full(3, 1 / 3)
    found = balanced(cuts, even)
    assert found.sum() == pytest.approx(1.0)
    assert (cuts @ found).min() == pytest.approx(2.5, rel=0.05)  # half each, nothing for the third
    assert (balanced(np.zeros((1, 3)), even) == even).all()


# ---------------------------------------------------------------- ties


def test_a_tie_ends_with_an_indifference_zone():
    first, second, kernel = tie()
    sim = pt.TabularSimulator(kernel)
    verdict = pt.compare(first, second, sim, indifference=0.3, max_samples=200_000)
    assert (verdict.answer, verdict.certified) == ("within", True)
    assert "within" in json.loads(verdict.to_json())["answer"]
    assert "give or take 0.3" in str(verdict).splitlines()[0]
    far = pt.compare(first, second, sim, margin=-0.5, indifference=0.05, max_samples=200_000)
    assert far.answer == "above"
    with pytest.raises(pt.InputError, match="indifference"):
        pt.compare(first, second, sim, indifference=0.3, method=pt.PTST())
    with pytest.raises(pt.InputError, match="indifference"):
        pt.compare(first, second, sim, indifference=-1.0)
    known = pt.compare(first, first, sim, indifference=0.1)  # beforehand, without samples
    assert (known.answer, known.samples, known.certified) == ("within", 0, True)
    assert pt.compare(first, first, sim, indifference=0.1, margin=0.2).answer == "below"


def test_within_is_answered_at_most_as_often_as_delta_allows():
    """The difference is at the edge of the zone: then "within" is wrong, and so is the answer of the nearer side."""
    first, second, kernel = tie()
    sim, runs, zone = pt.TabularSimulator(kernel), 60, 0.3
    answers = [
        pt.compare(first, second, sim, 0.1, zone, rng=seed, max_samples=600, indifference=zone).answer
        for seed in range(runs)
    ]
    assert not too_often(answers.count("within"), runs, 0.1)
    assert not too_often(answers.count("above"), runs, 0.1)


# ---------------------------------------------------------------- interrupted, kept, resumed


def pressing(sim, at, times=1):
    """A simulator during whose draw number ``at`` Ctrl-C is pressed."""
    calls = [0]

    def draw(states, actions, rng):
        calls[0] += 1
        if calls[0] == at:
            for _ in range(times):
                signal.raise_signal(signal.SIGINT)
        return sim.draw(states, actions, rng)

    return draw


@pytest.mark.parametrize("method", [None, pt.PTST()], ids=["betting", "ptst"])
def test_ctrl_c_ends_a_comparison_between_draws(method):
    first, second, sim, _ = two_policies()
    before = signal.getsignal(signal.SIGINT)
    verdict = pt.compare(first, second, pressing(sim, 5), 1e-9, method=method)
    assert (verdict.answer, verdict.certified, verdict.reason) == (None, False, "interrupted")
    assert verdict.samples == verdict.counts.total > 0
    assert signal.getsignal(signal.SIGINT) is before
    again = pt.compare(first, second, sim.draw, 1e-9, method=method, resume=verdict)
    whole = pt.compare(first, second, sim.draw, 1e-9, method=method)
    assert (again.answer, again.samples) == (whole.answer, whole.samples)
    twice = pt.compare(first, second, pressing(sim, 5, 2), 1e-9, method=method)  # gives up the draw at hand
    assert twice.reason == "interrupted"


@pytest.mark.parametrize(
    ("method", "cut"), [(None, 1), (None, 300), (pt.PTST(), 77), (pt.PTST(allocation=pt.Adaptive()), 77)]
)
def test_a_resumed_comparison_is_the_same_run(method, cut, tmp_path):
    first, second, sim, _ = two_policies()
    whole = pt.compare(first, second, sim, method=method, rng=8)
    cut = min(cut, whole.samples - 1)
    path = tmp_path / "run.npz"
    part = pt.compare(first, second, sim, method=method, rng=8, max_samples=cut, checkpoint=path)
    assert (part.answer, part.samples) == (None, cut)
    for resume in (part, path):
        rest = pt.compare(first, second, sim, method=method, rng=99, resume=resume)
        assert (rest.answer, rest.samples, rest.evidence) == (whole.answer, whole.samples, whole.evidence)
        assert (rest.counts.N == whole.counts.N).all()


def test_resuming_something_else_is_refused(tmp_path):
    first, second, sim, _ = two_policies()
    path = tmp_path / "run.npz"
    pt.compare(first, second, sim, rng=8, max_samples=60, checkpoint=path)
    dear = pt.Task(second.rewards - 0.1, second.policy, second.initial, second.discount)
    for changed in (
        lambda: pt.compare(first, dear, sim, resume=path),
        lambda: pt.compare(second, first, sim, resume=path),
        lambda: pt.compare(first, second, sim, margin=0.1, resume=path),
        lambda: pt.compare(first, second, sim, method=pt.PTST(), resume=path),
        lambda: pt.compare(first, second, sim, indifference=0.1, resume=path),
        lambda: pt.compare(first, second, sim, checkpoint=path),
        lambda: pt.compare(first, second, sim, resume=3),
    ):
        with pytest.raises(pt.InputError):
            changed()


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("above.capital", lambda x: x + 1.0),
        ("above.won", lambda x: x + 0.5),
        ("above.bets", lambda x: np.append(x[:, :1], 0.5 * x[:, 1:], axis=1)),  # the room, and halves of the fractions
        ("plan.numbers", lambda x: x * 0.5),
        ("plan.a.base", lambda x: x + 1.0),
        ("plan.fractions", lambda x: x * 2.0),
        ("plan.wide", lambda x: x * 2.0),
        ("progress", lambda x: x + 1),
        ("walker", lambda x: np.array([1.0, 9.0, 0.0, 1.0, 0.0, -1.0, 0.0, 0.0])),
        ("numbers", lambda x: x[:, :2]),
    ],
)
def test_a_state_that_cannot_have_arisen_is_refused(name, change):
    first, second, sim, _ = two_policies()
    part = pt.compare(first, second, sim, 1e-6, rng=8, max_samples=200)
    part.snapshot[name] = change(part.snapshot[name])
    with pytest.raises(pt.InputError, match="resume"):
        pt.compare(first, second, sim, 1e-6, resume=part)


def test_progress_is_told():
    first, second, sim, _ = two_policies()
    for method in (None, pt.PTST()):
        seen = []
        verdict = pt.compare(first, second, sim, method=method, progress=seen.append)
        assert seen[-1].samples == verdict.samples
        assert seen[-1].answer == "above"
        assert [check.samples for check in seen] == sorted(check.samples for check in seen)
        low, high = seen[-1].interval()
        assert low < seen[-1].estimate < high
