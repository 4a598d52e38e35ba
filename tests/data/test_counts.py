"""Counts of transitions: sums, order, the two forms, snapshots, the empirical kernel, files."""

from __future__ import annotations

import copy
import io
import pickle
import zipfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse as sp

import policytest.data.counts
from builders import assert_refused, each
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.counts_file import FORMAT
from policytest.mdp.task import Task

FORMS = pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
S, A = 4, 3


def logs(size, seed=0, states=S, actions=A):
    """Transitions from all but the last state, so that some pairs have no visits."""
    rng = np.random.default_rng(seed)
    return rng.integers(0, states - 1, size), rng.integers(0, actions, size), rng.integers(0, states, size)


def by_hand(s, a, x, states=S, actions=A):
    """N[s,a,x] by the definition."""
    N = np.zeros((states, actions, states), dtype=np.int64)
    for place in zip(s, a, x, strict=True):
        N[place] += 1
    return N


def table(counts):
    """N as an array [S,A,S], whichever the form."""
    N = counts.N.toarray() if counts.sparse else counts.N
    return N.reshape(counts.n_states, counts.n_actions, counts.n_states)


def assert_holds(counts, N):
    """Everything that can be read agrees with N."""
    np.testing.assert_array_equal(table(counts), N)
    np.testing.assert_array_equal(counts.visits, N.sum(axis=-1))
    assert counts.total == N.sum()
    assert type(counts.total) is int
    assert counts.visits.dtype == counts.N.dtype == np.int64
    assert counts.visits.shape == N.shape[:2]
    if counts.sparse:
        fresh = sp.csr_array((counts.N.data, counts.N.indices, counts.N.indptr), shape=counts.N.shape)
        assert fresh.has_canonical_format
        assert fresh.has_sorted_indices
        assert (fresh.data > 0).all()
        assert counts.N.shape == (N.shape[0] * N.shape[1], N.shape[0])


def make_task(support=None, policy=None, states=S, actions=A):
    policy = np.full((states, actions), 1 / actions) if policy is None else policy
    return Task(np.ones((states, actions)), policy, np.full(states, 1 / states), 0.5, support=support)


@pytest.fixture(params=[3, 40, 2**20], ids=["settles often", "settles now and then", "settles when read"])
def pending(request, monkeypatch):
    """How many transitions may wait: the result must not depend on it."""
    monkeypatch.setattr(policytest.data.counts, "PENDING", request.param)


# ---------------------------------------------------------------- recording


@FORMS
def test_no_records_no_counts(sparse):
    counts = Counts(S, A, sparse)
    assert_holds(counts, np.zeros((S, A, S), dtype=np.int64))
    assert (counts.n_states, counts.n_actions, counts.sparse) == (S, A, sparse)


@FORMS
def test_an_array_is_counted_as_by_hand(sparse):
    counts = Counts(S, A, sparse)
    counts.record(*logs(300))
    assert_holds(counts, by_hand(*logs(300)))


@FORMS
@pytest.mark.usefixtures("pending")
def test_one_by_one_in_batches_or_at_once_is_the_same(sparse):
    s, a, x = logs(300)
    singles, batches, mixed, at_once = (Counts(S, A, sparse) for _ in range(4))
    for k in range(300):
        singles.record(int(s[k]), int(a[k]), int(x[k]))
    for k in range(0, 300, 7):
        batches.record(s[k : k + 7], a[k : k + 7], x[k : k + 7])
    for k in range(0, 300, 5):
        mixed.record(s[k], a[k], x[k])  # NumPy integers
        mixed.record(s[k + 1 : k + 5], a[k + 1 : k + 5], x[k + 1 : k + 5])
    at_once.record(s, a, x)
    for counts in (singles, batches, mixed, at_once):
        assert_holds(counts, by_hand(s, a, x))


@FORMS
@given(data=st.data())
def test_the_order_is_irrelevant(sparse, data):
    s, a, x = logs(data.draw(st.integers(0, 40)), seed=data.draw(st.integers(0, 99)))
    order = np.array(data.draw(st.permutations(range(len(s)))), dtype=int)
    one, other = Counts(S, A, sparse), Counts(S, A, sparse)
    one.record(s, a, x)
    other.record(s[order], a[order], x[order])
    assert one == other
    assert_holds(other, by_hand(s, a, x))


@FORMS
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 3), st.integers(0, 9)), max_size=30))
def test_a_count_is_as_many_records(sparse, records):
    one_by_one, weighted, at_once = (Counts(S, A, sparse) for _ in range(3))
    for s, a, x, count in records:
        weighted.record(s, a, x, count)
        for _ in range(count):
            one_by_one.record(s, a, x)
    columns = np.array(records, dtype=np.int64).reshape(-1, 4).T
    at_once.record(*columns[:3], count=columns[3])
    assert one_by_one == weighted == at_once
    assert_holds(weighted, table(one_by_one))
    assert_holds(at_once, table(one_by_one))


@FORMS
def test_numbers_and_arrays_broadcast(sparse):
    counts = Counts(S, A, sparse)
    counts.record(2, [0, 1], 3)
    counts.record([[0], [1]], 0, [1, 2, 3], count=2)
    counts.record(3, 0, 0, count=[1, 2, 3])
    counts.record([1, 2], [0, 0], [3, 3], count=[[1], [1]])
    N = np.zeros((S, A, S), dtype=np.int64)
    N[2, :2, 3] += 1
    N[:2, 0, 1:] += 2
    N[3, 0, 0] += 6
    N[[1, 2], 0, 3] += 2
    assert_holds(counts, N)


@FORMS
@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int32, np.uint64])
def test_small_integer_types_do_not_overflow(sparse, dtype):
    """(s*A + a)*S + x would not fit an int8."""
    counts = Counts(100, 2, sparse)
    counts.record(dtype(99), dtype(1), dtype(98))
    counts.record(np.array([99], dtype), np.array([1], dtype), np.array([98], dtype), dtype(100))
    counts.record(np.array([99] * 2, dtype), 1, 98, np.array([100, 100], dtype))
    assert table(counts)[99, 1, 98] == counts.total == counts.visits[99, 1] == 301


@FORMS
def test_recording_nothing_changes_nothing(sparse):
    counts = Counts(S, A, sparse)
    counts.record([], [], [])
    counts.record(0, 0, 0, count=0)
    counts.record([0, 1], 0, 0, count=0)
    counts.record(np.zeros(0, dtype=int), 0, 1)
    assert counts == Counts(S, A)
    assert_holds(counts, np.zeros((S, A, S), dtype=np.int64))


def test_the_two_forms_agree_when_large():
    s, a, x = logs(20_000, states=60, actions=5)
    dense, sparse = Counts(60, 5), Counts(60, 5, sparse=True)
    for counts in (dense, sparse):
        counts.record(s, a, x)
    assert dense == sparse
    assert_holds(dense, by_hand(s, a, x, 60, 5))
    assert_holds(sparse, by_hand(s, a, x, 60, 5))


def test_a_sparse_table_may_be_far_larger_than_memory():
    counts = Counts(1_000_000, 3, sparse=True)
    counts.record([999_999, 0], 2, [999_998, 1], count=5)
    assert counts.N[999_999 * 3 + 2, 999_998] == counts.visits[0, 2] == 5
    assert counts.N.nnz == 2


def test_merging_in_takes_few_rounds_and_few_wait(monkeypatch):
    """The table doubles between two rounds, and no more wait than it holds: 2,000 batches take about 10 rounds."""
    rounds, build = [], policytest.data.counts._csr
    monkeypatch.setattr(policytest.data.counts, "PENDING", 16)
    monkeypatch.setattr(policytest.data.counts, "_csr", lambda *arguments: rounds.append(1) or build(*arguments))
    counts = Counts(200, 100, sparse=True)
    for key in range(2000):
        state, action = divmod(key, 100)
        counts.record(state, action, [0, 1])
        counts.record(state, action, 2)
        assert sum(len(keys) for keys, _ in counts._batches) + len(counts._loose) <= max(16, counts._table.nnz)
    assert 5 <= len(rounds) <= 15
    assert counts.total == counts.N.sum() == 6000


# ---------------------------------------------------------------- bad records

BAD_RECORDS = [
    (([0, 1, 2, 7], 0, 0), "s[3] is 7; states are 0 to 3"),
    ((0, [0, 3], 0), "a[1] is 3; actions are 0 to 2"),
    ((0, 0, [[0, 1], [-1, 0]]), "x[1, 0] is -1; states are 0 to 3"),
    ((4, 0, 0), "s is 4; states are 0 to 3"),
    ((0, -1, 0), "a is -1; actions are 0 to 2"),
    ((0, 0, np.int64(9)), "x is 9; states are 0 to 3"),
    ((0, 0, np.array([2**64 - 1], dtype=np.uint64)), "x[0] is 18446744073709551615; states are 0 to 3"),
    ((0.0, 0, 0), "s has dtype float64; states are 0 to 3", "s.astype(int)"),
    (([0, 1], np.array([0.0, 1.0], dtype=np.float32), 0), "a has dtype float32", "integers"),
    ((True, 0, 0), "s has dtype bool", "integers"),
    ((0, 0, np.array([True, False])), "x has dtype bool"),
    (("0", 0, 0), "s is not an array of numbers (it holds text)"),
    ((None, 0, 0), "s is not an array of numbers (None)"),
    (([[0, 1], [2]], 0, 0), "s is not an array of numbers"),
    (([0, 1, 2], [0, 1], 0), "s, a, x and count have shapes (3,), (2,), () and ()"),
    (([0, 1], 0, 0, [1, 2, 3]), "s, a, x and count have shapes (2,), (), () and (3,)"),
    (([0, 1], 0, 0, [1, -2]), "count[1] is -2; counts are whole numbers"),
    ((0, 0, 0, -1), "count is -1; counts are whole numbers"),
    ((0, 0, 0, 0.5), "count has dtype float64"),
    ((0, 0, 0, True), "count has dtype bool"),
    ((0, 0, 0, 2**62), "count is 4611686018427387904", "below 2**62"),
    ((0, 0, 0, 2**62 - 300), "300 so far", "2**62", "overflow"),
    (([0, 1, 2, 3], 0, 0, 2**61), "300 so far", "2**62", "overflow"),
    (([0, 1, 2, 3], 0, 0, [2**61] * 4), "300 so far", "2**62", "overflow"),
]


@FORMS
@each(("arguments", "fragments"), [(bad[0], bad[1:]) for bad in BAD_RECORDS])
def test_a_bad_record_leaves_the_counts_as_they_were(sparse, arguments, fragments):
    counts = Counts(S, A, sparse)
    counts.record(*logs(300))
    assert_refused(lambda: counts.record(*arguments), *fragments)
    assert_holds(counts, by_hand(*logs(300)))


@FORMS
def test_large_counts_are_exact(sparse):
    counts = Counts(2, 1, sparse)
    counts.record(0, 0, 1, count=2**61 + 1)
    counts.record([0, 0], 0, [1, 0], count=[2**53 + 1, 1])
    assert table(counts)[0, 0].tolist() == [1, 2**61 + 2**53 + 2]
    assert counts.total == counts.visits[0, 0] == 2**61 + 2**53 + 3


BAD_SHAPES = [
    ((0, 3), "n_states is 0; it must be positive"),
    ((3, -1), "n_actions is -1; it must be positive"),
    ((2.0, 3), "n_states is 2.0; it must be a whole number"),
    ((3, "2"), "n_actions is '2'; it must be a whole number"),
    ((100_000, 4), "100000 x 4 x 100000", "pass sparse=True"),
    ((100_000, 100_000, True), "10,000,000,000 pairs", "500,000,000"),
    ((2**31, 2, True), "4,294,967,296 pairs"),  # places would not fit an int64
]


@each(("arguments", "fragments"), [(bad[0], bad[1:]) for bad in BAD_SHAPES])
def test_bad_shapes_are_refused(arguments, fragments):
    assert_refused(lambda: Counts(*arguments), *fragments)


# ---------------------------------------------------------------- snapshots


@FORMS
@pytest.mark.parametrize("read", ["N", "visits"])
@pytest.mark.parametrize("more", [([0], [0], [0]), logs(50, seed=1)], ids=["one", "many"])
def test_what_is_read_is_a_snapshot_that_cannot_be_written_to(sparse, read, more):
    counts = Counts(S, A, sparse)
    counts.record(*logs(300))
    seen = getattr(counts, read)
    entries = seen.data if sparse and read == "N" else seen
    before = entries.copy()
    with pytest.raises(ValueError, match="read-only"):
        entries[0] = 5
    counts.record(*(more if len(more[0]) > 1 else (0, 0, 0)))
    np.testing.assert_array_equal(entries, before)
    assert_holds(counts, by_hand(*logs(300)) + by_hand(*more))


def test_a_dense_snapshot_cannot_be_made_writeable():
    counts = Counts(S, A)
    for snapshot in (counts.N, counts.visits):
        with pytest.raises(ValueError, match="WRITEABLE"):
            snapshot.flags.writeable = True


def test_new_arrays_in_a_sparse_snapshot_stay_there():
    counts = Counts(S, A, sparse=True)
    counts.record(0, 0, 0)
    N = counts.N
    N.data = N.data * 2
    assert counts.total == counts.N.sum() == 1


# ---------------------------------------------------------------- from tables


@FORMS
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, np.float64, np.float32])
def test_counts_from_a_table(sparse, dtype):
    N = by_hand(*logs(300))
    given_table = sp.csr_array(N.reshape(-1, S).astype(dtype)) if sparse else N.astype(dtype)
    counts = Counts.from_array(given_table)
    assert counts.sparse == sparse
    assert_holds(counts, N)
    counts.record(0, 0, 0)
    np.testing.assert_array_equal(given_table.toarray() if sparse else given_table, N.reshape(given_table.shape))


@each("form", ["csr", "csc", "coo", "lil", "dok", "bsr"])
def test_counts_from_any_sparse_format(form):
    N = by_hand(*logs(300))
    for make in (sp.csr_array, sp.csr_matrix):
        assert_holds(Counts.from_array(make(N.reshape(-1, S)).asformat(form)), N)


def test_duplicates_add_up_and_stored_zeros_vanish():
    doubled = sp.coo_array((np.full(3, 100, dtype=np.int8), ([0, 0, 3], [1, 1, 0])), shape=(4, 2))
    doubled.data[2] = 0
    counts = Counts.from_array(doubled)
    assert counts == Counts.from_array([[[0, 200], [0, 0]], [[0, 0], [0, 0]]])
    assert counts.N.nnz == 1


def test_places_in_a_large_sparse_table_do_not_overflow():
    row, column = np.array([299_999], dtype=np.int32), np.array([99_999], dtype=np.int32)
    corner = sp.csr_array((np.array([7]), (row, column)), shape=(300_000, 100_000))
    counts = Counts.from_array(corner)
    assert corner.indices.dtype == np.int32
    assert counts.visits[99_999, 2] == counts.N[299_999, 99_999] == counts.total == 7


NAN, INF = float("nan"), float("inf")
BAD_TABLES = [
    ([[[1, 0]], [[0, -2]]], "N[1, 0, 1] is -2; counts are whole numbers"),
    ([[[1, 0]], [[0.5, 2]]], "N[1, 0, 0] is 0.5; counts are whole numbers"),
    ([[[1, NAN]], [[0, 2]]], "N[0, 0, 1] is nan"),
    ([[[1, 0]], [[INF, 2]]], "N[1, 0, 0] is inf"),
    ([[[1, 0]], [[2**62, 2]]], "N[1, 0, 0] is 4611686018427387904"),
    ([[[2**61, 2**61]], [[0, 0]]], "overflow"),
    ([[[True, False]], [[True, True]]], "N has dtype bool"),
    (["one"], "N is not an array of numbers (it holds text)"),
    ([[1, 2], [3, 4]], "N has shape (2, 2), expected (any, any, any)"),
    (np.ones((2, 3, 4)), "N has shape (2, 3, 4), expected (2, 3, 2)"),
    (np.ones((2, 0, 2)), "n_actions is 0"),
    (sp.csr_array([[1, 2], [3, 4], [5, 6]]), "N is sparse with shape (3, 2), expected (S*A, S)"),
    (sp.coo_array([1, 2]), "N is sparse with shape (2,)"),
    (sp.csr_array((0, 2)), "N is sparse with shape (0, 2)"),
    (sp.csr_array([[0, 1], [0, 2], [3, 4], [5, -6]]), "N[1, 1, 1] is -6"),
    (sp.csr_array([[0, 1], [0.25, 0], [3, 4], [5, 6]]), "N[0, 1, 0] is 0.25"),
    (sp.csr_array([[True, False]] * 2), "N has dtype bool"),
]


@each(("bad", "fragment"), BAD_TABLES)
def test_bad_tables_are_refused(bad, fragment):
    assert_refused(lambda: Counts.from_array(bad), fragment)


# ---------------------------------------------------------------- sums, copies, equality


def two_counts(first_sparse, second_sparse):
    one, other = Counts(S, A, first_sparse), Counts(S, A, second_sparse)
    one.record(*logs(200, seed=1))
    other.record(*logs(100, seed=2))
    return one, other


@FORMS
@pytest.mark.parametrize("other_sparse", [False, True])
def test_counts_add_up(sparse, other_sparse):
    one, other = two_counts(sparse, other_sparse)
    N = by_hand(*logs(200, seed=1)) + by_hand(*logs(100, seed=2))
    total = one + other
    assert total == other + one
    assert (total.sparse, (other + one).sparse) == (sparse, other_sparse)
    assert_holds(total, N)
    assert_holds(one, by_hand(*logs(200, seed=1)))  # neither has changed
    assert_holds(other, by_hand(*logs(100, seed=2)))
    kept = one
    one += other
    assert kept is one
    other.record(0, 0, 0)
    assert_holds(one, N)
    one.merge(one)
    assert_holds(one, 2 * N)
    one.record(0, 0, 0, count=4)
    assert one.total == 604


@FORMS
def test_only_counts_of_the_same_shape_add_up(sparse):
    one, _ = two_counts(sparse, sparse)
    for other in (Counts(S, A + 1, sparse), Counts(S + 1, A)):
        assert_refused(lambda other=other: one.merge(other), f"other has {other.n_states} states", "4 and 3")
        assert_refused(lambda other=other: one + other, "other has")
    assert_refused(lambda: one.merge(np.ones((S, A, S))), "other is a ndarray, expected a Counts")
    with pytest.raises(TypeError):
        one + 1
    assert_holds(one, by_hand(*logs(200, seed=1)))


COPIES = {
    "copy": Counts.copy,
    "copy.copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "pickle": lambda counts: pickle.loads(pickle.dumps(counts)),
}


@FORMS
@pytest.mark.parametrize("read_first", [False, True])
@pytest.mark.parametrize("duplicate", COPIES.values(), ids=COPIES)
def test_copies_go_their_own_way(sparse, read_first, duplicate):
    counts, _ = two_counts(sparse, sparse)
    counts.record(1, 1, 1)
    if read_first:
        assert counts.N.sum() == counts.visits.sum()
    N = by_hand(*logs(200, seed=1))
    N[1, 1, 1] += 1
    twin = duplicate(counts)
    assert twin == counts
    twin.record(0, 0, 0)
    twin.record([1, 2], 0, 0)
    assert_holds(counts, N)
    N[:3, 0, 0] += 1
    assert_holds(twin, N)
    assert twin.sparse == sparse


@FORMS
def test_equality_is_of_transitions(sparse):
    counts, other = two_counts(sparse, not sparse)
    same = Counts.from_array(table(counts))
    assert counts == same
    assert counts != other
    same.record(0, 0, 0)
    assert counts != same
    moved = table(counts).copy()
    moved[0, 0] = np.roll(moved[0, 0], 1)  # the same visits and the same total
    assert not np.array_equal(moved, table(counts))
    assert counts != Counts.from_array(moved)
    assert Counts(2, 3, sparse) != Counts(3, 2, sparse)
    assert counts != "counts"
    with pytest.raises(TypeError, match="unhashable"):
        hash(counts)


@FORMS
def test_the_display(sparse):
    counts = Counts(5, 5, sparse)
    counts.record(*np.divmod(np.arange(25), 5), 0, count=50)
    assert repr(counts) == "Counts(5 states, 5 actions, 1,250 transitions, 25 of 25 pairs visited)"
    one = Counts(1, 1, sparse)
    one.record(0, 0, 0)
    assert repr(one) == "Counts(1 state, 1 action, 1 transition, 1 of 1 pair visited)"


# ---------------------------------------------------------------- the empirical kernel

SUPPORT = np.random.default_rng(5).random((S, A, S)) < 0.5
SUPPORT[..., 0] |= ~SUPPORT.any(axis=-1)


def expected_kernel(N, support):
    """N/n, and uniform on the support where n = 0: the definition, row by row."""
    q = np.zeros(N.shape)
    for s, a in np.ndindex(N.shape[:2]):
        q[s, a] = N[s, a] / N[s, a].sum() if N[s, a].sum() else support[s, a] / support[s, a].sum()
    return q


def as_table(kernel):
    return (kernel.toarray() if sp.issparse(kernel) else kernel).reshape(S, A, S)


@FORMS
@each("size", [0, 5, 300])
@each("declared", ["no task", "no support", "dense", "csr"])
def test_the_empirical_kernel(sparse, size, declared):
    counts = Counts(S, A, sparse)
    counts.record(*logs(size))
    support = {"dense": SUPPORT, "csr": sp.csr_array(SUPPORT.reshape(-1, S))}.get(declared)
    kernel = counts.kernel() if declared == "no task" else counts.kernel(make_task(support))
    assert sp.issparse(kernel) == sparse
    assert kernel.dtype == np.float64
    allowed = np.ones((S, A, S)) if support is None else SUPPORT
    np.testing.assert_array_equal(as_table(kernel), expected_kernel(by_hand(*logs(size)), allowed))
    np.testing.assert_allclose(as_table(kernel).sum(axis=-1), 1.0, rtol=1e-15)
    if sparse:
        assert sp.csr_array((kernel.data, kernel.indices, kernel.indptr), shape=kernel.shape).has_canonical_format
        assert (kernel.data > 0).all()
    (kernel.data if sparse else kernel)[...] = 0.5  # one's own to change
    assert_holds(counts, by_hand(*logs(size)))


@FORMS
@pytest.mark.parametrize("form", [np.asarray, lambda support: sp.csr_array(support.reshape(-1, S))])
def test_a_row_without_any_successor_is_still_a_distribution(sparse, form):
    policy, support = np.full((S, A), 1 / A), SUPPORT.copy()
    policy[3], support[3, 1] = [0.5, 0.0, 0.5], False
    counts = Counts(S, A, sparse)
    counts.record(*logs(300))
    task = make_task(form(support), policy)
    kernel = counts.kernel(task)
    np.testing.assert_array_equal(as_table(kernel)[3, 1], [0, 0, 0, 1] if sparse else np.full(S, 0.25))
    np.testing.assert_allclose(as_table(kernel).sum(axis=-1), 1.0, rtol=1e-15)
    support[3, 1] = as_table(kernel)[3, 1] > 0
    np.testing.assert_array_equal(as_table(kernel), expected_kernel(by_hand(*logs(300)), support))


@FORMS
def test_a_kernel_for_another_task_is_refused(sparse):
    counts = Counts(S, A, sparse)
    assert_refused(lambda: counts.kernel(make_task(states=5)), "task has 5 states and 3 actions", "4 and 3")
    assert_refused(lambda: counts.kernel(make_task(actions=1)), "task has 4 states and 1 action,")
    assert_refused(lambda: counts.kernel(np.ones((S, A, S))), "task is a ndarray, expected a Task")


def test_a_sparse_kernel_needs_a_support_where_most_is_unvisited():
    counts = Counts(20_000, 1, sparse=True)
    counts.record(0, 0, 1)
    assert_refused(counts.kernel, "19,999 pairs without visits", "20,000 states", "support")
    ring = sp.csr_array((np.ones(20_000, bool), (np.arange(20_000), (np.arange(20_000) + 1) % 20_000)))
    kernel = counts.kernel(make_task(ring, states=20_000, actions=1))
    assert (kernel != ring.astype(float)).nnz == 0


# ---------------------------------------------------------------- files


@FORMS
@pytest.mark.parametrize("name", ["counts.npz", "counts", "counts.v1.data"])
@pytest.mark.parametrize("size", [0, 1, 300])
def test_a_file_gives_the_counts_back(sparse, name, size, tmp_path):
    counts = Counts(S, A, sparse)
    counts.record(*logs(size))
    counts.record(3, 2, 1, count=0 if size == 0 else 2**60 + 1)
    counts.save(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    back = Counts.load(str(tmp_path / name))
    assert back == counts
    assert back.sparse == sparse
    assert_holds(back, table(counts))
    back.record(0, 0, 0)
    assert back.total == counts.total + 1


def test_a_sparse_file_is_as_large_as_what_it_holds(tmp_path):
    counts = Counts(1_000_000, 10, sparse=True)
    counts.record(np.arange(1000), 0, 5)
    counts.save(tmp_path / "counts")
    assert (tmp_path / "counts").stat().st_size < 1000 * 16 + 4000
    assert Counts.load(tmp_path / "counts").total == 1000


@FORMS
def test_saving_replaces_the_file_or_leaves_it(sparse, tmp_path, monkeypatch):
    path = tmp_path / "counts.npz"
    counts, other = two_counts(sparse, sparse)
    counts.save(path)
    other.save(path)
    assert Counts.load(path) == other

    def fail_halfway(file, **content):
        file.write(b"half a file")
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail_halfway)
    with pytest.raises(OSError, match="disk full"):
        counts.save(path)
    assert Counts.load(path) == other
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there_is_named(tmp_path):
    assert_refused(lambda: Counts(S, A).save(tmp_path / "none" / "counts"), "there is no folder", "none", "create it")


@pytest.fixture
def content():
    """What is in a file of counts, to be changed."""
    N = by_hand(*logs(300)).ravel()
    keys = np.flatnonzero(N)
    return {"format": FORMAT, "version": 1, "shape": [S, A], "sparse": False, "keys": keys, "counts": N[keys]}


def refused_file(path, *fragments):
    assert_refused(lambda: Counts.load(path), str(path), *fragments)


def test_the_content_that_is_changed_below_is_sound(content, tmp_path):
    """Positive control."""
    np.savez(tmp_path / "sound.npz", **content)
    assert_holds(Counts.load(tmp_path / "sound.npz"), by_hand(*logs(300)))


def changed(key, value):
    def change(content):
        content[key] = value(content[key]) if callable(value) else value

    return change


def set_to(place, value):
    def change(array):
        array = np.array(array)
        array[place] = value
        return array

    return change


AGAIN = "save the counts again"
BAD_CONTENT = [
    (changed("format", "policytest-task"), "its format is policytest-task", "written by Counts.save"),
    (lambda content: content.pop("format"), "its format is missing", "written by Counts.save"),
    (changed("version", 2), "version 2", "update policytest"),
    (changed("version", "one"), "damaged", AGAIN),
    (lambda content: content.pop("keys"), "keys", AGAIN),
    (lambda content: content.pop("counts"), "counts", AGAIN),
    (lambda content: content.pop("shape"), "shape", AGAIN),
    (changed("counts", set_to(2, -1)), "counts[2] is -1", AGAIN),
    (changed("counts", lambda counts: counts + 0.5), "counts has dtype float64", AGAIN),
    (changed("counts", lambda counts: counts[1:]), "one for each count", AGAIN),
    (changed("counts", lambda counts: counts[None]), "one for each count", AGAIN),
    (changed("counts", set_to(slice(None), 2**61)), "overflow"),
    (lambda content: content.update(keys=[[0, 1]], counts=[[1, 1]]), "one for each count", AGAIN),
    (changed("keys", set_to(-1, S * A * S)), "is 48; places are 0 to 47", AGAIN),
    (changed("keys", set_to(0, -1)), "keys[0] is -1", AGAIN),
    (changed("keys", lambda keys: keys[::-1]), "in increasing order", AGAIN),
    (changed("keys", set_to(1, 0)), "in increasing order", AGAIN),
    (changed("shape", [S, A, S]), "damaged", AGAIN),
    (changed("shape", [S, 1]), "places are 0 to 15", AGAIN),
    (changed("shape", [-S, -A]), "n_states is -4"),
    (changed("shape", [4.0, 3.0]), "n_states is 4.0"),
]


@pytest.mark.parametrize(("change", "fragments"), [(bad[0], bad[1:]) for bad in BAD_CONTENT])
def test_files_that_make_no_sense_are_refused(change, fragments, content, tmp_path):
    change(content)
    np.savez(tmp_path / "bad.npz", **content)
    refused_file(tmp_path / "bad.npz", *fragments)


def test_files_of_other_kinds_are_refused(content, tmp_path):
    path = tmp_path / "file"
    refused_file(path, "no such file", "given to save")
    refused_file(tmp_path, "Is a directory")
    for other in (b"", b"s,a,x\n0,0,1\n", pickle.dumps(content)):
        path.write_bytes(other)
        refused_file(path, "not a file of counts", AGAIN)
    with path.open("wb") as file:
        np.save(file, np.ones(3))
    refused_file(path, "not a file of counts", AGAIN)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("format", "text")
    refused_file(path, "'format' is no array")


def test_a_file_with_pickled_objects_is_not_opened(content, tmp_path):
    content["format"] = np.array([FORMAT, None], dtype=object)
    np.savez(tmp_path / "file.npz", **content)
    refused_file(tmp_path / "file.npz", "format holds pickled objects")


def saved(tmp_path, sparse):
    counts, _ = two_counts(sparse, sparse)
    path = tmp_path / "counts.npz"
    counts.save(path)
    return counts, path, path.read_bytes()


@FORMS
def test_a_truncated_file_is_refused_wherever_it_ends(sparse, tmp_path):
    _, path, whole = saved(tmp_path, sparse)
    for length in range(0, len(whole), 41):
        path.write_bytes(whole[:length])
        refused_file(path, AGAIN)


@FORMS
def test_a_changed_byte_never_changes_the_counts(sparse, tmp_path):
    """It is noticed, unless it is in a field that says nothing (a date, an attribute)."""
    counts, path, whole = saved(tmp_path, sparse)
    noticed = 0
    for place in range(0, len(whole), 4):
        for bits in (0x01, 0xFF):
            broken = bytearray(whole)
            broken[place] ^= bits
            path.write_bytes(broken)
            try:
                back = Counts.load(path)
            except InputError as error:
                assert str(path) in str(error)  # noqa: PT017
                noticed += 1
            else:
                assert back == counts
    assert noticed > len(whole) // 4


def test_every_byte_of_the_numbers_is_guarded(tmp_path):
    """The data of the archive, found by their bytes: a change there is always noticed."""
    counts, path, whole = saved(tmp_path, sparse=True)
    stored = counts.N.data.tobytes()
    start = whole.index(stored)
    for place in range(start, start + len(stored), 5):
        broken = bytearray(whole)
        broken[place] ^= 0x10
        path.write_bytes(broken)
        refused_file(path, "checksum", AGAIN)


def test_a_header_that_hides_the_rest_of_the_data_is_noticed(content, tmp_path):
    """A shorter array in the header would end the reading before the checksum is compared."""
    path, buffer = tmp_path / "file", io.BytesIO()
    content["keys"], content["counts"] = np.arange(12), np.arange(1, 13)
    np.savez(buffer, **content)
    whole = buffer.getvalue()
    assert whole.count(b"'shape': (12,), ") == 2
    path.write_bytes(whole.replace(b"'shape': (12,), ", b"'shape': (2,),  "))
    refused_file(path, "checksum", AGAIN)
