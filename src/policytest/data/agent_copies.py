"""Copies of an agent that remembers an episode, one for each environment of a vector, which runs several at once."""

from __future__ import annotations

import copy
import random
from typing import Any

import numpy as np

from policytest._base.errors import InputError, first_line
from policytest.data.walks import LARGEST_SEED, AgentAdapter

COPY_STREAM = 0x636F70  # sets the seeds of copies apart from those of their environments
ALONE = "pass one environment, or several episodes at once in processes (parallel=)"


class AgentCopies:
    """An agent with `reset()` for each of ``n`` rows.

    What a row does may not depend on the others. So the generators that copies have inside are seeded for each row:
    copies of one generator would give all rows the same luck.
    """

    def __init__(self, agent: Any, n: int, deterministic: bool) -> None:
        made = [_copied(agent) for _ in range(n)]
        self.agents, self.generators = [one for one, _ in made], [found for _, found in made]
        self.acts = [AgentAdapter(one, deterministic) for one in self.agents]

    def begin(self, seed: int) -> None:
        """Seed all of them."""
        seeds = np.random.default_rng([seed, COPY_STREAM]).integers(LARGEST_SEED, size=len(self.acts)).tolist()
        self.rngs = [act.begin(own, None) for act, own in zip(self.acts, seeds, strict=True)]
        for own, generators in zip(seeds, self.generators, strict=True):
            for k, generator in enumerate(generators):
                _seed(generator, [own, k])

    def act(self, row: int, observation: object, memory: object, starts: Any) -> tuple[object, object]:
        """What the agent of a row does, and what it returns to remember; ``starts``: whether an episode begins."""
        if starts[0]:
            self.agents[row].reset()
        return self.acts[row](observation, self.rngs[row], memory, starts)


def _copied(agent: Any) -> tuple[Any, list[Any]]:
    """A copy, and the generators of random numbers in it."""
    known: dict[int, Any] = {}
    try:
        found = copy.deepcopy(agent, known)
    except Exception as error:
        raise InputError(
            f"agent has reset, so it remembers an episode, and a vector runs several at once; it cannot be copied for "
            f"each ({type(error).__name__}: {first_line(error)})",
            ALONE,
        ) from error
    parts = [part for key, part in known.items() if key != id(known)]
    owner = getattr(found.reset, "__self__", None)
    if found is agent or not any(owner is part for part in (found, *parts)):
        raise InputError(
            "agent has reset, so it remembers an episode, and a vector runs several at once; its memory is not in its "
            "attributes, so copies would share it",
            f"write it as a class that keeps its memory in self, or {ALONE}",
        )
    return found, [part for part in parts if _is_generator(part)]


def _is_generator(part: object) -> bool:
    kinds = np.random.Generator, np.random.RandomState, random.Random
    return isinstance(part, kinds) or callable(getattr(part, "manual_seed", None))


def _seed(generator: Any, seeds: list[int]) -> None:
    """Begin anew with these numbers."""
    fresh = np.random.SeedSequence(seeds)
    if isinstance(generator, np.random.Generator):
        kind = type(generator.bit_generator)
        generator.bit_generator.state = kind(fresh).state
        return
    number = int(fresh.generate_state(1)[0])
    (getattr(generator, "manual_seed", None) or generator.seed)(number)
