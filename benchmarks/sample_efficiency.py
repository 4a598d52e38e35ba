"""How many transitions each method needs: all methods, several instances, delta from 0.1 to 1e-15, in one table.

python benchmarks/sample_efficiency.py            # the full table (about a quarter of an hour on two cores)
python benchmarks/sample_efficiency.py --small    # a quick run of every part, used by the tests
python benchmarks/sample_efficiency.py --json F   # also write the numbers to a file
python benchmarks/sample_efficiency.py --only TDBetting --only PTST   # the lines of some methods

Each run is capped at 2,000,000 transitions; a mean over runs that were cut is a lower bound, marked with ">". KL rules
run on the local solver here: that is when they would stop if proofs were free. "ville" is betting on truncated returns
by the package of that name, where it is installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import resource
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from datetime import date
from typing import Any

import numpy as np

import peers
import policytest as pt

DELTAS = (0.1, 0.05, 0.01, 1e-5, 1e-15)
CAP = 2_000_000
LOCAL = pt.ProjectionFree()


def _below(instance: Any, share: float = 1.0) -> float:
    """A threshold below the value by so many standard deviations of the values of states."""
    values = pt.state_values(instance.task, instance.kernel)
    return float(pt.value(instance.task, instance.kernel) - share * values.std())


def _instances() -> dict[str, tuple[Any, float]]:
    grid = pt.instances.grid_world(5, 5)
    garnet, large = (pt.instances.random(1, S, 4, successors=4, discount=0.95) for S in (20, 100))
    return {
        **{f"{n}x{n}": (pt.instances.paper(n), 0.0) for n in (2, 3, 5)},
        "small gap": (pt.instances.paper(2), 0.19),
        "grid world": (grid, _below(grid)),
        "Garnet 20": (garnet, _below(garnet)),
        "Garnet 100": (large, _below(large)),
    }


METHODS: dict[str, tuple[Callable[[Any], Any], int]] = {  # how it is made for an instance, and how many runs
    "TDBetting (default)": (lambda instance: pt.TDBetting(), 200),
    "PTST, mixture": (lambda instance: pt.PTST(solver=LOCAL), 20),
    "PTST, paper's boundary": (lambda instance: pt.PTST(boundary=pt.PaperBoundary(), solver=LOCAL), 20),
    "KL boxes": (lambda instance: pt.RectangularKL(), 10),
    "KLB-TS, one policy": (lambda instance: pt.KLBTS(), 10),
    "KLB-TS, two policies": (lambda instance: pt.KLBTS(policies=2, alternative=instance.alternative_policy), 10),
    "Monte Carlo, betting": (lambda instance: pt.MonteCarlo(), 20),
    "Monte Carlo, Bernstein": (lambda instance: pt.MonteCarlo(kind="bernstein"), 10),
    "Monte Carlo, Hoeffding": (lambda instance: pt.MonteCarlo(kind="hoeffding"), 10),
    "ville, on returns": (lambda instance: None, 10),
}


def cell(name: str, method: str, runs: int, cap: int) -> dict[str, Any] | None:
    """One method on one instance: mean transitions, standard error, wrong answers and cut runs for each delta."""
    instance, threshold = _instances()[name]
    if method == "KLB-TS, two policies" and (instance.alternative_policy is None or threshold != 0):
        return None
    if method.startswith("ville"):
        if importlib.util.find_spec("ville") is None:
            return None
        stops = [peers.ville_on_returns(instance, threshold, DELTAS, seed, cap) for seed in range(runs)]
        samples = np.array([[cap if stop is None else min(stop, cap) for stop in row] for row in stops])
        answers = np.array([[None if stop is None else "above" for stop in row] for row in stops], dtype=object)
    else:
        sim, rule = pt.TabularSimulator(instance.kernel), METHODS[method][0](instance)
        times = [
            pt.stopping_times(instance.task, sim, threshold, DELTAS, rule, seed, max_samples=cap)
            for seed in range(runs)
        ]
        samples, answers = np.array([one.samples for one in times]), np.array([one.answers for one in times])
    return {
        "instance": name,
        "method": method,
        "runs": runs,
        "mean": samples.mean(axis=0).tolist(),
        "error": (samples.std(axis=0) / np.sqrt(runs)).tolist(),
        "wrong": [(answers[:, j] == "below").sum().item() for j in range(len(DELTAS))],
        "cut": [(answers[:, j] == None).sum().item() for j in range(len(DELTAS))],  # noqa: E711
    }


def large(S: int, declared: bool, side: int) -> dict[str, Any]:
    """A sparse task of many states, with or without declared supports: transitions, seconds, memory."""
    instance = pt.instances.random(0, S, 4, successors=5, discount=0.95)
    threshold = _below(instance, float(side))
    given = instance.task
    task = given if declared else pt.Task(given.rewards, given.policy, given.initial, given.discount)
    sim = pt.TabularSimulator(instance.kernel)
    begin = time.perf_counter()
    verdict = pt.decide(task, sim, threshold)
    return {
        "states": S,
        "declared": declared,
        "answer": verdict.answer,
        "right": verdict.answer == ("above" if side > 0 else "below"),
        "samples": verdict.samples,
        "seconds": time.perf_counter() - begin,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
    }


def speed(n: int, samples: int) -> dict[str, Any]:
    """Transitions a second of betting from a table, at V = R, where it goes on for ever."""
    instance = pt.instances.paper(n)
    sim, value = pt.TabularSimulator(instance.kernel), pt.value(instance.task, instance.kernel)
    begin = time.perf_counter()
    pt.stopping_times(instance.task, sim, value, [1e-300], pt.TDBetting(), max_samples=samples)
    return {"states": n, "per second": samples / (time.perf_counter() - begin)}


def bound(name: str) -> list[float]:
    """T* of the best allocation times kl(delta, 1-delta): no test needs fewer, on average."""
    instance, threshold = _instances()[name]
    time = pt.optimal_allocation(instance.task, instance.kernel, threshold).time
    return [time * ((1 - 2 * delta) * float(np.log((1 - delta) / delta))) for delta in DELTAS]


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--only", metavar="NAME", action="append", help="methods whose names begin like this")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}", flush=True)
    names = ["2x2"] if options.small else list(_instances())
    results: dict[str, Any] = {"deltas": DELTAS, "bound": {name: bound(name) for name in names}, "cells": []}
    chosen = {method: runs for method, (_, runs) in METHODS.items() if method.startswith(tuple(options.only or [""]))}
    jobs = [(name, method, *_effort(name, runs, options.small)) for name in names for method, runs in chosen.items()]
    with ExitStack() as stack:
        run = map if options.small else stack.enter_context(ProcessPoolExecutor(2)).map
        for found in run(cell, *zip(*jobs, strict=True)):
            if found is not None:
                results["cells"].append(found)
                _print(found, results["bound"][found["instance"]])
    results["speed"] = [speed(n, 20_000 if options.small else 5_000_000) for n in (2, 3, 5)]
    rates = ", ".join(f"{row['per second'] / 1e6:.1f}" for row in results["speed"])
    print(f"\nBetting from a table, 2, 3 and 5 states: {rates} million transitions a second")
    print("\nMany states, 4 actions, 5 successors, the default method at delta = 0.05")
    results["large"] = []
    for declared, side in ((True, 1), (True, -1), (False, 1)):
        row = large(300 if options.small else 10_000, declared, side)
        results["large"].append(row)
        supports = "declared supports" if declared else "any state may follow"
        print(
            f"  {row['states']:,} states, {supports}: {row['answer']} after {row['samples']:,} transitions, "
            f"{row['seconds']:.1f} s, {row['megabytes']:.0f} MB",
            flush=True,
        )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


def _effort(name: str, runs: int, small: bool) -> tuple[int, int]:
    """Runs and cap: fewer where runs are long."""
    if small:
        return 2, 20_000
    return (max(runs // 10, 2) if name in ("grid world", "Garnet 20", "Garnet 100") and runs <= 20 else runs), CAP


_last = ""


def _print(found: dict[str, Any], least: list[float]) -> None:
    global _last
    if found["instance"] != _last:
        _last = found["instance"]
        print(f"\n{_last}: mean transitions (standard error; ratio to the lower bound)")
        print(f"  {'':24}" + "".join(f"{f'delta = {delta:g}':>24}" for delta in DELTAS))
        print(f"  {'lower bound':24}" + "".join(f"{number:>24.0f}" for number in least))
    cells = [
        f"{'>' if cut else ''}{mean:,.0f} ({error:,.0f}; {mean / low:.1f})"
        for mean, error, cut, low in zip(found["mean"], found["error"], found["cut"], least, strict=True)
    ]
    wrong = f"   wrong: {found['wrong']}" if any(found["wrong"]) else ""
    print(f"  {found['method']:24}" + "".join(f"{text:>24}" for text in cells) + wrong, flush=True)


if __name__ == "__main__":
    main()
