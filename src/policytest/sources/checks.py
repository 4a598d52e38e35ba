"""Data against the task: is each transition in the support, is each reward the task's? One check for every source."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray, first
from policytest._base.errors import InputError
from policytest._base.rows import entries_at
from policytest.mdp.task import Task

Rewards = TypeVar("Rewards", float, FloatArray)
ROUNDING = 1e-6
"""Differences of rewards, absolute or relative, that may come from single precision."""
IGNORED_REWARDS = (
    "Estimated rewards, such as means of this column, void the guarantee; if the column is ignored, with "
    'columns={"reward": None}, no answer is certified'
)


def check_support(task: Task, pair: IntArray, x: IntArray, matters: BoolArray, what: Callable[[int], str]) -> None:
    """Refuse transitions outside the support of the task, from pairs [S*A] that matter; ``what`` begins the message."""
    if task.support is None:
        return
    if (i := first(matters[pair] & (entries_at(task.support, pair, x) == 0))) is not None:
        raise InputError(
            f"{what(i)} the transition {task.place(pair[i], x[i])}, which is outside the support of the task; fix the "
            "data or widen the support"
        )


def room(expected: Rewards, tolerance: float) -> Rewards:
    """How far a reward may be from the expected one: the tolerance, absolute or relative."""
    found: Rewards = tolerance * np.maximum(1.0, np.abs(expected))
    return found


def close(said: Rewards, paid: Rewards) -> BoolArray:
    """Whether rewards are the same up to the rounding of double precision."""
    same: BoolArray = np.abs(said - paid) <= room(paid, 1e-9)
    return same


def first_other(
    expected: FloatArray, least: FloatArray, largest: FloatArray, tolerance: float, matters: BoolArray
) -> int | None:
    """Where rewards from ``least`` to ``largest`` are first not the expected ones; None if nowhere it matters."""
    return first(matters & (np.maximum(expected - least, largest - expected) > room(expected, tolerance)))


def wrong_reward(what: str, place: str, expected: float, low: float, high: float, tolerance: float) -> str:
    """What is wrong with rewards from ``low`` to ``high`` of one transition, and what to do."""
    allowed = room(expected, tolerance)
    if high - low > 2 * allowed:
        return (
            f"{what} runs from {low:.9g} to {high:.9g} at {place}, and must be a function of (s, a, s_next); split the "
            "states by what it depends on"
        )
    other = low if expected - low > allowed else high
    return f"{what} is {other:.9g} at {place}, the task has {expected:.9g} there; correct one of them"
