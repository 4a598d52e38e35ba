"""The two inverse problems of section 5.2, checked once and laid out row by row for the solvers.

With loss(q) = sum_sa w_sa KL(p_sa, q_sa) over pairs with pi(a|s) > 0 and declared supports,

    (NO)  extreme value:   min or max of V_q over loss(q) <= B,
    (NC)  nearest kernel:  min of loss(q) over kernels q with V_q on the other side of R.

The paper writes both with the product V_p V_q and threshold 0; here the value is compared with R directly, so
that tolerances are in units of value. `sign` is +1 when the value is pushed down and -1 when it is pushed up. In the
place of the value may stand any `Functional` of the kernel.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol, Self, runtime_checkable

import numpy as np

from policytest._base.arrays import FloatArray, IntArray, Kernel
from policytest._base.compiled import search
from policytest._base.errors import InputError, check_precision
from policytest._base.rows import Rows
from policytest.mdp.horizon import SERVED
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.worst_case.ball import check_weights
from policytest.worst_case.bracket import Bracket
from policytest.worst_case.functional import Functional, value_of_policy


@dataclass(frozen=True, eq=False)
class InverseProblem:
    """A centre with weights, in the row layout: entries p [E], weights n [K], weighted centre N = n p [E].

    ``functional`` is what is pushed down or up; None: the value of the task's policy.
    """

    task: Task
    centre: Kernel
    rows: Rows
    p: FloatArray
    n: FloatArray
    is_open: bool
    sign: float = 1.0
    functional: Functional | None = None

    @cached_property
    def N(self) -> FloatArray:  # noqa: N802
        """[E] n_sa p(x|s,a): the weighted centre; counts, if the weights are numbers of samples."""
        return np.asarray(self.p * self.rows.per_entry(self.n))

    @cached_property
    def scaled(self) -> tuple[float, FloatArray, FloatArray]:
        """(unit, N/unit, n/unit) with the largest weight about 1; a power of 2, so exact: units do not matter."""
        unit = math.ldexp(1.0, math.frexp(float(self.n.max()))[1])
        return unit, self.N / unit, self.n / unit

    @cached_property
    def pushed(self) -> Functional:
        """What is pushed down or up."""
        return value_of_policy(self.task, self.rows) if self.functional is None else self.functional

    def value(self, entries: FloatArray) -> float:
        """V_q(rho), or the functional, of a kernel given by its entries."""
        if self.functional is not None:
            return self.functional.value(entries)
        values, _, error = search.values_and_occupancy(self.rows, entries, self.task.discount, self.task.initial)
        check_precision(error)
        return float(self.task.initial @ values)

    def value_gradient(self, entries: FloatArray) -> FloatArray:
        """[E] dV_q/dq(x|s,a) = d_q(s,a) (r(s,a,x) + gamma V_q(x)). Paper: `eq:PG2`."""
        task, rows = self.task, self.rows
        values, occupancy, _ = search.values_and_occupancy(rows, entries, task.discount, task.initial)
        worth = rows.rewards() + task.discount * values[rows.successor]
        return np.asarray(rows.per_entry(occupancy[rows.state] * rows.prob) * worth)

    def must_be_closed(self) -> None:
        """Refuse open rows, for solvers that need every successor listed."""
        if self.is_open:
            raise InputError("centre is sparse while any state may follow any pair; declare the task's support")

    def row_losses(self, entries: FloatArray) -> FloatArray:
        """[K] w_sa KL(p_sa, q_sa)."""
        return np.asarray(search.row_losses(self.rows.start, self.N, self.n, entries))

    def loss(self, entries: FloatArray) -> float:
        """The weighted KL from the centre."""
        return float(self.row_losses(entries).sum())

    def kernel(self, entries: FloatArray) -> Kernel:
        """The kernel with these entries, in the centre's form."""
        return self.rows.scatter(entries, self.centre, self.task.n_states)

    def entries(self, kernel: Kernel) -> FloatArray | None:
        """A kernel on the listed rows, or None where it has mass elsewhere."""
        entries = self.rows.pick(kernel, self.task.n_states)
        return entries if np.abs(self.rows.sums(entries) - 1.0).max() <= 1e-9 else None

    def into_ball(self, entries: FloatArray, radius: float) -> FloatArray:
        """The kernel, pulled towards the centre until its loss is within the radius (it is convex on the way)."""
        if self.loss(entries) <= radius:
            return entries
        share = search.share_in_ball(self.rows.start, self.N, self.n, self.p, entries, radius)
        return np.asarray((1.0 - share) * self.p + share * entries)

    def extreme(self, sign: float, radius: float) -> Extreme:
        """(NO) over the ball of this radius."""
        return Extreme(*self._parts(), sign, self.functional, radius)

    def nearest(self, sign: float, threshold: float, enough: float = math.inf) -> Nearest:
        """(NC) for this threshold; a proof that the distance is ``enough`` will do."""
        return Nearest(*self._parts(), sign, self.functional, threshold, enough)

    def _parts(self) -> tuple[Task, Kernel, Rows, FloatArray, FloatArray, bool]:
        return self.task, self.centre, self.rows, self.p, self.n, self.is_open

    def closed(self) -> Self:
        """The same problem with every state listed as a successor of every row, for tasks without declared support."""
        rows, places = self.rows.listing_all(self.task.n_states)
        return replace(self, rows=rows, p=rows.spread(self.p, places), is_open=False)

    def widened(self, state: int) -> tuple[Self, IntArray]:
        """The same problem with ``state`` listed as a successor of every row, and the old entries' places."""
        rows, places = self.rows.widen(state)
        return replace(self, rows=rows, p=rows.spread(self.p, places)), places


@dataclass(frozen=True, eq=False)
class Extreme(InverseProblem):
    """(NO): the smallest (sign +1) or largest (sign -1) value over the ball of this radius."""

    radius: float = 0.0

    def trivial_ends(self, value: float) -> tuple[float, float]:
        """The bracket of a solver that found this value and proves nothing: the other end is that of the range."""
        low, high = value_range(self.task)
        return (min(low, value), value) if self.sign > 0 else (value, max(high, value))


@dataclass(frozen=True, eq=False)
class Nearest(InverseProblem):
    """(NC): the least loss at which sign (V_q - threshold) <= 0; the centre itself violates it.

    A lower end of ``enough`` is all that is asked for.
    """

    threshold: float = 0.0
    enough: float = math.inf


class Solver(Protocol):
    """Settings make a solver; a call solves."""

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """Bracket the extreme value."""

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """Bracket the distance."""


@runtime_checkable
class HasGap(Protocol):
    """A solver that brings the ends of its bracket this near to each other, if it can."""

    @property
    def gap(self) -> float:
        """Relative."""


@runtime_checkable
class Proves(Protocol):
    """A solver whose lower end of a distance, and outer end of an extreme value, is proved."""

    @property
    def proves(self) -> bool:
        """True."""


def gap_of(solver: Solver) -> float:
    """The gap of a solver; 0 of one that has none."""
    return solver.gap if isinstance(solver, HasGap) else 0.0


def proves(solver: Solver) -> bool:
    """Whether a solver proves what it finds."""
    return isinstance(solver, Proves) and solver.proves


def lay_out(
    task: Task, centre: object, weights: object, functional: Callable[[Task, Rows], Functional] | None = None
) -> InverseProblem:
    """Check a centre and weights and lay them out row by row (sign +1), for the value or a functional on the rows."""
    if functional is None:
        task.check_discounted_table("the worst case over kernels", SERVED)
    kernel = task.check_kernel("centre", centre)
    table = check_weights(weights, (task.n_states, task.n_actions))
    rows, p, is_open = task.rows_of("centre", kernel)
    laid = InverseProblem(task, kernel, rows, p, table.ravel()[rows.pair], is_open)
    if functional is None:
        return laid
    laid.must_be_closed()
    return replace(laid, functional=functional(task, rows))
