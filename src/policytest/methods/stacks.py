r"""Rollouts from stacks of recorded draws, by many sets of coins: what half of the sets prove is proved.

`policytest.methods.td_run` forms its rollouts from the recorded draws of each pair, each used once, in their
order, and waits where one is missing. Which draws meet in one rollout, and which pair is missing first, depends on its
coins. Here many sets of coins go through the same log, some of them betting on each side, and they take a
weighted-median vote.

*Validity.* If V <= R, the capital of each set that bets on "above" ever reaches 2/delta with probability at most
delta/2 (Ville), whatever rule wrote the log. So the mean share of sets that ever reach it is at most delta/2, and the
share is ever as large as 1/2 with probability at most delta (Markov). The ends of an interval are medians for the same
reason: with probability at least 1 - delta, at least half of the lower ends at the level 2/delta are below V. An
average of the capitals would not be valid: how far each set has come depends on draws that lie in the log and that it
has not used yet. Sets may have weights: here a quarter of them, with a little more than half of the weight, go through
all of a long log, and the others through its first 200,000 rows, which saves time.

*Learning first.* Where many rows are unknown, a rollout meets few of them, and most draws of a log are never used,
since rollouts end with the scarcest pair. There the first rows of the log are burn-in for fitting: V0 is fitted to
them before the first rollout. How many is decided by these rows alone, a stopping time of the log, and given them the
later draws of each pair are as fresh as before: until each pair was seen twice as often as a rollout is expected to
visit it.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import replace

import numpy as np

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import AssumptionWarning
from policytest.data.counts import Counts
from policytest.data.randomness import Seed, generator
from policytest.data.reward_moments import RewardMoments
from policytest.eprocess.interval import HALF, weighted_median
from policytest.kl.sampler import NOTHING, UNLIMITED, Recorded
from policytest.methods.run import Outcome, Run, Settings, steps
from policytest.methods.td_run import TDRun

LEARN_FIRST = 100  # unknown rows, from which on the first rows of a log are burn-in for fitting
FIRST_CHECK, CHECK = 32, 1.2  # rows after which it is looked whether they have taught enough; their growth
OFTEN, RARELY = 2.0, 0.25  # draws of a pair for each visit in a rollout; visits up to which a pair may be missing
REFIT = 2.0  # V0 is fitted again when the draws have grown by this factor; more often takes longer and gains nothing
LOOK = 1.01  # growth of the log between two looks
MOST_ENTRIES = 500_000  # allowed transitions, of all sets of a side together
SETS = 32  # of coins, for each side, in comparisons
LONG_LOG, LONG_SHARE, LONG_WEIGHT = 200_000, 4, 0.55  # rows after which every fourth set goes on; the weight of these
SIDES = ("above", "below")


def replicate_seeds(seed: Seed, sets: int = SETS) -> IntArray:
    """The seeds of this many sets of coins for each side."""
    return np.asarray(generator(seed).integers(2**62, size=2 * sets))


class OneSide:
    """The sets of coins that bet on one side.

    ``crossed`` are the rows at which sets have reached the level; ``best`` [n] is the largest evidence of each so far,
    ``beyond`` [n] that against the end of the indifference zone.
    """

    def __init__(self, runs: list[TDRun], side: int) -> None:
        self.runs, self.side, self.sign = runs, side, (1.0, -1.0)[side]
        self.crossed: dict[int, int] = {}
        self.best, self.beyond = np.zeros(len(runs)), np.zeros(len(runs))
        self.long, self.weights = max(len(runs) // LONG_SHARE, 1), np.full(len(runs), 1.0)
        if len(runs) > self.long:
            self.weights[: self.long] = LONG_WEIGHT / self.long
            self.weights[self.long :] = (1.0 - LONG_WEIGHT) / (len(runs) - self.long)
        for run in runs:
            run.fit.bet_on(self.sign, REFIT)

    def go_on(self, level: float, zone: float) -> None:
        """As far as the rows take each run: up to the level, and then to the end, for the interval."""
        if self.sign not in self.runs[0].payoff.sides:
            return
        for i, run in enumerate(self.runs):
            for required in (level, math.inf) if i not in self.crossed else (math.inf,):
                run.begin(required)
                for _ in steps(run, required, UNLIMITED):
                    self.best[i] = max(self.best[i], run.evidence()[self.side])
                if run.answer is not None:
                    self.crossed[i] = run.used()
            if zone:
                self.beyond[i] = max(self.beyond[i], run.refuter(self.sign).log_capital(-zone))

    @property
    def answered_at(self) -> float:
        """The row at which half of the sets had reached the level."""
        return -self.vote(np.array([-self.crossed.get(i, math.inf) for i in range(len(self.runs))]))

    def vote(self, values: FloatArray) -> float:
        """The largest number that half of the sets reach, by weight."""
        return weighted_median(values, self.weights)

    def end(self, level: float, of_answer: bool) -> float:
        """The end of an interval: beyond that of half of the sets. ``of_answer``: by the bets that led to it."""
        answers = [SIDES[self.side] if i in self.crossed else None for i in range(len(self.runs))]
        found = [
            run.interval_of(answer, level) if of_answer else run.one_sided(level)
            for run, answer in zip(self.runs, answers, strict=True)
        ]
        return self.sign * self.vote(self.sign * np.array(found)[:, self.side])


class StacksRun(Run):
    """Runs from stacks with different coins, on one log.

    Parameters
    ----------
    method
        The settings, for the verdict.
    start
        Starts a run on a log without rows, with the coins of a seed.
    seeds
        One for each set of coins; the first half of the sets bets on "above", the others on "below". In large tasks,
        where each set takes time and memory, there are fewer: a number that depends on the task alone. A single set
        for each side decides by itself, at 1/delta.
    rows
        The log.
    indifference
        If positive, answer "within" where |V - R| is proved to be smaller than this.
    """

    reads_all = True

    source: Recorded

    def __init__(
        self,
        method: Settings,
        start: Callable[[int], TDRun],
        seeds: IntArray,
        rows: Recorded,
        indifference: float = 0.0,
    ) -> None:
        self.method, self.source, self.indifference = method, rows, indifference
        self.whole = start(0)  # is never stepped: it counts all rows
        self.task, self.threshold = self.whole.task, self.whole.threshold
        entries = self.whole.tally.task.layout.n_entries * (self.task.horizon or 1)
        sets = int(np.clip(MOST_ENTRIES // entries, 1, len(seeds) // 2))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", AssumptionWarning)  # it was said once
            self.sides = tuple(
                OneSide([start(int(seed)) for seed in part[:sets]], side)
                for side, part in enumerate(np.array_split(seeds, 2))
            )
        self.runs = [run for side in self.sides for run in side.runs]
        alone = sets == 1 < len(seeds) // 2  # where one is asked for, as in forecasts, it stands for many
        self.price = 0.0 if alone else HALF
        many = int((self.whole.pool.only < 0).sum()) >= LEARN_FIRST and not self.whole.tally.is_open
        self.learnt, self.taught, self.next_check = not many, 0, FIRST_CHECK
        self.early = Recorded(NOTHING, NOTHING)  # the first rows, until enough is learnt from them

    # ------------------------------------------------------------ the loop

    @property
    def rows_to_next_look(self) -> int:
        """How many more rows are worth a look."""
        return max(1, math.ceil(LOOK * self.samples) - self.samples)

    def begin(self, level: float) -> None:
        """More may have been recorded."""
        self.exhausted = len(self.source.k) == 0

    def step(self, level: float, most: int) -> None:
        """All rows that are there; the row at which half of the sets agree is that of the answer."""
        rows = self.source.part(0)
        self.source.take(len(rows.k))
        self.whole.learn(rows)
        self.samples += len(rows.k)
        self.exhausted = True
        self._hand_out(rows)
        for side in self.sides:
            side.go_on(level + self.price, self.indifference)
        if self.answer is None:
            at = [side.answered_at for side in self.sides]
            if min(at) < math.inf:
                self.answer, self.answered_at = SIDES[at.index(min(at))], int(min(at))
            elif self.indifference and min(self.ends_refuted()) >= level:
                self.answer, self.answered_at = "within", self.samples

    def _hand_out(self, rows: Recorded) -> None:
        """Rows go to the stacks; the first ones may be burn-in for fitting."""
        handed_out = self.samples - len(rows.k)
        if not self.learnt:
            self.early.extend(rows.k, rows.x, rows.r)
            self._learn()
            if not self.learnt:
                return
            handed_out = self.taught
            self.runs[0].source.skip(self.taught)
            rows = self.early.part(self.taught)
        short = max(LONG_LOG - handed_out, 0)
        self._give(rows.part(0, short), self.runs)
        self._give(rows.part(short), [run for side in self.sides for run in side.runs[: side.long]])

    def _give(self, rows: Recorded, runs: list[TDRun]) -> None:
        """More draws on the stacks that these runs share."""
        if len(rows.k):
            runs[0].source.extend(rows.k, rows.x, rows.r)
            for run in runs[1:]:
                run.source.share(runs[0].source)

    def _learn(self) -> None:
        """Look at the first rows, as far as is needed."""
        teacher = self.runs[0]
        unknown = teacher.pool.only < 0
        while not self.learnt and self.next_check <= len(self.early.k):
            teacher.learn(self.early.part(self.taught, self.next_check))
            need, self.taught = np.where(unknown, teacher.payoff.visits_in_a_rollout(), 0.0), self.next_check
            self.learnt = bool((teacher.tally.n >= OFTEN * need)[need > RARELY].all())
            self.next_check = math.ceil(CHECK * self.next_check)
        if self.learnt:
            for run in self.runs[1:]:
                run.learn(self.early.part(0, self.taught))

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital that half of the sets have reached, less log 2: exp(-evidence) is a p-value."""
        above, below = (side.vote(side.best) - self.price for side in self.sides)
        return above, below

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference."""
        above, below = (side.vote(side.beyond) - self.price for side in self.sides)
        return above, below

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values that no half of the sets refutes."""
        lower, upper = (side.end(level + self.price, as_staked) for side in self.sides)
        return lower, upper

    def outcome(self, level: float) -> Outcome:
        """Evidence is the log-capital; the nearest kernel beyond R is that of all rows."""
        return replace(self.whole.outcome(level), evidence=self.evidence())

    @property
    def estimate(self) -> float:
        """The value of the empirical kernel of all rows."""
        return self.whole.estimate

    def counts(self) -> Counts:
        """All rows."""
        return self.whole.tally.counts()

    @property
    def reward_moments(self) -> RewardMoments | None:
        """The observed rewards of all rows."""
        return self.whole.reward_moments

    def why_undecided(self) -> str:
        """Which pair most sets wait for."""
        if not self.learnt:
            return "not enough data: some pairs that the policy needs are missing in the log, or nearly"
        reasons = [run.why_undecided() for run in self.runs]
        return max(set(reasons), key=reasons.count)
