"""Two policies in coupled rollouts, beyond the discounted table.

The process is that of `policytest.methods.betting.coupled`, with the values and worst paths of `episode_bet`. While the
policies are together one draw serves both, so that an observed reward cancels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import episodes, rollouts, search
from policytest._base.compiled.rollouts import LARGEST_WEIGHT, Residuals
from policytest._base.compiled.small import TINY
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.methods.betting.coupled import CoupledRollouts, CoupledRun, difference
from policytest.methods.betting.coupling import joint_task, maximal_coupling, summing_to_one, supply_of
from policytest.methods.betting.episode_bet import EpisodeBet, EpisodePool
from policytest.methods.betting.episode_run import EpisodeRollouts, episode_pool, finite_sides, warn_of_sides
from policytest.methods.betting.plan import LARGE
from policytest.methods.betting.policy_bet import part_of
from policytest.methods.known_range import known_difference


class CoupledEpisodes(EpisodeRollouts, CoupledRun):
    """The comparison of two policies on episodes at work; see `BettingRun` for the last two arguments."""

    WALKER = (*CoupledRollouts.WALKER, "draws_left")

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
        rows, S = self.tally.rows, self.task.n_states
        total = np.zeros((self.bet.layers, S))
        first = np.searchsorted(rows.state, np.arange(S))
        laws = self.coupling.first, self.coupling.second
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
        return float(self.task.initial[starts] @ difference[starts])


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
    return CoupledEpisodes(task_a, task_b, margin, episodes_of([task_a, task_b], sim, rng), indifference, both_sides)


def episodes_of(tasks: Sequence[Task], sim: SimulatorLike | Transitions, rng: Seed) -> EpisodePool:
    """The pool of all comparisons of some policies, on a simulator or on recorded transitions."""
    if tasks[0].total_rewards is not None:
        raise InputError("total_rewards is for one policy; to compare two pass a horizon or a discount below 1")
    joint = joint_task(tasks)
    return episode_pool(joint, supply_of(joint, sim, rng))
