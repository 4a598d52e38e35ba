"""The same question with fewer assumptions: what episodes alone say of a value that a Markov table gives."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace

import numpy as np

from policytest._base import arrays
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.text import plural
from policytest.data.counts import Counts
from policytest.data.logged_episodes import NOT_ITS_OWN, LoggedEpisodes
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.questions.assess import assess
from policytest.questions.evaluate import value_interval
from policytest.results.ladder import EPISODES, MARKOV, PROPENSITIES, AssumptionLadder, Rung
from policytest.results.verdict import Verdict

NO_VALUE = (math.inf, -math.inf)  # the interval of a rung whose assumptions the data refute


def with_ladder(verdict: Verdict, data: Counts | Transitions, episodes: LoggedEpisodes, stacklevel: int = 2) -> Verdict:
    """The verdict about a Markov table, with what the same log gives by its episodes; a refutation warns.

    ``episodes`` are of the task's policy, or weighted so that they are: those that must be of another one are refused.
    A verdict whose model is refuted is not certified: what it is proved from does not hold.
    """
    task = verdict.provenance.asked_of or verdict.task
    _check_same_value(task, episodes)
    _check_own(task, data, episodes)
    half = verdict.delta / 2.0
    table = value_interval(task, data, half)
    alone = assess(episodes, threshold=verdict.threshold, delta=verdict.delta)
    found = value_interval(episodes, delta=half)
    kind = PROPENSITIES if episodes.weighted else EPISODES
    ends = NO_VALUE if alone.counts.flaws else (found.lower, found.upper)
    rungs = (
        Rung(MARKOV, (table.lower, table.upper), verdict.answer, data.total),
        Rung(kind, ends, alone.answer, len(episodes), episodes.n_episodes),
    )
    ladder = AssumptionLadder(rungs, verdict.threshold, verdict.delta)
    if ladder.refuted:
        warnings.warn(
            f"{ladder.words[0].lower()}{ladder.words[1:]}; states that tell less than all that matters are the usual "
            "cause: rely on the episodes, or add what is missing to the states",
            AssumptionWarning,
            stacklevel=stacklevel,
        )
    alongside = replace(verdict.alongside, ladder=ladder)
    return replace(verdict, alongside=alongside, certified=verdict.certified and not ladder.refuted)


def _check_own(task: Task, data: Counts | Transitions, episodes: LoggedEpisodes) -> None:
    """Refuse episodes without weights that have more rows than the data have with actions of the task's policy."""
    if episodes.weighted:
        return
    seen = data.all_counts(task)
    never = np.where(task.policy == 0, seen.visits, 0)
    never[list(task.ends)] = 0
    others = int(never.sum())
    if others and len(episodes) > seen.total - others:
        raise InputError(
            f"episodes: in {others:,} of {seen.total:,} rows of the data the action is one that the policy of the task "
            f"never takes, so some of the {plural(episodes.n_episodes, 'episode')} have it; {NOT_ITS_OWN}; pass "
            "propensity and target to LoggedEpisodes, or leave episodes out"
        )


def _check_same_value(task: Task, episodes: LoggedEpisodes) -> None:
    """Refuse episodes whose returns are not those that the value of the task is the mean of."""
    arrays.instance("episodes", episodes, LoggedEpisodes)
    if abs(task.discount - episodes.discount) > 1e-12 * (1.0 + task.discount):
        raise InputError(
            f"episodes has the discount {episodes.discount:g}, and the task {task.discount:g}; pass the same discount"
        )
    if task.horizon is not None and episodes.horizon != task.horizon:
        raise InputError(
            f"episodes has the horizon {episodes.horizon}, and the task {task.horizon}; pass the same horizon"
        )
    if task.horizon is None and not len(task.ends):
        raise InputError("episodes: those of this task never end; give the task a horizon, or terminal states")
