"""Environments and agents with one fault each, for `fuzzing`: ``python:faults:NAME`` and ``--agent faults:NAME``.

A faulty environment or agent is refused in words, or it makes no difference; nothing hangs, and nothing is certified
that rests on a number which is not one.
"""

from __future__ import annotations

import sys
from typing import Any

import gymnasium
import numpy as np


class Coin(gymnasium.Env[Any, Any]):
    """Three steps, each paying 0 or 1 by chance."""

    observation_space: Any = gymnasium.spaces.Box(-1.0, 1.0, (2,))
    action_space: Any = gymnasium.spaces.Discrete(2)

    def __init__(self) -> None:
        self.t = 0

    def reset(self, *, seed: Any = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.t = 0
        return np.zeros(2), {}

    def step(self, action: Any) -> Any:
        self.t += 1
        return np.zeros(2), float(self.np_random.integers(2)), self.t == 3, False, {}


def stepping(**changed: Any) -> type[Coin]:
    """A coin that answers these in the place of its own from the second step on."""

    class Changed(Coin):
        def step(self, action: Any) -> Any:
            answer = dict(zip(("what", "reward", "terminated", "truncated", "info"), super().step(action), strict=True))
            return tuple((answer | (changed if self.t > 1 else {})).values())

    return Changed


def answering(make: Any) -> type[Coin]:
    """A coin whose step answers something else: a function of the right answer."""

    class Other(Coin):
        def step(self, action: Any) -> Any:
            return make(super().step(action))

    return Other


def resetting(make: Any) -> type[Coin]:
    """A coin whose reset answers something else."""

    class Other(Coin):
        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            return make(super().reset(seed=seed))

    return Other


def raising(error: BaseException, where: str = "step") -> type[Coin]:
    """A coin that fails."""

    class Failing(Coin):
        def step(self, action: Any) -> Any:
            if where == "step" and self.t == 1:
                raise error
            return super().step(action)

        def reset(self, *, seed: Any = None, options: Any = None) -> Any:
            if where == "reset":
                raise error
            return super().reset(seed=seed)

        def close(self) -> None:
            if where == "close":
                raise error

    return Failing


def without(name: str) -> type[Coin]:
    """A coin that lacks a part."""

    class Lacking(Coin):
        def __getattribute__(self, asked: str) -> Any:
            if asked == name:
                raise AttributeError(asked)
            return super().__getattribute__(asked)

    return Lacking


class Old(Coin):
    """The interface before Gymnasium: reset gives an observation, step four things."""

    def reset(self, **_: Any) -> Any:
        return super().reset()[0]

    def step(self, action: Any) -> Any:
        what, reward, over, _, info = super().step(action)
        return what, reward, over, info


class Unseeded(Coin):
    """reset takes no seed."""

    def reset(self) -> Any:  # type: ignore[override]
        return super().reset()


class Forgetful(Coin):
    """Its draws do not depend on the seed."""

    draws = np.random.default_rng(0)

    def step(self, action: Any) -> Any:
        what, _, *rest = super().step(action)
        return what, float(self.draws.integers(2)), *rest


class Talkative(Coin):
    """It prints."""

    def step(self, action: Any) -> Any:
        print("step", "\x1b[2J", file=sys.stdout)
        return super().step(action)


class Picky(Coin):
    """It refuses all actions."""

    def step(self, action: Any) -> Any:
        raise AssertionError(f"{action!r} ({type(action)}) invalid")


ENVIRONMENTS: dict[str, Any] = {
    "fine": Coin,
    "nan_reward": stepping(reward=float("nan")),
    "infinite_reward": stepping(reward=float("inf")),
    "no_reward": stepping(reward=None),
    "masked_reward": stepping(reward=np.ma.masked),
    "text_reward": stepping(reward="1"),
    "bytes_reward": stepping(reward=b"1"),
    "complex_reward": stepping(reward=1 + 1j),
    "list_reward": stepping(reward=[0.5]),
    "long_reward": stepping(reward=np.ones(3)),
    "array_reward": stepping(reward=np.array(0.5)),
    "bool_reward": stepping(reward=True),
    "half_reward": stepping(reward=np.float16(0.5)),
    "large_reward": stepping(reward=1e300),
    "huge_reward": stepping(reward=10**400),
    "negative_reward": stepping(reward=-5.0),
    "never_ends": stepping(terminated=False),
    "text_terminated": stepping(terminated="no"),
    "nan_terminated": stepping(terminated=float("nan")),
    "number_terminated": stepping(terminated=2),
    "no_terminated": stepping(terminated=None),
    "array_terminated": stepping(terminated=np.array([False, True])),
    "text_truncated": stepping(truncated="no"),
    "numpy_truncated": stepping(truncated=np.bool_(True)),
    "no_info": stepping(info=None),
    "other_shape": stepping(what=np.zeros(7)),
    "nan_observation": stepping(what=np.full(2, np.nan)),
    "no_observation": stepping(what=None),
    "text_observation": stepping(what="here"),
    "four_answers": answering(lambda answer: answer[:4]),
    "six_answers": answering(lambda answer: (*answer, 0)),
    "one_answer": answering(lambda answer: 1.0),
    "nothing": answering(lambda answer: None),
    "a_dict": answering(lambda answer: {"reward": 1.0}),
    "bare_reset": resetting(lambda answer: answer[0]),
    "reset_nothing": resetting(lambda answer: None),
    "reset_three": resetting(lambda answer: (*answer, 0)),
    "old_interface": Old,
    "unseeded": Unseeded,
    "forgetful": Forgetful,
    "talkative": Talkative,
    "picky": Picky,
    "value_error": raising(ValueError("boom")),
    "key_error": raising(KeyError("boom")),
    "stop_iteration": raising(StopIteration()),
    "system_exit": raising(SystemExit(0)),
    "memory_error": raising(MemoryError()),
    "os_error": raising(OSError(28, "No space left on device")),
    "broken_pipe": raising(BrokenPipeError()),
    "long_error": raising(RuntimeError("x" * 5000)),
    "failing_reset": raising(RuntimeError("boom"), "reset"),
    "failing_close": raising(RuntimeError("boom"), "close"),
    "no_reset": without("reset"),
    "no_step": without("step"),
    "no_action_space": without("action_space"),
    "no_observation_space": without("observation_space"),
    "not_an_environment": dict,
}


class Predicting:
    """As Stable-Baselines3 has them; ``answer`` is what predict returns."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def predict(self, observation: Any, state: Any = None, episode_start: Any = None, **_: Any) -> Any:
        return self.answer(observation) if callable(self.answer) else self.answer


def failing(error: BaseException) -> Any:
    """An agent that fails."""

    def agent(observation: Any) -> Any:
        raise error

    return agent


AGENTS: dict[str, Any] = {
    "good": lambda observation: 0,
    "nothing_agent": lambda observation: None,
    "text_agent": lambda observation: "left",
    "nan_agent": lambda observation: float("nan"),
    "outside_agent": lambda observation: 77,
    "array_agent": lambda observation: np.array([0]),
    "float_agent": lambda observation: 0.3,
    "tuple_agent": lambda observation: (0, None),
    "no_argument_agent": lambda: 0,
    "three_arguments_agent": lambda a, b, c: 0,
    "keyword_agent": lambda *, observation: 0,
    "random_agent": lambda observation, rng: int(rng.integers(2)),
    "global_agent": lambda observation: int(np.random.randint(2)),  # noqa: NPY002
    "failing_agent": failing(RuntimeError("boom")),
    "exiting_agent": failing(SystemExit(0)),
    "stopping_agent": failing(StopIteration()),
    "predicting_agent": Predicting((0, None)),
    "predicting_one_agent": Predicting(0),
    "predicting_nothing_agent": Predicting(None),
    "predicting_three_agent": Predicting((0, None, None)),
    "predicting_array_agent": Predicting((np.array([0]), None)),
    "predicting_text_agent": Predicting(("left", None)),
    "class_agent": Predicting,
    "number_agent": 7,
    "no_agent": None,
}

globals().update({name: make() for name, make in ENVIRONMENTS.items()})
globals().update(AGENTS)
