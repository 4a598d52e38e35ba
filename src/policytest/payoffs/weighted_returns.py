r"""Recorded episodes at work: importance weights, doubly robust outcomes, and bets on a whole log at once.

Without more than propensities the outcomes are those of `policytest.data.logged_episodes`: weights times increments
that are not negative, with no bound on the weights.

*Doubly robust.* With estimates q(s,a) of what follows an action and v(s) = sum over a of pi(a|s) q(s,a),

    Z = low + sum over t of  k_t (w_{t-1} v_t - w_t q_t) + w_t gamma^t (r_t - lo),

where v_t, q_t >= 0 are counted from the least that an episode can still earn. *Its mean is V* for every k_t that is
fixed before action t is drawn, since E[w_t q_t | before t] = w_{t-1} v_t. *Its bound:* q is subtracted with the weight
of the action that is drawn, so it needs a bound of the weights: let M_t >= 1/mu(a|s_t) for all a
(``smallest_propensity``). All q >= 0, so that pi(a|s_t) q(s_t,a) <= v_t and w_t q_t <= M_t w_{t-1} v_t: step t can cost
at most k_t w_{t-1} v_t (M_t - 1). A ``slack`` A_0 is granted, A_t is what is left of it and of what was won since, and

    k_t = min(1, A_t / (w_{t-1} v_t (M_t - 1)))      so that  A_{t+1} >= 0  and  Z >= low - A_0, whatever is drawn.

There is no doubly robust version without a bound of the weights: M = infinity gives k_t = 0. With A_0 = 0 nothing is
subtracted at the first step, and later steps spend what was won before. A larger slack
reduces the variance further, and makes the largest possible bet smaller. Which slack serves best, or none, is chosen
by the expected growth of the capital on the episodes so far; the choice, and with it the bound, holds for the next
block of episodes. Without q and v, but with ``smallest_propensity``, one number a step serves as both: the
mean estimate so far, in proportion to the steps that are left.

*One number.* The estimates Z_i of the episodes are regressed on their weights w_i, whose mean is known to be 1, and the
regression is read off at w = 1,

    V = a + b (1 - mean w),      sd^2 = sum over episodes of (c_i e_i/(1 - h_i))^2,

with the weights c_i of that estimate, residuals e_i and leverages h_i (the jackknife). The mean of the Z_i would move
with the declared range of returns, by half its width times 1 - mean w. The usual interval for one look
(`policytest.questions.one_look`) is this number give or take t standard errors. It holds about as
often as it says with some hundred episodes of moderate weights; episodes of large weights that were not seen are not in
it.
"""

from __future__ import annotations

import math

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled.weights import CriticRows, doubly_robust
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.eprocess.capital import SIDES, Bet, EProcess
from policytest.eprocess.strategies import (
    ENDS_OF_LOGS,
    growth_on,
    interval_gap,
    most_promising,
)
from policytest.payoffs.outcomes import Outcomes

WRONG_WEIGHTS = 1e-4  # the probability with which right propensities are called wrong, at most
FIRST_CHOICE = 16  # episodes before slack is considered
CHOOSE_AGAIN, RECENT = 1.5, 2**13  # when the episodes have grown by this factor, from at least the last of them
FEWEST, MOST_LEVERAGE = 3, 0.99  # episodes of a regression; the leverage of one of them that is believed
SLACKS = 5  # how many, each four times the one before


class Side:
    """The outcomes of one side, plain or doubly robust with some slack, and how each of them has done so far."""

    def __init__(self, log: LoggedEpisodes, sign: float) -> None:
        self.log, self.sign, self.plain = log, sign, log.outcomes.above if sign > 0 else log.outcomes.below
        self.slacks = [0.0, *_slacks(log)]
        end = log.bounds[0 if sign > 0 else 1]
        base = log.reward_scale.low if sign > 0 else log.reward_scale.high
        self.bounds = [end, *(base - sign * slack for slack in self.slacks[1:])]
        self.chosen, self.count, self.next_choice = 0, 0, FIRST_CHOICE
        self.centre = 0.5 * (log.scale.low + log.scale.high)  # about where the value is
        self.recent: list[list[FloatArray]] = []  # of the last blocks, the outcomes of each kind

    @property
    def bound(self) -> float:
        """That of the outcomes that are chosen for now."""
        return self.bounds[self.chosen]

    @property
    def rooms(self) -> tuple[float, float]:
        """How far the bound that was chosen, and the plain one, are from about where the value is."""
        plain = max(self.sign * (self.centre - self.bounds[0]), 1e-9 * (1.0 + abs(self.centre)))
        return plain + self.sign * (self.bounds[0] - self.bound), plain

    def take(self, first: int, last: int, critics: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        """The outcomes of these episodes, of the kind that was chosen; all kinds are remembered for the next choice."""
        found = [self.plain[first:last]]
        if critics is not None:
            rows = _critic_rows(self.log, first, last, critics)
            found += [doubly_robust(rows, self.sign, slack) for slack in self.slacks[1:]]
            self.recent.append(found)
        self.count += last - first
        return found[self.chosen]

    def choose(self, threshold: float | None) -> None:
        """The kind of the next block: the one whose capital would have grown fastest on the last blocks.

        By the mean of log(1 + f (Z - R)/(R - bound)) at the best of some fractions f, with the same mean of Z for all
        kinds. Without a threshold R is where the end of an interval will be. At the end of the range the plain outcomes
        need no bet.
        """
        if self.count < self.next_choice or len(self.slacks) < 2 or threshold == self.bounds[0]:
            return
        self.next_choice = math.ceil(CHOOSE_AGAIN * self.count)
        while len(self.recent) > 1 and sum(len(block[0]) for block in self.recent[1:]) >= RECENT:
            del self.recent[0]
        kinds = [np.concatenate(blocks)[-RECENT:] for blocks in zip(*self.recent, strict=True)]
        spread = [float(Z.std()) for Z in kinds]
        centre, end = float(kinds[int(np.argmin(spread))].mean()), self.bounds[0]
        self.centre = max(centre, end) if self.sign > 0 else min(centre, end)
        noise = min(spread) / math.sqrt(self.count)
        if threshold is None:
            lead = min(interval_gap(min(spread) ** 2, self.count - 1), 0.9 * abs(self.centre - end))
            threshold = self.centre - self.sign * lead
        else:
            lead = max(self.sign * (self.centre - threshold), 0.5 * noise)
        rooms = [self.sign * (threshold - bound) for bound in self.bounds]
        growth = [
            growth_on((self.sign * (Z - Z.mean()) + lead) / room) if room > 0 else 0.0
            for Z, room in zip(kinds, rooms, strict=True)
        ]
        self.chosen = most_promising(growth)


def _slacks(log: LoggedEpisodes) -> list[float]:
    """How much may be spent on subtracting q: up to what all of it can cost at the first step."""
    if log.smallest_propensity is None or not log.weighted:
        return []
    low, high = log.reward_scale.low, log.reward_scale.high
    largest = float((1.0 / log.smallest_propensity).max()) - 1.0
    if not (math.isfinite(low) and math.isfinite(high)) or largest <= 0 or high <= low:
        return []
    return [(high - low) * largest * 4.0**-k for k in range(SLACKS)] + ([] if log.horizon == 1 else [0.0])


def _critic_rows(log: LoggedEpisodes, first: int, last: int, critics: tuple[FloatArray, FloatArray]) -> CriticRows:
    """The rows of these episodes."""
    start = log.start[first : last + 1]
    rows = slice(int(start[0]), int(start[-1]))
    about = log.reward[rows], log.ratio[rows], *critics, log.largest_inverse[rows]
    return CriticRows(start - start[0], *about, log.reward_scale)


class RecordedEpisodes:
    """The episodes of a log in their order, as a supply; plain outcomes, unless `prepare` is called before a block."""

    drawing = False
    extra = 0

    def __init__(self, log: LoggedEpisodes) -> None:
        self.log, self.taken = log, 0
        self.sides = tuple(Side(log, sign) for sign in SIDES)
        self.steps, self.plain = log.steps, log.outcomes.estimates
        self.estimated = 0.0  # the sum of the estimates so far

    def close(self) -> None:
        """No-op: nothing is under way."""

    @property
    def exhausted(self) -> bool:
        """Whether all episodes were taken."""
        return self.taken >= self.log.n_episodes

    def prepare(self, threshold: float | None) -> None:
        """Choose the kind of outcomes of the next block, for a threshold, or for the ends of an interval."""
        for side in self.sides:
            side.choose(threshold)

    def take(self, count: int) -> Outcomes:
        """The next episodes, at most this many."""
        first, last = self.taken, min(self.taken + count, self.log.n_episodes)
        critics = self._critics(first, last)
        above, below = (side.take(first, last, critics) for side in self.sides)
        returns = self._estimates(first, last, critics)
        self.taken, self.estimated = last, self.estimated + float(returns.sum())
        return Outcomes(above, below, returns, self.steps[first:last])

    def _critics(self, first: int, last: int) -> tuple[FloatArray, FloatArray] | None:
        """q and v of the rows of these episodes; None where nothing is subtracted."""
        log = self.log
        if len(self.sides[0].slacks) < 2:
            return None
        rows = slice(int(log.start[first]), int(log.start[last]))
        if log.q is not None:
            return log.q[rows], log.v[rows]
        low, high = (end[rows] for end in self.still_possible)
        least, most = log.reward_scale.low, log.reward_scale.high
        mean = (0.5 * (least + most) + self.estimated) / (1 + self.taken)
        share = min(max((mean - least) / (most - least), 0.0), 1.0)
        both = low + share * (high - low)
        return both, both

    @property
    def still_possible(self) -> tuple[FloatArray, FloatArray]:
        """What an episode can earn from each row on."""
        if not hasattr(self, "_still_possible"):
            self._still_possible = self.log.still_possible()
        return self._still_possible

    def _estimates(self, first: int, last: int, critics: tuple[FloatArray, FloatArray] | None) -> FloatArray:
        """Unbiased estimates of V, doubly robust where that is possible, without any bound."""
        if critics is None:
            return self.plain[first:last]
        return doubly_robust(_critic_rows(self.log, first, last, critics), 1.0, np.inf)


def flaws_of(log: LoggedEpisodes) -> tuple[str, ...]:
    """Why no guarantee holds, in words: the weights of episodes, whose mean is 1, have a larger one.

    By bets 1 + f (w - 1) on the weights, which have no bound: if the propensities are right, their average ever reaches
    1/WRONG_WEIGHTS with probability at most WRONG_WEIGHTS. (A mean below 1 cannot be told from rare large weights.)
    """
    if not log.weighted:
        return ()
    w = log.outcomes.weights
    shares = np.exp(ENDS_OF_LOGS.log_weights)
    evidence, _ = EProcess(shares, shares).settle(Bet(1.0, ENDS_OF_LOGS.steady, ENDS_OF_LOGS.steady), w - 1.0)
    if evidence < -math.log(WRONG_WEIGHTS):
        return ()
    return (f"the weights target/propensity of episodes average {float(w.mean()):.3g}, not 1, so that some are wrong",)


def estimates_of(log: LoggedEpisodes) -> FloatArray:
    """[n] an unbiased estimate of V by each episode: doubly robust with q and v, weighted, or the return."""
    if log.q is None:
        return log.outcomes.estimates
    return doubly_robust(_critic_rows(log, 0, log.n_episodes, (log.q, log.v)), 1.0, np.inf)


def regressed(Z: FloatArray, w: FloatArray) -> tuple[float, float, int]:
    """V by the estimates of at least `FEWEST` episodes and their weights, its standard deviation, degrees of freedom.

    The mean of weights is known to be 1, so the estimates are regressed on them, and read off there; see above.
    """
    n, off = len(Z), w - w.mean()
    spread = float(off @ off)
    if spread <= 1e-12 * n:
        return float(Z.mean()), float(Z.std(ddof=1)) / math.sqrt(n), n - 1
    slope, missing = float(off @ Z) / spread, 1.0 - float(w.mean())
    residuals = Z - Z.mean() - slope * off
    shares, leverage = 1.0 / n + off * (missing / spread), 1.0 / n + off**2 / spread
    sd = float(np.linalg.norm(shares * residuals / (1.0 - np.minimum(leverage, MOST_LEVERAGE))))
    return float(Z.mean()) + slope * missing, sd, n - 2
