r"""Policy files: pi[s,a] as JSON, TOML, NPZ, NPY or CSV, with or without the names of states and actions.

| format | what it holds |
|---|---|
| ``.json``, ``.toml`` | the key policy: a table, ``{state: action}`` or ``{state: {action: probability}}`` |
| ``.npz`` | the array policy |
| ``.npy`` | the array |
| ``.csv`` | columns state, action and perhaps probability, under a heading; pairs left out have probability 0 |

In JSON the table, or the object by names, may also stand alone, and a scheduler that Storm exported is read too. The
first three may have the keys states and actions as well: they must then be those of the task, but may be in another
order; so a whole task file serves as a policy.
"""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Callable, Hashable
from pathlib import Path

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError, naming
from policytest._base.files import ARCHIVE_LIMIT, array_header, opened, read_text, write_file
from policytest.mdp.task import Task
from policytest.sources.labels import Lookup, Names, Places, as_name, places_in, places_of
from policytest.sources.tasks import json, npz, toml
from policytest.sources.tasks.by_name import Content, Offer
from policytest.sources.tasks.keys import NAMES, policy, storable_names
from policytest.sources.tasks.model_checkers import scheduler

_COLUMNS = ("state", "action", "probability")
FORMATS = (".json", ".toml", ".npz", ".npy", ".csv")


def load_policy(path: str | os.PathLike[str], task: object, *, normalise: bool = False) -> FloatArray:
    """The policy in a file as an array pi[s,a].

    ``task`` says which states and actions there are: a `Task`, or the pair (states, actions), each a list of names or
    a number. ``normalise`` rescales rows of rounded numbers. Anything wrong with the file is an `InputError` that names
    the file and the place.
    """
    return read_policy(Path(path), places_for(task), normalise=normalise)


def save_policy(path: str | os.PathLike[str], policy: object, task: object = None) -> None:
    """Write a policy, an array pi[s,a], to a file that `load_policy` reads back exactly; names come from the task."""
    path = Path(path)
    table = arrays.probability_rows("policy", arrays.real_array("policy", policy, (None, None)))
    at = places_for(task) if task is not None else places_of(*table.shape)
    arrays.check_shape("policy", table.shape, (at.n_states, at.n_actions))
    content: Content = {"policy": table}
    for name, axis in zip(NAMES, at[:2], strict=True):
        if axis.names is not None:
            content[name] = storable_names(name, axis.names)
    writers: dict[str, Callable[[Content], bytes | memoryview]] = {
        ".json": json.as_bytes,
        ".toml": toml.as_bytes,
        ".npz": npz.as_bytes,
        ".npy": lambda _: _npy(table),
        ".csv": lambda _: _csv(table, at),
    }
    write_file(path, writers[_suffix(path)](content))


def places_for(task: object) -> Places:
    """The states and actions of a task, or of a pair of lists or numbers."""
    task = getattr(task, "task", task)
    if isinstance(task, Task):
        return places_in(task)
    if not isinstance(task, tuple) or len(task) != 2:
        raise InputError(f"task is a {type(task).__name__}; pass a Task, or the pair (states, actions)")
    names = [None if isinstance(value, int) else value for value in task]
    S, A = (value if named is None else len(named) for value, named in zip(task, names, strict=True))
    return places_of(S, A, arrays.names("states", names[0], S), arrays.names("actions", names[1], A))


def read_policy(path: Path, at: Places, offer: Offer | None = None, normalise: bool = False) -> FloatArray:
    """The policy in a file, for a model whose states may offer some actions only."""
    suffix = _suffix(path)
    with naming(path):
        if suffix == ".csv":
            return policy(_read_csv(path, at), at, offer, normalise)
        return _from_content(_content(path, suffix), at, offer, normalise)


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path}: not a policy file by its name; use {', '.join(FORMATS)}")
    return suffix


def _content(path: Path, suffix: str) -> object:
    if suffix == ".json":
        return json.read(path)
    if suffix == ".toml":
        return toml.read(path)
    if suffix == ".npz":
        return npz.read(path, ("policy",))
    try:
        with opened(path, ARCHIVE_LIMIT) as file:
            array_header("policy", file, path.stat().st_size)
            file.seek(0)
            return np.load(file, allow_pickle=False)
    except InputError:
        raise
    except ValueError as error:
        raise InputError(f"the array cannot be read ({error}); write it with numpy.save, without objects") from None


def _from_content(content: object, at: Places, offer: Offer | None, normalise: bool) -> FloatArray:
    own: Content = {}
    if isinstance(content, dict) and "policy" in content and not at.states.has("policy"):
        own = {name: as_name(content[name]) for name in NAMES if content.get(name) is not None}
        normalise = normalise or content.get("normalise") is True
        content = content["policy"]
    if content is None:
        raise InputError("policy is empty; write a table or {state: action}")
    if scheduler.is_scheduler(content):
        return scheduler.table(content, at, offer, normalise)
    states, actions = (_own_lookup(name, own.get(name), axis) for name, axis in zip(NAMES, at[:2], strict=True))
    inner = at._replace(states=states, actions=actions)
    table = policy(content, inner, offer, normalise)
    order = [_order(name, getattr(inner, name), getattr(at, name)) for name in NAMES]
    return np.ascontiguousarray(table[np.ix_(*order)])


def _order(name: str, mine: Lookup, axis: Lookup) -> list[int]:
    """Where the file has each state, or action, of the task."""
    if axis.names is None or mine is axis:
        return list(range(axis.count))
    return [mine.find(name, label) for label in axis.names]


def _own_lookup(name: str, labels: Names, axis: Lookup) -> Lookup:
    """The axis as the file orders it; the names must be those of the task."""
    if labels is None:
        return axis
    arrays.names(name, labels, axis.count)
    if axis.names is not None:
        missing = [label for label in axis.names if label not in set(labels)]
        if missing:
            raise InputError(f"{name} does not have {missing[0]!r}, which the task has; is it the policy of this task?")
    return Lookup(axis.kind, labels, axis.count)


# ---------------------------------------------------------------- CSV


def _read_csv(path: Path, at: Places) -> dict[Hashable, dict[Hashable, float]]:
    try:
        rows = list(csv.reader(io.StringIO(read_text(path), newline=""), strict=True))
    except csv.Error as error:
        raise InputError(f"this is not CSV ({error}); fix it there") from None
    heading = [cell.strip() for cell in rows[0]] if rows else []
    if tuple(heading) not in (_COLUMNS, _COLUMNS[:2]):
        raise InputError(
            f"the columns are {', '.join(heading) or 'missing'}; expected state, action and perhaps probability"
        )
    found: dict[Hashable, dict[Hashable, float]] = {}
    for line, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(heading):
            raise InputError(f"row {line} has {len(row)} cells; expected {len(heading)}")
        s, a = at.states.find(f"row {line}", row[0]), at.actions.find(f"row {line}", row[1])
        chosen = found.setdefault(at.states.name(s), {})
        if at.actions.name(a) in chosen or (len(heading) == 2 and chosen):
            raise InputError(f"row {line}: {'state' if len(heading) == 2 else 'this pair'} {row[0]!r} is there twice")
        chosen[at.actions.name(a)] = 1.0 if len(heading) == 2 else _probability(f"row {line}", row[2])
    return found


def _probability(place: str, text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        raise InputError(f"{place}: {text[:40]!r} is not a number") from None
    return arrays.real_number(f"{place}: probability", number)


def _csv(table: FloatArray, at: Places) -> bytes:
    for axis in at[:2]:
        if len({str(axis.name(index)) for index in range(axis.count)}) < axis.count:
            raise InputError(f"several {axis.kind}s are written the same as text; save the policy as .json or .npz")
    names = [str(axis.name(index)) for axis in at[:2] for index in range(axis.count)]
    bare = any("\r" in name for name in names)  # which only a quoted entry may have
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n", quoting=csv.QUOTE_ALL if bare else csv.QUOTE_MINIMAL)
    writer.writerow(_COLUMNS)
    for s, a in np.argwhere(table > 0).tolist():
        writer.writerow([str(at.states.name(s)), str(at.actions.name(a)), repr(float(table[s, a]))])
    return buffer.getvalue().encode("utf-8")


def _npy(table: FloatArray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, table)
    return buffer.getvalue()
