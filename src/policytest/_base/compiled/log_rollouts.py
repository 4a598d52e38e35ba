"""Compiled: rollouts on a log, which own their draws; the proof is in `policytest.payoffs.log_rollouts`."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.small import (
    SMALLEST_WEIGHT,
    chance_of,
    compiled,
    entry,
    evidence_of,
    first_above,
    place_of,
    settle_again,
    stake,
)


class LogPlans(NamedTuple):
    """What rollouts on a log are launched with; one line for each time at which the model was fitted."""

    V: FloatArray  # [n,S]
    base: FloatArray  # [n,K]
    B: FloatArray  # [n,S]
    L: FloatArray  # [n]
    lead: FloatArray  # [n]
    fractions: FloatArray  # [n,F]
    splits: FloatArray  # [n,K] draws that a visit of a pair averages
    least: FloatArray  # [n,K] the least residual of a pair
    largest: FloatArray  # [n,K] the largest one, at least 0
    needed: FloatArray  # [n,K] draws of a pair that a rollout is expected to need


class LogDynamics(NamedTuple):
    """Where rollouts on a log go."""

    start: IntArray  # [K+1] of the rows
    successor: npt.NDArray[np.int32]  # [E]
    gain: FloatArray  # [E] the reward on the successor, or empty
    state: IntArray  # [K]
    row: IntArray  # [S,A]
    only: IntArray  # [K] the successor of known rows, -1 for the others
    ends: npt.NDArray[np.bool_]  # [S] terminal states
    initial: FloatArray  # [S] running sums of rho
    policy: FloatArray  # [S,A] running sums
    discount: float
    sign: float
    largest_weight: float
    stock: float  # a rollout stores at most this many times the draws that it is expected to need


class OpenRollouts(NamedTuple):
    """The unfinished rollouts of each set of coins [C], at most M of them, with the draws that they own."""

    coins: npt.NDArray[np.uint64]  # [C] the state of the random numbers
    n_open: IntArray  # [C]
    order: IntArray  # [C,M] by age
    plan: IntArray  # [C,M]
    row: IntArray  # [C,M] the row whose draw it uses next
    earned: FloatArray  # [C,M] S
    weight: FloatArray  # [C,M]
    left: FloatArray  # [C,M] of the present visit: the share of the residual that is still to come
    split: FloatArray  # [C,M] of the present visit: the draws that it averages
    worst: FloatArray  # [C,M] the least sum at which it can end
    stored: IntArray  # [C,M,K] draws that it owns and has not used
    first: IntArray  # [C,M,K] the place of the first one
    draws: npt.NDArray[np.int32]  # [C,M,K,Q]
    capital: FloatArray  # [C,F+1]


@compiled
def _uniform(coins: npt.NDArray[np.uint64], c: int) -> float:
    """The next random number of a set of coins, in [0, 1): a counter and a hash (splitmix64)."""
    coins[c] += np.uint64(0x9E3779B97F4A7C15)
    z = coins[c]
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    z = z ^ (z >> np.uint64(31))
    return float(z >> np.uint64(11)) * 1.1102230246251565e-16


@compiled
def _go(where: LogDynamics, plans: LogPlans, at: OpenRollouts, c: int, j: int) -> bool:
    """Go on with a rollout as far as its own draws reach; whether it has ended."""
    p, sign, gamma, Q = at.plan[c, j], where.sign, where.discount, at.draws.shape[3]
    V, B, L = plans.V[p], plans.B[p], plans.L[p]
    while True:
        k = at.row[c, j]
        s, known = where.state[k], where.only[k] >= 0
        if known:
            x = where.only[k]
        elif at.stored[c, j, k] > 0:
            x = at.draws[c, j, k, at.first[c, j, k]]
            at.first[c, j, k] = (at.first[c, j, k] + 1) % Q
            at.stored[c, j, k] -= 1
        else:
            break
        D = plans.base[p, k] + gamma * V[x] - V[s]
        if len(where.gain) > 0:
            D += where.gain[place_of(where.start, where.successor, k, x)]
        D *= sign
        if at.left[c, j] == 1.0:
            whole = np.floor(plans.splits[p, k])
            more = _uniform(at.coins, c) < plans.splits[p, k] - whole
            at.split[c, j] = 1.0 if known else whole + (1.0 if more else 0.0)
        share = 1.0 / at.split[c, j]
        if at.left[c, j] > 1.0001 * share:  # one of several draws: is there room for the worst of the others?
            least = share * plans.least[p, k] + B[s] - (1.0 - at.left[c, j] + share) * plans.largest[p, k]
            if at.earned[c, j] + at.weight[c, j] * least >= -L:
                at.earned[c, j] += at.weight[c, j] * share * D
                at.left[c, j] -= share
                continue
        at.earned[c, j] += at.weight[c, j] * at.left[c, j] * D
        at.left[c, j] = 1.0
        budget, weight = at.earned[c, j] + L, gamma * at.weight[c, j]
        if where.ends[x]:
            at.earned[c, j] += weight * B[x]  # 0 but for the rounding of V0
            return True
        chance = chance_of(weight, min(budget, where.largest_weight * -B[x]), B[x])
        if _uniform(at.coins, c) >= chance:
            return True
        at.weight[c, j] = weight / chance
        if at.weight[c, j] < SMALLEST_WEIGHT:
            at.earned[c, j] += at.weight[c, j] * B[x]
            return True
        at.row[c, j] = where.row[x, first_above(where.policy[x], 0, where.policy.shape[1], _uniform(at.coins, c))]
    return False


@compiled
def _launched(where: LogDynamics, plans: LogPlans, at: OpenRollouts, c: int, now: int) -> tuple[int, float]:
    """A new rollout, with the latest plan: its place, or -1 if it ends at once, and the least sum it can end at."""
    s = first_above(where.initial, 0, len(where.initial), _uniform(at.coins, c))
    L, B = plans.L[now], plans.B[now, s]
    chance = chance_of(1.0, min(L, where.largest_weight * -B), B)
    if where.ends[s]:
        return -1, B
    if _uniform(at.coins, c) >= chance:
        return -1, 0.0
    j = int(at.order[c, at.n_open[c]])  # behind those that are open are the free places
    at.n_open[c] += 1
    at.plan[c, j], at.earned[c, j], at.weight[c, j], at.left[c, j] = now, 0.0, 1.0 / chance, 1.0
    at.row[c, j] = where.row[s, first_above(where.policy[s], 0, where.policy.shape[1], _uniform(at.coins, c))]
    at.stored[c, j, :] = 0
    at.worst[c, j] = at.weight[c, j] * B
    return j, at.worst[c, j]


@compiled
def _owner(where: LogDynamics, plans: LogPlans, at: OpenRollouts, c: int, k: int, now: int) -> int:
    """Who is given a draw of row k: the oldest rollout that waits for it, or the one that has stored least; or -1."""
    best, least = -1, where.stock * plans.needed[now, k]
    for i in range(at.n_open[c]):
        j = at.order[c, i]
        if at.stored[c, j, k] == 0 and at.row[c, j] == k:
            return j
        if at.stored[c, j, k] < min(least, at.draws.shape[3]):
            best, least = j, at.stored[c, j, k]
    return best


@entry
def _follow_log(
    where: LogDynamics, plans: LogPlans, now: int, at: OpenRollouts, k: IntArray, x: IntArray, looks: IntArray
) -> tuple[FloatArray, IntArray, FloatArray, IntArray]:
    """Rows of a log, one after the other, for each set of coins.

    (the evidence [C, looks] at these numbers of rows, the plans [C, .] and the sums [C, .] of the rollouts that ended,
    how many [C] ended.)
    """
    where, plans, at = LogDynamics(*where), LogPlans(*plans), OpenRollouts(*at)
    M, C = at.order.shape[1], len(at.coins)
    seen, settled = np.zeros((C, len(looks))), np.zeros(C, dtype=np.int64)
    settled_plan, settled_sum = np.zeros((C, 2 * len(k) + 1), dtype=np.int64), np.zeros((C, 2 * len(k) + 1))
    for c in range(C):
        look = 0
        capital = at.capital[c]
        for t in range(len(k)):
            if k[t] >= 0:
                j = _owner(where, plans, at, c, k[t], now)
                if j < 0 and at.n_open[c] < M and plans.needed[now, k[t]] > 0.0:
                    j, worst = _launched(where, plans, at, c, now)
                    lead = plans.lead[now]
                    stake(capital, plans.fractions[now], (lead + worst) / (plans.L[now] - lead))
                    if j < 0:
                        settled_plan[c, settled[c]], settled_sum[c, settled[c]] = now, worst
                        settled[c] += 1
                    else:
                        at.first[c, j, :] = 0
                if j >= 0:
                    place = (at.first[c, j, k[t]] + at.stored[c, j, k[t]]) % at.draws.shape[3]
                    at.draws[c, j, k[t], place] = x[t]
                    at.stored[c, j, k[t]] += 1
                    if at.row[c, j] == k[t] or where.only[at.row[c, j]] >= 0:
                        ended = _go(where, plans, at, c, j)
                        p, row = at.plan[c, j], at.row[c, j]
                        worst = at.earned[c, j]
                        if not ended:
                            missing = (1.0 - at.left[c, j]) * plans.largest[p, row]
                            worst += at.weight[c, j] * (plans.B[p, where.state[row]] - missing)
                        lead = plans.lead[p]
                        room = plans.L[p] - lead
                        before, after = (lead + at.worst[c, j]) / room, (lead + worst) / room
                        settle_again(capital, plans.fractions[p], before, after)
                        at.worst[c, j] = worst
                        if ended:
                            settled_plan[c, settled[c]], settled_sum[c, settled[c]] = p, worst
                            settled[c] += 1
                            at.n_open[c] -= 1
                            i = 0
                            while at.order[c, i] != j:
                                i += 1
                            for later in range(i, at.n_open[c]):
                                at.order[c, later] = at.order[c, later + 1]
                            at.order[c, at.n_open[c]] = j
            if look < len(looks) and t + 1 == looks[look]:
                seen[c, look] = evidence_of(capital)
                look += 1
    return seen, settled_plan, settled_sum, settled


def follow_log(
    where: LogDynamics, plans: LogPlans, now: int, at: OpenRollouts, k: IntArray, x: IntArray, looks: IntArray
) -> tuple[FloatArray, list[IntArray], list[FloatArray]]:
    """`_follow_log` by names: the evidence at each look [C, looks], and the rollouts that ended, for each set."""
    follow: Any = _follow_log  # numba recognises plain tuples in half the time
    seen, plan, earned, settled = follow(tuple(where), tuple(plans), now, tuple(at), k, x, looks)
    pairs = list(zip(plan, earned, settled, strict=True))
    return seen, [p[:n].copy() for p, _, n in pairs], [e[:n].copy() for _, e, n in pairs]
