"""How often does a log refute the Markov table: where states hide what matters, and where they do not?

    python benchmarks/ladder.py            # 300 logs without hidden states, 30 with (part of `make calibrate`)
    python benchmarks/ladder.py --small    # a few of each, used by the tests
    python benchmarks/ladder.py --json F   # also write the numbers to a file

Visitors stay for a while and earn 1 a step, with a discount of 0.9. Where something is hidden, half of them leave with
probability 0.9 and half with 0.05, and the table sees one state: its value is too high by 35%. Without hidden states
all leave with probability 0.13; delta = 0.1 bounds how often the table is refuted then. The table is judged by its rows
in order and by its counts, the episodes as those of the policy itself and by propensities.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from policytest.results.ladder import MARKOV, AssumptionLadder, Rung

DELTA, GAMMA, STAY = 0.1, 0.9, 0.8
TASK = pt.Task([[1.0, 1.0], [0.0, 0.0]], [[STAY, 1 - STAY], [1.0, 0.0]], [1.0, 0.0], GAMMA, terminal=[1])


def log_of(
    rng: np.random.Generator, episodes: int, leave: Sequence[float], target: float
) -> tuple[pt.Transitions, pt.LoggedEpisodes]:
    """Rows and episodes; action 0 is drawn with probability 0.8, asked about with ``target``; it changes nothing."""
    ids, ends = [], []
    for one in range(episodes):
        steps = int(rng.geometric(rng.choice(leave)))
        ids += [one] * steps
        ends += [0] * (steps - 1) + [1]
    action = (rng.random(len(ids)) >= STAY).astype(int)
    x = np.array(ends)
    weights: dict[str, Any] = {}
    if target != STAY:
        weights = {
            "propensity": np.where(action == 0, STAY, 1 - STAY),
            "target": np.where(action == 0, target, 1 - target),
        }
    episodes_of = pt.LoggedEpisodes(ids, np.ones(len(ids)), discount=GAMMA, reward_range=(0, 1), **weights)
    return pt.Transitions(0 * x, action, x), episodes_of


def refuted(data: pt.Transitions | pt.Counts, log: pt.LoggedEpisodes) -> bool:
    """Whether the two intervals, at delta/2 each, refute the table."""
    rungs = []
    for name, found in (
        (MARKOV, pt.value_interval(TASK, data, DELTA / 2)),
        ("episodes", pt.value_interval(log, delta=DELTA / 2)),
    ):
        rungs.append(Rung(name, (found.lower, found.upper), None, len(log)))
    return AssumptionLadder(tuple(rungs), 0.0, DELTA).refuted


def share(logs: int, episodes: int, leave: Sequence[float], target: float, in_order: bool) -> float:
    """The share of logs that refute the table."""
    rng, found = np.random.default_rng(17), 0
    for _ in range(logs):
        data, log = log_of(rng, episodes, leave, target)
        found += refuted(data if in_order else data.counts(TASK, len(data)), log)
    return found / logs


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description="How often a log refutes the Markov table")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    quiet, loud, episodes = (3, 1, 30) if given.small else (300, 30, 60)
    table = {}
    print(f"share of logs that refute the Markov table, delta = {DELTA:g}")
    for hidden, logs, count, leave in (("no", quiet, episodes, (0.13,)), ("yes", loud, 5 * episodes, (0.9, 0.05))):
        for target, by in ((STAY, "episodes"), (0.75, "propensities")):
            for in_order in (False, True):
                rows = "rows in order" if in_order else "counts"
                name = f"hidden states: {hidden}, {by}, {rows}"
                table[name] = share(logs, count, leave, target, in_order)
                print(f"  {name:<52}{table[name]:.3f}  ({logs} logs of {count} episodes)", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(table))


if __name__ == "__main__":
    main()
