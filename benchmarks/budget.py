"""What a budget that is fixed beforehand is worth: how often there is an answer by then, and after how much of it.

    python benchmarks/budget.py                    # a quarter of an hour (part of `make bench`)
    python benchmarks/budget.py --part bars pairs  # some of the tables
    python benchmarks/budget.py --small            # a few runs, used by the tests
    python benchmarks/budget.py --json F           # also write the numbers to a file

bars    successes against a bar, beside the exact binomial test at the end of the budget, which looks once
laws    returns with other laws, beside a z test at the end that knows their variance, which would answer 0.8, and
        beside STaR bets: f^2 = 2 log(needed)/(v left), where v is the mean square so far
pairs   two agents, beside STEP where it is installed (pip install sequentialized-barnard-tests), whose share of
        answers is exact, from its table; 200 pairs and 500
environments  returns of agents in CartPole, Acrobot and Pendulum, drawn from 2,000 of each; beside a z test at the end
        that knows their variance, at bars where it would answer 0.85 if the mean were normal
intervals  how long intervals at the end of the budget are, in units of 2 x 1.96 standard errors; beside those without a
        budget and, of successes, that of Clopper and Pearson, which looks once

tables  transitions of five tasks, beside a z test at the end on plain rollouts that knows values and variance, at bars
        where it would answer 0.85; "bet" is TDBetting() with the budget, "plain" is without one

"answered" is the share of runs with the right answer at delta = 0.05, "used" the mean share of the budget; "plain" are
the bets without a budget, stopped after as many episodes, in a tenth of the runs. "errs" is the share of wrong answers
where the truth is the bar. Settings of the bets were chosen on other bars, laws, rates and budgets than these.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba
import numpy as np
import numpy.typing as npt
from scipy import stats
from scipy.stats import binom, norm

import policytest as pt
from policytest.eprocess.budget import aimed_capital

DELTA, FEW = 0.05, 2
BARS = (
    *((0.6, 0.75, 60), (0.5, 0.58, 250), (0.75, 0.9, 50), (0.8, 0.87, 180), (0.97, 0.995, 200), (0.99, 0.999, 500)),
    *((0.1, 0.2, 80), (0.05, 0.09, 200), (0.01, 0.03, 250), (0.25, 0.4, 60), (0.33, 0.38, 600), (0.4, 0.7, 40)),
)
GRID = [round(0.05 + 0.1 * k, 2) for k in range(10)]
PAIRS = [(b, a) for i, a in enumerate(GRID) for b in GRID[i + 1 :]]  # the better one first
Reals = npt.NDArray[np.float64]
Draw = Callable[[np.random.Generator, int], Reals]
Numbers = dict[str, float]


def beta(rng: np.random.Generator, n: int) -> Reals:
    """Most of it good."""
    return rng.beta(4.0, 1.5, n)


def rarely_good(rng: np.random.Generator, n: int) -> Reals:
    """Nine in ten have nothing."""
    return rng.exponential(0.1, n) * (rng.random(n) < 0.1)


def crashes(rng: np.random.Generator, n: int) -> Reals:
    """Four in a hundred lose most of it."""
    return np.where(rng.random(n) < 0.04, 0.15, 0.75 + 0.2 * rng.random(n))


def narrow(rng: np.random.Generator, n: int) -> Reals:
    """A standard deviation of a thirtieth of the range."""
    return rng.normal(0.6, 1.0 / 30.0, n)


def two_humps(rng: np.random.Generator, n: int) -> Reals:
    """An agent that falls early, or does not."""
    return rng.normal(np.where(rng.random(n) < 0.35, 0.2, 0.8), 0.07)


LAWS: tuple[tuple[Draw, int], ...] = (beta, 120), (rarely_good, 500), (crashes, 400), (narrow, 150), (two_humps, 150)


def success(p: float) -> Draw:
    """An agent that succeeds with this probability."""
    return lambda rng, n: np.asarray(rng.random(n) < p, dtype=np.float64)


def drawn(draw: Draw, N: int, runs: int, seed: int) -> Reals:
    """[runs, N] returns between 0 and 1."""
    rng = np.random.default_rng(seed)
    return np.array([np.clip(draw(rng, N), 0.0, 1.0) for _ in range(runs)])


def sides(Z: Reals, bar: float) -> tuple[tuple[Reals, float], tuple[Reals, float]]:
    """(Z - R, the most of it) of the sides "above" and "below", in units of what a full bet can lose."""
    return ((Z - bar) / bar, 1.0 / bar - 1.0), ((bar - Z) / (1.0 - bar), bar / (1.0 - bar))


def ends(log_capital: Reals) -> npt.NDArray[np.int64]:
    """[runs] the outcome after which there is an answer, or one more than there are."""
    reached = log_capital >= -math.log(DELTA)
    return np.asarray(np.where(reached.any(axis=1), reached.argmax(axis=1) + 1, reached.shape[1] + 1))


def aimed(x: Reals, best: float, pairs: bool = False) -> Reals:
    """[runs, N] the capital of bets that aim at the end."""
    return np.array([aimed_capital(row, best, DELTA, x.shape[1], pairs) for row in x])


def star(x: Reals, best: float) -> Reals:
    """[runs, N] the capital of STaR bets."""
    runs, N = x.shape
    log_capital, squares = np.zeros((runs, N + 1)), np.full(runs, 0.5 * best)
    for i in range(N):
        needed = np.maximum(-math.log(DELTA) - log_capital[:, i], 0.0)
        f = np.minimum(np.sqrt(2.0 * needed * (i + 0.5) / (squares * (N - i))), 0.995)
        log_capital[:, i + 1] = log_capital[:, i] + np.log1p(f * np.maximum(x[:, i], -1.0))
        squares += x[:, i] ** 2
    return log_capital[:, 1:]


def share(above: npt.NDArray[np.int64], below: npt.NDArray[np.int64], N: int) -> tuple[float, float]:
    """(how often the first answer is "above", the mean share of the budget) from when each side has its answer."""
    first = np.minimum(above, below)
    return float(((first <= N) & (above < below)).mean()), float(np.minimum(first, N).mean()) / N


def by_bets(Z: Reals, bar: float, right: str, bets: Callable[[Reals, float], Reals] = aimed) -> tuple[float, float]:
    """(how often they give this answer, the mean share of the budget)."""
    above, below = (ends(bets(*side)) for side in sides(Z, bar))
    return share(above, below, Z.shape[1]) if right == "above" else share(below, above, Z.shape[1])


def plain(draw: Draw, bar: float, N: int, runs: int, right: str) -> tuple[float, float]:
    """(how often the bets without a budget give this answer by then, the mean share of the budget)."""
    agent = pt.Episodes(lambda rng: [float(np.clip(draw(rng, 1)[0], 0.0, 1.0))], return_range=(0.0, 1.0))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        found = [pt.decide(agent, threshold=bar, rng=seed, max_samples=N) for seed in range(runs)]
    return sum(one.answer == right for one in found) / runs, sum(one.counts.episodes for one in found) / runs / N


def line(case: tuple[Draw, float, int], fair: tuple[Draw, float], runs: int, right: str) -> Numbers:
    """A line of a table: with the budget, by STaR, without a budget, and where the truth is the bar."""
    draw, bar, N = case
    Z = drawn(draw, N, runs, 1)
    row: Numbers = {"budget": N}
    for label, (answered, used) in {
        "aimed": by_bets(Z, bar, right),
        "star": by_bets(Z, bar, right, star),
        "plain": plain(draw, bar, N, max(runs // 10, 1), right),
    }.items():
        row |= {label: answered, f"used_{label}": used}
    row["errs"] = by_bets(drawn(fair[0], N, runs, 2), fair[1], right)[0]
    return row


HEAD = f"{'budget':>7}{'peer':>8}{'answered':>10}{'used':>7}{'STaR':>8}{'used':>7}{'plain':>8}{'used':>7}{'errs':>8}"


def show(name: str, row: Numbers) -> Numbers:
    """Print a line."""
    numbers = (f"{row[key]:>8.3f}{row['used_' + key]:>7.2f}" for key in ("aimed", "star", "plain"))
    print(f"{name:<24}{row['budget']:>7.0f}{row['peer']:>8.3f}  {''.join(numbers)}{row['errs']:>8.3f}", flush=True)
    return row


def bars(runs: int) -> list[Numbers]:
    """Successes against a bar, beside the exact test."""
    print(f"\n{'bar, truth':<24}{HEAD}")
    rows = []
    for bar, truth, N in BARS:
        least = next(k for k in range(N + 2) if binom.sf(k - 1, N, bar) <= DELTA)
        row = line((success(truth), bar, N), (success(bar), bar), runs, "above")
        rows.append(show(f"{bar}, {truth}", {**row, "peer": float(binom.sf(least - 1, N, truth))}))
    return rows


def laws(runs: int) -> list[Numbers]:
    """Returns with other laws, on both sides, beside a z test."""
    print(f"\n{'law, side':<24}{HEAD}")
    rows = []
    for draw, N in LAWS:
        sample = drawn(draw, 200_000, 1, 2026)
        mean, gap = float(sample.mean()), float(norm.ppf(0.8) + norm.ppf(1 - DELTA)) * float(sample.std()) / N**0.5
        for sign, right in ((-1.0, "above"), (1.0, "below")):
            row = line((draw, mean + sign * gap, N), (draw, mean), runs, right)
            rows.append(show(f"{draw.__name__}, {right}", {**row, "peer": 0.8}))
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
    """Returns of agents, on both sides, as shares of their range; the truth is the mean of those that were played."""
    print(f"\n{'environment, side':<24}{HEAD}")
    rows = []
    for name, (agent, low, high, N) in AGENTS.items():
        returns = (np.array(played(name, agent, 2000 if runs > 2 else 5)) - low) / (high - low)

        def resampled(rng: np.random.Generator, n: int, returns: Reals = returns) -> Reals:
            return rng.choice(returns, n)

        mean, error = float(returns.mean()), float(returns.std()) / N**0.5
        means = np.random.default_rng(1).choice(returns, (2000, N)).mean(axis=1)
        for sign, right in ((-1.0, "above"), (1.0, "below")):
            bar = mean + sign * float(norm.ppf(0.85) + norm.ppf(1 - DELTA)) * error
            peer = float((sign * (bar - means) > norm.ppf(1 - DELTA) * error).mean())
            row = line((resampled, bar, N), (resampled, mean), runs, right)
            rows.append(show(f"{name}, {right}", {**row, "peer": peer}))
    return rows


def pairs(runs: int) -> list[Numbers]:
    """Two agents, the better one first, beside STEP."""
    rows = []
    for N in (200, 500) if runs > FEW else (200,):
        step = step_test(N)
        print(f"\n{'success A, B':<24}{'budget':>7}{'answered':>10}{'pairs':>8}{'STEP':>8}{'pairs':>8}")
        found = []
        for better, worse in PAIRS if runs > FEW else PAIRS[:3]:
            D = drawn(success(better), N, runs, 3) - drawn(success(worse), N, runs, 4)
            answered, used = share(ends(aimed(D, 1.0, True)), ends(aimed(-D, 1.0, True)), N)
            theirs = step(better, worse) if step else (math.nan, math.nan)
            row = {"budget": N, "aimed": answered, "pairs": used * N, "step": theirs[0], "step_pairs": theirs[1]}
            found.append(show_pair(f"{better}, {worse}", row))
        show_pair("mean", {name: float(np.mean([row[name] for row in found])) for name in found[0]})
        rows += found
    return rows


def show_pair(name: str, row: Numbers) -> Numbers:
    """Print a line of the table of pairs."""
    answered, used, step, step_used = (row[part] for part in ("aimed", "pairs", "step", "step_pairs"))
    print(f"{name:<24}{row['budget']:>7.0f}{answered:>10.3f}{used:>8.1f}{step:>8.3f}{step_used:>8.1f}", flush=True)
    return row


COINS = {"4 successes in 5": success(0.8), "1 success in 20": success(0.05)}


def intervals(runs: int) -> list[Numbers]:
    """Lengths of intervals, and how often they miss the mean."""
    print(f"\n{'returns':<24}{'budget':>7}{'exact':>8}{'aimed':>8}{'misses':>8}{'plain':>8}")
    asked = [*((name, draw, 120) for name, draw in COINS.items()), *((draw.__name__, draw, N) for draw, N in LAWS)]
    rows = []
    for name, draw, N in asked:
        sample = drawn(draw, 200_000, 1, 2026)
        mean, unit = float(sample.mean()), 2.0 * 1.96 * float(sample.std()) / N**0.5
        found: list[tuple[float, float, float, float]] = []
        for returns in drawn(draw, N, runs, 5):
            log, k = pt.LoggedEpisodes(None, returns, return_range=(0.0, 1.0)), int(returns.sum())
            aim, without = pt.value_interval(log, budget=N), pt.value_interval(log).width
            low, high = np.nan_to_num([stats.beta.ppf(0.025, k, N - k + 1), stats.beta.ppf(0.975, k + 1, N - k)])
            exact = (high - low) / unit if name in COINS else math.nan
            found.append((exact, aim.width / unit, float(mean not in aim), without / unit))
        row = dict(zip(("exact", "aimed", "misses", "plain"), np.mean(found, axis=0).tolist(), strict=True))
        print(
            f"{name:<24}{N:>7}{row['exact']:>8.2f}{row['aimed']:>8.2f}{row['misses']:>8.3f}{row['plain']:>8.2f}",
            flush=True,
        )
        rows.append({"budget": N, **row})
    return rows


def step_test(N: int) -> Callable[[float, float], tuple[float, float]] | None:
    """(how often STEP answers that A is better, its mean pairs) for two success rates; None if it is not installed.

    Its table has, for each number of pairs and of the successes of the one that is behind, the most successes of the
    other one at which it goes on, and then the chances of an answer with one more, two more, and so on.
    """
    name = "sequentialized_barnard_tests"
    if importlib.util.find_spec(name) is None:
        return None
    package: Any = importlib.import_module(name)
    test = package.MirroredStepTest(alternative=package.Hypothesis.P0LessThanP1, n_max=N, alpha=DELTA)
    test.load_existing_policy()
    rejects = np.zeros((N + 1, N + 1, N + 1), dtype=np.float32)  # [t, behind, ahead]
    for t in range(1, N + 1):
        for behind in range(min(t, len(test.policy[t]) - 1) + 1):
            most, *chances = np.atleast_1d(test.policy[t][behind])
            first = int(most) + 1
            rejects[t, behind, max(first, behind + 1) :] = 1.0
            rejects[t, behind, first : first + len(chances)] = chances[: max(N + 1 - first, 0)]
            rejects[t, behind, : behind + 1] = 0.0
    return lambda better, worse: _forward(rejects, better, worse)


@numba.njit(cache=False)
def _forward(rejects: Any, better: float, worse: float) -> Any:
    """(the probability that "the other one is better" is answered, the mean number of pairs)."""
    N = len(rejects) - 1
    mass, answered, used = np.zeros((N + 2, N + 2)), 0.0, 0.0  # [successes of the worse one, of the better one]
    mass[0, 0] = 1.0
    for t in range(1, N + 1):
        for x in range(t, -1, -1):
            for y in range(t, -1, -1):
                both = mass[x - 1, y - 1] if x > 0 and y > 0 else 0.0
                arrived = (1.0 - worse) * (1.0 - better) * mass[x, y] + worse * better * both
                arrived += worse * (1.0 - better) * mass[x - 1, y] if x > 0 else 0.0
                arrived += (1.0 - worse) * better * mass[x, y - 1] if y > 0 else 0.0
                ends = arrived * rejects[t, min(x, y), max(x, y)]
                mass[x, y] = arrived - ends
                used += t * ends
                answered += ends if y > x else 0.0
    return answered, used + N * mass.sum()


def tables(runs: int) -> list[Numbers]:
    """Rollouts of tasks that no setting was chosen on, on both sides, with a budget of transitions."""
    runs = max(runs // 25, 1)
    head = f"{'budget':>7}{'z test':>8}{'bet':>8}{'used':>7}{'plain':>8}{'used':>7}{'errs':>8}{'100 times':>11}"
    print(f"\n{'task, side':<32}{head}")
    rows = []
    for name, instance, N in asked_of_tables():
        gap = float(norm.ppf(0.85) + norm.ppf(1 - DELTA)) * math.sqrt(a_transition(instance) / N)
        value = float(pt.value(instance.task, instance.kernel))
        for sign, right in ((-1.0, "above"), (1.0, "below")):
            bar = value + sign * gap
            row: Numbers = {"budget": N, "peer": 0.85}
            for label, R, limits in (
                ("bet", bar, {"budget": N}),
                ("plain", bar, {"max_samples": N}),
                ("errs", value, {"budget": N}),
                ("ample", bar, {"budget": 100 * N}),
                ("free", bar, {}),
            ):
                seeds = range(runs if label in ("bet", "plain", "errs") else max(runs // 4, 1))
                sim = pt.TabularSimulator(instance.kernel)
                found = [pt.decide(instance.task, sim, R, DELTA, rng=seed, **limits) for seed in seeds]  # type: ignore[arg-type]
                row[label] = sum(one.answer == right for one in found) / len(found)
                row[f"used_{label}"] = sum(one.samples for one in found) / len(found) / N
            row["too much"] = row["used_ample"] / row["used_free"]
            numbers = "".join(f"{row[key]:>8.3f}{row['used_' + key]:>7.2f}" for key in ("bet", "plain"))
            shown = f"{N:>7}{0.85:>8}{numbers}{row['errs']:>8.3f}{row['too much']:>11.2f}"
            print(f"{name + ', ' + right:<32}{shown}", flush=True)
            rows.append(row)
    return rows


def asked_of_tables() -> list[tuple[str, pt.instances.Instance, int]]:
    """Five tasks, and their budgets."""
    import fewer_samples  # here, since it imports peers
    import path_tasks

    garnet, dense = (one for one in fewer_samples.held_out() if "grid" not in one.name)
    made = path_tasks.tasks()
    return [
        (garnet.name, garnet.instance, 10_000),
        (dense.name, dense.instance, 4_000),
        ("shop", fewer_samples.shop(), 8_000),
        *((name, made[name](), N) for name, N in (("random, 40 states", 6_000), ("two states pay, 30 steps", 12_000))),
    ]


def a_transition(instance: pt.instances.Instance) -> float:
    """The variance of the mean of plain rollouts with the true values, times the transitions that they draw."""
    task, p = instance.task, np.asarray(instance.kernel)
    pi, r, unknown = task.policy, np.asarray(task.rewards), ~task.known_rows
    r = np.broadcast_to(r if r.ndim == 3 else r[:, :, None], p.shape)
    V = np.atleast_2d(pt.state_values(task, p))
    after = np.vstack([V[1:], np.zeros_like(V[:1])]) if task.horizon else V
    visits = [task.initial] if task.horizon else [pt.occupancy(task, p)]
    while len(visits) < len(V):
        visits.append(np.einsum("s,sa,sax->x", visits[-1], pi, p))
    draws = variance = 0.0
    for d, now, then in zip(visits, V, after, strict=True):
        draws += float(np.einsum("s,sa,sa->", d, pi, unknown))
        squares = np.einsum("s,sa,sax,sax->", d, pi, p, (r + task.discount * then - now[:, None, None]) ** 2)
        variance += float(squares)
    return draws * variance


PARTS = {
    "bars": bars,
    "laws": laws,
    "environments": environments,
    "pairs": pairs,
    "intervals": intervals,
    "tables": tables,
}


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description="What a budget is worth")
    parser.add_argument("--part", nargs="*", choices=PARTS, default=list(PARTS))
    parser.add_argument("--runs", type=int, default=5000)
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = {part: PARTS[part](FEW if given.small else given.runs) for part in given.part}
    if given.json is not None:
        given.json.write_text(json.dumps(found))


if __name__ == "__main__":
    main()
