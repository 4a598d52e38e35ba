"""How many samples the test needs, against a table measured with another implementation and the lower bound."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from plain import PTST, stopping_times

DELTAS = [0.1, 1e-2, 1e-15]
SEEDS = 30

# Mean stopping times (standard errors) over 30 runs of an independent implementation of the same two rules, with a
# check at every new witness; uniform sampling, threshold 0, rows renormalised.
MEASURED = {
    (2, "paper"): [(859, 47), (927, 48), (1955, 69)],
    (2, "mixture"): [(287, 29), (380, 35), (1429, 55)],
    (3, "paper"): [(39686, 702), (40250, 705), (48294, 718)],
    (3, "mixture"): [(17047, 671), (17697, 669), (26248, 747)],
    (5, "paper"): [(45096, 558), (45258, 558), (47520, 560)],
    (5, "mixture"): [(19686, 332), (19889, 328), (21960, 351)],
}
BOUNDARIES = {"paper": pt.PaperBoundary(), "mixture": pt.MixtureBoundary(prior=0.5)}


@pytest.mark.parametrize(("n", "boundary"), MEASURED)
def test_mean_stopping_times_agree_with_an_independent_measurement(n, boundary):
    instance = pt.instances.paper(n)
    sim, method = pt.TabularSimulator(instance.kernel), PTST(boundary=BOUNDARIES[boundary])
    runs = [stopping_times(instance.task, sim, 0.0, DELTAS, method, rng=1000 + seed) for seed in range(SEEDS)]
    assert all((run.answers == "above").all() for run in runs)
    times = np.array([run.samples for run in runs], dtype=float)
    mean, error = times.mean(axis=0), times.std(axis=0, ddof=1) / np.sqrt(SEEDS)
    for index, (expected, its_error) in enumerate(MEASURED[n, boundary]):
        assert abs(mean[index] - expected) <= 3 * np.hypot(error[index], its_error), DELTAS[index]


@pytest.mark.parametrize("kind", ["uniform", "optimal"])
def test_the_price_approaches_the_lower_bound_as_delta_falls(kind):
    """E[tau]/log(1/delta) falls towards T*: to within 6% at 1e-300 on the smallest instance."""
    deltas = [1e-2, 1e-5, 1e-15, 1e-50, 1e-150, 1e-300]
    instance = pt.instances.paper(2)
    shares = "uniform" if kind == "uniform" else pt.optimal_allocation(instance.task, instance.kernel).weights
    bound = pt.characteristic_time(instance.task, instance.kernel, shares).time
    sim, method = pt.TabularSimulator(instance.kernel), PTST(allocation=shares)
    times = [stopping_times(instance.task, sim, 0.0, deltas, method, rng=seed).samples for seed in range(SEEDS)]
    ratios = np.mean(times, axis=0) / (bound * -np.log(deltas))
    assert (np.diff(ratios) < 0).all()
    assert 0.97 < ratios[-1] < 1.06
    assert ratios[0] > 2


def test_the_mixture_needs_fewer_samples_on_the_same_draws():
    for n in (2, 3, 5):
        instance = pt.instances.paper(n)
        sim = pt.TabularSimulator(instance.kernel)
        paper, mixture = (
            stopping_times(instance.task, sim, 0.0, DELTAS, PTST(boundary=boundary), rng=7).samples
            for boundary in (pt.PaperBoundary(), pt.MixtureBoundary(1.0))
        )
        assert (mixture <= paper).all()  # the mixture with a = 1 is below the paper's level on every path
        assert (mixture < paper).any()


def test_the_best_allocation_needs_fewer_samples():
    instance = pt.instances.paper(3)
    sim = pt.TabularSimulator(instance.kernel)
    means = {}
    for name, allocation in {
        "uniform": "uniform",
        "guess": pt.Optimal(instance.kernel),
        "adaptive": pt.Adaptive(),
    }.items():
        method = PTST(allocation=allocation)
        runs = [stopping_times(instance.task, sim, 0.0, [1e-50], method, rng=seed) for seed in range(3)]
        assert all(run.answers[0] == "above" for run in runs)
        means[name] = np.mean([run.samples[0] for run in runs])
    assert means["guess"] < 0.85 * means["uniform"]
    assert means["adaptive"] < 0.85 * means["uniform"]
