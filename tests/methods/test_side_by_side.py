"""Agents on vectors of environments: which episodes make a pair, and from which random numbers."""

from __future__ import annotations

import signal

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import Lasting, Scored, vector
from policytest.data.vector_walks import MODES
from policytest.payoffs import side_by_side, vector_returns
from policytest.payoffs.side_by_side import InOrder, PairsInOrder
from test_vectored import ByTheirEnd

SCORED = {"return_range": (-100, 100)}


class SeededOnce(gym.vector.VectorWrapper):
    """A vector that is not known to give each row a seed of its own."""

    @property
    def unwrapped(self):
        return self


class Luck(gym.Env):
    """An episode of 1 to 6 steps; its last one pays luck that the seed fixes, and a little for the action 1."""

    observation_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.left, self.luck = self.np_random.integers(1, 7), self.np_random.random()
        return np.zeros(1), {}

    def step(self, action):
        self.left -= 1
        paid = 0.8 * self.luck + 0.1 + 0.06 * int(action) if self.left == 0 else 0.0
        return np.zeros(1), paid, bool(self.left == 0), False, {}


def lucky(action, env=None, **settings):
    return pt.Episodes(env or vector(n=3, env=Luck), lambda _: action, return_range=(0, 1), **settings)


def still(env, **settings):
    return pt.Episodes(env, lambda observation: 0, **{**SCORED, **settings})


def differences(a, b, pairs, seed=0):
    supply, found = PairsInOrder(a, b, seed), []
    while len(found) < pairs:
        found += supply.take(10**9).returns.tolist()
    return np.array(found[:pairs])


@each("mode", MODES)
@each("rows", [1, 5])
def test_the_kth_episode_has_the_kth_seed_whatever_the_row_and_the_length(mode, rows):
    """The agent is the same, so pairs that share all of their luck differ by nothing. Over more than one block."""
    assert not differences(still(vector(mode, rows, Scored)), still(Scored()), 100).any()
    assert not differences(still(vector(mode, rows, Scored)), still(vector(MODES[0], 3, Scored)), 100).any()


def test_in_processes_of_their_own():
    env = gym.vector.AsyncVectorEnv([Scored] * 2)
    try:
        assert not differences(still(env), still(Scored()), 40).any()
    finally:
        env.close()


@each("mode", MODES)
def test_both_agents_may_share_one_vector(mode):
    """They take turns, block by block, and their episodes are those of two vectors."""
    env = vector(mode, 3, Luck)
    shared = pt.compare(lucky(1, env), lucky(0, env))
    apart = pt.compare(lucky(1), lucky(0))
    assert shared.answer == apart.answer == "above"
    np.testing.assert_array_equal(shared.counts.returns, apart.counts.returns)
    assert shared.samples > apart.samples  # the episodes under way when the other one has its turn


def test_pairs_of_vectors_are_those_of_single_environments():
    single, found = pt.compare(lucky(1, Luck()), lucky(0, Luck())), pt.compare(lucky(1), lucky(0))
    assert (found.answer, found.certified) == (single.answer, single.certified) == ("above", True)
    assert found.counts.episodes == single.counts.episodes
    assert "with the same seed" in found.method
    assert "samples of pairs that were under way" in str(found)
    assert pt.compare(lucky(1), lucky(0), budget=40).counts.episodes < single.counts.episodes


def test_vectors_that_are_seeded_once_are_paired_in_order():
    found = pt.compare(lucky(1, SeededOnce(vector(n=3, env=Luck))), lucky(0), max_samples=400)
    assert "in the order in which they begin, independent of each other" in str(found)
    assert np.std(found.counts.returns) == pytest.approx(0.8 * (2 / 12) ** 0.5, rel=0.2)  # that of two lucks


class Stream(gym.Env):
    """An episode of as many steps as the action says, each of which pays the next random number of its row."""

    observation_space = gym.spaces.Box(0.0, np.inf, (1,), np.float64)
    action_space = gym.spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(1), {}

    def step(self, action):
        self.t += 1
        return np.zeros(1), float(self.np_random.random()), self.t >= action, False, {}


def told_by_the_past(n=400):
    """The correlation of A's k-th episode with the episode of B that began before, and used the k-th number."""
    a, b = (
        pt.Episodes(SeededOnce(vector("SAME_STEP", 1, Stream)), lambda _, steps=steps: steps, return_range=(0, 2))
        for steps in (1, 2)
    )
    supplies = InOrder((a, b), 3).supplies
    first, second = (np.concatenate([s.take(10**9).returns for _ in range(n)])[:n] for s in supplies)
    k = np.arange(2, 16)  # of the first block, where no row was seeded again
    return np.corrcoef(first[k], second[k // 2])[0, 1]


def test_rows_that_are_seeded_once_share_no_random_numbers(monkeypatch):
    """With one seed for both, A's k-th episode has the number that an earlier one of B has shown: the control."""
    assert abs(told_by_the_past()) < 0.6
    alike = np.random.default_rng
    monkeypatch.setattr(side_by_side.np.random, "default_rng", lambda *_: alike(5))
    assert told_by_the_past() > 0.6


def test_the_order_of_beginnings_keeps_delta_and_the_order_of_ends_does_not(monkeypatch):
    """A and B are the same agent; the episodes of a vector that are over first are short."""
    delta, runs = 0.2, 25

    def wrong():
        about = {"horizon": 12, "reward_range": (0, 1)}
        a, b = still(Lasting(), return_range=None, **about), SeededOnce(vector(n=32))
        b = still(b, return_range=None, **about)
        return sum(pt.compare(a, b, delta=delta, rng=seed, budget=40).answer == "above" for seed in range(runs))

    assert binom.sf(wrong() - 1, runs, delta) > 1e-6
    monkeypatch.setattr(side_by_side, "VectoredEpisodes", ByTheirEnd)
    assert binom.sf(wrong() - 1, runs, delta) < 1e-6


# ---------------------------------------------------------------- pauses

ABOUT = {
    "apart": lambda: (lucky(1), lucky(0)),
    "shared": lambda: [lucky(action, env) for env in [vector("DISABLED", 3, Luck)] for action in (1, 0)],
    "with one environment": lambda: (lucky(1), lucky(0, Luck())),
    "seeded once": lambda: (lucky(1, SeededOnce(vector(n=3, env=Luck))), lucky(0)),
}


@each("name", ABOUT)
def test_a_run_goes_on_as_if_it_had_not_paused(name, monkeypatch, tmp_path):
    monkeypatch.setattr(vector_returns, "FIRST_BLOCK", 4)
    question = {"rng": 2, "margin": -0.1 if name == "seeded once" else 0.0}
    whole, path = pt.compare(*ABOUT[name](), **question), tmp_path / f"{name}.npz"
    assert whole.answer == "above"
    kept = pt.compare(*ABOUT[name](), **question, checkpoint=path, max_samples=100)
    while kept.answer is None:
        limit = kept.samples + 150
        kept = pt.compare(*ABOUT[name](), **question, checkpoint=path, resume=path, max_samples=limit)
    np.testing.assert_array_equal(kept.counts.returns, whole.counts.returns)
    assert_same_verdict(kept, whole)


def test_ctrl_c_between_steps():
    def press(check):
        if check.episodes and check.episodes > 20:
            signal.raise_signal(signal.SIGINT)

    found = pt.compare(lucky(1), lucky(0), progress=press)
    assert (found.answer, found.reason) == (None, "interrupted")
    again = pt.compare(lucky(1), lucky(0), resume=found)
    assert_same_verdict(again, pt.compare(lucky(1), lucky(0)))


def test_another_agent_is_not_resumed_and_workers_are_refused():
    kept = pt.compare(lucky(1), lucky(0), max_samples=100)
    assert_refused(lambda: pt.compare(lucky(1), lucky(1), resume=kept), "now has")
    assert_refused(lambda: pt.compare(lucky(1, Luck()), lucky(0), resume=kept), "resume")
    assert_refused(lambda: pt.compare(lucky(1), lucky(0), parallel=2), "by itself")


def test_a_plan_of_pairs_runs_its_pilot_on_vectors():
    assert pt.plan((lucky(1), lucky(0)), pilot=20, max_samples=400).value == pytest.approx(0.06)
    assert pt.plan(lucky(1), threshold=0.3, pilot=20, max_samples=400).value > 0.3
