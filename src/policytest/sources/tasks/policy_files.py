r"""Policy files: pi[s,a] as JSON, TOML, NPZ, NPY or CSV, with or without the names of states and actions.

| format | what it holds |
|---|---|
| ``.json``, ``.toml`` | the key policy: a table, ``{state: action}`` or ``{state: {action: probability}}`` |
| ``.npz`` | the array policy |
| ``.npy`` | the array |
| ``.csv`` | columns state, action and perhaps probability, under a heading; pairs left out have probability 0 |

In JSON the table, or the object by names, may also stand alone. The first three may have the keys states and actions
as well: they must then be those of the task, but may be in another order; so a whole task file serves as a policy.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError
from policytest._base.files import ARCHIVE_LIMIT, array_header, opened, read_file, write_file
from policytest.mdp.task import Task
from policytest.sources.tasks import json, npz, toml
from policytest.sources.tasks.by_name import Axes, Axis, Offer, as_name
from policytest.sources.tasks.keys import NAMES, policy, storable_names

_KEYS = ("policy", *NAMES, "normalise")
_COLUMNS = ("state", "action", "probability")
FORMATS = (".json", ".toml", ".npz", ".npy", ".csv")


def load_policy(path: Any, task: Any, *, normalise: bool = False) -> FloatArray:
    """The policy in a file as an array pi[s,a].

    ``task`` says which states and actions there are: a `Task`, or the pair (states, actions), each a list of names or
    a number. ``normalise`` rescales rows of rounded numbers. Anything wrong with the file is an `InputError` that names
    the file and the place.
    """
    return read_policy(Path(path), axes_of(task), normalise=normalise)


def save_policy(path: Any, policy: Any, task: Any = None) -> None:
    """Write a policy, an array pi[s,a], to a file that `load_policy` reads back exactly; names come from the task."""
    path = Path(path)
    table = arrays.probability_rows("policy", arrays.real_array("policy", policy, (None, None)))
    axes = axes_of(task) if task is not None else Axes(Axis("state", table.shape[0]), Axis("action", table.shape[1]))
    arrays.check_shape("policy", table.shape, (axes.states.count, axes.actions.count))
    content: dict[str, Any] = {"policy": table}
    for name, axis in zip(NAMES, axes, strict=True):
        if axis.labels is not None:
            content[name] = storable_names(name, axis.labels)
    writers: dict[str, Callable[[dict[str, Any]], bytes]] = {
        ".json": json.as_bytes,
        ".toml": toml.as_bytes,
        ".npz": npz.as_bytes,
        ".npy": lambda _: _npy(table),
        ".csv": lambda _: _csv(table, axes),
    }
    write_file(path, writers[_suffix(path)](content))


def _key_of(labels: Any, index: int) -> Any:
    return index if labels is None else labels[index]


def axes_of(task: Any) -> Axes:
    """The states and actions of a task, or of a pair of lists or numbers."""
    task = getattr(task, "task", task)
    if isinstance(task, Task):
        states = Axis("state", task.n_states, task.states, [_key_of(task.states, s) for s in task.ends])
        return Axes(states, Axis("action", task.n_actions, task.actions))
    if not isinstance(task, tuple) or len(task) != 2:
        raise InputError(f"task is a {type(task).__name__}; pass a Task, or the pair (states, actions)")
    axes = []
    for kind, value in zip(("state", "action"), task, strict=True):
        if isinstance(value, int):
            axes.append(Axis(kind, value))
        else:
            labels = arrays.names(f"{kind}s", value, len(value))
            axes.append(Axis(kind, len(value), labels))
    return Axes(*axes)


def read_policy(path: Path, axes: Axes, offer: Offer | None = None, normalise: bool = False) -> FloatArray:
    """The policy in a file, for a model whose states may offer some actions only."""
    suffix = _suffix(path)
    try:
        if suffix == ".csv":
            return policy(_read_csv(path, axes), axes, offer, normalise)
        return _from_content(_content(path, suffix), axes, offer, normalise)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror or error}); check the path") from None


def _suffix(path: Path) -> str:
    suffix = path.suffix.lower()
    if suffix not in FORMATS:
        raise InputError(f"{path}: not a policy file by its name; use {', '.join(FORMATS)}")
    return suffix


def _content(path: Path, suffix: str) -> Any:
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


def _from_content(content: Any, axes: Axes, offer: Offer | None, normalise: bool) -> FloatArray:
    own: dict[str, Any] = {}
    if isinstance(content, dict) and "policy" in content and not _is_state("policy", axes):
        own = {name: as_name(content[name]) for name in NAMES if content.get(name) is not None}
        normalise = normalise or content.get("normalise") is True
        content = content["policy"]
    if content is None:
        raise InputError("policy is empty; give a table or {state: action}")
    inner = Axes(*(_own_axis(name, own.get(name), axis) for name, axis in zip(NAMES, axes, strict=True)))
    table = policy(content, inner, offer, normalise)
    order = [_order(name, mine, axis) for name, mine, axis in zip(NAMES, inner, axes, strict=True)]
    return np.ascontiguousarray(table[np.ix_(*order)])


def _order(name: str, mine: Axis, axis: Axis) -> list[int]:
    """Where the file has each state, or action, of the task."""
    if axis.labels is None or mine is axis:
        return list(range(axis.count))
    return [mine.index(name, label) for label in axis.labels]


def _is_state(name: str, axes: Axes) -> bool:
    return axes.states.labels is not None and name in axes.states.labels


def _own_axis(name: str, labels: Any, axis: Axis) -> Axis:
    """The axis as the file orders it; the names must be those of the task."""
    if labels is None:
        return axis
    arrays.names(name, labels, axis.count)
    if axis.labels is not None:
        missing = [label for label in axis.labels if label not in set(labels)]
        if missing:
            raise InputError(f"{name} does not have {missing[0]!r}, which the task has; is it the policy of this task?")
    return Axis(axis.kind, axis.count, labels)


# ---------------------------------------------------------------- CSV


def _read_csv(path: Path, axes: Axes) -> dict[Any, dict[Any, float]]:
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InputError(f"byte {error.start} is not UTF-8 text; save the file as UTF-8") from None
    try:
        rows = list(csv.reader(io.StringIO(text, newline=""), strict=True))
    except csv.Error as error:
        raise InputError(f"this is not CSV ({error}); mend it there") from None
    heading = [cell.strip() for cell in rows[0]] if rows else []
    if tuple(heading) not in (_COLUMNS, _COLUMNS[:2]):
        raise InputError(
            f"the columns are {', '.join(heading) or 'missing'}; expected state, action and perhaps probability"
        )
    found: dict[Any, dict[Any, float]] = {}
    for at, row in enumerate(rows[1:], start=2):
        if not row:
            continue
        if len(row) != len(heading):
            raise InputError(f"row {at} has {len(row)} cells; expected {len(heading)}")
        s, a = axes.states.index(f"row {at}", row[0]), axes.actions.index(f"row {at}", row[1])
        chosen = found.setdefault(_key(axes.states, s), {})
        if _key(axes.actions, a) in chosen or (len(heading) == 2 and chosen):
            raise InputError(f"row {at}: {'state' if len(heading) == 2 else 'this pair'} {row[0]!r} is there twice")
        chosen[_key(axes.actions, a)] = 1.0 if len(heading) == 2 else _probability(f"row {at}", row[2])
    return found


def _key(axis: Axis, index: int) -> Any:
    return index if axis.labels is None else axis.labels[index]


def _probability(place: str, text: str) -> float:
    try:
        return arrays.real_number(f"{place}: probability", float(text))
    except InputError:
        raise
    except ValueError:
        raise InputError(f"{place}: {text[:40]!r} is not a number") from None


def _csv(table: FloatArray, axes: Axes) -> bytes:
    for axis in axes:
        texts = [_text(axis, index) for index in range(axis.count)]
        if len(set(texts)) < len(texts):
            raise InputError(f"several {axis.kind}s read alike as text; save the policy as .json or .npz")
    buffer = io.StringIO(newline="")
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(_COLUMNS)
    for s, a in np.argwhere(table > 0).tolist():
        writer.writerow([_text(axes.states, s), _text(axes.actions, a), repr(float(table[s, a]))])
    return buffer.getvalue().encode("utf-8")


def _text(axis: Axis, index: int) -> str:
    return str(_key(axis, index))


def _npy(table: FloatArray) -> bytes:
    buffer = io.BytesIO()
    np.save(buffer, table)
    return buffer.getvalue()
