r"""KL balls around a kernel, the row problem, and Euclidean projections onto them.

Divergences are written *centre first*, and only here: with a centre p and weights w,

    loss(q) = sum_{s,a} w_sa KL(p_sa, q_sa),        KL(p, q) = sum_x p_x log(p_x / q_x),     0 log 0 = 0.

The ball {q : loss(q) <= radius} contains kernels that put mass where p has none: KL(p, q) does not look there.
A solver that kept to the support of p would find a minimum that is too high, and break the error guarantee.

Two problems are solved row by row. The *row problem* (a linear cost against KL) is behind the projection-free
solver; the Euclidean *projection* onto a KL ball of the simplex is behind Algorithm 2. The functions below are
the plain versions, written for reading; `policytest._base.compiled.search` has compiled twins, tested equal.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import AsArray, FloatArray, Kernel, SparseArray
from policytest._base.compiled import search
from policytest._base.errors import InputError
from policytest._base.rows import entry_keys, stored_at


@dataclass(frozen=True, eq=False)
class KLBall:
    """The kernels q with sum_sa weights[s,a] KL(centre_sa, q_sa) <= radius.

    Paper: the constraint set of (NO), `opt:no sp`.

    ``centre`` is an array [S,A,S] or a CSR array of shape (S*A, S), ``weights`` an array [S,A] (numbers of
    samples, or proportions), ``radius`` in the same unit of nats. Rows without weight are free.

    >>> ball = KLBall(centre=[[[0.5, 0.5]], [[0.0, 1.0]]], weights=[[2.0], [1.0]], radius=0.1)
    >>> [[[0.6, 0.4]], [[0.0, 1.0]]] in ball
    True
    >>> [[[0.6, 0.4]], [[1.0, 0.0]]] in ball
    False
    """

    centre: AsArray
    weights: AsArray
    radius: float

    def __post_init__(self) -> None:
        weights = check_weights(self.weights, (None, None))
        radius = arrays.real_number("radius", self.radius)
        if radius < 0:
            raise InputError(f"radius is {radius}; a ball needs a radius of at least 0")
        object.__setattr__(self, "weights", weights)
        object.__setattr__(self, "radius", radius)
        object.__setattr__(self, "centre", self._checked("centre", self.centre))
        arrays.freeze(self.weights)
        arrays.freeze(self.centre)

    def _checked(self, name: str, kernel: object) -> Kernel:
        """A kernel in one of the two forms, whose rows with weight are probability vectors."""
        S, A = self.weights.shape
        checked = arrays.kernel(name, kernel, S, A)
        return arrays.kernel_rows(
            name, checked, np.flatnonzero(self.weights > 0), S, lambda pair, *x: str((*divmod(pair, A), *x))
        )

    def loss(self, q: Kernel) -> float:
        """sum_sa weights[s,a] KL(centre_sa, q_sa), in nats."""
        divergences = kl_rows(self.centre, self._checked("q", q))
        weighted = self.weights.ravel() > 0
        return float(self.weights.ravel()[weighted] @ divergences[weighted])

    def __contains__(self, q: Kernel) -> bool:
        """Whether loss(q) <= radius, up to rounding (1e-12 of the radius, 1e-15 of the weights)."""
        return self.loss(q) <= self.radius * (1 + 1e-12) + 1e-15 * float(self.weights.sum())


def check_weights(weights: object, shape: tuple[int | None, int | None], name: str = "weights") -> FloatArray:
    """Weights [S,A] (or budgets): finite and not negative."""
    array = arrays.real_array(name, weights, shape)
    arrays.no_negative(name, array, name)
    return array


def kl_rows(p: Kernel, q: Kernel) -> FloatArray:
    """[S*A] KL(p_sa, q_sa) of every row, centre first; infinite where q lacks a successor that p has.

    Computed as sum_x p_x (u - 1 - log u) + (mass of q outside p), u = q_x/p_x, whose terms are not negative.
    """
    if arrays.is_sparse(p) != arrays.is_sparse(q):
        p, q = (k if arrays.is_sparse(k) else _as_csr(k) for k in (p, q))
    if not arrays.is_sparse(p):
        S = p.shape[-1]
        p, q = p.reshape(-1, S), q.reshape(-1, S)
        start = np.arange(len(p) + 1) * S
        return np.asarray(search.row_losses(start, p.ravel(), p.sum(axis=1), np.ascontiguousarray(q).ravel()))
    both = (p != 0).astype(np.float64) + (q != 0).astype(np.float64)  # the union of the two patterns
    both.sort_indices()
    p_entries, q_entries = (stored_at(kernel, entry_keys(both)) for kernel in (p, q))
    mass = np.asarray(p.sum(axis=1)).ravel()
    return np.asarray(search.row_losses(both.indptr.astype(np.int64), p_entries, mass, q_entries))


def _as_csr(kernel: FloatArray) -> SparseArray:
    return sparse.csr_array(kernel.reshape(-1, kernel.shape[-1]))
