"""Agents of Stable-Baselines3 that are trained here, for seconds: `make test-sb3`. Skipped where it is not installed.

What needs no trained agent is tested without Stable-Baselines3, in test_vec_envs.py, test_trained_agents.py and
test_in_training.py.
"""

from __future__ import annotations

import re
import sys
from contextlib import closing

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, assert_same_verdict, run_code
from paths import ROOT

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
    """Half trained: an episode has some 170 steps with its best actions, and some 65 if it samples them."""
    model = sb3.PPO("MlpPolicy", "CartPole-v1", n_steps=256, batch_size=64, **SETTINGS)
    return model.learn(2_000)


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
    small = {"policy_kwargs": {"lstm_hidden_size": 16, "net_arch": [16]}, "n_epochs": 5}
    model = contrib.RecurrentPPO("MlpLstmPolicy", Recall(), n_steps=256, learning_rate=1e-2, **small, **SETTINGS)
    return model.learn(5_000)


def assert_agrees(about, returns, spread=None):
    """The interval has the mean that evaluate_policy found, give or take; and the bars on both sides are answered."""
    mean, error = np.mean(returns), 4 * np.std(returns) / len(returns) ** 0.5
    spread = max(spread or 0.0, 6 * np.std(returns) / 300**0.5, 0.05 * np.ptp(about.bounds))
    above = pt.decide(about, threshold=float(mean - spread), delta=0.01, max_samples=400_000)
    below = pt.decide(about, threshold=float(mean + spread), delta=0.01, max_samples=400_000)
    assert spread < 0.3 * np.ptp(about.bounds)
    assert (above.answer, below.answer) == ("above", "below"), (mean, spread, above, below)
    for verdict in (above, below):
        low, high = verdict.interval
        assert low - error <= mean <= high + error, (mean, verdict.interval)


def evaluated(model, env, episodes=500, deterministic=True):
    return evaluate_policy(model, env, episodes, deterministic, return_episode_rewards=True, warn=False)[0]


@pytest.mark.parametrize("deterministic", [True, False])
def test_the_verdict_agrees_with_evaluate_policy(ppo, deterministic):
    returns = evaluated(ppo, make_vec_env("CartPole-v1", n_envs=20, seed=7), deterministic=deterministic)
    vec = make_vec_env("CartPole-v1", n_envs=8)
    assert_agrees(pt.Episodes(vec, ppo, reward_range=(0, 1), deterministic=deterministic), returns)
    about = pt.Episodes("CartPole-v1", ppo, deterministic=deterministic, outcome=pt.at_least(150))
    share = np.mean(np.array(returns) >= 150)
    found = pt.evaluate(about, epsilon=0.15, delta=1e-3)
    assert found.lower - 0.1 <= share <= found.upper + 0.1
    assert found.counts.episodes > 20


def test_all_ways_to_run_one_agent_ask_the_same_question(ppo):
    """One environment, both kinds of vectors, rows one by one and at once: means within their errors."""
    settings = {"reward_range": (0, 1), "deterministic": True}
    ways = {
        "one": pt.Episodes("CartPole-v1", ppo, **settings),
        "vector": pt.Episodes(gym.make_vec("CartPole-v1", num_envs=4), ppo, batched=True, **settings),
        "rows": pt.Episodes(gym.make_vec("CartPole-v1", num_envs=4), ppo, **settings),
        "VecEnv": pt.Episodes(make_vec_env("CartPole-v1", n_envs=4), ppo, **settings),
        "its own": pt.Episodes(ppo.get_env(), ppo, **settings),
    }
    found = {way: pt.evaluate(about, budget=12).counts.returns for way, about in ways.items()}
    assert {len(returns) for returns in found.values()} == {12}
    means = {way: np.mean(returns) for way, returns in found.items()}
    spread = np.std(np.concatenate(list(found.values())))
    assert max(means.values()) - min(means.values()) < 5 * spread * (2 / 12) ** 0.5, means
    assert {about.horizon for about in ways.values()} == {500}
    assert {about.name for about in ways.values()} == {"CartPole-v1"}


def test_environments_in_processes_are_those_of_this_one(ppo):
    with closing(SubprocVecEnv([lambda: gym.make("CartPole-v1")] * 2)) as there:
        question = {"threshold": 100.0, "max_samples": 20_000}
        found = pt.decide(pt.Episodes(there, ppo, reward_range=(0, 1)), **question)
        here = DummyVecEnv([lambda: gym.make("CartPole-v1")] * 2)
        assert_same_verdict(found, pt.decide(pt.Episodes(here, ppo, reward_range=(0, 1)), **question))


def test_a_run_on_a_vector_goes_on_as_if_it_had_not_paused(ppo):
    about = pt.Episodes(make_vec_env("CartPole-v1", n_envs=3), ppo, reward_range=(0, 1), deterministic=False)
    question = {"threshold": 40.0, "delta": 1e-3}
    whole = pt.decide(about, **question)
    paused = pt.decide(about, **question, max_samples=whole.samples // 2)
    assert paused.answer is None
    assert_same_verdict(pt.decide(about, **question, resume=paused), whole)


def test_a_zip_file_is_its_model(ppo, recurrent, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    question = {"threshold": 100.0, "max_samples": 5_000}
    ppo.save("model.zip")
    expected = pt.decide(pt.Episodes("CartPole-v1", ppo, reward_range=(0, 1)), **question)
    for agent in ("model.zip", "ppo:model.zip", tmp_path / "model.zip", tmp_path / "model"):
        assert_same_verdict(pt.decide(pt.Episodes("CartPole-v1", agent, reward_range=(0, 1)), **question), expected)
    recurrent.save("memory.zip")
    about = pt.Episodes(Recall(), "memory.zip", return_range=(0, 1))
    assert type(about.walk.agent).__name__ == "RecurrentPPO"
    assert_refused(
        lambda: pt.Episodes("CartPole-v1", "sac:model.zip", reward_range=(0, 1)), "as SAC", "before the file"
    )
    assert_refused(lambda: pt.Episodes("Acrobot-v1", "model.zip", reward_range=(-1, 0)), "Box(4)", "Box(6)", "wrappers")


ALGORITHMS = {
    **dict.fromkeys(("A2C", "DQN", "PPO"), (sb3, "CartPole-v1")),
    **dict.fromkeys(("DDPG", "SAC", "TD3"), (sb3, "Pendulum-v1")),
    **dict.fromkeys(("ARS", "MaskablePPO", "QRDQN", "RecurrentPPO", "TRPO"), (contrib, "CartPole-v1")),
    **dict.fromkeys(("CrossQ", "TQC"), (contrib, "Pendulum-v1")),
}


def test_the_algorithm_of_a_file_is_found(tmp_path):
    for name, (library, env) in ALGORITHMS.items():
        policy = "MlpLstmPolicy" if name == "RecurrentPPO" else "MlpPolicy"
        small = {"buffer_size": 10} if name in ("DQN", "QRDQN", "SAC", "TD3", "DDPG", "TQC", "CrossQ") else {}
        getattr(library, name)(policy, env, **small, **SETTINGS).save(tmp_path / f"{name}.zip")
        about = pt.Episodes(env, tmp_path / f"{name}.zip", return_range=(-20_000, 500))
        found = type(about.walk.agent).__name__
        assert found == {"DDPG": "TD3"}.get(name, name)
        assert pt.decide(about, threshold=-1e4, max_samples=30).samples == 30


def test_the_command_line_takes_a_zip_file(ppo, tmp_path, monkeypatch, capsys):
    from policytest import cli

    monkeypatch.chdir(tmp_path)
    ppo.save("model.zip")
    words = ["decide", "gym:CartPole-v1", "--assume", "episodes", "--agent", "model.zip", "--outcome"]
    assert cli.main([*words, "at least 20", "--threshold", "0.5"]) == 0
    assert "at least 20 is above the threshold (certified)" in capsys.readouterr().out
    assert cli.main([*words, "at least 20", "--threshold", "0.5", "--vector", "4", "--batched"]) == 0
    assert cli.main(["decide", "gym:CartPole-v1", *words[2:4], "--agent", "no.zip", *words[6:], "at least 20",
                     "--threshold", "0.5"]) == 2  # fmt: skip
    assert "there is no file no.zip" in capsys.readouterr().err
    assert cli.main(["compare", "gym:CartPole-v1", "ppo:model.zip", *words[2:], "at least 20", "--budget", "5"]) == 3


def test_an_agent_with_a_memory_keeps_it_everywhere(recurrent):
    """Without its memory it could only guess: half of the episodes would be won."""
    returns = evaluated(recurrent, make_vec_env(Recall, n_envs=8, seed=3))
    assert np.mean(returns) > 0.9
    envs = {
        "one": (Recall(), {}),
        "VecEnv": (make_vec_env(Recall, n_envs=8), {}),
        "vector": (gym.vector.SyncVectorEnv([Recall] * 8), {"batched": True}),
        "rows": (gym.vector.SyncVectorEnv([Recall] * 3), {}),
    }
    for way, (env, settings) in envs.items():
        for which in (True, False):
            about = pt.Episodes(env, recurrent, outcome="is_success", deterministic=which, **settings)
            assert pt.decide(about, threshold=0.75).answer == "above", (way, which)

    class Forgetful:
        def predict(self, observation, deterministic=False):
            return recurrent.predict(observation, deterministic=deterministic)

    assert pt.decide(pt.Episodes(Recall(), Forgetful(), outcome="is_success"), threshold=0.75).answer == "below"


# ---------------------------------------------------------------- VecNormalize and other wrappers


def statistics(venv):
    rms = venv.obs_rms, venv.ret_rms
    return [np.copy(part) for one in rms for part in (one.mean, one.var, one.count)], venv.training, venv.norm_reward


def assert_untouched(venv, before):
    now = statistics(venv)
    for first, second in zip(before[0], now[0], strict=True):
        np.testing.assert_array_equal(first, second)
    assert before[1:] == now[1:]


def test_statistics_are_frozen_and_left_as_they_were(normalised):
    model, _ = normalised
    venv = model.get_env()
    before = statistics(venv)
    assert before[1:] == (True, True)
    verdict = pt.decide(pt.Episodes(venv, model, reward_range=(0, 1), horizon=500), threshold=60.0)
    assert verdict.answer == "above"
    assert_untouched(venv, before)
    returns = verdict.counts.returns
    assert np.array_equal(returns, np.rint(returns)), "returns are of the environment, not scaled"
    with pytest.raises(ZeroDivisionError):
        pt.decide(pt.Episodes(venv, model, outcome=lambda rewards, info: 1 / 0, return_range=(0, 1)), threshold=0.5)
    assert_untouched(venv, before)


def test_a_raw_environment_is_normalised_as_the_training_was(normalised):
    """By itself the network fails: it was trained on small numbers."""
    model, make = normalised
    frozen = VecNormalize(make_vec_env(make, n_envs=4), training=False, norm_reward=False)
    frozen.obs_rms = model.get_env().obs_rms
    returns = evaluated(model, frozen, 100)
    settings = {"reward_range": (0, 1), "horizon": 500}
    for env in (make(), make_vec_env(make, n_envs=4), frozen):
        assert_agrees(pt.Episodes(env, model, **settings), returns, spread=60)
    assert np.mean(evaluated(model.policy, make_vec_env(make, n_envs=4), 40)) < 0.5 * np.mean(returns)
    raw = pt.Episodes(make(), model.policy, **settings)
    assert pt.decide(raw, threshold=0.5 * float(np.mean(returns))).answer == "below"


def test_normalised_observations_may_be_stacked_and_counted(normalised):
    _, make = normalised

    class Watching:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            self.shape = observation.shape
            return np.zeros(2, int), None

    for wrap in (VecMonitor, lambda venv: VecFrameStack(VecNormalize(venv), 2)):
        venv, agent = wrap(make_vec_env(make, n_envs=2)), Watching()
        found = pt.decide(pt.Episodes(venv, agent, reward_range=(0, 1), horizon=500), threshold=5.0)
        assert found.answer == "above"
        assert agent.shape == (2, venv.observation_space.shape[0])


def test_rewards_that_a_wrapper_changes_behind_monitor_are_refused():
    class Halved(gym.RewardWrapper):
        def reward(self, reward):
            return reward / 2

    venv = DummyVecEnv([lambda: Halved(Monitor(gym.make("CartPole-v1")))] * 2)

    class Still:
        def predict(self, observation, deterministic=False):
            return np.zeros(2, int), None

    for settings in ({"reward_range": (0, 1)}, {"outcome": pt.at_least(4)}):
        about = pt.Episodes(venv, Still(), **settings)
        assert_refused(
            lambda about=about: pt.decide(about, threshold=0.9), "Monitor counted", "clip_reward", "outcome="
        )
    counted = pt.Episodes(venv, Still(), outcome=lambda rewards, info: info["episode"]["r"], return_range=(0, 500))
    returns = pt.decide(counted, threshold=100.0).counts.returns
    assert returns.min() >= 8
    assert np.array_equal(returns, np.rint(returns))


def test_lives_are_not_episodes():
    from stable_baselines3.common.atari_wrappers import EpisodicLifeEnv

    venv = DummyVecEnv([lambda: EpisodicLifeEnv(gym.make("CartPole-v1"))])
    assert_refused(lambda: pt.Episodes(venv, sb3.PPO("MlpPolicy", "CartPole-v1", **SETTINGS), reward_range=(0, 1)),
                   "lives of a game", "terminal_on_life_loss")  # fmt: skip


def test_nothing_is_imported_before_it_is_needed(tmp_path):
    code = """
    import sys, policytest as pt
    from policytest.sources import stable_baselines3
    pt.Episodes("CartPole-v1", lambda observation: 0, reward_range=(0, 1))
    print([name for name in ("torch", "stable_baselines3") if name in sys.modules])
    """
    done = run_code(code)
    assert done.stdout.strip() == "[]", done.stderr


# ---------------------------------------------------------------- observations and actions of other kinds


def test_dictionaries_and_continuous_actions():
    model = sb3.SAC("MultiInputPolicy", Reach(), learning_starts=200, buffer_size=2_000, learning_rate=3e-3, **SETTINGS)
    model.learn(900)
    for deterministic in (True, False):
        returns = evaluated(model, make_vec_env(Reach, n_envs=4, seed=1), 100, deterministic)
        for env, batched in (
            (Reach(), False),
            (make_vec_env(Reach, n_envs=4), False),
            (gym.vector.SyncVectorEnv([Reach] * 4), True),
        ):
            settings = {"return_range": (-10, 0), "batched": batched, "deterministic": deterministic}
            assert_agrees(pt.Episodes(env, model, **settings), returns, spread=2.0)


def test_images_have_their_channels_first_or_last():
    tiny = {"policy_kwargs": {"features_extractor_kwargs": {"features_dim": 8}}}
    model = sb3.PPO("CnnPolicy", Seen(), n_steps=16, batch_size=16, **tiny, **SETTINGS)
    assert model.observation_space.shape == (1, 36, 36)
    found = {}
    for way, env, batched in (
        ("one", Seen(), False),
        ("its own", model.get_env(), False),
        ("raw", DummyVecEnv([Seen] * 2), False),
        ("vector", gym.vector.SyncVectorEnv([Seen] * 2), True),
    ):
        about = pt.Episodes(env, model, return_range=(0, 4), batched=batched)
        found[way] = np.mean(pt.decide(about, threshold=2.0, delta=1e-9, budget=12).counts.returns)
    assert all(0 <= mean <= 4 for mean in found.values())
    assert_refused(lambda: pt.Episodes("CartPole-v1", model, reward_range=(0, 1)), "Box(1, 36, 36)")


def test_masked_actions_are_never_taken():
    class Masking(gym.Env):
        """Only one of five actions is allowed at a time."""

        observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(5)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t, self.allowed = 0, int(self.np_random.integers(5))
            return np.zeros(1, np.float32), {}

        def action_masks(self):
            return np.arange(5) == self.allowed

        def step(self, action):
            assert action == self.allowed
            self.t, self.allowed = self.t + 1, int(self.np_random.integers(5))
            return np.zeros(1, np.float32), 1.0, self.t == 3, False, {}

    model = contrib.MaskablePPO("MlpPolicy", Masking(), n_steps=16, **SETTINGS)
    for env in (Masking(), make_vec_env(Masking, n_envs=2)):
        for deterministic in (True, False):
            about = pt.Episodes(env, model, return_range=(0, 3), deterministic=deterministic)
            assert pt.decide(about, threshold=2.5).answer == "above"
    vector = gym.vector.SyncVectorEnv([Masking] * 2)
    assert_refused(lambda: pt.Episodes(vector, model, return_range=(0, 3)), "allowed actions", "VecEnv")


def test_a_network_of_ones_own_is_a_function_of_a_batch():
    """As CleanRL's agents are: a torch module with get_action_and_value."""

    class Agent(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.actor, self.critic = torch.nn.Linear(4, 2), torch.nn.Linear(4, 1)
            with torch.no_grad():
                self.actor.weight[:] = torch.tensor([[0.0, 0.0, -3.0, -1.0], [0.0, 0.0, 3.0, 1.0]])
                self.actor.bias[:] = 0.0

        def get_action_and_value(self, x):
            probs = torch.distributions.Categorical(logits=20 * self.actor(x))
            action = probs.sample()
            return action, probs.log_prob(action), probs.entropy(), self.critic(x)

    network = Agent().eval()

    def agent(observations):
        with torch.no_grad():
            return network.get_action_and_value(torch.as_tensor(observations, dtype=torch.float32))[0].numpy()

    env = gym.make_vec("CartPole-v1", num_envs=4)
    about = pt.Episodes(env, agent, reward_range=(0, 1), batched=True)
    first, again = (pt.decide(about, threshold=100.0, rng=1) for _ in range(2))
    assert first.answer == "above"
    assert_same_verdict(first, again)


# ---------------------------------------------------------------- processes


def test_models_are_sent_to_processes_as_their_files(ppo, normalised):
    pytest.importorskip("joblib")
    question = {"threshold": 60.0, "max_samples": 6_000}
    model, make = normalised
    for env, agent in (("CartPole-v1", ppo), (make, model)):
        about = pt.Episodes(env if isinstance(env, str) else env(), agent, reward_range=(0, 1), horizon=500)
        found, expected = pt.decide(about, parallel=2, **question), pt.decide(about, **question)
        assert found.counts == expected.counts
        assert (found.answer, found.evidence) == (expected.answer, expected.evidence)


# ---------------------------------------------------------------- in training


def learning(env="CartPole-v1", seed=0, **settings):
    return sb3.PPO("MlpPolicy", env, **{**SETTINGS, "n_steps": 256, "batch_size": 64, "seed": seed, **settings})


def test_training_stops_when_the_agent_is_good_enough_and_not_before(capsys):
    callback = StopWhenGoodEnough("CartPole-v1", 0.7, check_freq=2_000, outcome=pt.at_least(100), verbose=1)
    model = learning().learn(40_000, callback=callback)
    verdict, testing = callback.verdict, callback.testing
    assert verdict.answer == "above"
    assert model.num_timesteps < 40_000
    assert model.num_timesteps == 2_000 * testing.tested
    assert verdict.delta == pytest.approx(0.05 / (testing.tested * (testing.tested + 1)))
    assert testing.spent == pytest.approx(0.05 * testing.tested / (testing.tested + 1))
    assert f"checkpoint {testing.tested}" in str(verdict)
    assert "delta = 0.05" in testing.words
    assert capsys.readouterr().out.count("checkpoint") == testing.tested
    share = np.mean(np.array(evaluated(model, make_vec_env("CartPole-v1", n_envs=8, seed=5))) >= 100)
    assert share > 0.7, "the model is the one that was tested"
    again = pt.decide(callback.episodes, threshold=0.7, delta=verdict.delta, budget=100, rng=verdict.provenance.seed)
    assert_same_verdict(again, verdict)


def test_training_goes_on_to_its_end_if_the_agent_is_never_good_enough():
    """The control: an environment in which nothing can be learned."""

    class Coin(gym.Env):
        observation_space, action_space = gym.spaces.Box(0, 1, (1,)), gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            return np.zeros(1, np.float32), {}

        def step(self, action):
            return np.zeros(1, np.float32), float(self.np_random.random() < 0.5), True, False, {}

    callback = StopWhenGoodEnough(Coin(), 0.5, check_freq=256, budget=50, return_range=(0, 1))
    model = learning(Coin(), n_epochs=1).learn(5_120, callback=callback)
    assert model.num_timesteps == 5_120
    assert callback.testing.tested == 20
    assert callback.verdict.answer != "above"


def test_training_is_what_it_would_be_without_tests(tmp_path):
    """Of an agent that explores by chance: its generators go on as if nothing had been tested."""

    def trained(callback):
        model = sb3.DQN("MlpPolicy", "CartPole-v1", learning_starts=50, buffer_size=500, **SETTINGS)
        return model.learn(400, callback=callback)

    never = StopWhenGoodEnough("CartPole-v1", 499.0, check_freq=100, budget=3, reward_range=(0, 1))
    with pytest.warns(pt.AssumptionWarning, match="cannot be answered"):
        tested = trained(never)
    assert never.testing.tested == 4
    plain = trained(None)
    for (name, first), second in zip(
        tested.policy.state_dict().items(), plain.policy.state_dict().values(), strict=True
    ):
        assert torch.equal(first, second), name


def test_progress_is_told_to_tensorboard(tmp_path):
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    callback = StopWhenGoodEnough("CartPole-v1", 0.9, check_freq=300, budget=20, outcome=pt.at_least(400))
    learning(tensorboard_log=str(tmp_path)).learn(1_000, callback=callback)
    (folder,) = tmp_path.iterdir()
    events = EventAccumulator(str(folder))
    events.Reload()
    told = [name for name in events.Tags()["scalars"] if name.startswith("policytest/")]
    kinds = ("evidence_above", "evidence_below", "required", "estimate", "lower", "upper", "episodes", "delta_spent")
    assert {f"policytest/{kind}" for kind in kinds} == set(told)
    steps = [event.step for event in events.Scalars("policytest/evidence_below")]
    assert len(steps) == 3
    assert steps == sorted(steps)


def test_a_training_that_normalises_is_tested_with_its_statistics():
    def venv(n):
        return VecNormalize(make_vec_env("CartPole-v1", n_envs=n))

    for env in (venv(2), "CartPole-v1", lambda model: pt.Episodes("CartPole-v1", model, outcome=pt.at_least(60))):
        settings = {} if callable(env) and not hasattr(env, "reset") else {"outcome": pt.at_least(60)}
        callback = StopWhenGoodEnough(env, 0.5, check_freq=2_048, **settings)
        training = venv(4)
        model = learning(training, n_steps=128).learn(30_000, callback=callback)
        assert callback.verdict.answer == "above"
        assert model.num_timesteps < 30_000
        assert training.training
        if hasattr(env, "obs_rms"):
            assert env.training
            np.testing.assert_array_equal(env.obs_rms.mean, training.obs_rms.mean)


def test_what_a_callback_refuses():
    model = learning()
    assert_refused(lambda: StopWhenGoodEnough("CartPole-v1", 0.5, check_freq=0), "check_freq")
    assert_refused(lambda: StopWhenGoodEnough(lambda model: 3, 0.5, outcome=len), "outcome is for an environment")

    def learn(env, **settings):
        return lambda: model.learn(300, callback=StopWhenGoodEnough(env, 0.5, **settings))

    assert_refused(learn(model.get_env(), reward_range=(0, 1)), "where the agent is trained")
    assert_refused(learn(model.get_env().envs[0], reward_range=(0, 1)), "where the agent is trained")
    assert_refused(learn("Acrobot-v1", reward_range=(-1, 0)), "Box(6)")
    assert_refused(learn(lambda model: 3), "must return Episodes")
    other = VecFrameStack(VecNormalize(make_vec_env("CartPole-v1")), 1)
    normalising = learning(VecNormalize(make_vec_env("CartPole-v1")))
    callback = StopWhenGoodEnough(other, 0.5, reward_range=(0, 1))
    assert_refused(lambda: normalising.learn(300, callback=callback), "VecNormalize cannot follow")


def test_the_documentation_runs(tmp_path, monkeypatch, capsys):
    """The blocks of docs/environments.md with Stable-Baselines3 or PyTorch, with shorter training."""
    monkeypatch.chdir(tmp_path)
    text = (ROOT / "docs" / "environments.md").read_text(encoding="utf-8")
    codes = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    network = torch.nn.Linear(4, 2)
    network.get_action_and_value = lambda x: (network(x).argmax(dim=1), None, None, None)
    names = {"network": network, "poles": gym.make_vec("CartPole-v1", num_envs=4)}
    run = [code for code in codes if "stable_baselines3" in code or "torch" in code]
    assert len(run) == 3
    for code in run:
        short = code.replace("50_000", "600").replace("500_000", "1_200").replace("10_000", "500")
        exec(compile(short, "environments.md", "exec"), names)  # the project's own text
    assert (tmp_path / "model.zip").is_file()
    assert "checkpoint" in capsys.readouterr().out
    assert pt.decide(names["cleanrl"], threshold=400.0).answer == "below"
