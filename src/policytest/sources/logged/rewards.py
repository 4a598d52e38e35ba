"""Rewards that come with a log, compared with the range that the task declares for them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray, first
from policytest._base.errors import InputError
from policytest._base.text import number
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.sources.labels import entry, numbers, whole
from policytest.sources.logged import frames
from policytest.sources.logged.frames import Batch, Frame
from policytest.sources.logged.log import short

NO_REWARDS = (
    "the rewards of the task are observed, and {place} has no column reward; name it with "
    'columns={{"reward": ...}}, or give the task rewards'
)


def outside(task: Task, pair: IntArray, rewards: FloatArray) -> BoolArray:
    """Which rewards, as they are paid, lie outside the range that the task declares; at pairs that the policy takes."""
    assert isinstance(task.rewards, Observed)
    found = task.rewards.outside(pair, rewards / task.reward_scale) & (task.policy.ravel()[pair] > 0)
    return np.asarray(found)


def wrong_range(task: Task, pair: int, x: int, reward: float) -> str:
    """What is wrong with a reward outside its range, and what to do."""
    low, high = (float(end.ravel()[pair]) * task.reward_scale for end in (task.rewards.low, task.rewards.high))
    return (
        f"the reward is {reward:.9g} at {task.place(pair, x)}, outside the declared range [{low:g}, {high:g}]; fix the "
        "row, or widen the range (reward_range, Observed(low, high))"
    )


def missing(task: Task, shown: str) -> str:
    """What is wrong with a reward that is not a number, and what to do."""
    low, high = (task.reward_scale * end for end in task.reward_bounds)
    return (
        f"the reward is {shown}; every transition needs the reward that was observed, a number in [{low:g}, {high:g}]; "
        "fix the row"
    )


def first_wrong(
    task: Task, frame: Frame, indices: Callable[[Batch], tuple[IntArray, IntArray, IntArray]]
) -> InputError:
    """The error that names the first row whose reward is missing or outside its range: the table is read once more."""
    before = 0
    for batch in frames.in_turn(frame):
        s, a, x = indices(batch)
        going = (s >= 0) & (a >= 0) & (x >= 0)
        pair = np.where(going, s * task.n_actions + a, 0)
        rewards, bad = numbers(batch["reward"]), whole(batch["bad_reward"]) == 1
        if (i := first(bad | (going & outside(task, pair, rewards)))) is not None:
            what = missing(task, _shown(batch, i)) if bad[i] else wrong_range(task, int(pair[i]), int(x[i]), rewards[i])
            return InputError(f"{_row(frame, batch, before, i)}: {what}")
        before += len(rewards)
    return InputError("data changed while it was read; read it again")


def _shown(batch: Batch, i: int) -> str:
    """What stands in the column reward."""
    value = entry(batch["reward_text" if "reward_text" in batch else "reward"], i)
    return "missing" if value is None or value == "" else short(value)


def _row(frame: Frame, batch: Batch, before: int, i: int) -> str:
    """The row in words: its number, unless the engine has sorted the rows, its order and its episode."""
    keys = [f"{role} {short(entry(batch[role], i))}" for role in ("order", "episode") if role in batch]
    numbered = [] if frame.flags else [f"row {number(before + i + 1)}"]
    return ", ".join([*numbered, *keys])
