"""Task files as NPZ, for size. Names are kept as JSON text, so that nothing is ever pickled.

The headers are read first: the keys, the shapes and the types must make sense before any array is unpacked.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from policytest._base import arrays as arrays_module
from policytest._base.arrays import Arrays
from policytest._base.errors import InputError
from policytest._base.files import ARCHIVE_LIMIT, FREE, npz_bytes, opened, read_arrays
from policytest.sources.tasks.by_name import Content
from policytest.sources.tasks.keys import LISTS, PARTS, REQUIRED, TABLES, check_keys, csr

Headers: TypeAlias = dict[str, tuple[tuple[int, ...], np.dtype[np.generic]]]
"""The shape and the type of each array in a file."""
TEXTS = (*LISTS, "bins")
"""Keys whose values are kept as JSON text."""

NAMES_LIMIT = 2**28
"""The most bytes that the names of the states may take."""


def read(path: Path, required: tuple[str, ...] = REQUIRED) -> Content:
    """The arrays of an NPZ file by their keys, once their headers make sense."""
    try:
        with opened(path, ARCHIVE_LIMIT + FREE) as file:
            if file.read(2) != b"PK":
                raise InputError("this is not an NPZ file (a ZIP of arrays); write it with save_model or numpy.savez")
        return _assembled(read_arrays(path, lambda headers: _check_headers(headers, required)))
    except (InputError, OSError):
        raise
    except Exception as error:  # whatever a damaged archive provokes: ValueError, BadZipFile, zlib.error, ...
        raise InputError(
            f"the arrays cannot be read ({error}); write the file again, without pickled objects"
        ) from None


def _check_headers(headers: Headers, required: tuple[str, ...]) -> None:
    """Keys that are known, and shapes that fit the policy's."""
    whole = [key.partition(".")[0] if key.partition(".")[0] in TABLES else key for key in headers]
    check_keys(dict.fromkeys(whole), required)
    for name in TEXTS:
        if name in headers and headers[name][1].itemsize * int(np.prod(headers[name][0])) > NAMES_LIMIT:
            raise InputError(f"{name} takes more than {NAMES_LIMIT // 2**20} MiB; give shorter names, or none")
    shape: tuple[int, ...] = headers["policy"][0] if "policy" in headers else ()
    if len(shape) == 2:
        S, A = shape
        for key in TABLES:
            if key in headers and len(headers[key][0]) == 3:
                arrays_module.check_shape(key, headers[key][0], (S, A, S))


def _assembled(arrays: Arrays) -> Content:
    """Arrays by their names in the file, as the content they stand for."""
    content: Content = {}
    parts: dict[str, Arrays] = {}
    for key, array in arrays.items():
        name, _, part = key.partition(".")
        if part and name in TABLES:
            parts.setdefault(name, {})[part] = array
        else:
            content[key] = _from_text(key, array) if key in TEXTS else array
    if twice := parts.keys() & content.keys():
        raise InputError(f"{min(twice)} is there twice, as a dense and as a sparse table; keep one")
    return content | {name: csr(name, found) for name, found in parts.items()}


def _from_text(name: str, array: npt.NDArray[np.generic]) -> object:
    """Names, or bins, from JSON text; for names a plain array of strings or numbers does as well."""
    if array.ndim:
        return array.tolist()
    try:
        names = json.loads(str(array))
    except (ValueError, RecursionError):
        names = None
    if name == "bins" and not isinstance(names, dict):
        raise InputError("bins is not a JSON object; write it with save_model")
    if name != "bins" and not isinstance(names, list):
        raise InputError(f"{name} is not a JSON list of names; write it with save_model, or as an array of strings")
    return names


def as_bytes(content: Content) -> memoryview:
    """Compressed arrays, by their keys."""
    arrays: Arrays = {}
    for key, value in content.items():
        if arrays_module.is_sparse(value):
            arrays |= {f"{key}.{part}": np.asarray(getattr(value, part)) for part in PARTS}
        else:
            arrays[key] = np.array(json.dumps(value)) if key in TEXTS else np.asarray(value)
    small = sum(array.nbytes for array in arrays.values()) <= FREE  # larger ones are read back only unpacked
    return npz_bytes(arrays, packed=small)
