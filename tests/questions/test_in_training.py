"""Checkpoints of a training run with one delta for all; and the callback, with what Stable-Baselines3 calls it with."""

from __future__ import annotations

import os
import signal
import sys
import tomllib
from abc import ABC, abstractmethod
from dataclasses import replace
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import Lasting, NormaliseLike, VecEnvLike
from paths import ROOT
from policytest.questions.in_training import share_of_delta
from policytest.sources.stable_baselines3 import StopWhenGoodEnough


def coin(success):
    return pt.Episodes(lambda rng: float(rng.random() < success), return_range=(0, 1))


def test_shares_add_up_to_at_most_delta():
    shares = [share_of_delta(0.05, k) for k in range(1, 10_001)]
    assert sum(shares) == pytest.approx(0.05 * 10_000 / 10_001)
    assert sum(shares) < 0.05
    assert shares == sorted(shares, reverse=True)
    assert sum(share_of_delta(0.05, k, 20) for k in range(1, 21)) == pytest.approx(0.05)


def test_each_checkpoint_is_a_decision_with_its_share_and_its_own_seed():
    testing = pt.InTraining(threshold=0.5, delta=0.1, budget=60, seed=4)
    assert testing.verdict is None
    assert not testing.good_enough
    seeds = set()
    for k, success in enumerate((0.1, 0.5, 0.95), start=1):
        verdict = testing.decide(coin(success))
        assert verdict is testing.verdict
        assert verdict.delta == share_of_delta(0.1, k)
        assert f"checkpoint {k}" in str(verdict)
        assert "delta = 0.1" in str(verdict)
        assert verdict.certified is (verdict.answer is not None)
        assert verdict.counts.episodes <= 60
        seed = verdict.provenance.seed
        again = pt.decide(coin(success), threshold=0.5, delta=verdict.delta, budget=60, rng=seed)
        assert_same_verdict(again, verdict)
        seeds.add(seed)
    assert len(seeds) == 3
    assert testing.good_enough
    assert (testing.tested, testing.spent) == (3, pytest.approx(0.1 * 3 / 4))
    for words in ("checkpoint 3 is above 0.5", "any checkpoint so far", "at most 0.075", "delta = 0.1"):
        assert words in testing.words


def test_a_hopeless_checkpoint_takes_few_episodes():
    testing = pt.InTraining(threshold=0.8, budget=200)
    for _ in range(5):
        assert testing.decide(coin(0.0)).answer == "below"
        assert testing.verdict.counts.episodes <= 8


class Spending(pt.InTraining):
    """What must not be done: the whole delta for each checkpoint."""

    def decide(self, episodes):
        self.tested = 0
        return super().decide(episodes)


def test_delta_holds_for_all_checkpoints_together_and_not_if_each_has_all_of_it(monkeypatch):
    """Forty checkpoints at the threshold, by tests that are wrong as often as they may be.

    With real tests: benchmarks/in_training.py.
    """
    plain = pt.decide(coin(0.5), threshold=0.5, max_samples=1)

    def worst(episodes, *, threshold, delta, rng, **rest):
        answer = "above" if np.random.default_rng(rng).random() < delta else None
        return replace(plain, answer=answer, certified=answer is not None, delta=delta)

    monkeypatch.setattr("policytest.questions.in_training.decide", worst)
    delta, runs, wrong = 0.2, 200, {}
    for kind, half in ((pt.InTraining, 1.0), (Spending, 0.25)):  # the control has even less of it
        wrong[kind] = 0
        for seed in range(runs):
            testing = kind(threshold=0.5, delta=delta * half, seed=seed)
            for k in range(40):
                testing.seed = 1000 * seed + k
                testing.decide(coin(0.5))
                if testing.good_enough:
                    wrong[kind] += 1
                    break
    assert binom.sf(wrong[pt.InTraining] - 1, runs, delta) > 1e-6, wrong
    assert binom.sf(wrong[Spending] - 1, runs, delta) < 1e-6, wrong


def test_the_number_of_checkpoints_may_be_fixed_beforehand():
    testing = pt.InTraining(threshold=0.5, delta=0.06, checkpoints=2)
    assert [testing.decide(coin(0.2)).delta for _ in range(2)] == [0.03, 0.03]
    assert_refused(lambda: testing.decide(coin(0.9)), "checkpoints is 2", "one more")


def test_ctrl_c_during_a_test_ends_the_training(monkeypatch):
    def run(rng):
        os.kill(os.getpid(), signal.SIGINT)
        return 1.0

    testing = pt.InTraining(threshold=0.5)
    with pytest.raises(KeyboardInterrupt):
        testing.decide(pt.Episodes(run, return_range=(0, 1)))
    assert (testing.tested, testing.spent) == (0, 0.0)


@each(
    ("settings", "words"),
    [
        ({"threshold": "much"}, "threshold"),
        ({"threshold": 0.5, "delta": 1.0}, "delta"),
        ({"threshold": 0.5, "budget": 0}, "budget"),
        ({"threshold": 0.5, "checkpoints": 0}, "checkpoints"),
        ({"threshold": 0.5, "seed": -1}, "seed"),
    ],
)
def test_what_is_refused(settings, words):
    assert_refused(lambda: pt.InTraining(**settings), words)


def test_only_episodes_are_tested():
    assert_refused(lambda: pt.InTraining(threshold=0.5).decide(lambda rng: 1.0), "Episodes(env, agent")


# ---------------------------------------------------------------- the callback, as it is called


class BaseCallback(ABC):
    """What a callback of Stable-Baselines3 is."""

    def __init__(self, verbose=0):
        self.verbose, self.num_timesteps = verbose, 0

    @abstractmethod
    def _on_step(self):
        """Whether to go on."""


class Logger:
    def __init__(self):
        self.told, self.dumps = {}, []

    def record(self, name, value, exclude=None):
        self.told[name] = value

    def dump(self, step):
        self.dumps.append((step, dict(self.told)))


class Learner:
    """A model whose agent acts in the first ``skill`` steps of an episode, and learns a step in a hundred."""

    observation_space, action_space = Lasting.observation_space, gym.spaces.Discrete(2)

    def __init__(self, env):
        self.env, self.skill, self.normaliser, self.logger = env, 0, None, Logger()

    def save(self, file):
        raise AssertionError

    def get_vec_normalize_env(self):
        return self.normaliser

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return (np.asarray(observation)[..., 0] < self.skill).astype(int), None

    def learn(self, steps, callback):
        callback.model, callback.logger, callback.training_env = self, self.logger, self.env
        callback._on_training_start()
        for step in range(1, steps + 1):
            callback.num_timesteps, self.skill = step, step // 100
            if not callback._on_step():
                break
        return step


class Paying(Lasting):
    def step(self, action):
        return (found := super().step(action))[0], float(action), *found[2:]


@pytest.fixture(autouse=True)
def library(monkeypatch):
    """Where a callback looks for its base, and for what keeps statistics together."""

    def sync_envs_normalization(training, env):
        assert isinstance(env, NormaliseLike)
        env.mean = training.mean

    if "stable_baselines3" not in sys.modules:
        for name in ("stable_baselines3", "stable_baselines3.common"):
            monkeypatch.setitem(sys.modules, name, SimpleNamespace())
    callbacks = SimpleNamespace(BaseCallback=BaseCallback)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.callbacks", callbacks)
    vec_env = SimpleNamespace(sync_envs_normalization=sync_envs_normalization)
    monkeypatch.setitem(sys.modules, "stable_baselines3.common.vec_env", vec_env)
    from policytest.sources import stable_baselines3

    monkeypatch.setattr(stable_baselines3, "callback_of", stable_baselines3.callback_of.__wrapped__)


def learner():
    return Learner(VecEnvLike(Paying, 2))


def test_training_stops_at_the_first_checkpoint_that_is_good_enough(capsys):
    callback = StopWhenGoodEnough(
        Paying(), 1.5, check_freq=100, first_check=50, horizon=12, reward_range=(0, 1), verbose=1
    )
    assert isinstance(callback, BaseCallback)
    assert isinstance(callback, StopWhenGoodEnough)
    model = learner()
    stopped = model.learn(5_000, callback)
    assert callback.verdict.answer == "above"
    assert stopped == 50 + 100 * (callback.testing.tested - 1)
    assert 3 <= callback.testing.tested <= 8
    assert callback.verdict is callback.testing.verdict
    steps = [step for step, _ in model.logger.dumps]
    assert steps == list(range(50, stopped + 1, 100))
    last = model.logger.dumps[-1][1]
    assert last["policytest/evidence_above"] >= last["policytest/required"] == callback.verdict.required
    assert last["policytest/lower"] > 1.5
    assert last["policytest/delta_spent"] == callback.testing.spent
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(steps)
    assert lines[-1].startswith(f"checkpoint {len(steps)}, {stopped:,} steps: above after")


def test_training_goes_on_to_its_end_otherwise():
    callback = StopWhenGoodEnough(Paying(), 11.0, check_freq=500, budget=10, horizon=12, reward_range=(0, 1))
    with pytest.warns(pt.AssumptionWarning, match='"above" cannot be answered within 10 episodes'):
        assert learner().learn(2_000, callback) == 2_000
    assert callback.testing.tested == 4
    assert callback.verdict.answer == "below"


def test_a_function_of_the_model_makes_the_episodes():
    callback = StopWhenGoodEnough(
        lambda model: pt.Episodes(Paying(), model, outcome=pt.at_least(2)), 0.4, check_freq=100
    )
    learner().learn(5_000, callback)
    assert callback.verdict.answer == "above"
    assert "probability that the return is at least 2" in str(callback.verdict)


def test_the_action_space_of_the_model_goes_on_as_if_nothing_had_been_tested():
    drawn = []
    for callback in (
        StopWhenGoodEnough(Paying(), 11.0, check_freq=100, budget=80, horizon=12, reward_range=(0, 1)),
        SimpleNamespace(_on_training_start=lambda: None, _on_step=lambda: True),
    ):
        model = learner()
        model.action_space = gym.spaces.Discrete(2, seed=1)
        model.learn(300, callback)
        drawn.append([int(model.action_space.sample()) for _ in range(50)])
    assert drawn[0] == drawn[1]


def test_statistics_follow_those_of_the_training():
    model = Learner(NormaliseLike(VecEnvLike(Paying, 2)))
    model.normaliser, model.env.mean = model.env, 3.0
    own = NormaliseLike(VecEnvLike(Paying, 2))
    settings = {"horizon": 12, "reward_range": (0, 1), "check_freq": 100, "budget": 80}
    model.learn(150, StopWhenGoodEnough(own, 11.0, **settings))
    assert own.mean == 3.0
    other = NormaliseLike(VecEnvLike(Paying, 2))
    stacked = SimpleNamespace(**{name: getattr(other, name) for name in dir(other) if name[:1] != "_"})
    assert_refused(lambda: model.learn(150, StopWhenGoodEnough(stacked, 11.0, **settings)), "cannot follow", "same way")
    model.learn(150, StopWhenGoodEnough(Paying(), 11.0, **settings))  # normalised as the model is


def test_what_a_callback_refuses():
    model, settings = learner(), {"horizon": 12, "reward_range": (0, 1)}
    assert_refused(lambda: StopWhenGoodEnough(Paying(), 1.0, check_freq=0), "check_freq")
    assert_refused(lambda: StopWhenGoodEnough(Paying(), 1.0, delta=2.0), "delta")
    assert_refused(lambda: StopWhenGoodEnough(lambda model: 3, 1.0, outcome=len), "outcome is for an environment")
    assert_refused(lambda: model.learn(1, StopWhenGoodEnough(lambda model: 3, 1.0)), "must return Episodes")
    for env in (model.env, model.env.envs[0]):
        assert_refused(lambda env=env: model.learn(1, StopWhenGoodEnough(env, 1.0, **settings)), "agent is trained")


def test_the_extra_names_both_libraries_and_no_other_extra_has_them():
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert [name.split(">")[0] for name in extras["sb3"]][-2:] == ["stable-baselines3", "sb3-contrib"]
    assert "sb3" not in str(extras["all"] + extras["test"])


@pytest.mark.filterwarnings("ignore::policytest.AssumptionWarning")
@pytest.mark.parametrize(
    ("declared", "why"),
    [({}, "it is a large-sample answer"), ({"return_range": (-1, 2), "on_range": "warn"}, "outside return_range")],
)
def test_the_promise_excludes_answers_that_are_not_certified(declared, why):
    agent = pt.Episodes(lambda rng: rng.normal(2.0, 1.0), **declared)
    for accepted in (False, True):
        testing = pt.InTraining(threshold=0.0, budget=60, accept_uncertified=accepted)
        assert testing.decide(agent).answer == "above"
        assert testing.good_enough == accepted
    assert "as far as answers are certified; that about checkpoint 1 is not: " in testing.words
    assert why in testing.words
    certain = pt.InTraining(threshold=0.5)
    certain.decide(pt.Episodes(lambda rng: rng.random() < 0.9, return_range=(0, 1)))
    assert "certified" not in certain.words
