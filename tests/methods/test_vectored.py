"""Vectors of environments: every autoreset mode, the order of episodes, pauses, agents."""

from __future__ import annotations

import threading
from contextlib import closing
from dataclasses import replace
from typing import ClassVar

import gymnasium as gym
import numpy as np
from scipy.stats import binom

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import VEC_ENV, Lasting, vector
from policytest.data.vector_walks import MODES
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs import vector_returns
from policytest.payoffs.vector_returns import VectoredEpisodes

KINDS = (*MODES, VEC_ENV)


def lasting(mode="NEXT_STEP", n=8, agent=lambda observation: 0, **settings):
    return pt.Episodes(vector(mode, n), agent, **{"horizon": 12, "reward_range": (0, 1), **settings})


def taken(supply, episodes):
    """The first episodes of a supply: returns and steps."""
    found = []
    while len(found) < episodes:
        outcomes = supply.take(10**9)
        found += zip(outcomes.returns.tolist(), outcomes.steps.tolist(), strict=True)
    if len(found) > episodes:
        supply.put_back(len(found) - episodes)
    return found[:episodes]


def supplied(about, seed=0):
    return VectoredEpisodes(about, about.walk, seed)


@each("mode", KINDS)
def test_episodes_are_whole_in_every_mode_and_every_transition_is_counted(mode):
    """Each step pays 1: a return that misses a step, or has one of the next episode, is not its length."""
    made = []

    class Counting(Lasting):
        def step(self, action):
            made.append(1)
            return super().step(action)

    supply = supplied(pt.Episodes(vector(mode, env=Counting), lambda observation: 0, horizon=12, reward_range=(0, 1)))
    found = taken(supply, 500)
    assert all(total == steps for total, steps in found)
    assert {steps for _, steps in found} == set(range(1, 13))
    assert len(made) == sum(steps for _, steps in found) + supply.extra
    assert abs(np.mean([total for total, _ in found]) - Lasting.mean) < 5 * 3.5 / 500**0.5


def test_the_modes_give_the_same_law_and_all_rows_are_used():
    means = {
        mode: np.mean([g for seed in range(40) for g, _ in taken(supplied(lasting(mode), seed), 20)]) for mode in KINDS
    }
    assert all(abs(mean - Lasting.mean) < 5 * 3.5 / 800**0.5 for mean in means.values()), means


@each("mode", MODES)
def test_a_row_repeats_its_environment(mode):
    """Row 0 alone: its episodes in order are those of one environment with its seed."""
    about = lasting(mode, n=1)
    supply = supplied(about)
    found = [total for total, _ in taken(supply, 10)]
    env, expected = Lasting(), []
    env.reset(seed=int(np.random.default_rng(supply.seed).integers(2**31 - 1, size=1)[0]))
    for _ in range(10):
        total, over = 0.0, False
        while not over:
            _, reward, terminated, truncated, _ = env.step(0)
            total, over = total + reward, terminated or truncated
        expected.append(total)
        env.reset()
    assert found == expected


class ByTheirEnd(VectoredEpisodes):
    """What must not be done: episodes in the order in which they end."""

    def _end(self, over, ended):
        waiting, self.ready = self.ready, {}
        super()._end(over, ended)
        for found in self.ready.values():
            waiting[self.ended] = found
            self.ended += 1
        self.ready = waiting

    def _clear(self):
        super()._clear()
        self.ended = 0


def test_the_order_of_beginnings_keeps_delta_and_the_order_of_ends_does_not():
    """At V = R, "below" is an error; of 64 episodes at once the first to end are the short ones."""
    about, delta, runs = lasting(n=64), 0.1, 60
    wrong = {}
    for supply in (VectoredEpisodes, ByTheirEnd):
        answers = []
        for seed in range(runs):
            run = ReturnsRun(pt.ReturnBetting(), about, Lasting.mean, supply(about, about.walk, seed))
            while run.answer is None and run.episodes < 100:
                run.step(-np.log(delta), 10**9)
            answers.append(run.answer)
        wrong[supply] = answers.count("below")
    assert binom.sf(wrong[VectoredEpisodes] - 1, runs, delta) > 1e-6, wrong
    assert binom.sf(wrong[ByTheirEnd] - 1, runs, delta) < 1e-6, wrong


@each("mode", KINDS)
def test_a_run_goes_on_as_if_it_had_not_paused(mode, monkeypatch):
    """Also in the middle of a block, after several blocks, and at every pause again."""
    monkeypatch.setattr(vector_returns, "FIRST_BLOCK", 2)
    about, question = lasting(mode), {"threshold": Lasting.mean + 0.4, "delta": 1e-3, "rng": 3}
    whole = pt.decide(about, **question)
    assert whole.answer == "below"
    assert whole.counts.episodes > 100
    paused, limit = pt.decide(about, **question, max_samples=1), 1
    while paused.answer is None:
        limit += 400
        paused = pt.decide(lasting(mode), **question, max_samples=limit, resume=paused)
        assert paused.samples <= limit + 8
    assert_same_verdict(paused, whole)
    assert paused.counts.returns.tolist() == whole.counts.returns.tolist()


def test_what_is_under_way_counts_as_samples_and_is_said():
    verdict = pt.decide(lasting(n=64), threshold=1.5)
    assert verdict.answer == "above"
    under_way = verdict.samples - verdict.counts.total
    assert under_way > 0
    again = pt.decide(lasting(n=64), threshold=1.5, resume=verdict)
    assert (again.answer, again.samples) == ("above", verdict.samples)  # a run that was finished lost them
    assert "of episodes that were under way" in str(verdict)
    assert pt.decide(lasting(n=64), threshold=1.5, max_samples=0).samples == 0


def test_a_first_episode_that_takes_long_is_waited_for():
    """With a budget: there is a look before any episode is handed on."""

    class Long(Lasting):
        def step(self, action):
            self.t += 1
            return np.zeros(1), 1.0, self.t > vector_returns.PATIENCE + 5, False, {}

    about = pt.Episodes(vector(env=Long), lambda observation: 0, return_range=(0, 100))
    assert pt.evaluate(about, budget=10).counts.returns.tolist() == [vector_returns.PATIENCE + 6.0] * 10


def test_two_runs_share_a_vector_one_after_the_other():
    about = lasting()
    first, second = supplied(about, 1), supplied(about, 2)
    alone = [taken(supplied(lasting(), seed), 30) for seed in (1, 2)]
    mixed = [(taken(first, 1)[0], taken(second, 1)[0]) for _ in range(30)]
    assert [list(column) for column in zip(*mixed, strict=True)] == alone


def test_what_was_not_needed_is_handed_on_again():
    supply, expected = supplied(lasting(n=64)), taken(supplied(lasting(n=64)), 300)
    found = []
    while len(found) < 250:
        outcomes = supply.take(10**9)
        left = len(outcomes.returns) // 2
        if left:
            supply.put_back(left)
        found += list(zip(outcomes.returns.tolist(), outcomes.steps.tolist(), strict=True))[
            : len(outcomes.returns) - left
        ]
    assert found[:250] == expected[:250]
    times = pt.stopping_times(lasting(n=64), threshold=Lasting.mean + 0.5, deltas=(0.3, 0.1, 0.01), rng=5)
    for delta, answer, samples in zip((0.3, 0.1, 0.01), times.answers, times.samples, strict=True):
        alone = pt.decide(lasting(n=64), threshold=Lasting.mean + 0.5, delta=delta, rng=5)
        assert (alone.answer, alone.samples) == (answer, samples)


def test_an_interrupted_step_is_repeated(monkeypatch):
    about, expected = lasting(), taken(supplied(lasting()), 40)
    supply, step, calls = supplied(about), about.env.step, []

    def interrupted(actions):
        calls.append(1)
        if len(calls) == 15:
            step(actions)
            raise KeyboardInterrupt
        return step(actions)

    monkeypatch.setattr(about.env, "step", interrupted)
    found = []
    while len(found) < 40:
        try:
            found += taken(supply, 1)
        except KeyboardInterrupt:
            assert not supply.drawing
    assert found == expected


def test_what_does_not_repeat_itself_cannot_be_resumed(tmp_path):
    class Forgetful(Lasting):
        luck = np.random.default_rng(0)

        def step(self, action):
            self._np_random = self.luck
            return super().step(action)

    about = pt.Episodes(vector(env=Forgetful), lambda observation: 0, horizon=12, reward_range=(0, 1))
    paused = pt.decide(about, threshold=Lasting.mean, max_samples=300)
    assert_refused(lambda: pt.decide(about, threshold=Lasting.mean, resume=paused), "did not repeat an episode")
    other = pt.decide(lasting(n=4), threshold=3.0, max_samples=1)
    assert_refused(lambda: pt.decide(lasting(n=8), threshold=3.0, resume=other), "a vector of 4 environments, not of 8")
    damaged = dict(other.snapshot) | {"block": np.array([4, 1, -5, 0])}
    other = replace(other, forecast=replace(other.forecast, snapshot=damaged))
    assert_refused(lambda: pt.decide(lasting(n=4), threshold=3.0, resume=other), "inconsistent")


def test_another_agent_cannot_go_on_with_a_run():
    """Also where what was seen suffices, and where the block under way has no episode yet."""

    class Paying(Lasting):
        def step(self, action):
            return (found := super().step(action))[0], float(action), *found[2:]

    def pushing(action):
        return pt.Episodes(vector(env=Paying), lambda observation: action, horizon=12, reward_range=(0, 1))

    question = {"threshold": 2.0, "rng": 1}
    paused = pt.decide(pushing(1), delta=1e-20, max_samples=400, **question)
    assert paused.answer is None
    assert pt.decide(pushing(1), delta=0.05, resume=paused, **question).answer == "above"
    assert_refused(lambda: pt.decide(pushing(0), delta=0.05, resume=paused, **question), "another agent")
    supply, other = supplied(pushing(1)), supplied(pushing(0))
    taken(supply, supply.size)
    while len(supply.take(1).returns):
        pass
    assert supply.handed == []
    other.restore(supply.state())
    assert_refused(other.repeat, "another agent")
    same = supplied(pushing(1))
    same.restore(supply.state())
    same.repeat()
    assert taken(same, 50) == taken(supply, 50)


def test_a_finished_run_that_is_resumed_counts_what_was_under_way():
    question = {"threshold": 1.5, "rng": 0}
    whole = pt.decide(lasting(n=64), **question)
    assert_same_verdict(pt.decide(lasting(n=64), resume=whole, **question), whole)


@each("batched", [False, True])
@each("mode", KINDS)
def test_each_row_has_its_hidden_state_which_ends_with_its_episode(mode, batched):
    """The agent acts at the first step of an episode only; an episode pays what the agent does."""

    class Paying(Lasting):
        def step(self, action):
            return (found := super().step(action))[0], float(action), *found[2:]

    class Recurrent:
        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            state = np.zeros(len(episode_start)) if state is None else np.where(episode_start, 0, state)
            action = (state == 0).astype(int)
            return (action if batched or mode == VEC_ENV else action[0]), state + 1

    for horizon in (12, 3):
        about = pt.Episodes(
            vector(mode, env=Paying), Recurrent(), horizon=horizon, return_range=(0, 12), batched=batched
        )
        assert {total for total, _ in taken(supplied(about), 200)} == {1.0}


def test_a_seed_fixes_an_agent_that_draws_from_a_shared_generator():
    class Sampling:
        def predict(self, observation, deterministic=False):
            return int(not deterministic and np.random.rand() < 0.5), None  # noqa: NPY002

    def sampling():
        class Paying(Lasting):
            def step(self, action):
                return (found := super().step(action))[0], float(action), *found[2:]

        return pt.Episodes(vector(env=Paying), Sampling(), horizon=12, return_range=(0, 12), deterministic=False)

    first, supply, again = taken(supplied(sampling()), 200), supplied(sampling()), []
    while len(again) < 200:
        again += taken(supply, 1)
        np.random.rand()  # noqa: NPY002 - another user of the generator, between two steps of the vector
    assert first == again
    assert len({total for total, _ in first}) > 5


@each(
    ("answer", "words"),
    [
        (lambda o, r, d, t, i: (o, r.astype(str), d, t, i), ["the rewards", "8 numbers"]),
        (lambda o, r, d, t, i: (o, r[:, None], d, t, i), ["the rewards", "8 numbers"]),
        (lambda o, r, d, t, i: (o, r, np.full(8, "no"), t, i), ["terminated=", "8 truth values"]),
        (lambda o, r, d, t, i: (o, r, d, False, i), ["truncated=False"]),
        (lambda o, r, d, t, i: (o, r, d, i), ["answered 4 values"]),
    ],
)
def test_what_a_vector_may_not_answer(answer, words):
    about = lasting()
    step = about.env.step
    about.env.step = lambda actions: answer(*step(actions))
    assert_refused(lambda: pt.decide(about, threshold=3.0), *words)


def test_a_vector_that_two_threads_step_is_refused():
    """Each would begin it again, and neither get on; one after the other they may."""
    about = lasting()
    first, second = supplied(about, 1), supplied(about, 2)
    for supply in (first, second):
        thread = threading.Thread(target=supply.take, args=(10**9,))
        thread.start()
        thread.join()
    assert_refused(lambda: first.take(10**9), "another thread", "a vector of its own")
    assert pt.decide(about, threshold=1.5).answer == "above"


@each("mode", KINDS)
def test_a_horizon_cuts_episodes_and_the_next_begin_at_once(mode):
    found = taken(supplied(lasting(mode, horizon=3)), 300)
    assert {steps for _, steps in found} == {1, 2, 3}
    assert all(total == steps for total, steps in found)
    expected = (1 - 0.75**3) / 0.25
    assert abs(np.mean([total for total, _ in found]) - expected) < 5 / 300**0.5


class Whole(gym.vector.VectorEnv):
    """A vector that is no list of environments: rows cannot be reset on their own, and no episode ends."""

    metadata: ClassVar = {"autoreset_mode": gym.vector.AutoresetMode.NEXT_STEP}
    num_envs, spec = 4, None
    single_observation_space = gym.spaces.Box(0, 1, (1,))
    single_action_space = gym.spaces.Discrete(2)
    observation_space = gym.vector.utils.batch_space(single_observation_space, 4)
    action_space = gym.vector.utils.batch_space(single_action_space, 4)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        assert isinstance(seed, int)
        assert options is None
        return np.zeros((4, 1)), {}

    def step(self, actions):
        never = np.zeros(4, dtype=bool)
        return np.zeros((4, 1)), self.np_random.random(4), never, never, {}


def test_episodes_that_only_the_horizon_ends_restart_the_whole_vector():
    about = pt.Episodes(Whole(), lambda observation: 1, horizon=5, reward_range=(0, 1), discount=0.5)
    supply = supplied(about)
    found = taken(supply, 200)
    assert all(steps == 5 for _, steps in found)
    assert len({total for total, _ in found}) == 200
    assert abs(np.mean([total for total, _ in found]) - 0.5 * 1.9375) < 5 * 0.34 / 200**0.5
    assert supply.extra == 0


def test_rewards_and_returns_are_checked():
    def paying(reward):
        class Paying(Lasting):
            def step(self, action):
                return (step := super().step(action))[0], reward, *step[2:]

        return lambda **ranges: pt.decide(
            pt.Episodes(vector(env=Paying), lambda observation: 0, **{"horizon": 12, **ranges}), threshold=0.5
        )

    assert_refused(
        lambda: paying(2.0)(reward_range=(0, 1)), "the reward of step 0", "is 2, outside reward_range (0, 1)"
    )
    assert_refused(lambda: paying(np.nan)(reward_range=(0, 1)), "is nan")
    assert_refused(lambda: paying(np.nan)(return_range=(0, 1)), "is nan", "finite")
    assert_refused(lambda: paying(np.inf)(return_range=(0, 1)), "is inf", "finite")
    assert_refused(lambda: paying(2.0)(return_range=(0, 1)), "the return of episode ", "outside return_range")
    assert paying(1.0)(reward_range=(1, 2)).answer == "above", "a reset pays nothing and is no step"
    assert paying(1.0 + 1e-12)(reward_range=(0, 1), return_range=(0, 12)).answer == "above", "rounding is none"


def test_agents_of_rows_and_of_all_rows_and_with_random_numbers():
    env = gym.make_vec("CartPole-v1", num_envs=6)

    def rows(observation):
        assert observation.shape == (4,)
        return int(3 * observation[2] + observation[3] > 0)

    def every(observations):
        assert observations.shape == (6, 4)
        return 3 * observations[:, 2] + observations[:, 3] > 0

    class Model:
        def predict(self, observations, deterministic=True):
            return every(observations).astype(int), None

    def coins(observations, rng):
        return rng.integers(2, size=6)

    question = {"threshold": 100, "rng": 1, "max_samples": 20_000}
    by_rows = pt.decide(pt.Episodes(env, rows, reward_range=(0, 1)), **question)
    assert by_rows.answer == "above"
    for agent in (every, Model()):
        assert_same_verdict(pt.decide(pt.Episodes(env, agent, reward_range=(0, 1), batched=True), **question), by_rows)
    random = pt.Episodes(env, coins, reward_range=(0, 1), batched=True)
    first, again = (pt.decide(random, threshold=100, rng=5) for _ in range(2))
    assert first.answer == "below"
    assert_same_verdict(first, again)


def test_environments_in_processes_and_dictionaries_of_observations():
    class Named(Lasting):
        observation_space = gym.spaces.Dict({"t": Lasting.observation_space})
        action_space = gym.spaces.Box(-1, 1, (2,))

        def reset(self, **settings):
            return {"t": super().reset(**settings)[0]}, {}

        def step(self, action):
            assert action.shape == (2,)
            observation, *rest = super().step(action)
            return {"t": observation}, *rest

    agent = lambda observation: np.clip(observation["t"] * np.ones(2), -1, 1)  # noqa: E731
    names = pt.Episodes(vector(env=Named), agent, horizon=12, reward_range=(0, 1))
    assert_same_verdict(pt.decide(names, threshold=3.0), pt.decide(lasting(), threshold=3.0))
    with closing(gym.vector.AsyncVectorEnv([Lasting] * 2, context="spawn")) as processes:
        there = pt.Episodes(processes, lambda observation: 0, horizon=12, reward_range=(0, 1))
        assert_same_verdict(pt.decide(there, threshold=2.0), pt.decide(lasting(n=2), threshold=2.0))
        processes.processes[0].kill()
        assert_refused(lambda: pt.decide(there, threshold=2.0), "a process of the vector", "has ended", "sync")
        processes._state = gym.vector.async_vector_env.AsyncState.DEFAULT
        processes.close(terminate=True)


class Unsaid(Whole):
    metadata: ClassVar = {}


class Others:
    num_envs = 3


@each(
    ("make", "words"),
    [
        (lambda: lasting(agent=None), ["agent is missing"]),
        (lambda: lasting(agent=3), ["agent is a int"]),
        (lambda: lasting(agent=type("Remembers", (), {"reset": print, "predict": print})()), ["remembers an episode"]),
        (lambda: lasting(critic=abs), ["critic", "pass one environment"]),
        (lambda: pt.Episodes(Lasting(), abs, reward_range=(0, 1), batched=True), ["batched=True", "make_vec"]),
        (lambda: pt.Episodes(Unsaid(), abs, horizon=5, reward_range=(0, 1)), ["autoreset_mode", "NEXT_STEP"]),
        (
            lambda: pt.Episodes(Others(), abs, horizon=5, reward_range=(0, 1)),
            ["neither Gymnasium's nor", "make_vec"],
        ),
        (
            lambda: pt.decide(lasting(agent=lambda o: 0, batched=True), threshold=3.0),
            ["actions of shape ()", "8 observations"],
        ),
    ],
)
def test_what_cannot_be_run_is_refused(make, words):
    assert_refused(make, *words)


def test_the_time_limit_is_that_of_the_environment_as_it_was_made():
    agent = lambda observation: 0  # noqa: E731
    for settings, limit in (({}, 500), ({"max_episode_steps": 40}, 40)):
        for mode in ("vector_entry_point", "sync"):
            env = gym.make_vec("CartPole-v1", num_envs=2, vectorization_mode=mode, **settings)
            about = pt.Episodes(env, agent, reward_range=(0, 1))
            assert (about.horizon, about.bounds, about.name) == (limit, (0, limit), "CartPole-v1"), (mode, settings)
