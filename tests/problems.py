"""Problems that every worst-case solver is asked, and an independent solver to compare with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from scipy.optimize import minimize

import policytest as pt


@dataclass(frozen=True)
class Case:
    """A centre with weights, and a threshold on one side of its value, or of the value less that of a rival policy."""

    name: str
    task: pt.Task
    centre: np.ndarray
    weights: np.ndarray
    threshold: float
    rival: pt.Task | None = None

    def __str__(self) -> str:
        return self.name

    @property
    def terms(self) -> list[tuple[float, pt.Task]]:
        """The policies, with the signs of their values."""
        return [(1.0, self.task)] + ([] if self.rival is None else [(-1.0, self.rival)])

    def value(self, kernel: np.ndarray) -> float:
        return sum(sign * pt.value(task, kernel) for sign, task in self.terms)

    @property
    def sense(self) -> str:
        return "min" if self.value(self.centre) > self.threshold else "max"

    @property
    def sign(self) -> float:
        return 1.0 if self.sense == "min" else -1.0

    @property
    def pairs(self) -> np.ndarray:
        """[k,2] the pairs that some policy takes."""
        return np.argwhere(sum(task.policy for _, task in self.terms) > 0)

    def loss(self, kernel: np.ndarray) -> float:
        """A second way to write the weighted KL, over pairs with pi > 0."""
        total = 0.0
        for s, a in self.pairs:
            p, q = self.centre[s, a], kernel[s, a]
            seen = (p > 0) & (self.weights[s, a] > 0)
            total += self.weights[s, a] * float((p[seen] * np.log(p[seen] / q[seen])).sum())
        return total

    def nearest(self, solver: pt.worst_case.Solver | None = None, **settings: Any) -> pt.Bracket:
        """The nearest kernel on the other side of the threshold, for one policy."""
        return pt.nearest_kernel(self.task, self.centre, self.weights, self.threshold, solver=solver, **settings)


def as_csr(table: np.ndarray) -> sparse.csr_array:
    """A table [S,A,S] in the sparse form, of shape (S*A, S)."""
    return sparse.csr_array(table.reshape(-1, table.shape[-1]))


def draw(seed: int, counts: bool = False, on_successor: bool = False, discount: float | None = None) -> Case:
    """A random problem: `counts` gives an empirical centre with unseen successors and unvisited pairs."""
    rng = np.random.default_rng(seed)
    S, A = int(rng.integers(2, 6)), int(rng.integers(1, 4))
    gamma = float(rng.choice([0.1, 0.5, 0.9, 0.95])) if discount is None else discount
    kernel = rng.dirichlet(np.full(S, rng.choice([0.5, 2.0])), size=(S, A))
    kernel = 0.98 * kernel + 0.02 / S
    weights = np.full((S, A), 1.0 / (S * A))
    if counts:
        weights = rng.integers(0, 25, size=(S, A)).astype(float)
        N = np.array([[rng.multinomial(int(weights[s, a]), kernel[s, a]) for a in range(A)] for s in range(S)])
        kernel = np.where(weights[..., None] > 0, N / np.maximum(weights, 1)[..., None], 1.0 / S)
    task = pt.Task(
        rewards=rng.normal(0.3, 1.0, size=(S, A, S) if on_successor else (S, A)),
        policy=rng.dirichlet(np.ones(A), size=S),
        initial=rng.dirichlet(np.full(S, 2.0)),
        discount=gamma,
    )
    value = pt.value(task, kernel)
    end = pt.value_range(task)[int(rng.integers(2))]
    return Case(f"draw{seed}", task, kernel, weights, value + rng.uniform(0.05, 0.4) * (end - value))


def nearest_by_slsqp(case: Case, start: np.ndarray) -> tuple[float, np.ndarray]:
    """(NC) by SciPy's SLSQP in the variables q, with gradients: an independent local solver for small problems."""
    p, S, active, support = case.centre, case.task.n_states, case.pairs, case.task.support
    N, centre, x0 = (
        np.concatenate([table[s, a] for s, a in active]) for table in (case.weights[..., None] * p, p, start)
    )
    allowed = np.ones(len(N), bool) if support is None else np.concatenate([support[s, a] for s, a in active])
    seen = N > 0

    def kernel(x: np.ndarray) -> np.ndarray:
        q = p.copy()
        for k, (s, a) in enumerate(active):
            row = np.maximum(x[k * S : (k + 1) * S], 0.0)
            q[s, a] = row / row.sum()
        return q

    def loss(x: np.ndarray) -> float:
        return float(N[seen] @ (np.log(centre[seen]) - np.log(x[seen])))

    def loss_gradient(x: np.ndarray) -> np.ndarray:
        return np.where(seen, -N / np.where(seen, x, 1.0), 0.0)

    def values(task: pt.Task, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        P, r = np.zeros((S, S)), np.zeros(S)
        for k, (s, a) in enumerate(active):
            row = x[k * S : (k + 1) * S]
            P[s] += task.policy[s, a] * row
            reward = task.rewards[s, a] @ row if task.rewards.ndim == 3 else task.rewards[s, a]
            r[s] += task.policy[s, a] * reward
        A = np.eye(S) - task.discount * P
        return np.linalg.solve(A, r), np.linalg.solve(A.T, task.initial)

    def slack(x: np.ndarray) -> float:
        return case.sign * (case.threshold - sum(sign * float(t.initial @ values(t, x)[0]) for sign, t in case.terms))

    def slack_gradient(x: np.ndarray) -> np.ndarray:
        total = np.zeros(len(x))
        for sign, task in case.terms:
            V, d = values(task, x)
            rewards = task.rewards if task.rewards.ndim == 3 else np.zeros((*task.policy.shape, 1))
            parts = [d[s] * task.policy[s, a] * (rewards[s, a] + task.discount * V) for s, a in active]
            total -= case.sign * sign * np.concatenate(parts)
        return total

    sums = np.kron(np.eye(len(active)), np.ones(S))
    result = minimize(
        loss,
        x0,
        jac=loss_gradient,
        method="SLSQP",
        bounds=[(1e-14 if yes else 0.0, float(may)) for yes, may in zip(seen, allowed, strict=True)],
        constraints=[
            {"type": "eq", "fun": lambda x: sums @ x - 1.0, "jac": lambda x: sums},
            {"type": "ineq", "fun": slack, "jac": slack_gradient},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    q = kernel(result.x)
    feasible = case.sign * (case.value(q) - case.threshold) <= 1e-8 * (1 + abs(case.threshold))
    converged = result.status in (0, 8)  # 8: no step improves any more
    return (case.loss(q) if feasible and converged else np.inf), q


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    """KL(p, q) in extended precision, as sum p log(p/q) - p + q, which forgives a rounded sum of q."""
    p, q = np.asarray(p, dtype=np.longdouble), np.asarray(q, dtype=np.longdouble)
    seen = p > 0
    if (q[seen] <= 0).any():
        return np.inf
    return float((p[seen] * np.log(p[seen] / q[seen])).sum() - p.sum() + q.sum())


def random_kernel(rng: np.random.Generator, S: int, A: int, zeros: float = 0.3) -> np.ndarray:
    """Rows with zeros, some of them nearly deterministic."""
    q = rng.dirichlet(np.full(S, rng.choice([0.2, 1.0, 10.0])), size=(S, A))
    q[rng.random(q.shape) < zeros] = 0.0
    q[q.sum(axis=2) == 0, rng.integers(S)] = 1.0
    return q / q.sum(axis=2, keepdims=True)
