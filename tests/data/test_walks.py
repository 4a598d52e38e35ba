"""An environment with an agent, one episode after the other; functions that run episodes."""

from __future__ import annotations

import json
import random
import threading
import time
from dataclasses import replace

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import Lasting
from policytest.payoffs.returns import DrawnEpisodes, WholeEpisodes
from policytest.results.load import from_data
from policytest.results.sentences import described


def still(observation):
    return 0


def episodes(env, agent=still, count=20, **settings):
    """Returns and steps of the first episodes."""
    supply = DrawnEpisodes(WholeEpisodes(pt.Episodes(env, agent, **settings)), 0)
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


class Trained:
    """With the predict of Stable-Baselines3: it samples unless it is deterministic, and remembers where it is told."""

    def __init__(self, draw=None):
        self.draw = draw or (lambda: np.random.rand())  # noqa: NPY002 - as such models do

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.array(1 if deterministic or self.draw() < 0.5 else 0), None


@each("draw", [np.random.rand, random.random, None])
def test_an_agent_is_deterministic_unless_it_is_asked_to_sample(draw):
    always, sampled, again = (
        episodes(Told(), Trained(draw), 100, reward_range=(0, 1), horizon=12, deterministic=which)
        for which in (True, False, False)
    )
    assert all(total == steps for total, steps in always)
    assert sampled == again, "the seed fixes what is drawn from generators that the process shares"
    assert 0.4 < sum(total for total, _ in sampled) / sum(steps for _, steps in sampled) < 0.6


def test_generators_that_the_process_shares_are_as_they_were():
    def state():
        return np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002

    before = state()
    episodes(Told(), Trained(), reward_range=(0, 1), horizon=12, deterministic=False)
    assert state() == before


def test_a_random_agent_that_samples_from_the_action_space_is_fixed_by_the_seed():
    env = Told()
    first, again = (
        episodes(env, lambda o: env.action_space.sample(), 50, reward_range=(0, 1), horizon=12) for _ in "ab"
    )
    assert first == again


class Recurrent:
    """Acts at the first step of an episode, by its hidden state and by ``episode_start``."""

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        n = len(episode_start)
        state = np.zeros(n) if state is None else np.where(episode_start, 0, state)
        action = (state == 0).astype(int)
        return (action if np.ndim(observation) > 1 else action[0]), state + 1


def test_the_hidden_state_is_handed_back_and_forgotten_where_an_episode_begins():
    """A recurrent agent that is called with state=None at every step would act at each of them."""
    assert {total for total, _ in episodes(Told(), Recurrent(), return_range=(0, 12))} == {1.0}


def test_the_verdict_says_which_policy_was_run():
    for which, words in ((True, "deterministic"), (False, "stochastic")):
        about = pt.Episodes(Told(), Trained(), horizon=12, reward_range=(0, 1), deterministic=which)
        verdict, found = pt.decide(about, threshold=0.5), pt.evaluate(about, epsilon=2.0)
        for result in (verdict, found):
            assert f"deterministic={which}" in str(result)
            told = json.loads(result.to_json())
            assert told["agent_policy"] == words
            assert str(from_data(told)) == str(result)
        assert f"The agent's policy is the {words} one" in described(about, "What is {}?")[0]
        pair = pt.compare(about, replace(about, deterministic=True), max_samples=50)
        assert f"agent A ({words}) against agent B (deterministic)" in pair.method
    plain = pt.decide(pt.Episodes(Told(), still, horizon=12, reward_range=(0, 1)), threshold=0.5)
    assert "agent_policy" not in json.loads(plain.to_json())


@each("agent", [still, Plain()])
def test_only_an_agent_that_has_two_policies_can_be_asked_to_sample(agent):
    assert_refused(lambda: pt.Episodes(Told(), agent, return_range=(0, 12), deterministic=False), "deterministic=False")
    assert_refused(
        lambda: pt.Episodes(Told(), agent, return_range=(0, 12), deterministic="no"), "deterministic is 'no'"
    )


def test_a_function_that_runs_episodes_has_one_policy():
    assert_refused(lambda: pt.Episodes(lambda rng: 1.0, return_range=(0, 1), deterministic=False), "deterministic")


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
    with pytest.warns(pt.AssumptionWarning, match=r"two episodes with the seed \d+ differ"):
        found = pt.decide(pt.Episodes(env, still, return_range=(0, 1)), threshold=0.3)
    assert (found.answer, found.counts.episodes) == ("above", env.resets - 1), "one is repeated"

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
        (np.nan, {"reward_range": (0, 1)}, ["is nan; rewards are finite numbers"]),
        (np.nan, {"return_range": (0, 1)}, ["is nan"]),
        (
            1.5,
            {"return_range": (0, 1)},
            ["the return of episode 1 (seed ", 'on_range="warn"'],
        ),
        ("1.0", {"reward_range": (0, 1)}, ["the reward of step 0", "is 1.0; rewards are finite numbers"]),
        ("much", {"return_range": (0, 1)}, ["is much; rewards are finite numbers"]),
        (np.ma.masked, {"return_range": (0, 1)}, ["the reward of step 0", "rewards are finite numbers"]),
        (None, {"return_range": (0, 1)}, ["is None"]),
        ([0.5, 0.5], {"reward_range": (0, 1)}, ["is [0.5, 0.5]"]),
    ],
)
def test_rewards_and_returns_outside_their_range_are_refused(reward, settings, words):
    class Paying(Lasting):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    assert_refused(lambda: episodes(Paying(), **{"horizon": 12, **settings}), *words)


@each("reward", [1, True, np.float32(1), np.int64(1), np.array(1.0), np.array([1.0])])
def test_numbers_of_any_type_are_rewards(reward):
    class Paying(Lasting):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, reward, *rest

    assert episodes(Paying(), return_range=(0, 12)) == episodes(Lasting(), return_range=(0, 12))


@each(
    ("flags", "words"),
    [
        (("no", False), ["terminated of env.step is 'no'", "True or False"]),
        ((False, "yes"), ["truncated of env.step is 'yes'"]),
        ((None, False), ["terminated of env.step is None"]),
        ((0.5, False), ["is 0.5"]),
        ((np.array([True, False]), False), ["terminated of env.step is"]),
    ],
)
def test_ends_that_are_not_truth_values_are_refused(flags, words):
    class Ending(Lasting):
        def step(self, action):
            observation, reward, _, _, info = super().step(action)
            return observation, reward, *flags, info

    assert_refused(lambda: episodes(Ending(), return_range=(0, 12)), *words)


@each("kind", [np.bool_, int, np.array])
def test_truth_values_of_any_type_end_episodes(kind):
    class Ending(Lasting):
        def step(self, action):
            observation, reward, terminated, truncated, info = super().step(action)
            return observation, reward, kind(terminated), kind(truncated), info

    assert episodes(Ending(), return_range=(0, 12)) == episodes(Lasting(), return_range=(0, 12))


@each(
    "answer",
    [np.zeros(4), (np.zeros(2), np.zeros(2)), (np.zeros(4), {}, {}), {"seen": 1}],
)
def test_reset_returns_an_observation_and_a_dictionary(answer):
    """The first number of a bare array is not the observation."""

    class Bare(Lasting):
        def reset(self, **settings):
            super().reset(**settings)
            return answer

    assert_refused(lambda: episodes(Bare(), return_range=(0, 12)), "env.reset answered", "(observation, info)")


def test_step_returns_five_parts():
    class Old(Lasting):
        def step(self, action):
            observation, reward, terminated, _, info = super().step(action)
            return observation, reward, terminated, info

    assert_refused(lambda: episodes(Old(), return_range=(0, 12)), "env.step answered 4 values", "truncated")


def in_threads(*calls):
    """What these functions return, each in a thread of its own."""
    found = [None] * len(calls)

    def run(i):
        try:
            found[i] = calls[i]()
        except Exception as error:
            found[i] = error

    threads = [threading.Thread(target=run, args=(i,)) for i in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


@each("by_function", [False, True])
def test_one_object_in_four_threads_gives_each_its_own_episodes(by_function):
    """An environment, or a function that steps one, is in one episode at a time; each thread runs whole episodes."""

    class Slow(Lasting):
        def step(self, action):
            time.sleep(1e-5)  # lets another thread run
            return super().step(action)

    env = Slow()

    def run(rng):
        env.reset(seed=int(rng.integers(2**31)))
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(0)
            total, over = total + reward, terminated or truncated
        return total

    about = pt.Episodes(run, return_range=(0, 12)) if by_function else pt.Episodes(env, still, return_range=(0, 12))
    calls = [lambda seed=seed: pt.decide(about, threshold=Lasting.mean, rng=seed, max_samples=200) for seed in range(4)]
    for found, call in zip(in_threads(*calls), calls, strict=True):
        assert_same_verdict(found, call())


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
