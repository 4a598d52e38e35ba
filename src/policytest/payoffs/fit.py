"""How the next rollouts bet: V0 from a model of the counts, the side, the advantages, the pace, and the fractions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.record import numbers_of
from policytest.eprocess.capital import EProcess
from policytest.eprocess.strategies import (
    ENDS,
    ENDS_AT_BUDGET,
    NONE,
    TIED,
    GapGrid,
    Moments,
    expected_growth,
    most_promising,
    without_reserve,
)
from policytest.payoffs import splitting
from policytest.payoffs.plan import REFIT, SHARES, BettingPlan
from policytest.payoffs.policy_bet import are_quick, plans_of_shares
from policytest.payoffs.td_rollouts import Rollouts
from policytest.payoffs.visited import VisitedBet


class Progress(NamedTuple):
    """How far the run has come: samples, rollouts, the moments of their sums, the side it bets on, the evidence."""

    samples: int
    rollouts: int
    moments: Moments
    last_sign: float  # 0 before the first rollout
    evidence: tuple[float, float] = (0.0, 0.0)


class Fit:
    """Makes the plans of a run, and says when the next one is due.

    Parameters
    ----------
    payoff
        The rollouts.
    zone
        The half-width of the indifference zone.
    both_sides
        Bet on both sides: on each rollout, or, of two policies and of large tasks, in turn while the value seems close
        to the threshold. For intervals, and for "within". (Without it, while the side is in doubt.)
    whole_paths
        Bet on whole paths with steady fractions: no coin, no split, no advantages.
    """

    def __init__(
        self, payoff: Rollouts, zone: float = 0.0, both_sides: bool = False, whole_paths: bool = False
    ) -> None:
        self.payoff, self.zone, self.both_sides, self.whole_paths = payoff, zone, both_sides, whole_paths
        self.only_side, self.growth = 0.0, REFIT  # 0: that of the estimate
        self.due = 0.0  # samples of the pool from which on V0 is fitted again
        self.budget = 0  # of samples, at which bets aim; 0: none
        self.pace, self.pace_at = splitting.EVEN, 0.0  # chosen last; the samples from which on it is chosen again
        self.race = splitting.Race()
        has_bar = not both_sides or zone > 0  # intervals have no threshold to race for
        self.paces_race = payoff.paces_race and has_bar and not whole_paths

    def bet_on(self, sign: float, growth: float) -> None:
        """From now on bet on this side alone, and fit when the samples have grown by this factor."""
        self.only_side, self.growth, self.due = sign, growth, 0.0

    def aim_at(self, budget: int) -> None:
        """Intervals are for the end of a budget of samples."""
        self.budget = budget

    def refit(self) -> None:
        """The next plan is due."""
        self.due = 0.0

    def plan(self, progress: Progress) -> BettingPlan:
        """The plan of the next rollouts, between two of them."""
        self.race.settle(progress.samples, progress.evidence)
        plan = self._plan(progress)
        self.race.begin(plan)
        return plan

    def _plan(self, progress: Progress) -> BettingPlan:
        """V0 from the model, the side of the bet, the share of the advantages that promises most, and the fractions."""
        payoff, samples = self.payoff, self.payoff.pool.samples
        self.due = max(self.growth * samples, samples + 1.0)
        if payoff.clock is not None:
            payoff.clock.refit()
        if payoff.visited is not None:
            return self._of_visited(payoff.visited, progress)
        q = payoff.pool.model()
        values, occupancies = zip(*(policy.values(q) for policy in payoff.policies), strict=True)
        if self.whole_paths:
            return self.staked(payoff.whole_paths(values), None, progress)
        sign, visits = self._side(values, progress), payoff.visits(q, occupancies) if q is not None else None
        plan, v = self._best_share(values, q, sign, visits, progress)
        if v is None and 0 < plan.room < np.inf:
            v = payoff.noise(plan, visits)
        plan = self._mirrored(plan, v, progress)
        enough = max(splitting.FIRST, len(visits[0]) / splitting.ENTRIES_A_SAMPLE) if visits else np.inf
        if q is not None and visits and v is not None and payoff.chooses_pace and progress.samples >= enough:
            return self._paced(plan, v, q, visits[0], progress)  # a model of fewer samples is too sure of itself
        return self._even(plan, v, progress)

    def _paced(self, plan: BettingPlan, v: float, q: FloatArray, visits: FloatArray, progress: Progress) -> BettingPlan:
        """The plan at the pace that promises most, which is chosen again when the samples have grown by a half."""
        payoff, samples = self.payoff, self.payoff.pool.samples
        outlook = splitting.Outlook(payoff.policies[0], plan, payoff.dynamics, q, visits)
        if not outlook.is_possible:
            return self._even(plan, v, progress)
        if samples >= self.pace_at:
            paces = splitting.UNSPLIT if payoff.source.travels else splitting.PACES
            self.pace, self.pace_at = outlook.best(paces, samples, self.both_sides), splitting.AGAIN * samples
        goes_on = self.pace != splitting.EVEN and (self.race.is_open or not self.paces_race)
        found = outlook.at(self.pace if goes_on else splitting.EVEN, samples)
        goes_on = goes_on and found is not None
        if self.paces_race and self.pace != splitting.EVEN:
            self.due = min(self.due, samples + self.race.until(not goes_on))
        if found is None:
            return self._even(plan, v, progress)
        if not goes_on:
            return self._even(found.plan, found.v, progress, found.sums, samples / found.cost)
        return self.staked(found.plan, found.v, progress, found.sums, samples / found.cost)

    def _even(
        self,
        plan: BettingPlan,
        v: float | None,
        progress: Progress,
        sums: FloatArray = NONE,
        rollouts: float | None = None,
    ) -> BettingPlan:
        """A plan at the even pace, which without a discount serves both sides."""
        serves = self.paces_race and self.may_serve_both and plan.mirrored is None
        return self.staked(self.payoff.with_other_side(plan) if serves else plan, v, progress, sums, rollouts)

    @property
    def may_serve_both(self) -> bool:
        """Whether rollouts may serve both sides at once."""
        return self.payoff.may_serve_both and not self.only_side

    def _mirrored(self, plan: BettingPlan, v: float | None, progress: Progress) -> BettingPlan:
        """With the bet of the other side, where both are asked for, or while noise may hide which side is right."""
        if not self.may_serve_both:
            return plan
        in_doubt = v is not None and plan.lead < plan.room * math.sqrt(v / (progress.rollouts + 1.0))
        if self.both_sides or (in_doubt and not self.payoff.source.waits):
            return self.payoff.with_other_side(plan)
        return plan

    def _best_share(
        self,
        values: Sequence[FloatArray],
        q: FloatArray | None,
        sign: float,
        visits: list[FloatArray] | None,
        progress: Progress,
    ) -> tuple[BettingPlan, float | None]:
        """The plan with the share of the advantages that promises most; the mean of S^2 to expect, where it is known.

        Where nothing is known about visits no share is chosen. Without a discount advantages would open cycles that
        lose.
        """
        payoff = self.payoff
        if q is not None and visits and are_quick(payoff.policies):
            quick, squares = plans_of_shares(payoff.policies[0], values[0], q, visits[0], sign, payoff.rounding)
            found = list(zip(quick, squares, strict=True))
            return found[most_promising([_promise(plan, v, progress) for plan, v in found])]
        shares = SHARES if visits is not None and payoff.chooses_share else (0.0,)
        plans = [
            payoff.planned(values, [p.base(V, q, share) for p, V in zip(payoff.policies, values, strict=True)], sign)
            for share in shares
        ]
        if not visits:
            return plans[0], None
        growth = [_promise(plan, payoff.squares(plan, visits) if plan.room > 0 else 0.0, progress) for plan in plans]
        return plans[most_promising(growth)], None

    def _of_visited(self, policy: VisitedBet, progress: Progress) -> BettingPlan:
        """The same in a large task, from the visited states alone."""
        sign = self._side([V := policy.fit()], progress)
        plans = [self.payoff.joined([policy.planned(V, sign, share)], sign) for share in policy.shares]
        noises = [policy.noise(*pair) for pair in zip(plans, policy.shares, strict=True)]
        best = most_promising([_promise(plan, v, progress) for plan, v in zip(plans, noises, strict=True)])
        policy.take_values(plans[best].a.V)
        return self.staked(plans[best], noises[best] if 0 < plans[best].room < np.inf else None, progress)

    def _side(self, values: Sequence[FloatArray], progress: Progress) -> float:
        """On which side to bet: that of the estimate; the other one in turn, where both are asked for."""
        if self.only_side:
            return self.only_side
        value, sides = self.payoff.start_value(values), self.payoff.sides
        near = not self.zone or abs(value) < 2.0 * self.zone
        sign = 1.0 if value >= -TIED * float(sum(np.abs(V).max() for V in values)) else -1.0
        if self.both_sides and progress.last_sign and near and not self.may_serve_both:
            sign = -progress.last_sign
        return sign if sign in sides else -sign

    def staked(
        self,
        plan: BettingPlan,
        v: float | None,
        progress: Progress,
        sums: FloatArray = NONE,
        rollouts: float | None = None,
    ) -> BettingPlan:
        """The plan with its fractions, and those of the other side; v is the mean of S^2, ``sums`` are simulated ones.

        In units of the room; at the value room is L. ``rollouts`` are those that the samples so far would make.
        """
        strategy, count = self.payoff.strategy, progress.rollouts if rollouts is None else rollouts
        samples = float(self.payoff.pool.samples)
        lead, narrow = (plan.lead / plan.room, plan.narrow_room / plan.room) if v is not None else (0.0, 1.0)
        at_value = max(plan.L, 1e-6 * plan.room)  # L is 0 where V0 is the worst total that is possible
        square = progress.moments.square(max(plan.room, 1e-150)) if v is None else v
        paced = v is not None and isinstance(strategy, GapGrid)
        ends, at_end = ENDS, count
        if self.budget:
            ends, at_end = ENDS_AT_BUDGET, max(count, 1.0) * max(self.budget / max(samples, 1.0), 1.0)
        wide = ends.fractions(square * (plan.room / at_value) ** 2, at_end, 1.0 / plan.wider if paced else None)
        mirrored = plan.mirrored
        if mirrored is not None:
            scale = plan.room / mirrored.room
            other = None if v is None else v * scale**2
            mirrored = self.staked(mirrored, other, progress, -scale * sums, rollouts)
        fractions = strategy.fractions(v, lead, count, narrow, sums)
        if self.paces_race and not plan.is_even:
            fractions = without_reserve(fractions)
        cost = samples / rollouts if rollouts else 0.0
        return plan._replace(fractions=fractions, wide=wide, mirrored=mirrored, v=square, cost=cost)

    # ------------------------------------------------------------ keeping

    def state(self, plan: BettingPlan) -> Arrays:
        """When the next plan is due, and the plan of now: values, advantages and fractions."""
        mirrored = NONE if plan.mirrored is None else np.append(plan.mirrored.fractions, plan.mirrored.wide)
        kept = {name: getattr(plan, name) for name in ("B", "fractions", "wide", "targets")}
        for name, part in zip("ab", plan.parts, strict=False):
            kept |= {f"{name}.V": part.V, f"{name}.base": part.base}
        return kept | {
            "due": np.array([self.due, self.pace_at, *self.pace]),
            "race": self.race.state(),
            "numbers": np.array([plan.L, plan.sign, plan.lead, plan.wider]),
            "expected": np.array([plan.v, plan.cost]),
            "mirrored": mirrored,
        }

    def restore(self, state: Arrays, process: EProcess) -> BettingPlan:
        """The plan of a kept state, which is made again; one that cannot have been made is refused."""
        self.due, self.pace_at, *pace = map(float, numbers_of(state, "due", 4))
        self.pace = splitting.Pace(*pace)
        L, sign, lead, wider = map(float, numbers_of(state, "numbers", 4))
        v, cost = map(float, numbers_of(state, "expected", 2))
        if min(v, cost) < 0 or self.pace not in splitting.PACES or not 1.0 <= wider <= splitting.WIDEST:
            raise ValueError("the pace is none of those to choose from, or what is expected at it is negative")
        payoff, named = self.payoff, list(zip("ab", self.payoff.policies, strict=False))
        values = [numbers_of(state, f"{part}.V", len(policy.V)) for part, policy in named]
        bases = [numbers_of(state, f"{part}.base", policy.layers * len(policy.prob)) for part, policy in named]
        for policy, V, base in zip(payoff.policies, values, bases, strict=True):
            if sign not in (1.0, -1.0) or not policy.is_centred(base, _rounding(V, base)):
                raise ValueError("the plan has no side, or its advantages are not centred")
            policy.take_values(V)
        plan, scale = payoff.planned(values, bases, sign).widened(wider), 1.0 - payoff.task.discount or 1.0
        made, its = np.append(plan.B, plan.L), np.append(state["B"], L)
        off = scale * np.abs(made[made != its] - its[made != its]).max(initial=0.0)
        if not max(abs(plan.lead - lead), off) <= sum(map(_rounding, values, bases)):
            raise ValueError("the plan is not sound")
        fractions, wide, targets, mirrored = (
            numbers_of(state, name, None) for name in ("fractions", "wide", "targets", "mirrored")
        )
        if len(targets) and not (len(targets) == len(plan.B) and (targets > 0).all()):
            raise ValueError("the plan does not fit the task")
        plan = plan._replace(fractions=fractions, wide=wide, L=L, lead=lead, targets=targets, v=v, cost=cost)
        if payoff.may_serve_both and (mirrored.size or (self.both_sides and self.may_serve_both)):
            plan = payoff.with_other_side(plan).widened(plan.wider)
        if (other := plan.mirrored) is not None:
            other = other._replace(fractions=mirrored[: len(fractions)], wide=mirrored[len(fractions) :])
            other = other._replace(v=v * (plan.room / other.room) ** 2, cost=cost)
            plan = plan._replace(mirrored=other)
        if (other is None) != (not mirrored.size):
            raise ValueError("the plan does not fit the question")
        self.race.restore(numbers_of(state, "race", 7), plan, payoff.pool.samples)
        process.of_rows(process.as_rows([one.bet for one in (plan, other) if one is not None]))
        return plan


def _rounding(V: FloatArray, base: FloatArray) -> float:
    """What rounding may do to a plan with these values and advantages."""
    return 1e-9 * float(np.abs(V).max() + np.abs(base).max())


def _promise(plan: BettingPlan, v: float, progress: Progress) -> float:
    """The growth a rollout that a mean v of S^2, in units of room^2, promises."""
    return expected_growth(v, plan.lead / plan.room, progress.rollouts) if plan.room > 0 else -np.inf
