r"""Tables by names: what people write instead of arrays.

States and actions go by their names, or by their indices where they have none. Each table has an array form and forms
for people:

| table | by names |
|---|---|
| initial | a state (probability 1), or ``{state: probability}`` |
| policy | ``{state: action}``, ``{state: {action: probability}}``, a list with an action for each state, or "uniform" |
| rewards | ``{state: r}``, ``{state: {action: r}}``, ``{state: {action: {next: r}}}``; what is left out is 0 |
| kernel | ``{state: {action: {next: p}}}`` |
| support | ``{state: {action: [next, ...]}}``, or ``{state: [next, ...]}`` for all actions; or "kernel" |

The support "kernel" are the successors to which the kernel gives mass; any state may follow a pair that is left out.
Rewards, kernel and support may also be a list of entries ``{s, a, s_next, r}``, ``{s, a, s_next, p}`` and
``{s, a, s_next}``. An entry of the rewards may leave out s, a or s_next, and then holds for all of them; an entry that
names more counts for more. Two entries that name equally much and meet are refused. An entry without s holds for all
states but the terminal ones, in which nothing is earned: ``{s_next: "cured", r: 1}`` pays on arrival.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray, Kernel
from policytest._base.errors import InputError
from policytest._base.text import did_you_mean
from policytest.sources.labels import Places
from policytest.sources.tasks.model_checkers import conditions

PAIRS_LIMIT = 50_000_000
"""The most pairs of a state and an action."""
DENSE_LIMIT = 4_000_000
"""Up to this many entries S*A*S, a table given entry by entry becomes an array; above, a CSR array."""
FIELDS = ("s", "a", "s_next")
Content: TypeAlias = dict[str, Any]
"""The keys and values of a task file, in whichever format."""


@dataclass(frozen=True)
class Offer:
    """What a model checker's file says beside its tables: which pairs exist, and which states a label stands for.

    ``choices`` are the pairs s*A + a in the order of the file, as model checkers number them. ``valuations`` says for
    each state what holds there, such as ``x=2 & !done``; it is None where the file does not tell.
    """

    available: BoolArray
    groups: dict[str, list[int]] = field(default_factory=dict)
    choices: IntArray | None = None
    valuations: list[str] | None = None

    @cached_property
    def variables(self) -> dict[str, conditions.Values]:
        """The values of each variable, [S]; none where the file does not tell."""
        return conditions.columns(self.valuations or ())

    def states(self, place: str, key: object, at: Places) -> list[int]:
        """The states for which a label, a condition such as ``d!=6 & !done``, a name or a number stands."""
        text, wrong = key if isinstance(key, str) else None, None
        if text is not None and text in self.groups:
            if not self.groups[text] and place != "avoid":  # then there is nothing to avoid
                raise InputError(f"{place}: no state has the label {key!r}; choose another label")
            return self.groups[text]
        try:
            if text is not None and (found := self.where(text)):
                return found
        except InputError as error:
            wrong = error
        try:
            return [at.states.find(place, key, or_number=True)]
        except InputError:
            if text is not None and conditions.is_condition(text):
                raise InputError(
                    f"{place}: {wrong or f'no state satisfies {key!r}; choose another condition'}"
                ) from None
            if not self.groups:
                raise
        known = did_you_mean(key, self.groups) or f"the labels are {', '.join(map(repr, sorted(self.groups)))}"
        raise InputError(f"unknown state {key!r} in {place}; {known}")

    def where(self, condition: str) -> list[int]:
        """The states in which a condition holds; see `policytest.sources.tasks.model_checkers.conditions`."""
        return conditions.where(condition, self.variables, self.groups, self.available.shape[0])


class Entry(NamedTuple):
    """One number of a table, where it belongs (None: everywhere), and where it was found."""

    s: int | None
    a: int | None
    x: int | None
    number: float
    place: str


def is_word(value: object, word: str) -> bool:
    """Whether a value is this word, and not an array that may hold it."""
    return isinstance(value, str) and value == word


def by_names(value: object) -> bool:
    """Whether a table is given by names rather than as an array."""
    listed = value if isinstance(value, list) else [value]
    return any(isinstance(item, str | dict) for item in listed)


# ---------------------------------------------------------------- the initial distribution


def initial(value: object, at: Places, offer: Offer | None = None) -> FloatArray:
    """[S] from a state, the label of some states (equally likely), or probabilities by state."""
    rho = np.zeros(at.n_states)
    if isinstance(value, str):
        begin = [at.states.find("initial", value)] if offer is None else offer.states("initial", value, at)
        rho[begin] = 1.0 / len(begin)
        return rho
    for name, number in _dict("initial", value, "{state: probability}").items():
        rho[at.states.find("initial", name, or_number=offer is not None)] = _number(f"initial.{name}", number)
    return rho


# ---------------------------------------------------------------- transitions


def check_size(S: int, A: int) -> None:
    """Refuse more pairs than fit into memory as a table; a list of names is much shorter than that."""
    if S * A > PAIRS_LIMIT:
        raise InputError(f"{S:,} states with {A:,} actions are more than {PAIRS_LIMIT:,} pairs; name fewer actions")


def kernel(value: object, at: Places) -> Kernel:
    """p[s,a,x] from ``{state: {action: {next: p}}}`` or entries."""
    entries = list(_entries("kernel", value, at, "p"))
    return _table("kernel", entries, at)


def support(value: object, at: Places, truth: Kernel | None) -> Kernel:
    """Allowed successors from names, entries, or "kernel": where the kernel has mass."""
    if not isinstance(value, str):
        return _table("support", _completed(list(_entries("support", value, at, None)), at), at)
    if value != "kernel":
        raise InputError(f'support is {value!r}; the one word it may be is "kernel"')
    if truth is None:
        raise InputError('support is "kernel", but there is no kernel; add one, or list the support')
    if not arrays.is_sparse(truth):
        return arrays.real_array("kernel", truth, (None, None, None)) > 0
    kept = sparse.csr_array(truth > 0)
    return kept.astype(np.float64)


def _completed(entries: list[Entry], at: Places) -> list[Entry]:
    """Any state may follow a pair that is not named."""
    S, A = at.n_states, at.n_actions
    named = {(entry.s, entry.a) for entry in entries}
    missing = [(s, a) for s in range(S) for a in range(A) if (s, a) not in named]
    if len(missing) * S > DENSE_LIMIT:
        raise InputError(
            f"support says nothing about {len(missing):,} pairs, and any of {S:,} states following each of them is too "
            "much to list; name them all, or leave support out"
        )
    return entries + [Entry(s, a, x, 1.0, "support") for s, a in missing for x in range(S)]


def available(value: Content, at: Places) -> BoolArray:
    """[S,A] which actions there are, from {state: [action, ...]}; all of them in states that are not named."""
    table = np.ones((at.n_states, at.n_actions), dtype=bool)
    for state, names in value.items():
        if not isinstance(names, list) or not names:
            raise InputError(f"available.{state} is {arrays.shown(names)}; it is a list of at least one action")
        s = at.states.find("available", state)
        table[s] = False
        table[s, [at.actions.find(f"available.{state}", name, or_number=True) for name in names]] = True
    return table


def rewards(value: object, at: Places) -> Kernel:
    """r[s,a], or r[s,a,x] where an entry names the next state."""
    entries = list(_entries("rewards", value, at, "r"))
    S, A = at.n_states, at.n_actions
    if all(entry.x is None for entry in entries):
        return _filled(entries, (S, A), at.ends)
    if S * A * S <= DENSE_LIMIT:
        return _filled(entries, (S, A, S), at.ends)
    for entry in entries:
        if entry.s is None or entry.a is None or entry.x is None:
            raise InputError(
                f"{entry.place} holds for many of {S:,} x {A} x {S:,} transitions; in a task of this size name "
                "s, a and s_next in every entry (the table is then sparse), or none of them s_next"
            )
    return _table("rewards", entries, at)


def _filled(entries: list[Entry], shape: tuple[int, ...], ends: tuple[int, ...]) -> FloatArray:
    """Entries put into an array, those that name more last; equals that meet are refused."""
    table, level = np.zeros(shape), np.zeros(shape, dtype=np.int8)
    going_on = np.setdiff1d(np.arange(shape[0]), ends)
    for entry in sorted(entries, key=_named):
        s = going_on if entry.s is None else entry.s
        where = (s, *(slice(None) if at is None else at for at in (entry.a, entry.x)[: len(shape) - 1]))
        if (level[where] == _named(entry) + 1).any():
            raise InputError(f"{entry.place} is given twice; keep one")
        table[where], level[where] = entry.number, _named(entry) + 1
    return table


def _named(entry: Entry) -> int:
    return sum(at is not None for at in (entry.s, entry.a, entry.x))


def _table(name: str, entries: list[Entry], at: Places) -> Kernel:
    """Entries with all of s, a and x as an array [S,A,S], or as a CSR array where that would be large."""
    S, A = at.n_states, at.n_actions
    for entry in entries:
        if entry.s is None or entry.a is None or entry.x is None:
            raise InputError(f"{entry.place} must name s, a and s_next")
    row = np.array([entry.s * A + entry.a for entry in entries], dtype=np.int64)  # type: ignore[operator]
    column = np.array([entry.x for entry in entries], dtype=np.int64)
    number = np.array([entry.number for entry in entries], dtype=np.float64)
    twice = repeated(row * S + column)
    if twice is not None:
        raise InputError(f"{entries[twice].place} is given twice; keep one")
    return assembled(row, column, number, S, A)


def repeated(keys: IntArray) -> int | None:
    """The place of the first key that was there before; None if all differ."""
    order = np.argsort(keys, kind="stable")
    again = order[1:][keys[order][1:] == keys[order][:-1]]
    return int(again.min()) if len(again) else None


def assembled(row: object, column: object, number: FloatArray, S: int, A: int) -> Kernel:
    """The table with these numbers at (row, column): an array [S,A,S] if it is small, a CSR array otherwise."""
    table = sparse.csr_array((number, (row, column)), shape=(S * A, S))
    return table.toarray().reshape(S, A, S) if S * A * S <= DENSE_LIMIT else table


def _entries(name: str, value: object, at: Places, field: str | None) -> Iterator[Entry]:
    """The numbers of a table, from a list of entries or from nested names."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield _entry(f"{name}[{index}]", item, at, field)
        return
    forms = {"r": "{state: {action: r}}", "p": "{state: {action: {next: p}}}", None: "{state: {action: [next, ...]}}"}
    for state, of_state in _dict(name, value, forms[field]).items():
        s, place = at.states.find(name, state), f"{name}.{state}"
        if field == "r" and not isinstance(of_state, dict):
            yield Entry(s, None, None, _number(place, of_state), place)
            continue
        if field is None and isinstance(of_state, list):
            of_state = {at.actions.name(a): of_state for a in range(at.n_actions)}
        for action, of_action in _dict(place, of_state, "{action: ...}").items():
            yield from _of_pair(
                f"{place}.{action}", s, at.actions.find(f"{place}.{action}", action), of_action, at, field
            )


def _of_pair(place: str, s: int, a: int, value: object, at: Places, field: str | None) -> Iterator[Entry]:
    match field, value:
        case None, list() | dict() if not value:
            raise InputError(
                f"{place} allows no successor; list at least one, or leave the pair out: then any may follow"
            )
        case None, list() as successors:
            for successor in successors:
                yield Entry(s, a, at.states.find(place, successor), 1.0, f"{place}.{successor}")
        case "r", number if not isinstance(number, dict):
            yield Entry(s, a, None, _number(place, number), place)
        case _:
            form = "[next, ...]" if field is None else f"{{next: {field}}}"
            for successor, number in _dict(place, value, form).items():
                where = f"{place}.{successor}"
                allowed = float(number) if field is None and isinstance(number, bool) else _number(where, number)
                yield Entry(s, a, at.states.find(place, successor), allowed, where)


def _entry(place: str, item: object, at: Places, field: str | None) -> Entry:
    known = FIELDS if field is None else (*FIELDS, field)
    item = _dict(place, item, "{" + ", ".join(known) + "}")
    for key in item:
        if key not in known:
            raise InputError(f"{place} has the unknown key {key!r}; known are {', '.join(known)}")
    if field is not None and field not in item:
        raise InputError(f"{place} has no {field}; add it")
    s, a, x = (
        axis.find(f"{place}.{key}", item[key]) if key in item else None
        for key, axis in zip(FIELDS, (at.states, at.actions, at.states), strict=True)
    )
    return Entry(s, a, x, 1.0 if field is None else _number(f"{place}.{field}", item[field]), place)


def _dict(place: str, value: object, form: str) -> Content:
    if not isinstance(value, dict):
        raise InputError(f"{place} is {arrays.shown(value)}; by names it is {form}")
    return value


def _number(place: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(f"{place} is {arrays.shown(value)}; it must be a number")
    return arrays.real_number(place, value)
