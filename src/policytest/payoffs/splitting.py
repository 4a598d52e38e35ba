r"""Splitting: a rollout in several branches, whose draws go where they say most.

Where any pair can be drawn, a branch of weight w in state s may be split into k branches of weight w/k, each with its
own draws. With S the sum of all weighted residuals so far and (s_j, w_j) the open branches, the two properties of
`policytest.payoffs.td_rollouts` hold as before:

- *S never falls below -L.* S + L + sum_j w_j B(s_j) >= 0 holds at the start. A step keeps it: D + gamma B(x) >= B(s).
  A split keeps it: k (w/k) B(s) = w B(s). A coin keeps it: going on with probability g has the weight w/g only where
  w/g <= (S + L + the worst of all other open branches)/-B(s). At the end no branch is open.
- *The mean of S is at most sign (V_q - rho.V0)*: X = S + sum_j w_j sign (V_q - V0)(s_j) is a martingale, since a split
  does not change it.

*Both sides at once*: the same with S' = -S, B' and L' of the other side; a coin keeps both.

*Room for weights.* L may be larger than the worst sum. At L = -B(s) a rollout that starts in s has no slack, and no
coin can raise its weight before it has won something. With m times that L it may start with up to m times the weight,
or not at all: dull stretches are walked through by few rollouts of large weight. The price is that the largest bet is
m times as small, which costs nothing where the best bet is.

If a draw in s has the weight z(s), a rollout with discounted visits d takes sum d/z draws and has the variance
sum d z sigma^2, sigma(s) the standard deviation of the residual. Their product, which is what a verdict costs while
bets are small, is least for z proportional to 1/sigma: (sum d sigma)^2 instead of (sum d)(sum d sigma^2). Where bets
are as large as they can be, cheap rollouts are better. So rollouts with several *paces*, (m, u) with z = u rms/sigma,
are simulated in the fitted model, and the growth of the capital that each draw promises decides. All of this is chosen
from the past.

*What is believed.* The model is only as good as what was seen. A simulation with few rollouts, with rollouts that were
cut, or with a variance far below the one that the model has on paper, is not used. Without a discount the even pace
bets on whole paths, whatever the model says (`policytest.payoffs.total_bet`). There another pace has to keep up in a
`Race`, which is looked at between rollouts, whenever a plan is made: it knows what rollouts that have ended took and
brought, and nothing of the next one.
"""

from __future__ import annotations

import math
from functools import cache
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.rollouts import bet, branch
from policytest._base.compiled.small import (
    LARGEST_WEIGHT,
    NOT_SERVED,
    Call,
    Draws,
    Dynamics,
    Limits,
    RolloutState,
    Transcript,
)
from policytest.data.simulators import cumulative_rows
from policytest.eprocess.strategies import best_growth, expected_gap, growth_of, interval_gap, most_promising
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.policy_bet import PolicyBet

FIRST, ENTRIES_A_SAMPLE = 500, 100  # samples from which on paces are considered; where their choice costs no more
AGAIN = 1.5  # growth of the samples after which a pace is chosen again
LEAST_SIGMA, LEAST_TARGET = 0.3, 0.02  # of a state, in units of the root mean square; and of z
MOST_BRANCHES = 1024  # open at once
WORTH_IT = 1.1  # times the growth at an even pace, so that noise of the simulation seldom decides
FEWEST_SIMULATED, MOST_SIMULATED = 2000, 8000  # transitions of a simulation at a time
ENOUGH_SIMULATED, MOST_TIMES = 200, 8  # rollouts that are enough, at least; and the most times to try
LEAST_SIMULATED, LEAST_NOISE = 50, 0.5  # rollouts and share of the expected variance; with fewer none is believed


class Pace(NamedTuple):
    """How wide the range is, as a multiple of the worst sum, and the unit u of the weights to aim at; 0: any."""

    wider: float = 1.0
    unit: float = 0.0


NO_STAKES = np.zeros(1)  # the capital of no bets
EVEN = Pace()
UNSPLIT = (EVEN, Pace(2.0), Pace(4.0))
CLOSE, LOOSE = (2.0, 1.0, 0.5, 0.25), (8.0, 4.0, 2.0, 1.0, 0.5)  # units in a range of little room, and of much
PACES = (*UNSPLIT, *(Pace(1.5, unit) for unit in CLOSE), *(Pace(4.0, unit) for unit in LOOSE))
MOST_OTHER, FEWER_OTHER = 8.0, 7.0  # times the samples at the even pace: never more, and where others go on again
WIDEST = max(pace.wider for pace in PACES)


class Race:
    """What the samples at the even pace have brought, and those at others: [2] samples, and [2] evidence.

    Another pace rests on a model that may be wrong. With T samples and D nats it may go on while

        T <= 8 T_even,   and   T <= T_even  or  (D + 1)/T >= D_even/T_even.
    """

    def __init__(self) -> None:
        self.samples, self.evidence = np.zeros(2), np.zeros(2)
        self.at, self.sign = 0, 1.0  # the pace and the side of the plan of now
        self.since = np.zeros(3)  # samples, and evidence of both sides, when it was made

    def settle(self, samples: int, evidence: tuple[float, float]) -> None:
        """The rollouts of a plan have ended: what they took and brought."""
        now = np.array([samples, *evidence])
        took, *brought = now - self.since
        self.samples[self.at] += took
        self.evidence[self.at] += brought[0 if self.sign > 0 else 1]
        self.since = now

    def begin(self, plan: BettingPlan) -> None:
        """The next rollouts have this plan."""
        self.at, self.sign = 0 if plan.is_even else 1, plan.sign

    @property
    def is_open(self) -> bool:
        """Whether another pace may go on."""
        (even, other), (won, gained) = self.samples, self.evidence
        return bool(other < MOST_OTHER * even and (other <= even or (gained + 1.0) * even >= won * other))

    def until(self, is_even: bool) -> float:
        """How many samples at this pace there may be, or should be, before the next look."""
        even, other = self.samples
        if not is_even:
            return max(MOST_OTHER * even - other, 1.0)
        return max(other / FEWER_OTHER - even, 1.0) if other >= MOST_OTHER * even else math.inf

    def state(self) -> FloatArray:
        """[7] to go on from; pace and side are those of the plan."""
        return np.concatenate([self.samples, self.evidence, self.since])

    def restore(self, kept: FloatArray, plan: BettingPlan, samples: int) -> None:
        """Go on from what was kept, with this plan, after so many samples in all."""
        self.samples, self.evidence, self.since = kept[:2].copy(), kept[2:4].copy(), kept[4:].copy()
        taken = self.since[0]
        if not (np.isfinite(kept).all() and (self.samples >= 0).all() and self.samples.sum() == taken <= samples):
            raise ValueError("the race of the paces is not possible")
        self.begin(plan)


class Paced(NamedTuple):
    """A plan at its pace, and what rollouts in the model are like."""

    plan: BettingPlan
    v: float  # the mean of S^2, in units of room^2
    sums: FloatArray  # S in units of the room, with mean 0
    cost: float  # draws

    def growth(self, gap: float, both_sides: bool) -> float:
        """The growth of the capital that a draw promises, if the value is this far from the threshold.

        Intervals have their thresholds at the gap from V0, where the room is about L.
        """
        room = self.plan.L if both_sides else self.plan.room
        return best_growth(self.sums * (self.plan.room / room), gap / room) / self.cost


class Outlook:
    """Rollouts of a plan in the fitted model q, at any pace. ``visits`` [entries] are those of a rollout in it."""

    def __init__(
        self, policy: PolicyBet, plan: BettingPlan, dynamics: Dynamics, q: FloatArray, visits: FloatArray
    ) -> None:
        rows, size = policy.pool.tally.rows, len(plan.B)
        layers, noise = len(visits) // rows.n_entries, rows.per_entry(policy.reward_noise())
        visits = visits * np.tile(rows.per_entry(policy.pool.only) < 0, layers)  # what is known needs no draw
        place = (np.arange(layers)[:, None] * policy.task.n_states + rows.per_entry(rows.state)).ravel()
        squares = policy.residuals(plan.a.V, plan.a.base) ** 2 + np.tile(noise, layers)
        spent, mean = (
            np.bincount(place, visits, minlength=size),
            float((visits * squares).sum() / (visits.sum() or 1.0)),
        )
        self.is_possible = 0 < mean < np.inf
        variance = np.bincount(place, visits * squares, minlength=size) / np.where(spent > 0, spent, 1.0)
        relative = np.where(spent > 0, variance / (mean or 1.0), 1.0)
        self.shape = 1.0 / np.sqrt(relative + LEAST_SIGMA**2)  # [places] 1/sigma
        self.noise = np.bincount(place, visits * np.tile(noise, layers), minlength=size)
        self.squares, self.cost = spent * variance, max(float(spent.sum()), 1e-3)
        cumulative = cumulative_rows(rows.start, q)
        self.model = Draws(True, _starts(policy), rows.successor, cumulative, np.zeros(0, dtype=np.int64))
        self.plan, self.dynamics = plan, dynamics._replace(longest=policy.longest)
        self.side = plan.a._replace(base=policy.expected_base(plan.a.base))

    def at(self, pace: Pace, samples: int) -> Paced | None:
        """The plan at this pace; None where no rollout ends in time."""
        plan, z = self.plan.widened(pace.wider), np.full(len(self.plan.B), LARGEST_WEIGHT)
        if pace.unit:
            z = np.clip(pace.unit * self.shape, LEAST_TARGET, LARGEST_WEIGHT)
            plan = plan._replace(targets=z)
        cost, sums, cut = self._simulated(plan, samples)
        if len(sums) < LEAST_SIMULATED or cut:
            return None
        noisy = float((self.noise * np.minimum(z, 1.0)).sum())
        if noisy:
            sums = np.maximum(sums + np.sqrt(noisy) * np.resize(_normals(), len(sums)), -plan.L)
        held = plan.L + sums  # has the mean L in the model; a factor gives it that, and none falls below 0
        sums = (held * (plan.L / held.mean()) - plan.L if held.any() else sums) / plan.room
        v, least = float((sums * sums).mean()), float((self.squares * np.minimum(z, 1.0)).sum()) / plan.room**2
        return Paced(plan, v, sums, cost) if v >= LEAST_NOISE * least else None

    def best(self, paces: tuple[Pace, ...], samples: int, both_sides: bool) -> Pace:
        """The pace that promises most for the gap to expect; the first one is even.

        For intervals it is the distance of their ends from the value, which all paces would find at the first one's.
        Where the simulation of the even pace is not believed it counts as the model has it on paper.
        """
        even, *found = [self.at(pace, samples) for pace in paces]
        v, room, cost = (even.v, even.plan.room, even.cost) if even else (*self._on_paper, self.cost)
        rollouts = samples / cost
        gap = interval_gap(v, rollouts) if both_sides else expected_gap(v, self.plan.lead / room, rollouts)
        first = growth_of(v, gap) / cost if even is None else even.growth(gap * room, both_sides)
        growth = [-np.inf if one is None else one.growth(gap * room, both_sides) for one in found]
        return paces[most_promising([WORTH_IT * max(first, 0.0), *growth])]

    @property
    def _on_paper(self) -> tuple[float, float]:
        """The mean of S^2 at the even pace without coins, in units of the room, and the room."""
        return float(self.squares.sum()) / self.plan.room**2, self.plan.room

    def _simulated(self, plan: BettingPlan, samples: int) -> tuple[float, FloatArray, int]:
        """The draws of a rollout in the model, the sums of some (more, where samples are many), how many were cut."""
        rows = min(max(FEWEST_SIMULATED, samples), MOST_SIMULATED)
        enough, times = max(ENOUGH_SIMULATED, samples // 50), min(3 + samples // 20_000, MOST_TIMES)
        seen = Transcript(np.empty(rows, dtype=np.int64), np.empty(rows, dtype=np.int64), np.empty(rows))
        other = NOT_SERVED
        if plan.mirrored is not None:
            seen, other = seen._replace(mirrored=np.empty(rows)), plan.mirrored.stakes(NO_STAKES)
        stakes, limits = plan.stakes(NO_STAKES), Limits(np.inf, rows, np.inf)
        at, branches, sums, drawn, count, cut = RolloutState(), open_branches(), [], 0, 0, 0
        for time in range(times):
            numbers = _numbers()[time * MOST_SIMULATED :][:rows]
            call = Call(at, numbers, limits, seen)
            if len(plan.targets):
                done = branch(self.dynamics, self.side, plan.targets, stakes, self.model, branches, *call, other)
            else:
                done = bet(self.dynamics, self.side, stakes, self.model, *call, other)
            at, drawn, count, cut = done.at, drawn + done.samples, count + done.rollouts, cut + done.cut
            sums.append(seen.sums[: done.rollouts].copy())
            if count >= enough:
                break
        return max(drawn / max(count, 1), 1e-3), np.concatenate(sums), cut


def open_branches() -> FloatArray:
    """[M,2] room for the places and weights of open branches."""
    return np.zeros((MOST_BRANCHES, 2))


def _starts(policy: PolicyBet) -> IntArray:
    """[SA+1] where the entries of each pair start."""
    rows, pairs = policy.pool.tally.rows, policy.task.n_states * policy.task.n_actions
    width = np.zeros(pairs + 1, dtype=np.int64)
    width[rows.pair + 1] = np.diff(rows.start)
    return np.cumsum(width)


@cache
def _numbers() -> FloatArray:
    """Random numbers of all simulations: the same ones for all choices, which makes them comparable."""
    return np.random.default_rng(0).random((MOST_TIMES * MOST_SIMULATED, 3))


@cache
def _normals() -> FloatArray:
    """Noise of observed rewards in all simulations."""
    return np.random.default_rng(1).standard_normal(MOST_SIMULATED)
