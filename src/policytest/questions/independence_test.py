r"""Do next states depend on a label, given the state and action? Evidence against independence, in nats.

The rows of a pair k = (s,a) have next states x, independent draws from one law p_k, and labels u, each known before its
x is drawn; n_uj rows have label u and next state j. The claim to be tested is that labels do not matter.

The evidence is an e-value. For laws p, bet that the rows of pair k with label u have a law of their own, drawn from a
Dirichlet distribution around p_k with concentration c. Then

    log E_k(p,c) = sum_u log G(c)/G(c + n_u) + sum_uj [log G(c p_j + n_uj)/G(c p_j) - n_uj log p_j]

(G the gamma function) is the log of a martingale under p, since the bet on each row is placed before its x is seen. So
the product over the pairs is one, and so are averages over c and over the share w of pairs bet on,
prod_k (1 - w + w E_k). As p is not known, the smallest over all p counts:

    E = mean_{c,w} prod_k (1 - w + w min_p E_k(p,c)),

and 1/E is a p-value however the actions were chosen and however few rows a cell has. (Shuffling the next states within
a pair would not do: the label of a later row depends on the earlier next states, most plainly where a state follows
itself.)

As a function of p, log E_k is a sum of convex decreasing functions of each p_j; with
w_j = sum_u sum_{i < n_uj} i/(c p_j + i), minus p_j times their slope, convexity gives at any p

    min log E_k >= log E_k(p) - (max_j w_j/p_j - sum_j w_j),

which is the value used: it is never too large, and equal to the minimum where p_j is proportional to w_j.

Everything is a function of grouped counts; the work is bounded by the number of distinct cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np
from scipy.special import chdtrc, digamma, gammaln, logsumexp

from policytest._base.arrays import FloatArray, IntArray

CONCENTRATIONS = 8.0 ** np.arange(6)  # c, fixed beforehand: an average over them costs log 6 nats at most
ITERATIONS = 30
GAP = 0.02  # nats, over all pairs, up to which the smallest E_k is found
ROUNDING = 1e-15  # of the gamma functions, which is taken off
LARGEST_BIAS = 0.2  # of G, in standard deviations, up to which the approximation is about right
LARGE_CELL = 5.0  # expected rows from which the chi-square approximation is about right


class Cells:
    """Counts of the next states x with the labels u in each pair, as a list of the cells that occur."""

    def __init__(self, pair: IntArray, label: IntArray, x: IntArray, n: IntArray) -> None:
        (pair, x, label), self.n = grouped((pair, x, label), n)
        self.pair, self.x, self.label = pair, x, label
        new_pair = np.diff(pair, prepend=-1) != 0
        new_column = new_pair | (np.diff(x, prepend=-1) != 0)
        self.start, self.column_start = np.flatnonzero(new_pair), np.flatnonzero(new_column)
        self.k, self.column = np.cumsum(new_pair) - 1, np.cumsum(new_column) - 1  # of each cell
        self.column_k = self.k[self.column_start]
        (self.arm_k, self.arm), self.arm_n = grouped((self.k, label), self.n)  # rows with each label
        self.visits = np.add.reduceat(self.n, self.start)
        self.column_n = np.add.reduceat(self.n, self.column_start)

    def log_e(self, pairs: int) -> tuple[float, FloatArray]:
        """The evidence over all pairs, and that of each pair alone (the average over c)."""
        each = np.array(list(self._log_e_for_all()))
        shares = [1.0] if pairs <= 1 else [1.0, 1.0 / pairs]
        bets = []
        for w in shares:
            bets += [float(np.logaddexp(math.log1p(-w), math.log(w) + row).sum()) for row in each if w < 1.0]
            bets += [float(row.sum()) for row in each if w == 1.0]
        average = np.asarray(logsumexp(each, axis=0)) - math.log(len(each))
        return float(logsumexp(bets)) - math.log(len(bets)), average

    def _log_e_for_all(self) -> Iterator[FloatArray]:
        """[K] for each c a lower bound on the smallest log E_k, from the largest c on (each starts the next)."""
        again = np.flatnonzero(self.n >= 2)  # a cell of one row gives log c whatever p is
        columns, inside = np.unique(self.column[again], return_inverse=True)
        owner = self.column_k[columns]
        n = self.n[again].astype(float)
        p = _per_owner(np.sqrt(np.bincount(inside, n * (n - 1.0), len(columns))), owner, len(self.start))
        singles = np.bincount(self.k[self.n == 1], minlength=len(self.start))
        for c in CONCENTRATIONS[::-1]:
            prior = gammaln(c) - gammaln(c + self.arm_n) * (1.0 + ROUNDING)
            fixed = np.bincount(self.arm_k, prior, len(self.start)) + singles * math.log(c)
            low = np.full(len(self.start), -np.inf)
            for _ in range(ITERATIONS if len(columns) else 0):
                m = c * p[inside]
                w = np.bincount(inside, n - m * (digamma(m + n) - digamma(m)), len(columns))
                bend = np.bincount(inside, m * (digamma(m + n) - digamma(m) + m * (_trigamma(m + n) - _trigamma(m))))
                gain = gammaln(m + n) - gammaln(m) - n * np.log(p[inside])
                slope = w / p
                gap = np.zeros(len(self.start))
                np.maximum.at(gap, owner, slope)
                gap -= np.bincount(owner, w, len(self.start))
                here = np.bincount(owner[inside], gain, len(self.start)) - gap
                low = np.maximum(low, here)
                if gap.sum() <= GAP:
                    break
                step = 1.0 / (1.0 + np.clip(bend / np.maximum(w, 1e-300), 0.0, 1.0))  # Newton's, in log p
                scale = np.bincount(owner, w, len(self.start))[owner]
                p = _per_owner(np.maximum(p * (slope / scale) ** step, 1e-100), owner, len(self.start))
            without = np.bincount(owner, minlength=len(self.start)) == 0
            yield fixed + np.where(without, 0.0, low)

    def effect(self) -> float:
        """Conditional mutual information in nats per row, less df/(2n): G/(2n) overstates it by about so much."""
        labels, successors = np.bincount(self.arm_k), np.bincount(self.column_k)
        df = float(((labels - 1) * (successors - 1)).sum())
        total = float(self.n.sum())
        return max(0.0, (float(self.surprise.sum()) - df / 2.0) / total)

    def g_test(self) -> float:
        """The p-value of G = 2 sum n log(n/expected) by its chi-square approximation, over pairs with large cells.

        Labels that depend on earlier next states shift G by about 1/n for each degree of freedom of a pair with n rows;
        NaN where that adds up to more than a small part of its spread, and where there are no large cells.
        """
        labels, successors = np.bincount(self.arm_k), np.bincount(self.column_k)
        least_arm, least_column = np.full((2, len(self.start)), np.inf)
        np.minimum.at(least_arm, self.arm_k, self.arm_n)
        np.minimum.at(least_column, self.column_k, self.column_n)
        large = least_arm * least_column >= LARGE_CELL * self.visits
        each = ((labels - 1) * (successors - 1))[large]
        df, bias = int(each.sum()), float((each / self.visits[large]).sum())
        if not df or bias > LARGEST_BIAS * math.sqrt(2.0 * df):
            return math.nan
        return float(chdtrc(df, 2.0 * float(self.surprise[large[self.k]].sum())))

    @cached_property
    def arm_of(self) -> IntArray:
        """The place of each cell's label among those of its pair."""
        width = int(self.arm.max()) + 1
        return np.searchsorted(self.arm_k * width + self.arm, self.k * width + self.label)

    @cached_property
    def surprise(self) -> FloatArray:
        """n log(n/expected) of each cell, which has expected rows if labels do not matter."""
        expected = self.arm_n[self.arm_of] * (self.column_n[self.column] / self.visits[self.k])
        return np.asarray(self.n * np.log(self.n / expected))


def _trigamma(x: FloatArray) -> FloatArray:
    """The derivative of the digamma function to about five digits: enough for the length of a step, and fast."""
    y = x + 3.0
    return np.asarray(x**-2 + (x + 1.0) ** -2 + (x + 2.0) ** -2 + (1.0 + (0.5 + 1.0 / (6.0 * y)) / y) / y)


def _per_owner(p: FloatArray, owner: IntArray, count: int) -> FloatArray:
    """Scaled to sum to 1 for each owner."""
    return np.asarray(p / np.bincount(owner, p, count)[owner])


def grouped(columns: Sequence[IntArray], n: IntArray) -> tuple[tuple[IntArray, ...], IntArray]:
    """The distinct rows of the columns, in lexicographic order, and the sums of n over them."""
    order = np.lexsort(tuple(columns)[::-1])
    columns, n = [column[order] for column in columns], n[order]
    new = np.zeros(len(n), dtype=bool)
    new[:1] = True
    for column in columns:
        new[1:] |= column[1:] != column[:-1]
    first = np.flatnonzero(new)
    sums = np.add.reduceat(n, first) if len(first) else n
    return tuple(column[first] for column in columns), sums
