"""Trained agents without Stable-Baselines3: files and their algorithms, spaces, statistics, what is refused."""

from __future__ import annotations

import importlib.util
import json
import pickle
import sys
import zipfile
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, each
from episode_envs import Lasting, NormaliseLike, VecEnvLike, vector
from policytest.data import trained_agents
from policytest.data.trained_agents import loaded, prepared, sendable


class Model:
    """As a model of Stable-Baselines3; it acts where what it sees is 0."""

    observation_space, action_space = Lasting.observation_space, Lasting.action_space
    normaliser = None

    @classmethod
    def load(cls, file, custom_objects=None):
        model = cls()
        model.loaded = str(file), custom_objects
        return model

    def save(self, file):
        file.write(b"a file")

    def get_vec_normalize_env(self):
        return self.normaliser

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (np.asarray(observation)[..., 0] == 0).astype(int), None


class Paying(Lasting):
    def step(self, action):
        return (found := super().step(action))[0], float(action), *found[2:]


def written(path, settings, policy="stable_baselines3.common.policies"):
    with zipfile.ZipFile(path, "w") as file:
        file.writestr("data", json.dumps({"policy_class": {"__module__": policy}, **dict.fromkeys(settings, 1)}))
    return path


@pytest.fixture
def libraries(monkeypatch):
    """Libraries whose classes are called as the algorithms."""
    for library in ("stable_baselines3", "sb3_contrib"):
        names = [name for name, home in trained_agents.LIBRARIES.items() if home == library]
        monkeypatch.setitem(sys.modules, library, SimpleNamespace(**{name: type(name, (Model,), {}) for name in names}))


COMMON = ("gamma", "learning_rate", "n_envs")
PPO = (*COMMON, "clip_range", "gae_lambda", "n_epochs", "target_kl")
FILES = [
    ("PPO", PPO, "stable_baselines3.common.policies"),
    ("PPO", PPO, "__main__"),
    ("RecurrentPPO", PPO, "sb3_contrib.common.recurrent.policies"),
    ("MaskablePPO", PPO, "sb3_contrib.common.maskable.policies"),
    ("A2C", (*COMMON, "gae_lambda", "normalize_advantage"), "stable_baselines3.common.policies"),
    ("TRPO", (*COMMON, "gae_lambda", "cg_max_steps", "target_kl"), "stable_baselines3.common.policies"),
    ("DQN", (*COMMON, "exploration_fraction"), "stable_baselines3.dqn.policies"),
    ("QRDQN", (*COMMON, "exploration_fraction", "n_quantiles"), "sb3_contrib.qrdqn.policies"),
    ("SAC", (*COMMON, "target_entropy", "target_update_interval"), "stable_baselines3.sac.policies"),
    ("TQC", (*COMMON, "target_entropy", "top_quantiles_to_drop_per_net"), "sb3_contrib.tqc.policies"),
    ("TD3", (*COMMON, "policy_delay", "target_policy_noise"), "stable_baselines3.td3.policies"),
    ("CrossQ", (*COMMON, "policy_delay", "target_entropy"), "sb3_contrib.crossq.policies"),
    ("ARS", (*COMMON, "delta_std_schedule"), "sb3_contrib.ars.policies"),
]


@each(("name", "settings", "policy"), FILES)
def test_a_file_tells_its_algorithm(name, settings, policy, tmp_path, libraries):
    path = written(tmp_path / "model.zip", settings, policy)
    for agent in (str(path), path, tmp_path / "model"):
        found = loaded(agent)
        assert type(found).__name__ == name
        assert found.loaded[0] == str(path)
    assert type(loaded(f"Sac:{path}")).__name__ == "SAC"
    about = pt.Episodes(Paying(), str(path), horizon=12, reward_range=(0, 1))
    assert pt.decide(about, threshold=0.9).samples
    assert {"learning_rate", "clip_range"} <= set(found.loaded[1]), "schedules are not read"


def test_what_is_not_a_file_of_an_agent(tmp_path, monkeypatch, libraries):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "text.zip").write_text("no archive")
    written(tmp_path / "unknown.zip", COMMON)
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as file:
        file.writestr("readme", "nothing")
    refusals = {
        "none.zip": "there is no file none.zip",
        "ppo:none.zip": "there is no file none.zip",
        "text.zip": "is not a file of Stable-Baselines3",
        "other.zip": "is not a file of Stable-Baselines3",
        "unknown.zip": "name it, as in ppo:unknown.zip",
        "nonsense:text.zip": "nonsense is not an algorithm; pass one of a2c",
        "uniform": "agent is 'uniform'",
    }
    for agent, words in refusals.items():
        assert_refused(lambda agent=agent: pt.Episodes(Lasting(), agent, return_range=(0, 12)), words)
        assert_refused(lambda agent=agent: pt.Episodes(vector(), agent, return_range=(0, 12)), words)

    class Broken(Model):
        @classmethod
        def load(cls, file, custom_objects=None):
            raise KeyError("policy")

    monkeypatch.setattr(sys.modules["stable_baselines3"], "DQN", Broken)
    assert_refused(lambda: loaded("dqn:unknown.zip"), "cannot be loaded as DQN (KeyError", "before the file")


@pytest.mark.skipif(importlib.util.find_spec("stable_baselines3") is not None, reason="it is installed")
def test_where_the_library_is_missing_the_error_says_how_to_get_it(tmp_path):
    written(tmp_path / "model.zip", PPO)
    assert_refused(lambda: loaded(tmp_path / "model.zip"), "needs stable_baselines3", "pip install")


BOX = gym.spaces.Box
SPACES = [
    (BOX(-1, 1, (3,)), BOX(-9, 9, (3,)), True),
    (BOX(-1, 1, (3,)), BOX(-1, 1, (4,)), False),
    (BOX(0, 255, (3, 8, 9), np.uint8), BOX(0, 255, (8, 9, 3), np.uint8), True),
    (BOX(0, 255, (3, 8, 9), np.uint8), BOX(0, 255, (9, 8, 3), np.uint8), False),
    (gym.spaces.Discrete(3), gym.spaces.Discrete(3), True),
    (gym.spaces.Discrete(3), gym.spaces.Discrete(4), False),
    (gym.spaces.Discrete(3), gym.spaces.Discrete(3, start=1), False),
    (gym.spaces.Discrete(3), gym.spaces.MultiDiscrete([3]), False),
    (gym.spaces.MultiDiscrete([2, 3]), gym.spaces.MultiDiscrete([2, 4]), False),
    (gym.spaces.MultiBinary(3), gym.spaces.MultiBinary(4), False),
    (gym.spaces.Dict({"a": BOX(0, 1, (2,))}), gym.spaces.Dict({"a": BOX(0, 2, (2,))}), True),
    (gym.spaces.Dict({"a": BOX(0, 1, (2,))}), gym.spaces.Dict({"a": BOX(0, 1, (3,))}), False),
    (gym.spaces.Dict({"a": BOX(0, 1, (2,))}), gym.spaces.Dict({"b": BOX(0, 1, (2,))}), False),
]


@each(("own", "there", "fits"), SPACES)
def test_observations_must_be_those_of_the_training(own, there, fits):
    agent = SimpleNamespace(observation_space=own, predict=len)
    for env in (SimpleNamespace(observation_space=there), SimpleNamespace(single_observation_space=there)):
        if fits:
            assert prepared(agent, env, None) is agent
        else:
            assert_refused(lambda env=env: prepared(agent, env, None), "observation space", "same wrappers")


def test_actions_must_have_the_bounds_of_the_training():
    """A policy whose actions are between -1 and 1 is another one where they may be between -2 and 2."""
    agent = SimpleNamespace(action_space=BOX(-1, 1, (2,)), predict=len)
    same, wider = (SimpleNamespace(action_space=BOX(-end, end, (2,))) for end in (1, 2))
    assert prepared(agent, same, None) is agent
    assert_refused(lambda: prepared(agent, wider, None), "action space", "-2.0")
    swapped = SimpleNamespace(action_space=BOX(0, 1, (2, 3, 4)), predict=len)
    assert_refused(lambda: prepared(swapped, SimpleNamespace(action_space=BOX(0, 1, (3, 4, 2))), None), "action space")


def test_an_agent_that_says_nothing_of_its_spaces_is_taken_as_it_is():
    for agent in (SimpleNamespace(predict=len), lambda observation: 0):
        assert prepared(agent, Lasting(), None) is agent


class Trained(Model):
    """Trained on observations less the mean of 5, so that it acts where the step is 5."""

    def __init__(self):
        self.normaliser = NormaliseLike(VecEnvLike(Lasting, 1))
        self.normaliser.mean = 5.0


def test_observations_are_normalised_as_in_the_training_unless_the_environment_does():
    own = Trained().normaliser
    own.venv = VecEnvLike(Paying, 3)
    for env in (Paying(), VecEnvLike(Paying, 3), vector(env=Paying, n=3), own):
        about = pt.Episodes(env, Trained(), horizon=12, return_range=(0, 1))
        returns = pt.evaluate(about, epsilon=0.12).counts.returns
        assert set(returns) == {0.0, 1.0}
        assert abs(np.mean(returns) - 0.75**5) < 5 * 0.5 / len(returns) ** 0.5, type(env)
    plain = SimpleNamespace(predict=Trained().predict)
    found = pt.decide(pt.Episodes(Paying(), plain, horizon=12, return_range=(0, 1)), threshold=0.9)
    assert set(found.counts.returns) == {1.0}, "by itself it takes the first step for the fifth"


def test_a_model_is_sent_to_a_process_as_its_file():
    """Without its buffers, its environments, and what cannot be pickled in it."""
    model = Model()
    model.environment = lambda: None  # not to be pickled
    assert type(pickle.loads(pickle.dumps(sendable(model)))) is Model
    normalised = Trained()
    normalised.normaliser = Subtracting()
    there = pickle.loads(pickle.dumps(sendable(normalised)))
    assert there.predict(np.array([5.0]))[0] == 1
    assert there.predict(np.array([0.0]))[0] == 0
    assert sendable(len) is len


class Subtracting:
    def normalize_obs(self, observations):
        return observations - 5.0
