"""Inputs that are wrong in ways nobody thought of: damaged files of every format, odd values of every option and array,
environments and agents with a fault.

    python tests/fuzzing.py --minutes 10 --seed 1     # a long search (``make fuzz``)

Whatever comes in, a command ends with 0, 1, 2, 3 or 5, or with 4 if the environment or the agent itself failed.
It prints no traceback and no line of an error above 500 characters, and a command that is refused changes no file. A
function works or raises `InputError`. Seeds fix the cases.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import gzip
import io
import json
import os
import random
import shutil
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import typer
from scipy import sparse

import faults
import policytest as pt
from policytest.cli import app, main
from policytest.sources import save_model

EXAMPLES = Path(__file__).parents[1] / "examples"
ALLOWED = (0, 1, 2, 3, 5)
LONGEST = 500  # letters of a line of an error
PATIENCE = 60  # seconds after which a case counts as hanging


class Found(NamedTuple):
    """A case that did not end as it should."""

    case: str
    why: str


# ---------------------------------------------------------------- damaged files

TOKENS = (f'nan|-1|1e999|{"1" * 400}|\x00|\x1b[2J|\n|\r|,|"|{{|]|é|\uff11|null|true|=1+1|0x10| |\t|..').split("|")
READ_BY = {  # {file: the command that reads it}
    "customer.json": ["decide", "customer.json"],
    "customer-entries.json": ["decide", "customer-entries.json"],
    "customer.toml": ["decide", "customer.toml"],
    "customer.npz": ["decide", "customer.npz"],
    "customer.drn": ["decide", "customer.drn"],
    "customer.task.toml": ["decide", "customer.drn"],
    "customer.tra": ["decide", "customer.tra"],
    "customer.lab": ["decide", "customer.tra"],
    "customer.srew": ["decide", "customer.tra"],
    "customer.trew": ["decide", "customer.tra"],
    "customer.sta": ["decide", "customer.tra"],
    "policy.csv": ["decide", "customer.json", "--policy", "policy.csv"],
    "policy.json": ["decide", "customer.json", "--policy", "policy.json"],
    "policy.toml": ["decide", "customer.json", "--policy", "policy.toml"],
    "policy.npz": ["decide", "customer.json", "--policy", "policy.npz"],
    "run.npz": ["decide", "customer.json", "--checkpoint", "run.npz"],
    "log.csv": ["assess", "customer.json", "log.csv"],
    "log.jsonl": ["assess", "customer.json", "log.jsonl"],
    "log.csv.gz": ["assess", "customer.json", "log.csv.gz"],
    "log.parquet": ["assess", "customer.json", "log.parquet"],
    "kept.npz": ["assess", "customer.json", "log.csv", "--add-to", "kept.npz", "--method", "ptst"],
    "verdict.json": ["report", "verdict.json", "--out", "page.html"],
    "study.toml": ["study", "study.toml", "--seeds", "1", "--out", "study"],
    "goal.toml": ["assess", "goal.toml", "visits.csv", "--threshold", "0.4"],
    "bins.toml": ["assess", "bins.toml", "measured.csv"],
    "totals.toml": ["assess", "totals.toml", "visits.csv", "--column", "reward=paid"],
    "visits.csv": ["assess", "goal.toml", "visits.csv", "--threshold", "0.4"],
    "measured.csv": ["assess", "bins.toml", "measured.csv"],
    "episodes.csv": ["assess", "episodes.csv", "--assume", "propensities", "--reward-range", "0", "1"],
}
OF_TOTALS = ["assess", "totals.toml", "visits.csv", "--column", "reward=paid", "--return-range", "0", "40"]
OF_LOGS = (  # that read these files, too
    [*OF_TOTALS, "--ladder"],
    [*OF_TOTALS, "--assume", "episodes"],
    ["assess", "episodes.csv", "--assume", "episodes", "--return-range", "0", "5"],
    ["assess", "episodes.csv", "--assume", "propensities", "--smallest-propensity", "0.3", "--reward-range", "0", "1"],
    ["assess", "episodes.csv", "--assume", "propensities", "--return-range", "0", "5", "--discount", "0.9"],
    ["compare", "customer.json", "policy.csv", "--log", "log.csv"],
    ["compare", "customer.json", "logged", "--log", "log.csv"],
    ["evaluate", "customer.json", "--epsilon", "0.5", "--log", "log.csv"],
    ["identify", "customer.json", "--candidate", "policy.csv", "--candidate", "logged", "--log", "log.csv"],
    ["compare", "goal.toml", "logged", "--log", "visits.csv"],
    ["evaluate", "goal.toml", "--epsilon", "0.2", "--log", "visits.csv"],
    ["evaluate", "bins.toml", "--epsilon", "0.2", "--log", "measured.csv"],
    ["watch", "goal.toml", "visits.csv", "--no-follow", "--threshold", "0.4"],
)
GOAL = """\
states = ["ill", "worse", "cured", "dead"]
actions = ["wait", "treat"]
initial = "ill"
goal = ["cured"]
avoid = ["dead"]
policy = { ill = "treat", worse = "treat" }
"""
TOTALS = """\
states = ["ill", "worse", "cured", "dead"]
actions = ["wait", "treat"]
initial = "ill"
discount = 1
terminal = ["cured", "dead"]
total_rewards = [0, 40]
reward_range = [0, 1]
policy = { ill = { wait = 0.3, treat = 0.7 }, worse = { wait = 0.3, treat = 0.7 } }
"""
BINS = """\
actions = ["wait", "treat"]
initial = "log"
discount = 0.9
policy = "uniform"
rewards = [[0, 0], [1, 1], [0, 0]]
[bins.glucose]
edges = [70, 140]
names = ["low", "normal", "high"]
"""
DECIDE = ("--threshold", "1", "--max-samples", "40", "--method", "betting", "--quiet")
ASSESS = ("--threshold", "1", "--quiet")


def lay_out(folder: Path) -> None:
    """One good file of every format."""
    for file in (EXAMPLES / "models").iterdir():
        shutil.copy(file, folder / file.name)
    model = pt.sources.load_model(folder / "customer.json")
    rng = np.random.default_rng(0)
    names, S, A = model.task.states, model.task.n_states, model.task.n_actions
    s, a = rng.integers(S, size=20), rng.integers(A, size=20)
    x = pt.TabularSimulator(model.kernel).draw(s, a, rng)
    rows = [{"s": names[i], "a": model.task.actions[j], "s_next": names[k]} for i, j, k in zip(s, a, x, strict=True)]
    text = "s,a,s_next,order\n" + "".join(f"{r['s']},{r['a']},{r['s_next']},{t}\n" for t, r in enumerate(rows))
    (folder / "log.csv").write_text(text)
    (folder / "log.csv.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
    (folder / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    import pyarrow
    import pyarrow.parquet

    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), folder / "log.parquet")
    (folder / "before.csv").write_text(f"s,a,s_next\n{names[0]},{model.task.actions[0]},{names[0]}\n")
    pt.sources.logs(folder / "before.csv", model.task).save(folder / "kept.npz")
    sim = pt.TabularSimulator(model.kernel)
    verdict = pt.decide(model.task, sim, 1.0, method=pt.TDBetting(), max_samples=20, checkpoint=folder / "run.npz")
    (folder / "verdict.json").write_text(verdict.to_json())
    save_model(folder / "plain.json", pt.instances.paper(2).task, pt.instances.paper(2).kernel, threshold=0.1)
    lay_out_episodes(folder, rng)
    (folder / "study.toml").write_text(
        'deltas = [0.2]\nmax_samples = 60\n[instances.two]\npaper = 2\n[instances.file]\nfile = "plain.json"\n'
        '[methods.bet]\nmethod = "betting"\n'
    )


def lay_out_episodes(folder: Path, rng: np.random.Generator) -> None:
    """Task files with a goal, totals and bins; logs of visits, of measurements, and with propensities."""
    for name, text in (("goal", GOAL), ("totals", TOTALS), ("bins", BINS)):
        (folder / f"{name}.toml").write_text(text)
    visits, measured = ["episode,order,s,a,paid"], ["episode,order,glucose,a"]
    episodes = ["episode,order,reward,propensity,target"]
    for episode in range(6):
        state = 0
        for t in range(10):
            treats = rng.random() < 0.7
            visits.append(f"{episode},{t},{('ill', 'worse')[state]},{'treat' if treats else 'wait'},{rng.random():.2f}")
            measured.append(f"{episode},{t},{100 + 40 * rng.normal():.0f},{'treat' if treats else 'wait'}")
            episodes.append(f"{episode},{t},{rng.random():.2f},{0.7 if treats else 0.3:g},{1.0 if treats else 0.0:g}")
            if rng.random() < 0.3:
                visits.append(f"{episode},{t + 1},{('cured', 'dead')[int(rng.random() < 0.3)]},,")
                break
            state = int(rng.random() < 0.4)
        else:
            visits.append(f"{episode},10,dead,,")
    for name, lines in (("visits", visits), ("measured", measured), ("episodes", episodes)):
        (folder / f"{name}.csv").write_text("\n".join([*lines, ""]))


def damaged(content: bytes, rng: random.Random) -> bytes:
    """The content with one to three things wrong."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(data) + 1)
        to = min(len(data), at + rng.choice((1, 2, 8, 40, len(data))))
        kind = rng.randrange(7)
        if kind == 0 and data:
            data[min(at, len(data) - 1)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del data[at:to]
        elif kind == 2:
            data[at:at] = data[at:to]
        elif kind == 3:
            del data[at:]
        elif kind == 4:
            data[at:at] = rng.choice(TOKENS).encode()
        elif kind == 5:
            data[at:to] = rng.choice(TOKENS).encode()
        else:
            lines = bytes(data).split(b"\n")
            rng.shuffle(lines)
            data = bytearray(b"\n".join(lines))
    return bytes(data)


# ---------------------------------------------------------------- odd options

ODD = (
    f"| |-1|0|1|nan|inf|-inf|1e400|1e-400|{'9' * 30}|0x10|a|{'A' * 3000}|é\u202e|\x1b[2J|.|..|/|"
    "nowhere/file|log.csv|customer.json|policy.csv|kept.npz|s=a|=|s=s|:|os:getcwd|/dev/null|paper-2|"
    "gym:|gym:Nothing-v0|*.csv|--"
).split("|")
STARTS = {
    "decide": ["customer.json"],
    "assess": ["customer.json", "log.csv"],
    "evaluate": ["customer.json"],
    "compare": ["customer.json", "policy.csv"],
    "plan": ["customer.json"],
    "identify": ["customer.json"],
    "report": ["verdict.json"],
    "study": ["study.toml"],
    "init": ["new"],
    "demo": [],
}
QUICK = {
    "decide": ["--max-samples", "40", "--threshold", "1", "--method", "betting"],
    "evaluate": ["--max-samples", "40", "--epsilon", "1"],
    "compare": ["--max-samples", "40"],
    "identify": ["--max-samples", "40"],
    "assess": ["--threshold", "1"],
    "study": ["--seeds", "1", "--out", "study"],
    "report": ["--out", "page.html"],
}


def option_names() -> dict[str, list[str]]:
    """{command: its options}."""
    commands: Any = typer.main.get_command(app)
    return {
        name: [option.opts[0] for option in commands.commands[name].params if option.param_type_name == "option"]
        for name in STARTS
    }


def odd_command(rng: random.Random, names: dict[str, list[str]]) -> list[str]:
    """A good command with one to three options of odd values, or with odd arguments."""
    name = rng.choice([name for name in STARTS if name not in ("plan", "demo")] * 3 + ["plan", "demo"])
    argv = [name, *STARTS[name], *QUICK.get(name, [])]
    if rng.random() < 0.2 and STARTS[name]:
        argv[rng.randrange(1, 1 + len(STARTS[name]))] = rng.choice(ODD)
    for _ in range(rng.randint(1, 3)):
        argv += [rng.choice([option for option in names[name] if option != "--debug"]), rng.choice(ODD)]
    if name == "demo" or (name == "plan" and rng.random() < 0.8):  # most of these would run
        argv.append("--no-such-option")
    return argv


# ---------------------------------------------------------------- commands, watched


def picture(folder: Path) -> dict[str, bytes | None]:
    """Every file, with its content."""
    return {str(path): path.read_bytes() if path.is_file() else None for path in sorted(folder.rglob("*"))}


def ended(argv: list[str], folder: Path) -> str | None:
    """What is wrong with how the command ended; None where nothing is."""
    before, out, err = picture(folder), io.StringIO(), io.StringIO()
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            code = main(argv)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"
    said = err.getvalue()
    if code not in ALLOWED and not (code == 4 and "the simulator failed: " in said):
        return f"exit {code}: {said[-400:]}"
    if "Traceback" in said:
        return f"a traceback: {said[-400:]}"
    if code == 2:
        if picture(folder) != before:
            return f"refused, but it changed {sorted(set(picture(folder).items()) ^ set(before.items()))[:2]}"[:400]
        if any(len(line) > LONGEST for line in said.splitlines()):
            return f"a line of {max(map(len, said.splitlines()))} letters: {said[:200]}"
        if not said.strip():
            return "refused without a word"
    return None


def whole_command(argv: list[str]) -> list[str]:
    """With a threshold, where it has none of its own, and little to do."""
    usual = {"decide": DECIDE, "assess": ASSESS}.get(argv[0], ())
    return [*argv, *(("--quiet",) if "--threshold" in argv else usual)]


def of_files(rng: random.Random, folder: Path) -> Found | None:
    """One damaged file."""
    name = rng.choice([name for name in READ_BY if name != "study.toml"] * 4 + ["study.toml"])
    path = folder / name
    good = path.read_bytes()
    bad = damaged(good, rng)
    path.write_bytes(bad)
    argv = whole_command(rng.choice([READ_BY[name], *(argv for argv in OF_LOGS if name in argv)]))
    try:
        why = ended(argv, folder)
    finally:
        path.write_bytes(good)
    return None if why is None else Found(f"{' '.join(argv)} with {name} = {bad[:2000]!r}", why)


def of_options(rng: random.Random, folder: Path, names: dict[str, list[str]]) -> Found | None:
    """One odd command."""
    argv = odd_command(rng, names)
    why = ended(argv, folder)
    return None if why is None else Found(repr(argv), why)


# ---------------------------------------------------------------- faulty environments and agents

QUESTIONS = {
    "decide": ["--threshold", "1.5", "--method", "returns"],
    "evaluate": ["--epsilon", "0.5"],
    "compare": [],
}


def of_an_environment(name: str, env: str, other: str, agent: str) -> list[str]:
    """A question about an agent in an environment of `faults`; in a comparison in another one, too."""
    argv = [name, f"python:faults:{env}", *([f"python:faults:{other}"] if name == "compare" else [])]
    argv += [*QUESTIONS[name], "--assume", "episodes", "--agent", f"faults:{agent}"]
    return [*argv, "--return-range", "0", "3", "--max-samples", "300", "--quiet"]


def of_environments(rng: random.Random, folder: Path) -> Found | None:
    """An environment or an agent with a fault. What is not a number must not be part of a certified answer."""
    env, agent = (rng.choice(list(names)) for names in (faults.ENVIRONMENTS, faults.AGENTS))
    if rng.random() < 0.5:
        agent = "good"
    elif rng.random() < 0.7:
        env = "fine"
    argv = of_an_environment(rng.choice(list(QUESTIONS)), env, rng.choice(["fine", env]), agent)
    argv += rng.choice(([], [], ["--discount", "0.9"], ["--horizon", "2"], ["--json"], ["--html", "page.html"]))
    why = ended(argv, folder)
    return None if why is None else Found(" ".join(argv), why)


# ---------------------------------------------------------------- odd arrays

TWO = pt.instances.paper(2)
SIM = pt.TabularSimulator(TWO.kernel)


def broken_csr() -> Any:
    array = sparse.csr_array(np.eye(4, 2))
    array.indptr = array.indptr.copy()
    array.indptr[1] = 10**6
    return array


def outside_csr() -> Any:
    array = sparse.csr_array(np.eye(4, 2))
    array.indices = array.indices.copy()
    array.indices[0] = 77
    return array


VALUES: tuple[Callable[[], Any], ...] = (
    lambda: None,
    lambda: "text",
    lambda: b"12",
    lambda: [],
    lambda: [[]],
    lambda: [[1.0], [1.0, 2.0]],
    lambda: 10**400,
    lambda: [[10**400, 1], [1, 1]],
    lambda: np.nan,
    lambda: np.inf,
    lambda: -1,
    lambda: 1e308,
    lambda: 0.5,
    lambda: 3,
    lambda: 2**70,
    lambda: np.full((2, 2), np.nan),
    lambda: np.full((2, 2), -1.0),
    lambda: np.ones((2, 2)),
    lambda: np.zeros((2, 2)),
    lambda: np.eye(2),
    lambda: np.ones((3, 2)),
    lambda: np.ones((2, 2, 2)),
    lambda: np.full((2, 2, 2), 0.5),
    lambda: np.zeros((2, 2, 2)),
    lambda: np.ones(2),
    lambda: np.ma.masked_array(np.full((2, 2), 0.5), mask=np.eye(2)),
    lambda: np.array([[b"1", b"2"], [b"3", b"4"]]),
    lambda: np.array([["2020-01-01"] * 2] * 2, dtype="datetime64[D]"),
    lambda: np.array([(1, 2.0)], dtype=[("a", int), ("b", float)]),
    lambda: np.array([[object(), 1], [1, 1]], dtype=object),
    lambda: [[Fraction(1, 2), 0.5], [0.5, 0.5]],
    lambda: np.array([[1 + 1j, 0], [0, 1]]),
    broken_csr,
    outside_csr,
    lambda: sparse.csr_array(np.full((4, 2), 0.5)),
    lambda: sparse.coo_array(np.eye(4, 2)),
    lambda: sparse.csr_array((4, 2)),
    lambda: {"a": 1},
    lambda: {1, 2},
    lambda: object(),
    lambda: True,
    lambda: [True, False],
    lambda: (0, 1),
    lambda: np.arange(2),
    lambda: [0, 1, 5],
    lambda: [-1, 0],
    lambda: [0.5, 1.5],
    lambda: ["a", "b"],
    lambda: ["a", "a"],
    lambda: [None, None],
    lambda: datetime.date(2020, 1, 1),
    lambda: range(2),
    lambda: np.float16(0.1),
    lambda: np.array([[0.5, 0.5]] * 2, dtype=np.float16),
    lambda: np.array([[0, 1], [1, 0]], dtype=np.uint8),
)


def task(**changed: Any) -> pt.Task:
    known: dict[str, Any] = {
        "rewards": TWO.task.rewards,
        "policy": TWO.task.policy,
        "initial": TWO.task.initial,
        "discount": 0.9,
    }
    return pt.Task(**(known | changed))


CALLS: dict[str, Callable[[Any], Any]] = {
    **{f"Task({name}=)": (lambda value, name=name: task(**{name: value})) for name in
       ("rewards", "policy", "initial", "discount", "support", "states", "actions", "terminal", "normalise")},
    "value": lambda v: pt.value(TWO.task, v),
    "state_values": lambda v: pt.state_values(TWO.task, v),
    "occupancy": lambda v: pt.occupancy(TWO.task, v),
    "value(task=)": lambda v: pt.value(v, TWO.kernel),
    "value_range": lambda v: pt.value_range(v),
    "KLBall(centre=)": lambda v: pt.KLBall(v, np.ones((2, 2)), 1.0),
    "KLBall(weights=)": lambda v: pt.KLBall(TWO.kernel, v, 1.0),
    "KLBall(radius=)": lambda v: pt.KLBall(TWO.kernel, np.ones((2, 2)), v),
    "in KLBall": lambda v: v in pt.KLBall(TWO.kernel, np.ones((2, 2)), 1.0),
    "extreme_value(ball=)": lambda v: pt.extreme_value(TWO.task, v),
    "extreme_value(sense=)": lambda v: pt.extreme_value(TWO.task, pt.KLBall(TWO.kernel, np.ones((2, 2)), 0.1), v),
    "nearest_kernel(centre=)": lambda v: pt.nearest_kernel(TWO.task, v, np.ones((2, 2)), 0.0),
    "nearest_kernel(weights=)": lambda v: pt.nearest_kernel(TWO.task, TWO.kernel, v, 0.0),
    "nearest_kernel(threshold=)": lambda v: pt.nearest_kernel(TWO.task, TWO.kernel, np.ones((2, 2)), v),
    "Counts(n_states=)": lambda v: pt.Counts(v if not isinstance(v, int) else min(v, 100), 2),
    "Counts.from_array": lambda v: pt.Counts.from_array(v),
    "Counts.record(s=)": lambda v: pt.Counts(2, 2).record(v, [0, 0], [0, 0]),
    "Counts.record(times=)": lambda v: pt.Counts(2, 2).record([0, 1], [0, 0], [0, 0], v),
    "Transitions(s=)": lambda v: pt.assess(TWO.task, pt.Transitions(v, [0, 0], [0, 0]), 0.0),
    "Transitions(x=)": lambda v: pt.assess(TWO.task, pt.Transitions([0, 0], [0, 0], v), 0.0),
    "TabularSimulator": lambda v: pt.TabularSimulator(v).draw(np.array([0]), np.array([0]), np.random.default_rng(0)),
    "decide(sim=)": lambda v: pt.decide(TWO.task, v, 0.0, max_samples=20),
    "decide(draw=)": lambda v: pt.decide(TWO.task, lambda s, a, rng: v, 0.0, max_samples=20),
    "decide(threshold=)": lambda v: pt.decide(TWO.task, SIM, v, max_samples=20),
    "decide(delta=)": lambda v: pt.decide(TWO.task, SIM, 0.0, v, max_samples=20),
    "decide(method=)": lambda v: pt.decide(TWO.task, SIM, 0.0, method=v, max_samples=20),
    "decide(max_samples=)": lambda v: pt.decide(TWO.task, SIM, 0.0, max_samples=v),
    "decide(indifference=)": lambda v: pt.decide(TWO.task, SIM, 0.0, indifference=v, max_samples=20),
    "decide(rng=)": lambda v: pt.decide(TWO.task, SIM, 0.0, rng=v, max_samples=20),
    "decide(resume=)": lambda v: pt.decide(TWO.task, SIM, 0.0, resume=v, max_samples=20),
    "assess(data=)": lambda v: pt.assess(TWO.task, v, 0.0),
    "assess(design=)": lambda v: pt.assess(TWO.task, pt.Counts(2, 2), 0.0, design=v),
    "stopping_times(deltas=)": lambda v: pt.stopping_times(TWO.task, SIM, 0.0, v, max_samples=20),
    "PTST(allocation=)": lambda v: pt.decide(TWO.task, SIM, 0.0, method=pt.PTST(allocation=v), max_samples=20),
    "PTST(zeta=)": lambda v: pt.PTST(zeta=v),
    "MixtureBoundary(prior=)": lambda v: pt.MixtureBoundary(v),
    "value_interval(data=)": lambda v: pt.value_interval(TWO.task, v),
    "evaluate(epsilon=)": lambda v: pt.evaluate(TWO.task, SIM, v, max_samples=20),
    "compare(margin=)": lambda v: pt.compare(TWO.task, task(policy=np.eye(2)), SIM, margin=v, max_samples=20),
    "identify(rewards=)": lambda v: pt.identify(v, [0.5, 0.5], 0.9, SIM, max_samples=20),
    "identify(initial=)": lambda v: pt.identify(TWO.task.rewards, v, 0.9, SIM, max_samples=20),
    "identify(policies=)": lambda v: pt.identify(TWO.task.rewards, [0.5, 0.5], 0.9, SIM, policies=v, max_samples=20),
    "characteristic_time(allocation=)": lambda v: pt.characteristic_time(TWO.task, TWO.kernel, v),
    "characteristic_time(kernel=)": lambda v: pt.characteristic_time(TWO.task, v),
    "optimal_allocation(kernel=)": lambda v: pt.optimal_allocation(TWO.task, v),
    "instances.random(seed=)": lambda v: pt.instances.random(v, 3, 2),
    "instances.random(S=)": lambda v: pt.instances.random(0, v if not isinstance(v, int) else min(v, 50), 2),
    "instances.random(successors=)": lambda v: pt.instances.random(0, 3, 2, successors=v),
    "instances.paper": lambda v: pt.instances.paper(v),
}  # fmt: skip


def called(name: str, make: Callable[[], Any]) -> Found | None:
    """One odd value for one argument: it works, or is refused in words."""
    value = make()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            CALLS[name](value)
    except pt.InputError as error:
        if len(str(error)) > LONGEST:
            return Found(f"{name} {value!r:.200}", f"a message of {len(str(error))} letters")
    except Exception as error:
        return Found(f"{name} {value!r:.200}", "".join(traceback.format_exception(error))[-600:])
    return None


def of_arrays(rng: random.Random) -> Found | None:
    """One of them, by chance."""
    return called(rng.choice(list(CALLS)), rng.choice(VALUES))


# ---------------------------------------------------------------- the search


class HangingError(Exception):
    """A case takes too long."""


@contextlib.contextmanager
def laid_out() -> Iterator[Path]:
    """A folder with a good file of every format, as the working folder."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        lay_out(Path(name))
        os.chdir(name)
        try:
            yield Path(name)
        finally:
            os.chdir(before)


def search(seed: int, cases: int | None = None, seconds: float = np.inf) -> Iterator[Found | None]:
    """Cases of a seed, one after another: for each, what was found."""

    def stop(number: int, frame: Any) -> None:
        raise HangingError

    until, rng, names, done = time.monotonic() + seconds, random.Random(seed), option_names(), 0
    with laid_out() as folder:
        good = picture(folder)
        kinds = (
            [lambda: of_files(rng, folder)] * 5
            + [lambda: of_options(rng, folder, names)] * 3
            + [lambda: of_arrays(rng)] * 4
            + [lambda: of_environments(rng, folder)] * 3
        )
        signal.signal(signal.SIGALRM, stop)
        while (cases is None or done < cases) and time.monotonic() < until:
            done += 1
            state = rng.getstate()
            signal.alarm(PATIENCE)
            try:
                yield rng.choice(kinds)()
            except HangingError:
                yield Found(f"the case after the state {hash(state)}", f"no end after {PATIENCE} s")
            finally:
                signal.alarm(0)
            if picture(folder) != good:
                shutil.rmtree(folder, ignore_errors=True)
                folder.mkdir(exist_ok=True)
                os.chdir(folder)
                lay_out(folder)
                good = picture(folder)


def cli() -> int:
    """The long search."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--cases", type=int)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    count, bad = 0, 0
    for found in search(options.seed, options.cases, 60 * options.minutes):
        count += 1
        if found is not None:
            bad += 1
            print(f"--- case {count}: {found.case}\n{found.why}\n", flush=True)
    print(f"{count} cases, {bad} did not end as they should.")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(cli())
