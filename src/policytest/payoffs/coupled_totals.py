"""Two policies in coupled rollouts whose totals have a bound.

The process is that of `policytest.payoffs.two_policies`; beyond the discounted table it has the values and worst paths
of `total_bet`. While the policies are together one draw serves both, so that an observed reward cancels.

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
from policytest._base.compiled import small
from policytest._base.compiled.small import Advance, Call, Residuals, RolloutState, Transcript
from policytest._base.errors import InputError
from policytest._base.record import numbers_of
from policytest.mdp.task import Task
from policytest.payoffs.draws import Supply
from policytest.payoffs.in_time import Clock, broken_bound
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.total_bet import TotalBet

LOOK = 512  # rows of random numbers between two looks at the length of rollouts
NO_COIN = -1e300  # in the place of the worst sum to come: a rollout goes on with weight 1


class CoupledTotals:
    """The totals of two episodes, where these have bounds: rollouts are whole episodes.

    ``open_rows`` are the rows of random numbers since the last look at the length of rollouts, those before it since
    which no rollout has ended, and how many have ended since the look.
    """

    def __init__(self, task: Task, bets: tuple[TotalBet, TotalBet], source: Supply) -> None:
        self.task, self.bets, self.source, self.open_rows = task, bets, source, np.zeros(3)

    def _totals(self, bet: TotalBet) -> tuple[float, float]:
        """The least and the largest total of an episode: declared, or those of any path, where these are narrower."""
        low, high = bet.task.total_rewards or (-np.inf, np.inf)
        ends, starts = bet.ends_total or [np.full(1, -np.inf), np.full(1, np.inf)], self.task.initial > 0
        return max(low, float(ends[0][starts].min())), min(high, float(ends[1][starts].max()))

    def range(self, parts: Sequence[Residuals], sign: float, least: float) -> float:
        """L, by the worst difference of two totals; at least ``least``."""
        return max(self._largest(sign * (parts[0].V - parts[1].V), -sign), least) * (1.0 + 1e-9)

    def check(self, plan: BettingPlan, sums: FloatArray) -> None:
        """Refuse totals that differ by more than their bounds allow."""
        most = self._largest(-plan.sign * (plan.a.V - plan.b.V), plan.sign)
        slack = 1e-6 * (plan.L + most)
        if ((sums < -plan.L - slack) | (sums > most + slack)).any():
            which, remedy = broken_bound(self.source)
            raise InputError(
                f"total_rewards is {self.task.total_rewards}, but the totals of {which} and of another one differ by "
                f"more than that allows; {remedy}"
            )

    def _largest(self, U: FloatArray, sign: float) -> float:
        """The largest sign (G_A - G_B) + U(s), over the states s in which episodes start."""
        (low, high), (low_b, high_b) = (self._totals(bet) for bet in self.bets)
        return float(U[self.task.initial > 0].max()) + (high - low_b if sign > 0 else high_b - low)

    def to_next_look(self, call: Call) -> Call:
        """A call that ends there at the latest."""
        return call._replace(u=call.u[: LOOK - int(self.open_rows[0])])

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

    def ended(
        self, done: Advance, plan: BettingPlan, seen: Transcript, clock: Clock, limit: tuple[int, float]
    ) -> Advance:
        """One rollout among many: if its rows of random numbers have reached the most of its own, it ends at its worst.

        ``limit`` are these rows, and the most.
        """
        rows, most = limit
        if done.rollouts:
            clock.lengths[0] += rows
        elif rows >= most:
            clock.lengths[2] += 1
            seen.sums[0] = -plan.L
            done = done._replace(at=RolloutState(), rollouts=1, missing_pair=-1)
        return done

    def state(self) -> Arrays:
        """What a run keeps for later."""
        return {"open_rows": self.open_rows.copy()}

    def restore(self, state: Arrays) -> None:
        """Go on with these rows."""
        self.open_rows = numbers_of(state, "open_rows", 3)
        if (self.open_rows < 0).any() or self.open_rows[0] >= LOOK:
            raise ValueError("there are not so many rows since the last look")
