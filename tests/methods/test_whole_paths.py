"""Never worse than whole paths: without a discount the even pace bets on whole paths, and the others must keep up."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import Called, assert_refused, assert_same_verdict, each
from methods.episode_builders import HORIZONS, TOTALS, question, simulator, sums_of
from policytest.eprocess.capital import Bet, EProcess
from policytest.eprocess.strategies import (
    ENDS,
    NONE,
    ONE_POLICY,
    RESERVE,
    RESERVED,
    RESERVED_UNDISCOUNTED,
    safe_fractions,
    without_reserve,
)
from policytest.payoffs import splitting
from policytest.payoffs.fit import Fit

K = len(RESERVE)
LEVEL = math.log(20.0)


def reaching(seed, n=5, within=None):
    """A random task of n states from the first, a goal and a failure, to which all states may lead; and a kernel."""
    rng = np.random.default_rng(seed)
    kernel = rng.dirichlet(np.full(n + 2, 0.5), size=(n + 2, 2))
    kernel[n:] = np.eye(n + 2)[n:, None]
    policy, start = rng.dirichlet(np.ones(2), size=n + 2), np.eye(n + 2)[0]
    return pt.Task.reaching([n], [n + 1], policy=policy, initial=start, within=within), kernel


def goals_and_failures(run):
    """How often each was reached, by the counts."""
    arrived = run.counts().N.sum(axis=(0, 1))
    return arrived[-2], arrived[-1]


# ---------------------------------------------------------------- the even pace


def at_the_even_pace(seed, sign, V, wider=1.0):
    """The sums of a bet with these values, at a pace that is even if its range is not wider."""
    task, kernel = reaching(seed)
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.4, seed)
    policy = run.payoff.policies[0]
    plan = run.payoff.joined([policy.bet(V, policy.base(V, None, 0.0), sign)], sign)
    plan = run.payoff.with_other_side(plan).widened(wider)
    return run, plan, sums_of(run, plan, 200)


def assert_whole_paths(seed, sign, V, **pace):
    """Outcomes are those of whole paths, and so is what a full bet can lose."""
    run, plan, sums = at_the_even_pace(seed, sign, V, **pace)
    goals, failures = goals_and_failures(run)
    won = plan.lead + sums
    assert plan.room == pytest.approx(0.4 if sign > 0 else 0.6)
    assert goals + failures == len(won), "a coin has ended a path"
    assert np.sort(won) == pytest.approx(np.sort(sign * (np.repeat([1.0, 0.0], [goals, failures]) - 0.4)))
    (other,) = run.bets[-sign].segments
    assert other.won == pytest.approx(-won)
    assert plan.mirrored.room == pytest.approx(1.0 - plan.room)


@each("seed", range(12))
def test_without_a_discount_the_even_pace_bets_on_whole_paths_whatever_is_fitted(seed):
    """For any V0 in [0, 1] with 0 in ends, for both sides at once."""
    V = np.random.default_rng(seed).random(7)
    V[5:] = 0.0
    assert_whole_paths(seed, 1.0 if seed % 2 else -1.0, V)


@each("changed", [{"V": 3.0}, {"wider": 2.0}])
def test_controls_values_beyond_the_range_and_another_pace_are_other_bets(changed):
    V = np.full(7, changed.pop("V", 0.5))
    V[5:] = 0.0
    with pytest.raises(AssertionError):
        assert_whole_paths(3, 1.0, V, **changed)


def test_the_default_begins_with_whole_paths_for_both_sides():
    """V0 is fitted again and again, and the outcomes stay those of whole paths, for all fractions."""
    task, kernel = reaching(1)
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.4, 0)
    run.begin(math.inf)
    while run.samples < splitting.FIRST:
        run.step(math.inf, 17)
    for sign, side in zip((1.0, -1.0), run.bets, strict=True):
        won = np.concatenate([segment.won for segment in side.segments])
        assert len(won) == run.rollouts
        assert np.minimum(np.abs(won - sign * 0.6), np.abs(won + sign * 0.4)).max() < 1e-9


# ---------------------------------------------------------------- fractions, and the bound


@each("seed", range(20))
def test_safe_fractions_grow_at_least_as_their_bound_says_on_every_law(seed):
    """And no other fraction has a larger bound."""
    rng = np.random.default_rng(seed)
    x = np.append(-1.0, rng.uniform(-1.0, 5.0 * rng.random(), size=4))
    chance = rng.dirichlet(np.ones(5))
    if (g := float(chance @ x)) <= 0.01:
        return
    v = float(chance @ (x - g) ** 2)

    def bound(f):
        return f * g - (v + g * g) * (-np.log1p(-f) - f)

    (f,) = safe_fractions(np.array([g]), v)
    assert chance @ np.log1p(f * x) >= bound(f) - 1e-12
    grid = np.linspace(0.0, 0.999, 2000)
    assert bound(f) >= bound(grid).max() - 1e-9


def adversarial(rng, stakes_elsewhere):
    """The evidence less its bound: rollouts at the even pace win for the most part, those at others lose."""
    strategy = ONE_POLICY._replace(reserved=RESERVED_UNDISCOUNTED, all_or_nothing=True)
    process = EProcess(np.exp(strategy.log_weights), np.exp(ENDS.log_weights))
    wide, constants, room = np.zeros(len(ENDS.log_weights)), np.zeros(K), 0.5
    for i in range(300):
        fractions = strategy.fractions(float(rng.uniform(0.0, 0.01)), float(rng.uniform(0, 0.5)), float(i))
        if is_even := rng.random() < 0.5:
            x = 1.0 if rng.random() < 0.75 else -1.0
            constants += np.log1p(RESERVE * x)
        else:
            x = -1.0
        staked = fractions if is_even or stakes_elsewhere else without_reserve(fractions)
        process.settle(Bet(room, staked, wide), np.array([room * x]))
    return process.evidence() - (math.log(RESERVED_UNDISCOUNTED / K) + constants.max())


@each("seed", range(10))
def test_regret_is_bounded_whatever_was_fitted_and_whatever_other_paces_lose(seed):
    """The control stakes the reserve at other paces, and falls below the bound."""
    assert adversarial(np.random.default_rng(seed), False) >= -1e-9
    assert adversarial(np.random.default_rng(seed), True) < -1.0


class Misled:
    """A simulator that is kind to whole paths until splits begin: from then on branches fail."""

    def __init__(self, kernel):
        self.table, self.run = pt.TabularSimulator(kernel), None

    def draw(self, states, actions, rng):
        x = self.table.draw(states, actions, rng)
        return np.where(len(self.run.plan.targets) > 0, 6, x)


def test_other_paces_are_at_most_8_times_as_much_and_never_touch_the_reserve(monkeypatch):
    """Up to one rollout; the evidence stays above the bound of the rollouts at the even pace alone."""
    monkeypatch.setattr(splitting.Outlook, "best", lambda *_: splitting.PACES[-3])
    task, kernel = reaching(4)
    sim = Misled(kernel)
    sim.run = run = pt.TDBetting().start(task, sim, 0.5 * pt.value(task, kernel), 0)
    run.begin(math.inf)
    splits = 0
    while run.samples < 8000:
        run.step(math.inf, 200)
        splits += len(run.plan.targets) > 0
        if not run.between_rollouts:
            continue
        constants = np.zeros(K)
        for segment in run.bets.above.segments:
            reserve = segment.bet.fractions[-K:]
            assert not reserve.any() or (reserve == RESERVE).all()
            constants += np.log1p(np.outer(segment.won / segment.bet.room, reserve)).sum(axis=0)
        assert run.bets.above.evidence() >= math.log(RESERVED_UNDISCOUNTED / K) + constants.max() - 1e-9
        even, other = run.fit.race.samples
        assert other <= splitting.MOST_OTHER * even + 200
    assert splits > 0


# ---------------------------------------------------------------- the race


def plan_at(sign, even):
    class Plan:
        pass

    Plan.sign, Plan.is_even = sign, even
    return Plan


def test_a_race_counts_what_each_pace_took_and_brought_for_its_side():
    race = splitting.Race()
    race.begin(plan_at(1.0, True))
    race.settle(500, (1.0, -1.0))
    assert race.is_open, "nothing speaks against another pace yet"
    race.begin(plan_at(-1.0, False))
    race.settle(800, (0.5, -3.5))
    assert race.samples.tolist() == [500.0, 300.0]
    assert race.evidence.tolist() == [1.0, -2.5]
    assert race.is_open, "it has taken fewer samples"
    race.begin(plan_at(1.0, False))
    race.settle(1100, (0.5, -3.5))
    assert not race.is_open, "-1.5 nats with 600 samples, and 1 with 500"
    race.begin(plan_at(1.0, False))
    race.settle(1100, (4.5, -3.5))
    assert race.is_open, "2.5 nats"
    assert race.until(is_even=False) == splitting.MOST_OTHER * 500 - 600
    race.settle(5000, (100.0, 0.0))
    assert not race.is_open, "a pace never takes more than 8 times the samples of the even one"
    race.begin(plan_at(1.0, True))
    race.settle(5000 + race.until(is_even=True), (100.0, 0.0))
    assert race.is_open


def test_plans_rest_on_rollouts_that_have_ended(monkeypatch):
    """Whenever a plan is made no rollout is on its way, and the race has counted all samples and no more."""
    task, kernel = reaching(2)
    run, plan, made = pt.TDBetting().start(task, Called(kernel), 0.4, 3), Fit.plan, []

    def checked(self, progress):
        assert run.between_rollouts
        assert progress.evidence == run.bets.evidence()
        found = plan(self, progress)
        assert self.race.samples.sum() == run.samples
        made.append(found.is_even)
        return found

    monkeypatch.setattr(Fit, "plan", checked)
    run.begin(math.inf)
    while run.samples < 4000:
        run.step(math.inf, 1)
    assert 10 < len(made) < 200


@pytest.mark.parametrize("kind", [pt.TabularSimulator, Called], ids=["table", "called"])
def test_a_run_with_paces_that_is_stopped_any_number_of_times_is_the_one_that_was_not(kind):
    task, kernel = reaching(6)
    asked = task, kind(kernel), pt.value(task, kernel) - 0.01
    expected, kept = pt.decide(*asked, rng=4, max_samples=2703), None
    assert expected.samples > 2 * splitting.FIRST
    for limit in (901, 1802, 2703):
        kept = pt.decide(*asked, rng=4, max_samples=limit, resume=kept)
    assert_same_verdict(kept, expected)


@each("index", [0, 1, 2, 4])
def test_a_race_that_cannot_be_is_refused(index):
    task, kernel = reaching(6)
    runs = [pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.3, 3) for _ in range(2)]
    runs[0].step(math.inf, 1500)
    state = runs[0].state()
    assert runs[1].restore(state) is None
    assert (runs[1].fit.race.state() == runs[0].fit.race.state()).all()
    (name,) = [name for name in state if name.endswith("race")]
    state[name] = state[name].copy()
    state[name][index] = math.inf if index == 2 else -1.0
    assert_refused(lambda: runs[1].restore(state), "inconsistent")


def test_simulations_that_say_too_little_are_not_believed(monkeypatch):
    """Few rollouts, rollouts that are cut, and a variance that is far below the one of the model."""
    task, kernel = reaching(7)
    run = pt.TDBetting().start(task, pt.TabularSimulator(kernel), 0.3, 3)
    run.step(math.inf, 700)
    q, payoff = run.pool.model(), run.payoff
    values, occupancies = zip(*(policy.values(q) for policy in payoff.policies), strict=True)
    plan = payoff.planned(values, [payoff.policies[0].base(values[0], q, 0.0)], 1.0)
    visits = payoff.visits(q, occupancies)[0]
    outlook = splitting.Outlook(payoff.policies[0], plan, payoff.dynamics, q, visits)
    assert outlook.at(splitting.EVEN, 700) is not None
    simulated = splitting.Outlook._simulated

    def with_result(change):
        monkeypatch.setattr(splitting.Outlook, "_simulated", lambda *given: change(*simulated(*given)))
        return outlook.at(splitting.EVEN, 700)

    assert with_result(lambda cost, sums, cut: (cost, sums[: splitting.LEAST_SIMULATED - 1], cut)) is None
    assert with_result(lambda cost, sums, cut: (cost, sums, 1)) is None
    assert with_result(lambda cost, sums, cut: (cost, 0.6 * sums, cut)) is None
    assert with_result(lambda cost, sums, cut: (cost, 0.9 * sums, cut)) is not None


# ---------------------------------------------------------------- Monte Carlo


class Recording:
    """Remembers what it drew, with the rewards."""

    def __init__(self, sim):
        self.sim, self.log = sim, []

    def draw(self, states, actions, rng):
        found = self.sim.draw(states, actions, rng)
        x, r = found if isinstance(found, tuple) else (found, np.zeros(len(states)))
        self.log += zip(states.tolist(), actions.tolist(), x.tolist(), r.tolist(), strict=True)
        return found


def known_reward(task):
    """[S,A,S] what a path earns: rewards on pairs by their mean over the actions, unless totals have bounds."""
    if task.rewards_on_successor:
        return task.rewards
    mean = (task.policy * task.rewards).sum(axis=1, keepdims=True)
    paid = task.rewards if task.total_rewards is not None else np.tile(mean, task.n_actions)
    return np.tile(paid[:, :, None], task.n_states)


def returns_of(task, log):
    """The returns of the paths in a log of all transitions: each ends in a terminal state, or at the horizon."""
    found, total, step = [], 0.0, 0
    for s, a, x, r in log:
        paid = r if task.observes_rewards else known_reward(task)[s, a, x]
        total, step = total + task.discount**step * paid, step + 1
        if x in task.ends or step == task.horizon:
            found.append(total)
            total, step = 0.0, 0
    return np.array(found)


def worst_path(task, low, high, sign):
    """The least return (sign 1) of any path from state 0 that the policy allows, or the largest, by enumeration."""
    observed = np.tile((low if sign > 0 else high)[:, :, None], task.n_states)
    paid, least = observed if task.observes_rewards else known_reward(task), np.zeros(task.n_states)
    for _ in range(task.horizon):
        least = np.where(over(task), 0.0, (sign * paid + task.discount * least).min(axis=(1, 2)))
    return sign * least[0]


def over(task):
    """[S] the terminal states."""
    return np.isin(np.arange(task.n_states), task.ends)


def from_the_first(task):
    """The same task from state 0."""
    return replace(task, initial=np.eye(task.n_states)[0])


@each("settings", [*HORIZONS, *TOTALS])
def test_monte_carlo_bets_on_the_returns_of_whole_paths(settings):
    """Path by path, in the range of all allowed ones, for both sides where both can be proved."""
    task, mean, kernel, (low, high) = question(11, **settings)
    task, V = from_the_first(task), pt.value(from_the_first(mean), kernel)
    sim, R = Recording(simulator(task, kernel)), V + 0.05
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", pt.AssumptionWarning)
        run = pt.MonteCarlo().start(task, sim, R, 5)
    run.begin(math.inf)
    while run.rollouts < 40 or not run.between_rollouts:
        run.step(math.inf, 1)
    returns = returns_of(task, sim.log)
    assert len(returns) == run.rollouts
    for sign, side in zip((1.0, -1.0), run.bets, strict=True):
        if sign in run.payoff.sides:
            won = np.concatenate([segment.won for segment in side.segments])
            assert won == pytest.approx(sign * (returns - R), abs=1e-9)
            # without bounds 0 is the least total: a path may return to every state, and never end
            end = worst_path(task, low, high, sign) if task.horizon else (task.total_rewards or (0.0,))[sign < 0]
            assert np.array([segment.bet.room for segment in side.segments]) == pytest.approx(
                max(sign * (R - end), 0.0), abs=1e-8
            )


def test_monte_carlo_answers_by_name_in_slices_and_never_beyond_delta():
    """Both answers; a run in slices; at V = R the errors; the control has a better simulator."""
    task, kernel = reaching(8)
    V, sim = pt.value(task, kernel), pt.TabularSimulator(kernel)
    for R, answer in ((V - 0.1, "above"), (V + 0.1, "below")):
        found, kept = pt.decide(task, sim, R, method=pt.MonteCarlo(), rng=1), None
        assert (found.answer, found.certified, found.method) == (answer, True, "Monte Carlo, betting")
        for limit in range(397, found.samples + 397, 397):
            kept = pt.decide(task, sim, R, method=pt.MonteCarlo(), rng=1, max_samples=limit, resume=kept)
        assert_same_verdict(kept, found)
    better = kernel.copy()
    better[:5, :, 5:] = better[:5, :, 5:].sum(axis=2, keepdims=True) * [0.9, 0.1]
    for given, runs, is_caught in ((kernel, 60, False), (better, 20, True)):
        answers = [
            pt.decide(task, pt.TabularSimulator(given), V, 0.2, pt.MonteCarlo(), rng=seed, max_samples=500).answer
            for seed in range(runs)
        ]
        assert too_often(answers.count("above"), runs, 0.2) is np.bool_(is_caught)


@each("above", [True, False])
def test_monte_carlo_is_not_ruined_by_rare_events(above):
    """The reserve stakes on both sides: all other fractions are too large for a success in 5,000 paths."""
    V, kernel = 2e-4, np.zeros((3, 1, 3))
    kernel[:, 0] = [[0.0, V, 1.0 - V], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    task = pt.Task.reaching([1], [2], policy=np.ones((3, 1)), initial=np.eye(3)[0])
    R, looks = V / 2 if above else 2 * V, []
    verdict = pt.decide(
        *(task, pt.TabularSimulator(kernel), R), method=pt.MonteCarlo(), max_samples=400_000, progress=looks.append
    )
    assert verdict.answer == ("above" if above else "below")
    assert min(min(look.evidence) for look in looks) > math.log(RESERVED / K) - 1e-9


def test_monte_carlo_needs_a_range_and_an_end():
    task, kernel = reaching(8)
    sim = pt.TabularSimulator(kernel)
    assert_refused(lambda: pt.decide(task, sim, 0.4, method=pt.MonteCarlo("hoeffding")), "kind is 'hoeffding'")
    assert_refused(lambda: pt.decide(task, sim, 0.4, method=pt.MonteCarlo(horizon=9)), "horizon is 9", "leave it out")
    task = pt.Task(pt.Observed(0.0, 1.0), task.policy, task.initial, 0.9, terminal=[5, 6])
    assert_refused(lambda: pt.decide(task, sim, 0.4, method=pt.MonteCarlo()), "needs an end", "pass a horizon")


def test_bounds_of_gaps_are_the_ones_of_any_time():
    """The fractions without sums and without a v are steady: whole paths need no model."""
    strategy = ONE_POLICY._replace(all_or_nothing=True)
    assert (strategy.fractions(None, 0.0, 0.0) == ONE_POLICY.fractions(None, 0.0, 0.0)).all()
    v, gaps = 0.2, np.append(ONE_POLICY.gaps, 0.05)
    found = strategy.fractions(v, 0.05, 1e12, 1.0, NONE)[: len(gaps)]
    assert found == pytest.approx(gaps / (gaps + v + gaps**2), rel=1e-6)
