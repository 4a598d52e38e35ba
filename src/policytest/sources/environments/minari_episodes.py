"""Recorded episodes as steps: what a Minari dataset holds, checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from policytest._base import arrays, errors
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest.sources.environments.bins import Bins
from policytest.sources.tasks.policy import numbers_of


@dataclass(frozen=True, eq=False)
class Steps:
    """All steps of all episodes: indices of observations and actions, what was paid, and how episodes ended."""

    s: IntArray
    a: IntArray
    x: IntArray
    reward: FloatArray
    terminated: BoolArray
    episode: IntArray
    first: BoolArray  # whether the step is the first of its episode


def open_dataset(dataset: object) -> Any:
    """The dataset itself, found on this machine if it was named."""
    if not isinstance(dataset, str):
        if not all(hasattr(dataset, part) for part in ("iterate_episodes", "observation_space", "action_space")):
            raise InputError(f"dataset is a {type(dataset).__name__}; pass a Minari dataset, or its id")
        return dataset
    package = errors.needs("minari", "minari")
    try:
        return package.load_dataset(dataset)
    except FileNotFoundError:
        raise InputError(
            f"dataset {dataset!r} is not on this machine; fetch it with `minari download {dataset}`, or say where it "
            "is with MINARI_DATASETS_PATH"
        ) from None
    except ImportError as error:
        raise InputError(
            f"dataset {dataset!r} cannot be read ({error}); run {errors.installation('minari')}"
        ) from error
    except Exception as error:
        raise InputError(f"dataset {dataset!r} cannot be read: {errors.first_line(error)}") from error


def numbers(source: object, name: str, bins: Bins | None, setting: str) -> range:
    """The numbers of the observations or actions, or of their cells."""
    space, kind = getattr(source, name), name.removesuffix("_space")
    if bins is not None:
        arrays.instance(setting, bins, Bins, ", which policytest.sources.discretise makes")
        return range(bins.n_states)
    if type(space).__name__ != "Discrete":
        raise InputError(
            f"the {kind}s of the dataset are {arrays.shown(space)}, not Discrete(n); number them, with "
            f"{setting}=policytest.sources.discretise(...)"
        )
    return numbers_of(space)


def read(source: Any, observations: range, codes: range, bins: Bins | None, action_bins: Bins | None) -> Steps:
    """All steps, episode by episode."""
    none, never = np.zeros(0, np.int64), np.zeros(0, np.bool_)
    parts: list[tuple[npt.NDArray[Any], ...]] = [(none, none, none, np.zeros(0), never, none, never)]
    for episode in source.iterate_episodes():
        place = f"episode {episode.id}"
        o = _indices(f"{place}: observations", episode.observations, observations, bins)
        a = _indices(f"{place}: actions", episode.actions, codes, action_bins)
        T = len(a)
        reward = arrays.numbers(f"{place}: rewards", episode.rewards).astype(np.float64).reshape(-1)
        over, cut = (_flags(f"{place}: {what}", getattr(episode, what)) for what in ("terminations", "truncations"))
        sizes = {"rewards": len(reward), "terminations": len(over), "truncations": len(cut)}
        if len(o) != T + 1 or any(size != T for size in sizes.values()):
            listed = ", ".join(f"{size} {what}" for what, size in sizes.items())
            raise InputError(
                f"{place} has {len(o)} observations, {T} actions, {listed}; T steps have T+1 observations and T of "
                "each of the others: record the episode again, or leave it out"
            )
        for what, flags in (("terminated", over), ("was truncated", cut)):
            if flags[:-1].any():
                raise InputError(
                    f"{place} {what} at step {int(np.argmax(flags))}, and goes on to step {T - 1}; split it into two"
                )
        if (at := arrays.first(~np.isfinite(reward))) is not None:
            raise InputError(f"{place}: rewards[{at}] is {reward[at]}; every reward must be a finite number")
        parts.append((o[:-1], a, o[1:], reward, over, np.full(T, int(episode.id)), np.arange(T) == 0))
    return Steps(*(np.concatenate(column) for column in zip(*parts, strict=True)))


def _flags(place: str, values: object) -> BoolArray:
    """Truth values, or 0 and 1."""
    found = arrays.numbers(place, values).reshape(-1)
    if (at := arrays.first((found != 0) & (found != 1))) is not None:
        raise InputError(f"{place}[{at}] is {found[at]}; it must be true or false")
    return found.astype(np.bool_)


def _indices(place: str, values: Any, numbers: range, bins: Bins | None) -> IntArray:
    if bins is not None:
        flat = values if bins.function is not None else arrays.numbers(place, values).reshape(len(values), -1)
        return bins(flat, place)
    array = arrays.numbers(place, values)
    if array.ndim != 1 and array.size == len(array):
        array = array.reshape(-1)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{place} have shape {array.shape} and type {array.dtype}; expected a list of whole numbers")
    if (at := arrays.first((array < numbers.start) | (array >= numbers.stop))) is not None:
        raise InputError(f"{place}[{at}] is {array[at]}; the space has {numbers.start} to {numbers.stop - 1}")
    return np.asarray(array.astype(np.int64) - numbers.start)
