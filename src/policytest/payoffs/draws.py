"""Where the successors of rollouts come from."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.compiled.small import Draws
from policytest._base.errors import InputError
from policytest._base.record import numbers_of
from policytest.data.randomness import Seed, generator
from policytest.data.simulators import Draw, SimulatorLike, checked_draw, is_table, rewarded_draw
from policytest.kl.sampler import Drawn, Recorded
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task

MOST_AHEAD, LONGEST_STACK = 2**17, 256  # draws of all pairs, and of one, that are made ahead


class Supply(Drawn):
    """Where successors come from: a table (drawn from in compiled code), a simulator's calls, or recorded stacks."""

    def __init__(self, task: Task, sim: SimulatorLike, rng: Seed, waits: bool = False) -> None:
        super().__init__(task, sim)
        self.rng, self.waits = generator(rng), waits  # for draws that are recorded
        pairs = task.n_states * task.n_actions
        table = sim.table() if is_table(sim) else None  # rows without mass are refused by `draw`, when they are met
        self.is_table = table is not None and not table.empty[task.layout.pairs.pair].any()
        self.is_table = self.is_table and not task.observes_rewards
        self.size = 0
        self.order = np.zeros(0, dtype=np.int64)
        self.at = np.zeros(pairs, dtype=np.int64)
        self.reward = np.zeros(1 if task.observes_rewards and not waits else 0)
        self.ahead = 1  # draws of a pair that are made at once
        self.copies: Any = None  # of a simulator that travels: one for each rollout under way
        if table is not None and self.is_table:
            self.start, self.successor, self.cumulative, _ = table
        else:
            self.start = np.zeros(pairs + 1, dtype=np.int64)
            self.successor, self.cumulative = np.zeros(0 if waits else 1, dtype=np.int32), np.zeros(0)
        if task.observes_rewards and getattr(sim, "replayable", False):
            self._make_stacks(int(np.clip(MOST_AHEAD // pairs, 1, LONGEST_STACK)))

    @property
    def is_free(self) -> bool:
        """Whether draws cost nothing, so that many can be made at once."""
        return self.is_table or self.waits or self.ahead > 1

    def make_copies(self, workers: int) -> None:
        """So many copies of a simulator that travels to the pairs it is asked for, one for each rollout at work."""
        if self.travels and self.copies is None:
            if not hasattr(self.sim, "in_processes"):
                raise InputError(
                    "parallel: the simulator has extra_steps, so that rollouts are made one after the other",
                    "leave parallel out (it is then 1)",
                )
            self.copies = self.sim.in_processes(workers)

    def close(self) -> None:
        """End the processes of copies."""
        if self.copies is not None:
            self.copies.close()

    def _make_stacks(self, ahead: int) -> None:
        """Empty stacks of this many draws for each pair: draws that are free are made ahead."""
        pairs = len(self.at)
        self.ahead, self.start = ahead, np.arange(pairs + 1) * ahead
        self.successor, self.reward = np.zeros(pairs * ahead, dtype=np.int32), np.zeros(pairs * ahead)
        self.at = self.start[1:].copy()

    def stacks(self) -> Arrays:
        """What was drawn ahead."""
        if self.ahead == 1:
            return {}
        return {"stack_at": self.at.copy(), "stack_x": self.successor.copy(), "stack_r": self.reward.copy()}

    def restore_stacks(self, state: Arrays) -> None:
        """Go on with what was drawn ahead."""
        if self.ahead == 1:
            return
        size = len(self.reward)
        at, x = numbers_of(state, "stack_at", len(self.at)), numbers_of(state, "stack_x", size)
        inside = (self.start[:-1] <= at) & (at <= self.start[1:])
        if not (inside.all() and ((x >= 0) & (x < self.task.n_states)).all()):
            raise ValueError("what was drawn ahead does not fit the task")
        self.at, self.successor = at.astype(np.int64), x.astype(np.int32)
        self.reward = numbers_of(state, "stack_r", size)

    @classmethod
    def recorded(cls, task: Task, source: Recorded, rng: Seed) -> Supply:
        """Stacks of the recorded draws of each pair, in their order."""
        supply = cls(task, nothing_to_draw, rng, waits=True)
        supply.extend(source.k, source.x, source.r)
        return supply

    def go_on(self, rng: np.random.Generator, extra: int) -> None:
        """Draw on with this generator; so many steps were made beside the samples."""
        self.rng, self.extra = rng, extra

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

    def skip(self, rows: int) -> None:
        """The first rows of the log were used for something else."""
        self.size += rows

    def share(self, other: Supply) -> None:
        """The stacks of another one, from which this one takes its own draws."""
        taken = self.at - self.start[:-1]
        self.start, self.successor, self.order, self.size = other.start, other.successor, other.order, other.size
        self.reward = other.reward
        self.at = self.start[:-1] + taken

    def draws(self) -> Draws:
        """For the compiled code."""
        reward = self.reward if len(self.reward) or not self.task.observes_rewards else np.zeros(1)
        return Draws(self.is_table, self.start, self.successor, self.cumulative, self.at, reward)

    def provide(self, pair: int) -> None:
        """Draw the successor that is waited for."""
        x, r = self.successors_of(np.full(self.ahead, pair))
        if self.ahead > 1:
            own = slice(self.start[pair], self.start[pair + 1])
            self.successor[own], self.reward[own], self.at[pair] = x, r, self.start[pair]
            return
        self.successor, self.reward = x.astype(np.int32), r  # a stack of one, for this pair
        self.start[: pair + 1], self.start[pair + 1 :] = 0, 1
        self.at[:] = self.start[1:]  # no other pair has any
        self.at[pair] = 0

    def successors_of(self, pair: IntArray, draw: Draw | None = None) -> tuple[IntArray, FloatArray]:
        """What follows these pairs, with the rewards where these are observed, by one call of the simulator."""
        rewards, (states, actions), draw = self.task.rewards, np.divmod(pair, self.task.n_actions), draw or self.draw
        with self.all_or_nothing():
            if isinstance(rewards, Observed):
                return rewarded_draw(draw, states, actions, self.rng, rewards, self.task.reward_scale)
            return checked_draw(draw, states, actions, self.rng, self.task.n_states), np.zeros(0)

    def reach(self) -> int:
        """How many of the recorded transitions were used, counted from the first up to the last one taken."""
        taken = np.flatnonzero(self.at > self.start[:-1])  # the last one of each pair is the latest of that pair
        return int(self.order[self.at[taken] - 1].max()) + 1 if len(taken) else 0


def nothing_to_draw(states: IntArray, actions: IntArray, rng: Seed) -> IntArray:
    """In the place of a simulator, where there is none."""
    raise InputError("recorded data have nothing to draw from")
