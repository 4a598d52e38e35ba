"""Simulators: the right law, whichever way the draws are cut, and bad ones named."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import chi2

import policytest as pt
from builders import each
from plain import PTST, decide
from policytest.data.simulators import cumulative_rows

ALARM = 1e-6


def with_zeros(seed: int, S: int = 5, A: int = 2) -> np.ndarray:
    """A kernel with zeros at every kind of place: first, middle, last, all but one."""
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.ones(S), size=(S, A)) * (rng.random((S, A, S)) < 0.6)
    kernel[..., 1] += kernel.sum(axis=-1) == 0
    kernel[0, 0] = np.eye(S)[S - 1]
    kernel[1, 0] = np.eye(S)[0]
    kernel[2, 0] = [0.0, 0.3, 0.0, 0.7, 0.0]
    return kernel / kernel.sum(axis=-1, keepdims=True)


def every_pair(S: int, A: int, times: int) -> tuple[np.ndarray, np.ndarray]:
    pair = np.tile(np.arange(S * A), times)
    return pair // A, pair % A


def frequencies(kernel: np.ndarray, states, actions, x) -> np.ndarray:
    N = np.zeros(kernel.shape)
    np.add.at(N, (states, actions, x), 1)
    return N


def chi_square_tail(N: np.ndarray, kernel: np.ndarray) -> float:
    """P(a deviation this large) under the kernel, over all rows; infinite deviation where p = 0 was drawn."""
    expected = N.sum(axis=-1, keepdims=True) * kernel
    assert (N[expected == 0] == 0).all(), "a successor of probability 0 was drawn"
    parts = (N - expected)[expected > 0] ** 2 / expected[expected > 0]
    freedom = (expected > 0).sum() - (N.sum(axis=-1) > 0).sum()
    return float(chi2.sf(parts.sum(), freedom))


# ---------------------------------------------------------------- the law


def test_frequencies_are_those_of_the_kernel_and_impossible_successors_never_come():
    kernel = with_zeros(0)
    states, actions = every_pair(5, 2, 4000)
    x = pt.TabularSimulator(kernel).draw(states, actions, np.random.default_rng(1))
    assert x.dtype == np.int64
    N = frequencies(kernel, states, actions, x)
    assert chi_square_tail(N, kernel) > ALARM


def test_control_the_chi_square_test_notices_another_kernel():
    kernel = with_zeros(0)
    states, actions = every_pair(5, 2, 4000)
    other = 0.9 * kernel + 0.1 * (kernel > 0) / (kernel > 0).sum(axis=-1, keepdims=True)
    x = pt.TabularSimulator(other).draw(states, actions, np.random.default_rng(1))
    assert chi_square_tail(frequencies(kernel, states, actions, x), kernel) < ALARM


def test_draws_are_by_inversion_of_one_uniform_number_each():
    kernel = with_zeros(2)
    states, actions = every_pair(5, 2, 50)
    x = pt.TabularSimulator(kernel).draw(states, actions, np.random.default_rng(3))
    u = np.random.default_rng(3).random(len(states))
    for s, a, successor, number in zip(states, actions, x, u, strict=True):
        below = kernel[s, a, :successor].sum()
        assert below - 1e-12 <= number < below + kernel[s, a, successor] + 1e-12


def test_sparse_and_dense_draw_the_same():
    for seed in range(5):
        kernel = with_zeros(seed)
        states, actions = every_pair(5, 2, 100)
        table = sparse.csr_array(kernel.reshape(10, 5))
        keys = np.append(np.flatnonzero(kernel), np.flatnonzero(kernel == 0)[-1])
        stored_zero = sparse.coo_array((kernel.ravel()[keys], (keys // 5, keys % 5)), shape=(10, 5))
        draws = [
            pt.TabularSimulator(form).draw(states, actions, np.random.default_rng(seed))
            for form in (kernel, table, stored_zero, kernel.tolist())
        ]
        for other in draws[1:]:
            np.testing.assert_array_equal(draws[0], other)


class Extremes:
    """A generator whose numbers are as small, or as large, as they can be."""

    def __init__(self, number: float) -> None:
        self.number = number

    def random(self, size: int) -> np.ndarray:
        return np.full(size, self.number)


@pytest.mark.parametrize("number", [0.0, 5e-324, 1.0 - 2.0**-53])
def test_the_extreme_uniform_numbers_draw_possible_successors(number):
    """Also where rounding leaves the sum of a row below 1, or above it."""
    rng = np.random.default_rng(4)
    for _ in range(200):
        S = int(rng.integers(2, 30))
        row = rng.dirichlet(np.full(S, 0.3)) * (rng.random(S) < 0.5)
        row[rng.integers(S)] += 1e-3
        row /= row.sum() * (1 + 4e-10 * rng.choice([-1, 1]))
        kernel = np.zeros((S, 1, S))
        kernel[0, 0] = row
        [x] = pt.TabularSimulator(kernel).draw([0], [0], Extremes(number))
        assert row[x] > 0


@given(st.integers(0, 400), st.integers(0, 400), st.integers(0, 5))
def test_the_first_draws_of_many_are_the_few_draws(few, more, seed):
    states, actions = every_pair(5, 2, 80)
    sim = pt.TabularSimulator(with_zeros(seed))
    together = sim.draw(states[: few + more], actions[: few + more], np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    first = sim.draw(states[:few], actions[:few], rng)
    second = sim.draw(states[few : few + more], actions[few : few + more], rng)
    np.testing.assert_array_equal(together, np.concatenate([first, second]))


def test_cumulative_sums_end_at_the_last_entry_with_mass():
    sums = cumulative_rows(np.array([0, 3, 3, 5, 6]), np.array([0.0, 0.4, 0.6, 1.0, 0.0, 1.0]))
    np.testing.assert_array_equal(sums, [0.0, 0.4, 2.0, 2.0, 2.0, 2.0])


# ---------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("kernel", "message"),
    [
        (np.ones((2, 2)) / 2, r"kernel has shape \(2, 2\)"),
        (np.ones((2, 1, 3)) / 3, r"kernel has shape \(2, 1, 3\)"),
        (np.zeros((0, 1, 0)), r"kernel has shape \(0, 1, 0\)"),
        (np.zeros((2, 0, 2)), r"kernel has shape \(2, 0, 2\)"),
        ("kernel", "kernel is not an array of numbers"),
        ([[[0.5, 0.6]], [[0.5, 0.5]]], r"kernel at \(0, 0\) sums to 1.1"),
        ([[[0.5, 0.5]], [[1.5, -0.5]]], r"kernel at \(1, 0, 1\) is -0.5"),
        ([[[0.5, np.nan]], [[0.5, 0.5]]], r"kernel\[0, 0, 1\] is nan"),
        (sparse.csr_array(np.ones((3, 2)) / 2), r"kernel is sparse with shape \(3, 2\)"),
        (sparse.csr_array([[1.0, 0.0], [0.3, 0.3]]), r"kernel at \(1, 0\) sums to 0.6"),
    ],
    ids=str,
)
def test_kernels_that_are_none(kernel, message):
    with pytest.raises(pt.InputError, match=message):
        pt.TabularSimulator(kernel)


@pytest.mark.parametrize(
    "form", [np.asarray, lambda kernel: sparse.csr_array(kernel.reshape(4, 2))], ids=["dense", "sparse"]
)
def test_empty_rows_are_allowed_but_cannot_be_drawn_from(form):
    kernel = np.zeros((2, 2, 2))
    kernel[0, 0], kernel[1, 1] = [0.5, 0.5], [0.0, 1.0]
    sim = pt.TabularSimulator(form(kernel))
    np.testing.assert_array_equal(sim.draw([1, 1], [1, 1], np.random.default_rng(0)), [1, 1])
    with pytest.raises(pt.InputError, match=r"kernel at \(0, 1\) sums to 0"):
        sim.draw([0, 0], [0, 1], np.random.default_rng(0))
    task = pt.Task([[1.0, 0.0], [0.0, 0.0]], [[1.0, 0.0], [0.5, 0.5]], [1.0, 0.0], 0.9)
    for allocation in ("uniform", pt.Forward()):
        with pytest.raises(pt.InputError, match=r"kernel at \(1, 0\) sums to 0"):
            decide(task, sim, threshold=2.0, delta=1e-9, method=PTST(allocation=allocation))


@pytest.mark.parametrize(
    ("states", "actions", "message"),
    [
        ([0, 2], [0, 0], r"states\[1\] is 2; it must lie in 0 to 1"),
        ([0, -1], [0, 0], r"states\[1\] is -1"),
        ([0, 1], [0, 1], r"actions\[1\] is 1; it must lie in 0 to 0"),
        ([0, 1], [0], r"states has shape \(2,\), actions \(1,\)"),
        ([0.0, 1.0], [0, 0], "states has shape .* type float64"),
        (0, 0, "states has shape"),
        ([[0]], [[0]], "states has shape"),
    ],
)
def test_pairs_that_do_not_exist(states, actions, message):
    sim = pt.TabularSimulator([[[0.5, 0.5]], [[0.5, 0.5]]])
    with pytest.raises(pt.InputError, match=message):
        sim.draw(states, actions, np.random.default_rng(0))


def test_no_pairs_no_draws():
    sim = pt.TabularSimulator([[[0.5, 0.5]], [[0.5, 0.5]]])
    nothing = np.zeros(0, dtype=int)
    assert sim.draw(nothing, nothing, np.random.default_rng(0)).shape == (0,)


TWO = pt.instances.paper(2)


def answer(make):
    """A simulator that answers with what `make` says of the number of pairs."""
    return lambda states, actions, rng: make(len(states))


@each("allocation", ["uniform", pt.Forward()])
@each(
    ("sim", "message"),
    [
        (answer(lambda m: np.zeros(m + 1, dtype=int)), r"asked for \d+ next states and answered with shape"),
        (answer(lambda m: np.zeros((m, 1), dtype=int)), "answered with shape"),
        (answer(lambda m: 0), r"answered with shape \(\)"),
        (answer(lambda m: None), r"answer of sim.draw is not an array of numbers \(None\)"),
        (answer(lambda m: np.zeros(m)), "type float64; next states are integers"),
        (answer(lambda m: np.zeros(m, dtype=bool)), "type bool"),
        (answer(lambda m: ["0"] * m), "it holds text"),
        (answer(lambda m: np.full(m, 2)), r"answered 2 for \(s=\d, a=\d\); next states are 0 to 1"),
        (answer(lambda m: np.full(m, -1)), r"answered -1 for \(s="),
    ],
)
def test_a_simulator_that_answers_wrongly_is_told_what(sim, message, allocation):
    with pytest.raises(pt.InputError, match=message):
        decide(TWO.task, sim, threshold=0.0, method=PTST(allocation=allocation))


def test_the_wrong_answer_is_placed():
    """The error names the pair that was answered wrongly, not the first of the block."""
    asked = []

    def draw(states, actions, rng):
        asked.append((states.copy(), actions.copy()))
        x = TABLE.draw(states, actions, rng)
        if len(states) > 3:
            x[2] = 7
        return x

    with pytest.raises(pt.InputError) as caught:
        decide(TWO.task, draw, threshold=0.0, delta=1e-9)
    states, actions = asked[-1]
    assert f"answered 7 for (s={states[2]}, a={actions[2]})" in str(caught.value)


TABLE = pt.TabularSimulator(TWO.kernel)


@pytest.mark.parametrize("sim", [None, 3, TWO.kernel, pt.TabularSimulator, object(), "sim"])
def test_what_is_no_simulator(sim):
    with pytest.raises(pt.InputError, match=r"(?s)sim is .*draw\(states, actions, rng\)"):
        decide(TWO.task, sim, threshold=0.0)


@pytest.mark.parametrize("number", [3, 5])
def test_a_simulator_of_another_size_is_refused(number):
    with pytest.raises(pt.InputError, match=rf"sim.n_states is {number}, but the task has 2"):
        decide(TWO.task, pt.TabularSimulator(pt.instances.paper(number).kernel), threshold=0.0)


@pytest.mark.parametrize("kind", [np.int8, np.uint8, np.int32, np.uint64, np.int64, list], ids=str)
def test_any_type_of_integer_will_do(kind):
    def draw(states, actions, rng):
        x = TABLE.draw(states, actions, rng)
        return x.tolist() if kind is list else x.astype(kind)

    assert decide(TWO.task, draw, threshold=0.0, rng=5).samples == decide(TWO.task, TABLE, threshold=0.0, rng=5).samples


def test_a_subclass_that_counts_its_draws_is_asked_for_them():
    """Forward sampling goes through `draw` of a simulator that has its own, and is not drawn ahead if it says so."""

    class Counted(pt.TabularSimulator):
        replayable = False
        drawn = 0

        def draw(self, states, actions, rng):
            self.drawn += len(states)
            return super().draw(states, actions, rng)

    for allocation in ("uniform", pt.Forward()):
        sim = Counted(TWO.kernel)
        verdict = decide(TWO.task, sim, threshold=0.0, method=PTST(allocation=allocation))
        assert sim.drawn == verdict.samples
