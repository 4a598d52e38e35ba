r"""Which of two policies is better? The KL rule on the difference of their values.

Counts of the rows that either policy takes have one boundary beta(t, delta) (`methods.boundaries`), whatever is
asked of them. So PTST (`methods.ptst`) runs on the difference as it does on a value: it goes on while some kernel q
with V_q^A - V_q^B on the other side of the margin has loss_t(q) < beta. A standing witness, whose difference is the
margin, proves that at a constant cost for each sample. If V^A - V^B <= m, "above" is answered only if *every* such
kernel has a loss of at least beta, the true one included, which has probability at most delta.

That every one has is what the search cannot prove: its descents (`worst_case.functional_solver`) end in stationary
points. Before an answer many starts are tried, and the extreme difference over the ball; the answer says
``certified=False``. Betting on coupled rollouts, the default, needs no such search.

Paper: `app:extension`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import evidence
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods import ptst
from policytest.methods.betting.coupling import joint_task
from policytest.methods.boundaries import Boundary
from policytest.methods.known_range import KnownRange, known_difference
from policytest.methods.ptst import FEW_STARTS, MANY_STATES, PTST, STARTS
from policytest.methods.sampler import Source
from policytest.methods.sampling import Adaptive, Optimal
from policytest.methods.sampling_balanced import Balanced
from policytest.methods.witness import REFRESH_STATES, SMOOTHING, Tally, centring_error
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.certified import Certified
from policytest.worst_case.functional import Functional, Term, difference_of
from policytest.worst_case.functional_solver import REACHED, DifferenceSolver
from policytest.worst_case.problem import Problem, Solver
from policytest.worst_case.projection_free import ProjectionFree

WITNESS = DifferenceSolver(tolerance=1e-9, max_iterations=60)


class ComparingPTST(PTST):
    """PTST for a comparison: its solver searches stationary points, whatever was asked for."""

    def describe(self) -> str:
        """The method in a few words."""
        return super().describe().replace("PTST", "PTST on the difference of policy A and policy B", 1)


def comparing(method: PTST) -> ComparingPTST:
    """The settings, where they make sense for differences."""
    solver = check_settings(method)
    return ComparingPTST(method.boundary, solver, method.allocation, method.batch)


def check_settings(method: PTST) -> ProjectionFree:
    """Refuse settings that have no meaning for differences; the solver to search with."""
    if method.zeta is not None:
        raise InputError("method: PTST.as_printed() is the rule for one policy's value; pass PTST() here")
    if not isinstance(method.solver, Certified | ProjectionFree):
        raise InputError(
            f"method: the solver {type(method.solver).__name__} is for one policy's value; pass "
            "PTST(solver=ProjectionFree()), whose descent also runs on differences"
        )
    if isinstance(method.allocation, Optimal):
        raise InputError(
            "method: Optimal(kernel) is for one policy's value; pass allocation=Adaptive(), or shares [S,A]"
        )
    return method.solver if isinstance(method.solver, ProjectionFree) else ProjectionFree()


def term_of(task: Task, rows: Rows) -> Term:
    """A policy with its rewards on given rows, without a measure."""
    on_successor, none = task.rewards_on_successor, np.zeros(0)
    reward = np.zeros(len(rows.pair)) if on_successor else task.rewards.ravel()[rows.pair]
    gain = rows.pick(task.rewards, task.n_states) if on_successor else none
    return Term(task.policy.ravel()[rows.pair], reward, gain, none)


class FunctionalTally(Tally):
    """Counts, with a functional in the place of the value; it is compared with 0."""

    functional: Functional

    def __init__(self, task: Task, boundary: Boundary) -> None:
        super().__init__(task, 0.0, boundary)
        if self.is_open:
            raise InputError(
                f"the task has {task.n_states} states and no support; declare `support` for PTST on differences"
            )

    def value_of(self, entries: FloatArray) -> tuple[float, float]:
        """The functional of a kernel given by its entries, and a bound on its error."""
        return self.functional.value(entries), 2e-14 * self.functional.size + self.rounding

    def seek_witness(self, level: float, shares: tuple[float, ...] = SMOOTHING) -> bool:
        """Look for a witness near the smoothed counts; whether its evidence is below the level."""
        if not self.inside:
            return False
        for share in shares:
            found = self.smooth_witness(self.functional, share, self.w if np.isfinite(self.evidence).all() else None)
            if found is not None:
                self.stand(found)
                if self.witness_evidence() < level:
                    return True
        return False

    def smooth_witness(self, functional: Functional, share: float, warm: FloatArray | None = None) -> FloatArray | None:
        """The kernel nearest to the counts with so much added to each, at which the functional is 0."""
        self.solves += 1
        rows, width = self.rows, np.diff(self.rows.start)
        n = self.n + share * width
        p: FloatArray = (self.N + share) / rows.per_entry(n)
        laid = Problem(self.task, self.form, rows, p, n, False, 1.0)
        value = functional.value(p)
        if abs(value) <= REACHED * functional.size:
            return p
        found = WITNESS.nearest(functional, laid, float(np.sign(value)), 0.0, warm)
        if found.trail is None or abs(functional.value(found.trail[1])) > REACHED * functional.size:
            return None
        return np.asarray(found.trail[1])

    def stand(self, entries: FloatArray) -> None:
        """Make this kernel the witness."""
        self.w = entries
        evidence.witness_evidence(self.rows.start, *self.terms, self.N, self.n, self.w, self.evidence)

    def refresh(self) -> None:
        """In small tasks: a newer witness if it lasts longer."""
        if self.task.n_states > REFRESH_STATES or not self.inside:
            return
        standing = self.w, self.evidence.copy()
        if not self.seek_witness(self.witness_evidence(), SMOOTHING[:1]):
            self.w, self.evidence = standing


class DifferenceTally(FunctionalTally):
    """Counts of the rows that policy A or B takes. Rewards are centred: V^A - V^B - margin is compared with 0."""

    def __init__(self, task_a: Task, task_b: Task, margin: float, boundary: Boundary, known: KnownRange) -> None:
        self.known, self.margin = known, margin
        super().__init__(joint_task([task_a, task_b]), boundary)
        centre = 0.25 * (sum(value_range(task_a)) + sum(value_range(task_b)))
        self.rounding = sum(value_range_error(task) + centring_error(task, centre) for task in (task_a, task_b))
        terms = (term_of(task_a.centred(centre + margin), self.rows), term_of(task_b.centred(centre), self.rows))
        self.functional = difference_of(self.rows, task_a.discount, task_a.initial, *terms)

    def room(self, side: int) -> float:
        """How far differences may go beyond 0, at most, seen from the side of the estimate."""
        return self.margin - self.known.low if side > 0 else self.known.high - self.margin


class KLComparison(ptst.Run):
    """PTST at work on a difference."""

    tally: DifferenceTally

    def __init__(self, method: PTST, task_a: Task, task_b: Task, margin: float, sim: Any, rng: Any) -> None:
        self.method, self.task, self.threshold = comparing(method), task_a, margin
        self.tally = DifferenceTally(task_a, task_b, margin, method.boundary, known_difference(task_a, task_b))
        allocation: Any = method.allocation
        if isinstance(allocation, Adaptive):
            allocation = Balanced(allocation, self._cut)
        self.source = Source(self.tally.task, sim, allocation, 0.0, rng, method.batch)
        self.exhausted, self.samples, self.blind_until = False, 0, 0
        self.answer: str | None = None
        self.finding: ptst.Finding | None = None
        self.found_at = np.inf

    def _cut(self, entries: FloatArray, weights: FloatArray) -> FloatArray | None:
        """KL(p, q) row by row, of the nearest q on the other side at these weights."""
        tally = self.tally
        laid = Problem(tally.task, tally.form, tally.rows, entries, weights, False, 1.0)
        value = tally.functional.value(entries)
        found = DifferenceSolver().nearest(tally.functional, laid, float(np.sign(value)) or 1.0, 0.0)
        return None if found.trail is None else replace(laid, n=np.ones(len(weights))).row_losses(found.trail[1])

    def _nearest(self, side: int, solver: Solver, enough: float) -> Bracket:
        """The nearest kernel beyond 0. Where none is found: whether the ball of the radius that is enough holds one."""
        tally = self.tally
        if tally.room(side) < -tally.rounding:
            return Bracket(np.inf, np.inf, None, 0.0, Status.UNREACHABLE, certified=True)
        warm = tally.w if np.isfinite(tally.evidence).all() else None
        return nearest_or_none(tally, tally.functional, side, getattr(solver, "starts", 1), enough, warm)

    def _across(self, side: int, radius: float) -> Bracket:
        """The kernel of extreme difference found over the ball, if it is beyond 0: then the nearest one was missed."""
        starts = STARTS if self.task.n_states <= MANY_STATES else FEW_STARTS
        return across(self.tally, self.tally.functional, side, radius, starts)

    def _found(self, distance: Bracket) -> float:
        """The distance an answer may rest on, which nothing here proves."""
        return trusted(distance)

    def _keep_witness(self, entries: FloatArray, loss: float) -> None:
        """A kernel whose difference is the margin."""
        functional = self.tally.functional
        if abs(functional.value(entries)) <= REACHED * functional.size:
            self.tally.adopt(entries, loss)

    def proof(self) -> tuple[float, float]:
        """Nothing: a descent may miss the nearest kernel."""
        return -np.inf, -np.inf

    def interval(self, level: float) -> tuple[float, float]:
        """The smallest and largest difference found over the ball of radius beta(t, delta)."""
        tally, known, m = self.tally, self.tally.known, self.threshold
        if not tally.n.any():
            return known.low, known.high
        radius, solver, laid = max(level + tally.dimension(), 0.0), DifferenceSolver(starts=FEW_STARTS), tally.problem()
        low = solver.extreme(tally.functional, laid, 1.0, radius).upper + m
        high = solver.extreme(tally.functional, laid, -1.0, radius).lower + m
        inside = [self.estimate] if self.answer else [self.estimate, m]  # undecided: the margin is in the ball
        return min(low, *inside), max(high, *inside)


def nearest_or_none(
    tally: FunctionalTally,
    functional: Functional,
    side: int,
    starts: int,
    enough: float,
    warm: FloatArray | None = None,
) -> Bracket:
    """The nearest kernel at which the functional is beyond 0, from so many starts.

    Where none is found and the extreme over the ball of radius ``enough`` is not beyond 0 either, the distance found is
    ``enough``, without a kernel.
    """
    tally.solves += 1
    found = DifferenceSolver(starts=starts).nearest(functional, tally.problem(), float(side), 0.0, warm)
    if found.kernel is None and np.isfinite(enough):
        beyond = across(tally, functional, side, enough, starts)
        return replace(found, upper=enough + 1e-9 * (1.0 + enough)) if beyond.kernel is None else beyond
    return found


def across(tally: FunctionalTally, functional: Functional, side: int, radius: float, starts: int) -> Bracket:
    """The kernel of the ball at which the functional is most extreme, if it is beyond 0."""
    tally.solves += 1
    laid = tally.problem()
    found = DifferenceSolver(starts=starts).extreme(functional, laid, float(side), radius)
    if found.trail is None or side * (found.upper if side > 0 else found.lower) > 0:
        return replace(found, lower=0.0, upper=np.inf, kernel=None, certified=False)
    return replace(found, lower=0.0, upper=laid.loss(found.trail[1]), certified=False)


def trusted(distance: Bracket) -> float:
    """The distance that an answer may rest on: of a descent that converged, or of a ball in which nothing was found."""
    if distance.status is Status.NOT_REACHED:
        return distance.upper if np.isfinite(distance.upper) else 0.0
    return distance.upper if distance.status in ptst.FINISHED else distance.lower
