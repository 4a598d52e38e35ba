"""Several e-processes as one, each with its price: an average costs nothing, half of a vote and half of delta log 2.

*Average.* The mean of e-processes, with weights fixed beforehand, is one: what one set of coins has not found another
may have (`policytest.eprocess.interval.Average`).

*Weighted-median vote.* Where capitals cannot be averaged, since each was stopped by what it had not yet used: if each
ever reaches 2/delta with probability at most delta/2, the mean share of those that do is at most delta/2, and the share
is ever as large as 1/2 with probability at most delta (Markov).

*Union.* Two tests at delta/2 each: one of them errs with probability at most delta.
"""

from __future__ import annotations

import math

import numpy as np

from policytest._base.arrays import FloatArray

HALF = math.log(2.0)
"""The price, in nats, of a vote by weighted median, and of each of two parts of a union."""


def weighted_median(values: FloatArray, weights: FloatArray) -> float:
    """The largest number that half of these reach, by weight."""
    order = np.argsort(-values, kind="stable")
    return float(values[order][np.searchsorted(np.cumsum(weights[order]), 0.5 - 1e-9)])


def union(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """The evidence of each side by the better of two tests, at delta/2 each."""
    return max(first[0], second[0]) - HALF, max(first[1], second[1]) - HALF


def intersection(first: tuple[float, float], second: tuple[float, float]) -> tuple[float, float]:
    """What two intervals, at delta/2 each, leave."""
    return max(first[0], second[0]), min(first[1], second[1])
