"""The rows of the kernel that matter, and the successors listed for each.

Only pairs with pi(a|s) > 0 influence the value, so everything below works on
those K pairs. Row k lists the successors it may have, in compressed form:
entries ``start[k]:start[k+1]`` of ``successor``. Vectors over these entries
(a kernel, counts, a gradient) are plain arrays of length E = ``start[-1]``;
this one layout serves both dense and sparse tasks.

A row is *open* when successors that are not listed are allowed as well: a
sparse kernel of a task without declared support. Solvers list such a
successor (`widen`) once they want to put mass on it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy import sparse

from policytest._base.arrays import AnyArray, FloatArray, IntArray, Kernel, SparseArray, Table, is_sparse, row_totals
from policytest._base.errors import InputError

MANY_ROWS = 200  # above which it pays to look whether all rows list as many successors


class Rows(NamedTuple):
    """Pairs with pi > 0 and their listed successors; a named tuple, so that compiled code can read it."""

    pair: IntArray  # [K] s*A + a
    state: IntArray  # [K] s
    prob: FloatArray  # [K] pi(a|s)
    reward: FloatArray  # [K] r(s,a); zero where the reward is on (s,a,x)
    start: IntArray  # [K+1]
    successor: npt.NDArray[np.int32]  # [E] x
    gain: FloatArray  # [E] r(s,a,x), or empty where the reward is on (s,a)

    @property
    def n_entries(self) -> int:
        """E, the number of listed entries."""
        return int(self.start[-1])

    def of_entry(self) -> IntArray:
        """[E] the row each entry belongs to."""
        return self.per_entry(np.arange(len(self.pair)))

    def per_entry(self, values: AnyArray) -> AnyArray:
        """[..., E] a row vector [..., K], repeated for each entry of its row."""
        width = self.start[1:] - self.start[:-1]
        if len(width) > MANY_ROWS and (width == width[0]).all():  # then repeated in a third of the time
            return np.repeat(values, width[0], axis=-1)
        return np.repeat(values, width, axis=-1)

    def rewards(self) -> FloatArray:
        """[E] r(s,a,x) of every entry, whether the reward is on the successor or on the pair."""
        on_pair = self.per_entry(self.reward)
        return np.asarray(on_pair + self.gain) if len(self.gain) else on_pair

    def to_one(self, entries: FloatArray) -> FloatArray:
        """[E] the entries with each row divided by its sum."""
        return np.asarray(entries / self.per_entry(self.sums(entries)))

    def sums(self, entries: FloatArray) -> FloatArray:
        """[K] the sum of an entry vector over each row (rows are never empty)."""
        return np.add.reduceat(entries, self.start[:-1])

    def pick(self, table: Kernel, n_states: int) -> FloatArray:
        """[E] the entries of a table, dense or sparse, at the listed places (0 where none is stored)."""
        if not is_sparse(table) and table.size == self.n_entries:  # every row lists every state
            return np.array(table, dtype=np.float64).ravel()
        pair = self.pair[self.of_entry()]
        if not is_sparse(table):
            return np.ascontiguousarray(table.reshape(-1, n_states)[pair, self.successor])
        return stored_at(table, pair * n_states + self.successor)

    def gather(self, name: str, kernel: Kernel, n_states: int, place: Callable[[int], str]) -> FloatArray:
        """[E] a kernel on the listed entries; mass elsewhere contradicts the support and is refused."""
        entries = self.pick(kernel, n_states)
        if not is_sparse(kernel) and kernel.size == self.n_entries:  # every row lists every state
            return entries
        outside = row_totals(kernel, self.pair, n_states) - self.sums(entries)
        if (np.abs(outside) > 1e-12).any():
            worst = int(np.argmax(np.abs(outside)))
            raise InputError(
                f"{name} puts mass {outside[worst]:.6g} on successors of {place(int(self.pair[worst]))} that the "
                "task's support excludes; widen the support or fix the kernel"
            )
        return entries

    def scatter(self, entries: FloatArray, like: Kernel, n_states: int) -> Kernel:
        """The kernel with these entries, in the form of ``like``, whose other rows (pi = 0) it keeps."""
        if not is_sparse(like) and like.size == self.n_entries:
            return entries.reshape(like.shape).copy()
        if not is_sparse(like):
            table = np.array(like, dtype=np.float64).reshape(-1, n_states)
            table[self.pair] = 0.0
            table[self.pair[self.of_entry()], self.successor] = entries
            return table.reshape(like.shape)
        mine = sparse.csr_array(
            (entries, (self.pair[self.of_entry()], self.successor.astype(np.int64))), shape=like.shape
        )
        other = np.ones(like.shape[0], dtype=bool)
        other[self.pair] = False
        if other.any():
            mine = mine + sparse.diags_array(other.astype(np.float64)) @ like
        result = sparse.csr_array(mine)
        result.eliminate_zeros()
        result.sort_indices()
        return result

    def widen(self, state: int) -> tuple[Rows, IntArray]:
        """List successor ``state`` in every row that lacks it. Also gives the old entries' new places."""
        owner = self.of_entry()
        has = np.zeros(len(self.pair), dtype=bool)
        has[owner[self.successor == state]] = True
        added = np.flatnonzero(~has)
        keys = np.concatenate([owner * 2, added * 2 + 1])
        order = np.argsort(keys, kind="stable")
        place = np.empty(len(order), dtype=np.int64)
        place[order] = np.arange(len(order))
        successor = np.concatenate([self.successor, np.full(len(added), state, dtype=np.int32)])[order]
        start = self.start + np.concatenate([[0], np.cumsum(~has)])
        return self._replace(start=start, successor=successor), place[: self.n_entries]

    def listing_all(self, n_states: int) -> tuple[Rows, IntArray]:
        """List every state in every row (rewards are on pairs). Also gives the old entries' new places."""
        K = len(self.pair)
        successor = np.tile(np.arange(n_states, dtype=np.int32), K)
        start = n_states * np.arange(K + 1, dtype=self.start.dtype)
        return self._replace(start=start, successor=successor), self.of_entry() * n_states + self.successor

    def spread(self, entries: FloatArray, places: IntArray) -> FloatArray:
        """[E] the old entries at their places after `widen`, 0 at the new ones."""
        wide = np.zeros(self.n_entries)
        wide[places] = entries
        return wide


def first_of_state(rows: Rows) -> IntArray:
    """The first row of each state that has rows; rows come by state."""
    return np.flatnonzero(np.diff(rows.state, prepend=-1))


def entry_keys(table: SparseArray) -> IntArray:
    """The places row * columns + column of the stored entries of a canonical CSR array, in increasing order."""
    owner = np.repeat(np.arange(table.shape[0], dtype=np.int64), np.diff(table.indptr))
    return np.asarray(owner * table.shape[1] + table.indices)


def stored_at(table: SparseArray, keys: IntArray) -> FloatArray:
    """The entries of a canonical CSR array at these places, 0 where none is stored."""
    entries = np.zeros(len(keys))
    stored = entry_keys(table)
    if len(stored):
        at = np.minimum(np.searchsorted(stored, keys), len(stored) - 1)
        found = stored[at] == keys
        entries[found] = table.data[at[found]]
    return entries


def entries_at(table: Table, pair: IntArray, x: IntArray) -> AnyArray:
    """The entries of a table on (s,a,x), dense or sparse, or on (s,a), at transitions from pairs s*A + a to x."""
    if is_sparse(table):
        return stored_at(table, pair * table.shape[1] + x)
    return np.asarray(table.ravel()[pair] if table.ndim == 2 else table.reshape(-1, table.shape[-1])[pair, x])


def flat(table: Kernel, n_states: int) -> SparseArray:
    """A table on (s,a,x) as a CSR array, with row s*A + a."""
    return sparse.csr_array(table if is_sparse(table) else table.reshape(-1, n_states))


def looping(table: Kernel, states: Iterable[int], mass: float = 1.0) -> Kernel:
    """The table [s,a,x] in which these states are followed by themselves; with ``mass`` 0 their rows are 0."""
    ends, S = np.array(sorted(states), dtype=np.int64), table.shape[-1]
    if not len(ends):
        return table
    if not is_sparse(table):
        table = table.copy()
        table[ends] = 0.0
        if mass:
            table[ends, :, ends] = mass
        return table
    A = table.shape[0] // S
    pairs, kept = (ends[:, None] * A + np.arange(A)).ravel(), np.ones(table.shape[0])
    kept[pairs] = 0.0
    loops = sparse.csr_array((np.full(len(pairs), mass), (pairs, np.repeat(ends, A))), shape=table.shape)
    both = sparse.csr_array(sparse.diags_array(kept) @ table + loops)
    both.eliminate_zeros()
    return both
