"""Checkpoints of a training run: how often is one accepted that should not be, and when does training stop?

    python benchmarks/in_training.py            # full size (`make calibrate`, some minutes)
    python benchmarks/in_training.py --small    # a small set, used by the tests
    python benchmarks/in_training.py --json F   # also write the numbers to a file

"stuck": every checkpoint has a value at the threshold exactly, and accepting any of them is an error. The alarm is the
exact binomial tail: the probability of at least so many errors if each run had one with probability delta. Below one in
a million it is raised, and it must be raised for the habits: to stop when the mean of 10, or of 100, episodes is above
the threshold. "learning": the value rises from checkpoint to checkpoint through the threshold; what is measured is the
value at which training stops, and the episodes that all tests took.

Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import binom

import policytest as pt

DELTA, ALARM, THRESHOLD, BUDGET = 0.1, 1e-6, 0.7, 100
RULES = {"shared delta": 0, "mean of 10": 10, "mean of 100": 100}
Run = Callable[[np.random.Generator], float]


def success(probability: float) -> Run:
    """Episodes that succeed or fail."""
    return lambda rng: float(rng.random() < probability)


def skewed(mean: float) -> Run:
    """Returns in three sizes: nothing, most of it, all."""
    chances = np.array([0.1, 0.9 * (1 - (mean - 0.54) / 0.36), 0.9 * (mean - 0.54) / 0.36])
    return lambda rng: float(rng.choice([0.0, 0.6, 1.0], p=chances))


LAWS: dict[str, Callable[[float], Run]] = {"success": success, "skewed": skewed}


def accepted(rule: str, values: list[float], law: Callable[[float], Run], seed: int) -> tuple[float | None, int]:
    """The value of the first checkpoint that is accepted, or None, and the episodes of all tests."""
    testing = pt.InTraining(THRESHOLD, DELTA, BUDGET, seed=seed)
    rng, used = np.random.default_rng([seed, 1]), 0
    for value in values:
        run, many = law(value), RULES[rule]
        if many:
            good, spent = bool(np.mean([run(rng) for _ in range(many)]) > THRESHOLD), many
        else:
            spent = testing.decide(pt.Episodes(run, return_range=(0, 1))).counts.episodes
            good = testing.good_enough
        used += spent
        if good:
            return value, used
    return None, used


def rows(small: bool) -> Iterator[dict[str, Any]]:
    """All rows, one after the other."""
    runs, checkpoints = (12, 6) if small else (300, 20)
    for name, law in list(LAWS.items())[: 1 if small else None]:
        for rule in RULES:
            found = [accepted(rule, [THRESHOLD] * checkpoints, law, seed) for seed in range(runs)]
            errors = sum(value is not None for value, _ in found)
            tail = float(binom.sf(errors - 1, runs, DELTA))
            about = {"part": "stuck", "returns": name, "rule": rule, "runs": runs, "errors": errors}
            yield {**about, "tail": tail, "alarm": tail < ALARM, "episodes": float(np.mean([n for _, n in found]))}
    runs, values = (3, 6) if small else (200, 30)
    for rule in RULES:
        rising = np.linspace(0.0, 0.95, values).tolist()
        found = [accepted(rule, rising, success, seed) for seed in range(runs)]
        reached = [value for value, _ in found if value is not None]
        yield {
            "part": "learning",
            "returns": "success",
            "rule": rule,
            "runs": runs,
            "errors": sum(value <= THRESHOLD for value in reached),
            "stopped": len(reached),
            "value": float(np.mean(reached)) if reached else None,
            "episodes": float(np.mean([n for _, n in found])),
        }


def shown(row: dict[str, Any]) -> str:
    """A line of the table."""
    end = f"tail {row['tail']:.3g}{'  ALARM' if row['alarm'] else ''}" if row["part"] == "stuck" else ""
    if row["part"] == "learning":
        end = f"{row['stopped']} stopped, at {row['value'] or 0:.3f} on average"
    return (
        f"  {row['part']:<9} {row['returns']:<9} {row['rule']:<13} {row['runs']:5d} {row['errors']:7d} "
        f"{row['episodes']:9.1f}   {end}"
    )


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"Checkpoints that were wrongly accepted, at delta = {DELTA} for a whole training run")
    print("  part      returns   rule           runs  errors  episodes")
    found, as_it_should = [], True
    for row in rows(options.small):
        found.append(row)
        as_it_should &= row.get("alarm", False) == (row["part"] == "stuck" and bool(RULES[row["rule"]]))
        print(shown(row), flush=True)
    print("as it should be" if as_it_should else "NOT AS IT SHOULD BE")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
