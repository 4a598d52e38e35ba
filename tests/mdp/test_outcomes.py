"""Observed rewards of listed values: the outcome table has the values of the task."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import assert_refused, each
from policytest.mdp.listed_rewards import lists_rewards, outcomes_of
from policytest.sources.tasks.start import start_from_log

VALUES = [-1.0, 0.5, 2.0]


def listed_task(seed, gamma=0.6, is_sparse=False, terminal=True):
    """Three states, the last one perhaps terminal, two actions, three values; and a law of outcomes."""
    rng = np.random.default_rng(seed)
    S, A, m = 3, 2, len(VALUES)
    support = rng.random((S, A, S)) < 0.7
    support[:, :, S - 1] = True
    high = np.where(rng.random((S, A)) < 0.3, 0.5, 2.0)  # some pairs have two of the values
    law = rng.dirichlet(np.ones(S * m), size=(S, A)).reshape(S, A, S, m) * support[..., None]
    law *= np.array(VALUES) <= high[:, :, None, None]
    law /= law.sum(axis=(2, 3), keepdims=True)
    policy, initial = rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S))
    given = sparse.csr_array(support.reshape(S * A, S)) if is_sparse else support
    rewards = pt.Observed(-1.0, high, VALUES)
    task = pt.Task(rewards, policy, initial, gamma, given, terminal=[S - 1] if terminal else None)
    if terminal:
        law[S - 1] = 0.0
        law[S - 1, :, S - 1, 1] = 1.0
    return task, law


def solved(task, law):
    """The value by a linear solve on the states of the task alone."""
    over = np.isin(np.arange(task.n_states), task.ends)
    P = np.einsum("sa,saxj->sx", task.policy, law)
    r = np.where(over, 0.0, np.einsum("sa,saxj,j->s", task.policy, law, VALUES))
    return float(task.initial @ np.linalg.solve(np.eye(task.n_states) - task.discount * P, r))


CASES = list(itertools.product(range(4), (0.0, 0.3, 0.95), (False, True), (False, True)))


@each(("seed", "gamma", "is_sparse", "terminal"), CASES)
def test_the_outcome_table_has_the_value_of_the_task(seed, gamma, is_sparse, terminal):
    task, law = listed_task(seed, gamma, is_sparse, terminal)
    outcomes = outcomes_of(task)
    kernel = outcomes.kernel("kernel", law)
    expected = solved(task, law)
    assert pt.value(outcomes.table, kernel) == pytest.approx(expected, abs=1e-12)
    assert pt.value(task, law) == pytest.approx(expected, abs=1e-12)
    assert pt.value(outcomes.table, outcomes.kernel("kernel", outcomes.law(kernel))) == pytest.approx(expected)
    assert pt.value_range(task) == pytest.approx(pt.value_range(outcomes.table), abs=1e-12)
    known = outcomes.table.known_rows
    assert known[task.n_states :].all()
    assert (known[: task.n_states] == task.known_rows).all()
    assert arrays_agree(outcomes, kernel)


def arrays_agree(outcomes, kernel):
    """Whether the support of the table allows every outcome of the kernel."""
    support = outcomes.table.support
    dense = [part.toarray() if sparse.issparse(part) else part for part in (support, kernel)]
    return not (dense[1].reshape(dense[0].shape) > 0)[~dense[0]].any()


@each(("seed", "gamma"), [(seed, gamma) for seed in range(3) for gamma in (0.2, 0.5)])
def test_the_value_is_the_mean_over_all_paths(seed, gamma):
    task, law = listed_task(seed, gamma)
    total, H = 0.0, 4

    def go(s, t, p):
        nonlocal total
        if t == H or s in task.ends:
            return
        for a, x, j in itertools.product(range(2), range(3), range(3)):
            q = p * task.policy[s, a] * law[s, a, x, j]
            if q > 0:
                total += q * gamma**t * VALUES[j]
                go(x, t + 1, q)

    for s in range(3):
        go(s, 0, task.initial[s])
    table = outcomes_of(task)
    exact = pt.value(table.table, table.kernel("kernel", law))
    assert abs(exact - total) <= 2.0 * gamma**H / (1 - gamma) + 1e-12


def test_an_added_start_keeps_the_values():
    task, law = listed_task(1, terminal=False)
    added = start_from_log(task)
    outcomes = outcomes_of(added)
    S, A, _, m = outcomes.shape
    assert outcomes.values * added.reward_scale == pytest.approx([-1.0, 0.0, 0.5, 2.0])  # nothing is paid at the start
    wider = np.zeros((S, A, S, m))
    wider[:3, :, :3][..., [0, 2, 3]] = law
    wider[3, :, :3, 1] = task.initial
    assert pt.value(outcomes.table, outcomes.kernel("kernel", wider)) == pytest.approx(pt.value(task, law))
    assert pt.value(added, wider) == pytest.approx(pt.value(task, law))


def test_outcomes_are_named_in_words():
    task = pt.Task(pt.Observed(values=[0, 1]), [[1.0]] * 2, [1.0, 0.0], 0.5, states=["ill", "well"])
    table = outcomes_of(task).table
    assert table.states[-1] == "reward 1 and next state well"
    assert table.place(0, 5) == "(s=0 'ill', a=0, x=5 'reward 1 and next state well')"


def test_low_and_high_are_the_ends_of_the_values_of_a_pair():
    observed = pt.Observed(low=[[0.2], [0.0]], high=[[3.0], [0.0]], values=[2, 1, 1, 3]).filled((2, 1))
    assert observed.values.tolist() == [1.0, 2.0, 3.0]
    assert observed.low.tolist() == [[1.0], [0.0]]
    assert observed.high.tolist() == [[3.0], [0.0]]
    assert observed.outside(np.array([0, 0, 0, 1, 1]), np.array([1.0, 1.5, 4.0, 0.0, 1.0])).tolist() == [0, 1, 1, 0, 1]


def test_refused():
    assert_refused(lambda: pt.Observed(), "rewards.low is missing", "values")
    assert_refused(lambda: pt.Observed(0, 1, values=[0, 2]), "rewards.values has 2, outside", "[0, 1]")
    assert_refused(lambda: pt.Observed(values=[]), "rewards.values is empty")
    assert_refused(lambda: pt.Observed(values=[0.0, np.nan]), "rewards.values")
    gap = pt.Observed([[0.2], [0.0]], [[0.8], [1.0]], [0, 1])
    assert_refused(lambda: pt.Task(gap, [[1.0]] * 2, [1.0, 0.0], 0.5), "rewards.values has no number", "[0, 0]")
    task, law = listed_task(0)
    assert_refused(lambda: pt.value(task, law.sum(axis=3)), "observed", "q[s,a,x,j]")
    total = pt.Task(pt.Observed(values=[0, 1]), [[1.0]] * 2, [1.0, 0.0], 1.0, terminal=[1], total_rewards=(0, 9))
    assert not lists_rewards(total)
    assert_refused(lambda: outcomes_of(total), "a discount below 1 or a horizon")


def test_values_with_a_horizon_come_from_the_mean_rewards():
    task = pt.Task(pt.Observed(values=[0.0, 1.0]), [[1.0]], [1.0], 1.0, horizon=3)
    assert pt.value(task, [[[[0.75, 0.25]]]]) == pytest.approx(0.75)
