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
averaged over fractions, is a nonnegative supermartingale (`policytest.eprocess.capital`). It is looked at *at the ends
of rollouts*; within one, S + w B(s), which is below the mean of the final S given the path so far, stands for it. No
dimension is paid for, and no bet is lost to a horizon: on bad paths g rises to 1, and discounting ends the rollout.

*Both sides at once*, for intervals, for "within", and while the side is in doubt: D of the other side is -D, so that
its sum is -S. With its own worst sums B' and range L', coins keep the weight at most (S + L)/-B(x) and at most
(L' - S)/-B'(x): then S >= -L and -S >= -L', and one rollout is bet on twice. Where the weight has become very small, S
ends with w B(x), and -S with w B'(x).

L may always be larger than the worst sum: weights then have more room (`policytest.payoffs.splitting`).

Only episodes from rho are needed, never a reset to another state. Recorded draws of a pair can serve as well, each used
once, in their order: where one is not there, the process waits.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.compiled import rollouts, small, two_policies
from policytest._base.compiled.small import (
    NOT_SERVED,
    Advance,
    Call,
    Draws,
    Dynamics,
    Residuals,
    RolloutState,
    Stakes,
    Transcript,
)
from policytest._base.errors import AssumptionWarning, InputError
from policytest.data.simulators import cumulative
from policytest.eprocess.capital import TwoSided
from policytest.eprocess.strategies import (
    NONE,
    ON_STACKS,
    ONE_POLICY,
    RESERVED,
    RESERVED_UNDISCOUNTED,
    TWO_POLICIES,
    Strategy,
)
from policytest.mdp.horizon import REMEDIES
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, widest_range
from policytest.payoffs import splitting
from policytest.payoffs.in_time import Clock
from policytest.payoffs.plan import LARGE, NO_POLICY, BettingPlan
from policytest.payoffs.policy_bet import PolicyBet
from policytest.payoffs.pool import Pool
from policytest.payoffs.splitting import NO_STAKES
from policytest.payoffs.visited import VisitedBet

if TYPE_CHECKING:
    from policytest.payoffs.coupled_totals import CoupledTotals
    from policytest.payoffs.two_policies import Pair

SLACK = 1.0 + 1e-9  # of a range, for rounding


class Rollouts:
    """Rollouts of one policy, or of a pair: where they go, what they earn, and what they can lose.

    On a discounted table rewards are centred, so that values, or differences of two, are compared with 0. Beyond it
    there is a `clock`.

    Parameters
    ----------
    task, threshold
        The question; of two policies the task of A, and the margin.
    policies
        One policy or two, on the rows of one pool.
    pair
        How two policies go together.
    strategy
        How bets are chosen, where that does not follow from the task.
    """

    strategy: Strategy

    def __init__(
        self,
        task: Task,
        threshold: float,
        policies: tuple[PolicyBet, ...],
        pair: Pair | None = None,
        strategy: Strategy | None = None,
    ) -> None:
        self.task, self.threshold, self.policies, self.pair = task, threshold, policies, pair
        self.pool, self.rounding = policies[0].pool, sum(policy.rounding for policy in policies)
        self.source, self.tally = self.pool.source, self.pool.tally
        self.visited = policies[0] if isinstance(policies[0], VisitedBet) else None  # of a large task
        self.strategy = self._usual_strategy() if strategy is None else strategy
        self.branches = splitting.open_branches()
        self.dynamics = self._made_dynamics()
        self.sides: tuple[float, ...] = (1.0, -1.0)  # that can be proved
        self.clock = None if task.is_discounted_table else Clock(task, policies)
        if self.clock is not None:
            self.dynamics, self.sides = self.clock.laid_out(self.dynamics), self._finite_sides()
        one = pair is None and self.visited is None
        self.may_serve_both = one and len(self.sides) == 2  # by rollouts whose totals are bounded on both sides
        self.chooses_pace = pair is None and not self.source.waits and task.total_rewards is None
        self.paces_race = self.chooses_pace and task.discount == 1.0
        self.chooses_share = not task.is_total  # of the fitted advantages
        self.has_nearest_kernel = one and self.clock is None and not self.tally.is_open  # which reports may seek

    def bet_by(self, strategy: Strategy) -> None:
        """Fractions are those of another strategy."""
        self.strategy = strategy

    def _usual_strategy(self) -> Strategy:
        """That of the default test, which keeps more in reserve without a discount."""
        whole = self.task.discount == 1.0
        reserved = RESERVED_UNDISCOUNTED if whole else RESERVED
        if self.pair is not None or self.source.waits:
            return (ON_STACKS if self.pair is None else TWO_POLICIES)._replace(reserved=reserved)
        return ONE_POLICY._replace(reserved=reserved, all_or_nothing=whole)

    # ------------------------------------------------------------ rollouts

    def _made_dynamics(self) -> Dynamics:
        """Where rollouts go; one policy alone never parts."""
        task, rows, policy = self.policies[0].task, self.tally.rows, cumulative(self.policies[0].task.policy)
        places = rows.start, rows.successor, self.tally.task.layout.row_of_pair, self.pool.only
        starts = np.arange(task.n_states), cumulative(task.initial[None, :])[0]
        made = Dynamics(*places, *starts, policy, policy, policy, policy, task.discount, False)
        return made if self.pair is None else self.pair.parted(made)

    def transcript(self, size: int) -> Transcript:
        """Room for what a call finds."""
        rewards = np.empty(size if self.task.observes_rewards else 0)
        transitions = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64)
        return Transcript(*transitions, np.empty(size), rewards, np.empty(size if self.may_serve_both else 0))

    def roll(self, plan: BettingPlan, bets: TwoSided, call: Call) -> Advance:
        """One call of the compiled code; it settles the capital of the plan's side in place, and of the other."""
        draws, mirrored, clock, totals = self.source.draws(), plan.mirrored, self.clock, self.totals
        if clock is not None:
            self.dynamics = self.dynamics._replace(longest=clock.longest)
        if totals is not None:
            call = totals.to_next_look(call)
        stakes = plan.stakes(bets[plan.sign].capital)
        other = NOT_SERVED if mirrored is None else mirrored.stakes(bets[mirrored.sign].capital)
        done = self._called(plan, (stakes, other), call, draws, self.branches)
        if clock is not None:
            clock.count(done, self.source)
            if totals is not None and totals.is_overdue(done, clock):
                bets[plan.sign].stake(plan.bet, plan.lead - plan.L)
                call.seen.sums[done.rollouts] = -plan.L
                done = done._replace(at=RolloutState(), rollouts=done.rollouts + 1)
        return done

    def _called(
        self, plan: BettingPlan, stakes: tuple[Stakes, Stakes], call: Call, draws: Draws, branches: FloatArray
    ) -> Advance:
        """The kernel of these rollouts."""
        (own, other), rows = stakes, self.tally.rows
        if self.tally.is_open:
            self.dynamics = self.dynamics._replace(start=rows.start, successor=rows.successor)
        if self.pair is not None:
            return two_policies.bet(self.dynamics, plan.a, plan.b, own, draws, *call)
        if len(plan.targets):
            return rollouts.branch(self.dynamics, plan.a, plan.targets, own, draws, branches, *call, other)
        return rollouts.bet(self.dynamics, plan.a, own, draws, *call, other)

    def roll_one(
        self, plan: BettingPlan, call: Call, draws: Draws, branches: FloatArray, longest: float, used: int
    ) -> Advance:
        """One rollout, whose bets are settled when its turn comes, to its end or to the first draw that is missing.

        ``longest`` is the `patience` when it began, ``used`` are the rows of random numbers that it had.
        """
        clock, totals, stakes = self.clock, self.totals, [plan.stakes(NO_STAKES)._replace(fractions=NONE), NOT_SERVED]
        if plan.mirrored is not None:
            stakes[1] = plan.mirrored.stakes(NO_STAKES)._replace(fractions=NONE)
        if clock is not None:
            self.dynamics = self.dynamics._replace(longest=0.0 if totals else longest)
        done = self._called(plan, (stakes[0], stakes[1]), call, draws, branches)
        if clock is not None:
            clock.count(done, self.source)
            if totals is not None:
                done = totals.ended(done, plan, call.seen, clock, (used + done.used, longest))
        return done

    @property
    def totals(self) -> CoupledTotals | None:
        """The totals of two episodes, where these have bounds."""
        return None if self.pair is None else self.pair.totals

    @property
    def patience(self) -> float:
        """After how many steps a rollout that begins now is ended; of two totals, rows of random numbers."""
        if self.clock is None:
            return 0.0
        return self.clock.patience if self.totals is not None else self.clock.longest

    def settled(self, plan: BettingPlan, sums: FloatArray) -> None:
        """These rollouts have ended."""
        if self.pair is not None:
            self.pair.settled(plan, sums)

    # ------------------------------------------------------------ plans

    def start_value(self, values: Sequence[FloatArray]) -> float:
        """rho.V0, or the difference of two."""
        U = values[0] if len(values) == 1 else values[0] - values[1]
        value = float(self.task.initial @ U[: self.task.n_states])
        return value if self.clock is None else value + self.clock.at_once - self.threshold

    def planned(self, values: Sequence[FloatArray], bases: Iterable[FloatArray], sign: float) -> BettingPlan:
        """The bet with these residuals: its worst paths and its range."""
        parts = zip(self.policies, values, bases, (sign, -sign), strict=False)
        return self.joined([policy.bet(V, base, side) for policy, V, base, side in parts], sign)

    def joined(self, parts: Sequence[Residuals], sign: float) -> BettingPlan:
        """The bet that these parts make, with the worst path of all together; S never falls below -L.

        L may always be larger: where lead is as large, rounding must not decide.
        """
        lead, task = sign * self.start_value([part.V for part in parts]), self.policies[0].task
        B, least = self._worst(parts, sign), self.least_range(parts, lead)
        if self.pair is None or self.pair.totals is None:
            L = max(-float(B[: task.n_states][task.initial > 0].min()), least)
        else:
            parts = [part._replace(B=B) for part in parts]
            L = self.pair.totals.range(parts, sign, least)
        return BettingPlan(parts[0], parts[1] if len(parts) > 1 else NO_POLICY, B, L, sign, lead)

    def _finite_sides(self) -> tuple[float, ...]:
        """The sides on which the worst sum of an episode is finite; refused where there is none."""
        starts, found = self.task.initial > 0, list[float]()
        for sign in (1.0, -1.0):
            parts = [
                policy.bet(V := np.zeros_like(policy.V), policy.base(V, None, 0.0), side)
                for policy, side in zip(self.policies, (sign, -sign), strict=False)
            ]
            if np.isfinite(self._worst(parts, sign)[: self.task.n_states][starts]).all():
                found.append(sign)
        if not found:
            raise InputError(f"the total of an episode may be infinite on both sides; {REMEDIES}")
        return tuple(found)

    def _worst(self, parts: Sequence[Residuals], sign: float) -> FloatArray:
        """[S] the worst sum along any path."""
        return parts[0].B if self.pair is None else self.pair.worst(parts, sign)

    def whole_paths(self, values: Sequence[FloatArray]) -> BettingPlan:
        """The bet on the returns G of whole paths, for both sides where both can be proved: coins never end one.

        Without advantages residuals telescope: with the weights gamma^t of the steps S is sign (G - V0(s0)), and
        lead + S is sign (G - R) from one start; L is what the worst path loses. Where totals have bounds, B is the
        least that can follow, so that coins have no slack.
        """
        task, policy = self.task, self.policies[0]
        plan = self.planned(values, [policy.base(V, None, 0.0) for V in values], self.sides[0])
        if task.total_rewards is None:
            step = np.arange(len(plan.B)) // self.policies[0].task.n_states
            plan = plan._replace(targets=task.discount ** step.astype(np.float64))
        return self.with_other_side(plan) if self.may_serve_both else plan

    def least_range(self, parts: Sequence[Residuals], lead: float) -> float:
        """A range that rounding does not hide."""
        return lead + 4.0 * self.rounding + 1e-9 * float(sum(np.abs(part.V).max() for part in parts)) + 1e-300

    def with_other_side(self, plan: BettingPlan) -> BettingPlan:
        """With the bet of the other side, whose sums are -S: coins keep both above their ranges."""
        other = self.joined([self.policies[0].bet(plan.a.V, plan.a.base, -plan.sign)], -plan.sign)
        return plan._replace(mirrored=other) if 0 < other.room < np.inf else plan

    # ------------------------------------------------------------ what the model expects

    def visits(self, q: FloatArray, occupancies: Sequence[FloatArray]) -> list[FloatArray] | None:
        """[H E] the discounted numbers of visits of each transition; of two policies together, A alone, B alone.

        None where there are too many to choose a share by.
        """
        if len(q) * self.policies[0].layers > LARGE:
            return None
        if self.pair is not None:
            return self.pair.visits(q, occupancies)
        return [self.policies[0].entry_visits(q, occupancies[0])]

    def squares(self, plan: BettingPlan, visits: list[FloatArray]) -> float:
        """The mean of S^2 of a rollout, in units of room^2; of one policy with the variance of observed rewards."""
        first = self.policies[0]
        residuals = [
            policy.residuals(part.V, part.base) for policy, part in zip(self.policies, plan.parts, strict=True)
        ]
        if len(residuals) > 1:
            residuals.insert(0, residuals[0] - residuals[1])  # together
        squares = sum(float(w @ (residual / plan.room) ** 2) for w, residual in zip(visits, residuals, strict=True))
        if self.pair is not None or not self.task.observes_rewards:
            return squares
        by_row = np.add.reduceat(visits[0].reshape(first.layers, -1), self.tally.rows.start[:-1], axis=1).sum(axis=0)
        return squares + float(by_row @ first.reward_noise()) / plan.room**2

    def noise(self, plan: BettingPlan, visits: list[FloatArray] | None) -> float | None:
        """The mean of S^2 to expect, in units of room^2; None where nothing is known about it."""
        if self.pair is not None:
            return self.pair.noise(plan.room)
        return None if visits is None else self.squares(plan, visits)

    def visits_in_a_rollout(self) -> FloatArray:
        """[K] the discounted visits of each pair in a rollout by the fitted kernel; of two policies, the larger."""
        q, found = self.pool.model(), np.zeros(len(self.tally.rows.pair))
        for policy in self.policies:
            _, d = policy.values(q)
            found = found if d is None else np.maximum(found, policy.row_visits(d))
        return found

    # ------------------------------------------------------------ what is known

    @property
    def span(self) -> tuple[float, float]:
        """Where the value lies for every kernel; in large tasks, where it lies whatever the support."""
        if self.pair is not None:
            return self.pair.span
        return value_range(self.task) if self.visited is None else widest_range(self.task)

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel, or the difference of two."""
        first, *others = self.policies
        if others:
            found = first.start_mean(first.empirical_values() - others[0].empirical_values())
            return found + (self.threshold if self.clock is None else self.clock.at_once)
        return first.estimate() + (self.threshold if self.clock is None else 0.0)

    def why_undecided(self) -> str:
        """What there is to say of the payoff itself."""
        return "" if len(self.sides) == 2 else one_sided(self.sides)

    def worst_sum(self, plan: BettingPlan, at: RolloutState, branches: FloatArray | None = None) -> float:
        """The least sum at which a rollout on its way can end; with these open branches, where it has its own."""
        if self.pair is not None:
            return self.pair.worst_sum(plan, at)
        if self.clock is not None and self.task.total_rewards is not None:
            return self.clock.worst_sum(plan, at)
        if at.phase == small.BRANCHING:
            place, weight = (self.branches if branches is None else branches)[: int(at.state)].T
            return float(at.earned + weight @ plan.B[place.astype(np.int64)])
        return float(at.earned + at.weight * plan.B[int(at.state)])

    # ------------------------------------------------------------ keeping

    @property
    def _parts(self) -> list[PolicyBet | Pool | Pair | Clock]:
        """What a run goes on with."""
        more = (self.pair, self.clock)
        return [*self.policies, self.pool, *(part for part in more if part is not None)]

    def state(self, at: RolloutState) -> Arrays:
        """What is needed to go on later, beyond counts, plan and bets."""
        kept: Arrays = {"branches": self.branches[: int(at.state) if at.phase == small.BRANCHING else 0]}
        for part in self._parts:
            kept |= part.state()
        return {name: value.copy() for name, value in kept.items()}

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state; the counts are back."""
        for part in self._parts:
            part.restore(state)
        branches = np.array(state["branches"], dtype=np.float64)
        self.branches[: len(branches)] = branches

    def is_possible(self, plan: BettingPlan, at: RolloutState, branches: FloatArray | None = None) -> bool:
        """Whether a rollout can be on its way like this: it is somewhere, with a weight, and above its range."""
        if self.pair is not None:
            return self.pair.is_possible(plan, at)
        if at.phase == small.BRANCHING:
            return self._may_branch(plan, at, self.branches if branches is None else branches)
        somewhere = at.state == int(at.state) and 0 <= at.state < len(plan.B)
        if not somewhere or not 0 < at.weight <= 1.0 / small.SMALLEST_CHANCE**2 or at.phase != small.TOGETHER:
            return False
        other = plan.mirrored
        if other is not None and self.task.total_rewards is None:
            below = at.weight * min(other.B[int(at.state)], 0.0) - at.earned
            if not below >= -other.L * SLACK:
                return False
        return self.worst_sum(plan, at) >= -plan.L * SLACK

    def _may_branch(self, plan: BettingPlan, at: RolloutState, branches: FloatArray) -> bool:
        """Whether these branches can be open: each is somewhere, with a weight, and together above the range."""
        n = int(at.state)
        if at.state != n or not 0 < n <= len(branches) or not len(plan.targets):
            return False
        place, weight = branches[:n].T
        inside = (place == np.rint(place)) & (place >= 0) & (place < len(plan.B))
        sound = inside.all() and ((weight > 0) & (weight <= small.LARGEST_WEIGHT)).all()
        if not sound or (other := plan.mirrored) is None:
            return bool(sound) and self.worst_sum(plan, at, branches) >= -plan.L * SLACK
        worst = self.worst_sum(plan, at, branches), float(at.weight + weight @ other.B[place.astype(np.int64)])
        return all(sum_ >= -L * SLACK for sum_, L in zip(worst, (plan.L, other.L), strict=True))


def warn_of_sides(payoff: Rollouts, indifference: float) -> None:
    """Say which answer can be proved, where that is only one."""
    if len(payoff.sides) == 1:
        warnings.warn(one_sided(payoff.sides), AssumptionWarning, stacklevel=6)
        if indifference:
            raise InputError(f"indifference: {one_sided(payoff.sides)}")


def one_sided(sides: tuple[float, ...]) -> str:
    """Which answer can be proved, where totals have a bound on one side only; and what would help."""
    answer, end = ("above", "high") if sides == (1.0,) else ("below", "low")
    return f'only "{answer}" can be proved here, since the total of an episode may be infinitely {end}; {REMEDIES}'
