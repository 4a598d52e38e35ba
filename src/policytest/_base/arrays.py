"""Errors that name the argument, the place, the value and the remedy.

Every array a user hands over passes through here once, at the boundary.
Nothing is repaired silently: a table that was rounded is renormalised only on
request (``normalise=True``). Rows that sum to 1 within `SUM_TOLERANCE` are
divided by their sum, so that all computations use the same probabilities.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Hashable, Iterable, Sequence
from contextlib import nullcontext, suppress
from decimal import Decimal
from numbers import Real
from typing import Any, TypeAlias, TypeGuard

import numpy as np
import numpy.typing as npt
from scipy import sparse

from policytest._base.errors import InputError

FloatArray: TypeAlias = npt.NDArray[np.float64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]
IntArray: TypeAlias = npt.NDArray[np.int64]
AnyArray: TypeAlias = npt.NDArray[Any]
Arrays: TypeAlias = dict[str, AnyArray]
"""What a part of a run keeps for later: arrays by name."""
SparseArray: TypeAlias = Any
"""A SciPy CSR array of shape (S*A, S), row ``s*A + a``."""
Kernel: TypeAlias = Any
"""A kernel q[s,a,x]: an ndarray [S,A,S], or a CSR array of shape (S*A, S)."""
Table: TypeAlias = Any
"""Rewards or a support: in the form of a kernel, or an ndarray [S,A]."""
AsArray: TypeAlias = Any
"""A field that takes anything like an array, and holds an array (or None) once it is checked."""

SUM_TOLERANCE = 1e-9
"""How far the sum of a probability row may be from 1 before it is refused. Within it rows are divided by their sum."""
TABLE_LIMIT = 500_000_000
"""The most entries of a dense array."""
_NOT_NUMBERS = {"S": "bytes", "U": "text", "M": "dates", "m": "durations", "V": "records", "c": "complex numbers"}


def numbers(name: str, value: object) -> AnyArray:
    """An array of booleans, integers or floats, as it is. All that NumPy would turn into numbers silently is refused.

    NumPy reads text and bytes as numbers, dates as days and a record as its only field, and drops a mask.
    """
    array = any_array(name, value, " of numbers")
    if array.dtype.kind == "O":
        array = _numbers_from_objects(name, array)
    if array.dtype.kind not in "biuf":
        what = _NOT_NUMBERS.get(array.dtype.kind, shown(array.dtype, str))
        raise InputError(f"{name} is not an array of numbers (it holds {what}); pass real numbers")
    return array


def any_array(name: str, value: object, what: str = "") -> AnyArray:
    """An array with entries of any kind; none of them may be masked."""
    not_too_large(name, getattr(value, "shape", ()))
    if _has_mask(value):
        raise InputError(f"{name} is a masked array with masked entries; fill them in, or leave those rows out")
    try:
        return np.asarray(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        why = "its rows have different lengths" if "inhomogeneous" in str(error) else shown(error, str)
        raise InputError(f"{name} is not an array{what} ({why})") from None


def _has_mask(value: object) -> bool:
    """Whether entries are masked, also in a list of masked arrays."""
    if isinstance(value, list | tuple):
        return any(_has_mask(part) for part in value if isinstance(part, list | tuple | np.ma.MaskedArray))
    return isinstance(value, np.ma.MaskedArray) and bool(np.ma.is_masked(value))


def _numbers_from_objects(name: str, array: AnyArray) -> FloatArray:
    """Python's own numbers (whole numbers of any size, fractions, decimals) as floats; other objects are refused."""
    found = np.empty(array.shape)
    for place, entry in np.ndenumerate(array):
        where = list(place) if place else ""
        if not isinstance(entry, Real | Decimal | np.bool_):
            at = f"{name}{where} is " if place else ""
            raise InputError(f"{name} is not an array of numbers ({at}{shown(entry)})")
        try:
            found[place] = float(entry)
        except (OverflowError, ValueError):
            raise InputError(f"{name}{where} is out of range; use numbers below 1e308") from None
    return found


def shown(value: object, words: Callable[[object], str] = repr) -> str:
    """A value for a message: at most 80 letters of it, on one line."""
    try:
        text = words(value)
    except Exception:  # whatever an object does when it is printed
        text = f"a {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 80 else f"{text[:77]}..."


def first(holds: BoolArray) -> int | None:
    """The place of the first entry that holds, in a list or a flattened table; None where none does."""
    return int(np.argmax(holds)) if holds.any() else None


def first_place(holds: BoolArray) -> list[int] | None:
    """The same in a table, with a number for each axis."""
    at = first(holds)
    return None if at is None else [int(i) for i in np.unravel_index(at, holds.shape)]


def real_array(name: str, value: object, shape: tuple[int | None, ...] | None = None) -> FloatArray:
    """A finite float array, of the given shape (None: any length on that axis)."""
    given = numbers(name, value)
    with nullcontext() if given.dtype == np.float64 else np.errstate(over="ignore"):
        array = np.array(given, dtype=np.float64)
    if shape is not None:
        check_shape(name, array.shape, shape)
    if (place := first_place(~np.isfinite(array))) is not None:
        raise InputError(f"{name}{place or ''} is {array[tuple(place)]}; every entry must be a finite number")
    return array


def index_list(name: str, value: object, count: int = 2**63) -> IntArray:
    """A list of indices below the count, as int64."""
    array = numbers(name, value)
    if array.ndim != 1 or (array.size and array.dtype.kind not in "iu"):
        raise InputError(f"{name} has shape {array.shape} and type {array.dtype}; pass a list of indices")
    if (at := first((array < 0) | (array >= count))) is not None:
        limits = f"lie in 0 to {count - 1}" if count < 2**63 else "be at least 0"
        raise InputError(f"{name}[{at}] is {array[at]}; it must {limits}")
    return np.asarray(array.astype(np.int64))


def whole_array(
    name: str,
    value: object,
    stop: int,
    rule: str,
    kinds: str = "iu",
    place: Callable[..., Iterable[int]] = lambda *at: at,
) -> IntArray:
    """Whole numbers in 0..stop-1 as int64; only dtypes of these kinds pass (an empty list is of any)."""
    array = numbers(name, value)
    if array.size and array.dtype.kind not in kinds:
        raise InputError(f"{name} has dtype {array.dtype}; {rule}: pass integers, such as {name}.astype(int)")
    fraction = array.dtype.kind == "f" and (np.floor(array) != array).any()
    if array.size and (fraction or not (array.min() >= 0 and array.max() < stop)):
        at = np.argwhere(~((array >= 0) & (array < stop) & (np.floor(array) == array)))[0]
        raise InputError(f"{name}{[int(i) for i in place(*at)] or ''} is {array[tuple(at)]}; {rule}")
    return np.asarray(array.astype(np.int64, copy=False))


def not_too_large(name: str, shape: object) -> None:
    """Refuse an array that would not fit into memory once copied; a view may claim any shape at no cost."""
    if isinstance(shape, tuple) and (entries := math.prod(shape)) > TABLE_LIMIT:
        remedy = "pass a SciPy CSR array of shape (S*A, S)" if len(shape) == 3 else "merge states or actions"
        raise InputError(f"{name} has shape {tuple(shape)}, {entries:,} entries, too large for a dense array; {remedy}")


def no_negative(name: str, array: FloatArray, what: str) -> None:
    """Refuse negative entries, with the place of the first."""
    if (place := first_place(array < 0)) is not None:
        raise InputError(f"{name}{place} is {array[tuple(place)]:.6g}; {what} cannot be negative")


def instance(name: str, value: object, kind: type, hint: str = "") -> None:
    """Refuse an argument of another type, as when two arguments were swapped."""
    if not isinstance(value, kind):
        raise InputError(f"{name} is a {type(value).__name__}, expected a {kind.__name__}{hint}")


def positive(**settings: float | None) -> None:
    """Refuse settings that are not positive (None stands for a default)."""
    for name, value in settings.items():
        if value is not None and not real_number(name, value) > 0:
            raise InputError(f"{name} is {value}; it must be positive")


def check_shape(name: str, found: tuple[int, ...], expected: tuple[int | None, ...]) -> None:
    """Refuse an array whose shape is not the expected one (None: any length)."""
    fits = len(found) == len(expected) and all(e is None or e == f for f, e in zip(found, expected, strict=True))
    if not fits:
        wanted = ", ".join("any" if e is None else str(e) for e in expected)
        raise InputError(f"{name} has shape {found}, expected ({wanted})")


def real_number(name: str, value: object) -> float:
    """One finite number."""
    if (type(value) is float and math.isfinite(value)) or (type(value) is int and abs(value) <= 2**53):
        return float(value)
    return float(real_array(name, value, shape=()))


def share(name: str, value: object) -> float:
    """One number from 0 to 1."""
    found = real_number(name, value)
    if not 0.0 <= found <= 1.0:
        raise InputError(f"{name} is {found}; it must lie in [0, 1]")
    return found


def whole_number(name: str, value: Any) -> int:
    """One whole number that compiled code can hold; True is none."""
    given: Any = None if isinstance(value, bool) else value
    try:
        number = operator.index(given)
    except TypeError:
        raise InputError(f"{name} is {shown(value)}; it must be a whole number") from None
    if not -(2**63) <= number < 2**63:
        raise InputError(f"{name} is {shown(number)}; it must be below 2**63")
    return number


def sense_sign(sense: str) -> float:
    """+1 for "min", where a value is pushed down, and -1 for "max"."""
    return 1.0 if one_of("sense", sense, ("min", "max")) == "min" else -1.0


def one_of(name: str, value: object, choices: tuple[str, ...]) -> str:
    """One of these words."""
    if not isinstance(value, str) or value not in choices:
        words = " or ".join(f'"{word}"' for word in choices)
        raise InputError(f"{name} is {shown(value)}; pass {words}")
    return value


def flag(name: str, value: object) -> bool:
    """True or False."""
    if not isinstance(value, bool | np.bool_):
        raise InputError(f"{name} is {shown(value)}; pass True or False")
    return bool(value)


def seeded(name: str, seed: object, own: tuple[int, ...] = ()) -> np.random.Generator:
    """A generator from a seed, of a stream of its ``own``; or the generator itself."""
    if isinstance(seed, np.random.Generator):
        return seed
    if isinstance(seed, int | np.integer) and not isinstance(seed, bool) and seed >= 0:
        return np.random.default_rng(np.random.SeedSequence(int(seed), spawn_key=own))
    if seed is None or isinstance(seed, np.random.SeedSequence | np.random.BitGenerator):
        return np.random.default_rng(seed)
    raise InputError(f"{name} is {shown(seed)}; pass a seed, a whole number from 0 on, or a Generator")


def probability_rows(name: str, rows: FloatArray, normalise: bool = False) -> FloatArray:
    """Rows (last axis) that are probability vectors, divided by their sums; sums far from 1 only on request."""
    no_negative(name, rows, "probabilities")
    totals = rows.sum(axis=-1, keepdims=True)
    wrong = ~(totals > 0) if normalise else ~(np.abs(totals - 1.0) <= SUM_TOLERANCE)
    if (place := first_place(wrong[..., 0])) is not None:
        remedy = (
            "no entry is positive, so it cannot be normalised"
            if normalise
            else "pass normalise=True if the table was rounded"
        )
        raise InputError(f"{name}{place or ''} sums to {totals[..., 0][tuple(place)]:.9g}, not 1; {remedy}")
    return np.asarray(rows / _divisors(totals, rows.shape[-1]))


def _divisors(totals: FloatArray, width: int) -> FloatArray:
    """The sums by which rows are divided; 1 where a sum is 1 up to rounding, so that dividing again changes nothing."""
    return np.where(np.abs(totals - 1.0) <= width * 2.0**-52, 1.0, totals)


def kernel(name: str, value: object, S: int, A: int) -> Kernel:
    """An array [S,A,S], or a CSR array of shape (S*A, S), whose repeated entries are added up."""
    if is_sparse(value):
        return csr(name, value, (S * A, S), add=True)
    return real_array(name, value, (S, A, S))


def kernel_rows(name: str, kernel: Kernel, pair: IntArray, S: int, place: Callable[..., str]) -> Kernel:
    """The kernel with its rows `pair` divided by their sums; `place` puts a pair in words.

    Refused are negative entries, and sums of these rows that are not 1.
    """
    entries = kernel.data if is_sparse(kernel) else kernel.ravel()
    if (at := first(entries < 0)) is not None:
        if is_sparse(kernel):
            row, x = int(np.searchsorted(kernel.indptr, at, side="right")) - 1, int(kernel.indices[at])
        else:
            row, x = divmod(at, S)
        raise InputError(f"{name} at {place(row, x)} is {entries[at]:.6g}; probabilities cannot be negative")
    totals = row_totals(kernel, pair, S)
    off = np.abs(totals - 1.0)
    if (off <= S * 2.0**-52).all():  # as in `_divisors`
        return kernel
    if (at := first(off > SUM_TOLERANCE)) is not None:
        raise InputError(
            f"{name} at {place(int(pair[at]))} sums to {float(totals[at])!r}, not 1; "
            + (
                "a row without samples may be any distribution, with weight 0"
                if totals[at] == 0
                else "divide each row by its sum, in double precision, if the table was rounded"
            )
        )
    divisors = np.ones(kernel.size // S if not is_sparse(kernel) else kernel.shape[0])
    divisors[pair] = _divisors(totals, S)
    return divided(kernel, divisors, S)


def divided(kernel: Kernel, divisors: FloatArray, S: int) -> Kernel:
    """The kernel with each row divided by a number of its own."""
    if not is_sparse(kernel):
        return np.asarray((kernel.reshape(-1, S) / divisors[:, None]).reshape(kernel.shape))
    entries = kernel.data / np.repeat(divisors, np.diff(kernel.indptr))
    return sparse.csr_array((entries, kernel.indices, kernel.indptr), shape=kernel.shape)


def row_totals(kernel: Kernel, pair: IntArray | slice, S: int) -> FloatArray:
    """[K] the sum of each of these rows of a kernel."""
    if is_sparse(kernel):
        return np.asarray(kernel.sum(axis=1)).ravel()[pair]
    return np.asarray(kernel.reshape(-1, S)[pair].sum(axis=1))


def listed(name: str, value: Any, what: str) -> list[Any]:
    """What a list, or anything else that can be gone through, holds."""
    if not is_sparse(value):  # of which a broken one cannot be gone through safely
        with suppress(TypeError):
            return list(value)
    raise InputError(f"{name} is {shown(value)}; pass a list of {what}")


def names(name: str, value: Sequence[Hashable] | None, count: int) -> tuple[Hashable, ...] | None:
    """Optional names of states or actions: hashable, distinct, one each."""
    if value is None:
        return None
    labels = tuple(listed(name, value, f"{count} names"))
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


def is_sparse(value: object) -> TypeGuard[SparseArray]:
    """Whether the argument is a SciPy sparse matrix or array, in any format."""
    return type(value) is not np.ndarray and bool(sparse.issparse(value))


def csr(name: str, value: object, shape: tuple[int, int], add: bool = False) -> SparseArray:
    """A canonical float CSR array of the given shape; repeated entries are refused, unless they add up."""
    entries = sound_entries(name, value)
    if entries.shape != shape:
        raise InputError(f"{name} is sparse with shape {entries.shape}, expected {shape} (row s*A + a, column x)")
    if (at := first(~np.isfinite(entries.data))) is not None:
        place = f"row {entries.row[at]}, column {entries.col[at]}"
        raise InputError(f"{name} has {entries.data[at]} in {place}; every entry must be a finite number")
    array = sparse.csr_array(entries.astype(np.float64))  # canonical: sorted, and repeated entries added
    if array.nnz < entries.nnz and not add:
        keys = np.sort(entries.row.astype(np.int64) * shape[1] + entries.col)
        row, column = divmod(int(keys[1:][np.diff(keys) == 0][0]), shape[1])
        raise InputError(f"{name} has row {row}, column {column} twice; keep one of the entries")
    return array


def sound_entries(name: str, value: SparseArray) -> SparseArray:
    """The stored entries of a sparse array, as COO, once its parts fit: compiled code reads wherever they point."""
    parts = {
        "csr": ("indices", "indptr"),
        "csc": ("indices", "indptr"),
        "bsr": ("indices", "indptr"),
        "coo": ("coords",),
    }
    try:
        if value.format in parts:
            data = numbers(f"{name}.data", value.data)
            index = [numbers(f"{name}.{part}", getattr(value, part)) for part in parts[value.format]]
            if any(part.dtype.kind not in "iu" for part in index):
                raise ValueError("its indices are not whole numbers")
            where = tuple(index) if value.format != "coo" else (tuple(index[0]),)
            value = type(value)((data, *where), shape=value.shape)
        if hasattr(value, "check_format"):
            value.check_format(full_check=True)
        entries = sparse.coo_array(value)
        numbers(f"{name}.data", entries.data)
    except (TypeError, ValueError, IndexError, AttributeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(
            f"{name} is a damaged sparse array ({shown(error, str)}); build it again, for instance by coo_array"
        ) from None
    return entries


def freeze(value: Kernel) -> None:
    """Make an array, or the arrays behind a sparse one, read-only."""
    for array in (value.data, value.indices, value.indptr) if is_sparse(value) else (value,):
        if isinstance(array, np.ndarray):
            array.flags.writeable = False
