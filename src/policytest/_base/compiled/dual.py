"""Compiled: the convex relaxation behind certificates, and the interior-point method that maximises its dual."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.compiled.small import compiled, copy_to, entry

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
    """A box of occupancies, the relaxation of each state, and the question: minimise aim.d + mu (loss - radius)."""

    low: Any
    high: Any
    kind: Any
    aim: Any
    radius: float


@compiled
def _smooth_dual(claim: Relaxation, box: Box, free_mu: bool, tau: float, theta: Reals, at: Reals) -> float:
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
def _add_square(H: Reals, at: Reals, count: int, values: Reals, factor: float) -> None:
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
def _newton_step(
    claim: Relaxation, box: Box, free_mu: bool, tau: float, theta: Reals, here: Reals, work: Reals, step: Reals
) -> float:
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
def _solve_concave(H: Reals, x: Reals) -> bool:
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
def maximise_dual(
    claim: Relaxation, box: Box, free_mu: bool, tau: float, last_tau: float, theta: Reals, limit: int
) -> Any:
    """Improve theta, in place, by Newton's method on the dual with barriers that fade from tau to last_tau.

    Returns (ended well, iterations). Whatever theta comes out, `worst_case.certificate` says what it proves.
    """
    S = len(claim.rho)
    K = len(claim.n)
    E = len(claim.N)
    H, parts, pivot, own = np.empty((S + 2, S + 2)), np.zeros((S, S + 2)), np.ones(S), np.empty((K, 4))
    work = (H, parts, pivot, own, np.empty(E), np.empty(S + 2), np.empty(S + 2, dtype=np.int64))
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
                copy_to(trial, theta)
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
