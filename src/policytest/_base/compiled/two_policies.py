"""Compiled: betting on the difference of two policies along coupled rollouts; see `policytest.payoffs.two_policies`.

The phases: BETWEEN rollouts; TOGETHER; B_PARTS: A has left and B takes its own action; A_ALONE; B_NEXT: the coin of B;
B_ALONE. Where they may meet again both move in turn once they have parted, with one weight and one coin, A_IN_TURN and
B_IN_TURN, until they meet.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.small import (
    A_ALONE,
    A_IN_TURN,
    B_ALONE,
    B_IN_TURN,
    B_NEXT,
    B_PARTS,
    BETWEEN,
    BLOCK_ENDS,
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
    drawn,
    ending_at,
    entry,
    first_above,
    inlined,
    one_step_later,
    place_of,
    residual,
    settled,
)


@inlined
def _action(dynamics: Dynamics, phase: float, at_a: int, at_b: int, u: float) -> tuple[int, int, bool, bool]:
    """(where somebody acts, the action, whether A leaves B by it, whether it is B who acts)."""
    A = dynamics.alone_a.shape[1]
    if phase == TOGETHER:
        a = first_above(dynamics.together[at_a], 0, dynamics.together.shape[1], u)
        return at_a, a % A, a >= A, False
    if phase == B_PARTS:
        return at_b, first_above(dynamics.leaving[at_b], 0, A, u), False, True
    if phase in (B_ALONE, B_IN_TURN):
        return at_b, first_above(dynamics.alone_b[at_b], 0, A, u), False, True
    return at_a, first_above(dynamics.alone_a[at_a], 0, A, u), False, False


@inlined
def _tossed(
    meets: bool, phase: float, at: tuple[int, int], weights: tuple[float, float], held: float, worst: Any, u: float
) -> tuple[float, bool, float, float, float]:
    """The coin after a step: (the next phase, whether the rollout ends, both weights, what is added to S).

    ``held`` is S + L; ``worst`` are the worst sums of both together, of A and of B.
    """
    (at_a, at_b), (weight, weight_b), (B, B_a, B_b) = at, weights, worst
    if phase == TOGETHER:
        ended, weight, extra = coin(weight, held, B[at_a], u)
        return phase, ended, weight, weight_b, extra
    if phase == B_ALONE:
        ended, weight_b, extra = coin(weight_b, held, B_b[at_b], u)
        return phase, ended, weight, weight_b, extra
    if phase == A_IN_TURN:
        return B_IN_TURN, False, weight, weight_b, 0.0
    if not meets:
        over, weight, extra = coin(weight, held + weight_b * B_b[at_b], B_a[at_a], u)
        return (B_NEXT if over else A_ALONE), False, weight, weight_b, extra
    if at_a == at_b:  # the same policy from the same state on: nothing is left to differ
        return phase, True, weight, weight_b, 0.0
    ended, weight, extra = coin(weight, held, B_a[at_a] + B_b[at_b], u)
    return A_IN_TURN, ended, weight, weight, extra


@called_with_records
@entry
def bet(
    dynamics: Dynamics,
    side_a: Residuals,
    side_b: Residuals,
    stakes: Stakes,
    draws: Draws,
    at: RolloutState,
    u: FloatArray,
    limits: Limits,
    seen: Transcript,
) -> tuple[Any, ...]:
    """Rollouts, until the numbers ``u`` [rows, 3] or the samples run out, a bet crosses the level, or a refit is due.

    ``B`` are the worst sums of the two together. A rollout that is cut short goes on next time from the state that is
    returned. Each step uses one row of ``u``, for an action, a successor and a coin.
    """
    dynamics, side_a, side_b, stakes = Dynamics(*dynamics), Residuals(*side_a), Residuals(*side_b), Stakes(*stakes)
    draws, limits, seen, B = Draws(*draws), Limits(*limits), Transcript(*seen), stakes.B
    gamma, longest, L, sign = dynamics.discount, dynamics.longest, stakes.L, stakes.sign
    worst, on_entries = (B, side_a.B, side_b.B), len(side_a.gain) > 0 or len(side_b.gain) > 0
    phase, state, earned, weight, left, state_b, weight_b, _ = at
    at_a, at_b = int(state), int(state_b)
    used, steps, samples, rollouts, missing_pair, ending = 0, 0, 0, 0, -1, BLOCK_ENDS
    own_steps, cut = 0.0, 0
    while used < len(u):
        if phase == BETWEEN:
            at_a, at_b = first_above(dynamics.initial, 0, len(dynamics.initial), u[used, 0]), -1
            phase, earned, weight_b, left = TOGETHER, 0.0, 0.0, longest
            ended, weight, extra = coin(1.0, L, B[at_a], u[used, 1])
        elif phase == B_NEXT:
            ended, weight_b, extra = coin(weight_b, earned + L, side_b.B[at_b], u[used, 2])
            phase = B_ALONE
        else:
            s, a, apart, b_moves = _action(dynamics, phase, at_a, at_b, u[used, 0])
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
            if b_moves:
                earned -= sign * weight_b * residual(side_b, gamma, s, k, y, r, e)
                at_b, weight_b = y, gamma * weight_b
            else:
                earned += sign * weight * residual(side_a, gamma, s, k, y, r, e)
                if phase == TOGETHER and not apart:
                    earned -= sign * weight * residual(side_b, gamma, s, k, y, r, e)
                at_a = y
                if apart:
                    at_b, weight_b = s, weight
                weight *= gamma
            if apart:
                phase, ended, extra = B_PARTS, False, 0.0
            else:
                phase, ended, weight, weight_b, extra = _tossed(
                    dynamics.meets, phase, (at_a, at_b), (weight, weight_b), earned + L, worst, u[used, 2]
                )
            if longest > 0.0 and not ended and phase in (TOGETHER, A_ALONE, B_ALONE):
                left -= 1.0
                if left <= 0.0:  # ended at its worst
                    ended, cut = True, cut + 1
                    extra = weight * B[at_a] if phase == TOGETHER else weight_b * side_b.B[at_b]
                    extra += weight * side_a.B[at_a] if phase == A_ALONE else 0.0
        earned += extra
        used += 1
        if not ended:
            continue
        seen.sums[rollouts] = earned
        rollouts += 1
        own_steps += longest - left if left > 0.0 else 0.0
        phase = BETWEEN
        ending = ending_at(settled(stakes, earned), -np.inf, samples, limits)
        if ending != BLOCK_ENDS:
            break
    after = phase, float(at_a), earned, weight, left, float(at_b), weight_b, 0.0
    return ending, used, steps, samples, rollouts, missing_pair, after, own_steps, cut
