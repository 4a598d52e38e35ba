r"""Counts laid out row by row, and the standing witness: exact stopping at a constant cost for each sample.

The stopping rule (6) asks at every t whether some kernel on the other side of R has a loss below beta(t, delta). One
such kernel is proof enough that the test must go on. So the last one found, the *witness* w, is kept, with its

    evidence(w) = loss_t(w) - (dimension term of the boundary)        (in nats; the test goes on below log(1/delta)),

updated in constant time when one count moves. Only when it reaches log(1/delta) is the nearest kernel sought again.
The test stops exactly when it would if that were done at every sample.

A witness has the value R, up to rounding, and R lies in the closure of both sides: it proves "not yet" whichever
side the estimate is on. It is sought near the *smoothed* counts N + a, not near N: then it gives every allowed
successor some mass, no single observation can end it, rows without samples need no care, and it lasts about ten times
as long. Any kernel of value R is a valid witness; only when none of these serves is the exact problem solved.

Paper: `eq:ideal stopping`.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray, Kernel
from policytest._base.compiled import evidence, search
from policytest._base.errors import InputError, check_precision
from policytest._base.rows import Rows
from policytest.data.counts import Counts
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.boundaries import Boundary, average, boundary_terms, widths
from policytest.worst_case.problem import Problem

FULL_ENTRIES = 20_000_000  # up to this many entries every allowed successor is listed
SMOOTHING = (0.5, 5e-4)  # mass added to every count, tried in turn
REFRESH_STATES = 100  # up to this size a new witness costs less than a block of samples
WITNESS_TOLERANCE, WITNESS_ITERATIONS = 1e-10, 200


class Tally:
    """The counts of the rows that matter, the witness, and its evidence for each prior of the boundary.

    Inside, rewards are centred (see `Task.centred`): values are compared with 0, up to ``rounding``.
    """

    _value: tuple[float, int] | None
    _problem: Problem | None

    def __init__(self, task: Task, threshold: float, boundary: Boundary, most_listed: int | None = None) -> None:
        self.task = task.centred(threshold)
        self.rounding = value_range_error(self.task) + centring_error(task, threshold)
        low, high = value_range(task)
        self.at_end = {1: threshold == low, -1: threshold == high}
        task = self.task
        self.is_open = task.any_successor and len(task.layout.pairs.pair) * task.n_states > (
            FULL_ENTRIES if most_listed is None else most_listed
        )
        self.rows = _self_loops(task) if self.is_open else task.layout.rows
        self.terms = boundary_terms(boundary, task, self.rows)
        self.N = np.zeros(self.rows.n_entries)
        self.n = np.zeros(len(self.rows.pair))
        self.w = self.estimate()
        self.evidence = np.full(len(self.terms.priors), np.inf)  # no witness yet
        self.multiplier = 0.0
        self.solves = 0
        self._forget()
        self.unknown = widths(task)[self.rows.pair] > 1  # [K] rows with something to learn
        self.inside = all(self.room(side) > self.rounding for side in (1, -1))

    # ------------------------------------------------------------ observations

    def observe(self, k: IntArray, x: IntArray, level: float) -> int:
        """Record transitions until the witness fails; how many were used."""
        self._forget()
        if self.is_open:
            self._list_successors(k, x)
        used, ending = evidence.observe(
            self.rows.start, self.rows.successor, *self.terms, self.N, self.n, self.w, self.evidence, level, k, x
        )
        if ending == evidence.NOT_ALLOWED:
            place = self.task.place(int(self.rows.pair[k[used]]), int(x[used]))
            raise InputError(
                f"the transition {place} was observed, but the task's support excludes it; widen the support"
            )
        return int(used)

    def safe_ahead(self, k: IntArray, level: float) -> int:
        """How many of these visits can be drawn before the witness could have failed at an earlier one."""
        rows = self.rows
        return int(evidence.safe_ahead(rows.start, *self.terms, self.N, self.n, self.w, self.evidence, level, k))

    def load(self, counts: Counts) -> None:
        """Take over counts recorded elsewhere."""
        S, A = self.task.n_states, self.task.n_actions
        arrays.check_shape("counts", (counts.n_states, counts.n_actions), (S, A))
        table = counts.N
        self.task.check_support("counts", table)
        if self.is_open:
            stored = table.tocoo() if arrays.is_sparse(table) else None
            pair, x = (stored.row, stored.col) if stored is not None else np.nonzero(table.reshape(S * A, S))
            self._list_successors(self.task.layout.row_of_pair[pair], np.asarray(x, dtype=np.int64))
        self.N = self.rows.pick(table, S)
        self.n = counts.visits.ravel()[self.rows.pair].astype(np.float64)
        self.evidence[:] = np.inf
        self._forget()

    def _list_successors(self, k: IntArray, x: IntArray) -> None:
        """In open rows: list successors that are met for the first time. The witness gives them no mass."""
        S, rows = self.task.n_states, self.rows
        known = rows.of_entry() * S + rows.successor
        met = np.unique(k[k >= 0] * S + x[k >= 0])
        new = met[known[np.minimum(np.searchsorted(known, met), len(known) - 1)] != met]
        if not len(new):
            return
        at = np.searchsorted(known, new)
        successor = np.insert(rows.successor, at, (new % S).astype(np.int32))
        width = np.diff(rows.start) + np.bincount(new // S, minlength=len(rows.pair))
        self.rows = rows._replace(start=np.concatenate([[0], np.cumsum(width)]), successor=successor)
        self.N, self.w = np.insert(self.N, at, 0.0), np.insert(self.w, at, 0.0)

    # ------------------------------------------------------------ what they say

    def estimate(self) -> FloatArray:
        """[E] the empirical kernel N/n; rows never visited are uniform over the listed successors."""
        visits, width = self.rows.per_entry(self.n), self.rows.per_entry(np.diff(self.rows.start))
        return np.asarray(np.where(visits > 0, self.N, 1.0) / np.where(visits > 0, visits, width))

    def value(self) -> tuple[float, int]:
        """The value of the estimate, and its side: 1 above 0, -1 below, 0 where rounding hides it."""
        if self._value is None:
            value, error = self.value_of(self.estimate())
            self._value = value, 0 if abs(value) <= error else (1 if value > 0 else -1)
        return self._value

    def value_of(self, entries: FloatArray) -> tuple[float, float]:
        """The value of a kernel given by its entries, and a bound on its error."""
        task = self.task
        values, _, error = search.values_and_occupancy(self.rows, entries, task.discount, task.initial)
        check_precision(error)
        return float(task.initial @ values), max(2e-14, 2.0 * error) * float(np.abs(values).max()) + self.rounding

    def room(self, side: int) -> float:
        """How far the values of kernels go beyond 0, seen from the side of the estimate (1 above, -1 below).

        Below zero by more than the rounding: no kernel reaches it. Exactly zero: only kernels of extreme value do.
        """
        low, high = value_range(self.task)
        return 0.0 if self.at_end[side] else -low if side > 0 else high

    @cached_property
    def only_successor(self) -> IntArray:
        """[K] the successor of known rows, -1 for the others."""
        rows = self.rows
        known = (np.diff(rows.start) == 1) & ~self.unknown
        return np.where(known, rows.successor[rows.start[:-1]], -1).astype(np.int64)

    def dimension(self) -> float:
        """The dimension term of the boundary, in nats."""
        return average(self.terms.dimensions(self.rows.start, self.N, self.n))

    def problem(self) -> Problem:
        """The worst-case problem around the estimate, with visits as weights (sign +1)."""
        if self._problem is None:
            self._problem = Problem(self.task, self.form, self.rows, self.estimate(), self.n.copy(), self.is_open, 1.0)
        return self._problem

    def _forget(self) -> None:
        """A count moves: what was derived from the counts is derived anew when it is needed."""
        self._value = None
        self._problem = None

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

    # ------------------------------------------------------------ witnesses

    def seek_witness(self, level: float, shares: tuple[float, ...] = SMOOTHING) -> bool:
        """Look for a witness near the smoothed counts; whether its evidence is below the level."""
        if self.is_open or not self.inside:
            return False
        task = self.task
        for share in shares:
            self.solves += 1
            found, self.multiplier = search.rewitness(
                self.rows, task.discount, task.initial, self.N, self.n, share, self.w,
                self.multiplier, WITNESS_TOLERANCE, WITNESS_ITERATIONS,
            )  # fmt: skip
            if not found:
                continue
            evidence.witness_evidence(self.rows.start, *self.terms, self.N, self.n, self.w, self.evidence)
            if self.witness_evidence() < level:
                return True
        return False

    def refresh(self) -> None:
        """In small tasks: a newer witness if it lasts longer, and with it a tighter bound on the evidence."""
        if self.task.n_states > REFRESH_STATES or self.is_open or not self.inside:
            return
        standing = self.w.copy(), self.evidence.copy(), self.multiplier
        before = self.witness_evidence()
        if not self.seek_witness(before, SMOOTHING[:1]):
            self.w, self.evidence, self.multiplier = standing

    def adopt(self, entries: FloatArray, loss: float) -> None:
        """Take a kernel of value R, with this loss, as the witness."""
        self.w = entries
        self.evidence = loss - self.terms.dimensions(self.rows.start, self.N, self.n)
        self.multiplier = 0.0

    def witness_evidence(self) -> float:
        """The evidence of the standing witness, at least that of the nearest kernel; infinite where there is none."""
        return -average(-self.evidence) if np.isfinite(self.evidence).all() else np.inf

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as arrays."""
        mutable = {"N": self.N, "n": self.n, "w": self.w, "evidence": self.evidence}
        kept = {name: part.copy() for name, part in mutable.items()}
        kept.update(multiplier=np.array([self.multiplier]), solves=np.array([self.solves]))
        return {**kept, "start": self.rows.start, "successor": self.rows.successor}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state."""
        self._forget()
        if self.is_open:
            self.rows = self.rows._replace(start=state["start"], successor=state["successor"])
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
        if not self.is_open and np.isfinite(self.evidence).all():
            fresh = np.empty_like(self.evidence)
            evidence.witness_evidence(start, *self.terms, self.N, self.n, self.w, fresh)
            if not np.allclose(fresh, self.evidence, rtol=1e-6, atol=1e-3):
                raise ValueError("the evidence is not that of the counts")


def centring_error(task: Task, threshold: float) -> float:
    """What rounding in r - (1-gamma) R can do to values."""
    largest = max(abs(bound) for bound in task.reward_bounds) + abs((1.0 - task.discount) * threshold)
    return 4e-16 * largest / (1.0 - task.discount)


def _self_loops(task: Task) -> Rows:
    """Open rows list what was seen. Before that each lists its own state, so that it has a successor at all."""
    pairs = task.layout.pairs
    return pairs._replace(start=np.arange(len(pairs.pair) + 1, dtype=np.int64), successor=pairs.state.astype(np.int32))
