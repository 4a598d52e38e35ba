"""Pictures: what is drawn is what was given, nothing more; and a trace changes nothing about the run it watches."""

from __future__ import annotations

import math
import pickle
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from matplotlib.figure import Figure

from policytest import instances, plots
from policytest._base.errors import InputError
from policytest.data.counts import Counts
from policytest.data.simulators import TabularSimulator
from policytest.kl.boundaries import MixtureBoundary
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.mdp.values import occupancy
from policytest.methods.baselines.boxes import RectangularKL
from policytest.methods.baselines.monte_carlo import MonteCarlo
from policytest.methods.ptst import PTST
from policytest.plots import Trace, style
from policytest.plots.changes import top_changes
from policytest.plots.maps import MOST_BLOCKS, MOST_ROWS, hide
from policytest.plots.studies import rows_of
from policytest.questions.decide import checks, decide, stopping_times
from policytest.questions.evaluate import evaluate
from policytest.worst_case import nearest_kernel
from policytest.worst_case.certified import Certified
from policytest.worst_case.projection_free import ProjectionFree

TWO, THREE = instances.paper(2), instances.paper(3)
SIM, SIM3 = TabularSimulator(TWO.kernel), TabularSimulator(THREE.kernel)
METHODS = {"default": None, "ptst": PTST(solver=ProjectionFree())}


@pytest.fixture(scope="module")
def traced():
    """A run of every method with its trace."""
    found = {}
    for name, method in METHODS.items():
        trace = Trace()
        found[name] = decide(THREE.task, SIM3, 0.0, 0.05, trace.watch(method), max_samples=3000), trace
    return found


def drawn(ax):
    """The axes, after all of the figure was drawn: whatever is wrong with it has been said by then."""
    ax.figure.draw_without_rendering()
    return ax


def texts(ax):
    legend = ax.get_legend()
    return [
        *(text.get_text() for text in ax.texts),
        *(label.get_text() for label in (*ax.get_xticklabels(), *ax.get_yticklabels())),
        *([text.get_text() for text in legend.get_texts()] if legend else []),
    ]


def line(ax, label):
    return next(found for found in ax.lines if found.get_label() == label)


# ---------------------------------------------------------------- the trace


@pytest.mark.parametrize("name", METHODS)
def test_a_watched_run_is_the_same_run(traced, name):
    watched, trace = traced[name]
    plain = decide(THREE.task, SIM3, 0.0, 0.05, METHODS[name], max_samples=3000)
    for attribute in ("answer", "samples", "evidence", "interval", "estimate", "certified", "method"):
        assert getattr(watched, attribute) == getattr(plain, attribute), attribute
    assert watched.counts == plain.counts
    assert (np.diff(trace.samples) > 0).all()
    assert 10 < len(trace) < math.log(3000) / math.log(1.08) + 20
    assert np.isfinite(trace.evidence).all()
    assert trace.required == plain.required


@pytest.mark.parametrize("method", [MonteCarlo(), RectangularKL(), PTST.as_printed()], ids=lambda m: type(m).__name__)
def test_so_is_that_of_any_other_method(method):
    trace = Trace()
    watched = decide(TWO.task, SIM, 0.1, 0.2, trace.watch(method), max_samples=2000)
    plain = decide(TWO.task, SIM, 0.1, 0.2, method, max_samples=2000)
    assert (watched.samples, watched.answer, watched.evidence) == (plain.samples, plain.answer, plain.evidence)
    assert watched.counts == plain.counts


@pytest.mark.parametrize("name", METHODS)
def test_so_is_that_of_a_task_with_listed_rewards(name):
    """The method in the watched one decides whether the run is on the outcome table."""
    task = Task(Observed(values=[0, 1]), [[1.0], [1.0]], [1.0, 0.0], 0.7)
    sim = TabularSimulator(
        [[[0.7, 0.3]], [[0.4, 0.6]]], rewards=lambda s, a, x, rng: (rng.random(len(s)) < 0.3 + 0.5 * s).astype(float)
    )
    trace = Trace()
    watched = decide(task, sim, 1.0, 0.05, trace.watch(METHODS[name]), max_samples=2000)
    plain = decide(task, sim, 1.0, 0.05, METHODS[name], max_samples=2000)
    assert (watched.samples, watched.answer, watched.evidence) == (plain.samples, plain.answer, plain.evidence)
    assert watched.task.n_states == (2 if name == "default" else 6)
    assert len(trace) > 5
    assert np.isfinite(trace.evidence).all()
    assert trace.samples[-1] == plain.samples
    drawn(plots.evidence(trace))
    drawn(plots.interval(trace))


def test_points_of_the_kl_rule_are_few_in_large_tasks():
    large = instances.random(1, 60, 4, successors=6)
    trace = Trace()
    decide(large.task, TabularSimulator(large.kernel), 0.0, 1e-9, trace.watch(METHODS["ptst"]), max_samples=3000)
    assert 2 <= len(trace) <= 8
    assert np.isfinite(trace.intervals).all()
    assert (np.diff(trace.intervals, axis=1) > 0).all()


def test_a_watched_run_resumes_an_unwatched_one(tmp_path):
    """Its runs are those of the method: the same fingerprint, the same stopping time."""
    whole = decide(THREE.task, SIM3, threshold=0.0)
    first = decide(THREE.task, SIM3, threshold=0.0, max_samples=20)
    trace = Trace()
    rest = decide(THREE.task, SIM3, threshold=0.0, method=trace.watch(), resume=first)
    assert (rest.samples, rest.answer) == (whole.samples, whole.answer)
    assert trace.samples[0] > 20


def test_the_evidence_of_the_kl_rule_is_the_distance_less_the_dimension_term():
    """Against another solver and the public boundary, at a sample in the middle of the run."""
    trace = Trace()
    verdict = decide(TWO.task, SIM, 0.1, 1e-3, trace.watch(PTST(solver=ProjectionFree())), max_samples=150)
    point = trace.points[-1]
    assert point.samples == verdict.samples == 150 or point.samples < 150
    counts = decide(TWO.task, SIM, 0.1, 1e-3, PTST(solver=ProjectionFree()), max_samples=point.samples).counts
    assert counts.total == point.samples
    weights = counts.visits.astype(float)
    proved = nearest_kernel(TWO.task, counts.kernel(TWO.task), weights, 0.1, Certified(gap=0.01))
    price = MixtureBoundary().level(counts, 1e-3, TWO.task) - math.log(1e3)
    assert proved.certified
    assert proved.lower <= max(point.evidence) + price <= proved.upper + 1e-6
    assert min(point.evidence) == pytest.approx(-price, abs=1e-9)


def test_a_trace_of_checks_computes_no_interval_after_the_run():
    def too_late():
        raise AssertionError("the run has gone on")

    made = [
        SimpleNamespace(
            samples=n, evidence=(0.1 * n, 0.0), required=3.0, estimate=0.5, solves=0, answer=None, interval=too_late
        )
        for n in range(30)
    ]
    trace = Trace.of(made)
    assert trace.samples[0] == 0
    assert trace.samples[-1] == 29
    assert np.isnan(trace.intervals).all()


def test_a_trace_of_the_running_checks_has_intervals_and_the_last_check():
    trace = Trace.of(checks(TWO.task, SIM, threshold=0.0, delta=0.05, method=PTST(solver=ProjectionFree())))
    *_, last = checks(TWO.task, SIM, threshold=0.0, delta=0.05, method=PTST(solver=ProjectionFree()))
    assert trace.samples[-1] == last.samples
    assert np.isfinite(trace.intervals[-1]).all()


def test_intervals_are_few():
    asked = []

    def interval():
        asked.append(1)
        return -1.0, 1.0

    trace = Trace(intervals=7)
    for n in range(1, 5000):
        trace(
            SimpleNamespace(
                samples=n, evidence=(0.0, 0.0), required=3.0, estimate=0.0, solves=0, answer=None, interval=interval
            )
        )
    assert len(asked) == 7
    assert np.isfinite(trace.intervals).all(axis=1).sum() == 7


def test_a_trace_of_an_evaluation():
    trace = Trace()
    found = evaluate(TWO.task, SIM, 0.2, progress=trace)
    assert tuple(trace.intervals[-1]) == (found.lower, found.upper)
    ax = drawn(plots.interval(trace))
    assert len(ax.lines) == 3
    assert "no evidence" in texts(drawn(plots.evidence(trace)))[0]


def test_an_undecided_run_ends_with_its_verdict():
    trace = Trace()
    verdict = decide(TWO.task, SIM, 0.2, 1e-6, trace.watch(), max_samples=90)
    whole = trace.ended(verdict)
    assert verdict.answer is None
    assert whole.samples[-1] == 90
    assert tuple(whole.evidence[-1]) == verdict.evidence
    assert tuple(whole.intervals[-1]) == verdict.interval


def test_growth_is_checked():
    with pytest.raises(InputError, match="growth"):
        Trace(growth=1.0)


# ---------------------------------------------------------------- one run


@pytest.mark.parametrize("name", METHODS)
def test_evidence(traced, name):
    verdict, trace = traced[name]
    ax = drawn(plots.evidence(trace))
    above, below = line(ax, "evidence for “above”"), line(ax, "evidence for “below”")
    assert np.array_equal(above.get_xdata(), trace.samples)
    assert np.array_equal(above.get_ydata(), trace.evidence[:, 0])
    assert np.array_equal(below.get_ydata(), trace.evidence[:, 1])
    assert above.get_linestyle() != below.get_linestyle()
    level = next(found for found in ax.lines if str(found.get_label()).startswith("decides"))
    assert set(level.get_ydata()) == {verdict.required}
    assert ax.get_ylim()[1] > verdict.required
    assert ax.get_xlabel() == "samples"


def test_interval(traced):
    _, trace = traced["default"]
    ax = drawn(plots.interval(trace, threshold=0.25))
    known = np.isfinite(trace.intervals).all(axis=1) & (trace.samples > 0)
    low, high = ax.lines[0].get_ydata(), ax.lines[1].get_ydata()
    assert np.array_equal(low, trace.intervals[known, 0])
    assert np.array_equal(high, trace.intervals[known, 1])
    assert set(line(ax, "threshold 0.25").get_ydata()) == {0.25}
    assert len(ax.collections) == 1


def test_given_axes_are_used_and_returned(traced):
    verdict, trace = traced["default"]
    figure = Figure()
    axes = figure.subplots(2, 2)
    assert plots.evidence(trace, axes[0, 0]) is axes[0, 0]
    assert plots.interval(trace, axes[0, 1]) is axes[0, 1]
    assert plots.estimate(verdict, ax=axes[1, 0]) is axes[1, 0]
    assert plots.witness(verdict, ax=axes[1, 1]) is axes[1, 1]
    figure.draw_without_rendering()


def test_estimate_is_a_number_line(traced):
    verdict, _ = traced["default"]
    ax = drawn(plots.estimate(verdict))
    assert tuple(ax.lines[0].get_xdata()) == verdict.interval
    assert list(line(ax, "estimate").get_xdata()) == [verdict.estimate]
    assert set(line(ax, "threshold 0").get_xdata()) == {0.0}
    low, high = ax.get_xlim()
    assert low < min(verdict.interval[0], 0.0) < verdict.interval[1] < high


def test_the_indifference_zone_is_shown():
    verdict = decide(TWO.task, SIM, 0.2, indifference=0.3)
    assert verdict.answer == "within"
    ax = drawn(plots.estimate(verdict))
    (zone,) = ax.patches
    assert zone.get_x() == pytest.approx(-0.1)
    assert zone.get_width() == pytest.approx(0.6)
    assert "no kernel" in texts(drawn(plots.witness(verdict)))[0]


def test_a_known_answer_has_no_estimate():
    known = decide(TWO.task, SIM, threshold=1e6)
    ax = drawn(plots.estimate(known))
    assert "threshold 1e+06" in texts(ax)
    assert "estimate" not in texts(ax)


def test_a_run_without_points():
    assert "no evidence" in texts(drawn(plots.evidence([])))[0]
    assert "no intervals" in texts(drawn(plots.interval([])))[0]


# ---------------------------------------------------------------- the witness


def test_witness(traced):
    verdict, _ = traced["ptst"]
    ax = drawn(plots.witness(verdict))
    shown = top_changes(verdict)
    assert 0 < len(shown) <= 8
    assert shown[: len(verdict.changes)] == verdict.changes
    assert list(line(ax, "observed").get_xdata()) == [change.observed for change in shown]
    assert list(line(ax, "would have to be").get_xdata()) == [change.needed for change in shown]
    change = shown[0]
    observed = verdict.counts.N[change.state, change.action, change.successor] / change.visits
    assert change.observed == pytest.approx(observed)
    assert f"{change.state}, {change.action} → {change.successor}" in texts(ax)


def test_no_witness():
    known = decide(TWO.task, SIM, threshold=1e6)
    assert known.witness is None
    assert "no kernel" in texts(drawn(plots.witness(known)))[0]


def test_small_cells_of_the_witness_are_left_out(traced):
    verdict, _ = traced["default"]
    most = max(change.visits for change in top_changes(verdict))
    kept = top_changes(verdict, suppress_below=most)
    assert len(kept) < len(top_changes(verdict))
    for change in kept:
        times = round(change.observed * change.visits)
        assert change.visits >= most
        assert times == 0 or times >= most
    assert top_changes(verdict, suppress_below=10**9) == ()


# ---------------------------------------------------------------- maps


def cells(ax):
    return ax.collections[0].get_array()


def test_allocation_shows_the_table_with_names():
    task = Task(
        TWO.task.rewards, TWO.task.policy, TWO.task.initial, 0.9, states=("home", "a$b$"), actions=("go", "stay")
    )
    table = np.array([[3, 10_000], [0, 27]])
    ax = drawn(plots.allocation(Counts.from_array(np.stack([table, 0 * table], axis=2)), task))
    assert np.array_equal(np.asarray(cells(ax)).reshape(2, 2), table)
    assert {"home", "go", "stay", "3", "10k", "0", "27"} <= set(texts(ax))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("action", "state")


def test_allocation_of_weights():
    found = drawn(plots.allocation([[0.25, 0.5], [0.25, 0.0]]))
    assert {"25.0%", "50.0%", "0"} <= set(texts(found))


def test_a_thousand_states_are_a_few_rows_and_nothing_is_lost():
    rng = np.random.default_rng(0)
    table = rng.integers(0, 50, size=(1000, 30))
    ax = drawn(plots.allocation(table))
    shown = np.asarray(cells(ax))
    assert shown.sum() == table.sum()
    labels = texts(ax)
    assert "985 others" in labels
    assert "21 others" in labels
    largest = np.sort(np.argsort(-table.sum(axis=1), kind="stable")[: MOST_ROWS - 1])
    assert [label for label in labels if label in set(map(str, largest))][: len(largest)]


def test_occupancy_adds_up_and_follows_the_grid():
    grid = instances.grid_world(4, 3)
    ax = drawn(plots.occupancy(grid.task, grid.kernel, shape=(3, 4)))
    shown = np.asarray(cells(ax)).reshape(3, 4)
    expected = (1 - grid.task.discount) * occupancy(grid.task, grid.kernel).reshape(3, 4)
    assert np.allclose(shown, expected)
    assert shown.sum() == pytest.approx(1.0)
    pairs = np.asarray(cells(drawn(plots.occupancy(grid.task, grid.kernel))))
    assert pairs.sum() == pytest.approx(1.0)


def test_a_large_grid_is_shown_in_blocks():
    weights = np.ones((10_000, 1)) / 10_000
    ax = drawn(plots.allocation(weights, shape=(100, 100)))
    shown = np.asarray(cells(ax))
    assert shown.size <= MOST_BLOCKS**2
    assert shown.sum() == pytest.approx(1.0)
    with pytest.raises(InputError, match=r"there are 10000 states"):
        plots.allocation(weights, shape=(100, 99))


def test_small_counts_are_hidden():
    table = np.array([[1.0, 50.0], [0.0, 900.0]])
    hidden = hide(table, 10)
    assert hidden.tolist() == [[True, True], [False, False]], "one alone would follow from the sum"
    assert hide(np.array([[1.0, 2.0], [0.0, 9.0]]), 3).tolist() == [[True, True], [False, False]]
    assert not hide(table, 0).any()
    ax = drawn(plots.allocation(table, suppress_below=10))
    assert "1" not in {text.get_text() for text in ax.texts}
    assert "50" not in {text.get_text() for text in ax.texts}
    assert [text.get_text() for text in ax.texts].count("few") == 2
    assert np.ma.getmaskarray(cells(ax)).sum() == 2


@pytest.mark.parametrize(
    ("table", "words"), [([[1.0, -1.0]], "negative"), ([1.0, 2.0], "shape"), ([[np.nan, 1.0]], "nan")]
)
def test_bad_tables_are_refused(table, words):
    with pytest.raises(InputError, match=words):
        plots.allocation(table)
    with pytest.raises(InputError, match="as in task"):
        plots.allocation([[1.0]], TWO.task)


@pytest.mark.parametrize(
    ("name", "shown"),
    [("x$y$z", r"x\$y\$z"), ("a" * 50, "a" * 21 + "…"), ("one\ntwo", "one two"), ('<b>&"', '<b>&"')],
)
def test_names(name, shown):
    assert style.short(name) == shown


# ---------------------------------------------------------------- plans and selections


def a_plan(**changes):
    settings = {
        "samples": {"TDBetting": (300.0, 250.0, 350.0), "PTST": (9000.0, 8000.0, math.inf), "slow": (math.inf,) * 3},
        "at_least": frozenset({"PTST"}),
        "bound": 100.0,
    }
    return SimpleNamespace(**{**settings, **changes})


def test_plan():
    ax = drawn(plots.plan(a_plan()))
    marks = [found for found in ax.lines if len(found.get_xdata()) == 1]
    assert [found.get_xdata()[0] for found in marks] == [300.0, 9000.0]
    assert [found.get_marker() for found in marks] == ["o", ">"]
    assert marks[1].get_markerfacecolor() == "none"
    assert {"TDBetting", "PTST", "slow", "> 9,000", "lower bound: 100"} <= set(texts(ax))
    assert "no method" in texts(drawn(plots.plan(a_plan(samples={}))))[0]


def test_selection():
    ax = drawn(plots.selection(SimpleNamespace(values=[0.1, 0.9, -0.3], index=1, states=None, agents=())))
    assert list(line(ax, "the one chosen").get_xdata()) == [0.9]
    assert [label.get_text() for label in ax.get_yticklabels()] == ["policy 1", "policy 0", "policy 2"]
    many = drawn(plots.selection(SimpleNamespace(values=np.arange(1000.0), index=None, states=None, agents=())))
    assert "980 more" in many.get_xlabel()
    drawn(plots.selection(SimpleNamespace(values=[], index=None, states=None, agents=())))


def test_a_notebook_shows_the_picture():
    """By what IPython asks objects for; not where the user's own figure is drawn on."""
    ax = plots.selection(SimpleNamespace(values=[0.1, 0.9], index=1, states=None, agents=()))
    assert "<svg" in ax._repr_svg_()
    assert ax._repr_svg_() == ax.figure._repr_svg_() == pickle.loads(pickle.dumps(ax))._repr_svg_()
    mine = Figure().add_subplot()
    assert plots.selection(SimpleNamespace(values=[0.1, 0.9], index=1, states=None, agents=()), mine) is mine
    assert not hasattr(mine, "_repr_svg_")


# ---------------------------------------------------------------- studies


def rows():
    rng = np.random.default_rng(1)
    return [
        {"instance": "one", "method": method, "delta": delta, "seed": seed,
         "samples": int(scale * rng.integers(50, 150)), "cut": method == "B" and delta < 0.01}
        for method, scale in (("A", 1), ("B", 7))
        for delta in (0.1, 0.01, 0.001)
        for seed in range(6)
    ]  # fmt: skip


def test_stopping_times():
    ax = drawn(plots.stopping_times(rows(), lower_bound={"one": 12.0}))
    assert (ax.get_xscale(), ax.get_yscale()) == ("log", "log")
    first, last = ax.get_xlim()
    assert first > last
    for method in ("A", "B"):
        bars = next(found for found in ax.containers if found.get_label() == method)
        for delta, mean, segment in zip(
            bars.lines[0].get_xdata(), bars.lines[0].get_ydata(), bars.lines[2][0].get_segments(), strict=True
        ):
            mine = np.array([row["samples"] for row in rows() if (row["method"], row["delta"]) == (method, delta)])
            assert mean == pytest.approx(mine.mean())
            half = mine.std(ddof=1) / math.sqrt(len(mine))
            assert [segment[0][1], segment[1][1]] == pytest.approx([mean - half, mean + half])
    bound = line(ax, "lower bound")
    delta = bound.get_xdata()
    assert np.allclose(bound.get_ydata(), 12.0 * (1 - 2 * delta) * np.log((1 - delta) / delta))  # kl(delta, 1-delta)
    assert [list(found.get_xdata()) for found in ax.lines if found.get_markerfacecolor() == "none"] == [[0.001]]


def test_a_legend_stays_small():
    """Methods and instances are named once each, not pair by pair; nothing is cut off, and the axes keep their room."""
    many = [
        {**row, "instance": f"a task, the {place}th", "method": f"method {row['method']}, of four long words, or five"}
        for place in range(4)
        for row in rows()
    ]
    for given, entries in ((many, 2 + 4 + 1), ([row for row in many if "0th" in row["instance"]], 3)):
        ax = drawn(plots.stopping_times(given, lower_bound=12.0))
        legend, figure = ax.get_legend(), ax.figure
        assert len(legend.get_texts()) == entries
        assert legend.get_window_extent().x1 <= figure.bbox.x1
        assert ax.get_window_extent().height > 0.5 * figure.bbox.height


def test_the_bound_of_a_study_is_its_best_one():
    given = [{**row, "best_bound": 10.0 / row["delta"], "uniform_bound": 1e9} for row in rows()]
    bound = line(drawn(plots.stopping_times(given)), "lower bound")
    assert np.allclose(bound.get_ydata(), 10.0 / bound.get_xdata())
    given[0]["best_bound"] = math.nan
    assert set(line(drawn(plots.stopping_times(given)), "lower bound").get_ydata()) == {1e9}


def test_stopping_times_of_one_run():
    found = stopping_times(TWO.task, SIM, threshold=0.0, deltas=[0.1, 0.01, 1e-3])
    ax = drawn(plots.stopping_times(found))
    shown = dict(zip(ax.containers[0].lines[0].get_xdata(), ax.containers[0].lines[0].get_ydata(), strict=True))
    assert shown == {float(delta): float(n) for delta, n in zip(found.deltas, found.samples, strict=True)}


def test_tables_in_all_forms():
    pandas, polars, arrow = (pytest.importorskip(name) for name in ("pandas", "polars", "pyarrow"))
    columns = {"delta": [0.1, 0.01], "samples": [10, 20]}
    expected = [{"delta": 0.1, "samples": 10}, {"delta": 0.01, "samples": 20}]
    forms = (columns, expected, pandas.DataFrame(columns), polars.DataFrame(columns), arrow.table(columns))
    for form in (*forms, SimpleNamespace(table=expected), SimpleNamespace(rows=lambda: expected)):
        assert rows_of(form) == expected
    with pytest.raises(InputError, match="the same length"):
        rows_of({"a": [1], "b": [1, 2]})
    with pytest.raises(InputError, match="table is a int"):
        rows_of(3)
    with pytest.raises(InputError, match="no column 'samples'"):
        plots.stopping_times([{"delta": 0.1}])
    assert "no runs" in texts(drawn(plots.stopping_times([])))[0]


def test_sample_efficiency_and_time_against_size():
    ax = drawn(plots.sample_efficiency(rows()))
    assert "delta = 0.001" in ax.get_xlabel()
    means = {found.get_label(): found.lines[0].get_xdata()[0] for found in ax.containers}
    for method in ("A", "B"):
        mine = [row["samples"] for row in rows() if row["method"] == method and row["delta"] == 0.001]
        assert means[method] == pytest.approx(np.mean(mine))
    assert "delta = 0.1" in drawn(plots.sample_efficiency(rows(), delta=0.1)).get_xlabel()
    sizes = [{"method": m, "states": n, "seconds": n * s} for n in (10, 100) for m, s in (("a", 1e-3), ("b", 1e-2))]
    ax = drawn(plots.time_against_size(sizes))
    assert [list(found.lines[0].get_ydata()) for found in ax.containers] == [[0.01, 0.1], [0.1, 1.0]]
    assert ax.get_xlabel() == "states"


# ---------------------------------------------------------------- manners


def test_no_figure_is_left_behind(traced):
    """pyplot would keep every figure until it is closed; it is not even imported."""
    before = "matplotlib.pyplot" in sys.modules
    drawn(plots.evidence(traced["default"][1]))
    assert ("matplotlib.pyplot" in sys.modules) == before


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(InputError, match=r"run pip install 'jinja2>=3\.1' 'matplotlib>=3\.8'"):
        plots.evidence([])
