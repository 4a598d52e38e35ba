"""What the drivers ask of a method: settings that start a run, a run that steps until it answers, and its outcome."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple, Protocol

from policytest._base.arrays import Kernel
from policytest._base.errors import InputError
from policytest._base.record import Record
from policytest.data.counts import Counts
from policytest.data.returns import Returns
from policytest.data.reward_moments import RewardMoments
from policytest.eprocess.interval import HALF, clip_to_answer
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task
from policytest.worst_case.certificate import Certificate


class Nearest(Protocol):
    """The kernel that would have to be true for the answer to be wrong."""

    @property
    def witness(self) -> Kernel | None:
        """The nearest kernel on the other side, if one is sought."""
        ...

    @property
    def lower_bound(self) -> float:
        """The samples that any test with this allocation needs on average, if the estimate is right; nan if unknown."""
        ...


@dataclass(frozen=True)
class Found:
    """The nearest kernel of a method that finds it on its way."""

    witness: Kernel | None = field(default=None, repr=False)
    lower_bound: float = math.nan


@dataclass(frozen=True, eq=False)
class Outcome:
    """What a run can say at its end; see `policytest.results.verdict.Verdict`."""

    evidence: tuple[float, float]
    nearest: Nearest = field(default=Found(), repr=False)
    proof_samples: int = 0
    certificate: Certificate | None = field(default=None, repr=False)
    dimension: float | None = None
    proved: tuple[float, float] | None = None  # the part of the evidence that is proved, where that is less
    solves: int = 0
    refuted: tuple[float, float] | None = None  # of "within"
    approximate: bool = False  # right for a large sample, and not proved


class Settings(Protocol):
    """What made a run, for its verdict."""

    def describe(self) -> str:
        """The method in a few words."""


class Drawing(Protocol):
    """Where samples come from."""

    drawing: bool
    """Whether the simulator is at work."""

    @property
    def extra(self) -> int:
        """The steps that the simulator made on the way to samples."""

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Give up the episodes at hand where this is true."""

    def close(self) -> None:
        """Nothing more is drawn for now: end processes, with what they are doing."""


class Run:
    """A test at work: `begin`, then `step` until ``answer`` is given or the samples are used up, then `end`.

    What is written here holds for bets whose capital is all of the proof; a run says what is otherwise.
    """

    method: Any  # the settings
    task: Any  # the Task, or the Episodes
    threshold: float
    source: Any  # a `Drawing`
    samples: int = 0
    answer: str | None = None
    indifference: float = 0.0
    exhausted: bool = False  # whether recorded data have no more to give, or the budget is used up
    tally: WitnessedCounts | None = None  # the counts of a table; None without one
    reads_all: ClassVar[bool] = False  # whether it looks at all rows of a log, also at those after its answer
    answered_at: int | None = None  # the row of its answer, where it does

    @property
    def solves(self) -> int:
        """How many worst-case problems were solved."""
        return 0

    @property
    def reward_moments(self) -> RewardMoments | None:
        """What was observed of rewards, for forecasts."""
        return None

    @property
    def samples_used(self) -> int:
        """The samples, and the steps that the simulator made on the way to them."""
        return self.samples + int(self.source.extra)

    @property
    def episodes(self) -> int | None:
        """How many episodes of an agent were looked at."""
        return None

    @property
    def rows_to_next_look(self) -> int:
        """How many more rows of a log are worth a look."""
        return 1

    @property
    def estimate(self) -> float:
        """The value, estimated."""
        raise NotImplementedError

    def begin(self, required: float) -> None:
        """Before the first step, and after a pause: what was seen may suffice."""
        self.update_answer(required)

    def step(self, required: float, most: int) -> None:
        """Go on, by at most ``most`` samples; answer where the evidence reaches what is required."""
        raise NotImplementedError

    def end(self, required: float) -> None:
        """No more samples are allowed; by default nothing was put off."""

    def finish(self) -> None:
        """The run is over, and was not interrupted: wait for what is under way, which counts as used."""

    def examine(self) -> None:
        """The run is over, and was not interrupted: look at what it assumes, where that costs nothing."""

    def update_answer(self, required: float) -> None:
        """Answer if what was found at this sample decides with this much evidence required."""
        above, below = self.evidence()
        self.answer = None if max(above, below) < required else "above" if above >= below else "below"

    def aim_at(self, budget: int, pairs: bool = False) -> None:
        """Bet towards an answer within a budget that was fixed before the first sample; ``pairs``: of differences."""
        raise InputError(
            f"budget: the method {self.method.describe()!r} does not aim at one; leave out budget, in the task file "
            "too (max_samples stops a run)"
        )

    def work_in_parallel(self, workers: int) -> None:
        """Have so many rollouts, or episodes, under way at once; before the first sample, or before it is restored."""
        raise InputError(
            f"parallel: the method {self.method.describe()!r} samples one by one", "leave parallel out (it is then 1)"
        )

    def judge_counts(self, counts: Counts, required: float, design: str) -> None:
        """Judge counts recorded elsewhere, by an "adaptive" or a "fixed" design; a run that follows a log cannot."""
        raise InputError("counts have no order, which a log has; pass Transitions(s, a, x), or method=PTST()")

    def used(self) -> int:
        """How many of the recorded transitions the answer rests on, counted from the first; all, without an answer."""
        return self.samples if self.answer is None or self.answered_at is None else self.answered_at

    def evidence(self) -> tuple[float, float]:
        """(against V <= R, against V >= R), in nats."""
        raise NotImplementedError

    def one_sided(self, level: float) -> tuple[float, float]:
        """Where the value lies, each end at this level by itself: the values that the bets of intervals do not refute.

        It is valid at all times at once.
        """
        return self._not_refuted(level, as_staked=False)

    def interval(self, required: float) -> tuple[float, float]:
        """Where the value lies, with probability at least 1 - delta for both ends together."""
        return self.one_sided(required + HALF)

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """The interval of a verdict: each end holds with probability at least 1 - delta, on the answer's side of R."""
        return self.interval_of(self.answer, required)

    def interval_of(self, answer: str | None, required: float) -> tuple[float, float]:
        """The interval of an answer, which it does not contradict; each end holds with probability 1 - delta.

        Its ends are where the bets of the answer would just have reached log(1/delta). *Validity.* For every R the
        factors 1 + f (rho.V0 - R + S)/(L - rho.V0 + R) with the fractions f of the test, chosen beforehand, make a
        supermartingale if V <= R, and fall in R. So if the lower end is above V, the capital against R = V has reached
        1/delta, which happens with probability at most delta; likewise for the upper end. At the tested threshold this
        capital is that of the test: after "above" the lower end is at least the threshold. (Where rounding hides that,
        it is put there: a wrong answer is the same event.)

        After "within" the ends are those that were refuted, with the fractions of `interval`.
        """
        found = self._not_refuted(required, as_staked=answer != "within")
        return clip_to_answer(found, self.threshold, answer, self.indifference)

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values that neither side refutes at this level; ``as_staked``: with the fractions of the test."""
        raise NotImplementedError

    def proof(self) -> tuple[float, float]:
        """The part of the evidence that is proved: log-capital needs no certificate."""
        return self.evidence()

    def ends_refuted(self) -> tuple[float, float]:
        """Of the answer "within", if it can be given: the evidence against V <= R - indifference, and V >= R + it."""
        return -math.inf, -math.inf

    def outcome(self, required: float) -> Outcome:
        """What the run rests on: the evidence is the log-capital."""
        return Outcome(self.evidence())

    def counts(self) -> Counts | Returns:
        """What was observed."""
        assert self.tally is not None
        return self.tally.counts()

    def state(self) -> Record:
        """All that is needed to go on later, as arrays; nothing of a log, which is read again from its start."""
        return {}

    def restore(self, state: Record) -> None:
        """Go on from a kept state; one that is not of such a run is refused."""
        try:
            self._restore(state)
        except InputError:
            raise
        except Exception as error:  # whatever a file that was changed makes of it
            raise InputError("cannot resume: the checkpoint is inconsistent; start a new run") from error

    def _restore(self, state: Record) -> None:
        raise InputError("cannot resume on a log, which is read from its start; leave out resume")

    def why_undecided(self) -> str:
        """Where there is more to say than that the samples did not suffice."""
        return ""

    def only_answer(self) -> str:
        """Which answer can be given, and why no other, in words; "" where more than one can."""
        return ""


def is_certified(run: Run, required: float) -> bool:
    """Whether a run's answer is proved: the proved evidence against the other side reaches what is required.

    No method says so of itself: whatever led to an answer, this is the only place that calls it certified.
    """
    if run.answer is None or traits_of(run.method).approximate:
        return False
    proved = min(run.ends_refuted()) if run.answer == "within" else run.proof()[0 if run.answer == "above" else 1]
    return bool(proved >= required)


class Pause(Protocol):
    """Says where a run pauses, and looks at it there; `policytest.plots.Trace` is one."""

    def most(self, run: Run, most: int) -> int:
        """How many samples, at most as many as allowed, to the next pause."""
        ...

    def look(self, run: Run, required: float) -> None:
        """What a step has led to."""
        ...


def steps(run: Run, required: float, limit: int, pause: Pause | None = None) -> Iterator[None]:
    """The loop: step until there is an answer, the samples are used up, or recorded data are."""
    while run.answer is None and run.samples_used < limit and not run.exhausted:
        left = limit - run.samples_used
        run.step(required, left if pause is None else pause.most(run, left))
        if pause is not None:
            pause.look(run, required)
        yield


def go_on(run: Run, required: float, limit: int) -> None:
    """Take up a run after a pause: look at what was seen, then step to the end."""
    run.begin(required)
    for _ in steps(run, required, limit):
        pass


FROM_COUNTS, RESUMED, FROM_THE_START = "from counts", "resumed", "from the start"
"""What a forecast does: it computes from the counts, resumes the run, or reads another log from its start."""


class Traits(NamedTuple):
    """What questions ask of a method before they start it; a method that says nothing of itself has the defaults."""

    zone: bool = False  # it may also answer "within": it starts with ``indifference`` and ``both_sides``
    episodes: bool = False  # it bets on `Episodes`
    forecast: str = ""  # how it is foreseen how many more samples it needs, if it is: one of these
    table: bool = False  # it needs known rewards: `on_outcomes` is the method for the outcome table of listed ones
    pause: Pause | None = None  # where its runs pause
    approximate: bool = False  # its answers are right for a large sample, and not proved
    is_default: bool = False  # nobody chose it


def traits_of(method: object) -> Traits:
    """What a method says of itself."""
    found: Traits = getattr(method, "traits", Traits())
    return found


class Method(Protocol):
    """Settings of a test. ``traits``, if there are some, say more of it."""

    def start(self, task: Any, sim: Any, threshold: float, rng: Any) -> Run:
        """The test at work on a simulator."""

    def replay(self, task: Task, threshold: float, source: Any) -> Run:
        """The test at work on recorded transitions."""

    def describe(self) -> str:
        """The method in a few words."""
