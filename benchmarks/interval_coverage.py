"""Do intervals contain the value, at every time they are looked at? And the ball the true kernel, at every sample?

    python benchmarks/interval_coverage.py            # full size (part of `make calibrate`)
    python benchmarks/interval_coverage.py --small    # a small set, used by the tests
    python benchmarks/interval_coverage.py --json F   # also write the numbers to a file

Rows "ball" count the runs in which the true kernel ever left the confidence ball, loss_t(p) > beta(t, delta), looked at
after every sample: 2,000 seeded runs. Rows "interval" count the runs in which an interval ever missed the value, looked
at whenever the samples had doubled: 100 runs. Rows "budget" count the runs in which an interval of episodes by bets
that aim at the end of a budget of 80 missed the mean, at a quarter of it, at half of it, or at its end: 400 runs. The
alarm is the exact binomial tail: the probability of at least so many misses if each run had probability delta. Below
one in a million it is raised. The controls must raise it: the ball without its dimension term, intervals of a ball of
radius half a nat, betting intervals that claim five nats more than the capital holds, and capital of aimed bets that
counts a twentieth of what they lose. Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

import numpy as np
from scipy.stats import binom

import policytest as pt
from policytest._base.compiled import evidence
from policytest.eprocess import aimed_interval
from policytest.eprocess.budget import aimed_capital
from policytest.kl.boundaries import Terms
from policytest.questions.evaluate import ball_interval

DELTA, ALARM, CLAIMED = 0.1, 1e-6, 5.0
FIRST = 64  # samples at the first look


@dataclass(frozen=True)
class WithoutDimension:
    """The control: as if not knowing the rows, and looking at every sample, cost nothing."""

    def terms(self, widths: Any, n_states: int) -> Terms:
        """The paper's boundary, its dimension set to 0."""
        return Terms(evidence.PAPER, np.zeros(1), np.zeros(len(widths)))


BOUNDARIES: dict[str, Any] = {
    "paper": pt.PaperBoundary(),
    "mixture": pt.MixtureBoundary(),
    "two priors": pt.MixtureBoundary((0.5, 0.05)),
    "no dimension": WithoutDimension(),
}
INTERVALS: dict[str, Any] = {
    "ball, paper": pt.PTST(boundary=pt.PaperBoundary(), solver=pt.ProjectionFree()),
    "ball, mixture": pt.PTST(solver=pt.ProjectionFree()),
    "betting": pt.TDBetting(),
    "returns, betting": pt.MonteCarlo(),
    "ball, half a nat": pt.PTST(boundary=WithoutDimension(), solver=pt.ProjectionFree()),
    "betting, five nats more": pt.TDBetting(),
}
CONTROLS = ("no dimension", "ball, half a nat", "betting, five nats more", "aimed, a twentieth of losses")
LAWS: dict[str, tuple[list[float], list[float]]] = {
    "success": ([0.0, 1.0], [0.12, 0.88]),
    "rare failure": ([0.0, 0.5, 1.0], [0.02, 0.05, 0.93]),
    "many values": (np.linspace(0.0, 1.0, 21).tolist(), (np.arange(1.0, 22.0) / 231.0).tolist()),
}


def instances(small: bool) -> dict[str, Any]:
    """Asymmetric ones; the control misses within a few hundred samples."""
    chosen = {
        "paper 2x2": pt.instances.paper(2),
        "four states": pt.instances.random(5, 4, 2, discount=0.8),
        "sparse rows": pt.instances.random(5, 6, 2, successors=3, discount=0.8),
    }
    return {name: chosen[name] for name in (["four states"] if small else chosen)}


def leaves_the_ball(instance: Any, boundary: Any, seed: int, samples: int) -> bool:
    """Whether the true kernel is ever outside: put in the place of the witness, its evidence is loss_t(p) - price."""
    run: Any = pt.PTST(boundary=boundary).start(instance.task, pt.TabularSimulator(instance.kernel), 0.0, seed)
    tally, left = run.tally, samples
    tally.stand(tally.rows.pick(instance.kernel, instance.task.n_states), 0.0)
    while left > 0:
        k, x = run.source.ahead(tally, np.inf, left)
        used = tally.observe(k, x, -math.log(DELTA))
        run.source.take(used)
        left -= used
        if not tally.witness_evidence() < -math.log(DELTA):
            return True
    return False


def misses_the_value(instance: Any, name: str, seed: int, samples: int) -> bool:
    """Whether an interval does not contain the value, at any of the looks at doubling times."""
    task, value = instance.task, pt.value(instance.task, instance.kernel)
    middle = sum(pt.value_range(task)) / 2
    both_sides = {"both_sides": True} if isinstance(INTERVALS[name], pt.TDBetting) else {}
    run: Any = INTERVALS[name].start(task, pt.TabularSimulator(instance.kernel), middle, seed, **both_sides)
    level = 0.5 if "half" in name else -math.log(DELTA) - (CLAIMED if "more" in name else 0.0)
    look = FIRST
    while look <= samples:
        while run.samples < look and not run.exhausted:
            run.step(math.inf, look - run.samples)
        low, high = _interval(run, name, level)
        if not low <= value <= high:
            return True
        look *= 2
    return False


def _interval(run: Any, name: str, level: float) -> tuple[float, float]:
    """That of the run; of a test it would contain the threshold, so the ball's is computed."""
    if not name.startswith("ball"):
        return run.interval(level)  # type: ignore[no-any-return]
    found = ball_interval(run, level, pt.ProjectionFree(starts=2))
    return found.lower, found.upper


def losing_less(*about: Any) -> Any:
    """The control: the capital of aimed bets, that counts a twentieth of what they lose."""
    steps = np.diff(aimed_capital(*about), prepend=0.0)
    return np.add.accumulate(np.maximum(steps, 0.05 * steps))


def misses_the_mean(law: str, seed: int, budget: int) -> bool:
    """Whether an interval within the budget misses the mean, at one of three looks."""
    values, chances = (np.array(column) for column in LAWS[law])
    returns = np.random.default_rng(seed).choice(values, budget, p=chances)
    ends = [
        pt.value_interval(pt.LoggedEpisodes(None, returns[:n], return_range=(0, 1)), delta=DELTA, budget=budget)
        for n in (budget // 4, budget // 2, budget)
    ]
    return not all(float(values @ chances) in interval for interval in ends)


def budgets(small: bool) -> list[dict[str, Any]]:
    """The rows of intervals within a budget."""
    rows, (runs, budget) = [], (30, 24) if small else (400, 80)
    for rule, capital in (("aimed", aimed_capital), ("aimed, a twentieth of losses", losing_less)):
        for law in LAWS if rule == "aimed" else ["success"]:
            with patch.object(aimed_interval, "aimed_capital", capital):
                misses = sum(misses_the_mean(law, seed, budget) for seed in range(runs))
            rows.append(counted(law, "budget", rule, (runs, budget), misses))
    return rows


def counted(instance: str, kind: str, rule: str, size: tuple[int, int], misses: int) -> dict[str, Any]:
    """A row of the table, printed."""
    (runs, limit), tail = size, float(binom.sf(misses - 1, size[0], DELTA))
    warned = "   ALARM" if tail < ALARM else ""
    print(f"  {instance:<13}{kind:<10}{rule:<25}{runs:6d}{misses:8d}   {tail:.2g}{warned}", flush=True)
    row = {"instance": instance, "rule": rule, "kind": kind, "runs": runs, "limit": limit}
    return {**row, "misses": misses, "tail": tail, "alarm": tail < ALARM}


def measure(small: bool) -> list[dict[str, Any]]:
    """All rows of the table."""
    balls, intervals = (200, 40) if small else (2000, 100)
    ball_samples, interval_samples = (400, 512) if small else (5000, 16_384)
    rows = []
    for name, instance in instances(small).items():
        for kind, rules, runs, samples in (
            ("ball", BOUNDARIES, balls, ball_samples),
            ("interval", INTERVALS, intervals, interval_samples),
        ):
            for rule, boundary in rules.items():
                misses = sum(
                    leaves_the_ball(instance, boundary, seed, samples)
                    if kind == "ball"
                    else misses_the_value(instance, rule, seed, samples)
                    for seed in range(runs)
                )
                rows.append(counted(name, kind, rule, (runs, samples), misses))
    return rows + budgets(small)


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"Runs that ever missed, at delta = {DELTA}")
    print("  instance     what      rule                       runs  missed   binomial tail")
    rows = measure(options.small)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    as_it_should = all(row["alarm"] == (row["rule"] in CONTROLS) for row in rows)
    print("All as it should be." if as_it_should else "NOT as it should be.")
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
