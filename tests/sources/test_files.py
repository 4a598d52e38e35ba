"""Task files are read back exactly, and a wrong file is refused with its name, the place and the remedy."""

from __future__ import annotations

import contextlib
import io
import json
import os
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

import policytest as pt
from builders import each
from policytest import instances
from policytest._base import arrays as arrays_module
from policytest._base.errors import InputError
from policytest._base.files import write_file
from policytest.mdp.task import Task
from policytest.sources import Model, load_model, save_model, save_policy
from source_builders import SMALL, assert_model_refused, assert_refused, put

FORMATS = ("json", "toml", "npz")


def plain(table):
    return table.toarray() if arrays_module.is_sparse(table) else table


def assert_same(found, expected):
    assert arrays_module.is_sparse(found) == arrays_module.is_sparse(expected)
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
    for name in ("states", "actions", "terminal", "assumptions"):
        assert getattr(model.task, name) == getattr(task, name)
    assert_same(model.kernel, kernel)
    assert model.threshold == threshold


@pytest.mark.parametrize("suffix", [".json", ".toml", ".npz", ".drn"])
def test_a_budget_is_kept(tmp_path, suffix):
    two = instances.paper(2)
    save_model(tmp_path / f"model{suffix}", two.task, two.kernel, 0.5, budget=200)
    assert load_model(tmp_path / f"model{suffix}").budget == 200
    for wrong, words in (("0", "budget is 0"), ("2.5", "budget is 2.5"), ('"many"', "budget")):
        (tmp_path / "model.toml").write_text(
            f"budget = {wrong}\nrewards = [[1.0]]\npolicy = [[1]]\ninitial = [1]\ndiscount = 0.5"
        )
        assert_refused(lambda: load_model(tmp_path / "model.toml"), words)


def sparse_instance():
    dense = instances.random(seed=3, S=5, A=2, successors=2)
    flat = sparse.csr_array(dense.kernel.reshape(10, 5))
    support = sparse.csr_array(dense.task.support.reshape(10, 5))
    rewards = support.astype(float) * 0.3
    task = Task(rewards, dense.task.policy, dense.task.initial, 0.9, support=support)
    return instances.Instance(task, flat)


def ended_instance(terminal):
    names = [(0, "on"), "over", 3]
    task = Task([[1.0], [0.0], [0.0]], np.ones((3, 1)), np.full(3, 1 / 3), 0.9, states=names, terminal=terminal)
    return instances.Instance(task, None)


INSTANCES = {
    "ends by name": lambda: ended_instance(["over", 3]),
    "ends by index": lambda: ended_instance([1]),
    "no ends": lambda: ended_instance([]),
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
    last = None if suffix != "toml" else "\x7f\u2028 \U0001f600"
    states = ["a\x00b", 3, (1, ("deep", 2.5)), 'quoté "x" \\ \n', last, np.int64(7)]
    rests_on = ["the cells are Markov", 'all is "well"']
    task = Task(
        np.ones((6, 1)), np.ones((6, 1)), np.full(6, 1 / 6), 0.5, states=states, actions=["go"], assumptions=rests_on
    )
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
        np.savez(file, **SMALL, states=np.array(["sick", "well"]), actions=np.array([10, 20]), normalise=np.True_,
                 terminal=np.array([], dtype=str))  # fmt: skip
    model = load_model(path)
    assert model.task.terminal == ()
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
    assert_model_refused(
        written(tmp_path, rounded() | flag), "policy[0] sums to 0.999", '"normalise" to true in the file'
    )
    only_kernel = SMALL | {"kernel": rounded()["kernel"]} | flag
    assert_model_refused(written(tmp_path, only_kernel), "kernel at (s=0, a=0) sums to 0.999")


def test_normalising_does_not_hide_negative_probabilities(tmp_path):
    for row in ([-0.5, -0.5], [1.5, -0.5]):
        kernel = [[row, [1.0, 0.0]], [[0.5, 0.5], [0.2, 0.8]]]
        assert_model_refused(written(tmp_path, SMALL | {"kernel": kernel, "normalise": True}), "kernel", "negative")


# ---------------------------------------------------------------- what is refused


def written(folder, content, name="model.json"):
    return put(folder / name, content)


def without(*keys):
    return {key: value for key, value in SMALL.items() if key not in keys}


REFUSED = {
    "close key": (without("rewards") | {"reward": [[1]]}, ["unknown key 'reward'", "did you mean 'rewards'?"]),
    "unknown key": (SMALL | {"zzz": 1}, ["unknown key 'zzz'", "known are rewards, policy"]),
    "two missing": (without("policy", "initial"), ["keys are missing: policy, initial"]),
    "one missing": (without("discount"), ["key is missing: discount"]),
    "empty object": ({}, ["rewards, policy, initial, discount"]),
    "comma": ('{"rewards": [[1, 2],\n  [3, ]]}', ["line 2, column 7"]),
    "empty file": ("", ["line 1, column 1"]),
    "list": ("[1, 2]", ["holds a list", "rewards, policy, initial, discount"]),
    "twice": ('{"discount": 0.9, "discount": 0.8}', ["'discount' is repeated"]),
    "nested": ("[" * 100_000, ["nested too deeply"]),
    "long number": (json.dumps(SMALL).replace("0.9,", f"1{'0' * 5000},"), ["number cannot be read"]),
    "huge number": (SMALL | {"rewards": [[10**400, 0], [0, 0]]}, ["out of range"]),
    "ragged": (SMALL | {"rewards": [[1.0, 0.0], [0.5]]}, ["rewards is not an array"]),
    "not sparse": (SMALL | {"rewards": {"data": 1}}, ["rewards has the parts data", "data, indices, indptr, shape"]),
    "no such state": (SMALL | {"rewards": {"a": 1}}, ["unknown state 'a' in rewards; states are 0 to 1"]),
    "no such state of the policy": (SMALL | {"policy": {"a": 1}}, ["unknown state 'a' in policy"]),
    "numbers in quotes": (SMALL | {"rewards": [["1", "2"], ["3", "4"]]}, ["rewards is not an array", "without quotes"]),
    "one number in quotes": (SMALL | {"initial": [0.3, "0.7"]}, ["initial"]),
    "discount in quotes": (SMALL | {"discount": "0.9"}, ["discount is '0.9'", "without quotes"]),
    "NaN": (json.dumps(SMALL).replace("0.9,", "NaN,", 1), ["nan"]),
    "names in a string": (SMALL | {"states": "ab"}, ["states is 'ab'", "list"]),
    "repeated names": (SMALL | {"states": ["a", "a"]}, ["states[1] repeats 'a'"]),
    "object for a name": (SMALL | {"states": [{}, "a"]}, ["states[0]", "hashable"]),
    "flag": (SMALL | {"normalise": "yes"}, ["normalise is 'yes'", "True or False"]),
    "threshold": (SMALL | {"threshold": "high"}, ["threshold is 'high'", "without quotes"]),
    "threshold in a list": (SMALL | {"threshold": [1]}, ["threshold has shape"]),
    "kernel shape": (SMALL | {"kernel": [[1.0]]}, ["kernel has shape (1, 1), expected (2, 2, 2)"]),
    "outside the support": (SMALL | {"support": [[[1, 0], [1, 1]], [[1, 1], [1, 1]]]}, ["kernel puts mass", "support"]),
    "undiscounted": (SMALL | {"discount": 1}, ["discount is 1"]),
}


@each("name", REFUSED)
def test_refused(tmp_path, name):
    content, words = REFUSED[name]
    assert_model_refused(written(tmp_path, content), *words)


PARTS = {"data": [1, 1, 1, 1], "indices": [0, 1, 0, 1], "indptr": [0, 1, 2, 3, 4], "shape": [4, 2]}


@each(
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
    assert_model_refused(written(tmp_path, SMALL | {"kernel": PARTS | change}), "kernel")


def test_missing_files_folders_and_formats(tmp_path):
    assert_model_refused(tmp_path / "nowhere.json", "cannot be read")
    assert_model_refused(tmp_path / "nowhere.npz", "cannot be read")
    (tmp_path / "folder.json").mkdir()
    assert_model_refused(tmp_path / "folder.json", "cannot be read")
    assert_model_refused(tmp_path / "model.yaml", "'.yaml'", "use .json, .toml, .npz, .drn or .tra")
    assert_model_refused(tmp_path / "model", "no suffix")
    assert_refused(lambda: save_model(tmp_path / "model.txt", instances.paper(2).task), "the format is unknown")


def test_text_that_is_not_utf8(tmp_path):
    path = tmp_path / "model.json"
    path.write_bytes(b'{"x": "\xff"}')
    assert_model_refused(path, "byte 7 is not UTF-8")
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(SMALL).encode())  # a byte order mark is harmless
    assert load_model(path).task.n_states == 2


def test_arrays_that_are_not_arrays(tmp_path):
    path = tmp_path / "model.npz"
    path.write_bytes(b"not a zip")
    assert_model_refused(path, "not an NPZ file")
    pickled = np.array([{"any": "object"}], dtype=object)
    np.savez(path, **(SMALL | {"rewards": pickled}))
    assert_model_refused(path, "without pickled objects")
    np.savez(path, **SMALL, states=np.array("no list"))
    assert_model_refused(path, "states is not a JSON list")
    np.savez(path, **SMALL, **{"kernel.data": np.ones(3)})
    assert_model_refused(path, "kernel is there twice")
    np.savez(path, **SMALL, **{"support.data": np.ones(3)})
    assert_model_refused(path, "support has the parts data")
    np.savez(path, **SMALL, **{"policy.data": np.ones(3)})
    assert_model_refused(path, "unknown key 'policy.data'")


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
    assert_refused(lambda: save_model(tmp_path / "model.json", task, np.full((2, 2, 2), 0.4)), "kernel at")
    assert_refused(lambda: save_model(tmp_path / "model.json", SMALL), "task is a dict")
    assert not list(tmp_path.iterdir())


# ---------------------------------------------------------------- writing


def everything(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.mark.parametrize("suffix", ["json", "toml", "npz", "drn", "csv"])
def test_a_failed_write_leaves_the_old_file(tmp_path, monkeypatch, suffix):
    def save(n):
        instance = instances.paper(n)
        path = tmp_path / f"model.{suffix}"
        if suffix == "csv":
            save_policy(path, instance.task.policy, instance.task)
        else:
            save_model(path, instance.task, instance.kernel)

    save(2)
    before = everything(tmp_path)

    def fail(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "replace", fail)
    assert_refused(lambda: save(3), "No space left on device")
    assert everything(tmp_path) == before


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


# ---------------------------------------------------------------- any task, any format


@st.composite
def models(draw):
    """Tasks of every kind: rewards on pairs or successors, supports, kernels, dense or sparse, names, a threshold."""
    S, A = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    weights = st.integers(1, 1000)
    number = st.floats(-1e6, 1e6)

    def rows(*shape):
        table = np.array(draw(st.lists(weights, min_size=int(np.prod(shape)), max_size=int(np.prod(shape)))), float)
        table = table.reshape(shape)
        return table / table.sum(axis=-1, keepdims=True)

    on_successor = draw(st.booleans())
    shape = (S, A, S) if on_successor else (S, A)
    rewards = np.array(draw(st.lists(number, min_size=int(np.prod(shape)), max_size=int(np.prod(shape))))).reshape(
        shape
    )
    kernel = rows(S, A, S) if draw(st.booleans()) else None
    support = np.ones((S, A, S), dtype=bool) if draw(st.booleans()) else None
    if draw(st.booleans()):
        kernel = None if kernel is None else sparse.csr_array(kernel.reshape(S * A, S))
        support = None if support is None else sparse.csr_array(support.reshape(S * A, S))
    names = st.text(st.characters(exclude_categories=["Cs"]), max_size=4)
    states = draw(st.none() | st.lists(names, min_size=S, max_size=S, unique=True))
    actions = draw(st.none() | st.lists(names, min_size=A, max_size=A, unique=True))
    discount = draw(st.floats(0, 0.99))
    task = Task(rewards, rows(S, A), rows(1, S)[0], discount, support=support, states=states, actions=actions)
    return task, kernel, draw(st.none() | number)


@given(models(), st.sampled_from(FORMATS))
def test_any_task_is_read_back_exactly(tmp_path_factory, model, suffix):
    assert_round_trip(tmp_path_factory.mktemp("any") / f"model.{suffix}", *model)


def test_toml_has_no_word_for_nothing(tmp_path):
    task = Task([[1.0]], [[1.0]], [1.0], 0.5, states=[None])
    with pytest.raises(InputError, match=r"states holds None, which TOML cannot write; save the file as .json"):
        save_model(tmp_path / "model.toml", task)
    with pytest.raises(InputError, match="half of a character"):
        save_model(tmp_path / "model.toml", Task([[1.0]], [[1.0]], [1.0], 0.5, states=["\ud800"]))
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("discount = 0.9\ndiscount = 0.8\n", ["line 2"]),
        ("policy = [[1.0\n", ["not valid TOML"]),
        ("", ["keys are missing: rewards, policy, initial, discount"]),
        (f"discount = {'1' * 5000}\n", ["number cannot be read"]),
        ("policy = " + "[" * 100_000, ["nested too deeply"]),
    ],
    ids=range(5),
)
def test_toml_that_is_none(tmp_path, text, words):
    assert_model_refused(written(tmp_path, text, "model.toml"), *words)


def test_dates_are_no_numbers(tmp_path):
    text = "rewards = [[2026-11-15]]\npolicy = [[1]]\ninitial = [1]\ndiscount = 0.5\n"
    assert_model_refused(written(tmp_path, text, "model.toml"), "rewards is not an array of numbers")


def test_what_is_passed_counts_before_what_the_file_says(tmp_path):
    path = written(tmp_path, SMALL | {"threshold": 1.0, "states": ["a", "b"]})
    model = load_model(path, discount=0.5, policy={"a": 1, "b": {0: 0.25, 1: 0.75}}, initial="b", threshold=-1)
    assert (model.task.discount, model.threshold) == (0.5, -1.0)
    assert model.task.policy.tolist() == [[0.0, 1.0], [0.25, 0.75]]
    assert model.task.initial.tolist() == [0.0, 1.0]
    assert load_model(path, policy="uniform").task.policy.tolist() == [[0.5, 0.5]] * 2
    incomplete = written(tmp_path, {k: v for k, v in SMALL.items() if k != "discount"}, "incomplete.json")
    assert load_model(incomplete, discount=0.25).task.discount == 0.25
    assert load_model(path, known_support=True).task.support.tolist() == (np.array(SMALL["kernel"]) > 0).tolist()


# ---------------------------------------------------------------- archives are looked at before they are read


def archive_of(path, members):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return path


def npy(array, shape=None):
    """An array as NPY; with another shape in its header, a lie."""
    buffer = io.BytesIO()
    header = np.lib.format.header_data_from_array_1_0(np.asarray(array))
    np.lib.format.write_array_header_1_0(buffer, header | ({} if shape is None else {"shape": shape}))
    return buffer.getvalue() + np.asarray(array).tobytes()


def members(**changes):
    arrays = {key: npy(np.array(value, dtype=float)) for key, value in SMALL.items()}
    return {f"{key}.npy": value for key, value in (arrays | changes).items()}


def test_the_archive_made_by_hand_is_read(tmp_path):
    """Negative control for the refusals below."""
    assert load_model(archive_of(tmp_path / "model.npz", members())).task.n_states == 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"rewards": npy(np.zeros(4), shape=(10**6, 10**6))}, ["rewards", "not what it holds"]),
        ({"rewards": npy(np.zeros(4), shape=(2, -2))}, ["rewards"]),
        ({"rewards": npy(np.zeros(4), shape=(2,))}, ["rewards", "not what it holds"]),
        ({"kernel": npy(np.zeros((3, 2, 3)))}, ["kernel has shape (3, 2, 3), expected (2, 2, 2)"]),
        ({"zzz": npy(np.zeros(3))}, ["unknown key 'zzz'"]),
    ],
    ids=range(5),
)
def test_headers_that_lie(tmp_path, monkeypatch, changes, words):
    """Refused from the header alone: no array is unpacked."""

    def never(*_, **__):
        raise AssertionError("an array was read")

    monkeypatch.setattr(np, "load", never)
    assert_model_refused(archive_of(tmp_path / "model.npz", members(**changes)), *words)


def test_archives_that_grow_when_they_are_unpacked(tmp_path, monkeypatch):
    """A small file of gigabytes of zeros; the limit is lowered so that the test is small too."""
    monkeypatch.setattr("policytest._base.files.ARCHIVE_LIMIT", 2**20)
    path = archive_of(tmp_path / "model.npz", members(rewards=npy(np.zeros(2**18))))
    assert path.stat().st_size < 2**14
    assert_model_refused(path, "its arrays are", "keep large tables sparse")


@pytest.mark.parametrize(
    ("extra", "words"),
    [({"notes.txt": b"hello"}, "'notes.txt' is no array"), ({"x/../y.npy": b"\x93NUMPY\x01\x00"}, "cannot be read")],
)
def test_members_that_are_no_arrays(tmp_path, extra, words):
    assert_model_refused(archive_of(tmp_path / "model.npz", members() | extra), words)


def test_an_array_that_is_there_twice(tmp_path):
    path = tmp_path / "model.npz"
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members().items():
            archive.writestr(name, content)
        with pytest.warns(UserWarning, match="Duplicate name"):
            archive.writestr("policy.npy", members()["policy.npy"])
    assert_model_refused(path, "is there twice")


def test_contents_are_data(tmp_path):
    """Whatever a file says, it stays text: nothing is run, and nothing is left behind."""
    mark = tmp_path / "ran"
    for word in (f"__import__('pathlib').Path({str(mark)!r}).touch()", "!!python/object:os.system", "${HOME}"):
        states = [word, "b"]
        model = load_model(written(tmp_path, SMALL | {"states": states}))
        assert model.task.states == tuple(states)
    assert not mark.exists()


# ---------------------------------------------------------------- sizes are checked before anything is allocated

LARGE = (100_000, 2, 100_000)  # 20 billion entries; as views of one number they cost nothing


def large_task(**changes):
    S, A, _ = LARGE
    policy = np.full((S, A), 0.5)
    initial = np.zeros(S)
    initial[0] = 1.0
    return Task(**{"rewards": np.ones((S, A)), "policy": policy, "initial": initial, "discount": 0.5, **changes})


@pytest.mark.parametrize(
    "call",
    [
        lambda: large_task(support=np.broadcast_to(True, LARGE)),
        lambda: large_task(rewards=np.broadcast_to(1.0, LARGE)),
        lambda: pt.value(large_task(), np.broadcast_to(1e-5, LARGE)),
        lambda: pt.Counts.from_array(np.broadcast_to(0, LARGE)),
        lambda: pt.KLBall(np.broadcast_to(1e-5, LARGE), np.ones(LARGE[:2]), 1.0),
    ],
    ids=["support", "rewards", "kernel", "counts", "ball"],
)
def test_dense_tables_that_are_too_large(call):
    with pytest.raises(InputError, match=r"20,000,000,000 entries.*SciPy CSR array of shape \(S\*A, S\)"):
        call()


def test_other_requests_that_are_too_large():
    assert_refused(lambda: pt.Counts(100_000, 2), "pass sparse=True")
    rewards = sparse.csr_array((200_000, 100_000))
    assert_refused(lambda: large_task(rewards=rewards), "declare `support`")
    with pytest.raises(InputError, match="too many to list; declare `support`"):
        _ = large_task().layout.rows


def test_a_large_task_works_where_it_is_sparse(tmp_path):
    """Negative control: the same size with a declared support, saved, read back and evaluated."""
    S, A, _ = LARGE
    loops = sparse.csr_array((np.ones(S * A), (np.arange(S * A), np.arange(S * A) // A)), shape=(S * A, S))
    path = tmp_path / "model.npz"
    save_model(path, large_task(support=loops), loops)
    model = load_model(path)
    assert pt.value(model.task, model.kernel) == pytest.approx(2.0)


def test_a_changed_bit_in_the_directory_of_an_archive_hides_no_array(tmp_path):
    """The list of members at the end of a ZIP has no checksum; a wrong length in it skips the members after it."""
    two = instances.paper(2)
    path = tmp_path / "model.npz"
    save_model(path, two.task, two.kernel)
    whole = path.read_bytes()
    for at in range(whole.index(b"PK\1\2"), len(whole)):
        for bit in range(8):
            path.write_bytes(whole[:at] + bytes([whole[at] ^ 1 << bit]) + whole[at + 1 :])
            with contextlib.suppress(InputError):
                assert load_model(path).kernel is not None
