r"""PTST: policy testing with static sampling (Algorithm 1). `methods.ptst_printed` has the rule as printed.

One round is: sample, record, check, stop or go on. (The printed loop tests u before it is first computed.) The test

- samples by tracking an allocation (or by any other predictable rule);
- stops with "above" at the first t at which every kernel q with V_q <= R has loss_t(q) >= beta(t, delta), and with
  "below" when every kernel with V_q >= R has;
- answers with the side of the estimate. The rule can only stop on that side: the estimate itself has loss 0.

If V_p <= R, "above" is answered only if loss_t(p) >= beta(t, delta) for some t, which has probability at most delta;
and the same for "below". Pairs never sampled are free in both sets, so a choice of their rows never matters.

Departures from the paper: the distance (NC) is compared with beta instead of the value (NO) with 0, which is the same
by Proposition 2 and avoids a tolerance zeta_t; by standing witnesses (`kl.witness`) it is known at every sample
and computed at few; and the answer rests on the solver's proved end where it proves one, else it is not certified.

Paper: `alg:static_algorithm`, `eq:ideal stopping`, `thm:sample`.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar

from policytest._base import arrays
from policytest._base.errors import InputError
from policytest.kl.boundaries import Boundary, MixtureBoundary, PaperBoundary
from policytest.kl.sampler import Recorded, Source
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.methods.kl_rules import ExactRule, KLQuestion
from policytest.methods.kl_run import KLRun, SampledMethod
from policytest.methods.ptst_horizon import counts_with_horizon, settings_with_horizon
from policytest.methods.ptst_printed import PrintedRule
from policytest.methods.run import FROM_COUNTS, Traits
from policytest.worst_case import Solver
from policytest.worst_case.certified import Certified
from policytest.worst_case.horizon import has_gradient
from policytest.worst_case.slsqp import SLSQPHeuristic


@dataclass(frozen=True, eq=False)
class PTST(SampledMethod[KLRun]):
    """Settings of the test.

    Parameters
    ----------
    boundary
        `MixtureBoundary()` or `PaperBoundary()`.
    solver
        Decides whether to stop. `Certified()` answers only with a proof; in tasks of more than 400 states it finds
        none, and in hard ones it may find it late. `ProjectionFree()` answers on the best kernel found, not certified.
    allocation
        "uniform", shares [S,A], or a sampling object: `Optimal(kernel)`, `Adaptive()`, `Forward()`.
    batch
        Stop only at multiples of this number of samples, and draw at least as many at once. For simulators that are
        slow to call; costs up to that many samples more, never correctness.
    zeta
        (c, power): stop as printed, at u >= zeta_t = c/t^power, with u = (V_p_hat - R)(V_q - R) and V_q the extreme
        value that the solver reports over the ball, checked at every round. None: the exact rule.
    """

    boundary: Boundary = field(default_factory=MixtureBoundary)
    solver: Solver = field(default_factory=Certified)
    allocation: Any = "uniform"
    batch: int = 1
    zeta: tuple[float, float] | None = None
    traits: ClassVar = Traits(forecast=FROM_COUNTS, table=True)

    def __post_init__(self) -> None:
        arrays.positive(batch=arrays.whole_number("batch", self.batch))
        self._keep_shares()
        if self.zeta is not None and arrays.real_array("zeta", self.zeta).shape != (2,):
            raise InputError(f"zeta is {self.zeta!r}; pass (c, power), for zeta_t = c/t^power, or None")
        for name, needed in (("boundary", "terms"), ("solver", "nearest")):
            given = getattr(self, name)
            if isinstance(given, type) or not hasattr(given, needed):
                raise InputError(f"{name} is {given!r}; it must be an instance, for example {_EXAMPLES[name]}")

    @classmethod
    def as_printed(cls) -> PTST:
        """The paper's experiments: its boundary, the SLSQP heuristic, zeta_t = 5/t^1.5, a check at every round.

        The heuristic does not reach the minimum, so it stops too early and its error is not bounded by delta. For
        comparison only. Paper: `app:exp_details`.
        """
        return cls(boundary=PaperBoundary(), solver=SLSQPHeuristic(), zeta=(5.0, 1.5))

    def describe(self) -> str:
        """The method in a few words."""
        rule = "PTST as printed" if self.zeta is not None else "PTST"
        return f"{rule}, {type(self.boundary).__name__}, {type(self.solver).__name__}, {self._sampling()}"

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> KLRun:
        if has_gradient(task):
            settings = settings_with_horizon(self)
            tally = counts_with_horizon(task, threshold, self.boundary)
            question = KLQuestion(task, threshold, tally, value_range(task))
            return KLRun(settings, source, ExactRule(question, settings.solver))
        question = KLQuestion.of_value(task, threshold, self.boundary)
        rule = ExactRule(question, self.solver) if self.zeta is None else PrintedRule(question, self.solver, self.zeta)
        return KLRun(self, source, rule)


_EXAMPLES = {"boundary": "MixtureBoundary()", "solver": "Certified()"}
