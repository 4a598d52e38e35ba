"""Bets on rollouts at work: of one policy or of two, with or without a horizon; the payoff knows which.

The capital is looked at *at the ends of rollouts*; within one, S + w B(s), which is below the mean of the final S given
the path so far, stands for it. Recorded draws of a pair can serve as well, each used once, in their order: where one is
not there, the run waits.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import small
from policytest._base.compiled.small import Call, Limits, RolloutState
from policytest._base.errors import InputError
from policytest._base.record import Record, numbers_of, part_of, record
from policytest.data.counts import Counts
from policytest.data.randomness import generator, kept_extra, restored, stored
from policytest.data.reward_moments import RewardMoments
from policytest.eprocess.budget import refuse_other_budgets
from policytest.eprocess.capital import TwoSided, with_rounding_margin
from policytest.eprocess.information import TO_PARTS, SampleAim
from policytest.eprocess.interval import Average, Refuter, average, ends
from policytest.eprocess.strategies import ENDS_AT_BUDGET, Moments
from policytest.kl.sampler import Recorded
from policytest.kl.witness import WitnessedCounts
from policytest.methods.kl_rules import KLQuestion, NearestKernel
from policytest.methods.run import Outcome, Run
from policytest.payoffs.draws import Supply
from policytest.payoffs.fit import Fit, Progress
from policytest.payoffs.lanes import Lanes
from policytest.payoffs.plan import BettingPlan
from policytest.payoffs.td_rollouts import Rollouts

FIRST_COST = 10.0  # samples of a rollout, before any has ended
LOOK = 1.03  # an indifference zone is looked at when the samples have grown by this factor
ORDERS, MOST_ORDERED = 20, 10_000_000  # random orders over which counts are averaged, and their largest number
BLOCK, LARGEST_BLOCK, CALLED_BLOCK = 512, 65_536, 64  # random numbers drawn at once; the last for called simulators
IDLE_BLOCKS = 200  # of random numbers in which no sample was drawn, before a run of two policies gives up
REPORTED = 200_000  # entries up to which a witness is reported
PATIENCE = 0.05  # seconds between two looks of the driver, where a simulator is called step by step


class TDRun(Run):
    """Rollouts at work, and the bets on them.

    Parameters
    ----------
    method
        The settings, for the verdict.
    payoff
        The rollouts.
    indifference
        If positive, answer "within" where |V - R| is proved to be smaller than this.
    both_sides
        See `policytest.payoffs.fit.Fit`, which may be passed instead.
    """

    source: Supply
    tally: WitnessedCounts

    def __init__(
        self,
        method: Any,
        payoff: Rollouts,
        indifference: float = 0.0,
        both_sides: bool = False,
        fit: Fit | None = None,
    ) -> None:
        self.method, self.payoff, self.task, self.threshold = method, payoff, payoff.task, payoff.threshold
        self.pool, self.source, self.tally = payoff.pool, payoff.source, payoff.tally
        self.indifference, self.look_at = indifference, 0.0
        self.missing_pair, self.idle, self.rollouts = -1, 0, 0
        self.at, self.bets, self.moments = RolloutState(), TwoSided(payoff.strategy), Moments()
        self.numbers, self.block = np.zeros((0, 3)), BLOCK if self.source.is_free else CALLED_BLOCK
        self.seen = payoff.transcript(0)
        self.orders: list[TDRun] = []  # of counts: the runs on random orders of the draws
        self.aim: SampleAim | None = None  # at an answer within a budget
        self.lanes: Lanes | None = None  # where several rollouts are under way
        self.fit = Fit(payoff, indifference, both_sides) if fit is None else fit
        self.plan = self._fitted()

    def _fitted(self) -> BettingPlan:
        """The plan of the next rollouts."""
        last = self.plan.sign if self.bets.count else 0.0
        return self.fit.plan(Progress(self.samples, self.rollouts, self.moments, last, self.bets.evidence()))

    def aim_at(self, budget: int, pairs: bool = False) -> None:
        """The fractions of each rollout are chosen for an answer by the last transition of the budget."""
        self.payoff.bet_by(TO_PARTS)
        self.fit.aim_at(budget)
        self.bets, self.aim = TwoSided(TO_PARTS, ENDS_AT_BUDGET), SampleAim(budget)
        self.plan = self._fitted()

    @property
    def is_spent(self) -> bool:
        """Whether the budget is."""
        return self.aim is not None and self.aim.left(self.samples_used) <= 0

    def extend(self, budget: int, required: float) -> None:
        """Aim at the end of a larger budget, from the capital that is left."""
        assert self.aim is not None
        self.aim.extend(budget)
        self.begin(required)

    def _next_plan(self) -> None:
        """The plan of the next rollout: fitted again where that is due, and aimed at the end of the budget."""
        is_due = self.pool.samples >= self.fit.due
        if is_due:
            self.plan = self._fitted()
        if self.aim is not None and self.aim.is_due(self.samples_used, is_due):
            self.plan = self._aimed(self.plan, self.aim)

    def _aimed(self, plan: BettingPlan, aim: SampleAim) -> BettingPlan:
        """The plan with the fractions of the aim, on each side that it serves."""
        cost = plan.cost or (self.samples + FIRST_COST) / (self.rollouts + 1.0)
        progress, capital = (self.samples_used, cost), self.bets[plan.sign].parts
        other = None if plan.mirrored is None else self._aimed(plan.mirrored, aim)
        return plan._replace(fractions=aim.fractions(plan.sign, capital, plan.v, plan.room, *progress), mirrored=other)

    # ------------------------------------------------------------ the loop

    def work_in_parallel(self, workers: int) -> None:
        """Have so many rollouts under way at once; one by one, where draws are free."""
        self.lanes = Lanes(self.payoff, workers) if workers > 1 and not self.source.is_free else None

    @property
    def between_rollouts(self) -> bool:
        """Whether no rollout is on its way."""
        return self.at.phase == small.BETWEEN

    def begin(self, required: float) -> None:
        """The evidence may suffice already, where the level was lowered."""
        self.exhausted = False  # more may have been recorded
        if self.aim is not None:
            self.aim.begin(required, self.samples_used, [side.parts for side in self.bets])
            self.exhausted = self.is_spent
        self.update_answer(required)

    def step(self, required: float, most: int) -> None:
        """Rollouts, until an answer, a refit, the end of a block of random numbers, or of the samples.

        A simulator that is called step by step is called as often as fits into a moment; every draw is used at once.
        Two policies give up where rollouts meet nothing that is unknown.
        """
        if self.aim is not None:
            most = min(most, self.aim.left(self.samples_used))
        if self.lanes is not None and self.between_rollouts:
            self._step_together(self.lanes, required, self.samples_used + most)
            return
        until, limit, before = time.monotonic() + PATIENCE, self.samples_used + most, self.samples
        missing = self._advance(required, most)
        while missing >= 0 and self.answer is None:
            if self.source.waits:
                self.exhausted, self.missing_pair = True, missing
            if self.source.waits or self.samples_used >= limit:
                break
            self.source.provide(missing)
            missing = self._advance(required, max(limit - self.samples_used, 1))
            if time.monotonic() > until:
                break
        self._count_idle(before)

    def _step_together(self, lanes: Lanes, required: float, limit: int) -> None:
        """Rounds of the rollouts under way, for a moment; see `policytest.payoffs.lanes`."""
        until, before, level = time.monotonic() + PATIENCE, self.samples, with_rounding_margin(required)
        while self.answer is None and self.samples_used < limit and time.monotonic() <= until:
            if not lanes.waiting:
                self._look_at_zone(required)
                lanes.next_round(self.bets, required)
                for _ in range(CALLED_BLOCK):
                    is_due = self.pool.samples >= self.fit.due
                    if self.answer is not None or not lanes.has_room(is_due):
                        break
                    self._next_plan()
                    lanes.begin(self.plan)
                    self._settle(lanes, level)
            self.samples += lanes.draw(limit - self.samples_used)
            self._settle(lanes, level)
            if not lanes.waiting and self.samples == before:  # rollouts meet nothing that is unknown
                break
        self._count_idle(before)

    def _settle(self, lanes: Lanes, level: float) -> None:
        """The rollouts whose turn it is, up to an answer."""
        while self.answer is None and (lane := lanes.next_to_settle()) is not None:
            for plan, sums in lane.outcomes:
                evidence, _ = self.bets[plan.sign].settle(plan.bet, plan.lead + sums)
                self._seen(plan, sums)
                if evidence >= level and self.answer is None:
                    self.answer = "above" if plan.sign > 0 else "below"
            self.payoff.settled(lane.plan, lane.sums[:1])
            self.rollouts += 1

    def _count_idle(self, before: int) -> None:
        """Two policies give up where rollouts meet nothing that is unknown; all, at the end of the budget."""
        if self.aim is not None and self.aim.left(self.samples_used) <= 0:
            self.exhausted = self.answer is None
        if self.payoff.pair is not None and not self.source.waits:
            self.idle = 0 if self.samples > before else self.idle + 1
            self.exhausted = self.exhausted or (self.answer is None and self.idle >= IDLE_BLOCKS)

    def _advance(self, required: float, most: int) -> int:
        """One call of the compiled code, after a refit where that is due; the pair whose draw is waited for, or -1."""
        if self.between_rollouts:
            self._next_plan()
        if not len(self.numbers):
            self.numbers = self.source.rng.random((self.block, 3))
            self.block = min(2 * self.block, LARGEST_BLOCK) if self.source.is_free else self.block
        if len(self.seen.pair) < len(self.numbers):
            self.seen = self.payoff.transcript(len(self.numbers))
        seen, plan, limits = self.seen, self.plan, Limits(with_rounding_margin(required), most, self._until_due())
        done = self.payoff.roll(plan, self.bets, Call(self.at, self.numbers, limits, seen))
        self.at, self.numbers = done.at, self.numbers[done.used :]
        self.pool.record(seen.pair[: done.steps], seen.x[: done.steps], seen.reward[: done.steps])
        self.samples += done.samples
        if done.rollouts:
            self._settled(plan, seen.sums[: done.rollouts])
            if plan.mirrored is not None:
                self._settled(plan.mirrored, seen.mirrored[: done.rollouts])
            self.payoff.settled(plan, seen.sums[: done.rollouts])
            self.rollouts += done.rollouts
        if done.ending in (small.CROSSED, small.OTHER_CROSSED):
            self.answer = "above" if (plan.sign > 0) == (done.ending == small.CROSSED) else "below"
        self._look_at_zone(required)
        return done.missing_pair

    def _look_at_zone(self, required: float) -> None:
        """Answer "within" between rollouts, where that is due and both ends of the zone are refuted."""
        if self.answer is None and self.indifference and self.samples >= self.look_at and self.between_rollouts:
            self.look_at = max(LOOK * self.samples, self.samples + 1.0)
            self.answer = "within" if min(self.ends_refuted()) >= required else None

    def _settled(self, plan: BettingPlan, sums: FloatArray) -> None:
        """Rollouts with this plan were settled in compiled code."""
        self.bets[plan.sign].keep(plan.bet, plan.lead + sums)
        self._seen(plan, sums)

    def _seen(self, plan: BettingPlan, sums: FloatArray) -> None:
        """What later bets learn from settled rollouts."""
        self.moments.add(sums)
        if self.aim is not None:
            self.aim.add(plan.sign, sums, plan.v, plan.room)

    def _until_due(self) -> float:
        """The samples to the next refit or look at the zone; both are made at the first end of a rollout after that."""
        if self.lanes is not None:  # which take over at the end of this one
            return 0.0
        look_in = self.look_at - self.samples if self.indifference else np.inf
        if self.aim is not None:
            look_in = min(look_in, self.aim.look_at - self.samples_used)
        return max(min(self.fit.due - self.pool.samples, look_in), 0.0)

    def update_answer(self, required: float) -> None:
        """Answer if the evidence at the end of a rollout reaches the level."""
        self.answer = None
        if self.between_rollouts:
            super().update_answer(required)

    def used(self) -> int:
        """Of recorded transitions, up to the last one that was taken; all, where there is no answer."""
        return self.source.reach() if self.answer is not None else self.source.size

    def why_undecided(self) -> str:
        """Which pair has no more recorded draws; or that rollouts end before they meet anything unknown."""
        said = ""
        if self.exhausted and self.source.waits:
            said = f"not enough data: no unused transition left for {self.task.place(self.missing_pair)}"
        elif self.aim is not None and self.is_spent:
            said = f"the budget of {self.aim.words} is used up"
        elif self.exhausted:
            said = "rollouts meet nothing that is unknown"
        return "; ".join(part for part in (said, self.payoff.why_undecided()) if part)

    def judge_counts(self, counts: Counts, required: float, design: str) -> None:
        """Counts of a fixed design: the capital at their end, averaged over random orders of the draws of each pair.

        Each is an e-value once the unfinished rollout is counted at worst; an average of e-values is one. With an
        adaptive design the order matters, and is not known.
        """
        if self.task.observes_rewards:
            raise InputError("counts have no rewards, and the task's are observed; pass Transitions(s, a, x, r)")
        if design != "fixed":
            raise InputError(
                'counts have no order, which betting needs; pass Transitions(s, a, x), design="fixed" if the numbers '
                "of draws were fixed beforehand, or method=PTST()"
            )
        if counts.total > MOST_ORDERED:
            raise InputError(f"counts has {counts.total} draws; betting on random orders of them is limited to 1e7")
        self.pool.load(counts)
        times, rows = self.tally.N.astype(np.int64), self.tally.rows
        k, x = np.repeat(rows.of_entry(), times), np.repeat(rows.successor.astype(np.int64), times)
        rng = generator(self.method.seed)
        for _ in range(ORDERS):
            shuffled = rng.permutation(len(k))
            run = self.method.replay(self.task, self.threshold, Recorded(k[shuffled], x[shuffled]), rng)
            while not run.exhausted:
                run.step(np.inf, len(k) + 1)
            self.orders.append(run)
        self.samples = counts.total
        self.plan = self._fitted()
        self.update_answer(required)

    def learn(self, rows: Recorded) -> None:
        """Transitions that are counted, and never bet on: burn-in for fitting."""
        self.pool.learn(rows)
        self.fit.refit()

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side; within a rollout, of what is left of it at worst.

        Where recorded draws are waited for, that at the end of the last rollout: exp(-evidence) is a p-value, since the
        capital was once as large. Of counts: averaged over their orders.
        """
        if self.orders:
            above, below = (average(side) for side in zip(*(run.e_value() for run in self.orders), strict=True))
            return above, below
        return self.bets.evidence() if self.source.waits else self.e_value()

    def e_value(self) -> tuple[float, float]:
        """The logarithm of an e-value of each side where the data end: an unfinished rollout is counted at worst."""
        if self.between_rollouts:
            return self.bets.evidence()
        unfinished = self.bets[self.plan.sign].evidence(self.plan.bet, self._worst())
        other = self.bets[-self.plan.sign].evidence()
        return (unfinished, other) if self.plan.sign > 0 else (other, unfinished)

    def _worst(self) -> float:
        """The least outcome at which the rollout on its way can end, less the threshold."""
        return self.plan.lead + self.payoff.worst_sum(self.plan, self.at)

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values that the capital of neither side refutes at this level."""
        above, below = (self.refuter(sign, as_staked) for sign in (1.0, -1.0))
        return ends(above, below, self.payoff.span, self.threshold, level)

    def refuter(self, sign: float, as_staked: bool = False, to_the_end: bool = False) -> Refuter:
        """The bets of one side, to be settled against any threshold; of counts, averaged over their orders.

        ``as_staked``: with the fractions of the test. ``to_the_end``: with an unfinished rollout at its worst, an
        e-value wherever the data end.
        """
        if self.orders:
            return Average([run.refuter(sign, as_staked, to_the_end=True) for run in self.orders])
        if to_the_end and not self.between_rollouts and sign == self.plan.sign:
            return self.bets[sign].settled(as_staked, self.plan.bet, self._worst())
        return self.bets[sign].settled(as_staked)

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference."""
        first, second = (self.refuter(sign).log_capital(-self.indifference) for sign in (1.0, -1.0))
        return first, second

    def outcome(self, required: float) -> Outcome:
        """The evidence; and, when it is asked for, the nearest kernel beyond R, except in very large tasks."""
        tally = self.tally
        if not self.payoff.has_nearest_kernel or tally.rows.n_entries > REPORTED or not tally.n.any():
            return super().outcome(required)
        question = KLQuestion(self.task, self.threshold, tally.copy(), self.payoff.span)
        return Outcome(self.evidence(), NearestKernel(question, required))

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel, or the difference of two."""
        return self.payoff.estimate

    @property
    def reward_moments(self) -> RewardMoments | None:
        """What was observed of rewards, for forecasts."""
        return None if self.pool.observed is None else self.pool.observed.moments

    # ------------------------------------------------------------ keeping

    def state(self) -> Record:
        """All that is needed to go on later, as arrays."""
        kept = {
            "progress": np.array([self.samples, self.rollouts, self.block, self.idle], dtype=np.int64),
            "look_at": np.array([self.look_at]),
            "moments": self.moments.state(),
            "walker": np.array(self.at),
            "numbers": self.numbers.copy(),
            "generator": stored(self.source.rng),
            "extra": np.array([self.source.extra]),
            **self.bets.state(),
            **({} if self.aim is None else self.aim.state()),
        }
        parts = {"plan": self.fit.state(self.plan), "tally": self.tally.state(), "payoff": self.payoff.state(self.at)}
        if self.lanes is not None:
            parts["lanes"] = self.lanes.state(self.fit)
        return {**kept, **record(**parts)}

    def _restore(self, state: Record) -> None:
        refuse_other_budgets(0 if self.aim is None else self.aim.budget, state)
        if self.aim is not None:
            self.aim.restore(state)
        self.samples, self.rollouts, self.block, self.idle = (int(part) for part in state["progress"])
        self.look_at = float(state["look_at"][0])
        self.moments.restore(state["moments"])
        self.numbers = numbers_of(state, "numbers", None, 3)
        self.tally.restore(part_of(state, "tally"))
        self.bets.restore(state)
        self.payoff.restore(part_of(state, "payoff"))
        if self.samples != self.pool.samples or not 0 < self.block <= LARGEST_BLOCK:
            raise ValueError("the number of samples is not that of the counts")
        if not self.rollouts <= self.bets.count <= 2 * self.rollouts or self.moments.count != self.bets.count:
            raise ValueError("the number of rollouts is not that of the sums")
        if not ((self.numbers >= 0) & (self.numbers < 1)).all():
            raise ValueError("what was drawn ahead are not random numbers")
        if lanes := part_of(state, "lanes"):
            self.lanes = self.lanes or Lanes(self.payoff, 1)
            self.lanes.restore(lanes, self.fit, self.bets.above)
        self.plan = self.fit.restore(part_of(state, "plan"), self.bets.above)
        self.at = RolloutState(*map(float, numbers_of(state, "walker", len(self.at))))
        if not (self.between_rollouts or self.payoff.is_possible(self.plan, self.at)):
            raise ValueError("the rollout on its way is not possible")
        self.source.go_on(restored(state["generator"]), kept_extra(state))
