"""Episodes: what may be declared, which returns are possible, and what is refused."""

from __future__ import annotations

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, each
from episode_envs import Lasting
from policytest.data.episodes import geometric


def still(observation):
    return 0


def lasting(**settings):
    return pt.Episodes(Lasting(), still, **settings)


@each(
    ("rewards", "horizon", "gamma"),
    [((-1, 2), 4, 1.0), ((-1, 2), 4, 0.5), ((1, 2), 3, 0.9), ((-3, -1), 3, 0.9), ((0, 0), 5, 1.0), ((-1, 1), 6, 0.0)],
)
def test_returns_lie_where_the_worst_and_the_best_episode_of_every_length_do(rewards, horizon, gamma):
    """By enumeration: all rewards low, or all high, in episodes of 1 to H steps."""
    about = lasting(reward_range=rewards, horizon=horizon, discount=gamma)
    ends = [[sum(gamma**t * r for t in range(n)) for n in range(1, horizon + 1)] for r in rewards]
    assert about.bounds == pytest.approx((min(ends[0]), max(ends[1])))
    for t, earned in ((1, rewards[0]), (horizon - 1, rewards[1])):
        left = [[sum(gamma**k * r for k in range(n)) for n in range(horizon - t + 1)] for r in rewards]
        assert about.rest(t, earned) == pytest.approx((min(left[0]), max(left[1])))


def test_both_ranges_together_and_an_endless_discounted_episode():
    assert lasting(reward_range=(0, 1), discount=0.9).bounds == pytest.approx((0, 10))
    assert lasting(reward_range=(0, 1), return_range=(3, 50), horizon=12).bounds == (3, 12)
    assert lasting(return_range=(0, 12)).rest(2, 5.0) == (-5.0, 7.0)
    assert lasting(return_range=(0, 12), discount=0.5).rest(2, 5.0) == (-20.0, 28.0)
    assert geometric(0.5, 0) == 0.0


def test_the_time_limit_is_the_horizon_and_names_are_those_of_the_environment():
    pole = pt.Episodes("CartPole-v1", still, reward_range=(0, 1))
    assert (pole.horizon, pole.bounds, pole.name) == (500, (0, 500), "CartPole-v1")
    assert pt.Episodes(gym.spec("CartPole-v1"), still, reward_range=(0, 1), horizon=30).bounds == (0, 30)
    assert lasting(return_range=(0, 1)).name == "Lasting"
    assert pt.Episodes(np.mean, return_range=(0, 1)).name == "mean"
    assert pole.states is pole.actions is None
    assert "independent" in pole.assumptions[0]


@each(
    ("settings", "words"),
    [
        ({"reward_range": (1, 0), "horizon": 3}, ["reward_range is (1, 0)"]),
        ({"return_range": 5}, ["return_range is 5", "two numbers"]),
        ({"return_range": (np.inf, None)}, ["return_range is (inf, inf)", "or None for an end"]),
        ({"return_range": (np.nan, None)}, ["return_range[0] is nan"]),
        ({"return_range": (0, "high")}, ["return_range[1]"]),
        ({"return_range": (5, 6), "reward_range": (0, 1), "horizon": 3}, ["return_range is (5.0, 6.0)", "cannot give"]),
        ({"return_range": (0, 1), "discount": 1.1}, ["discount is 1.1"]),
        ({"return_range": (0, 1), "horizon": 0}, ["horizon"]),
        ({"return_range": (0, 1), "horizon": 2.5}, ["horizon"]),
        ({"return_range": (0, 1), "batched": "yes"}, ["batched"]),
    ],
)
def test_what_cannot_be_declared_is_refused(settings, words):
    assert_refused(lambda: lasting(**settings), *words)


@each(
    ("make", "words"),
    [
        (lambda: pt.Episodes("NoSuch-v1", still, return_range=(0, 1)), ["env is 'NoSuch-v1'", "cannot be made"]),
        (lambda: pt.Episodes(3, still, return_range=(0, 1)), ["env is a int", "function run(rng)"]),
        (lambda: pt.Episodes(Lasting, still, return_range=(0, 1)), ["env is the class Lasting", "Lasting(...)"]),
        (lambda: pt.Episodes(Lasting(), return_range=(0, 1)), ["agent is missing"]),
        (lambda: pt.Episodes(Lasting(), 3, return_range=(0, 1)), ["agent is a int", "object with predict"]),
        (lambda: pt.Episodes(np.mean, still, return_range=(0, 1)), ["env is a function", "leave it out"]),
        (lambda: pt.Episodes(np.mean, critic=still, return_range=(0, 1)), ["critic", "shows no observations"]),
    ],
)
def test_what_cannot_be_run_is_refused(make, words):
    assert_refused(make, *words)


def test_questions_about_episodes_that_make_no_sense_are_refused():
    coin, two = pt.Episodes(lambda rng: rng.random(), return_range=(0, 1)), pt.instances.paper(2)
    sim = pt.TabularSimulator(two.kernel)
    assert_refused(lambda: pt.decide(coin), "threshold is missing")
    assert_refused(lambda: pt.decide(coin, sim, 0.5), "Episodes need no simulator")
    assert_refused(lambda: pt.decide(coin, threshold=0.5, method=pt.TDBetting()), "ReturnBetting()")
    assert_refused(lambda: pt.decide(two.task, sim, 0.0, method=pt.ReturnBetting()), "ReturnBetting() is for Episodes")
    assert_refused(lambda: pt.decide(two.task, threshold=0.0), "sim is missing")
    assert_refused(lambda: pt.evaluate(coin), "epsilon is missing")
    assert_refused(
        lambda: pt.evaluate(two.task, sim, 0.1, method=pt.ReturnBetting()), "ReturnBetting() is for Episodes"
    )


def test_a_threshold_outside_the_range_needs_no_episode():
    def never(rng):
        raise AssertionError

    coin = pt.Episodes(never, return_range=(0, 1))
    for threshold, answer in ((1.5, "below"), (-0.1, "above")):
        found = pt.decide(coin, threshold=threshold)
        assert (found.answer, found.samples, found.certified, found.counts.episodes) == (answer, 0, True, 0)
        assert "no episodes were run" in str(found)
