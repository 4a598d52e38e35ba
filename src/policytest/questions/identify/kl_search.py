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
(`policytest.kl.sampling_balanced`).

Paper: `app:extension`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.rows import Rows
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.kl.sampler import Source
from policytest.kl.sampling import Adaptive
from policytest.kl.sampling_balanced import balancing
from policytest.kl.witness import SMOOTHING, Target, WitnessedCounts, centring_error, check_listed, is_zero
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.kl_rules import FEW_STARTS, TROUBLE_GROWTH, KLQuestion, Look, Rule, found_distance
from policytest.methods.kl_run import KLRun
from policytest.methods.ptst import PTST
from policytest.methods.ptst_difference import check_settings, nearest_cut
from policytest.payoffs.coupling import joint_task
from policytest.payoffs.known_range import known_difference
from policytest.questions.identify.policies import (
    Search,
    by_pair,
    deviations,
    equal_shares,
    first_actions,
    fixed_shares,
    following,
    may_be_reached,
    never_pay,
    optimal_actions,
)
from policytest.results.selection import Selection, SelectionCheck
from policytest.worst_case.functional import Functional, deviation_of, difference_of, term_of, value_on
from policytest.worst_case.functional_solver import DifferenceSolver

NEAREST = 4  # alternatives that are looked at for new shares
FOUND = "found"


@dataclass(eq=False)
class KLCandidate:
    """One policy, its alternatives that are open, and what is known of each: a witness, and the last evidence."""

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
        self.sampled = self.matter[:, None] & task.layout.unknown_pairs
        self.kept: dict[bytes, KLCandidate] = {}
        self.actions = first_actions(task)

    def candidate(self, rows: Rows, q: FloatArray, only: IntArray) -> KLCandidate:
        """The optimal policy of a kernel."""
        self.actions, _ = optimal_actions(self.task, rows, q, self.actions)
        key = self.actions.tobytes()
        if key not in self.kept:
            self.kept[key] = self._candidate(rows, self.actions, only)
        return self.kept[key]

    def _candidate(self, rows: Rows, actions: IntArray, only: IntArray) -> KLCandidate:
        task = following(self.task, actions)
        centre = 0.5 * sum(value_range(task))
        rounding = 2.0 * (value_range_error(task) + centring_error(task, centre))
        centred = task.centred(centre)
        term = term_of(centred, rows)
        own = rows._replace(prob=term.prob, reward=term.reward, gain=term.gain)
        asked = deviations(self.task, actions, self.matter)
        known = asked & never_pay(centred, own, only, actions, rounding)
        row = by_pair(rows, np.arange(len(rows.pair)), task, -1)
        alternatives = [
            deviation_of(rows, task, term, int(row[s, actions[s]]), int(row[s, a]))
            for s, a in np.argwhere(asked & ~known)
        ]
        return KLCandidate(task, alternatives, int(known.sum()))

    def values(self, rows: Rows, q: FloatArray) -> FloatArray:
        """[S] of the optimal policy."""
        return optimal_actions(self.task, rows, q, self.actions)[1]


class Rivals:
    """Some policies: a candidate is best if no other one is better."""

    method = "PTST on the differences of policies"

    def __init__(self, tasks: list[Task]) -> None:
        self.tasks, self.task = tasks, joint_task(tasks)
        self.sampled: BoolArray = self.task.layout.unknown_pairs
        self.kept: dict[int, KLCandidate] = {}
        ranges = [value_range(task) for task in tasks]
        self.centre = 0.5 * (min(low for low, _ in ranges) + max(high for _, high in ranges))
        self.index: int | None = 0

    def candidate(self, rows: Rows, q: FloatArray, only: IntArray) -> KLCandidate:
        """The best of a kernel; the first of those that are as good."""
        self.index = int(np.argmax(self.values(rows, q)))
        if self.index not in self.kept:
            self.kept[self.index] = self._candidate(rows, self.index)
        return self.kept[self.index]

    def _candidate(self, rows: Rows, i: int) -> KLCandidate:
        task, alternatives, settled = self.tasks[i], [], 0
        for j, rival in enumerate(self.tasks):
            if j == i:
                continue
            known = known_difference(task, rival)
            equal = known.high - known.low <= known.error and abs(known.low) <= known.error
            if known.answer(0.0) == "above" or equal:
                settled += 1
            else:
                alternatives.append(difference_of(rows, task.centred(self.centre), rival.centred(self.centre)))
        return KLCandidate(task, alternatives, settled)

    def values(self, rows: Rows, q: FloatArray) -> FloatArray:
        """[K] from rho."""
        return np.array([value_on(rows, task).value(q) for task in self.tasks])


class KLSearch(Rule, Search):
    """PTST at work on alternatives: the rule of a run, which the search steps."""

    def __init__(self, family: Deviations | Rivals, method: PTST, sim: SimulatorLike, delta: float, rng: Seed) -> None:
        check_listed(family.task)
        tally = WitnessedCounts(family.task, 0.0, method.boundary, target=Target())
        super().__init__(KLQuestion(family.task, 0.0, tally, (-np.inf, np.inf)))
        solver = check_settings(method)
        self.family, self.delta, self.required, self.starts = family, delta, -math.log(delta), solver.starts
        self.current = self._best()
        self.source = Source(tally.task, sim, self._allocation(method.allocation), 0.0, rng, method.batch)
        self.method = replace(method, solver=solver)
        self.run = KLRun(self.method, self.source, self)

    @property
    def answered(self) -> bool:
        """Whether all alternatives are refuted."""
        return self.run.answer is not None

    @property
    def samples_used(self) -> int:
        """Those of the run."""
        return self.run.samples_used

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Sample until all alternatives are refuted."""
        run = self.run
        if not self.current.alternatives:
            run.look(self.required)
        yield self._check()
        while run.answer is None and run.samples_used < limit and self.family.sampled.any():
            run.step(self.required, limit - run.samples_used)
            if run.answer is None and self._best() is not self.current:
                run.look(self.required)
            yield self._check()

    def _allocation(self, given: object) -> object:
        even = equal_shares(self.family.sampled, self.tally.rows)
        if isinstance(given, Adaptive):
            return balancing(given, self._cut, even)
        return fixed_shares(given, even)

    def _best(self) -> KLCandidate:
        tally = self.tally
        return self.family.candidate(tally.rows, tally.estimate(), tally.only_successor)

    # ------------------------------------------------------------ the rule

    @property
    def first_look(self) -> int:
        """After one sample a pair."""
        return int(self.family.sampled.sum())

    def look(self, samples: int, required: float) -> Look:
        """The witness failed, or the candidate is another one: find a witness against it, or answer."""
        self.current = self._best()
        for search in (self._cheaply, self._carefully):
            for i in self.current.order():
                if not search(int(i), required):
                    return Look(None, self.pause(samples))
        return Look(FOUND)

    def pause(self, samples: int) -> float:
        """Where no witness stands, look again a little later."""
        return 0.0 if self.tally.witness_evidence() < self.required else TROUBLE_GROWTH * samples

    def _cheaply(self, i: int, required: float) -> bool:
        """Whether the witnesses at hand, and one descent, leave alternative i refuted."""
        tally, current = self.tally, self.current
        functional, kept = current.alternatives[i], current.witnesses.get(i)
        value = functional.value(tally.estimate())
        if value <= 0 or is_zero(functional, value):
            return self._refuted(i, tally.estimate(), required)
        if kept is not None and not self._refuted(i, kept, required):
            return False
        for share in SMOOTHING:
            found = tally.smoothed(functional, share, current.witnesses.get(i))
            if found is not None and not self._refuted(i, found, required):
                return False
        return self._solved(i, self.starts, required)

    def _carefully(self, i: int, required: float) -> bool:
        """Whether several descents, and the extreme over the ball, leave it refuted."""
        tally, functional = self.tally, self.current.alternatives[i]
        if not self._solved(i, FEW_STARTS, required):
            return False
        solver = DifferenceSolver(starts=FEW_STARTS)
        beyond = tally.across(1, required + tally.dimension(), solver, functional)
        if beyond.kernel is not None:
            self.current.evidence[i] = beyond.upper - tally.dimension()
        return beyond.kernel is None

    def _solved(self, i: int, starts: int, required: float) -> bool:
        """Whether the exact problem, from this many starts, puts alternative i beyond the boundary."""
        tally, dimension, functional = self.tally, self.tally.dimension(), self.current.alternatives[i]
        solver, warm = DifferenceSolver(starts=starts), self.current.witnesses.get(i)
        distance = tally.nearest(1, solver, required + dimension, functional, warm=warm)
        reached = found_distance(distance) - dimension
        self.current.evidence[i] = reached
        if distance.trail is not None and distance.upper - dimension < required:
            return self._refuted(i, distance.trail[1], required)
        return reached >= required

    def _refuted(self, i: int, witness: FloatArray, required: float) -> bool:
        """Put a kernel to the test: as the standing witness, if it has the evidence; else it is refuted."""
        tally, functional = self.tally, self.current.alternatives[i]
        if not is_zero(functional, functional.value(witness)):
            return False  # beyond 0, and near: not yet, but no witness for later
        tally.stand(witness, functional=functional)
        self.current.witnesses[i] = witness
        self.current.evidence[i] = tally.witness_evidence()
        return not tally.witness_evidence() < required

    # ------------------------------------------------------------ shares

    def _cut(self, entries: FloatArray, weights: FloatArray) -> FloatArray | None:
        """KL(p, q) row by row, of the nearest alternative q at these weights, among those that were near last."""
        tally, best, solver = self.tally, None, DifferenceSolver(tolerance=1e-6)
        current = self.family.candidate(tally.rows, entries, tally.only_successor)
        order = current.order()
        for i in order if not np.isfinite(current.evidence[order[:1]]).all() else order[:NEAREST]:
            functional = current.alternatives[int(i)]
            found = nearest_cut(tally, functional, entries, weights, solver) if functional.value(entries) > 0 else None
            best = found if found is not None and (best is None or found[0] < best[0]) else best
        return None if best is None else best[1]

    # ------------------------------------------------------------ what it can say

    def _settled(self) -> tuple[int, int]:
        """How many alternatives are settled, of how many."""
        known, refuted = self.current.settled, int((self.current.evidence >= self.required).sum())
        return known + refuted, known + len(self.current.alternatives)

    def _check(self) -> SelectionCheck:
        return SelectionCheck(self.samples_used, *self._settled(), self.required, self._about)

    def _about(self) -> tuple[float, float, tuple[float, float]]:
        """What the standing witness allows, and about the value of the candidate."""
        tally, task = self.tally, self.current.task
        allowed, value = tally.witness_evidence(), value_on(tally.rows, task).value(tally.estimate())
        return allowed if np.isfinite(allowed) else 0.0, value, value_range(task)

    def result(self, reason: str) -> Selection:
        """The candidate."""
        settled, questions = self._settled()
        return self.selected(
            self.current.task.policy,
            self.family.index,
            self.family.values(self.tally.rows, self.tally.estimate()),
            (questions if self.answered else settled, questions),
            self.method.describe().replace("PTST", self.family.method, 1),
            self.answered and not self.current.alternatives,
            reason,
        )
