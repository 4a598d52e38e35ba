r"""What was observed: the numbers of transitions, and the empirical kernel.

N[s,a,x] is the number of times that action a in state s was followed by state x; with the visits n of each pair,

    n[s,a] = sum_x N[s,a,x],        p_hat(x|s,a) = N[s,a,x] / n[s,a].

A `Counts` is the one mutable object of the library. `N` and `visits` are snapshots of it: they cannot be written
to, and later records leave them as they are. (An array is handed out as it stands, and copied before the next
change: reading alone costs nothing.)

A sparse table is a CSR array. New transitions wait, by their place (s*A + a)*S + x, until the table is read or as
many wait as it holds; so the work of merging them in does not depend on how the records are cut.
"""

from __future__ import annotations

import os
from copy import deepcopy
from typing import ClassVar

import numpy as np
from scipy.sparse import csr_array

from policytest._base import arrays
from policytest._base.arrays import AnyArray, AsArray, IntArray, Kernel, SparseArray, Table
from policytest._base.errors import InputError
from policytest._base.files import write_arrays
from policytest._base.rows import entry_keys, flat
from policytest._base.text import plural
from policytest.mdp.task import Task

TABLE_LIMIT = 500_000_000  # entries of a dense table, rows of a sparse one; places (s*A + a)*S + x then fit an int64
FILL_LIMIT = 50_000_000  # entries that a sparse kernel lists for unvisited pairs
TOTAL_LIMIT = 2**62  # transitions stay below, so that no sum of counts overflows an int64
PENDING = 2**20  # transitions that may wait for a sparse table, or as many as it has entries
COUNT_RULE = "counts are whole numbers, at least 0 and below 2**62"
OTHER_REWARDS = "the rewards in the data differ from the task's"
CELLS_ARE_MARKOV = "what follows depends on the cell and the action alone (states are cells of continuous ones)"
"""The assumption of a task whose states are cells."""
HELD, UNTESTED, DOUBTFUL, REFUTED = "held", "untested", "doubtful", "refuted"
"""What a diagnosis says of states that are cells: nothing against them, not tested, only hints, refuted by the data."""
CELLS = {
    DOUBTFUL: "by a G-test, which is approximate, the data speak against Markov cells",
    UNTESTED: "it was not tested whether the cells are Markov",
    REFUTED: "the data refute that the cells are Markov",
}
_SCALARS = {int, *(np.dtype(code).type for code in np.typecodes["AllInteger"])}  # bool is not among them


class Counts:
    """The number of observed transitions N[s,a,x].

    Paper: N_sa(t) are the `visits`, and the empirical kernel is `kernel()`.

    Parameters
    ----------
    n_states, n_actions
        S and A.
    sparse
        Whether to store only the transitions that occurred: `N` and `kernel()` are then CSR arrays of shape (S*A, S).

    selected
        Whether transitions were left out because of their outcome x. Then no guarantee holds, and no answer from these
        counts, nor from a sum with them, is certified.
    other_rewards
        Whether the data report other rewards than the task for which they were counted. Then no answer is certified.
    cells
        Where states are cells of continuous ones, what a diagnosis says of them: "held" (nothing speaks against them),
        "untested", "doubtful" or "refuted"; only with "held" an answer is certified. None: nothing was said yet.

    Counts add up (``a + b``, ``a += b``) and are equal when they hold the same transitions, in whichever form.

    >>> counts = Counts(n_states=2, n_actions=1)
    >>> counts.record(0, 0, 1)
    >>> counts.record([0, 0, 1], 0, [1, 0, 1])
    >>> counts
    Counts(2 states, 1 action, 4 transitions, 2 of 2 pairs visited)
    >>> counts.N.tolist()
    [[[1, 2]], [[0, 1]]]
    """

    episodes: None = None  # a table has no episodes, and no returns of them; see `Returns`
    histogram: None = None
    tails: None = None
    _table: Kernel  # dense: N, flat; sparse: the CSR array of all but the waiting transitions

    def __init__(
        self,
        n_states: int,
        n_actions: int,
        sparse: bool = False,
        selected: bool = False,
        other_rewards: bool = False,
        cells: str | None = None,
    ) -> None:
        """No transitions yet."""
        self._S = S = arrays.whole_number("n_states", n_states)
        self._A = A = arrays.whole_number("n_actions", n_actions)
        arrays.positive(n_states=S, n_actions=A)
        if not sparse and S * A * S > TABLE_LIMIT:
            raise InputError(f"a table of {S} x {A} x {S} counts is too large to be dense; pass sparse=True")
        if S * A > TABLE_LIMIT:
            raise InputError(f"{S} states with {A} actions are {S * A:,} pairs, more than {TABLE_LIMIT:,}; merge some")
        self._sparse, self._selected, self._other_rewards = bool(sparse), bool(selected), bool(other_rewards)
        self._cells = cells
        self._total = 0
        self._visits: IntArray = np.zeros(S * A, dtype=np.int64)
        self._loose: dict[int, int] = {}  # waiting single records
        self._batches: list[tuple[IntArray, IntArray]] = []  # waiting arrays of places, and their counts
        self._waiting = 0
        nothing = np.zeros(0, dtype=np.int64)
        self._table = _csr(nothing, nothing, S, A) if sparse else np.zeros(S * A * S, dtype=np.int64)

    @classmethod
    def from_array(cls, N: Kernel) -> Counts:
        """The counts in a table: an array [S,A,S], or a sparse one of shape (S*A, S), which gives sparse counts.

        >>> Counts.from_array([[[1, 2]], [[0, 1]]]).visits.tolist()
        [[3], [1]]
        """
        if not arrays.is_sparse(N):
            table = arrays.whole_array("N", N, TOTAL_LIMIT, COUNT_RULE, kinds="iuf")
            arrays.check_shape("N", table.shape, (None, None, None))
            S, A, _ = table.shape
            arrays.check_shape("N", table.shape, (S, A, S))
            counts, keys = cls(S, A), np.flatnonzero(table)
            counts.record_at(keys, table.ravel()[keys])
            return counts
        if len(N.shape) != 2 or not N.shape[1] or not N.shape[0] or N.shape[0] % N.shape[1]:
            raise InputError(f"N is sparse with shape {N.shape}, expected (S*A, S) (row s*A + a, column x)")
        (rows, S), entries = N.shape, arrays.sound_entries("N", N)
        keys = entries.row.astype(np.int64) * S + entries.col
        shape = (S, rows // S, S)
        times = arrays.whole_array(
            "N", entries.data, TOTAL_LIMIT, COUNT_RULE, "iuf", lambda at: np.unravel_index(keys[at], shape)
        )
        counts = cls(S, rows // S, sparse=True)
        counts.record_at(keys, times)
        return counts

    @property
    def n_states(self) -> int:
        """S."""
        return self._S

    @property
    def n_actions(self) -> int:
        """A."""
        return self._A

    @property
    def sparse(self) -> bool:
        """Whether only the transitions that occurred are stored."""
        return self._sparse

    @property
    def selected(self) -> bool:
        """Whether transitions were left out because of their outcome; such counts support no certified answer."""
        return self._selected

    @property
    def other_rewards(self) -> bool:
        """Whether the data report other rewards than the task; such counts support no certified answer."""
        return self._other_rewards

    def all_counts(self, task: Task) -> Counts:
        """These; of `Transitions`, their counts."""
        return self

    doubts: ClassVar[tuple[str, ...]] = ()  # about episodes

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no answer from these counts is certified, in words; empty where nothing is wrong with them."""
        return flaws(self._selected, self._other_rewards, self._cells)

    @property
    def cells(self) -> str | None:
        """Where states are cells, what a diagnosis says of them: a key of `CELLS`, "held", or None so far."""
        return self._cells

    @property
    def refutes_model(self) -> bool:
        """Whether these data refute the model that they are counted for."""
        return self._cells == REFUTED

    def with_cells(self, cells: str) -> Counts:
        """The same counts, with what a diagnosis says of the cells."""
        found = self.copy()
        found._cells = cells
        return found

    @property
    def total(self) -> int:
        """The number of transitions, sum N[s,a,x]."""
        return self._total

    @property
    def visits(self) -> IntArray:
        """[S,A] the number of transitions from each pair, n[s,a] = sum_x N[s,a,x]; a read-only snapshot."""
        arrays.freeze(self._visits)
        return self._visits.reshape(self._S, self._A)

    @property
    def N(self) -> Kernel:  # noqa: N802
        """N[s,a,x], an array [S,A,S] or a canonical CSR array of shape (S*A, S); a read-only snapshot."""
        if not self._sparse:
            arrays.freeze(self._table)
            return self._table.reshape(self._S, self._A, self._S)
        self._settle()
        arrays.freeze(self._table)
        return csr_array(self._table)  # an object of its own: one can put other arrays into a CSR array

    def record(self, s: AsArray, a: AsArray, x: AsArray, count: AsArray = 1) -> None:
        """Count the transitions (s, a, x), numbers or arrays of integers that broadcast; `count` times each.

        Everything is checked first: an error leaves the counts as they were.
        """
        S, A = self._S, self._A
        if (
            {type(s), type(a), type(x), type(count)} <= _SCALARS
            and (0 <= s < S and 0 <= a < A and 0 <= x < S)
            and 0 <= count < TOTAL_LIMIT - self._total
        ):
            pair, once = int(s) * A + int(a), int(count)
            key = pair * S + int(x)
            self._visits = _writeable(self._visits)
            self._visits[pair] += once
            self._total += once
            if self._sparse:
                self._loose[key] = self._loose.get(key, 0) + once
                self._wait(1)
            else:
                self._table = _writeable(self._table)
                self._table[key] += once
            return
        state = arrays.whole_array("s", s, S, f"states are 0 to {S - 1}")
        action = arrays.whole_array("a", a, A, f"actions are 0 to {A - 1}")
        successor = arrays.whole_array("x", x, S, f"states are 0 to {S - 1}")
        times = arrays.whole_array("count", count, TOTAL_LIMIT, COUNT_RULE)
        shapes = [state.shape, action.shape, successor.shape, times.shape]
        try:
            shape = np.broadcast_shapes(*shapes)
        except ValueError:
            listed = "{}, {}, {} and {}".format(*shapes)
            raise InputError(f"s, a, x and count have shapes {listed}; pass arrays of one length, or numbers") from None
        keys = np.broadcast_to((state * A + action) * S + successor, shape).ravel()
        self.record_at(keys, times if times.ndim == 0 else np.broadcast_to(times, shape).ravel())

    def merge(self, other: Counts) -> None:
        """Add the transitions of other counts to these, which keep their form; also ``self += other``."""
        arrays.instance("other", other, Counts)
        self.check_same_shape("other", other)
        self.record_at(*other.entries())
        self._selected |= other._selected
        self._other_rewards |= other._other_rewards
        said = {self._cells, other._cells}
        self._cells = next((cells for cells in (REFUTED, DOUBTFUL, UNTESTED, None, HELD) if cells in said), None)

    def kernel(self, task: Task | None = None) -> Kernel:
        """The empirical kernel N[s,a,x] / n[s,a], in the form of `N`.

        Rows without visits get the uniform law on their support: the task's, or all states. Where the support is
        empty, which needs pi(a|s) = 0, the row does not matter: all states, or in the sparse form a loop at s.

        >>> Counts.from_array([[[1, 3]], [[0, 0]]]).kernel().tolist()
        [[[0.25, 0.75]], [[0.5, 0.5]]]
        """
        if task is not None:
            arrays.instance("task", task, Task)
            self.check_same_shape("task", task)
        support = None if task is None else task.support
        S, unvisited = self._S, np.flatnonzero(self._visits == 0)
        if self._sparse:
            return _sparse_kernel(self, unvisited, support)
        q = self._table.reshape(-1, S) / np.maximum(self._visits, 1)[:, None]
        q[unvisited] = 1.0 / S
        if support is not None:
            allowed = support[unvisited].toarray() if arrays.is_sparse(support) else support.reshape(-1, S)[unvisited]
            width = allowed.sum(axis=1)
            q[unvisited[width > 0]] = allowed[width > 0] / width[width > 0, None]
        return np.asarray(q.reshape(S, self._A, S))

    def copy(self) -> Counts:
        """Counts of the same transitions that go their own way."""
        return deepcopy(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the counts to a file of exactly this name, as NPZ; it appears complete or not at all."""
        from policytest.data.counts_file import as_arrays  # which imports this module

        write_arrays(path, **as_arrays(self))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Counts:
        """The counts in a file that `save` wrote; anything else is refused."""
        from policytest.data.counts_file import from_arrays, read_counts

        return read_counts(path, from_arrays)

    __copy__ = copy

    def __add__(self, other: Counts) -> Counts:
        return NotImplemented if not isinstance(other, Counts) else self.copy().__iadd__(other)

    def __iadd__(self, other: Counts) -> Counts:
        self.merge(other)
        return self

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Counts):
            return NotImplemented
        if (self._S, self._A, self._total) != (other._S, other._A, other._total):
            return False
        return all(np.array_equal(mine, its) for mine, its in zip(self.entries(), other.entries(), strict=True))

    def __repr__(self) -> str:
        size = f"{plural(self._S, 'state')}, {plural(self._A, 'action')}, {plural(self._total, 'transition')}"
        return f"Counts({size}, {np.count_nonzero(self._visits):,} of {plural(self._visits.size, 'pair')} visited)"

    def check_same_shape(self, name: str, other: Counts | Task) -> None:
        """Refuse what has other states or actions."""
        if (other.n_states, other.n_actions) != (self._S, self._A):
            size = f"{plural(other.n_states, 'state')} and {plural(other.n_actions, 'action')}"
            raise InputError(
                f"{name} has {size}, the counts have {self._S:,} and {self._A:,}; pass the one they belong to"
            )

    def record_at(self, keys: IntArray, count: IntArray) -> None:
        """Count transitions at places (s*A + a)*S + x, checked before: a number for all of them, or one for each."""
        each = np.broadcast_to(count, keys.shape)
        if self._total + float(each.sum(dtype=np.float64)) >= TOTAL_LIMIT:
            raise InputError(
                f"with these the counts, {self._total} so far, would reach 2**62; their sums would overflow"
            )
        if self._sparse:
            keys, each = _tally(keys, count)
        else:
            self._table = _writeable(self._table)
        self._visits = _writeable(self._visits)
        np.add.at(self._visits, keys // self._S, each)
        self._total += int(each.sum())
        if self._sparse:
            self._batches.append((keys, each))
            self._wait(keys.size)
        else:
            np.add.at(self._table, keys, each)

    def _wait(self, transitions: int) -> None:
        """This many more wait for the sparse table."""
        self._waiting += transitions
        if self._waiting > max(PENDING, self._table.data.size):
            self._settle()

    def _settle(self) -> None:
        """Bring the waiting transitions into the sparse table."""
        if self._loose or self._batches:
            loose = _tally(np.fromiter(self._loose, np.int64), np.fromiter(self._loose.values(), np.int64))
            parts = [(entry_keys(self._table), self._table.data), loose, *self._batches]
            parts = [part for part in parts if part[0].size] or parts[:1]
            if len(parts) > 1:
                parts = [_tally(*(np.concatenate(column) for column in zip(*parts, strict=True)))]
            self._table = _csr(*parts[0], self._S, self._A)
            self._loose, self._batches, self._waiting = {}, [], 0

    def entries(self) -> tuple[IntArray, IntArray]:
        """The places (s*A + a)*S + x seen so far, in increasing order, and their counts."""
        if self._sparse:
            self._settle()
            return entry_keys(self._table), self._table.data
        keys = np.flatnonzero(self._table)
        return keys, self._table[keys]


def flaws(selected: bool, other_rewards: bool, cells: str | None = None) -> tuple[str, ...]:
    """What these flags of data mean, in words."""
    found = {"the data were selected by their outcomes": selected, OTHER_REWARDS: other_rewards}
    found |= {words: cells == said for said, words in CELLS.items()}
    return tuple(words for words, holds in found.items() if holds)


def _sparse_kernel(counts: Counts, unvisited: IntArray, support: Table) -> SparseArray:
    """The empirical kernel as a CSR array; rows without visits get the uniform law on their support."""
    S, A = counts.n_states, counts.n_actions
    if support is None:
        if unvisited.size * S > FILL_LIMIT:
            raise InputError(
                f"{plural(unvisited.size, 'pair')} without visits would list all {S:,} states each; declare the "
                "support of the task and pass the task"
            )
        width, successor = np.full(unvisited.size, S), np.tile(np.arange(S), unvisited.size)
    else:
        allowed = flat(support, S)[unvisited]
        width, successor = np.diff(allowed.indptr), allowed.indices
    seen, times = counts.entries()
    barren = unvisited[width == 0]
    keys = np.concatenate([seen, np.repeat(unvisited * S, width) + successor, barren * S + barren // A])
    laws = np.repeat(1.0 / np.maximum(width, 1), width)
    entries = np.concatenate([times / counts.visits.ravel()[seen // S], laws, np.ones(barren.size)])
    order = np.argsort(keys, kind="stable")
    return _csr(keys[order], entries[order], S, A)


def _tally(keys: IntArray, count: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct keys in increasing order, and the positive sums of their counts (a number, or one for each)."""
    if count.ndim == 0:
        keys, times = np.unique(keys, return_counts=True)
        sums = times * count
    else:
        order = np.argsort(keys, kind="stable")  # quick on runs that are sorted already
        keys, count = keys[order], count[order]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        keys, sums = keys[first], np.add.reduceat(count, first)
    seen = sums > 0
    return (keys, sums) if seen.all() else (keys[seen], sums[seen])


def _csr(keys: IntArray, entries: AnyArray, S: int, A: int) -> SparseArray:
    """The CSR array of shape (S*A, S) with these entries, at places (s*A + a)*S + x in increasing order."""
    start = np.append(0, np.cumsum(np.bincount(keys // S, minlength=S * A)))
    return csr_array((entries, keys % S, start), shape=(S * A, S))


def _writeable(array: IntArray) -> IntArray:
    """The array itself, or a copy if it was handed out (and frozen) as a snapshot."""
    return array if array.flags.writeable else array.copy()
