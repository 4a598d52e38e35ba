"""All compiled code, in one module.

numba's on-disk cache does not notice an edit of a callee in another file, so
kernels that call each other live here. Each has a plain NumPy twin beside its
user, and a test that the two agree. Never compiled with ``fastmath``: the
certificates rely on IEEE arithmetic.

Letters follow the paper: q kernel entries, V state values, d unnormalised
occupancy, N weighted centre (n_sa p(x|s,a)), n weights n_sa, lam multiplier.
Entry vectors have the layout of `policytest._rows.Rows`.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple

import numba
import numpy as np

from policytest._rows import Rows

DIRECT_SMALL = 100  # up to this many states elimination is the faster solver
ENVELOPE_WORK = 2e10  # up to this many operations elimination steps in where the iterative solver stalls
ACCEPTED_ERROR = 1e-8  # relative error of values above which a linear solve counts as failed
TINY = 1e-300
NEGLIGIBLE = 1e-200


def compiled(function: Callable[..., Any]) -> Any:
    """numba-compile, cached on disk where the machine allows it (a read-only install may not)."""
    njit: Any = numba.njit
    try:
        return njit(cache=True, nogil=True, error_model="numpy")(function)
    except RuntimeError:  # no writable place for the cache
        return njit(nogil=True, error_model="numpy")(function)


def entry(function: Callable[..., Any]) -> Any:
    """A compiled kernel that Python calls: says what to delete when the cache on disk is damaged."""
    kernel = compiled(function)

    @wraps(function)
    def call(*arguments: Any) -> Any:
        try:
            return kernel(*arguments)
        except (EOFError, pickle.UnpicklingError) as error:
            folder = kernel.stats.cache_path
            raise RuntimeError(
                f"the compiled-code cache is damaged ({error}); delete the folder {folder} and run again"
            ) from error

    call.kernel = kernel  # type: ignore[attr-defined]
    return call


# ---------------------------------------------------------------- small loops
# Explicit loops, not array expressions: they compile in a tenth of the time.


@compiled
def _copy(source: Any, out: Any) -> None:
    for i in range(len(out)):
        out[i] = source[i]


@compiled
def _dot(x: Any, y: Any) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@compiled
def _largest(x: Any) -> float:
    """max |x_i|; not a number if any entry is."""
    top = 0.0
    for i in range(len(x)):
        if not abs(x[i]) <= top:
            top = abs(x[i])
            if np.isnan(top):
                break
    return top


@compiled
def _add(x: Any, factor: float, y: Any) -> None:
    """x <- x + factor y."""
    for i in range(len(x)):
        x[i] += factor * y[i]


@compiled
def _mix(q: Any, step: float, target: Any, out: Any) -> None:
    """out = (1 - step) q + step target; exactly the target at step 1, however small its entries."""
    for i in range(len(out)):
        out[i] = (1.0 - step) * q[i] + step * target[i]


@compiled
def _total(x: Any) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@compiled
def _inside(proposal: float, low: float, high: float, current: float, factor: float) -> float:
    """The proposal, if strictly inside the bracket of a positive root; else a step of the search for its far end."""
    if low < proposal < high:
        return proposal
    if high == np.inf:
        return factor * current + TINY
    if low == 0.0:
        return high / factor
    return np.sqrt(low) * np.sqrt(high)


# ---------------------------------------------------------------- value and occupancy


@compiled
def _policy_matrix(rows: Any, q: Any, P: Any) -> None:
    """P[s,x] = sum_a pi(a|s) q(x|s,a)."""
    for s in range(len(P)):
        for x in range(len(P)):
            P[s, x] = 0.0
    for k in range(len(rows.state)):
        s = rows.state[k]
        for e in range(rows.start[k], rows.start[k + 1]):
            P[s, rows.successor[e]] += rows.prob[k] * q[e]


@compiled
def _policy_reward(rows: Any, q: Any, reward: Any) -> None:
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
def _eliminate(A: Any) -> None:
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
def _substitute(LU: Any, x: Any) -> None:
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
def _substitute_transposed(LU: Any, x: Any) -> None:
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
def _residual(rows: Any, q: Any, gamma: float, transposed: bool, b: Any, x: Any, out: Any) -> None:
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
def _bicgstab(rows: Any, q: Any, gamma: float, transposed: bool, b: Any, x: Any, patient: bool) -> float:
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
    scale = _largest(b) + TINY
    last = np.inf
    for _restart in range(6):
        _residual(rows, q, gamma, transposed, b, x, r)
        worst = _largest(r)
        aim = max(1e-15 * scale, 2e-15 * _largest(x))
        if not (worst > aim and worst <= 0.5 * last):
            break
        last = worst
        _copy(r, shadow)
        _copy(r, p)
        rho = _dot(shadow, r)
        for _ in range(200):
            _residual(rows, q, gamma, transposed, zero, p, v)  # v = -(I - gamma P) p
            denominator = -_dot(shadow, v)
            if denominator == 0.0:
                break
            alpha = rho / denominator
            _add(x, alpha, p)
            _add(r, alpha, v)
            if _largest(r) <= 0.3 * aim:
                break
            _residual(rows, q, gamma, transposed, zero, r, t)
            square = _dot(t, t)
            if square == 0.0:
                break
            omega = -_dot(t, r) / square
            _add(x, omega, r)
            _add(r, omega, t)
            previous = rho
            rho = _dot(shadow, r)
            if _largest(r) <= 0.3 * aim or rho == 0.0 or omega == 0.0:
                break
            beta = (rho / previous) * (alpha / omega)
            for i in range(S):
                p[i] = r[i] + beta * (p[i] + omega * v[i])
    if not np.isfinite(_largest(x)):
        _copy(b, x)
    worst = np.inf
    for _ in range(20 + int(40.0 / (1.0 - gamma)) if patient else 3):
        _residual(rows, q, gamma, transposed, b, x, r)
        worst = _largest(r)
        if worst <= max(1e-15 * scale, 2e-15 * _largest(x)):
            break
        _add(x, 1.0, r)
    size = 0.0
    for i in range(S):
        size += abs(r[i]) if transposed else 0.0
    return size if transposed else worst / (_largest(x) + TINY)


@compiled
def _solve_directly(rows: Any, q: Any, gamma: float, rho: Any, V: Any, d: Any) -> None:
    """V and d from one factorisation of I - gamma P."""
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
    _copy(rho, d)
    _substitute_transposed(A, d)


@compiled
def _envelope(rows: Any, q: Any, S: int, low: Any, top: Any) -> float:
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
def _solve_in_envelope(rows: Any, q: Any, gamma: float, rho: Any, V: Any, d: Any, low: Any, top: Any) -> None:
    """V and d from I - gamma P = L U, the rows of L and the columns of U stored over the envelope."""
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
    _copy(rho, d)
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


@compiled
def _solve_both(rows: Any, q: Any, gamma: float, rho: Any, V: Any, d: Any) -> float:
    """V = (I - gamma P)^{-1} r_pi and d = (I - gamma P)^{-T} rho; returns a bound on their relative error.

    Small: elimination, its bound the rounding over 1-gamma. Otherwise BiCGSTAB from the incoming V and d, with
    |V - V*|_max <= |residual|_max/(1-gamma) and |d - d*|_1 <= |residual|_1/(1-gamma), where |d*|_1 = 1/(1-gamma).
    Where that stalls, as on long chains, elimination in the envelope of the matrix, which is thin there; and only
    where that is too much work, fixed-point sweeps.
    """
    S = len(rho)
    rounding = 4e-16 / (1.0 - gamma)
    if S <= DIRECT_SMALL:
        _solve_directly(rows, q, gamma, rho, V, d)
        return rounding
    b = np.empty(S)
    error = 0.0
    for attempt in range(2):
        error = 0.0
        for side in range(2):
            if side == 0:
                _policy_reward(rows, q, b)
                x = V
            else:
                _copy(rho, b)
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


@entry
def values_and_occupancy(rows: Any, q: Any, gamma: float, rho: Any) -> Any:
    """State values V_q and unnormalised occupancy d_q of a kernel, and an error bound (relative)."""
    V = np.zeros(len(rho))
    d = rho.copy()
    error = _solve_both(rows, q, gamma, rho, V, d)
    return V, d, error


@compiled
def _worth(rows: Any, gamma: float, V: Any, e: int) -> float:
    """r(s,a,x) + gamma V(x) of an entry, without a reward on (s,a)."""
    if len(rows.gain) > 0:
        return rows.gain[e] + gamma * V[rows.successor[e]]
    return gamma * V[rows.successor[e]]


@compiled
def _sweep(rows: Any, gamma: float, sign: float, V: Any, backwards: bool) -> float:
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
def extreme_rows(rows: Any, gamma: float, rho: Any, sign: float, is_open: bool) -> Any:
    """Policy iteration of the kernel: the successor of each row that minimises sign * value, and the values.

    Fixed point: V(s) = sum_a pi(a|s) min_x [r(s,a,x) + gamma V(x)] (max for sign = -1), approached by sweeps first.
    With `is_open` any state may succeed any pair, listed or not. Returns the successors [K], V and an error bound.
    """
    K = len(rows.state)
    S = len(rho)
    choice = np.zeros(K, dtype=np.int32)
    gain = np.zeros(K if len(rows.gain) > 0 else 0)
    one = np.ones(K)
    start = np.arange(K + 1)
    V = np.zeros(S)
    d = rho.copy()
    error = 0.0
    if not is_open:
        for sweep in range(1000):
            if _sweep(rows, gamma, sign, V, sweep % 2 == 1) <= 1e-6 * _largest(V):
                break
    for iteration in range(10_000):
        changed = iteration == 0
        margin = 1e-13 * _largest(V)
        lowest = 0
        for x in range(S):
            if sign * V[x] < sign * V[lowest]:
                lowest = x
        for k in range(K):
            if is_open:
                if iteration == 0 or sign * V[lowest] < sign * V[choice[k]] - margin:
                    choice[k] = lowest
                    changed = True
                continue
            worth = np.inf
            if iteration > 0:
                worth = sign * gamma * V[choice[k]]
                if len(rows.gain) > 0:
                    worth += sign * gain[k]
            for e in range(rows.start[k], rows.start[k + 1]):
                other = sign * _worth(rows, gamma, V, e)
                if other < worth - margin:
                    worth = other
                    choice[k] = rows.successor[e]
                    if len(rows.gain) > 0:
                        gain[k] = rows.gain[e]
                    changed = True
        if not changed:
            break
        point = Rows(rows.pair, rows.state, rows.prob, rows.reward, start, choice, gain)
        error = _solve_both(point, one, gamma, rho, V, d)
    return choice, V, error


# ---------------------------------------------------------------- KL and the row problem


@compiled
def _excess(q: float, p: float) -> float:
    """u - 1 - log u at u = q/p > 0, accurate near 1 (a series in q - p) and near 0 (no difference is taken)."""
    delta = (q - p) / p
    if abs(delta) < 0.02:
        total = 0.0
        for power in range(11, 1, -1):  # Horner: delta^2/2 - delta^3/3 + ...
            total = total * delta + (1.0 if power % 2 == 0 else -1.0) / power
        return total * delta * delta
    return delta - np.log(q / p)


@compiled
def _row_loss(N: Any, n: float, q: Any, first: int, last: int) -> float:
    """n KL(N/n, q) of one row as a sum of non-negative terms: N (u - 1 - log u) with u = q n/N, plus n q(unseen)."""
    loss = 0.0
    for e in range(first, last):
        if N[e] > 0.0:
            if q[e] <= 0.0:
                return np.inf
            loss += N[e] * _excess(q[e] * n, N[e])
        else:
            loss += n * q[e]
    return loss


@compiled
def _loss(start: Any, N: Any, n: Any, q: Any) -> float:
    """loss(q) = sum_k n_k KL(N_k/n_k, q_k), centre first."""
    loss = 0.0
    for k in range(len(n)):
        if n[k] > 0.0:
            loss += _row_loss(N, n[k], q, start[k], start[k + 1])
    return loss


@compiled
def _copy_centre(start: Any, N: Any, n: Any, q: Any) -> None:
    """q <- N/n in the rows with weight."""
    for k in range(len(n)):
        if n[k] > 0.0:
            for e in range(start[k], start[k + 1]):
                q[e] = N[e] / n[k]


@entry
def row_losses(start: Any, N: Any, n: Any, q: Any) -> Any:
    """[K] n_k KL(N_k/n_k, q_k)."""
    losses = np.zeros(len(n))
    for k in range(len(n)):
        if n[k] > 0.0:
            losses[k] = _row_loss(N, n[k], q, start[k], start[k + 1])
    return losses


@entry
def share_in_ball(start: Any, N: Any, n: Any, p: Any, q: Any, radius: float) -> float:
    """The largest share of the way from the centre p to q at which loss <= radius, by bisection (it is convex)."""
    mixed = np.empty(len(q))
    inside = 0.0
    outside = 1.0
    for _ in range(40):
        share = 0.5 * (inside + outside)
        _mix(p, share, q, mixed)
        if _loss(start, N, n, mixed) <= radius:
            inside = share
        else:
            outside = share
    return inside


@compiled
def _root_bound(N: Any, n: float, gap: Any, lam: float, first: int, last: int) -> float:
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
def _give_rest_to_unseen(N: Any, gap: Any, lam: float, first: int, last: int, q: Any) -> bool:
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
def _tilt_row(N: Any, n: float, gap: Any, lam: float, first: int, last: int, guess: float, q: Any) -> Any:
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
def _tilt(start: Any, N: Any, n: Any, gap: Any, lam: float, q: Any, memory: Any) -> Any:
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
def tilt(start: Any, N: Any, n: Any, gap: Any, lam: float) -> Any:
    """The minimiser of lam gap.q + loss(q), row by row, and its height gap.q."""
    q = np.empty(len(N))
    height, _ = _tilt(start, N, n, gap, lam, q, np.zeros((len(n) + 1, 2)))
    return q, height


@compiled
def _gradient(rows: Any, gamma: float, sign: float, V: Any, d: Any, q: Any, gap: Any) -> Any:
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


@compiled
def _tilt_to_height(
    start: Any, N: Any, n: Any, gap: Any, want: float, slack: float, lam: float, q: Any, memory: Any
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
        proposal = _inside(proposal, low, high, lam, 4.0)
        if abs(proposal - lam) <= 1e-15 * lam:
            break
        lam = proposal
        if lam > 1e280:
            break
    return lam


@compiled
def _tilt_to_loss(start: Any, N: Any, n: Any, gap: Any, budget: float, lam: float, q: Any, memory: Any) -> float:
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
            natural = _total(n) / max(height, TINY)  # costs and weights of the same size
            lam = natural if slope <= 0.0 else min(np.sqrt(2.0 * budget / slope), natural)
            lam = max(lam, TINY)
        largest = _largest(gap)
        low = 0.0
        high = np.inf
        for _ in range(400):
            height, slope = _tilt(start, N, n, gap, lam, q, memory)
            loss = _loss(start, N, n, q)
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
            proposal = _inside(proposal, low, high, lam, 10.0)
            if abs(proposal - lam) <= 4e-16 * lam or not 1e-290 < proposal < 1e290:
                break
            lam = proposal
    _tilt(start, N, n, gap, best, q, memory)
    return best


NEWTON_STATES = 16  # up to here Newton's method on (V, d, lam) is worth its (2S+1)^3


@compiled
def _solve_pivoted(A: Any, b: Any) -> bool:
    """b <- A^{-1} b by elimination with partial pivoting, A destroyed; False if A is singular."""
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
    rows: Any,
    gamma: float,
    rho: Any,
    n: Any,
    sign: float,
    V: Any,
    d: Any,
    lam: float,
    q: Any,
    memory: Any,
    gap: Any,
    w: Any,
    J: Any,
    F: Any,
) -> None:
    """Residuals F and Jacobian J of V = r_pi + gamma P_q V and d = rho + gamma P_q^T d, q the tilt of (V, d, lam).

    Unknowns and equations are ordered (V, d, lam). With w = q^2/N and t = r + gamma V, a change of c = lam g moves the
    row by dq_x = -w_x (dc_x - sum w dc/sum w). The last equation, on the value, is left to the caller.
    """
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
def _newton(
    rows: Any,
    gamma: float,
    rho: Any,
    N: Any,
    n: Any,
    aim: float,
    sign: float,
    lam: float,
    V: Any,
    d: Any,
    gap: Any,
    q: Any,
    memory: Any,
) -> float:
    """Newton's method on the 2S+1 stationarity conditions in (V, d, lam), with value = aim; q is the kernel reached.

    Overwrites V and d. Returns the multiplier, or 0 where it does not converge quickly, or where a row gives mass to
    an unseen successor (the tilt has a kink there): then nothing is to be used.
    """
    S = len(rho)
    J = np.empty((2 * S + 1, 2 * S + 1))
    F = np.empty(2 * S + 1)
    w = np.empty(len(N))
    scale_V = _largest(V)
    scale_d = _largest(d)
    last = np.inf
    for _ in range(8):
        _gradient(rows, gamma, sign, V, d, q, gap)
        _tilt(rows.start, N, n, gap, lam, q, memory)
        for k in range(len(n)):
            if n[k] > 0.0 and memory[k, 0] <= 0.0:
                return 0.0
        _stationarity_system(rows, gamma, rho, n, sign, V, d, lam, q, memory, gap, w, J, F)
        F[2 * S] = _dot(rho, V) - aim
        worst = abs(F[2 * S]) / scale_V
        for i in range(S):
            worst = max(worst, abs(F[i]) / scale_V, abs(F[S + i]) / scale_d)
            J[2 * S, i] = rho[i]
        if not (worst <= 0.5 * last and _solve_pivoted(J, F)):
            return 0.0
        last = worst
        _add(V, -1.0, F[:S])
        _add(d, -1.0, F[S : 2 * S])
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
def _settle_free_rows(
    rows: Any, gamma: float, rho: Any, n: Any, sign: float, V: Any, d: Any, q: Any, gap: Any
) -> float:
    """Policy iteration on the rows without weight only, which costs nothing. Returns the linear solver's error."""
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
def _nearest(
    rows: Any,
    gamma: float,
    rho: Any,
    N: Any,
    n: Any,
    threshold: float,
    sign: float,
    q: Any,
    lam: float,
    tolerance: float,
    limit: int,
) -> Any:
    """(NC) from the kernel q: minimise loss(q) subject to sign (value - threshold) <= 0, in place.

    Sequential convex programming: keep the convex loss exactly, linearise the value at the current kernel,
    solve (row problems coupled by one multiplier), step along the segment with the exact penalty
    loss + mu [sign (value - threshold)]_+ never increasing. In small problems Newton's method on the stationarity
    conditions jumps ahead, where it lowers the same penalty. A converged kernel satisfies the constraint.
    Returns (status, loss, value, lam, iterations).
    """
    S = len(rho)
    E = len(N)
    V = np.zeros(S)
    d = rho.copy()
    gap = np.empty(E)
    target = np.empty(E)
    trial = np.empty(E)
    memory = np.zeros((len(n) + 1, 2))
    if not _loss(rows.start, N, n, q) < np.inf:  # a warm start that misses a successor seen since
        _copy_centre(rows.start, N, n, q)
        lam = 0.0
    error = _settle_free_rows(rows, gamma, rho, n, sign, V, d, q, gap)
    violation = sign * (_dot(rho, V) - threshold)
    loss = _loss(rows.start, N, n, q)
    if not error <= ACCEPTED_ERROR:
        return LINEAR_SOLVE_FAILED, loss, _dot(rho, V), lam, 0
    if violation <= 0.0 and loss == 0.0:
        return CONVERGED, 0.0, _dot(rho, V), 0.0, 0
    scale = _largest(V)
    margin = max(2e-14, error) * scale  # aim this far past the threshold, so that the result is feasible
    total = _total(n)
    attempts = 3  # of Newton's method, each tried once the violation has fallen below `near`
    near = np.inf if lam > 0.0 else 0.3 * violation
    mu = 0.0
    first_step = 1.0
    last_predicted = np.inf
    status = ITERATION_LIMIT
    iteration = 0
    while iteration < limit:
        iteration += 1
        violation = sign * (_dot(rho, V) - threshold) + margin
        if S <= NEWTON_STATES and attempts > 0 and lam > 0.0 and abs(violation) <= near:
            attempts -= 1
            near = 0.01 * abs(violation)
            found = _newton(rows, gamma, rho, N, n, threshold - sign * margin, sign, lam, V, d, gap, trial, memory)
            if found > 0.0:
                _solve_both(rows, trial, gamma, rho, V, d)
                trial_loss = _loss(rows.start, N, n, trial)
                trial_violation = sign * (_dot(rho, V) - threshold) + margin
                price = 2.0 * max(found, lam)
                if trial_loss + price * max(trial_violation, 0.0) <= loss + price * max(violation, 0.0):
                    attempts = 0
                    lam, loss, violation = found, trial_loss, trial_violation
                    _copy(trial, q)
                else:
                    found = 0.0
            if found == 0.0:
                _solve_both(rows, q, gamma, rho, V, d)
        height = _gradient(rows, gamma, sign, V, d, q, gap)
        want = height - violation
        if want > 0.0:
            slack = max(0.1 * abs(violation), 0.25 * margin)
            if lam <= 0.0:
                start_height, slope = _tilt(rows.start, N, n, gap, 0.0, target, memory)
                lam = (start_height - want) / max(slope, TINY)
                if not 0.0 < lam < total / height:  # rows with one seen successor have no slope at 0
                    lam = total / height
            lam = _tilt_to_height(rows.start, N, n, gap, want, min(slack, 0.5 * want), lam, target, memory)
        else:  # the linear model cannot reach the threshold: push hard instead
            lam = max(10.0 * lam, 10.0 * total / max(height, TINY))
            mu = max(mu, lam)
            lam = mu
            _tilt(rows.start, N, n, gap, lam, target, memory)
        if mu < 1.1 * lam and want > 0.0:
            mu = 2.0 * lam
        merit = loss + mu * max(violation, 0.0)
        target_loss = _loss(rows.start, N, n, target)
        predicted = merit - target_loss - mu * max(violation - height + _dot(gap, target), 0.0)
        flat = predicted <= tolerance * merit + 2.0 * mu * margin
        if flat and -max(tolerance * loss / lam, margin) <= violation <= 0.75 * margin:
            status = CONVERGED
            break
        first_step = 0.5 if first_step == 1.0 and predicted > 0.7 * last_predicted else 1.0  # damps a slow two-cycle
        last_predicted = predicted
        step = first_step
        accepted = False
        while step > 1e-10:
            _mix(q, step, target, trial)
            error = _solve_both(rows, trial, gamma, rho, V, d)
            if not error <= ACCEPTED_ERROR:
                break
            trial_violation = sign * (_dot(rho, V) - threshold) + margin
            trial_loss = target_loss if step == 1.0 else _loss(rows.start, N, n, trial)
            trial_merit = trial_loss + mu * max(trial_violation, 0.0)
            rounding = 1e-14 * merit + 4e-15 * mu * scale
            if trial_merit <= merit - 1e-4 * step * predicted + rounding:
                accepted = True
                break
            step *= 0.5
        if accepted:
            _copy(trial, q)
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
    return status, loss, _dot(rho, V), lam, iteration


@entry
def nearest(
    rows: Any,
    gamma: float,
    rho: Any,
    N: Any,
    n: Any,
    threshold: float,
    sign: float,
    q: Any,
    lam: float,
    tolerance: float,
    limit: int,
) -> Any:
    """(NC) from the kernel q, in place; see `_nearest`. Returns (status, loss, value, lam, iterations)."""
    return _nearest(rows, gamma, rho, N, n, threshold, sign, q, lam, tolerance, limit)


@entry
def extreme(
    rows: Any,
    gamma: float,
    rho: Any,
    N: Any,
    n: Any,
    budget: float,
    sign: float,
    q: Any,
    lam: float,
    tolerance: float,
    limit: int,
) -> Any:
    """(NO) from the kernel q in the ball: minimise sign * value subject to loss(q) <= budget, in place.

    Conditional gradient in the reversed MDP: the linear problem over the ball is solved exactly (row problems
    coupled by one multiplier), and the step along the segment, which stays in the convex ball, never increases
    sign * value. Returns (status, loss, value, lam, iterations).
    """
    S = len(rho)
    E = len(N)
    V = np.zeros(S)
    d = rho.copy()
    gap = np.empty(E)
    target = np.empty(E)
    trial = np.empty(E)
    memory = np.zeros((len(n) + 1, 2))
    error = _settle_free_rows(rows, gamma, rho, n, sign, V, d, q, gap)
    status = ITERATION_LIMIT
    iteration = 0
    first_step = 1.0
    last_decrease = np.inf
    if not error <= ACCEPTED_ERROR:
        status = LINEAR_SOLVE_FAILED
        limit = 0
    while iteration < limit:
        iteration += 1
        value = _dot(rho, V)
        height = _gradient(rows, gamma, sign, V, d, q, gap)
        lam = _tilt_to_loss(rows.start, N, n, gap, budget, lam, target, memory)
        decrease = height - _dot(gap, target)
        if lam <= 0.0 < budget and height > 2e-14 * _largest(V):  # no multiplier was found: nothing can be claimed
            status = STALLED
            break
        if decrease <= max(tolerance * height, 2e-14 * _largest(V)):
            status = CONVERGED
            break
        first_step = 0.5 if first_step == 1.0 and decrease > 0.7 * last_decrease else 1.0
        last_decrease = decrease
        step = first_step
        accepted = False
        while step > 1e-10:
            _mix(q, step, target, trial)
            error = _solve_both(rows, trial, gamma, rho, V, d)
            if not error <= ACCEPTED_ERROR:
                break
            if sign * (_dot(rho, V) - value) <= -1e-4 * step * decrease:
                accepted = True
                break
            step *= 0.5
        if accepted:
            _copy(trial, q)
            continue
        if not error <= ACCEPTED_ERROR:
            status = LINEAR_SOLVE_FAILED
        else:
            status = CONVERGED if decrease <= 1e-9 * height else STALLED  # no step can be told from rounding
        _solve_both(rows, q, gamma, rho, V, d)
        break
    return status, _loss(rows.start, N, n, q), _dot(rho, V), lam, iteration


# ---------------------------------------------------------------- product boxes and Euclidean projection


@entry
def robust_box(rows: Any, gamma: float, rho: Any, p: Any, budget: Any, sign: float, limit: int) -> Any:
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
        _copy(V, before)
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
        if improvement <= 1e-15 * _largest(V):
            converged = error <= ACCEPTED_ERROR
            break
    slope = np.zeros(K)
    for k in range(K):
        if rows.start[k + 1] - rows.start[k] > 1:
            slope[k] = -d[rows.state[k]] * rows.prob[k] / lam[k] if lam[k] > 0.0 else -np.inf
    return converged, q, _dot(rho, V), slope


@compiled
def _project_simplex_smooth(x: Any, p: Any, mu: float, q: Any) -> float:
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
def _project_row(x: Any, p: Any, b: float, q: Any) -> None:
    """Euclidean projection of x onto {q in the simplex : KL(p, q) <= b}.

    Two multipliers: y for the sum (inner, Newton) and mu for the KL (outer). KL is about c/mu^2 for large mu,
    so Newton runs on KL^(-1/2), inside a bracket; the end with KL <= b is returned.
    """
    m = len(x)
    one = 1.0
    if b <= 0.0:
        _copy(p, q)
        return
    y = _project_simplex_smooth(x, p, 0.0, q)
    if _row_loss(p, one, q, 0, m) <= b:
        return
    low = 0.0
    high = np.inf
    mu = 1e-3 + abs(y)
    for _ in range(200):
        y = _project_simplex_smooth(x, p, mu, q)
        loss = _row_loss(p, one, q, 0, m)
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
        proposal = _inside(proposal, low, high, mu, 10.0)
        if abs(proposal - mu) <= 4e-16 * mu:
            break
        mu = proposal
    if np.isnan(_row_loss(p, one, q, 0, m)):  # a ball too small to be told from its centre
        _copy(p, q)
        return
    step = 4e-16 * mu
    while _row_loss(p, one, q, 0, m) > b and mu < high:  # by rounding: a little more mu
        mu = min(mu + step, high)
        step *= 2.0
        _project_simplex_smooth(x, p, mu, q)


@entry
def project_rows(start: Any, x: Any, p: Any, b: Any) -> Any:
    """The block projection of every row onto its own KL ball."""
    q = np.empty(len(x))
    for k in range(len(b)):
        _project_row(x[start[k] : start[k + 1]], p[start[k] : start[k + 1]], b[k], q[start[k] : start[k + 1]])
    return q


@compiled
def _descend(
    rows: Any, gamma: float, rho: Any, p: Any, b: Any, sign: float, L: float, steps: int, q: Any, V: Any, d: Any
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
        _copy(landed, q)
    _solve_both(rows, q, gamma, rho, V, d)


@entry
def descend(rows: Any, gamma: float, rho: Any, p: Any, b: Any, sign: float, L: float, steps: int) -> Any:
    """The inner loop of Algorithm 2 from q = p on one product box: the kernel reached and its value."""
    V = np.zeros(len(rho))
    d = rho.copy()
    q = p.copy()
    _descend(rows, gamma, rho, p, b, sign, L, steps, q, V, d)
    return q, _dot(rho, V)


@entry
def search_budgets(
    rows: Any, gamma: float, rho: Any, p: Any, omega: Any, sigma: float, h: float, sign: float, L: float, steps: int
) -> Any:
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
        _copy(p, q)
        _descend(rows, gamma, rho, p, b, sign, L, steps, q, V, d)
        value = sign * _dot(rho, V)
        if value < best:
            best = value
            _copy(q, best_q)
            _copy(b, best_b)
        k = 0
        while k < K:
            multiple[k] += 1
            b[k] = h * multiple[k]
            spent = _dot(omega, b)
            if spent <= sigma:
                break
            multiple[k] = 0
            b[k] = 0.0
            k += 1
        if k == K:
            break
    return best_q, sign * best, best_b, points


# ---------------------------------------------------------------- the convex relaxation behind certificates
# Variables: occupancies d(s) in a box [l, u] and flows f(s,a,x), with
#     sum_x f(s,a,x) = d(s),   d(x) = rho(x) + gamma sum pi f,   sign (sum pi f r - R) <= 0.
# On the box the loss is at least a convex function of (d, f), state by state one of two:
#     perspective:  sum_k (d/u) sum_x N log(p d/f),
#     chord:        n_s chord(log d) + sum N log(p/f),      chord(log d) linear, equal to log d at l and u.
# The dual variables are theta = (v [S], lam, mu, y [K]): v for the flow balance, lam for the value, mu for the loss, y
# for the row sums. Every theta with lam, mu >= 0 gives a valid bound, in closed form: see
# `policytest.worst_case.certificate`. Rewards are centred, so that R = 0.

PERSPECTIVE = 0
CHORD = 1


@compiled
def _slope(low: float, high: float) -> float:
    """The slope of the chord of log between two points."""
    return np.log(high / low) / (high - low) if high > low else 1.0 / low


@compiled
def _in_box(t: float, low: float, high: float, tau: float) -> Any:
    """min over d in the box of t d - tau [log(d - low) + log(high - d)]: the minimum, d, and its derivative by t."""
    width = high - low
    root = np.sqrt((t * width) ** 2 + 4.0 * tau * tau)
    near = 2.0 * tau * width / (abs(t) * width + 2.0 * tau + root)
    far = width - near
    d = low + (near if t >= 0.0 else far)
    curvature = -1.0 / (tau * (1.0 / (near * near) + 1.0 / (far * far)))
    return t * d - tau * (np.log(near) + np.log(far)), d, curvature


class Relaxation(NamedTuple):
    """What a certificate speaks about, as compiled code reads it; `worth` [E] are rewards less (1-gamma) R."""

    rows: Any
    worth: Any
    gamma: float
    rho: Any
    N: Any
    n: Any
    sign: float


class Box(NamedTuple):
    """A box of occupancies, the relaxation of each state, and the question: minimise aim.d + mu (loss - level)."""

    low: Any
    high: Any
    kind: Any
    aim: Any
    level: float


@compiled
def _smooth_dual(claim: Any, box: Any, free_mu: bool, tau: float, theta: Any, at: Any) -> float:
    """The dual function with logarithmic barriers of weight tau; -inf outside its domain. Fills ``at``."""
    rows, worth, gamma, rho, N, n, sign = claim
    low, high, kind, aim, B = box
    coefficient, room, height = at  # [S] of d(s) in the Lagrangian; [E] c, and the logarithm that goes with it
    S = len(rho)
    lam = theta[S]
    mu = theta[S + 1]
    if lam <= 0.0 or mu <= 0.0:
        return -np.inf
    total = tau * np.log(lam) - mu * B
    if free_mu:
        total += tau * np.log(mu)
    for s in range(S):
        coefficient[s] = aim[s] + theta[s]
        total -= theta[s] * rho[s]
    for k in range(len(n)):
        s = rows.state[k]
        y = theta[S + 2 + k]
        coefficient[s] -= y
        chord = kind[s] == CHORD
        scale = 1.0 if chord else high[s]
        base = 0.0
        if n[k] > 0.0:
            base = np.log(scale / (mu * n[k]))
            if chord:
                slope = _slope(low[s], high[s])
                coefficient[s] += mu * n[k] * slope
                total += mu * n[k] * (np.log(low[s]) - slope * low[s])
        gained = 0.0
        barrier = 0.0
        for e in range(rows.start[k], rows.start[k + 1]):
            c = y + rows.prob[k] * (lam * sign * worth[e] - gamma * theta[rows.successor[e]])
            if c <= 0.0:
                return -np.inf
            room[e] = c
            height[e] = np.log(c) + base
            if N[e] > 0.0:
                gained += N[e] * (1.0 + height[e])
            else:
                barrier += height[e] - base
        total += tau * barrier
        if chord:
            total += mu * gained
        else:
            coefficient[s] += mu / scale * gained
    for s in range(S):
        total += _in_box(coefficient[s], low[s], high[s], tau)[0]
    return total


@compiled
def _add_square(H: Any, at: Any, count: int, values: Any, factor: float) -> None:
    """H[at, at] += factor values values^T, upper triangle; `at` increases, `values` is indexed by it."""
    if at[count - 1] - at[0] == count - 1:
        for i in range(at[0], at[0] + count):
            scaled = factor * values[i]
            for j in range(i, at[0] + count):
                H[i, j] += scaled * values[j]
        return
    for p in range(count):
        scaled = factor * values[at[p]]
        for r in range(p, count):
            H[at[p], at[r]] += scaled * values[at[r]]


@compiled
def _newton_step(claim: Any, box: Any, free_mu: bool, tau: float, theta: Any, here: Any, work: Any, step: Any) -> float:
    """Newton's step for the smooth dual; returns what it promises, negative where there is none.

    The Hessian is a sum over states. Eliminating the y of a row adds one dyad, and the smallest value over d(s)
    another: what is left is a system in (v, lam, mu), sparse dyads in a dense matrix of S + 2 rows.
    """
    rows, worth, gamma, rho, N, n, sign = claim
    low, high, kind, _, B = box
    H, parts, pivot, own, by_row, wide, at = work
    coefficient, room, height = here
    S = len(rho)
    D = S + 2
    LAM = S
    MU = S + 1
    lam = theta[LAM]
    mu = theta[MU]
    H[:, :] = 0.0
    gradient = np.zeros(len(theta))
    for x in range(S):
        gradient[x] = -rho[x]
    gradient[LAM] = tau / lam
    gradient[MU] = -B + (tau / mu if free_mu else 0.0)
    H[LAM, LAM] = -tau / (lam * lam)
    H[MU, MU] = -tau / (mu * mu) if free_mu else 0.0
    inner = np.zeros(S)  # the gradient by the coefficient of d(s), after the rows are eliminated
    first = 0
    while first < len(n):
        s = rows.state[first]
        last = first
        while last < len(n) and rows.state[last] == s:
            last += 1
        chord = kind[s] == CHORD
        _, d, curvature = _in_box(coefficient[s], low[s], high[s], tau)
        scale = 1.0 if chord else high[s]
        share = 1.0 if chord else d
        part = parts[s]
        part[:] = 0.0
        part[s] = 1.0
        for k in range(first, last):
            bend_y = 0.0
            bend_lam = 0.0
            bend_mu = 0.0
            part_y = -1.0
            pull_y = 0.0
            if chord and n[k] > 0.0:
                slope = _slope(low[s], high[s])
                part[MU] += n[k] * slope
                gradient[MU] += n[k] * (np.log(low[s]) - slope * low[s])
            by_v = -gamma * rows.prob[k]
            for e in range(rows.start[k], rows.start[k + 1]):
                x = rows.successor[e]
                by_lam = sign * rows.prob[k] * worth[e]
                per_c = 1.0 / room[e]
                pull = tau * per_c
                bend = -pull * per_c
                if N[e] > 0.0:
                    weight = N[e] / scale
                    pull = mu * weight * per_c
                    bend = -share * pull * per_c
                    mixed = share * weight * per_c
                    bend_mu += mixed
                    H[x, MU] += mixed * by_v
                    H[LAM, MU] += mixed * by_lam
                    H[MU, MU] -= share * weight / mu
                    if chord:
                        gradient[MU] += weight * height[e]
                    else:
                        part[MU] += weight * height[e]
                if N[e] > 0.0 and not chord:
                    part_y += pull
                    part[x] += pull * by_v
                    part[LAM] += pull * by_lam
                else:
                    pull_y += pull
                    gradient[x] += pull * by_v
                    gradient[LAM] += pull * by_lam
                bend_y += bend
                bend_lam += bend * by_lam
                by_row[e] = bend * by_v
                H[x, x] += bend * by_v * by_v
                H[x, LAM] += bend * by_v * by_lam
                H[LAM, LAM] += bend * by_lam * by_lam
            own[k, 0] = bend_y
            own[k, 1] = bend_lam
            own[k, 2] = bend_mu if free_mu else 0.0
            own[k, 3] = part_y
            gradient[D + k] = pull_y + d * part_y
        for j in range(D):
            gradient[j] += d * part[j]
        if not free_mu:
            part[MU] = 0.0
        stiffness = -1.0 / curvature
        for k in range(first, last):  # eliminate y
            count = 0
            for e in range(rows.start[k], rows.start[k + 1]):
                x = rows.successor[e]
                wide[x] = by_row[e]
                at[count] = x
                count += 1
            wide[LAM] = own[k, 1]
            wide[MU] = own[k, 2]
            at[count] = LAM
            at[count + 1] = MU
            count += 2
            inverse = 1.0 / own[k, 0]
            _add_square(H, at, count, wide, -inverse)
            part_y = own[k, 3]
            g = gradient[D + k]
            for p in range(count):
                j = at[p]
                part[j] -= part_y * inverse * wide[j]
                gradient[j] -= g * inverse * wide[j]
            stiffness -= part_y * part_y * inverse
            inner[s] -= part_y * g * inverse
        count = 0
        for j in range(D):
            if part[j] != 0.0:
                at[count] = j
                count += 1
        _add_square(H, at, count, part, -1.0 / stiffness)
        for p in range(count):
            gradient[at[p]] -= inner[s] / stiffness * part[at[p]]
        pivot[s] = stiffness
        first = last
    if not free_mu:
        gradient[MU] = 0.0
        for j in range(D):
            H[min(j, MU), MU] = 0.0
        H[MU, MU] = -1.0
    for j in range(D):
        H[j, j] *= 1.0 + 1e-13
        step[j] = gradient[j]
    if not _solve_concave(H, step):
        return -1.0
    promised = 0.0
    for j in range(D):
        promised += gradient[j] * step[j]
    for k in range(len(n)):
        s = rows.state[k]
        if k == 0 or rows.state[k - 1] != s:
            total = inner[s]
            for j in range(D):
                total += parts[s, j] * step[j]
            promised -= inner[s] * inner[s] / pivot[s]
            pivot[s] = -total / pivot[s]
        total = gradient[D + k] + own[k, 1] * step[LAM] + own[k, 2] * step[MU] + own[k, 3] * pivot[s]
        for e in range(rows.start[k], rows.start[k + 1]):
            total += by_row[e] * step[rows.successor[e]]
        promised -= gradient[D + k] * gradient[D + k] / own[k, 0]
        step[D + k] = -total / own[k, 0]
    return promised


@compiled
def _solve_concave(H: Any, x: Any) -> bool:
    """x <- (-H)^{-1} x for a negative definite H, of which the upper triangle is given and destroyed (Cholesky)."""
    D = len(H)
    for i in range(D):
        if not H[i, i] < 0.0:
            return False
        root = np.sqrt(-H[i, i])
        H[i, i] = root
        for j in range(i + 1, D):
            H[i, j] /= -root
        for m in range(i + 1, D):
            factor = H[i, m]
            if factor != 0.0:
                for j in range(m, D):
                    H[m, j] += factor * H[i, j]
    for i in range(D):
        x[i] /= H[i, i]
        for j in range(i + 1, D):
            x[j] -= H[i, j] * x[i]
    for i in range(D - 1, -1, -1):
        total = x[i]
        for j in range(i + 1, D):
            total -= H[i, j] * x[j]
        x[i] = total / H[i, i]
    return True


@entry
def maximise_dual(claim: Any, box: Any, free_mu: bool, tau: float, last_tau: float, theta: Any, limit: int) -> Any:
    """Improve theta, in place, by Newton's method on the dual with barriers that fade from tau to last_tau.

    Returns (ended well, iterations). Whatever theta comes out, `worst_case.certificate` says what it proves.
    """
    S = len(claim.rho)
    K = len(claim.n)
    E = len(claim.N)
    work = (
        np.empty((S + 2, S + 2)), np.zeros((S, S + 2)), np.ones(S), np.empty((K, 4)), np.empty(E), np.empty(S + 2),
        np.empty(S + 2, dtype=np.int64),
    )  # fmt: skip
    here = (np.empty(S), np.empty(E), np.empty(E))
    step = np.empty(len(theta))
    trial = np.empty(len(theta))
    value = _smooth_dual(claim, box, free_mu, tau, theta, here)
    inner = 0
    for iteration in range(1, limit + 1):
        inner += 1
        promised = _newton_step(claim, box, free_mu, tau, theta, here, work, step) if value > -np.inf else -1.0
        if not promised >= 0.0:
            return False, iteration
        length = 1.0
        moved = False
        while length > 1e-12 and promised > 0.0:
            for i in range(len(theta)):
                trial[i] = theta[i] + length * step[i]
            there = _smooth_dual(claim, box, free_mu, tau, trial, here)
            if there >= value + 1e-4 * length * promised - 1e-12 * abs(value):
                _copy(trial, theta)
                value = there
                moved = True
                break
            length *= 0.5
        if not moved or promised < 0.05 * tau * S or inner >= 30:
            if tau <= last_tau:
                return True, iteration
            tau = max(0.15 * tau, last_tau)
            value = _smooth_dual(claim, box, free_mu, tau, theta, here)
            inner = 0
    return False, limit


# ---------------------------------------------------------------- the sequential test
# Evidence of a witness w, in nats: loss(w) - dimension term of the boundary, one number for each prior.

PAPER = 0  # kinds of boundary
MIXTURE = 1
ALL_USED = 0  # how a block of observations ended
WITNESS_FAILED = 1
NOT_ALLOWED = 2
STIRLING = 16.0  # where the series takes over from lnG itself
HALF_LOG_2PI = 0.9189385332046727


@compiled
def _mean_log(x: Any) -> float:
    """log of the mean of exp(x_j), without overflow."""
    if len(x) == 1:
        return x[0]
    top = x[0]
    for j in range(1, len(x)):
        top = max(top, x[j])
    if np.isinf(top):
        return top
    total = 0.0
    for j in range(len(x)):
        total += np.exp(x[j] - top)
    return top + np.log(total / len(x))


@compiled
def _stirling_rest(z: float) -> float:
    """lnG(z) - [(z - 1/2) log z - z + log(2 pi)/2], for z >= 16 (error below 2e-14)."""
    inverse = 1.0 / (z * z)
    return (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / z


@compiled
def _surplus(count: float, a: float) -> float:
    """N log N - N - [lnG(N + a) - lnG(a)], by Stirling's series where the terms are large: no digits are lost."""
    if count <= 0.0:
        return 0.0
    z = count + a
    if z < STIRLING:
        return count * np.log(count) - count - math.lgamma(z) + math.lgamma(a)
    shared = -count * np.log1p(a / count) - _stirling_rest(z)
    if a >= STIRLING:
        return shared - (a - 0.5) * np.log1p(count / a) + _stirling_rest(a)
    return shared - (a - 0.5) * np.log(z) + a - HALF_LOG_2PI + math.lgamma(a)


@compiled
def _dimensions(start: Any, N: Any, n: Any, kind: int, priors: Any, width: Any, out: Any) -> None:
    """out[j]: the dimension term of the boundary, for each prior; width[k] is the boundary's own number for row k."""
    for j in range(len(out)):
        out[j] = 0.0
    for k in range(len(n)):
        if kind == PAPER:
            if width[k] > 0.0:
                out[0] += width[k] * (1.0 + np.log1p(n[k] / width[k]))
            continue
        if n[k] <= 0.0:
            continue
        for j in range(len(out)):
            total = -_surplus(n[k], width[k] * priors[j])
            for e in range(start[k], start[k + 1]):
                total += _surplus(N[e], priors[j])
            out[j] += total


@entry
def dimensions(start: Any, N: Any, n: Any, kind: int, priors: Any, width: Any) -> Any:
    """[J] the dimension term of the boundary for each prior."""
    out = np.empty(len(priors))
    _dimensions(start, N, n, kind, priors, width, out)
    return out


@compiled
def _step(z: float) -> float:
    """z log(1 + 1/z), by its series where that is exact to rounding; 0 at 0."""
    if z <= 0.0:
        return 0.0
    if z < 200.0:
        return z * np.log1p(1.0 / z)
    u = 1.0 / z
    return 1.0 - u * (0.5 - u * (1.0 / 3.0 - u * (0.25 - u * (0.2 - u * (1.0 / 6.0 - u / 7.0)))))


@compiled
def _growth(kind: int, count: float, visits: float, prior: float, width: float, chance: float) -> float:
    """What one observation adds to the evidence of a witness that gives it this chance.

    Mixture: log of the predictive probability (N + a)/(n + m a) over the chance. Paper: the growth of N log N less
    that of n log n and of width log(1 + n/width), less the log of the chance.
    """
    if kind == MIXTURE:
        return np.log((count + prior) / ((visits + width * prior) * chance))
    likelihood = np.log((count + 1.0) / ((visits + 1.0) * chance)) + _step(count) - _step(visits)
    reach = width + visits
    return likelihood - (width / reach * _step(reach) if width > 0.0 else 0.0)


@compiled
def _place(start: Any, successor: Any, k: int, x: int) -> int:
    """The entry of successor x in row k, or -1 where it is not listed; at once in rows that list every state."""
    low = start[k]
    high = start[k + 1]
    if low + x < high and successor[low + x] == x:
        return low + x
    while low < high:
        middle = (low + high) // 2
        if successor[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low if low < start[k + 1] and successor[low] == x else -1


@entry
def observe(
    start: Any,
    successor: Any,
    kind: int,
    priors: Any,
    width: Any,
    N: Any,
    n: Any,
    w: Any,
    evidence: Any,
    level: float,
    k: Any,
    x: Any,
) -> Any:
    """Record the transitions (row k[i], successor x[i]) until the evidence of the witness w reaches the level (or all).

    N, n and evidence [J] are updated in place, in constant time for each transition; rows -1 are of no consequence.
    Returns (how many were used, how it ended). The transition at which the witness fails is recorded.
    """
    for i in range(len(k)):
        row = k[i]
        if row < 0:
            continue
        e = _place(start, successor, row, x[i])
        if e < 0:
            return i, NOT_ALLOWED
        for j in range(len(priors)):
            evidence[j] += _growth(kind, N[e], n[row], priors[j], width[row], w[e])
        N[e] += 1.0
        n[row] += 1.0
        if level < np.inf and not _mean_log(evidence) < level:
            return i + 1, WITNESS_FAILED
    return len(k), ALL_USED


@entry
def safe_ahead(
    start: Any, kind: int, priors: Any, width: Any, N: Any, n: Any, w: Any, evidence: Any, level: float, k: Any
) -> int:
    """How many of the planned visits k can be drawn at once: the witness cannot fail before the last of them.

    The evidence is convex in the counts that c visits add to a row, so its largest growth is at one successor
    repeated c times: max over x of what x contributes, less the price of the visits. Rows add up.
    """
    J = len(priors)
    visits = np.zeros(len(n))
    gain = np.zeros((J, len(N)))
    peak = np.zeros((J, len(n)))
    bound = evidence.copy()
    for i in range(len(k)):
        row = k[i]
        for j in range(J):
            best = -np.inf
            for e in range(start[row], start[row + 1]):
                gain[j, e] += _growth(kind, N[e] + visits[row], n[row] + visits[row], priors[j], width[row], w[e])
                best = max(best, gain[j, e])
            if best > peak[j, row]:
                bound[j] += best - peak[j, row]
                peak[j, row] = best
        visits[row] += 1.0
        if level < np.inf and not _mean_log(bound) < level:
            return i + 1
    return len(k)


@entry
def rewitness(
    rows: Any,
    gamma: float,
    rho: Any,
    N: Any,
    n: Any,
    share: float,
    w: Any,
    lam: float,
    tolerance: float,
    limit: int,
) -> Any:
    """A witness near the smoothed counts N + share: the nearest kernel of value 0, in place of w.

    Smoothing lists every allowed successor, so that no single observation can make the loss of the witness infinite,
    and leaves no row free. Returns (found, lam): whether the value of w is 0, to 1e-9 of the largest.
    """
    K = len(n)
    smooth_N = np.empty(len(N))
    smooth_n = np.empty(K)
    largest = 0.0
    for k in range(K):
        smooth_n[k] = n[k] + share * (rows.start[k + 1] - rows.start[k])
        largest = max(largest, smooth_n[k])
    _, exponent = math.frexp(largest)
    unit = math.ldexp(1.0, exponent)
    for k in range(K):
        smooth_n[k] /= unit
        for e in range(rows.start[k], rows.start[k + 1]):
            smooth_N[e] = (N[e] + share) / unit
    q = np.empty(len(N))
    _copy_centre(rows.start, smooth_N, smooth_n, q)
    V = np.zeros(len(rho))
    d = rho.copy()
    _solve_both(rows, q, gamma, rho, V, d)
    value = _dot(rho, V)
    slack = 1e-9 * _largest(V)
    if abs(value) > 1e-3 * slack:
        sign = 1.0 if value > 0.0 else -1.0
        if lam > 0.0:
            _copy(w, q)
        _, _, value, lam, _ = _nearest(rows, gamma, rho, smooth_N, smooth_n, 0.0, sign, q, lam / unit, tolerance, limit)
    if not abs(value) <= slack:
        return False, 0.0
    _copy(q, w)
    return True, lam * unit


@entry
def witness_evidence(start: Any, kind: int, priors: Any, width: Any, N: Any, n: Any, w: Any, evidence: Any) -> None:
    """Fill evidence [J] of the witness w afresh."""
    loss = _loss(start, N, n, w)
    _dimensions(start, N, n, kind, priors, width, evidence)
    for j in range(len(evidence)):
        evidence[j] = loss - evidence[j]


# ---------------------------------------------------------------- sampling and simulation


@compiled
def _before(priority: Any, first: int, second: int) -> bool:
    return priority[first] < priority[second] or (priority[first] == priority[second] and first < second)


@compiled
def _sift(heap: Any, priority: Any, at: int) -> None:
    """Restore the heap below `at`, whose priority has grown."""
    size = len(heap)
    moving = heap[at]
    while 2 * at + 1 < size:
        child = 2 * at + 1
        if child + 1 < size and _before(priority, heap[child + 1], heap[child]):
            child += 1
        if not _before(priority, heap[child], moving):
            break
        heap[at] = heap[child]
        at = child
    heap[at] = moving


@compiled
def _round_robin(n: Any, tracked: Any, chosen: Any) -> bool:
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
def track(n: Any, omega: Any, count: int) -> Any:
    """The next `count` rows of argmin n_k/omega_k over omega_k > 0, ties to the first: line 4 of Algorithm 1."""
    tracked = np.flatnonzero(omega > 0.0)
    chosen = np.empty(count, dtype=np.int64)
    equal = True
    for k in tracked:
        equal = equal and omega[k] == omega[tracked[0]]
    if equal and _round_robin(n, tracked, chosen):
        return chosen
    visits = n.copy()
    priority = visits / omega
    for at in range(len(tracked) // 2, -1, -1):
        _sift(tracked, priority, at)
    for i in range(count):
        k = tracked[0]
        chosen[i] = k
        visits[k] += 1.0
        priority[k] = visits[k] / omega[k]
        _sift(tracked, priority, 0)
    return chosen


@compiled
def _first_above(cumulative: Any, first: int, last: int, u: float) -> int:
    """The first entry whose cumulative probability exceeds u."""
    while first < last:
        middle = (first + last) // 2
        if cumulative[middle] > u:
            last = middle
        else:
            first = middle + 1
    return first


@entry
def draw(start: Any, successor: Any, cumulative: Any, pair: Any, u: Any) -> Any:
    """Successors of the pairs, by inversion: one uniform number each."""
    x = np.empty(len(pair), dtype=np.int64)
    for i in range(len(pair)):
        x[i] = successor[_first_above(cumulative, start[pair[i]], start[pair[i] + 1], u[i])]
    return x


@entry
def walk(
    start: Any, successor: Any, cumulative: Any, actions: Any, initial: Any, restart: float, state: int, u: Any
) -> Any:
    """A trajectory from `state`: action, successor, and a restart with the given probability; u [m,3] uniforms.

    `actions` [S,A] and `initial` [S] are cumulative. Returns the pairs s*A + a, their successors, the states after.
    """
    m = len(u)
    S, A = actions.shape
    pair = np.empty(m, dtype=np.int64)
    x = np.empty(m, dtype=np.int64)
    after = np.empty(m, dtype=np.int64)
    for i in range(m):
        pair[i] = state * A + _first_above(actions[state], 0, A, u[i, 0])
        x[i] = successor[_first_above(cumulative, start[pair[i]], start[pair[i] + 1], u[i, 1])]
        state = x[i]
        if u[i, 2] < restart:
            state = _first_above(initial, 0, S, u[i, 2] / restart)
        after[i] = state
    return pair, x, after


# ---------------------------------------------------------------- betting on temporal differences
# One rollout earns a sum S of weighted residuals with mean at most sign (V_q - rho.V0), and never below -L. See
# `policytest.betting` for the proof.

BLOCK_ENDS, CROSSED, WAITING, REFIT_DUE = 0, 1, 2, 3
LARGEST_WEIGHT, SMALLEST_WEIGHT, SMALLEST_CHANCE = 50.0, 1e-3, 0.1


@entry
def shrunk_rows(rows: Any, N: Any, n: Any, S: int, pair_mass: float, state_mass: float) -> Any:
    """[E] a fitted kernel: a pair's row drawn towards its state's, and that towards the uniform one."""
    q = np.empty(len(N))
    seen = np.zeros(S)
    uniform = np.zeros(S)
    first = 0
    while first < len(n):
        last = first
        total = 0.0
        while last < len(n) and rows.state[last] == rows.state[first]:
            total += n[last]
            width = rows.start[last + 1] - rows.start[last]
            for e in range(rows.start[last], rows.start[last + 1]):
                seen[rows.successor[e]] += N[e]
                uniform[rows.successor[e]] += rows.prob[last] / width
            last += 1
        for k in range(first, last):
            mass = 0.0
            for e in range(rows.start[k], rows.start[k + 1]):
                q[e] = (seen[rows.successor[e]] + state_mass * uniform[rows.successor[e]]) / (total + state_mass)
                mass += q[e]
            for e in range(rows.start[k], rows.start[k + 1]):
                q[e] = (N[e] + pair_mass * q[e] / mass) / (n[k] + pair_mass)
        for e in range(rows.start[first], rows.start[last]):
            seen[rows.successor[e]] = 0.0
            uniform[rows.successor[e]] = 0.0
        first = last
    return q


@compiled
def _follow(gamma: float, cost: Any, onward: Any, value: Any) -> None:
    """The discounted costs of paths that go from s to onward[s], and end where that is negative."""
    S = len(cost)
    mark = np.zeros(S, dtype=np.int64)  # 0 not met, 1 on the path at hand, 2 done
    path = np.empty(S, dtype=np.int64)
    for origin in range(S):
        length = 0
        s = origin
        while s >= 0 and mark[s] == 0:
            mark[s] = 1
            path[length] = s
            length += 1
            s = onward[s]
        if s >= 0 and mark[s] == 1:  # a cycle
            total = 0.0
            discount = 1.0
            at = s
            while True:
                total += discount * cost[at]
                discount *= gamma
                at = onward[at]
                if at == s:
                    break
            value[s] = total / (1.0 - discount)
            mark[s] = 2
        for i in range(length - 1, -1, -1):
            at = path[i]
            if mark[at] == 1:
                value[at] = cost[at] + (gamma * value[onward[at]] if onward[at] >= 0 else 0.0)
                mark[at] = 2


@compiled
def _worst_paths(rows: Any, base: Any, V: Any, floor: Any, sign: float, gamma: float) -> Any:
    """[S] B with B(s) <= min(0, floor(s), least of D(s,a,x) + gamma B(x)): worst paths that may also end at the floor.

    By policy iteration over deterministic paths, with improvements used at once, to and fro; what it missed at the end
    is subtracted, so that the inequality holds whenever it ends.
    """
    S = len(V)
    K = len(base)
    B = np.minimum(floor, 0.0)
    cost = B.copy()
    onward = np.full(S, -1)
    size = _largest(B)
    missed = 0.0
    for round in range(S + 101):
        missed = 0.0
        for index in range(K):
            k = index if round % 2 == 0 else K - 1 - index
            s = rows.state[k]
            for e in range(rows.start[k], rows.start[k + 1]):
                x = rows.successor[e]
                residual = base[k] + gamma * V[x] - V[s]
                if len(rows.gain) > 0:
                    residual += rows.gain[e]
                residual *= sign
                size = max(size, abs(residual))
                better = B[s] - residual - gamma * B[x]
                missed = max(missed, better)
                if better > 1e-12 * (size + abs(B[s])) and round < S + 100:
                    B[s] = residual + gamma * B[x]
                    cost[s] = residual
                    onward[s] = x
        if missed <= 1e-12 * (size + _largest(B)):
            break
        if round < S + 100:
            _follow(gamma, cost, onward, B)
    for s in range(S):
        B[s] = min(B[s], 0.0, floor[s]) - 2.0 * (missed + 1e-13 * size) / (1.0 - gamma)
    return B


@entry
def worst_paths(rows: Any, base: Any, V: Any, sign: float, gamma: float) -> Any:
    """[S] B with B(s) <= min(0, least of D(s,a,x) + gamma B(x)): the worst discounted residuals along any path."""
    return _worst_paths(rows, base, V, np.zeros(len(V)), sign, gamma)


@compiled
def _finish(S: float, lead: float, room: float, fractions: Any, log_weights: Any, capital: Any) -> float:
    """Settle the bets of a rollout; the evidence: the logarithm of the average capital."""
    top = -np.inf
    for b in range(len(fractions)):
        capital[b] += np.log1p(fractions[b] * (lead + S) / room)
        top = max(top, capital[b] + log_weights[b])
    total = 0.0
    for b in range(len(fractions)):
        total += np.exp(capital[b] + log_weights[b] - top)
    return top + np.log(total)


@compiled
def _chance(weight: float, budget: float, least: float) -> float:
    """The probability of going on: with the largest weight that keeps every path above -L."""
    target = LARGEST_WEIGHT
    if least < 0.0:
        target = min(target, budget / -least)
    return min(1.0, max(SMALLEST_CHANCE, weight / max(target, TINY)))


@entry
def bet(
    world: Any, plan: Any, purse: Any, walker: Any, supply: Any, u: Any, limits: Any, pair: Any, x: Any, sums: Any
) -> Any:
    """Rollouts, until the numbers ``u`` [rows, 3] or the samples run out, a bet crosses the level, or a refit is due.

    Returns (ending, rows of u used, transitions, samples among them, rollouts ended, pair wanted, evidence). A rollout
    that is cut short goes on next time: ``walker`` = (on its way, state, S, weight, draws left) is kept.
    """
    rows, actions, initial, row_of_pair, only, gamma = world
    V, B, base, L, sign, lead, draws = plan
    fractions, log_weights, capital = purse
    is_table, start, successor, cumulative, at = supply
    level, most, refit_at, one_by_one = limits
    A = actions.shape[1]
    room = L - lead
    used = 0
    steps = 0
    samples = 0
    rollouts = 0
    evidence = -np.inf
    while used < len(u):
        ended = False
        if walker[0] == 0.0:
            s = _first_above(initial, 0, len(initial), u[used, 0])
            chance = _chance(1.0, L, B[s]) if draws == 0 else 1.0
            walker[0] = 1.0
            walker[1] = s
            walker[2] = 0.0
            walker[3] = 1.0 / chance
            walker[4] = draws
            ended = u[used, 1] >= chance
            if draws > 0 and u[used, 2] >= gamma:
                walker[0] = 2.0
        else:
            s = int(walker[1])
            a = _first_above(actions[s], 0, A, u[used, 0])
            k = row_of_pair[s * A + a]
            p = s * A + a
            y = only[k]
            if y < 0:
                if samples >= most:
                    break
                if is_table:
                    y = successor[_first_above(cumulative, start[p], start[p + 1], u[used, 1])]
                elif at[p] < start[p + 1]:
                    y = successor[at[p]]
                    at[p] += 1
                else:
                    return WAITING, used, steps, samples, rollouts, p, evidence
                samples += 1
            pair[steps] = p
            x[steps] = y
            steps += 1
            residual = base[k] + gamma * V[y] - V[s]
            if len(rows.gain) > 0:
                residual += rows.gain[_place(rows.start, rows.successor, k, y)]
            residual *= sign
            if draws == 0:
                walker[2] += walker[3] * residual
                walker[1] = y
                weight = gamma * walker[3]
                chance = _chance(weight, walker[2] + L, B[y])
                ended = u[used, 2] >= chance
                walker[3] = weight / chance
                if not ended and walker[3] < SMALLEST_WEIGHT:
                    walker[2] += walker[3] * B[y]
                    ended = True
            elif walker[0] == 1.0:
                walker[1] = y
                if u[used, 2] >= gamma:
                    walker[0] = 2.0
            else:
                walker[2] += residual / ((1.0 - gamma) * draws)
                walker[4] -= 1.0
                ended = walker[4] == 0.0
        used += 1
        if ended:
            evidence = _finish(walker[2], lead, room, fractions, log_weights, capital)
            sums[rollouts] = walker[2]
            rollouts += 1
            walker[0] = 0.0
            if evidence >= level:
                return CROSSED, used, steps, samples, rollouts, -1, evidence
            if samples >= refit_at:
                return REFIT_DUE, used, steps, samples, rollouts, -1, evidence
            if one_by_one:
                break
    return BLOCK_ENDS, used, steps, samples, rollouts, -1, evidence


# ---------------------------------------------------------------- betting on the difference of two policies
# Two rollouts that stay together for as long as their policies agree. See `policytest.comparison` for the proof.

TOGETHER, A_ALONE, B_ALONE, B_PARTS, B_NEXT = 1.0, 2.0, 3.0, 4.0, 5.0
A_IN_TURN, B_IN_TURN = 6.0, 7.0


@entry
def coupled_paths(rows: Any, base: Any, V: Any, floor: Any, sign: float, gamma: float) -> Any:
    """[S] B as in `worst_paths`, of paths that may also end at the floor: B(s) <= floor(s) too."""
    return _worst_paths(rows, base, V, floor, sign, gamma)


@compiled
def _draw_one(supply: Any, p: int, known: int, u: float) -> int:
    """The successor of a pair: the known one, a draw from the table, the next of the stack; -1 where that is empty."""
    is_table, start, successor, cumulative, at = supply
    if known >= 0:
        return known
    if is_table:
        return int(successor[_first_above(cumulative, start[p], start[p + 1], u)])
    if at[p] < start[p + 1]:
        at[p] += 1
        return int(successor[at[p] - 1])
    return -1


@compiled
def _residual_of(side: Any, k: int, e: int, gamma: float, s: int, y: int) -> float:
    """r - eta + gamma V0(y) - V0(s) of one policy; e is the entry, where rewards are on successors."""
    V, _, base, gain = side
    residual = base[k] + gamma * V[y] - V[s]
    if len(gain) > 0:
        residual += gain[e]
    return residual


@compiled
def _coin(walker: Any, at: int, budget: float, least: float, u: float) -> bool:
    """Whether a rollout, with its weight at walker[at], ends here; else the weight grows. Tiny weights end at worst."""
    chance = _chance(walker[at], budget, least)
    if u >= chance:
        return True
    walker[at] /= chance
    if walker[at] < SMALLEST_WEIGHT:
        walker[2] += walker[at] * least
        return True
    return False


@entry
def bet_coupled(
    world: Any, plan: Any, purse: Any, walker: Any, supply: Any, u: Any, limits: Any, pair: Any, x: Any, sums: Any
) -> Any:
    """Coupled rollouts, as `bet` makes single ones; the same arguments and results, another world, plan and walker.

    ``walker`` = (phase, state of A or of both, S, its weight, state of B, its weight). The phases: 0 between rollouts;
    TOGETHER; B_PARTS: A has left and B takes its own action; A_ALONE; B_NEXT: the coin of B; B_ALONE. Where ``meets``,
    both follow one policy once they have parted: they move in turn, with one weight and one coin, A_IN_TURN and
    B_IN_TURN, until they meet. Each step uses one row of ``u``, for an action, a successor and a coin.
    """
    rows_start, rows_successor, row_of_pair, only, real, initial = world[:6]
    together, leaving, alone_a, alone_b, gamma, meets = world[6:]
    side_a, side_b, B, L, sign, lead = plan
    B_a = side_a[1]
    B_b = side_b[1]
    fractions, log_weights, capital = purse
    level, most, refit_at = limits
    A = alone_a.shape[1]
    room = L - lead
    on_entries = len(side_a[3]) > 0 or len(side_b[3]) > 0
    used = 0
    steps = 0
    samples = 0
    rollouts = 0
    evidence = -np.inf
    while used < len(u):
        ended = False
        phase = walker[0]
        if phase == 0.0:
            s = _first_above(initial, 0, len(initial), u[used, 0])
            walker[0] = TOGETHER
            walker[1] = s
            walker[2] = 0.0
            walker[3] = 1.0
            walker[4] = -1.0
            walker[5] = 0.0
            ended = _coin(walker, 3, L, B[s], u[used, 1])
        elif phase == B_NEXT:
            ended = _coin(walker, 5, walker[2] + L, B_b[int(walker[4])], u[used, 2])
            walker[0] = B_ALONE
        else:
            b_moves = phase in (B_ALONE, B_PARTS, B_IN_TURN)
            s = int(walker[4]) if b_moves else int(walker[1])
            apart = False
            if phase == TOGETHER:
                a = _first_above(together[s], 0, 2 * A, u[used, 0])
                apart = a >= A
                a %= A
            elif phase == B_PARTS:
                a = _first_above(leaving[s], 0, A, u[used, 0])
            elif b_moves:
                a = _first_above(alone_b[s], 0, A, u[used, 0])
            else:
                a = _first_above(alone_a[s], 0, A, u[used, 0])
            p = real[s] * A + a
            k = row_of_pair[p]
            if only[k] < 0 and samples >= most:
                break
            y = _draw_one(supply, p, only[k], u[used, 1])
            if y < 0:
                return WAITING, used, steps, samples, rollouts, p, evidence
            samples += 1 if only[k] < 0 else 0
            pair[steps] = p
            x[steps] = y
            steps += 1
            e = _place(rows_start, rows_successor, k, y) if on_entries else 0
            if b_moves:
                walker[2] -= sign * walker[5] * _residual_of(side_b, k, e, gamma, s, y)
                walker[4] = y
                walker[5] *= gamma
            else:
                walker[2] += sign * walker[3] * _residual_of(side_a, k, e, gamma, s, y)
                if phase == TOGETHER and not apart:
                    walker[2] -= sign * walker[3] * _residual_of(side_b, k, e, gamma, s, y)
                walker[1] = y
                if apart:
                    walker[4] = s
                    walker[5] = walker[3]
                walker[3] *= gamma
            if apart:
                walker[0] = B_PARTS
            elif phase == TOGETHER:
                ended = _coin(walker, 3, walker[2] + L, B[y], u[used, 2])
            elif phase == B_ALONE:
                ended = _coin(walker, 5, walker[2] + L, B_b[y], u[used, 2])
            elif phase == A_IN_TURN:
                walker[0] = B_IN_TURN
            elif meets:
                ended = y == int(walker[1])  # the same policy from the same state on: nothing is left to differ
                if not ended:
                    ended = _coin(walker, 3, walker[2] + L, B_a[int(walker[1])] + B_b[y], u[used, 2])
                    walker[5] = walker[3]
                    walker[0] = A_IN_TURN
            else:
                reserve = walker[5] * B_b[int(walker[4])]
                over = _coin(walker, 3, walker[2] + L + reserve, B_a[int(walker[1])], u[used, 2])
                walker[0] = B_NEXT if over else A_ALONE
        used += 1
        if ended:
            evidence = _finish(walker[2], lead, room, fractions, log_weights, capital)
            sums[rollouts] = walker[2]
            rollouts += 1
            walker[0] = 0.0
            if evidence >= level:
                return CROSSED, used, steps, samples, rollouts, -1, evidence
            if samples >= refit_at:
                return REFIT_DUE, used, steps, samples, rollouts, -1, evidence
    return BLOCK_ENDS, used, steps, samples, rollouts, -1, evidence
