"""Logs whose rewards are observed: kept in order, added up, and refused where they are missing or out of range."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main
from policytest.sources.logged.stream import Parser

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("narwhals")
pytest.importorskip("pyarrow")
pl = pytest.importorskip("polars")

NAMES = np.array(["new", "active", "lost"])
FILE = """\
states = ["new", "active", "lost"]
actions = ["go", "stay"]
discount = 1
horizon = 5
initial = "new"
terminal = ["lost"]
policy = ["go", "go", "go"]
reward_range = [0, 20]
threshold = 15
"""
COLUMNS = {"reward": "paid", "order": "t"}
OPTIONS = ["--column", "reward=paid", "--column", "order=t"]
ROWS = 3000


def task(**others):
    given = {"discount": 1.0, "horizon": 5, "terminal": ["lost"], "initial": [1, 0, 0], **others}
    return pt.Task(
        pt.Observed(0, 20), np.tile([1.0, 0.0], (3, 1)), states=NAMES.tolist(), actions=["go", "stay"], **given
    )


def frame(rows=ROWS, seed=1):
    """Shuffled rows; active customers pay something between 0 and 20, others nothing."""
    rng = np.random.default_rng(seed)
    s, a = rng.integers(2, size=rows), rng.integers(2, size=rows)
    x = np.where(rng.random(rows) < 0.2, 2, 1)
    t = rng.permutation(rows)
    labels = {"s": NAMES[s], "a": np.array(["go", "stay"])[a], "s_next": NAMES[x]}
    return pd.DataFrame({**labels, "paid": 20 * rng.random(rows) * (s == 1), "t": t, "id": t // 10})


def sources(table, folder):
    """The table as frames and as files."""
    table.to_csv(folder / "log.csv", index=False)
    table.to_parquet(folder / "log.parquet")
    table.to_json(folder / "log.jsonl", orient="records", lines=True, double_precision=15)
    yield from (table, pl.from_pandas(table), pl.from_pandas(table).lazy())
    yield from (folder / name for name in ("log.csv", "log.parquet", "log.jsonl"))


def test_every_source_gives_the_rewards_in_order_and_the_verdict_of_the_transitions(tmp_path):
    table = frame()
    sorted_ = table.sort_values("t")
    s, x = (sorted_[name].map({name: i for i, name in enumerate(NAMES)}).to_numpy() for name in ("s", "s_next"))
    a, r = (sorted_["a"] == "stay").to_numpy().astype(int), sorted_["paid"].to_numpy()
    few = pt.LogBetting(coins=1)
    expected = pt.assess(task(), pt.Transitions(s, a, x, r), threshold=15, method=few)
    interval = pt.value_interval(task(), pt.Transitions(s, a, x, r), method=few)
    assert (expected.answer, expected.certified) == ("above", True)
    for data in sources(table, tmp_path):
        log = pt.sources.logs(data, task(), columns=COLUMNS)
        np.testing.assert_allclose(log.transitions().r, r, rtol=1e-9)
        found = pt.assess(task(), data, threshold=15, method=few, columns=COLUMNS)
        assert (found.answer, found.samples) == (expected.answer, expected.samples)
        found = pt.value_interval(task(), data, method=few, columns=COLUMNS)
        np.testing.assert_allclose((found.lower, found.upper), (interval.lower, interval.upper), rtol=1e-6)


def test_sums_and_counts_come_in_one_pass_with_or_without_an_order(tmp_path):
    table = frame()
    by_pair = table.groupby(["s", "a"])["paid"]
    for data in sources(table, tmp_path):
        for columns in ({"reward": "paid"}, COLUMNS):
            log = pt.sources.logs(data, task(), columns=columns)
            for i, s in enumerate(("new", "active")):
                for k, a in enumerate(("go", "stay")):
                    paid = by_pair.get_group((s, a))
                    assert log.rewards.sums[i, k] == pytest.approx(paid.sum())
                    assert log.rewards.squares[i, k] == pytest.approx((paid**2).sum())
                    assert log.rewards.means(log.counts.visits)[i, k] == pytest.approx(paid.mean())
            assert np.isnan(log.rewards.means(log.counts.visits)[2]).all()
    twice = pt.sources.logs(frame(seed=2), task(), columns=columns, add_to=log)
    alone = pt.sources.logs(frame(seed=2), task(), columns=columns)
    np.testing.assert_allclose(twice.rewards.sums, log.rewards.sums + alone.rewards.sums)
    assert pt.sources.logs(frame(seed=2), task(), columns=columns, add_to=log.counts).rewards is None


def test_a_count_stands_for_as_many_transitions_with_this_reward():
    table = pd.DataFrame({"s": ["active"] * 2, "a": "go", "s_next": "active", "reward": [3.0, 5.0], "count": [2, 4]})
    log = pt.sources.logs(table, task())
    assert log.rewards.sums[1, 0] == 2 * 3.0 + 4 * 5.0
    assert log.rewards.squares[1, 0] == 2 * 9.0 + 4 * 25.0


@pytest.mark.parametrize(
    ("reward", "said"),
    [
        (20.5, "the reward is 20.5 at (s=1 'active', a=0 'go', x=1 'active'), outside the declared range [0, 20]; fix"),
        (-1.0, "the reward is -1 at (s=1 'active', a=0 'go', x=1 'active'), outside the declared range [0, 20]; fix"),
        (np.nan, "the reward is missing; every transition needs the reward that was observed, a number in [0, 20]"),
    ],
)
def test_a_reward_that_is_missing_or_outside_its_range_names_its_row(tmp_path, capsys, reward, said):
    table = frame()
    chosen = (table["s"] == "active") & (table["a"] == "go") & (table["s_next"] == "active")
    at = np.flatnonzero(chosen)[[40, 90]]
    table.loc[at, "paid"] = reward
    t = table.loc[at[0], "t"]
    for data in sources(table, tmp_path):
        with pytest.raises(pt.InputError) as caught:
            pt.assess(task(), data, threshold=15, columns=COLUMNS)
        assert str(caught.value).startswith(f"row {at[0] + 1:,}, order {t}: {said}")
        with pytest.raises(pt.InputError) as caught:
            pt.sources.logs(data, task(), columns={"reward": "paid"})
        assert str(caught.value).startswith(f"row {at[0] + 1:,}: {said}")
    (tmp_path / "task.toml").write_text(FILE)
    for command in (["assess"], ["watch", "--no-follow", "--quiet"]):
        table.sort_index().to_csv(tmp_path / "log.csv", index=False)
        options = OPTIONS[:2] if command[0] == "watch" else OPTIONS
        argued = [command[0], str(tmp_path / "task.toml"), str(tmp_path / "log.csv"), *options, *command[1:]]
        assert main([*argued, "--threshold", "23.5"]) == 2
        told = capsys.readouterr().err.strip().splitlines()[-1]
        assert told.startswith("error: ")
        named = f"line {at[0] + 2}:" if command[0] == "watch" else f"row {at[0] + 1:,}, order {t}:"
        assert named in told
        assert "[0, 20]" in told


def test_rewards_of_actions_that_the_policy_never_takes_may_be_anything():
    table = frame()
    table.loc[table["a"] == "stay", "paid"] = 1000.0
    assert pt.assess(task(), table, threshold=15, columns=COLUMNS).answer == "above"


def test_what_is_missing_is_named(tmp_path, capsys):
    with pytest.raises(pt.InputError, match=r"has no column reward; name it with columns=\{\"reward\": \.\.\.\}"):
        pt.sources.logs(frame(10), task(), columns={"order": "t"})
    with pytest.raises(pt.InputError, match="has no column reward"):
        pt.sources.logs(frame(10).rename(columns={"paid": "reward"}), task(), columns={"reward": None})
    for ask in (lambda log: pt.assess(task(), log, threshold=15), lambda log: pt.value_interval(task(), log)):
        with pytest.raises(pt.InputError, match="pass the rows in their order: a log with a column order"):
            ask(pt.sources.logs(frame(), task(), columns={"reward": "paid"}))
    (tmp_path / "task.toml").write_text(FILE)
    frame().to_csv(tmp_path / "log.csv", index=False)
    files = [str(tmp_path / "task.toml"), str(tmp_path / "log.csv")]
    assert main(["assess", *files, *OPTIONS[:2]]) == 2
    assert "pass the rows in their order" in capsys.readouterr().err
    assert main(["assess", *files, *OPTIONS, "--save", str(tmp_path / "counts.npz")]) == 2
    assert "pass the rows in their order" in capsys.readouterr().err
    assert main(["watch", *files, "--no-follow"]) == 2
    assert "line 1: the rewards of the task are observed, and it has no column reward" in capsys.readouterr().err


def test_the_commands_speak_as_the_library_does(tmp_path, capsys):
    (tmp_path / "task.toml").write_text(FILE)
    table = frame().sort_values("t")
    table.to_csv(tmp_path / "log.csv", index=False)
    files = [str(tmp_path / "task.toml"), str(tmp_path / "log.csv")]
    expected = pt.assess(task(), table, threshold=15, columns=COLUMNS).samples
    for command in (["assess"], ["watch", "--no-follow"]):
        assert main([command[0], *files, *OPTIONS, *command[1:], "--json"]) == 0
        assert f'"samples": {expected}' in capsys.readouterr().out


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_where_the_log_tells_the_start_rewards_are_those_of_the_old_states(discount):
    """Rewards of rows are those that were paid, whatever the task makes of them."""
    table = frame().sort_values("t")
    free = pt.sources.start_from_log(task(discount=discount))
    columns = {**COLUMNS, "episode": "id"}
    log = pt.sources.logs(table, free, columns=columns)
    found = log.transitions()
    starts = found.s == free.start
    assert starts.sum() == table["id"].nunique()
    assert (found.r[starts] == 0).all()
    np.testing.assert_allclose(found.r[~starts], table["paid"], rtol=1e-9)
    lines = Parser(free, {**columns, "s_next": "s_next"}).transitions(
        table.to_csv(index=False).encode().splitlines(keepends=True)
    )
    np.testing.assert_allclose(lines.r, found.r, rtol=1e-9)


def test_visits_without_a_next_state_earn_on_the_way_to_the_next_row():
    """The last row of an episode is in a terminal state and earns nothing; its reward may be missing."""
    visits = pd.DataFrame(
        {
            "s": ["new", "active", "lost", "new", "lost"],
            "a": ["go", "go", None, "go", None],
            "reward": [1.0, 7.0, None, 2.0, None],
            "order": [0, 1, 2, 3, 4],
            "episode": [1, 1, 1, 2, 2],
        }
    )
    log = pt.sources.logs(visits, task())
    assert log.transitions().r.tolist() == [1.0, 7.0, 2.0]
    visits.loc[1, "reward"] = 21.0
    with pytest.raises(pt.InputError, match=r"^order 1, episode 1: the reward is 21 at"):
        pt.sources.logs(visits, task())
