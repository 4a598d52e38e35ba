"""Episodes that are run: an environment with an agent, one episode after the other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import Arrays, FloatArray
from policytest._base.errors import InputError, blame_simulator
from policytest.data.episodes import ROUNDING, Episodes, Range
from policytest.data.randomness import Seed, generator, restored, stored
from policytest.data.walks import LARGEST_SEED, FunctionWalk
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes

REPEATED, REPEATED_STEPS = 16, 1_000
"""The latest episodes that a resumed run repeats, until they have this many transitions."""


class GivenUp(Exception):  # noqa: N818 - it is not an error
    """The episode at hand is given up, after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


class Played(NamedTuple):
    """An episode that was run, for a resumed run to repeat."""

    seed: int
    earned: float
    steps: int
    over: bool  # the environment ended it, or its horizon; else it was cut


class DrawnEpisodes(EpisodeSupply):
    """Episodes of an environment, as a supply; each has a seed of its own, drawn from ``rng``.

    An episode is given up if `take` allows no more transitions, or if ``stop()``; its steps are ``given_up``. It is
    not part of the run: its seed is drawn again, so that a run that goes on begins with the same episode.
    """

    def __init__(self, episodes: Episodes, rng: Seed) -> None:
        self.about, self.rng = episodes, generator(rng)
        self.low, self.high = episodes.bounds
        self.most, self.given_up = math.inf, 0
        self.unseen: Range = (0.0, 0.0)  # what the rest of the last episode may add, where it was not seen
        self.recent: deque[Played] = deque(maxlen=REPEATED)

    def take(self, most: float) -> Outcomes:
        """The next episode; none where it has more than ``most`` transitions, or is stopped."""
        found = self._next(most)
        if found is None:
            return NO_OUTCOMES
        total, steps = np.array([found[0]]), np.array([found[1]])
        above, below = (total + rest if rest else total for rest in self.unseen)
        return Outcomes(above, below, total, steps)

    def allow(self, most: float, stop: Callable[[], bool]) -> None:
        """What ends the episode at hand: this many steps, or this function."""
        self.most, self.stop = most, stop

    def _next(self, most: float) -> tuple[float, int] | None:
        """An episode; one that is interrupted or given up is not part of the run: its seed is drawn again."""
        before, self.most, self.given_up = self.rng.bit_generator.state, most, 0
        try:
            with self._drawing():
                return self.episode(int(self.rng.integers(LARGEST_SEED)))
        except GivenUp as given_up:
            self.given_up = given_up.steps
        except BaseException:
            self.rng.bit_generator.state = before
            raise
        self.rng.bit_generator.state = before
        return None

    @property
    def extra(self) -> int:
        """The steps of the episode that was given up."""
        return self.given_up

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        self.drawing = True
        try:
            yield
        except BaseException as error:
            blame_simulator(error)
            raise
        finally:
            self.drawing = False

    def episode(self, seed: int) -> tuple[float, int]:
        """The return of an episode, and its steps. Where its rest was not seen, the middle of what it may be."""
        earned, steps, over = self._run(seed, self.about.last_step)
        self.recent.append(Played(seed, earned, steps, over))
        if over:
            self.unseen = (0.0, 0.0)
            return self.about.checked_return(earned, seed), max(steps, 1)
        low, high = self.about.unfinished(steps, earned, seed)
        self.unseen = 0.5 * (low - high), 0.5 * (high - low)
        return 0.5 * (low + high), steps

    def _run(self, seed: int, last: float) -> tuple[float, int, bool]:
        """What an episode earns, its steps, at most ``last`` of them, and whether it was over."""
        about, walk = self.about, self.about.walk
        with walk.turn:
            if isinstance(walk, FunctionWalk):
                return self._returned(walk.rewards(seed), seed)
            stepped: Any = walk
            observation, earned, scale, steps, over = stepped.begin(seed), 0.0, 1.0, 0, False
            step, checked, discount = stepped.step, about.checked_reward, about.discount
            while not over and steps < last:
                self._go_on(steps)
                observation, reward, over = step(observation)
                earned += scale * checked(reward, steps, seed)
                scale, steps = scale * discount, steps + 1
            return earned, steps, over or steps == about.horizon

    def _go_on(self, steps: int) -> None:
        """Give the episode up after so many steps, if it has to be."""
        if steps >= self.most or self.stop():
            raise GivenUp(steps)

    def _returned(self, returned: Any, seed: int) -> tuple[float, int, bool]:
        """The same of an episode that a function ran."""
        about, rewards = self.about, arrays.real_array("what run(rng) returned", np.atleast_1d(returned), (None,))
        horizon = about.horizon
        if horizon is not None and len(rewards) > horizon:
            raise InputError(
                f"run(rng) returned {len(rewards)} rewards (episode with seed {seed}), and the horizon is {horizon}; "
                "return at most as many"
            )
        if about.reward_range is not None:
            rewards = np.array([about.checked_reward(float(r), t, seed) for t, r in enumerate(rewards)])
        return float(np.dot(about.discount ** np.arange(len(rewards)), rewards)), len(rewards), True

    def repeat(self) -> None:
        """Run the latest episodes of a resumed run again; refuse an environment or agent that earns something else."""
        low, high = self.about.bounds
        self.most, left = math.inf, REPEATED_STEPS
        for seed, earned, steps, over in reversed(self.recent):
            with self._drawing():
                again, made, ends = self._run(seed, steps)
            same = math.isclose(again, earned, rel_tol=ROUNDING, abs_tol=ROUNDING * (high - low))
            if (made, ends) != (steps, over) or not same:
                on = " and goes on" if over and not ends else " and ends there" if ends and not over else ""
                raise InputError(
                    f"cannot resume: the episode with seed {seed} earned {earned:.9g} in {steps} steps, and now earns "
                    f"{again:.9g} in {made}{on}, so this is another environment or agent, or one that does not repeat "
                    "an episode for the same seed; pass the same, or start a new run"
                )
            if (left := left - steps) <= 0:
                break

    def state(self) -> Arrays:
        """The generator of seeds, and the latest episodes."""
        return {"rng": stored(self.rng), "recent": self.kept_recent()}

    def kept_recent(self) -> FloatArray:
        """[n, 4] the latest episodes."""
        return np.array(self.recent, dtype=np.float64).reshape(-1, 4)

    def restore(self, state: Arrays) -> None:
        """Go on with the seeds that come next."""
        self.rng = restored(state["rng"])
        self.restore_recent(state["recent"])

    def restore_recent(self, recent: FloatArray) -> None:
        """The latest episodes of the run that goes on."""
        self.recent.clear()
        self.recent.extend(Played(int(seed), float(r), int(steps), bool(over)) for seed, r, steps, over in recent)
