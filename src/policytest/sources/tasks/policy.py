"""Policies from anything: a table, a list of actions, a dictionary, a function, a trained agent.

Whatever is given becomes pi[s,a], an array [S,A] whose rows sum to 1. What can be given for a whole policy:

| given | what it means |
|---|---|
| ``"uniform"`` | every action with probability 1/A |
| array [S,A] | pi[s,a] |
| array or list [S] of integers or names | one action for each state |
| list [S] of choices | one choice for each state |
| dictionary | {state: choice}; a state that is missing is an error that names it |
| function | state -> choice; asked twice in each state, to notice one that samples |
| object with ``predict`` | a trained agent: ``predict(state, deterministic=True)`` gives (action, ...) in each state |

A *choice* is an action, its name, a list of A probabilities, or a dictionary {action: probability} with 0 for those not
listed. States and actions are spoken of by their names where there are names, otherwise by their numbers; functions and
agents get what the environment would show them: an observation, or the name of the state. Files are read by
`policytest.sources.load_policy`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest.data.walks import prediction_arguments
from policytest.mdp.task import Task
from policytest.sources.labels import Names, Places, is_one_integer, item, places_in, places_of

SHAPES = "pass probabilities [S,A], one action for each state, a dictionary, a function or an agent with predict"


def policy(given: object, task: object, *, normalise: bool = False) -> FloatArray:
    """The policy as an array pi[s,a], from whatever was given; the module lists what can be.

    Parameters
    ----------
    given
        The policy.
    task
        Whose states and actions they are: a `Task`, anything with a ``task``, a Gymnasium environment with Discrete
        spaces, or the two numbers (S, A).
    normalise
        Rescale rows of probabilities that do not sum to 1 (tables printed with few digits).

    >>> policy([1, 0], (2, 2)).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    >>> policy({0: {1: 0.5, 0: 0.5}, 1: 0}, (2, 2)).tolist()
    [[0.5, 0.5], [1.0, 0.0]]
    >>> policy(lambda s: s % 2, (3, 2)).tolist()
    [[1.0, 0.0], [0.0, 1.0], [1.0, 0.0]]
    """
    return policy_table(given, places(task), normalise)


def policy_table(given: object, at: Places, normalise: bool = False, free: Iterable[int] = ()) -> FloatArray:
    """The array pi[s,a]. In the states ``free``, where nothing depends on it, a dictionary or list may say nothing."""
    match given:
        case str():
            if given != "uniform":
                raise InputError(f'policy is {given!r}; as a word only "uniform" is known: {SHAPES}')
            return np.full((at.n_states, at.n_actions), 1.0 / at.n_actions)
        case Mapping():
            return _from_mapping(given, at, normalise, {int(s) for s in free})
        case type():
            raise InputError(f"policy is the class {given.__name__}; pass an object made from it")
    if hasattr(given, "predict"):
        return _rows(lambda s: _predicted(given.predict, at.asked(s)), at, normalise)
    if callable(given):
        return _rows(lambda s: _asked_twice(given, at.asked(s)), at, normalise)
    return _from_array(given, at, normalise, sorted({int(s) for s in free}))


def places(task: object) -> Places:
    """The states and actions of a task, of anything that holds one, of an environment, or of two numbers."""
    held = getattr(task, "task", task)
    if isinstance(held, Task):
        return places_in(held)
    if hasattr(task, "observation_space") and hasattr(task, "action_space"):
        return places_shown(discrete(task, "observation_space"), discrete(task, "action_space"))
    if isinstance(task, tuple) and len(task) == 2:
        S, A = (arrays.whole_number(name, n) for name, n in zip(("S", "A"), task, strict=True))
        arrays.positive(S=S, A=A)
        return places_of(S, A)
    raise InputError(
        f"task is a {type(task).__name__}; pass a Task, an environment with Discrete spaces, or the numbers (S, A)"
    )


def places_shown(observations: range, codes: range, states: Names = None, actions: Names = None) -> Places:
    """The states and actions that an environment shows by these numbers, and perhaps their names."""
    S, A = len(observations), len(codes)
    return places_of(S, A, arrays.names("states", states, S), arrays.names("actions", actions, A), observations, codes)


class Discrete(Protocol):
    """A space of numbers, from `start` on where there is one."""

    n: int


def numbers_of(space: Discrete) -> range:
    """The numbers of a Discrete space."""
    start = int(getattr(space, "start", 0))
    return range(start, start + int(space.n))


def discrete(env: object, name: str) -> range:
    """The numbers of a Discrete space of an environment; other spaces are refused."""
    space = getattr(env, name)
    if type(space).__name__ != "Discrete":
        kind = name.removesuffix("_space")
        remedy = (
            "number the observations by bins with policytest.sources.discretise, or with a wrapper of the environment"
            if kind == "observation"
            else "number the actions with a wrapper of the environment"
        )
        raise InputError(f"env.{name} is {arrays.shown(space, str)}, and {kind}s must be Discrete(n); {remedy}")
    return numbers_of(space)


# ---------------------------------------------------------------- one state at a time


def _from_mapping(given: Mapping[object, object], at: Places, normalise: bool, free: set[int]) -> FloatArray:
    table, said = np.zeros((at.n_states, at.n_actions)), dict[int, object]()
    for key, value in given.items():
        s = at.states.find("policy", key, or_number=True)
        if s in said:
            raise InputError(f"policy has the state {at.states.label(s)} twice, as {said[s]!r} and {key!r}; keep one")
        said[s] = key
        table[s] = _row(value, at, s, normalise)
    for s in range(at.n_states):
        if s not in said and s not in free:
            raise InputError(f"policy has no entry for state {at.states.label(s)}; add its action or probabilities")
        if s not in said:
            table[s, 0] = 1.0
    return table


def _rows(choice: Callable[[int], object], at: Places, normalise: bool) -> FloatArray:
    return np.array([_row(choice(s), at, s, normalise) for s in range(at.n_states)])


def _row(choice: object, at: Places, s: int, normalise: bool) -> FloatArray:
    """[A] the probabilities that a choice stands for."""
    where = f"policy in state {at.states.label(s)}"
    row = np.zeros(at.n_actions)
    if isinstance(choice, Mapping):
        for key, probability in choice.items():
            a = at.actions.find(where, key, or_number=True)
            row[a] += arrays.real_number(f"{where}, action {key!r},", probability)
        return arrays.probability_rows(where, row, normalise)
    if _is_one(choice, at):
        row[at.actions.find(where, choice, or_number=True)] = 1.0
        return row
    return arrays.probability_rows(where, arrays.real_array(where, choice, (at.n_actions,)), normalise)


def _is_one(choice: Any, at: Places) -> bool:
    """Whether a choice is one action: a name, a number, or an array that holds just one integer."""
    if isinstance(choice, str) or np.ndim(choice) == 0:
        return True
    return is_one_integer(choice) or at.actions.has(choice)


def _asked_twice(function: Callable[[object], object], state: object) -> object:
    first, second = (item(_called(function, state)) for _ in range(2))
    if not _same(first, second):
        raise InputError(
            f"policy answered {first!r} and then {second!r} for state {state!r}, so it samples; "
            "let it return probabilities, a list of them or {action: probability}"
        )
    return first


def _called(function: Callable[[object], object], state: object) -> object:
    try:
        return function(state)
    except Exception as error:
        error.add_note(f"raised by the policy in state {state!r}")
        raise


def _predicted(predict: Callable[..., object], state: object) -> int | str:
    """The action of an agent. Only what it does deterministically is known: a sample does not tell its probability."""
    answer = _called(lambda s: predict(s, deterministic=True), state)
    parts = answer if isinstance(answer, tuple) and answer else (answer,)
    if parts[1:] and parts[1] is not None and "state" in prediction_arguments(predict):
        raise InputError(
            f"policy.predict returned a hidden state for state {state!r}, so what it does depends on what it saw "
            "before; a table of states cannot hold it: test the agent with policytest.Episodes(env, agent)"
        )
    action = item(parts[0])
    if not isinstance(action, int | str):
        raise InputError(
            f"policy.predict answered {action!r} for state {state!r}; expected one action, as (action, state)"
        )
    return action


def _same(first: object, second: object) -> bool:
    try:
        return bool(np.all(first == second))
    except ValueError:
        return False


# ---------------------------------------------------------------- tables


def _from_array(given: Any, at: Places, normalise: bool, free: list[int]) -> FloatArray:
    if not isinstance(given, Sequence | np.ndarray) and not hasattr(given, "__array__"):
        raise InputError(f"policy is a {type(given).__name__}; {SHAPES}")
    try:
        array = arrays.any_array("policy", given)
    except InputError:  # rows of different lengths, or a list of various choices
        array = np.empty(0, dtype=object)
    if array.dtype.kind in "biuf" and array.ndim == 2:
        arrays.check_shape("policy", array.shape, (at.n_states, at.n_actions))
        table = arrays.real_array("policy", array)
        return _rows(lambda s: table[s], at, normalise)
    if array.dtype.kind in "biufc" and (array.ndim != 1 or array.dtype.kind not in "iu"):
        raise InputError(f"policy has shape {array.shape} and type {array.dtype}; {SHAPES}")
    choices = list(array if array.dtype.kind in "iu" else given)
    if len(choices) == at.n_states - len(free) and free:
        for s in free:
            choices.insert(s, at.actions.name(0))
    if len(choices) != at.n_states:
        but = f", or for each but the {len(free)} terminal ones" if free else ""
        raise InputError(f"policy has {len(choices)} entries; pass one for each of the {at.n_states} states{but}")
    return _rows(lambda s: choices[s], at, normalise)
