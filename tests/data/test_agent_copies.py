"""Agents that remember an episode, on vectors: each row has its copy, and its own luck."""

from __future__ import annotations

import random

import numpy as np

import policytest as pt
from builders import assert_refused, assert_same_verdict, each
from episode_envs import VEC_ENV, Lasting, vector
from policytest.data.agent_copies import AgentCopies
from policytest.data.vector_walks import MODES

KINDS = (*MODES, VEC_ENV)


class Paying(Lasting):
    def step(self, action):
        return (found := super().step(action))[0], float(action), *found[2:]


class Once:
    """Acts once in an episode."""

    def reset(self):
        self.acted = False

    def __call__(self, observation):
        acted, self.acted = self.acted, True
        return int(not acted)


@each("mode", KINDS)
def test_each_row_remembers_its_own_episode(mode):
    """With one memory for all rows, most episodes would pay nothing."""
    for horizon in (12, 3):
        about = pt.Episodes(vector(mode, env=Paying), Once(), horizon=horizon, return_range=(0, 12))
        assert set(pt.decide(about, threshold=0.5).counts.returns) == {1.0}
    agent = Once()
    agent.reset()
    pt.decide(pt.Episodes(vector(mode, env=Paying), agent, horizon=12, return_range=(0, 12)), threshold=0.5)
    assert not agent.acted, "that of the caller is as it was"


class Lucky:
    """Draws a number at the start of an episode, from a generator of its own, and does the same all along."""

    def __init__(self, kind):
        self.inside = {"generator": kind(0)}

    def reset(self):
        self.action = int(self.inside["generator"].random() < 0.5)

    def __call__(self, observation):
        return self.action


@each("kind", [np.random.default_rng, np.random.RandomState, random.Random])
def test_the_generator_of_an_agent_is_another_one_in_each_row(kind):
    """Copies of one generator would give all rows the same luck: then episodes are not independent."""
    copies = AgentCopies(Lucky(kind), 64, True)
    copies.begin(3)

    def drawn():
        return [copies.act(row, None, None, [True])[0] for row in range(64)]

    rows = np.array([drawn() for _ in range(20)])
    assert 0.4 < rows.mean() < 0.6
    assert len({tuple(column) for column in rows.T}) == 64
    copies.begin(3)
    assert drawn() == rows[0].tolist(), "the seed fixes them"
    plain = [Lucky(kind) for _ in range(64)]
    for agent in plain:
        agent.reset()
    assert len({agent.action for agent in plain}) == 1, "the control: without new seeds all are the same"


def test_a_seed_fixes_a_run_and_a_run_goes_on():
    about = pt.Episodes(vector(env=Paying), Lucky(np.random.default_rng), horizon=12, return_range=(0, 12))
    question = {"threshold": 2.4, "delta": 1e-2, "rng": 2}
    whole = pt.decide(about, **question)
    paused = pt.decide(about, **question, max_samples=whole.samples // 2)
    assert paused.answer is None
    assert_same_verdict(pt.decide(about, **question, resume=paused), whole)


def closed():
    memory = {"acted": False}

    def reset():
        memory["acted"] = False

    def act(observation):
        acted, memory["acted"] = memory["acted"], True
        return int(not acted)

    act.reset = reset
    return act


class Elsewhere(Once):
    def __deepcopy__(self, memo):
        raise TypeError("it holds a socket")


class Single(Once):
    def __deepcopy__(self, memo):
        return self


@each(
    ("agent", "settings", "words"),
    [
        (closed(), {}, ["remembers an episode", "copies would share it", "class"]),
        (Single(), {}, ["copies would share it", "parallel="]),
        (Elsewhere(), {}, ["cannot be copied", "it holds a socket", "pass one environment"]),
        (Once(), {"batched": True}, ["leave batched out"]),
    ],
)
def test_what_cannot_be_copied_is_refused(agent, settings, words):
    assert_refused(lambda: pt.Episodes(vector(env=Paying), agent, horizon=12, return_range=(0, 12), **settings), *words)
