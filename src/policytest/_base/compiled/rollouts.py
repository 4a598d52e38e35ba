"""Compiled: betting on temporal differences along rollouts, of one policy and of two."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.compiled.small import TINY, compiled, entry, first_above, largest_of, place_of

# ---------------------------------------------------------------- betting on temporal differences
# One rollout earns a sum S of weighted residuals with mean at most sign (V_q - rho.V0), and never below -L. See
# `policytest.methods.betting.run` for the proof.

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
            s = first_above(initial, 0, len(initial), u[used, 0])
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
            a = first_above(actions[s], 0, A, u[used, 0])
            k = row_of_pair[s * A + a]
            p = s * A + a
            y = only[k]
            if y < 0:
                if samples >= most:
                    break
                if is_table:
                    y = successor[first_above(cumulative, start[p], start[p + 1], u[used, 1])]
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
                residual += rows.gain[place_of(rows.start, rows.successor, k, y)]
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
# Two rollouts that stay together for as long as their policies agree. See `policytest.questions.compare` for the proof.

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
        return int(successor[first_above(cumulative, start[p], start[p + 1], u)])
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
            s = first_above(initial, 0, len(initial), u[used, 0])
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
                a = first_above(together[s], 0, 2 * A, u[used, 0])
                apart = a >= A
                a %= A
            elif phase == B_PARTS:
                a = first_above(leaving[s], 0, A, u[used, 0])
            elif b_moves:
                a = first_above(alone_b[s], 0, A, u[used, 0])
            else:
                a = first_above(alone_a[s], 0, A, u[used, 0])
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
            e = place_of(rows_start, rows_successor, k, y) if on_entries else 0
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
