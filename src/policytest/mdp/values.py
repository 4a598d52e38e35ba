"""Values, occupancies and their ranges: pure functions of a task and a kernel."""

from __future__ import annotations

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.compiled import search
from policytest._base.errors import check_precision
from policytest.mdp import horizon
from policytest.mdp.listed_rewards import with_mean_rewards
from policytest.mdp.task import Task


def value(task: Task, q: Kernel) -> float:
    """The value V_q(rho) of the policy under kernel q.

    Paper: section 3.1.

    >>> task = Task(rewards=[[1.0], [0.0]], policy=[[1.0], [1.0]], initial=[1.0, 0.0], discount=0.5)
    >>> value(task, [[[0.0, 1.0]], [[0.0, 1.0]]])
    1.0
    """
    values, starts = state_values(task, q), task.initial > 0
    return float(task.initial[starts] @ (values if task.horizon is None else values[0])[starts]) + task.reached_at_start


def state_values(task: Task, q: Kernel) -> FloatArray:
    """[S] the values V_q(s) of the policy from each state; with a horizon H, [H,S] from each step and state.

    What is still to be earned: 0 in terminal states, also in a goal, while `value` counts a start there as 1.
    With discount 1 and no horizon: the mean total of an episode, which ends in a terminal state. A kernel under which
    the policy may be paid for ever is refused; not a number in states from which that holds but no episode starts.

    Paper: section 3.1.
    """
    return _evaluate(task, q)[0]


def occupancy(task: Task, q: Kernel) -> FloatArray:
    """[S] the unnormalised discounted occupancy d_q(s) = sum_t gamma^t P(s_t = s); sums to 1/(1-gamma).

    With a horizon, or discount 1: the mean (discounted) number of visits in an episode, 0 in terminal states, infinite
    in states that may never be left.

    Paper: section 3.1, where d is (1-gamma) times this.
    """
    return _evaluate(task, q)[1]


def value_range(task: Task) -> tuple[float, float]:
    """The smallest and the largest value over all kernels with the declared support.

    For free supports and r[s,a] these are eqs. (1)-(2) of the paper,
    r^pi(rho) + gamma/(1-gamma) min_s r^pi(s) and the same with max; in general the fixed points
    V(s) = sum_a pi(a|s) min_x [r(s,a,x) + gamma V(x)] over allowed x, and with max.

    With a horizon, or discount 1, every value lies in this range, which may be wider: kernels that change from step to
    step are allowed in it. An end is infinite where the total of an episode has no bound on that side.

    Paper: eq:maxmin V.
    """
    arrays.instance("task", task, Task)
    return task.layout.value_ends[:2]


def widest_range(task: Task) -> tuple[float, float]:
    """A range in which every value lies, whatever the support: eqs. (1)-(2) of the paper, without a solve.

    With r^pi(s) between the smallest and the largest mean reward of an action, by successor where it depends on that:
    rho.r^pi + gamma/(1-gamma) times the smallest or the largest r^pi(s).

    Paper: eq:maxmin V.
    """
    rows, gamma = task.layout.rows, task.discount
    ends = []
    for least in (np.minimum, np.maximum):
        reward = least.reduceat(rows.gain, rows.start[:-1]) if task.rewards_on_successor else rows.reward
        own = np.bincount(rows.state, rows.prob * reward, minlength=task.n_states)
        ends.append(float(task.initial @ own + gamma / (1.0 - gamma) * least.reduce(own)))
    return ends[0], ends[1]


def value_range_error(task: Task) -> float:
    """A bound on the rounding of the ends of the value range."""
    return task.layout.value_ends[2]


def extreme_state_values(task: Task, sense: str) -> FloatArray:
    """[S] the smallest ("min") or largest ("max") value of each state over all allowed kernels."""
    return task.layout.extreme_values(sense)[0]


def _evaluate(task: Task, q: Kernel) -> tuple[FloatArray, FloatArray]:
    arrays.instance("task", task, Task)
    if task.observes_rewards:
        task, q = with_mean_rewards(task, q)
    kernel = task.check_kernel("q", q)
    rows, entries, _ = task.rows_of("q", kernel)
    if not task.is_discounted_table:
        found = horizon.evaluated(task, rows, entries)
        horizon.refuse_improper(task, found)
        check_precision(found.error)
        return found.V, found.d if task.horizon is None else found.d.sum(axis=0)
    values, occupancies, error = search.values_and_occupancy(rows, entries, task.discount, task.initial)
    check_precision(error)
    return values, occupancies
