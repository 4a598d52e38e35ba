"""Every example runs, is short, says what it shows, and shows it."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHOWS = {
    "frozen_lake": [r"exact value of the better policy: 0\.1236", r"above 0\.06\? above", r"above 0\.2\? below"],
    "gate_deployment": [r"bar 1\.0: exit code 0 .*: deploy", r"bar 8\.0: exit code 1 .*: keep the old policy"],
    "lower_bound": [r"62\.80", r"51\.8", r"Not certified"],
    "own_simulator": [r"After 100 samples", r"The value is below the threshold \(certified\)"],
    "paper_small": [r"3x3: at delta = 0\.01 the paper's rule takes [1-9]\d times", r"wrong answers: 0 of 90"],
    "recommendation_from_logs": [r"^40 visitors.*not settled", r"more samples should settle it", r"^1000 .*above$"],
    "simulation_budget": [r"Combined: about", r"budget of 200: not settled", r"resumed: above after"],
    "treatment_safety": [r"0% .*do not release \(below", r"30% .*do not release", r"100% .*: release"],
}


def test_every_example_is_listed_on_its_page_and_here():
    names = {path.stem for path in EXAMPLES}
    assert names == set(SHOWS)
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert names == set(re.findall(r"\(\.\./examples/(\w+)\.py\)", page))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_and_shows_what_it_says(script):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 60
    assert ast.get_docstring(ast.parse(text)), "it does not say what it shows"
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    for pattern in SHOWS[script.stem]:
        assert re.search(pattern, done.stdout, re.MULTILINE), f"{pattern!r} is not in\n{done.stdout}"
