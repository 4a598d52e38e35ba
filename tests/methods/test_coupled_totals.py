"""Two policies whose totals have a bound: rollouts by enumeration, calibration, episodes that do not end."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import assert_refused, each
from methods.episode_builders import sums_of
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import shared_pool
from policytest.payoffs.two_policies import two_policies

DELTA = 0.1

# ---------------------------------------------------------------- the law of a rollout


def staircase(seed, observed=False):
    """Four states, one after another or skipped, and an end; two policies that agree in one state; and a bound."""
    rng, S = np.random.default_rng(seed), 5
    allowed = np.triu(np.ones((S, S), dtype=bool), 1)
    kernel = rng.dirichlet(np.ones(S), size=(S, 2)) * allowed[:, None, :]
    kernel[:-1] /= kernel[:-1].sum(axis=2, keepdims=True)
    kernel[-1, :, -1] = 1.0
    support, rewards = kernel > 0, np.round(rng.normal(size=(S, 2)), 1)
    rewards[-1] = 0.0
    policies = rng.dirichlet(np.ones(2), size=(2, S))
    policies[1, 1] = policies[0, 1]
    least, most = np.zeros(S), np.zeros(S)
    for s in range(S - 2, -1, -1):
        later = np.array([[least[s + 1 :].min(), most[s + 1 :].max()]] * 2)
        least[s], most[s] = (rewards[s] + later[:, 0]).min(), (rewards[s] + later[:, 1]).max()
    bound = float(least.min()), float(most.max())
    given = pt.Observed(rewards, rewards + 0.0) if observed else rewards
    settings = {"terminal": [S - 1], "total_rewards": bound}
    rho = np.array([0.6, 0.4, 0.0, 0.0, 0.0])
    return [pt.Task(given, policy, rho, 1.0, support, **settings) for policy in policies], rewards, kernel


def total_law(s, policy, rewards, kernel):
    """{total: probability} of an episode from s."""
    if s == len(kernel) - 1:
        return {0.0: 1.0}
    found = defaultdict(float)
    for a in range(2):
        for x in np.flatnonzero(kernel[s, a]):
            for G, p in total_law(x, policy, rewards, kernel).items():
                found[round(rewards[s, a] + G, 9)] += policy[s, a] * kernel[s, a, x] * p
    return found


def difference_law(s, policies, rewards, kernel):
    """{G_A - G_B: probability} of coupled episodes from s: a common action and one draw, or each on its own."""
    if s == len(kernel) - 1:
        return {0.0: 1.0}
    found, common = defaultdict(float), np.minimum(*policies[:, s])
    for a in range(2):
        for x in np.flatnonzero(kernel[s, a]):
            for D, p in difference_law(x, policies, rewards, kernel).items():
                found[round(D, 9)] += common[a] * kernel[s, a, x] * p
    own = policies[:, s] - common
    laws = []
    for index in range(2):
        law = defaultdict(float)
        for a in range(2):
            for x in np.flatnonzero(kernel[s, a]):
                for G, p in total_law(x, policies[index], rewards, kernel).items():
                    law[rewards[s, a] + G] += own[index, a] * kernel[s, a, x] * p
        laws.append(law)
    parted = own[0].sum()
    for G, p in laws[0].items():
        for H, q in laws[1].items():
            found[round(G - H, 9)] += p * q / parted if parted > 0 else 0.0
    return found


@each(("seed", "sign"), [(seed, sign) for seed in range(4) for sign in (1.0, -1.0)])
def test_a_rollout_has_the_law_of_the_difference_of_two_totals(seed, sign):
    """By enumeration: its mean is that of the values, no sum is below -L, and compiled sums come as often."""
    tasks, rewards, kernel = staircase(seed)
    policies, rho = np.array([task.policy for task in tasks]), tasks[0].initial
    run = TDRun(None, two_policies(*tasks, 0.1, shared_pool(tasks, pt.TabularSimulator(kernel), seed)))
    rng = np.random.default_rng(seed)
    V = np.append(rng.normal(size=(2, 4)), np.zeros((2, 1)), axis=1)
    bets = list(zip(run.payoff.policies, (sign, -sign), strict=True))
    parts = [bet.bet(v, bet.base(v, None, 0.0), side) for (bet, side), v in zip(bets, V, strict=True)]
    plan = run.payoff.joined(parts, sign)
    U, law = V[0] - V[1], defaultdict(float)
    for s in np.flatnonzero(rho):
        for D, p in difference_law(int(s), policies, rewards, kernel).items():
            law[round(sign * (D - U[s]), 6)] += rho[s] * p
    sums, chances = (np.array(list(part)) for part in (law.keys(), law.values()))
    values = [pt.value(task, kernel) for task in tasks]
    assert chances.sum() == pytest.approx(1.0)
    assert chances @ sums == pytest.approx(sign * (values[0] - values[1] - rho @ U), abs=1e-5)
    assert sums.min() >= -plan.L - 1e-6
    found = sums_of(run, plan, 4000)
    assert set(np.round(found, 6)) <= set(law)
    for S, p in law.items():
        error = 5 * np.sqrt(p * (1 - p) / len(found)) + 5 / len(found)
        assert np.mean(np.round(found, 6) == S) == pytest.approx(p, abs=error)


def test_the_worst_total_of_the_difference_is_attained():
    """A earns the least and B the most, where the policies part at once; nothing smaller would do."""
    kernel = np.zeros((2, 2, 2))
    kernel[:, :, 1] = 1.0
    rewards = np.array([[-1.0, 3.0], [0.0, 0.0]])
    tasks = [
        pt.Task(rewards, np.array([row] * 2), [1.0, 0.0], 1.0, terminal=[1], total_rewards=(-1.0, 3.0))
        for row in ([1.0, 0.0], [0.0, 1.0])
    ]
    for sign, pair in ((1.0, tasks), (-1.0, tasks[::-1])):
        payoff = two_policies(*pair, 0.0, shared_pool(pair, pt.TabularSimulator(kernel), 0))
        bets = zip(payoff.policies, (sign, -sign), strict=True)
        parts = [bet.bet(np.zeros(2), bet.base(np.zeros(2), None, 0.0), side) for bet, side in bets]
        assert abs(payoff.joined(parts, sign).L - 4.0) <= 1e-6


# ---------------------------------------------------------------- answers


def tie(observed=False):
    """After some idle steps action 0 pays 10 with probability 0.1, action 1 always 1: the means are the same."""
    kernel = np.zeros((3, 2, 3))
    kernel[0] = [[0.5, 0.45, 0.05], [0.5, 0.5, 0.0]]
    kernel[1:, :, 1:] = np.eye(2)[:, None, :]
    rewards = np.zeros((3, 2, 3))
    rewards[0, 0, 2], rewards[0, 1, 1] = 10.0, 1.0
    settings = {"initial": [1.0, 0.0, 0.0], "discount": 1.0, "terminal": [1, 2], "total_rewards": (0.0, 10.0)}
    given = pt.Observed(0.0, 10.0) if observed else rewards
    policies = [np.array([row] * 3) for row in ([1.0, 0.0], [0.0, 1.0])]
    tasks = [pt.Task(given, policy, **settings) for policy in policies]
    paid = (lambda s, a, x, rng: rewards[s, a, x]) if observed else None
    return tasks, pt.TabularSimulator(kernel, rewards=paid), kernel


@each("observed", [False, True])
def test_where_two_values_are_equal_each_side_errs_at_most_as_often_as_delta_allows(observed):
    """The difference is skewed. A margin that is off is answered wrongly far more often: the test would see it."""
    tasks, sim, kernel = tie(observed)
    if not observed:
        assert pt.value(tasks[0], kernel) == pytest.approx(pt.value(tasks[1], kernel))
    first, second = tasks[::-1] if observed else tasks
    for margin, runs in ((0.0, 40), (-1.2, 14)):
        asked = first, second, sim, DELTA, margin
        found = [pt.compare(*asked, rng=seed, max_samples=1500).answer for seed in range(runs)]
        assert too_often(found.count("above"), runs, DELTA) == (margin < 0)
        assert not too_often(found.count("below"), runs, DELTA)


def test_comparisons_and_searches_with_a_bound_answer_and_go_on(tmp_path):
    """Rewards of both signs go round a cycle: without the bound nothing can be proved."""
    kernel = np.zeros((3, 2, 3))
    kernel[:2] = [[[0.6, 0.2, 0.2], [0.3, 0.4, 0.3]], [[0.2, 0.5, 0.3], [0.1, 0.3, 0.6]]]
    kernel[2, :, 2] = 1.0
    rewards, rho = np.array([[1.0, 1.5], [2.0, -0.5], [0.0, 0.0]]), [0.7, 0.3, 0.0]
    policies = [np.array([[p, 1 - p]] * 3) for p in (0.8, 0.3, 0.1)]
    settings = {"discount": 1.0, "terminal": [2], "total_rewards": (-30.0, 80.0)}
    tasks, sim = [pt.Task(rewards, policy, rho, **settings) for policy in policies], pt.TabularSimulator(kernel)
    V = [pt.value(task, kernel) for task in tasks]
    gap = V[0] - V[1]
    for margin, answer in ((gap - 1.5, "above"), (gap + 1.5, "below")):
        verdict = pt.compare(*tasks[:2], sim, margin=margin)
        assert (verdict.answer, verdict.certified) == (answer, True)
        assert verdict.interval[0] <= gap <= verdict.interval[1]
    part = pt.compare(*tasks[:2], sim, margin=gap - 1.5, max_samples=57, checkpoint=tmp_path / "run.npz")
    assert part.answer is None
    whole = pt.compare(*tasks[:2], sim, margin=gap - 1.5)
    resumed = pt.compare(*tasks[:2], sim, margin=gap - 1.5, resume=tmp_path / "run.npz")
    assert (resumed.samples, resumed.evidence, resumed.interval) == (whole.samples, whole.evidence, whole.interval)
    found = pt.identify(rewards, rho, sim=sim, policies=policies, **settings)
    assert (found.index, found.certified) == (int(np.argmax(V)), True)
    rng = np.random.default_rng(0)
    s, a = rng.integers(2, size=6000), rng.integers(2, size=6000)
    log = pt.Transitions(s, a, sim.draw(s, a, rng))
    assert pt.compare(*tasks[:2], log, margin=gap - 1.5).answer == "above"
    assert pt.identify(rewards, rho, sim=log, policies=policies[:2], **settings).index == 0
    tight = [pt.Task(rewards, policy, rho, **{**settings, "total_rewards": (0.0, 4.0)}) for policy in policies]
    assert_refused(lambda: pt.compare(*tight[:2], sim, margin=1.0), "total_rewards is (0.0, 4.0)", "widen")
    words = "the totals of a rollout of rows from different episodes of the log and of another one differ by more"
    assert_refused(lambda: pt.compare(*tight[:2], log, margin=1.0), "total_rewards is (0.0, 4.0)", words)


@pytest.mark.filterwarnings("ignore:state 3 has only been seen to lead to itself")  # that is the task
def test_episodes_that_do_not_end_are_given_up_as_lost():
    """One in forty is caught where nothing is paid. An answer is still found, and resuming changes nothing."""
    kernel = np.zeros((4, 2, 4))
    kernel[0] = [[0.3, 0.2, 0.475, 0.025], [0.3, 0.6, 0.075, 0.025]]
    kernel[3, :, 3] = kernel[1, :, 1] = kernel[2, :, 2] = 1.0
    rewards = np.zeros((4, 2, 4))
    rewards[0, :, 2] = 1.0
    settings = {"terminal": [1, 2], "total_rewards": (0.0, 1.0)}
    rho, policies = [1.0, 0.0, 0.0, 0.0], [np.array([row] * 4) for row in ([1.0, 0.0], [0.0, 1.0])]
    tasks, sim = [pt.Task(rewards, policy, rho, 1.0, **settings) for policy in policies], pt.TabularSimulator(kernel)
    whole = pt.compare(*tasks, sim, rng=1, max_samples=200_000)
    assert whole.answer == "above"
    assert whole.samples > 1000  # at least one was given up
    part = pt.compare(*tasks, sim, rng=1, max_samples=whole.samples // 2)
    resumed = pt.compare(*tasks, sim, rng=1, max_samples=200_000, resume=part)
    assert (resumed.samples, resumed.evidence) == (whole.samples, whole.evidence)
    never = [pt.Task(rewards, policy, [0, 0, 0, 1.0], 1.0, **settings) for policy in policies]
    assert pt.compare(*never, sim, max_samples=5000).answer is None
