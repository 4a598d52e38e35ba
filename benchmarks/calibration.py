"""Is delta kept? Error frequencies where they are largest: the value just on one side of the threshold.

    python benchmarks/calibration.py            # full size (`make calibrate`, some minutes)
    python benchmarks/calibration.py --small    # a small set, used by the tests
    python benchmarks/calibration.py --json F   # also write the numbers to a file

Each row counts wrong answers over seeded runs of a limited length. The alarm is the exact binomial tail: the
probability of at least so many errors if each had probability delta. Below one in a million it is raised. There are
two controls, which must raise the alarm: the KL rule without its dimension term, and bets made as if the range of a
rollout were a quarter of what it is, where rewards are rare and large. Rows "ball" count runs in which the true kernel
ever left the confidence ball, looked at after every sample. Rows "A - B" compare two policies that are as good, to a
part in a million, and rows "best" seek the best of policies that are nearly as good; their control, "too little", pays
nothing for unknown rows and asks for a tenth of the evidence. Rows "log" bet on logs whose rule changes its actions and
ends the log because of what it saw; their control, "left out", are logs in which some bad rows are missing.

Exit code 1 if anything is not as it should be.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
from scipy.optimize import brentq
from scipy.stats import binom

import policytest as pt
from policytest._base.compiled import evidence
from policytest.eprocess.strategies import ONE_POLICY
from policytest.kl.boundaries import Terms
from policytest.methods.ptst_difference import kl_comparison
from policytest.methods.td_betting import rollouts_of
from policytest.methods.td_run import TDRun
from policytest.payoffs.draws import Supply
from policytest.questions.identify.kl_search import Deviations, KLSearch
from policytest.questions.identify.policies import task_of_all_pairs
from policytest.questions.recorded import recorded

local = partial(pt.PTST, solver=pt.ProjectionFree())  # the rule itself; a proof costs samples and time

DELTA, ALARM, NEAR = 0.1, 1e-6, 1e-6
RARE, AT_ONCE = ("betting", "range too small"), "8 at once"
LARGE_FIRST = np.log(0.1 ** np.arange(len(ONE_POLICY.steady)) * 0.9)  # weights of bets, for the control


@dataclass(frozen=True)
class WithoutDimension:
    """The control: stop at log(1/delta), as if looking at every sample and not knowing the rows cost nothing."""

    def terms(self, widths: Any, n_states: int) -> Terms:
        """The paper's boundary, its dimension set to 0."""
        return Terms(evidence.PAPER, np.zeros(1), np.zeros(len(widths)))


def instances(small: bool) -> dict[str, Any]:
    """Asymmetric ones, small enough that a run decides something within its limit."""
    chosen = {
        "two states": pt.instances.random(3, 2, 1, discount=0.5),
        "paper 2x2": pt.instances.paper(2),
        "sparse rows": pt.instances.random(5, 4, 1, successors=2, discount=0.8),
        "rare rewards": rare_rewards(),
    }
    return {name: chosen[name] for name in (["two states", "sparse rows", "rare rewards"] if small else chosen)}


def rare_rewards() -> Any:
    """From the first state, with probability 0.02, to a second one with a large reward, and back."""
    task = pt.Task([[0.0], [100.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5)
    return pt.instances.Instance(task, np.array([[[0.98, 0.02]], [[0.9, 0.1]]]))


class OverconfidentRun(TDRun):
    """Betting with a quarter of the range."""

    def step(self, required: float, most: int) -> None:
        """Settle the bets anew, with the wrong range."""
        super().step(np.inf, most)
        for process, answer in zip(self.bets, ("above", "below"), strict=True):
            gains = [np.zeros(0), *(segment.won / segment.bet.room for segment in process.segments)]
            factors = np.maximum(1.0 + 4.0 * np.outer(ONE_POLICY.steady, np.concatenate(gains)), 1e-6)
            capital = np.logaddexp.reduce(np.log(factors).cumsum(axis=1) + LARGE_FIRST[:, None], axis=0)
            if (capital >= required).any():
                self.answer = answer


class Overconfident(pt.TDBetting):
    """The control for betting: as if S never fell below -L/4 (losses beyond that leave one part in a million)."""

    def _run(self, task: Any, threshold: float, supply: Supply, *sides: Any) -> OverconfidentRun:
        return OverconfidentRun(self, rollouts_of(task, threshold, supply), *sides)


@dataclass(frozen=True)
class EightAtOnce(pt.TDBetting):
    """Betting with eight rollouts under way, on the table as a simulator that is called."""

    def start(self, task: Any, sim: Any, *others: Any) -> TDRun:
        """The test at work."""
        run = super().start(task, lambda states, actions, rng: sim.draw(states, actions, rng), *others)
        run.work_in_parallel(8)
        return run


METHODS: dict[str, Any] = {
    "paper": local(boundary=pt.PaperBoundary()),
    "mixture": local(),
    "two priors": local(boundary=pt.MixtureBoundary((0.5, 0.05))),
    "adaptive": local(allocation=pt.Adaptive()),
    "forward": local(allocation=pt.Forward()),
    "batches of 10": local(batch=10),
    "betting": pt.TDBetting(),
    AT_ONCE: EightAtOnce(),
}
CONTROLS: dict[str, Any] = {"no dimension": local(boundary=WithoutDimension()), "range too small": Overconfident()}


def wrong_answers(instance: Any, method: Any, side: int, runs: int, limit: int) -> int:
    """How often the answer is wrong when the value is just above (side 1) or just below (-1) the threshold."""
    value = pt.value(instance.task, instance.kernel)
    low, high = pt.value_range(instance.task)
    threshold = value - side * NEAR * (high - low)
    sim, wrong = pt.TabularSimulator(instance.kernel), "below" if side > 0 else "above"
    answers = (
        pt.stopping_times(instance.task, sim, threshold, [DELTA], method, seed, max_samples=limit).answers[0]
        for seed in range(runs)
    )
    return sum(answer == wrong for answer in answers)


def measure(name: str, instance: Any, rule: str, method: Any, side: int, runs: int, limit: int) -> dict[str, Any]:
    """One row of the table."""
    errors = wrong_answers(instance, method, side, runs, limit)
    tail = float(binom.sf(errors - 1, runs, DELTA))
    return {
        "instance": name, "rule": rule, "side": "above" if side > 0 else "below", "runs": runs, "limit": limit,
        "errors": errors, "tail": tail, "alarm": tail < ALARM,
    }  # fmt: skip


def coverage(name: str, instance: Any, boundary: str, runs: int, samples: int) -> dict[str, Any]:
    """How often the true kernel ever leaves the ball, at any of so many samples: the event that all KL rules rest on.

    The true kernel is put in the place of the witness: its evidence is loss_t(p) - dimension term.
    """
    task, outside = instance.task, 0
    method = METHODS.get(boundary) or CONTROLS[boundary]
    for seed in range(runs):
        run = method.start(task, pt.TabularSimulator(instance.kernel), 0.0, seed)
        tally = run.tally
        tally.stand(tally.rows.pick(instance.kernel, task.n_states), 0.0)
        left = samples
        while left > 0:
            k, x = run.source.ahead(tally, np.inf, left)
            used = tally.observe(k, x, -np.log(DELTA))
            run.source.take(used)
            left -= used
            if not tally.witness_evidence() < -np.log(DELTA):
                outside += 1
                break
    tail = float(binom.sf(outside - 1, runs, DELTA))
    return {
        "instance": name, "rule": boundary, "side": "ball", "runs": runs, "limit": samples,
        "errors": outside, "tail": tail, "alarm": tail < ALARM,
    }  # fmt: skip


# ---------------------------------------------------------------- two policies, and all of them


def nearly_as_good() -> tuple[pt.Task, pt.Task, Any]:
    """Two policies of two states: under the kernel B, which mixes, is as good as A."""
    rewards, kernel = (
        np.array([[0.35, 0.3], [1.0, 0.4]]),
        np.array([[[0.7, 0.3], [0.4, 0.6]], [[0.5, 0.5], [0.2, 0.8]]]),
    )

    def task(policy: Any) -> pt.Task:
        return pt.Task(rewards, policy, [1.0, 0.0], 0.5)

    first = task([[1.0, 0.0], [0.6, 0.4]])

    def gap(share: float) -> float:
        return pt.value(first, kernel) - pt.value(task([[0.5, 0.5], [share, 1.0 - share]]), kernel)

    share = brentq(gap, 0.0, 1.0, xtol=1e-15)
    return first, task([[0.5, 0.5], [share, 1.0 - share]]), kernel


def compared_wrongly(rule: str, side: int, runs: int, limit: int) -> int:
    """How often the answer is wrong when V^A - V^B is just above (side 1) or below (-1) the margin."""
    first, second, kernel = nearly_as_good()
    sim, wrong, count = pt.TabularSimulator(kernel), "below" if side > 0 else "above", 0
    for seed in range(runs):
        if rule == "too little":
            run = kl_comparison(local(boundary=WithoutDimension()), first, second, -side * NEAR, sim, seed)
            while run.answer is None and run.samples < limit:
                run.step(-np.log(DELTA) / 10.0, limit - run.samples)
            count += run.answer == wrong
        else:
            method = {"betting": None, "mixture": local()}[rule]
            verdict = pt.compare(first, second, sim, DELTA, -side * NEAR, method, seed, limit)
            count += verdict.answer == wrong
    return count


def selected_wrongly(rule: str, runs: int, limit: int) -> int:
    """How often a policy is returned that is not the best one, where the second action is better by next to nothing."""
    kernel = np.array([[[0.7, 0.3], [0.7, 0.3]], [[0.2, 0.8], [0.2, 0.8]]])
    rewards = np.array([[0.2, 0.2 + NEAR], [1.0, 1.0 + NEAR]])
    sim, count = pt.TabularSimulator(kernel), 0
    for seed in range(runs):
        if rule == "too little":
            task = task_of_all_pairs(rewards, [0.5, 0.5], 0.5, None)
            search = KLSearch(Deviations(task), local(boundary=WithoutDimension()), sim, DELTA, seed)
            search.required /= 10.0
            for _ in search.go(limit):
                pass
            count += search.answered and bool((search.current.task.policy[:, 1] != 1.0).any())
        else:
            method = {"betting": None, "mixture": local(), "KLB-TS": pt.KLBTS()}[rule]
            found = pt.identify(rewards, [0.5, 0.5], 0.5, sim, DELTA, rng=seed, max_samples=limit, method=method)
            count += found.answered and bool((found.policy[:, 1] != 1.0).any())
    return count


def several_policies(runs: int, limit: int, small: bool) -> Iterator[dict[str, Any]]:
    """The rows about more than one policy. A small set has the control on the side where it errs most often."""
    for name, rules in (("A - B", ("betting", "mixture", "too little")),
                        ("best", ("betting", "mixture", "KLB-TS", "too little"))):  # fmt: skip
        for rule in rules:
            for side in (1,) if name == "best" else (-1,) if small and rule == "too little" else (1, -1):
                few = {"betting": runs, "too little": 2 * runs}.get(rule, runs // 3)
                if small:
                    few = 3 * runs // 5 if rule == "too little" else runs
                errors = (
                    compared_wrongly(rule, side, few, limit) if name == "A - B" else selected_wrongly(rule, few, limit)
                )
                tail = float(binom.sf(errors - 1, few, DELTA))
                yield {
                    "instance": name, "rule": rule, "side": "above" if side > 0 else "below", "runs": few,
                    "limit": limit, "errors": errors, "tail": tail, "alarm": tail < ALARM,
                }  # fmt: skip


# ---------------------------------------------------------------- logs


def ended_tasks() -> dict[str, Any]:
    """Two tasks whose episodes end: one with a known row and rewards on successors, one about customers."""
    kernel, rewards = np.zeros((3, 2, 3)), np.zeros((3, 2, 3))
    kernel[0, :, 1:], kernel[1, :, 0], kernel[2, :, 2] = [[0.6, 0.4], [0.3, 0.7]], 1.0, 1.0
    rewards[0], rewards[1, :, 0] = [[0.0, 1.0, -2.0], [0.0, 3.0, 0.5]], [0.3, -0.4]
    task = pt.Task(rewards, [[0.6, 0.4], [1.0, 0.0], [1.0, 0.0]], [0.6, 0.3, 0.1], 0.9, kernel > 0, terminal=[2])
    shop = pt.instances.Instance(task, kernel)
    kernel = np.zeros((4, 2, 4))
    kernel[:3, 0, 1:], kernel[3, :, 3] = [[0.70, 0.18, 0.12], [0.86, 0.12, 0.02], [0.25, 0.45, 0.30]], 1.0
    kernel[:3, 1, 1:] = [[0.72, 0.18, 0.10], [0.89, 0.09, 0.02], [0.45, 0.35, 0.20]]
    rewards = np.array([[4.0, 0.0], [12.0, 7.0], [4.0, -1.0], [0.0, 0.0]])
    task = pt.Task(rewards, np.eye(2)[[0, 0, 1, 0]], [1.0, 0.0, 0.0, 0.0], 0.95, terminal=[3])
    return {"shop": shop, "customers": pt.instances.Instance(task, kernel)}


def restless_log(instance: Any, rng: np.random.Generator, length: int, left_out: float) -> pt.Transitions:
    """A log that takes another action where an episode ended, and ends when few have; bad rows may be left out."""
    task, sums, end = instance.task, instance.kernel.cumsum(axis=2), instance.task.ends[0]
    favourite, first, rows = task.policy.argmax(axis=1), int(task.initial.argmax()), []
    s, luck = first, 0.0
    for u, v, w in rng.random((length, 3)):
        a = int(favourite[s]) if u < 0.7 else int(w * task.n_actions)
        x = int(np.searchsorted(sums[s, a], v, side="right"))
        rows.append((s, a, x))
        luck += instance.kernel[s, a, end] - (x == end)
        if luck > 1.0 * np.sqrt(len(rows)) and len(rows) > 100:
            break
        if x == end:
            favourite[s] = (favourite[s] + 1) % task.n_actions
        s = first if x == end else x
    log = np.array(rows)
    return pt.Transitions(*log[(log[:, 2] != end) | (rng.random(len(log)) >= left_out)].T)


def logs(runs: int, length: int, tasks: int) -> Iterator[dict[str, Any]]:
    """The rows about logs."""
    for name, instance in list(ended_tasks().items())[:tasks]:
        value, (low, high) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
        for rule, side in (("log", 1), ("log", -1), ("left out", -1)):
            few, errors, wrong = runs if rule == "log" else min(runs, 20), 0, "below" if side > 0 else "above"
            for seed in range(few):
                data = restless_log(instance, np.random.default_rng(seed), length, 0.0 if rule == "log" else 0.7)
                threshold = value - side * NEAR * (high - low)
                run = pt.LogBetting(coins=4).replay(instance.task, threshold, recorded(instance.task, data))
                run.step(-np.log(DELTA), len(data))
                errors += run.answer == wrong
            tail = float(binom.sf(errors - 1, few, DELTA))
            yield {
                "instance": name,
                "rule": rule,
                "side": "above" if side > 0 else "below",
                "runs": few,
                "limit": length,
                "errors": errors,
                "tail": tail,
                "alarm": tail < ALARM,
            }


def effort(rule: str, runs: int, limit: int, small: bool) -> tuple[int, int]:
    """(runs, samples): fewer of slow rules; more of controls, so that they are caught whatever the seeds."""
    few = {"adaptive": runs // 20, "betting": 2 * runs // 5 if small else runs, AT_ONCE: runs // 4}.get(rule, runs)
    most = (
        limit // 10
        if rule == AT_ONCE
        else limit // 4
        if rule == "betting"
        else limit // 8
        if small and rule == "adaptive"
        else limit
    )
    if small and rule in CONTROLS:
        return (4 * few, 2 * most) if rule == "no dimension" else (3 * few // 2, most // 2)
    return (2 * few if rule in CONTROLS else few), most


def main() -> int:
    """Measure everything, print the table, and say whether it is as it should be."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--small", action="store_true", help="a small set, for the tests")
    parser.add_argument("--json", metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()
    runs, limit = (100, 2000) if options.small else (2000, 20_000)
    rows = []
    print(f"Wrong answers at delta = {DELTA}, threshold within {NEAR:g} of the value range from the value")
    print("  instance      rule             value   runs   errors   binomial tail")
    for name, instance in instances(options.small).items():
        for rule, method in {**METHODS, **CONTROLS}.items():
            for side in (1, -1):
                if name == "rare rewards" and (rule not in RARE or (rule == "range too small" and side < 0)):
                    continue
                if name != "rare rewards" and rule == "range too small":
                    continue
                if options.small and (
                    rule == AT_ONCE or (name, rule) == ("sparse rows", "no dimension")
                ):  # its ball is kept
                    continue
                row = measure(name, instance, rule, method, side, *effort(rule, runs, limit, options.small))
                rows.append(row)
                print(
                    f"  {name:<13} {rule:<16} {row['side']} {row['runs']:6d} {row['errors']:8d}   {row['tail']:.2g}"
                    + ("   ALARM" if row["alarm"] else ""),
                    flush=True,
                )
        if name != "rare rewards":
            for rule in ("paper", "mixture", "two priors", "no dimension"):
                row = coverage(name, instance, rule, runs, limit // 4)
                rows.append(row)
                print(
                    f"  {name:<13} {rule:<16} ball  {row['runs']:6d} {row['errors']:8d}   {row['tail']:.2g}"
                    + ("   ALARM" if row["alarm"] else ""),
                    flush=True,
                )
    others = several_policies(*((40, 80) if options.small else (1000, 1000)), options.small)
    for row in chain(others, logs(12, 400, 1) if options.small else logs(500, 3000, 2)):
        rows.append(row)
        shown = f"  {row['instance']:<13} {row['rule']:<16} {row['side']} {row['runs']:6d} {row['errors']:8d}   "
        print(shown + f"{row['tail']:.2g}" + ("   ALARM" if row["alarm"] else ""), flush=True)
    if options.json:
        with open(options.json, "w") as file:
            json.dump(rows, file, indent=1)
    as_it_should = all(row["alarm"] == (row["rule"] in (*CONTROLS, "too little", "left out")) for row in rows)
    print(
        "All as it should be: delta is kept, and the controls are caught." if as_it_should else "NOT as it should be."
    )
    return 0 if as_it_should else 1


if __name__ == "__main__":
    sys.exit(main())
