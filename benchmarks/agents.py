"""Which of several agents is best: runs until it is named, beside AdaStop and one look at the end; and the errors.

python benchmarks/agents.py            # some minutes; AdaStop too, where it is installed (pip install adastop)
python benchmarks/agents.py --small    # a quick run of every part, used by the tests
python benchmarks/agents.py --json F   # also write the numbers to a file

*Three algorithms*, each trained up to 30 times: scores in [0, 1], normal with standard deviation 0.12 and cut at the
ends, or 0 and 1, or good but for a rare disaster. What each promises:

    identify   the named one is not the best: probability at most delta, for all laws on [0, 1], wherever one stops;
               with a budget of 90 runs in all, or without one and cut there
    AdaStop    a difference is declared between two algorithms with the same law: probability at most delta for all
               pairs together (family-wise, by permutations), at up to 6 looks after 5 runs of each, fixed beforehand;
               "best" here if it is declared larger than both others
    one look   Welch's t-test of the leader against each other one at delta/2, after all 90 runs; approximate

*Five agents* that share luck, of unequal gaps: how many episodes the elimination saves.

*Errors*: ten agents, one of them better by nothing that can be seen. Thrown out is the best one in at most the share
delta of runs; a leader that has seen the round, and pairs without a correction, are controls that must fail.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import math
import platform
import warnings
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from scipy import stats

from policytest.payoffs.rounds import Round, RoundSupply
from policytest.questions.identify.elimination import Elimination

DELTA, SD, MOST = 0.05, 0.12, 30
ALGORITHMS: dict[str, tuple[float, ...]] = {
    "normal, one far behind": (0.30, 0.50, 0.62),
    "normal, one far ahead": (0.30, 0.40, 0.70),
    "normal, a close race": (0.40, 0.50, 0.56),
    "normal, two tied": (0.40, 0.55, 0.55),
    "successes": (0.20, 0.40, 0.90),
    "a rare disaster": (0.30, 0.50, 0.495),
}
DISASTER = 0.1  # the probability of a score of 0, where it is 0.55 otherwise
GAPS = (0.30, 0.45, 0.52, 0.58, 0.60)
TIED, ERROR = 10, 0.1  # agents, and the delta at which errors are counted


class Table(RoundSupply):
    """The rows of a table [n, K] of outcomes in [0, 1]."""

    def __init__(self, table: np.ndarray) -> None:
        self.table, self.at, self.bounds = table, 0, [(0.0, 1.0)] * table.shape[1]

    def take(self, agents: Sequence[int], most: int) -> Round | None:
        """The next row, of these agents."""
        if self.at == len(self.table):
            self.exhausted = True
            return None
        found = np.full(self.table.shape[1], np.nan)
        found[list(agents)] = self.table[self.at, list(agents)]
        self.at += 1
        return Round.of(found)


def scores(means: Sequence[float], n: int, seed: int, luck: float = 0.0) -> np.ndarray:
    """[n, K] outcomes; ``luck`` is the standard deviation of what all agents of a round share."""
    rng = np.random.default_rng(seed)
    shared = luck * rng.standard_normal((n, 1))
    return np.clip(np.array(means) + shared + SD * rng.standard_normal((n, len(means))), 0.0, 1.0)


def algorithms(case: str, seed: int) -> np.ndarray:
    """[n, 3] the scores of a case."""
    means, n = ALGORITHMS[case], 3 * MOST
    if case == "successes":
        return (np.random.default_rng(seed).random((n, len(means))) < means).astype(float)
    found = scores(means, n, seed)
    if case == "a rare disaster":
        found[:, 2] = np.where(np.random.default_rng([seed, 1]).random(n) < DISASTER, 0.0, 0.55)
    return found


def searched(table: np.ndarray, delta: float = DELTA, budget: int | None = None, most: int = 10**9) -> Elimination:
    """The search among these agents."""
    found = Elimination(Table(table), delta, budget=budget)
    for _ in found.go(most):
        pass
    return found


# ---------------------------------------------------------------- three algorithms


def by_budget(table: np.ndarray, seed: int) -> tuple[int | None, int]:
    """Who is named, and after how many runs."""
    found = searched(table, budget=MOST * table.shape[1])
    return (found.leader if found.answered else None), found.outcomes


def without_budget(table: np.ndarray, seed: int) -> tuple[int | None, int]:
    """The same by steady bets, cut where the budget would be used up."""
    found = searched(table, most=MOST * table.shape[1])
    return (found.leader if found.answered else None), found.outcomes


def one_look(table: np.ndarray, seed: int) -> tuple[int | None, int]:
    """Welch's t-test after all runs."""
    at = table[:MOST]
    best, K = int(at.mean(axis=0).argmax()), table.shape[1]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scores that do not vary
        others = [stats.ttest_ind(at[:, best], at[:, j], equal_var=False).pvalue for j in range(K) if j != best]
    return (best if max(others) <= DELTA / (K - 1) else None), at.size


def adastop(table: np.ndarray, seed: int) -> tuple[int | None, int]:
    """AdaStop with 6 looks after 5 runs of each; who is declared larger than all others."""
    MultipleAgentsComparator = importlib.import_module("adastop").MultipleAgentsComparator
    test = MultipleAgentsComparator(n=5, K=MOST // 5, B=1000, alpha=DELTA, seed=seed)
    K = table.shape[1]
    runs = [0] * K
    while not test.is_finished:
        compared = range(K) if test.k == 0 else {int(i) for i in np.ravel(test.current_comparisons)}
        for i in compared:
            runs[i] = 5 * (test.k + 1)
        test.partial_compare({f"{i}": table[: runs[i], i] for i in range(K)}, verbose=False)
    said = {tuple(int(i) for i in pair): test.decisions[str(pair)] for pair in test.comparisons}
    for best in range(K):
        won = [said[best, j] == "larger" if best < j else said[j, best] == "smaller" for j in range(K) if j != best]
        if all(won):
            return best, sum(runs)
    return None, sum(runs)


def three_algorithms(runs: int) -> list[dict[str, Any]]:
    """How often each names the best, or another one, and after how many runs."""
    methods = {"identify, budget 90": by_budget, "identify": without_budget, "one look": one_look}
    if importlib.util.find_spec("adastop"):
        methods["AdaStop"] = adastop
    rows = []
    for case, means in ALGORITHMS.items():
        for name, method in methods.items():
            found = [method(algorithms(case, seed), seed) for seed in range(runs)]
            named = [means[best] for best, _ in found if best is not None]
            rows.append(
                {
                    "case": case,
                    "method": name,
                    "right": sum(mean == max(means) for mean in named) / runs,
                    "wrong": sum(mean < max(means) for mean in named),
                    "runs": float(np.mean([used for _, used in found])),
                }
            )
    return rows


# ---------------------------------------------------------------- unequal gaps


def unequal_gaps(runs: int) -> dict[str, Any]:
    """Episodes until the best of five is named, and where they went; beside rounds of all agents to the end."""
    found = [searched(scores(GAPS, 5000, seed, luck=0.1)) for seed in range(runs)]
    counts = np.mean([search.counts for search in found], axis=0)
    return {
        "episodes": counts.tolist(),
        "total": float(counts.sum()),
        "everybody": float(np.mean([len(search.rounds) * len(GAPS) for search in found])),
        "wrong": sum(search.leader != len(GAPS) - 1 for search in found),
    }


# ---------------------------------------------------------------- errors


class Peeking(Elimination):
    """The control: the leader of a round is the one that was best in it."""

    def settle(self, seen: Round) -> None:
        """With a leader that has seen the round."""
        self.peeked = seen.returns
        super().settle(seen)

    def _first(self, agents: Sequence[int]) -> int:
        peeked = getattr(self, "peeked", None)
        return super()._first(agents) if peeked is None else max(agents, key=lambda i: float(peeked[i]))


def thrown_out(kind: type[Elimination], runs: int, rounds: int) -> int:
    """In how many runs the first of many agents, all as good, is thrown out."""
    found = 0
    for seed in range(runs):
        search = kind(Table((np.random.default_rng(seed).random((rounds, TIED)) < 0.5).astype(float)), ERROR)
        for _ in search.go(10**9):
            pass
        found += 0 not in search.left
    return found


def thrown_out_by_pairs(runs: int, rounds: int) -> int:
    """The same where each other agent has a comparison of its own with the first, at delta without a correction."""
    found = 0
    for seed in range(runs):
        table = (np.random.default_rng(seed).random((rounds, TIED)) < 0.5).astype(float)
        pairs = (searched(table[:, [0, j]], ERROR) for j in range(1, TIED))
        found += any(0 not in search.left for search in pairs)
    return found


def errors(runs: int, rounds: int) -> list[dict[str, Any]]:
    """How often, and the probability of so often if it were at most delta."""
    counted = {
        "identify": thrown_out(Elimination, runs, rounds),
        "the leader has seen the round (control)": thrown_out(Peeking, runs, rounds),
        "pairs without a correction (control)": thrown_out_by_pairs(runs, rounds),
    }
    return [
        {"rule": rule, "thrown out": count, "runs": runs, "p": float(stats.binom.sf(count - 1, runs, ERROR))}
        for rule, count in counted.items()
    ]


def main() -> None:
    """All parts."""
    parser = argparse.ArgumentParser(description="Which of several agents is best.")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--json", metavar="FILE")
    arguments = parser.parse_args()
    few = arguments.small
    print(f"Python {platform.python_version()}, {platform.machine()}, {date.today().isoformat()}, delta = {DELTA}")
    numbers: dict[str, Any] = {"three": three_algorithms(4 if few else 100)}
    print("\n| scores | method | names the best | another | mean runs |\n|---|---|---|---|---|")
    for row in numbers["three"]:
        means = ", ".join(map(str, ALGORITHMS[row["case"]]))
        print(f"| {row['case']}: {means} | {row['method']} | {row['right']:.0%} | {row['wrong']} | {row['runs']:.0f} |")
    numbers["gaps"] = gaps = unequal_gaps(2 if few else 20)
    print(f"\nmeans {GAPS}: episodes of each " + ", ".join(f"{count:.0f}" for count in gaps["episodes"]))
    print(f"{gaps['total']:.0f} in all, {gaps['everybody']:.0f} if nobody left, {gaps['wrong']} wrong")
    numbers["errors"] = errors(*((12, 30) if few else (100, 200)))
    print(f"\n{TIED} agents as good as each other, delta = {ERROR}: the first is thrown out")
    for row in numbers["errors"]:
        print(f"{row['rule']:<42} {row['thrown out']} of {row['runs']}")
    if arguments.json:
        finite = json.dumps(numbers, default=lambda x: None if math.isnan(x) else float(x))
        Path(arguments.json).write_text(finite, encoding="utf-8")


if __name__ == "__main__":
    main()
