"""Betting on temporal differences, for one policy and for two: the settings of the method."""

from __future__ import annotations

from dataclasses import dataclass

from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.mdp.task import Task
from policytest.methods.betting.draws import Supply
from policytest.methods.betting.episode_run import run_of_episodes
from policytest.methods.betting.policy_bet import MOST_LISTED, PolicyBet, Pool, is_large
from policytest.methods.betting.run import BettingRun
from policytest.methods.betting.visited import VisitedBet
from policytest.methods.boundaries import MixtureBoundary
from policytest.methods.sampler import Recorded
from policytest.methods.witness import Target, WitnessedCounts, largest_rounding


@dataclass(frozen=True)
class TDBetting:
    """Settings of the betting test: every transition of a rollout of the policy is bet on.

    Parameters
    ----------
    seed
        Seed of the coins and actions, where recorded transitions are replayed: choose it before looking at the data.
    """

    seed: int = 0

    def start(
        self,
        task: Task,
        sim: SimulatorLike,
        threshold: float,
        rng: Seed,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> BettingRun:
        """The test at work on a simulator; see `BettingRun` for the last two arguments."""
        return self._run(task, threshold, Supply(task, sim, rng), indifference, both_sides)

    def replay(
        self,
        task: Task,
        threshold: float,
        source: Recorded,
        rng: Seed = None,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> BettingRun:
        """The test at work on recorded transitions."""
        supply = Supply.recorded(task, source, self.seed if rng is None else rng)
        return self._run(task, threshold, supply, indifference, both_sides)

    def _run(self, task: Task, threshold: float, supply: Supply, indifference: float, both_sides: bool) -> BettingRun:
        if not task.is_discounted_table:
            return run_of_episodes(self, task, threshold, supply, indifference, both_sides)
        target = Target(rounding=largest_rounding(task, threshold)) if is_large(task) else None
        tally = WitnessedCounts(task, threshold, MixtureBoundary(), most_listed=MOST_LISTED, target=target)
        policy = (VisitedBet if is_large(task) else PolicyBet)(
            tally.task, Pool(tally, supply), tally.rounding, alone=True
        )
        return BettingRun(self, task, threshold, (policy,), indifference, both_sides)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences"
