"""PTST as printed: at every round, is the heuristic's extreme value on the estimate's side? For comparison only.

The rule of Algorithm 1 as the paper's experiments ran it compares u = (V_p_hat - R)(V_q - R), V_q the extreme value
that a solver reports over the ball of radius beta(t, delta)/t, with zeta_t = c/t^power. A heuristic that does not reach
the minimum stops too early, so that its error is not bounded by delta.

Paper: `alg:static_algorithm`, `app:exp_details`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policytest.methods.kl_rules import ExactRule, KLQuestion, Look, Rule
from policytest.methods.run import Outcome, Run
from policytest.worst_case import Solver


class PrintedRule(Rule):
    """The rule as printed. It keeps no witness, so that every round is checked."""

    def __init__(self, question: KLQuestion, solver: Solver, zeta: tuple[float, float]) -> None:
        super().__init__(question)
        self.solver, self.zeta = solver, zeta

    @property
    def first_look(self) -> int:
        """That of the exact rule."""
        return self._exact().first_look

    def look(self, samples: int, required: float) -> Look:
        """One round of Algorithm 1, after each pair was sampled once."""
        tally, (scale, power) = self.tally, self.zeta
        value, side = tally.value()
        if side == 0 or not (tally.n[tally.unknown] > 0).all():
            return Look(None)
        tally.count_solve()
        problem, t = tally.problem(), float(tally.n.sum())
        ball = replace(problem, n=problem.n / t).extreme(float(side), (required + tally.dimension()) / t)
        ends = self.solver.extreme(ball)
        decides = value * (ends.upper if side > 0 else ends.lower) >= scale / t**power
        return Look(("above" if side > 0 else "below") if decides else None)

    def _exact(self) -> ExactRule:
        """The exact rule on a copy of the counts: the printed one does not ask it, so its solves are not counted."""
        return ExactRule(replace(self.question, tally=self.tally.copy()), self.tally.local(1))

    def evidence(self, samples: int) -> tuple[float, float]:
        """That of the exact rule."""
        return self._exact().conclude(samples).evidence

    def proof(self, samples: int) -> tuple[float, float]:
        """Nothing: the heuristic may miss the extreme value."""
        return -np.inf, -np.inf

    def outcome(self, run: Run, required: float) -> Outcome:
        """What the exact problem says."""
        return self._exact().outcome(run, required)
