"""Every benchmark runs at its smallest size, every example and the README's as they stand, so that they cannot rot.

They run in this process, which has its kernels; `__file__`, the arguments and the output are those of a script.
"""

from __future__ import annotations

import ast
import html
import json
import math
import re
import runpy
import shlex
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import policytest as pt
from paths import ROOT
from policytest.cli import main

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
SHOWS = {
    "cure_in_time": [
        r"^the truth: 0\.953 are cured",
        r"^30 patients: above 0\.8\? not settled",
        r"^300 patients: above 0\.8\? above",
    ],
    "episode_return": [
        r"horizon +100 +steps",
        r"mean return above \S+ above after",
        r"mean return above \S+ below after",
        r"stepped, rewards as they are paid: above 0\.1\? above",
    ],
    "frozen_lake": [r"exact value of the better policy: 0\.1236", r"above 0\.06\? above", r"above 0\.2\? below"],
    "gate_deployment": [r"bar 1\.0: exit code 0 .*: deploy", r"bar 8\.0: exit code 1 .*: keep the old policy"],
    "hospital": [r"^6698 rows in"],
    "median_returns": [
        r"^The median return is above .* \(certified\)",
        r"^of the mean return: below",
        r"give or take 0\.04",
    ],
    "lower_bound": [r"62\.80", r"51\.8", r"Not certified"],
    "model_checking": [
        r"^slow: P>=0\.9 \[F \"goal\"\] +above \(proved.*0\.9516",
        r"^slow: P>=0\.9 \[F<=6 .*below \(proved.*0\.7940",
        r"^fast: P>=0\.9 \[F \"goal\"\] +below \(proved.*0\.8337",
    ],
    "noisy_revenue": [
        r"^20 customers: above 110\? not settled",
        r"^600 customers: above 110\? above",
        r"^refused: row \d+, order \d+, episode '7': the reward is \d+ at .*, outside the declared range \[0, 60\]",
    ],
    "own_simulator": [r"After 100 samples", r"The value is below the threshold \(certified\)"],
    "paper_small": [r"3x3: at delta = 0\.01 the paper's rule takes [1-9]\d times", r"wrong answers: 0 of 90"],
    "recommendation_from_logs": [
        r"^40 visitors.*not settled",
        r"more rows like these should settle it",
        r"^1000 .*above$",
    ],
    "retention": [r"^21192 rows in"],
    "robot": [r"^60000 rows in .*, 200 cells"],
    "robot_trials": [r"^360 trials in trials\.csv", r"new against old: above, after 30 of", r"best of three: new"],
    "simulation_budget": [r"TDBetting: about", r"budget of 200: not settled", r"resumed: above after"],
    "treatment_safety": [r"0% .*do not release \(below", r"30% .*do not release", r"100% .*: release"],
}


@pytest.fixture
def run(monkeypatch, capsys):
    """Runs a script, which must end with 0; its output."""

    def call(script, *arguments):
        monkeypatch.chdir(ROOT)
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        monkeypatch.setattr(sys, "path", [str((ROOT / script).parent), *sys.path])
        capsys.readouterr()
        code = 0
        try:
            runpy.run_path(str(script), run_name="__main__")
        except SystemExit as end:
            code = end.code
        shown = capsys.readouterr()
        assert not code, shown
        return shown.out

    return call


@pytest.fixture
def small(run, tmp_path):
    """The output of a benchmark at its smallest size, and the numbers that it wrote."""

    def call(name):
        shown = run(f"benchmarks/{name}.py", "--small", "--json", tmp_path / "numbers.json")
        return shown, json.loads((tmp_path / "numbers.json").read_text())

    return call


# ---------------------------------------------------------------- examples


def test_the_readmes_example_prints_what_it_says(run, tmp_path):
    code = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[1].split("```")[0]
    (tmp_path / "readme.py").write_text(code, encoding="utf-8")
    shown = run(tmp_path / "readme.py").strip().splitlines()
    lines = [line for line in code.splitlines() if line.startswith("print(") and "# " in line]
    assert shown == [line.split("# ", 1)[1].strip() for line in lines]


def test_the_readmes_agent_is_tested_as_it_says(run, tmp_path, monkeypatch):
    """With a stand-in for Stable-Baselines3, whose `PPO.load` returns an object with `predict`."""
    code = (ROOT / "README.md").read_text(encoding="utf-8").split("```python\n")[2].split("```")[0]
    loaded = []

    class PPO:
        @classmethod
        def load(cls, path):
            loaded.append(path)
            return cls()

        def predict(self, observation, state=None, episode_start=None, deterministic=False):
            return np.int64(observation[2] + 0.3 * observation[3] > 0), state

    monkeypatch.setitem(sys.modules, "stable_baselines3", SimpleNamespace(PPO=PPO))
    (tmp_path / "readme.py").write_text(code, encoding="utf-8")
    shown = run(tmp_path / "readme.py").strip().splitlines()
    assert loaded == ["cartpole.zip"]
    assert shown == [line.split("# ", 1)[1].strip() for line in code.splitlines() if line.startswith("print(")]


def test_every_example_is_listed_on_its_page_and_here():
    names = {path.stem for path in EXAMPLES}
    assert names == set(SHOWS)
    page = (ROOT / "docs" / "examples.md").read_text(encoding="utf-8")
    assert names == set(re.findall(r"\(\.\./examples/(\w+)\.py\)", page))


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_is_short_says_what_it_shows_and_shows_it(script, run):
    text = script.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 80
    assert ast.get_docstring(ast.parse(text)), "it does not say what it shows"
    shown = run(script)
    for pattern in SHOWS[script.stem]:
        assert re.search(pattern, shown, re.MULTILINE), f"{pattern!r} is not in\n{shown}"


@pytest.mark.parametrize(
    ("name", "options", "transitions", "value"),
    [
        (
            "retention",
            "s=segment a=action s_next=next_segment order=week episode=customer reward=margin",
            21_192,
            (100.6, 0.1),
        ),
        ("hospital", "s=state a=treatment order=date episode=patient reward=outcome", 5_448, (0.961, 0.001)),
        ("robot", "s=cell a=move s_next=next_cell order=step reward=paid", 60_000, (45.3, 0.1)),
    ],
)
def test_logs_of_three_kinds_are_read_as_they_are(name, options, transitions, value, run, tmp_path):
    """With the columns that the script's own words give to the command; the value by the frequencies is as designed."""
    script = ROOT / "examples" / f"{name}.py"
    said = " ".join(re.findall(r"--column (\S+)", ast.get_docstring(ast.parse(script.read_text(encoding="utf-8")))))
    assert said == options
    run(script, tmp_path)
    task = pt.sources.load_model(tmp_path / "task.toml").task
    log = pt.sources.logs(tmp_path / "log.csv", task, columns=dict(one.split("=") for one in options.split()))
    assert len(log.transitions()) == log.counts.total == transitions
    kernel = log.counts.kernel() * task.support
    assert pt.value(task, kernel / kernel.sum(axis=2, keepdims=True)) == pytest.approx(value[0], abs=value[1])
    assert not log.selected
    assert not log.other_rewards


def test_from_the_raw_log_to_the_report_by_the_commands_of_the_page(run, tmp_path, monkeypatch, capsys):
    """Of each log: the verdict in words, its exit code, its JSON, and a report that begins with words."""
    page = (ROOT / "docs" / "logs.md").read_text(encoding="utf-8").split("### Logs to try it on")[1]
    lines = [shlex.split(line) for line in page.split("```")[1].replace("\\\n", " ").splitlines()[1:]]
    assert [words[0] for words in lines] == ["python", "policytest"] * 3
    for (_, script, folder), (_, *command) in zip(lines[::2], lines[1::2], strict=True):
        run(script, tmp_path / folder)
        monkeypatch.chdir(tmp_path)
        task = pt.sources.load_model(f"{folder}/task.toml").task
        capsys.readouterr()
        code = main([*command, "--json", "--quiet"])
        found = json.loads(capsys.readouterr().out)
        assert (code, found["answer"], found["certified"]) == (0, "above", True)
        assert found["interval"][0] < found["estimate"] < found["interval"][1]
        assert found["interval"][0] > found["threshold"]
        assert found["samples"] <= found["log"]["transitions"] <= found["log"]["rows"]
        assert not found["warnings"]
        assert not found["log"]["selected"]
        words, pictures, _ = Path(f"{folder}.html").read_text(encoding="utf-8").partition("<svg")
        assert pictures
        words = html.unescape(re.sub(r"\s+", " ", re.sub(r"<style.*?</style>|<[^>]+>", " ", words, flags=re.DOTALL)))
        asked = f"Is the value of this policy above {found['threshold']:g}?"
        first = f"The policy: {task.states[0]}: {task.actions[int(task.policy[0].argmax())]}; "
        rows = f"Data: {found['log']['transitions']:,} transitions from 1 file."
        places = [
            words.index(part)
            for part in ("Yes. Its value is above", "What was asked", asked, first, rows, "In pictures")
        ]
        assert places == sorted(places)
        if folder == "ward":  # without --json the same, in words
            assert main(command) == code
            shown = capsys.readouterr()
            assert shown.out.startswith("The value is above the threshold (certified)")
            assert f"answered after {found['samples']:,} transitions of {found['log']['transitions']:,}" in shown.err


# ---------------------------------------------------------------- benchmarks


def test_worst_case(small):
    shown, numbers = small("worst_case")
    assert "heuristic/cold" in shown
    assert [row["states"] for row in numbers["sparse"]] == [20, 100]
    assert all(row["best"] <= row["uniform"] for row in numbers["allocation"] + numbers["sparse allocation"])
    assert all(0.999 * row["best"] <= row["at least"] for row in numbers["sparse allocation"])


def test_sequential(small):
    shown, numbers = small("sequential")
    assert "test/check" in shown
    assert all(row["wrong"] == 0 for row in numbers["table"])
    assert all(row["calls"] < row["samples"] / 5 for row in numbers["calls"])
    assert all(row["samples"] < row["exact"] for row in numbers["printed"])  # the heuristic stops early


def test_budget(small):
    shown, numbers = small("budget")
    assert "law, side" in shown
    assert all(0 <= row["used_aimed"] <= 1 for part in ("bars", "laws", "environments") for row in numbers[part])
    assert all(row["pairs"] <= row["budget"] for row in numbers["pairs"])
    assert all(0.5 < row["aimed"] < row["plain"] for row in numbers["intervals"])


def test_parallel(small):
    shown, numbers = small("parallel")
    assert "one by one" in shown
    assert all(row["same"] and row["killed"] > 0 for row in numbers["episodes"].values())
    assert all(row["right"] == 1 and row["all"] < 1.5 for row in numbers["critic"].values())
    assert all(row["calls"] < 0.8 * row["samples parallel"] for row in numbers["tables"].values())
    assert all(row["calls"] < 0.8 * row["parallel"] for row in numbers["samples"].values())
    assert numbers["errors"]["32"]["control"] > 0.5 > numbers["errors"]["32"]["errors"]


def test_unknown_ranges(small):
    _, numbers = small("unknown_ranges")
    assert {"Pendulum-v1", "trades"} <= {row["environment"] for row in numbers["sides"]}
    asked = [row[side] for row in numbers["sides"] for side in ("above", "below") if side in row]
    assert sum(one["right"] for one in asked) > len(asked)  # of two each
    assert sum(one["wrong"] for one in asked) <= 1
    ways = {row["way"].partition(",")[0]: row["above" if "above" in row else "below"] for row in numbers["sides"]}
    assert {way: one["certified"] for way, one in ways.items() if way in ("large samples", "clipped")} == {
        "large samples": False,
        "clipped": True,
    }
    assert sum(row["way"].startswith("t interval") for row in numbers["truth"]) >= 2


def test_budget_calibration(small):
    shown, rows = small("budget_calibration")
    assert "as it should be" in shown.splitlines()
    assert [row["kind"] for row in rows if row["alarm"]] == ["looks first"]


def test_large_sample(small):
    shown, numbers = small("large_sample")
    assert "NOT AS IT SHOULD BE" not in shown
    assert [row["law"] for row in numbers["five"]][:2] == ["normal", "uniform"]
    assert all(row["covered"] > 0.85 > row["control"] for row in numbers["five"])
    assert all(row["large sample, not answered"] == 0 for row in numbers["power"])


def test_trials(small):
    shown, numbers = small("trials")
    assert "old ones each" in shown
    assert all(row["budget, pairs"] <= 200 for row in numbers["robots"])
    assert [row["product"] < row["mean"] for row in numbers["tasks"]] == [False, True]
    assert numbers["surplus"][0]["pairs"] == numbers["surplus"][0]["ratio"]


def test_trials_calibration(small):
    shown, rows = small("trials_calibration")
    assert "as it should be" in shown.splitlines()
    assert {row["trials"] for row in rows if row["alarm"]} == {
        "sorted first",
        "by its partner",
        "best tasks",
        "not named",
    }


def test_one_look(small):
    _, numbers = small("one_look")
    assert all(row["covers"] >= 0.8 for row in numbers["table"])


def test_propensities(small):
    _, numbers = small("propensities")
    assert all(numbers[f"misses, {kind}"] <= 0.5 for kind in ("weights", "bound", "critics"))
    assert max(numbers["episodes at V = R"]) <= 0.5
    assert max(numbers["control: propensities after the fact"]) > 0.5
    assert all(numbers[f"one look, {kind}"] >= 0.8 for kind in ("returns", "weighted episodes"))
    for bound in ("0.05, true", "0.001, true, two actions", "0.0005, true, three actions"):
        above, below, refused = numbers[f"bound {bound}"]
        assert max(above, below) <= 0.5
        assert refused == 0
    assert all(numbers[f"bound {bound}, where 0.05 is true"] == [0, 0, 1] for bound in (0.5, 0.9))
    assert numbers["bound the smallest in the log, two actions"][2] > 0.1
    assert sum(numbers["bound control: the smallest in the log, three actions"][:2]) > 0.3
    first, _, last = numbers["widths"]["weights"]
    assert last < first


def test_ladder(small):
    _, numbers = small("ladder")
    assert len(numbers) == 8
    assert all(share == 0 for name, share in numbers.items() if "states: no" in name)
    assert any(share > 0 for name, share in numbers.items() if "states: yes" in name)


def test_cells(small):
    _, rows = small("cells")
    assert [row["environment"].split(",")[0] for row in rows] == ["CartPole", "MountainCar", "particle"]
    assert all(row["certified"] == 0 for row in rows)
    assert all(abs(row["model"] - row["truth"]) > 0.5 for row in rows)  # else there is no wrong answer to be had


def test_settled_logs(small):
    _, numbers = small("settled_logs")
    assert {row["method"] for row in numbers["table"]} == {"default", "one set"}
    assert sum(row["settled"] for row in numbers["table"] if row["method"] == "default") >= 4
    assert not any(row["wrong"] for row in numbers["table"])


def test_episodes(small):
    _, numbers = small("episodes")
    assert [row["side"] for row in numbers["table"]] == ["above", "below"] * 2
    for row in numbers["table"]:
        assert row["wrong"] == row["unfinished"] == 0
        assert row["episodes"] > 0.4 * row["forward"]  # the bound is one of small gaps


def test_certificate(small):
    _, numbers = small("certificate")
    assert all(row["proved"] for row in numbers["papers"] + numbers["growth"])
    assert all(0 <= row["extra"] < 0.5 for row in numbers["price"])


def test_sample_efficiency(small):
    _, numbers = small("sample_efficiency")
    mean = {cell["method"]: cell["mean"][1] for cell in numbers["cells"]}
    assert mean["TDBetting (default)"] < 0.5 * mean["PTST, paper's boundary"]
    assert mean["TDBetting (default)"] < 0.1 * mean["Monte Carlo, betting"]
    assert all(wrong == 0 for cell in numbers["cells"] for wrong in cell["wrong"])
    assert all(row["right"] for row in numbers["large"])


def test_fewer_samples(small):
    _, numbers = small("fewer_samples")
    worn = "rare event with wear"
    asked = [(worn, "above"), (worn, "below"), ("paper 5x5", "above"), ("shop", "above")]
    assert [(row["instance"], row["side"]) for row in numbers["answers"]] == asked
    for row in numbers["answers"]:
        assert row["wrong"] == row["peer wrong"] == row["default"]["cut"] == 0
        assert row["default"]["mean"] > 0.5 * row["bound"]
        # T* log(1/delta) against T* kl(delta, 1-delta): no growth a draw is larger than 1/T*
        assert row["known"] > 0.99 * math.log(20) / (0.9 * math.log(19)) * row["bound"]
    assert [row["instance"] for row in numbers["widths"]] == ["shop"]
    assert all(0.5 < row["ratio"] < 20 for row in numbers["widths"])
    assert all(row["missed"] <= 0.7 for row in numbers["missed"])  # of 10 runs at delta = 0.2: one in a thousand


def test_rare_events_do_not_ruin_the_bets(small):
    shown, rows = small("rare_events")
    least = [float(number) for number in re.search(r"below (-[\d.]+); with a discount (-[\d.]+)", shown).groups()]
    assert len(rows) == 8
    for row in rows:
        assert not row["stuck"]
        assert not row["wrong"]
        assert least[0 if "whole_paths" in row else 1] - 0.01 < row["lowest"] < 0.0


def test_held_out_instances_are_of_the_same_families(monkeypatch):
    """Of each family another one, with thresholds on both sides; those that are tuned on are unchanged."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = runpy.run_path(str(ROOT / "benchmarks" / "fewer_samples.py"))
    for question in script["held_out"]():
        assert min(question.thresholds) < question.value < max(question.thresholds)
    assert script["corner_grid"]().task.n_states == 36
    assert [question.name.split()[0] for question in script["held_out"]()] == ["grid", "Garnet", "dense"]


def test_whole_paths(small):
    shown, numbers = small("whole_paths")
    assert "geometric mean" in shown
    rows = numbers["table"]
    assert [row["side"] for row in rows] == ["above", "below"] * 4
    for row in rows:
        assert row["default"]["stuck"] == row["default"]["wrong"] == 0
        assert (row["threshold"] < row["value"]) == (row["side"] == "above")
        assert 0.5 < row["paths"][0] / (row["wanted"] * row["length"]) < 4  # the rule for thresholds
        assert row["paths drawn"][0] <= row["paths"][0]


def test_the_tasks_beside_whole_paths(monkeypatch):
    """There are enough of them; Storm's values of its models are ours; plain paths have the values of their tasks."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    script = runpy.run_path(str(ROOT / "benchmarks" / "whole_paths.py"))
    folder = ROOT / "benchmarks" / "models"
    asked, values = (json.loads((folder / f"{name}.json").read_text("utf-8")) for name in ("questions", "values"))
    made, others = script["tasks"](), script["development"]()
    assert len(made) >= 30
    assert not made.keys() & others.keys(), "what judges chooses nothing"
    assert len(asked) == 20
    assert sum(path.stat().st_size for path in folder.iterdir() if path.is_file()) < 1_000_000
    for name, question in asked.items():
        instance = made[question["words"]]()
        assert pt.value(instance.task, instance.kernel) == pytest.approx(values[name], abs=1e-9)
    chosen = "two dice", "inventory, 15 days", "two states pay, discounted", "cost of a project, bounded"
    for make in (*(made[words] for words in chosen), *others.values()):
        paths = script["Paths"](make())
        returns, steps, drawn = paths.walker(np.random.default_rng(3), 4000)
        error = returns.std() / math.sqrt(len(returns))
        assert abs(returns.mean() - paths.value) < 4 * error
        assert abs(steps.mean() - paths.length) < 4 * steps.std() / math.sqrt(len(steps)) + 1e-9
        assert (drawn <= steps).all()
        assert paths.ends[0] - 1e-9 <= returns.min() <= returns.max() <= paths.ends[1] + 1e-9


def test_the_best_bets_on_one_toss_are_kellys(monkeypatch):
    """One draw decides: the growth of the best bet is the divergence of the two coins, whichever side is right."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    best_bets = runpy.run_path(str(ROOT / "benchmarks" / "best_bets.py"))
    kernel, rewards = np.zeros((3, 1, 3)), np.zeros((3, 1, 3))
    kernel[0, 0], kernel[1, 0, 1], kernel[2, 0, 2], rewards[0, 0, 1] = [0.0, 0.7, 0.3], 1.0, 1.0, 1.0
    task = pt.Task(rewards, np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9, kernel > 0, terminal=[1, 2])
    for R in (0.5, 0.6, 0.8):
        divergence = 0.7 * math.log(0.7 / R) + 0.3 * math.log(0.3 / (1 - R))
        found = best_bets["transitions_if_known"](pt.instances.Instance(task, kernel), R, 0.05)
        assert found == pytest.approx(math.log(20) / divergence, rel=0.02)


def test_intervals(small):
    rows = {row["method"]: row for row in small("intervals")[1]}
    assert all(row["width"][1] <= row["width"][0] for row in rows.values())
    assert rows["betting"]["width"][1] < 0.5 * rows["returns, Bernstein"]["width"][1]


def test_comparison(small):
    assert all(row["compare"] < row["two tests"] and not row["wrong"] for row in small("comparison")[1])


def test_environments(small):
    _, numbers = small("environments")
    assert "rewards -1 and -100" in numbers["refused"]
    assert len(numbers["table"]) == 4
    assert all(row["wrong"] == 0 for row in numbers["table"])


def test_any_environment(small):
    shown, numbers = small("any_environment")
    assert [row["side"] for row in numbers["one"]] == ["above", "below"] * 2
    assert all(row["wrong"] <= 1 for row in numbers["one"] + numbers["two"])
    assert all(2 * row["episodes"] < row["two_tests"] for row in numbers["two"])
    assert "| Blackjack-v1 | sticks at 17 |" in shown
    assert all(0 <= row["near"] <= 1 for row in numbers["plan"])


def test_vectors(small):
    shown, rows = small("vectors")
    assert len(rows) == 8
    assert all(row["speed"] > 0 for row in rows)
    assert "64 environments, tested" in shown


def test_agents(small):
    shown, numbers = small("agents")
    assert {row["method"] for row in numbers["three"]} >= {"identify", "identify, budget 90", "one look"}
    certified = [row for row in numbers["three"] if row["method"].startswith("identify")]
    assert all(row["wrong"] == 0 and row["runs"] <= 92 for row in certified)
    assert numbers["gaps"]["total"] < 0.7 * numbers["gaps"]["everybody"]
    assert numbers["gaps"]["wrong"] == 0
    ours, *controls = (row["thrown out"] for row in numbers["errors"])
    assert ours < min(controls)
    assert "if nobody left" in shown


def test_logs(small):
    rows = {row["case"]: row for row in small("logs")[1]}
    assert all(row["rows"] == row["total"] == 20_000 for row in rows.values())
    assert len({row["entries"] for name, row in rows.items() if name in ("Parquet", "CSV")}) == 1
    assert rows["Parquet, observed rewards"]["mean_reward"] == pytest.approx(0.5, abs=0.02)


def test_scale(small):
    first, second = small("scale")[1]
    assert first["answer"] == second["answer"] == "above"
    assert first["certified"]
    assert second["certified"]
    assert 16 <= second["bytes"] / second["nonzeros"] < 24


def test_speed(small):
    lines = {row["line"]: row["seconds"][0] for row in small("speed")[1]}
    assert lines.keys() >= {
        "verdict",
        *(f"{n}x{n} at R, {method}" for n in (5, 2) for method in ("default", "betting")),
    }
    assert min(lines.values()) >= 0


def test_linear_solvers(small):
    shown, rows = small("linear_solvers")
    assert "| random | 400 |" in shown
    assert {row["kind"] for row in rows} == {"random", "grid"}
    assert all(row["difference"] < 1e-9 and {"policytest", "SuperLU", "spsolve"} <= set(row["seconds"]) for row in rows)


def test_planning(small):
    shown, rows = small("planning")
    assert "by the standard error of the gap" in shown
    assert len(rows) == 3 * 3
    assert all(0.3 < row["mean"] / row["true"] < 3 for row in rows)
    assert all(0.7 < row["at_truth"] / row["true"] < 1.4 for row in rows if row["method"].startswith("PTST"))


def test_intervals_and_balls_hold_what_they_should_and_the_controls_are_caught(small):
    _, rows = small("interval_coverage")
    assert {row["kind"] for row in rows} == {"ball", "interval", "budget"}
    controls = "no dimension", "ball, half a nat", "betting, five nats more", "aimed, a twentieth of losses"
    for row in rows:
        assert row["alarm"] == (row["rule"] in controls), row


def test_identification(small):
    rows = {row["method"]: row for row in small("identification")[1]}
    assert all(row["wrong"] == 0 for row in rows.values())
    assert rows["betting"]["certified"] == 2
    assert rows["KL, uniform"]["certified"] == 0
    assert rows["KL, uniform"]["mean"] < 0.2 * rows["KLB-TS"]["mean"]


def test_delta_is_kept_by_bets_on_episodes_and_the_control_is_caught(small):
    _, rows = small("episode_calibration")
    assert {row["returns"] for row in rows} >= {"rare success", "A - B"}
    for row in rows:
        assert row["alarm"] == (row["rule"] == "range too small"), row


def test_delta_is_kept_with_one_known_end_and_the_control_is_caught(small):
    _, rows = small("one_end")
    assert {row["rule"] for row in rows if "rule" in row} == {
        "as they are",
        "clipped above",
        "clipped below",
        "budget",
    }
    for row in rows:
        assert "rule" not in row or row["alarm"] == (row["rule"] == "clipped below"), row
        assert "oracle" not in row or row["oracle"] < row["as they are"] < 4 * row["oracle"], row


def test_delta_is_kept_over_the_checkpoints_of_a_training_and_habits_are_caught(small):
    _, rows = small("in_training")
    assert {row["rule"] for row in rows if row.get("alarm")} == {"mean of 10", "mean of 100"}
    assert {row["part"] for row in rows} == {"stuck", "learning"}


def test_delta_is_kept_and_the_control_is_caught(small):
    """Error frequencies with the value next to the threshold; the same alarm must ring for a broken rule."""
    _, rows = small("calibration")
    rules = {row["rule"] for row in rows}
    assert rules >= {"paper", "mixture", "two priors", "adaptive", "forward", "no dimension"}
    assert rules >= {"betting", "range too small", "log"}
    for row in rows:
        assert row["alarm"] == (row["rule"] in ("no dimension", "range too small", "too little", "left out")), row
