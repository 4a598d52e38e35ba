"""Data of a task with listed rewards as data of its outcome table; see `policytest.mdp.listed_rewards`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import IntArray
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.simulators import SimulatorLike, draw_function, rewarded_draw
from policytest.data.transitions import Transitions
from policytest.mdp.listed_rewards import Outcomes

PASSED_ON = ("replayable", "extra_steps")  # what a simulator may say of itself


class OutcomeSimulator:
    """Draws outcomes: next states and rewards of a simulator, as states of the outcome table."""

    def __init__(self, outcomes: Outcomes, sim: SimulatorLike) -> None:
        self.outcomes, self.sim, self._draw = outcomes, sim, draw_function(sim)

    def __getattr__(self, name: str) -> object:
        if name in PASSED_ON:
            return getattr(self.sim, name)
        raise AttributeError(name)

    def draw(self, states: IntArray, actions: IntArray, rng: np.random.Generator) -> IntArray:
        """The outcome of each pair."""
        task = self.outcomes.task
        x, r = rewarded_draw(self._draw, states, actions, rng, task.rewards, task.reward_scale)
        return self.outcomes.states(states, x, r)


def outcome_transitions(outcomes: Outcomes, data: Transitions) -> Transitions:
    """Transitions with rewards as transitions of the table; a reward that is not listed is refused with its row."""
    task = outcomes.task
    for name, count in (("s", task.n_states), ("a", task.n_actions), ("x", task.n_states)):
        arrays.index_list(f"data.{name}", getattr(data, name), count)
    data.check_rewards(task)
    rewards = data.r if len(data) else np.zeros(0)
    return replace(data, x=outcomes.states(data.s, data.x, rewards / task.reward_scale), r=None)


def outcome_counts(outcomes: Outcomes, counts: Counts) -> Counts:
    """Counts of the outcome table, such as those of a verdict; counts of next states alone are refused."""
    size = outcomes.table.n_states
    if counts.n_states == size:
        return counts
    raise InputError(
        f"data are counts of {counts.n_states} states, without rewards, and those of the task are observed; pass "
        f"Transitions(s, a, x, r=rewards), or counts of its outcomes, such as verdict.counts, which have {size} states"
    )
