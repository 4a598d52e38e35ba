r"""Baselines behind the interface of `PTST`: a bound on T* in place of the worst case, boxes, and Monte-Carlo returns.

*`KLBTS`* stops when t/U(omega) >= beta(t, delta), with omega = n/t and U(omega) >= T*(omega) the bound of Al Marjani
and Proutiere (2021) at the empirical kernel p; Delta = |V_p - R|, and Var, MD are those of gamma V_p under row p_sa:

    U(omega) = max_sa H_sa/omega_sa,   H_sa = max( 16 Var_sa/(Delta(1-gamma))^2 , 6 (MD_sa/(Delta(1-gamma)))^(4/3) ).

*Why it is sound.* If q lies beyond R, then Delta <= |V_p - V_q| = |sum_sa d_q(s,a) (q - p)_sa gamma V_p|, so that some
row has |(q - p) gamma V_p| >= D = Delta(1-gamma). By Cauchy and Schwarz, with the squared Hellinger distance below
k = KL(p_sa, q_sa) and E_q (gamma V_p - mean)^2 <= Var + MD^2 sqrt(2k),  D^2 <= 4 k Var + 2 sqrt(2) MD^2 k^(3/2). One of
the two terms is at least D^2/2, and then k >= 1/H_sa; half the constants of H would do. So loss(q) >= t/U.

*`RectangularKL`* gives each of the K unknown rows its own confidence set at the level delta/K, for all times at once,

    n_sa KL(p_hat_sa, q_sa) <= log(K/delta) + g_a(N_sa)        (g_a: see `boundaries.MixtureBoundary`),

and answers when robust policy evaluation over the product of the boxes keeps R out. *Its proof:* by Jensen,

    q.c >= y + exp( sum_x p(x) log(c(x) - y) - b )     for every q with KL(p, q) <= b, and every y <= min c.

With the best y this bounds one Bellman step from below, for any values U; if it loses at most e of U in every state,
then no kernel in the box has a value below rho.U - e/(1-gamma).

*`MonteCarlo`* bets on truncated discounted returns from rho. What comes after the horizon H, in state x, is replaced by
gamma^H times the lowest value of x over all allowed kernels for the side "above", by the highest for "below": 0 where
the episode has ended. Scaled to [0, 1] by the least and the largest return of any path (mirrored for "below") this is
X; if the answer would be wrong its mean is at most m, the threshold scaled likewise. Then

    betting      sum_j w_j prod (1 + f_j (X/m - 1))                         for fractions f_j in (0, 1)
    bernstein    prod exp( l (X - m) - (X - mu)^2 (-log(1-l) - l) )         for mu and l in (0, 1/2] from the past
    hoeffding    prod exp( l (X - m) - l^2/8 )                              for l from the past

are nonnegative supermartingales: each ever reaches 1/delta with probability at most delta. The last two, with their
choices of mu and l, are the predictable plug-in processes of Waudby-Smith and Ramdas (2024).
"""

from __future__ import annotations

import numpy as np

from policytest.kl.boundaries import information
from policytest.kl.sampler import Recorded, Source
from policytest.kl.witness import check_listed
from policytest.mdp.task import Task
from policytest.methods.ptst import PTSTRun
from policytest.methods.run import Found, Outcome
from policytest.worst_case.certified import MOST_STATES

GROWTH = 0.005  # the rules are looked at when the samples have grown by this share
LARGEST_BUDGET = 50.0  # of a row, in nats, where the worst values are sought; the proof takes the true one
BOX_ITERATIONS, BISECTIONS, LARGEST_EVIDENCE = 200, 60, 1e6
BATCH, BATCH_GROWTH = 16, 1 / 32  # rollouts at once: this many, or this share of those made


class LookingRun(PTSTRun):
    """Samples and counts as PTST does; the rule is looked at when the samples have grown by 0.5%. Later is sound."""

    def __init__(self, method: object, task: Task, threshold: float, source: Source | Recorded) -> None:
        check_listed(task)
        super().__init__(method, task, threshold, source)
        self.blind_until = int(self.tally.unknown.sum())

    def step(self, required: float, most: int) -> None:
        """Go on to the next look, or to the end of a block."""
        self.draw(most, max(self.blind_until - self.samples, 1))
        if self.samples >= self.blind_until:
            self.look(required)
            self.blind_until = self.samples + max(1, int(np.ceil(GROWTH * self.samples)))

    def look(self, required: float) -> None:
        """Answer, where the rule decides."""
        side = self.tally.value()[1]
        self.answer = ("above" if side > 0 else "below") if side and self.decides(side, required) else None

    judge = update_answer = look

    def _owes_a_look(self, required: float) -> bool:
        """At the end of the samples there is one."""
        return True

    def begin(self, required: float) -> None:
        """A pause adds no look: a resumed run looks when the uninterrupted one does."""

    def decides(self, side: int, required: float) -> bool:
        """Whether the rule excludes the other side."""
        raise NotImplementedError

    def proof(self) -> tuple[float, float]:
        """All of the evidence."""
        return self.evidence()

    def outcome(self, required: float) -> Outcome:
        """What the answer rests on, and the nearest kernel that a local search finds; in large tasks none is sought."""
        side, t = self.tally.value()[1], float(self.tally.n.sum())
        side = side if self.task.n_states <= MOST_STATES else 0
        nearest = self._nearest(side, self.solver, np.inf) if side else None
        per_nat = t / nearest.upper if nearest is not None and nearest.upper > 0 else np.inf
        witness = nearest.kernel if nearest is not None else None
        return Outcome(self.evidence(), Found(witness, per_nat * information(required)))
