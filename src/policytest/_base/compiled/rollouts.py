"""Compiled: betting on temporal differences along rollouts of one policy, and what their bets are fitted with."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.arrays import FloatArray as Reals
from policytest._base.compiled.small import (
    BETWEEN,
    BLOCK_ENDS,
    BRANCHING,
    OUT_OF_BOUNDS,
    SMALLEST_CHANCE,
    SMALLEST_WEIGHT,
    TINY,
    TOGETHER,
    WAITING,
    Draws,
    Dynamics,
    Limits,
    Residuals,
    RolloutState,
    Stakes,
    Transcript,
    called_with_records,
    coin,
    compiled,
    drawn,
    ending_at,
    entry,
    first_above,
    inlined,
    largest_of,
    one_step_later,
    place_of,
    residual,
    settled,
)
from policytest._base.rows import Rows

# ---------------------------------------------------------------- what the bets are fitted with


@entry
def shrunk_rows(rows: Rows, N: Reals, n: Reals, S: int, pair_mass: float, state_mass: float) -> Any:
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
def _follow(gamma: float, cost: Reals, onward: Reals, value: Reals) -> None:
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


@entry
def worst_paths(rows: Rows, base: Reals, V: Reals, floor: Reals, sign: float, gamma: float) -> Any:
    """[S] B with B(s) <= min(0, floor(s), least of D(s,a,x) + gamma B(x)): worst paths that may also end at the floor.

    By policy iteration over deterministic paths, with improvements used at once, to and fro; what it missed at the end
    is subtracted, so that the inequality holds whenever it ends.
    """
    S = len(V)
    K = len(base)
    B = np.minimum(floor, 0.0)
    cost = B.copy()
    onward = np.full(S, -1)
    size = largest_of(B)
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
        if missed <= 1e-12 * (size + largest_of(B)):
            break
        if round < S + 100:
            _follow(gamma, cost, onward, B)
    for s in range(S):
        B[s] = min(B[s], 0.0, floor[s]) - 2.0 * (missed + 1e-13 * size) / (1.0 - gamma)
    return B


@entry
def lowest_sums(rows: Rows, base: Reals, ends: Reals, sign: float, gamma: float, onward: IntArray) -> Any:
    """[S] W with W(s) <= ends(s) and W(s) <= sign (base + gain) + gamma W(x): the lowest sums along paths that may end.

    By policy iteration, as in `worst_paths`, from the paths ``onward`` [S], which is changed in place (-1: it ends).
    What is missed, at most 1e-4 of the largest sum, is subtracted.
    """
    S = len(ends)
    K = len(base)
    W = ends.copy()
    cost = ends.copy()
    for k in range(K):  # the paths to begin with, at the costs of now
        s = rows.state[k]
        for e in range(rows.start[k], rows.start[k + 1]):
            if rows.successor[e] == onward[s]:
                paid = sign * (base[k] + (rows.gain[e] if len(rows.gain) > 0 else 0.0))
                cost[s] = paid if cost[s] == ends[s] else min(cost[s], paid)
    _follow(gamma, cost, onward, W)
    missed = 0.0
    for round in range(S + 101):
        missed = 0.0
        close = 1e-4 * (1.0 - gamma) * largest_of(W)
        for index in range(K):
            k = index if round % 2 == 0 else K - 1 - index
            to = rows.start[k]
            least = np.inf
            for e in range(rows.start[k], rows.start[k + 1]):
                step = gamma * W[rows.successor[e]]
                if len(rows.gain) > 0:
                    step += sign * rows.gain[e]
                if step < least:
                    least = step
                    to = e
            s = rows.state[k]
            better = W[s] - sign * base[k] - least
            missed = max(missed, better)
            if better > close and round < S + 100:
                W[s] = sign * base[k] + least
                cost[s] = sign * (base[k] + (rows.gain[to] if len(rows.gain) > 0 else 0.0))
                onward[s] = rows.successor[to]
        for s in range(S):  # to end there is better
            if W[s] > ends[s]:
                missed = max(missed, W[s] - ends[s])
                if round < S + 100:
                    W[s] = ends[s]
                    cost[s] = ends[s]
                    onward[s] = -1
        if missed <= close:
            break
        if round < S + 100:
            _follow(gamma, cost, onward, W)
    for s in range(S):
        W[s] = min(W[s], ends[s]) - 2.0 * missed / (1.0 - gamma)
    return W


@inlined
def _within(value: float, low: float, high: float) -> float:
    """The value, or the end of the interval that it is beyond."""
    return min(max(value, low), high)


@inlined
def _bounded(
    dynamics: Dynamics, V: FloatArray, sign: float, s: int, y: int, before: float, reward: float, over: bool
) -> tuple[float, float, float, bool]:
    """A step where totals have bounds: (the residual, the worst that follows for each side, whether it is possible).

    V0 is kept between the bounds on what is still to come; ``before`` is what was earned before the step.
    """
    low, high, total = dynamics.total_low, dynamics.total_high, before + reward
    now = _within(V[s], low - before, high - before)
    if over:
        slack = 1e-9 * (high - low)
        return reward - now, TINY, TINY, low - slack <= total <= high + slack
    then = _within(V[y], low - total, high - total)
    above, below = min(low - total - then, 0.0), min(total + then - high, 0.0)
    least, other = (above, below) if sign > 0 else (below, above)
    return reward + then - now, least, other, True


@called_with_records
@entry
def bet(
    dynamics: Dynamics,
    side: Residuals,
    stakes: Stakes,
    draws: Draws,
    at: RolloutState,
    u: FloatArray,
    limits: Limits,
    seen: Transcript,
    other: Stakes,
) -> tuple[Any, ...]:
    """Rollouts of one policy, until the numbers ``u`` [rows, 3] or the samples run out, a bet crosses the level, or a
    refit is due.

    A rollout that is cut short goes on next time from the state that is returned; it is BETWEEN rollouts, or TOGETHER
    with itself. Each step uses one row of ``u``, for an action, a successor and a coin.

    Rollouts may serve both sides: then coins keep S >= -L and -S >= -L of the other side.
    """
    dynamics, side, stakes, draws = Dynamics(*dynamics), Residuals(*side), Stakes(*stakes), Draws(*draws)
    limits, seen, other = Limits(*limits), Transcript(*seen), Stakes(*other)
    serves_both, on_entries, has_bounds = len(other.B) > 0, len(side.gain) > 0, dynamics.total_low < dynamics.total_high
    gamma, longest, L, sign, B = dynamics.discount, dynamics.longest, stakes.L, stakes.sign, stakes.B
    phase, state, earned, weight, left, _, _, total = at
    s = int(state)
    used, steps, samples, rollouts, missing_pair, ending = 0, 0, 0, 0, -1, BLOCK_ENDS
    own_steps, cut = 0.0, 0
    while used < len(u):
        if phase == BETWEEN:
            s = first_above(dynamics.initial, 0, len(dynamics.initial), u[used, 0])
            phase, earned, left, total = TOGETHER, 0.0, longest, 0.0
            other_least = other.B[s] if serves_both else 0.0
            ended, weight, extra = coin(1.0, L, B[s], u[used, 1], other.L, other_least)
        else:
            a = first_above(dynamics.together[s], 0, dynamics.together.shape[1], u[used, 0])
            p = dynamics.real[s] * dynamics.alone_a.shape[1] + a
            k, r = dynamics.row_of_pair[p], 0.0
            y = dynamics.only[k]
            if y < 0:
                if samples >= limits.most:
                    break
                y, r = drawn(draws, p, u[used, 1])
                if y < 0:
                    ending, missing_pair = WAITING, p
                    break
                samples += 1
            seen.pair[steps], seen.x[steps] = p, y
            if len(draws.reward) > 0:
                seen.reward[steps] = r
            steps += 1
            e = place_of(dynamics.start, dynamics.successor, k, y) if on_entries else 0
            k, y = one_step_later(dynamics, s, k, y)
            least, other_least = B[y], other.B[y] if serves_both else 0.0
            if has_bounds:
                reward = r + side.base[k] + (side.gain[e] if on_entries else 0.0)
                gained, least, other_least, is_possible = _bounded(
                    dynamics, side.V, sign, s, y, total, reward, least > 0.0
                )
                total += reward
                if not is_possible:
                    ending, missing_pair = OUT_OF_BOUNDS, seen.pair[steps - 1]
                    break
            else:
                gained = residual(side, gamma, s, k, y, r, e)
            earned += sign * weight * gained
            s = y
            ended, weight, extra = coin(
                gamma * weight, earned + L, least, u[used, 2], other.L - earned, other_least if serves_both else 0.0
            )
            if longest > 0.0 and not ended:
                left -= 1.0
                if left <= 0.0:  # ended at its worst
                    ended, cut, extra = True, cut + 1, weight * least
        used += 1
        if not ended:
            continue
        mirrored = 0.0
        if serves_both:  # where a rollout ends at its worst, that is another end for each side
            at_worst = weight < SMALLEST_WEIGHT or (longest > 0.0 and left <= 0.0)
            mirrored = (weight * min(other_least, 0.0) if at_worst else 0.0) - earned
            seen.mirrored[rollouts] = mirrored
        earned += extra
        seen.sums[rollouts] = earned
        rollouts += 1
        own_steps += longest - left if left > 0.0 else 0.0
        phase = BETWEEN
        ending = ending_at(settled(stakes, earned), settled(other, mirrored), samples, limits)
        if ending != BLOCK_ENDS:
            break
    after = phase, float(s), earned, weight, left, -1.0, 0.0, total
    return ending, used, steps, samples, rollouts, missing_pair, after, own_steps, cut


# ---------------------------------------------------------------- rollouts that branch


@compiled
def _worst_of(branches: FloatArray, n: int, B: FloatArray) -> float:
    """The worst of the first n branches together; 0 on a side that rollouts do not serve."""
    total = 0.0
    for j in range(min(n, len(B) * n)):
        total += branches[j, 1] * B[int(branches[j, 0])]
    return total


@inlined
def _pieces(
    weight: float, target: float, most: int, budgets: tuple[float, float], worst: tuple[float, float], u: float
) -> tuple[int, float, bool]:
    """How a branch goes on: (in how many pieces, 0 if it ends; its weight; whether it ends at its worst).

    Splits and coins hold the weight of a piece near the target. A coin keeps the ``budgets`` of both sides, the room
    that is left above the ``worst`` of the other branches; that of a side that is not bet on is 0.
    """
    pieces = min(int(np.rint(weight / target)), most)
    if pieces > 1:
        return pieces, weight, False
    if worst[0] < 0.0:
        target = min(target, budgets[0] / -worst[0])
    if worst[1] < 0.0:
        target = min(target, budgets[1] / -worst[1])
    chance = min(1.0, max(SMALLEST_CHANCE, weight / max(target, TINY)))
    weight /= chance
    goes_on = u < chance
    at_worst = goes_on and weight < SMALLEST_WEIGHT
    return (1 if goes_on and not at_worst else 0), weight, at_worst


@called_with_records
@entry
def branch(
    dynamics: Dynamics,
    side: Residuals,
    targets: FloatArray,
    stakes: Stakes,
    draws: Draws,
    branches: FloatArray,
    at: RolloutState,
    u: FloatArray,
    limits: Limits,
    seen: Transcript,
    other: Stakes,
) -> tuple[Any, ...]:
    """Rollouts of one policy whose weights are held near ``targets`` by splits and coins; the rest is as in `bet`.

    ``branches`` [M,2] are the place and the weight of the open branches; the last one moves. Where rollouts serve both
    sides, coins keep the sums of both in their ranges. The proof: `policytest.payoffs.splitting`.
    """
    dynamics, side, stakes, draws = Dynamics(*dynamics), Residuals(*side), Stakes(*stakes), Draws(*draws)
    limits, seen, other = Limits(*limits), Transcript(*seen), Stakes(*other)
    serves_both, on_entries = len(other.B) > 0, len(side.gain) > 0
    gamma, longest, L, sign, B = dynamics.discount, dynamics.longest, stakes.L, stakes.sign, stakes.B
    phase, state, earned, mirrored, left = at[0], at[1], at[2], at[3], at[4]
    n = int(state) if phase == BRANCHING else 0
    reserve = _worst_of(branches, n, B)  # the worst of all open branches together, for each side
    other_reserve = _worst_of(branches, n, other.B)
    used, steps, samples, rollouts, missing_pair, ending = 0, 0, 0, 0, -1, BLOCK_ENDS
    own_steps, cut = 0.0, 0
    while used < len(u):
        if phase == BETWEEN:
            y = first_above(dynamics.initial, 0, len(dynamics.initial), u[used, 0])
            phase, earned, mirrored, weight, left = BRANCHING, 0.0, 0.0, 1.0, longest
            reserve, other_reserve = 0.0, 0.0
        else:
            s, weight = int(branches[n - 1, 0]), branches[n - 1, 1]
            a = first_above(dynamics.alone_a[s], 0, dynamics.alone_a.shape[1], u[used, 0])
            p = dynamics.real[s] * dynamics.alone_a.shape[1] + a
            k, r = dynamics.row_of_pair[p], 0.0
            y = dynamics.only[k]
            if y < 0:
                if samples >= limits.most:
                    break
                y, r = drawn(draws, p, u[used, 1])
                if y < 0:
                    ending, missing_pair = WAITING, p
                    break
                samples += 1
            seen.pair[steps], seen.x[steps] = p, y
            if len(draws.reward) > 0:
                seen.reward[steps] = r
            steps += 1
            if on_entries:
                r += side.gain[place_of(dynamics.start, dynamics.successor, k, y)]
            k, y = one_step_later(dynamics, s, k, y)
            n -= 1
            reserve = reserve - weight * B[s] if n > 0 else 0.0
            if serves_both:
                other_reserve = other_reserve - weight * other.B[s] if n > 0 else 0.0
            gained = sign * weight * (r + side.base[k] + gamma * side.V[y] - side.V[s])
            earned += gained
            mirrored -= gained
            weight *= gamma
            left -= 1.0
        least, other_least = B[y], min(other.B[y], 0.0) if serves_both else 0.0
        if least <= 0.0:  # something follows
            budgets = earned + L + reserve, mirrored + other.L + other_reserve
            pieces, weight, at_worst = _pieces(
                weight, targets[y], len(branches) - n, budgets, (least, other_least), u[used, 2]
            )
            if at_worst:
                earned += weight * least
                mirrored += weight * other_least
            if pieces > 0:
                reserve += weight * least
                other_reserve += weight * other_least
            for j in range(n, n + pieces):
                branches[j, 0], branches[j, 1] = y, weight / pieces
            n += pieces
        if longest > 0.0 and left <= 0.0 and n > 0:  # all end at their worst
            earned += reserve
            mirrored += other_reserve
            n, cut = 0, cut + 1
        used += 1
        if n > 0:
            continue
        seen.sums[rollouts] = earned
        if serves_both:
            seen.mirrored[rollouts] = mirrored
        rollouts += 1
        own_steps += (longest - left) * (left > 0.0)  # none of one that was cut
        phase = BETWEEN
        ending = ending_at(settled(stakes, earned), settled(other, mirrored), samples, limits)
        if ending != BLOCK_ENDS:
            break
    after = phase, float(n), earned, mirrored if serves_both else 0.0, left, -1.0, 0.0, 0.0
    return ending, used, steps, samples, rollouts, missing_pair, after, own_steps, cut
