"""A folder that keeps what a study has finished, so that it goes on after any interruption.

| file | |
|---|---|
| ``study.json`` | which study it is: the fingerprint of the sweep, and what it is made of |
| ``cells.jsonl`` | one line for each finished run, appended and synced to disk; the only file that matters |
| ``table.csv``, ``table.parquet`` | the table, when the study is finished |
| ``seconds.csv`` | how long each run took, kept apart because it differs from time to time |
| ``summary.json`` | means, standard errors and failures |

A line that was being written when the process was killed has no end, and is dropped; its run is made again.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import os
from pathlib import Path
from typing import IO

from policytest._base.errors import InputError
from policytest._base.files import TEXT_LIMIT, opened, read_file, write_file
from policytest._base.table import Document, to_json
from policytest.study.cells import Cell, Sweep
from policytest.study.table import Study, csv_bytes

FORMAT = "policytest-study-1"
HEADER, JOURNAL = "study.json", "cells.jsonl"
JOURNAL_LIMIT = 4 * TEXT_LIMIT
BEGINNING = b'{"cell": ['
"""Of each record."""
RESULTS = ("table.csv", "table.parquet", "seconds.csv", "summary.json")
FILES = (HEADER, JOURNAL, *RESULTS)
Record = Document
"""A run, as `policytest.study.runner.run_cell` describes it."""


class Store:
    """The folder of one sweep, open for one process. ``records``: what is finished, failures left out."""

    def __init__(self, folder: str | os.PathLike[str], sweep: Sweep) -> None:
        self.folder, self.sweep = Path(folder), sweep
        self._prepare()
        self._journal = _opened(self.folder / JOURNAL)
        try:
            _lock(self._journal, self.folder)
            self.records = self._read()
        except BaseException:
            self._journal.close()
            raise

    def __enter__(self) -> Store:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):  # a full disk was told by `add`
            self._journal.close()

    def add(self, record: Record) -> None:
        """Append a record; when this returns it is on disk."""
        try:
            self._journal.write(json.dumps(record, allow_nan=False).encode() + b"\n")
            self._journal.flush()
            os.fsync(self._journal.fileno())
        except OSError as error:
            raise InputError(
                f"{self.folder / JOURNAL}: cannot be written ({error.strerror or error}); what was written before is "
                "kept, and the same command goes on from there"
            ) from None

    def begin(self) -> None:
        """Runs are about to be made: results of an earlier, smaller sweep are out of date."""
        for name in RESULTS:
            with contextlib.suppress(FileNotFoundError):
                (self.folder / name).unlink()

    def finish(self, study: Study) -> None:
        """Write the results."""
        study.save(self.folder / "table.csv")
        if importlib.util.find_spec("pyarrow") is not None:
            study.save(self.folder / "table.parquet")
        columns = ("instance", "method", "seed", "seconds")
        write_file(self.folder / "seconds.csv", csv_bytes(columns, study.seconds))
        write_file(self.folder / "summary.json", study.to_json().encode())

    # ------------------------------------------------------------ opening

    def _prepare(self) -> None:
        """A new folder with its header, or one whose header is this sweep's."""
        folder, mine = self.folder, describe(self.sweep)
        try:
            folder.mkdir(exist_ok=True)
        except FileNotFoundError:
            raise InputError(f"{folder}: there is no folder {folder.parent}; create it first") from None
        except FileExistsError:
            raise InputError(f"{folder} is a file; pass the name of a folder") from None
        except OSError as error:
            raise InputError(f"{folder}: cannot be created ({error.strerror}); choose another folder") from None
        for name in FILES:
            if (folder / name).is_symlink():
                raise InputError(f"{folder / name} is a link, and what it leads to would be changed; remove it")
        header = folder / HEADER
        if header.exists():
            _compare(folder, _parsed_header(header), mine)
            return
        if any(not entry.name.startswith(".") for entry in folder.iterdir()):
            raise InputError(f"{folder} is not empty and holds no study; choose a new folder")
        write_file(header, to_json(mine).encode())

    def _read(self) -> dict[Cell, Record]:
        """The finished runs of this sweep. A last line without an end is cut off."""
        path, journal = self.folder / JOURNAL, self._journal
        journal.seek(0)
        content = journal.read()
        whole = content.rfind(b"\n") + 1
        found: dict[Cell, Record] = {}
        for number, line in enumerate(content[:whole].splitlines(), start=1):
            try:
                record = json.loads(line)
                cell = Cell(*record["cell"])
                complete = "error" in record or all(
                    len(record[name]) == len(self.sweep.deltas) for name in ("samples", "answers", "certified")
                )
                if not complete:
                    raise ValueError("it lacks a delta")
            except (ValueError, KeyError, TypeError) as error:
                raise InputError(
                    f"{path}, line {number} is damaged ({error}); remove the line, and its run is made again"
                ) from None
            if cell in self.sweep.cells and "error" not in record:
                found[cell] = record
        rest = content[whole:]
        if not (rest.startswith(BEGINNING) or BEGINNING.startswith(rest)):
            raise InputError(f"{path} ends with something else than a record; remove it, or choose a new folder")
        journal.truncate(whole)  # only now: what is refused is left as it is
        journal.seek(0, os.SEEK_END)
        return found


def describe(sweep: Sweep) -> Document:
    """Which study it is, for the header."""
    return {
        "format": FORMAT,
        "fingerprint": sweep.fingerprint,
        "version": importlib.import_module("policytest").__version__,
        "title": sweep.title,
        "deltas": list(sweep.deltas),
        "instances": [problem.name for problem in sweep.problems],
        "methods": list(dict.fromkeys(trial.name for trial in sweep.trials)),
    }


def _parsed_header(path: Path) -> Document:
    try:
        header = json.loads(read_file(path))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read ({error}); choose a new folder") from None
    if not isinstance(header, dict) or header.get("format") != FORMAT:
        raise InputError(f"{path} was not written by a study of this version of policytest; choose a new folder")
    return header


def _compare(folder: Path, theirs: Document, mine: Document) -> None:
    """Refuse the folder of another study, saying what differs."""
    if theirs.get("fingerprint") == mine["fingerprint"]:
        return
    named = ("version", "deltas", "instances", "methods")
    differs = next((name for name in named if theirs.get(name) != mine[name]), None)
    what = (
        f"the {differs} {json.dumps(theirs.get(differs))}, not {json.dumps(mine[differs])}"
        if differs
        else "the same names, but other settings, thresholds, limits or kernels"
    )
    raise InputError(
        f"{folder} holds another study, {theirs.get('title')!r}, with {what}; "
        "choose a new folder, or go on with the study it was begun with (only seeds may be added)"
    )


def _opened(path: Path) -> IO[bytes]:
    try:
        if os.path.lexists(path):
            opened(path, JOURNAL_LIMIT).close()
        return path.open("a+b")
    except OSError as error:
        raise InputError(f"{path}: cannot be written ({error.strerror or error}); choose another folder") from None


def _lock(file: IO[bytes], folder: Path) -> None:
    """One process at a time; the system frees the lock when the process ends, however it ends."""
    try:
        import fcntl
    except ImportError:  # not on this system
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InputError(f"{folder} is in use by another process; wait for it, or choose another folder") from None
    except OSError:  # a file system without locks
        return
