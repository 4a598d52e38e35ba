r"""A start that is not known: the first states of the episodes in a log tell about it.

The task gets one more state, "start", in which every episode begins, and whose successors are the first states: their
law rho is one more unknown row, estimated and bounded as the others are. It costs a step of discounting, so rewards are
divided by gamma: the values of the old states are then V/gamma, and that of the start is

    V(start) = gamma sum_x rho(x) V(x)/gamma = sum_x rho(x) V(x),

the value that was asked for. `policytest.sources.logs` counts a transition from the start for the first row of each
episode. Environments that are stepped do the same (`policytest.sources.environments.stepping`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import IntArray, Kernel
from policytest._base.errors import InputError
from policytest.mdp.observed import Observed
from policytest.mdp.task import DENSE_REWARD_LIMIT, Task

START = "start"
FROM_LOG = "log"
"""What a task file says in the place of the initial distribution."""


def start_from_log(task: Task, goal: Sequence[int] | IntArray = ()) -> Task:
    """The task with a state "start" added, from which each episode of a log goes to its first state.

    The initial distribution of the task is not used. An episode that begins in a state of ``goal``, by default that of
    the task, has reached it.
    `policytest.sources.logs` then needs the columns episode and order, and first rows must be where episodes begin.

    >>> task = Task([[1.0], [0.0]], [[1.0], [1.0]], [1.0, 0.0], 0.5, terminal=[1])
    >>> start_from_log(task).states
    (0, 1, 'start')
    """
    arrays.instance("task", task, Task)
    if task.start is not None:
        return task
    goal = goal if len(goal) else task.goals
    S, A, gamma = task.n_states, task.n_actions, task.discount
    names = tuple(task.states) if task.states is not None else tuple(range(S))
    if START in names:
        raise InputError('a state of the task is called "start", and so is the one that is added; rename it')
    if gamma == 0:
        raise InputError("discount is 0, and where episodes start is unknown; pass initial, the first states")
    policy, available = np.zeros((S + 1, A)), task.available
    policy[:S], policy[S, 0] = task.policy, 1.0
    return replace(
        task,
        rewards=_at_once(_rewards(task.rewards, S, A, gamma), S, A, goal),
        policy=policy,
        initial=np.eye(S + 1)[S],
        support=_support(task.support, S, A),
        states=(*names, START),
        available=None if available is None else np.vstack([available, np.ones((1, A), dtype=bool)]),
        start=S,
    )


def _rewards(rewards: Kernel | Observed, S: int, A: int, gamma: float) -> Kernel | Observed:
    """In units one step later: those of the task, and 0 at the start."""
    if isinstance(rewards, Observed):
        values = None if rewards.values is None else rewards.values / gamma
        return Observed(_padded(rewards.low, S, A) / gamma, _padded(rewards.high, S, A) / gamma, values)
    return _padded(rewards, S, A) / gamma


def _at_once(rewards: Kernel, S: int, A: int, goal: Sequence[int] | IntArray) -> Kernel:
    """The rewards r[s,a,x] with 1 for an episode that begins in the goal."""
    if not len(goal):
        return rewards
    if not arrays.is_sparse(rewards):
        rewards[S, :, list(goal)] = 1.0
        return rewards
    pairs = S * A + np.arange(A)
    at = (np.repeat(pairs, len(goal)), np.tile(goal, A))
    return sparse.csr_array(rewards + sparse.csr_array((np.ones(len(at[0])), at), shape=rewards.shape))


def _padded(table: Kernel, S: int, A: int) -> Kernel:
    """A table with zeros for the added state."""
    if arrays.is_sparse(table):
        return sparse.csr_array((table.data, table.indices, np.pad(table.indptr, (0, A), "edge")), (A * (S + 1), S + 1))
    return np.pad(np.asarray(table, dtype=np.float64), [(0, 1), (0, 0), (0, 1)][: table.ndim])


def _support(support: Kernel | None, S: int, A: int) -> Kernel:
    """What may follow: nothing leads to the start, and any other state follows it."""
    if arrays.is_sparse(support):
        rows = sparse.csr_array(np.tile(np.append(np.ones(S), 0.0), (A, 1)))
        return sparse.csr_array(sparse.vstack([_padded(support, S, A)[: S * A].astype(np.float64), rows]))
    if support is None and (S + 1) * A * S > DENSE_REWARD_LIMIT:
        raise InputError(f'initial is "log": with {S:,} states declare the support too, the successors of each pair')
    table = np.ones((S + 1, A, S + 1), dtype=bool)
    if support is not None:
        table[:S, :, :S] = support
    table[:, :, S] = False
    return table
