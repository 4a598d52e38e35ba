"""Continuous states as cells: every point in its cell, on every kind of table, and nothing silently."""

from __future__ import annotations

import json
import math
import re
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import policytest as pt
from builders import each
from policytest.sources.environments import bins as module
from policytest.sources.environments.bins import discretise
from source_builders import assert_refused

NAN = math.nan


def made(*args, **settings):
    """Bins, without the warning that always comes with them."""
    with pytest.warns(pt.AssumptionWarning, match="not Markov"):
        return discretise(*args, **settings)


@pytest.fixture(scope="module")
def grid():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        return discretise([[-1.2, -0.4, 0.6], [-0.07, 0.0, 0.03, 0.07]], names=["position", "velocity"])


def test_cells_are_half_open_and_numbered_with_the_last_dimension_fastest(grid):
    points = [[-1.2, -0.07], [-0.4, 0.0], [-0.41, 0.03], [0.6, 0.07], [5.0, -5.0], [-math.inf, math.inf]]
    assert grid(points).tolist() == [0, 4, 2, 5, 3, 2]
    assert grid.shape == (2, 3)
    assert grid.n_states == len(grid.states) == 6
    assert grid.states[4] == "position [-0.4, inf), velocity [0.0, 0.03)"
    assert len(set(grid.states)) == 6


def test_with_ends():
    bins = made([0.0, 0.25, 1.0], outside="refuse")
    assert bins([0.0, 0.25, 1.0]).tolist() == [0, 1, 1]
    assert bins.states == ("[0.0, 0.25)", "[0.25, 1.0]")
    assert_refused(lambda: bins([0.5, 1.5]), "points[1] is 1.5, outside 0 to 1; widen the edges")
    open_ends = made([-math.inf, 0.0, math.inf], outside="refuse")
    assert open_ends([-math.inf, -1e300, 0.0, math.inf]).tolist() == [0, 0, 1, 1]


@given(st.lists(st.floats(-100, 100), min_size=2, max_size=8, unique=True), st.floats(-200, 200))
def test_a_point_lies_in_the_cell_it_is_given(edges, point):
    edges = sorted(edges)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        bins = discretise(edges)
    (cell,) = bins([point])
    assert cell == min(max(sum(edge <= point for edge in edges) - 1, 0), len(edges) - 2)


def test_from_a_sample():
    rng = np.random.default_rng(0)
    sample = np.column_stack([rng.normal(size=1000), rng.exponential(size=1000)])
    with pytest.warns(pt.AssumptionWarning, match="must not be part of the data that are tested"):
        equal = discretise(sample=sample, bins=[4, 5], how="quantile")
    assert np.bincount(equal(sample), minlength=20).min() > 0
    assert all(np.bincount(equal(sample) // 5) == 250)
    wide = made(sample=sample, bins=3)
    assert np.ptp(np.diff(wide.edges[1])) < 1e-12
    assert wide.edges[0][[0, -1]].tolist() == [sample[:, 0].min(), sample[:, 0].max()]
    one = made(sample=[1.0, 2.0, 4.0], bins=2)
    assert one.edges[0].tolist() == [1.0, 2.5, 4.0]


def test_by_a_function():
    bins = made(function=lambda text: len(text) % 3, count=3, states=["none", "one", "two"])
    assert bins(["a", "bb", "ccc"]).tolist() == [1, 2, 0]
    assert bins.states == ("none", "one", "two")
    assert "by a function" in str(bins)
    for wrong, shown in (
        (lambda x: 3, "3"),
        (lambda x: 1.0, "1.0"),
        (lambda x: True, "True"),
        (lambda x: None, "None"),
    ):
        with pytest.raises(pt.InputError, match=f"function gave {shown} for points"):
            made(function=wrong, count=3)(["a"])


# ---------------------------------------------------------------- tables

COLUMNS = {
    "p": [-1.0, -0.4, 0.5, 9.0],
    "v": [0.0, -0.01, 0.05, 0.03],
    "p2": [-0.4, 0.5, 9.0, -9.0],
    "v2": [-0.01, 0.05, 0.03, 0.0],
}
EXPECTED = {"s": [1, 3, 5, 5], "s_next": [3, 5, 5, 1]}


def frame_of(kind):
    pandas = pytest.importorskip("pandas")
    if kind == "dict":
        return {name: np.array(column) for name, column in COLUMNS.items()}
    if kind == "pandas":
        return pandas.DataFrame(COLUMNS, index=[7, 7, 3, 1])  # an index that is no row number
    if kind == "polars":
        return pytest.importorskip("polars").DataFrame(COLUMNS)
    if kind == "lazy":
        return pytest.importorskip("polars").LazyFrame(COLUMNS)
    if kind == "pyarrow":
        return pytest.importorskip("pyarrow").table(COLUMNS)
    return pytest.importorskip("duckdb").from_df(pandas.DataFrame(COLUMNS))


def column(frame, name):
    if hasattr(frame, "collect"):
        frame = frame.collect()
    if hasattr(frame, "fetchnumpy"):
        return list(np.ma.filled(frame.fetchnumpy()[name].astype(float), NAN))
    values = frame[name]
    return values.to_pylist() if hasattr(values, "to_pylist") else list(values)


KINDS = ["dict", "pandas", "polars", "lazy", "pyarrow", "duckdb"]


@pytest.mark.parametrize("kind", KINDS)
def test_tables_get_two_columns(grid, kind):
    frame = grid.columns(frame_of(kind), ["p", "v"], ["p2", "v2"])
    for name, expected in EXPECTED.items():
        assert column(frame, name) == expected
    assert column(frame, "p") == COLUMNS["p"]
    alone = grid.columns(frame_of(kind), ["p", "v"])
    assert column(alone, "s") == EXPECTED["s"]


@pytest.mark.parametrize("kind", ["dict", "pandas", "polars", "pyarrow"])
def test_a_nan_in_a_table_is_refused(grid, kind, monkeypatch):
    monkeypatch.setitem(COLUMNS, "v2", [0.0, NAN, 0.0, 0.0])
    with pytest.raises(pt.InputError, match=re.escape("s_next[1, 1] (velocity) is nan")):
        grid.columns(frame_of(kind), ["p", "v"], ["p2", "v2"])


@pytest.mark.parametrize("kind", ["lazy", "duckdb"])
def test_out_of_memory_it_becomes_a_null(grid, kind, monkeypatch):
    monkeypatch.setitem(COLUMNS, "v2", [0.0, NAN, 0.0, 0.0])
    frame = grid.columns(frame_of(kind), ["p", "v"], ["p2", "v2"])
    missing = [value is None or math.isnan(value) for value in column(frame, "s_next")]
    assert missing == [False, True, False, False]
    strict = made([[-1.2, -0.4, 0.6], [-0.07, 0.0, 0.03, 0.07]], outside="refuse")
    outside = strict.columns(frame_of(kind), ["p", "v"])
    assert [value is None or math.isnan(value) for value in column(outside, "s")] == [False, False, False, True]
    assert_refused(lambda: made(function=lambda x: 0, count=1).columns(frame_of(kind), "p"), "collect it first")


def test_tables_that_do_not_fit(grid):
    for call, message in (
        (lambda: grid.columns(frame_of("dict"), ["p"]), "1 column named, the bins have 2 dimensions"),
        (lambda: grid.columns(frame_of("dict"), ["p", "w"]), "no column 'w'; there are 'p', 'v'"),
        (lambda: grid.columns({"s": [0], "p": [0.0], "v": [0.0]}, ["p", "v"]), "a column 's' already"),
        (lambda: grid.columns(17, ["p", "v"]), "frame is a int"),
        (lambda: grid.columns({"p": ["a"], "v": ["b"]}, ["p", "v"]), r"s is not an array of numbers \(it holds text"),
    ):
        with pytest.raises(pt.InputError, match=message):
            call()


# ---------------------------------------------------------------- environments


def test_an_environment_is_wrapped(grid):
    gym = pytest.importorskip("gymnasium")
    inner = gym.make("MountainCar-v0")
    env = grid.wrap(inner)
    assert env.observation_space == gym.spaces.Discrete(6)
    observation, _ = env.reset(seed=0)
    raw = inner.unwrapped.state
    for _ in range(20):
        assert type(observation) is int
        assert observation == grid([raw])[0]
        observation, _, terminated, truncated, _ = env.step(env.action_space.sample())
        raw = inner.unwrapped.state
        assert not terminated
        assert not truncated
    with pytest.raises(pt.InputError, match="shape \\(4,\\), the bins have 2 dimensions"):
        grid.wrap(gym.make("CartPole-v1"))
    assert_refused(lambda: grid.wrap(gym.make("FrozenLake-v1")), "edges are for a Box")
    assert_refused(lambda: grid.wrap("MountainCar-v0"), "env is a str")
    merged = made(function=lambda observation: int(observation) // 4, count=4).wrap(gym.make("FrozenLake-v1"))
    assert merged.reset(seed=0)[0] == 0


STEPPED = {
    "MountainCar-v0": (lambda s, a, x: -1.0, -1.5, "what follows depends on the cell and the action alone"),
    "FrozenLake-v1": (lambda s, a, x: float(x == 15), 0.4, "what follows depends on the observation and the action"),
}


@pytest.mark.parametrize("name", STEPPED)
def test_what_a_stepped_environment_rests_on_is_told_with_every_answer(grid, name):
    """In the verdict, in JSON and in the report; a run does not go on without it."""
    gym = pytest.importorskip("gymnasium")
    env, (rewards, threshold, words) = gym.make(name), STEPPED[name]
    env = grid.wrap(env) if name == "MountainCar-v0" else env
    found = pt.sources.gymnasium(env, "uniform", 0.5, table=False, rewards=rewards)
    assert len(found.task.assumptions) == 1
    verdict = pt.decide(found.task, found.simulator, threshold=threshold)
    assert (verdict.answer, verdict.certified) == ("below", True)
    assert f"proved, if {words}" in str(verdict)
    assert words in json.loads(verdict.to_json())["assumptions"][0]
    page = pt.report.render(verdict)
    assert f"is proved, if {words}" in page
    assert f"W{words[1:]}" in page
    part = pt.decide(found.task, found.simulator, threshold=threshold, max_samples=1)
    with pytest.raises(pt.InputError, match="resume: that run had another task"):
        pt.decide(replace(found.task, assumptions=()), found.simulator, threshold=threshold, resume=part)


def test_bins_from_a_sample_rest_on_its_being_another_one():
    sampled, function = made(sample=[0.0, 1.0, 2.0], bins=2), made(function=int, count=2)
    assert "the sample that the edges of the cells come from is not part of the data" in sampled.assumptions
    for bins in (sampled, function, made([0.0, 1.0])):
        assert bins.assumptions[0] == module.CELLS_ARE_MARKOV


def test_bins_are_not_markov_and_the_diagnosis_says_so():
    """A particle with momentum, seen only by the half in which it is: the reason for the warning."""
    rng = np.random.default_rng(0)
    place, speed, seen = 0.0, 0.0, []
    for _ in range(3000):
        speed = 0.95 * speed - 0.4 * place + 0.1 * rng.normal()
        place += speed
        seen.append(place)
    path = made([-1.0, 0.0, 1.0])(seen)
    task = pt.Task(rewards=[[1.0], [0.0]], policy=[[1.0], [1.0]], initial=[1.0, 0.0], discount=0.9)
    found = pt.diagnose(task, pt.Transitions(path[:-1], np.zeros(2999, int), path[1:]))
    assert "not Markov" in found.warnings[0]


# ---------------------------------------------------------------- showing and refusing


def test_shown(grid):
    assert "position" in str(grid)
    assert "not Markov" in grid._repr_html_()
    assert json.loads(module.Table("", grid.summary.rows).text() and json.dumps(grid.summary.data()["cells"])) == 6


@each(
    ("settings", "message"),
    [
        ({}, "given: none of them"),
        ({"edges": [0, 1], "sample": [1.0]}, "given: edges, sample"),
        ({"edges": []}, "edges is empty"),
        ({"edges": 3}, "edges is not a list"),
        ({"edges": [[0, 1], [1]]}, r"edges\[1\] has shape \(1,\)"),
        ({"edges": [0, 0, 1]}, "0 before 0; edges must increase"),
        ({"edges": [0, NAN, 1]}, "0 before nan"),
        ({"edges": [NAN, 1]}, "nan before 1"),
        ({"edges": ["a", "b"]}, r"edges\[0\] is not an array of numbers"),
        ({"edges": [0, 1], "bins": 3}, "bins belongs to sample"),
        ({"edges": [0, 1], "count": 3}, "count belongs to function"),
        ({"edges": [0, 1], "outside": "drop"}, 'pass "edge" or "refuse"'),
        ({"edges": [0, 1], "names": ["a", "b"]}, "names has 2 names, expected 1"),
        ({"edges": [np.arange(4001.0)] * 2}, "16,000,000 cells"),
        ({"sample": [1.0, 2.0]}, "bins is missing"),
        ({"sample": [1.0, NAN], "bins": 2}, r"sample\[1\] is nan"),
        ({"sample": np.zeros((0, 2)), "bins": 2}, "at least one"),
        ({"sample": [1.0, 1.0], "bins": 2}, "would have equal edges"),
        ({"sample": [1.0, 1.0, 1.0, 2.0], "bins": 3, "how": "quantile"}, "take fewer bins"),
        ({"sample": [1.0, 2.0], "bins": 0}, r"bins\[0\] is 0"),
        ({"sample": [1.0, 2.0], "bins": [1, 1]}, "bins has 2 numbers"),
        ({"sample": [1.0, 2.0], "bins": 1, "how": "magic"}, "how is 'magic'"),
        ({"function": 3, "count": 2}, "function is 3"),
        ({"function": len}, "count is None"),
        ({"function": len, "count": 2, "states": ["a"]}, "states has 1 names, expected 2"),
    ],
)
def test_bad_settings_are_named(settings, message):
    with pytest.raises(pt.InputError, match=message):
        discretise(**settings)


def test_bad_points_are_named(grid):
    for points, message in (
        ([[0.0, NAN]], re.escape("points[0, 1] (velocity) is nan")),
        ([0.0, 1.0], "one row for each point, with 2 numbers"),
        ([["a", "b"]], "points is not an array of numbers"),
        ([[1j, 0]], "it holds complex numbers"),
    ):
        with pytest.raises(pt.InputError, match=message):
            grid(points)
    assert grid(np.zeros((0, 2))).shape == (0,)


@pytest.mark.parametrize("markov", [True, False])
def test_the_steps_of_a_binned_environment_tell_whether_its_cells_are_markov(markov):
    """Three levels in turn, seen as two cells; or these two cells, drawn as often whatever came before."""
    gym = pytest.importorskip("gymnasium")

    class Levels(gym.Env):
        observation_space = gym.spaces.Box(0.0, 1.0, shape=(1,), dtype=np.float64)
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.stage = 0
            return np.array([0.1]), {}

        def step(self, action):
            self.stage = int(self.np_random.integers(3)) if markov else (self.stage + 1) % 3
            return np.array([(0.1, 0.3, 0.9)[self.stage]]), float(self.stage == 2), False, False, {}

    def asked():
        env = made([0.0, 0.5, 1.0]).wrap(Levels())
        return pt.sources.gymnasium(env, "uniform", 0.9, rewards=lambda s, a, x: float(x == 1), initial=0)

    found = asked()
    task, sim = found.task, found.simulator
    verdict = pt.decide(task, sim, threshold=2.0)
    assert (verdict.answer, verdict.certified, verdict.refutes_model) == ("above", markov, not markov)
    assert str(verdict).startswith("The value is above" if markov else "No reliable answer: the data refute that the")
    for again in (sim, asked().simulator):
        times = pt.stopping_times(task, again, 2.0, [0.05])
        assert times.certified.tolist() == [markov]
    assert pt.evaluate(task, sim, epsilon=1.0).certified is markov
    other = replace(task, policy=np.eye(task.n_actions)[np.zeros(task.n_states, dtype=int)])
    assert pt.compare(task, other, sim, max_samples=500).refutes_model is not markov
    part = pt.decide(task, asked().simulator, threshold=2.0, delta=1e-9, max_samples=50)
    resumed = pt.decide(task, asked().simulator, threshold=2.0, delta=1e-9, resume=part)
    assert (resumed.answer, resumed.certified, resumed.refutes_model) == ("above", False, False)  # most is not tested
    again = pt.decide(task, pt.TabularSimulator(np.full((task.n_states, 2, task.n_states), 1 / task.n_states)), 0.1)
    assert again.certified  # draws of a kernel are Markov
