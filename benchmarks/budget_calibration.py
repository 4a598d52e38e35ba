"""How often do bets that aim at the end of a budget err, with the truth at the threshold itself?

    python benchmarks/budget_calibration.py            # 1,000 runs of each kind (part of `make calibrate`)
    python benchmarks/budget_calibration.py --small    # 8 of each, used by the tests
    python benchmarks/budget_calibration.py --json F   # also write the numbers to a file

Two values at three thresholds, continuous and skewed returns by `decide`, pairs of episodes by `compare`: independent
ones, and pairs that share their luck or have the opposite one. "they stop differing" are pairs which nature chooses
with the capital in view: they differ for as long as it is low, so that what was fitted to them is wrong. "extended" is
a budget of 15, then 30, then 60. Tables have a budget of 400 transitions: walks to a goal ("rare": one path in 65
reaches it), a discounted table, one with a horizon; "eight at once" has so many rollouts under way. The control bets
fully on what it has seen to win, and little on what loses.
"""

from __future__ import annotations

import argparse
import json
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import binom

import policytest as pt
from policytest.eprocess.budget import BudgetTarget

DELTA, ALARM, BUDGET, TRANSITIONS = 0.05, 1e-6, 60, 400
CONTROL = "looks first"
Draw = Callable[[np.random.Generator], float]
Ask = Callable[[int], str | None]


def episodes(draw: Draw) -> pt.Episodes:
    """One reward an episode, between 0 and 1."""
    return pt.Episodes(lambda rng: [draw(rng)], return_range=(0.0, 1.0))


def at_its_mean(draw: Draw, mean: float) -> Ask:
    """Ask about the mean itself."""
    return lambda seed: pt.decide(episodes(draw), threshold=mean, delta=DELTA, rng=seed, budget=BUDGET).answer


def compared(first: Draw, second: Draw) -> Ask:
    """Compare two with the same mean; both get the same seed for a pair."""
    a, b = episodes(first), episodes(second)
    return lambda seed: pt.compare(a, b, delta=DELTA, rng=seed, budget=BUDGET).answer


def extended(seed: int) -> str | None:
    """Three budgets, one after the other."""
    agent, verdict = episodes(lambda rng: float(rng.random() < 0.3)), None
    for budget in (15, 30, 60):
        verdict = pt.decide(agent, threshold=0.3, delta=DELTA, rng=seed, budget=budget, resume=verdict)
        if verdict.answer is not None:
            return verdict.answer
    return None


def bets(seed: int, differ: Callable[[float], float], looks: bool = False) -> str | None:
    """Bets on differences of two, where nature chooses how many differ by the capital."""
    rng, target, W = np.random.default_rng(seed), BudgetTarget(DELTA, BUDGET, 1.0, True), 1.0
    for i in range(BUDGET):
        won = float(rng.choice([-1.0, 1.0])) if rng.random() < differ(W) else 0.0
        f = target.fraction(W, i)
        W *= 1.0 + (0.5 * f if looks and won < 0 else f) * won
        target.add(np.array([won]))
        if W >= 1.0 / DELTA:
            return "above"
    return None


def succeeds(p: float, shift: float = 0.0) -> Draw:
    """With this probability, by the luck of the episode, which may be shifted round."""
    return lambda rng: float((rng.random() + shift) % 1.0 < p)


def alone(p: float) -> Draw:
    """With this probability, independently of an agent that has the same seed."""
    return lambda rng: float(np.random.default_rng([7, int(rng.integers(2**62))]).random() < p)


class Called:
    """A table that is asked for draws, as simulators are."""

    def __init__(self, kernel: Any) -> None:
        self.draw = pt.TabularSimulator(kernel).draw


def walk(up: float, length: int = 4) -> tuple[pt.Task, Any]:
    """From the middle of a line to the goal at its end, or to failure at its beginning."""
    kernel = np.zeros((length + 1, 1, length + 1))
    for s in range(1, length):
        kernel[s, 0, s + 1], kernel[s, 0, s - 1] = up, 1.0 - up
    kernel[0, 0, 0] = kernel[length, 0, length] = 1.0
    policy, start = np.ones((length + 1, 1)), np.eye(length + 1)[length // 2]
    return pt.Task.reaching([length], [0], policy=policy, initial=start, support=kernel > 0), kernel


def in_steps() -> tuple[pt.Task, Any]:
    """Six steps in a random table."""
    found = pt.instances.random(7, 6, 2, successors=3)
    task = found.task
    return pt.Task(task.rewards, task.policy, task.initial, 1.0, task.support, horizon=6), found.kernel


def at_its_value(task: pt.Task, kernel: Any, *budgets: int, parallel: int = 1) -> Ask:
    """Ask about the value itself, with one budget after the other."""
    sim = Called(kernel) if parallel > 1 else pt.TabularSimulator(kernel)
    R = float(pt.value(task, kernel))

    def ask(seed: int) -> str | None:
        verdict = None
        for budget in budgets or (TRANSITIONS,):
            verdict = pt.decide(task, sim, R, DELTA, rng=seed, budget=budget, resume=verdict, parallel=parallel)
            if verdict.answer is not None:
                break
        return verdict.answer if verdict is not None else None

    return ask


DISCOUNTED = pt.instances.random(31, 5, 2)
KINDS: dict[str, Ask] = {
    "successes, 0.1": at_its_mean(succeeds(0.1), 0.1),
    "successes, 0.5": at_its_mean(succeeds(0.5), 0.5),
    "successes, 0.9": at_its_mean(succeeds(0.9), 0.9),
    "continuous": at_its_mean(lambda rng: float(rng.beta(2.0, 3.0)), 0.4),
    "skewed": at_its_mean(lambda rng: float(rng.random() < 0.1) * float(rng.random()), 0.05),
    "skewed the other way": at_its_mean(lambda rng: 1.0 - float(rng.random()) ** 9.0, 0.9),
    "pairs, independent": compared(succeeds(0.4), alone(0.4)),
    "pairs, the same luck": compared(succeeds(0.4), succeeds(0.4, 0.03)),
    "pairs, opposite luck": compared(succeeds(0.4), succeeds(0.4, 0.5)),
    "pairs, continuous": compared(lambda rng: float(rng.random()), lambda rng: 1.0 - float(rng.random())),
    "extended": extended,
    "they stop differing": lambda seed: bets(seed, lambda W: 1.0 if W < 1.5 else 0.02),
    "they begin to differ": lambda seed: bets(seed, lambda W: 0.05 if W < 1.5 else 1.0),
    "table, a walk": at_its_value(*walk(0.45)),
    "table, rare": at_its_value(*walk(0.2, 6)),
    "table, discounted": at_its_value(DISCOUNTED.task, DISCOUNTED.kernel),
    "table, extended": at_its_value(DISCOUNTED.task, DISCOUNTED.kernel, 50, 100, 200, 400),
    "table, eight at once": at_its_value(DISCOUNTED.task, DISCOUNTED.kernel, parallel=8),
    "table, six steps": at_its_value(*in_steps()),
    CONTROL: lambda seed: bets(seed, lambda W: 0.5, looks=True),
}


def rows(runs: int) -> Iterator[dict[str, Any]]:
    """A row for each kind and each wrong answer."""
    for kind, ask in KINDS.items():
        with warnings.catch_warnings():  # that one of the answers cannot come within the budget
            warnings.simplefilter("ignore", pt.AssumptionWarning)
            found = [ask(seed) for seed in range(max(runs, 60) if kind == CONTROL else runs)]
        for side in ("above", "below") if kind != CONTROL else ("above",):
            errors = found.count(side)
            tail = float(binom.sf(errors - 1, len(found), DELTA))
            yield {
                "kind": kind,
                "side": side,
                "runs": len(found),
                "errors": errors,
                "tail": tail,
                "alarm": tail < ALARM,
            }


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"Wrong answers at delta = {DELTA} within a budget of {BUDGET}, with the truth at the threshold")
    print("  kind                   answer   runs   errors   binomial tail")
    found, as_it_should = [], True
    for row in rows(8 if options.small else 1000):
        found.append(row)
        as_it_should &= row["alarm"] == (row["kind"] == CONTROL)
        print(
            f"  {row['kind']:<22} {row['side']:<6} {row['runs']:6d} {row['errors']:8d}"
            f"   {row['tail']:.3g}{'  ALARM' if row['alarm'] else ''}",
            flush=True,
        )
    print("as it should be" if as_it_should else "NOT AS IT SHOULD BE")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
