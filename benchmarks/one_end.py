"""Returns with one known end: is delta kept whatever the other tail is, and how many episodes do answers take?

    python benchmarks/one_end.py            # full size (`make calibrate`, some minutes)
    python benchmarks/one_end.py --small    # a small set, used by the tests
    python benchmarks/one_end.py --json F   # also write the numbers to a file

Returns are at least 0 and have no upper end. *Errors*: the mean return, which is known exactly, is the threshold.
Outcomes are bet on as they are; clipped from above at three times the mean so far, which is valid too; and, as the
control that must raise the alarm, clipped from below at three quarters of the threshold, which raises their mean. The
rows "budget" aim at an answer within their episodes. The alarm is the exact binomial tail, below one in a million.

*Episodes to an answer*, with the threshold at 0.8 and at 0.5 of the mean, beside log(20)/g, where g is the largest mean
of log(1 + f x) over constant fractions f: what bets take that know the law. "clipped" has the same bets on outcomes
that are clipped from above at three times the mean so far. The laws of this table took no part in choosing the bets.

Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from scipy.stats import binom

import policytest as pt
from policytest._base.arrays import FloatArray
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes

DELTA, ALARM, BLOCK = 0.05, 1e-6, 16
CLIP, RAISED = 3.0, 0.75
Sampler = Callable[[np.random.Generator, int], FloatArray]
AT_THE_MEAN: dict[str, Sampler] = {
    "lognormal 1": lambda g, n: g.lognormal(-0.5, 1.0, n),
    "Pareto 1.5": lambda g, n: 0.5 * g.pareto(1.5, n),
    "exponential": lambda g, n: g.exponential(1.0, n),
    "rare jackpot": lambda g, n: 0.5 * (g.random(n) < 0.5) + 75.0 * (g.random(n) < 0.01),
}
BEYOND: dict[str, Sampler] = {
    "lognormal 1.5": lambda g, n: g.lognormal(-1.125, 1.5, n),
    "Pareto 2": lambda g, n: g.pareto(2.0, n),
    "gamma 0.3": lambda g, n: g.gamma(0.3, 1.0 / 0.3, n),
    "rare jackpot 2": lambda g, n: 0.4 * (g.random(n) < 0.5) + 40.0 * (g.random(n) < 0.02),
}
"""Laws with the mean 1."""
PLAIN, CLIPPED, CONTROL, AIMED = "as they are", "clipped above", "clipped below", "budget"


class Law(EpisodeSupply):
    """Returns of a law with the mean 1, as a supply; ``rule`` says what becomes of them before they are bet on."""

    low, high = 0.0, math.inf

    def __init__(self, draw: Sampler, seed: int, rule: str) -> None:
        self.draw, self.rng, self.rule = draw, np.random.default_rng(seed), rule
        self.sum, self.count = 0.0, 0

    def take(self, most: int) -> Outcomes:
        """The next ones; a level from the past is the same for all of them."""
        found = np.asarray(self.draw(self.rng, BLOCK))
        staked = found
        if self.rule == CLIPPED and self.count:
            staked = np.minimum(found, CLIP * self.sum / self.count)
        if self.rule == CONTROL:
            staked = np.maximum(found, RAISED)
        self.sum, self.count = self.sum + float(found.sum()), self.count + len(found)
        return Outcomes(staked, staked, staked, np.ones(len(found), dtype=np.int64))


def run_of(draw: Sampler, seed: int, rule: str, threshold: float, episodes: int) -> ReturnsRun:
    """A test, run to its answer or to this many episodes."""
    about = pt.Episodes(lambda rng: 0.0, return_range=(0, None))
    run, required = ReturnsRun(ReturnBetting(), about, threshold, Law(draw, seed, rule)), -math.log(DELTA)
    if rule == AIMED:
        run.aim_at(episodes)
    run.begin(required)
    while run.answer is None and run.episodes < episodes:
        run.step(required, BLOCK)
    return run


def errors(small: bool) -> Iterator[dict[str, Any]]:
    """How often "above" is answered with the mean at the threshold."""
    runs, most = (60, 128) if small else (400, 400)
    for name, draw in list(AT_THE_MEAN.items())[: 1 if small else None]:
        for rule in (PLAIN, CLIPPED, CONTROL, AIMED):
            found = [run_of(draw, seed, rule, 1.0, most // 8 if rule == AIMED else most) for seed in range(runs)]
            wrong = sum(run.answer == "above" for run in found)
            assert all(run.answer != "below" for run in found)
            tail = float(binom.sf(wrong - 1, runs, DELTA))
            about = {"returns": name, "rule": rule, "runs": runs, "errors": wrong}
            yield {**about, "tail": tail, "alarm": tail < ALARM}


def oracle(draw: Sampler, threshold: float, draws: int) -> float:
    """log(1/delta)/g for the best constant fraction."""
    x = (draw(np.random.default_rng(0), draws) - threshold) / threshold
    growth = [float(np.log1p(f * x).mean()) for f in 0.995 * 2.0 ** (-0.25 * np.arange(48))]
    return -math.log(DELTA) / max(growth)


def lengths(small: bool) -> Iterator[dict[str, Any]]:
    """Episodes to an answer."""
    runs, most, draws = (4, 1000, 20_000) if small else (40, 10_000, 2_000_000)
    for name, draw in list(BEYOND.items())[-1 if small else 0 :]:
        for threshold in (0.5,) if small else (0.8, 0.5):
            row: dict[str, Any] = {"returns": name, "threshold": threshold, "oracle": oracle(draw, threshold, draws)}
            for rule in (PLAIN, CLIPPED):
                found = [run_of(draw, seed, rule, threshold, most) for seed in range(runs)]
                row[rule] = float(np.mean([run.episodes for run in found]))
                row[f"{rule}, undecided"] = sum(run.answer is None for run in found)
            yield row


def main() -> int:
    """Measure everything, print the tables, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    found, as_it_should = [], True
    print(f"Wrong answers at delta = {DELTA}, with the mean return at the threshold")
    print("  returns          outcomes           runs   errors   binomial tail")
    for row in errors(options.small):
        found.append(row)
        as_it_should &= row["alarm"] == (row["rule"] == CONTROL)
        print(
            f"  {row['returns']:<16} {row['rule']:<16} {row['runs']:6d} {row['errors']:8d}   {row['tail']:.3g}"
            f"{'  ALARM' if row['alarm'] else ''}",
            flush=True,
        )
    print("Episodes to the answer, on average")
    print("  returns          threshold   log(20)/g   as they are   clipped above (undecided)")
    for row in lengths(options.small):
        found.append(row)
        print(
            f"  {row['returns']:<16} {row['threshold']:9.1f} {row['oracle']:11.0f} {row[PLAIN]:13.0f} "
            f"{row[CLIPPED]:15.0f} ({row[f'{CLIPPED}, undecided']})",
            flush=True,
        )
    print("as it should be" if as_it_should else "NOT AS IT SHOULD BE")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
