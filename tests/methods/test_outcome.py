"""A success in place of the return: the right rewards and the right info, in every kind of episodes, and the words."""

from __future__ import annotations

import functools
import math
import pickle
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import policytest as pt
from builders import assert_refused, each
from episode_envs import Lasting, Scored, vector
from policytest.data.vector_walks import VectorWalk, row_info
from policytest.payoffs.parallel_returns import pickled_player
from policytest.payoffs.returns import WholeEpisodes
from policytest.results.load import read

MODES = ("NEXT_STEP", "SAME_STEP", "DISABLED")
RUNS, DELTA, ALARM = 80, 0.2, 1e-6


def still(observation):
    return 0


def agrees(rewards, info):
    """Whether these are the rewards that the info of the last step speaks of."""
    assert isinstance(rewards, np.ndarray)
    assert "begins" not in info
    same = np.isclose(rewards.sum(), info["total"]) and rewards[0] == info["nested"]["first"]
    return bool(same and len(rewards) == info["steps"])


def solved(rewards, info):
    return info["is_success"]


def trial(rng):
    return rng.standard_cauchy(), {"is_success": rng.random() < 0.7}


def success(env=None, **settings):
    return pt.Episodes(Scored() if env is None else env, still, outcome="is_success", **settings)


# ---------------------------------------------------------------- the right numbers


@each("horizon", [None, 3])
def test_an_outcome_is_of_all_rewards_and_of_the_info_of_the_last_step(horizon):
    about = {"outcome": agrees, "return_range": (0, 1), "horizon": horizon}
    checked = [pt.Episodes(Scored(), still, **about)]
    checked += [pt.Episodes(vector(mode, 3, Scored), still, **about) for mode in MODES]
    for episodes in checked:
        verdict = pt.decide(episodes, threshold=0.95, delta=1e-4)
        assert verdict.answer == "above"
        assert (verdict.counts.returns == 1).all()
        assert horizon is None or verdict.counts.steps.max() == horizon


def test_the_info_of_the_next_episode_would_be_noticed(monkeypatch):
    monkeypatch.setattr(VectorWalk, "last_info", lambda walk, row, ended: row_info(walk.infos, row))
    episodes = pt.Episodes(vector("SAME_STEP", 3, Scored), still, outcome=agrees, return_range=(0, 1))
    with pytest.raises(AssertionError, match="begins"):
        pt.decide(episodes, threshold=0.95)


def test_a_success_is_what_the_info_says_alone_and_in_vectors():
    estimates = []
    for env in (Scored(), *(vector(mode, 4, Scored) for mode in MODES)):
        verdict = pt.decide(success(env), threshold=0.3, rng=3)
        assert (verdict.answer, verdict.certified) == ("above", True)
        assert set(verdict.counts.returns) == {0.0, 1.0}
        estimates.append(pt.evaluate(success(env), epsilon=0.08, rng=4).value)
    assert np.allclose(estimates, 0.5, atol=0.08)


@each("level", [1, 3, 6])
def test_the_probability_of_a_return(level):
    truth = 0.75 ** (level - 1)
    for outcome, value in ((pt.at_least(level), truth), (pt.at_most(level - 1), 1 - truth)):
        found = pt.evaluate(pt.Episodes(Lasting(), still, outcome=outcome), epsilon=0.1, rng=level)
        assert found.certified
        assert abs(found.value - value) <= 0.1


def test_a_sum_is_rounded_once():
    assert pt.at_least(300)([0.3] * 1000) == 1.0
    assert np.sum(np.full(1000, 0.1)) != 100.0 == pytest.approx(np.sum(np.full(1000, 0.1)))
    assert pt.at_least(100)([0.1] * 1000) == pt.at_most(100)([0.1] * 1000) == 1.0


def wrong_answers(threshold):
    """Answers "above" about returns without a mean, of which half are positive."""
    cauchy = pt.Episodes(lambda rng: rng.standard_cauchy(), outcome=pt.at_least(0))
    answers = [pt.decide(cauchy, threshold=threshold, delta=DELTA, rng=k, max_samples=40).answer for k in range(RUNS)]
    return answers.count("above")


def test_delta_is_kept_whatever_the_returns_are_and_the_test_would_notice():
    most = stats.binom.ppf(1 - ALARM, RUNS, DELTA)
    assert 0 < wrong_answers(0.5) <= most
    assert wrong_answers(0.25) > most


def test_rows_of_infos():
    infos = {
        "a": np.array([1, 2]),
        "_a": np.array([True, False]),
        "episode": {"r": np.array([5.0, 6.0]), "_r": np.array([False, True]), "l": [3, 4]},
        "_episode": np.array([True, True]),
        "same": "for all",
        "_own": np.array([7, 8]),
    }
    assert row_info(infos, 0) == {"a": 1, "episode": {"l": 3}, "same": "for all", "_own": 7}
    assert row_info(infos, 1) == {"episode": {"r": 6.0, "l": 4}, "same": "for all", "_own": 8}
    assert row_info([{"a": 1}, {"b": 2}], 1) == {"b": 2}


# ---------------------------------------------------------------- everything that takes episodes


def test_processes_pairs_plans_and_pauses(tmp_path):
    coin = pt.Episodes(trial, outcome="is_success")
    for outcome in ("is_success", pt.at_least(0), lambda rewards, info: info["is_success"]):
        here = WholeEpisodes(replace(coin, outcome=outcome, return_range=(0, 1)))
        there = pickle.loads(pickled_player(here))()  # as in another process
        assert [there(seed, None, math.inf) for seed in range(9)] == [here.run(seed, None) for seed in range(9)]
    worse = pt.Episodes(lambda rng: (0.0, {"is_success": rng.random() < 0.2}), outcome="is_success")
    compared = pt.compare(coin, worse)
    assert (compared.answer, compared.certified) == ("above", True)
    assert "success" in str(compared)
    assert pt.plan(coin, threshold=0.5, rng=1, runs=20).samples
    part = pt.decide(coin, threshold=0.65, max_samples=10, checkpoint=tmp_path / "run.npz")
    whole = pt.decide(coin, threshold=0.65, max_samples=40)
    again = pt.decide(coin, threshold=0.65, max_samples=40, resume=tmp_path / "run.npz")
    assert part.answer is None
    assert again.evidence == whole.evidence
    for other in ("success", pt.at_least(0), solved):
        changed = replace(coin, outcome=other, return_range=(0, 1))
        assert_refused(lambda changed=changed: pt.decide(changed, threshold=0.65, resume=part), "another task")


def test_a_study_of_outcomes(tmp_path):
    asked = {"outcome": "is_success", "threshold": 0.5, "episodes": f"python:{__name__}:trial"}
    spec = {"instances": {"coin": asked}, "methods": ["returns"], "deltas": [0.05], "seeds": 3}
    assert set(pt.study.run(spec, store=tmp_path / "study").column("answer")) == {"above"}


def test_outcomes_are_small_values():
    assert repr(pt.at_least(200)) == "at_least(200)"
    assert pt.at_least(200) == pt.at_least(200.0) != pt.at_most(200)
    assert pickle.loads(pickle.dumps(pt.at_least(0.5))) == pt.at_least(0.5)
    assert replace(success(), horizon=5).bounds == (0.0, 1.0)
    assert pt.Episodes(trial, outcome=solved, return_range=(0, 1)).bounds == (0.0, 1.0)
    assert pt.Episodes(trial, outcome="credit", return_range=(0, 10)).bounds == (0.0, 10.0)


class Halved:
    """A callable that says all itself."""

    name, words, range = "mean half", "half a reward", (0.0, 0.5)

    def __call__(self, rewards, info):
        return 0.5 * rewards.sum()


@each(
    ("outcome", "words", "sentence"),
    [
        (
            pt.at_least(200),
            "probability that the return is at least 200",
            "1 if the sum of its rewards is at least 200",
        ),
        ("at most 1e4", "probability that the return is at most 10,000", "at most 10,000, else 0"),
        ("is_success", "mean is_success", "is_success in the info of its last step, between 0 and 1"),
        (solved, "mean solved", "what solved says of its rewards and info"),
        (lambda rewards, info: 0.5, "mean outcome", "what the function says"),
        (functools.partial(lambda x, rewards, info: x, 0.5), "mean outcome", "what the function says"),
        (Halved(), "mean half", "half a reward, between 0 and 0.5"),
    ],
)
def test_words(outcome, words, sentence):
    needs = not isinstance(outcome, str | type(pt.at_least(0)) | Halved)
    run = pt.Episodes(
        lambda rng: (rng.random(), {"is_success": 1}), outcome=outcome, return_range=(0, 1) if needs else None
    )
    verdict = pt.decide(run, threshold=0.25, max_samples=5)
    assert f"{words}, estimated" in str(verdict)
    assert f"each with the same {words}" in " ".join(verdict.task.assumptions)
    assert any(sentence in told for told in pt.report.story.sentences.asked(verdict))


def test_results_never_speak_of_a_mean_return(tmp_path):
    verdict = pt.decide(pt.Episodes(Lasting(), still, outcome=pt.at_least(3)), threshold=0.3)
    words = "probability that the return is at least 3"
    assert str(verdict).startswith(f"The {words} is above the threshold (certified)")
    (tmp_path / "verdict.json").write_text(verdict.to_json(), encoding="utf-8")
    saved = read(tmp_path / "verdict.json")
    assert str(saved) == str(verdict)
    for number, one in enumerate((verdict, saved)):
        pt.report.write(one, page := tmp_path / f"{number}.html")
        told = page.read_text(encoding="utf-8")
        assert words in told
        assert "mean return" not in told
        assert "The outcomes of the episodes" in told


# ---------------------------------------------------------------- what is refused


@each(
    ("settings", "fragments"),
    [
        ({"outcome": 5}, ("outcome is 5", "a key of the info")),
        ({"outcome": dict}, ("outcome is", "pt.at_least(200)")),
        ({"outcome": ""}, ("outcome is ''",)),
        ({"outcome": "200"}, ("outcome is '200'", '"at least 200"')),
        ({"outcome": "at least"}, ("outcome is 'at least'", '"at least 200"')),
        ({"outcome": "at leest 200"}, ("outcome is 'at leest 200'", '"at least 200"')),
        ({"outcome": ">= 200"}, ("outcome is '>= 200'", '"at least 200"')),
        ({"outcome": "at least many"}, ("at least many", "a number after")),
        ({"outcome": "at least nan"}, ("at least nan",)),
        ({"outcome": lambda rewards: 0.0}, ("outcome is called with (rewards, info)",)),
        (
            {"outcome": pt.at_least(0), "return_range": (-5, 5)},
            ("return_range is (-5.0, 5.0)", "leave return_range out"),
        ),
        ({"outcome": pt.at_least(0), "discount": 0.9}, ("discount is 0.9", "leave discount out")),
    ],
)
def test_what_is_not_an_outcome_is_refused(settings, fragments):
    assert_refused(lambda: pt.Episodes(trial, **settings), *fragments)


def test_an_outcome_goes_neither_with_a_critic_nor_with_a_score():
    assert_refused(lambda: success(critic=lambda observation: 0.0), "critic", "leave one out")
    score = type("Score", (), {"name": "x", "room": 1.0, "of": abs, "estimate": abs})()
    assert_refused(lambda: success(score=score), "score", "leave one out")
    assert_refused(lambda: pt.at_least("many"), "level")


@each(
    ("outcome", "fragments"),
    [
        ("solved", ("no key 'solved'", "its keys are 'total', 'steps', 'nested', 'is_success', 'words'")),
        ("words", ("outcome of the episode with seed", "'over'", "finite number")),
        ("steps", ("outside return_range (0, 1)", "outcome of episode 1 (seed ")),
        (lambda rewards, info: None, ("is None",)),
        (lambda rewards, info: np.inf, ("is inf",)),
    ],
)
def test_outcomes_that_are_not_numbers_in_their_range_end_the_run(outcome, fragments):
    given = {} if isinstance(outcome, str) else {"return_range": (0, 1)}
    episodes = pt.Episodes(Scored(), still, outcome=outcome, **given)
    assert_refused(lambda: pt.decide(episodes, threshold=0.9999, max_samples=1000), *fragments)


def test_infos_that_are_not_there():
    assert_refused(lambda: pt.decide(pt.Episodes(lambda rng: 1.0, outcome="x"), threshold=0.5), "no key 'x'", "empty")
    empty = pt.Episodes(lambda rng: ([], {"x": True}), outcome="x")
    assert pt.decide(empty, threshold=0.5).answer == "above"


def test_only_the_same_outcomes_are_compared():
    one = pt.Episodes(trial, outcome="is_success")
    for other in (replace(one, outcome=pt.at_least(0)), replace(one, outcome=None, return_range=(0, 1))):
        assert_refused(lambda other=other: pt.compare(one, other), "task_a.outcome is 'is_success'", "pass the same")
    assert_refused(
        lambda: pt.compare(*(replace(one, outcome=f, return_range=(0, 1)) for f in (solved, agrees))), "task_b.outcome"
    )
