"""Two policies in coupled rollouts, beyond the discounted table.

The process is that of `policytest.methods.betting.coupled`, with the values and worst paths of `episode_bet`. While the
policies are together one draw serves both, so that an observed reward cancels.

*A bound (low, high) on the total of any episode.* What is still to come then has a bound that depends on what each
policy has earned so far, so that no coin is thrown: rollouts are whole episodes, with weight 1. Without a discount
residuals telescope. With the totals G_A and G_B of two episodes that start in s, and U = V0_A - V0_B,

    S = sign (G_A - G_B - U(s))  >=  -(high - low) - sign U(s),
    L = max of high - low + sign U(s) over rho(s) > 0.

The bound is sharp: where the policies part at once, A may earn low and B high. The mean of S is
sign (V^A - V^B - rho.U), since each chain by itself is that of its policy, and the factors of `coupled` are fair. Only
the difference of two totals must be bounded by high - low, and it is checked after every rollout. A rollout that does
not end is ended with S = -L, which is valid at any time: it cannot end with less.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import episodes, rollouts, search
from policytest._base.compiled.rollouts import (
    LARGEST_WEIGHT,
    Advance,
    Dynamics,
    Limits,
    Residuals,
    RolloutState,
    Transcript,
)
from policytest._base.compiled.small import TINY
from policytest._base.errors import InputError
from policytest._base.rows import first_of_state
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.methods.betting.coupled import CoupledRollouts, CoupledRun, difference
from policytest.methods.betting.coupling import joint_task, maximal_coupling, summing_to_one, supply_of
from policytest.methods.betting.episode_bet import EpisodeBet, EpisodePool
from policytest.methods.betting.episode_run import (
    EpisodeRollouts,
    broken_bound,
    episode_pool,
    finite_sides,
    warn_of_sides,
)
from policytest.methods.betting.plan import LARGE, BettingPlan
from policytest.methods.betting.policy_bet import part_of
from policytest.methods.known_range import known_difference

LOOK = 512  # rows of random numbers between two looks at the length of rollouts
NO_COIN = -1e300  # in the place of the worst sum to come: a rollout goes on with weight 1


class CoupledEpisodes(EpisodeRollouts, CoupledRun):
    """The comparison of two policies on episodes at work; see `BettingRun` for the last two arguments."""

    WALKER = (*CoupledRollouts.WALKER, "steps_left")

    def __init__(
        self,
        task_a: Task,
        task_b: Task,
        margin: float,
        pool: EpisodePool,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> None:
        self.known, self.lengths, self.pool = known_difference(task_a, task_b), np.zeros(3), pool
        first, second = (EpisodeBet(summing_to_one(task), pool) for task in (task_a, task_b))
        self.a, self.b = self.bet, self.other = first, second
        self.coupling = maximal_coupling(first.task.policy, second.task.policy)
        self.tally, self.task = pool.tally, task_a
        self.sides = finite_sides(task_a, self._without_values)
        rest = (first, second), indifference, both_sides
        CoupledRollouts.__init__(self, task_a, margin, *rest)
        warn_of_sides(self)

    def _without_values(self, sign: float) -> FloatArray:
        """B for V0 = 0."""
        bets = (self.bet, sign), (self.other, -sign)
        return self._worst(
            [bet.bet(V := np.zeros_like(bet.V), bet.base(V, None, 0.0), side) for bet, side in bets], sign
        )

    def _worst(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """B at every place, for the two together; infinite where totals have no bound on this side."""
        (a, b), task, rows, H = parts, self.bet.task, self.tally.rows, self.bet.H
        shared = np.flatnonzero(self.coupling.common.ravel()[rows.pair] > 0)
        U, floor = a.V - b.V, self._partings(parts, sign)
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

    def _partings(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """[H S] the worst that can follow when the two part; infinite where they do not."""
        rows, total = self.tally.rows, np.zeros((self.bet.layers, self.task.n_states))
        first, laws = first_of_state(rows), (self.coupling.first, self.coupling.second)
        for bet, part, side, law in zip((self.bet, self.other), parts, (sign, -sign), laws, strict=True):
            lowest = bet.lowest_steps(part.V, part.base, part.B, side)
            lowest[:, law.ravel()[rows.pair] <= 0] = np.inf
            total += np.minimum.reduceat(lowest, first, axis=1)
        return total.ravel()

    def _visits(self, q: FloatArray, occupancies: Sequence[Any]) -> list[FloatArray] | None:
        """[H E] the discounted visits of each transition: together, A alone, B alone; for choosing advantages."""
        task, rows, H = self.bet.task, self.tally.rows, self.bet.H
        if len(q) * self.bet.layers > LARGE or task.is_total:
            return None
        common = rows._replace(prob=self.coupling.common.ravel()[rows.pair], gain=np.zeros(0))
        if H is not None:
            d = episodes.by_steps(common, q, task.discount, task.initial, H)[1]
        else:
            d = search.values_and_occupancy(common, q, task.discount, task.initial)[1][None, :]
        both = d[:, rows.state] * common.prob
        own = zip(occupancies, (self.bet, self.other), strict=True)
        alone = (np.maximum(d.reshape(len(both), -1)[:, rows.state] * bet.prob - both, 0.0) for d, bet in own)
        width = np.diff(rows.start)
        return [(q * np.repeat(weight, width, axis=1)).ravel() for weight in (both, *alone)]

    @property
    def estimate(self) -> float:
        """The difference of the values under the empirical kernel, with the mean of the observed rewards."""
        starts = self.task.initial > 0
        difference = self.bet.empirical_values() - self.other.empirical_values()
        return float(self.task.initial[starts] @ difference[starts]) + self._at_once


class CoupledTotals(CoupledEpisodes):
    """The same where the total of an episode is bounded: rollouts are whole episodes.

    ``open_rows`` are the rows of random numbers since the last look at the length of rollouts, those before it since
    which no rollout has ended, and how many have ended since the look.
    """

    open_rows: FloatArray = np.zeros(3)

    def _made_dynamics(self) -> Dynamics:
        return super()._made_dynamics()._replace(total_low=0.0, total_high=0.0)  # these are for one policy

    def _limit_steps(self, longest: float) -> None:
        """Steps are limited in `_roll`."""

    def _totals(self, bet: EpisodeBet) -> tuple[float, float]:
        """The least and the largest total of an episode: declared, or those of any path, where these are narrower."""
        low, high = bet.task.total_rewards or (-np.inf, np.inf)
        ends, starts = bet.ends_total or [np.full(1, -np.inf), np.full(1, np.inf)], self.task.initial > 0
        return max(low, float(ends[0][starts].min())), min(high, float(ends[1][starts].max()))

    def _worst(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """So low that no coin is thrown."""
        return np.where(self.bet.over, TINY, NO_COIN)

    def joined(self, parts: Sequence[Residuals], sign: float) -> BettingPlan:
        """The bet, with the worst difference of two totals."""
        B = self._worst(parts, sign)
        plan = super().joined([part._replace(B=B) for part in parts], sign)
        largest = self._largest(sign * (parts[0].V - parts[1].V), -sign)
        return plan._replace(L=max(largest, self._least_range(parts, plan.lead)) * (1.0 + 1e-9))

    def _largest(self, U: FloatArray, sign: float) -> float:
        """The largest sign (G_A - G_B) + U(s), over the states s in which episodes start."""
        (low, high), (low_b, high_b) = self._totals(self.bet), self._totals(self.other)
        return float(U[self.task.initial > 0].max()) + (high - low_b if sign > 0 else high_b - low)

    def _roll(self, limits: Limits, seen: Transcript) -> Advance:
        """Now and then it is looked whether a rollout is far longer than others; then it is ended at its worst."""
        numbers = self.numbers
        self.numbers = numbers[: LOOK - int(self.open_rows[0])]
        done = super()._roll(limits, seen)
        self.numbers = numbers
        self.open_rows = self.open_rows + np.array([done.used, 0.0, done.rollouts])
        rows, others, ended = self.open_rows
        if rows < LOOK:
            return done
        others += rows
        longest = self._patience()
        if ended:
            self.lengths[0], others = self.lengths[0] + others, 0.0
        elif others >= longest and done.at.phase != rollouts.BETWEEN:
            self.lengths[2], others = self.lengths[2] + 1, 0.0
            self.bets.capital[self.plan.side] += self.bets.pending(self.plan, -self.plan.L)
            seen.sums[done.rollouts] = -self.plan.L
            done = done._replace(at=RolloutState(), rollouts=done.rollouts + 1)
        self.open_rows = np.array([0.0, others, 0.0])
        return done

    def _settled(self, sums: FloatArray) -> None:
        """Refuse totals that differ by more than their bounds allow."""
        plan = self.plan
        most = self._largest(-plan.sign * (plan.a.V - plan.b.V), plan.sign)
        slack = 1e-6 * (plan.L + most)
        wrong = (sums < -plan.L - slack) | (sums > most + slack)
        if wrong.any():
            which, remedy = broken_bound(self.source)
            raise InputError(
                f"total_rewards is {self.task.total_rewards}, but the totals of {which} and of another one differ by "
                f"more than that allows; {remedy}"
            )
        super()._settled(sums)

    def _worst_sum(self) -> float:
        return -self.plan.L

    def _progress(self) -> dict[str, Any]:
        return {**super()._progress(), "open_rows": self.open_rows.copy()}

    def _set_progress(self, state: dict[str, Any]) -> None:
        super()._set_progress(state)
        self.open_rows = np.array(state["open_rows"], dtype=np.float64)
        if self.open_rows.shape != (3,) or not (self.open_rows >= 0).all() or not self.open_rows[0] < LOOK:
            raise ValueError("the rows of the rollout on its way are not three numbers")


def coupled_episodes(
    task_a: Task,
    task_b: Task,
    margin: float,
    sim: SimulatorLike | Transitions,
    rng: Seed,
    indifference: float,
    both_sides: bool,
) -> CoupledEpisodes:
    """The comparison at work, on a simulator or on recorded transitions."""
    return coupled_on(task_a, task_b, margin, episodes_of([task_a, task_b], sim, rng), indifference, both_sides)


def coupled_on(task_a: Task, task_b: Task, margin: float, pool: EpisodePool, *rest: Any) -> CoupledEpisodes:
    """The comparison at work on a pool; see `BettingRun` for the last two arguments."""
    made = CoupledEpisodes if task_a.total_rewards is None else CoupledTotals
    return made(task_a, task_b, margin, pool, *rest)


def episodes_of(tasks: Sequence[Task], sim: SimulatorLike | Transitions, rng: Seed) -> EpisodePool:
    """The pool of all comparisons of some policies, on a simulator or on recorded transitions."""
    joint = joint_task(tasks)
    return episode_pool(joint, supply_of(joint, sim, rng))
