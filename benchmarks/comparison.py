"""How many transitions a comparison of two policies takes: by betting, by the KL rule, and by two separate tests.

python benchmarks/comparison.py            # the full table (some minutes)
python benchmarks/comparison.py --small    # a quick run, used by the tests
python benchmarks/comparison.py --json F   # also write the numbers to a file

The rival tests each policy against the true middle of the two values at delta/2, which nobody would know: a rival that
is stronger than two intervals. delta = 0.05. A number after ">" is a mean over runs some of which were cut at the
limit. Answers of the KL rule on differences are not certified.
"""

from __future__ import annotations

import argparse
import json
import platform
from datetime import date
from typing import Any

import numpy as np

import policytest as pt

WAYS = ("compare", "two tests", "KL, uniform", "KL, adaptive")
LIMIT = {True: 2_000_000, False: 100_000}  # of betting, and of the KL rule, whose samples cost more time


def pairs(small: bool) -> dict[str, tuple[pt.Task, pt.Task, Any]]:
    """The paper's instances with its second policies, and random ones whose policies differ a little or a lot."""
    found = {}
    for n in (2,) if small else (2, 3, 5):
        instance = pt.instances.paper(n)
        task = instance.task
        other = pt.Task(task.rewards, instance.alternative_policy, task.initial, task.discount)
        found[f"paper {n}x{n}"] = (task, other, instance.kernel)
    for S, mixed in () if small else ((5, 0.3), (10, 0.3), (30, 1.0)):
        instance = pt.instances.random(S, S, 3)
        task, rng = instance.task, np.random.default_rng(S)
        policy = (1 - mixed) * task.policy + mixed * rng.dirichlet(np.ones(3), size=S)
        found[f"random, S = {S}"] = (task, pt.Task(task.rewards, policy, task.initial, task.discount), instance.kernel)
    return found


def measure(name: str, first: pt.Task, second: pt.Task, kernel: Any, runs: int) -> dict[str, Any]:
    """Mean transitions of both ways, over seeds."""
    a, b = pt.value(first, kernel), pt.value(second, kernel)
    sim, middle = pt.TabularSimulator(kernel), (a + b) / 2
    right = "above" if a > b else "below"
    row: dict[str, Any] = {"pair": name, "difference": a - b, "wrong": 0, "cut": []}
    ways: dict[str, Any] = {
        "compare": None,
        "KL, uniform": pt.PTST(),
        "KL, adaptive": pt.PTST(allocation=pt.Adaptive()),
    }
    for way, method in ways.items():
        samples = []
        for seed in range(runs if method is None else max(runs // 2, 2)):
            verdict = pt.compare(first, second, sim, method=method, rng=seed, max_samples=LIMIT[method is None])
            row["wrong"] += verdict.answer not in (right, None)
            row["cut"] += [way] if verdict.answer is None else []
            samples.append(verdict.samples)
        row[way] = float(np.mean(samples))
    apart = []
    for seed in range(runs):
        alone = [
            pt.decide(task, sim, middle, 0.025, pt.TDBetting(), rng=2 * seed + side, max_samples=2_000_000).samples
            for side, task in enumerate((first, second))
        ]
        apart.append(sum(alone))
    return {**row, "two tests": float(np.mean(apart))}


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    print("  policies           difference     compare   two tests   KL, uniform  KL, adaptive   wrong")
    rows = []
    for name, question in pairs(options.small).items():
        row = measure(name, *question, 5 if options.small else 20)
        rows.append(row)
        shown = {way: f"{'> ' if way in row['cut'] else ''}{row[way]:,.0f}" for way in WAYS}
        print(
            f"  {name:<18} {row['difference']:10.3f} {shown['compare']:>11} {shown['two tests']:>11}"
            f" {shown['KL, uniform']:>13} {shown['KL, adaptive']:>13} {row['wrong']:7d}",
            flush=True,
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
