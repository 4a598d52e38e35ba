r"""Models as model checkers list them: states, the choices of each state, and the transitions of each choice.

Storm and PRISM number the choices of each state from 0, and not every state has the same ones. Here all states share
one list of actions. Where choices have names, the actions are the names in the order in which they first appear; a
choice without a name is called ``#k``, k being its number in its state, and a name that one state has twice becomes
``name#2`` the second time. Where no choice has a name, the actions are the numbers.

A pair that the file does not list is *not available*: its row of the kernel has no mass, and a policy that takes it is
refused. The reward of a pair is that of the state plus that of the choice; rewards on transitions come on top.

States are named after the values of their variables, where the file has them: ``x=2 & !done``, or ``(2,false)`` as
PRISM writes it.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray, Kernel
from policytest._base.errors import InputError
from policytest._base.files import read_text
from policytest.mdp.task import DENSE_REWARD_LIMIT
from policytest.sources.labels import Names, Places, places_of
from policytest.sources.tasks.by_name import Content, Offer, assembled, check_size, repeated

LISTING_LIMIT = 2**30
"""The most bytes of a file that lists transitions."""
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,6})?", re.ASCII)
_FRACTION = re.compile(r"[+-]?\d{1,300}/\d{1,300}", re.ASCII)
_INDEX = re.compile(r"\d{1,15}", re.ASCII)


def text_lines(path: Path) -> list[str]:
    """The lines of a text file."""
    return read_text(path, LISTING_LIMIT).splitlines()


def number(place: str, text: str) -> float:
    """A decimal number, or a fraction such as 1/3."""
    if _NUMBER.fullmatch(text):
        found = float(text)
    elif _FRACTION.fullmatch(text):
        above, below = text.split("/")
        if int(below) == 0:
            raise InputError(f"{place}: {text} divides by 0")
        found = int(above) / int(below)
    else:
        what = "an interval; only plain numbers can be read" if "," in text or "[" in text else "not a number"
        raise InputError(f"{place}: {text[:40]!r} is {what}")
    if abs(found) == float("inf"):
        raise InputError(f"{place}: {text[:40]} is out of range; use numbers below 1e308")
    return found


def index(place: str, text: str, what: str) -> int:
    """A whole number, 0 or more."""
    if not _INDEX.fullmatch(text):
        raise InputError(f"{place}: {text[:40]!r} is no {what}; expected a whole number, 0 or more")
    return int(text)


@dataclass
class Listing:
    """Choices and transitions in the order of the file."""

    choice_state: array[int] = field(default_factory=lambda: array("q"))
    choice_number: array[int] = field(default_factory=lambda: array("q"))
    choice_name: list[str | None] = field(default_factory=list)
    choice_reward: array[float] = field(default_factory=lambda: array("d"))
    source: array[int] = field(default_factory=lambda: array("q"))  # the choice a transition belongs to
    target: array[int] = field(default_factory=lambda: array("q"))
    probability: array[float] = field(default_factory=lambda: array("d"))
    line: array[int] = field(default_factory=lambda: array("q"))  # of each transition
    state_reward: dict[int, float] = field(default_factory=dict)
    on_transitions: dict[tuple[int, int], float] = field(default_factory=dict)  # (choice, target): reward
    groups: dict[str, list[int]] = field(default_factory=dict)
    n_states: int = 0
    states: list[str] | None = None
    valuations: list[str] | None = None  # of each state: x=2 & !done
    has_rewards: bool = False

    def number_states(self, n_states: int, values: dict[int, list[str]]) -> None:
        """There are so many states, with these values of variables."""
        self.n_states, self.valuations = n_states, valuations(values, n_states)

    def name_states(self, names: dict[int, str], values: dict[int, list[str]]) -> None:
        """What the states are called, and their values of variables."""
        self.states, self.valuations = [names[s] for s in range(self.n_states)], valuations(values, self.n_states)

    def declare(self, labels: Iterable[str]) -> None:
        """Labels that exist, also those that no state has."""
        self.groups = {label: [] for label in labels} | self.groups

    def add_choice(self, state: int, number: int, name: str | None = None, reward: float = 0.0) -> int:
        """A new choice; its place in the list."""
        self.choice_state.append(state)
        self.choice_number.append(number)
        self.choice_name.append(name)
        self.choice_reward.append(reward)
        return len(self.choice_name) - 1

    def add_transition(self, choice: int, target: int, probability: float, line: int) -> None:
        """A transition of a choice."""
        self.source.append(choice)
        self.target.append(target)
        self.probability.append(probability)
        self.line.append(line)


def content(
    listing: Listing, actions: Names = None, at_least: int = 0, normalise: bool = False
) -> tuple[Content, Offer]:
    """The listing as the tables of a task file, and what its states offer.

    ``actions`` is the list of action names from elsewhere: their order, or names for the numbers. Where they have no
    names, there may be more actions (``at_least``) than any state has.
    """
    S = listing.n_states
    state, source, target = (_whole(part) for part in (listing.choice_state, listing.source, listing.target))
    check_states(listing)
    _check_marks(listing)
    labels = _labels(listing)
    action, names = _actions(listing, labels, actions)
    A = len(names) if names is not None else max(int(action.max()) + 1, at_least)
    check_size(S, A)
    states = listing.states if listing.states is not None else _distinct(listing.valuations)
    at = places_of(S, A, states, names)
    pair = state * A + action
    twice = repeated(pair)
    if twice is not None:
        raise InputError(f"state {state[twice]} has the choice {at.actions.label(action[twice])} twice; keep one")
    probability = _rows_to_one(listing, source, target, normalise, pair, at)
    available = np.zeros(S * A, dtype=bool)
    available[pair] = True
    tables: Content = {"kernel": assembled(pair[source], target, probability, S, A)}
    if listing.has_rewards:
        tables["rewards"] = _rewards(listing, pair, S, A)
    if states is not None:
        tables["states"] = tuple(states)
    if names is not None:
        tables["actions"] = tuple(names)
    return tables, Offer(available.reshape(S, A), listing.groups, pair, listing.valuations)


def valuations(written: dict[int, list[str]], n_states: int) -> list[str] | None:
    """``x=2 & !done`` for each state, from its parts; None unless all states have values of the same variables.

    Storm writes nothing for a truth value that holds: its name is taken from a state in which it does not.
    """
    if len(written) < n_states or len({len(parts) for parts in written.values()}) != 1:
        return None
    names: list[set[str]] = [set() for _ in written[0]]
    for parts in written.values():
        for known, part in zip(names, parts, strict=True):
            known.add(part.partition("=")[0].removeprefix("!"))
    if any(len(known - {""}) != 1 for known in names):
        return None
    only = [max(known) for known in names]
    return [" & ".join(part or name for part, name in zip(written[s], only, strict=True)) for s in range(n_states)]


def _distinct(names: list[str] | None) -> list[str] | None:
    """Names that differ from each other; None otherwise."""
    return names if names is not None and len(set(names)) == len(names) else None


def _whole(values: array[int]) -> IntArray:
    return np.frombuffer(values, dtype=np.int64) if len(values) else np.zeros(0, dtype=np.int64)


def check_states(listing: Listing) -> None:
    """Every state has a choice, and every transition leads to a state; before anything of that size is made."""
    S, target = listing.n_states, _whole(listing.target)
    present = np.unique(_whole(listing.choice_state))
    if not len(present):
        raise InputError("there are no states; a model has at least one")
    if present[-1] >= S:
        raise InputError(f"there is a state {present[-1]}, but {S} states; they are numbered from 0")
    if len(present) < S:
        gaps = np.flatnonzero(present != np.arange(len(present)))
        missing = int(gaps[0]) if len(gaps) else len(present)
        raise InputError(f"state {missing} has no transitions; an end needs a loop to itself with probability 1")
    if (at := arrays.first(target >= S)) is not None:
        raise InputError(f"line {listing.line[at]}: there is no state {target[at]}; states are 0 to {S - 1}")


def _check_marks(listing: Listing) -> None:
    """Rewards and labels are of states that are there."""
    S = listing.n_states
    for where in (listing.state_reward, *listing.groups.values()):
        for s in where:
            if s >= S:
                raise InputError(f"a reward or a label names state {s}; states are 0 to {S - 1}")


def _labels(listing: Listing) -> list[str] | None:
    """A name for every choice, different within a state; None where the numbers say it all."""
    if all(name is None for name in listing.choice_name):
        return None
    found: list[str] = []
    taken: set[tuple[int, str]] = set()
    for state, k, name in zip(listing.choice_state, listing.choice_number, listing.choice_name, strict=True):
        label = plain = f"#{k}" if name is None else name
        times = 1
        while (state, label) in taken:
            times += 1
            label = f"{plain}#{times}"
        taken.add((state, label))
        found.append(label)
    return found


def _actions(listing: Listing, labels: list[str] | None, given: Names) -> tuple[IntArray, Names]:
    """The action of each choice, and the names of the actions."""
    if labels is None:
        numbers = _whole(listing.choice_number)
        if given is not None and len(given) <= int(numbers.max()):
            raise InputError(f"actions has {len(given)} names, but some state has {int(numbers.max()) + 1} choices")
        return numbers, None if given is None else list(given)
    first_seen = list(dict.fromkeys(labels)) if given is None else [str(name) for name in given]
    place = {name: at for at, name in enumerate(first_seen)}
    for label in labels:
        if label not in place:
            raise InputError(f"actions does not name {label!r}, which the model has; add it")
    return np.array([place[label] for label in labels], dtype=np.int64), first_seen if given is None else list(given)


def _rows_to_one(
    listing: Listing, source: IntArray, target: IntArray, normalise: bool, pair: IntArray, at: Places
) -> FloatArray:
    """The probabilities, each choice summing to 1; rescaled on request."""
    A, probability = at.n_actions, np.array(listing.probability, dtype=np.float64)
    if (first := arrays.first(probability < 0)) is not None:
        raise InputError(f"line {listing.line[first]}: {probability[first]:.6g}; probabilities cannot be negative")
    twice = repeated(source * at.n_states + target)
    if twice is not None:
        raise InputError(f"line {listing.line[twice]}: this choice led to state {target[twice]} before; add them up")
    totals = np.bincount(source, weights=probability, minlength=len(pair))
    wrong = totals <= 0 if normalise else np.abs(totals - 1.0) > arrays.SUM_TOLERANCE
    if (first := arrays.first(wrong)) is not None:
        s, a = divmod(int(pair[first]), A)
        place = at.place(s, a)
        if totals[first] == 0:
            raise InputError(f"the choice at {place} has no transitions with mass; the file may be cut short")
        raise InputError(
            f"kernel at {place} sums to {totals[first]:.9g}, not 1; pass normalise=True if the numbers were rounded"
        )
    return np.asarray(probability / totals[source]) if normalise else probability


def _rewards(listing: Listing, pair: IntArray, S: int, A: int) -> Kernel:
    """r[s,a], and r[s,a,x] where transitions have rewards."""
    of_state = np.zeros(S)
    for s, number in listing.state_reward.items():
        of_state[s] = number
    table = np.zeros(S * A)
    table[pair] = of_state[pair // A] + np.array(listing.choice_reward, dtype=np.float64)
    if not listing.on_transitions:
        return table.reshape(S, A)
    # r[s,a,x] is r[s,a] plus what the transition earns; in a large task only the listed transitions are kept
    source, target = _whole(listing.source), _whole(listing.target)
    gain = np.array(
        [listing.on_transitions.get(key, 0.0) for key in zip(source.tolist(), target.tolist(), strict=True)]
    )
    if S * A * S > DENSE_REWARD_LIMIT:
        return assembled(pair[source], target, table[pair[source]] + gain, S, A)
    whole = np.repeat(table[:, None], S, axis=1)
    whole[pair[source], target] += gain
    return whole.reshape(S, A, S)
