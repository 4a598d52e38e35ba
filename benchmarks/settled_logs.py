"""How often does a log settle the question, where its own estimate is some standard deviations away from the bar?

    python benchmarks/settled_logs.py            # 200 logs of each kind (part of `make bench`)
    python benchmarks/settled_logs.py --small    # one of each, a tenth as long, used by the tests
    python benchmarks/settled_logs.py --json F   # also write the numbers to a file

Logs are trajectories of random actions: 21,000 rows about customers who leave, 6,700 rows about patients. Bars are 4.5
and 3.5 standard deviations of the estimate below the true value, and as far above. Answers by `assess` as it is called
without a method, beside `TDBetting()`, which waits for missing pairs. An answer on the wrong side is counted as wrong.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from one_look import customers, followed
from policytest._base.arrays import FloatArray


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


def main() -> None:
    """The table."""
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
    if given.json is not None:
        given.json.write_text(json.dumps({"logs": logs, "table": table}))


if __name__ == "__main__":
    main()
