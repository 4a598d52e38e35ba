"""Compiled: the convex relaxation behind certificates, and the interior-point method that maximises its dual."""

from __future__ import annotations

from typing import NamedTuple, TypeAlias

import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import TINY, compiled, copy_to, entry
from policytest._base.rows import Rows

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
SMALLEST = 1e-200  # nothing smaller is trusted
TURNS, CORRECTIONS, NEAR = 3, 6, 0.03  # of a response: aims, Newton steps for each, and the share of nats left to gain
LEAST_GAIN = 1e-3  # a move of less than this share of the width is not worth a step of the proof


@compiled
def _slope(low: float, high: float) -> float:
    """The slope of the chord of log between two points."""
    return np.log(high / low) / (high - low) if high > low else 1.0 / low


@compiled
def _in_box(t: float, low: float, high: float, tau: float) -> tuple[float, float, float]:
    """min over d in the box of t d - tau [log(d - low) + log(high - d)]: the minimum, d, and its derivative by t."""
    width = high - low
    root = np.sqrt((t * width) ** 2 + 4.0 * tau * tau)
    near = 2.0 * tau * width / (abs(t) * width + 2.0 * tau + root)
    far = width - near
    d = low + (near if t >= 0.0 else far)
    curvature = -1.0 / (tau * (1.0 / (near * near) + 1.0 / (far * far)))
    return t * d - tau * (np.log(near) + np.log(far)), d, curvature


class Relaxation(NamedTuple):
    """What a certificate speaks about, as compiled code reads it; `worth` [E] are rewards less (1-gamma) R.

    ``touch[touch_start[s]:touch_start[s + 1]]`` lists, in increasing order, s and all successors of s; ``slot`` [E] is
    the place of a successor there, and ``slot_own`` [S] that of s itself. ``doubt``: how far rounding in pi and rho can
    move the value.
    """

    rows: Rows
    worth: Reals
    gamma: float
    rho: Reals
    N: Reals
    n: Reals
    sign: float
    touch_start: Ints
    touch: Ints
    slot: Ints
    slot_own: Ints
    doubt: float


class Box(NamedTuple):
    """A box of occupancies, the relaxation of each state, and the question: minimise aim.d + mu (loss - radius)."""

    low: Reals
    high: Reals
    kind: Ints
    aim: Reals
    radius: float


class Point(NamedTuple):
    """What the dual function computes on its way: the coefficient of d(s) and the best d(s) [S]; c and its log [E]."""

    coefficient: Reals
    d: Reals
    room: Reals
    height: Reals


class Curvature(NamedTuple):
    """The Hessian of the smooth dual at one point, after elimination: `_curvature` fills it, `_direction` uses it.

    ``factor`` [S+2,S+2]: a Cholesky factor in (v, lam, mu). ``part`` [T], ``part_lam``, ``part_mu`` [S]: how the
    coefficient of d(s) depends on them, with the y eliminated; ``stiffness`` [S]: its pivot. ``own`` [K,4]: of y_k,
    with itself, lam, mu and the coefficient; ``by_row`` [E]: of y_k with v(x). ``wide``, ``at`` [S+2]: work space.
    """

    factor: Reals
    part: Reals
    part_lam: Reals
    part_mu: Reals
    stiffness: Reals
    own: Reals
    by_row: Reals
    wide: Reals
    at: Ints


Way: TypeAlias = tuple[Point, Reals, Reals]
"""Work space of a step: what the dual function computes, the step, and the point that is tried."""


@compiled
def _dual(claim: Relaxation, box: Box, free_mu: bool, tau: float, theta: Reals, at: Point) -> float:
    """The dual function, with logarithmic barriers of weight tau; -inf outside its domain. Fills ``at``.

    With tau = 0 it is what theta proves, up to rounding.
    """
    rows, worth, gamma, rho, N, n, sign, _, _, _, _, _ = claim
    low, high, kind, aim, B = box
    coefficient, d, room, height = at
    S = len(rho)
    lam = theta[S]
    mu = theta[S + 1]
    if lam <= 0.0 or mu <= 0.0:
        return -np.inf
    total = -mu * B
    if tau > 0.0:
        total += tau * np.log(lam)
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
            if N[e] > 0.0:
                height[e] = np.log(c) + base
                gained += N[e] * (1.0 + height[e])
            elif tau > 0.0:
                barrier += np.log(c)
        total += tau * barrier
        if chord:
            total += mu * gained
        else:
            coefficient[s] += mu / scale * gained
    for s in range(S):
        if tau > 0.0:
            least, d[s], _ = _in_box(coefficient[s], low[s], high[s], tau)
        else:
            d[s] = low[s] if coefficient[s] >= 0.0 else high[s]
            least = coefficient[s] * d[s]
        total += least
    return total


@compiled
def _proved(claim: Relaxation, box: Box, theta: Reals, at: Point) -> float:
    """What theta proves: the compiled twin of `worst_case.certificate.dual_bound`, rounding included."""
    rows, worth, gamma, rho, N, n, sign, _, _, _, _, doubt = claim
    low, high, kind, aim, B = box
    coefficient, size, _, _ = at
    S = len(rho)
    lam = theta[S]
    mu = theta[S + 1]
    if not (lam >= 0.0 and mu > 0.0):
        return -np.inf
    total = -mu * B
    mass = mu * abs(B)
    error = lam * doubt
    for s in range(S):
        coefficient[s] = aim[s] + theta[s]
        size[s] = abs(aim[s]) + abs(theta[s])
        total -= theta[s] * rho[s]
        mass += abs(theta[s]) * rho[s]
    for k in range(len(n)):
        s = rows.state[k]
        y = theta[S + 2 + k]
        coefficient[s] -= y
        size[s] += abs(y)
        chord = kind[s] == CHORD
        scale = 1.0 if chord else high[s]
        if chord:
            if low[s] <= 0.0:
                return -np.inf
            slope = _slope(low[s], high[s])
            coefficient[s] += mu * n[k] * slope
            size[s] += mu * n[k] * slope
            total += mu * n[k] * (np.log(low[s]) - slope * low[s])
            mass += mu * n[k] * (abs(np.log(low[s])) + slope * low[s])
        for e in range(rows.start[k], rows.start[k + 1]):
            push = rows.prob[k] * lam * sign * worth[e]
            flow = -rows.prob[k] * gamma * theta[rows.successor[e]]
            c = y + push + flow
            slip = 1e-15 * (abs(y) + abs(push) + abs(flow))
            if N[e] <= 0.0:
                error += high[s] * max(slip - c, 0.0)
                continue
            if not c > 2.0 * slip or c < SMALLEST or mu * N[e] < SMALLEST:
                return -np.inf
            weight = mu * N[e] / scale
            height = np.log(scale * c / (mu * n[k]))
            slack = weight * 2.0 * slip / c
            if chord:
                total += weight * (1.0 + height)
                mass += weight * (2.0 + abs(height))
                error += slack
            else:
                coefficient[s] += weight * (1.0 + height)
                size[s] += weight * (2.0 + abs(height))
                error += slack * high[s]
    for s in range(S):
        total += coefficient[s] * (low[s] if coefficient[s] >= 0.0 else high[s])
        mass += size[s] * high[s]
    total -= error + 4e-16 * (20.0 + len(N) + 2.0 * len(n) + 2.0 * S) * mass + SMALLEST
    return total if np.isfinite(total) else -np.inf


@compiled
def _gradient(claim: Relaxation, box: Box, free_mu: bool, tau: float, theta: Reals, here: Point, out: Reals) -> None:
    """The gradient [S+2+K] of the smooth dual: what the best flows at theta leave over in each constraint."""
    rows, worth, gamma, rho, N, n, sign, _, _, _, _, _ = claim
    low, high, kind, _, B = box
    S = len(rho)
    lam = theta[S]
    mu = theta[S + 1]
    for s in range(S):
        out[s] = here.d[s] - rho[s]
    by_lam = tau / lam
    by_mu = tau / mu - B
    for k in range(len(n)):
        s = rows.state[k]
        chord = kind[s] == CHORD
        scale = 1.0 if chord else high[s]
        share = 1.0 if chord else here.d[s]
        if chord and n[k] > 0.0:
            by_mu += n[k] * (np.log(low[s]) + _slope(low[s], high[s]) * (here.d[s] - low[s]))
        total = 0.0
        push = 0.0
        for e in range(rows.start[k], rows.start[k + 1]):
            if N[e] > 0.0:
                weight = share * N[e] / scale
                flow = mu * weight / here.room[e]
                by_mu += weight * here.height[e]
            else:
                flow = tau / here.room[e]
            total += flow
            push += flow * worth[e]
            out[rows.successor[e]] -= gamma * rows.prob[k] * flow
        by_lam += sign * rows.prob[k] * push
        out[S + 2 + k] = total - here.d[s]
    out[S] = by_lam
    out[S + 1] = by_mu if free_mu else 0.0


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
def _curvature(
    claim: Relaxation, box: Box, free_mu: bool, tau: float, theta: Reals, here: Point, out: Curvature
) -> bool:
    """Fill ``out`` at a point; whether the Hessian is negative definite there.

    The Hessian is a sum over states. Eliminating the y of a row adds one dyad, and the smallest value over d(s)
    another: what is left is a system in (v, lam, mu), sparse dyads in a dense matrix of S + 2 rows.
    """
    rows, worth, gamma, rho, N, n, sign, touch_start, touch, slot, slot_own, _ = claim
    low, high, kind, _, _ = box
    H, part, part_lam, part_mu, stiffness, own, by_row, wide, at = out
    S = len(rho)
    LAM = S
    MU = S + 1
    lam = theta[LAM]
    mu = theta[MU]
    H[:, :] = 0.0
    part[:] = 0.0
    H[LAM, LAM] = -tau / (lam * lam)
    H[MU, MU] = -tau / (mu * mu) if free_mu else 0.0
    first = 0
    while first < len(n):
        s = rows.state[first]
        last = first
        while last < len(n) and rows.state[last] == s:
            last += 1
        chord = kind[s] == CHORD
        scale = 1.0 if chord else high[s]
        share = 1.0 if chord else here.d[s]
        stiff = -1.0 / _in_box(here.coefficient[s], low[s], high[s], tau)[2]
        of_lam = 0.0
        of_mu = 0.0
        part[slot_own[s]] += 1.0
        for k in range(first, last):
            bend_y = 0.0
            bend_lam = 0.0
            bend_mu = 0.0
            part_y = -1.0
            if chord and n[k] > 0.0:
                of_mu += n[k] * _slope(low[s], high[s])
            by_v = -gamma * rows.prob[k]
            for e in range(rows.start[k], rows.start[k + 1]):
                x = rows.successor[e]
                by_lam = sign * rows.prob[k] * worth[e]
                per_c = 1.0 / here.room[e]
                bend = -tau * per_c * per_c
                if N[e] > 0.0:
                    weight = N[e] / scale
                    pull = mu * weight * per_c
                    bend = -share * pull * per_c
                    if free_mu:
                        mixed = share * weight * per_c
                        bend_mu += mixed
                        H[x, MU] += mixed * by_v
                        H[LAM, MU] += mixed * by_lam
                        H[MU, MU] -= share * weight / mu
                    if not chord:
                        of_mu += weight * here.height[e]
                        part_y += pull
                        part[slot[e]] += pull * by_v
                        of_lam += pull * by_lam
                bend_y += bend
                bend_lam += bend * by_lam
                by_row[e] = bend * by_v
                H[x, x] += bend * by_v * by_v
                H[x, LAM] += bend * by_v * by_lam
                H[LAM, LAM] += bend * by_lam * by_lam
            own[k, 0] = bend_y
            own[k, 1] = bend_lam
            own[k, 2] = bend_mu
            own[k, 3] = part_y
        if not free_mu:
            of_mu = 0.0
        for k in range(first, last):  # eliminate y
            count = 0
            inverse = 1.0 / own[k, 0]
            ratio = own[k, 3] * inverse
            for e in range(rows.start[k], rows.start[k + 1]):
                at[count] = rows.successor[e]
                wide[at[count]] = by_row[e]
                part[slot[e]] -= ratio * by_row[e]
                count += 1
            count = _with_prices(at, wide, count, LAM, own[k, 1], own[k, 2])
            _add_square(H, at, count, wide, -inverse)
            of_lam -= ratio * own[k, 1]
            of_mu -= ratio * own[k, 2]
            stiff -= own[k, 3] * ratio
        count = 0
        for t in range(touch_start[s], touch_start[s + 1]):  # eliminate d
            at[count] = touch[t]
            wide[at[count]] = part[t]
            count += 1
        count = _with_prices(at, wide, count, LAM, of_lam, of_mu)
        _add_square(H, at, count, wide, -1.0 / stiff)
        part_lam[s] = of_lam
        part_mu[s] = of_mu
        stiffness[s] = stiff
        first = last
    if not free_mu:
        H[MU, MU] = -1.0
    for j in range(S + 2):
        H[j, j] *= 1.0 + 1e-13
    return _factor_concave(H)


@compiled
def _with_prices(at: Reals, wide: Reals, count: int, place: int, by_lam: float, by_mu: float) -> int:
    """Append lam and mu to a sparse vector; returns its new length."""
    at[count] = place
    at[count + 1] = place + 1
    wide[place] = by_lam
    wide[place + 1] = by_mu
    return count + 2


@compiled
def _factor_concave(H: Reals) -> bool:
    """H <- R with -H = R^T R, for a negative definite H, of which the upper triangle is given (Cholesky)."""
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
    return True


@compiled
def _solve_factored(R: Reals, x: Reals) -> None:
    """x <- (R^T R)^{-1} x."""
    D = len(R)
    for i in range(D):
        x[i] /= R[i, i]
        for j in range(i + 1, D):
            x[j] -= R[i, j] * x[i]
    for i in range(D - 1, -1, -1):
        a = b = c = d = 0.0  # four sums, so that the processor need not wait for one
        j = i + 1
        while j + 3 < D:
            a += R[i, j] * x[j]
            b += R[i, j + 1] * x[j + 1]
            c += R[i, j + 2] * x[j + 2]
            d += R[i, j + 3] * x[j + 3]
            j += 4
        while j < D:
            a += R[i, j] * x[j]
            j += 1
        x[i] = (x[i] - (a + b) - (c + d)) / R[i, i]


@compiled
def _direction(claim: Relaxation, bent: Curvature, gradient: Reals, inner: Reals, step: Reals) -> float:
    """step <- the Newton step for a gradient [S+2+K]; returns what it promises.

    ``inner`` [S], a change of the coefficients of d, is overwritten by the change of d.
    """
    rows = claim.rows
    _, part, part_lam, part_mu, stiffness, own, by_row, _, _ = bent
    touch_start, touch = claim.touch_start, claim.touch
    S = len(claim.rho)
    D = S + 2
    for j in range(D):
        step[j] = gradient[j]
    promised = 0.0
    for k in range(len(claim.n)):
        s = rows.state[k]
        ratio = gradient[D + k] / own[k, 0]
        for e in range(rows.start[k], rows.start[k + 1]):
            step[rows.successor[e]] -= ratio * by_row[e]
        step[S] -= ratio * own[k, 1]
        step[S + 1] -= ratio * own[k, 2]
        inner[s] -= ratio * own[k, 3]
        promised -= ratio * gradient[D + k]
    for s in range(S):
        ratio = inner[s] / stiffness[s]
        for t in range(touch_start[s], touch_start[s + 1]):
            step[touch[t]] -= ratio * part[t]
        step[S] -= ratio * part_lam[s]
        step[S + 1] -= ratio * part_mu[s]
        promised -= ratio * inner[s]
    wide = bent.wide
    for j in range(D):
        wide[j] = step[j]
    _solve_factored(bent.factor, step)
    for j in range(D):
        promised += wide[j] * step[j]
    for s in range(S):
        total = inner[s] + part_lam[s] * step[S] + part_mu[s] * step[S + 1]
        for t in range(touch_start[s], touch_start[s + 1]):
            total += part[t] * step[touch[t]]
        inner[s] = -total / stiffness[s]
    for k in range(len(claim.n)):
        total = gradient[D + k] + own[k, 1] * step[S] + own[k, 2] * step[S + 1] + own[k, 3] * inner[rows.state[k]]
        for e in range(rows.start[k], rows.start[k + 1]):
            total += by_row[e] * step[rows.successor[e]]
        step[D + k] = -total / own[k, 0]
    return promised


@compiled
def _climb(
    claim: Relaxation, box: Box, free_mu: bool, tau: float, theta: Reals, value: float, promised: float, way: Way
) -> float:
    """Move theta along a step, in place, as far as the smooth dual rises; its value there, or -inf if not at all."""
    point, step, trial = way
    length = 1.0
    while length > 1e-12 and promised > 0.0:
        for i in range(len(theta)):
            trial[i] = theta[i] + length * step[i]
        there = _dual(claim, box, free_mu, tau, trial, point)
        if there >= value + 1e-4 * length * promised - 1e-12 * abs(value):
            copy_to(trial, theta)
            return there
        length *= 0.5
    return -np.inf


@entry
def maximise_dual(
    claim: Relaxation, box: Box, free_mu: bool, tau: float, last_tau: float, theta: Reals, limit: int
) -> tuple[bool, int, Curvature]:
    """Improve theta, in place, by Newton's method on the dual with barriers that fade from tau to last_tau.

    Returns (ended well, iterations, the last curvature). Whatever theta comes out, `worst_case.certificate` says what
    it proves.
    """
    S = len(claim.rho)
    K = len(claim.n)
    E = len(claim.N)
    point = Point(np.zeros(S), np.zeros(S), np.zeros(E), np.zeros(E))
    part, own, by_row = np.zeros(len(claim.touch)), np.empty((K, 4)), np.empty(E)
    wide, at = np.empty(S + 2), np.empty(S + 2, dtype=np.int64)
    bent = Curvature(np.empty((S + 2, S + 2)), part, np.zeros(S), np.zeros(S), np.ones(S), own, by_row, wide, at)
    gradient, step, inner = np.empty(len(theta)), np.empty(len(theta)), np.zeros(S)
    way = (point, step, np.empty(len(theta)))
    value = -np.inf
    taken = 30
    tau /= 0.15
    ended = False
    iteration = 0
    while iteration < limit:
        if taken >= 30:  # the first barrier, or the next
            if tau <= last_tau:
                ended = True
                break
            tau = max(0.15 * tau, last_tau)
            value = _dual(claim, box, free_mu, tau, theta, point)
            taken = 0
        iteration += 1
        taken += 1
        if not value > -np.inf or not _curvature(claim, box, free_mu, tau, theta, point, bent):
            break
        _gradient(claim, box, free_mu, tau, theta, point, gradient)
        inner[:] = 0.0
        promised = _direction(claim, bent, gradient, inner, step)
        if not promised >= 0.0:
            break
        there = _climb(claim, box, free_mu, tau, theta, value, promised, way)
        if there > -np.inf:
            value = there
        if there == -np.inf or promised < 0.05 * tau * S:
            taken = 30
    return ended, iteration, bent


@compiled
def _respond(
    claim: Relaxation,
    box: Box,
    tau: float,
    base: Reals,
    bent: Curvature,
    level: float,
    missing: float,
    s: int,
    sense: float,
    theta: Reals,
) -> float:
    """theta <- dual variables that bound sense d(s) on the box, with the curvature at ``base``; returns the bound.

    The aim t sense e_s changes theta by t delta, to first order, and the least loss by t^2 times a curvature: t is such
    that the loss reaches the radius, ``missing`` above what it is at base. Newton's method with the same curvature
    corrects theta, and t follows the loss. All of it costs S^2, not S^3, operations.
    """
    S = len(claim.rho)
    point = Point(np.empty(S), np.empty(S), np.empty(len(claim.N)), np.empty(len(claim.N)))
    gradient, step, trial, inner = np.zeros(len(base)), np.empty(len(base)), np.empty(len(base)), np.zeros(S)
    way = (point, step, trial)
    inner[s] = sense
    _direction(claim, bent, gradient, inner, step)
    least = missing / (box.high[s] - box.low[s])
    t = min(max(np.sqrt(2.0 * missing / max(-sense * inner[s], TINY)), least), 100.0 * least)
    mine = base.copy()
    ratio = 1.0  # the next point is base + ratio (mine - base)
    for i in range(len(base)):
        mine[i] += t * step[i]
    reached = -np.inf
    for _ in range(TURNS):
        value = -np.inf
        while value == -np.inf and (ratio > 1.05 or ratio < 0.95 or reached == -np.inf) and ratio > 1e-3:
            for i in range(len(base)):
                trial[i] = base[i] + ratio * (mine[i] - base[i])
            box.aim[s] = ratio * t * sense
            value = _dual(claim, box, False, tau, trial, point)
            if value == -np.inf:  # outside the domain: a shorter way
                ratio = np.sqrt(ratio) if ratio > 1.0 else 0.5 * ratio
        if value == -np.inf:
            break
        t *= ratio
        copy_to(trial, mine)
        for _ in range(CORRECTIONS):
            _gradient(claim, box, False, tau, mine, point, gradient)
            inner[:] = 0.0
            promised = _direction(claim, bent, gradient, inner, step)
            there = _climb(claim, box, False, tau, mine, value, promised, way)
            if there == -np.inf:
                break
            value = there
            if promised < NEAR * missing:
                break
        d = point.d[s]
        found = _proved(claim, box, mine, point) / t
        if not found > reached:
            break
        reached = found
        for i in range(len(base)):
            theta[i] = mine[i] / t
        ratio = min(max(np.sqrt(missing / max(value - sense * t * d - level, TINY)), 0.2), 5.0)
        if 0.8 < ratio < 1.2:
            break
    box.aim[s] = 0.0
    return reached


@entry
def tighten(
    claim: Relaxation, box: Box, tau: float, base: Reals, bent: Curvature, missing: float, far: Reals, thetas: Reals
) -> list[tuple[int, int, float]]:
    """Move the ends of a box, in place, each by what `_respond` proves; stops where nothing is left of the box.

    ``base`` maximises the dual with barriers of weight tau and no aim, and ``bent`` is its curvature. Upper ends first;
    lower ends only where the upper one is below ``far`` [S]. Returns the moves: (1 for an upper end, state, bound),
    with the dual variables in the rows of ``thetas``.
    """
    low, high, _, _, _ = box
    S = len(claim.rho)
    moves = [(0, 0, 0.0) for _ in range(0)]
    point = Point(np.empty(S), np.empty(S), np.empty(len(claim.N)), np.empty(len(claim.N)))
    level = _dual(claim, box, False, tau, base, point)
    for s in range(S):
        for is_upper in (1, 0):
            width = high[s] - low[s]
            if width <= 1e-9 * high[s] + SMALLEST or (is_upper == 0 and high[s] > far[s]):
                continue
            sense = -1.0 if is_upper == 1 else 1.0
            bound = sense * _respond(claim, box, tau, base, bent, level, missing, s, sense, thetas[len(moves)])
            if not (high[s] - bound if is_upper == 1 else bound - low[s]) > LEAST_GAIN * width:
                continue
            moves.append((is_upper, s, bound))
            if is_upper == 1:
                high[s] = bound
            else:
                low[s] = bound
            if low[s] > high[s]:
                return moves
    return moves
