"""Pairs of episodes: seeds, the range of the difference, what pairing saves; differences are bet on as returns are."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from policytest.payoffs.pairs import PairedEpisodes
from policytest.payoffs.returns import DrawnEpisodes


class Walker:
    """A Gymnasium-like environment: five steps with a reward of luck plus the action; luck comes from the seed."""

    def __init__(self, honours_seed=True):
        self.honours_seed, self.log, self.left = honours_seed, [], 0
        self.own = np.random.default_rng(99)

    def reset(self, seed=None):
        assert self.left == 0, "an episode began before the last was over"
        self.log.append(seed)
        self.rng = np.random.default_rng(seed) if self.honours_seed else self.own
        self.left = 5
        return self.rng.random(), {}

    def step(self, action):
        self.left -= 1
        luck = self.rng.random()
        return luck, 0.5 * luck + 0.5 * action, self.left == 0, False, {}


def agents(env, share_a=0.6, share_b=0.5):
    """Two agents that sample; their mean returns are 1.25 + 2.5 times their share."""
    return tuple(
        pt.Episodes(env, lambda observation, rng, p=p: float(rng.random() < p), horizon=5, reward_range=(0, 1))
        for p in (share_a, share_b)
    )


def test_both_episodes_of_a_pair_have_the_same_seed_in_one_environment():
    env = Walker()
    pairs = DrawnEpisodes(PairedEpisodes(*agents(env, 0.5, 0.5)), 3)
    for _ in range(4):
        taken = pairs.take(1_000)
        assert taken.returns[0] == 0.0  # the same agent under the same luck
        assert taken.steps[0] == 10
    assert env.log[::2] == env.log[1::2]
    assert len(set(env.log)) == 4


def test_the_difference_lies_between_the_extremes_of_both_ranges():
    a = pt.Episodes(lambda rng: 1.0, return_range=(0, 1))
    b = pt.Episodes(lambda rng: -2.0, return_range=(-2, 5))
    pairs = DrawnEpisodes(PairedEpisodes(a, b), 0)
    assert (pairs.low, pairs.high) == (-5.0, 3.0)
    assert pairs.take(1_000).above[0] == 3.0


@pytest.mark.parametrize("honours_seed", [True, False])
def test_pairs_have_the_mean_of_the_difference_and_less_variance_where_seeds_are_honoured(honours_seed):
    """Luck has variance 5/48 a return, and the actions 5/16 at 1/2; both agents use the same random numbers."""
    pairs = DrawnEpisodes(PairedEpisodes(*agents(Walker(honours_seed), 0.6, 0.5)), 1)
    found = np.concatenate([pairs.take(1_000).returns for _ in range(2000)])
    variance = 5 * 0.25 * (0.1 - 0.01) + (0.0 if honours_seed else 2 * 5 * 0.25 / 12)
    assert found.mean() == pytest.approx(0.25, abs=5 * np.sqrt(variance / 2000))
    assert found.var() == pytest.approx(variance, rel=0.25)


def test_an_interrupted_pair_is_run_again_from_its_seed():
    env = Walker()
    a, b = agents(env)
    expected, pairs = (DrawnEpisodes(PairedEpisodes(a, b), 5) for _ in range(2))
    wanted = [expected.take(1_000).returns[0] for _ in range(3)]
    pairs.take(1_000)
    step = env.step
    env.step = lambda action: (_ for _ in ()).throw(KeyboardInterrupt)
    with pytest.raises(KeyboardInterrupt):
        pairs.take(1_000)
    env.step, env.left = step, 0
    assert not pairs.drawing
    assert [pairs.take(1_000).returns[0] for _ in range(2)] == wanted[1:]


def test_a_comparison_is_a_test_on_the_differences():
    """With the margin as threshold, and the range of the difference: what the tests of returns promise, it promises."""
    a, b = (pt.Episodes(lambda rng, p=p: float(rng.random() < p), return_range=(0, 1)) for p in (0.35, 0.2))
    for margin, answer in ((-0.1, "above"), (0.15, None), (0.5, "below")):
        paired = pt.compare(a, b, margin=margin, rng=0, max_samples=400)
        pairs = paired.counts.episodes
        assert (paired.answer, paired.samples) == (answer, 2 * pairs)
        differences = iter(paired.counts.returns)
        told = pt.Episodes(lambda rng, differences=differences: float(next(differences)), return_range=(-1, 1))
        alone = pt.decide(told, threshold=margin, max_samples=pairs)
        assert (alone.answer, alone.evidence) == (answer, paired.evidence)
        assert alone.interval == paired.interval


def test_a_critic_has_no_part_in_pairs():
    cart = {"reward_range": (0, 1), "horizon": 30}
    plain, fast = (pt.Episodes("CartPole-v1", lambda o, turn=turn: int(o[turn] > 0), **cart) for turn in (2, 3))
    valued = pt.Episodes("CartPole-v1", lambda o: int(o[3] > 0), critic=lambda o: 20.0, **cart)
    expected, found = (pt.compare(plain, other, max_samples=500) for other in (fast, valued))
    np.testing.assert_array_equal(found.counts.returns, expected.counts.returns)
