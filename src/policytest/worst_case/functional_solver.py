r"""The two worst-case problems for differences: of two policies, or of an action and another one in the same state.

With a signed measure mu_j on pairs for each of some policies pi_j, all in one kernel q, the functional is

    F(q) = sum_j sum_sa mu_j(s,a) Q_q^j(s,a),      Q_q^j(s,a) = sum_x q(x|s,a) (r_j(s,a,x) + gamma V_q^j(x)).

V_q^A - V_q^B has mu_A = rho pi_A and mu_B = -rho pi_B. The gap of a deviation, Q_q^pi(s,pi(s)) - Q_q^pi(s,a), has one
policy and a measure of two signs, 1 on (s,pi(s)) and -1 on (s,a). Its gradient is, as for a value (`lem:reversed_PG`),

    dF/dq(x|s,a) = sum_j D_j(s,a) (r_j(s,a,x) + gamma V_q^j(x)),
    D_j(s,a) = mu_j(s,a) + gamma pi_j(a|s) sum_(s',a') D_j(s',a') q(s|s',a'):    the measure that flows on from mu_j.

So conditional gradients (`policytest.worst_case.projection_free`) run on F unchanged: stationary rows are
q = n p/(y + lam dF/dq), and only value and gradient are asked for. But the cost of a row mixes signs, so F has no worst
kernel by policy iteration, and stationary points may be many: starts lead towards each policy's own extremes as
well. Nothing is proved, so the lower end of a distance is 0 and ``certified`` is False, always.

Unseen successors that are allowed may get mass, and rows without weight are free. Written in plain NumPy around
the compiled row problem, for tasks of up to a few hundred states; a value, the functional of one term, has the compiled
`ProjectionFree`.

Paper: `app:extension`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np
import scipy

from policytest._base.arrays import FloatArray
from policytest._base.compiled import search
from policytest._base.rows import Rows
from policytest.worst_case.bracket import Bracket, Status
from policytest.worst_case.functional import Functional
from policytest.worst_case.problem import Extreme, InverseProblem, Nearest
from policytest.worst_case.projection_free import Descended, mixed_start, random_rows

REACHED = 1e-9  # of the size of the values: F this near to the threshold has reached it
FARTHEST = 0.05  # a linear model is followed until so much of its height is left, where it wants more
STEPS = 2.0 ** -np.arange(40.0)
ENOUGH = 1e-4  # of the promised decrease, for a step to be taken
FIRST_SOFT, LEAST_SOFT = 1e-3, 1e-8  # of the largest weight: how strongly rows are held back at first, and at last
FLAT = 1e-10  # of the size of the values: a slope below this leads nowhere
SETTLED = 1e-6  # of the loss: what the linear model may still promise at the end of a search
DEAREST = 100  # steps up to which the penalty may fall again
PATIENCE = 4  # steps in a row that improve next to nothing, before a search ends


@dataclass(frozen=True)
class DifferenceSolver:
    """Conditional gradients on a `Functional`: feasible kernels, stationary points, no proofs.

    Parameters
    ----------
    starts
        How many starting kernels to try: the centre (or the warm start) first.
    tolerance
        Stop when the linear model promises a relative improvement below this.
    max_iterations
        Limit for each start.
    """

    starts: int = 1
    tolerance: float = 1e-11
    max_iterations: int = 300

    def nearest(self, problem: Nearest, warm: Bracket | None = None) -> Bracket:
        """The least loss found at which sign (F(q) - threshold) <= 0, which the centre is taken to violate."""
        ends = [self._approach(problem, start) for start in _starts(problem, self.starts, warm)]
        reached = [end for end in ends if end.infeasibility <= REACHED * problem.pushed.size]
        iterations = sum(end.iterations for end in ends)
        if not reached:
            return Bracket(0.0, np.inf, None, np.inf, Status.NOT_REACHED, False, iterations)
        best = min(reached, key=lambda end: end.loss)
        return replace(best, iterations=iterations).bracket(0.0, best.loss)

    def extreme(self, problem: Extreme, warm: Bracket | None = None) -> Bracket:
        """The smallest (sign 1) or largest (-1) F found over the ball; the other end is not known."""
        ends = [self._descend(problem, start) for start in _starts(problem, self.starts, warm)]
        best = min(ends, key=lambda end: problem.sign * end.value)
        low, high = (-np.inf, best.value) if problem.sign > 0 else (best.value, np.inf)
        return replace(best, iterations=sum(end.iterations for end in ends)).bracket(low, high)

    # ------------------------------------------------------------ the nearest kernel

    def _approach(self, laid: Nearest, start: FloatArray) -> Descended:
        """Sequential convex programming: the loss exactly, F linearised; no step increases loss + mu [excess]_+.

        Where steps must be short, rows are held back by soft KL(q, target), which is taken away again step by step:
        free rows, and unseen successors, have no curvature of their own, and would jump to and fro.
        """
        functional, sign, threshold = laid.pushed, laid.sign, laid.threshold
        reach, q, lam, price, soft, idle = REACHED * functional.size, start, 0.0, 0.0, 0.0, 0
        value, gradient = functional.linear(q)
        loss, status, promised, merit = laid.loss(q), Status.ITERATION_LIMIT, np.inf, np.inf
        for step in range(self.max_iterations):
            excess = sign * (value - threshold)
            gap, height = _gaps(laid.rows, sign * gradient, q)
            if height <= FLAT * functional.size and excess > reach:
                break  # as far as it goes, and not far enough
            target, lam = _tilted(laid, gap, max(height - excess, FARTHEST * height), lam, soft, q)
            price = 2.0 * lam if price > 8.0 * lam > 0.0 and step < DEAREST else max(price, 2.0 * lam)
            linear = excess + float(gap @ target) - height
            merit = loss + price * max(excess, 0.0)
            promised = merit - laid.loss(target) - price * max(linear, 0.0)
            if promised <= self.tolerance * merit and excess <= reach and soft == 0.0:
                break
            for share in STEPS:
                trial = q + share * (target - q)
                trial_value, trial_gradient = functional.linear(trial)
                trial_loss = laid.loss(trial)
                trial_merit = trial_loss + price * max(sign * (trial_value - threshold), 0.0)
                if trial_merit <= merit - ENOUGH * share * promised:
                    break
            else:
                if soft == 0.0:
                    break
                soft, idle = _softer(soft, 1.0), idle + 1
                continue
            soft = _softer(soft, float(share))
            idle = idle + 1 if trial_merit > merit - self.tolerance * merit else 0
            q, value, gradient, loss = trial, trial_value, trial_gradient, trial_loss
            if idle >= PATIENCE:
                break
        excess = sign * (value - threshold)
        if promised <= SETTLED * merit and excess <= reach:
            status = Status.CONVERGED
        elif step + 1 < self.max_iterations:
            status = Status.STALLED
        return Descended(laid, q, lam, loss, value, status, step + 1)

    # ------------------------------------------------------------ the extreme value

    def _descend(self, laid: Extreme, start: FloatArray) -> Descended:
        """Conditional gradients: the exact linear minimum over the ball, and a step towards it that does not rise."""
        functional, sign, radius = laid.pushed, laid.sign, laid.radius
        q, lam, status, idle, soft = _pulled(laid, start, radius), 0.0, Status.ITERATION_LIMIT, 0, 0.0
        value, gradient = functional.linear(q)
        for step in range(self.max_iterations):  # noqa: B007
            gap, height = _gaps(laid.rows, sign * gradient, q)
            target, lam = _on_ball(laid, gap, radius, lam, soft, q)
            promised = height - float(gap @ target)
            if promised <= self.tolerance * functional.size and soft == 0.0:
                status = Status.CONVERGED
                break
            for share in STEPS:
                trial = q + share * (target - q)
                trial_value, trial_gradient = functional.linear(trial)
                if sign * trial_value <= sign * value - ENOUGH * share * promised:
                    break
            else:
                if soft == 0.0:
                    status = Status.STALLED
                    break
                soft, idle = _softer(soft, 1.0), idle + 1
                continue
            soft = _softer(soft, float(share))
            idle = idle + 1 if abs(trial_value - value) <= 1e-12 * functional.size else 0
            q, value, gradient = trial, trial_value, trial_gradient
            if idle >= PATIENCE:
                status = Status.CONVERGED
                break
        inside = _pulled(laid, q, radius)
        value = functional.value(inside) if inside is not q else value
        return Descended(laid, inside, lam, laid.loss(inside), value, status, step + 1)


def _pulled(laid: InverseProblem, q: FloatArray, radius: float) -> FloatArray:
    """A kernel of the ball: rows with weight are pulled towards the centre as far as is needed, free ones stay."""
    inside = laid.into_ball(q, radius)
    return q if inside is q else np.where(laid.rows.per_entry(laid.n) > 0, inside, q)


def _held(laid: InverseProblem, soft: float, q: FloatArray) -> tuple[float, FloatArray, FloatArray]:
    """(unit, N/unit, n/unit) of the centre, with so much of the kernel at hand added to every row."""
    unit, N, n = laid.scaled
    return (unit, N, n) if soft == 0.0 else (unit, N + soft * q, n + soft)


def _softer(soft: float, share: float) -> float:
    """Hold rows back more after a short step, less after a full one."""
    if share < 0.5:
        return max(4.0 * soft, FIRST_SOFT)
    return (soft / 4.0 if soft > LEAST_SOFT else 0.0) if share == 1.0 else soft


def _tilted(
    laid: InverseProblem, gap: FloatArray, want: float, lam: float, soft: float, q: FloatArray
) -> tuple[FloatArray, float]:
    """The rows of least loss with gap.q = want, or those of no cost where they are low enough; and the multiplier."""
    unit, N, n = _held(laid, soft, q)

    def height(multiplier: float) -> float:
        return float(search.tilt(laid.rows.start, N, n, gap, multiplier)[1])

    untilted, least = search.tilt(laid.rows.start, N, n, gap, 0.0)
    if least <= want or not want > 0:
        return untilted, 0.0
    found = _root(lambda multiplier: height(multiplier) / want, lam / unit, float(n.sum()) / float(gap.max()))
    return search.tilt(laid.rows.start, N, n, gap, found)[0], found * unit


def _on_ball(
    laid: InverseProblem, gap: FloatArray, radius: float, lam: float, soft: float, q: FloatArray
) -> tuple[FloatArray, float]:
    """The minimum of gap.q over the ball, rows held back; and its multiplier."""
    unit, N, n = _held(laid, soft, q)
    if radius <= 1e-14 * unit or not gap.any():
        return search.tilt(laid.rows.start, *laid.scaled[1:], gap, 0.0)[0], 0.0

    def share(multiplier: float) -> float:
        used = laid.loss(search.tilt(laid.rows.start, N, n, gap, multiplier)[0])
        return radius / max(used, 1e-300)

    found = _root(share, lam / unit, float(n.sum()) / float(gap.max()), 1e-11)
    return laid.into_ball(search.tilt(laid.rows.start, N, n, gap, found)[0], radius), found * unit


def _gaps(rows: Rows, costs: FloatArray, q: FloatArray) -> tuple[FloatArray, float]:
    """The costs less the least of each row, and gap.q."""
    gap = costs - rows.per_entry(np.minimum.reduceat(costs, rows.start[:-1]))
    return gap, float(gap @ q)


def _root(falling: Callable[[float], float], guess: float, natural: float, accuracy: float = 1e-13) -> float:
    """Where a falling function of a positive number is 1, to this accuracy; the last one tried, where it is not."""
    low = high = guess if 0 < guess < np.inf else natural
    tried = falling(low)
    up = tried > 1.0
    for _ in range(400):
        if up:
            low, high = high, 4.0 * high
        else:
            low, high = 0.25 * low, low
        end = high if up else low
        if not 1e-290 < end < 1e290:
            return end
        if (falling(end) > 1.0) != up:
            break
    else:
        return high if up else low
    logs = scipy.optimize.brentq(
        lambda u: np.log(max(falling(float(np.exp(u))), 1e-300)), np.log(low), np.log(high), xtol=accuracy
    )
    return float(np.exp(logs))


def _starts(laid: InverseProblem, count: int, warm: Bracket | None) -> Iterator[FloatArray]:
    """The warm start or the centre; then kernels towards the extremes of each policy alone, and pseudo-random ones."""
    functional = laid.pushed
    if warm is not None and warm.trail is not None:
        yield warm.trail[1]
        count += 1
    yield laid.p
    for index in range(1, count):
        alone = functional.alone(index - 1) if index <= len(functional.terms) else None
        yield mixed_start(laid, index, random_rows(laid, index) if alone is None else _towards(alone, laid))


def _towards(functional: Functional, laid: InverseProblem) -> FloatArray:
    """Each row at its cheapest successor for one policy, at the centre; all of them, in the cheapest one's place."""
    rows = laid.rows
    _, gradient = functional.linear(laid.p)
    gap, _ = _gaps(rows, laid.sign * gradient, laid.p)
    return rows.to_one((gap == 0.0).astype(np.float64))
