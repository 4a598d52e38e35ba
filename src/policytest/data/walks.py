"""An environment with an agent, step by step; or a function that runs whole episodes.

Every episode has a seed of its own, from which the environment is reset and from which an agent that samples gets its
random generator. So an episode can be repeated, a run that is interrupted goes on as if it had not been, and two
agents can be compared under the same luck.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np

from policytest._base import errors
from policytest._base.errors import InputError

AGENT_STREAM = 0x616765  # sets the random numbers of an agent apart from those of its environment
LARGEST_SEED = 2**31 - 1
NO_AGENT = "agent is missing; pass a function of the observation, or an object with predict"


class FunctionWalk:
    """A function ``run(rng)`` that runs an episode."""

    time_limit: int | None = None

    def __init__(self, run: Callable[[np.random.Generator], Any]) -> None:
        self.run = run

    @property
    def name(self) -> str:
        """Of the function."""
        return str(getattr(self.run, "__name__", type(self.run).__name__))

    def rewards(self, seed: int) -> Any:
        """What the function returns: the rewards of an episode, or its return."""
        return self.run(np.random.default_rng(seed))


class Walk:
    """A Gymnasium environment and an agent."""

    def __init__(self, env: Any, agent: Any) -> None:
        self.env, self.act = env, acting(agent)
        self.begins_anew = getattr(agent, "reset", None)
        self.time_limit = _time_limit(env)
        self.takes_seed = True

    @property
    def name(self) -> str:
        """Of the environment."""
        return called(self.env)

    def begin(self, seed: int) -> Any:
        """Reset; the first observation."""
        self.rng = np.random.default_rng([seed, AGENT_STREAM]) if self.act.samples else None
        if callable(self.begins_anew):
            self.begins_anew()
        if self.takes_seed:
            try:
                return self.env.reset(seed=seed)[0]
            except TypeError as error:
                if "seed" not in str(error):
                    raise
                self.takes_seed = False
        return self.env.reset()[0]

    def step(self, observation: Any) -> tuple[Any, float, bool]:
        """One step by the agent: the next observation, the reward, and whether the episode is over."""
        observation, reward, terminated, truncated, _ = self.env.step(self.act(observation, self.rng))
        return observation, reward, bool(terminated or truncated)


class acting:  # noqa: N801 - called like a function
    """An agent as a function (observation, generator) -> action; ``samples``: whether it uses the generator."""

    def __init__(self, agent: Any) -> None:
        predict = getattr(agent, "predict", None)
        self.agent = predict if callable(predict) else agent
        if not callable(self.agent):
            raise InputError(
                f"agent is a {type(agent).__name__}; pass a function of the observation, or an object with predict"
            )
        self.predicts = callable(predict)
        self.samples = not self.predicts and _takes_two(self.agent)

    def __call__(self, observation: Any, rng: Any) -> Any:
        """The action."""
        if self.samples:
            return self.agent(observation, rng)
        action = self.agent(observation)
        return action[0] if self.predicts and isinstance(action, tuple) else action


def _takes_two(function: Any) -> bool:
    """Whether a function has two positional arguments without defaults."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # built-in: one argument
        return False
    needed = [p for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD) and p.default is p.empty]
    return len(needed) == 2


def walk_of(env: Any, agent: Any, batched: bool) -> Walk | FunctionWalk:
    """The environment with its agent; the function, where ``env`` is one."""
    if batched:
        raise InputError("batched=True is for a vector of environments, and env is not one; pass gymnasium.make_vec")
    if isinstance(env, str) or type(env).__name__ == "EnvSpec":
        env = made(env)
    if isinstance(env, type):
        raise InputError(f"env is the class {env.__name__}; pass an environment, {env.__name__}(...)")
    if all(hasattr(env, name) for name in ("reset", "step")):
        if agent is None:
            raise InputError(NO_AGENT)
        return Walk(env, agent)
    if not callable(env):
        raise InputError(f"env is a {type(env).__name__}; pass a Gymnasium environment, its id, or a function run(rng)")
    if agent is not None:
        raise InputError("agent belongs to an environment, and env is a function that runs episodes; leave it out")
    return FunctionWalk(env)


def called(env: Any) -> str:
    """The id of an environment, or the name of its class."""
    spec = getattr(env, "spec", None)
    return str(getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__)


def made(env: Any, **options: Any) -> Any:
    """The Gymnasium environment of an id."""
    gym = errors.needs("gymnasium", "gym")
    try:
        return gym.make(env, **options)
    except Exception as error:
        raise InputError(
            f"env is {getattr(env, 'id', env)!r}, which cannot be made: {errors.first_line(error)}"
        ) from error


def _time_limit(env: Any) -> int | None:
    """The number of steps after which the environment truncates, where it says so."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return None if limit is None else int(limit)
