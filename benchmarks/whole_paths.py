"""Is the default test ever worse than plain bets on whole paths? A suite that is fixed: nothing is tuned on it.

    python benchmarks/whole_paths.py                   # all tasks, both sides (ten minutes on one core)
    python benchmarks/whole_paths.py --small           # a few of them, two runs each, used by the tests
    python benchmarks/whole_paths.py --only ring rare  # the tasks whose words contain one of these
    python benchmarks/whole_paths.py --runs 100        # of each line; 20 otherwise
    python benchmarks/whole_paths.py --development     # other tasks: those that settings are chosen on
    python benchmarks/whole_paths.py --first-seed 1000 # the first of the seeds of the default; 0 otherwise
    python benchmarks/whole_paths.py --against OTHER   # beside the default of another checkout, in the same run
    python benchmarks/whole_paths.py --json F          # also write the numbers to a file

The tasks are those of `path_tasks.py`, at delta = 0.05. Each is asked twice: with a threshold R below its value
("above" is right), and above it.

*Whole paths* are bets on the return G of plain paths, with twelve constant fractions f in equal parts, those of the
reserve of the default test when this suite was made (0.995/4^k for k up to 10, and 0). They know the ends of G over all
paths that policy and support allow, or that a declared bound allows (0 and 1 of a probability), and they are settled by
the same `EProcess`. Every transition of every path counts; the default walks through rows with one successor without a
draw. *Drawn* is the ratio where such transitions are not counted for whole paths either.

*Thresholds.* Of the law of G, a probability's own or that of 20,000 paths, follows the growth of the best of the
fractions 0.995/2^k, k < 24,

    g(R) = max over f of E log(1 + f (G - R)/(R - low)),      for "below" with -G.

R is where log(1/delta) = n g(R), so that bets on whole paths take somewhat more than n of them. With L the mean length
of a path and p the distance of V from the nearer end of G, as a share of its range,

    n = 30,000/L, at least 300 and at most 3,000; and at least 10/p, which is more in rare events.

*Stuck* are runs without an answer after 30 times the mean of whole paths; they count with what they took until then, so
that means and ratios with ">" are too small.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import platform
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from functools import cached_property
from pathlib import Path
from typing import Any

import numba
import numpy as np

import policytest as pt
from path_tasks import Instance, development, tasks
from policytest._base.arrays import FloatArray
from policytest.eprocess.capital import Bet, EProcess

HERE = Path(__file__).resolve()
DELTA, LEVEL = 0.05, math.log(1.0 / 0.05)
FRACTIONS: FloatArray = np.append(0.995 * 0.25 ** np.arange(11.0), 0.0)
FITTED: FloatArray = 0.995 * 0.5 ** np.arange(24.0)
SHARES: FloatArray = np.full(len(FRACTIONS), 1.0 / len(FRACTIONS))
TRANSITIONS, FEWEST, MOST, RARE = 30_000, 300, 3_000, 10.0  # of the rule for thresholds
LAW = 20_000  # paths
STUCK = 30  # times the mean of whole paths
RUNS, PATH_RUNS = 20, 5  # of whole paths, this many times as many
SMALL = ("two dice", "token ring, 2 steps", "two states pay, discounted", "cost of a project, bounded")
SIDES = {"above": 1.0, "below": -1.0}


@numba.njit(cache=True)
def walk(
    rng: Any,
    start: Any,
    first: Any,
    cumulative: Any,
    successor: Any,
    gain: Any,
    drawn: Any,
    discount: float,
    most: int,
    returns: Any,
    steps: Any,
    draws: Any,
) -> None:
    """Fill the returns of plain paths, their steps, and how many of those were drawn from a row with a choice.

    The entries ``first[s]`` to ``first[s + 1]`` are those of state s; a state without any ends the path.
    """
    for i in range(len(returns)):
        s, u = 0, rng.random()
        while u > start[s]:
            s += 1
        total, weight, n, chosen = 0.0, 1.0, 0, 0
        while n < most and first[s + 1] > first[s]:
            j, u = first[s], rng.random()
            while u > cumulative[j]:
                j += 1
            total += weight * gain[j]
            weight *= discount
            chosen += drawn[j]
            n += 1
            s = successor[j]
        returns[i], steps[i], draws[i] = total, n, chosen


@dataclass(frozen=True, eq=False)
class Paths:
    """Plain paths of a task."""

    instance: Instance

    @cached_property
    def parts(self) -> tuple[Any, ...]:
        """(s, a, x) of every transition that there may be, its probability, its reward, and whether it is drawn."""
        task, kernel = self.instance.task, np.asarray(self.instance.kernel)
        rewards = np.asarray(task.rewards)
        rewards = np.broadcast_to(rewards if rewards.ndim == 3 else rewards[:, :, None], kernel.shape)
        chance = task.policy[:, :, None] * kernel
        chance[task.ends] = 0.0
        s, a, x = np.nonzero(chance)
        return s, a, x, chance[s, a, x], rewards[s, a, x], ~task.known_rows[s, a]

    @cached_property
    def ends(self) -> tuple[float, float]:
        """The least and the largest return of a path that policy and support allow, and bounds of totals."""
        task = self.instance.task
        if task.goal:
            return 0.0, 1.0
        found = [sign * self._least(sign) for sign in (1.0, -1.0)]
        low, high = task.total_rewards or (-math.inf, math.inf)
        return max(found[0], low), min(found[1], high)

    def _least(self, sign: float) -> float:
        """The least return, or with sign -1 the largest, turned; infinite where it may fall for ever."""
        task = self.instance.task
        S, A = task.policy.shape
        allowed = np.ones((S, A, S), dtype=bool) if task.support is None else np.array(task.support, dtype=bool)
        allowed &= (task.policy > 0)[:, :, None]
        rewards = np.asarray(task.rewards)
        cost = np.where(allowed, sign * (rewards if rewards.ndim == 3 else rewards[:, :, None]), np.inf)
        cost[task.ends] = np.where(np.isinf(cost[task.ends]), np.inf, 0.0)
        least: FloatArray = np.zeros(S)
        for _ in range(task.horizon or 10_000):
            before, least = least, (cost + task.discount * least).min(axis=(1, 2))
            if task.horizon is None and np.abs(least - before).max() < 1e-12:
                break
        else:
            if task.horizon is None:
                return -math.inf
        return float(least[task.initial > 0].min())

    @cached_property
    def length(self) -> float:
        """The mean number of transitions of a path."""
        task, (s, _, x, chance, _, _) = self.instance.task, self.parts
        S = task.n_states
        P = np.zeros((S, S))
        np.add.at(P, (s, x), chance)
        goes_on = np.setdiff1d(np.arange(S), task.ends)
        if task.horizon is None:
            inner = P[np.ix_(goes_on, goes_on)]
            return float(task.initial[goes_on] @ np.linalg.solve(np.eye(len(inner)) - inner, np.ones(len(inner))))
        at, total = task.initial, 0.0
        for _ in range(task.horizon):
            total += float(at[goes_on].sum())
            at = at @ P
        return total

    @cached_property
    def walker(self) -> Callable[[np.random.Generator, int], tuple[FloatArray, Any, Any]]:
        """Draws so many paths: their returns, steps, and drawn steps."""
        task, (s, _, x, chance, gain, drawn) = self.instance.task, self.parts
        first = np.searchsorted(s, np.arange(task.n_states + 1))
        cumulative = np.cumsum(chance)
        cumulative = cumulative - np.append(0.0, cumulative)[first[s]]
        ends = first[1:][first[1:] > first[:-1]] - 1
        cumulative[ends] = 1.0
        start = np.cumsum(task.initial)
        start[np.flatnonzero(task.initial)[-1] :] = 1.0
        most = task.horizon or 2**62

        def draw(rng: np.random.Generator, count: int) -> tuple[FloatArray, Any, Any]:
            found = np.empty(count), np.empty(count, dtype=np.int64), np.empty(count, dtype=np.int64)
            walk(rng, start, first, cumulative, x, gain, drawn.astype(np.int64), task.discount, most, *found)
            return found

        return draw

    @cached_property
    def law(self) -> tuple[FloatArray, FloatArray]:
        """The values of a return, and their probabilities."""
        if self.instance.task.goal:
            return np.array([1.0, 0.0]), np.array([self.value, 1.0 - self.value])
        values, counts = np.unique(self.walker(np.random.default_rng(0), LAW)[0], return_counts=True)
        return values, counts / LAW

    @cached_property
    def value(self) -> float:
        """V of the truth."""
        return float(pt.value(self.instance.task, self.instance.kernel))

    def room(self, R: float, sign: float) -> float:
        """What a full bet can lose."""
        return R - self.ends[0] if sign > 0 else self.ends[1] - R

    def growth(self, R: float, sign: float) -> float:
        """The growth of the capital a path, with the best of some fractions."""
        values, chance = self.law
        won = sign * (values - R) / self.room(R, sign)
        return float((np.log1p(np.outer(FITTED, np.maximum(won, -1.0))) @ chance).max())

    @property
    def wanted(self) -> float:
        """The number of whole paths, n, at which thresholds are set."""
        low, high = self.ends
        share = min(self.value - low, high - self.value) / (high - low)
        return max(min(max(TRANSITIONS / self.length, FEWEST), MOST), RARE / share)

    def threshold(self, sign: float) -> float:
        """R by the rule, by halving."""
        near, far = 0.0, 1.0  # shares of the way from V to the end
        end, needed = self.ends[0 if sign > 0 else 1], LEVEL / self.wanted
        for _ in range(50):
            middle = 0.5 * (near + far)
            enough = self.growth(self.value + middle * (end - self.value), sign) >= needed
            near, far = (near, middle) if enough else (middle, far)
        return self.value + far * (end - self.value)

    def bets(self, R: float, sign: float, rng: np.random.Generator) -> tuple[int, int]:
        """One run of the bets on whole paths: the transitions that it took, and how many of them were drawn."""
        process, bet = EProcess(SHARES, SHARES), Bet(self.room(R, sign), FRACTIONS, FRACTIONS)
        steps = draws = 0
        size = int(0.5 * self.wanted)
        while True:
            returns, lengths, drawn = self.walker(rng, size)
            _, crossed = process.settle(bet, sign * (returns - R), LEVEL)
            steps, draws = steps + int(lengths[: crossed + 1].sum()), draws + int(drawn[: crossed + 1].sum())
            if crossed < size:
                return steps, draws


def mean_and_error(found: Any) -> tuple[float, float]:
    """The mean and its standard error."""
    each = np.asarray(found, dtype=np.float64)
    return float(each.mean()), float(each.std(ddof=1) / math.sqrt(len(each)))


def ratio_of(one: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """A ratio of two means, and its standard error."""
    ratio = one[0] / other[0]
    return ratio, ratio * math.hypot(one[1] / one[0], other[1] / other[0])


def decided(instance: Instance, R: float, cap: int, seeds: range) -> dict[str, Any]:
    """The answers of the default test, what they took, and the seconds a run."""
    begin = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        found = [
            pt.decide(instance.task, pt.TabularSimulator(instance.kernel), R, DELTA, rng=seed, max_samples=cap)
            for seed in seeds
        ]
    seconds = (time.perf_counter() - begin) / len(seeds)
    return {"answers": [one.answer for one in found], "samples": [one.samples for one in found], "seconds": seconds}


class Other:
    """The default test of another checkout, in a process of its own that answers a line for each question."""

    def __init__(self, checkout: Path) -> None:
        path = os.pathsep.join(filter(None, [str(checkout.resolve() / "src"), os.environ.get("PYTHONPATH")]))
        settings: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        self.process = subprocess.Popen(
            [sys.executable, str(HERE), "--serve"], env={**os.environ, "PYTHONPATH": path}, **settings
        )

    def ask(self, words: str, R: float, cap: int, seeds: range) -> dict[str, Any]:
        """The same as `decided`."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        print(json.dumps([words, R, cap, seeds.start, seeds.stop]), file=self.process.stdin, flush=True)
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def close(self) -> None:
        """It has nothing more to answer."""
        self.process.communicate()


def serve() -> None:
    """Answer the questions of `Other`."""
    made = tasks() | development()
    for line in sys.stdin:
        words, R, cap, *ends = json.loads(line)
        print(json.dumps(decided(made[words](), R, cap, range(*ends))), flush=True)


def measure(words: str, paths: Paths, side: str, seeds: range, other: Other | None) -> dict[str, Any]:
    """One line of the table."""
    sign, runs = SIDES[side], len(seeds)
    R, rng = paths.threshold(sign), np.random.default_rng(1)
    each = np.array([paths.bets(R, sign, rng) for _ in range(PATH_RUNS * runs)], dtype=np.float64)
    plain, drawn = mean_and_error(each[:, 0]), mean_and_error(each[:, 1])
    cap = int(STUCK * plain[0])
    row: dict[str, Any]
    row = {"task": words, "states": paths.instance.task.n_states, "value": paths.value, "side": side, "threshold": R}
    row |= {"wanted": paths.wanted, "length": paths.length, "cap": cap, "runs": runs}
    row |= {"paths": plain, "paths drawn": drawn, "default": judged(decided(paths.instance, R, cap, seeds), side)}
    row["ratio"], row["drawn"] = (ratio_of(row["default"]["mean"], one) for one in (plain, drawn))
    if other is not None:
        row["other"] = judged(other.ask(words, R, cap, seeds), side)
        row["to other"] = ratio_of(row["default"]["mean"], row["other"]["mean"])
    return row


def judged(found: dict[str, Any], side: str) -> dict[str, Any]:
    """Means, and which runs are stuck or wrong."""
    answered = [answer for answer in found["answers"] if answer in SIDES]
    stuck, wrong = len(found["answers"]) - len(answered), sum(answer != side for answer in answered)
    return {"mean": mean_and_error(found["samples"]), "stuck": stuck, "wrong": wrong, **found}


def shown(pair: tuple[float, float], stuck: int = 0) -> str:
    """A ratio with its standard error."""
    return f"{'>' if stuck else ''}{pair[0]:.2f} ± {pair[1]:.2f}"


def show(row: dict[str, Any]) -> None:
    """A line of the table."""
    default, other = row["default"], row.get("other")
    stuck = default["stuck"]
    print(f"{row['task']:28} {row['states']:4} {row['value']:9.4g} {row['threshold']:9.4g} {row['side']:5}", end=" ")
    print(f"{default['mean'][0]:12,.0f} {row['paths'][0]:12,.0f} {shown(row['ratio'], stuck):>14}", end=" ")
    print(f"{row['drawn'][0]:6.2f} {stuck:5} {default['wrong']:5} {default['seconds']:8.2f}", end="")
    if other is not None:
        compared = shown(row["to other"], stuck or other["stuck"])
        print(f" {other['mean'][0]:12,.0f} {compared:>14} {other['stuck']:5} {other['wrong']:5}", end="")
    print(flush=True)


def summary(rows: list[dict[str, Any]], runs: int) -> dict[str, Any]:
    """What is said below the table."""
    found: dict[str, Any] = {"lines": len(rows), "runs": runs}
    for name in ("ratio", "drawn", "to other"):
        logs = np.log([row[name][0] for row in rows if name in row])
        if len(logs):
            found[name] = float(np.exp(logs.mean()))
    for name in ("stuck", "wrong"):
        found[name] = sum(row["default"][name] for row in rows)
    ranked = sorted(rows, key=lambda row: -float(row["ratio"][0]))
    found["worst"] = [[row["task"], row["side"], row["ratio"], row["default"]["stuck"]] for row in ranked[:8]]
    found["worse"] = sum(row["ratio"][0] - 2.0 * row["ratio"][1] > 1.0 for row in rows)
    return found


def conclude(found: dict[str, Any]) -> None:
    """Print it."""
    print(f"\ntransitions of the default / of whole paths: geometric mean {found['ratio']:.3f}", end="")
    print(f", without rows of one successor {found['drawn']:.3f}", end="")
    print(f", to the other checkout {found['to other']:.3f}" if "to other" in found else "")
    print(f"lines above 1 by two standard errors: {found['worse']} of {found['lines']}")
    print("worst lines: " + "; ".join(f"{task}, {side} {shown(r, n)}" for task, side, r, n in found["worst"]))
    print(f"of {found['lines'] * found['runs']} runs {found['stuck']} stuck, {found['wrong']} wrong")


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few tasks, for the tests")
    parser.add_argument("--only", nargs="+", metavar="WORDS", default=[], help="tasks whose words contain one of these")
    parser.add_argument("--development", action="store_true", help="the tasks that settings are chosen on")
    parser.add_argument("--first-seed", type=int, default=0, help="of the default; 0 if not given")
    parser.add_argument("--runs", type=int, help=f"of each line; {RUNS} if not given")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout, in the same run")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve()
        return
    if options.runs is not None and options.runs < 2:
        parser.error("--runs: a standard error needs at least 2")
    made, runs = development() if options.development else tasks(), options.runs or (2 if options.small else RUNS)
    seeds = range(options.first_seed, options.first_seed + runs)
    chosen = [words for words in made if not options.only or any(one in words for one in options.only)]
    if options.small and not options.only:
        chosen = [words for words in chosen if words in SMALL]
    if not options.development and "FrozenLake 4x4" not in made:
        print("tasks of Gymnasium are left out: it is not installed")
    print(f"{date.today():%d %B %Y}, {platform.machine()}, Python {platform.python_version()}", end=", ")
    print(f"delta = {DELTA}, {runs} runs, {PATH_RUNS * runs} of whole paths")
    heads = f"{'task':28} {'S':>4} {'V':>9} {'R':>9} {'side':5} {'default':>12} {'whole paths':>12} {'ratio':>14}"
    more = f" {'other':>12} {'to other':>14} {'stuck':>5} {'wrong':>5}" if options.against else ""
    print(f"{heads} {'drawn':>6} {'stuck':>5} {'wrong':>5} {'s/run':>8}{more}", flush=True)
    other, rows = Other(options.against) if options.against else None, []
    for words in chosen:
        paths = Paths(made[words]())
        for side in SIDES:
            rows.append(measure(words, paths, side, seeds, other))
            show(rows[-1])
    if other is not None:
        other.close()
    found = summary(rows, runs)
    conclude(found)
    if options.json:
        options.json.write_text(json.dumps({"table": rows, "summary": found}, indent=1), encoding="utf-8")


if __name__ == "__main__":
    main()
