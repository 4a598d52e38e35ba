"""What searches for the best policy share: the task of all pairs, the model's best policy, what needs no samples."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray, Kernel
from policytest._base.compiled import search
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.kl.sampler import Drawn
from policytest.kl.sampling import Tracking
from policytest.kl.witness import WitnessedCounts
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.mdp.values import extreme_state_values
from policytest.payoffs.coupling import reached
from policytest.results.selection import Selection, SelectionCheck

Number = TypeVar("Number", np.float64, np.int64, np.bool_)
ARRAYS = "arrays [S,A]"
"""What policies are."""
USED_UP = "the sample limit is reached"
NOTHING_UNKNOWN = "rollouts meet nothing that is unknown"


class Search(Protocol):
    """A search at work."""

    source: Drawn
    tally: WitnessedCounts
    delta: float
    stuck: bool = False  # whether all that is left to sample is known

    @property
    def answered(self) -> bool:
        """Whether the best policy is known."""

    @property
    def samples_used(self) -> int:
        """The samples, and the steps that the simulator made on the way to them."""

    def work_in_parallel(self, workers: int) -> None:
        """Have so many rollouts under way at once; before the first sample."""
        raise InputError("parallel: this search samples one by one", "leave parallel out (it is then 1)")

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Sample, at most so much, until there is an answer; a check after every step."""

    def result(self, reason: str) -> Selection:
        """What it found; the reason, if there is one, is why it was ended."""

    def selected(
        self,
        policy: FloatArray,
        index: int | None,
        values: FloatArray,
        settled: tuple[int, int],
        method: str,
        certified: bool,
        reason: str,
    ) -> Selection:
        """What it found, with what it knows of itself; ``settled``: how many, of how many questions."""
        now, why = (self.samples_used, certified, self.answered), reason or (NOTHING_UNKNOWN if self.stuck else USED_UP)
        about = "" if self.answered else why, method
        return Selection(policy, index, *now, values, self.delta, *settled, self.tally.counts(), *about)


def task_of_all_pairs(
    rewards: Kernel | Observed,
    initial: object,
    discount: float,
    support: Kernel | None,
    available: object = None,
    **names: Any,
) -> Task:
    """The task of the policy that takes every available action equally often: its rows are all pairs."""
    S = len(arrays.real_array("initial", initial, (None,)))
    if isinstance(rewards, Observed):
        A = _observed_actions(rewards, names["actions"])
    elif arrays.is_sparse(rewards):
        A = rewards.shape[0] // max(S, 1)
    else:
        array = arrays.real_array("rewards", rewards)
        if array.ndim not in (2, 3):
            raise InputError(f"rewards has shape {array.shape}, expected (S, A) or (S, A, S)")
        A = array.shape[1]
    if S == 0 or A == 0:
        raise InputError(f"rewards and initial have {S} states and {A} actions; at least one of each is needed")
    there = np.ones((S, A)) if available is None else arrays.real_array("available", available, (S, A))
    if not there.any(axis=1).all():
        raise InputError(f"available names no action in state {int(there.any(axis=1).argmin())}; each state needs one")
    policy = there / there.sum(axis=1, keepdims=True)
    return Task(rewards, policy, initial, discount, support, available=available, **names)


def _observed_actions(rewards: Observed, actions: object) -> int:
    """The number of actions, by the tables of the range or by the names."""
    shape = np.broadcast_shapes(rewards.low.shape, rewards.high.shape)
    if not shape and actions is None:
        raise InputError("rewards: Observed(low, high) of numbers does not tell the actions; pass actions=[...]")
    return shape[1] if shape else len(arrays.listed("actions", actions, "names"))


def first_actions(task: Task) -> IntArray:
    """[S] an action of each state."""
    return np.asarray((task.policy > 0).argmax(axis=1), dtype=np.int64)


def by_pair(rows: Rows, values: npt.NDArray[Number], task: Task, otherwise: float) -> npt.NDArray[Number]:
    """[S,A] from a vector [K] over the rows; ``otherwise`` for actions that are not available."""
    table = np.full(task.n_states * task.n_actions, otherwise, dtype=values.dtype)
    table[rows.pair] = values
    return table.reshape(task.n_states, task.n_actions)


def tasks_of(policies: object, of_task: dict[str, Any]) -> list[Task]:
    """A task for each policy; ``of_task`` is all else of it."""
    if isinstance(policies, np.ndarray) and policies.ndim != 3:
        raise InputError(f"policies has shape {policies.shape}; pass a list of arrays [S,A]")
    listed = arrays.listed("policies", policies, ARRAYS)
    if not listed:
        raise InputError("policies is empty; pass at least one array [S,A], or None for the best of all policies")
    tasks = []
    for index, policy in enumerate(listed):
        try:
            tasks.append(Task(policy=policy, **of_task))
        except InputError as error:
            raise InputError(f"policies[{index}]: {error}") from None
        arrays.check_shape(f"policies[{index}]", tasks[-1].policy.shape, tasks[0].policy.shape)
    return tasks


def following(task: Task, actions: IntArray) -> Task:
    """The same task with the deterministic policy that takes these actions [S]."""
    return replace(task, policy=np.eye(task.n_actions)[actions])


def may_be_reached(task: Task) -> BoolArray:
    """[S] the states to which some actions may lead from rho, by kernels with the declared support."""
    rows, S = task.layout.rows, task.n_states
    edges = sparse.csr_array((np.ones(rows.n_entries), (rows.state[rows.of_entry()], rows.successor)), shape=(S, S))
    return reached(edges, task.initial > 0)


def action_values(rows: Rows, q: FloatArray, V: FloatArray, gamma: float) -> FloatArray:
    """[K] r(s,a) + gamma sum_x q(x|s,a) V(x), rewards on successors included."""
    worth = gamma * V[rows.successor] + (rows.gain if len(rows.gain) else 0.0)
    return np.asarray(rows.reward + rows.sums(q * worth))


def optimal_actions(task: Task, rows: Rows, q: FloatArray, actions: IntArray) -> tuple[IntArray, FloatArray]:
    """Policy iteration on a kernel, from these actions, kept where others are not better; and the values [S]."""
    S, A = task.n_states, task.n_actions
    actions, states, taken = actions.copy(), np.arange(S), rows.pair % A
    V = np.zeros(S)
    for _ in range(100 * S):
        own = rows._replace(prob=(taken == actions[rows.state]).astype(np.float64))
        V, _, _ = search.values_and_occupancy(own, q, task.discount, task.initial)
        Q = by_pair(rows, action_values(rows, q, V, task.discount), task, -np.inf)
        better = Q.max(axis=1) > Q[states, actions] + 1e-9 * np.abs(V).max()
        if not better.any():
            break
        actions[better] = Q.argmax(axis=1)[better]
    return actions, V


@dataclass(frozen=True)
class Shares:
    """Sampling with fixed shares [K]."""

    omega: FloatArray

    def begin(self, task: Task, threshold: float) -> Tracking:
        """Track them."""
        return Tracking(self.omega)


def fixed_shares(given: object, even: FloatArray) -> object:
    """The allocation that was passed; "uniform" stands for these shares."""
    return Shares(even) if isinstance(given, str) and given == "uniform" else given


def equal_shares(sampled: BoolArray, rows: Rows) -> FloatArray:
    """[K] the same share for all of these pairs [S,A]."""
    even = sampled.ravel()[rows.pair].astype(np.float64)
    return np.asarray(even / max(even.sum(), 1.0))


def deviations(task: Task, actions: IntArray, matter: BoolArray) -> BoolArray:
    """[S,A] the other actions of these states that the task offers."""
    return np.asarray(matter[:, None] & (task.policy > 0) & (np.arange(task.n_actions) != actions[:, None]))


def never_pay(task: Task, rows: Rows, only: IntArray, actions: IntArray, rounding: float) -> BoolArray:
    """[S,A] deviations from these actions that do not pay, whatever the kernel is.

    ``task`` follows the actions, ``rows`` are all pairs, with its rewards, and ``only`` has their known successors.
    """
    gain = rows.rewards()
    if gain.max() == gain.min():  # then all policies are as good
        return np.ones(task.policy.shape, dtype=bool)
    low, high = extreme_state_values(task, "min"), extreme_state_values(task, "max")
    most = np.maximum.reduceat(gain + task.discount * high[rows.successor], rows.start[:-1])
    never = low[rows.state] > most + 4.0 * rounding
    own, at = by_pair(rows, np.arange(len(rows.pair)), task, -1)[rows.state, actions[rows.state]], rows.start[:-1]
    same = (only >= 0) & (only == only[own]) & (gain[at[own]] >= gain[at])
    return np.asarray(by_pair(rows, never | same, task, True))
