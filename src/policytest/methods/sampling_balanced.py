r"""Which pairs to sample where the answer hangs on many alternatives: a game between shares and confusing kernels.

For shares omega of the samples the nearest alternative kernel q costs sum_sa omega_sa KL(p_sa, q_sa) a sample, which is
linear in omega for each q. The best shares maximise the least of these. Each alternative that was met is a *cut*
KL(p_sa, q_sa); the shares that balance the cuts so far are found by multiplicative weights, the nearest alternative
half way to these shares is the next cut, and so on for some rounds; the shares with the dearest nearest alternative are
the target. It is computed anew as the samples grow, and a share sqrt(pairs/samples) of all samples goes to all pairs
equally, so that nothing is starved by a wrong estimate.

Any such rule is predictable, so that the boundaries hold. Paper: section 6, `app:extension`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray, IntArray, Kernel
from policytest._base.compiled import draws
from policytest.mdp.task import Task
from policytest.methods.sampling import Adaptive, shares
from policytest.worst_case.lower_bound import uniform_allocation

ROUNDS = 8  # shares tried for each new target: the last one, equal ones, and others
ITERATIONS, RATE = 300, 2.0  # of the multiplicative weights
Cut = Callable[[FloatArray, FloatArray], FloatArray | None]
"""From the entries of a kernel p and weights [K] to KL(p_k, q_k) [K] of the nearest alternative q, if one is found."""


@dataclass(frozen=True, eq=False)
class Balanced:
    """Settings of the rule: those of `Adaptive`, with a function that gives cuts."""

    settings: Adaptive
    cut: Cut
    even: FloatArray | None = None  # [K] the first shares; None: equal ones for all rows

    def begin(self, task: Task, threshold: float) -> TargetTracking:
        """Start with equal shares."""
        omega = shares(task, uniform_allocation(task)) if self.even is None else self.even
        return TargetTracking(self, task, omega, self.settings.first * int((omega > 0).sum()))

    def target(self, entries: FloatArray, even: FloatArray, omega: FloatArray) -> FloatArray:
        """The shares that balance the nearest alternatives to this kernel: of all that were tried, the best ones."""
        cuts, best = np.empty((0, len(even))), (-np.inf, omega)
        for trial in range(ROUNDS):
            tried = (omega, even)[trial] if trial < 2 else 0.5 * (balanced(cuts, even) + best[1])
            cut = self.cut(entries, tried)
            if cut is None or not np.isfinite(cut).all():
                break
            cuts = np.vstack([cuts, np.where(even > 0, cut, 0.0)])
            rate = float(cuts[-1] @ tried)  # what the nearest alternative costs a sample, at these shares
            best = (rate, tried) if rate > best[0] else best
        return best[1]


@dataclass(frozen=True, eq=False)
class Proportional:
    """Settings of a rule whose target is a function of the estimate: ``shares_at`` (entries) gives shares [K]."""

    settings: Adaptive
    shares_at: Callable[[FloatArray], FloatArray | None]
    even: FloatArray

    def begin(self, task: Task, threshold: float) -> TargetTracking:
        """Start with equal shares."""
        return TargetTracking(self, task, self.even, self.settings.first * int((self.even > 0).sum()))

    def target(self, entries: FloatArray, even: FloatArray, omega: FloatArray) -> FloatArray:
        """The shares at this kernel, or those before."""
        found = self.shares_at(entries)
        return omega if found is None else found


@dataclass
class TargetTracking:
    """The rule at work: the target, and the number of samples at which it is computed anew."""

    rule: Balanced | Proportional
    task: Task
    omega: FloatArray
    due: int

    def plan(self, n: FloatArray, estimate: Callable[[], Kernel], most: int) -> IntArray:
        """Track the target up to the next time it is due."""
        samples = int(n.sum())
        if samples >= self.due:
            entries = self.task.layout.rows.pick(estimate(), self.task.n_states)
            even = (self.omega > 0) / (self.omega > 0).sum()
            explore = min(1.0, float(np.sqrt((even > 0).sum() / samples)))
            self.omega = (1.0 - explore) * self.rule.target(entries, even, self.omega) + explore * even
            self.due = int(np.ceil(self.rule.settings.growth * samples)) + 1
        return np.asarray(draws.track(n, self.omega, min(most, self.due - samples)))

    def state(self) -> dict[str, Any]:
        """The target and when it is due."""
        return {"omega": self.omega, "due": np.array([float(self.due)])}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with a kept target."""
        self.omega, self.due = np.array(state["omega"]), int(state["due"][0])


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
