"""Betting on a log at work: its rows in their order, on both sides at once; and the settings.

Two tests at delta/2 each (`policytest.eprocess.interval`). Rollouts that own their draws
(`policytest.payoffs.log_rollouts`) follow the log; beside them rollouts from pooled stacks (`TDBetting`) go on: stacks
keep what comes early, such as the first visits of all customers in the first week, until the rest of a rollout is
there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import IntArray
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.eprocess.capital import SIDES, with_rounding_margin
from policytest.eprocess.interval import HALF, Average, ends, intersection, union
from policytest.eprocess.strategies import Moments
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import NOTHING, UNLIMITED, Recorded
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task
from policytest.methods.run import FROM_THE_START, Run, Traits
from policytest.methods.stacks import LONG_SHARE, StacksRun, replicate_seeds
from policytest.methods.td_betting import TDBetting
from policytest.methods.td_run import TDRun
from policytest.payoffs.draws import Supply
from policytest.payoffs.fit import Fit, Progress
from policytest.payoffs.log_rollouts import REPLAY_STRATEGIES, LogRolloutPool, suits
from policytest.payoffs.plan import REFIT as ANY_GROWTH
from policytest.payoffs.policy_bet import PolicyBet
from policytest.payoffs.pool import Pool
from policytest.payoffs.td_rollouts import Rollouts

FIRST_FIT, REFIT = 32, 1.1  # rows before the first bet; growth between two fits
LOOKS = 16  # at the capital, between two fits
LONG_LOGS = (200_000, 2_000_000)  # rows after which fewer sets of coins go on
MOST_AT_ONCE = 65_536  # rows of one call


class LogRun(Run):
    """A log at work."""

    source: Recorded  # the rows that were not looked at yet
    tally: WitnessedCounts
    reads_all = True

    def __init__(self, method: LogBetting, payoff: Rollouts, source: Recorded) -> None:
        self.method, self.payoff, self.task, self.threshold = method, payoff, payoff.task, payoff.threshold
        self.source, self.tally = source, payoff.tally
        self.shares = np.zeros(len(payoff.tally.rows.pair))  # draws of each row so far
        self.next_fit, self.fitted_at = FIRST_FIT, 0
        self.best, self.rollouts = [0.0, 0.0], 0
        self.stacks = method.stacks(self.task, self.threshold, Recorded(NOTHING, NOTHING), method.coins)
        self.pools: tuple[list[LogRolloutPool], list[LogRolloutPool]] = ([], [])
        self.fits = Fit(payoff), Fit(payoff)
        n = len(REPLAY_STRATEGIES)
        seeds = np.random.SeedSequence(method.seed).generate_state(2 * n * method.coins, np.uint64)
        for side, sign in enumerate(SIDES):
            self.fits[side].bet_on(sign, ANY_GROWTH)
            for i, strategy in enumerate(REPLAY_STRATEGIES):
                part = seeds.reshape(2, n, method.coins)[side, i]
                self.pools[side].append(LogRolloutPool(payoff, strategy, sign, part))

    # ------------------------------------------------------------ the loop

    def begin(self, required: float) -> None:
        """More may have been recorded."""
        self.exhausted = len(self.source.k) == 0

    def step(self, required: float, most: int) -> None:
        """All rows that are there; the first of them at which the evidence of a part suffices is the answer."""
        required += HALF
        self._stack(required)
        while len(self.source.k):
            most = min(self.next_fit - self.samples, MOST_AT_ONCE)
            rows = self.source.part(0, min([most, *(row - self.samples for row in LONG_LOGS if row > self.samples)]))
            k, x, drawn = rows.k, rows.x, rows.k >= 0
            self.source.take(len(k))
            self.payoff.pool.observe(k[drawn], x[drawn])
            if self.samples >= FIRST_FIT:
                self._follow(k, x, required)
            self.shares += np.bincount(k[drawn], minlength=len(self.shares))
            self.samples += len(k)
            if self.samples >= self.next_fit:
                self._fit_all()
        self.exhausted = True

    def _stack(self, level: float) -> None:
        """Rollouts from stacks, as far as these rows take them."""
        run = self.stacks
        run.source.extend(self.source.k, self.source.x)
        run.step(level, UNLIMITED)
        if run.answer is not None:
            self._answered(run.answer, run.used())

    def _answered(self, answer: str, row: int) -> None:
        """One of the parts has answered at this row; the first one counts."""
        if self.answered_at is None or row < self.answered_at:
            self.answer, self.answered_at = answer, row

    @property
    def spacing(self) -> int:
        """Rows between two looks at the capital."""
        return max((self.next_fit - self.fitted_at) // LOOKS, 1)

    @property
    def rows_to_next_look(self) -> int:
        """How many rows there are up to it, at fixed numbers of rows, however the log arrives."""
        return self.spacing - (self.samples - self.fitted_at) % self.spacing

    def _follow(self, k: IntArray, x: IntArray, level: float) -> None:
        """Rows up to the next fit at most, and what they make of the capital."""
        looks, sets = np.arange(self.rows_to_next_look, len(k) + 1, self.spacing), self.method.coins
        sets = max(sets // LONG_SHARE ** sum(self.samples >= row for row in LONG_LOGS), 1)
        for side, name in enumerate(("above", "below")):
            found = [pool.follow(k, x, looks, sets) for pool in self.pools[side]]
            if not len(looks):
                continue
            evidence = np.logaddexp.reduce(found, axis=0) - math.log(len(REPLAY_STRATEGIES) * self.method.coins)
            self.best[side] = max(self.best[side], float(evidence.max()))
            crossed = looks[evidence >= with_rounding_margin(level)]
            if len(crossed):
                self._answered(name, self.samples + int(crossed[0]))

    def _fit_all(self) -> None:
        """Plans for both sides, from all rows so far."""
        visits = self.payoff.visits_in_a_rollout()
        progress = Progress(self.samples, self.rollouts, Moments(), 0.0)
        for fit, pools in zip(self.fits, self.pools, strict=True):
            plan = fit.plan(progress)
            for pool in pools:
                pool.fit(self.payoff, plan, visits, self.shares / self.samples, self.samples)
        self.fitted_at, self.next_fit = self.samples, math.ceil(REFIT * self.samples)
        self.rollouts = sum(pool.n_settled for pool in self.pools[0])

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the largest capital of each side so far, of the better part, less log 2.

        exp(-evidence) is a p-value, at any time: twice the smaller of those of the two parts.
        """
        return union((self.best[0], self.best[1]), self.stacks.evidence())

    def why_undecided(self) -> str:
        """Which pair is scarcest, for this policy."""
        plans = self.pools[0][0].plans
        if not self.samples or not plans:
            return "not enough data"
        visits = plans[-1].needed / plans[-1].splits
        supply = np.where(visits > 0, self.shares / np.where(visits > 0, visits, 1.0), np.inf)
        scarce = int(np.argmin(supply))
        place = self.task.place(int(self.tally.rows.pair[scarce]))
        return f"not enough data: the scarcest pair of this policy is {place}, with {int(self.shares[scarce]):,} rows"

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values that neither part refutes: the average capital over the sets of coins, and that of the stacks."""
        level, stacks = level + HALF, self.stacks
        above, below = (Average([part for pool in pools for part in pool.settled(as_staked)]) for pools in self.pools)
        beside = stacks.verdict_interval(level) if as_staked else stacks.one_sided(level)
        return intersection(ends(above, below, self.payoff.span, self.threshold, level), beside)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.payoff.estimate


@dataclass(frozen=True)
class LogBetting:
    """Settings of betting on a log.

    Parameters
    ----------
    coins
        Sets of coins over which the capital is averaged, for each of four ways of following the log. In tasks that do
        not suit that, the median of four times as many sets for each side decides; see `stacks`.
    seed
        Their seed. It changes evidence near log(1/delta) by some tenths of a nat with 16 sets, by about one in tasks
        that do not end.
    """

    coins: int = 16
    seed: int = 0
    traits: ClassVar = Traits(forecast=FROM_THE_START)

    def __post_init__(self) -> None:
        arrays.positive(coins=arrays.whole_number("coins", self.coins))

    def start(self, task: Task, sim: SimulatorLike, threshold: float, rng: Seed, **zone: Any) -> LogRun:
        """Not on a simulator."""
        raise InputError("LogBetting is for recorded transitions; use TDBetting() with a simulator")

    def replay(self, task: Task, threshold: float, source: Recorded, both_sides: bool = True) -> LogRun | StacksRun:
        """The test at work on recorded transitions, always on both sides."""
        if not suits(task):
            return self.stacks(task, threshold, source, len(REPLAY_STRATEGIES) * self.coins)
        tally = WitnessedCounts(task, threshold, MixtureBoundary())  # lists all successors of so few rows
        supply = Supply.recorded(task, Recorded(NOTHING, NOTHING), self.seed)  # the rows are bet on as they come
        policy = PolicyBet(tally.task, Pool(tally, supply), tally.rounding)
        return LogRun(self, Rollouts(task, threshold, (policy,)), source)

    def stacks(self, task: Task, threshold: float, source: Recorded, sets: int) -> StacksRun:
        """Rollouts from stacks alone, by this many sets of coins a side."""

        def start(seed: int) -> TDRun:
            return TDBetting().replay(task, threshold, Recorded(NOTHING, NOTHING), seed)

        return StacksRun(self, start, replicate_seeds(self.seed, sets), source)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on a log, by many sets of coins"
