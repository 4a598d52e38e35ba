r"""Monte-Carlo returns: rollouts of fixed length, judged by bets or by Hoeffding's inequality.

*`MonteCarlo`* bets on truncated discounted returns from rho. What comes after the horizon H, in state x, is replaced by
gamma^H times the lowest value of x over all allowed kernels for the side "above", by the highest for "below": 0 where
the episode has ended. Scaled to [0, 1] by the least and the largest return of any path (mirrored for "below") this is
X; if the answer would be wrong its mean is at most m, the threshold scaled likewise. Then

    betting      sum_j w_j prod (1 + f_j (X/m - 1))                         for fractions f_j in (0, 1)
    bernstein    prod exp( l (X - m) - (X - mu)^2 (-log(1-l) - l) )         for mu and l in (0, 1/2] from the past
    hoeffding    prod exp( l (X - m) - l^2/8 )                              for l from the past

are nonnegative supermartingales: each ever reaches 1/delta with probability at most delta. The last two, with their
choices of mu and l, are the predictable plug-in processes of Waudby-Smith and Ramdas (2024).

*With a horizon or discount 1* whole paths are rolled out to their ends, and "betting" bets on their returns G, or
totals, in the range [low, high] of all paths that policy and support allow: 0 and 1 for a probability, the declared
``total_rewards`` where the total of a path has no other bound. Rewards may be observed. This is the process of
`policytest.payoffs.td_rollouts` without coins and advantages, `Rollouts.whole_paths`, so that everything is served that
is served there.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import rollouts
from policytest._base.errors import InputError
from policytest._base.record import Record, part_of, record
from policytest.data.counts import Counts
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike, checked_draw, cumulative
from policytest.eprocess.capital import Bet, TwoSided
from policytest.eprocess.interval import Refuter, ends
from policytest.eprocess.plug_in import PlugIn
from policytest.eprocess.strategies import TRUNCATED
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.sampler import Recorded, Source
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task
from policytest.mdp.values import extreme_state_values, value_range
from policytest.methods.kl_run import SampledMethod
from policytest.methods.run import Run
from policytest.methods.td_betting import rollouts_in_time
from policytest.methods.td_run import TDRun
from policytest.payoffs.draws import Supply
from policytest.payoffs.fit import Fit
from policytest.payoffs.td_rollouts import warn_of_sides

KINDS = ("betting", "bernstein", "hoeffding")
BATCH, BATCH_GROWTH = 16, 1 / 32  # rollouts at once: this many, or this share of those made
REMEDY = "pass a horizon, or list the values of rewards, Observed(values=[...]), or use TDBetting()"
ROUNDING = 1e-12  # of the range of returns, to which values are told apart
REMAINDER = 0.05  # gamma^H is at most this, and falls as one over the root of the number of rollouts


@dataclass(frozen=True)
class MonteCarlo(SampledMethod[Run]):
    """Tests on discounted returns from rho, or on totals of whole paths; every transition counts as a sample.

    Answers are certified.

    Parameters
    ----------
    kind
        "betting", "bernstein" or "hoeffding"; for tasks with a horizon or discount 1 it is "betting".
    horizon
        The length of a rollout of a discounted task. Gaps below what may come after it are never decided. None: it
        grows with the logarithm of the number of rollouts, so that the remainder stays below the statistical error.
    """

    kind: str = "betting"
    horizon: int | None = None

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind is {self.kind!r}; pass one of {', '.join(map(repr, KINDS))}")
        if self.horizon is not None:
            arrays.positive(horizon=arrays.whole_number("horizon", self.horizon))

    def start(self, task: Task, sim: SimulatorLike, threshold: float, rng: Seed) -> Run:
        """The test at work on a simulator: on whole paths, or on truncated returns of a discounted table."""
        if task.is_discounted_table:
            return super().start(task, sim, threshold, rng)
        if task.horizon is None and task.discount < 1.0:
            raise InputError("the task has observed rewards and a discount, and MonteCarlo() needs an end", REMEDY)
        if self.kind != "betting" or self.horizon is not None:
            words, value = ("kind", self.kind) if self.kind != "betting" else ("horizon", self.horizon)
            raise InputError(f"{words} is {value!r}, and whole paths are bet on; leave it out: MonteCarlo()")
        payoff = rollouts_in_time(task, threshold, Supply(task, sim, rng), TRUNCATED)
        warn_of_sides(payoff, 0.0)
        return TDRun(self, payoff, fit=Fit(payoff, whole_paths=True))

    def replay(self, task: Task, threshold: float, source: Recorded) -> MonteCarloRun:
        """Recorded transitions are no rollouts."""
        raise InputError("MonteCarlo needs rollouts, which data do not hold; pass method=PTST() or TDBetting()")

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> MonteCarloRun:
        assert isinstance(source, Source)
        return MonteCarloRun(self, task, threshold, source)

    def describe(self) -> str:
        """The method in a few words."""
        return f"Monte Carlo, {self.kind}" + (f", horizon {self.horizon}" if self.horizon else "")


class MonteCarloRun(Run):
    """Rollouts in lock-step, in batches that are never divided. Rewards are centred: values are compared with 0."""

    source: Source
    tally: WitnessedCounts

    def __init__(self, method: MonteCarlo, task: Task, threshold: float, source: Source) -> None:
        self.method, self.task, self.threshold, self.source = method, task, threshold, source
        self.tally = WitnessedCounts(task, threshold, MixtureBoundary())  # it counts
        centred = self.tally.task
        self.actions, self.initial = cumulative(task.policy), cumulative(task.initial[None, :])[0]
        self.rest = [extreme_state_values(centred, sense) for sense in ("min", "max")]  # [S] of what may follow
        self.settled = self.rest[1] - self.rest[0] <= 2.0 * self.tally.rounding  # [S] nothing unknown follows
        self.low, self.high = _least_return(centred, 1.0), -_least_return(centred, -1.0)
        self.span = max(self.high - self.low, 1e-300)
        self.lower, self.upper = np.zeros(0), np.zeros(0)  # of each rollout: the return, with the rest at its ends
        self.bets = TwoSided(TRUNCATED, TRUNCATED)
        self.peaks = [0.0, 0.0]

    def work_in_parallel(self, workers: int) -> None:
        """No-op: a call asks for many pairs as it is."""

    def begin(self, required: float) -> None:
        """What was seen before a pause may suffice."""
        self.exhausted = False
        self.update_answer(required)

    def step(self, required: float, most: int) -> None:
        """One batch of rollouts; where that could take more samples than are left, none."""
        count, H, source = max(BATCH, int(BATCH_GROWTH * len(self.lower))), self._horizon(), self.source
        self.exhausted = count * H > most
        if self.exhausted:
            return
        with source.all_or_nothing():
            sizes = [1] * count if source.travels else [count]  # one that travels follows one rollout at a time
            parts = [self._roll(source, size, H) for size in sizes]
            ends, k, x = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        self.tally.observe(k, x, np.inf)
        self.samples += len(k)
        self._add(*ends)
        self.update_answer(required)

    def _add(self, lower: FloatArray, upper: FloatArray) -> None:
        """More rollouts, and what they make of the largest capital that each side has had."""
        self.lower, self.upper = np.append(self.lower, lower), np.append(self.upper, upper)
        for side, (sign, low, worst) in enumerate(((1.0, self.low, lower), (-1.0, -self.high, -upper))):
            if self.method.kind == "betting":
                margin, fractions = ROUNDING * self.span, TRUNCATED.fractions(None, 0.0, 0.0)
                bet = Bet(max(-low, 0.0) + margin, fractions, fractions)
                found, _ = self.bets[sign].settle(bet, np.maximum(worst, low) - margin)
            else:
                found = self._against(sign).log_capital(0.0)
            self.peaks[side] = max(self.peaks[side], found)

    def _against(self, sign: float) -> Refuter:
        """The rollouts of one side, with the rest at its worst, to be settled against any value."""
        if self.method.kind == "betting":
            return self.bets[sign].settled(as_staked=True, along=True)
        low, worst = (self.low, self.lower) if sign > 0 else (-self.high, -self.upper)
        return PlugIn(self.method.kind, worst - ROUNDING * self.span, low, self.span)

    def judge_counts(self, counts: Counts, required: float, design: str) -> None:
        """Counts have no rollouts."""
        raise InputError("MonteCarlo needs rollouts, which counts do not hold; pass method=PTST()")

    def why_undecided(self) -> str:
        """Batches are not divided."""
        return "the samples that are left do not suffice for a batch of rollouts" if self.exhausted else ""

    def _horizon(self) -> int:
        if self.method.horizon is not None or self.task.discount == 0:
            return self.method.horizon or 1
        share = REMAINDER / np.sqrt(1.0 + len(self.lower) / BATCH)
        return max(1, int(np.ceil(np.log(share) / np.log(self.task.discount))))

    def _roll(self, source: Source, count: int, H: int) -> tuple[FloatArray, IntArray, IntArray]:
        """The lower and upper ends of ``count`` returns, and the transitions that were drawn (rows, successors)."""
        task, rng, rows, gain = self.task, source.rng, self.tally.rows, self.tally.rows.gain
        S, A = task.policy.shape
        keys = rows.of_entry() * S + rows.successor if len(gain) else np.zeros(0)
        state = np.searchsorted(self.initial, rng.random(count), side="right")
        total, weight, drawn = np.zeros(count), 1.0, [np.zeros((2, 0), dtype=np.int64)]
        for _ in range(H):
            if self.settled[state].all():
                break
            action = (self.actions[state] <= rng.random(count)[:, None]).sum(axis=1)
            k = task.layout.row_of_pair[state * A + action]
            x = self.tally.only_successor[k]
            unknown = x < 0
            if unknown.any():
                x[unknown] = checked_draw(source.draw, state[unknown], action[unknown], rng, S)
                drawn.append(np.stack([k[unknown], x[unknown]]))
            total += weight * rows.reward[k]
            if len(gain):  # an excluded successor is refused when it is counted
                total += weight * gain[np.minimum(np.searchsorted(keys, k * S + x), len(gain) - 1)]
            weight *= task.discount
            state = x
        k, x = np.concatenate(drawn, axis=1)
        return np.array([total + weight * rest[state] for rest in self.rest]), k, x

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the largest capital that each side has had at the end of a rollout."""
        return self.peaks[0], self.peaks[1]

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        """The values against which no side's capital has ever reached this level."""
        return ends(self._against(1.0), self._against(-1.0), value_range(self.task), self.threshold, level)

    @property
    def estimate(self) -> float:
        """The mean return, what may follow in the middle of its range; without any, the middle of all values."""
        if not len(self.lower):
            return 0.5 * sum(value_range(self.task))
        return float((0.5 * (self.lower + self.upper)).mean()) + self.threshold

    def state(self) -> Record:
        """All that is needed to go on later, as arrays."""
        kept = {"samples": np.array([self.samples]), "lower": self.lower, "upper": self.upper}
        return {**kept, **record(tally=self.tally.state(), source=self.source.state())}

    def _restore(self, state: Record) -> None:
        self.samples = int(state["samples"][0])
        for part, name in ((self.tally, "tally"), (self.source, "source")):
            part.restore(part_of(state, name))
        lower, upper = (np.array(state[name], dtype=np.float64) for name in ("lower", "upper"))
        room, sound = 1e-9 * (self.high - self.low), lower.ndim == 1 and lower.shape == upper.shape
        inside = sound and (self.low <= lower + room) & (lower <= upper + room)
        if self.samples != self.tally.n.sum() or not np.all(inside & (upper <= self.high + room)):
            raise ValueError("impossible returns")
        self.lower, self.upper, self.peaks = np.zeros(0), np.zeros(0), [0.0, 0.0]
        self.bets = TwoSided(TRUNCATED, TRUNCATED)
        self._add(lower, upper)


def _least_return(task: Task, sign: float) -> float:
    """At most the least of sign * the discounted return, along any path from rho that policy and support allow."""
    gamma = task.discount
    if task.any_successor:
        rows = task.layout.pairs
        earned = sign * rows.reward
        first = earned[task.initial[rows.state] > 0].min()
        return float(first + gamma / (1.0 - gamma) * earned.min())
    rows = task.layout.rows
    top = float((sign * rows.rewards()).max())  # rewards below 0, so that no path ends early
    nothing = np.zeros(task.n_states)
    worst = rollouts.worst_paths(rows, rows.reward - sign * top, nothing, nothing, sign, gamma)
    return float(worst[task.initial > 0].min()) + top / (1.0 - gamma)
