r"""Which policy is best? The KL rule on all alternatives at once.

The candidate pi is the best policy of the empirical kernel. It is the answer when every kernel under which it is *not*
the best has a loss of at least beta(t, delta). These kernels are a union of sets, one for each *alternative*,

    among all policies   Alt(pi) = union over s and a other than pi(s) of { q : Q_q^pi(s,a) > V_q^pi(s) },
    among K policies     union over j other than i of { q : V_q^j > V_q^i },

and each is {F(q) < 0} for a functional F of `worst_case.functional_solver`. The true kernel has a loss below beta
at all times with probability at least 1-delta, so a wrong answer, of whatever candidate, has probability at most
delta: nothing is paid for the number of alternatives, nor for candidates that change.

One kernel with F = 0 and a loss below beta proves "not yet": it is kept as the standing witness, at a constant cost
for each sample, and only when it fails are the alternatives gone through, the one that was nearest last time first. An
answer needs all of them refuted at one and the same sample, by several descents each, and by the extreme over the ball.
Descents end in stationary points, so no answer is certified.

States to which rho cannot lead are left out. Pairs are sampled by the allocation; `Adaptive()` balances alternatives
(`policytest.methods.sampling_balanced`).

Paper: `app:extension`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.rows import Rows
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods import ptst
from policytest.methods.betting.coupling import joint_task
from policytest.methods.known_range import known_difference
from policytest.methods.ptst import FEW_STARTS, PTST, TROUBLE_GROWTH
from policytest.methods.ptst_difference import (
    FunctionalTally,
    across,
    check_settings,
    nearest_or_none,
    term_of,
    trusted,
)
from policytest.methods.sampler import Source
from policytest.methods.sampling import Adaptive, Tracking
from policytest.methods.sampling_balanced import Balanced
from policytest.methods.witness import SMOOTHING, centring_error
from policytest.questions.identify.policies import following, may_be_reached, never_pay, optimal_actions
from policytest.results.selection import USED_UP, Selection, SelectionCheck
from policytest.worst_case.functional import Functional, deviation_of, difference_of
from policytest.worst_case.functional_solver import REACHED, DifferenceSolver
from policytest.worst_case.problem import Problem

NEAREST = 4  # alternatives that are looked at for new shares
FOUND = "found"


@dataclass(eq=False)
class Candidate:
    """One policy, its alternatives that are open, and what is known of each: a witness, and the last evidence."""

    name: Any  # actions [S], or the place among policies
    task: Task
    alternatives: list[Functional]
    settled: int  # without samples
    witnesses: dict[int, FloatArray] = field(default_factory=dict)
    evidence: FloatArray = field(default_factory=lambda: np.zeros(0))

    def __post_init__(self) -> None:
        self.evidence = np.full(len(self.alternatives), -np.inf)

    def order(self) -> IntArray:
        """The alternatives, the nearest first."""
        return np.argsort(self.evidence, kind="stable")


class Deviations:
    """All policies: a candidate is optimal if no deviation pays, in states that matter."""

    index = None
    method = "PTST on the deviations from a policy"

    def __init__(self, task: Task) -> None:
        self.task, self.matter = task, may_be_reached(task)
        self.sampled = self.matter[:, None] & ~task.known_rows
        self.kept: dict[bytes, Candidate] = {}
        self.actions = np.zeros(task.n_states, dtype=np.int64)

    def candidate(self, rows: Rows, q: FloatArray, only: IntArray) -> Candidate:
        """The optimal policy of a kernel."""
        self.actions, _ = optimal_actions(self.task, rows, q, self.actions)
        key = self.actions.tobytes()
        if key not in self.kept:
            self.kept[key] = self._candidate(rows, self.actions, only)
        return self.kept[key]

    def _candidate(self, rows: Rows, actions: IntArray, only: IntArray) -> Candidate:
        task = following(self.task, actions)
        A, centre = task.n_actions, 0.5 * sum(value_range(task))
        rounding = 2.0 * (value_range_error(task) + centring_error(task, centre))
        centred = task.centred(centre)
        term = term_of(centred, rows)
        own = rows._replace(prob=term.prob, reward=term.reward, gain=term.gain)
        asked = self.matter[:, None] & (np.arange(A) != actions[:, None])
        known = asked & never_pay(centred, own, only, actions, rounding)
        alternatives = [
            deviation_of(rows, task.discount, task.n_states, term, int(s * A + actions[s]), int(s * A + a))
            for s, a in np.argwhere(asked & ~known)
        ]
        return Candidate(actions, task, alternatives, int(known.sum()))

    def values(self, rows: Rows, q: FloatArray) -> FloatArray:
        """[S] of the optimal policy."""
        return optimal_actions(self.task, rows, q, self.actions)[1]


class Rivals:
    """Some policies: a candidate is best if no other one is better."""

    method = "PTST on the differences of policies"

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks, self.task = tasks, joint_task(tasks)
        self.sampled: BoolArray = self.task.layout.unknown_pairs
        self.kept: dict[int, Candidate] = {}
        ranges = [value_range(task) for task in tasks]
        self.centre = 0.5 * (min(low for low, _ in ranges) + max(high for _, high in ranges))
        self.index: int | None = 0

    def candidate(self, rows: Rows, q: FloatArray, only: IntArray) -> Candidate:
        """The best of a kernel; the first of those that are as good."""
        self.index = int(np.argmax(self.values(rows, q)))
        if self.index not in self.kept:
            self.kept[self.index] = self._candidate(rows, self.index)
        return self.kept[self.index]

    def _candidate(self, rows: Rows, i: int) -> Candidate:
        terms, task = [term_of(task.centred(self.centre), rows) for task in self.tasks], self.tasks[i]
        alternatives, settled = [], 0
        for j, rival in enumerate(self.tasks):
            if j == i:
                continue
            known = known_difference(task, rival)
            equal = known.high - known.low <= known.error and abs(known.low) <= known.error
            if known.answer(0.0) == "above" or equal:
                settled += 1
            else:
                alternatives.append(difference_of(rows, task.discount, task.initial, terms[i], terms[j]))
        return Candidate(i, task, alternatives, settled)

    def values(self, rows: Rows, q: FloatArray) -> FloatArray:
        """[K] from rho."""
        found = []
        for task in self.tasks:
            term = term_of(task, rows)._replace(start=task.initial[rows.state] * task.policy.ravel()[rows.pair])
            found.append(Functional(rows, task.discount, task.n_states, (term,)).value(q))
        return np.array(found)


@dataclass(frozen=True)
class Shares:
    """Sampling with fixed shares [K]."""

    omega: FloatArray

    def begin(self, task: Task, threshold: float) -> Tracking:
        """Track them."""
        return Tracking(self.omega)


class KLSearch(ptst.Run):
    """PTST at work on alternatives; of its run it keeps the loop."""

    tally: FunctionalTally

    def __init__(self, family: Deviations | Rivals, method: PTST, sim: Any, delta: float, rng: Any) -> None:
        self.method = replace(method, solver=check_settings(method))
        self.family, self.task, self.delta, self.threshold = family, family.task, delta, 0.0
        self.level = -math.log(delta)
        self.tally = FunctionalTally(family.task, method.boundary)
        self.tally.inside = True
        self.exhausted, self.samples = False, 0
        self.answer: str | None = None
        self.finding, self.found_at = None, np.inf
        self.current = self._best()
        self.blind_until = int(family.sampled.sum())
        self.source = Source(self.tally.task, sim, self._allocation(), 0.0, rng, method.batch)

    @property
    def answered(self) -> bool:
        """Whether all alternatives are refuted."""
        return self.answer is not None

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Sample until all alternatives are refuted."""
        if not self.current.alternatives:
            self.answer = FOUND
        yield self._check()
        while self.answer is None and self.paid < limit and self.family.sampled.any():
            self.step(self.level, limit - self.paid)
            if self.answer is None and self._best() is not self.current:
                self.look(self.level)
            yield self._check()

    def _allocation(self) -> Any:
        given, even = self.method.allocation, self.family.sampled.ravel()[self.tally.rows.pair].astype(np.float64)
        even /= max(even.sum(), 1.0)
        if isinstance(given, Adaptive):
            return Balanced(given, self._cut, even)
        return Shares(even) if isinstance(given, str) and given == "uniform" else given

    def _best(self) -> Candidate:
        tally = self.tally
        return self.family.candidate(tally.rows, tally.estimate(), tally.only_successor)

    # ------------------------------------------------------------ the rule

    def look(self, level: float) -> None:
        """The witness failed, or the candidate is another one: find a witness against it, or answer."""
        self.current, self.answer = self._best(), None
        for search in (self._cheaply, self._carefully):
            for i in self.current.order():
                if not search(int(i), level):
                    self._pause()
                    return
        self.answer = FOUND

    def _cheaply(self, i: int, level: float) -> bool:
        """Whether the witnesses at hand, and one descent, leave alternative i refuted."""
        tally, current = self.tally, self.current
        functional = current.alternatives[i]
        if functional.value(tally.estimate()) <= REACHED * functional.size:
            return self._refuted(i, tally.estimate(), level)
        if i in current.witnesses and not self._refuted(i, current.witnesses[i], level):
            return False
        for share in SMOOTHING:
            found = tally.smooth_witness(functional, share, current.witnesses.get(i))
            if found is not None and not self._refuted(i, found, level):
                return False
        return self._solved(i, self.method.solver.starts, level)  # type: ignore[attr-defined]

    def _carefully(self, i: int, level: float) -> bool:
        """Whether several descents, and the extreme over the ball, leave it refuted."""
        tally, functional = self.tally, self.current.alternatives[i]
        if not self._solved(i, FEW_STARTS, level):
            return False
        beyond = across(tally, functional, 1, level + tally.dimension(), FEW_STARTS)
        if beyond.trail is None or beyond.kernel is None:
            return True
        self._keep(i, beyond.upper - tally.dimension())
        return False

    def _solved(self, i: int, starts: int, level: float) -> bool:
        """Whether the exact problem, from so many starts, puts alternative i beyond the boundary."""
        tally, dimension = self.tally, self.tally.dimension()
        functional = self.current.alternatives[i]
        distance = nearest_or_none(tally, functional, 1, starts, level + dimension, self.current.witnesses.get(i))
        self._keep(i, trusted(distance) - dimension)
        if distance.trail is not None and distance.upper - dimension < level:
            return self._refuted(i, distance.trail[1], level)
        return trusted(distance) - dimension >= level

    def _refuted(self, i: int, witness: FloatArray, level: float) -> bool:
        """Put a kernel to the test: as the standing witness, if it has the evidence; else it is refuted."""
        tally, functional = self.tally, self.current.alternatives[i]
        if abs(functional.value(witness)) > REACHED * functional.size:
            return False  # beyond 0, and near: not yet, but no witness for later
        tally.stand(witness)
        tally.functional = functional
        self.current.witnesses[i] = witness
        self._keep(i, tally.witness_evidence())
        return not tally.witness_evidence() < level

    def _keep(self, i: int, evidence: float) -> None:
        self.current.evidence[i] = evidence

    def _pause(self) -> None:
        """Where no witness stands, look again a little later."""
        if not self.tally.witness_evidence() < self.level:
            self.blind_until = max(self.blind_until, self.samples + int(np.ceil(TROUBLE_GROWTH * self.samples)))

    def end(self, level: float) -> None:
        """Nothing was put off."""

    # ------------------------------------------------------------ shares

    def _cut(self, entries: FloatArray, weights: FloatArray) -> FloatArray | None:
        """KL(p, q) row by row, of the nearest alternative q at these weights, among those that were near last."""
        tally, best, cut = self.tally, np.inf, None
        laid = Problem(tally.task, tally.form, tally.rows, entries, weights, False, 1.0)
        current = self.family.candidate(tally.rows, entries, tally.only_successor)
        order = current.order()
        for i in order if not np.isfinite(current.evidence[order[:1]]).all() else order[:NEAREST]:
            functional = current.alternatives[int(i)]
            if functional.value(entries) <= 0:
                continue
            found = DifferenceSolver(tolerance=1e-6).nearest(functional, laid, 1.0, 0.0)
            if found.trail is not None and found.upper < best:
                best, cut = found.upper, replace(laid, n=np.ones(len(weights))).row_losses(found.trail[1])
        return cut

    # ------------------------------------------------------------ what it can say

    def _settled(self) -> int:
        return self.current.settled + int((self.current.evidence >= self.level).sum())

    def _check(self) -> SelectionCheck:
        questions = self.current.settled + len(self.current.alternatives)
        return SelectionCheck(self.paid, self._settled(), questions, self.level, self._about)

    def _about(self) -> tuple[float, float, tuple[float, float]]:
        """What the standing witness allows, and about the value of the candidate."""
        tally, task = self.tally, self.current.task
        allowed = tally.witness_evidence()
        term = term_of(task, tally.rows)._replace(
            start=task.initial[tally.rows.state] * task.policy.ravel()[tally.rows.pair]
        )
        value = Functional(tally.rows, task.discount, task.n_states, (term,)).value(tally.estimate())
        return allowed if np.isfinite(allowed) else 0.0, value, value_range(task)

    def result(self, reason: str) -> Selection:
        """The candidate."""
        current, tally = self.current, self.tally
        known = not current.alternatives
        return Selection(
            policy=current.task.policy,
            index=self.family.index,
            samples=self.paid,
            certified=known and self.answered,
            answered=self.answered,
            values=self.family.values(tally.rows, tally.estimate()),
            delta=self.delta,
            settled=self._settled() if not self.answered else current.settled + len(current.alternatives),
            questions=current.settled + len(current.alternatives),
            counts=tally.counts(),
            reason="" if self.answered else reason or USED_UP,
            method=self.method.describe().replace("PTST", self.family.method, 1),
        )
