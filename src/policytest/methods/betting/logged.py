r"""Betting on a log, row by row: rollouts that own their draws, averaged over coins.

`policytest.methods.betting.run` makes one rollout after another from stacks of recorded draws. It waits for the pair
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

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import rollouts
from policytest._base.compiled.rollouts import LogDynamics, LogPlans, OpenRollouts
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.mdp.task import Task
from policytest.methods.betting import TDBetting
from policytest.methods.betting.bets import AveragedRefuter, Refuter, Stretch, surely
from policytest.methods.betting.draws import Supply, nothing_to_draw
from policytest.methods.betting.plan import (
    LOG_NEAR,
    RESERVE,
    BettingPlan,
    expected_gap,
    fractions_near,
    wide_fractions,
    with_reserve,
)
from policytest.methods.betting.policy_bet import PolicyBet, Pool, cumulative
from policytest.methods.betting.run import BettingRun
from policytest.methods.betting.stacks import LONG_SHARE, OnALog, StacksRun, sets_of_coins
from policytest.methods.boundaries import MixtureBoundary
from policytest.methods.sampler import NOTHING, UNLIMITED, Recorded
from policytest.methods.witness import WitnessedCounts

MOST_PAIRS = 20  # whose rows are unknown, up to which rollouts own their draws
MOST_ROWS = 1000  # known ones too: every rollout has a place for the draws of each
FIRST_FIT, REFIT = 32, 1.1  # rows before the first bet; growth between two fits
LOOKS = 16  # at the capital, between two fits
LONG_LOGS = (200_000, 2_000_000)  # rows after which fewer sets of coins go on
MOST_AT_ONCE = 65_536  # rows of one call
STORAGE = 64  # draws of a pair that a rollout can store
LOG_STAKED = with_reserve(LOG_NEAR)  # shares of the capital on the fitted fractions, and on the reserve
RARELY = 0.02  # visits of a pair in a rollout below which no draw is stored for it
MOST_SPLITS = 30.0
HALF_EACH = math.log(2.0)  # of delta: rollouts that own their draws, and rollouts from stacks


class Manner(NamedTuple):
    """One way to follow a log. Each serves its part of the sets of coins."""

    open: int  # rollouts at once
    stock: float  # draws that each stores, relative to those it is expected to need
    range: float  # L, relative to the least possible
    largest_weight: float
    splits: float  # relative to those at which the scarcest pair is not split


MANNERS = (
    Manner(4, 0.7, 5.0, 2.0, 1.25),
    Manner(2, 1.5, 5.0, 2.0, 1.0),
    Manner(8, 0.5, 5.0, 2.0, 1.0),
    Manner(2, 1.5, 1.5, 50.0, 1.0),
)


def suits(task: Task) -> bool:
    """Whether rollouts on a log of this task own their draws: it has terminal states, and few unknown rows."""
    few = 0 < int(task.layout.unknown_pairs.sum()) <= MOST_PAIRS and len(task.layout.pairs.pair) <= MOST_ROWS
    return few and bool(task.ends) and task.is_discounted_table


class Follower:
    """The rollouts of one side in one manner, for its sets of coins."""

    def __init__(self, run: LogRun, manner: Manner, sign: float, seeds: IntArray) -> None:
        policy, task, rows, C = run.policies[0], run.policies[0].task, run.tally.rows, len(seeds)
        self.manner, self.sign, self.fits = manner, sign, 0
        ends = np.zeros(task.n_states, dtype=bool)
        ends[run.task.ends] = True  # the centred task has none: what follows them earns -(1-gamma) R there
        self.where = LogDynamics(
            start=rows.start,
            successor=rows.successor,
            gain=policy.gain,
            state=rows.state.astype(np.int64),
            row=run.task.layout.row_of_pair.reshape(task.n_states, task.n_actions).astype(np.int64),
            only=run.tally.only_successor.astype(np.int64),
            ends=ends,
            initial=cumulative(task.initial[None, :])[0],
            policy=cumulative(task.policy),
            discount=task.discount,
            sign=sign,
            largest_weight=manner.largest_weight,
            stock=manner.stock,
        )
        K, M, whole = len(rows.pair), manner.open, np.int64
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
        self.plans: dict[str, list[Any]] = {name: [] for name in LogPlans._fields}
        self.wide: list[FloatArray] = []  # the fractions of intervals
        self.ended: list[list[tuple[IntArray, FloatArray]]] = [[] for _ in range(C)]
        self.n_settled = 0

    def fit(self, run: LogRun, plan: BettingPlan, visits: FloatArray, shares: FloatArray, seen: int) -> None:
        """The plan of the next rollouts: splits by what the log has, the range, and the fractions."""
        policy, rows, manner = run.policies[0], run.tally.rows, self.manner
        unknown = np.where(self.where.only < 0, visits, 0.0)
        drawn = unknown > RARELY * min(float(unknown.max()), 1.0)
        supply = shares / np.where(drawn, visits, 1.0)  # rollouts a row that a pair could serve
        scarcest = max(float(supply[drawn].min(initial=1.0 / RARELY)), 1e-12) / manner.splits
        splits = np.where(drawn, np.clip(supply / scarcest, 1.0, MOST_SPLITS), 1.0)
        D = self.sign * policy.residuals(plan.a.V, plan.a.base)
        L = manner.range * plan.L
        room, q = L - plan.lead, run.pool.model()
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
        for name, value in new._asdict().items():
            self.plans[name].append(value)
        self.fits += 1
        self.stacked = LogPlans(*(np.array(self.plans[name]) for name in LogPlans._fields))

    def follow(self, k: IntArray, x: IntArray, looks: IntArray, sets: int) -> FloatArray:
        """Go on by these rows with some of the sets; the logarithm of the sum of all capitals at each look."""
        parts: list[Any] = [part[:sets] for part in self.at]  # changed in place
        at = OpenRollouts(*parts)
        found, plans, sums = rollouts.follow_log(self.where, self.stacked, self.fits - 1, at, k, x, looks)
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


class LogRun(OnALog, BettingRun):
    """A log at work: its rows in their order, on both sides at once."""

    source: LogSource

    def __init__(self, method: LogBetting, task: Task, threshold: float, policy: PolicyBet) -> None:
        super().__init__(method, task, threshold, (policy,), 0.0, False)
        self.shares = np.zeros(len(self.tally.rows.pair))  # draws of each row so far
        self.next_fit, self.fitted_at = FIRST_FIT, 0
        self.best = [0.0, 0.0]
        self.stacks = method.stacks(task, threshold, Recorded(NOTHING, NOTHING), method.coins)
        self.followers: tuple[list[Follower], list[Follower]] = ([], [])
        n = len(MANNERS)
        seeds = np.random.SeedSequence(method.seed).generate_state(2 * n * method.coins, np.uint64)
        for side, sign in enumerate((1.0, -1.0)):
            for i, manner in enumerate(MANNERS):
                part = seeds.reshape(2, n, method.coins)[side, i]
                self.followers[side].append(Follower(self, manner, sign, part))

    # ------------------------------------------------------------ the loop

    def begin(self, level: float) -> None:
        """More may have been recorded."""
        self.exhausted = self.source.left == 0

    def step(self, level: float, most: int) -> None:
        """All rows that are there; the first of them at which the evidence of a part suffices is the answer."""
        level += HALF_EACH
        self._stack(level)
        while self.source.left:
            most = min(self.next_fit - self.samples, MOST_AT_ONCE)
            k, x = self.source.take(min([most, *(row - self.samples for row in LONG_LOGS if row > self.samples)]))
            drawn = k >= 0
            self.tally.observe(k[drawn], x[drawn], np.inf)  # refuses what the support excludes
            if self.samples >= FIRST_FIT:
                self._follow(k, x, level)
            self.shares += np.bincount(k[drawn], minlength=len(self.shares))
            self.samples += len(k)
            self.pool.samples = self.samples
            if self.samples >= self.next_fit:
                self._fit_all()
        self.exhausted = True

    def _may_choose_pace(self, entries: int) -> bool:
        """Each follower has its own."""
        return False

    def _stack(self, level: float) -> None:
        """Rollouts from stacks, as far as these rows take them."""
        run = self.stacks
        run.source.extend(self.source.rows.k, self.source.rows.x)
        run.step(level, UNLIMITED)
        self.best = [max(pair) for pair in zip(self.best, run.evidence(), strict=True)]
        if run.answer is not None:
            self._answered(run.answer, run.used())

    def _answered(self, answer: str, row: int) -> None:
        """One of the parts has answered at this row; the first one counts."""
        if self.answer is None or row < self.answered_at:
            self.answer, self.answered_at = answer, row

    @property
    def spacing(self) -> int:
        """Rows between two looks at the capital."""
        return max((self.next_fit - self.fitted_at) // LOOKS, 1)

    @property
    def rows_to_next_look(self) -> int:
        """How many rows there are up to it, at fixed numbers of rows, however the log arrives."""
        return self.spacing - (self.samples - self.fitted_at) % self.spacing

    def _follow(self, k: IntArray, x: IntArray, level: float) -> None:
        """Rows up to the next fit at most, and what they make of the capital."""
        looks, sets = np.arange(self.rows_to_next_look, len(k) + 1, self.spacing), self.method.coins
        sets = max(sets // LONG_SHARE ** sum(self.samples >= row for row in LONG_LOGS), 1)
        for side, name in enumerate(("above", "below")):
            found = [follower.follow(k, x, looks, sets) for follower in self.followers[side]]
            if not len(looks):
                continue
            evidence = np.logaddexp.reduce(found, axis=0) - math.log(len(MANNERS) * self.method.coins)
            self.best[side] = max(self.best[side], float(evidence.max()))
            crossed = looks[evidence >= surely(level)]
            if len(crossed):
                self._answered(name, self.samples + int(crossed[0]))

    def _fit_all(self) -> None:
        """Plans for both sides, from all rows so far."""
        visits = self.visits_in_a_rollout()
        for sign, followers in zip((1.0, -1.0), self.followers, strict=True):
            self.betting_on = sign
            plan = self._fit()
            for follower in followers:
                follower.fit(self, plan, visits, self.shares / self.samples, self.samples)
        self.fitted_at, self.next_fit = self.samples, math.ceil(REFIT * self.samples)
        self.rollouts = sum(follower.n_settled for follower in self.followers[0])

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the largest capital of each side so far, of the better part, less log 2.

        exp(-evidence) is a p-value, at any time: twice the smaller of those of the two parts.
        """
        return self.best[0] - HALF_EACH, self.best[1] - HALF_EACH

    def why_undecided(self) -> str:
        """Which pair is scarcest, for this policy."""
        if not self.samples or not self.followers[0][0].fits:
            return "not enough data"
        visits = self.followers[0][0].plans["needed"][-1] / self.followers[0][0].plans["splits"][-1]
        supply = np.where(visits > 0, self.shares / np.where(visits > 0, visits, 1.0), np.inf)
        scarce = int(np.argmin(supply))
        place = self.task.place(int(self.tally.rows.pair[scarce]))
        return f"not enough data: the scarcest pair of this policy is {place}, with {int(self.shares[scarce]):,} rows"

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values that no side of either part refutes."""
        lower, upper = super()._not_refuted(level + HALF_EACH, as_staked)
        least, most = (self.stacks.verdict_interval if as_staked else self.stacks.one_sided)(level + HALF_EACH)
        return max(lower, least), min(upper, most)

    def refuter(self, sign: float, as_staked: bool = False, to_the_end: bool = False) -> Refuter:
        """The bets of one side, averaged over the sets of coins, to be settled against any threshold."""
        followers = self.followers[0 if sign > 0 else 1]
        return AveragedRefuter([part for follower in followers for part in follower.refuters(as_staked)])


class LogSource(Supply):
    """The rows of a log that were not looked at yet."""

    def __init__(self, task: Task, source: Recorded, seed: Seed) -> None:
        super().__init__(task, nothing_to_draw, seed)
        self.rows = source

    @property
    def left(self) -> int:
        """How many there are."""
        return len(self.rows.k)

    def extend(self, k: IntArray, x: IntArray, r: FloatArray | None = None) -> None:
        """More were recorded."""
        self.rows.extend(k, x)

    def take(self, most: int) -> tuple[IntArray, IntArray]:
        """The next ones."""
        k, x = self.rows.k[:most], self.rows.x[:most]
        self.rows.take(len(k))
        return k, x


@dataclass(frozen=True)
class LogBetting:
    """Settings of betting on a log.

    Parameters
    ----------
    coins
        Sets of coins over which the capital is averaged, for each of four ways of following the log. In tasks that do
        not suit that, the median of four times as many sets for each side decides; see `stacks`.
    seed
        Their seed. It changes evidence near log(1/delta) by some tenths of a nat with 16 sets, by about one in tasks
        that do not end.
    """

    coins: int = 16
    seed: int = 0

    def __post_init__(self) -> None:
        arrays.positive(coins=arrays.whole_number("coins", self.coins))

    def start(self, task: Task, sim: SimulatorLike, threshold: float, rng: Seed, **zone: Any) -> LogRun:
        """Not on a simulator."""
        raise InputError("LogBetting is for recorded transitions; use TDBetting() with a simulator")

    def replay(self, task: Task, threshold: float, source: Recorded, both_sides: bool = True) -> LogRun | StacksRun:
        """The test at work on recorded transitions, always on both sides."""
        if not suits(task):
            return self.stacks(task, threshold, source, len(MANNERS) * self.coins)
        tally = WitnessedCounts(task, threshold, MixtureBoundary())  # lists all successors of so few rows
        supply = LogSource(task, source, self.seed)
        return LogRun(self, task, threshold, PolicyBet(tally.task, Pool(tally, supply), tally.rounding))

    def stacks(self, task: Task, threshold: float, source: Recorded, sets: int) -> StacksRun:
        """Rollouts from stacks alone, by this many sets of coins a side."""

        def start(seed: int) -> BettingRun:
            return TDBetting().replay(task, threshold, Recorded(NOTHING, NOTHING), seed)

        return StacksRun(self, start, sets_of_coins(self.seed, sets), source)

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on a log, by many sets of coins"
