"""What was observed of rewards: their number, sum and sum of squares, of each allowed transition."""

from __future__ import annotations

import numpy as np

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.record import numbers_of
from policytest._base.rows import Rows
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task


class RewardMoments:
    """``table`` [3,E]: the number of rewards, their sum and that of their squares; E are the entries of the rows."""

    def __init__(self, rows: Rows, n_states: int) -> None:
        self.rows, self.n_states = rows, n_states
        self.table = np.zeros((3, rows.n_entries))
        self._keys = rows.of_entry() * n_states + rows.successor

    @classmethod
    def of(cls, task: Task, data: Transitions) -> RewardMoments:
        """Those of recorded transitions, in units of the task's rewards; pairs that the policy never takes are none."""
        data.check_rewards(task)
        found, k = cls(task.layout.rows, task.n_states), task.layout.row_of_pair[data.s * task.n_actions + data.a]
        taken = k >= 0
        found.record(k[taken], data.x[taken], data.r[taken] / task.reward_scale)
        return found

    def record(self, k: IntArray, x: IntArray, rewards: FloatArray) -> None:
        """Rewards that were observed with transitions from rows k to x, which the support allows."""
        at = np.searchsorted(self._keys, k * self.n_states + x)
        for line, power in zip(self.table, (np.ones(len(at)), rewards, rewards**2), strict=True):
            np.add.at(line, at, power)

    def state(self) -> Arrays:
        """The table."""
        return {"reward_moments": self.table}

    def restore(self, state: Arrays) -> None:
        """Go on from a kept table."""
        self.table = numbers_of(state, "reward_moments", *self.table.shape)
