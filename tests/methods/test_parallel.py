"""Episodes in several processes: begun and settled by rule, so that the speed of workers does not matter."""

from __future__ import annotations

import math
import os
import pickle
import signal
import sys
import threading
import time

import gymnasium as gym
import numpy as np
import pytest
from scipy.stats import binom

import policytest as pt
from builders import each
from episode_envs import Endless, Lasting, vector
from policytest.data.processes import Died, Processes, Stopped, pickled
from policytest.payoffs import parallel_returns
from policytest.payoffs.parallel_returns import ParallelEpisodes

ALARM = 1e-6


def go_right(seen):
    return 1


def success(p=0.5):
    return pt.Episodes(lambda rng: rng.random() < p, return_range=(0, 1))


def lasting(**settings):
    return pt.Episodes(Lasting(), go_right, reward_range=(0, 1), horizon=12, **settings)


def discounted():
    return pt.Episodes(Endless(), go_right, reward_range=(0, 1), discount=0.7)


def same(a, b):
    """Nothing is another than one by one, but what was under way at the end."""
    assert (a.answer, a.evidence, a.interval, a.estimate) == (b.answer, b.evidence, b.interval, b.estimate)
    assert a.counts == b.counts


class Steady(Lasting):
    """A reward of 0.9 or 1 at each of 30 steps: the rest of an episode is hardly worth seeing."""

    def step(self, action):
        self.t += 1
        return np.array([float(self.t)]), 0.9 + 0.1 * (self.np_random.random() < 0.5), self.t == 30, False, {}


def steady():
    return pt.Episodes(Steady(), go_right, reward_range=(0, 1), horizon=30, critic=pt.RidgeCritic())


class Inline:
    """In the place of processes: calls are made at once, in this one, and end when their steps are over.

    ``now`` is a clock that stands still but for the episodes; ``log`` says when which began and was asked for.
    """

    log: list[tuple[str, int]]

    def __init__(self, made, workers):
        self.function, self.now = pickle.loads(made)(), 0.0

    def begin(self, seed, plan, most):
        self.log.append(("begin", seed))
        try:
            found = self.function(seed, plan, most)
        except Exception as error:
            found = error
        return seed, found, self.now + steps_of(found)

    def result(self, call, stop):
        if stop():
            raise Stopped
        self.log.append(("settle", call[0]))
        self.now = max(self.now, call[2])
        if isinstance(call[1], ZeroDivisionError):
            raise call[1]
        return call[1]

    def close(self):
        pass


def steps_of(seen):
    """How long an episode took, or the longer one of a pair."""
    return getattr(getattr(seen, "played", seen), "steps", 1)


@pytest.fixture
def inline(monkeypatch):
    monkeypatch.setattr(parallel_returns, "Processes", Inline)
    Inline.log = []
    return Inline


# ---------------------------------------------------------------- the rule


@each("workers", [2, 7])
def test_without_a_critic_all_is_as_one_by_one(inline, workers):
    for asked in (
        lambda m: pt.decide(success(0.6), threshold=0.5, parallel=m),
        lambda m: pt.decide(success(0.6), threshold=0.5, budget=40, parallel=m, rng=2),
        lambda m: pt.decide(success(0.6), threshold=0.6, indifference=0.3, parallel=m),
        lambda m: pt.decide(lasting(), threshold=4.5, parallel=m, rng=np.random.default_rng(4)),
        lambda m: pt.decide(discounted(), threshold=1.0, parallel=m),
        lambda m: pt.decide(lasting(), threshold=4.0, max_samples=150, parallel=m),
        lambda m: pt.compare(lasting(), success_of_steps(), budget=30, parallel=m),
    ):
        same(asked(1), asked(workers))
    a, b = (pt.evaluate(success(0.6), epsilon=0.3, parallel=m) for m in (1, workers))
    assert (a.lower, a.upper, a.counts) == (b.lower, b.upper, b.counts)
    checks = [list(pt.checks(success(0.7), threshold=0.5, parallel=m)) for m in (1, workers)]
    assert [check.evidence for check in checks[0]] == [check.evidence for check in checks[1]]
    assert checks[1][-1].samples == checks[0][-1].samples + workers - 1


def success_of_steps():
    """An agent of another environment, whose returns can be compared with those of `lasting`."""
    return pt.Episodes(lambda rng: [1.0] * int(rng.integers(1, 5)), reward_range=(0, 1), horizon=12)


def test_an_episode_begins_when_the_one_m_before_it_is_settled(inline):
    pt.decide(success(0.5), threshold=0.5, budget=20, parallel=4)
    kinds = [kind for kind, _ in inline.log]
    assert kinds == ["begin"] * 4 + ["settle", "begin"] * 16 + ["settle"] * 4
    begun, settled = ([seed for kind, seed in inline.log if kind == k] for k in ("begin", "settle"))
    assert begun == settled


def test_what_was_under_way_at_the_end_was_used(inline):
    """After the answer, and after a limit, where the first of them is the one that was given up."""
    one, four = (pt.decide(lasting(), threshold=3.0, parallel=m) for m in (1, 4))
    n, lengths = one.counts.episodes, pt.decide(lasting(), threshold=3.9, max_samples=one.samples + 100).counts.steps
    assert four.samples == one.samples + int(lengths[n : n + 3].sum())
    cut = pt.decide(lasting(), threshold=3.9, max_samples=60, parallel=4)
    n = cut.counts.episodes
    assert int(lengths[:n].sum()) < 60 < cut.samples <= int(lengths[: n + 4].sum())


def test_an_episode_learns_from_those_that_were_settled_when_it_began(inline, monkeypatch):
    """With a critic the plan of episode j is that of 1 .. j - M, however long each of them is."""
    plans, made = [], Inline.begin

    def begin(self, seed, plan, most):
        plans.append(plan)
        return made(self, seed, plan, most)

    monkeypatch.setattr(Inline, "begin", begin)
    found = {}
    for workers in (1, 5):
        plans.clear()
        run = pt.ReturnBetting().start(steady(), None, 28.0, 0)
        run.work_in_parallel(workers)
        after = [run.source.player.plan]
        for _ in range(60):
            run.step(math.inf, 10**9)
            run._fit()
            after.append(run.source.player.plan)
        assert [begun.plan for begun in plans[:workers]] == [after[0]] * workers
        assert [begun.plan for begun in plans[workers:]] == after[1 : len(plans) - workers + 1]
        found[workers] = max(plan.largest for plan in after)
    assert found[5] > 1.0  # some are cut, or nothing was tested


def settled_when_finished(self, most):
    """A wrong rule: the first to end is the next."""
    with self.at_work():
        self._begin(most)
    first = min(self.under_way, key=lambda one: one.call[2])
    self.under_way.remove(first)
    self.under_way.appendleft(first)
    return right_rule(self, most)


right_rule = ParallelEpisodes.next


def test_settling_episodes_when_they_end_is_wrong_and_in_order_is_right(inline, monkeypatch):
    """Successes are short: settled when they end, they come first. In order errors keep delta at V = R."""
    agent = pt.Episodes(lambda rng: [1.0] if rng.random() < 0.5 else [0.0] * 12, return_range=(0, 1))
    wrong, runs = {}, 60
    for rule in (right_rule, settled_when_finished):
        monkeypatch.setattr(ParallelEpisodes, "next", rule)
        answers = [pt.decide(agent, threshold=0.5, parallel=32, budget=60, rng=seed).answer for seed in range(runs)]
        wrong[rule] = answers.count("above")
    alarm = binom.isf(ALARM, runs, 0.05)
    assert wrong[right_rule] <= alarm < wrong[settled_when_finished]


# ---------------------------------------------------------------- ends


def test_a_run_goes_on_with_another_number_of_workers(inline, tmp_path):
    whole = pt.decide(lasting(), threshold=3.5, rng=3)
    for first, second in ((3, 1), (1, 3), (4, 2)):
        part = pt.decide(lasting(), threshold=3.5, rng=3, max_samples=60, parallel=first)
        alone = pt.decide(lasting(), threshold=3.5, rng=3, max_samples=60)
        assert part.answer is None
        assert {k: v.tolist() for k, v in part.snapshot.items()} == {k: v.tolist() for k, v in alone.snapshot.items()}
        same(whole, pt.decide(lasting(), threshold=3.5, resume=part, parallel=second))


def test_episodes_under_way_are_run_again_by_the_plans_they_began_with(inline):
    whole = pt.decide(steady(), threshold=28.0, rng=3, parallel=5)
    part = pt.decide(steady(), threshold=28.0, rng=3, max_samples=whole.samples // 2, parallel=5)
    assert part.answer is None
    assert len(part.snapshot["begun_plans"]) == 5
    assert part.snapshot["begun_plans"][:, 0].max() > 1.0
    same(whole, pt.decide(steady(), threshold=28.0, resume=part, parallel=5))
    assert pt.decide(steady(), threshold=28.0, resume=part).answer == whole.answer


def test_no_more_episodes_begin_than_the_budget_has(inline):
    verdict = pt.decide(success(0.5), threshold=0.5, budget=7, parallel=5)
    assert [kind for kind, _ in inline.log].count("begin") == 7
    assert (verdict.samples, verdict.counts.episodes) == (7, 7)
    estimate = pt.evaluate(success(0.5), budget=9, parallel=5)
    assert [kind for kind, _ in inline.log].count("begin") == 7 + 9
    assert (estimate.samples, estimate.counts.episodes) == (9, 9)


def test_an_error_comes_after_the_episodes_before_it(inline):
    def fails(rng):
        if rng.random() < 0.1:
            raise ZeroDivisionError("sometimes")
        return 0.5

    agent, seen = pt.Episodes(fails, return_range=(0, 1)), {}
    for workers in (1, 4):
        looks = []
        with pytest.raises(ZeroDivisionError, match="sometimes"):
            pt.decide(agent, threshold=0.5, parallel=workers, progress=looks.append)
        seen[workers] = len(looks)
    assert seen[1] == seen[4] > 2


def test_an_episode_whose_process_dies_again_and_again_is_named(inline, monkeypatch):
    def died(self, call, stop):
        raise Died

    monkeypatch.setattr(Inline, "result", died)
    with pytest.raises(pt.InputError, match=r"seed \d+ has ended its process 3 times.*leave parallel out"):
        pt.decide(success(), threshold=0.5, parallel=2)


# ---------------------------------------------------------------- what cannot be


@each(
    ("parallel", "told"),
    [(0, "parallel is 0; pass at least 1"), (-2, "at least 1"), (2.5, "whole number"), ("two", "whole number")],
)
def test_what_is_no_number_of_workers_is_refused(parallel, told):
    two = pt.instances.paper(2)
    sim, others = pt.TabularSimulator(two.kernel), {"parallel": parallel}
    for call in (
        lambda: pt.decide(success(), threshold=0.5, **others),
        lambda: pt.checks(success(), threshold=0.5, **others),
        lambda: pt.compare(success(), success(0.6), **others),
        lambda: pt.evaluate(success(), epsilon=0.1, **others),
        lambda: pt.identify(two.task.rewards, two.task.initial, 0.9, sim, policies=[two.task.policy], **others),
    ):
        with pytest.raises(pt.InputError, match=told):
            call()


def test_a_search_that_samples_one_by_one_says_so():
    two = pt.instances.paper(2)
    about = two.task.rewards, two.task.initial, 0.9, pt.TabularSimulator(two.kernel)
    with pytest.raises(pt.InputError, match=r"parallel: this search samples one by one; leave parallel out"):
        pt.identify(*about, policies=[two.task.policy, two.alternative_policy], method=pt.PTST(), parallel=2)


def test_a_vector_of_environments_runs_several_by_itself():
    agent = pt.Episodes(vector(n=2), go_right, reward_range=(0, 1), horizon=12)
    with pytest.raises(pt.InputError, match=r"parallel: a vector of environments.*one environment"):
        pt.decide(agent, threshold=3.0, parallel=2)


def test_what_cannot_be_sent_is_named():
    lock = threading.Lock()

    class Holds(Lasting):
        def __init__(self):
            super().__init__()
            self.lock = lock

    def agent(seen):
        return int(lock.locked())

    for env, act, told in ((Holds(), go_right, "parallel: env cannot"), (Lasting(), agent, "parallel: agent cannot")):
        asked = pt.Episodes(env, act, reward_range=(0, 1), horizon=12)
        with pytest.raises(pt.InputError, match=told + r" be sent to another process.*leave parallel out"):
            pt.decide(asked, threshold=3.0, parallel=2)


def test_without_joblib_the_remedy_is_told(monkeypatch):
    for name in [name for name in sys.modules if name.startswith("joblib")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "joblib", None)
    with pytest.raises(pt.InputError, match=r"needs joblib, which is not installed; run pip install .*joblib"):
        pt.decide(success(), threshold=0.5, parallel=2)


# ---------------------------------------------------------------- real processes


def test_a_worker_that_is_killed_changes_nothing(tmp_path):
    """The episodes that it ran are run again; the function is a closure, which is sent as it is."""
    flag = tmp_path / "killed"

    def run(rng):
        u = rng.random()
        if u < 0.1 and not flag.exists() and os.getpid() != here:
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.002)
        return u < 0.8

    here, agent = os.getpid(), pt.Episodes(run, return_range=(0, 1))
    one, two = (pt.decide(agent, threshold=0.5, parallel=m) for m in (1, 2))
    assert flag.exists()
    same(one, two)


def test_after_ctrl_c_nothing_is_left(tmp_path):
    """An episode that does not end is given up at once, and no process goes on."""

    def run(rng):
        (tmp_path / str(os.getpid())).touch()
        if rng.random() < 0.1:
            (tmp_path / "hangs").touch()
            time.sleep(600)
        return 0.5

    def press():
        while not (tmp_path / "hangs").exists():
            time.sleep(0.01)
        time.sleep(0.1)
        pressed.append(time.monotonic())
        signal.raise_signal(signal.SIGINT)

    pressed = []
    finger = threading.Thread(target=press)
    finger.start()
    verdict = pt.decide(pt.Episodes(run, return_range=(0, 1)), threshold=0.5, parallel=2)
    assert time.monotonic() - pressed[0] < 10
    finger.join()
    assert (verdict.answer, verdict.reason) == (None, "interrupted")
    workers = [int(path.name) for path in tmp_path.iterdir() if path.name != "hangs"]
    assert len(workers) == 2
    for worker in workers:
        with pytest.raises(ProcessLookupError):
            os.kill(worker, 0)


def test_what_a_process_returns_and_raises_and_that_it_ends():
    """Errors that can be sent are sent, others are told; a call that does not end is killed."""

    class OddError(Exception):
        def __init__(self, a, b):  # cannot be made again from its arguments
            super().__init__(f"{a} {b}")

    def made():
        env = gym.make("CartPole-v1")

        def call(what):
            if what == "odd":
                raise OddError(1, 2)
            if what == "missing":
                return {}["missing"]
            if what == "ever":
                time.sleep(600)
            env.reset(seed=what)
            return float(env.step(1)[0][0])

        return call

    pair = Processes(pickled(made), 2)
    try:
        calls = [pair.begin(7), pair.begin("odd")]
        assert pair.result(calls[0], lambda: False) == made()(7)
        with pytest.raises(RuntimeError, match="OddError: 1 2"):
            pair.result(calls[1], lambda: False)
        calls = [pair.begin("missing"), pair.begin("ever")]
        with pytest.raises(KeyError, match="missing") as caught:
            pair.result(calls[0], lambda: False)
        assert "in call" in str(caught.value.__cause__)
        with pytest.raises(Stopped):
            pair.result(calls[1], lambda: True)
        begin = time.monotonic()
    finally:
        pair.close()
    assert time.monotonic() - begin < 10


def test_the_workers_of_a_dask_client_are_used_where_there_is_one():
    """Here they are threads of this process, which need no time to start; each has a copy of its own."""
    distributed, here = pytest.importorskip("distributed"), os.getpid()

    def run(rng):
        assert os.getpid() == here
        return rng.random() < 0.8

    agent = pt.Episodes(run, return_range=(0, 1))
    with distributed.Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=None):
        several = pt.decide(agent, threshold=0.5, parallel=2)
    same(pt.decide(agent, threshold=0.5), several)
