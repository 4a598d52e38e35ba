"""The test itself: it stops exactly when a check at every sample would, whatever is put between it and its samples.

The reference is a loop in plain Python: record one transition, write the boundary out, seek the nearest kernel on the
other side afresh, stop when it is at least that far away.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import re
import signal
import threading
import warnings
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import TWO, each, run_python
from builders import Called as Plain
from formulas import allowed, dimension, dimensions, loss
from plain import PTST, assess, checks, decide, stopping_times
from policytest._base.compiled import evidence as compiled_evidence
from policytest.kl import witness
from policytest.kl.boundaries import average
from policytest.mdp.values import extreme_state_values
from policytest.methods import checkpoint
from problems import Case, nearest_by_slsqp

TABLE = pt.TabularSimulator(TWO.kernel)


class Table(pt.TabularSimulator):
    """One that remembers. It is drawn from ahead: the log may be longer than the run."""

    def __init__(self, kernel: np.ndarray) -> None:
        super().__init__(kernel)
        self.log: list[tuple[int, int, int]] = []
        self.calls = 0

    def draw(self, states, actions, rng):
        x = super().draw(states, actions, rng)
        self._record(states, actions, x)
        return x

    def walk(self, *arguments):
        pair, x, after = super().walk(*arguments)
        self._record(pair // self.n_actions, pair % self.n_actions, x)
        return pair, x, after

    def _record(self, s, a, x) -> None:
        self.calls += 1
        self.log += zip(s.tolist(), a.tolist(), x.tolist(), strict=True)


# ---------------------------------------------------------------- the reference


def centre(task: pt.Task, N: np.ndarray) -> np.ndarray:
    """N/n; unvisited rows uniform on their support, rows that do not matter anything."""
    n, support = N.sum(axis=-1, keepdims=True), allowed(task)
    free = support / np.maximum(support.sum(axis=-1, keepdims=True), 1)
    p = np.where(n > 0, N / np.maximum(n, 1), free)
    return np.where((task.policy > 0)[..., None], p, 1 / task.n_states)


def least_loss(task: pt.Task, N: np.ndarray, threshold: float, enough: float) -> float:
    """The distance to the other side: the smallest of a cold start and of several, or any found below `enough`."""
    best = np.inf
    for solver in (pt.ProjectionFree(), pt.ProjectionFree(starts=16)):
        weights = np.where(task.policy > 0, N.sum(axis=-1), 0)
        found = pt.nearest_kernel(task, centre(task, N), weights, threshold, solver)
        assert found.kernel is not None or found.status is pt.Status.UNREACHABLE
        best = min(best, found.upper)
        if best < enough:
            break
    return best


def brute_force(task, threshold, boundary, deltas, transitions, least=least_loss, every=1):
    """[(t, answer)] for each delta: the first t at which no kernel on the other side has a loss below beta."""
    N = np.zeros((task.n_states, task.n_actions, task.n_states), dtype=int)
    stops: dict[float, tuple[int, str]] = {}
    for t, (s, a, x) in enumerate(transitions, 1):
        N[s, a, x] += 1
        if t % every:
            continue
        term = dimension(boundary, task, N)
        waiting = [delta for delta in deltas if delta not in stops]
        distance = least(task, N, threshold, term + min(-math.log(delta) for delta in waiting))
        for delta in waiting:
            if distance >= term - math.log(delta):
                stops[delta] = (t, "above" if pt.value(task, centre(task, N)) > threshold else "below")
        if len(stops) == len(set(deltas)):
            break
    return [stops.get(delta) for delta in deltas]


def counts_of(task: pt.Task, transitions) -> pt.Counts:
    counts = pt.Counts(task.n_states, task.n_actions)
    s, a, x = np.array(transitions, dtype=int).reshape(-1, 3).T
    counts.record(s, a, x)
    return counts


# ---------------------------------------------------------------- instances


@dataclass(frozen=True)
class Instance:
    task: pt.Task
    kernel: np.ndarray
    threshold: float


def place_threshold(task: pt.Task, kernel: np.ndarray, side: str, how_far: float) -> Instance:
    value = pt.value(task, kernel)
    end = pt.value_range(task)[0 if side == "above" else 1]
    return Instance(task, kernel, value + how_far * (end - value))


@cache
def instance(name: str) -> Instance:
    rng = np.random.default_rng(11)
    if name == "above":
        return Instance(TWO.task, TWO.kernel, -0.1)
    if name == "below":
        return Instance(TWO.task, TWO.kernel, 0.5)
    if name == "known rows":  # a declared support with a known row, and a policy with zeros
        support = np.ones((3, 2, 3), dtype=bool)
        support[0, 0], support[1, 1], support[2, 0] = [0, 0, 1], [1, 1, 0], [0, 1, 1]
        policy = [[0.5, 0.5], [0.2, 0.8], [1.0, 0.0]]
        task = pt.Task([[1.0, -0.3], [0.1, 0.4], [-1.0, 5.0]], policy, [0.3, 0.7, 0.0], 0.7, support=support)
        kernel = rng.dirichlet(np.full(3, 2.0), size=(3, 2)) * support
        return place_threshold(task, kernel / kernel.sum(axis=-1, keepdims=True), "above", 0.5)
    if name == "on the successor":  # rewards r[s,a,x]
        task = pt.Task(rng.normal(0.3, 1.0, size=(2, 2, 2)), [[0.3, 0.7], [0.6, 0.4]], [1.0, 0.0], 0.5)
        return place_threshold(task, np.array([[[0.8, 0.2], [0.3, 0.7]], [[0.6, 0.4], [0.1, 0.9]]]), "below", 0.5)
    if name == "undiscounted by nothing":  # discount 0: only the first reward counts
        task = pt.Task(rng.normal(size=(3, 1, 3)), np.ones((3, 1)), [0.5, 0.5, 0.0], 0.0)
        return place_threshold(task, rng.dirichlet(np.ones(3), size=(3, 1)), "above", 0.6)
    assert name == "three states"
    task = pt.Task([[1.0], [0.0], [-0.5]], np.ones((3, 1)), [0.0, 1.0, 0.0], 0.9)
    return place_threshold(task, np.random.default_rng(5).dirichlet(np.ones(3), size=(3, 1)), "below", 0.6)


INSTANCES = ["above", "below", "known rows", "on the successor", "undiscounted by nothing", "three states"]


def weights_of(task: pt.Task) -> np.ndarray:
    weights = np.random.default_rng(2).uniform(0.2, 1.0, size=task.policy.shape)
    return weights / weights.sum()


ALLOCATIONS = {
    "uniform": lambda given: "uniform",
    "shares": lambda given: weights_of(given.task),
    "optimal": lambda given: pt.Optimal(given.kernel, explore=0.2),
    "adaptive": lambda given: pt.Adaptive(first=3, growth=1.3),
    "forward": lambda given: pt.Forward(),
}
BOUNDARIES = {
    "paper": pt.PaperBoundary(),
    "mixture": pt.MixtureBoundary(),
    "uniform prior": pt.MixtureBoundary(1.0),
    "several priors": pt.MixtureBoundary((0.05, 0.5, 2.0)),
}


def method_for(given: Instance, allocation: str = "uniform", boundary: str = "mixture", batch: int = 1) -> pt.PTST:
    return PTST(boundary=BOUNDARIES[boundary], allocation=ALLOCATIONS[allocation](given), batch=batch)


def run(given: Instance, sim: Any, method: pt.PTST, delta: float = 0.05, seed: Any = 0, **settings: Any) -> pt.Verdict:
    return decide(given.task, sim, given.threshold, delta, method, rng=seed, **settings)


# ---------------------------------------------------------------- the stopping time


GRID = [
    *itertools.product(INSTANCES, ["uniform"], BOUNDARIES),
    *itertools.product(["above", "known rows"], ["shares", "optimal", "adaptive", "forward"], ["mixture"]),
    *itertools.product(["below"], ["adaptive", "forward"], ["several priors"]),
]
DELTAS = [1e-3, 0.4, 0.05]


@pytest.mark.parametrize(("name", "allocation", "boundary"), GRID)
def test_it_stops_when_a_check_at_every_sample_would(name, allocation, boundary):
    given = instance(name)
    method = method_for(given, allocation, boundary)
    log, expected = [], []
    for sim in (Plain(given.kernel), Table(given.kernel)):
        found = stopping_times(given.task, sim, given.threshold, DELTAS, method, rng=7)
        if sim.log[: len(log)] != log or not log:  # a table that walks by itself draws others
            log, expected = sim.log, brute_force(given.task, given.threshold, method.boundary, DELTAS, sim.log)
        assert [(int(t), answer) for t, answer in zip(found.samples, found.answers, strict=True)] == expected
        assert len({t for t, _ in expected}) > 1
        if isinstance(sim, Plain):
            assert len(sim.log) == found.samples.max()


@pytest.mark.parametrize("name", ["above", "below"])
def test_it_stops_when_a_check_by_slsqp_would(name):
    """The nearest kernel by a solver that shares nothing with the library's."""
    given = instance(name)
    low, high = (np.zeros((2, 2, 2)) for _ in range(2))
    low[..., int(np.argmin(pt.state_values(given.task, given.kernel)))] = 1.0
    high[..., int(np.argmax(pt.state_values(given.task, given.kernel)))] = 1.0

    def by_slsqp(task, N, threshold, enough):
        p, n = centre(task, N), N.sum(axis=-1).astype(float)
        case = Case("brute force", task, p, n, threshold)
        far = low if case.sign > 0 else high
        best = np.inf
        for share in (0.01, 0.1, 0.3, 0.9):
            best = min(best, nearest_by_slsqp(case, (1 - share) * p + share * far)[0])
            if best < enough - 1e-6:
                break
        return best

    for seed in range(2):
        sim = Plain(given.kernel)
        verdict = run(given, sim, method_for(given), delta=0.2, seed=seed)
        expected = brute_force(given.task, given.threshold, pt.MixtureBoundary(), [0.2], sim.log, least=by_slsqp)
        assert expected == [(verdict.samples, verdict.answer)], seed


def test_several_local_minima_take_the_nearest():
    """Sparse counts and a wide threshold, where one descent lands above the global minimum at times."""
    rng = np.random.default_rng(1)
    for seed in range(8):
        task = pt.Task(rng.choice([-1.0, 0.0, 1.0, 3.0], size=(3, 1)), np.ones((3, 1)), rng.dirichlet(np.ones(3)), 0.9)
        if np.ptp(task.rewards) == 0:
            continue
        given = place_threshold(task, rng.dirichlet(np.full(3, 0.3), size=(3, 1)), "above", 0.5)
        sim = Table(given.kernel)
        verdict = run(given, sim, method_for(given), delta=0.1, seed=seed, max_samples=400)
        [expected] = brute_force(task, given.threshold, pt.MixtureBoundary(), [0.1], sim.log[:400])
        assert (verdict.samples, verdict.answer) == (expected or (400, None))


def test_before_an_answer_other_descents_are_tried():
    """Counts where the first descent ends at 29.4 nats and another at 18.4: between the two there is no answer yet."""
    task = pt.Task([[0.0], [3.0], [0.0]], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9)
    N, threshold = 3 * np.array([[[0, 5, 0]], [[1, 0, 5]], [[0, 3, 0]]]), 5.68
    first = pt.nearest_kernel(task, centre(task, N), N.sum(axis=-1), threshold).upper
    best = least_loss(task, N, threshold, -np.inf)
    assert (first, best) == (pytest.approx(29.417, abs=1e-3), pytest.approx(18.429, abs=1e-3))
    term = dimension(pt.MixtureBoundary(), task, N)
    for required, answer in ((best - 0.1, "above"), (best + 0.1, None), (first - 0.1, None)):
        verdict = assess(task, pt.Counts.from_array(N), threshold, delta=math.exp(term - required))
        assert verdict.answer == answer
        assert answer is None or verdict.evidence[0] == pytest.approx(best - term, rel=1e-6)


@pytest.mark.parametrize("allocation", ["uniform", "shares", "optimal", "adaptive"])
@pytest.mark.parametrize("seed", [0, 1])
def test_draws_ahead_change_nothing(allocation, seed):
    """A table, a plain object and a plain function with the same seed: one run."""
    given = instance("known rows")
    method = method_for(given, allocation)
    plain = Plain(given.kernel)
    inner = pt.TabularSimulator(given.kernel)
    verdicts = [
        run(given, sim, method, 1e-9, seed)
        for sim in (pt.TabularSimulator(given.kernel), plain, lambda s, a, rng: inner.draw(s, a, rng))
    ]
    for verdict in verdicts[1:]:
        assert (verdict.samples, verdict.answer) == (verdicts[0].samples, verdicts[0].answer)
        assert verdict.counts == verdicts[0].counts
    assert len(plain.log) == verdicts[0].samples  # not one too many
    assert plain.calls < verdicts[0].samples / 5


def test_a_limit_on_the_samples_is_one_on_the_draws():
    given = instance("above")
    for limit in (1, 7, 100, 123):
        plain = Plain(given.kernel)
        verdict = run(given, plain, method_for(given), 1e-30, max_samples=limit)
        assert verdict.answer is None
        assert verdict.samples == len(plain.log) == verdict.counts.total == limit
        assert verdict.reason == "the sample limit is reached"


def test_several_deltas_under_a_limit_and_in_batches():
    given = instance("below")
    method = method_for(given, batch=20)
    deltas = [1e-40, 0.5, 1e-3]
    sim = pt.TabularSimulator(given.kernel)
    found = stopping_times(given.task, sim, given.threshold, deltas, method, rng=2, max_samples=130)
    expected = [run(given, sim, method, delta, 2, max_samples=130) for delta in deltas]
    assert found.samples.tolist() == [verdict.samples for verdict in expected]
    assert found.answers.tolist() == [verdict.answer for verdict in expected]
    assert found.answers[0] is None
    assert found.samples[0] == 130


@pytest.mark.parametrize("simulator", [Table, Plain], ids=["table", "plain"])
@pytest.mark.parametrize("batch", [7, 64, 500])
def test_batches_are_looked_at_only_at_their_ends(batch, simulator):
    given = instance("above")
    sim = simulator(given.kernel)
    verdict = run(given, sim, method_for(given, batch=batch), 1e-3)
    exact = run(given, pt.TabularSimulator(given.kernel), method_for(given), 1e-3)
    expected = brute_force(given.task, given.threshold, pt.MixtureBoundary(), [1e-3], sim.log, every=batch)
    assert expected == [(verdict.samples, verdict.answer)]
    assert verdict.samples % batch == 0
    assert verdict.samples >= exact.samples
    if simulator is Plain:
        assert len(sim.log) == verdict.samples


@pytest.mark.parametrize("batch", [200, 1000])
def test_a_batch_is_drawn_in_few_calls(batch):
    """It is made for simulators that are slow to call."""
    sim = Plain(TWO.kernel)
    verdict = decide(TWO.task, sim, threshold=0.0, delta=1e-9, method=PTST(batch=batch))
    assert verdict.samples == len(sim.log)
    assert sim.calls <= 10 * verdict.samples / batch + 10


def test_sparse_and_dense_tasks_are_one_test():
    given = instance("known rows")
    task = given.task
    support = sparse.csr_array(task.support.reshape(6, 3))
    spare = pt.Task(task.rewards, task.policy, task.initial, task.discount, support=support)
    kernel = sparse.csr_array(given.kernel.reshape(6, 3))
    dense = run(given, pt.TabularSimulator(given.kernel), method_for(given))
    found = decide(spare, pt.TabularSimulator(kernel), given.threshold, method=method_for(given))
    assert (found.samples, found.answer) == (dense.samples, dense.answer)
    assert found.counts == dense.counts
    assert found.counts.sparse
    assert found.evidence == pytest.approx(dense.evidence, rel=1e-9)
    np.testing.assert_allclose(
        found.witness.toarray().reshape(3, 2, 3)[task.policy > 0], dense.witness[task.policy > 0]
    )
    assert [line.split("(")[0] for line in str(found).splitlines()[:10]] == [
        line.split("(")[0] for line in str(dense).splitlines()[:10]
    ]


@pytest.mark.parametrize("name", INSTANCES)
def test_units_of_the_reward_do_not_matter(name):
    """r -> c r + b moves the value and the threshold in the same way; a negative c mirrors the answer."""
    given = instance(name)
    task, sim = given.task, pt.TabularSimulator(given.kernel)
    here = run(given, sim, method_for(given), 1e-2)
    for scale, shift in ((1e-8, 0.0), (1e8, 0.0), (1.0, 1e5), (1.0, -1e7), (-1.0, 0.0), (-3.7, 12.0)):
        moved = replace(task, rewards=scale * task.rewards + shift)
        threshold = scale * given.threshold + shift / (1 - task.discount)
        there = decide(moved, sim, threshold, delta=1e-2, method=method_for(given))
        assert there.samples == here.samples, (scale, shift)
        assert there.answer == (here.answer if scale > 0 else {"above": "below", "below": "above"}[here.answer])
        assert there.evidence[:: 1 if scale > 0 else -1] == pytest.approx(here.evidence, rel=1e-5), (scale, shift)


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("name", ["above", "below", "three states"])
def test_tasks_too_large_to_list_stop_by_the_same_rule_a_little_later(name, boundary, monkeypatch):
    """Open rows list what was seen; the rule is looked at when the samples have grown by 1%, or by one a pair."""
    given = instance(name)
    method = method_for(given, boundary=boundary)
    exact = run(given, pt.TabularSimulator(given.kernel), method, 1e-3)
    monkeypatch.setattr(witness, "FULL_ENTRIES", 0)
    found = run(given, pt.TabularSimulator(given.kernel), method, 1e-3)
    assert found.answer == exact.answer
    pairs = given.task.policy.size
    assert exact.samples <= found.samples <= 1.02 * exact.samples + 3 * pairs
    N = found.counts.N.toarray().reshape(given.kernel.shape)
    assert found.counts.sparse
    term = dimension(method.boundary, given.task, N)
    assert least_loss(given.task, N, given.threshold, np.inf) >= term + found.required
    seen = list(checks(given.task, pt.TabularSimulator(given.kernel), given.threshold, 1e-3, method))
    looks = [check.samples for last, check in itertools.pairwise(seen) if check.solves > last.solves]
    assert all(after - before >= max(0.01 * before, pairs) for before, after in itertools.pairwise(looks))
    part = run(given, pt.TabularSimulator(given.kernel), method, 1e-3, max_samples=found.samples // 2)
    again = run(given, pt.TabularSimulator(given.kernel), method, 1e-3, resume=part)
    assert (again.samples, again.answer) == (found.samples, found.answer)


# ---------------------------------------------------------------- how far ahead it is safe to draw


def failing_positions(boundary, widths, N, n, w, evidence, level, plan):
    """For every sequence of successors: the position, from 1, at which the evidence first reaches the level."""
    start = np.concatenate([[0], np.cumsum(widths)])
    base = np.array(evidence) - evidence_of(boundary, widths, N, w)

    @cache
    def reached(added: tuple[int, ...]) -> bool:
        return -average(-(base + evidence_of(boundary, widths, N + np.array(added), w))) >= level

    for sequence in itertools.product(*(range(widths[row]) for row in plan)):
        added = [0] * len(N)
        for position, (row, x) in enumerate(zip(plan, sequence, strict=True), 1):
            added[start[row] + x] += 1
            if reached(tuple(added)):
                yield position
                break


def evidence_of(boundary, widths, N, w) -> np.ndarray:
    """loss - dimension for each prior, of rows given by entries, through a task that has them."""
    S = max(max(widths), len(widths), 2)
    table, kernel = np.zeros((S, 1, S), dtype=int), np.zeros((S, 1, S))
    support = np.zeros((S, 1, S), dtype=bool)
    support[:, 0, 0] = True
    at = 0
    for row, width in enumerate(widths):
        table[row, 0, :width], kernel[row, 0, :width] = N[at : at + width], w[at : at + width]
        support[row, 0, :width] = True
        at += width
    task = pt.Task(np.zeros((S, 1)), np.ones((S, 1)), np.eye(S)[0], 0.5, support=support)
    return loss(task, table, kernel) - np.array(dimensions(boundary, task, table))


def ahead_problem(boundary, seed):
    rng = np.random.default_rng(seed)
    widths = rng.integers(1, 4, size=int(rng.integers(1, 4)))
    start = np.concatenate([[0], np.cumsum(widths)])
    N = rng.integers(0, int(rng.choice([1, 3, 12])) + 1, size=start[-1]).astype(float)
    w = rng.dirichlet(np.full(start[-1], float(rng.choice([0.3, 3.0]))))
    w /= np.repeat(np.add.reduceat(w, start[:-1]), widths)
    n = np.add.reduceat(N, start[:-1])
    S = max(max(widths), len(widths), 2)
    terms = boundary.terms(widths.astype(float), S)
    evidence = evidence_of(boundary, widths, N.astype(int), w)
    level = -average(-evidence) + rng.exponential(1.0)
    plan = rng.integers(len(widths), size=int(rng.integers(1, 7)))
    return widths, start, terms, N, n, w, evidence, level, plan


@pytest.mark.parametrize("boundary", BOUNDARIES)
def test_no_sequence_of_successors_can_fail_the_witness_before_the_last_draw(boundary):
    for seed in range(60):
        widths, start, terms, N, n, w, evidence, level, plan = ahead_problem(BOUNDARIES[boundary], seed)
        before = N.copy(), n.copy(), evidence.copy()
        safe = compiled_evidence.safe_ahead(start, *terms, N, n, w, evidence, level, plan)
        for array, copy in zip((N, n, evidence), before, strict=True):
            np.testing.assert_array_equal(array, copy)  # it only looks
        assert 1 <= safe <= len(plan)
        failing = set(failing_positions(BOUNDARIES[boundary], widths, N.astype(int), n, w, evidence, level, plan))
        assert all(position >= safe for position in failing), (seed, safe, failing)
        if safe < len(plan) and boundary in ("mixture", "uniform prior"):
            assert safe in failing, (seed, safe, failing)  # and no fewer than need be


def test_without_a_witness_one_draw_at_a_time_and_without_a_level_all_at_once():
    _, start, terms, N, n, w, evidence, _, _ = ahead_problem(pt.MixtureBoundary(), 3)
    plan = np.zeros(50, dtype=int)
    assert compiled_evidence.safe_ahead(start, *terms, N, n, w, np.full_like(evidence, np.inf), 3.0, plan) == 1
    assert compiled_evidence.safe_ahead(start, *terms, N, n, w, evidence, np.inf, plan) == 50


# ---------------------------------------------------------------- no samples, few samples, odd thresholds


@pytest.mark.parametrize("name", INSTANCES)
def test_thresholds_outside_the_range_need_no_sample(name):
    task, plain = instance(name).task, Plain(instance(name).kernel)
    low, high = pt.value_range(task)
    for threshold, answer in (
        (low - 0.01, "above"),
        (low - 1e9, "above"),
        (high + 0.01, "below"),
        (high + 1e9, "below"),
    ):
        verdict = decide(task, plain, threshold)
        assert (verdict.answer, verdict.samples, verdict.certified) == (answer, 0, True), threshold
        assert (verdict.interval, verdict.p_value, verdict.witness) == ((low, high), 0.0, None)
        assert not plain.log
        assert max(verdict.evidence) == np.inf
        assert json.loads(verdict.to_json())["answer"] == answer
        assert "(certified)" in str(verdict)
        times = stopping_times(task, plain, threshold, [0.5, 0.01])
        assert (times.samples.tolist(), times.answers.tolist()) == ([0, 0], [answer, answer])
        [check] = checks(task, plain, threshold)
        assert (check.answer, check.samples, check.interval()) == (answer, 0, (low, high))
        assert assess(task, pt.Counts(task.n_states, task.n_actions), threshold).answer == answer
        with pytest.raises(pt.InputError, match="no run that could continue"):
            decide(task, plain, 0.5 * (low + high), resume=verdict)


def end_can_be_reached(task: pt.Task, N: np.ndarray, end: int) -> bool:
    """Whether some kernel of extreme value has a finite loss: mass on all that was seen.

    It may use successors of extreme worth only, in every state it can come to. Safe states, the largest set: all that
    was seen of them is of this kind and leads to safe states, and where nothing was seen, something of this kind does.
    """
    V = extreme_state_values(task, ("min", "max")[end])
    rewards = task.rewards if task.rewards.ndim == 3 else np.repeat(task.rewards[..., None], task.n_states, axis=2)
    worth = np.where(allowed(task), rewards + task.discount * V, (np.inf, -np.inf)[end])
    best = worth.min(axis=-1, keepdims=True) if end == 0 else worth.max(axis=-1, keepdims=True)
    extreme, safe = np.abs(worth - best) <= 1e-9, np.ones(task.n_states, dtype=bool)
    for _ in range(task.n_states):
        good = extreme & safe
        fine = np.where(N.any(axis=-1), (good | (N == 0)).all(axis=-1), good.any(axis=-1))
        safe &= (fine | (task.policy == 0)).all(axis=1)
    return bool(safe[task.initial > 0].all())


@pytest.mark.parametrize("name", INSTANCES)
@pytest.mark.parametrize("end", [0, 1])
def test_at_an_end_of_the_range_it_stops_once_no_kernel_of_extreme_value_is_left(name, end):
    """Kernels of extreme value may not do what was seen: then their loss is infinite, enough for every delta."""
    given = instance(name)
    threshold = pt.value_range(given.task)[end]
    for seed, delta in itertools.product(range(4), (0.05, 1e-300)):
        sim = Table(given.kernel)
        with pytest.warns(pt.AssumptionWarning, match=f'only "{("above", "below")[end]}" can be answered'):
            verdict = decide(given.task, sim, threshold, delta, rng=seed, max_samples=200)
        N, needed = np.zeros(given.kernel.shape, dtype=int), 0
        while end_can_be_reached(given.task, N, end):
            N[sim.log[needed]] += 1
            needed += 1
        assert verdict.answer == ("above", "below")[end], (seed, delta)
        unknown = given.task.layout.unknown_pairs  # at the latest it stops when each pair was seen once
        assert needed <= verdict.samples <= max(needed, unknown.sum()), (seed, delta)


def all_known(threshold_shift: float) -> tuple[pt.Task, float]:
    support = np.zeros((2, 1, 2), dtype=bool)
    support[0, 0, 1] = support[1, 0, 0] = True
    task = pt.Task([[1.0], [0.25]], np.ones((2, 1)), [1.0, 0.0], 0.5, support=support)
    return task, 1.5 + threshold_shift  # V(0) = 1 + V(1)/2, V(1) = 1/4 + V(0)/2


@pytest.mark.parametrize(("shift", "answer"), [(-1e-6, "above"), (1e-6, "below"), (0.0, None)])
def test_where_every_row_is_known_no_sample_is_drawn(shift, answer):
    task, threshold = all_known(shift)
    plain = Plain(np.array([[[0.0, 1.0]], [[1.0, 0.0]]]))
    verdict = decide(task, plain, threshold)
    assert (verdict.answer, verdict.samples, verdict.certified) == (answer, 0, answer is not None)
    assert not plain.log
    assert verdict.estimate == pytest.approx(1.5)
    if answer is None:
        assert "equals the threshold" in str(verdict)
        assert verdict.evidence == (0.0, 0.0)


@pytest.mark.parametrize("discount", [0.0, 0.5, 0.9, 0.99, 0.999, 0.9999, 0.99999])
def test_a_value_that_equals_the_threshold_up_to_rounding_is_never_answered(discount):
    """Constant rewards: every kernel has the value r/(1-gamma), so both answers are wrong."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        r = float(rng.normal())
        policy, initial = rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S))
        task = pt.Task(np.full((S, A), r), policy, initial, discount)
        sim = pt.TabularSimulator(rng.dirichlet(np.ones(S), size=(S, A)))
        verdict = decide(task, sim, threshold=r / (1 - discount), delta=0.3, max_samples=100)
        assert verdict.answer is None, seed
        assert verdict.samples in (0, 100)  # 0: it is seen that nothing depends on the kernel


@pytest.mark.parametrize("name", INSTANCES)
def test_the_value_itself_as_threshold_is_not_answered_soon(name):
    """V = R, where no test can know; one seed in a few would answer by chance with probability at most 2 delta."""
    given = instance(name)
    value = pt.value(given.task, given.kernel)
    verdict = decide(given.task, pt.TabularSimulator(given.kernel), value, delta=1e-6, max_samples=2000)
    assert verdict.answer is None
    assert max(verdict.evidence) < verdict.required


@pytest.mark.parametrize("name", INSTANCES)
def test_no_samples_allowed(name):
    given = instance(name)
    plain = Plain(given.kernel)
    verdict = run(given, plain, method_for(given), max_samples=0)
    assert (verdict.answer, verdict.samples, plain.log) == (None, 0, [])
    assert verdict.interval == pt.value_range(given.task)
    assert verdict.evidence == (0.0, 0.0)
    assert verdict.lower_bound == np.inf
    assert verdict.p_value == 1.0
    json.loads(verdict.to_json())
    again = run(given, plain, method_for(given), resume=verdict)
    assert again.samples == run(given, pt.TabularSimulator(given.kernel), method_for(given)).samples


@pytest.mark.parametrize("delta", [float(np.nextafter(1, 0)), 0.999, 1e-300, 5e-324])
def test_the_smallest_and_the_largest_delta(delta):
    given = instance("above")
    sim = Table(given.kernel)
    verdict = run(given, sim, method_for(given), delta)
    assert verdict.answer == "above"
    assert verdict.required == -math.log(delta)
    N = counts_of(given.task, sim.log[: verdict.samples]).N
    s, a, x = sim.log[verdict.samples - 1]
    before = N.copy()
    before[s, a, x] -= 1
    for table, stopped in ((N, True), (before, False)):
        reached = least_loss(given.task, table, given.threshold, np.inf) - dimension(
            pt.MixtureBoundary(), given.task, table
        )
        assert (reached >= verdict.required) is stopped


# ---------------------------------------------------------------- data that are already there


@pytest.mark.parametrize("boundary", BOUNDARIES)
@pytest.mark.parametrize("name", INSTANCES)
def test_assess_answers_at_the_stopping_time_and_not_one_sample_earlier(name, boundary):
    given = instance(name)
    method = method_for(given, boundary=boundary)
    sim = Table(given.kernel)
    verdict = run(given, sim, method, 1e-3, seed=4)
    log = sim.log[: verdict.samples]
    settings: dict[str, Any] = {"threshold": given.threshold, "delta": 1e-3, "method": method}
    now = assess(given.task, counts_of(given.task, log), **settings)
    assert (now.answer, now.samples) == (verdict.answer, verdict.samples)
    assert now.evidence == pytest.approx(verdict.evidence, rel=1e-9)
    earlier = assess(given.task, counts_of(given.task, log[:-1]), **settings)
    assert earlier.answer is None
    assert "the data do not settle it" in str(earlier)
    s, a, x = np.array(sim.log[: verdict.samples + 50]).T
    in_order = assess(given.task, pt.Transitions(s, a, x), **settings)
    assert (in_order.answer, in_order.samples) == (verdict.answer, verdict.samples)
    assert in_order.counts == verdict.counts
    short = assess(given.task, pt.Transitions(s[: len(log) - 1], a[: len(log) - 1], x[: len(log) - 1]), **settings)
    assert (short.answer, short.samples) == (None, len(log) - 1)


def test_assess_makes_no_difference_between_designs():
    given = instance("above")
    counts = run(given, TABLE, method_for(given)).counts
    for design in ("adaptive", "fixed"):
        assert assess(given.task, counts, given.threshold, design=design).answer == "above"
    with pytest.raises(pt.InputError, match="design is 'random'"):
        assess(given.task, counts, given.threshold, design="random")


def test_pairs_that_the_policy_never_takes_do_not_matter():
    given = instance("known rows")
    unused = tuple(np.argwhere(given.task.policy == 0)[0])
    sim = Table(given.kernel)
    verdict = run(given, sim, method_for(given))
    log = sim.log[: verdict.samples]
    counts = counts_of(given.task, log)
    counts.record([unused[0]] * 500, [unused[1]] * 500, [1] * 500)
    more = assess(given.task, counts, given.threshold)
    assert more.answer == verdict.answer
    assert more.evidence == pytest.approx(verdict.evidence, rel=1e-9)
    assert more.interval == pytest.approx(verdict.interval, rel=1e-9)
    assert more.lower_bound == pytest.approx(verdict.lower_bound, rel=1e-9)
    mixed = [step for transition in log for step in (transition, (*map(int, unused), 2))]
    in_order = assess(given.task, pt.Transitions(*np.array(mixed).T), given.threshold)
    assert (in_order.answer, in_order.samples) == (verdict.answer, 2 * verdict.samples - 1)
    np.testing.assert_array_equal(in_order.counts.N[given.task.policy > 0], verdict.counts.N[given.task.policy > 0])


def test_transitions_outside_the_support_are_refused():
    given = instance("known rows")
    with pytest.raises(pt.InputError, match=r"transition \(s=1, a=1, x=2\).*widen the support"):
        assess(given.task, counts_of(given.task, [(0, 1, 0), (1, 1, 2)]), given.threshold)
    with pytest.raises(pt.InputError, match=r"transition \(s=1, a=1, x=2\).*widen the support"):
        assess(given.task, pt.Transitions([0, 1], [1, 1], [0, 2]), given.threshold)
    support = np.ones((2, 2, 2), dtype=bool)
    support[0, 1] = [True, False]
    task = pt.Task(TWO.task.rewards, TWO.task.policy, TWO.task.initial, 0.9, support=support)
    with pytest.raises(pt.InputError, match=r"transition \(s=0, a=1, x=\d\).*widen the support"):
        decide(task, TABLE, threshold=0.0, method=PTST(allocation=pt.Forward()))


@each(
    ("data", "message"),
    [
        (lambda: [(0, 0, 1)], "data is a list"),
        (lambda: TWO.kernel, "data is a ndarray"),
        (lambda: pt.Counts(3, 2), r"counts has shape \(3, 2\)"),
        (lambda: pt.Transitions([0.5], [0], [0]), r"s has shape \(1,\) and type float64"),
        (lambda: pt.Transitions([0], [True], [0]), "a has shape"),
        (lambda: pt.Transitions([[0]], [0], [0]), "s has shape"),
        (lambda: pt.Transitions(0, 0, 0), "s has shape"),
        (lambda: pt.Transitions([0, 1], [0, 1], [0]), "2, 2 and 1 entries"),
        (lambda: pt.Transitions([0, 2], [0, 0], [0, 0]), r"data.s\[1\] is 2; it must lie in 0 to 1"),
        (lambda: pt.Transitions([0], [-1], [0]), r"^a\[0\] is -1"),
        (lambda: pt.Transitions([0], [0], [2]), r"data.x\[0\] is 2"),
    ],
)
def test_bad_data_are_refused(data, message):
    with pytest.raises(pt.InputError, match=message):
        assess(TWO.task, data(), threshold=0.0)


def test_no_data_settle_nothing():
    for data in (pt.Transitions([], [], []), pt.Counts(2, 2)):
        verdict = assess(TWO.task, data, threshold=0.0)
        assert (verdict.answer, verdict.samples, verdict.snapshot) == (None, 0, {})
        with pytest.raises(pt.InputError, match="no run that could continue"):
            decide(TWO.task, TABLE, threshold=0.0, resume=verdict)


# ---------------------------------------------------------------- what a verdict says


def test_the_p_value_of_an_undecided_test_is_what_is_proved():
    """Here a single descent finds 12.8 nats, where a kernel at 9.8 nats is beyond the threshold."""
    task = pt.Task([[0.0], [-1.0], [3.0]], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9)
    counts = pt.Counts.from_array(np.array([[[9, 0, 11]], [[0, 1, 19]], [[7, 13, 0]]]))
    v = pt.assess(task, counts, 1.8, 1e-30)
    near = pt.nearest_kernel(task, counts.kernel(), counts.visits, 1.8, pt.ProjectionFree(starts=30)).upper
    assert v.answer is None
    assert v.p_value >= math.exp(-max(near - v.dimension, 0.0)) * (1 - 1e-6)


@each("boundary", BOUNDARIES)
@each("name", INSTANCES)
@each("share", [0.3, 1.0])
def test_a_verdict_says_what_it_rests_on(name, boundary, share):
    """At the end of a run, and where it was cut short."""
    given = instance(name)
    task, threshold = given.task, given.threshold
    method = method_for(given, boundary=boundary)
    full = run(given, pt.TabularSimulator(given.kernel), method, 1e-2, seed=9)
    v = full if share == 1 else run(given, table_of(given), method, 1e-2, 9, max_samples=int(share * full.samples))
    N = v.counts.N
    n, p = N.sum(axis=-1), centre(task, N)
    term, distance = dimension(method.boundary, task, N), least_loss(task, N, threshold, np.inf)
    side = 0 if pt.value(task, p) > threshold else 1
    assert (v.answer is not None) is (share == 1) is (distance >= term + v.required)
    # numbers
    assert v.required == pytest.approx(math.log(100))
    assert v.estimate == pytest.approx(pt.value(task, p), rel=1e-12)
    assert v.evidence[side] == pytest.approx(distance - term, rel=1e-7, abs=1e-7)
    assert v.evidence[1 - side] == pytest.approx(-term, rel=1e-9)
    surely = v.evidence if v.answer else v.proved  # a local search proves nothing
    assert v.p_value == pytest.approx(min(1.0, math.exp(-max(surely))))
    low, high = v.interval
    assert low <= v.estimate <= high
    assert (not low <= threshold <= high) is (v.answer is not None)
    bottom, top = pt.value_range(task)
    assert bottom - 1e-9 <= low
    assert high <= top + 1e-9
    time = pt.characteristic_time(task, p, n / n.sum(), threshold).time
    information = (1 - 2 * v.delta) * math.log((1 - v.delta) / v.delta)
    assert v.lower_bound == pytest.approx(time * information, rel=1e-6)
    # the witness: on the other side, at the distance
    assert (pt.value(task, v.witness) - threshold) * (1 if side == 0 else -1) <= 1e-9
    assert loss(task, N, v.witness) == pytest.approx(v.evidence[side] + term, rel=1e-9)
    assert not v.certified  # nothing is proved by a local search
    # its changes: real ones, dearest first
    costs = [n[c.state, c.action] * kl(p[c.state, c.action], v.witness[c.state, c.action]) for c in v.changes]
    assert 1 <= len(costs) <= 5
    assert costs == sorted(costs, reverse=True)
    dearest = max(n[s, a] * kl(p[s, a], v.witness[s, a]) for s, a in np.argwhere((task.policy > 0) & (n > 0)))
    assert costs[0] == pytest.approx(dearest)
    for change in v.changes:
        place = change.state, change.action, change.successor
        assert change.observed == pytest.approx(p[place])
        assert change.needed == pytest.approx(v.witness[place])
        assert change.visits == n[place[:2]]
        assert change.words in str(v)


def table_of(given: Instance) -> pt.TabularSimulator:
    return pt.TabularSimulator(given.kernel)


def kl(p: np.ndarray, q: np.ndarray) -> float:
    seen = p > 0
    return float((p[seen] * np.log(p[seen] / q[seen])).sum())


def test_a_verdict_as_json():
    v = decide(TWO.task, TABLE, threshold=0.0, delta=0.05)
    read = json.loads(v.to_json())
    assert (read["required"], read["proof"]["lower_bound"]) == pytest.approx((v.required, v.lower_bound))
    assert (read["visits"], len(read["changes"])) == (v.counts.visits.tolist(), len(v.changes))
    assert read["provenance"]["method"] == "PTST, MixtureBoundary, ProjectionFree, uniform sampling"
    undecided = decide(TWO.task, TABLE, threshold=0.0, max_samples=10)
    assert str(undecided).startswith("Undecided: the sample limit is reached")
    assert float(json.loads(decide(TWO.task, TABLE, threshold=9.0).to_json())["evidence"][1]) == np.inf


# ---------------------------------------------------------------- stopping and going on


@cache
def uninterrupted(name: str, allocation: str, plain: bool, batch: int = 1) -> pt.Verdict:
    given = instance(name)
    sim = Plain(given.kernel) if plain else pt.TabularSimulator(given.kernel)
    return run(given, sim, method_for(given, allocation, batch=batch), 1e-3, seed=6)


def same_run(found: pt.Verdict, expected: pt.Verdict) -> None:
    assert (found.samples, found.answer) == (expected.samples, expected.answer)
    assert found.counts == expected.counts
    assert found.evidence == pytest.approx(expected.evidence, rel=1e-9)


CUT = [*itertools.product(["uniform"], [False, True], [1, 10])]
CUT += [(rule, plain, 10 if plain else 1) for rule in ALLOCATIONS if rule != "uniform" for plain in (False, True)]


@pytest.mark.parametrize(("allocation", "plain", "batch"), CUT)
def test_a_run_cut_anywhere_goes_on_to_the_same_end(allocation, plain, batch, tmp_path):
    given = instance("above")
    method = method_for(given, allocation, batch=batch)
    expected = uninterrupted("above", allocation, plain, batch)
    sim = Plain(given.kernel) if plain else pt.TabularSimulator(given.kernel)
    exact = uninterrupted("above", allocation, plain).samples  # a limit is looked at even within a batch
    cuts = [0, 1, 2, 5, 11, *range(13, exact - 1, exact // 4), exact - 1]
    file = tmp_path / "run.npz"
    kept, go_on = None, {}
    for cut in cuts:  # one run, cut many times: by verdicts and by files
        kept = run(given, sim, method, 1e-3, 6, max_samples=cut, resume=kept)
        run(given, sim, method, 1e-3, 6, max_samples=cut, checkpoint=file, **go_on)
        assert (kept.samples, kept.answer) == (cut, None)
        go_on = {"resume": file}
    same_run(run(given, sim, method, 1e-3, 6, resume=kept), expected)
    same_run(run(given, sim, method, 1e-3, 6, resume=str(file), checkpoint=str(file)), expected)
    part = run(given, sim, method, 1e-3, 6, max_samples=exact // 2)
    for _ in range(2):  # a verdict can be gone on from twice; the seed given later does not matter
        same_run(run(given, sim, method, 1e-3, 99, resume=part), expected)


@pytest.mark.parametrize("kind", ["PCG64", "MT19937", "Philox", "SFC64", "PCG64DXSM"])
def test_every_generator_of_numpy_goes_on_where_it_was(kind, tmp_path):
    given = instance("above")

    def generator() -> np.random.Generator:
        return np.random.Generator(getattr(np.random, kind)(3))

    expected = run(given, TABLE, method_for(given), 1e-3, generator())
    part = run(given, TABLE, method_for(given), 1e-3, generator(), max_samples=50, checkpoint=tmp_path / "run.npz")
    same_run(run(given, TABLE, method_for(given), 1e-3, resume=part), expected)
    same_run(run(given, TABLE, method_for(given), 1e-3, resume=tmp_path / "run.npz"), expected)


def test_an_existing_checkpoint_is_not_overwritten(tmp_path):
    given, file = instance("above"), tmp_path / "run.npz"
    run(given, TABLE, method_for(given), max_samples=20, checkpoint=file)
    before = file.read_bytes()
    with pytest.raises(pt.InputError, match="exists; pass resume="):
        run(given, TABLE, method_for(given), checkpoint=file)
    other = tmp_path / "other.npz"
    run(given, TABLE, method_for(given), max_samples=20, checkpoint=other)
    with pytest.raises(pt.InputError, match="exists; pass resume="):
        run(given, TABLE, method_for(given), checkpoint=file, resume=other)
    assert file.read_bytes() == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.npz", "run.npz"]  # no drafts left


def test_a_checkpoint_that_cannot_be_written_is_refused_before_the_first_draw(tmp_path):
    plain = Plain(TWO.kernel)
    with pytest.raises(pt.InputError, match=r"nowhere.run\.npz"):
        decide(TWO.task, plain, threshold=0.0, checkpoint=tmp_path / "nowhere" / "run.npz")
    assert not plain.log


def test_a_checkpoint_of_another_run_is_refused(tmp_path):
    given, file = instance("above"), tmp_path / "run.npz"
    part = run(given, TABLE, method_for(given), max_samples=20, checkpoint=file)
    rewards = given.task.rewards.copy()
    rewards[0, 0] += 1e-9
    task = given.task
    others = [
        (pt.Task(rewards, task.policy, task.initial, 0.9), given.threshold, method_for(given)),
        (pt.Task(task.rewards, task.policy, [0.4, 0.6], 0.9), given.threshold, method_for(given)),
        (pt.Task(task.rewards, task.policy, task.initial, 0.91), given.threshold, method_for(given)),
        (pt.Task(task.rewards, task.policy, task.initial, 0.9, support=np.ones((2, 2, 2))), -0.1, method_for(given)),
        (task, given.threshold + 1e-9, method_for(given)),
        (task, given.threshold, method_for(given, boundary="paper")),
        (task, given.threshold, method_for(given, boundary="uniform prior")),
        (task, given.threshold, method_for(given, "forward")),
        (task, given.threshold, method_for(given, "shares")),
        (task, given.threshold, method_for(given, batch=2)),
        (task, given.threshold, pt.PTST(solver=pt.ProjectionFree(starts=2))),
    ]
    for resume in (part, file):
        for other_task, threshold, method in others:
            with pytest.raises(pt.InputError, match=r"that run had (another task|the threshold|the method)"):
                decide(other_task, TABLE, threshold, method=method, resume=resume)
    fresh = pt.Task(task.rewards.copy(), task.policy.copy(), task.initial.copy(), 0.9, states=["a", "b"])
    assert decide(fresh, TABLE, given.threshold, resume=file).answer == "above"  # the same, made anew


def test_damaged_and_foreign_files_are_refused(tmp_path):
    given, file = instance("above"), tmp_path / "run.npz"
    run(given, TABLE, method_for(given), max_samples=20, checkpoint=file)
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[whole.index(checkpoint.read(file)["tally.n"].tobytes()) + 6] ^= 0x10
    stranger = {**checkpoint.read(file), "samples": np.array([21])}
    np.savez(tmp_path / "edited.npz", **stranger, format=np.array(checkpoint.FORMAT), digest=np.array("0" * 64))
    np.savez(tmp_path / "other.npz", a=np.arange(3))
    np.savez(tmp_path / "old.npz", **stranger, format=np.array("policytest-run-0"))
    np.save(tmp_path / "array.npy", np.arange(3))
    run(given, TABLE, method_for(given), max_samples=20).counts.save(tmp_path / "counts.npz")
    files = {"truncated": whole[:-50], "half": whole[: len(whole) // 2], "flipped": bytes(flipped), "empty": b""}
    files |= {"text": b"not a checkpoint", "pickle": b"\x80\x04N.", "zip": b"PK\x05\x06" + bytes(18)}
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
    (tmp_path / "folder").mkdir()
    for path in [tmp_path / "missing", *tmp_path.iterdir()]:
        if path != file:
            with pytest.raises(pt.InputError, match="resume: "):
                run(given, TABLE, method_for(given), resume=path)
    assert run(given, TABLE, method_for(given), resume=file).answer == "above"


@pytest.mark.parametrize(
    ("method", "name", "index"),
    [
        (pt.TDBetting(), "progress", 0),
        (pt.TDBetting(), "progress", 1),
        (pt.TDBetting(), "progress", 2),
        (pt.TDBetting(), "extra", 0),
        (pt.PTST(), "source.size", 0),
    ],
)
def test_checkpoints_with_impossible_numbers_are_refused(method, name, index, tmp_path):
    given, file = instance("above"), tmp_path / "run.npz"
    kept = dict(run(given, TABLE, method, max_samples=20, checkpoint=file).snapshot)
    assert run(given, TABLE, method, max_samples=21, resume=file).samples == 21
    kept[name] = np.where(np.arange(kept[name].size) == index, 2**62, kept[name])
    checkpoint.write(file, kept)
    with pytest.raises(pt.InputError, match="resume: "):
        run(given, TABLE, method, max_samples=21, resume=file)


def test_no_flipped_byte_gets_through(tmp_path):
    """In the arrays, their headers and the zip directory: refused, or it was padding and the content is the same."""
    given, file = instance("above"), tmp_path / "run.npz"
    run(given, TABLE, method_for(given), max_samples=20, checkpoint=file)
    whole, content = file.read_bytes(), checkpoint.read(file)
    directory = whole.index(b"PK\x01\x02")
    places = [*range(0, directory, 71), *range(directory, len(whole), 7)]
    refused = 0
    for at, mask in zip(places, itertools.cycle((0x01, 0x80, 0xFF)), strict=False):
        damaged = bytearray(whole)
        damaged[at] ^= mask
        file.write_bytes(bytes(damaged))
        try:
            found = checkpoint.read(file)
        except pt.InputError:
            refused += 1
            continue
        assert found.keys() == content.keys()
        for name in content:
            np.testing.assert_array_equal(found[name], content[name])
    assert refused > len(places) / 3


KILLED = """
import os, signal, sys
import policytest as pt
from policytest.questions import driver

class Clock:  # runs so fast that every check is worth a checkpoint
    now = 1
    def monotonic(self):
        self.now *= 100
        return self.now

driver.time = Clock()
two = pt.instances.paper(2)
table, drawn = pt.TabularSimulator(two.kernel), 0

def draw(states, actions, rng):
    global drawn
    drawn += len(states)
    if drawn > most:
        os.kill(os.getpid(), signal.SIGKILL)
    return table.draw(states, actions, rng)

method = pt.PTST(solver=pt.ProjectionFree())
for most in map(int, sys.argv[2:]):
    child = os.fork()
    if not child:
        file = os.path.join(sys.argv[1], f"{most}.npz")
        pt.decide(two.task, draw, threshold=0.0, delta=1e-3, method=method, rng=3, checkpoint=file)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
"""


def test_a_killed_run_goes_on_from_its_checkpoint(tmp_path):
    """Killed during its first draw, and after 150 draws."""
    done = run_python("-c", KILLED, str(tmp_path), "0", "150")
    assert done.returncode == 0, done.stderr
    for draws in (0, 150):
        file, plain = tmp_path / f"{draws}.npz", Plain(TWO.kernel)
        kept = int(checkpoint.read(file)["samples"][0])
        assert kept == 0 if draws == 0 else 0 < kept <= draws
        found = decide(TWO.task, plain, threshold=0.0, delta=1e-3, resume=file, checkpoint=file)
        same_run(found, decide(TWO.task, TABLE, threshold=0.0, delta=1e-3, rng=3))
        assert len(plain.log) == found.samples - kept
    assert {path.name for path in tmp_path.iterdir()} == {"0.npz", "150.npz"}


class Interrupting(Plain):
    """Sends Ctrl-C during its draws, after a number of them."""

    def __init__(self, kernel: np.ndarray, after: int, times: int = 1) -> None:
        super().__init__(kernel)
        self.after, self.times = after, times

    def draw(self, states, actions, rng):
        while len(self.log) >= self.after and self.times:
            self.times -= 1
            signal.raise_signal(signal.SIGINT)
        return super().draw(states, actions, rng)


@pytest.mark.parametrize("after", [0, 1, 60, 85])
@pytest.mark.parametrize("times", [1, 2])
def test_an_interrupted_run_can_go_on(after, times, tmp_path):
    """Once: after the draw at hand. Twice: at once, even within it."""
    given, file = instance("above"), tmp_path / "run.npz"
    before = signal.getsignal(signal.SIGINT)
    sim = Interrupting(given.kernel, after, times)
    verdict = run(given, sim, method_for(given), 1e-3, 6, checkpoint=file)
    assert signal.getsignal(signal.SIGINT) is before
    assert (verdict.answer, verdict.reason) == (None, "interrupted")
    assert str(verdict).startswith("Undecided: interrupted")
    assert verdict.samples == len(sim.log) == verdict.counts.total
    for resume in (verdict, file):
        same_run(run(given, TABLE, method_for(given), 1e-3, resume=resume), uninterrupted("above", "uniform", True))


@pytest.mark.parametrize("allocation", ALLOCATIONS)
@pytest.mark.parametrize("after", [0, 1, 40])
def test_a_draw_that_was_given_up_leaves_no_trace(allocation, after):
    """A second Ctrl-C while random numbers are being used: the draw is made again, with the same ones."""
    given = instance("above")

    class Slow(Plain):
        def draw(self, states, actions, rng):
            if len(self.log) >= after:
                rng.random(3)
                signal.raise_signal(signal.SIGINT)
                signal.raise_signal(signal.SIGINT)
            return super().draw(states, actions, rng)

    sim, method = Slow(given.kernel), method_for(given, allocation)
    verdict = run(given, sim, method, 1e-3, 6)
    assert (verdict.answer, verdict.samples) == (None, len(sim.log))
    plain = Plain(given.kernel)
    same_run(run(given, plain, method, 1e-3, resume=verdict), uninterrupted("above", allocation, True))
    assert sim.log + plain.log == plain_log(allocation)


@cache
def plain_log(allocation: str) -> list[tuple[int, int, int]]:
    given = instance("above")
    plain = Plain(given.kernel)
    run(given, plain, method_for(given, allocation), 1e-3, 6)
    return plain.log


def test_a_third_interruption_ends_everything():
    given = instance("above")

    class Stubborn(Plain):
        """Swallows the second one."""

        def draw(self, states, actions, rng):
            signal.raise_signal(signal.SIGINT)
            with contextlib.suppress(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            signal.raise_signal(signal.SIGINT)
            raise AssertionError("not reached")

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run(given, Stubborn(given.kernel), method_for(given))
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("batch", [7, 50])
def test_the_last_sample_allowed_is_looked_at_even_within_a_batch(batch):
    given = instance("above")
    exact = uninterrupted("above", "uniform", False).samples
    method = method_for(given, batch=batch)
    for limit in (exact - 1, exact):
        verdict = run(given, pt.TabularSimulator(given.kernel), method, 1e-3, 6, max_samples=limit)
        assert (verdict.samples, verdict.answer) == (limit, "above" if limit == exact else None)


def test_an_interruption_at_the_last_draw_does_not_lose_the_answer():
    given = instance("above")
    expected = uninterrupted("above", "uniform", True)
    plain = Plain(given.kernel)
    run(given, plain, method_for(given), 1e-3, 6)
    blocks = []

    class Late(Plain):
        def draw(self, states, actions, rng):
            blocks.append(len(states))
            if sum(blocks) >= expected.samples:
                signal.raise_signal(signal.SIGINT)
            return super().draw(states, actions, rng)

    same_run(run(given, Late(given.kernel), method_for(given), 1e-3, 6), expected)


def test_a_run_in_a_thread_leaves_signals_alone():
    given, found = instance("above"), []
    thread = threading.Thread(target=lambda: found.append(run(given, TABLE, method_for(given), 1e-3, 6)))
    thread.start()
    thread.join()
    same_run(found[0], uninterrupted("above", "uniform", False))


def test_an_error_of_the_simulator_passes_and_the_checkpoint_stays(tmp_path):
    given, file = instance("above"), tmp_path / "run.npz"

    class Breaking(Plain):
        def draw(self, states, actions, rng):
            if len(self.log) > 50:
                raise OSError("the simulator is gone")
            return super().draw(states, actions, rng)

    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(OSError, match="gone"):
        run(given, Breaking(given.kernel), method_for(given), 1e-3, 6, checkpoint=file)
    assert signal.getsignal(signal.SIGINT) is before
    same_run(run(given, TABLE, method_for(given), 1e-3, resume=file), uninterrupted("above", "uniform", True))


# ---------------------------------------------------------------- the rule as printed


def printed_rule(task, threshold, delta, transitions):
    """Algorithm 1 as the experiments ran it: u >= 5/t^1.5, with u by the SLSQP heuristic, once all were sampled."""
    N = np.zeros((task.n_states, task.n_actions, task.n_states), dtype=int)
    for t, (s, a, x) in enumerate(transitions, 1):
        N[s, a, x] += 1
        n = N.sum(axis=-1)
        if not (n > 0).all():
            continue
        p = centre(task, N)
        value = pt.value(task, p)
        beta = math.log(1 / delta) + dimension(pt.PaperBoundary(), task, N)
        ball = pt.KLBall(p, n / t, beta / t)
        sense = "min" if value > threshold else "max"
        found = pt.extreme_value(task, ball, sense, solver=pt.SLSQPHeuristic())
        extreme = found.upper if sense == "min" else found.lower
        if (value - threshold) * (extreme - threshold) >= 5 / t**1.5:
            return t, "above" if value > threshold else "below"
    return None


@pytest.mark.parametrize("threshold", [0.0, 0.5])
def test_as_printed_it_stops_when_the_heuristic_says_so_and_too_early(threshold):
    sim = Table(TWO.kernel)
    verdict = decide(TWO.task, sim, threshold, delta=0.1, method=pt.PTST.as_printed(), rng=2)
    assert printed_rule(TWO.task, threshold, 0.1, sim.log) == (verdict.samples, verdict.answer)
    assert not verdict.certified
    exact = decide(TWO.task, TABLE, threshold, delta=0.1, method=PTST(boundary=pt.PaperBoundary()), rng=2)
    assert verdict.samples < exact.samples
    assert max(verdict.evidence) < verdict.required  # what the exact rule says of it
    assert verdict.method.startswith("PTST as printed")
    times = stopping_times(TWO.task, TABLE, threshold, [0.1, 0.5], pt.PTST.as_printed(), rng=2)
    assert times.samples[0] == verdict.samples
    assert times.samples[1] <= times.samples[0]


def test_as_printed_known_rows_need_no_sample():
    given = instance("known rows")
    verdict = run(given, table_of(given), pt.PTST.as_printed(), 0.1, max_samples=300)
    assert verdict.answer == "above"


# ---------------------------------------------------------------- bad input


@each(
    ("settings", "message"),
    [
        ({"delta": 0.0}, "delta is 0"),
        ({"delta": 1.0}, "delta is 1"),
        ({"delta": float("nan")}, "delta is nan"),
        ({"delta": [0.1]}, "delta has shape"),
        ({"threshold": float("nan")}, "threshold is nan"),
        ({"threshold": "high"}, "threshold is not"),
        ({"max_samples": -1}, "max_samples is -1"),
        ({"max_samples": 3.5}, "max_samples is 3.5"),
        ({"indifference": 0.1}, "indifference: the method"),
        ({"indifference": -0.1}, "indifference is -0.1"),
        ({"rng": -1}, "rng is -1"),
        ({"rng": "seed"}, "rng is 'seed'"),
        ({"method": "ptst"}, "method must be an instance"),
        ({"method": pt.PTST}, "; got the class PTST"),
        ({"resume": 3}, "resume"),
        ({"checkpoint": 3.5}, "checkpoint"),
    ],
)
def test_bad_questions_are_refused(settings, message):
    with pytest.raises(pt.InputError, match=message):
        decide(TWO.task, TABLE, **{"threshold": 0.0, **settings})


@each(
    ("make", "message"),
    [
        (lambda: PTST(batch=0), "batch is 0"),
        (lambda: PTST(batch=2.5), "batch is 2.5"),
        (lambda: PTST(boundary=pt.MixtureBoundary), "boundary is .*must be an instance"),
        (lambda: PTST(boundary=0.5), "boundary is 0.5"),
        (lambda: pt.PTST(solver=pt.ProjectionFree), "solver is .*must be an instance"),
        (lambda: pt.PTST(solver="slsqp"), "solver is 'slsqp'"),
        (lambda: PTST(zeta=3.0), "zeta"),
    ],
)
def test_bad_methods_are_refused(make, message):
    with pytest.raises(pt.InputError, match=message):
        make()


def test_the_task_comes_first():
    with pytest.raises(pt.InputError, match="task is a TabularSimulator"):
        decide(TABLE, TWO.task, threshold=0.0)
    with pytest.raises(pt.InputError, match="task is a str"):
        stopping_times("task", TABLE, threshold=0.0)
    with pytest.raises(pt.InputError, match="deltas has shape"):
        stopping_times(TWO.task, TABLE, threshold=0.0, deltas=0.1)
    with pytest.raises(pt.InputError, match=r"delta is 1\.5"):
        stopping_times(TWO.task, TABLE, threshold=0.0, deltas=[0.1, 1.5])


# ---------------------------------------------------------------- what a verdict says of itself


def test_a_verdict_of_the_kl_rule_says_what_the_unknown_rows_cost():
    kl, bets = (pt.decide(TWO.task, TABLE, threshold=0.0, method=method) for method in (pt.PTST(), pt.TDBetting()))
    assert "for the unknown rows" in str(kl)
    assert kl.dimension == pytest.approx(-min(kl.evidence))
    assert "for the unknown rows" not in str(bets)
    assert bets.dimension is None


def test_where_no_sample_was_drawn_the_words_say_why():
    out_of_reach = str(pt.decide(TWO.task, TABLE, 100.0))
    assert "no sample can change the answer" in out_of_reach
    assert "whatever the unknown rows are" in out_of_reach
    assert "lower bound" not in out_of_reach
    empty = str(pt.assess(TWO.task, pt.Counts(2, 2), threshold=0.0))
    assert "nothing was drawn yet" in empty
    assert "infinite" not in empty


# ---------------------------------------------------------------- ends that are not named

# From 0 with 1/2 to the goal 1 and to the sink 2; nothing tells the test that 2 is never left.
SINK = np.array([[[0.0, 0.5, 0.5]], [[0.0, 1.0, 0.0]], [[0.0, 0.0, 1.0]]])
ABOUT_SINK = {"policy": np.ones((3, 1)), "initial": [1.0, 0, 0], "states": ["new", "won", "lost"]}
SAID = r"state 'lost' has only been seen to lead to itself.*avoid=\['lost'\]"


def warnings_of(run):
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        run()
    return [str(one.message) for one in found]


def test_a_sink_that_is_not_named_is_told_once_within_the_first_samples():
    """In every question that samples: said once, with remedies; with either of them the test answers, and is silent."""
    sim, task = pt.TabularSimulator(SINK), pt.Task.reaching(["won"], **ABOUT_SINK)
    ask = {"threshold": 0.3, "max_samples": 5_000}
    doubled = pt.TabularSimulator(np.repeat(SINK, 2, axis=1))
    two = [pt.Task.reaching(["won"], **{**ABOUT_SINK, "policy": np.full((3, 2), row)}) for row in ([1, 0], [0.5, 0.5])]
    for run in (
        lambda: pt.decide(task, sim, **ask),
        lambda: pt.evaluate(task, sim, epsilon=0.05, max_samples=5_000),
        lambda: pt.compare(two[0], two[1], doubled, max_samples=5_000),
        lambda: pt.identify(
            two[0].rewards,
            [1.0, 0, 0],
            1.0,
            doubled,
            policies=[one.policy for one in two],
            goal=two[0].goal,
            terminal=two[0].terminal,
            states=two[0].states,
            max_samples=5_000,
        ),
    ):
        (said,) = warnings_of(run)
        assert re.match(SAID, said)
    named = pt.Task.reaching(["won"], ["lost"], **ABOUT_SINK)
    declared = pt.Task.reaching(["won"], support=SINK > 0, **ABOUT_SINK)
    for better in (named, declared):
        assert pt.decide(better, sim, **ask).answer == "above"  # and filterwarnings = error


def test_a_state_that_is_left_at_last_or_has_a_horizon_is_no_unnamed_end():
    slow = SINK.copy()
    slow[2, 0] = [0.0, 0.1, 0.9]  # left in the end
    task = pt.Task.reaching(["won"], **ABOUT_SINK)
    assert pt.decide(task, pt.TabularSimulator(slow), threshold=0.3, max_samples=5_000).samples
    limited = pt.Task.reaching(["won"], within=5, **ABOUT_SINK)
    assert pt.decide(limited, pt.TabularSimulator(SINK), threshold=0.3).answer == "above"


def test_recorded_episodes_are_sent_to_assess():
    log = pt.LoggedEpisodes(np.repeat(np.arange(30), 2), np.ones(60), return_range=(0, 4))
    for ask in (pt.decide, pt.checks, pt.stopping_times):
        with pytest.raises(pt.InputError, match=r"ask assess\(log, threshold=R\)"):
            ask(log, threshold=1.0)
    assert pt.assess(log, threshold=1.0).answer == "above"


def test_a_verdict_about_counts_does_not_change_when_more_are_recorded():
    two = pt.instances.paper(2)
    counts = pt.Counts.from_array(np.rint(1e4 * two.kernel))
    verdict = pt.assess(two.task, counts, threshold=0.0, method=pt.PTST(), design="fixed")
    before = verdict.counts.total, verdict.to_json()
    counts.record(np.zeros(500, dtype=int), 0, 0)
    assert (verdict.counts.total, verdict.to_json()) == before
    assert counts.total == before[0] + 500
