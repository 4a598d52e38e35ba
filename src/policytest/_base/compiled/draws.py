"""Compiled: which pair to sample next, and draws from a table of probabilities."""

from __future__ import annotations

import heapq

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import compiled, entry, first_above

# ---------------------------------------------------------------- sampling and simulation


@compiled
def _round_robin(n: Reals, tracked: Ints, chosen: Ints) -> bool:
    """Tracking where all shares are equal and visits differ by at most 1: in turn, beginning with the fewest."""
    fewest = np.inf
    most = -np.inf
    for k in tracked:
        fewest = min(fewest, n[k])
        most = max(most, n[k])
    if most - fewest > 1.0:
        return False
    at = 0
    for k in tracked:
        if n[k] == fewest and at < len(chosen):
            chosen[at] = k
            at += 1
    while at < len(chosen):
        for k in tracked:
            if at < len(chosen):
                chosen[at] = k
                at += 1
    return True


@entry
def track(n: Reals, omega: Reals, count: int) -> Ints:
    """The next `count` rows of argmin n_k/omega_k over omega_k > 0, ties to the first: line 4 of Algorithm 1."""
    tracked = np.flatnonzero(omega > 0.0)
    chosen = np.empty(count, dtype=np.int64)
    equal = True
    for k in tracked:
        equal = equal and omega[k] == omega[tracked[0]]
    if equal and _round_robin(n, tracked, chosen):
        return chosen
    visits = n.copy()
    heap = [(visits[k] / omega[k], k) for k in tracked]
    heapq.heapify(heap)
    for i in range(count):
        k = heap[0][1]
        chosen[i] = k
        visits[k] += 1.0
        heapq.heapreplace(heap, (visits[k] / omega[k], k))
    return chosen


@entry
def draw(start: Ints, successor: npt.NDArray[np.int32], cumulative: Reals, pair: Ints, u: Reals) -> Ints:
    """Successors of the pairs, by inversion: one uniform number each."""
    x = np.empty(len(pair), dtype=np.int64)
    for i in range(len(pair)):
        x[i] = successor[first_above(cumulative, start[pair[i]], start[pair[i] + 1], u[i])]
    return x


@entry
def walk(
    start: Ints,
    successor: npt.NDArray[np.int32],
    cumulative: Reals,
    actions: Reals,
    initial: Reals,
    restart: float,
    state: int,
    u: Reals,
) -> tuple[Ints, Ints, Ints]:
    """A trajectory from `state`: action, successor, and a restart with the given probability; u [m,3] uniforms.

    `actions` [S,A] and `initial` [S] are cumulative. Returns the pairs s*A + a, their successors, the states after.
    """
    m = len(u)
    S, A = actions.shape
    pair = np.empty(m, dtype=np.int64)
    x = np.empty(m, dtype=np.int64)
    after = np.empty(m, dtype=np.int64)
    for i in range(m):
        pair[i] = state * A + first_above(actions[state], 0, A, u[i, 0])
        x[i] = successor[first_above(cumulative, start[pair[i]], start[pair[i] + 1], u[i, 1])]
        state = x[i]
        if u[i, 2] < restart:
            state = first_above(initial, 0, S, u[i, 2] / restart)
        after[i] = state
    return pair, x, after
