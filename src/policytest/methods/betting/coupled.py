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

    B_A(s)  <= min(0, D_A(s,a,x) + gamma B_A(x)),  B_B likewise: as for one policy, see `betting.run`,
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

import math
import time
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import rollouts as compiled_rollouts
from policytest._base.compiled import search
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.betting.coupled_kept import keep, take_up
from policytest.methods.betting.coupling import (
    Half,
    Pool,
    Side,
    cumulative,
    exact,
    least_by_state,
    maximal_coupling,
    part_of,
)
from policytest.methods.betting.run import (
    BLOCK,
    LARGE,
    LARGEST_BLOCK,
    PATIENCE,
    REFIT,
    SHARES,
    TIED,
    BettingRun,
    expected_growth,
    most_promising,
    surely,
)
from policytest.methods.interface import Outcome
from policytest.methods.known_range import known_difference
from policytest.methods.witness import centring_error

STEADY, MULTIPLES = 0.995 * 2.0 ** (-0.5 * np.arange(4)), np.array([1.0, 2.0, 4.0])
LOG_WEIGHTS = np.log(np.array([0.63, 0.063, 0.0063, 0.0007, 0.1, 0.1, 0.1]))  # of the steady bets and the adaptive ones
IDLE_BLOCKS = 200  # of random numbers in which no sample was drawn, before a run gives up


@dataclass(frozen=True)
class CoupledBetting:
    """The method of a comparison, for its verdict."""

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences, policy A against policy B in coupled rollouts"


class CoupledPlan(NamedTuple):
    """What the next rollouts bet with; all of it from the past."""

    a: Half
    b: Half
    B: FloatArray  # the worst sum along any path of the two together
    L: float
    sign: float
    lead: float  # sign (rho.(V0_A - V0_B) - margin)
    bets: Any = STEADY  # the fractions of the largest bet

    @property
    def room(self) -> float:
        """L - lead: what a full bet stakes."""
        return self.L - self.lead


class CoupledRun(BettingRun):
    """The comparison of two policies at work; of `BettingRun` it keeps the purse, the loop and what they can say."""

    plan: Any

    def __init__(self, task_a: Task, task_b: Task, margin: float, pool: Pool) -> None:
        self.method, self.task, self.threshold, self.pool = CoupledBetting(), task_a, margin, pool
        self.source, self.tally = pool.source, pool.tally
        self.known = known_difference(task_a, task_b)
        centre = 0.25 * (sum(value_range(task_a)) + sum(value_range(task_b)))
        self.rounding = sum(value_range_error(task) + centring_error(task, centre) for task in (task_a, task_b))
        self.a, self.b = Side(exact(task_a, centre + margin), pool), Side(exact(task_b, centre), pool)
        self.coupling = maximal_coupling(self.a.task.policy, self.b.task.policy)
        self._start_empty()
        self.plan = self._with_bets(self._fit())

    def _start_empty(self) -> None:
        """Nothing was bet yet."""
        self.samples, self.rollouts, self.refit_at, self.idle = 0, 0, 0.0, 0
        self.answer: str | None = None
        self.exhausted, self.averaged, self.draws, self.wanted = False, None, 0, -1
        self.both_sides, self.indifference, self.look_at = False, 0.0, 0.0
        self.capital, self.walker = np.zeros((2, len(LOG_WEIGHTS))), np.zeros(6)
        self.recent: FloatArray = np.zeros(2)  # rollouts and the sum of their S^2, earlier ones counting less
        self.numbers, self.block = np.zeros((0, 3)), BLOCK if self.source.is_table else 64
        self.bets: list[tuple[list[FloatArray], float, float, float]] = []
        self.fractions: list[FloatArray] = []  # the bets of each stretch of rollouts
        self.orders: list[BettingRun] = []
        self._laws: tuple[Any, ...] | None = None

    # ------------------------------------------------------------ the loop

    def step(self, level: float, most: int) -> None:
        """Rollouts, until an answer, a refit, the end of a block of random numbers, or of the samples.

        A simulator that is called step by step is called at least once, and as often as fits into a moment; every draw
        is used at once. The run gives up where rollouts meet nothing that is unknown.
        """
        until, limit, before = time.monotonic() + PATIENCE, self.paid + most, self.samples
        wanted = self._advance(level, most)
        while wanted >= 0 and self.answer is None and self.paid < limit:
            self.source.provide(wanted)
            wanted = self._advance(level, max(limit - self.paid, 1))
            if time.monotonic() > until:
                break
        self.idle = 0 if self.samples > before else self.idle + 1
        self.exhausted = self.answer is None and self.idle >= IDLE_BLOCKS

    def _advance(self, level: float, most: int) -> int:
        """One call of the compiled code, after a refit where that is due; the pair that is waited for, or -1."""
        if self.pool.samples >= self.refit_at and self.walker[0] == 0.0:
            self.plan = self._with_bets(self._fit())
        if not len(self.numbers):
            self.numbers = self.source.rng.random((self.block, 3))
            self.block = min(2 * self.block, LARGEST_BLOCK) if self.source.is_table else self.block
        ending, wanted = self._roll(level, most)
        if ending == compiled_rollouts.CROSSED:
            self.answer = "above" if self.plan.sign > 0 else "below"
        else:
            self._look_within(level)
        return wanted if ending == compiled_rollouts.WAITING else -1

    def _roll(self, level: float, most: int) -> tuple[int, int]:
        """One call of the compiled code; how it ended, and the pair that is waited for."""
        size, side = len(self.numbers), 0 if self.plan.sign > 0 else 1
        pair, x, sums = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size)
        plan = (tuple(self.plan.a), tuple(self.plan.b), *self.plan[2:6])
        ending, used, steps, samples, rollouts, wanted, _ = compiled_rollouts.bet_coupled(
            self._world(), plan, (self.plan.bets, LOG_WEIGHTS, self.capital[side]), self.walker, self.source.arrays(),
            self.numbers, (surely(level), most, self._until_due(self.pool.samples)), pair, x, sums,
        )  # fmt: skip
        self.numbers = self.numbers[used:]
        self._record(pair[:steps], x[:steps])
        self.samples += samples
        self.pool.samples += samples
        if rollouts:
            self._keep(sums[:rollouts].copy())  # the rest of the array is not to be kept
            self.rollouts += rollouts
            squares = np.add.accumulate(
                np.append(self.recent[1], sums[:rollouts] ** 2)
            )  # one by one: pauses do not count
            self.recent = np.array([self.recent[0] + rollouts, squares[-1]])
        return int(ending), int(wanted)

    def _record(self, pair: IntArray, x: IntArray) -> None:
        """Every transition that was drawn is counted; those of known rows are not draws."""
        k = self.pool.task.layout.row_of_pair[pair]
        drawn = self._tables()[0][k] < 0
        if drawn.any():
            self.tally.observe(k[drawn], x[drawn], np.inf)

    def _world(self) -> tuple[Any, ...]:
        rows, (only, *laws) = self.tally.rows, self._tables()
        return rows.start, rows.successor, self.pool.task.layout.row_of_pair, only, *laws

    def _tables(self) -> tuple[Any, ...]:
        """Known successors, the laws of states and actions, the discount; for the compiled code."""
        if self._laws is None:
            (common, first, second), task = self.coupling, self.a.task
            self._laws = (
                self.pool.tally.only_successor,
                np.arange(task.n_states),
                cumulative(task.initial[None, :])[0],
                cumulative(np.concatenate([common, first], axis=1)),
                cumulative(second / np.maximum(second.sum(axis=1, keepdims=True), 1e-300)),
                cumulative(task.policy),
                cumulative(self.b.task.policy),
                task.discount,
                False,
            )
        return self._laws

    def why_undecided(self) -> str:
        """Where rollouts end before they meet anything unknown."""
        return "rollouts meet nothing that is unknown" if self.exhausted else ""

    # ------------------------------------------------------------ the fit

    def _fit(self) -> Any:
        """V0 of both from the common model, the side of the bet, and the share of advantages that promises most."""
        samples, q, initial = self.pool.samples, self.pool.model(), self.a.task.initial
        self.refit_at = max(REFIT * samples, samples + 1.0)
        (V_a, d_a), (V_b, d_b) = self.a.values(q), self.b.values(q)
        difference = float(initial @ (V_a - V_b))
        sign = 1.0 if difference >= -TIED * float(np.abs(V_a).max() + np.abs(V_b).max()) else -1.0
        if self.both_sides and self.bets and abs(difference) < 2.0 * self.indifference:
            sign = -self.plan.sign
        shares = SHARES if q is not None and len(q) <= LARGE else (0.0,)
        weights = self._visits(q, d_a, d_b) if len(shares) > 1 else None
        plans = [self._coupled_plan((V_a, V_b), q, sign, share) for share in shares]
        return plans[most_promising([self._promised(plan, q, weights) for plan in plans] if weights else [0.0])]

    def _with_bets(self, plan: CoupledPlan) -> CoupledPlan:
        """Steady fractions, and multiples of f = gap room/(v + gap^2), the best one where gains are small.

        All are chosen before the rollouts they are for; gap is what the model expects, or what noise may hide.
        """
        room = plan.room
        v = (room * room + self.recent[1]) / (1.0 + self.recent[0])
        gap = max(plan.lead, 0.5 * math.sqrt(v / (self.rollouts + 1.0)))
        self.recent *= 0.5
        best = gap * room / (v + gap * gap) if 0 < v + gap * gap < np.inf else 1.0
        fitted = np.clip(MULTIPLES * best, 1e-6, 0.995)
        return plan._replace(bets=np.concatenate([STEADY, fitted]))

    def _coupled_plan(
        self, V: tuple[FloatArray, FloatArray], q: FloatArray | None, sign: float, share: float
    ) -> CoupledPlan:
        """The bet for these values, with this share of the fitted advantages."""
        a, b = self._half(self.a, V[0], q, sign, share), self._half(self.b, V[1], q, -sign, share)
        return self.joined(a, b, sign)

    def _half(self, side: Side, V: FloatArray, q: FloatArray | None, sign: float, share: float) -> Half:
        base = side.base(V, q, share)
        return Half(V, side.worst(V, base, sign), base, side.gain)

    def joined(self, a: Half, b: Half, sign: float) -> CoupledPlan:
        """The bet that two halves make, with the worst path of the two together."""
        initial = self.a.task.initial
        B = self._joint_worst(a, b, self._parting(a, b, sign), sign)
        lead = sign * float(initial @ (a.V - b.V))
        L = max(float(-B[initial > 0].min()), self._lowest_range(a, b, lead))
        return CoupledPlan(a, b, B, L, sign, lead)

    def _lowest_range(self, a: Half, b: Half, lead: float) -> float:
        """L may always be larger: where lead is as large, rounding must not decide."""
        size = float(np.abs(a.V).max() + np.abs(b.V).max())
        return lead + 4.0 * self.rounding + 1e-9 * size + 1e-300

    def _parting(self, a: Half, b: Half, sign: float) -> FloatArray:
        """[S] the worst that can follow when the two part at s; infinite where they do not."""
        pair, state, S = self.tally.rows.pair, self.tally.rows.state, self.task.n_states
        total = np.zeros(S)
        for side, half, sense, law in (
            (self.a, a, sign, self.coupling.first),
            (self.b, b, -sign, self.coupling.second),
        ):
            taken = np.flatnonzero(law.ravel()[pair] > 0)
            lowest = side.lowest_steps(half.V, half.base, half.B, sense)
            total += least_by_state(lowest, state, taken, S)
        return total

    def _joint_worst(self, a: Half, b: Half, floor: FloatArray, sign: float) -> FloatArray:
        """[S] B. Where any state may follow any pair the worst path has a closed form, as for one policy."""
        rows, gamma, S = self.tally.rows, self.a.task.discount, self.task.n_states
        shared = np.flatnonzero(self.coupling.common.ravel()[rows.pair] > 0)
        U, base = a.V - b.V, a.base - b.base
        if not (self.a.task.any_successor and self.b.task.any_successor):
            chosen, entries = part_of(rows._replace(gain=np.zeros(0)), shared)
            chosen = chosen._replace(gain=_difference(a.gain, b.gain, entries))
            return np.asarray(compiled_rollouts.coupled_paths(chosen, base[shared], U, floor, sign, gamma))
        least = least_by_state(sign * base, rows.state, shared, S)
        ends = np.minimum(floor, 0.0)
        lowest = min(float((sign * U + ends).min()), float(least.min()) / (1.0 - gamma))
        finite = np.abs(ends).max() + np.abs(base[shared]).max(initial=0.0) / (1.0 - gamma)
        size = finite + np.abs(a.V).max() + np.abs(b.V).max()
        return np.asarray(np.minimum(ends, least - sign * U + gamma * lowest) - 1e-12 * size)

    def _visits(self, q: Any, d_a: Any, d_b: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """[K] the discounted numbers of visits of each pair that the model expects: together, A alone, B alone."""
        rows, task = self.tally.rows, self.a.task
        together = self.coupling.common.ravel()[rows.pair]
        _, d, _ = search.values_and_occupancy(rows._replace(prob=together), q, task.discount, task.initial)
        both = d[rows.state] * together
        alone = [np.maximum(own[rows.state] * s.prob - both, 0.0) for own, s in ((d_a, self.a), (d_b, self.b))]
        return both, alone[0], alone[1]

    def _promised(self, plan: CoupledPlan, q: Any, weights: tuple[FloatArray, FloatArray, FloatArray]) -> float:
        """The growth of the capital a rollout that the model expects."""
        if not plan.room > 0:
            return -np.inf
        rows = self.tally.rows
        mine, theirs = (side.residuals(half.V, half.base) for side, half in ((self.a, plan.a), (self.b, plan.b)))
        v = 0.0
        for weight, residual in zip(weights, (mine - theirs, mine, theirs), strict=True):
            v += float(weight @ rows.sums(q * (residual / plan.room) ** 2))
        return expected_growth(v, plan.lead / plan.room, self.rollouts)

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side; within a rollout, of what is left of it at worst."""
        capital = self.capital.copy()
        if self.walker[0] != 0.0:
            capital[0 if self.plan.sign > 0 else 1] += self.pending()
        first, second = np.logaddexp.reduce(capital + LOG_WEIGHTS, axis=1)
        return float(first), float(second)

    def _worst_sum(self) -> float:
        """The least sum at which the rollout on its way can end."""
        plan, (phase, s, earned, weight, y, other) = self.plan, self.walker
        if phase == compiled_rollouts.TOGETHER:
            return float(earned + weight * plan.B[int(s)])
        if phase in (compiled_rollouts.B_PARTS, compiled_rollouts.B_IN_TURN):
            return -float(plan.L)
        worst = earned + other * plan.b.B[int(y)]
        return float(
            worst
            + (weight * plan.a.B[int(s)] if phase in (compiled_rollouts.A_ALONE, compiled_rollouts.A_IN_TURN) else 0.0)
        )

    def interval(self, level: float) -> tuple[float, float]:
        """The differences that no side's capital refutes at delta/2 each: valid at the ends of all rollouts at once."""
        low, high = self.known.low - self.threshold, self.known.high - self.threshold
        lower = self.refuter(1.0).up_to(low, high, level + np.log(2.0))
        upper = -self.refuter(-1.0).up_to(-high, -low, level + np.log(2.0))
        return lower + self.threshold, upper + self.threshold

    def outcome(self, level: float) -> Outcome:
        """The capital is the proof."""
        return Outcome(self.evidence(), None, math.nan)

    @property
    def estimate(self) -> float:
        """The difference of the values under the empirical kernel."""
        entries, task = self.tally.estimate(), self.a.task
        values = [
            search.values_and_occupancy(side.rows(), entries, task.discount, task.initial)[0]
            for side in (self.a, self.b)
        ]
        return float(task.initial @ (values[0] - values[1])) + self.threshold

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as arrays."""
        return keep(self)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; one that cannot have arisen is refused."""
        take_up(self, state)


def _difference(first: FloatArray, second: FloatArray, entries: IntArray) -> FloatArray:
    """The difference of rewards on successors; empty where there are none."""
    if not len(first) and not len(second):
        return np.zeros(0)
    return np.asarray((first[entries] if len(first) else 0.0) - (second[entries] if len(second) else 0.0))
