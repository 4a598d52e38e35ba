r"""Before sampling: how many samples will the test take, and where should they go? And after it: how many more?

Everything here rests on a *guess* of the kernel: one kernel, several, or the counts of a pilot. At a guess p,

    any test with error delta needs   E[tau] >= T* kl(delta, 1-delta),    1/T* = max_omega inf_q sum omega KL(p, q),

and a given method needs its own mean number of samples, found by running it against p. What a pilot leaves open is
told in `plan.guess`, what takes the place of a simulation in `plan.expected`, and how a test goes on
from where it stands in `policytest.questions.plan.still_needed`.

All of it is limited by counts (runs, samples, solves), never by time, so that a seed fixes the result.

Paper: `thm:stat_lower`, `thm:sample`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

from policytest._base import arrays
from policytest._base.arrays import Kernel
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed, generator
from policytest.data.returns import Returns
from policytest.data.transitions import Transitions
from policytest.kl.boundaries import check_delta, information
from policytest.mdp.task import Task
from policytest.methods.ptst import PTST
from policytest.methods.run import Method, go_on
from policytest.methods.td_betting import TDBetting
from policytest.questions.driver import checked_instance
from policytest.questions.plan.episodes import LEAST, PILOT, Subject, piloted, plan_episodes
from policytest.questions.plan.episodes import RUNS as EPISODE_RUNS
from policytest.questions.plan.expected import (
    MANY_ENTRIES,
    any_unknown,
    best_allocation,
    explored,
    fast_solver,
)
from policytest.questions.plan.guess import Guesses, Pilot, PlanQuestion, Prediction, guesses_from
from policytest.questions.plan.power import RUNS as POWER_RUNS
from policytest.questions.plan.power import Wanted
from policytest.questions.plan.still_needed import OTHER_SIDE, check_chance, count_from
from policytest.questions.plan.truth import Truth
from policytest.results.needed import CHANCE, MAX_SAMPLES, Needed, few
from policytest.results.plan import Plan, Powered, Range
from policytest.results.verdict import Verdict
from policytest.worst_case.certified import Certified
from policytest.worst_case.lower_bound import Allocation, characteristic_time, uniform_allocation
from policytest.worst_case.projection_free import ProjectionFree

FIRST_BUDGET = 1000  # transitions that are tried, if no method was simulated
WORK = 4  # samples of all runs of a method, relative to the most of one run
RUNS, FEW_RUNS = 64, 16  # of a method; fewer in large tasks
PROVED_STATES, PROOF_NODES = 10, 40
UNSURE = "the guess does not say on which side the value is"
ON_IT = "the value of the guess is the threshold, where no test ends by itself; decide(..., indifference=) does"


def plan(
    task: Task | Episodes | tuple[Episodes, Episodes],
    guess: Kernel | Counts | Transitions | Sequence[Kernel] | Returns | None = None,
    threshold: float | None = None,
    delta: float = 0.05,
    methods: Mapping[str, Method] | Sequence[Method] | None = None,
    runs: int | None = None,
    rng: Seed = 0,
    max_samples: int = MAX_SAMPLES,
    progress: Callable[[str], None] | None = None,
    rewards: object = None,
    pilot: int = PILOT,
    power: float | None = None,
) -> Plan:
    """How many samples will the test take, and where should they go, if the guess is right?

    Parameters
    ----------
    task, threshold, delta
        The question, as for `decide`. A pair (a, b) of `Episodes`: that of `compare`, and the threshold is its margin,
        0 if it is left out.
    guess
        A kernel; or `Counts` or `Transitions` of pilot draws, around which kernels are drawn; or a list of kernels.
        Not needed of `Episodes`, of which ``pilot`` are run; or the ``counts`` of an earlier verdict about them.
    methods
        {name: method}, or a list of methods; by default those one would choose from.
    runs
        How often each method is simulated, over all guesses together; 64 times by default, 16 times in large tasks,
        and no more once 4 ``max_samples`` samples were drawn.
    rng
        A seed or a Generator; it fixes the plan.
    max_samples
        Where a simulated run is cut; what is then known is a lower bound, and shown as "at least". Of `Episodes`, this
        many episodes.
    progress
        Called with the name of each method before it is simulated.
    rewards
        Where the rewards of the task are observed: their means beside a kernel, [S,A] or [S,A,S], or a list of such
        arrays, one for each kernel. Simulated rewards are then at the ends of the declared range, which is the largest
        variance: the plan is on the safe side. A pilot of `Transitions(s, a, x, r)` tells means and variances itself,
        and with `Observed(values=[...])` the guess may be q[s,a,x,j], the law of next state and value.
    pilot
        Of `Episodes`: how many are run to plan with. They are not part of the test.
    power
        Also find the smallest budget that gives the right answer with this probability: ``Plan.budget``, by simulation
        of `decide` (or `compare`) with budgets, 400 times each for `Episodes`. Of a table the method is `TDBetting()`.

    Paper: `thm:stat_lower`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> methods = {"PTST": pt.PTST(solver=pt.ProjectionFree())}
    >>> found = plan(two.task, two.kernel, threshold=0.0, methods=methods, runs=20)
    >>> mean, low, high = found.samples["PTST"]
    >>> low < mean < high and found.bound < mean
    True
    """
    other = None
    if isinstance(task, tuple | list):
        if len(task) != 2 or not isinstance(task[0], Episodes):
            raise InputError("task is a list; pass a Task, Episodes, or two Episodes (a, b) that are compared")
        (task, other), threshold = task, 0.0 if threshold is None else threshold
    if threshold is None:
        raise InputError("threshold is missing; pass threshold=R, the bar that the value is compared with")
    bar, delta, rng = arrays.real_number("threshold", threshold), check_delta(delta), generator(rng)
    limit = count_from("max_samples", max_samples, 1)
    if isinstance(task, Episodes):
        for name, given in {"methods": methods, "rewards": rewards}.items():
            if given is not None:
                raise InputError(f"{name} is for tables, and task is Episodes; leave it out")
        count, tests = count_from("pilot", pilot, LEAST), count_from("runs", EPISODE_RUNS if runs is None else runs, 20)
        subject = Subject.checked(task, other)
        wanted = None if power is None else Wanted.checked(power, POWER_RUNS if runs is None else runs)
        if progress is not None:
            progress("a pilot")
        seen = partial(piloted, subject, guess, count, rng)
        return plan_episodes(subject, seen, bar, delta, tests, rng, limit, wanted)
    arrays.instance("task", task, Task)
    if guess is None:
        raise InputError("guess is missing; pass a kernel, several, or the Counts or Transitions of a pilot")
    question, is_large = PlanQuestion(task, bar, delta, rng, limit), task.layout.n_entries > MANY_ENTRIES
    runs = count_from("runs", (FEW_RUNS if is_large else RUNS) if runs is None else runs, 2)
    wanted, guesses = None if power is None else Wanted.checked(power, runs), guesses_from(question, guess, rewards)
    planned = _planned(question, guesses, methods, runs, progress)
    if wanted is None or not any_unknown(task) or planned.value == bar:
        return planned
    if progress is not None:
        progress("tests with budgets")
    start = min((mean for mean, _, _ in planned.samples.values()), default=float(FIRST_BUDGET))
    return replace(planned, powered=_powered(wanted, question, guesses.truth, start))


def _planned(
    question: PlanQuestion, guesses: Guesses, methods: object, runs: int, progress: Callable[[str], None] | None = None
) -> Plan:
    """The plan: each method is simulated."""
    task, R, kernel = question.task, question.threshold, guesses.truth.kernel
    is_unknown, notes = any_unknown(task), list(guesses.notes)
    best = best_allocation(task, kernel, R) if is_unknown and task.is_discounted_table else None
    named = _named(task, methods, best)
    found: dict[str, Prediction] = {}
    for name, method in named.items():
        if progress is not None:
            progress(name)
        found[name] = guesses.predict(replace(question, left=WORK * question.limit), method, runs)
    known, saving = 0.0 if guesses.middle else math.inf, 1.0
    if best is not None:
        time = _bracket(task, kernel, best, R)
        uniform = characteristic_time(task, kernel, None, R, fast_solver(task)).time
        saving = uniform / best.time if 0.0 < best.time < math.inf and uniform < math.inf else 1.0
    elif is_unknown:
        time = known, math.inf
        notes.append("No lower bound and no best allocation is known beyond the discounted table.")
    else:
        time = known, known
        notes.append("Every row that the policy takes is known: there is nothing to sample.")
    bound = time[0] * information(-math.log(question.delta)) if time[0] < math.inf else math.inf
    at_threshold = time[0] == math.inf
    if at_threshold:
        notes.append(f"Beware: {ON_IT}.")
    unsure = guesses.other_side > OTHER_SIDE or at_threshold
    if unsure and not (at_threshold and len(guesses.gaps) == 1):
        notes.append(f"Beware: {UNSURE}.")
    return Plan(
        task=task,
        threshold=R,
        delta=question.delta,
        value=guesses.truth.value(task),
        time=time,
        bound=bound,
        allocation=best,
        saving=saving,
        samples={name: _range(one, bound, unsure) for name, one in found.items()},
        runs={name: one.runs for name, one in found.items() if one.runs is not None},
        sure={name: one.sure for name, one in found.items() if not math.isnan(one.sure)},
        methods=named,
        at_least=frozenset(name for name, one in found.items() if one.is_cut),
        notes=tuple(notes),
        guesses=len(guesses.gaps),
    )


def _powered(wanted: Wanted, question: PlanQuestion, truth: Truth, start: float) -> Powered:
    """The budget of tests by betting on rollouts against a kernel."""
    task, R, level = question.task, question.threshold, -math.log(question.delta)
    seeds, sim = question.rng.integers(2**62, size=wanted.runs), truth.simulator(task)
    right = "above" if truth.value(task) > R else "below"

    def share(budget: int) -> float:
        answered = 0
        for seed in seeds:
            run = TDBetting().start(task, sim, R, int(seed))
            run.aim_at(budget)
            go_on(run, level, budget)
            answered += run.answer == right
        return answered / wanted.runs

    return wanted.smallest(share, math.ceil(min(start, question.limit)), question.limit, "transitions")


def _range(found: Prediction, bound: float, unsure: bool) -> Range:
    """What is stated. Runs that were cut need at least what every test needs, if the guess says the side."""
    mean, low = found.mean, found.low
    if found.is_cut and (not unsure or math.isinf(bound)):
        mean, low = max(mean, bound), max(low, bound)
    return mean, low, math.inf if unsure else found.high


def _bracket(task: Task, kernel: Kernel, best: Allocation, threshold: float) -> tuple[float, float]:
    """(proved lower end, upper end) of T*: of all allocations, and of the best one found."""
    lower = math.inf if best.upper_bound == 0 else 1.0 / best.upper_bound
    if best.time in (0.0, math.inf):
        return best.time, best.time
    if task.n_states > PROVED_STATES:
        return lower, math.inf
    proved = characteristic_time(task, kernel, best.weights, threshold, Certified(max_nodes=PROOF_NODES))
    return lower, max(lower, proved.bracket[1])


def _named(task: Task, methods: object, best: Allocation | None) -> dict[str, Method]:
    """The methods by name: the default ones, those of a mapping, or a list under their own descriptions."""
    if methods is None:
        if not task.is_discounted_table:
            return {"TDBetting": TDBetting()}
        named: dict[str, Method] = {"TDBetting": TDBetting(), "PTST, uniform": PTST(solver=ProjectionFree())}
        if best is not None:
            shares = explored(best.weights, uniform_allocation(task))
            named["PTST, best allocation"] = PTST(solver=ProjectionFree(), allocation=shares)
        return named
    if isinstance(methods, Mapping):
        return {name: checked_instance(f"methods[{name!r}]", method) for name, method in methods.items()}
    if isinstance(methods, str) or not isinstance(methods, Sequence):
        raise InputError(f"methods is {methods!r}; pass a list of methods, or a dictionary of names and methods")
    listed: dict[str, Method] = {}
    for index, given in enumerate(methods):
        method = checked_instance(f"methods['{index}']", given)
        words = method.describe()
        listed[words if words not in listed else f"{words} ({index})"] = method
    return listed


def still_needed(
    verdict: Verdict,
    methods: Mapping[str, Method] | Sequence[Method] | None = None,
    rng: Seed = 0,
    chance: float = CHANCE,
    runs: int = 32,
    max_samples: int = MAX_SAMPLES,
) -> Needed:
    r"""How many more samples would settle an undecided test, and from which pairs? And how many a new run takes.

    The first is `Verdict.still_needed`: the test goes on from where it stands, by its own rule (`plan.still_needed`).
    Other methods start from scratch: ``methods``, by default `TDBetting()`, is simulated at the kernels that the
    counts leave possible, as `plan` does.

    Parameters
    ----------
    verdict
        An undecided one, of `assess`, or of `decide` with ``max_samples``.
    methods, rng, runs, max_samples
        Of the new runs, as in `plan`; an empty dictionary leaves them out.
    chance
        How sure the number of samples should be.

    >>> import numpy as np
    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> counts = pt.Counts.from_array(np.rint(40 * two.kernel))
    >>> needed = still_needed(pt.assess(two.task, counts, threshold=0.0), methods={})
    >>> bool(needed.samples == needed.pairs.sum()) and needed.expected < needed.samples
    True
    """
    arrays.instance("verdict", verdict, Verdict)
    check_chance(chance)
    rng, runs = generator(rng), count_from("runs", runs, 2)
    needed = verdict.still_needed(chance, rng, max_samples)
    given = {"TDBetting": TDBetting()} if methods is None else methods
    is_over = verdict.answer is not None or verdict.counts.episodes is not None
    if not given or is_over or not any_unknown(verdict.task):
        return needed
    question = PlanQuestion(
        verdict.task, verdict.threshold, verdict.delta, rng, count_from("max_samples", max_samples, 1)
    )
    pilot = Pilot(question, verdict.counts, verdict.forecast.reward_moments)
    found = _planned(question, pilot, given, runs)
    best = min(found.samples, key=lambda name: found.samples[name][0])
    mean = found.samples[best][0]
    better = f" A new run of {best} takes about {few(mean)}." if mean < needed.samples else ""
    words = needed.words + ("" if best in found.at_least else better)
    return replace(needed, fresh=found.samples, at_least=found.at_least, words=words)
