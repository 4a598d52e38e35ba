"""Small environments for tests of episodes: every law is known."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np

VEC_ENV = "VecEnv"


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


class VecEnvLike:
    """A vector with the interface of Stable-Baselines3's `DummyVecEnv`: it is reset within the step, and pays floats
    in single precision.
    """

    def __init__(self, make: Any, n: int) -> None:
        self.envs, self.num_envs = [make() for _ in range(n)], n
        self.observation_space, self.action_space = self.envs[0].observation_space, self.envs[0].action_space
        self.seeds: list[int | None] = [None] * n
        self.options: Any = None

    @property
    def unwrapped(self) -> Any:
        return self

    def seed(self, seed: int) -> list[int]:
        self.seeds = [seed + k for k in range(self.num_envs)]
        return self.seeds

    def _stacked(self, rows: Any) -> Any:
        if isinstance(rows[0], dict):
            return {key: np.stack([row[key] for row in rows]) for key in rows[0]}
        return np.stack(rows)

    def reset(self) -> Any:
        self.seen = [env.reset(seed=seed)[0] for env, seed in zip(self.envs, self.seeds, strict=True)]
        self.seeds = [None] * self.num_envs
        return self._stacked(self.seen)

    def step_async(self, actions: Any) -> None:
        self.actions = actions

    def step_wait(self) -> Any:
        rewards, dones, infos = np.zeros(self.num_envs, np.float32), np.zeros(self.num_envs, bool), []
        for k, env in enumerate(self.envs):
            self.seen[k], rewards[k], terminated, truncated, info = env.step(self.actions[k])
            dones[k] = terminated or truncated
            info = {**info, "TimeLimit.truncated": truncated and not terminated}
            if dones[k]:
                info["terminal_observation"] = self.seen[k]
                self.seen[k] = env.reset()[0]
            infos.append(info)
        return self._stacked(self.seen), rewards, dones, infos

    def step(self, actions: Any) -> Any:
        self.step_async(actions)
        return self.step_wait()

    def get_attr(self, name: str) -> list[Any]:
        return [getattr(env, name) for env in self.envs]

    def has_attr(self, name: str) -> bool:
        return all(hasattr(env, name) for env in self.envs)

    def env_method(self, name: str) -> list[Any]:
        return [getattr(env, name)() for env in self.envs]

    def env_is_wrapped(self, kind: Any) -> list[bool]:
        return [isinstance(env, kind) for env in self.envs]


class NormaliseLike:
    """With the interface of `VecNormalize`: statistics that follow what is seen, and rewards that are scaled."""

    def __init__(self, venv: Any, training: bool = True, norm_reward: bool = True) -> None:
        self.venv, self.training, self.norm_reward, self.norm_obs = venv, training, norm_reward, True
        self.mean, self.count = 0.0, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.venv, name)

    def normalize_obs(self, observations: Any) -> Any:
        return observations - self.mean

    def reset(self) -> Any:
        return self._seen(self.venv.reset())

    def _seen(self, observations: Any) -> Any:
        if self.training:
            self.count += 1
            self.mean += (float(np.mean(observations)) - self.mean) / self.count
        return self.normalize_obs(observations)

    def step(self, actions: Any) -> Any:
        observations, rewards, dones, infos = self.venv.step(actions)
        return self._seen(observations), rewards / 7 if self.norm_reward else rewards, dones, infos


def vector(mode: str = "NEXT_STEP", n: int = 8, env: Any = Lasting, **settings: Any) -> Any:
    """Environments one after the other, in an autoreset mode, or as Stable-Baselines3 has them."""
    if mode == VEC_ENV:
        return VecEnvLike(env, n)
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
