"""Every method on observed rewards of listed values: right on both sides, certified, and calibrated at V = R."""

from __future__ import annotations

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import assert_refused, assert_same_verdict
from policytest.mdp.listed_rewards import outcomes_of
from policytest.questions.watch import Watch
from policytest.sources.tasks.files import load_model, save_model

NAMES = {"states": ["ill", "well"]}
POLICY, INITIAL = np.array([[0.7, 0.3], [1.0, 0.0]]), [1.0, 0.0]
TASK = pt.Task(pt.Observed(values=[0.0, 1.0]), POLICY, INITIAL, 0.5, **NAMES)
LAW = np.array([[[[0.3, 0.1], [0.2, 0.4]], [[0.4, 0.2], [0.3, 0.1]]], [[[0.1, 0.1], [0.1, 0.7]]] * 2])
V = pt.value(TASK, LAW)


def simulator(law=LAW):
    """Next states by a table, and rewards of two points given them."""
    kernel = law.sum(axis=3)

    def rewards(s, a, x, rng):
        return (rng.random(len(s)) < law[s, a, x, 1] / kernel[s, a, x]).astype(float)

    return pt.TabularSimulator(kernel, rewards=rewards)


SIM = simulator()


def uniform_log(size, seed=0):
    rng = np.random.default_rng(seed)
    s, a = np.divmod(rng.integers(3, size=size), 2)
    x, r = SIM.draw(s, a, rng)
    return pt.Transitions(s, a, x, r)


LOG = uniform_log(4000)
SHARES = np.array([[0.4, 0.3], [0.3, 0.0]])
METHODS = {
    "PTST": pt.PTST(),
    "PTST, shares": pt.PTST(allocation=SHARES),
    "PTST, optimal": pt.PTST(allocation=pt.Optimal(LAW)),
    "PTST, adaptive": pt.PTST(allocation=pt.Adaptive()),
    "boxes": pt.RectangularKL(),
    "Monte Carlo": pt.MonteCarlo(),
    "betting": pt.TDBetting(),
}


@pytest.mark.parametrize("name", METHODS)
def test_answers_are_right_and_certified_on_both_sides(name):
    for gap, answer in ((-0.4, "above"), (0.3, "below")):
        found = pt.decide(TASK, SIM, V + gap, method=METHODS[name], max_samples=20_000)
        assert (found.answer, found.certified) == (answer, True)
        if name.startswith("PTST"):
            assert found.verify()  # the certificate, without the solver


def test_klbts_is_sound_and_slow():
    found = pt.decide(TASK, SIM, 0.2, method=pt.KLBTS(), max_samples=60_000)
    assert (found.answer, found.certified) == ("above", True)


def test_the_default_bets_on_the_task_itself():
    found = pt.decide(TASK, SIM, V - 0.4)
    assert found.method == pt.TDBetting().describe()
    assert found.task is TASK


def test_results_speak_of_states_and_rewards():
    found = pt.decide(TASK, SIM, V - 0.4, method=pt.PTST())
    assert "and next state well'" in str(found)
    assert "reward 0 and next state" in str(found)
    assert pt.value(found.task, found.witness) == pytest.approx(V - 0.4)
    law = outcomes_of(TASK).law(found.witness)
    assert pt.value(TASK, law) == pytest.approx(V - 0.4)
    assert found.counts.total == found.samples
    assert not found.counts.visits[2:].any()


def test_recorded_transitions_replay_the_run():
    """PTST on the transitions that a run drew is that run; a watch that is fed row by row says the same."""
    drawn = []

    def draw(s, a, rng):
        x, r = SIM.draw(s, a, rng)
        drawn.append((s, a, x, r))
        return x, r

    ran = pt.decide(TASK, draw, V - 0.4, method=pt.PTST(), rng=3)
    log = pt.Transitions(*(np.concatenate(column) for column in zip(*drawn, strict=True)))
    replayed = pt.assess(TASK, log, V - 0.4, method=pt.PTST())
    assert (replayed.answer, replayed.samples, replayed.certified) == (ran.answer, ran.samples, True)
    assert (replayed.counts.N == ran.counts.N).all()
    watch = Watch(TASK, V - 0.4, method=pt.PTST())
    for row in range(len(log)):
        at = slice(row, row + 1)
        if watch.add(log.s[at], log.a[at], log.x[at], r=log.r[at]) is not None:
            break
    assert (watch.verdict().answer, watch.verdict().samples) == (ran.answer, ran.samples)


def test_a_paused_run_goes_on():
    for method in (pt.PTST(), pt.TDBetting()):
        whole = pt.decide(TASK, SIM, V - 0.2, method=method, rng=1)
        part = pt.decide(TASK, SIM, V - 0.2, method=method, rng=1, max_samples=40)
        assert part.answer is None
        assert_same_verdict(pt.decide(TASK, SIM, V - 0.2, method=method, resume=part), whole)


def test_stopping_times_are_those_of_decide():
    found = pt.stopping_times(TASK, SIM, V - 0.4, [0.2, 0.01], method=pt.PTST(), rng=2)
    each = [pt.decide(TASK, SIM, V - 0.4, delta, method=pt.PTST(), rng=2).samples for delta in (0.2, 0.01)]
    assert found.samples.tolist() == each
    assert each[0] < each[1]


def test_intervals_from_transitions_and_from_counts():
    from_log = pt.value_interval(TASK, LOG, method=pt.PTST())
    counts = pt.assess(TASK, LOG, V, method=pt.PTST()).counts
    from_counts = pt.value_interval(TASK, counts)
    assert counts.total == len(LOG)
    assert from_log.certified
    assert V in from_log
    assert (from_counts.lower, from_counts.upper) == (from_log.lower, from_log.upper)
    assert V in pt.value_interval(TASK, LOG, looks="one")
    assert pt.assess(TASK, counts, V - 0.4).certified
    found = pt.evaluate(TASK, SIM, 0.25, method=pt.PTST())
    assert found.reached
    assert found.certified
    assert abs(found.value - V) <= 0.25


def test_the_lower_bound_is_that_of_the_table():
    outcomes = outcomes_of(TASK)
    kernel, R = outcomes.kernel("kernel", LAW), V - 0.3
    mine = pt.characteristic_time(TASK, LAW, SHARES, R)
    its = pt.characteristic_time(outcomes.table, kernel, outcomes.shares(SHARES), R)
    assert mine.time == its.time
    assert pt.value(TASK, mine.kernel) == pytest.approx(R)
    losses = [SHARES[s, a] * kl(LAW[s, a], mine.kernel[s, a]) for s, a in ((0, 0), (0, 1), (1, 0))]
    assert 1.0 / mine.time == pytest.approx(sum(losses))
    best = pt.optimal_allocation(TASK, LAW, R)
    assert best.weights.shape == (2, 2)
    assert best.weights.sum() == pytest.approx(1.0)
    assert best.weights[1, 1] == 0.0
    assert best.time <= mine.time
    assert pt.characteristic_time(TASK, LAW, best.weights, R).time <= best.time * 1.001


def kl(p, q):
    return float((p * np.log(p / q)).sum())


def test_a_bandit_has_the_bound_of_a_coin():
    """One state, discount 0: the nearest coin on the other side of R is R."""
    coin = pt.Task(pt.Observed(values=[0.0, 1.0]), [[1.0]], [1.0], 0.0)
    p, R = np.array([0.3, 0.7]), 0.5
    found = pt.characteristic_time(coin, p.reshape(1, 1, 1, 2), threshold=R)
    assert 1.0 / found.time == pytest.approx(kl(p, np.array([0.5, 0.5])))


@pytest.mark.parametrize("method", [pt.PTST(), pt.TDBetting()], ids=["PTST", "betting"])
def test_errors_at_the_threshold_are_rare(method):
    """At V = R each answer is given with probability at most delta; a simulator that pays more must be caught."""
    delta, runs = 0.2, 25

    def crossings(sim, side):
        found = [pt.decide(TASK, sim, V, delta, method, rng=seed, max_samples=400).answer for seed in range(runs)]
        return found.count(side)

    assert not any(too_often(crossings(SIM, side), runs, delta) for side in ("above", "below"))
    richer = LAW.copy()
    richer[..., 1] += 0.9 * richer[..., 0]
    richer[..., 0] *= 0.1
    assert too_often(crossings(simulator(richer), "above"), runs, delta)


def test_refused():
    wrong = pt.Transitions([0, 0], [0, 1], [1, 1], [1.0, 0.5])
    for method in (pt.PTST(), pt.TDBetting(), None):
        say = ("data.r[1] is 0.5", "s=0 'ill', a=1", "not one of the declared values 0, 1", "Observed(values=[...])")
        assert_refused(lambda method=method: pt.assess(TASK, wrong, V, method=method), *say)
    half = pt.TabularSimulator(LAW.sum(axis=3), rewards=lambda s, a, x, rng: np.full(len(s), 0.5))
    for method in (pt.PTST(), pt.TDBetting()):
        say = ("sim.draw answered the reward 0.5", "declared values 0, 1")
        assert_refused(lambda method=method: pt.decide(TASK, half, V, method=method), *say)
    assert_refused(lambda: pt.assess(TASK, LOG.counts(TASK, 10), V), "without rewards", "Transitions(s, a, x, r=")
    assert_refused(lambda: pt.assess(TASK, pt.Transitions([0], [0], [1]), V, method=pt.PTST()), "no rewards")
    forward = pt.PTST(allocation=pt.Forward())
    assert_refused(lambda: pt.decide(TASK, SIM, V, method=forward), "Forward()", "TDBetting()")
    any_law = pt.Task(pt.Observed(0.0, 1.0), POLICY, INITIAL, 0.5)
    assert_refused(lambda: pt.decide(any_law, SIM, V, method=pt.PTST()), "TDBetting()", "Observed(values=[...])")
    short = pt.Task(pt.Observed(values=[0.0, 1.0]), POLICY, INITIAL, 0.5, horizon=3)
    assert_refused(lambda: pt.decide(short, SIM, V, method=pt.RectangularKL()), "horizon", "TDBetting()")
    two = pt.KLBTS(policies=2, alternative=POLICY)
    assert_refused(lambda: pt.decide(TASK, SIM, V, method=two), "alternative", "policies=1")
    assert_refused(lambda: pt.decide(TASK, pt.TabularSimulator(np.eye(3)[:, None, :]), V), "sim.n_states is 3")


@pytest.mark.parametrize("suffix", ["json", "toml", "npz"])
def test_listed_rewards_in_files(tmp_path, suffix):
    path = tmp_path / f"task.{suffix}"
    save_model(path, TASK)
    read = load_model(path).task
    assert read.rewards.values.tolist() == [0.0, 1.0]
    assert (read.rewards.high == TASK.rewards.high).all()
