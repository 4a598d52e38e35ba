"""Random generators: from a seed, and to and from bytes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import numpy.typing as npt

from policytest._base import arrays
from policytest._base.arrays import AnyArray, Arrays
from policytest._base.table import Document

Seed = int | np.integer[Any] | np.random.Generator | np.random.SeedSequence | np.random.BitGenerator | None
BIT_GENERATORS = ("PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
OWN_STREAM = 0x706F6C  # sets the random numbers of a test apart from those of anybody who starts from the same seed


def generator(rng: Seed) -> np.random.Generator:
    """A generator from a seed, or the generator itself.

    Coins must be independent of the data. Data made with ``default_rng(seed)`` and the same small seed are common, so a
    seed is not used as it is: the stream is spawned from (seed, a constant of its own).
    """
    return arrays.seeded("rng", rng, (OWN_STREAM,))


def kept_extra(state: Arrays) -> int:
    """The steps beside the samples, as a run kept them; before they were counted there were none."""
    extra = int(state.get("extra", [0])[0])
    if not 0 <= extra < 2**62:
        raise ValueError(f"extra is {extra}")
    return extra


def stored(rng: np.random.Generator) -> npt.NDArray[np.uint8]:
    """The state of a generator as bytes."""
    return np.frombuffer(_to_json(rng.bit_generator.state).encode(), dtype=np.uint8)


def restored(state: AnyArray) -> np.random.Generator:
    """The generator whose state was stored."""
    kept = json.loads(bytes(state).decode(), object_hook=_from_json)
    if kept["bit_generator"] not in BIT_GENERATORS:
        raise ValueError(f"the bit generator {kept['bit_generator']!r} is not one of NumPy's")
    rng = np.random.Generator(getattr(np.random, kept["bit_generator"])())
    rng.bit_generator.state = kept
    return rng


def _to_json(state: object) -> str:
    def plain(value: np.generic | AnyArray) -> object:
        if isinstance(value, np.ndarray):
            return {"array": value.tolist(), "type": str(value.dtype)}
        return value.item()

    return json.dumps(state, default=plain)


def _from_json(value: Document) -> Document | AnyArray:
    return np.array(value["array"], dtype=value["type"]) if set(value) == {"array", "type"} else value
