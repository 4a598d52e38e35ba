"""Tables by names say the same as arrays, and what is wrong with them is refused with its place."""

from __future__ import annotations

import io
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import policytest as pt
import source_builders
from builders import each
from paths import ROOT
from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.sources import load_model, load_policy, save_model, save_policy
from policytest.sources.labels import places_of
from policytest.sources.tasks import by_name
from source_builders import assert_refused, put

MODELS = ROOT / "examples" / "models"
SMALL = {"states": ["wet", "dry"], "actions": ["go", "stay"]} | source_builders.SMALL
SMALL_ROWS = {"go": {"wet": 0.1, "dry": 0.9}, "stay": {"wet": 1.0}}


def written(folder, content, name="model.json"):
    return put(folder / name, content)


def loaded(folder, **changes):
    return load_model(written(folder, SMALL | changes))


# ---------------------------------------------------------------- the same task in every format


@pytest.mark.parametrize("name", ["customer.json", "customer.toml", "customer-entries.json", "customer.npz"])
def test_the_examples_are_one_task(name):
    expected = load_model(MODELS.parent / "model.json")
    model = load_model(MODELS / name)
    for table in ("rewards", "policy", "initial", "support", "states", "actions", "discount"):
        np.testing.assert_array_equal(getattr(model.task, table), getattr(expected.task, table))
    np.testing.assert_array_equal(model.kernel, expected.kernel)
    assert model.threshold == expected.threshold


@pytest.mark.parametrize("name", ["customer.drn", "customer.tra"])
def test_the_examples_of_model_checkers_have_the_same_value(name):
    """There the pair (gone, offer) is missing and rewards are spread differently; the policy's value is the same."""
    expected, model = load_model(MODELS.parent / "model.json"), load_model(MODELS / name)
    assert pt.value(model.task, model.kernel) == pytest.approx(pt.value(expected.task, expected.kernel), abs=1e-12)
    assert pt.value_range(model.task) == pytest.approx(pt.value_range(expected.task), abs=1e-12)
    assert (model.threshold, model.task.actions) == (1.5, ("wait", "offer"))


@pytest.mark.parametrize("name", ["policy.csv", "policy.json", "policy.toml", "policy.npz"])
def test_the_examples_are_one_policy(name):
    task = load_model(MODELS.parent / "model.json").task
    assert load_policy(MODELS / name, task).tolist() == [[0.0, 1.0], [0.8, 0.2], [1.0, 0.0]]


# ---------------------------------------------------------------- by names and as arrays


@st.composite
def tables(draw):
    S, A = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    numbers = st.sampled_from([-1.5, 0.25, 3.0])
    kernel = np.array(draw(st.lists(st.integers(0, 3), min_size=S * A * S, max_size=S * A * S)), float)
    kernel = kernel.reshape(S, A, S) + np.eye(S)[:, None, :]
    rewards = np.array(draw(st.lists(numbers, min_size=S * A * S, max_size=S * A * S))).reshape(S, A, S)
    return kernel / kernel.sum(axis=-1, keepdims=True), rewards


@given(tables(), st.booleans())
def test_names_and_arrays_say_the_same(tables, as_entries):
    """Tables spelled out by names, nested or entry by entry, are the arrays they were taken from."""
    kernel, rewards = tables
    S, A, _ = kernel.shape
    states, actions = [f"s{s}" for s in range(S)], [f"a{a}" for a in range(A)]
    at = places_of(S, A, states, actions)

    def spelled(table, field):
        cells = [(s, a, x) for s in range(S) for a in range(A) for x in range(S)]
        if as_entries:
            return [{"s": f"s{s}", "a": f"a{a}", "s_next": f"s{x}", field: float(table[s, a, x])} for s, a, x in cells]
        return {
            f"s{s}": {f"a{a}": {f"s{x}": float(table[s, a, x]) for x in range(S)} for a in range(A)} for s in range(S)
        }

    np.testing.assert_array_equal(by_name.kernel(spelled(kernel, "p"), at), kernel)
    np.testing.assert_array_equal(by_name.rewards(spelled(rewards, "r"), at), rewards)


def test_rewards_that_name_more_count_for_more(tmp_path):
    rewards = [
        {"r": -1},
        {"s_next": "wet", "r": 5},
        {"s": "dry", "r": 2},
        {"s": "dry", "a": "go", "s_next": "dry", "r": 9},
        {"s": "dry", "a": "go", "r": 7},
    ]
    with pytest.raises(InputError, match=r"rewards\[2\] is given twice"):
        loaded(tmp_path, rewards=rewards)  # (dry, wet) is met by two entries that name one thing each
    table = loaded(tmp_path, rewards=[*rewards[:2], *rewards[3:]]).task.rewards
    assert table.tolist() == [[[5, -1], [5, -1]], [[7, 9], [5, -1]]]


def test_rewards_of_states_and_of_pairs(tmp_path):
    assert loaded(tmp_path, rewards={"wet": 2}).task.rewards.tolist() == [[2, 2], [0, 0]]
    assert loaded(tmp_path, rewards={"wet": {"go": 2}, "dry": -1}).task.rewards.tolist() == [[2, 0], [-1, -1]]
    assert loaded(tmp_path, rewards=[{"a": "stay", "r": 3}]).task.rewards.tolist() == [[0, 3], [0, 3]]
    assert loaded(tmp_path, rewards={}).task.rewards.tolist() == [[0, 0], [0, 0]]


def test_the_support_of_the_kernel(tmp_path):
    model = loaded(tmp_path, support="kernel")
    assert model.task.support.tolist() == (np.array(SMALL["kernel"]) > 0).tolist()
    listed = {"wet": {"go": ["wet", "dry"], "stay": ["wet"]}, "dry": {"go": ["wet", "dry"], "stay": ["wet", "dry"]}}
    np.testing.assert_array_equal(loaded(tmp_path, support=listed).task.support, model.task.support)
    flags = {s: {a: dict.fromkeys(to, True) for a, to in of.items()} for s, of in listed.items()}
    np.testing.assert_array_equal(loaded(tmp_path, support=flags).task.support, model.task.support)


def test_a_support_may_be_partial(tmp_path):
    """Pairs left out mean any successor, and a list for a state holds for all its actions."""
    kernel = {"kernel": None}
    found = loaded(tmp_path, support={"wet": {"stay": ["wet"]}}, **kernel).task
    assert found.support.tolist() == [[[True, True], [True, False]], [[True, True], [True, True]]]
    assert found.known_rows.tolist() == [[False, True], [False, False]]
    for whole in ({"dry": ["dry"]}, {"dry": {"go": ["dry"], "stay": ["dry"]}}):
        found = loaded(tmp_path, support=whole, **kernel).task
        assert found.support.tolist() == [[[True, True], [True, True]], [[False, True], [False, True]]]
    entries = [{"s": "wet", "a": "stay", "s_next": "wet"}]
    assert loaded(tmp_path, support=entries, **kernel).task.known_rows.tolist() == [[False, True], [False, False]]


@pytest.mark.parametrize("label", ["dry", 1])
def test_terminal_states(tmp_path, label):
    """They are followed by themselves; neither policy nor kernel need say anything about them."""
    content = {"rewards": {"wet": {"go": 1.0}}, "policy": {"wet": "go"}, "kernel": {"wet": SMALL_ROWS}}
    if label == 1:
        content |= {"states": None, "actions": None, "rewards": [[1, 0], [0, 0]], "policy": [[1, 0], [1, 0]]}
        content |= {"kernel": [[[0.1, 0.9], [1, 0]], [[0, 1], [0, 1]]], "support": None}
    path = written(tmp_path, SMALL | content | {"terminal": [label]})
    model = load_model(path)
    assert model.task.ends == [1]
    assert model.task.support[1].tolist() == [[False, True], [False, True]]
    np.testing.assert_array_equal(model.kernel[1], [[0, 1], [0, 1]])
    assert pt.value(model.task, model.kernel) == pytest.approx(0.3 / (1 - 0.9 * 0.1))
    for suffix in ("json", "toml", "npz"):
        save_model(tmp_path / f"again.{suffix}", model.task, model.kernel)
        assert load_model(tmp_path / f"again.{suffix}").task.ends == [1]


def test_rewards_on_arrival_are_not_earned_again_after_the_end(tmp_path):
    """An entry without s holds for all states but the terminal ones; one that names such a state is refused."""
    entries = [{"r": -1.0}, {"s_next": "dry", "r": 5.0}]
    task = loaded(tmp_path, terminal=["dry"], rewards=entries, kernel=None).task
    assert task.rewards.tolist() == [[[-1.0, 5.0]] * 2, [[0.0, 0.0]] * 2]
    assert loaded(tmp_path, terminal=["dry"], rewards=[{"a": "go", "r": 2.0}], kernel=None).task.rewards.tolist() == [
        [2.0, 0.0],
        [0.0, 0.0],
    ]
    path = written(tmp_path, SMALL | {"terminal": ["dry"], "rewards": [*entries, {"s": "dry", "r": 5.0}]})
    source_builders.assert_model_refused(path, "nothing is earned after the end")


def test_one_action_for_each_state(tmp_path):
    """By number or by name; terminal states may be left out."""
    for policy in ([1, 0], ["stay", "go"], [1, "go"]):
        assert loaded(tmp_path, policy=policy).task.policy.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    for policy in ([1], ["stay"]):
        task = loaded(tmp_path, policy=policy, terminal=["dry"], rewards={"wet": 1.0}, kernel=None).task
        assert task.policy.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    toml = put(tmp_path / "small.toml", "policy = [1, 0]\ninitial = 0\ndiscount = 0.5\nrewards = [[1, 2], [3, 4]]\n")
    assert load_model(toml).task.policy.tolist() == [[0.0, 1.0], [1.0, 0.0]]
    for policy, words in (
        ([1], "policy has 1 entries; pass one for each of the 2 states"),
        ([1, 2], "unknown action 2"),
        ([0.5, 0.5], "policy has shape (2,)"),
        (["stay", "run"], "unknown action 'run'"),
    ):
        source_builders.assert_model_refused(written(tmp_path, SMALL | {"policy": policy}), words)


@pytest.mark.parametrize("form", [{"wet": ["stay"]}, [[False, True], [True, True]]])
def test_actions_that_are_not_there_in_every_state(tmp_path, form):
    """A policy may not take them; uniform is over the others; files keep them."""
    changes = {"available": form, "policy": "uniform", "kernel": None}
    task = loaded(tmp_path, **changes).task
    assert task.available.tolist() == [[False, True], [True, True]]
    assert task.policy.tolist() == [[0.0, 1.0], [0.5, 0.5]]
    for suffix in ("json", "toml", "npz"):
        save_model(tmp_path / f"again.{suffix}", task)
        assert load_model(tmp_path / f"again.{suffix}").task.available.tolist() == task.available.tolist()
    for other, words in (
        ({"policy": ["go", "stay"]}, "policy takes (s=0 'wet', a=0 'go') with probability 1"),
        ({"available": {"wet": []}}, "available.wet is []; it is a list of at least one action"),
        ({"available": {"wet": ["run"]}}, "unknown action 'run' in available.wet"),
        ({"available": [[False, False], [True, True]]}, "available names no action in state 'wet'"),
        ({"available": [[0.5, 1], [1, 1]]}, "available[0, 0] is 0.5; expected True and False"),
    ):
        source_builders.assert_model_refused(written(tmp_path, SMALL | changes | other), words)
    with pytest.raises(InputError, match="is not available there; the actions there are: 1"):
        Task([[0.0, 0.0]], [[1.0, 0.0]], [1.0], 0.9, available=[[0, 1]])


def test_a_start_by_its_number(tmp_path):
    """Also in NPZ, where it is an array without dimensions; with names, it goes by names."""
    content = {key: value for key, value in SMALL.items() if key not in ("states", "actions")} | {"initial": 1}
    np.savez(tmp_path / "model.npz", **{key: np.array(value) for key, value in content.items()})
    for path in (written(tmp_path, content), tmp_path / "model.npz"):
        assert load_model(path).task.initial.tolist() == [0.0, 1.0]
        assert load_model(path, initial=0).task.initial.tolist() == [1.0, 0.0]
    assert_refused(lambda: loaded(tmp_path, initial=1), "unknown state 1 in initial")


def test_states_without_names_go_by_their_indices(tmp_path):
    content = {key: value for key, value in SMALL.items() if key not in ("states", "actions")}
    content |= {"policy": {"0": 1, "1": {"0": 0.5, "1": 0.5}}, "initial": {"1": 1.0}}
    model = load_model(written(tmp_path, content))
    assert model.task.policy.tolist() == [[0, 1], [0.5, 0.5]]
    assert model.task.initial.tolist() == [0, 1]


def test_numbers_and_lists_are_names_too(tmp_path):
    content = SMALL | {"states": [10, [0, 1]], "actions": ["10", 10.5]}
    content |= {"policy": {"10": "10.5", "(0, 1)": {"10": 1.0}}, "kernel": None}
    content |= {"rewards": [{"s": [0, 1], "a": "10", "r": 4}]}
    task = load_model(written(tmp_path, content)).task
    assert task.policy.tolist() == [[0, 1], [1, 0]]
    assert task.rewards.tolist() == [[0, 0], [4, 0]]


def test_a_state_may_be_called_data(tmp_path):
    content = SMALL | {"states": ["data", "shape"], "rewards": {"data": {"go": 1}, "shape": 2}}
    assert load_model(written(tmp_path, content)).task.rewards.tolist() == [[1, 0], [2, 2]]


def test_large_tables_stay_sparse(tmp_path):
    """A ring of 3,000 states: its array would have 9 million entries."""
    S = 3000
    kernel = [{"s": s, "a": "on", "s_next": (s + 1) % S, "p": 1.0} for s in range(S)]
    content = {"states": list(range(S)), "actions": ["on"], "policy": "uniform", "initial": "0", "discount": 0.5}
    model = load_model(written(tmp_path, content | {"rewards": {"0": 1.0}, "kernel": kernel, "support": "kernel"}))
    assert arrays.is_sparse(model.kernel)
    assert arrays.is_sparse(model.task.support)
    assert pt.value(model.task, model.kernel) == pytest.approx(1.0)


REFUSED = {
    "state of the policy": (
        {"policy": {"wte": "go", "dry": "go"}},
        ["unknown state 'wte' in policy; did you mean 'wet'?"],
    ),
    "action of the policy": (
        {"policy": {"wet": "run", "dry": "go"}},
        ["unknown action 'run' in policy in state 'wet'"],
    ),
    "state left out": ({"policy": {"wet": "go"}}, ["policy has no entry for state 'dry'"]),
    "row of the policy": ({"policy": {"wet": {"go": 0.5}, "dry": "go"}}, ["policy in state 'wet' sums to 0.5"]),
    "negative": ({"policy": {"wet": {"go": 1.5, "stay": -0.5}, "dry": "go"}}, ["-0.5", "negative"]),
    "text for a probability": ({"policy": {"wet": {"go": "all"}, "dry": "go"}}, ["policy in state 'wet'"]),
    "word for the policy": ({"policy": "greedy"}, ["policy is 'greedy'"]),
    "initial state": ({"initial": "west"}, ["unknown state 'west' in initial"]),
    "initial sum": ({"initial": {"wet": 0.5}}, ["initial sums to 0.5"]),
    "initial number": ({"initial": {"wet": "1"}}, ["initial.wet is '1'", "number"]),
    "initial of another kind": ({"initial": [{"wet": 1}]}, ["initial", "{state: probability}"]),
    "reward": ({"rewards": {"wet": {"go": None}}}, ["rewards.wet.go is None", "number"]),
    "reward that is true": ({"rewards": {"wet": True}}, ["rewards.wet is True", "number"]),
    "reward of a pair": ({"rewards": {"wet": {"jump": 1}}}, ["unknown action 'jump' in rewards.wet.jump"]),
    "reward twice": ({"rewards": [{"s": "wet", "r": 1}, {"s": "wet", "r": 2}]}, ["rewards[1] is given twice"]),
    "reward without r": ({"rewards": [{"s": "wet", "a": "go"}]}, ["rewards[0] has no r"]),
    "reward with p": ({"rewards": [{"s": "wet", "p": 1}]}, ["rewards[0] has the unknown key 'p'", "s, a, s_next, r"]),
    "mixed rewards": ({"rewards": [{"s": "wet", "r": 1}, 3]}, ["rewards[1] is 3"]),
    "kernel sum": ({"kernel": {"wet": {"go": {"wet": 0.5}}}}, ["kernel at (s=0 'wet', a=0 'go') sums to 0.5"]),
    "kernel row missing": ({"kernel": {"wet": {"go": {"wet": 1}}}}, ["kernel at (s=0 'wet', a=1 'stay') sums to 0"]),
    "kernel twice": (
        {"kernel": [{"s": "wet", "a": "go", "s_next": "wet", "p": 0.5}] * 2},
        ["kernel[1] is given twice"],
    ),
    "kernel without s_next": ({"kernel": [{"s": "wet", "a": "go", "p": 1}]}, ["kernel[0] must name s, a and s_next"]),
    "kernel too flat": ({"kernel": {"wet": {"go": 1.0}}}, ["kernel.wet.go is 1.0", "{next: p}"]),
    "support word": ({"support": "graph"}, ["support is 'graph'", '"kernel"']),
    "support without kernel": ({"support": "kernel", "kernel": None}, ["there is no kernel"]),
    "support empty": ({"support": {"wet": {"go": []}}}, ["support.wet.go allows no successor"]),
    "support of false": ({"support": {"wet": {"go": {"wet": False}}}}, ["support at", "allows no successor"]),
    "support against the kernel": ({"support": {"wet": {"go": ["wet"]}}}, ["kernel puts mass 0.9", "support excludes"]),
    "terminal state unknown": ({"terminal": ["dyr"]}, ["terminal[0] is 'dyr'", "the states are 'wet', 'dry'"]),
    "terminal in a word": ({"terminal": "dry"}, ["terminal is 'dry'", "list"]),
    "terminal that earns": ({"terminal": ["dry"], "kernel": None}, ["terminal: rewards at (s=1, a=0) are 0.5"]),
    "terminal that goes on": (
        {"terminal": ["dry"], "rewards": {"wet": 1}},
        ["kernel puts mass 0.5", "'dry'", "support excludes"],
    ),
    "unhashable name": ({"initial": {"wet": {}}}, ["initial.wet is {}"]),
    "names in a string": ({"states": "ab"}, ["states is 'ab'", "list"]),
    "names repeated": ({"states": ["a", "a"], "policy": {"a": "go"}}, ["states[1] repeats 'a'"]),
    "too few names": ({"states": ["a"], "policy": SMALL["policy"], "initial": {"a": 1}}, ["states has 1 names"]),
}


@each("name", REFUSED)
def test_refused(tmp_path, name):
    changes, words = REFUSED[name]
    assert_refused(lambda: loaded(tmp_path, **changes), str(tmp_path / "model.json"), *words)


def test_names_must_be_listed(tmp_path):
    content = {"policy": {"a": "go"}, "initial": "a", "rewards": {"a": 1}, "discount": 0.5}
    assert_refused(lambda: load_model(written(tmp_path, content)), "policy is given by names, but states is missing")


# ---------------------------------------------------------------- policy files

FORMATS = ("json", "toml", "npz", "csv", "npy")


@st.composite
def policies(draw):
    S, A = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    weights = np.array(draw(st.lists(st.integers(0, 9), min_size=S * A, max_size=S * A)), float).reshape(S, A)
    weights[:, 0] += 1
    texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=4)
    states, actions = (
        draw(st.none() | st.lists(texts | st.integers(), min_size=n, max_size=n, unique_by=str)) for n in (S, A)
    )
    task = Task(np.zeros((S, A)), np.eye(A)[[0] * S], np.eye(S)[0], 0.5, states=states, actions=actions)
    return task, weights / weights.sum(axis=1, keepdims=True)


@given(policies(), st.sampled_from(FORMATS))
def test_policies_are_read_back_exactly(tmp_path_factory, policy, suffix):
    path = tmp_path_factory.mktemp("policy") / f"policy.{suffix}"
    task, table = policy
    save_policy(path, table, task)
    np.testing.assert_array_equal(load_policy(path, task), table)


def task_of(folder):
    return loaded(folder).task


def test_a_policy_in_another_order(tmp_path):
    content = {"policy": [[1, 0], [0.25, 0.75]], "states": ["dry", "wet"], "actions": ["stay", "go"]}
    path = written(tmp_path, content, "policy.json")
    assert load_policy(path, task_of(tmp_path)).tolist() == [[0.75, 0.25], [0, 1]]


def test_a_task_file_serves_as_a_policy(tmp_path):
    path = tmp_path / "task.npz"
    save_model(path, task_of(tmp_path))
    assert load_policy(path, (["wet", "dry"], ["go", "stay"])).tolist() == SMALL["policy"]
    assert load_policy(path, (2, 2)).tolist() == SMALL["policy"]


def test_a_csv_without_probabilities(tmp_path):
    path = written(tmp_path, "\ufeffstate,action\r\ndry,stay\r\n\r\nwet,go\r\n", "policy.csv")
    assert load_policy(path, task_of(tmp_path)).tolist() == [[1, 0], [0, 1]]


def test_rounded_policies(tmp_path):
    text = "state,action,probability\nwet,go,0.333\nwet,stay,0.333\ndry,go,1\n"
    path, task = written(tmp_path, text, "policy.csv"), task_of(tmp_path)
    assert_refused(lambda: load_policy(path, task), "sums to 0.666", "normalise=True")
    assert load_policy(path, task, normalise=True).tolist() == [[0.5, 0.5], [1, 0]]
    assert load_model(written(tmp_path, SMALL), policy=path, normalise=True).task.policy[0].tolist() == [0.5, 0.5]
    assert load_model(written(tmp_path, SMALL | {"normalise": True}), policy=path).task.policy[0].tolist() == [0.5, 0.5]


def test_true_is_not_one(tmp_path):
    content = SMALL | {"states": [True, "dry"], "initial": [0.5, 0.5], "rewards": [{"s": True, "r": 2}]}
    assert load_model(written(tmp_path, content)).task.rewards.tolist() == [[2, 2], [0, 0]]
    content["rewards"] = [{"s": 1, "r": 2}]
    assert_refused(lambda: load_model(written(tmp_path, content)), "unknown state 1 in rewards[0].s")


def test_a_policy_replaces_the_one_of_the_model(tmp_path):
    path = written(tmp_path, "state,action\ndry,stay\nwet,go\n", "policy.csv")
    model = load_model(written(tmp_path, SMALL), policy=path)
    assert model.task.policy.tolist() == [[1, 0], [0, 1]]


def huge_npy():
    """An array that says it has 8 TB."""
    buffer = io.BytesIO()
    np.lib.format.write_array_header_1_0(buffer, {"descr": "<f8", "fortran_order": False, "shape": (10**6, 10**6)})
    return buffer.getvalue()


POLICIES = {
    "columns": ("state,choice\nwet,go\n", "policy.csv", ["columns are state, choice", "state, action"]),
    "empty": ("", "policy.csv", ["columns are missing"]),
    "cells": ("state,action\nwet\n", "policy.csv", ["row 2 has 1 cells"]),
    "state": ("state,action\nwte,go\n", "policy.csv", ["unknown state 'wte' in row 2; did you mean 'wet'?"]),
    "action": ("state,action\nwet,run\n", "policy.csv", ["unknown action 'run' in row 2"]),
    "twice": ("state,action\nwet,go\nwet,stay\n", "policy.csv", ["row 3", "twice"]),
    "pair twice": ("state,action,probability\nwet,go,1\nwet,go,0\n", "policy.csv", ["row 3", "twice"]),
    "missing": ("state,action\nwet,go\n", "policy.csv", ["no entry for state 'dry'"]),
    "number": ("state,action,probability\nwet,go,all\n", "policy.csv", ["row 2: 'all' is not a number"]),
    "nan": ("state,action,probability\nwet,go,nan\n", "policy.csv", ["row 2: probability is nan"]),
    "sum": ("state,action,probability\nwet,go,0.5\ndry,go,1\n", "policy.csv", ["'wet' sums to 0.5"]),
    "quotes": ('state,action\n"wet,go\n', "policy.csv", ["not CSV"]),
    "other names": ({"policy": [[1, 0], [1, 0]], "states": ["a", "b"]}, "policy.json", ["does not have 'wet'"]),
    "shape": ([[1, 0]], "policy.json", ["policy has shape (1, 2), expected (2, 2)"]),
    "null": ({"policy": None}, "policy.json", ["policy is empty"]),
    "not JSON": ("{", "policy.json", ["not valid JSON"]),
    "not NPY": ("hello", "policy.npy", ["cannot be read"]),
    "NPY that promises too much": (huge_npy(), "policy.npy", ["policy says it has shape (1000000, 1000000)"]),
    "not NPZ": ("hello", "policy.npz", ["not an NPZ file"]),
    "suffix": ("hello", "policy.txt", ["use .json, .toml, .npz, .npy, .csv"]),
}


@each("name", POLICIES)
def test_policies_that_are_none(tmp_path, name):
    content, file, words = POLICIES[name]
    task = task_of(tmp_path)
    path = written(tmp_path, content, file)
    assert_refused(lambda: load_policy(path, task), str(path), *words)


def test_policies_that_cannot_be_saved(tmp_path):
    assert_refused(lambda: save_policy(tmp_path / "p.csv", [[0.5, 0.4]]), "policy[0] sums to 0.9")
    assert_refused(lambda: save_policy(tmp_path / "p.csv", [[0.5, 0.5]], (2, 2)), "policy has shape (1, 2)")
    assert_refused(lambda: save_policy(tmp_path / "p.csv", np.eye(2), ([1, "1"], 2)), "are written the same as text")
    assert_refused(lambda: save_policy(tmp_path / "p.xlsx", np.eye(2)), "use .json")
    assert_refused(lambda: load_policy(tmp_path / "p.json", 3), "task is a int")
    assert_refused(lambda: load_policy(tmp_path / "p.json", (2, 2)), "cannot be read")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- the page on formats

PAGE = (MODELS.parent.parent / "docs" / "formats.md").read_text(encoding="utf-8")
SHOWN = re.findall(r'^```\w* title="([^"]+)"\n(.*?)^```$', PAGE, re.MULTILINE | re.DOTALL)


def test_the_page_shows_the_examples():
    """Every text file among the examples is on the page, as it is."""
    files = {path.name for path in MODELS.iterdir() if path.suffix != ".npz"}
    assert {name for name, _ in SHOWN} == files
    for name, text in SHOWN:
        assert text == (MODELS / name).read_text(encoding="utf-8"), name


def test_the_page_names_every_key():
    instance = load_model(MODELS / "customer.toml")
    sim = pt.TabularSimulator(instance.kernel)
    results = {
        "Verdict": pt.decide(instance.task, sim, threshold=1.5, max_samples=20),
        "Estimate": pt.evaluate(instance.task, sim, 5.0, max_samples=20),
        "Selection": pt.identify(instance.task.rewards, instance.task.initial, 0.9, sim, max_samples=20),
    }
    for kind, result in results.items():
        row = next(line for line in PAGE.splitlines() if line.startswith(f"| `{kind}`"))
        document = json.loads(result.to_json())
        assert document.pop("schema") == (2 if kind == "Verdict" else 1)
        missing = [key for key in document if f"`{key}`" not in row]
        assert not missing, f"docs/formats.md does not say that a {kind} has {', '.join(missing)}"
