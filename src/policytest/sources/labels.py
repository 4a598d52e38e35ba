r"""From labels to indices of states and actions: the one look-up, of data, files, policies and environments.

A label in *data* is matched by value, then by how it is written:

1. Without names, labels are the indices 0, 1, ...: whole numbers, 3.0 as well as 3, and text such as "3" or "3.0".
2. With names, a label is the name it equals; as in Python 3.0 equals 3, and True equals 1.
3. Otherwise it is the name written like it: the text "3" is the name 3, "2026-11-15" is a date, "(0, 1)" a tuple,
   and the number 3 is the name "3".

Blanks around a text do not matter, unless a name has them. In text files (CSV) nothing tells "3" from 3. Where both are
names, the label is ambiguous, and refused.

A name in a *task file* or a *policy* is the name it equals (true is not 1 there), or the one name that is written so.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import InputError, Needed
from policytest._base.text import did_you_mean
from policytest.mdp.task import Task

if TYPE_CHECKING:
    import pyarrow

pa, pc = Needed("pyarrow", "data"), Needed("pyarrow.compute", "data")
Number = TypeVar("Number", np.int64, np.float64)
Names: TypeAlias = Sequence[Hashable] | None
Column: TypeAlias = "pyarrow.Array | list[object]"
"""A column of data: an Arrow array, or a list where its values are of mixed types."""
Translated: TypeAlias = tuple[IntArray, list[object], IntArray]
"""The indices of a column; its distinct labels, and for each entry the place of its label among them."""
UNKNOWN, MISSING = -1, -2
"""Instead of an index: a label that is not a name, and no label at all (null, NaN)."""
_INDEX = re.compile(r"\d{1,15}", re.ASCII)
_WHOLE = re.compile(r"\s*([+-]?\d{1,30})(?:\.0*)?\s*", re.ASCII)


class Lookup:
    """The states or the actions: how many there are, their names, and the indices of labels.

    ``names`` is None where they have no names; ``numbers`` is how an environment numbers them, from 0 unless given.

    >>> Lookup("state", ["left", 3, (0, 1)], 3).indices(["left", "3", 3.0, [0, 1], "right", None]).tolist()
    [0, 1, 1, 2, -1, -2]
    """

    def __init__(self, kind: str, names: Names, count: int, numbers: Sequence[int] | None = None) -> None:
        self.kind, self.names, self.count = kind, None if names is None else tuple(names), count
        self.numbers, self.numbered = range(count) if numbers is None else numbers, numbers is not None

    @cached_property
    def _exact(self) -> dict[object, int]:
        return {name: index for index, name in reversed(list(enumerate(self.names or self.numbers)))}

    @cached_property
    def _written(self) -> dict[str, int]:
        """How names of data that are not strings may be written."""
        found: dict[str, int] = {}
        for index, name in enumerate(self.names or ()):
            for text in _writings(name):
                found.setdefault(text, index)
        return found

    @cached_property
    def _texts(self) -> dict[str, int | None]:
        """How names of files are written; None where several are written so."""
        found: dict[str, int | None] = {}
        for index, name in enumerate(self.numbers if self.names is None else self.names):
            found[str(name)] = None if str(name) in found else index
        return found

    # ---------------------------------------------------------------- names of one index

    def name(self, index: int) -> Hashable:
        """What a state is called: its name, or the number that an environment gives it."""
        return self.numbers[index] if self.names is None else self.names[index]

    def label(self, index: int) -> str:
        """The name for messages."""
        return repr(self.name(index))

    def has(self, name: object) -> bool:
        """Whether this is one of the names, where there are names."""
        return isinstance(name, Hashable) and name in (self.names or ())

    @property
    def own_names(self) -> tuple[Hashable, ...] | None:
        """The names; the numbers where there are none and they do not begin at 0; otherwise None."""
        return self.names if self.names is not None else tuple(self.numbers) if self._first else None

    @property
    def _first(self) -> int:
        return self.numbers[0] if self.count else 0

    # ---------------------------------------------------------------- names in files and policies

    def find(self, place: str, key: object, or_number: bool = False) -> int:
        """The index of a name in a file or policy; with ``or_number`` also that of a number, unless names are numbers.

        Text serves for a name, or a number, that is written so, since keys of files are text.
        """
        key = as_name(item(key))
        truth = isinstance(key, bool)
        if or_number and not truth and isinstance(key, int) and (index := self._index_of_number(key)) >= 0:
            return index
        try:
            found: int | None = self._exact.get(key)
        except TypeError:
            raise InputError(f"{key!r} in {place} is not a {self.kind}; a name is text, a number or a list") from None
        if found is not None and isinstance(self.name(found), bool) == truth:
            return found  # true is not 1 here
        found = None
        if isinstance(key, str):
            found = self._texts.get(key)
            if or_number and key not in self._texts and _INDEX.fullmatch(key):
                found = self._index_of_number(int(key))
        if found is None or found < 0:
            raise InputError(f"unknown {self.kind} {key!r} in {place}; {self._remedy(key)}")
        return found

    def _index_of_number(self, number: int) -> int:
        if self.names is not None and self._has_numbers:
            return UNKNOWN
        index = number - self._first
        return index if 0 <= index < self.count else UNKNOWN

    @cached_property
    def _has_numbers(self) -> bool:
        return any(isinstance(name, int | float | np.number) for name in self.names or ())

    def _remedy(self, key: object) -> str:
        if key in self._texts:
            return f"several {self.kind}s are written so: use the array form"
        if self.names is None:
            return f"{self.kind}s are {self._first} to {self._first + self.count - 1}"
        some = ", ".join(map(repr, self.names[:5])) + (", ..." if self.count > 5 else "")
        return did_you_mean(key, list(self._texts)[:10_000]) or f"the {self.kind}s are {some}"

    # ---------------------------------------------------------------- labels in data

    def indices(self, column: Column, form: str = "typed") -> IntArray:
        """The index of each label in a column (an Arrow array or a list); `UNKNOWN` or `MISSING` where there is none.

        ``form``: "typed", or "text" for a text file, or "json" for labels that are still JSON text.
        """
        return self.translated(column, form)[0]

    def translated(self, column: Column, form: str = "typed") -> Translated:
        """The indices of a column, its distinct labels, and where each entry has its label among them."""
        values, codes = distinct(column)
        found = np.fromiter((self.index(value, form) for value in values), np.int64, len(values))
        return np.append(found, MISSING)[codes], values, codes  # code -1: null

    def index(self, value: object, form: str = "typed") -> int:
        """The index of one label in data."""
        value = _plain(value) if form != "json" else _from_json(value)
        if value is None or (isinstance(value, float) and math.isnan(value)):
            return MISSING
        if self.names is None:
            return self._as_index(value)
        try:
            exact = self._exact.get(value, UNKNOWN)
        except TypeError:  # not hashable
            return UNKNOWN
        if isinstance(value, str):
            exact = exact if exact != UNKNOWN else self._exact.get(value.strip(), UNKNOWN)
            written = self._as_text(value)
            if form == "text" and UNKNOWN not in (exact, written) and exact != written:
                raise InputError(
                    f"the {self.kind} {value!r} in a text file may be {self.label(exact)} or {self.label(written)}, "
                    "both of which are names; rename one of them, or use a format with types, such as Parquet"
                )
            return written if exact == UNKNOWN else exact
        if exact == UNKNOWN:
            return next((self._exact[text] for text in _writings(value) if text in self._exact), UNKNOWN)
        return exact

    def _as_index(self, value: Any) -> int:
        if isinstance(value, str):
            whole = _WHOLE.fullmatch(value)
            value = int(whole.group(1)) if whole else UNKNOWN
        try:
            if 0 <= value < self.count and value == int(value):
                return int(value)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            pass
        return UNKNOWN

    def _as_text(self, text: str) -> int:
        """The index of the name, not a string, that is written like this."""
        found = self._written.get(text.strip(), UNKNOWN)
        whole = _WHOLE.fullmatch(text) if found == UNKNOWN else None
        return found if whole is None else self._exact.get(int(whole.group(1)), UNKNOWN)


class Places(NamedTuple):
    """The states and the actions of a task or an environment; in the states ``ends`` episodes have ended.

    ``start`` is a state that only stands for their beginning.
    """

    states: Lookup
    actions: Lookup
    ends: tuple[int, ...] = ()
    start: int | None = None

    @property
    def by_role(self) -> dict[str, Lookup]:
        """The states or the actions for each column of labels."""
        return {"s": self.states, "a": self.actions, "s_next": self.states}

    @property
    def n_states(self) -> int:
        """S."""
        return self.states.count

    @property
    def n_actions(self) -> int:
        """A."""
        return self.actions.count

    @property
    def free(self) -> tuple[int, ...]:
        """States in which it does not matter what the policy does."""
        return self.ends if self.start is None else (*self.ends, self.start)

    @property
    def mark(self) -> str:
        """A fingerprint of the names, by which saved data are recognised."""
        text = repr([(lookup.count, lookup.names) for lookup in (self.states, self.actions)])
        return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=16).hexdigest()

    def asked(self, s: int) -> Hashable:
        """What functions and agents are asked about: the observation, or the name where no environment is at hand."""
        return self.states.numbers[s] if self.states.numbered else self.states.name(s)

    def place(self, s: int, a: int, x: int | None = None) -> str:
        """A transition in words."""
        words = f"s={self.states.label(s)}, a={self.actions.label(a)}"
        return f"({words})" if x is None else f"({words}, x={self.states.label(x)})"


def places_of(
    n_states: int,
    n_actions: int,
    states: Names = None,
    actions: Names = None,
    observations: Sequence[int] | None = None,
    codes: Sequence[int] | None = None,
) -> Places:
    """States and actions by their numbers, their names, and the observations and codes of an environment."""
    return Places(Lookup("state", states, n_states, observations), Lookup("action", actions, n_actions, codes))


def places_in(task: Task) -> Places:
    """The states and actions of a task."""
    at = places_of(task.n_states, task.n_actions, task.states, task.actions)
    return at._replace(ends=tuple(task.ends), start=task.start)


def as_name(value: object) -> Any:
    """Lists as tuples, all the way down: names must be hashable."""
    return tuple(as_name(item) for item in value) if isinstance(value, list) else value


def item(value: object) -> object:
    """A Python number for a NumPy one, and for an array that holds just one integer."""
    if isinstance(value, np.generic | np.ndarray) and (value.ndim == 0 or is_one_integer(value)):
        return value.item()
    return value


def is_one_integer(value: object) -> bool:
    """Whether an array holds just one integer."""
    return isinstance(value, np.ndarray) and value.size == 1 and value.dtype.kind in "iu"


def _writings(name: object) -> Iterable[str]:
    """How a name that is not a string may be written."""
    match _plain(name):
        case bool() as truth:
            return (str(truth), str(truth).lower())
        case float() as number if number.is_integer():
            return (str(int(number)), repr(number))
        case datetime.datetime() as time:
            return (time.isoformat(), time.isoformat(" "))
        case datetime.date() | datetime.time() as day:
            return (day.isoformat(),)
        case tuple() as parts:
            return (str(parts), str(parts).replace(", ", ","))
        case str() | bytes() | None:
            return ()
        case other:
            return (str(other),)


def _plain(value: object) -> object:
    """Lists as tuples, scalars of arrays as Python's own."""
    value = value.tolist() if isinstance(value, np.generic | np.ndarray) else value
    if isinstance(value, list | tuple):
        return tuple(_plain(part) for part in value)
    return None if type(value).__name__ in ("NAType", "NaTType") else value  # pandas' own words for nothing


def _from_json(text: Any) -> object:
    try:
        return None if text is None else _plain(json.loads(text))
    except ValueError:  # a number with thousands of digits
        return text


# ---------------------------------------------------------------- columns of results


def distinct(column: Column) -> tuple[list[object], IntArray]:
    """The distinct values of a column, and for each entry the place of its value; -1 for null."""
    if isinstance(column, list):
        return _distinct_objects(column)
    try:
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)  # they may be unsigned
        return column.dictionary.to_pylist(), codes
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):  # lists and such
        return _distinct_objects(listed(column))


def _distinct_objects(column: list[object]) -> tuple[list[object], IntArray]:
    seen: dict[object, int] = {}
    values: list[object] = []
    codes = np.empty(len(column), dtype=np.int64)
    for at, value in enumerate(column):
        value = _plain(value)
        try:
            key = (type(value), value)
            place = seen.setdefault(key, len(values))
        except TypeError:
            place = len(values)
        if place == len(values):
            values.append(value)
        codes[at] = -1 if value is None else place
    return values, codes


def listed(column: Column) -> list[object]:
    """The entries of a column, as Python has them."""
    return column if isinstance(column, list) else column.to_pylist()


def entry(column: Column, at: int) -> object:
    """One entry of a column, as Python has it."""
    return column[at] if isinstance(column, list) else column[at].as_py()


def whole(column: Column) -> IntArray:
    """A column of whole numbers; sums come as decimals from some engines. Nulls count as 0."""
    return _array(column, np.dtype(np.int64), int, 0)


def numbers(column: Column, missing: float = 0.0) -> FloatArray:
    """A column of numbers as an array of floats; ``missing`` stands for nulls."""
    return _array(column, np.dtype(np.float64), float, missing)


def _array(
    column: Column, dtype: np.dtype[Number], kind: Callable[[Any], float], missing: float
) -> npt.NDArray[Number]:
    """A column of numbers of a kind as an array."""
    if not isinstance(column, list):
        with contextlib.suppress(pa.ArrowInvalid, pa.ArrowNotImplementedError):
            cast = pc.cast(column, pa.from_numpy_dtype(dtype)).fill_null(missing)
            return np.asarray(cast.to_numpy(zero_copy_only=False), dtype)
    return np.array([kind(missing if value is None else value) for value in listed(column)], dtype)
