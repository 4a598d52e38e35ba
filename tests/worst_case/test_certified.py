"""The certified solver: its brackets contain the optimum, and its proofs are checked without it."""

from __future__ import annotations

from dataclasses import replace

import numba
import numpy as np
import pytest
from scipy import sparse

import policytest as pt
from builders import each
from policytest._base.compiled import dual
from policytest.worst_case.ball import kl_rows
from policytest.worst_case.branch_and_bound import ClaimSearch
from policytest.worst_case.certificate import CHORD, PERSPECTIVE, SPLIT, UPPER, dual_bound
from policytest.worst_case.problem import lay_out
from problems import draw


@pytest.mark.parametrize("gap", [0.1, 0.01])
@pytest.mark.parametrize("n", [2, 3, 5])
def test_the_papers_instances_are_proved(n, gap):
    instance = pt.instances.paper(n)
    found = pt.nearest_kernel(instance.task, instance.kernel, np.full((n, n), 1000.0), 0.0, pt.Certified(gap=gap))
    assert found.certified
    assert found.status is pt.Status.PROVED
    assert found.lower == pytest.approx((1 - gap) * found.upper)
    assert found.certificate.verify()
    known = {2: 31.356532, 3: 244.863278, 5: 62.799474}[n]  # T* of the uniform allocation
    assert 1000 * n * n / found.upper == pytest.approx(known, rel=1e-7)
    time = pt.characteristic_time(instance.task, instance.kernel, solver=pt.Certified(gap=gap))
    assert time.certified
    assert time.bracket[0] == time.time == pytest.approx(known, rel=1e-7)
    assert time.bracket[1] == pytest.approx(time.time / (1 - gap))


@each("seed", range(60))
def test_brackets_contain_the_best_of_many_starts(seed):
    """Estimates with unseen successors and unvisited pairs, rewards on successors, both sides."""
    case = draw(seed, counts=seed % 2 == 1, on_successor=seed % 3 == 0)
    found = case.nearest(pt.Certified(gap=0.03))
    best = case.nearest(pt.ProjectionFree(starts=20))
    assert found.lower <= best.upper * (1 + 1e-9)
    assert found.upper >= found.lower
    if found.certified and 0 < found.upper < np.inf:
        assert found.lower >= 0.969 * found.upper
        assert found.certificate.verify()
    if not np.isfinite(best.upper) or best.upper == 0:
        return
    ball = pt.KLBall(case.centre, case.weights, 0.7 * best.upper)
    for sense in ("min", "max"):
        extreme = pt.extreme_value(case.task, ball, sense, pt.Certified(gap=0.05))
        known = pt.extreme_value(case.task, ball, sense, pt.ProjectionFree(starts=20))
        assert extreme.lower <= known.upper + 1e-9
        assert extreme.upper >= known.lower - 1e-9
        assert extreme.certified


@pytest.mark.parametrize("index", range(16))
def test_local_minima_do_not_deceive_it(index):
    """The descent from the centre stops too high: it is refuted with a witness, and the global minimum is proved."""
    instance, threshold = pt.instances.several_minima(index)
    task, weights = instance.task, np.full(instance.task.policy.shape, 100.0)
    local = pt.nearest_kernel(task, instance.kernel, weights, threshold)
    best = pt.nearest_kernel(task, instance.kernel, weights, threshold, pt.ProjectionFree(starts=40))
    found = pt.nearest_kernel(task, instance.kernel, weights, threshold, pt.Certified(gap=0.03, starts=1))
    assert found.certified
    assert found.lower <= best.upper * (1 + 1e-9)
    assert found.upper == pytest.approx(best.upper, rel=1e-6)
    loss = (weights.ravel() * kl_rows(instance.kernel, found.kernel)).sum()
    assert loss == pytest.approx(found.upper, rel=1e-9)
    assert loss < 0.95 * local.upper
    side = np.sign(pt.value(task, instance.kernel) - threshold)
    assert side * (pt.value(task, found.kernel) - threshold) <= 1e-12
    ball = pt.KLBall(instance.kernel, weights, 0.5 * (local.upper + best.upper))
    sense = "min" if side > 0 else "max"
    extreme = pt.extreme_value(task, ball, sense, pt.Certified(gap=0.03, starts=1))
    assert extreme.certified
    assert side * ((extreme.upper if side > 0 else extreme.lower) - threshold) < 0


@pytest.mark.parametrize("name", ["first box", "tightened"])
@pytest.mark.parametrize("seed", range(6))
def test_the_relaxation_is_solved_like_a_general_solver_does(seed, name):
    """An interior-point solver on the conic form of the relaxation, against Newton's method on its dual."""
    pytest.importorskip("clarabel")
    from conic import least_loss

    case = draw(seed, counts=seed % 2 == 1, on_successor=seed % 3 == 0)
    problem = lay_out(case.task, case.centre, case.weights)
    sign = 1.0 if pt.value(case.task, case.centre) > case.threshold else -1.0
    near = problem.nearest(sign, case.threshold)
    found = case.nearest(pt.ProjectionFree(starts=8))
    if not 0 < found.upper < np.inf:
        pytest.skip("the distance is 0 or infinite")
    search = ClaimSearch(near, case.threshold, 0.97 * found.upper, found)
    low, high = search.claim.first_box()
    if name == "tightened":
        mine = pt.occupancy(case.task, found.kernel)
        low, high = np.maximum(low, 0.8 * mine), np.minimum(high, 1.2 * mine)
    for kind in (np.zeros(len(low), dtype=np.int64), np.where(low > 0, CHORD, PERSPECTIVE)):
        tau = 0.1 * search.claim.level / search.S
        box, theta = dual.Box(low, high, kind, 0.0 * low, 0.0), search._first_theta()
        dual.maximise_dual(search.relaxation, box, False, tau, 1e-5 * tau, theta, 200)
        bound = dual_bound(search.claim, low, high, kind, 0.0 * low, 0.0, theta)
        other = least_loss(search.claim, low, high, kind)
        if np.isfinite(other):  # where the other solver is sure
            assert bound <= other + 1e-6 * search.claim.level
            assert bound >= other - 1e-3 * search.claim.level
            more = least_loss(search.claim, low, high, kind, second_mccormick=True)
            assert np.isnan(more) or more >= other - 1e-6 * search.claim.level


def test_every_state_may_follow_where_no_support_is_declared():
    """Sparse estimates without declared support: mass on unseen successors is part of the ball."""
    rng = np.random.default_rng(1)
    task = pt.Task(rng.normal(size=(6, 2)), np.full((6, 2), 0.5), np.full(6, 1 / 6), 0.8)
    dense = np.zeros((6, 2, 6))
    for s, a in np.ndindex(6, 2):
        dense[s, a, rng.choice(6, 2, replace=False)] = 0.5
    kernel = sparse.csr_array(dense.reshape(12, 6))
    threshold = pt.value(task, dense) - 0.2 * (pt.value(task, dense) - pt.value_range(task)[0])
    found = pt.nearest_kernel(task, kernel, np.full((6, 2), 50.0), threshold, pt.Certified())
    same = pt.nearest_kernel(task, dense, np.full((6, 2), 50.0), threshold, pt.Certified())
    assert found.certified
    assert found.upper == pytest.approx(same.upper, rel=1e-6)
    assert found.certificate.verify()
    assert len(found.certificate.counts) == 72


def test_tasks_too_large_for_a_proof_are_left_unproved():
    instance = pt.instances.random(0, 500, 1, successors=2)
    task = instance.task
    threshold = pt.value(task, instance.kernel) - 0.1 * (pt.value(task, instance.kernel) - pt.value_range(task)[0])
    found = pt.nearest_kernel(task, instance.kernel, np.full((500, 1), 50.0), threshold, pt.Certified())
    assert (found.certified, found.lower, found.certificate) == (False, 0.0, None)
    assert found.status is pt.Status.LOOSE


def certificate():
    instance = pt.instances.paper(3)
    found = pt.nearest_kernel(instance.task, instance.kernel, np.full((3, 3), 500.0), 0.0, pt.Certified(gap=0.02))
    return found.certificate


def test_what_was_tampered_with_is_rejected():
    genuine = certificate()
    assert genuine.verify()
    assert not replace(genuine, level=1.05 * genuine.level).verify()  # more than was proved
    assert not replace(genuine, steps=genuine.steps[:-1]).verify()
    assert not replace(genuine, steps=()).verify()
    assert not replace(genuine, steps=(*genuine.steps, genuine.steps[-1])).verify()
    assert not replace(genuine, threshold=genuine.threshold + 0.02).verify()
    assert not replace(genuine, counts=0.9 * genuine.counts, visits=0.9 * genuine.visits).verify()
    assert not replace(genuine, sign=-genuine.sign).verify()
    assert not replace(genuine, discount=0.95).verify()
    for index in range(len(genuine.steps)):
        step = genuine.steps[index]
        for factor in (-1.0, 0.0, np.nan, 1e-3):
            changed = list(genuine.steps)
            changed[index] = replace(step, theta=factor * step.theta)
            if step.action != SPLIT:
                assert not replace(genuine, steps=tuple(changed)).verify(), (index, factor)
        if step.action != SPLIT:
            changed[index] = replace(step, bound=step.bound * (0.99 if step.action == UPPER else 1.01))
            assert not replace(genuine, steps=tuple(changed)).verify(), index
    other = pt.instances.paper(3)  # another instance's proof proves nothing here
    found = pt.nearest_kernel(other.task, other.kernel, np.full((3, 3), 500.0), 0.03, pt.Certified(gap=0.02))
    assert found.certificate.verify()
    assert not replace(genuine, steps=found.certificate.steps).verify()


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e12])
def test_units_do_not_matter(unit):
    instance = pt.instances.paper(2)
    found = pt.nearest_kernel(instance.task, instance.kernel, np.full((2, 2), unit), 0.0, pt.Certified())
    assert found.certified
    assert found.upper == pytest.approx(4 * unit / 31.356532, rel=1e-6)


def test_too_few_nodes_leave_a_weaker_bound():
    instance = pt.instances.paper(5)
    weights = np.full((5, 5), 1000.0)
    found = pt.nearest_kernel(instance.task, instance.kernel, weights, 0.0, pt.Certified(gap=1e-3, max_nodes=1))
    assert not found.certified
    assert found.certificate is None
    assert 0.9 * found.upper < found.lower < found.upper


def test_a_solver_that_fails_proves_nothing(monkeypatch):
    """Whatever Newton's method and the responses return, only what the closed formula says counts."""
    genuine = dual.maximise_dual

    def nonsense(*arguments):
        genuine(*arguments)
        theta = arguments[-2]
        theta[:] = np.random.default_rng(0).normal(size=len(theta)) * 1e3
        return True, 1, None

    def overstated(claim, box, *arguments):
        """Claims that every upper end is below the lower one, by dual variables that prove no such thing."""
        arguments[-1][:] = np.abs(np.random.default_rng(0).normal(size=arguments[-1].shape))
        box.high[0] = 0.5 * box.low[0]
        return [(1, 0, box.high[0])]

    instance = pt.instances.paper(2)
    for maximise, tighten in ((nonsense, overstated), (genuine, overstated), (nonsense, lambda *_: [])):
        monkeypatch.setattr(dual, "maximise_dual", maximise)
        monkeypatch.setattr(dual, "tighten", tighten)
        solver = pt.Certified(gap=0.001, max_nodes=5)
        found = pt.nearest_kernel(instance.task, instance.kernel, np.full((2, 2), 100.0), 0.0, solver)
        assert not found.certified
        assert found.certificate is None
        assert found.lower <= found.upper


def test_a_sparse_task_of_fifty_states_is_proved_without_a_cut():
    instance = pt.instances.random(50, 50, 2, successors=3)
    value, (low, _) = pt.value(instance.task, instance.kernel), pt.value_range(instance.task)
    question = instance.task, instance.kernel, np.full((50, 2), 1000.0), value - 0.05 * (value - low)
    found = pt.nearest_kernel(*question, pt.Certified(gap=0.05, max_nodes=1))
    assert found.certified
    assert found.certificate.verify()
    assert found.lower <= pt.nearest_kernel(*question, pt.ProjectionFree(starts=8)).upper


@numba.njit
def proved(relaxation, box, theta, point):
    """What only compiled code can call."""
    return dual._proved(relaxation, box, theta, point)


@each("seed", range(40))
def test_the_compiled_bound_is_the_one_that_is_verified(seed):
    """`dual._proved` and `certificate.dual_bound`, on boxes and dual variables of all sizes, both relaxations."""
    case = draw(seed, counts=seed % 2 == 1, on_successor=seed % 3 == 0)
    found = case.nearest(pt.ProjectionFree())
    if not 0 < found.upper < np.inf:
        return
    sign = 1.0 if pt.value(case.task, case.centre) > case.threshold else -1.0
    near = lay_out(case.task, case.centre, case.weights).nearest(sign, case.threshold)
    search, rng = ClaimSearch(near, case.threshold, 0.9 * found.upper, found), np.random.default_rng(seed)
    low, high = search.claim.first_box()
    point = dual.Point(np.zeros(search.S), np.zeros(search.S), np.zeros(0), np.zeros(0))
    for narrow in (0.0, 0.5, 0.99):
        mine = pt.occupancy(case.task, found.kernel)
        low, high = np.maximum(low, narrow * mine), np.minimum(high, mine / max(narrow, 1e-3))
        kind = np.where((low > 0) & (rng.random(search.S) < 0.5), CHORD, PERSPECTIVE)
        for scale in (1e-6, 1.0, 1e6):
            theta = search._first_theta() * rng.uniform(0.9, 1.1) * scale
            aim = rng.normal(size=search.S) * scale
            plain = dual_bound(search.claim, low, high, kind, aim, search.claim.level, theta)
            box = dual.Box(low, high, kind.astype(np.int64), aim, search.claim.level)
            compiled = proved(search.relaxation, box, theta, point)
            assert compiled == pytest.approx(plain, rel=1e-9, abs=1e-9 * scale)


@pytest.mark.parametrize("discount", [0.99, 0.999])
def test_long_horizons(discount):
    rng = np.random.default_rng(3)
    kernel = rng.dirichlet(np.ones(3), size=(3, 2))
    task = pt.Task(rng.normal(size=(3, 2)), np.full((3, 2), 0.5), np.full(3, 1 / 3), discount)
    threshold = pt.value(task, kernel) - 0.1 * (pt.value(task, kernel) - pt.value_range(task)[0])
    found = pt.nearest_kernel(task, kernel, np.full((3, 2), 100.0), threshold, pt.Certified(gap=0.05))
    many = pt.nearest_kernel(task, kernel, np.full((3, 2), 100.0), threshold, pt.ProjectionFree(starts=20))
    assert found.lower <= many.upper <= found.upper * (1 + 1e-9)


def test_a_test_answers_with_a_proof():
    instance = pt.instances.paper(2)
    sim = pt.TabularSimulator(instance.kernel)
    for threshold, answer in ((0.0, "above"), (0.5, "below")):
        proved = pt.decide(instance.task, sim, threshold, method=pt.PTST())
        found = pt.decide(instance.task, sim, threshold, method=pt.PTST(solver=pt.ProjectionFree()))
        assert (proved.answer, proved.certified) == (answer, True)
        assert (found.answer, found.certified) == (answer, False)
        assert found.samples <= proved.samples <= 1.1 * found.samples
        assert proved.certificate is not None
        assert proved.verify()
        assert not found.verify()
        assert proved.proof_samples == proved.samples - found.samples
        other = pt.decide(instance.task, sim, threshold, method=pt.PTST(), rng=1)
        assert not replace(proved, proof=other.proof).verify()
        assert not replace(proved, counts=other.counts).verify()
        assert not replace(proved, delta=0.01).verify()
        assert not replace(proved, threshold=threshold + 0.01).verify()
        assert not replace(proved, answer="below" if answer == "above" else "above").verify()
        impossible = np.array(proved.counts.N)
        assert proved.certificate.about(proved.task, impossible, threshold)
        assert not proved.certificate.about(proved.task, impossible + 1, threshold)
        richer = replace(proved.task, rewards=proved.task.rewards + 0.01)
        assert not replace(proved, task=richer).verify()


@pytest.mark.parametrize("nodes", [1, 200])
def test_where_a_proof_is_hard_it_costs_samples_never_the_guarantee(nodes):
    """With one node an attempt the proof comes later, but it comes."""
    instance = pt.instances.random(3, 6, 2)
    sim, task = pt.TabularSimulator(instance.kernel), instance.task
    value, (low, _) = pt.value(task, instance.kernel), pt.value_range(task)
    threshold = value - 0.4 * (value - low)
    plain = pt.decide(task, sim, threshold, method=pt.PTST(solver=pt.ProjectionFree()))
    proved = pt.decide(task, sim, threshold, method=pt.PTST(solver=pt.Certified(max_nodes=nodes)))
    assert (plain.answer, proved.answer, proved.certified) == ("above", "above", True)
    assert plain.samples <= proved.samples <= 3 * plain.samples
    assert proved.verify()


def test_a_certificate_survives_the_disk(tmp_path):
    genuine = certificate()
    genuine.save(tmp_path / "proof.npz")
    again = pt.Certificate.load(tmp_path / "proof.npz")
    assert again.verify()
    assert again.level * again.unit == genuine.level * genuine.unit
    assert len(again.steps) == len(genuine.steps)
    whole = (tmp_path / "proof.npz").read_bytes()
    (tmp_path / "half.npz").write_bytes(whole[: len(whole) // 2])
    for name in ("half.npz", "none.npz"):
        with pytest.raises(pt.InputError, match=name):
            pt.Certificate.load(tmp_path / name)


def test_nonsense_and_forgeries_are_not_a_proof():
    """Also numbers so small that margins underflow, arrays of low precision, an invalid policy, an invalid index."""
    genuine = certificate()
    rows, level, last = genuine.rows, 1.05 * genuine.level, genuine.steps[-1]
    tiny = [replace(last, theta=last.theta * s / last.theta.max(), bound=0.0) for s in (1e-290, 1e-310, 1e-321)]
    nonsense = [
        *(replace(genuine, level=level, steps=(*genuine.steps[:-1], step)) for step in tiny),
        replace(genuine, counts=genuine.counts.astype(np.float32)),
        replace(genuine, rows=rows._replace(prob=1.11 * rows.prob)),
        replace(genuine, initial=1.2 * genuine.initial),
        replace(genuine, steps=tuple(replace(step, state=True) for step in genuine.steps)),
        replace(genuine, steps=tuple(replace(step, bound=10**400) for step in genuine.steps)),
        replace(genuine, counts=genuine.counts[:-1]),
        replace(genuine, counts=-genuine.counts),
        replace(genuine, counts=genuine.counts * np.nan),
        replace(genuine, visits=2 * genuine.visits),
        replace(genuine, discount=1.0),
        replace(genuine, level=np.nan),
        replace(genuine, level=-1.0),
        replace(genuine, sign=0.0),
        replace(genuine, initial=genuine.initial[:-1]),
        replace(genuine, rows=rows._replace(successor=rows.successor + 5)),
        replace(genuine, rows=rows._replace(start=rows.start[::-1])),
        replace(genuine, steps=tuple(replace(step, state=99) for step in genuine.steps)),
        replace(genuine, steps=tuple(replace(step, state=-1) for step in genuine.steps)),
        replace(genuine, steps=tuple(replace(step, kind=step.kind + 7) for step in genuine.steps)),
        replace(genuine, steps=tuple(replace(step, theta=step.theta[:-1]) for step in genuine.steps)),
        replace(genuine, steps=tuple(replace(step, action=9) for step in genuine.steps)),
    ]
    assert [index for index, changed in enumerate(nonsense) if changed.verify()] == []
