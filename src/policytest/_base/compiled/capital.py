"""Compiled: bets settled with many outcomes, at the tested threshold and at any other."""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import TINY, entry, evidence_of, settle, stake

VERY_MUCH = 1e6  # fifteen outcomes that win less, and one that wins the most, do not overflow


@entry
def settle_path(capital: Reals, fractions: Reals, won: Reals, room: float, level: float, stops: bool) -> Any:
    """Settle outcomes in turn: (how many were settled, the largest evidence after any of them, where it crosses).

    ``won/room`` is what a full bet wins. The crossing is the first outcome at which the evidence reaches ``level``, or
    their number. ``stops``: no outcome after it is settled.
    """
    n = len(won)
    largest, crossed = -np.inf, n
    for i in range(n):
        evidence = settle(capital, fractions, won[i] / room)
        largest = max(largest, evidence)
        if crossed == n and evidence >= level:
            crossed = i
            if stops:
                return i + 1, largest, crossed
    return n, largest, crossed


@entry
def settle_against(
    capital: Reals, fractions: Reals, won: Reals, room: Reals, lengths: Ints, R: float, along: bool
) -> Any:
    """The evidence of segments of outcomes against another threshold, R above the tested one.

    Row i of ``fractions`` is for the next ``lengths[i]`` outcomes, whose full bets lose at most ``room[i] + R``.
    ``along``: the largest evidence at the end of any outcome, and at least that before the first.
    """
    largest, j = -np.inf, 0
    for i in range(len(lengths)):
        least = max(room[i] + R, TINY)
        for _ in range(lengths[i]):
            ratio = (won[j] - R) / least
            if along or j % 16 == 0 or ratio > VERY_MUCH:  # no capital over- or underflows in between
                largest = max(largest, evidence_of(capital))
            stake(capital, fractions[i], ratio)
            j += 1
    last = evidence_of(capital)
    return max(largest, last) if along else last


@entry
def best_fractions(x: Reals, gaps: Reals, largest: float) -> Any:
    """[G] for each gap, the f in [0, largest] with the largest mean of log(1 + f (gap + x)); x has the mean 0.

    By Newton's method on the derivative, which falls in f, between two ends that close in on it. What would lose more
    than all loses all.
    """
    found = np.empty(len(gaps))
    for g in range(len(gaps)):
        low, high, f = 0.0, largest, largest
        for _ in range(40):
            slope, bend = 0.0, 0.0
            for i in range(len(x)):
                won = max(gaps[g] + x[i], -1.0)
                part = won / (1.0 + f * won)
                slope += part
                bend -= part * part
            if slope >= 0.0:
                low = f
            else:
                high = f
            if low == high or bend == 0.0:  # at the largest one
                break
            step = f - slope / bend
            if not low < step < high:
                step = 0.5 * (low + high)
            if abs(step - f) <= 1e-3 * f:
                break
            f = step
        found[g] = f
    return found
