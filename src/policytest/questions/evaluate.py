r"""How good is the policy: an interval that is valid at every moment, and an estimate within epsilon.

`value_interval` reads an interval off data. From the KL ball of radius beta(t, delta), which contains the true kernel
at all times with probability at least 1-delta, it is the range of values over the ball: its ends are worst-case
problems, proved where `Certified` proves them. From transitions in order, betting gives another one: the thresholds
that neither side's capital refutes, at delta/2 a side. It pays for no unknown row, so it is shorter but in the smallest
tasks, and quick.

`evaluate` samples until the interval is at most 2 epsilon wide; its middle is then within epsilon of the value, with
probability at least 1-delta. Intervals are valid at all times at once, so they may be intersected along the run.

With a budget of episodes the interval is by bets that aim at its end (`policytest.eprocess.aimed_interval`).

Paper: appendix B, `lem:eva`; where the range of all possible values is short (Assumption 3 fails) no sample is needed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.episodes import Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.randomness import Seed
from policytest.data.ranges import inner_point
from policytest.data.returns import Returns
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.eprocess.aimed_interval import Goal, aimed_interval
from policytest.kl.boundaries import check_delta
from policytest.kl.sampler import NOTHING, UNLIMITED, Recorded
from policytest.mdp.horizon import REMEDIES
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.kl_run import KLRun
from policytest.methods.large_sample import LargeSample
from policytest.methods.large_sample_run import LargeSampleRun
from policytest.methods.listed_rewards import in_outcomes
from policytest.methods.log_betting import LogBetting
from policytest.methods.ptst import PTST
from policytest.methods.return_betting import ReturnBetting
from policytest.methods.return_run import ReturnsRun
from policytest.methods.run import Run, steps, traits_of
from policytest.methods.td_betting import TDBetting
from policytest.payoffs.weighted_returns import flaws_of
from policytest.questions import driver
from policytest.questions.assess import checked_log, method_for, warn_of_weights
from policytest.questions.cells import diagnosed, diagnosed_run
from policytest.questions.one_look import one_look, one_look_at_episodes
from policytest.questions.plan.expected import any_unknown
from policytest.questions.recorded import checked_data, recorded
from policytest.questions.unnamed_ends import UnnamedEnds
from policytest.results.estimate import Estimate, Interval
from policytest.worst_case import Solver
from policytest.worst_case.certified import Certified
from policytest.worst_case.problem import proves
from policytest.worst_case.projection_free import ProjectionFree

SEARCHES = 4  # starts, where no end can be proved
LOOK = 1.03  # the interval is computed when the samples have grown by this factor
UNKNOWN = Interval(-math.inf, math.inf, certified=False, approximate=True)
HOPED = 1.3  # the square of half the width of an interval, in units of log(1/delta) times the variance of the mean


def value_interval(
    task: Task | LoggedEpisodes,
    data: Counts | Transitions | None = None,
    delta: float = 0.05,
    method: PTST | TDBetting | LogBetting | LargeSample | None = None,
    looks: str = "any",
    budget: int | None = None,
) -> Interval:
    """An interval that contains the value with probability at least 1-delta, whenever the data are looked at.

    Counts: the range of values over the KL ball, by `PTST(...)`'s boundary and solver. Transitions: the thresholds that
    betting does not refute, by `LogBetting()` unless ``method`` says otherwise; an end is infinite where totals have no
    bound. `LoggedEpisodes` stand in the place of the task and of the data. With ``looks="one"``: the usual interval for
    one look at a finished log (`one_look`), approximate and not certified.

    ``budget``: how many `LoggedEpisodes` there will be at most, fixed before the first one. The interval is then by
    bets that aim at the end of it: about as short as one for a single look there, certified, and valid before, too.
    These bets end there, however many episodes follow.

    >>> import numpy as np, policytest as pt
    >>> two = pt.instances.paper(2)
    >>> found = pt.value_interval(two.task, pt.Counts.from_array(np.rint(1e4 * two.kernel)))
    >>> pt.value(two.task, two.kernel) in found, found.certified
    (True, True)
    """
    level, budget = -math.log(check_delta(delta)), driver.checked_budget(budget)
    arrays.one_of("looks", looks, ("any", "one"))
    if isinstance(task, LoggedEpisodes):
        return _of_episodes(task, data, delta, method, looks, budget)
    if budget is not None:
        raise InputError("budget is for LoggedEpisodes, and this is a table; leave out budget")
    arrays.instance("task", task, Task)
    data = checked_data(data)
    if not isinstance(method, PTST | TDBetting | LogBetting | None):
        raise InputError(f"method is {method!r}; pass PTST(), TDBetting(), LogBetting(), or None")
    if looks == "one":
        if method is not None:
            raise InputError('method is for looks="any"; leave it out')
        table, _, data = in_outcomes(task, PTST(), data)
        table.check_discounted_table('looks="one"')
        return one_look(table, data.all_counts(table), delta)
    data = diagnosed(task, data)
    table, chosen, data = in_outcomes(task, method or method_for(task, data), data)
    low, high = value_range(table)
    if high - low <= 4 * value_range_error(table):  # nothing depends on what is unknown
        return Interval(low, high, certified=not data.other_rewards)
    if isinstance(chosen, PTST):
        return _from_ball(table, data.all_counts(table), level, chosen)
    if isinstance(data, Counts):
        raise InputError("counts have no order, which betting needs; pass Transitions(s, a, x), or method=PTST()")
    run = chosen.replay(table, _middle(table), recorded(table, data), both_sides=True)
    return _not_refuted(run, level, data.flaws)


def _of_episodes(
    log: LoggedEpisodes, data: object, delta: float, method: object, looks: str, budget: int | None
) -> Interval:
    """The values that bets on recorded episodes do not refute; or the usual interval for one look."""
    betting, level = checked_log(log, data, method), -math.log(delta)
    if log.task is not None:
        raise InputError("the log has tasks, and the interval of their mean comes with a verdict; ask assess(log, R)")
    if isinstance(betting, LargeSample):
        return _of_large_sample(log, betting if looks == "any" else LargeSample(looks), delta, budget)
    if budget is not None:
        _check_aimed(log, looks)
    if looks == "one":
        return one_look_at_episodes(log, delta)
    low, high = log.bounds
    if low == high:
        return Interval(low, high, certified=True)
    inside = inner_point(log.bounds)
    flaws = flaws_of(log)
    warn_of_weights(flaws)
    flaws += log.outside
    run = betting.replay(log, inside, for_interval=True)
    if budget is None:
        return _not_refuted(run, level, flaws)
    goal, returns = Goal(budget, level, log.bounds), (log.outcomes.above, log.outcomes.below)
    steady = _not_refuted(run, goal.steady_level, flaws)
    return Interval(*aimed_interval(goal, returns, (steady.lower, steady.upper)), certified=not flaws, budget=budget)


def _of_large_sample(log: LoggedEpisodes, method: LargeSample, delta: float, budget: int | None) -> Interval:
    """The interval of a large sample, at any time, or that of the t-test."""
    if budget is not None:
        raise InputError("budget: a large sample does not aim at the end of one; leave out budget")
    warn_of_weights(flaws_of(log))
    run = method.replay(log, 0.0)
    for _ in steps(run, math.inf, UNLIMITED):
        pass
    ends = run.interval(-math.log(delta))
    return Interval(*ends, certified=False, looks=method.looks, approximate=True)


def _check_aimed(log: LoggedEpisodes, looks: str) -> None:
    """Refuse a budget where no bets aim at its end."""
    if looks == "one":
        raise InputError('budget: with looks="one" the log is finished, and there is one look; leave out budget')
    if log.weighted or not all(map(math.isfinite, log.bounds)):
        why = "have propensities" if log.weighted else "have a range of returns without an end"
        raise InputError(f"budget: these episodes {why}, and no bets on them aim at its end; leave out budget")


def _not_refuted(run: Run, level: float, flaws: tuple[str, ...]) -> Interval:
    """The values that bets on recorded data, all of them, do not refute on either side."""
    for _ in steps(run, math.inf, UNLIMITED):
        pass
    return Interval(*run.interval(level), certified=not flaws)


def _from_ball(task: Task, counts: Counts, level: float, method: PTST) -> Interval:
    """The range of values over the KL ball."""
    run = method.replay(task, _middle(task), Recorded(NOTHING, NOTHING))
    run.tally.load(counts)
    found = ball_interval(run, level)
    return replace(found, certified=found.certified and not counts.flaws)


def ball_interval(run: KLRun, level: float, solver: Solver | None = None) -> Interval:
    """The range of values over the ball of radius beta(t, delta) around the counts of a run, proved where possible."""
    low, high = value_range(run.task)
    problem, R = run.tally.problem(), run.threshold
    if not problem.n.any():
        return Interval(low, high, certified=True)
    radius = max(level + run.tally.dimension(), 0.0)
    if not run.tally.targets_policy_value:
        solver = run.tally.local(SEARCHES)
    solver = solver or (run.method.solver if proves(run.method.solver) else Certified())
    first = solver.extreme(problem.extreme(1.0, radius))
    second = solver.extreme(problem.extreme(-1.0, radius))
    lower = first.lower if first.certified else first.upper
    upper = second.upper if second.certified else second.lower
    return Interval(max(lower + R, low), min(upper + R, high), first.certified and second.certified)


def _middle(task: Task) -> float:
    """Between the ends of the range; one end where the other is infinite."""
    ends = [end for end in value_range(task) if math.isfinite(end)]
    return math.fsum(ends) / max(len(ends), 1)


def evaluate(
    task: Task | Episodes,
    sim: SimulatorLike | Transitions | None = None,
    epsilon: float | None = None,
    delta: float = 0.05,
    method: PTST | TDBetting | ReturnBetting | LargeSample | None = None,
    rng: Seed = 0,
    max_samples: int | None = None,
    progress: Callable[[int, float, float], None] | None = None,
    max_seconds: float | None = None,
    budget: int | None = None,
    parallel: int = 1,
) -> Estimate:
    """Sample until the value is known within epsilon, with probability at least 1-delta.

    Parameters
    ----------
    task, sim
        A `Task` and a simulator; or `Episodes`, which need none; or, of a task, recorded `Transitions(s, a, x)` in
        their order: then nothing is sampled, and the interval is that of `value_interval`.
    method
        `TDBetting()`, the default, or `PTST(...)`, whose interval is the range of values over a KL ball. Of `Episodes`,
        `ReturnBetting()`, or, if no end of their range is known, `LargeSample()`, which is approximate.
    max_samples, max_seconds
        End there with the interval reached so far; so does Ctrl-C.
    progress
        Called with (samples, lower, upper) at every look.
    budget
        The most transitions of a table, or the most `Episodes`, fixed before the first one: the interval is then by
        bets that aim at its end, where the run stops. Without epsilon it is the interval there.
    parallel
        As in `decide`: how many rollouts, or `Episodes`, are under way at once.

    Paper: appendix B.
    """
    asked, workers = Precision.checked(epsilon, delta, budget), driver.workers(parallel)
    limits = driver.sampling_limit(max_samples), driver.time_limit(max_seconds)
    if isinstance(task, Episodes):
        betting: Any = driver.checked_method(method, task)
        if traits_of(betting).approximate:
            sample = _by_large_sample(betting, task, driver.checked_source(task, sim), rng, asked)
            driver.in_parallel(sample, workers)
            return SampleNarrowing(sample, UNKNOWN, asked).estimate(task, limits, progress)
        _check_epsilon(task, asked.epsilon)
        run = betting.start(task, driver.checked_source(task, sim), inner_point(task.bounds), rng, both_sides=True)
        driver.in_parallel(run, workers)
        kind: type[Narrowing] = Narrowing if asked.budget is None else AimedNarrowing
        narrowing = kind(run, Interval(*task.bounds, certified=True), asked)
        return narrowing.estimate(task, limits, progress)
    if isinstance(method, ReturnBetting | LargeSample):
        raise InputError(f"method: {method!r} is for Episodes; pass TDBetting() or PTST()")
    arrays.instance("task", task, Task)
    sim = driver.checked_source(task, sim)
    low, high = value_range(task)
    if not (math.isfinite(low) and math.isfinite(high)):
        raise InputError(
            f"task: values may lie anywhere in [{low:g}, {high:g}], so that none is known within epsilon; {REMEDIES}"
        )
    if isinstance(sim, Transitions):
        driver.not_on_a_log(
            max_samples=max_samples,
            max_seconds=max_seconds,
            budget=budget,
            parallel=parallel if workers > 1 else None,
        )
        sim = diagnosed(task, sim)
        found = value_interval(task, sim, delta, method)
        by = (method or LogBetting()).describe()
        return asked.estimate(task, found, len(sim), sim.all_counts(task), by)
    method = method or TDBetting()
    if not isinstance(method, PTST | TDBetting):
        raise InputError(f"method is {method!r}; pass TDBetting() or PTST()")
    table, method, source = in_outcomes(task, method, sim)
    error = 4 * value_range_error(table)
    best = Interval(low - error, high + error, certified=True)
    if best.width <= 2 * asked.half or not any_unknown(table):  # no sample is needed, or none can help
        return asked.estimate(table, best, 0, driver.nothing_seen(table), method.describe())
    both_sides = {"both_sides": True} if traits_of(method).zone else {}
    run = method.start(table, source, _middle(table), rng, **both_sides)
    if asked.budget is not None:
        run.aim_at(asked.budget)
    driver.in_parallel(run, workers)
    narrowing = (BallNarrowing if isinstance(run, KLRun) else Narrowing)(run, best, asked)
    return diagnosed_run(task, sim, narrowing.estimate(table, limits, progress))


def _by_large_sample(method: LargeSample, task: Episodes, sim: object, rng: Seed, asked: Precision) -> LargeSampleRun:
    """The run of a large sample; one look has to know when."""
    if asked.epsilon is not None:
        driver.refuse_one_look(method, "a precision is looked for after every episode")
    run = method.start(task, sim, inner_point(task.bounds), rng)
    if asked.budget is not None:
        run.aim_at(asked.budget)
    return run


def _check_epsilon(task: Episodes, epsilon: float | None) -> None:
    """Refuse a precision that no number of episodes gives: an interval has the ends that the range has."""
    if epsilon is None or all(map(math.isfinite, task.bounds)):
        return
    end, side = ("upper", "lower") if math.isinf(task.bounds[1]) else ("lower", "upper")
    raise InputError(
        f"epsilon: returns have no known {end} end, and neither has any interval for their mean; pass a budget without "
        f"epsilon, which gives the {side} end, or both ends of return_range"
    )


class Precision(NamedTuple):
    """What is asked for: half the width of an interval, or None for that at the end of the budget."""

    epsilon: float | None
    delta: float
    budget: int | None

    @classmethod
    def checked(cls, epsilon: object, delta: object, budget: object) -> Precision:
        """From what the user passed."""
        budget = driver.checked_budget(budget)
        if epsilon is None and budget is None:
            raise InputError(
                "epsilon is missing; pass epsilon=, half the width of the interval that is wanted, or a budget"
            )
        if epsilon is not None:
            epsilon = arrays.real_number("epsilon", epsilon)
            arrays.positive(epsilon=epsilon)
        return cls(epsilon, check_delta(delta), budget)

    @property
    def level(self) -> float:
        """log(1/delta)."""
        return -math.log(self.delta)

    @property
    def half(self) -> float:
        """Half of a width that is short enough."""
        return self.epsilon or 0.0

    def estimate(
        self,
        task: Task | Episodes,
        found: Interval,
        samples: int,
        counts: Counts | Returns,
        method: str,
        is_spent: bool = True,
        mean: float = math.nan,
    ) -> Estimate:
        """The middle of an interval, and whether that is what was asked for: near enough, or at the end.

        With one end alone, which is what returns with one known end have, the value is the ``mean``.
        """
        middle = 0.5 * (found.lower + found.upper)
        return Estimate(
            value=middle if math.isfinite(middle) else mean,
            lower=found.lower,
            upper=found.upper,
            samples=samples,
            certified=found.certified and not counts.flaws,
            epsilon=self.epsilon,
            delta=self.delta,
            reached=is_spent if self.epsilon is None else 0.0 <= found.width <= 2 * self.epsilon,
            method=method,
            counts=counts,
            task=task,
            budget=self.budget,
            approximate=found.approximate,
        )


class Narrowing:
    """An interval that narrows as a run samples: at each look it is intersected with the one of that moment."""

    def __init__(self, run: Run, best: Interval, asked: Precision) -> None:
        self.run, self.best, self.asked = run, best, asked

    def advance(self, most: int) -> None:
        """Go on, by at most so many samples."""
        self.run.step(math.inf, most)

    def now(self, is_last: bool) -> Interval:
        """The interval at this moment; ``is_last``: at the end."""
        return Interval(*self.run.interval(self.asked.level), certified=True)

    def narrowed(self, is_last: bool) -> Interval:
        """What is left of the interval so far."""
        return self.best & self.now(is_last)

    def is_short(self) -> bool:
        """Whether the interval is short enough."""
        return self.best.width <= 2 * self.asked.half

    def steps(self, limit: int) -> Iterator[bool]:
        """Sample until the interval is short enough or the samples are used up; whether there was a look."""
        run, look = self.run, 0.0
        while not self.is_short() and run.samples_used < limit and not run.exhausted:
            self.advance(limit - run.samples_used)
            due = run.samples >= look or run.samples_used >= limit
            if due:
                look = LOOK * run.samples
                self.best = self.narrowed(is_last=False)
            yield due
        run.finish()

    def until(self, limit: int, seconds: float, progress: Callable[[int, float, float], None] | None) -> Interval:
        """The interval once it is short enough, a limit is reached, or Ctrl-C; the progress is told of each look.

        Where it is not short enough there is a last look.
        """
        run = self.run

        def tell(due: bool) -> None:
            if progress is not None and due:
                progress(run.samples_used, self.best.lower, self.best.upper)

        ends = UnnamedEnds(run.task, run.tally)
        if not driver.until_interrupted(run.source, self.steps(limit), tell, self.is_short, ends, seconds):
            run.examine()
        if not self.is_short():
            self.best = self.narrowed(is_last=True)
        return self.best

    def estimate(
        self, task: Task | Episodes, limits: tuple[int, float], progress: Callable[[int, float, float], None] | None
    ) -> Estimate:
        """What was found at the end."""
        found, run = self.until(*limits, progress), self.run
        about = run.samples_used, run.counts(), run.method.describe(), run.exhausted, run.estimate
        driver.warn_of_doubts(about[1])
        return self.asked.estimate(task, found, *about)


class SampleNarrowing(Narrowing):
    """The interval of a large sample: that of the moment, since early ones are the least exact."""

    def now(self, is_last: bool) -> Interval:
        """It is not proved."""
        return Interval(*self.run.interval(self.asked.level), certified=False, approximate=True)

    def narrowed(self, is_last: bool) -> Interval:
        """Nothing of earlier ones is kept."""
        return self.now(is_last)

    def estimate(
        self, task: Task | Episodes, limits: tuple[int, float], progress: Callable[[int, float, float], None] | None
    ) -> Estimate:
        """Why it has none, if it has none."""
        found = super().estimate(task, limits, progress)
        return found if math.isfinite(found.lower) else replace(found, reason=self.run.why_undecided())


class AimedNarrowing(Narrowing):
    """The same on a budget of episodes: by bets that aim at its end, where the interval may be short enough."""

    run: ReturnsRun

    def __init__(self, run: ReturnsRun, best: Interval, asked: Precision) -> None:
        super().__init__(run, best, asked)
        assert asked.budget is not None
        run.stop_after(asked.budget)
        self.goal = Goal(asked.budget, asked.level, run.task.bounds, run.task.score)
        self.aims = all(map(math.isfinite, run.task.bounds))  # otherwise steady bets alone

    def now(self, is_last: bool) -> Interval:
        """By the bets that aim at the end, unless that is too early; otherwise by the steady ones beside them."""
        run, asked = self.run, self.asked
        low, high = run.interval(self.goal.steady_level if self.aims else asked.level)
        refuted = max(low, self.best.lower), min(high, self.best.upper)  # what was refuted remains so
        variance = float(np.var(run.returns)) if run.episodes else math.inf  # of a vector the first may take long
        hoped = math.sqrt(HOPED * asked.level * variance / max(run.episodes, 1))
        if self.aims and (is_last or hoped <= asked.half):
            refuted = aimed_interval(self.goal, run.outcomes(), refuted)
        return Interval(*refuted, certified=True)


class BallNarrowing(Narrowing):
    """The same for a KL ball: it is solved with proofs only where that may end the run, and at the last look."""

    run: KLRun

    def advance(self, most: int) -> None:
        """A block of samples by the run's own rule: as many again by LOOK, at least one a pair."""
        run, limit = self.run, self.run.samples_used + most
        end = run.samples + max(int(LOOK * run.samples) - run.samples, len(run.tally.n))
        while run.samples < end and run.samples_used < limit:
            run.draw(min(end - run.samples, limit - run.samples_used))

    def now(self, is_last: bool) -> Interval:
        """The range of values over the ball."""
        run, asked = self.run, self.asked
        if not is_last and ball_interval(run, asked.level, ProjectionFree(starts=2)).width > 2 * asked.half:
            return Interval(*value_range(run.task), certified=True)
        return ball_interval(run, asked.level)
