"""A run kept on disk: one NPZ file without pickles, written atomically, refused when it is damaged or not this run's.

The file holds the counts, the standing witness, the state of the random generator and what was drawn ahead, so that
the run that goes on from it is the same run. A digest over everything guards against damage, and a fingerprint of the
task, the threshold and the method against going on with something else.
"""

from __future__ import annotations

import dataclasses
import hashlib
import os
from collections.abc import Callable

import numpy as np

from policytest._base.arrays import is_sparse
from policytest._base.errors import InputError
from policytest._base.files import read_arrays, write_arrays
from policytest._base.record import Record
from policytest.data.episodes import Episodes
from policytest.mdp.task import Task

FORMAT = "policytest-run-4"


def write(path: str | os.PathLike[str], snapshot: Record) -> None:
    """Write the snapshot; there is always one whole file."""
    write_arrays(path, **snapshot, format=np.array(FORMAT), digest=np.array(_digest(snapshot)))


def read(path: str | os.PathLike[str]) -> Record:
    """Read a snapshot; a file that is missing, damaged or of another kind is refused."""
    try:
        content = read_arrays(path)
    except FileNotFoundError:
        raise InputError(f"resume: there is no file {path}; pass checkpoint={str(path)!r} to start one") from None
    except OSError as error:
        raise InputError(f"resume: {path} cannot be read ({error.strerror or error}); choose another file") from None
    except Exception:  # whatever a damaged archive makes its reader do
        raise InputError(f"resume: {path} is damaged or not a checkpoint; start again without it") from None
    kind = str(content.pop("format", ""))
    if kind != FORMAT and kind.startswith(FORMAT.rstrip("0123456789")):
        remedy = "finish that run with the version that wrote it, or start again without it"
        raise InputError(f"resume: {path} is a checkpoint of another version of policytest ({kind}); {remedy}")
    if kind != FORMAT:
        raise InputError(f"resume: {path} is not a checkpoint of policytest; start again without it")
    stated = str(content.pop("digest", ""))
    if stated != _digest(content):
        raise InputError(f"resume: {path} is damaged (its digest does not match); start again without it")
    return content


def fingerprint(task: Task | Episodes, threshold: float, method: object) -> str:
    """A digest of what defines a run apart from its randomness; delta and limits may change on the way."""
    hasher = hashlib.sha256()
    if isinstance(task, Episodes):
        about = [*task.identity]
    else:
        about = [task.rewards, task.policy, task.initial, task.discount, task.support, task.horizon]
        about += [task.total_rewards, task.reached_at_start, task.assumptions]
    _feed(hasher.update, [*about, threshold, method])
    return hasher.hexdigest()


def _digest(snapshot: Record) -> str:
    hasher = hashlib.sha256()
    for name in sorted(snapshot):
        hasher.update(name.encode())
        _feed(hasher.update, np.asarray(snapshot[name]))
    return hasher.hexdigest()


def _feed(update: Callable[[bytes], object], value: object) -> None:
    """Hash numbers, arrays, sparse arrays, and settings objects made of them."""
    if is_sparse(value):
        _feed(update, [value.shape, value.indptr.astype(np.int64), value.indices.astype(np.int64), value.data])
    elif isinstance(value, np.ndarray):
        update(f"{value.dtype}{value.shape}".encode())
        update(np.ascontiguousarray(value).tobytes())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        update(type(value).__name__.encode())
        for part in dataclasses.fields(value):
            _feed(update, [part.name, getattr(value, part.name)])
    elif isinstance(value, int | float | np.number):
        update(f"{float(value) + 0.0!r};".encode())  # 5 is 5.0, and -0.0 is 0.0
    elif isinstance(value, list | tuple):
        update(f"{len(value)}[".encode())
        for item in value:
            _feed(update, item)
    elif hasattr(value, "__dict__") and not isinstance(value, type):
        _feed(update, [type(value).__name__, *sorted(vars(value).items())])
    else:
        update(f"{value!r};".encode())
