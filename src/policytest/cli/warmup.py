"""Small runs that together use every piece of compiled code the test needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial

import numpy as np
from scipy import sparse

from policytest._base.arrays import Kernel
from policytest._base.compiled.search import DIRECT_SMALL
from policytest.data.logged_episodes import LoggedEpisodes
from policytest.data.simulators import TabularSimulator
from policytest.kl.boundaries import MixtureBoundary, PaperBoundary
from policytest.kl.sampling import Adaptive, Forward, Optimal
from policytest.mdp import instances
from policytest.mdp.task import Task
from policytest.mdp.values import value
from policytest.methods.ptst import PTST
from policytest.methods.run import Method
from policytest.methods.td_betting import TDBetting
from policytest.payoffs.splitting import FIRST as SPLITTING
from policytest.questions.assess import assess
from policytest.questions.decide import checks
from policytest.questions.evaluate import evaluate
from policytest.worst_case.lower_bound import characteristic_time
from policytest.worst_case.projection_free import ProjectionFree

SAMPLES = 400


def small_runs() -> Iterator[Callable[[], object]]:
    """Dense, with a support, with rewards on (s,a,x), sparse; each boundary; each sampling rule; a large task."""
    free, listed = instances.paper(2), instances.random(seed=1, S=4, A=2, successors=2)
    task, kernel = listed.task, listed.kernel
    S, A = task.n_states, task.n_actions
    flat, support = (sparse.csr_array(table.reshape(S * A, S)) for table in (kernel, task.support))
    yield partial(_run, free.task, free.kernel)
    yield partial(_run, task, kernel)
    yield partial(_run, replace(task, rewards=task.rewards[:, :, None] + np.linspace(-0.1, 0.2, S)), kernel)
    yield partial(_run, replace(task, support=support), flat)
    yield partial(_run, replace(task, support=None), flat)
    yield partial(_run, free.task, free.kernel, TDBetting(), value(free.task, free.kernel), 2 * SPLITTING)
    yield partial(evaluate, free.task, TabularSimulator(free.kernel), 0.3, max_samples=SAMPLES)
    for boundary in (PaperBoundary(), MixtureBoundary(0.5)):
        yield partial(_run, free.task, free.kernel, PTST(boundary=boundary))
    for allocation in ("uniform", Adaptive(), Forward(), Optimal(free.kernel)):
        yield partial(_run, free.task, free.kernel, PTST(allocation=allocation))
    yield partial(characteristic_time, free.task, free.kernel)
    half = np.full(40, 0.5)
    log = LoggedEpisodes(None, half, half, half, reward_range=(0, 1), smallest_propensity=0.25)
    yield partial(assess, log, threshold=0.4)
    large = instances.random(seed=1, S=DIRECT_SMALL + 1, A=1, successors=2)  # with other linear solvers
    yield partial(_run, large.task, large.kernel)
    yield partial(_run, large.task, large.kernel, PTST(solver=ProjectionFree()))


def _run(task: Task, kernel: Kernel, method: Method | None = None, R: float = 0.0, samples: int = SAMPLES) -> None:
    for check in checks(task, TabularSimulator(kernel), R, 0.05, method, 0, samples):
        last = check
    last.interval()
