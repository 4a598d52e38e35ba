"""Many rollouts under way: what is proved of them, what breaks the proof, and that nothing is lost."""

from __future__ import annotations

import itertools
import os
import pickle
import signal
from types import SimpleNamespace

import numpy as np
import pytest

import policytest as pt
from betting_builders import too_often
from builders import assert_refused
from policytest.methods.run import steps
from policytest.methods.td_betting import TDBetting
from policytest.payoffs import lanes, policy_bet
from policytest.questions import driver
from policytest.sources.environments import stepped_copies

DELTA, M = 0.05, 8
LEVEL = -np.log(DELTA)
PAPER = pt.instances.paper(5)


class Called:
    """A table that is called like any simulator; it keeps what it was asked for."""

    def __init__(self, kernel, rewards=None):
        self.table, self.asked = pt.TabularSimulator(kernel, rewards), list[int]()

    def draw(self, states, actions, rng):
        self.asked.append(len(states))
        found = [self.table.draw([s], [a], rng) for s, a in zip(states, actions, strict=True)]
        if self.table.rewards is None:
            return np.concatenate(found)
        return tuple(np.concatenate(part) for part in zip(*found, strict=True))


def started(task, sim, threshold=0.0, workers=M, seed=0, **settings):
    """A run with so many workers."""
    run = TDBetting().start(task, sim, threshold, seed, **settings)
    driver.in_parallel(run, workers)
    return run


def carried_out(run, most, level=LEVEL):
    """A run up to its answer, or to so many samples."""
    run.begin(level)
    for _ in steps(run, level, most):
        pass
    return run


# ---------------------------------------------------------------- the filtration, in a game of its own


def fair_game(rule, seed, most=150):
    """The largest capital of bets on fair outcomes of +1 and -1, which take 1 and 9 rounds; M are under way.

    A bet is made only if the mean of the last five outcomes is positive. The rules: "in order", "when ended" (settled
    in that order), "own draws" (a bet is made only if few draws were made since the outcome began), "own fit" (the
    outcome itself is one of the five).
    """
    rng = np.random.default_rng(seed)
    won = np.where(rng.random(most) < 0.5, 1.0, -1.0)
    lasts = np.where(won > 0, 1, 9)
    left, ended, settled, begun, capital, largest = dict[int, int](), list[int](), 0, 0, 1.0, 1.0
    made = np.zeros(most)
    while settled < most:
        while len(left) < M and begun < min(settled + 4 * M, most):
            left[begun], begun = int(lasts[begun]), begun + 1
        for j in list(left):
            left[j], made[j] = left[j] - 1, made[j] + 1
            if not left[j]:
                del left[j]
                ended.append(j)
        while ended and (rule == "when ended" or min(ended) == settled):
            j = ended.pop(0) if rule == "when ended" else ended.pop(ended.index(settled))
            of_late = won[max(j - 4, 0) : j + 1] if rule == "own fit" else won[max(j - 5, 0) : j]
            is_bet_on = made[j] < 5 if rule == "own draws" else len(of_late) and of_late.mean() > 0
            capital, settled = capital * (1.0 + 0.5 * won[j] if is_bet_on else 1.0), settled + 1
            largest = max(largest, capital)
    return largest


@pytest.mark.parametrize("rule", ["in order", "when ended", "own draws", "own fit"])
def test_in_a_fair_game_only_the_order_of_beginning_is_fair(rule):
    """Ville: a capital that bets fairly reaches 1/delta with probability at most delta; three rules break that."""
    wrong = sum(fair_game(rule, seed) >= 1.0 / DELTA for seed in range(200))
    assert too_often(wrong, 200, DELTA) == (rule != "in order"), (rule, wrong)


# ---------------------------------------------------------------- the run


def race(p=0.5, length=12):
    """Success comes at once, failure after a corridor in which every step is a draw; the value is p."""
    S = length + 2
    kernel, goal, trap = np.zeros((S, 1, S)), S - 2, S - 1
    kernel[0, 0, goal], kernel[0, 0, 1] = p, 1.0 - p
    for s in range(1, length):
        kernel[s, 0, s + 1 if s + 1 < length else trap] = 1.0
    kernel[goal, 0, goal] = kernel[trap, 0, trap] = 1.0
    support = kernel > 0
    support[1:length, 0, trap] = True  # so that steps of the corridor are unknown
    initial = np.eye(S)[0]
    task = pt.Task.reaching(goal=[goal], avoid=[trap], policy=np.ones((S, 1)), initial=initial, support=support)
    return task, kernel


def wrong_answers(runs=40, most=300):
    """How many runs at V = R answer "above", with 32 rollouts under way."""
    task, kernel = race()
    found = (carried_out(started(task, Called(kernel), 0.5, 32, seed), most).answer for seed in range(runs))
    return sum(answer == "above" for answer in found)


def test_at_the_threshold_answers_are_as_rare_as_promised_and_settling_those_that_ended_first_is_not(monkeypatch):
    """The probability of "above" at V = R is at most delta. Successes are short: by ends they come first."""
    assert not too_often(wrong_answers(), 40, DELTA)

    take = lanes.Lanes.next_to_settle

    def first_that_ended(self):
        self.unsettled.sort(key=lambda lane: not lane.has_ended)
        return take(self)

    monkeypatch.setattr(lanes.Lanes, "next_to_settle", first_that_ended)
    assert too_often(wrong_answers(), 40, DELTA)


def test_rollouts_are_settled_in_the_order_of_their_numbers_with_the_plans_they_began_with(monkeypatch):
    """Plans are made from what was seen before, and the numbers have no gaps."""
    begun, settled, begin, take = {}, [], lanes.Lanes.begin, lanes.Lanes.next_to_settle

    def remember(self, plan):
        begun[self.begun] = plan, self.payoff.pool.samples
        begin(self, plan)

    def note(self):
        lane = take(self)
        if lane is not None:
            assert lane.plan is begun[lane.number][0]
            settled.append(lane.number)
        return lane

    monkeypatch.setattr(lanes.Lanes, "begin", remember)
    monkeypatch.setattr(lanes.Lanes, "next_to_settle", note)
    run = carried_out(started(PAPER.task, Called(PAPER.kernel)), 2000)
    assert run.answer == "above"
    assert settled == list(range(len(settled)))
    assert run.rollouts == len(settled)
    seen = [begun[j][1] for j in sorted(begun)]
    assert seen == sorted(seen)
    assert len(set(map(id, (plan for plan, _ in begun.values())))) > 3


def test_one_call_asks_for_all_that_wait():
    """Up to M pairs a call; every draw is a sample, those of rollouts that are not settled too."""
    sim = Called(PAPER.kernel)
    run = carried_out(started(PAPER.task, sim), 5000)
    assert run.answer == "above"
    assert run.samples == sum(sim.asked) == run.tally.n.sum()
    assert max(sim.asked) == M
    assert len(sim.asked) < run.samples / 4
    assert sum(lane.drawn for lane in run.lanes.unsettled) <= 0.2 * run.samples


def test_one_worker_is_the_run_as_it_is_without():
    """And so is any number where draws are free: a table is drawn from in compiled code."""
    plain = pt.decide(PAPER.task, Called(PAPER.kernel), threshold=0.0, rng=3)
    assert pt.decide(PAPER.task, Called(PAPER.kernel), threshold=0.0, rng=3, parallel=1).samples == plain.samples
    table = [pt.decide(PAPER.task, pt.TabularSimulator(PAPER.kernel), 0.0, rng=3, parallel=n).samples for n in (1, 8)]
    assert table[0] == table[1]


def questions():
    """Tasks of all kinds: (name, task, simulator, threshold, settings)."""
    k, rng = PAPER.kernel, np.random.default_rng(0)
    S, A = k.shape[:2]
    parts = {"policy": PAPER.task.policy, "initial": PAPER.task.initial}
    rewards = rng.random((S, A))
    yield "discounted", PAPER.task, Called(k), 0.0, {}
    yield "zone", PAPER.task, Called(k), 0.0, {"indifference": 0.1, "both_sides": True}
    yield "horizon", pt.Task(rewards=rewards, discount=1.0, horizon=5, **parts), Called(k), 2.0, {}
    observed = pt.Task(rewards=pt.Observed(0, 1), discount=0.8, **parts)
    paid = Called(k, lambda s, a, x, rng: (rng.random(len(s)) < rewards[s, a]).astype(float))
    yield "observed", observed, paid, 2.0, {}
    task, kernel = race(0.7)
    yield "reaching", task, Called(kernel), 0.5, {}
    earns = np.where(np.arange(len(kernel)) == 1, 1.0, 0.0)[:, None]
    parts = {"policy": task.policy, "initial": task.initial, "support": task.support, "terminal": [12, 13]}
    bounded = pt.Task(rewards=earns, discount=1.0, total_rewards=(0, 1), **parts)
    yield "totals", bounded, Called(kernel), 0.5, {}


NAMES = ("discounted", "zone", "horizon", "observed", "reaching", "totals")


@pytest.mark.parametrize("name", NAMES)
def test_a_run_that_is_cut_anywhere_goes_on_as_the_same_run(name):
    """With plans, branches, random numbers and outcomes that wait: in the middle of a round too."""
    _, task, sim, threshold, settings = next(each for each in questions() if each[0] == name)
    whole = carried_out(started(task, sim, threshold, **settings), 1500)
    for cut in (1, 37, 118):
        before = carried_out(started(task, sim, threshold, **settings), cut)
        assert before.samples == cut or before.answer
        kept = before.state()
        after = started(task, sim, threshold, seed=9, **settings)
        after.restore(kept)
        again = after.state()
        assert kept.keys() == again.keys()
        assert all(np.array_equal(kept[key], again[key]) for key in kept)
        carried_out(after, 1500)
        assert (after.answer, after.samples, after.evidence()) == (whole.answer, whole.samples, whole.evidence())


def damages(kept):
    """States that cannot be those of rollouts under way."""
    for name, change in itertools.product(
        [key for key in kept if key.startswith("lanes.") and kept[key].size], (lambda x: x[:-1], lambda x: -1 - x)
    ):
        if kept[name].dtype != bool and not name.endswith(("seed", "wide", "fractions", "pace")):
            yield name, kept | {name: change(kept[name])}


def test_a_damaged_state_is_refused():
    """What is left out, or turned round, is noticed, or changes nothing."""
    run = carried_out(started(PAPER.task, Called(PAPER.kernel), seed=1), 150)
    kept, refused = run.state(), 0
    for name, damaged in damages(kept):
        other = started(PAPER.task, Called(PAPER.kernel), seed=1)
        try:
            other.restore(damaged)
        except pt.InputError:
            refused += 1
            continue
        assert name in ("lanes.progress", "lanes.sums", "lanes.longest"), name
    assert refused > 10


@pytest.mark.parametrize("workers", [1, 3, 16])
def test_a_run_goes_on_with_another_number_of_workers(workers):
    """Rollouts that are under way are ended first, or one after the other."""
    before = carried_out(started(PAPER.task, Called(PAPER.kernel), seed=2), 90)
    after = started(PAPER.task, Called(PAPER.kernel), workers=workers)
    after.restore(before.state())
    assert carried_out(after, 5000).answer == "above"
    one = carried_out(started(PAPER.task, Called(PAPER.kernel), workers=1, seed=2), 31)
    many = started(PAPER.task, Called(PAPER.kernel), workers=workers)
    many.restore(one.state())
    assert carried_out(many, 5000).answer == "above"


def test_a_draw_that_fails_or_is_interrupted_loses_nothing():
    """The same draws are asked for again, with the same random numbers."""
    whole = carried_out(started(PAPER.task, Called(PAPER.kernel)), 2000)

    class Failing(Called):
        def draw(self, states, actions, rng):
            answer = super().draw(states, actions, rng)
            if len(self.asked) in (3, 9, 10):
                raise KeyboardInterrupt
            return answer

    run = started(PAPER.task, Failing(PAPER.kernel))
    for _ in range(4):
        try:
            carried_out(run, 2000)
        except KeyboardInterrupt:
            continue
    assert (run.answer, run.samples, run.evidence()) == (whole.answer, whole.samples, whole.evidence())


def test_rollouts_that_need_no_draw_do_not_stop_those_that_do():
    """Nine starts of ten lead to an end that is known: many such rollouts wait for their turn, M are at work."""
    kernel = np.zeros((4, 1, 4))
    kernel[0, 0, 3] = kernel[3, 0, 3] = 1.0
    kernel[1, 0, [1, 2, 3]], kernel[2, 0, [1, 3]] = (0.6, 0.2, 0.2), (0.5, 0.5)
    rewards = np.array([[0.0], [1.0], [0.0], [0.0]])
    support = kernel > 0
    initial = np.array([0.9, 0.1, 0.0, 0.0])
    task = pt.Task(rewards=rewards, policy=np.ones((4, 1)), initial=initial, discount=0.9, support=support)
    sim, R = Called(kernel), 0.9 * pt.value(task=pt.Task(rewards, np.ones((4, 1)), initial, 0.9, support), q=kernel)
    run = carried_out(started(task, sim, R), 3000)
    assert run.answer == "above"
    assert max(sim.asked) == M


def test_comparisons_and_intervals_and_searches():
    """Two policies in coupled rollouts; both ends of an interval; the best of three policies, and of all."""
    task, kernel = PAPER.task, PAPER.kernel
    other = pt.Task(task.rewards, PAPER.alternative_policy, task.initial, task.discount)
    gap = pt.value(task, kernel) - pt.value(other, kernel)
    one, many = (pt.compare(task, other, Called(kernel), rng=1, parallel=n) for n in (1, M))
    assert one.answer == many.answer == ("above" if gap > 0 else "below")
    found = pt.evaluate(task, Called(kernel), 0.1, rng=1, parallel=M)
    assert found.lower <= pt.value(task, kernel) <= found.upper
    assert found.upper - found.lower <= 0.2
    three, given = pt.instances.random(5, 4, 3, discount=0.8), np.random.default_rng(1).dirichlet(np.ones(3), (3, 4))
    for policies in (list(given), None):
        sim, about = Called(three.kernel), (three.task.rewards, three.task.initial, 0.8)
        best = pt.identify(*about, sim, rng=1, policies=policies, parallel=M)
        plain = pt.identify(*about, Called(three.kernel), rng=1, policies=policies)
        assert best.answered
        assert (best.policy == plain.policy).all()
        assert max(sim.asked[1:]) == M


@pytest.mark.filterwarnings("ignore:state 3 has only been seen to lead to itself")  # that is the task
def test_two_totals_that_never_end_are_ended_by_a_rule_about_each_rollout_alone():
    """One in forty is caught where nothing is paid: its sum is -L after as many steps as were fixed when it began."""
    kernel = np.zeros((4, 2, 4))
    kernel[0] = [[0.3, 0.2, 0.475, 0.025], [0.3, 0.6, 0.075, 0.025]]
    kernel[3, :, 3] = kernel[1, :, 1] = kernel[2, :, 2] = 1.0
    rewards = np.zeros((4, 2, 4))
    rewards[0, :, 2] = 1.0
    parts = {"initial": [1.0, 0.0, 0.0, 0.0], "discount": 1.0, "terminal": [1, 2], "total_rewards": (0.0, 1.0)}
    tasks = [pt.Task(rewards, np.array([row] * 4), **parts) for row in ([1.0, 0.0], [0.0, 1.0])]

    def compared(**settings):
        return pt.compare(*tasks, Called(kernel), 1e-4, 0.3, rng=1, parallel=4, **settings)

    whole = compared(max_samples=2500)
    assert whole.snapshot["payoff.longest"][2] > 0
    again = compared(max_samples=2500, resume=compared(max_samples=1300))
    assert (again.answer, again.samples, again.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_in_a_large_task_fits_wait_until_no_rollout_is_under_way(monkeypatch):
    """So all have the plan of now; the run that is resumed is the same run."""
    monkeypatch.setattr(policy_bet, "MANY_STATES", 0)
    made = pt.instances.random(3, 30, 2, successors=3)
    R = pt.value(made.task, made.kernel) - 0.5
    run = carried_out(started(made.task, Called(made.kernel), R), 5000)
    for cut in (60, 123):
        before = carried_out(started(made.task, Called(made.kernel), R), cut)
        assert before.payoff.visited is not None
        assert {id(lane.plan) for lane in before.lanes.unsettled} <= {id(before.plan)}
        after = started(made.task, Called(made.kernel), R)
        after.restore(before.state())
        carried_out(after, 5000)
        assert (after.answer, after.samples, after.evidence()) == ("above", run.samples, run.evidence())


# ---------------------------------------------------------------- environments that are stepped


class Discrete(SimpleNamespace):
    """A space of numbers from 0 on."""


class Corridor:
    """Six states in a row; with a folder its process is killed at the 12th step, once."""

    observation_space, action_space = Discrete(n=6, start=0), Discrete(n=2, start=0)

    def __init__(self, folder=None):
        self.folder, self.steps = folder, 0

    def reset(self, *, seed=None, options=None):
        self.rng, self.s = (self.rng if seed is None else np.random.default_rng(seed)), 0
        return 0, {}

    def step(self, action):
        self.steps += 1
        if self.folder is not None and self.steps == 12 and not list(self.folder.iterdir()):
            (self.folder / "killed").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        self.s = min(max(self.s + (1 if self.rng.random() < (0.7 if action else 0.4) else -1), 0), 5)
        return self.s, float(self.s >= 3), False, False, {}


class InOrder:
    """In the place of processes: their calls, made at once."""

    def __init__(self, made, workers):
        self.call = pickle.loads(made)()

    def begin(self, *arguments):
        return self.call(*arguments)

    def result(self, found, stop):
        return found

    def close(self):
        self.call = None


def stepped(workers, folder=None, **settings):
    """The verdict, and the simulator."""
    made = pt.sources.gymnasium(
        *(Corridor(folder), np.full((6, 2), 0.5)), discount=0.8, rewards=lambda s, a, x: float(x >= 3), **settings
    )
    return pt.decide(made.task, made.simulator, 0.25, rng=5, parallel=workers), made.simulator


@pytest.mark.parametrize("settings", [{"initial": 0}, {}], ids=["start known", "start unknown"])
def test_each_rollout_steps_an_environment_of_its_own(settings, monkeypatch):
    """Steps are counted where the user sees them; nothing is walked to, since rollouts follow trajectories."""
    monkeypatch.setattr(stepped_copies, "Processes", InOrder)
    verdict, sim = stepped(4, **settings)
    assert verdict.answer == "above"
    assert sim.extra_steps == 0
    assert verdict.samples == sim.steps + (sim.resets if sim.starts_unknown else 0)


def test_a_process_that_is_killed_loses_nothing(tmp_path, monkeypatch):
    """The steps of its rollout are made again from its seed: the verdict is that of calls in this process."""
    found, _ = stepped(2, tmp_path, initial=0)
    monkeypatch.setattr(stepped_copies, "Processes", InOrder)
    whole, _ = stepped(2, initial=0)
    assert list(tmp_path.iterdir())
    assert found.samples == whole.samples
    assert found.evidence == whole.evidence


def test_a_rollout_of_an_environment_is_resumed_where_it_was(monkeypatch):
    """Its steps are made again; those that were counted before do not count twice."""
    monkeypatch.setattr(stepped_copies, "Processes", InOrder)
    whole, _ = stepped(3, initial=0)

    def made():
        return pt.sources.gymnasium(
            *(Corridor(), np.full((6, 2), 0.5)), discount=0.8, rewards=lambda s, a, x: float(x >= 3), initial=0
        )

    before = pt.decide(made().task, made().simulator, 0.25, rng=5, parallel=3, max_samples=40)
    after = pt.decide(made().task, made().simulator, 0.25, rng=5, parallel=3, resume=before)
    assert (after.answer, after.samples, after.evidence) == (whole.answer, whole.samples, whole.evidence)


def test_methods_that_draw_many_pairs_a_call_take_it_and_a_simulator_that_travels_alone_does_not():
    """PTST and Monte Carlo ask for many pairs at once as it is."""
    two = pt.instances.paper(2)
    for method in (pt.PTST(solver=pt.ProjectionFree()), pt.MonteCarlo()):
        found = [
            pt.decide(two.task, Called(two.kernel), 0.0, method=method, max_samples=400, parallel=n) for n in (1, 4)
        ]
        assert found[0].samples == found[1].samples
        assert found[0].evidence == found[1].evidence
    travels = Called(PAPER.kernel)
    travels.extra_steps = 0
    assert_refused(
        lambda: started(PAPER.task, travels), "parallel: the simulator has extra_steps", "leave parallel out"
    )
