"""The drivers: a test runs until it stops, is told to stop, or has no more samples.

`checks` is the loop, a generator; `decide` exhausts it, `stopping_times` does so once for several deltas, and `assess`
asks the same of data that are already there.

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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from policytest import _checks
from policytest import checkpoint as checkpoints
from policytest._checks import FloatArray, InputError, IntArray
from policytest.betting import BettingRun
from policytest.boundaries import check_delta
from policytest.combined import Combined
from policytest.counts import Counts, flaws
from policytest.method import Method, Run, is_certified
from policytest.ptst import PTST
from policytest.source import NOTHING, UNLIMITED, Recorded
from policytest.task import Task, value_range, value_range_error
from policytest.verdict import Check, Verdict

Resume = Verdict | str | os.PathLike[str]


def decide(
    task: Task,
    sim: Any,
    threshold: float,
    delta: float = 0.05,
    method: Method | None = None,
    rng: Any = 0,
    max_samples: int | None = None,
    indifference: float = 0.0,
    checkpoint: str | os.PathLike[str] | None = None,
    resume: Resume | None = None,
    progress: Callable[[Check], None] | None = None,
) -> Verdict:
    """Is the policy's value above the threshold? Sample until that is settled, with error at most delta.

    Parameters
    ----------
    task, sim, threshold, delta
        The question: a `Task`, a simulator (`draw(states, actions, rng)`), the bar R, the probability of error.
    method
        `Combined()`, which is the default, `TDBetting()`, `PTST(...)`, or a baseline.
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

    Ctrl-C ends the run after the draw at hand and returns a Verdict without an answer that can be resumed; a second
    Ctrl-C gives up the draw at hand, a third one everything.

    Paper: `alg:static_algorithm`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> pt.decide(two.task, pt.TabularSimulator(two.kernel), threshold=0.0, delta=0.05).answer
    'above'
    """
    task, threshold, level = _question(task, threshold, delta)
    limit = sampling_limit(max_samples)
    known = _known_answer(task, threshold, delta, indifference := _zone(indifference))
    if known is not None:
        return known
    run = _method(method).start(task, sim, threshold, rng)
    if indifference:
        _with_zone(run, indifference)
        level += math.log(2.0)  # delta/2 for "above" or "below", and as much for "within"
    mark = checkpoints.fingerprint(task, threshold, run.method)
    return carry_out(run, mark, delta, (level, limit), checkpoint, resume, progress)


def checks(
    task: Task,
    sim: Any,
    threshold: float,
    delta: float = 0.05,
    method: Method | None = None,
    rng: Any = 0,
    max_samples: int | None = None,
) -> Iterator[Check]:
    """The loop of `decide`, one `Check` at every new witness and after every block of draws; the last has the answer.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> *_, last = pt.checks(two.task, pt.TabularSimulator(two.kernel), threshold=0.0, delta=0.05)
    >>> last.answer, last.evidence[0] >= last.required
    ('above', True)
    """
    task, threshold, level = _question(task, threshold, delta)
    limit = sampling_limit(max_samples)
    known = _known_answer(task, threshold, delta)
    if known is not None:
        return iter([Check(0, known.evidence, level, 0, known.answer, lambda: known.estimate, lambda: known.interval)])
    return _drive(_method(method).start(task, sim, threshold, rng), level, limit)


@dataclass(frozen=True, eq=False)
class StoppingTimes:
    """When one run stops for each delta: ``samples`` int[k], and ``answers`` object[k], None where it did not.

    ``certified`` bool[k]: whether the answer rests on a proof. ``solves``: worst-case problems of the whole run.
    """

    deltas: FloatArray
    samples: IntArray
    answers: Any
    solves: int
    certified: Any


def stopping_times(
    task: Task,
    sim: Any,
    threshold: float,
    deltas: Sequence[float] = (0.05,),
    method: Method | None = None,
    rng: Any = 0,
    max_samples: int | None = None,
) -> StoppingTimes:
    """The stopping times of one run for several deltas at once: levels differ by log(1/delta) only.

    Each is the time at which `decide` with that delta would have stopped on the same samples; in tasks so large that
    looks are spaced, up to that spacing.
    """
    array = _checks.real_array("deltas", deltas, (None,))
    limit = sampling_limit(max_samples)
    levels = np.array([_question(task, threshold, delta)[2] for delta in array])
    samples, answers = np.zeros(len(array), dtype=np.int64), np.full(len(array), None, dtype=object)
    certified = np.zeros(len(array), dtype=np.bool_)
    known = _known_answer(task, float(threshold), 0.5)
    if known is not None:
        answers[:], certified[:] = known.answer, known.certified
        return StoppingTimes(array, samples, answers, 0, certified)
    run = _method(method).start(task, sim, float(threshold), rng)
    for index in np.argsort(levels, kind="stable"):
        run.reconsider(levels[index])
        if run.answer is None:
            for _ in _drive(run, levels[index], limit):
                pass
        samples[index], answers[index] = run.paid, run.answer
        certified[index] = is_certified(run, levels[index])
    return StoppingTimes(array, samples, answers, run.solves, certified)


@dataclass(frozen=True, eq=False)
class Transitions:
    """Observed transitions (s, a, x), in the order in which they were observed; three integer arrays of one length.

    ``selected``: some were left out because of their outcome x; ``other_rewards``: the data report other rewards than
    the task. With either, no answer is certified.
    """

    s: Any
    a: Any
    x: Any
    selected: bool = False
    other_rewards: bool = False

    def __post_init__(self) -> None:
        for name in ("s", "a", "x"):
            object.__setattr__(self, name, _checks.index_list(name, getattr(self, name)))
        if not len(self.s) == len(self.a) == len(self.x):
            raise InputError(f"s, a and x have {len(self.s)}, {len(self.a)} and {len(self.x)} entries; they must agree")

    def __len__(self) -> int:
        return len(self.s)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no answer from these transitions is certified, in words; empty where nothing is wrong with them."""
        return flaws(self.selected, self.other_rewards)

    def counts(self, task: Task, first: int) -> Counts:
        """The counts of the first so many of them."""
        counts = Counts(
            task.n_states, task.n_actions, _checks.is_sparse(task.support), self.selected, self.other_rewards
        )
        counts.record(self.s[:first], self.a[:first], self.x[:first])
        return counts


def assess(
    task: Task,
    data: Any,
    threshold: float,
    delta: float = 0.05,
    method: Method | None = None,
    design: str = "adaptive",
) -> Verdict:
    """Do these data settle it already? Counts are looked at once; transitions in their order, up to the first answer.

    ``data`` may also be a log of `policytest.sources.logs`, whose counts are then judged. The guarantee is that of
    `decide`, for data collected by any rule that did not look ahead. ``design`` says how they were: "adaptive" (each
    pair may have been chosen after seeing the earlier ones) or "fixed" (how often each pair is drawn was fixed
    beforehand), which only betting on counts needs. ``method`` is `PTST()` for counts and `Combined()` for transitions
    unless given. Betting forms its own rollouts from the recorded draws of each pair, each used once; where a draw is
    missing there is no answer, though `PTST()`, which uses all of them, may have one.
    """
    task, threshold, level = _question(task, threshold, delta)
    _checks.one_of("design", design, ("adaptive", "fixed"))
    data = data.counts if isinstance(getattr(data, "counts", None), Counts) else data  # a log
    if not isinstance(data, Counts | Transitions):
        raise InputError(f"data is a {type(data).__name__}; pass Counts, or Transitions(s, a, x) in order")
    known = _known_answer(task, threshold, delta)
    if known is not None:
        nothing = Transitions(NOTHING, NOTHING, NOTHING, other_rewards=data.other_rewards).counts(task, 0)
        return replace(known, counts=nothing, certified=known.certified and not nothing.flaws)
    default = PTST() if isinstance(data, Counts) else None
    run = _method(default if method is None else method).replay(task, threshold, recorded(task, data))
    if isinstance(data, Counts):
        run.weigh(data, level, design)
        return _verdict(run, delta, "the data do not settle it", {}, data)
    for _ in _drive(run, level, len(data)):
        pass
    return _verdict(run, delta, "the data do not settle it", {}, data.counts(task, run.used()), run.used())


def recorded(task: Task, data: Counts | Transitions) -> Recorded:
    """The rows and successors of transitions, checked."""
    if isinstance(data, Counts):
        return Recorded(NOTHING, NOTHING)
    for name, column, count in (
        ("s", data.s, task.n_states),
        ("a", data.a, task.n_actions),
        ("x", data.x, task.n_states),
    ):
        _checks.index_list(f"data.{name}", column, count)
    return Recorded(task._row_of_pair[data.s * task.n_actions + data.a], data.x)


# ---------------------------------------------------------------- shared


def carry_out(
    run: Run,
    mark: str,
    delta: float,
    until: tuple[float, int],
    checkpoint: str | os.PathLike[str] | None = None,
    resume: Resume | None = None,
    progress: Callable[[Check], None] | None = None,
) -> Verdict:
    """Go on with a run until (its level is reached, its samples are used up) or Ctrl-C; see `decide`.

    ``mark`` is the fingerprint by which a kept run is recognised.
    """
    level, limit = until
    if resume is not None:
        _resume(run, mark, resume)
    saver = _Saver(run, mark, checkpoint, resume)
    reason = "all samples that were allowed are used"
    with interruptions(run) as interrupted:
        try:
            for check in _drive(run, level, limit):
                if progress is not None:
                    progress(check)
                saver.now_and_then()
                if interrupted.times and run.answer is None:
                    reason = "interrupted"
                    break
        except KeyboardInterrupt:
            if interrupted.times != 2:
                raise
            reason = "interrupted"
        saver.at_the_end()
    return _verdict(run, delta, reason, _snapshot(run, mark), level=level)


def _question(task: Any, threshold: Any, delta: Any) -> tuple[Task, float, float]:
    _checks.instance("task", task, Task)
    return task, _checks.real_number("threshold", threshold), -math.log(check_delta(delta))


def _method(method: Any) -> Method:
    if method is None:
        return Combined()
    if isinstance(method, type) or not all(hasattr(method, name) for name in ("start", "replay", "describe")):
        raise InputError(f"method is {method!r}; pass a method such as Combined(), with its parentheses")
    return method  # type: ignore[no-any-return]


def sampling_limit(max_samples: int | None) -> int:
    """The largest number of samples, checked."""
    if max_samples is None:
        return UNLIMITED
    limit = _checks.whole_number("max_samples", max_samples)
    if limit < 0:
        raise InputError(f"max_samples is {limit}; it cannot be negative")
    if limit > UNLIMITED:
        raise InputError("max_samples is above 2**62; leave it out for no limit")
    return limit


def _drive(run: Run, level: float, limit: int) -> Iterator[Check]:
    run.begin(level)
    yield _check(run, level)
    while run.answer is None and run.paid < limit and not run.exhausted:
        run.step(level, limit - run.paid)
        if run.paid >= limit and run.answer is None:
            run.end(level)
        yield _check(run, level)


def _check(run: Run, level: float) -> Check:
    return Check(
        run.paid, run.evidence(), level, run.solves, run.answer, lambda: run.estimate, lambda: run.interval(level)
    )


def _zone(indifference: Any) -> float:
    zone = _checks.real_number("indifference", indifference)
    if zone < 0:
        raise InputError(f"indifference is {zone}; it is a distance, from 0 on")
    return zone


def _with_zone(run: Any, indifference: float) -> None:
    """Have the run look for "within" too."""
    if not isinstance(run, BettingRun):
        raise InputError(f"indifference: the method {run.method.describe()!r} has none; use Combined() or TDBetting()")
    run.indifference, run.both_sides = indifference, True


def _known_answer(task: Task, threshold: float, delta: float, indifference: float = 0.0) -> Verdict | None:
    """The answer where no sample is needed: R outside the range of values, or no row unknown."""
    low, high = value_range(task)
    tolerance = 4 * value_range_error(task)
    above, below = threshold < low - tolerance, threshold > high + tolerance
    unknown = ((task.policy > 0) & ~task.known_rows).any() and high - low > tolerance
    within = threshold - indifference < low - tolerance and high + tolerance < threshold + indifference
    if not above and not below and not within and unknown:
        return None
    reason = (
        "" if above or below or within else "the value does not depend on what is unknown, and equals the threshold"
    )
    return Verdict(
        task=task,
        threshold=threshold,
        delta=delta,
        answer="above" if above else "below" if below else "within" if within else None,
        samples=0,
        certified=above or below or within,
        evidence=(np.inf if above else 0.0, np.inf if below else 0.0),
        estimate=low if low == high else math.nan,
        interval=(low, high),
        witness=None,
        lower_bound=0.0,
        solves=0,
        counts=Counts(task.n_states, task.n_actions, sparse=_checks.is_sparse(task.support)),
        reason="" if above or below or within else reason,
        method="the range of values over all kernels",
        indifference=indifference,
        refuted=(math.inf, math.inf) if within and not above and not below else None,
    )


def _verdict(
    run: Run,
    delta: float,
    reason: str,
    snapshot: dict[str, Any],
    counts: Counts | None = None,
    samples: int | None = None,
    level: float | None = None,
) -> Verdict:
    required = -math.log(delta) if level is None else level
    level = -math.log(delta)
    found = run.outcome(required)
    return Verdict(
        task=run.task,
        threshold=run.threshold,
        delta=delta,
        answer=run.answer,
        samples=run.paid if samples is None else samples,
        certified=is_certified(run, required) and not (counts is not None and counts.flaws),
        evidence=found.evidence,
        estimate=run.estimate,
        interval=run.interval(level),
        witness=found.witness,
        lower_bound=found.lower_bound,
        solves=run.solves,
        counts=run.counts() if counts is None else counts,
        reason="" if run.answer else _reason(run, reason),
        method=run.method.describe(),
        proof_samples=found.proof_samples,
        certificate=found.certificate,
        snapshot=snapshot,
        needed=required,
        settings=run.method,
        dimension=found.dimension,
        proved=found.proved,
        indifference=getattr(run, "indifference", 0.0),
        refuted=run.ends_refuted() if run.answer == "within" else None,
    )


def _reason(run: Run, reason: str) -> str:
    """Why there is no answer: what the run itself knows, unless it was interrupted."""
    return reason if reason == "interrupted" else run.why_undecided() or reason


def _resume(run: Run, mark: str, resume: Resume) -> None:
    if not isinstance(resume, Verdict | str | os.PathLike):
        raise InputError(f"resume is {resume!r}; pass an undecided Verdict, or the path of a checkpoint")
    snapshot = resume.snapshot if isinstance(resume, Verdict) else checkpoints.read(resume)
    if not snapshot:
        raise InputError("resume: this Verdict holds no run to go on with; it needed no samples, or assessed data")
    about = _about(run, mark)
    _of_the_same_types(snapshot, about)
    if str(snapshot.get("fingerprint", "")) != mark:
        threshold, method = float(snapshot.get("threshold", np.nan)), str(snapshot.get("method", "another one"))
        differs = "another task"
        if threshold != run.threshold:
            differs = f"the threshold {threshold:.9g}, not {run.threshold:.9g}"
        if method != run.method.describe():
            differs = f"the method {method!r}, not {run.method.describe()!r}"
        raise InputError(f"resume: that run had {differs}, or other settings; pass the same, or start a new run")
    if bool(snapshot.get("zone", False)) != bool(about["zone"]):
        raise InputError(
            "resume: the run was begun with an indifference zone, or without, and delta is shared out accordingly; "
            "go on in the same way"
        )
    _of_the_same_types(snapshot, run.state())
    run.restore(snapshot)


def _of_the_same_types(kept: dict[str, Any], expected: dict[str, Any]) -> None:
    """Refuse what was kept if an array has another type, or another number of axes, than it has in every run."""
    for name in expected.keys() & kept.keys():
        mine, its = np.asarray(kept[name]), np.asarray(expected[name])
        if mine.ndim != its.ndim or (mine.dtype != its.dtype and (mine.dtype.kind, its.dtype.kind) != ("U", "U")):
            raise InputError(f"resume: what was kept is not a state of this run ({name} is not); start again")


def _about(run: Run, mark: str) -> dict[str, Any]:
    """What a run is recognised by."""
    about: dict[str, Any] = {"fingerprint": mark, "threshold": run.threshold, "method": run.method.describe()}
    about["zone"] = bool(getattr(run, "indifference", 0.0))
    return {name: np.array(value) for name, value in about.items()}


def _snapshot(run: Run, mark: str) -> dict[str, Any]:
    """All that is needed to go on with a run, and to recognise it."""
    return {**run.state(), **_about(run, mark)}


class _Saver:
    """Writes checkpoints: about once a second, less often where writing takes long; the clock changes no result."""

    def __init__(self, run: Run, mark: str, path: Any, resume: Resume | None) -> None:
        self.run, self.mark, self.path = run, mark, path
        self.due, self.last = time.monotonic() + 1.0, -1
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
            self.save()
            self.due = time.monotonic() + max(1.0, 20 * (time.monotonic() - begin))

    def at_the_end(self) -> None:
        """Save; a file that cannot be written must not cost the verdict."""
        try:
            self.save()
        except InputError as error:
            warnings.warn(f"{error}; the verdict is not affected", stacklevel=4)

    def save(self) -> None:
        """Save, unless nothing was drawn since."""
        if self.path is not None and self.run.samples != self.last:
            checkpoints.write(self.path, _snapshot(self.run, self.mark))
            self.last = self.run.samples


class _Interruptions:
    """How often Ctrl-C was pressed. A plain number: a signal may arrive inside any lock."""

    times = 0


@contextmanager
def interruptions(run: Any) -> Iterator[_Interruptions]:
    """Ctrl-C ends a run between draws; a second one also interrupts the draw at hand, a third one anything."""
    pressed = _Interruptions()
    before = signal.getsignal(signal.SIGINT)
    if threading.current_thread() is not threading.main_thread() or not callable(before):  # ignored: so it stays
        yield pressed
        return

    def handle(number: int, frame: Any) -> None:
        pressed.times += 1
        if pressed.times > 2 or (pressed.times == 2 and run.source.drawing):
            before(number, frame)

    signal.signal(signal.SIGINT, handle)
    try:
        yield pressed
    finally:
        signal.signal(signal.SIGINT, before)
