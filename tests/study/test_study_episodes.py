"""Studies of goals and horizons: values by hand, right answers, and the page."""

from __future__ import annotations

import pytest

import policytest as pt
from policytest.cli import main

CLINIC = """
states = ["ill", "dead", "well"]
actions = ["wait", "act"]
initial = {ill = 1.0}
goal = ["well"]
avoid = ["dead"]
threshold = 0.3
policy = {ill = {wait = 0.5, act = 0.5}}
[kernel]
ill = {wait = {ill = 0.5, dead = 0.35, well = 0.15}, act = {ill = 0.5, dead = 0.2, well = 0.3}}
"""
STUDY = """
deltas = [0.1, 0.05]
seeds = 3
[instances]
goal = {file = "goal.toml"}
horizon = {file = "horizon.toml"}
[methods]
betting = "TDBetting"
"""


def test_a_study_of_a_goal_with_and_without_a_horizon(tmp_path, capsys):
    """Each step leads to the goal with probability 0.225, and on with 1/2: 0.45, and 0.45 (1 - 1/32) in 5 steps."""
    (tmp_path / "goal.toml").write_text(CLINIC, encoding="utf-8")
    (tmp_path / "horizon.toml").write_text("horizon = 5\n" + CLINIC, encoding="utf-8")
    (tmp_path / "study.toml").write_text(STUDY, encoding="utf-8")
    found = pt.study.run(tmp_path / "study.toml")
    values = {row["instance"]: row["value"] for row in found.table}
    assert values == pytest.approx({"goal": 0.45, "horizon": 0.45 * (1 - 1 / 32)})
    assert [row["correct"] for row in found.table] == [True] * 12
    page = tmp_path / "page.html"
    assert main(["study", str(tmp_path / "study.toml"), "--quiet", "--html", str(page)]) == 0
    assert "horizon: value 0.435938, threshold 0.3" in capsys.readouterr().out
    assert "and the lower bound" in page.read_text(encoding="utf-8")
    alone = STUDY.replace('horizon = {file = "horizon.toml"}\n', "")
    (tmp_path / "alone.toml").write_text(alone, encoding="utf-8")
    assert main(["study", str(tmp_path / "alone.toml"), "--quiet", "--html", str(page)]) == 0
    assert "and the lower bound" not in page.read_text(encoding="utf-8")  # none is known without a horizon
