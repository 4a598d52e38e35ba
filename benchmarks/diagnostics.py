"""How sharp are the diagnostics of logs, how often do they raise a false alarm, and how long do they take?

    python benchmarks/diagnostics.py            # full size (a minute)
    python benchmarks/diagnostics.py --small    # a small set, used by the tests
    python benchmarks/diagnostics.py --json F   # also write the numbers to a file

The evidence of `policytest.diagnose` is compared with the usual G-test (its chi-square approximation over all cells)
and with a shuffling of the next states within each pair.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import tempfile
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import chi2

import policytest as pt
from policytest._base.arrays import FloatArray, IntArray
from policytest.questions.independence_test import Cells

LEVEL = 0.05
S, A = 3, 2


def task_of(states: int, actions: int) -> pt.Task:
    """Rewards do not matter here."""
    pi = np.full((states, actions), 1.0 / actions)
    return pt.Task(np.zeros((states, actions)), pi, np.eye(states)[0], 0.9)


def chains(rng: np.random.Generator, runs: int, steps: int, kernels: FloatArray) -> IntArray:
    """[3, runs, steps] chains of order two, each run with its own kernel [runs, before, s, a, x]."""
    s, before = np.zeros((2, runs), dtype=np.int64)
    out = np.empty((3, runs, steps), dtype=np.int64)
    every = np.arange(runs)
    for t in range(steps):
        a = rng.integers(A, size=runs)
        rows = kernels[every, before, s, a].cumsum(axis=1)
        x = np.minimum((rows < rng.random((runs, 1))).sum(axis=1), S - 1)
        out[:, :, t] = s, a, x
        before, s = s, x
    return out


def usual(cells: Cells) -> float:
    """The p-value of the G-test over all cells, however small."""
    df = int(((np.bincount(cells.arm_k) - 1) * (np.bincount(cells.column_k) - 1)).sum())
    return float(chi2.sf(2.0 * cells.surprise.sum(), df)) if df else 1.0


def detected(runs: int, steps: int, strength: float) -> dict[str, Any]:
    """The share of logs in which the dependence on the previous state is found."""
    rng = np.random.default_rng(0)
    base = rng.dirichlet(np.ones(S), (runs, 1, S, A))
    kernels = (1 - strength) * base + strength * rng.dirichlet(np.ones(S), (runs, S, S, A))
    ours, g = 0, 0
    task = task_of(S, A)
    for s, a, x in chains(rng, runs, steps, kernels).transpose(1, 0, 2):
        found = pt.diagnose(task, pt.Transitions(s, a, x)).findings[0]
        ours += found.p_value <= LEVEL
        g += usual(Cells(s[1:] * A + a[1:], s[:-1], x[1:], np.ones(steps - 1, dtype=np.int64))) <= LEVEL
    return {"rows": steps, "strength": strength, "evidence": ours / runs, "g_test": g / runs}


def false_alarms(runs: int, pairs: int, visits: int) -> dict[str, Any]:
    """Fair coins in every pair, each label the coin before: nothing depends on anything."""
    rng = np.random.default_rng(1)
    found = {"evidence": 0, "g_test": 0, "shuffling": 0}
    pair = np.repeat(np.arange(pairs), visits)
    for _ in range(runs):
        coins = rng.integers(2, size=(pairs, visits + 1))
        label, x = coins[:, :-1], coins[:, 1:]
        cells = Cells(pair, label.ravel(), x.ravel(), np.ones(pair.size, dtype=np.int64))
        found["evidence"] += math.exp(-cells.log_e(pairs)[0]) <= LEVEL
        found["g_test"] += usual(cells) <= LEVEL
        agree = (label == x).sum()
        shuffled = np.array([(label == rng.permuted(x, axis=1)).sum() for _ in range(99)])
        below, above = 1 + (shuffled <= agree).sum(), 1 + (shuffled >= agree).sum()
        found["shuffling"] += 2 * min(below, above) / 100 <= LEVEL
    return {"pairs": pairs, "visits": visits, **{name: times / runs for name, times in found.items()}}


def seconds(states: int, rows: int) -> dict[str, Any]:
    """One long log in memory, and the same from a Parquet file by its engine."""
    rng = np.random.default_rng(2)
    after = rng.integers(states, size=(states, 5, 10)).tolist()
    actions, draws = rng.integers(5, size=rows), np.minimum(rng.geometric(0.4, size=rows) - 1, 9).tolist()
    path = [0]
    for a, j in zip(actions.tolist(), draws, strict=True):
        path.append(after[path[-1]][a][j])
    task, visited = task_of(states, 5), np.array(path)
    start = time.perf_counter()
    pt.diagnose(task, pt.Transitions(visited[:-1], actions, visited[1:]))
    memory = time.perf_counter() - start
    return {"states": states, "rows": rows, "arrays": memory, "parquet": from_file(task, visited, actions)}


def from_file(task: pt.Task, path: IntArray, actions: IntArray) -> float:
    """Seconds of `diagnose_log`, without those of `logs`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    from policytest import sources

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "log.parquet"
        columns = {"s": path[:-1], "a": actions, "s_next": path[1:], "order": np.arange(len(actions))}
        pq.write_table(pa.table(columns), file)
        log = sources.logs(file, task)
        start = time.perf_counter()
        sources.diagnose_log(task, log)
        return time.perf_counter() - start


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    small = options.small
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    runs = 10 if small else 200
    print(f"\nfalse alarms at level {LEVEL}: pairs, visits of each, evidence, G-test, shuffling")
    alarms = [
        false_alarms(runs, *size) for size in ([(50, 8)] if small else [(10, 8), (400, 8), (4000, 8), (400, 100)])
    ]
    for row in alarms:
        print("  {pairs:6,} {visits:6,} {evidence:8.3f} {g_test:8.3f} {shuffling:8.3f}".format(**row), flush=True)
    print("\ndependence found: rows, strength, evidence, G-test")
    sizes = [(500, 0.6)] if small else [(n, q) for n in (500, 2000, 8000) for q in (0.1, 0.2, 0.4)]
    power = [detected(runs, *size) for size in sizes]
    for row in power:
        print("  {rows:6,} {strength:6.2f} {evidence:8.3f} {g_test:8.3f}".format(**row), flush=True)
    print("\nseconds: states, rows, from arrays, from Parquet by DuckDB")
    times = [seconds(*size) for size in ([(20, 5000)] if small else [(3, 1_000_000), (1000, 1_000_000)])]
    for row in times:
        print("  {states:6,} {rows:10,} {arrays:8.2f} {parquet:8.2f}".format(**row), flush=True)
    if options.json:
        numbers = {"false_alarms": alarms, "power": power, "seconds": times}
        Path(options.json).write_text(json.dumps(numbers, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
