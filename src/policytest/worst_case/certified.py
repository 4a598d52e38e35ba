r"""A global method with a proof: branch and bound over occupancies.

The value is linear in the flows f = d q, and the loss is convex in them but for sum_s n_s log d(s): all that is not
convex lives in the S occupancies. So boxes of occupancies are excluded one by one, by the convex relaxation of
`policytest.worst_case.certificate`, whose dual is solved by Newton's method in S + K + 2 variables.

Both problems ask the same: is there a kernel with V_q beyond R and loss(q) <= B? The upper end comes from
`ProjectionFree`. For the lower end the claim is proved with B (or R) a relative `gap` short of it. In every node the
box is first tightened: how small, how large can d(s) be where the claim could fail? If the relaxation is then still
below B, the widest box is cut. Running out of nodes leaves a weaker bound, never a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from policytest import _checks, _kernels
from policytest._checks import FloatArray, IntArray
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.certificate import CLOSED, LOWER, SPLIT, UPPER, Certificate, Step, dual_bound
from policytest.worst_case.problem import Extreme, Nearest, Problem
from policytest.worst_case.projection_free import ProjectionFree

STALLED = 0.9  # a round of tightening that leaves more than this share of the widths is the last one of its node
SMALLEST_SPLIT = 1e-3  # a box that reaches down to 0 is cut at this share of its upper end


@dataclass(frozen=True)
class Certified:
    """Both ends proved, or an honest account of how far the proof got.

    Parameters
    ----------
    gap
        Relative: of the distance, or of the way from the centre's value to the extreme one.
    max_nodes
        Limit on the boxes examined; a number, not a time, so that results do not depend on the machine.
    starts
        Of the local search that gives the upper end.
    """

    proves: ClassVar[bool] = True

    gap: float = 0.01
    max_nodes: int = 1000
    starts: int = 8

    def __post_init__(self) -> None:
        _checks.positive(gap=self.gap, max_nodes=self.max_nodes, starts=self.starts)

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """The least loss beyond the threshold, with a proved lower end."""
        problem.must_be_closed()
        found = ProjectionFree(starts=self.starts).nearest(problem, warm)
        if found.certified or found.kernel is None:
            return found
        level = (1.0 - self.gap) * found.upper
        if level < problem.enough < np.inf:  # not enough, or too close to it to be proved at this gap
            return replace(found, status=Status.LOOSE if found.status is Status.CONVERGED else found.status)
        level = min(level, (1.0 + 1e-9) * problem.enough)
        proof, lower = _Search(problem, problem.sign, problem.threshold, level, found).run(self.max_nodes)
        status = Status.PROVED if proof is not None else Status.LOOSE
        return replace(
            found,
            lower=max(lower - _off_by(problem), 0.0),
            status=status,
            certified=proof is not None,
            certificate=proof,
        )

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """The extreme value over the ball, with a proved outer end."""
        problem.must_be_closed()
        found = ProjectionFree(starts=self.starts).extreme(problem, warm)
        if found.certified or found.kernel is None:
            return found
        sign, centre = problem.sign, problem.value(problem.p)
        value = found.upper if sign > 0 else found.lower
        beyond = value - sign * self.gap * abs(centre - value)
        radius = problem.radius + _off_by(problem)
        proof, _ = _Search(problem, sign, beyond, radius, found).run(self.max_nodes)
        if proof is None:
            return replace(found, status=Status.LOOSE)
        ends = (beyond, value) if sign > 0 else (value, beyond)
        return replace(found, lower=ends[0], upper=ends[1], status=Status.PROVED, certified=True, certificate=proof)


class _Search:
    """One claim: no kernel beyond R has loss <= level."""

    def __init__(self, problem: Problem, sign: float, threshold: float, level: float, found: Bracket) -> None:
        task, rows = problem.task, problem.rows
        self.unit, N, n = problem.scaled  # a power of 2: what is proved in these units is proved
        N = np.where(rows.per_entry(np.diff(rows.start)) > 1, N, 0.0)  # known rows cost nothing
        n = rows.sums(N)
        self.claim = Certificate(
            rows, task.discount, np.array(task.initial), N, n, threshold, sign, level / self.unit, self.unit, ()
        )
        claim = self.claim
        self.relaxation = _kernels.Relaxation(
            rows, claim.worth, claim.discount, claim.initial, claim.counts, claim.visits, claim.sign
        )
        entries = rows.pick(found.kernel, task.n_states)
        V, d, _ = _kernels.values_and_occupancy(rows, entries, task.discount, task.initial)
        self.S = task.n_states
        self.loss_by_state = np.bincount(
            rows.state, np.asarray(_kernels.row_losses(rows.start, N, n, entries)), minlength=self.S
        )
        self.visits = np.bincount(rows.state, n, minlength=self.S)
        self.theta = self._first_theta(entries, V - threshold, d, found)
        self.steps: list[Step] = []
        self.nodes = 0

    def _first_theta(self, entries: FloatArray, V: FloatArray, d: FloatArray, found: Bracket) -> FloatArray:
        """The multipliers of the local minimum: v = -sign lam V, and y from the rows, inside the domain of the dual."""
        claim, rows = self.claim, self.claim.rows
        price = found.multiplier if 0 < found.multiplier < np.inf else 1.0
        lam = 1.0 / (price * self.unit)
        prob = rows.per_entry(rows.prob)
        tilt = claim.sign * lam * prob * (claim.worth + claim.discount * V[rows.successor])
        flow = rows.per_entry(np.maximum(d[rows.state], 1e-12)) * np.maximum(entries, 1e-12)
        wanted = np.where(claim.counts > 0, claim.counts / flow, 0.0) - tilt
        y = np.maximum.reduceat(wanted, rows.start[:-1])
        room = np.maximum.reduceat(-tilt, rows.start[:-1])
        spread = np.maximum.reduceat(np.abs(tilt), rows.start[:-1]) + 1e-9
        return np.concatenate([-claim.sign * lam * V, [lam, 1.0], np.maximum(y, room + 1e-3 * spread)])

    def run(self, max_nodes: int) -> tuple[Certificate | None, float]:
        """The proof, and the lower bound of the loss that was reached with it or without."""
        open_boxes: list[Any] = [(*self.claim.first_box(), self.theta)]
        reached = self.claim.level
        while open_boxes:
            low, high, theta = open_boxes.pop()
            if self.nodes >= max_nodes:
                return None, self.unit * min(
                    reached, *(self._bound(*box)[0] for box in [*open_boxes, (low, high, theta)])
                )
            self.nodes += 1
            closed, theta = self._tighten(low, high, theta)
            if not closed:
                self._split(low, high, theta, open_boxes)
        claim = replace(self.claim, steps=tuple(self.steps))
        return (claim, self.unit * reached) if claim.verify() else (None, 0.0)

    def _bound(self, low: FloatArray, high: FloatArray, theta: FloatArray) -> tuple[float, FloatArray, IntArray]:
        """The least loss that the relaxation allows on the box."""
        kind, level = self._kinds(low, high), self.claim.level
        tau = 0.1 * level / self.S
        better = self._improve(low, high, kind, np.zeros(self.S), 0.0, theta, False, tau, 1e-2 * tau)
        return dual_bound(self.claim, low, high, kind, np.zeros(self.S), 0.0, better), better, kind

    def _tighten(self, low: FloatArray, high: FloatArray, theta: FloatArray) -> tuple[bool, FloatArray]:
        """Shrink the box in place; whether nothing is left of it."""
        for _ in range(30):
            bound, theta, kind = self._bound(low, high, theta)
            if bound > self.claim.level and (excess := self._excess(low, high, kind, theta)) > 0:
                self.steps.append(Step(CLOSED, 0, kind, theta, excess))
                return True, theta
            before = _log_width(low, high).sum()
            missing = max(self.claim.level - bound, 0.05 * self.claim.level)
            for s in range(self.S):
                for action, direction in ((LOWER, 1.0), (UPPER, -1.0)):
                    if not self._move(low, high, s, action, direction, kind, theta, missing):
                        return True, theta
            if _log_width(low, high).sum() > STALLED * before:
                break
        return False, theta

    def _excess(self, low: FloatArray, high: FloatArray, kind: IntArray, theta: FloatArray) -> float:
        """By how much the loss exceeds the level all over the box."""
        return dual_bound(self.claim, low, high, kind, np.zeros(self.S), self.claim.level, theta)

    def _move(
        self, low: FloatArray, high: FloatArray, s: int, action: int, direction: float, kind: IntArray,
        theta: FloatArray, missing: float,
    ) -> bool:  # fmt: skip
        """Move one end of one side of the box; whether anything is left of the box."""
        width = high[s] - low[s]
        if width <= 1e-9 * high[s]:
            return True
        aim = np.zeros(self.S)
        aim[s] = direction
        start = theta * (width / missing)  # mu: how much d(s) may cost in nats
        better = self._improve(low, high, kind, aim, self.claim.level, start, True, 0.1 * width, 3e-3 * width)
        bound = direction * dual_bound(self.claim, low, high, kind, aim, self.claim.level, better)
        improved = bound - low[s] if action == LOWER else high[s] - bound
        if improved > 1e-3 * width:
            self.steps.append(Step(action, s, kind, better, float(bound)))
            if action == LOWER:
                low[s] = bound
            else:
                high[s] = bound
        return bool(low[s] <= high[s])

    def _split(self, low: FloatArray, high: FloatArray, theta: FloatArray, open_boxes: list[Any]) -> None:
        """Cut the widest side, in the logarithm, where loss is at stake."""
        s = int(np.argmax(_log_width(low, high) * np.sqrt(self.loss_by_state + 1e-9 * self.claim.level)))
        cut = float(np.sqrt(low[s] * high[s])) if low[s] > SMALLEST_SPLIT * high[s] else SMALLEST_SPLIT * high[s]
        if low[s] >= cut:
            cut = 0.5 * (low[s] + high[s])
        self.steps.append(Step(SPLIT, s, np.zeros(0, dtype=np.int64), np.zeros(0), cut))
        above, below = low.copy(), high.copy()
        above[s] = below[s] = cut
        open_boxes += [(above, high.copy(), theta), (low.copy(), below, theta)]

    def _kinds(self, low: FloatArray, high: FloatArray) -> IntArray:
        """The better relaxation of each state: a chord of width w loses n w^2/8 nats, a perspective w/2 of the loss."""
        width = _log_width(low, high)
        chord = (low > 0) & (self.visits * width / 4.0 < self.loss_by_state)
        return np.where(chord, _kernels.CHORD, _kernels.PERSPECTIVE).astype(np.int64)

    def _improve(
        self, low: FloatArray, high: FloatArray, kind: IntArray, aim: FloatArray, level: float, theta: FloatArray,
        free_mu: bool, tau: float, last_tau: float,
    ) -> FloatArray:  # fmt: skip
        better = theta.copy()
        box = _kernels.Box(low, np.maximum(high, low * (1 + 1e-12) + 1e-300), kind, aim, level)
        _kernels.maximise_dual(self.relaxation, box, free_mu, tau, last_tau, better, 200)
        return better


def _off_by(problem: Problem) -> float:
    """What it can mean for a loss that rows of the centre sum to 1 only up to a rounding."""
    return 3.0 * float(np.abs(problem.rows.sums(problem.N) - problem.n).sum())


def _log_width(low: FloatArray, high: FloatArray) -> FloatArray:
    return np.log(high / np.maximum(low, SMALLEST_SPLIT * 1e-3 * high))
