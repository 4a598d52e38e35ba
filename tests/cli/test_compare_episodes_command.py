"""`compare` and `plan` with --assume episodes on the command line."""

from __future__ import annotations

import json
import sys

import pytest

from policytest.cli import main

AGENTS = """
import policytest as pt

def left(observation):
    return 0

def lean(observation):
    return int(observation[2] > 0)

better, worse = (pt.Episodes(lambda rng, p=p: float(rng.random() < p), return_range=(0, 1)) for p in (0.8, 0.4))
"""
POLE = ("gym:CartPole-v1", "agents_there:left", "--assume", "episodes", "--agent", "agents_there:lean", "--quiet")
RANGE = ("--reward-range", "0", "1")
READY = ("python:agents_there:better", "python:agents_there:worse", "--assume", "episodes", "--quiet")


@pytest.fixture(autouse=True)
def there(tmp_path, monkeypatch):
    """A folder with agents."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "agents_there", raising=False)
    (tmp_path / "agents_there.py").write_text(AGENTS, encoding="utf-8")
    return tmp_path


def test_two_agents_of_one_environment(capsys):
    """The pole falls after 9 or 10 steps if pushed to the left, and after about 40 if pushed as it leans."""
    pytest.importorskip("gymnasium")
    assert main(["compare", *POLE, *RANGE, "--horizon", "60", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["answer"], told["about"]) == ("above", "difference")
    assert told["episodes"] > 3
    assert main(["compare", *POLE, *RANGE, "--horizon", "60", "--margin", "45"]) == 1
    assert "pairs of episodes" in capsys.readouterr().out


def test_two_addresses_a_report_and_an_undecided_run(tmp_path, capsys):
    assert main(["compare", *READY, "--html", "page.html"]) == 0
    page = (tmp_path / "page.html").read_text(encoding="utf-8")
    for words in ("Agent B: python:agents_there:worse", "The differences of the pairs", "return of A less that of B"):
        assert words in page
    assert main(["compare", *READY, "--max-samples", "4", "--checkpoint", "run.npz"]) == 3
    assert main(["compare", *READY, "--checkpoint", "run.npz"]) == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("compare", "paper-2", "paper-3", "--agent", "agents_there:left"), "--agent is for episodes"),
        (("compare", *READY, "--method", "ptst"), "--method ptst is for a Markov task"),
        (("compare", *READY, "--log", "log.csv"), "--log is for a Markov task"),
        (("compare", "gym:CartPole-v1", "agents_there:left", "--assume", "episodes"), "no agent"),
        (("plan", "paper-2", "--threshold", "0", "--pilot-episodes", "5"), "--pilot-episodes is for episodes"),
        (("plan", READY[0], *READY[2:], "--pilot", "log.csv", "--threshold", "0.5"), "--pilot is for a Markov task"),
        (("plan", READY[0], *READY[2:]), "no threshold"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, words, tmp_path, capsys):
    (tmp_path / "log.csv").write_text("s,a,x\n", encoding="utf-8")
    assert main(list(arguments)) == 2
    assert words in capsys.readouterr().err


def test_a_plan_from_a_pilot(capsys):
    plan = ("plan", READY[0], *READY[2:], "--threshold", "0.4", "--pilot-episodes", "30")
    assert main([*plan]) == 0
    assert "The pilot has 30 episodes with 30 transitions" in capsys.readouterr().out
    assert main([*plan, "--json", "--html", "plan.html"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["episodes"]["ReturnBetting"][0] == told["samples"]["ReturnBetting"][0]
