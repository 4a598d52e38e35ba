r"""Before sampling: how many samples will the test take, and where should they go? And after it: how many more?

Everything here rests on a *guess* of the kernel: one kernel, several, or the counts of a pilot. At a guess p,

    any test with error delta needs   E[tau] >= T* kl(delta, 1-delta),    1/T* = max_omega inf_q sum omega KL(p, q),

and a given method needs its own mean number of samples, found by running it against p.

*What a pilot does not know.* Its counts N leave many kernels possible: rows from Dirichlet(N + a), with the one a, for
all rows, under which the counts are most probable. Few of these kernels are simulated, evenly spread over the size of
the gap |V_q - R|, and a power law  E[tau] = c |V_q - R|^b  is fitted to them, with what it leaves unexplained. Applied
to all kernels drawn it gives the distribution of E[tau]: its median is stated, and the range that holds nine tenths.

*Without simulation.* Of PTST with an allocation omega, the evidence to expect after t more samples is

    e(t) = distance(p, n + t omega) - (dimension term of N + t omega p),         and it stops where e(t) = log(1/delta).

That is within a few percent of the mean. It serves for the kernels around a pilot, for one kernel where simulation
would take long, and in `still_needed`, where n and N are the counts at hand.

All of it is limited by counts (runs, samples, solves), never by time, so that a seed fixes the result.

Paper: `thm:stat_lower`, `thm:sample`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse
from scipy.stats import norm
from scipy.stats import t as student

from policytest import _checks
from policytest._checks import FloatArray, InputError, IntArray, Kernel
from policytest._display import Row, Shown, Table, nats, number, plural, probability, to_json
from policytest.betting import TDBetting
from policytest.boundaries import Boundary, MixtureBoundary, PaperBoundary, average, boundary_terms, check_delta
from policytest.combined import Combined
from policytest.counts import Counts
from policytest.lower_bound import Allocation, characteristic_time, optimal_allocation, uniform_allocation
from policytest.method import Method
from policytest.ptst import PTST
from policytest.sequential import stopping_times
from policytest.simulators import TabularSimulator
from policytest.source import generator
from policytest.tally import Tally
from policytest.task import Task, occupancy, state_values, value, value_range, value_range_error
from policytest.verdict import Verdict
from policytest.worst_case import nearest_kernel
from policytest.worst_case.certified import Certified
from policytest.worst_case.projection_free import ProjectionFree

PRIORS = (0.5, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.7, 1.0, 1.5, 2.0, 4.0)  # of a pilot's rows; ties to the first
DRAWS, MOST_DRAWN = 400, 20_000_000  # kernels drawn around a pilot, and all their entries together
MAX_SAMPLES, WORK = 100_000, 4  # of a run; and of all runs of a method, relative to that
RUNS, FEW_RUNS, MANY_ENTRIES = 64, 16, 5_000  # of a method; fewer in tasks with more allowed transitions
EACH = 4  # runs against each of the kernels that are simulated
EXPLORE = 0.05  # the share of the best allocation that goes to all pairs equally
LEVEL = 0.90  # of the stated ranges
QUANTILES = (0.04, 0.5, 0.96)  # of E[tau] around a pilot: a little more than nine tenths, for what the law is off
OTHER_SIDE = 0.05  # share of draws beyond the threshold from which on a guess does not say the side
PROVED_STATES, PROOF_NODES = 10, 40
SIMULATED_ENTRIES = 400  # up to this many allowed transitions PTST is simulated at a single guess
FORMULA_ERROR = 0.1  # relative, of the expected evidence in place of a simulation; from three states on it was 3%
ALLOCATION_WORK, MOST_SOLVES, FEWEST_SOLVES = 6_000, 300, 6  # solves times pairs, for the best allocation
NEARER = 0.8  # the gap at which the sensitivity is stated
UNSURE = "the guess does not say on which side the value is"
Range = tuple[float, float, float]


@dataclass(frozen=True)
class Sensitivity:
    """How the answer changes if the guess is off.

    ``values`` holds nine tenths of the values V_q of the guesses, ``other_side`` is the share of them beyond the
    threshold, seen from the middle one, and ``nearer`` the factor by which T* grows if the gap is a fifth smaller.
    """

    words: str
    values: tuple[float, float]
    other_side: float
    nearer: float


@dataclass(frozen=True, eq=False)
class Plan(Shown):
    """What a test will take, if the guess is right.

    Attributes
    ----------
    value
        V of the guess.
    time
        A bracket of T*, the characteristic time of the best allocation at the guess. The lower end is proved; the
        upper one is too, in tasks of up to 10 states, and infinite elsewhere.
    bound
        T* kl(delta, 1-delta), of the lower end: no test needs fewer samples on average.
    allocation, saving
        The best `Allocation` at the guess, and T* of the uniform allocation relative to it.
    samples
        {method name: (mean, low, high)}, of every transition drawn. For one kernel the range is the uncertainty of the
        simulated mean; else it covers that of the guess as well: nine times in ten it holds the true mean.
    methods
        {method name: method}, ready for `decide`.
    at_least
        The names of methods whose runs were cut at ``max_samples``: their numbers are lower bounds.
    sensitivity
        How the answer changes if the guess is off.
    """

    task: Task = field(repr=False)
    threshold: float
    delta: float
    value: float
    time: tuple[float, float]
    bound: float
    allocation: Allocation = field(repr=False)
    saving: float
    samples: dict[str, Range]
    methods: dict[str, Any] = field(repr=False)
    at_least: frozenset[str]
    sensitivity: Sensitivity
    notes: tuple[str, ...] = ()

    @cached_property
    def summary(self) -> Table:
        """The plan as one table, for text, HTML and JSON."""
        low, high = self.time
        best = min(self.samples, key=lambda name: self.samples[name][0], default="")
        title = f"{best}: about {_shown(self.samples[best], best in self.at_least)} samples" if best else "A plan"
        upper = f"{number(_digits(low))} to {number(_digits(high))}" if math.isfinite(high) else f"at least {_few(low)}"
        rows = (
            Row("threshold R", number(self.threshold), "", "threshold", self.threshold),
            Row("delta", probability(self.delta), "probability of a wrong answer, at most", "delta", self.delta),
            Row("value of the guess", number(self.value), "", "value", self.value),
            Row("characteristic time T*", upper, "of the best allocation", "time", list(self.time)),
            Row("no test needs fewer than", _few(self.bound), "samples on average", "bound", self.bound),
            Row("the best allocation saves", self._saved(), "of T* with uniform sampling", "saving", self.saving),
            *(_samples_row(name, found, name in self.at_least) for name, found in self.samples.items()),
        )
        return Table(title, rows, (*self.notes, self.sensitivity.words))

    def _saved(self) -> str:
        return f"{1.0 - 1.0 / self.saving:.0%}" if math.isfinite(self.saving) and self.saving > 0 else "nothing"

    def to_json(self) -> str:
        """One JSON document, with "schema": 1; infinite numbers are written as strings."""
        about = self.sensitivity
        extra = {
            "samples": {name: list(found) for name, found in self.samples.items()},
            "methods": {name: method.describe() for name, method in self.methods.items()},
            "at_least": sorted(self.at_least),
            "allocation": self.allocation.weights,
            "sensitivity": {
                "words": about.words,
                "values": list(about.values),
                "other_side": about.other_side,
                "nearer": about.nearer,
            },
            "notes": list(self.notes),
        }
        return to_json({"schema": 1, **self.summary.data(), **extra})


def plan(
    task: Task,
    guess: Kernel | Counts | Sequence[Kernel],
    threshold: float = 0.0,
    delta: float = 0.05,
    methods: Mapping[str, Method] | Sequence[Method] | None = None,
    runs: int | None = None,
    rng: Any = 0,
    max_samples: int = MAX_SAMPLES,
) -> Plan:
    """How many samples will the test take, and where should they go, if the guess is right?

    Parameters
    ----------
    task, threshold, delta
        The question, as for `decide`.
    guess
        A kernel; or `Counts` of pilot draws, around which kernels are drawn; or a list of kernels.
    methods
        {name: method}, or a list of methods; by default those one would choose from.
    runs
        How often each method is simulated, over all guesses together; 64 times by default, 16 times in large tasks,
        and no more once 4 ``max_samples`` samples were drawn.
    rng
        A seed or a Generator; it fixes the plan.
    max_samples
        Where a simulated run is cut; what is then known is a lower bound, and shown as ">".

    Paper: `thm:stat_lower`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> found = plan(two.task, two.kernel, methods={"PTST": pt.PTST(solver=pt.ProjectionFree())}, runs=20)
    >>> mean, low, high = found.samples["PTST"]
    >>> low < mean < high and found.bound < mean
    True
    """
    _checks.instance("task", task, Task)
    question = _Question(task, _checks.real_number("threshold", threshold), check_delta(delta), generator(rng))
    runs, limit = _runs(task, runs), _whole("max_samples", max_samples, 1)
    guesses = _guesses(question, guess)
    best = best_allocation(task, guesses.kernel, question.threshold)
    named = _named(task, methods, best)
    samples, cut = {}, set()
    for name, method in named.items():
        question.left = WORK * limit
        samples[name], is_cut = guesses.predict(question, method, runs, limit)
        cut |= {name} if is_cut else set()
    return _assemble(question, guesses, best, samples, named, frozenset(cut))


def _assemble(
    question: _Question,
    guesses: _Guesses,
    best: Allocation,
    samples: dict[str, Range],
    named: dict[str, Any],
    cut: frozenset[str],
) -> Plan:
    task, R = question.task, question.threshold
    time = _bracket(task, guesses.kernel, best, R)
    uniform = characteristic_time(task, guesses.kernel, None, R, _solver(task)).time
    notes = list(guesses.notes)
    unsure = guesses.other_side > OTHER_SIDE or time[0] == math.inf
    if unsure:
        samples = {name: (mean, low, math.inf) for name, (mean, low, _) in samples.items()}
        notes.append(f"Beware: {UNSURE}.")
    return Plan(
        task=task,
        threshold=R,
        delta=question.delta,
        value=value(task, guesses.kernel),
        time=time,
        bound=time[0] * _kl(question.delta),
        allocation=best,
        saving=_ratio(uniform, best.time),
        samples=samples,
        methods=named,
        at_least=cut,
        sensitivity=_sensitivity(question, guesses, uniform),
        notes=tuple(notes),
    )


def best_allocation(task: Task, kernel: Kernel, threshold: float) -> Allocation:
    """`optimal_allocation`; with fewer solves in tasks of many pairs, where the shares of `_neyman` may be better."""
    pairs = int(((task.policy > 0) & ~task.known_rows).sum())
    solves = max(FEWEST_SOLVES, ALLOCATION_WORK // max(pairs, 1))
    is_large = _entries(task) > MANY_ENTRIES
    if is_large and task.any_successor:  # each solve lists the successors it wants, one after the other
        solves = 1
    solver = _solver(task) if is_large else None
    best = optimal_allocation(task, kernel, threshold, solver, max_solves=min(MOST_SOLVES, solves))
    if solves >= MOST_SOLVES or best.time in (0.0, math.inf):
        return best
    weights = _neyman(task, kernel)
    time = characteristic_time(task, kernel, weights, threshold, _solver(task)).time
    return replace(best, weights=weights, time=time) if time < best.time else best


def _solver(task: Task) -> ProjectionFree:
    """Of all distances here; in large tasks no more accurate than a plan can be. What it finds is feasible anyway."""
    return ProjectionFree() if _entries(task) <= MANY_ENTRIES else ProjectionFree(tolerance=1e-5, max_iterations=25)


def _neyman(task: Task, kernel: Kernel) -> FloatArray:
    """[S,A] the best shares for a threshold close to the value: in proportion to d(s) pi(a|s) sd(r + gamma V(x)).

    The variance of the estimated value is, to first order, the sum of (d pi)^2 var(r + gamma V)/n over pairs.
    """
    rows, p, _ = task.rows_of("kernel", task.check_kernel("kernel", kernel))
    gain = rows.rewards() + task.discount * state_values(task, kernel)[rows.successor]
    centred = gain - rows.per_entry(rows.sums(p * gain))
    weights = np.zeros(task.policy.size)
    weights[rows.pair] = occupancy(task, kernel)[rows.state] * rows.prob * np.sqrt(rows.sums(p * centred**2))
    even = uniform_allocation(task)
    weights = np.where(even > 0, weights.reshape(even.shape), 0.0)
    return _mixed(weights / weights.sum(), even) if weights.any() else even


def _mixed(weights: FloatArray, even: FloatArray) -> FloatArray:
    """Most of it as these shares say, and a little everywhere."""
    return np.asarray((1.0 - EXPLORE) * weights + EXPLORE * even)


def _bracket(task: Task, kernel: Kernel, best: Allocation, threshold: float) -> tuple[float, float]:
    """(proved lower end, upper end) of T*: of all allocations, and of the best one found."""
    lower = math.inf if best.upper_bound == 0 else 1.0 / best.upper_bound
    if best.time in (0.0, math.inf):
        return best.time, best.time
    if task.n_states > PROVED_STATES:
        return lower, math.inf
    proved = characteristic_time(task, kernel, best.weights, threshold, Certified(max_nodes=PROOF_NODES))
    return lower, max(lower, proved.bracket[1])


def _kl(delta: float) -> float:
    """kl(delta, 1-delta); nothing is promised, and nothing needed, at delta of 1/2 and more."""
    return (1.0 - 2.0 * delta) * (math.log1p(-delta) - math.log(delta)) if delta < 0.5 else 0.0


def _ratio(time: float, best: float) -> float:
    return time / best if 0.0 < best < math.inf and time < math.inf else 1.0


def _named(task: Task, methods: Any, best: Allocation) -> dict[str, Any]:
    """The methods by name: the default ones, those of a mapping, or a list under their own descriptions."""
    if methods is None:
        mixed = _mixed(best.weights, uniform_allocation(task))
        solver = ProjectionFree()
        return {
            "Combined": Combined(),
            "TDBetting": TDBetting(),
            "PTST, uniform": PTST(solver=solver),
            "PTST, best allocation": PTST(solver=solver, allocation=mixed),
        }
    named = dict(methods) if isinstance(methods, Mapping) else _by_description(methods)
    for name, method in named.items():
        if isinstance(method, type) or not (hasattr(method, "start") and hasattr(method, "describe")):
            raise InputError(f"methods[{name!r}] is {method!r}; pass methods such as Combined(), with its parentheses")
    return named


def _by_description(methods: Any) -> dict[str, Any]:
    if isinstance(methods, str) or not isinstance(methods, Sequence):
        raise InputError(f"methods is {methods!r}; pass a list of methods, or a dictionary of names and methods")
    named: dict[str, Any] = {}
    for index, method in enumerate(methods):
        is_method = hasattr(method, "describe") and not isinstance(method, type)
        words = method.describe() if is_method else str(index)
        named[words if words not in named else f"{words} ({index})"] = method
    return named


def _runs(task: Task, runs: int | None) -> int:
    return _whole("runs", runs, 2) if runs is not None else RUNS if _entries(task) <= MANY_ENTRIES else FEW_RUNS


def _whole(name: str, given: Any, least: int) -> int:
    count = _checks.whole_number(name, given)
    if count < least:
        raise InputError(f"{name} is {count}; it must be at least {least}")
    return count


# ---------------------------------------------------------------- guesses


@dataclass
class _Question:
    task: Task
    threshold: float
    delta: float
    rng: np.random.Generator
    left: int = 0  # samples that may still be simulated for the method at hand


class _Guesses:
    """One kernel or several: ``kernel`` is the middle one, ``gaps`` [M] are V_q - R of all."""

    def __init__(self, question: _Question, kernels: list[Kernel]) -> None:
        self.kernels = kernels
        self.kernel = kernels[0] if len(kernels) == 1 else _mean(kernels)
        self.gaps = np.array([value(question.task, q) for q in kernels]) - question.threshold
        self.middle = value(question.task, self.kernel) - question.threshold
        self.notes: tuple[str, ...] = ()

    @property
    def other_side(self) -> float:
        """The share of guesses beyond the threshold, seen from the middle one."""
        return float((self.gaps * self.middle <= 0.0).mean())

    def predict(self, question: _Question, method: Any, runs: int, limit: int) -> tuple[Range, bool]:
        """The mean over the guesses, from the smallest to the largest with their Monte-Carlo error; and if cut."""
        each = max(2, runs // len(self.kernels))
        expected = _has_formula(method) and _is_large(question.task)
        found = [_mean_samples(question, q, method, each, limit, expected) for q in self.kernels]
        means = np.array([mean for mean, _, _ in found])
        errors = np.array([error for _, error, _ in found])
        width = 1.0 if expected else student.ppf(0.5 + LEVEL / 2, each - 1)
        is_cut = any(cut for _, _, cut in found)
        low, high = max(float((means - width * errors).min()), 0.0), float((means + width * errors).max())
        return (float(means.mean()), low, math.inf if is_cut else high), is_cut


class _Pilot(_Guesses):
    """Counts of a pilot, and the kernels they leave possible."""

    def __init__(self, question: _Question, counts: Counts) -> None:
        task = question.task
        self.tally = tally = Tally(task, question.threshold, MixtureBoundary(PRIORS))
        tally.load(counts)
        by_prior = tally.terms.dimensions(tally.rows.start, tally.N, tally.n)
        self.prior = PRIORS[int(np.argmin(by_prior))]
        self.kernel = self._scatter(tally.rows.to_one(tally.N + self.prior))
        many = int(np.clip(MOST_DRAWN // max(tally.rows.n_entries, 1), 20, DRAWS))
        self.seeds = question.rng.integers(2**62, size=many)
        self.gaps = np.array([tally.value_of(self._draw(seed))[0] for seed in self.seeds])
        self.middle = tally.value_of(tally.rows.to_one(tally.N + self.prior))[0]
        drawn = f"{many} kernels from Dirichlet(N + {self.prior:g}) around {plural(counts.total, 'pilot draw')}"
        self.notes = (f"The guess: {drawn}.",)
        if tally.is_open:
            self.notes += ("Successors that the pilot never saw are left out of the guess.",)

    def _draw(self, seed: int) -> FloatArray:
        """[E] rows from Dirichlet(N + a)."""
        rows = self.tally.rows
        mass = np.random.default_rng(seed).standard_gamma(self.tally.N + self.prior)
        empty = rows.per_entry(rows.sums(mass)) <= 0.0
        return rows.to_one(np.where(empty, 1.0, mass))

    def _scatter(self, entries: FloatArray) -> Kernel:
        task = self.tally.task
        S, A = task.n_states, task.n_actions
        is_small = not _checks.is_sparse(task.support) and S * A * S <= MOST_DRAWN
        like: Any = np.full((S, A, S), 1.0 / S) if is_small else sparse.csr_array((S * A, S))
        return self.tally.rows.scatter(entries, like, S)

    def predict(self, question: _Question, method: Any, runs: int, limit: int) -> tuple[Range, bool]:
        """Quantiles of the fitted law over all draws; and whether the runs were cut where the median lies."""
        expected = _has_formula(method)
        chosen = _spread(np.abs(self.gaps), max(runs // EACH, 4))
        size, logs, within = [], [], []
        is_cut = False
        for index in chosen:  # the widest gap first: beyond one that is cut, all are
            kernel = self._scatter(self._draw(self.seeds[index]))
            mean, error, is_cut = _mean_samples(question, kernel, method, EACH, limit, expected)
            if is_cut:
                break
            size.append(abs(self.gaps[index]))
            logs.append(math.log(max(mean, 1.0)))
            within.append((error / max(mean, 1.0)) ** 2)
            if question.left <= 0 and len(size) > 3:
                break
        if not size:
            return (float(limit), float(limit), math.inf), True
        law = _Law.fit(np.array(size), np.array(logs), 0.0 if expected else float(np.mean(within)))
        low, mean, high = law.quantiles(np.abs(self.gaps), question.rng)
        if is_cut and mean > limit:
            return (float(limit), min(low, float(limit)), math.inf), True
        return (mean, low, math.inf if is_cut and high > limit else high), False


@dataclass(frozen=True)
class _Law:
    """log E[tau] = level + slope log(gap), with a standard deviation ``spread`` of what that leaves unexplained."""

    level: float
    slope: float
    spread: float

    @classmethod
    def fit(cls, gap: FloatArray, logs: FloatArray, noise: float) -> _Law:
        """Least squares. ``noise`` is the variance of a logarithm that is due to few runs: it biases by -noise/2."""
        x = np.log(np.maximum(gap, 1e-300))
        centred = x - x.mean()
        moment = float(centred @ centred)
        slope = float(centred @ logs) / moment if len(x) > 3 and moment > 0 else 0.0
        left = logs - logs.mean() - slope * centred
        freedom = max(len(x) - (2 if slope else 1), 1)
        variance = float(left @ left) / freedom
        spread = math.sqrt(max(variance - noise, 0.0) + variance / len(x))
        return cls(float(logs.mean()) - slope * float(x.mean()) + noise / 2, slope, spread)

    def quantiles(self, gaps: FloatArray, rng: np.random.Generator) -> tuple[float, float, float]:
        """The lower end, the median and the upper end of the range of E[tau] over these gaps."""
        logs = self.level + self.slope * np.log(np.maximum(gaps, 1e-300)) + self.spread * rng.standard_normal(len(gaps))
        low, middle, high = np.exp(np.minimum(np.quantile(logs, QUANTILES), 700.0))
        return float(low), float(middle), float(high)


def _spread(sizes: FloatArray, count: int) -> IntArray:
    """The indices of so many of them, evenly spread over their ranks, the largest first."""
    order = np.argsort(-sizes, kind="stable")
    at = (np.arange(count) + 0.5) / count * len(sizes)
    return np.asarray(order[np.unique(at.astype(np.int64))])


def _guesses(question: _Question, guess: Any) -> _Guesses:
    task = question.task
    if isinstance(guess, Counts):
        _checks.check_shape("guess", (guess.n_states, guess.n_actions), (task.n_states, task.n_actions))
        return _Pilot(question, guess)
    kernels = list(guess) if _is_list(guess) else [guess]
    if not kernels:
        raise InputError("guess is empty; pass a kernel, Counts, or a list of kernels")
    several = len(kernels) > 1
    checked = [task.check_kernel(f"guess[{i}]" if several else "guess", q) for i, q in enumerate(kernels)]
    for index, q in enumerate(checked):
        task.rows_of(f"guess[{index}]" if several else "guess", q)
    return _Guesses(question, checked)


def _is_list(guess: Any) -> bool:
    """A list of kernels, not a kernel written as a list."""
    return isinstance(guess, list | tuple) and (not guess or _checks.is_sparse(guess[0]) or np.ndim(guess[0]) == 3)


def _mean(kernels: list[Kernel]) -> Kernel:
    """Their average, which is a kernel too."""
    total = kernels[0]
    for q in kernels[1:]:
        total = total + q if _checks.is_sparse(total) == _checks.is_sparse(q) else _dense(total, q) + _dense(q, total)
    return total / len(kernels)


def _dense(kernel: Kernel, other: Kernel) -> FloatArray:
    shape = other.shape if _checks.is_sparse(kernel) else kernel.shape
    return np.asarray(kernel.toarray() if _checks.is_sparse(kernel) else kernel).reshape(shape)


# ---------------------------------------------------------------- the mean number of samples at one kernel


def _mean_samples(
    question: _Question, kernel: Kernel, method: Any, runs: int, limit: int, expected: bool
) -> tuple[float, float, bool]:
    """(mean, its standard error, whether it is only a lower bound) of a method's samples against a kernel."""
    task, R = question.task, question.threshold
    low, high = value_range(task)
    reach = 4.0 * value_range_error(task)
    if low - reach > R or high + reach < R:
        return 0.0, 0.0, False
    if abs(value(task, kernel) - R) <= reach:
        return math.inf, 0.0, True
    found = (0.0, 0.0, True) if expected else _simulate(question, kernel, method, runs, limit)
    if found[2] and _has_formula(method):
        mean = _expected(question, kernel, method)
        return mean, FORMULA_ERROR * mean if mean < math.inf else 0.0, mean == math.inf
    return found


def _simulate(question: _Question, kernel: Kernel, method: Any, runs: int, limit: int) -> tuple[float, float, bool]:
    """The same by running it; no more runs are made once many were cut."""
    sim, found, cut = TabularSimulator(kernel), [], 0
    for seed in question.rng.integers(2**62, size=runs):
        run = stopping_times(question.task, sim, question.threshold, [question.delta], method, int(seed), limit)
        found.append(int(run.samples[0]))
        cut += run.answers[0] is None
        question.left -= found[-1]
        if len(found) > 1 and (cut > 1 or question.left <= 0):
            break
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    return float(np.mean(found)), error, cut > 0


def _has_formula(method: Any) -> bool:
    """Whether the expected evidence can stand for a simulation: PTST with fixed shares, and no proof to wait for."""
    if not isinstance(method, PTST) or method.zeta is not None or getattr(method.solver, "proves", False):
        return False
    return isinstance(method.allocation, np.ndarray) or method.allocation == "uniform"


def _is_large(task: Task) -> bool:
    return _entries(task) > SIMULATED_ENTRIES


def _entries(task: Task) -> int:
    """How many transitions are allowed."""
    return len(task._pairs.pair) * task.n_states if task.any_successor else task._rows.n_entries


def _expected(question: _Question, kernel: Kernel, method: PTST) -> float:
    """The t at which the expected evidence of PTST, t/T* - (dimension term of t omega p), reaches log(1/delta)."""
    task = question.task
    omega = method.allocation if isinstance(method.allocation, np.ndarray) else uniform_allocation(task)
    rate = nearest_kernel(task, kernel, omega, question.threshold, _solver(task)).upper
    prospect = Prospect(task, question.threshold, question.delta, kernel, method.boundary)
    return prospect.time(lambda t: t * omega, lambda t: t * rate)


class Prospect:
    """The evidence to expect after further samples, if a kernel is true: e = distance - (dimension term)."""

    def __init__(
        self,
        task: Task,
        threshold: float,
        delta: float,
        kernel: Kernel,
        boundary: Boundary,
        counts: Counts | None = None,
        share: float = 1.0,  # of the distance that counts: a solver with a proof may fall a little short of it
    ) -> None:
        self.task, self.threshold, self.required, self.share = task, threshold, -math.log(delta), share
        self.kernel = kernel
        self.rows, self.p, _ = task.rows_of("kernel", kernel)
        self.terms = boundary_terms(boundary, task, self.rows)
        self.N, self.n = np.zeros(self.rows.n_entries), np.zeros(len(self.rows.pair))
        if counts is not None:
            self.N = self.rows.pick(counts.N, task.n_states)
            self.n = counts.visits.ravel()[self.rows.pair].astype(np.float64)

    def visits(self) -> FloatArray:
        """[S,A] the visits so far."""
        table = np.zeros(self.task.n_states * self.task.n_actions)
        table[self.rows.pair] = self.n
        return table.reshape(self.task.n_states, self.task.n_actions)

    def distance(self, more: FloatArray) -> float:
        """The distance to the other side after these further samples [S,A], if they turn out as expected."""
        return nearest_kernel(self.task, self.kernel, self.visits() + more, self.threshold, _solver(self.task)).upper

    def dimension(self, more: FloatArray) -> float:
        """The dimension term then."""
        extra = more.ravel()[self.rows.pair]
        N = self.N + self.rows.per_entry(extra) * self.p
        return average(self.terms.dimensions(self.rows.start, N, self.n + extra))

    def time(self, more: Callable[[float], FloatArray], distance: Callable[[float], float]) -> float:
        """The least t at which distance(t) - dimension(more(t)) reaches log(1/delta), to one in a thousand."""

        def missing(t: float) -> float:
            return self.required + self.dimension(more(t)) - self.share * distance(t)

        if missing(0.0) <= 0.0:
            return 0.0
        low, high = 0.0, 64.0
        while missing(high) > 0.0:
            low, high = high, 4.0 * high
            if high > 1e15:
                return math.inf
        while high - low > max(1e-3 * high, 0.5):
            middle = 0.5 * (low + high) if low == 0.0 or high < 4.0 * low else math.sqrt(low * high)
            low, high = (low, middle) if missing(middle) <= 0.0 else (middle, high)
        return float(math.ceil(high))


# ---------------------------------------------------------------- words


def _sensitivity(question: _Question, guesses: _Guesses, uniform: float) -> Sensitivity:
    task, R, tail = question.task, question.threshold, (1.0 - LEVEL) / 2
    nearer = math.nan
    if 0.0 < uniform < math.inf:
        closer = R + (1.0 - NEARER) * guesses.middle
        nearer = characteristic_time(task, guesses.kernel, None, closer, _solver(task)).time / uniform
    low, high = (float(v) for v in np.quantile(guesses.gaps, [tail, 1.0 - tail]) + R)
    words = f"If the threshold were a fifth nearer to the value, T* would be {nearer:.2f} times as long."
    if not math.isfinite(nearer):
        words = "No allocation of samples matters at this guess."
    if len(guesses.gaps) > 1:
        words = f"The guesses put the value between {number(_digits(low))} and {number(_digits(high))}. " + words
    if guesses.other_side > 0.0 and guesses.middle != 0.0:
        words += f" {probability(guesses.other_side)} of the guesses are beyond the threshold."
    return Sensitivity(words, (low, high), guesses.other_side, nearer)


def _samples_row(label: str, found: Range, is_cut: bool) -> Row:
    """The samples of a method, with their range."""
    return Row(label, f"{_shown(found, is_cut)} samples", f"mean, between {_few(found[1])} and {_few(found[2])}")


def _shown(found: Range, is_cut: bool) -> str:
    return (">" if is_cut and math.isfinite(found[0]) else "") + _few(found[0])


def _digits(x: float) -> float:
    """Three significant digits; whole numbers where it has more."""
    return float(f"{x:.3g}") if math.isfinite(x) and abs(x) < 1e4 else round(x) if math.isfinite(x) else x


def _few(x: float) -> str:
    """A number of samples in words, rounded to what is known of it."""
    if not math.isfinite(x):
        return number(x)
    return number(round(float(f"{x:.3g}")) if x >= 10 else _digits(x))


# ---------------------------------------------------------------- what is still needed


@dataclass(frozen=True, eq=False)
class Needed(Shown):
    """How many more samples an undecided test needs, and from which pairs.

    Attributes
    ----------
    samples
        Of the KL rule: so many more, drawn as ``pairs`` [S,A] says, settle it with probability ``chance``, about.
        Infinite where the data do not say on which side the value is.
    uniform
        The same for uniform sampling.
    expected
        The same if they turn out just as the estimate says.
    fresh, at_least
        {method name: (mean, low, high)}: what a new run of other methods takes, and those that were cut; see `Plan`.
    words
        All of it in a sentence.
    """

    task: Task = field(repr=False)
    samples: float
    uniform: float
    expected: float
    chance: float
    pairs: IntArray = field(repr=False)
    evidence: float
    required: float
    fresh: dict[str, Range]
    at_least: frozenset[str]
    words: str

    @cached_property
    def summary(self) -> Table:
        """The answer as one table, for text, HTML and JSON."""
        odds = f"settles it with probability {probability(self.chance)}, about"
        rows = (
            Row("evidence now", nats(self.evidence), f"of {nats(self.required)} required", "evidence", self.evidence),
            Row("more samples, best allocation", number(self.samples), odds, "samples", self.samples),
            Row("more samples, uniform", number(self.uniform), odds, "uniform", self.uniform),
            Row("if all turns out as estimated", number(self.expected), "best allocation", "expected", self.expected),
            *(
                _samples_row(f"or a new run: {name}", found, name in self.at_least)
                for name, found in self.fresh.items()
            ),
        )
        return Table(self.words, rows)

    def to_json(self) -> str:
        """One JSON document, with "schema": 1; infinite numbers are written as strings."""
        extra = {
            "chance": self.chance,
            "required": self.required,
            "pairs": self.pairs,
            "fresh": {name: list(found) for name, found in self.fresh.items()},
            "at_least": sorted(self.at_least),
            "words": self.words,
        }
        return to_json({"schema": 1, **self.summary.data(), **extra})


def still_needed(
    verdict: Verdict,
    methods: Mapping[str, Method] | Sequence[Method] | None = None,
    rng: Any = 0,
    chance: float = 0.8,
    runs: int = 32,
    max_samples: int = MAX_SAMPLES,
) -> Needed:
    r"""How many more samples would settle an undecided test, and from which pairs?

    The KL rule goes on from the counts N, n at hand: new samples are drawn from the pairs that are behind the shares of
    the best allocation at the estimate. If they turn out as estimated, the distance D(t) to the other side is that of
    the visits then. But the gap V - R is known only up to an error: D_0 being the distance now, the estimate of the gap
    after t samples differs from the present one by the factor 1 - z r, z standard normal,

        r^2 = 1/(2 D_0) - 1/(2 D(t)),        so the distance is about     (1 - z r)^2 D(t)

    (a distance being, near by, gap^2/2 over the variance of the estimated gap), and z is such that this suffices with
    probability ``chance``. Other methods begin anew: ``methods``, by default `Combined()`, is simulated at the kernels
    that the counts leave possible, as `plan` does.

    Parameters
    ----------
    verdict
        An undecided one, of `assess`, or of `decide` with ``max_samples``.
    methods, rng, runs, max_samples
        Of the new runs, as in `plan`; an empty dictionary leaves them out.
    chance
        How sure the number of samples should be.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> counts = pt.Counts.from_array(np.rint(40 * two.kernel))
    >>> needed = still_needed(pt.assess(two.task, counts), methods={})
    >>> bool(needed.samples == needed.pairs.sum()) and needed.expected < needed.samples
    True
    """
    _checks.instance("verdict", verdict, Verdict)
    if not 0.5 <= _checks.real_number("chance", chance) < 1.0:
        raise InputError(f"chance is {chance}; it is a probability of at least 1/2, and below 1")
    rng = generator(rng)
    runs, limit = _whole("runs", runs, 2), _whole("max_samples", max_samples, 1)
    task = verdict.task
    nothing = np.zeros((task.n_states, task.n_actions), dtype=np.int64)
    if verdict.answer is not None or not ((task.policy > 0) & ~task.known_rows).any():
        words = "No more samples are needed." if verdict.answer else "No samples can settle it: no row is unknown."
        more = 0 if verdict.answer else math.inf
        have = max(verdict.evidence)
        return Needed(task, more, more, more, chance, nothing, have, verdict.required, {}, frozenset(), words)
    ahead = _Ahead(verdict, chance)
    pairs = ahead.pairs(ahead.z)
    total, expected = _total(pairs), _total(ahead.pairs(0.0))
    given = {"Combined": Combined()} if methods is None else methods
    fresh, cut = {}, frozenset[str]()
    if given:
        found = plan(task, verdict.counts, verdict.threshold, verdict.delta, given, runs, rng, limit)
        fresh, cut = found.samples, found.at_least
    words = _needed_words(task, total, nothing if pairs is None else pairs, fresh, cut)
    return Needed(
        task=task,
        samples=total,
        uniform=ahead.uniform(),
        expected=expected,
        chance=chance,
        pairs=nothing if pairs is None else pairs,
        evidence=ahead.evidence,
        required=verdict.required,
        fresh=fresh,
        at_least=cut,
        words=words,
    )


def _total(pairs: IntArray | None) -> float:
    return math.inf if pairs is None else int(pairs.sum())


class _Ahead:
    """The KL rule from the counts of a verdict on."""

    def __init__(self, verdict: Verdict, chance: float) -> None:
        task, R, counts = verdict.task, verdict.threshold, verdict.counts
        self.task, self.z = task, float(norm.ppf(chance))
        boundary: Boundary = PaperBoundary() if "PaperBoundary" in verdict.method else MixtureBoundary()
        share = 1.0 if "ProjectionFree" in verdict.method else 1.0 - Certified().gap
        kernel = counts.kernel(task)
        self.prospect = Prospect(task, R, verdict.delta, kernel, boundary, counts, share)
        self.visits = self.prospect.visits()
        self.now = self.prospect.distance(np.zeros_like(self.visits)) if counts.total else 0.0
        self.evidence = self.now - self.prospect.dimension(np.zeros_like(self.visits))
        self.omega = _mixed(best_allocation(task, kernel, R).weights, uniform_allocation(task))

    def pairs(self, z: float) -> IntArray | None:
        """[S,A] how many more from each pair, tracking the best shares; None where no number is enough."""
        total = self._time(self._behind, z)
        return np.asarray(np.ceil(self._behind(total)), dtype=np.int64) if math.isfinite(total) else None

    def uniform(self) -> float:
        """How many more, drawn uniformly."""
        even = uniform_allocation(self.task)
        found = self._time(lambda t: t * even, self.z)
        return int(found) if math.isfinite(found) else math.inf

    def _behind(self, total: float) -> FloatArray:
        """[S,A] what tracking adds until every pair has its share of this total."""
        return np.asarray(np.maximum(total * self.omega - self.visits, 0.0) * (self.omega > 0))

    def _time(self, more: Callable[[float], FloatArray], z: float) -> float:
        """The time at which it is settled, at so many standard deviations of the gap; infinite where it never is."""
        if z > 0 and 2.0 * self.now <= z * z:  # the gap may be of the other sign
            return math.inf

        def distance(t: float) -> float:
            extra = more(t)
            then = self.prospect.distance(extra) if extra.any() else self.now
            if z == 0 or then <= self.now:
                return then
            r = math.sqrt(0.5 / self.now - 0.5 / then)
            return max(1.0 - z * r, 0.0) ** 2 * then

        return self.prospect.time(more, distance)


def _needed_words(task: Task, total: float, pairs: IntArray, fresh: Mapping[str, Range], cut: frozenset[str]) -> str:
    """One sentence: how many more, where most of them go, and whether a new run takes fewer."""
    if not math.isfinite(total):
        words = "The data at hand do not say on which side the value is, so no number of further samples is enough"
    elif total == 0:
        words = "No more samples should be needed: the evidence is there, and lacks only its proof"
    else:
        top = [pair for pair in np.argsort(-pairs.ravel(), kind="stable")[:3] if pairs.ravel()[pair] > 0]
        places = ", ".join(f"{number(int(pairs.ravel()[pair]))} from {task.place(int(pair))}" for pair in top)
        words = f"About {plural(int(total), 'more sample')} should settle it, {places}"
        words += " and the rest elsewhere" if pairs.ravel()[top].sum() < total else ""
    best = min(fresh, key=lambda name: fresh[name][0], default="")
    if best and best not in cut and fresh[best][0] < total:
        words += f"; a new run of {best} takes about {_few(fresh[best][0])}"
    return words + "."
