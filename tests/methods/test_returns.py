"""Bets on returns: the capital is a fair game, delta is kept, and a run that pauses is the same run."""

from __future__ import annotations

import itertools
import json
import math
import os
import signal
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import Endless, Lasting, vector
from policytest.data.randomness import generator
from policytest.methods import checkpoint
from policytest.methods.names import method_entry
from policytest.methods.return_betting import supply_of
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes
from policytest.payoffs.pairs import PairedEpisodes
from policytest.payoffs.returns import DrawnEpisodes, WholeEpisodes
from policytest.results.load import from_data

LEVEL = -math.log(0.05)
MEAN = 0.4 * 0.9 + 0.6 * 0.2  # of `skewed`


def skewed(rng):
    """0.9 with probability 0.4, else 0.2; no return is at the ends of the range, and the mean is not its middle."""
    return 0.9 if rng.random() < 0.4 else 0.2


COIN = pt.Episodes(skewed, return_range=(0, 1))


class Listed(EpisodeSupply):
    """Given outcomes, as a supply."""

    def __init__(self, returns, low=0.0, high=1.0):
        self.left, self.low, self.high = list(returns), low, high

    def take(self, most):
        found = np.array([self.left.pop(0)])
        return Outcomes(found, found, found, np.ones(1, dtype=np.int64))

    def look(self, threshold, lead, both_sides):
        pass


def after(returns, threshold, **settings):
    """The run after these returns."""
    run = ReturnsRun(pt.ReturnBetting(), COIN, threshold, Listed(returns), **settings)
    for _ in returns:
        run.step(math.inf, 1)
    return run


# ---------------------------------------------------------------- the game is fair


def test_the_capital_has_mean_one_at_the_threshold_over_all_outcomes_of_three_episodes():
    """Exactly, on both sides; below it the bets on "above" lose, and those on "below" win."""
    for threshold in (MEAN, MEAN + 0.1, MEAN - 0.1):
        means = np.zeros(2)
        for outcomes in itertools.product((0.9, 0.2), repeat=3):
            chance = math.prod(0.4 if one == 0.9 else 0.6 for one in outcomes)
            means += chance * np.exp(after(outcomes, threshold).evidence())
        if threshold == MEAN:
            assert means == pytest.approx([1.0, 1.0], abs=1e-12)
        else:
            losing = 0 if threshold > MEAN else 1
            assert means[losing] < 1.0 < means[1 - losing]


class Restarted(WholeEpisodes):
    """What must not be done: every third episode that goes badly is stopped, and another one is run instead."""

    def episode(self, seed):
        found = super().episode(seed)
        return found if found.total > MEAN or seed % 3 else super().episode(seed + 1)


def test_delta_is_kept_at_the_threshold_and_not_by_a_test_that_restarts_bad_episodes():
    runs, delta, wrong = 100, 0.1, {}
    for kind in (WholeEpisodes, Restarted):
        answers = []
        for seed in range(runs):
            run = ReturnsRun(pt.ReturnBetting(), COIN, MEAN, DrawnEpisodes(kind(COIN), seed))
            while run.answer is None and run.episodes < 100:
                run.step(-math.log(delta), 1)
            answers.append(run.answer)
        wrong[kind] = max(answers.count(side) for side in ("above", "below"))
        alarm = binom.sf(wrong[kind] - 1, runs, delta) < 1e-6
        assert alarm == (kind is Restarted), wrong


def test_the_interval_of_evaluate_misses_at_most_as_often_as_promised():
    missed = 0
    for seed in range(60):
        found = pt.evaluate(COIN, epsilon=0.15, delta=0.2, rng=seed)
        assert found.reached
        missed += not found.lower <= MEAN <= found.upper
    assert binom.sf(missed - 1, 60, 0.2) > 1e-6, missed


def test_an_outcome_that_is_not_bet_on_a_side_leaves_its_capital_alone():
    class OneSided(Listed):
        def take(self, most):
            found = super().take(most)
            return found._replace(above=np.array([math.nan]))

    run = ReturnsRun(pt.ReturnBetting(), COIN, 0.5, OneSided([0.9] * 20))
    for _ in range(20):
        run.step(math.inf, 1)
    assert run.evidence()[0] == pytest.approx(0.0, abs=1e-12)
    assert run.evidence()[1] < -1.0
    assert run.estimate == pytest.approx(0.9)


@each("returns", [[0.0, 1.0, 1.0, 0.3] * 30, [0.7] * 60, [1.0] * 40])
def test_units_do_not_matter(returns):
    """Thrice the return plus 10, with threshold and range moved along: the same evidence, the interval moved along."""
    plain = after(returns, 0.5)
    moved = ReturnsRun(pt.ReturnBetting(), COIN, 11.5, Listed([3 * one + 10 for one in returns], 10.0, 13.0))
    for _ in returns:
        moved.step(math.inf, 1)
    assert moved.evidence() == pytest.approx(plain.evidence(), rel=1e-9)
    assert moved.interval(LEVEL) == pytest.approx([3 * end + 10 for end in plain.interval(LEVEL)], abs=1e-6)


# ---------------------------------------------------------------- what every method promises


@each(("threshold", "answer"), [(MEAN - 0.15, "above"), (MEAN + 0.15, "below")])
def test_both_sides_are_answered_and_what_is_said_fits_together(threshold, answer):
    v = pt.decide(COIN, threshold=threshold, rng=1)
    side = ("above", "below").index(answer)
    assert (v.answer, v.certified, v.method, v.settings) == (answer, True, "betting on returns", pt.ReturnBetting())
    assert v.samples == v.counts.total == v.counts.episodes
    assert v.evidence[side] >= LEVEL > v.evidence[1 - side]
    assert v.p_value == pytest.approx(math.exp(-max(v.evidence)))
    assert v.interval[0] > threshold if side == 0 else v.interval[1] < threshold
    assert v.interval[0] <= v.estimate <= v.interval[1]
    assert v.estimate == pytest.approx(v.counts.returns.mean())
    told = json.loads(v.to_json(), parse_constant=pytest.fail)
    assert (told["schema"], told["answer"], told["episodes"], told["samples"]) == (2, answer, v.samples, v.samples)
    assert sum(told["returns"]["episodes"]) == v.counts.episodes
    again = from_data(told)
    assert (again.answer, again.counts.episodes, str(again)) == (answer, v.counts.episodes, str(v))
    assert from_data(json.loads(again.to_json())).to_json() == again.to_json()


def test_checks_stopping_times_and_decide_tell_the_same():
    deltas = (0.2, 0.05, 0.001)
    times = pt.stopping_times(COIN, threshold=0.6, deltas=deltas, rng=4)
    for delta, samples, answer in zip(deltas, times.samples, times.answers, strict=True):
        found = pt.decide(COIN, threshold=0.6, delta=delta, rng=4)
        assert (found.samples, found.answer) == (samples, answer)
        *_, last = pt.checks(COIN, threshold=0.6, delta=delta, rng=4)
        assert (last.samples, last.episodes, last.answer, last.evidence) == (samples, samples, answer, found.evidence)
    assert times.certified.all()


def test_the_default_is_return_betting_and_it_has_a_name():
    assert method_entry("methods", "returns").load() is pt.ReturnBetting
    assert method_entry("methods", "ReturnBetting").load() is pt.ReturnBetting
    assert_refused(lambda: pt.ReturnBetting().replay(COIN, 0.5, None), "LoggedEpisodes")
    run = pt.ReturnBetting().start(COIN, None, 0.5, generator(0))
    assert (run.samples, run.samples_used, run.answer) == (0, 0, None)
    assert run.evidence() == pytest.approx((0.0, 0.0), abs=1e-12)
    assert run.interval(LEVEL) == pytest.approx((0.0, 1.0))
    assert math.isnan(run.estimate)


def test_an_indifference_zone_ends_a_test_at_the_threshold():
    found = pt.decide(COIN, threshold=MEAN, indifference=0.15, rng=2)
    assert (found.answer, found.certified) == ("within", True)
    assert min(found.refuted) >= found.required == pytest.approx(math.log(2 / 0.05))
    assert MEAN - 0.15 <= found.interval[0] <= found.interval[1] <= MEAN + 0.15
    assert pt.decide(COIN, threshold=0.2, indifference=0.05).answer == "above"


@each(
    ("returns", "threshold", "answer"),
    [([1.0, 1.0, 0.9], 1.0, "below"), ([0.0, 0.0, 0.0, 1e-6], 0.0, "above"), ([1.0 - 1e-12] * 9, 1.0, None)],
)
def test_at_the_end_of_the_range_one_episode_settles_it(returns, threshold, answer):
    """If no return is above R, and one is below it, then V < R, with certainty; rounding is not below."""
    run = ReturnsRun(pt.ReturnBetting(), COIN, threshold, Listed(returns))
    for count in range(1, len(returns) + 1):
        run.step(LEVEL, 1)
        assert run.answer == (answer if count == len(returns) else None)
    if answer is not None:
        assert max(run.evidence()) == math.inf
        kept = ReturnsRun(pt.ReturnBetting(), COIN, threshold, Listed([]))
        kept.source.state = dict
        kept.source.restore = lambda state: None
        kept.source.repeat = lambda: None
        run.source.state = dict
        kept.restore(run.state())
        assert kept.evidence() == run.evidence()


def test_a_threshold_that_only_perfect_episodes_reach_is_answered_and_said_at_the_start():
    with pytest.warns(pt.AssumptionWarning, match='the most that the value can be: only "below" can be answered'):
        found = pt.decide(COIN, threshold=1.0)
    assert (found.answer, found.certified, found.counts.episodes) == ("below", True, 1)
    assert found.p_value == 0.0
    assert from_data(json.loads(found.to_json())).evidence[1] == math.inf
    with pytest.warns(pt.AssumptionWarning, match='only "above" can be answered'):
        assert pt.decide(COIN, threshold=0.0).answer == "above"
    with pytest.warns(pt.AssumptionWarning, match="the margin|margin is 1"):
        assert pt.compare(COIN, luck(0.5), margin=1.0).answer == "below"
    with pytest.warns(pt.AssumptionWarning, match="the test does not end"):
        assert pt.decide(luck(2.0), threshold=1.0, max_samples=100).answer is None
    two = pt.instances.paper(2)
    low, high = pt.value_range(two.task)
    for threshold, answer in ((low, "above"), (high, "below")):
        with pytest.warns(pt.AssumptionWarning, match=f'only "{answer}" can be answered'):
            assert pt.decide(two.task, pt.TabularSimulator(two.kernel), threshold).answer == answer


def test_beyond_the_range_an_indifference_zone_needs_one_side_only():
    """Returns of 1 at R = 1: V >= 1.2 is impossible, V <= 0.8 is refuted by the episodes."""
    found = pt.decide(luck(2.0), threshold=1.0, indifference=0.2)
    assert (found.answer, found.certified) == ("within", True)
    assert found.refuted[1] == math.inf


def test_a_limit_on_samples_is_kept_up_to_an_episode():
    long = pt.Episodes(lambda rng: [skewed(rng) / 7] * 7, return_range=(0, 1))
    found = pt.decide(long, threshold=MEAN, max_samples=100)
    assert (found.answer, found.samples, found.counts.episodes) == (None, 105, 15)
    assert "the sample limit is reached" in str(found)
    assert pt.decide(long, threshold=MEAN, max_samples=0).samples == 0
    estimate = pt.evaluate(long, epsilon=1e-3, max_samples=100)
    assert (estimate.reached, estimate.samples) == (False, 105)
    assert_refused(lambda: pt.decide(long, threshold=MEAN, max_samples=-1), "max_samples is -1")


def endless(env=None, **settings):
    return pt.Episodes(env or Endless(), lambda observation: 0, **{"reward_range": (0, 1), "discount": 0.9, **settings})


@each(
    "about",
    [
        lambda: endless(),
        lambda: endless(critic=lambda observation: 5.0),
        lambda: endless(vector(env=Endless, n=4)),
        lambda: endless(reward_range=(-1, 1), horizon=10**6),
    ],
)
def test_a_discounted_episode_is_over_when_its_rest_cannot_matter(about):
    """The rest of 0.9^t/(1 - 0.9) is a millionth of the range after ln(1e6)/ln(1/0.9) = 131.1 steps; V is 5."""
    for threshold, answer in ((4.5, "above"), (5.5, "below")):
        found = pt.decide(about(), threshold=threshold)
        assert (found.answer, found.certified) == (answer, True)
        assert about().last_step in (132, 138)
        assert found.counts.steps.max() <= about().last_step


def test_what_is_not_seen_of_an_episode_is_counted_at_its_worst(monkeypatch):
    """Cut early, so that it shows: after two steps that pay 1 the rest may be 0, or 1 for ever."""
    monkeypatch.setattr(pt.Episodes, "last_step", 2)

    class Paying(Endless):
        def step(self, action):
            return np.zeros(1), 1.0, False, False, {}

    for about in (endless(Paying()), endless(Paying(), critic=lambda observation: 3.0)):
        taken = supply_of(about, 0).take(10)
        assert [one.item() for one in taken[:2]] == pytest.approx([1.9, 10.0])
    taken = supply_of(endless(vector(env=Paying, n=2)), 0).take(10)
    assert [one[0] for one in taken[:3]] == pytest.approx([1.9, 10.0, 5.95])
    a, b = endless(Paying()), endless(Paying(), reward_range=(-1, 2))
    taken = DrawnEpisodes(PairedEpisodes(a, b), 0).take(10)
    assert [one.item() for one in taken[:2]] == pytest.approx([1.9 - (1.9 + 0.81 * 20), 10.0 - (1.9 - 0.81 * 10)])
    assert_refused(lambda: supply_of(endless(Paying(), return_range=(0, 1.5)), 0).take(10), "outside return_range")


def test_cut_episodes_keep_delta_and_their_middle_does_not(monkeypatch):
    """At V = R = 5, cut after three steps of an environment that pays late: the middle of what may be is too low."""
    monkeypatch.setattr(pt.Episodes, "last_step", 3)

    class Late(Endless):
        def reset(self, **settings):
            self.t = 0
            return super().reset(**settings)

        def step(self, action):
            self.t += 1
            return np.zeros(1), float(self.t > 3) * 0.9, False, False, {}

    class Middle(DrawnEpisodes):
        def take(self, most):
            found = super().take(most)
            return found._replace(above=found.returns, below=found.returns)

    value = 0.9**4 / 0.1
    for supply, wrong in ((DrawnEpisodes, None), (Middle, "below")):
        run = ReturnsRun(pt.ReturnBetting(), endless(Late()), value, supply(WholeEpisodes(endless(Late())), 0))
        while run.answer is None and run.episodes < 200:
            run.step(LEVEL, 10)
        assert run.answer == wrong


def test_a_limit_on_samples_holds_within_an_episode():
    """Of environments; the episode at hand is given up, and run again by the run that goes on."""
    question = {"threshold": 5.0, "delta": 1e-3, "rng": 1}
    for about in (endless(), endless(critic=pt.RidgeCritic())):
        whole = pt.decide(about, **question, max_samples=2000)
        assert whole.samples == 2000 > whole.counts.total
        assert about.critic is not None or whole.counts.episodes == 2000 // 132
        assert "of episodes that were under way" in str(whole)
        kept = None
        for limit in (1, 131, 132, 133, 700, 1999, 2000):
            kept = pt.decide(about, **question, max_samples=limit, resume=kept)
            assert (kept.samples, kept.reason) == (limit, "the sample limit is reached")
        assert_same_verdict(kept, whole)
    other = endless(Endless())
    pair = pt.compare(endless(), other, max_samples=1000)
    assert (pair.samples, pair.counts.episodes) == (1000, 3)
    assert pt.evaluate(endless(), epsilon=1e-3, max_samples=1000).samples == 1000


def test_rewards_are_not_kept_and_one_ctrl_c_ends_an_episode_that_never_does():
    class Counting(Endless):
        steps = 0

        def step(self, action):
            self.steps += 1
            if self.steps == 5000:
                os.kill(os.getpid(), signal.SIGINT)
            return super().step(action)

    for make in (Counting, lambda: vector(env=Counting, n=1)):
        about = endless(make(), reward_range=None, return_range=(0, 1e6), discount=1.0)
        found = pt.decide(about, threshold=5.0)
        assert (found.answer, found.reason, found.counts.episodes, found.samples) == (None, "interrupted", 0, 5000)


@each("seconds", [0, 0.05])
def test_a_time_limit_ends_a_run_that_goes_on_later(seconds):
    about, question = endless(), {"threshold": 5.0, "delta": 1e-9, "rng": 1}
    unending = endless(reward_range=None, return_range=(0, 1e6), discount=1.0)
    for one in (about, unending, endless(vector(env=Endless, n=2))):
        found = pt.decide(one, **question, max_seconds=seconds)
        assert (found.answer, found.reason) == (None, "the time limit is reached")
    paused = pt.decide(about, **question, max_seconds=seconds)
    limit = paused.counts.total + 1000
    again = pt.decide(about, **question, max_samples=limit, resume=paused)
    assert_same_verdict(again, pt.decide(about, **question, max_samples=limit))
    assert pt.compare(about, endless(), max_seconds=seconds).reason == "the time limit is reached"
    assert not pt.evaluate(about, epsilon=1e-3, max_seconds=seconds).reached
    assert_refused(lambda: pt.decide(about, **question, max_seconds=-1), "max_seconds is -1")
    assert_refused(lambda: pt.decide(about, **question, max_seconds="soon"), "max_seconds")


# ---------------------------------------------------------------- pauses


QUESTION = {"threshold": 0.6, "delta": 1e-3, "rng": 3}
WHOLE = pt.decide(COIN, **QUESTION)


def test_a_run_goes_on_as_if_it_had_not_paused(tmp_path):
    paused = pt.decide(COIN, **QUESTION, max_samples=5)
    for limit in (6, 17, 40, None):
        paused = pt.decide(COIN, **QUESTION, max_samples=limit, resume=paused)
    assert_same_verdict(paused, WHOLE)
    file = tmp_path / "run.npz"
    first = pt.decide(COIN, **QUESTION, max_samples=20, checkpoint=file)
    assert first.answer is None
    assert_refused(lambda: pt.decide(COIN, **QUESTION, checkpoint=file), "exists")
    assert_same_verdict(pt.decide(COIN, **QUESTION, checkpoint=file, resume=file), WHOLE)


@each("presses", [1, 2])
def test_ctrl_c_loses_nothing(presses):
    """The first ends the run after the episode at hand, the second gives that one up: it is run again."""
    calls = []

    def interrupted(rng):
        calls.append(1)
        if len(calls) == 12:
            for _ in range(presses):
                os.kill(os.getpid(), signal.SIGINT)
        return skewed(rng)

    before = signal.getsignal(signal.SIGINT)
    about = pt.Episodes(interrupted, return_range=(0, 1))
    paused = pt.decide(about, **QUESTION)
    assert signal.getsignal(signal.SIGINT) is before
    assert (paused.answer, paused.reason, paused.counts.episodes) == (None, "interrupted", 13 - presses)
    assert_same_verdict(pt.decide(about, **QUESTION, resume=paused), WHOLE)


def test_an_episode_that_fails_is_run_again():
    calls = []

    def failing(rng):
        calls.append(1)
        if len(calls) == 9:
            raise ValueError("the robot fell over")
        return skewed(rng)

    supply = DrawnEpisodes(WholeEpisodes(pt.Episodes(failing, return_range=(0, 1))), 0)
    expected = DrawnEpisodes(WholeEpisodes(COIN), 0)
    for _ in range(8):
        assert supply.take(1).returns == expected.take(1).returns
    with pytest.raises(ValueError, match="fell over"):
        supply.take(1)
    assert not supply.drawing
    assert supply.take(1).returns == expected.take(1).returns


def luck(share):
    """Wins with this probability."""
    return pt.Episodes(lambda rng: float(rng.random() < share), return_range=(0, 1))


def swapped(good, bad, ask):
    """Ask about one, for too little error to be answered, and go on with the other for more."""
    paused = ask(good, delta=1e-9, max_samples=200)
    assert paused.answer is None
    assert ask(good, delta=0.05, resume=paused).answer == "above"
    assert_refused(lambda: ask(bad, delta=0.05, resume=paused), "cannot resume", "another environment or agent")


class Push(Lasting):
    """Pays the action."""

    def step(self, action):
        observation, _, *rest = super().step(action)
        return observation, float(action), *rest


def pushing(action, critic=None):
    return pt.Episodes(Push(), lambda observation: action, horizon=12, reward_range=(0, 1), critic=critic)


@each(
    ("good", "bad", "threshold"),
    [
        (luck(0.75), luck(0.3), 0.55),
        (pushing(1), pushing(0), 2.7),
        (pushing(1, pt.RidgeCritic()), pushing(0, pt.RidgeCritic()), 2.7),
    ],
)
def test_another_agent_cannot_go_on_with_a_run(good, bad, threshold):
    """Not even where what was seen suffices for the answer, so that no further episode is run."""
    swapped(good, bad, lambda about, **settings: pt.decide(about, threshold=threshold, rng=1, **settings))


def test_nor_can_other_agents_with_a_comparison():
    a, b, c = pushing(1), pushing(0), replace(pushing(1), agent=lambda observation: int(observation[0] % 2))
    swapped(a, c, lambda about, **settings: pt.compare(about, b, margin=1.5, rng=1, **settings))
    swapped(b, c, lambda about, **settings: pt.compare(a, about, margin=1.5, rng=1, **settings))


def test_an_agent_that_lasts_longer_cannot_go_on_with_a_run():
    """It earns the same in the steps of the recorded episodes, and goes on where these ended; or ends before."""

    class Falling(gymnasium.Env):
        observation_space, action_space = gymnasium.spaces.Discrete(100), gymnasium.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.t, self.falls = 0, int(self.np_random.integers(3, 9))
            return 0, {}

        def step(self, action):
            self.t += 1
            return self.t, 1.0, self.t >= (40 if action else self.falls), False, {}

    short, long = (pt.Episodes(Falling(), lambda s, a=a: a, reward_range=(0, 1), horizon=50) for a in (0, 1))
    paused = pt.decide(short, threshold=5.4, rng=1, max_samples=100)
    assert paused.answer is None
    assert_refused(lambda: pt.decide(long, threshold=5.4, rng=1, resume=paused), "and goes on, so this is another")
    assert pt.decide(short, threshold=5.4, rng=1, max_samples=200, resume=paused).samples > paused.samples


def test_an_agent_that_does_not_repeat_itself_cannot_be_resumed():
    own = np.random.default_rng(5)
    about = pt.Episodes(lambda rng: float(own.random()), return_range=(0, 1))
    with pytest.warns(pt.AssumptionWarning, match=r"run\(rng\) draws nothing from rng"):
        paused = pt.decide(about, **QUESTION, max_samples=20)
    assert_refused(lambda: pt.decide(about, **QUESTION, resume=paused), "does not repeat an episode")


def damaged(**changes):
    kept = pt.decide(COIN, **QUESTION, max_samples=20)
    assert set(changes) <= set(kept.snapshot)
    return replace(kept, forecast=replace(kept.forecast, snapshot={**kept.snapshot, **changes}))


@each(
    "changes",
    [
        {"plans": np.full((2, 20), 1.5)},
        {"plans": np.zeros(3)},
        {"steps": np.array([1, 2])},
        {"steps": np.full(20, -1)},
        {"returns": np.array(["a"])},
        {"moments": np.zeros((1, 3))},
        {"refit_at": np.zeros(0, dtype=np.int64)},
        {"rng": np.zeros(3, dtype=np.uint8)},
    ],
)
def test_a_damaged_checkpoint_is_refused(changes):
    assert_refused(lambda: pt.decide(COIN, **QUESTION, resume=damaged(**changes)), "inconsistent")


@each(
    ("about", "question", "words"),
    [
        (COIN, {"threshold": 0.7}, ["the threshold 0.6, not 0.7"]),
        (pt.Episodes(skewed, return_range=(0, 2)), {}, ["another task"]),
        (pt.Episodes(skewed, return_range=(0, 1), discount=0.5), {}, ["another task"]),
        (COIN, {"indifference": 0.1}, ["indifference"]),
    ],
)
def test_another_run_cannot_be_resumed(about, question, words):
    paused = pt.decide(COIN, **QUESTION, max_samples=5)
    assert_refused(lambda: pt.decide(about, **{**QUESTION, **question}, resume=paused), *words)


def test_the_fingerprint_tells_episodes_apart():
    marks = {
        checkpoint.fingerprint(about, 0.5, pt.ReturnBetting())
        for about in (
            COIN,
            pt.Episodes(np.mean, return_range=(0, 1)),
            pt.Episodes(skewed, return_range=(0, 1), horizon=3),
            pt.Episodes(skewed, return_range=(0, 1), discount=0.9),
            pt.Episodes(skewed, reward_range=(0, 1), horizon=1),
        )
    }
    assert len(marks) == 5
