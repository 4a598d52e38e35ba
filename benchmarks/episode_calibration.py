"""Is delta kept by bets on episodes? Error frequencies where they are largest: the mean return is the threshold.

    python benchmarks/episode_calibration.py            # full size (`make calibrate`, some minutes)
    python benchmarks/episode_calibration.py --small    # a small set, used by the tests
    python benchmarks/episode_calibration.py --json F   # also write the numbers to a file

Returns have one of a few values, so that their mean is known exactly, and are not symmetric. Each test is looked at
after every episode, and goes on for a limited number. Rows "A - B" are about pairs of episodes with the same seed,
whose returns depend on each other, and the margin is the true difference; they are run by `compare`.

The alarm is the exact binomial tail: the probability of at least so many errors if each had probability delta. Below
one in a million it is raised. The control must raise it: bets made as if returns could not fall as far as they do.

Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy.stats import binom

import policytest as pt
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes

DELTA, ALARM, BLOCK = 0.1, 1e-6, 64
LAWS: dict[str, tuple[list[float], list[float]]] = {
    "rare success": ([0.0, 1.0], [0.97, 0.03]),
    "rare failure": ([0.0, 250.0, 500.0], [0.01, 0.03, 0.96]),
    "cards": ([-1.0, 0.0, 1.0], [0.48, 0.08, 0.44]),
    "rare disaster": ([-3000.0, -200.0, -100.0], [0.004, 0.496, 0.5]),
}
CONTROL = "range too small"


class Law(EpisodeSupply):
    """Returns of a few values, as a supply; the control says that they fall a share as far below their mean."""

    def __init__(self, name: str, seed: int, share: float = 1.0) -> None:
        values, chances = (np.array(column) for column in LAWS[name])
        self.values, self.sums, self.rng = values, chances.cumsum(), np.random.default_rng(seed)
        self.mean = float(values @ chances)
        self.low, self.high = self.mean + share * (float(values[0]) - self.mean), float(values[-1])

    def take(self, most: int) -> Outcomes:
        """The next ones; those below the range that is said are put at its end."""
        found = self.values[np.searchsorted(self.sums, self.rng.random(BLOCK) * self.sums[-1], side="right")]
        found = np.clip(found, self.low, self.high)
        return Outcomes(found, found, found, np.ones(BLOCK, dtype=np.int64))


def answers(name: str, share: float, runs: int, episodes: int) -> list[str | None]:
    """What tests say, at the mean itself."""
    found, about = [], pt.Episodes(lambda rng: 0.0, return_range=(-1, 1))
    for seed in range(runs):
        law = Law(name, seed, share)
        run = ReturnsRun(ReturnBetting(), about, law.mean, law)
        while run.answer is None and run.episodes < episodes:
            run.step(-math.log(DELTA), BLOCK)
        found.append(run.answer)
    return found


def compared(runs: int, pairs: int) -> list[str | None]:
    """What comparisons say, at the true difference: A fails where the luck is bad, B where it is good or bad."""
    first = pt.Episodes(lambda rng: float(rng.random() < 0.9), return_range=(0, 1))
    second = pt.Episodes(lambda rng: float(0.05 <= rng.random() < 0.98), return_range=(0, 1))
    return [
        pt.compare(first, second, delta=DELTA, margin=0.9 - 0.93, rng=seed, max_samples=2 * pairs).answer
        for seed in range(runs)
    ]


def rows(small: bool) -> Iterator[dict[str, Any]]:
    """All rows, one after the other."""
    runs, episodes = (120, 150) if small else (3000, 2000)
    for name in list(LAWS)[:2] if small else LAWS:
        yield from _both(name, "bets", answers(name, 1.0, runs, episodes))
    yield from _both("A - B", "bets", compared(runs // 3, episodes // 4))
    yield from _both("rare disaster", CONTROL, answers("rare disaster", 0.04, runs, episodes))[:1]


def _both(name: str, rule: str, found: list[str | None]) -> list[dict[str, Any]]:
    """The row of each wrong answer."""
    shown = []
    for side in ("above", "below"):
        errors = sum(answer == side for answer in found)
        tail = float(binom.sf(errors - 1, len(found), DELTA))
        about = {"returns": name, "rule": rule, "side": side, "runs": len(found), "errors": errors}
        shown.append({**about, "tail": tail, "alarm": tail < ALARM})
    return shown


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"Wrong answers at delta = {DELTA}, with the mean return at the threshold")
    print("  returns          rule               answer   runs   errors   binomial tail")
    found, as_it_should = [], True
    for row in rows(options.small):
        found.append(row)
        as_it_should &= row["alarm"] == (row["rule"] == CONTROL)
        print(
            f"  {row['returns']:<16} {row['rule']:<18} {row['side']:<6} {row['runs']:6d} {row['errors']:8d}"
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
