"""A stepped environment in several processes, so that the steps of many rollouts are made at the same time.

Each rollout has an environment of its own, which begins with `reset(seed=...)`. What it answers is a function of that
seed and of the pairs that the rollout has asked for: a process that is at another place makes these steps again, and
then the next one. So nothing is lost with a process, a draw that failed, or a run that is resumed later, and results do
not depend on who was fast. (An environment with random numbers from elsewhere is somewhere else after that, and walks
to the pair that is asked for: the answers are valid, but not the same.)

The steps that are made again are not counted; those on the way to a pair are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from policytest._base.arrays import IntArray
from policytest._base.errors import InputError, first_line
from policytest.data.processes import DEATHS, Died, Processes, pickled

if TYPE_CHECKING:
    from policytest.sources.environments.stepping import Stepping


Walk = tuple[int, int, list[int]]
"""The environment of a rollout: its process, its seed, and the pairs that were asked for before."""


class Moved(NamedTuple):
    """What a draw has added to the counters of `Stepping`."""

    steps: int
    resets: int
    extra_steps: int
    truncations: int


class SteppedCopies:
    """Copies of a stepped environment, each in a process of its own; so many start together, with the first draw."""

    def __init__(self, stepping: Stepping, workers: int) -> None:
        self.stepping, self.workers = stepping, workers
        try:
            self.made = pickled(partial(Replayed, stepping))
        except InputError:
            raise
        except Exception as error:
            raise InputError(
                f"parallel: the environment cannot be sent to another process ({type(error).__name__}: "
                f"{first_line(error)})",
                "leave out of it what cannot be pickled, or leave parallel out (it is then 1)",
            ) from error
        self.at = dict[int, Processes]()

    def of(self, walks: Sequence[Walk]) -> Callable[..., Any]:
        """`draw` for these environments."""
        return partial(self._drawn, walks)

    def _drawn(self, walks: Sequence[Walk], states: IntArray, actions: IntArray, rng: np.random.Generator) -> Any:
        """What follows each pair in the environment of its rollout; all of them step at the same time."""
        pairs = (states * self.stepping.n_actions + actions).tolist()
        try:
            self._start()
            calls = [
                (process := self._process(slot), process.begin(seed, [*before, pair]))
                for (slot, seed, before), pair in zip(walks, pairs, strict=True)
            ]
            found = [process.result(call, _never) for process, call in calls]
        except BaseException as error:  # what is under way is not waited for, and made again
            self.close()
            if isinstance(error, Died):
                raise InputError(
                    f"a step of the environment has ended its process {DEATHS} times: out of memory, killed, or by the "
                    "environment itself",
                    "step it in this process to see why: leave parallel out (it is then 1)",
                ) from error
            raise
        for _, moved, followers in found:
            self.stepping.count(moved, followers)
        answers = [answer for answer, _, _ in found]
        if isinstance(answers[0], tuple):
            return tuple(np.concatenate(part) for part in zip(*answers, strict=True))
        return np.concatenate(answers)

    def _start(self) -> None:
        """Start the processes, all at the same time."""
        if not self.at:
            started = [(process := self._process(slot), process.begin(0, [])) for slot in range(self.workers)]
            for process, call in started:
                process.result(call, _never)

    def _process(self, slot: int) -> Processes:
        if slot not in self.at:
            self.at[slot] = Processes(self.made, 1)
        return self.at[slot]

    def close(self) -> None:
        """End the processes."""
        for process in self.at.values():
            process.close()
        self.at.clear()


class Replayed:
    """In the other process: the copy, and how far it has come with which rollout."""

    def __init__(self, stepping: Stepping) -> None:
        self.stepping, self.seed, self.made = stepping, -1, list[int]()

    def __call__(self, seed: int, pairs: list[int]) -> tuple[Any, Moved, Counter[tuple[int, ...]]]:
        """The answer for the last pair; none where nothing is asked."""
        if pairs and (seed, pairs[:-1]) != (self.seed, self.made):
            self.stepping.start_again(seed)
            self.seed, self.made = seed, []
        answer, moved, followers = None, Moved(0, 0, 0, 0), Counter[tuple[int, ...]]()
        for pair in pairs[len(self.made) :]:
            before = self.stepping.moved()
            try:
                answer, followers = self.stepping.next(*divmod(pair, self.stepping.n_actions))
            except BaseException:
                self.seed = -1
                raise
            moved = Moved(*np.subtract(self.stepping.moved(), before).tolist())
            self.made.append(pair)
        return answer, moved, followers


def _never() -> bool:
    return False
