r"""The usual interval for one look at a finished log: approximate, never certified, for comparison.

The value of the empirical kernel, give or take z standard deviations by the delta method,

    sd^2 = sum over pairs of (d(s) pi(a|s))^2 Var(r + gamma V(x)) / n(s,a),

d the occupancies of the empirical kernel. Where a pair was drawn a few times its row says too little about its own
variance (none at all, if all draws agree): variances are those of rows with half a draw more of each successor, and at
most two draws more in all.

It holds about as often as it says for logs of a thousand rows and more whose pairs were all drawn dozens of times, at
one look that was fixed beforehand (`benchmarks/one_look.py`). Where pairs that matter were drawn a handful of times it
is rough, and looking again and again until it says what one likes is not covered at all: that is what `value_interval`
with ``looks="any"`` is for.

Of recorded episodes: their mean return, give or take t standard errors; with propensities, the regression on weights of
`policytest.payoffs.weighted_returns.regressed`.
"""

from __future__ import annotations

import math

import numpy as np
import scipy

from policytest._base.compiled import search
from policytest.data.counts import Counts
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.kl.boundaries import MixtureBoundary
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.task import Task
from policytest.mdp.values import value_range
from policytest.payoffs.weighted_returns import FEWEST, estimates_of, regressed
from policytest.results.estimate import Interval

SMOOTHING, MOST_SMOOTHING = 0.5, 2.0  # draws more: of each successor, and of a row


def one_look(task: Task, counts: Counts, delta: float) -> Interval:
    """The value of the empirical kernel, give or take z standard deviations; all possible values without draws."""
    low, high = value_range(task)
    tally = WitnessedCounts(task, 0.0, MixtureBoundary())
    tally.load(counts)
    rows, q, gamma = tally.rows, tally.estimate(), task.discount
    V, d, _ = search.values_and_occupancy(rows, q, gamma, task.initial)
    visits = d[rows.state] * rows.prob
    unknown = np.diff(rows.start) > 1
    if (visits[unknown & (tally.n == 0)] > 0).any():
        return Interval(low, high, certified=False, looks="one", approximate=True)
    more = np.minimum(SMOOTHING, MOST_SMOOTHING / np.diff(rows.start))
    smooth = rows.to_one(tally.N + rows.per_entry(more))
    worth = gamma * V[rows.successor] + (rows.gain if len(rows.gain) else 0.0)
    spread = rows.sums(smooth * worth**2) - rows.sums(smooth * worth) ** 2
    drawn = unknown & (visits > 0)
    sd = math.sqrt(max(float((visits[drawn] ** 2 * spread[drawn] / tally.n[drawn]).sum()), 0.0))
    half, value = -float(scipy.special.ndtri(delta / 2.0)) * sd, tally.value()[0]
    return Interval(max(value - half, low), min(value + half, high), certified=False, looks="one", approximate=True)


def one_look_at_episodes(log: LoggedEpisodes, delta: float) -> Interval:
    """The mean of the episodes, by regression on their weights where there are any; all values with fewer than 3."""
    low, high = log.bounds
    n, Z = log.n_episodes, estimates_of(log)
    if n < FEWEST:
        return Interval(low, high, certified=False, looks="one", approximate=True)
    value, sd, free = regressed(Z, log.outcomes.weights)
    half = -float(scipy.special.stdtrit(free, delta / 2.0)) * sd
    return Interval(max(value - half, low), min(value + half, high), certified=False, looks="one", approximate=True)
