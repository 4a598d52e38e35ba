"""Trained agents of Stable-Baselines3: their files, and what they expect of an environment.

Nothing here imports Stable-Baselines3 or PyTorch unless a file is loaded: agents are known by what they can do.
"""

from __future__ import annotations

import inspect
import io
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from policytest._base import arrays, errors
from policytest._base.errors import InputError

SUFFIX, EXTRA = ".zip", "sb3"
STABLE, CONTRIB = "stable_baselines3", "sb3_contrib"
LIBRARIES = {
    **dict.fromkeys(("A2C", "DDPG", "DQN", "PPO", "SAC", "TD3"), STABLE),
    **dict.fromkeys(("ARS", "CrossQ", "MaskablePPO", "QRDQN", "RecurrentPPO", "TQC", "TRPO"), CONTRIB),
}
"""Where an algorithm comes from, by its name."""
NAMES = {name.lower(): name for name in LIBRARIES}
BY_POLICY = {"recurrent": "RecurrentPPO", "maskable": "MaskablePPO"}
"""Which algorithm keeps policies from such a module, if its settings do not tell."""
BY_SETTING = {
    "n_quantiles": "QRDQN",
    "exploration_fraction": "DQN",
    "top_quantiles_to_drop_per_net": "TQC",
    "cg_max_steps": "TRPO",
    "delta_std_schedule": "ARS",
    "target_policy_noise": "TD3",
    "policy_delay": "CrossQ",
    "target_entropy": "SAC",
    "clip_range": "PPO",
    "gae_lambda": "A2C",
}
"""The first of these settings that a file has tells its algorithm."""
NOT_NEEDED = {"learning_rate": 0.0, "lr_schedule": 0.0, "clip_range": 0.0, "clip_range_vf": None}
"""Schedules of training: an agent that acts needs none, and those of another version of Python cannot be read."""


# ---------------------------------------------------------------- files


def is_file(agent: object) -> bool:
    """Whether an agent is given as the file of a trained one: "model.zip", "ppo:model.zip", or a path.

    >>> is_file("ppo:model.zip"), is_file("agents:agent"), is_file(Path("model"))
    (True, False, True)
    """
    return isinstance(agent, os.PathLike) or (isinstance(agent, str) and agent.lower().endswith(SUFFIX))


def loaded(agent: object) -> object:
    """The trained agent in a file; any other agent as it is."""
    if isinstance(agent, str) and not is_file(agent):
        raise InputError(
            f"agent is {agent!r}; pass a function of the observation, an object with predict, or the file of an agent "
            "that Stable-Baselines3 saved, such as model.zip"
        )
    if not is_file(agent):
        return agent
    name, path = _named(str(agent))
    if not path.is_file() and path.suffix.lower() != SUFFIX:
        path = path.with_name(path.name + SUFFIX)  # as Stable-Baselines3 names it
    if not path.is_file():
        raise InputError(f"agent: there is no file {path}; check the path")
    name = name or _algorithm(path)
    algorithm = getattr(errors.needs(LIBRARIES[name], EXTRA), name)
    try:
        found: object = algorithm.load(path, custom_objects=dict(NOT_NEEDED))
    except Exception as error:
        raise InputError(
            f"agent: {path} cannot be loaded as {name} ({type(error).__name__}: {errors.first_line(error)})",
            f"name the algorithm that saved it before the file, as in sac:{path.name}, or load it yourself and pass "
            "the model",
        ) from error
    return found


def _named(text: str) -> tuple[str, Path]:
    """The algorithm before the colon, if it is one; and the file."""
    before, _, after = text.partition(":")
    if after and before.lower() in NAMES:
        return NAMES[before.lower()], Path(after)
    if after and len(before) > 1 and "/" not in before and not Path(text).exists():
        raise InputError(f"agent is {text!r}, and {before} is not an algorithm; pass one of {', '.join(NAMES)}")
    return "", Path(text)


def _algorithm(path: Path) -> str:
    """The algorithm that saved a file, by its settings and by the module of its policy."""
    import zipfile

    try:
        with zipfile.ZipFile(path) as file:
            data = json.loads(file.read("data"))
            settings, policy = set(data), data["policy_class"].get("__module__", "")
    except OSError as error:
        raise errors.unreadable(path, error) from None
    except (zipfile.BadZipFile, KeyError, ValueError, AttributeError):
        raise InputError(
            f"agent: {path} is not a file of Stable-Baselines3; pass one that model.save(...) has written"
        ) from None
    name = next((name for setting, name in BY_SETTING.items() if setting in settings), "")
    if name == "PPO":
        name = next((found for part, found in BY_POLICY.items() if part in policy), name)
    if not name:
        raise InputError(f"agent: {path} does not say which algorithm saved it; name it, as in ppo:{path.name}")
    return name


def sendable(agent: object) -> object:
    """An agent for another process: of a model what `save` writes, since its buffers and environments stay here."""
    if not _is_model(agent):
        return agent
    model: Any = agent
    file = io.BytesIO()
    model.save(file)
    return Sent(type(model), file.getvalue(), model.get_vec_normalize_env())


class Sent:
    """What arrives of a model in another process is the model, made from its file there."""

    def __init__(self, kind: Any, file: bytes, normaliser: object) -> None:
        self.kind, self.file, self.normaliser = kind, file, normaliser

    def __reduce__(self) -> tuple[Callable[..., object], tuple[object, ...]]:
        return received, (self.kind, self.file, self.normaliser)


def received(kind: Any, file: bytes, normaliser: Any) -> object:
    """A model from its file, whose observations are normalised if they were."""
    model = kind.load(io.BytesIO(file), custom_objects=dict(NOT_NEEDED))
    return model if normaliser is None else Prepared(model, normaliser.normalize_obs)


def _is_model(agent: object) -> bool:
    """Whether an agent is a model of Stable-Baselines3, not only like one."""
    return all(callable(getattr(agent, name, None)) for name in ("predict", "save", "get_vec_normalize_env"))


# ---------------------------------------------------------------- what they expect


class Prepared:
    """An agent that sees observations normalised, or is told which actions the environment allows at present.

    ``normalise`` is that of the `VecNormalize` that it was trained with, whose statistics are not updated; ``masks`` is
    for agents such as `MaskablePPO`.
    """

    def __init__(
        self, agent: Any, normalise: Callable[[Any], Any] | None = None, masks: Callable[[], Any] | None = None
    ) -> None:
        self.agent, self.normalise, self.masks = agent, normalise, masks
        self.observation_space = getattr(agent, "observation_space", None)
        self.action_space = getattr(agent, "action_space", None)

    def predict(
        self, observation: Any, state: Any = None, episode_start: Any = None, deterministic: bool = False
    ) -> Any:
        """As that of the agent."""
        more = {"state": state, "episode_start": episode_start, "deterministic": deterministic}
        if self.masks is not None:
            more["action_masks"] = self.masks()
        return self.agent.predict(observation if self.normalise is None else self.normalise(observation), **more)


def prepared(agent: Any, env: Any, masks: Callable[[], Any] | None) -> object:
    """An agent as it is called in this environment, whose spaces must be those of its training.

    ``masks`` tells which actions the environment allows; None if it does not say.
    """
    if not callable(getattr(agent, "predict", None)):
        return agent
    for what in ("observation", "action"):
        there = getattr(env, f"single_{what}_space", None) or getattr(env, f"{what}_space", None)
        _check_space(what, getattr(agent, f"{what}_space", None), there)
    normaliser = agent.get_vec_normalize_env() if _is_model(agent) and not getattr(env, "normalises", False) else None
    normalise = None if normaliser is None else normaliser.normalize_obs
    masks = masks if takes_masks(agent) else None
    return agent if normalise is None and masks is None else Prepared(agent, normalise, masks)


def takes_masks(agent: Any) -> bool:
    """Whether an agent is told which actions are allowed, as `MaskablePPO` is."""
    try:
        return "action_masks" in inspect.signature(agent.predict).parameters
    except (AttributeError, TypeError, ValueError):  # no predict, or built-in
        return False


def _check_space(what: str, own: Any, there: Any) -> None:
    """Refuse an environment whose observations or actions are of another kind or shape than the agent's."""
    if own is None or there is None or _fits(own, there, what == "action"):
        return
    told = [_words(space) for space in (own, there)]
    if told[0] == told[1]:
        told = [arrays.shown(space) for space in (own, there)]
    raise InputError(
        f"agent: its {what} space is {told[0]}, and that of env is {told[1]}; pass the environment that it was trained "
        "in, with the same wrappers"
    )


def _fits(own: Any, there: Any, with_ends: bool) -> bool:
    """Whether spaces are of the same kind and shape; images may have their channels first or last.

    ``with_ends``: also of the same bounds. They say what actions mean; of observations they are often only guessed.
    """
    if type(own).__name__ != type(there).__name__:
        return False
    if isinstance(parts := getattr(own, "spaces", None), dict):
        same = parts.keys() == there.spaces.keys()
        return same and all(_fits(part, there.spaces[key], with_ends) for key, part in parts.items())
    known = ("n", "nvec", "start", *(("low", "high") if with_ends else ()))
    if with_ends and own.shape != there.shape:
        return False
    for name in known:
        mine, its = (np.asarray(getattr(space, name, None)) for space in (own, there))
        if not np.array_equal(mine, its):
            return False
    shape, image = tuple(own.shape or ()), tuple(there.shape or ())
    return shape == image or (len(image) == 3 and shape == (image[2], *image[:2]))


def _words(space: Any) -> str:
    """The kind of a space, and how large it is: Discrete(2), Box(84, 84, 1).

    >>> from types import SimpleNamespace
    >>> _words(SimpleNamespace(n=2))
    'SimpleNamespace(2)'
    """
    if isinstance(parts := getattr(space, "spaces", None), dict):
        return f"Dict({', '.join(f'{key}: {_words(part)}' for key, part in parts.items())})"
    size = next((getattr(space, name) for name in ("n", "nvec", "shape") if hasattr(space, name)), ())
    inside = ", ".join(map(str, np.ravel(size).tolist()))
    return f"{type(space).__name__}({inside})"
