"""Only evidence that is proved and large enough makes an answer certified, whichever path led to the answer."""

import math
from dataclasses import dataclass

import numpy as np
import pytest

import policytest as pt
from policytest._base.text import nats
from policytest.data.randomness import generator
from policytest.methods.ptst_difference import kl_comparison
from policytest.methods.td_run import TDRun
from policytest.questions.assess import recorded as recorded_data
from policytest.questions.watch import Watch

TWO = pt.instances.paper(2)
AT = pt.value(TWO.task, TWO.kernel)
SIM = pt.TabularSimulator(TWO.kernel)
METHODS = (
    pt.TDBetting(),
    pt.PTST(),
    pt.PTST(boundary=pt.PaperBoundary()),
    pt.PTST(solver=pt.ProjectionFree()),
    pt.PTST.as_printed(),
    pt.KLBTS(),
    pt.RectangularKL(),
    pt.MonteCarlo(),
)


def side_of(verdict):
    return 0 if verdict.answer == "above" else 1


@pytest.mark.parametrize("method", METHODS, ids=lambda method: method.describe()[:40])
@pytest.mark.parametrize("threshold", [0.0, 2 * AT])
def test_what_is_certified_has_the_evidence(method, threshold):
    for seed in range(3):
        found = pt.decide(TWO.task, SIM, threshold, delta=0.05, method=method, rng=seed, max_samples=3000)
        if found.certified:
            assert found.evidence[side_of(found)] >= found.required


REQUIRED = -math.log(0.05)
OTHER = pt.Task(TWO.task.rewards, TWO.alternative_policy, TWO.task.initial, TWO.task.discount)
BY_INTERVAL = {
    **{method.describe()[:40]: method.start for method in METHODS[1:]},
    "hoeffding": pt.MonteCarlo("hoeffding").start,
    "comparison": lambda task, sim, margin, rng: kl_comparison(pt.PTST(), task, OTHER, margin, sim, rng),
}


@pytest.mark.parametrize("side", [1, -1], ids=["above", "below"])
@pytest.mark.parametrize("name", BY_INTERVAL)
def test_the_interval_of_a_verdict_is_on_the_side_of_its_answer(name, side):
    """Of the KL rules that is the event of the answer itself: clipping removes what the search's tolerance leaves."""
    truth = AT - pt.value(OTHER, TWO.kernel) if name == "comparison" else AT
    run = BY_INTERVAL[name](TWO.task, SIM, truth - 0.5 * side, 4)
    R = run.threshold
    run.begin(REQUIRED)
    while run.answer is None:
        low, high = run.verdict_interval(REQUIRED)
        assert low <= R <= high
        wait = run.samples + 200
        while run.answer is None and run.samples < wait:
            run.step(REQUIRED, 10**5)
    low, high = run.verdict_interval(REQUIRED)
    assert run.answer == ("above" if side > 0 else "below")
    assert (low >= R) if side > 0 else (high <= R)
    assert low <= run.estimate <= high
    wide = run.interval(REQUIRED)
    if isinstance(run.method, pt.MonteCarlo):  # its own interval divides delta between the ends
        assert wide[0] <= low < high <= wide[1]
        assert (low, high) != wide
    elif "as printed" not in name:  # which proves nothing
        assert (low, high) == pytest.approx(wide, abs=1e-6)


class HastyRun(TDRun):
    def step(self, level, most):
        super().step(level, most)
        self.answer = "above"


@dataclass(frozen=True)
class Hasty(pt.TDBetting):
    """A broken method: it answers at once."""

    def _run(self, *given):
        run = super()._run(*given)
        run.__class__ = HastyRun
        return run


def test_an_answer_without_the_evidence_is_not_certified():
    data = pt.Transitions([0, 1, 0], [0, 0, 0], [1, 0, 0])
    for found in (
        pt.decide(TWO.task, SIM, AT, method=Hasty(), max_samples=20),
        pt.assess(TWO.task, data, AT, method=Hasty()),
    ):
        assert found.answer == "above"
        assert not found.certified
    times = pt.stopping_times(TWO.task, SIM, AT, [0.05], method=Hasty(), max_samples=20)
    assert times.answers[0] == "above"
    assert not times.certified[0]
    watching = Watch(TWO.task, AT, method=Hasty())
    watching.add(data.s, data.a, data.x)
    assert not watching.verdict().certified


def test_the_random_numbers_of_a_test_are_not_those_of_data_made_from_the_same_seed():
    """Coins must be independent of the data, and people make data with ``default_rng(0)``."""
    for seed in (0, 1, np.int64(7)):
        plain, own = np.random.default_rng(seed).random(1000), generator(seed).random(1000)
        assert not np.isin(own, plain).any()
        assert (generator(seed).random(1000) == own).all()
    recorded = pt.TDBetting(seed=0).replay(TWO.task, 0.0, recorded_data(TWO.task, pt.Transitions([], [], [])))
    assert not np.isin(recorded.source.rng.random(100), np.random.default_rng(0).random(1000)).any()
    given = np.random.default_rng(3)
    assert generator(given) is given


# ---------------------------------------------------------------- numbers that a reader takes at their word


def instances():
    for seed in range(12):
        S, A = [(4, 2), (6, 3), (4, 3)][seed % 3]
        found = pt.instances.random(seed, S, A, successors=3 if seed % 2 else None, discount=0.9)
        yield seed, found.task, found.kernel, pt.value(found.task, found.kernel) - (-1) ** seed * 0.3


def test_the_kernel_shown_is_the_nearest_one_and_the_bound_is_its_own():
    """Distance by forty descents; T* kl(delta, 1-delta) = t/distance (1-2 delta) log((1-delta)/delta)."""
    information = 0.9 * math.log(19.0)
    for seed, task, kernel, threshold in instances():
        found = pt.decide(task, pt.TabularSimulator(kernel), threshold, delta=0.05, rng=seed, max_samples=3000)
        n, p_hat = found.counts.visits, found.counts.kernel(task)
        nearest = pt.nearest_kernel(task, p_hat, n, threshold, solver=pt.ProjectionFree(starts=40)).upper
        if nearest > 0:
            inside = pt.KLBall(p_hat, n, nearest * (1 + 1e-6))
            assert found.witness in inside
            assert found.lower_bound == pytest.approx(n.sum() / nearest * information, rel=1e-6)
            assert "another allocation may need fewer" in str(found)


def test_the_last_check_and_the_verdict_have_one_estimate():
    for method in (pt.TDBetting(), pt.PTST()):
        for most in (150, 100_000):
            question = (TWO.task, SIM, 0.0, 0.05, method, 3, most)
            *_, last = pt.checks(*question)
            assert last.estimate == pt.decide(*question).estimate


def test_an_answer_from_rewards_alone_says_so_in_its_first_line():
    positive = pt.Task([[1.0], [2.0]], [[1.0], [1.0]], [0.5, 0.5], 0.9)
    for found in (
        pt.decide(positive, pt.TabularSimulator(np.full((2, 1, 2), 0.5)), threshold=0.0),
        pt.assess(positive, pt.Transitions([0, 1], [0, 0], [1, 0]), threshold=0.0),
    ):
        assert (found.answer, found.samples) == ("above", 0)
        assert "follows from the rewards alone, no data were used" in str(found).splitlines()[0]


def test_rounding_is_not_shown_as_evidence():
    assert nats(-1.665e-16) == "0 nats"
    assert nats(-0.924) == "-0.924 nats"


def test_a_forecast_that_cannot_be_given_does_not_say_that_no_number_is_enough():
    """300 draws at a small gap: at the estimate a number of samples suffices, and the text says which."""
    counts = pt.Counts(2, 2)
    rng = np.random.default_rng(5)
    s, a = rng.integers(2, size=(2, 300))
    counts.record(s, a, SIM.draw(s, a, rng))
    bar = pt.value(TWO.task, counts.kernel(TWO.task)) - 0.02
    found = pt.assess(TWO.task, counts, threshold=bar)
    needed = found.still_needed()
    assert math.isinf(needed.samples)
    assert math.isfinite(needed.expected)
    assert "if the estimate is right, about" in needed.words
    assert "no number" not in needed.words
