"""An environment with an agent, one episode after the other; functions that run episodes."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import Lasting
from policytest.methods.returns.drawn import DrawnEpisodes


def still(observation):
    return 0


def episodes(env, agent=still, count=20, **settings):
    """Returns and steps of the first episodes."""
    supply = DrawnEpisodes(pt.Episodes(env, agent, **settings), 0)
    found = [supply.take(10**9) for _ in range(count)]
    return [(float(one.returns[0]), int(one.steps[0])) for one in found]


class Told(Lasting):
    """Pays the action; every observation, action and reset is kept."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def reset(self, *, seed=None, options=None):
        self.seen.append(("reset", seed))
        return super().reset(seed=seed)

    def step(self, action):
        self.seen.append(("step", action))
        observation, _, *rest = super().step(action)
        return observation, float(action), *rest


class Model:
    """As trained agents are."""

    def predict(self, observation, state=None, deterministic=True):
        return np.int64(observation[0] % 2), None


class Plain:
    def predict(self, observation):
        return int(observation[0] % 2)


class Remembering:
    """Acts once in an episode."""

    def reset(self):
        self.acted = False

    def __call__(self, observation):
        acted, self.acted = self.acted, True
        return int(not acted)


@each("agent", [lambda o: int(o[0] % 2), Model(), Plain()])
def test_agents_are_functions_and_objects_that_predict(agent):
    found = episodes(Told(), agent, reward_range=(0, 1), horizon=12)
    assert found == [(steps // 2, steps) for _, steps in found]


def test_an_agent_with_random_numbers_has_its_own_and_the_seed_fixes_them():
    def coins(observation, rng):
        return int(rng.random() < 0.5)

    first, again = (episodes(Told(), coins, 200, reward_range=(0, 1), horizon=12) for _ in range(2))
    assert first == again
    assert [steps for _, steps in first] == [steps for _, steps in episodes(Told(), count=200, return_range=(0, 12))]
    shares = [total / steps for total, steps in first]
    assert abs(np.mean(shares) - 0.5) < 5 * 0.5 / 200**0.5
    assert len(set(first)) > 20


def test_an_agent_that_remembers_is_reset_with_its_environment():
    assert {total for total, _ in episodes(Told(), Remembering(), return_range=(0, 12))} == {1.0}


def test_every_episode_has_a_seed_of_its_own():
    env = Told()
    episodes(env, return_range=(0, 12))
    seeds = [what for kind, what in env.seen if kind == "reset"]
    assert len(seeds) == len(set(seeds)) == 20


def test_an_environment_without_seeds_is_run_too():
    class Seedless:
        def __init__(self):
            self.rng, self.resets = np.random.default_rng(0), 0

        def reset(self):
            self.resets += 1
            return 0, {}

        def step(self, action):
            return 0, self.rng.random(), True, False, {}

    env = Seedless()
    found = pt.decide(pt.Episodes(env, still, return_range=(0, 1)), threshold=0.3)
    assert (found.answer, found.counts.episodes) == ("above", env.resets)

    class Broken(Seedless):
        def reset(self, seed):
            raise TypeError("no room")

    with pytest.raises(TypeError, match="no room"):
        pt.decide(pt.Episodes(Broken(), still, return_range=(0, 1)), threshold=0.3)


def test_ends_time_limits_and_horizons():
    """An episode is over where the environment ends or truncates it, or at the horizon; then nothing is stepped."""

    class Endless(Told):
        def step(self, action):
            return np.zeros(1), 1.0, False, False, {}

    assert episodes(Endless(), horizon=7, reward_range=(0, 1)) == [(7.0, 7)] * 20
    limited = gym.wrappers.TimeLimit(Endless(), 5)
    assert episodes(limited, return_range=(0, 5)) == [(5.0, 5)] * 20
    assert episodes(limited, horizon=3, discount=0.5, reward_range=(0, 1)) == [(1.75, 3)] * 20
    assert {steps for _, steps in episodes(Lasting(), count=300, return_range=(0, 12))} == set(range(1, 13))


def test_observations_may_be_images_and_dictionaries():
    class Images(Lasting):
        def reset(self, **settings):
            super().reset(**settings)
            return {"image": np.zeros((64, 64, 3), dtype=np.uint8)}, {}

        def step(self, action):
            assert action == 7
            return {"image": np.full((64, 64, 3), self.t, dtype=np.uint8)}, *super().step(action)[1:]

    def sees(observation):
        assert observation["image"].shape == (64, 64, 3)
        return 7

    assert episodes(Images(), sees, reward_range=(0, 1), horizon=12) == episodes(Lasting(), return_range=(0, 12))


@each(
    ("reward", "settings", "words"),
    [
        (1.5, {"reward_range": (0, 1)}, ["the reward of step 0", "seed", "is 1.5, outside reward_range (0, 1)"]),
        (-1.0, {"reward_range": (0, 1)}, ["is -1, outside"]),
        (np.nan, {"reward_range": (0, 1)}, ["is nan, outside reward_range"]),
        (np.nan, {"return_range": (0, 1)}, ["is nan"]),
        (1.5, {"return_range": (0, 1)}, ["the return of the episode with seed", "outside return_range (0, 1)"]),
    ],
)
def test_rewards_and_returns_outside_their_range_are_refused(reward, settings, words):
    class Paying(Lasting):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    assert_refused(lambda: episodes(Paying(), **{"horizon": 12, **settings}), *words)


def test_rounding_is_not_outside_the_range():
    assert sum([0.1] * 3) > 0.3
    assert episodes(lambda rng: [0.1] * 3, None, return_range=(0, 0.3)) == [(0.3, 3)] * 20
    assert_refused(lambda: episodes(lambda rng: [0.1] * 3, None, return_range=(0, 0.3 - 1e-6)), "outside return_range")


def test_functions_that_run_episodes_return_rewards_or_a_return():
    kinds = (lambda rng: rng.random(3), lambda rng: rng.random(3).tolist(), lambda rng: float(rng.random(3).sum()))
    by_kind = [episodes(run, None, return_range=(0, 3)) for run in kinds]
    assert by_kind[0] == by_kind[1]
    assert [total for total, _ in by_kind[0]] == pytest.approx([total for total, _ in by_kind[2]])
    assert {steps for _, steps in by_kind[0]} == {3}
    assert {steps for _, steps in by_kind[2]} == {1}
    assert episodes(lambda rng: [1.0, 1.0], None, 1, discount=0.5, reward_range=(0, 1)) == [(1.5, 2)]
    assert episodes(lambda rng: [], None, 1, return_range=(0, 1)) == [(0.0, 1)], "it costs something all the same"


@each(
    ("returned", "words"),
    [
        ("much", ["what run(rng) returned"]),
        (None, ["what run(rng) returned"]),
        ([[1.0]], ["what run(rng) returned", "shape"]),
        ([np.nan], ["nan"]),
        ([0.0] * 5, ["returned 5 rewards", "the horizon is 4"]),
    ],
)
def test_what_a_function_may_not_return(returned, words):
    assert_refused(lambda: episodes(lambda rng: returned, None, return_range=(0, 1), horizon=4), *words)


def test_a_seed_fixes_a_run():
    about = pt.Episodes(Lasting(), still, return_range=(0, 12))
    first, again, other = (pt.decide(about, threshold=3.0, rng=seed) for seed in (1, 1, 2))
    assert_same_verdict(first, again)
    assert first.counts != other.counts
