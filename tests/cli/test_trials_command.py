"""Commands about a table of trials: answers, exit codes, what is left out, and a table that grows."""

from __future__ import annotations

import json
import threading
import time

import numpy as np
import pytest

from policytest.cli import main


@pytest.fixture(scope="module")
def table(tmp_path_factory):
    """Three robots, two tasks, 30 seeds."""
    rng, rates = np.random.default_rng(0), {"new": 0.85, "old": 0.4, "older": 0.35}
    lines = ["policy,task,seed,success"]
    for seed in range(30):
        for task in ("lift", "push"):
            lines += [f"{name},{task},{seed},{int(rng.random() < rate)}" for name, rate in rates.items()]
    file = tmp_path_factory.mktemp("trials") / "trials.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def run(capsys, *words):
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_one_is_better_than_the_other(table, capsys, tmp_path):
    code, out, err = run(capsys, "compare", table, "--a", "new", "--b", "old", "--html", tmp_path / "page.html")
    assert code == 0
    assert out.startswith("new is better than old (certified)")
    assert "30 rounds of 2 tasks" in out
    assert "at delta = 0.05/2 each" in out
    assert err.splitlines()[-2:] == [  # with an empty cache, a line before them says that something is compiled
        "Columns: agent=policy, outcome=success, task=task, pair=seed.",
        "Left out: 60 rows of older.",
    ]
    assert "new is better than old" in (tmp_path / "page.html").read_text()
    assert run(capsys, "compare", table, "--a", "old", "--b", "new", "--quiet")[0::2] == (1, "")
    assert run(capsys, "compare", table, "--a", "old", "--b", "older")[0] == 3


def test_named_columns_a_margin_a_budget_one_task_and_json(table, capsys):
    named = "--column", "agent=policy", "--column", "outcome=success", "--column", "pair=", "--task", "lift"
    asked = "compare", table, "--a", "new", "--b", "old", *named, "--budget", "30", "--json"
    code, out, err = run(capsys, *asked)
    found = json.loads(out)
    assert (code, found["answer"], found["episodes"], found["rivals"]) == (0, "above", 30, ["new", "old"])
    assert "by_task" not in found
    assert "Left out: 90 rows of other tasks." in err
    assert "pairs in their order" in found["provenance"]["method"]
    assert run(capsys, *asked, "--margin", "0.9")[0] == 1
    assert run(capsys, *asked, "--ratio", "1", "2")[0] in (0, 3)


def test_one_agent_against_a_threshold(table, capsys):
    code, out, _ = run(capsys, "assess", table, "--a", "new", "--threshold", "0.5")
    assert code == 0
    assert out.startswith("The success rate over all tasks is above the threshold")
    assert run(capsys, "assess", table, "--a", "old", "--threshold", "0.7")[0] == 1
    assert run(capsys, "assess", table, "--a", "new", "--threshold", "0.5", "--task", "lift", "--budget", "30")[0] == 0


def test_the_best_of_all_or_of_some(table, capsys):
    code, out, err = run(capsys, "identify", table)
    assert (code, out.splitlines()[0]) == (0, "new is the best (certified)")
    assert "Left out" not in err
    assert "trials, out" in out
    code, out, err = run(capsys, "identify", table, "--candidate", "old", "--candidate", "older")
    assert code == 3
    assert "Left out: 60 rows of new." in err
    assert "still in: old, older" in err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("compare", "{}", "--a", "new", "--b", "odl"),
            "there is no agent 'odl' in column policy; did you mean 'old'?",
        ),
        (("compare", "{}"), "the table has the agents new, old, older; say which is asked about: --a NAME"),
        (("compare", "{}", "--a", "new"), "the table has the agents new, old, older; say which to compare with: --b"),
        (("compare", "{}", "--a", "new", "--b", "new"), "--a and --b are both 'new'"),
        (("compare", "{}", "other.toml"), "is a table of trials; in place of other.toml, name its agents with --a and"),
        (
            ("compare", "{}", "--a", "new", "--b", "old", "--max-samples", "9"),
            "--max-samples is not for recorded",
        ),
        (("compare", "{}", "--a", "new", "--b", "old", "--method", "ptst"), "--method is not for recorded trials"),
        (
            ("compare", "{}", "--a", "new", "--b", "old", "--column", "outcome=seed"),
            "pass --return-range LOW HIGH",
        ),
        (("compare", "{}", "--a", "new", "--b", "old", "--column", "pair=task"), "with --column pair="),
        (("compare", "paper-2", "paper-3", "--a", "new"), "--a is for a table of trials, and paper-2 is not one"),
        (("compare", "paper-2"), "the other policy is missing: name it after the model"),
        (
            ("compare", "gym:CartPole-v1", "--assume", "episodes", "--agent", "agents:pole"),
            "the other agent is missing: name it after the model, as in compare gym:CartPole-v1 OTHER",
        ),
        (
            ("compare", "{}", "--a", "new", "--b", "old", "--task", "lift", "--task", "pusch"),
            "no row has the task 'pusch' (column task); did you mean 'push'?",
        ),
        (("assess", "{}", "--a", "new"), "no threshold: pass --threshold R"),
        (
            ("assess", "{}", "--threshold", "0.5"),
            "name the agent that is asked about with --a NAME",
        ),
        (("assess", "shop.toml", "{}", "--budget", "5"), "--budget is for a table of trials; name the agent"),
        (("identify", "paper-2", "--task", "lift"), "--task is for a table of trials"),
        (("identify", "{}", "--agent", "agents:pole"), "--agent is not for recorded trials"),
        (("watch", "paper-2", "{}", "--margin", "1"), "--margin is for a table of trials"),
    ],
)
def test_what_does_not_fit_is_refused(words, message, table, capsys):
    code, out, err = run(capsys, *(word.format(table) for word in words))
    assert (code, out) == (2, "")
    assert message in err


def test_a_table_that_grows_is_followed_to_its_answer(table, capsys, tmp_path):
    lines, file = table.read_text().splitlines(keepends=True), tmp_path / "growing.csv"
    file.write_text(lines[0] + lines[1][:-3])

    def write():
        for at in range(1, len(lines), 18):
            time.sleep(0.02)
            rest = "".join(lines[at : at + 18])
            with file.open("a") as opened:
                opened.write(rest if at > 1 else rest[len(lines[1]) - 3 :])

    writer = threading.Thread(target=write)
    writer.start()
    asked = "--a", "new", "--b", "old", "--task", "lift", "--task", "push"
    code, out, _ = run(capsys, "watch", file, *asked, "--idle", "5", "--json")
    writer.join()
    whole = json.loads(run(capsys, "compare", table, *asked, "--json")[1])
    found = json.loads(out)
    assert (code, found["answer"]) == (0, "above")
    assert (found["samples"], found["evidence"]) == (whole["samples"], whole["evidence"])
    assert found["episodes"] <= whole["episodes"]


def test_watching_ends_undecided_or_says_what_is_missing(table, capsys, tmp_path):
    code, out, err = run(capsys, "watch", table, "--a", "old", "--b", "older", "--no-follow")
    assert code == 3
    assert out.startswith("Undecided")
    assert "trials: evidence" in err
    file = tmp_path / "begun.csv"
    file.write_text("policy,success\nnew,1\n")
    code, _, err = run(capsys, "watch", file, "--a", "new", "--b", "old", "--no-follow")
    assert code == 2
    assert "there is no trial of old yet; there are trials of new; start again when there are some" in err
    (tmp_path / "empty.csv").write_text("policy,success\n")
    assert "there is no trial yet" in run(capsys, "watch", tmp_path / "empty.csv", "--a", "new", "--no-follow")[2]


def test_watching_says_what_it_waits_for_once(table, capsys):
    """A misspelt name is seen at once, and a task without a row is awaited: the rows to come may have it."""
    code, _, err = run(capsys, "watch", table, "--a", "new", "--b", "odl", "--task", "lift", "--idle", "0.1")
    assert (code, err.count("waiting: there is no trial of odl yet; there are trials of new, old, older")) == (2, 1)
    asked = "--a", "new", "--b", "old", "--task", "lift", "--task", "stack"
    code, _, err = run(capsys, "watch", table, *asked, "--idle", "0.1", "--quiet")
    assert code == 2
    assert "waiting" not in err
    assert "there is no trial of new in the task stack yet; there are trials in lift" in err
    code, _, err = run(capsys, "watch", table, "--a", "new", "--b", "old", "--task", "stack", "--no-follow")
    assert code == 2
    assert "there is no trial of new yet; 180 rows of other tasks left out" in err
