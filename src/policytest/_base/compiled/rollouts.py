"""Compiled: betting on temporal differences along rollouts, of one policy and of two."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.arrays import FloatArray as Reals
from policytest._base.compiled.small import (
    TINY,
    compiled,
    entry,
    evidence_of,
    first_above,
    largest_of,
    place_of,
    settle,
    settle_again,
    stake,
)
from policytest._base.rows import Rows

# One rollout earns a sum S of weighted residuals with mean at most sign (V_q - rho.V0), and never below -L. Two
# policies stay together for as long as they agree. The proofs: `policytest.methods.betting.run`, and `.coupled`.

BLOCK_ENDS, CROSSED, WAITING, LAST_ROLLOUT, OUT_OF_BOUNDS, OTHER_CROSSED = 0, 1, 2, 3, 4, 5  # why a call ended
BETWEEN, TOGETHER, A_ALONE, B_ALONE, B_PARTS, B_NEXT, A_IN_TURN, B_IN_TURN = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0
BRANCHING = 8.0  # one policy, in several branches
LARGEST_WEIGHT, SMALLEST_WEIGHT, SMALLEST_CHANCE = 50.0, 1e-3, 0.1


class Residuals(NamedTuple):
    """What one policy bets with: the parts of r - eta + gamma V0(x) - V0(s), and its worst sums."""

    V: FloatArray  # [S] V0
    base: FloatArray  # [K] r^pi(s) - eta(s,a); without the reward where that is on the successor
    gain: FloatArray  # [E] that reward, or empty
    B: FloatArray  # [S] the worst sum along any path of this policy; positive (TINY) where nothing follows


class Stakes(NamedTuple):
    """The bets of one side, and what a rollout can win and lose."""

    fractions: FloatArray  # of the largest bet
    capital: FloatArray  # [F + 1]; changed in place
    L: float
    sign: float
    lead: float


class Dynamics(NamedTuple):
    """Where rollouts of one policy, or of two, go. A state of the start may be a copy of a state of the kernel."""

    start: IntArray  # [K+1] of the rows
    successor: npt.NDArray[np.int32]  # [E]
    row_of_pair: IntArray
    only: IntArray  # [K] the successor of known rows, -1 for the others
    real: IntArray  # the states of the kernel, of which these are copies
    initial: FloatArray  # [S] running sums of rho
    together: FloatArray  # [S,A] or [S,2A] running sums: a common action, or one that only A takes
    leaving: FloatArray  # [S,A] running sums: the action of B where A has taken one of its own
    alone_a: FloatArray  # [S,A] running sums of pi_A
    alone_b: FloatArray
    discount: float
    meets: bool  # both follow one policy once they have parted
    layer: int = 0  # with a horizon: the states of a step; the place of (t, s) is t * layer + s, that of a row t K + k
    longest: float = 0.0  # steps after which a rollout ends at its worst; 0: coins end it surely
    total_low: float = 0.0  # bounds on the total of an episode; equal: there are none
    total_high: float = 0.0


class Draws(NamedTuple):
    """Where successors come from: the rows of a table, or a stack of each pair."""

    is_table: bool
    start: IntArray
    successor: npt.NDArray[np.int32]
    cumulative: FloatArray
    at: IntArray  # the next one of each stack; changed in place
    reward: FloatArray = np.zeros(0)  # observed with each of a stack, or empty


class Limits(NamedTuple):
    """When a call ends: the level is crossed, the samples are used up, at the first end of a rollout that is due."""

    level: float
    most: int
    due: float  # samples from which on a rollout that ends is the last one


class OtherSide(NamedTuple):
    """The bet of the other side on the same rollouts: its worst sums, empty where they serve one side; its stakes."""

    B: FloatArray = np.zeros(0)
    fractions: FloatArray = np.zeros(0)
    capital: FloatArray = np.zeros(0)  # changed in place
    L: float = 0.0
    sign: float = 0.0
    lead: float = 0.0


ONE_SIDE = OtherSide()


class Transcript(NamedTuple):
    """What a call fills in: the transitions, and the sums of the rollouts that ended."""

    pair: IntArray
    x: IntArray
    sums: FloatArray
    reward: FloatArray = np.zeros(0)  # where rewards are observed
    mirrored: FloatArray = np.zeros(0)  # the sums of the other side, where rollouts serve both


class RolloutState(NamedTuple):
    """A rollout on its way; it goes on from here in the next call."""

    phase: float = BETWEEN
    state: float = 0.0  # of A, or of both; BRANCHING: the number of open branches
    earned: float = 0.0  # S
    weight: float = 0.0  # BRANCHING: the sum of the other side, where rollouts serve both
    steps_left: float = 0.0  # where they are limited
    state_b: float = -1.0
    weight_b: float = 0.0
    total: float = 0.0  # earned in the episode, where its total has bounds


class Advance(NamedTuple):
    """How far a call came."""

    ending: int
    used: int  # rows of random numbers
    steps: int  # transitions
    samples: int  # those of them that were drawn
    rollouts: int  # that ended
    wanted: int  # the pair whose draw is waited for, or -1
    at: RolloutState
    own_steps: float = 0.0  # of the rollouts that ended before their steps were used up, where these are limited
    cut: int = 0  # rollouts whose steps were used up


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


@compiled
def _settled(stakes: Stakes, earned: float) -> float:
    """Settle the bets of a rollout; the evidence."""
    return settle(stakes.capital, stakes.fractions, (stakes.lead + earned) / (stakes.L - stakes.lead))


@compiled
def _settled_other(other: OtherSide, earned: float) -> float:
    """The same for the other side; nothing where the rollout serves one."""
    if len(other.B) == 0:
        return -np.inf
    return settle(other.capital, other.fractions, (other.lead + earned) / (other.L - other.lead))


@compiled
def _ending(evidence: float, other: float, samples: int, limits: Limits) -> int:
    """Whether a call ends with the rollout that has just ended; BLOCK_ENDS: not yet.

    ``other`` is the evidence of the other side, where the rollout serves both.
    """
    if evidence >= limits.level:
        return CROSSED
    if other >= limits.level:
        return OTHER_CROSSED
    return LAST_ROLLOUT if samples >= limits.due else BLOCK_ENDS


@compiled
def _chance(weight: float, budget: float, least: float, other_budget: float = 0.0, other_least: float = 0.0) -> float:
    """The probability of going on: with the largest weight that keeps every path above -L, on both sides if need be."""
    target = LARGEST_WEIGHT
    if least < 0.0:
        target = min(target, budget / -least)
    if other_least < 0.0:
        target = min(target, other_budget / -other_least)
    return min(1.0, max(SMALLEST_CHANCE, weight / max(target, TINY)))


@compiled
def _coin(
    weight: float, budget: float, least: float, u: float, other_budget: float = 0.0, other_least: float = 0.0
) -> tuple[bool, float, float]:
    """(whether it ends here, its weight, what is added to S): going on the weight grows; tiny weights end at worst."""
    chance = _chance(weight, budget, least, other_budget, other_least)
    if u >= chance or least > 0.0:
        return True, weight, 0.0
    weight /= chance
    if weight < SMALLEST_WEIGHT:
        return True, weight, weight * least
    return False, weight, 0.0


@compiled
def _within(value: float, low: float, high: float) -> float:
    """The value, or the end of the interval that it is beyond."""
    return min(max(value, low), high)


@compiled
def _drawn(draws: Draws, pair: int, u: float) -> tuple[int, float]:
    """What follows a pair, and the observed reward; -1 where its stack is empty."""
    if draws.is_table:
        return draws.successor[first_above(draws.cumulative, draws.start[pair], draws.start[pair + 1], u)], 0.0
    at = draws.at[pair]
    if at == draws.start[pair + 1]:
        return -1, 0.0
    draws.at[pair] += 1
    return draws.successor[at], draws.reward[at] if len(draws.reward) > 0 else 0.0


@entry
def _bet(
    dynamics_of: tuple[Any, ...],
    sides: tuple[Any, ...],
    B: FloatArray,
    stakes_of: tuple[Any, ...],
    draws_of: tuple[Any, ...],
    at: tuple[float, ...],
    u: FloatArray,
    limits_of: tuple[Any, ...],
    seen_of: tuple[Any, ...],
    other_of: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Rollouts, until the numbers ``u`` [rows, 3] or the samples run out, a bet crosses the level, or a refit is due.

    ``B`` are the worst sums of two policies together; one policy alone is always TOGETHER, and ``side_b`` is empty. A
    rollout that is cut short goes on next time from the state that is returned. Each step uses one row of ``u``, for an
    action, a successor and a coin.

    The phases: BETWEEN rollouts; TOGETHER; B_PARTS: A has left and B takes its own action; A_ALONE; B_NEXT: the coin of
    B; B_ALONE. Where they may meet again both move in turn once they have parted, with one weight and one coin,
    A_IN_TURN and B_IN_TURN, until they meet.

    Rollouts of one policy may serve both sides: then coins keep S >= -L and -S >= -L of the other side.
    """
    dynamics, stakes, draws = Dynamics(*dynamics_of), Stakes(*stakes_of), Draws(*draws_of)
    limits, seen, other = Limits(*limits_of), Transcript(*seen_of), OtherSide(*other_of)
    serves_both = len(other.B) > 0
    side_a, side_b = Residuals(*sides[0]), Residuals(*sides[1])
    gamma, L, sign, layer = dynamics.discount, stakes.L, stakes.sign, dynamics.layer
    low, high, observed = dynamics.total_low, dynamics.total_high, len(draws.reward) > 0
    B_a, B_b, A = side_a.B, side_b.B, dynamics.alone_a.shape[1]
    are_two, on_entries = len(side_b.V) > 0, len(side_a.gain) > 0 or len(side_b.gain) > 0
    phase, state, earned, weight, left, state_b, weight_b, total = at
    at_a, at_b = int(state), int(state_b)
    used, steps, samples, rollouts, wanted, ending = 0, 0, 0, 0, -1, BLOCK_ENDS
    own_steps, cut = 0.0, 0
    while used < len(u):
        ended, extra, other_least, mirrored = False, 0.0, 0.0, 0.0
        if phase == BETWEEN:
            at_a, at_b = first_above(dynamics.initial, 0, len(dynamics.initial), u[used, 0]), -1
            phase, earned, weight, weight_b, left, total = TOGETHER, 0.0, 1.0, 0.0, dynamics.longest, 0.0
            other_least = other.B[at_a] if serves_both else 0.0
            ended, weight, extra = _coin(weight, L, B[at_a], u[used, 1], other.L, other_least)
        elif phase == B_NEXT:
            ended, weight_b, extra = _coin(weight_b, earned + L, B_b[at_b], u[used, 2])
            phase = B_ALONE
        else:
            s, apart, b_moves = at_a, False, False
            if phase == TOGETHER:
                a = first_above(dynamics.together[s], 0, dynamics.together.shape[1], u[used, 0])
                apart = a >= A
                a -= A if apart else 0
            elif phase in (B_ALONE, B_PARTS, B_IN_TURN):
                s, b_moves = at_b, True
                law = dynamics.leaving if phase == B_PARTS else dynamics.alone_b
                a = first_above(law[s], 0, A, u[used, 0])
            else:
                a = first_above(dynamics.alone_a[s], 0, A, u[used, 0])
            p = dynamics.real[s] * A + a
            k = dynamics.row_of_pair[p]
            y = dynamics.only[k]
            r = 0.0  # observed
            if y < 0:
                if samples >= limits.most:
                    break
                y, r = _drawn(draws, p, u[used, 1])
                if y < 0:
                    ending, wanted = WAITING, p
                    break
                samples += 1
            seen.pair[steps], seen.x[steps] = p, y
            if observed:
                seen.reward[steps] = r
            steps += 1
            e = place_of(dynamics.start, dynamics.successor, k, y) if on_entries else 0
            if layer > 0:
                k += s // layer * (len(dynamics.start) - 1)
                y += (s // layer + 1) * layer
            of_a, of_b = r, r  # r - eta + gamma V0(y) - V0(s) of each
            if b_moves:
                of_a = 0.0
            else:
                of_a += side_a.base[k] + gamma * side_a.V[y] - side_a.V[s]
                if len(side_a.gain) > 0:
                    of_a += side_a.gain[e]
            if b_moves or (are_two and phase == TOGETHER and not apart):
                of_b += side_b.base[k] + gamma * side_b.V[y] - side_b.V[s]
                if len(side_b.gain) > 0:
                    of_b += side_b.gain[e]
            else:
                of_b = 0.0
            least = B[y] if phase == TOGETHER else 0.0
            other_least = other.B[y] if serves_both else 0.0
            if low < high:  # V0 is kept between the bounds on what is still to come
                reward = r + side_a.base[k] + (side_a.gain[e] if len(side_a.gain) > 0 else 0.0)
                before, total = total, total + reward
                now, then = _within(side_a.V[s], low - before, high - before), 0.0
                if least > 0.0:
                    if not low - 1e-9 * (high - low) <= total <= high + 1e-9 * (high - low):
                        ending, wanted = OUT_OF_BOUNDS, p
                        break
                else:
                    then = _within(side_a.V[y], low - total, high - total)
                    least, other_least = min(low - total - then, 0.0), min(total + then - high, 0.0)
                    if sign < 0:
                        least, other_least = other_least, least
                    if not serves_both:
                        other_least = 0.0
                of_a = reward + then - now
            if b_moves:
                earned -= sign * weight_b * of_b
                at_b = y
                weight_b *= gamma
            else:
                earned += sign * weight * of_a
                earned -= sign * weight * of_b
                at_a = y
                if apart:
                    at_b, weight_b = s, weight
                weight *= gamma
            if apart:
                phase = B_PARTS
            elif phase == TOGETHER:
                ended, weight, extra = _coin(weight, earned + L, least, u[used, 2], other.L - earned, other_least)
            elif phase == B_ALONE:
                ended, weight_b, extra = _coin(weight_b, earned + L, B_b[y], u[used, 2])
            elif phase == A_IN_TURN:
                phase = B_IN_TURN
            elif dynamics.meets:
                ended = y == at_a  # the same policy from the same state on: nothing is left to differ
                if not ended:
                    ended, weight, extra = _coin(weight, earned + L, B_a[at_a] + B_b[y], u[used, 2])
                    weight_b = weight
                    phase = A_IN_TURN
            else:
                reserve = weight_b * B_b[at_b]
                over, weight, extra = _coin(weight, earned + L + reserve, B_a[at_a], u[used, 2])
                phase = B_NEXT if over else A_ALONE
            if dynamics.longest > 0.0 and not ended and phase in (TOGETHER, A_ALONE, B_ALONE):
                left -= 1.0
                if left <= 0.0:  # ended at its worst
                    ended, cut = True, cut + 1
                    if phase == TOGETHER:
                        extra = weight * least
                    else:
                        extra = weight_b * B_b[at_b] + (weight * B_a[at_a] if phase == A_ALONE else 0.0)
        if ended and serves_both:  # where a rollout ends at its worst, that is another end for each side
            at_worst = weight < SMALLEST_WEIGHT or (dynamics.longest > 0.0 and left <= 0.0)
            mirrored = (weight * min(other_least, 0.0) if at_worst else 0.0) - earned
            seen.mirrored[rollouts] = mirrored
        earned += extra
        used += 1
        if ended:
            seen.sums[rollouts] = earned
            rollouts += 1
            own_steps += dynamics.longest - left if left > 0.0 else 0.0
            phase = BETWEEN
            evidence, of_other = _settled(stakes, earned), _settled_other(other, mirrored)
            ending = _ending(evidence, of_other, samples, limits)
            if ending != BLOCK_ENDS:
                break
    after = phase, float(at_a), earned, weight, left, float(at_b), weight_b, total
    return ending, used, steps, samples, rollouts, wanted, after, own_steps, cut


def bet(
    dynamics: Dynamics,
    sides: tuple[Residuals, Residuals],
    B: FloatArray,
    stakes: Stakes,
    draws: Draws,
    at: RolloutState,
    u: FloatArray,
    limits: Limits,
    seen: Transcript,
    other: OtherSide = ONE_SIDE,
) -> Advance:
    """`_bet` by names: numba recognises plain tuples in half the time, and a simulator may be called very often."""
    plain = (tuple(part) for part in (stakes, draws, at))
    pair = tuple(sides[0]), tuple(sides[1])
    found = _bet(tuple(dynamics), pair, B, *plain, u, tuple(limits), tuple(seen), tuple(other))
    return _named(found)


def _named(found: tuple[Any, ...]) -> Advance:
    """How far a call came, by names."""
    ending, used, steps, samples, rollouts, wanted, state, own_steps, cut = found
    return Advance(ending, used, steps, samples, rollouts, wanted, RolloutState(*state), own_steps, cut)


# ---------------------------------------------------------------- rollouts that branch


@entry
def _branch(
    dynamics_of: tuple[Any, ...],
    side_of: tuple[Any, ...],
    targets: FloatArray,
    stakes_of: tuple[Any, ...],
    draws_of: tuple[Any, ...],
    at: tuple[float, ...],
    branches: FloatArray,
    u: FloatArray,
    limits_of: tuple[Any, ...],
    seen_of: tuple[Any, ...],
    other_of: tuple[Any, ...],
) -> tuple[Any, ...]:
    """Rollouts of one policy whose weights are held near ``targets`` by splits and coins; the rest is as in `_bet`.

    ``branches`` [M,2] are the place and the weight of the open branches; the last one moves. Where rollouts serve both
    sides, coins keep the sums of both in their ranges. The proof: `policytest.payoffs.splitting`.
    """
    dynamics, side, stakes = Dynamics(*dynamics_of), Residuals(*side_of), Stakes(*stakes_of)
    draws, limits, seen, other = Draws(*draws_of), Limits(*limits_of), Transcript(*seen_of), OtherSide(*other_of)
    serves_both = len(other.B) > 0
    gamma, L, sign, layer, B = dynamics.discount, stakes.L, stakes.sign, dynamics.layer, side.B
    observed, on_entries, A = len(draws.reward) > 0, len(side.gain) > 0, dynamics.alone_a.shape[1]
    phase, state, earned, mirrored, left = at[0], at[1], at[2], at[3], at[4]
    n = int(state) if phase == BRANCHING else 0
    reserve, other_reserve = 0.0, 0.0  # the worst of all open branches together, for each side
    for j in range(n):
        reserve += branches[j, 1] * B[int(branches[j, 0])]
        if serves_both:
            other_reserve += branches[j, 1] * other.B[int(branches[j, 0])]
    used, steps, samples, rollouts, wanted, ending = 0, 0, 0, 0, -1, BLOCK_ENDS
    own_steps, cut = 0.0, 0
    while used < len(u):
        if phase == BETWEEN:
            y = first_above(dynamics.initial, 0, len(dynamics.initial), u[used, 0])
            phase, earned, mirrored, weight, left = BRANCHING, 0.0, 0.0, 1.0, dynamics.longest
            reserve, other_reserve = 0.0, 0.0
        else:
            s, weight = int(branches[n - 1, 0]), branches[n - 1, 1]
            p = dynamics.real[s] * A + first_above(dynamics.alone_a[s], 0, A, u[used, 0])
            k = dynamics.row_of_pair[p]
            y = dynamics.only[k]
            residual = 0.0
            if y < 0:
                if samples >= limits.most:
                    break
                y, residual = _drawn(draws, p, u[used, 1])
                if y < 0:
                    ending, wanted = WAITING, p
                    break
                samples += 1
            seen.pair[steps], seen.x[steps] = p, y
            if observed:
                seen.reward[steps] = residual
            steps += 1
            n -= 1
            reserve = reserve - weight * B[s] if n > 0 else 0.0
            if serves_both:
                other_reserve = other_reserve - weight * other.B[s] if n > 0 else 0.0
            if on_entries:
                residual += side.gain[place_of(dynamics.start, dynamics.successor, k, y)]
            if layer > 0:
                k += s // layer * (len(dynamics.start) - 1)
                y += (s // layer + 1) * layer
            gained = sign * weight * (residual + side.base[k] + gamma * side.V[y] - side.V[s])
            earned += gained
            mirrored -= gained
            weight *= gamma
            left -= 1.0
        least, other_least = B[y], min(other.B[y], 0.0) if serves_both else 0.0
        if least <= 0.0:  # something follows
            pieces = min(int(np.rint(weight / targets[y])), len(branches) - n)
            goes_on = pieces > 1
            if not goes_on:
                pieces, most = 1, targets[y]
                if least < 0.0:
                    most = min(most, (earned + L + reserve) / -least)
                if other_least < 0.0:
                    most = min(most, (mirrored + other.L + other_reserve) / -other_least)
                chance = min(1.0, max(SMALLEST_CHANCE, weight / max(most, TINY)))
                goes_on = u[used, 2] < chance
                weight /= chance
                if goes_on and weight < SMALLEST_WEIGHT:
                    earned += weight * least
                    mirrored += weight * other_least
                    goes_on = False
            if goes_on:
                reserve += weight * least
                other_reserve += weight * other_least
                for j in range(n, n + pieces):
                    branches[j, 0], branches[j, 1] = y, weight / pieces
                n += pieces
        if dynamics.longest > 0.0 and left <= 0.0 and n > 0:  # all end at their worst
            earned += reserve
            mirrored += other_reserve
            n, cut = 0, cut + 1
        used += 1
        if n == 0:
            seen.sums[rollouts] = earned
            if serves_both:
                seen.mirrored[rollouts] = mirrored
            rollouts += 1
            own_steps += dynamics.longest - left if left > 0.0 else 0.0
            phase = BETWEEN
            evidence, of_other = _settled(stakes, earned), _settled_other(other, mirrored)
            ending = _ending(evidence, of_other, samples, limits)
            if ending != BLOCK_ENDS:
                break
    after = phase, float(n), earned, mirrored if serves_both else 0.0, left, -1.0, 0.0, 0.0
    return ending, used, steps, samples, rollouts, wanted, after, own_steps, cut


def branch(
    dynamics: Dynamics,
    side: Residuals,
    targets: FloatArray,
    stakes: Stakes,
    draws: Draws,
    at: RolloutState,
    branches: FloatArray,
    u: FloatArray,
    limits: Limits,
    seen: Transcript,
    other: OtherSide = ONE_SIDE,
) -> Advance:
    """`_branch` by names."""
    fixed = tuple(dynamics), tuple(side), targets, tuple(stakes), tuple(draws)
    found = _branch(*fixed, tuple(at), branches, u, tuple(limits), tuple(seen), tuple(other))
    return _named(found)


# ---------------------------------------------------------------- rollouts that own their draws


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
        chance = _chance(weight, min(budget, where.largest_weight * -B[x]), B[x])
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
    chance = _chance(1.0, min(L, where.largest_weight * -B), B)
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
    dynamics: tuple[Any, ...],
    plan_arrays: tuple[Any, ...],
    now: int,
    rollouts: tuple[Any, ...],
    k: IntArray,
    x: IntArray,
    looks: IntArray,
    seen: FloatArray,
    settled_plan: IntArray,
    settled_sum: FloatArray,
    settled: IntArray,
) -> None:
    """Rows of a log, one after the other, for each set of coins.

    ``looks`` are numbers of rows at which the evidence is noted in ``seen`` [C, looks]; ``settled_plan``,
    ``settled_sum`` [C, .] take the rollouts that ended, ``settled`` [C] how many.
    """
    where, plans, at = LogDynamics(*dynamics), LogPlans(*plan_arrays), OpenRollouts(*rollouts)
    M = at.order.shape[1]
    for c in range(len(at.coins)):
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


def follow_log(
    where: LogDynamics, plans: LogPlans, now: int, at: OpenRollouts, k: IntArray, x: IntArray, looks: IntArray
) -> tuple[FloatArray, list[IntArray], list[FloatArray]]:
    """`_follow_log` by names: the evidence at each look [C, looks], and the rollouts that ended, for each set."""
    C = len(at.capital)
    seen, settled = np.zeros((C, len(looks))), np.zeros(C, dtype=np.int64)
    plan, earned = np.zeros((C, 2 * len(k) + 1), dtype=np.int64), np.zeros((C, 2 * len(k) + 1))
    _follow_log(tuple(where), tuple(plans), now, tuple(at), k, x, looks, seen, plan, earned, settled)
    pairs = list(zip(plan, earned, settled, strict=True))
    return seen, [p[:n].copy() for p, _, n in pairs], [e[:n].copy() for _, e, n in pairs]
