"""Rollouts that branch: exact means and ranges by enumeration, the compiled loop, calibration, checkpoints."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import each
from methods.episode_builders import HORIZONS, TOTALS, Definition, arbitrary_plan, question, started
from policytest._base.compiled import rollouts as kernels
from policytest._base.compiled import small
from policytest._base.errors import InputError
from policytest.data.simulators import TabularSimulator
from policytest.kl.sampler import Recorded
from policytest.payoffs import splitting

DELTA = 0.1
BOTH = np.array([1.0, -1.0])  # what a residual is for each side


class Branched:
    """Rollouts that branch, as the docstring of `splitting` defines them; for both sides with the bet of the other.

    A sum is a pair: S, and that of the other side.
    """

    def __init__(self, found, targets, other=None):
        self.found, self.targets, self.plan, self.other = found, targets, found.plan, other

    def reserve(self, branches):
        return sum(w * self.worst(t, s) for t, s, w in branches)

    def worst(self, t, s):
        """B of each side."""
        second = 0.0 if self.other is None else min(self.other.worst(t, s, 0.0), 0.0)
        return np.array([self.found.worst(t, s, 0.0), second])

    def most(self, t, s, others, S):
        """The largest weight that keeps every path in the ranges."""
        L = np.array([self.plan.L, 0.0 if self.other is None else self.other.plan.L])
        pairs = zip(S + L + self.reserve(others), self.worst(t, s), strict=True)
        return min([self.targets[self.found.place(t, s)], *(room / -B for room, B in pairs if B < 0)])

    def arrivals(self, t, s, w, others, S):
        """(probability, open branches, S) of what can happen where a branch arrives."""
        B = self.worst(t, s)
        pieces = round(w / self.targets[self.found.place(t, s)])
        if pieces > 1:
            return [(1.0, [*others, *[(t, s, w / pieces)] * pieces], S)]
        most = self.most(t, s, others, S)
        g = min(1.0, max(0.1, w / most)) if most > 0 else 1.0
        tiny = w / g < small.SMALLEST_WEIGHT
        going = (g, others, S + w / g * B) if tiny else (g, [*others, (t, s, w / g)], S)
        return [going, (1.0 - g, others, S)] if g < 1 else [going]


def ends(branched, kernel, rewards, true=None, most=None):
    """(probability, S) of all ends; after ``most`` steps all branches end at worst, or at the true values."""
    found, plan, task, outcomes = branched.found, branched.plan, branched.found.task, []

    def go(p, branches, S, steps):
        if not branches:
            outcomes.append((p, S))
            return
        if most is not None and steps == most:
            of_true = [plan.sign * (true[s] - plan.a.V[s]) * BOTH if true is not None else None for _, s, _ in branches]
            at = [
                branched.worst(t, s) if true is None else one for (t, s, _), one in zip(branches, of_true, strict=True)
            ]
            outcomes.append((p, S + sum(w * rest for (_, _, w), rest in zip(branches, at, strict=True))))
            return
        *others, (t, s, w) = branches
        for a, x, j in itertools.product(range(task.n_actions), range(task.n_states), range(2)):
            q = 0.5 * task.policy[s, a] * kernel[s, a, x] * (1 if task.observes_rewards else 2)
            if q > 0 and (j == 0 or task.observes_rewards):
                D, _ = found.step(t, s, a, x, rewards[j][s, a], 0.0)
                if found.is_over(t + 1, x):
                    go(p * q, others, S + w * D * BOTH, steps + 1)
                    continue
                for g, after, total in branched.arrivals(t + 1, x, task.discount * w, others, S + w * D * BOTH):
                    go(p * q * g, after, total, steps + 1)

    for s in np.flatnonzero(task.initial):
        for g, branches, S in branched.arrivals(0, int(s), 1.0, [], np.zeros(2)):
            go(task.initial[s] * g, branches, S, 0)
    return np.array([(p, *S) for p, S in outcomes])


def other_side(run, plan):
    """The bet of the other side on the same V0 and advantages."""
    part = run.payoff.policies[0].bet(plan.a.V, plan.a.base, -plan.sign)
    return Definition(run, run.payoff.joined([part], -plan.sign))


CASES = [
    ({"H": 1}, (0.3, 1.0)),
    ({"H": 2, "A": 1}, (0.5, 0.26)),
    ({"H": 2, "A": 1}, (0.34, 5.0)),
    ({"H": 2, "A": 1, "gamma": 0.6, "on_successor": True}, (0.34, 0.7)),
    ({"H": 1, "A": 1, "observed": True}, (0.34, 1.0)),
    ({"H": 2, "A": 1, "observed": True, "gamma": 0.9}, (0.5, 3.0)),
]


@each(("seed", "sign", "case"), [(i, sign, CASES[i]) for i in range(len(CASES)) for sign in (1.0, -1.0)])
def test_the_mean_and_the_range_of_a_rollout_in_two_and_three_branches_exactly(seed, sign, case):
    settings, (first, later) = case
    task, mean, kernel, rewards = question(seed, **settings)
    run = started(task, kernel, 0.3)
    plan = arbitrary_plan(run, np.random.default_rng(seed), sign)
    targets = np.where(np.arange(len(plan.B)) < 3, first, later)
    expected = sign * (pt.value(mean, kernel) - task.initial @ plan.a.V[:3])
    for wider in (1.0, 1.7):  # also with more room for weights than the worst sum asks for
        plan = plan.widened(wider)
        p, S, _ = ends(Branched(Definition(run, plan), targets), kernel, rewards).T
        assert p.sum() == pytest.approx(1.0)
        assert S.min() >= -plan.L - 1e-9
        assert p @ S == pytest.approx(expected, abs=1e-10)
        other = other_side(run, plan)
        other.plan = other.plan.widened(wider)
        p, S, mirrored = ends(Branched(Definition(run, plan), targets, other), kernel, rewards).T
        assert S.min() >= -plan.L - 1e-9
        assert mirrored.min() >= -other.plan.L - 1e-9
        assert p @ S == pytest.approx(expected, abs=1e-10)
        assert p @ mirrored == pytest.approx(-expected, abs=1e-10)


@each(("seed", "settings"), [(i, TOTALS[i]) for i in (0, 2, 4)])
def test_without_a_discount_the_mean_is_exact_up_to_the_steps_at_which_branches_end_at_worst(seed, settings):
    task, mean, kernel, rewards = question(seed, **settings)
    run = started(task, kernel, 0.3)
    plan = arbitrary_plan(run, np.random.default_rng(seed), 1.0)
    branched, true = Branched(Definition(run, plan), np.array([0.5, 0.34, 1.0])), pt.state_values(mean, kernel)
    expected = pt.value(mean, kernel) - task.initial @ plan.a.V
    p, S, _ = ends(branched, kernel, rewards, most=4).T
    assert S.min() >= -plan.L - 1e-9
    assert p @ S <= expected + 1e-10
    p, S, _ = ends(branched, kernel, rewards, true, most=4).T
    assert p @ S == pytest.approx(expected, abs=1e-10)


def rolled(run, plan, targets, u, longest, draws=None, other=None):
    """The sums of both sides that the compiled code makes of these random numbers, in two calls."""
    seen = small.Transcript(*(np.empty(len(u), dtype=kind) for kind in (np.int64, np.int64, float, float, float)))
    mirrored = small.NOT_SERVED
    if other is not None:
        capital = run.bets[-plan.sign].capital.copy()
        mirrored = small.Stakes(other.plan.B, plan.fractions, capital, other.plan.L, other.plan.sign, 0.0)
    stakes = small.Stakes(plan.B, plan.fractions, run.bets[plan.sign].capital.copy(), plan.L, plan.sign, 0.0)
    at, branches, sums = small.RolloutState(), splitting.open_branches(), []
    dynamics, limits = run.payoff.dynamics._replace(longest=longest), small.Limits(np.inf, 2**62, np.inf)
    for part in (u[: len(u) // 3], u[len(u) // 3 :]):
        about = dynamics, plan.a, targets, stakes, draws or run.source.draws(), branches
        done = kernels.branch(*about, at, part, limits, seen, mirrored)
        pairs = zip(seen.sums[: done.rollouts], seen.mirrored[: done.rollouts], strict=True)
        sums, at = [*sums, *pairs], done.at
        assert done.used == len(part)
    return np.array(sums)


def replayed(branched, kernel, stack, u, longest):
    """The sums that the definition makes of these random numbers."""
    found, task, sums, numbers = branched.found, branched.found.task, [], iter(u)
    choose = lambda law, v: int(np.argmax(np.cumsum(law) > v))  # noqa: E731
    tossed = lambda cases, v: cases[0] if v < cases[0][0] else cases[1]  # noqa: E731
    try:
        while True:
            v = next(numbers)
            _, branches, S = tossed(branched.arrivals(0, choose(task.initial, v[0]), 1.0, [], np.zeros(2)), v[2])
            left = longest
            while branches:
                v = next(numbers)
                *branches, (t, s, w) = branches
                a = choose(task.policy[s], v[0])
                x, r = next(stack[s * task.n_actions + a]) if stack else (choose(kernel[s, a], v[1]), 0.0)
                S, left = S + w * found.step(t, s, a, x, r, 0.0)[0] * BOTH, left - 1
                if not found.is_over(t + 1, x):
                    arrived = branched.arrivals(t + 1, int(x), task.discount * w, branches, S)
                    _, branches, S = tossed(arrived, v[2])
                if longest and left <= 0:
                    S, branches = S + branched.reserve(branches), []
            sums.append(S)
    except StopIteration:
        return np.array(sums)


@each(
    ("seed", "settings"),
    [*enumerate(HORIZONS), *((i, TOTALS[i]) for i in (0, 2, 4)), (7, {"gamma": 0.8, "observed": True})],
)
def test_compiled_branches_are_those_of_the_definition(seed, settings):
    task, _, kernel, _ = question(seed, **settings)
    run, rng = started(task, kernel, 0.3), np.random.default_rng(seed)
    plan, n = arbitrary_plan(run, rng, 1.0 if task.is_total else rng.choice([1.0, -1.0])), 1000
    plan = plan._replace(L=plan.L + 0.05)  # at the very end of the range rounding decides
    targets, u, stack, draws = rng.uniform(0.1, 2.0, len(plan.B)), rng.random((n, 3)), {}, None
    if task.observes_rewards:
        pairs = np.arange(3 * task.n_actions)
        x, r = run.source.sim.draw(np.repeat(pairs // task.n_actions, n), np.repeat(pairs % task.n_actions, n), rng)
        stack = {int(p): iter(zip(x[p * n : (p + 1) * n], r[p * n : (p + 1) * n], strict=True)) for p in pairs}
        start = np.arange(len(pairs) + 1) * n
        draws = run.source.draws()._replace(start=start, successor=x.astype(np.int32), reward=r, at=start[:-1].copy())
    longest = 9.0 if task.is_total else 0.0
    expected = replayed(Branched(Definition(run, plan), targets), kernel, stack, u, longest)
    found = rolled(run, plan, targets, u, longest, draws)[:, 0]
    assert len(found) >= 20
    assert np.allclose(found, expected[: len(found), 0], atol=1e-9)
    assert abs(len(expected) - len(found)) <= 1
    other = None if task.is_total or task.observes_rewards else other_side(run, plan)
    if other is not None:  # on one side totals may have no bound; a stack can be used once
        other.plan = other.plan._replace(L=other.plan.L + 0.05)
        expected = replayed(Branched(Definition(run, plan), targets, other), kernel, stack, u, longest)
        found = rolled(run, plan, targets, u, longest, draws, other)
        assert len(found) >= 20
        assert np.allclose(found, expected[: len(found)], atol=1e-9)


# ---------------------------------------------------------------- runs


def lake():
    """A long walk to a gate, behind which there are the goal and a hole; the same with a better gate."""
    kernel = np.zeros((5, 2, 5))
    kernel[0, :, :2] = [[0.8, 0.2], [0.7, 0.3]]
    kernel[1, :, [0, 2]] = 0.5
    kernel[2, :, 3:] = [[0.6, 0.4], [0.5, 0.5]]
    kernel[3:, :, 3:] = np.eye(2)[:, None]
    task = pt.Task.reaching([3], [4], policy=np.full((5, 2), 0.5), initial=np.eye(5)[0], support=kernel > 0)
    better = kernel.copy()
    better[2, :, 3:] += [0.15, -0.15]
    return task, kernel, better


@pytest.fixture
def always(monkeypatch):
    """Splits from the first refit on."""
    monkeypatch.setattr(splitting, "FIRST", 1)


def test_splits_are_chosen_and_save_transitions(monkeypatch):
    task, kernel, _ = lake()
    R, taken = pt.value(task, kernel) - 0.05, []
    for first in (splitting.FIRST, 10**9):
        monkeypatch.setattr(splitting, "FIRST", first)
        runs = [pt.decide(task, TabularSimulator(kernel), R, method=pt.TDBetting(), rng=seed) for seed in range(30)]
        assert not too_often(sum(run.answer != "above" for run in runs), len(runs), 0.05)
        taken.append(np.mean([run.samples for run in runs]))
    assert taken[0] < 0.5 * taken[1], taken


def test_branching_runs_err_at_most_as_often_as_delta_allows(always):
    """Also those of the better simulator are caught."""
    task, kernel, better = lake()
    R = pt.value(task, kernel)
    for sim, wrong, runs in ((kernel, False, 30), (better, True, 12)):
        found = [
            pt.stopping_times(task, TabularSimulator(sim), R, [DELTA], pt.TDBetting(), seed, 800).answers[0]
            for seed in range(runs)
        ]
        assert too_often(found.count("above"), runs, DELTA) == wrong
        assert not too_often(found.count("below"), runs, DELTA)


def branching(seed=0):
    """A run that is stopped with several branches open."""
    task, kernel, _ = lake()
    run = pt.TDBetting().start(task, TabularSimulator(kernel), 0.3, seed)
    while run.at.phase != small.BRANCHING or run.at.state < 3:
        run.step(50.0, 7)
    return run, task, kernel


def test_a_run_with_open_branches_goes_on_where_it_was_stopped(always):
    run, task, kernel = branching()
    again = pt.TDBetting().start(task, TabularSimulator(kernel), 0.3, 1)
    again.restore(run.state())
    assert again.evidence() == run.evidence()
    for other in (run, again):
        for _ in range(20):
            other.step(50.0, 100)
    assert again.samples == run.samples
    assert again.evidence() == run.evidence()


@each(
    "change",
    [
        lambda state: state["payoff.branches"].__setitem__((0, 1), -1.0),
        lambda state: state["payoff.branches"].__setitem__((0, 1), 49.0),
        lambda state: state["payoff.branches"].__setitem__((0, 0), 99.0),
        lambda state: state["payoff.branches"].__setitem__((0, 0), 0.5),
        lambda state: state.update({"payoff.branches": state["payoff.branches"][:1]}),
        lambda state: state.update({"payoff.branches": np.zeros((9999, 2))}),
        lambda state: state.update({"plan.targets": np.zeros(0)}),
        lambda state: state.update({"plan.targets": -state["plan.targets"]}),
        lambda state: state.update({"plan.targets": state["plan.targets"][1:]}),
        lambda state: state["plan.due"].__setitem__(2, 3.0),  # not one to choose from
        lambda state: state["plan.numbers"].__setitem__(3, state["plan.numbers"][3] + 0.5),  # not the range of the plan
    ],
)
def test_tampered_branches_are_refused(always, change):
    run, task, kernel = branching()
    state = run.state()
    change(state)
    again = pt.TDBetting().start(task, TabularSimulator(kernel), 0.3, 1)
    with pytest.raises(InputError, match="inconsistent"):
        again.restore(state)


def test_the_evidence_of_open_branches_counts_all_of_them_at_worst(always):
    run, *_ = branching()
    plan = run.plan
    place, weight = run.payoff.branches[: int(run.at.state)].T
    worst = run.at.earned + weight @ plan.B[place.astype(int)]
    assert worst >= -plan.L
    below = run.bets[plan.sign].evidence(plan.bet, plan.lead + worst), run.bets[-plan.sign].evidence()
    assert run.evidence() == (below if plan.sign > 0 else below[::-1])


def test_only_where_any_pair_can_be_drawn(always):
    """Not on recorded transitions, nor in an environment that has to be walked through."""
    task, kernel, _ = lake()
    log = pt.Transitions(*(np.zeros(0, dtype=int),) * 3)

    class Walks:
        extra_steps = 0
        draw = TabularSimulator(kernel).draw

    for run in (
        pt.TDBetting().start(task, Walks(), 0.3, 0),
        pt.TDBetting().replay(task, 0.3, Recorded.of(task, log)),
    ):
        run.samples = run.pool.samples = 10_000
        assert not len(run._fitted().targets)
