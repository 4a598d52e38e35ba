"""How many samples the sequential test needs, how that compares with the lower bound, and how fast it is.

    python benchmarks/sequential.py            # the full tables (about a minute)
    python benchmarks/sequential.py --small    # a quick run of every part, used by the tests
    python benchmarks/sequential.py --json F   # also write the numbers to a file

Run with one BLAS thread on an idle machine (`make bench` does). Ratios compare times taken in the same run.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import statistics
import time
from datetime import date
from functools import partial
from typing import Any

import numpy as np

import policytest as pt
from policytest.worst_case.problem import lay_out

local = partial(pt.PTST, solver=pt.ProjectionFree())  # the rule itself; a proof costs samples and time

DELTAS = (0.1, 1e-2, 1e-15)
FALLING = (1e-2, 1e-5, 1e-15, 1e-50, 1e-150, 1e-300)
BOUNDARIES: dict[str, Any] = {"paper": pt.PaperBoundary(), "mixture": pt.MixtureBoundary()}


def stopping_table(n: int, boundary: str, seeds: int) -> dict[str, Any]:
    """Mean stopping times and their standard errors over seeds, uniform sampling, one run for all deltas."""
    instance = pt.instances.paper(n)
    sim, method = pt.TabularSimulator(instance.kernel), local(boundary=BOUNDARIES[boundary])
    runs = [pt.stopping_times(instance.task, sim, 0.0, DELTAS, method, seed) for seed in range(seeds)]
    times = np.array([run.samples for run in runs], dtype=float)
    return {
        "states": n,
        "boundary": boundary,
        "mean": times.mean(axis=0).tolist(),
        "error": (times.std(axis=0, ddof=1) / math.sqrt(seeds)).tolist(),
        "wrong": int(sum((run.answers != "above").sum() for run in runs)),
        "solves": statistics.mean(run.solves for run in runs) / len(DELTAS),
    }


def against_lower_bound(n: int, seeds: int, allocation: str) -> dict[str, Any]:
    """E[tau] / (T* log(1/delta)) as delta falls, for the allocation that is tracked."""
    instance = pt.instances.paper(n)
    optimal = pt.optimal_allocation(instance.task, instance.kernel).weights
    shares = {"uniform": "uniform", "optimal": optimal}[allocation]
    bound = pt.characteristic_time(instance.task, instance.kernel, shares).time
    sim, method = pt.TabularSimulator(instance.kernel), local(allocation=shares)
    runs = [pt.stopping_times(instance.task, sim, 0.0, FALLING, method, seed).samples for seed in range(seeds)]
    ratio = np.mean(runs, axis=0) / (bound * -np.log(FALLING))
    return {"states": n, "allocation": allocation, "time": bound, "ratio": ratio.tolist()}


def speed(n: int, repeats: int) -> dict[str, Any]:
    """One whole test with the paper's boundary, against one check of the paper's heuristic, in the same run."""
    instance = pt.instances.paper(n)
    sim, method = pt.TabularSimulator(instance.kernel), local(boundary=pt.PaperBoundary())
    verdict = pt.decide(instance.task, sim, threshold=0.0, method=method, delta=0.05)
    weights = verdict.counts.visits / verdict.samples
    radius = pt.PaperBoundary().level(verdict.counts, 0.05, instance.task) / verdict.samples
    ball = lay_out(instance.task, verdict.counts.kernel(), weights).extreme(1.0, radius)
    tests, checks, samples, solves = [], [], [], []
    for seed in range(repeats):
        begin = time.perf_counter()
        done = pt.decide(instance.task, sim, threshold=0.0, method=method, delta=0.05, rng=seed)
        tests.append(time.perf_counter() - begin)
        samples.append(done.samples)
        solves.append(done.solves)
        begin = time.perf_counter()
        pt.SLSQPHeuristic().extreme(ball)
        checks.append(time.perf_counter() - begin)
    return {
        "states": n,
        "test": statistics.median(tests),
        "heuristic": statistics.median(checks),
        "samples": statistics.mean(samples),
        "solves": statistics.mean(solves),
    }


def rate(boundary: str, samples: int) -> dict[str, Any]:
    """Samples a second between solves: draws, counts and evidence, where the level is out of reach."""
    instance = pt.instances.paper(5)
    task, value = instance.task, pt.value(instance.task, instance.kernel)
    method, sim = local(boundary=BOUNDARIES[boundary]), pt.TabularSimulator(instance.kernel)
    for _ in range(2):  # the first time compiles; at a threshold that equals the value no witness ever fails
        begin = time.perf_counter()
        run = pt.decide(task, sim, value, 1e-300, method, max_samples=samples)
        spent = time.perf_counter() - begin
    return {"boundary": boundary, "samples": run.samples, "solves": run.solves, "rate": run.samples / spent}


def printed(n: int, seeds: int) -> dict[str, Any]:
    """The paper's experiments as printed: when the heuristic stops, and where the exact rule does, delta = 0.05."""
    instance = pt.instances.paper(n)
    sim = pt.TabularSimulator(instance.kernel)
    rows = []
    for seed in range(seeds):
        begin = time.perf_counter()
        early = pt.decide(instance.task, sim, threshold=0.0, delta=0.05, method=pt.PTST.as_printed(), rng=seed)
        spent = time.perf_counter() - begin
        exact = pt.stopping_times(instance.task, sim, 0.0, [0.05], local(boundary=pt.PaperBoundary()), seed)
        rows.append((early.samples, max(early.evidence), int(exact.samples[0]), spent))
    samples, evidence, needed, spent = (float(np.mean(column)) for column in zip(*rows, strict=True))
    return {"states": n, "samples": samples, "evidence": evidence, "exact": needed, "seconds": spent}


def calls(n: int) -> dict[str, Any]:
    """How often a simulator that must not be drawn from in vain is called."""
    instance = pt.instances.paper(n)
    table, called = pt.TabularSimulator(instance.kernel), []

    def draw(states: Any, actions: Any, rng: Any) -> Any:
        called.append(len(states))
        return table.draw(states, actions, rng)

    verdict = pt.decide(instance.task, draw, threshold=0.0, delta=0.05, method=local())
    if sum(called) != verdict.samples:
        raise SystemExit(f"{sum(called)} transitions were drawn, {verdict.samples} were used")
    return {"states": n, "samples": verdict.samples, "calls": len(called)}


def large(S: int, A: int, limit: int | None) -> dict[str, Any]:
    """A whole test with 5 declared successors a row, at a threshold 30% of the way to the lowest value."""
    instance = pt.instances.random(0, S, A, successors=5)
    value, (low, _) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    sim, threshold = pt.TabularSimulator(instance.kernel), value - 0.3 * (value - low)
    begin = time.perf_counter()
    run = pt.stopping_times(instance.task, sim, threshold, [0.05], local(), max_samples=limit)
    return {
        "states": S,
        "actions": A,
        "samples": int(run.samples[0]),
        "answer": run.answers[0],
        "solves": run.solves,
        "seconds": time.perf_counter() - begin,
    }


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    small = options.small
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    sizes, seeds = ((2,), 4) if small else ((2, 3, 5), 30)
    results: dict[str, Any] = {
        "table": [stopping_table(n, boundary, seeds) for n in sizes for boundary in BOUNDARIES],
        "bound": [against_lower_bound(n, seeds, kind) for n in sizes for kind in ("uniform", "optimal")],
        "speed": [speed(n, 3 if small else 30) for n in sizes],
        "rate": [rate(boundary, 100_000 if small else 20_000_000) for boundary in BOUNDARIES],
        "printed": [printed(2, 1 if small else 5)],
        "calls": [calls(n) for n in sizes],
        "large": [large(30, 2, 50_000)] if small else [large(S, 4, None) for S in (100, 1000)],
    }
    _print(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


def _print(results: dict[str, Any]) -> None:
    print("Mean stopping times (standard errors), uniform sampling, delta = " + " / ".join(f"{d:g}" for d in DELTAS))
    for row in results["table"]:
        cells = " / ".join(f"{m:,.0f} ({e:,.0f})" for m, e in zip(row["mean"], row["error"], strict=True))
        print(f"  {row['states']}x{row['states']} {row['boundary']:<8} {cells}   wrong answers: {row['wrong']}")
    print("\nE[tau] / (T* log(1/delta)), mixture boundary, delta = " + " / ".join(f"{d:g}" for d in FALLING))
    for row in results["bound"]:
        ratios = " / ".join(f"{ratio:.2f}" for ratio in row["ratio"])
        print(f"  {row['states']}x{row['states']} {row['allocation']:<8} T* {row['time']:7.2f}   {ratios}")
    print("\nOne whole test (paper's boundary, delta = 0.05) against ONE check of the paper's heuristic")
    for row in results["speed"]:
        print(
            f"  {row['states']}x{row['states']} test {row['test'] * 1e3:6.2f} ms, {row['samples']:,.0f} samples, "
            f"{row['solves']:.1f} solves; heuristic {row['heuristic'] * 1e3:6.2f} ms; "
            f"test/check {row['test'] / row['heuristic']:.3f}"
        )
    print("\nSamples a second between solves, 5x5")
    for row in results["rate"]:
        print(
            f"  {row['boundary']:<8} {row['rate'] / 1e6:6.1f} million "
            f"({row['samples']:,} samples, {row['solves']} solves)"
        )
    print("\nThe paper's experiments as printed, delta = 0.05: it stops early, on too little evidence")
    for row in results["printed"]:
        print(
            f"  {row['states']}x{row['states']} stops at {row['samples']:,.0f} with {row['evidence']:.1f} nats of "
            f"{-math.log(0.05):.1f}; the exact rule at {row['exact']:,.0f}; {row['seconds']:.1f} s a run"
        )
    print("\nCalls of a simulator that is never drawn from in vain (mixture, delta = 0.05)")
    for row in results["calls"]:
        print(f"  {row['states']}x{row['states']} {row['samples']:,} samples in {row['calls']:,} calls")
    print("\nWhole tests with 5 successors a row (mixture, delta = 0.05)")
    for row in results["large"]:
        print(
            f"  S = {row['states']}, A = {row['actions']}: {row['answer']} after {row['samples']:,} samples, "
            f"{row['solves']} solves, {row['seconds']:.1f} s"
        )


if __name__ == "__main__":
    main()
