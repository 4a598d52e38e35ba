"""Is the value above the threshold? `decide`, its loop `checks`, and `stopping_times` for several deltas."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence

import numpy as np

from policytest._base import arrays
from policytest.data.counts import HELD
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.mdp.task import Task
from policytest.methods import checkpoint as checkpoints
from policytest.methods.run import Method, is_certified, traits_of
from policytest.questions import driver
from policytest.questions.cells import cells_of_run, diagnosed_run
from policytest.questions.driver import Question
from policytest.results.stopping_times import StoppingTimes
from policytest.results.verdict import Check, Verdict


def decide(
    task: Task | Episodes,
    sim: SimulatorLike | None = None,
    threshold: float | None = None,
    delta: float = 0.05,
    method: Method | None = None,
    rng: Seed = 0,
    max_samples: int | None = None,
    indifference: float = 0.0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: driver.Resume | None = None,
    progress: Callable[[Check], None] | None = None,
    max_seconds: float | None = None,
    budget: int | None = None,
    parallel: int = 1,
) -> Verdict:
    """Is the policy's value above the threshold? Sample until that is settled, with error at most delta.

    Parameters
    ----------
    task, sim, threshold, delta
        The question: a `Task`, a simulator (`draw(states, actions, rng)`), the bar R, the probability of error. Or
        `Episodes`, which need no simulator.
    method
        `TDBetting()`, which is the default, `PTST(...)`, or a baseline; of `Episodes`, `ReturnBetting()`, or, if no end
        of their range is known, `LargeSample()`, whose answers are not certified.
    rng
        A seed or a Generator; it fixes the run. A resumed run goes on with its own.
    max_samples
        Stop undecided after this many samples.
    indifference
        If positive, the test may also answer "within": |V - R| is smaller than this. Then even a test at V = R ends.
        Half of delta is spent on it.
    checkpoint
        A file to which the run is saved from time to time and at its end; it must not exist, unless it is resumed.
    resume
        An undecided Verdict, or a checkpoint: go on with the same run, to the same stopping time.
    progress
        Called with every `Check`.
    max_seconds
        Stop undecided after this many seconds.
    budget
        The most transitions of a table, or the most `Episodes`, fixed before the first one: bets then aim at an answer
        by the end of it, which may come at any earlier time. Without an answer the run stops there, undecided; resumed
        with a larger budget it aims at that one, with the capital that is left.
    parallel
        How many rollouts of a table, or `Episodes`, are under way at once. Each begins with what was settled before,
        and they are settled in the order of their beginnings, so the speed of workers does not matter. `Episodes` run
        in as many processes, and without a critic the answer is the one of ``parallel=1``. On a table, one call of the
        simulator asks for the pairs of all rollouts; if draws are free, as from a `TabularSimulator`, nothing changes.

    A limit, and Ctrl-C, end the run after the draw at hand (of an environment in `Episodes`: after the step at hand)
    with a Verdict without an answer that can be resumed; a second Ctrl-C gives up the draw at hand, a third one
    everything.

    Paper: `alg:static_algorithm`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> pt.decide(two.task, pt.TabularSimulator(two.kernel), threshold=0.0, delta=0.05).answer
    'above'
    """
    question = Question.checked(task, threshold, delta, indifference, budget=budget, parallel=parallel)
    limits = driver.sampling_limit(max_samples), driver.time_limit(max_seconds)
    known = question.known(2, method)
    if known is not None:
        return known
    run = question.started(sim, method, rng)
    mark = checkpoints.fingerprint(run.task, question.bar, run.method)
    orders = driver.Orders(*limits, rng, checkpoint, resume, progress)
    return diagnosed_run(task, sim, driver.carry_out(question, run, mark, orders, traits_of(method).pause))


def checks(
    task: Task | Episodes,
    sim: SimulatorLike | None = None,
    threshold: float | None = None,
    delta: float = 0.05,
    method: Method | None = None,
    rng: Seed = 0,
    max_samples: int | None = None,
    budget: int | None = None,
    parallel: int = 1,
) -> Iterator[Check]:
    """The loop of `decide`, one `Check` at every new witness and after every block of draws; the last has the answer.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> *_, last = pt.checks(two.task, pt.TabularSimulator(two.kernel), threshold=0.0, delta=0.05)
    >>> last.answer, last.evidence[0] >= last.required
    ('above', True)
    """
    question = Question.checked(task, threshold, delta, budget=budget, parallel=parallel)
    limit = driver.sampling_limit(max_samples)
    driver.refuse_one_look(method, "checks looks after every episode")
    level, known = question.level, question.known()
    if known is not None:
        return iter([Check(0, known.evidence, level, 0, known.answer, lambda: known.estimate, lambda: known.interval)])
    run = question.prepared(question.started(sim, method, rng))
    return driver.drive(run, level, limit, traits_of(method).pause)


def stopping_times(
    task: Task | Episodes,
    sim: SimulatorLike | None = None,
    threshold: float | None = None,
    deltas: Sequence[float] = (0.05,),
    method: Method | None = None,
    rng: Seed = 0,
    max_samples: int | None = None,
) -> StoppingTimes:
    """The stopping times of one run for several deltas at once: levels differ by log(1/delta) only.

    Each is the time at which `decide` with that delta would have stopped on the same samples; in tasks so large that
    looks are spaced, up to that spacing.
    """
    driver.refuse_one_look(method, "stopping_times looks after every episode")
    array = arrays.real_array("deltas", deltas, (None,))
    limit = driver.sampling_limit(max_samples)
    levels = np.array([Question.checked(task, threshold, delta).level for delta in array])
    samples, answers = np.zeros(len(array), dtype=np.int64), np.full(len(array), None, dtype=object)
    certified, question = np.zeros(len(array), dtype=np.bool_), Question.checked(task, threshold, 0.5)
    known = question.known()
    if known is not None:
        answers[:], certified[:] = known.answer, known.certified
        return StoppingTimes(array, samples, answers, 0, certified)
    run = question.started(sim, method, rng)
    for index in np.argsort(levels, kind="stable"):
        run.update_answer(levels[index])
        if run.answer is None:
            for _ in driver.drive(run, levels[index], limit):
                pass
        samples[index], answers[index] = run.samples_used, run.answer
        certified[index] = is_certified(run, levels[index]) and (
            cells_of_run(task, sim, run.samples_used) in (None, HELD)
        )
    return StoppingTimes(array, samples, answers, run.solves, certified)
