"""``policytest assess`` by the episodes of a log: without a task file, with one, and beside the Markov table."""

from __future__ import annotations

import json

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main

pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

TASK = """
states = ["here", "gone"]
actions = ["mail", "call"]
discount = 0.9
threshold = 1.0
terminal = ["gone"]
initial = {here = 1}
[policy]
here = {mail = 0.2, call = 0.8}
gone = "mail"
[rewards]
here = {call = 1}
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    """A task, and a log of uniformly random actions; visitors leave with probability 0.3."""
    folder, rng, rows = tmp_path_factory.mktemp("episodes"), np.random.default_rng(0), []
    for episode in range(150):
        gone = False
        while not gone:
            gone, call = bool(rng.random() < 0.3), int(rng.random() < 0.5)
            ends, acts = ("here", "gone")[gone], ("mail", "call")[call]
            rows.append(f"{episode},{len(rows)},here,{acts},{ends},{call},0.5,{0.8 if call else 0.2}")
    (folder / "log.csv").write_text("\n".join(["episode,order,s,a,s_next,reward,propensity,target", *rows, ""]))
    (folder / "task.toml").write_text(TASK)
    return folder


def run(capsys, *arguments):
    capsys.readouterr()
    code = main([str(part) for part in arguments])
    out, err = capsys.readouterr()
    return code, out, err


def test_a_log_without_a_task(place, capsys):
    """The same answer as in Python, for the target policy and for the policy at work."""
    asked = ("--discount", "0.9", "--reward-range", "0", "1", "--threshold")
    for assume, columns in (("propensities", {}), ("episodes", {"propensity": None, "target": None})):
        log = pt.sources.logged_episodes(place / "log.csv", columns=columns, discount=0.9, reward_range=(0, 1))
        for bar in (0.7, 4.0):
            verdict = pt.assess(log, threshold=bar)
            arguments = ("assess", place / "log.csv", "--assume", assume, *asked, bar)
            code, out, _ = run(capsys, *arguments, "--json")
            found = json.loads(out)
            assert found == json.loads(verdict.to_json())
            assert (code, found["answer"]) == ((0, "above") if bar == 0.7 else (1, "below"))
            assert found["episodes"] == 150
            code, out, _ = run(capsys, *arguments)
            assert out.startswith(f"The mean return is {verdict.answer} the threshold (certified)")
            assert "mean return, one look" in out
            reached = f"reached after {verdict.samples:,} of its {verdict.counts.total:,} rows"
            assert (reached in out) == (verdict.samples < verdict.counts.total)
            assert "under way" not in out


def test_a_bound_of_propensities_is_checked_and_never_ignored(place, capsys):
    """What the log contradicts is refused with the row of the file, and so is a bound without propensities."""
    asked = ("--discount", "0.9", "--reward-range", "0", "1", "--threshold", "0.7", "--smallest-propensity")
    arguments = ("assess", place / "log.csv", "--assume", "propensities", *asked)
    code, _, err = run(capsys, *arguments, "0.6")
    assert code == 2
    assert "error: row 1, episode '0': the propensity is 0.5; it is below --smallest-propensity; pass a bound" in err
    assert "leave --smallest-propensity out" in err
    code, out, _ = run(capsys, *arguments, "0.5")
    assert code == 0
    assert "no action, logged or not, had a propensity below 0.5, which was known before the data" in out
    code, _, err = run(capsys, "assess", place / "log.csv", "--assume", "episodes", *asked, "0.5")
    assert code == 2
    assert "--smallest-propensity needs propensities; use --assume propensities or --ladder" in err
    ladder = ("assess", place / "task.toml", place / "log.csv", "--ladder", "--column", "target=")
    assert run(capsys, *ladder, "--smallest-propensity", "0.6")[0] == 2
    assert run(capsys, *ladder, "--smallest-propensity", "0.5")[0] == 0


def test_a_task_gives_discount_rewards_threshold_and_target(place, capsys, tmp_path):
    page = tmp_path / "report.html"
    arguments = ("assess", place / "task.toml", place / "log.csv", "--assume", "propensities")
    code, out, _ = run(capsys, *arguments, "--column", "target=", "--json", "--html", page)
    found = json.loads(out)
    assert (code, found["answer"], found["threshold"]) == (0, "above", 1.0)
    task = pt.sources.load_model(place / "task.toml").task
    log = pt.sources.logged_episodes(place / "log.csv", columns={"target": None}, task=task)
    assert found["interval"] == list(pt.assess(log, threshold=1.0).interval)
    text = page.read_text()
    assert "Each propensity is the probability with which its action was drawn" in text
    assert "150 episodes with propensities" in text


def test_the_ladder_beside_the_table(place, capsys, tmp_path):
    page = tmp_path / "report.html"
    code, out, _ = run(capsys, "assess", place / "task.toml", place / "log.csv", "--ladder", "--html", page)
    assert code == 0
    assert "By assumption: intervals of error 0.025 each" in out
    assert "episodes with propensities" in out
    assert "What each assumption gives" in page.read_text()
    found = json.loads(run(capsys, "assess", place / "task.toml", place / "log.csv", "--ladder", "--json")[1])
    assert [rung["assumption"] for rung in found["ladder"]["rungs"]] == ["markov", "propensities"]
    assert found["ladder"]["refuted"] is False


@pytest.mark.parametrize("kind", ["csv", "jsonl", "parquet"])
def test_rows_that_only_say_that_an_episode_has_ended_are_no_steps(place, tmp_path, kind):
    """A log of visits has them, and gives the episodes of the log of transitions; also where states are cells."""
    pd = pytest.importorskip("pandas")
    data = pd.read_csv(place / "log.csv").drop(columns="target")
    last = data[data["s_next"] == "gone"].assign(s="gone", a=None, reward=np.nan, propensity=np.nan)
    visits = pd.concat([data, last.assign(order=last["order"] + 0.5)]).sort_values("order").drop(columns="s_next")
    last = last.drop(columns="s_next")
    task = pt.sources.load_model(place / "task.toml")
    states = 'states = ["gone"]\n[bins.x]\nedges = [0]\nnames = ["here", "?"]\n'
    question, _, tables = TASK.replace('states = ["here", "gone"]\n', "").partition("[policy]")
    head, _, cuts = states.partition("[bins.x]")
    (tmp_path / "cells.toml").write_text(f"{head}{question}[policy]\n'?' = 'mail'{tables}[bins.x]{cuts}")
    cells = pt.sources.load_model(tmp_path / "cells.toml")
    numbers = visits.assign(s=visits["s"].where(visits["s"] == "gone"), x=-1.0)

    def read(frame, model, **settings):
        path = tmp_path / f"log.{kind}"
        if kind == "csv":
            frame.to_csv(path, index=False)
        elif kind == "jsonl":
            frame.to_json(path, orient="records", lines=True)
        else:
            frame.to_parquet(path)
        return pt.sources.logged_episodes(path, task=model.task, bins=model.bins, **settings)

    longest = int(data.groupby("episode").size().max())
    expected = read(data, task)
    for found in (read(visits, task), read(visits, task, horizon=longest), read(numbers, cells)):
        assert (len(found), found.n_episodes, found.weighted) == (len(data), 150, True)
        np.testing.assert_array_equal(found.outcomes.above, expected.outcomes.above)
    own = {"columns": {"propensity": None}, "discount": 1.0, "horizon": longest}
    np.testing.assert_array_equal(read(visits, task, **own).outcomes.above, read(data, task, **own).outcomes.above)
    with pytest.raises(pt.InputError, match=r"has the reward 2 in the terminal state .* into the row before"):
        read(visits.assign(reward=visits["reward"].fillna(2.0)), task)
    with pytest.raises(pt.InputError, match=r"episode '?999'? begins in a terminal state, and has no step; give"):
        read(pd.concat([visits, last[:1].assign(episode=999)]), task)
    mended = last[:1].assign(episode=999, a="mail", reward=0.0, propensity=1.0)
    assert read(pd.concat([visits, mended]), task).n_episodes == 151


def test_episodes_of_another_policy_are_not_taken_as_its_own(capsys, tmp_path):
    """The shipped shop: the log is of a policy that also takes actions that the tested one never takes."""
    shop = tmp_path / "shop"
    assert run(capsys, "init", shop)[0] == 0
    asked = ("assess", shop / "paid.toml", shop / "log.csv", "--column", "reward=paid", "--quiet")
    for more in (("--ladder",), ("--assume", "episodes")):
        code, out, err = run(capsys, *asked, *more)
        assert (code, out) == (2, "")
        assert "in 1,410 of 3,022 rows the action is one that the policy of the task never takes, such as 'pop" in err
        assert "they are of another one; weigh them (--column propensity=NAME, with --ladder or --assume prop" in err
        assert "refuted" not in err
    asked = (*asked, "--method", "betting")
    assert run(capsys, *asked, "--no-diagnose")[0] == 0  # the Markov table alone, as the message says
    lines = (shop / "log.csv").read_text().splitlines()
    weighed = [lines[0] + ",mu", *(f"{line},0.3333333333333333" for line in lines[1:])]
    (shop / "log.csv").write_text("\n".join([*weighed, ""]))
    code, out, _ = run(capsys, *asked, "--ladder", "--column", "propensity=mu", "--no-diagnose")
    assert code in (0, 1)
    assert "episodes with propensities" in out


def test_without_a_range_the_answer_is_a_large_sample_one(place, capsys):
    log = (place / "log.csv", "--assume", "episodes", "--threshold", "1")
    code, out, err = run(capsys, "assess", *log)
    assert code == 3
    assert "(large-sample answer, not certified)" in out.splitlines()[0]
    assert "pass --return-range LOW HIGH, or --reward-range" in err
    named = run(capsys, "assess", *log, "--method", "large-sample", "--accept-uncertified")
    assert (named[0], named[2]) == (0, "")
    assert named[1] == out


def test_undecided_ends_with_3(place, capsys):
    arguments = ("assess", place / "task.toml", place / "log.csv", "--assume", "propensities", "--threshold", "2.2")
    code, _, err = run(capsys, *arguments)
    assert (code, err.strip()) == (3, "undecided: the data do not settle it")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ("LOG", "--assume", "episodes", "--threshold", "1", "--method", "ptst"),
            "--method ptst is for a Markov table",
        ),
        (("LOG", "--assume", "episodes", "--reward-range", "0", "1"), "no threshold: pass --threshold R"),
        (("LOG", "--assume", "episodes", "--threshold", "1", "--skip", "s"), "--skip is for a Markov table"),
        (("LOG", "--assume", "episodes", "--threshold", "1", "--goal", "x"), "--goal is for a task, and none is named"),
        (("TASK", "--assume", "episodes"), "no log: name its files after the task"),
        (("TASK",), "no log: name its files after the task"),
        (("TASK", "LOG", "--reward-range", "0", "1"), "--reward-range is for episodes; add --assume propensities"),
        (
            ("TASK", "LOG", "--assume", "propensities", "--column", "propensity=", "--column", "target="),
            "the log has no column propensity",
        ),
        (
            ("LOG", "--assume", "propensities", "--threshold", "1", "--reward-range", "0", "1", "--column", "target="),
            "name it with --column target=NAME, or name a task file before the log",
        ),
        (
            ("LOG", "--assume", "episodes", "--threshold", "1", "--reward-range", "0", "0.5", "--horizon", "99"),
            "outside --reward-range",
        ),
    ],
)
def test_what_is_wrong_ends_with_2_and_a_remedy(place, capsys, arguments, words):
    names = {"LOG": place / "log.csv", "TASK": place / "task.toml"}
    code, out, err = run(capsys, "assess", *(names.get(part, part) for part in arguments))
    assert (code, out) == (2, "")
    assert words in err


def test_a_log_is_cut_where_asked_and_ranges_may_only_warn(place, capsys):
    asked = ("assess", place / "log.csv", "--assume", "episodes", "--horizon", "2", "--threshold", "0.3")
    code, _, err = run(capsys, *asked, "--reward-range", "0", "1")
    assert code == 2
    assert "or drop the rows after it with --cut" in err
    code, out, _ = run(capsys, *asked, "--reward-range", "0", "1", "--cut", "--json")
    assert (code, json.loads(out)["answer"]) == (0, "above")
    assert "an episode counts up to its first 2 steps, where it was cut" in json.loads(out)["assumptions"]
    code, out, err = run(capsys, *asked, "--reward-range", "0", "0.9", "--cut", "--on-range", "warn")
    assert code == 3
    assert "No reliable answer: the reward of episode" in out
