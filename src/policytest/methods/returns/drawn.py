"""Episodes that are run: an environment with an agent, one episode after the other."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.errors import WHILE_DRAWING, InputError
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed, generator, restored, stored
from policytest.data.walks import LARGEST_SEED, FunctionWalk, Walk
from policytest.methods.returns.outcomes import Outcomes


class DrawnEpisodes:
    """Episodes of an environment, as a supply; each has a seed of its own, drawn from ``rng``."""

    exhausted = False
    drawing = False

    def __init__(self, episodes: Episodes, rng: Seed) -> None:
        self.about, self.rng = episodes, generator(rng)
        self.low, self.high = episodes.bounds

    def take(self, most: int) -> Outcomes:
        """One episode."""
        total, steps = self._guarded()
        found = np.array([total])
        return Outcomes(found, found, found, np.array([steps]))

    def _guarded(self) -> tuple[float, int]:
        """An episode; one that is interrupted is not part of the run: its seed is drawn again."""
        before = self.rng.bit_generator.state
        self.drawing = True
        try:
            return self.episode(int(self.rng.integers(LARGEST_SEED)))
        except BaseException as error:
            error.add_note(WHILE_DRAWING)
            self.rng.bit_generator.state = before
            raise
        finally:
            self.drawing = False

    def episode(self, seed: int) -> tuple[float, int]:
        """The return of an episode, and its steps."""
        about = self.about
        walk: Any = about.walk
        rewards = self._returned(walk, seed) if isinstance(walk, FunctionWalk) else self._stepped(walk, seed)
        checked = [about.checked_reward(r, t, seed) for t, r in enumerate(rewards)] if about.reward_range else rewards
        total = float(np.dot(about.discount ** np.arange(len(checked)), checked))
        return about.checked_return(total, seed), max(len(checked), 1)

    def _returned(self, walk: FunctionWalk, seed: int) -> list[float]:
        """The rewards of an episode that a function runs."""
        rewards = arrays.real_array("what run(rng) returned", np.atleast_1d(walk.rewards(seed)), (None,))
        horizon = self.about.horizon
        if horizon is not None and len(rewards) > horizon:
            raise InputError(
                f"run(rng) returned {len(rewards)} rewards (episode with seed {seed}), and the horizon is {horizon}; "
                "return at most as many"
            )
        return [float(reward) for reward in rewards]

    def _stepped(self, walk: Walk, seed: int) -> list[float]:
        """The rewards of an episode that is stepped."""
        horizon = self.about.horizon
        observation, rewards, over = walk.begin(seed), list[float](), False
        while not over and (horizon is None or len(rewards) < horizon):
            observation, reward, over = walk.step(observation)
            rewards.append(reward)
        return rewards

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """Whole episodes serve every question."""

    def state(self) -> dict[str, Any]:
        """The generator of seeds."""
        return {"rng": stored(self.rng)}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the seeds that come next."""
        self.rng = restored(state["rng"])
