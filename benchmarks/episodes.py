"""Success probabilities and mean episode returns: transitions to the answer, beside betting on whole episodes.

    python benchmarks/episodes.py            # the full table (some minutes)
    python benchmarks/episodes.py --small    # a quick run of every part, used by the tests
    python benchmarks/episodes.py --json F   # also write the numbers to a file

FrozenLake, slippery, discount 1, with and without its time limit, under the best policy for the discount 0.99. The
value V is the probability of reaching the goal. Is it above V - 0.05, and above V + 0.05, at delta = 0.05?

- *default*: `decide`, on rollouts of temporal differences.
- *episodes*: the capital prod (1 + f (G - R)/c) over returns G in [0, 1], with c = R for "above" and c = 1 - R, and
  the sign turned, for "below"; f is the fixed fraction that is best for the true V, which nobody knows.
- *forward*: the lower bound for tests that sample along the policy, in the limit of small gaps. With the visits d(s)
  of an episode, and w(s,x) what V gains for each unit of probability that p(x|s) gains,

      2 log(1/delta) (sum_s d(s)) (sum_s Var_p(w(s,.)) / d(s)) / gap^2,

  the limit of log(1/delta) / min { sum_s d(s) KL(p_s, q_s) / sum_s d(s) : V_q = R }: q is the same at all steps.
"""

from __future__ import annotations

import argparse
import json
import math
import platform
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from policytest.sources.environments.gymnasium import Environment

DELTA, GAP, BEST_FOR = 0.05, 0.05, 0.99
LEVEL = -math.log(DELTA)


@dataclass(frozen=True)
class Case:
    """A map of the lake, with or without its time limit."""

    map_name: str
    limited: bool

    @property
    def words(self) -> str:
        """The case in the table."""
        return f"{self.map_name}, {'time limit' if self.limited else 'no limit'}"

    def lake(self, policy: Any, discount: float = 1.0) -> Environment:
        """The environment under this policy."""
        limit = "time limit" if self.limited else None
        return pt.sources.gymnasium(
            "FrozenLake-v1", policy, discount, horizon=limit, options={"map_name": self.map_name}
        )

    def best(self) -> Any:
        """[S] the best action for a discounted reward, by value iteration."""
        lake: Any = Case(self.map_name, False).lake("uniform", BEST_FOR)
        expected, values = (lake.kernel * lake.task.rewards).sum(axis=2), np.zeros(lake.task.n_states)
        for _ in range(10_000):
            worth = expected + BEST_FOR * lake.kernel @ values
            values = worth.max(axis=1)
        return np.round(worth, 9).argmax(axis=1)


def forward_limit(lake: Any, gap: float) -> float:
    """Transitions of the best test along the policy, in the limit of small gaps."""
    task, p = lake.task, np.einsum("sa,sax->sx", lake.task.policy, lake.kernel)
    V = pt.state_values(task, lake.kernel)
    gain = task.rewards[0, 0]  # of the state of arrival
    if task.horizon is None:
        d, after = pt.occupancy(task, lake.kernel)[None], V[None]
    else:
        steps = [task.initial]
        for _ in range(task.horizon - 1):
            steps.append(steps[-1] @ p)
        d, after = np.array(steps), np.vstack([V[1:], 0 * V[:1]])
    visits = d.sum(axis=0)
    visits[task.ends] = 0.0
    going = np.flatnonzero(visits > 0)
    worth = np.einsum("ts,tx->sx", d, gain + after)[going]
    variance = (p[going] * worth**2).sum(axis=1) - (p[going] * worth).sum(axis=1) ** 2
    return 2 * LEVEL * float(visits.sum() * (variance / visits[going]).sum()) / gap**2


def on_episodes(wins: Any, lengths: Any, R: float, V: float, sign: int) -> int:
    """Transitions until the bets on whole episodes, with the best fixed fraction, have earned 1/delta; 0: never."""
    c = R if sign > 0 else 1 - R
    unit = sign * (wins - R) / c
    grid = np.linspace(0.005, 1.0, 200)
    up, down = sign * (1 - R) / c, sign * (0 - R) / c
    with np.errstate(divide="ignore"):
        growth = V * np.log1p(grid * up) + (1 - V) * np.log(np.maximum(1 + grid * down, 1e-300))
    capital = np.cumsum(np.log(np.maximum(1 + grid[growth.argmax()] * unit, 1e-300)))
    done = np.flatnonzero(capital >= LEVEL)
    return int(lengths[: done[0] + 1].sum()) if len(done) else 0


def episodes(lake: Any, rng: np.random.Generator, size: int) -> tuple[Any, Any]:
    """Which of so many episodes reach the goal, and the steps of each."""
    task, H = lake.task, lake.task.horizon or 10**9
    action, ends = task.policy.argmax(axis=1), np.isin(np.arange(task.n_states), task.ends)
    gain = task.rewards[0, 0]
    state = np.full(size, int(task.initial.argmax()))
    won, steps, t = np.zeros(size), np.zeros(size, dtype=np.int64), 0
    going = np.arange(size)
    while len(going) and t < H:
        x = lake.simulator.draw(state[going], action[state[going]], rng)
        won[going] += gain[x]
        steps[going] += 1
        state[going], t = x, t + 1
        going = going[~ends[x]]
    return won, steps


def summed(found: Sequence[float]) -> tuple[float, float]:
    """The mean and its standard error."""
    return float(np.mean(found)), float(np.std(found, ddof=1) / math.sqrt(len(found)))


def measure(case: Case, side: str, seeds: int, gap: float = GAP) -> dict[str, Any]:
    """One question, with as many seeds."""
    lake = case.lake(case.best())
    assert lake.value is not None
    sign = 1 if side == "above" else -1
    R = lake.value - sign * gap
    taken, whole, wrong, begin = [], [], 0, time.perf_counter()
    for seed in range(seeds):
        verdict = pt.decide(lake.task, lake.simulator, threshold=R, delta=DELTA, rng=seed)
        taken.append(verdict.samples)
        wrong += verdict.answer != side
    spent = (time.perf_counter() - begin) / seeds
    for seed in range(20 * seeds):
        won, steps = episodes(lake, np.random.default_rng(seed), 4000)
        whole.append(on_episodes(won, steps, R, lake.value, sign))
    (mean, error), (other, other_error) = summed(taken), summed([n for n in whole if n])
    row = {
        "case": case.words,
        "side": side,
        "value": lake.value,
        "wrong": wrong,
        "seconds": spent,
        "unfinished": whole.count(0),
    }
    row |= {"default": mean, "error": error, "episodes": other, "episodes_error": other_error}
    return row | {"forward": forward_limit(lake, gap), "seeds": seeds}


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json")
    parser.add_argument("--seeds", type=int)
    options = parser.parse_args()
    print(f"FrozenLake, discount 1. Python {platform.python_version()}, {platform.machine()}, {date.today():%d %B %Y}")
    print(
        f"{'case':<18} {'V':>7} {'side':<6} {'default':>16} {'episodes':>16} {'forward':>8} {'ratio':>6} {'wrong':>6}"
    )
    maps = ("4x4",) if options.small else ("4x4", "8x8")
    found = []
    for case in [Case(name, limited) for name in maps for limited in (False, True)]:
        for side in ("above", "below"):
            row = measure(case, side, options.seeds or (2 if options.small else 40), 0.15 if options.small else GAP)
            found.append(row)
            default = f"{row['default']:,.0f} ± {row['error']:,.0f}"
            whole = f"{row['episodes']:,.0f} ± {row['episodes_error']:,.0f}"
            print(
                f"{row['case']:<18} {row['value']:>7.4f} {side:<6} {default:>16} {whole:>16} {row['forward']:>8,.0f} "
                f"{row['default'] / row['forward']:>6.2f} {row['wrong']:>6}",
                flush=True,
            )
    if options.json:
        Path(options.json).write_text(json.dumps({"table": found}, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
