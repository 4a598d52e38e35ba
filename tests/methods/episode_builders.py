"""Questions beyond the discounted table, arbitrary bets on them, and a rollout as the docstrings define it."""

from __future__ import annotations

import warnings

import numpy as np

import policytest as pt
from policytest.eprocess.strategies import RESERVE

HORIZONS = [
    {"H": H, "gamma": gamma, "observed": observed, "on_successor": on, "A": 1 if H == 4 else 2}
    for H, gamma in ((1, 1.0), (2, 1.0), (4, 1.0), (2, 0.6), (4, 0.9))
    for observed, on in ((False, False), (True, False), (False, True))
]
TOTALS = [
    {"observed": observed, "on_successor": on, "totals": totals, "A": 1}
    for observed, on in ((False, False), (True, False), (False, True))
    for totals in (None, (-40.0, 60.0))
]


def question(seed, H=None, gamma=1.0, observed=False, on_successor=False, totals=None, A=2, positive=None):
    """A task of two states and a terminal one, the same with mean rewards, a kernel, and the two rewards of a pair."""
    rng = np.random.default_rng(seed)
    S = 3
    positive = gamma == 1.0 and H is None and totals is None if positive is None else positive
    policy, initial = rng.dirichlet(np.ones(A), size=S), np.array([0.7, 0.3, 0.0])
    kernel = rng.dirichlet(np.ones(S), size=(S, A))
    kernel[2] = np.eye(3)[2]
    low = rng.random((S, A)) if positive else rng.normal(size=(S, A))
    high = low + rng.random((S, A))
    low[2] = high[2] = 0.0
    settings = {"horizon": H, "terminal": [2], "total_rewards": totals}
    if observed:
        task = pt.Task(pt.Observed(low, high), policy, initial, gamma, **settings)
        return task, pt.Task(0.5 * (low + high), policy, initial, gamma, **settings), kernel, (low, high)
    rewards = np.repeat(low[:, :, None], S, axis=2) + 0.3 * np.arange(S) if on_successor else low
    rewards = np.where(np.arange(S)[:, None, None] == 2, 0.0, rewards) if on_successor else rewards
    task = pt.Task(rewards, policy, initial, gamma, **settings)
    return task, task, kernel, (low, low)


def arbitrary_plan(run, rng, sign):
    """A bet with an arbitrary part."""
    plan, strategy = run.payoff.joined([arbitrary_part(run.payoff.policies[0], rng, sign)], sign), run.payoff.strategy
    fitted = len(strategy.log_weights) - len(strategy.steady) - len(RESERVE)
    return plan._replace(fractions=np.concatenate([strategy.steady, [0.2, 0.8][:fitted], RESERVE]))


def arbitrary_part(policy, rng, sign):
    """Any V0, any centred advantages where these are allowed."""
    task = policy.task
    V = rng.normal(scale=rng.choice([0.0, 1.0, 3.0]), size=policy.V.shape)
    table = V.reshape(-1, task.n_states)
    table[:, policy.over] = 0.0
    if task.horizon is not None:
        table[-1] = 0.0
    if task.total_rewards is not None:
        np.clip(V, *task.total_rewards, out=V)
    base = policy.base(V, None, 0.0)
    if not task.is_total:
        eta = rng.normal(size=(policy.layers, *task.policy.shape))
        eta -= (task.policy * eta).sum(axis=2, keepdims=True)
        base = base - eta.reshape(policy.layers, -1)[:, policy.pool.tally.rows.pair].ravel()
    return policy.bet(V, base, sign)


class Definition:
    """A rollout as the docstrings define it, with V0 and B of a plan."""

    def __init__(self, run, plan):
        self.run, self.plan, self.task = run, plan, run.task
        self.K, self.S, self.H = len(run.tally.rows.pair), run.task.n_states, run.task.horizon

    def place(self, t, s):
        return s if self.H is None else t * self.S + s

    def is_over(self, t, s):
        return s in self.task.ends or t == self.H

    def fitted(self, t, s, G):
        V = self.plan.a.V[self.place(t, s)]
        if self.task.total_rewards is None:
            return V
        low, high = self.task.total_rewards
        return 0.0 if self.is_over(t, s) else min(max(V, low - G), high - G)

    def worst(self, t, s, G):
        if self.task.total_rewards is None:
            return self.plan.B[self.place(t, s)]
        low, high = self.task.total_rewards
        return low - G - self.fitted(t, s, G) if self.plan.sign > 0 else G + self.fitted(t, s, G) - high

    def reward(self, t, s, a, x, r):
        """r - eta; where rewards are observed r is the observed one."""
        k = self.run.tally.task.layout.row_of_pair[s * self.task.n_actions + a]
        base = self.plan.a.base[k if self.H is None else t * self.K + k]
        gain = self.task.rewards[s, a, x] if self.task.rewards_on_successor else 0.0
        return base + gain + (r if self.task.observes_rewards else 0.0)

    def step(self, t, s, a, x, r, G):
        """The residual D, and what was earned."""
        earned = self.reward(t, s, a, x, r)
        after = self.task.discount * self.fitted(t + 1, x, G + earned) if not self.is_over(t + 1, x) else 0.0
        return self.plan.sign * (earned + after - self.fitted(t, s, G)), G + earned


def started(task, kernel, R, seed=0):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)  # of sides that cannot be proved
        return pt.TDBetting().start(task, simulator(task, kernel), R, seed)


def sums_of(run, plan, least):
    """At least so many sums of rollouts with this plan, which is never fitted again; with steady fractions."""
    bets = run.bets[plan.sign]
    run.plan = plan._replace(fractions=np.full(len(bets.shares), 0.5), wide=np.zeros(len(bets.wide_shares)))
    run.fit.due = np.inf
    while run.rollouts < least:
        run.step(np.inf, 10_000)
    (segment,) = bets.segments
    return segment.won - plan.lead


def simulator(task, kernel):
    if not task.observes_rewards:
        return pt.TabularSimulator(kernel)
    low, high = task.rewards.low, task.rewards.high
    return pt.TabularSimulator(
        kernel, rewards=lambda s, a, x, rng: np.where(rng.random(len(s)) < 0.5, low[s, a], high[s, a])
    )
