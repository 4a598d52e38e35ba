"""How often is a wrong answer certified where states are cells of continuous ones, and what does the diagnosis cost?

    python benchmarks/cells.py            # 20 logs of each kind and size (part of `make calibrate`)
    python benchmarks/cells.py --small    # a few short logs, used by the tests
    python benchmarks/cells.py --json F   # also write the numbers to a file

Three environments are seen through cells: CartPole (108 cells), MountainCar (36 cells) and a particle with momentum of
which the position alone is seen (8 cells). The policy that is asked about is fixed in each cell, and its value in the
environment is known by simulating it; logs take a random action half of the time. The threshold is half way from that
value to the one of the Markov model of the cells, which is estimated from a long log: an answer on the side of the
model is wrong. Counted are wrong answers, all of which would be certified without a diagnosis, and those that are
certified all the same. Controls: logs that are drawn from the model itself, which is Markov; the diagnosis speaks
against at most 10% of them (5% each by the exact tests and by the G-test).
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import policytest as pt
from policytest._base.errors import AssumptionWarning
from policytest.data.counts import HELD
from policytest.questions.cells import said_of_cells
from policytest.sources import discretise

GAMMA, DELTA, SHARE = 0.95, 0.05, 0.5
STEPS = 200  # after which an episode is cut; the discounted rest is below 1e-4 of the range


class World(NamedTuple):
    """Continuous states, stepped many at once, and how they are seen."""

    edges: list[list[float]]
    actions: int
    start: Callable[[np.random.Generator, int], Any]
    step: Callable[[Any, Any, np.random.Generator], Any]
    over: Callable[[Any], Any]
    policy: Callable[[Any], Any]  # [S] the action in each cell
    reward: Callable[[Any], Any]  # [S] in each cell


def pole(state: Any, action: Any, rng: np.random.Generator) -> Any:
    """The equations of Gymnasium's CartPole-v1."""
    x, v, angle, spin = state.T
    force = np.where(action == 1, 10.0, -10.0)
    push = (force + 0.05 * spin**2 * np.sin(angle)) / 1.1
    turn = (9.8 * np.sin(angle) - np.cos(angle) * push) / (0.5 * (4.0 / 3.0 - 0.1 * np.cos(angle) ** 2 / 1.1))
    pace = push - 0.05 * turn * np.cos(angle) / 1.1
    return np.stack([x + 0.02 * v, v + 0.02 * pace, angle + 0.02 * spin, spin + 0.02 * turn], axis=1)


def car(state: Any, action: Any, rng: np.random.Generator) -> Any:
    """The equations of Gymnasium's MountainCar-v0, without an end."""
    place, speed = state.T
    speed = np.clip(speed + 0.001 * (action - 1) - 0.0025 * np.cos(3 * place), -0.07, 0.07)
    place = np.clip(place + speed, -1.2, 0.6)
    return np.stack([place, np.where((place <= -1.2) & (speed < 0), 0.0, speed)], axis=1)


def particle(state: Any, action: Any, rng: np.random.Generator) -> Any:
    """It is pulled to 0, keeps most of its speed, and is pushed to either side."""
    place, speed = state.T
    speed = 0.9 * speed - 0.1 * place + 0.05 * (2 * action - 1) + 0.05 * rng.normal(size=len(place))
    return np.stack([place + speed, speed], axis=1)


def cell(world: World, state: Any) -> Any:
    """The number of the cell of each state."""
    index = np.zeros(len(state), dtype=np.int64)
    for d, edges in enumerate(world.edges):
        index = index * (len(edges) - 1) + np.clip(np.searchsorted(edges, state[:, d], "right") - 1, 0, len(edges) - 2)
    return index


WORLDS = {
    "CartPole, 108 cells": World(
        [[-4.8, -0.8, 0.8, 4.8], [-9.0, -0.5, 0.5, 9.0], [-0.42, -0.1, 0.0, 0.1, 0.42], [-9.0, -0.9, 0.9, 9.0]],
        2,
        lambda rng, n: rng.uniform(-0.05, 0.05, size=(n, 4)),
        pole,
        lambda state: (np.abs(state[:, 0]) > 2.4) | (np.abs(state[:, 2]) > 0.2095),
        lambda cells: cells // 3 % 4 % 2,  # right where the pole leans a little to the left, or far to the right
        lambda cells: np.ones(len(cells)),
    ),
    "MountainCar, 36 cells": World(
        [list(np.linspace(-1.2, 0.6, 7)), list(np.linspace(-0.07, 0.07, 7))],
        3,
        lambda rng, n: np.stack([rng.uniform(-0.6, -0.4, size=n), np.zeros(n)], axis=1),
        car,
        lambda state: np.zeros(len(state), dtype=bool),
        lambda cells: np.where(cells % 6 >= 3, 2, 0),  # with the speed
        lambda cells: (cells // 6 >= 3).astype(float),
    ),
    "particle, 8 cells": World(
        [list(np.linspace(-1.2, 1.2, 9))],
        2,
        lambda rng, n: np.zeros((n, 2)),
        particle,
        lambda state: np.zeros(len(state), dtype=bool),
        lambda cells: 0 * cells + 1,  # always to the right
        lambda cells: (cells >= 6).astype(float),
    ),
}


def cells_of(world: World) -> int:
    """S without the state in which episodes end."""
    return int(np.prod([len(edges) - 1 for edges in world.edges]))


def walked(world: World, policy: Any, episodes: int, rng: np.random.Generator) -> tuple[Any, ...]:
    """(episode, s, a, x), each [STEPS, episodes]; -1 where an episode is over. ``policy`` is [S,A]."""
    S, state = cells_of(world), world.start(rng, episodes)
    alive, rows = np.ones(episodes, dtype=bool), []
    for _ in range(STEPS):
        s = cell(world, state)
        a = (policy[s].cumsum(axis=1) < rng.random(episodes)[:, None]).sum(axis=1)
        state = world.step(state, a, rng)
        x = np.where(world.over(state), S, cell(world, state))
        rows.append([np.where(alive, column, -1) for column in (np.arange(episodes), s, a, x)])
        alive &= x < S
    return tuple(np.array(column) for column in zip(*rows, strict=True))


def log_of(columns: tuple[Any, ...], rows: int) -> pt.Transitions:
    """The rows of one episode after another."""
    episode, s, a, x = (column.T.ravel() for column in columns)
    kept = np.flatnonzero(s >= 0)[:rows]
    return pt.Transitions(s[kept], a[kept], x[kept], episode=episode[kept])


def task_of(world: World) -> pt.Task:
    """What is asked, about the Markov model of the cells."""
    S = cells_of(world)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AssumptionWarning)
        rests_on = discretise(world.edges).assumptions
    rewards, policy = np.zeros((S + 1, world.actions)), np.zeros((S + 1, world.actions))
    cells = np.arange(S)
    rewards[cells] = world.reward(cells)[:, None]
    policy[cells, world.policy(cells)], policy[S, 0] = 1.0, 1.0
    start = np.zeros(S + 1)
    start[:S] = np.bincount(cell(world, world.start(np.random.default_rng(0), 100_000)), minlength=S) / 1e5
    return pt.Task(rewards, policy, start, GAMMA, terminal=[S], assumptions=rests_on)


def truth_of(world: World, task: pt.Task, episodes: int, rng: np.random.Generator) -> float:
    """The value in the environment itself."""
    _, s, _, _ = walked(world, task.policy[:-1], episodes, rng)
    paid = np.where(s >= 0, world.reward(np.maximum(s, 0).ravel()).reshape(s.shape), 0.0)
    return float((GAMMA ** np.arange(STEPS)[:, None] * paid).sum(axis=0).mean())


def model_of(world: World, task: pt.Task, rows: int, rng: np.random.Generator) -> Any:
    """The kernel of the cells under a random policy, with loops where nothing was seen."""
    counts = pt.Counts(task.n_states, task.n_actions)
    while counts.total < rows:
        data = log_of(walked(world, behaviour(world), 500, rng), rows)
        counts.record(data.s, data.a, data.x)
    kernel = np.array(counts.kernel(task))
    unseen = counts.visits == 0
    kernel[unseen] = np.eye(task.n_states)[np.nonzero(unseen)[0]]
    return kernel


def behaviour(world: World) -> Any:
    """The policy of the logs: half of the time that which is asked about, else a random action."""
    S = cells_of(world)
    return 0.5 * np.eye(world.actions)[world.policy(np.arange(S))] + 0.5 / world.actions


def markov_log(task: pt.Task, kernel: Any, world: World, rows: int, rng: np.random.Generator) -> pt.Transitions:
    """Rows of the model itself: what is seen is Markov."""
    sim, S = pt.TabularSimulator(kernel), cells_of(world)
    policy = np.vstack([behaviour(world), np.eye(world.actions)[:1]])
    n = max(rows // STEPS, 1) * 4
    s = rng.choice(S + 1, size=n, p=task.initial)
    alive, found = np.ones(n, dtype=bool), []
    for _ in range(STEPS):
        a = (policy[s].cumsum(axis=1) < rng.random(n)[:, None]).sum(axis=1)
        x = sim.draw(s, a, rng)
        found.append([np.where(alive, column, -1) for column in (np.arange(n), s, a, x)])
        alive &= x < S
        s = x
    return log_of(tuple(np.array(column) for column in zip(*found, strict=True)), rows)


def tried(name: str, runs: int, sizes: list[int], most: int, seed: int = 0) -> list[dict[str, Any]]:
    """A row for each size of log."""
    world, rng = WORLDS[name], np.random.default_rng(seed)
    task = task_of(world)
    truth, kernel = truth_of(world, task, most // 10, rng), model_of(world, task, most * 10, rng)
    model = pt.value(task, kernel)
    bar, wrong_side = truth + SHARE * (model - truth), "above" if model > truth else "below"
    found = []
    for size in sizes:
        wrong = proved = held = 0
        for _ in range(runs):
            data = log_of(walked(world, behaviour(world), size // 10, rng), size)
            verdict = pt.assess(task, data, bar, DELTA)
            wrong += verdict.answer == wrong_side
            proved += verdict.answer == wrong_side and verdict.certified
            markov = markov_log(task, kernel, world, size, rng)
            held += said_of_cells(pt.diagnose(task, markov, markov.episode)) == HELD
        about: dict[str, Any] = {"environment": name, "rows": size, "logs": runs, "truth": truth, "model": model}
        found.append({**about, "threshold": bar, "wrong": wrong, "certified": proved, "held": held})
    return found


def main() -> None:
    """The table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a few short logs")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the numbers to this file")
    chosen = parser.parse_args()
    runs, sizes, most = (1, [600], 2_000) if chosen.small else (20, [2_000, 10_000, 30_000], 20_000)
    rows = [row for name in WORLDS for row in tried(name, runs, sizes, most)]
    names = ("truth", "model", "threshold", "wrong", "certified", "held")
    print(f"{'environment':24}{'rows':>8}" + "".join(f"{name:>11}" for name in names))
    for row in rows:
        numbers = "".join(f"{row[name]:11.2f}" for name in names[:3]) + "".join(f"{row[name]:11}" for name in names[3:])
        print(f"{row['environment']:24}{row['rows']:>8,}{numbers}")
    print(f"Of {runs} logs each: wrong answers, wrong ones that are certified; Markov logs whose cells held.")
    if chosen.json:
        chosen.json.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
