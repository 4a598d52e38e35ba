"""The driver of every question: a run is stepped to its end, with checks, Ctrl-C, checkpoints and pauses.

What delta bounds: if V <= R, the probability of ever answering "above" is at most delta, and if V >= R that of "below";
so looking at every sample, stopping early, resuming and stopping late are all allowed.

Paper: `def:delta-PC`.
"""

from __future__ import annotations

import math
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from policytest._base import arrays
from policytest._base.errors import AssumptionWarning, InputError, not_an_instance, on_interruption
from policytest._base.record import Record
from policytest._base.text import number
from policytest.data.counts import Counts
from policytest.data.episodes import Episodes
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.randomness import Seed
from policytest.data.ranges import LARGE_SAMPLE
from policytest.data.returns import Returns
from policytest.data.trials import MatchedTrials
from policytest.kl.boundaries import check_delta
from policytest.kl.sampler import UNLIMITED
from policytest.mdp.task import Task
from policytest.methods import checkpoint as checkpoints
from policytest.methods.default import of_episodes
from policytest.methods.listed_rewards import in_outcomes
from policytest.methods.names import REPLACED
from policytest.methods.run import Drawing, Found, Method, Outcome, Pause, Run, is_certified, steps, traits_of
from policytest.methods.td_betting import TDBetting
from policytest.payoffs.known_range import KnownRange, is_open_question, known_value, only_answer
from policytest.questions.plan.still_needed import further
from policytest.questions.unnamed_ends import UnnamedEnds
from policytest.results.forecast import Forecast
from policytest.results.provenance import Provenance
from policytest.results.verdict import Check, Verdict

Resume = Verdict | str | os.PathLike[str]
INTERRUPTED, OUT_OF_TIME, NOT_KEPT = "interrupted", "the time limit is reached", "the checkpoint "
COMBINED = "betting on temporal differences, combined with the mixture-KL rule"
"""A method of earlier versions, in their checkpoints."""


Step = TypeVar("Step")
Subject = Task | Episodes | LoggedEpisodes | MatchedTrials


@dataclass(frozen=True)
class Question:
    """Is a value, or the difference of two, above a bar, or within a zone around it?"""

    task: Subject
    bar: float
    delta: float
    zone: float = 0.0
    about: str = "value"
    budget: int | None = None  # fixed beforehand: transitions of a table, episodes, or pairs of them
    parallel: int = 1  # rollouts, episodes or pairs under way at once

    @classmethod
    def checked(
        cls,
        task: object,
        threshold: object,
        delta: object,
        indifference: object = 0.0,
        about: str = "value",
        budget: object = None,
        parallel: object = 1,
    ) -> Question:
        """From what the user passed; the bar of a difference is called its margin."""
        zone = arrays.real_number("indifference", indifference)
        if zone < 0:
            raise InputError(f"indifference is {zone}; it must be at least 0")
        if not isinstance(task, Task | Episodes | LoggedEpisodes):
            raise InputError(f"task is a {type(task).__name__}, expected a Task")
        if threshold is None and about == "value":
            raise InputError("threshold is missing; pass threshold=R, the bar that the value is compared with")
        bar = arrays.real_number("threshold" if about == "value" else "margin", threshold)
        return cls(task, bar, check_delta(delta), zone, about, checked_budget(budget), workers(parallel))

    @property
    def table(self) -> Task | None:
        """The task; None where episodes are asked about, of which the range of returns is declared."""
        return self.task if isinstance(self.task, Task) else None

    @property
    def level(self) -> float:
        """The evidence that an answer needs: log(1/delta).

        With a zone, delta/2 is for "above" or "below", and as much for "within".
        """
        return -math.log(self.delta) + (math.log(2.0) if self.zone else 0.0)

    def known(self, tell: int = 0, method: object = None) -> Verdict | None:
        """The answer where no sample is needed: R outside the range of values, or no row unknown.

        With ``tell``, the stack level of the warning, a threshold at an end of the range is told, unless the method
        does not bet.
        """
        tell = 0 if traits_of(method).approximate else tell
        if not isinstance(self.task, Task):
            known = KnownRange(*self.task.bounds, 0.0)
        elif is_open_question(self.task, self.bar, self.zone):
            return None
        else:
            known = known_value(self.task)
        return self.known_by(known, tell and tell + 1)

    def known_by(self, known: KnownRange, tell: int = 0) -> Verdict | None:
        """The verdict without samples, where the range settles it.

        Where it does not, ``tell``, the stack level, warns if one answer cannot come.
        """
        bar, about, name = self.bar, self.about, "threshold" if self.about == "value" else "margin"
        answer = known.answer(bar, self.zone)
        if not known.settles(bar, self.zone):
            if tell and (words := self._only_answer(known)):
                warnings.warn(words, AssumptionWarning, stacklevel=tell + 1)
            return None
        of = "values" if about == "value" else "the difference of policy A and policy B"
        whatever = "as declared" if self.table is None else "over all kernels"
        always = "by the declared ranges" if self.table is None else "whatever the unknown transition probabilities are"
        return Verdict(
            task=self.task,
            threshold=bar,
            delta=self.delta,
            answer=answer,
            samples=0,
            certified=answer is not None,
            estimate=known.low if known.low == known.high else math.nan,
            interval=(known.low, known.high),
            counts=nothing_seen(self.table),
            proof=Outcome(
                (np.inf if answer == "above" else 0.0, np.inf if answer == "below" else 0.0),
                Found(lower_bound=0.0),
                refuted=(math.inf, math.inf) if answer == "within" else None,
            ),
            provenance=Provenance(f"the range of {of} {whatever}"),
            forecast=Forecast(forecaster=further),
            reason="" if answer else f"the {about} equals the {name} {always}",
            about=about,
            indifference=self.zone,
        )

    def _only_answer(self, known: KnownRange) -> str:
        """That one answer cannot come, and what to do; "" where both can.

        With the threshold at an end of the range the other one comes only if not every episode is as bad, or as good,
        as can be.
        """
        bar, about, ends = self.bar, self.about, (known.low, known.high)
        if not isinstance(self.task, Task) and getattr(self.task, "score", None) is None and math.isinf(sum(ends)):
            alone = about == "value"
            words = only_answer(ends, bar, "returns have" if alone else "the difference of returns has")
            nor = ' (nor "within")' if self.zone else ""
            of = "return_range" if alone else "return_range of both agents"
            return f"{words}{nor}; declare both ends of {of} for both answers"
        if self.zone or (only := known.only_answer(bar)) is None:
            return ""
        name = "threshold" if about == "value" else "margin"
        return (
            f"{name} is {number(bar)}, the {'most' if only == 'below' else 'least'} that the {about} can be: "
            f'only "{only}" can be answered, and if the {about} is {number(bar)}, the test does not end; pass '
            f"a {name} inside the range, or allow an indifference zone"
        )

    def started(self, sim: object, method: object, rng: Seed) -> Run:
        """The run of a method on a simulator, in the outcome table where the method needs that."""
        checked = checked_method(method, self.task), checked_source(self.task, sim)
        table, chosen, source = in_outcomes(self.task, *checked)
        if self.zone and not traits_of(chosen).zone:
            raise InputError(f"indifference: the method {chosen.describe()!r} has none; use TDBetting()")
        zone = {"indifference": self.zone, "both_sides": True} if self.zone else {}
        run: Run = chosen.start(table, source, self.bar, rng, **zone)
        return run

    def prepared(self, run: Run) -> Run:
        """A run that has not begun, aimed at an answer within the budget, if there is one, and with its workers."""
        if self.budget is not None:
            run.aim_at(self.budget, self.about == "difference")
        in_parallel(run, self.parallel)
        return run

    def verdict(
        self, run: Run, counts: Counts | Returns, samples: int, reason: str, snapshot: Record | None = None
    ) -> Verdict:
        """What a run says at its end."""
        return Verdict(
            task=run.task,
            threshold=run.threshold,
            delta=self.delta,
            answer=run.answer,
            samples=samples,
            certified=is_certified(run, self.level) and not counts.flaws,
            estimate=run.estimate,
            interval=run.verdict_interval(self.level),
            counts=counts,
            proof=replace(
                run.outcome(self.level),
                solves=run.solves,
                refuted=run.ends_refuted() if run.answer == "within" else None,
            ),
            provenance=Provenance(
                run.method.describe(),
                run.method,
                getattr(run.method, "seed", None),
                self.table if self.about == "value" and run.task is not self.task else None,
                budget=self.budget,
            ),
            forecast=Forecast(None, further, snapshot or {}, run.reward_moments),
            reason="" if run.answer else _reason(run, reason),
            about=self.about,
            indifference=run.indifference,
        )


def warn_of_doubts(counts: Counts | Returns) -> None:
    """Warn of what independent episodes hardly ever do."""
    for words in counts.doubts if isinstance(counts, Returns) else ():
        warnings.warn(words, AssumptionWarning, stacklevel=4)


def nothing_seen(table: Task | None) -> Counts | Returns:
    """No transitions of a table; without one, no episodes."""
    if table is None:
        return Returns(np.zeros(0), np.zeros(0, dtype=np.int64))
    return Counts(table.n_states, table.n_actions, sparse=arrays.is_sparse(table.support))


class Orders(NamedTuple):
    """How a run is carried out: its limits, its seed, where it is kept, and who is told."""

    samples: int
    seconds: float
    rng: Seed
    checkpoint: str | os.PathLike[str] | None
    resume: Resume | None
    progress: Callable[[Check], None] | None


def carry_out(question: Question, run: Run, mark: str, orders: Orders, pause: Pause | None = None) -> Verdict:
    """Go on with a run until its evidence suffices, a limit is reached, or Ctrl-C; see `decide`.

    ``mark`` is the fingerprint by which a kept run is recognised.
    """
    progress = orders.progress
    question.prepared(run)
    if orders.resume is not None:
        _resume(run, mark, orders.resume)
    saver = _Saver(run, mark, orders.checkpoint, orders.resume)

    def look(check: Check) -> None:
        if progress is not None:
            progress(check)
        saver.now_and_then()

    checks = saver.while_kept(drive(run, question.level, orders.samples, pause))
    ends = UnnamedEnds(run.task, run.tally)
    reason = until_interrupted(
        run.source, checks, look, lambda: run.answer is not None, ends, orders.seconds, saver.at_the_end
    )
    if not reason:
        run.examine()
    reason = saver.problem or reason or "the sample limit is reached"
    verdict = question.verdict(run, run.counts(), run.samples_used, reason, _snapshot(run, mark))
    warn_of_doubts(verdict.counts)
    return with_seed(verdict, orders.rng, orders.resume)


def until_interrupted(
    source: Drawing,
    steps: Iterable[Step],
    look: Callable[[Step], None] | None,
    is_answered: Callable[[], bool],
    ends: UnnamedEnds,
    seconds: float,
    finish: Callable[[], None] | None = None,
) -> str:
    """Take steps, looking at each, then ``finish``; "", or what ended them before there was an answer.

    The first Ctrl-C ends the run between draws, a second one also interrupts the draw at hand, a third one anything.
    A supply of episodes gives up the one at hand at a Ctrl-C, and when time is up.
    """
    reason, end = "", time.monotonic() + seconds
    with _interruptions(source) as pressed:

        def stopped() -> bool:
            return bool(pressed.times) or time.monotonic() >= end

        source.stop_when(stopped)
        try:
            for step in steps:
                ends.look()
                if look is not None:
                    look(step)
                if stopped() and not is_answered():
                    reason = INTERRUPTED if pressed.times else OUT_OF_TIME
                    break
        except KeyboardInterrupt:
            if pressed.times != 2:
                raise
            reason = INTERRUPTED
        finally:
            source.close()
        if finish is not None:
            finish()
    return reason


def workers(parallel: object) -> int:
    """How many rollouts, or episodes, are under way at once, checked."""
    found = arrays.whole_number("parallel", parallel)
    if found < 1:
        raise InputError(f"parallel is {found}; pass at least 1, which is one after the other")
    return found


class InParallel(Protocol):
    """What can have several rollouts, or episodes, under way."""

    def work_in_parallel(self, workers: int) -> None:
        """Have so many of them under way at once."""


def in_parallel(run: InParallel, workers: int) -> None:
    """Before a run begins: one after the other, or several at once."""
    if workers > 1:
        run.work_in_parallel(workers)


def checked_source(task: object, sim: object) -> Any:
    """The simulator of a task; episodes bring their own."""
    if isinstance(task, Episodes):
        if sim is not None:
            raise InputError("sim: Episodes need no simulator; leave it out")
    elif isinstance(task, LoggedEpisodes):
        raise InputError("task is LoggedEpisodes, which are recorded already; ask assess(log, threshold=R)")
    elif sim is None:
        raise InputError("sim is missing; pass a simulator with draw(states, actions, rng)")
    return sim


def checked_method(method: Any, task: object = None, other: Episodes | None = None) -> Method:
    """The method, or the default; also of a trace that watches the default."""
    if method is None:
        return _default(task, other)
    if traits_of(method).is_default:
        method = replace(method, method=_default(task, other))
    if isinstance(task, Episodes) and not traits_of(method).episodes:
        raise InputError(
            f"method is {method!r}; Episodes are tested by ReturnBetting(), or by LargeSample() without a range"
        )
    return checked_instance("method", method, "replay")


def _default(task: object, other: Episodes | None) -> Method:
    """The default method; what large samples do not promise is told, and what would be certified."""
    if not isinstance(task, Episodes):
        return TDBetting()
    found = of_episodes(task, other)
    if traits_of(found).approximate:
        of = f"{task.counted}s have" if other is None else f"the difference of {task.counted}s has"
        warnings.warn(LARGE_SAMPLE.format(of), AssumptionWarning, stacklevel=5)
    return found


def refuse_one_look(method: object, why: str) -> None:
    """Refuse the test that looks once where it is looked at again and again."""
    if getattr(getattr(method, "method", method), "looks", "any") == "one":
        raise InputError(f'looks="one" is for one look, and {why}; pass LargeSample(), which may be looked at any time')


def checked_instance(name: str, method: object, *needs: str) -> Method:
    """A method, not its class, that can start and describe itself, and whatever else is needed."""
    if isinstance(method, type) or not all(hasattr(method, part) for part in ("start", "describe", *needs)):
        raise not_an_instance(name, method, "TDBetting()")
    found: Method = method  # type: ignore[assignment]
    return found


def checked_budget(budget: object) -> int | None:
    """The budget, checked; None if there is none."""
    if budget is None:
        return None
    found = arrays.whole_number("budget", budget)
    arrays.positive(budget=found)
    return found


def sampling_limit(max_samples: int | None) -> int:
    """The largest number of samples, checked."""
    if max_samples is None:
        return UNLIMITED
    limit = arrays.whole_number("max_samples", max_samples)
    if limit < 0:
        raise InputError(f"max_samples is {limit}; it cannot be negative")
    if limit > UNLIMITED:
        raise InputError("max_samples is above 2**62; leave it out for no limit")
    return limit


def time_limit(max_seconds: float | None) -> float:
    """The most seconds, checked."""
    if max_seconds is None:
        return math.inf
    seconds = arrays.real_number("max_seconds", max_seconds)
    if seconds < 0:
        raise InputError(f"max_seconds is {seconds:g}; it cannot be negative")
    return seconds


def drive(run: Run, required: float, limit: int, pause: Pause | None = None) -> Iterator[Check]:
    """A run from its beginning to its end: a `Check` at the start and after every step."""
    run.begin(required)
    try:
        yield check_of(run, required)
        for _ in steps(run, required, limit, pause):
            if run.samples_used >= limit and run.answer is None:
                run.end(required)
            if run.answer is not None:
                run.finish()  # before the last look
            yield check_of(run, required)
        run.finish()
    finally:
        run.source.close()


def check_of(run: Run, required: float) -> Check:
    """One look at a run; what is costly is computed when it is asked for."""
    found = run.samples_used, run.evidence(), required, run.solves, run.answer
    return Check(*found, lambda: run.estimate, lambda: run.interval(required), run.episodes)


def not_on_a_log(**given: object) -> None:
    """Refuse what is for simulators."""
    for name, value in given.items():
        if value is not None:
            raise InputError(f"{name} is for a simulator, and these are recorded transitions; leave it out")


def with_seed(verdict: Verdict, rng: Seed, resume: Resume | None = None) -> Verdict:
    """A verdict with the seed that it is repeated with: none if a Generator was passed, or if the run was resumed."""
    seed = int(rng) if isinstance(rng, int | np.integer) and resume is None else None
    return replace(verdict, provenance=replace(verdict.provenance, seed=seed))


def _reason(run: Run, reason: str) -> str:
    """Why there is no answer: what the run itself knows, unless it was interrupted."""
    if reason in (INTERRUPTED, OUT_OF_TIME) or reason.startswith(NOT_KEPT):
        return reason
    return "; ".join(filter(None, (run.why_undecided() or reason, run.only_answer())))


def _resume(run: Run, mark: str, resume: Resume) -> None:
    if not isinstance(resume, Verdict | str | os.PathLike):
        raise InputError(f"resume is {resume!r}; pass an undecided Verdict, or the path of a checkpoint")
    snapshot = resume.snapshot if isinstance(resume, Verdict) else checkpoints.read(resume)
    if not snapshot:
        why = "it needed no samples, or assessed data"
        raise InputError(f"resume: this Verdict holds no run that could continue: {why}; start a new run")
    about = _about(run, mark)
    _of_the_same_types(snapshot, about)
    if str(snapshot.get("fingerprint", "")) != mark:
        threshold, method = float(snapshot.get("threshold", np.nan)), str(snapshot.get("method", "another one"))
        differs = "another task"
        if threshold != run.threshold:
            differs = f"the threshold {threshold:.9g}, not {run.threshold:.9g}"
        if method != run.method.describe():
            differs = f"the method {method!r}, not {run.method.describe()!r}"
        if method == COMBINED:
            raise InputError("resume: that run had the method Combined(), which is gone", REPLACED["combined"])
        raise InputError(f"resume: that run had {differs}, or other settings; pass the same, or start a new run")
    if bool(snapshot.get("zone", False)) != bool(about["zone"]):
        raise InputError(
            "resume: the run and this call differ in having an indifference zone, which half of delta is spent on; "
            "pass the same indifference as before"
        )
    _of_the_same_types(snapshot, run.state())
    run.restore(snapshot)


def _of_the_same_types(kept: Record, expected: Record) -> None:
    """Refuse what was kept if an array has another type, or another number of axes, than it has in every run."""
    for name in expected.keys() & kept.keys():
        mine, its = np.asarray(kept[name]), np.asarray(expected[name])
        if mine.ndim != its.ndim or (mine.dtype != its.dtype and (mine.dtype.kind, its.dtype.kind) != ("U", "U")):
            raise InputError(f"cannot resume: the checkpoint is inconsistent ({name}); start a new run")


def _about(run: Run, mark: str) -> Record:
    """What a run is recognised by."""
    name, zone = run.method.describe(), bool(run.indifference)
    about = {"fingerprint": mark, "threshold": run.threshold, "method": name, "zone": zone}
    return {name: np.array(value) for name, value in about.items()}


def _snapshot(run: Run, mark: str) -> Record:
    """All that is needed to go on with a run, and to recognise it."""
    return {**run.state(), **_about(run, mark)}


class _Saver:
    """Writes checkpoints: about once a second, less often where writing takes long; the clock changes no result."""

    def __init__(self, run: Run, mark: str, path: str | os.PathLike[str] | None, resume: Resume | None) -> None:
        self.run, self.mark, self.path = run, mark, path
        self.due, self.last = time.monotonic() + 1.0, -1
        self.problem = ""  # why the run cannot be kept any more
        if path is None:
            return
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"checkpoint is {path!r}; pass the path of a file")
        resumed = not isinstance(resume, Verdict) and resume is not None and Path(resume) == Path(path)
        if Path(path).exists() and not resumed:
            raise InputError(f"checkpoint {path} exists; pass resume={str(path)!r} to go on from it, or remove it")
        self.save()

    def now_and_then(self) -> None:
        """Save if it is time."""
        if self.path is not None and time.monotonic() >= self.due:
            begin = time.monotonic()
            try:
                self.save()
            except InputError as error:  # what was drawn so far must not be lost
                self.problem = f"{NOT_KEPT}{error.what.partition('; ')[0]}"
            self.due = time.monotonic() + max(1.0, 20 * (time.monotonic() - begin))

    def while_kept(self, checks: Iterator[Check]) -> Iterator[Check]:
        """The checks, as long as they can be kept."""
        for check in checks:
            yield check
            if self.problem:
                return

    def at_the_end(self) -> None:
        """Save; a file that cannot be written must not cost the verdict."""
        try:
            self.save()
        except InputError as error:
            warnings.warn(f"{error}; the verdict is not affected", stacklevel=5)

    def save(self) -> None:
        """Save, unless nothing was drawn since."""
        if self.path is not None and self.run.samples != self.last:
            checkpoints.write(self.path, _snapshot(self.run, self.mark))
            self.last = self.run.samples


class _Pressed:
    """How often Ctrl-C was pressed. A plain number: a signal may arrive inside any lock."""

    times = 0

    def again(self) -> None:
        """Once more."""
        self.times += 1


@contextmanager
def _interruptions(source: Drawing) -> Iterator[_Pressed]:
    """Count Ctrl-C instead of raising; the second one raises within a draw, the third one anywhere."""
    pressed = _Pressed()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):  # ignored: so it stays
        yield pressed
        return

    def handle(number: int, frame: FrameType | None) -> None:
        pressed.again()
        if pressed.times == 1:
            on_interruption.get()()
        if pressed.times > 2 or (pressed.times == 2 and source.drawing):
            before(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
