"""Gymnasium environments as tasks: the value is that of their rules, ends are ends, steps are fresh draws."""

from __future__ import annotations

import dataclasses
import json
import threading

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from scipy.stats import binom

import policytest as pt
from policytest._base.errors import InputError
from policytest.cli import main
from policytest.sources.environments import stepping
from policytest.sources.environments import table as table_module
from policytest.sources.environments.gymnasium import from_address, gymnasium
from policytest.sources.tasks.policy import places
from source_builders import assert_refused

ALARM = 1e-6


LAW = {  # (probability, next state, reward, terminated)
    (0, 0): [(0.7, 0, 0.0, False), (0.3, 1, 0.0, False)],
    (0, 1): [(0.2, 0, 0.0, False), (0.8, 1, 0.0, False)],
    (1, 0): [(0.5, 0, 0.0, False), (0.5, 1, 0.0, False)],
    (1, 1): [(0.6, 2, 1.0, True), (0.4, 0, 0.0, False)],
    (2, 0): [(1.0, 2, 5.0, True)],
    (2, 1): [(1.0, 0, 5.0, False)],
}
START = (0.75, 0.25, 0.0)


class Small(gym.Env):
    """Three states, two actions, numbered from ``first`` and ``code`` on; action 1 in state 1 may end the episode."""

    def __init__(self, first=0, code=0, law=LAW, start=START, with_table=False, limit=None, size=3, actions=2):
        self.observation_space = Discrete(size, start=first)
        self.action_space = Discrete(actions, start=code)
        self.law, self.start = law, start
        self.first, self.code, self.limit, self.t = first, code, limit, 0
        if with_table:
            self.P = {
                s + first: {
                    a + code: [(p, x + first, r, end) for p, x, r, end in self.law[s, a]] for a in range(actions)
                }
                for s in range(size)
            }
            self.initial_state_distrib = np.array(self.start)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.s, self.t = int(self.np_random.choice(len(self.start), p=self.start)), 0
        return self.s + self.first, {}

    def step(self, action):
        rows = self.law[self.s, action - self.code]
        _, x, r, end = rows[self.np_random.choice(len(rows), p=[row[0] for row in rows])]
        self.s, self.t = x, self.t + 1
        return x + self.first, r, end, self.limit is not None and self.t >= self.limit, {}


PI = np.array([[0.3, 0.7], [0.4, 0.6], [0.5, 0.5]])


def paid(s, a, x):
    return float((s, a, x) == (1, 1, 2))


def exact_value(law, start, pi, gamma):
    """By the rules of episodes themselves: V(s) = sum pi p (r + gamma V(x) unless that ended it). No task involved."""
    S, A = pi.shape
    P, r = np.zeros((S, S)), np.zeros(S)
    for s in range(S):
        for a in range(A):
            for p, x, reward, end in law[s, a]:
                r[s] += pi[s, a] * p * reward
                P[s, int(x)] += pi[s, a] * p * (not end)
    return float(start @ np.linalg.solve(np.eye(S) - gamma * P, r))


def law_of(env):
    P = env.unwrapped.P
    return {(s, a): P[s][a] for s in P for a in P[s]}


def random_policy(env, seed=0):
    at = places(env)
    return np.random.default_rng(seed).dirichlet(np.ones(at.n_actions), size=at.n_states)


# ---------------------------------------------------------------- tables


@pytest.mark.parametrize("known_support", [False, True])
@pytest.mark.parametrize(
    ("name", "options", "settings"),
    [
        ("FrozenLake-v1", {}, {}),
        ("FrozenLake-v1", {"map_name": "8x8", "is_slippery": False}, {}),
        ("CliffWalking-v1", {}, {}),
        ("CliffWalking-v1", {"is_slippery": True}, {"ambiguous": "split"}),
    ],
)
def test_the_value_is_that_of_the_environments_own_rules(name, options, settings, known_support):
    made = gym.make(name, **options)
    pi = random_policy(made)
    env = gymnasium(name, pi, 0.93, options=options, known_support=known_support, **settings)
    wanted = exact_value(law_of(made), made.unwrapped.initial_state_distrib, pi, 0.93)
    assert env.value == pytest.approx(wanted, rel=1e-9)
    assert pt.value(env.task, env.kernel) == env.value
    assert env.name == name


def test_the_taxi_pays_what_its_rules_say():
    made = gym.make("Taxi-v4", is_rainy=True)
    pi = random_policy(made)
    env = gymnasium(made, pi, 0.93, known_support=True)
    wanted = exact_value(law_of(made), made.unwrapped.initial_state_distrib, pi, 0.93)
    assert env.value == pytest.approx(wanted, rel=1e-9)


def test_listed_twice_is_summed_and_ends_are_known():
    env = gymnasium("FrozenLake-v1", "uniform", 0.9)
    np.testing.assert_allclose(env.kernel[0, 0, [0, 4]], [2 / 3, 1 / 3])
    ends = [5, 7, 11, 12, 15]
    assert np.flatnonzero(env.task.known_rows.all(axis=1)).tolist() == ends
    assert not env.task.known_rows[[s for s in range(16) if s not in ends]].any()
    assert not env.task.rewards[ends].any()
    assert env.task.states is None


def test_the_support_is_unknown_unless_it_is_said_to_be_known():
    env, knowing = (gymnasium("FrozenLake-v1", "uniform", 0.9, known_support=known) for known in (False, True))
    assert env.task.support[0].all()
    assert knowing.task.support[0].sum(axis=1).tolist() == [2, 3, 3, 2]
    taxi = gymnasium("Taxi-v4", "uniform", 0.9)
    assert not taxi.task.rewards_on_successor
    assert taxi.task.n_states == 500  # states that nobody can reach do not make copies


def test_rules_that_no_episode_can_meet_do_not_matter():
    """Row 2 is an end: that it would pay 5 is never seen."""
    env = gymnasium(Small(with_table=True), PI, 0.8, known_support=True)
    assert env.value == pytest.approx(exact_value(LAW, np.array(START), PI, 0.8))
    assert env.task.n_states == 3
    assert env.kernel[2, :, 2].tolist() == [1.0, 1.0]


def test_ambiguous_rewards_are_refused_by_name():
    with pytest.raises(
        InputError, match=r"env\.P\[36\]\[0\] leads to 36 with rewards -1 and -100.*ambiguous=\"split\""
    ):
        gymnasium("CliffWalking-v1", "uniform", 0.9, options={"is_slippery": True})
    with pytest.raises(InputError, match='ambiguous is \'average\'; pass "refuse" or "split"'):
        gymnasium("CliffWalking-v1", "uniform", 0.9, ambiguous="average")


def test_split_states_are_copies_that_carry_the_reward():
    env = gymnasium("CliffWalking-v1", "uniform", 0.9, options={"is_slippery": True}, ambiguous="split")
    assert env.task.n_states == 49
    assert env.task.states[48] == (36, "reward -1")  # 36 itself stands for arrivals by a fall, the more frequent kind
    np.testing.assert_allclose(env.kernel[36, 0, [24, 36, 48]], 1 / 3)
    np.testing.assert_allclose(env.kernel[48], env.kernel[36])
    assert env.task.rewards[36, 0, [24, 36, 48]].tolist() == [-1, -100, -1]
    assert env.task.initial[36] == 1


BOTH = {(0, 0): [(0.5, 0, 1.0, True), (0.25, 0, 1.0, False), (0.25, 1, 0.0, False)], (1, 0): [(1.0, 0, 2.0, False)]}


def test_an_end_that_is_none_at_other_times_is_split_too():
    env = Small(law=BOTH, start=(1.0, 0.0), with_table=True, size=2, actions=1)
    with pytest.raises(InputError, match=r"env\.P\[0\]\[0\] leads to 0 with and without the end of the episode"):
        gymnasium(env, "uniform", 0.9)
    found = gymnasium(env, "uniform", 0.9, ambiguous="split", known_support=True)
    assert found.value == pytest.approx(exact_value(BOTH, np.array([1.0, 0.0]), np.ones((2, 1)), 0.9))
    assert (0, "reward 1", "ended") in found.task.states


ELSEWHERE = {(0, 0): [(1.0, 1, 1.0, False)], (1, 0): [(0.5, 0, 3.0, True), (0.5, 1, 3.0, False)]}


@pytest.mark.parametrize("known_support", [False, True])
def test_a_state_that_is_an_end_only_sometimes_has_an_ended_copy(known_support):
    """Episodes start in state 0, and arriving there ends them."""
    env = gymnasium(
        Small(law=ELSEWHERE, start=(1.0, 0.0), with_table=True, size=2, actions=1),
        "uniform",
        0.9,
        known_support=known_support,
    )
    assert env.task.states == (0, 1, (0, "ended"))
    assert env.task.known_rows.ravel().tolist() == ([True, False, True] if known_support else [False, False, True])
    assert env.value == pytest.approx(exact_value(ELSEWHERE, np.array([1.0, 0.0]), np.ones((2, 1)), 0.9))


MANY = {(0, 0): [(0.5, 0, 1.0, False), (0.5, 1, 2.0, False)], (1, 0): [(0.5, 0, 3.0, False), (0.5, 1, 4.0, False)]}


def test_rewards_that_the_table_does_not_settle_must_be_given():
    def env():
        return Small(law=MANY, start=(1.0, 0.0), with_table=True, size=2, actions=1)

    with pytest.raises(InputError, match=r"env\.P\[0\]\[0\] has rewards that depend on the pair and on the next state"):
        gymnasium(env(), "uniform", 0.9)
    wanted = exact_value(MANY, np.array([1.0, 0.0]), np.ones((2, 1)), 0.9)
    given = gymnasium(env(), "uniform", 0.9, rewards=lambda s, a, x: 1.0 + 2 * s + x)
    assert given.value == pytest.approx(wanted)
    assert given.task.support is None
    assert gymnasium(env(), "uniform", 0.9, known_support=True).value == pytest.approx(wanted)
    with pytest.raises(InputError, match=r"rewards at \(s=0, a=0, x=1\) are 1, but the environment pays 2"):
        gymnasium(env(), "uniform", 0.9, rewards=lambda s, a, x: 1.0 + 2 * s)


def test_states_never_entered_are_no_successors_where_rewards_are_those_of_arrival():
    env = gymnasium("CliffWalking-v1", "uniform", 0.9, options={"is_slippery": True}, ambiguous="split")
    assert not env.task.support[0, 0, 37:47].any()
    assert env.task.support[0, 0, [0, 36, 47, 48]].all()


@pytest.mark.parametrize("known_support", [False, True])
@pytest.mark.parametrize(
    "desc", [["SFHF", "FFHH", "FFFF", "FFFG"], ["SHF", "HHF", "FFG"]], ids=["a corner behind holes", "the goal too"]
)
def test_maps_with_cells_that_no_episode_reaches(desc, known_support):
    """Their rows lead to each other, where no episode goes: they are no reason to refuse the map."""
    made = gym.make("FrozenLake-v1", desc=desc)
    pi = random_policy(made)
    env = gymnasium("FrozenLake-v1", pi, 0.9, options={"desc": desc}, known_support=known_support)
    start = np.asarray(made.unwrapped.initial_state_distrib, dtype=float)
    assert env.value == pytest.approx(exact_value(law_of(made), start, pi, 0.9), abs=1e-12)


def test_random_maps_are_taken():
    """Many of them have such cells."""
    from gymnasium.envs.toy_text.frozen_lake import generate_random_map

    for seed in range(12):
        env = gymnasium("FrozenLake-v1", "uniform", 0.9, options={"desc": generate_random_map(8, p=0.7, seed=seed)})
        assert 0 <= env.value <= 1


def test_numbers_need_not_start_at_zero():
    plain, shifted = (gymnasium(Small(*first, with_table=True), PI, 0.8) for first in ((0, 0), (5, -1)))
    assert shifted.value == plain.value
    assert shifted.task.states == (5, 6, 7)
    assert shifted.task.actions == (-1, 0)
    acts = gymnasium(Small(5, -1, with_table=True), {5: 0, 6: {-1: 0.5, 0: 0.5}}, 0.8)  # nothing is said about the end
    np.testing.assert_array_equal(acts.task.policy[:2], [[0.0, 1.0], [0.5, 0.5]])
    listed = Small(5, -1)
    listed.P = [[[(1.0, 5, 0.0, False)]] * 2] * 3
    assert_refused(lambda: gymnasium(listed, PI, 0.8, initial=5), "observations start at 5")


def test_names_are_kept():
    names = {"states": ["a", "b", "c"], "actions": ["left", "right"]}
    env = gymnasium(Small(with_table=True), {"a": "left", "b": {"left": 0.5, "right": 0.5}}, 0.8, **names)
    assert env.task.states == ("a", "b", "c")
    assert env.task.actions == ("left", "right")
    shown = []
    gymnasium(Small(3, with_table=True), lambda s: shown.append(s) or 0, 0.8, **names)
    assert sorted(set(shown)) == [3, 4, 5]  # functions see what the environment shows


# ---------------------------------------------------------------- bad environments


def broken_table(entry, at=(0, 0)):
    env = Small(with_table=True)
    env.P[at[0]][at[1]] = entry
    return env


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (broken_table([(0.5, 0, 0.0, False)]), r"env\.P\[0\]\[0\] sums to 0.5, not 1"),
        (broken_table([(1.5, 0, 0.0, False), (-0.5, 1, 0.0, False)]), r"\[0\]\[0\]\[1\] has the probability -0.5"),
        (broken_table([(1.0, 0.5, 0.0, False)]), r"\[0\] leads to 0.5; states are whole numbers"),
        (broken_table([(1.0, "a", 0.0, False)]), r"leads to 'a'; states are whole numbers"),
        (broken_table([(1.0, None, 0.0, False)]), r"leads to None; states are whole numbers"),
        (broken_table([(1.0, 3, 0.0, False)]), "leads to 3; states are 0 to 2"),
        (broken_table([(1.0, -1, 0.0, False)]), "leads to -1; states are 0 to 2"),
        (broken_table([(1.0, 0, np.nan, False)]), r"env\.P\[0\]\[0\]\[0\], the reward, is nan"),
        (broken_table([(np.nan, 0, 0.0, False)]), r"the probability, is nan"),
        (broken_table([(1.0, 0, 0.0, "no")]), r"env\.P\[0\]\[0\]\[0\], whether it is terminated, is 'no'"),
        (broken_table([(1.0, 0, 0.0)]), "expected .probability, next state, reward, terminated."),
        (broken_table([]), "sums to 0, not 1"),
        (broken_table(7, (1, 1)), r"env\.P\[1\]\[1\] is missing"),
    ],
)
def test_a_bad_table_is_refused_with_the_place(env, message):
    with pytest.raises(InputError, match=message):
        gymnasium(env, PI, 0.8)


def test_a_table_with_missing_rows_or_starts():
    env = Small(with_table=True)
    del env.P[1]
    assert_refused(lambda: gymnasium(env, PI, 0.8), "env.P[1][0] is missing")
    env = Small(with_table=True)
    del env.initial_state_distrib
    assert_refused(lambda: gymnasium(env, PI, 0.8), "does not say where it starts")
    assert gymnasium(env, PI, 0.8, initial=START).value == gymnasium(Small(with_table=True), PI, 0.8).value
    env.isd = [0.5, 0.5, 0.1]
    assert_refused(lambda: gymnasium(env, PI, 0.8), "env.isd sums to 1.1")
    with pytest.raises(InputError, match="terminal is for environments that are stepped"):
        gymnasium(Small(with_table=True), PI, 0.8, terminal=[2])


def boxed(name, space):
    env = Small()
    setattr(env, name, space)
    return env


@pytest.mark.parametrize(
    ("env", "message"),
    [
        (boxed("observation_space", Box(0.0, 1.0, (2,))), r"env\.observation_space is Box.*discretise"),
        (boxed("observation_space", MultiDiscrete([2, 2])), r"env\.observation_space is MultiDiscrete"),
        (boxed("action_space", Box(0.0, 1.0)), r"env\.action_space is Box.*actions must be Discrete"),
        (gym.make_vec("FrozenLake-v1", num_envs=2), "a vector of environments; pass a single one"),
        ("FrozenLake-v99", "'FrozenLake-v99', which cannot be made"),
        ("NoSuchLake-v1", "which cannot be made"),
        (7, "env is a int; pass a Gymnasium environment"),
        (None, "env is a NoneType"),
    ],
)
def test_what_is_no_tabular_environment_is_refused(env, message):
    with pytest.raises(InputError, match=message):
        gymnasium(env, "uniform", 0.8)


def test_options_are_those_of_make():
    assert gymnasium(gym.spec("FrozenLake-v1"), "uniform", 0.9, options={"map_name": "8x8"}).task.n_states == 64
    assert_refused(lambda: gymnasium("FrozenLake-v1", "uniform", 0.9, options={"nonsense": 3}), "cannot be made")
    with pytest.raises(InputError, match="options belong to an environment that is made here"):
        gymnasium(Small(with_table=True), PI, 0.9, options={"map_name": "8x8"})


def test_wrappers_that_may_change_the_rules_are_not_ignored():
    doubled = gym.wrappers.TransformReward(gym.make("FrozenLake-v1"), lambda r: 2.0 * r)
    with pytest.raises(InputError, match=r"wrapped in TransformReward, which may change.*env\.unwrapped.*table=False"):
        gymnasium(doubled, "uniform", 0.9)
    assert gymnasium(doubled.unwrapped, "uniform", 0.9).kernel is not None
    counting = gym.wrappers.RecordEpisodeStatistics(gym.make("FrozenLake-v1"))
    assert gymnasium(counting, "uniform", 0.9).kernel is not None


def test_without_gymnasium_the_error_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "gymnasium", None)
    with pytest.raises(InputError, match=r"run pip install 'gymnasium>=1\.0'$"):
        gymnasium("FrozenLake-v1", "uniform", 0.9)


# ---------------------------------------------------------------- stepping

LAYOUTS = {
    "nothing stated": {},
    "initial stated": {"initial": START},
    "terminal stated": {"terminal": [2]},
    "both stated": {"initial": START, "terminal": np.array([False, False, True])},
}


def stepped(settings, discount=0.8, start=START, **changes):
    return gymnasium(Small(start=start, **changes), PI, discount, rewards=paid, **settings)


def extended_kernel(env):
    """The true kernel of the task that is tested, written down from the law by hand."""
    layout, task = env.simulator.layout, env.task
    kernel = np.zeros((task.n_states, task.n_actions, task.n_states))
    for (s, a), rows in LAW.items():
        for p, x, _, end in rows:
            name = (x, "ended") if end and layout.terminal is None else x
            kernel[s, a, x if task.states is None else task.states.index(name)] += p
    for s in np.flatnonzero(task.known_rows.all(axis=1)):
        kernel[s] = np.eye(task.n_states)[s]
    if layout.start >= 0:
        kernel[layout.start, :, :3] = START
    return kernel


@pytest.mark.parametrize("settings", LAYOUTS.values(), ids=LAYOUTS)
def test_the_stepped_task_has_the_value_of_the_episodes(settings):
    """Rewards over gamma make V(start) = V(rho); ends are absorbing; nothing else changes the value."""
    env = stepped(settings)
    wanted = exact_value(LAW, np.array(START), PI, 0.8)
    assert pt.value(env.task, extended_kernel(env)) == pytest.approx(wanted, rel=1e-12)
    assert env.value is None
    assert env.kernel is None
    copies = tuple((x, "ended") for x in range(3))
    assert env.task.terminal == (copies if env.simulator.layout.terminal is None else (2,))
    assert [s for s in range(env.task.n_states) if env.simulator.layout.ended(s)] == env.task.ends


def test_stated_ends_bound_what_is_earned_on_arrival():
    """A success that ends the episode is worth 1 at most. Where ends are not stated it might come again and again."""
    at_goal = {"rewards": lambda s, a, x: float(x == 3), "table": False, "options": {"desc": ["SF", "HG"]}}
    known = gymnasium("FrozenLake-v1", "uniform", 0.99, terminal=[2, 3], **at_goal)
    assert pt.value_range(known.task) == pytest.approx((0.0, 1.0))
    unknown = gymnasium("FrozenLake-v1", "uniform", 0.99, **at_goal)
    assert pt.value_range(unknown.task)[1] == pytest.approx(100.0)
    assert not any("pass terminal" in note for note in known.notes)
    assert any("pass terminal" in note for note in unknown.notes)
    for method in (None, pt.PTST(), pt.MonteCarlo()):
        verdict = pt.decide(known.task, known.simulator, 0.5, 1e-9, method, max_samples=50)
        assert -1e-12 <= verdict.interval[0] <= verdict.estimate <= verdict.interval[1] <= 1 + 1e-12


FOLLOWING = {"betting": pt.TDBetting(), "Monte Carlo": pt.MonteCarlo()}
JUMPING = {"PTST": pt.PTST(), "boxes": pt.RectangularKL()}
NEAR = {"threshold": exact_value(LAW, np.array(START), PI, 0.8) - 0.01, "delta": 1e-6, "max_samples": 600}


def moved(simulator):
    """The transitions of the task that the environment made: its steps, and resets where the start is a state."""
    return simulator.steps + (simulator.resets if simulator.layout.start >= 0 else 0)


@pytest.mark.parametrize("name", [*FOLLOWING, *JUMPING])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_all_that_the_environment_does_is_counted(layout, name):
    """Steps on the way to the pairs asked for are paid for: samples are all transitions, and limited as such."""
    if name in JUMPING and "terminal" not in LAYOUTS[layout]:
        pytest.skip("no episode goes on from an end that is not stated")
    env = stepped(LAYOUTS[layout])
    verdict = pt.decide(env.task, env.simulator, method=(FOLLOWING | JUMPING)[name], **NEAR)
    seeding = env.simulator.layout.start >= 0
    assert verdict.samples == moved(env.simulator) - seeding
    assert verdict.samples == verdict.counts.total + env.simulator.extra_steps
    assert 300 < verdict.samples < 600 + 50  # the last way may be longer than what was left
    wasteful = name in JUMPING and layout == "terminal stated"
    assert (env.simulator.extra_steps > 0) == wasteful, "methods that follow trajectories waste nothing"


@pytest.mark.parametrize("method", [pt.TDBetting(), pt.PTST()], ids=["betting", "PTST"])
def test_other_questions_count_it_too(method):
    env = stepped(LAYOUTS["terminal stated"])
    task, sim, settings = env.task, env.simulator, {"method": method, "max_samples": 400}
    other = dataclasses.replace(task, policy=task.policy[:, ::-1])
    known = (task.rewards, task.initial, 0.8, sim)
    for ask in (
        lambda: pt.compare(task, other, sim, margin=0.2, **settings),
        lambda: pt.evaluate(task, sim, 1e-3, **settings),
        lambda: pt.identify(*known, policies=[task.policy, other.policy], support=task.support, **settings),
        lambda: pt.identify(*known, support=task.support, **settings),
    ):
        before = moved(sim)
        found = ask()
        assert found.samples == moved(sim) - before - 1  # one reset seeds the environment
        assert found.samples < 400 + 50


def test_an_environment_that_cuts_its_episodes_short_is_counted():
    """After a cut the run goes on from where it was, to which the environment must be brought again."""
    env = stepped(LAYOUTS["nothing stated"], limit=2)
    verdict = pt.decide(env.task, env.simulator, **NEAR | {"max_samples": 300})
    assert verdict.samples == moved(env.simulator) - 1 > verdict.counts.total
    going_on = pt.decide(env.task, env.simulator, **NEAR, resume=verdict)
    assert going_on.samples == moved(env.simulator) - 2
    assert 600 <= going_on.samples < 600 + 50


def test_rewards_on_pairs_need_one_end_for_all():
    env = gymnasium(Small(), PI, 0.8, rewards=np.zeros((3, 2)))
    assert env.task.states == (0, 1, 2, "ended", "start")
    assert gymnasium(Small(), PI, 0.8, rewards=lambda s, a, x: 0.0).task.states == env.task.states
    assert gymnasium(Small(), PI, 0.8, rewards=np.zeros((3, 2)), terminal=(), initial=0).task.support is None


def rare(hits, draws, p):
    """Whether so many hits have a probability below one in a million, on either side."""
    return min(binom.cdf(hits, draws, p), binom.sf(hits - 1, draws, p)) < ALARM / 2


@pytest.mark.parametrize("settings", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("limit", [None, 2])
def test_every_answer_is_a_fresh_draw_whatever_is_asked_for(settings, limit):
    """Pairs in a mixed order, so that the environment has to be brought there; with truncation after two steps too."""
    env = stepped(settings, limit=limit)
    kernel, draws = extended_kernel(env), 600
    pairs = [(0, 0), (1, 1), (1, 0), (0, 1)] + (
        [(env.simulator.layout.start, 0)] if not settings.get("initial") else []
    )
    pairs = [(s, a) for s, a in pairs if s >= 0]
    rng, seen = np.random.default_rng(3), {pair: np.zeros(env.task.n_states) for pair in pairs}
    s, a = np.array(pairs * draws).T
    for pair, x in zip(pairs * draws, env.simulator.draw(s, a, rng), strict=True):
        seen[pair][x] += 1
    alarms = controls = 0
    for pair, counts in seen.items():
        for x, hits in enumerate(counts):
            alarms += rare(hits, draws, kernel[pair][x])
            controls += rare(hits, draws, kernel[(0, 1) if pair != (0, 1) else (0, 0)][x])
    assert alarms == 0
    assert controls > 0  # the same alarm notices the wrong row


class EndsAtTheLimit(Small):
    """Broken: says that a time limit ends the episode."""

    def step(self, action):
        x, r, end, limit, info = super().step(action)
        return x, r, end or limit, False, info


@pytest.mark.parametrize("kind", [Small, EndsAtTheLimit])
def test_delta_is_kept_at_the_value_itself_and_the_control_is_caught(kind):
    """At R = V each wrong answer has probability at most delta; an environment that ends too soon is noticed."""
    value, delta, runs = exact_value(LAW, np.array(START), PI, 0.8), 0.1, 80
    env = gymnasium(kind(limit=3), PI, 0.8, rewards=paid)
    settings = {"method": pt.TDBetting(), "max_samples": 150}
    answers = [pt.decide(env.task, env.simulator, value, delta, rng=seed, **settings).answer for seed in range(runs)]
    worst = max(answers.count("above"), answers.count("below"))
    assert (binom.sf(worst - 1, runs, delta) < ALARM) == (kind is EndsAtTheLimit)


def test_trajectories_waste_no_step():
    env = stepped({})
    verdict = pt.decide(env.task, env.simulator, threshold=0.9, rng=1)
    sim = env.simulator
    assert verdict.answer == "below"
    assert sim.steps + sim.resets - 1 == verdict.samples  # the first reset is for the seed


@pytest.mark.parametrize("settings", LAYOUTS.values(), ids=LAYOUTS)
def test_verdicts_on_both_sides_are_right(settings):
    wanted = exact_value(LAW, np.array(START), PI, 0.8)
    for sign, answer in ((-0.15, "above"), (0.15, "below")):
        env = stepped(settings)
        assert pt.decide(env.task, env.simulator, threshold=wanted + sign, delta=1e-4, rng=5).answer == answer


@pytest.mark.parametrize("method", [pt.TDBetting(), pt.PTST(allocation=pt.Forward()), pt.PTST(), pt.MonteCarlo()])
def test_every_method_can_step(method):
    env = stepped(LAYOUTS["both stated"], discount=0.5)
    wanted = exact_value(LAW, np.array(START), PI, 0.5)
    assert pt.decide(env.task, env.simulator, wanted - 0.2, 1e-3, method, max_samples=20_000).answer == "above"


@pytest.mark.parametrize("below", [True, False])
def test_a_stepped_lake_agrees_with_its_table(below):
    table = gymnasium("FrozenLake-v1", "uniform", 0.8, options={"is_slippery": False})
    at_goal = {"rewards": lambda s, a, x: float(x == 15), "terminal": [5, 7, 11, 12, 15]}
    env = gymnasium("FrozenLake-v1", "uniform", 0.8, options={"is_slippery": False}, table=False, **at_goal)
    threshold = 0.0 - 0.01 if below else table.value + 0.1
    verdict = pt.decide(env.task, env.simulator, threshold=threshold, delta=1e-3)
    assert verdict.answer == ("above" if threshold < table.value else "below")


def test_numbers_of_a_stepped_environment_need_not_start_at_zero():
    def reward(s, a, x):
        return float((s, a, x) == (6, 0, 7))

    shifted = gymnasium(Small(5, -1), PI, 0.8, rewards=reward, terminal=[7])
    plain = stepped({"terminal": [2]})
    assert shifted.task.states == (5, 6, 7, "start")
    verdicts = [pt.decide(env.task, env.simulator, 0.9, rng=4) for env in (shifted, plain)]
    assert verdicts[0].samples == verdicts[1].samples
    assert (verdicts[0].counts.N == verdicts[1].counts.N).all()


def test_time_limits_are_no_ends():
    limited = gym.wrappers.TimeLimit(Small(with_table=True), 3)
    env = gymnasium(limited, PI, 0.8)
    assert env.value == gymnasium(Small(with_table=True), PI, 0.8).value
    assert env.notes[0] == "The time limit of 3 steps is not an end: the discounted value goes on beyond it."
    walked = gymnasium(limited, PI, 0.8, rewards=paid, table=False)
    assert type(walked.simulator.env) is Small  # outside, it is taken off
    inside = gymnasium(gym.wrappers.OrderEnforcing(limited), PI, 0.8, rewards=paid, table=False, terminal=[2])
    wanted = exact_value(LAW, np.array(START), PI, 0.8)
    verdict = pt.decide(inside.task, inside.simulator, wanted - 0.15, 1e-3)
    assert verdict.answer == "above"
    assert "time limit" in inside.notes[0]


def test_a_seed_fixes_a_run():
    env = stepped({})
    runs = [pt.decide(env.task, env.simulator, 0.6, rng=seed) for seed in (1, 2, 1)]
    again = pt.decide(env.task, stepped({}).simulator, 0.6, rng=1)
    assert runs[0].evidence == runs[2].evidence == again.evidence
    assert (runs[0].counts.N == runs[2].counts.N).all()
    assert runs[0].evidence != runs[1].evidence


def test_a_stepped_run_can_be_resumed():
    env = stepped({})
    first = pt.decide(env.task, env.simulator, 0.9, max_samples=25)
    assert first.answer is None
    assert pt.decide(env.task, stepped({}).simulator, 0.9, resume=first).answer == "below"


class Faulty(Small):
    """Does one thing wrong, at a certain step."""

    def __init__(self, fault, at=20):
        super().__init__()
        self.fault, self.at, self.count = fault, at, 0

    def step(self, action):
        answer = list(super().step(action))
        self.count += 1
        if self.count == self.at:
            return self.fault(answer)
        return tuple(answer)


def failing(answer):
    raise ConnectionError("the robot is gone")


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (
            lambda answer: (answer[0], 7.0, *answer[2:]),
            r"rewards at \(s=\d, a=\d, x=\d\) are [01], but the environment",
        ),
        (lambda answer: (answer[0], np.nan, *answer[2:]), r"the reward of env\.step at \(s=\d, a=\d\) is nan"),
        (lambda answer: (answer[0], None, *answer[2:]), r"the reward of env\.step"),
        (lambda answer: (3, *answer[1:]), r"env\.step at \(s=\d, a=\d\) answered 3; states are 0 to 2"),
        (lambda answer: (0.5, *answer[1:]), "answered 0.5; states are whole numbers"),
        (lambda answer: (np.zeros(2), *answer[1:]), "states are whole numbers"),
        (lambda answer: tuple(answer[:4]), r"env\.step answered 4 values; expected \(observation, reward, terminated"),
        (lambda answer: None, r"env\.step answered None"),
        (lambda answer: (*answer[:2], "no", *answer[3:]), r"the flag terminated of env\.step is 'no'"),
        (lambda answer: (*answer[:3], np.nan, answer[4]), r"the flag truncated of env\.step is nan"),
    ],
)
def test_what_an_environment_does_wrong_is_named(fault, message):
    env = gymnasium(Faulty(fault), PI, 0.8, rewards=paid)
    with pytest.raises(InputError, match=message):
        pt.decide(env.task, env.simulator, 0.9)


def test_an_environment_that_two_threads_step_is_refused():
    found = []

    def elsewhere(answer):
        thread = threading.Thread(target=lambda: found.append(refusal()))
        thread.start()
        thread.join()
        return tuple(answer)

    def refusal():
        with pytest.raises(InputError, match="another thread at the same time") as caught:
            pt.decide(env.task, env.simulator, 0.9)
        return caught

    env = gymnasium(Faulty(elsewhere), PI, 0.8, rewards=paid)
    assert pt.decide(env.task, env.simulator, 0.9).answer == "below"
    assert len(found) == 1


def test_an_environment_that_raises_says_where_and_can_be_used_again():
    env = gymnasium(Faulty(failing), PI, 0.8, rewards=paid)
    with pytest.raises(ConnectionError, match="the robot is gone") as caught:
        pt.decide(env.task, env.simulator, 0.9)
    assert "raised by env.step at (s=" in caught.value.__notes__[0]
    assert pt.decide(env.task, env.simulator, 0.9).answer == "below"


def test_what_is_stated_is_checked():
    wrong = {
        r"terminal does not list 2; correct": {"settings": {"terminal": []}},
        r"a terminal state": {"settings": {"terminal": [1, 2]}, "start": (0.0, 1.0, 0.0)},
        r"went on, but terminal lists 1": {"settings": {"terminal": [1, 2]}, "start": (1.0, 0.0, 0.0)},
        r"which has probability 0 in initial": {"settings": {"initial": 0}},
    }
    for message, settings in wrong.items():
        with pytest.raises(InputError, match=message):
            stepped(**settings).simulator.draw([0, 1] * 50, [1] * 100, np.random.default_rng(0))
    never_ends = {(s, a): [(p, x, r, False) for p, x, r, _ in rows] for (s, a), rows in LAW.items()}
    with pytest.raises(InputError, match=r"went on, but terminal lists 2"):
        stepped({"terminal": [2]}, law=never_ends).simulator.draw([1] * 50, [1] * 50, np.random.default_rng(0))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "has no table P; pass rewards"),
        ({"rewards": np.zeros((3, 3))}, r"rewards has shape \(3, 3\), expected \(3, 2\)"),
        ({"rewards": np.full((3, 2), np.nan)}, r"rewards\[0, 0\] is nan"),
        ({"rewards": lambda s, a, x: None}, r"rewards as a function of \(s, a, next state\) failed"),
        ({"rewards": lambda s: 0.0}, "rewards as a function"),
        ({"rewards": paid, "terminal": [3]}, "unknown state 3 in terminal; states are 0 to 2"),
        ({"rewards": paid, "terminal": [True, False]}, r"terminal has shape \(2,\)"),
        ({"rewards": paid, "initial": [1.0, 1.0, 0.0]}, "initial sums to 2"),
        ({"rewards": paid, "initial": 9}, "unknown state 9 in initial"),
        ({"rewards": paid, "known_support": True}, "known_support is for tables"),
        ({"table": True}, "has no table P"),
    ],
)
def test_what_is_missing_or_wrong_is_said_before_the_first_step(settings, message):
    with pytest.raises(InputError, match=message):
        gymnasium(Small(), PI, 0.8, **settings)


def test_without_discounting_over_time_the_start_must_be_stated():
    with pytest.raises(InputError, match="discount is 0, and where episodes start is unknown; pass initial"):
        stepped({}, discount=0.0)
    env = stepped({"initial": {0: 0.75, 1: 0.25}}, discount=0.0)
    assert pt.decide(env.task, env.simulator, 0.0 - 0.1).answer == "above"


def test_an_environment_that_truncates_every_step_is_told_so(monkeypatch):
    """Not to use a method that follows trajectories: none could."""
    monkeypatch.setattr(stepping, "LONGEST_WAY", 200)
    env = stepped({}, law={pair: [(1.0, 1, 0.0, False)] for pair in LAW}, start=(1.0, 0.0, 0.0), limit=1)
    with pytest.raises(InputError, match=r"not met in 200 steps.*; all episodes were truncated before"):
        pt.decide(env.task, env.simulator, 0.5)
    assert env.simulator.truncations == env.simulator.steps


def test_a_state_that_is_never_met_is_not_waited_for_without_end(monkeypatch):
    monkeypatch.setattr(stepping, "LONGEST_WAY", 200)
    env = stepped({"terminal": ()}, law={pair: [(1.0, 0, 0.0, False)] for pair in LAW}, start=(1.0, 0.0, 0.0))
    with pytest.raises(InputError, match="state 1 was not met in 200 steps of the environment; use a method that"):
        env.simulator.draw([1], [0], np.random.default_rng(0))
    assert_refused(lambda: env.simulator.draw([7], [0], np.random.default_rng(0)), "is not a pair of the task")


class Old(Small):
    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0]


def test_an_old_interface_is_recognised():
    env = gymnasium(Old(), PI, 0.8, rewards=paid)
    with pytest.raises(InputError, match=r"env\.reset answered \d; expected \(observation, info\)"):
        pt.decide(env.task, env.simulator, 0.9)


# ---------------------------------------------------------------- shown, and on the command line


def test_an_environment_shows_itself():
    env = pt.sources.gymnasium("FrozenLake-v1", "uniform", 0.9)
    assert isinstance(env, pt.sources.Environment)
    assert "FrozenLake-v1: 16 states, 4 actions" in str(env)
    assert "exact value   0.00447726" in str(env)
    assert "<table" in env._repr_html_()
    assert env.summary.data() == {"states": 16, "actions": 4, "discount": 0.9, "ended": 5, "value": env.value}
    assert "its steps" in str(stepped({}))
    sparse = gymnasium("Taxi-v4", "uniform", 0.9, known_support=True, options={"is_rainy": True})
    assert sparse.summary.data()["ended"] == 4


def test_a_gym_address_is_a_model(capsys, tmp_path):
    policy = tmp_path / "policy.json"
    policy.write_text(json.dumps({"policy": [2] * 16}))
    address = "gym:FrozenLake-v1?is_slippery=false&known_support=true"
    common = ["--discount", "0.9", "--quiet"]
    assert main(["decide", address, "--policy", "uniform", "--threshold", "0.2", *common]) == 1
    shown = capsys.readouterr().out
    assert "exact value: 0.00447726" in shown
    assert main(["decide", address, "--policy", str(policy), "--threshold", "-0.1", "--json", *common]) == 0
    captured = capsys.readouterr()
    assert json.loads(captured.out)["answer"] == "above"
    assert "exact value: 0," in captured.err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gym:FrozenLake-v1", "--policy", "uniform"], "pass --discount"),
        (["gym:FrozenLake-v1", "--discount", "0.9"], "pass --policy FILE"),
        (["gym:FrozenLake-v1", "--discount", "1.5", "--policy", "uniform"], "discount is 1.5"),
        (["gym:FrozenLake-v1?discount=0.9&policy=missing.json"], "missing.json"),
        (["gym:", "--discount", "0.9", "--policy", "uniform"], "names no environment"),
        (["gym:FrozenLake-v1?map_name", "--discount", "0.9", "--policy", "uniform"], "?name=value&other=value"),
        (["gym:FrozenLake-v1?a=1&a=2", "--discount", "0.9", "--policy", "uniform"], "twice"),
        (["gym:FrozenLake-v1?nonsense=1", "--discount", "0.9", "--policy", "uniform"], "cannot be made"),
        (["gym:FrozenLake-v1?is_slippery=maybe", "--discount", "0.9", "--policy", "uniform"], "is_slippery is 'maybe'"),
        (["gym:FrozenLake-v1?is_slippery=2", "--discount", "0.9", "--policy", "uniform"], "it is true or false"),
        (["gym:FrozenLake-v1?known_support=", "--discount", "0.9", "--policy", "uniform"], "known_support is ''"),
        (["gym:CartPole-v1", "--discount", "0.9", "--policy", "uniform"], "discretise"),
        (
            ["gym:CliffWalking-v1?is_slippery=true", "--discount", "0.9", "--policy", "uniform"],
            "write &ambiguous=split behind the address",
        ),
    ],
)
def test_a_wrong_address_exits_with_2(arguments, message, capsys):
    assert main(["decide", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_options_of_an_address_have_types():
    env = from_address("gym:FrozenLake-v1?map_name=8x8&is_slippery=True&success_rate=0.5", "uniform", 0.9)
    assert env.task.n_states == 64
    np.testing.assert_allclose(env.kernel[0, 2, [1, 0, 8]], [0.5, 0.25, 0.25])


def test_switches_of_an_address():
    for texts, slippery in ((("true", "Yes", "on", "1"), True), (("False", "no", "OFF", "0"), False)):
        for text in texts:
            env = from_address(f"gym:FrozenLake-v1?is_slippery={text}", "uniform", 0.9)
            assert bool(np.count_nonzero(env.kernel[0, 2]) > 1) is slippery


def test_an_address_can_say_it_all(capsys, tmp_path):
    (tmp_path / "hole.csv").write_text("state,action\n" + "".join(f"{s},{1 + (s % 4 < 3)}\n" for s in range(16)))
    lake = "gym:FrozenLake-v1?is_slippery=false&known_support=true&discount=0.9&policy="
    assert main(["decide", f"{lake}uniform", "--threshold", "0.3", "--quiet"]) == 1
    assert "exact value: 0.00447726" in capsys.readouterr().out
    arguments = [f"{lake}uniform", f"{lake}{tmp_path / 'hole.csv'}", "--max-samples", "2000"]
    assert main(["compare", *arguments]) == 0  # right and down leads into a hole


def test_too_many_states_to_allow_all_successors(monkeypatch):
    monkeypatch.setattr(table_module, "FULL_LIMIT", 1000)
    with pytest.raises(InputError, match=r"make 1,024 transitions, too many.*known_support=True"):
        gymnasium("FrozenLake-v1", "uniform", 0.8)
    assert gymnasium("FrozenLake-v1", "uniform", 0.8, known_support=True).value > 0
    with pytest.raises(InputError, match=r"make 1,296 transitions, too many to allow all of them; pass terminal"):
        gymnasium("FrozenLake-v1", "uniform", 0.8, table=False, rewards=np.zeros((16, 4)))


def test_other_models_take_a_policy_and_a_discount_too(capsys):
    assert main(["decide", "paper-2", "--policy", "uniform", "--discount", "0.5", "--threshold", "-9", "--quiet"]) == 0
    assert main(["decide", "paper-2", "--policy", "nonsense", "--threshold", "-9", "--quiet"]) == 2


# ---------------------------------------------------------------- horizons, goals, observed rewards


def limited_value(law, start, pi, gamma, horizon):
    """By the rules of episodes themselves, step by step; no task involved."""
    S, A = pi.shape
    V = np.zeros(S)
    for _ in range(horizon):
        V = np.array(
            [
                sum(pi[s, a] * p * (r + gamma * V[int(x)] * (not end)) for a in range(A) for p, x, r, end in law[s, a])
                for s in range(S)
            ]
        )
    return float(start @ V)


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize(("given", "steps"), [("time limit", 100), (7, 7)])
def test_the_time_limit_is_the_horizon_where_that_is_asked(discount, given, steps):
    env = gym.make("FrozenLake-v1")
    lake = gymnasium(env, pi := random_policy(env), discount, horizon=given)
    assert lake.task.horizon == steps
    expected = limited_value(law_of(env), env.unwrapped.initial_state_distrib, pi, discount, steps)
    assert lake.value == pytest.approx(expected)
    said = "is the horizon." if steps == 100 else "is not the horizon, which has 7."
    assert lake.notes[0] == f"The time limit of 100 steps {said}"
    assert "horizon" in str(lake)


def test_the_mean_return_of_taxi_with_its_time_limit():
    """Costs at every step have no bound without it: `value_range` is then infinite below."""
    assert pt.value_range(gymnasium("Taxi-v4", "uniform", 1.0, known_support=True).task)[0] == -np.inf
    taxi = gymnasium("Taxi-v4", "uniform", 1.0, horizon="time limit", known_support=True)
    env = gym.make("Taxi-v4")
    uniform = np.full((500, 6), 1 / 6)
    expected = limited_value(law_of(env), env.unwrapped.initial_state_distrib, uniform, 1.0, 200)
    assert taxi.value == pytest.approx(expected)


@pytest.mark.parametrize("horizon", [None, 20])
def test_goals_of_a_table(horizon):
    """Reward 1 on arrival at the goal, and nothing after it: the rules are changed by hand."""
    env = gym.make("FrozenLake-v1")
    pi = random_policy(env)
    lake = gymnasium(env, pi, goal=[10], avoid=[4], horizon=horizon)
    law = {
        pair: [(p, x, float(x == 10), end or x in (4, 10)) for p, x, _, end in rows]
        for pair, rows in law_of(env).items()
    }
    expected = limited_value(law, env.unwrapped.initial_state_distrib, pi, 1.0, horizon or 5000)
    assert 0.01 < lake.value == pytest.approx(expected)
    assert pt.decide(lake.task, lake.simulator, threshold=0.9, rng=0).answer == "below"


@pytest.mark.parametrize("initial", [None, START])
def test_goals_of_an_environment_that_is_stepped(initial):
    """An episode is over at the goal, though the environment goes on; one that terminates elsewhere has failed."""
    env = gym.wrappers.TimeLimit(Small(), 4)
    if initial is not None:
        begun = gymnasium(env, PI, goal=[1], horizon="time limit", initial=initial)
        assert begun.task.reached_at_start == pytest.approx(initial[1])
        assert 0 not in begun.simulator.draw([1] * 9, [0] * 9, np.random.default_rng(0))
        env = gym.wrappers.TimeLimit(Small(start=(1.0, 0.0, 0.0)), 4)
        initial = (1.0, 0.0, 0.0)
    made = gymnasium(env, PI, goal=[1], horizon="time limit", initial=initial)
    x = made.simulator.draw([0] * 300, [1] * 300, np.random.default_rng(0))
    assert set(x.tolist()) == {0, 1}
    assert made.simulator.draw([1], [0], np.random.default_rng(0)).tolist() == [1]
    assert made.task.horizon == (5 if initial is None else 4)


def test_reaching_the_end_of_a_stepped_environment_is_a_fair_draw():
    """The frequency of success of draws along the policy is the probability by hand."""
    made = gymnasium(gym.wrappers.TimeLimit(Small(), 6), PI, goal=[2], horizon="time limit")
    task, sim, rng = made.task, made.simulator, np.random.default_rng(1)
    assert (task.n_states, task.horizon) == (5, 7)
    wins, runs = 0, 3000
    for _ in range(runs):
        s = 4
        for _ in range(task.horizon):
            a = rng.choice(2, p=task.policy[s])
            s = int(sim.draw([s], [a], rng)[0])
        wins += s == 2
    law = {pair: [(p, x, float(x == 2), end or x == 2) for p, x, _, end in rows] for pair, rows in LAW.items()}
    expected = limited_value(law, np.array(START), PI, 1.0, 6)
    assert min(binom.cdf(wins, runs, expected), binom.sf(wins - 1, runs, expected)) > ALARM
    verdict = pt.decide(task, sim, threshold=expected - 0.3, rng=0)
    assert (verdict.answer, verdict.certified) == ("above", True)
    assert pt.decide(task, sim, threshold=min(expected + 0.3, 0.95), rng=0).answer == "below"


@pytest.mark.parametrize("initial", [None, START])
@pytest.mark.parametrize("discount", [1.0, 0.8])
def test_rewards_are_those_that_the_environment_pays(discount, initial):
    env = gym.wrappers.TimeLimit(Small(), 6)
    observed = pt.Observed(0.0, 5.0)
    made = gymnasium(env, PI, discount, rewards=observed, horizon="time limit", initial=initial)
    assert made.task.observes_rewards
    s, a = np.ones(4000, dtype=int), np.ones(4000, dtype=int)
    x, r = made.simulator.draw(s, a, np.random.default_rng(0))
    scale = 1 / discount if initial is None else 1.0
    np.testing.assert_allclose(r, scale * (x == 3))  # state 3 is "ended", where state 2 is reached
    assert set(x.tolist()) == {0, 3}
    expected = limited_value(LAW, np.array(START), PI, discount, 6)
    rng = np.random.default_rng(2)
    assert pt.decide(made.task, made.simulator, threshold=expected + 3, rng=rng).answer == "below"
    assert pt.decide(made.task, made.simulator, threshold=0.3 * expected, rng=rng).answer == "above"
    assert_refused(lambda: gymnasium(env, PI, 0.9, rewards=observed, table=True), "leave table out")
    narrow = gymnasium(env, PI, discount, rewards=pt.Observed(0.0, 0.5), horizon=6, initial=initial)
    assert_refused(
        lambda: pt.decide(narrow.task, narrow.simulator, threshold=0.25, rng=0), "outside the declared range"
    )


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"discount": 1.0, "horizon": "time limit"}, 'horizon is "time limit", and FrozenLake-v1 has none'),
        ({"discount": 1.0, "horizon": "limit"}, "pass a number of steps, or"),
        ({"discount": 1.0, "horizon": 0}, "horizon is 0"),
        ({}, "discount is missing"),
        ({"discount": 0.9, "goal": [15]}, "leave discount out"),
        ({"goal": [15], "rewards": np.zeros((16, 4))}, "leave rewards out"),
        ({"discount": 0.9, "avoid": [5]}, "avoid belongs to goal"),
        ({"goal": []}, "goal is empty"),
        ({"goal": [99]}, "unknown state 99 in goal"),
    ],
)
def test_questions_that_cannot_be_asked(settings, said):
    env = gym.make("FrozenLake-v1").unwrapped
    assert_refused(lambda: gymnasium(env, "uniform", **settings), said)


def test_a_goal_that_is_to_be_avoided_counts_as_reached():
    """As in PCTL's !avoid U goal: avoiding the goal too changes nothing."""
    env = gym.make("FrozenLake-v1").unwrapped
    expected = gymnasium(env, "uniform", goal=[15], avoid=[4])
    with pytest.warns(UserWarning, match="goal and avoid both have the state 15: entering it counts as reaching"):
        found = gymnasium(env, "uniform", goal=[15], avoid=[4, 15])
    assert found.value == expected.value > 0


def test_the_command_line_takes_the_time_limit(capsys):
    ask = ["decide", "gym:FrozenLake-v1?is_slippery=false", "--policy", "uniform", "--threshold", "0.005", "--quiet"]
    assert main([*ask, "--discount", "1", "--horizon", "time limit", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["answer"] == "above"
    assert main([*ask, "--goal", "15", "--horizon", "time limit"]) == 0
    assert main(["decide", "paper-2", "--threshold", "0", "--horizon", "time limit"]) == 2
    assert "--horizon is 'time limit', and paper-2 has none; pass a number of steps" in capsys.readouterr().err
    assert main([*ask, "--discount", "1", "--horizon", "soon"]) == 2
