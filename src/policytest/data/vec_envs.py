"""`VecEnv` of Stable-Baselines3, with its wrappers, as a vector of environments like those of Gymnasium.

A row whose episode ends begins the next one within the same step, and the info of that step is the episode's last one.
Rewards are those that the environments pay: while a `VecNormalize` is stepped it is frozen, so it neither learns from
what it sees nor scales rewards, and afterwards it is as it was. Rewards come in single precision, and are read as the
shortest decimal numbers with that precision: 0.7 is 0.7.

Nothing here imports Stable-Baselines3: a `VecEnv` is known by its methods.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import AnyArray
from policytest._base.errors import InputError

METHODS = ("reset", "seed", "step_async", "step_wait", "env_method", "env_is_wrapped")
SINGLE = float(np.finfo(np.float32).eps)  # how far rewards may be from what was paid, relative to them
COUNTED = 1e-5  # of the sizes of the rewards: how far a sum of them may be from what Monitor counted


def is_vec_env(env: object) -> bool:
    """Whether this is a `VecEnv`, or something like it."""
    return all(callable(getattr(env, name, None)) for name in METHODS)


class VecEnvAdapter:
    """A `VecEnv` with what is asked of a vector of Gymnasium."""

    def __init__(self, env: Any) -> None:
        utils: Any = importlib.import_module("gymnasium.vector.utils")
        self.env, self.num_envs = env, int(env.num_envs)
        self.single_observation_space, self.single_action_space = env.observation_space, env.action_space
        self.observation_space = utils.batch_space(env.observation_space, self.num_envs)
        self.action_space, self.metadata = env.action_space, {"autoreset_mode": "SAME_STEP"}
        inner = getattr(env, "unwrapped", env)
        self.unwrapped = getattr(next(iter(getattr(inner, "envs", ())), None), "unwrapped", inner)
        self.spec = _spec(env)
        self.normalisers = [layer for layer in _layers(env) if {"training", "norm_reward"} <= vars(layer).keys()]
        self.normalises = any(getattr(layer, "norm_obs", False) for layer in self.normalisers)
        self.masks = self._masks if _has(env, "action_masks") else None
        if _wraps(env, "atari_wrappers", "EpisodicLifeEnv"):
            raise InputError(
                "env ends an episode with each life (EpisodicLifeEnv), and the lives of a game are not independent; "
                'make it with wrapper_kwargs={"terminal_on_life_loss": False}'
            )
        self._begin()

    def _begin(self) -> None:
        self.paid, self.sizes = np.zeros(self.num_envs), np.zeros(self.num_envs)
        self.sums, self.infos = self.paid, [dict[str, Any]() for _ in range(self.num_envs)]

    def reset(self, *, seed: int) -> tuple[Any, dict[str, Any]]:
        """Begin an episode in every row; the seeds of the rows follow each other."""
        self._begin()
        with self._frozen():
            self.env.seed(seed)
            observations = self.env.reset()
        if isinstance(observations, tuple) and len(observations) == 2 and isinstance(observations[1], dict):
            raise InputError(
                "env.reset answered (observations, info); a VecEnv of Stable-Baselines3 answers the observations alone"
            )
        return observations, {}

    def step(self, actions: object) -> tuple[object, object, object, object, list[dict[str, Any]]]:
        """One step in every row: observations, rewards, ends, no other ends, and an info for each row."""
        with self._frozen():
            answer = self.env.step(actions)
        if not (isinstance(answer, tuple) and len(answer) == 4):
            found = f"{len(answer)} values" if isinstance(answer, tuple) else arrays.shown(answer)
            raise InputError(
                f"env.step answered {found}; expected (observations, rewards, dones, infos), as a VecEnv of "
                "Stable-Baselines3 has it"
            )
        observations, rewards, dones, infos = answer
        if not isinstance(infos, list | tuple) or len(infos) != self.num_envs:
            raise InputError(
                f"env.step answered infos={arrays.shown(infos)}; it must return {self.num_envs} dictionaries"
            )
        paid, ended = as_decimals(np.asarray(rewards)), np.asarray(dones)
        if paid.shape == ended.shape == self.paid.shape and paid.dtype.kind in "biuf":
            self.sums, self.infos = self.paid + paid, list(infos)
            self.sizes = np.where(ended, 0.0, self.sizes + np.abs(paid))
            self.paid = np.where(ended, 0.0, self.sums)
        shown = [{"final_info": info} if end else info for info, end in zip(infos, ended.tolist(), strict=True)]
        return observations, paid, dones, np.zeros(self.num_envs, dtype=np.bool_), shown

    def check_episode(self, row: int) -> None:
        """Refuse rewards of an episode that just ended if `Monitor` counted others."""
        episode = self.infos[row].get("episode")
        if not isinstance(episode, dict) or "r" not in episode:
            return
        counted, total = float(np.asarray(episode["r"]).item()), float(self.sums[row])
        if abs(counted - total) > COUNTED * (1.0 + abs(counted) + abs(total) + self.sizes[row]):
            raise InputError(
                f"the rewards of an episode add up to {total:.9g}, and Monitor counted {counted:.9g}: a wrapper around "
                "Monitor changes rewards, as clip_reward=True does",
                'leave it out, or ask about what Monitor counts: outcome=lambda rewards, info: info["episode"]["r"], '
                "with its return_range",
            )

    def _masks(self) -> AnyArray:
        """Which actions are allowed in each row."""
        return np.stack(self.env.env_method("action_masks"))

    @contextmanager
    def _frozen(self) -> Iterator[None]:
        """While statistics are not updated, and rewards are not scaled."""
        before = [(layer, layer.training, layer.norm_reward) for layer in self.normalisers]
        for layer in self.normalisers:
            layer.training = layer.norm_reward = False
        try:
            yield
        finally:
            for layer, training, norm_reward in before:
                layer.training, layer.norm_reward = training, norm_reward


def as_decimals(rewards: AnyArray) -> AnyArray:
    """Numbers in single precision as the shortest decimals that they stand for; others as they are.

    >>> as_decimals(np.array([0.7, 1.0], dtype=np.float32)).tolist()
    [0.7, 1.0]
    """
    if rewards.dtype != np.float32:
        return rewards
    if np.array_equal(rewards, np.rint(rewards)):
        return rewards.astype(np.float64)
    return np.array([float(str(reward)) for reward in rewards.ravel()]).reshape(rewards.shape)


def _layers(env: Any) -> Iterator[Any]:
    """The wrappers, from the outside, and what they wrap."""
    while env is not None:
        yield env
        env = vars(env).get("venv")


def _spec(env: Any) -> Any:
    """The `spec` of the rows; None without one, or where their time limits differ."""
    try:
        specs = env.get_attr("spec")
    except Exception:  # whatever an environment without one does
        return None
    limits = {getattr(spec, "max_episode_steps", None) for spec in specs}
    return specs[0] if len(limits) == 1 else None


def _has(env: Any, name: str) -> bool:
    """Whether all rows have a method."""
    has: Callable[[str], bool] | None = getattr(env, "has_attr", None)
    return has is not None and bool(has(name))


def _wraps(env: Any, module: str, name: str) -> bool:
    """Whether a row is wrapped in a class of Stable-Baselines3, which is then imported already."""
    found = getattr(sys.modules.get(f"stable_baselines3.common.{module}"), name, None)
    return found is not None and any(env.env_is_wrapped(found))
