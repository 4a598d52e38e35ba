"""An environment with an agent, step by step; or a function that runs whole episodes.

Every episode has a seed of its own, from which the environment is reset and from which an agent that samples gets its
random generator; the generators that a process shares are seeded from it, too. So an episode can be repeated, a run
that is interrupted goes on as if it had not been, and two agents can be compared under the same luck.
"""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol, cast

import numpy as np

from policytest._base import arrays, errors
from policytest._base.errors import InputError
from policytest.data import trained_agents
from policytest.data.shared_generators import SharedGenerators

AGENT_STREAM = 0x616765  # sets the random numbers of an agent apart from those of its environment
SPACE_STREAM = 0x737061  # and those of the action space, from which random agents sample
LARGEST_SEED = 2**31 - 1
TERMINATED, TRUNCATED = "the flag terminated of env.step", "the flag truncated of env.step"
STARTS, GOES_ON = np.ones(1, dtype=np.bool_), np.zeros(1, dtype=np.bool_)
NO_AGENT = "agent is missing; pass a function of the observation, or an object with predict"


class Environment(Protocol):
    """What is asked of a Gymnasium environment."""

    def reset(self, *, seed: int | None = None) -> object:
        """Begin an episode: (observation, info)."""

    def step(self, action: object) -> object:
        """(observation, reward, terminated, truncated, info)."""


class FunctionWalk:
    """A function ``run(rng)`` that runs an episode."""

    time_limit: int | None = None
    policy, rounding = "", 0.0

    def __init__(self, run: Callable[[np.random.Generator], object]) -> None:
        self.run, self.name = run, str(getattr(run, "__name__", type(run).__name__))
        self.turn: AbstractContextManager[object] = threading.RLock()
        self.drew = True  # whether the latest episode drew from its generator

    def __reduce__(self) -> tuple[object, ...]:
        return FunctionWalk, (self.run,)

    def rewards(self, seed: int) -> object:
        """What the function returns: the rewards of an episode, or its return; or (rewards, info)."""
        rng = np.random.default_rng(seed)
        before = _position(rng)
        found = self.run(rng)
        self.drew = _position(rng) != before
        return found


def _position(rng: np.random.Generator) -> tuple[object, object]:
    """How far a generator is, and how many were spawned from it."""
    return rng.bit_generator.state["state"], getattr(rng.bit_generator.seed_seq, "n_children_spawned", 0)


class Walk:
    """A Gymnasium environment and an agent. An episode is stepped inside ``with walk.turn``: threads take turns.

    ``name`` is that of the environment; ``policy`` says which policy of the agent is run, where it has two.
    """

    rounding = 0.0  # of rewards, relative to them

    def __init__(self, env: Environment, agent: object, deterministic: bool) -> None:
        self.env, self.agent = env, agent
        self.act = AgentAdapter(trained_agents.prepared(agent, env, _masks(env)), deterministic)
        self.name, self.policy = called(env), self.act.policy
        self.space = getattr(env, "action_space", None)
        self.begins_anew = getattr(agent, "reset", None)
        self.time_limit = _time_limit(env)
        self.takes_seed = True
        self.turn = SharedGenerators()

    def begin(self, seed: int) -> object:
        """Reset; the first observation."""
        self.turn.seed(seed)
        self.rng = self.act.begin(seed, self.space)
        self.info: object = {}  # of the latest step
        self.memory: object = None
        self.starts = STARTS
        if callable(self.begins_anew):
            self.begins_anew()
        if self.takes_seed:
            try:
                return first_observation(self.env.reset(seed=seed))
            except TypeError as error:
                if "seed" not in str(error):
                    raise
                self.takes_seed = False
        return first_observation(self.env.reset())

    def step(self, observation: object) -> tuple[object, object, bool]:
        """One step by the agent: the next observation, the reward as it is, and whether the episode is over."""
        action, self.memory = self.act(observation, self.rng, self.memory, self.starts)
        self.starts = GOES_ON
        observation, reward, terminated, truncated, self.info = five_parts(self.env.step(action))
        if type(terminated) is not bool or type(truncated) is not bool:
            terminated, truncated = truth(TERMINATED, terminated), truth(TRUNCATED, truncated)
        return observation, reward, terminated or truncated


def first_observation(answer: object) -> object:
    """What `reset` shows."""
    if not (isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[1], dict)):
        raise InputError(
            f"env.reset answered {arrays.shown(answer)}; expected (observation, info), as Gymnasium has it, where "
            "info is a dictionary"
        )
    return answer[0]


def five_parts(answer: object) -> tuple[object, object, object, object, object]:
    """What `step` returns."""
    if not (isinstance(answer, tuple) and len(answer) == 5):
        found = f"{len(answer)} values" if isinstance(answer, tuple) else arrays.shown(answer)
        raise InputError(
            f"env.step answered {found}; expected "
            "(observation, reward, terminated, truncated, info), as Gymnasium has it"
        )
    return answer


def truth(what: str, flag: object) -> bool:
    """``terminated`` or ``truncated``: a truth value, or 0 or 1. Text is not one: "no" would be true."""
    found = np.asarray(flag)
    if found.size != 1 or found.dtype.kind not in "biu" or found.item() not in (0, 1):
        raise InputError(f"{what} is {arrays.shown(flag)}; it must be True or False")
    return bool(found.item())


class AgentAdapter:
    """An agent as a function (observation, generator, memory, starts) -> (action, memory).

    ``samples``: whether it uses the generator. An object with `predict` is called as Stable-Baselines3 does: with
    ``deterministic``, and with the ``state`` that it returned before and ``episode_start``, where it has these.
    """

    def __init__(self, agent: object, deterministic: bool = True) -> None:
        predict = getattr(agent, "predict", None)
        found = predict if callable(predict) else agent
        if not callable(found):
            raise InputError(
                f"agent is a {type(agent).__name__}; pass a function of the observation, or an object with predict"
            )
        self.agent: Callable[..., object] = found
        self.predicts, self.space = callable(predict), getattr(agent, "action_space", None)
        self.samples = not self.predicts and _takes_two(self.agent)
        taken = prediction_arguments(self.agent) if self.predicts else frozenset()
        if not deterministic and "deterministic" not in taken:
            raise InputError(
                f"deterministic=False is for an agent whose predict has this argument, and a {type(agent).__name__} "
                "has not; leave it out"
            )
        self.settings = {"deterministic": deterministic} if "deterministic" in taken else {}
        self.remembers, self.is_told_starts = "state" in taken, "episode_start" in taken
        self.policy = ("deterministic" if deterministic else "stochastic") if self.settings else ""

    def begin(self, seed: int, environments: object) -> np.random.Generator | None:
        """Seed the action spaces, from which the agent may sample; the generator that it is called with."""
        for space in (environments, self.space):
            if callable(reseed := getattr(space, "seed", None)):
                reseed((seed ^ SPACE_STREAM) % LARGEST_SEED)
        return np.random.default_rng([seed, AGENT_STREAM]) if self.samples else None

    def __call__(
        self, observation: object, rng: np.random.Generator | None, memory: object, starts: object
    ) -> tuple[object, object]:
        """The action, and what it remembers; ``starts``: in which rows an episode begins."""
        if self.samples:
            return self.agent(observation, rng), None
        if not self.predicts:
            return self.agent(observation), None
        more: dict[str, object] = {"state": memory} if self.remembers else {}
        if self.is_told_starts:
            more["episode_start"] = starts
        found = self.agent(observation, **self.settings, **more)
        if not isinstance(found, tuple):
            return found, None
        return found[0], found[1] if len(found) > 1 else None


def _takes_two(function: Callable[..., object]) -> bool:
    """Whether a function has two positional arguments without defaults."""
    needed = [p for p in _parameters(function) if p.kind in _BY_PLACE and p.default is inspect.Parameter.empty]
    return len(needed) == 2


def prediction_arguments(predict: Callable[..., object]) -> frozenset[str]:
    """Which of the arguments of Stable-Baselines3 a `predict` takes; all of them where it takes any."""
    known, parameters = frozenset(("deterministic", "state", "episode_start")), _parameters(predict)
    if any(p.kind is p.VAR_KEYWORD for p in parameters):
        return known
    return known & {p.name for p in parameters}


_BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    """The parameters of a function, as far as its signature says."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):  # built-in: one argument
        return []


def walk_of(env: object, agent: object, batched: bool, deterministic: bool) -> Walk | FunctionWalk:
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
        return Walk(cast(Environment, env), trained_agents.loaded(agent), deterministic)
    if not callable(env):
        raise InputError(f"env is a {type(env).__name__}; pass a Gymnasium environment, its id, or a function run(rng)")
    if agent is not None:
        raise InputError("agent belongs to an environment, and env is a function that runs episodes; leave it out")
    if not deterministic:
        raise InputError("deterministic is for an agent, and env is a function that runs episodes; leave it out")
    return FunctionWalk(env)


def called(env: object) -> str:
    """The id of an environment, or the name of its class."""
    spec = getattr(env, "spec", None)
    return str(getattr(spec, "id", None) or type(getattr(env, "unwrapped", env)).__name__)


def made(env: object, **options: object) -> Environment:
    """The Gymnasium environment of an id."""
    gym = errors.needs("gymnasium", "gym")
    try:
        environment: Environment = gym.make(env, **options)
    except Exception as error:
        raise InputError(
            f"env is {getattr(env, 'id', env)!r}, which cannot be made: {errors.first_line(error)}"
        ) from error
    return environment


def _masks(env: Any) -> Callable[[], Any] | None:
    """Which actions the environment allows, where it says so."""
    has, get = (getattr(env, f"{name}_wrapper_attr", None) for name in ("has", "get"))
    if callable(has) and callable(get) and has("action_masks"):
        return lambda: get("action_masks")()
    return getattr(env, "action_masks", None)


def _time_limit(env: object) -> int | None:
    """The number of steps after which the environment truncates, where it says so."""
    limit = getattr(getattr(env, "spec", None), "max_episode_steps", None)
    return None if limit is None else int(limit)
