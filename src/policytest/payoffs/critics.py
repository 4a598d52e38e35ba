r"""Critics: what the rest of an episode is expected to pay, by the observation. Any is valid; a good one saves steps.

A critic is used as it is, and fitted: the sum of the discounted rewards from step t on is regressed on

    1, phi(o_t), u, u phi(o_t),        u the share of the horizon that is left,

(without a horizon 1 and phi(o_t) alone) by ridge regression over the episodes so far. phi are the user's features, or
the value of the given critic. Episodes fall into two halves: each is judged by a critic that was fitted to the other.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.text import plural

PENALTY = 1e-4  # of the mean diagonal of the normal equations
MOST_FEATURES = 500


@dataclass(frozen=True)
class RidgeCritic:
    """A critic that is fitted to the episodes of the run itself, by ridge regression.

    Parameters
    ----------
    features
        A function of the observation that returns a list of numbers; by default the observation itself and its squares.

    >>> RidgeCritic().of([0.5, -2.0])
    array([ 0.5 , -2.  ,  0.25,  4.  ])
    """

    features: Callable[[Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.features is not None and not callable(self.features):
            raise InputError(f"features is {arrays.shown(self.features)}; pass a function of the observation")

    def of(self, observation: Any) -> FloatArray:
        """The features of an observation."""
        if self.features is None:
            seen = np.asarray(observation, dtype=np.float64).ravel()
            found = np.concatenate((seen, seen * seen))
        else:
            found = np.asarray(self.features(observation), dtype=np.float64).ravel()
        if len(found) > MOST_FEATURES:
            raise InputError(f"the critic has {len(found)} features, more than {MOST_FEATURES}; pass features=")
        return found


class Valuer:
    """The critic of a run: raw values where the user gave a function, and fitted ones."""

    def __init__(self, critic: Any, horizon: int | None) -> None:
        if not isinstance(critic, RidgeCritic) and not callable(critic):
            raise InputError(
                f"critic is a {type(critic).__name__}; pass a function of the observation, or RidgeCritic(features)"
            )
        self.critic, self.horizon = critic, horizon
        self.is_given = not isinstance(critic, RidgeCritic)
        self.width = 0  # of phi; 0 before the first one
        self.normal: FloatArray | None = None  # [2, d, d + 1] X'X of both halves, with X'y as the last column
        self.weights: FloatArray | None = None
        self.unseen: list[FloatArray] = []  # for each half, the weights by the other one

    def row(self, observation: Any) -> FloatArray:
        """phi of an observation: the value of a given critic, or features."""
        if isinstance(self.critic, RidgeCritic):
            found = self.critic.of(observation)
        else:
            found = np.asarray(self.critic(observation), dtype=np.float64).ravel()
            if len(found) != 1:
                raise InputError(f"critic returned {len(found)} numbers for one observation; it must return one")
        self.width = self.width or len(found)
        if len(found) != self.width:
            raise InputError(
                f"critic has {plural(len(found), 'feature')} of an observation, and had {self.width} before; return as "
                "many for each, and resume a run with the critic that it had"
            )
        return found

    def design(self, rows: FloatArray, t: FloatArray) -> FloatArray:
        """The regressors of some steps."""
        ones = np.ones((len(rows), 1))
        if self.horizon is None:
            return np.concatenate([ones, rows], axis=1)
        left = (1.0 - t / self.horizon)[:, None]
        return np.concatenate([ones, rows, left, left * rows], axis=1)

    def learn(self, rows: FloatArray, targets: FloatArray, half: int) -> None:
        """The steps of an episode, with the sums of what followed."""
        X = self.design(rows, np.arange(float(len(rows))))
        seen = X.T @ np.column_stack([X, targets])
        if self.normal is None:
            self.normal = np.zeros((2, *seen.shape))
        self.normal[half] += seen

    def fit(self) -> None:
        """Solve for the weights."""
        if self.normal is not None:
            self.weights = _solved(self.normal.sum(axis=0))
            self.unseen = [_solved(half) for half in self.normal[::-1]]

    def judged(self, rows: FloatArray, t: FloatArray, half: IntArray, is_fitted: bool) -> FloatArray:
        """What is expected of the rest, at steps of past episodes; a fitted critic is that of the other half."""
        if not is_fitted or not self.unseen:
            return rows[:, 0] if self.is_given else np.zeros(len(rows))
        first, second = (self.design(rows, t) @ weights for weights in self.unseen)
        return np.asarray(np.where(half == 0, first, second))

    def value(self, row: FloatArray, t: int, w: FloatArray | None) -> float:
        """What is expected of the rest, at one step, with the weights of a fit; None: of the given critic."""
        if w is None:
            return _finite(float(row[0])) if self.is_given else 0.0
        p = len(row)
        found = w[0] + row @ w[1 : p + 1]
        if self.horizon is not None:
            found += (1.0 - t / self.horizon) * (w[p + 1] + row @ w[p + 2 :])
        return _finite(float(found))

    def state(self) -> Arrays:
        """The normal equations, and the weights."""
        return {
            "critic": np.zeros((2, 0, 0)) if self.normal is None else self.normal.copy(),
            "critic_weights": np.zeros(0) if self.weights is None else self.weights.copy(),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""
        self.normal = state["critic"] if state["critic"].size else None
        self.weights = state["critic_weights"] if state["critic_weights"].size else None
        regressors = 0 if self.normal is None else self.normal.shape[1]
        self.width = max(regressors - 1, 0) if self.horizon is None else max(regressors // 2 - 1, 0)


def _solved(normal: FloatArray) -> FloatArray:
    """The weights of a ridge regression."""
    A, b = normal[:, :-1], normal[:, -1]
    scale = np.sqrt(np.maximum(np.diag(A), 1e-300))
    scaled = A / np.outer(scale, scale) + PENALTY * np.eye(len(A))
    return np.asarray(np.linalg.solve(scaled, b / scale) / scale)


def _finite(value: float) -> float:
    if not math.isfinite(value):
        raise InputError(f"the critic's value of an observation is {value}; its values and features must be numbers")
    return value
