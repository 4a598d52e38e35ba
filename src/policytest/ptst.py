r"""PTST: policy testing with static sampling (Algorithm 1), and its rule as the paper's experiments ran it.

One round is: sample, record, check, stop or go on. (The printed loop tests u before it is first computed.) The test

- samples by tracking an allocation (or by any other predictable rule);
- stops with "above" at the first t at which every kernel q with V_q <= R has loss_t(q) >= beta(t, delta), and with
  "below" when every kernel with V_q >= R has;
- answers with the side of the estimate. The rule can only stop on that side: the estimate itself has loss 0.

If V_p <= R, "above" is answered only if loss_t(p) >= beta(t, delta) for some t, which has probability at most delta;
and the same for "below". Pairs never sampled are free in both sets, so a choice of their rows never matters.

Departures from the paper: the distance (NC) is compared with beta instead of the value (NO) with 0, which is the same
by Proposition 2 and avoids a tolerance zeta_t; by standing witnesses (`policytest.tally`) it is known at every sample
and computed at few; and the answer rests on the solver's proved end where it proves one, else it is not certified.

Paper: `alg:static_algorithm`, `eq:ideal stopping`, `thm:sample`.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from policytest import _checks
from policytest._checks import FloatArray, InputError, Kernel
from policytest.boundaries import Boundary, MixtureBoundary, PaperBoundary
from policytest.counts import Counts
from policytest.source import Recorded, Source
from policytest.tally import Tally, beyond_threshold
from policytest.task import Task, value_range
from policytest.worst_case import Bracket, Solver, Status
from policytest.worst_case.projection_free import ProjectionFree
from policytest.worst_case.slsqp import SLSQPHeuristic

FINISHED = (Status.CONVERGED, Status.PROVED, Status.IMMEDIATE, Status.UNREACHABLE, Status.HEURISTIC)
SECOND_OPINION = ProjectionFree(starts=4)
OPEN_GROWTH = 0.01  # in open sparse tasks the rule is looked at when the samples have grown by this share
TROUBLE_GROWTH = 0.001  # after the solver failed: as much


@dataclass(frozen=True, eq=False)
class PTST:
    """Settings of the test.

    Parameters
    ----------
    boundary
        `MixtureBoundary()` or `PaperBoundary()`.
    solver
        Decides whether to stop. An answer is certified where its proved end decides.
    allocation
        "uniform", shares [S,A], or a sampling object: `Optimal(kernel)`, `Adaptive()`, `Forward()`.
    batch
        Stop only at multiples of so many samples, and draw at least so many at once. For simulators that are slow to
        call; costs up to that many samples more, never correctness.
    zeta
        (c, power): stop as printed, at u >= zeta_t = c/t^power, with u = (V_p_hat - R)(V_q - R) and V_q the extreme
        value that the solver reports over the ball, checked at every round. None: the exact rule.
    """

    boundary: Boundary = field(default_factory=MixtureBoundary)
    solver: Solver = field(default_factory=ProjectionFree)
    allocation: Any = "uniform"
    batch: int = 1
    zeta: tuple[float, float] | None = None

    def __post_init__(self) -> None:
        _checks.positive(batch=_checks.whole_number("batch", self.batch))
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

    def start(self, task: Task, sim: Any, threshold: float, rng: Any) -> Run:
        """The test at work on a simulator."""
        return self._run(task, threshold, Source(task, sim, self.allocation, threshold, rng, self.batch))

    def replay(self, task: Task, threshold: float, source: Recorded) -> Run:
        """The test at work on recorded transitions."""
        return self._run(task, threshold, source)

    def describe(self) -> str:
        """The method in a few words."""
        allocation = self.allocation if isinstance(self.allocation, str) else type(self.allocation).__name__
        shares = "given shares" if allocation in ("ndarray", "list", "tuple") else f"{allocation} sampling".lower()
        rule = "PTST as printed" if self.zeta is not None else "PTST"
        return f"{rule}, {type(self.boundary).__name__}, {type(self.solver).__name__}, {shares}"

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> Run:
        kind = Run if self.zeta is None else PrintedRun
        return kind(self, task, threshold, source)


_EXAMPLES = {"boundary": "MixtureBoundary()", "solver": "ProjectionFree()"}


@dataclass
class Finding:
    """What the exact problem said at the last look: the evidence on both sides, and the nearest kernel."""

    samples: int
    side: int
    evidence: tuple[float, float]
    distance: Bracket | None


class Run:
    """One test at work: `step` until `answer` is given."""

    def __init__(self, method: PTST, task: Task, threshold: float, source: Source | Recorded) -> None:
        self.method, self.task, self.threshold, self.source = method, task, threshold, source
        self.tally = Tally(task, threshold, method.boundary)
        self.samples = 0
        self.answer: str | None = None
        self.blind_until = 0  # no look before this many samples
        self.finding: Finding | None = None

    # ------------------------------------------------------------ the loop

    def begin(self, level: float) -> None:
        """Before the first step, and after a pause: see that there is a witness, or answer."""
        if self.samples >= self.blind_until and not self.tally.witness_evidence() < level:
            self.look(level)

    def step(self, level: float, most: int) -> None:
        """Go on to the next sample at which a witness fails, or to the end of a block; `most` samples at most."""
        tally = self.tally
        blind = self.blind_until - self.samples
        watched = np.inf if blind > 0 else level
        k, x = self.source.ahead(tally, watched, min(most, blind) if blind > 0 else most)
        used, _ = tally.observe(k, x, watched)
        self.source.take(used)
        self.samples += used
        if self.samples < self.blind_until:
            return
        if tally.witness_evidence() < level:
            tally.refresh()
        elif self.samples % self.method.batch:  # look at the end of this batch
            self.blind_until = self.samples + self.method.batch - self.samples % self.method.batch
        else:
            self.look(level)

    def look(self, level: float) -> None:
        """The witness failed: find another one, or answer."""
        self.answer = None
        if not self.tally.seek_witness(level):
            self.judge(level)

    def judge(self, level: float) -> None:
        """Solve the exact problem, and answer if it decides."""
        self.finding = self._examine(level, self.method.solver)
        self._settle(level)

    def _examine(self, level: float, solver: Solver) -> Finding:
        """Solve the exact problem. Its kernel, if it has the value R, becomes the witness."""
        tally = self.tally
        tally.solves += 1
        _, side = tally.value()
        base = -tally.dimension()
        if side == 0:
            self._keep_witness(tally.estimate(), 0.0)
            return Finding(self.samples, side, (base, base), None)
        distance = self._nearest(side, solver)
        if not distance.certified and _distance(distance) + base >= level:  # could another descent find a nearer one?
            other = self._nearest(side, SECOND_OPINION)
            distance = other if other.kernel is not None and other.upper < distance.upper else distance
        if distance.kernel is not None:
            self._keep_witness(tally.rows.pick(distance.kernel, self.task.n_states), distance.upper)
        reached = _distance(distance) + base
        return Finding(self.samples, side, (reached, base) if side > 0 else (base, reached), distance)

    def _nearest(self, side: int, solver: Solver) -> Bracket:
        room = beyond_threshold(self.task, self.threshold, side)
        if room < 0 or (room == 0 and (self.tally.n > 0).all()):
            return Bracket(np.inf, np.inf, None, 0.0, Status.UNREACHABLE, certified=True)
        return solver.nearest(self.tally.problem(float(side)).nearest(float(side), self.threshold))

    def _keep_witness(self, entries: FloatArray, loss: float) -> None:
        """A kernel that falls short of R, or goes beyond it, would be a witness for one side only: not kept."""
        tally = self.tally
        value = self.threshold if tally.is_open else tally.problem().value(entries)
        if abs(value - self.threshold) <= 1e-9 * max(np.abs(value_range(self.task))):
            tally.adopt(entries, loss)

    def _settle(self, level: float) -> None:
        """Answer if the finding decides; put off the next look where the solver failed or where looks are dear."""
        finding = self.finding
        assert finding is not None
        self.answer = ("above", "below")[int(finding.side < 0)] if max(finding.evidence) >= level else None
        pause = 0.0
        if finding.distance is not None and finding.distance.status not in FINISHED:
            pause = TROUBLE_GROWTH * self.samples
        if self.tally.is_open:
            pause = max(OPEN_GROWTH * self.samples, float(len(self.tally.n)))
        self.blind_until = max(self.blind_until, self.samples + int(np.ceil(pause)))

    # ------------------------------------------------------------ what it can say

    def reconsider(self, level: float) -> None:
        """Does the rule stop here at a higher level too?"""
        if self.finding is None or self.finding.samples != self.samples:
            self.answer = None
        else:
            self._settle(level)

    def evidence(self) -> tuple[float, float]:
        """(against V <= R, against V >= R), at most: what the standing witness allows on the estimate's side.

        Where no witness stands, what the exact problem said when it was last solved.
        """
        stands = np.isfinite(self.tally.witness_evidence())
        if self.finding is not None and (self.finding.samples == self.samples or not stands):
            return self.finding.evidence
        base = -self.tally.dimension()
        side = self.tally.value()[1]
        reached = self.tally.witness_evidence() if side else base
        return (base, reached) if side < 0 else (reached, base)

    def conclude(self) -> Finding:
        """What the exact problem says now."""
        if self.finding is None or self.finding.samples != self.samples:
            self.finding = self._examine(np.inf, self.method.solver)
        return self.finding

    @property
    def certified(self) -> bool:
        """Whether the answer rests on a proof."""
        distance = self.finding.distance if self.finding is not None else None
        return self.answer is not None and distance is not None and distance.certified

    def interval(self, level: float) -> tuple[float, float]:
        """The smallest and largest value found over the ball of radius beta(t, delta)."""
        problem, low_high = self.tally.problem(), value_range(self.task)
        if not problem.n.any():
            return low_high
        radius = max(level + self.tally.dimension(), 0.0)
        low = ProjectionFree().extreme(problem.extreme(1.0, radius)).upper
        high = ProjectionFree().extreme(problem.extreme(-1.0, radius)).lower
        return min(low, self.estimate), max(high, self.estimate)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.tally.value()[0]

    @property
    def solves(self) -> int:
        """How many worst-case problems were solved."""
        return self.tally.solves

    def kernel(self) -> Kernel:
        """The empirical kernel."""
        return self.tally.kernel()

    def counts(self) -> Counts:
        """What was observed."""
        return self.tally.counts()

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as arrays."""
        kept = {"samples": np.array([self.samples]), "blind_until": np.array([self.blind_until])}
        kept.update({f"tally.{name}": value for name, value in self.tally.state().items()})
        kept.update({f"source.{name}": value for name, value in self.source.state().items()})
        return kept

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
        self.samples, self.blind_until = int(state["samples"][0]), int(state["blind_until"][0])
        for part, name in ((self.tally, "tally."), (self.source, "source.")):
            part.restore({key[len(name) :]: value for key, value in state.items() if key.startswith(name)})


class PrintedRun(Run):
    """The rule of the paper's experiments: at every round, is the heuristic's extreme value on the estimate's side?"""

    def look(self, level: float) -> None:
        """One round of Algorithm 1, after each pair was sampled once."""
        tally, (scale, power) = self.tally, self.method.zeta or (0.0, 0.0)
        self.answer = None
        value, side = tally.value()
        if side == 0 or not (tally.n > 0).all():
            return
        tally.solves += 1
        problem = tally.problem(float(side))
        weights = replace(problem, n=problem.n / self.samples)
        radius = (level + tally.dimension()) / self.samples
        ends = self.method.solver.extreme(weights.extreme(float(side), radius))
        extreme = ends.upper if side > 0 else ends.lower
        if (value - self.threshold) * (extreme - self.threshold) >= scale / self.samples**power:
            self.answer = "above" if side > 0 else "below"

    def judge(self, level: float) -> None:
        """Check once."""
        self.look(level)

    def _keep_witness(self, entries: FloatArray, loss: float) -> None:
        """No witness is kept, so that every round is checked."""

    def reconsider(self, level: float) -> None:
        """Check again at a higher level."""
        self.look(level)

    def evidence(self) -> tuple[float, float]:
        """That of the exact rule, which the printed one does not ask."""
        return self.conclude().evidence

    def conclude(self) -> Finding:
        """What the exact problem says."""
        self.finding = self._examine(np.inf, ProjectionFree())
        return self.finding

    @property
    def certified(self) -> bool:
        """Never."""
        return False


def _distance(bracket: Bracket) -> float:
    """The distance a verdict may rest on: the proved end, else the one found, and nothing if the search failed."""
    if bracket.certified:
        return bracket.lower
    if bracket.kernel is None or bracket.status not in FINISHED:
        return 0.0
    return bracket.upper
