r"""PTST: policy testing with static sampling (Algorithm 1). `methods.ptst_printed` has its rule as printed.

One round is: sample, record, check, stop or go on. (The printed loop tests u before it is first computed.) The test

- samples by tracking an allocation (or by any other predictable rule);
- stops with "above" at the first t at which every kernel q with V_q <= R has loss_t(q) >= beta(t, delta), and with
  "below" when every kernel with V_q >= R has;
- answers with the side of the estimate. The rule can only stop on that side: the estimate itself has loss 0.

If V_p <= R, "above" is answered only if loss_t(p) >= beta(t, delta) for some t, which has probability at most delta;
and the same for "below". Pairs never sampled are free in both sets, so a choice of their rows never matters.

Departures from the paper: the distance (NC) is compared with beta instead of the value (NO) with 0, which is the same
by Proposition 2 and avoids a tolerance zeta_t; by standing witnesses (`methods.witness`) it is known at every sample
and computed at few; and the answer rests on the solver's proved end where it proves one, else it is not certified.

Paper: `alg:static_algorithm`, `eq:ideal stopping`, `thm:sample`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.eprocess.interval import clip_to_answer
from policytest.kl.boundaries import Boundary, MixtureBoundary, PaperBoundary, information
from policytest.kl.sampler import NOTHING, UNLIMITED, Recorded, SampledMethod, Source
from policytest.kl.witness import WitnessedCounts, is_zero
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.methods.ptst_horizon import counts_with_horizon, settings_with_horizon
from policytest.methods.record import Record, part_of, record
from policytest.methods.run import Found, Nearest, Outcome, Run, is_certified
from policytest.worst_case import Bracket, Solver, Status
from policytest.worst_case.certified import Certified
from policytest.worst_case.horizon import has_gradient
from policytest.worst_case.projection_free import ProjectionFree
from policytest.worst_case.slsqp import SLSQPHeuristic

FINISHED = (Status.CONVERGED, Status.PROVED, Status.IMMEDIATE, Status.UNREACHABLE, Status.HEURISTIC)
STARTS, FEW_STARTS, MANY_STATES = 12, 4, 50  # descents before an answer; fewer in large tasks
LATE_ENTRIES = 1_000_000  # with more allowed transitions the first look is after one sample a pair
OPEN_GROWTH = 0.01  # in open sparse tasks the rule is looked at when the samples have grown by this share
TROUBLE_GROWTH = 0.002  # after the solver failed: as much
PROOF_PATIENCE = 1.5  # see `_until_next_proof`


@dataclass(frozen=True, eq=False)
class PTST(SampledMethod["PTSTRun"]):
    """Settings of the test.

    Parameters
    ----------
    boundary
        `MixtureBoundary()` or `PaperBoundary()`.
    solver
        Decides whether to stop. `Certified()` answers only with a proof; in tasks of more than 400 states it finds
        none, and in hard ones it may find it late. `ProjectionFree()` answers on the best kernel found, not certified.
    allocation
        "uniform", shares [S,A], or a sampling object: `Optimal(kernel)`, `Adaptive()`, `Forward()`.
    batch
        Stop only at multiples of this number of samples, and draw at least as many at once. For simulators that are
        slow to call; costs up to that many samples more, never correctness.
    zeta
        (c, power): stop as printed, at u >= zeta_t = c/t^power, with u = (V_p_hat - R)(V_q - R) and V_q the extreme
        value that the solver reports over the ball, checked at every round. None: the exact rule.
    """

    boundary: Boundary = field(default_factory=MixtureBoundary)
    solver: Solver = field(default_factory=Certified)
    allocation: Any = "uniform"
    batch: int = 1
    zeta: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        arrays.positive(batch=arrays.whole_number("batch", self.batch))
        self._keep_shares()
        if self.zeta is not None and arrays.real_array("zeta", self.zeta).shape != (2,):
            raise InputError(f"zeta is {self.zeta!r}; pass (c, power), for zeta_t = c/t^power, or None")
        for name, needed in (("boundary", "terms"), ("solver", "nearest")):
            given = getattr(self, name)
            if isinstance(given, type) or not hasattr(given, needed):
                raise InputError(f"{name} is {given!r}; pass an object such as {_EXAMPLES[name]}, with its parentheses")

    @classmethod
    def as_printed(cls) -> PTST:
        """The paper's experiments: its boundary, the SLSQP heuristic, zeta_t = 5/t^1.5, a check at every round.

        The heuristic does not reach the minimum, so it stops too early and its error is not bounded by delta. For
        comparison only. Paper: `app:exp_details`.
        """
        return cls(boundary=PaperBoundary(), solver=SLSQPHeuristic(), zeta=(5.0, 1.5))

    def describe(self) -> str:
        """The method in a few words."""
        rule = "PTST as printed" if self.zeta is not None else "PTST"
        return f"{rule}, {type(self.boundary).__name__}, {type(self.solver).__name__}, {self._sampling()}"

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> PTSTRun:
        if has_gradient(task):
            tally = counts_with_horizon(task, threshold, self.boundary)
            return PTSTRun(settings_with_horizon(self), task, threshold, source, tally)
        if self.zeta is None:
            return PTSTRun(self, task, threshold, source)
        from policytest.methods.ptst_printed import PrintedRun  # it is a `PTSTRun`

        return PrintedRun(self, task, threshold, source)


_EXAMPLES = {"boundary": "MixtureBoundary()", "solver": "Certified()"}


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

    def _sides(self, reached: float) -> tuple[float, float]:
        base = -self.dimension
        return (reached, base) if self.side > 0 else (base, reached) if self.side < 0 else (base, base)


class PTSTRun(Run):
    """One test at work: `step` until `answer` is given.

    What is compared with the threshold is the value, or the functional of the given ``tally``, whose values over all
    kernels lie in ``span``. In the tally it is centred, and compared with 0.
    """

    looked = (-1, np.inf)  # the samples and the evidence required at the last look that brought no answer

    def __init__(
        self,
        method: Any,
        task: Task,
        threshold: float,
        source: Source | Recorded,
        tally: WitnessedCounts | None = None,
        span: tuple[float, float] | None = None,
    ) -> None:
        self.method, self.task, self.threshold, self.source = method, task, threshold, source
        self.tally: WitnessedCounts = WitnessedCounts(task, threshold, method.boundary) if tally is None else tally
        self.span = value_range(task) if span is None else span
        chosen: Any = getattr(method, "solver", None) or self.tally.local(FEW_STARTS)
        self.solver: Solver = chosen if self.tally.targets_policy_value else self.tally.local(chosen.starts)
        self.finding: Examination | None = None
        self.found_at = np.inf  # the samples at which an answer was first found, proved or not
        large = self.tally.rows.n_entries > LATE_ENTRIES
        self.blind_until = len(self.tally.n) if large or self.tally.is_open else 0  # no look before this many samples

    # ------------------------------------------------------------ the loop

    def begin(self, required: float) -> None:
        """Before the first step, and after a pause: see that there is a witness, or answer."""
        if self.samples >= self.blind_until and self._owes_a_look(required):
            self.look(required)

    def step(self, required: float, most: int) -> None:
        """Go on to the next sample at which a witness fails, or to the end of a block; `most` samples at most."""
        tally = self.tally
        blind = self.blind_until - self.samples
        watched = np.inf if blind > 0 else required
        k, x = self.source.ahead(tally, watched, most, blind if blind > 0 else UNLIMITED)
        used = tally.observe(k, x, watched)
        self.source.take(used)
        self.samples += used
        if self.samples < self.blind_until:
            return
        if tally.witness_evidence() < required:
            if self.source.between_blocks or self.samples == self.blind_until:  # not where a limit cuts a block
                tally.refresh()
                self._pause()
        elif self.samples % self.method.batch:  # look at the end of this batch
            self.blind_until = self.samples + self.method.batch - self.samples % self.method.batch
        else:
            self.look(required)

    def draw(self, most: int, due: int = UNLIMITED) -> None:
        """Go on by samples of the run's own rule, at most so many, without a look at what they say."""
        k, x = self.source.ahead(self.tally, np.inf, most, due)
        used = self.tally.observe(k, x, np.inf)
        self.source.take(used)
        self.samples += used

    def end(self, required: float) -> None:
        """No more samples are allowed: look, if that was put off. Without an answer the run can go on as it was."""
        if self._owes_a_look(required):
            before = self.state()
            self.look(required)
            if self.answer is None:
                self.restore(before)

    def _owes_a_look(self, required: float) -> bool:
        """Whether no witness stands, and none was sought at this sample; to look twice would change what comes next."""
        return self.looked != (self.samples, required) and not self.tally.witness_evidence() < required

    def why_undecided(self) -> str:
        """An answer that lacks its proof."""
        if self.answer is None and self.found_at <= self.samples:
            return "an answer was found, but no proof of it; PTST(solver=ProjectionFree()) answers without one"
        return ""

    def judge_counts(self, counts: Counts, required: float, design: str) -> None:
        """Take over counts recorded elsewhere, and judge them; the design does not matter."""
        self.tally.load(counts)
        self.samples = counts.total
        self.judge(required)

    def look(self, required: float) -> None:
        """The witness failed: find another one, or answer."""
        self.answer = None
        if not self.tally.seek_witness(required):
            self.judge(required)
        self.looked = (self.samples, required) if self.answer is None else self.looked

    def judge(self, required: float) -> None:
        """Solve the exact problem, and answer if it decides."""
        self.finding = self._examine(required, self.solver)
        self.update_answer(required)
        if self.answer is None:
            self._pause()

    def update_answer(self, required: float) -> None:
        """Answer if the last finding, made at this sample, decides with this much required."""
        found, self.answer = self.fresh, None
        if found is not None and max(found.evidence) >= required:
            self.answer = "above" if found.side > 0 else "below"

    def _pause(self) -> None:
        """Put off the next look where looks are dear, or where the solver failed, or found no proof."""
        pause, found = 0.0, self.fresh
        if found is not None and found.distance is not None and found.distance.status not in FINISHED:
            pause = _until_next_proof(found, getattr(self.solver, "gap", 0.0)) * self.samples
        elif not self.tally.inside:
            pause = TROUBLE_GROWTH * self.samples
        if self.tally.is_open:
            pause = max(OPEN_GROWTH * self.samples, float(len(self.tally.n)))
        self.blind_until = max(self.blind_until, self.samples + int(np.ceil(pause)))

    # ------------------------------------------------------------ the exact problem

    def _examine(self, required: float, solver: Solver) -> Examination:
        """Solve the exact problem. Its kernel, if it has the value R, becomes the witness."""
        tally = self.tally
        side, dimension = tally.value()[1], tally.dimension()
        radius = required + dimension
        if side == 0:
            self._keep_witness(tally.estimate(), 0.0)
            return Examination(self.samples, side, dimension, None)
        distance = self._nearest(side, solver, radius)
        if distance.lower < radius <= self._found(distance):  # could another descent find a nearer one?
            others = tally.local(STARTS if self.task.n_states <= MANY_STATES else FEW_STARTS)
            across = tally.across(side, radius, tally.local(1) if tally.targets_policy_value else others)
            for other in (self._nearest(side, others, np.inf), across):
                distance = other if other.kernel is not None and other.upper < distance.upper else distance
        if distance.upper >= radius:
            self.found_at = min(self.found_at, self.samples)
        if distance.kernel is not None:
            self._keep_witness(tally.rows.pick(distance.kernel, self.task.n_states), distance.upper)
        return Examination(self.samples, side, dimension, distance, self._found(distance), radius)

    def _found(self, distance: Bracket) -> float:
        """The distance an answer may rest on: the proved end; or, of a solver that proves nothing, the one found."""
        return distance.lower if getattr(self.solver, "proves", False) else found_distance(distance)

    def _nearest(self, side: int, solver: Solver, enough: float) -> Bracket:
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

    def _keep_witness(self, entries: FloatArray, loss: float) -> None:
        """A kernel that falls short of R, or goes beyond it, would be a witness for one side only: not kept."""
        tally = self.tally
        if tally.is_open or is_zero(tally.functional, tally.value_of(entries)[0]):
            tally.stand(entries, loss)

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """(against V <= R, against V >= R), at most: what the standing witness allows on the estimate's side.

        Where no witness stands, what the exact problem said when it was last solved.
        """
        allowed = self.tally.witness_evidence()
        if self.finding is not None and (self.finding.samples == self.samples or not np.isfinite(allowed)):
            return self.finding.evidence
        base = -self.tally.dimension()
        side = self.tally.value()[1]
        reached = allowed if side and np.isfinite(allowed) else base
        return (base, reached) if side < 0 else (reached, base)

    def conclude(self) -> Examination:
        """What the exact problem says now."""
        found = self.fresh or self._examine(np.inf, self.solver)
        self.finding = found
        return found

    @property
    def fresh(self) -> Examination | None:
        """The last finding, if it was made at this sample."""
        return self.finding if self.finding is not None and self.finding.samples == self.samples else None

    def proof(self) -> tuple[float, float]:
        """What the lower end of the distance proves, at this sample; a search for other functionals proves nothing."""
        found = self.fresh if self.tally.targets_policy_value else None
        return (-np.inf, -np.inf) if found is None else found.proved

    def outcome(self, required: float) -> Outcome:
        """What the answer rests on."""
        finding, certified = self.conclude(), is_certified(self, required)
        distance = finding.distance or Bracket(0.0, 0.0, None, np.inf, Status.IMMEDIATE, certified=True)
        per_nat = float(self.tally.n.sum()) / distance.upper if distance.upper > 0 else np.inf  # T* at the estimate
        return Outcome(
            finding.evidence if self.answer is not None else finding.allowed,
            Found(distance.kernel, per_nat * information(required)),
            int(self.samples - self.found_at) if certified and self.found_at <= self.samples else 0,
            distance.certificate if certified else None,
            finding.dimension,
            finding.proved,
        )

    def interval(self, required: float) -> tuple[float, float]:
        """The smallest and largest value found over the ball of radius beta(t, delta)."""
        tally, R = self.tally, self.threshold
        if not tally.n.any():
            return self.span
        low, high = tally.extremes(max(required + tally.dimension(), 0.0), tally.local(FEW_STARTS))
        inside = [self.estimate] if self.answer else [self.estimate, R]  # undecided: R is in the ball
        return min(low + R, *inside), max(high + R, *inside)

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """The interval of a verdict: each end holds with probability at least 1 - delta, as the answer does.

        That the ball lies on one side of R is the same event as the answer: rounding in the search apart, the end
        towards R is on the answer's side, and it is put there.
        """
        return clip_to_answer(self.interval(required), self.threshold, self.answer)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.tally.value()[0] + self.threshold

    @property
    def solves(self) -> int:
        """How many worst-case problems were solved."""
        return self.tally.solves

    # ------------------------------------------------------------ keeping

    def state(self) -> Record:
        """All that is needed to go on later, as arrays."""
        kept = {"samples": np.array([self.samples]), "blind_until": np.array([self.blind_until])}
        kept["found_at"], kept["looked"] = np.array([float(self.found_at)]), np.array(self.looked, dtype=np.float64)
        return {**kept, **record(tally=self.tally.state(), source=self.source.state())}

    def _restore(self, state: Record) -> None:
        self.samples, self.blind_until = int(state["samples"][0]), int(state["blind_until"][0])
        self.found_at = float(state["found_at"][0])
        samples, required = state["looked"]
        self.looked = int(samples), float(required)
        self.tally.restore(part_of(state, "tally"))
        self.source.restore(part_of(state, "source"))
        if self.samples != self.tally.n.sum():
            raise ValueError("the number of samples is not that of the counts")


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


class NearestKernel:
    """The nearest kernel beyond the threshold, sought when it is asked for, for methods that answer without it."""

    def __init__(self, task: Task, threshold: float, tally: WitnessedCounts, required: float) -> None:
        self._about = task, threshold, tally, required

    @property
    def witness(self) -> Kernel | None:
        """The kernel."""
        return self._found.witness

    @property
    def lower_bound(self) -> float:
        """T* kl(delta, 1-delta) at the estimate."""
        return self._found.lower_bound

    @cached_property
    def _found(self) -> Nearest:
        task, threshold, tally, required = self._about
        method = PTST(solver=ProjectionFree(starts=FEW_STARTS))
        rule = PTSTRun(method, task, threshold, Recorded(NOTHING, NOTHING), tally)
        rule.judge(np.inf)
        return rule.outcome(required).nearest
