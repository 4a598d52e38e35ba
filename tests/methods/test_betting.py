"""Betting on temporal differences: the validity of one rollout exactly, and the process built from rollouts.

Tests of one rollout are about one policy and about two, in coupled rollouts, by turns.
"""

from __future__ import annotations

import math
import os
import signal

import numpy as np
import pytest
from scipy import sparse, stats

import policytest as pt
from betting_builders import (
    GAMMAS,
    Enumeration,
    allowed_in,
    arbitrary_plan,
    coupling_of,
    drawn,
    errors,
    extreme_kernels,
    instance,
    largest_capital,
    log_factors,
    make_run,
    rare_reward,
    replayed,
    rollouts,
    shortfall,
    too_often,
    value,
    with_policy,
    without_values,
)
from builders import each
from policytest._base.compiled import rollouts as kernels
from policytest._base.compiled import small
from policytest.eprocess.capital import HOPELESS
from policytest.eprocess.interval import Settled
from policytest.eprocess.strategies import ENDS, ONE_POLICY, Moments
from policytest.kl.sampler import Recorded
from policytest.methods import td_run
from policytest.payoffs import splitting
from policytest.payoffs.fit import Progress
from policytest.payoffs.known_range import known_difference, known_value
from policytest.payoffs.plan import SHARES
from policytest.payoffs.policy_bet import are_quick, plans_of_shares

BETTING = pt.TDBetting()
NOT_BEGUN = Progress(0, 0, Moments(), 0.0)
policies = pytest.mark.parametrize("count", [1, 2], ids=["one policy", "two policies"])
signs = pytest.mark.parametrize("sign", [1.0, -1.0])


# ---------------------------------------------------------------- one rollout


def worst_path_cases():
    yield from ((1, seed, {}) for seed in range(24))
    yield from ((1, seed, {"supports": False, "on_successor": False}) for seed in range(6))
    yield from ((2, seed, {"supports": supports}) for seed in range(16) for supports in (True, False))


@signs
@each(("count", "seed", "settings"), worst_path_cases())
def test_worst_paths_are_below_every_step_every_parting_and_every_value(count, seed, settings, sign):
    tasks, kernel, rng = drawn(count, seed, **settings)
    run = make_run(tasks, kernel, 0.3)
    plan, D = arbitrary_plan(run, rng, sign)
    allowed, coupling, gamma = allowed_in(tasks[0]), coupling_of(run), tasks[0].discount
    rounding = 1e-13 if count == 1 else 1e-12
    for s in range(tasks[0].n_states):
        assert plan.B[s] <= 0
        for a, x in np.argwhere(allowed[s] & (coupling.common[s] > 0)[:, None]):
            assert plan.B[s] <= sum(own[s, a, x] for own in D) + gamma * plan.B[x] + rounding
        for a, x in np.argwhere(allowed[s] & (coupling.first[s] > 0)[:, None]):
            for b, y in np.argwhere(allowed[s] & (coupling.second[s] > 0)[:, None]):
                alone = D[0][s, a, x] + gamma * plan.a.B[x] + D[1][s, b, y] + gamma * plan.b.B[y]
                assert plan.B[s] <= alone + rounding
    for q in (kernel, *extreme_kernels(tasks[0], rng, 20 if count == 1 else 10)):
        assert (errors(run, q, plan).sum(axis=0) + 1e-9 >= plan.B).all()
    assert (sum(part.B for part in plan.parts) <= plan.B + 1e-7 * (1 + plan.L)).all()  # together nothing is worse
    assert -plan.B[tasks[0].initial > 0].min() <= plan.L


@policies
@each("seed", range(8))
def test_worst_paths_are_not_lower_than_they_must_be(count, seed):
    tasks, kernel, rng = drawn(count, seed, supports=count == 1 or seed % 2 == 0)
    run = make_run(tasks, kernel)
    plan, D = arbitrary_plan(run, rng, 1.0)
    allowed, coupling, gamma = allowed_in(tasks[0]), coupling_of(run), tasks[0].discount
    common, apart = allowed & (coupling.common > 0)[..., None], np.full(tasks[0].n_states, np.inf)
    if count == 2:
        laws = zip(D, plan.parts, coupling[1:], strict=True)
        steps = [np.where(allowed & (law > 0)[..., None], own + gamma * part.B, np.inf) for own, part, law in laws]
        apart = sum(step.min(axis=(1, 2)) for step in steps)
    B = np.zeros(tasks[0].n_states)
    for _ in range(4000):
        B = np.minimum(np.minimum(0.0, apart), np.where(common, sum(D) + gamma * B, np.inf).min(axis=(1, 2)))
    assert pytest.approx(B, abs=1e-8 * (1 + np.abs(B).max())) == plan.B


@each("gamma", [0.99, 0.999])
@each("length", [99, 100, 101, 300])
def test_worst_paths_of_long_rings(length, gamma):
    """One loss, seen from far away: where the search for the worst path ends early B must still be sound."""
    S = length + 1
    targets = np.append((np.arange(length) + 1) % length, 1)
    support = sparse.csr_array((np.ones(S), (np.arange(S), targets)), shape=(S, S))
    task = pt.Task(np.append(-1.0, np.zeros(S - 1))[:, None], np.ones((S, 1)), np.eye(S)[S - 1], gamma, support)
    rows, zero = task.layout.rows, np.zeros(S)
    B = kernels.worst_paths(rows, rows.reward, zero, zero, 1.0, gamma)
    exact = -(gamma ** ((length - np.arange(length)) % length)) / (1 - gamma**length)
    assert (np.minimum(0.0, task.rewards[:, 0] + gamma * B[targets]) + 1e-9 >= B).all()
    assert B[:length] == pytest.approx(exact, rel=1e-6)


@signs
@each("seed", range(8))
def test_a_floor_out_of_reach_does_not_matter(seed, sign):
    (task, _), _, rng = drawn(2, seed)
    rows, V = task.layout.rows, rng.normal(size=task.n_states)
    base, nowhere = rng.normal(size=len(rows.pair)), np.full(task.n_states, np.inf)
    mine = kernels.worst_paths(rows, base, V, nowhere, sign, task.discount)
    alone = kernels.worst_paths(rows, base, V, np.zeros(task.n_states), sign, task.discount)
    assert mine == pytest.approx(alone, rel=1e-9, abs=1e-9)


@signs
@each(("count", "seed"), [(1, seed) for seed in range(16)] + [(2, seed) for seed in range(8)])
def test_no_rollout_falls_below_its_range(count, seed, sign):
    tasks, kernel, rng = drawn(count, seed, **({} if count == 1 else {"A": 3}))
    for q in (kernel, *extreme_kernels(tasks[0], rng, 4 - count)):
        run = make_run(tasks, q, -0.2)
        plan, _ = arbitrary_plan(run, rng, sign)
        sums, _ = rollouts(run, plan, rng.random((40_000, 3)))
        assert len(sums) > 50
        assert sums.min() >= -plan.L - 1e-12 * (1 + plan.L)
        mean = sign * (value(tasks, q) + 0.2) - plan.lead
        assert sums.mean() <= mean + 4.5 * sums.std() / math.sqrt(len(sums)) + 1e-9


@policies
@each("seed", range(10))
def test_compiled_rollouts_are_those_of_the_definition(count, seed):
    tasks, kernel, rng = drawn(count, seed, **({} if count == 1 else {"A": 2 + seed % 3}))
    run = make_run(tasks, kernel)
    plan, D = arbitrary_plan(run, rng, -1.0 if seed % 2 else 1.0)
    u = rng.random((4000, 3))
    found, capital = rollouts(run, plan, u)
    sums = replayed(run, kernel, plan, D, u)
    assert found == pytest.approx(sums, abs=1e-9)
    ratios = np.outer((plan.lead + np.array(sums)) / plan.room, plan.fractions)
    if plan.room > 0 and (ratios > -1).all():
        won, expected = log_factors(run, capital), np.log1p(ratios).sum(axis=0)
        kept = expected > expected.max() + HOPELESS  # what has less may be lost
        assert won[kept] == pytest.approx(expected[kept], abs=1e-6)
        assert (won[~kept] <= expected[~kept] + 1e-6).all()


EXACT = [
    *((1, {"S": 2, "A": A, "gamma": gamma}) for gamma, A in ((0.0, 3), (0.3, 2), (0.5, 1))),
    *((2, {"S": S, "gamma": gamma}) for gamma, S in ((0.0, 2), (0.3, 2), (0.5, 2), (0.0, 3))),
]


def assert_mean_is_exact(tasks, kernel, rng, sign, R):
    """Not above sign (V - R) - lead, and below it by no more than what ending at small weights costs."""
    run = make_run(tasks, kernel, R)
    plan, D = arbitrary_plan(run, rng, sign)
    bound, rounding = sign * (value(tasks, kernel) - R) - plan.lead, 1e-9 if len(tasks) == 1 else 1e-8
    mean = Enumeration(run, kernel, plan, D).mean()
    assert bound - shortfall(run, kernel, plan) - rounding <= mean <= bound + rounding


@signs
@each(("count", "settings"), EXACT)
@each("seed", range(4))
def test_the_mean_of_a_rollout_exactly(seed, count, settings, sign):
    assert_mean_is_exact(*drawn(count, seed, **settings), sign, 0.1)


@signs
@policies
@each("gamma", GAMMAS)
@each("seed", range(3))
def test_the_mean_under_adversarial_kernels_exactly(count, seed, gamma, sign):
    """Deterministic kernels and policies, of which two agree in one state only: long paths, and few of them."""
    tasks, _, rng = drawn(count, seed, gamma=gamma, **({"A": 1} if count == 1 else {"S": 3}))
    if count == 2:
        first = np.eye(2)[rng.integers(2, size=3)]
        second = np.where(np.arange(3)[:, None] == seed, first, 1.0 - first)
        tasks = [with_policy(task, policy) for task, policy in zip(tasks, (first, second), strict=True)]
    for q in extreme_kernels(tasks[0], rng, 4 if count == 1 else 2):
        assert_mean_is_exact(tasks, q, rng, sign, -0.4)


@each("seed", range(6))
def test_what_stands_for_an_unfinished_rollout_is_at_most_its_mean(seed):
    """S + w B(s) is no bound on every path, since coins raise the weight; it is one on the mean, under any kernel."""
    task, _, rng = instance(seed, A=1, gamma=(0.5, 0.9)[seed % 2])
    for q in extreme_kernels(task, rng, 5):
        run = make_run([task], q, 0.0)
        plan, D = arbitrary_plan(run, rng, 1.0)
        for s in range(task.n_states):
            weight = float(rng.uniform(0.01, 1.0))
            earned = weight * -plan.B[s] - plan.L + float(rng.uniform(0.0, 3.0))
            walk = Enumeration(run, q, plan, D)
            walk.paths.append((1.0, "together", s, earned, weight, -1, 0.0))
            assert walk.rest() >= earned + weight * plan.B[s] - 1e-9


@each("gamma", [0.5, 0.9, 0.99])
def test_on_the_worst_path_everything_is_lost(gamma):
    """No coin ends it; where the weight has become very small, the rest of the loss is counted."""
    task = pt.Task([[-1.0], [1.0]], np.ones((2, 1)), [1.0, 0.0], gamma)
    run = make_run([task], np.array([[[1.0, 0.0]], [[1.0, 0.0]]]), 0.0)
    plan = without_values(run, 1.0)
    sums, _ = rollouts(run, plan, np.random.default_rng(0).random((5000, 3)))
    assert pytest.approx(1 / (1 - gamma)) == plan.L
    assert len(sums) > 3
    assert sums == pytest.approx(np.full(len(sums), -plan.L), rel=1e-9)


@policies
@each("seed", range(8))
def test_fitted_plans_are_sound(count, seed):
    """The advantages are centred and B is below: checked on the plan that a run has made for itself."""
    tasks, kernel, _ = drawn(count, seed)
    R = float(np.mean(pt.value_range(tasks[0]))) if count == 1 else 0.2
    run = make_run(tasks, kernel, R)
    for _ in range(6):
        run.step(np.inf, 200)
        plan, rows, gamma = run.plan, run.tally.rows, tasks[0].discount
        for policy, part, sense in zip(run.payoff.policies, plan.parts, (plan.sign, -plan.sign), strict=False):
            mean = np.bincount(rows.state, policy.prob * part.base, minlength=len(part.V))
            on_pairs = 0.0 if policy.on_successor else (policy.task.policy * policy.task.rewards).sum(axis=1)
            assert mean == pytest.approx(on_pairs + np.zeros(len(part.V)), abs=1e-9)
            step = sense * (rows.per_entry(part.base - part.V[rows.state]) + gamma * part.V[rows.successor])
            step += sense * (part.gain if len(part.gain) else 0.0) + gamma * part.B[rows.successor]
            taken = rows.per_entry(policy.prob) > 0
            assert (part.B[rows.state[rows.of_entry()]] <= step + 1e-12)[taken].all()
        again = run.payoff.joined(plan.parts, plan.sign)
        assert again.L - 1e-12 <= plan.L
        assert -plan.B[tasks[0].initial > 0].min() <= plan.L
        start = plan.a.V - (plan.b.V if count == 2 else 0.0)
        assert plan.lead == pytest.approx(plan.sign * float(tasks[0].initial @ start))
        assert ((plan.fractions >= 0) & (plan.fractions < 1)).all()


@policies
def test_a_rollout_that_is_cut_short_goes_on(count):
    """One sample at a time, or all at once: the same run. Within a rollout evidence is what is left at worst."""
    tasks, kernel, _ = drawn(count, 2, S=3, A=2, gamma=0.9, supports=False, on_successor=False)
    whole, parts = (make_run(tasks, kernel, value(tasks, kernel), rng=5) for _ in range(2))
    while whole.samples < 300:
        whole.step(np.inf, 300 - whole.samples)
    phases, before = set(), parts.evidence()
    while parts.samples < 300:
        parts.step(np.inf, 1)
        phases.add(parts.at.phase)
        assert np.isfinite(parts.evidence()).all()
    for one, other in zip(parts.bets, whole.bets, strict=True):
        assert (one.capital == other.capital).all()
    assert parts.at == whole.at
    assert parts.evidence() == whole.evidence() != before
    alone = {small.A_ALONE, small.B_ALONE, small.B_PARTS} if count == 2 else set()
    assert {small.TOGETHER} | alone <= phases


# ---------------------------------------------------------------- error probabilities


def calibration_cases():
    two, three = pt.instances.paper(2), pt.instances.paper(3)
    yield "2x2", two.task, two.kernel, 400
    yield "3x3", three.task, three.kernel, 600
    (rare,), kernel = rare_reward(1)
    yield "rare", rare, kernel, 600
    yield "known", *instance(5, S=4, A=2, gamma=0.9, on_successor=False)[:2], 400
    yield "successors", *instance(9, S=3, A=2, gamma=0.9, on_successor=True, supports=False)[:2], 400


@pytest.mark.parametrize("case", list(calibration_cases()), ids=lambda case: case[0])
def test_both_sides_err_at_most_as_often_as_delta_allows(case):
    _, task, kernel, most = case
    R, runs, delta = pt.value(task, kernel), 60, 0.1
    sim = pt.TabularSimulator(kernel)
    answers = [
        pt.stopping_times(task, sim, R, [delta], BETTING, rng=seed, max_samples=most).answers[0] for seed in range(runs)
    ]
    assert not too_often(answers.count("above"), runs, delta)
    assert not too_often(answers.count("below"), runs, delta)


def test_bets_suit_the_lead(monkeypatch):
    """Where the lead is small beside the noise the bets on large gaps lose, and one on a gap like the true one wins."""
    monkeypatch.setattr(splitting, "FIRST", np.inf)  # a pace of its own would lower the noise
    found = pt.instances.random(3, 2, 1, discount=0.5)
    sim, V = pt.TabularSimulator(found.kernel), pt.value(found.task, found.kernel)
    low, high = pt.value_range(found.task)
    run = pt.TDBetting().start(found.task, sim, V - 0.01 * (high - low), 0)
    while run.answer is None and run.samples < 500_000:
        run.step(math.log(1e6), 100_000)
    assert run.answer == "above"
    segments, gaps = [segment for side in run.bets for segment in side.segments], ONE_POLICY.gaps
    fractions, won = np.array([segment.bet.fractions for segment in segments]), log_factors(run, run.bets.above.capital)
    assert ((fractions >= 0) & (fractions < 1)).all()
    assert (np.diff(fractions[:, : len(gaps)][:, gaps < 1]) <= 0).all()  # the smaller the gap, the smaller the bet
    true = 0.01 * (high - low) / run.plan.room
    assert (won[: len(gaps)][gaps > 8 * true] < 0.0).all()
    assert 0.4 < gaps[np.argmax(won[: len(gaps)])] / true < 2.5
    assert max(won) > 10.0


@policies
def test_too_small_a_range_is_caught(count):
    """The control: with a quarter of the range, factors cut off at 0, the same bets err far more often than delta."""
    tasks, kernel = rare_reward(count)
    run = make_run(tasks, kernel, value(tasks, kernel))
    runs, crossed = 200, {1.0: 0, 0.25: 0}
    for sign in (1.0, -1.0):
        plan = without_values(run, sign)
        plan = run.fit.staked(plan, None, NOT_BEGUN) if count == 1 else plan
        every = [rollouts(run, plan, np.random.default_rng(seed).random((500, 3)))[0] for seed in range(runs)]
        for part in crossed:
            capital = [largest_capital(run, plan, sums, part * plan.L - plan.lead) for sums in every]
            crossed[part] = max(crossed[part], sum(reached >= -math.log(0.1) for reached in capital))
    assert not too_often(crossed[1.0], runs, 0.1)
    assert too_often(crossed[0.25], runs, 0.1)


@pytest.mark.parametrize(("count", "offset"), [(1, -0.5), (1, 0.0), (1, 0.5), (2, 0.2)])
def test_intervals_hold_the_value(count, offset):
    three = pt.instances.paper(3)
    tasks, kernel = [three.task], three.kernel
    if count == 2:
        tasks, kernel, _ = drawn(2, 2, S=3, gamma=0.9, supports=False, zeros=False, on_successor=False)
    truth, known = value(tasks, kernel), known_value(*tasks) if count == 1 else known_difference(*tasks)
    runs, missed, widths = 30, 0, []
    for seed in range(runs):
        run = make_run(tasks, kernel, truth + offset, rng=seed)
        ends = []
        for number in range(20):
            run.step(np.inf, 100)
            if number % 5 == 4:
                ends.append(run.interval(-math.log(0.1)))
        bottom, top = np.array(ends).T
        assert (bottom >= known.low - 1e-9).all()
        assert (top <= known.high + 1e-9).all()
        missed += bool((bottom > truth + 1e-12).any() or (top < truth - 1e-12).any())
        widths.append((top - bottom)[[0, -1]])
    assert not too_often(missed, runs, 0.1)
    first, last = np.mean(widths, axis=0)
    assert last < first


def test_intervals_end_where_the_capital_is_two_over_delta():
    inst = pt.instances.paper(2)
    value, level = pt.value(inst.task, inst.kernel), -math.log(0.05)
    run = make_run([inst.task], inst.kernel, value, rng=4)
    while run.samples < 20_000:
        run.step(np.inf, 20_000 - run.samples)
    for sign, end in zip((1.0, -1.0), run.interval(level), strict=True):
        log_capital, moved = np.zeros(len(ENDS.log_weights)), sign * (end - value)
        for segment in run.bets[sign].segments:
            ratios = (segment.won - moved) / (segment.bet.room + moved)
            log_capital += np.log1p(np.outer(ratios, segment.bet.wide)).sum(axis=0)
        assert np.logaddexp.reduce(log_capital + ENDS.log_weights) == pytest.approx(level + math.log(2), abs=1e-6)


def test_intervals_shrink_to_the_value():
    inst = pt.instances.paper(2)
    value, sim = pt.value(inst.task, inst.kernel), pt.TabularSimulator(inst.kernel)
    low, high = pt.value_range(inst.task)
    for share in (0.2, 0.8):
        run = BETTING.start(inst.task, sim, low + share * (high - low), 3)
        while run.samples < 20_000:
            run.step(np.inf, 20_000 - run.samples)
        bottom, top = run.interval(3.0)
        one_sided = value - bottom if share < 0.5 else top - value  # the side that is bet on
        assert bottom <= value <= top
        assert one_sided < 0.1 * (high - low)


# ---------------------------------------------------------------- intervals of verdicts


def answered(tasks, kernel, R, rng, required, **sides):
    """A run at its answer."""
    run = make_run(tasks, kernel, R, rng=rng, **sides)
    run.begin(required)
    for _ in range(400):
        if run.answer is None:
            run.step(required, 2_000)
    assert run.answer is not None
    return run


VERDICTS = [
    *((1, seed) for seed in range(41, 45)),
    *((2, seed) for seed in range(40, 44)),
]


@pytest.mark.parametrize(("count", "seed"), VERDICTS)
def test_the_interval_of_a_verdict_does_not_contradict_its_answer(count, seed):
    """Its ends are where the bets of the answer would just suffice; at the tested threshold they are the answer."""
    tasks, kernel, _ = drawn(count, seed, gamma=0.9)
    truth, known = value(tasks, kernel), known_value(*tasks) if count == 1 else known_difference(*tasks)
    if known.high - known.low < 1e-9:
        pytest.skip("one value")
    for end, answer in ((known.low, "above"), (known.high, "below")):
        for rng in range(2):
            R, required = truth + 0.8 * (end - truth), -math.log(0.05)
            run = answered(tasks, kernel, R, rng, required)
            lower, upper = run.verdict_interval(required)
            assert run.answer == answer
            assert known.low - 1e-9 <= lower < upper <= known.high + 1e-9
            assert lower >= R if answer == "above" else upper <= R
            for sign, bets in zip((1.0, -1.0), run.bets.evidence(), strict=True):
                assert run.refuter(sign, as_staked=True).log_capital(0.0) == pytest.approx(bets, abs=1e-9)
            longer = run.verdict_interval(required + 3.0)
            assert longer[0] <= lower < upper <= longer[1]


def test_the_interval_of_within_is_within():
    task, kernel, _ = instance(6, S=4, A=3, gamma=0.5)
    R, required = pt.value(task, kernel), math.log(20.0)
    run = answered([task], kernel, R, 1, required, indifference=0.5, both_sides=True)
    lower, upper = run.verdict_interval(required)
    assert run.answer == "within"
    assert R - 0.5 <= lower < R < upper <= R + 0.5


def test_the_interval_of_counts_does_not_contradict_their_verdict():
    two = pt.instances.paper(2)
    counts = pt.Counts.from_array(np.rint(150 * two.kernel).astype(np.int64))
    run = pt.TDBetting().replay(two.task, 0.0, Recorded(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64)))
    run.judge_counts(counts, 3.0, "fixed")
    assert run.answer == "above"
    assert 0.0 <= run.verdict_interval(3.0)[0] < pt.value(two.task, two.kernel)
    assert run.refuter(1.0, as_staked=True).log_capital(0.0) == pytest.approx(run.evidence()[0], abs=1e-9)


@pytest.mark.calibration
@pytest.mark.parametrize(("inflated", "caught"), [(0.0, False), (2.0, True)])
@policies
def test_each_end_of_the_interval_of_a_verdict_misses_at_most_as_often_as_delta_allows(
    count, inflated, caught, monkeypatch
):
    """At the end of rare rewards, the threshold below the value and above it; the control has too much capital."""
    tasks, kernel = rare_reward(count)
    truth, runs, delta, missed = value(tasks, kernel), 80 if caught else 50, 0.1, {"above": 0, "below": 0}
    honest = Settled.log_capital
    monkeypatch.setattr(Settled, "log_capital", lambda self, R: inflated + honest(self, R))
    for offset in (-4.0, 4.0):
        for seed in range(runs):
            run = make_run(tasks, kernel, truth + offset, rng=seed)
            for _ in range(12):
                if run.answer is None:
                    run.step(-math.log(delta), 50)
            lower, upper = run.verdict_interval(-math.log(delta))
            missed["above"] += offset < 0 and lower > truth
            missed["below"] += offset > 0 and upper < truth
    assert any(too_often(times, runs, delta) for times in missed.values()) == caught


# ---------------------------------------------------------------- answers


@each("seed", range(41, 48))
def test_right_answers_on_both_sides(seed):
    task, kernel, _ = instance(seed)
    value, (low, high) = pt.value(task, kernel), pt.value_range(task)
    assert high > low
    for end, answer in ((low, "above"), (high, "below")):
        for share in (0.5, 0.97):
            R = value + share * (end - value)
            verdict = pt.decide(task, pt.TabularSimulator(kernel), R, 1e-4, BETTING, rng=seed, max_samples=200_000)
            assert verdict.answer == answer
            assert verdict.certified
            assert 0 <= verdict.p_value <= 1e-4 * 1.001
            assert verdict.counts.total == verdict.samples


@each(("scale", "offset"), [(1e-9, 1e6), (1e9, 0.0)])
def test_units_do_not_matter_where_rows_are_known(scale, offset):
    task, kernel, _ = instance(7, S=3, A=2, gamma=0.9, on_successor=False)
    low, high = pt.value_range(task)
    value = pt.value(task, kernel)
    for end in (low, high):
        R = 0.6 * value + 0.4 * end
        other = pt.Task(scale * (task.rewards + offset), task.policy, task.initial, 0.9, task.support)
        sim = pt.TabularSimulator(kernel)
        mine = pt.decide(task, sim, R, 0.01, BETTING, rng=2, max_samples=50_000)
        theirs = pt.decide(other, sim, scale * (R + offset / 0.1), 0.01, BETTING, rng=2, max_samples=50_000)
        assert mine.answer == theirs.answer is not None
        assert mine.samples == theirs.samples
        assert max(mine.evidence) == pytest.approx(max(theirs.evidence), rel=1e-3)


def test_sparse_tasks_are_the_dense_ones():
    task, kernel, _ = instance(11, S=4, A=2, gamma=0.9, on_successor=False)
    flat = sparse.csr_array(task.support.reshape(8, 4))
    twin = pt.Task(task.rewards, task.policy, task.initial, 0.9, flat)
    R = 0.5 * (pt.value(task, kernel) + pt.value_range(task)[0])
    first = pt.decide(task, pt.TabularSimulator(kernel), R, 0.01, BETTING, rng=1)
    second = pt.decide(twin, pt.TabularSimulator(sparse.csr_array(kernel.reshape(8, 4))), R, 0.01, BETTING, rng=1)
    assert (first.answer, first.samples) == (second.answer, second.samples) == ("above", first.samples)


def test_one_unknown_row_among_known_ones():
    """A corridor of known rows to absorbing states, with one toss on the way."""
    S = 6
    support = np.zeros((S, 1, S), dtype=bool)
    for s, targets in enumerate(([1], [2], [3, 4], [5], [4], [5])):
        support[s, 0, targets] = True
    kernel = support / support.sum(axis=2, keepdims=True)
    kernel[2, 0] = [0, 0, 0, 0.7, 0.3, 0]
    task = pt.Task(np.eye(S)[3][:, None], np.ones((S, 1)), np.eye(S)[0], 0.95, support)
    value = pt.value(task, kernel)
    assert value == pytest.approx(0.7 * 0.95**3)
    for R, answer in ((0.8 * value, "above"), (1.2 * value, "below")):
        verdict = pt.decide(task, pt.TabularSimulator(kernel), R, 0.01, BETTING)
        assert verdict.answer == answer
        assert verdict.counts.visits[2, 0] == verdict.samples


def test_one_state_with_rewards_needs_no_sample():
    task = pt.Task([[1.0, 3.0]], [[0.5, 0.5]], [1.0], 0.5)
    verdict = pt.decide(task, pt.TabularSimulator(np.ones((1, 2, 1))), 3.9, 0.05, BETTING)
    assert (verdict.answer, verdict.samples) == ("above", 0)
    at = pt.decide(task, pt.TabularSimulator(np.ones((1, 2, 1))), 4.0, 0.05, BETTING)
    assert at.answer is None


def exactly(function, seconds):
    """Call, and fail where that takes so long."""

    def late(*_):
        raise TimeoutError("it hangs")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        return function()
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def test_rollouts_that_meet_nothing_unknown_end():
    """The unknown row is out of reach and V = R: there is nothing to draw, and no answer."""
    support = np.eye(3, dtype=bool)[:, None, :].copy()
    support[2] = True
    kernel = support / support.sum(axis=2, keepdims=True)
    task = pt.Task([[1.0], [2.0], [3.0]], np.ones((3, 1)), [0.5, 0.5, 0.0], 0.5, support)
    sim = pt.TabularSimulator(kernel)
    verdict = exactly(lambda: pt.decide(task, sim, 3.0, 0.05, BETTING, max_samples=50), 3)
    assert verdict.answer is None
    data = pt.Transitions([2, 2], [0, 0], [1, 0])
    assert exactly(lambda: pt.assess(task, data, 3.0, 0.05, BETTING), 3).answer is None


@each("gamma", [0.0, 0.5, 0.9])
def test_where_every_kernel_has_the_value_of_the_threshold(gamma):
    task = pt.Task(np.ones((3, 2)), np.full((3, 2), 0.5), [0.25, 0.25, 0.5], gamma)
    verdict = pt.decide(
        task, pt.TabularSimulator(np.full((3, 2, 3), 1 / 3)), 1 / (1 - gamma), 0.05, BETTING, max_samples=200
    )
    assert verdict.answer is None
    assert np.isfinite(verdict.evidence).all()
    assert 0 <= verdict.p_value <= 1


def dyadic(seed):
    """A task whose extreme values are dyadic numbers, that is, exact; with a kernel that attains the largest."""
    rng = np.random.default_rng(seed)
    S, A, gamma = int(rng.integers(2, 5)), 2, float(rng.choice([0.5, 0.75, 0.875]))
    share = rng.integers(1, 8, size=S) / 8
    rewards = rng.integers(-40, 41, size=(S, A, S)) / 16
    rewards[S - 1] = 0.0
    support = np.broadcast_to(np.triu(np.ones((S, S), dtype=bool), 1)[:, None, :], (S, A, S)).copy()
    support[S - 1, :, S - 1] = True
    initial = np.eye(S)[0] if S < 3 else np.append([0.5, 0.5], np.zeros(S - 2))
    task = pt.Task(rewards, np.stack([share, 1 - share], axis=1), initial, gamma, support)
    V, kernel = np.zeros(S), np.zeros((S, A, S))
    kernel[S - 1, :, S - 1] = 1.0
    for s in range(S - 2, -1, -1):
        worth = np.where(support[s], rewards[s] + gamma * V, -np.inf)
        kernel[s, [0, 1], worth.argmax(axis=1)] = 1.0
        V[s] = task.policy[s] @ worth.max(axis=1)
    return task, kernel, float(initial @ V)


def test_rounding_is_not_evidence_at_the_end_of_the_range():
    """V = R = the largest value, exactly: what there is to win is of the size of rounding, and still fair."""
    runs = crossed = 0
    for seed in range(20):
        task, kernel, R = dyadic(seed)
        low, high = pt.value_range(task)
        assert pytest.approx(high, abs=1e-12) == R
        for rng in range(8 if high > low else 0):
            run = make_run([task], kernel, R, BETTING, rng)
            for _ in range(20):
                if run.answer is None and run.samples < 200:
                    run.step(3.0, 200 - run.samples)
            runs, crossed = runs + 1, crossed + (run.answer is not None)
    assert runs > 100
    assert not too_often(crossed, runs, math.exp(-3.0))


@each("form", [np.asarray, lambda kernel: sparse.csr_array(kernel.reshape(4, 2))])
def test_empty_rows_of_a_table_are_refused(form):
    kernel = np.full((2, 2, 2), 0.5)
    kernel[1, 1] = 0.0
    task = pt.Task([[1.0, 0.0], [2.0, 1.0]], np.full((2, 2), 0.5), [0.5, 0.5], 0.9)
    with pytest.raises(pt.InputError, match="sums to 0"):
        pt.decide(task, pt.TabularSimulator(form(kernel)), 12.0, 0.05, BETTING, max_samples=100)


# ---------------------------------------------------------------- seeds, limits, pauses


class Counting:
    """A simulator that is called for every draw, and remembers what it answered."""

    def __init__(self, kernel, stop_at=None):
        self.table, self.seen, self.stop_at = pt.TabularSimulator(kernel), [], stop_at

    def __call__(self, states, actions, rng):
        if self.stop_at is not None and len(self.seen) == self.stop_at:
            os.kill(os.getpid(), signal.SIGINT)
            self.stop_at = None
        x = self.table.draw(states, actions, rng)
        self.seen += [(int(s), int(a), int(y)) for s, a, y in zip(states, actions, x, strict=True)]
        return x

    def counts(self, task):
        N = np.zeros((task.n_states, task.n_actions, task.n_states), dtype=int)
        for place in self.seen:
            N[place] += 1
        return N


def same(first, second):
    assert (first.answer, first.samples) == (second.answer, second.samples)
    assert first.evidence == second.evidence
    assert first.interval == second.interval
    assert (first.counts.N == second.counts.N).all()


def question(seed=3):
    """Neither at once nor late: some hundred samples."""
    inst = pt.instances.paper(seed)
    return inst.task, inst.kernel, 0.0


def test_a_slow_clock_changes_no_result(monkeypatch):
    """How many draws fit into a moment is the machine's affair, also where the test may answer "within"."""
    task, kernel, _ = instance(6, S=4, A=3, gamma=0.5)
    found = []
    for patience in (-1.0, 1e9):
        monkeypatch.setattr(td_run, "PATIENCE", patience)
        R = pt.value(task, kernel)
        found.append(pt.decide(task, Counting(kernel), R, 0.1, BETTING, rng=1, indifference=0.5, max_samples=20_000))
    assert found[0].answer == "within"
    same(*found)


@each("most", [0, 1, 2, 7, 64, 65, 200])
def test_a_called_simulator_is_called_once_a_sample_and_never_too_often(most):
    task, kernel, _ = instance(6, S=4, A=3, gamma=0.9)
    sim = Counting(kernel)
    verdict = pt.decide(task, sim, pt.value(task, kernel), 1e-6, BETTING, rng=1, max_samples=most)
    assert len(sim.seen) == verdict.samples == most
    assert (sim.counts(task) == verdict.counts.N).all()


def test_called_simulators_and_tables_agree_in_distribution():
    task, kernel, R = question(2)
    samples = [
        [pt.stopping_times(task, sim, R, [0.05], BETTING, rng=seed).samples[0] for seed in seeds]
        for sim, seeds in ((pt.TabularSimulator(kernel), range(100)), (Counting(kernel), range(500, 540)))
    ]
    assert stats.mannwhitneyu(*samples).pvalue > 1e-4
    assert stats.ks_2samp(*samples).pvalue > 1e-4


@each("at", [0, 3, 30])
def test_an_interrupted_draw_is_not_lost(at):
    task, kernel, R = question(2)
    whole = pt.decide(task, Counting(kernel), R, 1e-4, BETTING, rng=8)
    sim = Counting(kernel, stop_at=at)
    part = pt.decide(task, sim, R, 1e-4, BETTING, rng=8)
    assert part.answer is None
    same(pt.decide(task, sim, R, 1e-4, BETTING, resume=part), whole)
    assert len(sim.seen) == whole.samples


def tampered():
    def add(*numbers):
        return lambda v: v + np.array(numbers)

    def times(*numbers):
        return lambda v: v * np.array(numbers)

    return (
        ("progress", add(1, 0, 0, 0)),
        ("progress", add(0, 1000, 0, 0)),
        ("progress", times(1, 1, 0, 1)),
        ("moments", times(2.0, 1.0, 1.0)),
        ("above.capital", lambda v: v + 0.1),
        ("above.won", add(0.5)),
        ("above.lengths", lambda v: v[:-1]),
        ("above.bets", times(2.0)),
        ("plan.a.V", lambda v: v[:-1]),
        ("plan.B", times(0.5)),
        ("plan.a.base", add(0.5)),
        ("plan.a.base", lambda v: v[:-1]),
        ("plan.numbers", times(0.25, 1.0, 1.0, 1.0)),
        ("plan.numbers", times(1.0, -1.0, 1.0, 1.0)),
        ("plan.numbers", add(0.0, 0.0, 0.3, 0.0)),
        ("walker", add(0.0, 0.0, -5000.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ("walker", add(0.0, 1000.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)),
        ("walker", times(1.0, 1.0, 1.0, 1000.0, 1.0, 1.0, 1.0, 1.0)),
        ("walker", lambda v: v[:-1]),
        ("numbers", lambda v: v[:, :2]),
        ("numbers", add(1.0)),
        ("generator", lambda v: v[:-1]),
        ("tally.N", add(1)),
        ("look_at", lambda v: v[:0]),
        ("plan.due", times(np.nan, 1.0, 1.0, 1.0)),
        ("plan.due", times(1.0, 1.0, 3.0, 1.0)),
        ("plan.due", times(1.0, 1.0, 1.0, np.nan)),
    )


@pytest.fixture(scope="module")
def cut_short():
    """A run in the middle of a rollout, with some weight left."""
    task, kernel, R = question(3)
    run = make_run([task], kernel, R, rng=8)
    while run.samples < 50 or run.between_rollouts or run.at.weight <= 0.1:
        run.step(np.inf, 1)
    return run


def fresh():
    task, kernel, R = question(3)
    return make_run([task], kernel, R)


@each(("name", "alter"), tampered())
def test_tampered_states_are_refused(cut_short, name, alter):
    """By `restore` itself: what is accepted there goes into compiled code, which checks nothing."""
    state = cut_short.state()
    again = fresh()
    again.restore(dict(state))
    assert again.evidence() == cut_short.evidence()
    state[name] = alter(np.array(state[name]))
    with pytest.raises(pt.InputError):
        fresh().restore(state)
    del state[name]
    with pytest.raises(pt.InputError):
        fresh().restore(state)


def test_evidence_of_an_unfinished_rollout_counts_it_at_worst():
    task, kernel, R = question(3)
    run, seen = make_run([task], kernel, R, BETTING, rng=2), 0
    for _ in range(400):
        run.step(np.inf, 1)
        shares = [np.log(np.maximum(side.capital[:-1], 1e-300)) + side.capital[-1] for side in run.bets]
        if not run.between_rollouts:
            plan, at = run.plan, run.at
            worst = at.earned + at.weight * plan.B[int(at.state)]
            assert worst >= -plan.L - 1e-9
            assert worst <= at.earned + 1e-12
            shares[0 if plan.sign > 0 else 1] += np.log1p(plan.fractions * (plan.lead + worst) / plan.room)
            seen += 1
        assert run.evidence() == pytest.approx([np.logaddexp.reduce(side) for side in shares], abs=1e-9)
    assert seen > 50


# ---------------------------------------------------------------- recorded data


def a_log(task, kernel, size, rng):
    s, a = rng.integers(task.n_states, size=size), rng.integers(task.n_actions, size=size)
    return pt.Transitions(s, a, pt.TabularSimulator(kernel).draw(s, a, rng))


def test_recorded_draws_are_used_once_and_in_their_order(monkeypatch):
    task, kernel, _ = instance(13, S=3, A=2, gamma=0.9, zeros=False, supports=False)
    log = a_log(task, kernel, 400, np.random.default_rng(0))
    k = task.layout.row_of_pair[log.s * 2 + log.a]
    run = BETTING.replay(task, pt.value(task, kernel), Recorded(k, log.x))
    heads, record = {}, run.pool.record

    def watch(pair, x, rewards):
        for p, y in zip(pair, x, strict=True):
            heads.setdefault(int(p), []).append(int(y))
        record(pair, x, rewards)

    monkeypatch.setattr(run.pool, "record", watch)
    while not run.exhausted:
        run.step(np.inf, 10_000)
    assert sum(map(len, heads.values())) == run.samples > 50
    for pair, ys in heads.items():
        recorded = log.x[log.s * 2 + log.a == pair]
        assert len(ys) <= len(recorded)
        assert ys == recorded[: len(ys)].tolist()
    assert any(len(ys) == (log.s * 2 + log.a == pair).sum() for pair, ys in heads.items())  # one ran out


@pytest.mark.parametrize("share", [0.4, 0.9])
def test_a_verdict_on_a_log_is_that_on_its_shortest_prefix(share):
    inst = pt.instances.paper(2)
    value, low = pt.value(inst.task, inst.kernel), pt.value_range(inst.task)[0]
    R = value + share * (low - value)
    log = a_log(inst.task, inst.kernel, 3000, np.random.default_rng(1))
    verdict = pt.assess(inst.task, log, R, 0.05, BETTING)
    assert verdict.answer == "above"
    first = verdict.samples
    assert 0 < first < 3000
    prefix = pt.Transitions(log.s[:first], log.a[:first], log.x[:first])
    again = pt.assess(inst.task, prefix, R, 0.05, BETTING)
    assert (again.answer, again.samples, again.evidence) == ("above", first, verdict.evidence)
    assert (verdict.counts.N == prefix.counts(inst.task, first).N).all()
    shorter = pt.Transitions(log.s[: first - 1], log.a[: first - 1], log.x[: first - 1])
    undecided = pt.assess(inst.task, shorter, R, 0.05, BETTING)
    assert undecided.answer is None
    assert undecided.reason.startswith("not enough data: no unused transition left for (s=")
    assert 0 <= undecided.p_value <= 1


def test_a_missing_draw_is_waited_for():
    """A pair that the policy takes often is never recorded: nothing is skipped, so there is no answer."""
    task = pt.Task([[1.0, 0.5], [0.0, 0.5]], np.full((2, 2), 0.5), [1.0, 0.0], 0.9)
    rng = np.random.default_rng(3)
    s, a = rng.integers(2, size=5000), rng.integers(2, size=5000)
    keep = ~((s == 0) & (a == 1))
    x = rng.integers(2, size=5000)
    low, high = pt.value_range(task)
    whole = pt.assess(task, pt.Transitions(s, a, x), low + 0.05 * (high - low), 0.05, BETTING)
    assert whole.answer == "above"
    verdict = pt.assess(task, pt.Transitions(s[keep], a[keep], x[keep]), low + 0.05 * (high - low), 0.05, BETTING)
    assert verdict.answer is None
    assert max(verdict.evidence) < 3.0


def test_logs_that_were_collected_adaptively():
    """Each pair is chosen by the last successor and stops being drawn once it looks good: delta holds at V = R."""
    task, kernel, _ = instance(21, S=2, A=2, gamma=0.9, zeros=False, supports=False, on_successor=False)
    R, runs, answers = pt.value(task, kernel), 60, []
    sim = pt.TabularSimulator(kernel)
    for seed in range(runs):
        rng = np.random.default_rng(seed)
        log, good = [], np.zeros((2, 2), dtype=int)
        s = 0
        for _ in range(300):
            a = int(good[s].argmin())
            x = int(sim.draw(np.array([s]), np.array([a]), rng)[0])
            good[s, a] += x == 0
            log.append((s, a, x))
            s = x if rng.random() < 0.7 else 1 - x
        answers.append(pt.assess(task, pt.Transitions(*map(list, zip(*log, strict=True))), R, 0.1, BETTING).answer)
    assert not too_often(answers.count("above"), runs, 0.1)
    assert not too_often(answers.count("below"), runs, 0.1)


def test_counts_have_no_order():
    inst = pt.instances.paper(2)
    counts = pt.Counts(2, 2)
    counts.record([0, 1], [0, 0], [1, 1])
    with pytest.raises(pt.InputError, match="Transitions"):
        pt.assess(inst.task, counts, 0.0, 0.05, BETTING)


def test_recorded_transitions_outside_the_support_are_refused():
    task = pt.Task(
        [[1.0], [0.0], [2.0]], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9, np.array([[[1, 1, 0]]] * 3, dtype=bool)
    )
    data = pt.Transitions([0] * 40, [0] * 40, [2] * 40)
    with pytest.raises(pt.InputError, match="support"):
        pt.assess(task, data, 5.0, 0.05, BETTING)


@each("on_successor", [False, True])
@each("kind", [pt.TabularSimulator, Counting])
def test_simulators_that_leave_the_support_are_refused(kind, on_successor):
    support = np.ones((3, 1, 3), dtype=bool)
    support[0, 0, 2] = False
    rewards = np.array([[[1.0, 1.0, 9.0]], [[0.0] * 3], [[2.0] * 3]])
    task = pt.Task(rewards if on_successor else rewards[..., 0], np.ones((3, 1)), [1.0, 0.0, 0.0], 0.9, support)
    with pytest.raises(pt.InputError, match="support"):
        pt.decide(task, kind(np.full((3, 1, 3), 1 / 3)), 9.0, 0.05, BETTING, max_samples=300)


def test_counts_of_a_fixed_design():
    """An average of e-values over random orders: at V = R rarely large, and large where the value is far away."""
    inst = pt.instances.paper(2)
    value, (low, _) = pt.value(inst.task, inst.kernel), pt.value_range(inst.task)
    rng, sim = np.random.default_rng(5), pt.TabularSimulator(inst.kernel)
    s, a = np.repeat([0, 0, 1, 1], 100), np.tile(np.repeat([0, 1], 100), 2)
    crossed = 0
    for _ in range(10):
        counts = pt.Counts(2, 2)
        counts.record(s, a, sim.draw(s, a, rng))
        at = pt.assess(inst.task, counts, value, 0.1, BETTING, design="fixed")
        crossed += at.answer is not None
        assert np.isfinite(at.evidence).all()
        assert 0 <= at.p_value <= 1
    far = pt.assess(inst.task, counts, value + 0.7 * (low - value), 0.1, BETTING, design="fixed")
    assert not too_often(crossed, 10, 0.2)
    assert far.answer == "above"
    assert far.samples == 400


# ---------------------------------------------------------------- answers and settings


def test_answers_are_given_at_ends_of_rollouts():
    task, kernel, R = question(3)
    for seed in range(12):
        run = make_run([task], kernel, R, BETTING, rng=seed)
        while run.answer is None:
            run.step(3.0, 1)
        assert run.between_rollouts
        assert max(run.evidence()) >= 3.0


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_all_shares_at_once_are_one_after_the_other(sign):
    """Where any state may follow: the same plans, with the same squares of a rollout."""
    for seed in range(12):
        task, kernel, _ = instance(seed, on_successor=False, supports=False, gamma=GAMMAS[seed % 4])
        run = make_run([task], kernel, value([task], kernel) - 0.1, BETTING, rng=seed)
        run.step(np.inf, 200)
        payoff, q = run.payoff, run.pool.model()
        policy = payoff.policies[0]
        V, d = policy.values(q)
        visits = payoff.visits(q, [d])
        assert are_quick(payoff.policies)
        plans, squares = plans_of_shares(policy, V, q, visits[0], sign, payoff.rounding)
        for share, plan, square in zip(SHARES, plans, squares, strict=True):
            alone = payoff.planned([V], [policy.base(V, q, share)], sign)
            size = np.abs(V).max() + np.abs(alone.a.base).max()
            for mine, its in ((plan.a.base, alone.a.base), (plan.B, alone.B), (plan.L, alone.L)):
                np.testing.assert_allclose(mine, its, rtol=1e-9, atol=1e-11 * size)
            assert (plan.lead, plan.sign) == (alone.lead, alone.sign)
            assert square == pytest.approx(payoff.squares(alone, visits), rel=1e-9)
    task, kernel, _ = instance(3)
    assert not are_quick(make_run([task], kernel, value([task], kernel) - 0.1, BETTING).payoff.policies)


@each("n", [2, 3, 5])
def test_a_verdict_names_the_method_that_ran(n):
    """The default bets, in small tasks too, and says so; no worst case is solved."""
    inst = pt.instances.paper(n)
    verdict = pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0)
    assert (verdict.method, verdict.solves) == (BETTING.describe(), 0)
    same(verdict, pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0, method=BETTING))
    first = pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0, rng=3, max_samples=20)
    again = pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0, rng=3, resume=first)
    same(again, pt.decide(inst.task, pt.TabularSimulator(inst.kernel), 0.0, rng=3))
