r"""Rectangular KL boxes: one confidence set for each row.

*`RectangularKL`* gives each of the K unknown rows its own confidence set at the level delta/K, for all times at once,

    n_sa KL(p_hat_sa, q_sa) <= log(K/delta) + g_a(N_sa)        (g_a: see `boundaries.MixtureBoundary`),

and answers when robust policy evaluation over the product of the boxes keeps R out. *Its proof:* by Jensen,

    q.c >= y + exp( sum_x p(x) log(c(x) - y) - b )     for every q with KL(p, q) <= b, and every y <= min c.

With the best y this bounds one Bellman step from below, for any values U; if it loses at most e of U in every state,
then no kernel in the box has a value below rho.U - e/(1-gamma).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import scipy

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.compiled import search
from policytest._base.rows import Rows
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded, Source
from policytest.kl.witness import check_listed
from policytest.mdp.task import Task
from policytest.methods.kl_rules import KLQuestion, Rule
from policytest.methods.kl_run import KLRun, SampledMethod
from policytest.worst_case.functional import evaluated

LARGEST_BUDGET = 50.0  # of a row, in nats, where the worst values are sought; the proof takes the true one
BOX_ITERATIONS, BISECTIONS, LARGEST_EVIDENCE = 200, 60, 1e6
SHARES = (1 - 1e-6, 0.999, 0.99, 0.9, 0.5)  # of the evidence found, tried in turn until one is proved


@dataclass(frozen=True, eq=False)
class RectangularKL(SampledMethod[KLRun]):
    """KL boxes, one for each unknown row at the level delta/K, and robust policy evaluation. Answers are certified.

    Parameters
    ----------
    allocation
        As in `PTST`.
    prior
        a of the Dirichlet mixture of each row.
    """

    allocation: object = "uniform"
    prior: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", arrays.real_number("prior", self.prior))
        arrays.positive(prior=self.prior)
        self._keep_shares()

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> KLRun:
        check_listed(task)
        question = KLQuestion.of_value(task, threshold, MixtureBoundary(self.prior))
        return KLRun(self, source, BoxesRule(question, self.prior))

    def describe(self) -> str:
        """The method in a few words."""
        return f"rectangular KL boxes, {self._sampling()}"


class BoxesRule(Rule):
    """Boxes and robust policy evaluation."""

    def __init__(self, question: KLQuestion, prior: float) -> None:
        super().__init__(question)
        self.prior = prior
        self._settled = -1, 0.0  # (samples, evidence required) of the last answer

    def budgets(self, required: float) -> FloatArray:
        """[K] the radii of the boxes, (required + log K + g_a(N_sa))/n_sa; infinite for rows never visited."""
        rows, N, n, a, lnG = self.tally.rows, self.tally.N, self.tally.n, self.prior, scipy.special.gammaln
        m, K = np.diff(rows.start), max(self.tally.unknown.sum(), 1)
        seen = rows.sums(scipy.special.xlogy(N, N) - (lnG(N + a) - lnG(a))) - scipy.special.xlogy(n, n)
        radius = np.maximum(required + np.log(K) + seen + lnG(n + m * a) - lnG(m * a), 0.0)
        return np.where(m == 1, 0.0, np.where(n > 0, radius / np.maximum(n, 1.0), np.inf))

    def _worst(self, side: int, required: float) -> tuple[float, FloatArray]:
        """The smallest side * (V - R) found over the box, and side * the values of the kernel that has it."""
        rows, task = self.tally.rows, self.tally.task
        b = np.minimum(self.budgets(required), LARGEST_BUDGET)
        start = task.discount, task.initial, self.tally.estimate(), b, float(side), BOX_ITERATIONS
        _, q, value, _ = search.robust_box(rows, *start)
        return side * value, side * evaluated(rows, task.discount, task.initial, q)[0]

    def proved(self, side: int, required: float) -> float:
        """A lower bound on side * (V - R) over the box, whatever the solver did."""
        tally, task, rows = self.tally, self.tally.task, self.tally.rows
        U = self._worst(side, required)[1]
        worth = task.discount * U[rows.successor] + (side * rows.gain if len(rows.gain) else 0.0)
        least, slack = _row_minima(rows, tally.estimate(), worth, self.budgets(required))
        step = np.bincount(rows.state, rows.prob * (side * rows.reward + least), minlength=task.n_states)
        lost = min(0.0, float((step - U).min())) - slack - 1e-13 * float(np.abs(U).max())
        return float(task.initial @ U) + lost / (1.0 - task.discount) - tally.rounding

    def decides(self, samples: int, side: int, required: float) -> bool:
        """Whether the box lies on one side of R."""
        self.tally.count_solve()
        decided = self._worst(side, required)[0] > 0 and self.proved(side, required) > 0
        self._settled = (samples, required) if decided else self._settled
        return decided

    def evidence(self, samples: int) -> tuple[float, float]:
        """The most evidence with which it would answer now, 0 where it would not; on the side of the estimate."""
        side, reached, high = self.tally.value()[1], 0.0, 1.0

        def excess(required: float) -> float:
            return self._worst(side, required)[0]

        if side and excess(0.0) > 0:
            while high < LARGEST_EVIDENCE and excess(high) > 0:
                high *= 4.0
            found = scipy.optimize.brentq(excess, 0.0, high, xtol=1e-6) if excess(high) <= 0 else high
            reached = next((share * found for share in SHARES if self.proved(side, share * found) > 0), 0.0)
            reached = max(reached, self._settled[1]) if self._settled[0] == samples else reached
        return (reached if side > 0 else 0.0, reached if side < 0 else 0.0)

    def interval(self, required: float, is_answered: bool) -> tuple[float, float]:
        """The values over the box; with probability at least 1 - delta, the intervals of all times hold the value."""
        (low, high), R = self.question.span, self.question.threshold
        return max(low, R + self.proved(1, required)), min(high, R - self.proved(-1, required))


def _row_minima(rows: Rows, p: FloatArray, c: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """[K] lower bounds on min q.c over KL(p_k, q) <= b_k, and what rounding can do to them.

    max over y <= min c of y + exp(sum p log(c - y) - b), by bisection in log(min c - y); each y gives a valid bound.
    """
    first = rows.start[:-1]
    least = np.minimum.reduceat(c, first)
    above = c - rows.per_entry(least)
    span = np.maximum(np.maximum.reduceat(above, first), 1e-200)
    low, high = np.log(1e-13 * span), np.log(1e7 * span)
    for _ in range(BISECTIONS):
        t = 0.5 * (low + high)
        u = above + rows.per_entry(np.exp(t))
        too_near = np.log(rows.sums(p / u)) + rows.sums(p * np.log(u)) > b
        low, high = np.where(too_near, t, low), np.where(too_near, high, t)
    t = np.exp(high)
    bound = least - t + np.exp(rows.sums(p * np.log(above + rows.per_entry(t))) - b)
    return np.asarray(np.maximum(bound, least)), 1e-14 * float(np.where(span > 1e-200, t, 0.0).max())
