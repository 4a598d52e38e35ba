"""The relaxation behind certificates, as a conic program for a general interior-point solver: a second opinion."""

from __future__ import annotations

from typing import Any

import clarabel
import numpy as np
from scipy import sparse

from policytest.worst_case.certificate import CHORD, Certificate


def least_loss(claim: Certificate, low: Any, high: Any, kind: Any, second_mccormick: bool = False) -> float:
    """The least relaxed loss on the box, on the other side of the threshold; nan where the solver is not sure.

    Columns: d [S], f [E], one epigraph variable t [seen], and k [K], the divergence of each row:
    u k >= sum_x p t on perspective rows, k >= sum_x p t + chord(d) on chord ones. McCormick's second inequality for
    the product d k, with k <= B/n, is l k >= sum_x p t - (B/n)(d - l).
    """
    rows, S, K, E = claim.rows, len(claim.initial), len(claim.visits), len(claim.counts)
    state, owner = rows.per_entry(rows.state), rows.of_entry()
    seen = np.flatnonzero(claim.counts > 0)
    p = claim.counts[seen] / claim.visits[owner[seen]]
    visited = np.flatnonzero(claim.visits > 0)
    D, T = S + E + len(seen) + K, S + E
    entries: list[tuple[int, int, float]] = []
    right: list[float] = []
    cones: list[Any] = []

    def row(terms: dict[int, float], b: float) -> None:  # the slack b - sum terms is in the cone
        entries.extend((len(right), column, value) for column, value in terms.items())
        right.append(b)

    for k in range(K):  # sum_x f = d
        row({rows.state[k]: -1.0} | {S + e: 1.0 for e in range(rows.start[k], rows.start[k + 1])}, 0.0)
    for x in range(S):  # d = rho + gamma sum pi f
        terms = {S + int(e): -claim.discount * rows.prob[owner[e]] for e in np.flatnonzero(rows.successor == x)}
        row({x: 1.0} | terms, claim.initial[x])
    cones.append(clarabel.ZeroConeT(K + S))
    count = len(right)
    worth = rows.per_entry(rows.prob) * claim.sign * claim.worth
    row({S + e: worth[e] for e in range(E)}, 0.0)
    for s in range(S):
        row({s: 1.0}, high[s])
        row({s: -1.0}, -low[s])
    for e in range(E):
        row({S + e: -1.0}, 0.0)
    for k in visited:
        s = rows.state[k]
        own = {T + i: p[i] for i in np.flatnonzero(owner[seen] == k)}
        if kind[s] == CHORD:
            slope = np.log(high[s] / low[s]) / (high[s] - low[s])
            row(own | {S + E + len(seen) + k: -1.0, s: slope}, slope * low[s] - np.log(low[s]))
            continue
        row(own | {S + E + len(seen) + k: -high[s]}, 0.0)
        if second_mccormick and low[s] > 0:
            most = claim.level / claim.visits[k]
            row(own | {S + E + len(seen) + k: -low[s], s: -most}, -most * low[s])
    cones.append(clarabel.NonnegativeConeT(len(right) - count))
    for i, e in enumerate(seen):  # y exp(x/y) <= z: (-t, d, f/p), or (-t, 1, f/p) where the chord stands for log d
        row({T + i: 1.0}, 0.0)
        row({} if kind[state[e]] == CHORD else {int(state[e]): -1.0}, float(kind[state[e]] == CHORD))
        row({S + int(e): -1.0 / p[i]}, 0.0)
        cones.append(clarabel.ExponentialConeT())
    at, column, value = zip(*entries, strict=True)
    A = sparse.csc_matrix((value, (at, column)), shape=(len(right), D))
    cost = np.zeros(D)
    cost[S + E + len(seen) + visited] = claim.visits[visited]
    settings = clarabel.DefaultSettings()
    settings.verbose = False
    solution = clarabel.DefaultSolver(sparse.csc_matrix((D, D)), cost, A, np.array(right), cones, settings).solve()
    if str(solution.status) == "PrimalInfeasible":
        return np.inf
    return float(solution.obj_val) if str(solution.status) == "Solved" else np.nan
