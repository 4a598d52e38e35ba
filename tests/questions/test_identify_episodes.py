"""The best of some policies beyond the discounted table: goals, horizons, totals, observed rewards; from logs too."""

from __future__ import annotations

import json

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import assert_refused
from policytest.cli import main
from policytest.questions.identify.tournament import Tournament
from policytest.sources.tasks.files import save_model

KERNEL = np.zeros((3, 2, 3))
KERNEL[0] = [[0.5, 0.35, 0.15], [0.5, 0.2, 0.3]]
KERNEL[1, :, 1] = KERNEL[2, :, 2] = 1.0
POLICIES = [np.array([[1 - p, p]] * 3) for p in (0.2, 0.8, 0.5)]
START = [1.0, 0.0, 0.0]
GOAL = pt.Task.reaching([2], [1], policy=POLICIES[0], initial=START)
REWARDS = np.array([[0.2, 0.6], [0.0, 0.0], [0.0, 0.0]])
ENDS = {"terminal": [1, 2]}
QUESTIONS = {
    "goal": (GOAL.rewards, {"discount": 1.0, **ENDS}),
    "goal within 3 steps": (GOAL.rewards, {"discount": 1.0, "horizon": 3, **ENDS}),
    "rewards, horizon 4": (REWARDS, {"discount": 0.9, "horizon": 4, **ENDS}),
    "observed, horizon 4": (pt.Observed(0.0, 1.0), {"discount": 1.0, "horizon": 4, **ENDS}),
    "observed, discounted": (pt.Observed(0.0, 1.0), {"discount": 0.7, **ENDS}),
}


def simulator(rewards, kernel=KERNEL, means=REWARDS):
    if not isinstance(rewards, pt.Observed):
        return pt.TabularSimulator(kernel)
    return pt.TabularSimulator(
        kernel, rewards=lambda s, a, x, rng: (rng.random(len(s)) < means[s, a]).astype(np.float64)
    )


def exact_values(rewards, settings):
    mean = REWARDS if isinstance(rewards, pt.Observed) else rewards
    return [pt.value(pt.Task(mean, policy, START, **settings), KERNEL) for policy in POLICIES]


@pytest.mark.parametrize("name", QUESTIONS)
def test_the_best_of_some_from_a_simulator_and_from_a_log(name):
    rewards, settings = QUESTIONS[name]
    values, sim = exact_values(rewards, settings), simulator(rewards)
    assert np.argmax(values) == 1
    for source in (sim, sim.draw):
        found = pt.identify(rewards, START, sim=source, policies=POLICIES, max_samples=100_000, rng=3, **settings)
        assert (found.index, found.certified, found.settled) == (1, True, 2)
        assert found.counts.total == found.samples
    s, a, rng = np.zeros(4000, dtype=int), np.arange(4000) % 2, np.random.default_rng(1)
    drawn = sim.draw(s, a, rng)
    log = pt.Transitions(s, a, *(drawn if isinstance(rewards, pt.Observed) else (drawn,)))
    some = [*POLICIES, "logged"]
    found = pt.identify(rewards, START, sim=log, policies=some, actions=["wait", "act"], **settings)
    assert (found.index, found.answered, found.settled) == (1, True, 3)
    assert found.values[:3] == pytest.approx(values, abs=0.05)
    assert found.assumptions


def searched(tasks, seed, level=None):
    """Action 0 is hardly better than action 1."""
    kernel, means = KERNEL.copy(), np.array([[0.401, 0.4], [0.0, 0.0], [0.0, 0.0]])
    kernel[0] = [[0.5, 0.299, 0.201], [0.5, 0.3, 0.2]]
    search = Tournament(tasks, simulator(tasks[0].rewards, kernel, means), 0.1, seed)
    search.level = search.level if level is None else level
    for _ in search.go(120):
        pass
    return search.result("")


def test_the_best_is_thrown_out_at_most_as_often_as_delta_allows():
    """The best is hardly better, so that no bet against it can be expected to lose. Without a level many win."""
    rewards, settings = QUESTIONS["observed, horizon 4"]
    policies = [np.array([[1 - p, p]] * 3) for p in (0.0, 1.0, 0.5)]
    tasks, runs = [pt.Task(rewards, policy, START, **settings) for policy in policies], 40
    found = [searched(tasks, seed) for seed in range(runs)]
    assert not too_often(sum(one.answered and one.index != 0 for one in found), runs, 0.1)
    wrong = [searched(tasks, seed, 1e-3) for seed in range(runs)]
    assert too_often(sum(one.answered and one.index != 0 for one in wrong), runs, 0.1)


def tied(within, seed, nats=0.0):
    """Two policies with the same success probability, the first five times as fast; ``nats`` are claimed too many."""
    kernel = KERNEL.copy()
    kernel[0] = [[0.5, 0.4, 0.1], [0.9, 0.08, 0.02]] if within is None else [[0.3, 0.5, 0.2], [0.6, 0.2, 0.2]]
    policies = [np.array([row] * 3) for row in ([1.0, 0.0], [0.0, 1.0])]
    tasks = [pt.Task.reaching([2], [1], policy=policy, initial=START, within=within) for policy in policies]
    values = [pt.value(task, kernel) for task in tasks]
    assert values[0] == pytest.approx(values[1])
    search = Tournament(tasks, pt.TabularSimulator(kernel), 0.1, seed)
    search.level -= nats
    for _ in search.go(400):
        pass
    found = search.result("")
    return found.index if found.answered else None


@pytest.mark.calibration
@pytest.mark.parametrize("within", [None, 1])
def test_between_equal_chances_of_success_either_is_named_at_most_as_often_as_delta_allows(within):
    """Each of two wrong claims, "the first is better" and "the second is", has delta; two nats too many are seen."""
    runs = 40
    found, control = ([tied(within, seed, nats) for seed in range(runs)] for nats in (0.0, 2.0))
    for index in range(2):
        assert not too_often(found.count(index), runs, 0.1)
    assert too_often(runs - control.count(None), runs, 0.2)


def test_a_search_that_needs_no_samples():
    """Policies that differ only where an episode is over."""
    other = POLICIES[0].copy()
    other[2] = [0.0, 1.0]
    rewards, settings = QUESTIONS["goal"]
    found = pt.identify(
        rewards, START, sim=simulator(rewards), policies=[POLICIES[0], other], max_samples=9, **settings
    )
    assert (found.answered, found.samples) == (True, 0)


def test_what_is_refused_and_what_to_do_instead():
    rewards, settings = QUESTIONS["goal within 3 steps"]
    sim, observed = simulator(rewards), pt.Observed(0.0, 1.0)
    assert_refused(lambda: pt.identify(rewards, START, sim=sim, **settings), "all policies", "policies=[...]")
    assert_refused(lambda: pt.identify(observed, START, 0.9, sim), "rewards", "observed", "policies=[...]")
    by_kl = {"policies": POLICIES, "method": pt.PTST()}
    assert_refused(lambda: pt.identify(rewards, START, sim=sim, **by_kl, **settings), "a horizon", "KL rule")
    s = np.zeros(3, dtype=int)
    log = pt.Transitions(s, s, s, 0.0 * s)
    assert_refused(lambda: pt.identify(observed, START, 0.9, log, policies=["logged"]), "actions=[...]")


def test_candidates_on_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {"states": ["ill", "dead", "well"], "actions": ["wait", "act"]}
    task = pt.Task(REWARDS, POLICIES[0], START, 0.9, support=KERNEL > 0, **names)
    save_model("clinic.json", task, KERNEL)
    asked = ["identify", "clinic.json", "--goal", "well", "--avoid", "dead", "--horizon", "3", "--json", "--quiet"]
    assert main(asked) == 2
    assert "--candidate" in capsys.readouterr().err
    for index in range(2):
        pt.sources.save_policy(f"{index}.csv", POLICIES[index], task)
    candidates = ["--candidate", "0.csv", "--candidate", "1.csv"]
    assert main([*asked, *candidates]) == 0
    said = json.loads(capsys.readouterr().out)
    rewards, settings = QUESTIONS["goal within 3 steps"]
    expected = pt.identify(rewards, START, sim=simulator(rewards), policies=POLICIES[:2], **settings)
    assert (said["index"], said["samples"]) == (1, expected.samples)
    rng, s = np.random.default_rng(2), np.zeros(3000, dtype=int)
    a = rng.integers(2, size=3000)
    x = simulator(rewards).draw(s, a, rng)
    rows = (f"{i},ill,{task.actions[a[i]]},{task.states[x[i]]}" for i in range(3000))
    (tmp_path / "log.csv").write_text("order,s,a,s_next\n" + "\n".join(rows) + "\n", encoding="utf-8")
    assert main([*asked, *candidates, "--candidate", "logged", "--log", "log.csv"]) == 0
    assert json.loads(capsys.readouterr().out)["index"] == 1
