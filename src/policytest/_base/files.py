"""Files: read only where they are regular and not too large, written complete or not at all; archives of arrays."""

from __future__ import annotations

import contextlib
import errno
import io
import math
import os
import secrets
import stat
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any, TypeAlias

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import Arrays
from policytest._base.errors import InputError

TEXT_LIMIT = 2**28
"""The most bytes of a text file that is parsed as a whole; parsed, it may take twenty times as much memory."""
ARCHIVE_LIMIT = 4 * 2**30
"""The most bytes of arrays that an NPZ file may hold, unpacked."""
FREE, RATIO = 2**28, 100
"""Above FREE bytes, the arrays may take at most RATIO times the size of their file: more is a bomb."""
MEMBERS = 1000
"""The most arrays of an NPZ file."""
Header: TypeAlias = tuple[tuple[int, ...], np.dtype[Any]]
Headers: TypeAlias = dict[str, Header]
"""Shape and type of each array of a file."""
_HEADERS: dict[tuple[int, int], Callable[..., tuple[tuple[int, ...], bool, np.dtype[Any]]]] = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


def opened(path: str | os.PathLike[str], limit: int = TEXT_LIMIT) -> IO[bytes]:
    """A file open for reading. What is not regular, or above the limit, is refused by an `OSError` that says so.

    A device or a pipe may have no end, and a sparse file takes no room on disk but all of its size in memory.
    """
    file = open(path, "rb", opener=lambda name, flags: os.open(name, flags | getattr(os, "O_NONBLOCK", 0)))  # noqa: SIM115
    found, why = os.fstat(file.fileno()), ""
    if not stat.S_ISREG(found.st_mode):
        why = "it is a device or a pipe, not a regular file"
    elif found.st_size > limit:
        why = f"it has {found.st_size:,} bytes, and at most {limit:,} are read"
    if why:
        file.close()
        raise OSError(errno.EINVAL, why, os.fspath(path))
    return file


def read_file(path: str | os.PathLike[str], limit: int = TEXT_LIMIT) -> bytes:
    """All of a regular file."""
    with opened(path, limit) as file:
        return file.read()


def read_text(path: str | os.PathLike[str], limit: int = TEXT_LIMIT) -> str:
    """All of a text file in UTF-8, without a byte order mark."""
    try:
        return read_file(path, limit).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8 text; save the file as UTF-8") from None


def npz_bytes(arrays: Mapping[str, npt.ArrayLike], packed: bool = False) -> memoryview:
    """Arrays as the content of an NPZ file."""
    content = io.BytesIO()
    save: Callable[..., None] = np.savez_compressed if packed else np.savez
    save(content, **arrays)
    return content.getbuffer()


def read_arrays(path: str | os.PathLike[str], check: Callable[[Headers], None] = lambda headers: None) -> Arrays:
    """The arrays of an NPZ file by their names, once `check` accepts their headers."""
    with opened(path, ARCHIVE_LIMIT + FREE) as file:
        check(array_headers(file))
        file.seek(0)
        with np.load(file, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}


def format_of(path: str | os.PathLike[str]) -> str | None:
    """What the array `format` of an NPZ file says; None where there is none."""
    try:
        with opened(path, ARCHIVE_LIMIT + FREE) as file:
            if array_headers(file)["format"][1].itemsize > FREE:
                return None
            file.seek(0)
            with np.load(file, allow_pickle=False) as archive:
                return str(archive["format"])
    except Exception:  # whatever another file makes its reader do
        return None


def write_arrays(path: str | os.PathLike[str], **arrays: npt.ArrayLike) -> None:
    """Write arrays to a file of exactly this name, as NPZ."""
    write_file(path, npz_bytes(arrays))


def write_file(path: str | os.PathLike[str], content: bytes | memoryview) -> None:
    """Write a file in one step: under another name first, then renamed. Pipes and devices are written directly."""
    target = Path(os.path.realpath(path))  # a link stays a link
    if not target.parent.is_dir():
        raise InputError(f"{path}: cannot be written (there is no folder {target.parent}; create it first)")
    try:
        if target.exists() and not stat.S_ISREG(target.stat().st_mode):
            target.write_bytes(content)
            return
        draft = target.with_name(f".{target.name[:32]}.{secrets.token_hex(8)}.part")
        file = open(draft, "xb")  # noqa: SIM115 (x: a file or a link of this name is never followed)
        try:
            with file:
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
    """Refuse an archive whose arrays would take more memory than its file accounts for."""
    total = sum(info.file_size for info in archive.infolist())
    size: int = archive.fp.seek(0, os.SEEK_END)  # type: ignore[union-attr]
    if len(archive.infolist()) > MEMBERS:
        raise InputError(f"it has {len(archive.infolist()):,} arrays, over {MEMBERS:,}; keep large tables as one array")
    if total > ARCHIVE_LIMIT:
        raise InputError(
            f"its arrays are {total / 2**30:,.1f} GiB, over {ARCHIVE_LIMIT / 2**30:,.1f} GiB; keep large tables sparse"
        )
    if total > max(FREE, RATIO * size):
        raise InputError(
            f"its {size:,} bytes would become arrays of {total / 2**20:,.0f} MiB; keep large tables sparse, or write "
            "them with numpy.savez, uncompressed"
        )


def array_headers(file: IO[bytes]) -> Headers:
    """Shape and type of every array in an NPZ file, from their headers alone: nothing is unpacked yet.

    What would be dangerous to read is refused: pickled objects, members that are not arrays, headers that promise more
    than the file holds, and arrays that together exceed `ARCHIVE_LIMIT`.
    """
    found: Headers = {}
    with zipfile.ZipFile(file) as archive:
        not_too_large(archive)
        for info in archive.infolist():
            name = info.filename.removesuffix(".npy")
            if name == info.filename or name in found:
                raise InputError(f"{info.filename!r} is {'there twice' if name in found else 'no array'}; remove it")
            if info.comment:  # which arrays never have; its length, damaged, hides the arrays after this one
                raise InputError(f"{info.filename!r} has a comment in the ZIP, which may hide arrays; write it again")
            with archive.open(info) as member:
                found[name] = array_header(name, member, info.file_size)
    return found


def array_header(name: str, file: IO[bytes], size: int) -> Header:
    """Shape and type of the array in an NPY file of this size, refused if that is not what follows."""
    version = np.lib.format.read_magic(file)
    if version not in _HEADERS:
        raise InputError(f"{name} is in version {version} of the NPY format; write it again")
    shape, _, dtype = _HEADERS[version](file)
    if dtype.hasobject or dtype.itemsize == 0:
        what = "pickled objects" if dtype.hasobject else "entries without content"
        raise InputError(f"{name} holds {what}; write it again, without {what}")
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != size - file.tell():
        raise InputError(f"{name} says it has shape {shape}, which is not what it holds; write it again")
    return shape, dtype
