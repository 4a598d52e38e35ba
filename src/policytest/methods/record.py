"""The record of a run: one flat table of arrays, which checkpoints, resuming and copies share.

What a part of a run keeps stands under its name: ``tally.N``, ``source.generator``, ``above.capital``.
"""

from __future__ import annotations

from collections.abc import Mapping

from policytest._base.arrays import AnyArray, Arrays

Record = Arrays


def record(**parts: Mapping[str, AnyArray]) -> Record:
    """The records of several parts, each under its name."""
    return {f"{name}.{key}": value for name, part in parts.items() for key, value in part.items()}


def part_of(kept: Mapping[str, AnyArray], name: str) -> Record:
    """What the part of this name has kept."""
    first = f"{name}."
    return {key[len(first) :]: value for key, value in kept.items() if key.startswith(first)}
