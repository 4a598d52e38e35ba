"""The policy's linear system, V = r + gamma P V and d = rho + gamma P^T d: this package's solver beside those of SciPy.

Two kinds of task: random rows with 5 successors, 4 actions, and a slippery grid; discount 0.95. Both vectors are
computed. SuperLU factorises once for both, spsolve twice; the iterative solvers run to a relative residual of 1e-12,
GMRES with an incomplete LU factorisation. Left out (-): factorisations of large random graphs, which fill in (more than
a minute at 10,000 states), incomplete ones that are singular, and BiCGSTAB where it breaks down. Times are process
time, the least of some runs.

    python benchmarks/linear_solvers.py                # up to 100,000 states
    python benchmarks/linear_solvers.py --small        # as the tests run it
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from scipy.sparse import linalg

import policytest as pt
from policytest._base.compiled import search
from policytest._base.linear import system_of

GAMMA, CLOSE = 0.95, 1e-12
WRONG = 1e-6  # a relative difference from this package's solution at which a solver has failed
MOST_FILLED = 2_000  # states of a random graph up to which it is factorised: it has no order with little fill-in


def system(kind: str, S: int) -> tuple[Any, Any, Any]:
    """The rows, the kernel's entries and rho."""
    if kind == "grid":
        side = round(S**0.5)
        made = pt.instances.grid_world(side, side, discount=GAMMA)
    else:
        made = pt.instances.random(1, S, 4, successors=5, discount=GAMMA)
    rows, q, _ = made.task.rows_of("kernel", made.task.check_kernel("kernel", made.kernel))
    return rows, q, made.task.initial


def solvers(rows: Any, q: Any, rho: Any) -> dict[str, Callable[[], tuple[Any, Any]]]:
    """Each gives V and d."""
    moves, reward = system_of(rows, q, GAMMA)
    moves.sum_duplicates()
    A = sparse.csc_array(sparse.eye_array(len(rho), format="csc") - moves.tocsc())
    T = sparse.csc_array(A.T)

    def superlu() -> tuple[Any, Any]:
        lu = linalg.splu(A)
        return lu.solve(reward), lu.solve(rho, "T")

    def by(method: Any, **options: Any) -> tuple[Any, Any]:
        first, second = (
            method(M, b, rtol=CLOSE, atol=0.0, **options) for M, b in ((A.tocsr(), reward), (T.tocsr(), rho))
        )
        return first[0], second[0]

    def preconditioned() -> tuple[Any, Any]:
        parts = []
        for M, b in ((A, reward), (T, rho)):
            ilu = linalg.spilu(M, drop_tol=1e-3, fill_factor=5.0)
            near = linalg.LinearOperator(M.shape, ilu.solve)
            parts.append(linalg.gmres(M.tocsr(), b, rtol=CLOSE, atol=0.0, M=near)[0])
        return parts[0], parts[1]

    return {
        "policytest": lambda: search.values_and_occupancy(rows, q, GAMMA, rho)[:2],
        "SuperLU": superlu,
        "spsolve": lambda: (linalg.spsolve(A, reward), linalg.spsolve(T, rho)),
        "BiCGSTAB": lambda: by(linalg.bicgstab),
        "GMRES, ILU": preconditioned,
    }


def measure(kind: str, S: int, runs: int) -> dict[str, Any]:
    """One row of the table: seconds by solver, and the largest difference from this package's solution."""
    rows, q, rho = system(kind, S)
    found: dict[str, Any] = {"kind": kind, "states": len(rho), "seconds": {}, "difference": 0.0}
    exact = search.values_and_occupancy(rows, q, GAMMA, rho)[:2]
    for name, solve in solvers(rows, q, rho).items():
        factorised = name in ("SuperLU", "spsolve", "GMRES, ILU")
        if factorised and kind == "random" and S > MOST_FILLED:
            continue
        best = np.inf
        try:
            for _ in range(runs if S <= 10_000 else 1):
                begin = time.process_time()
                values = solve()
                best = min(best, time.process_time() - begin)
        except RuntimeError:  # an incomplete factorisation that is singular
            continue
        off = max(float(np.abs(m - its).max() / np.abs(m).max()) for m, its in zip(exact, values, strict=True))
        if off < WRONG:
            found["seconds"][name] = best
            found["difference"] = max(found["difference"], off)
    return found


def main() -> None:
    """Measure, print a table, and keep the numbers if asked."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--small", action="store_true")
    options.add_argument("--json", type=Path)
    given = options.parse_args()
    search.values_and_occupancy(*system("random", 200)[:2], GAMMA, system("random", 200)[2])  # compile first
    names = ["policytest", "SuperLU", "spsolve", "BiCGSTAB", "GMRES, ILU"]
    print(f"| task | states | {' | '.join(names)} |\n|---|---|{'---|' * len(names)}")
    rows = []
    for kind in ("random", "grid"):
        for S in (100, 400) if given.small else (100, 1_000, 10_000, 100_000):
            row = measure(kind, S, 3)
            rows.append(row)
            shown = (f"{1e3 * row['seconds'][name]:.3g} ms" if name in row["seconds"] else "-" for name in names)
            print(f"| {kind} | {row['states']:,} | {' | '.join(shown)} |", flush=True)
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1))


if __name__ == "__main__":
    main()
