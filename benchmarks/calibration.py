"""Is delta kept? Error frequencies where they are largest: the value just on one side of the threshold.

    python benchmarks/calibration.py            # full size (`make calibrate`, some minutes)
    python benchmarks/calibration.py --small    # a small set, used by the tests
    python benchmarks/calibration.py --json F   # also write the numbers to a file

Each row counts wrong answers over seeded runs of a limited length. The alarm is the exact binomial tail: the
probability of at least so many errors if each had probability delta. Below one in a million it is raised. The last
rows of each instance are a control: the same rule without its dimension term, which must raise the alarm. Exit code 1
if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import binom

import policytest as pt
from policytest import _kernels
from policytest.boundaries import Terms

local = partial(pt.PTST, solver=pt.ProjectionFree())  # the rule itself; a proof costs samples and time

DELTA, ALARM, NEAR = 0.1, 1e-6, 1e-6


@dataclass(frozen=True)
class WithoutDimension:
    """The control: stop at log(1/delta), as if looking at every sample and not knowing the rows cost nothing."""

    def terms(self, widths: Any, n_states: int) -> Terms:
        """The paper's boundary, its dimension set to 0."""
        return Terms(_kernels.PAPER, np.zeros(1), np.zeros(len(widths)))


def instances(small: bool) -> dict[str, Any]:
    """Asymmetric ones, small enough that a run decides something within its limit."""
    chosen = {
        "two states": pt.instances.random(3, 2, 1, discount=0.5),
        "paper 2x2": pt.instances.paper(2),
        "sparse rows": pt.instances.random(5, 4, 1, successors=2, discount=0.8),
    }
    return {name: chosen[name] for name in (["two states", "sparse rows"] if small else chosen)}


METHODS: dict[str, Any] = {
    "paper": local(boundary=pt.PaperBoundary()),
    "mixture": local(),
    "two priors": local(boundary=pt.MixtureBoundary((0.5, 0.05))),
    "adaptive": local(allocation=pt.Adaptive()),
    "forward": local(allocation=pt.Forward()),
    "batches of 10": local(batch=10),
}


def wrong_answers(instance: Any, method: Any, side: int, runs: int, limit: int) -> int:
    """How often the answer is wrong when the value is just above (side 1) or just below (-1) the threshold."""
    value = pt.value(instance.task, instance.kernel)
    low, high = pt.value_range(instance.task)
    threshold = value - side * NEAR * (high - low)
    sim, wrong = pt.TabularSimulator(instance.kernel), "below" if side > 0 else "above"
    answers = (
        pt.stopping_times(instance.task, sim, threshold, [DELTA], method, seed, max_samples=limit).answers[0]
        for seed in range(runs)
    )
    return sum(answer == wrong for answer in answers)


def measure(name: str, instance: Any, rule: str, method: Any, side: int, runs: int, limit: int) -> dict[str, Any]:
    """One row of the table."""
    errors = wrong_answers(instance, method, side, runs, limit)
    tail = float(binom.sf(errors - 1, runs, DELTA))
    return {
        "instance": name, "rule": rule, "side": "above" if side > 0 else "below", "runs": runs, "limit": limit,
        "errors": errors, "tail": tail, "alarm": tail < ALARM,
    }  # fmt: skip


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    runs, limit = (300, 4000) if options.small else (2000, 20_000)
    rows = []
    print(f"Wrong answers at delta = {DELTA}, threshold within {NEAR:g} of the value range from the value")
    print("  instance      rule             value   runs   errors   binomial tail")
    for name, instance in instances(options.small).items():
        for rule, method in {**METHODS, "no dimension": local(boundary=WithoutDimension())}.items():
            for side in (1, -1):
                few = runs // 20 if rule == "adaptive" else runs
                row = measure(name, instance, rule, method, side, few, limit)
                rows.append(row)
                print(
                    f"  {name:<13} {rule:<16} {row['side']} {row['runs']:6d} {row['errors']:8d}   {row['tail']:.2g}"
                    + ("   ALARM" if row["alarm"] else ""),
                    flush=True,
                )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    as_it_should = all(row["alarm"] == (row["rule"] == "no dimension") for row in rows)
    print("All as it should be: delta is kept, and the control is caught." if as_it_should else "NOT as it should be.")
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
