"""The tasks of `benchmarks/whole_paths.py`: none has a path without an end.

- Twenty programs in PRISM's language (`benchmarks/models`), as Storm exported them; their graphs are known.
- Four environments of Gymnasium, where it is installed, by their tables: lakes under the best policy for the discount
  0.99, Taxi in the rain and slippery CliffWalking under `noisy_optimum` of `benchmarks/environments.py`.
- Chains of our own: random ones, slow ones, rare events, rewards on few states, totals with bounds.

`development` has other tasks, with other sizes, chances and seeds. Whatever is chosen is chosen on these.

A *bound of a total* is what paths of n steps can earn at most, where a path is longer with probability 1e-12 at most.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import policytest as pt
from policytest._base.arrays import FloatArray

MODELS = Path(__file__).resolve().parent / "models"
NEVER = 1e-12  # the probability of paths that break the bound of a total
Instance = pt.instances.Instance


def model(name: str, words: str, scheduler: str | None = None, constants: Any = None, **asked: Any) -> Instance:
    """A program of `models/questions.json`; choices that no scheduler resolves are equally likely."""
    policy = "uniform" if scheduler is None else MODELS / f"{name}.scheduler.json"
    found = pt.sources.load_model(MODELS / f"{name}.drn", policy=policy, known_support=True, **asked)
    kernel: Any = found.kernel
    return Instance(found.task, kernel)


# ---------------------------------------------------------------- Gymnasium


def lake(map_name: str, known: bool) -> Instance:
    """FrozenLake, slippery: the probability of the goal, without a time limit. ``known``: its successors are."""
    from episodes import Case

    policy = Case(map_name, False).best()
    options = {"map_name": map_name}
    found = pt.sources.gymnasium("FrozenLake-v1", policy, 1.0, options=options, known_support=known)
    return read(found)


def in_time(env: str, horizon: int, options: dict[str, Any], **settings: Any) -> Instance:
    """The total reward of so many steps."""
    from environments import Case, noisy_optimum

    policy = noisy_optimum(Case(env, 0.95, options))
    found = pt.sources.gymnasium(env, policy, 1.0, horizon=horizon, options=options, known_support=True, **settings)
    return read(found)


def read(environment: Any) -> Instance:
    """An environment with a table."""
    return Instance(environment.task, environment.kernel)


# ---------------------------------------------------------------- chains of our own


def closed(inner: FloatArray, goal: FloatArray, policy: FloatArray | None = None) -> Instance:
    """The probability of the goal, from state 0: rows [n,A,n] among states, and [n,A] to the goal; the rest fails."""
    n, A, _ = inner.shape
    kernel = np.zeros((n + 2, A, n + 2))
    kernel[:n, :, :n], kernel[:n, :, n] = inner, goal
    kernel[:n, :, n + 1] = np.maximum(1.0 - inner.sum(axis=2) - goal, 0.0)
    kernel[kernel < 1e-14] = 0.0
    kernel[n, :, n] = kernel[n + 1, :, n + 1] = 1.0
    kernel /= kernel.sum(axis=2, keepdims=True)
    pi = np.full((n + 2, A), 1.0 / A)
    if policy is not None:
        pi[:n] = policy
    start = np.eye(n + 2)[0]
    return Instance(pt.Task.reaching([n], [n + 1], policy=pi, initial=start, support=kernel > 0), kernel)


def of_places(rows: dict[Any, dict[Any, float]], start: Any) -> Instance:
    """The same of a chain between named places; "goal" is one of them, and what is missing of a row fails."""
    places = [start]
    for place in places:  # those that are reached
        places += [to for to in rows[place] if to != "goal" and to not in places]
    index = {place: i for i, place in enumerate(places)}
    inner, goal = np.zeros((len(places), 1, len(places))), np.zeros((len(places), 1))
    for place in places:
        for to, chance in rows[place].items():
            if to == "goal":
                goal[index[place], 0] += chance
            else:
                inner[index[place], 0, index[to]] += chance
    return closed(inner, goal)


def random_rows(rng: np.random.Generator, n: int, A: int, successors: int) -> FloatArray:
    """[n,A,n] rows with so many successors; one of them is the next state, so that all are reached."""
    inner = np.zeros((n, A, n))
    for s in range(n):
        for a in range(A):
            to = rng.choice(n, size=successors, replace=False)
            to[0] = (s + 1) % n if (s + 1) % n not in to else to[0]
            inner[s, a, to] = rng.dirichlet(np.ones(successors))
    return inner


def absorbing(seed: int, n: int, A: int, successors: int) -> Instance:
    """A random chain whose states now and then lead to the goal or to failure, by the state, under a random policy."""
    rng = np.random.default_rng(seed)
    inner, leaves = random_rows(rng, n, A, successors), 0.15 * rng.random((n, A)) ** 2
    share = rng.random((n, 1))
    return closed(inner * (1.0 - leaves)[:, :, None], leaves * share, rng.dirichlet(np.ones(A), size=n))


def halls(n: int, door: float, horizon: int) -> Instance:
    """Two halls of n states with a door that is seldom open: the steps that are spent in the second one."""
    rng, kernel = np.random.default_rng(5), np.zeros((2 * n, 1, 2 * n))
    for hall in (0, n):
        kernel[hall : hall + n, :, hall : hall + n] = random_rows(rng, n, 1, 3)
        kernel[hall, 0] *= 1.0 - door
        kernel[hall, 0, (hall + n) % (2 * n)] += door
    rewards = np.zeros((2 * n, 1))
    rewards[n:] = 1.0
    start = np.eye(2 * n)[n // 2]
    return Instance(pt.Task(rewards, np.ones((2 * n, 1)), start, 1.0, kernel > 0, horizon=horizon), kernel)


def standby(parts: int, fails: float, repaired: float, ends: float) -> Instance:
    """A system with spare parts, of which one is repaired at a time: do all of them fail before its mission ends?"""
    rows: dict[Any, dict[Any, float]] = {}
    for down in range(parts):
        lost = fails * (1.0 + 0.5 * (parts - down - 1))
        back = repaired if down else 0.0
        up = {down + 1 if down + 1 < parts else "goal": lost, down: 1.0 - lost - back}
        rows[down] = {to: (1.0 - ends) * chance for to, chance in ({**up, down - 1: back} if down else up).items()}
    return of_places(rows, 0)


def tandem(most: int, arrives: float, first: float) -> Instance:
    """Two queues in line: are there ``most`` customers before there is none?"""
    rows: dict[Any, dict[Any, float]] = {}
    for a in range(most):
        for b in range(most - a):
            if a + b == 0:
                continue
            second = 1.0 - arrives - first
            moves = [((a + 1, b), arrives)]
            moves += [((a - 1, b + 1) if a else (a, b), first), ((a, b - 1) if b else (a, b), second)]
            row: dict[Any, float] = {}
            for (x, y), chance in moves:
                if x + y:
                    place = "goal" if x + y == most else (x, y)
                    row[place] = row.get(place, 0.0) + chance
            rows[a, b] = row
    return of_places(rows, (1, 0))


def encounter(steps: int, levels: int, drift: float) -> Instance:
    """Two aircraft get closer by a step each time; they drift apart, or towards the same level."""
    rows: dict[Any, dict[Any, float]] = {}
    for far in range(1, steps + 1):
        for apart in range(levels + 1):
            row: dict[Any, float] = {}
            for to, chance in ((max(apart - 1, 0), drift), (apart, 0.6), (min(apart + 1, levels), 0.4 - drift)):
                if far > 1:
                    row[far - 1, to] = row.get((far - 1, to), 0.0) + chance
                elif to == 0:
                    row["goal"] = row.get("goal", 0.0) + chance
            rows[far, apart] = row
    return of_places(rows, (steps, 4))


def two_rewarded(seed: int, n: int, horizon: int) -> Instance:
    """A random task of two actions, in which two states pay 1."""
    rng = np.random.default_rng(seed)
    kernel, rewards = random_rows(rng, n, 2, 4), np.zeros((n, 2))
    rewards[rng.choice(np.arange(1, n), size=2, replace=False)] = 1.0
    policy = rng.dirichlet(np.ones(2), size=n)
    return Instance(pt.Task(rewards, policy, np.eye(n)[0], 1.0, kernel > 0, horizon=horizon), kernel)


def sales(seed: int, n: int, ends: float, discount: float) -> Instance:
    """A customer among n states, of which two lead to a sale; any step may be the last one. Discounted."""
    rng, kernel = np.random.default_rng(seed), np.zeros((n + 1, 1, n + 1))
    kernel[:n, :, :n] = (1.0 - ends) * random_rows(rng, n, 1, 4)
    kernel[:n, 0, n], kernel[n, 0, n] = ends, 1.0
    rewards = np.zeros((n + 1, 1))
    rewards[rng.choice(np.arange(1, n), size=2, replace=False)] = 1.0
    task = pt.Task(rewards, np.ones((n + 1, 1)), np.eye(n + 1)[0], discount, kernel > 0, terminal=[n])
    return Instance(task, kernel)


def longest(inner: FloatArray) -> int:
    """The number of steps that a chain [n,n] exceeds with probability `NEVER` at most, from state 0."""
    left, steps = np.eye(len(inner))[0], 0
    while left.sum() > NEVER:
        left, steps = left @ inner, steps + 1
    return steps


def time_to_end(seed: int, n: int) -> Instance:
    """The mean number of steps of a random chain until it ends, with a bound."""
    found = absorbing(seed, n, 2, 4)
    rewards = np.ones((n + 2, 2))
    rewards[n:] = 0.0
    policy, kernel = found.task.policy, found.kernel
    most = longest(np.einsum("sa,sax->sx", policy, kernel)[:n, :n])
    ends, total = [n, n + 1], (0.0, float(most))
    task = pt.Task(rewards, policy, found.task.initial, 1.0, kernel > 0, terminal=ends, total_rewards=total)
    return Instance(task, kernel)


def project(stages: int) -> Instance:
    """What a project costs: stages that take time, and may go back to an earlier one; help is dear. With a bound."""
    kernel, rewards = np.zeros((stages + 1, 2, stages + 1)), np.zeros((stages + 1, 2))
    for s in range(stages):
        for a, (done, back) in enumerate(((0.3, 0.08), (0.6, 0.03))):
            for to, chance in ((s + 1, done), (s // 2, back), (s, 1.0 - done - back)):
                kernel[s, a, to] += chance
        rewards[s] = -1.0, -2.5
    kernel[stages, :, stages] = 1.0
    policy = np.tile([0.7, 0.3], (stages + 1, 1))
    most = 2.5 * longest(np.einsum("sa,sax->sx", policy, kernel)[:stages, :stages])
    start, ends = np.eye(stages + 1)[0], [stages]
    task = pt.Task(rewards, policy, start, 1.0, kernel > 0, terminal=ends, total_rewards=(-most, 0.0))
    return Instance(task, kernel)


def tasks() -> dict[str, Callable[[], Instance]]:
    """How each task is made, by its words."""
    asked = json.loads((MODELS / "questions.json").read_text(encoding="utf-8"))
    found: dict[str, Callable[[], Instance]]
    found = {question["words"]: partial(model, name, **question) for name, question in asked.items()}
    if importlib.util.find_spec("gymnasium") is not None:
        found |= {
            "FrozenLake 4x4": partial(lake, "4x4", False),
            "FrozenLake 8x8": partial(lake, "8x8", True),
            "Taxi, 25 steps": partial(in_time, "Taxi-v4", 25, {"is_rainy": True}),
            "CliffWalking, 50 steps": partial(in_time, "CliffWalking-v1", 50, {"is_slippery": True}, ambiguous="split"),
        }
    return found | {
        "random, 12 states": partial(absorbing, 1, 12, 2, 3),
        "random, 40 states": partial(absorbing, 2, 40, 3, 4),
        "random, 150 states": partial(absorbing, 3, 150, 2, 5),
        "two halls, 100 steps": partial(halls, 10, 0.05, 100),
        "rare: all spare parts fail": partial(standby, 5, 0.035, 0.15, 0.03),
        "rare: two queues in line": partial(tandem, 12, 0.18, 0.4),
        "rare: encounter": partial(encounter, 12, 8, 0.05),
        "two states pay, 30 steps": partial(two_rewarded, 6, 40, 30),
        "two states pay, discounted": partial(sales, 7, 25, 0.02, 0.98),
        "time to the end, bounded": partial(time_to_end, 4, 30),
        "cost of a project, bounded": partial(project, 12),
    }


# ---------------------------------------------------------------- for development


def robot(seed: int, side: int, hazards: int, slips: float) -> Instance:
    """A robot crosses a square of cells, some of which are fatal; its scheduler mostly goes right and down."""
    rng, n = np.random.default_rng(seed), side * side
    fatal = set(rng.choice(np.arange(2, n - 2), size=hazards, replace=False).tolist())
    rows: list[list[dict[int, float]]] = []
    for cell in range(n - 1):
        i, j = divmod(cell, side)
        to = [min(i + 1, side - 1) * side + j, i * side + min(j + 1, side - 1)]
        others = [max(i - 1, 0) * side + j, i * side + max(j - 1, 0)]
        rows.append([])
        for a in range(2):
            row: dict[int, float] = {}
            moves = [(to[a], 1.0 - slips), (to[1 - a], 0.4 * slips), *((other, 0.3 * slips) for other in others)]
            for x, chance in moves:
                if x not in fatal:
                    row[x] = row.get(x, 0.0) + chance
            rows[-1].append(row)
    inner, goal = np.zeros((n - 1, 2, n - 1)), np.zeros((n - 1, 2))
    for cell, actions in enumerate(rows):
        for a, row in enumerate(actions):
            for x, chance in row.items():
                if x == n - 1:
                    goal[cell, a] += chance
                else:
                    inner[cell, a, x] += chance
    return closed(inner, goal, rng.dirichlet(np.ones(2) * 3.0, size=n - 1))


def back_to_the_start(n: int, ahead: float) -> Instance:
    """Two rows of n states from the middle: each step goes on to the row's end, or back to the middle."""
    rows: dict[Any, dict[Any, float]] = {0: {1: 0.5, -1: 0.5}}
    for i in range(1, n):
        rows[i] = {i + 1 if i + 1 < n else "goal": ahead, 0: 1.0 - ahead}
        rows[-i] = {-i - 1: ahead, 0: 1.0 - ahead} if i + 1 < n else {0: 1.0 - ahead}
    return of_places(rows, 0)


def tokens(processes: int, steps: int) -> Instance:
    """A ring of processes that pass tokens by fair coins: is only one token left after so many steps?"""
    S = 2**processes
    bits = (np.arange(S)[:, None] >> np.arange(processes)) & 1
    equal = bits == np.roll(bits, 1, axis=1)
    kernel = np.zeros((S, 1, S))
    for s in range(S):
        free = np.flatnonzero(equal[s])
        for choice in range(2 ** len(free)):
            x = np.roll(bits[s], 1)
            x[free] = (choice >> np.arange(len(free))) & 1
            kernel[s, 0, int(x @ (1 << np.arange(processes)))] += 0.5 ** len(free)
    goal = np.flatnonzero(equal.sum(axis=1) == 1)
    kernel[goal] = 0.0
    kernel[goal, 0, goal] = 1.0
    start = np.eye(S)[0]
    task = pt.Task.reaching(goal.tolist(), policy=np.ones((S, 1)), initial=start, support=kernel > 0, within=steps)
    return Instance(task, kernel)


def walk(n: int, start: int, up: float) -> Instance:
    """Up or down, to the goal at n or to failure at 0."""
    rows = {s: {s + 1 if s + 1 < n else "goal": up, **({s - 1: 1.0 - up} if s > 1 else {})} for s in range(1, n)}
    return of_places(rows, start)


def corridor(n: int, slips: float, falls: float) -> Instance:
    """A long way to the goal with few falls."""
    rows = {s: {s + 1 if s + 1 < n else "goal": 1.0 - slips - falls, max(s - 1, 0): slips} for s in range(n)}
    return of_places(rows, 0)


def fan(width: int, chance: float) -> Instance:
    """One of many branches is drawn; each succeeds with a chance of its own."""
    rows: dict[Any, dict[Any, float]] = {0: dict.fromkeys(range(1, width + 1), 1.0 / width)}
    rows |= {b: {"goal": 2.0 * chance * b / (width + 1)} for b in range(1, width + 1)}
    return of_places(rows, 0)


def stages(n: int, chance: float, waits: float) -> Instance:
    """Stages that may have to be tried again, and all must succeed."""
    rows = {s: {s: waits, s + 1 if s + 1 < n else "goal": (1.0 - waits) * chance} for s in range(n)}
    return of_places(rows, 0)


def wearing(n: int, worse: float, better: float, ends: float) -> Instance:
    """A part wears and is repaired until it is retired; at level n it breaks."""
    rows = {}
    for s in range(n):
        row = {s + 1 if s + 1 < n else "goal": worse, s: 1.0 - worse - better - ends}
        rows[s] = {**row, s - 1: better} if s else {**row, s: row[s] + better}
    return of_places(rows, 0)


def not_listed(instance: Instance) -> Instance:
    """The same where any state may follow any pair."""
    task = instance.task
    policy, start, goal = task.policy, task.initial, [task.n_states - 2]
    return Instance(pt.Task.reaching(goal, [task.n_states - 1], policy=policy, initial=start), instance.kernel)


def development() -> dict[str, Callable[[], Instance]]:
    """Tasks to choose by: none of them, and none of their seeds, is among those of `tasks`."""
    return {
        "robot, 6x6": partial(robot, 21, 6, 6, 0.2),
        "robot, 9x9": partial(robot, 22, 9, 9, 0.1),
        "back to the start, 7": partial(back_to_the_start, 7, 0.55),
        "ring, 3 steps": partial(tokens, 5, 3),
        "lake, 5x5": partial(robot, 23, 5, 5, 0.66),
        "corridor, 15": partial(corridor, 15, 0.1, 0.01),
        "queue of 9": partial(walk, 9, 1, 0.45),
        "walk of 16": partial(walk, 16, 8, 0.52),
        "wear, 6 levels": partial(wearing, 6, 0.1, 0.15, 0.02),
        "fan of 15": partial(fan, 15, 4e-3),
        "stages, 4": partial(stages, 4, 0.2, 0.5),
        "random, 20 states": partial(absorbing, 31, 20, 2, 3),
        "random, 60 states": partial(absorbing, 32, 60, 2, 4),
        "random, any successor": lambda: not_listed(absorbing(33, 10, 2, 3)),
        "two states pay, 20 steps": partial(two_rewarded, 34, 25, 20),
        "two halls, 40 steps": partial(halls, 7, 0.1, 40),
        "sales, discounted": partial(sales, 35, 15, 0.03, 0.97),
        "time to the end": partial(time_to_end, 36, 18),
    }
