"""Which of two policies is better? The question, and the ways to answer it.

Two policies A and B, with rewards that may differ, meet the same unknown kernel: is V^A - V^B above a margin?

- *Betting* along coupled rollouts (`policytest.payoffs.two_policies`), the default: exact, so answers are certified.
- The *KL rule* on the difference (`policytest.methods.ptst_difference`): samples any pair, answers on a local search.
- *Pairs of episodes* (`policytest.payoffs.pairs`), of two agents in any environment, without a table.

What delta bounds: if V^A - V^B <= margin, the probability of ever answering "above" is at most delta, and if >= margin
that of "below"; looking at every sample, stopping early and resuming are all allowed.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from policytest._base.arrays import IntArray
from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.kl.sampler import Recorded
from policytest.mdp.task import Task
from policytest.methods import checkpoint as checkpoints
from policytest.methods.default import ByEpisodes
from policytest.methods.large_sample import LargeSample
from policytest.methods.ptst import PTST
from policytest.methods.ptst_difference import kl_comparison
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.run import Run, traits_of
from policytest.methods.stacks import StacksRun, replicate_seeds
from policytest.methods.td_betting import CoupledBetting, TDBetting
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import joint_task, shared_pool
from policytest.payoffs.known_range import KnownRange, check_alike, known_difference
from policytest.payoffs.pairs import check_same_return, difference_bounds, whole_episodes
from policytest.payoffs.td_rollouts import warn_of_sides
from policytest.payoffs.two_policies import two_policies
from policytest.questions import driver
from policytest.questions.assess import beside_data, judged
from policytest.questions.cells import diagnosed, diagnosed_run
from policytest.questions.logged_policy import LOGGED, is_logged, logged_task
from policytest.questions.plan.still_needed import further_comparison
from policytest.questions.recorded import check_indices
from policytest.questions.trials import compare_trials, not_of_trials
from policytest.results.forecast import Forecaster
from policytest.results.verdict import Check, Verdict


def compare(
    task_a: Task | Episodes | LoggedEpisodes,
    task_b: Task | Episodes | LoggedEpisodes | str,
    sim: SimulatorLike | Transitions | None = None,
    delta: float = 0.05,
    margin: float = 0.0,
    method: TDBetting | PTST | ReturnBetting | LargeSample | None = None,
    rng: Seed = 0,
    max_samples: int | None = None,
    indifference: float = 0.0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: driver.Resume | None = None,
    progress: Callable[[Check], None] | None = None,
    max_seconds: float | None = None,
    budget: int | None = None,
    parallel: int = 1,
    ratio: tuple[int, int] = (1, 1),
) -> Verdict:
    """Is policy A better than policy B by more than the margin? Sample until that is settled, error at most delta.

    Parameters
    ----------
    task_a, task_b
        Two tasks that differ in their policies, and perhaps in their rewards, and in nothing else. Of recorded
        transitions B may be "logged": how often they take each action in a state. The answer is about these
        frequencies, valid if actions were chosen by the state alone, and says so (`questions.logged_policy`).
        Or two `Episodes` with the same discount and horizon: every seed is used for an episode of each. The k-th
        episodes of vectors of environments make a pair, with the same seed if rows can be reset with one. Or two
        `LoggedEpisodes`, recorded trials of two agents, in pairs by their labels or in their order, with the mean over
        tasks if they have several (`policytest.data.trials`). Trials may be added, and the same asked again.
    sim
        The simulator of the kernel that both meet: `draw(states, actions, rng)`. Or recorded `Transitions(s, a, x)` in
        their order, from any policy: then nothing is sampled, and betting forms its rollouts from them. `Episodes` need
        none.
    delta, margin
        If V^A - V^B <= margin, "above" is answered with probability at most delta; if >=, so is "below".
    method
        `TDBetting()`, which is the default: certified. `PTST(...)`: the KL rule on the difference; a descent may miss
        the nearest kernel, so its answers are not certified. It samples by its allocation, `Adaptive()` included. Of
        `Episodes`, `ReturnBetting()`, or, if no end of the range of the difference is known, `LargeSample()`.
    rng, max_samples, max_seconds
        A seed or a Generator; stop undecided after this many samples, or seconds.
    indifference
        If positive, betting may also answer "within": V^A - V^B differs from the margin by less than this. Then even a
        tie ends. Half of delta is spent on it.
    budget
        As in `decide`: transitions of both policies together, pairs of `Episodes`, or, of recorded trials, the pairs in
        each task that are planned.
    parallel
        As in `decide`: how many rollouts of both policies, or pairs of `Episodes`, are under way at once.
    ratio
        Of recorded trials without a ``pair``: how many of A, and of B, make an outcome; fixed beforehand. With 1 to 4
        each trial of A is compared with the mean of the next 4 of B, so that fewer of A are needed.
    checkpoint, resume, progress
        As in `decide`; so is Ctrl-C, which ends the run between two draws.

    In the Verdict, ``threshold`` is the margin, and ``estimate`` and ``interval`` are about the difference V^A - V^B.
    Of `Episodes`, ``samples`` are the transitions of both, and ``counts.episodes`` is the number of pairs.

    Paper: `app:extension`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> other = pt.Task(two.task.rewards, two.alternative_policy, two.task.initial, two.task.discount)
    >>> compare(two.task, other, pt.TabularSimulator(two.kernel)).answer
    'above'
    """
    question = driver.Question.checked(task_a, margin, delta, indifference, "difference", budget, parallel)
    margin = question.bar
    limits = driver.sampling_limit(max_samples), driver.time_limit(max_seconds)
    orders = driver.Orders(*limits, rng, checkpoint, resume, progress)
    if isinstance(task_a, LoggedEpisodes):
        given = {"sim": sim, "method": method, "max_samples": max_samples, "max_seconds": max_seconds}
        not_of_trials(**given, checkpoint=checkpoint, resume=resume, parallel=None if parallel == 1 else parallel)
        return compare_trials(task_a, task_b, question, ratio)
    if tuple(ratio) != (1, 1):
        raise InputError(f"ratio is {ratio}, and is for recorded trials, LoggedEpisodes; leave it out")
    if isinstance(task_a, Episodes) or isinstance(task_b, Episodes):
        driver.checked_source(task_a, sim)
        return _in_pairs(question, task_b, method, orders)
    source = driver.checked_source(task_a, sim)
    task_b = _policy_b(task_a, task_b, source)
    check_alike(task_a, task_b)
    ptst = method if isinstance(method, PTST) else None
    if ptst is not None:
        task_a.check_discounted_table("the KL rule")
    rests_on = tuple(dict.fromkeys((*task_a.assumptions, *task_b.assumptions)))
    task_a = task_a if rests_on == task_a.assumptions else replace(task_a, assumptions=rests_on)
    question = replace(question, task=task_a)
    check_method(method, zone := question.zone)
    is_log, joint = isinstance(source, Transitions), joint_task([task_a, task_b])
    if is_log:
        driver.not_on_a_log(
            method=ptst,
            max_samples=max_samples,
            checkpoint=checkpoint,
            resume=resume,
            max_seconds=max_seconds,
            budget=budget,
            parallel=parallel if question.parallel > 1 else None,
        )
    found = question.known_by(known_difference(task_a, task_b), 0 if is_log else 2)
    if found is not None:
        return found if not is_log else beside_data(found, task_a, source)
    if is_log:
        check_indices(task_a, source)
        rows = diagnosed(joint, source)
        verdict = judged(question, _on_a_log(task_a, task_b, margin, rows, zone, replicate_seeds(rng)), rows)
        start = partial(_on_a_log, task_a, task_b, margin, rows.first(0), zone)
        forecaster: Forecaster = partial(further_comparison, tasks=(task_a, task_b), start=start)
        verdict = replace(verdict, forecast=replace(verdict.forecast, forecaster=forecaster))
        return driver.with_seed(verdict, rng, resume)
    about = task_a, task_b, margin, source, rng
    run: Run = _coupled(*about, zone) if ptst is None else kl_comparison(ptst, *about)
    mark = checkpoints.fingerprint(task_a, margin, [run.method, task_b.rewards, task_b.policy])
    return diagnosed_run(joint, source, driver.carry_out(question, run, mark, orders))


def _in_pairs(question: driver.Question, b: object, method: object, orders: driver.Orders) -> Verdict:
    """The comparison of two agents, in pairs of episodes."""
    a, b, margin = whole_episodes("task_a", question.task), whole_episodes("task_b", b), question.bar
    check_same_return(a, b)
    bounds = difference_bounds(a, b)
    found = question.known_by(KnownRange(*bounds, 0.0), 0 if traits_of(method).approximate else 3)
    if found is not None:
        return found
    if a.declared() != b.declared():
        a = replace(a, rests_on=(*a.rests_on, *b.declared(" of agent B")))
    chosen: Any = driver.checked_method(method, a, b)
    by: ByEpisodes = getattr(chosen, "method", chosen)  # of a trace that watches it
    run = by.on_pairs(a, b, margin, orders.rng, question.zone)
    mark = checkpoints.fingerprint(a, margin, [run.method, *b.identity])
    return driver.carry_out(question, run, mark, orders)


def _coupled(
    task_a: Task, task_b: Task, margin: float, sim: SimulatorLike | Transitions, rng: Seed, zone: float
) -> TDRun:
    """Betting on coupled rollouts."""
    payoff = two_policies(task_a, task_b, margin, shared_pool([task_a, task_b], sim, rng))
    warn_of_sides(payoff, zone)
    return TDRun(CoupledBetting(), payoff, zone, zone > 0)


def _on_a_log(task_a: Task, task_b: Task, margin: float, data: Transitions, zone: float, seeds: IntArray) -> StacksRun:
    """The comparison on recorded transitions, by many sets of coins."""
    nothing = data.first(0)

    def start(seed: int) -> TDRun:
        return _coupled(task_a, task_b, margin, nothing, seed, 0.0)

    rows = Recorded.of(joint_task([task_a, task_b]), data)
    return StacksRun(CoupledBetting(), start, seeds, rows, zone)


def _policy_b(task_a: Task, task_b: object, sim: object) -> Task:
    """The other task; "logged": that of recorded transitions."""
    if isinstance(task_b, Task):
        return task_b
    if is_logged(task_b):
        return logged_task(task_a, sim, "policy B")
    kind = repr(task_b) if isinstance(task_b, str) else f"a {type(task_b).__name__}"
    raise InputError(f'task_b is {kind}, expected a Task, or "{LOGGED}" for the policy of recorded transitions')


def check_method(method: object, zone: float) -> None:
    """Refuse everything but `TDBetting` and `PTST`."""
    if not isinstance(method, TDBetting | PTST | None):
        raise InputError(
            f"method is {method!r}; a comparison is made by TDBetting(), which is the default, or by PTST(...)"
        )
    if zone and not traits_of(method or TDBetting()).zone:
        raise InputError("indifference: PTST has none for a comparison; pass method=TDBetting(), the default")
