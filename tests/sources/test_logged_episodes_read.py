"""Recorded episodes from files: the same in every format, sorted by order, refused with their place."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from builders import each

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("narwhals")
ABOUT = {"horizon": 4, "reward_range": (0.0, 1.0)}


def frame():
    rng = np.random.default_rng(3)
    rows = pd.DataFrame({"episode": np.repeat(np.arange(30), 4), "order": rng.permutation(120)})
    rows["reward"], rows["propensity"], rows["target"] = rng.random(120), rng.uniform(0.2, 1, 120), rng.random(120)
    rows["s"], rows["a"] = rng.choice(["new", "old"], 120), rng.choice(["mail", "call"], 120)
    return rows


def write(rows, folder, kind):
    path = folder / f"log.{kind}"
    if kind == "csv":
        rows.to_csv(path, index=False)
    elif kind == "parquet":
        rows.to_parquet(path)
    else:
        rows.to_json(path, orient="records", lines=True)
    return path


@pytest.mark.parametrize("kind", ["csv", "parquet", "jsonl"])
def test_files_are_sorted_by_their_order(tmp_path, kind):
    rows = frame()
    path, sorted_rows = write(rows, tmp_path, kind), rows.sort_values("order")
    log = pt.sources.logged_episodes(path, **ABOUT)
    expected = pt.LoggedEpisodes(
        *(sorted_rows[name] for name in ("episode", "reward", "propensity", "target")), **ABOUT
    )
    np.testing.assert_allclose(log.outcomes.above, expected.outcomes.above)
    np.testing.assert_allclose(log.outcomes.below, expected.outcomes.below)
    own = pt.sources.logged_episodes(path, columns={"propensity": None, "target": None}, **ABOUT)
    np.testing.assert_allclose(own.outcomes.above, expected.outcomes.returns)  # episodes by their first order
    discounted = pt.sources.logged_episodes(path, columns={"propensity": None, "target": None}, discount=0.5, **ABOUT)
    alone = pt.LoggedEpisodes(sorted_rows["episode"], sorted_rows["reward"], discount=0.5, **ABOUT)
    np.testing.assert_allclose(discounted.outcomes.above, alone.outcomes.above)


def test_without_episodes_each_row_is_one_in_the_order_of_the_file(tmp_path):
    rows = frame().drop(columns=["episode", "order"])
    log = pt.sources.logged_episodes(write(rows, tmp_path, "csv"), reward_range=(0, 1))
    assert (log.n_episodes, log.horizon) == (120, 1)
    np.testing.assert_allclose(log.outcomes.above, rows["reward"] * rows["target"] / rows["propensity"])


def test_the_target_is_the_policy_of_the_task(tmp_path):
    policy = np.array([[0.9, 0.1], [0.3, 0.7]])
    task = pt.Task(
        pt.Observed(0, 1), policy, [0.5, 0.5], 1.0, horizon=4, states=["new", "old"], actions=["mail", "call"]
    )
    rows = frame().drop(columns="target")
    path = write(rows, tmp_path, "csv")
    log = pt.sources.logged_episodes(path, task=task)
    at = rows.sort_values("order")
    target = policy[(at["s"] == "old").astype(int), (at["a"] == "call").astype(int)]
    expected = pt.LoggedEpisodes(at["episode"], at["reward"], at["propensity"], target, **ABOUT)
    np.testing.assert_allclose(log.outcomes.above, expected.outcomes.above)
    assert (log.discount, log.horizon, log.reward_range) == (1.0, 4, (0.0, 1.0))
    rows.loc[7, "s"] = "odd"
    with pytest.raises(pt.InputError, match=r"row 8: s is 'odd', unknown to the task"):
        pt.sources.logged_episodes(write(rows, tmp_path, "csv"), task=task)


def test_a_task_gives_the_range_of_its_rewards():
    task = pt.Task(np.array([[-1.0, 2.0], [0.0, 0.0]]), np.full((2, 2), 0.5), [1.0, 0.0], 0.9, terminal=[1])
    rows = pd.DataFrame({"episode": [0, 0, 1], "reward": [2.0, -1.0, 2.0]})
    log = pt.sources.logged_episodes(rows, task=task)
    assert log.reward_range == (-1.0, 2.0)
    assert log.discount == 0.9


def test_without_propensities_the_actions_are_those_of_the_policy(tmp_path):
    """In files and frames; in a terminal state no action is taken, whatever stands there."""
    policy = np.array([[0.9, 0.1, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 1.0]])
    names = {"states": ["new", "old", "gone"], "actions": ["mail", "call", "none"]}
    task = pt.Task(pt.Observed(0, 1), policy, [0.5, 0.5, 0.0], 1.0, horizon=4, terminal=["gone"], **names)
    rows = pd.DataFrame(
        {
            "episode": [0, 0, 0, 1, 1],
            "order": range(5),
            "s": ["new", "old", "gone", "new", "gone"],
            "a": ["call", "mail", "call", "mail", None],
            "reward": [1.0, 0.0, 0.0, 1.0, 0.0],
        }
    )
    other = rows.assign(a=["call", "call", "call", "mail", None])
    unknown = rows.assign(a=["visit", "mail", "call", "mail", None])
    for kind in (lambda table: table, lambda table: write(table, tmp_path, "csv")):
        for discount in (1.0, 0.9):  # added up by the engine, and row by row
            asked = replace(task, discount=discount)
            assert pt.sources.logged_episodes(kind(rows), task=asked).n_episodes == 2
            words = "in 1 of 4 rows the action is one that the policy of the task never takes, such as 'call' in 'old';"
            with pytest.raises(pt.InputError, match=words):
                pt.sources.logged_episodes(kind(other), task=asked)
            with pytest.raises(pt.InputError, match="such as 'visit' in 'new'"):
                pt.sources.logged_episodes(kind(unknown), task=asked)
    assert pt.sources.logged_episodes(other, reward_range=(0, 1), horizon=4).n_episodes == 2  # no policy to compare
    alone = pt.Task([[1.0], [0.0]], [[1.0]] * 2, [1.0, 0.0], 0.9, terminal=[1])
    assert pt.sources.logged_episodes(rows.assign(s=[0, 0, 5, 0, None], a=[0, 0, None, 0, None]), task=alone)
    named = rows.rename(columns={"s": "page", "a": "act"}).assign(act=other["a"])
    with pytest.raises(pt.InputError, match="never takes"):
        pt.sources.logged_episodes(named, task=task, columns={"s": "page", "a": "act"})


REFUSED = [
    ("propensity", "zero", r"row 6, episode '1': the propensity is 'zero'; an action that was drawn"),
    ("propensity", "", r"row 6, episode '1': the propensity is missing; an action"),
    ("propensity", "0", r"row 6, episode '1': the propensity is 0; an action that was drawn"),
    ("target", "1.5", r"row 6, episode '1': the target is 1.5; pass the probability"),
    ("reward", "7", r"row 6, episode '1': the reward is 7; it is outside reward_range \(0, 1\)"),
    ("reward", "none", r"row 6, episode '1': the reward is 'none'"),
    ("episode", "", r"row 6 has no episode"),
    ("order", "", r"row 6: the order is missing; every row needs a number or a time$"),
    ("order", "24.12.2026", r"row 6: the order is '24.12.2026'; .* or a time \(write dates as 2026-12-31\)"),
    ("episode", "0", r"episode '0' has 5 rows, and the horizon is 4"),
]


@each(("column", "entry", "message"), REFUSED)
def test_what_is_wrong_in_a_file_is_refused_with_its_row(column, entry, message, tmp_path_factory):
    rows = frame().astype(object)
    rows.loc[5, column] = entry
    with pytest.raises(pt.InputError, match=message):
        pt.sources.logged_episodes(write(rows, tmp_path_factory.mktemp("log"), "csv"), **ABOUT)


def test_what_is_wrong_with_the_columns_is_refused(tmp_path):
    rows = frame()
    with pytest.raises(pt.InputError, match="no column 'reward' for reward; the columns are 'episode'"):
        pt.sources.logged_episodes(rows.drop(columns="reward"), **ABOUT)
    with pytest.raises(pt.InputError, match=r"no column 'p' for propensity; .* columns=\{\"propensity\": ...\}"):
        pt.sources.logged_episodes(rows, columns={"propensity": "p"}, **ABOUT)
    with pytest.raises(pt.InputError, match="columns has the key 'propensty'"):
        pt.sources.logged_episodes(rows, columns={"propensty": "p"}, **ABOUT)
    with pytest.raises(pt.InputError, match="target and no propensity"):
        pt.sources.logged_episodes(rows.drop(columns="propensity"), **ABOUT)
    with pytest.raises(pt.InputError, match="propensity is given, and target is not"):
        pt.sources.logged_episodes(rows.drop(columns="target"), **ABOUT)
    with pytest.raises(pt.InputError, match="the column reward has the type String"):
        pt.sources.logged_episodes(rows.assign(reward="much"), **ABOUT)
    again = pd.concat([rows.iloc[:118], rows.iloc[117:118]])
    with pytest.raises(pt.InputError, match=r"has the order \d+ twice"):
        pt.sources.logged_episodes(again, horizon=9, reward_range=(0, 1))
    with pytest.raises(pt.InputError, match="data has no rows"):
        pt.sources.logged_episodes(rows.iloc[:0], **ABOUT)
