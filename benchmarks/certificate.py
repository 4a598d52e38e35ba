"""How long a proof takes, and what it costs in samples.

python benchmarks/certificate.py            # the full tables (a few minutes)
python benchmarks/certificate.py --small    # a quick run of every part, used by the tests
python benchmarks/certificate.py --json F   # also write the numbers to a file
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


def proof(task: pt.Task, kernel: Any, threshold: float, gap: float, nodes: int) -> dict[str, Any]:
    """Prove the distance of a kernel with 1,000 samples a pair, once to compile and once for the clock."""
    weights = np.full(task.policy.shape, 1000.0)
    begin = time.perf_counter()
    found = pt.nearest_kernel(task, kernel, weights, threshold, pt.Certified(gap=gap, max_nodes=nodes))
    spent = time.perf_counter() - begin
    steps = found.certificate.steps if found.certificate is not None else ()
    begin = time.perf_counter()
    checked = found.certificate is not None and found.certificate.verify()
    return {
        "states": task.n_states,
        "gap": gap,
        "proved": checked,
        "lower/upper": found.lower / found.upper,
        "boxes": 1 + sum(step.action == 3 for step in steps) * 2,
        "steps": len(steps),
        "seconds": spent,
        "verify": time.perf_counter() - begin,
    }


def papers(n: int, gap: float) -> dict[str, Any]:
    """The paper's instances."""
    instance = pt.instances.paper(n)
    return proof(instance.task, instance.kernel, 0.0, gap, 2000)


def growth(S: int, successors: int | None, gap: float, nodes: int) -> dict[str, Any]:
    """Random instances with 2 actions, at a threshold 15% of the way to the lowest value."""
    instance = pt.instances.random(S, S, 2, successors=successors)
    value, (low, _) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    row = proof(instance.task, instance.kernel, value - 0.15 * (value - low), gap, nodes)
    return {**row, "successors": successors or S}


def price(n: int, seeds: int) -> dict[str, Any]:
    """Samples that a certified answer needs beyond an uncertified one, and the time of a whole certified test."""
    instance = pt.instances.paper(n)
    sim = pt.TabularSimulator(instance.kernel)
    extra, spent = [], []
    for seed in range(seeds):
        begin = time.perf_counter()
        proved = pt.decide(instance.task, sim, delta=0.05, method=pt.PTST(solver=pt.Certified()), rng=seed)
        spent.append(time.perf_counter() - begin)
        found = pt.stopping_times(
            instance.task, sim, 0.0, [0.05], pt.PTST(solver=pt.ProjectionFree()), rng=seed
        ).samples[0]
        if not proved.certified:
            raise SystemExit(f"{n}x{n}, seed {seed}: not certified")
        extra.append(proved.samples / found - 1)
    return {"states": n, "extra": float(np.mean(extra)), "most": max(extra), "seconds": float(np.median(spent))}


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    small = options.small
    papers(2, 0.1)  # compile
    sizes = [(3, None), (10, 3)] if small else [(2, None), (5, None), (10, None), (20, None), (30, None), (50, 3)]
    results: dict[str, Any] = {
        "papers": [papers(n, gap) for n in ((2, 3) if small else (2, 3, 5)) for gap in (0.1, 0.03, 0.01, 0.001)],
        "growth": [
            growth(S, successors, gap, 20 if small else 100)
            for S, successors in sizes
            for gap in ((0.2,) if small else (0.2, 0.05))
        ],
        "price": [price(n, 2 if small else 30) for n in ((2,) if small else (2, 3, 5))],
    }
    print("Proving the distance on the paper's instances")
    print("  S=A    gap   boxes  steps      time    verify")
    for row in results["papers"]:
        _print(f"{row['states']:<4}", row)
    print("\nRandom instances, 2 actions (at most 100 boxes)")
    print("  S  successors    gap   boxes  steps      time    verify")
    for row in results["growth"]:
        _print(f"{row['states']:<4} {row['successors']:<6}", row)
    print("\nWhole certified tests, delta = 0.05: samples beyond an uncertified answer")
    for row in results["price"]:
        print(
            f"  {row['states']}x{row['states']}  {row['extra']:.1%} on average, {row['most']:.1%} at most; "
            f"{row['seconds'] * 1e3:.0f} ms a test"
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


def _print(first: str, row: dict[str, Any]) -> None:
    outcome = "" if row["proved"] else f"   not proved: lower end {row['lower/upper']:.2f} of the upper"
    print(
        f"  {first} {row['gap']:6.3f} {row['boxes']:6d} {row['steps']:6d} {row['seconds'] * 1e3:8.1f} ms"
        f" {row['verify'] * 1e3:7.1f} ms{outcome}",
        flush=True,
    )


if __name__ == "__main__":
    main()
