"""Betting at work on tasks beyond the discounted table; the mathematics is in `episode_bet`."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.rollouts import OUT_OF_BOUNDS, Advance, Dynamics, Limits, Transcript
from policytest._base.errors import AssumptionWarning, InputError
from policytest.data.counts import Counts
from policytest.data.reward_moments import RewardMoments
from policytest.mdp.episodes import REMEDIES
from policytest.mdp.task import Task, counting_task
from policytest.methods.betting.draws import Supply
from policytest.methods.betting.episode_bet import EpisodeBet, EpisodePool
from policytest.methods.betting.plan import LARGE, BettingPlan
from policytest.methods.betting.run import BettingRun
from policytest.methods.boundaries import MixtureBoundary
from policytest.methods.interface import Outcome
from policytest.methods.sampler import Recorded
from policytest.methods.witness import WitnessedCounts, is_open

LONGEST = 1000.0  # steps, without a discount, after which a rollout ends at its worst; more where rollouts are longer


class EpisodeRollouts(BettingRun):
    """Rollouts on episodes, of one policy or two: what `BettingRun` does not have for a discounted table.

    Where totals have no bound only one of the ``sides`` can be proved. ``lengths`` are the steps of rollouts
    that ended by themselves, the number of these, and that of the others.
    """

    pool: EpisodePool
    lengths: FloatArray
    bet: EpisodeBet  # that of the first policy

    def _made_dynamics(self) -> Dynamics:
        """A place is (t, s) where there is a horizon: t S + s."""
        made, task, H = super()._made_dynamics(), self.task, self.bet.layers
        if task.horizon is not None:
            together = np.tile(made.together, (H, 1))
            own = [together] * 3
            if len(self.policies) > 1:
                own = [np.tile(law, (H, 1)) for law in (made.leaving, made.alone_a, made.alone_b)]
            made = made._replace(real=np.tile(np.arange(task.n_states), H), layer=task.n_states, together=together)
            made = made._replace(leaving=own[0], alone_a=own[1], alone_b=own[2])
        if task.total_rewards is not None:
            made = made._replace(total_low=task.total_rewards[0], total_high=task.total_rewards[1])
        return made

    def _roll(self, limits: Limits, seen: Transcript) -> Advance:
        self.dynamics = self.dynamics._replace(longest=self.bet.longest)
        done = super()._roll(limits, seen)
        self.lengths += done.own_steps, done.rollouts - done.cut, done.cut
        if done.ending == OUT_OF_BOUNDS:
            place = self.task.place(done.wanted)
            which, remedy = broken_bound(self.source)
            raise InputError(
                f"total_rewards is {self.task.total_rewards}, but {which} that ended after {place} earned "
                f"{done.at.total:g}; {remedy}"
            )
        return done

    def learn(self, rows: Recorded) -> None:
        """With their rewards."""
        super().learn(rows)
        self.pool.learn_rewards(rows)

    def _record(self, pair: IntArray, x: IntArray) -> None:
        super()._record(pair, x)
        if self.task.observes_rewards:
            self.pool.record_rewards(pair, x, self.seen.reward[: len(pair)])

    # ------------------------------------------------------------ the fit

    def _fit(self) -> BettingPlan:
        """As for a discounted table; before it, the steps are fixed after which a rollout ends at its worst."""
        if self.task.is_total:
            self._limit_steps(self._patience())
        return super()._fit()

    def _patience(self) -> float:
        """The steps after which a rollout ends at its worst: many times the mean, and more where many were ended."""
        steps, ended, cut = self.lengths
        return float(LONGEST + 20.0 * np.ceil(steps / max(ended, 1.0)) + 100.0 * cut)

    def _limit_steps(self, longest: float) -> None:
        for policy in self.policies:
            policy.longest = longest

    def _start_value(self, values: Sequence[FloatArray]) -> float:
        """rho.V0, or the difference of two, less the threshold; a start in the goal counts as 1."""
        V = values[0] if len(values) == 1 else values[0] - values[1]
        return float(self.task.initial @ V[: self.task.n_states]) + self._at_once - self.threshold

    @cached_property
    def _at_once(self) -> float:
        """The probability of a start in the goal, or the difference of two."""
        first, *others = (policy.task.reached_at_start for policy in self.policies)
        return first - sum(others)

    def _side(self, values: Sequence[FloatArray]) -> float:
        sign = super()._side(values)
        return sign if sign in self.sides else -sign

    def _shares(self, may_choose: bool) -> tuple[float, ...]:
        """Without a discount advantages would open cycles that lose."""
        return (0.0,) if self.task.is_total else super()._shares(may_choose)

    def _may_choose_pace(self, entries: int) -> bool:
        """Bounds on totals are kept for one path."""
        return super()._may_choose_pace(entries) and self.task.total_rewards is None

    # ------------------------------------------------------------ what it can say

    @property
    def reward_moments(self) -> RewardMoments | None:
        """What was observed of rewards, for forecasts."""
        return self.pool.moments

    def why_undecided(self) -> str:
        """Also, which answer no data can give."""
        said = super().why_undecided()
        return said if len(self.sides) == 2 else "; ".join(part for part in (said, one_sided(self.sides)) if part)

    # ------------------------------------------------------------ keeping

    def _progress(self) -> dict[str, Any]:
        pool = self.pool
        rewards = np.array([pool.sums, pool.squares])
        kept = {**super()._progress(), "rewards": rewards, "longest": np.append(self.lengths, self.bet.longest)}
        if pool.moments is not None:
            kept["reward_moments"] = pool.moments.table.copy()
        return {**kept, **self.source.stacks()}

    def _set_progress(self, state: dict[str, Any]) -> None:
        super()._set_progress(state)
        pool, rewards = self.pool, np.array(state["rewards"], dtype=np.float64)
        if rewards.shape != (2, len(pool.sums)) or not np.isfinite(rewards).all():
            raise ValueError("the sums of rewards do not fit the task")
        *lengths, longest = (float(part) for part in state["longest"])
        self._limit_steps(longest)
        (pool.sums, pool.squares), self.lengths = rewards, np.array(lengths)
        if pool.moments is not None and "reward_moments" in state:
            moments = np.array(state["reward_moments"], dtype=np.float64)
            if moments.shape != pool.moments.table.shape or not np.isfinite(moments).all():
                raise ValueError("the sums of rewards do not fit the task")
            pool.moments.table = moments
        if self.lengths.shape != (3,) or not np.isfinite(state["longest"]).all():
            raise ValueError("the lengths of rollouts are not three numbers")
        self.source.restore_stacks(state)


class EpisodeRun(EpisodeRollouts):
    """Rollouts of one policy at work on episodes."""

    WALKER = (*BettingRun.WALKER, "total")

    def __init__(self, method: Any, task: Task, threshold: float, policy: EpisodeBet, *rest: Any) -> None:
        self.bet, self.lengths = policy, np.zeros(3)
        self.sides = finite_sides(task, lambda sign: self._without_values(policy, sign))
        super().__init__(method, task, threshold, (policy,), *rest)

    def _without_values(self, policy: EpisodeBet, sign: float) -> FloatArray:
        """B for V0 = 0."""
        V = np.zeros_like(policy.V)
        return policy.worst(V, policy.base(V, None, 0.0), sign)

    def _visits(self, q: FloatArray, occupancies: Sequence[Any]) -> list[FloatArray] | None:
        if len(q) * self.bet.layers > LARGE:
            return None
        return [self.bet.visits(q, occupancies[0])]

    def _squares(self, plan: BettingPlan, visits: list[FloatArray]) -> float:
        """With the noise of observed rewards."""
        squares = super()._squares(plan, visits)
        if not self.task.observes_rewards:
            return squares
        rows = self.tally.rows
        by_row = np.add.reduceat(visits[0].reshape(self.bet.layers, -1), rows.start[:-1], axis=1).sum(axis=0)
        return squares + float(by_row @ self.bet.reward_noise()) / plan.room**2

    # ------------------------------------------------------------ what it can say

    def _worst_sum(self) -> float:
        """With a bound on totals, the worst depends on what was earned."""
        if self.task.total_rewards is None or self.between_rollouts:
            return super()._worst_sum()
        (low, high), at, plan = self.task.total_rewards, self.at, self.plan
        V = min(max(plan.a.V[int(at.state)], low - at.total), high - at.total)
        return float(at.earned + at.weight * min(low - at.total - V if plan.sign > 0 else at.total + V - high, 0.0))

    def outcome(self, level: float) -> Outcome:
        """The capital is the proof; no nearest kernel is sought."""
        return Outcome(self.evidence(), None, math.nan)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel, with the mean of the observed rewards."""
        starts = self.task.initial > 0
        return float(self.task.initial[starts] @ self.bet.empirical_values()[starts]) + self._at_once

    def weigh(self, counts: Counts, level: float, design: str) -> None:
        """Counts do not have rewards."""
        if self.task.observes_rewards:
            raise InputError("counts have no rewards, and the task's are observed; pass Transitions(s, a, x, r)")
        super().weigh(counts, level, design)


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


def run_of_episodes(method: Any, task: Task, threshold: float, supply: Supply, *rest: Any) -> EpisodeRun:
    """The test at work on a task beyond the discounted table."""
    run = EpisodeRun(method, task, threshold, EpisodeBet(task, episode_pool(task, supply)), *rest)
    warn_of_sides(run)
    return run


def episode_pool(task: Task, supply: Supply) -> EpisodePool:
    """The counts and draws of a task: the rows that its policy takes, all successors listed."""
    counted = counting_task(task)
    if is_open(counted):
        raise InputError(f"task: any of {task.n_states:,} states may follow each pair; declare `support`")
    return EpisodePool(task, WitnessedCounts(counted, 0.0, MixtureBoundary()), supply)


def warn_of_sides(run: EpisodeRollouts) -> None:
    """Say which answer can be proved, where that is only one."""
    if len(run.sides) == 1:
        warnings.warn(one_sided(run.sides), AssumptionWarning, stacklevel=6)
        if run.indifference:
            raise InputError(f"indifference: {one_sided(run.sides)}")


def one_sided(sides: tuple[float, ...]) -> str:
    """Which answer can be proved, where totals have a bound on one side only; and what would help."""
    answer, end = ("above", "high") if sides == (1.0,) else ("below", "low")
    return f'only "{answer}" can be proved here, since the total of an episode may be infinitely {end}; {REMEDIES}'
