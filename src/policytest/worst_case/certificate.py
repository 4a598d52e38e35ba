r"""A proof that no kernel of a small loss lies beyond a threshold, and its check, independent of whoever found it.

The claim: no kernel q with sign (V_q - R) <= 0 has loss(q) <= B. In terms of occupancies d(s) and flows
f(s,a,x) = d(s) q(x|s,a) the value is linear and the loss is sum_s n_s log d(s) - sum N log f + const. The proof is a
tree of boxes l <= d <= u. Each step of a node is one vector of dual variables theta = (v [S], lam, mu, y [K]); from it
a closed formula gives a bound that holds for every (d, f) in the box:

- *lower* or *upper*: d(s) is at least, or at most, so much wherever the claim could fail. The box shrinks.
- *closed*: the loss exceeds B all over the box. The node is done.
- *split*: the box is cut at one value of one d(s); both parts follow.

`Certificate.verify` evaluates these formulas in plain NumPy, with rounding subtracted, and uses nothing of the solver.
A certificate whose numbers were changed proves something else, or nothing.

For a state s with box [l, u] the loss of its rows is bounded below, convexly in (d, f), in one of two ways:

    perspective:  sum_k (d/u) sum_x N log(p d/f)                  since d <= u,
    chord:        n_s chord(d) + sum_x N log(p/f)                 since log d >= chord(d), linear between l and u.

With c = y_k + pi_k (lam sign r - gamma v(x)), minimising the Lagrangian over f gives, for each seen successor,
mu N (1 + log(c/(mu n))) (chord) or mu N (d/u) (1 + log(u c/(mu n))) (perspective), and what remains is linear in d: its
smallest value is at an end of the box.
"""

from __future__ import annotations

import math
import os
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray, Kernel
from policytest._base.compiled.dual import CHORD, PERSPECTIVE
from policytest._base.errors import InputError
from policytest._base.files import read_arrays, write_arrays
from policytest._base.rows import Rows
from policytest.mdp.task import Task

LOWER, UPPER, CLOSED, SPLIT = 0, 1, 2, 3
FORMAT = "policytest-certificate-1"
TINY = 1e-200  # nothing smaller is trusted
SLACK = 1e-9  # by which the effect of a step, computed on another machine, may fall short of what is stated


@dataclass(frozen=True)
class ProofStep:
    """One step of a node: what it does, to which state, with which relaxation [S] and dual variables, to what effect.

    ``bound`` is the new end of d(s), or by how much the loss exceeds the level (with mu = 1), or the place of the cut.
    """

    action: int
    state: int
    kind: IntArray
    theta: FloatArray
    bound: float


class Listed(NamedTuple):
    """Of each entry [E]: its row, its state, c by lam and by v, whether it was seen; N and n of those seen; n_s [S]."""

    row: IntArray
    state: IntArray
    push: FloatArray
    flow: FloatArray
    seen: BoolArray
    N: FloatArray
    n: FloatArray
    visits: FloatArray


@dataclass(frozen=True, eq=False)
class Certificate:
    """The claim, all it speaks about, and the steps, depth first: the part below a cut comes before the part above.

    Attributes
    ----------
    rows, discount, initial
        The task: pairs with pi > 0, their allowed successors and rewards.
    counts, visits
        N [E] and n [K], the weighted centre and its weights.
    threshold, sign, level
        R; 1 where the centre is above it and -1 where it is below; B.
    unit
        The unit of counts, visits and level, a power of 2.
    """

    rows: Rows = field(repr=False)
    discount: float
    initial: FloatArray = field(repr=False)
    counts: FloatArray = field(repr=False)
    visits: FloatArray = field(repr=False)
    threshold: float
    sign: float
    level: float
    unit: float
    steps: tuple[ProofStep, ...] = field(repr=False)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the certificate to an NPZ file, without pickles; it appears complete or not at all."""
        steps = self.steps
        write_arrays(
            path,
            format=FORMAT,
            numbers=np.array([self.discount, self.threshold, self.sign, self.level, self.unit]),
            initial=self.initial,
            counts=self.counts,
            visits=self.visits,
            **{f"rows_{name}": part for name, part in self.rows._asdict().items()},
            actions=np.array([[step.action, step.state] for step in steps], dtype=np.int64).reshape(-1, 2),
            bounds=np.array([step.bound for step in steps]),
            kinds=np.array([step.kind for step in steps if step.action != SPLIT], dtype=np.int8),
            thetas=np.array([step.theta for step in steps if step.action != SPLIT]),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Certificate:
        """Read what `save` wrote. Reading proves nothing; `verify` does."""
        try:
            file = read_arrays(path)
            if str(file["format"]) != FORMAT:
                raise ValueError("another format")
            rows = Rows(**{name: file[f"rows_{name}"] for name in Rows._fields})
            duals = iter(zip(file["kinds"].astype(np.int64), file["thetas"], strict=True))
            steps = []
            for (action, state), bound in zip(file["actions"], file["bounds"], strict=True):
                kind, theta = (np.zeros(0, dtype=np.int64), np.zeros(0)) if action == SPLIT else next(duals)
                steps.append(ProofStep(int(action), int(state), kind, theta, float(bound)))
            discount, threshold, sign, level, unit = (float(number) for number in file["numbers"])
            parts = file["initial"], file["counts"], file["visits"]
            return cls(rows, discount, *parts, threshold, sign, level, unit, tuple(steps))
        except FileNotFoundError:
            raise InputError(f"{path}: there is no such file") from None
        except OSError as error:
            raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None
        except Exception as error:  # whatever a damaged archive makes its reader do
            raise InputError(f"{path} is damaged or not a certificate ({type(error).__name__})") from None

    @property
    def nats(self) -> float:
        """B in nats: no kernel beyond the threshold has a smaller loss."""
        return self.level * self.unit

    def about(self, task: Task, counts: Kernel, threshold: float) -> bool:
        """Whether the claim is about this task, these counts N (dense or CSR) and this threshold.

        Rewards are compared less (1-gamma) R, as a test states its claim, and up to rounding; all else exactly.
        """
        S, A, rows = task.n_states, task.n_actions, task.layout.rows
        if len(self.initial) != S or not self._makes_sense() or counts.shape not in ((S, A, S), (S * A, S)):
            return False
        try:
            task.check_support("counts", counts)
        except InputError:
            return False
        shift = (1.0 - task.discount) * threshold
        N = np.where(rows.per_entry(np.diff(rows.start)) > 1, rows.pick(counts, S), 0.0)  # known rows cost nothing
        names = ("pair", "state", "prob", "start", "successor")
        same = [(getattr(self.rows, name), getattr(rows, name)) for name in names]
        return bool(
            all(np.array_equal(mine, other) for mine, other in [*same, (self.initial, task.initial)])
            and self.discount == task.discount
            and np.allclose(self.unit * self.counts, N, rtol=1e-14, atol=0.0)
            and np.allclose(self.worth, rows.rewards() - shift, rtol=1e-14, atol=1e-14 * abs(shift))
        )

    @cached_property
    def worth(self) -> FloatArray:
        """[E] rewards less (1-gamma) R: over flows they sum to V - R."""
        return self.rows._replace(reward=self.rows.reward - (1.0 - self.discount) * self.threshold).rewards()

    @cached_property
    def listed(self) -> Listed:
        """What `dual_bound` needs of every entry."""
        rows, seen = self.rows, self.counts > 0
        prob, row = rows.per_entry(rows.prob), rows.per_entry(np.arange(len(self.visits)))
        return Listed(
            row,
            rows.state[row],
            prob * self.sign * self.worth,
            -prob * self.discount,
            seen,
            self.counts[seen],
            self.visits[row][seen],
            np.bincount(rows.state, self.visits, minlength=len(self.initial)).astype(np.float64),
        )

    @cached_property
    def looseness(self) -> float:
        """How far (1-gamma) sum_sa d(s) pi(a|s) can be from 1, where rows of pi or rho are off by a rounding."""
        return 4.0 * self._off() / (1.0 - self.discount) + 1e-15 / (1.0 - self.discount)

    def _off(self) -> float:
        """The largest distance of a row sum of pi, or of the sum of rho, from 1; sums are exact."""
        rows = [self.rows.prob[self.rows.state == s] for s in range(len(self.initial))]
        return max(abs(math.fsum(row) - 1.0) for row in [*rows, self.initial]) + 1e-16

    def first_box(self) -> tuple[FloatArray, FloatArray]:
        """No occupancy is outside of it: rho <= d <= rho + gamma/(1-gamma). It has some width even where gamma is 0."""
        most = (1.0 + self.looseness) * self.discount / (1.0 - self.discount)
        return self.initial.copy(), np.maximum((self.initial + most) * (1.0 + 1e-12), 1.000001 * self.initial + 1e-6)

    def verify(self) -> bool:
        """Whether the claim makes sense and the steps prove it."""
        try:
            return self._makes_sense() and self._proved()
        except (ValueError, IndexError, TypeError, AttributeError, ArithmeticError):  # not even of the right shape
            return False

    def _makes_sense(self) -> bool:
        """Whether these are rows, counts and numbers of some task."""
        rows, S, K, E = self.rows, len(self.initial), len(self.visits), len(self.counts)
        parts = (rows.prob, rows.reward, rows.gain, self.initial, self.counts, self.visits)
        numbers = np.array([self.discount, self.threshold, self.level, self.unit])
        return bool(
            all(part.dtype == np.float64 and np.isfinite(part).all() for part in (*parts, numbers))
            and 0 <= self.discount < 1
            and self.sign in (1.0, -1.0)
            and self.level >= 0
            and self.unit > 0
            and all(len(part) == K for part in (rows.state, rows.prob, rows.reward))
            and len(rows.start) == K + 1
            and rows.start[0] == 0
            and rows.start[-1] == len(rows.successor) == E
            and len(rows.gain) in (0, E)
            and (np.diff(rows.start) > 0).all()
            and ((rows.state >= 0) & (rows.state < S)).all()
            and ((rows.successor >= 0) & (rows.successor < S)).all()
            and (rows.prob > 0).all()
            and (self.initial >= 0).all()
            and (self.counts >= 0).all()
            and np.allclose(rows.sums(self.counts), self.visits, rtol=1e-14, atol=0.0)
            and (len(rows.gain) == 0 or not rows.reward.any())
            and self.discount * self._off() <= 0.5 * (1.0 - self.discount)
            and all(type(step.state) is int and 0 <= step.state < S for step in self.steps)
            and all(type(step.action) is int and step.action in (LOWER, UPPER, CLOSED, SPLIT) for step in self.steps)
            and all(np.isin(kind, (CHORD, PERSPECTIVE)).all() for kind in self._kinds())
            and all(len(step.kind) == S for step in self.steps if step.action != SPLIT)
        )

    def _kinds(self) -> list[IntArray]:
        """The relaxations of all steps, each once: steps of one round share theirs."""
        return list({id(step.kind): step.kind for step in self.steps}.values())

    def _proved(self) -> bool:
        open_boxes = [self.first_box()]
        for step in self.steps:
            if not open_boxes:
                return False
            low, high = open_boxes.pop()
            s = step.state
            if step.action == SPLIT:
                if not low[s] < step.bound < high[s]:
                    return False
                above, below = low.copy(), high.copy()
                above[s] = below[s] = step.bound
                open_boxes += [(above, high), (low, below)]
                continue
            aim = np.zeros(len(low))
            if step.action in (LOWER, UPPER):
                aim[s] = 1.0 if step.action == LOWER else -1.0
            bound = dual_bound(self, low, high, step.kind, aim, self.level, step.theta)
            stated = -step.bound if step.action == UPPER else step.bound
            if not bound >= stated - SLACK * abs(stated):
                return False
            if step.action == CLOSED:
                if not bound > 0.0:
                    return False
                continue
            if step.action == LOWER:
                low = np.where(aim != 0.0, np.maximum(low, bound), low)
            else:
                high = np.where(aim != 0.0, np.minimum(high, -bound), high)
            if (low <= high).all():  # otherwise nothing is left of the box
                open_boxes.append((low, high))
        return not open_boxes


def dual_bound(
    claim: Certificate, low: FloatArray, high: FloatArray, kind: IntArray, aim: FloatArray, radius: float, theta: object
) -> float:
    """`_dual_bound`, where it is a number."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        bound = _dual_bound(claim, low, high, kind, aim, radius, theta)
    return bound if np.isfinite(bound) else -np.inf


def _dual_bound(
    claim: Certificate, low: FloatArray, high: FloatArray, kind: IntArray, aim: FloatArray, radius: float, theta: object
) -> float:
    """A lower bound of aim.d + mu (loss - radius) over the box, on the other side of the threshold.

    Rounding is bounded term by term: each has a relative error of a few units in the last place, and the cancellation
    in c is magnified by N/c. The search has a compiled twin, in `policytest._base.compiled.dual`.
    """
    rows, N, n, S, at = claim.rows, claim.counts, claim.visits, len(claim.initial), claim.listed
    theta = np.asarray(theta, dtype=np.float64)
    if theta.shape != (S + 2 + len(n),) or not np.isfinite(theta).all() or not (theta[S : S + 2] >= 0).all():
        return -np.inf
    v, lam, mu, y = theta[:S], float(theta[S]), float(theta[S + 1]), theta[S + 2 :]
    chord = np.asarray(kind) == CHORD
    if (chord & (low <= 0)).any():
        return -np.inf
    own, push, flow = y[at.row], lam * at.push, at.flow * v[rows.successor]
    c, slip = own + push + flow, 1e-15 * (np.abs(own) + np.abs(push) + np.abs(flow))
    error = float((high[at.state] * np.maximum(slip - c, 0.0))[~at.seen].sum())
    state, c, slip = at.state[at.seen], c[at.seen], slip[at.seen]
    if not (c > 2.0 * slip).all():
        return -np.inf
    if mu > 0 and len(c) and min(mu * at.N.min(), c.min()) < TINY:  # margins must not underflow
        return -np.inf

    on_chord = chord[state]
    scale = np.where(on_chord, 1.0, high[state])
    weight = mu * at.N / scale
    height = np.log(scale * c / (mu * at.n)) if mu > 0 else np.zeros(len(c))
    term, spread, slack = weight * (1.0 + height), weight * (2.0 + np.abs(height)), weight * 2.0 * slip / c
    coefficient = aim + v - np.bincount(rows.state, y, minlength=S)
    size = np.abs(aim) + np.abs(v) + np.bincount(rows.state, np.abs(y), minlength=S)
    total = -mu * radius - float(v @ claim.initial)
    mass = mu * abs(radius) + float(np.abs(v) @ claim.initial)
    if chord.any():
        left, right, visits = low[chord], high[chord], mu * at.visits[chord]
        wide = right > left
        slope = np.where(wide, np.log(right / left) / np.where(wide, right - left, 1.0), 1.0 / left)
        coefficient[chord] += visits * slope
        size[chord] += visits * slope
        total += float((visits * (np.log(left) - slope * left)).sum()) + float(term[on_chord].sum())
        mass += float((visits * (np.abs(np.log(left)) + slope * left)).sum()) + float(spread[on_chord].sum())
        error += float(slack[on_chord].sum())
        state, term, spread, slack = (part[~on_chord] for part in (state, term, spread, slack))
    coefficient += np.bincount(state, term, minlength=S)
    size += np.bincount(state, spread, minlength=S)
    total += float((coefficient * np.where(coefficient >= 0, low, high)).sum())
    mass += float((size * high).sum())
    error += lam * abs(claim.threshold) * claim.looseness + float(slack @ high[state])
    return total - error - 4e-16 * (20.0 + len(N) + 2 * len(n) + 2 * S) * mass - TINY
