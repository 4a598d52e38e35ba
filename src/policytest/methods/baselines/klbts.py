r"""KLB-TS: a closed-form bound on T* in place of the worst case.

*`KLBTS`* stops when t/U(omega) >= beta(t, delta), with omega = n/t and U(omega) >= T*(omega) the bound of Al Marjani
and Proutiere (2021) at the empirical kernel p; Delta = |V_p - R|, and Var, MD are those of gamma V_p under row p_sa:

    U(omega) = max_sa H_sa/omega_sa,   H_sa = max( 16 Var_sa/(Delta(1-gamma))^2 , 6 (MD_sa/(Delta(1-gamma)))^(4/3) ).

*Why it is sound.* If q lies beyond R, then Delta <= |V_p - V_q| = |sum_sa d_q(s,a) (q - p)_sa gamma V_p|, so that some
row has |(q - p) gamma V_p| >= D = Delta(1-gamma). By Cauchy and Schwarz, with the squared Hellinger distance below
k = KL(p_sa, q_sa) and E_q (gamma V_p - mean)^2 <= Var + MD^2 sqrt(2k),  D^2 <= 4 k Var + 2 sqrt(2) MD^2 k^(3/2). One of
the two terms is at least D^2/2, and then k >= 1/H_sa; half the constants of H would do. So loss(q) >= t/U.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import AsArray, BoolArray, FloatArray
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.kl.boundaries import Boundary, MixtureBoundary
from policytest.kl.sampler import Recorded, Source
from policytest.kl.witness import check_listed
from policytest.mdp.listed_rewards import Outcomes
from policytest.mdp.task import Task
from policytest.methods.kl_rules import KLQuestion, Rule
from policytest.methods.kl_run import KLRun, SampledMethod
from policytest.worst_case.functional import evaluated


@dataclass(frozen=True, eq=False)
class KLBTS(SampledMethod[KLRun]):
    """The rule t/U(omega) >= beta(t, delta) of KLB-TS, for policy testing with known rewards.

    Parameters
    ----------
    policies
        1: U as above. Sound, so that answers are certified. 2: the reading of the paper's text, which compares pi
        with a second policy, of value R: (sqrt(max H(pi)/omega) + sqrt(max H(pi')/omega))^2, Delta = V^pi - V^pi'.
        That pi' has value R is true of the true kernel at most, so this rule and its evidence alone prove nothing:
        an answer is certified only where the rule with one policy gives it as well.
    boundary, allocation
        As in `PTST`; None is uniform, and in `identify` the allocation of KLB-TS itself.
    alternative
        pi' [S,A], for policies=2.

    Paper: `app:exp_details`.
    """

    policies: int = 1
    boundary: Boundary = field(default_factory=MixtureBoundary)
    allocation: object = None
    alternative: AsArray = None

    def __post_init__(self) -> None:
        if self.policies not in (1, 2) or isinstance(self.policies, bool):
            raise InputError(f"policies is {self.policies!r}; pass 1 or 2")
        if (self.policies == 2) != (self.alternative is not None):
            raise InputError("alternative: pass the second policy [S,A] with policies=2, and none with policies=1")
        if self.alternative is not None:
            table = arrays.real_array("alternative", self.alternative, (None, None))
            object.__setattr__(self, "alternative", arrays.probability_rows("alternative", table))
        if isinstance(self.boundary, type) or not hasattr(self.boundary, "terms"):
            raise InputError(f"boundary is {self.boundary!r}; it must be an instance, for example MixtureBoundary()")
        self._keep_shares()

    def bound(self, task: Task, kernel: object, threshold: float = 0.0) -> float:
        """U(omega) at this kernel for uniform omega, an upper bound on T*(omega)."""
        centred = task.centred(threshold)
        rows, p, is_open = centred.rows_of("kernel", centred.check_kernel("kernel", kernel))
        if is_open:
            raise InputError("kernel is sparse and any state may follow; declare the task's support")
        unknown = np.diff(rows.start) > 1
        omega = np.where(unknown, 1.0 / unknown.sum(), 0.0)
        return 1.0 / _distances(self, centred, rows, p, omega, unknown)[0]

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> KLRun:
        if self.policies == 2:
            arrays.check_shape("alternative", self.alternative.shape, task.policy.shape)
            untaken = (self.alternative > 0) & (task.policy == 0)
            if untaken.any():
                place = task.place(int(np.argmax(untaken)))
                raise InputError(f"alternative takes {place}, which the policy never does and the test never samples")
        check_listed(task)
        return KLRun(self, source, KLBTSRule(KLQuestion.of_value(task, threshold, self.boundary), self))

    def on_outcomes(self, outcomes: Outcomes) -> Self:
        """Not with a second policy, which has no actions in outcomes."""
        found = super().on_outcomes(outcomes)
        if self.alternative is not None:
            raise InputError(
                "alternative: rewards are observed, and KLBTS(policies=2) needs known ones; pass policies=1"
            )
        return found

    def describe(self) -> str:
        """The method in a few words."""
        words = "one policy" if self.policies == 1 else "two policies"
        return f"KLB-TS for {words}, {type(self.boundary).__name__}, {self._sampling()}"


def _hardest(task: Task, rows: Rows, p: FloatArray, V: FloatArray, n: FloatArray, among: BoolArray, D: float) -> float:
    """max H_sa/n_sa among these rows, with Var and MD of r(s,a,x) + gamma V(x); infinite where one was not sampled."""
    if not D > 0 or not (n[among] > 0).all():
        return np.inf
    variance, most = spread(rows, p, task.discount * V[rows.successor] + (rows.gain if len(rows.gain) else 0.0))
    H = np.maximum(16.0 * variance / D**2, 6.0 * (most / D) ** (4 / 3))
    return float((H[among] / n[among]).max(initial=1e-300))


def spread(rows: Rows, p: FloatArray, worth: FloatArray) -> tuple[FloatArray, FloatArray]:
    """[K] Var and MD of a row of successors worth this much [E]: the variance, and the largest distance to the mean."""
    mean, first = rows.sums(p * worth), rows.start[:-1]
    variance = rows.sums(p * (worth - rows.per_entry(mean)) ** 2)
    most = np.maximum(np.maximum.reduceat(worth, first) - mean, mean - np.minimum.reduceat(worth, first))
    return variance, np.maximum(most, 0.0)


def _distances(
    method: KLBTS, task: Task, rows: Rows, p: FloatArray, n: FloatArray, unknown: BoolArray, rounding: float = 0.0
) -> tuple[float, float]:
    """Lower bounds on the loss of kernels beyond 0: that of the rule, and one that is proved."""
    V, value, error = evaluated(rows, task.discount, task.initial, p)
    rest = 1.0 - task.discount
    proved = 1.0 / _hardest(task, rows, p, V, n, unknown, (abs(value) - error - rounding) * rest)
    if method.policies == 1:
        return proved, proved
    other = rows._replace(prob=method.alternative.ravel()[rows.pair])
    W, its_value, _ = evaluated(other, task.discount, task.initial, p)
    D = float(np.sign(value)) * (value - its_value) * rest
    mine = _hardest(task, rows, p, V, n, unknown, D)
    return (mine**0.5 + _hardest(task, rows, p, W, n, unknown & (other.prob > 0), D) ** 0.5) ** -2.0, proved


class KLBTSRule(Rule):
    """The rule of KLB-TS. Its interval is that of `PTST`, over the ball of the same boundary."""

    def __init__(self, question: KLQuestion, method: KLBTS) -> None:
        super().__init__(question)
        self.method = method

    def _reach(self) -> tuple[float, float]:
        """t/U - (dimension term), and the part of it that is proved."""
        tally = self.tally
        parts = tally.task, tally.rows, tally.estimate(), tally.n, tally.unknown, tally.rounding
        found, proved = _distances(self.method, *parts)
        return found - tally.dimension(), proved - tally.dimension()

    def decides(self, samples: int, side: int, required: float) -> bool:
        """t/U >= beta."""
        return self._reach()[0] >= required

    def evidence(self, samples: int) -> tuple[float, float]:
        """t/U - (dimension term) on the side of the estimate: at most that of `PTST` with the same boundary."""
        return self._sides(0)

    def proof(self, samples: int) -> tuple[float, float]:
        """That of the rule with one policy, which is sound."""
        return self._sides(1)

    def _sides(self, part: int) -> tuple[float, float]:
        side, base = self.tally.value()[1], -self.tally.dimension()
        reached = self._reach()[part] if side else base
        return (reached if side > 0 else base, reached if side < 0 else base)
