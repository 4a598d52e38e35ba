r"""From labels in data to indices of states and actions.

A label is matched by value, then by how it is written:

1. Without names, labels are the indices 0, 1, ...: whole numbers, 3.0 as well as 3, and text such as "3" or "3.0".
2. With names, a label is the name it equals; as in Python 3.0 equals 3, and True equals 1.
3. Otherwise it is the name written like it: the text "3" is the name 3, "2026-11-15" is a date, "(0, 1)" a tuple,
   and the number 3 is the name "3".

In text files (CSV) nothing tells "3" from 3. Where both are names, the label is ambiguous, and refused.
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from policytest._base.arrays import IntArray
from policytest._base.errors import InputError

UNKNOWN, MISSING = -1, -2
"""Instead of an index: a label that is no name, and none at all (null, NaN)."""
_WHOLE = re.compile(r"\s*([+-]?\d{1,30})(?:\.0*)?\s*", re.ASCII)


class Lookup:
    """The indices of labels of one kind.

    >>> Lookup("state", ["left", 3, (0, 1)], 3).indices(["left", "3", 3.0, [0, 1], "right", None]).tolist()
    [0, 1, 1, 2, -1, -2]
    """

    def __init__(self, kind: str, names: Sequence[Hashable] | None, count: int) -> None:
        """Of `count` states or actions, with names or without."""
        self.kind, self.names, self.count = kind, names, count
        self._exact: dict[Any, int] = {} if names is None else {name: index for index, name in enumerate(names)}
        self._written: dict[str, int] = {}
        for name, index in self._exact.items():
            for text in _writings(name):
                self._written.setdefault(text, index)

    def indices(self, column: Any, form: str = "typed") -> IntArray:
        """The index of each label in a column (an Arrow array or a list); `UNKNOWN` or `MISSING` where there is none.

        ``form``: "typed", or "text" for a text file, or "json" for labels that are still JSON text.
        """
        values, codes = distinct(column)
        found = np.fromiter((self.index(value, form) for value in values), np.int64, len(values))
        return np.where(codes < 0, MISSING, np.append(found, MISSING)[codes])

    def index(self, value: Any, form: str = "typed") -> int:
        """The index of one label."""
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
            written = self._as_text(value)
            if form == "text" and UNKNOWN not in (exact, written) and exact != written:
                one, other = (self.names[index] for index in (exact, written))
                raise InputError(
                    f"the {self.kind} {value!r} in a text file may be {one!r} or {other!r}, which are both names; "
                    "rename one of them, or use a format with types, such as Parquet"
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
            if not isinstance(value, tuple) and 0 <= value < self.count and value == int(value):
                return int(value)
        except (TypeError, ValueError, OverflowError, ArithmeticError):
            pass
        return UNKNOWN

    def _as_text(self, text: str) -> int:
        """The index of the name, not a string, that is written like this; or a string but for blanks around it."""
        found = self._written.get(text.strip(), UNKNOWN)
        if found == UNKNOWN and (whole := _WHOLE.fullmatch(text)):
            number = self._exact.get(int(whole.group(1)), UNKNOWN)
            return number
        return self._exact.get(text.strip(), UNKNOWN) if found == UNKNOWN else found


def _writings(name: Any) -> Iterable[str]:
    """How a name that is not a string may be written."""
    name = _plain(name)
    if isinstance(name, bool):
        return (str(name), str(name).lower())
    if isinstance(name, float) and name.is_integer():
        return (str(int(name)), repr(name))
    if isinstance(name, datetime.datetime):
        return (name.isoformat(), name.isoformat(" "))
    if isinstance(name, datetime.date | datetime.time):
        return (name.isoformat(),)
    if isinstance(name, tuple):
        return (str(name), str(name).replace(", ", ","))
    return () if isinstance(name, str | bytes) or name is None else (str(name),)


def _plain(value: Any) -> Any:
    """Lists as tuples, scalars of arrays as Python's own."""
    if isinstance(value, list | tuple):
        return tuple(_plain(part) for part in value)
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if type(value).__name__ in ("NAType", "NaTType"):  # pandas' own words for nothing
        return None
    return value.item() if isinstance(value, np.generic) else value


def _from_json(text: Any) -> Any:
    try:
        return None if text is None else _plain(json.loads(text))
    except ValueError:  # a number with thousands of digits
        return text


# ---------------------------------------------------------------- columns of results


def distinct(column: Any) -> tuple[list[Any], IntArray]:
    """The distinct values of a column, and for each entry the place of its value; -1 for null."""
    if isinstance(column, list):
        return _distinct_objects(column)
    import pyarrow as pa

    column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    try:
        if not pa.types.is_dictionary(column.type):
            column = column.dictionary_encode()
        codes = column.indices.cast(pa.int64()).fill_null(-1).to_numpy(zero_copy_only=False)  # they may be unsigned
        return column.dictionary.to_pylist(), codes
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError, ValueError):  # lists and such
        return _distinct_objects(column.to_pylist())


def _distinct_objects(column: list[Any]) -> tuple[list[Any], IntArray]:
    seen: dict[Any, int] = {}
    values: list[Any] = []
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


def whole(column: Any) -> IntArray:
    """A column of whole numbers; sums come as decimals from some engines. Nulls count as 0."""
    return np.asarray(numbers(column, int), dtype=np.int64)


def numbers(column: Any, kind: Callable[[Any], Any] = float) -> Any:
    """A column of numbers as an array of floats, or of whole numbers."""
    dtype = np.int64 if kind is int else np.float64
    if not isinstance(column, list):
        import pyarrow as pa
        import pyarrow.compute as pc

        column = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
        try:
            cast = pc.cast(column, pa.int64() if kind is int else pa.float64())
            return cast.fill_null(0).to_numpy(zero_copy_only=False)
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
            column = column.to_pylist()
    return np.array([kind(0 if value is None else value) for value in column], dtype=dtype)
