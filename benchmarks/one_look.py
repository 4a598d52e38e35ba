"""Does the usual interval for one look cover as often as it says?

    python benchmarks/one_look.py            # 2,000 logs of each kind (part of `make calibrate`)
    python benchmarks/one_look.py --small    # 40 of each, used by the tests
    python benchmarks/one_look.py --json F   # also write the numbers to a file

Logs are trajectories of another policy, one after the other, from a task with customers who leave, one of five states
that end, and one of eight states that goes on for ever. Nominal coverage is 95%.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

import policytest as pt
from policytest._base.arrays import FloatArray


def customers() -> tuple[pt.Task, FloatArray]:
    """New, active, at risk and lost; email, nothing and coupon."""
    rewards = [[5, 4, 0], [12, 11, 7], [4, 3, -1], [0, 0, 0]]
    kernel = np.array(
        [
            [[0, 0.55, 0.25, 0.20], [0, 0.70, 0.18, 0.12], [0, 0.72, 0.18, 0.10]],
            [[0, 0.86, 0.12, 0.02], [0, 0.87, 0.11, 0.02], [0, 0.89, 0.09, 0.02]],
            [[0, 0.25, 0.45, 0.30], [0, 0.32, 0.43, 0.25], [0, 0.45, 0.35, 0.20]],
            [[0, 0, 0, 1]] * 3,
        ]
    )
    policy = np.eye(3)[[1, 0, 2, 0]]
    return pt.Task(np.array(rewards, dtype=float), policy, np.eye(4)[0], 0.95, terminal=[3]), kernel


def episodic() -> tuple[pt.Task, FloatArray]:
    """Five states, each of which ends an episode with probability 0.15."""
    rng, kernel = np.random.default_rng(5), np.zeros((6, 2, 6))
    kernel[:5, :, :5] = 0.85 * rng.dirichlet(np.ones(5), size=(5, 2))
    kernel[:5, :, 5], kernel[5, :, 5] = 0.15, 1.0
    rewards = np.vstack([rng.random((5, 2)), np.zeros((1, 2))])
    return pt.Task(rewards, np.full((6, 2), 0.5), np.eye(6)[0], 0.95, terminal=[5]), kernel


def continuing() -> tuple[pt.Task, FloatArray]:
    """Eight states without an end."""
    rng = np.random.default_rng(8)
    kernel = rng.dirichlet(np.ones(8), size=(8, 2))
    return pt.Task(rng.random((8, 2)), rng.dirichlet(np.ones(2), size=8), np.full(8, 0.125), 0.9), kernel


def followed(task: pt.Task, kernel: FloatArray, rows: int, rng: np.random.Generator) -> pt.Transitions:
    """Trajectories of uniformly random actions."""
    ends, A = set(task.ends), task.n_actions
    places, moves = np.cumsum(task.initial), np.cumsum(kernel, axis=2)
    s, a, x = (np.zeros(rows, dtype=np.int64) for _ in range(3))
    at, last = -1, task.n_states - 1
    for i, (first, second, third) in enumerate(rng.random((rows, 3))):
        at = min(int(np.searchsorted(places, first, side="right")), last) if at < 0 or at in ends else at
        s[i], a[i] = at, int(second * A)
        at = x[i] = min(int(np.searchsorted(moves[at, a[i]], third, side="right")), last)
    return pt.Transitions(s, a, x)


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description="Coverage of the usual interval for one look")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logs, table = 40 if given.small else 2000, []
    print(f"{'log':<24}{'rows':>8}{'covers':>9}   nominal 0.95, {logs} logs each")
    for make, rows in ((customers, 1000), (customers, 5000), (episodic, 1000), (continuing, 1000), (customers, 200)):
        (task, kernel), rng = make(), np.random.default_rng(7)
        value = pt.value(task, kernel)
        data = (followed(task, kernel, rows, rng) for _ in range(logs))
        hits = sum(value in pt.value_interval(task, log, looks="one") for log in data)
        print(f"{make.__name__:<24}{rows:>8,}{hits / logs:>9.3f}", flush=True)
        table.append({"log": make.__name__, "rows": rows, "covers": hits / logs})
    if given.json is not None:
        given.json.write_text(json.dumps({"logs": logs, "table": table}))


if __name__ == "__main__":
    main()
