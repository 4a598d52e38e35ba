"""The usual interval for one look: it covers about as often as it says, and never claims more than it is."""

from __future__ import annotations

import json

import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import TWO
from policytest.results.load import from_data

LOGS, ROWS, SEED = 150, 1000, 3


def episodic() -> tuple[pt.Task, np.ndarray]:
    """Five states and an end, reached with probability 0.15 from each."""
    rng = np.random.default_rng(5)
    kernel = np.zeros((6, 2, 6))
    kernel[:5, :, :5] = 0.85 * rng.dirichlet(np.ones(5), size=(5, 2))
    kernel[:5, :, 5], kernel[5, :, 5] = 0.15, 1.0
    rewards = np.vstack([rng.random((5, 2)), np.zeros((1, 2))])
    return pt.Task(rewards, np.full((6, 2), 0.5), np.eye(6)[0], 0.95, terminal=[5]), kernel


def continuing() -> tuple[pt.Task, np.ndarray]:
    rng = np.random.default_rng(8)
    kernel = rng.dirichlet(np.ones(8), size=(8, 2))
    return pt.Task(rng.random((8, 2)), rng.dirichlet(np.ones(2), size=8), np.full(8, 0.125), 0.9), kernel


def counted(task: pt.Task, kernel: np.ndarray, rng: np.random.Generator) -> pt.Counts:
    """Draws of all unknown pairs, about as many of each."""
    visits = rng.multinomial(ROWS, np.full(task.layout.unknown_pairs.sum(), 1.0 / task.layout.unknown_pairs.sum()))
    N = np.zeros(kernel.shape)
    N[task.layout.unknown_pairs] = [
        rng.multinomial(n, row) for n, row in zip(visits, kernel[task.layout.unknown_pairs], strict=True)
    ]
    return pt.Counts.from_array(N)


@pytest.mark.parametrize("make", [episodic, continuing])
def test_it_covers_as_often_as_it_says(make):
    """Of 150 logs; and the control, half as wide, covers 67% instead of 95%, which is refused."""
    task, kernel = make()
    value, rng = pt.value(task, kernel), np.random.default_rng(SEED)
    found = [pt.value_interval(task, counted(task, kernel, rng), looks="one") for _ in range(LOGS)]
    misses = sum(value not in interval for interval in found)
    narrow = sum(abs(value - (i.lower + i.upper) / 2) > i.width / 4 for i in found)
    few, many = binom.ppf(1e-4, LOGS, 0.05), binom.isf(1e-4, LOGS, 0.05)
    assert few <= misses <= many
    assert narrow > many
    assert all(not interval.certified and interval.looks == "one" for interval in found)


def test_by_the_closed_form_of_one_unknown_row():
    """A pair that leads to the end or stays: V = 1/(1 - gamma q), whose derivative is known."""
    task = pt.Task(np.array([[1.0], [0.0]]), np.ones((2, 1)), np.array([1.0, 0.0]), 0.9, terminal=[1])
    counts = pt.Counts.from_array(np.array([[[600.0, 400.0]], [[0.0, 0.0]]]))
    found, q, n = pt.value_interval(task, counts, looks="one"), 0.6, 1000
    smooth = 600.5 / 1001
    value = 1 / (1 - 0.9 * q)
    sd = 0.9 * value**2 * np.sqrt(smooth * (1 - smooth) / n)
    np.testing.assert_allclose([found.lower, found.upper], [value - 1.959964 * sd, value + 1.959964 * sd], rtol=1e-6)


def test_a_pair_without_draws_may_be_anything():
    task, kernel = continuing()
    N = np.rint(100 * kernel)
    N[3, 1] = 0
    found = pt.value_interval(task, pt.Counts.from_array(N), looks="one")
    assert (found.lower, found.upper) == pt.value_range(task)


def test_it_stands_beside_the_certified_one():
    rng = np.random.default_rng(0)
    verdict = pt.assess(TWO.task, pt.Counts.from_array(rng.multinomial(200, TWO.kernel).astype(float)), 0.0)
    low, high = verdict.one_look
    assert verdict.interval[0] < low < verdict.estimate < high < verdict.interval[1]
    assert "approximate 95% interval for one look at a finished log; not certified" in str(verdict)
    assert from_data(json.loads(verdict.to_json())).one_look == (low, high)


def test_bad_input_is_named():
    counts = pt.Counts.from_array(np.rint(100 * TWO.kernel))
    with pytest.raises(pt.InputError, match=r'looks is .two.; pass "any" or "one"'):
        pt.value_interval(TWO.task, counts, looks="two")
    with pytest.raises(pt.InputError, match=r'method is for looks="any"'):
        pt.value_interval(TWO.task, counts, method=pt.PTST(), looks="one")
