r"""The policy that a log was made by, as its rows show it: "is the new policy better than the logged one?"

    pi_B(a|s) = N[s,a] / N[s],    uniform over the available actions where N[s] = 0.

An answer about it is one about these frequencies, which the results say. The bets on the outcomes of the rows hold for
any policy B that was fixed without them. The frequencies of the same log were, if the actions were chosen by the state
alone; a rule that reacts to outcomes (one that repeats what went well) puts them into its frequencies, and the test
would look ahead. Where states are reached by earlier outcomes, the numbers of rows N[s] still tell a little about them,
which matters less the longer the log is; a policy B that is known, or was counted on earlier rows, has no such part.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest._base.text import plural
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.questions.recorded import check_indices

LOGGED = "logged"
"""The word for this policy, in Python and on the command line."""
FREQUENCIES = "{which} is given by the action frequencies of the log{without}"
BY_THE_STATE = "these were not shaped by its outcomes (actions were chosen by the state alone)"


def is_logged(policy: object) -> bool:
    """Whether it is the word for the policy of the log."""
    return isinstance(policy, str) and policy == LOGGED


def logged_task(task: Task, data: object, which: str = "the logged policy") -> Task:
    """The task with the policy of the log, and with what a result about it rests on.

    >>> two = Task([[1.0, 0.0]] * 2, [[1.0, 0.0]] * 2, [1.0, 0.0], 0.9)
    >>> logged_task(two, Transitions([0, 0, 0, 0], [0, 1, 1, 1], [0, 0, 0, 0])).policy.tolist()
    [[0.25, 0.75], [0.5, 0.5]]
    """
    if not isinstance(data, Transitions):
        raise InputError(
            f'{which} is "{LOGGED}", which needs the rows of a log: pass Transitions(s, a, x), or a policy'
        )
    check_indices(task, data)
    visits = data.counts(task, len(data)).visits
    unseen = np.setdiff1d(np.flatnonzero(visits.sum(axis=1) == 0), task.ends)
    without = f" (uniform in {plural(len(unseen), 'state')} without rows)" if len(unseen) else ""
    rests_on = (*task.assumptions, FREQUENCIES.format(which=which, without=without), BY_THE_STATE)
    return replace(task, policy=_frequencies(task, visits), assumptions=tuple(dict.fromkeys(rests_on)))


def _frequencies(task: Task, visits: object) -> FloatArray:
    """[S,A] the share of each action in the rows of a state."""
    some = np.asarray(visits, dtype=np.float64)
    offered = np.ones_like(some) if task.available is None else np.asarray(task.available, dtype=np.float64)
    some = np.where(some.sum(axis=1, keepdims=True) > 0, some, offered)
    return np.asarray(some / some.sum(axis=1, keepdims=True))
