"""Time in rollouts beyond the discounted table: with a horizon, with totals, with observed rewards.

The mathematics is in `policytest.payoffs.total_bet`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policytest._base.arrays import Arrays
from policytest._base.compiled.small import OUT_OF_BOUNDS, Advance, Dynamics, RolloutState
from policytest._base.errors import InputError
from policytest._base.record import numbers_of
from policytest.mdp.task import Task
from policytest.payoffs.draws import Supply
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.policy_bet import PolicyBet

LONGEST = 1000.0  # steps, without a discount, after which a rollout ends at its worst; more where rollouts are longer


class Clock:
    """Steps of rollouts in time: how many they had, and how many they may have.

    ``lengths`` are the steps of rollouts that ended by themselves, the number of these, and that of the others.
    """

    def __init__(self, task: Task, bets: Sequence[PolicyBet]) -> None:
        self.task, self.bets, self.lengths, self.longest = task, bets, np.zeros(3), 0.0
        first, *others = (bet.task.reached_at_start for bet in bets)
        self.at_once = first - sum(others)  # the probability of a start in the goal, or the difference of two

    def laid_out(self, made: Dynamics) -> Dynamics:
        """A place is (t, s) where there is a horizon: t S + s."""
        task, H = self.task, self.bets[0].layers
        if len(self.bets) == 1 and task.total_rewards is not None:
            return made._replace(total_low=task.total_rewards[0], total_high=task.total_rewards[1])
        if task.horizon is None:
            return made
        together = np.tile(made.together, (H, 1))
        own = [together] * 3
        if len(self.bets) > 1:
            own = [np.tile(law, (H, 1)) for law in (made.leaving, made.alone_a, made.alone_b)]
        made = made._replace(real=np.tile(np.arange(task.n_states), H), layer=task.n_states, together=together)
        return made._replace(leaving=own[0], alone_a=own[1], alone_b=own[2])

    @property
    def patience(self) -> float:
        """The steps after which a rollout ends at its worst: many times the mean, and more where many were ended."""
        steps, ended, cut = self.lengths
        return float(LONGEST + 20.0 * np.ceil(steps / max(ended, 1.0)) + 100.0 * cut)

    def limit(self, longest: float) -> None:
        """From now on rollouts end after so many steps."""
        self.longest = longest
        for bet in self.bets:
            bet.limit_steps(longest)

    def refit(self) -> None:
        """Fix the steps before a plan is made, where neither discounting nor the bound of two totals ends rollouts."""
        if self.task.is_total and (len(self.bets) == 1 or self.task.total_rewards is None):
            self.limit(self.patience)

    def count(self, done: Advance, source: Supply) -> None:
        """Remember how long rollouts were; refuse one with a total beyond its bounds."""
        self.lengths += done.own_steps, done.rollouts - done.cut, done.cut
        if done.ending == OUT_OF_BOUNDS:
            which, remedy = broken_bound(source)
            raise InputError(
                f"total_rewards is {self.task.total_rewards}, but {which} that ended after "
                f"{self.task.place(done.missing_pair)} earned {done.at.total:g}; {remedy}"
            )

    def worst_sum(self, plan: BettingPlan, at: RolloutState) -> float:
        """Where totals have bounds, the least sum at which a rollout of one policy can end."""
        low, high = self.task.total_rewards or (-np.inf, np.inf)
        V = min(max(plan.a.V[int(at.state)], low - at.total), high - at.total)
        return float(at.earned + at.weight * min(low - at.total - V if plan.sign > 0 else at.total + V - high, 0.0))

    def state(self) -> Arrays:
        """What a run keeps for later."""
        return {"longest": np.append(self.lengths, self.longest)}

    def restore(self, state: Arrays) -> None:
        """Go on from what was kept."""
        *lengths, longest = numbers_of(state, "longest", 4)
        self.lengths = np.array(lengths)
        self.limit(float(longest))


def broken_bound(source: Supply) -> tuple[str, str]:
    """What broke the bound on totals, and what to do: rollouts on a log are of rows, not episodes that were recorded.

    If the table is Markov, such an episode is possible, so the bound does not hold.
    """
    if not source.waits:
        return "an episode", "widen the bound"
    return (
        "a rollout of rows from different episodes of the log",
        "a Markov table makes such an episode possible: widen the bound, or pass a horizon instead",
    )
