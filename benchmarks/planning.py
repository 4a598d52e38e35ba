"""How good are plans? Predicted and measured mean samples on random instances, from pilots of 50 draws a pair.

    python benchmarks/planning.py            # the full tables (about ten minutes)
    python benchmarks/planning.py --small    # a quick run of every part, used by the tests
    python benchmarks/planning.py --json F   # also write the numbers to a file

Thresholds are 20, 25 or 30% of the way from the value to one end of its range, delta = 0.05. Three tables: how often a
prediction is within a factor 1.5 of the measured mean, and how often the stated range holds it; the same by how well
the pilot fixes the gap (the standard error of V relative to |V - R|, by the posterior); and where the error
comes from: the prediction at the true kernel, and the true gap in standard errors from the pilot's.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from datetime import date
from itertools import pairwise
from typing import Any

import numpy as np

import policytest as pt
from policytest.questions.plan.expected import expected_samples
from policytest.questions.plan.guess import has_formula
from policytest.questions.plan.plan import plan
from policytest.questions.plan.posterior import Posterior
from policytest.results.plan import FACTOR

DELTA = 0.05
SHAPES = [(2, 2, None), (3, 2, None), (4, 2, None), (5, 3, None), (6, 2, 3), (8, 2, None)]
PRECISIONS = (0.0, 0.107, 0.15, 0.2, 0.3, math.inf)


def problem(index: int) -> tuple[Any, float]:
    """A random instance and a threshold 20, 25 or 30% of the way to one end of the value range."""
    S, A, successors = SHAPES[index % len(SHAPES)]
    instance = pt.instances.random(index, S, A, successors=successors)
    at, ends = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    return instance, at + (0.2, 0.25, 0.3)[index % 3] * (ends[index % 2] - at)


def drawn(instance: Any, pairs: Any, rng: np.random.Generator, before: pt.Counts | None = None) -> pt.Counts:
    """Counts of so many draws [S,A] from each pair, on top of those before."""
    S, A = instance.task.policy.shape
    pair = np.repeat(np.arange(S * A), np.broadcast_to(pairs, (S, A)).ravel())
    counts = pt.Counts(S, A) if before is None else before.copy()
    counts.record(pair // A, pair % A, pt.TabularSimulator(instance.kernel).draw(pair // A, pair % A, rng))
    return counts


def measured(instance: Any, threshold: float, method: Any, runs: int) -> float:
    """The mean number of samples that a method takes."""
    sim = pt.TabularSimulator(instance.kernel)
    found = [
        pt.stopping_times(instance.task, sim, threshold, [DELTA], method, rng=10**6 + i).samples[0] for i in range(runs)
    ]
    return float(np.mean(found))


def study(indices: Any, draws: int = 50, runs: int = 64, measurements: int = 60) -> list[dict[str, Any]]:
    """One row for each instance and method: what the plan said, and what was measured."""
    rows = []
    for index in indices:
        instance, threshold = problem(index)
        task, kernel = instance.task, instance.kernel
        pilot = drawn(instance, draws, np.random.default_rng(index))
        found = plan(task, pilot, threshold, DELTA, runs=runs, rng=index)
        posterior = Posterior(task, threshold, pilot, np.random.default_rng(index))
        off = (pt.value(task, kernel) - threshold - posterior.middle) / posterior.gaps.std()
        for name, (mean, low, high) in found.samples.items():
            method = found.methods[name]
            row = {"index": index, "method": name, "mean": mean, "low": low, "high": high, "sure": found.sure[name]}
            row |= {"true": measured(instance, threshold, method, measurements), "off": off}
            row |= {"gap_error": posterior.gaps.std() / abs(posterior.middle), "at_truth": math.nan}
            if has_formula(method):
                omega = method.allocation if isinstance(method.allocation, np.ndarray) else None
                row["at_truth"] = expected_samples(task, threshold, DELTA, kernel, method.boundary, omega)
            rows.append(row)
    return rows


def is_right(row: dict[str, Any]) -> bool:
    """Within a factor 1.5."""
    return abs(math.log(row["mean"] / row["true"])) <= math.log(FACTOR)


def is_covered(row: dict[str, Any]) -> bool:
    """In the stated range."""
    return bool(row["low"] <= row["true"] <= row["high"])


def show(rows: list[dict[str, Any]]) -> None:
    """The three tables."""
    names = list(dict.fromkeys(row["method"] for row in rows))
    by_name = {name: [row for row in rows if row["method"] == name] for name in names}
    print(f"\n{'':24}{'within 1.5':>12}{'as it says':>12}{'range holds':>13}")
    for name, part in by_name.items():
        shares = [np.mean([is_right(row) for row in part]), np.mean([row["sure"] for row in part])]
        shares.append(np.mean([is_covered(row) for row in part]))
        print(f"{name:24}{shares[0]:12.0%}{shares[1]:12.0%}{shares[2]:13.0%}")
    print("\nWithin a factor 1.5, by the standard error of the gap after the pilot")
    print(f"{'error of the gap':24}{'plans':>8}" + "".join(f"{name:>24}" for name in names))
    for low, high in pairwise(PRECISIONS):
        inside = {name: [row for row in part if low <= row["gap_error"] < high] for name, part in by_name.items()}
        if inside[names[0]]:
            shares = [np.mean([is_right(row) for row in inside[name]]) for name in names]
            label = f"{low:.0%} to {high:.0%}" if high < math.inf else f"{low:.0%} and more"
            print(f"{label:24}{len(inside[names[0]]):8}" + "".join(f"{share:24.0%}" for share in shares))
    print("\nWhere it comes from: log(predicted/measured), mean and standard deviation")
    for name, part in by_name.items():
        errors = np.log([row["mean"] / row["true"] for row in part])
        line = f"{name:24}from the pilot {errors.mean():6.3f} {errors.std():6.3f}"
        exact = np.log([row["at_truth"] / row["true"] for row in part])
        if np.isfinite(exact).all():
            line += f"     expected evidence at the true kernel {exact.mean():6.3f} {exact.std():6.3f}"
        print(line)
    off = np.array([row["off"] for row in by_name[names[0]]])
    print(f"The true gap, in standard errors from the pilot's: mean {off.mean():.2f}, deviation {off.std():.2f}")


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    rows = study(range(3), runs=16, measurements=16) if options.small else study(range(150))
    show(rows)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
