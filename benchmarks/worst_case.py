"""How fast one worst-case check is, against the paper's heuristic, and how the time grows with the number of states.

    python benchmarks/worst_case.py            # the full tables (about a minute)
    python benchmarks/worst_case.py --small    # a quick run of every part, used by the tests
    python benchmarks/worst_case.py --json F   # also write the numbers to a file

Run with one BLAS thread on an idle machine (`make bench` does). Ratios compare times taken in the same run.
"""

from __future__ import annotations

import argparse
import json
import platform
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import date
from typing import Any

import numpy as np

import policytest as pt
from policytest.worst_case.problem import Nearest, lay_out


def seconds(call: Callable[[], Any], budget: float) -> float:
    """The median time of a call, repeated for about `budget` seconds (at least 3 times, after one to warm up)."""
    call()
    times: list[float] = []
    while len(times) < 3 or (sum(times) < budget and len(times) < 2000):
        begin = time.perf_counter()
        call()
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def check_speed(n: int, budget: float) -> dict[str, float]:
    """One stopping check on the paper's instance: the heuristic, and the projection-free solver cold and warm.

    The centre is an estimate from 1,800 draws a pair; the warm check starts from the answer to the check made
    1% of the samples earlier. Both solvers get a prepared problem, as the sequential test hands it to them.
    """
    instance = pt.instances.paper(n)
    rng = np.random.default_rng(n)
    earlier = np.array([[rng.multinomial(1800, row) for row in state] for state in instance.kernel])
    now = earlier + np.array([[rng.multinomial(18, row) for row in state] for state in instance.kernel])
    before, after = (_nearest(instance.task, counts) for counts in (earlier, now))
    fast = pt.ProjectionFree()
    previous, answer = fast.nearest(before), fast.nearest(after)
    ball = replace(after, n=after.n / 1818).extreme(1.0, radius=answer.upper / 1818)
    heuristic = pt.SLSQPHeuristic()
    weights = now.sum(axis=2)
    centre = now / weights[..., None]
    return {
        "states": n,
        "heuristic": seconds(lambda: heuristic.extreme(ball), budget),
        "cold": seconds(lambda: fast.nearest(after), budget),
        "warm": seconds(lambda: fast.nearest(after, previous), budget),
        "public": seconds(lambda: pt.nearest_kernel(instance.task, centre, weights, 0.0), budget),
    }


def _nearest(task: pt.Task, counts: Any) -> Nearest:
    weights = counts.sum(axis=2)
    return lay_out(task, counts / weights[..., None], weights).nearest(1.0, threshold=0.0)


def one_size(kind: str, S: int) -> dict[str, float]:
    """One `nearest_kernel` at S states; run in a process of its own, so that the peak memory is its own."""
    pt.nearest_kernel(*_question("dense", 3))  # compile
    question = _question(kind, S)
    begin = time.perf_counter()
    found = pt.nearest_kernel(*question)
    spent = time.perf_counter() - begin
    if found.status is not pt.Status.CONVERGED:
        raise SystemExit(f"{kind} S={S}: {found.status.value}")
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    return {"states": S, "seconds": spent, "iterations": found.iterations, "gigabytes": memory}


def _question(kind: str, S: int) -> Any:
    instance = pt.instances.random(S, S, 2) if kind == "dense" else pt.instances.random(S, S, 4, successors=min(5, S))
    value = pt.value(instance.task, instance.kernel)
    low, _ = pt.value_range(instance.task)
    weights = np.ones((instance.task.n_states, instance.task.n_actions))
    return instance.task, instance.kernel, weights, value + 0.05 * (low - value)


def growth(kind: str, sizes: list[int], apart: bool) -> list[dict[str, float]]:
    """The time at each size, each in a process of its own or not, and the exponent since the size before."""
    rows: list[dict[str, float]] = []
    for S in sizes:
        row = _in_a_process(kind, S) if apart else one_size(kind, S)
        if rows:
            row["exponent"] = np.log(row["seconds"] / rows[-1]["seconds"]) / np.log(S / rows[-1]["states"])
        rows.append(row)
    return rows


def _in_a_process(kind: str, S: int) -> Any:
    command = [sys.executable, __file__, "--one", kind, str(S)]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def allocation_speed(instance: pt.Instance, threshold: float) -> dict[str, float]:
    """The best allocation: CPU time, and the characteristic times it compares."""
    begin = time.process_time()
    best = pt.optimal_allocation(instance.task, instance.kernel, threshold)
    spent = time.process_time() - begin
    uniform = pt.characteristic_time(instance.task, instance.kernel, threshold=threshold).time
    times = {"uniform": uniform, "best": best.time, "at least": 1 / best.upper_bound}
    return {"states": instance.task.n_states, "seconds": spent, **times}


def sparse_allocation(S: int, way: float) -> dict[str, float]:
    """The best allocation of a random instance with 5 successors a row and 3 actions, at a share of the way down."""
    instance = pt.instances.random(S, S, 3, successors=5)
    value = pt.value(instance.task, instance.kernel)
    low, _ = pt.value_range(instance.task)
    return {**allocation_speed(instance, value + way * (low - value)), "way": way}


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--one", nargs=2, metavar=("KIND", "S"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(one_size(options.one[0], int(options.one[1]))))
        return
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}\n")
    budget = 0.01 if options.small else 1.0
    dense = [5, 20] if options.small else [2, 5, 10, 20, 50, 100, 200, 500, 1000]
    thin = [20, 100] if options.small else [100, 300, 1000, 3000, 10_000]
    results: dict[str, Any] = {
        "check": [check_speed(n, budget) for n in ((2,) if options.small else (2, 3, 5))],
        "allocation": [allocation_speed(pt.instances.paper(n), 0.0) for n in (2, 2, 3, 5)][1:],  # the first compiles
        "sparse allocation": [
            sparse_allocation(S, way)
            for S in ((20,) if options.small else (100, 300, 1000))
            for way in (0.05, 0.15, 0.3)
        ],
        "dense": growth("dense", dense, not options.small),
        "sparse": growth("sparse", thin, not options.small),
    }
    _print(results)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(results, file, indent=1)


def _print(results: dict[str, Any]) -> None:
    print("One stopping check on the paper's instances")
    print("  S=A   SLSQP heuristic   projection-free cold   warm       public call   heuristic/cold   heuristic/warm")
    for row in results["check"]:
        slow, cold, warm, public = (row[key] for key in ("heuristic", "cold", "warm", "public"))
        print(
            f"  {row['states']:<5} {slow * 1e3:9.1f} ms {cold * 1e6:18.0f} us {warm * 1e6:11.0f} us"
            f" {public * 1e6:12.0f} us {slow / cold:14.0f}x {slow / warm:14.0f}x"
        )
    print("\nThe best allocation of samples: T* log(1/delta) samples are needed")
    print("  S=A   T* uniform   T* best   no allocation below   time")
    for row in results["allocation"]:
        print(
            f"  {row['states']:<5} {row['uniform']:10.2f} {row['best']:9.2f} {row['at least']:15.2f}"
            f" {row['seconds'] * 1e3:12.0f} ms"
        )
    print("\nThe same with 5 successors a row, A = 3, by the way of the threshold to the lowest value")
    print("  S     way   T* uniform   T* best   no allocation below   time")
    for row in results["sparse allocation"]:
        print(
            f"  {row['states']:<5} {row['way']:.2f} {row['uniform']:11.2f} {row['best']:9.3f} {row['at least']:15.3f}"
            f" {row['seconds']:12.2f} s"
        )
    for kind, title in (("dense", "dense rows, A = 2"), ("sparse", "5 successors a row, A = 4")):
        print(f"\nOne nearest_kernel against the number of states ({title})")
        print("       S      time   iterations   peak memory   grows like S^")
        for row in results[kind]:
            print(
                f"  {row['states']:6d} {row['seconds']:8.4f} s {row['iterations']:9d} {row['gigabytes']:11.2f} GB"
                f" {row.get('exponent', float('nan')):12.2f}"
            )


if __name__ == "__main__":
    main()
