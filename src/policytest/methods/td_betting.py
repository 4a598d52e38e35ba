"""Betting on temporal differences, for one policy and for two: the settings of the method."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.eprocess.strategies import Strategy
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded
from policytest.kl.witness import Target, WitnessedCounts, largest_rounding
from policytest.mdp.task import Task
from policytest.methods.run import FROM_THE_START, RESUMED, Traits
from policytest.methods.td_run import TDRun
from policytest.payoffs.draws import Supply
from policytest.payoffs.policy_bet import MOST_LISTED, PolicyBet, is_large
from policytest.payoffs.pool import Pool, pool_in_time
from policytest.payoffs.td_rollouts import Rollouts, warn_of_sides
from policytest.payoffs.total_bet import TotalBet
from policytest.payoffs.visited import VisitedBet


@dataclass(frozen=True)
class TDBetting:
    """Settings of the betting test: every transition of a rollout of the policy is bet on.

    Parameters
    ----------
    seed
        Seed of the coins and actions, where recorded transitions are replayed: choose it before looking at the data.
    """

    seed: int = 0
    traits: ClassVar = Traits(zone=True, forecast=RESUMED)

    def start(
        self,
        task: Task,
        sim: SimulatorLike,
        threshold: float,
        rng: Seed,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> TDRun:
        """The test at work on a simulator; see `TDRun` for the last two arguments."""
        return self._run(task, threshold, Supply(task, sim, rng), indifference, both_sides)

    def replay(
        self,
        task: Task,
        threshold: float,
        source: Recorded,
        rng: Seed = None,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> TDRun:
        """The test at work on recorded transitions."""
        supply = Supply.recorded(task, source, self.seed if rng is None else rng)
        return self._run(task, threshold, supply, indifference, both_sides)

    def _run(self, task: Task, threshold: float, supply: Supply, indifference: float, both_sides: bool) -> TDRun:
        payoff = rollouts_of(task, threshold, supply)
        warn_of_sides(payoff, indifference)
        return TDRun(self, payoff, indifference, both_sides)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences"


@dataclass(frozen=True)
class CoupledBetting:
    """The method of a comparison, for its verdict."""

    traits: ClassVar = Traits(forecast=FROM_THE_START)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences, policy A against policy B in coupled rollouts"


def rollouts_of(task: Task, threshold: float, supply: Supply) -> Rollouts:
    """The rollouts of a task's policy, whatever the task."""
    if not task.is_discounted_table:
        return rollouts_in_time(task, threshold, supply)
    target = Target(rounding=largest_rounding(task, threshold)) if is_large(task) else None
    tally = WitnessedCounts(task, threshold, MixtureBoundary(), most_listed=MOST_LISTED, target=target)
    kind = VisitedBet if is_large(task) else PolicyBet
    return Rollouts(task, threshold, (kind(tally.task, Pool(tally, supply), tally.rounding, alone=True),))


def rollouts_in_time(task: Task, threshold: float, supply: Supply, strategy: Strategy | None = None) -> Rollouts:
    """The rollouts of a task beyond the discounted table."""
    return Rollouts(task, threshold, (TotalBet(task, pool_in_time(task, supply)),), strategy=strategy)
