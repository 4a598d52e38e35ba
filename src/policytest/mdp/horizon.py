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

from policytest._base.arrays import BoolArray, FloatArray, Kernel
from policytest._base.compiled import episodes, search
from policytest._base.errors import InputError
from policytest._base.rows import Rows

if TYPE_CHECKING:
    from policytest.mdp.task import Task

CLOSED_STATES = 40  # up to which the graph of a chain is a dense matrix
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


class Structure(NamedTuple):
    """What the graph of a chain says about its states, [S] each."""

    stays: BoolArray  # in a class of states that is never left
    improper: BoolArray  # may end in such a class in which something is paid
    reached: BoolArray  # an episode may come here


def _totals(rows: Rows, q: FloatArray, initial: FloatArray, over: BoolArray) -> Evaluation:
    """Totals without a discount; see above. The error is |residual| max (I - P)^{-1} 1, relative to the values."""
    S, entries = len(initial), rows.per_entry(rows.prob) * q
    state = rows.state[rows.of_entry()]
    P: Kernel
    if S <= CLOSED_STATES:
        P = np.bincount(state * S + rows.successor, entries, minlength=S * S).reshape(S, S)
    else:
        P = sparse.csr_array((entries, (state, rows.successor.astype(np.int64))), shape=(S, S))
        P.eliminate_zeros()
    r = np.bincount(state, entries * rows.rewards(), minlength=S).astype(np.float64)
    paid = np.zeros(S, dtype=bool)
    paid[state[(entries > 0) & (rows.rewards() != 0)]] = True
    stays, improper, reached = (_closed if S <= CLOSED_STATES else _connected)(P, paid, initial > 0)
    solved = ~stays & ~improper
    V, d, error = np.zeros(S), np.where(stays & ~over, np.inf, 0.0), 0.0
    if solved.any():
        V[solved], error = _solution(P[solved][:, solved], r[solved])
    inner = ~stays
    if inner.any():
        d[inner], _ = _solution(P[inner][:, inner].T, initial[inner])
    d[stays & ~reached] = 0.0
    V[improper] = np.nan
    return Evaluation(V, d, error, improper)


def _closed(P: FloatArray, paid: BoolArray, start: BoolArray) -> Structure:
    """The structure of a small chain, from the pairs of states of which one leads to the other, in any number of steps.

    A state stays if all states that it leads to lead back to it. Up to 20 states this takes a sixth of the time of
    `_connected`, at 50 as much.
    """
    leads = (P > 0) | np.eye(len(P), dtype=bool)
    for _ in range(len(P).bit_length()):
        leads = leads @ leads  # twice as many steps
    stays = np.all(~leads | leads.T, axis=1)
    pays_for_ever = stays & leads[:, paid].any(axis=1)
    return Structure(stays, np.asarray(leads[:, pays_for_ever].any(axis=1)), np.asarray(leads[start].any(axis=0)))


def _connected(P: sparse.csr_array, paid: BoolArray, start: BoolArray) -> Structure:
    """The structure of a large chain, from its strongly connected components."""
    from scipy.sparse.csgraph import connected_components  # slow to import, and rarely needed

    _, part = connected_components(P, directed=True, connection="strong")
    edges = P.tocoo()
    leaves = np.zeros(part.max() + 1, dtype=bool)
    leaves[part[edges.row[part[edges.row] != part[edges.col]]]] = True
    stays = ~leaves[part]
    pays_for_ever = np.bincount(part, paid & stays, minlength=part.max() + 1) > 0
    return Structure(stays, reaching(P, pays_for_ever[part]), reaching(P.T.tocsr(), start))


def _solution(P: Kernel, b: FloatArray) -> tuple[FloatArray, float]:
    """x with (I - P) x = b, and a bound on its error, relative to its largest entry."""
    n = len(b)
    both = np.column_stack([b, np.ones(n)])
    if n <= DENSE_STATES:
        A = np.eye(n) - (P if isinstance(P, np.ndarray) else P.toarray())
        x, tau = np.linalg.solve(A, both).T
    else:
        from scipy.sparse.linalg import splu  # slow to import

        A = sparse.csc_array(sparse.eye_array(n) - P)
        x, tau = splu(A).solve(both).T
    size = np.abs(x).max()
    rounding = 4e-16 * size + np.abs(b - A @ x).max()
    return x, float(rounding * np.abs(tau).max() / size) if size > 0 else 0.0


def reaching(P: sparse.csr_array, goal: BoolArray) -> BoolArray:
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
