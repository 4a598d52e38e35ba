"""The record of a run: one flat table of arrays, which checkpoints, resuming and copies share.

What a part of a run keeps stands under its name: ``tally.N``, ``source.generator``, ``above.capital``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import numpy as np

from policytest._base.arrays import AnyArray, Arrays, FloatArray

Record: TypeAlias = Arrays


def record(**parts: Mapping[str, AnyArray]) -> Record:
    """The records of several parts, each under its name."""
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}


def part_of(kept: Mapping[str, AnyArray], name: str) -> Record:
    """What the part of this name has kept."""
    first = f"{name}."
    return {key[len(first) :]: value for key, value in kept.items() if key.startswith(first)}


def numbers_of(kept: Mapping[str, AnyArray], name: str, *shape: int | None) -> FloatArray:
    """A copy of an array that was kept, of finite numbers; refused where it has another shape (None: any length)."""
    found = np.array(kept[name], dtype=np.float64)
    fits = found.ndim == len(shape) and all(n in (None, size) for n, size in zip(shape, found.shape, strict=True))
    if not fits or not np.isfinite(found).all():
        raise ValueError(f"{name} is not an array of finite numbers in the shape that fits")
    return found
