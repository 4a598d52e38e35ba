"""Every array and number of the public API is what it claims to be; all else is refused by its name."""

from __future__ import annotations

import datetime
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import each
from policytest.paper.product_box import robust_value
from policytest.paper.row_problems import project_box
from policytest.sources import discretise, labels
from policytest.sources.tasks import policy

KERNEL = np.array([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.0, 1.0]]])
REWARDS, POLICY, INITIAL = np.array([[1.0, 0.0], [0.5, -1.0]]), np.full((2, 2), 0.5), np.array([0.5, 0.5])


def task(**changes):
    return pt.Task(**{"rewards": REWARDS, "policy": POLICY, "initial": INITIAL, "discount": 0.9, **changes})


TASK, SIM = task(), pt.TabularSimulator(KERNEL)
DATA = pt.Transitions([0, 1, 0], [0, 1, 1], [1, 1, 0])
TASKS = {"task": TASK, "sim": SIM, "threshold": 0.1, "delta": 0.1, "max_samples": 5}


def simulated(answer):
    """A run on a simulator that answers with this."""
    return pt.decide(TASK, lambda states, actions, rng: answer, threshold=0.1, method=pt.PTST(), max_samples=1)


ARRAYS = {  # how it is called: what is said to be wrong, the array in its place, the call
    "Task.rewards": ("rewards", REWARDS, lambda value: task(rewards=value)),
    "Task.rewards on arrival": ("rewards", KERNEL, lambda value: task(rewards=value)),
    "Task.policy": ("policy", POLICY, lambda value: task(policy=value)),
    "Task.initial": ("initial", INITIAL, lambda value: task(initial=value)),
    "Task.support": ("support", np.ones((2, 2, 2)), lambda value: task(support=value)),
    "value.q": ("q", KERNEL, lambda value: pt.value(TASK, value)),
    "TabularSimulator.kernel": ("kernel", KERNEL, pt.TabularSimulator),
    "draw.states": ("states", np.array([0]), lambda value: SIM.draw(value, [0], np.random.default_rng(0))),
    "draw.actions": ("actions", np.array([0]), lambda value: SIM.draw([0], value, np.random.default_rng(0))),
    "the simulator's answer": ("sim.draw", np.array([0]), simulated),
    "Counts.from_array": ("N", np.ones((2, 2, 2)), pt.Counts.from_array),
    "record.s": ("s", np.array([0]), lambda value: pt.Counts(2, 2).record(value, 0, 0)),
    "record.count": ("count", np.array([3]), lambda value: pt.Counts(2, 2).record(0, 0, 0, value)),
    "Transitions.s": ("s", np.array([0]), lambda value: pt.Transitions(value, [0], [0])),
    "Transitions.x": ("x", np.array([0]), lambda value: pt.Transitions([0], [0], value)),
    "KLBall.centre": ("centre", KERNEL, lambda value: pt.KLBall(value, np.ones((2, 2)), 0.1)),
    "KLBall.weights": ("weights", np.ones((2, 2)), lambda value: pt.KLBall(KERNEL, value, 0.1)),
    "loss.q": ("q", KERNEL, lambda value: pt.KLBall(KERNEL, np.ones((2, 2)), 0.1).loss(value)),
    "nearest_kernel.centre": ("centre", KERNEL, lambda value: pt.nearest_kernel(TASK, value, np.ones((2, 2)), 0.1)),
    "nearest_kernel.weights": ("weights", np.ones((2, 2)), lambda value: pt.nearest_kernel(TASK, KERNEL, value, 0.1)),
    "robust_value.budgets": ("budgets", np.ones((2, 2)), lambda value: robust_value(TASK, KERNEL, value)),
    "project_box.x": ("x", KERNEL, lambda value: project_box(value, KERNEL, np.ones((2, 2)))),
    "allocation": (
        "allocation",
        np.full((2, 2), 0.25),
        lambda value: pt.characteristic_time(TASK, KERNEL, value, threshold=0.1),
    ),
    "PTST.allocation": (
        "allocation",
        np.full((2, 2), 0.25),
        lambda value: pt.decide(**TASKS, method=pt.PTST(allocation=value)),
    ),
    "identify.rewards": ("rewards", REWARDS, lambda value: pt.identify(value, INITIAL, 0.9, SIM, max_samples=1)),
    "identify.policies": (
        "policies[0]",
        POLICY,
        lambda value: pt.identify(REWARDS, INITIAL, 0.9, SIM, policies=[value, POLICY], max_samples=1),
    ),
    "plan.guess": ("guess", KERNEL, lambda value: pt.plan(TASK, value, threshold=0.1, runs=2, max_samples=10)),
    "stopping_times.deltas": (
        "deltas",
        np.array([0.1]),
        lambda value: pt.stopping_times(TASK, SIM, 0.1, value, max_samples=5),
    ),
    "MixtureBoundary.prior": ("prior", np.array([0.5]), pt.MixtureBoundary),
    "discretise.edges": ("edges", np.array([[0.0, 1.0]]), lambda value: discretise(edges=value)),
    "discretise.sample": ("sample", np.array([0.0, 1.0]), lambda value: discretise(sample=value, bins=1)),
    "diagnose.episodes": ("episodes", np.zeros(3), lambda value: pt.diagnose(TASK, DATA, episodes=value)),
}


def masked(good):
    mask = np.zeros(good.shape, dtype=bool)
    mask.flat[-1] = True
    return np.ma.array(good, mask=mask)


NOT_NUMBERS = {
    "masked": masked,
    "list of masked rows": lambda good: list(masked(good)),
    "ragged": lambda good: [good.tolist(), [good.tolist()]],
}
NO_LABELS_EITHER = {  # episodes may be called by text, bytes, dates or large numbers
    "text": lambda good: good.astype(str),
    "bytes": lambda good: good.astype("S"),
    "dates": lambda good: good.astype("M8[D]"),
    "durations": lambda good: good.astype("m8[s]"),
    "records": lambda good: np.array([(entry,) for entry in good.ravel()], dtype=[("r", float)]).reshape(good.shape),
    "complex": lambda good: good + 1j,
    "objects": lambda good: np.where(good == good, datetime.date(2026, 1, 1), good).astype(object),
    "text in objects": lambda good: good.astype(str).astype(object),
    "None": lambda good: None,
    "dict": lambda good: {0: good},
    "out of range": lambda good: np.full(good.shape, 10**400, dtype=object).tolist(),
    "NaN": lambda good: np.full(good.shape, np.nan),
}


@pytest.mark.filterwarnings("ignore::policytest.AssumptionWarning")
@each("place", ARRAYS)
def test_what_is_not_an_array_of_numbers_is_refused_by_its_name(place):
    name, good, call = ARRAYS[place]
    call(good)
    call(np.ma.array(good))  # nothing is masked
    labels = place == "diagnose.episodes"
    for kind, bad in (NOT_NUMBERS | ({} if labels else NO_LABELS_EITHER)).items():
        if kind == "None" and name in ("support", "allocation", "N"):
            continue  # the default
        with pytest.raises(pt.InputError) as caught:
            call(bad(good))
        assert name in str(caught.value), (kind, str(caught.value))
        assert len(str(caught.value)) < 500, kind


def test_numbers_of_any_kind_are_taken():
    """Fractions, whole numbers, booleans and single precision stand for their values."""
    given = [[Fraction(1, 2), 1], [np.float32(0.25), True]]
    np.testing.assert_array_equal(task(rewards=given).rewards, [[0.5, 1.0], [0.25, 1.0]])


NUMBERS = {
    "discount": lambda value: task(discount=value),
    "threshold": lambda value: pt.decide(**TASKS | {"threshold": value}),
    "delta": lambda value: pt.decide(**TASKS | {"delta": value}),
    "max_samples": lambda value: pt.decide(**TASKS | {"max_samples": value}),
    "indifference": lambda value: pt.decide(**TASKS, indifference=value),
    "margin": lambda value: pt.compare(TASK, task(policy=np.eye(2)), SIM, margin=value, max_samples=1),
    "epsilon": lambda value: pt.evaluate(TASK, SIM, value, max_samples=1),
    "n_states": lambda value: pt.Counts(value, 1),
    "radius": lambda value: pt.KLBall(KERNEL, np.ones((2, 2)), value),
    "horizon": lambda value: pt.MonteCarlo(horizon=value),
    "batch": lambda value: pt.PTST(batch=value),
    "restart": lambda value: pt.Forward(restart=value),
    "explore": lambda value: pt.Optimal(KERNEL, explore=value),
    "prior": lambda value: pt.MixtureBoundary(prior=value),
    "starts": lambda value: pt.ProjectionFree(starts=value),
    "gap": lambda value: pt.Certified(gap=value),
    "smoothness": lambda value: pt.SLSQPHeuristic(smoothness=value),
    "zeta": lambda value: pt.PTST(zeta=value),
    "periods": lambda value: pt.diagnose(TASK, DATA, periods=value),
    "level": lambda value: pt.diagnose(TASK, DATA, level=value),
    "runs": lambda value: pt.plan(TASK, KERNEL, threshold=0.1, runs=value, max_samples=10),
    "tolerance": lambda value: pt.optimal_allocation(TASK, KERNEL, threshold=0.1, tolerance=value),
}


@each("name", NUMBERS)
def test_what_is_not_a_number_is_refused_by_its_name(name):
    for bad in (10**400, -(10**400), "1", b"1", [1, [2, 3]], np.ma.masked, np.datetime64("2026-01-01"), {}, np.nan):
        with pytest.raises(pt.InputError) as caught:
            NUMBERS[name](bad)
        assert name in str(caught.value), (bad, str(caught.value))
        assert len(str(caught.value)) < 500


def damaged(part, change):
    """A CSR array of shape (4, 2) with one of its parts changed."""
    table = sparse.csr_array(KERNEL.reshape(4, 2))
    setattr(table, part, change(getattr(table, part).copy()))
    return table


def put(place, number):
    def change(part):
        part[place] = number
        return part

    return change


DAMAGED = {
    "pointers beyond the end": ("indptr", put(-1, 1_000_000)),
    "pointers that fall": ("indptr", put(1, 5)),
    "pointers below 0": ("indptr", put(0, -7)),
    "too few pointers": ("indptr", lambda part: part[:-1]),
    "column out of range": ("indices", put(0, 2)),
    "column below 0": ("indices", put(0, -1)),
    "too few columns": ("indices", lambda part: part[:-1]),
    "columns that are not whole": ("indices", lambda part: part + 0.5),
    "text": ("data", lambda part: part.astype(str)),
    "dates": ("data", lambda part: part.astype("M8[D]")),
    "masked": ("data", masked),
    "NaN": ("data", put(0, np.nan)),
}
SPARSE = {
    "rewards": lambda table: task(rewards=table, support=np.ones((2, 2, 2))),
    "support": lambda table: task(support=table),
    "q": lambda table: pt.value(TASK, table),
    "kernel": pt.TabularSimulator,
    "N": pt.Counts.from_array,
    "centre": lambda table: pt.KLBall(table, np.ones((2, 2)), 0.1),
    "guess": lambda table: pt.plan(TASK, table, threshold=0.1, runs=2, max_samples=10),
}


@pytest.mark.parametrize("name", SPARSE)
def test_damaged_sparse_arrays_are_refused(name):
    """Compiled code reads wherever the parts of a sparse array point, so they are checked before it does."""
    for kind, (part, change) in DAMAGED.items():
        with pytest.raises(pt.InputError) as caught:
            SPARSE[name](damaged(part, change))
        assert str(caught.value).startswith(name), (kind, str(caught.value))
    entries = sparse.coo_array(KERNEL.reshape(4, 2))
    entries.coords = (entries.coords[0] + 10_000_000, entries.coords[1])
    with pytest.raises(pt.InputError, match=f"^{name} is a damaged sparse array"):
        SPARSE[name](entries)


def test_repeated_entries_add_up_where_that_means_something():
    """Probabilities and counts add up; a reward is one number, and so is whether a successor is allowed."""
    where = ([0, 0, 0, 1, 2, 3], [0, 1, 0, 1, 0, 1])
    law = sparse.coo_array(([0.3, 0.4, 0.3, 1.0, 1.0, 1.0], where), shape=(4, 2))
    assert pt.value(TASK, law) == pt.value(TASK, law.toarray().reshape(2, 2, 2))
    assert pt.Counts.from_array(sparse.coo_array((np.ones(6, dtype=int), where), shape=(4, 2))).N[[0]].sum() == 3
    for name in ("rewards", "support"):
        for form in (sparse.coo_array, as_csr):
            with pytest.raises(pt.InputError, match=f"{name} has row 0, column 0 twice"):
                SPARSE[name](form(sparse.coo_array((np.ones(6), where), shape=(4, 2))))


def as_csr(entries):
    """The same entries as CSR, with those that repeat kept apart."""
    order = np.argsort(entries.row, kind="stable")
    start = np.searchsorted(entries.row[order], np.arange(5))
    return sparse.csr_array((entries.data[order], entries.col[order], start), shape=(4, 2))


def test_a_masked_policy_is_refused_by_sources_too():
    with pytest.raises(pt.InputError, match="masked"):
        policy.policy_table(masked(POLICY), labels.places_of(2, 2, None, None))


# ---------------------------------------------------------------- one law everywhere

NEARLY = 1.0 + np.array([8e-10, -9e-10])


@pytest.mark.parametrize("form", [np.asarray, lambda law: sparse.csr_array(np.reshape(law, (-1, 2)))])
def test_rows_that_nearly_sum_to_one_are_one_law_everywhere(form):
    """At discount 0.999 sums off by 1e-9 would move the value by 1e-6 of it: enough to contradict a test at R = V."""
    exact = task(discount=0.999)
    rough = task(discount=0.999, policy=POLICY * NEARLY[:, None], initial=INITIAL * NEARLY[0])
    law = form(KERNEL * NEARLY[:, None, None])
    for found, meant in ((rough.policy, POLICY), (rough.initial, INITIAL)):
        np.testing.assert_allclose(found, meant, rtol=1e-15)
    assert pt.value(rough, law) == pytest.approx(pt.value(exact, KERNEL), rel=1e-12)
    assert pt.TabularSimulator(law).table().cumulative == pytest.approx(
        pt.TabularSimulator(form(KERNEL)).table().cumulative, rel=1e-15
    )
    assert pt.KLBall(law, np.ones((2, 2)), 0.0).loss(form(KERNEL)) == pytest.approx(0.0, abs=1e-15)
    assert pt.decide(rough, SIM, threshold=pt.value(rough, law), max_samples=0).answer is None


def test_dividing_rows_by_their_sums_twice_changes_nothing():
    """So a task written to a file, copied or given another discount keeps its policy to the last bit."""
    rng = np.random.default_rng(0)
    for width in (1, 2, 3, 10, 1000):
        rows = rng.dirichlet(np.ones(width), size=50) * (1 + rng.uniform(-9e-10, 9e-10, size=(50, 1)))
        once = pt.Task(np.zeros((50, width)), rows, np.full(50, 0.02), 0.9).policy
        twice = pt.Task(np.zeros((50, width)), once, np.full(50, 0.02), 0.9).policy
        np.testing.assert_array_equal(once, twice)
        assert np.abs(once.sum(axis=1) - 1.0).max() <= width * 2.0**-52
