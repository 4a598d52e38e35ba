"""Which files a path, a folder or a pattern names, of what kind they are, and how one is known when it comes again."""

from __future__ import annotations

import glob
import hashlib
import os
import stat
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias, TypeGuard

from policytest._base.errors import InputError, unreadable
from policytest._base.text import did_you_mean, plain

PathLike: TypeAlias = str | os.PathLike[str]
Paths: TypeAlias = PathLike | Collection[PathLike]
KINDS = {".csv": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet", ".jsonl": "json", ".ndjson": "json"}
_BLOCK, _BLOCKS = 2**16, 64  # of a file that its fingerprint covers: all of it up to 4 MiB


@dataclass(frozen=True)
class File:
    """Where counts came from: the name of a file, its size, and a fingerprint of its content.

    The fingerprint covers all of a file up to 4 MiB, and 64 blocks of a larger one, spread evenly.
    """

    name: str
    size: int
    fingerprint: str
    empty: bool = False


def is_path(data: object) -> TypeGuard[Paths]:
    """Whether this names files: a path, or a list of paths."""
    return all(isinstance(item, str | os.PathLike) for item in _each(data))


def _each(data: Any) -> list[Any]:
    return list(data) if isinstance(data, list | tuple | set | frozenset) else [data]


def find(data: Paths) -> list[Path]:
    """The files that paths, folders and patterns name, each once."""
    items = sorted(_each(data), key=os.fspath)
    if not items:
        raise InputError("data is an empty list; pass the path of a file")
    found: dict[str, Path] = {}
    for item in items:
        for path in _files_of(item):
            real = os.path.realpath(path)
            if real in found:
                raise InputError(f"data names the file {path} twice (also as {found[real]}); name each file once")
            found[real] = path
    paths = list(found.values())
    kinds = {kind_of(path) for path in paths}
    if len(kinds) > 1:
        one, other = (next(path for path in paths if kind_of(path) == kind) for kind in sorted(kinds)[:2])
        raise InputError(f"data has files of different kinds, {one} and {other}; pass one kind at a time, and add_to")
    return paths


def _files_of(item: PathLike) -> list[Path]:
    text = os.fspath(item)
    if not isinstance(text, str) or "\0" in text or not text:
        raise InputError(f"data is {text!r}; pass the path of a file")
    if "://" in text:
        raise InputError(
            f"data is {plain(text)!r}, not a local file; open it with DuckDB, Polars or Dask, pass the frame"
        )
    try:
        if os.path.isdir(text):
            paths = _in_folder(text)
            if not paths:
                raise InputError(f"data: the folder {plain(text)} has no files that end in {', '.join(KINDS)}")
            return paths
        if os.path.lexists(text):
            if not stat.S_ISREG(os.stat(text).st_mode):
                raise InputError(
                    f"{plain(text)} is not a regular file, and logs are read twice; copy it to one, or use watch"
                )
            return [Path(text)]
    except OSError as error:
        raise unreadable(plain(text), error) from None
    if glob.has_magic(text):
        paths = [Path(name) for name in sorted(glob.glob(text, recursive=True)) if os.path.isfile(name)]
        if paths:
            return paths
        raise InputError(f"data: no file matches {plain(text)!r}; check the pattern")
    folder = os.path.dirname(text) or "."
    names = os.listdir(folder) if os.path.isdir(folder) else []
    remedy = did_you_mean(os.path.basename(text), names) or "check the path"
    raise InputError(f"data: there is no file {plain(text)!r}; {remedy}")


def _in_folder(folder: str) -> list[Path]:
    """The files of known kinds below a folder; none whose name begins with a dot or _, and none behind links."""
    found = []
    for base, folders, names in os.walk(folder, followlinks=False):
        folders[:] = sorted(name for name in folders if name[0] not in "._")
        found += [Path(base, name) for name in sorted(names) if name[0] not in "._" and _suffix(name) in KINDS]
    return found


def _suffix(name: str) -> str:
    return os.path.splitext(name.lower().removesuffix(".gz"))[1]


def kind_of(path: Path) -> str:
    """ "csv", "parquet" or "json", by the name of a file."""
    kind = KINDS.get(_suffix(path.name))
    if kind is None or (kind == "parquet" and compressed(path)):
        raise InputError(
            f"{path}: the name does not tell what it is; it must end in {', '.join(KINDS)} (text also with .gz)"
        )
    return kind


def compressed(path: Path) -> bool:
    """Whether the name ends in .gz."""
    return path.name.lower().endswith(".gz")


def provenance(path: Path, empty: bool, first: int | None = None) -> File:
    """What is remembered of a file, or of its first ``first`` bytes."""
    size = path.stat().st_size if first is None else first
    mark = hashlib.blake2b(str(size).encode(), digest_size=16)
    with path.open("rb") as file:
        if size <= _BLOCK * _BLOCKS:
            mark.update(file.read(size))
        else:
            for block in range(_BLOCKS):
                file.seek((size - _BLOCK) * block // (_BLOCKS - 1))
                mark.update(file.read(_BLOCK))
    return File(str(path), size, mark.hexdigest(), empty)
