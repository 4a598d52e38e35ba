"""What would have to be different for an answer to be wrong: the rows of the witness that cost most."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy import sparse

from policytest._base.arrays import FloatArray, Kernel, is_sparse
from policytest._base.text import plural
from policytest.data.counts import Counts
from policytest.mdp.task import Task
from policytest.worst_case.ball import kl_rows

MOST_CHANGES = 5
SMALLEST_CHANGE = 5e-4  # of a probability that is worth a line


@dataclass(frozen=True)
class Change:
    """One transition that would have to be different for the answer to be wrong."""

    state: int
    action: int
    successor: int
    observed: float
    needed: float
    visits: int
    words: str

    def data(self) -> dict[str, float]:
        """What a program reads."""
        place = {"state": self.state, "action": self.action, "next": self.successor}
        return {**place, "observed": self.observed, "needed": self.needed}


def largest_changes(task: Task, counts: Counts, witness: Kernel, most: int = MOST_CHANGES) -> tuple[Change, ...]:
    """The largest change of each of the rows that cost most, n_sa KL(p_hat_sa, w_sa)."""
    S, A = task.n_states, task.n_actions
    visits = counts.visits.ravel()
    matters = (visits > 0) & (task.policy.ravel() > 0)
    if not matters.any():
        return ()
    observed = _shares(counts)
    cost = np.where(matters, visits * kl_rows(observed, witness), 0.0)
    found = []
    for pair in np.argsort(-cost, kind="stable")[:most]:
        if cost[pair] <= 0:
            break
        before, after = (_row(kernel, int(pair), S) for kernel in (observed, witness))
        x = int(np.argmax(np.abs(after - before)))
        if abs(after[x] - before[x]) < SMALLEST_CHANGE:
            continue
        s, a = divmod(int(pair), A)
        words = (
            f"{task.place(int(pair), x)}: probability {after[x]:.3f} instead of {before[x]:.3f} "
            f"({plural(visits[pair], 'sample')}, {cost[pair]:.2f} nats)"
        )
        found.append(Change(s, a, x, float(before[x]), float(after[x]), int(visits[pair]), words))
    return tuple(found)


def _shares(counts: Counts) -> Kernel:
    """N/n, with empty rows where there are no visits."""
    visits = np.maximum(counts.visits, 1)
    if counts.sparse:
        return sparse.csr_array(sparse.diags_array(1.0 / visits.ravel()) @ counts.N)
    return counts.N / visits[..., None]


def _row(kernel: Kernel, pair: int, S: int) -> FloatArray:
    found: FloatArray = kernel[[pair]].toarray().ravel() if is_sparse(kernel) else kernel.reshape(-1, S)[pair]
    return found
