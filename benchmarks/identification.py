"""How many samples it takes to find the optimal policy: betting, the KL rule, and KLB-TS.

python benchmarks/identification.py            # the full table (some minutes)
python benchmarks/identification.py --small    # a quick run, used by the tests
python benchmarks/identification.py --json F   # also write the numbers to a file

Means over seeds at delta = 0.05. A number after ">" is a mean over runs some of which were cut at the limit: more
would be needed. Only betting, and KLB-TS where its own proof suffices, are certified.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from datetime import date
from typing import Any

import numpy as np

import policytest as pt

METHODS: dict[str, Any] = {
    "betting": pt.TDBetting(),
    "KL, uniform": pt.PTST(),
    "KL, adaptive": pt.PTST(allocation=pt.Adaptive()),
    "KLB-TS": pt.KLBTS(),
}


def questions(small: bool) -> dict[str, Any]:
    """The paper's instances, and two random ones, the second with declared supports."""
    found = {f"the paper's, {n} states": pt.instances.paper(n) for n in ((2,) if small else (2, 3, 5))}
    if not small:
        found["random, 4 states"] = pt.instances.random(1, 4, 3, discount=0.8)
        found["random, 6 states, 2 successors"] = pt.instances.random(8, 6, 2, successors=2, discount=0.8)
    return found


def solution(instance: Any) -> tuple[Any, float]:
    """The optimal actions, and the least loss of a second best one, by value iteration."""
    task, V = instance.task, np.zeros(instance.task.n_states)
    for _ in range(5000):
        Q = task.rewards + task.discount * instance.kernel @ V
        V = Q.max(axis=1)
    ordered = np.sort(Q, axis=1)
    return Q.argmax(axis=1), float((ordered[:, -1] - ordered[:, -2]).min())


def measure(instance: Any, method: Any, runs: int, limit: int) -> dict[str, Any]:
    """Mean samples over seeds, runs that were cut, wrong answers, and seconds."""
    task, sim, right = instance.task, pt.TabularSimulator(instance.kernel), solution(instance)[0]
    samples, cut, wrong, proved, begun = [], 0, 0, 0, time.perf_counter()
    for seed in range(runs):
        found = pt.identify(
            task.rewards, task.initial, task.discount, sim, rng=seed, max_samples=limit, support=task.support,
            method=method,
        )  # fmt: skip
        samples.append(found.samples)
        cut += not found.answered
        proved += found.certified
        wrong += found.answered and bool((found.policy.argmax(axis=1) != right).any())
    seconds = (time.perf_counter() - begun) / runs
    return {"mean": float(np.mean(samples)), "cut": cut, "wrong": wrong, "certified": proved, "seconds": seconds}


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    runs, limit = (2, 20_000) if options.small else (10, 1_000_000)
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, {runs} runs each")
    print("  instance                         least gap  method             samples  cut  wrong  certified   s/run")
    rows = []
    for name, instance in questions(options.small).items():
        for words, method in METHODS.items():
            row = {"instance": name, "gap": solution(instance)[1], "method": words}
            row.update(measure(instance, method, runs, limit))
            rows.append(row)
            shown = f"{'> ' if row['cut'] else ''}{row['mean']:,.0f}"
            print(
                f"  {name:<32} {row['gap']:9.3g}  {words:<13} {shown:>12} {row['cut']:4d} {row['wrong']:6d}"
                f" {row['certified']:10d} {row['seconds']:7.2f}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
