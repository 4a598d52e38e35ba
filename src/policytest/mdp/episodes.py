r"""Values of episodes: observed rewards, a horizon, and totals without a discount.

With a horizon H values depend on the time, V(t,s) = sum_a pi sum_x q [r + gamma V(t+1,x)] with V(H,.) = 0. Without one
and with discount 1 the value is the total of an episode, which ends in a terminal state:

    V = (I - P)^{-1} r^pi  on the states that the chain of q and pi leaves for good.

In states that it does not leave the value is 0 where nothing is paid, and not defined elsewhere: the policy is then
*improper* under this kernel. With rewards that are not negative this is the least nonnegative solution.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from scipy import sparse

from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.compiled import episodes, search
from policytest._base.errors import InputError
from policytest._base.rows import Rows

if TYPE_CHECKING:
    from policytest.mdp.task import Task

DENSE_STATES = 600  # up to which a dense solve is used
MOST_SWEEPS = 20_000  # of the range of values without a discount
REMEDIES = "pass a horizon, a discount below 1, or total_rewards=(low, high), a bound on the total of any episode"

SERVED = "such tasks are served by decide, assess, watch, evaluate, compare, and identify with policies, by TDBetting()"


class Evaluation(NamedTuple):
    """The values and occupancies of a kernel, by steps [H,S] where there is a horizon; and a bound on their error."""

    V: FloatArray
    d: FloatArray
    error: float
    improper: BoolArray  # [S] from here the chain may stay for good where something is paid


def evaluated(task: Task, rows: Rows, q: FloatArray) -> Evaluation:
    """The values of a kernel with these rewards of rows, and the visits d of an episode, 0 once it is over."""
    S, over = task.n_states, over_in(task)
    if task.steps is not None:
        V, d = episodes.by_steps(rows, q, task.discount, task.initial, task.steps)
        d[:, over] = 0.0
        return Evaluation(V[:-1], d, 4e-16 * task.steps, np.zeros(S, dtype=bool))
    if task.discount < 1.0:
        V, d, error = search.values_and_occupancy(rows, q, task.discount, task.initial)
        return Evaluation(V, np.where(over, 0.0, d), error, np.zeros(S, dtype=bool))
    return _totals(rows, q, task.initial, over)


def over_in(task: Task) -> BoolArray:
    """[S] the states in which episodes have ended."""
    over = np.zeros(task.n_states, dtype=bool)
    over[task.ends] = True
    return over


def _totals(rows: Rows, q: FloatArray, initial: FloatArray, over: BoolArray) -> Evaluation:
    """Totals without a discount; see above. The error is |residual| max (I - P)^{-1} 1, relative to the values."""
    from scipy.sparse.csgraph import connected_components  # slow to import, and rarely needed

    S, entries = len(initial), rows.per_entry(rows.prob) * q
    state = rows.state[rows.of_entry()]
    P = sparse.csr_array((entries, (state, rows.successor.astype(np.int64))), shape=(S, S))
    P.eliminate_zeros()
    r = np.bincount(state, entries * rows.rewards(), minlength=S)
    _, part = connected_components(P, directed=True, connection="strong")
    edges = P.tocoo()
    leaves = np.zeros(part.max() + 1, dtype=bool)
    leaves[part[edges.row[part[edges.row] != part[edges.col]]]] = True
    stays = ~leaves[part]
    paid = np.zeros(S, dtype=bool)
    paid[state[(entries > 0) & (rows.rewards() != 0)]] = True
    pays_for_ever = np.bincount(part, paid & stays, minlength=part.max() + 1) > 0
    improper = _reaching(P, pays_for_ever[part])
    solved = ~stays & ~improper
    V, d, error = np.zeros(S), np.where(stays & ~over, np.inf, 0.0), 0.0
    if solved.any():
        V[solved], error = _solution(P[solved][:, solved], r[solved])
    inner = ~stays
    if inner.any():
        d[inner], _ = _solution(P[inner][:, inner].T.tocsr(), initial[inner])
    reached = _reaching(P.T.tocsr(), initial > 0)
    d[stays & ~reached] = 0.0
    V[improper] = np.nan
    return Evaluation(V, d, error, improper)


def _solution(P: sparse.csr_array, b: FloatArray) -> tuple[FloatArray, float]:
    """x with (I - P) x = b, and a bound on its error, relative to its largest entry."""
    n = len(b)
    A = sparse.csc_array(sparse.eye_array(n) - P)
    both = np.column_stack([b, np.ones(n)])
    if n <= DENSE_STATES:
        x, tau = np.linalg.solve(A.toarray(), both).T
    else:
        from scipy.sparse.linalg import splu  # slow to import

        x, tau = splu(A).solve(both).T
    size = np.abs(x).max()
    rounding = 4e-16 * size + np.abs(b - A @ x).max()
    return x, float(rounding * np.abs(tau).max() / size) if size > 0 else 0.0


def _reaching(P: sparse.csr_array, goal: BoolArray) -> BoolArray:
    """[S] the states from which the edges of P lead to the goal, and the goal."""
    found = goal.copy()
    while True:
        wider = found | ((P @ found.astype(np.float64)) > 0)
        if (wider == found).all():
            return found
        found = wider


def refuse_improper(task: Task, found: Evaluation, name: str = "q") -> None:
    """Refuse a kernel under which the total is not defined, from the initial distribution; name the states."""
    wrong = np.flatnonzero(found.improper & (task.initial > 0))
    if len(wrong):
        places = ", ".join(task.state_name(int(s)) for s in wrong[:5])
        raise InputError(
            f"{name}: from s={places} the policy may never reach a terminal state while rewards go on, so that the "
            f"total is not finite; {REMEDIES}"
        )


def extreme_values(task: Task, rows: Rows, sense_sign: float) -> tuple[FloatArray, float]:
    """[S] a bound on the values of all kernels, from below (sign 1) or above, and its error; the rewards are in rows.

    With a horizon, and without a discount, kernels that change from step to step are allowed here: the range may be
    wider than that of one kernel, never narrower. Without a discount it starts from the worst total of any path.
    """
    S, gamma, H = task.n_states, task.discount, task.steps
    if H is not None:
        V = episodes.extreme_steps(rows, gamma, sense_sign, np.zeros(S), H, -1.0)
        return V, 4e-16 * H
    if gamma < 1.0:
        _, V, error = search.extreme_rows(rows, gamma, task.initial, sense_sign, False)
        return V, 2.0 * error + 1e-13 / (1.0 - gamma)
    worst, missed = episodes.least_totals(rows, rows.reward, np.zeros(S), sense_sign)
    V = episodes.extreme_steps(rows, gamma, sense_sign, sense_sign * worst, MOST_SWEEPS, missed)
    size = float(np.abs(V[np.isfinite(V)]).max(initial=0.0))
    return V, 4e-16 * MOST_SWEEPS + (S * missed / size if size > 0 else 0.0)
