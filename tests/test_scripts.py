"""The benchmarks run, at their smallest size, and the README's example as it stands, so that they cannot rot."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent


def run(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_readmes_example_runs_and_prints_what_it_says(tmp_path):
    text = (ROOT / "README.md").read_text()
    code = text.split("```python\n")[1].split("```")[0]
    script = tmp_path / "readme.py"
    script.write_text(code)
    shown = run(str(script)).strip().splitlines()
    promised = [
        line.split("# ", 1)[1].strip() for line in code.splitlines() if line.startswith("print(") and "# " in line
    ]
    assert shown == promised


def test_the_worst_case_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    shown = run("benchmarks/worst_case.py", "--small", "--json", str(target))
    numbers = json.loads(target.read_text())
    assert "heuristic/cold" in shown
    assert [row["states"] for row in numbers["sparse"]] == [20, 100]
    assert all(row["best"] <= row["uniform"] for row in numbers["allocation"])


def test_the_sequential_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    shown = run("benchmarks/sequential.py", "--small", "--json", str(target))
    numbers = json.loads(target.read_text())
    assert "test/check" in shown
    assert all(row["wrong"] == 0 for row in numbers["table"])
    assert all(row["calls"] < row["samples"] / 5 for row in numbers["calls"])
    assert all(row["samples"] < row["exact"] for row in numbers["printed"])  # the heuristic stops early


def test_the_certificate_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/certificate.py", "--small", "--json", str(target))
    numbers = json.loads(target.read_text())
    assert all(row["proved"] for row in numbers["papers"])
    assert all(0 <= row["extra"] < 0.5 for row in numbers["price"])


def test_the_sample_efficiency_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/sample_efficiency.py", "--small", "--json", str(target))
    numbers = json.loads(target.read_text())
    mean = {cell["method"]: cell["mean"][1] for cell in numbers["cells"]}
    assert mean["Combined (default)"] < 0.5 * mean["PTST, paper's boundary"]
    assert mean["Combined (default)"] < 0.1 * mean["Monte Carlo, betting"]
    assert all(wrong == 0 for cell in numbers["cells"] for wrong in cell["wrong"])
    assert all(row["right"] for row in numbers["large"])


def test_the_interval_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/intervals.py", "--small", "--json", str(target))
    rows = {row["method"]: row for row in json.loads(target.read_text())}
    assert all(row["width"][1] <= row["width"][0] for row in rows.values())
    assert rows["betting"]["width"][1] < 0.5 * rows["returns, Bernstein"]["width"][1]


def test_the_comparison_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/comparison.py", "--small", "--json", str(target))
    assert all(row["compare"] < row["two tests"] and not row["wrong"] for row in json.loads(target.read_text()))


def test_the_environments_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/environments.py", "--small", "--json", str(target))
    numbers = json.loads(target.read_text())
    assert "rewards -1 and -100" in numbers["refused"]
    assert len(numbers["table"]) == 4
    assert all(row["wrong"] == 0 for row in numbers["table"])


def test_the_benchmark_of_logs_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/logs.py", "--small", "--json", str(target))
    rows = {row["case"]: row for row in json.loads(target.read_text())}
    assert all(row["rows"] == row["total"] == 20_000 for row in rows.values())
    assert len({row["entries"] for name, row in rows.items() if name in ("Parquet", "CSV")}) == 1


def test_the_benchmark_of_scale_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/scale.py", "--small", "--json", str(target))
    small, large = json.loads(target.read_text())
    assert small["answer"] == large["answer"] == "above"
    assert small["certified"]
    assert large["certified"]
    assert 16 <= large["bytes"] / large["nonzeros"] < 24


def test_the_planning_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    shown = run("benchmarks/planning.py", "--small", "--json", str(target))
    rows = json.loads(target.read_text())
    assert "by the standard error of the gap" in shown
    assert len(rows) == 6 * 4
    assert all(0.3 < row["mean"] / row["true"] < 3 for row in rows)
    assert all(0.7 < row["at_truth"] / row["true"] < 1.4 for row in rows if row["method"].startswith("PTST"))


def test_intervals_and_balls_hold_what_they_should_and_the_controls_are_caught(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/interval_coverage.py", "--small", "--json", str(target))
    rows = json.loads(target.read_text())
    assert {row["kind"] for row in rows} == {"ball", "interval"}
    for row in rows:
        assert row["alarm"] == (row["rule"] in ("no dimension", "ball, half a nat", "betting, five nats more")), row


def test_the_identification_benchmark_runs_small(tmp_path):
    target = tmp_path / "numbers.json"
    run("benchmarks/identification.py", "--small", "--json", str(target))
    rows = {row["method"]: row for row in json.loads(target.read_text())}
    assert all(row["wrong"] == 0 for row in rows.values())
    assert rows["betting"]["certified"] == 2
    assert rows["KL, uniform"]["certified"] == 0
    assert rows["KL, uniform"]["mean"] < 0.2 * rows["KLB-TS"]["mean"]


def test_delta_is_kept_and_the_control_is_caught(tmp_path):
    """Error frequencies with the value next to the threshold; the same alarm must ring for a broken rule."""
    target = tmp_path / "numbers.json"
    run("benchmarks/calibration.py", "--small", "--json", str(target))
    rows = json.loads(target.read_text())
    assert {row["rule"] for row in rows} >= {"paper", "mixture", "two priors", "adaptive", "forward", "no dimension"}
    assert {row["rule"] for row in rows} >= {"betting", "betting, 5 draws", "combined", "range too small"}
    for row in rows:
        assert row["alarm"] == (row["rule"] in ("no dimension", "range too small", "too little")), row
