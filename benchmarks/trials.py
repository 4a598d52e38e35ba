"""Trials that were written down: how many it takes until an answer, beside STEP, with tasks, and with a surplus.

    python benchmarks/trials.py             # some minutes (part of `make bench`)
    python benchmarks/trials.py --small     # a few runs, used by the tests
    python benchmarks/trials.py --json F    # also write the numbers to a file

robots   two robots with success 0.75 and 0.45, recorded one by one, and closer ones: how often there is an answer
         "A is better" within 200 pairs, and the mean pairs until any answer. "any time" is `compare` without a budget,
         "budget" with budget=200; STEP (pip install sequentialized-barnard-tests) is exact, by its table
         (`benchmarks/budget.py`). Where both succeed as often, such answers are errors.
tasks    T tasks, in each of which A is better by 0.2: rounds until an answer by bets on all tasks of a round, as
         `compare` makes them, and by bets on the mean of the round
surplus  new trials until an answer, where there are r old ones for each: in pairs, with ratio=(1, r), and by bets on
         each robot alone, whose product is looked at for the worst common rate (which needs no ratio)

All at delta = 0.05.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import logsumexp

import policytest as pt
from budget import step_test
from policytest.eprocess.strategies import ON_RETURNS

DELTA, BUDGET, FEW = 0.05, 200, 3
Reals = npt.NDArray[np.float64]
Numbers = dict[str, float]


def log(outcomes: Any, **labels: Any) -> pt.LoggedEpisodes:
    """Trials, between 0 and 1."""
    return pt.LoggedEpisodes(None, outcomes, return_range=(0, 1), **labels)


def success(rng: np.random.Generator, rate: float, n: int) -> Reals:
    """Failures and successes."""
    return (rng.random(n) < rate).astype(np.float64)


def robots(runs: int) -> Iterator[Numbers]:
    """Two robots, the better one first, beside STEP."""
    step = step_test(BUDGET)
    print(f"\n{'success':<14}{'any time':>10}{'pairs':>7}{'budget':>9}{'pairs':>7}{'STEP':>8}{'pairs':>7}")
    asked = (0.75, 0.45), (0.75, 0.6), (0.9, 0.8), (0.5, 0.5)
    for better, worse in asked if runs > FEW else asked[:1]:
        rng, row = np.random.default_rng(1), {"better": better, "worse": worse}
        trials = [(log(success(rng, better, BUDGET)), log(success(rng, worse, BUDGET))) for _ in range(runs)]
        for kind, budget in (("any time", None), ("budget", BUDGET)):
            found = [pt.compare(a, b, delta=DELTA, budget=budget) for a, b in trials]
            row[kind] = sum(v.answer == "above" for v in found) / runs
            row[f"{kind}, pairs"] = float(np.mean([v.samples / 2 for v in found]))
            row[f"{kind}, other answer"] = sum(v.answer == "below" for v in found) / runs
        row["STEP"], row["STEP, pairs"] = step(better, worse) if step else (math.nan, math.nan)
        line = "".join(
            f"{row[kind]:>{width}.3f}{row[f'{kind}, pairs']:>7.1f}"
            for kind, width in (("any time", 10), ("budget", 9), ("STEP", 8))
        )
        print(f"{better}, {worse:<9}{line}", flush=True)
        yield row


def tasks(runs: int) -> Iterator[Numbers]:
    """Rounds until an answer, by bets on all tasks of a round, and on its mean."""
    print(f"\n{'tasks':<10}{'product':>10}{'mean':>10}   rounds")
    most = 120 if runs > FEW else 30
    for T in (1, 3, 10, 30) if runs > FEW else (1, 10):
        rng, named = np.random.default_rng(2), np.tile(np.arange(T), most)
        rates = rng.uniform(0.1, 0.7, T)
        used: list[tuple[float, float]] = []
        for _ in range(runs):
            a, b = (rng.random((most, T)) < rates + gain for gain in (0.2, 0.0))
            apart = pt.compare(log(a.ravel(), task=named), log(b.ravel(), task=named), delta=DELTA)
            mean = pt.compare(log(a.mean(axis=1)), log(b.mean(axis=1)), delta=DELTA)
            used.append((apart.samples / (2 * T), mean.samples / 2))
        row = dict(zip(("product", "mean"), np.mean(used, axis=0).tolist(), strict=True))
        print(f"{T:<10}{row['product']:>10.1f}{row['mean']:>10.1f}", flush=True)
        yield {"tasks": T, **row}


RATES = np.linspace(0.005, 0.995, 199)  # common ones; between two of them the capital is bounded by the ends
STEADY, SHARES = ON_RETURNS.steady, np.log(np.exp(ON_RETURNS.shares[: len(ON_RETURNS.steady)]) / 0.8)


def against(successes: int, n: int) -> Reals:
    """The log-capital against "the rate is at most c", for each of `RATES`."""
    won, lost = np.log1p(STEADY[:, None] * (1.0 - RATES) / RATES), np.log1p(-STEADY)[:, None]
    return np.asarray(logsumexp(SHARES[:, None] + successes * won + (n - successes) * lost, axis=0))


def alone(new: Reals, old: Reals, ratio: int) -> int:
    """New trials until bets on each robot alone refute every common rate."""
    for n in range(1, len(new) + 1):
        s, k, m = int(new[:n].sum()), int(old[: n * ratio].sum()), n * ratio
        if (against(s, n)[1:] + against(m - k, m)[::-1][:-1]).min() >= -math.log(DELTA):  # of each cell the worse end
            return n
    return len(new)


def surplus(runs: int) -> Iterator[Numbers]:
    """New trials until an answer, with r old ones for each."""
    print(f"\n{'old ones each':<16}{'pairs':>8}{'ratio':>8}{'alone':>8}   new trials")
    for r in (1, 2, 4, 10) if runs > FEW else (1, 4):
        rng = np.random.default_rng(3)
        used: list[tuple[float, float, float]] = []
        for _ in range(runs):
            new, old = success(rng, 0.75, 150), success(rng, 0.45, 150 * r)
            found = [pt.compare(log(new), log(old), delta=DELTA, ratio=ratio).samples for ratio in ((1, 1), (1, r))]
            used.append((found[0] / 2, found[1] / (1 + r), alone(new, old, r)))
        row = dict(zip(("pairs", "ratio", "alone"), np.mean(used, axis=0).tolist(), strict=True))
        print(f"{r:<16}{row['pairs']:>8.1f}{row['ratio']:>8.1f}{row['alone']:>8.1f}", flush=True)
        yield {"old": r, **row}


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    runs = FEW if given.small else given.runs
    found = {
        "robots": list(robots(runs)),
        "tasks": list(tasks(max(runs // 5, 2))),
        "surplus": list(surplus(max(runs // 5, 2))),
    }
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
