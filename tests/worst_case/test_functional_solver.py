"""The worst case of differences: against finite differences, SciPy, the solver for one policy, and brute force."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from builders import each
from policytest.payoffs.coupling import joint_task
from policytest.worst_case.bracket import Status
from policytest.worst_case.functional import deviation_of, difference_of, term_of, value_of_policy
from policytest.worst_case.functional_solver import DifferenceSolver
from policytest.worst_case.problem import lay_out
from problems import Case, nearest_by_slsqp

both_signs = pytest.mark.parametrize("mirrored", [False, True])


def question(seed, S=3, A=2, gamma=0.9, draws=20, free=False, narrow=False, on_successor=False):
    """Two policies, counts with unseen successors, perhaps a free row, perhaps supports; laid out, with V^A - V^B."""
    rng = np.random.default_rng(seed)
    support = None
    if narrow:
        support = rng.random((S, A, S)) < 0.6
        support[..., 0] = True
    rewards = [rng.normal(size=(S, A, S) if on_successor else (S, A)) for _ in range(2)]
    initial, policies = rng.dirichlet(np.ones(S)), rng.dirichlet(np.ones(A), size=(2, S))
    tasks = [pt.Task(r, p, initial, gamma, support) for r, p in zip(rewards, policies, strict=True)]
    allowed = np.ones((S, A, S)) if support is None else support
    kernel = rng.dirichlet(np.full(S, 0.5), size=(S, A)) * allowed + 1e-3 * allowed
    kernel /= kernel.sum(axis=2, keepdims=True)
    N = np.array([[rng.multinomial(draws, row) for row in rows] for rows in kernel])
    if free:
        N[0, 0] = 0
    n = N.sum(axis=2)
    p = np.where(n[..., None] > 0, N / np.maximum(n, 1)[..., None], allowed / allowed.sum(axis=2, keepdims=True))
    laid = of_difference(tasks, p, n.astype(float))
    return *tasks, p, laid, laid.functional, rng


def of_difference(tasks, p, n):
    """The problem around p, with weights n, for V^A - V^B."""
    laid = lay_out(joint_task(tasks), p, n)
    return replace(laid, functional=difference_of(laid.rows, *tasks))


def deviation(task, laid, s, own, other):
    return deviation_of(laid.rows, task, term_of(task, laid.rows), *(s * task.n_actions + a for a in (own, other)))


def a_direction(rng, rows):
    d = rng.normal(size=rows.n_entries)
    return d - rows.per_entry(rows.sums(d) / np.diff(rows.start))


@each("seed", range(6))
@each("gamma", [0.0, 0.5, 0.99])
@each("on_successor", [False, True])
def test_value_and_gradient(seed, gamma, on_successor):
    task_a, task_b, p, laid, F, rng = question(seed, gamma=gamma, on_successor=on_successor, narrow=seed % 2 == 1)
    assert F.value(laid.p) == pytest.approx(pt.value(task_a, p) - pt.value(task_b, p), rel=1e-9, abs=1e-9)
    one = value_of_policy(task_a, task_a.layout.rows)  # compiled, and by its one term
    entries = one.rows.pick(p, 3)
    assert one.value(entries) == pytest.approx(pt.value(task_a, p), rel=1e-12)
    assert one.linear(entries)[0] == pytest.approx(one.value(entries), rel=1e-9, abs=1e-12)
    policy = np.eye(2)[rng.integers(2, size=3)]
    task = pt.Task(task_a.rewards, policy, task_a.initial, gamma, task_a.support)
    own = int(policy[1].argmax())
    G = deviation(task, laid, 1, own, 1 - own)
    V, on_pairs = pt.state_values(task, p), task.rewards if task.rewards.ndim == 2 else (p * task.rewards).sum(axis=2)
    assert G.value(laid.p) == pytest.approx(V[1] - on_pairs[1, 1 - own] - gamma * p[1, 1 - own] @ V, abs=1e-9)
    q = laid.rows.to_one(laid.p + 0.3 + rng.random(laid.rows.n_entries))
    for functional in (F, G):
        d = a_direction(rng, laid.rows)
        step = 1e-6 * (functional.value(q + 1e-6 * d) - functional.value(q - 1e-6 * d)) / 2e-12
        assert functional.linear(q)[1] @ d == pytest.approx(step, rel=1e-5, abs=1e-6)


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("seed", range(6))
def test_the_nearest_kernel_is_not_farther_than_scipys(seed):
    kinds = {"narrow": seed % 3 == 1, "free": seed % 4 == 2, "on_successor": seed % 5 == 3}
    task_a, task_b, p, laid, F, rng = question(seed, **kinds)
    case = Case("difference", task_a, p, laid.n.reshape(3, 2), 0.0, task_b)
    found = DifferenceSolver(starts=5).nearest(laid.nearest(case.sign, 0.0))
    starts = [laid.rows.to_one(laid.p + share * rng.random(len(laid.p)) + 1e-3) for share in (0.0, 1.0)]
    others = [nearest_by_slsqp(case, laid.kernel(start))[0] for start in starts]
    assert np.isfinite(min(others)) == np.isfinite(found.upper)
    assert found.upper <= min(others) * (1 + 1e-6) + 1e-7
    if found.kernel is not None:
        entries = laid.entries(found.kernel)
        assert laid.loss(entries) == pytest.approx(found.upper, rel=1e-9)
        assert abs(F.value(entries)) <= 1e-8 * F.size or found.upper == 0.0
        assert (found.lower, found.certified) == (0.0, False)


@both_signs
@each("seed", range(6))
def test_it_is_the_solver_for_one_policy_where_the_other_value_is_known(seed, mirrored):
    """B earns nothing anywhere: V^A - V^B = V^A; mirrored, -V^A."""
    task_a, _, p, laid, _, rng = question(seed, narrow=seed % 2 == 1, on_successor=seed == 4)
    nothing = pt.Task(0.0 * task_a.rewards, rng.dirichlet(np.ones(2), size=3), task_a.initial, 0.9, task_a.support)
    tasks = [nothing, task_a] if mirrored else [task_a, nothing]
    value, n = pt.value(task_a, p), laid.n.reshape(3, 2)
    low, high = pt.value_range(task_a)
    laid = of_difference(tasks, p, n)
    for end in (low, high):
        threshold = value + 0.3 * (end - value)
        one = pt.nearest_kernel(task_a, p, n, threshold, pt.ProjectionFree(starts=4))
        sense = (1.0 if end < value else -1.0) * (-1.0 if mirrored else 1.0)
        two = DifferenceSolver(starts=4).nearest(laid.nearest(sense, -threshold if mirrored else threshold))
        assert two.upper == pytest.approx(one.upper, rel=1e-5)
        ball = pt.KLBall(p, n, one.upper)
        furthest = pt.extreme_value(task_a, ball, "min" if end < value else "max", pt.ProjectionFree(starts=4))
        mine = DifferenceSolver(starts=4).extreme(laid.extreme(sense, one.upper))
        reached = (mine.upper if sense > 0 else mine.lower) * (-1.0 if mirrored else 1.0)
        assert reached == pytest.approx(furthest.upper if end < value else furthest.lower, abs=1e-6 * (high - low))


@both_signs
@pytest.mark.parametrize("seed", range(3))
def test_extremes_against_brute_force(seed, mirrored):
    """Two states, one unknown number in each of two rows: a fine grid over the ball."""
    rng = np.random.default_rng(seed)
    rewards, initial = rng.normal(size=(2, 2)), np.array([0.6, 0.4])
    policies = np.array([[1.0, 0.0], [1.0, 0.0]]), np.array([[0.0, 1.0], [1.0, 0.0]])
    support = np.ones((2, 2, 2), dtype=bool)
    support[1, 0, 0] = support[1, 1, 0] = False
    tasks = [pt.Task(rewards, p, initial, 0.8, support) for p in policies]
    p = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.0, 1.0], [0.0, 1.0]]])
    n = np.array([[30.0, 10.0], [0.0, 0.0]])
    laid, sign, radius = of_difference(tasks, p, n), -1.0 if mirrored else 1.0, 1.5
    found = DifferenceSolver(starts=3).extreme(laid.extreme(sign, radius))
    u, v = np.meshgrid(*2 * [np.linspace(1e-4, 1 - 1e-4, 1200)])
    end = rewards[1, 0] / 0.2  # the second state is left no more
    first = [(rewards[0, a] + 0.8 * (1 - x) * end) / (1 - 0.8 * x) for a, x in ((0, u), (1, v))]
    loss = sum(
        n[0, a] * (p[0, a, 0] * np.log(p[0, a, 0] / x) + p[0, a, 1] * np.log(p[0, a, 1] / (1 - x)))
        for a, x in ((0, u), (1, v))
    )
    best = np.where(loss <= radius, sign * 0.6 * (first[0] - first[1]), np.inf).min()
    reached = sign * (found.upper if sign > 0 else found.lower)
    assert best - 0.01 <= reached <= best + 1e-6
    assert laid.loss(laid.entries(found.kernel)) <= radius * (1 + 1e-9)


def test_mass_on_successors_never_seen_is_used():
    """A solver that kept to what was seen would find no kernel on the other side at all."""
    rewards = np.array([[0.0], [1.0], [-1.0]])
    kernel = np.array([[[0.0, 1.0, 0.0]], [[1.0, 0.0, 0.0]], [[1.0, 0.0, 0.0]]])
    tasks = [pt.Task(sign * rewards, np.ones((3, 1)), [1.0, 0.0, 0.0], 0.5) for sign in (1.0, -1.0)]
    laid = of_difference(tasks, kernel, np.full((3, 1), 10.0))
    found = DifferenceSolver(starts=3).nearest(laid.nearest(1.0, 0.0))
    assert np.isfinite(found.upper)
    assert found.kernel[0, 0, 2] > 0
    assert pt.value(tasks[0], found.kernel) <= 1e-8


def test_what_cannot_be_reached_is_not_claimed():
    rewards = np.array([[1.0, 0.0], [1.0, 0.0]])
    tasks = [pt.Task(rewards, np.tile(row, (2, 1)), [0.5, 0.5], 0.5) for row in ([1.0, 0.0], [0.0, 1.0])]
    laid = of_difference(tasks, np.full((2, 2, 2), 0.5), np.full((2, 2), 5.0))
    found = DifferenceSolver(starts=4).nearest(laid.nearest(1.0, 0.0))
    assert (found.upper, found.kernel, found.status) == (np.inf, None, Status.NOT_REACHED)


@pytest.mark.parametrize("seed", range(5))
def test_the_two_problems_are_each_others_inverse(seed):
    """As `prop:bijection in main`, on differences: the extreme over the ball of the nearest distance is the margin."""
    *_, laid, F, _ = question(seed, S=4, draws=40)
    value = F.value(laid.p)
    sign = 1.0 if value > 0 else -1.0
    threshold = 0.5 * value
    near = DifferenceSolver(starts=4).nearest(laid.nearest(sign, threshold))
    far = DifferenceSolver(starts=4).extreme(laid.extreme(sign, near.upper))
    assert (far.upper if sign > 0 else far.lower) == pytest.approx(threshold, abs=1e-5 * F.size)
