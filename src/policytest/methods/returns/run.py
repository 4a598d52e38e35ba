r"""Bets on episodes at work: no table, no Markov property, any supply of independent outcomes.

Each episode gives Z with E[Z | past] = V and Z >= low, so that for every f in (0, 1), chosen before it,

    1 + f (Z - R)/(R - low)  >=  1 - f  >  0     has mean at most 1 if V <= R.

The product over episodes is a test martingale against V <= R; its average over some fractions f, steady ones and one
that is fitted to the episodes so far, too. On the other side, Z' <= high and 1 + f (R - Z')/(high - R). By Ville's
inequality one of them ever reaches 1/delta with probability at most delta where it should not.

*At the end of the range* no bet is needed: if R = high, one Z' < R refutes V >= R with certainty, because all are at
most R and their mean is V. So does one Z > R = low refute V <= R.

The same episodes serve every other threshold (`policytest.methods.betting.bets.Refuter`): that gives intervals.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest.data.episodes import ROUNDING
from policytest.data.returns import Returns
from policytest.methods.betting.bets import Bets, Refuter, not_refuted, surely
from policytest.methods.betting.plan import LOG_WIDE, NO_POLICY, ON_RETURNS, BettingPlan, wide_fractions, with_reserve
from policytest.methods.interface import Outcome, beside
from policytest.methods.returns.outcomes import EpisodeSupply, Outcomes

REFIT = 1.05  # fractions are fitted again when the episodes have grown by this factor
PRIOR = 0.3  # of one episode: the mean square of what a full bet wins, before anything is seen
SIDES = (1.0, -1.0)


class Moments:
    """Of what a full bet on a side wins, x = sign (Z - R)/room: how often, the sum, and the sum of squares."""

    def __init__(self) -> None:
        self.count, self.sum, self.squares = 0, 0.0, 0.0

    def add(self, x: FloatArray) -> None:
        """More episodes, one after the other: how they are taken changes no result."""
        self.count += len(x)
        for gain in x.tolist():
            self.sum, self.squares = self.sum + gain, self.squares + gain * gain

    @property
    def mean(self) -> float:
        """The mean, shrunk towards 0."""
        return self.sum / (self.count + 1)

    @property
    def variance(self) -> float:
        """The variance, with the prior."""
        return max((PRIOR + self.squares) / (self.count + 1) - self.mean**2, 1e-12)


class ReturnsRun:
    """A test on episodes; a `policytest.methods.interface.Run`."""

    solves = 0

    def __init__(
        self,
        method: Any,
        task: Any,
        threshold: float,
        source: EpisodeSupply,
        indifference: float = 0.0,
        both_sides: bool = False,
    ) -> None:
        self.method, self.task, self.threshold, self.source = method, task, threshold, source
        self.indifference, self.both_sides = indifference, both_sides or indifference > 0
        self.answer: str | None = None
        self.samples = 0
        self.bets = Bets(with_reserve(ON_RETURNS.log_weights))
        self.moments = tuple(Moments() for _ in SIDES)
        self.certain = np.zeros(2, dtype=np.bool_)  # sides that one outcome has settled, at an end of the range
        self.plans: list[BettingPlan] = []
        self.refit_at = 0
        self.returns: list[float] = []
        self.steps: list[int] = []

    # ------------------------------------------------------------ going on

    @property
    def paid(self) -> int:
        """The transitions of all episodes, also of those that a vector of environments has under way."""
        return self.samples + int(getattr(self.source, "extra", 0))

    @property
    def exhausted(self) -> bool:
        """Whether a log has no more episodes."""
        return self.source.exhausted

    @property
    def episodes(self) -> int:
        """How many episodes were bet on."""
        return len(self.returns)

    def begin(self, required: float) -> None:
        """What was seen before a pause may suffice."""
        self.reconsider(required)

    def step(self, required: float, most: int) -> None:
        """The next episodes, up to the first at which the evidence suffices; a vector gets the others back."""
        self._fit()
        taken, done = self.source.take(most), 0
        while done < len(taken.returns) and self.answer is None:
            until = done + (1 if self.indifference else self.refit_at - self.episodes)
            done += self._settle(taken.part(done, until), surely(required))
            self.reconsider(required)
            if self.answer is None:
                self._fit()
        if done < len(taken.returns) and hasattr(self.source, "put_back"):
            self.source.put_back(len(taken.returns) - done)

    def end(self, required: float) -> None:
        """Nothing was put off."""

    def reconsider(self, required: float) -> None:
        """Answer if the evidence reaches what is required."""
        above, below = self.evidence()
        level = surely(required)
        self.answer = None if max(above, below) < level else "above" if above >= below else "below"
        if self.answer is None and self.indifference and min(self.ends_refuted()) >= level:
            self.answer = "within"

    def weigh(self, counts: Any, required: float, design: str) -> None:
        """Counts have no episodes."""
        raise InputError("counts have no episodes; pass LoggedEpisodes(episode, reward)")

    def used(self) -> int:
        """The transitions of the episodes that the answer rests on."""
        return self.samples

    def _settle(self, taken: Outcomes, level: float) -> int:
        """Settle bets with these episodes, up to the first at which the evidence suffices; with how many."""
        L = np.array([[plan.L] for plan in self.plans])
        won = np.array([taken.above - self.threshold, self.threshold - taken.below])
        bet = (L > 0) & ~np.isnan(won)
        ratios = np.where(bet, won, 0.0) / np.where(L > 0, L, 1.0)
        path = np.log1p(ratios[:, :, None] * np.array([plan.fractions for plan in self.plans])[:, None])
        path[:, 0] += self.bets.capital
        np.cumsum(path, axis=1, out=path)
        evidence = np.logaddexp.reduce(path + self.bets.log_weights, axis=2).max(axis=0)
        settled = (L <= 0) & (won > ROUNDING * (1.0 + abs(self.threshold))) if np.count_nonzero(L <= 0) else None
        if settled is not None:
            evidence[np.logical_or.accumulate(settled.any(axis=0))] = math.inf
        reached = int(np.argmax(evidence >= level)) + 1
        used = reached if evidence[reached - 1] >= level else len(evidence)
        self.bets.capital = path[:, used - 1].copy()
        if settled is not None:
            self.certain = self.certain | settled[:, :used].any(axis=1)
        for side, plan in enumerate(self.plans):
            if len(chosen := np.flatnonzero(bet[side, :used])):
                self.bets.keep(plan, won[side, chosen])
                self.moments[side].add(ratios[side, chosen])
        self.returns += taken.returns[:used].tolist()
        self.steps += taken.steps[:used].tolist()
        self.samples += int(taken.steps[:used].sum())
        return used

    def _fit(self) -> None:
        """Choose the fractions of the next episodes, if it is time."""
        if self.episodes < self.refit_at:
            return
        self.refit_at = max(self.episodes + 1, int(REFIT * self.episodes))
        self.plans = []
        for sign, bound, seen in zip(SIDES, (self.source.low, self.source.high), self.moments, strict=True):
            fractions = ON_RETURNS.fractions(seen.variance, seen.mean, seen.count)
            wide = wide_fractions(seen.variance, seen.count)
            room = sign * (self.threshold - bound)
            self.plans.append(BettingPlan(NO_POLICY, NO_POLICY, np.zeros(0), room, sign, 0.0, fractions, wide))
        self.source.look(self.threshold, self.estimate - self.threshold, self.both_sides)

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side; infinite where the answer is certain."""
        first, second = np.logaddexp.reduce(self.bets.capital + self.bets.log_weights, axis=1)
        if np.count_nonzero(self.certain):
            first, second = np.where(self.certain, math.inf, [first, second])
        return float(first), float(second)

    def proof(self) -> tuple[float, float]:
        """All of the evidence: capital is a proof."""
        return self.evidence()

    def interval(self, level: float) -> tuple[float, float]:
        """The values that no side's capital refutes at delta/2 each."""
        return self._not_refuted(level + math.log(2.0), as_staked=False)

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """By the bets of the answer, each end at 1 - delta; see `BettingRun.verdict_interval`."""
        ends = self._not_refuted(required, as_staked=self.answer != "within")
        return beside(ends, self.threshold, self.answer, self.indifference)

    def _not_refuted(self, level: float, as_staked: bool) -> tuple[float, float]:
        above, below = (self.refuter(sign, as_staked) for sign in SIDES)
        return not_refuted(above, below, (self.source.low, self.source.high), self.threshold, level)

    def refuter(self, sign: float, as_staked: bool = False) -> Refuter:
        """The bets of one side, to be settled against any threshold."""
        stretches = [stretch for stretch in self.bets.stretches if stretch.sign == sign]
        return Refuter(stretches, self.bets.log_weights if as_staked else None)

    def ends_refuted(self) -> tuple[float, float]:
        """The evidence against V <= R - indifference, and against V >= R + indifference; infinite beyond the range."""
        beyond = (
            self.threshold - self.indifference < self.source.low,
            self.threshold + self.indifference > self.source.high,
        )
        first, second = (
            math.inf if known else self.refuter(sign).log_capital(-self.indifference)
            for sign, known in zip(SIDES, beyond, strict=True)
        )
        return first, second

    def outcome(self, required: float) -> Outcome:
        """The capital is the proof."""
        return Outcome(self.evidence(), None, math.nan)

    @property
    def estimate(self) -> float:
        """The mean return."""
        return float(np.mean(self.returns)) if self.returns else math.nan

    def counts(self) -> Returns:
        """What was observed."""
        return Returns(np.array(self.returns), np.array(self.steps, dtype=np.int64))

    def why_undecided(self) -> str:
        """There is nothing more to say."""
        return ""

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """The capital, the episodes, and the source."""
        return {
            **self.bets.state(),
            "returns": np.array(self.returns, dtype=np.float64),
            "steps": np.array(self.steps, dtype=np.int64),
            "moments": np.array([[seen.count, seen.sum, seen.squares] for seen in self.moments]),
            "plans": self._kept_plans(),
            "refit_at": np.array([self.refit_at], dtype=np.int64),
            "certain": self.certain.copy(),
            **self.source.state(),
        }

    def _kept_plans(self) -> FloatArray:
        width = 1 + len(self.bets.log_weights) + len(LOG_WIDE)
        return np.array([[plan.L, *plan.fractions, *plan.wide] for plan in self.plans]).reshape(-1, width)

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; one that is not of such a run is refused."""
        try:
            self._restore(state)
        except InputError:
            raise
        except Exception as error:
            raise InputError("cannot resume: the checkpoint is inconsistent; start a new run") from error
        if hasattr(self.source, "repeat"):
            self.source.repeat()

    def _restore(self, state: dict[str, Any]) -> None:
        self.bets.restore(state)
        self.returns, self.steps = state["returns"].tolist(), state["steps"].tolist()
        if len(self.returns) != len(self.steps) or min(self.steps, default=0) < 0:
            raise ValueError("the episodes have no lengths")
        self.samples = sum(self.steps)
        for seen, (count, total, squares) in zip(self.moments, state["moments"], strict=True):
            seen.count, seen.sum, seen.squares = int(count), float(total), float(squares)
        self.refit_at, self.certain = int(state["refit_at"][0]), np.array(state["certain"], dtype=np.bool_)
        if self.certain.shape != (2,):
            raise ValueError("there are two sides")
        self.plans, F = [], len(self.bets.log_weights)
        for sign, (L, *rest) in zip(SIDES, state["plans"], strict=False):
            fractions, wide = np.array(rest[:F]), np.array(rest[F:])
            if not self.bets.are_fractions(fractions, wide):
                raise ValueError("the bets are not fractions")
            self.plans.append(BettingPlan(NO_POLICY, NO_POLICY, np.zeros(0), float(L), sign, 0.0, fractions, wide))
        self.source.restore(state)
