"""Where the default test is weak: its samples beside those of peers, and how often its intervals miss.

    python benchmarks/fewer_samples.py            # the four tables (an hour)
    python benchmarks/fewer_samples.py --part answers --part wrong    # some of them: answers, widths, wrong, missed
    python benchmarks/fewer_samples.py --only FrozenLake              # the instances whose names contain this
    python benchmarks/fewer_samples.py --held-out # other instances of the same families, which nothing is tuned on
    python benchmarks/fewer_samples.py --small    # a quick run of every part, used by the tests
    python benchmarks/fewer_samples.py --json F   # also write the numbers to a file

1. Mean transitions to the answer at delta = 0.05, with standard errors.

   - *default*: `decide` as it is. FrozenLake *by steps*: in an environment that is walked through from its start.
   - *Monte Carlo*: `MonteCarlo()`, bets on truncated returns.
   - *ville*: the same by the package of that name, where it is installed, with the range of the allowed paths.
   - *bound*: T* kl(delta, 1-delta) with the best allocation of samples; no test needs fewer on average. It may draw
     from any pair at any time.
   - *known*: what bets on rollouts could do at best, without splits, if the kernel and the gap were known
     (`benchmarks/best_bets.py`).
   - *ratio*: the default beside the better of the two peers.

2. Transitions until `evaluate` knows the value within epsilon, at all times, beside the usual interval for one look
   at a number of episodes that is fixed in advance, (1.96 sd / epsilon)^2, for the sd that nobody knows.

3. How often an answer is wrong at V = R, where both are, at delta = 0.1: each is given in at most delta of the runs.
   The control claims two nats of evidence that nobody has earned.

4. How often the interval of `TDBetting()` misses the true value at some moment of a long run, at delta = 0.2: it is
   looked at whenever the samples have grown by a twentieth. Above delta would be wrong; far below it is wasteful.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import json
import math
import platform
import runpy
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binom

import peers
import policytest as pt
from best_bets import transitions_if_known
from calibration import ALARM
from policytest.cli.starter import write_starter

DELTA, ERROR_DELTA, MISS_DELTA = 0.05, 0.1, 0.2
UNEARNED = 2.0  # nats that the control claims
CAP = 100_000_000
ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Question:
    """A task with the truth, and the thresholds that are asked about."""

    name: str
    instance: pt.instances.Instance
    thresholds: tuple[float, ...]
    epsilon: float | None = None  # how well the value is to be known, in the second table
    by_steps: bool = False  # the environment is walked through, from its start

    @property
    def sim(self) -> Any:
        """The simulator of the truth."""
        table = pt.TabularSimulator(self.instance.kernel)
        return Walked(table) if self.by_steps else table

    @property
    def value(self) -> float:
        """V of the truth."""
        return float(pt.value(self.instance.task, self.instance.kernel))


class Walked:
    """A table that is asked for one transition after the other, as an environment is."""

    extra_steps = 0  # an environment that is reset says how many steps it took to get to a pair

    def __init__(self, table: pt.TabularSimulator) -> None:
        self.draw = table.draw


def corner_grid(rows: int = 6, columns: int = 6, discount: float = 0.95) -> pt.instances.Instance:
    """Cells from corner to corner: 1 at the far one, where it ends, and 0 elsewhere.

    A move goes where the action says with probability 0.8, and to either side of that with 0.1; a wall keeps the walker
    in place. The policy goes right or down, with equal probability where both bring it nearer.
    """
    moves = [(-1, 0), (0, 1), (1, 0), (0, -1)]  # up, right, down, left, as (row, column)
    S = rows * columns
    kernel, policy = np.zeros((S, 4, S)), np.zeros((S, 4))
    for s in range(S):
        row, column = divmod(s, columns)
        policy[s, [1, 2]] = (column < columns - 1, row < rows - 1) if s < S - 1 else (True, True)
        for a in range(4):
            for turn, mass in ((0, 0.8), (1, 0.1), (-1, 0.1)):
                down, right = moves[(a + turn) % 4]
                x = min(max(row + down, 0), rows - 1) * columns + min(max(column + right, 0), columns - 1)
                kernel[s, a, x] += mass
    kernel[-1], kernel[-1, :, -1] = 0.0, 1.0
    rewards = np.zeros_like(kernel)
    rewards[:-1, :, -1] = 1.0
    policy /= policy.sum(axis=1, keepdims=True)
    task = pt.Task(rewards, policy, np.eye(S)[0], discount, support=kernel > 0, terminal=[S - 1])
    return pt.instances.Instance(task, kernel)


def wear(discount: float = 0.95) -> pt.instances.Instance:
    """A machine fails with probability 0.004 (1 + wear), which costs 1 and ends it; wear grows from 0 to 4, slowly."""
    kernel = np.zeros((6, 1, 6))
    for s in range(5):
        fails = 0.004 * (1 + s)
        kernel[s, 0, 5] = fails
        kernel[s, 0, s] += 0.8 * (1 - fails)
        kernel[s, 0, min(s + 1, 4)] += 0.2 * (1 - fails)
    kernel[5, 0, 5] = 1.0
    rewards = np.zeros_like(kernel)
    rewards[:5, 0, 5] = -1.0
    task = pt.Task(rewards, np.ones((6, 1)), np.eye(6)[0], discount, support=kernel > 0, terminal=[5])
    return pt.instances.Instance(task, kernel)


def read(text: str, kernel: Any) -> pt.instances.Instance:
    """A task in the words of a task file, with this kernel."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "task.toml"
        path.write_text(text, encoding="utf-8")
        model = pt.sources.load_model(path)
    return pt.instances.Instance(model.task, kernel)


def shop() -> pt.instances.Instance:
    """The shop of ``policytest init``."""
    with tempfile.TemporaryDirectory() as folder:
        model = pt.sources.load_model(write_starter(Path(folder) / "shop")[0])
    return pt.instances.Instance(model.task, model.kernel)


def retention() -> pt.instances.Instance:
    """The customers of `examples/retention.py`."""
    example = runpy.run_path(str(ROOT / "examples" / "retention.py"))
    kernel = np.zeros((4, 3, 4))
    kernel[:3], kernel[3, :, 3] = example["TRUTH"], 1.0
    return read(example["TASK"], kernel)


def frozen_lake(discount: float) -> pt.instances.Instance:
    """4x4, slippery, no time limit, under the best policy for the discount 0.99."""
    from episodes import Case  # it imports gymnasium's part of the package

    case = Case("4x4", False)
    lake: Any = case.lake(case.best(), discount)
    return pt.instances.Instance(lake.task, lake.kernel)


def around(instance: pt.instances.Instance, *shares: float) -> tuple[float, ...]:
    """Thresholds that are away from the value by so many standard deviations of the values of states."""
    spread = pt.state_values(instance.task, instance.kernel).std()
    return tuple(float(pt.value(instance.task, instance.kernel) + share * spread) for share in shares)


def questions() -> list[Question]:
    """Every line of the first table."""
    grid, garnet = corner_grid(), pt.instances.random(1, 30, 3, successors=3, discount=0.95)
    dense, worn, world = pt.instances.random(2, 4, 3, discount=0.9), wear(), pt.instances.grid_world(5, 5)
    corner, failing = (float(pt.value(one.task, one.kernel)) for one in (grid, worn))
    found = [
        Question("grid 6x6, one reward", grid, (0.75 * corner, 0.91 * corner)),
        Question("Garnet 30x3", garnet, around(garnet, -2.7, -0.5, 0.5)),
        Question("dense 4x3", dense, around(dense, -0.5, 3.2)),
        Question("rare event with wear", worn, (1.3 * failing, 0.7 * failing)),
        Question("grid world 5x5", world, around(world, -1.0)),
        *(Question(f"paper {n}x{n}", pt.instances.paper(n), (0.0,)) for n in (2, 3, 5)),
        Question("shop", shop(), (4.0,), epsilon=0.1),
        Question("customer retention", retention(), (90.0,)),
    ]
    if importlib.util.find_spec("gymnasium") is None:
        print("FrozenLake is left out: gymnasium is not installed")
        return found
    far, near = frozen_lake(0.9999), frozen_lake(0.999)
    reached = float(pt.value(far.task, far.kernel))
    return [
        *found,
        Question("FrozenLake, 0.9999", far, (reached - 0.05, reached + 0.05)),
        Question("FrozenLake, 0.9999, by steps", far, (reached - 0.05, reached + 0.05), by_steps=True),
        Question("FrozenLake, 0.999", near, (0.7,), epsilon=0.02),
    ]


def held_out() -> list[Question]:
    """Lines of the same families with other seeds and shapes: a check of what was tuned on the others. Tune none here.

    Thresholds follow the rules of `questions`, for both sides of each.
    """
    grid, garnet = corner_grid(4, 9), pt.instances.random(11, 45, 2, successors=4, discount=0.95)
    dense, corner = pt.instances.random(12, 6, 2, discount=0.9), float(pt.value(grid.task, grid.kernel))
    return [
        Question("grid 4x9, one reward", grid, (0.8 * corner, 1.15 * corner)),
        Question("Garnet 45x2", garnet, around(garnet, -0.8, 0.8)),
        Question("dense 6x2", dense, around(dense, -0.8, 0.8)),
    ]


def summed(taken: list[int]) -> dict[str, Any]:
    """The mean, its standard error, and how many runs were cut: the mean is too small where there are any."""
    error = float(np.std(taken, ddof=1) / math.sqrt(len(taken)))
    return {"mean": float(np.mean(taken)), "error": error, "cut": sum(one >= CAP for one in taken)}


def words(found: dict[str, Any] | None) -> str:
    """A mean with its standard error."""
    return "" if found is None else f"{'> ' * bool(found['cut'])}{found['mean']:,.0f} ± {found['error']:,.0f}"


def transitions(question: Question, threshold: float, runs: int, peer_runs: int) -> dict[str, Any]:
    """One line of the first table."""
    instance, sim = question.instance, question.sim
    task, side = instance.task, "above" if question.value > threshold else "below"

    def decided(seeds: int, method: Any) -> tuple[dict[str, Any], int]:
        verdicts = [pt.decide(task, sim, threshold, DELTA, method, seed, max_samples=CAP) for seed in range(seeds)]
        taken = [one.samples if one.answer in ("above", "below") else CAP for one in verdicts]
        return summed(taken), sum(one.answer != side for one in verdicts)

    begin = time.perf_counter()
    default, wrong = decided(runs, None)
    seconds = (time.perf_counter() - begin) / runs
    sim = pt.TabularSimulator(instance.kernel)
    monte_carlo, peer_wrong = decided(peer_runs, pt.MonteCarlo())
    ville = None
    if importlib.util.find_spec("ville") is not None:
        ask = functools.partial(peers.ville_on_returns, instance, threshold, [DELTA], cap=CAP, side=side, paths=True)
        ville = summed([CAP if stop is None else stop for seed in range(peer_runs) for stop in ask(seed=seed)])
    best = min((one for one in (monte_carlo, ville) if one is not None), key=lambda one: float(one["mean"]))
    ratio = default["mean"] / best["mean"]
    evidence = (1 - 2 * DELTA) * math.log((1 - DELTA) / DELTA)
    bound = evidence * pt.optimal_allocation(task, instance.kernel, threshold).time
    row = {"instance": question.name, "side": side, "threshold": threshold, "value": question.value}
    row |= {"default": default, "monte carlo": monte_carlo, "ville": ville, "bound": bound, "ratio": ratio}
    row["known"] = transitions_if_known(instance, threshold, DELTA)
    row["ratio error"] = ratio * math.hypot(*(one["error"] / one["mean"] for one in (default, best)))
    return row | {"wrong": wrong, "peer wrong": peer_wrong, "runs": runs, "peer runs": peer_runs, "seconds": seconds}


def known_within(question: Question, epsilon: float, runs: int, episodes: int) -> dict[str, Any]:
    """One line of the second table."""
    task, sim = question.instance.task, pt.TabularSimulator(question.instance.kernel)
    found = [pt.evaluate(task, sim, epsilon, DELTA, rng=seed) for seed in range(runs)]
    default = summed([one.samples for one in found])
    rest = pt.state_values(task, question.instance.kernel)
    returns, steps = peers.plays(task, sim, np.random.default_rng(0), episodes, 10_000, rest)
    one_look = (1.96 * float(returns.std()) / epsilon) ** 2 * float(steps.mean())
    missed = sum(not one.lower <= question.value <= one.upper for one in found)
    row = {"instance": question.name, "value": question.value, "epsilon": epsilon, "missed": missed, "runs": runs}
    return row | {"default": default, "one look": one_look, "ratio": default["mean"] / one_look}


def errors(question: Question, runs: int, control_runs: int, samples: int) -> dict[str, Any]:
    """One line of the third table."""
    row: dict[str, Any] = {"instance": question.name, "runs": runs, "control runs": control_runs, "samples": samples}
    task, sim, R = question.instance.task, question.sim, question.value
    for name, claimed, count in (("betting", 0.0, runs), ("control", UNEARNED, control_runs)):
        level = [ERROR_DELTA * math.exp(claimed)]
        answers = [
            pt.stopping_times(task, sim, R, level, pt.TDBetting(), seed, samples).answers[0] for seed in range(count)
        ]
        row[name] = {side: answers.count(side) for side in ("above", "below")}
        worst = max(row[name].values())
        row[f"{name} alarm"] = bool(binom.sf(worst - 1, count, ERROR_DELTA) < ALARM)
    return row


def misses(question: Question, runs: int, samples: int) -> dict[str, Any]:
    """One line of the fourth table: in how many runs the capital against the true value ever reaches 2/delta."""
    task, sim = question.instance.task, pt.TabularSimulator(question.instance.kernel)
    middle, needed, missed = 0.5 * sum(pt.value_range(task)), math.log(2 / MISS_DELTA), 0
    for seed in range(runs):
        run, look, peak = pt.TDBetting().start(task, sim, middle, seed, both_sides=True), 64, -math.inf
        while run.samples < samples and peak < needed:
            run.step(math.inf, max(look - run.samples, 1))
            if run.samples >= look:
                look = int(1.05 * look) + 1
                capital = (run.refuter(sign).log_capital(sign * (question.value - middle)) for sign in (1.0, -1.0))
                peak = max(peak, *capital)
        missed += peak >= needed
    share = missed / runs
    error = math.sqrt(share * (1 - share) / runs)
    return {"instance": question.name, "missed": share, "error": error, "runs": runs, "samples": samples}


def wrong(asked: list[Question], runs: int, control_runs: int, samples: int) -> list[dict[str, Any]]:
    """Print the third table."""
    title = f"Wrong answers at V = R in {runs} runs of {samples:,} samples, at delta = {ERROR_DELTA:g}"
    begin(title, "instance", "above", "below", f"control, of {control_runs}")
    found = []
    for question in asked:
        row = errors(question, runs, control_runs, samples)
        caught = "alarm" if row["control alarm"] else "no alarm"
        control = f"{row['control']['above']} / {row['control']['below']}: {caught}"
        said = " ALARM" if row["betting alarm"] else ""
        show(question.name, f"{row['betting']['above']}{said}", f"{row['betting']['below']}", control)
        found.append(row)
    return found


def show(*cells: str) -> None:
    """A row of a table as it is on the page."""
    print("| " + " | ".join(cells) + " |", flush=True)


def begin(title: str, *heads: str) -> None:
    """The title of a table, and its first row."""
    print(f"\n{title}\n")
    show(*heads)
    show(*("---" for _ in heads))


def answers(asked: list[Question], runs: int, peer_runs: int) -> list[dict[str, Any]]:
    """Print the first table."""
    title = f"Mean transitions at delta = {DELTA:g}; {runs} runs; {peer_runs} of peers in tasks without an end"
    begin(title, "instance", "V", "R", "bound", "known", "default", "Monte Carlo", "ville", "ratio", "wrong")
    found = []
    for question in asked:
        for threshold in question.thresholds:
            row = transitions(question, threshold, runs, runs if len(question.instance.task.ends) else peer_runs)
            numbers = f"{row['value']:.3f}", f"{threshold:.3f}", f"{row['bound']:,.0f}", f"{row['known']:,.0f}"
            means = (words(row[name]) for name in ("default", "monte carlo", "ville"))
            show(
                question.name,
                *numbers,
                *means,
                f"{row['ratio']:.2f} ± {row['ratio error']:.2f}",
                f"{row['wrong']} of {row['runs']}",
            )
            found.append(row)
    return found


def widths(asked: list[Question], runs: int, coarser: float) -> list[dict[str, Any]]:
    """Print the second table."""
    title = f"Transitions until the value is known within epsilon, at delta = {DELTA:g}; {runs} runs"
    begin(title, "instance", "V", "epsilon", "evaluate", "one look, n fixed", "ratio", "missed")
    found = []
    for question in asked:
        if question.epsilon is not None:
            row = known_within(question, coarser * question.epsilon, runs, 20_000)
            numbers = f"{row['value']:.3f}", f"{row['epsilon']:g}", words(row["default"]), f"{row['one look']:,.0f}"
            show(question.name, *numbers, f"{row['ratio']:.2f}", f"{row['missed']} of {runs}")
            found.append(row)
    return found


def missed(asked: list[Question], runs: int, samples: int) -> list[dict[str, Any]]:
    """Print the fourth table."""
    title = f"Runs of {samples:,} samples whose interval ever misses the value, at delta = {MISS_DELTA:g}; {runs} runs"
    begin(title, "instance", "missed")
    found = []
    for question in asked:
        row = misses(question, runs, samples)
        show(question.name, f"{row['missed']:.3f} ± {row['error']:.3f}")
        found.append(row)
    return found


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--part", action="append", choices=["answers", "widths", "wrong", "missed"], help="only this")
    parser.add_argument("--only", metavar="TEXT", default="", help="instances whose names contain this")
    parser.add_argument("--held-out", action="store_true", help="other instances, which nothing is tuned on")
    parser.add_argument("--runs", type=int, help="of each line of the first table, and a fifth of it of peers")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today():%d %B %Y}, {platform.machine()}, Python {platform.python_version()}", flush=True)
    known = held_out() if options.held_out else questions()
    asked = [question for question in known if options.only in question.name]
    if options.small and not options.held_out:
        asked = [question for question in asked if question.name in ("paper 5x5", "rare event with wear", "shop")]
    tables = [question for question in asked if not question.by_steps]
    runs = options.runs or (4 if options.small else 300)
    parts: dict[str, Callable[[], list[dict[str, Any]]]] = {
        "answers": lambda: answers(asked, runs, max(runs // 5, 2)),
        "widths": lambda: widths(asked, *((2, 5.0) if options.small else (100, 1.0))),
        "wrong": lambda: wrong(tables, *((10, 4, 500) if options.small else (1000, 100, 5_000))),
        "missed": lambda: missed(tables, *((10, 1000) if options.small else (300, 20_000))),
    }
    results = {name: part() for name, part in parts.items() if name in (options.part or parts)}
    if options.json:
        Path(options.json).write_text(json.dumps(results, indent=2), encoding="utf-8")


if __name__ == "__main__":
    main()
