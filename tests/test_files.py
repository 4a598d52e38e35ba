"""Task files are read back exactly, and a wrong file is refused with its name, the place and the remedy."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from policytest import _checks, instances
from policytest._checks import InputError
from policytest._files import write_file
from policytest.sources import Model, load_model, save_model
from policytest.task import Task

FORMATS = ("json", "npz")
SMALL = {
    "rewards": [[1.0, 0.0], [0.5, -1.0]],
    "policy": [[0.5, 0.5], [0.1, 0.9]],
    "initial": [0.3, 0.7],
    "discount": 0.9,
    "kernel": [[[0.1, 0.9], [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]],
}


def plain(table):
    return table.toarray() if _checks.is_sparse(table) else table


def assert_same(found, expected):
    assert _checks.is_sparse(found) == _checks.is_sparse(expected)
    if expected is None:
        assert found is None
    else:
        assert plain(found).dtype == plain(expected).dtype
        np.testing.assert_array_equal(plain(found), plain(expected))


def assert_round_trip(path, task, kernel, threshold=None):
    save_model(path, task, kernel, threshold)
    model = load_model(path)
    for name in ("rewards", "policy", "initial", "support"):
        assert_same(getattr(model.task, name), getattr(task, name))
    assert model.task.discount == task.discount
    assert (model.task.states, model.task.actions) == (task.states, task.actions)
    assert_same(model.kernel, kernel)
    assert model.threshold == threshold


def sparse_instance():
    dense = instances.random(seed=3, S=5, A=2, successors=2)
    flat = sparse.csr_array(dense.kernel.reshape(10, 5))
    support = sparse.csr_array(dense.task.support.reshape(10, 5))
    rewards = support.astype(float) * 0.3
    task = Task(rewards, dense.task.policy, dense.task.initial, 0.9, support=support)
    return instances.Instance(task, flat)


INSTANCES = {
    "paper": lambda: instances.paper(3),
    "names in pairs, and a support": lambda: instances.grid_world(3, 2),
    "on successors": lambda: instances.Instance(
        Task(np.arange(8.0).reshape(2, 2, 2) / 7, **{k: SMALL[k] for k in ("policy", "initial", "discount")}), None
    ),
    "sparse": sparse_instance,
}


@pytest.mark.parametrize("suffix", FORMATS)
@pytest.mark.parametrize("name", INSTANCES)
def test_round_trip(tmp_path, suffix, name):
    instance = INSTANCES[name]()
    assert_round_trip(tmp_path / f"model.{suffix}", instance.task, instance.kernel, threshold=-0.1)


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False), min_size=2, max_size=2), st.sampled_from(FORMATS))
def test_every_float_is_read_back_exactly(tmp_path_factory, rewards, suffix):
    path = tmp_path_factory.mktemp("floats") / f"model.{suffix}"
    task = Task([[r] for r in rewards], [[1.0], [1.0]], [1 / 3, 2 / 3], 0.1 + 0.2)
    assert_round_trip(path, task, None)


@pytest.mark.parametrize("suffix", FORMATS)
def test_names_of_many_kinds(tmp_path, suffix):
    states = ["a\x00b", 3, (1, ("deep", 2.5)), 'quoté "x"', None, np.int64(7)]
    task = Task(np.ones((6, 1)), np.ones((6, 1)), np.full(6, 1 / 6), 0.5, states=states, actions=["go"])
    assert_round_trip(tmp_path / f"model.{suffix}", task, None)


@pytest.mark.parametrize("label", [object(), frozenset([1]), float("inf"), b"bytes"])
def test_names_that_no_file_can_hold(tmp_path, label):
    task = Task([[1.0]], [[1.0]], [1.0], 0.5, states=[label])
    with pytest.raises(InputError, match=r"states\[0\] is .*strings, numbers or tuples"):
        save_model(tmp_path / "model.json", task)
    assert not list(tmp_path.iterdir())


def test_a_file_by_hand(tmp_path):
    model = load_model(written(tmp_path, SMALL | {"states": ["sick", "well"], "threshold": 2, "support": None}))
    assert isinstance(model, Model)
    assert model.task.states == ("sick", "well")
    assert model.task.support is None
    assert model.threshold == 2.0
    np.testing.assert_array_equal(model.kernel, SMALL["kernel"])


def test_arrays_saved_by_hand(tmp_path):
    path = tmp_path / "MODEL.NPZ"
    with path.open("wb") as file:
        np.savez(file, **SMALL, states=np.array(["sick", "well"]), actions=np.array([10, 20]), normalise=np.True_)
    model = load_model(path)
    assert (model.task.states, model.task.actions) == (("sick", "well"), (10, 20))


def test_sparse_tables_in_json(tmp_path):
    kernel = {"data": [1, 1, 1, 1], "indices": [0, 1, 0, 1], "indptr": [0, 1, 2, 3, 4], "shape": [4, 2]}
    model = load_model(written(tmp_path, SMALL | {"kernel": kernel}))
    np.testing.assert_array_equal(model.kernel.toarray(), [[1, 0], [0, 1], [1, 0], [0, 1]])


# ---------------------------------------------------------------- rounded tables


def rounded():
    kernel = [[[0.333, 0.666], [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.7999]]]
    return SMALL | {"policy": [[0.333, 0.666], [0.1, 0.9]], "initial": [0.3333, 0.6666], "kernel": kernel}


def test_rounded_tables_are_normalised_on_request(tmp_path):
    model = load_model(written(tmp_path, rounded() | {"normalise": True}))
    for table in (model.task.policy, model.task.initial, model.kernel):
        np.testing.assert_allclose(table.sum(axis=-1), 1.0, rtol=0, atol=1e-15)
    np.testing.assert_allclose(model.kernel[0, 0], [1 / 3, 2 / 3])


def test_sparse_kernels_are_normalised_too(tmp_path):
    kernel = {"data": [0.5, 0.49, 1, 1, 0.9], "indices": [0, 1, 1, 0, 1], "indptr": [0, 2, 3, 4, 5], "shape": [4, 2]}
    model = load_model(written(tmp_path, SMALL | {"kernel": kernel, "normalise": True}))
    np.testing.assert_allclose(np.asarray(model.kernel.sum(axis=1)).ravel(), 1.0)


@pytest.mark.parametrize("flag", [{}, {"normalise": False}])
def test_and_otherwise_refused(tmp_path, flag):
    assert_refused(written(tmp_path, rounded() | flag), "policy[0] sums to 0.999", '"normalise" to true in the file')
    only_kernel = SMALL | {"kernel": rounded()["kernel"]} | flag
    assert_refused(written(tmp_path, only_kernel), "kernel at (s=0, a=0) sums to 0.999")


def test_normalising_does_not_hide_negative_probabilities(tmp_path):
    for row in ([-0.5, -0.5], [1.5, -0.5]):
        kernel = [[row, [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]]
        assert_refused(written(tmp_path, SMALL | {"kernel": kernel, "normalise": True}), "kernel", "negative")


# ---------------------------------------------------------------- what is refused


def written(folder, content, name="model.json"):
    path = folder / name
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return path


def assert_refused(path, *words):
    with pytest.raises(InputError) as caught:
        load_model(path)
    message = str(caught.value)
    for word in (str(path), *words):
        assert word in message, message


def without(*keys):
    return {key: value for key, value in SMALL.items() if key not in keys}


REFUSED = {
    "close key": (without("rewards") | {"reward": [[1]]}, ["unknown key 'reward'", "did you mean 'rewards'?"]),
    "unknown key": (SMALL | {"zzz": 1}, ["unknown key 'zzz'", "known are rewards, policy"]),
    "two missing": (without("policy", "initial"), ["keys policy, initial"]),
    "one missing": (without("discount"), ["key discount"]),
    "empty object": ({}, ["rewards, policy, initial, discount"]),
    "comma": ('{"rewards": [[1, 2],\n  [3, ]]}', ["line 2, column 7"]),
    "empty file": ("", ["line 1, column 1"]),
    "list": ("[1, 2]", ["holds a list", "rewards, policy, initial, discount"]),
    "twice": ('{"discount": 0.9, "discount": 0.8}', ["'discount' is there twice"]),
    "nested": ("[" * 100_000, ["nested too deeply"]),
    "long number": (json.dumps(SMALL).replace("0.9,", f"1{'0' * 5000},"), ["number cannot be read"]),
    "huge number": (SMALL | {"rewards": [[10**400, 0], [0, 0]]}, ["out of range"]),
    "ragged": (SMALL | {"rewards": [[1.0, 0.0], [0.5]]}, ["rewards is not an array"]),
    "not sparse": (SMALL | {"rewards": {"a": 1}}, ["rewards has the parts a", "data, indices, indptr, shape"]),
    "object for array": (SMALL | {"policy": {"a": 1}}, ["policy is not an array"]),
    "NaN": (json.dumps(SMALL).replace("0.9,", "NaN,", 1), ["nan"]),
    "names in a string": (SMALL | {"states": "ab"}, ["states is 'ab'", "list"]),
    "repeated names": (SMALL | {"states": ["a", "a"]}, ["states[1] repeats 'a'"]),
    "object for a name": (SMALL | {"states": [{}, "a"]}, ["states[0]", "hashable"]),
    "flag": (SMALL | {"normalise": "yes"}, ["normalise is 'yes'", "true or false"]),
    "threshold": (SMALL | {"threshold": "high"}, ["threshold is not"]),
    "kernel shape": (SMALL | {"kernel": [[1.0]]}, ["kernel has shape (1, 1), expected (2, 2, 2)"]),
    "outside the support": (SMALL | {"support": [[[1, 0], [1, 1]], [[1, 1], [1, 1]]]}, ["kernel puts mass", "support"]),
    "undiscounted": (SMALL | {"discount": 1}, ["discount is 1"]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(tmp_path, name):
    content, words = REFUSED[name]
    assert_refused(written(tmp_path, content), *words)


PARTS = {"data": [1, 1, 1, 1], "indices": [0, 1, 0, 1], "indptr": [0, 1, 2, 3, 4], "shape": [4, 2]}


@pytest.mark.parametrize(
    "change",
    [
        {"indices": [0, 1, 0, 2]},
        {"indices": [0, 1, 0, -1]},
        {"indices": [0, 1, 0, 0.5]},
        {"indices": [0, 1, 0, 1e17]},
        {"indptr": [0, 1, 2, 3]},
        {"indptr": [0, 3, 2, 3, 4]},
        {"indptr": [0, 1, 2, 3, 9]},
        {"shape": [4]},
        {"shape": [-4, 2]},
        {"shape": [8, 1]},
        {"shape": [10**15, 10**15]},
        {"data": [1, 1, 1]},
        {"data": [[1], [1], [1], [1]]},
        {"data": ["x", 1, 1, 1]},
    ],
)
def test_sparse_parts_that_do_not_fit(tmp_path, change):
    assert_refused(written(tmp_path, SMALL | {"kernel": PARTS | change}), "kernel")


def test_missing_files_folders_and_formats(tmp_path):
    assert_refused(tmp_path / "nowhere.json", "cannot be read")
    assert_refused(tmp_path / "nowhere.npz", "cannot be read")
    (tmp_path / "folder.json").mkdir()
    assert_refused(tmp_path / "folder.json", "cannot be read")
    assert_refused(tmp_path / "model.yaml", "'.yaml'", ".json or .npz")
    assert_refused(tmp_path / "model", "no suffix")
    with pytest.raises(InputError, match="the format is unknown"):
        save_model(tmp_path / "model.txt", instances.paper(2).task)


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(b'{"x": "\xff"}')
    assert_refused(path, "byte 7 is not UTF-8")
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SMALL).encode())  # a byte order mark is harmless
    assert load_model(path).task.n_states == 2


def test_arrays_that_are_not_arrays(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"not a zip")
    assert_refused(path, "not an NPZ file")
    pickled = np.array([{"any": "object"}], dtype=object)
    np.savez(path, **(SMALL | {"rewards": pickled}))
    assert_refused(path, "without pickled objects")
    np.savez(path, **SMALL, states=np.array("no list"))
    assert_refused(path, "states is not a JSON list")
    np.savez(path, **SMALL, **{"kernel.data": np.ones(3)})
    assert_refused(path, "kernel is there twice")
    np.savez(path, **SMALL, **{"support.data": np.ones(3)})
    assert_refused(path, "support has the parts data")
    np.savez(path, **SMALL, **{"policy.data": np.ones(3)})
    assert_refused(path, "unknown key 'policy.data'")


def test_damaged_archives_are_refused_or_read_whole(tmp_path):
    """Whatever one wrong byte, or a missing end, does: a model or an InputError, never another exception."""
    path = tmp_path / "model.npz"
    save_model(path, instances.paper(2).task, instances.paper(2).kernel)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused = 0
    for place in rng.integers(len(whole), size=150):
        damaged = bytearray(whole)
        damaged[place] ^= 1 << int(rng.integers(8))
        for content in (bytes(damaged), whole[:place]):
            path.write_bytes(content)
            try:
                load_model(path)
            except InputError:
                refused += 1
    assert refused > 150


def test_kernels_are_checked_before_they_are_written(tmp_path):
    task = instances.paper(2).task
    with pytest.raises(InputError, match="kernel at"):
        save_model(tmp_path / "model.json", task, np.full((2, 2, 2), 0.4))
    with pytest.raises(InputError, match="task is a dict"):
        save_model(tmp_path / "model.json", SMALL)
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- writing


def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch):
    path = tmp_path / "model.json"
    save_model(path, instances.paper(2).task)
    before = path.read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(InputError, match="No space left on device"):
        save_model(path, instances.paper(3).task)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_links_stay_links_and_devices_stay_devices(tmp_path):
    (tmp_path / "folder").mkdir()
    link = tmp_path / "link.json"
    link.symlink_to(tmp_path / "folder" / "model.json")
    save_model(link, instances.paper(2).task)
    assert link.is_symlink()
    assert load_model(tmp_path / "folder" / "model.json").task.n_states == 2
    write_file(os.devnull, b"gone")
    assert not os.path.isfile(os.devnull)


def test_no_folder_to_write_in(tmp_path):
    with pytest.raises(InputError, match="cannot be written"):
        save_model(tmp_path / "nowhere" / "model.json", instances.paper(2).task)
