"""Compiled: values and worst paths of episodes with a horizon, and of totals without a discount."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import BoolArray as Flags
from policytest._base.arrays import FloatArray as Reals
from policytest._base.compiled.small import TINY, compiled, entry
from policytest._base.rows import Rows

# The place (t, s) of an episode with a horizon H has the index t S + s. V0 has H + 1 layers, the last one 0.
# B > 0 (TINY) marks the places at which an episode is over: rollouts end there.


@compiled
def _gain(rows: Rows, e: int) -> float:
    """The reward on a successor, where there is one."""
    return rows.gain[e] if len(rows.gain) > 0 else 0.0


@entry
def by_steps(rows: Rows, q: Reals, gamma: float, rho: Reals, H: int) -> Any:
    """[H+1,S] V(t,s) = sum_a pi sum_x q [r + gamma V(t+1,x)], V(H,.) = 0; [H,S] d(t,x) = gamma^t P(s_t = x)."""
    S = len(rho)
    V, d = np.zeros((H + 1, S)), np.zeros((H, S))
    d[0] = rho
    for t in range(H - 1, -1, -1):
        for k in range(len(rows.state)):
            total = rows.reward[k]
            for e in range(rows.start[k], rows.start[k + 1]):
                total += q[e] * (_gain(rows, e) + gamma * V[t + 1, rows.successor[e]])
            V[t, rows.state[k]] += rows.prob[k] * total
    for t in range(H - 1):
        for k in range(len(rows.state)):
            flow = gamma * rows.prob[k] * d[t, rows.state[k]]
            for e in range(rows.start[k], rows.start[k + 1]):
                d[t + 1, rows.successor[e]] += flow * q[e]
    return V, d


@entry
def extreme_steps(rows: Rows, gamma: float, sign: float, V: Reals, most: int, tolerance: float) -> Any:
    """[S] V after ``most`` sweeps V(s) <- sum_a pi(a|s) min_x [r + gamma V(x)], or fewer once no value moves (sign 1).

    With sign -1 the max. A bound on all values remains one at every sweep.
    """
    for _ in range(most):
        new, moved = np.zeros(len(V)), 0.0
        for k in range(len(rows.state)):
            best = np.inf
            for e in range(rows.start[k], rows.start[k + 1]):
                best = min(best, sign * (_gain(rows, e) + gamma * V[rows.successor[e]]))
            new[rows.state[k]] += rows.prob[k] * (rows.reward[k] + sign * best)
        for s in range(len(V)):
            if new[s] != V[s]:
                moved = max(moved, abs(new[s] - V[s]))
        V = new
        if moved <= tolerance:
            break
    return V


@entry
def least_totals(rows: Rows, base: Reals, first: Reals, sign: float) -> Any:
    """[S] C(s) = min(first(s), least of sign (base + gain) + C(x)): the least total of a path that ends at ``first``.

    Bellman and Ford; minus infinity where a path can go round a cycle with a negative sum. Also how much the
    inequality C(s) <= sign (base + gain) + C(x) may be missed in one step, by rounding.
    """
    C = first.copy()
    S, K = len(first), len(base)
    size = 0.0
    for s in range(S):
        size = max(size, abs(first[s]))
    for k in range(K):
        for e in range(rows.start[k], rows.start[k + 1]):
            size = max(size, abs(base[k] + _gain(rows, e)))
    missed = 1e-13 * size
    for round in range(2 * S + 4):
        moved = False
        for index in range(K):
            k = index if round % 2 == 0 else K - 1 - index
            s = rows.state[k]
            for e in range(rows.start[k], rows.start[k + 1]):
                total = sign * (base[k] + _gain(rows, e)) + C[rows.successor[e]]
                if total < C[s] - missed:
                    C[s] = total if round < S + 2 else -np.inf
                    moved = True
        if not moved:
            break
    return C, missed


@entry
def worst_steps(rows: Rows, base: Reals, V: Reals, floor: Reals, over: Flags, sign: float, gamma: float, H: int) -> Any:
    """[(H+1) S] B(t,s) <= min(0, floor, D + gamma B(t+1,x)), D = sign (base + gain + gamma V0(t+1,x) - V0(t,s)).

    ``base`` [H K], ``V`` [(H+1) S] and ``floor`` [H S], or empty, are by steps; ``over`` [S] are the terminal states.
    """
    S, K = len(over), len(rows.state)
    B = np.full((H + 1) * S, TINY)
    size = 0.0
    for t in range(H - 1, -1, -1):
        here, next = t * S, (t + 1) * S
        for s in range(S):
            B[here + s] = TINY if over[s] else 0.0
            if len(floor) > 0 and not over[s]:
                B[here + s] = min(0.0, floor[here + s])
        for k in range(K):
            s = rows.state[k]
            if not over[s]:
                for e in range(rows.start[k], rows.start[k + 1]):
                    x = next + rows.successor[e]
                    D = sign * (base[t * K + k] + _gain(rows, e) + gamma * V[x] - V[here + s])
                    size = max(size, abs(D))
                    B[here + s] = min(B[here + s], D + gamma * min(B[x], 0.0))
        for s in range(S):
            if B[here + s] < 0.0:
                B[here + s] -= 1e-15 * size * (H - t)
    return B
