"""Do large-sample answers keep what they say, at all times at once, and what do they cost?

    python benchmarks/large_sample.py            # full size (part of `make calibrate`, some minutes)
    python benchmarks/large_sample.py --small    # a small set, used by the tests
    python benchmarks/large_sample.py --json F   # also write the numbers to a file
    python benchmarks/large_sample.py --part choose    # how the settings were chosen, on other distributions

*Coverage*: the share of runs whose 95% interval contains the mean at every moment at which it speaks, from episode 30
to the last; and how often "above" and "below" are ever answered, each at delta = 0.05, with the threshold at the mean.
Five distributions, for which between 93 and 100% is asked, then more skewed ones, which are only shown. The control is
the usual t interval, looked at after every episode: it must fail.

*Power*: mean episodes to an answer at a gap of so many standard deviations, beside `ReturnBetting`, which knows the
range; and the number that a z-test with one look, fixed beforehand, needs to find the answer with probability 0.9.

Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy

import policytest as pt
from policytest.eprocess.large_sample import FEWEST, RAREST, SKEWED, AnyTime, Look, ShapeSoFar, speaks

DELTA, LEAST = 0.05, 0.93
Draw = Callable[[np.random.Generator, int], Any]


@dataclass(frozen=True)
class Law:
    """A distribution of returns, and its mean."""

    name: str
    mean: float
    draw: Draw


def lognormal(sigma: float) -> Law:
    """With this standard deviation of the logarithm."""
    return Law(f"lognormal, {sigma:g}", math.exp(sigma**2 / 2), lambda rng, n: rng.lognormal(0.0, sigma, n))


def two_point(p: float) -> Law:
    """1 with this probability, else 0."""
    return Law(f"two-point, {p:g}", p, lambda rng, n: (rng.random(n) < p) * 1.0)


FIVE = (
    Law("normal", 0.0, lambda rng, n: rng.normal(size=n)),
    Law("uniform", 0.5, lambda rng, n: rng.random(n)),
    two_point(0.02),
    lognormal(1.0),
    Law("t, 3 degrees", 0.0, lambda rng, n: rng.standard_t(3, n)),
)
SKEWED_ONES = (
    lognormal(1.5),
    lognormal(2.0),
    Law("Pareto, 2.5", 1 / 1.5, lambda rng, n: rng.pareto(2.5, n)),
    Law(
        "rare failure",
        -1.9,
        lambda rng, n: np.where(rng.random(n) < 0.02, -95.0, 0.0) + rng.normal(size=n),
    ),
)
OTHERS = (
    Law("gamma, 0.5", 0.5, lambda rng, n: rng.gamma(0.5, size=n)),
    Law("-gamma, 0.2", -0.2, lambda rng, n: -rng.gamma(0.2, size=n)),
    Law("beta, 0.3, 0.9", 0.25, lambda rng, n: rng.beta(0.3, 0.9, n)),
    Law(
        "mixture",
        0.25,
        lambda rng, n: np.where(rng.random(n) < 0.05, rng.normal(5.0, 2.0, n), rng.normal(0.0, 1.0, n)),
    ),
    Law("three values", 0.48, lambda rng, n: rng.choice([0.0, 1.0, 20.0], n, p=[0.9, 0.08, 0.02])),
    Law("Weibull, 0.5", 2.0, lambda rng, n: rng.weibull(0.5, n)),
    Law("Laplace", 0.0, lambda rng, n: rng.laplace(size=n)),
)


def evidence_at(law: Law, rng: np.random.Generator, n: int) -> tuple[Any, Any, Any]:
    """(both sides' evidence at the mean [2, n], where it speaks [n], the plain t-statistic [n]) of one run."""
    x = law.draw(rng, n)
    shape, sums = ShapeSoFar().after(x)
    look = Look(AnyTime(), x, shape, sums)
    t = np.sqrt(shape.n) * (shape.mean - law.mean) / np.where(shape.sd > 0, shape.sd, np.inf)
    return look.evidence(law.mean), speaks(AnyTime(), shape), t


def coverage(law: Law, runs: int, n: int, seed: int) -> dict[str, Any]:
    """How often it misses, and from when on it speaks."""
    one, both, looks = -math.log(DELTA), -math.log(DELTA / 2), np.arange(n) + 1
    quantile = -scipy.special.stdtrit(np.maximum(looks - 1.0, 1.0), DELTA / 2)
    missed, above, below, control, first = 0, 0, 0, 0, []
    for run in range(runs):
        found, told, t = evidence_at(law, np.random.default_rng([seed, run]), n)
        missed += bool((found >= both).any())
        above += bool((found[0] >= one).any())
        below += bool((found[1] >= one).any())
        control += bool((np.abs(t) > quantile)[FEWEST - 1 :].any())
        first.append(int(told.argmax()) + 1 if told.any() else n)
    return {
        "law": law.name,
        "covered": 1 - missed / runs,
        "above": above / runs,
        "below": below / runs,
        "control": 1 - control / runs,
        "speaks": float(np.median(first)),
    }


def print_coverage(rows: list[dict[str, Any]]) -> None:
    """As a table."""
    print(f"{'returns':<18} {'covered':>8} {'above':>7} {'below':>7} {'speaks from':>12} {'t interval':>11}")
    for row in rows:
        print(
            f"{row['law']:<18} {row['covered']:>8.1%} {row['above']:>7.1%} {row['below']:>7.1%} "
            f"{row['speaks']:>12.0f} {row['control']:>11.1%}"
        )


def choose(runs: int, n: int, seed: int) -> list[dict[str, Any]]:
    """Wrong answers of the worse side, with T as it is and corrected, for several rules of silence."""
    rows = []
    for law in OTHERS:
        row: dict[str, Any] = {"law": law.name}
        for run in range(runs):
            x = law.draw(np.random.default_rng([seed, run]), n)
            shape, _ = ShapeSoFar().after(x)
            plain = np.sqrt(shape.n) * (shape.mean - law.mean) / np.where(shape.sd > 0, shape.sd, np.inf)
            kinds = {"T": np.array([plain, -plain]), "H": shape.standardised(law.mean)}
            for kind, T in kinds.items():
                found = AnyTime().evidence(T, np.broadcast_to(shape.n, T.shape))
                for factor in (0, 10, SKEWED, 40):
                    told = (shape.n >= FEWEST) & (shape.rarer >= RAREST) & (shape.n >= factor * shape.skewness**2)
                    wrong = (np.where(told, found, 0.0) >= -math.log(DELTA)).any(axis=1)
                    row.setdefault(f"{kind} {factor:g}", np.zeros(2))
                    row[f"{kind} {factor:g}"] += wrong / runs
        rows.append({key: value if key == "law" else float(value.max()) for key, value in row.items()})
    names = [key for key in rows[0] if key != "law"]
    print(f"{'wrong answers':<18} " + " ".join(f"{name:>7}" for name in names))
    for row in rows:
        print(f"{row['law']:<18} " + " ".join(f"{row[name]:>7.1%}" for name in names))
    return rows


def power(gap: float, runs: int, most: int) -> dict[str, Any]:
    """Mean episodes to the right answer, with uniform returns and the threshold ``gap`` standard deviations below."""
    threshold = 0.5 - gap / math.sqrt(12.0)
    once = math.ceil(((scipy.special.ndtri(1 - DELTA) + scipy.special.ndtri(0.9)) / gap) ** 2)
    ranged = pt.Episodes(lambda rng: rng.random(), return_range=(0, 1))
    row: dict[str, Any] = {"gap": gap, "z-test, one look": once}
    for name, method in (("large sample", pt.LargeSample()), ("betting, range known", pt.ReturnBetting())):
        found = [
            pt.decide(ranged, threshold=threshold, delta=DELTA, method=method, rng=s, max_samples=most)
            for s in range(runs)
        ]
        row[name] = float(np.mean([verdict.samples for verdict in found]))
        row[f"{name}, not answered"] = sum(verdict.answer is None for verdict in found)
    one = [
        pt.decide(
            ranged, threshold=threshold, delta=DELTA, method=pt.LargeSample("one"), rng=s, budget=max(once, FEWEST)
        )
        for s in range(runs)
    ]
    row["large sample, one look: found"] = sum(verdict.answer == "above" for verdict in one) / runs
    return row


def main() -> int:
    """Measure, print, and compare with what is asked."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="few and short runs")
    parser.add_argument("--part", choices=("all", "coverage", "power", "choose"), default="all")
    parser.add_argument("--runs", type=int, help="of each distribution")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", help="write the numbers to this file")
    given = parser.parse_args()
    warnings.simplefilter("ignore", pt.AssumptionWarning)
    runs, n = (60, 600) if given.small else (given.runs or 1_000, 10_000)
    found: dict[str, Any] = {}
    problems: list[str] = []
    if given.part in ("all", "coverage"):
        five = [coverage(law, runs, n, given.seed) for law in FIVE]
        print_coverage(five)
        print("\nMore skewed:")
        more = [coverage(law, runs, n, given.seed) for law in SKEWED_ONES[: 1 if given.small else None]]
        print_coverage(more)
        found |= {"five": five, "skewed": more}
        slack = 3.0 * math.sqrt(LEAST * (1 - LEAST) / runs) if given.small else 0.0
        problems += [f"{row['law']}: covered in {row['covered']:.1%}" for row in five if row["covered"] < LEAST - slack]
        problems += [f"{row['law']}: the control did not fail" for row in five if row["control"] > LEAST - 0.1]
    if given.part in ("all", "power"):
        gaps, tests = ((0.5,), 10) if given.small else ((0.1, 0.2, 0.5), 100)
        rows = [power(gap, tests, 100_000) for gap in gaps]
        print()
        for row in rows:
            print(", ".join(f"{name}: {value:,.4g}" for name, value in row.items()))
        found["power"] = rows
    if given.part == "choose":
        found["choose"] = choose(runs, n, given.seed + 1_000)
    if given.json:
        with open(given.json, "w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)
    for problem in problems:
        print(f"NOT AS IT SHOULD BE: {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
