"""How wide intervals for the value are, by method and number of transitions.

python benchmarks/intervals.py            # the full table (a minute or two)
python benchmarks/intervals.py --small    # a quick run of every part, used by the tests
python benchmarks/intervals.py --json F   # also write the numbers to a file

All are valid at every moment, at delta = 0.05. The KL ball and the boxes sample all pairs equally; betting and the
Monte-Carlo peers follow the policy from the start. Widths are means over seeds; "missed" counts intervals without the
value.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from datetime import date
from typing import Any

import numpy as np

import policytest as pt
from policytest.questions.evaluate import ball_interval

LEVEL = math.log(20.0)
METHODS: dict[str, Any] = {
    "betting": pt.TDBetting(),
    "KL ball": pt.PTST(solver=pt.ProjectionFree()),
    "KL boxes": pt.RectangularKL(),
    "returns, betting": pt.MonteCarlo(),
    "returns, Bernstein": pt.MonteCarlo(kind="bernstein"),
}


def widths(n: int, name: str, samples: list[int], seeds: int) -> dict[str, Any]:
    """Mean widths at these numbers of transitions, on the paper's instance with n states."""
    instance = pt.instances.paper(n)
    value, middle = pt.value(instance.task, instance.kernel), sum(pt.value_range(instance.task)) / 2
    found, missed = np.zeros((seeds, len(samples))), 0
    for seed in range(seeds):
        both_sides = {"both_sides": True} if name == "betting" else {}
        sim = pt.TabularSimulator(instance.kernel)
        run: Any = METHODS[name].start(instance.task, sim, middle, seed, **both_sides)
        for index, wanted in enumerate(samples):
            before = -1
            while run.samples < wanted and run.samples != before:  # batches of rollouts may end just before
                before = run.samples
                run.step(math.inf, wanted - run.samples)
            low, high = _interval(run, name)
            found[seed, index] = high - low
            missed += not low <= value <= high
    return {"states": n, "method": name, "samples": samples, "width": found.mean(axis=0).tolist(), "missed": missed}


def _interval(run: Any, name: str) -> tuple[float, float]:
    """That of the run; of a test, it would contain the threshold, so the ball's is computed."""
    if name != "KL ball":
        return run.interval(LEVEL)  # type: ignore[no-any-return]
    found = ball_interval(run, LEVEL, pt.ProjectionFree(starts=2))
    return found.lower, found.upper


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    samples = [500, 2000] if options.small else [1000, 10_000, 100_000]
    rows = []
    for n in (2,) if options.small else (2, 3, 5):
        low, high = pt.value_range(pt.instances.paper(n).task)
        print(f"\n{n} states, values from {low:.3f} to {high:.3f}: mean width after so many transitions")
        print(f"  {'':20}" + "".join(f"{count:>12,}" for count in samples))
        for name in METHODS:
            row = widths(n, name, samples, 2 if options.small else 20)
            rows.append(row)
            print(
                f"  {name:20}" + "".join(f"{width:12.4f}" for width in row["width"]) + f"   missed: {row['missed']}",
                flush=True,
            )
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)


if __name__ == "__main__":
    main()
