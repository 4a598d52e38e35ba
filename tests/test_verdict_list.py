"""The list of seeded verdicts: two runs agree, a changed file is noticed, and what a version lacks is skipped."""

from __future__ import annotations

import json
import runpy
import sys

import pytest

import policytest as pt
from paths import ROOT

SCRIPT = ROOT / "benchmarks" / "verdict_list.py"
SOME = ("decide/td_betting/paper2", "decide/ptst/short", "compare/zone/paper2")


@pytest.fixture
def ask(monkeypatch, capsys):
    """Runs the script in this process; its exit code and its output."""

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        capsys.readouterr()
        try:
            runpy.run_path(str(SCRIPT), run_name="__main__")
        except SystemExit as end:
            return end.code, capsys.readouterr().out
        return 0, capsys.readouterr().out

    return call


@pytest.fixture
def saved(ask, tmp_path):
    """A file with some entries."""
    path = tmp_path / "verdicts.json"
    assert ask("--save", path, "--only", *SOME)[0] == 0
    return path


def test_a_second_run_agrees_and_a_changed_answer_is_told(ask, saved):
    code, shown = ask("--compare", saved, "--only", *SOME)
    assert code == 0
    assert "| 0 | 0 |" in shown.strip().splitlines()[-1], "none differs, none is skipped"
    kept = json.loads(saved.read_text())
    for name, change in (("answer", lambda x: "other"), ("samples", lambda x: x + 1), ("estimate", lambda x: x + 1e-6)):
        changed = json.loads(json.dumps(kept))
        result = changed["decide/td_betting/paper2/above/seed1"]["result"]
        result[name] = change(result[name])
        saved.write_text(json.dumps(changed))
        code, shown = ask("--compare", saved, "--only", "decide/td_betting/paper2/above")
        assert code == 1
        assert f"decide/td_betting/paper2/above/seed1: result.{name} was" in shown


def test_rounding_is_no_difference_and_is_shown(ask, saved):
    kept = json.loads(saved.read_text())
    kept["decide/td_betting/paper2/above/seed1"]["result"]["estimate"] += 1e-12
    saved.write_text(json.dumps(kept))
    code, shown = ask("--compare", saved, "--only", "decide/td_betting/paper2/above")
    assert code == 0
    assert "| 1.0e-12 |" in shown


def test_what_a_version_lacks_is_skipped(ask, saved, monkeypatch):
    monkeypatch.setattr(pt, "__all__", [name for name in pt.__all__ if name != "TDBetting"])
    code, shown = ask("--compare", saved, "--only", "decide/td_betting/paper2")
    assert code == 0
    assert "| decide/td_betting | 0 | 0 | 12 |" in shown
    code, shown = ask("--compare", saved, "--only", "nothing")
    assert code == 1, "an empty comparison is no agreement"


def test_there_are_hundreds_of_entries_of_every_question(ask):
    names = ask("--list")[1].splitlines()
    assert len(names) == len(set(names)) > 700
    for part in ("decide", "compare", "evaluate", "identify", "assess", "interval", "resume", "episodes", "plan"):
        assert sum(name.startswith(f"{part}/") for name in names) >= 10, part
