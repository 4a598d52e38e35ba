"""Minari datasets, made offline: every step is one transition, ends are ends and cuts are not."""

from __future__ import annotations

import json
import re
import warnings
from types import SimpleNamespace

import numpy as np
import pytest

import policytest as pt
from policytest.sources.environments.bins import discretise
from policytest.sources.environments.gymnasium import gymnasium
from policytest.sources.environments.minari import minari
from source_builders import assert_refused

gym = pytest.importorskip("gymnasium")
package = pytest.importorskip("minari")
pytest.importorskip("h5py")
buffers = pytest.importorskip("minari.data_collector.episode_buffer")


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))


def episode(observations, actions, rewards, end="terminated", number=None):
    """One episode; its last step terminated, was truncated, or neither."""
    last = np.arange(len(actions)) == len(actions) - 1
    return buffers.EpisodeBuffer(
        id=number,
        observations=list(observations),
        actions=list(actions),
        rewards=list(rewards),
        terminations=list(last & (end == "terminated")),
        truncations=list(last & (end == "truncated")),
    )


def dataset(episodes, observations=None, actions=None, name="toy/one-v0"):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Minari asks for an author, an address and more
        return package.create_dataset_from_buffers(
            dataset_id=name,
            buffer=episodes,
            observation_space=observations or gym.spaces.Discrete(3),
            action_space=actions or gym.spaces.Discrete(2),
            data_format="hdf5",
        )


def corridor(end_known=True):
    """States 0, 1 and the end 2; entering the end pays 1."""
    rewards = np.zeros((3, 2, 3))
    rewards[:2, :, 2] = 1.0
    support = np.ones((3, 2, 3), bool)
    support[2] = [False, False, True]
    return pt.Task(rewards, np.full((3, 2), 0.5), [1.0, 0, 0], 0.9, support if end_known else None)


EPISODES = [
    ([0, 1, 0, 1, 2], [1, 0, 1, 1], [0, 0, 0, 1.0], "terminated"),
    ([0, 0, 1], [0, 1], [0, 0], "truncated"),
    ([1, 2], [1], [1.0], "terminated"),
    ([0, 1], [1], [0], "neither"),
]


def toy():
    return dataset([episode(*one) for one in EPISODES])


def test_every_step_is_one_transition():
    found = minari(toy(), corridor())
    s, a, x = (getattr(found.transitions(), name).tolist() for name in "sax")
    assert s == [0, 1, 0, 1, 0, 0, 1, 0]
    assert a == [1, 0, 1, 1, 0, 1, 1, 1]
    assert x == [1, 0, 1, 2, 0, 1, 2, 1]
    assert found.episodes.tolist() == [0, 0, 0, 0, 1, 1, 2, 3]
    assert (found.ended, found.cut) == (2, 2)
    assert found.counts.total == 8
    assert found.counts.visits[2].sum() == 0  # nothing after an end
    assert pt.assess(found.task, found.counts, threshold=0.0).samples == 8
    assert "terminated" in str(found)
    assert "toy/one-v0" in str(found).splitlines()[0]
    assert json.loads(found.to_json())["ended"] == 2
    assert found.diagnose().ok
    assert found.diagnose().findings[0].transitions == 4  # the second step of an episode on


def test_by_its_id_and_twice(tmp_path):
    toy()
    found = minari("toy/one-v0", corridor())
    assert found.counts == minari(package.load_dataset("toy/one-v0"), corridor()).counts
    found.save(tmp_path / "log.npz")
    kept = pt.Counts.load(tmp_path / "log.npz")
    assert kept == found.counts
    assert (
        found.files[0].fingerprint
        != minari(dataset([episode(*EPISODES[0])], name="toy/two-v0"), corridor()).files[0].fingerprint
    )
    with pytest.raises(pt.InputError, match=r"not on this machine.*MINARI_DATASETS_PATH"):
        minari("toy/none-v0", corridor())


def test_a_task_is_made_with_ends_and_starts():
    """Without a task: a state where each start leads from, and one for the ends, which pay what they paid."""
    rewards = lambda s, a, x: float(x == 2)  # noqa: E731
    source = toy()
    found = minari(source, policy="uniform", rewards=rewards, discount=0.9)
    names = list(found.task.states)
    start, ended = names.index("start"), names.index((2, "ended"))
    s, x = found.transitions().s, found.transitions().x
    assert s.tolist() == [start, 0, 1, 0, 1, start, 0, 0, start, 1, start, 0]
    assert x.tolist() == [0, 1, 0, 1, ended, 0, 0, 1, 1, ended, 0, 1]
    assert found.episodes.tolist() == [0] * 5 + [1] * 3 + [2] * 2 + [3] * 2
    known = minari(source, policy="uniform", rewards=rewards, discount=0.9, initial=0, terminal=[2])
    assert known.task.n_states == 3
    assert known.counts == minari(source, corridor()).counts


def test_the_value_is_that_of_the_environment():
    """Episodes of FrozenLake under a policy: the empirical kernel's value comes near the exact one."""
    lake = gymnasium("FrozenLake-v1", "uniform", 0.9)
    env = gym.make("FrozenLake-v1")
    rng = np.random.default_rng(0)
    recorded = []
    observation, _ = env.reset(seed=0)
    while len(recorded) < 400:
        o, a, r, done, cut = [observation], [], [], False, False
        while not (done or cut):
            a.append(int(rng.integers(4)))
            observation, reward, done, cut, _ = env.step(a[-1])
            o.append(observation)
            r.append(reward)
        recorded.append(episode(o, a, r, "terminated" if done else "truncated"))
        observation, _ = env.reset()
    source = dataset(recorded, env.observation_space, env.action_space, "lake/random-v0")
    found = minari(source, lake)
    assert found.ended == 400
    assert pt.value(lake.task, found.counts.kernel(lake.task)) == pytest.approx(lake.value, abs=0.003)
    assert found.diagnose().ok
    stepped = gymnasium(gym.make("FrozenLake-v1"), "uniform", 0.9, table=False, rewards=lambda s, a, x: float(x == 15))
    again = minari(source, stepped)
    assert again.task is stepped.task
    assert again.counts.total == found.counts.total + 400
    assert pt.value(again.task, again.counts.kernel(again.task)) == pytest.approx(
        pt.value(lake.task, found.counts.kernel(lake.task)), rel=1e-9
    )


def test_spaces_that_begin_elsewhere():
    shifted = [episode([o + 5 for o in one[0]], [a - 1 for a in one[1]], *one[2:]) for one in EPISODES]
    spaces = gym.spaces.Discrete(3, start=5), gym.spaces.Discrete(2, start=-1)
    assert (
        minari(dataset(shifted, *spaces), corridor()).counts
        == minari(dataset([episode(*one) for one in EPISODES], name="toy/other-v0"), corridor()).counts
    )


def test_continuous_observations_need_bins():
    points = [episode([np.array([o - 0.25], np.float32) for o in one[0]], *one[1:]) for one in EPISODES]
    source = dataset(points, gym.spaces.Box(-1.0, 2.0, (1,), np.float32))
    with pytest.raises(pt.InputError, match=r"observations of the dataset are Box.*bins=policytest.sources.discretise"):
        minari(source, corridor())
    with pytest.warns(pt.AssumptionWarning, match="not Markov"):
        bins = discretise([-1.0, 0.5, 1.5, 2.0], names=["place"])
    found = minari(source, corridor(), bins=bins)
    assert found.counts == minari(dataset([episode(*one) for one in EPISODES], name="toy/other-v0"), corridor()).counts
    with pytest.warns(pt.AssumptionWarning, match="differ from the task's"):
        made = minari(source, policy="uniform", rewards=np.zeros((3, 2)), discount=0.5, bins=bins, check_rewards=False)
    assert "place [0.5, 1.5)" in made.task.states
    assert made.task.assumptions == found.task.assumptions == bins.assumptions
    assert_refused(lambda: minari(source, corridor(), bins=[0.0, 1.0]), "bins is a list, expected a Bins")
    moves = dataset(
        [episode([0, 1], [np.array([0.5], np.float32)], [0.0])], actions=gym.spaces.Box(-1, 1, (1,)), name="toy/m-v0"
    )
    with pytest.raises(pt.InputError, match=r"actions of the dataset are Box.*action_bins="):
        minari(moves, corridor())
    with pytest.warns(pt.AssumptionWarning):
        sides = discretise([-1.0, 0.0, 1.0])
    no_end = np.full((3, 2), 0.5), np.zeros((3, 2))
    signs = minari(moves, policy=no_end[0], rewards=no_end[1], discount=0.5, initial=0, action_bins=sides)
    assert signs.transitions().a.tolist() == [1]
    assert signs.task.assumptions == ("all actions in a cell have the same effect",)


# ---------------------------------------------------------------- what does not fit


def test_rewards_are_compared_with_the_task():
    varied = [episode([0, 1], [1], [0.0], "truncated"), episode([0, 1], [1], [0.5], "truncated")]
    with pytest.raises(pt.InputError, match=re.escape("runs from 0 to 0.5 at (s=0, a=1, x=1)")):
        minari(dataset(varied), corridor())
    other = dataset([episode([0, 1], [1], [0.25], "truncated")], name="toy/b-v0")
    with pytest.raises(pt.InputError, match=re.escape("is 0.25 at (s=0, a=1, x=1), the task has 0 there")):
        minari(other, corridor())
    for settings in ({"check_rewards": False}, {"reward_tolerance": 0.3}):
        with pytest.warns(pt.AssumptionWarning, match="differ from the task's: no answer from it is certified"):
            found = minari(other, corridor(), **settings)
        assert found.counts.total == 1
        assert found.other_rewards
        assert found.transitions().other_rewards
    sparse = corridor()
    single = dataset([episode([0, 2], [1], [np.float32(1.0) * np.float32(1 + 1e-7)])], name="toy/c-v0")
    assert minari(single, sparse).ended == 1


def test_an_end_must_be_one_in_the_task():
    with pytest.raises(pt.InputError, match="observation 2 ends episodes, but the task goes on from it; let its row"):
        minari(source := toy(), corridor(end_known=False))
    paying = corridor()
    rewards = np.array(paying.rewards)
    rewards[2, :, 2] = 3.0
    paying = pt.Task(rewards, paying.policy, paying.initial, 0.9, paying.support)
    assert_refused(lambda: minari(source, paying), "the task goes on from it and pays 3")
    both = [episode([0, 1], [1], [0.0]), episode([1, 0], [1], [0.0], "truncated", 1)]
    with pytest.raises(pt.InputError, match="observation 1 ends episode 0, but episode 1 goes on from it"):
        minari(dataset(both, name="toy/b-v0"), corridor())
    rewards = np.zeros((3, 2))
    assert minari(package.load_dataset("toy/b-v0"), policy="uniform", rewards=rewards, discount=0.9).ended == 1
    with pytest.raises(pt.InputError, match="terminal does not list 1"):
        minari(
            package.load_dataset("toy/b-v0"), policy="uniform", rewards=rewards, discount=0.9, initial=0, terminal=[2]
        )


def test_transitions_outside_the_support():
    task = corridor()
    support = np.array(task.support)
    support[0, 1, 1] = False
    with pytest.raises(pt.InputError, match=r"episode 0 has the transition \(s=0, a=1, x=1\)"):
        minari(toy(), pt.Task(task.rewards, task.policy, task.initial, 0.9, support))


def test_a_selection_of_episodes_warns():
    everything = toy()
    good = everything.filter_episodes(lambda one: one.rewards.sum() > 0)
    with pytest.warns(pt.AssumptionWarning, match="selection of its 4 episodes"):
        found = minari(good, corridor())
    assert found.ended == 2
    assert found.selected
    assert found.transitions().selected
    assert found.counts.selected
    assert "not certified" in str(found)
    found = minari(everything, corridor())
    assert not found.selected
    assert not found.transitions().selected


def fake(**changes):
    """An object like a dataset, with one episode that is wrong in some way."""
    parts = {
        "id": 0,
        "observations": np.array([0, 1, 1]),
        "actions": np.array([1, 0]),
        "rewards": np.zeros(2),
        "terminations": np.array([False, False]),
        "truncations": np.array([False, True]),
    }
    spaces = {"observation_space": gym.spaces.Discrete(3), "action_space": gym.spaces.Discrete(2)}
    return SimpleNamespace(iterate_episodes=lambda: iter([SimpleNamespace(**{**parts, **changes})]), **spaces)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"observations": np.array([0, 1])}, "episode 0 has 2 observations, 2 actions"),
        ({"rewards": np.zeros(3)}, "3 rewards"),
        ({"observations": np.array([0, 1, 3])}, r"observations\[2\] is 3; the space has 0 to 2"),
        ({"actions": np.array([-1, 0])}, r"actions\[0\] is -1"),
        ({"observations": np.array([0.0, 1.0, 1.0])}, "type float64; expected a list of whole numbers"),
        ({"terminations": np.array([True, False])}, "terminated at step 0, and goes on to step 1"),
        ({"truncations": np.array([True, False])}, "was truncated at step 0"),
        ({"terminations": np.array([0.0, 0.5])}, r"terminations\[1\] is 0.5; it must be true or false"),
        ({"truncations": np.array([0.0, np.nan])}, r"truncations\[1\] is nan"),
        ({"rewards": np.array([0.0, np.nan])}, r"rewards\[1\] is nan"),
        (
            {"observations": [0], "actions": np.zeros(0, int), "rewards": [], "terminations": [], "truncations": []},
            "has no steps",
        ),
    ],
)
def test_episodes_that_do_not_fit(changes, message):
    with pytest.raises(pt.InputError, match=message):
        minari(fake(**changes), corridor())
    assert minari(fake(), corridor()).counts.total == 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "policy is missing"),
        ({"policy": "uniform", "discount": 0.5}, "rewards is missing"),
        ({"task": corridor(), "discount": 0.5}, "discount is for a task that is made here"),
        ({"task": pt.instances.paper(2).task}, "3 observations and 2 actions, the task has 2 and 2"),
        ({"task": "FrozenLake-v1"}, "task is a str, expected a Task"),
    ],
)
def test_settings_that_do_not_fit(settings, message):
    with pytest.raises(pt.InputError, match=message):
        minari(fake(), **settings)
    assert_refused(lambda: minari(3, corridor()), "dataset is a int")
