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

*Both sides at once*, for intervals, for "within", and while the side is in doubt: D of the other side is -D, so that
its sum is -S. With its own worst sums B' and range L', coins keep the weight at most (S + L)/-B(x) and at most
(L' - S)/-B'(x): then S >= -L and -S >= -L', and one rollout is bet on twice. Where the weight has become very small, S
ends with w B(x), and -S with w B'(x).

L may always be larger than the worst sum: weights then have more room (`policytest.methods.betting.splitting`).

Only episodes from rho are needed, never a reset to another state. Recorded draws of a pair can serve as well, each used
once, in their order: where one is not there, the process waits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import rollouts
from policytest._base.compiled.rollouts import (
    ONE_SIDE,
    Advance,
    Dynamics,
    Limits,
    OtherSide,
    Residuals,
    RolloutState,
    Transcript,
)
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.randomness import generator, kept_extra, restored, stored
from policytest.eprocess.interval import clip_to_answer
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, widest_range
from policytest.methods.betting import splitting
from policytest.methods.betting.bets import AveragedRefuter, Bets, Refuter, not_refuted, surely
from policytest.methods.betting.draws import Supply
from policytest.methods.betting.plan import (
    LARGE,
    NO_POLICY,
    NONE,
    ON_STACKS,
    ONE_POLICY,
    REFIT,
    RESERVED,
    RESERVED_UNDISCOUNTED,
    SHARES,
    TIED,
    BettingPlan,
    GapLadder,
    Ladder,
    expected_growth,
    most_promising,
    wide_fractions,
    with_reserve,
)
from policytest.methods.betting.policy_bet import PolicyBet, are_quick, cumulative, plans_of_shares
from policytest.methods.betting.visited import VisitedBet
from policytest.methods.interface import Outcome, Run
from policytest.methods.ptst import PTST, PTSTRun
from policytest.methods.sampler import NOTHING, Recorded
from policytest.methods.witness import WitnessedCounts
from policytest.worst_case.projection_free import ProjectionFree

LOOK = 1.03  # an indifference zone is looked at when the samples have grown by this factor
ORDERS, MOST_ORDERED = 20, 10_000_000  # random orders over which counts are averaged, and their largest number
BLOCK, LARGEST_BLOCK, CALLED_BLOCK = 512, 65_536, 64  # random numbers drawn at once; the last for called simulators
REPORTED = 200_000  # entries up to which a witness is reported
STARTS = 4  # descents to the nearest kernel that is reported
PATIENCE = 0.05  # seconds between two looks of the driver, where a simulator is called step by step

Policies = tuple[PolicyBet, ...]


class BettingRun(Run):
    """Rollouts at work, of one policy or of two (`policytest.methods.betting.coupled`), and the bets on them.

    Rewards are centred, so that values, or differences of two, are compared with 0.

    Parameters
    ----------
    policies
        One policy or two, on the rows of one pool.
    indifference
        If positive, answer "within" where |V - R| is proved to be smaller than this.
    both_sides
        Bet on both sides: on each rollout, or, of two policies and of large tasks, in turn while the value seems close
        to the threshold. For intervals, and for "within". (Without it, while the side is in doubt.)
    """

    source: Supply
    tally: WitnessedCounts
    ladder: Ladder | GapLadder = ONE_POLICY
    refit = REFIT
    sides: tuple[float, ...] = (1.0, -1.0)  # that can be proved
    betting_on = 0.0  # the only side to bet on, 1 or -1; 0: that of the estimate
    WALKER: ClassVar[tuple[str, ...]] = ("phase", "state", "earned", "weight", "steps_left")  # names in a snapshot
    PLAN: ClassVar[str] = "plan_numbers"
    PARTS: ClassVar[tuple[str, ...]] = ("plan_",)

    def __init__(
        self, method: Any, task: Task, threshold: float, policies: Policies, indifference: float, both_sides: bool
    ) -> None:
        self.method, self.task, self.threshold, self.policies = method, task, threshold, policies
        self.pool, self.rounding = policies[0].pool, sum(policy.rounding for policy in policies)
        self.source, self.tally = self.pool.source, self.pool.tally
        self.indifference, self.both_sides, self.look_at = indifference, both_sides, 0.0
        self.wanted, self.rollouts, self.refit_at = -1, 0, 0.0
        self.pace, self.pace_at = splitting.EVEN, 0.0  # chosen last; the samples from which on it is chosen again
        if self.source.waits and self.ladder is ONE_POLICY:
            self.ladder = ON_STACKS
        share = RESERVED if task.discount < 1.0 else RESERVED_UNDISCOUNTED
        self.at, self.bets = RolloutState(), Bets(with_reserve(self.ladder.log_weights, share))
        self.branches = splitting.open_branches()
        self.numbers, self.block = np.zeros((0, 3)), BLOCK if self.source.is_free else CALLED_BLOCK
        self.seen = self._transcript(0)
        self.orders: list[BettingRun] = []  # of counts: the runs on random orders of the draws
        self.dynamics, self.plan = self._made_dynamics(), self._fit()

    # ------------------------------------------------------------ the loop

    @property
    def between_rollouts(self) -> bool:
        """Whether no rollout is on its way."""
        return self.at.phase == rollouts.BETWEEN

    def begin(self, level: float) -> None:
        """The evidence may suffice already, where the level was lowered."""
        self.exhausted = False  # more may have been recorded
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
        """One call of the compiled code, after a refit where that is due; the pair whose draw is waited for, or -1."""
        if self.pool.samples >= self.refit_at and self.between_rollouts:
            self.plan = self._fit()
        if not len(self.numbers):
            self.numbers = self.source.rng.random((self.block, 3))
            self.block = min(2 * self.block, LARGEST_BLOCK) if self.source.is_free else self.block
        if len(self.seen.pair) < len(self.numbers):
            self.seen = self._transcript(len(self.numbers))
        seen = self.seen
        done = self._roll(Limits(surely(level), most, self._until_due()), seen)
        self.at, self.numbers = done.at, self.numbers[done.used :]
        self._record(seen.pair[: done.steps], seen.x[: done.steps])
        self.samples += done.samples
        self.pool.samples += done.samples
        if done.rollouts:
            self._settled(seen.sums[: done.rollouts].copy())  # the rest of the array is not to be kept
            if self.plan.mirrored is not None:
                self.bets.keep(self.plan.mirrored, seen.mirrored[: done.rollouts].copy())
        if done.ending in (rollouts.CROSSED, rollouts.OTHER_CROSSED):
            self.answer = "above" if (self.plan.sign > 0) == (done.ending == rollouts.CROSSED) else "below"
        if self.answer is None:
            self._look_within(level)
        return done.wanted

    def _transcript(self, size: int) -> Transcript:
        """Room for what a call finds."""
        rewards = np.empty(size if self.task.observes_rewards else 0)
        transitions = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        return Transcript(*transitions, np.empty(size), rewards, np.empty(size if self._may_serve_both else 0))

    def _roll(self, limits: Limits, seen: Transcript) -> Advance:
        """The call of the compiled code. Rows that list only what was seen may have grown."""
        plan, rows, stakes, draws = self.plan, self.tally.rows, self.bets.stakes(self.plan), self.source.draws()
        if self.tally.is_open:
            self.dynamics = self.dynamics._replace(start=rows.start, successor=rows.successor)
        other = ONE_SIDE
        if plan.mirrored is not None:
            other = OtherSide(plan.mirrored.B, *self.bets.stakes(plan.mirrored))
        if len(plan.targets):
            side = plan.a._replace(B=plan.B)
            branched = self.dynamics, side, plan.targets, stakes, draws, self.at, self.branches, self.numbers
            return rollouts.branch(*branched, limits, seen, other)
        bet = self.dynamics, (plan.a, plan.b), plan.B, stakes, draws
        return rollouts.bet(*bet, self.at, self.numbers, limits, seen, other)

    def _made_dynamics(self) -> Dynamics:
        """Where rollouts go; one policy alone never parts."""
        task, rows, policy = self.policies[0].task, self.tally.rows, cumulative(self.policies[0].task.policy)
        places = rows.start, rows.successor, self.tally.task.layout.row_of_pair, self.pool.only
        starts = np.arange(task.n_states), cumulative(task.initial[None, :])[0]
        return Dynamics(*places, *starts, policy, policy, policy, policy, task.discount, False)

    def _settled(self, sums: FloatArray) -> None:
        """These rollouts have ended."""
        self.bets.keep(self.plan, sums)
        self.rollouts += len(sums)

    def _until_due(self) -> float:
        """The samples to the next refit or look at the zone; both are made at the first end of a rollout after that."""
        look_in = self.look_at - self.samples if self.indifference else np.inf
        return max(min(self.refit_at - self.pool.samples, look_in), 0.0)

    def _look_within(self, level: float) -> None:
        """Answer "within" where that is proved: looked at when the samples have grown, whatever the clock says."""
        if self.indifference and self.samples >= self.look_at and self.between_rollouts:
            self.look_at = max(LOOK * self.samples, self.samples + 1.0)
            self.answer = "within" if min(self.ends_refuted()) >= level else None

    def _record(self, pair: IntArray, x: IntArray) -> None:
        """Count what was drawn."""
        self.pool.record(pair, x)

    def end(self, level: float) -> None:
        """An unfinished rollout may go on later."""

    def reconsider(self, level: float) -> None:
        """Answer if the evidence at the end of a rollout reaches the level."""
        evidence = self.evidence() if self.between_rollouts else (-np.inf, -np.inf)
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
        place = self.task.place(self.wanted) if self.exhausted else ""
        return f"not enough data: no unused transition left for {place}" if self.exhausted else ""

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
        times, rows = self.tally.N.astype(np.int64), self.tally.rows
        k, x = np.repeat(rows.of_entry(), times), np.repeat(rows.successor.astype(np.int64), times)
        rng = generator(self.method.seed)
        for _ in range(ORDERS):
            shuffled = rng.permutation(len(k))
            run = self.method.replay(self.task, self.threshold, Recorded(k[shuffled], x[shuffled]), rng)
            while not run.exhausted:
                run.step(np.inf, len(k) + 1)
            self.orders.append(run)
        self.samples = self.pool.samples = counts.total
        self.plan = self._fit()
        self.reconsider(level)

    # ------------------------------------------------------------ the fit

    def learn(self, rows: Recorded) -> None:
        """Transitions that only teach: they are counted, and never bet on."""
        drawn = rows.k >= 0
        self.tally.observe(rows.k[drawn], rows.x[drawn], np.inf)  # refuses what the support excludes
        self.pool.samples += int(drawn.sum())
        self.refit_at = 0.0
        for policy in self.policies:
            policy.alone = False

    def visits_in_a_rollout(self) -> FloatArray:
        """[K] the discounted visits of each pair in a rollout by the fitted kernel; of two policies, the larger."""
        q, found = self.pool.model(), np.zeros(len(self.tally.rows.pair))
        for policy in self.policies:
            _, d = policy.values(q)
            found = found if d is None else np.maximum(found, policy.row_visits(d))
        return found

    def _fit(self) -> BettingPlan:
        """V0 from the model, the side of the bet, the share of the advantages that promises most, and the fractions."""
        samples = self.pool.samples
        self.refit_at = max(self.refit * samples, samples + 1.0)
        if isinstance(large := self.policies[0], VisitedBet):
            return self._fit_visited(large)
        q = self.pool.model()
        values, occupancies = zip(*(policy.values(q) for policy in self.policies), strict=True)
        sign, visits = self._side(values), self._visits(q, occupancies) if q is not None else None
        chosen = visits if q is not None and len(q) <= LARGE else None
        plan, v = self._best_share(values, q, sign, chosen)
        if v is None and 0 < plan.room < np.inf:
            v = self._noise(plan, visits)
        plan = self._mirrored(plan, v)
        if q is not None and chosen and v is not None and self._may_choose_pace(len(chosen[0])):
            return self._paced(plan, v, q, chosen[0])
        return self.staked(plan, v)

    def _paced(self, plan: BettingPlan, v: float, q: FloatArray, visits: FloatArray) -> BettingPlan:
        """The plan at the pace that promises most, which is chosen again when the samples have grown by a half."""
        outlook, samples = splitting.Outlook(self.policies[0], plan, self.dynamics, q, visits), self.pool.samples
        if not outlook.is_possible:
            return self.staked(plan, v)
        if samples >= self.pace_at:
            paces = splitting.UNSPLIT if self.source.travels else splitting.PACES
            self.pace, self.pace_at = outlook.best(paces, samples, self.both_sides), splitting.AGAIN * samples
        found = outlook.at(self.pace, samples)
        if found is None:
            return self.staked(plan, v)
        return self.staked(found.plan, found.v, found.sums, samples / found.cost)

    @property
    def _may_serve_both(self) -> bool:
        """Whether rollouts can serve both sides at once: those of one policy, where both totals are bounded."""
        one = len(self.policies) == 1 and not isinstance(self.policies[0], VisitedBet)
        return one and len(self.sides) == 2 and not self.betting_on

    @property
    def _serves_both(self) -> bool:
        """Whether all rollouts do."""
        return self.both_sides and self._may_serve_both

    def _mirrored(self, plan: BettingPlan, v: float | None) -> BettingPlan:
        """With the bet of the other side, where both are asked for, or while noise may hide which side is right."""
        in_doubt = v is not None and plan.lead < plan.room * math.sqrt(v / (self.rollouts + 1.0))
        if self._serves_both or (in_doubt and self._may_serve_both and not self.source.waits):
            return self._with_other_side(plan)
        return plan

    def _with_other_side(self, plan: BettingPlan) -> BettingPlan:
        """With the bet of the other side, whose sums are -S: coins keep both above their ranges."""
        other = self.joined([self.policies[0].bet(plan.a.V, plan.a.base, -plan.sign)], -plan.sign)
        return plan._replace(mirrored=other) if 0 < other.room < np.inf else plan

    def _best_share(
        self, values: Sequence[FloatArray], q: FloatArray | None, sign: float, visits: list[FloatArray] | None
    ) -> tuple[BettingPlan, float | None]:
        """The plan with the share of the advantages that promises most; the mean of S^2 to expect, where it is known.

        Where nothing is known about visits no share is chosen.
        """
        if q is not None and visits and are_quick(self.policies):
            quick, squares = plans_of_shares(self.policies[0], values[0], q, visits[0], sign, self.rounding)
            found = list(zip(quick, squares, strict=True))
            return found[most_promising([self._promise(plan, v) for plan, v in found])]
        plans = [self._plan(values, q, sign, share) for share in self._shares(visits is not None)]
        return plans[most_promising([self._growth(plan, visits) for plan in plans] if visits else [0.0])], None

    def _may_choose_pace(self, entries: int) -> bool:
        """Whether rollouts are simulated, and their pace is chosen: for one policy, where draws are made, in time.

        A model of few samples is too sure of itself: fractions fitted to its rollouts lost more than they won.
        """
        enough = max(splitting.FIRST, entries / splitting.ENTRIES_A_SAMPLE)
        return bool(not self.source.waits and len(self.policies) == 1 and self.samples >= enough)

    def _fit_visited(self, policy: VisitedBet) -> BettingPlan:
        """The same in a large task, from the visited states alone."""
        sign = self._side([V := policy.fit()])
        plans = [self.joined([policy.planned(V, sign, share)], sign) for share in policy.shares]
        noises = [policy.noise(*pair) for pair in zip(plans, policy.shares, strict=True)]
        best = most_promising([self._promise(plan, v) for plan, v in zip(plans, noises, strict=True)])
        policy.V = plans[best].a.V
        return self.staked(plans[best], noises[best] if 0 < plans[best].room < np.inf else None)

    def _shares(self, may_choose: bool) -> tuple[float, ...]:
        """Of the fitted advantages, to choose from."""
        return SHARES if may_choose else (0.0,)

    def _side(self, values: Sequence[FloatArray]) -> float:
        """On which side to bet: that of the estimate; the other one in turn, where both are asked for."""
        if self.betting_on:
            return self.betting_on
        value = self._start_value(values)
        near = not self.indifference or abs(value) < 2.0 * self.indifference
        if self.both_sides and self.bets.stretches and near and not self._serves_both:
            return -self.plan.sign
        return 1.0 if value >= -TIED * float(sum(np.abs(V).max() for V in values)) else -1.0

    def _start_value(self, values: Sequence[FloatArray]) -> float:
        """rho.V0, or the difference of two."""
        return float(self.policies[0].task.initial @ (values[0] if len(values) == 1 else values[0] - values[1]))

    def staked(
        self, plan: BettingPlan, v: float | None, sums: FloatArray = NONE, rollouts: float | None = None
    ) -> BettingPlan:
        """The plan with its fractions, and those of the other side; v is the mean of S^2, ``sums`` are simulated ones.

        In units of the room; at the value room is L. ``rollouts`` are those that the samples so far would make.
        """
        rollouts = self.rollouts if rollouts is None else rollouts
        lead, narrow = (plan.lead / plan.room, plan.narrow_room / plan.room) if v is not None else (0.0, 1.0)
        at_value = max(plan.L, 1e-6 * plan.room)  # L is 0 where V0 is the worst total that is possible
        square = (self.bets.mean_square(plan) if v is None else v) * (plan.room / at_value) ** 2
        paced = v is not None and isinstance(self.ladder, GapLadder)
        wide, mirrored = wide_fractions(square, rollouts, 1.0 / plan.wider if paced else None), plan.mirrored
        if mirrored is not None:
            scale = plan.room / mirrored.room
            mirrored = self.staked(mirrored, None if v is None else v * scale**2, -scale * sums, rollouts)
        fractions = self.ladder.fractions(v, lead, rollouts, narrow, sums)
        return plan._replace(fractions=fractions, wide=wide, mirrored=mirrored)

    def _plan(self, values: Sequence[FloatArray], q: FloatArray | None, sign: float, share: float) -> BettingPlan:
        """The bet for these values, with this share of the fitted advantages."""
        return self._planned(values, [p.base(V, q, share) for p, V in zip(self.policies, values, strict=True)], sign)

    def _planned(self, values: Sequence[FloatArray], bases: Sequence[FloatArray], sign: float) -> BettingPlan:
        """The bet with these residuals: its worst paths and its range."""
        parts = zip(self.policies, values, bases, (sign, -sign), strict=False)
        return self.joined([policy.bet(V, base, side) for policy, V, base, side in parts], sign)

    def joined(self, parts: Sequence[Residuals], sign: float) -> BettingPlan:
        """The bet that these parts make, with the worst path of all together; S never falls below -L.

        L may always be larger: where lead is as large, rounding must not decide.
        """
        lead, task, B = (
            sign * self._start_value([part.V for part in parts]),
            self.policies[0].task,
            self._worst(parts, sign),
        )
        L = max(-float(B[: task.n_states][task.initial > 0].min()), self._least_range(parts, lead))
        return BettingPlan(parts[0], parts[1] if len(parts) > 1 else NO_POLICY, B, L, sign, lead)

    def _worst(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """[S] the worst sum along any path."""
        return parts[0].B

    def _least_range(self, parts: Sequence[Residuals], lead: float) -> float:
        return lead + 4.0 * self.rounding + 1e-9 * float(sum(np.abs(part.V).max() for part in parts)) + 1e-300

    def _visits(self, q: FloatArray, occupancies: Sequence[Any]) -> list[FloatArray] | None:
        """[E] the discounted numbers of visits of each transition that the model expects."""
        rows = self.tally.rows
        return [q * rows.per_entry(occupancies[0][rows.state] * self.policies[0].prob)]

    def _squares(self, plan: BettingPlan, visits: list[FloatArray]) -> float:
        """The mean of S^2 of a rollout that the model expects, in units of room^2."""
        residuals = [
            policy.residuals(part.V, part.base) for policy, part in zip(self.policies, plan.parts, strict=True)
        ]
        if len(residuals) > 1:
            residuals.insert(0, residuals[0] - residuals[1])  # together
        return sum(float(w @ (residual / plan.room) ** 2) for w, residual in zip(visits, residuals, strict=True))

    def _growth(self, plan: BettingPlan, visits: list[FloatArray]) -> float:
        """The growth of the capital a rollout that the model expects."""
        return self._promise(plan, self._squares(plan, visits)) if plan.room > 0 else -np.inf

    def _promise(self, plan: BettingPlan, v: float) -> float:
        """The growth that a mean v of S^2, in units of room^2, promises."""
        return expected_growth(v, plan.lead / plan.room, self.rollouts) if plan.room > 0 else -np.inf

    def _noise(self, plan: BettingPlan, visits: list[FloatArray] | None) -> float | None:
        """The mean of S^2 to expect, in units of room^2; None where nothing is known about it."""
        return None if visits is None else self._squares(plan, visits)

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side; within a rollout, of what is left of it at worst.

        Where recorded draws are waited for, that at the end of the last rollout: exp(-evidence) is a p-value, since the
        capital was once as large. Of counts: averaged over their orders.
        """
        if not self.orders:
            at_end = self.between_rollouts or self.source.waits
            return self.bets.evidence(self.plan, None if at_end else self._worst_sum())
        each = [run.e_value() for run in self.orders]
        first, second = np.logaddexp.reduce(each, axis=0) - np.log(len(self.orders))
        return float(first), float(second)

    def e_value(self) -> tuple[float, float]:
        """The logarithm of an e-value of each side where the data end: an unfinished rollout is counted at worst."""
        return self.bets.evidence(self.plan, None if self.between_rollouts else self._worst_sum())

    def _worst_sum(self) -> float:
        """The least sum at which the rollout on its way can end."""
        plan, at = self.plan, self.at
        if at.phase == rollouts.BRANCHING:
            place, weight = self.branches[: int(at.state)].T
            return float(at.earned + weight @ plan.B[place.astype(np.int64)])
        return float(at.earned + at.weight * plan.B[int(at.state)])

    def interval(self, level: float) -> tuple[float, float]:
        """The values that no side's capital refutes at delta/2 each: valid at the ends of all rollouts at once."""
        return self.one_sided(level + math.log(2.0))

    def one_sided(self, level: float) -> tuple[float, float]:
        """The same, each end at this level by itself."""
        return self._not_refuted(level, as_staked=False)

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """The interval of an answer, which it does not contradict; each end holds with probability 1 - delta.

        Its ends are where the bets of the answer would just have reached log(1/delta). *Validity.* For every R the
        factors 1 + f (rho.V0 - R + S)/(L - rho.V0 + R) with the fractions f of the test, chosen beforehand, make a
        supermartingale if V <= R, and fall in R. So if the lower end is above V, the capital against R = V has reached
        1/delta, which happens with probability at most delta; likewise for the upper end. At the tested threshold this
        capital is that of the test: after "above" the lower end is at least the threshold. (Where rounding hides that,
        it is put there: a wrong answer is the same event.)

        After "within" the ends are those that were refuted, with the fractions of `interval`.
        """
        ends = self._not_refuted(required, as_staked=self.answer != "within")
        return clip_to_answer(ends, self.threshold, self.answer, self.indifference)

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values that the capital of neither side refutes at this level."""
        above, below = (self.refuter(sign, as_staked) for sign in (1.0, -1.0))
        return not_refuted(above, below, self._range(), self.threshold, level)

    def _range(self) -> tuple[float, float]:
        """Where the value lies for every kernel; in large tasks, where it lies whatever the support."""
        return widest_range(self.task) if isinstance(self.policies[0], VisitedBet) else value_range(self.task)

    def refuter(self, sign: float, as_staked: bool = False, to_the_end: bool = False) -> Refuter:
        """The bets of one side, to be settled against any threshold; of counts, averaged over their orders.

        ``as_staked``: with the fractions of the test. ``to_the_end``: with an unfinished rollout at its worst, an
        e-value wherever the data end.
        """
        if self.orders:
            return AveragedRefuter([run.refuter(sign, as_staked, to_the_end=True) for run in self.orders])
        unfinished = to_the_end and not self.between_rollouts
        return self.bets.refuter(sign, as_staked, self.plan, self._worst_sum() if unfinished else None)

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference."""
        first, second = (self.refuter(sign).log_capital(-self.indifference) for sign in (1.0, -1.0))
        return first, second

    def outcome(self, level: float) -> Outcome:
        """The capital is the proof. Not in very large tasks: the nearest kernel found beyond R, and its lower bound."""
        large = self.tally.is_open or self.tally.rows.n_entries > REPORTED or isinstance(self.policies[0], VisitedBet)
        if large or not self.tally.n.any():
            return Outcome(self.evidence(), None, math.nan)
        method, nothing = PTST(solver=ProjectionFree(starts=STARTS)), Recorded(NOTHING, NOTHING)
        rule = PTSTRun(method, self.task, self.threshold, nothing, self.tally.copy())
        rule.judge(np.inf)
        found = rule.outcome(level)
        return Outcome(self.evidence(), found.witness, found.lower_bound)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel."""
        return self.policies[0].estimate() + self.threshold

    def counts(self) -> Counts:
        """What was observed."""
        return self.tally.counts()

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as arrays."""
        plan = self.plan
        kept: dict[str, Any] = {
            **self._progress(),
            **self.bets.state(),
            "refit_at": np.array([self.refit_at, self.look_at, self.pace_at]),
            "pace": np.array([*self.pace, plan.wider]),
            "walker": np.array([getattr(self.at, name) for name in self.WALKER]),
            "numbers": self.numbers.copy(),
            "generator": stored(self.source.rng),
            "extra": np.array([self.source.extra]),
            self.PLAN: np.array([plan.L, plan.sign, plan.lead]),
            "plan_bets": plan.fractions,
            "plan_wide": plan.wide,
            "plan_targets": plan.targets,
            "plan_mirrored": np.zeros((0, 0)) if plan.mirrored is None else np.atleast_2d(_fractions(plan.mirrored)),
            "branches": self.branches[: int(self.at.state) if self.at.phase == rollouts.BRANCHING else 0].copy(),
        }
        for prefix, part in zip(self.PARTS, plan.parts, strict=True):
            kept.update({f"{prefix}V": part.V, f"{prefix}base": part.base})
        for policy in self.policies:
            kept.update(policy.kept())
        kept.update({f"tally.{name}": value for name, value in self.tally.state().items()})
        return kept

    def _progress(self) -> dict[str, Any]:
        kept = {name: np.array([getattr(self, name)]) for name in ("samples", "rollouts", "block")}
        return {**kept, "plan_B": self.plan.B}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; one that cannot have arisen is refused."""
        try:
            self._take_up(state)
        except (KeyError, ValueError, IndexError, TypeError, AttributeError, OverflowError) as error:
            raise InputError(f"cannot resume: the checkpoint is inconsistent ({error}); start again") from None

    def _take_up(self, state: dict[str, Any]) -> None:
        self._set_progress(state)
        self.pool.samples = self.samples
        self.refit_at, self.look_at, self.pace_at = map(float, state["refit_at"])
        *pace, wider = map(float, state["pace"])
        self.pace = splitting.Pace(*pace)
        if self.pace not in splitting.PACES or not 1.0 <= wider <= splitting.WIDEST:
            raise ValueError("the pace is none of those to choose from")
        self.numbers = np.array(state["numbers"], dtype=np.float64)
        self.tally.restore({name[6:]: value for name, value in state.items() if name.startswith("tally.")})
        self.bets.restore(state)
        for policy in self.policies:
            policy.take_up(state)
        if self.samples != self.tally.n[self.pool.only < 0].sum() or not 0 < self.block <= LARGEST_BLOCK:
            raise ValueError("the number of samples is not that of the counts")
        if not self.rollouts <= self.bets.rollouts <= 2 * self.rollouts or not np.isfinite(self.refit_at):
            raise ValueError("the number of rollouts is not that of the sums")
        if self.numbers.ndim != 2 or self.numbers.shape[1] != 3 or not ((self.numbers >= 0) & (self.numbers < 1)).all():
            raise ValueError("what was drawn ahead are not random numbers")
        self.plan = self._kept_plan(state)
        self.at = RolloutState(**dict(zip(self.WALKER, map(float, state["walker"]), strict=True)))
        branches = np.array(state["branches"], dtype=np.float64)
        self.branches[: len(branches)] = branches
        if not np.isfinite(self.at).all() or not (self.between_rollouts or self._is_possible(self.at)):
            raise ValueError("the rollout on its way is not possible")
        self.source.rng, self.source.extra = restored(state["generator"]), kept_extra(state)

    def _set_progress(self, state: dict[str, Any]) -> None:
        self.samples, self.rollouts, self.block = (int(state[name][0]) for name in ("samples", "rollouts", "block"))

    def _kept_plan(self, state: dict[str, Any]) -> BettingPlan:
        """The plan from its values and advantages: worst paths and the range are computed again, and must agree."""
        L, sign, lead = map(float, state[self.PLAN])
        values, bases = ([np.array(state[prefix + name]) for prefix in self.PARTS] for name in ("V", "base"))
        fractions, wide = (np.array(state[name], dtype=np.float64) for name in ("plan_bets", "plan_wide"))
        sizes = []
        for policy, V, base in zip(self.policies, values, bases, strict=True):
            if V.shape != policy.V.shape or base.shape != policy.base_shape or sign not in (1.0, -1.0):
                raise ValueError("the plan does not fit the task")
            sizes.append(1e-9 * float(np.abs(V).max() + np.abs(base).max()))
            if not policy.is_centred(base, sizes[-1]):
                raise ValueError("the advantages are not centred")
            policy.V = V
        again, scale = self._planned(values, bases, sign), 1.0 - self.task.discount or 1.0
        B = np.array(state["plan_B"]) if len(self.PARTS) == 1 else again.B  # that of two policies is not kept
        again = again.widened(float(state["pace"][-1]))
        mine, its = np.append(again.B, again.L), np.append(B, L)
        off = scale * np.abs(mine[mine != its] - its[mine != its]).max(initial=0.0)
        if not max(abs(again.lead - lead), off) <= sum(sizes) or not self.bets.are_fractions(fractions, wide):
            raise ValueError("the plan is not sound")
        targets = np.array(state["plan_targets"], dtype=np.float64)
        if len(targets) and not (targets.shape == again.B.shape and (targets >= splitting.LEAST_TARGET).all()):
            raise ValueError("the plan does not fit the task")
        plan = again._replace(fractions=fractions, wide=wide, L=L, lead=lead, targets=targets)
        return self._kept_mirrored(plan, np.array(state["plan_mirrored"], dtype=np.float64))

    def _kept_mirrored(self, plan: BettingPlan, kept: FloatArray) -> BettingPlan:
        """With the bet of the other side, if there was one: its fractions are kept, the rest is computed again."""
        if self._may_serve_both and (kept.size or self.both_sides):
            plan = self._with_other_side(plan).widened(plan.wider)
        if (plan.mirrored is None) != (not kept.size):
            raise ValueError("the plan does not fit the question")
        if plan.mirrored is None:
            return plan
        fractions, wide = np.split(kept[0], [len(plan.fractions)])
        if not self.bets.are_fractions(fractions, wide):
            raise ValueError("the bets are not fractions")
        return plan._replace(mirrored=plan.mirrored._replace(fractions=fractions, wide=wide))

    def _is_possible(self, at: RolloutState) -> bool:
        """Whether a rollout can be on its way like this: it is somewhere, with a weight, and above its range."""
        if at.phase == rollouts.BRANCHING:
            return self._may_branch(at)
        somewhere = at.state == int(at.state) and 0 <= at.state < len(self.plan.B)
        if not somewhere or not 0 < at.weight <= 1.0 / rollouts.SMALLEST_CHANCE**2:
            return False
        in_phase, other = at.phase == rollouts.TOGETHER, self.plan.mirrored
        if other is not None and self.task.total_rewards is None:
            below = at.weight * min(other.B[int(at.state)], 0.0) - at.earned
            in_phase = in_phase and below >= -other.L * (1.0 + 1e-9)
        return in_phase and self._worst_sum() >= -self.plan.L * (1.0 + 1e-9)

    def _may_branch(self, at: RolloutState) -> bool:
        """Whether these branches can be open: each is somewhere, with a weight, and together above the range."""
        n = int(at.state)
        if at.state != n or not 0 < n <= len(self.branches) or not len(self.plan.targets):
            return False
        place, weight = self.branches[:n].T
        inside = (place == np.rint(place)) & (place >= 0) & (place < len(self.plan.B))
        sound = inside.all() and ((weight > 0) & (weight <= rollouts.LARGEST_WEIGHT)).all()
        if not sound or (other := self.plan.mirrored) is None:
            return bool(sound) and self._worst_sum() >= -self.plan.L * (1.0 + 1e-9)
        worst = self._worst_sum(), float(at.weight + weight @ other.B[place.astype(np.int64)])
        return all(sum_ >= -L * (1.0 + 1e-9) for sum_, L in zip(worst, (self.plan.L, other.L), strict=True))


def _fractions(plan: BettingPlan) -> FloatArray:
    """Those of the test and of intervals."""
    return np.concatenate([plan.fractions, plan.wide])
