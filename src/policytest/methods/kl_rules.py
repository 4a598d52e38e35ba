"""Stopping rules on counts: what is asked of them, what a rule says at a look, and the exact rule of `PTST`.

The run that draws and counts is `policytest.methods.kl_run`. The exact rule keeps a standing witness
(`policytest.kl.witness`) and looks where that fails; others look when the samples have grown by 0.5%.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, Kernel
from policytest.kl.boundaries import Boundary, information
from policytest.kl.witness import WitnessedCounts, is_zero
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.methods.run import Found, Outcome, Run, is_certified
from policytest.worst_case import Bracket, Solver, Status
from policytest.worst_case.certified import MOST_STATES
from policytest.worst_case.problem import gap_of, proves
from policytest.worst_case.projection_free import ProjectionFree

FEW_STARTS = 4  # descents in large tasks, and where no solver was chosen
GROWTH = 0.005  # rules without a witness look when the samples have grown by this share
FINISHED = (Status.CONVERGED, Status.PROVED, Status.IMMEDIATE, Status.UNREACHABLE, Status.HEURISTIC)
STARTS, MANY_STATES = 12, 50  # descents before an answer; `FEW_STARTS` in large tasks
LATE_ENTRIES = 1_000_000  # with more allowed transitions the first look is after one sample a pair
OPEN_GROWTH = 0.01  # in open sparse tasks the rule is looked at when the samples have grown by this share
TROUBLE_GROWTH = 0.002  # after the solver failed: as much
PROOF_PATIENCE = 1.5  # see `_until_next_proof`


@dataclass(eq=False)
class KLQuestion:
    """What is asked of counts: whether the value, or another functional, is beyond a threshold.

    In the ``tally`` what is asked about is centred, and compared with 0; over all kernels it lies in ``span``.
    """

    task: Task
    threshold: float
    tally: WitnessedCounts
    span: tuple[float, float]

    @classmethod
    def of_value(cls, task: Task, threshold: float, boundary: Boundary) -> KLQuestion:
        """About the value of the task's policy."""
        return cls(task, threshold, WitnessedCounts(task, threshold, boundary), value_range(task))

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.tally.value()[0] + self.threshold

    def nearest(self, side: int, solver: Solver, enough: float) -> Bracket:
        """(NC) beyond 0; where rounding hides whether that can be reached at all, for a threshold a little nearer."""
        tally = self.tally
        room, rounding = tally.reach[side], tally.rounding
        free = (tally.n[tally.unknown] == 0).any()
        if room < -rounding or (room == 0 and not free):
            return Bracket(np.inf, np.inf, None, 0.0, Status.UNREACHABLE, certified=True)
        threshold = 0.0 if room > rounding else 2.0 * side * rounding
        if side * (tally.value()[0] - threshold) <= 0 or (room <= rounding and free):
            return Bracket(0.0, 0.0, None, np.inf, Status.IMMEDIATE, certified=True)
        warm = None if tally.targets_policy_value else tally.standing()
        return tally.nearest(side, solver, enough, threshold=threshold, warm=warm)

    def found(self, nearest: Bracket | None, required: float) -> Found:
        """The nearest kernel, and T* kl(delta, 1-delta) at the estimate: infinite where no kernel was found.

        Paper: `thm:stat_lower`.
        """
        if nearest is None:
            nearest = Bracket(0.0, 0.0, None, np.inf, Status.IMMEDIATE, certified=True)
        per_nat = float(self.tally.n.sum()) / nearest.upper if nearest.upper > 0 else np.inf
        return Found(nearest.kernel, per_nat * information(required))

    def interval(self, required: float, is_answered: bool) -> tuple[float, float]:
        """The smallest and largest value found over the ball of radius beta(t, delta)."""
        tally, R = self.tally, self.threshold
        if not tally.n.any():
            return self.span
        low, high = tally.extremes(max(required + tally.dimension(), 0.0), tally.local(FEW_STARTS))
        inside = [self.estimate] if is_answered else [self.estimate, R]  # undecided: R is in the ball
        return min(low + R, *inside), max(high + R, *inside)


class Look(NamedTuple):
    """What a rule said at one look: its answer, and in how many samples it wants the next look, if it wants a pause.

    Not ``is_new``: nothing was looked at but what the rule had found before.
    """

    answer: str | None
    pause: float | None = None
    is_new: bool = True


class Rule:
    """A stopping rule on counts.

    What is written here holds for rules that look when the samples have grown by 0.5% (later is sound), and that prove
    what they answer; these say what `decides`, and with which `evidence`.
    """

    found_at = np.inf  # the samples at which an answer was first found, proved or not

    def __init__(self, question: KLQuestion) -> None:
        self.question, self.tally = question, question.tally

    def go_on(self, found_at: float) -> None:
        """Go on with a kept run, whose answer was first found at this sample."""
        self.found_at = found_at

    @property
    def first_look(self) -> int:
        """The samples before which nothing is looked at."""
        return max(int(self.tally.unknown.sum()), 1)

    def pause(self, samples: int) -> float:
        """How many more samples are drawn without a look."""
        return max(1.0, GROWTH * samples)

    def look(self, samples: int, required: float) -> Look:
        """What the counts say at this sample."""
        side = self.tally.value()[1]
        answer = ("above" if side > 0 else "below") if side and self.decides(samples, side, required) else None
        return Look(answer, self.pause(samples))

    def judge(self, samples: int, required: float) -> Look:
        """What counts recorded elsewhere say."""
        return self.look(samples, required)

    def look_again(self, samples: int, required: float) -> Look:
        """What was found at this sample says with this much evidence required."""
        return self.look(samples, required)

    def decides(self, samples: int, side: int, required: float) -> bool:
        """Whether the other side is excluded."""
        raise NotImplementedError

    def evidence(self, samples: int) -> tuple[float, float]:
        """(against V <= R, against V >= R), in nats."""
        raise NotImplementedError

    def proof(self, samples: int) -> tuple[float, float]:
        """The part of the evidence that is proved: all of it."""
        return self.evidence(samples)

    def interval(self, required: float, is_answered: bool) -> tuple[float, float]:
        """Where the value lies."""
        return self.question.interval(required, is_answered)

    def outcome(self, run: Run, required: float) -> Outcome:
        """What the answer rests on, and the nearest kernel that a local search finds; in large tasks none is sought."""
        side = self.tally.value()[1] if self.question.task.n_states <= MOST_STATES else 0
        nearest = self.question.nearest(side, self.tally.local(FEW_STARTS), np.inf) if side else None
        return Outcome(self.evidence(run.samples), self.question.found(nearest, required))


@dataclass(frozen=True)
class Examination:
    """What the exact problem said at one look."""

    samples: int
    side: int
    dimension: float
    distance: Bracket | None  # to the nearest kernel on the other side; None where the estimate is on the threshold
    found: float = 0.0  # the distance that an answer may rest on
    required: float = np.inf  # the distance at which the test answers

    @property
    def evidence(self) -> tuple[float, float]:
        """(against V <= R, against V >= R), in nats, as far as the solver found the distance."""
        return self._sides(self.found - self.dimension)

    @property
    def allowed(self) -> tuple[float, float]:
        """What the nearest kernel found leaves at most, proved or not: what an undecided test says."""
        known = self.distance is not None and np.isfinite(self.distance.upper)
        return self._sides(self.distance.upper - self.dimension) if known and self.distance else self.evidence

    @property
    def proved(self) -> tuple[float, float]:
        """The part of it that is proved: by the lower end of the distance."""
        return self._sides((self.distance.lower if self.distance is not None else 0.0) - self.dimension)

    def answer(self, required: float) -> str | None:
        """The answer, if the evidence found decides with this much required."""
        return None if max(self.evidence) < required else "above" if self.side > 0 else "below"

    def _sides(self, reached: float) -> tuple[float, float]:
        base = -self.dimension
        return (reached, base) if self.side > 0 else (base, reached) if self.side < 0 else (base, base)


class ExactRule(Rule):
    """The rule of the paper: a witness stands, or the exact problem is solved, and its distance compared with beta.

    It serves the value, or any other functional; for these the solver searches stationary points.
    """

    def __init__(self, question: KLQuestion, solver: Solver) -> None:
        super().__init__(question)
        value = self.tally.targets_policy_value
        self.solver = solver if value or not isinstance(solver, ProjectionFree) else self.tally.local(solver.starts)
        self.finding: Examination | None = None

    @property
    def first_look(self) -> int:
        """In large tasks after one sample a pair."""
        tally = self.tally
        return len(tally.n) if tally.rows.n_entries > LATE_ENTRIES or tally.is_open else 0

    # ------------------------------------------------------------ looks

    def look(self, samples: int, required: float) -> Look:
        """The witness failed: find another one, or answer."""
        return Look(None) if self.tally.seek_witness(required) else self.judge(samples, required)

    def judge(self, samples: int, required: float) -> Look:
        """Solve the exact problem, and answer if it decides."""
        self.finding = self._examine(samples, required, self.solver)
        answer = self.finding.answer(required)
        return Look(answer, None if answer else self.pause(samples))

    def look_again(self, samples: int, required: float) -> Look:
        """Answer if the last finding, made at this sample, decides with this much required."""
        found = self.fresh(samples)
        return Look(None if found is None else found.answer(required), is_new=False)

    def pause(self, samples: int) -> float:
        """Put off the next look where looks are dear, or where the solver failed, or found no proof."""
        pause, found = 0.0, self.fresh(samples)
        if found is not None and found.distance is not None and found.distance.status not in FINISHED:
            pause = _until_next_proof(found, gap_of(self.solver)) * samples
        elif not self.tally.inside:
            pause = TROUBLE_GROWTH * samples
        return max(OPEN_GROWTH * samples, float(len(self.tally.n))) if self.tally.is_open else pause

    # ------------------------------------------------------------ the exact problem

    def _examine(self, samples: int, required: float, solver: Solver) -> Examination:
        """Solve the exact problem. Its kernel, if it has the value R, becomes the witness."""
        tally, nearest = self.tally, self.question.nearest
        side, dimension = tally.value()[1], tally.dimension()
        radius = required + dimension
        if side == 0:
            self._keep_witness(tally.estimate(), 0.0)
            return Examination(samples, side, dimension, None)
        distance = nearest(side, solver, radius)
        if distance.lower < radius <= self._found(distance):  # could another descent find a nearer one?
            others = tally.local(STARTS if tally.task.n_states <= MANY_STATES else FEW_STARTS)
            across = tally.across(side, radius, tally.local(1) if tally.targets_policy_value else others)
            for other in (nearest(side, others, np.inf), across):
                distance = other if other.kernel is not None and other.upper < distance.upper else distance
        if distance.upper >= radius:
            self.found_at = min(self.found_at, samples)
        if distance.kernel is not None:
            self._keep_witness(tally.rows.pick(distance.kernel, tally.task.n_states), distance.upper)
        return Examination(samples, side, dimension, distance, self._found(distance), radius)

    def _found(self, distance: Bracket) -> float:
        """The distance an answer may rest on: the proved end; or, of a solver that proves nothing, the one found."""
        return distance.lower if proves(self.solver) else found_distance(distance)

    def _keep_witness(self, entries: FloatArray, loss: float) -> None:
        """A kernel that falls short of R, or goes beyond it, would be a witness for one side only: not kept."""
        tally = self.tally
        if tally.is_open or is_zero(tally.functional, tally.value_of(entries)[0]):
            tally.stand(entries, loss)

    # ------------------------------------------------------------ what it can say

    def evidence(self, samples: int) -> tuple[float, float]:
        """(against V <= R, against V >= R), at most: what the standing witness allows on the estimate's side.

        Where no witness stands, what the exact problem said when it was last solved.
        """
        allowed = self.tally.witness_evidence()
        if self.finding is not None and (self.finding.samples == samples or not np.isfinite(allowed)):
            return self.finding.evidence
        base = -self.tally.dimension()
        side = self.tally.value()[1]
        reached = allowed if side and np.isfinite(allowed) else base
        return (base, reached) if side < 0 else (reached, base)

    def conclude(self, samples: int) -> Examination:
        """What the exact problem says now."""
        self.finding = self.fresh(samples) or self._examine(samples, np.inf, self.solver)
        return self.finding

    def fresh(self, samples: int) -> Examination | None:
        """The last finding, if it was made at this sample."""
        return self.finding if self.finding is not None and self.finding.samples == samples else None

    def proof(self, samples: int) -> tuple[float, float]:
        """What the lower end of the distance proves, at this sample; a search for other functionals proves nothing."""
        found = self.fresh(samples) if self.tally.targets_policy_value else None
        return (-np.inf, -np.inf) if found is None else found.proved

    def outcome(self, run: Run, required: float) -> Outcome:
        """What the answer rests on."""
        finding, certified = self.conclude(run.samples), is_certified(run, required)
        distance = finding.distance
        return Outcome(
            finding.evidence if run.answer is not None else finding.allowed,
            self.question.found(distance, required),
            int(run.samples - self.found_at) if certified and self.found_at <= run.samples else 0,
            distance.certificate if certified and distance is not None else None,
            finding.dimension,
            finding.proved,
        )


class NearestKernel:
    """The nearest kernel beyond the threshold, sought when it is asked for, for methods that answer without it."""

    def __init__(self, question: KLQuestion, required: float) -> None:
        self._question, self._required = question, required

    @property
    def witness(self) -> Kernel | None:
        """The kernel."""
        return self._found.witness

    @property
    def lower_bound(self) -> float:
        """T* kl(delta, 1-delta) at the estimate."""
        return self._found.lower_bound

    @cached_property
    def _found(self) -> Found:
        rule = ExactRule(self._question, ProjectionFree(starts=FEW_STARTS))
        return self._question.found(rule.conclude(0).distance, self._required)


def found_distance(distance: Bracket) -> float:
    """The distance of a search that proves nothing: of a descent that converged, or of a ball that was searched."""
    if distance.status is Status.NOT_REACHED:
        return distance.upper if np.isfinite(distance.upper) else 0.0
    return distance.upper if distance.kernel is not None and distance.status in FINISHED else distance.lower


def _until_next_proof(finding: Examination, gap: float) -> float:
    """The share by which samples grow before the next attempt at a proof.

    A proof is the easier the smaller the share c of the distance that has to be proved; the distance grows with the
    samples. The first attempt is made at c = 1 - gap, each further one when 1 - c has grown by half: a hard instance
    costs few attempts.
    """
    distance = finding.distance
    if distance is None or distance.kernel is None or not finding.required <= distance.upper < np.inf:
        return TROUBLE_GROWTH
    c = finding.required / distance.upper
    if c > 1.0 - gap:  # no attempt was made
        return TROUBLE_GROWTH
    return float(np.clip(c / max(1.0 - PROOF_PATIENCE * (1.0 - c), 0.5 * c) - 1.0, TROUBLE_GROWTH, 1.0))
