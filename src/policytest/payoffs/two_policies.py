r"""Which of two policies is better? Betting on the difference of their temporal differences, along coupled rollouts.

Two policies A and B meet the same unknown kernel q; the question is whether V^A - V^B exceeds a margin m. Choose V0 and
advantages eta for each, from what was seen before, sum_a pi_A eta_A = 0 and sum_a pi_B eta_B = 0, and for a side
sign = 1 ("the difference is above m") or -1

    D_A(s,a,x) =  sign (r_A(s,a,x) - eta_A(s,a) + gamma V0_A(x) - V0_A(s)),
    D_B(s,a,x) = -sign (r_B(s,a,x) - eta_B(s,a) + gamma V0_B(x) - V0_B(s)).

*The coupling.* Both start in the same s from rho. While they are together, an action is drawn from the maximal coupling
of pi_A(.|s) and pi_B(.|s): with probability sum_a min(pi_A, pi_B) the same one, and one draw x serves both; else a from
(pi_A - pi_B)^+ and b from (pi_B - pi_A)^+, normalised, and one draw each: they part, and go on alone. Each chain by
itself is the one of its policy.

*The worst path.* With the sets of actions that these three laws may take,

    B_A(s)  <= min(0, D_A(s,a,x) + gamma B_A(x)),  B_B likewise: as for one policy, see `td_rollouts`,
    B(s)    <= min(0, min over common a, x of (D_A + D_B)(s,a,x) + gamma B(x),
                      min over a, x of D_A(s,a,x) + gamma B_A(x)  +  min over b, y of D_B(s,b,y) + gamma B_B(y)),
    L        = max of -B(s) over rho(s) > 0.

One *rollout* has the sum S = 0 and the weight w = 1/g at its start, and goes on with probability g, w <= L/-B(s).
Together: add w (D_A + D_B), move, go on with probability g and the weight gamma w/g, where g = 1 or
gamma w/g <= (S + L)/-B(x). At a parting: add w D_A(s,a,x) + w D_B(s,b,y); both have the weight gamma w. Then A is run
to its end with S + L + w_B B_B(y) in place of S + L, w_B = gamma w being kept for B; then B with S + L, its coin first.
Where a weight has become very small, add w times B, B_A or B_B there, and end that part.

*S never falls below -L.* Together S + w B(s) >= -L; in the phase of A  S + w_A B_A(x) + w_B B_B(y) >= -L; in that of
B  S + w_B B_B(y) >= -L. Steps keep these by the inequalities above, so does the parting, by the last one; coins by the
choice of g, and where g = 1 since nothing changes; the end of a part since the B's are not positive.

*The mean of S is at most sign (V^A - V^B - rho.(V0_A - V0_B)).* Let E_A = sign (V^A - V0_A), E_B = -sign (V^B - V0_B).
S + w (E_A + E_B)(s) together, S + w_A E_A(x) + w_B E_B(y) apart, is a martingale: given s the action of A has the law
pi_A and that of B the law pi_B, together or not, eta_A and eta_B are centred, so the mean of D_A is
E_A(s) - gamma E_q E_A(x), and so for B; a coin multiplies a weight by 1/g with probability g. And B_A <= E_A,
B_B <= E_B, B <= E_A + E_B: iterate their inequalities along the coupled chain.

So with lead = sign (rho.(V0_A - V0_B) - m) the factor 1 + f (lead + S)/(L - lead), 0 <= f <= 1, is never negative and
has mean at most 1 unless sign (V^A - V^B - m) > 0. The rest is as for one policy: products, Ville, sides, intervals.

While two policies agree nothing is paid for twice, and what they share cancels: the closer they are, the smaller S.
Inside, the rewards of A are centred by c + m and those of B by c, so that differences are compared with 0.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.compiled import episodes, rollouts, search, small
from policytest._base.compiled.small import LARGEST_WEIGHT, TINY, Dynamics, Residuals, RolloutState
from policytest.data.simulators import cumulative
from policytest.eprocess.strategies import Moments
from policytest.kl.witness import centring_error
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.payoffs.coupled_totals import NO_COIN, CoupledTotals
from policytest.payoffs.coupling import Coupling, exact, maximal_coupling, summing_to_one
from policytest.payoffs.known_range import known_difference
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.policy_bet import PolicyBet, part_of, worst_anywhere
from policytest.payoffs.pool import Pool
from policytest.payoffs.td_rollouts import Rollouts
from policytest.payoffs.total_bet import TotalBet

LEAST_FACTOR = 1e-14  # of the capital, that a rollout on its way can leave


class Pair:
    """How two policies go together, and how large the sums of their rollouts were of late.

    Parameters
    ----------
    a, b
        The policies, on the rows of one pool.
    coupling
        How they share actions.
    span
        Where the difference of their values lies for every kernel.
    totals
        The totals of two episodes, where these have bounds.
    """

    def __init__(
        self,
        a: PolicyBet,
        b: PolicyBet,
        coupling: Coupling,
        span: tuple[float, float],
        totals: CoupledTotals | None = None,
    ) -> None:
        self.policies, self.coupling, self.span, self.totals = (a, b), coupling, span, totals
        self.recent = Moments()  # of sums, earlier ones counting less

    def parted(self, made: Dynamics) -> Dynamics:
        """Where rollouts go: with a common action, or one of each policy."""
        common, first, second = self.coupling
        return made._replace(
            together=cumulative(np.concatenate([common, first], axis=1)),
            leaving=cumulative(second / np.maximum(second.sum(axis=1, keepdims=True), 1e-300)),
            alone_b=cumulative(self.policies[1].task.policy),
        )

    def settled(self, plan: BettingPlan, sums: FloatArray) -> None:
        """Remember how large the sums are."""
        if self.totals is not None:
            self.totals.check(plan, sums)
        self.recent.add(sums)

    def noise(self, room: float) -> float:
        """The mean of S^2 of recent rollouts, with one more that has lost all, in units of room^2."""
        v = self.recent.square(room)
        self.recent.fade(0.5)
        return v

    def visits(self, q: FloatArray, occupancies: Sequence[FloatArray]) -> list[FloatArray] | None:
        """[H E] the discounted numbers of visits of each transition: together, A alone, B alone."""
        first = self.policies[0]
        rows, task = first.pool.tally.rows, first.task
        if task.is_total:
            return None
        common = rows._replace(prob=self.coupling.common.ravel()[rows.pair], gain=np.zeros(0))
        if task.steps is not None:
            d = episodes.by_steps(common, q, task.discount, task.initial, task.steps)[1]
        else:
            d = search.values_and_occupancy(common, q, task.discount, task.initial)[1][None, :]
        both, own = d[:, rows.state] * common.prob, zip(occupancies, self.policies, strict=True)
        alone = (np.maximum(d.reshape(len(both), -1)[:, rows.state] * policy.prob - both, 0.0) for d, policy in own)
        return [(q * rows.per_entry(weight)).ravel() for weight in (both, *alone)]

    # ------------------------------------------------------------ worst paths

    def worst(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """B at every place, for the two together; infinite where totals have no bound on this side.

        Where any state may follow any pair the worst path has a closed form, as for one policy. Where totals have
        bounds B is so low that no coin is thrown.
        """
        (first, second), (a, b) = self.policies, parts
        if self.totals is not None:
            return np.where(first.over, TINY, NO_COIN)
        task, rows, gamma = first.task, first.pool.tally.rows, first.task.discount
        shared = np.flatnonzero(self.coupling.common.ravel()[rows.pair] > 0)
        U, floor = a.V - b.V, self._parting(parts, sign)
        base = (a.base - b.base).reshape(first.layers, -1)[:, shared].ravel()
        if task.is_discounted_table and first.task.any_successor and second.task.any_successor:
            least, ends = np.full(task.n_states, np.inf), np.minimum(floor, 0.0)
            np.minimum.at(least, rows.state[shared], sign * base)
            finite = np.abs(ends).max() + np.abs(base).max(initial=0.0) / (1.0 - gamma)
            return worst_anywhere(least, sign * U, ends, gamma, float(finite + np.abs(a.V).max() + np.abs(b.V).max()))
        chosen, entries = part_of(rows._replace(gain=np.zeros(0)), shared)
        chosen = chosen._replace(gain=_difference(a.gain, b.gain, entries))
        if first.H is not None:
            return np.asarray(episodes.worst_steps(chosen, base, U, floor, first.over, sign, gamma, first.H))
        if gamma == 1.0:
            ends = sign * U + np.minimum(floor, 0.0)
            ends = np.where(first.returns | second.returns, np.minimum(ends, 0.0), ends)
            C, missed = episodes.least_totals(chosen, base, ends, sign)
            B: FloatArray = np.minimum(C - sign * U - LARGEST_WEIGHT * first.longest * missed, 0.0)
        else:
            B = rollouts.worst_paths(chosen, base, U, floor, sign, gamma)
        B[first.over] = TINY
        return B

    def _parting(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """[H S] the worst that can follow when the two part at s; infinite where they do not."""
        first = self.policies[0]
        rows, total = first.pool.tally.rows, np.zeros((first.layers, first.task.n_states))
        laws = self.coupling.first, self.coupling.second
        for policy, part, side, law in zip(self.policies, parts, (sign, -sign), laws, strict=True):
            lowest = policy.lowest_steps(part.V, part.base, part.B, side)
            lowest[:, law.ravel()[rows.pair] <= 0] = np.inf
            total += np.minimum.reduceat(lowest, policy.first_rows, axis=1)
        return total.ravel()

    def worst_sum(self, plan: BettingPlan, at: RolloutState) -> float:
        """The least sum at which the rollout on its way can end; with bounds on totals, all may be lost until then."""
        if self.totals is not None or at.phase in (small.B_PARTS, small.B_IN_TURN):
            return -plan.L
        if at.phase == small.TOGETHER:
            return float(at.earned + at.weight * plan.B[int(at.state)])
        a_goes_on = at.phase in (small.A_ALONE, small.A_IN_TURN)
        worst_of_a = at.weight * plan.a.B[int(at.state)] if a_goes_on else 0.0
        return float(at.earned + at.weight_b * plan.b.B[int(at.state_b)] + worst_of_a)

    def is_possible(self, plan: BettingPlan, at: RolloutState) -> bool:
        """Whether a rollout can be on its way like this."""
        S, weights = len(plan.B), (at.weight, at.weight_b)
        in_phase = 0 <= at.phase == int(at.phase) <= small.B_NEXT
        somewhere = all(place == int(place) for place in (at.state, at.state_b)) and 0 <= at.state < S
        least_b = -1 if at.phase == small.TOGETHER else 0
        somewhere = somewhere and least_b <= at.state_b < S
        weighted = all(0 <= weight <= 1.0 / small.SMALLEST_CHANCE**2 for weight in weights)
        if not (in_phase and somewhere and weighted):
            return False
        left = 1.0 + plan.fractions * (plan.lead + self.worst_sum(plan, at)) / plan.room
        return bool((left > LEAST_FACTOR).all())

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The recent sums."""
        return {"recent": self.recent.state()} | ({} if self.totals is None else self.totals.state())

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""
        self.recent.restore(state["recent"])
        if self.totals is not None:
            self.totals.restore(state)


def two_policies(task_a: Task, task_b: Task, margin: float, pool: Pool) -> Rollouts:
    """The rollouts of a comparison of two policies, on the rows of their shared pool."""
    known = known_difference(task_a, task_b)
    if task_a.is_discounted_table:
        centre = 0.25 * (sum(value_range(task_a)) + sum(value_range(task_b)))
        first, second = (value_range_error(task) + centring_error(task, centre) for task in (task_a, task_b))
        a = PolicyBet(exact(task_a, centre + margin), pool, first)
        b = PolicyBet(exact(task_b, centre), pool, second)
        totals = None
    else:
        a, b = (TotalBet(summing_to_one(task), pool) for task in (task_a, task_b))
        totals = None if task_a.total_rewards is None else CoupledTotals(task_a, (a, b), pool.source)
    coupling = maximal_coupling(a.task.policy, b.task.policy)
    return Rollouts(task_a, margin, (a, b), Pair(a, b, coupling, (known.low, known.high), totals))


def _difference(first: FloatArray, second: FloatArray, entries: IntArray) -> FloatArray:
    """The difference of rewards on successors; empty where there are none."""
    if not len(first) and not len(second):
        return np.zeros(0)
    return np.asarray((first[entries] if len(first) else 0.0) - (second[entries] if len(second) else 0.0))
