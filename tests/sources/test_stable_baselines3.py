"""Agents of Stable-Baselines3 that are trained here, for seconds: `make test-sb3`. Skipped where it is not installed.

What needs no trained agent is tested without Stable-Baselines3, in test_vec_envs.py, test_trained_agents.py and
test_in_training.py.
"""

from __future__ import annotations

import sys
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, assert_same_verdict

sb3 = pytest.importorskip("stable_baselines3", reason="Stable-Baselines3 is not installed: make test-sb3")
contrib = pytest.importorskip("sb3_contrib")
torch = sys.modules["torch"]

from stable_baselines3.common.env_util import make_vec_env  # noqa: E402
from stable_baselines3.common.evaluation import evaluate_policy  # noqa: E402
from stable_baselines3.common.monitor import Monitor  # noqa: E402
from stable_baselines3.common.vec_env import (  # noqa: E402
    DummyVecEnv,
    SubprocVecEnv,
    VecFrameStack,
    VecMonitor,
    VecNormalize,
)

from policytest.sources.stable_baselines3 import StopWhenGoodEnough  # noqa: E402

SETTINGS = {"device": "cpu", "seed": 0, "verbose": 0}
pytestmark = pytest.mark.filterwarnings("default")  # other libraries warn of what is to come


class Recall(gym.Env):
    """The first observation is a coin; five steps later the action has to be the coin. One step pays."""

    observation_space = gym.spaces.Box(-1.0, 1.0, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    LAST = 5

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.coin = 0, int(self.np_random.integers(2))
        return np.array([2 * self.coin - 1, 0], dtype=np.float32), {}

    def step(self, action):
        self.t += 1
        over = self.t == self.LAST
        right = float(over and action == self.coin)
        return np.array([0, self.t / self.LAST], dtype=np.float32), right, over, False, {"is_success": bool(right)}


class Reach(gym.Env):
    """A point on a line that is to be at 0; observations are a dictionary, actions a number."""

    observation_space = gym.spaces.Dict(
        {"at": gym.spaces.Box(-10.0, 10.0, (1,), np.float32), "left": gym.spaces.Box(0.0, 1.0, (1,), np.float32)}
    )
    action_space = gym.spaces.Box(-1.0, 1.0, (1,), np.float32)

    def _seen(self):
        return {"at": np.array([self.at], np.float32), "left": np.array([1 - self.t / 10], np.float32)}

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t, self.at = 0, float(self.np_random.uniform(-1, 1))
        return self._seen(), {}

    def step(self, action):
        self.t += 1
        self.at += float(np.clip(action[0], -1, 1)) * 0.5 + 0.05 * float(self.np_random.normal())
        return self._seen(), -min(abs(self.at), 1.0), False, self.t >= 10, {}


class Seen(gym.Env):
    """An image, brighter on one side; the action is to be that side."""

    observation_space = gym.spaces.Box(0, 255, (36, 36, 1), np.uint8)
    action_space = gym.spaces.MultiDiscrete([2, 2])

    def _image(self):
        self.side = int(self.np_random.integers(2))
        image = np.zeros((36, 36, 1), np.uint8)
        image[:, 18 * self.side : 18 * (self.side + 1)] = 255
        return image

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._image(), {}

    def step(self, action):
        assert action.shape == (2,)
        right = float(action[0] == self.side)
        self.t += 1
        return self._image(), right, False, self.t >= 4, {}


@pytest.fixture(scope="module")
def ppo():
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, **SETTINGS)
    return model.learn(6_000)


@pytest.fixture(scope="module")
def normalised():
    """Trained with VecNormalize, whose statistics matter: observations are a thousand times as large."""

    class Large(gym.ObservationWrapper):
        def __init__(self, env):
            super().__init__(env)
            self.observation_space = gym.spaces.Box(-np.inf, np.inf, (4,), np.float32)

        def observation(self, observation):
            return (1000 * observation + 300).astype(np.float32)

    def make():
        return Large(gym.make("CartPole-v1"))

    venv = VecNormalize(make_vec_env(make, n_envs=4, seed=0))
    return sb3.PPO("MlpPolicy", venv, n_steps=128, batch_size=64, **SETTINGS).learn(6_000), make


@pytest.fixture(scope="module")
def recurrent():
    return contrib.RecurrentPPO("MlpLstmPolicy", Recall(), n_steps=256, learning_rate=3e-3, **SETTINGS).learn(6_000)


def assert_agrees(about, returns, spread=None):
    """The interval has the mean that evaluate_policy found, give or take; and the bars on both sides are answered."""
    mean, error = np.mean(returns), 4 * np.std(returns) / len(returns) ** 0.5
    spread = max(spread or 0.0, 6 * np.std(returns) / 300**0.5, 0.02 * np.ptp(about.bounds))
    above = pt.decide(about, threshold=float(mean - spread), delta=1e-3, max_samples=400_000)
    below = pt.decide(about, threshold=float(mean + spread), delta=1e-3, max_samples=400_000)
    assert (above.answer, below.answer) == ("above", "below"), (mean, spread, above, below)
    for verdict in (above, below):
        low, high = verdict.interval
        assert low - error <= mean <= high + error, (mean, verdict.interval)


def evaluated(model, env, episodes=500, deterministic=True):
    return evaluate_policy(model, env, episodes, deterministic, return_episode_rewards=True, warn=False)[0]


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_verdict_agrees_with_evaluate_policy(ppo, deterministic):
    returns = evaluated(ppo, make_vec_env("CartPole-v1", n_envs=8, seed=7), deterministic=deterministic)
    vec = make_vec_env("CartPole-v1", n_envs=8)
    assert_agrees(pt.Episodes(vec, ppo, reward_range=(0, 1), deterministic=deterministic), returns)
    about = pt.Episodes("CartPole-v1", ppo, deterministic=deterministic, outcome=pt.at_least(150))
    share = np.mean(np.array(returns) >= 150)
    found = pt.evaluate(about, epsilon=0.15, delta=1e-3)
    assert found.lower - 0.1 <= share <= found.upper + 0.1
    assert found.counts.episodes > 20
