"""Where the successors of rollouts come from."""

from __future__ import annotations

import numpy as np

from policytest._base.arrays import IntArray
from policytest._base.compiled.rollouts import Draws
from policytest._base.errors import WHILE_DRAWING, InputError
from policytest.data.randomness import Seed, generator
from policytest.data.simulators import SimulatorLike, checked_draw, is_table
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
        self.waits, self.size = False, 0
        self.order = np.zeros(0, dtype=np.int64)
        self.at = np.zeros(pairs, dtype=np.int64)
        if table is not None and self.is_table:
            self.start, self.successor, self.cumulative, _ = table
        else:
            self.start = np.zeros(pairs + 1, dtype=np.int64)
            self.successor, self.cumulative = np.zeros(1, dtype=np.int32), np.zeros(0)

    @classmethod
    def recorded(cls, task: Task, source: Recorded, rng: Seed) -> Supply:
        """Stacks of the recorded draws of each pair, in their order."""
        supply = cls(task, nothing_to_draw, rng)
        supply.waits, supply.successor = True, np.zeros(0, dtype=np.int32)
        supply.extend(source.k, source.x)
        return supply

    @property
    def at_hand(self) -> bool:
        """Whether draws cost no call of a simulator."""
        return self.is_table or self.waits

    def extend(self, k: IntArray, x: IntArray) -> None:
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
        self.at, self.size = self.start[:-1] + taken, self.size + len(k)

    def share(self, other: Supply) -> None:
        """The stacks of another one, from which this one takes its own draws."""
        taken = self.at - self.start[:-1]
        self.start, self.successor, self.order, self.size = other.start, other.successor, other.order, other.size
        self.at = self.start[:-1] + taken

    def draws(self) -> Draws:
        """For the compiled code."""
        return Draws(self.is_table, self.start, self.successor, self.cumulative, self.at)

    def provide(self, pair: int) -> None:
        """Draw the successor that is waited for."""
        s, a = divmod(pair, self.task.n_actions)
        before = self.rng.bit_generator.state
        self.drawing = True
        try:
            x = checked_draw(self.draw, np.array([s]), np.array([a]), self.rng, self.task.n_states)
        except BaseException as error:
            error.add_note(WHILE_DRAWING)
            self.rng.bit_generator.state = before
            raise
        finally:
            self.drawing = False
        self.successor = x.astype(np.int32)  # a stack of one, for this pair
        self.start[: pair + 1], self.start[pair + 1 :] = 0, 1
        self.at[:] = self.start[1:]  # no other pair has any
        self.at[pair] = 0

    def reach(self) -> int:
        """How many of the recorded transitions were used, counted from the first up to the last one taken."""
        taken = np.flatnonzero(self.at > self.start[:-1])  # the last one of each pair is the latest of that pair
        return int(self.order[self.at[taken] - 1].max()) + 1 if len(taken) else 0


def nothing_to_draw(states: IntArray, actions: IntArray, rng: Seed) -> IntArray:
    """In the place of a simulator, where there is none."""
    raise InputError("recorded data have nothing to draw from")
