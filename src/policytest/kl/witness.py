r"""Counts laid out row by row, and the standing witness: exact stopping at a constant cost for each sample.

The stopping rule (6) asks at every t whether some kernel on the other side of R has a loss below beta(t, delta). One
such kernel is proof enough that the test must go on. So the last one found, the *witness* w, is kept, with its

    evidence(w) = loss_t(w) - (dimension term of the boundary)        (in nats; the test goes on below log(1/delta)),

updated in constant time when one count moves. Only when it reaches log(1/delta) is the nearest kernel sought again.
The test stops exactly when it would if that were done at every sample.

What is compared with R need not be a value: any `Functional` of the kernel will do, such as the difference of two
policies. A value is the functional of one term, for which all of this is compiled.

A witness has the value R, up to rounding, and R lies in the closure of both sides: it proves "not yet" whichever
side the estimate is on. It is sought near the *smoothed* counts N + a, not near N: then it gives every allowed
successor some mass, no single observation can end it, rows without samples need no care, and it lasts about ten times
as long. Any kernel of value R is a valid witness; only when no such kernel serves is the exact problem solved.

Paper: `eq:ideal stopping`.
"""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import Arrays, FloatArray, IntArray, Kernel
from policytest._base.compiled import evidence, search
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.data.counts import Counts
from policytest.kl.boundaries import Boundary, average, boundary_terms, widths
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.worst_case.bracket import Bracket, started_at
from policytest.worst_case.functional import Functional, value_of_policy
from policytest.worst_case.functional_solver import REACHED, DifferenceSolver
from policytest.worst_case.problem import InverseProblem, Solver
from policytest.worst_case.projection_free import ProjectionFree

FULL_ENTRIES = 20_000_000  # up to this many entries every allowed successor is listed
SMOOTHING = (0.5, 5e-4)  # mass added to every count, tried in turn
REFRESH_STATES = 100  # up to this size a new witness costs less than a block of samples
WITNESS_TOLERANCE, WITNESS_ITERATIONS = 1e-10, 200
WITNESS = DifferenceSolver(tolerance=1e-9, max_iterations=60)


class Target(NamedTuple):
    """What is compared with 0 in the place of the value: a functional, its reach below and above 0, its rounding."""

    functional: Functional | None = None
    below: float = np.inf
    above: float = np.inf
    rounding: float | None = None


class RowCounts:
    """N [E] and n [K] on the rows of a task; open rows list the successors that were seen."""

    def __init__(self, task: Task, is_open: bool) -> None:
        self.task, self.is_open = task, is_open
        self.rows = _self_loops(task) if is_open else task.layout.rows
        self.N, self.n = np.zeros(self.rows.n_entries), np.zeros(len(self.rows.pair))
        self.unknown = widths(task)[self.rows.pair] > 1  # [K] rows with something to learn

    def load(self, counts: Counts) -> None:
        """Take over counts recorded elsewhere."""
        S, A = self.task.n_states, self.task.n_actions
        arrays.check_shape("counts", (counts.n_states, counts.n_actions), (S, A))
        table = counts.N
        self.task.check_support("counts", table)
        if self.is_open:
            stored = table.tocoo() if arrays.is_sparse(table) else None
            pair, x = (stored.row, stored.col) if stored is not None else np.nonzero(table.reshape(S * A, S))
            self.list_successors(self.task.layout.row_of_pair[pair], np.asarray(x, dtype=np.int64))
        self.N = self.rows.pick(table, S)
        self.n = counts.visits.ravel()[self.rows.pair].astype(np.float64)

    def list_successors(self, k: IntArray, x: IntArray) -> IntArray:
        """In open rows: list successors that are met for the first time. Says where they were put among the entries."""
        S, rows = self.task.n_states, self.rows
        known = rows.of_entry() * S + rows.successor
        met = np.unique(k[k >= 0] * S + x[k >= 0])
        new = met[known[np.minimum(np.searchsorted(known, met), len(known) - 1)] != met]
        at: IntArray = np.searchsorted(known, new)
        if len(new):
            successor = np.insert(rows.successor, at, (new % S).astype(np.int32))
            width = np.diff(rows.start) + np.bincount(new // S, minlength=len(rows.pair))
            self.rows = rows._replace(start=np.concatenate([[0], np.cumsum(width)]), successor=successor)
            self.N = np.insert(self.N, at, 0.0)
        return at

    def estimate(self) -> FloatArray:
        """[E] the empirical kernel N/n; rows never visited are uniform over the listed successors."""
        visits, width = self.rows.per_entry(self.n), self.rows.per_entry(np.diff(self.rows.start))
        return np.asarray(np.where(visits > 0, self.N, 1.0) / np.where(visits > 0, visits, width))

    @cached_property
    def only_successor(self) -> IntArray:
        """[K] the successor of known rows, -1 for the others."""
        rows = self.rows
        known = (np.diff(rows.start) == 1) & ~self.unknown
        return np.where(known, rows.successor[rows.start[:-1]], -1).astype(np.int64)

    def kernel(self) -> Kernel:
        """The empirical kernel, dense or sparse."""
        return self.rows.scatter(self.estimate(), self.form, self.task.n_states)

    def counts(self) -> Counts:
        """The counts, dense or sparse; of the rows that matter only."""
        S, A = self.task.n_states, self.task.n_actions
        counts = Counts(S, A, sparse=self._sparse)
        seen = self.N > 0
        pair = self.rows.pair[self.rows.of_entry()[seen]]
        counts.record(pair // A, pair % A, self.rows.successor[seen].astype(np.int64), self.N[seen].astype(np.int64))
        return counts

    @property
    def _sparse(self) -> bool:
        S, A = self.task.n_states, self.task.n_actions
        return arrays.is_sparse(self.task.support) or S * A * S > FULL_ENTRIES

    @cached_property
    def form(self) -> Kernel:
        """A kernel whose form the results take; its rows with pi = 0 are uniform (empty, where sparse)."""
        S, A = self.task.n_states, self.task.n_actions
        if not self._sparse:
            return np.full((S, A, S), 1.0 / S)
        return sparse.csr_array((S * A, S))


class WitnessedCounts(RowCounts):
    """The counts of the rows that matter, the witness, and its evidence for each prior of the boundary.

    Inside, rewards are centred (see `Task.centred`): values are compared with 0, up to ``rounding``. A ``target`` has
    another functional compared with 0; `stand` may replace it, with the witness.
    """

    _value: tuple[float, int] | None
    _problem: InverseProblem | None

    def __init__(
        self,
        task: Task,
        threshold: float,
        boundary: Boundary,
        most_listed: int | None = None,
        target: Target | None = None,
    ) -> None:
        super().__init__(task.centred(threshold), is_open(task, most_listed))
        rounding = target.rounding if target is not None else None
        if rounding is None:
            rounding = value_range_error(self.task) + centring_error(task, threshold)
        if target is None:
            low, high = value_range(task)
            low_centred, high_centred = value_range(self.task)
            below, above = 0.0 if threshold == low else -low_centred, 0.0 if threshold == high else high_centred
            target = Target(None, below, above)
        self.rounding = rounding
        self.reach = {1: target.below, -1: target.above}  # seen from the side of the estimate
        self._functional = target.functional
        self.terms = boundary_terms(boundary, self.task, self.rows)
        self.w = np.zeros(self.rows.n_entries)
        self.evidence = np.full(len(self.terms.priors), np.inf)  # no witness yet
        self.multiplier = 0.0
        self.solves = 0
        self._forget()
        self.inside = min(self.reach.values()) > self.rounding

    # ------------------------------------------------------------ observations

    def observe(self, k: IntArray, x: IntArray, required: float) -> int:
        """Arrays transitions until the witness fails; how many were used."""
        self._forget()
        if self.is_open:
            self.list_successors(k, x)
        used, ending = evidence.observe(
            self.rows.start, self.rows.successor, *self.terms, self.N, self.n, self.w, self.evidence, required, k, x
        )
        if ending == evidence.NOT_ALLOWED:
            place = self.task.place(int(self.rows.pair[k[used]]), int(x[used]))
            raise InputError(
                f"the transition {place} was observed, but the task's support excludes it; widen the support"
            )
        return int(used)

    def safe_ahead(self, k: IntArray, required: float) -> int:
        """How many of the planned visits can be drawn before the witness could have failed at an earlier one."""
        rows = self.rows
        return int(evidence.safe_ahead(rows.start, *self.terms, self.N, self.n, self.w, self.evidence, required, k))

    def load(self, counts: Counts) -> None:
        """Take over counts recorded elsewhere."""
        super().load(counts)
        self.evidence[:] = np.inf
        self._forget()

    def list_successors(self, k: IntArray, x: IntArray) -> IntArray:
        """In open rows: list successors that are met for the first time. The witness gives them no mass."""
        at = super().list_successors(k, x)
        if len(at):
            self._functional, self.w = None, np.insert(self.w, at, 0.0)
        return at

    # ------------------------------------------------------------ what they say

    # ------------------------------------------------------------ what they say

    def value(self) -> tuple[float, int]:
        """The value of the estimate, and its side: 1 above 0, -1 below, 0 where rounding hides it."""
        if self._value is None:
            value, error = self.value_of(self.estimate())
            self._value = value, 0 if abs(value) <= error else (1 if value > 0 else -1)
        return self._value

    def value_of(self, entries: FloatArray) -> tuple[float, float]:
        """The value, or the functional, of a kernel given by its entries, and a bound on its error."""
        value, error = self.functional.measured(entries)
        return value, error + self.rounding

    @property
    def functional(self) -> Functional:
        """What is compared with 0."""
        if self._functional is None:
            self._functional = value_of_policy(self.task, self.rows)
        return self._functional

    @property
    def targets_policy_value(self) -> bool:
        """Whether the value of the task's policy is compared with 0, and not another functional."""
        return self.functional.initial is not None

    def dimension(self) -> float:
        """The dimension term of the boundary, in nats."""
        return average(self.terms.dimensions(self.rows.start, self.N, self.n))

    def problem(self, functional: Functional | None = None) -> InverseProblem:
        """The worst-case problem around the estimate, with visits as weights (sign +1), for this functional."""
        if self._problem is None:
            self._problem = self.laid_out(self.estimate(), self.n.copy(), self.functional)
        return self._problem if functional is None else replace(self._problem, functional=functional)

    def laid_out(self, entries: FloatArray, weights: FloatArray, functional: Functional) -> InverseProblem:
        """The worst-case problem around any kernel, given by its entries, with these weights [K]."""
        other = functional if functional.initial is None else None
        return InverseProblem(self.task, self.form, self.rows, entries, weights, self.is_open, 1.0, other)

    def _forget(self) -> None:
        """A count moves: what was derived from the counts is derived again when it is needed."""
        self._value = None
        self._problem = None

    # ------------------------------------------------------------ the worst case

    def local(self, starts: int) -> Solver:
        """The solver that searches stationary points, with this many starts."""
        return ProjectionFree(starts=starts) if self.targets_policy_value else DifferenceSolver(starts=starts)

    def nearest(
        self,
        side: int,
        solver: Solver,
        enough: float,
        functional: Functional | None = None,
        threshold: float = 0.0,
        warm: FloatArray | None = None,
    ) -> Bracket:
        """The nearest kernel at which the functional is beyond the threshold, seen from this side.

        The search on a difference may find none. Where the extreme over the ball of radius ``enough`` is not beyond
        the threshold either, the distance found is ``enough``, without a kernel.
        """
        self.count_solve()
        problem = self.problem(functional).nearest(float(side), threshold, enough)
        found = solver.nearest(problem, started_at(self.rows, warm))
        if problem.functional is not None and found.kernel is None and np.isfinite(enough):
            beyond = self.across(side, enough, solver, functional)
            return replace(found, upper=enough + 1e-9 * (1.0 + enough)) if beyond.kernel is None else beyond
        return found

    def count_solve(self) -> None:
        """A worst-case problem is solved."""
        self.solves += 1

    def across(self, side: int, radius: float, solver: Solver, functional: Functional | None = None) -> Bracket:
        """The kernel of the ball at which the functional is most extreme, if it is beyond 0; its loss bounds (NC)."""
        self.count_solve()
        problem = self.problem(functional).extreme(float(side), radius)
        found = solver.extreme(problem)
        if found.kernel is None or side * (found.upper if side > 0 else found.lower) > 0:
            return replace(found, lower=0.0, upper=np.inf, kernel=None, certified=False)
        loss = problem.loss(self.rows.pick(found.kernel, self.task.n_states))
        return replace(found, lower=0.0, upper=loss, certified=False)

    def extremes(self, radius: float, solver: Solver) -> tuple[float, float]:
        """The smallest and the largest value of the functional that the solver finds over the ball."""
        low, high = (solver.extreme(self.problem().extreme(sign, radius)) for sign in (1.0, -1.0))
        return low.upper, high.lower

    # ------------------------------------------------------------ witnesses

    def seek_witness(self, required: float, shares: tuple[float, ...] = SMOOTHING) -> bool:
        """Look for a witness near the smoothed counts; whether its evidence is below what an answer requires."""
        if self.is_open or not self.inside:
            return False
        for share in shares:
            found = self.smoothed(self.functional, share, self.standing())
            if found is not None:
                self.stand(found)
                if self.witness_evidence() < required:
                    return True
        return False

    def standing(self) -> FloatArray | None:
        """[E] the witness, where there is one."""
        return self.w if np.isfinite(self.evidence).all() else None

    def smoothed(self, functional: Functional, share: float, warm: FloatArray | None = None) -> FloatArray | None:
        """[E] the kernel nearest to the counts with this share added to each, at which the functional is 0."""
        self.solves += 1
        rows, task = self.rows, self.task
        if functional.initial is not None:
            w = self.w.copy()
            counts = search.Descent(rows, task.discount, task.initial, self.N, self.n, 0.0, 0.0)
            settings = share, w, self.multiplier, WITNESS_TOLERANCE, WITNESS_ITERATIONS
            is_reached, self.multiplier = search.rewitness(counts, *settings)
            return w if is_reached else None
        n = self.n + share * np.diff(rows.start)
        p: FloatArray = (self.N + share) / rows.per_entry(n)
        value = functional.value(p)
        if is_zero(functional, value):
            return p
        problem = self.laid_out(p, n, functional).nearest(float(np.sign(value)), 0.0)
        found = WITNESS.nearest(problem, started_at(rows, warm))
        reached = found.trail is not None and is_zero(functional, functional.value(found.trail[1]))
        return np.asarray(found.trail[1]) if reached and found.trail is not None else None

    def refresh(self) -> None:
        """In small tasks: a newer witness if it lasts longer, and with it a tighter bound on the evidence."""
        if self.task.n_states > REFRESH_STATES or self.is_open or not self.inside:
            return
        standing = self.w, self.evidence.copy(), self.multiplier
        if not self.seek_witness(self.witness_evidence(), SMOOTHING[:1]):
            self.w, self.evidence, self.multiplier = standing

    def stand(self, entries: FloatArray, loss: float | None = None, functional: Functional | None = None) -> None:
        """Make this kernel, at which the functional is 0, the witness; its loss is computed where it is not given."""
        self.w = entries
        if functional is not None:
            self._functional = functional
        if loss is not None:
            self.multiplier = 0.0
        self.evidence = self._evidence_at(loss)

    def _evidence_at(self, loss: float | None) -> FloatArray:
        """[J] that of a witness with this loss, for each prior; of the standing one where none is given."""
        start, N, n = self.rows.start, self.N, self.n
        loss = evidence.loss_at(start, N, n, self.w) if loss is None else loss
        return np.asarray(loss - self.terms.dimensions(start, N, n))

    def witness_evidence(self) -> float:
        """The evidence of the standing witness, at least that of the nearest kernel; infinite where there is none."""
        return -average(-self.evidence) if np.isfinite(self.evidence).all() else np.inf

    # ------------------------------------------------------------ keeping

    def copy(self) -> WitnessedCounts:
        """The same counts and witness, for another run to go on with."""
        other = copy(self)
        other.N, other.n, other.w, other.evidence = self.N.copy(), self.n.copy(), self.w.copy(), self.evidence.copy()
        return other

    def state(self) -> Arrays:
        """All that is needed to go on later, as arrays."""
        mutable = {"N": self.N, "n": self.n, "evidence": self.evidence}
        kept = {name: part.copy() for name, part in mutable.items()}
        kept["w"] = np.zeros(len(self.w)) if self.standing() is None else self.w.copy()
        kept.update(multiplier=np.array([self.multiplier]), solves=np.array([self.solves]))
        return {**kept, "start": self.rows.start, "successor": self.rows.successor}

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""
        self._forget()
        if self.is_open:
            self.rows = self.rows._replace(start=state["start"], successor=state["successor"])
            self._functional = None
        self.N, self.n, self.w = (np.array(state[name], dtype=np.float64) for name in ("N", "n", "w"))
        self.evidence = np.array(state["evidence"], dtype=np.float64)
        self.multiplier, self.solves = float(state["multiplier"][0]), int(state["solves"][0])
        self._check()

    def _check(self) -> None:
        """Refuse a state that cannot have arisen."""
        K, E, start, S = len(self.rows.pair), self.rows.n_entries, self.rows.start, self.task.n_states
        shapes = [(E,), (K,), (E,), (len(self.terms.priors),), (K + 1,), (E,)]
        found = [part.shape for part in (self.N, self.n, self.w, self.evidence, start, self.rows.successor)]
        sound = found == shapes and (np.diff(start) > 0).all() and start[0] == 0
        sound = sound and ((self.rows.successor >= 0) & (self.rows.successor < S)).all()
        sound = sound and ((self.N >= 0) & (np.rint(self.N) == self.N) & (self.w >= 0) & (self.w <= 1 + 1e-9)).all()
        if not (sound and (self.rows.sums(self.N) == self.n).all() and not np.isnan(self.evidence).any()):
            raise ValueError("counts, visits and witness do not fit together")
        stands = not self.is_open and np.isfinite(self.evidence).all()
        if stands and not np.allclose(self._evidence_at(None), self.evidence, rtol=1e-6, atol=1e-3):
            raise ValueError("the evidence is not that of the counts")


def is_zero(functional: Functional, value: float) -> bool:
    """Whether a value of the functional is 0, as far as a search can tell."""
    return abs(value) <= REACHED * functional.size


def is_open(task: Task, most_listed: int | None = None) -> bool:
    """Whether the rows of a task without support have too many successors to list all of them."""
    most = FULL_ENTRIES if most_listed is None else most_listed
    return task.any_successor and len(task.layout.pairs.pair) * task.n_states > most


def check_listed(task: Task) -> None:
    """Refuse a task whose rows are open, for rules that need every successor listed."""
    if is_open(task):
        raise InputError(
            f"task: {task.n_states} states may follow each pair, too many for this method; declare the task's "
            "`support`, or pass method=PTST() to decide"
        )


def centring_error(task: Task, threshold: float) -> float:
    """What rounding in r - (1-gamma) R can do to values."""
    largest = max(abs(bound) for bound in task.reward_bounds) + abs((1.0 - task.discount) * threshold)
    return 4e-16 * largest / (1.0 - task.discount)


def largest_rounding(task: Task, threshold: float) -> float:
    """A bound on what rounding can do to values, without solving for their range."""
    steps, largest = task.expected_steps, max(abs(bound) for bound in task.reward_bounds)
    off = max(np.abs(task.policy.sum(axis=1) - 1.0).max() * steps, abs(task.initial.sum() - 1.0))
    return float((1e-13 * steps + 2.0 * off) * (largest * steps + abs(threshold))) + centring_error(task, threshold)


def _self_loops(task: Task) -> Rows:
    """Open rows list what was seen. Before that each lists its own state, so that it has a successor at all."""
    pairs = task.layout.pairs
    return pairs._replace(start=np.arange(len(pairs.pair) + 1, dtype=np.int64), successor=pairs.state.astype(np.int32))
