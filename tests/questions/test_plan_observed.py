"""Plans and forecasts where rewards are observed: the laws that are simulated, pilots, runs that go on, commands."""

from __future__ import annotations

import json

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import assert_refused, each
from policytest.cli import main
from policytest.data.reward_moments import RewardMoments
from policytest.questions.plan.truth import Truth, law_after, law_of_values, law_with_means, two_valued
from policytest.sources import save_model

KERNEL = np.array([[[0.7, 0.3]], [[0.4, 0.6]]])
MEANS = np.array([[0.3], [0.8]])
POLICY, START = np.ones((2, 1)), [1.0, 0.0]
TASK = pt.Task(pt.Observed(0.0, 1.0), POLICY, START, 1.0, horizon=3)
VALUE = pt.value(pt.Task(MEANS, POLICY, START, 1.0, horizon=3), KERNEL)
LAWS = {
    "two-valued": lambda s, a, x, rng: (rng.random(len(s)) < MEANS[s, a]).astype(float),
    "narrow": lambda s, a, x, rng: MEANS[s, a] + 0.2 * (rng.random(len(s)) - 0.5),
}


def drawn(sim, size, seed):
    s = np.arange(size) % 2
    return pt.Transitions(s, 0 * s, *sim.draw(s, 0 * s, np.random.default_rng(seed)))


# ---------------------------------------------------------------- the laws


@each("values", [None, [0.0, 0.3, 1.0, 2.5]])
def test_a_law_of_two_values_has_the_mean_and_the_variance_asked_for(values):
    low, high = np.array([[0.0], [0.3]]), np.array([[1.0], [2.5]])
    task = pt.Task(pt.Observed(low, high, values), POLICY, START, 0.5)
    rows, rng = task.layout.rows, np.random.default_rng(0)
    ends = [rows.per_entry(end.ravel()[rows.pair]) for end in (low, high)]
    for share, part in ((0.0, 0.5), (1.0, 0.5), (0.3, 0.9), (0.9, 0.2), (0.5, 2.0), *rng.random((40, 2))):
        mean = ends[0] + share * (ends[1] - ends[0])
        most = (mean - ends[0]) * (ends[1] - mean)
        law = two_valued(task, mean, part * most)
        assert law.mean == pytest.approx(mean, abs=1e-12)
        assert (law.chances >= -1e-12).all()
        assert law.chances.sum(axis=1) == pytest.approx(1.0)
        assert not task.rewards.outside(np.repeat(rows.pair[rows.of_entry()], 2), law.values.ravel()).any()
        variance = (law.chances * law.values**2).sum(axis=1) - law.mean**2
        if values is None:
            assert variance == pytest.approx(min(part, 1.0) * most, abs=1e-12)
        else:
            assert (variance >= min(part, 1.0) * most - 1e-12).all()


@each("settings", [{"discount": 0.7}, {"discount": 1.0, "horizon": 3}, {"discount": 1.0, "terminal": [1]}])
def test_the_value_and_the_draws_of_a_guess_are_those_of_its_means(settings):
    task, terminal = pt.Task(pt.Observed(0.0, 1.0), POLICY, START, **settings), settings.get("terminal")
    kernel = KERNEL if terminal is None else np.array([KERNEL[0], [[0.0, 1.0]]])
    means = np.where(np.isin(np.arange(2), terminal or [])[:, None], 0.0, MEANS)
    for rewards in (means, np.repeat(means[:, :, None], 2, axis=2) * [0.5, 1.0]):
        known = pt.Task(rewards, POLICY, START, **settings)
        truth = Truth(kernel, law_with_means(task, rewards))
        assert truth.value(task) == pytest.approx(pt.value(known, kernel), rel=1e-12)
        s = np.zeros(40_000, dtype=int)
        x, r = truth.simulator(task).draw(s, s, np.random.default_rng(0))
        assert set(r) <= {0.0, 1.0}
        for y in range(2):
            expected = rewards[0, 0] if rewards.ndim == 2 else rewards[0, 0, y]
            assert r[x == y].mean() == pytest.approx(expected, abs=4 * 0.5 / np.sqrt((x == y).sum()))


def test_a_law_of_next_state_and_listed_reward_is_simulated_as_it_is():
    task = pt.Task(pt.Observed(values=[0, 1, 5]), POLICY, START, 0.8)
    q = np.random.default_rng(3).dirichlet(np.ones(6), size=(2, 1)).reshape(2, 1, 2, 3)
    truth = law_of_values(task, q)
    assert truth.value(task) == pytest.approx(pt.value(task, q), rel=1e-12)
    s = np.ones(60_000, dtype=int)
    x, r = truth.simulator(task).draw(s, 0 * s, np.random.default_rng(0))
    for y in range(2):
        for j, v in enumerate((0, 1, 5)):
            assert ((x == y) & (r == v)).mean() == pytest.approx(q[1, 0, y, j], abs=0.01)


def test_rewards_that_follow_the_next_state_are_simulated_so():
    """The mean of a pair alone would say 1/2 whatever comes next; what was never seen is like its pair."""
    rng, s = np.random.default_rng(0), np.zeros(400, dtype=int)
    x = rng.integers(2, size=400)
    seen = RewardMoments.of(TASK, pt.Transitions(s, s, x, x.astype(float)))
    law = law_after(TASK, seen)
    assert law.mean[:2] == pytest.approx([0.0, 1.0], abs=0.01)
    assert law.mean[2:] == pytest.approx([0.5, 0.5])
    off = np.array([law_after(TASK, seen, np.random.default_rng(i)).mean for i in range(200)]).std(axis=0)
    assert (off[:2] < 0.01).all()
    assert (off[2:] > 0.1).all()


# ---------------------------------------------------------------- plans


@pytest.mark.calibration
def test_a_plan_with_mean_rewards_states_the_samples_of_real_runs():
    """At the ends of the range, as planned for, the mean is within the range; narrower rewards need fewer samples."""
    plan = pt.plan(TASK, KERNEL, VALUE - 0.3, rewards=MEANS)
    assert list(plan.samples) == ["TDBetting"]
    assert plan.value == pytest.approx(VALUE)
    _, low, high = plan.samples["TDBetting"]
    found = {}
    for name, law in LAWS.items():
        sim = pt.TabularSimulator(KERNEL, rewards=law)
        found[name] = [pt.decide(TASK, sim, VALUE - 0.3, rng=1000 + seed).samples for seed in range(60)]
    slack = 4 * np.std(found["two-valued"]) / np.sqrt(60)
    assert low - slack <= np.mean(found["two-valued"]) <= high + slack
    assert np.mean(found["narrow"]) < low - slack  # the range is no range of everything
    pilot = pt.plan(TASK, drawn(pt.TabularSimulator(KERNEL, rewards=LAWS["narrow"]), 2000, 1), VALUE - 0.3)
    slack = 4 * np.std(found["narrow"]) / np.sqrt(60)
    assert pilot.samples["TDBetting"][1] - slack <= np.mean(found["narrow"]) <= pilot.samples["TDBetting"][2] + slack
    assert pilot.samples["TDBetting"][2] < low
    assert "2,000 pilot draws" in pilot.notes[0]


def test_several_guesses_and_listed_rewards():
    plan = pt.plan(TASK, [KERNEL, KERNEL], VALUE - 0.4, rewards=[MEANS, 0.9 * MEANS], runs=8)
    assert (plan.guesses, plan.value) == (2, pytest.approx(0.95 * VALUE))
    task = pt.Task(pt.Observed(values=[0, 1]), POLICY, START, 0.7)
    q = np.stack([KERNEL * (1 - MEANS[:, :, None]), KERNEL * MEANS[:, :, None]], axis=3)
    V = pt.value(task, q)
    first, second = pt.plan(task, q, V - 0.4, runs=8), pt.plan(task, KERNEL, V - 0.4, rewards=MEANS, runs=8)
    assert list(first.samples) == ["TDBetting"]
    assert first.samples == second.samples  # the two values are the ends of the range


@pytest.mark.calibration
def test_runs_that_go_on_end_within_what_was_said_as_often_as_stated():
    """Of real runs that are resumed, one in five may take longer; longer than a tenth of it, nearly all do."""
    sim, found = pt.TabularSimulator(KERNEL, rewards=LAWS["narrow"]), []
    for seed in range(16):
        stopped = pt.decide(TASK, sim, VALUE - 0.15, rng=seed, max_samples=60)
        if stopped.answer is None:
            whole = pt.decide(TASK, sim, VALUE - 0.15, rng=seed, resume=stopped).samples
            found.append((stopped.still_needed(max_samples=4000).samples, whole - 60))
    assert len(found) >= 10
    assert not too_often(sum(more > said for said, more in found), len(found), 0.2)
    finite = [(said, more) for said, more in found if said < np.inf]
    assert too_often(sum(more > 0.1 * said for said, more in finite), len(finite), 0.2)


def test_a_log_and_a_checkpoint_tell_how_many_more():
    sim = pt.TabularSimulator(KERNEL, rewards=LAWS["narrow"])
    log = pt.assess(TASK, drawn(sim, 30, 0), VALUE - 0.2)
    assert log.answer is None
    assert "more rows like these" in log.still_needed().words
    assert "still_needed()" in str(log)
    stopped = pt.decide(TASK, sim.draw, VALUE - 0.2, rng=1, max_samples=20)  # called: nothing is drawn ahead
    needed = pt.still_needed(stopped, runs=8)
    assert 0 < needed.samples < np.inf
    assert set(needed.fresh) == {"TDBetting"}
    again = pt.decide(TASK, sim.draw, VALUE - 0.2, rng=1, max_samples=20, resume=stopped)
    assert np.array_equal(again.forecast.reward_moments.table, stopped.forecast.reward_moments.table)
    assert again.forecast.reward_moments.table[0].sum() == 20


def test_what_is_refused_and_what_to_do_instead():
    R = VALUE - 0.3
    assert_refused(lambda: pt.plan(TASK, KERNEL, R), "observed", "rewards=", "Transitions(s, a, x, r)")
    assert_refused(lambda: pt.plan(TASK, pt.Counts(2, 1), R), "counts have no rewards", "Transitions(s, a, x, r)")
    assert_refused(lambda: pt.plan(TASK, KERNEL, R, rewards=MEANS + 0.5), "(s=1, a=0)", "1.3", "[0, 1]")
    assert_refused(lambda: pt.plan(TASK, KERNEL, R, rewards=[0.3, 0.8]), "rewards", "shape")
    known = pt.Task(MEANS, POLICY, START, 1.0, horizon=3)
    assert_refused(lambda: pt.plan(known, KERNEL, R, rewards=MEANS), "rewards", "leave them out")


# ---------------------------------------------------------------- the command


def test_the_command_takes_a_model_with_mean_rewards_or_a_log(here, capsys):
    names = {"states": ["new", "old"], "actions": ["go"]}
    asked = pt.Task(pt.Observed(0.0, 1.0), POLICY, START, 1.0, horizon=3, **names)
    save_model("shop.json", asked, KERNEL, threshold=VALUE - 0.4)
    save_model("guess.json", pt.Task(MEANS, POLICY, START, 1.0, horizon=3, **names), KERNEL)
    assert main(["plan", "shop.json", "--guess", "guess.json", "--json", "--quiet"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["value"] == pytest.approx(VALUE)
    assert said["samples"]["TDBetting"] == list(pt.plan(asked, KERNEL, VALUE - 0.4, rewards=MEANS).samples["TDBetting"])
    log = drawn(pt.TabularSimulator(KERNEL, rewards=LAWS["narrow"]), 300, 2)
    rows = zip(range(300), log.s, log.x, log.r, strict=True)
    lines = [f"{i},{names['states'][s]},go,{names['states'][x]},{r}" for i, s, x, r in rows]
    (here / "log.csv").write_text("\n".join(["order,s,a,s_next,paid", *lines]) + "\n", encoding="utf-8")
    pilot = ["plan", "shop.json", "--pilot", "log.csv", "--json", "--quiet"]
    assert main([*pilot, "--column", "reward=paid"]) == 0
    assert "300 pilot draws" in json.loads(capsys.readouterr().out)["notes"][0]
    for words, given in (
        ("--guess MODEL", []),
        ("its rewards are observed, too", ["--guess", "shop.json"]),
        ("belongs to --pilot", ["--guess", "guess.json", "--column", "reward=paid"]),
    ):
        assert main(["plan", "shop.json", *given]) == 2
        assert words in capsys.readouterr().err
