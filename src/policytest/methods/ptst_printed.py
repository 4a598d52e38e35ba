"""PTST as printed: at every round, is the heuristic's extreme value on the estimate's side? For comparison only.

The rule of Algorithm 1 as the paper's experiments ran it compares u = (V_p_hat - R)(V_q - R), V_q the extreme value
that a solver reports over the ball of radius beta(t, delta)/t, with zeta_t = c/t^power. A heuristic that does not reach
the minimum stops too early, so that its error is not bounded by delta.

Paper: `alg:static_algorithm`, `app:exp_details`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policytest._base.arrays import FloatArray
from policytest.methods.ptst import Examination, PTSTRun


class PrintedRun(PTSTRun):
    """The rule as printed at work."""

    def look(self, required: float) -> None:
        """One round of Algorithm 1, after each pair was sampled once."""
        tally, (scale, power) = self.tally, self.method.zeta or (0.0, 0.0)
        before, self.answer, self.looked = self.looked, None, (self.samples, required)
        value, side = tally.value()
        if side == 0 or not (tally.n[tally.unknown] > 0).all():
            return
        tally.solves += 1
        problem, t = tally.problem(), float(tally.n.sum())
        ball = replace(problem, n=problem.n / t).extreme(float(side), (required + tally.dimension()) / t)
        ends = self.solver.extreme(ball)
        if value * (ends.upper if side > 0 else ends.lower) >= scale / t**power:
            self.answer, self.looked = "above" if side > 0 else "below", before

    judge = update_answer = look

    def _keep_witness(self, entries: FloatArray, loss: float) -> None:
        """No witness is kept, so that every round is checked."""

    def evidence(self) -> tuple[float, float]:
        """That of the exact rule, which the printed one does not ask."""
        return self.conclude().evidence

    def conclude(self) -> Examination:
        """What the exact problem says; the rule does not ask, so it is not counted."""
        before = self.tally.solves, self.found_at
        self.finding = self._examine(np.inf, self.tally.local(1))
        self.tally.solves, self.found_at = before
        return self.finding

    def proof(self) -> tuple[float, float]:
        """Nothing: the heuristic may miss the extreme value."""
        return -np.inf, -np.inf
