"""Problems that every worst-case solver is asked, and an independent solver to compare with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

import policytest as pt


@dataclass(frozen=True)
class Case:
    """A centre with weights, and a threshold on one side of its value."""

    name: str
    task: pt.Task
    centre: np.ndarray
    weights: np.ndarray
    threshold: float

    def __str__(self) -> str:
        return self.name

    @property
    def sense(self) -> str:
        return "min" if pt.value(self.task, self.centre) > self.threshold else "max"

    @property
    def sign(self) -> float:
        return 1.0 if self.sense == "min" else -1.0

    def loss(self, kernel: np.ndarray) -> float:
        """A second way to write the weighted KL, over pairs with pi > 0."""
        total = 0.0
        for s, a in np.argwhere((self.task.policy > 0) & (self.weights > 0)):
            p, q = self.centre[s, a], kernel[s, a]
            seen = p > 0
            total += self.weights[s, a] * float((p[seen] * np.log(p[seen] / q[seen])).sum())
        return total


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
    task, p, S = case.task, case.centre, case.task.n_states
    active = [(s, a) for s, a in np.argwhere(task.policy > 0)]
    N = np.concatenate([case.weights[s, a] * p[s, a] for s, a in active])
    seen = N > 0

    def kernel(x: np.ndarray) -> np.ndarray:
        q = p.copy()
        for k, (s, a) in enumerate(active):
            row = np.maximum(x[k * S : (k + 1) * S], 0.0)
            q[s, a] = row / row.sum()
        return q

    def loss(x: np.ndarray) -> float:
        return float(N[seen] @ (np.log(np.concatenate([p[s, a] for s, a in active])[seen]) - np.log(x[seen])))

    def loss_gradient(x: np.ndarray) -> np.ndarray:
        g = np.zeros(len(x))
        g[seen] = -N[seen] / x[seen]
        return g

    def values(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        P, r = np.zeros((S, S)), np.zeros(S)
        for k, (s, a) in enumerate(active):
            row = x[k * S : (k + 1) * S]
            P[s] += task.policy[s, a] * row
            reward = task.rewards[s, a] @ row if task.rewards.ndim == 3 else task.rewards[s, a]
            r[s] += task.policy[s, a] * reward
        A = np.eye(S) - task.discount * P
        return np.linalg.solve(A, r), np.linalg.solve(A.T, task.initial)

    def slack(x: np.ndarray) -> float:
        return case.sign * (case.threshold - float(task.initial @ values(x)[0]))

    def slack_gradient(x: np.ndarray) -> np.ndarray:
        V, d = values(x)
        parts = []
        for s, a in active:
            reward = task.rewards[s, a] if task.rewards.ndim == 3 else 0.0
            parts.append(-case.sign * d[s] * task.policy[s, a] * (reward + task.discount * V))
        return np.concatenate(parts)

    sums = np.kron(np.eye(len(active)), np.ones(S))
    x0 = np.concatenate([start[s, a] for s, a in active])
    result = minimize(
        loss,
        x0,
        jac=loss_gradient,
        method="SLSQP",
        bounds=[(1e-14 if yes else 0.0, 1.0) for yes in seen],
        constraints=[
            {"type": "eq", "fun": lambda x: sums @ x - 1.0, "jac": lambda x: sums},
            {"type": "ineq", "fun": slack, "jac": slack_gradient},
        ],
        options={"ftol": 1e-14, "maxiter": 500},
    )
    q = kernel(result.x)
    feasible = case.sign * (pt.value(task, q) - case.threshold) <= 1e-8 * (1 + abs(case.threshold))
    return (case.loss(q) if feasible and result.success else np.inf), q
