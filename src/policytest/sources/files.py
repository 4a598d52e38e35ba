r"""Task files: a task, and optionally the kernel that plays the truth and a threshold, as JSON or NPZ.

Both formats have the same keys:

| key | what | |
|---|---|---|
| rewards | r[s,a], or r[s,a,x] | required |
| policy | pi[s,a] | required |
| initial | rho[s] | required |
| discount | gamma in [0, 1) | required |
| support | allowed successors [s,a,x], true or false | optional |
| states, actions | names: strings, numbers, or lists of them (read as tuples) | optional |
| kernel | p[s,a,x], to sample from | optional |
| threshold | R, the bar the value is compared with | optional |
| normalise | true: rescale the rows of policy, initial and kernel to sum to 1 (rounded tables) | optional |

JSON holds arrays as nested lists. Rewards, support and kernel may be sparse, a matrix of shape (S*A, S) with row
s*A + a in compressed sparse rows: in JSON an object with the keys data, indices, indptr and shape, in NPZ the four
arrays `kernel.data`, `kernel.indices`, `kernel.indptr` and `kernel.shape`. Names are kept in NPZ as JSON text, so
that nothing is ever pickled. A file that `save_model` wrote is read back exactly, and it is replaced in one step:
an interrupted write leaves the old file.
"""

from __future__ import annotations

import difflib
import io
import json
import math
import os
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from policytest import _checks
from policytest._checks import InputError, Kernel
from policytest._files import write_file
from policytest.task import Task

REQUIRED = ("rewards", "policy", "initial", "discount")
OPTIONAL = ("support", "states", "actions", "kernel", "threshold", "normalise")
_NAMES = ("states", "actions")
_SPARSE = ("rewards", "support", "kernel")
_PARTS = ("data", "indices", "indptr", "shape")

PathLike: TypeAlias = str | os.PathLike[str]


@dataclass(frozen=True, eq=False)
class Model:
    """What a task file holds: a task, perhaps the kernel that plays the truth, perhaps a threshold."""

    task: Task
    kernel: Kernel | None = None
    threshold: float | None = None


def load_model(path: PathLike) -> Model:
    """Read a task file, ``.json`` or ``.npz``. The module describes the format.

    Anything wrong with the file is an `InputError` that names the file, the place and the remedy.
    """
    path = Path(path)
    read = _format(path)[0]
    try:
        return _model(read(path))
    except InputError as error:
        message = str(error).replace("pass normalise=True", 'set "normalise" to true in the file')
        raise InputError(f"{path}: {message}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None


def save_model(path: PathLike, task: Task, kernel: Kernel | None = None, threshold: float | None = None) -> None:
    """Write a task file, ``.json`` or ``.npz``, that `load_model` reads back exactly.

    The file is replaced in one step, so that no reader ever finds half of it.
    """
    path = Path(path)
    write = _format(path)[1]
    _checks.instance("task", task, Task)
    content = {name: getattr(task, name) for name in (*REQUIRED, "support")}
    content |= {name: _storable_names(name, getattr(task, name)) for name in _NAMES}
    content["kernel"] = None if kernel is None else _consistent(task, kernel)
    content["threshold"] = None if threshold is None else _checks.real_number("threshold", threshold)
    write_file(path, write({key: value for key, value in content.items() if value is not None}))


def _format(path: Path) -> tuple[Callable[[Path], dict[str, Any]], Callable[[dict[str, Any]], bytes]]:
    """How to read and how to write a file with this name."""
    known = {".json": (_read_json, _json_bytes), ".npz": (_read_npz, _npz_bytes)}
    if path.suffix.lower() not in known:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        raise InputError(f"{path}: the name {found}, so the format is unknown; use {' or '.join(known)}")
    return known[path.suffix.lower()]


# ---------------------------------------------------------------- from content to model


def _model(content: dict[str, Any]) -> Model:
    """Keys and values, from either format, as a checked model."""
    content = {key: value for key, value in content.items() if value is not None}
    _check_keys(content)
    normalise = _flag(content.pop("normalise", False))
    kernel, threshold = content.pop("kernel", None), content.pop("threshold", None)
    content |= {name: _names(name, content[name]) for name in _NAMES if name in content}
    try:
        task = Task(**content, normalise=normalise)
        if kernel is not None:
            kernel = _checks.kernel("kernel", kernel, task.n_states, task.n_actions)
            kernel = _consistent(task, _rescaled(kernel) if normalise else kernel)
        if threshold is not None:
            threshold = _checks.real_number("threshold", threshold)
    except OverflowError as error:
        raise InputError(f"a number is out of range ({error}); use numbers below 1e308") from None
    return Model(task, kernel, threshold)


def _check_keys(content: dict[str, Any]) -> None:
    known = REQUIRED + OPTIONAL
    for key in content:
        if key not in known:
            close = difflib.get_close_matches(key, known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise InputError(f"unknown key {key!r}; {remedy}")
    missing = [key for key in REQUIRED if key not in content]
    if missing:
        raise InputError(
            f"the {'keys' if missing[1:] else 'key'} {', '.join(missing)} must be there; add what is missing"
        )


def _flag(value: Any) -> bool:
    value = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    if not isinstance(value, bool):
        raise InputError(f"normalise is {value!r}; it must be true or false")
    return value


def _consistent(task: Task, kernel: Any) -> Kernel:
    """A kernel whose rows are distributions on the task's support."""
    checked = task.check_kernel("kernel", kernel)
    task.rows_of("kernel", checked)
    return checked


def _rescaled(kernel: Kernel) -> Kernel:
    """The kernel with each row that has a positive sum divided by it."""
    if _checks.is_sparse(kernel):
        totals = np.asarray(kernel.sum(axis=1)).ravel()
        kernel.data /= np.repeat(np.where(totals > 0, totals, 1.0), np.diff(kernel.indptr))
        return kernel
    totals = kernel.sum(axis=-1, keepdims=True)
    return np.asarray(kernel / np.where(totals > 0, totals, 1.0))


def _names(name: str, value: Any) -> Any:
    if not isinstance(value, list):
        raise InputError(f"{name} is {value!r}; it must be a list of names")
    return _tuples(value)


def _tuples(value: Any) -> Any:
    """Lists of lists as a tuple of tuples: names must be hashable."""
    return tuple(_tuples(item) for item in value) if isinstance(value, list) else value


def _storable_names(name: str, labels: Iterable[Hashable] | None) -> list[Any] | None:
    """Names as JSON can hold them."""

    def storable(label: Any, index: int) -> Any:
        if isinstance(label, tuple):
            return [storable(part, index) for part in label]
        label = label.item() if isinstance(label, np.generic) else label
        if label is None or isinstance(label, str | int) or (isinstance(label, float) and math.isfinite(label)):
            return label
        raise InputError(
            f"{name}[{index}] is {label!r}; a file holds names that are strings, numbers or tuples of them"
        )

    return None if labels is None else [storable(label, index) for index, label in enumerate(labels)]


def _csr(name: str, parts: dict[str, Any]) -> Any:
    """A sparse table from its four parts, refused unless they fit together."""
    if sorted(parts) != sorted(_PARTS):
        raise InputError(f"{name} has the parts {', '.join(sorted(parts))}; a sparse table has {', '.join(_PARTS)}")
    data = _checks.real_array(f"{name}.data", parts["data"], (None,))
    whole = {part: _whole_array(f"{name}.{part}", parts[part]) for part in _PARTS[1:]}
    _checks.check_shape(f"{name}.shape", whole["shape"].shape, (2,))
    try:
        table = sparse.csr_array((data, whole["indices"], whole["indptr"]), shape=tuple(whole["shape"].tolist()))
        table.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{name} is not a sparse table: {error}; write it again with save_model") from None
    return table


def _whole_array(name: str, value: Any) -> _checks.IntArray:
    array = _checks.real_array(name, value, (None,))
    if (array != np.floor(array)).any() or (np.abs(array) >= 2**53).any():
        raise InputError(f"{name} holds a number that is not whole, or too large; it must hold whole numbers")
    return array.astype(np.int64)


# ---------------------------------------------------------------- JSON


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes().decode("utf-8-sig"), object_pairs_hook=_no_repeats)
    except json.JSONDecodeError as error:
        raise InputError(
            f"line {error.lineno}, column {error.colno}: {error.msg}; this is not JSON, mend it there"
        ) from None
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8 text; save the file as UTF-8") from None
    except RecursionError:
        raise InputError("its lists are nested too deeply; a table has at most three levels") from None
    except InputError:
        raise
    except ValueError as error:  # a number with thousands of digits
        raise InputError(f"a number cannot be read ({error}); mend it") from None
    if not isinstance(content, dict):
        raise InputError(
            f"it holds a {type(content).__name__}; a task file is an object with the keys {', '.join(REQUIRED)}"
        )
    for name in _SPARSE:
        if isinstance(content.get(name), dict):
            content[name] = _csr(name, content[name])
    return content


def _no_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content: dict[str, Any] = {}
    for key, value in pairs:
        if key in content:
            raise InputError(f"the key {key!r} is there twice; keep one")
        content[key] = value
    return content


def _json_bytes(content: dict[str, Any]) -> bytes:
    """One line for each key. Floats are written by repr, so that they are read back exactly."""
    lines = [f"  {json.dumps(key)}: {json.dumps(_listed_values(value))}" for key, value in content.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8")


def _listed_values(value: Any) -> Any:
    if _checks.is_sparse(value):
        return {part: np.asarray(getattr(value, part)).tolist() for part in _PARTS}
    return value.tolist() if isinstance(value, np.ndarray) else value


# ---------------------------------------------------------------- NPZ


def _read_npz(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        if file.read(2) != b"PK":
            raise InputError("this is not an NPZ file (a ZIP of arrays); write it with save_model or numpy.savez")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {key: archive[key] for key in archive.files}
        except Exception as error:  # whatever a damaged archive provokes: ValueError, BadZipFile, zlib.error, ...
            raise InputError(
                f"the arrays cannot be read ({error}); write the file again, without pickled objects"
            ) from None
    return _assembled(arrays)


def _assembled(arrays: dict[str, Any]) -> dict[str, Any]:
    """Arrays by their names in the file, as the content they stand for."""
    content: dict[str, Any] = {}
    for key, array in arrays.items():
        name, _, part = key.partition(".")
        if part and name in _SPARSE:
            content.setdefault(name, {})
            if not isinstance(content[name], dict):
                raise InputError(f"{name} is there twice, as a dense and as a sparse table; keep one")
            content[name][part] = array
        elif key in content:
            raise InputError(f"{key} is there twice, as a dense and as a sparse table; keep one")
        else:
            content[key] = _names_from_text(key, array) if key in _NAMES else array
    return {name: _csr(name, value) if isinstance(value, dict) else value for name, value in content.items()}


def _names_from_text(name: str, array: Any) -> Any:
    """Names from JSON text; a plain array of strings or numbers does as well."""
    if array.ndim:
        return array.tolist()
    try:
        names = json.loads(str(array))
    except ValueError:
        names = None
    if not isinstance(names, list):
        raise InputError(f"{name} is not a JSON list of names; write it with save_model, or as an array of strings")
    return names


def _npz_bytes(content: dict[str, Any]) -> bytes:
    arrays: dict[str, Any] = {}
    for key, value in content.items():
        if _checks.is_sparse(value):
            arrays |= {f"{key}.{part}": np.asarray(getattr(value, part)) for part in _PARTS}
        else:
            arrays[key] = np.array(json.dumps(value)) if key in _NAMES else np.asarray(value)
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **arrays)
    return buffer.getvalue()
