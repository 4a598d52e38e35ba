"""Recorded episodes: do their intervals and answers hold as often as they say, and how wide are the intervals?

    python benchmarks/propensities.py            # full size (part of `make calibrate`)
    python benchmarks/propensities.py --small    # a few logs of each kind, used by the tests
    python benchmarks/propensities.py --json F   # also write the numbers to a file

*Bandits:* logs of 10 actions whose weights reach 50, delta = 0.1. Coverage over time: the share of logs of which the
interval misses the value at any of some twenty looks, at most delta. Widths: beside the confidence sequences of
`vw-estimators` (`estimators.bandits.cs`), where that package is installed.

*Episodes:* five steps of a process that remembers. At V = R the share of wrong answers of each side is at most delta.
The control, propensities that were filled in after the reward was seen, must fail.

*A bound of propensities:* bandits with a rare action, 1,000 rows, V = R. The true bound gives wrong answers with
probability at most delta on each side; a bound that the log contradicts is refused. The control must fail: the smallest
propensity in the log as the bound. Of two actions the propensity of one tells that of the other, and such a bound is
refused if the rare action was not drawn; of three it is not.

*One look:* nominal 95%, at a look fixed beforehand.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import policytest as pt
from policytest._base.arrays import FloatArray
from policytest.methods.episode_log_betting import EpisodeLogBetting

DELTA, ACTIONS, ROWS = 0.1, 10, 1000


class Bandit(NamedTuple):
    """Rows of a contextual bandit, and the value of the target policy."""

    reward: FloatArray
    propensity: FloatArray
    target: FloatArray
    q: FloatArray
    v: FloatArray
    value: float


def bandit(rng: np.random.Generator, rows: int) -> Bandit:
    """Two contexts; a logging policy that mostly plays one action; a target that mostly plays another."""
    mean = np.array([np.linspace(0.2, 0.8, ACTIONS), np.linspace(0.7, 0.3, ACTIONS)])
    mu, pi = np.full((2, ACTIONS), 0.02), np.full((2, ACTIONS), 0.01)
    mu[0, 2], mu[1, 7] = 0.82, 0.82
    pi[0, 2], pi[0, 7], pi[1, 7], pi[1, 1] = 0.4, 0.52, 0.92, 0.0
    pi[1] /= pi[1].sum()
    pi[0, 9] = 1.0 - pi[0, :9].sum()
    context = (rng.random(rows) < 0.3).astype(int)
    action = np.array([rng.choice(ACTIONS, rows, p=mu[c]) for c in (0, 1)])[context, np.arange(rows)]
    reward = (rng.random(rows) < mean[context, action]).astype(float)
    guess = np.clip(mean + np.array([0.05, -0.05])[:, None], 0, 1)
    value = float(np.array([0.7, 0.3]) @ (pi * mean).sum(axis=1))
    at = context, action
    return Bandit(reward, mu[at], pi[at], guess[at], (pi * guess).sum(axis=1)[context], value)


def as_log(found: Bandit, kind: str, rows: int | None = None) -> pt.LoggedEpisodes:
    """The first rows as a log: with weights alone, with a bound of them, or with critics."""
    more: dict[str, Any] = {"smallest_propensity": 0.02} if kind != "weights" else {}
    more |= {"q": found.q[:rows], "v": found.v[:rows]} if kind == "critics" else {}
    columns = found.reward[:rows], found.propensity[:rows], found.target[:rows]
    return pt.LoggedEpisodes(None, *columns, reward_range=(0, 1), **more)


def episodes(rng: np.random.Generator, count: int, after_the_fact: bool = False) -> tuple[pt.LoggedEpisodes, float]:
    """Five steps; a reward depends on this action and the one before; V = 2.4875.

    ``after_the_fact``: propensities of rewarded actions are filled in 20% smaller, when the reward is known.
    """
    H, mu, pi = 5, 0.5, 0.65
    action = rng.random((count, H)) < mu
    before = np.concatenate([np.zeros((count, 1), dtype=bool), action[:, :-1]], axis=1)
    reward = (rng.random((count, H)) < 0.3 + 0.3 * action + 0.15 * (action & before)).astype(float)
    propensity = np.full((count, H), 0.5) * np.where(after_the_fact & (reward > 0), 0.8, 1.0)
    target = np.where(action, pi, 1.0 - pi)
    value = H * (0.3 + 0.3 * pi) + (H - 1) * 0.15 * pi * pi
    ids = np.repeat(np.arange(count), H)
    columns = reward.ravel(), propensity.ravel(), target.ravel()
    return pt.LoggedEpisodes(ids, *columns, horizon=H, reward_range=(0, 1)), value


class Rare(NamedTuple):
    """Logging and target probabilities and mean rewards of actions, and the bound; None: the smallest in the log."""

    mu: tuple[float, ...]
    pi: tuple[float, ...]
    mean: tuple[float, ...]
    bound: float | None


ONE_RARE, TWO, THREE = (0.05, 0.95), (0.001, 0.999), (0.0005, 0.45, 0.5495)
BOUNDS = {
    "0.05, true": Rare(ONE_RARE, (1, 0), (0.5, 0), 0.05),
    "0.5, where 0.05 is true": Rare(ONE_RARE, (1, 0), (0.5, 0), 0.5),
    "0.9, where 0.05 is true": Rare(ONE_RARE, (1, 0), (0.5, 0), 0.9),
    "0.001, true, two actions": Rare(TWO, (0.5, 0.5), (0, 0.5), 0.001),
    "the smallest in the log, two actions": Rare(TWO, (0.5, 0.5), (0, 0.5), None),
    "0.0005, true, three actions": Rare(THREE, (0.3, 0.7, 0), (0, 0.8, 0.8), 0.0005),
    "control: the smallest in the log, three actions": Rare(THREE, (0.3, 0.7, 0), (0, 0.8, 0.8), None),
}


def with_a_bound(logs: int, about: Rare) -> tuple[float, float, float]:
    """The shares of logs with the answers "above" and "below", where V = R, and of those that are refused."""
    rng, found = np.random.default_rng(17), []
    mu, pi, mean = map(np.array, about[:3])
    for _ in range(logs):
        action = rng.choice(len(mu), ROWS, p=mu)
        reward, propensity = (rng.random(ROWS) < mean[action]).astype(float), mu[action]
        bound = float(propensity.min()) if about.bound is None else about.bound
        about_log: dict[str, Any] = {"reward_range": (0, 1), "smallest_propensity": bound}
        try:
            log = pt.LoggedEpisodes(None, reward, propensity, pi[action], **about_log)
            found.append(pt.assess(log, threshold=float(pi @ mean), delta=DELTA).answer)
        except pt.InputError:
            found.append("refused")
    return found.count("above") / logs, found.count("below") / logs, found.count("refused") / logs


def own_returns(rng: np.random.Generator, count: int) -> tuple[pt.LoggedEpisodes, float]:
    """Skewed returns of the policy itself, V = 1/6."""
    return pt.LoggedEpisodes(None, rng.beta(0.5, 2.5, count), return_range=(0, 1)), 1.0 / 6.0


def misses_over_time(log: pt.LoggedEpisodes, value: float) -> bool:
    """Whether some interval on the way misses the value: exactly when the capital against it reaches 2/delta."""
    run = EpisodeLogBetting().replay(log, value, for_interval=True)
    run.step(math.inf, len(log))
    largest = [side.settled(as_staked=False, along=True).log_capital(0.0) for side in run.bets]
    return bool(max(largest) >= math.log(2.0 / DELTA))


def wrong_answers(logs: int, count: int, after_the_fact: bool) -> tuple[float, float]:
    """The shares of logs with the answers "above" and "below", where V = R."""
    rng, found = np.random.default_rng(11), []
    warnings.simplefilter("ignore", pt.AssumptionWarning)  # of weights that average more than 1
    for _ in range(logs):
        log, value = episodes(rng, count, after_the_fact)
        found.append(pt.assess(log, threshold=value, delta=DELTA).answer)
    return found.count("above") / logs, found.count("below") / logs


def peer(found: Bandit, looks: list[int]) -> list[float] | None:
    """The widths of the confidence sequence of vw-estimators; None where it is not installed."""
    try:
        Interval = importlib.import_module("estimators.bandits.cs").Interval
    except ImportError:
        return None
    interval, widths = Interval(0, 1), []
    for row in range(looks[-1]):
        interval.add_example(found.propensity[row], found.reward[row], found.target[row])
        if row + 1 in looks:
            low, high = interval.get(DELTA)
            widths.append(high - low)
    return widths


def widths(rows: int, logs: int) -> dict[str, list[float]]:
    """Mean widths of intervals at some numbers of rows."""
    looks = [rows // 100, rows // 10, rows]
    found: dict[str, list[list[float]]] = {}
    for seed in range(logs):
        data = bandit(np.random.default_rng(seed), rows)
        for kind in ("weights", "bound", "critics"):
            ends = [pt.value_interval(as_log(data, kind, n), delta=DELTA) for n in looks]
            found.setdefault(kind, []).append([end.width for end in ends])
        theirs = peer(data, looks)
        if theirs is not None:
            found.setdefault("vw-estimators", []).append(theirs)
    return {kind: np.mean(rows_of, axis=0).round(4).tolist() for kind, rows_of in found.items()}


def main() -> None:
    """The tables."""
    parser = argparse.ArgumentParser(description="Recorded episodes with and without propensities")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    logs, rows, looked = (20, 1000, 40) if given.small else (1000, 100_000, 2000)
    table: dict[str, Any] = {"logs": logs, "rows": rows, "delta": DELTA}
    print(f"bandits, {rows:,} rows, {logs} logs: share of logs whose interval ever misses, nominal {DELTA:g}")
    for kind in ("weights", "bound", "critics"):
        data = (bandit(np.random.default_rng(1000 + seed), rows) for seed in range(logs))
        table[f"misses, {kind}"] = sum(misses_over_time(as_log(one, kind), one.value) for one in data) / logs
        print(f"  {kind:<16}{table[f'misses, {kind}']:.3f}", flush=True)
    table["widths"] = widths(rows, 2 if given.small else 5)
    print(f"mean widths after {rows // 100:,}, {rows // 10:,} and {rows:,} rows")
    for kind, found in table["widths"].items():
        print(f"  {kind:<16}" + "".join(f"{width:>9.4f}" for width in found))
    if "vw-estimators" not in table["widths"]:
        print("  vw-estimators is not installed, and is left out")
    for name, after in (("episodes at V = R", False), ("control: propensities after the fact", True)):
        above, below = table[name] = wrong_answers(logs, 200 if given.small else 1000, after)
        print(f"{name}: answered above {above:.3f}, below {below:.3f}, nominal {DELTA:g} each", flush=True)
    print(f"bounds of propensities at V = R, {ROWS:,} rows: answered above, below, refused; nominal {DELTA:g} each")
    for name, about in BOUNDS.items():
        table[f"bound {name}"] = with_a_bound(logs, about)
        print(f"  {name:<50}" + "".join(f"{share:>8.3f}" for share in table[f"bound {name}"]), flush=True)
    for name, make, count in (("returns", own_returns, 100), ("weighted episodes", episodes, 300)):
        rng, hits = np.random.default_rng(5), 0
        for _ in range(looked):
            log, value = make(rng, count)
            hits += value in pt.value_interval(log, looks="one")
        table[f"one look, {name}"] = hits / looked
        print(f"one look, {count} {name}: covers {hits / looked:.3f}, nominal 0.95", flush=True)
    if given.json is not None:
        given.json.write_text(json.dumps(table))


if __name__ == "__main__":
    main()
