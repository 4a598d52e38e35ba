"""Studies of episodes: an agent in an environment, a function, and beside them a table."""

from __future__ import annotations

import math

import policytest as pt
from builders import assert_refused, each
from policytest.cli import main

AGENTS = """
def left(observation):
    return 0

def run(rng):
    return rng.random() < 0.7
"""
STUDY = """
deltas = [0.1, 0.01]
seeds = 3
[instances.pole]
episodes = "gym:CartPole-v1"
agent = "study_agents:left"
reward_range = [0, 1]
horizon = 50
threshold = 20
[instances.poles]
episodes = "gym:CartPole-v1"
agent = "study_agents:left"
vector = 4
return_range = [0, 500]
threshold = 20
[instances.coin]
episodes = "python:study_agents:run"
return_range = [0, 1]
value = 0.7
threshold = 0.5
[instances.two]
paper = 2
[methods.returns]
instances = ["pole", "poles", "coin"]
[methods.betting]
instances = ["two"]
"""


def test_a_study_of_episodes_beside_a_table(tmp_path, monkeypatch, capsys):
    """A pole that is always pushed to the left falls after about 9 steps; a coin shows heads in 7 of 10 throws."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "study_agents.py").write_text(AGENTS, encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    assert main(["study", "study.toml", "--quiet", "--out", "kept", "--html", "page.html"]) == 0
    found = pt.study.run("study.toml", store="kept")  # nothing is run again
    answers = {(row["instance"], row["answer"], row["correct"]) for row in found.table}
    assert answers == {
        ("pole", "below", None),
        ("poles", "below", None),
        ("coin", "above", True),
        ("two", "above", True),
    }
    assert len(found.table) == 4 * 3 * 2
    assert all(row["certified"] for row in found.table)
    assert math.isnan(found.table[0]["value"])
    said = capsys.readouterr().out
    assert "pole: value unknown, threshold 20" in said
    assert "coin: value 0.7, threshold 0.5" in said
    (tmp_path / "study.toml").write_text(STUDY.replace("vector = 4", "vector = 3"), encoding="utf-8")
    assert_refused(lambda: pt.study.run("study.toml", store="kept"), "another study")


def test_episodes_in_python():
    coin = pt.Episodes(lambda rng: float(rng.random() < 0.3), return_range=(0, 1))
    found = pt.study.run(
        {
            "instances": {"coin": coin},
            "methods": {"mine": pt.ReturnBetting()},
            "deltas": [0.1],
            "seeds": 4,
            "threshold": 0.5,
        }
    )
    assert [row["answer"] for row in found.table] == ["below"] * 4
    expected = pt.decide(coin, threshold=0.5, delta=0.1, rng=pt.study.stream("coin", 2))
    assert found.table[2]["samples"] == expected.samples


@each(
    ("instance", "method", "words"),
    [
        ({"episodes": "python:math:sin", "return_range": [0, 1]}, "ReturnBetting", ["instances.x", "no threshold"]),
        ({"episodes": 3, "threshold": 1.0}, "ReturnBetting", ["instances.x", "gym:CartPole-v1"]),
        ({"episodes": "CartPole-v1", "threshold": 1.0}, "ReturnBetting", ["gym:CartPole-v1"]),
        ({"episodes": "gym:CartPole-v1", "threshold": 1.0, "agnet": 1}, "ReturnBetting", ["agnet", "agent"]),
        ({"episodes": "gym:CartPole-v1", "threshold": 1.0}, "ReturnBetting", ["no agent; add agent ="]),
        ({"episodes": "python:math:no", "threshold": 1.0}, "ReturnBetting", ["math has no 'no'"]),
        (
            {"episodes": "python:math:sin", "return_range": [0, 1], "threshold": 0.5},
            "PTST",
            ["ReturnBetting", "instances"],
        ),
        (
            {"episodes": "python:math:sin", "return_range": [0, 1], "threshold": 0.5},
            {"method": "PTST", "allocation": [[1.0]]},
            ["ReturnBetting", "instances"],
        ),
        ({"paper": 2}, "ReturnBetting", ["is a Markov task"]),
    ],
)
def test_what_does_not_fit_is_refused(instance, method, words):
    description = {"instances": {"x": instance}, "methods": {"m": method}, "deltas": [0.1], "seeds": 1}
    assert_refused(lambda: pt.study.sweep(description), *words)


def test_a_time_limit_begins_no_further_run_and_the_same_call_goes_on(tmp_path):
    described = {"instances": ["paper-2"], "methods": ["TDBetting"], "deltas": [0.1], "seeds": 3}
    first = pt.study.run(described, tmp_path / "kept", jobs=1, max_seconds=0)
    assert first.missing == 2
    assert not first.complete
    whole = pt.study.run(described, tmp_path / "kept", jobs=1, max_seconds=600)
    assert whole.complete
    assert whole.table == pt.study.run(described, jobs=1).table
    assert_refused(lambda: pt.study.run(described, max_seconds=-1), "max_seconds is -1")
