"""The boundaries: the printed formulas, the martingale behind them, the compiled increments, the error they promise."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse
from scipy.stats import binom

import policytest as pt
from builders import each
from formulas import allowed, dimension, dimensions, loss
from policytest._base.compiled import evidence as compiled_evidence
from policytest.kl.boundaries import average

ALARM = 1e-6
PRIORS = (0.5, 1.0, 1e-3, 7.5, 40.0, (0.05, 0.5, 2.0))
BOUNDARIES = [pt.PaperBoundary(), *map(pt.MixtureBoundary, PRIORS)]


def random_task(seed: int) -> pt.Task:
    """With zeros in the policy, a declared support for odd seeds, and known rows."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    policy = rng.dirichlet(np.ones(A), size=S)
    policy = np.where(policy >= np.sort(policy, axis=1)[:, [max(0, A - 2)]], policy, 0.0)
    support = None
    if seed % 2:
        support = rng.random((S, A, S)) < 0.6
        support[..., 0] |= ~support.any(axis=-1)
        support[0, int(np.argmax(policy[0]))] = np.eye(S, dtype=bool)[1]
        support[1, int(np.argmax(policy[1]))] = np.arange(S) < 2
    rewards = rng.normal(size=(S, A))
    return pt.Task(rewards, policy, np.full(S, 1 / S), 0.9, support=support, normalise=True)


def random_counts(task: pt.Task, rng: np.random.Generator, most: int = 40) -> np.ndarray:
    """Counts on the support, with unvisited pairs."""
    N = rng.integers(0, most, size=(task.n_states, task.n_actions, task.n_states)) * allowed(task)
    return N * (rng.random(N.shape) < 0.7) * (rng.random(N.shape[:2]) < 0.8)[..., None]


# ---------------------------------------------------------------- level


def test_the_papers_level_is_equation_5():
    rng = np.random.default_rng(0)
    for _ in range(20):
        S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
        N = rng.integers(0, 50, size=(S, A, S)) * (rng.random((S, A, 1)) < 0.8)
        n, delta = N.sum(axis=-1), float(rng.uniform(1e-9, 0.5))
        printed = math.log(1 / delta) + (S - 1) * sum(math.log(math.e * (1 + v / (S - 1))) for v in n.ravel())
        for counts in (pt.Counts.from_array(N), pt.Counts.from_array(sparse.csr_array(N.reshape(S * A, S)))):
            assert pt.PaperBoundary().level(counts, delta) == pytest.approx(printed, rel=1e-13)


@each("boundary", BOUNDARIES)
@each("seed", range(8))
def test_levels_equal_the_formula(boundary, seed):
    task, rng = random_task(seed), np.random.default_rng(seed)
    N = random_counts(task, rng)
    level = math.log(1 / 0.03) + dimension(boundary, task, N)
    S, A = task.n_states, task.n_actions
    table = sparse.csr_array(N.reshape(S * A, S))
    for counts in (pt.Counts.from_array(N), pt.Counts.from_array(table)):
        assert boundary.level(counts, 0.03, task) == pytest.approx(level, rel=1e-12, abs=1e-11)
    if task.support is not None:
        other = sparse.csr_array(task.support.reshape(S * A, S))
        spare = pt.Task(task.rewards, task.policy, task.initial, task.discount, support=other)
        assert boundary.level(pt.Counts.from_array(table), 0.03, spare) == pytest.approx(level, rel=1e-12, abs=1e-11)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_without_a_task_every_row_may_have_every_successor(boundary):
    task = pt.Task(np.zeros((3, 2)), np.full((3, 2), 0.5), [1.0, 0.0, 0.0], 0.5)
    N = random_counts(task, np.random.default_rng(3))
    counts = pt.Counts.from_array(N)
    assert boundary.level(counts, 0.2) == boundary.level(counts, 0.2, task)


@pytest.mark.parametrize("boundary", BOUNDARIES[1:], ids=str)
def test_what_costs_nothing(boundary):
    support = np.ones((3, 2, 3), dtype=bool)
    support[2, :] = [False, True, False]  # known rows
    task = pt.Task(np.zeros((3, 2)), [[1.0, 0.0], [0.5, 0.5], [0.5, 0.5]], [1.0, 0.0, 0.0], 0.5, support=support)
    required = math.log(1 / 0.1)
    N = np.zeros((3, 2, 3), dtype=int)
    assert boundary.level(pt.Counts.from_array(N), 0.1, task) == pytest.approx(required, rel=1e-15)  # nothing visited
    N[2, :, 1] = 1000  # known
    N[0, 1] = [3, 4, 5]  # pi = 0
    assert boundary.level(pt.Counts.from_array(N), 0.1, task) == pytest.approx(required, rel=1e-13)
    N[0, 0] = [3, 4, 5]
    assert boundary.level(pt.Counts.from_array(N), 0.1, task) > required + 0.3


def test_in_the_papers_level_known_rows_and_unused_pairs_cost_nothing_and_unvisited_ones_as_printed():
    support = np.ones((3, 1, 3), dtype=bool)
    support[2, 0] = [False, True, False]
    task = pt.Task(np.zeros((3, 2)), [[1.0, 0.0]] * 3, [1.0, 0.0, 0.0], 0.5, support=support.repeat(2, axis=1))
    N = np.zeros((3, 2, 3), dtype=int)
    N[2, 0, 1], N[0, 1] = 1000, [3, 4, 5]
    level = pt.PaperBoundary().level(pt.Counts.from_array(N), 0.1, task)
    assert level == pytest.approx(math.log(1 / 0.1) + 2 * 2, rel=1e-13)  # two rows at (S-1) log e


@pytest.mark.parametrize("a", [Fraction(1, 2), Fraction(1), Fraction(1, 100), Fraction(17)])
def test_the_mixture_in_exact_arithmetic(a):
    """exp(g) is a rational number: a ratio of rising factorials times prod (N_x/n)^N_x."""

    def rising(start: Fraction, count: int) -> Fraction:
        return math.prod((start + i for i in range(count)), start=Fraction(1))

    for N in ([1, 0], [0, 7, 5], [300, 2, 0, 90]):
        n, m = sum(N), len(N)
        exact = rising(m * a, n) / math.prod(rising(a, c) for c in N)
        exact *= Fraction(math.prod(c**c for c in N), n**n)
        expected = math.log(exact.numerator) - math.log(exact.denominator)
        table = np.zeros((m, 1, m), dtype=int)
        table[0, 0] = N
        level = pt.MixtureBoundary(float(a)).level(pt.Counts.from_array(table), delta=0.5)
        assert level - math.log(2) == pytest.approx(expected, abs=2e-12)


BERNOULLI = [(1, 6), (-1, 30), (1, 42), (-1, 30), (5, 66), (-691, 2730), (7, 6), (-3617, 510)]


def ln_gamma(z: Decimal) -> Decimal:
    """lnG to some 30 digits: shifted to z >= 60, then Stirling's series."""
    shift = Decimal(0)
    while z < 60:
        shift, z = shift + z.ln(), z + 1
    two_pi = Decimal("6.283185307179586476925286766559005768394338798750211641949889")
    rest = sum(
        (Decimal(p) / Decimal(q) / (2 * k * (2 * k - 1)) / z ** (2 * k - 1) for k, (p, q) in enumerate(BERNOULLI, 1)),
        start=Decimal(0),
    )
    return (z - Decimal(1) / 2) * z.ln() - z + two_pi.ln() / 2 + rest - shift


@each("a", [0.5, 1.0, 0.001, 15.9, 16.0, 250.0])
@each("N", [[10**9, 3 * 10**9], [10**9, 0, 1], [123_456, 7, 16], [15, 16, 17], [10**15, 10**6]])
def test_large_counts_lose_no_digits(N, a):
    """The terms are of the order n log n; their sum, some tens of nats, is right to 1e-9 at n = 10^15."""
    with localcontext() as context:
        context.prec = 60
        n, m, prior = sum(N), len(N), Decimal(a)
        g = sum((Decimal(c) * (Decimal(c) / n).ln() for c in N if c), start=Decimal(0))
        g += sum((ln_gamma(prior) - ln_gamma(c + prior) for c in map(Decimal, N)), start=Decimal(0))
        g += ln_gamma(n + m * prior) - ln_gamma(m * prior)
    table = np.zeros((m, 1, m), dtype=np.int64)
    table[0, 0] = N
    level = pt.MixtureBoundary(a).level(pt.Counts.from_array(table), delta=math.exp(-1))
    assert level - 1 == pytest.approx(float(g), rel=1e-9, abs=1e-9)


def test_several_priors_are_the_log_of_the_mean_of_their_martingales():
    N = np.random.default_rng(5).integers(0, 60, size=(3, 2, 3))
    counts, priors = pt.Counts.from_array(N), [0.01, 0.5, 3.0]
    required = math.log(1 / 0.1)
    single = [pt.MixtureBoundary(a).level(counts, 0.1) - required for a in priors]
    together = pt.MixtureBoundary(priors).level(counts, 0.1) - required
    assert together == pytest.approx(-math.log(sum(math.exp(-g) for g in single) / 3), rel=1e-12)
    assert min(single) <= together <= min(single) + math.log(3)
    assert average(np.array([1000.0, 2000.0])) == pytest.approx(1000 + math.log(2), rel=1e-15)  # no underflow


# ---------------------------------------------------------------- why it holds


def positive_kernel(task: pt.Task, rng: np.random.Generator) -> np.ndarray:
    """A kernel with mass on every allowed successor, and on nothing else."""
    p = rng.dirichlet(np.ones(task.n_states), size=task.policy.shape) + 0.01
    p *= allowed(task)
    return p / p.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("boundary", BOUNDARIES[1:], ids=str)
@given(seed=st.integers(0, 10_000))
def test_the_mixture_is_a_martingale(boundary, seed):
    """At any counts: sum_x p(x) W(N + e_x) = W(N), with log W = loss(p) - dimension."""
    task, rng = random_task(seed), np.random.default_rng(seed)
    N, p = random_counts(task, rng), positive_kernel(task, rng)
    s, a = np.argwhere(task.policy > 0)[rng.integers((task.policy > 0).sum())]

    def log_capital(table: np.ndarray) -> float:
        return loss(task, table, p) - boundary.level(pt.Counts.from_array(table), 0.5, task)

    now = log_capital(N)
    mean = 0.0
    for x in np.flatnonzero(allowed(task)[s, a]):
        after = N.copy()
        after[s, a, x] += 1
        mean += p[s, a, x] * math.exp(log_capital(after) - now)
    assert mean == pytest.approx(1.0, abs=1e-9)


@given(seed=st.integers(0, 10_000))
def test_the_papers_level_is_strictly_above_the_uniform_mixture(seed):
    """Hence it controls the same event: exp(loss - its dimension) is below a martingale with mean 1."""
    task, rng = random_task(seed), np.random.default_rng(seed)
    counts = pt.Counts.from_array(random_counts(task, rng, most=int(rng.choice([2, 10, 10_000]))))
    assert pt.MixtureBoundary(1.0).level(counts, 0.1, task) < pt.PaperBoundary().level(counts, 0.1, task)


@given(st.lists(st.integers(0, 10**6), min_size=2, max_size=6))
def test_the_papers_level_is_strictly_above_the_uniform_mixture_in_one_row(N):
    table = np.zeros((len(N), 1, len(N)), dtype=int)
    table[0, 0] = N
    counts = pt.Counts.from_array(table)
    assert pt.MixtureBoundary(1.0).level(counts, 0.1) < pt.PaperBoundary().level(counts, 0.1)


# ---------------------------------------------------------------- one sample at a time


def open_ended(boundary, seed: int, length: int):
    """A task, its compiled rows and terms, a witness with mass everywhere, and transitions to observe."""
    task, rng = random_task(seed), np.random.default_rng(seed)
    rows, w = task.layout.rows, positive_kernel(task, rng)
    widths = np.diff(rows.start).astype(float)
    terms = boundary.terms(widths, task.n_states)
    k = rng.integers(-1, len(rows.pair), size=length)
    first, width = rows.start[np.maximum(k, 0)], np.diff(rows.start)[np.maximum(k, 0)]
    x = rows.successor[first + (rng.random(length) ** 2 * width).astype(int)].astype(np.int64)
    return task, rows, terms, w, k, x


def as_table(task: pt.Task, rows, entries: np.ndarray) -> np.ndarray:
    table = np.zeros((task.n_states * task.n_actions, task.n_states))
    table[rows.pair[rows.of_entry()], rows.successor] = entries
    return table.reshape(task.n_states, task.n_actions, task.n_states)


@each("boundary", BOUNDARIES)
@each("seed", range(4))
def test_observing_one_by_one_is_counting_afresh(boundary, seed):
    task, rows, terms, w, k, x = open_ended(boundary, seed, 700)
    N, n = np.zeros(rows.n_entries), np.zeros(len(rows.pair))
    evidence = -terms.dimensions(rows.start, N, n)
    entries = rows.pick(w, task.n_states)
    observe = compiled_evidence.observe
    used, ending = observe(rows.start, rows.successor, *terms, N, n, entries, evidence, np.inf, k, x)
    assert (used, ending) == (len(k), compiled_evidence.ALL_USED)
    counted = np.zeros((task.n_states * task.n_actions, task.n_states))
    np.add.at(counted, (rows.pair[k[k >= 0]], x[k >= 0]), 1)
    table = counted.reshape(task.n_states, task.n_actions, task.n_states)
    np.testing.assert_array_equal(as_table(task, rows, N), table)
    np.testing.assert_array_equal(n, counted.sum(axis=1)[rows.pair])
    afresh = [loss(task, table, w) - term for term in dimensions(boundary, task, table)]
    np.testing.assert_allclose(evidence, afresh, rtol=1e-11, atol=1e-10)


@pytest.mark.parametrize("boundary", BOUNDARIES, ids=str)
def test_observing_ends_at_the_first_sample_at_which_the_evidence_reaches_the_level(boundary):
    task, rows, terms, w, k, x = open_ended(boundary, 3, 300)
    entries = rows.pick(w, task.n_states)
    path, table = [], np.zeros((task.n_states, task.n_actions, task.n_states), dtype=int)
    for row, successor in zip(k.tolist(), x.tolist(), strict=True):
        if row >= 0:
            table[*divmod(int(rows.pair[row]), task.n_actions), successor] += 1
        path.append(loss(task, table, w) - dimension(boundary, task, table))
    for level in (path[40] + 1e-6, max(path) - 1e-9, float(np.median(path))):
        N, n = np.zeros(rows.n_entries), np.zeros(len(rows.pair))
        evidence = -terms.dimensions(rows.start, N, n)
        if not path[0] < level:
            continue
        used, ending = compiled_evidence.observe(
            rows.start, rows.successor, *terms, N, n, entries, evidence, level, k, x
        )  # fmt: skip
        assert ending == compiled_evidence.WITNESS_FAILED
        assert used == 1 + next(i for i, reached in enumerate(path) if reached >= level)
        assert n.sum() == (k[:used] >= 0).sum()  # the sample at which it fails is recorded


@pytest.mark.parametrize("boundary", [pt.PaperBoundary(), pt.MixtureBoundary()], ids=str)
def test_observing_refuses_a_successor_outside_the_support(boundary):
    task = random_task(1)
    rows = task.layout.rows
    terms = boundary.terms(np.diff(rows.start).astype(float), task.n_states)
    row = int(np.argmax(np.diff(rows.start) == 1))
    listed = int(rows.successor[rows.start[row]])
    other = (listed + 1) % task.n_states
    N, n, evidence = np.zeros(rows.n_entries), np.zeros(len(rows.pair)), np.zeros(len(terms.priors))
    w = positive_kernel(task, np.random.default_rng(0))
    standing = N, n, rows.pick(w, task.n_states), evidence, np.inf
    seen = np.array([row, row, row]), np.array([listed, other, listed])
    used, ending = compiled_evidence.observe(rows.start, rows.successor, *terms, *standing, *seen)
    assert (used, ending) == (1, compiled_evidence.NOT_ALLOWED)
    assert n.sum() == 1


# ---------------------------------------------------------------- the error it promises


PATHS, LENGTH, DELTA = 400, 250, 0.2
TRUTH = np.array([[0.7, 0.2, 0.1], [0.95, 0.05, 0.0]])
SUPPORT = [[[1, 1, 1]], [[1, 1, 0]], [[1, 0, 0]]]  # the third row is known and never sampled


@cache
def paths(rule: str) -> np.ndarray:
    """[path, t, row, x] counts after each sample, by a predictable rule: rows in turn, or by the last successor."""
    rng = np.random.default_rng(2024)
    steps = np.zeros((PATHS, LENGTH, 3, 3))
    for path in range(PATHS):
        last = 0
        for t, u in enumerate(rng.random(LENGTH)):
            row = t % 2 if rule == "in turn" else (last + t // 7) % 2
            last = int(np.searchsorted(np.cumsum(TRUTH[row])[:2], u, side="right"))
            steps[path, t, row, last] = 1
    return steps.cumsum(axis=1)


def crossings(boundary, rule: str, with_dimension: bool) -> int:
    """On how many paths the loss of the true kernel ever reaches the level, at any t."""
    task = pt.Task(np.zeros((3, 1)), np.ones((3, 1)), [1.0, 0.0, 0.0], 0.5, support=SUPPORT)
    rows = task.layout.rows
    terms = boundary.terms(np.diff(rows.start).astype(float), 3)
    N = paths(rule)
    seen, n = N[:, :, :2], N.sum(axis=-1)
    ratio = np.where(seen > 0, seen, 1.0) / np.maximum(n[:, :, :2, None], 1) / np.where(seen > 0, TRUTH, 1.0)
    excess = (seen * np.log(ratio)).sum(axis=(2, 3)) - math.log(1 / DELTA)
    count = 0
    for path in range(PATHS):
        times = np.flatnonzero(excess[path] >= 0)  # dimension terms are never negative
        if with_dimension:
            tables = ((rows.pick(N[path, t][:, None], 3), n[path, t]) for t in times)
            terms_then = [average(terms.dimensions(rows.start, *table)) for table in tables]
            times = times[excess[path, times] >= np.array(terms_then)]
        count += len(times) > 0
    return count


def tail(count: int) -> float:
    """P(at least this many crossings) if each path crosses with probability delta."""
    return float(binom.sf(count - 1, PATHS, DELTA))


@pytest.mark.parametrize("rule", ["in turn", "by the last successor"])
@pytest.mark.parametrize(
    "boundary", [pt.PaperBoundary(), pt.MixtureBoundary(), pt.MixtureBoundary((0.1, 1.0))], ids=str
)
def test_the_loss_of_the_truth_reaches_the_level_with_probability_at_most_delta(boundary, rule):
    assert tail(crossings(boundary, rule, with_dimension=True)) > ALARM
    assert tail(crossings(boundary, rule, with_dimension=False)) < ALARM  # the control


# ---------------------------------------------------------------- bad input


COUNTS = pt.Counts.from_array([[[3, 1]], [[0, 2]]])


@each("delta", [0, 1, 0.0, 1.0, -0.1, 1.5, float("nan"), float("inf"), [0.1], "small", None, 1j])
@each("boundary", [pt.PaperBoundary(), pt.MixtureBoundary()])
def test_delta_is_a_probability(boundary, delta):
    with pytest.raises(pt.InputError, match="delta"):
        boundary.level(COUNTS, delta)


@pytest.mark.parametrize(
    "prior", [0, -1.0, [], [[0.5]], np.ones((2, 2)), [0.5, -1.0], [0.5, 0], float("nan"), float("inf"), "half", None]
)
def test_priors_are_positive(prior):
    with pytest.raises(pt.InputError, match="prior"):
        pt.MixtureBoundary(prior)
    with pytest.raises(pt.InputError, match=r"prior\[1\] is -1"):
        pt.MixtureBoundary([0.5, -1.0])


@pytest.mark.parametrize("boundary", [pt.PaperBoundary(), pt.MixtureBoundary()], ids=str)
def test_counts_and_task_must_fit(boundary):
    task = pt.Task(np.zeros((3, 1)), np.ones((3, 1)), [1.0, 0.0, 0.0], 0.5)
    with pytest.raises(pt.InputError, match="counts"):
        boundary.level(COUNTS, 0.1, task)
    with pytest.raises(pt.InputError, match="counts"):
        boundary.level(COUNTS.N, 0.1)
    with pytest.raises(pt.InputError, match="task"):
        boundary.level(COUNTS, 0.1, COUNTS)
    support = [[[True, False]], [[True, True]]]
    task = pt.Task(np.zeros((2, 1)), np.ones((2, 1)), [1.0, 0.0], 0.5, support=support)
    with pytest.raises(pt.InputError, match="support"):
        boundary.level(COUNTS, 0.1, task)
