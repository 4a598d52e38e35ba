"""Recorded episodes: every path of small trees is listed, so that means and bounds are exact; columns are checked."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest

import policytest as pt
from builders import each
from policytest._base.compiled.weights import CriticRows, doubly_robust
from policytest.results.estimate import Interval
from policytest.results.load import from_data

INF = math.inf


class Path(NamedTuple):
    """An episode that can happen: its probability where mu draws, where pi draws, and its rows."""

    logged: float
    asked: float
    rows: tuple[tuple[float, ...], ...]  # reward, propensity, target, q, v


def tree(seed: int, H: int, low: float, high: float, discount: float) -> list[Path]:
    """All paths of a process that remembers all that happened; q is any guess within what can still be earned."""
    rng = np.random.default_rng(seed)

    def left(t: int) -> tuple[float, float]:
        rest = sum(discount**u for u in range(1, H - t))
        first = t == 0
        least, most = min(low, 0.0), max(high, 0.0)
        return (low if first else least) + least * rest, (high if first else most) + most * rest

    def grow(t: int, logged: float, asked: float, rows: Any) -> list[Path]:
        A = int(rng.integers(2, 4))
        mu, pi = rng.dirichlet(np.ones(A)), rng.dirichlet(0.5 * np.ones(A))
        pi = np.eye(A)[rng.integers(A)] if rng.random() < 0.3 else pi
        q = rng.uniform(*left(t), A)
        found = []
        for a in range(A):
            for r, p in zip((low, high, rng.uniform(low, high)), (0.3, 0.2, 0.5), strict=True):
                new = (*rows, (r, mu[a], pi[a], q[a], float(pi @ q), mu.min()))
                ends = 1.0 if t + 1 == H else rng.choice([0.0, 0.4])
                here = logged * mu[a] * p, asked * pi[a] * p
                if ends > 0:
                    found.append(Path(here[0] * ends, here[1] * ends, new))
                if ends < 1:
                    found += grow(t + 1, here[0] * (1 - ends), here[1] * (1 - ends), new)
        return found

    return grow(0, 1.0, 1.0, ())


def logged(paths: list[Path], weighted: bool = True, critics: bool = False, **about: Any) -> pt.LoggedEpisodes:
    """The paths as a log, an episode each."""
    rows = np.array([row for path in paths for row in path.rows])
    episode = np.repeat(np.arange(len(paths)), [len(path.rows) for path in paths])
    columns: dict[str, Any] = {"propensity": rows[:, 1], "target": rows[:, 2]} if weighted else {}
    if critics:
        columns |= {"q": rows[:, 3], "v": rows[:, 4], "smallest_propensity": rows[:, 5]}
    return pt.LoggedEpisodes(episode, rows[:, 0], **columns, **about)


def returns(paths: list[Path], discount: float) -> np.ndarray:
    return np.array([sum(discount**t * row[0] for t, row in enumerate(path.rows)) for path in paths])


CASES = [
    (H, low, high, discount)
    for H in (1, 2, 3)
    for low, high in ((0.0, 1.0), (-1.0, 2.0), (0.5, 2.0), (-2.0, -0.5), (0.0, 0.0))
    for discount in (1.0, 0.7, 0.0)
]


@each(("H", "low", "high", "discount"), CASES)
def test_the_mean_is_the_value_and_the_bounds_hold_on_every_path(H, low, high, discount):
    paths = tree(H, H, low, high, discount)
    G = returns(paths, discount)
    logs, asks = (np.array([getattr(path, name) for path in paths]) for name in ("logged", "asked"))
    V, about = float(asks @ G), {"discount": discount, "reward_range": (low, high)}
    reachable = float(G.min()), float(G.max())
    for horizon in (H, H + 3) if discount == 1.0 else (H, H + 3, None):
        for return_range in (None, reachable, (reachable[0], INF), (-INF, reachable[1])):
            log = logged(paths, horizon=horizon, return_range=return_range, **about)
            found = log.outcomes
            assert logs @ found.above == pytest.approx(V, abs=1e-12)
            assert logs @ found.below == pytest.approx(V, abs=1e-12)
            assert logs @ found.weights == pytest.approx(1.0)
            assert logs @ found.estimates == pytest.approx(V, abs=1e-12)
            assert (found.above >= log.bounds[0]).all()
            assert (found.below <= log.bounds[1]).all()
            itself = logged(paths, False, horizon=horizon, return_range=return_range, **about)
            np.testing.assert_allclose(itself.outcomes.above, G, atol=1e-12)
            np.testing.assert_allclose(itself.outcomes.below, G, atol=1e-12)


def test_the_bounds_are_those_that_some_path_can_reach():
    """Low is the return of a path in every tree that has one of least rewards; a smaller range would be wrong."""
    for H, low, high, discount in CASES:
        G = returns(tree(H, H, low, high, discount), discount)
        log = logged(tree(H, H, low, high, discount), discount=discount, horizon=H, reward_range=(low, high))
        assert log.bounds[0] <= G.min() + 1e-12
        assert log.bounds[1] >= G.max() - 1e-12
        if low <= 0 <= high or H == 1:
            assert log.bounds == pytest.approx((G.min(), G.max()))


@each(("H", "low", "high", "discount"), [case for case in CASES if case[1] < case[2]])
def test_doubly_robust_outcomes_keep_the_mean_and_the_slack(H, low, high, discount):
    paths = tree(H + 7, H, low, high, discount)
    logs, asks = (np.array([getattr(path, name) for path in paths]) for name in ("logged", "asked"))
    V = float(asks @ returns(paths, discount))
    log = logged(paths, critics=True, discount=discount, horizon=H + 1 if H > 1 else H, reward_range=(low, high))
    rows = CriticRows(log.start, log.reward, log.ratio, log.q, log.v, 1.0 / log.smallest_propensity, log.reward_scale)
    spent = []
    for sign, bound in ((1.0, log.bounds[0]), (-1.0, log.bounds[1])):
        for slack in (0.0, 0.1, 1.0, 10.0, 1e3, INF):
            Z = doubly_robust(rows, sign, slack)
            assert logs @ Z == pytest.approx(V, abs=1e-9)
            assert (sign * (Z - bound) >= -slack - 1e-9).all()
            spent.append(float((sign * (Z - bound)).min()) < -1e-9)
        if H == 1:  # without slack nothing can be subtracted at the first step
            plain = log.outcomes.above if sign > 0 else log.outcomes.below
            np.testing.assert_allclose(doubly_robust(rows, sign, 0.0), plain, atol=1e-9 * (1 + np.abs(plain).max()))
    assert any(spent)  # the rule is put to the test: some slack is spent


def test_a_critic_that_knows_the_values_removes_the_noise_of_weights():
    """With q exact and rewards that follow from the action, the estimator is the same number on each path: V."""
    pi, mu, r = np.array([0.7, 0.2, 0.1]), np.array([0.1, 0.3, 0.6]), np.array([0.9, 0.2, 0.5])
    log = pt.LoggedEpisodes(None, r, mu, pi, reward_range=(0, 1), q=r, v=np.full(3, pi @ r), smallest_propensity=0.1)
    rows = CriticRows(log.start, log.reward, log.ratio, log.q, log.v, 1.0 / log.smallest_propensity, log.reward_scale)
    np.testing.assert_allclose(doubly_robust(rows, 1.0, INF), pi @ r)


def test_without_a_bound_of_the_weights_a_critic_breaks_the_bound():
    """Why ``smallest_propensity`` is asked for: declared too large, some path falls below the bound, and is refused."""
    paths = tree(3, 1, 0.0, 1.0, 1.0)
    log = logged(paths, critics=True, horizon=1, reward_range=(0.0, 1.0))
    wrong = np.full(len(log), 1.05)  # 1/smallest propensity
    rows = CriticRows(log.start, log.reward, log.ratio, log.q, log.v, wrong, log.reward_scale)
    assert doubly_robust(rows, 1.0, 10.0).min() < -0.1
    with pytest.raises(pt.InputError, match="smallest_propensity does not hold in episode 3 of these"):
        doubly_robust(rows, 1.0, 0.1)  # cut off at -0.1 its mean would be above V


def test_a_bound_that_the_columns_contradict_after_they_were_checked_is_refused_at_work():
    log = pt.LoggedEpisodes(None, **BANDIT, smallest_propensity=0.05, reward_range=(0, 1))
    log.smallest_propensity[:] = 0.9
    with pytest.raises(pt.InputError, match="smallest_propensity does not hold in episode"):
        pt.assess(log, threshold=0.5)


def test_what_is_off_by_rounding_is_put_right():
    """Columns of 32 bits; q and v at the ends of what they may be, a little beyond."""
    single = {name: np.float32(column) for name, column in BANDIT.items()}
    assert pt.LoggedEpisodes(None, **single, smallest_propensity=0.05, reward_range=(0, 1)).n_episodes == 100
    assert pt.LoggedEpisodes(None, [1], [np.float32(0.99)], [0.5], smallest_propensity=0.01, reward_range=(0, 1))
    about = {"q": BANDIT["target"] * (1 + 1e-10), "v": np.full(100, 1 - 1e-10)}
    log = pt.LoggedEpisodes(None, **BANDIT, **about, smallest_propensity=0.05, reward_range=(0, 1))
    assert log.q.max() == 1.0
    assert (log.target * log.q <= log.v).all()


def test_rows_of_episodes_may_be_interleaved_and_ids_of_any_kind():
    rng = np.random.default_rng(0)
    code = rng.integers(0, 20, 200)
    reward, mu, pi = rng.random(200), rng.uniform(0.1, 1, 200), rng.random(200)
    about = {"horizon": 100, "reward_range": (0, 1)}
    expected: dict[int, list[int]] = {}
    for row, one in enumerate(code):
        expected.setdefault(int(one), []).append(row)
    order = np.concatenate(list(expected.values()))
    together = pt.LoggedEpisodes(code[order], reward[order], mu[order], pi[order], **about)
    names = np.array([f"visit {one}" for one in code])
    stamps = np.datetime64("2026-01-01") + code
    for ids in (code, code.astype(float), names, names.astype(object), stamps):
        log = pt.LoggedEpisodes(ids, reward, mu, pi, **about)
        for mine, other in zip(log.outcomes, together.outcomes, strict=True):
            np.testing.assert_array_equal(mine, other)
        assert list(log.steps) == [len(rows) for rows in expected.values()]
        assert log.n_episodes == 20
        assert len(log) == 200


def test_returns_that_were_added_up_elsewhere():
    log = pt.LoggedEpisodes(None, [3.0, 5.0], return_range=(0, 10), rows=[4, 6])
    assert (log.n_episodes, len(log), log.bounds) == (2, 10, (0.0, 10.0))
    assert log.outcomes.above.tolist() == [3.0, 5.0]


def test_enormous_weights_are_no_numbers_that_break():
    log = pt.LoggedEpisodes(np.zeros(400), np.ones(400), np.full(400, 0.1), np.ones(400), reward_range=(0, 1))
    assert np.isfinite(log.outcomes.above).all()
    assert log.outcomes.above[0] > 1e90
    assert math.isnan(log.outcomes.below[0])  # no horizon: returns have no upper end


BANDIT = {
    "reward": np.tile([0.0, 1.0, *[0.0] * 18], 5),
    "propensity": np.tile([0.95, 0.05, *[0.95] * 18], 5),
    "target": np.tile([0.0, 1.0, *[0.0] * 18], 5),
}
"""The rare action has the propensity 0.05, and is all that the target policy does."""
GOOD = {"episode": ["a", "a", "b"], "reward": [1, 0, 1], "horizon": 3, "reward_range": (0, 1)}
OFF = {"propensity": [0.5, 0.5, 0.8], "target": [0.1, 1.0, 0.0]}
CRITIC = OFF | {"q": [1.0, 0.5, 1.0], "v": [2.0, 0.5, 1.0], "smallest_propensity": 0.2}
REFUSED = [
    ({"propensity": [0.5, 0.5, 0.0]}, r"propensity\[2\] \(episode 'b'\) is 0; an action that was drawn had"),
    ({"propensity": [0.5, 1.5, 1.0]}, r"propensity\[1\] \(episode 'a'\) is 1.5; .* at most 1; log the one"),
    ({"propensity": [0.5, math.nan, 1.0]}, r"propensity\[1\] \(episode 'a'\) is nan"),
    ({"propensity": [0.5, None, 1.0]}, r"propensity is not an array of numbers \(propensity\[1\] is None\)"),
    ({"target": [0.5, -0.1, 1.0]}, r"target\[1\] \(episode 'a'\) is -0.1; pass the probability"),
    ({"target": [0.5, 0.1, 1.1]}, r"target\[2\] \(episode 'b'\) is 1.1"),
    ({"target": None}, "propensity is given, and target is not; pass both"),
    ({"propensity": None}, "target is given, and propensity is not; pass both"),
    ({"reward": [1, 2, 1]}, r"reward\[1\] \(episode 'a'\) is 2; it is outside reward_range \(0, 1\); declare a range"),
    ({"reward": [1, INF, 1]}, r"reward\[1\] \(episode 'a'\) is inf; every entry must be a finite number"),
    ({"reward": []}, "reward has no entries"),
    ({"episode": ["a", "b"]}, r"episode has shape \(2,\), expected \(3,\)"),
    ({"episode": ["a", None, "b"]}, r"episode\[1\] is missing"),
    ({"episode": [1.0, math.nan, 2.0]}, r"episode\[1\] is missing"),
    ({"target": [0.1, 1.0]}, r"target has shape \(2,\), expected \(3,\): one entry a row"),
    ({"horizon": 1}, r"episode 'a' has 2 rows, and the horizon is 1; fix the episode ids, pass a longer"),
    ({"horizon": 0}, "horizon is 0; it must be positive"),
    ({"horizon": 1.5}, "horizon is 1.5; it must be a whole number"),
    ({"episode": None}, "horizon is 3, and without episode each row is one; pass episode"),
    ({"discount": 1.1}, r"discount is 1.1; it must lie in \[0, 1\]"),
    ({"reward_range": (1, 0)}, r"reward_range is \(1, 0\)"),
    ({"reward_range": 3}, "reward_range is 3; pass two numbers"),
    ({"return_range": (0, 0.5)}, r"the return of episode 'a' is 1, outside return_range \(0, 0.5\); declare a range"),
    ({"return_range": (7, 9)}, "return_range is .* cannot give"),
    ({"q": [0, 0, 0]}, "q is given alone; pass both"),
    ({"rows": [1, 1, 1]}, "rows is for returns that were added up already"),
    (CRITIC | {"smallest_propensity": None}, "q and v need smallest_propensity"),
    (CRITIC | {"smallest_propensity": 0.6}, r"propensity\[0\] \(episode 'a'\) is 0.5; it is below smallest"),
    ({"smallest_propensity": 0.6}, r"propensity\[0\] \(episode 'a'\) is 0.5; it is below smallest_propensity; pass a"),
    (
        {"propensity": [0.5, 0.5, 0.7], "smallest_propensity": 0.4},
        r"propensity\[2\] \(episode 'b'\) is 0.7; it leaves less than smallest_propensity to the other actions",
    ),
    ({"propensity": None, "target": None, "smallest_propensity": 0.1}, "the log has none; pass propensity and target"),
    (CRITIC | {"horizon": None}, "q and v need a reward_range with two finite ends, and a horizon"),
    (CRITIC | {"q": [9.0, 0.5, 1.0]}, r"q\[0\] \(episode 'a'\) is 9; episodes cannot earn that"),
    (CRITIC | {"v": [2.0, 0.1, 1.0]}, r"v\[1\] \(episode 'a'\) is 0.1; it is not the mean of q"),
]


@each(("changed", "message"), REFUSED)
def test_what_is_wrong_is_refused_with_its_place_and_a_remedy(changed, message):
    with pytest.raises(pt.InputError, match=message):
        pt.LoggedEpisodes(**{**GOOD, **OFF, **changed})


def test_what_is_right_is_taken():
    assert repr(pt.LoggedEpisodes(**GOOD, **OFF)) == "LoggedEpisodes(2 episodes with propensities, 3 rows)"
    assert repr(pt.LoggedEpisodes(**GOOD)) == "LoggedEpisodes(2 episodes of the policy itself, 3 rows)"
    assert len(pt.LoggedEpisodes(**GOOD, **CRITIC).assumptions) > len(pt.LoggedEpisodes(**GOOD, **OFF).assumptions)


def test_the_bound_is_an_assumption_of_every_answer():
    """In the line of the verdict that says what it rests on, and in its JSON."""
    words = "no action, logged or not, had a propensity below 0.05, which was known before the data"
    log = pt.LoggedEpisodes(None, **BANDIT, smallest_propensity=0.05, reward_range=(0, 1))
    verdict = pt.assess(log, threshold=0.01)
    assert verdict.answer == "above"
    assert words in str(verdict)
    assert words in json.loads(verdict.to_json())["assumptions"]
    each_its_own = pt.LoggedEpisodes(None, **BANDIT, smallest_propensity=[0.05, 0.04] * 50, reward_range=(0, 1))
    assert "had a propensity below the smallest_propensity of its row" in "; ".join(each_its_own.assumptions)


@pytest.mark.parametrize("critics", [{}, {"q": np.full(200, 0.5), "v": np.full(200, 0.5)}])
@pytest.mark.parametrize("bound", [0.5, 0.05])
def test_an_action_that_was_certain_leaves_nothing_to_the_others(bound, critics):
    """With mu = 1 the target's other action has the propensity 0, below any bound: it was "above", certified."""
    certain = np.arange(200) % 2 == 0
    rows = {"reward": np.where(certain, 0.0, 1.0), "propensity": np.where(certain, 1.0, 0.5)}
    about = {"target": np.full(200, 0.5), "reward_range": (0, 1), "horizon": 1}
    with pytest.raises(pt.InputError, match=r"propensity\[0\] is 1; it leaves less than smallest_propensity"):
        pt.LoggedEpisodes(None, **rows, **about, **critics, smallest_propensity=bound)
    sure = pt.LoggedEpisodes(None, **rows, **about | {"target": np.where(certain, 1.0, 0.5)}, smallest_propensity=0.5)
    assert sure.weighted  # the target takes the certain action, too


def test_an_empty_interval_certifies_nothing_and_can_be_read(tmp_path):
    """The data contradict every value, so that an assumption fails: no option accepts the answer."""
    base = pt.assess(pt.LoggedEpisodes(None, **BANDIT, smallest_propensity=0.05, reward_range=(0, 1)), threshold=0.01)
    verdict = replace(base, interval=(0.7, 0.4))
    assert (base.certified, verdict.certified, verdict.refutes_model) == (True, False, True)
    assert "the data contradict every value" in str(verdict).splitlines()[0]
    again = from_data(json.loads(verdict.to_json()))
    assert (again.certified, again.refutes_model, again.interval) == (False, True, (0.7, 0.4))
    assert "No reliable answer" in pt.report.render(again)
    assert not Interval(0.7, 0.4, True).certified
    assert Interval(0.4, 0.7, True).certified
