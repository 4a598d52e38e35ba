"""Episodes with a critic: outcomes have the right mean, stay within their bounds, and cost fewer steps."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from policytest.payoffs.critics import Valuer
from policytest.payoffs.cut_returns import CUTS, WHOLE, CutEpisodes, CutPlan, Past, PastEpisodes

BOTH, ABOVE, BELOW = (True, True), (True, False), (False, True)


class Tree:
    """Three steps; each turn is a coin, and rewards depend on all turns so far: nothing is Markov."""

    def __init__(self, chance: float = 0.6) -> None:
        self.chance = chance

    def reset(self, *, seed: int | None = None) -> tuple[Any, dict[str, Any]]:
        self.rng, self.turns = np.random.default_rng(seed), ()
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.turns = (*self.turns, int(self.rng.random() < self.chance))
        return self._seen(), reward(self.turns), is_over(self.turns), False, {}

    def _seen(self) -> Any:
        return np.array([sum(self.turns), len(self.turns)], dtype=float)


def reward(turns: tuple[int, ...]) -> float:
    return float(turns[-1] * (2.0 if turns[0] else 0.5) - 0.25 * (len(turns) > 1 and turns[-2]))


def is_over(turns: tuple[int, ...]) -> bool:
    return len(turns) == 3 or turns == (0, 0)


def paths() -> dict[tuple[int, ...], float]:
    """All courses of an episode, with their probabilities."""
    found: dict[tuple[int, ...], float] = {}
    for turns in product((0, 1), repeat=3):
        course = next(turns[:n] for n in range(1, 4) if is_over(turns[:n]))
        found[course] = float(np.prod([0.6 if turn else 0.4 for turn in course]))
    return found


def total(turns: tuple[int, ...], gamma: float = 1.0) -> float:
    return sum(gamma**t * reward(turns[: t + 1]) for t in range(len(turns)))


def tree(critic: Any, **more: Any) -> pt.Episodes:
    return pt.Episodes(Tree(), lambda seen: 0, **{"horizon": 3, "reward_range": (-0.25, 2.0), "critic": critic} | more)


def all_paths(episodes: pt.Episodes) -> CutEpisodes:
    """Episodes whose past is every course, weighted by its probability."""
    source, gamma = CutEpisodes(episodes), episodes.discount
    for course, chance in paths().items():
        rewards = [reward(course[: t + 1]) for t in range(len(course))]
        rows = [source.valuer.row(np.array([sum(course[:t]), t], dtype=float)) for t in range(len(course))]
        earned = np.concatenate([[0.0], np.cumsum(gamma ** np.arange(len(course)) * rewards)])
        ends = [episodes.bounds, *(episodes.rest(t, earned[t]) for t in range(1, len(course)))]
        source.past.append(Past(np.array(rewards), np.array(rows), *np.array(ends).T, chance, len(source.past) % 2))
        source.valuer.learn(
            np.array(rows), np.array([total(course[t:]) for t in range(len(course))]), len(source.past) % 2
        )
    source.valuer.fit()
    return source


CRITICS = {
    "wild": lambda seen: 40.0 * np.sin(17.0 * seen[0] + 5.0 * seen[1]),
    "fair": lambda seen: 0.9 * (3 - seen[1]),
    "fitted": pt.RidgeCritic(),
}


@pytest.mark.parametrize("gamma", [1.0, 0.7])
@pytest.mark.parametrize("sides", [BOTH, ABOVE, BELOW])
@pytest.mark.parametrize("critic", CRITICS)
def test_the_mean_is_the_value_and_the_bounds_hold_whatever_the_critic(critic: str, sides: Any, gamma: float) -> None:
    episodes = tree(CRITICS[critic], discount=gamma)
    source = all_paths(episodes)
    V = sum(chance * total(course, gamma) for course, chance in paths().items())
    low, high = episodes.bounds
    for cut, is_fitted in product(CUTS, (False, True)):
        Z, chance, steps = PastEpisodes(source).simulated(CutPlan(cut, is_fitted, sides))
        assert chance.sum() == pytest.approx(1.0)
        assert chance @ Z == pytest.approx(V, abs=1e-12)
        possible = Z[chance > 1e-12]
        assert not sides[0] or possible.min() >= low - 1e-9
        assert not sides[1] or possible.max() <= high + 1e-9
        assert steps <= sum(chance * len(course) for course, chance in paths().items()) + 1e-12


def test_without_the_bound_outcomes_leave_the_range() -> None:
    """The control: W' beyond the room."""
    source = all_paths(tree(CRITICS["wild"]))
    source.low, source.high = -1e6, 1e6
    Z, chance, _ = PastEpisodes(source).simulated(CutPlan(20.0, False, BOTH))
    low, high = source.about.bounds
    assert Z[chance > 1e-12].min() < low or Z[chance > 1e-12].max() > high


def test_whole_episodes_are_their_returns() -> None:
    source = all_paths(tree(CRITICS["wild"]))
    Z, chance, _ = PastEpisodes(source).simulated(WHOLE)
    assert sorted(Z) == pytest.approx(sorted(total(course) for course in paths()))
    assert chance == pytest.approx(list(paths().values()))


@pytest.mark.parametrize("plan", [CutPlan(cut, False, sides) for cut in CUTS for sides in (ABOVE, BELOW)])
def test_an_episode_is_one_of_those_that_were_enumerated(plan: CutPlan) -> None:
    """The loop that steps and the arrays that simulate are two programs of the same rule."""
    source = all_paths(tree(CRITICS["fair"]))
    possible, chance, steps = PastEpisodes(source).simulated(plan)
    source.plan = plan
    found = [source.episode(seed)[:2] for seed in range(400)]
    assert all(np.abs(possible[chance > 0] - Z).min() < 1e-9 for Z, _ in found)
    mean, sd = chance @ possible, np.sqrt(chance @ possible**2 - (chance @ possible) ** 2)
    assert abs(np.mean([Z for Z, _ in found]) - mean) < 4.5 * sd / np.sqrt(len(found)) + 1e-12
    assert abs(np.mean([n for _, n in found]) - steps) < 0.25


class Steady:
    """A reward of 0.9 or 1 at each of many steps."""

    spec = None

    def reset(self, *, seed: int | None = None) -> tuple[float, dict[str, Any]]:
        self.rng, self.t = np.random.default_rng(seed), 0
        return 0.0, {}

    def step(self, action: Any) -> tuple[float, float, bool, bool, dict[str, Any]]:
        self.t += 1
        return self.t / 50, 0.9 + 0.1 * (self.rng.random() < 0.5), self.t == 50, False, {}


def steady(critic: Any) -> pt.Episodes:
    return pt.Episodes(Steady(), lambda seen: 0, horizon=50, reward_range=(0, 1), critic=critic)


def transitions(critic: Any, threshold: float, seeds: int = 4) -> float:
    found = [pt.decide(steady(critic), threshold=threshold, rng=seed) for seed in range(seeds)]
    assert {one.answer for one in found} == {"above" if threshold < 47.5 else "below"}
    assert all(one.certified for one in found)
    return float(np.mean([one.samples for one in found]))


@pytest.mark.parametrize("critic", [pt.RidgeCritic(), lambda seen: 45.0 * (1 - seen)], ids=["fitted", "given"])
def test_a_critic_saves_transitions(critic: Any) -> None:
    assert transitions(critic, 46.0) < 0.7 * transitions(None, 46.0)


def test_a_useless_critic_costs_little() -> None:
    def noise(seen: Any) -> float:
        return 50.0 * np.sin(1e4 * seen)

    assert transitions(noise, 46.0) <= 1.1 * transitions(None, 46.0)


@pytest.mark.parametrize("critic", [pt.RidgeCritic(), lambda seen: 45.0 * (1 - seen)], ids=["fitted", "given"])
def test_a_run_that_is_resumed_is_the_same_run(critic: Any) -> None:
    whole = pt.decide(steady(critic), threshold=46.0, rng=3)
    part = pt.decide(steady(critic), threshold=46.0, rng=3, max_samples=whole.samples // 2)
    again = pt.decide(steady(critic), threshold=46.0, resume=part)
    assert part.answer is None
    assert 0 < part.samples < whole.samples
    assert (again.samples, again.evidence, again.answer) == (whole.samples, whole.evidence, whole.answer)


def test_a_run_is_not_resumed_with_a_critic_of_another_kind() -> None:
    for first, second in (
        (pt.RidgeCritic(), float),
        (float, pt.RidgeCritic()),
        (pt.RidgeCritic(), pt.RidgeCritic(abs)),
    ):
        part = pt.decide(steady(first), threshold=46.0, rng=3, max_samples=700)
        with pytest.raises(pt.InputError, match="resume a run with the critic that it had"):
            pt.decide(steady(second), threshold=46.0, resume=part)


VALUE = sum(chance * total(course) for course, chance in paths().items())


def errors(runs: int) -> int:
    """The more frequent of the two wrong answers at V = R, with delta 0.1."""
    answers = [
        pt.decide(tree(CRITICS["fair"]), threshold=VALUE, delta=0.1, rng=seed, max_samples=400).answer
        for seed in range(runs)
    ]
    return max(answers.count("above"), answers.count("below"))


def test_errors_are_as_rare_as_promised() -> None:
    assert binom.sf(errors(60) - 1, 60, 0.1) > 1e-4


def test_bounds_that_do_not_hold_break_the_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """The control: outcomes are kept above a bound that the returns do not keep."""
    made = CutEpisodes.__init__

    def narrow(self: CutEpisodes, episodes: pt.Episodes) -> None:
        made(self, episodes)
        self.low += 0.8 * (VALUE - self.low)

    monkeypatch.setattr(CutEpisodes, "__init__", narrow)
    assert binom.sf(errors(30) - 1, 30, 0.1) < 1e-6


def test_a_critic_must_be_a_function_with_one_finite_value() -> None:
    for bad, words in ((3, "critic is a int"), (lambda s: [1, 2], "2 numbers"), (lambda s: np.nan, "nan")):
        with pytest.raises(pt.InputError, match=words):
            pt.decide(steady(bad), threshold=46.0)
    with pytest.raises(pt.InputError, match="features is 3"):
        pt.RidgeCritic(3)  # type: ignore[arg-type]
    with pytest.raises(pt.InputError, match="more than 500"):
        pt.RidgeCritic().of(np.zeros(1000))
    with pytest.raises(pt.InputError, match="shows no observations"):
        pt.Episodes(lambda rng: 1.0, return_range=(0, 1), critic=lambda s: 0.0)


def test_a_fitted_critic_finds_a_linear_value() -> None:
    valuer, rng = Valuer(pt.RidgeCritic(lambda o: [o]), 10), np.random.default_rng(0)
    t = np.arange(10)
    for index in range(50):
        rows = rng.normal(size=(10, 1))
        valuer.learn(rows, 3.0 + 2.0 * rows[:, 0] * (1 - t / 10), index % 2)
    valuer.fit()
    assert valuer.value(np.array([0.5]), 4, valuer.weights) == pytest.approx(3.0 + 0.6, abs=0.01)
    assert valuer.judged(np.array([[0.5]]), np.array([4.0]), np.array([1]), True) == pytest.approx([3.6], abs=0.01)
