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
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from policytest._base.arrays import Arrays, BoolArray, FloatArray, IntArray
from policytest._base.compiled import episodes as kernels
from policytest._base.compiled.small import LARGEST_WEIGHT, TINY
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.data.reward_moments import RewardMoments
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded
from policytest.kl.witness import WitnessedCounts, is_open
from policytest.mdp.horizon import evaluated, over_in
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task, counting_task
from policytest.payoffs.draws import Supply
from policytest.payoffs.policy_bet import PAIR_MASS, STATE_MASS, PolicyBet, Pool, part_of, rounded


class TotalPool(Pool):
    """Counts, draws and the fitted model, with the sums of observed rewards [K] and of their squares.

    ``moments`` has the same by transition, for forecasts.
    """

    def __init__(self, task: Task, tally: WitnessedCounts, source: Supply) -> None:
        super().__init__(tally, source)
        pair, rewards = tally.rows.pair, task.rewards
        if isinstance(rewards, Observed):
            self.only = np.where(task.known_rows.ravel()[pair], tally.rows.successor[tally.rows.start[:-1]], -1)
            self.low, self.high = rewards.low.ravel()[pair], rewards.high.ravel()[pair]
            self.moments = RewardMoments(tally.rows, task.n_states)
        self.sums, self.squares = np.zeros(len(pair)), np.zeros(len(pair))

    def record(self, pair: IntArray, x: IntArray, rewards: FloatArray) -> None:
        """Count the transitions, and add up the rewards that were observed."""
        super().record(pair, x, rewards)
        self._record_rewards(pair, x, rewards)

    def _record_rewards(self, pair: IntArray, x: IntArray, rewards: FloatArray) -> None:
        if self.moments is None:
            return
        k = self.tally.task.layout.row_of_pair[pair]
        drawn = self.only[k] < 0
        np.add.at(self.sums, k[drawn], rewards[drawn])
        np.add.at(self.squares, k[drawn], rewards[drawn] ** 2)
        self.moments.record(k[drawn], x[drawn], rewards[drawn])

    def state(self) -> Arrays:
        """The rewards that were observed, and what was drawn ahead."""
        kept = {"rewards": np.array([self.sums, self.squares]), **self.source.stacks()}
        return kept if self.moments is None else {**kept, "reward_moments": self.moments.table.copy()}

    def restore(self, state: Arrays) -> None:
        """Go on from what was kept."""
        rewards = np.array(state["rewards"], dtype=np.float64)
        if rewards.shape != (2, len(self.sums)) or not np.isfinite(rewards).all():
            raise ValueError("the sums of rewards do not fit the task")
        self.sums, self.squares = rewards
        if self.moments is not None:
            self.moments.restore(state["reward_moments"])
        self.source.restore_stacks(state)

    def learn(self, rows: Recorded) -> None:
        """Transitions that are counted, and never bet on, with their rewards where these are observed."""
        super().learn(rows)
        if self.moments is not None:
            drawn = rows.k >= 0
            self._record_rewards(self.tally.rows.pair[rows.k[drawn]], rows.x[drawn], rows.r[drawn])

    def mean_rewards(self) -> FloatArray:
        """[K] fitted: a pair's mean drawn to its state's, and that to the mean of all; within the range of the pair."""
        rows, n, S = self.tally.rows, self.tally.n, self.tally.task.n_states
        middle = 0.5 * (self.low + self.high)
        mean = (self.sums.sum() + middle.mean()) / (n[self.only < 0].sum() + 1.0)
        by_state = np.bincount(rows.state, self.sums, minlength=S) + STATE_MASS * mean
        state = (by_state / (np.bincount(rows.state, n, minlength=S) + STATE_MASS))[rows.state]
        return np.asarray(np.clip((self.sums + PAIR_MASS * state) / (n + PAIR_MASS), self.low, self.high))

    def reward_noise(self) -> FloatArray:
        """[K] the variance of observed rewards, fitted; a quarter of the squared range where nothing is known."""
        n, most = self.tally.n, 0.25 * (self.high - self.low) ** 2
        variance = (self.squares + most) / (n + 1.0) - (self.sums / np.maximum(n, 1.0)) ** 2
        return np.asarray(np.clip(variance, 0.0, most))

    def observed_means(self) -> FloatArray:
        """[K] the plain means, and the middle of the range where nothing was seen."""
        n = self.tally.n
        return np.where(n > 0, self.sums / np.maximum(n, 1.0), 0.5 * (self.low + self.high))


def pool_in_time(task: Task, supply: Supply) -> TotalPool:
    """The counts and draws of a task: the rows that its policy takes, all successors listed."""
    counted = counting_task(task)
    if is_open(counted):
        raise InputError(f"task: any of {task.n_states:,} states may follow each pair; declare `support`")
    return TotalPool(task, WitnessedCounts(counted, 0.0, MixtureBoundary()), supply)


class TotalBet(PolicyBet):
    """One policy on the rows of an `TotalPool`. Nothing is centred: rho.V0 is compared with the threshold.

    V0 is [(H+1) S] and the advantages are [H K] where there is a horizon H, else [S] and [K].
    """

    pool: TotalPool

    def __init__(self, task: Task, pool: TotalPool) -> None:
        self.observed, self.over, self.H = task.observes_rewards, over_in(task), task.steps
        self.layers = self.H or 1
        super().__init__(task, pool, alone=True)
        self.reward = self._fitted()
        self.ends_total = [self._total_end(sign) for sign in (1.0, -1.0)] if task.is_total else None
        self.returns = may_return(self._taken_rows(self.reward), self.over)
        self.V = np.zeros(task.n_states * (1 if self.H is None else self.H + 1))

    def _known_reward(self) -> FloatArray:
        """[K] the rewards on pairs; 0 where they are observed."""
        return np.where(self.pool.only >= 0, self.pool.low, 0.0) if self.observed else super()._known_reward()

    def limit_steps(self, longest: float) -> None:
        """From now on rollouts end at their worst after so many steps."""
        self.longest = longest

    def _fitted(self) -> FloatArray:
        """[K] the rewards on pairs: known, or fitted."""
        return self.pool.mean_rewards() if self.observed else self.known_reward

    def _total_end(self, sign: float) -> FloatArray:
        """[S] the least total of any path (sign 1), at most 0; or the largest."""
        rows = self._taken_rows(self._worst_rewards(sign))
        return np.asarray(sign * kernels.least_totals(rows, rows.reward, np.zeros(self.task.n_states), sign)[0])

    def _worst_rewards(self, sign: float) -> FloatArray:
        if not self.observed:
            return self.known_reward
        return np.where(self.pool.only >= 0, self.known_reward, self.pool.low if sign > 0 else self.pool.high)

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
        reward = self.pool.observed_means() if self.observed else self.known_reward
        V = evaluated(self.task, self.rows()._replace(reward=reward), self.pool.tally.estimate()).V
        return np.asarray(V if self.H is None else V[0])

    def _by_steps(self, V: FloatArray) -> tuple[FloatArray, FloatArray]:
        """V0 here and V0 after a step, [H,S] each (H = 1 without a horizon)."""
        if self.H is None:
            return V[None, :], V[None, :]
        table = V.reshape(self.H + 1, -1)
        return table[:-1], table[1:]

    def base(self, V: FloatArray, q: FloatArray | None, share: float) -> FloatArray:
        """[H K] what is known of r - eta. With a bound on totals eta = 0, and the reward is the one that is earned."""
        rows = self.pool.tally.rows
        if self.task.total_rewards is not None or self.observed:
            base = np.tile(self.known_reward, self.layers)
        else:
            base = np.tile(self.centre[rows.state], self.layers)
        if share == 0.0 or q is None:
            return base
        worth = self.task.discount * self._by_steps(V)[1][:, rows.successor] + self.paid
        mean = np.add.reduceat(q * worth, rows.start[:-1], axis=1)
        if self.observed:
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
        if not self.observed:
            return base
        return np.asarray(base + np.tile(np.where(self.pool.only >= 0, 0.0, self._worst_rewards(sign)), self.layers))

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
        if not self.observed:
            return base
        return np.asarray(base + np.tile(np.where(self.pool.only >= 0, 0.0, self.reward), self.layers))

    def reward_noise(self) -> FloatArray:
        """[K] fitted, where rewards are observed."""
        return self.pool.reward_noise() if self.observed else super().reward_noise()


def may_return(rows: Rows, over: BoolArray) -> BoolArray:
    """[S] the states, not terminal, to which an allowed path leads back."""
    from scipy.sparse.csgraph import connected_components  # slow to import, and rarely needed

    S, state = len(over), rows.state[rows.of_entry()]
    edges = sparse.csr_array((np.ones(rows.n_entries), (state, rows.successor.astype(np.int64))), shape=(S, S))
    _, part = connected_components(edges, directed=True, connection="strong")
    return np.asarray(((np.bincount(part)[part] > 1) | (edges.diagonal() > 0)) & ~over)
