r"""Which pairs to sample where the answer hangs on many alternatives: a game between shares and confusing kernels.

For shares omega of the samples the nearest alternative kernel q costs sum_sa omega_sa KL(p_sa, q_sa) a sample, which is
linear in omega for each q. The best shares maximise the least cost. Each alternative that was met is a *cut*
KL(p_sa, q_sa); the shares that balance the cuts so far are found by multiplicative weights, the nearest alternative
half way to these shares is the next cut, and so on for some rounds; the shares with the dearest nearest alternative are
the target. It is computed again as the samples grow, and a share sqrt(pairs/samples) of all samples goes to all pairs
equally, so that nothing is starved by a wrong estimate.

Any such rule is predictable, so that the boundaries hold. Paper: section 6, `app:extension`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from policytest._base.arrays import FloatArray, Kernel
from policytest.kl.sampling import Adaptive, TargetTracking, shares
from policytest.mdp.task import Task
from policytest.worst_case.lower_bound import uniform_allocation

ROUNDS = 8  # shares tried for each new target: the last one, equal ones, and others
ITERATIONS, RATE = 300, 2.0  # of the multiplicative weights
Cut = Callable[[FloatArray, FloatArray], FloatArray | None]
"""From the entries of a kernel p and weights [K] to KL(p_k, q_k) [K] of the nearest alternative q, if one is found."""


@dataclass(frozen=True, eq=False)
class Proportional:
    """Settings of a rule whose target is a function of the estimate, tracked as `Adaptive` does.

    ``target`` takes the entries of the estimate, equal shares [K] and the shares so far; ``even`` [K] are the first
    shares, None for equal ones of all rows.
    """

    settings: Adaptive
    target: Callable[[FloatArray, FloatArray, FloatArray], FloatArray]
    even: FloatArray | None = None

    def begin(self, task: Task, threshold: float) -> TargetTracking:
        """Start with equal shares."""
        rows = task.layout.rows

        def target(kernel: Kernel, omega: FloatArray, explore: float) -> FloatArray:
            even = (omega > 0) / (omega > 0).sum()
            found = self.target(rows.pick(kernel, task.n_states), even, omega)
            return np.asarray((1.0 - explore) * found + explore * even)

        omega = shares(task, uniform_allocation(task)) if self.even is None else self.even
        return TargetTracking(self.settings, target, omega)


def balancing(settings: Adaptive, cut: Cut, even: FloatArray | None = None) -> Proportional:
    """Settings of the rule that balances cuts: of all shares that were tried, the best ones are the target."""

    def target(entries: FloatArray, even: FloatArray, omega: FloatArray) -> FloatArray:
        cuts, best = np.empty((0, len(even))), (-np.inf, omega)
        for trial in range(ROUNDS):
            tried = (omega, even)[trial] if trial < 2 else 0.5 * (balanced(cuts, even) + best[1])
            found = cut(entries, tried)
            if found is None or not np.isfinite(found).all():
                break
            cuts = np.vstack([cuts, np.where(even > 0, found, 0.0)])
            rate = float(cuts[-1] @ tried)  # what the nearest alternative costs a sample, at these shares
            best = (rate, tried) if rate > best[0] else best
        return best[1]

    return Proportional(settings, target, even)


def balanced(cuts: FloatArray, even: FloatArray) -> FloatArray:
    """[K] shares at which the least of cuts.omega is nearly as large as it can be; zero where ``even`` is.

    Multiplicative weights against the lowest cut of each round; the best of all rounds and of their average.
    """
    scale = float((cuts @ even).min())
    if not scale > 0:
        return even
    gains = cuts / scale
    log_weights, total, best = np.zeros(len(even)), np.zeros(len(even)), (1.0, even)
    for t in range(ITERATIONS):
        weights = even * np.exp(log_weights - log_weights.max())
        weights /= weights.sum()
        total += weights
        for tried in (weights, total / total.sum()):
            reached = float((gains @ tried).min())
            best = (reached, tried) if reached > best[0] else best
        lowest = gains[int(np.argmin(gains @ weights))]
        log_weights += RATE / np.sqrt(t + 1.0) * lowest / max(float(lowest.max()), 1e-300)
    return best[1]
