"""Errors that name the argument, the place, the value and the remedy.

Every array a user hands over passes through here once, at the boundary.
Nothing is repaired silently: a table that was rounded is renormalised only on
request (``normalise=True``).
"""

from __future__ import annotations

import importlib
import math
import operator
import re
import shlex
from collections.abc import Callable, Hashable, Sequence
from importlib import metadata
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

from policytest._display import short

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
SparseArray: TypeAlias = Any
"""A SciPy CSR array of shape (S*A, S), row ``s*A + a``."""
Kernel: TypeAlias = Any
"""A kernel q[s,a,x]: an ndarray [S,A,S], or a CSR array of shape (S*A, S)."""

SUM_TOLERANCE = 1e-9
"""How far the sum of a probability row may be from 1 before it is refused."""
TABLE_LIMIT = 500_000_000
"""The most entries of a dense array."""


class InputError(ValueError):
    """Bad input. The message names the argument, the place, the value and the remedy; a long value is cut."""

    def __init__(self, message: object = "") -> None:
        super().__init__(short(str(message)))


class PrecisionError(InputError, ArithmeticError):
    """A task whose values cannot be computed in double precision."""


class AssumptionWarning(UserWarning):
    """An assumption fails; the message names the guarantee that is lost with it."""


def interrupted(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C: compiled code and DuckDB turn a KeyboardInterrupt into errors of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "InterruptException":
            return True
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            return True
        error = error.__cause__ or error.__context__
    return False


def real_array(name: str, value: Any, shape: tuple[int | None, ...] | None = None) -> FloatArray:
    """A finite float array, of the given shape (None: any length on that axis)."""
    not_too_large(name, getattr(value, "shape", ()))
    try:
        if np.iscomplexobj(value):
            raise TypeError("it is complex")
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not an array of numbers ({error})") from None
    if shape is not None:
        check_shape(name, array.shape, shape)
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name}{list(place) if place else ''} is {array[place]}; every entry must be a finite number")
    return array


def not_too_large(name: str, shape: Any) -> None:
    """Refuse an array that would not fit into memory once copied; a view may claim any shape at no cost."""
    entries = math.prod(shape) if isinstance(shape, tuple) else 0
    if entries > TABLE_LIMIT:
        remedy = "pass a SciPy CSR array of shape (S*A, S)" if len(shape) == 3 else "merge states or actions"
        raise InputError(f"{name} has shape {tuple(shape)}, {entries:,} entries, too large for a dense array; {remedy}")


def no_negative(name: str, array: FloatArray, what: str) -> None:
    """Refuse negative entries, with the place of the first."""
    if (array < 0).any():
        place = [int(i) for i in np.argwhere(array < 0)[0]]
        raise InputError(f"{name}{place} is {array[tuple(place)]:.6g}; {what} cannot be negative")


def instance(name: str, value: Any, kind: type, hint: str = "") -> None:
    """Refuse an argument of another type, as when two arguments were swapped."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is a {type(value).__name__}, expected a {kind.__name__}{hint}")


def positive(**settings: float | None) -> None:
    """Refuse settings that are not positive (None stands for a default)."""
    for name, value in settings.items():
        if value is not None and not value > 0:
            raise InputError(f"{name} is {value}; it must be positive")


def check_shape(name: str, found: tuple[int, ...], expected: tuple[int | None, ...]) -> None:
    """Refuse an array whose shape is not the expected one (None: any length)."""
    fits = len(found) == len(expected) and all(e is None or e == f for f, e in zip(found, expected, strict=True))
    if not fits:
        wanted = ", ".join("any" if e is None else str(e) for e in expected)
        raise InputError(f"{name} has shape {found}, expected ({wanted})")


def real_number(name: str, value: Any) -> float:
    """One finite number."""
    return float(real_array(name, value, shape=()))


def whole_number(name: str, value: Any) -> int:
    """One whole number."""
    try:
        return operator.index(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}; it must be a whole number") from None


def sense_sign(sense: str) -> float:
    """+1 for "min", where a value is pushed down, and -1 for "max"."""
    if sense not in ("min", "max"):
        raise InputError(f'sense is {sense!r}; pass "min" or "max"')
    return 1.0 if sense == "min" else -1.0


def probability_rows(name: str, rows: FloatArray, normalise: bool = False) -> FloatArray:
    """Rows (last axis) that are probability vectors; renormalised only on request."""
    no_negative(name, rows, "probabilities")
    totals = rows.sum(axis=-1, keepdims=True)
    if normalise and (totals > 0).all():
        return np.asarray(rows / totals)
    wrong = np.abs(totals[..., 0] - 1.0) > SUM_TOLERANCE
    if wrong.any():
        where = np.argwhere(wrong)[0] if wrong.ndim else []
        place = [int(i) for i in where]
        total = totals[..., 0][tuple(place)]
        remedy = (
            "no entry is positive, so it cannot be normalised"
            if normalise
            else "pass normalise=True if the table was rounded"
        )
        raise InputError(f"{name}{place or ''} sums to {total:.9g}, not 1; {remedy}")
    return rows


def kernel(name: str, value: Any, S: int, A: int) -> Kernel:
    """An array [S,A,S], or a CSR array of shape (S*A, S)."""
    if is_sparse(value):
        return csr(name, value, (S * A, S))
    return real_array(name, value, (S, A, S))


def kernel_rows(
    name: str, kernel: Kernel, pair: IntArray, S: int, place: Callable[..., str], tolerance: float = SUM_TOLERANCE
) -> None:
    """Refuse a kernel with a negative entry, or whose rows `pair` do not sum to 1; `place` puts a pair in words."""
    entries = kernel.data if is_sparse(kernel) else kernel.ravel()
    if (entries < 0).any():
        first = int(np.argmax(entries < 0))
        if is_sparse(kernel):
            row, x = int(np.searchsorted(kernel.indptr, first, side="right")) - 1, int(kernel.indices[first])
        else:
            row, x = divmod(first, S)
        raise InputError(f"{name} at {place(row, x)} is {entries[first]:.6g}; probabilities cannot be negative")
    totals = row_totals(kernel, pair, S)
    wrong = np.abs(totals - 1.0) > tolerance
    if wrong.any():
        first = int(np.argmax(wrong))
        raise InputError(
            f"{name} at {place(int(pair[first]))} sums to {float(totals[first])!r}, not 1; "
            + (
                "a row without samples may be any distribution, with weight 0"
                if totals[first] == 0
                else "divide each row by its sum, in double precision, if the table was rounded"
            )
        )


def row_totals(kernel: Kernel, pair: IntArray, S: int) -> FloatArray:
    """[K] the sum of each of these rows of a kernel."""
    if is_sparse(kernel):
        return np.asarray(kernel.sum(axis=1)).ravel()[pair]
    return np.asarray(kernel.reshape(-1, S)[pair].sum(axis=1))


def names(name: str, value: Sequence[Hashable] | None, count: int) -> tuple[Hashable, ...] | None:
    """Optional names of states or actions: hashable, distinct, one each."""
    if value is None:
        return None
    try:
        labels = tuple(value)
    except TypeError:
        raise InputError(f"{name} is {value!r}; pass a list of {count} names") from None
    if len(labels) != count:
        raise InputError(f"{name} has {len(labels)} names, expected {count}")
    seen: dict[Hashable, int] = {}
    for index, label in enumerate(labels):
        if not isinstance(label, Hashable):
            raise InputError(f"{name}[{index}] is {label!r}; names must be hashable, such as strings or numbers")
        if label in seen:
            raise InputError(
                f"{name}[{index}] repeats {label!r}, already the name of {seen[label]}; names must be distinct"
            )
        seen[label] = index
    return labels


def is_sparse(value: Any) -> bool:
    """Whether the argument is a SciPy sparse matrix or array, in any format."""
    return bool(sparse.issparse(value))


def csr(name: str, value: Any, shape: tuple[int, int]) -> SparseArray:
    """A canonical float CSR array (sorted, duplicates summed) of the given shape."""
    if np.iscomplexobj(value):
        raise InputError(f"{name} is not an array of numbers (it is complex)")
    array = sparse.csr_array(value, dtype=np.float64, copy=True)
    if array.shape != shape:
        raise InputError(f"{name} is sparse with shape {array.shape}, expected {shape} (row s*A + a, column x)")
    array.sum_duplicates()
    array.sort_indices()
    if not np.isfinite(array.data).all():
        entry = int(np.argmax(~np.isfinite(array.data)))
        row = int(np.searchsorted(array.indptr, entry, side="right")) - 1
        raise InputError(
            f"{name} has {array.data[entry]} in row {row}, column {int(array.indices[entry])}; "
            "every entry must be a finite number"
        )
    return array


def freeze(value: Any) -> None:
    """Make an array, or the arrays behind a sparse one, read-only."""
    for array in (value.data, value.indices, value.indptr) if is_sparse(value) else (value,):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False


def needs(package: str, extra: str) -> Any:
    """An optional package, imported here and now; where it is missing, the error says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"this needs {package.split('.')[0]}, which is not installed; run {installation(extra)}"
        ) from error


def installation(extra: str) -> str:
    """The command that installs what an extra of this package needs, wherever the package itself came from.

    >>> installation("gym")
    "pip install 'gymnasium>=1.0'"
    """
    wanted = [line.partition(";") for line in metadata.requires("policytest") or ()]
    named = sorted(text.strip() for text, _, marker in wanted if re.search(rf"extra == ['\"]{extra}['\"]", marker))
    return shlex.join(["pip", "install", *named])
