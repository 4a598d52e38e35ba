"""Where the successors of rollouts come from."""

from __future__ import annotations

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.rollouts import Draws
from policytest._base.errors import WHILE_DRAWING, InputError
from policytest.data.randomness import Seed, generator
from policytest.data.simulators import SimulatorLike, checked_draw, is_table, rewarded_draw
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.methods.sampler import Drawn, Recorded


class Supply(Drawn):
    """Where successors come from: a table (drawn from in compiled code), a simulator's calls, or recorded stacks."""

    def __init__(self, task: Task, sim: SimulatorLike, rng: Seed) -> None:
        super().__init__(task, sim)
        self.rng, self.drawing = generator(rng), False
        pairs = task.n_states * task.n_actions
        table = sim.table() if is_table(sim) else None  # rows without mass are refused by `draw`, when they are met
        self.is_table = table is not None and not table.empty[task.layout.pairs.pair].any()
        self.is_table = self.is_table and not task.observes_rewards
        self.waits, self.size = False, 0
        self.order = np.zeros(0, dtype=np.int64)
        self.at = np.zeros(pairs, dtype=np.int64)
        self.reward = np.zeros(1 if task.observes_rewards else 0)
        if table is not None and self.is_table:
            self.start, self.successor, self.cumulative, _ = table
        else:
            self.start = np.zeros(pairs + 1, dtype=np.int64)
            self.successor, self.cumulative = np.zeros(1, dtype=np.int32), np.zeros(0)

    @classmethod
    def recorded(cls, task: Task, source: Recorded, rng: Seed) -> Supply:
        """Stacks of the recorded draws of each pair, in their order."""
        supply = cls(task, nothing_to_draw, rng)
        supply.waits, supply.successor, supply.reward = True, np.zeros(0, dtype=np.int32), np.zeros(0)
        supply.extend(source.k, source.x, source.r)
        return supply

    def extend(self, k: IntArray, x: IntArray, r: FloatArray | None = None) -> None:
        """More were recorded: each goes to the end of the stack of its pair, behind those not yet taken."""
        matter = np.flatnonzero(k >= 0)
        pairs = self.task.n_states * self.task.n_actions
        pair = np.concatenate(
            [np.repeat(np.arange(pairs), np.diff(self.start)), self.task.layout.pairs.pair[k[matter]]]
        )
        successor = np.concatenate([self.successor, x[matter].astype(np.int32)])
        place = np.concatenate([self.order, matter + self.size])
        taken, order = self.at - self.start[:-1], np.argsort(pair, kind="stable")
        self.start = np.searchsorted(pair[order], np.arange(pairs + 1))
        self.successor, self.order = successor[order], place[order]
        if self.task.observes_rewards:
            more = np.zeros(0) if r is None else r[matter]
            self.reward = np.concatenate([self.reward, more])[order]
        self.at, self.size = self.start[:-1] + taken, self.size + len(k)

    def draws(self) -> Draws:
        """For the compiled code."""
        reward = self.reward if len(self.reward) or not self.task.observes_rewards else np.zeros(1)
        return Draws(self.is_table, self.start, self.successor, self.cumulative, self.at, reward)

    def provide(self, pair: int) -> None:
        """Draw the successor that is waited for."""
        s, a = divmod(pair, self.task.n_actions)
        before = self.rng.bit_generator.state
        self.drawing = True
        try:
            x = self._drawn(s, a)
        except BaseException as error:
            error.add_note(WHILE_DRAWING)
            self.rng.bit_generator.state = before
            raise
        finally:
            self.drawing = False
        self.successor = np.array([x], dtype=np.int32)  # a stack of one, for this pair
        self.start[: pair + 1], self.start[pair + 1 :] = 0, 1
        self.at[:] = self.start[1:]  # no other pair has any
        self.at[pair] = 0

    def _drawn(self, s: int, a: int) -> int:
        """What follows one pair; an observed reward is put on the stack beside it."""
        rewards, S = self.task.rewards, self.task.n_states
        if not isinstance(rewards, Observed):
            return int(checked_draw(self.draw, np.array([s]), np.array([a]), self.rng, S)[0])
        ends = float(rewards.low[s, a]), float(rewards.high[s, a])
        x, self.reward[0] = rewarded_draw(self.draw, s, a, self.rng, S, *ends)
        return x

    def reach(self) -> int:
        """How many of the recorded transitions were used, counted from the first up to the last one taken."""
        taken = np.flatnonzero(self.at > self.start[:-1])  # the last one of each pair is the latest of that pair
        return int(self.order[self.at[taken] - 1].max()) + 1 if len(taken) else 0


def nothing_to_draw(states: IntArray, actions: IntArray, rng: Seed) -> IntArray:
    """In the place of a simulator, where there is none."""
    raise InputError("recorded data have nothing to draw from")
