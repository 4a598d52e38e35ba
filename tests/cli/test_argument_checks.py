"""Bad input: every error names the argument, the place, the value, and the remedy where there is one."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import assert_refused, each
from policytest._base.errors import InputError
from policytest.paper.product_box import robust_value
from policytest.paper.row_problems import project_box
from problems import as_csr

NAN, INF = float("nan"), float("inf")
Q = np.array([[[0.5, 0.5], [0.25, 0.75]], [[1.0, 0.0], [0.0, 1.0]]])
ONES = np.ones((2, 2))


def make_task(**changes):
    known = {
        "rewards": [[1.0, 0.0], [0.5, -1.0]],
        "policy": np.full((2, 2), 0.5),
        "initial": [0.5, 0.5],
        "discount": 0.9,
    }
    return pt.Task(**{**known, **changes})


TASK = make_task()
NARROW = make_task(support=[[[1, 1], [1, 1]], [[1, 0], [1, 1]]], states=["wet", "dry"], actions=["go", "stay"])


def changed(table, place, value):
    """A copy of a table with one entry changed."""
    copy = np.array(table, dtype=complex if isinstance(value, complex) else float)
    copy[place] = value
    return copy


# ---------------------------------------------------------------- tasks

RAGGED = [[1.0, 0.0], [0.5]]
NUMBERS = "is not an array of numbers"
TASKS = [
    # rewards
    ({"rewards": np.ones((2, 3))}, "rewards has shape (2, 3), expected (2, 2)"),
    ({"rewards": [1.0, 0.0]}, "rewards has shape (2,), expected (2, 2)"),
    ({"rewards": 1.0}, "rewards has shape (), expected (2, 2)"),
    ({"rewards": np.ones((2, 2, 3))}, "rewards has shape (2, 2, 3), expected (2, 2, 2)"),
    ({"rewards": np.ones((2, 2, 2, 2))}, "rewards has shape (2, 2, 2, 2)"),
    ({"rewards": [[1.0, 0.0], [NAN, 0.0]]}, "rewards[1, 0] is nan", "finite"),
    ({"rewards": changed(Q, (1, 0, 1), -INF)}, "rewards[1, 0, 1] is -inf", "finite"),
    ({"rewards": "high"}, f"rewards {NUMBERS}"),
    ({"rewards": [["a", "b"], ["c", "d"]]}, f"rewards {NUMBERS}"),
    ({"rewards": RAGGED}, f"rewards {NUMBERS}"),
    ({"rewards": {"s": 1.0}}, f"rewards {NUMBERS}"),
    ({"rewards": changed(ONES, (0, 1), 1j)}, f"rewards {NUMBERS}"),
    ({"rewards": as_csr(ONES)}, "rewards is sparse with shape (2, 2), expected (4, 2)", "row s*A + a"),
    ({"rewards": as_csr(changed(Q, (1, 1, 1), NAN))}, "rewards has nan in row 3, column 1", "finite"),
    # policy
    ({"policy": [0.5, 0.5]}, "policy has shape (2,), expected (any, any)"),
    ({"policy": []}, "policy has shape (0,)"),
    ({"policy": np.ones((0, 2))}, "policy has shape (0, 2)", "at least one state and one action"),
    ({"policy": np.ones((2, 0))}, "policy has shape (2, 0)", "at least one state and one action"),
    ({"policy": [[0.5, 0.5], [0.5, 0.499]]}, "policy[1] sums to 0.999, not 1", "normalise=True"),
    ({"policy": [[0.5, 0.5], [0.5, 0.5000001]]}, "policy[1] sums to 1.0000001, not 1", "normalise=True"),
    ({"policy": [[1.5, -0.5], [0.5, 0.5]]}, "policy[0, 1] is -0.5", "negative"),
    ({"policy": [[1.5, -0.5], [0.5, 0.5]], "normalise": True}, "policy[0, 1] is -0.5", "negative"),
    ({"policy": [[0.0, 0.0], [0.5, 0.5]], "normalise": True}, "policy[0] sums to 0", "cannot be normalised"),
    ({"policy": [[0.5, 0.5], [NAN, 0.5]]}, "policy[1, 0] is nan"),
    ({"policy": "uniform"}, f"policy {NUMBERS}"),
    ({"policy": RAGGED}, f"policy {NUMBERS}"),
    ({"policy": sparse.csr_array(ONES / 2)}, f"policy {NUMBERS}"),
    ({"policy": changed(ONES / 2, (0, 0), 0.5 + 1j)}, f"policy {NUMBERS}"),
    # initial
    ({"initial": [0.2, 0.3, 0.5]}, "initial has shape (3,), expected (2)"),
    ({"initial": [[0.5, 0.5]]}, "initial has shape (1, 2)"),
    ({"initial": [0.5, 0.4]}, "initial sums to 0.9, not 1", "normalise=True"),
    ({"initial": [0.0, 0.0], "normalise": True}, "initial sums to 0, not 1", "cannot be normalised"),
    ({"initial": [1.25, -0.25]}, "initial[1] is -0.25", "negative"),
    ({"initial": [INF, 0.5]}, "initial[0] is inf"),
    ({"initial": "start"}, f"initial {NUMBERS}"),
    # discount
    ({"discount": 1}, "discount is 1", "may be infinite", "below 1"),
    ({"discount": 1.0000001}, "discount is 1.0000001", "[0, 1]"),
    ({"discount": -0.1}, "discount is -0.1", "[0, 1]"),
    ({"discount": NAN}, "discount is nan"),
    ({"discount": None}, "discount is"),
    ({"discount": [0.9]}, "discount has shape (1,), expected ()"),
    ({"discount": "high"}, f"discount {NUMBERS}"),
    # support
    ({"support": ONES}, "support has shape (2, 2), expected (2, 2, 2)"),
    ({"support": "all"}, "support"),
    ({"support": [[[1, 1], [1, 1]], [[1, 1], [1]]]}, "support"),
    ({"support": [[["a", "b"], ["a", "b"]], [["a", "b"], ["a", "b"]]]}, "support", "not an array of numbers"),
    ({"support": Q}, "support[0, 0, 0] is 0.5", "True and False"),
    ({"support": changed(Q > 0, (1, 0, 1), NAN)}, "support[1, 0, 1] is nan", "finite"),
    ({"support": as_csr(Q)}, "support", "0.5", "True and False"),
    ({"support": as_csr(-(Q > 0).astype(float))}, "support", "-1", "True and False"),
    ({"support": as_csr(ONES)}, "support is sparse with shape (2, 2), expected (4, 2)"),
    ({"support": changed(Q > 0, (1, 0), 0)}, "support at (s=1, a=0) allows no successor"),
    ({"support": as_csr(changed(Q > 0, (1, 0), 0))}, "support at (s=1, a=0) allows no successor"),
    (
        {"support": changed(Q > 0, (0, 1), 0), "states": "ab", "actions": "xy"},
        "support at (s=0 'a', a=1 'y') allows no",
    ),
    # names
    ({"states": ["wet"]}, "states has 1 names, expected 2"),
    ({"actions": "xyz"}, "actions has 3 names, expected 2"),
    ({"states": ["wet", "wet"]}, "states[1] repeats 'wet'", "distinct"),
    ({"actions": [("x", 1), ("x", 1)]}, "actions[1] repeats ('x', 1)", "distinct"),
    ({"states": [["wet"], ["dry"]]}, "states[0]", "hashable"),
    ({"states": 2}, "states"),
]


@each("case", TASKS)
def test_tasks_that_make_no_sense(case):
    changes, *fragments = case
    assert_refused(lambda: make_task(**changes), *fragments)


# ---------------------------------------------------------------- kernels

KERNELS = [
    (Q[:1], "{name} has shape (1, 2, 2), expected (2, 2, 2)"),
    (Q.reshape(4, 2), "{name} has shape (4, 2), expected (2, 2, 2)"),
    (changed(Q, (1, 0, 1), NAN), "{name}[1, 0, 1] is nan"),
    (changed(Q, (0, 1, 0), INF), "{name}[0, 1, 0] is inf"),
    (changed(changed(Q, (1, 1, 0), -0.5), (1, 1, 1), 1.5), "{name}", "(s=1, a=1, x=0)", "-0.5", "negative"),
    (changed(Q, (1, 0, 0), 0.9), "{name} at (s=1, a=0) sums to 0.9, not 1", "divide each row by its sum"),
    ("p", "{name} " + NUMBERS),
    (None, "{name}"),
    ([[[1.0, 0.0], [1.0]], [[1.0, 0.0], [1.0, 0.0]]], "{name} " + NUMBERS),
    (Q + 0.1j, "{name} " + NUMBERS),
    (as_csr(Q)[:3], "{name} is sparse with shape (3, 2), expected (4, 2)", "row s*A + a"),
    (as_csr(changed(Q, (1, 0, 1), NAN)), "{name} has nan in row 2, column 1", "finite"),
    (as_csr(changed(changed(Q, (1, 1, 0), -0.5), (1, 1, 1), 1.5)), "{name}", "(s=1, a=1, x=0)", "-0.5", "negative"),
    (as_csr(changed(Q, (1, 0, 0), 0.9)), "{name} at (s=1, a=0) sums to 0.9, not 1", "divide each row by its sum"),
]
TAKERS = {
    "value": ("q", pt.value),
    "state_values": ("q", pt.state_values),
    "occupancy": ("q", pt.occupancy),
    "nearest_kernel": ("centre", lambda task, kernel: pt.nearest_kernel(task, kernel, ONES, 0.0)),
    "robust_value": ("centre", lambda task, kernel: robust_value(task, kernel, ONES)),
    "characteristic_time": ("kernel", pt.characteristic_time),
    "optimal_allocation": ("kernel", pt.optimal_allocation),
}


@each("taker", TAKERS)
@each("case", KERNELS)
def test_kernels_that_are_none(taker, case):
    """Every function that takes a kernel refuses the same ones, under the name it gave its own argument."""
    name, call = TAKERS[taker]
    kernel, *fragments = case
    assert_refused(lambda: call(TASK, kernel), *(fragment.format(name=name) for fragment in fragments))


@each("taker", TAKERS)
@each("form", [np.asarray, as_csr])
def test_kernels_that_contradict_the_support(taker, form):
    name, call = TAKERS[taker]
    contradicts = form(changed(Q, (1, 0), [0.75, 0.25]))
    message = f"{name} puts mass 0.25 on successors of (s=1 'dry', a=0 'go') that the task's support excludes"
    assert_refused(lambda: call(NARROW, contradicts), message, "widen the support or fix the kernel")
    call(NARROW, form(Q))  # negative control


@each("taker", TAKERS)
def test_rows_within_rounding_of_one_are_let_through(taker):
    _, call = TAKERS[taker]
    call(TASK, changed(Q, (0, 0, 0), 0.5 + 5e-10))
    with pytest.raises(InputError, match=r"\(s=0, a=0\) sums to 1.00000001, not 1"):
        call(TASK, changed(Q, (0, 0, 0), 0.5 + 1e-8))


# ---------------------------------------------------------------- balls, weights, thresholds, allocations

BALLS = [
    ({"weights": [1.0, 1.0]}, "weights has shape (2,), expected (any, any)"),
    ({"weights": changed(ONES, (1, 0), -1.5)}, "weights[1, 0] is -1.5", "negative"),
    ({"weights": changed(ONES, (0, 1), NAN)}, "weights[0, 1] is nan"),
    ({"weights": changed(ONES, (0, 1), INF)}, "weights[0, 1] is inf"),
    ({"weights": RAGGED}, f"weights {NUMBERS}"),
    ({"weights": "even"}, f"weights {NUMBERS}"),
    ({"radius": -0.1}, "radius is -0.1", "at least 0"),
    ({"radius": NAN}, "radius is nan"),
    ({"radius": INF}, "radius is inf"),
    ({"radius": [1.0]}, "radius has shape (1,), expected ()"),
    ({"radius": "large"}, f"radius {NUMBERS}"),
    ({"centre": Q[:, :1]}, "centre has shape (2, 1, 2), expected (2, 2, 2)"),
    ({"centre": as_csr(Q)[:2]}, "centre is sparse with shape (2, 2), expected (4, 2)"),
    ({"centre": changed(Q, (0, 0, 1), NAN)}, "centre[0, 0, 1] is nan"),
    ({"centre": "p"}, f"centre {NUMBERS}"),
    ({"centre": changed(changed(Q, (0, 0, 0), -0.5), (0, 0, 1), 1.5)}, "centre", "-0.5", "negative"),
    ({"centre": changed(Q, (0, 0, 1), 0.4)}, "centre", "sums to 0.9"),
    ({"centre": as_csr(changed(Q, (0, 0, 1), 0.4))}, "centre", "sums to 0.9"),
]


@each("case", BALLS)
def test_balls_that_are_none(case):
    changes, *fragments = case
    assert_refused(lambda: pt.KLBall(**{"centre": Q, "weights": ONES, "radius": 1.0, **changes}), *fragments)


@each(
    ("q", "fragments"),
    [
        (Q[:1], ["q has shape (1, 2, 2), expected (2, 2, 2)"]),
        (as_csr(Q)[:3], ["q is sparse with shape (3, 2), expected (4, 2)"]),
        (changed(Q, (1, 1, 0), NAN), ["q[1, 1, 0] is nan"]),
        ("q", [f"q {NUMBERS}"]),
        (changed(changed(Q, (1, 0, 0), 1.2), (1, 0, 1), -0.2), ["q", "-0.2", "negative"]),
        (changed(Q, (0, 0, 1), 0.4), ["q", "sums to 0.9"]),
    ],
)
def test_balls_are_not_asked_about_other_things(q, fragments):
    ball = pt.KLBall(Q, ONES, 1.0)
    assert_refused(lambda: ball.loss(q), *fragments)
    assert_refused(lambda: q in ball, *fragments)


def test_rows_without_weight_may_hold_anything_in_a_ball():
    """A row never sampled has no estimate; zeros stand for it, and it is free."""
    centre, weights = changed(Q, (0, 1), 0.0), changed(ONES, (0, 1), 0.0)
    assert pt.KLBall(centre, weights, 0.0).loss(Q) == 0.0


@each("sense", ["low", "MIN", None, 1])
def test_other_senses(sense):
    ball = pt.KLBall(Q, ONES, 0.1)
    assert_refused(lambda: pt.extreme_value(TASK, ball, sense=sense), f"sense is {sense!r}", '"min" or "max"')
    assert_refused(lambda: robust_value(TASK, Q, ONES, sense=sense), f"sense is {sense!r}", '"min" or "max"')


def test_a_ball_of_another_size():
    ball = pt.KLBall(np.full((3, 2, 3), 1 / 3), np.ones((3, 2)), 0.1)
    assert_refused(lambda: pt.extreme_value(TASK, ball), "centre has shape (3, 2, 3), expected (2, 2, 2)")


@each(
    ("threshold", "message"),
    [
        (NAN, "threshold is nan"),
        (INF, "threshold is inf"),
        ("zero", f"threshold {NUMBERS}"),
        ([0.0], "threshold has shape"),
    ],
)
def test_thresholds_that_are_no_numbers(threshold, message):
    assert_refused(lambda: pt.nearest_kernel(TASK, Q, ONES, threshold), message)
    assert_refused(lambda: pt.characteristic_time(TASK, Q, threshold=threshold), message)
    assert_refused(lambda: pt.optimal_allocation(TASK, Q, threshold=threshold), message)


@each(
    ("weights", "message"),
    [
        (np.ones((2, 3)), "weights has shape (2, 3), expected (2, 2)"),
        (ONES.ravel(), "weights has shape (4,), expected (2, 2)"),
        (changed(ONES, (1, 0), -2.0), "weights[1, 0] is -2"),
        (changed(ONES, (1, 0), NAN), "weights[1, 0] is nan"),
    ],
)
def test_weights_that_are_none(weights, message):
    assert_refused(lambda: pt.nearest_kernel(TASK, Q, weights, 0.0), message)


@each(
    ("allocation", "fragments"),
    [
        (np.full((2, 2), 0.2), ["allocation sums to 0.8, not 1"]),
        ([[0.5, 0.75], [-0.5, 0.25]], ["allocation[1, 0] is -0.5", "negative"]),
        ([[0.5, 0.5], [NAN, 0.0]], ["allocation[1, 0] is nan"]),
        (np.full(4, 0.25), ["allocation has shape (4,), expected (2, 2)"]),
        ("uniform?", [f"allocation {NUMBERS}"]),
    ],
)
def test_allocations_that_are_none(allocation, fragments):
    assert_refused(lambda: pt.characteristic_time(TASK, Q, allocation), *fragments)


def test_a_remedy_is_offered_only_where_it_exists():
    """`characteristic_time` has no argument `normalise`, so its error does not send the reader there."""
    with pytest.raises(InputError, match="allocation") as caught:
        pt.characteristic_time(TASK, Q, np.full((2, 2), 0.2))
    assert "normalise=True" not in str(caught.value)


def test_nothing_to_sample():
    known = make_task(support=np.tile([True, False], (2, 2, 1)))
    only = np.tile([1.0, 0.0], (2, 2, 1))
    assert_refused(lambda: pt.characteristic_time(known, only), "every row the policy takes is known")


@each(
    ("changes", "fragments"),
    [
        ({"x": Q[0]}, ["x has shape (2, 2), expected (any, any, any)"]),
        ({"x": np.ones((2, 2, 3))}, ["x has shape (2, 2, 3)"]),
        ({"x": changed(Q, (0, 0, 0), NAN)}, ["x[0, 0, 0] is nan"]),
        ({"centre": Q[:1]}, ["centre has shape (1, 2, 2), expected (2, 2, 2)"]),
        ({"budgets": np.ones((2, 1))}, ["budgets has shape (2, 1), expected (2, 2)"]),
        ({"budgets": changed(ONES, (0, 1), -0.1)}, ["budgets[0, 1] is -0.1", "negative"]),
    ],
)
def test_boxes_that_are_none(changes, fragments):
    arguments = {"x": Q, "centre": Q, "budgets": ONES, **changes}
    assert_refused(lambda: project_box(**arguments), *fragments)


@each(
    ("budgets", "message"),
    [
        (np.ones((2, 1)), "budgets has shape (2, 1), expected (2, 2)"),
        (changed(ONES, (0, 1), -0.1), "budgets[0, 1] is -0.1"),
        (changed(ONES, (0, 1), NAN), "budgets[0, 1] is nan"),
    ],
)
def test_budgets_are_called_budgets(budgets, message):
    assert_refused(lambda: robust_value(TASK, Q, budgets), message)


# ---------------------------------------------------------------- the errors themselves


def test_input_errors_are_value_errors():
    assert pt.InputError is InputError
    assert issubclass(InputError, ValueError)
    assert issubclass(pt.AssumptionWarning, UserWarning)
    with pytest.raises(ValueError, match="discount"):
        make_task(discount=2.0)


def test_nothing_is_repaired_silently():
    """Rows are rescaled on request only, and then exactly the rows of policy and initial."""
    rounded = [[0.333, 0.667], [0.5, 0.499]]
    assert_refused(lambda: make_task(policy=rounded), "policy[1] sums to 0.999")
    task = make_task(policy=rounded, initial=[1.0, 3.0], normalise=True)
    assert task.policy.sum(axis=1) == pytest.approx(1.0, abs=1e-15)
    assert task.initial.tolist() == [0.25, 0.75]
    assert task.rewards.tolist() == TASK.rewards.tolist()


# ---------------------------------------------------------------- not errors: thresholds that settle the matter


@each("form", [np.asarray, as_csr])
@each("task", [TASK, NARROW])
def test_thresholds_outside_the_value_range_are_infinitely_far(task, form):
    low, high = pt.value_range(task)
    for threshold in (low - 1e-6, low - 1e6, high + 1e-6, high + 1e6):
        bracket = pt.nearest_kernel(task, form(Q), ONES, threshold)
        assert (bracket.lower, bracket.upper, bracket.kernel) == (INF, INF, None)
        assert bracket.status is pt.Status.UNREACHABLE
        assert bracket.certified
        bound = pt.characteristic_time(task, form(Q), threshold=threshold)
        assert (bound.time, bound.bracket, bound.kernel) == (0.0, (0.0, 0.0), None)


@each("form", [np.asarray, as_csr])
def test_at_the_value_itself_the_distance_is_zero(form):
    value = pt.value(TASK, form(Q))
    bracket = pt.nearest_kernel(TASK, form(Q), ONES, value)
    assert (bracket.lower, bracket.upper) == (0.0, 0.0)
    assert bracket.status is pt.Status.IMMEDIATE
    assert bracket.certified
    assert pt.value(TASK, bracket.kernel) == value
    assert pt.characteristic_time(TASK, form(Q), threshold=value).time == INF


def test_inside_the_range_the_distance_is_finite_and_positive():
    """Negative control for the two above."""
    low, high = pt.value_range(TASK)
    for threshold in (low + 1e-3, high - 1e-3):
        bracket = pt.nearest_kernel(TASK, Q, ONES, threshold)
        assert 0.0 < bracket.upper < INF
        assert bracket.kernel is not None


@each(
    ("call", "words"),
    [
        (lambda task, p, w: pt.value(p, task), "task is a ndarray, expected a Task"),
        (lambda task, p, w: pt.extreme_value(task, p), "ball is a ndarray, expected a KLBall"),
        (lambda task, p, w: pt.nearest_kernel(task, p, w, 0.0, solver=pt.ProjectionFree), "; got the class"),
        (
            lambda task, p, w: pt.nearest_kernel(task, p, w, 0.0, solver="slsqp"),
            "solver must be an instance, .*; got 'slsqp'",
        ),
        (lambda task, p, w: pt.nearest_kernel(task, p, w, 0.0, warm=p), "warm is a ndarray, expected a Bracket"),
        (lambda task, p, w: pt.ProjectionFree(starts=0), "starts is 0"),
        (lambda task, p, w: pt.SLSQPHeuristic(steps=-1), "steps is -1"),
    ],
)
def test_arguments_of_another_kind(call, words):
    instance = pt.instances.paper(2)
    with pytest.raises(pt.InputError, match=words):
        call(instance.task, instance.kernel, np.ones((2, 2)))
