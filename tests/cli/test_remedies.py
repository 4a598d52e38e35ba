"""Every remedy that a message about a log names is typed, and it works.

A case is a log with one fault. Its messages are taken by their word: options go into the command, and a line for the
task file goes into that. What a message leaves to the person (``fix the data``), the case does. The last test collects
the remedies in the source of the log readers: there may be none that no case has met.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import policytest as pt
from policytest.cli import exit_codes, main
from policytest.cli.commands import assess as assess_command
from policytest.cli.commands import watch as watch_command
from policytest.sources import diagnose_log, load_model, logged_episodes, logs

pd = pytest.importorskip("pandas")
pytest.importorskip("duckdb")
pytest.importorskip("narwhals")

TASK = """
states = ["ill", "well", "home"]
actions = ["wait", "drug"]
discount = 0.9
threshold = 1.5
terminal = ["home"]
initial = {ill = 0.5, well = 0.5}
policy = ["drug", "wait", "wait"]
rewards = [{ s = "well", r = 1 }]
"""
CELLS = TASK.replace('["ill", "well", "home"]', '["home"]') + '[bins.glucose]\nedges = [70]\nnames = ["ill", "well"]\n'
KERNEL = np.array([[[0.7, 0.2, 0.1], [0.3, 0.4, 0.3]], [[0.2, 0.6, 0.2], [0.5, 0.4, 0.1]]])
STATES, ACTIONS = ("ill", "well", "home"), ("wait", "drug")
ASSUMED = " --assume propensities --smallest-propensity 0.5"


def table(kind="transitions"):
    """30 patients by time: transitions, visits with a last row at home, or with numbers as states; or 36 trials."""
    rng, found = np.random.default_rng(0), []
    if kind == "trials":
        rows = [(name, task, seed) for seed in range(9) for task in ("lift", "push") for name in ("new", "old")]
        return pd.DataFrame(rows, columns=["policy", "task", "seed"]).assign(success=rng.random(36) < 0.5)
    for patient in range(30):
        day, s = int(rng.integers(10)) * 100 + patient, int(rng.integers(2))
        while s < 2:
            a = int(rng.integers(2))
            x = int(rng.choice(3, p=KERNEL[s, a]))
            row = {"episode": patient, "order": day, "s": STATES[s], "a": ACTIONS[a], "s_next": STATES[x]}
            found.append({**row, "reward": float(s == 1), "propensity": 0.5, "glucose": (50.0, 90.0)[s]})
            s, day = x, day + 100
        if kind != "transitions":
            found.append({"episode": patient, "order": day, "s": "home"})
    frame = pd.DataFrame(found).sort_values("order", ignore_index=True)
    if kind == "transitions":
        return frame.drop(columns="glucose")
    frame = frame.drop(columns="s_next")
    if kind == "visits":
        return frame.drop(columns="glucose")
    return frame.assign(s=frame["s"].where(frame["s"] == "home"))


def put(frame, row, **entries):
    """The table with other entries in a row."""
    frame = frame.astype(dict.fromkeys(entries, object))
    for name, entry in entries.items():
        frame.loc[row, name] = entry
    return frame


@dataclass(frozen=True)
class Case:
    """A log with a fault, the command that meets it, and what must be among the remedies that its messages name."""

    change: Callable = lambda frame: frame
    typed: tuple[str, ...] = ()
    kind: str = "transitions"
    said: str = ""
    options: str = ""
    task: str = TASK
    command: str = "assess task.toml log.csv"
    names: dict = field(default_factory=dict)  # what NAME stands for
    second: Callable | None = None  # the change of a second file


def renamed(**names):
    return lambda frame: frame.rename(columns=names)


def dated(frame):
    return frame.assign(order=[f"{1 + at % 28:02}.03.2026 {at // 60:02}:{at % 60:02}" for at in range(len(frame))])


def second_visit(frame):
    """A row that is neither the first nor the last of its episode."""
    of = frame.groupby("episode")["order"]
    return frame.index[(of.rank() == 2) & (of.transform("size") > 3)][0]


def odd_state(frame):
    return put(frame, second_visit(frame), s="lost")


TRIALS = "compare log.csv --a new --b old"
OBSERVED = TASK.replace('rewards = [{ s = "well", r = 1 }]', "reward_range = [0, 1]")
FROM_LOG = TASK.replace("initial = {ill = 0.5, well = 0.5}", 'initial = "log"')
NO_ENDS = TASK.replace('terminal = ["home"]\n', "")
LIMITED = TASK + "[available]\nill = ['wait', 'drug']\nwell = ['wait']\nhome = ['wait', 'drug']\n"
CASES = {
    "other names": Case(
        renamed(s="page", a="slot", s_next="next_page", order="time"),
        ("--column s=page --column a=slot --column s_next=next_page",),
    ),
    "other names of visits": Case(
        renamed(s="page", a="slot", episode="session_id", order="ts"),
        ("--column s=page --column a=slot --column order=ts --column episode=session_id",),
        kind="visits",
    ),
    "an odd name": Case(
        renamed(s="alpha"), ("--column s=NAME",), options="--column s_next=s_next", names={"s": "alpha"}
    ),
    "an odd name of the next state": Case(
        renamed(s_next="beta", order="gamma", episode="delta"),
        ("--column s_next=NAME", "--column order=NAME --column episode=NAME"),
        names={"s_next": "beta", "order": "gamma", "episode": "delta"},
    ),
    "a next state, or none": Case(
        renamed(s_next="next_state", order="date", episode="patient"),
        ("--column s_next=next_state", "--column s_next= --column order=date --column episode=patient"),
    ),
    "the order is no number": Case(lambda f: put(f, 3, order="soon"), ("--column order=",)),
    "the order of visits is no number": Case(
        lambda f: put(f, 3, order="soon"), kind="visits", said="such as 'soon'; fix the data\n"
    ),
    "days come first": Case(dated, ("--column order=",), said="fix the data (write dates as 2026-12-31), or ignore"),
    "no episode": Case(lambda f: put(f, 3, episode=None), ("--column episode=",)),
    "no reward": Case(lambda f: put(f, 3, reward=None), ("--column reward=",)),
    "another reward": Case(
        lambda f: put(f, f.index[(f["s"] == "ill") & (f["a"] == "drug")][0], reward=0.25), ("--column reward=",)
    ),
    "a row twice": Case(lambda f: pd.concat([f, f[3:4]]), ("--column order=",)),
    "a row twice, without episodes": Case(
        lambda f: f.assign(order=f["order"] // 100).rename(columns={"episode": "who"}),
        ("--column episode=NAME", "--column order="),
        names={"episode": "who"},
    ),
    "two visits on a day": Case(
        lambda f: put(f, 3, order=f.loc[f.index[f["episode"] == f.loc[3, "episode"]][1], "order"]),
        kind="visits",
        said="if they are different visits, write into the column order which came first",
    ),
    "unknown labels": Case(lambda f: put(odd_state(f), 9, a="?"), ("--skip s --skip a",)),
    "no action": Case(lambda f: put(f, 9, a=None), ("--skip a",), said="null in column a (1 row); fix the data, or"),
    "an unknown next state": Case(lambda f: put(f, 9, s_next="?"), said="(1 row); fix the data, or add the state"),
    "an unknown visit": Case(odd_state, ("--skip s --skip s_next",), kind="visits", said="no answer is certified"),
    "a missing number": Case(
        lambda f: put(f, second_visit(f), glucose=None),
        ("--skip s --skip s_next",),
        kind="cells",
        task=CELLS,
        said="no number in column glucose (1 row), and 1 row is followed by a row without a state; fix the data, or",
    ),
    "no column of numbers": Case(
        renamed(glucose="sugar"),
        kind="cells",
        task=CELLS,
        said="no column 'glucose', whose numbers the bins of the task",
    ),
    "next states beside cells": Case(lambda f: f.assign(s_next="ill"), ("--column s_next=",), kind="cells", task=CELLS),
    "an action that is not there": Case(task=LIMITED, typed=("--skip a",)),
    "rewards in a column of another name": Case(
        renamed(reward="paid"), ("--column reward=NAME",), task=OBSERVED, names={"reward": "paid"}
    ),
    "bets without an order": Case(
        renamed(order="when"), ("--column order=NAME",), options="--method log-betting", names={"order": "when"}
    ),
    "bets on sums": Case(lambda f: f.assign(count=2), ("--method ptst",), options="--method log-betting"),
    "starts without episodes": Case(
        renamed(episode="who"), ("--column episode=NAME",), task=FROM_LOG, names={"episode": "who"}
    ),
    "visits that stop": Case(lambda f: f[f["s"] != "home"], ("--skip last",), kind="visits", said="episodes stop"),
    "an order that restarts": Case(
        lambda f: f.assign(order=f.groupby("episode").cumcount()), ("--by-episode",), said="begins with 0"
    ),
    "a file without a column": Case(second=lambda f: f.drop(columns="reward"), typed=("--column reward=",)),
    "an end that is not declared": Case(task=NO_ENDS, typed=('terminal = ["home"]',)),
    "an end that earns": Case(
        task=NO_ENDS.replace("]\npolicy", "]\npolicy").replace("r = 1 }", 'r = 1 }, { s = "home", r = 2 }'),
        said='no row begins in "home", and the task pays a reward there; if episodes end there, put that reward on',
    ),
    "episodes without rewards": Case(
        renamed(reward="paid"), ("--column reward=NAME",), options=ASSUMED, names={"reward": "paid"}
    ),
    "episodes without propensities": Case(
        renamed(propensity="mu"), ("--column propensity=NAME",), options=ASSUMED, names={"propensity": "mu"}
    ),
    "episodes without a target": Case(
        lambda f: f.assign(pi=0.5),
        ("--column target=NAME",),
        command="assess log.csv --threshold 1 --horizon 99 --reward-range 0 1",
        options=ASSUMED,
        names={"target": "pi"},
    ),
    "a growing log with an unknown label": Case(
        odd_state, ("--skip s",), command="watch task.toml log.csv --no-follow"
    ),
    "a growing log out of order": Case(
        lambda f: f[::-1], ("--column order=",), command="watch task.toml log.csv --no-follow"
    ),
    "a growing log of visits out of order": Case(
        lambda f: f[::-1], kind="visits", command="watch task.toml log.csv --no-follow", said="sort the log\n"
    ),
    "a growing log with days first": Case(
        dated, command="watch task.toml log.csv --no-follow", said="of one kind (write dates as 2026-12-31)"
    ),
    "a growing log without an episode": Case(
        lambda f: put(f, 3, episode=None), ("--column episode=",), command="watch task.toml log.csv --no-follow"
    ),
    "trials with two columns of agents": Case(
        lambda f: f.assign(model="net"), ("--column agent=policy",), kind="trials", command=TRIALS
    ),
    "trials with two columns of pairs": Case(
        lambda f: f.assign(trial=f["seed"]), ("--column pair=seed", "--column pair="), kind="trials", command=TRIALS
    ),
    "trials without a column of agents": Case(
        renamed(policy="who"), ("--column agent=NAME",), kind="trials", command=TRIALS, names={"agent": "who"}
    ),
    "a trial twice": Case(lambda f: pd.concat([f, f[:1]]), ("--column pair=",), kind="trials", command=TRIALS),
    "a trial without a seed": Case(lambda f: put(f, 3, seed=None), ("--column pair=",), kind="trials", command=TRIALS),
    "a trial without an order": Case(
        lambda f: put(f.assign(order=f.index), 3, order=None), ("--column order=",), kind="trials", command=TRIALS
    ),
    "trials without a column of tasks": Case(
        renamed(task="what"),
        ("--column task=NAME",),
        kind="trials",
        command=f"{TRIALS} --task lift",
        names={"task": "what"},
    ),
}
OPTION = r"--column \w+=[\w.]*|--skip \w+|--by-episode|--method ptst"
REMEDY = re.compile(rf"(?:{OPTION})(?: (?:{OPTION}))*|terminal = \[[^\]]*\]")


def run(words, capsys):
    """The exit code, and all that was printed."""
    code = main(words)
    out, err = capsys.readouterr()
    return code, out + err


def with_options(words, remedy, names):
    """The command with what a message names typed at its end; a column is named once."""
    new = [word for word in shlex.split(remedy) if not word.startswith("--column")]
    new = [re.sub(r"^(\w+)=NAME$", lambda found: f"{found[1]}={names[found[1]]}", word) for word in new]
    typed = shlex.split(remedy)
    typed = [new.pop(0) if not word.startswith("--column") else word for word in typed]
    mapped = {word.partition("=")[0] for word in typed if "=" in word}
    kept = list(words)
    for at in range(len(kept) - 1, 0, -1):
        if kept[at - 1] == "--column" and kept[at].partition("=")[0] in mapped:
            del kept[at - 1 : at + 1]
    if "--method" in typed and "--method" in kept:
        del kept[kept.index("--method") : kept.index("--method") + 2]
    return [*kept, *typed]


def walk(case, capsys):
    """Meet the fault, type each remedy that is named, and see that each leads to a verdict; what was printed first."""
    Path("task.toml").write_text(case.task)
    good = table(case.kind)
    case.change(good).to_csv("log.csv", index=False)
    words = shlex.split(f"{case.command} {case.options} --quiet")
    if case.second is not None:
        case.second(good).assign(order=good["order"] + 10**6).to_csv("more.csv", index=False)
        words.insert(3, "more.csv")
    code, message = run(words, capsys)
    assert case.said in message, message
    remedies = [found[0].strip() for found in REMEDY.finditer(message)]
    for wanted in case.typed:
        assert wanted in remedies, (wanted, remedies, message)
    for remedy in remedies:
        if remedy.startswith("terminal"):
            lines = [line for line in case.task.splitlines() if not line.startswith("terminal")]
            Path("task.toml").write_text("\n".join([remedy, *lines]))
            code, after = run(words, capsys)
        else:
            code, after = run(with_options(words, remedy, case.names), capsys)
        assert code in (0, 1, 3), (remedy, after)
        assert "error" not in after
        assert remedy not in after, after
    if not remedies:  # what is left is to correct the data: without the fault the same command answers
        Path("task.toml").write_text(case.task)
        good.to_csv("log.csv", index=False)
        assert run(words, capsys)[0] in (0, 1, 3)
    return message


def refused(call, said):
    """The words of a refusal."""
    with pytest.raises(pt.InputError) as caught:
        call()
    said.append(str(caught.value))
    return said[-1]


def walk_in_python(said):
    """The remedies that only Python has."""
    Path("cells.toml").write_text(CELLS)
    Path("task.toml").write_text(TASK)
    model, task, good = load_model("cells.toml"), load_model("task.toml").task, table()
    for cells in (table("cells"), table("cells").drop(columns="s")):
        cells = cells[cells["a"].notna()] if "s" not in cells else cells
        assert "pass bins=model.bins" in refused(lambda: logs(cells, model.task), said)  # noqa: B023
        assert logs(cells, model.task, bins=model.bins, skip=("last",)).used
    rated = table("cells").drop(columns="s")[lambda f: f["a"].notna()]
    assert "pass bins=model.bins" in refused(lambda: logged_episodes(rated, task=model.task), said)
    assert logged_episodes(rated, task=model.task, bins=model.bins).weighted

    again = good.assign(order=good.groupby("episode").cumcount())
    log = logs(again, task)
    said += diagnose_log(task, log).notes
    assert said[-1].startswith("Not tested: changes over time")
    assert not diagnose_log(task, log, by_episode=True).notes
    log = logs(again.assign(count=2), task)
    assert "pass by_episode=True" in refused(lambda: diagnose_log(task, log), said)
    assert diagnose_log(task, log, by_episode=True)

    about = {"reward_range": (0, 1), "horizon": 99}
    renamed = good.assign(target=0.5).rename(columns={"propensity": "mu"})
    assert 'columns={"propensity": ...}' in refused(lambda: logged_episodes(renamed, **about), said)
    assert logged_episodes(renamed, columns={"propensity": "mu"}, **about).weighted

    for name in ("one.csv", "same.csv", "packed.csv.gz"):
        good.to_csv(name, index=False)
    good.to_json("one.jsonl", orient="records", lines=True)
    good.to_json("packed.jsonl.gz", orient="records", lines=True)
    assert "pass add_to=log.counts" in refused(lambda: logs(["one.csv", "same.csv"], task), said)
    first = logs("one.csv", task)
    assert logs("same.csv", task, add_to=first.counts).counts.total == 2 * first.counts.total
    for other in ("one.csv", "packed.jsonl.gz"):
        assert "one kind at a time, and add_to" in refused(lambda: logs(["one.jsonl", other], task), said)  # noqa: B023
    assert logs("one.jsonl", task, add_to=first).counts.total == 2 * first.counts.total


def test_what_a_message_names_works_when_it_is_typed(tmp_path, monkeypatch, capsys):
    """Every case; and no remedy in the source is left that none has met."""
    monkeypatch.chdir(tmp_path)
    said: list[str] = []
    as_options = exit_codes.as_options
    for module in (exit_codes, assess_command):
        monkeypatch.setattr(module, "as_options", lambda message: as_options(said.append(message) or message))
    for command in (assess_command, watch_command):  # a forecast names no remedy, and takes longer than all the rest
        monkeypatch.setattr(command, "with_forecast", lambda verdict, _: verdict)
    for name, case in CASES.items():
        said += [f"-- {name} --", walk(case, capsys)]
    walk_in_python(said)
    heard = "\n".join([*said, *map(as_options, said)])
    left = [found for found in remedies_in_source() if not any(part in found[1] for part in ELSEWHERE)]
    missed = [
        (file, words)
        for file, words in left
        if not all(part in heard for part in re.split(r"\{\w+\}", words.replace("{{", "{").replace("}}", "}")))
    ]
    assert not missed
    assert len(left) > 20


READERS = ("sources/logged", "sources/checks.py", "cli/episodes.py", "cli/commands/assess.py")
NAMES_A_REMEDY = re.compile(
    r"columns=\{|skip=\(|--column|--skip.|by_episode=True|bins=model|terminal = |log\.counts|add_to"
)
ELSEWHERE = (
    "or fetch counts alone",  # of Spark
    "working memory does not suffice",  # which takes more data than a test has
    "add_to has other states",
    "add_to is a ",
    "without add_to",
)
"""Messages whose remedies are not typed here."""


def remedies_in_source():
    """The words of each message of the log readers that name a remedy, as far as they are fixed."""
    root = Path(pt.__file__).parent
    for reader in READERS:
        for path in sorted((root / reader).glob("*.py")) if (root / reader).is_dir() else [root / reader]:
            tree = ast.parse(path.read_text())
            prose = {
                id(node.body[0].value)
                for node in ast.walk(tree)
                if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and isinstance(node.body[0], ast.Expr)
            }
            for node in ast.walk(tree):
                words = node.value if isinstance(node, ast.Constant) and id(node) not in prose else None
                if isinstance(words, str) and NAMES_A_REMEDY.search(words):
                    yield path.name, words
