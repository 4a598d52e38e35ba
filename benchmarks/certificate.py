"""How long a proof takes (CPU time), and what it costs in samples.

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
    """Prove the distance of a kernel with 1,000 samples a pair."""
    weights = np.full(task.policy.shape, 1000.0)
    begin = time.process_time()
    found = pt.nearest_kernel(task, kernel, weights, threshold, pt.Certified(gap=gap, max_nodes=nodes))
    spent = time.process_time() - begin
    steps = found.certificate.steps if found.certificate is not None else ()
    begin = time.process_time()
    checked = found.certificate is not None and found.certificate.verify()
    return {
        "states": task.n_states,
        "gap": gap,
        "proved": checked,
        "lower/upper": found.lower / found.upper,
        "boxes": 1 + sum(step.action == 3 for step in steps) * 2,
        "steps": len(steps),
        "seconds": spent,
        "verify": time.process_time() - begin,
    }


def papers(n: int, gap: float) -> dict[str, Any]:
    """The paper's instances."""
    instance = pt.instances.paper(n)
    return proof(instance.task, instance.kernel, 0.0, gap, 2000)


def growth(S: int, successors: int | None, way: float, gap: float, nodes: int) -> dict[str, Any]:
    """Random instances with 2 actions, at a threshold this share of the way to the lowest value."""
    instance = pt.instances.random(S, S, 2, successors=successors)
    value, (low, _) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    row = proof(instance.task, instance.kernel, value - way * (value - low), gap, nodes)
    return {**row, "successors": successors or S, "way": way}


def price(n: int, seeds: int) -> dict[str, Any]:
    """Samples that a certified answer needs beyond an uncertified one, and the time of a whole certified test."""
    instance = pt.instances.paper(n)
    sim = pt.TabularSimulator(instance.kernel)
    extra, spent = [], []
    for seed in range(seeds):
        begin = time.process_time()
        proved = pt.decide(
            instance.task, sim, threshold=0.0, delta=0.05, method=pt.PTST(solver=pt.Certified()), rng=seed
        )
        spent.append(time.process_time() - begin)
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
    dense = [(S, None) for S in ((3,) if small else (2, 5, 10, 20, 30))]
    sizes = [*dense, *((S, 3) for S in ((10,) if small else (50, 100, 200)))]
    gaps = (0.5,) if small else (0.5, 0.2, 0.05, 0.01)
    results: dict[str, Any] = {
        "papers": [papers(n, gap) for n in ((2, 3) if small else (2, 3, 5)) for gap in (0.1, 0.03, 0.01, 0.001)],
        "growth": [
            growth(S, successors, way, gap, 10 if small or S == 100 else 50 if S < 100 else 2)
            for way in (0.05, 0.15)
            for S, successors in sizes
            for gap in gaps
            if S <= 50 or gap >= 0.2 or (way < 0.1 and (S <= 100 or gap >= 0.05))
        ],
        "price": [price(n, 2 if small else 30) for n in ((2,) if small else (2, 3, 5))],
    }
    print("Proving the distance on the paper's instances")
    print("  S=A    gap   boxes  steps      time    verify")
    for row in results["papers"]:
        _print(f"{row['states']:<4}", row)
    print("\nRandom instances, 2 actions, by the way of the threshold to the lowest value")
    print("  (at most 50 boxes, 10 with 100 states, 2 with 200)")
    print("  way   S  successors    gap   boxes  steps      time    verify")
    for row in results["growth"]:
        _print(f"{row['way']:.2f} {row['states']:<4} {row['successors']:<6}", row)
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
