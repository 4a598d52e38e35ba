"""No bets go bankrupt: on the worst payoffs the capital stays above a stated bound, for every method that bets.

An adversary, who wants the fitted fractions to be wrong, chooses the payoffs: nothing is lost for a long time, and then
everything, again and again. The bound is that of `with_reserve`: log(share/k), and the best of the k constants.
"""

from __future__ import annotations

import math

import numpy as np

import policytest as pt
from builders import each
from policytest.eprocess.strategies import RESERVE, RESERVED, RESERVED_UNDISCOUNTED
from policytest.kl.sampler import Recorded
from policytest.methods.episode_log_betting import RecordedRun
from policytest.methods.log_betting import LogRun
from policytest.questions.compare import _coupled as coupled_run

K = len(RESERVE)
LEVEL = math.inf  # no answer on the way
FLOOR = math.log(RESERVED / K)
UNDISCOUNTED_FLOOR = math.log(RESERVED_UNDISCOUNTED / K)
QUIET, LOUD = 400, 400  # outcomes before the first loss, and of losses among them


def schedule(t):
    """Whether outcome t is the rare one: never for a long time, then nearly always."""
    return t >= QUIET and t % 7 != 0


def chain(discount, chance=0.01):
    """One decision: success or failure, with the support known."""
    support = np.zeros((3, 1, 3), dtype=bool)
    support[0, 0, 1:] = support[1, 0, 1] = support[2, 0, 2] = True
    if discount == 1.0:
        return pt.Task.reaching(goal=[1], avoid=[2], policy=np.ones((3, 1)), initial=[1, 0, 0], support=support)
    rewards = np.zeros((3, 1, 3))
    rewards[0, 0, 1] = 1.0
    return pt.Task(rewards, np.ones((3, 1)), [1, 0, 0], discount=discount, support=support, terminal=[1, 2])


class Adversary:
    """Successors by the schedule, in the place of a kernel. ``rare`` is the successor that stands for a loss."""

    def __init__(self, rare):
        self.rare, self.drawn = rare, 0

    def draw(self, states, actions, rng):
        index = self.drawn + np.arange(len(states))
        self.drawn += len(states)
        return np.where([schedule(t) for t in index], self.rare, 3 - self.rare)


def constants(run, side):
    """[k] the logarithm of what each constant fraction has made of 1, with all settled payoffs of a side."""
    found = np.zeros(K)
    for segment in (run.bets.above, run.bets.below)[side].segments:
        found += np.log1p(np.outer(segment.won / segment.bet.room, RESERVE)).sum(axis=0)
    return found


def assert_above_the_bound(run, floor):
    """At the end of a rollout."""
    for side, evidence in enumerate(run.bets.evidence()):
        assert evidence >= floor + constants(run, side).max() - 1e-9
        assert evidence >= floor - 1e-9


def run_to_the_end(run, floor):
    """The bound holds all along."""
    run.begin(LEVEL)
    while run.samples < QUIET + LOUD:
        run.step(LEVEL, 29)
        if run.between_rollouts:
            assert_above_the_bound(run, floor)
    assert run.bets.count > 100


@each("discount", [1.0, 0.9])
@each("rare", [1, 2])
@each("threshold", [1e-3, 0.02, 0.4])
def test_rollouts_on_the_worst_draws(threshold, rare, discount):
    floor = FLOOR if discount < 1.0 else UNDISCOUNTED_FLOOR
    run = pt.TDBetting().start(chain(discount), Adversary(rare), threshold, 0)
    run_to_the_end(run, floor)


def test_without_the_reserve_the_same_draws_ruin_the_fitted_bets():
    """The control: what all other fractions hold falls far below the bound."""
    run = pt.TDBetting().start(chain(1.0), Adversary(1), 0.02, 0)
    run.begin(LEVEL)
    while run.samples < QUIET + LOUD:
        run.step(LEVEL, 1)
    fitted = [np.log(process.capital[: -K - 1].sum()) + process.capital[-1] for process in run.bets]
    assert min(fitted) < UNDISCOUNTED_FLOOR - 20.0


@each("rare", [1, 2])
@each("discount", [1.0, 0.9])
def test_two_policies_on_the_worst_draws(rare, discount):
    """B takes another action, which leads to the same states."""
    support = np.zeros((3, 2, 3), dtype=bool)
    support[0, :, 1:] = support[1, :, 1] = support[2, :, 2] = True
    tasks = []
    for action in (0, 1):
        policy = np.eye(2)[[action] * 3]
        if discount == 1.0:
            task = pt.Task.reaching(goal=[1], avoid=[2], policy=policy, initial=[1, 0, 0], support=support)
        else:
            rewards = np.zeros((3, 2, 3))
            rewards[0, :, 1] = 1.0
            task = pt.Task(rewards, policy, [1, 0, 0], discount=discount, support=support, terminal=[1, 2])
        tasks.append(task)
    run = coupled_run(*tasks, 0.01, Adversary(rare), 0, 0.0)
    run_to_the_end(run, FLOOR if discount < 1.0 else UNDISCOUNTED_FLOOR)


@each("rare", [0.0, 1.0])
@each("threshold", [1e-3, 0.02, 0.5, 0.98])
def test_whole_episodes_with_the_worst_returns(threshold, rare):
    count = [0]

    def play(rng):
        count[0] += 1
        return [rare if schedule(count[0]) else 1.0 - rare]

    run = pt.ReturnBetting().start(pt.Episodes(play, return_range=(0, 1)), None, threshold, 0)
    run.begin(LEVEL)
    while run.episodes < QUIET + LOUD:
        run.step(LEVEL, 1)
        if run.episodes % 40 == 0:
            assert_above_the_bound(run, FLOOR)


@each("rare", [0.0, 1.0])
def test_recorded_episodes_with_the_worst_rewards(rare):
    n = QUIET + LOUD
    rewards = np.array([rare if schedule(t) else 1.0 - rare for t in range(n)])
    log = pt.LoggedEpisodes(
        np.arange(n), rewards, np.full(n, 0.5), np.ones(n), reward_range=(0, 1), smallest_propensity=0.5
    )
    for threshold in (0.02, 0.5, 0.9):
        run = RecordedRun(None, log, threshold)
        run.step(LEVEL, n)
        for side, process in enumerate(run.bets):
            assert process.evidence() >= FLOOR + constants(run, side).max() - 1e-9


@each("discount", [1.0, 0.9])
@each("rare", [1, 2])
def test_recorded_draws_of_the_worst_kind(rare, discount):
    n = QUIET + LOUD
    task, x = chain(discount), np.array([rare if schedule(t) else 3 - rare for t in range(n)])
    run = pt.TDBetting().replay(task, 0.02, Recorded(np.zeros(n, dtype=np.int64), x), 0)
    while not run.exhausted:
        run.step(LEVEL, n)
    assert run.bets.count > 100
    assert_above_the_bound(run, FLOOR if discount < 1.0 else UNDISCOUNTED_FLOOR)


def test_a_log_of_the_worst_kind():
    """Rollouts that own their draws: the capital of every set of coins is above the bound."""
    n = 4 * (QUIET + LOUD)
    x = np.array([1 if t > n // 2 and t % 7 else 2 for t in range(n)])
    run = pt.LogBetting().replay(chain(0.9), 0.02, Recorded(np.zeros(n, dtype=np.int64), x))
    assert isinstance(run, LogRun)
    run.begin(LEVEL)
    run.step(LEVEL, n)
    for pool in (*run.pools[0], *run.pools[1]):
        capital = np.log(pool.at.capital[:, :-1].sum(axis=1)) + pool.at.capital[:, -1]
        assert pool.n_settled
        assert (capital >= FLOOR - 1e-9).all()
