"""Compiled: values and occupancies, the two worst-case problems by conditional gradients, and product boxes.

numba's on-disk cache does not notice an edit of a callee in another file, so
kernels that call each other live here. Each has a plain NumPy twin beside its
user, and a test that the two agree. Never compiled with ``fastmath``: the
certificates rely on IEEE arithmetic.

Letters follow the paper: q kernel entries, V state values, d unnormalised
occupancy, N weighted centre (n_sa p(x|s,a)), n weights n_sa, lam multiplier.
Entry vectors have the layout of `policytest._base.rows.Rows`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from inspect import signature
from typing import Concatenate, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt
from numba import types
from numba.extending import overload

from policytest._base import linear
from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import (
    INSIDE,
    TINY,
    add_to,
    compiled,
    copy_to,
    dot,
    entry,
    kept_inside,
    largest_of,
    loss_of,
    mix_to,
    row_loss,
    total_of,
)
from policytest._base.rows import Rows

DIRECT_SMALL = 100  # up to this many states elimination is the faster solver
LIBRARY = 1000  # above this many states SciPy's solvers are the faster ones
ROUNDING = 2e-14  # of SciPy's solution, times 1/(1-gamma): above it the compiled solvers try
ENVELOPE_WORK = 2e10  # up to this many operations elimination steps in where the iterative solver stalls
ACCEPTED_ERROR = 1e-8  # relative error of values above which a linear solve counts as failed
NEGLIGIBLE = 1e-200

Parts = ParamSpec("Parts")
Result = TypeVar("Result")
Sized = TypeVar("Sized", "Rows", "Descent")
Descended: TypeAlias = tuple[int, float, float, float, int]
"""Status, loss, value, multiplier and iterations."""
State: TypeAlias = tuple[float, float, float]
Multipliers: TypeAlias = tuple[float, float]
Solve: TypeAlias = Callable[[Rows, Reals, float, Reals, Reals, Reals], float]


# ---------------------------------------------------------------- value and occupancy


@compiled
def _policy_matrix(rows: Rows, q: Reals, P: Reals) -> None:
    """P[s,x] = sum_a pi(a|s) q(x|s,a)."""
    for s in range(len(P)):
        for x in range(len(P)):
            P[s, x] = 0.0
    for k in range(len(rows.state)):
        s = rows.state[k]
        for e in range(rows.start[k], rows.start[k + 1]):
            P[s, rows.successor[e]] += rows.prob[k] * q[e]


@compiled
def _policy_reward(rows: Rows, q: Reals, reward: Reals) -> None:
    """reward[s] = sum_a pi(a|s) (r(s,a) + sum_x q(x|s,a) r(s,a,x))."""
    for s in range(len(reward)):
        reward[s] = 0.0
    for k in range(len(rows.state)):
        total = rows.reward[k]
        if len(rows.gain) > 0:
            for e in range(rows.start[k], rows.start[k + 1]):
                total += q[e] * rows.gain[e]
        reward[rows.state[k]] += rows.prob[k] * total


@compiled
def _eliminate(A: Reals) -> None:
    """LU without pivoting, in place. I - gamma P is strictly diagonally dominant by rows, so this is stable."""
    S = len(A)
    for i in range(S):
        for k in range(i):
            factor = A[i, k] / A[k, k]
            if factor != 0.0:
                A[i, k] = factor
                for j in range(k + 1, S):
                    A[i, j] -= factor * A[k, j]


@compiled
def _substitute(LU: Reals, x: Reals) -> None:
    """x <- A^{-1} x."""
    S = len(LU)
    for i in range(S):
        total = x[i]
        for j in range(i):
            total -= LU[i, j] * x[j]
        x[i] = total
    for i in range(S - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, S):
            total -= LU[i, j] * x[j]
        x[i] = total / LU[i, i]


@compiled
def _substitute_transposed(LU: Reals, x: Reals) -> None:
    """x <- A^{-T} x."""
    S = len(LU)
    for i in range(S):
        x[i] /= LU[i, i]
        for j in range(i + 1, S):
            x[j] -= LU[i, j] * x[i]
    for i in range(S - 1, -1, -1):
        for j in range(i):
            x[j] -= LU[i, j] * x[i]


@compiled
def _residual(rows: Rows, q: Reals, gamma: float, transposed: bool, b: Reals, x: Reals, out: Reals) -> None:
    """out = b - (I - gamma P) x, or with P transposed, straight from the rows."""
    for i in range(len(out)):
        out[i] = b[i] - x[i]
    for k in range(len(rows.state)):
        s = rows.state[k]
        weight = gamma * rows.prob[k]
        if transposed:
            flow = weight * x[s]
            for e in range(rows.start[k], rows.start[k + 1]):
                out[rows.successor[e]] += flow * q[e]
        else:
            total = 0.0
            for e in range(rows.start[k], rows.start[k + 1]):
                total += q[e] * x[rows.successor[e]]
            out[s] += weight * total


@compiled
def _bicgstab(rows: Rows, q: Reals, gamma: float, transposed: bool, b: Reals, x: Reals, patient: bool) -> float:
    """Solve (I - gamma P) x = b (or P transposed) from the given x by BiCGSTAB; the relative residual is returned.

    Residuals are compared with b, or with the rounding of x where that is larger. A few fixed-point iterations
    x <- b + gamma P x finish; if `patient`, as many as that needs to converge, at its rate gamma.
    """
    S = len(b)
    zero = np.zeros(S)
    r = np.empty(S)
    v = np.empty(S)
    t = np.empty(S)
    p = np.empty(S)
    shadow = np.empty(S)
    scale = largest_of(b) + TINY
    last = np.inf
    for _restart in range(6):
        _residual(rows, q, gamma, transposed, b, x, r)
        worst = largest_of(r)
        aim = max(1e-15 * scale, 2e-15 * largest_of(x))
        if not (worst > aim and worst <= 0.5 * last):
            break
        last = worst
        copy_to(r, shadow)
        copy_to(r, p)
        rho = dot(shadow, r)
        for _ in range(200):
            _residual(rows, q, gamma, transposed, zero, p, v)  # v = -(I - gamma P) p
            denominator = -dot(shadow, v)
            if denominator == 0.0:
                break
            alpha = rho / denominator
            add_to(x, alpha, p)
            add_to(r, alpha, v)
            if largest_of(r) <= 0.3 * aim:
                break
            _residual(rows, q, gamma, transposed, zero, r, t)
            square = dot(t, t)
            if square == 0.0:
                break
            omega = -dot(t, r) / square
            add_to(x, omega, r)
            add_to(r, omega, t)
            previous = rho
            rho = dot(shadow, r)
            if largest_of(r) <= 0.3 * aim or rho == 0.0 or omega == 0.0:
                break
            beta = (rho / previous) * (alpha / omega)
            for i in range(S):
                p[i] = r[i] + beta * (p[i] + omega * v[i])
    if not np.isfinite(largest_of(x)):
        copy_to(b, x)
    worst = np.inf
    for _ in range(20 + int(40.0 / (1.0 - gamma)) if patient else 3):
        _residual(rows, q, gamma, transposed, b, x, r)
        worst = largest_of(r)
        if worst <= max(1e-15 * scale, 2e-15 * largest_of(x)):
            break
        add_to(x, 1.0, r)
    size = 0.0
    for i in range(S):
        size += abs(r[i]) if transposed else 0.0
    return size if transposed else worst / (largest_of(x) + TINY)


def _solve_directly(rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals) -> float:
    """V and d from one factorisation of I - gamma P; the bound on their relative error is rounding over 1-gamma."""
    S = len(rho)
    A = np.empty((S, S))
    _policy_matrix(rows, q, A)
    for i in range(S):
        for j in range(S):
            A[i, j] *= -gamma
        A[i, i] += 1.0
    _eliminate(A)
    _policy_reward(rows, q, V)
    _substitute(A, V)
    copy_to(rho, d)
    _substitute_transposed(A, d)
    return 4e-16 / (1.0 - gamma)


@compiled
def _envelope(rows: Rows, q: Reals, S: int, low: Ints, top: Ints) -> float:
    """low[i]: first column of row i, top[j]: first row of column j, both up to the diagonal; the work of elimination.

    Elimination without pivoting creates no entries outside this envelope, which is thin for chains and grids.
    """
    for i in range(S):
        low[i] = i
        top[i] = i
    for k in range(len(rows.state)):
        s = rows.state[k]
        for e in range(rows.start[k], rows.start[k + 1]):
            x = rows.successor[e]
            if q[e] > 0.0 and x < s:
                low[s] = min(low[s], x)
            elif q[e] > 0.0 and x > s:
                top[x] = min(top[x], s)
    work = 0.0
    for i in range(S):
        work += float(i - low[i]) ** 2 + float(i - top[i]) ** 2
    return work


@compiled
def _solve_in_envelope(
    rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals, low: Ints, top: Ints
) -> None:
    """V and d from I - gamma P = L U, the rows of L and the columns of U stored over the envelope.

    By hand, because SuperLU could be called from here in object mode only, which numba compiles again in every process
    (about four seconds) and which holds the interpreter's lock. A grid of 1,024 states takes 8 ms with the failed
    iterations before, 2 ms by SuperLU; one of 10,000 takes 0.22 s, and 0.02 s: Python calls `linear.solve_both` there.
    """
    S = len(rho)
    at_L = np.zeros(S + 1, dtype=np.int64)
    at_U = np.zeros(S + 1, dtype=np.int64)
    for i in range(S):
        at_L[i + 1] = at_L[i] + i - low[i]
        at_U[i + 1] = at_U[i] + i - top[i] + 1
    L = np.zeros(at_L[S])
    U = np.zeros(at_U[S])
    for i in range(S):
        U[at_U[i + 1] - 1] = 1.0
    for k in range(len(rows.state)):
        s = rows.state[k]
        for e in range(rows.start[k], rows.start[k + 1]):
            x = rows.successor[e]
            flow = gamma * rows.prob[k] * q[e]
            if flow == 0.0:
                continue
            if x < s:
                L[at_L[s] + x - low[s]] -= flow
            else:
                U[at_U[x] + s - top[x]] -= flow
    for i in range(S):
        for k in range(low[i], i):  # L[i,k] = (A[i,k] - sum_m L[i,m] U[m,k]) / U[k,k]
            first = max(low[i], top[k])
            total = L[at_L[i] + k - low[i]]
            for m in range(k - first):
                total -= L[at_L[i] + first - low[i] + m] * U[at_U[k] + first - top[k] + m]
            L[at_L[i] + k - low[i]] = total / U[at_U[k + 1] - 1]
        for k in range(top[i], i + 1):  # U[k,i] = A[k,i] - sum_m L[k,m] U[m,i]
            first = max(low[k], top[i])
            total = U[at_U[i] + k - top[i]]
            for m in range(k - first):
                total -= L[at_L[k] + first - low[k] + m] * U[at_U[i] + first - top[i] + m]
            U[at_U[i] + k - top[i]] = total
    _policy_reward(rows, q, V)
    copy_to(rho, d)
    for i in range(S):  # V: L first, by rows; d: U transposed first, by columns
        for m in range(low[i], i):
            V[i] -= L[at_L[i] + m - low[i]] * V[m]
        for m in range(top[i], i):
            d[i] -= U[at_U[i] + m - top[i]] * d[m]
        d[i] /= U[at_U[i + 1] - 1]
    for i in range(S - 1, -1, -1):
        V[i] /= U[at_U[i + 1] - 1]
        for m in range(top[i], i):
            V[m] -= U[at_U[i] + m - top[i]] * V[i]
        for m in range(low[i], i):
            d[m] -= L[at_L[i] + m - low[i]] * d[i]


def _solve_large(rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals) -> float:
    """V and d by BiCGSTAB from the incoming ones; a bound on their relative error.

    |V - V*|_max <= |residual|_max/(1-gamma) and |d - d*|_1 <= |residual|_1/(1-gamma), where |d*|_1 = 1/(1-gamma).
    Where that stalls, as on long chains, elimination in the envelope of the matrix, which is thin there; and only
    where that is too much work, fixed-point sweeps.
    """
    S = len(rho)
    rounding = 4e-16 / (1.0 - gamma)
    b = np.empty(S)
    error = 0.0
    for attempt in range(2):
        error = 0.0
        for side in range(2):
            if side == 0:
                _policy_reward(rows, q, b)
                x = V
            else:
                copy_to(rho, b)
                x = d
            residual = _bicgstab(rows, q, gamma, side == 1, b, x, attempt == 1)
            error = max(error, residual / (1.0 - gamma) if side == 0 else residual)
        if error <= 10.0 * rounding or attempt == 1:
            break
        low = np.empty(S, dtype=np.int64)
        top = np.empty(S, dtype=np.int64)
        if _envelope(rows, q, S, low, top) <= ENVELOPE_WORK:
            _solve_in_envelope(rows, q, gamma, rho, V, d, low, top)
            return rounding
        if error <= ACCEPTED_ERROR:
            break
    return error


class LargeRows(Rows):
    """The rows of a task of more than `DIRECT_SMALL` states. Their type chooses the linear solver as code is compiled:
    what a small task does not use is not compiled for it."""


def _either_solver(rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals) -> float:
    """Compiled code has `_solve_directly` or `_solve_large` in the place of this."""
    raise NotImplementedError


@overload(_either_solver, jit_options=INSIDE, strict=False)
def _solver(rows: types.NamedTuple, q: object, gamma: object, rho: object, V: object, d: object) -> Solve:
    """The solver for these types."""
    return _solve_large if rows.instance_class is LargeRows else _solve_directly


@compiled
def _solve_both(rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals) -> float:
    """V = (I - gamma P)^{-1} r_pi and d = (I - gamma P)^{-T} rho; returns a bound on their relative error."""
    return _either_solver(rows, q, gamma, rho, V, d)


def sized(function: Callable[Concatenate[Sized, Parts], Result]) -> Callable[Concatenate[Sized, Parts], Result]:
    """An entry whose first argument are rows, or a `Descent`: compiled for small tasks and for large ones."""
    call, names = entry(function), list(signature(function).parameters)
    place = names.index("rho") - 1 if "rho" in names else -1

    @wraps(call)
    def chosen(first: Sized, /, *rest: Parts.args, **none: Parts.kwargs) -> Result:
        rho = first.rho if isinstance(first, Descent) else rest[place]
        if np.asarray(rho).size > DIRECT_SMALL:
            large = first._replace(rows=LargeRows(*first.rows)) if isinstance(first, Descent) else LargeRows(*first)
            return call(large, *rest, **none)
        return call(first, *rest, **none)

    return chosen


@sized
def _solve_compiled(rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals) -> float:
    return _solve_both(rows, q, gamma, rho, V, d)


def _solved(rows: Rows, q: Reals, gamma: float, rho: Reals, V: Reals, d: Reals) -> float:
    """V and d in place, and a bound on their relative error: by SciPy in large tasks, if that is accurate enough."""
    if len(rho) > LIBRARY:
        start = V.copy(), d.copy()
        error = linear.solve_both(rows, q, gamma, rho, V, d)
        if error <= ROUNDING / (1.0 - gamma):
            return error
        V[:], d[:] = start
    return float(_solve_compiled(rows, q, gamma, rho, V, d))


def values_and_occupancy(rows: Rows, q: Reals, gamma: float, rho: Reals) -> tuple[Reals, Reals, float]:
    """State values V_q and unnormalised occupancy d_q of a kernel, and an error bound (relative)."""
    start = np.asarray(rho, dtype=np.float64)
    V, d = np.zeros(len(start)), start.copy()
    return V, d, _solved(rows, q, gamma, start, V, d)


@compiled
def _worth(rows: Rows, gamma: float, V: Reals, e: int) -> float:
    """r(s,a,x) + gamma V(x) of an entry, without a reward on (s,a)."""
    if len(rows.gain) > 0:
        return rows.gain[e] + gamma * V[rows.successor[e]]
    return gamma * V[rows.successor[e]]


@compiled
def _sweep(rows: Rows, gamma: float, sign: float, V: Reals, backwards: bool) -> float:
    """One in-place sweep V(s) <- sum_a pi(a|s) min_x [r + gamma V(x)]; rows come by state. The largest change."""
    K = len(rows.state)
    change = 0.0
    k = K - 1 if backwards else 0
    while 0 <= k < K:
        s = rows.state[k]
        total = 0.0
        while 0 <= k < K and rows.state[k] == s:
            best = np.inf
            for e in range(rows.start[k], rows.start[k + 1]):
                best = min(best, sign * _worth(rows, gamma, V, e))
            total += rows.prob[k] * (rows.reward[k] + sign * best)
            k += -1 if backwards else 1
        change = max(change, abs(V[s] - total))
        V[s] = total
    return change


@entry
def _swept(rows: Rows, gamma: float, sign: float, V: Reals, close: float) -> None:
    """Sweeps to and fro, until values change by this share of the largest."""
    for _ in range(500):
        forth = _sweep(rows, gamma, sign, V, False)
        if max(forth, _sweep(rows, gamma, sign, V, True)) <= close * largest_of(V):
            break


@entry
def _improved(
    rows: Rows, gamma: float, sign: float, is_open: bool, V: Reals, first: bool, point: Rows, share: float
) -> bool:
    """The successor of each row that V makes the best, listed in `point`, in place; whether any has changed.

    A successor is better by more than this share of the largest value.
    """
    choice, gain = point.successor, point.gain
    changed = first
    margin = share * largest_of(V)
    lowest = 0
    for x in range(len(V)):
        if sign * V[x] < sign * V[lowest]:
            lowest = x
    for k in range(len(choice)):
        if is_open:
            if first or sign * V[lowest] < sign * V[choice[k]] - margin:
                choice[k] = lowest
                changed = True
            continue
        worth = np.inf
        if not first:
            worth = sign * gamma * V[choice[k]]
            if len(gain) > 0:
                worth += sign * gain[k]
        for e in range(rows.start[k], rows.start[k + 1]):
            other = sign * _worth(rows, gamma, V, e)
            if other < worth - margin:
                worth = other
                choice[k] = rows.successor[e]
                if len(gain) > 0:
                    gain[k] = rows.gain[e]
                changed = True
    return changed


def extreme_rows(
    rows: Rows, gamma: float, rho: Reals, sign: float, is_open: bool
) -> tuple[npt.NDArray[np.int32], Reals, float]:
    """Policy iteration of the kernel: the successor of each row that minimises sign * value, and the values.

    Fixed point: V(s) = sum_a pi(a|s) min_x [r(s,a,x) + gamma V(x)] (max for sign = -1), approached by sweeps first,
    and again, to a finer share, where a step finds that the solution is not there: sweeps cross a grid at once.
    With `is_open` any state may succeed any pair, listed or not. Returns the successors [K], V and an error bound.
    """
    K = len(rows.state)
    choice, gain = np.zeros(K, dtype=np.int32), np.zeros(K if len(rows.gain) > 0 else 0)
    point, one = rows._replace(start=np.arange(K + 1), successor=choice, gain=gain), np.ones(K)
    V, d, error = np.zeros(len(rho)), rho.copy(), 0.0
    close = 1e-6
    if not is_open:
        _swept(rows, gamma, sign, V, close)
    for iteration in range(10_000):
        if not _improved(rows, gamma, sign, is_open, V, iteration == 0, point, 1e-13):
            break
        if iteration > 0 and not is_open:
            close = max(1e-3 * close, 1e-15)
            _swept(rows, gamma, sign, V, close)
            _improved(rows, gamma, sign, is_open, V, True, point, 0.0)
        error = _solved(point, one, gamma, rho, V, d)
    return choice, V, error


@compiled
def _copy_centre(start: Ints, N: Reals, n: Reals, q: Reals) -> None:
    """q <- N/n in the rows with weight."""
    for k in range(len(n)):
        if n[k] > 0.0:
            for e in range(start[k], start[k + 1]):
                q[e] = N[e] / n[k]


@entry
def row_losses(start: Ints, N: Reals, n: Reals, q: Reals) -> Reals:
    """[K] n_k KL(N_k/n_k, q_k)."""
    losses = np.zeros(len(n))
    for k in range(len(n)):
        if n[k] > 0.0:
            losses[k] = row_loss(N, n[k], q, start[k], start[k + 1])
    return losses


@entry
def share_in_ball(start: Ints, N: Reals, n: Reals, p: Reals, q: Reals, radius: float) -> float:
    """The largest share of the way from the centre p to q at which loss <= radius, by bisection (it is convex)."""
    mixed = np.empty(len(q))
    inside = 0.0
    outside = 1.0
    for _ in range(40):
        share = 0.5 * (inside + outside)
        mix_to(p, share, q, mixed)
        if loss_of(start, N, n, mixed) <= radius:
            inside = share
        else:
            outside = share
    return inside


@compiled
def _root_bound(N: Reals, n: float, gap: Reals, lam: float, first: int, last: int) -> float:
    """A lower bound of the row's root z: from single entries, N_x <= z + lam gap_x, and from Jensen's inequality."""
    mean = 0.0
    z = 0.0
    for e in range(first, last):
        if N[e] > 0.0:
            cost = lam * gap[e]
            mean += N[e] * cost
            z = max(z, N[e] - cost)
    return max(z, n - mean / n)


@compiled
def _give_rest_to_unseen(N: Reals, gap: Reals, lam: float, first: int, last: int, q: Reals) -> bool:
    """The row's solution at z = 0, if the cheapest successor is unseen and the seen ones sum to at most 1 there."""
    seen = 0.0
    for e in range(first, last):
        if N[e] > 0.0:
            seen += N[e] / (lam * gap[e])
    if not seen <= 1.0:
        return False
    rest = 1.0 - seen
    for e in range(first, last):
        q[e] = 0.0
        if N[e] > 0.0:
            q[e] = N[e] / (lam * gap[e])
        elif gap[e] == 0.0:
            q[e] = rest
            rest = 0.0
    return True


@compiled
def _tilt_row(
    N: Reals, n: float, gap: Reals, lam: float, first: int, last: int, guess: float, q: Reals
) -> tuple[float, float, float, float]:
    """Row problem: q = argmin over the simplex of lam gap.q - sum_x N_x log q_x, where min gap = 0.

    q_x = N_x/(z + lam gap_x) with z >= 0 such that the row sums to 1; if the seen successors sum to less than 1
    at z = 0, the cheapest successor is unseen and takes the rest. Newton on 1/f(z) = 1 with
    f(z) = sum N/(z + lam gap): 1/f is concave, so from the left of the root the iterates increase to it, and from
    a guess to its right the first step lands left. Returns height = gap.q, slope = -d height/d lam, z and dz/d lam.
    """
    z = guess
    if not z > 0.0:
        z = _root_bound(N, n, gap, lam, first, last)
        if z <= 0.0 and _give_rest_to_unseen(N, gap, lam, first, last, q):
            return n / lam, n / (lam * lam), 0.0, 0.0
    for _ in range(100):
        f = 0.0
        height = 0.0
        curvature = 0.0
        tilted = 0.0
        second = 0.0
        for e in range(first, last):
            if N[e] > 0.0:
                inverse = 1.0 / (z + lam * gap[e])
                share = N[e] * inverse
                weight = share * inverse
                q[e] = share
                f += share
                height += share * gap[e]
                curvature += weight
                tilted += weight * gap[e]
                second += weight * gap[e] * gap[e]
            else:
                q[e] = 0.0
        if abs(f - 1.0) <= 1e-7:  # the last Newton step is taken to first order below, which leaves 1e-14
            break
        z += (f - 1.0) * f / curvature
        if not z > 0.0:
            z = _root_bound(N, n, gap, lam, first, last)
            if z <= 0.0 and _give_rest_to_unseen(N, gap, lam, first, last, q):
                return n / lam, n / (lam * lam), 0.0, 0.0
    step = (f - 1.0) / curvature
    mean = tilted / curvature
    slope = max(second - tilted * mean, 0.0)
    if abs(step) < 0.5 * z:
        for e in range(first, last):
            if N[e] > 0.0:
                q[e] -= step * q[e] * q[e] / N[e]
        return height - step * tilted, slope, z + step, -mean
    for e in range(first, last):  # z itself is of the order of the step: keep the row positive
        q[e] /= f
    return height / f, slope, z, -mean


@compiled
def _tilt(start: Ints, N: Reals, n: Reals, gap: Reals, lam: float, q: Reals, memory: Reals) -> tuple[float, float]:
    """The row problem in every row; a row without weight goes to its cheapest successor. Sums of height and slope.

    `memory` [K+1,2] keeps each row's root and its derivative at the last multiplier (in its last row), as a guess.
    """
    height = 0.0
    slope = 0.0
    moved = lam - memory[len(n), 0]
    memory[len(n), 0] = lam
    for k in range(len(n)):
        first = start[k]
        last = start[k + 1]
        if n[k] > 0.0:
            guess = memory[k, 0] + moved * memory[k, 1]
            row_height, row_slope, z, rate = _tilt_row(N, n[k], gap, lam, first, last, guess, q)
            height += row_height
            slope += row_slope
            memory[k, 0] = z
            memory[k, 1] = rate
        else:
            free = True
            for e in range(first, last):
                q[e] = 0.0
                if free and gap[e] == 0.0:
                    q[e] = 1.0
                    free = False
    return height, slope


@entry
def tilt(start: Ints, N: Reals, n: Reals, gap: Reals, lam: float) -> tuple[Reals, float]:
    """The minimiser of lam gap.q + loss(q), row by row, and its height gap.q."""
    q = np.empty(len(N))
    height, _ = _tilt(start, N, n, gap, lam, q, np.zeros((len(n) + 1, 2)))
    return q, height


@compiled
def _gradient(rows: Rows, gamma: float, sign: float, V: Reals, d: Reals, q: Reals, gap: Reals) -> float:
    """gap = g - min over its row, g = sign d(s) pi(a|s) (r(s,a,x) + gamma V(x)), the gradient of sign * value.

    A reward on (s,a) is constant in its row and drops out. Where d = 0 a negligible weight keeps the order of the
    successors, so that rows without weight still go to their cheapest one. Returns the height gap.q.
    """
    height = 0.0
    for k in range(len(rows.state)):
        flow = d[rows.state[k]]
        weight = sign * rows.prob[k] * (flow if flow != 0.0 else NEGLIGIBLE)
        lowest = np.inf
        for e in range(rows.start[k], rows.start[k + 1]):
            gap[e] = weight * _worth(rows, gamma, V, e)
            lowest = min(lowest, gap[e])
        for e in range(rows.start[k], rows.start[k + 1]):
            gap[e] -= lowest
            height += gap[e] * q[e]
    return height


# ---------------------------------------------------------------- conditional gradient (ProjectionFree)


class Descent(NamedTuple):
    """(NC) or (NO) for a policy's value: its rows, gamma, rho, the weighted centre N [E] and n [K], goal and sign.

    The goal is the threshold of (NC), or the budget of (NO).
    """

    rows: Rows
    gamma: float
    rho: Reals
    N: Reals
    n: Reals
    goal: float
    sign: float


@compiled
def _tilt_to_height(
    start: Ints, N: Reals, n: Reals, gap: Reals, want: float, slack: float, lam: float, q: Reals, memory: Reals
) -> float:
    """The multiplier at which the tilted rows have gap.q = want (decreasing in lam).

    Newton on 1/height: height is about a - b lam for small and c/lam for large lam, and its inverse is
    nearly linear in both. Stops within `slack`; a bracket keeps every step safe.
    """
    low = 0.0
    high = np.inf
    for _ in range(100):
        height, slope = _tilt(start, N, n, gap, lam, q, memory)
        if abs(height - want) <= slack:
            break
        if height > want:
            low = lam
        else:
            high = lam
        proposal = lam + height * (height - want) / (want * slope) if slope > 0.0 else np.inf
        proposal = kept_inside(proposal, low, high, lam, 4.0)
        if abs(proposal - lam) <= 1e-15 * lam:
            break
        lam = proposal
        if lam > 1e280:
            break
    return lam


@compiled
def _tilt_to_loss(
    start: Ints, N: Reals, n: Reals, gap: Reals, budget: float, lam: float, q: Reals, memory: Reals
) -> float:
    """The multiplier at which the tilted rows use the whole budget: loss(q) = budget (increasing in lam).

    Newton in log lam on log loss, which is linear with slope 2 for small lam, inside a bracket; the end with
    loss <= budget is returned, so that q stays in the ball. Rows with one seen successor do not move at all until
    lam is large enough for an unseen one. Gives up growing once the height is negligible (the value has reached
    its limit). Returns 0, and the untilted rows, if no multiplier is found.
    """
    best = 0.0
    if budget > 0.0:
        if lam <= 0.0:
            height, slope = _tilt(start, N, n, gap, 0.0, q, memory)
            natural = total_of(n) / max(height, TINY)  # costs and weights of the same size
            lam = natural if slope <= 0.0 else min(np.sqrt(2.0 * budget / slope), natural)
            lam = max(lam, TINY)
        largest = largest_of(gap)
        low = 0.0
        high = np.inf
        for _ in range(400):
            height, slope = _tilt(start, N, n, gap, lam, q, memory)
            loss = loss_of(start, N, n, q)
            if budget * (1.0 - 1e-12) <= loss <= budget:
                return lam
            if loss < budget:
                low = lam
                best = lam
                if height <= 1e-15 * largest:
                    return lam
            else:
                high = lam
            rate = lam * lam * slope  # d loss / d log lam
            proposal = np.inf
            if rate > 0.0 and loss > 0.0:
                change = (np.log(budget * (1.0 - 5e-13)) - np.log(loss)) * loss / rate
                proposal = lam * np.exp(min(max(change, -7.0), 7.0))
            proposal = kept_inside(proposal, low, high, lam, 10.0)
            if abs(proposal - lam) <= 4e-16 * lam or not 1e-290 < proposal < 1e290:
                break
            lam = proposal
    _tilt(start, N, n, gap, best, q, memory)
    return best


NEWTON_STATES = 16  # up to here Newton's method on (V, d, lam) is worth its (2S+1)^3


@compiled
def _solve_pivoted(A: Reals, b: Reals) -> bool:
    """b <- A^{-1} b by elimination with partial pivoting, A destroyed; False if A is singular.

    By hand, because `np.linalg.solve` takes 1.3 to 1.7 times as long on the 5 to 21 unknowns of small tasks, as long on
    33, and ten times as long to compile (5.6 s against 0.5 s); and it raises where A is singular.
    """
    size = len(b)
    for k in range(size):
        pivot = k
        for i in range(k + 1, size):
            if abs(A[i, k]) > abs(A[pivot, k]):
                pivot = i
        if not abs(A[pivot, k]) > 0.0:
            return False
        if pivot != k:
            for j in range(k, size):
                A[k, j], A[pivot, j] = A[pivot, j], A[k, j]
            b[k], b[pivot] = b[pivot], b[k]
        for i in range(k + 1, size):
            factor = A[i, k] / A[k, k]
            if factor != 0.0:
                for j in range(k + 1, size):
                    A[i, j] -= factor * A[k, j]
                b[i] -= factor * b[k]
    for i in range(size - 1, -1, -1):
        for j in range(i + 1, size):
            b[i] -= A[i, j] * b[j]
        b[i] /= A[i, i]
    return True


@compiled
def _stationarity_system(
    descent: Descent, V: Reals, d: Reals, lam: float, q: Reals, memory: Reals, gap: Reals, w: Reals, J: Reals, F: Reals
) -> None:
    """Residuals F and Jacobian J of V = r_pi + gamma P_q V and d = rho + gamma P_q^T d, q the tilt of (V, d, lam).

    Unknowns and equations are ordered (V, d, lam). With w = q^2/N and t = r + gamma V, a change of c = lam g moves the
    row by dq_x = -w_x (dc_x - sum w dc/sum w). The last equation, on the value, is left to the caller.
    """
    rows, gamma, rho, _, n, _, sign = descent
    S = len(rho)
    for i in range(2 * S + 1):
        F[i] = 0.0
        for j in range(2 * S + 1):
            J[i, j] = 1.0 if i == j and i < 2 * S else 0.0
    for x in range(S):
        F[x] = V[x]
        F[S + x] = d[x] - rho[x]
    for k in range(len(rows.state)):
        first = rows.start[k]
        last = rows.start[k + 1]
        s = rows.state[k]
        prob = rows.prob[k]
        flow = gamma * prob * d[s]
        expected = rows.reward[k]
        total = 0.0
        mean = 0.0
        for e in range(first, last):
            x = rows.successor[e]
            t = _worth(rows, gamma, V, e)
            expected += q[e] * t
            F[S + x] -= flow * q[e]
            J[s, x] -= prob * gamma * q[e]
            J[S + x, S + s] -= prob * gamma * q[e]
            w[e] = q[e] / (memory[k, 0] + lam * gap[e]) if n[k] > 0.0 and q[e] > 0.0 else 0.0
            total += w[e]
            mean += w[e] * t
        F[s] -= prob * expected
        if total == 0.0:
            continue
        mean /= total
        pull = sign * lam * prob  # dc = pull (gamma d dV + t dd) + sign prob d t dlam
        spread = 0.0
        for e in range(first, last):
            x = rows.successor[e]
            t = _worth(rows, gamma, V, e)
            off = w[e] * (t - mean)
            spread += off * t
            J[s, x] += pull * flow * off
            J[S + x, S + s] += flow * pull * off
            J[S + x, 2 * S] += flow * sign * prob * d[s] * off
            curvature = flow * pull * gamma * d[s] * w[e]
            J[S + x, x] += curvature
            curvature /= total
            for f in range(first, last):
                J[S + x, rows.successor[f]] -= curvature * w[f]
        J[s, S + s] += prob * pull * spread
        J[s, 2 * S] += sign * prob * prob * d[s] * spread


@compiled
def _newton(descent: Descent, aim: float, lam: float, V: Reals, d: Reals, gap: Reals, q: Reals, memory: Reals) -> float:
    """Newton's method on the 2S+1 stationarity conditions in (V, d, lam), with value = aim; q is the kernel reached.

    Overwrites V and d. Returns the multiplier, or 0 where it does not converge quickly, or where a row gives mass to
    an unseen successor (the tilt has a kink there): then nothing is to be used.
    """
    rows, gamma, rho, N, n, _, sign = descent
    S = len(rho)
    J = np.empty((2 * S + 1, 2 * S + 1))
    F = np.empty(2 * S + 1)
    w = np.empty(len(N))
    scale_V = largest_of(V)
    scale_d = largest_of(d)
    last = np.inf
    for _ in range(8):
        _gradient(rows, gamma, sign, V, d, q, gap)
        _tilt(rows.start, N, n, gap, lam, q, memory)
        for k in range(len(n)):
            if n[k] > 0.0 and memory[k, 0] <= 0.0:
                return 0.0
        _stationarity_system(descent, V, d, lam, q, memory, gap, w, J, F)
        F[2 * S] = dot(rho, V) - aim
        worst = abs(F[2 * S]) / scale_V
        for i in range(S):
            worst = max(worst, abs(F[i]) / scale_V, abs(F[S + i]) / scale_d)
            J[2 * S, i] = rho[i]
        if not (worst <= 0.5 * last and _solve_pivoted(J, F)):
            return 0.0
        last = worst
        for i in range(S):
            V[i] -= F[i]
            d[i] -= F[S + i]
        lam -= F[2 * S]
        if not lam > 0.0:
            return 0.0
        if worst <= 1e-8:  # quadratic: this step was exact to rounding
            _gradient(rows, gamma, sign, V, d, q, gap)
            _tilt(rows.start, N, n, gap, lam, q, memory)
            return lam
    return 0.0


CONVERGED = 0
ITERATION_LIMIT = 1
STALLED = 2
LINEAR_SOLVE_FAILED = 3


@compiled
def _settle_free_rows(descent: Descent, V: Reals, d: Reals, q: Reals, gap: Reals) -> float:
    """Policy iteration on the rows without weight only, which costs nothing. Returns the linear solver's error."""
    rows, gamma, rho, _, n, _, sign = descent
    error = _solve_both(rows, q, gamma, rho, V, d)
    any_free = False
    for k in range(len(n)):
        any_free = any_free or n[k] <= 0.0
    if not any_free:
        return error
    for _ in range(1000):
        _gradient(rows, gamma, sign, V, d, q, gap)
        changed = False
        for k in range(len(n)):
            if n[k] > 0.0:
                continue
            height = 0.0
            best = rows.start[k]
            top = 0.0
            for e in range(rows.start[k], rows.start[k + 1]):
                height += gap[e] * q[e]
                top = max(top, gap[e])
                if gap[e] < gap[best]:
                    best = e
            if height > 1e-13 * top:
                changed = True
                for e in range(rows.start[k], rows.start[k + 1]):
                    q[e] = 0.0
                q[best] = 1.0
        if not changed:
            break
        error = _solve_both(rows, q, gamma, rho, V, d)
    return error


@compiled
def _jump(
    descent: Descent, margin: float, now: State, V: Reals, d: Reals, gap: Reals, q: Reals, trial: Reals, memory: Reals
) -> tuple[State, bool]:
    """One attempt of Newton's method from q: where it lowers the exact penalty, its kernel takes the place of q.

    Returns (lam, loss, violation) of q as it is then, and whether it moved; V and d are those of q in either case.
    """
    rows, gamma, rho, N, n, threshold, sign = descent
    lam, loss, violation = now
    found = _newton(descent, threshold - sign * margin, lam, V, d, gap, trial, memory)
    if found > 0.0:
        _solve_both(rows, trial, gamma, rho, V, d)
        trial_loss = loss_of(rows.start, N, n, trial)
        trial_violation = sign * (dot(rho, V) - threshold) + margin
        price = 2.0 * max(found, lam)
        if trial_loss + price * max(trial_violation, 0.0) <= loss + price * max(violation, 0.0):
            copy_to(trial, q)
            return (found, trial_loss, trial_violation), True
    _solve_both(rows, q, gamma, rho, V, d)
    return now, False


@compiled
def _tilt_to_model(
    descent: Descent, height: float, want: float, slack: float, at: Multipliers, gap: Reals, q: Reals, memory: Reals
) -> Multipliers:
    """q <- the minimiser of the loss with gap.q = want; its multiplier, and the price mu of the exact penalty."""
    start, N, n = descent.rows.start, descent.N, descent.n
    lam, mu = at
    if not want > 0.0:  # the linear model cannot reach the threshold: push hard instead
        mu = max(mu, 10.0 * lam, 10.0 * total_of(n) / max(height, TINY))
        _tilt(start, N, n, gap, mu, q, memory)
        return mu, mu
    if lam <= 0.0:
        start_height, slope = _tilt(start, N, n, gap, 0.0, q, memory)
        lam = (start_height - want) / max(slope, TINY)
        if not 0.0 < lam < total_of(n) / height:  # rows with one seen successor have no slope at 0
            lam = total_of(n) / height
    lam = _tilt_to_height(start, N, n, gap, want, min(slack, 0.5 * want), lam, q, memory)
    return lam, 2.0 * lam if mu < 1.1 * lam else mu


@sized
def nearest(descent: Descent, q: Reals, lam: float, tolerance: float, limit: int) -> Descended:
    """(NC) from the kernel q: minimise loss(q) subject to sign (value - threshold) <= 0, in place.

    Sequential convex programming: keep the convex loss exactly, linearise the value at the current kernel,
    solve (row problems coupled by one multiplier), step along the segment with the exact penalty
    loss + mu [sign (value - threshold)]_+ never increasing. In small problems Newton's method on the stationarity
    conditions jumps ahead, where it lowers the same penalty. A converged kernel satisfies the constraint.
    Returns (status, loss, value, lam, iterations).
    """
    rows, gamma, rho, N, n, threshold, sign = descent
    S = len(rho)
    E = len(N)
    V = np.zeros(S)
    d = rho.copy()
    gap = np.empty(E)
    target = np.empty(E)
    trial = np.empty(E)
    memory = np.zeros((len(n) + 1, 2))
    if not loss_of(rows.start, N, n, q) < np.inf:  # a warm start that misses a successor seen since
        _copy_centre(rows.start, N, n, q)
        lam = 0.0
    error = _settle_free_rows(descent, V, d, q, gap)
    violation = sign * (dot(rho, V) - threshold)
    loss = loss_of(rows.start, N, n, q)
    if not error <= ACCEPTED_ERROR:
        return LINEAR_SOLVE_FAILED, loss, dot(rho, V), lam, 0
    if violation <= 0.0 and loss == 0.0:
        return CONVERGED, 0.0, dot(rho, V), 0.0, 0
    scale = largest_of(V)
    margin = max(2e-14, error) * scale  # aim this far past the threshold, so that the result is feasible
    attempts = 3  # of Newton's method, each tried once the violation has fallen below `near`
    near = np.inf if lam > 0.0 else 0.3 * violation
    mu = 0.0
    first_step = 1.0
    last_predicted = np.inf
    status = ITERATION_LIMIT
    iteration = 0
    while iteration < limit:
        iteration += 1
        violation = sign * (dot(rho, V) - threshold) + margin
        if S <= NEWTON_STATES and attempts > 0 and lam > 0.0 and abs(violation) <= near:
            attempts -= 1
            near = 0.01 * abs(violation)
            now = lam, loss, violation
            (lam, loss, violation), jumped = _jump(descent, margin, now, V, d, gap, q, trial, memory)
            if jumped:
                attempts = 0
        height = _gradient(rows, gamma, sign, V, d, q, gap)
        slack = max(0.1 * abs(violation), 0.25 * margin)
        lam, mu = _tilt_to_model(descent, height, height - violation, slack, (lam, mu), gap, target, memory)
        merit = loss + mu * max(violation, 0.0)
        target_loss = loss_of(rows.start, N, n, target)
        predicted = merit - target_loss - mu * max(violation - height + dot(gap, target), 0.0)
        flat = predicted <= tolerance * merit + 2.0 * mu * margin
        if flat and -max(tolerance * loss / lam, margin) <= violation <= 0.75 * margin:
            status = CONVERGED
            break
        first_step = 0.5 if first_step == 1.0 and predicted > 0.7 * last_predicted else 1.0  # damps a slow two-cycle
        last_predicted = predicted
        step = first_step
        accepted = False
        while step > 1e-10:
            mix_to(q, step, target, trial)
            error = _solve_both(rows, trial, gamma, rho, V, d)
            if not error <= ACCEPTED_ERROR:
                break
            trial_violation = sign * (dot(rho, V) - threshold) + margin
            trial_loss = target_loss if step == 1.0 else loss_of(rows.start, N, n, trial)
            trial_merit = trial_loss + mu * max(trial_violation, 0.0)
            rounding = 1e-14 * merit + 4e-15 * mu * scale
            if trial_merit <= merit - 1e-4 * step * predicted + rounding:
                accepted = True
                break
            step *= 0.5
        if accepted:
            copy_to(trial, q)
            loss = trial_loss
            continue
        if not error <= ACCEPTED_ERROR:
            status = LINEAR_SOLVE_FAILED
        elif predicted <= 1e-9 * merit + 2.0 * mu * margin and abs(violation) <= margin:
            status = CONVERGED  # to rounding
        else:
            status = STALLED
        _solve_both(rows, q, gamma, rho, V, d)
        break
    return status, loss, dot(rho, V), lam, iteration


@sized
def extreme(descent: Descent, q: Reals, lam: float, tolerance: float, limit: int) -> Descended:
    """(NO) from the kernel q in the ball: minimise sign * value subject to loss(q) <= budget, in place.

    Conditional gradient in the reversed MDP: the linear problem over the ball is solved exactly (row problems
    coupled by one multiplier), and the step along the segment, which stays in the convex ball, never increases
    sign * value. Returns (status, loss, value, lam, iterations).
    """
    rows, gamma, rho, N, n, budget, sign = descent
    S = len(rho)
    E = len(N)
    V = np.zeros(S)
    d = rho.copy()
    gap = np.empty(E)
    target = np.empty(E)
    trial = np.empty(E)
    memory = np.zeros((len(n) + 1, 2))
    error = _settle_free_rows(descent, V, d, q, gap)
    status = ITERATION_LIMIT
    iteration = 0
    first_step = 1.0
    last_decrease = np.inf
    if not error <= ACCEPTED_ERROR:
        status = LINEAR_SOLVE_FAILED
        limit = 0
    while iteration < limit:
        iteration += 1
        value = dot(rho, V)
        height = _gradient(rows, gamma, sign, V, d, q, gap)
        lam = _tilt_to_loss(rows.start, N, n, gap, budget, lam, target, memory)
        decrease = height - dot(gap, target)
        if lam <= 0.0 < budget and height > 2e-14 * largest_of(V):  # no multiplier was found: nothing can be claimed
            status = STALLED
            break
        if decrease <= max(tolerance * height, 2e-14 * largest_of(V)):
            status = CONVERGED
            break
        first_step = 0.5 if first_step == 1.0 and decrease > 0.7 * last_decrease else 1.0
        last_decrease = decrease
        step = first_step
        accepted = False
        while step > 1e-10:
            mix_to(q, step, target, trial)
            error = _solve_both(rows, trial, gamma, rho, V, d)
            if not error <= ACCEPTED_ERROR:
                break
            if sign * (dot(rho, V) - value) <= -1e-4 * step * decrease:
                accepted = True
                break
            step *= 0.5
        if accepted:
            copy_to(trial, q)
            continue
        if not error <= ACCEPTED_ERROR:
            status = LINEAR_SOLVE_FAILED
        else:
            status = CONVERGED if decrease <= 1e-9 * height else STALLED  # no step can be told from rounding
        _solve_both(rows, q, gamma, rho, V, d)
        break
    return status, loss_of(rows.start, N, n, q), dot(rho, V), lam, iteration


# ---------------------------------------------------------------- product boxes and Euclidean projection


@sized
def robust_box(
    rows: Rows, gamma: float, rho: Reals, p: Reals, budget: Reals, sign: float, limit: int
) -> tuple[bool, Reals, float, Reals]:
    """Robust policy iteration on the product box {q : KL(p_k, q_k) <= budget_k for every row k}.

    Minimises sign * value exactly: rows are solved against the current values, then the values of the new
    kernel are computed, until nothing improves. Returns (converged, q, value, slope) with slope[k] the
    derivative of sign * value by budget_k, -d(s) pi(a|s)/lam_k (minus infinity at budget 0).
    """
    K = len(rows.state)
    S = len(rho)
    E = len(p)
    V = np.zeros(S)
    d = rho.copy()
    ones = np.ones(S)
    gap = np.empty(E)
    one = np.ones(1)
    q = p.copy()
    lam = np.zeros(K)
    converged = False
    error = _solve_both(rows, q, gamma, rho, V, d)
    before = np.empty(S)
    for _ in range(limit):
        copy_to(V, before)
        _gradient(rows, gamma, sign, V, ones, q, gap)
        for k in range(K):
            first = rows.start[k]
            last = rows.start[k + 1]
            if budget[k] <= 0.0:
                for e in range(first, last):
                    q[e] = p[e]
            else:
                local = np.array([0, last - first])
                scaled = gap[first:last] / rows.prob[k]
                memory = np.zeros((2, 2))
                lam[k] = _tilt_to_loss(local, p[first:last], one, scaled, budget[k], lam[k], q[first:last], memory)
        error = max(error, _solve_both(rows, q, gamma, rho, V, d))
        improvement = 0.0
        for x in range(S):  # of any state: one that is not visited yet may open the way for the others
            improvement = max(improvement, sign * (before[x] - V[x]))
        if improvement <= 1e-15 * largest_of(V):
            converged = error <= ACCEPTED_ERROR
            break
    slope = np.zeros(K)
    for k in range(K):
        if rows.start[k + 1] - rows.start[k] > 1:
            slope[k] = -d[rows.state[k]] * rows.prob[k] / lam[k] if lam[k] > 0.0 else -np.inf
    return converged, q, dot(rho, V), slope


@compiled
def _project_simplex_smooth(x: Reals, p: Reals, mu: float, q: Reals) -> float:
    """q = argmin over the simplex of |q - x|^2/2 - mu sum p log q, and its multiplier y.

    q = ((x-y) + sqrt((x-y)^2 + 4 mu p))/2, max(x-y, 0) where p = 0. The sum is convex and decreasing in y:
    Newton from the left of the root increases to it.
    """
    m = len(x)
    y = -np.inf
    for i in range(m):  # one entry alone would already sum to 1 here: q_i(y) = 1 at y = x_i - 1 + mu p_i
        y = max(y, x[i] - 1.0 + mu * p[i])
    for _ in range(200):
        total = 0.0
        slope = 0.0
        for i in range(m):
            u = x[i] - y
            if mu * p[i] > 0.0:
                root = np.sqrt(u * u + 4.0 * mu * p[i])
                q[i] = 0.5 * (u + root) if u >= 0.0 else 2.0 * mu * p[i] / (root - u)
                slope += q[i] / root
            elif u > 0.0:
                q[i] = u
                slope += 1.0
            else:
                q[i] = 0.0
            total += q[i]
        step = (total - 1.0) / slope
        if not step > 4e-16 * (1.0 + abs(y)):
            break
        y += step
    return y


@compiled
def _project_row(x: Reals, p: Reals, b: float, q: Reals) -> None:
    """Euclidean projection of x onto {q in the simplex : KL(p, q) <= b}.

    Two multipliers: y for the sum (inner, Newton) and mu for the KL (outer). KL is about c/mu^2 for large mu,
    so Newton runs on KL^(-1/2), inside a bracket; the end with KL <= b is returned.
    """
    m = len(x)
    one = 1.0
    if b <= 0.0:
        copy_to(p, q)
        return
    y = _project_simplex_smooth(x, p, 0.0, q)
    if row_loss(p, one, q, 0, m) <= b:
        return
    low = 0.0
    high = np.inf
    mu = 1e-3 + abs(y)
    for _ in range(200):
        y = _project_simplex_smooth(x, p, mu, q)
        loss = row_loss(p, one, q, 0, m)
        if loss <= b:
            high = mu
            if loss >= b * (1.0 - 1e-13):
                break
        else:
            low = mu
        by_sum = 0.0
        by_mu = 0.0
        for i in range(m):
            root = abs(2.0 * q[i] - (x[i] - y)) + TINY
            by_sum += q[i] / root
            by_mu += p[i] / root
        rate = 0.0
        for i in range(m):
            if p[i] > 0.0:
                root = 2.0 * q[i] - (x[i] - y)
                rate -= p[i] / q[i] * (p[i] - q[i] * by_mu / by_sum) / root
        aim = b * (1.0 - 5e-14)
        proposal = np.inf
        if rate < 0.0 and loss > 1e-6 * b:  # far inside the ball the slope is rounding
            proposal = mu + 2.0 * loss * (np.sqrt(loss / aim) - 1.0) / (-rate)
        proposal = kept_inside(proposal, low, high, mu, 10.0)
        if abs(proposal - mu) <= 4e-16 * mu:
            break
        mu = proposal
    if np.isnan(row_loss(p, one, q, 0, m)):  # a ball too small to be told from its centre
        copy_to(p, q)
        return
    step = 4e-16 * mu
    while row_loss(p, one, q, 0, m) > b and mu < high:  # by rounding: a little more mu
        mu = min(mu + step, high)
        step *= 2.0
        _project_simplex_smooth(x, p, mu, q)


@entry
def project_rows(start: Ints, x: Reals, p: Reals, b: Reals) -> Reals:
    """The block projection of every row onto its own KL ball."""
    q = np.empty(len(x))
    for k in range(len(b)):
        _project_row(x[start[k] : start[k + 1]], p[start[k] : start[k + 1]], b[k], q[start[k] : start[k + 1]])
    return q


@compiled
def _descend(
    rows: Rows,
    gamma: float,
    rho: Reals,
    p: Reals,
    b: Reals,
    sign: float,
    L: float,
    steps: int,
    q: Reals,
    V: Reals,
    d: Reals,
) -> None:
    """Inner loop of Algorithm 2: `steps` projected gradient steps of length 1/L on the product box, from q.

    Stops early only at a stationary point to rounding: where the gradient mapping L |move| is below 1e-12 of the
    largest gradient.
    """
    moved_to = np.empty(len(q))
    landed = np.empty(len(q))
    for _ in range(steps):
        _solve_both(rows, q, gamma, rho, V, d)
        largest = 0.0
        for k in range(len(rows.state)):
            flow = sign * rows.prob[k] * d[rows.state[k]]
            for e in range(rows.start[k], rows.start[k + 1]):
                gradient = flow * (rows.reward[k] + _worth(rows, gamma, V, e))
                largest = max(largest, abs(gradient))
                moved_to[e] = q[e] - gradient / L
        still = True
        for k in range(len(rows.state)):
            first = rows.start[k]
            last = rows.start[k + 1]
            _project_row(moved_to[first:last], p[first:last], b[k], landed[first:last])
            for e in range(first, last):
                still = still and L * abs(landed[e] - q[e]) <= 1e-12 * largest
        if still:
            break
        copy_to(landed, q)
    _solve_both(rows, q, gamma, rho, V, d)


@sized
def descend(
    rows: Rows, gamma: float, rho: Reals, p: Reals, b: Reals, sign: float, L: float, steps: int
) -> tuple[Reals, float]:
    """The inner loop of Algorithm 2 from q = p on one product box: the kernel reached and its value."""
    V = np.zeros(len(rho))
    d = rho.copy()
    q = p.copy()
    _descend(rows, gamma, rho, p, b, sign, L, steps, q, V, d)
    return q, dot(rho, V)


@sized
def search_budgets(
    rows: Rows,
    gamma: float,
    rho: Reals,
    p: Reals,
    omega: Reals,
    sigma: float,
    h: float,
    sign: float,
    L: float,
    steps: int,
) -> tuple[Reals, float, Reals, int]:
    """Algorithm 2's two loops: every budget vector b in h Z_+^K with omega.b <= sigma, and descent on its box.

    Returns the best kernel, its value, its budget vector and the number of grid points.
    """
    K = len(omega)
    V = np.zeros(len(rho))
    d = rho.copy()
    q = np.empty(len(p))
    multiple = np.zeros(K, dtype=np.int64)
    b = np.zeros(K)
    best_b = b.copy()
    best_q = p.copy()
    best = np.inf
    points = 0
    spent = 0.0
    while True:
        points += 1
        copy_to(p, q)
        _descend(rows, gamma, rho, p, b, sign, L, steps, q, V, d)
        value = sign * dot(rho, V)
        if value < best:
            best = value
            copy_to(q, best_q)
            copy_to(b, best_b)
        k = 0
        while k < K:
            multiple[k] += 1
            b[k] = h * multiple[k]
            spent = dot(omega, b)
            if spent <= sigma:
                break
            multiple[k] = 0
            b[k] = 0.0
            k += 1
        if k == K:
            break
    return best_q, sign * best, best_b, points


def rewitness(descent: Descent, share: float, w: Reals, lam: float, tolerance: float, limit: int) -> tuple[bool, float]:
    """A witness near the smoothed counts N + share: the nearest kernel of value 0, in place of w.

    Smoothing lists every allowed successor, so that no single observation can make the loss of the witness infinite,
    and leaves no row free. Returns (found, lam): whether the value of w is 0, to 1e-9 of the largest.
    """
    rows, gamma, rho, N, n, _, _ = descent
    width = np.diff(rows.start)
    smooth_n = n + share * width
    unit = math.ldexp(1.0, math.frexp(smooth_n.max(initial=0.0))[1])
    smooth_N, smooth_n = (N + share) / unit, smooth_n / unit
    q = smooth_N / np.repeat(smooth_n, width)
    V, _, _ = values_and_occupancy(rows, q, gamma, rho)
    value = float(rho @ V)
    slack = 1e-9 * float(np.abs(V).max())
    if abs(value) > 1e-3 * slack:
        if lam > 0.0:
            q = w.copy()
        smooth = Descent(rows, gamma, rho, smooth_N, smooth_n, 0.0, math.copysign(1.0, value))
        _, _, value, lam, _ = nearest(smooth, q, lam / unit, tolerance, limit)
    if not abs(value) <= slack:
        return False, 0.0
    w[:] = q
    return True, lam * unit
