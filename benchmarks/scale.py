"""What grows with the number of states: a task, memory of counts, one solve for values, draws, and a whole test.

A random task with 4 actions and 5 declared successors a row, discount 0.95. The test asks whether the value is above a
threshold one standard deviation of the state values below it, by the default method at delta = 0.05. Times are process
time, so that other work on the machine counts less.

    python benchmarks/scale.py                # up to a million states
    python benchmarks/scale.py --small        # as the tests run it
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt

A, SUCCESSORS = 4, 5


def clocked(work: Any) -> tuple[Any, float]:
    """The result, and the seconds it took."""
    start = time.process_time()
    found = work()
    return found, time.process_time() - start


def warm_up() -> None:
    """Compile before the clock runs: what small tasks need, and what large ones do."""
    for S in (200, 1_000, 3_000):
        small = pt.instances.random(1, S, A, successors=SUCCESSORS, discount=0.95)
        bar = pt.value(small.task, small.kernel) - float(pt.state_values(small.task, small.kernel).std())
        pt.decide(small.task, pt.TabularSimulator(small.kernel), bar, rng=0)
    pt.occupancy(small.task, small.kernel)


def counted(S: int, sim: Any) -> dict[str, Any]:
    """What 20 draws for each state cost, and their counts."""
    rng, n = np.random.default_rng(0), 20 * S
    s, a = rng.integers(S, size=n), rng.integers(A, size=n)
    x, draw_seconds = clocked(lambda: sim.draw(s, a, rng))
    counts = pt.Counts(S, A, sparse=True)

    def tabulated() -> Any:
        counts.record(s, a, x)
        return counts.N

    table, record_seconds = clocked(tabulated)
    size = table.data.nbytes + table.indices.nbytes + table.indptr.nbytes
    speed = {"draws_per_second": n / draw_seconds, "records_per_second": n / record_seconds}
    return {"nonzeros": int(table.nnz), "bytes": size, **speed}


def measure(S: int) -> dict[str, Any]:
    """One row of the table."""
    instance = pt.instances.random(1, S, A, successors=SUCCESSORS, discount=0.95)
    sim, given = pt.TabularSimulator(instance.kernel), instance.task
    parts = given.rewards, given.policy, given.initial, given.discount, given.support
    task, task_seconds = clocked(lambda: pt.Task(*parts))
    values, value_seconds = clocked(lambda: pt.state_values(task, instance.kernel))
    _, visits_seconds = clocked(lambda: pt.occupancy(task, instance.kernel))
    row = {"states": S, "task_seconds": task_seconds, "value_seconds": value_seconds, **counted(S, sim)}
    row["occupancy_seconds"] = visits_seconds
    bar = float(task.initial @ values) - float(values.std())
    verdict, row["test_seconds"] = clocked(lambda: pt.decide(task, sim, bar, rng=0))
    row |= {"answer": verdict.answer, "samples": verdict.samples, "certified": verdict.certified}
    unit = 1 if sys.platform == "darwin" else 1024
    row["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
    return row


def main() -> None:
    """Measure, print a table, and keep the numbers if asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    warm_up()
    rows = []
    print(
        "| states | task | non-zeros | counts | values | occupancy | draws/s | recorded/s | a test | samples "
        "| peak memory |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for S in (300, 2_500) if given.small else (1_000, 10_000, 100_000, 1_000_000):
        row = measure(S)
        rows.append(row)
        test = f"{row['test_seconds']:.2g} s | {row['samples']:,}"
        print(
            f"| {S:,} | {row['task_seconds']:.2g} s "
            f"| {row['nonzeros']:,} | {row['bytes'] / 1e6:,.1f} MB | {row['value_seconds']:.3g} s "
            f"| {row['occupancy_seconds']:.3g} s | {row['draws_per_second'] / 1e6:.1f} M "
            f"| {row['records_per_second'] / 1e6:.1f} M | {test} | {row['peak_bytes'] / 1e9:.2f} GB |",
            flush=True,
        )
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
