"""The random generators that everything in a process shares: those of `random`, `numpy.random`, and PyTorch if loaded.

An agent may draw from them, as stochastic policies of Stable-Baselines3 do. So an episode seeds them with its own seed,
which then fixes the episode; afterwards they are as they were. Threads take turns, since they share these generators.
"""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType, TracebackType
from typing import Any, Self, TypeAlias

import numpy as np

from policytest._base.errors import InputError

SHARED_STREAM = 0x736861  # sets these random numbers apart from those of the environment and of the agent's generator
LEGACY: Any = np.random  # the module whose functions share a generator
SPREAD = 0x9E3779B1  # odd: seeds that differ stay different
States: TypeAlias = tuple[tuple[object, ...], object, object]
"""Of the generators of `random`, and of PyTorch on the processor and on its devices."""
TURN = threading.RLock()
"""Held while episodes are stepped: the generators belong to one thread at a time, and so do environments."""


class SharedGenerators:
    """``with`` it, the shared generators are those of an episode; with ``keeps`` they go on where they were left."""

    def __init__(self, keeps: bool = False) -> None:
        self.keeps, self._numpy = keeps, np.random.MT19937()
        self._kept: States | None = None
        self._before: list[tuple[np.random.BitGenerator, States]] = []

    def seed(self, seed: int) -> None:
        """Begin anew from this seed; inside ``with``."""
        own = (seed * SPREAD + SHARED_STREAM) % 2**32
        LEGACY.seed(own)
        random.seed(own)
        if (torch := _torch()) is not None:
            torch.manual_seed(own)

    def __enter__(self) -> Self:
        TURN.acquire()
        self._before.append((LEGACY.get_bit_generator(), _others()))
        LEGACY.set_bit_generator(self._numpy)
        if self._kept is not None:
            _set_others(*self._kept)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, place: TracebackType | None
    ) -> None:
        self._kept = _others() if self.keeps else None
        bits, others = self._before.pop()
        LEGACY.set_bit_generator(bits)
        _set_others(*others)
        TURN.release()


_IN_USE: dict[int, object] = {}


@contextmanager
def by_one_thread(thing: object, what: str) -> Iterator[None]:
    """Refuse to use a thing that another thread is using at this moment."""
    mine = object()
    if _IN_USE.setdefault(id(thing), mine) is not mine:
        raise InputError(f"{what} is used by another thread at the same time; pass each thread one of its own")
    try:
        yield
    finally:
        del _IN_USE[id(thing)]


def _torch() -> ModuleType | None:
    """PyTorch, if somebody imported it."""
    return sys.modules.get("torch")


def _others() -> States:
    """The states of the generators of `random` and of PyTorch, on the processor and on its devices."""
    torch = _torch()
    if torch is None or not hasattr(torch, "get_rng_state"):
        return random.getstate(), None, None
    cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else None
    return random.getstate(), torch.get_rng_state(), cuda


def _set_others(python: tuple[object, ...], processor: object, devices: object) -> None:
    random.setstate(python)
    torch = _torch()
    if torch is not None and processor is not None:
        torch.set_rng_state(processor)
    if torch is not None and devices is not None:
        torch.cuda.set_rng_state_all(devices)
