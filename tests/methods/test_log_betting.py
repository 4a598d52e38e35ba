"""Betting on a log in its own order: the capital exactly, on every log, on adversarial logs, and at the threshold."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict, deque

import numpy as np
import pytest

import policytest as pt
from betting_builders import some_kernel, some_support, too_often
from policytest._base.compiled import small
from policytest.eprocess.strategies import OWN_DRAWS
from policytest.kl.sampler import Recorded
from policytest.methods import log_betting
from policytest.methods.stacks import StacksRun
from policytest.payoffs import log_rollouts
from policytest.questions.watch import Watch

# ---------------------------------------------------------------- questions, logs, and runs on them


def shop():
    """Two unknown pairs in one state, taken at random; a known row, rewards on successors, starts everywhere."""
    rewards, support = np.zeros((3, 2, 3)), np.zeros((3, 2, 3), dtype=bool)
    support[0, :, 1:] = support[1, :, 0] = support[2, :, 2] = True
    rewards[0] = [[0.0, 1.0, -2.0], [0.0, 3.0, 0.5]]
    rewards[1, :, 0] = 0.3, -0.4
    kernel = np.zeros((3, 2, 3))
    kernel[0] = [[0.0, 0.6, 0.4], [0.0, 0.3, 0.7]]
    kernel[1, :, 0] = kernel[2, :, 2] = 1.0
    task = pt.Task(rewards, [[0.6, 0.4], [1.0, 0.0], [1.0, 0.0]], [0.6, 0.3, 0.1], 0.9, support, terminal=[2])
    return task, kernel


def retention():
    """Customers who are new, active, at risk or lost; nothing, an email or a coupon: (task, kernel, the log's rule)."""
    kernel = np.zeros((4, 3, 4))
    kernel[0, :, 1:] = [[0.55, 0.25, 0.20], [0.70, 0.18, 0.12], [0.72, 0.18, 0.10]]
    kernel[1, :, 1:] = [[0.86, 0.12, 0.02], [0.87, 0.11, 0.02], [0.89, 0.09, 0.02]]
    kernel[2, :, 1:] = [[0.25, 0.45, 0.30], [0.32, 0.43, 0.25], [0.45, 0.35, 0.20]]
    kernel[3, :, 3] = 1.0
    rewards = [[5.0, 4.0, 0.0], [12.0, 11.0, 7.0], [4.0, 3.0, -1.0], [0.0, 0.0, 0.0]]
    task = pt.Task(rewards, np.eye(3)[[1, 0, 2, 0]], [1.0, 0.0, 0.0, 0.0], 0.95, terminal=[3])
    return task, kernel, np.array([[1 / 3, 1 / 3, 1 / 3], [0.6, 0.3, 0.1], [1 / 3, 1 / 3, 1 / 3], [1.0, 0.0, 0.0]])


def ending(seed):
    """A random task with one terminal state, rows of all widths, known ones too, and a kernel it allows."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(3, 6)), int(rng.integers(1, 4))
    support, end = some_support(rng, S, A, True), S - 1
    support[:end, 0, end], support[end], support[end, :, end] = True, False, True
    rewards = rng.normal(size=(S, A, S) if seed % 2 else (S, A))
    rewards[end] = 0.0
    policy, initial = rng.dirichlet(np.ones(A), size=S), rng.dirichlet(np.ones(S))
    task = pt.Task(rewards, policy, initial, (0.5, 0.9, 0.99)[seed % 3], support, terminal=[end])
    return task, some_kernel(rng, support), rng


def successors(kernel, s, a, rng):
    """Draws of x."""
    sums = kernel[s, a].cumsum(axis=-1)
    return (rng.random((len(s), 1)) * sums[:, -1:] > sums).sum(axis=1)


def some_log(task, kernel, rng, length):
    """Pairs at random, whatever came before."""
    s, a = rng.integers(task.n_states, size=length), rng.integers(task.n_actions, size=length)
    return s, a, successors(kernel, s, a, rng)


def customers(seed, length, at_once=100):
    """A log of many customers at once, in the order of time; who is lost is replaced by somebody new."""
    _, kernel, rule = retention()
    rng, s, parts = np.random.default_rng(seed), np.zeros(at_once, dtype=np.int64), []
    for _ in range(-(-length // at_once)):
        a = (rng.random((at_once, 1)) > rule[s].cumsum(axis=1)).sum(axis=1)
        x = successors(kernel, s, a, rng)
        parts.append((s, a, x))
        s = np.where(x == 3, 0, x)
    return tuple(np.concatenate(column)[:length] for column in zip(*parts, strict=True))


def started(task, threshold, s, a, x, level=math.inf, **settings):
    """A run that was given these rows."""
    s, a, x = (np.asarray(column, dtype=np.int64) for column in (s, a, x))
    source = Recorded(task.layout.row_of_pair[s * task.n_actions + a], x)
    run = pt.LogBetting(**settings).replay(task, threshold, source)
    run.begin(level)
    run.step(level, len(s))
    return run


def all_pools(run):
    return [pool for side in run.pools for pool in side]


def are_open(pool):
    """[C,M] which places hold an unfinished rollout."""
    at, found = pool.at, np.zeros(pool.at.order.shape, dtype=bool)
    np.put_along_axis(found, at.order, np.arange(found.shape[1]) < at.n_open[:, None], axis=1)
    return found


def factors(pool, p, total):
    """[...,F] the logarithms of the factors of rollouts that were launched with plans p and end with these sums."""
    plans = pool.stacked
    return np.log1p(plans.fractions[p] * ((plans.lead[p] + total) / (plans.L[p] - plans.lead[p]))[..., None])


def reported(run, pool, kernel):
    """[C,F] the logarithms of the capital that 1 has become with each fraction."""
    capital = pool.at.capital
    return np.log(capital[:, :-1]) + capital[:, -1:] - OWN_DRAWS.log_weights


def with_true_means(run, pool, kernel):
    """[C,F] the logarithms of the capital if unfinished rollouts were worth what they are expected to end with."""
    at, plans, rows, task = pool.at, pool.stacked, run.tally.rows, run.payoff.policies[0].task
    gamma, S, sign = task.discount, task.n_states, pool.sign
    rewards = task.rewards if task.rewards_on_successor else np.repeat(task.rewards[..., None], S, axis=2)
    r = np.einsum("sa,sax,sax->s", task.policy, kernel, rewards)
    V = np.linalg.solve(np.eye(S) - gamma * np.einsum("sa,sax->sx", task.policy, kernel), r)
    q = kernel.reshape(-1, S)[rows.pair]
    gain = (q * rewards.reshape(-1, S)[rows.pair]).sum(axis=1) if task.rewards_on_successor else 0.0
    D = sign * (plans.base + gain + gamma * plans.V @ q.T - plans.V[:, rows.state])  # [plans,K] its mean
    after = sign * gamma * (V - plans.V) @ q.T
    p, k, still = at.plan, at.row, are_open(pool)
    mean = at.earned + at.weight * (at.left * D[p, k] + after[p, k])
    more = [factors(pool, p, np.where(still, total, 0.0)) for total in (mean, at.worst)]
    return reported(run, pool, kernel) + (more[0] - more[1]).sum(axis=1)


# ---------------------------------------------------------------- every log


LENGTH = 6


def alternating(a, x):
    """Three of one action for each of the other, whatever follows."""
    return int(len(x) % 4 == 1)


def changing(a, x):
    """The same action for as long as it is followed by the end."""
    return 0 if not a else a[-1] if x[-1] == 2 else 1 - a[-1]


def lucky(a, x):
    """The action that pays is repeated after it has paid; after two ends, the log gives only rows of the other."""
    return 1 if x.count(2) >= 2 or (a and x[-1] == 1) else 0


def every_log(kernel, rule):
    """(a, x, probability) of all logs of draws in the first state, whose action a rule chooses from all before."""
    for x in itertools.product((1, 2), repeat=LENGTH):
        a = []
        for t in range(LENGTH):
            a.append(rule(a, x[:t]))
        yield a, x, math.prod(kernel[0, action, successor] for action, successor in zip(a, x, strict=True))


@pytest.fixture
def early(monkeypatch):
    """Bets from the third row on, with a new plan at most rows."""
    monkeypatch.setattr(log_betting, "FIRST_FIT", 2)
    monkeypatch.setattr(log_betting, "REFIT", 1.3)
    monkeypatch.setattr(log_betting, "replicate_seeds", lambda seed, sets: np.arange(2))  # no more stacks than needed


def expected_capital(lead, rule, measure, coins=60):
    """[2, strategies, C, F] the mean over all logs of the capital of each set of coins, where R - V is ``lead``."""
    (task, kernel), total = shop(), 0.0
    for a, x, probability in every_log(kernel, rule):
        run = started(task, pt.value(task, kernel) + lead, np.zeros(LENGTH), a, x, coins=coins)
        assert len(run.pools[0][0].plans) >= 3
        total += probability * np.array([[np.exp(measure(run, pool, kernel)) for pool in side] for side in run.pools])
    return total


def mean_and_error(per_coins):
    """Over the sets of coins."""
    return per_coins.mean(axis=2), per_coins.std(axis=2) / math.sqrt(per_coins.shape[2])


def test_the_mean_capital_is_one_if_unfinished_rollouts_count_with_their_means(early):
    mean, error = mean_and_error(expected_capital(0.0, alternating, with_true_means))
    assert (np.abs(mean - 1.0) < 4.5 * error + 1e-12).all()  # the fraction 0 has no error
    assert (error < 0.05).all()


@pytest.mark.parametrize("rule", [changing, lucky])
def test_the_mean_capital_is_at_most_one_for_rules_that_look_at_the_past(early, rule):
    mean, error = mean_and_error(expected_capital(0.0, rule, reported))
    assert (mean < 1.0 + 4.5 * error).all()


def test_away_from_the_threshold_one_side_loses(early):
    mean, error = mean_and_error(expected_capital(1.0, alternating, with_true_means))
    assert (mean[0] < 1.0 + 4.5 * error[0]).all()
    assert (mean[1] > 1.0).any()


# ---------------------------------------------------------------- every path


def worst_of(task, kernel, sign):
    """Each pair is followed by the successor that is worst for one side."""
    V = np.array(
        [
            pt.value(pt.Task(task.rewards, task.policy, start, task.discount, task.support), kernel)
            for start in np.eye(task.n_states)
        ]
    )
    return np.eye(task.n_states)[np.where(np.asarray(task.support), sign * V, np.inf).argmin(axis=2)]


def adversarial_logs(task, kernel, rng, length):
    """Whatever follows is bad, or good; or first as it should be, and then bad."""
    s, a, x = some_log(task, kernel, rng, length)
    for sign in (1.0, -1.0):
        bad = worst_of(task, kernel, sign)[s, a].argmax(axis=1)
        yield s, a, bad
        yield s, a, np.where(np.arange(length) < 0.7 * length, x, bad)


def is_consistent(run, pool):
    """Sums are above -L, the capital is that of the rollouts, who waits has nothing to go on with."""
    at, plans, still = pool.at, pool.stacked, are_open(pool)
    c, j = np.nonzero(still)
    p, k = at.plan[c, j], at.row[c, j]
    assert (np.sort(at.order, axis=1) == np.arange(at.order.shape[1])).all()
    assert (pool.where.only[k] < 0).all()
    assert (at.stored[c, j, k] == 0).all()
    assert ((at.stored >= 0) & (at.stored <= at.draws.shape[3])).all()
    assert (at.worst[c, j] >= -plans.L[p] * (1.0 + 1e-9)).all()
    capital = np.zeros((len(at.capital), len(OWN_DRAWS.log_weights)))
    np.add.at(capital, c, factors(pool, p, at.worst[c, j]))
    for of_coins, parts in zip(capital, pool.ended, strict=True):
        for plan, total in parts:
            assert (total >= -plans.L[plan] * (1.0 + 1e-9)).all()
            of_coins += factors(pool, plan, total).sum(axis=0)
    np.testing.assert_allclose(reported(run, pool, None), capital, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(6))
def test_no_log_leads_below_the_range(seed, monkeypatch):
    monkeypatch.setattr(log_betting, "REFIT", 1.5)
    task, kernel, rng = ending(seed)
    for log in adversarial_logs(task, kernel, rng, 300):
        run = started(task, pt.value(task, kernel), *log, coins=4)
        for pool in all_pools(run):
            is_consistent(run, pool)


# ---------------------------------------------------------------- the definition


class Coins:
    """splitmix64, in whole numbers of Python."""

    def __init__(self, seed):
        self.state = int(seed)

    def __call__(self):
        self.state = (self.state + 0x9E3779B97F4A7C15) % 2**64
        z = self.state
        z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) % 2**64
        z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) % 2**64
        return ((z ^ (z >> 31)) >> 11) * 2.0**-53


class OneRollout:
    """A rollout with the draws that it was given, written out; None for a sum means that it has not ended."""

    def __init__(self, task, pool, p, coin):
        plans, where = pool.stacked, pool.where
        self.task, self.where, self.sign, self.p, self.coin = task, where, pool.sign, p, coin
        self.V, self.base, self.B, self.L = plans.V[p], plans.base[p], plans.B[p], plans.L[p]
        self.splits, self.least, self.largest = plans.splits[p], plans.least[p], plans.largest[p]
        self.draws, self.S, self.parts, self.total, self.k = defaultdict(deque), 0.0, [], None, None
        s = self.chosen(task.initial)
        if s in task.ends:
            self.total = self.B[s]
        elif self.goes_on(1.0, s):
            self.visit(s)

    def chosen(self, probabilities):
        return int(np.searchsorted(np.cumsum(probabilities), self.coin(), side="right"))

    def goes_on(self, weight, x):
        target = min(small.LARGEST_WEIGHT, self.where.largest_weight, (self.S + self.L) / -self.B[x])
        chance = min(1.0, max(small.SMALLEST_CHANCE, weight / max(target, small.TINY)))
        self.w = weight / chance
        if self.coin() >= chance:
            self.total = self.S
        elif self.w < small.SMALLEST_WEIGHT:
            self.total = self.S + self.w * self.B[x]
        return self.total is None

    def visit(self, s):
        self.s, a = s, self.chosen(self.task.policy[s])
        self.k, self.left, self.shares = self.where.row[s, a], 1.0, None

    def go(self):
        while self.total is None:
            k, s = self.k, self.s
            known = self.where.only[k] >= 0
            if not known and not self.draws[k]:
                return
            x = int(self.where.only[k] if known else self.draws[k].popleft())
            D = self.base[k] + self.task.discount * self.V[x] - self.V[s]
            if self.task.rewards_on_successor:
                D += self.task.rewards[s, self.where.row[s].tolist().index(k), x]
            if self.shares is None:
                whole = math.floor(self.splits[k])
                split = whole + (self.coin() < self.splits[k] - whole)
                self.shares = 1 if known else split
            share = 1.0 / self.shares
            worst = share * self.least[k] + self.B[s] - (1.0 - self.left + share) * self.largest[k]
            if self.left > 1.0001 * share and self.S + self.w * worst >= -self.L:
                self.S += self.w * share * self.sign * D
                self.left -= share
                continue
            self.S += self.w * self.left * self.sign * D
            if x in self.task.ends:
                self.total = self.S + self.task.discount * self.w * self.B[x]
            elif self.goes_on(self.task.discount * self.w, x):
                self.visit(x)

    @property
    def worst(self):
        missing = (1.0 - self.left) * self.largest[self.k]
        return self.S + self.w * (self.B[self.s] - missing)


def by_definition(run, task, pool, c, seed, rows):
    """The sums of all rollouts of one set of coins: those that have ended, and the unfinished ones at their worst."""
    plans, coin, M, ended, still = pool.stacked, Coins(seed), pool.strategy.open, [], []
    now, fit_at = -1, log_betting.FIRST_FIT
    for t, (k, x) in enumerate(zip(*rows, strict=True)):
        if t == fit_at:
            now, fit_at = now + 1, math.ceil(log_betting.REFIT * fit_at)
        if now < 0 or k < 0:
            continue
        owner = next((one for one in still if one.k == k and not one.draws[k]), None)
        if owner is None and still:
            fewest = min(still, key=lambda one: len(one.draws[k]))
            if len(fewest.draws[k]) < min(pool.strategy.stock * plans.needed[now, k], log_rollouts.STORAGE):
                owner = fewest
        if owner is None and len(still) < M and plans.needed[now, k] > 0:
            owner = OneRollout(task, pool, now, coin)
            still.append(owner)
        if owner is not None:
            owner.draws[k].append(x)
            owner.go()
        ended += [(one.p, one.total) for one in still if one.total is not None]
        still = [one for one in still if one.total is None]
    return ended, [(one.p, one.worst) for one in still]


@pytest.mark.parametrize(("seed", "storage"), [(0, 64), (1, 2), (2, 64), (3, 1), (5, 3)])
def test_compiled_rollouts_are_those_of_the_definition(seed, storage, monkeypatch):
    monkeypatch.setattr(log_betting, "REFIT", 1.5)
    monkeypatch.setattr(log_rollouts, "STORAGE", storage)
    task, kernel, rng = ending(seed)
    threshold = pt.value(task, kernel)
    s, a, x = some_log(task, kernel, rng, 400)
    run = started(task, threshold, s, a, x, coins=2, seed=seed)
    seeds = np.random.SeedSequence(seed).generate_state(16, np.uint64)
    rows, centred = (task.layout.row_of_pair[s * task.n_actions + a], x), run.payoff.policies[0].task
    monkeypatch.setattr(type(task), "ends", [task.n_states - 1])  # of the centred task, which has none of its own
    settled = 0
    for i, pool in enumerate(all_pools(run)):
        for c in range(2):
            ended, still = by_definition(run, centred, pool, c, seeds[2 * i + c], rows)
            settled += len(ended)
            kept = [np.concatenate(part) for part in zip(*pool.ended[c], strict=True)]
            np.testing.assert_allclose(np.transpose(ended), kept, rtol=1e-9, atol=1e-9)
            j = pool.at.order[c, : pool.at.n_open[c]]
            found = pool.at.plan[c, j], pool.at.worst[c, j]
            np.testing.assert_allclose(np.array(still).reshape(-1, 2).T, found, rtol=1e-9, atol=1e-9)
    assert settled > 100


# ---------------------------------------------------------------- the threshold

DELTA, LEVEL = 0.1, -math.log(0.1)


def restless(task, kernel, rng, most=500):
    """A log whose rule looks at what it got: goes on after luck, changes the action after none, stops when lucky."""
    a, luck, rows = 0, 0.0, []
    for _ in range(most):
        x = 1 if rng.random() < kernel[0, a, 1] else 2
        rows.append((0, a, x))
        luck += task.rewards[0, a, x] - kernel[0, a] @ task.rewards[0, a]
        a = a if x == 1 else int(rng.random() < 0.5)
        if len(rows) > 60 and luck > 2.0 * math.sqrt(len(rows)):
            break
    return np.transpose(rows)


def answers(logs, make_run):
    """How often each answer is given."""
    found = [make_run(log).answer for log in logs]
    return found.count("above"), found.count("below")


@pytest.fixture
def seldom(monkeypatch):
    """Fewer fits: the tests are faster."""
    monkeypatch.setattr(log_betting, "REFIT", 1.5)


@pytest.mark.parametrize(("hidden", "runs"), [(0.0, 60), (0.6, 20)], ids=["all rows", "some bad ones are left out"])
def test_adaptive_logs_are_wrong_at_most_as_often_as_delta_allows(seldom, hidden, runs):
    """The control: a row that is left out because of what followed is not a draw any more."""
    (task, kernel), rng = shop(), np.random.default_rng(0)
    logs = (restless(task, kernel, rng) for _ in range(runs))
    logs = (log[:, (log[2] == 1) | (rng.random(log.shape[1]) >= hidden)] for log in logs)
    found = answers(logs, lambda log: started(task, pt.value(task, kernel), *log, LEVEL, coins=2))
    assert any(too_often(count, runs, DELTA) for count in found) == (hidden > 0)


def queue():
    """What is won after the first step is less than what one would think who never saw it."""
    rewards, kernel = np.array([[0.0], [1.0], [0.0]]), np.array([[[0, 0.7, 0.3]], [[0, 0.05, 0.95]], [[0, 0, 1.0]]])
    support = np.array([[[False, True, True]], [[False, True, True]], [[False, False, True]]])
    return pt.Task(rewards, np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9, support, terminal=[2]), kernel


def without_worst_cases(monkeypatch):
    """Unfinished rollouts count with what they have earned so far."""
    fit = log_rollouts.LogRolloutPool.fit

    def broken(self, run, plan, *about):
        fit(self, run, plan._replace(B=np.full(len(plan.B), -1e-9 * plan.L)), *about)

    monkeypatch.setattr(log_rollouts.LogRolloutPool, "fit", broken)


@pytest.mark.parametrize("is_broken", [False, True], ids=["at worst", "at what was earned"])
def test_logs_that_leave_rollouts_unfinished(seldom, is_broken, monkeypatch):
    """The rows never show what comes after the first step: many rollouts wait there, and none is settled."""
    waiting = log_rollouts.ReplayStrategy(100, 0.5, 1.5, 2.0, 1.0)
    monkeypatch.setattr(log_betting, "REPLAY_STRATEGIES", (waiting,))
    if is_broken:
        without_worst_cases(monkeypatch)
    (task, kernel), rng, runs = queue(), np.random.default_rng(1), 20
    s = a = np.zeros(1000, dtype=np.int64)
    logs = [(s, a, successors(kernel, s, a, rng)) for _ in range(runs)]
    V = pt.value(task, kernel)
    above, _ = answers(logs, lambda log: started(task, V, *log, LEVEL, coins=2))
    assert too_often(above, runs, DELTA) == is_broken


# ---------------------------------------------------------------- what users see


def test_a_log_of_customers_is_answered_and_certified():
    task, kernel, _ = retention()
    V, right = pt.value(task, kernel), 0
    assert pytest.approx(87.04, abs=0.01) == V
    for seed in range(4):
        log = customers(seed, 21_000)
        verdict = pt.assess(task, pt.Transitions(*log), V - 4.5 * 2.6, method=pt.LogBetting(coins=4))
        assert verdict.answer in ("above", None)
        assert verdict.certified == (verdict.answer == "above")
        assert verdict.interval[0] < V < verdict.interval[1]
        right += verdict.answer == "above"
    assert right >= 3


def test_it_is_the_default_of_tasks_that_end_and_have_few_unknown_rows():
    task, kernel = shop()
    log = pt.Transitions(*some_log(task, kernel, np.random.default_rng(0), 300))
    assert log_rollouts.suits(task)
    free, chosen = (pt.assess(task, log, 0.0, method=method) for method in (None, pt.LogBetting()))
    assert (free.answer, free.evidence, free.interval) == (chosen.answer, chosen.evidence, chosen.interval)
    assert free.method == pt.LogBetting().describe()
    assert isinstance(Watch(task, 0.0).method, pt.LogBetting)
    assert pt.value_interval(task, log) == pt.value_interval(task, log, method=pt.LogBetting())
    assert not log_rollouts.suits(pt.instances.paper(2).task)


def same(first, second):
    """The parts of two verdicts that say something."""
    for name in ("answer", "samples", "evidence", "estimate", "interval", "certified"):
        assert getattr(first, name) == getattr(second, name)


@pytest.mark.parametrize("offset", [-1.5, 1.5])
def test_however_a_log_arrives_the_verdict_is_the_same(offset, monkeypatch):
    (task, kernel), rng = shop(), np.random.default_rng(3)
    R = pt.value(task, kernel) + offset
    s, a, x = some_log(task, kernel, rng, 1500)
    verdict = pt.assess(task, pt.Transitions(s, a, x), R)
    assert verdict.answer == ("above" if offset < 0 else "below")
    assert 32 < verdict.samples < 1500
    n = verdict.samples
    on_time = pt.assess(task, pt.Transitions(s[:n], a[:n], x[:n]), R)
    assert (on_time.answer, on_time.samples) == (verdict.answer, n)
    assert pt.assess(task, pt.Transitions(s[: n - 1], a[: n - 1], x[: n - 1]), R).answer is None
    for pieces in (np.sort(rng.integers(1500, size=40)), np.arange(1, n + 10)):
        watch = Watch(task, R)
        for part in np.split(np.arange(1500), pieces):
            watch.add(s[part], a[part], x[part])
        same(watch.verdict(), on_time)
    monkeypatch.setattr(log_betting, "MOST_AT_ONCE", 11)
    same(pt.assess(task, pt.Transitions(s, a, x), R), verdict)


def test_of_two_sides_that_are_proved_the_earlier_one_is_the_answer(monkeypatch):
    """No kernel makes such a log; but it must not matter in how many parts it arrives."""
    monkeypatch.setattr(log_betting, "REFIT", 200.0)
    task, kernel = shop()
    s, a = np.zeros(4000, dtype=np.int64), np.arange(4000) % 2
    x = np.where(np.arange(4000) < 600, 2, 1)
    x[:32] = successors(kernel, s[:32], a[:32], np.random.default_rng(0))
    verdict, watch = pt.assess(task, pt.Transitions(s, a, x), 0.8), Watch(task, 0.8)
    assert min(verdict.evidence) > verdict.required
    for part in np.split(np.arange(4000), 8):
        watch.add(s[part], a[part], x[part])
    assert (verdict.answer, verdict.samples) == (watch.verdict().answer, watch.verdict().samples) != ("above", 4000)
    assert verdict.answer == "below"


def test_intervals_hold_the_value_and_do_not_contradict_the_answer(seldom):
    (task, kernel), rng, runs, missed, wrong = shop(), np.random.default_rng(5), 40, 0, 0
    V, method = pt.value(task, kernel), pt.LogBetting(coins=2)
    for i in range(runs):
        log = restless(task, kernel, rng, most=250)
        run = started(task, R := V + (i % 5 - 2), *log, LEVEL, coins=2)
        lower, upper = run.verdict_interval(LEVEL)
        assert lower <= upper
        assert not (run.answer == "above" and lower < R)
        assert not (run.answer == "below" and upper > R)
        wrong += not lower <= V <= upper
        missed += V not in pt.value_interval(task, pt.Transitions(*log), DELTA, method)
    assert not too_often(missed, runs, DELTA)
    assert not too_often(wrong, runs, 2 * DELTA)


def test_coins_change_the_evidence_little():
    task, log = retention()[0], customers(7, 6000)
    found = [started(task, 75.0, *log, seed=seed).evidence()[0] for seed in range(5)]
    assert np.mean(found) > 1.0
    assert np.std(found) < 0.8


# ---------------------------------------------------------------- what is refused, and corners


def test_simulators_and_counts_are_refused():
    task, kernel = shop()
    with pytest.raises(pt.InputError, match="LogBetting is for recorded transitions; use TDBetting"):
        pt.decide(task, pt.TabularSimulator(kernel), 0.0, method=pt.LogBetting())
    counts = pt.Counts.from_array(10 * kernel)
    with pytest.raises(pt.InputError, match=r"counts have no order.*pass Transitions\(s, a, x\), or method=PTST"):
        pt.assess(task, counts, 0.0, method=pt.LogBetting())
    with pytest.raises(pt.InputError, match="counts have no order"):
        pt.value_interval(task, counts, method=pt.LogBetting())
    with pytest.raises(pt.InputError, match="coins"):
        pt.LogBetting(coins=0)


def test_transitions_outside_the_support_are_refused_before_they_are_followed():
    task, kernel = shop()
    s, a, x = some_log(task, kernel, np.random.default_rng(0), 300)
    row = np.flatnonzero(s == 0)[60]
    x[row] = 0
    with pytest.raises(pt.InputError, match=rf"\(s=0, a={a[row]}, x=0\) was observed, but the task's support excludes"):
        pt.assess(task, pt.Transitions(s, a, x), 0.5)


def test_tasks_with_very_many_known_rows_are_not_for_rollouts_that_own_their_draws():
    S = log_rollouts.MOST_ROWS + 1
    support = np.eye(S, k=1, dtype=bool)[:, None, :]
    support[0, 0, -1] = support[-1, 0, -1] = True
    task = pt.Task(np.r_[np.ones(S - 1), 0.0][:, None], np.ones((S, 1)), np.eye(S)[0], 0.99, support, terminal=[S - 1])
    assert task.layout.unknown_pairs.sum() == 1
    assert not log_rollouts.suits(task)
    assert isinstance(pt.LogBetting(coins=1).replay(task, 20.0, Recorded(*np.zeros((2, 0), dtype=int))), StacksRun)


def test_rollouts_end_in_the_terminal_states_of_the_task_at_any_threshold():
    task, kernel = shop()
    for threshold in (0.0, 0.5):
        run = started(task, threshold, *some_log(task, kernel, np.random.default_rng(0), 100), coins=1)
        assert all(np.flatnonzero(pool.where.ends).tolist() == [2] for pool in all_pools(run))


def test_rows_that_are_rarely_visited_are_bet_on_where_there_are_no_others():
    """Most episodes end before anything unknown happens."""
    task, kernel = shop()
    rare = pt.Task(task.rewards, task.policy, [0.01, 0.0, 0.99], task.discount, task.support, terminal=[2])
    s, a, x = np.zeros(300, dtype=np.int64), np.arange(300) % 2, np.full(300, 1)
    run = started(rare, pt.value(rare, kernel), s, a, x, coins=4)
    assert run.rollouts > 0
    assert run.evidence()[0] > 0
    assert "the scarcest pair of this policy is (s=0" in run.why_undecided()


def test_too_few_rows_say_nothing():
    task, kernel = shop()
    for length in (0, 5, log_betting.FIRST_FIT, log_betting.FIRST_FIT + 1):
        log = pt.Transitions(*some_log(task, kernel, np.random.default_rng(0), length))
        verdict = pt.assess(task, log, 0.5)
        assert verdict.answer is None
        assert verdict.samples == length
        assert "not enough data" in verdict.reason


def test_in_a_long_log_some_sets_go_on(monkeypatch):
    monkeypatch.setattr(log_betting, "LONG_LOGS", (300, 900))
    task, kernel = shop()
    log, value = some_log(task, kernel, np.random.default_rng(1), 1500), pt.value(task, kernel)
    run = started(task, value, *log, coins=4)
    for pool in all_pools(run):
        settled = [sum(len(plan) for plan, _ in kept) for kept in pool.ended]
        assert settled[0] > 1.5 * max(settled[1:])
        is_consistent(run, pool)
    again = started(task, value, *(column[:200] for column in log), coins=4)
    for first, last in ((200, 330), (330, 1500)):
        s, a, x = (np.asarray(column[first:last], dtype=np.int64) for column in log)
        again.source.extend(task.layout.row_of_pair[s * task.n_actions + a], x)
        again.step(math.inf, 0)
    assert again.evidence() == pytest.approx(run.evidence(), abs=1e-9)
