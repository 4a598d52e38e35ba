r"""The value of a task with a horizon, as a functional of the kernel: its gradient, and the search that runs on it.

One kernel q serves all steps t < H. With V(t,.) and d(t,.) = gamma^t P(s_t = .) by backward and forward induction,

    dV/dq(x|s,a) = sum_{t<H} d(t,s) pi(a|s) ( r(s,a,x) + gamma V(t+1,x) ),

so conditional gradients (`policytest.worst_case.functional_solver`) run on it as on a difference. Nothing is proved:
the relaxation behind the certificates would allow another kernel at each step. ``certified`` is False, always.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.compiled import episodes
from policytest._base.errors import InputError
from policytest._base.rows import Rows
from policytest.mdp.task import Task
from policytest.worst_case.functional import Functional, term_of
from policytest.worst_case.functional_solver import DifferenceSolver
from policytest.worst_case.projection_free import ProjectionFree


@dataclass(frozen=True, eq=False, kw_only=True)
class ValueWithHorizon(Functional):
    """V(rho) - ``less`` of a kernel, over ``steps`` steps from the law ``first``."""

    first: FloatArray
    steps: int
    less: float = 0.0

    def linear(self, entries: FloatArray) -> tuple[float, FloatArray]:
        """The value, and its gradient [E] up to a constant in each row."""
        rows = self.rows
        V, d = episodes.by_steps(rows, entries, self.discount, self.first, self.steps)
        state = rows.state[rows.of_entry()]
        onward = np.zeros(rows.n_entries)
        for t in range(self.steps):
            onward += d[t, state] * V[t + 1, rows.successor]
        gain = d.sum(axis=0)[state] * rows.gain if len(rows.gain) else 0.0
        return float(self.first @ V[0]) - self.less, rows.per_entry(rows.prob) * (gain + self.discount * onward)

    @property
    def size(self) -> float:
        """How large the value may be, for tolerances."""
        largest = np.abs(self.rows.reward).max(initial=0.0) + np.abs(self.rows.gain).max(initial=0.0)
        return max(float(largest) * self.steps + abs(self.less), 1e-300)

    def alone(self, index: int) -> Functional:
        """There is one policy."""
        return self


def has_gradient(task: Task) -> bool:
    """Whether the task has a horizon, and known rewards: then its value is a `ValueWithHorizon`."""
    return task.horizon is not None and not task.observes_rewards


def value_with_horizon(task: Task, rows: Rows, less: float = 0.0) -> ValueWithHorizon:
    """The value of the task's policy on its rows; see `has_gradient`."""
    terms, less = (term_of(task, rows),), less - task.reached_at_start
    about = rows, task.discount, task.n_states, terms
    return ValueWithHorizon(*about, first=task.initial, steps=task.steps or 1, less=less)


def searching(solver: object) -> DifferenceSolver:
    """The search with as many starts as the projection-free solver was to have; other solvers are refused."""
    if solver is None or isinstance(solver, ProjectionFree):
        return DifferenceSolver(starts=1 if solver is None else solver.starts)
    if isinstance(solver, DifferenceSolver):
        return solver
    raise InputError(
        f"solver is {type(solver).__name__}(), which needs a task without a horizon; pass ProjectionFree(), or leave "
        "it out"
    )
