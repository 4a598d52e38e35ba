"""One policy on counted rows: its fitted values, its advantages, its worst paths and its residuals."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property

import numpy as np
from scipy import sparse

from policytest._base.arrays import Arrays, BoolArray, FloatArray, IntArray
from policytest._base.compiled import rollouts, search
from policytest._base.compiled.small import TINY, Residuals
from policytest._base.rows import Rows, first_of_state
from policytest.mdp.horizon import over_in
from policytest.mdp.task import Task
from policytest.payoffs.plan import NO_POLICY, SHARES, BettingPlan
from policytest.payoffs.pool import PAIR_MASS, STATE_MASS, Pool

MOST_LISTED = 200_000  # where any state may follow, from this many entries on only observed successors are listed
MANY_STATES, MANY_ENTRIES = 2000, 500_000  # above either, with a declared support, bets are fitted to visited states
LONG = 999.0  # 1/(1-gamma) above which a rollout ends in a closed state, not after as many steps there: from 0.999 on
MOST_SWEEPS, CLOSE_ENOUGH = 2000, 1e-6  # of value iteration, where few of the allowed successors are listed
NONE = np.zeros(0, dtype=np.int64)


class PolicyBet:
    """One policy on the rows of a pool. The rewards of the task are centred; ``rounding`` is what that does to values.

    ``alone``: no other policy has drawn from the pool. Then the successors of a state are draws from its row
    sum_a pi(a|s) p(x|s,a), whatever the actions were, and values are fitted to these rows.

    A *closed* state is followed by itself alone, whatever is done: its value is known. With V0 equal to that nothing is
    left to bet on, and a rollout may end there: S + w sign (V_q - V0)(s), a martingale, is S. Its B is TINY, which says
    so to the compiled code. (With a discount well below 1 coins end it as soon.)
    """

    centre: FloatArray  # [S] the mean of r^pi(s) - eta(s,a) over actions; without rewards on successors, or observed
    closed: IntArray = NONE  # closed states in which a rollout ends
    returns: BoolArray  # [S] the states, not terminal, to which a path may return, beyond the discounted table
    longest = 0.0  # steps after which a rollout ends at its worst, where these are limited

    def __init__(self, task: Task, pool: Pool, rounding: float = 0.0, alone: bool = False) -> None:
        self.task, self.pool, self.rounding, self.alone = task, pool, rounding, alone
        rows, S = pool.tally.rows, task.n_states
        self.H, self.layers = task.steps, task.steps or 1  # the steps of an episode with a horizon; 1 without one
        self.over = np.zeros(S, dtype=bool) if task.is_discounted_table else over_in(task)  # episodes have ended here
        self.prob = task.policy.ravel()[rows.pair]
        self.k = np.flatnonzero(self.prob > 0)
        self.on_successor = task.rewards_on_successor
        self.gain = rows.pick(task.rewards, S) if self.on_successor else np.zeros(0)
        self.paid: FloatArray | float = self.gain if self.on_successor else 0.0
        self.reward = self.known_reward = self._known_reward()
        self.centre, left = self.mean_over_actions(self.known_reward), 1.0 - task.discount or 1.0
        self.V = self.centre / left  # fitted last
        self.closed = self._closed_states() if task.is_discounted_table and task.expected_steps > LONG else NONE
        earned = self.centre
        if len(self.closed) and self.on_successor:
            earned = earned + np.bincount(rows.state, self.prob * rows.sums(self.gain))
        self.closed_values = earned[self.closed] / left

    def _known_reward(self) -> FloatArray:
        """[K] the rewards on pairs."""
        pair = self.pool.tally.rows.pair
        return np.zeros(len(pair)) if self.on_successor else self.task.rewards.ravel()[pair]

    def mean_over_actions(self, reward: FloatArray) -> FloatArray:
        """[S] the mean of rewards [K]."""
        rows = self.pool.tally.rows
        return np.bincount(rows.state, self.prob * reward, minlength=self.task.n_states).astype(np.float64)

    def _closed_states(self) -> IntArray:
        """The states that are followed by themselves alone."""
        rows, only = self.pool.tally.rows, self.pool.only
        leaves = np.bincount(rows.state, only != rows.state, minlength=self.task.n_states)
        return np.flatnonzero(leaves == 0)

    def state(self) -> Arrays:
        """What a run keeps for later, beyond counts and plan."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Go on from what was kept."""

    def limit_steps(self, longest: float) -> None:
        """From now on rollouts end at their worst after so many steps."""
        self.longest = longest

    def take_values(self, V: FloatArray) -> None:
        """These values were chosen."""
        self.V = V

    @cached_property
    def first_rows(self) -> IntArray:
        """[S] the first row of each state."""
        return first_of_state(self.pool.tally.rows)

    def rows(self) -> Rows:
        """The rows of the pool, with this policy and these rewards."""
        return self.pool.tally.rows._replace(prob=self.prob, reward=self.reward, gain=self.gain)

    def values(self, q: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """V0, and the occupancy of the fitted kernel where there is one."""
        task, d = self.task, None
        if q is None:
            V = self._open_values()
        else:
            V, d, _ = search.values_and_occupancy(self.rows(), q, task.discount, task.initial)
            V = np.where(np.isfinite(V), V, 0.0)
        self.V = rounded(V)
        self.V[self.closed] = self.closed_values
        return self.V, d

    def _open_values(self) -> FloatArray:
        """Values where any state may follow and few do: rows of pairs drawn to those of states, and these to the mean.

        Of a policy that is alone: rows of states. The sweeps start from the values before.
        """
        tally, S, gamma = self.pool.tally, self.task.n_states, self.task.discount
        rows = tally.rows
        visits = np.bincount(rows.state, tally.n, minlength=S)
        P = sparse.csr_array((tally.N, rows.successor, rows.start), shape=(len(rows.pair), S))
        alone = self.alone and not self.pool.is_taught
        V = self.V if alone else self.centre / (1.0 - gamma)
        for _ in range(MOST_SWEEPS):
            earned = P @ V
            by_state = np.bincount(rows.state, earned, minlength=S) + STATE_MASS * V.mean()
            mean = (by_state / (visits + STATE_MASS))[rows.state]
            if not alone:
                mean = (earned + PAIR_MASS * mean) / (tally.n + PAIR_MASS)
            new = self.centre + gamma * np.bincount(rows.state, self.prob * mean, minlength=S)
            moved, V = np.abs(new - V).max(), new
            if moved <= CLOSE_ENOUGH * np.abs(V).max():
                break
        return V

    def expected_base(self, base: FloatArray) -> FloatArray:
        """[K] r^pi(s) - eta(s,a) with what is expected of rewards that are observed."""
        return base

    def reward_noise(self) -> FloatArray:
        """[K] the variance of observed rewards, fitted."""
        return np.zeros(len(self.prob)) if self.pool.observed is None else self.pool.observed.variances()

    def start_mean(self, values: FloatArray) -> float:
        """The mean of values [S] over the states in which rollouts start."""
        return float(self.task.initial @ values)

    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.pool.tally.value()[0]

    def empirical_values(self) -> FloatArray:
        """[S] the values of the empirical kernel."""
        q, task = self.pool.tally.estimate(), self.task
        return np.asarray(search.values_and_occupancy(self.rows(), q, task.discount, task.initial)[0])

    def row_visits(self, d: FloatArray) -> FloatArray:
        """[K] the discounted visits of each pair in a rollout, by those of states [H S]; H = 1 without a horizon."""
        return np.asarray(d.reshape(-1, self.task.n_states).sum(axis=0)[self.pool.tally.rows.state] * self.prob)

    def entry_visits(self, q: FloatArray, d: FloatArray) -> FloatArray:
        """[H E] the discounted visits of each transition that the model expects."""
        rows = self.pool.tally.rows
        by_row = d.reshape(-1, self.task.n_states)[:, rows.state] * self.prob
        return np.asarray(q * rows.per_entry(by_row)).ravel()

    def base(self, V: FloatArray, q: FloatArray | None, share: float) -> FloatArray:
        """[K] r^pi(s) - eta(s,a), eta a share of the advantages of the model; without rewards on successors."""
        rows = self.pool.tally.rows
        base = self.centre[rows.state]
        if share == 0.0 or q is None:
            return base
        worth = self.task.discount * V[rows.successor] + self.paid
        mean = rows.sums(q * worth)
        by_state = np.bincount(rows.state, self.prob * mean, minlength=self.task.n_states)
        return np.asarray(base - share * (mean - by_state[rows.state]))

    def is_centred(self, base: FloatArray, size: float) -> bool:
        """Whether the advantages in ``base`` have the mean 0 in every state, up to rounding of numbers of this size."""
        mean = self.by_state(self.prob * base.reshape(-1, len(self.prob)))
        return bool(np.abs(mean - self.centre).max() <= size)

    def by_state(self, table: FloatArray) -> FloatArray:
        """[H,S] the sums over the rows [H,K] of each state; every state has one."""
        return np.asarray(np.add.reduceat(table, self.first_rows, axis=1))

    def bet(self, V: FloatArray, base: FloatArray, sign: float) -> Residuals:
        """The bet on these values and advantages, with its worst paths."""
        B = self.worst(V, base, sign)
        B[self.closed] = TINY
        return Residuals(V, base, self.gain, B)

    def worst(self, V: FloatArray, base: FloatArray, sign: float) -> FloatArray:
        """[S] the worst sum of residuals along any path of this policy.

        Where any state may follow any pair the worst path ends up in one state for good: closed form.
        """
        task, gamma, S = self.task, self.task.discount, self.task.n_states
        if not task.any_successor:
            rows = self.rows() if len(self.k) == len(self.prob) else part_of(self.rows(), self.k)[0]
            return np.asarray(rollouts.worst_paths(rows, base[self.k], V, np.zeros(S), sign, gamma))
        least = least_by_state(sign * base, self.pool.tally.rows.state, self.k, S)
        size = np.abs(base).max() / (1.0 - gamma) + np.abs(V).max()
        return worst_anywhere(least, sign * V, np.zeros(S), gamma, float(size))

    def lowest_steps(self, V: FloatArray, base: FloatArray, B: FloatArray, sign: float) -> FloatArray:
        """[H,K] the least of D(s,a,x) + gamma B(x) over x; H = 1 without a horizon."""
        rows, gamma = self.pool.tally.rows, self.task.discount
        if self.task.any_successor:
            return np.asarray(sign * (base - V[rows.state]) + gamma * float((sign * V + B).min()))[None, :]
        step = sign * self.residuals(V, base) + gamma * B[rows.successor]
        return np.minimum.reduceat(step, rows.start[:-1])[None, :]

    def residuals(self, V: FloatArray, base: FloatArray) -> FloatArray:
        """[E] r - eta + gamma V0(x) - V0(s)."""
        rows, gamma = self.pool.tally.rows, self.task.discount
        return np.asarray(rows.per_entry(base - V[rows.state]) + self.paid + gamma * V[rows.successor])


def is_large(task: Task) -> bool:
    """Whether bets are fitted to the visited states; see `policytest.payoffs.visited`."""
    if not task.is_discounted_table or task.support is None:
        return False
    return task.n_states > MANY_STATES or task.layout.n_entries > MANY_ENTRIES


def worst_anywhere(least: FloatArray, V: FloatArray, ends: FloatArray, gamma: float, size: float) -> FloatArray:
    """[S] B where any state may follow: the worst path ends somewhere, at ``ends``, or stays in the worst state.

    ``least`` [S] is the least of sign (r - eta) in each state, V is sign V0; ``size`` bounds what rounding can do.
    """
    lowest = min(float((V + ends).min()), float(least.min()) / (1.0 - gamma))
    return np.asarray(np.minimum(ends, least - V + gamma * lowest) - 1e-12 * size)


def rounded(values: FloatArray) -> FloatArray:
    """Fitted values without their last bits, which differ between processors: up to 2^-34 of the largest."""
    size = float(np.abs(values).max(initial=0.0))
    unit = math.ldexp(1.0, math.frexp(size)[1] - 34) if 0 < size < np.inf else 1.0
    return np.asarray(np.rint(values / unit) * unit) if unit > 0 else values


def part_of(rows: Rows, k: IntArray) -> tuple[Rows, IntArray]:
    """Some of the rows, with their entries; and which entries these are."""
    width = np.diff(rows.start)[k]
    start = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
    entries = np.repeat(rows.start[k] - start[:-1], width) + np.arange(start[-1])
    gain = rows.gain[entries] if len(rows.gain) else rows.gain
    chosen = Rows(rows.pair[k], rows.state[k], rows.prob[k], rows.reward[k], start, rows.successor[entries], gain)
    return chosen, entries


def least_by_state(values: FloatArray, state: IntArray, k: IntArray, S: int) -> FloatArray:
    """[S] the least value over these rows of a state, infinite where there are none."""
    least = np.full(S, np.inf)
    np.minimum.at(least, state[k], values[k])
    return least


def are_quick(policies: Sequence[PolicyBet]) -> bool:
    """Whether all shares can be tried at once: one policy of the discounted table, where any state may follow."""
    policy = policies[0]
    return (
        len(policies) == 1
        and type(policy) is PolicyBet
        and policy.task.any_successor
        and len(policy.k) == len(policy.prob)
    )


def plans_of_shares(
    policy: PolicyBet, V: FloatArray, q: FloatArray, visits: FloatArray, sign: float, rounding: float
) -> tuple[list[BettingPlan], list[float]]:
    """The bet with each of `SHARES`, and the mean of S^2 of a rollout that the model expects, in units of room^2.

    The same numbers as `PolicyBet.bet` and `Rollouts.joined` give for one share after the other, up to rounding.
    """
    state, first_rows = policy.pool.tally.rows.state, policy.first_rows
    gamma, initial, K, S = policy.task.discount, policy.task.initial, len(policy.prob), len(V)
    onward = gamma * V
    mean = q.reshape(K, S) @ onward  # every row lists every state
    advantage = mean - np.add.reduceat(policy.prob * mean, first_rows)[state]
    base = policy.centre[state] - np.multiply.outer(SHARES, advantage)  # [share, K]
    own, largest = sign * V, np.abs(V).max()
    least = np.minimum.reduceat(sign * base, first_rows, axis=1)  # [share, S]
    lowest = np.minimum(own.min(), least.min(axis=1) / (1.0 - gamma))
    size = np.abs(base).max(axis=1) / (1.0 - gamma) + largest
    B = np.minimum(0.0, least - own + gamma * lowest[:, None]) - 1e-12 * size[:, None]
    lead = sign * float(initial @ V)
    L = np.maximum(-B[:, initial > 0].min(axis=1), lead + 4.0 * rounding + 1e-9 * largest + 1e-300)
    residuals = ((base - V[state]) / (L - lead)[:, None])[:, :, None] + onward / (L - lead)[:, None, None]
    squares = np.square(residuals).reshape(len(L), -1) @ visits
    parts = [Residuals(V, base[i], policy.gain, B[i]) for i in range(len(L))]
    plans = [BettingPlan(part, NO_POLICY, part.B, float(L[i]), sign, lead) for i, part in enumerate(parts)]
    return plans, squares.tolist()
