"""What several rollouts or episodes under way are worth: time, samples, and workers that die.

    python benchmarks/parallel.py                   # a few minutes (part of `make bench`)
    python benchmarks/parallel.py --part episodes   # one of the parts
    python benchmarks/parallel.py --small           # two workers and few episodes and samples, used by the tests
    python benchmarks/parallel.py --json F          # also write the numbers to a file

episodes   an episode takes 50 ms: a call of `run(rng)`, or 25 steps of an environment; one by one and in 8 processes.
           "start" is the time to the first episode that is settled, "ratio" is about the time after it, and "with
           start" about all of it. Then the same with processes that are killed in one of a hundred episodes: "same"
           says whether the returns are those of one by one.
critic     transitions to an answer with a critic, one by one and with 8 episodes under way: those of the episodes that
           were settled, and all of them, with the 7 episodes that are under way at the end
tables     a draw of a table's simulator takes 50 ms: a `draw` that asks a pool of 8 processes, and an environment that
           is stepped. The calls to the answer are the mean of 100 runs without waiting, one by one and with 8 rollouts
           under way; what a call takes is timed in a run with waiting. "start" is the time to the first draws, with
           the start of the processes of the environment.
samples    samples to an answer of tables, one by one and with 8 rollouts under way: all draws, also those of rollouts
           that were under way at the answer; and the calls of `draw`
errors     the share of wrong answers where the truth is the threshold, with delta 0.05, and of a rule that must fail:
           to settle episodes when they end, so that the short ones, which are the good ones, come first

Waiting is what is done at once: the processes sleep, so that the number of cores does not matter.
"""

from __future__ import annotations

import argparse
import json
import os
import pickle
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest.mock import patch

import gymnasium
import numpy as np

import policytest as pt
from policytest.payoffs import parallel_returns
from policytest.sources.environments import stepped_copies
from policytest.sources.environments.stepped_copies import SteppedCopies

EPISODE, STEPS = 0.05, 25  # seconds, and steps of the environment
Numbers = dict[str, Any]


class Size(NamedTuple):
    """How much is run."""

    workers: int = 8
    episodes: int = 800
    one_by_one: int = 100
    seeds: int = 40
    seconds: float = EPISODE
    killed: float = 0.01  # the share of episodes whose process is killed when they are run first
    lines: tuple[str, ...] = ("run(rng)", "environment", "run(rng), some killed")
    first: int = 0  # question with a critic
    tables: tuple[str, ...] = ("draw in a pool", "stepped environment")
    runs: int = 100  # of a table, without waiting
    calls: int = 60  # that are timed
    questions: int = 100  # the most, of tables


class Slow:
    """An environment whose steps take time; each pays 0 or 1."""

    spec = None

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def reset(self, *, seed: int | None = None) -> tuple[float, dict[str, Any]]:
        """A new episode."""
        self.rng, self.t = np.random.default_rng(seed), 0
        return 0.0, {}

    def step(self, action: object) -> tuple[float, float, bool, bool, dict[str, Any]]:
        """A step."""
        time.sleep(self.seconds / STEPS)
        self.t += 1
        return self.t / STEPS, float(self.rng.random() < 0.5), self.t == STEPS, False, {}


class Steady(Slow):
    """A reward of 0.9 or 1 a step, without waiting: what a critic expects is nearly the truth."""

    def step(self, action: object) -> tuple[float, float, bool, bool, dict[str, Any]]:
        """A step."""
        self.t += 1
        return self.t / 50, 0.9 + 0.1 * (self.rng.random() < 0.5), self.t == 50, False, {}


class Drifting(Slow):
    """A walk whose position pays: what follows depends on where it stands."""

    def reset(self, *, seed: int | None = None) -> tuple[float, dict[str, Any]]:
        """A new episode."""
        super().reset(seed=seed)
        self.x = 0.5
        return self.x, {}

    def step(self, action: object) -> tuple[float, float, bool, bool, dict[str, Any]]:
        """A step."""
        self.t += 1
        self.x = min(max(self.x + 0.1 * float(self.rng.normal()), 0.0), 1.0)
        return self.x, self.x, self.t == 40, False, {}


def still(seen: object) -> int:
    """An agent."""
    return 0


def function(seconds: float) -> pt.Episodes:
    """A function that runs an episode."""

    def run(rng: np.random.Generator) -> bool:
        time.sleep(seconds)
        return bool(rng.random() < 0.5)

    return pt.Episodes(run, return_range=(0, 1))


def environment(seconds: float) -> pt.Episodes:
    """An environment that is stepped."""
    return pt.Episodes(Slow(seconds), still, reward_range=(0, 1), horizon=STEPS)


def killed(seconds: float, share: float, folder: str) -> pt.Episodes:
    """The function, in processes of which some are killed; the same episode does it once."""

    def run(rng: np.random.Generator) -> bool:
        time.sleep(seconds)
        u = float(rng.random())
        flag = Path(folder) / str(u)
        if abs(u - 0.5) < share / 2 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return u < 0.5

    return pt.Episodes(run, return_range=(0, 1))


def timed(agent: pt.Episodes, episodes: int, workers: int) -> tuple[float, float, pt.Verdict]:
    """(seconds to the first episode, seconds for each after it, the verdict) of a run that does not answer."""
    begin, looks = time.perf_counter(), list[float]()
    verdict = pt.decide(
        agent,
        threshold=0.5 * sum(agent.bounds),
        delta=1e-9,
        max_samples=episodes * (agent.horizon or 1),
        parallel=workers,
        progress=lambda check: looks.append(time.perf_counter() - begin),
    )
    return looks[1], (looks[-1] - looks[1]) / (len(looks) - 2), verdict


def episodes(size: Size) -> Numbers:
    """Time, one by one and with several processes."""
    print(f"\n{'an episode of 50 ms':<26}{'one by one':>11}{'parallel':>10}{'ratio':>7}{'start':>7}{'with start':>12}")
    found: Numbers = {}
    with tempfile.TemporaryDirectory() as folder:
        agents = {
            "run(rng)": (function(size.seconds),) * 2,
            "environment": (environment(size.seconds),) * 2,
            "run(rng), some killed": (function(size.seconds), killed(size.seconds, size.killed, folder)),
        }
        for name in size.lines:
            plain, agent = agents[name]
            one = timed(plain, size.one_by_one, 1)
            start, each, verdict = timed(agent, size.episodes, size.workers)
            n = len(one[2].counts.returns)
            row = {
                "one": one[1],
                "parallel": each,
                "ratio": one[1] / each,
                "start": start,
                "with start": one[1] * size.episodes / (start + each * (size.episodes - 1)),
                "same": bool((verdict.counts.returns[:n] == one[2].counts.returns).all()),
                "killed": len(list(Path(folder).iterdir())),
            }
            print(
                f"{name:<26}{1000 * row['one']:>8.1f} ms{1000 * each:>7.1f} ms{row['ratio']:>7.2f}{start:>6.1f}s"
                f"{row['with start']:>12.2f}   same: {row['same']}, killed: {row['killed']}",
                flush=True,
            )
            found[name] = row
    return found


class InOrder:
    """In the place of processes, where only samples and answers count: results do not depend on how fast they are.

    ``now`` is a clock that stands still but for the episodes, each of which takes as long as it has steps.
    """

    def __init__(self, made: bytes, workers: int) -> None:
        self.call: Callable[..., Any] = pickle.loads(made)()
        self.now = 0.0

    def begin(self, *arguments: object) -> tuple[Any, float]:
        """Make a call at once: what it returned, and when it would end."""
        found = self.call(*arguments)
        return found, self.now + getattr(getattr(found, "played", found), "steps", 1)

    def result(self, call: tuple[Any, float], stop: Callable[[], bool]) -> Any:
        """What it returned."""
        self.now = max(self.now, call[1])
        return call[0]

    def close(self) -> None:
        """There is nothing to end."""


class WhenTheyEnd(parallel_returns.ParallelEpisodes):
    """The control: the first episode to end is the next one."""

    def next(self, most: float) -> Any:
        """An episode, in the wrong order."""
        self._begin(most)
        first = min(self.under_way, key=lambda one: one.call[1])  # type: ignore[index]
        self.under_way.remove(first)
        self.under_way.appendleft(first)
        return super().next(most)


def errors(size: Size) -> Numbers:
    """Wrong answers where the truth is the threshold."""
    agent = pt.Episodes(lambda rng: [1.0] if rng.random() < 0.5 else [0.0] * 12, return_range=(0, 1))
    print(f"\n{'workers':<26}{'above':>8}{'below':>8}{'when they end':>15}")
    found: Numbers = {}
    for workers in (2, 8, 32):
        shares = []
        for rule in (parallel_returns.ParallelEpisodes, WhenTheyEnd):
            with (
                patch.object(parallel_returns, "Processes", InOrder),
                patch("policytest.payoffs.parallel_returns.ParallelEpisodes", rule),
            ):
                answers = [
                    pt.decide(agent, threshold=0.5, rng=seed, parallel=workers, max_samples=1500).answer
                    for seed in range(5 * size.seeds)
                ]
            shares.append([answers.count(side) / len(answers) for side in ("above", "below")])
        right, wrong = shares
        print(f"{workers:<26}{right[0]:>8.3f}{right[1]:>8.3f}{max(wrong):>15.3f}", flush=True)
        found[str(workers)] = {"errors": max(right), "control": max(wrong)}
    return found


CRITIC: dict[str, tuple[Slow, int, float]] = {
    "steady, 47.5 above 47.3": (Steady(0.0), 50, 47.3),
    "steady, 47.5 below 47.8": (Steady(0.0), 50, 47.8),
    "drifting, 20 above 18": (Drifting(0.0), 40, 18.0),
    "drifting, 20 below 22.5": (Drifting(0.0), 40, 22.5),
}


def critic(size: Size) -> Numbers:
    """Transitions, one by one and with several under way."""
    print(
        f"\n{'with a critic':<26}{'episodes':>9}{'one by one':>12}{'parallel':>10}{'settled':>9}{'all':>7}{'right':>7}"
    )
    found: Numbers = {}
    with patch.object(parallel_returns, "Processes", InOrder):
        for name, (env, horizon, bar) in list(CRITIC.items())[size.first :]:
            agent = pt.Episodes(env, still, reward_range=(0, 1), horizon=horizon, critic=pt.RidgeCritic())
            runs = [
                [pt.decide(agent, threshold=bar, rng=100 + seed, parallel=m) for seed in range(size.seeds)]
                for m in (1, size.workers)
            ]
            one, several = (float(np.mean([verdict.samples for verdict in each])) for each in runs)
            n = float(np.mean([verdict.counts.episodes for verdict in runs[0]]))
            settled = float(np.mean([verdict.counts.total for verdict in runs[1]]))
            right = sum(v.answer == name.split()[2] for each in runs for v in each) / 2 / size.seeds
            row = {"episodes": n, "one": one, "parallel": several, "settled": settled / one, "all": several / one}
            print(
                f"{name:<26}{n:>9.0f}{one:>12.0f}{several:>10.0f}{row['settled']:>9.3f}{row['all']:>7.3f}{right:>7.2f}",
                flush=True,
            )
            row["right"] = right
            found[name] = row
    return found


# ---------------------------------------------------------------- tables


def followed(work: tuple[np.ndarray, float, float]) -> int:
    """In a process of a pool: what follows a pair, after a while."""
    row, u, seconds = work
    time.sleep(seconds)
    return int(np.searchsorted(row.cumsum(), u, side="right").clip(max=len(row) - 1))


class Pooled:
    """A simulator that asks a pool, or answers at once; it counts its calls."""

    def __init__(self, kernel: np.ndarray, pool: ProcessPoolExecutor | None = None, seconds: float = 0.0) -> None:
        self.kernel, self.table, self.calls = kernel, pt.TabularSimulator(kernel), 0
        self.pool, self.seconds = pool, seconds

    def draw(self, states: np.ndarray, actions: np.ndarray, rng: np.random.Generator) -> np.ndarray:
        """The next state of each pair."""
        self.calls += 1
        if self.pool is None:
            return np.asarray(self.table.draw(states, actions, rng))
        work = [(self.kernel[s, a], rng.random(), self.seconds) for s, a in zip(states, actions, strict=True)]
        return np.array(list(self.pool.map(followed, work)))


class Ring(Slow):
    """An environment with ten states in a ring: forward or back, more often forward with action 1."""

    observation_space, action_space = gymnasium.spaces.Discrete(10), gymnasium.spaces.Discrete(2)

    def reset(self, *, seed: int | None = None, options: object = None) -> Any:
        """A new episode, in state 0."""
        self.rng, self.s = (self.rng if seed is None else np.random.default_rng(seed)), 0
        return 0, {}

    def step(self, action: object) -> Any:
        """A step."""
        time.sleep(self.seconds)
        self.s = (self.s + (1 if self.rng.random() < (0.8 if action else 0.5) else -1)) % 10
        return self.s, float(self.s >= 5), False, False, {}


def on_table(seconds: float, pool: ProcessPoolExecutor | None) -> tuple[pt.Task, Any, float]:
    """(task, simulator, threshold) of a table with ten states."""
    found = pt.instances.random(17, 10, 2, discount=0.8)
    return found.task, Pooled(found.kernel, pool, seconds), pt.value(found.task, found.kernel) - 0.08


def on_ring(seconds: float, pool: object) -> tuple[pt.Task, Any, float]:
    """(task, simulator, threshold) of the environment, which is stepped."""
    policy = np.full((10, 2), 0.5)
    made = pt.sources.gymnasium(
        Ring(seconds), policy=policy, discount=0.8, rewards=lambda s, a, x: float(x >= 5), initial=0
    )
    return made.task, made.simulator, 1.2


TABLES: dict[str, Callable[..., tuple[pt.Task, Any, float]]] = {
    "draw in a pool": on_table,
    "stepped environment": on_ring,
}


@contextmanager
def rounds_counted() -> Iterator[list[int]]:
    """The rounds of an environment that is stepped in several processes."""
    found, of = list[int](), SteppedCopies.of

    def counted(copies: SteppedCopies, walks: Any) -> Any:
        found.append(len(walks))
        return of(copies, walks)

    with patch.object(SteppedCopies, "of", counted):
        yield found


def calls_of(name: str, size: Size, workers: int) -> tuple[float, float]:
    """The mean numbers of samples and of calls to the answer, by runs without waiting."""
    found = np.zeros((size.runs, 2))
    for seed in range(size.runs):
        with rounds_counted() as rounds, patch.object(stepped_copies, "Processes", InOrder):
            task, sim, bar = TABLES[name](0.0, None)
            verdict = pt.decide(task, sim, bar, rng=700 + seed, parallel=workers)
        found[seed] = verdict.samples, len(rounds) or getattr(sim, "calls", verdict.samples)
    samples, calls = found.mean(axis=0)
    return float(samples), float(calls)


def timed_calls(name: str, size: Size, workers: int) -> tuple[float, float]:
    """(seconds to the first look, seconds of each call after it) with real waiting."""
    looks = list[tuple[float, int]]()
    with ProcessPoolExecutor(size.workers) as pool, rounds_counted() as rounds:
        list(pool.map(followed, [(np.ones(1), 0.0, 0.2)] * size.workers))  # they start
        task, sim, bar = TABLES[name](size.seconds, pool)

        def look(check: pt.Check) -> None:
            calls = len(rounds) or getattr(sim, "calls", check.samples)
            looks.append((time.perf_counter() - begin, calls))

        begin, most = time.perf_counter(), size.calls * workers
        pt.decide(task, sim, bar, delta=1e-9, max_samples=most, parallel=workers, progress=look)
    (first, before), (last, after) = looks[1], looks[-1]
    return first, (last - first) / (after - before)


def tables(size: Size) -> Numbers:
    """Time to the answer, one by one and with several rollouts under way."""
    print(
        f"\n{'a draw of 50 ms':<22}{'samples':>9}{'seconds':>9}   parallel:{'samples':>9}{'calls':>7}{'seconds':>9}",
        end="",
    )
    print(f"{'ratio':>7}{'start':>7}")
    found: Numbers = {}
    for name in size.tables:
        one, _ = calls_of(name, size, 1)
        several, calls = calls_of(name, size, size.workers)
        _, each = timed_calls(name, size, 1)
        start, a_round = timed_calls(name, size, size.workers)
        row = {"samples": one, "seconds": one * each, "samples parallel": several, "calls": calls}
        row |= {"seconds parallel": calls * a_round, "ratio": one * each / calls / a_round, "start": start}
        print(
            f"{name:<22}{one:>9.0f}{row['seconds']:>9.1f}{'':>12}{several:>9.0f}{calls:>7.0f}"
            f"{row['seconds parallel']:>9.1f}{row['ratio']:>7.2f}{start:>7.1f}",
            flush=True,
        )
        found[name] = row
    return found


def questions() -> Iterator[tuple[str, pt.Task, np.ndarray, float]]:
    """(name, task, kernel, threshold) of tables that nothing was chosen by."""
    for n in (2, 3, 5):
        paper = pt.instances.paper(n)
        yield f"paper, {n} states", paper.task, paper.kernel, 0.0
    for seed, S, A, gamma, width, gap in (
        (31, 12, 2, 0.9, None, 0.3),
        (32, 30, 3, 0.9, 5, -0.3),
        (33, 60, 4, 0.95, 6, 0.7),
        (34, 8, 2, 0.5, None, 0.05),
        (35, 100, 2, 0.95, None, -0.5),
    ):
        made = pt.instances.random(seed, S, A, discount=gamma, successors=width)
        yield f"random, {S} states", made.task, made.kernel, pt.value(made.task, made.kernel) - gap
    made, rng = pt.instances.random(36, 15, 2), np.random.default_rng(36)
    parts = {"policy": made.task.policy, "initial": made.task.initial}
    task = pt.Task(rewards=rng.random((15, 2)), discount=1.0, horizon=10, **parts)
    yield "10 steps", task, made.kernel, pt.value(task, made.kernel) - 0.2


def samples(size: Size) -> Numbers:
    """Samples and calls, one by one and with several rollouts under way."""
    print(f"\n{'a table':<26}{'one by one':>11}{'parallel':>10}{'ratio':>7}{'error':>7}{'calls':>7}{'fewer':>7}")
    found: Numbers = {}
    for name, task, kernel, bar in list(questions())[: size.questions]:
        runs = np.zeros((2, size.seeds * 2, 2))
        for i, workers in enumerate((1, size.workers)):
            for seed in range(size.seeds * 2):
                sim = Pooled(kernel)
                runs[i, seed] = pt.decide(task, sim, bar, rng=500 + seed, parallel=workers).samples, sim.calls
        (one, _), (several, calls) = runs.mean(axis=1)
        error = float(np.hypot(*(runs[:, :, 0].std(axis=1) / runs.mean(axis=1)[:, 0])) / np.sqrt(size.seeds * 2))
        row = {"one": one, "parallel": several, "ratio": several / one, "error": error, "calls": calls}
        print(
            f"{name:<26}{one:>11.0f}{several:>10.0f}{row['ratio']:>7.2f}{error:>7.2f}{calls:>7.0f}{one / calls:>7.2f}",
            flush=True,
        )
        found[name] = row
    print(f"{'geometric mean':<47}{np.exp(np.mean([np.log(row['ratio']) for row in found.values()])):>7.2f}")
    return found


PARTS = {"episodes": episodes, "critic": critic, "errors": errors, "tables": tables, "samples": samples}


def main() -> None:
    """The parts."""
    parser = argparse.ArgumentParser(description="What several rollouts or episodes under way are worth")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    size = (
        Size(2, 12, 6, 1, 0.01, 0.3, ("run(rng), some killed",), 2, ("draw in a pool",), 1, 12, 1)
        if given.small
        else Size()
    )
    found = {part: PARTS[part](size) for part in given.part}
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
