"""Episodes that are run: an environment with an agent, one episode after the other."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any, NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import Arrays
from policytest._base.errors import InputError, blame_simulator
from policytest.data.episodes import ROUNDING, Episodes, Range
from policytest.data.randomness import Seed, generator, restored, stored
from policytest.data.walks import LARGEST_SEED, FunctionWalk
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes, never

REPEATED, REPEATED_STEPS = 16, 1_000
"""The latest episodes that a resumed run repeats, until they have this many transitions."""
Drawing = Callable[[], AbstractContextManager[None]]  # in which the environment is at work


class GivenUp(Exception):  # noqa: N818 - it is not an error
    """The episode at hand is given up, after so many steps."""

    def __init__(self, steps: int) -> None:
        super().__init__(steps)
        self.steps = steps


class Played(NamedTuple):
    """An episode that was run, in this process or in another; for a resumed run to repeat."""

    seed: int
    earned: float
    steps: int
    over: bool  # the environment ended it, or its horizon; else it was cut


class Episode(NamedTuple):
    """What an episode has shown: its return, or an estimate of it, and its steps.

    ``unseen`` is what its rest may add, at least and at most, where it was not seen; nan on a side that is not bet on.
    """

    total: float
    steps: int
    unseen: Range = (0.0, 0.0)


class WholeEpisodes:
    """Whole episodes of an environment with an agent, each from its seed; `Cut` ones and `Paired` ones are subclasses.

    An episode is run, and settled. What runs knows its seed and its plan alone, so that it can be elsewhere; what
    settles learns from it, in the order in which episodes began. It is given up after as many transitions as are
    allowed, or if ``stop()``.
    """

    def __init__(self, episodes: Episodes) -> None:
        self.about, self.most, self.stop = episodes, math.inf, never
        self.low, self.high = episodes.bounds
        self.recent: deque[Played] = deque(maxlen=REPEATED)

    def allow(self, most: float, stop: Callable[[], bool] = never) -> None:
        """What ends the episode at hand: this many steps, or this function."""
        self.most, self.stop = most, stop

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """What the next episodes are for; whole ones serve all."""

    def episode(self, seed: int) -> Any:
        """An episode."""
        return self.settled(self.run(seed, self.plan_of(0)))

    @property
    def agents(self) -> tuple[Episodes, ...]:
        """What it is made from."""
        return (self.about,)

    def plan_of(self, ahead: int) -> Any:
        """The plan of an episode that begins now, where so many others are under way; whole ones need none."""

    def run(self, seed: int, plan: Any) -> Any:
        """Run an episode: all that is to be settled."""
        return Played(seed, *self._run(seed, self.about.last_step))

    def steps_of(self, seen: Any) -> int:
        """The transitions of an episode that was run."""
        played: Played = seen
        return played.steps

    def given_up_at(self, seen: Any, most: float) -> int | None:
        """The step at which an episode that was run would have been given up, had only so many been allowed."""
        over = not isinstance(self.about.walk, FunctionWalk) and self.steps_of(seen) > most
        return int(max(most, 0)) if over else None

    def settled(self, seen: Any) -> Any:
        """An `Episode` that was run. Where its rest was not seen, the return is the middle of what it may be."""
        self.recent.append(seen)
        seed, earned, steps, over = seen
        if over:
            return Episode(self.about.checked_return(earned, seed), max(steps, 1))
        low, high = self.about.unfinished(steps, earned, seed)
        return Episode(0.5 * (low + high), steps, (0.5 * (low - high), 0.5 * (high - low)))

    def _run(self, seed: int, last: float) -> tuple[float, int, bool]:
        """What an episode earns, its steps, at most ``last`` of them, and whether it was over."""
        about, walk = self.about, self.about.walk
        with walk.turn:
            if isinstance(walk, FunctionWalk):
                return self._returned(walk.rewards(seed), seed)
            stepped: Any = walk
            observation, earned, scale, steps, over = stepped.begin(seed), 0.0, 1.0, 0, False
            step, checked, discount = stepped.step, about.checked_reward, about.discount
            rewards: list[float] | None = None if about.judge is None else []
            while not over and steps < last:
                self._go_on(steps)
                observation, reward, over = step(observation)
                paid = checked(reward, steps, seed)
                earned += scale * paid
                scale, steps = scale * discount, steps + 1
                if rewards is not None:
                    rewards.append(paid)
            if rewards is not None:
                earned = about.outcome_of(np.array(rewards), stepped.info, seed)
            return earned, steps, over or steps == about.horizon

    def _go_on(self, steps: int) -> None:
        """Give the episode up after so many steps, if it has to be."""
        if steps >= self.most or self.stop():
            raise GivenUp(steps)

    def _returned(self, returned: Any, seed: int) -> tuple[float, int, bool]:
        """The same of an episode that a function ran."""
        about, info = self.about, dict[str, Any]()
        if isinstance(returned, tuple) and len(returned) == 2 and isinstance(returned[1], Mapping):
            returned, info = returned[0], dict(returned[1])
        rewards = arrays.real_array("what run(rng) returned", np.atleast_1d(returned), (None,))
        horizon = about.horizon
        if horizon is not None and len(rewards) > horizon:
            raise InputError(
                f"run(rng) returned {len(rewards)} rewards (episode with seed {seed}), and the horizon is {horizon}; "
                "return at most as many"
            )
        if about.reward_range is not None:
            rewards = np.array([about.checked_reward(float(r), t, seed) for t, r in enumerate(rewards)])
        if about.judge is not None:
            return about.outcome_of(rewards, info, seed), len(rewards), True
        return float(np.dot(about.discount ** np.arange(len(rewards)), rewards)), len(rewards), True

    def repeat(self, drawing: Drawing) -> None:
        """Run the latest episodes of a resumed run again; refuse an environment or agent that earns something else."""
        low, high = self.about.bounds
        left = REPEATED_STEPS
        self.allow(math.inf)
        for seed, earned, steps, over in reversed(self.recent):
            with drawing():
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
        """[n, 4] the latest episodes."""
        return {"recent": np.array(self.recent, dtype=np.float64).reshape(-1, 4)}

    def restore(self, state: Arrays) -> None:
        """The latest episodes of the run that goes on."""
        self.recent.clear()
        self.recent.extend(Played(int(seed), float(r), int(n), bool(over)) for seed, r, n, over in state["recent"])


class DrawnEpisodes(EpisodeSupply):
    """Episodes as a supply; each has a seed of its own, drawn from ``rng``.

    One that is given up, which has ``extra`` steps, is not part of the run: its seed is drawn again, so that a run that
    goes on begins with the same episode.
    """

    def __init__(self, player: WholeEpisodes, rng: Seed) -> None:
        self.player, self.rng, self.given_up = player, generator(rng), 0
        self.low, self.high = player.low, player.high

    def take(self, most: float) -> Outcomes:
        """The next episode; none where it has more than ``most`` transitions, or is stopped."""
        found: Episode | None = self.next(most)
        if found is None:
            return NO_OUTCOMES
        total = np.array([found.total])
        above, below = (total + rest if rest else total for rest in found.unseen)
        return Outcomes(above, below, total, np.array([found.steps]))

    def next(self, most: float) -> Any:
        """An episode, or None; one that is interrupted or given up is not part of the run: its seed is drawn again."""
        before, self.given_up = self.rng.bit_generator.state, 0
        self.player.allow(most, self.stop)
        try:
            with self.at_work():
                return self.player.episode(int(self.rng.integers(LARGEST_SEED)))
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
    def at_work(self) -> Iterator[None]:
        """While episodes are run."""
        self.drawing = True
        try:
            yield
        except BaseException as error:
            blame_simulator(error)
            raise
        finally:
            self.drawing = False

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """What the next episodes are for."""
        self.player.look(threshold, lead, both_sides)

    def repeat(self) -> None:
        """Run the latest episodes of a resumed run again."""
        self.player.repeat(self.at_work)

    def state(self) -> Arrays:
        """The generator of seeds, and the latest episodes."""
        return {"rng": stored(self.rng), **self.player.state()}

    def restore(self, state: Arrays) -> None:
        """Go on with the seeds that come next."""
        self.rng = restored(state["rng"])
        self.player.restore(state)
