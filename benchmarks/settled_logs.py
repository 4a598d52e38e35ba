"""How often does a log settle the question, where its own estimate is some standard deviations away from the bar?

    python benchmarks/settled_logs.py            # 200 logs of each kind (part of `make bench`)
    python benchmarks/settled_logs.py --small    # one of each, a tenth as long, used by the tests
    python benchmarks/settled_logs.py --json F   # also write the numbers to a file

Logs are trajectories of random actions: 21,000 rows about customers who leave, 6,700 rows about patients. Bars are 4.5
and 3.5 standard deviations of the estimate below the true value, and as far above. Answers by `assess` as it is called
without a method, beside `TDBetting()`, one set of coins. An answer on the wrong side is counted as wrong.

Then: how many rows of a log it takes on average, in random tasks of 10 states and 3 actions whose value is half a
standard deviation of the return away from the bar, beside the lower bound for this log's shares of pairs; how wide
the interval of 5,000 rows is, relative to the usual one for one look at them; and how often it misses the value.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from one_look import continuing, customers, episodic, followed
from policytest._base.arrays import FloatArray
from policytest.methods.boundaries import information


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


KINDS: dict[str, tuple[Callable[[], tuple[pt.Task, FloatArray]], int]] = {
    "customers": (customers, 21_000),
    "patients": (patients, 6_700),
}


def measured(name: str, logs: int, part: int = 1, seed: int = 11) -> list[dict[str, Any]]:
    """One row for each distance and side."""
    make, rows = KINDS[name][0], KINDS[name][1] // part
    (task, kernel), rng = make(), np.random.default_rng(seed)
    value = pt.value(task, kernel)
    found: dict[tuple[float, str], list[int]] = {}
    for _ in range(logs):
        data = followed(task, kernel, rows, rng)
        sd = pt.value_interval(task, data, looks="one").width / (2 * 1.959964)
        for distance in (-4.5, -3.5, 3.5, 4.5):
            right = "above" if distance < 0 else "below"
            for method in (None, pt.TDBetting()):
                answer = pt.assess(task, data, value + distance * sd, method=method).answer
                entry = found.setdefault((distance, "default" if method is None else "stacks"), [0, 0])
                entry[0] += answer == right
                entry[1] += answer is not None and answer != right
    return [
        {"log": name, "rows": rows, "bar": distance, "method": method, "settled": right / logs, "wrong": wrong}
        for (distance, method), (right, wrong) in found.items()
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


def rows_needed(tasks: int, most: int = 30_000, delta: float = 0.05) -> list[dict[str, Any]]:
    """The row at which each log is answered, ``most`` where it is not."""
    table = []
    for seed in range(tasks):
        task, kernel, sd = random_task(seed)
        data = followed(task, kernel, most, np.random.default_rng(seed + 7))
        shares = data.counts(task, most).visits / most
        for side in (-0.5, 0.5):
            bar = pt.value(task, kernel) + side * sd
            bound = pt.characteristic_time(task, kernel, shares, bar).time * information(-math.log(delta))
            rows = [pt.assess(task, data, bar, delta, method) for method in (None, pt.TDBetting())]
            table.append(
                {
                    "seed": seed,
                    "bar": side,
                    "bound": bound,
                    "rows": rows[0].samples,
                    "one set": rows[1].samples,
                    "wrong": sum(found.answer == ("below" if side < 0 else "above") for found in rows),
                }
            )
    return table


def widths(logs: int, rows: int = 5_000) -> list[dict[str, Any]]:
    """The width of the interval that is valid at all times, relative to the usual one; how often it misses."""
    table = []
    for make in (episodic, continuing, customers):
        (task, kernel), rng = make(), np.random.default_rng(3)
        found = [followed(task, kernel, rows, rng) for _ in range(logs)]
        intervals = [pt.value_interval(task, data) for data in found]
        usual = [pt.value_interval(task, data, looks="one").width for data in found]
        missed = sum(pt.value(task, kernel) not in interval for interval in intervals)
        ratio = float(np.mean([interval.width / width for interval, width in zip(intervals, usual, strict=True)]))
        table.append({"log": make.__name__, "rows": rows, "ratio": ratio, "missed": missed / logs})
    return table


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description="How often logs settle the question")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--logs", type=int, default=200)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logs, part, table = (1, 10, []) if given.small else (given.logs, 1, [])
    print(f"{'log':<12}{'rows':>8}{'bar, in sd':>12}  {'method':<10}{'settled':>8}{'wrong':>7}   {logs} logs each")
    for name in KINDS:
        for row in measured(name, logs, part):
            table.append(row)
            print(
                f"{row['log']:<12}{row['rows']:>8,}{row['bar']:>12}  {row['method']:<10}"
                f"{row['settled']:>8.2f}{row['wrong']:>7}",
                flush=True,
            )
    needed = rows_needed(1, 3000) if given.small else rows_needed(10)
    names = "bound", "rows", "one set"
    mean = {name: float(np.mean([row[name] for row in needed])) for name in names}
    wrong = sum(row["wrong"] for row in needed)
    print(
        f"\nrandom tasks, mean rows to the answer: {mean['rows']:,.0f}, with one set of coins {mean['one set']:,.0f}; "
    )
    print(f"lower bound for these shares of pairs {mean['bound']:,.0f}; wrong answers {wrong} of {2 * len(needed)}")
    wide = widths(1, 500) if given.small else widths(given.logs)
    for row in wide:
        print(f"{row['log']:<12}{row['rows']:>8,} rows: {row['ratio']:.2f} times as wide, missed {row['missed']:.3f}")
    if given.json is not None:
        given.json.write_text(json.dumps({"logs": logs, "table": table, "needed": needed, "widths": wide}))


if __name__ == "__main__":
    main()
