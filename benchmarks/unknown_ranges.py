"""Returns without known bounds: four honest ways, side by side, on both sides of the truth.

    python benchmarks/unknown_ranges.py            # the full tables (some minutes)
    python benchmarks/unknown_ranges.py --small    # a quick run of every part, used by the tests
    python benchmarks/unknown_ranges.py --json F   # also write the numbers to a file

Three environments, at delta = 0.05. The returns of LunarLander have no known lower end, though none is above 400:
landing pays 100, two legs pay 20, and getting nearer and slower at most 245. Pendulum's range is known from its
equations. Trades are of our own: ten a day, each costs 1.5 and brings in a Pareto amount of at least 1 with the
exponent 2.5, so that the return of a day has a mean and a variance, and its skewness is infinite. Episodes of the two
Gymnasium environments are run once (`pip install 'gymnasium[box2d]'`; without it LunarLander is left out), and a
replication draws from them; trades are drawn as they are.

- *Both sides*: is the value above a threshold a quarter of a standard deviation below it, and above one that far above
  it? A test of normal returns with a known variance would take 99 episodes for each with a power of 0.8.
- *At the truth*: how often is either answer given where the threshold is the value, within so many episodes? At most
  delta each, if the answer is certified. A usual interval, looked at after every episode from the 30th on, is the
  control.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import platform
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

import numpy as np

import policytest as pt
from any_environment import upright
from policytest._base.arrays import FloatArray

DELTA = 0.05
GAP = 0.25  # in standard deviations
MOST = 3000  # episodes of a replication
NOISE = 0.1  # the share of random actions of the lander
COST, TAIL, TRADES = 1.5, 2.5, 10
DRAWN = 1_000_000  # of the trades, for their true values

Returns = Callable[[np.random.Generator], float]
"""Draws the return of an episode."""
Asked = Callable[[float], float]
"""What is asked about a return."""


@dataclass(frozen=True)
class Way:
    """One of the ways: what `Episodes` is told, and the number of a return whose mean is asked about."""

    name: str
    settings: Mapping[str, Any]
    of: Asked = float
    sides: tuple[str, ...] = ("above", "below")


LARGE = Way("large samples, no range", {})


@dataclass(frozen=True)
class Process:
    """An environment with its agent: its returns, a sample of them for the true values, and the ways."""

    name: str
    draw: Returns
    sample: FloatArray
    ways: tuple[Way, ...]

    def truth(self, way: Way) -> tuple[float, float]:
        """(mean, standard deviation) of what is asked about."""
        asked = np.array([way.of(float(G)) for G in self.sample])
        return float(asked.mean()), float(asked.std())


def clipped(low: float, high: float) -> Way:
    """The mean of returns that are cut at both ends, whose range is known."""

    def cut(G: float) -> float:
        return min(max(G, low), high)

    def outcome(rewards: FloatArray, info: Mapping[str, Any]) -> float:
        return cut(float(rewards.sum()))

    return Way(f"clipped, {low:g} to {high:g}", {"outcome": outcome, "return_range": (low, high)}, cut)


def one_end(low: float | None, high: float | None) -> Way:
    """Returns with one known end: the low one serves "above", the high one "below"."""
    words = f"one known end, {low:g} or more" if low is not None else f"one known end, {high:g} or less"
    return Way(words, {"return_range": (low, high)}, sides=("below",) if low is None else ("above",))


def success(level: float) -> Way:
    """The probability of a return of at least this."""
    return Way(f"at least {level:g}", {"outcome": pt.at_least(level)}, lambda G: float(level <= G))


# ---------------------------------------------------------------- the environments


def redrawn(returns: FloatArray) -> Returns:
    """With replacement."""
    return lambda rng: float(returns[rng.integers(len(returns))])


def trades(rng: np.random.Generator) -> float:
    """The profit of a day."""
    return float(TRADES * (1.0 - COST) + rng.pareto(TAIL, TRADES).sum())


def lander(count: int) -> FloatArray:
    """Returns of the heuristic that Gymnasium ships, with some random actions; empty without Box2D."""
    import gymnasium

    try:
        heuristic: Any = importlib.import_module("gymnasium.envs.box2d.lunar_lander").heuristic
    except (ImportError, gymnasium.error.DependencyNotInstalled):
        return np.zeros(0)
    env = gymnasium.make("LunarLander-v3")

    def act(observation: Any, rng: np.random.Generator) -> int:
        return int(rng.integers(4)) if rng.random() < NOISE else int(heuristic(env.unwrapped, observation))

    return recorded(pt.Episodes(env, act, return_range=(-1e9, 400.0)), count)


def recorded(about: pt.Episodes, count: int) -> FloatArray:
    """The returns of so many episodes."""
    from policytest.payoffs.returns import WholeEpisodes

    source = WholeEpisodes(about)
    return np.array([source.episode(seed).total for seed in range(count)])


def processes(count: int, drawn: int) -> Iterator[Process]:
    """The three, each with its ways."""
    if len(landings := lander(count)):
        ways = (success(200.0), one_end(None, 400.0), clipped(-500.0, 400.0), LARGE)
        yield Process("LunarLander-v3", redrawn(landings), landings, ways)
    pendulum = (-200 * 16.2736045, 0.0)  # 200 steps of pi^2 + 0.1 * 8^2 + 0.001 * 2^2
    swings = recorded(pt.Episodes("Pendulum-v1", upright, return_range=pendulum), count)
    ways = (success(-200.0), one_end(None, 0.0), Way("both ends known, -3255 to 0", {"return_range": pendulum}), LARGE)
    yield Process("Pendulum-v1", redrawn(swings), swings, ways)
    floor = TRADES * (1.0 - COST)
    ways = (success(0.0), one_end(floor, None), clipped(floor, 25.0), LARGE)
    rng = np.random.default_rng(2026)
    sample = floor + rng.pareto(TAIL, (drawn, TRADES)).sum(axis=1)
    yield Process("trades", trades, sample, ways)


# ---------------------------------------------------------------- the two tables


def asked(process: Process, way: Way, threshold: float, seed: int, most: int) -> pt.Verdict:
    """One test."""
    about = pt.Episodes(lambda rng: np.array([process.draw(rng)]), **way.settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)  # which answer cannot come, or is not certified: meant
        return pt.decide(about, threshold=threshold, delta=DELTA, rng=seed, max_samples=most)


def both_sides(process: Process, way: Way, runs: int, most: int) -> dict[str, Any]:
    """A line: right and wrong answers, and episodes, at the truth less the gap and at the truth plus the gap."""
    V, sd = process.truth(way)
    row: dict[str, Any] = {"environment": process.name, "way": way.name, "V": V, "sd": sd, "runs": runs}
    for side, threshold in (("above", V - GAP * sd), ("below", V + GAP * sd)):
        if side not in way.sides:
            continue
        found = [asked(process, way, threshold, seed, most) for seed in range(runs)]
        row[side] = {
            "threshold": threshold,
            "right": sum(verdict.answer == side for verdict in found),
            "wrong": sum(verdict.answer not in (side, None) for verdict in found),
            "certified": all(verdict.certified for verdict in found if verdict.answer),
            "episodes": float(np.mean([verdict.counts.episodes for verdict in found])),
        }
    return row


def at_the_truth(process: Process, way: Way, runs: int, most: int) -> dict[str, Any]:
    """A line: how often each answer is given where the threshold is the value itself."""
    V, _ = process.truth(way)
    answers = [asked(process, way, V, 10**6 + seed, most).answer for seed in range(runs)]
    counts = {side: answers.count(side) for side in ("above", "below")}
    return {"environment": process.name, "way": way.name, "runs": runs, **counts}


def peeking(process: Process, runs: int, most: int) -> dict[str, Any]:
    """The control: one-sided 95% intervals with Student's t, looked at after every episode from the 30th on."""
    from scipy.stats import t

    V, n = float(process.sample.mean()), np.arange(1, most + 1)
    quantile, found = t.ppf(1.0 - DELTA, np.maximum(n - 1, 1)), {"above": 0, "below": 0}
    for seed in range(runs):
        rng = np.random.default_rng([seed, 7])
        won = np.array([process.draw(rng) for _ in range(most)]) - V
        mean = np.cumsum(won) / n
        spread = np.sqrt(np.maximum(np.cumsum(won**2) / n - mean**2, 1e-300) / np.maximum(n - 1, 1))
        score = (mean / spread / quantile)[29:]
        crossed = [np.flatnonzero(sign * score > 1.0) for sign in (1.0, -1.0)]
        first = [at[0] if len(at) else math.inf for at in crossed]
        if min(first) < math.inf:
            found["above" if first[0] < first[1] else "below"] += 1
    return {"environment": process.name, "way": "t interval, looked at all the time", "runs": runs, **found}


def lines(small: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """All rows, one after the other."""
    runs, null_runs, count, most = (2, 2, 20, 240) if small else (100, 200, 2000, MOST)
    for process in processes(count, 5_000 if small else DRAWN):
        for way in process.ways:
            yield "sides", both_sides(process, way, runs, most)
        for way in process.ways:
            yield "truth", at_the_truth(process, way, null_runs, most // 6)
        yield "truth", peeking(process, null_runs, most // 6)


TITLES = {
    "sides": (
        "| environment | way | certified | V | answer above | wrong | episodes | answer below | wrong | episodes |"
    ),
    "truth": "| environment | way | wrongly above | wrongly below |",
}


def _shown(kind: str, row: dict[str, Any]) -> str:
    """A row of a table."""
    if kind == "truth":
        shares = " | ".join(f"{row[side] / row['runs']:.3f}" for side in ("above", "below"))
        return f"| {row['environment']} | {row['way']} | {shares} |"
    cells = []
    for side in ("above", "below"):
        if (one := row.get(side)) is None:
            cells += ["cannot come", "", ""]
        else:
            cells += [f"{one['right']} of {row['runs']}", str(one["wrong"]), f"{one['episodes']:,.0f}"]
    proved = all(row[side]["certified"] for side in ("above", "below") if side in row)
    first = f"| {row['environment']} | {row['way']} | {'yes' if proved else 'no'} | {row['V']:.4g} |"
    return f"{first} {' | '.join(cells)} |"


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in TITLES}
    for kind, row in lines(options.small):
        found[kind].append(row)
        print(_shown(kind, row), flush=True)
    if not any(row["environment"].startswith("Lunar") for row in found["sides"]):
        print("LunarLander-v3 is left out: it needs pip install 'gymnasium[box2d]'")
    for kind, title in TITLES.items():
        print(f"\n{title}\n{'|---' * (title.count('|') - 1)}|")
        print("\n".join(_shown(kind, row) for row in found[kind]))
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
