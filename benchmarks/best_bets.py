"""How few transitions bets on rollouts could take, if the kernel and so the gap were known: what is left to gain.

A rollout of `policytest.payoffs.td_rollouts` has a sum S, a state s and a weight w. With y = S + L, what a full bet has
left, only u = w/y matters: a step makes y (1 + u D) of y and gamma u/(1 + u D) of u, and u may be anything from 0, the
end, to 1/-B(s). A coin mixes two values of u with the same mean. So the largest growth of the capital, less a price k
for each draw, solves

    J(s, u) = E[log(1 + u D) + cav J(x, gamma u/(1 + u D))] - k,     J(s, 0) = 0,

cav J the smallest concave function of u above J: coins reach it, and only it. A rollout that starts with u wins
-log(1 - u lead) before its first step: a fraction f of the largest bet is a smaller u. The growth a draw of the best
bets is the price k at which the best start is worth nothing; log(1/delta) over it is how many draws they take.

Nobody has these bets: they know V0, the gap and the law of S. Splits are left out, and may do better where draws say
little in most states. The share of the advantages in D is the best of `SHARES`.
"""

from __future__ import annotations

import math
from typing import Any

import numba
import numpy as np

import policytest as pt
from policytest._base.arrays import FloatArray
from policytest.payoffs.plan import SHARES

POINTS = 48  # at which u is tried
MOST_SWEEPS = 4000
PRECISION = 1.005  # of the price


@numba.njit(cache=True)
def concave(t: FloatArray, y: FloatArray, hull: Any) -> None:
    """Replace y [J], on the points t, by the smallest concave function above it; ``hull`` [J] is room for indices."""
    n = 0
    for i in range(len(t)):
        while n >= 2:
            a, b = hull[n - 2], hull[n - 1]
            if (y[b] - y[a]) * (t[i] - t[a]) > (y[i] - y[a]) * (t[b] - t[a]):
                break
            n -= 1
        hull[n] = i
        n += 1
    for k in range(n - 1):
        a, b = hull[k], hull[k + 1]
        for i in range(a + 1, b):
            y[i] = y[a] + (y[b] - y[a]) * (t[i] - t[a]) / (t[b] - t[a])


@numba.njit(cache=True)
def sweep(J: Any, t: Any, chance: Any, D: Any, x: Any, count: Any, largest: Any, cost: Any, gamma: float) -> float:
    """One sweep of value iteration over all states, in place; the largest change. J is on u = t^2 largest(s)."""
    S, points = J.shape
    squares, new, hull, changed = t * t, np.empty(points), np.empty(points, dtype=np.int64), 0.0
    for s in range(S):
        if count[s] == 0:
            continue
        new[0] = 0.0
        for j in range(1, points):
            u, total = squares[j] * largest[s], -cost[s]
            for i in range(count[s]):
                factor = max(1.0 + u * D[s, i], 1e-12)
                to = x[s, i]
                total += chance[s, i] * np.log(factor)
                if count[to] > 0:
                    place = min(np.sqrt(gamma * u / factor / largest[to]), 1.0) * (points - 1)
                    low = min(int(place), points - 2)
                    part = (place * place - low * low) / (2.0 * low + 1.0)  # between squares
                    total += chance[s, i] * (J[to, low] + part * (J[to, low + 1] - J[to, low]))
            new[j] = total
        concave(squares, new, hull)
        for j in range(points):
            changed = max(changed, abs(new[j] - J[s, j]))
            J[s, j] = new[j]
    return changed


def residuals(instance: pt.instances.Instance, threshold: float, share: float) -> tuple[FloatArray, Any, float]:
    """D [S,A,S] with the true values and this share of the true advantages; where it is allowed; the lead."""
    task, p = instance.task, np.asarray(instance.kernel)
    V, gamma, S = pt.state_values(task, p), task.discount, task.n_states
    sign = 1.0 if float(task.initial @ V) > threshold else -1.0
    reward = task.rewards if task.rewards.ndim == 3 else np.repeat(task.rewards[:, :, None], S, axis=2)
    known = task.rewards if task.rewards.ndim == 2 else np.zeros(task.policy.shape)
    after = (p * (reward + gamma * V)).sum(axis=2) - known
    eta = known - (task.policy * known).sum(axis=1, keepdims=True)
    eta = eta + share * (after - (task.policy * after).sum(axis=1, keepdims=True))
    support = np.ones(p.shape, bool) if task.support is None else np.asarray(task.support, bool)
    D = sign * (reward - eta[:, :, None] + gamma * V - V[:, None, None])
    return D, support & (task.policy > 0)[:, :, None], sign * (float(task.initial @ V) - threshold)


def worst_sums(D: FloatArray, allowed: Any, gamma: float) -> FloatArray:
    """[S] B, the worst sum along any allowed path."""
    B = np.zeros(len(D))
    while True:
        new = np.minimum(0.0, np.where(allowed, D + gamma * B, np.inf).min(axis=(1, 2)))
        if np.abs(new - B).max() <= 1e-10 * (1.0 + np.abs(B).max()):
            return np.asarray(new - 1e-9 * (1.0 + np.abs(B).max()))
        B = new


def transitions_if_known(instance: pt.instances.Instance, threshold: float, delta: float) -> float:
    """log(1/delta) over the growth a draw of the best bets."""
    return min(_transitions(instance, threshold, delta, share) for share in SHARES)


def _transitions(instance: pt.instances.Instance, threshold: float, delta: float, share: float) -> float:
    task, p, gamma, S = instance.task, np.asarray(instance.kernel), instance.task.discount, instance.task.n_states
    D, allowed, lead = residuals(instance, threshold, share)
    largest, law = 1.0 / -worst_sums(D, allowed, gamma), task.policy[:, :, None] * p
    closed = np.array([(p[s, task.policy[s] > 0, s] > 1 - 1e-12).all() for s in range(S)])
    width = max(int((law[s] > 0).sum()) for s in range(S))
    chance, gains, x = np.zeros((S, width)), np.zeros((S, width)), np.zeros((S, width), dtype=np.int64)
    count = np.where(closed, 0, [(law[s] > 0).sum() for s in range(S)])
    for s in np.flatnonzero(~closed):
        a, to = np.nonzero(law[s] > 0)
        chance[s, : count[s]], gains[s, : count[s]], x[s, : count[s]] = law[s, a, to], D[s, a, to], to
    drawn = np.array([float((allowed[s].sum(axis=1) > 1).any()) for s in range(S)])  # known rows cost nothing
    t, starts = np.linspace(0.0, 1.0, POINTS + 1), np.flatnonzero(task.initial > 0)
    first = np.linspace(0.0, 1.0, 400)[1:] ** 2 * largest[starts].min()
    first = first[first * lead < 1.0]

    def is_worth(price: float) -> bool:
        """Whether the best start is worth something at this price. From 0, which is too much, J falls."""
        J = np.zeros((S, POINTS + 1))
        for _ in range(MOST_SWEEPS):
            changed = sweep(J, t, chance, gains, x, count, largest, price * drawn, gamma)
            worth = -np.log1p(-first * lead)
            for s in starts:
                worth = worth + task.initial[s] * np.interp(first / largest[s], t * t, J[s])
            if worth.max() <= 0:
                return False
            if changed <= 1e-4 * price:
                break
        return True

    low, high = 1e-9, 10.0
    while high > PRECISION * low:
        price = math.sqrt(low * high)
        low, high = (price, high) if is_worth(price) else (low, price)
    return math.log(1.0 / delta) / math.sqrt(low * high)
