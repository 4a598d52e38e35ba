"""How often does a log settle the question, where its own estimate is some standard deviations away from the bar?

    python benchmarks/settled_logs.py            # 200 logs of each kind (part of `make bench`)
    python benchmarks/settled_logs.py --small    # one of each, a tenth as long, used by the tests
    python benchmarks/settled_logs.py --jobs 16  # on as many cores, the same numbers
    python benchmarks/settled_logs.py --json F   # also write the numbers to a file

Logs are trajectories of random actions: 21,000 rows about customers who leave, 6,700 rows about patients. Bars are 4.5
and 3.5 standard deviations of the estimate below the true value, and as far above. Answers by `assess` as it is called
without a method, beside `TDBetting()`, one set of coins. An answer on the wrong side is counted as wrong.

Then: how many rows of a log it takes on average, in random tasks of 10 states and 3 actions whose value is a fifth
of the return's standard deviation away from the bar, beside the lower bound for this log's shares of pairs; how wide
the interval of 5,000 rows is, relative to the usual one for one look at them; and how often it misses the value.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from contextlib import nullcontext
from functools import partial
from multiprocessing import Pool
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from one_look import continuing, customers, episodic, followed
from policytest._base.arrays import FloatArray
from policytest.kl.boundaries import information


def patients() -> tuple[pt.Task, FloatArray]:
    """Mild, moderate, severe and intensive care; well and dead."""
    well, dead = 4, 5
    kernel = np.zeros((6, 3, 6))
    kernel[0] = [[0.45, 0.10, 0, 0, 0.45, 0], [0.40, 0.05, 0, 0, 0.55, 0], [0.42, 0.08, 0, 0, 0.50, 0]]
    kernel[1] = [
        [0.35, 0.40, 0.15, 0.02, 0.08, 0],
        [0.45, 0.35, 0.10, 0.01, 0.09, 0],
        [0.40, 0.40, 0.10, 0.01, 0.09, 0],
    ]
    kernel[2, 0], kernel[2, 1] = [0.05, 0.30, 0.40, 0.20, 0.03, 0.02], [0.08, 0.37, 0.37, 0.13, 0.04, 0.01]
    kernel[2, 2] = [0.10, 0.42, 0.34, 0.10, 0.03, 0.01]
    kernel[3] = [[0, 0.05, 0.30, 0.50, 0, 0.15], [0, 0.08, 0.34, 0.48, 0, 0.10], [0, 0.10, 0.40, 0.43, 0, 0.07]]
    kernel[well, :, well] = kernel[dead, :, dead] = 1.0
    rewards = np.zeros((6, 3, 6))
    rewards[:4, :, well] = 1.0
    policy = np.eye(3)[[0, 1, 2, 2, 0, 0]]
    return pt.Task(rewards, policy, [0.2, 0.5, 0.25, 0.05, 0, 0], 0.98, terminal=[well, dead]), kernel


GAP = 0.2  # of random tasks, in standard deviations of the return
Each = Callable[[Callable[[int], Any], range], list[Any]]
KINDS: dict[str, tuple[Callable[[], tuple[pt.Task, FloatArray]], int]] = {
    "customers": (customers, 21_000),
    "patients": (patients, 6_700),
}


METHODS = {"default": None, "one set": pt.TDBetting()}


def one_log(name: str, rows: int, seed: int) -> dict[tuple[float, str], int]:
    """1 for a right answer, -1 for a wrong one, 0 for none; at each bar and by each method."""
    task, kernel = KINDS[name][0]()
    data = followed(task, kernel, rows, np.random.default_rng((11, seed)))
    sd = pt.value_interval(task, data, looks="one").width / (2 * 1.959964)
    found = {}
    for distance in (-4.5, -3.5, 3.5, 4.5):
        right = "above" if distance < 0 else "below"
        for by, method in METHODS.items():
            answer = pt.assess(task, data, pt.value(task, kernel) + distance * sd, method=method).answer
            found[distance, by] = 0 if answer is None else 1 if answer == right else -1
    return found


def settled(name: str, logs: int, part: int, every: Each) -> list[dict[str, Any]]:
    """One row for each distance and method."""
    rows = KINDS[name][1] // part
    found = every(partial(one_log, name, rows), range(logs))
    return [
        {
            "log": name,
            "rows": rows,
            "bar": distance,
            "method": by,
            "settled": sum(one[distance, by] > 0 for one in found) / logs,
            "wrong": sum(one[distance, by] < 0 for one in found),
        }
        for distance, by in found[0]
    ]


def random_task(seed: int) -> tuple[pt.Task, FloatArray, float]:
    """Ten states and three actions that go on for ever, and the standard deviation of the return."""
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.full(10, 0.5), size=(10, 3))
    task = pt.Task(rng.random((10, 3)), rng.dirichlet(np.ones(3), size=10), np.full(10, 0.1), 0.9)
    V, P = pt.state_values(task, kernel), np.einsum("sa,sax->sx", task.policy, kernel)
    squares = np.einsum("sa,sax,sax->s", task.policy, kernel, (task.rewards[:, :, None] + 0.9 * V) ** 2)
    variance = np.linalg.solve(np.eye(10) - 0.81 * P, squares - V**2)  # of the return from each state
    return task, kernel, math.sqrt(float(task.initial @ (variance + V**2) - pt.value(task, kernel) ** 2))


def one_task(most: int, seed: int, delta: float = 0.05) -> list[dict[str, Any]]:
    """The row at which a log is answered on both sides, ``most`` where it is not."""
    (task, kernel, sd), table = random_task(seed), []
    data = followed(task, kernel, most, np.random.default_rng(seed + 7))
    shares = data.counts(task, most).visits / most
    for side in (-GAP, GAP):
        bar = pt.value(task, kernel) + side * sd
        found = [pt.assess(task, data, bar, delta, method) for method in METHODS.values()]
        row: dict[str, Any] = {"seed": seed, "bar": side}
        row["bound"] = pt.characteristic_time(task, kernel, shares, bar).time * information(-math.log(delta))
        row |= {by: one.samples for by, one in zip(METHODS, found, strict=True)}
        row["wrong"] = sum(one.answer == ("below" if side < 0 else "above") for one in found)
        table.append(row)
    return table


def one_width(make: Callable[[], tuple[pt.Task, FloatArray]], rows: int, seed: int) -> tuple[float, bool]:
    """The width of the interval that is valid at all times, relative to the usual one; whether it ever misses."""
    task, kernel = make()
    data = followed(task, kernel, rows, np.random.default_rng((3, seed)))
    found = [pt.value_interval(task, data.first(size)) for size in (rows // 10, rows // 3, rows)]
    missed = any(pt.value(task, kernel) not in interval for interval in found)
    return found[-1].width / pt.value_interval(task, data, looks="one").width, missed


def widths(logs: int, rows: int, every: Each) -> list[dict[str, Any]]:
    """One row for each task."""
    table = []
    for make in (episodic, continuing, customers):
        found = every(partial(one_width, make, rows), range(logs))
        ratio, missed = (float(np.mean(part)) for part in zip(*found, strict=True))
        table.append({"log": make.__name__, "rows": rows, "ratio": ratio, "missed": missed})
    return table


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description="How often logs settle the question")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--jobs", type=int, default=1, help="processes; they change no number")
    given = parser.parse_args()
    logs, part, tasks, most = (1, 10, 1, 3000) if given.small else (given.logs, 1, 20, 40_000)
    with Pool(given.jobs) if given.jobs > 1 else nullcontext() as pool:

        def every(one: Callable[[int], Any], seeds: range) -> list[Any]:
            return list(map(one, seeds)) if pool is None else pool.map(one, seeds, chunksize=1)

        print(f"{'log':<12}{'rows':>8}{'bar, in sd':>12}  {'method':<10}{'settled':>8}{'wrong':>7}   {logs} logs each")
        table = [row for name in KINDS for row in settled(name, logs, part, every)]
        for row in table:
            shown = f"{row['log']:<12}{row['rows']:>8,}{row['bar']:>12}  {row['method']:<10}"
            print(f"{shown}{row['settled']:>8.2f}{row['wrong']:>7}", flush=True)
        needed = [row for rows in every(partial(one_task, most), range(tasks)) for row in rows]
        mean = {name: float(np.mean([row[name] for row in needed])) for name in ("bound", *METHODS)}
        wrong = sum(row["wrong"] for row in needed)
        print(f"\nrandom tasks, mean rows to the answer: {mean['default']:,.0f}; by one set {mean['one set']:,.0f};")
        print(f"lower bound for these shares of pairs {mean['bound']:,.0f}; wrong answers {wrong} of {2 * len(needed)}")
        wide = widths(logs, 500 if given.small else 5000, every)
        for row in wide:
            print(
                f"{row['log']:<12}{row['rows']:>8,} rows: {row['ratio']:.2f} times as wide, missed {row['missed']:.3f}"
            )
    if given.json is not None:
        given.json.write_text(json.dumps({"logs": logs, "table": table, "needed": needed, "widths": wide}))


if __name__ == "__main__":
    main()
