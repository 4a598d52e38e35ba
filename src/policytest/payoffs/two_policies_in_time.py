"""Two policies in coupled rollouts, beyond the discounted table.

The process is that of `policytest.payoffs.two_policies`, with the values and worst paths of `total_bet`. While the
policies are together one draw serves both, so that an observed reward cancels.

*A bound (low, high) on the total of any episode.* What is still to come then has a bound that depends on what each
policy has earned so far, so that no coin is thrown: rollouts are whole episodes, with weight 1. Without a discount
residuals telescope. With the totals G_A and G_B of two episodes that start in s, and U = V0_A - V0_B,

    S = sign (G_A - G_B - U(s))  >=  -(high - low) - sign U(s),
    L = max of high - low + sign U(s) over rho(s) > 0.

The bound is sharp: where the policies part at once, A may earn low and B high. The mean of S is
sign (V^A - V^B - rho.U), since each chain by itself is that of its policy, and the factors of `two_policies` are fair.
Only the difference of two totals must be bounded by high - low, and it is checked after every rollout. A rollout that
does not end is ended with S = -L, which is valid at any time: it cannot end with less.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.compiled import episodes, rollouts, small
from policytest._base.compiled.small import (
    LARGEST_WEIGHT,
    TINY,
    Advance,
    Call,
    Dynamics,
    Residuals,
    RolloutState,
)
from policytest._base.errors import InputError
from policytest.eprocess.capital import TwoSided
from policytest.mdp.task import Task
from policytest.payoffs.coupling import maximal_coupling, summing_to_one
from policytest.payoffs.in_time import Clock, broken_bound, start_mean
from policytest.payoffs.known_range import known_difference
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.policy_bet import Pool, part_of
from policytest.payoffs.total_bet import TotalBet, TotalPool
from policytest.payoffs.two_policies import CoupledRollouts, TwoPolicies, difference, parted

LOOK = 512  # rows of random numbers between two looks at the length of rollouts
NO_COIN = -1e300  # in the place of the worst sum to come: a rollout goes on with weight 1


class Ends:
    """The totals of two episodes, where these have bounds: rollouts are whole episodes.

    ``open_rows`` are the rows of random numbers since the last look at the length of rollouts, those before it since
    which no rollout has ended, and how many have ended since the look.
    """

    def __init__(self, task: Task, bets: tuple[TotalBet, TotalBet]) -> None:
        self.task, self.bets, self.open_rows = task, bets, np.zeros(3)

    def _totals(self, bet: TotalBet) -> tuple[float, float]:
        """The least and the largest total of an episode: declared, or those of any path, where these are narrower."""
        low, high = bet.task.total_rewards or (-np.inf, np.inf)
        ends, starts = bet.ends_total or [np.full(1, -np.inf), np.full(1, np.inf)], self.task.initial > 0
        return max(low, float(ends[0][starts].min())), min(high, float(ends[1][starts].max()))

    def largest(self, U: FloatArray, sign: float) -> float:
        """The largest sign (G_A - G_B) + U(s), over the states s in which episodes start."""
        (low, high), (low_b, high_b) = (self._totals(bet) for bet in self.bets)
        return float(U[self.task.initial > 0].max()) + (high - low_b if sign > 0 else high_b - low)

    def is_overdue(self, done: Advance, clock: Clock) -> bool:
        """Now and then it is looked whether a rollout is far longer than others: then it ends at its worst."""
        self.open_rows = self.open_rows + np.array([done.used, 0.0, done.rollouts])
        rows, others, ended = self.open_rows
        if rows < LOOK:
            return False
        others += rows
        overdue = not ended and others >= clock.patience and done.at.phase != small.BETWEEN
        if ended:
            clock.lengths[0] += others
        elif overdue:
            clock.lengths[2] += 1
        self.open_rows = np.array([0.0, 0.0 if ended or overdue else others, 0.0])
        return bool(overdue)

    def state(self) -> Arrays:
        """What a run keeps for later."""
        return {"open_rows": self.open_rows.copy()}

    def restore(self, state: Arrays) -> None:
        """Go on with these rows."""
        self.open_rows = np.array(state["open_rows"], dtype=np.float64)
        if self.open_rows.shape != (3,) or not (self.open_rows >= 0).all() or not self.open_rows[0] < LOOK:
            raise ValueError("the rows of the rollout on its way are not three numbers")


class TwoPoliciesInTime(CoupledRollouts):
    """The comparison of two policies beyond the discounted table."""

    WALKER = (*CoupledRollouts.WALKER, "steps_left")

    def __init__(self, task_a: Task, task_b: Task, margin: float, pool: TotalPool) -> None:
        self.known = known_difference(task_a, task_b)
        self.bet, self.other = (TotalBet(summing_to_one(task), pool) for task in (task_a, task_b))
        self.ends = None if task_a.total_rewards is None else Ends(task_a, (self.bet, self.other))
        self.coupling = maximal_coupling(self.bet.task.policy, self.other.task.policy)
        super().__init__(task_a, margin, (self.bet, self.other), Clock(task_a, (self.bet, self.other)))
        self.kept += [] if self.ends is None else [self.ends]

    def _made_dynamics(self) -> Dynamics:
        return parted(super()._made_dynamics(), self.coupling, self.other)

    def roll(self, plan: BettingPlan, bets: TwoSided, call: Call) -> Advance:
        """As without a horizon; where totals have bounds, a rollout that does not end is ended at its worst."""
        if self.ends is None or self.clock is None:
            return super().roll(plan, bets, call)
        done = super().roll(plan, bets, call._replace(u=call.u[: LOOK - int(self.ends.open_rows[0])]))
        if self.ends.is_overdue(done, self.clock):
            bets[plan.sign].stake(plan.bet, plan.lead - plan.L)
            call.seen.sums[done.rollouts] = -plan.L
            done = done._replace(at=RolloutState(), rollouts=done.rollouts + 1)
        return done

    def settled(self, plan: BettingPlan, sums: FloatArray) -> None:
        """Refuse totals that differ by more than their bounds allow."""
        if self.ends is not None:
            most = self.ends.largest(-plan.sign * (plan.a.V - plan.b.V), plan.sign)
            slack = 1e-6 * (plan.L + most)
            if ((sums < -plan.L - slack) | (sums > most + slack)).any():
                which, remedy = broken_bound(self.source)
                raise InputError(
                    f"total_rewards is {self.task.total_rewards}, but the totals of {which} and of another one differ "
                    f"by more than that allows; {remedy}"
                )
        super().settled(plan, sums)

    # ------------------------------------------------------------ plans

    def joined(self, parts: Sequence[Residuals], sign: float) -> BettingPlan:
        """The bet; where totals have bounds, with the worst difference of two of them."""
        if self.ends is None:
            return super().joined(parts, sign)
        B = self._worst(parts, sign)
        plan = super().joined([part._replace(B=B) for part in parts], sign)
        largest = self.ends.largest(sign * (parts[0].V - parts[1].V), -sign)
        return plan._replace(L=max(largest, self.least_range(parts, plan.lead)) * (1.0 + 1e-9))

    def _worst(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """B at every place, for the two together; infinite where totals have no bound on this side.

        Where they have, so low that no coin is thrown.
        """
        if self.ends is not None:
            return np.where(self.bet.over, TINY, NO_COIN)
        (a, b), task, rows, H = parts, self.bet.task, self.tally.rows, self.bet.H
        shared = np.flatnonzero(self.coupling.common.ravel()[rows.pair] > 0)
        U, floor = a.V - b.V, self._parting(parts, sign)
        base = (a.base - b.base).reshape(self.bet.layers, -1)[:, shared].ravel()
        chosen, entries = part_of(rows._replace(gain=np.zeros(0)), shared)
        chosen = chosen._replace(gain=difference(a.gain, b.gain, entries))
        if H is not None:
            return np.asarray(episodes.worst_steps(chosen, base, U, floor, self.bet.over, sign, task.discount, H))
        if task.discount == 1.0:
            first = sign * U + np.minimum(floor, 0.0)
            first = np.where(self.bet.returns | self.other.returns, np.minimum(first, 0.0), first)
            C, missed = episodes.least_totals(chosen, base, first, sign)
            B: FloatArray = np.minimum(C - sign * U - LARGEST_WEIGHT * self.bet.longest * missed, 0.0)
        else:
            B = np.minimum(rollouts.worst_paths(chosen, base, U, floor, sign, task.discount), 0.0)
        B[self.bet.over] = TINY
        return B

    @property
    def estimate(self) -> float:
        """The difference of the values under the empirical kernel, with the mean of the observed rewards."""
        difference = self.bet.empirical_values() - self.other.empirical_values()
        return start_mean(self.task, difference) + self.bet.task.reached_at_start - self.other.task.reached_at_start

    def worst_sum(self, plan: BettingPlan, at: RolloutState) -> float:
        """Where totals have bounds, all may be lost until the end."""
        return super().worst_sum(plan, at) if self.ends is None else -plan.L


def two_policies(task_a: Task, task_b: Task, margin: float, pool: Pool) -> TwoPolicies | TwoPoliciesInTime:
    """The comparison of two policies on the rows of their shared pool."""
    if isinstance(pool, TotalPool):
        return TwoPoliciesInTime(task_a, task_b, margin, pool)
    return TwoPolicies(task_a, task_b, margin, pool)
