"""Vectors with the interface of Stable-Baselines3, without it: rewards, ends, frozen statistics, what is refused.

That episodes are whole and counted in the order of their beginnings is tested with the vectors of Gymnasium, in
tests/methods/test_vectored.py.
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, each
from episode_envs import Lasting, NormaliseLike, Scored, VecEnvLike
from policytest.data.vec_envs import VecEnvAdapter, as_decimals, is_vec_env


def still(observation):
    return 0


def lasting(env=Lasting, agent=still, n=4, **settings):
    return pt.Episodes(VecEnvLike(env, n), agent, **{"horizon": 12, "reward_range": (0, 1), **settings})


def paying(reward, **attributes):
    class Paying(Lasting):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    for name, value in attributes.items():
        setattr(Paying, name, value)
    return Paying


def test_a_vector_is_known_by_its_methods():
    assert is_vec_env(VecEnvLike(Lasting, 1))
    assert is_vec_env(NormaliseLike(VecEnvLike(Lasting, 1)))
    assert not is_vec_env(Lasting())


def test_statistics_are_frozen_while_the_vector_is_stepped_and_left_as_they_were():
    """The agent sees what the statistics of the beginning make of it; rewards are those of the environments."""
    for training, norm_reward in ((True, True), (False, True), (True, False)):
        venv = NormaliseLike(VecEnvLike(Lasting, 4), training, norm_reward)
        venv.mean, seen = 0.5, set()

        def agent(observation, seen=seen):
            seen.add(float(observation[0]) % 1)
            return 0

        about = pt.Episodes(venv, agent, horizon=12, reward_range=(0, 1))
        returns = pt.decide(about, threshold=2.0).counts.returns
        assert np.array_equal(returns, np.rint(returns))
        assert returns.max() > 3
        assert seen == {0.5}
        assert (venv.training, venv.norm_reward, venv.mean, venv.count) == (training, norm_reward, 0.5, 0)


def test_an_error_leaves_the_statistics_as_they_were():
    def failing(self, action):
        raise ZeroDivisionError

    venv = NormaliseLike(VecEnvLike(type("Failing", (Lasting,), {"step": failing}), 2))
    with pytest.raises(ZeroDivisionError):
        pt.decide(pt.Episodes(venv, still, horizon=12, reward_range=(0, 1)), threshold=2.0)
    assert (venv.training, venv.norm_reward) == (True, True)


def test_rewards_in_single_precision_are_decimals():
    """As they come, 0.7 is less than 0.7, ten of them are less than 7, and 0.1 is above the range (0, 0.1)."""
    assert float(np.float32(0.7)) < 0.7
    assert as_decimals(np.array([0.7, -0.1, 3.0, 1e-9, np.nan], np.float32)).tolist()[:4] == [0.7, -0.1, 3.0, 1e-9]
    assert as_decimals(np.array([0.7])).tolist() == [0.7]
    found = pt.decide(lasting(paying(0.1), reward_range=(0, 0.1)), threshold=0.2)
    assert found.answer == "above"
    assert set(np.round(found.counts.returns / 0.1, 9)) <= set(range(1, 13))
    edge = pt.Episodes(VecEnvLike(paying(-16.2736044), 4), still, horizon=12, reward_range=(-16.2736044, 0))
    assert pt.decide(edge, threshold=-150.0).answer is not None
    assert_refused(lambda: pt.decide(lasting(paying(0.1001), reward_range=(0, 0.1)), threshold=0.2), "outside reward")


def test_the_info_is_that_of_the_last_step_of_an_episode():
    about = pt.Episodes(VecEnvLike(Scored, 4), still, horizon=100, outcome="is_success")
    found = pt.evaluate(about, epsilon=0.15)
    assert found.lower < 0.5 < found.upper
    totals = pt.Episodes(
        VecEnvLike(Scored, 4), still, horizon=100, outcome=lambda rewards, info: sum(rewards) - info["total"],
        return_range=(-1e-3, 1e-3),
    )  # fmt: skip
    differences = pt.decide(totals, threshold=5e-4).counts.returns
    assert abs(differences).max() < 1e-5, "rewards and info are of the same episode"


class Monitored(Lasting):
    """With what Monitor writes, which may count other rewards than those that are paid."""

    factor = 1.0

    def step(self, action):
        observation, reward, terminated, truncated, info = super().step(action)
        if terminated or truncated:
            info = {"episode": {"r": round(self.factor * self.t, 6), "l": self.t}}
        return observation, reward, terminated, truncated, info


def test_rewards_that_differ_from_those_of_monitor_are_refused():
    assert pt.decide(lasting(Monitored), threshold=2.0).answer == "above"
    changed = type("Changed", (Monitored,), {"factor": 10.0})
    assert_refused(lambda: pt.decide(lasting(changed), threshold=2.0), "add up to", "Monitor counted", "outcome=")
    assert_refused(lambda: pt.decide(lasting(changed, outcome=pt.at_least(3), reward_range=None), threshold=0.5), "Mon")
    own = {"outcome": lambda rewards, info: info["episode"]["r"], "return_range": (0, 120), "reward_range": None}
    assert pt.decide(lasting(changed, **own), threshold=15.0).answer == "above"


def test_a_vector_that_ends_an_episode_with_each_life_is_refused(monkeypatch):
    class Lives(Lasting):
        pass

    name = "stable_baselines3.common.atari_wrappers"
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(EpisodicLifeEnv=Lives))
    assert_refused(lambda: lasting(Lives), "EpisodicLifeEnv", "terminal_on_life_loss")
    assert pt.decide(lasting(), threshold=2.0).answer == "above"


@each("limits", [((12, 12), 12), ((12, 13), None), ((None, None), None)])
def test_the_time_limit_is_that_of_all_rows(limits):
    given, expected = limits
    made = iter(given)

    def make():
        env, limit = Lasting(), next(made)
        env.spec = None if limit is None else SimpleNamespace(max_episode_steps=limit, kwargs={}, id="There-v0")
        return env

    about = pt.Episodes(VecEnvLike(make, 2), still, return_range=(0, 12))
    assert (about.horizon, about.name) == (expected, "Lasting" if expected is None else "There-v0")


class Answering(VecEnvLike):
    def __init__(self, change=lambda *parts: parts, first=lambda observations: observations):
        super().__init__(Lasting, 4)
        self.change, self.first = change, first

    def reset(self):
        return self.first(super().reset())

    def step_wait(self):
        return self.change(*super().step_wait())


@each(
    ("env", "words"),
    [
        (Answering(lambda o, r, d, i: (o, r, d, d, i)), ["answered 5 values", "dones, infos"]),
        (Answering(lambda o, r, d, i: (o, r, d, {})), ["infos={}", "4 dictionaries"]),
        (Answering(lambda o, r, d, i: (o, r[:2], d, i)), ["the rewards", "4 numbers"]),
        (Answering(lambda o, r, d, i: (o, r.astype(str), d, i)), ["the rewards", "4 numbers"]),
        (Answering(lambda o, r, d, i: (o, r, ["no"] * 4, i)), ["4 truth values"]),
        (Answering(lambda o, r, d, i: (o, r + np.float32(np.nan), d, i)), ["is nan"]),
        (Answering(first=lambda o: (o, {})), ["env.reset answered", "the observations alone"]),
    ],
)
def test_what_a_vector_may_not_answer(env, words):
    about = pt.Episodes(env, still, horizon=12, reward_range=(0, 1))
    assert_refused(lambda: pt.decide(about, threshold=3.0), *words)


def test_an_object_with_predict_sees_all_rows_and_a_function_each_unless_told():
    class Model:
        def predict(self, observations, state=None, episode_start=None, deterministic=False):
            assert observations.shape == (4, 1)
            assert deterministic
            return np.zeros(4, int), None

    def batch(observations):
        assert observations.shape == (4, 1)
        return np.zeros(4, int)

    def row(observation):
        assert observation.shape == (1,)
        return 0

    found = [
        pt.decide(lasting(agent=agent, **settings), threshold=3.0).counts
        for agent, settings in ((Model(), {}), (batch, {"batched": True}), (row, {}))
    ]
    assert found[0] == found[1] == found[2]


def test_masks_are_those_of_the_rows():
    class Masking(Lasting):
        def reset(self, **settings):
            self.allowed = 0
            return super().reset(**settings)

        def action_masks(self):
            return np.arange(2) == self.allowed

        def step(self, action):
            assert action == self.allowed
            self.allowed = 1 - self.allowed
            return super().step(action)

    class Model:
        def predict(self, observation, state=None, episode_start=None, deterministic=False, action_masks=None):
            return np.argmax(action_masks, axis=-1), None

    for env in (VecEnvLike(Masking, 4), Masking()):
        about = pt.Episodes(env, Model(), horizon=12, reward_range=(0, 1))
        assert pt.decide(about, threshold=2.0).answer == "above"
    adapter = VecEnvAdapter(VecEnvLike(Lasting, 2))
    assert adapter.masks is None
