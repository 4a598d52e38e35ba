r"""Betting on temporal differences: a test that pays neither for unknown rows nor for the variance of returns.

For any function V0 of the state and any kernel q,  V_q - V0 = sum_t gamma^t E_q[residual at time t],  the residual of a
transition being r + gamma V0(x) - V0(s). Once V0 is close to V_q residuals are nearly centred, and small. For a side
sign = 1 ("V is above R") or -1 choose, from what was seen before, V0 and advantages eta(s,a) with sum_a pi eta = 0, and

    D(s,a,x) = sign (r(s,a,x) - eta(s,a) + gamma V0(x) - V0(s)),
    B(s)    <= min(0, D(s,a,x) + gamma B(x))  for every pi(a|s) > 0 and allowed x:   the worst sum along any path,
    L        = max of -B(s) over rho(s) > 0.

One *rollout* starts with s from rho, the sum S = 0 and a weight w = 1/g with probability g (else it ends at once),
where w <= L/-B(s). Then, again and again: draw a from pi and x from q(s,a); add w D(s,a,x) to S; move to x; go on with
probability g, with the weight gamma w/g, where g = 1 or gamma w/g <= (S + L)/-B(x); end otherwise. Where the weight
has become very small, add w B(x) and end.

*S never falls below -L.* S + w B(s) >= -L holds at the start. A step keeps it: D + gamma B(x) >= B(s). A coin keeps
it, by the choice of g; and B <= 0.

*The mean of S is at most sign (V_q - rho.V0).* X = S + w sign (V_q - V0)(s) is a martingale: eta is centred, V_q
solves its Bellman equation, and a coin multiplies the weight by 1/g with probability g. And B is below
sign (V_q - V0).

So with lead = sign (rho.V0 - R), for every fraction f in [0, 1] chosen beforehand, the factor

    1 + f (lead + S)/(L - lead)

is not negative, whatever the kernel, and its mean is at most 1 if sign (V_q - R) <= 0. The product over rollouts,
averaged over fractions, is a nonnegative supermartingale: by Ville's inequality it ever reaches 1/delta with
probability at most delta. It is looked at *at the ends of rollouts*; within one, S + w B(s), which is below the mean of
the final S given the path so far, stands for it. No dimension is paid for, and no bet is lost to a horizon: on bad
paths g rises to 1, and discounting ends the rollout.

Only episodes from rho are needed, never a reset to another state. Recorded draws of a pair can serve as well, each used
once, in their order: where one is not there, the process waits.

`TDBetting(draws=m)` is the plain process: a rollout to a geometric time, then m draws at the state it ends in,
Z = rho.V0 + mean residual/(1-gamma), whose range is that of the worst single residual over 1-gamma.
"""

from __future__ import annotations

import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import rollouts as compiled_rollouts
from policytest._base.compiled import search
from policytest._base.errors import WHILE_DRAWING, InputError
from policytest.data.counts import Counts
from policytest.data.randomness import generator, kept_extra, restored, stored
from policytest.data.simulators import TabularSimulator, checked_draw, cumulative_rows
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.methods.boundaries import MixtureBoundary
from policytest.methods.interface import Outcome
from policytest.methods.ptst import PTST
from policytest.methods.sampler import NOTHING, Drawn, Recorded
from policytest.methods.witness import WitnessedCounts
from policytest.worst_case.projection_free import ProjectionFree

STEADY, MULTIPLES = 0.995 * 2.0 ** (-0.5 * np.arange(8)), np.array([1.0, 2.0, 4.0])
LOG_WEIGHTS = np.log(np.concatenate([0.3 * 0.5 ** np.arange(8) / (0.5 ** np.arange(8)).sum(), np.full(3, 0.7 / 3.0)]))
INTERVAL_FRACTIONS = 0.995 * 0.5 ** np.arange(12)  # for intervals, where no fraction is favoured
PAIR_MASS, STATE_MASS = 5.0, 6.0  # how strongly a pair's row is drawn to its state's, and that to the uniform one
LOOK = 1.03  # an indifference zone is looked at when the samples have grown by this factor
REFIT = 1.2  # V0 is fitted anew when the samples have grown by this factor
SHARES = (0.0, 0.25, 0.5, 0.75, 1.0)  # of the fitted advantages, to choose from
TIED = 1e-9  # numbers that are equal up to this are equal up to rounding
ORDERS, MOST_ORDERED = 20, 10_000_000  # random orders over which counts are averaged, and their largest number
BLOCK, LARGEST_BLOCK = 512, 65_536  # random numbers drawn at once
MANY_PARTS = 512  # pieces after which the sums of rollouts are put together
MOST_LISTED = 200_000  # where any state may follow, from this many entries on only what was seen is listed
LARGE, REPORTED = 2_000_000, 200_000  # entries up to which a share is chosen, and a witness is reported
STARTS = 4  # descents to the nearest kernel that is reported
PATIENCE = 0.05  # seconds between two looks of the driver, where a simulator is called step by step


@dataclass(frozen=True)
class TDBetting:
    """Settings of the betting test.

    Parameters
    ----------
    draws
        None: every transition of a rollout is bet on. A number m: the plain process, which bets on m draws at the
        last state of each rollout; for comparison.
    seed
        Of the coins and actions, where recorded transitions are replayed: choose it before looking at them.
    """

    draws: int | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        if self.draws is not None:
            arrays.positive(draws=arrays.whole_number("draws", self.draws))

    def start(self, task: Task, sim: Any, threshold: float, rng: Any) -> BettingRun:
        """The test at work on a simulator."""
        return BettingRun(self, task, threshold, Supply(task, sim, rng))

    def replay(self, task: Task, threshold: float, source: Recorded, rng: Any = None) -> BettingRun:
        """The test at work on recorded transitions."""
        return BettingRun(self, task, threshold, Supply.recorded(task, source, self.seed if rng is None else rng))

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences" + (f", {self.draws} draws a rollout" if self.draws else "")


class Supply(Drawn):
    """Where successors come from: a table (drawn from in compiled code), a simulator's calls, or recorded stacks."""

    def __init__(self, task: Task, sim: Any, rng: Any) -> None:
        super().__init__(task, sim)
        self.rng, self.drawing = generator(rng), False
        pairs = task.n_states * task.n_actions
        self.is_table = getattr(type(sim), "draw", None) is TabularSimulator.draw
        if self.is_table:  # rows without mass are refused by `draw`, when they are met
            self.is_table = not sim.table().empty[task.layout.pairs.pair].any()
        self.waits, self.size = False, 0
        self.order = np.zeros(0, dtype=np.int64)
        self.at = np.zeros(pairs, dtype=np.int64)
        if self.is_table:
            self.start, self.successor, self.cumulative, _ = sim.table()
        else:
            self.start = np.zeros(pairs + 1, dtype=np.int64)
            self.successor, self.cumulative = np.zeros(1, dtype=np.int32), np.zeros(0)

    @classmethod
    def recorded(cls, task: Task, source: Recorded, rng: Any) -> Supply:
        """Stacks of the recorded draws of each pair, in their order."""
        supply = cls(task, _nothing, rng)
        supply.waits, supply.successor = True, np.zeros(0, dtype=np.int32)
        supply.extend(source.k, source.x)
        return supply

    def extend(self, k: IntArray, x: IntArray) -> None:
        """More were recorded: each goes to the end of the stack of its pair, behind those not yet taken."""
        matter = np.flatnonzero(k >= 0)
        pairs = self.task.n_states * self.task.n_actions
        pair = np.concatenate(
            [np.repeat(np.arange(pairs), np.diff(self.start)), self.task.layout.pairs.pair[k[matter]]]
        )
        successor = np.concatenate([self.successor, x[matter].astype(np.int32)])
        place = np.concatenate([self.order, matter + self.size])
        taken, order = self.at - self.start[:-1], np.argsort(pair, kind="stable")
        self.start = np.searchsorted(pair[order], np.arange(pairs + 1))
        self.successor, self.order = successor[order], place[order]
        self.at, self.size = self.start[:-1] + taken, self.size + len(k)

    def arrays(self) -> tuple[Any, ...]:
        """For the compiled code."""
        return self.is_table, self.start, self.successor, self.cumulative, self.at

    def provide(self, pair: int) -> None:
        """Draw the successor that is waited for."""
        s, a = divmod(pair, self.task.n_actions)
        before = self.rng.bit_generator.state
        self.drawing = True
        try:
            x = checked_draw(self.draw, np.array([s]), np.array([a]), self.rng, self.task.n_states)
        except BaseException as error:
            error.add_note(WHILE_DRAWING)
            self.rng.bit_generator.state = before
            raise
        finally:
            self.drawing = False
        self.successor = x.astype(np.int32)  # a stack of one, for this pair
        self.start[: pair + 1], self.start[pair + 1 :] = 0, 1
        self.at[:] = self.start[1:]  # no other pair has any
        self.at[pair] = 0

    def reach(self) -> int:
        """How much of the recorded data was used: up to the last one of those taken."""
        taken = np.flatnonzero(self.at > self.start[:-1])  # the last one of each pair is the latest of that pair
        return int(self.order[self.at[taken] - 1].max()) + 1 if len(taken) else 0


def _nothing(states: IntArray, actions: IntArray, rng: Any) -> IntArray:
    raise InputError("recorded data have nothing to draw from")


class Plan(NamedTuple):
    """What the next rollouts bet with; all of it from the past."""

    V: FloatArray  # [S] V0
    B: FloatArray  # [S] the worst sum along any path
    base: FloatArray  # [K] r^pi(s) - eta(s,a); without the reward where that is on the successor
    L: float
    sign: float
    lead: float  # sign (rho.V0 - R)
    draws: int
    bets: Any = None  # the fractions of the largest bet

    @property
    def room(self) -> float:
        """L - lead: what a full bet stakes."""
        return self.L - self.lead


class BettingRun:
    """The betting test at work. Rewards are centred, so that values are compared with 0."""

    def __init__(self, method: Any, task: Task, threshold: float, supply: Supply) -> None:
        self.method, self.task, self.threshold, self.source = method, task, threshold, supply
        self.tally = WitnessedCounts(task, threshold, MixtureBoundary(), most_listed=MOST_LISTED)
        self.samples = 0
        self.answer: str | None = None
        self.exhausted = False
        self.draws = getattr(method, "draws", None) or 0
        self.capital = np.zeros((2, len(LOG_WEIGHTS)))
        self.walker = np.zeros(5)
        self.numbers = np.zeros((0, 3))
        self.block = BLOCK if supply.is_table else 64
        self.refit_at = 0.0
        self.rollouts = 0
        self.wanted = -1
        self.both_sides = False  # bet on both sides in turn: for intervals
        self.indifference, self.look_at = 0.0, 0.0
        self.averaged: Any = None  # the evidence of counts, over random orders
        self.orders: list[BettingRun] = []  # the runs on these orders
        self.bets: list[tuple[list[FloatArray], float, float, float]] = []  # sums, L, rho.V0, sign, for each plan
        self.fractions: list[FloatArray] = []  # and its bets
        self.plan = self._fit()

    # ------------------------------------------------------------ the loop

    def begin(self, level: float) -> None:
        """The evidence may suffice already, where the level was lowered."""
        self.reconsider(level)

    def step(self, level: float, most: int) -> None:
        """Rollouts, until an answer, a refit, the end of a block of random numbers, or of the samples.

        A simulator that is called step by step is called as often as fits into a moment; every draw is used at once.
        """
        until, limit = time.monotonic() + PATIENCE, self.paid + most
        wanted = self._advance(level, most)
        while wanted >= 0 and self.answer is None:
            if self.source.waits:
                self.exhausted, self.wanted = True, wanted
            if self.source.waits or self.paid >= limit:
                break
            self.source.provide(wanted)
            wanted = self._advance(level, max(limit - self.paid, 1))
            if time.monotonic() > until:
                break

    def _advance(self, level: float, most: int) -> int:
        """One call of the compiled code; the pair whose draw is waited for, or -1."""
        if self.samples >= self.refit_at and self.walker[0] == 0.0:
            self.plan = self._fit()
        if not len(self.numbers):
            self.numbers = self.source.rng.random((self.block, 3))
            self.block = min(2 * self.block, LARGEST_BLOCK) if self.source.is_table else self.block
        plan, size = self.plan, len(self.numbers)
        side = 0 if plan.sign > 0 else 1
        pair, x = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        sums = np.empty(size)
        limits = (surely(level), most, self._until_due(self.samples), self._one_by_one())
        ending, used, steps, samples, rollouts, wanted, _ = compiled_rollouts.bet(
            self._world(), tuple(plan[:-1]), (plan.bets, LOG_WEIGHTS, self.capital[side]), self.walker,
            self.source.arrays(), self.numbers, limits, pair, x, sums,
        )  # fmt: skip
        self.numbers = self.numbers[used:]
        self._record(pair[:steps], x[:steps])
        self.samples += samples
        if rollouts:
            self._keep(sums[:rollouts].copy())  # the rest of the array is not to be kept
            self.rollouts += rollouts
        if ending == compiled_rollouts.CROSSED:
            self.answer = "above" if side == 0 else "below"
        else:
            self._look_within(level)
        return int(wanted) if ending == compiled_rollouts.WAITING else -1

    def _until_due(self, samples: int) -> float:
        """The samples to the next refit or look at the zone; both are made at the first end of a rollout after that."""
        look_in = self.look_at - self.samples if self.indifference else np.inf
        return max(min(self.refit_at - samples, look_in), 0.0)

    def _look_within(self, level: float) -> None:
        """Answer "within" where that is proved: looked at when the samples have grown, whatever the clock says."""
        if self.indifference and self.samples >= self.look_at and self.walker[0] == 0.0:
            self.look_at = max(LOOK * self.samples, self.samples + 1.0)
            self.answer = "within" if min(self.ends_refuted()) >= level else None

    def end(self, level: float) -> None:
        """An unfinished rollout may go on later."""

    def reconsider(self, level: float) -> None:
        """Answer if the evidence at the end of a rollout reaches the level."""
        evidence = self.evidence() if self.walker[0] == 0.0 else (-np.inf, -np.inf)
        self.answer = None
        if max(evidence) >= level:
            self.answer = "above" if evidence[0] >= evidence[1] else "below"

    @property
    def paid(self) -> int:
        """The samples, and the steps that the simulator made on the way to them."""
        return self.samples + self.source.extra

    def used(self) -> int:
        """Of recorded transitions, up to the last one that was taken; all, where there is no answer."""
        return self.source.reach() if self.answer is not None else self.source.size

    def why_undecided(self) -> str:
        """Which pair has no more recorded draws."""
        if not self.exhausted:
            return ""
        return f"the next rollout needs a draw of {self.task.place(self.wanted)}, and no further one is recorded"

    def weigh(self, counts: Counts, level: float, design: str) -> None:
        """Counts of a fixed design: the capital at their end, averaged over random orders of the draws of each pair.

        Each is an e-value once the unfinished rollout is counted at worst; an average of e-values is one. With an
        adaptive design the order matters, and is not known.
        """
        if design != "fixed":
            raise InputError(
                'counts have no order, which betting needs; pass Transitions(s, a, x), design="fixed" if the numbers '
                "of draws were fixed beforehand, or method=PTST()"
            )
        if counts.total > MOST_ORDERED:
            raise InputError(f"counts has {counts.total} draws; betting on random orders of them is limited to 1e7")
        self.tally.load(counts)
        k, x = _listed(self.tally)
        rng, total = generator(self.method.seed), np.full((ORDERS, 2), -np.inf)
        for order in range(ORDERS):
            shuffled = rng.permutation(len(k))
            run = self.method.replay(self.task, self.threshold, Recorded(k[shuffled], x[shuffled]), rng)
            while not run.exhausted:
                run.step(np.inf, len(k) + 1)
            total[order] = run.evidence()
            self.orders.append(run)
        self.averaged = tuple(np.logaddexp.reduce(total, axis=0) - np.log(ORDERS))
        self.samples = counts.total
        self.plan = self._fit()
        self.reconsider(level)

    def _one_by_one(self) -> bool:
        """Whether something is to be looked at after every rollout."""
        return False

    def _record(self, pair: IntArray, x: IntArray) -> None:
        """Every transition that was drawn is counted; those of known rows are not draws."""
        k = self.task.layout.row_of_pair[pair]
        drawn = self.tally.only_successor[k] < 0
        if drawn.any():
            self.tally.observe(k[drawn], x[drawn], np.inf)

    def _keep(self, sums: FloatArray) -> None:
        plan = self.plan
        about = (plan.L, plan.sign * plan.lead, plan.sign)
        if self.bets and self.bets[-1][1:] == about and np.array_equal(self.fractions[-1], plan.bets):
            parts = self.bets[-1][0]
            parts.append(sums)
            if len(parts) > MANY_PARTS:
                parts[:] = [np.concatenate(parts)]
        else:
            self.bets.append(([sums], *about))
            self.fractions.append(plan.bets)

    def stretches(self) -> list[tuple[FloatArray, float, float, float]]:
        """The sums of all rollouts so far, with L, rho.V0 and the sign of their plans."""
        return [(np.concatenate(parts), *about) for parts, *about in self.bets]  # type: ignore[misc]

    def _world(self) -> tuple[Any, ...]:
        task = self.tally.task
        if not hasattr(self, "_fixed"):
            S, A = task.policy.shape
            actions = cumulative_rows(np.arange(S + 1) * A, task.policy.ravel()).reshape(S, A)
            initial = cumulative_rows(np.array([0, S]), task.initial)
            self._fixed = actions, initial, self.task.layout.row_of_pair, self.tally.only_successor, task.discount
        return (self.tally.rows, *self._fixed)

    # ------------------------------------------------------------ the fit

    def _fit(self) -> Plan:
        """V0 from what was seen, the side of the bet, and the share of the advantages that promises most."""
        tally, task = self.tally, self.tally.task
        self.refit_at = max(REFIT * self.samples, self.samples + 1.0)
        V, q, d = self._model()
        value = float(task.initial @ V)
        sign = 1.0 if value >= -TIED * float(np.abs(V).max()) else -1.0
        near = not self.indifference or abs(value) < 2.0 * self.indifference
        if self.both_sides and self.bets and near:
            sign = -self.plan.sign
        if self.draws:
            plan = self._plan(V, q, sign, 1.0)
            return plan._replace(bets=self._fractions(plan, None, None))
        shares = SHARES if d is not None and tally.rows.n_entries <= LARGE else (0.0,)
        plans = [self._plan(V, q, sign, share) for share in shares]
        chosen = plans[most_promising([self._promise(plan, q, d) for plan in plans] if len(plans) > 1 else [0.0])]
        return chosen._replace(bets=self._fractions(chosen, q, d))

    def _fractions(self, plan: Plan, q: FloatArray | None, d: FloatArray | None) -> FloatArray:
        """Steady fractions of the largest bet, and multiples of f = gap/(v + gap^2), the best of small bets.

        In units of the range: v is the mean of S^2 that the model expects, gap is the lead, or what noise may hide of
        it. Without a model the largest bet is taken, the best where one rollout says much. All are chosen beforehand.
        """
        best = 1.0
        if q is not None and d is not None and 0 < plan.room < np.inf:
            v, lead = self._squares(plan, q, d), plan.lead / plan.room
            gap = max(lead, 0.5 * math.sqrt(v / (self.rollouts + 1.0)))
            best = gap / (v + gap * gap) if 0 < v + gap * gap < np.inf else 1.0
        return np.concatenate([STEADY, np.clip(MULTIPLES * best, 1e-6, STEADY[0])])

    def _model(self) -> tuple[FloatArray, FloatArray | None, FloatArray | None]:
        """V0, and the fitted kernel with its occupancy where all allowed successors are listed."""
        tally, task = self.tally, self.tally.task
        if tally.is_open:
            return rounded(self._open_values()), None, None
        q = compiled_rollouts.shrunk_rows(tally.rows, tally.N, tally.n, task.n_states, PAIR_MASS, STATE_MASS)
        V, d, _ = search.values_and_occupancy(tally.rows, q, task.discount, task.initial)
        return rounded(np.where(np.isfinite(V), V, 0.0)), q, d

    def _open_values(self) -> FloatArray:
        """Values where any state may follow and few do: rows of states drawn towards the average value."""
        tally, task, S = self.tally, self.tally.task, self.tally.task.n_states
        rows, gamma = tally.rows, task.discount
        visits = np.bincount(rows.state, tally.n, minlength=S)
        P = sparse.csr_array((tally.N, (rows.state[rows.of_entry()], rows.successor)), shape=(S, S))
        reward, known = self._policy_reward(), visits / (visits + STATE_MASS)
        V = getattr(self, "plan", None).V if hasattr(self, "plan") else reward / (1.0 - gamma)  # type: ignore[union-attr]
        for _ in range(2000):
            mean = (P @ V) / np.maximum(visits, 1.0)
            new = reward + gamma * (known * mean + (1.0 - known) * V.mean())
            moved, V = np.abs(new - V).max(), new
            if moved <= 1e-6 * np.abs(V).max():
                break
        return V

    def _policy_reward(self) -> FloatArray:
        rows, S = self.tally.rows, self.tally.task.n_states
        return np.bincount(rows.state, rows.prob * rows.reward, minlength=S).astype(np.float64)

    def _plan(self, V: FloatArray, q: FloatArray | None, sign: float, share: float) -> Plan:
        """The bet for these values, with this share of the fitted advantages."""
        return self._ranged(V, self._base(V, q, share), sign)

    def _ranged(self, V: FloatArray, base: FloatArray, sign: float) -> Plan:
        """The plan with these residuals: its worst paths and its range."""
        task, lead = self.tally.task, sign * float(self.tally.task.initial @ V)
        if self.draws:
            return self._plain_plan(V, base, sign, lead)
        B = self._worst(V, base, sign)
        return Plan(V, B, base, max(float(-B[task.initial > 0].min()), self._least_range(V, lead)), sign, lead, 0)

    def _least_range(self, V: FloatArray, lead: float) -> float:
        """L may always be larger: where lead is as large, rounding must not decide."""
        return lead + 4.0 * self.tally.rounding + 1e-9 * float(np.abs(V).max()) + 1e-300

    def _base(self, V: FloatArray, q: FloatArray | None, share: float) -> FloatArray:
        """[K] r^pi(s) - eta(s,a), eta a share of the advantages of the model."""
        rows, task, S = self.tally.rows, self.tally.task, self.tally.task.n_states
        base = np.zeros(len(rows.pair)) if len(rows.gain) else self._policy_reward()[rows.state]
        if share == 0.0 or q is None:
            return base
        worth = task.discount * V[rows.successor] + (rows.gain if len(rows.gain) else 0.0)
        mean = rows.sums(q * worth)
        by_state = np.bincount(rows.state, rows.prob * mean, minlength=S)
        return np.asarray(base - share * (mean - by_state[rows.state]))

    def _worst(self, V: FloatArray, base: FloatArray, sign: float) -> FloatArray:
        """[S] B. Where any state may follow any pair the worst path ends up in one state for good: closed form."""
        rows, task = self.tally.rows, self.tally.task
        if not task.any_successor or len(rows.gain):
            return np.asarray(compiled_rollouts.worst_paths(rows, base, V, sign, task.discount))
        S, gamma = task.n_states, task.discount
        least = np.full(S, np.inf)
        np.minimum.at(least, rows.state, sign * base)
        lowest = min(float((sign * V).min()), float(least.min()) / (1.0 - gamma))
        size = np.abs(base).max() / (1.0 - gamma) + np.abs(V).max()
        return np.asarray(np.minimum(0.0, least - sign * V + gamma * lowest) - 1e-12 * size)

    def _plain_plan(self, V: FloatArray, base: FloatArray, sign: float, lead: float) -> Plan:
        """For m draws at the end of a rollout: the range is that of one residual over 1-gamma."""
        task, rows = self.tally.task, self.tally.rows
        if task.any_successor and not len(rows.gain):
            least = (sign * base - sign * V[rows.state]).min() + task.discount * (sign * V).min()
        else:
            least = (sign * self._residuals(V, base)).min()
        L = max(-float(least) / (1.0 - task.discount) * (1.0 + 1e-9), self._least_range(V, lead))
        return Plan(V, np.zeros(task.n_states), base, L, sign, lead, self.draws)

    def _residuals(self, V: FloatArray, base: FloatArray) -> FloatArray:
        """[E] r - eta + gamma V0(x) - V0(s)."""
        rows, gamma = self.tally.rows, self.tally.task.discount
        gain = rows.gain if len(rows.gain) else 0.0
        return np.asarray(rows.per_entry(base - V[rows.state]) + gain + gamma * V[rows.successor])

    def _promise(self, plan: Plan, q: FloatArray | None, d: FloatArray | None) -> float:
        """The growth of the capital a rollout that the model expects."""
        assert q is not None
        assert d is not None
        if not plan.room > 0:
            return -np.inf
        return expected_growth(self._squares(plan, q, d), plan.lead / plan.room, self.rollouts)

    def _squares(self, plan: Plan, q: FloatArray, d: FloatArray) -> float:
        """The mean of S^2 of a rollout that the model expects, in units of room^2."""
        rows = self.tally.rows
        squares = rows.sums(q * (self._residuals(plan.V, plan.base) / plan.room) ** 2)
        return float(d[rows.state] @ (rows.prob * squares))

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side; within a rollout, of what is left of it at worst."""
        if self.averaged is not None:
            return float(self.averaged[0]), float(self.averaged[1])
        capital = self.capital.copy()
        if self.walker[0] != 0.0:
            capital[0 if self.plan.sign > 0 else 1] += self.pending()
        first, second = np.logaddexp.reduce(capital + LOG_WEIGHTS, axis=1)
        return float(first), float(second)

    def pending(self) -> FloatArray:
        """The logarithms of the factors of an unfinished rollout, at worst."""
        plan, worst = self.plan, self._worst_sum()
        return np.asarray(np.log1p(np.maximum(plan.bets * (plan.lead + worst) / plan.room, -1.0 + 1e-15)))

    def _worst_sum(self) -> float:
        """The least sum at which the rollout on its way can end."""
        plan, (_, s, earned, weight, left) = self.plan, self.walker
        return float(earned + weight * plan.B[int(s)] if not self.draws else earned - plan.L * left / self.draws)

    def interval(self, level: float) -> tuple[float, float]:
        """The values that no side's capital refutes at delta/2 each: valid at the ends of all rollouts at once."""
        low, high = value_range(self.task)
        low, high = low - self.threshold, high - self.threshold
        lower = self.refuter(1.0).up_to(low, high, level + np.log(2.0))
        upper = -self.refuter(-1.0).up_to(-high, -low, level + np.log(2.0))
        return lower + self.threshold, upper + self.threshold

    def refuter(self, sign: float) -> Refuter:
        """The bets of one side, to be settled against any threshold; of counts, averaged over their orders."""
        if self.orders:
            return AveragedRefuter([run._with_pending(sign) for run in self.orders])
        return Refuter([(sums, L, sign * value) for sums, L, value, side in self.stretches() if side == sign])

    def _with_pending(self, sign: float) -> Refuter:
        """The same, with an unfinished rollout at its worst: an e-value wherever the data end."""
        bets = [(sums, L, sign * value) for sums, L, value, side in self.stretches() if side == sign]
        if self.walker[0] != 0.0 and self.plan.sign == sign:
            bets.append((np.array([self._worst_sum()]), self.plan.L, self.plan.lead))
        return Refuter(bets)

    def outcome(self, level: float) -> Outcome:
        """The capital is the proof."""
        witness, bound = self._nearest(level)
        return Outcome(self.evidence(), witness, bound)

    def proof(self) -> tuple[float, float]:
        """All of the evidence: capital is a proof."""
        return self.evidence()

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference."""
        first, second = (self.refuter(sign).log_capital(-self.indifference) for sign in (1.0, -1.0))
        return first, second

    def _nearest(self, level: float) -> tuple[Any, float]:
        """The nearest kernel found on the other side, and T* kl(delta, 1-delta) there; not in very large tasks."""
        if self.tally.is_open or self.tally.rows.n_entries > REPORTED or not self.tally.n.any():
            return None, np.nan
        rule = PTST(solver=ProjectionFree(starts=STARTS)).replay(self.task, self.threshold, Recorded(NOTHING, NOTHING))
        rule.weigh(self.counts(), np.inf, "adaptive")
        found = rule.outcome(level)
        return found.witness, found.lower_bound

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.tally.value()[0] + self.threshold

    @property
    def solves(self) -> int:
        """No worst case is solved."""
        return 0

    def counts(self) -> Counts:
        """What was observed."""
        return self.tally.counts()

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as arrays."""
        bets = self.stretches()
        kept: dict[str, Any] = {
            "samples": np.array([self.samples]),
            "rollouts": np.array([self.rollouts]),
            "refit_at": np.array([self.refit_at, self.look_at]),
            "block": np.array([self.block]),
            "capital": self.capital.copy(),
            "walker": self.walker.copy(),
            "numbers": self.numbers.copy(),
            "lengths": np.array([len(sums) for sums, *_ in bets], dtype=np.int64),
            "sums": np.concatenate([np.zeros(0), *(sums for sums, *_ in bets)]),
            "stretches": np.array([rest for _, *rest in bets]).reshape(-1, 3),
            "fractions": np.array(self.fractions).reshape(-1, len(LOG_WEIGHTS)),
            "plan_numbers": np.array([self.plan.L, self.plan.sign, self.plan.lead]),
            "generator": stored(self.source.rng),
            "extra": np.array([self.source.extra]),
        }
        kept.update({f"plan_{name}": getattr(self.plan, name) for name in ("V", "B", "base", "bets")})
        kept.update({f"tally.{name}": value for name, value in self.tally.state().items()})
        return kept

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; one that cannot have arisen is refused."""
        try:
            self.samples, self.rollouts = int(state["samples"][0]), int(state["rollouts"][0])
            self.refit_at, self.look_at = map(float, state["refit_at"])
            self.block = int(state["block"][0])
            self.capital, self.walker = np.array(state["capital"]), np.array(state["walker"])
            self.numbers = np.array(state["numbers"])
            self.tally.restore({name[6:]: value for name, value in state.items() if name.startswith("tally.")})
            parts = np.split(state["sums"], np.cumsum(state["lengths"])[:-1]) if len(state["lengths"]) else []
            self.bets = [([part], *map(float, rest)) for part, rest in zip(parts, state["stretches"], strict=True)]  # type: ignore[misc]
            L, sign, lead = map(float, state["plan_numbers"])
            V, B, base, bets = (np.array(state[f"plan_{name}"]) for name in ("V", "B", "base", "bets"))
            self.plan = Plan(V, B, base, L, sign, lead, self.draws, bets)
            self.fractions = list(np.array(state["fractions"], dtype=np.float64))
            self.source.rng = restored(state["generator"])
            self.source.extra = kept_extra(state)
            self._check()
        except (KeyError, ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"resume: what was kept is not a state of this run ({error}); start again") from None

    def _check(self) -> None:
        """Refuse capital that the recorded rollouts do not make, plans that are not sound, and impossible rollouts."""
        if self.samples != self.tally.n[self.tally.unknown].sum() or not 0 < self.block <= LARGEST_BLOCK:
            raise ValueError("the number of samples is not that of the counts")
        if self.rollouts != sum(len(sums) for sums, *_ in self.stretches()) or not np.isfinite(self.refit_at):
            raise ValueError("the number of rollouts is not that of the sums")
        if self.numbers.ndim != 2 or self.numbers.shape[1] != 3 or not ((self.numbers >= 0) & (self.numbers < 1)).all():
            raise ValueError("what was drawn ahead are not random numbers")
        self._check_plan()
        self._check_walker()
        capital = np.zeros_like(self.capital)
        for (sums, L, value, sign), fractions in zip(self.stretches(), self.fractions, strict=True):
            lead = sign * value
            capital[0 if sign > 0 else 1] += np.log1p(np.outer((lead + sums) / (L - lead), fractions)).sum(axis=0)
        if not np.allclose(capital, self.capital, rtol=1e-9, atol=1e-9):
            raise ValueError("the capital is not that of the rollouts")

    def _check_plan(self) -> None:
        plan, rows, S = self.plan, self.tally.rows, self.task.n_states
        shapes = [part.shape for part in (plan.V, plan.B, plan.base)]
        if shapes != [(S,), (S,), (len(rows.pair),)] or plan.sign not in (1.0, -1.0):
            raise ValueError("the plan does not fit the task")
        if any(
            bets.shape != LOG_WEIGHTS.shape or not ((bets > 0) & (bets < 1)).all()
            for bets in (plan.bets, *self.fractions)
        ):
            raise ValueError("the bets are not fractions")
        again = self._ranged(plan.V, plan.base, plan.sign)
        mean = np.bincount(rows.state, rows.prob * plan.base, minlength=S)
        centre = self._policy_reward() if not len(rows.gain) else np.zeros(S)
        off: list[Any] = [mean - centre, [again.lead - plan.lead], (1.0 - self.task.discount) * (again.B - plan.B)]
        off.append([(1.0 - self.task.discount) * (again.L - plan.L)])
        size = 1e-9 * (np.abs(plan.V).max() + np.abs(plan.base).max())
        if not np.abs(np.concatenate(off)).max() <= size:
            raise ValueError("the plan is not sound")

    def _check_walker(self) -> None:
        plan, walker = self.plan, self.walker
        sound = walker.shape == (5,) and np.isfinite(walker).all() and walker[0] in (0.0, 1.0, 2.0)
        if sound and walker[0] != 0.0:
            s = walker[1]
            sound = (
                s == int(s)
                and 0 <= s < self.task.n_states
                and 0 < walker[3] <= 1.0 / compiled_rollouts.SMALLEST_CHANCE**2
            )
            if sound and not self.draws:
                least = walker[2] + walker[3] * plan.B[int(s)]
                sound = walker[0] == 1.0 and least >= -plan.L * (1.0 + 1e-9)
            elif sound:
                sound = 0 < walker[4] <= self.draws and walker[2] >= -plan.L * (1.0 + 1e-9)
        if not sound:
            raise ValueError("the rollout on its way is not possible")


def surely(level: float) -> float:
    """A little more than a level: what reaches it in compiled code reaches the level, however it is added up."""
    return level + 1e-12 * (1.0 + abs(level))


def most_promising(growth: list[float]) -> int:
    """The index of the largest expected growth; of those that are equal up to rounding, the first.

    While noise hides the lead all growths are equal, and their last bits, which differ between processors, say nothing.
    """
    return next((index for index, value in enumerate(growth) if value >= max(growth) * (1.0 - TIED)), 0)


def rounded(values: FloatArray) -> FloatArray:
    """Fitted values without their last bits, which hang on the processor: up to 2^-34 of the largest."""
    size = float(np.abs(values).max(initial=0.0))
    unit = math.ldexp(1.0, math.frexp(size)[1] - 34) if 0 < size < np.inf else 1.0
    return np.asarray(np.rint(values / unit) * unit) if unit > 0 else values


def expected_growth(v: float, lead: float, rollouts: int) -> float:
    """f gap - f^2 (v + gap^2)/2 at the best f <= 1: the growth of the capital a rollout, for gains of variance v.

    All in units of the room. The gap is the lead, or what noise may hide after so many rollouts.
    """
    gap = max(lead, 0.5 * np.sqrt(v / (rollouts + 1.0)))
    fraction = min(1.0, gap / (v + gap * gap)) if v + gap > 0 else 0.0
    return float(fraction * gap - 0.5 * fraction**2 * (v + gap * gap))


def _listed(tally: WitnessedCounts) -> tuple[IntArray, IntArray]:
    """Counts as a list of rows and successors."""
    times = tally.N.astype(np.int64)
    return np.repeat(tally.rows.of_entry(), times), np.repeat(tally.rows.successor.astype(np.int64), times)


class Refuter:
    """The rollouts of one side, in its units: which thresholds would their bets refute?

    The same rollouts serve every threshold at once: 1 + f (rho.V0 - R + S)/(L - rho.V0 + R) falls in R.
    """

    def __init__(self, bets: list[tuple[FloatArray, float, float]]) -> None:
        self.earned = np.concatenate([np.zeros(0), *(sums + value for sums, _, value in bets)])
        self.room = np.concatenate([np.zeros(0), *(np.full(len(sums), L - value) for sums, L, value in bets)])

    def log_capital(self, R: float) -> float:
        """The logarithm of the capital, averaged over fractions with equal weights."""
        ratio = (self.earned - R) / np.maximum(self.room + R, 1e-300)
        total = [np.log1p(np.maximum(fraction * ratio, -1.0 + 1e-15)).sum() for fraction in INTERVAL_FRACTIONS]
        return float(np.logaddexp.reduce(total) - np.log(len(INTERVAL_FRACTIONS)))

    def up_to(self, worst: float, best: float, level: float) -> float:
        """The largest R, up to 2^-40 of the range, for which "V <= R" is refuted; ``worst`` where none is."""
        low, high = worst, best
        if self.log_capital(low + 1e-9 * (high - low)) < level:
            return worst
        for _ in range(40):
            middle = 0.5 * (low + high)
            low, high = (middle, high) if self.log_capital(middle) >= level else (low, middle)
        return low


class AveragedRefuter(Refuter):
    """Several of them: the average of e-values is one."""

    def __init__(self, parts: list[Refuter]) -> None:
        self.parts = parts

    def log_capital(self, R: float) -> float:
        """The logarithm of their average capital."""
        return float(np.logaddexp.reduce([part.log_capital(R) for part in self.parts]) - np.log(len(self.parts)))
