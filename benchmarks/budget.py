"""What a budget that is fixed beforehand is worth: how often there is an answer by then, and after how much of it.

    python benchmarks/budget.py                    # a quarter of an hour (part of `make bench`)
    python benchmarks/budget.py --part bars pairs  # some of the tables
    python benchmarks/budget.py --small            # a few runs, used by the tests
    python benchmarks/budget.py --json F           # also write the numbers to a file

bars    successes against a bar, beside the exact binomial test at the end of the budget, which looks once
laws    returns with other laws, beside a z test at the end that knows their variance, which would answer 0.8
pairs   two agents, beside STEP where it is installed (pip install sequentialized-barnard-tests)
environments  returns of agents in CartPole, Acrobot and Pendulum, drawn from 2,000 of each; beside a z test at the end
        that knows their variance, at bars where it would answer 0.85 if the mean were normal
intervals  how long intervals at the end of the budget are, in units of 2 x 1.96 standard errors; beside those without a
        budget and, of successes, that of Clopper and Pearson, which looks once

"answered" is the share of runs with the right answer at delta = 0.05, "used" the mean share of the budget; "plain" are
the bets without a budget, stopped after as many episodes. "errs" is the share of wrong answers where the truth is the
bar. The largest fraction was raised after a first run of the line 0.99, 0.999; nothing else was chosen on these
questions.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats
from scipy.stats import binom, norm

import policytest as pt

DELTA = 0.05
BARS = (
    *((0.6, 0.75, 60), (0.5, 0.58, 250), (0.75, 0.9, 50), (0.8, 0.87, 180), (0.97, 0.995, 200), (0.99, 0.999, 500)),
    *((0.1, 0.2, 80), (0.05, 0.09, 200), (0.01, 0.03, 250), (0.25, 0.4, 60), (0.33, 0.38, 600), (0.4, 0.7, 40)),
)
GRID = [round(0.05 + 0.1 * k, 2) for k in range(10)]
PAIRS = [(b, a) for i, a in enumerate(GRID) for b in GRID[i + 1 :]]  # the better one first
Draw = Callable[[np.random.Generator], float]
Ask = Callable[[int], pt.Verdict]
Numbers = dict[str, float]


def beta(rng: np.random.Generator) -> float:
    """Most of it good."""
    return float(rng.beta(4.0, 1.5))


def rarely_good(rng: np.random.Generator) -> float:
    """Nine in ten have nothing."""
    return float(rng.exponential(0.1)) if rng.random() < 0.1 else 0.0


def crashes(rng: np.random.Generator) -> float:
    """Four in a hundred lose most of it."""
    return 0.15 if rng.random() < 0.04 else 0.75 + 0.2 * float(rng.random())


def narrow(rng: np.random.Generator) -> float:
    """A standard deviation of a thirtieth of the range."""
    return float(rng.normal(0.6, 1.0 / 30.0))


def two_humps(rng: np.random.Generator) -> float:
    """An agent that falls early, or does not."""
    return float(rng.normal(0.2 if rng.random() < 0.35 else 0.8, 0.07))


LAWS: tuple[tuple[Draw, int], ...] = (beta, 120), (rarely_good, 500), (crashes, 400), (narrow, 150), (two_humps, 150)


def episodes(draw: Draw) -> pt.Episodes:
    """One reward an episode, between 0 and 1; two agents are independent, whatever the seed."""
    return pt.Episodes(lambda rng: [min(max(draw(rng), 0.0), 1.0)], return_range=(0.0, 1.0))


def success(p: float, stream: int = 0) -> pt.Episodes:
    """An agent that succeeds with this probability."""
    return episodes(lambda rng: float(np.random.default_rng([stream, int(rng.integers(2**62))]).random() < p))


def share(ask: Ask, N: int, runs: int, right: str) -> tuple[float, float]:
    """(the share of runs with this answer, the mean share of the budget)."""
    with warnings.catch_warnings():  # that the other answer cannot come within the budget
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        found = [ask(seed) for seed in range(runs)]
    answered = sum(verdict.answer == right for verdict in found)
    return answered / runs, sum(verdict.counts.episodes for verdict in found) / runs / N


def line(name: str, N: int, peer: float, asks: tuple[Ask, Ask, Ask], runs: int, right: str = "above") -> Numbers:
    """A line of a table: with the budget, without it, and where the truth is the bar."""
    (aimed, used), (plain, by_plain) = (share(ask, N, runs, right) for ask in asks[:2])
    errs = share(asks[2], N, runs, right)[0]
    print(
        f"{name:<24}{N:>7}{peer:>8.3f}{aimed:>10.3f}{used:>7.2f}{plain:>9.3f}{by_plain:>7.2f}{errs:>8.3f}", flush=True
    )
    return {
        "budget": N,
        "peer": peer,
        "aimed": aimed,
        "used": used,
        "plain": plain,
        "used_plain": by_plain,
        "errs": errs,
    }


def head(name: str, peer: str) -> None:
    """The head of a table."""
    print(f"\n{name:<24}{'budget':>7}{peer:>8}{'answered':>10}{'used':>7}{'plain':>9}{'used':>7}{'errs':>8}")


def against(agent: pt.Episodes, bar: float, N: int) -> tuple[Ask, Ask]:
    """How to ask with the budget, and without it."""
    return (
        lambda seed: pt.decide(agent, threshold=bar, rng=seed, budget=N),
        lambda seed: pt.decide(agent, threshold=bar, rng=seed, max_samples=N),
    )


def bars(runs: int) -> list[Numbers]:
    """Successes against a bar."""
    head("bar, truth", "exact")
    rows = []
    for bar, truth, N in BARS:
        least = next(k for k in range(N + 2) if binom.sf(k - 1, N, bar) <= DELTA)
        asks = *against(success(truth), bar, N), against(success(bar), bar, N)[0]
        rows.append(line(f"{bar}, {truth}", N, float(binom.sf(least - 1, N, truth)), asks, runs))
    return rows


def laws(runs: int) -> list[Numbers]:
    """Returns with other laws, on both sides."""
    head("law, side", "z test")
    rows = []
    for draw, N in LAWS:
        rng = np.random.default_rng(2026)
        sample = np.clip([draw(rng) for _ in range(200_000)], 0.0, 1.0)
        mean, gap = float(sample.mean()), float(norm.ppf(0.8) + norm.ppf(1 - DELTA)) * float(sample.std()) / N**0.5
        for sign, right in ((-1.0, "above"), (1.0, "below")):
            asks = *against(episodes(draw), mean + sign * gap, N), against(episodes(draw), mean, N)[0]
            rows.append(line(f"{draw.__name__}, {right}", N, 0.8, asks, runs, right))
    return rows


def balancing(seen: Any) -> int:
    """An agent of CartPole: against the way in which the pole is falling."""
    return int(seen[3] > 0)


def pumping(seen: Any) -> int:
    """An agent of Acrobot: with the swing of the second link."""
    return 2 if seen[5] > 0 else 0


def swinging(seen: Any) -> Any:
    """An agent of Pendulum: with the swing while it hangs, against the fall near the top."""
    push = np.sign(seen[2]) * 2.0 if seen[0] < 0.7 else -10.0 * seen[1] - 2.0 * seen[2]
    return np.clip([push], -2.0, 2.0).astype(np.float32)


WORST_PENDULUM = -200 * (np.pi**2 + 0.1 * 8.0**2 + 0.001 * 2.0**2)
AGENTS: dict[str, tuple[Callable[[Any], Any], float, float, int]] = {  # its range of returns, and the budget
    "CartPole-v1": (balancing, 0.0, 500.0, 100),
    "Acrobot-v1": (pumping, -500.0, 0.0, 200),
    "Pendulum-v1": (swinging, WORST_PENDULUM, 0.0, 100),
}


def played(name: str, agent: Callable[[Any], Any], episodes: int) -> list[float]:
    """The returns of an agent."""
    env: Any = importlib.import_module("gymnasium").make(name)
    found = []
    for seed in range(episodes):
        (seen, _), total, over = env.reset(seed=seed), 0.0, False
        while not over:
            seen, reward, ended, cut, _ = env.step(agent(seen))
            total, over = total + float(reward), ended or cut
        found.append(total)
    return found


def environments(runs: int) -> list[Numbers]:
    """Returns of agents, on both sides; their means are those of the returns that were played."""
    head("environment, side", "z test")
    rows = []
    for name, (agent, low, high, N) in AGENTS.items():
        returns = np.array(played(name, agent, 2000 if runs > 1 else 5))
        mean, error = float(returns.mean()), float(returns.std()) / N**0.5
        print(f"{name}: mean {mean:.1f}, standard deviation {returns.std():.1f}, range {low:.0f} to {high:.0f}")

        def drawn(rng: np.random.Generator, returns: Any = returns) -> list[float]:
            return [float(returns[rng.integers(len(returns))])]

        about = pt.Episodes(drawn, return_range=(low, high))
        for sign, right in ((-1.0, "above"), (1.0, "below")):
            bar = mean + sign * float(norm.ppf(0.85) + norm.ppf(1 - DELTA)) * error
            means = np.random.default_rng(1).choice(returns, (2000, N)).mean(axis=1)
            peer = float((sign * (bar - means) > norm.ppf(1 - DELTA) * error).mean())
            asks = *against(about, bar, N), against(about, mean, N)[0]
            rows.append(line(f"{name}, {right}", N, peer, asks, runs, right))
    return rows


def pairs(runs: int, N: int = 200) -> list[Numbers]:
    """Two agents, the better one first."""
    step = step_test(N)
    print(f"\n{'success A, B':<24}{'budget':>7}{'answered':>10}{'pairs':>8}{'STEP':>8}{'pairs':>8}")
    rows = []
    for better, worse in PAIRS:
        a, b = success(better, 1), success(worse, 2)
        ours = share(lambda seed, a=a, b=b: pt.compare(a, b, rng=seed, budget=N), N, runs, "above")  # type: ignore[misc]
        theirs = step(better, worse, runs) if step else (np.nan, np.nan)
        row = {"budget": N, "aimed": ours[0], "pairs": ours[1] * N, "step": theirs[0], "step_pairs": theirs[1]}
        show(f"{better}, {worse}", row)
        rows.append(row)
    mean = {name: float(np.mean([row[name] for row in rows])) for name in rows[0]}
    show("mean", mean)
    return rows


def show(name: str, row: Numbers) -> None:
    """A line of the table of pairs."""
    answered, used, step, step_used = (row[part] for part in ("aimed", "pairs", "step", "step_pairs"))
    print(f"{name:<24}{row['budget']:>7.0f}{answered:>10.3f}{used:>8.1f}{step:>8.3f}{step_used:>8.1f}", flush=True)


def intervals(runs: int) -> list[Numbers]:
    """Lengths of intervals, and how often they miss the mean."""
    print(f"\n{'returns':<24}{'budget':>7}{'exact':>8}{'aimed':>8}{'misses':>8}{'plain':>8}")
    rows = []
    for draw, N in ((coin, 120), (rare_coin, 120), *LAWS):
        sample = np.clip([draw(np.random.default_rng([2026, i])) for i in range(20_000)], 0.0, 1.0)
        mean, unit = float(sample.mean()), 2.0 * 1.96 * float(sample.std()) / N**0.5
        exact, aimed, plain, missed = [], [], [], 0
        for seed in range(runs):
            rng = np.random.default_rng(seed)
            returns = np.clip([draw(rng) for _ in range(N)], 0.0, 1.0)
            log = pt.LoggedEpisodes(None, returns, return_range=(0.0, 1.0))
            found, k = pt.value_interval(log, budget=N), int(returns.sum())
            missed += mean not in found
            aimed.append(found.width / unit)
            plain.append(pt.value_interval(log).width / unit)
            ends = stats.beta.ppf(0.025, k, N - k + 1), stats.beta.ppf(0.975, k + 1, N - k)
            exact.append(float(np.diff(np.nan_to_num(ends))[0]) / unit if draw in (coin, rare_coin) else np.nan)
        row = {"budget": N, "exact": np.mean(exact), "aimed": np.mean(aimed), "misses": missed / runs}
        rows.append({**{name: float(value) for name, value in row.items()}, "plain": float(np.mean(plain))})
        exactly, length, share, without = (rows[-1][name] for name in ("exact", "aimed", "misses", "plain"))
        print(f"{draw.__name__:<24}{N:>7}{exactly:>8.2f}{length:>8.2f}{share:>8.3f}{without:>8.2f}", flush=True)
    return rows


def coin(rng: np.random.Generator) -> float:
    """Four successes in five."""
    return float(rng.random() < 0.8)


def rare_coin(rng: np.random.Generator) -> float:
    """One success in twenty."""
    return float(rng.random() < 0.05)


def step_test(N: int) -> Callable[[float, float, int], tuple[float, float]] | None:
    """(how often STEP answers that A is better, its mean pairs) for two success rates; None if it is not installed."""
    name = "sequentialized_barnard_tests"
    if importlib.util.find_spec(name) is None:
        return None
    package: Any = importlib.import_module(name)
    test = package.MirroredStepTest(alternative=package.Hypothesis.P0LessThanP1, n_max=N, alpha=DELTA)

    def ask(better: float, worse: float, runs: int) -> tuple[float, float]:
        rng, answered, used = np.random.default_rng(1), 0, 0
        for _ in range(runs):
            test.reset()
            first, second = rng.random(N) < worse, rng.random(N) < better
            decided = None
            for i in range(N):
                decided = test.step(bool(first[i]), bool(second[i])).decision
                used += 1
                if decided != package.Decision.FailToDecide:
                    break
            answered += decided == package.Decision.AcceptAlternative
        return answered / runs, used / runs

    return ask


PARTS = {"bars": bars, "laws": laws, "environments": environments, "pairs": pairs, "intervals": intervals}


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description="What a budget is worth")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runs", type=int, default=300)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {part: PARTS[part](1 if given.small else given.runs) for part in given.part}
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
