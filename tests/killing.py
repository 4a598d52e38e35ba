"""Commands that are killed at random moments: nothing is lost, and started again they end as if nothing had happened.

    python tests/killing.py --kills 30 --seed 1     # study, identify and watch, each killed 30 times

Every command runs in a process of its own, is killed with SIGKILL after a random part of the time that it needs, and is
started again with the same arguments, until it has been killed so often; then it may end. Its output and its files must
be those of a run that nobody killed, but for the seconds in them.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import policytest as pt
from policytest.sources import save_model

STUDY = """\
deltas = [0.1, 0.01]
seeds = 4
max_samples = 400000
[instances.two]
paper = 2
[instances.three]
paper = 3
[methods.bet]
method = "betting"
[methods.ptst]
method = "ptst"
"""
COMMANDS = {
    "study": ["study", "study.toml", "--out", "out", "--json", "--quiet"],
    "identify": ["identify", "paper-3", "--seed", "3", "--json", "--quiet", "--html", "page.html"],
    "watch": ["watch", "two.json", "log.csv", "--threshold", "0.03", "--json", "--quiet", "--idle", "1"],
}
KEPT = {"study": ("out/summary.json", "out/table.csv"), "identify": ("page.html",), "watch": ()}
"""The files that must be the same."""


def lay_out(folder: Path) -> None:
    """What the commands read."""
    (folder / "study.toml").write_text(STUDY)
    two, rng = pt.instances.paper(2), np.random.default_rng(0)
    save_model(folder / "two.json", two.task, two.kernel)
    s, a = rng.integers(2, size=20_000), rng.integers(2, size=20_000)
    x = pt.TabularSimulator(two.kernel).draw(s, a, rng)
    rows = (f"{i},{j},{k},{t}" for t, (i, j, k) in enumerate(zip(s, a, x, strict=True)))
    (folder / "log.csv").write_text("\n".join(("s,a,s_next,order", *rows, "")))


def grow(folder: Path, whole: Path, share: float) -> None:
    """The log has this share of its lines by now."""
    lines = (whole / "log.csv").read_text().splitlines(keepends=True)
    (folder / "log.csv").write_text("".join(lines[: 1 + int(share * (len(lines) - 1))]))


def started(name: str, folder: Path) -> subprocess.Popen[bytes]:
    """The command at work."""
    argv = [sys.executable, "-m", "policytest", *COMMANDS[name]]
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        return subprocess.Popen(argv, cwd=folder, stdout=out, stderr=err)


def outcome(name: str, process: subprocess.Popen[bytes], folder: Path) -> dict[str, object]:
    """How it ended: the exit code, its output and its files."""
    code = process.wait(timeout=600)
    files = {file: (folder / file).read_bytes() for file in KEPT[name]}
    return {"code": code, "stdout": (folder / "stdout").read_bytes(), **files}


def finished_runs(folder: Path) -> int:
    """The runs of a study that its folder holds; a line that was cut by the kill is not one."""
    file, count = folder / "out" / "cells.jsonl", 0
    for line in file.read_text().splitlines() if file.exists() else ():
        try:
            json.loads(line)
        except json.JSONDecodeError:
            continue
        count += 1
    return count


def killed(name: str, kills: int, seed: int) -> Iterator[str]:
    """What is wrong after so many kills; nothing where nothing is."""
    rng = random.Random(seed)
    with tempfile.TemporaryDirectory() as first, tempfile.TemporaryDirectory() as second:
        whole, folder = Path(first), Path(second)
        lay_out(whole)
        shutil.copytree(whole, folder, dirs_exist_ok=True)
        before = time.monotonic()
        expected = outcome(name, started(name, whole), whole)
        took, kept = time.monotonic() - before, 0
        for kill in range(kills):
            grow(folder, whole, (kill + 1.0) / (kills + 1.0))
            process = started(name, folder)
            try:
                process.wait(timeout=rng.uniform(0.02, 1.0) * took)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            if name == "study":
                if (now := finished_runs(folder)) < kept:
                    yield f"kill {kill}: {kept - now} of {kept} finished runs are lost"
                kept = now
        grow(folder, whole, 1.0)
        ended = outcome(name, started(name, folder), folder)
        yield from (f"{key} differs: {ended[key]!r:.300}" for key in expected if ended[key] != expected[key])
        left = [file.name for file in folder.rglob("*") if file.name.endswith(".tmp") or file.name.startswith(".tmp")]
        if left:
            yield f"files are left behind: {left}"


def cli() -> int:
    """All commands."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kills", type=int, default=30)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    bad = 0
    for name in COMMANDS:
        wrong = list(killed(name, options.kills, options.seed))
        bad += len(wrong)
        print(f"{name}: {options.kills} kills, {'; '.join(wrong) or 'the same result, and nothing lost'}", flush=True)
    return bool(bad)


if __name__ == "__main__":
    sys.exit(cli())
