r"""Splitting: a rollout in several branches, whose draws go where they say most.

Where any pair can be drawn, a branch of weight w in state s may be split into k branches of weight w/k, each with its
own draws. With S the sum of all weighted residuals so far and (s_j, w_j) the open branches, the two properties of
`policytest.methods.betting.run` hold as before:

- *S never falls below -L.* S + L + sum_j w_j B(s_j) >= 0 holds at the start. A step keeps it: D + gamma B(x) >= B(s).
  A split keeps it: k (w/k) B(s) = w B(s). A coin keeps it: going on with probability g has the weight w/g only where
  w/g <= (S + L + the worst of all other open branches)/-B(s). At the end no branch is open.
- *The mean of S is at most sign (V_q - rho.V0)*: X = S + sum_j w_j sign (V_q - V0)(s_j) is a martingale, since a split
  does not change it.

If a draw in s has the weight z(s), a rollout with discounted visits d takes sum d/z draws and has the variance
sum d z sigma^2, sigma(s) the standard deviation of the residual. Their product, which is what a verdict costs while
bets are small, is least for z proportional to 1/sigma: (sum d sigma)^2 instead of (sum d)(sum d sigma^2). Where bets
are as large as they can be, cheap rollouts are better. So rollouts with several z = c rms/sigma, and without splits,
are simulated in the fitted model, and the growth of the capital that each draw promises decides. All of this is chosen
from the past.
"""

from __future__ import annotations

from functools import cache

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.rollouts import (
    LARGEST_WEIGHT,
    Draws,
    Dynamics,
    Limits,
    Residuals,
    RolloutState,
    Stakes,
    Transcript,
    branch,
)
from policytest.data.simulators import cumulative_rows
from policytest.methods.betting.plan import BettingPlan, expected_growth, most_promising
from policytest.methods.betting.policy_bet import PolicyBet

UNITS = (1.0, 0.5, 0.25)  # the weights z of a state with the root mean square of all residuals, to choose from
FIRST, ENTRIES_A_SAMPLE = 500, 100  # samples from which on splits are considered; where their choice costs no more
LEAST_SIGMA, LEAST_TARGET = 0.3, 0.02  # of a state, in units of the root mean square; and of z
MOST_BRANCHES = 1024  # open at once
WORTH_IT = 1.1  # times the growth of rollouts that do not split, so that noise of the simulation seldom decides
FEWEST_SIMULATED, MOST_SIMULATED = 2000, 8000  # transitions of a simulation


def split(
    bet: PolicyBet, plan: BettingPlan, v: float, dynamics: Dynamics, q: FloatArray, visits: FloatArray, samples: int
) -> tuple[BettingPlan, float]:
    """The plan with the weights to aim at, where splits promise more; and the mean of S^2, in units of room^2.

    ``visits`` [entries] are those of a rollout in the model q, and v is the mean of S^2 of one that does not split.
    """
    rows, size = bet.pool.tally.rows, len(plan.B)
    layers, noise = len(visits) // rows.n_entries, rows.per_entry(bet.reward_noise())
    place = (np.arange(layers)[:, None] * bet.task.n_states + rows.per_entry(rows.state)).ravel()
    squares, noisy = bet.residuals(plan.a.V, plan.a.base) ** 2 + np.tile(noise, layers), visits * np.tile(noise, layers)
    spent, mean = np.bincount(place, visits, minlength=size), float(visits @ squares) / float(visits.sum() or 1.0)
    if not 0 < mean < np.inf:
        return plan, v
    variance = np.bincount(place, visits * squares, minlength=size) / np.where(spent > 0, spent, 1.0)
    shape = 1.0 / np.sqrt(np.where(spent > 0, variance / mean, 1.0) + LEAST_SIGMA**2)
    targets = [np.full(size, LARGEST_WEIGHT), *(np.clip(unit * shape, LEAST_TARGET, LARGEST_WEIGHT) for unit in UNITS)]
    model = Draws(True, _starts(bet), rows.successor, cumulative_rows(rows.start, q), np.zeros(0, dtype=np.int64))
    dynamics = dynamics._replace(longest=bet.longest)
    side = plan.a._replace(base=bet.expected_base(plan.a.base), B=plan.B)
    numbers, growth, found = _numbers()[: max(FEWEST_SIMULATED, samples)], [], []
    for z in targets:
        cost, square = _simulated(plan, side, dynamics, model, z, numbers)
        found.append((square + float(noisy @ np.minimum(z, 1.0)[place])) / plan.room**2)
        growth.append(expected_growth(found[-1], plan.lead / plan.room, samples / cost) / cost)
    best = most_promising([WORTH_IT * growth[0], *growth[1:]])
    return (plan._replace(targets=targets[best]), found[best]) if best else (plan, v)


def _simulated(
    plan: BettingPlan, side: Residuals, dynamics: Dynamics, model: Draws, targets: FloatArray, numbers: FloatArray
) -> tuple[float, float]:
    """The draws of a rollout in the model, and the mean of S^2; infinitely many where none ended."""
    nothing, room = np.zeros(0), len(numbers)
    seen = Transcript(np.empty(room, dtype=np.int64), np.empty(room, dtype=np.int64), np.empty(room))
    stakes, limits = (
        Stakes(nothing, nothing, nothing, plan.L, plan.sign, plan.lead),
        Limits(np.inf, room, np.inf),
    )
    done = branch(dynamics, side, targets, stakes, model, RolloutState(), open_branches(), numbers, limits, seen)
    if not done.rollouts:
        return np.inf, np.inf
    return max(done.samples / done.rollouts, 1.0), float((seen.sums[: done.rollouts] ** 2).mean())


def open_branches() -> FloatArray:
    """[M,2] room for the places and weights of open branches."""
    return np.zeros((MOST_BRANCHES, 2))


def _starts(bet: PolicyBet) -> IntArray:
    """[SA+1] where the entries of each pair start."""
    rows, pairs = bet.pool.tally.rows, bet.task.n_states * bet.task.n_actions
    width = np.zeros(pairs + 1, dtype=np.int64)
    width[rows.pair + 1] = np.diff(rows.start)
    return np.cumsum(width)


@cache
def _numbers() -> FloatArray:
    """Random numbers of all simulations: the same ones for all choices, which makes them comparable."""
    return np.random.default_rng(0).random((MOST_SIMULATED, 3))
