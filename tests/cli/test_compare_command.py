"""``policytest compare`` and ``policytest identify``: methods, zones, checkpoints, progress, and errors."""

from __future__ import annotations

import html
import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import policytest as pt
from policytest.cli import main
from policytest.questions.logged_policy import logged_task
from policytest.sources import load_model
from policytest.sources.tasks.files import save_model
from policytest.sources.tasks.policy_files import load_policy


@pytest.fixture
def models(tmp_path, monkeypatch):
    """Two files, a.json and b.json, whose policies differ; the current folder is theirs."""
    monkeypatch.chdir(tmp_path)
    two = pt.instances.paper(2)
    task = two.task
    save_model("a.json", task, two.kernel)
    save_model("b.json", pt.Task(task.rewards, two.alternative_policy, task.initial, task.discount), two.kernel)
    return tmp_path


def found(capsys):
    return json.loads(capsys.readouterr().out)


def test_compare_by_each_method(models, capsys):
    assert main(["compare", "a.json", "b.json", "--json"]) == 0
    assert found(capsys)["certified"] is True
    assert main(["compare", "a.json", "b.json", "--method", "ptst", "--allocation", "adaptive", "--json"]) == 3
    said = found(capsys)
    assert (said["answer"], said["certified"]) == ("above", False)
    assert main(["compare", "a.json", "b.json", "--method", "ptst", "--accept-uncertified", "--quiet"]) == 0
    assert "No reliable answer: the answer rests on a local optimum" in capsys.readouterr().out


def test_compare_ends_within_its_zone(models, capsys):
    assert main(["compare", "a.json", "b.json", "--margin", "0.2", "--indifference", "2.0", "--json"]) == 5
    assert found(capsys)["answer"] == "within"


def test_compare_is_continued_from_its_checkpoint(models, capsys):
    command = ["compare", "a.json", "b.json", "--checkpoint", "run.npz", "--json"]
    assert main([*command, "--max-samples", "50"]) == 3
    assert "run.npz holds the run" in capsys.readouterr().err
    assert main(command) == 0
    assert found(capsys)["samples"] > 50
    assert main(["compare", "b.json", "a.json", "--checkpoint", "run.npz"]) == 2
    assert "resume" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--method", "boxes"], "--method"),
        (["--method", "betting", "--allocation", "uniform"], "--allocation"),
        (["--allocation", "optimal"], "--allocation optimal"),
        (["--method", "ptst", "--indifference", "0.1"], "--indifference"),
        (["--delta", "2"], "delta"),
    ],
)
def test_wrong_options_are_named(models, capsys, options, words):
    assert main(["compare", "a.json", "b.json", *options]) == 2
    assert words in capsys.readouterr().err


@pytest.mark.parametrize("method", ["betting", "ptst", "klb-ts"])
def test_identify_by_each_method(capsys, method):
    code = main(["identify", "paper-2", "--method", method, "--json", "--quiet"])
    assert code == (3 if method == "ptst" else 0)  # no reliable answer: not certified
    said = found(capsys)
    assert np.argmax(said["policy"], axis=1).tolist() == [0, 1]
    assert said["certified"] == (method != "ptst")
    assert main(["identify", "paper-2", "--method", method, "--max-samples", "20", "--quiet"]) == 3
    assert "Undecided" in capsys.readouterr().out


def test_identify_names_and_tells(models, capsys):
    two = pt.instances.paper(2)
    task = pt.Task(
        two.task.rewards, two.task.policy, two.task.initial, 0.9, states=["hall", "yard"], actions=["a", "b"]
    )
    save_model("named.json", task, two.kernel)
    assert main(["identify", "named.json", "--delta", "1e-9"]) == 0
    shown = capsys.readouterr()
    assert "hall: a, yard: b" in shown.out
    assert "samples" in shown.err
    assert main(["identify", "named.json", "--allocation", "optimal"]) == 2
    assert "--allocation optimal" in capsys.readouterr().err
    assert main(["identify", "named.json", "--method", "klb-ts", "--allocation", "uniform"]) == 2
    assert "--allocation" in capsys.readouterr().err


def test_policies_from_files(models, capsys):
    """B as a policy file says the same as B as a model; of two candidates the better one is found."""
    for name in "ab":
        pt.sources.save_policy(f"{name}.csv", pt.sources.load_model(f"{name}.json").task.policy)
    assert main(["compare", "a.json", "b.json", "--json", "--quiet"]) == 0
    expected = json.loads(capsys.readouterr().out)
    assert main(["compare", "a.json", "b.csv", "--json", "--quiet"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
    assert main(["identify", "a.json", "--candidate", "b.csv", "--candidate", "a.csv", "--json", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert json.loads(out)["index"] == 1
    assert "policy 1 is a.csv" in err
    assert main(["identify", "a.json", "--candidate", "none.csv"]) == 2
    assert main(["compare", "a.json", "none.csv"]) == 2


def test_a_log_is_compared_evaluated_and_searched(here, capsys):
    """What Python says of the same rows; and what belongs to sampling, or to logs, is refused without the other."""
    assert main(["init", "shop"]) == 0
    model = load_model("shop/task.toml")
    rows = pt.sources.logs("shop/log.csv", model.task).transitions()
    other = replace(model.task, policy=load_policy("shop/policy.csv", model.task))
    capsys.readouterr()
    arguments = ("shop/task.toml", "--log", "shop/log.csv", "--json", "--quiet")
    code = main(["compare", *arguments[:1], "shop/policy.csv", *arguments[1:]])
    said, expected = found(capsys), pt.compare(model.task, other, rows)
    assert (said["answer"], said["samples"]) == (expected.answer, expected.samples)
    assert code == {"above": 0, "below": 1, None: 3}[expected.answer]
    assert main(["evaluate", *arguments, "--epsilon", "2"]) == 0
    said, interval = found(capsys), pt.value_interval(model.task, rows)
    assert said["interval"] == [interval.lower, interval.upper]
    code = main(["identify", *arguments, "--candidate", "shop/policy.csv", "--candidate", "shop/policy.csv"])
    assert (code, found(capsys)["settled"]) == (0, [1, 1])
    for wrong, words in (
        (("--column", "s=s"), "belong to --log"),
        (("--log", "shop/log.csv", "--simulator", "a:b"), "--simulator is for sampling"),
        (("--log", "shop/log.csv", "--max-samples", "5"), "--max-samples is for a simulator"),
    ):
        assert main(["compare", "shop/task.toml", "shop/policy.csv", *wrong]) == 2
        assert words in capsys.readouterr().err


def test_an_undecided_comparison_on_a_log_is_forecast(here, capsys):
    """The same forecast on the terminal, in JSON and on the page; none without an undecided log."""
    assert main(["init", "shop"]) == 0
    capsys.readouterr()
    lines = Path("shop/log.csv").read_text(encoding="utf-8").splitlines(keepends=True)
    Path("early.csv").write_text("".join(lines[:201]), encoding="utf-8")
    asked = ("compare", "shop/task.toml", "shop/policy.csv", "--log", "early.csv", "--margin", "0.2")
    assert main([*asked, "--html", "page.html"]) == 3
    shown = capsys.readouterr().out
    assert main([*asked, "--json", "--quiet"]) == 3
    words = found(capsys)["still_needed"]["words"]
    assert "more rows" in words
    assert words in shown
    assert html.unescape(words) in html.unescape(Path("page.html").read_text(encoding="utf-8"))
    assert main(["compare", "shop/task.toml", "shop/policy.csv", "--max-samples", "5", "--json", "--quiet"]) == 3
    assert found(capsys)["still_needed"] is None


def test_the_logged_policy_on_the_command_line(here, capsys, tmp_path):
    """What Python says; the result, the report and stderr say what it rests on."""
    assert main(["init", "shop"]) == 0
    model = load_model("shop/task.toml")
    rows = pt.sources.logs("shop/log.csv", model.task).transitions()
    capsys.readouterr()
    expected = pt.compare(model.task, "logged", rows)
    log = ("--log", "shop/log.csv")
    code = main(["compare", "shop/task.toml", "logged", *log, "--json", "--html", "page.html"])
    out, err = capsys.readouterr()
    said = json.loads(out)
    assert (said["answer"], said["samples"]) == (expected.answer, expected.samples)
    assert said["assumptions"] == list(expected.task.assumptions)
    assert code == {"above": 0, "below": 1, None: 3}[expected.answer]
    words = "olicy B is given by the action frequencies of the log"
    assert words in err
    assert words in Path("page.html").read_text(encoding="utf-8").partition("<svg")[0]
    assert main(["evaluate", "shop/task.toml", "--policy", "logged", *log, "--epsilon", "2", "--json"]) == 0
    said, task = found(capsys), logged_task(model.task, rows)
    kernel = rows.counts(task, len(rows)).kernel(task)
    assert said["interval"][0] < pt.value(task, kernel) < said["interval"][1]
    assert said["assumptions"] == list(task.assumptions)
    candidates = ["--candidate", "shop/policy.csv", "--candidate", "logged"]
    assert main(["identify", "shop/task.toml", *candidates, *log, "--json", "--quiet"]) in (0, 3)
    policies = [load_policy("shop/policy.csv", model.task), "logged"]
    best = pt.identify(
        model.task.rewards,
        model.task.initial,
        model.task.discount,
        rows,
        policies=policies,
        support=model.task.support,
    )
    said = found(capsys)
    assert (said["index"], said["settled"]) == (best.index, [best.settled, 1])
    for command in (
        ["compare", "shop/task.toml", "logged"],
        ["evaluate", "shop/task.toml", "--policy", "logged", "--epsilon", "1"],
        ["identify", "shop/task.toml", "--candidate", "logged"],
    ):
        assert main(command) == 2
        assert "logged is the policy of a log; name its files with --log" in capsys.readouterr().err


def test_rewards_of_a_log_are_checked_wherever_the_second_policy_goes(here, capsys):
    two = pt.Task([[1.0, 0.0]] * 2, [[1.0, 0.0]] * 2, [1.0, 0.0], 0.5, states=["on", "off"], actions=["a", "b"])
    save_model("task.toml", two)
    Path("log.csv").write_text("s,a,s_next,order,reward\non,a,on,1,1\non,b,on,2,7\n", encoding="utf-8")
    pt.sources.save_policy("b.csv", np.array([[0.0, 1.0]] * 2), two)
    for other in ("logged", "b.csv"):
        assert main(["compare", "task.toml", other, "--log", "log.csv"]) == 2
        assert "reward is 7" in capsys.readouterr().err
        assert main(["compare", "task.toml", other, "--log", "log.csv", "--column", "reward=", "--json"]) in (0, 3)
        said = found(capsys)
        assert (said["certified"], said["other_rewards"]) == (False, True)
