"""The same table on every engine gives the same counts, the same refusals and the same order.

Spark takes some twenty seconds to start and wants Java: its tests run where POLICYTEST_SPARK=1 (`make test-spark`).
"""

from __future__ import annotations

import os
import sys
import warnings

import numpy as np
import pytest

import policytest as pt
from policytest.sources.logged import frames

pd = pytest.importorskip("pandas")
pytest.importorskip("narwhals")
pytest.importorskip("duckdb")

S, A, ROWS = 6, 3, 5000
STATES = ["ward", "home", 7, (0, 1), "5", 2.5]
ACTIONS = ["none", "drug a", "drug b"]


def make_task(states=None, actions=None):
    policy = np.tile([0.5, 0.5, 0.0], (S, 1))
    rewards = np.arange(S * A).reshape(S, A) / 4
    return pt.Task(rewards, policy, np.full(S, 1 / S), 0.9, states=states, actions=actions)


TASK = make_task()


def indices(seed=0):
    rng = np.random.default_rng(seed)
    return {"s": rng.integers(0, 4, ROWS), "a": rng.integers(0, A, ROWS), "s_next": rng.integers(0, S, ROWS)}


def table(seed=0):
    """Rows in no particular order; `order` says which."""
    rng = np.random.default_rng(seed + 1)
    columns = indices(seed)
    columns["count"] = rng.integers(0, 4, ROWS)
    columns["reward"] = TASK.rewards[columns["s"], columns["a"]]
    columns["order"] = rng.permutation(ROWS)
    columns["episode"] = columns["order"] // 50
    return pd.DataFrame(columns)


def by_hand(frame):
    """N[s,a,x] by the definition."""
    N = np.zeros((S, A, S), dtype=np.int64)
    np.add.at(N, (frame["s"], frame["a"], frame["s_next"]), frame["count"])
    return N


@pytest.fixture(scope="module")
def spark():
    if os.environ.get("POLICYTEST_SPARK") != "1":
        pytest.skip("set POLICYTEST_SPARK=1, or run make test-spark")
    sql = pytest.importorskip("pyspark.sql")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "2", "spark.log.level": "ERROR"}
        builder = sql.SparkSession.builder.master("local[2]").appName("policytest")
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    yield session
    session.stop()


def from_pandas(engine, frame, request=None):
    """The same rows as a frame of the engine."""
    if engine == "pandas":
        return frame
    if engine in ("polars", "polars lazy"):
        polars = pytest.importorskip("polars")
        return polars.from_pandas(frame) if engine == "polars" else polars.from_pandas(frame).lazy()
    if engine in ("pyarrow", "pyarrow dataset"):
        import pyarrow as pa
        import pyarrow.dataset

        return pa.Table.from_pandas(frame) if engine == "pyarrow" else pa.dataset.dataset(pa.Table.from_pandas(frame))
    if engine == "duckdb":
        import duckdb

        return duckdb.connect().from_df(frame)
    if engine == "dask":
        return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=3)
    return request.getfixturevalue("spark").createDataFrame(frame)


ENGINES = ["pandas", "polars", "polars lazy", "pyarrow", "pyarrow dataset", "duckdb", "dask", "spark"]
EVERY = pytest.mark.parametrize("engine", ENGINES)
# Spark and its tools warn about their own affairs.
pytestmark = pytest.mark.filterwarnings("default::DeprecationWarning:pyspark", "default::UserWarning:pyspark")


@EVERY
def test_the_same_counts(engine, request):
    frame = table()
    log = pt.sources.logs(from_pandas(engine, frame, request), TASK)
    np.testing.assert_array_equal(log.counts.N, by_hand(frame))
    assert (log.rows, log.used, log.left_out, log.files) == (ROWS, ROWS, (), ())
    assert log.idle == (frame["a"] == 2).sum()


@EVERY
def test_the_same_order(engine, request):
    """Of rows that stand for one transition or none; sums have no order on any engine."""
    frame = table()
    summed = pt.sources.logs(from_pandas(engine, frame, request), TASK)
    assert not summed.in_order()
    with pytest.raises(pt.InputError, match="count above 1"):
        summed.transitions()
    frame["count"] = frame["count"].clip(upper=1)
    log = pt.sources.logs(from_pandas(engine, frame, request), TASK)
    assert log.in_order()
    found = log.transitions()
    rows = frame.sort_values("order")
    for name, column in (("s", found.s), ("a", found.a), ("s_next", found.x)):
        np.testing.assert_array_equal(column, np.repeat(rows[name].to_numpy(), rows["count"].to_numpy()))


@EVERY
def test_the_same_visits(engine, request):
    """Without s_next it is the s of the next row of the episode, found by the engine."""
    frame = table().drop(columns=["s_next", "count", "reward"])
    frame["order"] //= 2  # two episodes a time
    frame["episode"] = frame["order"] // 50 * 2 + np.random.default_rng(3).permutation(ROWS) % 2
    frame = frame.drop_duplicates(["episode", "order"])
    data = from_pandas(engine, frame, request)
    if engine == "dask":
        with pytest.raises(pt.InputError, match="next row of an episode cannot be found by Dask"):
            pt.sources.logs(data, TASK)
        return
    with pytest.warns(pt.AssumptionWarning, match=r"^\d+ episodes stop in a state that is not terminal, long before"):
        assert pt.sources.logs(data, TASK).selected
    log = pt.sources.logs(data, TASK, skip=("last",))
    rows = frame.sort_values(["order", "episode"])
    rows["s_next"] = rows.groupby("episode")["s"].shift(-1)
    last = rows["s_next"].isna()
    found = log.transitions()
    for name, column in (("s", found.s), ("a", found.a), ("s_next", found.x)):
        np.testing.assert_array_equal(column, rows.loc[~last, name])
    assert [(gone.column, gone.reason, gone.rows) for gone in log.left_out] == [
        ("s_next", "last row of its episode", last.sum())
    ]


@EVERY
def test_the_same_labels(engine, request):
    """Text, with unknown and missing labels left out for s and a."""
    states = ["ward", "home", "lab", "7", "8", "9"]
    frame = table().drop(columns=["reward", "count"])
    where = indices()
    for name, names in (("s", states), ("a", ACTIONS), ("s_next", states)):
        frame[name] = np.array(names, dtype=object)[where[name]]
    frame.loc[:9, "s"] = "elsewhere"
    frame.loc[10:14, "a"] = None
    data = from_pandas(engine, frame, request)
    log = pt.sources.logs(data, make_task(states, ACTIONS), skip=("s", "a"))
    kept = pd.DataFrame(where | {"count": 1})[15:]
    np.testing.assert_array_equal(log.counts.N, by_hand(kept))
    assert [(gone.column, gone.reason, gone.rows) for gone in log.left_out] == [
        ("s", "no such name", 10),
        ("a", "null", 5),
    ]
    assert log.left_out[0].examples == (("'elsewhere'", 10),)
    assert not log.selected
    words = r"unknown state 'elsewhere' in column s \(10 rows\), and null in column a \(5 rows\); fix the data"
    with pytest.raises(pt.InputError, match=words):
        pt.sources.logs(data, make_task(states, ACTIONS))


@pytest.mark.parametrize("engine", ["duckdb", "pandas"])  # one streams, one is in memory
@pytest.mark.parametrize(
    ("column", "entry", "words"),
    [
        ("count", -1, "the column count must hold whole numbers"),
        ("count", 1.5, "the column count must hold whole numbers"),
        ("count", np.nan, "the column count must hold whole numbers"),
        ("count", 2.0**62, "the column count must hold whole numbers"),
        ("reward", np.inf, "the column reward must hold finite numbers"),
        ("reward", 0.75, "the column reward"),
        ("order", np.nan, "the column order must hold numbers"),
        ("order", 17, "2 rows with episode="),
        ("s_next", 99, "unknown state 99 in column s_next"),
    ],
)
def test_the_same_refusals(engine, column, entry, words, request):
    frame = table()
    at = int(np.flatnonzero((frame["a"] == 0) & (frame["s"] == 1))[0])  # the task's reward there is 3/4
    if column == "reward" and entry == 0.75:
        entry = 0.7
    if column == "order" and entry == 17:
        at = int(np.flatnonzero(frame["order"] == 18)[0])
    if isinstance(entry, float):
        frame[column] = frame[column].astype(float)
    frame.loc[at, column] = entry
    with pytest.raises(pt.InputError, match=words) as caught:
        pt.sources.logs(from_pandas(engine, frame, request), TASK)
    assert "\n" not in str(caught.value)


@EVERY
def test_a_reward_outside_its_range_is_refused(engine, request):
    """The table is read once more to find the row, on Spark too, whose limits have 32 bits."""
    frame = table().drop(columns=["count"]).assign(reward=0.5)
    frame.loc[frame["a"] == 0, "reward"] = 2.0
    task = pt.Task(pt.Observed(0, 1), TASK.policy, TASK.initial, 0.9)
    with pytest.raises(pt.InputError, match=r"the reward is 2 at .*, outside the declared range"):
        pt.sources.logs(from_pandas(engine, frame, request), task)


def test_no_engine_is_asked_for_more_rows_than_32_bits_can_count():
    class Lazy:
        """A table that takes limits as Spark does."""

        columns = ("s",)
        to_native = collect = lambda self: self

        def head(self, most):
            assert most < 2**31
            return self

        def get_column(self, name):
            return self

        def to_arrow(self):
            return list(self.columns)

    for limit in (10, 2**31 - 2, 2**31 - 1, 2**32 - 2):
        assert list(frames.batches(Lazy(), limit)) == [{"s": ["s"]}]


@pytest.mark.parametrize(
    "said",
    [
        "Caused by: java.lang.OutOfMemoryError: Java heap space",
        "is bigger than spark.driver.maxResultSize",
        "Job 2 cancelled because SparkContext was shut down",
    ],
)
def test_a_small_driver_is_no_fault_of_the_data(said, monkeypatch):
    raised = type("Py4JJavaError", (Exception,), {"__module__": "py4j.protocol"})
    with (
        pytest.raises(
            pt.InputError,
            match=r'memory of its driver does not suffice.*spark.driver.memory.*columns=\{"order": None\}',
        ),
        frames.readable(),
    ):
        raise raised(f"An error occurred while calling o1.getResult, {said}")
    monkeypatch.setitem(sys.modules, "pyspark", None)
    with pytest.raises(pt.InputError, match="memory of its driver"), frames.readable():
        raise ConnectionRefusedError


@EVERY
def test_sums_of_counts_do_not_wrap_around(engine, request):
    frame = pd.DataFrame({"s": [0] * 5, "a": 0, "s_next": 1, "count": 2**62 - 1})
    with pytest.raises(pt.InputError, match="adds up to 2"):
        pt.sources.logs(from_pandas(engine, frame, request), TASK)


def episode_table(seed=0):
    """Rows of 200 episodes in no particular order; `order` says which, and restarts in each episode."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 9, 200)
    episode = np.repeat(np.arange(200), lengths)
    rows = pd.DataFrame({"episode": [f"visit {one}" for one in episode]})
    rows["order"] = np.concatenate([np.arange(length) for length in lengths])
    rows["reward"], rows["propensity"] = rng.random(len(rows)), rng.uniform(0.1, 1.0, len(rows))
    rows["target"] = rng.random(len(rows))
    return rows, rows.sample(frac=1.0, random_state=seed)


@EVERY
def test_the_same_episodes(engine, request):
    """Weights row by row, returns by a group-by in the engine: both as from the columns themselves."""
    rows, mixed = episode_table()
    about = {"horizon": 8, "reward_range": (0, 1)}
    by_id = {one: at for at, one in enumerate(dict.fromkeys(rows["episode"]))}
    data = from_pandas(engine, mixed, request)
    log = pt.sources.logged_episodes(data, **about)
    plain = pt.LoggedEpisodes(rows["episode"], rows["reward"], rows["propensity"], rows["target"], **about)
    assert (log.n_episodes, len(log), log.weighted) == (200, len(rows), True)
    at_zero = mixed["episode"][mixed["order"] == 0]
    if engine not in ("dask", "spark"):  # whose rows have no order of their own
        order = [by_id[one] for one in at_zero]
        np.testing.assert_allclose(log.outcomes.above, plain.outcomes.above[order])
        np.testing.assert_allclose(log.outcomes.below, plain.outcomes.below[order])
    np.testing.assert_allclose(np.sort(log.outcomes.above), np.sort(plain.outcomes.above))
    own = pt.sources.logged_episodes(data, columns={"propensity": None, "target": None}, **about)
    assert (own.n_episodes, len(own), own.weighted, own.horizon) == (200, len(rows), False, 8)
    totals = rows.groupby("episode")["reward"].sum()
    np.testing.assert_allclose(own.outcomes.above, totals.sort_index().to_numpy())  # by id: all begin at order 0
    assert own.bounds == (0.0, 8.0)
    with pytest.raises(pt.InputError, match=r"reward is .*outside reward_range \(0, 0.5\)"):
        pt.sources.logged_episodes(data, columns={"propensity": None, "target": None}, horizon=8, reward_range=(0, 0.5))
