r"""Which policy is best? Among some that are given, or among all.

*Among K policies.* Each unordered pair is a comparison (`questions.compare`), whose two sides have capital of their
own; a policy is out once another one's capital against it reaches (K-1)/delta. Let b be a best policy. That j is better
than b is false for each j, so b is thrown out with probability at most (K-1) delta/(K-1) = delta. While b is in, the
last one that is left is b, or as good. The current leader is compared with those that are left, each in turn.

*Among all policies.* The candidate pi is the optimal deterministic policy of the fitted model. It is optimal, from
every state that can be reached from rho at all, if and only if no deviation pays (policy improvement):

    gap(s,a) = V^pi(s) - Q^pi(s,a) >= 0     for every such s and every a other than pi(s).

Each deviation is tested by betting against gap(s,a) <= 0: two rollouts from s, A follows pi, B takes a first and then
follows pi. They part at once, and then move in turn, with one weight w and one coin, g = 1 or
w/g <= (S + L)/-(B_A(x) + B_B(y)). Should they meet, the rest does not differ, and the rollout ends. By the proof in
`policytest.payoffs.two_policies`, on the state s copied for the start, S >= -L and has mean at most
gap - (V0(s) - Q0(s,a)): S + w (E_A(x) + E_B(y)) is a martingale, and E_A + E_B = 0 where they meet.

*Nothing is paid for the number of deviations.* pi is returned only if all of them are refuted. If it is not optimal,
let (s,a) be the first with gap(s,a) < 0: which one that is does not depend on data. Its capital alone would have to
reach 1/delta', which happens with probability at most delta'.

*Candidates change*; the j-th distinct one has delta' = 6 delta/(pi^2 j^2), which sum to delta, and capital of its own,
which it keeps if it comes back. It is chosen from the past, so this holds conditionally, and by the sum for all.

All comparisons share their counts: what one has drawn improves the model of the others.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.compiled.small import Dynamics, Residuals
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike, cumulative
from policytest.kl.witness import FULL_ENTRIES, centring_error
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.td_betting import CoupledBetting
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import exact, maximal_coupling, shared_pool
from policytest.payoffs.fit import Fit, Progress
from policytest.payoffs.plan import REFIT, BettingPlan
from policytest.payoffs.policy_bet import PolicyBet
from policytest.payoffs.pool import Pool
from policytest.payoffs.td_rollouts import Rollouts
from policytest.payoffs.two_policies import Pair
from policytest.questions.identify.policies import (
    Search,
    action_values,
    deviations,
    first_actions,
    following,
    may_be_reached,
    never_pay,
    optimal_actions,
)
from policytest.questions.identify.tournament import METHOD, turn
from policytest.results.selection import Selection, SelectionCheck

EXPLORED = 10  # draws of each pair before the first candidate


# ---------------------------------------------------------------- among all


class CommonFit(NamedTuple):
    """What all deviations from one candidate share: Q0, the bets of A and of B, and the worst steps of each."""

    Q: FloatArray  # [K]
    a: Residuals
    b: Residuals
    lowest_a: FloatArray  # [K]
    lowest_b: FloatArray


class Candidate:
    """A deterministic policy, and the tests of its deviations."""

    def __init__(
        self, task: Task, actions: IntArray, pool: Pool, matter: BoolArray, level: float, workers: int = 1
    ) -> None:
        self.actions, self.pool, self.level, self.workers = actions, pool, level, workers
        self.task = following(task, actions)
        self.centre = 0.5 * sum(value_range(self.task))
        rounding = value_range_error(self.task) + centring_error(self.task, self.centre)
        self.bet = PolicyBet(exact(self.task, self.centre), pool, rounding)
        self.coupling = maximal_coupling(self.bet.task.policy, self.bet.task.policy)
        self._fit: tuple[int, CommonFit] | None = None
        self.asked = deviations(task, actions, matter)
        never = never_pay(self.bet.task, self.bet.rows(), pool.tally.only_successor, actions, 2.0 * rounding)
        self.settled = never & self.asked
        self.tests: dict[tuple[int, int], TDRun] = {}

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """The deviations still to be settled."""
        return [(int(s), int(a)) for s, a in np.argwhere(self.asked & ~self.settled)]

    def fit(self) -> CommonFit:
        """V0 and the worst paths, from the model at this sample."""
        if self._fit is None or self._fit[0] != self.pool.samples:
            self._fit = self.pool.samples, self._fitted()
        return self._fit[1]

    def _fitted(self) -> CommonFit:
        bet, q = self.bet, self.pool.model()
        assert q is not None
        V, _ = bet.values(q)
        Q = action_values(bet.rows(), q, V, bet.task.discount)
        base = bet.reward  # the candidate is deterministic: its advantages are 0
        a, b = bet.bet(V, base, 1.0), bet.bet(V, base, -1.0)
        return CommonFit(Q, a, b, bet.lowest_steps(V, base, a.B, 1.0)[0], bet.lowest_steps(V, base, b.B, -1.0)[0])

    def test(self, place: tuple[int, int]) -> TDRun:
        """The test of one deviation."""
        if place not in self.tests:
            payoff = Rollouts(self.bet.task, 0.0, (self.bet, self.bet), Deviation(self, *place))
            self.tests[place] = TDRun(CoupledBetting(), payoff, fit=DeviationFit(payoff, self, *place))
            self.tests[place].work_in_parallel(self.workers)
        return self.tests[place]

    def next(self) -> tuple[int, int] | None:
        """The deviation that has had fewest samples; None where there is none to go on with."""
        undecided = [place for place in self.undecided if not self.test(place).exhausted]
        return min(undecided, key=lambda place: self.test(place).samples) if undecided else None


class Deviation(Pair):
    """Whether V^pi(s) - Q^pi(s,a) > 0: A follows pi from s, B takes a first. The start is the state s, copied as S."""

    def __init__(self, candidate: Candidate, s: int, a: int) -> None:
        super().__init__(candidate.bet, candidate.bet, candidate.coupling, (-math.inf, math.inf))
        self.place = s, a

    def parted(self, made: Dynamics) -> Dynamics:
        """From S on, A and B part at once; after that both follow the candidate."""
        (s, a), policy = self.place, self.policies[0].task.policy
        S, A = policy.shape
        together, leaving = np.zeros((S + 1, 2 * A)), np.zeros((S + 1, A))
        together[:S, :A], together[S, A:], leaving[S, a] = policy, policy[s], 1.0
        return made._replace(
            real=np.append(np.arange(S), s),
            initial=cumulative(np.eye(S + 1)[[S]])[0],
            together=cumulative(together),
            leaving=cumulative(leaving),
            meets=True,
        )


class DeviationFit(Fit):
    """The plans of a deviation: those of its candidate."""

    def __init__(self, payoff: Rollouts, candidate: Candidate, s: int, a: int) -> None:
        super().__init__(payoff)
        self.candidate, self.place = candidate, (s, a)

    def plan(self, progress: Progress) -> BettingPlan:
        """From the model at this sample: V0(S) = V0(s) for A and Q0(s,a) for B."""
        payoff, samples = self.payoff, self.payoff.pool.samples
        self.due = max(REFIT * samples, samples + 1.0)
        (s, a), fit = self.place, self.candidate.fit()
        V, own, other = fit.a.V, self._row(s, int(self.candidate.actions[s])), self._row(s, a)
        lead = float(V[s] - fit.Q[other])
        least = fit.lowest_a[own] + fit.lowest_b[other] - lead
        size = np.abs(V).max() + np.abs(fit.a.base).max() / (1.0 - payoff.task.discount)
        start = min(0.0, float(least)) - 1e-12 * float(size)
        parts = fit.a._replace(V=np.append(V, V[s])), fit.b._replace(V=np.append(V, fit.Q[other]))
        B, L = np.append(np.zeros(payoff.task.n_states), start), max(-start, payoff.least_range(parts, lead))
        plan = BettingPlan(*parts, B, L, 1.0, lead)
        return self.staked(plan, payoff.noise(plan, None), progress)

    def _row(self, s: int, a: int) -> int:
        return int(self.payoff.tally.task.layout.row_of_pair[s * self.payoff.task.n_actions + a])


class BettingSearch(Search):
    """Best policy identification: candidates from the model, each with the tests of its deviations."""

    def __init__(self, task: Task, sim: SimulatorLike, delta: float, rng: Seed) -> None:
        self.task, self.delta = task, delta
        self.pool = shared_pool([task], sim, rng, FULL_ENTRIES)
        if self.pool.tally.is_open:
            raise InputError(f"the task has {task.n_states} states and no support; declare `support` to identify in it")
        self.source, self.tally = self.pool.source, self.pool.tally
        self.rows = PolicyBet(task, self.pool).rows()
        self.matter = may_be_reached(task)
        self.tried: dict[bytes, Candidate] = {}
        self.refit_at, self.workers = 0.0, 1
        self.candidate = self._propose(first_actions(task))

    @property
    def answered(self) -> bool:
        """Whether no deviation is left to be settled."""
        return not self.candidate.undecided

    @property
    def samples_used(self) -> int:
        """Those of all tests."""
        return self.pool.samples_used

    def work_in_parallel(self, workers: int) -> None:
        """Have so many rollouts of a test under way at once."""
        self.workers = workers

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Test deviations until all are settled."""
        if not self.answered:
            self._explore(limit)
            self.tried.clear()  # the one before was a guess; nothing was bet on it
            self.candidate = self._propose(self.candidate.actions)
        yield self._check()
        while not self.answered and self.pool.samples_used < limit:
            if self.pool.samples >= self.refit_at:
                self.candidate = self._propose(self.candidate.actions)
                if self.answered:
                    break
            place = self.candidate.next()
            if place is None:
                self.stuck = True
                return
            test = self.candidate.test(place)
            for _ in turn(test, self.candidate.level, self.pool.samples_used, limit):
                self.candidate.settled[place] = test.answer is not None
                yield self._check()

    def _explore(self, limit: int) -> None:
        """A few draws of each pair, so that the first candidate is not a guess."""
        pool, source = self.pool, self.source
        rows = pool.tally.rows
        k = np.flatnonzero((pool.tally.only_successor < 0) & self.matter[rows.state])
        k = np.tile(k, EXPLORED)[:limit]
        if not len(k):
            return
        with source.all_or_nothing():
            x = source.successors(rows.pair[k], limit)
        pool.observe(k[: len(x)], x)

    def _propose(self, actions: IntArray) -> Candidate:
        """The candidate of the model at this sample."""
        self.refit_at = REFIT * self.pool.samples + 1.0
        q = self.pool.model()
        assert q is not None
        actions, _ = optimal_actions(self.task, self.rows, q, actions)
        key = actions.tobytes()
        if key not in self.tried:
            level = -math.log(self.delta) + math.log(math.pi**2 / 6.0) + 2.0 * math.log(len(self.tried) + 1.0)
            self.tried[key] = Candidate(self.task, actions, self.pool, self.matter, level, self.workers)
        return self.tried[key]

    def _check(self) -> SelectionCheck:
        return SelectionCheck(self.samples_used, *self._settled(), self.candidate.level, self._about)

    def _settled(self) -> tuple[int, int]:
        """How many of how many deviations are settled."""
        return int(self.candidate.settled.sum()), int(self.candidate.asked.sum())

    def _about(self) -> tuple[float, float, tuple[float, float]]:
        """The weakest evidence among deviations that are open, and about the candidate's value."""
        candidate = self.candidate
        weakest = min((candidate.test(place).evidence()[0] for place in candidate.undecided), default=candidate.level)
        value = float(self.task.initial @ candidate.fit().a.V) + candidate.centre
        return weakest, value, value_range(candidate.task)

    def result(self, reason: str) -> Selection:
        """The candidate."""
        policy, values = self.candidate.task.policy, self.candidate.fit().a.V + self.candidate.centre
        method = f"{METHOD} of a policy and its deviations"
        return self.selected(policy, None, values, self._settled(), method, self.answered, reason)
