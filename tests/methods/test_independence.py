"""What independent episodes hardly ever do is said: seeds without effect, episodes that are all the same, a drift."""

from __future__ import annotations

import itertools
import warnings

import gymnasium as gym
import numpy as np
import pytest

import policytest as pt
from builders import each
from episode_envs import vector
from policytest.payoffs.independence import ALARM, FEWEST, SAME, drift, mark_of, trend
from policytest.results import sentences
from policytest.results.load import parse


class Bandit(gym.Env):
    """One step with a reward from 0 to 1: by its seed, by a generator of its own, or by how often it was reset."""

    observation_space = gym.spaces.Box(0.0, 1.0, (1,), np.float64)
    action_space = gym.spaces.Discrete(2)

    def __init__(self, kind="seeded"):
        self.kind, self.own, self.resets, self.steps = kind, np.random.default_rng(5), 0, 0

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.resets += 1
        return np.zeros(1), {}

    def step(self, action):
        self.steps += 1
        luck = self.np_random.random()
        paid = {
            "seeded": luck,
            "own": self.own.random(),
            "fixed": 0.25,
            "drift": 0.5 * luck + self.resets / 400,
        }
        return np.array([luck if self.kind == "seeded" else 0.5]), float(paid[self.kind]), True, False, {}


def still(observation):
    return 0


def bandit(kind, **about):
    return pt.Episodes(Bandit(kind), still, return_range=(0, 1), **about)


def told(words, ask, *about, **settings):
    with pytest.warns(pt.AssumptionWarning, match=words) as said:
        found = ask(*about, **settings)
    assert len(said) == 1
    return found


def test_an_environment_that_ignores_its_seed_is_noticed():
    own = bandit("own")
    verdict = told(r"two episodes with the seed \d+ differ", pt.decide, own, threshold=0.3)
    assert (verdict.answer, verdict.certified) == ("above", True), "the answer stands"
    assert verdict.samples == verdict.counts.episodes == own.env.steps - 1, "the one that is repeated is no sample"
    assert "cannot be resumed" in str(verdict)
    again = parse(verdict.to_json(), "verdict.json")
    assert again.doubts == verdict.doubts
    assert again.to_json() == verdict.to_json()
    assert sentences.warnings(again)[0].startswith("Two episodes with the seed")
    words = r"two episodes with the seed \d+ differ of agent B"
    assert told(words, pt.compare, bandit("seeded"), own, margin=-0.5).answer == "above"
    estimate = told(r"two episodes with the seed \d+ differ", pt.evaluate, own, epsilon=0.2)
    assert "Beware: two episodes" in str(estimate)


def test_no_episode_of_a_budget_is_repeated():
    own = bandit("own")
    assert pt.decide(own, threshold=0.3, budget=50).samples == own.env.steps


def test_a_function_that_draws_nothing_is_noticed():
    own = np.random.default_rng(0)
    told("draws nothing from rng", pt.decide, pt.Episodes(lambda rng: own.random(), return_range=(0, 1)), threshold=0.2)
    spawns = pt.Episodes(lambda rng: rng.spawn(1)[0].random(), return_range=(0, 1))
    assert pt.decide(spawns, threshold=0.2).doubts == ()


def bandits(kind, mode="NEXT_STEP"):
    return pt.Episodes(vector(mode, 3, lambda: Bandit(kind)), still, return_range=(0, 1))


SAME_AGAIN = [
    lambda: bandit("fixed"),
    lambda: bandits("fixed"),
    lambda: bandits("fixed", "SAME_STEP"),
    lambda: pt.Episodes(lambda rng: [0.25], return_range=(0, 1)),
]


@each("episodes", SAME_AGAIN)
def test_episodes_that_are_all_the_same_are_noticed(episodes):
    verdict = told(r"all \d+ episodes were the same, with the return 0.25", pt.decide, episodes(), threshold=0.23)
    assert verdict.counts.episodes >= SAME
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pt.decide(episodes(), threshold=0.23, max_samples=SAME // 2).answer is None


def test_perfect_agents_are_not_told_that_they_repeat_themselves():
    """The same return from different episodes: 500 steps of CartPole, or a success."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert pt.decide(bandit("seeded", outcome=pt.at_least(0)), threshold=0.95).counts.episodes > SAME


def test_whether_all_were_the_same_is_kept(tmp_path):
    kept = tmp_path / "run.npz"
    pt.decide(bandit("fixed"), threshold=0.23, max_samples=SAME - 5, checkpoint=kept)
    told("were the same", pt.decide, bandit("fixed"), threshold=0.23, max_samples=SAME + 5, resume=kept)


def test_a_drift_is_noticed():
    found = told("the mean return seems to change", pt.evaluate, bandit("drift"), budget=150)
    assert "not about those to come" in str(found)
    log = pt.LoggedEpisodes(None, found.counts.returns, return_range=(0, 1))
    told("the mean return seems to change", pt.assess, log, threshold=0.6)


@each("values", [[0.0, 1.0, 2.0, 3.0, 4.0, 5.0], [0.0, 0.0, 0.0, 1.0, 1.0, 5.0]])
def test_the_variance_of_the_rank_correlation_is_exact(values):
    """By enumeration of all orders, with ties and without: mean 0, variance 1/(n - 1)."""
    found = [trend(order)[0] for order in itertools.permutations(values)]
    assert np.mean(found) == pytest.approx(0.0, abs=1e-12)
    assert np.var(found) == pytest.approx(1.0 / (len(values) - 1))


def alarms(draw, episodes, runs=1500):
    """How often a drift is told, of independent returns, or not."""
    rng = np.random.default_rng(7)
    return sum(bool(drift(draw(rng, episodes))) for _ in range(runs))


@each(
    "draw",
    [
        lambda rng, n: rng.random(n),
        lambda rng, n: rng.pareto(1.5, n),
        lambda rng, n: (rng.random(n) < 0.03).astype(float),
        lambda rng, n: np.round(rng.normal(0, 2, n)),
    ],
)
def test_independent_returns_hardly_ever_drift(draw):
    """1,500 runs at a level of 1e-4: five alarms have a probability below 1e-4; a drift is found in nearly all."""
    assert alarms(draw, FEWEST) + alarms(draw, 150, 500) < 5
    assert alarms(lambda rng, n: draw(rng, n) + 2 * np.linspace(0, 1, n) * np.std(draw(rng, 1000)), 150, 50) > 25


def test_a_test_that_stops_when_it_likes_hardly_ever_raises_the_alarm():
    """Its last returns are good: the p-values at the stopping time are smaller, not much smaller."""
    rng, found = np.random.default_rng(11), []
    for _ in range(1000):
        G = (rng.random(400) < 0.5).astype(float)
        capital = np.cumsum(np.log1p(0.4 * (2 * G - 1)))
        stopped = int(np.argmax(capital >= np.log(20))) + 1 if (capital >= np.log(20)).any() else len(G)
        found.append(bool(drift(G[:stopped])))
    assert sum(found) <= 3
    assert ALARM < 1e-3


def test_marks():
    assert mark_of(np.zeros(2), 1.0) == mark_of(np.zeros(2), 1.0) != mark_of(np.zeros(2), 2.0)
    assert mark_of({"a": np.zeros(2)}) != mark_of({"a": np.ones(2)})
    assert mark_of(("text", 3)) == mark_of(("text", 3))
