"""Small environments for tests of episodes: every law is known."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np


class Lasting(gym.Env):
    """Each step pays 1 and ends the episode with probability 1/4, after ``most`` steps at the latest.

    The observation is the step. Return and length are the same, so whoever prefers short episodes is wrong.
    """

    observation_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)
    mean = (1 - 0.75**12) / 0.25  # of min(geometric(1/4), 12)

    def __init__(self, most: int = 12) -> None:
        self.most = most

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.t += 1
        ended = self.np_random.random() < 0.25
        return np.array([float(self.t)]), 1.0, bool(ended), self.t >= self.most, {}


class Endless(gym.Env):
    """Pays 0 or 1, each half of the time, and never ends."""

    observation_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        return np.zeros(1), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return np.zeros(1), float(self.np_random.random() < 0.5), False, False, {}


def vector(mode: str = "NEXT_STEP", n: int = 8, env: Any = Lasting, **settings: Any) -> gym.vector.SyncVectorEnv:
    """Environments one after the other, in an autoreset mode."""
    return gym.vector.SyncVectorEnv([env] * n, autoreset_mode=gym.vector.AutoresetMode[mode], **settings)


class Scored(gym.Env):
    """Each step pays a normal reward and ends the episode with probability 1/4; half of the episodes are solved.

    The info of each step says what the episode has earned so far; that of a reset says other things, so that whoever
    takes the info of another step, or of another episode, is noticed.
    """

    observation_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.rewards: list[float] = []
        self.solved = bool(self.np_random.random() < 0.5)
        return np.zeros(1), {"total": -1e9, "steps": -1, "begins": True}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.rewards.append(float(self.np_random.normal()))
        ended = bool(self.np_random.random() < 0.25)
        info = {"total": sum(self.rewards), "steps": len(self.rewards), "nested": {"first": self.rewards[0]}}
        last = {"is_success": self.solved, "words": "over"} if ended else {}
        return np.zeros(1), self.rewards[-1], ended, False, info | last
