"""Policies from anything become pi[s,a], and whatever is wrong with one names the state."""

from __future__ import annotations

import types

import numpy as np
import pytest

import policytest as pt
from builders import each
from policytest._base.errors import InputError
from policytest.sources.labels import places_of
from policytest.sources.tasks.policy import policy_table
from source_builders import assert_refused

WANTED = [[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
MIXED = [[0.5, 0.5, 0.0], [0.0, 0.0, 1.0]]


class Agent:
    """Predicts as trained agents do: (action, hidden state)."""

    def __init__(self, answers, shape=None):
        self.answers, self.shape, self.asked = answers, shape, []

    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        assert deterministic
        self.asked.append(observation)
        action = np.array(self.answers[observation])
        return (action if self.shape is None else action.reshape(self.shape)), None


@pytest.mark.parametrize(
    "given",
    [
        WANTED,
        np.array(WANTED),
        np.array(WANTED, dtype=np.float32),
        [1, 2],
        (1, 2),
        np.array([1, 2], dtype=np.int8),
        {0: 1, 1: 2},
        {1: np.int64(2), 0: np.array([1])},
        {"0": "1", "1": 2},
        {0: {1: 1.0}, 1: {2: 0.25, "2": 0.75}},
        [1, {2: 1.0}],
        [1, [0.0, 0.0, 1.0]],
        lambda s: s + 1,
        lambda s: np.int64(s + 1),
        lambda s: np.eye(3)[s + 1],
        lambda s: {s + 1: 1.0},
        Agent([1, 2]),
        Agent([1, 2], shape=(1,)),
    ],
    ids=lambda given: type(given).__name__,
)
def test_every_form_gives_the_same_policy(given):
    table = pt.sources.policy(given, (2, 3))
    assert table.dtype == np.float64
    assert table.tolist() == WANTED


@pytest.mark.parametrize(
    "given",
    [
        MIXED,
        {0: {0: 0.5, 1: 0.5}, 1: 2},
        {0: [0.5, 0.5, 0.0], 1: 2},
        [[0.5, 0.5, 0.0], 2],
        lambda s: MIXED[s],
        lambda s: tuple(MIXED[s]),
    ],
)
def test_probabilities_in_every_form(given):
    assert pt.sources.policy(given, (2, 3)).tolist() == MIXED


def test_uniform():
    assert pt.sources.policy("uniform", (2, 4)).tolist() == [[0.25] * 4] * 2


def named_task():
    return pt.Task(
        np.zeros((2, 3)), np.full((2, 3), 1 / 3), [1.0, 0.0], 0.9, states=["low", (1, 2)], actions=["a", "b", "c"]
    )


@pytest.mark.parametrize(
    "given",
    [
        {"low": "b", (1, 2): "c"},
        {"low": {"b": 1.0}, (1, 2): 2},
        ["b", "c"],
        np.array(["b", "c"]),
        [1, 2],
        {0: 1, 1: 2},
        lambda state: {"low": "b", (1, 2): "c"}[state],
    ],
)
def test_names_of_a_task(given):
    task = named_task()
    assert pt.sources.policy(given, task).tolist() == WANTED
    assert pt.sources.policy(given, types.SimpleNamespace(task=task)).tolist() == WANTED


def test_names_that_are_numbers_are_names():
    """State 0 is called 5: then 0 is nobody's name."""
    at = places_of(2, 2, states=(5, 6), actions=(1, 0))
    assert policy_table({5: 1, 6: 0}, at).tolist() == [[1.0, 0.0], [0.0, 1.0]]
    assert_refused(lambda: policy_table({0: 1, 6: 0}, at), "unknown state 0 in policy; the states are 5, 6")


def test_an_environment_numbers_its_states_itself():
    """Observations from 1, actions from 10."""
    at = places_of(2, 2, observations=(1, 2), codes=(10, 11))
    agent = Agent({1: 11, 2: 10})
    assert policy_table(agent, at).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert agent.asked == [1, 2]
    assert policy_table({1: 11, 2: {10: 0.5, 11: 0.5}}, at).tolist() == [[0.0, 1.0], [0.5, 0.5]]
    assert policy_table([11, 10], at).tolist() == [[0.0, 1.0], [1.0, 0.0]]
    assert_refused(lambda: policy_table({0: 11, 1: 10}, at), "unknown state 0 in policy; states are 1 to 2")


def test_normalise_rescales_rounded_rows():
    rounded = {0: {0: 0.333, 1: 0.333, 2: 0.333}, 1: [0.0, 2.0, 2.0]}
    table = pt.sources.policy(rounded, (2, 3), normalise=True)
    np.testing.assert_allclose(table, [[1 / 3] * 3, [0.0, 0.5, 0.5]])
    with pytest.raises(InputError, match=r"policy in state 0 sums to 0.999, not 1; pass normalise=True"):
        pt.sources.policy(rounded, (2, 3))
    assert_refused(lambda: pt.sources.policy([[0.0, 0.0], [1.0, 0.0]], (2, 2), normalise=True), "sums to 0")


def test_states_that_do_not_matter_may_be_left_out():
    at = places_of(3, 2)
    assert policy_table({0: 1, 2: 1}, at, free=[1]).tolist() == [[0.0, 1.0], [1.0, 0.0], [0.0, 1.0]]
    assert_refused(lambda: policy_table({0: 1, 2: 1}, at, free=[2]), "no entry for state 1")


class Remembering:
    def predict(self, observation, state=None, episode_start=None, deterministic=False):
        return np.array(1), (np.zeros(3),)


def wandering():
    answers = iter(range(100))
    return lambda s: next(answers) % 3


class Sampler:
    def predict(self, observation, deterministic=False):
        return np.array([0.2, 0.8]), None


@each(
    ("given", "message"),
    [
        ("greedy", 'as a word only "uniform"'),
        (None, "policy is a NoneType"),
        (3, "policy is a int"),
        ({0: 1}, "no entry for state 1"),
        ({0: 1, 1: 3}, "unknown action 3 in policy in state 1; actions are 0 to 2"),
        ({0: 1, 1: -1}, "unknown action -1 in policy in state 1"),
        ({0: 1, 1: True}, "unknown action True in policy in state 1"),
        ({0: 1, 1: None}, "unknown action None in policy in state 1"),
        ({0: 1, 1: 0.5}, "unknown action 0.5 in policy in state 1"),
        ({0: 1, 1: "left"}, "unknown action 'left' in policy in state 1"),
        ({0: 1, 2: 1}, "unknown state 2 in policy; states are 0 to 1"),
        ({0: 1, "0": 1, 1: 0}, "has the state 0 twice"),
        ({0: 1, 1: {0: 0.5}}, "policy in state 1 sums to 0.5"),
        ({0: 1, 1: {0: 1.5, 1: -0.5}}, r"policy in state 1\[1\] is -0.5; probabilities cannot be negative"),
        ({0: 1, 1: {0: float("nan")}}, "policy in state 1, action 0, is nan"),
        ({0: 1, 1: {0: "much"}}, "policy in state 1, action 0, is not an array of numbers"),
        ({0: 1, 1: [1.0]}, r"policy in state 1 has shape \(1,\), expected \(3\)"),
        ([1], "policy has 1 entries; pass one for each of the 2 states"),
        ([1, 2, 0], "policy has 3 entries"),
        ([1.0, 2.0], r"policy has shape \(2,\) and type float64"),
        ([True, False], "type bool"),
        ([1j, 2j], "type complex128"),
        ([[1.0, 0.0], [1.0, 0.0]], r"policy has shape \(2, 2\), expected \(2, 3\)"),
        ([[1.0, 0.0, 0.0], [np.nan, 0.0, 1.0]], r"policy\[1, 0\] is nan"),
        ([[1.0, 0.0, 0.0], [0.5, 0.0, 0.4]], "policy in state 1 sums to 0.9"),
        (np.zeros((2, 3, 1)), r"policy has shape \(2, 3, 1\)"),
        (Agent, "policy is the class Agent; pass an object"),
        (Agent([1, [0, 1]]), "policy.predict answered .* for state 1"),
        (Sampler(), "policy.predict answered"),
        (Remembering(), "returned a hidden state .* policytest.Episodes"),
        (wandering(), "policy answered 0 and then 1 for state 0, so it samples"),
        (dict, "the class dict"),
    ],
)
def test_what_is_wrong_is_named(given, message):
    with pytest.raises(InputError, match=message):
        pt.sources.policy(given, (2, 3))


def test_an_error_inside_a_policy_says_where():
    with pytest.raises(ZeroDivisionError) as caught:
        pt.sources.policy(lambda s: 1 // (1 - s), (2, 3))
    assert caught.value.__notes__ == ["raised by the policy in state 1"]


@pytest.mark.parametrize("task", [None, (2,), "x", (2, "x"), (0, 1), (2, -1), 7])
def test_what_is_no_task_is_refused(task):
    with pytest.raises(InputError):
        pt.sources.policy("uniform", task)
