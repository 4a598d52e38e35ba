r"""Betting on a log, row by row: rollouts that own their draws, averaged over coins.

`policytest.payoffs.td_rollouts` makes one rollout after another from stacks of recorded draws. It waits for the pair
that is missing, leaves most of the others unused, and its coins decide much. Here the log is followed in its own order:

- A few rollouts are open at once. A row (s,a,x) is given, before x is looked at, to one of them: to the oldest that
  waits for a draw of (s,a), else to the one that has stored fewest of them, else to a new rollout; or to none. A
  rollout uses its own draws of a pair in the order in which it was given them.
- At a visit of a pair of which the log has many draws, it averages the residuals of several of its own draws and moves
  on with the last one, as far as S >= -L allows whatever they are.
- Not one set of coins decides, but the average of the capitals of many.

*Validity.* Let F_j = 1 + f (lead + S_j)/(L - lead) be the final factor of rollout j if it were given draws for ever,
and G_t the product of E_q[F_j | the draws that j has, used or stored, and its coins, at time t] over the rollouts that
were launched. Given all rows before it, the coins tossed so far, and the pair, a row's x is a draw of q(.|s,a),
whatever rule chose the pair, and coins yet to be tossed know nothing of the log: so E[G_{t+1} | past] = G_t when a draw
is given to an open rollout, whose factor alone changes, and at most G_t when one is launched, since E_q[F_j] <= 1 if
sign (V_q - R) <= 0. G is a nonnegative supermartingale *in the time of the log*, for each set of coins, and so is the
average over sets. What is reported is below it: in F_j the sum of an unfinished rollout is

    S_j + w (B(s) - (1 - left) max(0, largest D)),

which is below the mean of its final S given the draws it has used, for any kernel and any further draws ("left" is the
share of the present visit's residual still to come: the mean of left D + gamma (V_q - V0)(x) is at least
B(s) - (1 - left) max D). By Ville's inequality the reported average ever reaches 1/delta with probability at most
delta: at any moment, on any prefix, for logs whose rule looked at everything before, learnt from it, or stopped
because of it. V0, B, L, fractions and splits of a rollout are fixed when it is launched, from the rows before, all of
which are used. In a long log a quarter of the sets goes on after the first 200,000 rows, and a quarter of these after
2,000,000, fixed numbers: what the others have made of their rows stays as it is.

*Beside it* rollouts from pooled stacks (`TDBetting`) go on, each at delta/2: stacks keep what comes early, such as the
first visits of all customers in the first week, until the rest of a rollout is there.

*Where it is used.* Unfinished rollouts cost up to f each, so there must be few: few pairs, and rollouts that end soon.
In other tasks stacks alone are better. That is chosen from the task (`suits`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled.log_rollouts import LogDynamics, LogPlans, OpenRollouts, follow_log
from policytest.data.simulators import cumulative
from policytest.eprocess.interval import Settled
from policytest.eprocess.strategies import ENDS, OWN_DRAWS
from policytest.kl.sampler import NOTHING
from policytest.mdp.task import Task
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.td_rollouts import Rollouts

MOST_PAIRS = 20  # whose rows are unknown, up to which rollouts own their draws
MOST_ROWS = 1000  # known ones too: every rollout has a place for the draws of each
STORAGE = 64  # draws of a pair that a rollout can store
RARELY = 0.02  # visits of a pair in a rollout below which no draw is stored for it
MOST_SPLITS = 30.0


class ReplayStrategy(NamedTuple):
    """One way to follow a log. Each serves its part of the sets of coins."""

    open: int  # rollouts at once
    stock: float  # draws that each stores, relative to those it is expected to need
    range: float  # L, relative to the least possible
    largest_weight: float
    splits: float  # relative to those at which the scarcest pair is not split


REPLAY_STRATEGIES = (
    ReplayStrategy(4, 0.7, 5.0, 2.0, 1.25),
    ReplayStrategy(2, 1.5, 5.0, 2.0, 1.0),
    ReplayStrategy(8, 0.5, 5.0, 2.0, 1.0),
    ReplayStrategy(2, 1.5, 1.5, 50.0, 1.0),
)


def suits(task: Task) -> bool:
    """Whether rollouts on a log of this task own their draws: it has terminal states, and few unknown rows."""
    few = 0 < int(task.layout.unknown_pairs.sum()) <= MOST_PAIRS and len(task.layout.pairs.pair) <= MOST_ROWS
    return few and bool(task.ends) and task.is_discounted_table


class LogRolloutPool:
    """The rollouts of one side that follow the log in one way, for its sets of coins."""

    def __init__(self, payoff: Rollouts, strategy: ReplayStrategy, sign: float, seeds: IntArray) -> None:
        policy, task, rows, C = payoff.policies[0], payoff.policies[0].task, payoff.tally.rows, len(seeds)
        self.strategy, self.sign = strategy, sign
        ends = np.zeros(task.n_states, dtype=bool)
        ends[payoff.task.ends] = True  # the centred task has none: what follows them earns -(1-gamma) R there
        self.where = LogDynamics(
            start=rows.start,
            successor=rows.successor,
            gain=policy.gain,
            state=rows.state.astype(np.int64),
            row=payoff.task.layout.row_of_pair.reshape(task.n_states, task.n_actions).astype(np.int64),
            only=payoff.tally.only_successor.astype(np.int64),
            ends=ends,
            initial=cumulative(task.initial[None, :])[0],
            policy=cumulative(task.policy),
            discount=task.discount,
            sign=sign,
            largest_weight=strategy.largest_weight,
            stock=strategy.stock,
        )
        K, M, whole = len(rows.pair), strategy.open, np.int64
        self.at = OpenRollouts(
            coins=seeds.astype(np.uint64),
            n_open=np.zeros(C, dtype=whole),
            order=np.tile(np.arange(M), (C, 1)),
            plan=np.zeros((C, M), dtype=whole),
            row=np.zeros((C, M), dtype=whole),
            earned=np.zeros((C, M)),
            weight=np.zeros((C, M)),
            left=np.zeros((C, M)),
            split=np.zeros((C, M)),
            worst=np.zeros((C, M)),
            stored=np.zeros((C, M, K), dtype=whole),
            first=np.zeros((C, M, K), dtype=whole),
            draws=np.zeros((C, M, K, STORAGE), dtype=np.int32),
            capital=np.tile(np.append(np.exp(OWN_DRAWS.log_weights), 0.0), (C, 1)),
        )
        self.plans: list[LogPlans] = []
        self.wide: list[FloatArray] = []  # the fractions of intervals
        self.ended: list[list[tuple[IntArray, FloatArray]]] = [[] for _ in range(C)]
        self.n_settled = 0
        self.stacked = LogPlans(*(np.zeros(0) for _ in LogPlans._fields))

    def fit(self, payoff: Rollouts, plan: BettingPlan, visits: FloatArray, shares: FloatArray, seen: int) -> None:
        """The plan of the next rollouts: splits by what the log has, the range, and the fractions."""
        policy, rows, strategy = payoff.policies[0], payoff.tally.rows, self.strategy
        unknown = np.where(self.where.only < 0, visits, 0.0)
        drawn = unknown > RARELY * min(float(unknown.max()), 1.0)
        supply = shares / np.where(drawn, visits, 1.0)  # rollouts a row that a pair could serve
        scarcest = max(float(supply[drawn].min(initial=1.0 / RARELY)), 1e-12) / strategy.splits
        splits = np.where(drawn, np.clip(supply / scarcest, 1.0, MOST_SPLITS), 1.0)
        D = self.sign * policy.residuals(plan.a.V, plan.a.base)
        L = strategy.range * plan.L
        room, q = L - plan.lead, payoff.pool.model()
        assert q is not None
        v = float((rows.per_entry(visits / splits) * q) @ (D / room) ** 2)
        expected = scarcest * seen  # rollouts that the rows so far could serve
        self.wide.append(ENDS.fractions(v, expected))
        new = LogPlans(
            V=plan.a.V,
            base=plan.a.base,
            B=plan.B,
            L=np.array(L),
            lead=np.array(plan.lead),
            fractions=OWN_DRAWS.fractions(v, plan.lead / room, int(expected)),
            splits=splits,
            least=np.minimum.reduceat(D, rows.start[:-1]),
            largest=np.maximum(np.maximum.reduceat(D, rows.start[:-1]), 0.0),
            needed=np.where(drawn, visits * splits, 0.0),
        )
        self.plans.append(new)
        self.stacked = LogPlans(*map(np.array, zip(*self.plans, strict=True)))

    def follow(self, k: IntArray, x: IntArray, looks: IntArray, sets: int) -> FloatArray:
        """Go on by these rows with some of the sets; the logarithm of the sum of all capitals at each look."""
        parts: list[Any] = [part[:sets] for part in self.at]  # changed in place
        at = OpenRollouts(*parts)
        found, plans, sums = follow_log(self.where, self.stacked, len(self.plans) - 1, at, k, x, looks)
        for kept, plan, earned in zip(self.ended, plans, sums, strict=False):
            if len(plan):
                kept.append((plan, earned))
                self.n_settled += len(plan)
        others = np.log(self.at.capital[sets:, :-1].sum(axis=1)) + self.at.capital[sets:, -1]
        found = np.concatenate([found, np.repeat(others[:, None], len(looks), axis=1)])
        return np.asarray(np.logaddexp.reduce(found, axis=0))

    def settled(self, as_staked: bool) -> list[Settled]:
        """The rollouts of each set of coins, unfinished ones at their worst, to be settled against any threshold."""
        found, plans = [], self.stacked
        shares = np.exp((OWN_DRAWS if as_staked else ENDS).log_weights)
        fractions = plans.fractions if as_staked else np.array(self.wide)
        for c, kept in enumerate(self.ended):
            still = self.at.order[c, : self.at.n_open[c]]
            plan = np.concatenate([NOTHING, *(part for part, _ in kept), self.at.plan[c, still]])
            sums = np.concatenate([np.zeros(0), *(part for _, part in kept), self.at.worst[c, still]])
            order, lengths = np.argsort(plan, kind="stable"), np.bincount(plan, minlength=len(plans.L))
            some = lengths > 0
            won, room = (plans.lead[plan] + sums)[order], (plans.L - plans.lead)[some]
            found.append(Settled(won, room, lengths[some], fractions[some], shares))
        return found
