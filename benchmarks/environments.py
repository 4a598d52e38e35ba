"""Gymnasium's tabular environments: is the verdict right, on both sides of the value, and what does it cost?

python benchmarks/environments.py            # the full table (about five minutes)
python benchmarks/environments.py --small    # a quick run of every part, used by the tests
python benchmarks/environments.py --json F   # also write the numbers to a file

The policy is the optimal one with a tenth of its mass spread evenly over the actions. The environment's table gives its
exact value V; the test does not see it. It is asked whether the value exceeds V - gap and V + gap, at delta = 0.001.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import gymnasium
import numpy as np

import policytest as pt

DELTA, NOISE = 0.001, 0.1


@dataclass(frozen=True)
class Case:
    """An environment, how it is to be read, and the gap as a share of |V|."""

    env: str
    discount: float
    options: dict[str, Any] = field(default_factory=dict)
    settings: dict[str, Any] = field(default_factory=dict)
    seeds: int = 10
    gap: float = 0.2

    @property
    def words(self) -> str:
        """What is read, and how."""
        said = [f"{key}={value}" for key, value in {**self.options, **self.settings}.items() if key != "rewards"]
        return " ".join([self.env, *said])


def at_the_goal(s: int, a: int, x: int) -> float:
    """The reward of the 4x4 lake."""
    return float(x == 15)


STEPPED = {"table": False, "rewards": at_the_goal, "terminal": (5, 7, 11, 12, 15)}
LAKE, BIG_LAKE = Case("FrozenLake-v1", 0.95), Case("FrozenLake-v1", 0.98, {"map_name": "8x8"})
CLIFF = Case("CliffWalking-v1", 0.95, {"is_slippery": True}, {"ambiguous": "split"})
TAXI = Case("Taxi-v4", 0.95, {"is_rainy": True}, seeds=2)
FULL = [
    LAKE,
    Case("FrozenLake-v1", 0.95, {}, {"known_support": True}),
    Case("FrozenLake-v1", 0.95, {}, STEPPED, seeds=2, gap=0.5),
    BIG_LAKE,
    Case("FrozenLake-v1", 0.98, {"map_name": "8x8"}, {"known_support": True}),
    CLIFF,
    Case("CliffWalking-v1", 0.95, {"is_slippery": True}, {"ambiguous": "split", "known_support": True}),
    TAXI,
    Case("Taxi-v4", 0.95, {"is_rainy": True}, {"known_support": True}),
]
SMALL = [
    Case("FrozenLake-v1", 0.9, seeds=1, gap=0.5),
    Case("FrozenLake-v1", 0.8, {}, STEPPED, seeds=1, gap=0.9),
    Case("CliffWalking-v1", 0.9, {"is_slippery": True}, {"ambiguous": "split"}, seeds=1, gap=0.5),
    Case("Taxi-v4", 0.9, {"is_rainy": True}, {"known_support": True}, seeds=1, gap=0.5),
]


def noisy_optimum(case: Case) -> Any:
    """[S,A] the optimal policy, by value iteration on the table, with a share of noise."""
    env: Any = gymnasium.make(case.env, **case.options).unwrapped
    S, A = int(env.observation_space.n), int(env.action_space.n)
    rows = [(s * A + a, p, x, r, ended) for s in range(S) for a in range(A) for p, x, r, ended in env.P[s][a]]
    pair, p, x, r, ended = (np.array(column) for column in zip(*rows, strict=True))
    V, before = np.zeros(S), np.full(S, np.inf)
    while np.abs(V - before).max() > 1e-12:
        Q = np.bincount(pair, p * (r + case.discount * np.where(ended, 0.0, V[x]))).reshape(S, A)
        V, before = Q.max(axis=1), V
    policy = np.full((S, A), NOISE / A)
    policy[np.arange(S), Q.argmax(axis=1)] += 1.0 - NOISE
    return policy


def measure(case: Case) -> dict[str, Any]:
    """Verdicts at both thresholds, for all seeds: how many are wrong, and mean samples and seconds."""
    policy = noisy_optimum(case)
    env = pt.sources.gymnasium(case.env, policy, case.discount, options=case.options, **case.settings)
    exact = env.value
    if exact is None:  # it was stepped: the table says it all the same
        exact = pt.sources.gymnasium(case.env, policy, case.discount, options=case.options).value
    assert exact is not None
    row: dict[str, Any] = {"case": case.words, "states": env.task.n_states, "discount": case.discount, "value": exact}
    row |= {"gap": case.gap * abs(exact), "runs": 2 * case.seeds, "wrong": 0}
    for answer, sign in (("above", -1.0), ("below", 1.0)):
        samples, seconds = [], []
        for seed in range(case.seeds):
            begin = time.perf_counter()
            verdict = pt.decide(env.task, env.simulator, exact + sign * row["gap"], DELTA, rng=seed)
            seconds.append(time.perf_counter() - begin)
            samples.append(verdict.samples)
            row["wrong"] += verdict.answer != answer
        row[answer] = {"samples": float(np.mean(samples)), "seconds": float(np.mean(seconds))}
    return row


def refusal() -> str:
    """What slippery CliffWalking is told if its ambiguous rewards are not split."""
    try:
        pt.sources.gymnasium(CLIFF.env, "uniform", CLIFF.discount, options=CLIFF.options)
    except pt.InputError as error:
        return str(error)
    return ""


def main() -> None:
    """Run everything and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}, delta = {DELTA}")
    print(f"\nslippery CliffWalking is refused: {refusal()}\n")
    two = pt.instances.paper(2)
    pt.decide(two.task, pt.TabularSimulator(two.kernel), threshold=0.0)  # compile first
    print(
        "| environment | states | discount | V | gap | samples below V | seconds | samples above V | seconds | wrong |"
    )
    print("|---|---|---|---|---|---|---|---|---|---|")
    rows = []
    for case in SMALL if options.small else FULL:
        row = measure(case)
        rows.append(row)
        cells = [row["case"], row["states"], row["discount"], f"{row['value']:.4g}", f"{row['gap']:.3g}"]
        for answer in ("above", "below"):
            cells += [f"{row[answer]['samples']:,.0f}", f"{row[answer]['seconds']:.2f}"]
        print("| " + " | ".join(map(str, [*cells, f"{row['wrong']} of {row['runs']}"])) + " |", flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump({"refused": refusal(), "table": rows}, file, indent=1)


if __name__ == "__main__":
    main()
