"""What comparisons of policies share: the rows that some policy takes, and the coupling.

Two policies that meet the same kernel can be run side by side: while they are in the same state, the same action is
taken as often as their probabilities allow, and one draw serves both. See `policytest.payoffs.two_policies`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, SparseArray
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task
from policytest.payoffs.draws import Supply
from policytest.payoffs.policy_bet import MOST_LISTED
from policytest.payoffs.pool import Pool, pool_in_time

SAME = 1e-14  # probabilities that differ by less are rounded ones of the same number


def joint_task(tasks: Sequence[Task]) -> Task:
    """The task whose rows are all that some of the policies take; its own policy is their mean."""
    first = tasks[0]
    with_successor = next((task for task in tasks if task.rewards_on_successor), None)
    policy = np.mean([task.policy for task in tasks], axis=0)
    rewards = np.zeros(first.policy.shape) if with_successor is None else with_successor.rewards
    return replace(
        first,
        policy=policy / policy.sum(axis=1, keepdims=True),
        rewards=first.rewards if first.observes_rewards else rewards,
    )


def shared_pool(
    tasks: Sequence[Task], sim: SimulatorLike | Transitions, rng: Seed, most_listed: int = MOST_LISTED
) -> Pool:
    """The pool of all comparisons of some policies, on a simulator or on recorded transitions."""
    task = joint_task(tasks)
    supply = supply_of(task, sim, rng)
    if not task.is_discounted_table:
        return pool_in_time(task, supply)
    return Pool(WitnessedCounts(task, 0.0, MixtureBoundary(), most_listed), supply)


def supply_of(task: Task, sim: SimulatorLike | Transitions, rng: Seed) -> Supply:
    """Draws of a simulator, or those of recorded transitions."""
    if isinstance(sim, Transitions):
        return Supply.recorded(task, Recorded.of(task, sim), rng)
    return Supply(task, sim, rng)


class Coupling(NamedTuple):
    """The maximal coupling of two policies, [S,A] each: common + first = pi_A, common + second = pi_B."""

    common: FloatArray
    first: FloatArray
    second: FloatArray


def maximal_coupling(policy_a: FloatArray, policy_b: FloatArray) -> Coupling:
    """The same action with the largest probability: common = min(pi_A, pi_B)."""
    first, second = np.maximum(policy_a - policy_b, 0.0), np.maximum(policy_b - policy_a, 0.0)
    first[first <= SAME], second[second <= SAME] = 0.0, 0.0
    part = (first.sum(axis=1) > 0) & (second.sum(axis=1) > 0)
    first[~part], second[~part] = 0.0, 0.0
    return Coupling(policy_a - first, first, second)


def exact(task: Task, centre: float) -> Task:
    """The task with centred rewards, and a policy whose rows sum to 1 to the last digit."""
    return summing_to_one(task.centred(centre))


def summing_to_one(task: Task) -> Task:
    """The task with a policy whose rows sum to 1 to the last digit."""
    return replace(task, policy=task.policy / task.policy.sum(axis=1, keepdims=True))


def reached(edges: SparseArray, start: BoolArray) -> BoolArray:
    """[S] the states to which the edges lead from the start, and the start."""
    found = start.copy()
    while True:
        wider = found | ((edges.T @ found.astype(np.float64)) > 0)
        if (wider == found).all():
            return found
        found = wider
