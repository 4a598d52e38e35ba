"""One rule for all files of a command, kept before its work begins rather than after it.

Files that are read and files that are written differ from each other, whatever links lead to them, and a file that is
there already is replaced only if policytest wrote it for the same purpose. (A checkpoint is not replaced but resumed:
its reader refuses whatever is none.)
"""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING

from policytest._base.errors import InputError

if TYPE_CHECKING:
    from policytest.cli.options import Question

STDOUT = 1
"""The file number of standard output."""


def check_files(read: Iterable[str | Path | None], written: Mapping[str, Path | None]) -> None:
    """Refuse files, by the options that name them, that could not be written or would replace something else."""
    outputs = {option: file for option, file in written.items() if file is not None}
    marks = {option: _marks(file) for option, file in outputs.items()}
    for (option, mine), (other, its) in combinations(marks.items(), 2):
        if mine & its:
            raise InputError(f"{option} and {other} both name {outputs[option]}; choose another name for one of them")
    inputs = {mark: file for file in read if file for mark in _marks(file)}
    for option, file in outputs.items():
        if found := marks[option] & inputs.keys():
            source = inputs[min(found, key=str)]
            raise InputError(f"{option} {file} is read by this command as {source}; choose another name")
        if marks[option] & _marks(STDOUT):
            raise InputError(f"{option} {file} is standard output as well; choose another name")
        try:
            _check_place(file)
            if not _is_ours(option, file):
                what = f"the file exists, and is not {KINDS[option][0]} that policytest wrote"
                raise InputError(f"{option} {file}: {what}; remove it, or choose another name")
        except InputError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a NUL in the name
            why = getattr(error, "strerror", None) or error
            raise InputError(f"{option} {file}: cannot be written ({why}); choose another file") from None


def files_of(question: Question, *models: str, log: Sequence[str] = ()) -> list[str | Path | None]:
    """All files that are read with models, or would be if they were there, and those that a log names."""
    from policytest.cli.inputs import BUILT_IN
    from policytest.sources.logged.paths import find
    from policytest.sources.tasks.files import companions

    named = [name for name in models if name not in BUILT_IN and not name.startswith(("gym:", "python:"))]
    return [question.policy, *(file for name in named for file in companions(Path(name))), *(find(log) if log else ())]


def _check_place(file: Path) -> None:
    if file.is_dir():
        raise InputError(f"{file} is a folder; pass the name of a file")
    if not file.absolute().parent.is_dir():
        raise InputError(f"{file}: there is no folder {file.parent}; create it, or choose another file")
    if not os.access(file if file.exists() else file.absolute().parent, os.W_OK):
        raise InputError(f"{file}: no permission to write it; choose another file")


def _marks(file: str | Path | int) -> set[str | tuple[int, int]]:
    """What tells a file from others: where it lies behind all links, and its number on its disk; none of a device."""
    marks: set[str | tuple[int, int]] = set()
    with contextlib.suppress(OSError, ValueError):
        marks |= set() if isinstance(file, int) else {os.path.realpath(file)}
        found = os.stat(file)
        marks = marks | {(found.st_dev, found.st_ino)} if stat.S_ISREG(found.st_mode) else set()
    return marks


def _is_ours(option: str, file: Path) -> bool:
    """Whether nothing is lost with the file that is there: nothing is in it, or it was written by this option."""
    if not file.is_file() or not file.stat().st_size or option not in KINDS:
        return True
    return KINDS[option][1](file)


def _is_page(file: Path) -> bool:
    from policytest._base.table import PAGE_MARKS

    with file.open("rb") as content:
        head = content.read(4096).decode("utf-8", "replace")
    return head.startswith("<!DOCTYPE html>") and any(mark in head for mark in PAGE_MARKS)


def _is_counts(file: Path) -> bool:
    from policytest._base.files import format_of
    from policytest.data.counts_file import FORMAT

    return format_of(file) == FORMAT


def _is_figure(file: Path) -> bool:
    from policytest._base.files import read_file
    from policytest.paper.figure import CREATOR

    return CREATOR.encode() in read_file(file)


KINDS: dict[str, tuple[str, Callable[[Path], bool]]] = {
    "--html": ("a report", _is_page),
    "--out": ("a report", _is_page),
    "--save": ("a file of counts", _is_counts),
    "--figure": ("a figure", _is_figure),
}
"""What an option writes, in words, and how that is recognised."""
