r"""One policy beyond the discounted table: observed rewards, a horizon, totals without a discount.

The process of `policytest.payoffs.td_rollouts` needs less than a discounted table. Let rewards have any law on
[low, high], V0(t,s) be any function with V0 = 0 at the horizon and in terminal states, eta(t,s,a) centred under pi, and

    D       = sign (r - eta + gamma V0(t+1,x) - V0(t,s)),
    B(t,s) <= min(0, D + gamma B(t+1,x))  for every action, allowed x, and r in [low, high].

The proof is the same: S >= -L on every path, and S + w sign (V_q - V0)(t,s) is a martingale. V0 is fitted from the
counts and the mean rewards, which all steps share; only V0 and B depend on the step.

- *A horizon*: V0 and B by backward induction.
- *Discount 1, no horizon*: eta = 0, so that sums of D telescope, and with C = B + sign V0

      C(s) <= min(sign V0(s), sign r + C(x)),   and C(s) <= 0 in states to which a path may return:

  the least total of a path, also of one that never ends: B <= sign (V_q - V0) must hold for it, too. It is infinite
  where a path can go round a cycle that loses. Then this side cannot be refuted.
- *A bound (low, high) on the total of any episode*: with G earned so far, V0 is kept in [low - G, high - G], and
  B = low - G - V0 (sign 1) or G + V0 - high: then D + B after a step is B before it.
- A rollout that does not end is ended at its worst, S + w B, after a number of steps that was fixed before it.

*The even pace bets on whole paths.* Let the discount be 1 and eta = 0. Residuals telescope: while the weight is 1, S in
state s is sign (G + V0(s) - V0(s0)), with G earned since the start s0. Let C(s) be the least of sign times what
can still be earned, B = C - sign V0 the exact worst sum, and L = -B(s0) from one start. The weight stays 1 if

    S + L <= -B(s),   that is   sign G + C(s) <= C(s0),

where what was earned has not raised the least total that is possible. That is so if the value is the probability of a
goal and both outcomes stay possible until the end, and where totals have the bounds (low, high). Then no coin ends
a path, and at its end

    lead + S = sign (G - R),    room = L - lead = sign R - C(s0) = R - low, or high - R,

whatever V0 is, if it lies in the range of values: outcome and range are those of a bet on the whole path. The other
side has the outcome -(lead + S), and its own room. V0 only matters for what is staked, and for other paces. (From
several starts outcomes differ from those of whole paths by V0(s0) - rho.V0, which has the mean 0.)
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.compiled import episodes as kernels
from policytest._base.compiled.small import LARGEST_WEIGHT, TINY
from policytest._base.rows import Rows
from policytest.mdp.horizon import evaluated
from policytest.mdp.task import Task
from policytest.payoffs.policy_bet import PolicyBet, part_of, rounded
from policytest.payoffs.pool import Pool


class TotalBet(PolicyBet):
    """One policy on the rows of a pool. Nothing is centred: rho.V0 is compared with the threshold.

    V0 is [(H+1) S] and the advantages are [H K] where there is a horizon H, else [S] and [K].
    """

    def __init__(self, task: Task, pool: Pool) -> None:
        self.observed = pool.observed
        super().__init__(task, pool, alone=True)
        self.reward = self._fitted()
        self.ends_total = [self._total_end(sign) for sign in (1.0, -1.0)] if task.is_total else None
        self.returns = may_return(self._taken_rows(self.reward), self.over)
        self.V = np.zeros(task.n_states * (1 if self.H is None else self.H + 1))

    def _known_reward(self) -> FloatArray:
        """[K] the rewards on pairs; 0 where they are observed."""
        observed = self.pool.observed
        return super()._known_reward() if observed is None else np.where(observed.drawn, 0.0, observed.low)

    def _fitted(self) -> FloatArray:
        """[K] the rewards on pairs: known, or fitted."""
        return self.known_reward if self.observed is None else self.observed.means()

    def _total_end(self, sign: float) -> FloatArray:
        """[S] the least total of any path (sign 1), at most 0; or the largest."""
        rows = self._taken_rows(self._worst_rewards(sign))
        return np.asarray(sign * kernels.least_totals(rows, rows.reward, np.zeros(self.task.n_states), sign)[0])

    def _worst_rewards(self, sign: float) -> FloatArray:
        observed = self.observed
        return self.known_reward if observed is None else observed.low if sign > 0 else observed.high

    def _taken_rows(self, reward: FloatArray) -> Rows:
        """The rows that the policy takes, with these rewards on pairs."""
        return part_of(self.rows()._replace(reward=reward), self.k)[0]

    def values(self, q: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """V0 by steps, one after the other, and the occupancy of the fitted kernel likewise."""
        assert q is not None
        task, self.reward = self.task, self._fitted()
        found = evaluated(task, self.rows(), q)
        V, d = found.V, np.where(np.isfinite(found.d), found.d, 0.0)
        V = np.where(np.isfinite(V), V, 0.0)
        if self.ends_total is not None:
            V = np.clip(V, *(self.ends_total if task.total_rewards is None else task.total_rewards))
        V = rounded(V)
        V[..., self.over] = 0.0
        if self.H is not None:
            V, d = np.append(V.ravel(), np.zeros(task.n_states)), d.ravel()
        self.V = V
        return V, d

    def empirical_values(self) -> FloatArray:
        """[S] the values of the empirical kernel from the first step on, with the means of the observed rewards."""
        reward = self.known_reward if self.observed is None else self.observed.plain_means()
        V = evaluated(self.task, self.rows()._replace(reward=reward), self.pool.tally.estimate()).V
        return np.asarray(V if self.H is None else V[0])

    def start_mean(self, values: FloatArray) -> float:
        """The mean over the states in which episodes start; totals from other states may be infinite."""
        starts = self.task.initial > 0
        return float(self.task.initial[starts] @ values[starts])

    def estimate(self) -> float:
        """The value of the empirical kernel, with the means of the observed rewards."""
        return self.start_mean(self.empirical_values()) + self.task.reached_at_start

    def _by_steps(self, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V0 here and V0 after a step, [H,S] each (H = 1 without a horizon)."""
        if self.H is None:
            return V[None, :], V[None, :]
        table = V.reshape(self.H + 1, -1)
        return table[:-1], table[1:]

    def base(self, V: FloatArray, q: FloatArray | None, share: float) -> FloatArray:
        """[H K] what is known of r - eta. With a bound on totals eta = 0, and the reward is the one that is earned."""
        rows = self.pool.tally.rows
        bounded = self.task.total_rewards is not None or self.observed is not None
        base = np.tile(self.known_reward if bounded else self.centre[rows.state], self.layers)
        if share == 0.0 or q is None:
            return base
        worth = self.task.discount * self._by_steps(V)[1][:, rows.successor] + self.paid
        mean = np.add.reduceat(q * worth, rows.start[:-1], axis=1)
        if self.observed is not None:
            mean += self.reward
        by_state = self.by_state(self.prob * mean)
        return np.asarray(base - share * (mean - by_state[:, rows.state]).ravel())

    def worst(self, V: FloatArray, base: FloatArray, sign: float) -> FloatArray:
        """B at every place, positive where an episode is over; infinite where totals have no bound on this side."""
        task = self.task
        base = self._at_worst(base, sign)
        if self.H is not None:
            chosen = self._taken_rows(self.reward)
            taken = base.reshape(self.H, -1)[:, self.k].ravel()
            return np.asarray(
                kernels.worst_steps(chosen, taken, V, np.zeros(0), self.over, sign, task.discount, self.H)
            )
        if task.total_rewards is not None:
            low, high = task.total_rewards
            B = low - V if sign > 0 else V - high
        elif task.discount == 1.0:
            chosen = self._taken_rows(self.reward)
            first = np.where(self.returns, np.minimum(sign * V, 0.0), sign * V)
            C, missed = kernels.least_totals(chosen, base[self.k], first, sign)
            B = C - sign * V - LARGEST_WEIGHT * self.longest * missed
        else:
            B = super().worst(V, base, sign)
        B = np.minimum(B, 0.0)
        B[self.over] = TINY
        return B

    def _at_worst(self, base: FloatArray, sign: float) -> FloatArray:
        """[H K] with the worst of the rewards that are observed."""
        return self._with_observed(base, self._worst_rewards(sign))

    def lowest_steps(self, V: FloatArray, base: FloatArray, B: FloatArray, sign: float) -> FloatArray:
        """[H,K] the least of D(t,s,a,x) + gamma B(t+1,x) over x and rewards."""
        rows, (here, after) = self.pool.tally.rows, self._by_steps(V)
        known = self._at_worst(base, sign).reshape(self.layers, -1) - here[:, rows.state]
        worst = np.minimum(self._by_steps(B)[1], 0.0)
        onward = sign * (self.task.discount * after[:, rows.successor] + self.paid)
        onward = onward + self.task.discount * worst[:, rows.successor]
        return np.asarray(sign * known + np.minimum.reduceat(onward, rows.start[:-1], axis=1))

    def residuals(self, V: FloatArray, base: FloatArray) -> FloatArray:
        """[H E] r - eta + gamma V0(t+1,x) - V0(t,s), with fitted rewards where these are observed."""
        rows, (here, after) = self.pool.tally.rows, self._by_steps(V)
        base = self.expected_base(base).reshape(self.layers, -1) - here[:, rows.state]
        worth = self.task.discount * after[:, rows.successor] + self.paid
        return np.asarray(rows.per_entry(base) + worth).ravel()

    def expected_base(self, base: FloatArray) -> FloatArray:
        """[H K] with fitted rewards where these are observed."""
        return self._with_observed(base, self.reward)

    def _with_observed(self, base: FloatArray, reward: FloatArray) -> FloatArray:
        """[H K] with these rewards [K] where they are observed."""
        if self.observed is None:
            return base
        return np.asarray(base + np.tile(np.where(self.observed.drawn, reward, 0.0), self.layers))


def may_return(rows: Rows, over: BoolArray) -> BoolArray:
    """[S] the states, not terminal, to which an allowed path leads back."""
    from scipy.sparse.csgraph import connected_components  # slow to import, and rarely needed

    S, state = len(over), rows.state[rows.of_entry()]
    edges = sparse.csr_array((np.ones(rows.n_entries), (state, rows.successor.astype(np.int64))), shape=(S, S))
    _, part = connected_components(edges, directed=True, connection="strong")
    return np.asarray(((np.bincount(part)[part] > 1) | (edges.diagonal() > 0)) & ~over)
