"""The observations of one run: which pair is sampled next, and what followed. The only place with randomness.

Draws are made in blocks, never one too many: a block ends, at the latest, at the first sample at which the standing
witness could fail. Simulators that say they are `replayable` cost nothing, so they are drawn from ahead; what is drawn
ahead is kept for later and belongs to the run only once it is looked at. Where a block ends depends on the run alone: a
pause cuts it in two, and the second part comes first when the run goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.errors import InputError, blame_simulator
from policytest.data.randomness import Seed, generator, kept_extra, restored, stored
from policytest.data.simulators import SimulatorLike, checked_draw, draw_function
from policytest.data.transitions import Transitions
from policytest.kl.sampling import Rule, Walk, sampling_rule
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task

FIRST_BLOCK, LARGEST_BLOCK = 256, 32_768  # in large tasks a block grows to eight samples a row
LONGEST_REPLAY, UNLIMITED = 1_000_000, 2**62
NOTHING = np.zeros(0, dtype=np.int64)


class Drawn:
    """Draws from a simulator, and the steps that it made on the way to them: the user pays for both."""

    drawing = False  # whether the simulator is at work
    rng: np.random.Generator

    def __init__(self, task: Task, sim: SimulatorLike) -> None:
        self.task, self.sim, self.draw = task, sim, draw_function(sim)
        check_size(sim, task)
        self.travels = hasattr(sim, "extra_steps")
        self.extra = 0

    @property
    def extra(self) -> int:
        """The steps on the way, in this run."""
        return int(getattr(self.sim, "extra_steps", 0)) - self._before

    @extra.setter
    def extra(self, steps: int) -> None:
        self._before = int(getattr(self.sim, "extra_steps", 0)) - steps

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """No-op: a draw is never given up."""

    def close(self) -> None:
        """No-op: nothing is under way between draws."""

    @contextmanager
    def all_or_nothing(self) -> Iterator[None]:
        """Draw: if that fails or is interrupted, nothing was drawn, as far as the run is concerned."""
        before, self.drawing = self.rng.bit_generator.state, True
        try:
            yield
        except BaseException as error:
            self.rng.bit_generator.state = before
            blame_simulator(error)
            raise
        finally:
            self.drawing = False

    def successors(self, pair: IntArray, most: int) -> IntArray:
        """What follows these pairs; one by one where the simulator travels, as far as the samples go."""
        states, actions = pair // self.task.n_actions, pair % self.task.n_actions
        if not self.travels:
            return checked_draw(self.draw, states, actions, self.rng, self.task.n_states)
        found: list[IntArray] = []
        before = self.extra
        while len(found) < len(pair) and (not found or len(found) + self.extra - before < most):
            at = slice(len(found), len(found) + 1)
            found.append(checked_draw(self.draw, states[at], actions[at], self.rng, self.task.n_states))
        return np.concatenate(found)


class Source(Drawn):
    """Samples from a simulator, by a sampling rule."""

    def __init__(
        self, task: Task, sim: SimulatorLike, allocation: object, threshold: float, rng: Seed, batch: int = 1
    ) -> None:
        super().__init__(task, sim)
        self.ahead_is_free = bool(getattr(sim, "replayable", False))
        self.rule: Rule | Walk = sampling_rule(allocation, task, threshold)
        self.rng = generator(rng)
        self.batch, self.drawn = batch, 0
        self.k, self.x, self.size = NOTHING, NOTHING, max(FIRST_BLOCK, batch)
        self.left, self.planned_for = 0, np.inf  # draws left in this block, and the evidence required as it was planned
        self.largest = max(LARGEST_BLOCK, 8 * len(task.layout.pairs.pair), 2 * batch)

    def ahead(
        self, tally: WitnessedCounts, required: float, most: int, due: int = UNLIMITED
    ) -> tuple[IntArray, IntArray]:
        """Rows and successors of the next observations, at least one, at most as many as are allowed and due."""
        if not len(self.k):
            self._fill(tally, required, most, due)
        most = min(most, due)
        return self.k[:most], self.x[:most]

    @property
    def between_blocks(self) -> bool:
        """Whether the block is used up, whatever limit was set."""
        return not len(self.k) and not self.left

    def take(self, used: int) -> None:
        """These were looked at."""
        self.k, self.x = self.k[used:], self.x[used:]

    def _fill(self, tally: WitnessedCounts, required: float, most: int, due: int) -> None:
        """Draw a block. Where that fails or is interrupted, nothing was drawn, as far as the run is concerned."""
        rule, plan = self.rule.state(), (self.left, self.planned_for, self.size)
        try:
            with self.all_or_nothing():
                self._draw(tally, required, most, due)
        except BaseException:
            self.rule.restore(rule)
            self.left, self.planned_for, self.size = plan
            self.k, self.x = NOTHING, NOTHING
            raise

    def _draw(self, tally: WitnessedCounts, required: float, most: int, due: int) -> None:
        if isinstance(self.rule, Walk):
            pair, self.x = self.rule.steps(self.sim, self.draw, self.rng, self.size)
            self.k = self.task.layout.row_of_pair[pair]
            self.size = min(2 * self.size, self.largest)
            return
        going_on = self.left > 0 and required >= self.planned_for
        k = self.rule.plan(tally.n, tally.kernel, self.left if going_on else self.size)
        if self.ahead_is_free:
            self.size = min(2 * len(k), self.largest)
        elif not going_on:
            safe = self.drawn + tally.safe_ahead(k, required)
            k = k[: min(due, safe + -safe % self.batch - self.drawn)]
            self.left, self.planned_for = len(k), required
            self.size = min(2 * len(k) + self.batch + 16, self.largest)
        k = k if self.ahead_is_free else k[:most]
        x = self.successors(tally.rows.pair[k], most)
        self.k, self.x = k[: len(x)], x
        self.left -= 0 if self.ahead_is_free else len(x)
        self.drawn += len(x)

    def state(self) -> Arrays:
        """The generator, the rule, and what was drawn ahead."""
        rule = {f"rule.{name}": value for name, value in self.rule.state().items()}
        return {
            "generator": stored(self.rng),
            "k": self.k,
            "x": self.x,
            "size": np.array([self.size]),
            "drawn": np.array([self.drawn]),
            "left": np.array([self.left, self.planned_for]),
            "extra": np.array([self.extra]),
            **rule,
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state, with the generator as it was."""
        self.rng = restored(state["generator"])
        self.k, self.x = state["k"].astype(np.int64), state["x"].astype(np.int64)
        self.size, self.drawn = int(state["size"][0]), int(state["drawn"][0])
        left, required = state["left"]
        self.left, self.planned_for = int(left), float(required)
        self.extra = kept_extra(state)
        allowed = (
            (self.k >= 0) & (self.k < len(self.task.layout.pairs.pair)) & (self.x >= 0) & (self.x < self.task.n_states)
        )
        if self.k.ndim != 1 or not 0 < self.size <= self.largest or self.left < 0 or not allowed.all():
            raise ValueError("what was drawn ahead does not fit the task")
        self.rule.restore({name[5:]: value for name, value in state.items() if name.startswith("rule.")})


class Recorded:
    """Transitions that were observed before, in their order."""

    drawing = False
    between_blocks, extra = True, 0

    def __init__(self, k: IntArray, x: IntArray, r: FloatArray | None = None) -> None:
        self.k, self.x, self.r = k, x, np.zeros(0) if r is None else r

    @classmethod
    def of(cls, task: Task, data: Transitions) -> Recorded:
        """The rows of the task to which transitions belong, -1 for pairs that its policy never takes."""
        data.check_rewards(task)
        rewards = data.r / task.reward_scale if task.observes_rewards else None
        return cls(task.layout.row_of_pair[data.s * task.n_actions + data.a], data.x, rewards)

    def ahead(
        self, tally: WitnessedCounts, required: float, most: int, due: int = UNLIMITED
    ) -> tuple[IntArray, IntArray]:
        """The next ones."""
        most = min(most, due, LONGEST_REPLAY)
        return self.k[:most], self.x[:most]

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """No-op: nothing is drawn."""

    def close(self) -> None:
        """No-op: nothing is under way."""

    def take(self, used: int) -> None:
        """These were looked at."""
        self.k, self.x, self.r = self.k[used:], self.x[used:], self.r[used:]

    def extend(self, k: IntArray, x: IntArray, r: FloatArray | None = None) -> None:
        """More of them were observed."""
        self.k, self.x = np.concatenate([self.k, k]), np.concatenate([self.x, x])
        self.r = self.r if r is None else np.concatenate([self.r, r])

    def part(self, first: int, last: int | None = None) -> Recorded:
        """Some of them."""
        return Recorded(self.k[first:last], self.x[first:last], self.r[first:last])

    def state(self) -> Arrays:
        """Nothing is drawn here, so there is nothing to keep."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Nothing to do."""


def check_size(sim: SimulatorLike, task: Task) -> None:
    """Refuse a simulator that says it is of another size."""
    for name in ("n_states", "n_actions"):
        size = getattr(sim, name, getattr(task, name))
        if size != getattr(task, name):
            raise InputError(f"sim.{name} is {size}, but the task has {getattr(task, name)}")
