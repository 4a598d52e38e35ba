r"""Branch and bound over occupancies: is there a kernel with V_q beyond R and loss(q) <= B?

The value is linear in the flows f = d q, and the loss is convex in them but for sum_s n_s log d(s): all that is not
convex lives in the S occupancies. So boxes of occupancies are excluded one by one, by the convex relaxation of
`policytest.worst_case.certificate`, whose dual is solved by Newton's method in S + K + 2 variables.

In every node the box is first tightened: how small, how large can d(s) be where the claim could fail? The answers for
all s share one curvature, that of the dual at its maximum without an aim, of which each is a first-order response,
corrected by a few Newton steps with that curvature. Where this stalls, each end is a maximisation of its own. If the
relaxation is then still below B, its own solution is tried as the start of a descent, which may refute the claim; and
the box is cut where the relaxation is loosest.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import dual, search
from policytest._base.rows import Rows
from policytest.worst_case.bracket import Bracket
from policytest.worst_case.certificate import CLOSED, LOWER, SPLIT, UPPER, Certificate, ProofStep, dual_bound
from policytest.worst_case.problem import InverseProblem
from policytest.worst_case.projection_free import ProjectionFree

STALLED, STUCK = 0.1, 0.04  # the last round of tightening gains less than these shares: of what is missing, of widths
FAR = 10.0  # lower ends are of no use before the upper one is within this factor of the occupancy found
FIRST_BARRIER, LAST_BARRIER = 1e3, 1e-3  # weights of the barriers, at most and at the end, as shares of the radius
NARROW_BARRIER = 0.03  # of what is missing a state: where the box is near the occupancy found, responses are sharp
SMALLEST_SPLIT = 1e-3  # a box that reaches down to 0 is cut no lower than at this share of its upper end


@dataclass
class _Node:
    """A box, dual variables to start from, a lower bound of the loss, the steps taken, and the parts after a cut."""

    low: FloatArray
    high: FloatArray
    theta: FloatArray
    bound: float
    steps: list[ProofStep] = field(default_factory=list)
    parts: tuple[_Node, ...] = ()


class ClaimSearch:
    """One claim: no kernel beyond R has loss <= radius. After `run`: a `proof`, or a `better` kernel, or neither."""

    def __init__(self, problem: InverseProblem, threshold: float, radius: float, found: Bracket) -> None:
        task, rows = problem.task, problem.rows
        self.problem, self.found = problem.nearest(problem.sign, threshold), found
        self.unit, N, n = problem.scaled  # a power of 2: what is proved in these units is proved
        N = np.where(rows.per_entry(np.diff(rows.start)) > 1, N, 0.0)  # known rows cost nothing
        n = rows.sums(N)
        self.claim = Certificate(
            rows,
            task.discount,
            np.array(task.initial),
            N,
            n,
            threshold,
            problem.sign,
            radius / self.unit,
            self.unit,
            (),
        )
        claim = self.claim
        self.S = task.n_states
        self.relaxation = dual.Relaxation(
            rows,
            claim.worth,
            claim.discount,
            claim.initial,
            claim.counts,
            claim.visits,
            claim.sign,
            *_touched(rows, self.S),
            abs(claim.threshold) * claim.looseness,
        )
        self.visits = np.bincount(rows.state, n, minlength=self.S)
        self.entries = rows.pick(found.kernel, self.S)
        self.values, self.occupancy, self.loss_by_state = self._about(self.entries)
        self.proof: Certificate | None = None
        self.better: Bracket | None = None

    def _about(self, entries: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
        """[S] values less R, occupancies and losses of a kernel."""
        claim, rows = self.claim, self.claim.rows
        V, d, _ = search.values_and_occupancy(rows, entries, claim.discount, self.problem.task.initial)
        losses = np.asarray(search.row_losses(rows.start, claim.counts, claim.visits, entries))
        by_state = np.bincount(rows.state, losses, minlength=self.S).astype(np.float64)
        return V - claim.threshold, np.maximum(d, 1e-12), by_state

    def _first_theta(self) -> FloatArray:
        """The multipliers of the local minimum: v = -sign lam V, and y from the rows, inside the domain of the dual."""
        claim, rows, V = self.claim, self.claim.rows, self.values
        price = self.found.multiplier if 0 < self.found.multiplier < np.inf else 1.0
        lam = 1.0 / (price * self.unit)
        prob = rows.per_entry(rows.prob)
        tilt = claim.sign * lam * prob * (claim.worth + claim.discount * V[rows.successor])
        flow = rows.per_entry(self.occupancy[rows.state]) * np.maximum(self.entries, 1e-12)
        wanted = np.where(claim.counts > 0, claim.counts / flow, 0.0) - tilt
        y = np.maximum.reduceat(wanted, rows.start[:-1])
        room = np.maximum.reduceat(-tilt, rows.start[:-1])
        spread = np.maximum.reduceat(np.abs(tilt), rows.start[:-1]) + 1e-9
        return np.concatenate([-claim.sign * lam * V, [lam, 1.0], np.maximum(y, room + 1e-3 * spread)])

    def run(self, max_nodes: int) -> float:
        """Search for the proof, the loosest box first; returns the lower bound of the loss that was reached."""
        root = _Node(*self.claim.first_box(), self._first_theta(), 0.0)
        open_nodes, nodes = [(0.0, 0, root)], 1
        while open_nodes and self.better is None and nodes <= max_nodes:
            _, _, node = heapq.heappop(open_nodes)
            if self._tighten(node):
                continue
            self._try_solution(node)
            self._split(node)
            for part in node.parts:
                nodes += 1
                heapq.heappush(open_nodes, (part.bound, nodes, part))
        if open_nodes:
            return self.unit * max(min(open_nodes[0][0], self.claim.level), 0.0)
        claim = replace(self.claim, steps=tuple(_depth_first(root)))
        self.proof = claim if self.better is None and claim.verify() else None
        return self.unit * claim.level if self.proof is not None else 0.0

    def _bound(self, low: FloatArray, high: FloatArray, theta: FloatArray) -> tuple[float, FloatArray, IntArray]:
        """The least loss that the relaxation allows on the box."""
        kind, radius, nothing = self._kinds(low, high), self.claim.level, np.zeros(self.S)
        short = radius - dual_bound(self.claim, low, high, kind, nothing, 0.0, theta)
        tau = min(max(short, 0.1 * radius), FIRST_BARRIER * radius) / self.S
        better = theta.copy()
        self._improve(dual.Box(low, high, kind, nothing, 0.0), better, False, (tau, LAST_BARRIER * radius / self.S))
        return dual_bound(self.claim, low, high, kind, nothing, 0.0, better), better, kind

    def _tighten(self, node: _Node) -> bool:
        """Shrink the box in place; whether nothing is left of it."""
        low, high, radius = node.low, node.high, self.claim.level
        gained, width, thorough = np.inf, np.inf, False
        for _ in range(30):
            bound, node.theta, kind = self._bound(low, high, node.theta)
            if bound > radius:
                excess = dual_bound(self.claim, low, high, kind, np.zeros(self.S), radius, node.theta)
                if excess > 1e-7 * radius:  # well above what rounding can do to the box
                    node.steps.append(ProofStep(CLOSED, 0, kind, node.theta, 0.999 * excess))
                    return True
            gained, node.bound = bound - node.bound, max(bound, node.bound)
            missing = max(radius - bound, 1e-4 * radius)
            before, width = width, float(_log_width(low, high).sum())
            stalled = gained < STALLED * missing and width > (1.0 - STUCK) * before
            if stalled and thorough:
                break
            thorough = stalled
            if not (self._move_each if thorough else self._respond)(node, kind, missing):
                return True
        return False

    def _respond(self, node: _Node, kind: IntArray, missing: float) -> bool:
        """Move the ends of the box by first-order responses, S^2 operations each; whether anything is left of it."""
        np.maximum(node.high, node.low * (1 + 1e-12) + 1e-300, out=node.high)  # of some width everywhere
        box, far = dual.Box(node.low, node.high, kind, np.zeros(self.S), self.claim.level), FAR * self.occupancy
        tau = (NARROW_BARRIER if (node.high <= far).all() else 1.0) * missing / self.S
        base, thetas = node.theta.copy(), np.empty((2 * self.S, len(node.theta)))
        bent = dual.maximise_dual(self.relaxation, box, False, tau, tau, base, 20)[2]
        moves = dual.tighten(self.relaxation, box, tau, base, bent, missing, far, thetas)
        for (is_upper, s, bound), theta in zip(moves, thetas, strict=False):
            node.steps.append(ProofStep(UPPER if is_upper else LOWER, s, kind, theta.copy(), bound))
        return bool((node.low <= node.high).all())

    def _move_each(self, node: _Node, kind: IntArray, missing: float) -> bool:
        """Move the ends of the box by a maximisation each, which reaches further; whether anything is left of it."""
        for s in range(self.S):
            for action in (UPPER, LOWER):
                if action == LOWER and node.high[s] > FAR * self.occupancy[s]:
                    continue
                if not self._move(node, s, action, kind, missing):
                    return False
        return True

    def _move(self, node: _Node, s: int, action: int, kind: IntArray, missing: float) -> bool:
        """Move one end of one side of the box; whether anything is left of the box."""
        low, high, radius = node.low, node.high, self.claim.level
        width = high[s] - low[s]
        if width <= 1e-9 * high[s]:
            return True
        aim = np.zeros(self.S)
        aim[s] = sense = 1.0 if action == LOWER else -1.0
        theta = node.theta * (width / missing)  # mu: how much d(s) may cost in nats
        self._improve(dual.Box(low, high, kind, aim, radius), theta, True, (0.1 * width, 3e-3 * width))
        bound = sense * dual_bound(self.claim, low, high, kind, aim, radius, theta)
        improved = bound - low[s] if action == LOWER else high[s] - bound
        if improved > 1e-3 * width:
            node.steps.append(ProofStep(action, s, kind, theta, float(bound)))
            (low if action == LOWER else high)[s] = bound
        return bool(low[s] <= high[s])

    def _solution(self, node: _Node) -> FloatArray:
        """[E] the kernel of the relaxation's solution: its flows, N mu/c up to a factor, row by row."""
        claim, rows, theta = self.claim, self.claim.rows, node.theta
        c = rows.per_entry(theta[self.S + 2 :]) + rows.per_entry(rows.prob) * (
            theta[self.S] * claim.sign * claim.worth - claim.discount * theta[rows.successor]
        )
        floor = 1e-9 * np.abs(c).max() + 1e-300
        flow = np.where(claim.counts > 0, theta[self.S + 1] * claim.counts, floor) / np.maximum(c, floor)
        return rows.to_one(flow)

    def _try_solution(self, node: _Node) -> None:
        """A descent from the relaxation's solution: does it end nearer than the claim allows?"""
        start = replace(self.found, trail=(self.problem.rows, self._solution(node)))
        other = ProjectionFree().nearest(self.problem, start)
        if other.kernel is not None and other.upper <= self.unit * self.claim.level:
            self.better = other

    def _split(self, node: _Node) -> None:
        """Cut where the relaxation is loosest, at its own solution if that is well inside."""
        low, high = node.low, np.maximum(node.high, 1e-300)  # 0 where a state is out of reach
        _, d, loss = self._about(self._solution(node))
        bottom = np.maximum(low, SMALLEST_SPLIT * high)
        inside = np.clip(d, bottom, high)
        chord = np.log(bottom) + np.log(high / bottom) * (inside - bottom) / np.maximum(high - bottom, 1e-300)
        is_chord = self._kinds(low, high) == dual.CHORD
        loss = np.minimum(loss, 1e300)  # infinite where the maximisation failed
        short = np.where(is_chord, self.visits * (np.log(inside) - chord), loss * (1.0 - inside / high))
        short = np.where(high > low * (1.0 + 1e-9), short + 1e-12 * _log_width(low, high), -np.inf)
        s = int(np.argmax(short))
        cut = float(np.clip(d[s], bottom[s] ** 0.7 * high[s] ** 0.3, bottom[s] ** 0.3 * high[s] ** 0.7))
        cut = cut if low[s] < cut < high[s] else 0.5 * (low[s] + high[s])
        node.steps.append(ProofStep(SPLIT, s, np.zeros(0, dtype=np.int64), np.zeros(0), cut))
        above, below = low.copy(), node.high.copy()
        above[s] = below[s] = cut
        node.parts = (
            _Node(low.copy(), below, node.theta, node.bound),
            _Node(above, node.high.copy(), node.theta, node.bound),
        )

    def _kinds(self, low: FloatArray, high: FloatArray) -> IntArray:
        """The better relaxation of each state, by what each loses on a box of this width.

        A chord falls short of log by at most log((e^w - 1)/w) - 1 + w/(e^w - 1), between l and u = l e^w; a perspective
        loses a share (1 - e^-w)/2 of the loss where d is half-way.
        """
        width = np.maximum(_log_width(low, high), 1e-6)
        chord = np.log(np.expm1(width) / width) - 1.0 + width / np.expm1(width)
        better = (low > 0) & (self.visits * chord < -0.5 * self.loss_by_state * np.expm1(-width))
        return np.where(better, dual.CHORD, dual.PERSPECTIVE).astype(np.int64)

    def _improve(self, box: dual.Box, theta: FloatArray, free_mu: bool, barriers: tuple[float, float]) -> None:
        """Improve theta by Newton's method, with barriers that fade from the first weight to the last."""
        wide = box._replace(high=np.maximum(box.high, box.low * (1 + 1e-12) + 1e-300))  # of some width everywhere
        dual.maximise_dual(self.relaxation, wide, free_mu, *barriers, theta, 200)


def _touched(rows: Rows, S: int) -> tuple[IntArray, IntArray, IntArray, IntArray]:
    """Of each state, itself and its successors in increasing order: starts, states, places of entries and of itself."""
    keys = np.concatenate([rows.per_entry(rows.state) * S + rows.successor, np.arange(S) * (S + 1)])
    both, place = np.unique(keys, return_inverse=True)
    start = np.searchsorted(both, np.arange(S + 1) * S)
    return start, both % S, place[: rows.n_entries], place[rows.n_entries :]


def _depth_first(root: _Node) -> list[ProofStep]:
    """The steps of the tree in the order in which they are checked."""
    steps, waiting = [], [root]
    while waiting:
        node = waiting.pop()
        steps += node.steps
        waiting += reversed(node.parts)
    return steps


def _log_width(low: FloatArray, high: FloatArray) -> FloatArray:
    top = np.maximum(high, 1e-300)  # 0 where a state is out of reach
    return np.asarray(np.log(top / np.maximum(low, SMALLEST_SPLIT * 1e-3 * top)))
