"""Compiled: the evidence of a standing witness, updated in constant time for each transition."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints
from policytest._base.compiled.small import compiled, entry, loss_of, place_of

# ---------------------------------------------------------------- the sequential test
# Evidence of a witness w, in nats: loss(w) - dimension term of the boundary, one number for each prior.

PAPER, MIXTURE = 0, 1  # kinds of boundary; the evidence of a mixture is a likelihood ratio
ALL_USED = 0  # how a block of observations ended
WITNESS_FAILED = 1
NOT_ALLOWED = 2
STIRLING = 16.0  # where the series takes over from lnG itself
HALF_LOG_2PI = 0.9189385332046727


@compiled
def _stirling_rest(z: float) -> float:
    """lnG(z) - [(z - 1/2) log z - z + log(2 pi)/2], for z >= 16 (error below 2e-14)."""
    inverse = 1.0 / (z * z)
    return (1.0 / 12.0 - inverse * (1.0 / 360.0 - inverse * (1.0 / 1260.0 - inverse / 1680.0))) / z


@compiled
def _surplus(count: float, a: float) -> float:
    """N log N - N - [lnG(N + a) - lnG(a)], by Stirling's series where the terms are large: no digits are lost."""
    if count <= 0.0:
        return 0.0
    z = count + a
    if z < STIRLING:
        return count * np.log(count) - count - math.lgamma(z) + math.lgamma(a)
    shared = -count * np.log1p(a / count) - _stirling_rest(z)
    if a >= STIRLING:
        return shared - (a - 0.5) * np.log1p(count / a) + _stirling_rest(a)
    return shared - (a - 0.5) * np.log(z) + a - HALF_LOG_2PI + math.lgamma(a)


@entry
def dimensions(start: Ints, N: Reals, n: Reals, kind: int, priors: Reals, width: Reals) -> Reals:
    """[J] the dimension term of the boundary for each prior."""
    out = np.zeros(len(priors))
    for k in range(len(n)):
        if kind == PAPER:
            if width[k] > 0.0:
                out[0] += width[k] * (1.0 + np.log1p(n[k] / width[k]))
            continue
        if n[k] <= 0.0:
            continue
        for j in range(len(out)):
            total = -_surplus(n[k], width[k] * priors[j])
            for e in range(start[k], start[k + 1]):
                total += _surplus(N[e], priors[j])
            out[j] += total
    return out


@compiled
def _mean_log(x: Reals) -> float:
    """log of the mean of exp(x_j), without overflow."""
    if len(x) == 1:
        return x[0]
    top = x[0]
    for j in range(1, len(x)):
        top = max(top, x[j])
    if np.isinf(top):
        return top
    total = 0.0
    for j in range(len(x)):
        total += np.exp(x[j] - top)
    return top + np.log(total / len(x))


@compiled
def _step(z: float) -> float:
    """z log(1 + 1/z), by its series where that is exact to rounding; 0 at 0."""
    if z <= 0.0:
        return 0.0
    if z < 200.0:
        return z * np.log1p(1.0 / z)
    u = 1.0 / z
    return 1.0 - u * (0.5 - u * (1.0 / 3.0 - u * (0.25 - u * (0.2 - u * (1.0 / 6.0 - u / 7.0)))))


@compiled
def _growth_of(kind: int, count: float, visits: float, prior: float, width: float, chance: float) -> float:
    """What one observation adds to the evidence of a witness that gives it this chance.

    Mixture: log of the predictive probability (N + a)/(n + m a) over the chance. Paper: the growth of N log N less
    that of n log n and of width log(1 + n/width), less the log of the chance.
    """
    if kind == MIXTURE:
        return np.log((count + prior) / ((visits + width * prior) * chance))
    likelihood = np.log((count + 1.0) / ((visits + 1.0) * chance)) + _step(count) - _step(visits)
    reach = width + visits
    return likelihood - (width / reach * _step(reach) if width > 0.0 else 0.0)


@entry
def observe(
    start: Ints,
    successor: npt.NDArray[np.int32],
    kind: int,
    priors: Reals,
    width: Reals,
    N: Reals,
    n: Reals,
    w: Reals,
    evidence: Reals,
    required: float,
    k: Ints,
    x: Ints,
) -> tuple[int, int]:
    """Record the transitions (row k[i], successor x[i]) until the evidence of the witness w reaches what is required.

    N, n and evidence [J] are updated in place, in constant time for each transition; rows -1 are of no consequence.
    Returns (how many were used, how it ended). The transition at which the witness fails is recorded.
    """
    for i in range(len(k)):
        if k[i] < 0:
            continue
        row = k[i]
        e = place_of(start, successor, row, x[i])
        if e < 0:
            return i, NOT_ALLOWED
        for j in range(len(priors)):
            evidence[j] += _growth_of(kind, N[e], n[row], priors[j], width[row], w[e])
        N[e] += 1.0
        n[row] += 1.0
        if required < np.inf and not _mean_log(evidence) < required:
            return i + 1, WITNESS_FAILED
    return len(k), ALL_USED


@entry
def safe_ahead(
    start: Ints,
    kind: int,
    priors: Reals,
    width: Reals,
    N: Reals,
    n: Reals,
    w: Reals,
    evidence: Reals,
    required: float,
    k: Ints,
) -> int:
    """How many of the planned visits k can be drawn at once: the witness cannot fail before the last of them.

    The evidence is convex in the counts that c visits add to a row, so its largest growth is at one successor
    repeated c times: max over x of what x contributes, less the price of the visits. Rows add up.
    """
    J = len(priors)
    visits = np.zeros(len(n))
    gain = np.zeros((J, len(N)))
    peak = np.zeros((J, len(n)))
    bound = evidence.copy()
    for i in range(len(k)):
        row = k[i]
        for j in range(J):
            best = -np.inf
            for e in range(start[row], start[row + 1]):
                gain[j, e] += _growth_of(kind, N[e] + visits[row], n[row] + visits[row], priors[j], width[row], w[e])
                best = max(best, gain[j, e])
            if best > peak[j, row]:
                bound[j] += best - peak[j, row]
                peak[j, row] = best
        visits[row] += 1.0
        if required < np.inf and not _mean_log(bound) < required:
            return i + 1
    return len(k)


@entry
def loss_at(start: Ints, N: Reals, n: Reals, w: Reals) -> float:
    """The loss of a witness: sum over rows of n KL(N/n, w)."""
    return loss_of(start, N, n, w)
