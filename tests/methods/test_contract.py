"""What every method promises, whatever it does inside: one suite for all of them.

A new method is one line in `SUBJECTS`, a new kind of run one in `RUNS`. What only one method promises is tested in its
own file.
"""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

import policytest as pt
from builders import REPORTED, TWO, Called, assert_same_verdict, first, uniform_log
from policytest.data.randomness import generator
from policytest.kl.sampler import Recorded
from policytest.methods import checkpoint
from policytest.methods.episode_log_betting import EpisodeLogBetting
from policytest.methods.ptst_difference import kl_comparison
from policytest.methods.return_betting import ReturnBetting, paired_run
from policytest.methods.run import Run, is_certified, steps
from policytest.methods.td_betting import CoupledBetting
from policytest.methods.td_run import TDRun
from policytest.payoffs.coupling import shared_pool
from policytest.payoffs.two_policies import two_policies
from policytest.questions import driver
from policytest.questions.watch import Watch
from policytest.results.load import from_data


@dataclass(frozen=True)
class Subject:
    """A method, and which of the promises it makes."""

    method: Any
    thresholds: tuple[float, float] = (-0.3, 0.75)  # answered "above" and "below"; the value is 0.209
    limit: int = 100_000  # on the samples
    certified: bool = True
    by_evidence: bool = True  # it answers when its evidence reaches log(1/delta)
    replays: bool = True  # it can be asked about recorded transitions
    kl: bool = False  # a rule on counts: it uses recorded draws in their order, and intervals have the level of answers
    every_look: bool = True  # it answers at the first check whose evidence suffices


LOCAL = {"solver": pt.ProjectionFree()}
SUBJECTS = {
    "betting": Subject(pt.TDBetting()),
    "PTST": Subject(pt.PTST(), kl=True),
    "PTST, local search": Subject(pt.PTST(**LOCAL), certified=False, kl=True),
    "PTST, paper's boundary": Subject(pt.PTST(boundary=pt.PaperBoundary()), kl=True),
    "PTST, several priors": Subject(pt.PTST(boundary=pt.MixtureBoundary((0.05, 0.5, 2.0))), kl=True),
    "PTST, batches": Subject(pt.PTST(batch=30), kl=True, every_look=False),
    "PTST, forward": Subject(pt.PTST(allocation=pt.Forward()), kl=True),
    "PTST, adaptive": Subject(pt.PTST(allocation=pt.Adaptive()), kl=True),
    "PTST, optimal": Subject(pt.PTST(allocation=pt.Optimal(TWO.kernel)), kl=True),
    "PTST, shares": Subject(pt.PTST(allocation=[[0.1, 0.2], [0.3, 0.4]]), kl=True),
    "PTST as printed": Subject(pt.PTST.as_printed(), (0.0, 0.5), 60, certified=False, by_evidence=False),
    "KLB-TS": Subject(pt.KLBTS(), (-0.5, 0.85), kl=True),
    "KLB-TS, paper's boundary": Subject(pt.KLBTS(boundary=pt.PaperBoundary()), (-0.5, 0.85), kl=True),
    "boxes": Subject(pt.RectangularKL(), kl=True),
    "Monte Carlo": Subject(pt.MonteCarlo(), replays=False),
    "Monte Carlo, Bernstein": Subject(pt.MonteCarlo("bernstein"), replays=False),
    "Monte Carlo, Hoeffding": Subject(pt.MonteCarlo("hoeffding"), (-0.6, 0.9), 200_000, replays=False),
    "Monte Carlo, fixed horizon": Subject(pt.MonteCarlo(horizon=30), replays=False),
}
DELTA, SEED = 0.05, 1
LOW, HIGH = pt.value_range(TWO.task)
LEVEL = -math.log(DELTA)
SIDES = ("above", "below")


def having(**promises: bool) -> Any:
    """Parametrised by the subjects that make these promises."""
    names = [n for n, subject in SUBJECTS.items() if all(getattr(subject, k) == v for k, v in promises.items())]
    return pytest.mark.parametrize("name", names)


def ask(name: str, side: int = 0, sim: Any = None, task: pt.Task = TWO.task, **settings: Any) -> pt.Verdict:
    """The question of a side, with the seed and delta of this file unless told otherwise."""
    subject = SUBJECTS[name]
    question = {"threshold": subject.thresholds[side], "delta": DELTA, "rng": SEED, "max_samples": subject.limit}
    sim = pt.TabularSimulator(TWO.kernel) if sim is None else sim
    return pt.decide(task, sim, method=subject.method, **{**question, **settings})


@cache
def answered(name: str, side: int = 0) -> pt.Verdict:
    return ask(name, side)


# ---------------------------------------------------------------- begin, step, end


@having()
@pytest.mark.parametrize("side", [0, 1])
def test_a_run_begins_without_evidence_steps_within_its_limit_and_ends_with_its_answer(name, side):
    subject = SUBJECTS[name]
    threshold = subject.thresholds[side]
    run = subject.method.start(TWO.task, pt.TabularSimulator(TWO.kernel), threshold, generator(SEED))
    assert isinstance(run, Run)
    run.begin(LEVEL)
    assert (run.samples, run.samples_used, run.answer) == (0, 0, None)
    assert max(run.evidence()) <= 0, "nothing was seen"
    assert run.interval(LEVEL) == pytest.approx((LOW, HIGH))
    run.step(LEVEL, 1)
    assert run.samples <= 1
    run.begin(LEVEL)
    while run.answer is None and not run.exhausted:
        before = run.samples
        run.step(LEVEL, subject.limit - before)
        assert before <= run.samples <= run.samples_used <= subject.limit
        assert run.counts().total == run.samples
        evidence, (low, high) = run.evidence(), run.interval(LEVEL)
        assert np.isfinite(evidence).all()
        assert all(proved <= found + 1e-9 for proved, found in zip(run.proof(), evidence, strict=True))
        assert LOW - 1e-9 <= low <= high <= HIGH + 1e-9
        if subject.by_evidence and subject.every_look:
            assert (max(evidence) >= LEVEL) is (run.answer is not None)
    run.end(LEVEL)
    assert run.answer == SIDES[side]
    assert np.argmax(run.evidence()) == side or not subject.by_evidence
    assert LOW <= run.estimate <= HIGH


OTHER = replace(TWO.task, policy=TWO.alternative_policy)
SHORT, SHORT_OTHER = (replace(task, discount=1.0, horizon=3) for task in (TWO.task, OTHER))
LOG = uniform_log(TWO, 12_000, 3)
COIN, FAIR = (pt.Episodes(lambda rng, p=p: [float(rng.random() < p)], return_range=(0, 1)) for p in (0.7, 0.5))
TOSSED = pt.LoggedEpisodes(None, (np.arange(400) % 10 < 7).astype(float), return_range=(0, 1))


def log_of(task: pt.Task = TWO.task) -> Recorded:
    return Recorded.of(task, LOG)


def coupled(payoff: Any) -> TDRun:
    return TDRun(CoupledBetting(), payoff)


def simulator() -> pt.TabularSimulator:
    return pt.TabularSimulator(TWO.kernel)


Question = Callable[[float], Run]
RUNS: dict[str, tuple[Question, tuple[float, float]]] = {
    "rollouts with a horizon": (lambda R: pt.TDBetting().start(SHORT, simulator(), R, SEED), (-0.04, 0.15)),
    "KL with a horizon": (lambda R: pt.PTST().start(SHORT, simulator(), R, SEED), (-0.04, 0.15)),
    "two policies": (
        lambda R: coupled(two_policies(TWO.task, OTHER, R, shared_pool([TWO.task, OTHER], simulator(), SEED))),
        (-0.3, 0.8),
    ),
    "two policies with a horizon": (
        lambda R: coupled(two_policies(SHORT, SHORT_OTHER, R, shared_pool([SHORT, SHORT_OTHER], simulator(), SEED))),
        (-0.1, 0.2),
    ),
    "two policies, KL": (lambda R: kl_comparison(pt.PTST(), TWO.task, OTHER, R, simulator(), SEED), (-0.3, 0.8)),
    "recorded draws": (lambda R: pt.TDBetting().replay(TWO.task, R, log_of()), (-0.3, 0.75)),
    "a log": (lambda R: pt.LogBetting(coins=2).replay(TWO.task, R, log_of()), (-0.3, 0.75)),
    "stacks": (lambda R: pt.LogBetting().stacks(TWO.task, R, log_of(), 2), (-0.3, 0.75)),
    "episodes": (lambda R: ReturnBetting().start(COIN, None, R, SEED), (0.5, 0.9)),
    "pairs of episodes": (lambda R: paired_run(COIN, FAIR, R, SEED), (-0.2, 0.6)),
    "recorded episodes": (lambda R: EpisodeLogBetting().replay(TOSSED, R), (0.5, 0.9)),
}


@pytest.mark.parametrize("side", [0, 1], ids=SIDES)
@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_is_driven_alike(name, side):
    """The same loop, with nothing but what `Run` declares; its answer has the evidence, the proof and the interval."""
    start, thresholds = RUNS[name]
    run, threshold = start(thresholds[side]), thresholds[side]
    assert isinstance(run, Run)
    run.begin(LEVEL)
    assert (run.samples, run.samples_used, run.answer, run.threshold) == (0, 0, None, threshold)
    assert max(run.evidence()) <= 1e-12, "nothing was seen"
    low, high = run.interval(LEVEL)
    for _ in steps(run, LEVEL, 100_000):
        assert run.samples <= run.samples_used <= 100_000
        assert all(proved <= found + 1e-9 for proved, found in zip(run.proof(), run.evidence(), strict=True))
        assert low - 1e-9 <= run.interval(LEVEL)[0] <= run.interval(LEVEL)[1] <= high + 1e-9
    run.end(LEVEL)
    assert (run.answer, run.reward_moments, run.indifference) == (SIDES[side], None, 0.0)
    assert run.evidence()[side] >= LEVEL > run.evidence()[1 - side]
    assert is_certified(run, LEVEL) is ("KL" not in name), "a descent may miss the nearest kernel"
    assert not is_certified(run, 1e9)
    assert run.outcome(LEVEL).evidence == run.evidence()
    first, last = run.verdict_interval(LEVEL)
    assert first >= threshold if side == 0 else last <= threshold
    assert low <= run.estimate <= high
    assert 0 <= run.used() <= len(LOG)
    assert run.method.describe()
    run.update_answer(1e9)
    assert run.answer is None
    run.update_answer(LEVEL)
    assert run.answer == SIDES[side]


@having()
@pytest.mark.parametrize("side", [0, 1])
def test_both_sides_are_answered_and_what_is_said_fits_together(name, side):
    subject, v = SUBJECTS[name], answered(name, side)
    assert (v.answer, v.certified, v.required) == (SIDES[side], subject.certified, LEVEL)
    assert v.samples == v.counts.total <= subject.limit
    assert 0.0 <= v.p_value <= 1.0
    if subject.by_evidence:
        assert v.evidence[side] >= LEVEL > v.evidence[1 - side]
        assert v.p_value == pytest.approx(math.exp(-max(v.evidence)))
        assert v.p_value <= DELTA * (1 + 1e-9)
        assert v.interval[1] > v.threshold if side == 0 else v.interval[0] < v.threshold
        assert not subject.kl or not v.interval[0] <= v.threshold <= v.interval[1]
    assert LOW - 1e-9 <= v.interval[0] <= v.estimate <= v.interval[1] <= HIGH + 1e-9
    assert v.method == subject.method.describe()
    assert v.settings is subject.method
    told = json.loads(v.to_json(), parse_constant=pytest.fail)
    assert (told["schema"], told["answer"], told["samples"]) == (2, v.answer, v.samples)
    assert (told["evidence"], told["interval"]) == (list(v.evidence), list(v.interval))
    again = from_data(told)
    for field in ("answer", "samples", "certified", "evidence", "interval", "estimate", "threshold", "delta", "method"):
        assert getattr(again, field) == getattr(v, field), field
    said = f"value is {v.answer} the threshold"
    first = f"The {said} (certified)" if v.certified else "No reliable answer: "
    assert str(v).startswith(first)
    assert v.certified or f"(not certified: the {said})" in str(v).splitlines()[0]
    assert f"by {v.method}" in str(v)
    assert "<table" in v._repr_html_()


@having()
def test_a_seed_fixes_the_run_and_every_draw_is_counted(name):
    sim = Called(TWO.kernel)
    called = ask(name, sim=sim)
    assert len(sim.log) == called.samples
    assert_same_verdict(ask(name, sim=Called(TWO.kernel)), called)
    assert_same_verdict(ask(name, rng=generator(SEED)), answered(name))
    assert ask(name, rng=SEED + 1).counts != called.counts
    for limit in (0, 1, 13):
        sim = Called(TWO.kernel)
        part = ask(name, sim=sim, delta=1e-9, max_samples=limit)
        assert part.samples == len(sim.log) <= limit
        assert not SUBJECTS[name].by_evidence or (part.answer is None and part.reason)
        json.loads(part.to_json(), parse_constant=pytest.fail)
        if part.samples == 0:
            assert max(part.evidence) <= 0
            assert (part.p_value, part.interval) == (1.0, pytest.approx((LOW, HIGH)))


@having()
def test_the_checks_on_the_way_are_those_of_the_run(name):
    subject, seen = SUBJECTS[name], []
    verdict = ask(name, progress=seen.append)
    assert_same_verdict(verdict, answered(name))
    samples = [check.samples for check in seen]
    assert samples == sorted(samples)
    assert samples[0] == 0
    assert [check.answer for check in seen] == [None] * (len(seen) - 1) + [verdict.answer]
    assert (samples[-1], seen[-1].evidence, seen[-1].estimate) == (verdict.samples, verdict.evidence, verdict.estimate)
    if subject.by_evidence and subject.every_look:
        assert all(max(check.evidence) < check.required for check in seen[:-1])
    assert all(before.solves <= after.solves for before, after in itertools.pairwise(seen))
    question = TWO.task, pt.TabularSimulator(TWO.kernel), verdict.threshold, DELTA, subject.method, SEED, subject.limit
    assert list(pt.checks(*question)) == seen
    for check in pt.checks(*question):
        low, high = check.interval()
        assert LOW - 1e-9 <= low <= check.estimate <= high <= HIGH + 1e-9
        if subject.kl and subject.every_look:
            assert (not low <= verdict.threshold <= high) is (check.answer is not None)


@having()
@pytest.mark.parametrize(("side", "deltas"), [(0, [0.05, 0.4, 1e-3, 0.4]), (1, [1e-12, 0.4, 1e-2])], ids=SIDES)
def test_one_run_for_several_deltas_is_a_run_for_each(name, side, deltas):
    subject = SUBJECTS[name]
    question = TWO.task, pt.TabularSimulator(TWO.kernel), subject.thresholds[side]
    found = pt.stopping_times(*question, deltas, subject.method, SEED, subject.limit)
    verdicts = [ask(name, side, delta=delta) for delta in deltas]
    np.testing.assert_array_equal(found.deltas, deltas)
    assert found.samples.tolist() == [verdict.samples for verdict in verdicts]
    assert found.answers.tolist() == [verdict.answer for verdict in verdicts]
    assert found.certified.tolist() == [verdict.certified for verdict in verdicts]
    assert not pt.stopping_times(*question, [1e-9], subject.method, SEED, 5).certified.any()


@having(by_evidence=True)
def test_a_decided_run_goes_on_at_a_smaller_delta(name):
    decided, expected = answered(name), ask(name, delta=1e-4)
    further = ask(name, delta=1e-4, rng=99, resume=decided)
    assert (further.answer, further.samples, further.counts) == (expected.answer, expected.samples, expected.counts)
    assert further.evidence == pytest.approx(expected.evidence, rel=1e-9)
    assert further.samples >= decided.samples
    again = ask(name, rng=99, resume=decided)
    assert (again.answer, again.samples >= decided.samples) == (decided.answer, True)
    if not isinstance(decided.settings, pt.KLBTS | pt.RectangularKL):  # those look again after some more samples
        assert (again.samples, again.evidence) == (decided.samples, decided.evidence)


# ---------------------------------------------------------------- the question


@having(by_evidence=True)
@pytest.mark.parametrize(("scale", "shift"), [(2.0**-20, 0.0), (1e6, 0.0), (1.0, 1e3), (-3.7, 12.0)])
def test_units_of_the_reward_do_not_matter(name, scale, shift):
    """r -> c r + b moves value and threshold together; a negative c exchanges the answers."""
    task, here = TWO.task, answered(name)
    moved = replace(task, rewards=scale * task.rewards + shift)
    there = ask(name, task=moved, threshold=scale * here.threshold + shift / (1 - task.discount))
    side = 0 if scale > 0 else 1
    assert (there.samples, there.answer) == (here.samples, SIDES[side])
    assert there.evidence[side] == pytest.approx(here.evidence[0], rel=1e-4)
    assert there.estimate == pytest.approx(scale * here.estimate + shift / (1 - task.discount))


@having()
def test_thresholds_that_no_kernel_reaches_need_no_sample(name):
    for threshold, answer in ((LOW - 0.01, "above"), (HIGH + 0.01, "below")):
        sim = Called(TWO.kernel)
        found = ask(name, sim=sim, threshold=threshold)
        assert (found.answer, found.samples, found.certified, sim.log) == (answer, 0, True, [])
        assert (found.p_value, found.interval) == (0.0, (LOW, HIGH))


@having()
def test_bad_input_is_refused(name):
    method = SUBJECTS[name].method
    for changes, words in (
        ({"delta": 0.0}, "delta is 0"),
        ({"delta": math.nan}, "delta is nan"),
        ({"threshold": math.nan}, "threshold is nan"),
        ({"max_samples": -1}, "max_samples is -1"),
        ({"rng": "seed"}, "rng is 'seed'"),
        ({"resume": 3}, "resume"),
        ({"sim": lambda s, a: s}, "signature"),
        ({"sim": 3}, "sim is"),
    ):
        with pytest.raises(pt.InputError, match=words):
            ask(name, **changes)
    with pytest.raises(pt.InputError, match="method must be an instance"):
        pt.decide(TWO.task, pt.TabularSimulator(TWO.kernel), 0.0, method=type(method))
    for data in ([(0, 0, 1)], TWO.kernel):
        with pytest.raises(pt.InputError, match="data is a"):
            pt.assess(TWO.task, data, 0.0, method=method)
    other = "PTST, shares" if name != "PTST, shares" else "PTST"
    with pytest.raises(pt.InputError, match="that run had the method"):
        ask(name, resume=ask(other, threshold=SUBJECTS[name].thresholds[0], delta=1e-9, max_samples=5))


# ---------------------------------------------------------------- recorded data


@having(replays=True)
def test_a_log_in_pieces_is_the_log_as_a_whole(name):
    """`Watch` speaks at the end of a piece; its verdict is that of `assess` on what it has seen by then."""
    subject, log = SUBJECTS[name], uniform_log(TWO, min(4000, subject_rows(name)), 3)
    watch, at, found = Watch(TWO.task, subject.thresholds[0], DELTA, subject.method), 0, None
    while found is None and at < len(log):
        piece = slice(at, at := at + 1 + at // 2)
        found = watch.add(log.s[piece], log.a[piece], log.x[piece])
    found = watch.verdict() if found is None else found
    whole = pt.assess(TWO.task, first(log, found.samples), subject.thresholds[0], DELTA, subject.method)
    assert found.answer == "above"
    for field in set(REPORTED) - {"solves", "reason"}:
        np.testing.assert_equal(getattr(found, field), getattr(whole, field), err_msg=field)
    assert found.counts == whole.counts
    assert found.certified is subject.certified


def subject_rows(name: str) -> int:
    return 10 * SUBJECTS[name].limit


@having(replays=True, kl=True)
def test_the_draws_of_a_run_as_a_log_give_the_same_verdict(name):
    subject, sim = SUBJECTS[name], Called(TWO.kernel)
    found = ask(name, sim=sim)
    log = pt.Transitions(*np.array(sim.log).T)
    question = found.threshold, DELTA, subject.method
    again = pt.assess(TWO.task, log, *question)
    assert (again.answer, again.samples, again.counts) == (found.answer, found.samples, found.counts)
    assert again.evidence == pytest.approx(found.evidence, rel=1e-9)
    counted = pt.assess(TWO.task, found.counts, *question)
    assert (counted.answer, counted.samples) == (found.answer, found.samples)
    assert counted.evidence == pytest.approx(found.evidence, rel=1e-9)
    assert pt.assess(TWO.task, first(log, 2), *question).answer is None


@having(replays=False)
def test_what_needs_rollouts_refuses_recorded_data(name):
    with pytest.raises(pt.InputError, match="needs rollouts"):
        pt.assess(TWO.task, uniform_log(TWO, 10, 0), 0.0, method=SUBJECTS[name].method)


# ---------------------------------------------------------------- stopped and resumed

FOUR = pt.instances.random(1, 4, 2)
KINDS = {"table": pt.TabularSimulator, "called": Called}
ZONE = {"threshold": 1.87, "indifference": 0.24, "delta": 0.01}  # the value of FOUR is 1.93
SMALL_ZONE = {"threshold": 0.178, "indifference": 0.125, "delta": 0.01}  # that of TWO is 0.21
NEAR = {"threshold": 1.5, "delta": 0.1, "max_samples": 3_000}
LONG = {  # runs that visit all that there is to keep
    "betting, zone": (FOUR, "betting", ZONE),
    "betting, small zone": (TWO, "betting", SMALL_ZONE),
    "betting": (TWO, "betting", {"threshold": 0.0, "delta": 1e-6}),
    "PTST": (FOUR, "PTST", NEAR),
    "PTST, batches": (TWO, "PTST, batches", {"threshold": 0.0, "delta": 1e-3}),
    "PTST, forward": (FOUR, "PTST, forward", NEAR),
    "PTST, adaptive": (FOUR, "PTST, adaptive", NEAR),
    "PTST as printed": (TWO, "PTST as printed", {"threshold": 0.0, "max_samples": 30}),
    "KLB-TS": (TWO, "KLB-TS", {"threshold": -0.5, "max_samples": 3_000}),
    "boxes": (TWO, "boxes", {"threshold": -0.2, "max_samples": 1_000}),
    "Monte Carlo": (TWO, "Monte Carlo", {"threshold": -0.5, "max_samples": 60_000}),
}
RESUMED = {name: (TWO, name, {"delta": 1e-3}) for name in SUBJECTS} | LONG
PAIRS = [(case, "called") for case in RESUMED]
PAIRS += [(case, "table") for case in LONG if case.startswith(("betting", "PTST"))]


class KilledError(KeyboardInterrupt):
    """The end of a process, as far as the run can tell."""


def resumed(case: str, kind: str, **options: Any) -> pt.Verdict:
    instance, name, question = RESUMED[case]
    return ask(name, sim=KINDS[kind](instance.kernel), task=instance.task, **{"rng": 3, **question, **options})


@cache
def uninterrupted(case: str, kind: str) -> pt.Verdict:
    return resumed(case, kind)


@pytest.mark.parametrize(("case", "kind"), PAIRS)
def test_a_run_that_is_killed_many_times_is_the_run_that_was_not(case, kind, tmp_path, monkeypatch):
    """Killed after every few looks, and continued from what was on disk a look earlier."""
    monkeypatch.setattr(driver._Saver, "now_and_then", lambda saver: saver.save())
    file, seen = tmp_path / "run.npz", 0

    def kill(check: pt.Check) -> None:
        nonlocal seen
        seen += 1
        if seen % 3 == 0:
            raise KilledError

    for attempt in range(5):
        try:
            go_on = {"resume": file} if attempt else {}
            found = resumed(case, kind, checkpoint=file, progress=kill if attempt < 4 else None, **go_on)
        except KilledError:
            continue
        break
    assert seen >= 3, "never killed"
    assert_same_verdict(found, uninterrupted(case, kind))


@pytest.mark.parametrize(("case", "kind"), [pair for pair in PAIRS if SUBJECTS[RESUMED[pair[0]][1]].replays])
def test_a_run_in_small_slices_is_the_run_in_one(case, kind):
    """Slices that end anywhere: within a block, a batch, a rollout. A limit may bring a look of KL forward."""
    expected = uninterrupted(case, kind)
    kept, limit = None, 0
    while kept is None or (kept.answer is None and limit < expected.samples):
        limit = min(limit + max(expected.samples // 9, 1), expected.samples)
        kept = resumed(case, kind, max_samples=limit, resume=kept)
    if kept.samples < expected.samples and not isinstance(kept.settings, pt.TDBetting):
        assert kept.answer == expected.answer
    else:
        assert_same_verdict(kept, expected)


@having()
def test_a_state_is_taken_back_as_it_was_given(name):
    """A second run that restores the state of the first is the first: the same state, evidence and further steps."""
    subject, runs = SUBJECTS[name], []
    for seed in (SEED, 99):
        sim = pt.TabularSimulator(TWO.kernel)
        runs.append(subject.method.start(TWO.task, sim, subject.thresholds[0], generator(seed)))
        runs[-1].begin(50.0)
    runs[0].step(50.0, subject.limit)
    runs[1].restore(runs[0].state())
    runs[1].begin(50.0)
    for _ in range(2):
        states = [run.state() for run in runs]
        for key in {name for name in states[0].keys() | states[1].keys() if not name.endswith(".solves")}:
            np.testing.assert_array_equal(states[0][key], states[1][key], err_msg=key)
        assert runs[0].evidence() == runs[1].evidence()
        assert runs[0].proof() == runs[1].proof()
        assert (runs[0].samples, runs[0].estimate) == (runs[1].samples, runs[1].estimate)
        for run in runs:
            run.step(50.0, subject.limit - run.samples)


@pytest.mark.parametrize("name", ["betting", "PTST", "Monte Carlo"])
def test_checkpoints_with_arrays_of_another_type_are_refused(name, tmp_path):
    """Also where the digest fits: text or complex numbers for numbers, numbers for text, more or fewer axes."""
    file, kept = tmp_path / "run.npz", ask(name, delta=1e-9, max_samples=20).snapshot
    for key, value in kept.items():
        number = np.asarray(value).dtype.kind != "U"
        for other in (np.array(["x", "y"]), np.array(1.5) if np.ndim(value) else np.zeros((1, 1, 1)), np.array([1j])):
            checkpoint.write(file, {**kept, key: other if number else np.array(0.0)})
            with pytest.raises(pt.InputError, match=f"resume: .*[ (]{key}\\b"):
                ask(name, delta=1e-9, max_samples=21, resume=file)
