"""Small runs that together use every piece of compiled code the test needs."""

from __future__ import annotations

from typing import Any

import numpy as np
from scipy import sparse

from policytest.data.simulators import TabularSimulator
from policytest.mdp import instances
from policytest.mdp.task import Task
from policytest.methods.betting.run import TDBetting
from policytest.methods.boundaries import MixtureBoundary, PaperBoundary
from policytest.methods.ptst import PTST
from policytest.methods.sampling import Adaptive, Forward, Optimal
from policytest.questions.decide import checks
from policytest.questions.evaluate import evaluate
from policytest.worst_case.lower_bound import characteristic_time

SAMPLES = 400


def small_runs() -> None:
    """Dense, with a support, with rewards on (s,a,x), sparse; each boundary; each sampling rule."""
    free, listed = instances.paper(2), instances.random(seed=1, S=4, A=2, successors=2)
    for task, kernel in ((free.task, free.kernel), *_variants(listed)):
        _run(task, kernel)
    _run(free.task, free.kernel, TDBetting(draws=2))
    evaluate(free.task, TabularSimulator(free.kernel), 0.3, max_samples=SAMPLES)
    for boundary in (PaperBoundary(), MixtureBoundary(0.5)):
        _run(free.task, free.kernel, PTST(boundary=boundary))
    for allocation in ("uniform", Adaptive(), Forward(), Optimal(free.kernel)):
        _run(free.task, free.kernel, PTST(allocation=allocation))
    characteristic_time(free.task, free.kernel)


def _variants(listed: instances.Instance) -> list[tuple[Task, Any]]:
    """The same instance in other forms."""
    task, kernel = listed.task, listed.kernel
    S, A = task.n_states, task.n_actions
    rewards = task.rewards[:, :, None] + np.linspace(-0.1, 0.2, S)
    flat = sparse.csr_array(kernel.reshape(S * A, S))
    support = sparse.csr_array(task.support.reshape(S * A, S))
    return [
        (task, kernel),
        (_with(task, rewards=rewards), kernel),
        (_with(task, support=support), flat),
        (_with(task, support=None), flat),
    ]


def _with(task: Task, **changes: Any) -> Task:
    names = ("rewards", "policy", "initial", "discount", "support")
    return Task(**{**{name: getattr(task, name) for name in names}, **changes})


def _run(task: Task, kernel: Any, method: Any = None) -> None:
    for check in checks(task, TabularSimulator(kernel), 0.0, 0.05, method, 0, SAMPLES):
        last = check
    last.interval()
