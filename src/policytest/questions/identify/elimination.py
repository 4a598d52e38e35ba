r"""Rounds of agents: those that are not the best are thrown out, until one is left.

A round has one outcome of each of K agents that are still in, and G_i of agent i has the mean V_i given the rounds
before (`policytest.payoffs.rounds`). Against each agent b there is one e-process,

    W_b = prod over rounds of  1 + f (G_l - G_b)/room,        l the leader among the others,

where l, the one with the largest mean so far, and the fraction f are chosen before the round. When W_b reaches 1/delta,
b is thrown out, and has no more outcomes.

*What delta bounds.* Fix a best agent b: V_b >= V_j for all j. Whichever l is chosen, E[G_l - G_b | past] = V_l - V_b is
at most 0, so W_b is a nonnegative supermartingale, and by Ville's inequality b is ever thrown out with probability at
most delta. If the agent that is left is not a best one, b was thrown out. So

    P(an agent is named whose mean is not the largest)  <=  delta,

however many agents there are: b is not known, but it is one agent, and one e-process has to go wrong. Comparisons of
all pairs would split delta among K - 1 of them. Outcomes of a round may depend on each other, agents may be thrown out
in any number of rounds, and it does not matter when one looks. If several are the best, the same holds for each of
them: with probability 1 - delta the first of them is still in, and an answer needs that others are thrown out.

*Somebody is left.* The leader l and the second s of a round bet against each other, on G_s - G_l and on G_l - G_s, of
which one is at most 0. An agent is thrown out in a round in which its bet wins, so never all of them.

*Two agents*: W_2 bets on G_1 - G_2 and W_1 on G_2 - G_1, with the fractions of `compare` at margin 0. The agent that is
named, and the round, are those of `compare`.

*Several tasks.* V_i is then the mean over tasks, and a round bets on all of them: W_b is multiplied by the product over
tasks t of 1 + f (G_lt - G_bt)/room, with one l and one f. Tasks are independent given the past, so its mean is at most
(1 + f (V_l - V_b)/room)^T <= 1 (`policytest.data.trials`) at the ends of rounds, where alone evidence is looked at.

*Indifference.* Where the best are tied, no W reaches 1/delta. With epsilon > 0 the leader l is also named if it is
close to each other agent j that is left: there are bets on G_l - G_j + epsilon, and each has to refute
V_l <= V_j - epsilon at delta/(2 (K - 1)); delta/2 is for throwing out. *Proof.* Fix a best agent b, and suppose that
the named one has V_i <= V_b - epsilon. Either b was thrown out: at most delta/2. Or b was left, and the bets on
G_i - G_b + epsilon, which are unfavourable, have reached 2 (K - 1)/delta for one of the K - 1 such i: at most delta/2
together. So P(the named one is worse than the best by epsilon or more) <= delta.

*A budget* is a number of outcomes of all agents together. All bets aim at an answer by the last round for which it
suffices; each time an agent is thrown out there are more rounds for the others, and bets aim at the new end, from the
capital that is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.text import plural
from policytest.data.episodes import MEAN_RETURN
from policytest.data.ranges import Range
from policytest.data.returns import Returns
from policytest.eprocess.interval import HALF
from policytest.methods.return_run import ReturnsRun
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes
from policytest.payoffs.rounds import Round, RoundSupply
from policytest.results.selection import SelectionCheck

NEVER = math.inf  # the evidence that nothing reaches


class Standing(NamedTuple):
    """What is known of an agent: the mean of its outcomes, where V is at 1 - delta, how many, and whether it is in."""

    value: float
    lower: float
    upper: float
    outcomes: int
    is_in: bool


class Elimination:
    """The search at work. ``limit``s are of transitions; ``budget`` is of outcomes, of all agents together."""

    def __init__(self, supply: RoundSupply, delta: float, indifference: float = 0.0, budget: int | None = None) -> None:
        self.source, self.delta, self.zone, self.budget = supply, delta, indifference, budget
        self.bounds, K, self.tasks = list(supply.bounds), len(supply.bounds), supply.tasks
        self.level = -math.log(delta) + (HALF if indifference else 0.0)
        self.left, self.rounds = list(range(K)), list[Round]()
        self.sums, self.counts, self.steps = np.zeros(K), np.zeros(K, dtype=np.int64), 0
        self.in_vain = 0  # transitions of agents that were out when their round was settled
        self.against: dict[int, ReturnsRun] = {}
        self.near: dict[tuple[int, int], tuple[ReturnsRun, int]] = {}  # and how many rounds it has seen
        self._without_outcomes()
        if not self.answered:
            self.against = {b: _bets(self._span_against(b), self.tasks) for b in self.left}
            self._aim()

    def _without_outcomes(self) -> None:
        """Throw out whoever cannot be better than another, by the ranges that were declared."""
        for b in list(self.left):
            if any(self.bounds[j][0] >= self.bounds[b][1] for j in self.left if j != b):
                self.left.remove(b)

    def _span_against(self, b: int) -> Range:
        """Where G_l - G_b lies, whoever leads."""
        others = [self.bounds[j] for j in self.left if j != b]
        return min(low for low, _ in others) - self.bounds[b][1], max(high for _, high in others) - self.bounds[b][0]

    # ------------------------------------------------------------ what is known

    @property
    def means(self) -> FloatArray:
        """[K] of the outcomes so far; minus infinity where there is none."""
        known = self.counts > 0
        return np.where(known, self.sums / np.maximum(self.counts, 1), -math.inf)

    @property
    def leader(self) -> int:
        """The best, by estimate, of those that are left."""
        return self._first(self.left)

    def _first(self, agents: Sequence[int]) -> int:
        means = self.means
        return max(agents, key=lambda i: float(means[i]))

    @property
    def answered(self) -> bool:
        """Whether one is left, or the leader is close to all that are."""
        return len(self.left) == 1 or self.is_close

    @property
    def is_close(self) -> bool:
        """Whether the leader is proved to be worse than nobody who is left by the indifference, or more."""
        if not self.zone or not self.rounds:
            return False
        leader = self.leader
        level = self.level + math.log(max(len(self.bounds) - 1, 1))
        return all(self._closeness(leader, j) >= level for j in self.left if j != leader)

    @property
    def settled(self) -> tuple[int, int]:
        """How many rivals are out, or close to the leader, of how many."""
        K = len(self.bounds)
        return (K - 1 if self.answered else K - len(self.left)), K - 1

    @property
    def samples_used(self) -> int:
        """All transitions."""
        return self.steps + self.in_vain + int(self.source.extra)

    @property
    def outcomes(self) -> int:
        """How many outcomes of all agents there were."""
        return int(self.counts.sum())

    @property
    def is_spent(self) -> bool:
        """Whether the budget has no further round."""
        return self.budget is not None and self._rounds_left() < 1

    def _rounds_left(self) -> int:
        """How many rounds the budget has for those that are left."""
        assert self.budget is not None
        return (self.budget - self.outcomes) // (len(self.left) * self.tasks)

    def standings(self) -> list[Standing]:
        """What is known of each agent. Each interval holds with probability 1 - delta, at all times at once."""
        level, found = -math.log(self.delta), []
        for i, (low, high) in enumerate(self.bounds):
            ends = low, high
            if self.rounds and -math.inf < low < high < math.inf:
                run = _bets((low, high), self.tasks, 0.5 * (low + high))
                _feed(run, self._outcomes_of(i))
                ends = run.interval(level)
            mean = float(self.means[i]) if self.counts[i] else math.nan
            found.append(Standing(mean, *ends, int(self.counts[i]), i in self.left))
        return found

    def returns(self) -> Returns:
        """The outcomes of all agents, one agent after the other."""
        parts = [self._outcomes_of(i) for i in range(len(self.bounds))]
        nothing = np.zeros(0), np.zeros(0, dtype=np.int64)
        totals = np.concatenate([nothing[0], *(part.returns for part in parts)])
        steps = np.concatenate([nothing[1], *(part.steps for part in parts)])
        return Returns(totals, steps, outside=self.source.outside, doubts=self.source.doubts)

    def _outcomes_of(self, i: int) -> Outcomes:
        """Those of one agent."""
        if not self.rounds:
            return NO_OUTCOMES
        parts = zip(*(seen.of_agent(i) for seen in self.rounds), strict=True)
        found = Outcomes(*(np.concatenate(columns) for columns in parts))
        return found.where(~np.isnan(found.returns))

    # ------------------------------------------------------------ the loop

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Take rounds, at most so many transitions, until there is an answer; a check after every round."""
        yield self.check()
        while not self.answered and self.samples_used < limit and not self.source.exhausted and not self.is_spent:
            if self.budget is not None:
                self.source.expect(self._rounds_left())
            seen = self.source.take(tuple(self.left), limit - self.samples_used)
            if seen is not None:
                self.settle(seen)
            if self.answered:
                self.source.wait()  # before the last look
            yield self.check()
        self.source.wait()

    def settle(self, seen: Round) -> None:
        """Settle the bets against all agents with a round, and throw out those that have lost."""
        present = [i for i in seen.present if i in self.left]
        pairs = [(self._first([j for j in present if j != b]), b) for b in present if len(present) > 1]
        for leader, b in pairs:
            won = seen.difference(leader, b)
            _feed(self.against[b], won._replace(below=np.full(self.tasks, math.nan)), self.level)
        self.rounds.append(seen.only(present))
        self.counts[present] += self.tasks
        self.sums[present] += seen.by_agent[present].sum(axis=1)
        self.steps += int(seen.steps[present].sum())
        self.in_vain += int(seen.steps.sum()) - int(seen.steps[present].sum())
        out = [b for b in present if self.against[b].answer is not None]
        if out:
            self.left = [i for i in self.left if i not in out]
            self._aim()

    def _aim(self) -> None:
        """Aim all bets at an answer by the last round that the budget has for those that are left."""
        if self.budget is None or len(self.left) == 1:
            return
        outcomes = self._rounds_left() * self.tasks
        for run in (self.against[b] for b in self.left):
            run.extend(run.episodes + outcomes, self.level, pairs=True)

    def _closeness(self, i: int, j: int) -> float:
        """The evidence against V_i <= V_j - indifference."""
        spread = self.bounds[i][0] - self.bounds[j][1], self.bounds[i][1] - self.bounds[j][0]
        if spread[0] > -self.zone:
            return math.inf
        run, done = self.near.get((i, j)) or (_bets(spread, self.tasks, -self.zone), 0)
        for seen in self.rounds[done:]:
            if {i, j} <= set(seen.present):
                _feed(run, seen.difference(i, j)._replace(below=np.full(self.tasks, math.nan)))
        self.near[i, j] = run, len(self.rounds)
        return max(run.evidence()[0], 0.0)

    def check(self) -> SelectionCheck:
        """A look at the search."""
        return SelectionCheck(self.samples_used, *self.settled, self.level, self._about, self.outcomes)

    def _about(self) -> tuple[float, float, Range]:
        """The weakest evidence against a rival of the leader that is in, and about the leader's mean."""
        leader = self.leader
        rivals = [self.against[b].evidence()[0] for b in self.left if b != leader and b in self.against]
        mean = float(self.means[leader]) if self.counts[leader] else math.nan
        return min(rivals, default=0.0), mean, self.bounds[leader]

    def why_undecided(self, reason: str) -> str:
        """What has ended the search without an answer: the reason, if there is one, or what the search knows."""
        if reason:
            return reason
        if self.is_spent and self.budget is not None:
            return f"the budget of {plural(self.budget, self.source.unit)} is used up"
        return "the data do not settle it" if self.source.exhausted else "the sample limit is reached"


# ---------------------------------------------------------------- bets on differences


class _MeanOutcome:
    """What is asked about: the mean."""

    score = critic = None
    asked_about = MEAN_RETURN

    def value_of(self, returns: FloatArray) -> float:
        """The mean of these outcomes."""
        return float(np.mean(returns))


class _Betting:
    """The settings of these bets."""

    def describe(self) -> str:
        """In a few words."""
        return "betting on returns"


class _Handed(EpisodeSupply):
    """Outcomes that are handed over, to be bet on at once."""

    def __init__(self, low: float, high: float, together: int) -> None:
        self.low, self.high, self.together, self.next = low, high, together, NO_OUTCOMES

    def hand(self, outcomes: Outcomes) -> None:
        """These are next."""
        self.next = outcomes

    def take(self, most: int) -> Outcomes:
        """Those."""
        found, self.next = self.next, NO_OUTCOMES
        return found


def _bets(span: Range, together: int, threshold: float = 0.0) -> ReturnsRun:
    """Bets on outcomes that lie there, so many in a round, against a mean of at most the threshold."""
    return ReturnsRun(_Betting(), _MeanOutcome(), threshold, _Handed(*span, together))


def _feed(run: ReturnsRun, outcomes: Outcomes, level: float = NEVER) -> None:
    """Settle the bets with these outcomes, up to the first at which the evidence reaches the level."""
    supply: _Handed = run.source  # type: ignore[assignment]
    supply.hand(outcomes)
    run.step(level, len(outcomes.returns))
