"""Betting beyond the discounted table: exact means and ranges by enumeration, calibration, refusals."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from betting_builders import chance, too_often
from builders import assert_refused, each
from methods.episode_builders import (
    HORIZONS,
    TOTALS,
    Definition,
    arbitrary_part,
    arbitrary_plan,
    question,
    simulator,
    started,
    sums_of,
)
from policytest._base.compiled import rollouts as kernels
from policytest._base.compiled import small
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import shared_pool
from policytest.payoffs.two_policies import two_policies as compared

DELTA = 0.1
SEED_BY_SEED = [147, 105, 229, 127, 181, 164]  # samples on the paper's 2x2


def ends(found, kernel, rewards, true=None, most=None):
    """(probability, S) of all ways in which a rollout can end; after ``most`` steps at worst, or at the true values."""
    task, plan, low_high = found.task, found.plan, rewards
    outcomes = []

    def coin(t, s, p, w, S, G):
        B = found.worst(t, s, G)
        g = chance(w, S + plan.L, B)
        if g < 1:
            outcomes.append((p * (1 - g), S))
        if w / g < small.SMALLEST_WEIGHT:
            outcomes.append((p * g, S + w / g * B))
        else:
            go(t, s, p * g, w / g, S, G)

    def go(t, s, p, w, S, G):
        if most is not None and t == most:
            rest = found.worst(t, s, G) if true is None else plan.sign * (true[s] - found.fitted(t, s, G))
            outcomes.append((p, S + w * rest))
            return
        for a, x, j in itertools.product(range(task.n_actions), range(task.n_states), range(2)):
            q = 0.5 * task.policy[s, a] * kernel[s, a, x]
            if q > 0 and (j == 0 or task.observes_rewards):
                q *= 1 if task.observes_rewards else 2
                D, total = found.step(t, s, a, x, low_high[j][s, a], G)
                if found.is_over(t + 1, x):
                    outcomes.append((p * q, S + w * D))
                else:
                    coin(t + 1, x, p * q, task.discount * w, S + w * D, total)

    for s in np.flatnonzero(task.initial):
        coin(0, int(s), task.initial[s], 1.0, 0.0, 0.0)
    return np.array(outcomes)


def deterministic_kernels(task):
    """All kernels without randomness, those under which an episode never ends too."""
    support = np.ones((3, task.n_actions, 3), dtype=bool) if task.support is None else task.support
    choices = [np.flatnonzero(row) for row in support.reshape(-1, 3)]
    for x in itertools.product(*choices):
        yield np.eye(3)[np.array(x).reshape(3, -1)]


@each(("seed", "sign", "scale"), [(seed, sign, scale) for seed in range(8) for sign in (1.0, -1.0) for scale in (0, 1)])
def test_without_a_discount_worst_paths_are_below_every_value_of_kernels_that_never_end(seed, sign, scale):
    rng = np.random.default_rng(seed)
    policy = rng.dirichlet(np.ones(2), size=3)
    task = pt.Task.reaching([2], policy=policy, initial=[0.5, 0.5, 0.0], support=None)
    run = started(task, np.full((3, 2, 3), 1 / 3), 0.3)
    V = np.append(scale * rng.normal(size=2) + 0.5, 0.0)
    bet = run.payoff.policies[0]
    B = bet.bet(V, bet.base(V, None, 0.0), sign).B
    for kernel in deterministic_kernels(task):
        assert (B[:2] <= sign * (pt.state_values(task, kernel) - V)[:2] + 1e-12).all()


@each(("seed", "sign", "settings"), [(i, sign, HORIZONS[i]) for i in range(len(HORIZONS)) for sign in (1.0, -1.0)])
def test_the_mean_and_the_range_of_a_rollout_with_a_horizon_exactly(seed, sign, settings):
    task, mean, kernel, rewards = question(seed, **settings)
    run = started(task, kernel, 0.3)
    plan = arbitrary_plan(run, np.random.default_rng(seed), sign)
    p, S = ends(Definition(run, plan), kernel, rewards).T
    assert p.sum() == pytest.approx(1.0)
    assert S.min() >= -plan.L - 1e-9
    assert p @ S == pytest.approx(sign * (pt.value(mean, kernel) - task.initial @ plan.a.V[:3]), abs=1e-10)
    factors = 1 + plan.fractions * (plan.lead + S.min()) / plan.room
    assert (factors > 0).all()
    assert plan.lead == pytest.approx(sign * (task.initial @ plan.a.V[:3] - 0.3))


@each(("seed", "sign", "settings"), [(i, sign, TOTALS[i]) for i in range(len(TOTALS)) for sign in (1.0, -1.0)])
def test_the_mean_and_the_range_of_a_rollout_without_a_discount_exactly(seed, sign, settings):
    """Cut after four steps: at worst the mean is below, with the true value of the rest it is exact."""
    task, mean, kernel, rewards = question(seed, **settings)
    run = started(task, kernel, 0.3)
    if sign not in run.payoff.sides:
        assert settings["totals"] is None
        assert run.payoff.sides == (1.0,)
        return
    plan = arbitrary_plan(run, np.random.default_rng(seed), sign)
    found, true = Definition(run, plan), pt.state_values(mean, kernel)
    expected = sign * (pt.value(mean, kernel) - task.initial @ plan.a.V)
    p, S = ends(found, kernel, rewards, most=4).T
    assert S.min() >= -plan.L - 1e-9
    assert p @ S <= expected + 1e-10
    p, S = ends(found, kernel, rewards, true, most=4).T
    assert p @ S == pytest.approx(expected, abs=1e-10)


@each(("seed", "sign", "settings"), [(i, sign, HORIZONS[i]) for i in range(len(HORIZONS)) for sign in (1.0, -1.0)])
def test_worst_paths_are_below_every_path_with_a_horizon_and_not_lower_than_they_must_be(seed, sign, settings):
    task, _, kernel, rewards = question(seed, **settings)
    run = started(task, kernel, 0.3)
    plan = arbitrary_plan(run, np.random.default_rng(seed), sign)
    found, lowest = Definition(run, plan), {}

    def least(t, s):
        """The least sum of D along a path from here, which may end anywhere."""
        if found.is_over(t, s):
            return 0.0
        if (t, s) not in lowest:
            steps = itertools.product(range(task.n_actions), range(3), rewards)
            onward = [found.step(t, s, a, x, r[s, a], 0.0)[0] + task.discount * least(t + 1, x) for a, x, r in steps]
            lowest[t, s] = min(0.0, *onward)
        return lowest[t, s]

    for t, s in itertools.product(range(task.horizon), range(2)):
        assert plan.B[t * 3 + s] == pytest.approx(least(t, s), abs=1e-9)
        assert plan.B[t * 3 + s] <= least(t, s) + 1e-12


@each(("seed", "settings"), [*enumerate(HORIZONS), *enumerate(TOTALS), (7, {"gamma": 0.8, "observed": True})])
def test_compiled_rollouts_are_those_of_the_definition(seed, settings):
    task, _, kernel, _ = question(seed, **settings)
    run, rng = started(task, kernel, 0.3), np.random.default_rng(seed)
    sign = 1.0 if len(run.payoff.sides) == 1 else rng.choice([1.0, -1.0])
    plan, n = arbitrary_plan(run, rng, sign), 1500
    plan = plan._replace(L=plan.L + 0.05)  # at the very end of the range rounding decides
    u, stack = rng.random((n, 3)), {}
    draws = run.source.draws()
    if task.observes_rewards:
        pairs = np.arange(6 if task.n_actions == 2 else 3)
        x, r = run.source.sim.draw(np.repeat(pairs // task.n_actions, n), np.repeat(pairs % task.n_actions, n), rng)
        stack = {int(p): iter(zip(x[p * n : (p + 1) * n], r[p * n : (p + 1) * n], strict=True)) for p in pairs}
        start = np.arange(len(pairs) + 1) * n
        draws = draws._replace(start=start, successor=x.astype(np.int32), reward=r, at=start[:-1].copy())
    seen = small.Transcript(*(np.empty(n, dtype=kind) for kind in (np.int64, np.int64, float, float)))
    stakes = small.Stakes(plan.B, plan.fractions, run.bets[sign].capital, plan.L, sign, plan.lead)
    longest = 6.0 if task.is_total else 0.0
    start = small.RolloutState(), u, small.Limits(np.inf, 2**62, np.inf), seen
    done = kernels.bet(run.payoff.dynamics._replace(longest=longest), plan.a, stakes, draws, *start, small.NOT_SERVED)
    expected = replayed(Definition(run, plan), kernel, stack, u, longest)
    assert done.rollouts >= 100
    assert np.allclose(seen.sums[: done.rollouts], expected[: done.rollouts], atol=1e-9)
    assert abs(len(expected) - done.rollouts) <= 1


def replayed(found, kernel, stack, u, longest):
    """The sums of the rollouts that the definition makes of these random numbers."""
    task, plan, sums, numbers = found.task, found.plan, [], iter(u)
    choose = lambda law, v: int(np.argmax(np.cumsum(law) > v))  # noqa: E731
    try:
        while True:
            v = next(numbers)
            t, s, S, w, G = 0, choose(task.initial, v[0]), 0.0, 1.0, 0.0
            B, toss, left = found.worst(0, s, 0.0), v[1], longest
            while True:
                g = chance(w, S + plan.L, B)
                if toss >= g:
                    break
                w /= g
                if w < small.SMALLEST_WEIGHT or (t > 0 and longest and left <= 0):
                    S += w * B
                    break
                v = next(numbers)
                a = choose(task.policy[s], v[0])
                x, r = next(stack[s * task.n_actions + a]) if stack else (choose(kernel[s, a], v[1]), 0.0)
                D, G = found.step(t, s, a, x, r, G)
                S, w, t, s, left = S + w * D, w * task.discount, t + 1, int(x), left - 1
                if found.is_over(t, s):
                    break
                B, toss = found.worst(t, s, G), v[2]
            sums.append(S)
    except StopIteration:
        return np.array(sums)


# ---------------------------------------------------------------- two policies


def two_policies(seed, **settings):
    """Two policies that agree in one state, with the same rewards; the tasks with mean rewards; a kernel."""
    task, mean, kernel, rewards = question(seed, **settings)
    policy = np.random.default_rng(seed + 100).dirichlet(np.ones(2), size=3)
    policy[0] = task.policy[0] if seed % 2 else policy[0]
    return [task, replace(task, policy=policy)], [mean, replace(mean, policy=policy)], kernel, rewards


COUPLED = [
    *(
        {"H": H, "gamma": gamma, "observed": observed, "on_successor": on}
        for H, gamma in ((1, 1.0), (3, 1.0), (3, 0.8))
        for observed, on in ((False, True), (True, False))
    ),
    {"gamma": 0.8, "observed": True},
]


@each(("seed", "sign", "settings"), [(i, sign, COUPLED[i]) for i in range(len(COUPLED)) for sign in (1.0, -1.0)])
def test_the_mean_and_the_range_of_coupled_rollouts(seed, sign, settings):
    """With arbitrary values and advantages; the mean within five standard errors, a wrong one is not."""
    tasks, means, kernel, _ = two_policies(seed, **settings)
    rng = np.random.default_rng(seed)
    run = TDRun(None, compared(*tasks, 0.1, shared_pool(tasks, simulator(tasks[0], kernel), 0)))
    bets = list(zip(run.payoff.policies, (sign, -sign), strict=True))
    plan = run.payoff.joined([arbitrary_part(bet, rng, side) for bet, side in bets], sign)
    S = sums_of(run, plan, 10_000)
    assert S.min() >= -plan.L - 1e-9
    start = tasks[0].initial @ (plan.a.V - plan.b.V)[:3]
    expected = sign * (pt.value(means[0], kernel) - pt.value(means[1], kernel) - start)
    error = S.std() / np.sqrt(len(S)) + 1e-12
    assert abs(S.mean() - expected) <= 5 * error
    assert plan.lead == pytest.approx(sign * (start - 0.1))


def test_comparisons_are_right_on_both_sides_and_calibrated():
    task, kernel = coin_task(0.3)
    kernel = np.repeat(kernel, 2, axis=1)
    kernel[0, 1] = [0.5, 0.2, 0.3]  # the second action is better
    a, b = (pt.Task.reaching([2], [1], policy=[[1 - p, p]] * 3, initial=task.initial) for p in (0.8, 0.2))
    V = pt.value(a, kernel) - pt.value(b, kernel)
    sim = pt.TabularSimulator(kernel)
    assert pt.compare(a, b, sim, margin=V - 0.1).answer == "above"
    assert pt.compare(a, b, sim, margin=V + 0.1).answer == "below"
    answers = [pt.compare(a, b, sim, DELTA, V, rng=seed, max_samples=500).answer for seed in range(60)]
    for answer in ("above", "below"):
        assert not too_often(answers.count(answer), 60, DELTA)
    control = [pt.compare(a, b, sim, DELTA, V - 0.1, rng=seed, max_samples=5000).answer for seed in range(30)]
    assert too_often(control.count("above"), 30, DELTA)
    assert_refused(lambda: pt.compare(a, b, sim, method=pt.PTST()), "discount 1", "TDBetting()")
    paid = [pt.Task([[1.0, 1.0], [0.0, 0.0]], [[p, 1 - p]] * 2, [1.0, 0.0], 1.0, terminal=[1]) for p in (0.3, 0.6)]
    table = pt.TabularSimulator(np.array([[[0.5, 0.5], [0.2, 0.8]], [[0, 1], [0, 1]]]))
    assert_refused(lambda: pt.compare(*paid, table), "infinite on both sides", "horizon")
    part = pt.compare(a, b, sim, margin=V + 0.05, max_samples=40)
    resumed, whole = (pt.compare(a, b, sim, margin=V + 0.05, max_samples=2000, resume=r) for r in (part, None))
    assert (resumed.answer, resumed.samples, resumed.evidence) == (whole.answer, whole.samples, whole.evidence)


# ---------------------------------------------------------------- calibration


def coin_task(p, H=None, **settings):
    """From 0 to the goal with probability p a step, to the pit with 1 - p, after some idle steps."""
    kernel = np.zeros((3, 1, 3))
    kernel[0, 0] = [0.5, 0.5 * (1 - p), 0.5 * p]
    kernel[1, 0, 1] = kernel[2, 0, 2] = 1.0
    return pt.Task.reaching([2], [1], policy=np.ones((3, 1)), initial=[1.0, 0.0, 0.0], within=H, **settings), kernel


def loop_task():
    """An episode may never end: with probability 0.6 it is caught in a loop without a reward."""
    kernel = np.zeros((3, 1, 3))
    kernel[0, 0], kernel[1, 0, 1], kernel[2, 0, 2] = [0.0, 0.6, 0.4], 1.0, 1.0
    return pt.Task.reaching([2], policy=np.ones((3, 1)), initial=[1.0, 0.0, 0.0]), kernel


def noisy(law, shift=0.0, H=3):
    """Observed rewards of mean 1/2 (+ shift) in [0, 1], or of mean 0.05 and heavily skewed; two states."""
    kernel = np.array([[[0.3, 0.7]], [[0.6, 0.4]]])
    task = pt.Task(pt.Observed(0.0, 1.0), np.ones((2, 1)), [1.0, 0.0], 1.0, horizon=H)
    laws = {
        "two-point": lambda rng, n: (rng.random(n) < 0.5 + shift).astype(float),
        "uniform": lambda rng, n: np.clip(rng.random(n) + shift, 0, 1),
        "skewed": lambda rng, n: (rng.random(n) < 0.05 + shift).astype(float),
    }
    sim = pt.TabularSimulator(kernel, rewards=lambda s, a, x, rng: laws[law](rng, len(s)))
    return task, sim, H * (0.05 if law == "skewed" else 0.5)


def better(kernel, shift, instead=1):
    """The kernel with more mass on state 2, from state 0, and less on another."""
    changed = kernel.copy()
    changed[0, 0, instead] -= shift
    changed[0, 0, 2] += shift
    return changed


def calibrated():
    for p, H, shift in ((0.02, None, 0.08), (0.02, 20, 0.08), (0.98, None, 0.0095), (0.98, 1, 0.2)):
        task, kernel = coin_task(p, H)
        sims = pt.TabularSimulator(kernel), pt.TabularSimulator(better(kernel, shift, 0 if H == 1 else 1))
        yield f"success {p} {H}", task, *sims, pt.value(task, kernel)
    task, kernel = loop_task()
    yield "loop", task, pt.TabularSimulator(kernel), pt.TabularSimulator(better(kernel, 0.2)), pt.value(task, kernel)
    for law, H, shift in (("two-point", 1, 0.12), ("uniform", 20, 0.15), ("skewed", 1, 0.1), ("skewed", 20, 0.1)):
        task, sim, V = noisy(law, H=H)
        yield f"{law} {H}", task, sim, noisy(law, shift, H)[1], V


def crossings(task, sim, R, runs, most):
    """How often each answer was given."""
    answers = [pt.stopping_times(task, sim, R, [DELTA], pt.TDBetting(), seed, most).answers[0] for seed in range(runs)]
    return answers.count("above"), answers.count("below")


@pytest.mark.parametrize(
    ("name", "task", "sim", "biased", "V"), list(calibrated()), ids=lambda v: v if isinstance(v, str) else ""
)
def test_at_the_threshold_each_side_errs_at_most_as_often_as_delta_allows(name, task, sim, biased, V):
    runs, most = (40, 4_000) if name == "loop" else (50, 400)
    above, below = crossings(task, sim, V, runs, most)
    assert not too_often(above, runs, DELTA), (above, below)
    assert not too_often(below, runs, DELTA), (above, below)
    control = crossings(task, biased, V, 12, 20 * most)[0]
    assert too_often(control, 12, DELTA)  # a simulator that is better must be caught


# ---------------------------------------------------------------- answers


def test_right_answers_on_both_sides_whatever_the_source():
    """Simulators that are tables, that are called, and logs in their order; known and observed rewards."""
    for seed, settings in enumerate([*HORIZONS[1:7], {"gamma": 0.8, "observed": True}, {"totals": (-40.0, 60.0)}]):
        task, mean, kernel, _ = question(seed, **settings)
        V, (low, high) = pt.value(mean, kernel), pt.value_range(task)
        for R, answer in ((V - 0.3 * (V - low), "above"), (V + 0.3 * (high - V), "below")):
            sim, rng = simulator(task, kernel), np.random.default_rng(seed)
            verdict = pt.decide(task, sim, R, method=pt.TDBetting(), max_samples=200_000)
            assert (verdict.answer, verdict.certified) == (answer, True), (seed, R)
            assert verdict.interval[0] <= V <= verdict.interval[1]
            assert pt.decide(task, sim.draw, R, max_samples=200_000).answer == answer
            s, a = rng.integers(2, size=20_000), rng.integers(task.n_actions, size=20_000)
            drawn = sim.draw(s, a, rng)
            x, r = drawn if task.observes_rewards else (drawn, None)
            assert pt.assess(task, pt.Transitions(s, a, x, r), R, method=pt.LogBetting(coins=1)).answer == answer


def test_the_discounted_table_is_the_special_case():
    """Its run does not depend on what is new: the same stopping times as before, seed by seed."""
    two = pt.instances.paper(2)
    found = [pt.decide(two.task, pt.TabularSimulator(two.kernel), 0.0, rng=seed).samples for seed in range(6)]
    assert found == SEED_BY_SEED
    assert two.task.is_discounted_table
    assert two.task.horizon is None


def test_a_bound_on_the_total_makes_both_sides_provable():
    """Rewards of 1 a step go on for ever in some kernels: without a bound only "above" can be proved."""
    kernel = np.array([[[0.75, 0.25]], [[0.0, 1.0]]])
    table = [[1.0], [0.0]], np.ones((2, 1)), [1.0, 0.0], 1.0
    task = pt.Task(*table, terminal=[1])
    assert pt.value(task, kernel) == pytest.approx(4.0)
    assert pt.value_range(task) == (1.0, np.inf)
    with pytest.warns(pt.AssumptionWarning, match='only "above" can be proved.*total_rewards'):
        verdict = pt.decide(task, pt.TabularSimulator(kernel), 6.0, max_samples=2000)
    assert verdict.answer is None
    assert "infinitely high" in verdict.reason
    assert verdict.still_needed(max_samples=100) is not None  # whose simulated runs do not say it again
    with pytest.warns(pt.AssumptionWarning):
        assert pt.decide(task, pt.TabularSimulator(kernel), 2.0).answer == "above"
    bounded = pt.Task(*table, terminal=[1], total_rewards=(0.0, 200.0))
    assert pt.decide(bounded, pt.TabularSimulator(kernel), 6.0).answer == "below"
    assert pt.decide(bounded, pt.TabularSimulator(kernel), 2.0).answer == "above"
    tight = pt.Task(*table, terminal=[1], total_rewards=(0.0, 3.0))
    assert_refused(lambda: pt.decide(tight, pt.TabularSimulator(kernel), 2.0), "total_rewards is (0.0, 3.0)", "widen")


def visits(scale, most=250.0, **about):
    """A log of 60 visits, none of which earns more than a budget; a single reward may be up to 250."""
    rng, rows = np.random.default_rng(0), []
    for _ in range(60):
        s, left = 0, most
        while s < 2:
            x, earned = int(rng.choice(3, p=[0.4, 0.35, 0.25])), min(rng.exponential(scale), left)
            rows.append((s, 0, x, earned))
            s, left = x, left - earned
    about = about or {"total_rewards": (0, most)}
    task = pt.Task(pt.Observed(0, 250), np.ones((3, 1)), [1.0, 0.0, 0.0], 1.0, terminal=[2], **about)
    return task, pt.Transitions(*map(np.array, zip(*rows, strict=True)))


def test_a_first_guess_at_the_end_of_the_range_of_totals():
    """Before there are data the mean reward is guessed as 125, so V0 is at the bound and no rollout can lose: L = 0."""
    verdict = pt.assess(*visits(5, 120), 5.0)
    assert (verdict.answer, verdict.certified) == ("above", True)
    assert 5.0 <= verdict.interval[0] < 20.0 < verdict.interval[1] < 100.0


def test_rollouts_of_rows_that_break_the_bound_are_not_called_episodes():
    """No recorded visit earned more than 250; rows of several of them do. The remedy works."""
    assert_refused(
        lambda: pt.assess(*visits(30), 50.0),
        "total_rewards is (0.0, 250.0), but a rollout of rows from different episodes of the log",
        "a Markov table makes such an episode possible: widen the bound, or pass a horizon instead",
    )
    assert pt.assess(*visits(30, horizon=5), 50.0).answer is not None


def test_a_run_goes_on_where_it_was_stopped():
    for seed, settings in enumerate([HORIZONS[1], HORIZONS[3], TOTALS[1], {"gamma": 0.8, "observed": True}]):
        task, mean, kernel, _ = question(seed, **settings)
        V, high = pt.value(mean, kernel), pt.value_range(task)[1]
        R = V + 0.1 * (min(high, V + 5) - V)
        whole = pt.decide(task, simulator(task, kernel), R, max_samples=3000)
        part = pt.decide(task, simulator(task, kernel), R, max_samples=57)
        resumed = pt.decide(task, simulator(task, kernel), R, max_samples=3000, resume=part)
        assert (resumed.answer, resumed.samples, resumed.evidence) == (whole.answer, whole.samples, whole.evidence)
        assert resumed.interval == whole.interval


@each("settings", [HORIZONS[4], {"gamma": 0.8, "observed": True}])
def test_checkpoints_on_disk_serve_one_policy_and_two(settings, tmp_path):
    tasks, means, kernel, _ = two_policies(1, **{**settings, "A": 2})
    sim, V = simulator(tasks[0], kernel), pt.value(means[0], kernel)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        for index, ask in enumerate(
            (
                lambda **limits: pt.decide(tasks[0], sim, 0.97 * V, **limits),
                lambda **limits: pt.compare(*tasks, sim, margin=V - pt.value(means[1], kernel) - 0.02, **limits),
            )
        ):
            path = tmp_path / f"{index}-{len(list(tmp_path.iterdir()))}.npz"
            assert ask(max_samples=30, checkpoint=path).answer is None
            resumed, whole = ask(max_samples=2000, resume=path), ask(max_samples=2000)
            assert (resumed.answer, resumed.samples, resumed.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_rewards_outside_their_range_and_data_without_rewards_are_refused():
    task = noisy("two-point")[0]
    outside = pt.TabularSimulator(np.full((2, 1, 2), 0.5), rewards=lambda s, a, x, rng: 1.5 + 0.0 * s)
    assert_refused(lambda: pt.decide(task, outside, 0.5), "reward 1.5", "(s=0, a=0", "[0, 1]", "Observed")
    plain = pt.TabularSimulator(np.full((2, 1, 2), 0.5))
    assert_refused(lambda: pt.decide(task, plain, 0.5), "(next states, rewards)")
    s, r = np.array([0, 1, 0]), np.array([0.0, 1.0, 1.1])
    assert_refused(lambda: pt.assess(task, pt.Transitions(s, 0 * s, s), 0.5), "r=rewards")
    assert_refused(lambda: pt.assess(task, pt.Transitions(s, 0 * s, s, r), 0.5), "data.r[2] is 1.1", "[0, 1]")
    assert_refused(lambda: pt.Transitions(s, 0 * s, s, r[:2]), "r has shape (2,)")
    assert_refused(lambda: pt.TabularSimulator(np.full((2, 1, 2), 0.5), rewards=3), "rewards is 3", "function")


BEYOND = [coin_task(0.4)[0], coin_task(0.4, 5)[0], noisy("uniform")[0]]
KERNEL = np.full((3, 1, 3), 1 / 3)


@each(
    ("index", "method"),
    [(i, m) for i in range(3) for m in (pt.KLBTS(), pt.RectangularKL())]
    + [(i, pt.PTST()) for i in (0, 2)],  # with a horizon it answers, without a proof
)
def test_methods_that_need_the_discounted_table_refuse_and_name_another(index, method):
    task = BEYOND[index]
    sim = noisy("uniform")[1] if index == 2 else pt.TabularSimulator(coin_task(0.4)[1])
    assert_refused(lambda: pt.decide(task, sim, 0.3, method=method), "the task has", "TDBetting()")


def test_questions_that_need_the_discounted_table_refuse_in_one_line():
    task, kernel = coin_task(0.4)
    weights = np.ones((3, 1))
    ball = pt.KLBall(kernel, weights, 1.0)
    assert_refused(lambda: pt.extreme_value(task, ball), "discount 1", "worst case")
    assert_refused(lambda: pt.nearest_kernel(task, kernel, weights, 0.3), "discount 1")
    assert_refused(lambda: pt.characteristic_time(task, kernel), "discount 1")
    counts = pt.Counts.from_array(np.rint(100 * kernel))
    assert_refused(lambda: pt.assess(task, counts, 0.3), "discount 1", "pass the rows in their order")
    assert pt.assess(task, counts, 0.05, method=pt.TDBetting(), design="fixed").answer in ("above", None)


@pytest.mark.calibration
def test_plans_and_forecasts_come_close():
    """A plan is the mean of simulated runs; a forecast is of a run that goes on, or of another log."""
    for task, kernel in (coin_task(0.4), coin_task(0.4, 5)):
        R, sim = pt.value(task, kernel) - 0.15, pt.TabularSimulator(kernel)
        plan = pt.plan(task, kernel, R)
        assert list(plan.samples) == ["TDBetting"]
        _, low, high = plan.samples["TDBetting"]
        real = [pt.decide(task, sim, R, rng=1000 + seed).samples for seed in range(60)]
        assert low - 4 * np.std(real) / np.sqrt(60) <= np.mean(real) <= high + 4 * np.std(real) / np.sqrt(60)
        assert "No lower bound" in plan.notes[-1]
        undecided = pt.decide(task, sim, R, rng=5, max_samples=20)
        assert undecided.answer is None
        assert undecided.still_needed().samples > 0
        s = np.zeros(15, dtype=int)
        log = pt.assess(task, pt.Transitions(s, s, sim.draw(s, s, np.random.default_rng(0))), R)
        assert log.answer is None
        assert "more rows" in log.still_needed().words


def test_estimates_and_intervals_hold_the_value():
    for task, kernel in (coin_task(0.4), coin_task(0.4, 5)):
        V = pt.value(task, kernel)
        found = pt.evaluate(task, pt.TabularSimulator(kernel), 0.1, max_samples=100_000)
        assert found.reached
        assert found.lower <= V <= found.upper
    task, sim, V = noisy("uniform")
    assert pt.evaluate(task, sim, 0.3, max_samples=100_000).reached
    s = np.arange(6000) % 2
    x, r = sim.draw(s, 0 * s, np.random.default_rng(0))
    log = pt.Transitions(s, 0 * s, x, r)
    assert pt.evaluate(task, log, 0.5).method == "betting on a log, by many sets of coins"
    one_sided = pt.Task([[1.0], [0.0]], np.ones((2, 1)), [1.0, 0.0], 1.0, terminal=[1])
    assert_refused(lambda: pt.evaluate(one_sided, sim, 0.1), "[1, inf]", "total_rewards=(low, high)")
    interval = pt.value_interval(task, log)
    assert interval.certified
    assert interval.lower <= V <= interval.upper < interval.lower + 1.0


def test_a_log_of_episodes_is_evaluated_as_its_interval_says():
    task, _, kernel, _ = question(3, **HORIZONS[1])
    sim, rng = simulator(task, kernel), np.random.default_rng(0)
    s, a = rng.integers(2, size=500), rng.integers(task.n_actions, size=500)
    drawn = sim.draw(s, a, rng)
    x, r = drawn if task.observes_rewards else (drawn, None)
    data = pt.Transitions(s, a, x, r)
    found, interval = pt.evaluate(task, data, 1.0), pt.value_interval(task, data)
    assert (found.lower, found.upper) == (interval.lower, interval.upper)
    assert found.method == pt.LogBetting().describe()
