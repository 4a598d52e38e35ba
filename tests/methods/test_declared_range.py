"""A declared range is an assumption: it is listed, and a return outside it ends the run, or its certificate."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest

import policytest as pt
from builders import assert_refused, each
from episode_envs import Lasting, vector
from policytest.payoffs.parallel_returns import _recipe, made_player
from policytest.payoffs.returns import WholeEpisodes
from policytest.results.load import parse

DECLARED = "returns lie in [0, 1], as declared"


def rarely_three(rng):
    return 3.0 if rng.random() > 0.9 else rng.random()


def still(observation):
    return 0


def asked(on_range="warn", run=rarely_three, **about):
    return pt.Episodes(run, return_range=(0, 1), on_range=on_range, **about)


def noted(ask, *about, **settings):
    """What is said in spite of a return outside the range; one warning says so."""
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        found = ask(*about, **settings)
    assert ["outside" in str(one.message) for one in said] == [True]
    assert found.certified is False
    assert found.refutes_model is False
    assert "outside return_range (0, 1)" in str(found).splitlines()[0]
    return found


def first_outside():
    """The first episode of a run with the seed 0 that is outside, and its seed: as an error says."""
    with pytest.raises(pt.InputError) as refused:
        pt.decide(asked("refuse"), threshold=0.5)
    number, seed = re.match(r"the return of episode (\d+) \(seed (\d+)\) is 3, ", str(refused.value)).groups()
    return int(number), int(seed)


def test_a_return_outside_is_refused_with_its_episode_its_seed_and_its_value():
    number, seed = first_outside()
    assert rarely_three(np.random.default_rng(seed)) == 3.0
    words = f"the return of episode {number} (seed {seed}) is 3, outside return_range (0, 1)"
    assert_refused(lambda: pt.decide(asked("refuse"), threshold=0.5), words, 'on_range="warn"')
    found = noted(pt.decide, asked(), threshold=0.5)
    assert found.flaws == (words,)
    assert_refused(lambda: asked("ignore"), "on_range is 'ignore'", "refuse")


def test_the_run_goes_on_with_the_end_of_the_range():
    """Capital is that of clipped returns, the estimate that of the returns as they are."""
    found = noted(pt.decide, asked(), threshold=0.4, max_samples=60)
    clipped = pt.decide(
        pt.Episodes(lambda rng: min(rarely_three(rng), 1.0), return_range=(0, 1)), threshold=0.4, max_samples=60
    )
    assert (found.evidence, found.answer, found.samples) == (clipped.evidence, clipped.answer, clipped.samples)
    assert found.counts.returns.max() == 3.0
    assert found.estimate >= clipped.estimate


def test_it_is_kept_by_results_checkpoints_and_processes(tmp_path):
    whole = noted(pt.decide, asked(), threshold=0.5, max_samples=80)
    again = parse(whole.to_json(), "verdict.json")
    assert (again.flaws, again.certified, again.refutes_model) == (whole.flaws, False, False)
    assert again.to_json() == whole.to_json()
    assert DECLARED in again.task.assumptions
    number, _ = first_outside()
    kept = noted(pt.decide, asked(), threshold=0.5, max_samples=number, checkpoint=tmp_path / "run.npz")
    assert kept.answer is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # it was told before
        resumed = pt.decide(asked(), threshold=0.5, max_samples=80, resume=tmp_path / "run.npz")
    assert (resumed.flaws, resumed.evidence) == (whole.flaws, whole.evidence)


def test_what_a_worker_has_seen_is_noted_where_it_is_settled():
    about = pt.Episodes(rarely_three, reward_range=(0, 1), on_range="warn", horizon=1)
    player, (number, seed) = WholeEpisodes(about), first_outside()
    seen = made_player(WholeEpisodes, [_recipe(about)])(seed, None, np.inf)
    assert number
    with pytest.warns(pt.AssumptionWarning, match=rf"the reward of episode 1 \(seed {seed}\) is 3"):
        player.settled(seen)


def test_pairs_intervals_and_vectors():
    other = pt.Episodes(lambda rng: 0.2 * rng.random(), return_range=(0, 0.2))
    pair = noted(pt.compare, asked(), other, delta=1e-6)
    assert pair.flaws[0].startswith(f"the return of episode {first_outside()[0]} of agent A (seed")
    assert {DECLARED, "returns of agent B lie in [0, 0.2], as declared"} <= set(pair.task.assumptions)
    assert noted(pt.evaluate, asked(), budget=60).reached
    lasting = pt.Episodes(vector(n=3), still, return_range=(0, 1), on_range="warn")
    assert noted(pt.decide, lasting, threshold=0.5, max_samples=600).answer == "above"
    paying = pt.Episodes(vector(n=3), still, reward_range=(0, 0.5), horizon=12, on_range="warn")
    with pytest.warns(pt.AssumptionWarning, match=r"the reward of episode \d+ \(seed \d+\) is 1, outside reward_range"):
        assert not pt.decide(paying, threshold=0.5, max_samples=600).certified


@each("about", [{}, {"critic": lambda observation: 2.0}])
def test_rewards_outside_their_range(about):
    paying = pt.Episodes(Lasting(), still, reward_range=(0, 0.5), on_range="warn", horizon=12, **about)
    words = r"the reward of episode 1 \(seed \d+\) is 1, outside reward_range \(0, 0.5\)"
    with pytest.warns(pt.AssumptionWarning, match=words):
        found = pt.decide(paying, threshold=2.0, max_samples=400)
    assert np.isfinite(found.evidence).all()
    assert not found.certified


def test_logs():
    G = np.tile([0.2, 0.9, 0.4, 1.5], 40)
    assert_refused(lambda: pt.LoggedEpisodes(None, G, return_range=(0, 1)), "the return of episode 3 is 1.5", "outside")
    with pytest.warns(pt.AssumptionWarning, match="the return of episode 3 is 1.5, outside return_range"):
        log = pt.LoggedEpisodes(None, G, return_range=(0, 1), on_range="warn")
    verdict = pt.assess(log, threshold=0.4)
    assert (verdict.answer, verdict.certified, verdict.refutes_model) == ("above", False, False)
    assert pt.value_interval(log).certified is False
    assert log.outcomes.below.max() == 1.0
    with pytest.warns(pt.AssumptionWarning, match="the reward of episode 3 is 1.5, outside reward_range"):
        assert pt.LoggedEpisodes(None, G, reward_range=(0, 1), on_range="warn").reward.max() == 1.0


def test_what_is_declared_is_listed_and_what_is_a_fact_is_not():
    horizon = {"reward_range": (0, 1), "horizon": 12}
    assert pt.Episodes(Lasting(), still, **horizon).assumptions[1:] == ("rewards lie in [0, 1], as declared",)
    both = pt.Episodes(Lasting(), still, return_range=(0, None), **horizon)
    assert both.assumptions[2:] == ("returns are at least 0, as declared",)
    assert len(pt.Episodes(Lasting(), still, outcome=pt.at_least(3)).assumptions) == 1
    graded = pt.Episodes(Lasting(), still, outcome=lambda rewards, info: 1.0, return_range=(0, 2))
    assert graded.assumptions[1:] == ("outcomes lie in [0, 2], as declared",)
    log = pt.LoggedEpisodes([0, 0, 0, 1], [1, 1, 1, 1], reward_range=(0, 1), horizon=2, cut=True)
    assert log.assumptions[1:] == (
        "an episode counts up to its first 2 steps, where it was cut",
        "rewards lie in [0, 1], as declared",
    )


def test_logs_are_cut_where_asked():
    """The rows after the horizon make no difference, also with weights, and whatever their order."""
    rng, n, horizon = np.random.default_rng(3), 60, 4
    lengths = rng.integers(1, 9, size=n)
    episode = np.repeat(np.arange(n), lengths)
    columns = {"reward": rng.random(len(episode)), "propensity": rng.uniform(0.3, 1, len(episode))}
    columns["target"] = rng.random(len(episode))
    about = {"reward_range": (0, 1), "horizon": horizon}
    inside = np.arange(len(episode)) - np.repeat(np.cumsum(lengths) - lengths, lengths) < horizon
    cut = pt.LoggedEpisodes(episode, **columns, **about, cut=True)
    plain = pt.LoggedEpisodes(episode[inside], **{name: column[inside] for name, column in columns.items()}, **about)
    assert all(np.array_equal(a, b) for a, b in zip(cut.outcomes, plain.outcomes, strict=True))
    assert len(cut) == inside.sum()
    assert_refused(lambda: pt.LoggedEpisodes(episode, **columns, **about), "the horizon is 4", "cut=True")
    assert_refused(lambda: pt.LoggedEpisodes(episode, **columns, reward_range=(0, 1), cut=True), "no horizon")
    interleaved = np.concatenate([np.arange(1, len(episode), 2), np.arange(0, len(episode), 2)])
    ids, rewards = episode[interleaved], columns["reward"][interleaved]
    mixed = pt.LoggedEpisodes(ids, rewards, **about, cut=True)
    by_hand = [rewards[ids == i][:horizon].sum() for i in range(n)]
    first = np.unique(ids, return_index=True)[1]
    assert mixed.outcomes.returns == pytest.approx(np.array(by_hand)[np.argsort(first)])
