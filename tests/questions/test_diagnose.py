"""Diagnostics of a log: the e-value is one, violations are found, and bad input is named."""

from __future__ import annotations

import itertools
import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import gammaln
from scipy.stats import binom

import policytest as pt
from paths import ROOT
from policytest import sources
from policytest.questions.diagnose import diagnose_grouped
from policytest.questions.independence_test import CONCENTRATIONS, GAP, Cells, grouped
from policytest.results.diagnosis import Finding, holm
from policytest.sources.logged import log as log_module


def task_of(S, A, **more):
    return pt.Task(rewards=np.zeros((S, A)), policy=np.full((S, A), 1 / A), initial=np.eye(S)[0], discount=0.9, **more)


def paths(rng, runs, steps, kernel, policy=None):
    """s, a, x [runs, steps] of chains under kernel(t, before, s, a) -> rows [runs, S], all runs at once."""
    s, before, last = np.zeros((3, runs), dtype=int)
    out = np.empty((3, runs, steps), dtype=int)
    for t in range(steps):
        a = rng.integers(2, size=runs) if policy is None else policy(before, s, rng)
        rows = kernel(t, before, last, s, a)
        x = (rows.cumsum(axis=-1) < rng.random((runs, 1))).sum(axis=-1).clip(max=rows.shape[-1] - 1)
        out[:, :, t] = s, a, x
        before, last, s = s, a, x
    return out


def diagnoses(task, found, **more):
    return [pt.diagnose(task, pt.Transitions(*found[:, run]), **more) for run in range(found.shape[1])]


P = np.random.default_rng(1).dirichlet(np.ones(3), (3, 2))


def finding(diagnosis, key):
    return next(one for one in diagnosis.findings if one.key == key)


# ---------------------------------------------------------------- the e-value


def log_e_at(p, cells, c):
    """The formula, term by term: one pair, table[u, j]."""
    rows = cells.sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        law = gammaln(c * p + cells) - gammaln(c * p) - cells * np.log(p)
    return float((gammaln(c) - gammaln(c + rows)).sum() + np.where(cells > 0, law, 0.0).sum())


def as_cells(table, pair=0):
    u, j = np.nonzero(table)
    return Cells(np.full(len(u), pair), u, j, table[u, j])


@pytest.mark.parametrize("seed", range(6))
def test_the_smallest_e_value_over_kernels_is_found(seed):
    """Against a general optimiser, in logits; the value used is below the minimum, by at most GAP."""
    rng = np.random.default_rng(seed)
    table = rng.poisson(rng.choice([0.7, 5.0, 80.0], (4, 3)))
    table[0] += 1
    bounds = list(as_cells(table)._log_e_for_all())
    for c, bound in zip(CONCENTRATIONS[::-1], bounds, strict=True):

        def at(z, c=c):
            return log_e_at(np.exp(z) / np.exp(z).sum(), table, c)

        starts = [np.zeros(3), np.log(table.sum(axis=0) + 0.1)]
        least = min(minimize(at, z, method="Nelder-Mead", options={"maxiter": 4000, "fatol": 1e-9}).fun for z in starts)
        assert least - GAP - 1e-6 <= bound[0] <= least + 1e-6


@pytest.mark.parametrize("p", [0.5, 0.2, 0.05])
def test_its_mean_is_at_most_one_even_if_labels_depend_on_the_past(p):
    """All 2^9 sequences of one pair, each label the outcome before: an exact expectation."""
    mean = 0.0
    for outcomes in itertools.product((0, 1), repeat=9):
        x = np.array(outcomes)
        cells = Cells(np.zeros(8, int), x[:-1], x[1:], np.ones(8, int))
        mean += p ** x.sum() * (1 - p) ** (9 - x.sum()) * math.exp(cells.log_e(pairs=1)[0])
    assert mean <= 1.0
    assert mean > 0.3  # and it is not empty


def test_shuffling_would_not_do():
    """Why there is no permutation test: 400 pairs seen nine times, each label the outcome before, fair coins.

    The next states are independent of the labels, but shuffled within a pair they agree with them more often.
    """
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=(4000, 9))
    agree = (x[:, :-1] == x[:, 1:]).sum()
    shuffled = [(x[:, :-1] == rng.permuted(x[:, 1:], axis=1)).sum() for _ in range(99)]
    assert agree < min(shuffled)  # p = 0.01: "the next state depends on the previous one", which is wrong
    pair = np.repeat(np.arange(4000), 8)
    ours = Cells(pair, x[:, :-1].ravel(), x[:, 1:].ravel(), np.ones(32000, int)).log_e(4000)[0]
    assert ours < 1.0


def assert_rarely_small(p_values, level):
    """At most one in a million such tests fails if the p-values are valid."""
    small = int((np.asarray(p_values) <= level).sum())
    assert binom.sf(small - 1, len(p_values), level) > 1e-6, f"{small} of {len(p_values)} are at most {level}"


def p_values_without_violation():
    """400 short logs of a Markov chain, where the actions depend on the past; and the e-values."""
    rng = np.random.default_rng(2)

    def remembers(before, s, rng):
        return (rng.random(len(s)) < np.where(before == s, 0.9, 0.2)).astype(int)

    found = paths(rng, 400, 120, lambda t, before, last, s, a: P[s, a], remembers)
    return diagnoses(task_of(3, 2), found)


def test_no_violation_no_warning():
    runs = p_values_without_violation()
    for level in (0.01, 0.05, 0.2):
        assert_rarely_small([min(one.adjusted for one in run.findings) for run in runs], level)
        for key in ("previous_state", "previous_action", "period"):
            assert_rarely_small([finding(run, key).p_value for run in runs], level)
    assert np.mean([math.exp(finding(run, "previous_state").evidence) for run in runs]) < 1.0


def test_the_usual_test_is_about_right_on_large_cells():
    x = np.random.default_rng(4).choice(3, p=[0.5, 0.3, 0.2], size=(500, 301))
    p_values = []
    for row in x:
        table = np.zeros((3, 3), int)
        np.add.at(table, (row[:-1], row[1:]), 1)
        p_values.append(as_cells(table).g_test())
    for level in (0.05, 0.5):
        assert 1e-6 < binom.cdf((np.array(p_values) <= level).sum(), 500, level) < 1 - 1e-6


def test_the_usual_test_is_not_used_where_it_misleads():
    """Many pairs with few rows: each shifts G a little, always in the same direction."""
    rng = np.random.default_rng(0)
    x = rng.integers(2, size=(4000, 41))
    pair = np.repeat(np.arange(4000), 40)
    cells = Cells(pair, x[:, :-1].ravel(), x[:, 1:].ravel(), np.ones(pair.size, int))
    assert math.isnan(cells.g_test())
    few = Cells(pair[:400], x[:10, :-1].ravel(), x[:10, 1:].ravel(), np.ones(400, int))
    assert few.g_test() > 1e-3


def test_a_hint_is_no_warning():
    found = paths(np.random.default_rng(8), 1, 1500, second_order(0.2))
    (diagnosis,) = diagnoses(task_of(3, 2), found)
    assert diagnosis.ok
    assert "Worth a look" in diagnosis.hints[0]
    assert diagnosis.hints[0] in str(diagnosis)
    assert json.loads(diagnosis.to_json())["hints"] == list(diagnosis.hints)


def test_the_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    script = ROOT / "benchmarks" / "diagnostics.py"
    subprocess.run([sys.executable, script, "--small", "--json", target], check=True, capture_output=True, timeout=300)
    numbers = json.loads(target.read_text())
    assert numbers["false_alarms"][0]["evidence"] == 0
    assert numbers["false_alarms"][0]["shuffling"] > 0.2
    assert numbers["power"][0]["g_test"] >= numbers["power"][0]["evidence"] > 0


def test_the_calibration_notices():
    """Negative control: the likelihood ratio at the empirical laws, without the price of fitting them."""
    rng = np.random.default_rng(3)
    wrong = []
    for row in rng.integers(4, size=(400, 61)):
        table = np.zeros((4, 4), int)
        np.add.at(table, (row[:-1], row[1:]), 1)
        wrong.append(math.exp(-as_cells(table).surprise.sum()))
    with pytest.raises(AssertionError):
        assert_rarely_small(wrong, 0.05)


# ---------------------------------------------------------------- violations


def second_order(strength):
    other = np.random.default_rng(5).dirichlet(np.ones(3), (3, 3, 2))
    return lambda t, before, last, s, a: (1 - strength) * P[s, a] + strength * other[before, s, a]


def test_a_second_order_chain_is_found():
    found = paths(np.random.default_rng(0), 20, 1500, second_order(0.5))
    for diagnosis in diagnoses(task_of(3, 2), found):
        assert finding(diagnosis, "previous_state").adjusted < 1e-3
        assert finding(diagnosis, "period").adjusted > 0.05
        assert "depends on the previous state" in diagnosis.warnings[0]
        assert not diagnosis.ok


def test_delayed_actions_are_found():
    flipped = P[:, ::-1]
    found = paths(
        np.random.default_rng(0),
        10,
        1500,
        lambda t, before, last, s, a: np.where((last == 1)[:, None], flipped[s, a], P[s, a]),
    )
    for diagnosis in diagnoses(task_of(3, 2, actions=["stay", "go"]), found):
        assert finding(diagnosis, "previous_action").adjusted < 1e-3
        assert "'stay'" in finding(diagnosis, "previous_action").worst.words or "'go'" in str(diagnosis)


def test_a_change_is_found_and_placed():
    late = np.random.default_rng(6).dirichlet(np.ones(3), (3, 2))
    found = paths(np.random.default_rng(0), 10, 2000, lambda t, before, last, s, a: (P if t < 500 else late)[s, a])
    for diagnosis in diagnoses(task_of(3, 2), found):
        assert finding(diagnosis, "period").adjusted < 1e-3
        assert finding(diagnosis, "period").split == 0.25
        assert finding(diagnosis, "previous_state").adjusted > 0.05
        assert "first 25% of the rows" in " ".join(diagnosis.warnings)


def test_a_slow_drift_is_found():
    late = np.random.default_rng(6).dirichlet(np.ones(3), (3, 2))
    found = paths(
        np.random.default_rng(0),
        5,
        3000,
        lambda t, before, last, s, a: (1 - t / 3000) * P[s, a] + t / 3000 * late[s, a],
    )
    for diagnosis in diagnoses(task_of(3, 2), found):
        assert finding(diagnosis, "period").adjusted < 0.01


def test_one_bad_pair_among_many_is_found_and_named():
    rng = np.random.default_rng(0)
    S, n = 200, 20_000
    s, before = rng.integers(S, size=(2, n))
    x = np.where(rng.random(n) < 0.3, (s + 1) % S, (s + 2) % S)
    x = np.where(s == 17, np.where(before < S // 2, 18, 19), x)
    cells = (before // (S // 2), np.zeros(n, int), s, np.zeros(n, int), x, np.ones(n, int))
    diagnosis = diagnose_grouped(task_of(S, 1), cells)
    worst = finding(diagnosis, "previous_state").worst
    assert finding(diagnosis, "previous_state").adjusted < 1e-6
    assert (worst.state, worst.action, worst.share) == (17, 0, 1.0)
    assert 0.3 < worst.overall < 0.7
    assert worst.transitions == (s == 17).sum()


def test_the_effect_is_the_mutual_information():
    """Two equal labels with laws (3/4, 1/4) and (1/4, 3/4): log 2 less the entropy of (1/4, 3/4)."""
    table = np.array([[75_000, 25_000], [25_000, 75_000]])
    exact = math.log(2) + 0.25 * math.log(0.25) + 0.75 * math.log(0.75)
    assert as_cells(table).effect() == pytest.approx(exact, rel=1e-4)
    assert as_cells(np.full((2, 2), 1000)).effect() == 0.0
    assert as_cells(table).g_test() < 1e-12
    assert math.isnan(as_cells(np.ones((2, 2), int)).g_test())


def testholm():
    found = holm([Finding(str(i), "", 1, -math.log(p), 0.0) for i, p in enumerate((0.03, 0.01, 0.02, 0.9))])
    assert [one.adjusted for one in found] == pytest.approx([0.06, 0.04, 0.06, 0.9])


# ---------------------------------------------------------------- what belongs together


def test_rows_and_groups_say_the_same():
    s, a, x = paths(np.random.default_rng(0), 1, 600, second_order(0.4))[:, 0]
    by_row = pt.diagnose(task_of(3, 2), pt.Transitions(s, a, x))
    lagged, n = grouped((s[:-1], a[:-1], s[1:], a[1:], x[1:]), np.ones(599, int))
    periods, m = grouped((np.arange(600) // 150, s, a, x), np.ones(600, int))
    by_group = diagnose_grouped(task_of(3, 2), (*lagged, n), (*periods, m))
    assert n.max() > 1
    assert by_group.to_json() == by_row.to_json()


def test_episodes_may_be_interleaved():
    """Two logs whose rows take turns say what they say one after the other."""
    task = task_of(3, 2)
    one, two = paths(np.random.default_rng(0), 2, 400, second_order(0.5)).transpose(1, 0, 2)
    mixed = np.stack([one, two], axis=2).reshape(3, -1)
    turns = pt.diagnose(task, pt.Transitions(*mixed), episodes=np.tile(["b", "a"], 400))
    row = pt.diagnose(task, pt.Transitions(*np.hstack([one, two])), episodes=np.repeat([1.0, 2.0], 400))
    for key in ("previous_state", "previous_action"):
        assert finding(turns, key).evidence == pytest.approx(finding(row, key).evidence)
        assert finding(turns, key).transitions == 798
    assert turns.broken == row.broken == 0


def test_rows_that_do_not_follow_each_other():
    task = task_of(3, 1)
    s, x = np.array([0, 1, 2, 0]), np.array([1, 2, 1, 1])
    data = pt.Transitions(s, np.zeros(4, int), x)
    assert finding(pt.diagnose(task, data), "previous_state").transitions == 2
    inside = pt.diagnose(task, data, episodes=[0, 0, 0, 0])
    assert inside.broken == 1
    assert "rows are missing" in inside.warnings[0]
    apart = pt.diagnose(task, data, episodes=[0, 1, 2, 3])
    assert finding(apart, "previous_state").reason == "no row follows another one"
    assert apart.ok


def test_pairs_that_do_not_matter_are_left_out():
    policy = np.array([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]])
    task = pt.Task(rewards=np.zeros((3, 2)), policy=policy, initial=[1.0, 0, 0], discount=0.5)
    early = np.arange(2000) < 1000
    s, a = np.zeros((2, 2000), int)
    a[:] = 1
    x = np.where(early, 1, 2)  # a plain change, in a pair that the policy never takes
    diagnosis = pt.diagnose(task, pt.Transitions(s, a, x))
    assert diagnosis.ok
    assert finding(diagnosis, "period").transitions == 0
    known = np.zeros((2, 1, 2), bool)
    known[:, :, 0] = True
    sure = pt.diagnose(task_of(2, 1, support=known), pt.Transitions([0, 0], [0, 0], [0, 0]))
    assert finding(sure, "period").reason


@pytest.mark.parametrize("rows", [0, 1, 2])
def test_hardly_any_data(rows):
    zeros = np.zeros(rows, int)
    diagnosis = pt.diagnose(task_of(1, 1), pt.Transitions(zeros, zeros, zeros), episodes=zeros)
    assert diagnosis.ok
    diagnosis = pt.diagnose(task_of(2, 1), pt.Transitions(zeros, zeros, zeros))
    assert diagnosis.ok
    assert all(one.p_value == 1.0 for one in diagnosis.findings)


def test_many_states_and_rows():
    """The work goes with the number of cells; nearly every cell here is seen once."""
    rng = np.random.default_rng(0)
    S, n = 1000, 100_000
    path = rng.integers(S, size=n + 1)
    diagnosis = pt.diagnose(task_of(S, 2), pt.Transitions(path[:-1], rng.integers(2, size=n), path[1:]))
    assert diagnosis.ok
    assert all(np.isfinite(one.evidence) and one.evidence <= 0.5 for one in diagnosis.findings)
    huge = (np.array([0, 1]), np.zeros(2, int), np.zeros(2, int), np.zeros(2, int), np.array([0, 1]), [10**15] * 2)
    assert diagnose_grouped(task_of(2, 1), huge).findings[0].evidence > 1e14


# ---------------------------------------------------------------- logs on their engines


def log_columns(runs=4, steps=400):
    """Episodes whose ids are not in the order of time; a column that is."""
    s, a, x = paths(np.random.default_rng(0), runs, steps, second_order(0.5)).reshape(3, -1)
    return {
        "s": s,
        "a": a,
        "s_next": x,
        "episode": np.repeat([3, 1, 2, 0][:runs], steps),
        "order": np.arange(runs * steps),
    }


def on_engine(kind, columns, path):
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("narwhals")
    frame = pandas.DataFrame(columns).sample(frac=1, random_state=0)  # in any order
    if kind in ("csv", "parquet", "jsonl"):
        file = path / f"log.{kind}"
        write, settings = {"csv": ("to_csv", {"index": False}), "parquet": ("to_parquet", {"index": False})}.get(
            kind, ("to_json", {"orient": "records", "lines": True})
        )
        getattr(frame, write)(file, **settings)
        return file
    if kind == "pyarrow":
        return pytest.importorskip("pyarrow").Table.from_pandas(frame, preserve_index=False)
    if kind == "polars":
        return pytest.importorskip("polars").from_pandas(frame).lazy()
    if kind == "dask":
        return pytest.importorskip("dask.dataframe").from_pandas(frame, npartitions=2)
    return frame if kind == "pandas" else pytest.importorskip("duckdb").from_df(frame)


@pytest.mark.parametrize("kind", ["pandas", "polars", "pyarrow", "duckdb", "dask", "csv"])
@pytest.mark.parametrize("episodes", [True, False])
def test_a_log_says_the_same_on_every_engine(kind, episodes, tmp_path):
    task, columns = task_of(3, 2, states=["x", "y", "z"]), log_columns()
    data = pt.Transitions(columns["s"], columns["a"], columns["s_next"])
    expected = pt.diagnose(task, data, columns["episode"] if episodes else None)
    named = {**columns, "s": np.array(["x", "y", "z"])[columns["s"]], "s_next": np.array(["x", "y", "z"])[data.x]}
    if not episodes:
        del named["episode"]
    log = sources.logs(on_engine(kind, named, tmp_path), task)
    assert sources.diagnose_log(task, log).to_json() == expected.to_json()
    assert not expected.ok


def test_an_order_that_begins_anew(tmp_path):
    task, columns = task_of(3, 2), log_columns()
    columns["order"] = columns["order"] % 400
    log = sources.logs(on_engine("pandas", columns, tmp_path), task)
    found = sources.diagnose_log(task, log)
    assert [one.key for one in found.findings] == ["previous_state", "previous_action"]
    assert "changes over time, since order begins with 0 in every episode" in str(found)
    by_episode = sources.diagnose_log(task, log, by_episode=True)
    order = np.lexsort((columns["order"], columns["episode"]))
    data = pt.Transitions(*(columns[name][order] for name in ("s", "a", "s_next")))
    assert by_episode.to_json() == pt.diagnose(task, data, columns["episode"][order]).to_json()


def test_rows_that_are_counts(tmp_path):
    task = task_of(3, 2)
    late = np.arange(40) >= 20
    columns = {
        "s": np.zeros(40, int),
        "a": np.zeros(40, int),
        "s_next": np.where(late, 1, 2),
        "order": np.arange(40),
        "count": np.full(40, 7),
    }
    found = sources.diagnose_log(task, sources.logs(on_engine("polars", columns, tmp_path), task))
    assert [one.key for one in found.findings] == ["period"]
    assert found.findings[0].split == 0.5
    assert found.transitions == 280
    assert "for several transitions" in json.loads(found.to_json())["notes"][0]
    both = {**columns, "order": np.arange(40) % 20, "episode": np.arange(40) // 20}
    with pytest.raises(pt.InputError, match="neither the previous row nor the time"):
        sources.diagnose_log(task, sources.logs(on_engine("pandas", both, tmp_path), task))


WHOLE, TEXT = ["pandas", "polars", "pyarrow", "duckdb", "csv"], ["csv", "jsonl"]  # files are read by duckdb
LARGE = {
    "through all episodes": ({}, [*WHOLE, "jsonl", "parquet"]),
    "without episodes": ({"episode": None}, WHOLE),
    "restarting": ({"order": lambda t: 3 + t % 400}, WHOLE),
    "times": ({"order": lambda t: np.datetime64("2026-01-01T00:00:00", "us") + t % 400}, ["pandas", "csv", "parquet"]),
    "counts": ({"count": lambda t: t % 3}, WHOLE),
    "counts, restarting": ({"count": lambda t: t % 3, "order": lambda t: t % 400}, WHOLE),
    "unknown labels": ({"a": lambda t: np.where(t % 7, t // 5 % 2, 9)}, WHOLE),
    "unknown labels of counts": ({"a": lambda t: np.where(t < 700, 9, 1), "count": lambda t: t % 5}, WHOLE),
    "broken chains": ({"s_next": lambda t: t // 3 % 3}, WHOLE),
    "one after the other": ({"episode": lambda t: t}, ["pandas", "csv"]),
    "ids by letters": ({"episode": lambda t: np.array(["10", "9", "a", "B"])[t // 400]}, WHOLE),
    "ids by size": (
        {
            "episode": lambda t: np.array(["10", "9", "09.", "-.5e1", "+7", "x", "inf", "1e999"])[t // 200],
            "order": lambda t: t % 200,
        },
        TEXT,
    ),
}


@pytest.mark.parametrize(("case", "kind"), [(case, kind) for case, (_, kinds) in LARGE.items() for kind in kinds])
def test_a_log_too_large_to_keep_says_the_same(case, kind, tmp_path, monkeypatch):
    """Its engine looks back and cuts it into periods: the same diagnosis, and the same refusals, as from kept rows."""
    task, columns = task_of(3, 2), log_columns()
    for name, change in LARGE[case][0].items():
        columns[name] = None if change is None else change(np.arange(1600))
    data = on_engine(kind, {name: column for name, column in columns.items() if column is not None}, tmp_path)

    def said(by_episode):
        try:
            return sources.diagnose_log(task, log, by_episode).to_json()
        except pt.InputError as error:
            return str(error)

    log = sources.logs(data, task, skip="a")
    kept = [said(False), said(True)]
    monkeypatch.setattr(log_module, "TRANSITION_LIMIT", 1599)
    with pytest.warns(UserWarning, match="the log has 1,600 rows, and the first 1,599"):
        log = sources.logs(data, task, skip="a")
    assert log.frame is not None
    assert [said(False), said(True)] == kept
    assert '"previous_state"' in kept[1] or "count" in columns


def test_large_logs_that_cannot_be_diagnosed(tmp_path, monkeypatch):
    monkeypatch.setattr(log_module, "TRANSITION_LIMIT", 1599)
    task, columns = task_of(3, 2), log_columns()
    with pytest.warns(UserWarning, match="the first 1,599"):
        log = sources.logs(on_engine("dask", columns, tmp_path), task)
    with pytest.raises(pt.InputError, match=r"1,600 rows.* Dask has none; pass the files themselves"):
        sources.diagnose_log(task, log)
    with pytest.warns(UserWarning, match="the first 1,599"):
        log = sources.logs(on_engine("csv", columns, tmp_path), task)
    on_engine("csv", log_columns(steps=300), tmp_path)
    with pytest.raises(pt.InputError, match="1,200 rows with known labels now, and had 1,600 when logs read it"):
        sources.diagnose_log(task, log)
    added = sources.logs(on_engine("csv", log_columns(), tmp_path), task, add_to=pt.Counts(3, 2))
    with pytest.raises(pt.InputError, match="without an order"):
        sources.diagnose_log(task, added)


def test_logs_that_cannot_be_diagnosed(tmp_path):
    task, columns = task_of(3, 2), log_columns(runs=1, steps=50)
    frame = on_engine("pandas", columns, tmp_path)
    log = sources.logs(frame, task)
    log.save(tmp_path / "log.npz")
    for call, message in (
        (lambda: sources.diagnose_log(task, sources.Log.load(tmp_path / "log.npz", task)), "without an order"),
        (lambda: sources.diagnose_log(task, sources.logs(frame.drop(columns="order"), task)), "no column order"),
        (lambda: sources.diagnose_log(task_of(2, 2), log), "other states or actions"),
        (lambda: sources.diagnose_log(task, log.counts), "log is a Counts"),
        (lambda: sources.diagnose_log(task, log, periods=1), "periods is 1"),
    ):
        with pytest.raises(pt.InputError, match=message):
            call()


# ---------------------------------------------------------------- showing, warning, refusing


def test_shown():
    s, a, x = paths(np.random.default_rng(0), 1, 1500, second_order(0.5))[:, 0]
    diagnosis = pt.diagnose(task_of(3, 2, states=["<a>", "b", "c"]), pt.Transitions(s, a, x))
    text = str(diagnosis)
    assert "the answer stays what it is" in text
    assert "information that is not in the state" in text
    assert "speak against" in text.splitlines()[0]
    assert "<a>" not in diagnosis._repr_html_()
    data = json.loads(diagnosis.to_json())
    assert data["schema"] == 1
    assert data["previous_state"]["adjusted"] == finding(diagnosis, "previous_state").adjusted
    assert data["warnings"] == list(diagnosis.warnings)
    with pytest.warns(pt.AssumptionWarning, match="not Markov"):
        diagnosis.warn()
    clean = pt.diagnose(task_of(3, 2), pt.Transitions([0], [0], [0]))
    clean.warn()  # nothing to warn of: a warning would be an error here
    assert "information that is not in the state" in str(clean)


def test_small_numbers_are_not_shown():
    """Of 30 rows of the pair 3 have the label and 4 the successor, 3 have both: so 1 has it without the label."""
    table = np.array([[26, 1], [0, 3]])
    u, x = np.nonzero(table)
    zeros = np.zeros(len(u), int)
    cells = (u, zeros, zeros, zeros, x, table[u, x])
    found = diagnose_grouped(task_of(2, 1), cells, broken=2)
    found = replace(found, level=0.999, findings=tuple(replace(one, adjusted=0.5) for one in found.findings))
    assert found.findings[0].worst.smallest() == 1
    assert "most at" in found.warnings[0]
    assert "2 rows" in found.warnings[1]
    hidden = found.shown(suppress_below=5)
    assert "most at" not in hidden.warnings[0]
    assert "A few rows" in hidden.warnings[1]
    data = json.loads(hidden.to_json())
    assert data["previous_state"]["worst"] is None
    assert data["broken"] is None
    with pytest.raises(pt.InputError, match="suppress_below is -1"):
        found.shown(-1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda t, d: pt.diagnose(d, d), "task is a Transitions"),
        (lambda t, d: pt.diagnose(t, pt.Counts(3, 2)), "counts have lost the order"),
        (lambda t, d: pt.diagnose(t, pt.Transitions([3], [0], [0])), r"data.s\[0\] is 3"),
        (lambda t, d: pt.diagnose(t, d, episodes=[1]), "episodes has shape"),
        (lambda t, d: pt.diagnose(t, d, episodes=[1.0, math.nan]), r"episodes\[1\] is nan"),
        (lambda t, d: pt.diagnose(t, d, episodes=np.array(["a", 1], dtype=object)), "cannot be compared"),
        (lambda t, d: pt.diagnose(t, d, periods=1), "periods is 1"),
        (lambda t, d: pt.diagnose(t, d, level=0), "level is 0"),
        (lambda t, d: diagnose_grouped(t, [[0]] * 5), "lagged has 5 columns"),
        (lambda t, d: diagnose_grouped(t, [[0]] * 5 + [[0.5]]), r"lagged\[5\]"),
        (lambda t, d: diagnose_grouped(t, None, [[7], [0], [0], [0], [1]]), r"by_period\[0\]\[0\] is 7"),
        (lambda t, d: diagnose_grouped(t, [[0]] * 5 + [[-1]]), r"is -1; it must"),
    ],
)
def test_bad_input_is_named(call, message):
    with pytest.raises(pt.InputError, match=message):
        call(task_of(3, 2), pt.Transitions([0, 1], [0, 1], [1, 2]))
