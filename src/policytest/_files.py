"""Files that appear complete or not at all, and archives of arrays that are looked at before they are read."""

from __future__ import annotations

import contextlib
import io
import math
import os
import stat
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from policytest._checks import InputError

ARCHIVE_LIMIT = 4 * 2**30
"""The most bytes of arrays that an NPZ file may hold, unpacked."""
_HEADERS: dict[tuple[int, int], Any] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def write_arrays(path: str | os.PathLike[str], **arrays: Any) -> None:
    """Write arrays to a file of exactly this name, as NPZ."""
    content = io.BytesIO()
    save: Any = np.savez
    save(content, **arrays)
    write_file(path, content.getbuffer())


def write_file(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a file in one step: under another name first, then renamed. Pipes and devices are written directly."""
    target = Path(os.path.realpath(path))  # a link stays a link
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written (there is no folder {target.parent}; create it first)")
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            target.write_bytes(content)
            return
        draft = target.with_name(f".{target.name[:32]}.{os.getpid()}.part")
        try:
            with draft.open("wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(target)
        finally:
            with contextlib.suppress(OSError):
                draft.unlink()
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}); choose another file") from None


def not_too_large(archive: zipfile.ZipFile) -> None:
    """Refuse an archive that would take more than `ARCHIVE_LIMIT` unpacked, however small it is now."""
    total = sum(info.file_size for info in archive.infolist())
    if total > ARCHIVE_LIMIT:
        raise InputError(
            f"its arrays are {total / 2**30:,.1f} GiB, over {ARCHIVE_LIMIT / 2**30:,.1f} GiB; keep large tables sparse"
        )


def array_headers(file: Any) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    """Shape and type of every array in an NPZ file, from their headers alone: nothing is unpacked yet.

    What would be dangerous to read is refused: pickled objects, members that are no arrays, headers that promise more
    than the file holds, and arrays that together exceed `ARCHIVE_LIMIT`.
    """
    found: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    with zipfile.ZipFile(file) as archive:
        not_too_large(archive)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in found:
                raise InputError(f"{info.filename!r} is {'there twice' if name in found else 'no array'}; remove it")
            with archive.open(info) as member:
                found[name] = array_header(name, member, info.file_size)
    return found


def array_header(name: str, file: Any, size: int) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Shape and type of the array in an NPY file of this size, refused if that is not what follows."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise InputError(f"{name} is in version {version} of the NPY format; write it again")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject:
        raise InputError(f"{name} holds pickled objects; write it again, without pickled objects")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise InputError(f"{name} says it has shape {shape}, which is not what it holds; write it again")
    return shape, dtype
