"""Linear systems of large tasks: both solvers of SciPy against dense ones, and which of them serves which graph."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import sparse

from policytest import instances
from policytest._base import linear
from policytest._base.compiled import search
from policytest.mdp.task import Task
from policytest.mdp.values import extreme_state_values, occupancy, state_values


def system(kind, gamma, S=1200):
    """Rows, entries and the initial distribution of a grid (narrow), or of a random graph (not)."""
    if kind == "grid":
        made = instances.grid_world(40, S // 40, discount=gamma)
    else:
        made = instances.random(1, S, 3, successors=4, discount=gamma)
    rows, q, _ = made.task.rows_of("q", made.task.check_kernel("q", made.kernel))
    return made, rows, q


def dense(rows, q, gamma, rho):
    """V and d by LAPACK."""
    S, owner = len(rho), rows.of_entry()
    A = np.eye(S)
    np.add.at(A, (rows.state[owner], rows.successor), -gamma * rows.prob[owner] * q)
    return np.linalg.solve(A, np.bincount(rows.state, rows.prob * rows.reward)), np.linalg.solve(A.T, rho)


@pytest.mark.parametrize("gamma", [0.5, 0.99, 0.9999])
@pytest.mark.parametrize("kind", ["grid", "random"])
def test_both_solvers_agree_with_dense_ones_within_their_bound(kind, gamma):
    made, rows, q = system(kind, gamma)
    rho = made.task.initial
    V, d = np.zeros(len(rho)), rho.copy()
    bound = linear.solve_both(rows, q, gamma, rho, V, d)
    exact_V, exact_d = dense(rows, q, gamma, rho)
    assert bound <= search.ROUNDING / (1 - gamma)
    assert np.abs(V - exact_V).max() <= (bound + 1e-12) * np.abs(exact_V).max()
    assert np.abs(d - exact_d).sum() * (1 - gamma) <= bound + 1e-12


def test_the_bound_is_the_residual_of_what_was_found(monkeypatch):
    """A solver that ends early is not believed; the compiled solvers then start from the beginning."""
    made, rows, q = system("random", 0.99)
    rho = made.task.initial
    exact_V, _ = dense(rows, q, 0.99, rho)
    monkeypatch.setattr(linear, "MOST_STARTS", 1)
    monkeypatch.setattr(linear, "PART", 1e-2)
    V, d = np.zeros(len(rho)), rho.copy()
    bound = linear.solve_both(rows, q, 0.99, rho, V, d)
    assert search.ROUNDING / 0.01 < np.abs(V - exact_V).max() / np.abs(exact_V).max() <= bound
    V, _, bound = search.values_and_occupancy(rows, q, 0.99, rho)
    assert bound <= search.ROUNDING / 0.01
    assert_allclose(V, exact_V, rtol=1e-10)


def test_a_sum_of_many_terms_is_not_believed_to_the_last_digit():
    """Every state moves to the first one, whose visits are a sum of 45,000 equal numbers."""
    S, gamma = 45_000, 0.9
    task = Task(np.arange(S)[:, None] / S, np.ones((S, 1)), np.full(S, 1 / S), gamma)
    back = sparse.csr_array((np.ones(S), np.zeros(S, dtype=int), np.arange(S + 1)), shape=(S, S))
    rows, q, _ = task.rows_of("q", back)
    V, d = np.zeros(S), task.initial.copy()
    bound = linear.solve_both(rows, q, gamma, task.initial, V, d)
    assert abs(d[0] - 1 / S - gamma / (1 - gamma)) * (1 - gamma) <= bound
    assert search.ROUNDING / (1 - gamma) < bound < search.ACCEPTED_ERROR


def test_a_library_solves_large_tasks_alone(monkeypatch):
    """Nothing is compiled for them."""
    monkeypatch.setattr(search, "_solve_compiled", None)
    for kind in ("grid", "random"):
        made, *_ = system(kind, 0.95)
        assert len(made.task.initial) > search.LIBRARY
        value = made.task.initial @ state_values(made.task, made.kernel)
        reward = (made.task.policy * made.task.rewards).sum(axis=1)
        assert value == pytest.approx(occupancy(made.task, made.kernel) @ reward, rel=1e-11)


def test_narrow_graphs_are_told_from_wide_ones(monkeypatch):
    S = 2480
    shuffled = np.random.default_rng(0).permutation(S)
    for kind, narrow in (("grid", True), ("random", False)):
        _, rows, q = system(kind, 0.9, S)
        moves = linear.system_of(rows, q, 0.9)[0]
        assert linear.is_narrow(moves) == narrow
        assert (
            linear.is_narrow(sparse.csr_array(moves[shuffled][:, shuffled])) == narrow
        )  # whatever the order of states
    star = sparse.lil_array((S, S))
    star[S - 1, :] = star[:, S - 1] = 1.0 / S  # no search from the first state shows it; the bandwidth does
    star[0, S - 1] = 0.0
    assert not linear.is_narrow(sparse.csr_array(star))
    monkeypatch.setattr(linear, "MOST_FILLED", 10 * S)  # too large for a factorisation
    assert not linear.is_narrow(linear.system_of(*system("grid", 0.9, S)[1:], 0.9)[0])


@pytest.mark.parametrize("sense", ["min", "max"])
def test_the_range_of_values_of_a_grid_takes_few_solves(sense, monkeypatch):
    """The walk is uphill for hundreds of cells: sweeps cross them between two solves."""
    made = instances.grid_world(400, 4, discount=0.95)
    calls, solve = [], search._solved
    monkeypatch.setattr(search, "_solved", lambda *system: calls.append(1) or solve(*system))
    V = extreme_state_values(made.task, sense)
    assert len(calls) <= 5
    rows, least = made.task.layout.rows, np.minimum if sense == "min" else np.maximum
    best = least.reduceat(V[rows.successor], rows.start[:-1])
    again = np.bincount(rows.state, rows.prob * (rows.reward + 0.95 * best))
    assert np.abs(again - V).max() <= 1e-12 * np.abs(V).max()  # Bellman's equation
