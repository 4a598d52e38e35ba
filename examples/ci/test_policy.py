"""A release gate with pytest: the agent must be good enough, and better than the one in use.

`budget` and `max_seconds` end every test. One that has no answer by then fails with `pt.Undecided`, and an answer that
is not certified fails, too. Each test lets an agent through that should not pass with probability at most 0.05. The
seed fixes the episodes, so the same agent gets the same verdict in every run.
"""

from __future__ import annotations

from pathlib import Path

from agent import act, in_use

import policytest as pt

FOLDER = Path("gate")  # what the CI job keeps


def require(name: str, verdict: pt.Verdict) -> None:
    """Keep the verdict, whatever it says, for `policytest report`; then require it."""
    FOLDER.mkdir(exist_ok=True)
    (FOLDER / f"{name}.json").write_text(verdict.to_json(), encoding="utf-8")
    verdict.require("above")


def test_four_episodes_of_five_reach_200() -> None:
    """The probability of a return of at least 200 is above 0.8."""
    agent = pt.Episodes("CartPole-v1", act, outcome=pt.at_least(200))
    require("reaches-200", pt.decide(agent, threshold=0.8, delta=0.05, budget=50, max_seconds=300))


def test_it_is_better_than_the_agent_in_use() -> None:
    """Its mean return is larger, on pairs of episodes with the same seeds."""
    new, old = (pt.Episodes("CartPole-v1", one, reward_range=(0, 1)) for one in (act, in_use))
    require("better", pt.compare(new, old, delta=0.05, budget=50, max_seconds=300))
