r"""What a guess of the kernel says of a method's samples: one kernel, several, or the counts of a pilot.

At one kernel the method is run against it; of PTST with fixed shares the expected evidence serves as well
(`plan.expected`). A pilot leaves many kernels possible (`plan.posterior`): few of them are simulated, evenly spread
over the size of the gap |V_q - R|. For all others log E[tau] is read off a straight line in the logarithm of the gap,
with noise as large as what the line leaves unexplained. Stated are the median of E[tau], the share of it within a
factor 1.5 of that, and the range that holds nine tenths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeGuard

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray, Kernel
from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.data.counts import Counts
from policytest.data.reward_moments import RewardMoments
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.ptst import PTST
from policytest.methods.run import Method
from policytest.questions.decide import stopping_times
from policytest.questions.plan.expected import any_unknown, expected_samples
from policytest.questions.plan.posterior import Posterior
from policytest.questions.plan.truth import WITH_REWARDS, RewardLaw, Truth, law_of_values, law_with_means, mixed
from policytest.questions.recorded import check_indices
from policytest.results.plan import FACTOR
from policytest.worst_case.problem import proves

EACH = 4  # runs against each of the kernels that are simulated
LEVEL = 0.90  # of the stated ranges
LEAST_RUNS = 20  # of which a twentieth is one
QUANTILES = (0.04, 0.5, 0.96)  # of E[tau] around a pilot: a little more than nine tenths, for what the line is off
SIMULATED_ENTRIES = 400  # up to this many allowed transitions PTST is simulated at a single guess
FORMULA_ERROR = 0.1  # relative, of the expected evidence in place of a simulation; from three states on it was 3%


@dataclass
class PlanQuestion:
    """What is asked of a method, the randomness, where a run is cut, and the samples that may still be simulated."""

    task: Task
    threshold: float
    delta: float
    rng: np.random.Generator
    limit: int
    left: int = 0

    def spend(self, samples: int) -> None:
        """So many were simulated."""
        self.left -= samples


@dataclass(frozen=True)
class Prediction:
    """The mean number of samples; if ``is_cut`` a lower bound. ``sure``: with which probability it is right, or nan.

    ``runs`` are the ends between which nine runs in ten lie; None if too few were made.
    """

    mean: float
    low: float
    high: float
    is_cut: bool = False
    sure: float = math.nan
    runs: tuple[float, float] | None = None


class Measured(NamedTuple):
    """The mean of a method's samples against a kernel, its standard error, and the runs; infinite are those cut.

    ``is_cut``: the mean is only a lower bound. Without a simulation there are no runs.
    """

    mean: float
    error: float
    is_cut: bool
    runs: tuple[float, ...] = ()


class Guesses:
    """One kernel or several, with laws of rewards where these are observed.

    ``truth`` is the middle one, ``gaps`` [M] are V_q - R of all.
    """

    def __init__(self, question: PlanQuestion, truths: list[Truth]) -> None:
        self.truths, (task, R) = truths, (question.task, question.threshold)
        self.truth = truths[0] if len(truths) == 1 else _mean(truths)
        self.gaps = np.array([truth.value(task) for truth in truths]) - R
        self.middle = self.truth.value(task) - R
        self.notes: tuple[str, ...] = ()

    @property
    def other_side(self) -> float:
        """The share of guesses beyond the threshold, seen from the middle one."""
        return float((self.gaps * self.middle <= 0.0).mean())

    def predict(self, question: PlanQuestion, method: Method, runs: int) -> Prediction:
        """The mean over the guesses, from the smallest to the largest with their Monte-Carlo error."""
        each = max(2, runs // len(self.truths))
        expected = has_formula(method) and question.task.layout.n_entries > SIMULATED_ENTRIES
        found = [mean_samples(question, truth, method, each, expected) for truth in self.truths]
        means, errors = np.array([one.mean for one in found]), np.array([one.error for one in found])
        width = 1.0 if expected else scipy.special.stdtrit(each - 1, 0.5 + LEVEL / 2)
        is_cut = any(one.is_cut for one in found)
        low, high = max(float((means - width * errors).min()), 0.0), float((means + width * errors).max())
        single = nine_runs_in_ten([run for one in found for run in one.runs])
        return Prediction(float(means.mean()), low, math.inf if is_cut else high, is_cut, runs=single)


class Pilot(Guesses):
    """Counts of a pilot, with its rewards where these are observed, and the kernels they leave possible."""

    def __init__(self, question: PlanQuestion, counts: Counts, seen: RewardMoments | None = None) -> None:
        self.posterior = posterior = Posterior(question.task, question.threshold, counts, question.rng, seen=seen)
        self.truth, self.gaps, self.middle = posterior.mean, posterior.gaps, posterior.middle
        drawn = f"{len(self.gaps)} kernels from Dirichlet(N + {posterior.prior:g})"
        self.notes = (f"The guess: {drawn} around {plural(counts.total, 'pilot draw')}.",)
        if posterior.tally.is_open:
            self.notes += ("Successors that the pilot never saw are left out of the guess.",)

    def predict(self, question: PlanQuestion, method: Method, runs: int) -> Prediction:
        """From some kernels, simulated, to all; cut if the runs were cut at gaps as wide as the predicted one."""
        expected, sizes, limit = has_formula(method), np.abs(self.gaps), question.limit
        found: list[Measured] = []
        is_cut, chosen = False, _spread(sizes, max(runs // EACH, 4))
        for index in chosen:  # the widest gap first: beyond one cut, all are
            one = mean_samples(question, self.posterior.truth(int(index)), method, EACH, expected)
            is_cut = one.is_cut
            if is_cut:
                break
            if one.mean == 0.0:  # the threshold is out of reach
                return Prediction(0.0, 0.0, 0.0, sure=1.0)
            found.append(one)
            if question.left <= 0 and len(found) > 3:
                break
        if not found:
            return Prediction(float(limit), float(limit), math.inf, is_cut=True)
        x, every = (np.log(np.maximum(sizes[at], 1e-300)) for at in (chosen[: len(found)], slice(None)))
        means, errors = np.array([one.mean for one in found]), np.array([one.error for one in found])
        noise = 0.0 if expected else float(np.mean((errors / means) ** 2))
        logs = on_a_line(x, np.log(means), every, noise, question.rng)
        ends = np.quantile(logs, QUANTILES)
        low, mean, high = (float(end) for end in np.exp(np.minimum(ends, 700.0)))
        if is_cut and mean > limit:
            return Prediction(float(limit), min(low, float(limit)), math.inf, is_cut=True)
        sure = float((np.abs(logs - ends[1]) <= math.log(FACTOR)).mean())
        made = [run for one in found for run in one.runs]
        left = [math.inf] * (EACH * len(chosen) - len(made))  # nearer to the threshold than those that were made
        high = math.inf if is_cut and high > limit else high
        return Prediction(mean, low, high, False, sure, nine_runs_in_ten(made and made + left))


def nine_runs_in_ten(runs: list[float]) -> tuple[float, float] | None:
    """The ends between which nine in ten of these runs lie; None if they are too few to tell.

    >>> nine_runs_in_ten(list(range(1, 41))), nine_runs_in_ten([1.0, 2.0])
    ((2.0, 38.0), None)
    """
    if len(runs) < LEAST_RUNS:
        return None
    tail, ordered = (1.0 - LEVEL) / 2, sorted(runs)
    low, high = (ordered[math.ceil(share * len(runs) - 1e-9) - 1] for share in (tail, 1.0 - tail))
    return float(low), float(high)


def on_a_line(x: FloatArray, y: FloatArray, at: FloatArray, noise: float, rng: np.random.Generator) -> FloatArray:
    """What a straight line through (x, y) says at other places, with what it leaves of y beyond this variance."""
    line = np.polyfit(x, y, 1 if len(x) > 3 and np.ptp(x) > 0 else 0)
    spread = math.sqrt(max(float((y - np.polyval(line, x)).var()) - noise, 0.0))
    return np.asarray(np.polyval(line, at) + spread * rng.standard_normal(len(at)))


def _spread(sizes: FloatArray, count: int) -> IntArray:
    """The indices of so many of them, evenly spread over their ranks, the largest first."""
    order = np.argsort(-sizes, kind="stable")
    at = (np.arange(count) + 0.5) / count * len(sizes)
    return np.asarray(order[np.unique(at.astype(np.int64))])


# ---------------------------------------------------------------- what was passed


def guesses_from(question: PlanQuestion, guess: Any, rewards: object = None) -> Guesses:
    """What the user passed, checked: of rewards that are observed, their means beside kernels."""
    task = question.task
    if rewards is not None and not task.observes_rewards:
        raise InputError("rewards are for a task whose rewards are observed; the task says its own: leave them out")
    if isinstance(guess, Counts | Transitions):
        return _pilot(question, guess)
    if task.observes_rewards and np.ndim(guess) == 4 and rewards is None:
        listed = law_of_values(task, guess)
        return Guesses(question, [listed._replace(kernel=task.check_kernel("guess", listed.kernel))])
    is_list = isinstance(guess, list | tuple)  # of kernels, or a kernel written as a list
    is_list = is_list and (not guess or arrays.is_sparse(guess[0]) or np.ndim(guess[0]) == 3)
    kernels = list(guess) if is_list else [guess]
    if not kernels:
        raise InputError("guess is empty; pass a kernel, Counts, or a list of kernels")
    names = [f"guess[{i}]" for i in range(len(kernels))] if len(kernels) > 1 else ["guess"]
    checked = [task.check_kernel(name, q) for name, q in zip(names, kernels, strict=True)]
    for name, q in zip(names, checked, strict=True):
        task.rows_of(name, q)
    laws = _laws(task, rewards, len(kernels))
    return Guesses(question, [Truth(q, law) for q, law in zip(checked, laws, strict=True)])


def _pilot(question: PlanQuestion, guess: Counts | Transitions) -> Pilot:
    """Counts, or recorded transitions, which also tell rewards that are observed."""
    task, seen = question.task, None
    if isinstance(guess, Transitions):
        check_indices(task, guess, "guess")
        seen = RewardMoments.of(task, guess) if task.observes_rewards else None
        guess = guess.all_counts(task)
    arrays.check_shape("guess", (guess.n_states, guess.n_actions), (task.n_states, task.n_actions))
    if task.observes_rewards and seen is None:
        raise InputError(
            "guess: counts have no rewards, and those of the task are observed; pass Transitions(s, a, x, r)"
        )
    return Pilot(question, guess, seen)


def _laws(task: Task, rewards: object, count: int) -> list[RewardLaw | None]:
    """The law of rewards beside each kernel: the same for all, or one for each in a list."""
    if not task.observes_rewards:
        return [None] * count
    if rewards is None:
        raise InputError(f"guess: {WITH_REWARDS}")
    if count > 1 and isinstance(rewards, list | tuple) and len(rewards) == count and np.ndim(rewards[0]) > 1:
        return [law_with_means(task, one) for one in rewards]
    return [law_with_means(task, rewards)] * count


def _mean(truths: list[Truth]) -> Truth:
    """Their average: of kernels, and of laws of rewards."""
    total = truths[0].kernel
    for q, _ in truths[1:]:
        total = total + q if arrays.is_sparse(total) == arrays.is_sparse(q) else _dense(total, q) + _dense(q, total)
    return Truth(total / len(truths), mixed([law for _, law in truths]))


def _dense(kernel: Kernel, other: Kernel) -> FloatArray:
    shape = other.shape if arrays.is_sparse(kernel) else kernel.shape
    return np.asarray(kernel.toarray() if arrays.is_sparse(kernel) else kernel).reshape(shape)


# ---------------------------------------------------------------- the mean number of samples at one kernel


def mean_samples(question: PlanQuestion, truth: Truth, method: Method, runs: int, expected: bool) -> Measured:
    """What a method's samples against a kernel are on average."""
    task, R = question.task, question.threshold
    low, high = value_range(task)
    reach = 4.0 * value_range_error(task)
    if low - reach > R or high + reach < R:
        return Measured(0.0, 0.0, False)
    if abs(truth.value(task) - R) <= reach or not any_unknown(task):
        return Measured(math.inf, 0.0, True)
    found = Measured(0.0, 0.0, True) if expected else _simulate(question, truth, method, runs)
    if found.is_cut and has_formula(method) and not task.observes_rewards:
        omega = method.allocation if np.ndim(method.allocation) else None
        mean = expected_samples(task, R, question.delta, truth.kernel, method.boundary, omega)
        return Measured(mean, FORMULA_ERROR * mean if mean < math.inf else 0.0, mean == math.inf, found.runs)
    return found


def _simulate(question: PlanQuestion, truth: Truth, method: Method, runs: int) -> Measured:
    """The same by running it; no more runs are made once many were cut."""
    sim, found, single = truth.simulator(question.task), [], []
    for seed in question.rng.integers(2**62, size=runs):
        run = stopping_times(
            question.task, sim, question.threshold, [question.delta], method, int(seed), question.limit
        )
        found.append(int(run.samples[0]))
        single.append(math.inf if run.answers[0] is None else float(found[-1]))
        question.spend(found[-1])
        if len(found) > 1 and (single.count(math.inf) > 1 or question.left <= 0):
            break
    error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else 0.0
    return Measured(float(np.mean(found)), error, math.inf in single, tuple(single))


def has_formula(method: Method) -> TypeGuard[PTST]:
    """Whether the expected evidence can stand for a simulation: PTST with fixed shares, and no proof to wait for."""
    if not isinstance(method, PTST) or method.zeta is not None or proves(method.solver):
        return False
    return bool(np.ndim(method.allocation) or method.allocation == "uniform")
