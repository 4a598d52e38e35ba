"""``policytest identify --assume episodes``: several agents in one environment."""

from __future__ import annotations

import json

import pytest

from policytest.cli import main

AGENTS = """
import numpy as np
import policytest as pt

def angle(seen): return int(seen[2] > 0)
def speed(seen): return int(seen[3] > 0)
def left(seen): return 0
def all_angles(seen): return (seen[:, 2] > 0).astype(int)
def all_left(seen): return np.zeros(len(seen), dtype=int)

good = pt.Episodes(lambda rng: rng.random() < 0.9, return_range=(0, 1))
bad = pt.Episodes(lambda rng: rng.random() < 0.3, return_range=(0, 1))
"""
CART = ["gym:CartPole-v1", "--assume", "episodes", "--return-range", "0", "60", "--horizon", "60"]


@pytest.fixture(autouse=True)
def players(tmp_path, monkeypatch):
    pytest.importorskip("gymnasium")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "players.py").write_text(AGENTS)


def named(*agents):
    return [word for agent in agents for word in ("--agent", f"players:{agent}")]


def test_a_table_of_agents(capsys):
    assert main(["identify", *CART, *named("left", "angle", "speed"), "--html", "page.html"]) == 0
    shown, told = capsys.readouterr()
    assert shown.startswith("players:speed is the best (certified)")
    lines = {line.split()[0]: line for line in shown.splitlines()[1:]}
    assert lines["players:left"].endswith("out")
    assert lines["players:speed"].endswith("in")
    assert "policy" not in told
    with open("page.html") as page:
        assert "Which agent is best?" in page.read()


def test_json_budget_and_a_tie(capsys):
    assert main(["identify", *CART, *named("angle", "angle"), "--budget", "20", "--quiet", "--json"]) == 3
    found = json.loads(capsys.readouterr().out)
    assert [one["name"] for one in found["agents"]] == ["players:angle (0)", "players:angle (1)"]
    assert found["budget"] == found["episodes"] == 20


def test_agents_at_addresses_of_their_own_and_vectors(capsys):
    places = ["--agent", "python:players:good", "--agent", "python:players:bad"]
    assert main(["identify", "python:players:good", "--assume", "episodes", *places, "--quiet"]) == 0
    assert capsys.readouterr().out.startswith("python:players:good is the best")
    several = [*named("all_angles", "all_left"), "--vector", "4", "--batched", "--quiet"]
    assert main(["identify", *CART, *several]) == 0
    assert capsys.readouterr().out.startswith("players:all_angles is the best")
    pair = ["compare", CART[0], "players:all_left", *CART[1:], "--agent", "players:all_angles"]
    assert main([*pair, "--vector", "4", "--batched", "--quiet"]) == 0
    assert "independent of each other" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([*CART], "no agents: name each with --agent"),
        ([*CART, *named("angle"), "--candidate", "policy.csv"], "--candidate"),
        (["paper-2", *named("angle")], "--agent is for episodes; add --assume episodes"),
        (["paper-2", "--vector", "3"], "--vector is for episodes; add --assume episodes"),
        (["paper-2", "--indifference", "0.1"], "indifference is for agents"),
        ([*CART, *named("none")], "has no 'none'"),
    ],
)
def test_what_is_wrong_is_said(options, words, capsys):
    assert main(["identify", *options]) == 2
    assert words in capsys.readouterr().err
