"""Rollouts on tasks beyond the discounted table: with a horizon, with totals, with observed rewards.

The mathematics is in `policytest.payoffs.total_bet`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.small import OUT_OF_BOUNDS, Advance, Dynamics, RolloutState, Transcript
from policytest._base.errors import InputError
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded
from policytest.kl.witness import WitnessedCounts, is_open
from policytest.mdp.horizon import REMEDIES
from policytest.mdp.task import Task, counting_task
from policytest.payoffs.draws import Supply
from policytest.payoffs.plan import LARGE, BettingPlan
from policytest.payoffs.td_rollouts import Rollouts, one_sided
from policytest.payoffs.total_bet import TotalBet, TotalPool

LONGEST = 1000.0  # steps, without a discount, after which a rollout ends at its worst; more where rollouts are longer


class Clock:
    """Steps of rollouts in time: how many they had, and how many they may have.

    ``lengths`` are the steps of rollouts that ended by themselves, the number of these, and that of the others.
    """

    def __init__(self, task: Task, pool: TotalPool, bets: Sequence[TotalBet]) -> None:
        self.task, self.pool, self.bets, self.lengths = task, pool, bets, np.zeros(3)
        first, *others = (bet.task.reached_at_start for bet in bets)
        self.at_once = first - sum(others)  # the probability of a start in the goal, or the difference of two

    def laid_out(self, made: Dynamics) -> Dynamics:
        """A place is (t, s) where there is a horizon: t S + s."""
        task, H = self.task, self.bets[0].layers
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
        for bet in self.bets:
            bet.limit_steps(longest)

    def count(self, done: Advance) -> None:
        """Steps of rollouts that ended."""
        self.lengths += done.own_steps, done.rollouts - done.cut, done.cut

    def record(self, seen: Transcript, count: int) -> None:
        """Transitions, with their rewards where these are observed."""
        pair, x = seen.pair[:count], seen.x[:count]
        self.pool.record(pair, x)
        if self.task.observes_rewards:
            self.pool.record_rewards(pair, x, seen.reward[:count])

    def state(self) -> dict[str, Any]:
        """The lengths, the rewards, and what was drawn ahead."""
        lengths = np.append(self.lengths, self.bets[0].longest)
        return {"longest": lengths, **self.pool.kept_rewards(), **self.pool.source.stacks()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
        kept = np.array(state["longest"], dtype=np.float64)
        if kept.shape != (4,) or not np.isfinite(kept).all():
            raise ValueError("the lengths of rollouts are not three numbers")
        self.lengths = kept[:3]
        self.limit(float(kept[3]))
        self.pool.restore_rewards(state)
        self.pool.source.restore_stacks(state)


class RolloutsInTime(Rollouts):
    """Rollouts of one policy. Where totals have no bound only one of the ``sides`` can be proved."""

    WALKER = (*Rollouts.WALKER, "total")

    def __init__(self, task: Task, threshold: float, bet: TotalBet) -> None:
        self.bet, self.clock = bet, Clock(task, bet.pool, (bet,))
        V = np.zeros_like(bet.V)
        self.sides = finite_sides(task, lambda sign: bet.worst(V, bet.base(V, None, 0.0), sign))
        super().__init__(task, threshold, (bet,))

    def _made_dynamics(self) -> Dynamics:
        made = self.clock.laid_out(super()._made_dynamics())
        if self.task.total_rewards is None:
            return made
        return made._replace(total_low=self.task.total_rewards[0], total_high=self.task.total_rewards[1])

    def roll(self, *call: Any) -> Advance:
        """As without a horizon; a total beyond its bounds is refused."""
        self.dynamics = self.dynamics._replace(longest=self.bet.longest)
        done = super().roll(*call)
        self.clock.count(done)
        if done.ending == OUT_OF_BOUNDS:
            which, remedy = broken_bound(self.source)
            raise InputError(
                f"total_rewards is {self.task.total_rewards}, but {which} that ended after "
                f"{self.task.place(done.missing_pair)} earned {done.at.total:g}; {remedy}"
            )
        return done

    def record(self, seen: Transcript, count: int) -> None:
        """Count what was drawn, and what it earned."""
        self.clock.record(seen, count)

    def learn(self, rows: Recorded) -> None:
        """With their rewards."""
        super().learn(rows)
        self.bet.pool.learn_rewards(rows)

    # ------------------------------------------------------------ plans

    def before_fit(self) -> None:
        """The steps after which a rollout ends at its worst."""
        if self.task.is_total:
            self.clock.limit(self.clock.patience)

    def start_value(self, values: Sequence[FloatArray]) -> float:
        """rho.V0, less the threshold; a start in the goal counts as 1."""
        return float(self.task.initial @ values[0][: self.task.n_states]) + self.clock.at_once - self.threshold

    @property
    def chooses_share(self) -> bool:
        """Without a discount advantages would open cycles that lose."""
        return not self.task.is_total

    @property
    def chooses_pace(self) -> bool:
        """Bounds on totals are kept for one path."""
        return super().chooses_pace and self.task.total_rewards is None

    def visits(self, q: FloatArray, occupancies: Sequence[Any]) -> list[FloatArray] | None:
        """[H E] the discounted numbers of visits of each transition."""
        return [self.bet.visits(q, occupancies[0])] if len(q) * self.bet.layers <= LARGE else None

    def squares(self, plan: BettingPlan, visits: list[FloatArray]) -> float:
        """With the noise of observed rewards."""
        squares = super().squares(plan, visits)
        if not self.task.observes_rewards:
            return squares
        rows = self.tally.rows
        by_row = np.add.reduceat(visits[0].reshape(self.bet.layers, -1), rows.start[:-1], axis=1).sum(axis=0)
        return squares + float(by_row @ self.bet.reward_noise()) / plan.room**2

    # ------------------------------------------------------------ what is known

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel, with the mean of the observed rewards."""
        return start_mean(self.task, self.bet.empirical_values()) + self.clock.at_once

    @property
    def reward_moments(self) -> Any:
        """What was observed of rewards, for forecasts."""
        return self.bet.pool.moments

    @property
    def has_nearest_kernel(self) -> bool:
        """No nearest kernel is sought."""
        return False

    def why_undecided(self) -> str:
        """Which answer no data can give."""
        return "" if len(self.sides) == 2 else one_sided(self.sides)

    def worst_sum(self, plan: BettingPlan, at: RolloutState) -> float:
        """With a bound on totals, the worst depends on what was earned."""
        if self.task.total_rewards is None:
            return super().worst_sum(plan, at)
        low, high = self.task.total_rewards
        V = min(max(plan.a.V[int(at.state)], low - at.total), high - at.total)
        return float(at.earned + at.weight * min(low - at.total - V if plan.sign > 0 else at.total + V - high, 0.0))

    def state(self, at: RolloutState) -> dict[str, Any]:
        """With the lengths and the rewards."""
        return {**super().state(at), **self.clock.state()}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
        super().restore(state)
        self.clock.restore(state)


def start_mean(task: Task, values: FloatArray) -> float:
    """The mean over the states in which episodes start."""
    starts = task.initial > 0
    return float(task.initial[starts] @ values[starts])


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


def finite_sides(task: Task, worst: Callable[[float], FloatArray]) -> tuple[float, ...]:
    """The sides on which the worst total is finite."""
    starts = task.initial > 0
    found = tuple(sign for sign in (1.0, -1.0) if np.isfinite(worst(sign)[: task.n_states][starts]).all())
    if not found:
        raise InputError(f"the total of an episode may be infinite on both sides; {REMEDIES}")
    return found


def pool_in_time(task: Task, supply: Supply) -> TotalPool:
    """The counts and draws of a task: the rows that its policy takes, all successors listed."""
    counted = counting_task(task)
    if is_open(counted):
        raise InputError(f"task: any of {task.n_states:,} states may follow each pair; declare `support`")
    return TotalPool(task, WitnessedCounts(counted, 0.0, MixtureBoundary()), supply)
