"""How often do answers about recorded trials err, with agents that are equally good?

    python benchmarks/trials_calibration.py            # 2,000 runs of each kind (part of `make calibrate`)
    python benchmarks/trials_calibration.py --small    # a few of each, used by the tests
    python benchmarks/trials_calibration.py --json F   # also write the numbers to a file

Trials of two agents whose means are the same, or of one whose mean is the threshold: paired by seeds that both have
luck from, in order with unequal lengths, with a budget; and the mean over tasks, in some of which A is better by as
much as it is worse in others. "one of each" has 60 tasks with one trial each. "asked again" asks `compare` after every
row, and "runs what fails" tries the agent again that has just failed, and stops for good when A is ahead.

The controls must be caught: outcomes that were sorted before pairs were formed, pairs that were completed where A had
succeeded, the two best of forty tasks, and tasks that were not named, one after the other.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.stats import binom

import policytest as pt

DELTA, ALARM, PAIRS = 0.05, 1e-6, 60
Reals = npt.NDArray[np.float64]
Ask = Callable[[np.random.Generator], str | None]
BETTER = np.array([0.9, 0.2, 0.6, 0.3, 0.75, 0.45, 0.5, 0.7])  # success rates of A in tasks; those of B in the reverse


def log(outcomes: Any, **labels: Any) -> pt.LoggedEpisodes:
    """Trials, between 0 and 1."""
    return pt.LoggedEpisodes(None, outcomes, return_range=(0, 1), **labels)


def answer(a: pt.LoggedEpisodes, b: pt.LoggedEpisodes, budget: int | None = None) -> str | None:
    """What a comparison says."""
    return pt.compare(a, b, delta=DELTA, budget=budget).answer


def success(rng: np.random.Generator, rate: float, n: int) -> Reals:
    """Failures and successes."""
    return (rng.random(n) < rate).astype(np.float64)


def by_seed(rng: np.random.Generator) -> str | None:
    """Pairs that share their luck: where it is bad B fails, where it is good A does; recorded in another order."""
    luck, seeds = rng.random(PAIRS), np.arange(PAIRS)
    order = rng.permutation(PAIRS)
    first, second = (luck < 0.6).astype(float), (luck >= 0.4).astype(float)
    return answer(log(first, pair=seeds), log(second[order], pair=seeds[order]))


def partial_credit(rng: np.random.Generator) -> str | None:
    """Partial credit with the same mean, and another law."""
    return answer(log(rng.beta(2.0, 2.0, PAIRS)), log(success(rng, 0.5, PAIRS + 40)))


def in_order(rng: np.random.Generator, budget: int | None = None, rate: float = 0.6) -> str | None:
    """Unequal numbers of trials."""
    return answer(log(success(rng, rate, PAIRS)), log(success(rng, rate, PAIRS + 40)), budget)


def a_ratio(rng: np.random.Generator) -> str | None:
    """Each trial of A against the mean of the next three of B."""
    return pt.compare(log(success(rng, 0.6, 40)), log(success(rng, 0.6, 130)), delta=DELTA, ratio=(1, 3)).answer


def tasks(rng: np.random.Generator, each: int = 12, rates: Reals = BETTER, budget: int | None = None) -> str | None:
    """A is better in some tasks, worse in others; they are recorded one after the other."""
    named = np.repeat(np.arange(len(rates)), each)
    first, second = (rng.random(len(named)) < part[named] for part in (rates, rates[::-1]))
    return answer(log(first, task=named), log(second, task=named), budget)


def one_of_each(rng: np.random.Generator) -> str | None:
    """Many tasks with one trial each."""
    return tasks(rng, 1, np.tile(BETTER, 8)[:60])


def threshold(rng: np.random.Generator) -> str | None:
    """One agent, whose mean over tasks is the threshold."""
    named = np.repeat(np.arange(len(BETTER)), 12)
    trials = log(rng.random(len(named)) < BETTER[named], task=named)
    return pt.assess(trials, threshold=float(BETTER.mean()), delta=DELTA).answer


def asked_again(rng: np.random.Generator) -> str | None:
    """The same question after every row of a file, until there is an answer."""
    rows = 70
    whose, outcomes, seeds = rng.random(rows) < 0.5, success(rng, 0.5, rows), rng.integers(3, size=rows)
    for n in range(8, rows):
        found = [np.flatnonzero(whose[:n] == agent) for agent in (True, False)]
        if min(map(len, found)):
            logs = [log(outcomes[rows], task=seeds[rows] > 0, order=rows) for rows in found]
            if all(len(set(part.task)) == 2 for part in logs) and (said := answer(logs[0], logs[1])) is not None:
                return said
    return None


def runs_what_fails(rng: np.random.Generator) -> str | None:
    """Which agent is tried next depends on outcomes, and so does the end."""
    made: list[list[float]] = [[], []]
    agent = 0
    for _ in range(4 * PAIRS):
        made[agent].append(float(rng.random() < 0.5))
        agent = agent if not made[agent][-1] else 1 - agent
        n = min(map(len, made))
        if n > 20 and sum(made[0]) / len(made[0]) > sum(made[1]) / len(made[1]) + 0.25:
            break
    return answer(log(made[0]), log(made[1])) if min(map(len, made)) else None


def sorted_first(rng: np.random.Generator) -> str | None:
    """Control: pairs formed after each agent's outcomes were sorted, one rising and one falling."""
    return answer(log(np.sort(success(rng, 0.5, PAIRS))), log(-np.sort(-success(rng, 0.5, PAIRS))))


def partners_by_outcome(rng: np.random.Generator) -> str | None:
    """Control: A is tried on all seeds; then B on those with which A has succeeded, before the others."""
    first, second = success(rng, 0.5, PAIRS), success(rng, 0.5, PAIRS)
    seeds = np.argsort(-first, kind="stable")
    order = np.arange(2 * PAIRS)
    a = log(first, pair=np.arange(PAIRS), order=order[:PAIRS])
    return answer(a, log(second[seeds], pair=seeds, order=order[PAIRS:]))


def best_tasks(rng: np.random.Generator) -> str | None:
    """Control: the two of forty tasks in which A did best."""
    first, second = ((rng.random((40, 30)) < 0.5).astype(float) for _ in "AB")
    best = np.argsort((first - second).mean(axis=1))[-2:]
    a, b = (log(part[best].ravel(), task=np.repeat(best, 30)) for part in (first, second))
    return answer(a, b)


def not_named(rng: np.random.Generator) -> str | None:
    """Control: tasks one after the other, without a column that says so."""
    rates = np.sort(BETTER)[::-1].repeat(12)
    return answer(log(rng.random(96) < rates), log(rng.random(96) < rates[::-1]))


KINDS: dict[str, Ask] = {
    "paired by seed": by_seed,
    "partial credit": partial_credit,
    "in order": in_order,
    "a budget": lambda rng: in_order(rng, PAIRS),
    "a budget, rare": lambda rng: in_order(rng, PAIRS, 0.05),
    "a ratio": a_ratio,
    "eight tasks": tasks,
    "tasks, a budget": lambda rng: tasks(rng, budget=12),
    "one of each": one_of_each,
    "a threshold": threshold,
    "asked again": asked_again,
    "runs what fails": runs_what_fails,
}
CONTROLS: dict[str, Ask] = {
    "sorted first": sorted_first,
    "by its partner": partners_by_outcome,
    "best tasks": best_tasks,
    "not named": not_named,
}
SLOW = ("asked again",)
"""Kinds with many questions a run, of which there are fewer."""


def rows(small: bool) -> Iterator[dict[str, Any]]:
    """Errors of each kind, and of each side."""
    for name, ask in (KINDS | CONTROLS).items():
        runs = (2 if small else 200) if name in SLOW else 20 if small and name in CONTROLS else 6 if small else 2000
        rng = np.random.default_rng(2026)
        found = [ask(rng) for _ in range(runs)]
        for side in ("above", "below"):
            errors = found.count(side)
            tail = float(binom.sf(errors - 1, runs, DELTA))
            row = {"trials": name, "side": side, "runs": runs, "errors": errors, "tail": tail, "alarm": tail < ALARM}
            yield {**row, "is_control": name in CONTROLS}


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few runs, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"Wrong answers at delta = {DELTA}, with equally good agents")
    print("  trials            answer    runs   errors   binomial tail")
    found = []
    for row in rows(options.small):
        found.append(row)
        print(
            f"  {row['trials']:<17} {row['side']:<7} {row['runs']:6d} {row['errors']:8d}   {row['tail']:.3g}"
            f"{'  ALARM' if row['alarm'] else ''}",
            flush=True,
        )
    caught = {row["trials"] for row in found if row["alarm"]}
    as_it_should = caught == set(CONTROLS)
    print("as it should be" if as_it_should else "NOT AS IT SHOULD BE")
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
