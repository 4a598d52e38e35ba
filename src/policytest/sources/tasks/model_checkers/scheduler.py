r"""Schedulers that Storm exports as JSON (``--exportscheduler``): policies of a model in a ``.drn`` or ``.tra`` file.

    [{"s": {"x": 0, "done": false}, "c": [{"index": 1, "labels": ["go"], "prob": 1.0}]}, ...]

``s`` is the number of a state, or the values of its variables; ``c`` has the choices taken there, each by its number
among all choices of the model, in the order of the model's file. States may be missing where there is one choice only,
and where an episode has ended. A scheduler with memory is refused: a policy depends on the state alone.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import InputError
from policytest.sources.labels import Places
from policytest.sources.tasks.by_name import Offer
from policytest.sources.tasks.model_checkers.listing import number


def is_scheduler(content: object) -> TypeGuard[list[dict[str, Any]]]:
    """Whether the content of a JSON file is a scheduler."""
    return isinstance(content, list) and bool(content) and all(isinstance(e, dict) and "s" in e for e in content)


def table(content: list[dict[str, Any]], at: Places, offer: Offer | None, normalise: bool = False) -> FloatArray:
    """[S,A] the probabilities of the choices of a scheduler."""
    if offer is None or offer.choices is None:
        raise InputError(
            "this is a scheduler of Storm, which numbers the choices of a model; use it with the .drn or .tra file of "
            "that model, as policy of load_model (--policy on the command line)"
        )
    A, available = at.n_actions, offer.available
    pi, said = np.zeros(available.shape), np.zeros(at.n_states, dtype=bool)
    for k, entry in enumerate(content):
        if "m" in entry:
            raise InputError(f"entry {k} has a memory state (m); a policy depends on the state alone")
        s = _state(f"entry {k}", entry["s"], at, offer)
        if said[s]:
            raise InputError(f"entry {k}: state {at.states.label(s)} is there twice; keep one")
        if isinstance(choices := entry.get("c"), list):
            said[s] = True
            for choice in choices:
                pair, share = _choice(f"entry {k}", choice, offer.choices)
                if pair // A != s:
                    raise InputError(
                        f"entry {k}: choice {choice['index']} is one of state {at.states.label(pair // A)}, not of "
                        f"{at.states.label(s)}; is it the scheduler of this model?"
                    )
                pi[s, pair % A] += share
    silent = ~said
    several = silent & (available.sum(axis=1) > 1)
    several[list(at.free)] = False
    if (silent_one := arrays.first(several)) is not None:
        state = at.states.label(silent_one)
        raise InputError(f"there is no choice in state {state}, which has several; export the scheduler of all states")
    pi[silent, available.argmax(axis=1)[silent]] = 1.0
    return arrays.probability_rows("policy", pi, normalise)


def _state(place: str, given: object, at: Places, offer: Offer) -> int:
    """The state with this number, or with these values of the variables."""
    if isinstance(given, int) and 0 <= given < at.n_states:
        return given
    if not isinstance(given, dict):
        raise InputError(f"{place}: s is {arrays.shown(given)}; states are 0 to {at.n_states - 1}")
    holds = [
        name if value is True else f"!{name}" if value is False else f"{name}={value}" for name, value in given.items()
    ]
    try:
        found = offer.where(" & ".join(holds))
    except InputError:  # variables of another model
        found = []
    if len(found) != 1:
        why = "the model has no values of variables" if offer.valuations is None else f"{len(found)} states have them"
        raise InputError(f"{place}: s is {' & '.join(holds)}, and {why}; is it the scheduler of this model?")
    return found[0]


def _choice(place: str, choice: object, choices: IntArray) -> tuple[int, float]:
    """The pair of a choice, and its probability."""
    match choice:
        case {"index": int(k), **rest} if 0 <= k < len(choices):
            return int(choices[k]), number(f"{place}: prob", str(rest.get("prob", 1)))
        case {"index": int(k)}:
            raise InputError(f"{place}: there is no choice {k}; the model has {len(choices)}")
    raise InputError(f"{place}: a choice is {arrays.shown(choice)}; expected index and prob")
