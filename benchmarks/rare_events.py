"""Rare events: is the probability of success above half of what it is, and above twice that? No run may get stuck.

    python benchmarks/rare_events.py            # twenty tasks, both sides (some minutes)
    python benchmarks/rare_events.py --small    # four of them, one seed each, used by the tests
    python benchmarks/rare_events.py --runs 3   # of each line; 10 otherwise
    python benchmarks/rare_events.py --json F   # also write the numbers to a file

Success has a probability between 1e-5 and 1e-2, at discount 1, and in four tasks a discount. Until the first success
was seen all rollouts are alike, and nothing speaks against staking nearly everything; the first ones then show what the
bets are worth. The default test knows the support of the kernel. *Lowest evidence* is the least evidence of any side at
the end of a rollout, over all runs: it cannot fall below log(share/k) of the reserve (`with_reserve`), whatever the
fitted bets do. *Whole paths* is the mean number of transitions of bets on whole paths with the same constant fractions
in equal parts: it knows neither states nor support.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from policytest._base.arrays import FloatArray
from policytest.eprocess.strategies import RESERVE, RESERVED, RESERVED_UNDISCOUNTED

DELTA, LEVEL = 0.05, math.log(1.0 / 0.05)
MOST = 100_000_000  # transitions after which a run counts as stuck
RUNS = 10
PATHS = 4096  # whole paths at a time


@dataclass(frozen=True)
class Case:
    """A Markov chain that starts in state 0; its last two states are the goal and failure."""

    words: str
    kernel: FloatArray  # [S,S]
    discount: float = 1.0

    @property
    def task(self) -> pt.Task:
        """Success as the question; with a discount, a reward of 1 on reaching the goal."""
        S = len(self.kernel)
        start, policy, support = np.eye(S)[0], np.ones((S, 1)), (self.kernel > 0)[:, None, :]
        if self.discount == 1.0:
            return pt.Task.reaching(goal=[S - 2], avoid=[S - 1], policy=policy, initial=start, support=support)
        rewards = np.zeros((S, 1, S))
        rewards[: S - 2, 0, S - 2] = 1.0
        ends = [S - 2, S - 1]
        return pt.Task(rewards, policy, start, discount=self.discount, support=support, terminal=ends)

    @property
    def full_kernel(self) -> FloatArray:
        """[S,1,S]."""
        return self.kernel[:, None, :]

    @property
    def length(self) -> float:
        """The mean number of steps of a whole path."""
        inner = self.kernel[:-2, :-2]
        return float(np.linalg.solve(np.eye(len(inner)) - inner, np.ones(len(inner)))[0])


def closed(rows: list[dict[int, float]], goal: int, words: str, discount: float = 1.0) -> Case:
    """Rows of the inner states; what is left of each goes to failure. ``goal`` is the key of the goal."""
    n = len(rows)
    kernel = np.zeros((n + 2, n + 2))
    for s, row in enumerate(rows):
        for x, chance in row.items():
            kernel[s, n if x == goal else x] += chance
        kernel[s, n + 1] += max(1.0 - sum(row.values()), 0.0)
    kernel[n, n] = kernel[n + 1, n + 1] = 1.0
    return Case(words, kernel, discount)


def chain(n: int, p: float) -> Case:
    """Every one of n steps succeeds with probability p."""
    return closed([{s + 1: p} for s in range(n)], n, f"chain of {n}")


def ruin(n: int, p: float) -> Case:
    """A gambler with 1 wants n: up with probability p."""
    return closed([{s + 1: p, **({s - 1: 1.0 - p} if s else {})} for s in range(n - 1)], n - 1, f"gambler, {n}")


def retries(n: int, p: float, wait: float) -> Case:
    """n stages that may have to be tried again."""
    return closed([{s: wait, s + 1: (1.0 - wait) * p} for s in range(n)], n, f"retries, {n} stages")


def fan(width: int, p: float) -> Case:
    """One of many branches is drawn; each ends after one more step, with a chance of its own."""
    rows: list[dict[int, float]] = [dict.fromkeys(range(1, width + 1), 1.0 / width)]
    rows += [{width + 1: p * 2.0 * b / (width + 1)} for b in range(1, width + 1)]
    return closed(rows, width + 1, f"fan of {width}")


def queue(n: int, load: float) -> Case:
    """A queue overflows at n before it is empty again."""
    up = load / (1.0 + load)
    return closed([{s + 1: up, **({s - 1: 1.0 - up} if s else {})} for s in range(n - 1)], n - 1, f"queue of {n}")


def wear(n: int, p: float, repair: float) -> Case:
    """A part wears, is repaired, or is retired; at level n it breaks."""
    rows = [{s + 1: p, s: 1.0 - p - repair - 0.01, **({s - 1: repair} if s else {})} for s in range(n)]
    return closed(rows, n, f"wear, {n} levels")


def lake(n: int, hole: float) -> Case:
    """A walk on a ring of n places that falls in with a chance; the goal is opposite the start."""
    rows: list[dict[int, float]] = []
    for s in range(n):
        stays = (1.0 - hole) / 2.0
        row: dict[int, float] = {}
        for x in ((s + 1) % n, (s - 1) % n):
            row[n if x == n // 2 else x] = row.get(n if x == n // 2 else x, 0.0) + stays
        rows.append(row)
    return closed(rows, n, f"ring of {n}")


def zeroconf(n: int, taken: float, lost: float) -> Case:
    """A taken address is kept by mistake if n probes are lost."""
    rows = [{1: taken}] + [{s + 1: lost, 0: (1.0 - lost) * 0.5} for s in range(1, n + 1)]
    return closed(rows, n + 1, f"zeroconf, {n} probes")


def discounted(case: Case, discount: float) -> Case:
    """The same with a discount."""
    return Case(f"{case.words}, discount {discount:g}", case.kernel, discount)


TASKS: tuple[Callable[[], Case], ...] = (
    lambda: chain(4, 1.3e-4**0.25),
    lambda: chain(2, 1e-5**0.5),
    lambda: chain(8, 3e-3**0.125),
    lambda: ruin(9, 0.3),
    lambda: ruin(12, 0.33),
    lambda: retries(3, 0.05, 0.6),
    lambda: retries(5, 0.3, 0.8),
    lambda: fan(10, 1e-3),
    lambda: fan(40, 2e-4),
    lambda: queue(8, 0.4),
    lambda: queue(20, 0.7),
    lambda: wear(5, 0.05, 0.1),
    lambda: wear(3, 0.02, 0.2),
    lambda: lake(14, 0.3),
    lambda: lake(24, 0.1),
    lambda: zeroconf(4, 0.3, 0.1),
    lambda: discounted(chain(3, 0.1), 0.95),
    lambda: discounted(ruin(7, 0.3), 0.9),
    lambda: discounted(fan(12, 2e-3), 0.99),
    lambda: discounted(wear(4, 0.05, 0.1), 0.99),
)


def run_one(case: Case, factor: float, seed: int) -> dict[str, Any]:
    """One run: its answer, transitions, and least evidence at the ends of steps."""
    task, V = case.task, pt.value(case.task, case.full_kernel)
    run = pt.TDBetting().start(task, pt.TabularSimulator(case.full_kernel), factor * V, seed)
    run.begin(LEVEL)
    lowest = 0.0
    while run.answer is None and run.samples < MOST:
        run.step(LEVEL, MOST - run.samples)
        if run.between_rollouts:
            lowest = min(lowest, *run.evidence())
    return {"answer": run.answer, "samples": run.samples, "lowest": lowest}


def whole_paths(case: Case, factor: float, seed: int) -> float:
    """Transitions of the bets on whole paths with the constants of the reserve, in equal parts; one run."""
    rng, V = np.random.default_rng(seed), pt.value(case.task, case.full_kernel)
    R, log_share = factor * V, -math.log(len(RESERVE))
    room, sign = (R, 1.0) if factor < 1 else (1.0 - R, -1.0)
    capital, paths = np.full(len(RESERVE), log_share), 0
    while True:
        won = sign * ((rng.random(PATHS) < V) - R) / room
        path = capital[:, None] + np.log1p(RESERVE[:, None] * won).cumsum(axis=1)
        crossed = np.flatnonzero(np.logaddexp.reduce(path, axis=0) >= LEVEL)
        if len(crossed):
            return (paths + int(crossed[0]) + 1) * case.length
        capital, paths = path[:, -1].copy(), paths + PATHS


def measure(case: Case, runs: int) -> list[dict[str, Any]]:
    """Both sides of a task."""
    found, V = [], pt.value(case.task, case.full_kernel)
    for side, factor in (("above", 0.5), ("below", 2.0)):
        each = [run_one(case, factor, seed) for seed in range(runs)]
        row = {
            "task": case.words,
            "value": V,
            "side": side,
            "stuck": sum(one["answer"] is None for one in each),
            "wrong": sum(one["answer"] not in (side, None) for one in each),
            "samples": float(np.mean([one["samples"] for one in each])),
            "most": max(one["samples"] for one in each),
            "lowest": min(one["lowest"] for one in each),
        }
        if case.discount == 1.0:
            row["whole_paths"] = float(np.mean([whole_paths(case, factor, seed) for seed in range(2 * runs)]))
        found.append(row)
    return found


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--runs", type=int, default=RUNS)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args(arguments)
    tasks, runs = (TASKS[::6], 1) if options.small else (TASKS, options.runs)
    bounds = {share: math.log(share / len(RESERVE)) for share in (RESERVED, RESERVED_UNDISCOUNTED)}
    about = platform.machine(), f"Python {platform.python_version()}", str(date.today()), f"delta = {DELTA}"
    print(", ".join(about), f"{runs} runs each", sep=", ")
    print(f"evidence cannot fall below {bounds[RESERVED_UNDISCOUNTED]:.2f}; with a discount {bounds[RESERVED]:.2f}")
    print(f"{'task':28} {'V':>8} {'side':>6} {'stuck':>5} {'wrong':>5} {'transitions':>12} {'most':>12}", end=" ")
    print(f"{'lowest':>7} {'whole paths':>12}")
    rows: list[dict[str, Any]] = []
    for make in tasks:
        for row in measure(make(), runs):
            rows.append(row)
            print(f"{row['task']:28} {row['value']:8.2g} {row['side']:>6} {row['stuck']:5} {row['wrong']:5}", end=" ")
            print(f"{row['samples']:12,.0f} {row['most']:12,} {row['lowest']:7.2f}", end=" ")
            print(f"{row['whole_paths']:12,.0f}" if "whole_paths" in row else f"{'':>12}", flush=True)
    ratios = [row["samples"] / row["whole_paths"] for row in rows if "whole_paths" in row]
    print(f"transitions relative to whole paths: geometric mean {np.exp(np.log(ratios).mean()):.2f}", end=", ")
    print(f"largest {max(ratios):.2f}; stuck {sum(row['stuck'] for row in rows)} of {len(rows) * runs}")
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
