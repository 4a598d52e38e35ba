"""Episodes of one environment and of a vector of them: transitions a second, beside loops that do nothing else.

python benchmarks/vectors.py            # a few seconds
python benchmarks/vectors.py --small    # a quick run of every part, used by the tests
python benchmarks/vectors.py --json F   # also write the numbers to a file

CartPole-v1 with two agents: episodes of 500 steps, and of about 42. The bare loops step the environment with the agent
and count nothing; the others are tests at a threshold that does not settle, for the same number of transitions.
Processor time, the best of five in turns.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

import policytest as pt

ENVIRONMENTS, NAME = 64, "CartPole-v1"
AGENTS = {"balances": (0.2, 499.99), "falls soon": (0.0, 42.0)}
"""How much the speed of the pole counts beside its angle, and a threshold that is about the mean return."""


def one_row(weight: float) -> Callable[[Any], int]:
    """The agent, for one observation."""
    return lambda observation: int(observation[2] + weight * observation[3] > 0)


def all_rows(weight: float) -> Callable[[Any], Any]:
    """The same for all observations at once."""
    return lambda observations: (observations[:, 2] + weight * observations[:, 3] > 0).astype(np.int64)


def bare_one(env: Any, agent: Any, transitions: int) -> None:
    """One environment, and nothing else."""
    observation, _ = env.reset(seed=0)
    for _ in range(transitions):
        observation, _, terminated, truncated, _ = env.step(agent(observation))
        if terminated or truncated:
            observation, _ = env.reset()


def bare_vector(env: Any, agent: Any, transitions: int) -> None:
    """A vector, and nothing else."""
    observations, _ = env.reset(seed=0)
    for _ in range(transitions // ENVIRONMENTS):
        observations, *_ = env.step(agent(observations))


def tested(episodes: pt.Episodes, threshold: float, transitions: int) -> None:
    """A test that does not end before these transitions."""
    found = pt.decide(episodes, threshold=threshold, delta=1e-12, max_samples=transitions)
    if found.samples < transitions:
        raise SystemExit("the test ended too soon to be timed")


def main() -> None:
    """All of them, in turns."""
    parser = argparse.ArgumentParser(description="Transitions a second.")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    one, vector = gymnasium.make(NAME), gymnasium.make_vec(NAME, num_envs=ENVIRONMENTS)
    few, many = (2_000, 20_000) if arguments.small else (50_000, 1_000_000)
    cases: dict[tuple[str, str], tuple[Callable[[], None], int]] = {}
    for name, (weight, threshold) in AGENTS.items():
        row, rows = one_row(weight), all_rows(weight)
        alone = pt.Episodes(one, row, reward_range=(0, 1))
        together = pt.Episodes(vector, rows, reward_range=(0, 1), batched=True)
        cases[name, "one environment, bare loop"] = partial(bare_one, one, row, few), few
        cases[name, "one environment, tested"] = partial(tested, alone, threshold, few), few
        cases[name, "64 environments, bare loop"] = partial(bare_vector, vector, rows, many), many
        cases[name, "64 environments, tested"] = partial(tested, together, threshold, many), many
    best = dict.fromkeys(cases, 0.0)
    for _ in range(1 if arguments.small else 5):
        for case, (call, transitions) in cases.items():
            begin = time.process_time()
            call()
            best[case] = max(best[case], transitions / (time.process_time() - begin))
    print(f"{NAME}, Python {platform.python_version()}, {date.today().isoformat()}")
    for (agent, name), speed in best.items():
        print(f"{agent:<12} {name:<28} {speed:>12,.0f} transitions a second")
    if arguments.json:
        numbers = [{"agent": agent, "case": name, "speed": speed} for (agent, name), speed in best.items()]
        Path(arguments.json).write_text(json.dumps(numbers), encoding="utf-8")


if __name__ == "__main__":
    main()
