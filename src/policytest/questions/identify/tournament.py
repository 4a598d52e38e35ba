"""The best of some policies: comparisons by betting, until one policy is left.

*With a budget* they come one after the other, the one with the largest estimated difference first. Each aims at an
answer within its share: what is left of the budget when it begins, divided by the number of rivals that are left then.
So what the easy ones leave over is for the hard ones, and the last one has all of it. If all shares are used up and
some of the budget is left, comparisons without an answer aim at the end of that, from the capital that they have left.
Shares depend on the past only, and so do all fractions: each comparison errs with probability at most delta/(K-1), as
without a budget.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.text import plural
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.data.transitions import Transitions
from policytest.kl.sampler import Recorded
from policytest.mdp.task import Task
from policytest.mdp.values import value, value_range
from policytest.methods.run import steps
from policytest.methods.td_betting import CoupledBetting
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import joint_task, shared_pool, supply_of
from policytest.payoffs.known_range import known_difference
from policytest.payoffs.plan import REFIT
from policytest.payoffs.policy_bet import PolicyBet
from policytest.payoffs.pool import pool_in_time
from policytest.payoffs.total_bet import TotalBet
from policytest.payoffs.two_policies import two_policies
from policytest.questions.compare import compare
from policytest.questions.identify.policies import Search
from policytest.results.selection import Selection, SelectionCheck

TURN, TURN_SHARE = 64, 0.02  # samples of a comparison at a time: at least, and as a share of all so far
METHOD = "betting on temporal differences"


def turn(run: TDRun, level: float, samples: int, limit: int) -> Iterator[None]:
    """Some samples for one comparison: a number that depends on ``samples``, those of all, and on nothing else."""
    until = run.samples_used + min(max(TURN, int(TURN_SHARE * samples)), limit - samples)
    yield from steps(run, level, until)


# ---------------------------------------------------------------- among some


class Tournament(Search):
    """The best of K: pairwise comparisons of the leader with those that are left."""

    def __init__(
        self, tasks: list[Task], sim: SimulatorLike, delta: float, rng: Seed, budget: int | None = None
    ) -> None:
        self.tasks, self.delta, self.budget = tasks, delta, budget
        self.pool = shared_pool(tasks, sim, rng)
        self.source, self.tally = self.pool.source, self.pool.tally
        kind = PolicyBet if tasks[0].is_discounted_table else TotalBet
        self.bets = [kind(task, self.pool) for task in tasks]
        self.level = math.log(max(len(tasks) - 1, 1) / delta)
        self.left, self.workers = list(range(len(tasks))), 1
        self.runs: dict[tuple[int, int], TDRun] = {}
        self.refit_at, self.values = 0.0, np.zeros(len(tasks))
        self._without_samples()
        self._estimate()

    def _without_samples(self) -> None:
        """Throw out what ranges of values decide; of policies that are known to be as good, the later ones."""
        for i in range(len(self.tasks)):
            for j in range(i + 1, len(self.tasks)):
                if i in self.left and j in self.left:
                    known = known_difference(self.tasks[i], self.tasks[j])
                    if known.settles(0.0):
                        self.left.remove(i if known.answer(0.0) == "below" else j)

    def _estimate(self) -> None:
        """The values that the model gives the policies."""
        q = self.pool.model()
        self.values = np.array([float(bet.task.initial @ bet.values(q)[0][: bet.task.n_states]) for bet in self.bets])
        self.values += [task.reached_at_start for task in self.tasks]
        self.refit_at = REFIT * self.pool.samples + 1.0

    @property
    def leader(self) -> int:
        """The best, by estimate, of those that are left."""
        return max(self.left, key=lambda i: float(self.values[i]))

    @property
    def answered(self) -> bool:
        """Whether one is left."""
        return len(self.left) == 1

    @property
    def samples_used(self) -> int:
        """Those of all comparisons."""
        return self.pool.samples_used

    def work_in_parallel(self, workers: int) -> None:
        """Have so many rollouts of a comparison under way at once."""
        self.workers = workers

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Compare until one is left."""
        yield self._check()
        limit = limit if self.budget is None else min(limit, self.budget)
        while not self.answered and self.pool.samples_used < limit:
            if self.pool.samples >= self.refit_at:
                self._estimate()
            leader = self.leader
            pairs = [(min(leader, j), max(leader, j)) for j in self.left if j != leader]
            open_pairs = [pair for pair in pairs if pair not in self.runs or not self.runs[pair].exhausted]
            open_pairs = open_pairs or self._extended(pairs)
            if not open_pairs:
                self.stuck = True
                return
            pair = self._next(open_pairs)
            run = self._run(pair)
            for _ in turn(run, self.level, self.pool.samples_used, limit):
                if run.answer is not None:
                    self.left.remove(pair[1] if run.answer == "above" else pair[0])
                yield self._check()

    def _next(self, pairs: list[tuple[int, int]]) -> tuple[int, int]:
        """The comparison of the leader to go on with: the one with the fewest samples.

        With a budget it is the one that was begun, also if there is another leader by now.
        """
        if self.budget is None:
            return min(pairs, key=lambda pair: self._run(pair).samples)
        begun = (pair for pair, run in self.runs.items() if set(pair) <= set(self.left) and not run.exhausted)
        return next(begun, max(pairs, key=lambda pair: abs(self.values[pair[0]] - self.values[pair[1]])))

    def _extended(self, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
        """Comparisons whose shares are used up, aimed at an answer within what the others have left over."""
        spent = [pair for pair in pairs if self.runs[pair].is_spent]
        for pair in spent:
            self.runs[pair].extend(self.runs[pair].samples_used + self._share(len(spent)), self.level)
        return spent

    def _share(self, comparisons: int) -> int:
        """That of each, in what is left of the budget."""
        assert self.budget is not None
        return max((self.budget - self.samples_used) // comparisons, 1)

    def _run(self, pair: tuple[int, int]) -> TDRun:
        if pair not in self.runs:
            a, b = (self.tasks[i] for i in pair)
            run = self.runs[pair] = TDRun(CoupledBetting(), two_policies(a, b, 0.0, self.pool))
            run.work_in_parallel(self.workers)
            if self.budget is not None:
                run.aim_at(run.samples_used + self._share(len(self.left) - 1))
                run.begin(self.level)
        return self.runs[pair]

    def _check(self) -> SelectionCheck:
        return SelectionCheck(self.samples_used, *self._settled(), self.level, self._about)

    def _settled(self) -> tuple[int, int]:
        """How many rivals are out, of how many."""
        return len(self.tasks) - len(self.left), len(self.tasks) - 1

    def _about(self) -> tuple[float, float, tuple[float, float]]:
        """The weakest evidence among comparisons that are open, and about the leader's value."""
        strongest = [max(run.evidence()) for pair, run in self.runs.items() if set(pair) <= set(self.left)]
        return min(strongest, default=0.0), float(self.values[self.leader]), value_range(self.tasks[self.leader])

    def result(self, reason: str) -> Selection:
        """The one that is left, or the leader."""
        self._estimate()
        best, method = self.leader, f"{METHOD} of policies in coupled rollouts"
        policy = self.tasks[best].policy
        if self.budget is not None and not reason and self.samples_used >= self.budget:
            reason = f"the budget of {plural(self.budget, 'transition')} is used up"
        return self.selected(policy, best, self.values, self._settled(), method, self.answered, reason)


def best_on_a_log(tasks: list[Task], data: Transitions, delta: float, rng: Seed) -> Selection:
    """The policy with the largest estimate, compared with each of the others at delta/(K-1), on recorded transitions.

    If the answer is wrong, the policy named was found better than the best one. That has probability at most
    delta/(K-1) for each of the K-1 policies that may be named, and whichever the data name: together at most delta.
    """
    counts = data.counts(joint_task(tasks), len(data))
    if tasks[0].is_discounted_table:
        values = np.array([value(task, counts.kernel(task)) for task in tasks])
    else:
        values = _values_on_a_log(tasks, data)
    best = int(np.argmax(values))
    rivals, settled = [j for j in range(len(tasks)) if j != best], 0
    for j in rivals:
        known = known_difference(tasks[best], tasks[j])
        alike = (known.settles(0.0) and known.answer(0.0) != "below") or known.low == known.high == 0.0
        settled += alike or compare(tasks[best], tasks[j], data, delta / len(rivals), rng=rng).answer == "above"
    answered = settled == len(rivals)
    return Selection(
        policy=tasks[best].policy,
        index=best,
        samples=len(data),
        certified=answered and not counts.flaws,
        answered=answered,
        values=values,
        delta=delta,
        settled=settled,
        questions=len(rivals),
        counts=counts,
        reason="" if answered else "the data do not settle it",
        method=f"{METHOD} of policies in coupled rollouts",
    )


def _values_on_a_log(tasks: list[Task], data: Transitions) -> FloatArray:
    """The values that all rows give the policies; minus infinity where a total is not finite."""
    joint = joint_task(tasks)
    pool = pool_in_time(joint, supply_of(joint, data.first(0), 0))
    pool.learn(Recorded.of(joint, data))
    starts = tasks[0].initial > 0
    found = (TotalBet(task, pool).empirical_values()[starts] for task in tasks)
    values = np.array([tasks[0].initial[starts] @ V for V in found])
    return np.where(np.isfinite(values), values, -np.inf) + tasks[0].reached_at_start
