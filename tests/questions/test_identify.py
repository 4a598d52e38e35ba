"""Identification by the KL rule and by KLB-TS; searches that are interrupted; names; what needs no samples."""

from __future__ import annotations

import itertools
import json
import math
import signal

import numpy as np
import pytest

import policytest as pt
from betting_builders import optimal, too_often
from policytest.methods import td_run
from policytest.questions.identify.kl_search import Deviations, KLSearch, Rivals
from policytest.questions.identify.klbts import KLBTSSearch, _least_kl
from policytest.questions.identify.policies import optimal_actions, task_of_all_pairs
from policytest.worst_case.functional_solver import DifferenceSolver
from test_ptst_difference import WithoutDimension, pressing

METHODS = {
    "betting": pt.TDBetting(),
    "KL": pt.PTST(),
    "KL, adaptive": pt.PTST(allocation=pt.Adaptive()),
    "KLB-TS": pt.KLBTS(),
}


def easy(seed, S=3, A=2, gamma=0.5, on_successor=False):
    """Gaps of at least 0.3."""
    for attempt in itertools.count():
        rng = np.random.default_rng((seed, attempt))
        rewards = rng.normal(size=(S, A, S) if on_successor else (S, A))
        kernel = rng.dirichlet(np.ones(S), size=(S, A))
        actions, Q = optimal(rewards, kernel, gamma)
        if (Q[:, -1] - Q[:, -2]).min() > 0.3:
            return rewards, kernel, actions, np.full(S, 1 / S)


def no_difference():
    """Two actions that are alike under the kernel, though that is not known."""
    rng = np.random.default_rng(3)
    kernel = rng.dirichlet(np.ones(2), size=(2, 1)).repeat(2, axis=1)
    return np.array([[0.2, 0.2], [1.0, 1.0]]), kernel, np.array([0.5, 0.5])


# ---------------------------------------------------------------- answers


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("seed", [0, 1])
def test_every_method_finds_the_optimal_policy(name, seed):
    rewards, kernel, actions, initial = easy(seed, on_successor=seed == 1)
    found = pt.identify(
        rewards, initial, 0.5, pt.TabularSimulator(kernel), method=METHODS[name], rng=seed, max_samples=400_000
    )
    assert found.answered
    assert (found.policy.argmax(axis=1) == actions).all()
    assert found.certified == (name in ("betting", "KLB-TS"))
    assert found.settled == found.questions == 3
    assert found.counts.total == found.samples
    first = str(found).splitlines()[0]
    said = "(certified)" if found.certified else "(not certified: this policy is optimal)"
    assert first.endswith(said)
    assert first.startswith("No reliable answer") is not found.certified
    assert found.method.split()[0] in ("betting", "PTST", "KLB-TS")
    assert json.loads(found.to_json())["certified"] is found.certified


@pytest.mark.parametrize("allocation", ["uniform", pt.Adaptive()], ids=["uniform", "adaptive"])
def test_the_best_of_some_by_the_kl_rule(allocation):
    rewards, kernel, actions, initial = easy(2)
    sim, best = pt.TabularSimulator(kernel), np.eye(2)[actions]
    policies = [1.0 - best, np.full((3, 2), 0.5), best, 0.7 * best + 0.15]
    found = pt.identify(
        rewards, initial, 0.5, sim, policies=policies, method=pt.PTST(allocation=allocation), max_samples=100_000
    )
    assert (found.index, found.answered, found.certified) == (2, True, False)
    assert (found.settled, found.questions) == (3, 3)
    assert found.values.argmax() == 2
    assert "not certified" in str(found).splitlines()[0]


def test_at_the_stop_no_alternative_is_in_the_ball_and_before_it_one_is():
    rewards, kernel, _, initial = easy(4)
    task, sim = task_of_all_pairs(rewards, initial, 0.5, None), pt.TabularSimulator(kernel)
    search = KLSearch(Deviations(task), pt.PTST(), sim, 0.05, 7)
    for check in search.go(100_000):
        if not search.answered:
            last = check.samples
    assert search.answered
    level, tally = -math.log(0.05), search.tally
    radius = level + tally.dimension()
    for functional in search.current.alternatives:
        assert DifferenceSolver(starts=6).extreme(tally.problem(functional).extreme(1.0, radius)).upper > -1e-9
    again = KLSearch(Deviations(task), pt.PTST(), sim, 0.05, 7)
    for _ in again.go(search.run.samples - 1):
        pass
    assert not again.answered
    assert again.run.samples == search.run.samples - 1 >= last - 1
    assert again.tally.witness_evidence() < level  # some kernel with an alternative that is as good is in the ball
    witness = again.tally.functional.value(again.tally.w)
    assert abs(witness) < 1e-8


@pytest.mark.parametrize("method", [pt.PTST(), pt.KLBTS()], ids=["KL", "KLB-TS"])
def test_supports_and_states_nobody_reaches(method):
    support = np.zeros((3, 2, 3), dtype=bool)
    support[0, :, :2] = support[1, :, :2] = True
    support[2] = True
    rewards = np.array([[0.0, 0.5], [2.0, 0.0], [5.0, 4.9]])
    kernel = np.array([[[0.2, 0.8, 0], [0.9, 0.1, 0]], [[0.5, 0.5, 0], [0.4, 0.6, 0]], [[1, 0, 0], [0, 1, 0]]])
    found = pt.identify(
        rewards, [1.0, 0.0, 0.0], 0.5, pt.TabularSimulator(kernel), method=method, support=support, max_samples=200_000
    )
    actions, _ = optimal(rewards, kernel, 0.5)
    assert found.answered
    assert found.questions == 2
    assert (found.policy.argmax(axis=1)[:2] == actions[:2]).all()
    assert found.counts.visits[2].sum() == 0


# ---------------------------------------------------------------- error probabilities


@pytest.mark.parametrize("name", METHODS)
def test_near_ties_are_answered_wrongly_at_most_as_often_as_delta_allows(name):
    """The second action is better in both states by next to nothing: a policy with the first one is a wrong answer."""
    rewards, kernel, initial = no_difference()
    rewards = rewards + np.array([0.0, 1e-9])
    sim, runs, wrong = pt.TabularSimulator(kernel), 8 if "adaptive" in name else 40, 0
    for seed in range(runs):
        found = pt.identify(rewards, initial, 0.5, sim, 0.1, method=METHODS[name], rng=seed, max_samples=150)
        wrong += found.answered and (found.policy[:, 1] != 1.0).any()
    assert not too_often(wrong, runs, 0.1)


def test_a_rule_that_asks_for_too_little_is_caught():
    """The control: nothing is paid for unknown rows, and a tenth of the evidence will do."""
    rewards, kernel, initial = no_difference()
    task = task_of_all_pairs(rewards + np.array([0.0, 1e-9]), initial, 0.5, None)
    sim, runs, wrong = pt.TabularSimulator(kernel), 50, 0
    for seed in range(runs):
        search = KLSearch(Deviations(task), pt.PTST(boundary=WithoutDimension()), sim, 0.1, seed)
        search.required /= 10.0
        for _ in search.go(150):
            pass
        wrong += search.answered and (search.current.task.policy.argmax(axis=1) != 1).any()
    assert too_often(wrong, runs, 0.1)


# ---------------------------------------------------------------- KLB-TS


def klbts(rewards, initial, gamma, kernel, n, support=None):
    """The search, with these counts."""
    task = task_of_all_pairs(rewards, initial, gamma, support)
    search = KLBTSSearch(task, pt.KLBTS(), pt.TabularSimulator(kernel), 0.05, 0)
    search.tally.n[:] = n.ravel()
    search.tally.N[:] = search.tally.rows.pick(kernel * n[..., None], task.n_states)
    search.tally._forget()
    return search


@pytest.mark.parametrize("seed", [2, 3, 4, 5, 7, 8, 10, 11, 15, 23])
def test_the_bounds_of_klbts_are_below_the_nearest_alternative(seed):
    """Against the local search, which is never below the truth; where the bounds are tight, ten times them is not."""
    rng = np.random.default_rng(seed)
    S, A, gamma = int(rng.integers(2, 4)), 2, (0.3, 0.7, 0.9)[seed % 3]
    rewards = rng.normal(size=(S, A, S) if seed % 4 == 3 else (S, A))
    kernel, initial = rng.dirichlet(np.full(S, 0.7), size=(S, A)), np.full(S, 1 / S)
    n = np.round(np.exp(rng.uniform(1, 6, size=(S, A))))
    search = klbts(rewards, initial, gamma, kernel, n)
    now = search.gaps(search.tally.estimate())
    family = Deviations(search.task)
    found = family.candidate(search.tally.rows, search.tally.estimate(), search.tally.only_successor)
    assert (found.task.policy.argmax(axis=1) == now.actions).all()
    assert len(found.alternatives) == now.asked.sum() > 0
    nearest = min(
        DifferenceSolver(starts=4).nearest(search.tally.problem(functional).nearest(1.0, 0.0)).upper
        for functional in found.alternatives
    )
    proved = search.proved_distance(now)
    assert 0 < search.distance(now) <= nearest
    assert 0.9 * search.distance(now) <= proved <= nearest  # so that nearly all answers are certified
    if seed in (15, 23):
        assert 10 * proved > nearest


def test_the_rate_of_a_row_is_the_inverse_of_its_bound():
    rng = np.random.default_rng(0)
    variance, largest, k = rng.exponential(size=50), 1 + rng.exponential(size=50), np.exp(rng.normal(scale=4, size=50))
    x = np.sqrt(4 * k * variance + 2 * math.sqrt(2) * largest**2 * k**1.5)
    assert _least_kl(x, variance, largest) == pytest.approx(k, rel=1e-6)
    assert (_least_kl(np.array([0.0, 1.0]), np.zeros(2), np.zeros(2)) == [0.0, np.inf]).all()


def test_the_shares_of_klbts_minimise_its_bound():
    """Against a numerical minimum of U over shares."""
    rewards, kernel, _, initial = easy(5, gamma=0.9)
    search = klbts(rewards, initial, 0.9, kernel, np.ones((3, 2)))
    own, now = search._shares(search.tally.estimate(), None, None), search.gaps(search.tally.estimate())
    assert now.asked.sum() == 3

    def bound(omega):
        return 1.0 / klbts(rewards, initial, 0.9, kernel, omega.reshape(3, 2)).distance(now)

    least = bound(own)
    rng = np.random.default_rng(1)
    for _ in range(200):
        other = own * np.exp(0.2 * rng.normal(size=6))
        assert bound(other / other.sum()) >= least * (1 - 1e-9)
    assert bound(np.full(6, 1 / 6)) > least


# ---------------------------------------------------------------- what needs no samples


@pytest.mark.parametrize("name", METHODS)
@pytest.mark.parametrize("shape", [(3, 2), (3, 2, 3)])
def test_constant_rewards_need_no_samples(name, shape):
    sim = pt.TabularSimulator(np.full((3, 2, 3), 1 / 3))
    found = pt.identify(np.full(shape, 0.7), [0.2, 0.3, 0.5], 0.9, sim, method=METHODS[name])
    assert (found.answered, found.certified, found.samples) == (True, True, 0)
    if name != "KLB-TS":
        both = [np.full((3, 2), 0.5), np.tile([1.0, 0.0], (3, 1))]
        some = pt.identify(np.full(shape, 0.7), [0.2, 0.3, 0.5], 0.9, sim, method=METHODS[name], policies=both)
        assert (some.answered, some.certified, some.samples, some.index) == (True, True, 0, 0)


@pytest.mark.parametrize("name", METHODS)
def test_one_state_and_one_action(name):
    sim = pt.TabularSimulator(np.ones((1, 2, 1)))
    found = pt.identify([[0.0, 1.0]], [1.0], 0.9, sim, method=METHODS[name])
    assert (found.answered, found.samples, found.policy.tolist()) == (True, 0, [[0.0, 1.0]])
    alone = pt.identify(
        [[1.0], [2.0]], [0.5, 0.5], 0.9, pt.TabularSimulator(np.full((2, 1, 2), 0.5)), method=METHODS[name]
    )
    assert (alone.answered, alone.samples, alone.questions) == (True, 0, 0)


@pytest.mark.parametrize("name", METHODS)
def test_without_discounting_ahead_rewards_decide(name):
    sim = pt.TabularSimulator(np.full((2, 2, 2), 0.5))
    found = pt.identify([[0.0, 1.0], [3.0, 2.0]], [0.5, 0.5], 0.0, sim, method=METHODS[name])
    assert (found.answered, found.samples) == (True, 0)
    assert found.policy.argmax(axis=1).tolist() == [1, 0]


# ---------------------------------------------------------------- interrupted, told, named, refused


@pytest.mark.parametrize("name", METHODS)
def test_ctrl_c_ends_a_search_between_draws(name):
    rewards, kernel, initial = no_difference()
    before = signal.getsignal(signal.SIGINT)
    table = pt.TabularSimulator(kernel)
    for at, times in ((1, 1), (3, 1), (3, 2)):
        found = pt.identify(rewards, initial, 0.5, pressing(table, at, times), method=METHODS[name], max_samples=5000)
        assert (found.answered, found.certified, found.reason) == (False, False, "interrupted")
        assert found.counts.total == found.samples < 5000
        assert str(found).startswith("Undecided: interrupted")
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("name", METHODS)
def test_progress_is_told(name, some):
    rewards, kernel, _, initial = easy(0)
    policies = [np.tile([1.0, 0.0], (3, 1)), np.tile([0.0, 1.0], (3, 1))] if some else None
    if some and name == "KLB-TS":
        pytest.skip("for all policies only")
    seen = []

    def tell(check):
        low, high = check.interval()
        assert low <= check.estimate + 1e-9
        assert check.estimate <= high + 1e-9
        assert 0 <= check.settled <= check.questions
        assert not math.isnan(max(check.evidence))
        seen.append(check.samples)

    settings = {"method": METHODS[name], "policies": policies, "progress": tell, "max_samples": 3000}
    found = pt.identify(rewards, initial, 0.5, pt.TabularSimulator(kernel), **settings)
    assert seen[-1] == found.samples
    assert seen == sorted(seen)


def test_the_clock_does_not_matter_to_a_slow_simulator(monkeypatch):
    """Turns are counted in samples: a simulator called step by step gives the same search whatever time it takes."""
    rewards, kernel, _, initial = easy(1)
    table = pt.TabularSimulator(kernel)
    runs = []
    for patience in (-1.0, 1e9):
        monkeypatch.setattr(td_run, "PATIENCE", patience)
        runs.append(pt.identify(rewards, initial, 0.5, table.draw, rng=5, max_samples=20_000))
    assert runs[0].samples == runs[1].samples
    assert (runs[0].counts.N == runs[1].counts.N).all()


def test_names_are_shown():
    rewards, kernel, actions, initial = easy(0)
    sim, words = pt.TabularSimulator(kernel), ["left", "right"]
    found = pt.identify(rewards, initial, 0.5, sim, states=["hall", "yard", "<roof>"], actions=words)
    assert f"hall: {words[actions[0]]}, yard: {words[actions[1]]}" in str(found)
    assert "&lt;roof&gt;" in found._repr_html_()
    assert json.loads(found.to_json())["actions"] == words
    assert ", ".join(words[a] for a in actions) in str(pt.identify(rewards, initial, 0.5, sim, actions=words))
    with pytest.raises(pt.InputError, match="actions"):
        pt.identify(rewards, initial, 0.5, sim, actions=["only"])


def test_methods_without_a_meaning_here_are_refused():
    rewards, kernel, _, initial = easy(0)
    sim, half = pt.TabularSimulator(kernel), np.full((3, 2), 0.5)
    for message, settings in (
        ("MonteCarlo", {"method": pt.MonteCarlo()}),
        ("policies", {"method": pt.KLBTS(), "policies": [half]}),
        ("policies=2", {"method": pt.KLBTS(policies=2, alternative=half)}),
        ("allocation", {"method": pt.KLBTS(allocation=pt.Adaptive())}),
        ("as_printed", {"method": pt.PTST.as_printed()}),
        ("method", {"method": pt.PTST}),
    ):
        with pytest.raises(pt.InputError, match=message):
            pt.identify(rewards, initial, 0.5, sim, **settings)


def test_policy_iteration_is_value_iteration():
    for seed in range(5):
        rewards, kernel, actions, initial = easy(seed, S=4, A=3, gamma=0.8)
        task = task_of_all_pairs(rewards, initial, 0.8, None)
        found, V = optimal_actions(task, task.layout.rows, kernel.ravel(), np.zeros(4, dtype=np.int64))
        assert (found == actions).all()
        assert pytest.approx(optimal(rewards, kernel, 0.8)[1][:, -1]) == V


def test_rivals_known_to_be_worse_are_no_alternatives():
    tasks = [
        pt.Task([[2.0, 0.0], [2.0, 0.0]], np.tile(row, (2, 1)), [0.5, 0.5], 0.4) for row in ([1.0, 0.0], [0.0, 1.0])
    ]
    family = Rivals(tasks)
    rows = family.task.layout.rows
    candidate = family.candidate(rows, np.full(rows.n_entries, 0.5), np.full(len(rows.pair), -1))
    assert (family.index, candidate.alternatives, candidate.settled) == (0, [], 1)
