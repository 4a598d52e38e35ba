"""A start that the log tells: one more state, the same value, and a transition for each episode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from policytest.sources import load_model, load_policy, logs, save_model, start_from_log
from policytest.sources.logged import stream
from policytest.sources.logged.log import FIRST_ROWS
from source_builders import assert_model_refused, assert_refused, put, triples

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

S, A = 4, 2
RHO = np.array([0.5, 0.2, 0.3, 0.0])
TASK_FILE = """
states = ["new", "active", "gone"]
actions = ["wait", "offer"]
discount = 0.9
initial = "log"
terminal = ["gone"]
policy = ["offer", "wait"]
[rewards]
new = { offer = -0.2 }
active = { wait = 1.0, offer = 0.7 }
"""
LOG = """who,day,s,a,s_next,reward
2,1,active,wait,gone,1.0
1,1,new,offer,active,-0.2
1,2,active,wait,active,1.0
3,2,new,offer,gone,-0.2
1,3,active,wait,gone,1.0
"""
COLUMNS = {"episode": "who", "order": "day"}


def known_start(kind, **changes):
    """A task in which the start is RHO, and its kernel."""
    rng = np.random.default_rng(5)
    kernel = rng.dirichlet(np.ones(S), (S, A))
    rewards = rng.normal(size=(S, A) if kind == "pairs" else (S, A, S))
    rewards[3] = 0.0
    kernel[3] = np.eye(S)[3]
    support = None
    if kind == "sparse":
        rewards = sparse.csr_array(rewards.reshape(S * A, S))
        support = sparse.csr_array(np.ones((S * A, S)))
    task = pt.Task(rewards, rng.dirichlet(np.ones(A), S), RHO, 0.8, support=support, terminal=[3])
    return replace(task, **changes), kernel


@pytest.mark.parametrize("kind", ["pairs", "successors", "sparse"])
def test_the_value_is_the_mean_over_the_first_states(kind):
    task, kernel = known_start(kind)
    found = start_from_log(task)
    assert (found.n_states, found.start, found.states) == (S + 1, S, (0, 1, 2, 3, "start"))
    wide = np.zeros((S + 1, A, S + 1))
    wide[:S, :, :S], wide[S, :, :S] = kernel, RHO
    truth = sparse.csr_array(wide.reshape(-1, S + 1)) if kind == "sparse" else wide
    assert pt.value(found, truth) == pytest.approx(pt.value(task, kernel), abs=1e-12)
    for s in range(S):  # where it may begin anywhere, the range is that over all beginnings
        low, high = pt.value_range(replace(task, initial=np.eye(S)[s]))
        assert pt.value_range(found)[0] <= low + 1e-9
        assert high - 1e-9 <= pt.value_range(found)[1]
    assert start_from_log(found) is found


def test_first_rows_are_transitions_from_the_start(tmp_path):
    """In the order of the log, each before its own row; rewards are those of the file."""
    task = load_model(put(tmp_path / "task.toml", TASK_FILE)).task
    log = logs(put(tmp_path / "log.csv", LOG), task, columns=COLUMNS)
    expected = [(3, 0, 0), (0, 1, 1), (3, 0, 1), (1, 0, 2), (1, 0, 1), (3, 0, 0), (0, 1, 2), (1, 0, 2)]
    found = log.transitions()
    assert list(zip(found.s.tolist(), found.a.tolist(), found.x.tolist(), strict=True)) == expected
    assert triples(log.counts) == {one: expected.count(one) for one in expected}
    assert log.notes[0] == FIRST_ROWS
    assert not log.other_rewards
    by_episode = log.transitions(by_episode=True)
    assert by_episode.s.tolist() == [3, 0, 1, 1, 3, 1, 3, 0]
    wrong = put(tmp_path / "wrong.csv", LOG.replace("new,offer,gone,-0.2", "new,offer,gone,-0.3"))
    assert_refused(lambda: logs(wrong, task, columns=COLUMNS), "the column reward is -0.3", "the task has -0.2")
    log.save(tmp_path / "log.npz")
    assert pt.sources.Log.load(tmp_path / "log.npz", task).notes == (FIRST_ROWS,)
    assert pt.assess(task, log, threshold=100.0).answer == "below"  # beyond the range of all values
    growing = stream.Parser(task, COLUMNS).transitions([line.encode() for line in LOG.splitlines(keepends=True)])
    assert sorted(zip(growing.s, growing.a, growing.x, strict=True)) == sorted(expected)


@pytest.mark.filterwarnings("ignore:the log has 300 rows, and the first 10 of them")
@pytest.mark.parametrize("engine", ["pandas", "polars", "duckdb", "pyarrow", "dask"])
@pytest.mark.parametrize("kept", [True, False])
def test_the_same_starts_on_every_engine(engine, kept, monkeypatch):
    if not kept:
        monkeypatch.setattr("policytest.sources.logged.log.TRANSITION_LIMIT", 10)
    rng = np.random.default_rng(2)
    frame = pd.DataFrame(
        {"s": rng.integers(0, 3, 300), "a": rng.integers(0, A, 300), "s_next": rng.integers(0, 3, 300)}
    )
    frame = frame.assign(order=rng.permutation(300)).assign(episode=lambda f: f["order"] // 7)
    first = frame.sort_values("order").groupby("episode")["s"].first()
    data = {
        "pandas": lambda: frame,
        "polars": lambda: pytest.importorskip("polars").from_pandas(frame).lazy(),
        "duckdb": lambda: pytest.importorskip("duckdb").connect().from_df(frame),
        "pyarrow": lambda: pytest.importorskip("pyarrow").Table.from_pandas(frame),
        "dask": lambda: pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2),
    }[engine]()
    task = start_from_log(known_start("pairs")[0])
    if engine == "dask":
        assert_refused(lambda: logs(data, task), "cannot be found by Dask")
        return
    log = logs(data, task)
    np.testing.assert_array_equal(log.counts.N[S, 0], np.bincount(first, minlength=S + 1))
    assert log.counts.total == 300 + len(first)
    assert log.in_order()
    assert (log.frame is None) is kept


FEW = pt.LogBetting(coins=1)


def test_an_unknown_start_keeps_its_level_and_the_shares_of_the_log_do_not():
    """Only the start is unknown: half of the episodes begin well. At the value itself every answer is an error."""
    task = pt.Task(
        [[1.0], [0.0], [0.0]], np.ones((3, 1)), [0.5, 0.5, 0.0], 0.5, terminal=[2], support=[[[0, 0, 1]]] * 3
    )
    wrong = plug_in = 0
    for seed in range(20):
        first = np.random.default_rng(seed).integers(0, 2, 101)
        frame = pd.DataFrame({"s": first, "a": 0, "s_next": 2, "order": 0, "episode": range(101)})
        wrong += pt.assess(start_from_log(task), frame, 0.5, 0.1, FEW).answer is not None
        shares = np.bincount(first, minlength=3) / 101
        plug_in += pt.assess(replace(task, initial=shares), frame, 0.5, 0.1, FEW).answer is not None
    assert wrong <= 12  # two sides at 0.1 each: P(Bin(20, 0.2) > 12) < 2e-5
    assert plug_in == 20


def test_an_unknown_first_state_is_a_lost_outcome(tmp_path):
    task = load_model(put(tmp_path / "task.toml", TASK_FILE)).task
    data = pd.read_csv(put(tmp_path / "log.csv", LOG)).replace({"s": {"new": "odd"}})
    with pytest.warns(pt.AssumptionWarning, match="2 first rows dropped for s, which is the outcome"):
        log = logs(data, task, columns=COLUMNS, skip=("s",))
    assert log.selected


def test_task_files_with_an_unknown_start(tmp_path):
    path = put(tmp_path / "task.toml", TASK_FILE)
    task = load_model(path).task
    assert task.states == ("new", "active", "gone", "start")
    assert task.policy[:2].tolist() == [[0.0, 1.0], [1.0, 0.0]]
    for suffix in ("json", "toml", "npz"):
        save_model(tmp_path / f"again.{suffix}", task)
        assert load_model(tmp_path / f"again.{suffix}").task.start == 3
    policy = put(tmp_path / "policy.csv", "state,action\nnew,wait\nactive,wait\n")
    assert load_policy(policy, task)[:2].tolist() == [[1.0, 0.0], [1.0, 0.0]]
    assert load_model(path, policy=policy).task.start == 3
    given = load_model(path, initial="new").task
    assert (given.start, given.n_states) == (None, 3)
    assert load_model(put(tmp_path / "other.toml", TASK_FILE.replace("gone", "log"))).task.start is None
    for change, words in (
        (('"gone"', '"start"'), 'a state of the task is called "start"'),
        (("discount = 0.9", "discount = 0.0"), "discount is 0"),
        (("[rewards]", "[kernel]\nnew.wait = { gone = 1 }\n[rewards]"), "does not tell where episodes start"),
    ):
        assert_model_refused(put(tmp_path / "bad.toml", TASK_FILE.replace(*change)), words)
    for columns, words in (({"order": "day"}, "no column episode"), ({"episode": "who"}, "no column order")):
        assert_refused(lambda columns=columns: logs(put(tmp_path / "l.csv", LOG), task, columns=columns), words)
    assert_refused(lambda: replace(given, start=7), "start is 7; it is the index of a state, from 0 to 2")
