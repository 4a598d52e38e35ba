"""Any environment with any agent, without a table: episodes to the answer, and pairs of episodes to a comparison.

    python benchmarks/any_environment.py            # the full tables (some minutes)
    python benchmarks/any_environment.py --small    # a quick run of every part, used by the tests
    python benchmarks/any_environment.py --json F   # also write the numbers to a file

Gymnasium's classic environments with agents that are written by hand, at delta = 0.05. Episodes of each agent are run
once; V is their mean. A replication draws from them with replacement, so that V is its exact mean return, and runs the
test itself.

- *One agent*: is V above V - gap, and above V + gap? Beside `ville` (if it is installed): its betting test of a mean,
  one for each side, each at delta, on the same returns; the first that crosses is its answer. Seconds of
  process time are those of `decide` with the environment.
- *With a critic*: the same questions with `critic=RidgeCritic()`, whose features are the observation and its squares,
  in the environment itself; transitions, beside those of whole episodes with the same seeds, and of ville.
- *Two agents*: `compare`, on pairs of episodes with the same seed, beside two separate tests, each at delta/2, against
  the one of nine bars between the two means that takes fewest episodes on average, which nobody would know.
- *Plans*: `plan` from pilots of 50 episodes. How often is its mean within a factor 1.5 of the true one, and how often
  does its range hold the length of a test (nine times in ten, if it is right)?
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import platform
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import date
from functools import cache
from typing import Any

import numpy as np

import policytest as pt
from policytest._base.arrays import FloatArray, IntArray
from policytest.data.returns import Returns
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes
from policytest.payoffs.pairs import difference_bounds
from policytest.payoffs.returns import WholeEpisodes

DELTA = 0.05
MOST = 20_000  # episodes of a replication
BLOCK = 64
BARS = np.linspace(0.1, 0.9, 9)
PILOT = 50

# ---------------------------------------------------------------- agents


def balance(noise: float) -> Callable[[Any, np.random.Generator], int]:
    """CartPole: push to where the pole falls, sometimes anywhere."""
    return lambda o, rng: int(rng.integers(2)) if rng.random() < noise else int(o[2] + 0.3 * o[3] > 0)


def swing(share: float) -> Callable[[Any], int]:
    """Acrobot: push along the speed of the second joint, and a share of that of the first."""
    return lambda o: 2 if share * o[4] + o[5] > 0 else 0


def curve(o: Any) -> int:
    """MountainCar: push right where the speed suffices."""
    x, v = o
    low = min(-0.09 * (x + 0.25) ** 2 + 0.03, 0.3 * (x + 0.9) ** 4 - 0.008)
    return 2 if low < v < -0.07 * (x + 0.38) ** 2 + 0.07 else 0


def upright(o: Any) -> FloatArray:
    """Pendulum: swing up by energy, then hold."""
    cos, sin, w = (float(x) for x in o)
    energy = w * w / 6.0 + 5.0 * (cos - 1.0)
    push = -10.0 * math.atan2(sin, cos) - 2.0 * w if cos > 0.85 else -2.0 * energy * w if abs(w) > 0.01 else 2.0
    return np.array([np.clip(push, -2.0, 2.0)], dtype=np.float32)


def hold(o: Any) -> FloatArray:
    """Pendulum: hold, without a way to swing up."""
    return np.array([np.clip(-10.0 * math.atan2(o[1], o[0]) - 2.0 * o[2], -2.0, 2.0)], dtype=np.float32)


def stick(at: int) -> Callable[[Any], int]:
    """Blackjack: take cards below this sum."""
    return lambda o: int(o[0] < at)


def lake(actions: str) -> Callable[[Any], int]:
    """FrozenLake: the action of each of 16 states."""
    return lambda s: int(actions[int(s)])


@dataclass(frozen=True)
class Agent:
    """An agent of an environment, and the gap at which it is tested."""

    env: str
    name: str
    act: Callable[..., Any]
    gap: float

    def episodes(self) -> pt.Episodes:
        """Its episodes."""
        return pt.Episodes(self.env, self.act, **RANGES[self.env])


RANGES: dict[str, dict[str, Any]] = {
    "CartPole-v1": {"reward_range": (0, 1)},
    "Acrobot-v1": {"reward_range": (-1, 0)},
    "MountainCar-v0": {"reward_range": (-1, 0)},
    "Pendulum-v1": {"reward_range": (-16.2736045, 0)},
    "Blackjack-v1": {"return_range": (-1, 1)},
    "FrozenLake-v1": {"return_range": (0, 1)},
}
AGENTS = (
    Agent("CartPole-v1", "speed only", lambda o: int(o[3] > 0), 15.0),
    Agent("CartPole-v1", "20% noise", balance(0.2), 20.0),
    Agent("Acrobot-v1", "both joints", swing(0.5), 15.0),
    Agent("Acrobot-v1", "against the first", swing(-0.3), 8.0),
    Agent("MountainCar-v0", "along the speed", lambda o: 2 if o[1] >= 0 else 0, 5.0),
    Agent("MountainCar-v0", "curve", curve, 8.0),
    Agent("Blackjack-v1", "sticks at 20", stick(20), 0.12),
    Agent("Blackjack-v1", "sticks at 17", stick(17), 0.12),
    Agent("Pendulum-v1", "holds", hold, 100.0),
    Agent("Pendulum-v1", "swings up", upright, 30.0),
)
PAIRS = (
    (Agent("CartPole-v1", "20% noise", balance(0.2), 0), Agent("CartPole-v1", "30% noise", balance(0.3), 0)),
    (Agent("CartPole-v1", "no noise", balance(0.0), 0), Agent("CartPole-v1", "20% noise", balance(0.2), 0)),
    (Agent("Acrobot-v1", "against the first", swing(-0.3), 0), Agent("Acrobot-v1", "second joint", swing(0.0), 0)),
    (AGENTS[3], AGENTS[2]),
    (AGENTS[5], AGENTS[4]),
    (AGENTS[7], AGENTS[6]),
    (
        Agent("FrozenLake-v1", "best", lake("0333000031000210"), 0),
        Agent("FrozenLake-v1", "careless", lake("0303000031000110"), 0),
    ),
)

# ---------------------------------------------------------------- returns that are run once


@cache
def recorded(agent: Agent, count: int) -> tuple[FloatArray, IntArray]:
    """The returns and lengths of the episodes with the seeds 0, 1, ..."""
    source = WholeEpisodes(agent.episodes())
    found = [source.episode(seed) for seed in range(count)]
    return np.array([one.total for one in found]), np.array([one.steps for one in found])


class Redrawn(EpisodeSupply):
    """Outcomes drawn with replacement, as a supply; ``taken`` are those so far."""

    def __init__(self, returns: FloatArray, steps: IntArray, bounds: tuple[float, float], seed: int) -> None:
        self.returns, self.steps, (self.low, self.high) = returns, steps, bounds
        self.rng, self.taken = np.random.default_rng(seed), np.zeros(0)

    def take(self, most: int) -> Outcomes:
        """The next ones."""
        chosen = self.rng.integers(len(self.returns), size=BLOCK)
        found = self.returns[chosen]
        self.taken = np.concatenate([self.taken, found])
        return Outcomes(found, found, found, self.steps[chosen])


def tested(about: pt.Episodes, supply: Redrawn, bar: float, delta: float) -> ReturnsRun:
    """A test at its end."""
    run = ReturnsRun(ReturnBetting(), about, bar, supply)
    while run.answer is None and run.episodes < MOST:
        run.step(-math.log(delta), BLOCK)
    return run


def by_ville(supply: Redrawn, bar: float) -> int:
    """The episodes of ville's tests on the same returns, and on further ones if these are not enough."""
    ville = importlib.import_module("ville")
    sides = [ville.BettingTest(bar, (supply.low, supply.high), alternative=side) for side in ("greater", "less")]
    done = 0
    while done < MOST:
        for side in sides:
            side.update(supply.taken[done:])
        done = len(supply.taken)
        crossed = [at for side in sides if (at := side.stopping_time(DELTA)) is not None]
        if crossed:
            return int(min(crossed))
        for _ in range(1 + done // (4 * BLOCK)):
            supply.take(10**9)
    return MOST


# ---------------------------------------------------------------- one agent


def one_agent(agent: Agent, side: str, runs: int, count: int) -> dict[str, Any]:
    """One line: the test at V - gap ("above"), or at V + gap."""
    (returns, steps), about = recorded(agent, count), agent.episodes()
    V = float(returns.mean())
    bar = V - agent.gap if side == "above" else V + agent.gap
    ours, others, transitions, wrong = [], [], [], 0
    for seed in range(runs):
        supply = Redrawn(returns, steps, about.bounds, seed)
        run = tested(about, supply, bar, DELTA)
        wrong += run.answer != side
        ours.append(run.episodes)
        transitions.append(run.samples)
        if importlib.util.find_spec("ville"):
            others.append(by_ville(supply, bar))
    begin = time.process_time()
    verdict = pt.decide(about, threshold=bar, delta=DELTA, rng=1)
    seconds = (time.process_time() - begin) / max(verdict.samples, 1) * float(np.mean(transitions))
    return {
        "environment": agent.env,
        "agent": agent.name,
        "V": V,
        "bar": bar,
        "side": side,
        "runs": runs,
        "wrong": wrong,
        "episodes": float(np.mean(ours)),
        "ville": float(np.mean(others)) if others else None,
        "transitions": float(np.mean(transitions)),
        "seconds": seconds,
    }


def lengths(agent: Agent, runs: int, count: int) -> list[int]:
    """The episodes of the tests at V - gap."""
    (returns, steps), about = recorded(agent, count), agent.episodes()
    bar = float(returns.mean()) - agent.gap
    return [tested(about, Redrawn(returns, steps, about.bounds, seed), bar, DELTA).episodes for seed in range(runs)]


# ---------------------------------------------------------------- with a critic


def with_critic(agent: Agent, side: str, runs: int, count: int) -> dict[str, Any]:
    """One line: transitions of whole episodes, of episodes that a fitted critic ends early, and of ville."""
    (returns, steps), about = recorded(agent, count), agent.episodes()
    bar = float(returns.mean()) + (-agent.gap if side == "above" else agent.gap)
    critic = pt.Episodes(agent.env, agent.act, **RANGES[agent.env], critic=pt.RidgeCritic())
    found = [[pt.decide(one, threshold=bar, delta=DELTA, rng=seed) for seed in range(runs)] for one in (about, critic)]
    whole, early = (float(np.mean([verdict.samples for verdict in verdicts])) for verdicts in found)
    peer = None
    if importlib.util.find_spec("ville"):
        supplies = [Redrawn(returns, steps, about.bounds, seed) for seed in range(10 * runs)]
        peer = float(np.mean([by_ville(supply, bar) for supply in supplies]) * steps.mean())
    about_it = {"environment": agent.env, "agent": agent.name, "bar": bar, "runs": runs}
    wrong = sum(verdict.answer != side for verdicts in found for verdict in verdicts)
    return {**about_it, "wrong": wrong, "whole": whole, "early": early, "ville": peer}


# ---------------------------------------------------------------- two agents


def two_agents(a: Agent, b: Agent, runs: int, count: int) -> dict[str, Any]:
    """One line: pairs, and two separate tests."""
    (G_a, n_a), (G_b, n_b), about = recorded(a, count), recorded(b, count), [a.episodes(), b.episodes()]
    D, bounds, gap = G_a - G_b, difference_bounds(*about), float(G_a.mean() - G_b.mean())
    pairs, wrong, apart = [], 0, np.zeros((runs, len(BARS)))
    for seed in range(runs):
        run = tested(about[0], Redrawn(D, n_a + n_b, bounds, seed), 0.0, DELTA)
        wrong += run.answer != ("above" if gap > 0 else "below")
        pairs.append(run.episodes)
        if seed >= max(runs // 5, 2):
            continue
        for index, bar in enumerate(G_b.mean() + gap * BARS):
            for side, (G, n) in enumerate(((G_a, n_a), (G_b, n_b))):
                supply = Redrawn(G, n, about[side].bounds, 2 * seed + side + 10**6)
                apart[seed, index] += tested(about[side], supply, float(bar), DELTA / 2).episodes
    shared = float(np.corrcoef(G_a, G_b)[0, 1]) if G_a.std() > 0 < G_b.std() else 0.0
    return {
        "environment": a.env,
        "A": a.name,
        "B": b.name,
        "difference": gap,
        "correlation": shared,
        "runs": runs,
        "wrong": wrong,
        "pairs": float(np.mean(pairs)),
        "episodes": 2.0 * float(np.mean(pairs)),
        "two_tests": float(apart[: max(runs // 5, 2)].mean(axis=0).min()),
    }


# ---------------------------------------------------------------- plans


def planned(agent: Agent, lengths: list[int], pilots: int, count: int) -> dict[str, Any]:
    """One line: plans from pilots, for the test at V - gap, whose lengths are known."""
    (returns, steps), about = recorded(agent, count), agent.episodes()
    bar, near, held = float(returns.mean()) - agent.gap, 0, 0
    for seed in range(pilots):
        chosen = np.random.default_rng([seed, PILOT]).integers(len(returns), size=PILOT)
        found = pt.plan(about, Returns(returns[chosen], steps[chosen]), bar, DELTA, rng=seed, max_samples=1000)
        mean, low, high = found.episodes["ReturnBetting"]
        near += int(1 / 1.5 <= mean / np.mean(lengths) <= 1.5)
        held += int(low <= lengths[seed % len(lengths)] <= high)
    error = float(returns.std() / math.sqrt(PILOT)) / agent.gap
    about_it = {"environment": agent.env, "agent": agent.name, "error": error, "pilots": pilots}
    return {**about_it, "near": near / pilots, "held": held / pilots}


def lines(small: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """All rows, one after the other."""
    runs, count = (10, 60) if small else (400, 2000)
    for agent in (AGENTS[1], AGENTS[7]) if small else AGENTS:
        for side in ("above", "below"):
            yield "one", one_agent(agent, side, runs, count)
    for agent in AGENTS[5:6] if small else [agent for agent in AGENTS if agent.env != "Blackjack-v1"]:
        for side in ("above", "below"):
            yield "critic", with_critic(agent, side, 2 if small else 16, count)
    for agent in AGENTS[7:8] if small else AGENTS[:8:2]:
        yield "plan", planned(agent, lengths(agent, runs, count), 2 if small else 40, count)
    for pair in PAIRS[5:6] if small else PAIRS:
        yield "two", two_agents(*pair, runs, count)


def main() -> None:
    """Run everything and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="small sizes, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    print(f"{date.today()}, {platform.machine()}, Python {platform.python_version()}")
    if not importlib.util.find_spec("ville"):
        print("ville is not installed: its column is empty")
    found: dict[str, list[dict[str, Any]]] = {kind: [] for kind in TITLES}
    for kind, row in lines(options.small):
        if not found[kind]:
            print(f"\n{TITLES[kind]}\n{'|---' * (TITLES[kind].count('|') - 1)}|")
        found[kind].append(row)
        print(_shown(kind, row), flush=True)
    ratios = [row["episodes"] / row["ville"] for row in found["one"] if row["ville"]]
    if ratios:
        print(f"\nepisodes, relative to ville: {np.mean(ratios):.2f} on average, at most {max(ratios):.2f}")
    if options.json:
        with open(options.json, "w") as file:
            json.dump(found, file, indent=1)


TITLES = {
    "one": "| environment | agent | V | threshold | wrong | episodes | ville | ratio | transitions | seconds |",
    "critic": "| environment | agent | threshold | wrong | whole | with a critic | ratio | ville | ratio |",
    "plan": "| environment | agent | error of the gap | mean within a factor 1.5 | range holds a test |",
    "two": "| environment | A | B | difference | correlation | wrong | pairs | episodes | two tests | ratio |",
}


def _shown(kind: str, row: dict[str, Any]) -> str:
    """A row of the table."""
    if kind == "one":
        beside = f"{row['ville']:,.0f} | {row['episodes'] / row['ville']:.2f}" if row["ville"] else "- | -"
        return (
            f"| {row['environment']} | {row['agent']} | {row['V']:.4g} | {row['bar']:.4g} | {row['wrong']} of "
            f"{row['runs']} | {row['episodes']:,.0f} | {beside} | {row['transitions']:,.0f} | {row['seconds']:.2f} |"
        )
    if kind == "critic":
        beside = f"{row['ville']:,.0f} | {row['early'] / row['ville']:.2f}" if row["ville"] else "- | -"
        return (
            f"| {row['environment']} | {row['agent']} | {row['bar']:.4g} | {row['wrong']} of {2 * row['runs']} | "
            f"{row['whole']:,.0f} | {row['early']:,.0f} | {row['early'] / row['whole']:.2f} | {beside} |"
        )
    if kind == "plan":
        return f"| {row['environment']} | {row['agent']} | {row['error']:.0%} | {row['near']:.0%} | {row['held']:.0%} |"
    return (
        f"| {row['environment']} | {row['A']} | {row['B']} | {row['difference']:.3g} | {row['correlation']:.2f} | "
        f"{row['wrong']} of {row['runs']} | {row['pairs']:,.0f} | {row['episodes']:,.0f} | {row['two_tests']:,.0f} | "
        f"{row['two_tests'] / row['episodes']:.1f} |"
    )


if __name__ == "__main__":
    main()
