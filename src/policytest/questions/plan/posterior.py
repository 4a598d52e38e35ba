r"""The kernels that counts leave possible: rows from Dirichlet(N + a), with the one a under which N is most probable.

Over random instances, with 50 draws a pair, the true gap V - R lies as far from the middle of the gaps drawn as a
standard normal variable says: its deviations have mean 0.09 and standard deviation 1.02 (`benchmarks/planning.py`).
"""

from __future__ import annotations

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest.data.counts import Counts
from policytest.data.reward_moments import RewardMoments
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.horizon import evaluated
from policytest.mdp.task import Task, counting_task
from policytest.questions.plan.truth import RewardLaw, Truth, law_after, with_means

PRIORS = (0.5, 0.01, 0.02, 0.05, 0.1, 0.2, 0.35, 0.7, 1.0, 1.5, 2.0, 4.0)  # ties to the first
DRAWS, MOST_DRAWN = 400, 20_000_000  # kernels, and all their entries together


class Posterior:
    """Kernels, and laws of observed rewards, drawn around counts.

    ``mean`` is the middle one, ``gaps`` [M] are V_q - R of all that are drawn.
    """

    def __init__(
        self,
        task: Task,
        threshold: float,
        counts: Counts,
        rng: np.random.Generator,
        most: int = DRAWS,
        seen: RewardMoments | None = None,  # what was observed of rewards, where these are observed
    ) -> None:
        self.task, self.threshold, self.seen = task, threshold, seen
        counted = task if task.is_discounted_table else counting_task(task)
        self.tally = tally = WitnessedCounts(counted, threshold, MixtureBoundary(PRIORS))
        tally.load(counts)
        by_prior = tally.terms.dimensions(tally.rows.start, tally.N, tally.n)
        self.prior = PRIORS[int(np.argmin(by_prior))]
        middle = tally.rows.to_one(tally.N + self.prior)
        self.mean = Truth(self._scatter(middle), self._law(None))
        many = int(np.clip(MOST_DRAWN // max(tally.rows.n_entries, 1), 20, most))
        self.seeds = rng.integers(2**62, size=many)
        self.gaps = np.array([self._gap(self._draw(seed), self._law(seed)) for seed in self.seeds])
        self.middle = self._gap(middle, self.mean.rewards)

    def _gap(self, entries: FloatArray, rewards: RewardLaw | None) -> float:
        """V_q - R of a kernel given by its entries."""
        if self.task.is_discounted_table:
            return float(self.tally.value_of(entries)[0])
        rows = self.task.layout.rows
        V = evaluated(self.task, rows if rewards is None else with_means(rows, rewards.mean), entries).V
        V = V if self.task.horizon is None else V[0]
        return float(np.nan_to_num(self.task.initial * V).sum()) + self.task.reached_at_start - self.threshold

    def truth(self, index: int) -> Truth:
        """One of those drawn."""
        seed = self.seeds[index]
        return Truth(self._scatter(self._draw(seed)), self._law(seed))

    def _law(self, seed: int | None) -> RewardLaw | None:
        """The law of observed rewards that is drawn with the kernel of this seed; None: the middle one."""
        if self.seen is None:
            return None
        return law_after(self.task, self.seen, None if seed is None else np.random.default_rng([1, int(seed)]))

    def _draw(self, seed: int) -> FloatArray:
        """[E] rows from Dirichlet(N + a)."""
        rows = self.tally.rows
        mass = np.random.default_rng(seed).standard_gamma(self.tally.N + self.prior)
        empty = rows.per_entry(rows.sums(mass)) <= 0.0
        return rows.to_one(np.where(empty, 1.0, mass))

    def _scatter(self, entries: FloatArray) -> Kernel:
        task = self.tally.task
        S, A = task.n_states, task.n_actions
        is_small = not arrays.is_sparse(task.support) and S * A * S <= MOST_DRAWN
        like: Kernel = np.full((S, A, S), 1.0 / S) if is_small else sparse.csr_array((S * A, S))
        return self.tally.rows.scatter(entries, like, S)
