"""Many sets of coins on one log: their weighted-median vote, on adaptive logs too; and burn-in for fitting."""

from __future__ import annotations

import math
from types import SimpleNamespace

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from policytest.eprocess.interval import HALF
from policytest.kl.sampler import Recorded
from policytest.methods import stacks
from policytest.questions.watch import Watch

DELTA, LEVEL = 0.2, -math.log(0.2)


def clinic():
    """Three states that never end, one of them with a random action: (task, kernel)."""
    kernel = np.zeros((3, 2, 3))
    kernel[0] = [[0.2, 0.7, 0.1], [0.5, 0.2, 0.3]]
    kernel[1] = [[0.1, 0.5, 0.4], [0.3, 0.3, 0.4]]
    kernel[2] = [[0.6, 0.1, 0.3], [0.2, 0.2, 0.6]]
    policy = [[0.5, 0.5], [1.0, 0.0], [0.0, 1.0]]
    return pt.Task([[0.0, 0.2], [1.0, 0.3], [0.4, 0.8]], policy, [1.0, 0.0, 0.0], 0.8), kernel


def corridor(length=120):
    """Places in a row that are left by small steps, with declared neighbours: many unknown rows, few of them rich."""
    kernel, support = np.zeros((length, 1, length)), np.zeros((length, 1, length), dtype=bool)
    for s in range(length - 1):
        near = sorted({max(s - 1, 0), s, s + 1})
        support[s, 0, near] = True
        kernel[s, 0, near] = 0.25
        kernel[s, 0, s + 1] += 1.0 - kernel[s, 0].sum()
    kernel[-1, 0, -1] = support[-1, 0, -1] = True
    rewards = np.zeros((length, 1, length))
    rewards[length - 2, 0, length - 1] = 1.0
    initial = np.zeros(length)
    initial[length - 15] = 1.0
    return pt.Task(rewards, np.ones((length, 1)), initial, 0.99, support, terminal=[length - 1]), kernel


def restless(kernel, rng, most=400, patience=math.inf):
    """A log whose rule looks at what it got: another action after bad luck, and an end after much good luck."""
    s, luck, rows = 0, 0.0, []
    for t in range(most):
        a = int(luck < 0) if rng.random() < 0.7 else int(rng.random() < 0.5)
        x = int((rng.random() > kernel[s, a].cumsum()).sum())
        rows.append((s, a, x))
        luck, s = 0.9 * luck + (x == 1) - 0.7 * (x == 2), x
        if t > 100 and luck > patience:
            break
    return np.transpose(rows)


def visited(kernel, rng, length):
    """A log that jumps to a random place near the end now and then, and goes on from there."""
    s = np.where(rng.random(length) < 0.1, rng.integers(len(kernel) - 20, len(kernel), size=length), -1)
    at, rows = 0, []
    for jump in s:
        at = int(jump) if jump >= 0 else at
        x = int((rng.random() > kernel[at, 0].cumsum()).sum())
        rows.append((at, 0, x))
        at = x
    return np.transpose(rows)


def started(task, threshold, rows, level=LEVEL, **settings):
    """A run that was given these rows."""
    run = pt.LogBetting(**settings).replay(task, threshold, Recorded.of(task, pt.Transitions(*rows)))
    run.begin(level)
    run.step(level, len(rows[0]))
    return run


# ---------------------------------------------------------------- half of the sets


def test_half_of_the_sets_by_weight():
    rng, (task, _) = np.random.default_rng(0), clinic()
    for sets in (1, 2, 3, 4, 16, 17, 64):
        side = stacks.OneSide(
            pt.LogBetting().replay(task, 0.0, Recorded.of(task, pt.Transitions([], [], []))).runs[:sets], 0
        )
        assert side.weights.sum() == pytest.approx(1.0)
        assert side.weights[: side.long].sum() > 0.5
        for _ in range(20):
            values = np.round(rng.normal(size=sets), 1)
            reached = [value for value in values if side.weights[values >= value].sum() >= 0.5 - 1e-9]
            assert side.vote(values) == max(reached)
            side.runs = [SimpleNamespace(one_sided=lambda level, end=value: (end, end)) for value in values]
            assert side.end(LEVEL, of_answer=False) == max(reached)


def test_the_answer_falls_where_half_of_the_sets_have_reached_twice_the_level():
    task, kernel = clinic()
    rows = restless(kernel, np.random.default_rng(3), 3000)
    run = started(task, pt.value(task, kernel) - 0.25, rows, coins=2)
    side = run.sides[0]
    assert run.answer == "above"
    assert sum(side.weights[i] for i, row in side.crossed.items() if row <= run.used()) >= 0.5
    assert sum(side.weights[i] for i, row in side.crossed.items() if row < run.used()) < 0.5
    before = started(task, run.threshold, rows[:, : run.used() - 1], coins=2)
    again = started(task, run.threshold, rows[:, : run.used()], coins=2)
    assert (before.answer, again.answer, again.used()) == (None, "above", run.used())
    assert run.evidence()[0] >= LEVEL
    matter = (run.whole.task.policy[rows[0], rows[1]] > 0).sum()
    assert (run.samples, run.counts().total) == (3000, matter)  # estimate and interval rest on all rows


def test_seeds_of_the_coins_hardly_matter():
    task, kernel = clinic()
    rows = restless(kernel, np.random.default_rng(4), 1500)
    runs = [started(task, pt.value(task, kernel) - 0.2, rows, seed=seed) for seed in range(4)]
    of_half, of_one = np.std([run.evidence()[0] for run in runs]), np.std(runs[0].sides[0].best)
    assert of_half < 0.25
    assert of_half < 0.4 * of_one


def test_large_tasks_have_fewer_sets_and_one_decides_alone(monkeypatch):
    (task, kernel), entries = clinic(), 12  # four pairs that the policy takes, three successors each
    rows = restless(kernel, np.random.default_rng(3), 1500)
    for most, sets in ((10**6, 8), (3 * entries, 3), (entries, 1), (1, 1)):
        monkeypatch.setattr(stacks, "MOST_ENTRIES", most)
        run = started(task, pt.value(task, kernel) - 0.25, rows, coins=2)
        assert [len(side.runs) for side in run.sides] == [sets, sets]
    assert run.evidence()[0] == run.sides[0].best[0]
    assert run.answer == "above"
    assert run.verdict_interval(LEVEL)[0] >= run.threshold


# ---------------------------------------------------------------- the promise


@pytest.mark.parametrize("hidden", [0.0, 0.7], ids=["all rows", "some bad ones are left out"])
def test_adaptive_logs_are_wrong_at_most_as_often_as_delta_allows(hidden):
    (task, kernel), runs, wrong = clinic(), 50 if not hidden else 20, {"above": 0, "below": 0, None: 0}
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        rows = restless(kernel, rng, 800, patience=4.0 if not hidden and seed % 2 else math.inf)
        left_out = (rows[2] == 0) & (rng.random(rows.shape[1]) < hidden)
        wrong[started(task, pt.value(task, kernel), rows[:, ~left_out], coins=1).answer] += 1
    assert too_often(max(wrong["above"], wrong["below"]), runs, DELTA) == bool(hidden)


def test_intervals_hold_the_value_and_an_answer_is_outside():
    (task, kernel), missed, runs = clinic(), 0, 30
    value = pt.value(task, kernel)
    for seed in range(runs):
        rows = restless(kernel, np.random.default_rng(100 + seed), 600, patience=4.0)
        run = started(task, value - 0.2, rows, coins=1)
        low, high = run.interval(LEVEL)
        missed += not low <= value <= high
        lower, upper = run.verdict_interval(LEVEL)
        assert run.answer != "above" or lower >= run.threshold
        assert lower <= upper
    assert not too_often(missed, runs, DELTA)


# ---------------------------------------------------------------- learning first


def test_the_first_rows_of_a_large_task_only_teach():
    task, kernel = corridor()
    rows = visited(kernel, np.random.default_rng(0), 4000)
    run = started(task, 0.2, rows, coins=1)
    teacher = run.runs[0]
    assert run.learnt
    assert 0 < run.taught < 4000
    taught, k = run.taught, Recorded.of(task, pt.Transitions(*rows)).k
    for one in run.runs:  # what was counted is what was taught, and what was bet on lies behind it
        taken = one.source.at - one.source.start[:-1]
        assert one.tally.n.sum() == (k[:taught] >= 0).sum() + taken.sum()
        assert min(one.source.order[one.source.start[:-1][taken > 0]], default=taught) >= taught
    need = np.where(teacher.tally.unknown, teacher.payoff.visits_in_a_rollout(), 0.0)
    assert (need > stacks.RARELY).sum() > 10
    assert run.answer == "above"
    assert run.used() > taught
    unlearnt = started(task, 0.2, rows[:, :20], coins=1)
    assert not unlearnt.learnt
    assert "missing" in unlearnt.why_undecided()
    assert unlearnt.evidence() == (-HALF, -HALF)


@pytest.mark.parametrize(("make", "length", "bar"), [(clinic, 900, -0.25), (corridor, 3000, -0.4)])
def test_however_a_log_arrives_the_verdict_is_the_same(make, length, bar):
    (task, kernel), rng = make(), np.random.default_rng(5)
    rows = (restless if make is clinic else visited)(kernel, rng, length)
    threshold, method = pt.value(task, kernel) + bar, pt.LogBetting(coins=1)
    watch, at = Watch(task, threshold, DELTA, method), 0
    while watch.found is None and at < length:
        more = int(rng.integers(1, 60))
        watch.add(*rows[:, at : at + more])
        at += more
    whole = pt.assess(task, pt.Transitions(*rows), threshold, DELTA, method)
    assert watch.verdict().answer == whole.answer == "above"
    assert watch.verdict().samples == whole.samples


def test_long_logs_are_gone_through_by_some_sets(monkeypatch):
    monkeypatch.setattr(stacks, "LONG_LOG", 500)
    (task, kernel), rng = clinic(), np.random.default_rng(6)
    rows = restless(kernel, rng, 2000)
    at_once = started(task, pt.value(task, kernel) - 0.3, rows, coins=1)
    for side in at_once.sides:
        assert [run.source.size for run in side.runs] == [2000, 500, 500, 500]
    in_parts = pt.LogBetting(coins=1).replay(task, at_once.threshold, Recorded.of(task, pt.Transitions(*rows[:, :300])))
    in_parts.step(LEVEL, 0)
    for first, last in ((300, 700), (700, 2000)):
        part = Recorded.of(task, pt.Transitions(*rows[:, first:last]))
        in_parts.source.extend(part.k, part.x)
        in_parts.step(LEVEL, 0)
    assert (in_parts.answer, in_parts.used()) == (at_once.answer, at_once.used())
    assert in_parts.interval(LEVEL) == pytest.approx(at_once.interval(LEVEL), abs=1e-9)


# ---------------------------------------------------------------- comparisons


def test_two_policies_are_compared_by_half_of_the_sets():
    task, kernel = clinic()
    other = pt.Task(task.rewards, [[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]], task.initial, task.discount)
    gap = pt.value(task, kernel) - pt.value(other, kernel)
    data = pt.Transitions(*restless(kernel, np.random.default_rng(7), 3000))
    for margin, answer in ((gap - 0.4, "above"), (gap + 0.4, "below")):
        verdicts = [pt.compare(task, other, data, delta=DELTA, margin=margin, rng=seed) for seed in range(2)]
        for verdict in verdicts:
            assert (verdict.answer, verdict.certified) == (answer, True)
            assert verdict.counts.total == 3000
            assert verdict.interval[0] <= gap <= verdict.interval[1]
        assert max(verdicts[0].evidence) == pytest.approx(max(verdicts[1].evidence), rel=0.15)
    within = pt.compare(task, other, data, delta=DELTA, margin=gap, indifference=2.0)
    assert within.answer == "within"
    assert within.certified
    assert within.interval[0] >= gap - 2.0
    assert within.interval[1] <= gap + 2.0


def test_a_log_cannot_be_resumed_and_counts_have_no_order():
    task, kernel = clinic()
    run = started(task, 0.5, restless(kernel, np.random.default_rng(8), 50), coins=1)
    assert run.state() == {}
    with pytest.raises(pt.InputError, match="cannot resume on a log"):
        run.restore({})
    with pytest.raises(pt.InputError, match="counts have no order"):
        run.judge_counts(run.counts(), LEVEL, "adaptive")
