"""What policytest costs, line by line: CPU seconds (user and system), the best of some runs.

    python benchmarks/speed.py                       # a quarter of an hour
    python benchmarks/speed.py --against OTHER       # beside another checkout, run by run in turn, with ratios
    python benchmarks/speed.py --part peers growth   # some of the tables: costs, peers, growth
    python benchmarks/speed.py --only verdict grid   # some of the lines
    python benchmarks/speed.py --small               # as the tests run it: the warm lines, in this process

The table of peers has the same questions asked of ville and Storm (`peers.py` says how to install them); lines of what
is not installed are left out. "samples" are transitions, a mean where a line has several seeds.

*cold*: a process of its own with an empty cache of compiled code. *start*: a process of its own, compiled before. (In
both Python's own bytecode is there, as after an installation.)
*warm*: one call of many in a process. *long*: one call in a process that has compiled what it needs.
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import itertools
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
    """One line of a table: a process, or work to repeat in a process, which may return a number of samples."""

    name: str
    kind: str  # cold, start, warm or long
    process: tuple[str, ...] = ()
    work: Callable[[], Callable[[], object]] | None = None
    times: int = 1  # calls of the work in one measurement
    part: str = "costs"  # the table: costs, peers or growth
    needs: tuple[str, ...] = ()  # packages without which the line is left out


class Measured(NamedTuple):
    """CPU seconds of one call, and the number of samples where there is one."""

    seconds: float
    samples: float | None = None


def at_the_threshold(n: int, method: str, samples: int = 100_000) -> Callable[[], Callable[[], object]]:
    """A test that cannot end: so many samples at V = R."""

    def prepared() -> Callable[[], object]:
        import policytest as pt

        i, settings = pt.instances.paper(n), None if method == "default" else pt.TDBetting()
        sim, bar = pt.TabularSimulator(i.kernel), pt.value(i.task, i.kernel)
        return lambda: pt.decide(i.task, sim, bar, method=settings, max_samples=samples)

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

        for size in (min(S, 3000), S):  # the first one compiles
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


def endless(discount: float) -> Callable[[], Callable[[], object]]:
    """A random task of 20 states without an end: is the mean reward of a step more than 0.05 above a bar?"""

    def prepared() -> Callable[[], object]:
        import policytest as pt

        i = pt.instances.random(1, 20, 3, successors=4, discount=discount)
        sim, bar = pt.TabularSimulator(i.kernel), pt.value(i.task, i.kernel) - 0.05 / (1.0 - discount)
        return lambda: pt.decide(i.task, sim, bar, rng=0)

    return prepared


SEEDS = range(20)  # of a question that is asked of several tools


def each_seed(ask: Callable[[int], object]) -> Callable[[], object]:
    """Calls that ask with one seed after the other."""
    seeds = itertools.cycle(SEEDS)
    return lambda: ask(next(seeds))


def question(name: str) -> Any:
    """An instance, and a threshold below its value."""
    import policytest as pt

    if name == "5x5":
        return pt.instances.paper(5), 0.0
    i = pt.instances.grid_world(6, 6, discount=0.95)
    return i, 0.6 * pt.value(i.task, i.kernel)


def decided(name: str) -> Callable[[], Callable[[], object]]:
    """The question of this name, by the default method."""

    def prepared() -> Callable[[], object]:
        import policytest as pt

        i, bar = question(name)
        sim = pt.TabularSimulator(i.kernel)
        return each_seed(lambda seed: pt.decide(i.task, sim, bar, rng=seed))

    return prepared


def by_ville(name: str) -> Callable[[], Callable[[], object]]:
    """The question of this name, by ville on returns."""

    def prepared() -> Callable[[], object]:
        import peers

        i, bar = question(name)
        return each_seed(lambda seed: peers.ville_on_returns(i, bar, [0.05], seed, 10**7)[0])

    return prepared


def written(name: str) -> tuple[Any, Path]:
    """A chain as both tools read it: in memory, and as a DRN file."""
    import peers
    import policytest as pt

    path = Path(tempfile.mkdtemp()) / "chain.drn"
    if name == "goal":
        import numpy as np
        from scipy import sparse

        P = sparse.csr_array(np.array([[0.4, 0.5, 0, 0.1], [0.2, 0.4, 0.4, 0], [0, 0, 1, 0], [0, 0, 0, 1]]))
        peers.write_drn(path, P, np.zeros(4), {0: "init", 2: "goal", 3: "lost"})
        return pt.sources.load_model(path, goal=["goal"], avoid=["lost"], known_support=True), path
    made = pt.instances.random(1, 100, 4, successors=5) if name == "random" else pt.instances.grid_world(100, 100)
    P, reward = peers.chain_of(made)
    peers.write_drn(path, P, reward, {0: "init"})
    return pt.sources.load_model(path, discount=0.95, known_support=True), path


def reached() -> Callable[[], object]:
    """A chain of four states: is the goal reached before the chain is lost with probability above 0.6?"""
    import policytest as pt

    model, _ = written("goal")
    sim = pt.TabularSimulator(model.kernel)
    return each_seed(lambda seed: pt.decide(model.task, sim, 0.6, rng=seed))


def reached_by_storm() -> Callable[[], object]:
    """The same question, by episodes of Storm's simulator and bets of ville."""
    import peers

    storm = peers.Storm(written("goal")[1])
    return each_seed(lambda seed: storm.reaches(2, 3, 0.6, 0.05, seed))


def walked() -> Callable[[], object]:
    """100,000 transitions of a chain of 100 states, with a bet on each, at V = R."""
    import policytest as pt

    model, _ = written("random")
    sim, bar = pt.TabularSimulator(model.kernel), pt.value(model.task, model.kernel)
    return lambda: pt.decide(model.task, sim, bar, method=pt.TDBetting(), max_samples=100_000)


def walked_by_storm() -> Callable[[], object]:
    """100,000 transitions of the same chain, by Storm's simulator."""
    import peers

    storm = peers.Storm(written("random")[1])
    return lambda: storm.steps(100_000)


def checked() -> Callable[[], object]:
    """The value of a chain of 10,000 states whose kernel is known."""
    import policytest as pt

    model, _ = written("grid")
    return lambda: pt.value(model.task, model.kernel)


def checked_by_storm() -> Callable[[], object]:
    """The same value, by Storm's sparse engine."""
    import peers
    import policytest as pt

    model, path = written("grid")
    storm, value = peers.Storm(path), pt.value(model.task, model.kernel)
    assert abs(storm.checked("R=? [Cdiscount=0.95]") - value) <= 1e-4 * abs(value)
    return lambda: storm.checked("R=? [Cdiscount=0.95]")


def _costs() -> list[Line]:
    """What one call, or one process, costs."""
    return [
        Line("first verdict", "cold", ("-c", VERDICT)),
        Line("first demo", "cold", DEMO),
        Line("first log", "cold", ("-c", LOG)),
        Line("first goal", "cold", ("-c", GOAL)),
        Line("demo", "start", DEMO),
        Line("import", "start", ("-c", "import policytest; policytest.decide")),
        Line("import of numba and scipy.sparse", "start", ("-c", "import numba, scipy.sparse")),
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
        Line("Taxi", "long", work=taxi),
        *(Line(f"allocation, {S:,} states", "long", work=allocation(S)) for S in (100, 1000)),
        Line("certificate, 100 states to 5%", "long", work=proof(100, 0.05)),
        Line("certificate, 200 states to 50%", "long", work=proof(200, 0.5)),
    ]


def _peers() -> list[Line]:
    """The same question asked of several tools, with each seed where there is chance."""
    each = [
        Line("5x5, policytest", "warm", work=decided("5x5")),
        Line("5x5, ville on returns", "warm", work=by_ville("5x5"), needs=("ville",)),
        Line("grid of 36 states, policytest", "warm", work=decided("grid")),
        Line("grid of 36 states, ville on returns", "warm", work=by_ville("grid"), needs=("ville",)),
        Line("reaching a goal, policytest", "warm", work=reached),
        Line("reaching a goal, Storm and ville", "warm", work=reached_by_storm, needs=("stormpy", "ville")),
    ]
    once = [
        Line("100,000 transitions and bets, policytest", "warm", work=walked),
        Line("100,000 transitions, Storm", "warm", work=walked_by_storm, needs=("stormpy",)),
        Line("value of 10,000 states, policytest", "warm", work=checked),
        Line("value of 10,000 states, Storm", "warm", work=checked_by_storm, needs=("stormpy",)),
    ]
    return [line._replace(part="peers") for line in (*(line._replace(times=len(SEEDS)) for line in each), *once)]


def _growth() -> list[Line]:
    """How time grows with the states, with the samples and with 1/(1 - discount)."""
    lines = [
        *(Line(f"sparse, {S:,} states", "warm" if S <= 1000 else "long", work=sparse(S)) for S in SIZES),
        *(Line(f"5x5 at R, {n:,} samples", "warm", work=at_the_threshold(5, "default", n)) for n in LENGTHS),
        *(Line(f"die, discount {gamma}", "warm", work=die(gamma)) for gamma in DISCOUNTS),
        *(Line(f"without an end, discount {gamma}", "warm", work=endless(gamma)) for gamma in DISCOUNTS),
    ]
    return [line._replace(part="growth") for line in lines]


SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
LENGTHS = (1_000, 10_000, 100_000, 1_000_000)
DISCOUNTS = (0.9, 0.99, 0.999, 0.9999, 0.99999)
LINES = [*_costs(), *_peers(), *_growth()]
# Left out of the small run.
SLOW = {"5x5 at R, 1,000,000 samples", "without an end, discount 0.9999", "without an end, discount 0.99999"}


def measured_here(line: Line, runs: int) -> Measured:
    """One call in this process, the best of some runs; the mean number of samples of one run."""
    assert line.work is not None
    call, best = line.work(), float("inf")
    if line.kind == "long":
        runs = 1
    else:
        call()
    for _ in range(runs):
        start = time.process_time()
        found = [call() for _ in range(line.times)]
        best = min(best, (time.process_time() - start) / line.times)
    samples = [n for n in (getattr(one, "samples", one) for one in found) if isinstance(n, int)]
    return Measured(best, sum(samples) / len(samples) if samples else None)


def spent(tree: Path, cache: str, arguments: tuple[str, ...]) -> tuple[float, str]:
    """The CPU seconds of a process on a source tree, and what it printed."""
    path = os.pathsep.join(filter(None, [str(tree / "src"), os.environ.get("PYTHONPATH")]))
    settings = {**os.environ, "PYTHONPATH": path, "NUMBA_CACHE_DIR": cache, "OPENBLAS_NUM_THREADS": "1"}
    settings.pop("PYTHONDONTWRITEBYTECODE", None)
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    with tempfile.TemporaryDirectory() as folder:  # the demo writes a page
        done = subprocess.run(
            [sys.executable, *arguments], env=settings, cwd=folder, check=True, stdout=subprocess.PIPE, text=True
        )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def measured(line: Line, tree: Path, cache: str) -> Measured:
    """One measurement of a line on a source tree."""
    if line.kind == "cold":
        with tempfile.TemporaryDirectory() as empty:
            return Measured(spent(tree, empty, line.process)[0])
    if line.kind == "start":
        return Measured(spent(tree, cache, line.process)[0])
    return Measured(*json.loads(spent(tree, cache, (str(HERE), "--line", line.name))[1]))


def shown(seconds: float) -> str:
    """Seconds with their unit."""
    for unit, size in (("s", 1.0), ("ms", 1e-3)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds / 1e-6:.3g} us"


def best_of(line: Line, trees: list[Path], caches: list[str], runs: int) -> list[Measured]:
    """The trees measured in turn, the best of each."""
    pairs = list(zip(trees, caches, strict=True))
    if line.kind in ("start", "warm"):
        for pair in pairs:
            measured(line, *pair)  # compiles
    rounds = [[measured(line, *pair) for pair in pairs] for _ in range(1 if line.kind in ("cold", "long") else runs)]
    return [min(of_tree) for of_tree in zip(*rounds, strict=True)]


def table(lines: list[Line], measure: Callable[[Line], list[Measured]]) -> list[dict[str, Any]]:
    """Measure each line, and print it; a new table for each part."""
    rows, part = [], ""
    for line in lines:
        best = measure(line)
        if line.part != part:
            part, columns = line.part, ["seconds", "other", "ratio"] if len(best) > 1 else ["seconds"]
            print(f"\n| {part} | | samples | {' | '.join(columns)} |\n|---|---|---|{'---|' * len(columns)}")
        seconds, samples = [one.seconds for one in best], best[0].samples
        rows.append({"line": line.name, "part": part, "kind": line.kind, "seconds": seconds, "samples": samples})
        ratio = [f"{seconds[1] / seconds[0]:.1f}"] if len(best) > 1 else []
        drawn = "" if samples is None else f"{samples:,.0f}"
        print(f"| {' | '.join([line.name, line.kind, drawn, *map(shown, seconds), *ratio])} |", flush=True)
    return rows


def main() -> None:
    """Measure, print a table, and keep the numbers if asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true")
    options.add_argument("--against", type=Path, help="another checkout")
    options.add_argument(
        "--part", nargs="+", choices=("costs", "peers", "growth"), default=[], help="some of the tables"
    )
    options.add_argument("--only", nargs="+", default=[], help="the beginnings of the names of lines")
    options.add_argument("--runs", type=int, default=5)
    options.add_argument("--line", help="measure this line in this process, and print seconds and samples")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    if given.line:
        print(json.dumps(measured_here(next(line for line in LINES if line.name == given.line), 3)))
        return
    chosen = [
        line
        for line in LINES
        if (not given.part or line.part in given.part)
        and (not given.only or line.name.startswith(tuple(given.only)))
        and all(importlib.util.find_spec(name) for name in line.needs)
    ]
    for name in sorted({name for line in LINES for name in line.needs if importlib.util.find_spec(name) is None}):
        print(f"{name} is not installed: its lines are left out")
    if given.small:
        once = [line._replace(kind="long", times=1) for line in chosen if line.kind == "warm" and line.name not in SLOW]
        rows = table(once, lambda line: [measured_here(line, 1)])
    else:
        trees = [HERE.parents[1], *([given.against.resolve()] if given.against else [])]
        for tree in trees:
            compileall.compile_dir(tree / "src", quiet=2)
        with tempfile.TemporaryDirectory() as folder:
            caches = [str(Path(folder) / str(index)) for index in range(len(trees))]
            rows = table(chosen, lambda line: best_of(line, trees, caches, given.runs))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
