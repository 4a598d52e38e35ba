"""What all bets of one question share: the counts, the supply of draws, the fitted model, and the observed rewards."""

from __future__ import annotations

import numpy as np

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.compiled import rollouts
from policytest._base.errors import InputError
from policytest._base.record import numbers_of
from policytest.data.counts import Counts
from policytest.data.reward_moments import RewardMoments
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded
from policytest.kl.witness import WitnessedCounts, is_open
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task, counting_task
from policytest.payoffs.draws import Supply

PAIR_MASS, STATE_MASS = 5.0, 6.0  # how strongly a pair's row is drawn to its state's, and that to the uniform one


class Pool:
    """Counts, draws and the model fitted to the counts; ``observed`` are the rewards, where these are observed."""

    def __init__(self, tally: WitnessedCounts, source: Supply, observed: ObservedRewards | None = None) -> None:
        self.tally, self.source, self.observed, self.samples = tally, source, observed, 0
        self.only = tally.only_successor  # [K] of rows that are known, and need no draw; -1 for the others
        if observed is not None:
            self.only = np.where(observed.drawn, -1, tally.rows.successor[tally.rows.start[:-1]])
        self.is_taught = False  # by transitions of any policy, that no rollout asked for
        self._fitted: tuple[int, FloatArray] | None = None

    @property
    def samples_used(self) -> int:
        """The samples, and the steps that the simulator made on the way to them."""
        return self.samples + self.source.extra

    def model(self) -> FloatArray | None:
        """[E] the fitted kernel, the same for all policies; None where few of the allowed successors are listed."""
        tally = self.tally
        if tally.is_open:
            return None
        if self._fitted is None or self._fitted[0] != self.samples:
            q = rollouts.shrunk_rows(tally.rows, tally.N, tally.n, tally.task.n_states, PAIR_MASS, STATE_MASS)
            self._fitted = self.samples, q
        return self._fitted[1]

    def observe(self, k: IntArray, x: IntArray) -> None:
        """Count draws of unknown rows."""
        self.tally.observe(k, x, np.inf)  # refuses what the support excludes
        self.samples += len(x)

    def learn(self, rows: Recorded) -> None:
        """Transitions that are counted, and never bet on, with their rewards where these are observed."""
        drawn, self.is_taught = rows.k >= 0, True
        self.observe(rows.k[drawn], rows.x[drawn])
        if self.observed is not None:
            self.observed.record(rows.k[drawn], rows.x[drawn], rows.r[drawn])

    def load(self, counts: Counts) -> None:
        """Counts that were recorded elsewhere."""
        self.tally.load(counts)
        self.samples = counts.total

    def record(self, pair: IntArray, x: IntArray, rewards: FloatArray) -> None:
        """Count the transitions of unknown rows; those of known rows are not draws, and known rewards are not kept."""
        k = self.tally.task.layout.row_of_pair[pair]
        drawn = self.only[k] < 0
        if drawn.any():
            self.observe(k[drawn], x[drawn])
        if self.observed is not None:
            self.observed.record(k, x, rewards)

    def state(self) -> Arrays:
        """What was observed of rewards, and what was drawn ahead; the counts are kept by themselves."""
        return self.source.stacks() | ({} if self.observed is None else self.observed.state())

    def restore(self, state: Arrays) -> None:
        """Go on from what was kept; the counts are back."""
        self.samples = int(self.tally.n[self.only < 0].sum())
        self.source.restore_stacks(state)
        if self.observed is not None:
            self.observed.restore(state)


class ObservedRewards:
    """The sums [K] of observed rewards and of their squares; ``moments`` has the same by transition, for forecasts."""

    def __init__(self, task: Task, rewards: Observed, tally: WitnessedCounts) -> None:
        pair, self.tally = tally.rows.pair, tally
        self.drawn = ~task.known_rows.ravel()[pair]
        self.low, self.high = rewards.low.ravel()[pair], rewards.high.ravel()[pair]
        self.moments = RewardMoments(tally.rows, task.n_states)
        self.sums, self.squares = np.zeros(len(pair)), np.zeros(len(pair))

    def record(self, k: IntArray, x: IntArray, rewards: FloatArray) -> None:
        """Add up the rewards of transitions from rows k to x, where they are not known."""
        drawn = self.drawn[k]
        np.add.at(self.sums, k[drawn], rewards[drawn])
        np.add.at(self.squares, k[drawn], rewards[drawn] ** 2)
        self.moments.record(k[drawn], x[drawn], rewards[drawn])

    def means(self) -> FloatArray:
        """[K] fitted: a pair's mean drawn to its state's, and that to the mean of all; within the range of the pair."""
        rows, n, S = self.tally.rows, self.tally.n, self.tally.task.n_states
        middle = 0.5 * (self.low + self.high)
        mean = (self.sums.sum() + middle.mean()) / (n[self.drawn].sum() + 1.0)
        by_state = np.bincount(rows.state, self.sums, minlength=S) + STATE_MASS * mean
        state = (by_state / (np.bincount(rows.state, n, minlength=S) + STATE_MASS))[rows.state]
        return np.asarray(np.clip((self.sums + PAIR_MASS * state) / (n + PAIR_MASS), self.low, self.high))

    def variances(self) -> FloatArray:
        """[K] fitted; a quarter of the squared range where nothing is known."""
        n, most = self.tally.n, 0.25 * (self.high - self.low) ** 2
        variance = (self.squares + most) / (n + 1.0) - (self.sums / np.maximum(n, 1.0)) ** 2
        return np.asarray(np.clip(variance, 0.0, most))

    def plain_means(self) -> FloatArray:
        """[K] not fitted, and the middle of the range where nothing was seen."""
        n = self.tally.n
        return np.where(n > 0, self.sums / np.maximum(n, 1.0), 0.5 * (self.low + self.high))

    def state(self) -> Arrays:
        """The sums."""
        return {"rewards": np.array([self.sums, self.squares]), **self.moments.state()}

    def restore(self, state: Arrays) -> None:
        """Go on from what was kept."""
        self.sums, self.squares = numbers_of(state, "rewards", 2, len(self.sums))
        self.moments.restore(state)


def pool_in_time(task: Task, supply: Supply) -> Pool:
    """The pool of a task beyond the discounted table: the rows that its policy takes, all successors listed."""
    counted = counting_task(task)
    if is_open(counted):
        raise InputError(f"task: any of {task.n_states:,} states may follow each pair; declare `support`")
    tally = WitnessedCounts(counted, 0.0, MixtureBoundary())
    rewards = task.rewards
    return Pool(tally, supply, ObservedRewards(task, rewards, tally) if isinstance(rewards, Observed) else None)
