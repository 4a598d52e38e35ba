"""How long it takes from a log to counts, and with how much memory.

    python benchmarks/logs.py            # 20 million rows from Parquet, then the harder cases (some minutes)
    python benchmarks/logs.py --small    # a quick run of every part, used by the tests
    python benchmarks/logs.py --json F   # also write the numbers to a file

The data are written in chunks to a temporary folder. Each measurement is a process of its own, so that its peak memory
is its own; the seconds are those of `logs` alone, by the clock and by the processor (both cores together).
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt

CHUNK = 2_000_000
CASES = {  # name: (states, actions, successors of a pair, format, what is beside: an order with episodes, rewards)
    "Parquet": (1000, 10, 10, "parquet", ""),
    "Parquet, observed rewards": (1000, 10, 10, "parquet", "rewards"),
    "CSV": (1000, 10, 10, "csv", ""),
    "Parquet, any successor": (1000, 10, 1000, "parquet", ""),
    "Parquet, 10,000 states": (10_000, 10, 10, "parquet", ""),
    "Parquet, with repeated keys looked for": (1000, 10, 10, "parquet", "order"),
}


def write(folder: Path, rows: int, case: tuple[int, int, int, str, str]) -> None:
    """The rows of a case, a file for each chunk; x is one of the successors s*7 + a*13 + 0, 1, ... of a pair."""
    import pyarrow as pa
    import pyarrow.csv
    import pyarrow.parquet

    S, A, successors, kind, beside = case
    for start in range(0, rows, CHUNK):
        rng = np.random.default_rng(start)
        size = min(CHUNK, rows - start)
        s, a = rng.integers(0, S, size), rng.integers(0, A, size)
        columns: dict[str, Any] = {"s": s, "a": a, "s_next": (7 * s + 13 * a + rng.integers(0, successors, size)) % S}
        if beside == "rewards":
            columns["reward"] = rng.random(size)
        if beside == "order":
            index = np.arange(start, start + size)
            columns |= {"episode": index // 100, "order": index % 100}
        table = pa.table(columns)
        path = folder / f"part-{start // CHUNK:04d}.{kind}"
        if kind == "csv":
            pyarrow.csv.write_csv(table, path)
        else:
            pyarrow.parquet.write_table(table, path)


def measure(folder: Path, case: tuple[int, int, int, str, str]) -> dict[str, Any]:
    """One reading of the folder, in this process."""
    S, A, *_, beside = case
    policy, initial = np.full((S, A), 1 / A), np.full(S, 1 / S)
    rewards = pt.Observed(0.0, 1.0) if beside == "rewards" else np.zeros((S, A))
    task = pt.Task(rewards=rewards, policy=policy, initial=initial, discount=0.9)
    begin, work = time.perf_counter(), time.process_time()
    log = pt.sources.logs(folder, task)
    spent, work = time.perf_counter() - begin, time.process_time() - work
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)
    entries = np.count_nonzero(log.counts.N) if not log.counts.sparse else log.counts.N.nnz
    size: dict[str, Any] = {"rows": log.rows, "entries": int(entries), "total": log.counts.total}
    if log.rewards is not None:
        size["mean_reward"] = float(log.rewards.sums.sum() / log.counts.total)
    return {**size, "seconds": spent, "processor": work, "megabytes": peak}


def run(rows: int, names: list[str], apart: bool) -> list[dict[str, Any]]:
    """Each case in a process of its own, so that the peak memory is its own, or all in this one."""
    found = []
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            write(Path(folder), rows, CASES[name])
            if apart:
                command = [sys.executable, __file__, "--measure", name, "--folder", folder]
                done = subprocess.run(command, capture_output=True, text=True, check=True)
            measured = json.loads(done.stdout) if apart else measure(Path(folder), CASES[name])
            row = {"case": name, **measured}
        found.append(row)
        numbers = f"{row['seconds']:>8.1f} {row['processor']:>10.1f} {row['megabytes']:>8.0f}"
        print(f"{name:<42} {row['rows']:>12,} {row['entries']:>10,} {numbers}")
    return found


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--rows", type=int)
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--measure", choices=list(CASES), help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        print(json.dumps(measure(options.folder, CASES[options.measure])))
        return
    print(f"From a log to counts. Python {platform.python_version()}, {platform.machine()}, {date.today():%d %B %Y}")
    print(f"{'case':<42} {'rows':>12} {'entries':>10} {'seconds':>8} {'processor':>10} {'MB':>8}")
    rows = options.rows or (20_000 if options.small else 20_000_000)
    found = run(rows, options.case or list(CASES), apart=not options.small)
    if options.json:
        Path(options.json).write_text(json.dumps(found, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
