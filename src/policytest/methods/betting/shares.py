"""All shares of the fitted advantages at once, where any state may follow any pair: worst paths have a closed form.

The same numbers as `PolicyBet.bet` and `BettingRun.joined` give for one share after the other, up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.rollouts import Residuals
from policytest.methods.betting.plan import NO_POLICY, SHARES, BettingPlan
from policytest.methods.betting.policy_bet import PolicyBet


def are_quick(policies: Sequence[PolicyBet]) -> bool:
    """Whether this serves: one policy of the discounted table, any state may follow, and all its rows have actions."""
    policy = policies[0]
    return (
        len(policies) == 1
        and type(policy) is PolicyBet
        and policy.task.any_successor
        and len(policy.k) == len(policy.prob)
    )


def plans_of_shares(
    policy: PolicyBet, V: FloatArray, q: FloatArray, visits: FloatArray, sign: float, rounding: float
) -> tuple[list[BettingPlan], list[float]]:
    """The bet with each of `SHARES`, and the mean of S^2 of a rollout that the model expects, in units of room^2."""
    rows, gamma, initial = policy.pool.tally.rows, policy.task.discount, policy.task.initial
    first_rows = np.flatnonzero(np.diff(rows.state, prepend=-1))  # rows come by state
    onward = gamma * V[rows.successor]
    mean = rows.sums(q * onward)
    advantage = mean - np.add.reduceat(policy.prob * mean, first_rows)[rows.state]
    base = policy.centre[rows.state] - np.outer(SHARES, advantage)  # [share, K]
    own, largest = sign * V, np.abs(V).max()
    least = np.minimum.reduceat(sign * base, first_rows, axis=1)  # [share, S]
    lowest = np.minimum(own.min(), least.min(axis=1) / (1.0 - gamma))
    size = np.abs(base).max(axis=1) / (1.0 - gamma) + largest
    B = np.minimum(0.0, least - own + gamma * lowest[:, None]) - 1e-12 * size[:, None]
    lead = sign * float(initial @ V)
    L = np.maximum(-B[:, initial > 0].min(axis=1), lead + 4.0 * rounding + 1e-9 * largest + 1e-300)
    residuals = np.repeat(base - V[rows.state], np.diff(rows.start), axis=1) + onward
    squares = (residuals / (L - lead)[:, None]) ** 2 @ visits
    parts = [Residuals(V, base[i], policy.gain, B[i]) for i in range(len(SHARES))]
    plans = [BettingPlan(part, NO_POLICY, part.B, float(L[i]), sign, lead) for i, part in enumerate(parts)]
    return plans, [float(square) for square in squares]
