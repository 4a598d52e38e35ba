"""The baselines: their formulas against plain computations, and their errors at V = R (more in `test_contract`)."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from scipy import optimize, sparse, stats

import policytest as pt
from builders import assert_refused, each
from policytest.methods.baselines import boxes, monte_carlo
from policytest.methods.baselines.boxes import RectangularKL
from policytest.methods.baselines.klbts import KLBTS
from policytest.methods.baselines.monte_carlo import MonteCarlo
from policytest.methods.kl_rules import KLQuestion
from policytest.methods.kl_run import KLRun
from policytest.paper.product_box import robust_value

TWO = pt.instances.paper(2)
SIM = pt.TabularSimulator(TWO.kernel)
LEVEL = -np.log(0.05)


def small_task(on_successor=False):
    """Three states, two actions, one known row, asymmetric rewards."""
    support = np.ones((3, 2, 3), dtype=bool)
    support[1, 1], support[0, 1, 2] = [True, False, False], False
    rng = np.random.default_rng(3)
    rewards = rng.normal(size=(3, 2, 3) if on_successor else (3, 2))
    policy = [[0.7, 0.3], [0.5, 0.5], [1.0, 0.0]]
    task = pt.Task(rewards=rewards, policy=policy, initial=[0.6, 0.4, 0.0], discount=0.6, support=support)
    kernel = rng.dirichlet(np.ones(3), size=(3, 2)) * support
    return task, kernel / kernel.sum(axis=2, keepdims=True)


def loaded(method, task, threshold, counts):
    run = method.start(task, pt.TabularSimulator(np.full((*task.policy.shape, task.n_states), 1 / 3)), threshold, 0)
    run.tally.load(counts)
    run.samples = counts.total
    return run


def some_counts(kernel, seed, visits=40):
    rng = np.random.default_rng(seed)
    return pt.Counts.from_array(rng.multinomial(visits, kernel.reshape(-1, kernel.shape[-1])).reshape(kernel.shape))


# ---------------------------------------------------------------- KLB-TS


@pytest.mark.parametrize(("n", "one", "two"), [(2, 844, 3413), (3, 19672, 41019), (5, 16275, 52510)])
def test_the_bounds_on_the_papers_instances(n, one, two):
    instance = pt.instances.paper(n)
    assert KLBTS().bound(instance.task, instance.kernel) == pytest.approx(one, abs=0.6)
    method = KLBTS(policies=2, alternative=instance.alternative_policy)
    assert method.bound(instance.task, instance.kernel) == pytest.approx(two, abs=0.6)


def plain_distance(task, p, n, threshold):
    """t/U by loops."""
    V, gamma, found = pt.state_values(task, p), task.discount, np.inf
    gap = abs(pt.value(task, p) - threshold) * (1 - gamma)
    for s, a in np.argwhere(task.policy > 0):
        allowed = np.flatnonzero(task.support[s, a])
        if len(allowed) < 2:
            continue
        reward = task.rewards[s, a] if task.rewards.ndim == 3 else np.zeros(task.n_states)
        worth = [reward[x] + gamma * V[x] for x in allowed]
        chances = p[s, a, allowed]
        mean = sum(c * w for c, w in zip(chances, worth, strict=True))
        variance = sum(c * (w - mean) ** 2 for c, w in zip(chances, worth, strict=True))
        most = max(abs(w - mean) for w in worth)
        found = min(found, n[s, a] / max(16 * variance / gap**2, 6 * (most / gap) ** (4 / 3)))
    return found


@pytest.mark.parametrize("on_successor", [False, True])
def test_the_evidence_of_klbts_is_its_formula(on_successor):
    task, kernel = small_task(on_successor)
    for seed in range(5):
        counts = some_counts(kernel, seed)
        p = counts.N / np.maximum(counts.visits, 1)[:, :, None]
        threshold = pt.value(task, p) + (0.3 if seed % 2 else -0.2)
        evidence = loaded(KLBTS(), task, threshold, counts).evidence()
        dimension = pt.MixtureBoundary().level(counts, 0.5, task) - np.log(2)
        assert evidence[seed % 2] == pytest.approx(plain_distance(task, p, counts.visits, threshold) - dimension)
        assert evidence[1 - seed % 2] == pytest.approx(-dimension)


def test_the_lemma_behind_klbts_holds_with_room():
    """(q.c - p.c)^2 <= 4 k Var + 2 sqrt(2) MD^2 k^(3/2), with k = KL(p, q)."""
    rng, tightest = np.random.default_rng(0), 0.0
    for _ in range(3000):
        m = int(rng.integers(2, 6))
        p, c = rng.dirichlet(np.full(m, 0.3)) + 1e-12, rng.normal(size=m)
        p /= p.sum()
        step = rng.uniform(0.001, 1.0) ** 2
        q = (1 - step) * p + step * rng.dirichlet(np.full(m, 0.3))
        k = float(np.sum(p * np.log(p / q)))
        if k < 1e-9:  # rounding
            continue
        bound = 4 * k * (p @ (c - p @ c) ** 2) + 2**1.5 * np.abs(c - p @ c).max() ** 2 * k**1.5
        tightest = max(tightest, ((q - p) @ c) ** 2 / bound)
    assert 0.3 < tightest <= 1


def test_the_bound_is_above_the_characteristic_time():
    for seed in range(5):
        instance = pt.instances.random(seed, 4, 2)
        for shift in (-0.2, 0.1):
            threshold = pt.value(instance.task, instance.kernel) + shift
            if pt.value_range(instance.task)[0] < threshold < pt.value_range(instance.task)[1]:
                time = pt.characteristic_time(instance.task, instance.kernel, "uniform", threshold=threshold).time
                assert time <= KLBTS().bound(instance.task, instance.kernel, threshold)


def test_klbts_with_two_policies():
    method = KLBTS(policies=2, alternative=TWO.alternative_policy)
    assert pt.decide(TWO.task, SIM, 0.0, 0.05, method).answer == "above"
    swapped = dataclasses.replace(TWO.task, policy=TWO.alternative_policy)
    method = KLBTS(policies=2, alternative=TWO.task.policy)
    verdict = pt.decide(swapped, SIM, pt.value(TWO.task, TWO.kernel), 0.05, method)
    assert (verdict.answer, verdict.certified) == ("below", True)
    far = pt.decide(TWO.task, SIM, 0.2, 0.05, KLBTS(policies=2, alternative=TWO.alternative_policy))
    assert not far.certified, "the second policy does not have the value of the threshold: the rule proves nothing"


# ---------------------------------------------------------------- boxes


def test_the_row_bound_is_the_minimum_over_the_box():
    task, kernel = small_task()
    rows, rng = task.layout.rows, np.random.default_rng(1)
    for seed in range(4):
        counts = some_counts(kernel, seed, 6)
        p = rows.to_one(rows.pick(counts.N, 3).astype(float))
        c, b = rng.normal(size=rows.n_entries), rng.uniform(0.01, 1.0, size=len(rows.pair))
        found, slack = boxes._row_minima(rows, p, c, b)
        assert slack < 1e-9
        for k in range(len(rows.pair)):
            mine = slice(rows.start[k], rows.start[k + 1])
            assert found[k] == pytest.approx(plain_row_minimum(p[mine], c[mine], b[k]), abs=2e-6)
        free = boxes._row_minima(rows, p, c, np.full(len(rows.pair), np.inf))[0]
        assert np.allclose(free, np.minimum.reduceat(c, rows.start[:-1]))


def plain_row_minimum(p, c, b):
    """By SLSQP, from several starts."""
    if len(p) == 1:
        return c[0]
    seen, best = p > 0, np.inf
    loss = {"type": "ineq", "fun": lambda q: b - np.sum(p[seen] * np.log(p[seen] / np.maximum(q[seen], 1e-12)))}
    total = {"type": "eq", "fun": lambda q: q.sum() - 1}
    for share in (0.0, 0.02, 0.2):
        start, bounds = (1 - share) * p + share / len(p), [(0, 1)] * len(p)
        result = optimize.minimize(
            lambda q: q @ c, start, bounds=bounds, constraints=[loss, total], options={"ftol": 1e-14, "maxiter": 500}
        )
        if result.success and loss["fun"](result.x) > -1e-7:
            best = min(best, result.fun)
    return best


@pytest.mark.parametrize("on_successor", [False, True])
def test_boxes_have_the_levels_of_their_rows_and_the_proof_is_tight(on_successor):
    task, kernel = small_task(on_successor)
    counts = some_counts(kernel, 7)
    run = loaded(RectangularKL(), task, 0.1, counts)
    unknown = [(0, 0), (0, 1), (1, 0), (2, 0)]
    budgets = np.zeros((3, 2))
    for s, a in unknown:
        alone = np.zeros_like(counts.N)
        alone[s, a] = counts.N[s, a]
        level = pt.MixtureBoundary().level(pt.Counts.from_array(alone), 0.05 / len(unknown), task)
        budgets[s, a] = level / counts.visits[s, a]
    assert np.allclose(run.rule.budgets(LEVEL), budgets.ravel()[run.tally.rows.pair])
    low, high = run.interval(LEVEL)
    p = counts.N / counts.visits[:, :, None]
    assert low == pytest.approx(robust_value(task, p, budgets, "min").value, abs=1e-9)
    assert high == pytest.approx(robust_value(task, p, budgets, "max").value, abs=1e-9)
    assert low <= robust_value(task, p, budgets, "min").value
    assert high >= robust_value(task, p, budgets, "max").value


def test_the_evidence_of_boxes_is_the_largest_level_at_which_they_answer():
    task, kernel = small_task()
    counts = some_counts(kernel, 7, 400)
    for index, sign in ((0, 1), (1, -1)):
        run = loaded(RectangularKL(), task, pt.value(task, kernel) - 0.5 * sign, counts)
        evidence = run.evidence()
        assert evidence[index] > 3
        assert evidence[1 - index] == 0
        assert run.rule.decides(run.samples, sign, evidence[index] * (1 - 1e-9))
        assert not run.rule.decides(run.samples, sign, evidence[index] * (1 + 1e-4))
    assert loaded(RectangularKL(), task, pt.value(task, kernel), counts).evidence() == (0.0, 0.0)


def test_a_row_never_visited_is_free():
    task, kernel = small_task()
    table = some_counts(kernel, 7, 10**6).N.copy()
    table[2, 0] = 0
    run = loaded(RectangularKL(), task, 0.0, pt.Counts.from_array(table))
    ends = [np.inf, -np.inf]
    for x in range(3):
        q = kernel.copy()
        q[2, 0] = np.eye(3)[x]
        ends = [min(ends[0], pt.value(task, q)), max(ends[1], pt.value(task, q))]
    assert np.allclose(run.interval(LEVEL), ends, atol=0.02)
    assert run.interval(LEVEL)[0] < ends[0]
    assert run.interval(LEVEL)[1] > ends[1]


# ---------------------------------------------------------------- Monte Carlo


@pytest.mark.parametrize("on_successor", [False, True])
def test_returns_bracket_the_value_and_draws_are_counted(on_successor):
    task, kernel = small_task(on_successor)
    calls = []

    def draw(states, actions, rng):
        calls.append(len(states))
        assert not ((states == 1) & (actions == 1)).any(), "a known row needs no draw"
        return pt.TabularSimulator(kernel).draw(states, actions, rng)

    run = MonteCarlo(horizon=3).start(task, draw, 0.2, 5)
    while run.samples < 20_000:
        run.step(np.inf, 10**9)
    assert run.samples == sum(calls) == run.counts().total
    value = pt.value(task, kernel)
    for sign in (1, -1):
        Z, least = (run.lower, run.low) if sign > 0 else (-run.upper, -run.high)
        assert Z.min() >= least
        assert Z.mean() < sign * (value - 0.2) + 4 * Z.std() / np.sqrt(len(Z))
    middle = (run.lower + run.upper) / 2 + 0.2
    assert run.estimate == pytest.approx(middle.mean())
    reach = (run.upper - run.lower).max() / 2
    assert 0 < reach <= 0.6**3 * (run.high - run.low) / 2
    assert abs(run.estimate - value) < reach + 4 * middle.std() / np.sqrt(len(middle))


def ended_task(discount, form=np.asarray):
    """A success pays 1 on arrival, once: both it and a failure end the episode."""
    kernel = np.array([[0.5, 0.4, 0.05, 0.05], [0.1, 0.3, 0.3, 0.3], [0, 0, 1, 0], [0, 0, 0, 1]])[:, None]
    rewards = np.zeros((4, 1, 4))
    rewards[:2, :, 2] = 1.0
    support = form(np.ones((4, 1, 4)))
    return pt.Task(form(rewards), np.ones((4, 1)), [1, 0, 0, 0], discount, support, terminal=[2, 3]), kernel


@pytest.mark.parametrize("form", [np.asarray, lambda table: sparse.csr_array(table.reshape(4, 4))])
@pytest.mark.parametrize("horizon", [None, 3])
@pytest.mark.parametrize("kind", monte_carlo.KINDS)
def test_after_an_end_nothing_is_left_to_guess(kind, horizon, form):
    """A 0/1 success has a value in [0, 1], and so has every return, though reward 1 for ever would be worth 100."""
    task, kernel = ended_task(0.99, form)
    sim, value = pt.TabularSimulator(kernel), pt.value(task, kernel)
    for limit in (0, 20_000):
        verdict = pt.decide(task, sim, value, 1e-6, MonteCarlo(kind, horizon), max_samples=limit)
        low, high = verdict.interval
        assert 0 <= low <= verdict.estimate <= high <= 1 + 1e-12
    assert verdict.samples > 1_000
    assert verdict.estimate == pytest.approx(value, abs=0.1 if horizon else 0.05)
    assert high - low < 0.5
    assert pt.decide(task, sim, 0.8, 0.05, MonteCarlo(kind, horizon), max_samples=5_000).answer == "below"


@pytest.mark.parametrize("on_successor", [False, True])
def test_least_returns_are_those_of_paths(on_successor):
    """Against dynamic programming over paths: any action the policy takes, any successor the support allows."""
    for task in (small_task(on_successor)[0], TWO.task, ended_task(0.9)[0]):
        table = task.rewards if task.rewards.ndim == 3 else np.repeat(task.rewards[:, :, None], task.n_states, axis=2)
        allowed = (task.policy > 0)[:, :, None] & (np.ones(table.shape, bool) if task.support is None else task.support)
        for sign in (1.0, -1.0):
            W = np.zeros(task.n_states)
            for _ in range(2000):
                W = np.where(allowed, sign * table + task.discount * W, np.inf).min(axis=(1, 2))
            expected = W[task.initial > 0].min()
            assert expected - 1e-9 <= monte_carlo._least_return(task, sign) <= expected + 1e-12


def test_the_horizon_grows_so_that_small_gaps_are_decided():
    threshold = pt.value(TWO.task, TWO.kernel) - 0.1
    assert pt.decide(TWO.task, SIM, threshold, 0.05, MonteCarlo()).answer == "above"
    short = pt.decide(TWO.task, SIM, threshold, 0.05, MonteCarlo(horizon=5), max_samples=200_000)
    assert short.answer is None
    assert "batch" in short.reason


# ---------------------------------------------------------------- as tests


def test_a_state_that_cannot_have_arisen_is_refused():
    run = MonteCarlo().start(TWO.task, SIM, 0.0, 0)
    run.step(LEVEL, 10**6)
    for part, wrong in (("lower", -1e6), ("upper", 1e6), ("lower", 1e6), ("samples", 3)):
        state = {**run.state()}
        state[part] = np.full_like(state[part], wrong)
        with pytest.raises(pt.InputError, match="resume"):
            MonteCarlo().start(TWO.task, SIM, 0.0, 0).restore(state)


@pytest.mark.parametrize("method", [KLBTS(), RectangularKL(), MonteCarlo()], ids=["klbts", "boxes", "returns"])
def test_any_callable_simulator_serves(method):
    task, kernel = small_task(on_successor=True)
    sim = pt.TabularSimulator(kernel)

    def draw(states, actions, rng):
        return sim.draw(states, actions, rng)

    for shift, expected in ((-0.7, "above"), (0.7, "below")):
        assert pt.decide(task, draw, pt.value(task, kernel) + shift, 0.05, method, rng=2).answer == expected


@pytest.mark.parametrize("kind", [KLBTS, RectangularKL])
@pytest.mark.parametrize(
    "allocation", [[[0.3, 0.2], [0.4, 0.1]], pt.Adaptive(), pt.Forward()], ids=["shares", "a", "f"]
)
def test_any_allocation_serves(kind, allocation):
    verdict = pt.decide(TWO.task, SIM, -0.3, 0.05, kind(allocation=allocation), rng=2)
    assert (verdict.answer, verdict.certified) == ("above", True)


def test_very_many_successors_are_refused_by_the_rules_that_list_them():
    S = 5000
    task = pt.Task(rewards=np.linspace(0, 1, S)[:, None], policy=np.ones((S, 1)), initial=np.ones(S) / S, discount=0.9)

    def draw(states, actions, rng):
        return np.minimum(states + rng.integers(0, 3, size=len(states)), S - 1)

    for method in (KLBTS(), RectangularKL()):
        with pytest.raises(pt.InputError, match="support"):
            pt.decide(task, draw, 3.0, 0.05, method)
    assert pt.decide(task, draw, 3.0, 0.05, MonteCarlo()).answer == "above"


# ---------------------------------------------------------------- errors at V = R

COIN = pt.Task(rewards=[[1.0], [-0.4]], policy=[[1.0], [1.0]], initial=[0.5, 0.5], discount=0.4)
COIN_KERNEL = np.array([[[0.3, 0.7]], [[0.6, 0.4]]])
RUNS, DELTA, ALARM = 200, 0.3, 1e-6


def wrong_answers(start, limit, runs=RUNS):
    """How many of these short runs at V = R answer "above", and "below"."""
    threshold, found = pt.value(COIN, COIN_KERNEL), []
    for seed in range(runs):
        run = start(COIN, pt.TabularSimulator(COIN_KERNEL), threshold, 500 + seed)
        while run.answer is None and run.samples < limit:
            run.step(-np.log(DELTA), 10**9)
        found.append(run.answer)
    return found.count("above"), found.count("below")


class WrongRemainder(monte_carlo.MonteCarloRun):
    """What comes after the horizon is put at its best instead of its worst."""

    def _add(self, lower, upper):
        super()._add(upper, lower)


class NarrowBoxes(boxes.BoxesRule):
    """Boxes a tenth as large."""

    def budgets(self, required):
        return 0.1 * super().budgets(required)


@pytest.mark.parametrize(
    ("method", "broken", "limit"),
    [*((MonteCarlo(kind), WrongRemainder, 750) for kind in monte_carlo.KINDS), (RectangularKL(), NarrowBoxes, 75)],
    ids=[*monte_carlo.KINDS, "boxes"],
)
def test_they_err_as_seldom_as_they_say_and_broken_ones_are_caught(method, broken, limit):
    """More than 46% of errors raise the alarm; broken ones err on one side in at least 50% of the runs."""
    most = stats.binom.ppf(1 - ALARM, RUNS, DELTA)
    above, below = wrong_answers(method.start, limit)
    assert max(above, below) <= most
    may_be_too_short = broken is NarrowBoxes or method.kind == "hoeffding"
    assert min(above, below) > 0 or may_be_too_short, "the runs are too short to err at all"
    wrong = method if broken is NarrowBoxes else MonteCarlo(method.kind, 1)

    def start(task, sim, threshold, rng):
        source = method.start(task, sim, 0.0, rng).source
        if broken is NarrowBoxes:
            question = KLQuestion.of_value(task, threshold, pt.MixtureBoundary(wrong.prior))
            return KLRun(wrong, source, NarrowBoxes(question, wrong.prior))
        return broken(wrong, task, threshold, source)

    assert max(wrong_answers(start, limit)) > most


# ---------------------------------------------------------------- bad input


def decided(method, task=TWO.task, kernel=TWO.kernel):
    return pt.decide(task, pt.TabularSimulator(kernel), threshold=0.0, method=method)


@each(
    ("build", "word"),
    [
        (lambda: KLBTS(policies=3), "policies"),
        (lambda: KLBTS(policies=2), "alternative"),
        (lambda: KLBTS(alternative=[[1.0]]), "alternative"),
        (lambda: KLBTS(policies=2, alternative=[[0.5, 0.4], [0.5, 0.5]]), "alternative"),
        (lambda: KLBTS(boundary=pt.MixtureBoundary), "boundary"),
        (lambda: RectangularKL(prior=0.0), "prior"),
        (lambda: RectangularKL(prior="much"), "prior"),
        (lambda: MonteCarlo("gaussian"), "kind"),
        (lambda: MonteCarlo(horizon=0), "horizon"),
        (lambda: MonteCarlo(horizon=2.5), "horizon"),
        (lambda: decided(KLBTS(policies=2, alternative=[[1.0]])), "alternative"),
        (lambda: decided(KLBTS(policies=2, alternative=np.full((3, 2), 0.5)), *small_task()), "alternative takes"),
        (lambda: decided(RectangularKL(allocation="often")), "allocation"),
        (lambda: decided(KLBTS(allocation=[[1.0, 2.0]])), "allocation"),
    ],
)
def test_bad_settings_are_refused(build, word):
    assert_refused(build, word)
