"""Linear systems of a policy in a large task, by SciPy: V = r + gamma P V and d = rho + gamma P^T d.

Small tasks, and systems inside of compiled code, are solved by `_base.compiled.search`.

Two kinds of graph need two solvers. Where states have neighbours, as cells of a grid or places in a queue, a
factorisation stays sparse (SuperLU), while iterative methods need as many rounds as the graph is wide. Where any state
soon leads to any other, a factorisation fills in, and BiCGSTAB needs few rounds. `is_narrow` tells them apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
from scipy import sparse

from policytest._base.arrays import FloatArray, SparseArray
from policytest._base.rows import Rows, first_of_state

if TYPE_CHECKING:
    from scipy.sparse import linalg

MOST_ROUNDS, MOST_STARTS = 100, 4  # of the iterative solver
WIDTH = 3.0  # a graph of S states is narrow if its bandwidth is at most this many times sqrt(S); that of a grid is 1.3
MOST_FILLED = 2e8  # numbers that a factorisation may have at most, the bandwidth times S
PART = 1e-8  # by which one start of the iterative solver reduces the residual
TINY = 1e-300
FEW_LEVELS = 100  # of a search through the graph, which a random graph widens at once


def system_of(rows: Rows, q: FloatArray, discount: float) -> tuple[SparseArray, FloatArray]:
    """gamma P and r of a policy with rows in every state, of which V = r + gamma P V."""
    earned = rows.reward + rows.sums(q * rows.gain) if len(rows.gain) else rows.reward
    first = first_of_state(rows)
    parts = q * rows.per_entry(discount * rows.prob), rows.successor, rows.start[np.append(first, len(rows.state))]
    return sparse.csr_array(parts, shape=(len(first), len(first))), np.add.reduceat(rows.prob * earned, first)


def solved(moves: SparseArray, reward: FloatArray, near: FloatArray, close: float) -> FloatArray:
    """V = r + gamma P V by BiCGSTAB, from values near it, up to a relative residual; as near as it came, if it fails.

    For values that need not be exact, such as those to bet on; `search.values_and_occupancy` has the others.
    """
    if moves.nnz >= moves.shape[0] ** 2:  # many rows of each state list every state
        moves = moves.toarray()
    for _ in range(MOST_STARTS):  # it may break down: then it starts again, one sweep further
        found, broken = _bicgstab(moves, reward, near, close)
        if not np.isfinite(found).all():
            break
        if not broken:
            return np.asarray(found)
        near = reward + moves @ found
    return near


def _bicgstab(moves: SparseArray, b: FloatArray, near: FloatArray, close: float) -> tuple[FloatArray, int]:
    """x = b + moves x by SciPy's BiCGSTAB, up to a relative residual; and whether it failed."""
    from scipy.sparse import linalg  # slow to import, and for large tasks only

    operator = linalg.LinearOperator(moves.shape, matvec=lambda x: x - moves @ x, dtype=np.float64)
    found: tuple[FloatArray, int] = linalg.bicgstab(operator, b, x0=near, rtol=close, atol=0.0, maxiter=MOST_ROUNDS)
    return found


def is_narrow(moves: SparseArray) -> bool:
    """Whether I - gamma P has a sparse factorisation: the bandwidth in the order of Cuthill and McKee is small.

    A search from the first state ends at once on a random graph, where finding that order takes as long as a solve.
    """
    from scipy.sparse.csgraph import reverse_cuthill_mckee  # slow to import

    S = moves.shape[0]
    most, level, seen = min(WIDTH * S**0.5, MOST_FILLED / S), np.zeros(1, dtype=np.int64), np.zeros(S, dtype=bool)
    for _ in range(FEW_LEVELS):
        seen[level] = True
        level = np.unique(moves[level].indices)
        level = level[~seen[level]]
        if not len(level):
            break
        if len(level) > most:
            return False
    place = np.empty(S, dtype=np.int64)
    place[reverse_cuthill_mckee(sparse.csr_array(moves + moves.T), symmetric_mode=True)] = np.arange(S)
    owner = np.repeat(place, np.diff(moves.indptr))
    return bool(np.abs(owner - place[moves.indices]).max(initial=0) <= most)


def solve_both(rows: Rows, q: FloatArray, gamma: float, rho: FloatArray, V: FloatArray, d: FloatArray) -> float:
    """V and d in place, from the incoming ones; a bound on their relative error.

    |V - V*|_max <= |residual|_max/(1-gamma) and |d - d*|_1 <= |residual|_1/(1-gamma), where |d*|_1 = 1/(1-gamma). A sum
    of n terms, of which a residual is made, is itself rounded by up to n 2^-53 times its size.
    """
    moves, reward = system_of(rows, q, gamma)
    moves.sum_duplicates()
    factors = _factorised(moves) if is_narrow(moves) else None
    error = 0.0
    for matrix, b, x, form in ((moves, reward, V, "N"), (sparse.csr_array(moves.T), rho, d, "T")):
        residual = _refined(matrix, b, x, factors and partial(factors.solve, trans=form))
        relative = residual.max() / (np.abs(x).max() + TINY) if form == "N" else residual.sum() * (1.0 - gamma)
        error = max(error, float(relative) + (4 + np.diff(matrix.indptr).max()) * 2.0**-53)
    return error / (1.0 - gamma)


def _factorised(moves: SparseArray) -> linalg.SuperLU:
    """SuperLU's factors of I - gamma P, without pivoting: it is diagonally dominant by rows, in any order of states."""
    from scipy.sparse.linalg import splu  # slow to import

    A = sparse.csc_array(sparse.eye_array(moves.shape[0], format="csc") - moves.tocsc())
    return splu(A, permc_spec="MMD_AT_PLUS_A", diag_pivot_thresh=0.0, options={"SymmetricMode": True})


def _refined(
    moves: SparseArray, b: FloatArray, x: FloatArray, solve: Callable[[FloatArray], FloatArray] | None
) -> FloatArray:
    """x = b + moves x, in place: what a solver finds for the residual is added until that is rounding; |residual|."""
    scale, last = np.abs(b).max(), np.inf
    for _ in range(MOST_STARTS):
        r = b + moves @ x - x
        worst = np.abs(r).max()
        if worst <= max(1e-15 * scale, 2e-15 * np.abs(x).max()) or not worst <= 0.5 * last:
            break
        last, better = worst, x + (solve(r) if solve else _bicgstab(moves, r, np.zeros(len(r)), PART)[0])
        if not np.isfinite(better).all():
            break
        x[:] = better
    return np.asarray(np.abs(b + moves @ x - x))
