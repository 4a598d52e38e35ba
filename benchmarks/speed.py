"""What policytest costs, line by line: CPU seconds (user and system), the best of some runs.

    python benchmarks/speed.py                       # a quarter of an hour
    python benchmarks/speed.py --against OTHER       # beside another checkout, run by run in turn, with ratios
    python benchmarks/speed.py --only verdict grid   # some of the lines
    python benchmarks/speed.py --small               # as the tests run it: the warm lines, in this process

*cold*: a process of its own with an empty cache of compiled code. *start*: a process of its own, compiled before.
*warm*: one call of many in a process. *long*: one call in a process that has compiled what it needs.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve()

VERDICT = "import policytest as pt; i = pt.instances.paper(5); pt.decide(i.task, pt.TabularSimulator(i.kernel), 0.0)"
LOG = """
import numpy as np, policytest as pt
i, rng = pt.instances.paper(5), np.random.default_rng(0)
s, a = rng.integers(5, size=500), rng.integers(5, size=500)
pt.assess(i.task, pt.Transitions(s, a, pt.TabularSimulator(i.kernel).draw(s, a, rng)), 0.0)
"""
GOAL = """
import numpy as np, policytest as pt
kernel = np.zeros((4, 1, 4))
kernel[0, 0, [0, 1, 3]], kernel[1, 0, [1, 2]], kernel[2, 0, 2], kernel[3, 0, 3] = [0.4, 0.5, 0.1], 0.5, 1, 1
task = pt.Task.reaching(goal=[2], avoid=[3], policy=np.ones((4, 1)), initial=[1, 0, 0, 0], support=kernel > 0)
pt.decide(task, pt.TabularSimulator(kernel), 0.6)
"""
DEMO = ("-m", "policytest", "demo")


class Line(NamedTuple):
    """One line of the table: a process, or work to repeat in a process."""

    name: str
    kind: str  # cold, start, warm or long
    process: tuple[str, ...] = ()
    work: Callable[[], Callable[[], object]] | None = None
    times: int = 1  # calls of the work in one measurement


def at_the_threshold(n: int, method: str) -> Callable[[], Callable[[], object]]:
    """A test that cannot end: 100,000 samples at V = R."""

    def prepared() -> Callable[[], object]:
        import policytest as pt

        i, settings = pt.instances.paper(n), None if method == "default" else pt.TDBetting()
        sim, bar = pt.TabularSimulator(i.kernel), pt.value(i.task, i.kernel)
        return lambda: pt.decide(i.task, sim, bar, method=settings, max_samples=100_000)

    return prepared


def verdict() -> Callable[[], object]:
    """The question of the paper, by the default method."""
    import policytest as pt

    i = pt.instances.paper(5)
    return lambda: pt.decide(i.task, pt.TabularSimulator(i.kernel), 0.0)


def grid() -> Callable[[], object]:
    """A slippery grid of 36 states."""
    import policytest as pt

    i = pt.instances.grid_world(6, 6, discount=0.95)
    bar = 0.6 * pt.value(i.task, i.kernel)
    return lambda: pt.decide(i.task, pt.TabularSimulator(i.kernel), bar, rng=2)


def nearest() -> Callable[[], object]:
    """The nearest kernel at which the paper's policy has the value 0."""
    import numpy as np

    import policytest as pt

    i, weights = pt.instances.paper(5), np.ones((5, 5))
    return lambda: pt.nearest_kernel(i.task, i.kernel, weights, 0.0)


def interval(rows: int) -> Callable[[], Callable[[], object]]:
    """The interval of a log of 8 states and 3 actions."""

    def prepared() -> Callable[[], object]:
        import numpy as np

        import policytest as pt

        i, rng = pt.instances.random(3, 8, 3, discount=0.9), np.random.default_rng(0)
        s, a = rng.integers(8, size=rows), rng.integers(3, size=rows)
        data = pt.Transitions(s, a, pt.TabularSimulator(i.kernel).draw(s, a, rng))
        return lambda: pt.value_interval(i.task, data)

    return prepared


def sparse(S: int) -> Callable[[], Callable[[], object]]:
    """A test of a random task with 4 actions and 5 declared successors, one standard deviation from the threshold."""

    def prepared() -> Callable[[], object]:
        import policytest as pt

        for size in (3000, S):  # the first one compiles
            i = pt.instances.random(1, size, 4, successors=5, discount=0.95)
            sim, values = pt.TabularSimulator(i.kernel), pt.state_values(i.task, i.kernel)
            bar = float(i.task.initial @ values) - float(values.std())
            if size != S:
                pt.decide(i.task, sim, bar, rng=0)
        return lambda: pt.decide(i.task, sim, bar, rng=0)

    return prepared


def die(discount: float) -> Callable[[], Callable[[], object]]:
    """A die made of coins, as in the examples of model checkers: is the mean number of throws above 3?"""

    def prepared() -> Callable[[], object]:
        import numpy as np

        import policytest as pt

        kernel = np.zeros((8, 1, 8))
        for s, onward in enumerate([(1, 2), (3, 4), (5, 6), (1, 7), (7, 7), (7, 7), (2, 7), (7, 7)]):
            for x in onward:
                kernel[s, 0, x] += 0.5
        rewards = np.ones((8, 1))
        rewards[7] = 0.0
        task = pt.Task(rewards, np.ones((8, 1)), np.eye(8)[0], discount, kernel > 0, terminal=[7])
        return lambda: pt.decide(task, pt.TabularSimulator(kernel), 3.4)

    return prepared


def taxi() -> Callable[[], object]:
    """500 states, any of which may follow, as far as the test knows."""
    import policytest as pt

    found = pt.sources.gymnasium("Taxi-v4", "uniform", 0.9, options={"is_rainy": True})
    assert found.value is not None
    bar = found.value - 1.0
    return lambda: pt.decide(found.task, found.simulator, bar, max_samples=20_000)


def allocation(S: int) -> Callable[[], Callable[[], object]]:
    """The best allocation of a random task with 3 actions and 5 successors."""

    def prepared() -> Callable[[], object]:
        import policytest as pt

        def ask(size: int) -> object:
            i = pt.instances.random(size, size, 3, successors=5)
            value, (low, _) = pt.value(i.task, i.kernel), pt.value_range(i.task)
            return pt.optimal_allocation(i.task, i.kernel, value + 0.05 * (low - value))

        ask(90 if S <= 100 else 120)  # compiles
        return lambda: ask(S)

    return prepared


def proof(S: int, gap: float) -> Callable[[], Callable[[], object]]:
    """The certificate of a random task with 2 actions and 3 successors."""

    def prepared() -> Callable[[], object]:
        import numpy as np

        import policytest as pt

        def ask(size: int) -> object:
            i = pt.instances.random(size, size, 2, successors=3)
            value, (low, _) = pt.value(i.task, i.kernel), pt.value_range(i.task)
            weights, bar = np.ones(i.task.policy.shape), value + 0.05 * (low - value)
            return pt.nearest_kernel(i.task, i.kernel, weights, bar, solver=pt.Certified(gap=gap))

        ask(20)  # compiles
        return lambda: ask(S)

    return prepared


LINES = [
    Line("first verdict", "cold", ("-c", VERDICT)),
    Line("first demo", "cold", DEMO),
    Line("first log", "cold", ("-c", LOG)),
    Line("first goal", "cold", ("-c", GOAL)),
    Line("demo", "start", DEMO),
    Line("import", "start", ("-c", "import policytest; policytest.decide")),
    Line("help", "start", ("-m", "policytest", "--help")),
    *(
        Line(f"{n}x{n} at R, {method}", "warm", work=at_the_threshold(n, method))
        for n in (5, 2)
        for method in ("default", "betting")
    ),
    Line("verdict", "warm", work=verdict, times=20),
    Line("grid", "warm", work=grid, times=3),
    Line("nearest kernel", "warm", work=nearest, times=200),
    Line("interval, 500 rows", "warm", work=interval(500)),
    Line("interval, 5000 rows", "warm", work=interval(5000)),
    Line("die, discount 0.9999", "warm", work=die(0.9999)),
    Line("die, discount 0.99999", "warm", work=die(0.99999)),
    Line("Taxi", "long", work=taxi),
    *(Line(f"sparse, {S:,} states", "long", work=sparse(S)) for S in (10_000, 100_000, 1_000_000)),
    *(Line(f"allocation, {S:,} states", "long", work=allocation(S)) for S in (100, 1000)),
    Line("certificate, 100 states to 5%", "long", work=proof(100, 0.05)),
    Line("certificate, 200 states to 50%", "long", work=proof(200, 0.5)),
]


def seconds_of(line: Line, runs: int) -> float:
    """The seconds of one call in this process, the best of some runs."""
    assert line.work is not None
    call, best = line.work(), float("inf")
    if line.kind == "long":
        runs = 1
    else:
        call()
    for _ in range(runs):
        start = time.process_time()
        for _ in range(line.times):
            call()
        best = min(best, (time.process_time() - start) / line.times)
    return best


def spent(tree: Path, cache: str, arguments: tuple[str, ...]) -> tuple[float, str]:
    """The CPU seconds of a process on a source tree, and what it printed."""
    settings = {**os.environ, "PYTHONPATH": str(tree / "src"), "NUMBA_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:  # the demo writes a page
        done = subprocess.run(
            [sys.executable, *arguments], env=settings, cwd=folder, check=True, stdout=subprocess.PIPE, text=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def measured(line: Line, tree: Path, cache: str) -> float:
    """One measurement of a line on a source tree."""
    if line.kind == "cold":
        with tempfile.TemporaryDirectory() as empty:
            return spent(tree, empty, line.process)[0]
    if line.kind == "start":
        return spent(tree, cache, line.process)[0]
    return float(spent(tree, cache, (str(HERE), "--line", line.name))[1])


def shown(seconds: float) -> str:
    """Seconds with their unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def table(lines: list[Line], trees: list[Path], runs: int) -> list[dict[str, Any]]:
    """Measure the trees in turn, and print the best of each line."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        caches = [str(Path(folder) / str(index)) for index in range(len(trees))]
        for line in lines:
            for tree, cache in zip(trees, caches, strict=True) if line.kind in ("start", "warm") else ():
                measured(line, tree, cache)  # compiles
            best = [float("inf")] * len(trees)
            for _ in range(1 if line.kind in ("cold", "long") else runs):
                for index, (tree, cache) in enumerate(zip(trees, caches, strict=True)):
                    best[index] = min(best[index], measured(line, tree, cache))
            rows.append({"line": line.name, "kind": line.kind, "seconds": best})
            ratio = f" | {best[1] / best[0]:.1f}" if len(best) > 1 else ""
            print(f"| {line.name} | {line.kind} | {' | '.join(map(shown, best))}{ratio} |", flush=True)
    return rows


def here(lines: list[Line]) -> list[dict[str, Any]]:
    """The warm lines, measured in this process."""
    rows = []
    for line in lines:
        if line.kind == "warm":
            seconds = seconds_of(line._replace(times=1), 2)
            rows.append({"line": line.name, "kind": line.kind, "seconds": [seconds]})
            print(f"| {line.name} | {line.kind} | {shown(seconds)} |", flush=True)
    return rows


def main() -> None:
    """Measure, print a table, and keep the numbers if asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true")
    options.add_argument("--against", type=Path, help="another checkout")
    options.add_argument("--only", nargs="+", default=[], help="the beginnings of the names of lines")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--line", help="measure this line in this process, and print seconds")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    if given.line:
        print(seconds_of(next(line for line in LINES if line.name == given.line), 3))
        return
    chosen = [line for line in LINES if not given.only or line.name.startswith(tuple(given.only))]
    trees = [HERE.parents[1], *([given.against.resolve()] if given.against else [])]
    print(f"| what | | {'seconds | other | ratio' if given.against else 'seconds'} |")
    print(f"|---|---|{'---|---|---' if given.against else '---'}|")
    rows = here(chosen) if given.small else table(chosen, trees, given.runs)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
