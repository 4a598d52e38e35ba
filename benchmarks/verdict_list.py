"""Seeded verdicts of all methods, questions and sources: kept with one version, compared with the next.

    python benchmarks/verdict_list.py --save FILE               # about four minutes
    python benchmarks/verdict_list.py --compare FILE            # the same entries again; exit code 1 if any differs
    python benchmarks/verdict_list.py --compare FILE --only decide/ptst assess
    python benchmarks/verdict_list.py --compare FILE --without decide/default
    python benchmarks/verdict_list.py --list                    # the names alone

An entry is a question with a seed, asked through the public interface. What it answers is kept: words and whole numbers
must be equal, real numbers equal to 1e-9 (relative, or absolute below 1). An entry that needs a name or a keyword that
a version does not have is skipped there; an error is kept by the name of its class. The default method of
`decide` has a group of its own, and so has every method.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import math
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import numpy as np

import policytest as pt

TOLERANCE = 1e-9
SIDES = {"above": -1.0, "below": 1.0}


class Later(NamedTuple):
    """A call that is made later, after those among its arguments."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    settings: dict[str, Any]

    def __call__(self) -> Any:
        """Make it."""
        return self.function(*map(now, self.arguments), **{name: now(value) for name, value in self.settings.items()})


def later(function: Callable[..., Any], *arguments: Any, **settings: Any) -> Later:
    """A call with these arguments."""
    return Later(function, arguments, settings)


def now(value: Any) -> Any:
    """What a call that was put off gives; anything else as it is."""
    return value() if isinstance(value, Later) else value


Entries: TypeAlias = Iterator[tuple[str, Later]]


class GoneError(Exception):
    """A name or a keyword that this version does not have."""


def made(name: str, **settings: Any) -> Any:
    """A method, or whatever else has this public name."""
    if name not in pt.__all__:
        raise GoneError(name)
    try:
        return getattr(pt, name)(**settings)
    except TypeError as error:
        raise GoneError(f"{name}: {error}") from error


# ---------------------------------------------------------------- what is kept of a result

FIELDS = {
    "Verdict": ("answer", "samples", "certified", "evidence", "required", "p_value", "estimate", "interval"),
    "Check": ("answer", "samples", "evidence", "episodes"),
    "Estimate": ("value", "lower", "upper", "samples", "certified", "reached"),
    "Interval": ("lower", "upper", "certified"),
    "Selection": ("index", "policy", "samples", "certified", "answered", "values", "settled", "questions"),
    "StoppingTimes": ("samples", "answers", "certified"),
    "Plan": ("value", "time", "bound", "samples", "episodes", "runs"),
    "Needed": ("samples", "expected"),
    "Bracket": ("lower", "upper", "certified"),
    "Allocation": ("weights", "time"),
    "LowerBound": ("time", "bracket", "certified"),
    "Diagnosis": ("broken", "transitions"),
}


def kept(result: object) -> Any:
    """A result as JSON holds it."""
    kind = type(result).__name__
    if kind in FIELDS:
        found = {name: kept(getattr(result, name)) for name in FIELDS[kind] if hasattr(result, name)}
        return found | ({"data": seen(result.counts)} if hasattr(result, "counts") else {})
    if isinstance(result, Mapping):
        return {str(name): kept(value) for name, value in result.items()}
    if isinstance(result, np.ndarray | list | tuple):
        return [kept(value) for value in result]
    return result.item() if isinstance(result, np.generic) else result


def seen(counts: Any) -> Any:
    """What was observed: how much, and a sum that tells one sample from another."""
    returns = getattr(counts, "returns", None)
    if returns is not None:
        return {"steps": kept(counts.total), "episodes": kept(counts.episodes), "sum": float(np.sum(returns))}
    if isinstance(counts, pt.Counts):
        visits = np.asarray(counts.visits).ravel()
        return {"steps": kept(counts.total), "sum": float(visits @ np.arange(1, len(visits) + 1))}
    return None


def entry(ask: Later) -> dict[str, Any]:
    """What an entry answers."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return {"result": kept(ask())}
    except GoneError as error:
        return {"skipped": str(error)}
    except (ImportError, TypeError) as error:
        trace = error.__traceback__
        while trace is not None and trace.tb_next is not None:
            trace = trace.tb_next
        here = trace is not None and trace.tb_frame.f_code.co_filename == __file__
        if isinstance(error, ImportError) or (here and "unexpected keyword argument" in str(error)):
            return {"skipped": str(error)}
        return {"error": type(error).__name__}
    except Exception as error:
        return {"error": type(error).__name__}


# ---------------------------------------------------------------- problems


class Problem(NamedTuple):
    """A task with a simulator, how far from its value a question is easy, and what only the truth knows."""

    task: pt.Task
    sim: Any
    gap: float
    known: pt.Task  # with the means of its rewards
    kernel: Any

    @property
    def value(self) -> float:
        """The value of the policy."""
        return pt.value(self.known, self.kernel)

    def bar(self, side: str, share: float = 1.0) -> float:
        """A threshold at which the answer is this one, and which the samples must tell."""
        room = [0.7 * abs(end - self.value) for end in pt.value_range(self.task)]
        return self.value + SIDES[side] * share * min(self.gap, room[side == "below"] or math.inf)


def paper(n: int, gap: float) -> Problem:
    """An instance of the paper."""
    instance = pt.instances.paper(n)
    return in_table(instance.task, instance.kernel, gap)


def drawn(seed: int, S: int, A: int, discount: float, gap: float) -> Problem:
    """A random instance."""
    instance = pt.instances.random(seed, S, A, discount=discount)
    return in_table(instance.task, instance.kernel, gap)


def grid() -> Problem:
    """A slippery grid."""
    instance = pt.instances.grid_world(3, 3, discount=0.9)
    return in_table(instance.task, instance.kernel, 0.2)


def in_table(task: pt.Task, kernel: Any, gap: float) -> Problem:
    """A task with known rewards, and a table as simulator."""
    return Problem(task, pt.TabularSimulator(kernel), gap, task, kernel)


def riverswim() -> Problem:
    """Six states along a river: the policy swims to the right nearly always."""
    S = 6
    kernel, rewards = np.zeros((S, 2, S)), np.zeros((S, 2))
    for s in range(S):
        kernel[s, 0, max(s - 1, 0)] += 1.0
        for x, p in ((max(s - 1, 0), 0.05), (s, 0.6), (min(s + 1, S - 1), 0.35)):
            kernel[s, 1, x] += p
    rewards[0, 0], rewards[S - 1, 1] = 0.05, 1.0
    task = pt.Task(rewards, np.tile([0.1, 0.9], (S, 1)), np.eye(S)[1], 0.9, kernel > 0)
    return in_table(task, kernel, 0.3)


def rare() -> Problem:
    """From the first state, with probability 0.02, to a second one with a large reward, and back."""
    task = pt.Task([[0.0], [100.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5)
    kernel = np.array([[[0.98, 0.02]], [[0.9, 0.1]]])
    return in_table(task, kernel, 2.0)


def scaled() -> Problem:
    """Costs of a few thousands, with an offset."""
    two = pt.instances.paper(2)
    task = pt.Task(-3700.0 * two.task.rewards + 12000.0, two.task.policy, two.task.initial, two.task.discount)
    return in_table(task, two.kernel, 1800.0)


def on_successors() -> Problem:
    """Rewards on the entries of the table."""
    rng, four = np.random.default_rng(7), pt.instances.random(2, 4, 2, discount=0.8)
    task = pt.Task(rng.normal(size=(4, 2, 4)), four.task.policy, four.task.initial, 0.8)
    return in_table(task, four.kernel, 0.8)


def sparse_rows() -> Problem:
    """Kernel and support as sparse arrays."""
    from scipy import sparse

    six = pt.instances.random(5, 6, 2, successors=2, discount=0.8)
    rows = sparse.csr_array(np.asarray(six.kernel).reshape(12, 6))
    given = six.task
    support = sparse.csr_array((np.asarray(six.kernel) > 0).reshape(12, 6))
    task = pt.Task(given.rewards, given.policy, given.initial, given.discount, support)
    return in_table(task, rows, 0.4)


def with_an_end() -> Problem:
    """A terminal state, and a state that costs."""
    kernel = np.array([[[0.6, 0.2, 0.2], [0.5, 0.35, 0.15]], [[0.4, 0.4, 0.2], [0.3, 0.6, 0.1]], [[0, 0, 1]] * 2])
    task = pt.Task(
        [[0.6, -0.8], [1.5, 2.0], [0.0, 0.0]], [[0.1, 0.9], [0.4, 0.6], [1, 0]], [1, 0, 0], 0.9, terminal=[2]
    )
    return in_table(task, kernel, 0.9)


TABLES: dict[str, Later] = {
    "paper2": later(paper, 2, 0.45),
    "paper3": later(paper, 3, 0.5),
    "paper5": later(paper, 5, 0.35),
    "random4": later(drawn, 1, 4, 2, 0.9, 0.7),
    "grid": later(grid),
    "riverswim": later(riverswim),
    "rare": later(rare),
    "scaled": later(scaled),
    "successors": later(on_successors),
    "sparse": later(sparse_rows),
    "end": later(with_an_end),
    "short": later(drawn, 3, 2, 1, 0.5, 0.3),
    "myopic": later(drawn, 4, 3, 2, 0.1, 0.15),
}
SMALL = ("paper2", "short")


def horizon_problem(H: int, discount: float, kind: str) -> Problem:
    """A task of two states, and an end, with so many steps."""
    rng, S, A = np.random.default_rng(H), 3, 2
    policy, kernel = rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S), size=(S, A))
    kernel[2] = np.eye(3)[2]
    low = rng.normal(size=(S, A))
    high = low + rng.random((S, A))
    low[2] = high[2] = 0.0
    more: dict[str, Any] = {"horizon": H, "terminal": [2]}
    return rewarded(low, high, policy, np.array([0.7, 0.3, 0.0]), discount, kernel, kind, more, 0.2 * min(H, 3))


def total_problem(kind: str, bounded: bool) -> Problem:
    """An undiscounted total, with a bound or with rewards of one sign."""
    rng, S, A = np.random.default_rng(11), 3, 2
    policy, kernel = rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S), size=(S, A))
    kernel[:2] = 0.6 * kernel[:2] + 0.4 * np.eye(3)[2]
    kernel[2] = np.eye(3)[2]
    low = rng.normal(size=(S, A)) if bounded else rng.random((S, A))
    high = low + rng.random((S, A))
    low[2] = high[2] = 0.0
    more: dict[str, Any] = {"terminal": [2], "total_rewards": (-40.0, 60.0) if bounded else None}
    return rewarded(low, high, policy, np.array([0.7, 0.3, 0.0]), 1.0, kernel, kind, more, 4.0 if bounded else 0.5)


def rewarded(
    low: Any, high: Any, policy: Any, rho: Any, discount: float, kernel: Any, kind: str, more: Any, gap: float
) -> Problem:
    """The same with known rewards, with rewards on entries, or with observed ones of two values."""
    S = len(kernel)
    if kind == "observed":
        task = pt.Task(pt.Observed(low, high), policy, rho, discount, **more)
        known = pt.Task(0.5 * (low + high), policy, rho, discount, **more)

        def paid(s: Any, a: Any, x: Any, rng: np.random.Generator) -> Any:
            return np.where(rng.random(len(s)) < 0.5, low[s, a], high[s, a])

        return Problem(task, pt.TabularSimulator(kernel, rewards=paid), gap, known, kernel)
    rewards = low
    if kind == "successors":
        rewards = np.repeat(low[:, :, None], S, axis=2) + 0.3 * np.arange(S)
        rewards = np.where(np.arange(S)[:, None, None] == S - 1, 0.0, rewards)
    task = pt.Task(rewards, policy, rho, discount, **more)
    return in_table(task, kernel, gap)


def observed_discounted() -> Problem:
    """Observed rewards of any law, discounted."""
    kernel = np.array([[[0.7, 0.3], [0.2, 0.8]], [[0.4, 0.6], [0.5, 0.5]]])
    policy, low = np.array([[0.7, 0.3], [0.5, 0.5]]), np.array([[0.0, 0.2], [0.5, -0.3]])
    return rewarded(low, low + 1.0, policy, np.array([1.0, 0.0]), 0.7, kernel, "observed", {}, 0.7)


LAW = np.array([[[[0.3, 0.1], [0.2, 0.4]], [[0.4, 0.2], [0.3, 0.1]]], [[[0.1, 0.1], [0.1, 0.7]]] * 2])


def listed() -> Problem:
    """Observed rewards of two listed values."""
    task = pt.Task(pt.Observed(values=[0.0, 1.0]), [[0.7, 0.3], [1.0, 0.0]], [1.0, 0.0], 0.5)
    kernel = LAW.sum(axis=3)

    def paid(s: Any, a: Any, x: Any, rng: np.random.Generator) -> Any:
        return (rng.random(len(s)) < LAW[s, a, x, 1] / kernel[s, a, x]).astype(float)

    return Problem(task, pt.TabularSimulator(kernel, rewards=paid), 0.4, task, LAW)


GOAL = np.array([[[0.4, 0.5, 0.0, 0.1]], [[0.2, 0.4, 0.4, 0.0]], [[0, 0, 1, 0]], [[0, 0, 0, 1]]])


def goal(within: int | None) -> Problem:
    """The probability of reaching a state, before another or within some steps."""
    settings: dict[str, Any] = {"policy": np.ones((4, 1)), "initial": [1, 0, 0, 0], "support": GOAL > 0}
    task = pt.Task.reaching(goal=[2], avoid=[3], within=within, **settings)
    return in_table(task, GOAL, 0.2)


BEYOND: dict[str, Later] = {
    **{
        f"horizon {H}, {kind}, discount {gamma:g}": later(horizon_problem, H, gamma, kind)
        for (H, gamma), kind in product(((1, 1.0), (3, 1.0), (4, 0.9)), ("known", "observed", "successors"))
    },
    **{
        f"total, {kind}, {'bounded' if bounded else 'positive'}": later(total_problem, kind, bounded)
        for kind, bounded in product(("known", "observed", "successors"), (True, False))
    },
    "observed": later(observed_discounted),
    "listed": later(listed),
    "goal": later(goal, None),
    "goal within 6": later(goal, 6),
}


@cache
def problem(name: str) -> Problem:
    """A problem by its name."""
    found: Problem = {**TABLES, **BEYOND}[name]()
    return found


def decided(name: str, side: str, method: Any = None, share: float = 1.0, **settings: Any) -> Any:
    """`decide` on a side of a problem."""
    one = problem(name)
    question = {"delta": 0.05, "rng": 0, "max_samples": 4000, **settings}
    return pt.decide(one.task, one.sim, one.bar(side, share), method=method, **question)


def method_named(name: str, **settings: Any) -> Later:
    """The method, made when it is asked for."""
    return later(made, name, **settings)


def local(**settings: Any) -> Later:
    """PTST without proofs."""
    return later(made, "PTST", solver=later(made, "ProjectionFree"), **settings)


# ---------------------------------------------------------------- decide


def decide_by_betting() -> Entries:
    """Bets on rollouts: every table, both sides, seeds, deltas, zones, budgets, rules of simulators."""
    bets = method_named("TDBetting")
    for name, side, seed in product(TABLES, SIDES, range(3)):
        yield f"{name}/{side}/seed{seed}", later(decided, name, side, bets, rng=seed)
    for name, side, delta in product(("paper3", "riverswim", "end"), SIDES, (0.3, 1e-3, 1e-8)):
        yield f"{name}/{side}/delta{delta:g}", later(decided, name, side, bets, delta=delta)
    for name, limit in product(TABLES, (1, 300)):
        yield f"{name}/limit{limit}", later(decided, name, "above", bets, 0.0, max_samples=limit)
    for name, width, share in product(("paper2", "random4", "end"), (0.4, 0.8), (0.0, 0.3)):
        yield (
            f"{name}/zone{width:g}, {share:g}",
            later(decided, name, "below", bets, share, indifference=width * problem(name).gap, max_samples=8000),
        )


def beyond_the_table() -> Entries:
    """Horizons, totals, observed rewards, goals: bets on rollouts."""
    bets = method_named("TDBetting")
    for name, side, seed in product(BEYOND, SIDES, range(2)):
        yield f"{name}/{side}/seed{seed}", later(decided, name, side, bets, rng=seed)
    for name in BEYOND:
        yield f"{name}/limit", later(decided, name, "above", bets, 0.0, max_samples=250)
    for name in ("horizon 3, known, discount 1", "total, observed, bounded", "goal", "observed"):
        yield f"{name}/zone", later(decided, name, "above", bets, 0.0, indifference=problem(name).gap)


def decide_by_default() -> Entries:
    """No method is named."""
    for name, side in product(TABLES, SIDES):
        yield f"{name}/{side}", later(decided, name, side)
    for name in ("goal", "listed", "observed", "horizon 3, known, discount 1", "total, known, positive"):
        yield f"{name}/above", later(decided, name, "above")
    yield "zone", later(decided, "paper2", "above", share=0.0, indifference=0.4)
    yield "called", later(called, "above", None, 0)
    yield "stopping times", later(times, "paper3", None)
    yield "checks", later(looks, "paper2", None)
    yield "resumed", later(resumed, "paper3", None)


def decide_by_combined() -> Entries:
    """The average of bets and a KL rule, while there is one."""
    for name, side, weight in product(("paper2", "random4", "short"), SIDES, (0.9, 0.01)):
        yield (
            f"{name}/{side}/weight{weight:g}",
            later(decided, name, side, later(made, "Combined", weight=weight), max_samples=1000),
        )


def decide_by_a_mean_of_draws() -> Entries:
    """Rollouts of the mean of some draws, while there are any."""
    for name, side in product(("paper2", "random4", "end"), SIDES):
        yield f"{name}/{side}", later(decided, name, side, later(made, "TDBetting", draws=3))


RULES: dict[str, Later] = {
    "default": method_named("PTST"),
    "local search": local(),
    "paper's boundary": method_named("PTST", boundary=later(made, "PaperBoundary")),
    "several priors": method_named("PTST", boundary=later(made, "MixtureBoundary", prior=(0.05, 0.5, 2.0))),
    "batches": local(batch=30),
    "forward": local(allocation=later(made, "Forward")),
    "adaptive": local(allocation=later(made, "Adaptive")),
    "optimal": local(allocation=later(made, "Optimal", kernel=pt.instances.paper(2).kernel)),
    "shares": local(allocation=[[0.1, 0.2], [0.3, 0.4]]),
}


def decide_by_ptst() -> Entries:
    """The KL rule with its variants."""
    for name, side, seed in product(RULES, SIDES, range(2)):
        yield (
            f"paper2, {name}/{side}/seed{seed}",
            later(decided, "paper2", side, RULES[name], rng=seed),
        )
    for name, side in product(("random4", "short", "successors", "sparse", "riverswim", "end", "myopic"), SIDES):
        yield f"{name}, local/{side}", later(decided, name, side, local(), max_samples=1500)
    for delta in (0.3, 1e-3):
        yield f"paper2/delta{delta:g}", later(decided, "paper2", "above", local(), delta=delta)
    yield "paper2/zone", later(decided, "paper2", "above", local(), 0.0, indifference=0.4)
    for side in SIDES:
        yield (
            f"paper2, as printed/{side}",
            later(decided, "paper2", side, later(as_printed), 0.7, max_samples=60),
        )


def as_printed() -> Any:
    """The rule as the paper prints it."""
    return pt.PTST.as_printed()


def kl_beyond() -> Entries:
    """The KL rule with a horizon, for goals and for listed rewards."""
    for name, side in product(
        ("goal within 6", "horizon 3, known, discount 1", "horizon 4, known, discount 0.9", "listed"), SIDES
    ):
        yield f"{name}/{side}", later(decided, name, side, method_named("PTST"), max_samples=800)
    for name in ("forward", "adaptive"):
        yield (
            f"goal within 6, {name}",
            later(decided, "goal within 6", "above", RULES[name], max_samples=600),
        )


def baselines() -> Entries:
    """The other methods: KLB-TS, boxes, Monte Carlo."""
    methods = {
        "KLB-TS": method_named("KLBTS"),
        "KLB-TS, paper's boundary": method_named("KLBTS", boundary=later(made, "PaperBoundary")),
        "boxes": method_named("RectangularKL"),
        "boxes, prior": method_named("RectangularKL", prior=0.2),
    }
    for name, table, side in product(methods, SMALL, SIDES):
        yield (
            f"{name}/{table}/{side}",
            later(decided, table, side, methods[name], 1.4, max_samples=3000),
        )


def decide_by_monte_carlo() -> Entries:
    """Whole rollouts of a fixed length."""
    kinds: dict[str, dict[str, Any]] = {
        **{kind: {"kind": kind} for kind in ("betting", "bernstein", "hoeffding")},
        "horizon": {"horizon": 30},
    }
    for name, table, side, seed in product(kinds, ("paper2", "short", "successors"), SIDES, range(2)):
        yield (
            f"{name}/{table}/{side}/seed{seed}",
            later(decided, table, side, later(made, "MonteCarlo", **kinds[name]), rng=seed, max_samples=40000),
        )


class Travelling:
    """Has to walk to the pairs that it is asked for."""

    def __init__(self, sim: Any) -> None:
        self.sim, self.extra_steps = sim, 0

    def draw(self, states: Any, actions: Any, rng: np.random.Generator) -> Any:
        """The next states, after a step more for each."""
        self.extra_steps += len(states)
        return self.sim.draw(states, actions, rng)


class Waiting:
    """Is called for each block, and is no table."""

    def __init__(self, sim: Any) -> None:
        self.sim = sim

    def draw(self, states: Any, actions: Any, rng: np.random.Generator) -> Any:
        """The next states."""
        return self.sim.draw(states, actions, rng)


def called(side: str, method: Any, seed: int, kind: str = "function", name: str = "random4", **more: Any) -> Any:
    """`decide` with a simulator that is called."""
    one = problem(name)
    sims = {"function": one.sim.draw, "object": Waiting(one.sim), "travelling": Travelling(one.sim)}
    return pt.decide(one.task, sims[kind], one.bar(side), method=method, rng=seed, **{"max_samples": 2000, **more})


def simulators() -> Entries:
    """Functions, objects, and simulators that travel."""
    methods = {"betting": method_named("TDBetting"), "ptst": local(batch=10), "monte carlo": method_named("MonteCarlo")}
    for kind, method, side in product(("function", "object", "travelling"), methods, SIDES):
        yield (
            f"{kind}/{method}/{side}",
            later(called, side, methods[method], 1, kind, max_samples=1500),
        )
    for name in ("observed", "goal", "horizon 3, observed, discount 1", "total, known, bounded"):
        yield f"function/{name}", later(called, "above", methods["betting"], 2, "function", name)


def large(S: int, side: str, seed: int) -> Any:
    """A large sparse task: bets are fitted to visited states."""
    one = large_instance(S)
    bar = one[2] + SIDES[side] * one[3]
    return pt.decide(one[0], one[1], bar, method=made("TDBetting"), rng=seed, max_samples=3000)


@cache
def large_instance(S: int) -> tuple[pt.Task, Any, float, float]:
    """Task, simulator, value, and the spread of values."""
    i = pt.instances.random(1, S, 4, successors=5, discount=0.9)
    values = pt.state_values(i.task, i.kernel)
    return i.task, pt.TabularSimulator(i.kernel), float(i.task.initial @ values), 1.5 * float(values.std())


def large_tasks() -> Entries:
    """Hundreds and thousands of states."""
    for S, side, seed in product((150, 2100), SIDES, range(2)):
        yield f"{S} states/{side}/seed{seed}", later(large, S, side, seed)


def environments() -> Entries:
    """Gymnasium environments with a table, and stepped ones."""

    def lake(side: str, horizon: Any, method: Any) -> Any:
        found = pt.sources.gymnasium("FrozenLake-v1", "uniform", discount=1.0 if horizon else 0.9, horizon=horizon)
        bar = max((found.value or 0.0) + SIDES[side] * 0.15, 0.002)
        return pt.decide(found.task, found.simulator, bar, method=method, max_samples=20_000)

    def stepped(bar: float) -> Any:
        found = pt.sources.gymnasium(
            "FrozenLake-v1", "uniform", 1.0, horizon=20, rewards=pt.Observed(0.0, 1.0), initial=0
        )
        return pt.decide(found.task, found.simulator, bar, method=made("TDBetting"), max_samples=1000)

    for side, horizon in product(SIDES, (None, 20)):
        yield f"lake/{side}/{horizon}", later(lake, side, horizon, later(made, "TDBetting"))
    for bar in (0.005, 0.3):
        yield f"stepped lake/{bar:g}", later(stepped, bar)


def times(name: str, method: Any) -> Any:
    """One run for several deltas."""
    one = problem(name)
    return pt.stopping_times(
        one.task, one.sim, one.bar("above"), [0.3, 0.05, 1e-4], method=method, rng=3, max_samples=3000
    )


def looks(name: str, method: Any) -> Any:
    """The first and the last looks of a run, and how many there were."""
    one = problem(name)
    found = list(pt.checks(one.task, one.sim, one.bar("below"), method=method, rng=2, max_samples=1500))
    return {"looks": len(found), "some": [*found[:3], *found[-3:]]}


METHODS: dict[str, Later] = {
    "TDBetting": method_named("TDBetting"),
    "PTST": local(batch=5),
    "PTST, adaptive": local(allocation=later(made, "Adaptive")),
    "KLBTS": method_named("KLBTS"),
    "RectangularKL": method_named("RectangularKL"),
    "MonteCarlo": method_named("MonteCarlo"),
    "Combined": method_named("Combined"),
    "TDBetting, draws": method_named("TDBetting", draws=3),
}


def runs() -> Entries:
    """Stopping times and checks of every method."""
    for name, table in product(METHODS, ("paper2", "short")):
        group = name.partition(",")[0] if "draws" not in name else name
        yield f"stopping times/{group}, {name}/{table}", later(times, table, METHODS[name])
        yield f"checks/{group}, {name}/{table}", later(looks, table, METHODS[name])
    for name in ("goal", "observed", "total, known, bounded", "horizon 3, known, discount 1"):
        yield f"stopping times/beyond/{name}", later(times, name, later(made, "TDBetting"))
        yield f"checks/beyond/{name}", later(looks, name, later(made, "TDBetting"))


# ---------------------------------------------------------------- a run that is resumed


def resumed(name: str, method: Any, **settings: Any) -> Any:
    """A run that is cut twice and goes on from a file, beside the run in one."""
    one = problem(name)
    question: dict[str, Any] = {"delta": 1e-3, "rng": 3, "method": method, "max_samples": 3000, **settings}
    whole = pt.decide(one.task, one.sim, one.bar("above"), **question)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.npz"
        for share in (0.3, 0.7):
            cut = {**question, "max_samples": int(share * whole.samples), "checkpoint": path}
            pt.decide(one.task, one.sim, one.bar("above"), resume=path if path.exists() else None, **cut)
        last = pt.decide(one.task, one.sim, one.bar("above"), **{**question, "resume": path})
    return {"whole": whole, "resumed": last, "same": kept(whole) == kept(last)}


def continued(name: str, method: Any) -> Any:
    """A decided run goes on at a smaller delta."""
    first = decided(name, "above", method, rng=4)
    one = problem(name)
    return pt.decide(one.task, one.sim, one.bar("above"), delta=1e-5, method=method, resume=first, max_samples=6000)


def resuming() -> Entries:
    """Checkpoints of every method, and runs that go on."""
    for name in METHODS:
        yield f"{name}/paper2", later(resumed, "paper2", METHODS[name])
    for name in ("random4", "riverswim", "sparse", *BEYOND):
        yield f"beyond/{name}", later(resumed, name, later(made, "TDBetting"))
    yield "TDBetting/zone", later(resumed, "paper2", later(made, "TDBetting"), indifference=0.2)
    for name in ("TDBetting", "PTST", "Combined"):
        yield f"{name}/continued", later(continued, "paper2", METHODS[name])


# ---------------------------------------------------------------- two policies


def rival(task: pt.Task, share: float) -> pt.Task:
    """The same question of another policy: towards the uniform one."""
    policy = np.array(task.policy, dtype=float)
    other = (1 - share) * policy + share * policy[:, ::-1]
    more: dict[str, Any] = {"terminal": task.terminal, "horizon": task.horizon, "total_rewards": task.total_rewards}
    return pt.Task(task.rewards, other, task.initial, task.discount, task.support, **more)


def compared(name: str, share: float, margin: float, method: Any = None, **settings: Any) -> Any:
    """`compare` of the policy of a problem with another one; the margin is counted from the difference, in gaps."""
    one = problem(name)
    other = rival(one.task, share)
    question = {"rng": 0, "max_samples": 3000, **settings}
    return pt.compare(one.task, other, one.sim, margin=from_tie(name, share, margin), method=method, **question)


def from_tie(name: str, share: float, margin: float) -> float:
    """A margin that is off the difference of the values by so many gaps."""
    one = problem(name)
    return one.value - pt.value(rival(one.known, share), one.kernel) + margin * one.gap


def two_policies() -> Entries:
    """Comparisons: coupled rollouts, coupled episodes, the KL rule on the difference, zones, resuming."""
    for name, margin, seed in product(
        ("paper2", "paper3", "random4", "riverswim", "successors", "sparse", "myopic"), (-0.6, 0.6), range(2)
    ):
        yield (
            f"table/{name}/{margin:g}/seed{seed}",
            later(compared, name, 0.8, margin, rng=seed),
        )
    two_actions = [name for name in BEYOND if name not in ("goal", "goal within 6", "listed")]
    for name, margin in product(two_actions, (-1.0, 1.0)):
        yield f"beyond/{name}/{margin:g}", later(compared, name, 0.8, margin)
    for allocation, margin in product(("uniform", "adaptive"), (-1.5, 1.5)):
        method = local(allocation="uniform") if allocation == "uniform" else METHODS["PTST, adaptive"]
        yield (
            f"ptst/{allocation}/{margin:g}",
            later(compared, "paper2", 0.8, margin, method, max_samples=1500),
        )
    for name in ("paper2", "random4"):
        yield f"zone/{name}", later(compared, name, 0.2, 0.0, indifference=0.6)
    yield "function", later(function_compared)
    for name in ("paper3", "total, known, bounded", "horizon 3, known, discount 1"):
        yield f"resumed/{name}", later(compare_resumed, name)
    for margin, seed in product((-1.0, 1.0), range(2)):
        yield f"log/{margin:g}/seed{seed}", later(log_compared, margin, seed, None)
        yield f"logged policy/{margin:g}/seed{seed}", later(log_compared, margin, seed, "logged")


def function_compared() -> Any:
    """A simulator that is called."""
    one = problem("paper3")
    margin = from_tie("paper3", 0.8, -1.0)
    return pt.compare(one.task, rival(one.task, 0.8), one.sim.draw, margin=margin, rng=1, max_samples=1500)


def compare_resumed(name: str) -> Any:
    """A comparison in two pieces, beside the one in one."""
    one = problem(name)
    other, margin = rival(one.task, 0.8), from_tie(name, 0.8, -0.8)
    whole = pt.compare(one.task, other, one.sim, margin=margin, rng=5, max_samples=3000)
    first = pt.compare(one.task, other, one.sim, margin=margin, rng=5, max_samples=whole.samples // 2)
    last = pt.compare(one.task, other, one.sim, margin=margin, rng=5, max_samples=3000, resume=first)
    return {"whole": whole, "resumed": last, "same": kept(whole) == kept(last)}


def log_compared(margin: float, seed: int, other: Any) -> Any:
    """Two policies on a log of a third one, or one with the logged one."""
    one = problem("random4")
    share = 0.8 if other is None else 0.5  # the log takes either action as often
    margin = from_tie("random4", share, margin)
    return pt.compare(one.task, other or rival(one.task, share), log_of("random4", 700, seed), margin=margin)


# ---------------------------------------------------------------- data


def log_of(name: str, rows: int, seed: int) -> pt.Transitions:
    """Transitions of pairs that are chosen uniformly among those with something to draw."""
    one, rng = problem(name), np.random.default_rng(100 + seed)
    S, A = one.task.policy.shape
    ends = np.zeros(S, dtype=bool)
    ends[list(one.task.ends) if hasattr(one.task, "ends") else []] = True
    s, a = rng.choice(np.flatnonzero(~ends), size=rows), rng.integers(A, size=rows)
    x = one.sim.draw(s, a, rng)
    return pt.Transitions(s, a, *(x if isinstance(x, tuple) else (x,)))


def counts_of(name: str, rows: int, seed: int) -> pt.Counts:
    """The counts of such a log."""
    one, log = problem(name), log_of(name, rows, seed)
    counts = pt.Counts(one.task.n_states, one.task.n_actions)
    counts.record(log.s, log.a, log.x)
    return counts


def assessed(name: str, side: str, data: Any, method: Any = None, **settings: Any) -> Any:
    """`assess` on a side of a problem."""
    one = problem(name)
    return pt.assess(one.task, data, one.bar(side), method=method, **settings)


def assessments() -> Entries:
    """Counts and rows in their order, by every method."""
    for name, side, seed in product(("paper2", "random4", "short", "end", "sparse", "successors"), SIDES, range(2)):
        yield (
            f"rows/{name}/{side}/seed{seed}",
            later(assessed, name, side, later(log_of, name, 700, seed)),
        )
    few = method_named("LogBetting", coins=2)  # a tenth of the time
    for name, side in product(BEYOND, SIDES):
        method = None if name in ("goal", "total, observed, bounded") else few
        yield f"rows, beyond/{name}/{side}", later(assessed, name, side, later(log_of, name, 300, 1), method)
    methods = {**METHODS, "PTST, proofs": method_named("PTST"), "LogBetting": method_named("LogBetting")}
    methods["LogBetting, 3 coins"] = method_named("LogBetting", coins=3)
    for name, side in product(methods, SIDES):
        yield (
            f"rows, method/{name}/{side}",
            later(assessed, "paper2", side, later(log_of, "paper2", 800, 5), methods[name]),
        )
    for name, side in product((*SMALL, "end", "random4"), SIDES):
        yield f"counts/{name}/{side}", later(assessed, name, side, later(counts_of, name, 1500, 2))
    for name, side in product(("PTST", "RectangularKL", "KLBTS", "TDBetting"), SIDES):
        yield (
            f"counts, method/{name}/{side}",
            later(assessed, "paper2", side, later(counts_of, "paper2", 800, 3), METHODS[name], design="fixed"),
        )
    for side in SIDES:
        yield (
            f"counts, goal within 6/{side}",
            later(assessed, "goal within 6", side, later(counts_of, "goal within 6", 900, 1)),
        )
    for rows in (1, 150):
        yield f"rows, few/{rows}", later(assessed, "random4", "above", later(log_of, "random4", rows, 4))
        undecided = later(assessed, "random4", "above", later(log_of, "random4", rows, 4))
        yield f"still needed/rows, {rows}", later(pt.still_needed, undecided, runs=2)


NAMES: dict[str, Any] = {"states": ["low", "high"], "actions": ["wait", "act"]}


def named_task() -> tuple[pt.Task, float]:
    """The paper's task of two states with labels, and its value."""
    two = pt.instances.paper(2)
    task = pt.Task(two.task.rewards, two.task.policy, two.task.initial, two.task.discount, **NAMES)
    return task, pt.value(task, two.kernel)


def rows_of(rows: int, seed: int) -> list[tuple[str, str, str, int, int]]:
    """Rows of a log with labels, by episodes of ten."""
    log = log_of("paper2", rows, seed)
    states, actions = NAMES["states"], NAMES["actions"]
    return [
        (states[s], actions[a], states[x], i, i // 10)
        for i, (s, a, x) in enumerate(zip(log.s, log.a, log.x, strict=True))
    ]


HEAD = "s,a,s_next,order,episode"


def csv_text(rows: int, seed: int, ordered: bool = True) -> str:
    """A CSV file of such rows."""
    width = 5 if ordered else 3
    lines = [",".join(map(str, row[:width])) for row in rows_of(rows, seed)]
    return "\n".join([",".join(HEAD.split(",")[:width]), *lines, ""])


def from_csv(side: str, rows: int, ordered: bool) -> Any:
    """`assess` and `value_interval` of a CSV file."""
    task, value = named_task()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_text(csv_text(rows, 8, ordered), encoding="utf-8")
        found = pt.assess(task, path, value + SIDES[side] * 0.45)
        return {"verdict": found, "interval": pt.value_interval(task, path)}


def from_frame(side: str, kind: str) -> Any:
    """`assess` of a data frame."""
    import importlib

    task, value = named_task()
    columns = dict(zip(HEAD.split(","), map(list, zip(*rows_of(400, 9), strict=True)), strict=True))
    frame = importlib.import_module(kind).DataFrame(columns)
    return pt.assess(task, frame, value + SIDES[side] * 0.45)


def watched(side: str, rows: int) -> Any:
    """`policytest watch` of a file, in this process."""
    from policytest.cli import main

    task, value = named_task()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as out:
        path, log = Path(folder) / "task.json", Path(folder) / "log.csv"
        pt.sources.save_model(path, task, threshold=value + SIDES[side] * 0.45)
        log.write_text(csv_text(rows, 8, ordered=False), encoding="utf-8")
        with contextlib.redirect_stderr(io.StringIO()):
            code = main(["watch", str(path), str(log), "--no-follow", "--json", "--quiet"])
    said = json.loads(out.getvalue())
    return {"code": code, **{name: anywhere(said, name) for name in ("answer", "samples", "interval", "estimate")}}


def anywhere(said: Any, name: str) -> Any:
    """The first value of this name in nested objects."""
    if name in said:
        return said[name]
    inner = [anywhere(one, name) for one in said.values() if isinstance(one, dict)]
    return next((one for one in inner if one is not None), None)


def watch_in_pieces(name: str, side: str, method: Any) -> Any:
    """`Watch`, row by row and then in growing pieces."""
    from policytest.questions.watch import Watch

    one, log, at = problem(name), log_of(name, 300, 6), 0
    watch, found = Watch(one.task, one.bar(side), 0.05, method), None
    while found is None and at < len(log):
        piece = slice(at, at := at + 1 + at // 3)
        rewards = {} if log.r is None else {"r": log.r[piece]}
        found = watch.add(log.s[piece], log.a[piece], log.x[piece], **rewards)
    return watch.verdict() if found is None else found


def files() -> Entries:
    """CSV files, data frames, and logs that are followed."""
    for side, rows, ordered in product(SIDES, (60, 500), (True, False)):
        yield (
            f"csv/{side}/{rows}/{'ordered' if ordered else 'counts'}",
            later(from_csv, side, rows, ordered),
        )
    for side, kind in product(SIDES, ("pandas", "polars")):
        yield f"frames/{kind}/{side}", later(from_frame, side, kind)
    for side, rows in product(SIDES, (20, 500)):
        yield f"watch/{side}/{rows}", later(watched, side, rows)
    few = method_named("LogBetting", coins=2)
    for name, side in product(("paper2", "random4", "goal", "observed"), SIDES):
        method = None if name == "paper2" else few
        yield f"watch in pieces/LogBetting/{name}/{side}", later(watch_in_pieces, name, side, method)
    for name in ("PTST", "TDBetting", "RectangularKL", "Combined"):
        yield f"watch in pieces/{name}", later(watch_in_pieces, "paper2", "above", METHODS[name])


def intervals() -> Entries:
    """Intervals of counts, of rows, for any look and for one."""
    for name, rows in product(("paper2", "random4", "short", "end", "riverswim"), (30, 600)):
        yield f"rows/{name}/{rows}", later(pt.value_interval, problem(name).task, later(log_of, name, rows, 1))
    for name in ("paper2", "short", "end", "goal within 6"):
        yield f"counts/{name}", later(pt.value_interval, problem(name).task, later(counts_of, name, 1500, 1))
    for name in BEYOND:
        method = None if name in ("goal", "horizon 3, observed, discount 1") else method_named("LogBetting", coins=2)
        data = later(log_of, name, 120, 1)
        yield f"rows, beyond/{name}", later(pt.value_interval, problem(name).task, data, delta=0.1, method=method)
    for delta in (0.3, 1e-3):
        yield (
            f"delta/{delta:g}",
            later(pt.value_interval, problem("paper2").task, later(log_of, "paper2", 500, 2), delta=delta),
        )
    for name in ("paper2", "end", "observed", "total, known, bounded", "horizon 3, known, discount 1"):
        yield f"one look/{name}", later(pt.value_interval, problem(name).task, later(log_of, name, 600, 3), looks="one")
    methods = {
        "LogBetting, 3 coins": method_named("LogBetting", coins=3),
        "TDBetting": METHODS["TDBetting"],
        "PTST": local(),
    }
    for name in methods:
        yield (
            f"method/{name}",
            later(pt.value_interval, problem("paper2").task, later(log_of, "paper2", 500, 2), method=methods[name]),
        )


def estimates() -> Entries:
    """`evaluate` of tables, logs and episodes."""

    def evaluated(name: str, width: float, method: Any = None, sim: Any = None, **settings: Any) -> Any:
        one = problem(name)
        question = {"rng": 1, "max_samples": 5000, **settings}
        return pt.evaluate(one.task, sim or one.sim, width * one.gap, method=method, **question)

    for name, width, seed in product(
        ("paper2", "random4", "riverswim", "sparse", "end", "short"), (1.0, 0.3), range(2)
    ):
        yield (
            f"table/{name}/{width:g}/seed{seed}",
            later(evaluated, name, width, rng=seed, max_samples=2000),
        )
    bounded = [name for name in BEYOND if not name.endswith("positive")]
    for name in bounded:
        yield f"beyond/{name}", later(evaluated, name, 1.0, max_samples=1500)
    for name in SMALL:
        yield f"ptst/{name}", later(evaluated, name, 1.0, local(), max_samples=1500)
    yield "function", later(evaluated, "random4", 1.0, sim=problem("random4").sim.draw, max_samples=1500)
    for name in ("paper2", "end"):
        one = name
        yield (
            f"log/{name}",
            later(pt.evaluate, problem(one).task, later(log_of, one, 800, 1), epsilon=problem(one).gap),
        )


# ---------------------------------------------------------------- the best policy


def best() -> Entries:
    """`identify` among some policies and among all, by every method, from simulators and logs."""

    def easy(seed: int) -> tuple[Any, Any, Any]:
        rng = np.random.default_rng(seed)
        kernel, rewards = rng.dirichlet(np.ones(3), size=(3, 2)), rng.normal(size=(3, 2))
        return rewards + np.array([0.0, 0.7]), kernel, np.full(3, 1 / 3)

    def found(seed: int, method: Any, policies: Any, limit: int, sim: Any = None) -> Any:
        rewards, kernel, initial = easy(seed)
        sim = sim or pt.TabularSimulator(kernel)
        return pt.identify(rewards, initial, 0.5, sim, policies=policies, method=method, rng=seed, max_samples=limit)

    some = [np.tile([1 - p, p], (3, 1)) for p in (0.1, 0.5, 0.9)]
    methods = {
        "default": None,
        **{name: METHODS[name] for name in ("TDBetting", "KLBTS")},
        "PTST": method_named("PTST"),
    }
    for name, seed in product(methods, range(3)):
        limit = 3000 if name in ("default", "TDBetting") else 1200
        yield f"all/{name}/seed{seed}", later(found, seed, methods[name], None, limit)
    for name, seed in product(("default", "PTST"), range(3)):
        limit = 3000 if name == "default" else 1200
        yield f"some/{name}/seed{seed}", later(found, seed, methods[name], some, limit)

    def log(seed: int, policies: Any) -> Any:
        rewards, kernel, initial = easy(seed)
        rng = np.random.default_rng(seed)
        s, a = rng.integers(3, size=300), rng.integers(2, size=300)
        data = pt.Transitions(s, a, pt.TabularSimulator(kernel).draw(s, a, rng))
        return pt.identify(rewards, initial, 0.5, data, policies=policies)

    yield "log/some", later(log, 1, some)
    yield "log/logged", later(log, 1, [some[0], "logged"])

    def beyond(name: str) -> Any:
        one = problem(name)
        task = one.task
        candidates = [np.tile([1 - p, p], (task.n_states, 1)) for p in (0.1, 0.5, 0.9)]
        more: dict[str, Any] = {
            "horizon": task.horizon, "terminal": task.terminal, "total_rewards": task.total_rewards
        }  # fmt: skip
        return pt.identify(
            task.rewards, task.initial, task.discount, one.sim, policies=candidates, rng=2, max_samples=2000, **more
        )

    for name in (
        "horizon 3, known, discount 1",
        "horizon 4, observed, discount 0.9",
        "total, known, bounded",
        "observed",
    ):
        yield f"beyond/{name}", later(beyond, name)


# ---------------------------------------------------------------- episodes


def tries(rng: np.random.Generator) -> Any:
    """One to three steps with a reward at the end, if it succeeds."""
    rewards = np.zeros(1 + rng.integers(3))
    rewards[-1] = rng.random() < 0.6
    return rewards


class Walk:
    """A walk of at most twelve steps: each pays its place, and the agent decides where to."""

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """The beginning."""
        self.rng, self.at, self.t = np.random.default_rng(seed), 0, 0
        return np.zeros(2), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """One step on or back."""
        self.t += 1
        self.at = min(max(self.at + (1 if self.rng.random() < (0.7 if action else 0.4) else -1), 0), 4)
        seen = np.array([self.at, self.t], dtype=float)
        return seen, self.at / 4, bool(self.rng.random() < 0.1), self.t >= 12, {}


WALK: dict[str, Any] = {"horizon": 12, "reward_range": (0, 1)}


def episodes(name: str) -> pt.Episodes:
    """Episodes by the name of their kind."""
    if name.startswith("gym"):
        return pt.Episodes("CartPole-v1", lambda o: int(o[2] + 0.3 * o[3] > 0.05), horizon=60, reward_range=(0, 1))
    if name.startswith("vector"):
        import gymnasium

        envs = gymnasium.make_vec("CartPole-v1", num_envs=4, vectorization_mode="sync")
        return pt.Episodes(envs, lambda o: int(o[3] > 0), reward_range=(0, 1), horizon=60)
    kinds: dict[str, Callable[[], pt.Episodes]] = {
        "coin": lambda: pt.Episodes(lambda rng: rng.random() < 0.6, return_range=(0, 1)),
        "rare": lambda: pt.Episodes(lambda rng: float(rng.random() < 0.05), return_range=(0, 1)),
        "wide": lambda: pt.Episodes(lambda rng: rng.normal(0.6, 0.05), return_range=(-5, 5)),
        "tries": lambda: pt.Episodes(tries, horizon=3, reward_range=(0, 1), return_range=(0, 1)),
        "discounted": lambda: pt.Episodes(
            lambda rng: rng.random(1 + rng.geometric(0.2)), reward_range=(0, 1), discount=0.8
        ),
        "walk": lambda: pt.Episodes(Walk(), lambda o: 1, **WALK),
        "walk, discounted": lambda: pt.Episodes(Walk(), lambda o: 1, reward_range=(0, 1), discount=0.9),
        "critic": lambda: pt.Episodes(Walk(), lambda o: 1, critic=lambda o: (12 - o[1]) * 0.3, **WALK),
        "ridge": lambda: pt.Episodes(Walk(), lambda o: 1, critic=pt.RidgeCritic(), **WALK),
        "ridge, discounted": lambda: pt.Episodes(
            Walk(), lambda o: 1, critic=pt.RidgeCritic(), reward_range=(0, 1), discount=0.9
        ),
    }
    return kinds[name]()


BARS = {
    "coin": (0.45, 0.75), "rare": (0.01, 0.15), "wide": (0.2, 1.0), "tries": (0.45, 0.75), "discounted": (1.5, 2.6),
    "walk": (1.5, 3.6), "walk, discounted": (1.2, 2.6), "critic": (1.5, 3.6), "ridge": (1.5, 3.6),
    "ridge, discounted": (1.2, 2.6), "gym": (20.0, 55.0), "vector": (20.0, 55.0),
}  # fmt: skip


def returns() -> Entries:
    """Episodes of agents and functions: answers, deltas, zones, limits, intervals, pairs, plans, resuming."""

    def asked(name: str, side: int, **settings: Any) -> Any:
        return pt.decide(episodes(name), threshold=BARS[name][side], **{"rng": 0, "max_samples": 6000, **settings})

    for name, side, seed in product(BARS, (0, 1), range(3)):
        limit = 2500 if "ridge" in name or name in ("gym", "vector") else 6000
        yield (
            f"decide/{name}/{'above' if side == 0 else 'below'}/seed{seed}",
            later(asked, name, side, rng=seed, max_samples=limit),
        )
    for name, delta in product(("coin", "wide", "walk"), (0.3, 1e-6)):
        yield f"delta/{name}/{delta:g}", later(asked, name, 0, delta=delta)
    for name in ("coin", "walk", "critic"):
        yield f"zone/{name}", later(asked, name, 0, indifference=0.8 * (BARS[name][1] - BARS[name][0]))
        yield f"limit/{name}", later(asked, name, 0, delta=1e-09, max_samples=90)
        yield (
            f"stopping times/{name}",
            later(
                pt.stopping_times,
                later(episodes, name),
                threshold=BARS[name][0],
                deltas=(0.3, 0.05, 0.001),
                rng=1,
                max_samples=4000,
            ),
        )
    for name in ("coin", "wide", "tries", "discounted", "walk", "critic", "ridge"):
        width = 0.4 * (BARS[name][1] - BARS[name][0])
        yield (
            f"evaluate/{name}",
            later(pt.evaluate, later(episodes, name), epsilon=width, rng=2, max_samples=2500),
        )
    for name in ("coin", "walk", "critic", "ridge", "vector"):
        yield f"resumed/{name}", later(episodes_resumed, name)
    for margin, seed in product((-0.3, 0.0, 0.3), range(2)):
        yield f"pairs/{margin:g}/seed{seed}", later(pairs, margin, seed)
    yield "pairs/zone", later(pairs, 0.0, 1, indifference=0.4)
    for pilot in (20, 60):
        yield (
            f"plan/{pilot}",
            later(pt.plan, later(episodes, "tries"), threshold=0.4, pilot=pilot, rng=1, max_samples=600, runs=20),
        )
    yield "still needed", later(pt.still_needed, later(asked, "tries", 0, delta=0.001, max_samples=80), runs=4)


def pairs(margin: float, seed: int, **settings: Any) -> Any:
    """Two agents, episode by episode with the same seeds."""

    def gain(mean: float) -> pt.Episodes:
        def run(rng: np.random.Generator) -> Any:
            return np.clip(mean + 0.8 * (rng.random() - 0.5) + 0.02 * (rng.random() < mean), 0.0, 1.0)

        return pt.Episodes(run, return_range=(0, 1))

    return pt.compare(gain(0.55), gain(0.5), margin=margin, rng=seed, max_samples=3000, **settings)


def episodes_resumed(name: str) -> Any:
    """A run of episodes in three pieces, beside the run in one."""
    question: dict[str, Any] = {"threshold": BARS[name][0], "delta": 1e-3, "rng": 3}
    whole = pt.decide(episodes(name), max_samples=2500, **question)
    first = pt.decide(episodes(name), max_samples=whole.samples // 3, **question)
    second = pt.decide(episodes(name), max_samples=whole.samples // 2, resume=first, **question)
    return {"whole": whole, "resumed": pt.decide(episodes(name), max_samples=2500, resume=second, **question)}


def recorded(kind: str, rows: int, seed: int) -> tuple[pt.LoggedEpisodes, float]:
    """Recorded episodes of a kind, and the value of the target policy."""
    rng = np.random.default_rng(50 + seed)
    mu, pi, mean = np.array([0.6, 0.3, 0.1]), np.array([0.3, 0.2, 0.5]), np.array([0.3, 0.5, 0.7])
    if kind == "returns":
        log = pt.LoggedEpisodes(np.arange(rows), rng.beta(2, 3, rows), return_range=(0, 1))
        return log, 0.4
    if kind == "plain":
        sizes = rng.integers(1, 5, rows // 3)
        episode = np.repeat(np.arange(len(sizes)), sizes)
        log = pt.LoggedEpisodes(episode, rng.random(len(episode)), horizon=4, reward_range=(0, 1), discount=0.9)
        return log, 1.1
    if kind.startswith("steps"):
        episode, action = np.repeat(np.arange(rows // 2), 2), rng.choice(3, rows // 2 * 2, p=mu)
        reward = (rng.random(len(action)) < mean[action]).astype(float)
        more: dict[str, Any] = {"horizon": 2, "reward_range": (0, 1)}
        more |= {"smallest_propensity": 0.05} if "bound" in kind else {}
        more |= {"return_range": (0, 2)} if "range" in kind else {}
        return pt.LoggedEpisodes(episode, reward, mu[action], pi[action], **more), 2 * float(pi @ mean)
    action = rng.choice(3, rows, p=mu)
    reward = (rng.random(rows) < mean[action]).astype(float)
    bound: dict[str, Any] = {} if kind == "weights" else {"smallest_propensity": 0.05}
    if kind == "critics":
        bound |= {"q": np.clip(mean[action] + 0.1, 0, 1), "v": np.full(rows, float(pi @ mean) + 0.1)}
    log = pt.LoggedEpisodes(None, reward, mu[action], pi[action], reward_range=(0, 1), **bound)
    return log, float(pi @ mean)


def recorded_episodes() -> Entries:
    """Recorded episodes, with and without weights, bounds and critics."""
    kinds = ("returns", "plain", "weights", "bound", "critics", "steps", "steps, bound", "steps, range")

    def ask(kind: str, side: str, seed: int) -> Any:
        log, value = recorded(kind, 500, seed)
        return pt.assess(log, threshold=value + 0.2 * SIDES[side])

    for kind, side, seed in product(kinds, SIDES, range(2)):
        yield f"assess/{kind}/{side}/seed{seed}", later(ask, kind, side, seed)
    for kind, rows in product(kinds, (60, 500)):
        yield f"interval/{kind}/{rows}", later(pt.value_interval, recorded(kind, rows, 3)[0])
    for kind in kinds:
        yield f"one look/{kind}", later(pt.value_interval, recorded(kind, 500, 4)[0], looks="one")
        yield f"few/{kind}", later(pt.assess, recorded(kind, 60, 5)[0], threshold=recorded(kind, 60, 5)[1])

    def ladder(leave: tuple[float, ...], discount: float) -> Any:
        rng, rows = np.random.default_rng(1), []
        for one in range(60):
            gone, leaves = 0, float(rng.choice(leave))
            while not gone:
                gone = int(rng.random() < leaves)
                rows.append((one, gone))
        episode, x = (np.array(column) for column in zip(*rows, strict=True))
        task = pt.Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], discount, terminal=[1])
        log = pt.LoggedEpisodes(episode, np.ones(len(x)), discount=discount, reward_range=(0, 1))
        return pt.assess(task, pt.Transitions(0 * x, 0 * x, x), 4.5, episodes=log)

    for leave in ((0.3,), (0.9, 0.05)):
        yield f"ladder/{len(leave)}", later(ladder, leave, 0.9)


# ---------------------------------------------------------------- before sampling, and many runs


def planning() -> Entries:
    """Plans, forecasts, bounds, allocations and worst cases."""

    def planned(name: str, methods: Any, guess: Any = None, side: str = "above") -> Any:
        one = problem(name)
        kernel = guess if guess is not None else one.kernel
        return pt.plan(one.task, kernel, one.bar(side), methods=methods, runs=4, max_samples=2500)

    for name, side in product(("paper2", "short", "random4"), SIDES):
        yield f"TDBetting/{name}/{side}", later(planned, name, {"bets": made("TDBetting")}, side=side)
    yield "PTST/paper2", later(planned, "paper2", {"KL": local(batch=5)()})
    yield "Combined/paper2", later(lambda: planned("paper2", {"both": made("Combined")}))
    yield "default/paper2", later(planned, "paper2", None)
    yield "counts/short", later(planned, "short", {"bets": made("TDBetting")}, later(counts_of, "short", 200, 1))
    for name in ("paper2", "short", "end"):
        yield (
            f"still needed/{name}",
            later(
                pt.still_needed,
                later(decided, name, "above", later(made, "TDBetting"), max_samples=40),
                methods=[made("TDBetting")],
                runs=4,
                max_samples=2000,
            ),
        )
        yield (
            f"characteristic time/{name}",
            later(
                pt.characteristic_time,
                problem(name).task,
                problem(name).kernel,
                threshold=later(problem(name).bar, "above"),
            ),
        )
        yield (
            f"allocation/{name}",
            later(
                pt.optimal_allocation,
                problem(name).task,
                problem(name).kernel,
                threshold=later(problem(name).bar, "below"),
            ),
        )
    for name, solver in product(("paper2", "random4"), ("ProjectionFree", "SLSQPHeuristic", "Certified")):
        yield (
            f"worst case/{name}/{solver}",
            later(
                pt.nearest_kernel,
                problem(name).task,
                problem(name).kernel,
                later(np.ones, problem(name).task.policy.shape),
                later(problem(name).bar, "above"),
                later(made, solver),
            ),
        )

    def study(methods: Any, seeds: int) -> Any:
        instances = {"two": {"paper": 2}, "easy": {"random": {"seed": 3, "S": 3, "A": 2}, "gap": -0.8}}
        described = {"title": "t", "instances": instances, "methods": methods, "deltas": [0.01, 0.2], "seeds": seeds}
        names = ("instance", "method", "seed", "delta", "samples", "answer", "certified", "correct")
        return [[row[name] for name in names] for row in pt.study.run(described, jobs=1).table]

    yield "study/TDBetting", later(study, {"bets": {"method": "TDBetting"}}, 3)
    yield "study/PTST", later(study, {"KL": {"method": "PTST", "solver": "projection-free", "batch": 10}}, 1)
    yield "study/MonteCarlo", later(study, {"returns": {"method": "MonteCarlo"}}, 1)
    for name in ("random4", "end"):
        yield f"diagnose/{name}", later(pt.diagnose, problem(name).task, later(log_of, name, 1500, 7))


GROUPS: dict[str, Callable[[], Entries]] = {
    "decide/td_betting": decide_by_betting,
    "decide/beyond": beyond_the_table,
    "decide/default": decide_by_default,
    "decide/combined": decide_by_combined,
    "decide/draws": decide_by_a_mean_of_draws,
    "decide/ptst": decide_by_ptst,
    "decide/ptst_beyond": kl_beyond,
    "decide/baselines": baselines,
    "decide/monte_carlo": decide_by_monte_carlo,
    "decide/simulators": simulators,
    "decide/large": large_tasks,
    "decide/environments": environments,
    "runs": runs,
    "resume": resuming,
    "compare": two_policies,
    "assess": assessments,
    "files": files,
    "interval": intervals,
    "evaluate": estimates,
    "identify": best,
    "episodes": returns,
    "logged_episodes": recorded_episodes,
    "plan": planning,
}


def entries(prefixes: list[str]) -> dict[str, Later]:
    """The entries whose names begin so, all without a prefix."""
    found: dict[str, Later] = {}
    for group, make in GROUPS.items():
        if prefixes and not any(group.startswith(prefix[: len(group)]) for prefix in prefixes):
            continue
        for name, ask in make():
            full = f"{group}/{name}"
            assert full not in found, full
            if not prefixes or full.startswith(tuple(prefixes)):
                found[full] = ask
    return found


# ---------------------------------------------------------------- two lists


def differences(was: Any, now: Any, place: str = "") -> Iterator[tuple[str, Any, Any, float]]:
    """Where two results differ: the place, both values, and by how much (infinite where that is no number)."""
    if isinstance(was, dict) and isinstance(now, dict):
        for name in {**was, **now}:
            yield from differences(was.get(name, "missing"), now.get(name, "missing"), f"{place}.{name}".strip("."))
    elif isinstance(was, list) and isinstance(now, list) and len(was) == len(now):
        for index, (a, b) in enumerate(zip(was, now, strict=True)):
            yield from differences(a, b, f"{place}[{index}]")
    elif is_real(was) and is_real(now) and (isinstance(was, float) or isinstance(now, float)):
        yield place, was, now, distance(float(was), float(now))
    elif type(was) is not type(now) or was != now:
        yield place, was, now, math.inf


def is_real(value: Any) -> bool:
    """Whether it is a number, not a truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def distance(was: float, now: float) -> float:
    """The relative difference of two numbers, absolute below 1."""
    if was == now or (math.isnan(was) and math.isnan(now)):
        return 0.0
    found = abs(was - now) / max(1.0, abs(was))
    return found if math.isfinite(found) else math.inf


class Tally:
    """How the entries of a group compare."""

    def __init__(self) -> None:
        self.equal, self.different, self.skipped, self.largest, self.seconds = 0, 0, 0, 0.0, 0.0


def group_of(name: str) -> str:
    """The first two parts of a name."""
    return "/".join(name.split("/")[:2])


def compared_with(saved: dict[str, Any], chosen: dict[str, Later]) -> tuple[dict[str, Tally], list[str]]:
    """Ask again what was saved; the groups, and what differs in words."""
    groups: dict[str, Tally] = {}
    told: list[str] = []
    for name, was in saved.items():
        tally, started = groups.setdefault(group_of(name), Tally()), time.perf_counter()
        asked = entry(chosen[name]) if name in chosen else {"skipped": "no longer in the list"}
        asked = json.loads(json.dumps(asked))
        tally.seconds += time.perf_counter() - started
        if "skipped" in asked or "skipped" in was:
            tally.skipped += 1
            continue
        found = [one for one in differences(was, asked) if one[3] > 0]
        tally.largest = max([tally.largest, *(one[3] for one in found)])
        wrong = [one for one in found if one[3] > TOLERANCE]
        tally.different += bool(wrong)
        tally.equal += not wrong
        told += [f"{name}: {place} was {a}, is {b}" for place, a, b, _ in wrong[:4]]
    return groups, told


def shown(groups: dict[str, Tally]) -> str:
    """The groups as a table."""
    lines = ["| group | equal | different | skipped | largest difference | seconds |", "|---|---|---|---|---|---|"]
    total = Tally()
    for name, tally in groups.items():
        for part in ("equal", "different", "skipped", "seconds"):
            setattr(total, part, getattr(total, part) + getattr(tally, part))
        total.largest = max(total.largest, tally.largest)
        lines.append(row(name, tally))
    return "\n".join([*lines, row("all", total)])


def row(name: str, tally: Tally) -> str:
    """A group as a line of the table."""
    numbers = (tally.equal, tally.different, tally.skipped, f"{tally.largest:.1e}", f"{tally.seconds:.1f}")
    return f"| {name} | {' | '.join(map(str, numbers))} |"


def main() -> None:
    """Make the list, or compare with one that was made before."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    what = options.add_mutually_exclusive_group(required=True)
    what.add_argument("--save", type=Path, metavar="FILE", help="ask all, and keep the answers")
    what.add_argument("--compare", type=Path, metavar="FILE", help="ask again, and compare with the answers kept")
    what.add_argument("--list", action="store_true", help="print the names")
    options.add_argument("--only", nargs="+", default=[], metavar="PREFIX", help="the beginnings of names")
    options.add_argument("--without", nargs="+", default=[], metavar="PREFIX", help="names that are left out")
    given = options.parse_args()
    chosen = entries(given.only)
    if given.without:
        chosen = {name: ask for name, ask in chosen.items() if not name.startswith(tuple(given.without))}
    if given.list:
        print("\n".join(chosen))
    elif given.save:
        found = {}
        for name, ask in chosen.items():
            started = time.perf_counter()
            found[name] = entry(ask)
            if (seconds := time.perf_counter() - started) > 1.0:
                print(f"{name}: {seconds:.1f} s", file=sys.stderr)
        given.save.write_text(json.dumps(found, indent=0), encoding="utf-8")
        counted = {kind: sum(kind in one for one in found.values()) for kind in ("result", "error", "skipped")}
        print(f"{len(found)} entries: " + ", ".join(f"{count} {kind}" for kind, count in counted.items()))
    else:
        saved = json.loads(given.compare.read_text(encoding="utf-8"))
        prefixes = tuple(given.only)
        saved = {
            name: one
            for name, one in saved.items()
            if (not prefixes or name.startswith(prefixes))
            and not (given.without and name.startswith(tuple(given.without)))
        }
        groups, told = compared_with(saved, chosen)
        print(shown(groups))
        print("\n".join(told))
        sys.exit(1 if told or not saved else 0)


if __name__ == "__main__":
    main()
