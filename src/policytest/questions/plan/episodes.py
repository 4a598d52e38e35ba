r"""How many episodes a test of `Episodes` takes: before it, from a pilot, and after one that is undecided.

Episodes to come are drawn, with replacement, from those that were seen, and the test itself is run on them:

- *the mean* is that of tests whose returns are the pilot's;
- *the range* holds nine tests in ten whose returns are those of a pilot that is drawn again, with replacement, for each
  test. So it has the uncertainty of the pilot's mean, too.

An undecided test goes on from where it stands, each time with the returns of its own episodes drawn again.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.data.episodes import Episodes
from policytest.data.ranges import inner_point
from policytest.data.returns import Returns
from policytest.eprocess.aimed_interval import Goal
from policytest.kl.sampler import UNLIMITED
from policytest.methods.default import ByEpisodes, of_episodes
from policytest.methods.episode_run import EpisodesRun
from policytest.methods.run import traits_of
from policytest.payoffs.known_range import KnownRange, only_answer
from policytest.payoffs.outcomes import EpisodeSupply, Outcomes
from policytest.payoffs.pairs import check_same_return, difference_bounds, whole_episodes
from policytest.questions.plan.power import Wanted, power_of_returns
from policytest.results.large_sample import is_one_look
from policytest.results.needed import Needed, Simulated, forecast, not_known
from policytest.results.plan import Plan
from policytest.results.verdict import Verdict

PILOT, LEAST = 50, 2  # episodes of a pilot
MEANS = 400  # pilots that are drawn again, for the uncertainty of the mean
RUNS, WORK = 64, 200_000  # tests that are simulated, and episodes of all of them
TAIL = 0.05  # on each side of nine tests in ten
OTHER_SIDE = 0.05  # share of pilots beyond the threshold from which on they do not say the side
BLOCK = 64  # episodes that are drawn at once
NOT_CERTIFIED = "Returns have no known range: the test is LargeSample(), whose answers are not certified."
ENDLESS = "more than one simulated test in twenty was cut after {}"
NO_POWER = (
    "power: returns have no known range, so that nothing aims at the end of a budget; leave power out, or pass "
    "return_range=(low, high)"
)
UNSURE = "the pilot does not say on which side of the threshold the mean return is"


class Subject(NamedTuple):
    """What the test is about: an agent; or the difference of two, in pairs."""

    task: Episodes
    other: Episodes | None = None

    @classmethod
    def checked(cls, task: Episodes, other: object = None) -> Subject:
        """From what the user passed."""
        if other is None:
            return cls(task)
        a, b = whole_episodes("task[0]", task), whole_episodes("task[1]", other)
        check_same_return(a, b)
        return cls(a, b)

    @property
    def bounds(self) -> tuple[float, float]:
        """Where an outcome lies."""
        return self.task.bounds if self.other is None else difference_bounds(self.task, self.other)

    @property
    def about(self) -> str:
        """Its name."""
        return "value" if self.other is None else "difference"

    @property
    def returns(self) -> str:
        """The subject of a sentence about its range."""
        return "returns have" if self.other is None else "the difference of returns has"

    def source(self, rng: np.random.Generator) -> EpisodeSupply:
        """Episodes, or pairs of them, that are run."""
        if self.other is None:
            return self.method.start(self.task, None, inner_point(self.bounds), rng).source
        return self.method.on_pairs(self.task, self.other, 0.0, rng).source

    @property
    def method(self) -> ByEpisodes:
        """The test that is planned."""
        return of_episodes(self.task, self.other)


class Resampled(EpisodeSupply):
    """Episodes drawn with replacement from others, as a supply; ``again``: these are first drawn so themselves."""

    def __init__(self, seen: Returns, bounds: tuple[float, float], rng: np.random.Generator, again: bool) -> None:
        chosen = rng.integers(seen.episodes, size=seen.episodes) if again else slice(None)
        self.returns, self.steps, self.rng = seen.returns[chosen], seen.steps[chosen], rng
        self.low, self.high = bounds

    def take(self, most: int) -> Outcomes:
        """The next episodes."""
        drawn = self.rng.integers(len(self.returns), size=BLOCK)
        found = np.clip(self.returns[drawn], self.low, self.high)
        return Outcomes(found, found, found, self.steps[drawn])


class Lengths(NamedTuple):
    """(episodes, transitions) of simulated tests [n, 2], infinite where a test was cut: after ``most`` episodes."""

    found: FloatArray
    most: int

    @property
    def is_cut(self) -> bool:
        """Whether a test was cut."""
        return bool(np.isinf(self.found).any())

    def mean(self, steps: float) -> tuple[float, float]:
        """The means; a test that was cut counts with what it had, with so many steps an episode."""
        episodes, transitions = np.minimum(self.found, [self.most, self.most * steps]).mean(axis=0)
        return float(episodes), float(transitions)

    def range(self) -> FloatArray:
        """[low, high] of both, which nine tests in ten lie between."""
        n, ordered = len(self.found), np.sort(self.found, axis=0)
        return np.asarray(ordered[[math.ceil(TAIL * n) - 1, math.ceil((1.0 - TAIL) * n) - 1]])


def simulated(start: Callable[[bool], EpisodesRun], required: float, runs: int, limit: int, again: bool) -> Lengths:
    """Tests that go on until they are settled; those that are not are cut, all after the same number of episodes.

    That number is at most ``limit``, and such that all tests together have about `WORK` episodes at most.
    """
    tests = [start(again) for _ in range(runs)]
    before = np.array([(run.episodes, run.samples) for run in tests])
    most, first = BLOCK, int(before[0, 0])
    while True:
        for run in tests:
            run.begin(required)
            while run.answer is None and run.episodes - first < min(most, limit):
                run.step(required, BLOCK)
        left = sum(run.answer is None for run in tests)
        if not left or most >= limit or left * most > WORK:
            break
        most *= 2
    found = np.array([(run.episodes, run.samples) for run in tests]) - before
    settled = np.array([run.answer is not None for run in tests])
    return Lengths(np.where(settled[:, None], found, math.inf), min(most, limit))


def piloted(subject: Subject, given: object, pilot: int, rng: np.random.Generator) -> Returns:
    """The episodes of a pilot, which is run here unless it is ``given``."""
    if given is None:
        source = subject.source(rng)
        returns, steps = np.zeros(0), np.zeros(0, dtype=np.int64)
        while len(returns) < pilot:
            taken = source.take(UNLIMITED)
            returns, steps = np.append(returns, taken.returns), np.append(steps, taken.steps)
        return Returns(returns[:pilot], steps[:pilot])
    if not isinstance(given, Returns):
        raise InputError(
            f"guess is a {type(given).__name__}; of Episodes, leave it out, so that a pilot is run, or pass the counts "
            "of a verdict about these episodes"
        )
    if given.episodes < LEAST:
        raise InputError(f"guess has {plural(given.episodes, 'episode')}; a pilot has at least {LEAST}")
    return given


def plan_episodes(
    subject: Subject,
    seen: Callable[[], Returns],
    threshold: float,
    delta: float,
    runs: int,
    rng: np.random.Generator,
    limit: int,
    wanted: Wanted | None = None,
) -> Plan:
    """How many episodes and transitions the test takes, if those to come are like those of the pilot."""
    task, bounds = subject.task, subject.bounds
    if KnownRange(*bounds, 0.0).settles(threshold):
        note = "The declared range of returns gives the answer, without a sample."
        return _plan(subject, threshold, delta, math.nan, np.zeros((3, 2)), False, note)
    method = subject.method
    if wanted is not None and traits_of(method).approximate:
        raise InputError(NO_POWER)
    pilot = seen()

    def start(again: bool) -> EpisodesRun:
        return method.on(task, threshold, Resampled(pilot, bounds, rng, again))

    level, steps, value = -math.log(delta), pilot.total / pilot.episodes, task.value_of(pilot.returns)
    plain, drawn_again = (simulated(start, level, runs, limit, again) for again in (False, True))
    mean, (low, high) = plain.mean(steps), drawn_again.range()
    counted = f"{plural(pilot.episodes, 'episode')} with {plural(pilot.total, 'transition')}"
    notes = [f"The pilot has {counted}, not part of the test."]
    if beyond(task, pilot, value, threshold, rng) > OTHER_SIDE:
        high = np.full(2, math.inf)
        notes.append(f"Beware: {UNSURE}.")
    elif np.isinf(high).any():
        notes.append(f"Beware: {ENDLESS.format(plural(drawn_again.most, 'episode'))}.")
    if traits_of(method).approximate:
        notes.append(NOT_CERTIFIED)
    one_answer = "" if task.score is not None else only_answer(bounds, threshold, subject.returns)
    if one_answer:
        notes.append(f"Beware: {one_answer}.")
    if np.isinf(low).any():
        low = drawn_again.most * np.array([1.0, steps])
    found = np.array([np.maximum(mean, 0.0), np.minimum(low, mean), np.maximum(high, mean)])
    plan = _plan(subject, threshold, delta, value, found, plain.is_cut, *notes)
    cannot = math.isinf(bounds[0] if value > threshold else bounds[1])
    if wanted is None or value == threshold or cannot or not bounds[0] < threshold < bounds[1]:
        return plan
    goal = Goal(limit, level, bounds, task.score)
    returns = np.clip(pilot.returns, *bounds)
    powered = power_of_returns(wanted, goal, returns, threshold, value, rng, subject.other is not None)
    return replace(plan, powered=powered)


def beyond(task: Episodes, seen: Returns, middle: float, threshold: float, rng: np.random.Generator) -> float:
    """The share of `MEANS` bootstrap pilots whose value is on the other side of the threshold than ``middle``."""
    drawn = (seen.returns[rng.integers(seen.episodes, size=seen.episodes)] for _ in range(MEANS))
    values = np.array([task.value_of(returns) for returns in drawn])
    return float(((middle - threshold) * (values - threshold) <= 0).mean())


def _plan(
    subject: Subject, threshold: float, delta: float, value: float, found: FloatArray, is_cut: bool, *notes: str
) -> Plan:
    """``found`` [3, 2]: mean, low and high, of episodes and of transitions."""
    name = type(subject.method).__name__
    episodes, samples = ((float(mean), float(low), float(high)) for mean, low, high in found.T)
    return Plan(
        task=subject.task,
        threshold=threshold,
        delta=delta,
        value=value,
        time=(0.0, math.inf),
        bound=0.0,
        allocation=None,
        saving=1.0,
        samples={name: samples},
        methods={name: subject.method},
        at_least=frozenset([name] if is_cut else ()),
        notes=notes,
        episodes={name: episodes},
        about=subject.about,
    )


# ---------------------------------------------------------------- a test that goes on


def further_episodes(verdict: Verdict, chance: float, rng: np.random.Generator, limit: int) -> Needed:
    """How many more episodes settle an undecided test, if they are like those so far."""
    seen: Returns = verdict.counts
    if is_one_look(verdict):
        return forecast(
            verdict, chance, math.inf, "Nothing can be foreseen: the number of episodes of one look is fixed."
        )
    kind = ("pair", "pairs") if verdict.about == "difference" else ("episode", "episodes")
    method = f"{verdict.method}, resumed"
    if verdict.answer is not None or not verdict.snapshot or not seen.episodes:
        words = "No more episodes are needed." if verdict.answer else "Nothing can be foreseen: no episode was run yet."
        return replace(forecast(verdict, chance, 0.0 if verdict.answer else math.inf, words), method=method)

    def start(again: bool) -> EpisodesRun:
        return _restored(verdict, seen, rng, again)

    lengths = simulated(start, verdict.required, RUNS, limit, True)
    enough = np.sort(lengths.found, axis=0)[math.ceil(chance * len(lengths.found)) - 1]
    units = (f"{kind[0]}s of episodes" if kind[0] == "pair" else "episodes"), "transitions"
    rests_on = Simulated(len(lengths.found), int(np.isfinite(lengths.found[:, 0]).sum()), lengths.most, kind[1])
    table = np.vstack([lengths.found.mean(axis=0), lengths.range()]).T.tolist()
    spread = {unit: (mean, low, high) for unit, (mean, low, high) in zip(units, table, strict=True)}
    if np.isfinite(enough[0]):
        words = f"About {plural(int(enough[0]), f'more {kind[0]}', f'more {kind[1]}')} should settle it, "
        words += f"of {plural(int(enough[1]), 'transition')}."
    else:
        words = f"{not_known(kind[1], rests_on)}."
    if beyond(verdict.task, seen, verdict.estimate, verdict.threshold, rng) > OTHER_SIDE:
        words = f"{words[:-1]}; the data do not say on which side the value is."
    found, median = forecast(verdict, chance, float(enough[1]), words), float(np.median(lengths.found[:, 1]))
    return replace(found, method=method, spread=spread, expected=median, simulated=rests_on)


def _restored(verdict: Verdict, seen: Returns, rng: np.random.Generator, again: bool) -> EpisodesRun:
    """The run of a verdict as it stood, with a future like its past. Plans of pairs have what a full bet stakes."""
    bounds, zone = verdict.task.bounds, verdict.indifference
    if verdict.about == "difference" and "plans" in verdict.snapshot:
        (above, *_), (below, *_) = verdict.snapshot["plans"]
        bounds = verdict.threshold - float(above), verdict.threshold + float(below)
    source = Resampled(seen, bounds, rng, again)
    run: EpisodesRun = verdict.settings.on(verdict.task, verdict.threshold, source, zone)
    run.restore(verdict.snapshot)
    return run
