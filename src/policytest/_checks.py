"""Errors that name the argument, the place, the value and the remedy.

Every array a user hands over passes through here once, at the boundary.
Nothing is repaired silently: a table that was rounded is renormalised only on
request (``normalise=True``).
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from scipy import sparse

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
SparseArray: TypeAlias = Any
"""A SciPy CSR array of shape (S*A, S), row ``s*A + a``."""
Kernel: TypeAlias = Any
"""A kernel q[s,a,x]: an ndarray [S,A,S], or a CSR array of shape (S*A, S)."""

SUM_TOLERANCE = 1e-9
"""How far the sum of a probability row may be from 1 before it is refused."""


class InputError(ValueError):
    """Bad input. The message names the argument, the place, the value and the remedy."""


class AssumptionWarning(UserWarning):
    """An assumption fails; the message names the guarantee that is lost with it."""


def real_array(name: str, value: Any, shape: tuple[int | None, ...] | None = None) -> FloatArray:
    """A finite float array, of the given shape (None: any length on that axis)."""
    try:
        array = np.array(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} is not an array of numbers ({error})") from None
    if shape is not None:
        check_shape(name, array.shape, shape)
    if not np.isfinite(array).all():
        place = tuple(int(i) for i in np.argwhere(~np.isfinite(array))[0])
        raise InputError(f"{name}{list(place) if place else ''} is {array[place]}; every entry must be a finite number")
    return array


def check_shape(name: str, found: tuple[int, ...], expected: tuple[int | None, ...]) -> None:
    """Refuse an array whose shape is not the expected one (None: any length)."""
    fits = len(found) == len(expected) and all(e is None or e == f for f, e in zip(found, expected, strict=True))
    if not fits:
        wanted = ", ".join("any" if e is None else str(e) for e in expected)
        raise InputError(f"{name} has shape {found}, expected ({wanted})")


def real_number(name: str, value: Any) -> float:
    """One finite number."""
    return float(real_array(name, value, shape=()))


def probability_rows(name: str, rows: FloatArray, normalise: bool = False) -> FloatArray:
    """Rows (last axis) that are probability vectors; renormalised only on request."""
    if (rows < 0).any():
        place = [int(i) for i in np.argwhere(rows < 0)[0]]
        raise InputError(f"{name}{place} is {rows[tuple(place)]:.6g}; probabilities cannot be negative")
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


def names(name: str, value: Sequence[Hashable] | None, count: int) -> tuple[Hashable, ...] | None:
    """Optional names of states or actions: hashable, distinct, one each."""
    if value is None:
        return None
    labels = tuple(value)
    if len(labels) != count:
        raise InputError(f"{name} has {len(labels)} names, expected {count}")
    seen: dict[Hashable, int] = {}
    for index, label in enumerate(labels):
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
