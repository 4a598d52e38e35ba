r"""From the keys and values of a task file, in whichever format, to a checked task.

The keys are the same in every format:

| key | what | |
|---|---|---|
| rewards | r[s,a], or r[s,a,x] | required |
| policy | pi[s,a] | required |
| initial | rho[s] | required |
| discount | gamma in [0, 1) | required |
| support | allowed successors [s,a,x], true or false; or "kernel" | optional |
| states, actions | names: strings, numbers, or lists of them (read as tuples) | optional |
| terminal | states in which an episode ends, by name or index | optional |
| kernel | p[s,a,x], to sample from | optional |
| assumptions | what the model rests on, as sentences that can follow "if": see `Task` | optional |
| threshold | R, the bar the value is compared with | optional |
| normalise | true: rescale the rows of policy, initial and kernel to sum to 1 (rounded tables) | optional |

Rewards, support and kernel may be sparse, a matrix of shape (S*A, S) with row s*A + a in compressed sparse rows: its
parts data, indices, indptr and shape. Or they are given by names; see `policytest.sources.tasks.by_name`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, Kernel
from policytest._base.errors import InputError
from policytest.mdp.task import Task
from policytest.sources.tasks import by_name
from policytest.sources.tasks.by_name import Axes, Axis, Offer
from policytest.sources.tasks.policy import Places, policy_table

REQUIRED = ("rewards", "policy", "initial", "discount")
OPTIONAL = ("support", "states", "actions", "terminal", "kernel", "threshold", "normalise", "assumptions")
NAMES = ("states", "actions")
LABELS = (*NAMES, "terminal")  # lists of names
LISTS = (*LABELS, "assumptions")
TABLES = ("rewards", "support", "kernel")
PARTS = ("data", "indices", "indptr", "shape")


@dataclass(frozen=True, eq=False)
class Model:
    """What a task file holds: a task, perhaps the kernel that plays the truth, perhaps a threshold."""

    task: Task
    kernel: Kernel | None = None
    threshold: float | None = None


def model(content: dict[str, Any], offer: Offer | None = None) -> Model:
    """Keys and values, from any format, as a checked model."""
    content = {key: value for key, value in content.items() if value is not None}
    check_keys(content)
    normalise = _flag(content.pop("normalise", False))
    content |= {name: names_of(name, content[name]) for name in LISTS if name in content}
    content = {key: _array(key, value) for key, value in content.items()}
    content = resolved(content, offer, normalise)
    kernel, threshold = content.pop("kernel", None), content.pop("threshold", None)
    try:
        if offer is not None:
            _check_available(content["policy"], offer, content)
        task = Task(**content, normalise=normalise)
        if kernel is not None:
            kernel = arrays.kernel("kernel", kernel, task.n_states, task.n_actions)
            kernel = consistent(task, _rescaled(kernel) if normalise else kernel)
        if threshold is not None:
            threshold = arrays.real_number("threshold", threshold)
    except OverflowError as error:
        raise InputError(f"a number is out of range ({error}); use numbers below 1e308") from None
    return Model(task, kernel, threshold)


def storable(task: Task, kernel: Kernel | None, threshold: float | None) -> dict[str, Any]:
    """A task as keys and values that any format can hold."""
    content = {name: getattr(task, name) for name in (*REQUIRED, "support")}
    content |= {name: storable_names(name, getattr(task, name)) for name in LABELS}
    content["assumptions"] = list(task.assumptions) or None
    content["kernel"] = None if kernel is None else consistent(task, kernel)
    content["threshold"] = None if threshold is None else arrays.real_number("threshold", threshold)
    return {key: value for key, value in content.items() if value is not None}


# ---------------------------------------------------------------- keys and values


def check_keys(content: Iterable[str], required: Iterable[str] = REQUIRED) -> None:
    """Refuse keys that are not known, and the absence of those that must be there."""
    known = REQUIRED + OPTIONAL
    content = list(content)
    for key in content:
        if key not in known:
            close = difflib.get_close_matches(str(key), known, n=1)
            remedy = f"did you mean {close[0]!r}?" if close else f"known are {', '.join(known)}"
            raise InputError(f"unknown key {key!r}; {remedy}")
    missing = [key for key in required if key not in content]
    if missing:
        raise InputError(
            f"the {'keys' if missing[1:] else 'key'} {', '.join(missing)} must be there; add what is missing"
        )


def _flag(value: Any) -> bool:
    value = value.item() if isinstance(value, np.ndarray | np.generic) and value.size == 1 else value
    if not isinstance(value, bool):
        raise InputError(f"normalise is {value!r}; it must be true or false")
    return value


def _array(key: str, value: Any) -> Any:
    """Lists of numbers as arrays; text among them is refused, where NumPy would read it as numbers."""
    if key in LISTS or isinstance(value, str | np.ndarray) or arrays.is_sparse(value) or by_name.by_names(value):
        if key in ("discount", "threshold") and isinstance(value, str):
            raise InputError(f"{key} is {value!r}, which is text; write a number without quotes")
        return value
    try:
        array = np.array(value)
    except OverflowError:  # refused where its place is known
        return value
    except ValueError:
        raise InputError(
            f"{key} is not an array of numbers (its rows have different lengths); make them alike"
        ) from None
    if array.dtype.kind in "USO" and any(isinstance(item, str) for item in np.ravel(array)[:10_000].tolist()):
        raise InputError(f"{key} is not an array of numbers (there is text in it); write numbers without quotes")
    return array if array.dtype.kind in "biuf" else value


def names_of(name: str, value: Any) -> Any:
    """A list of names from a file, lists among them as tuples."""
    if isinstance(value, tuple):
        return value
    if not isinstance(value, list):
        raise InputError(f"{name} is {value!r}; it must be a list of names")
    return by_name.as_name(value)


def storable_names(name: str, labels: Iterable[Hashable] | None) -> list[Any] | None:
    """Names as JSON can hold them."""

    def plain(label: Any, index: int) -> Any:
        if isinstance(label, tuple):
            return [plain(part, index) for part in label]
        label = label.item() if isinstance(label, np.generic) else label
        if label is None or isinstance(label, str | int) or (isinstance(label, float) and math.isfinite(label)):
            return label
        raise InputError(
            f"{name}[{index}] is {label!r}; a file holds names that are strings, numbers or tuples of them"
        )

    return None if labels is None else [plain(label, index) for index, label in enumerate(labels)]


def from_parts(content: dict[str, Any]) -> dict[str, Any]:
    """The content with sparse tables that are given as their parts put together."""
    states = content.get("states")
    is_state = set(map(str, states)) if isinstance(states, list) else set()
    return {
        key: csr(key, value)
        if key in TABLES and isinstance(value, dict) and any(part in value and part not in is_state for part in PARTS)
        else value
        for key, value in content.items()
    }


def csr(name: str, parts: dict[str, Any]) -> Any:
    """A sparse table from its four parts, refused unless they fit together."""
    if sorted(parts) != sorted(PARTS):
        raise InputError(f"{name} has the parts {', '.join(sorted(parts))}; a sparse table has {', '.join(PARTS)}")
    data = arrays.real_array(f"{name}.data", parts["data"], (None,))
    whole = {part: _whole_array(f"{name}.{part}", parts[part]) for part in PARTS[1:]}
    arrays.check_shape(f"{name}.shape", whole["shape"].shape, (2,))
    try:
        table = sparse.csr_array((data, whole["indices"], whole["indptr"]), shape=tuple(whole["shape"].tolist()))
        table.check_format(full_check=True)
    except ValueError as error:
        raise InputError(f"{name} is not a sparse table: {error}; write it again with save_model") from None
    return table


def _whole_array(name: str, value: Any) -> arrays.IntArray:
    array = arrays.real_array(name, value, (None,))
    if (array != np.floor(array)).any() or (np.abs(array) >= 2**53).any():
        raise InputError(f"{name} holds a number that is not whole, or too large; it must hold whole numbers")
    return array.astype(np.int64)


# ---------------------------------------------------------------- tables by names


def resolved(content: dict[str, Any], offer: Offer | None = None, normalise: bool = False) -> dict[str, Any]:
    """The content with every table that is given by names as an array."""
    start = content.get("initial")
    if isinstance(start, np.ndarray) and start.ndim == 0 and start.dtype.kind in "iu":  # one state, by its number
        content = {**content, "initial": {start.item(): 1.0}}
    by_names = [key for key in ("policy", "initial", *TABLES) if by_name.by_names(content.get(key))]
    if not by_names:
        return content
    axes = axes_of(content, by_names[0], offer)
    content = dict(content)
    if "kernel" in by_names:
        content["kernel"] = by_name.kernel(_ended(content["kernel"], axes), axes)
    if "support" in by_names:
        content["support"] = by_name.support(content["support"], axes, content.get("kernel"))
    if "rewards" in by_names:
        content["rewards"] = by_name.rewards(content["rewards"], axes)
    if "policy" in by_names:
        content["policy"] = policy(content["policy"], axes, offer, normalise)
    if "initial" in by_names:
        content["initial"] = by_name.initial(content["initial"], axes, {} if offer is None else offer.groups)
    return content


def _ended(kernel: Any, axes: Axes) -> Any:
    """A kernel by names, with a way to go for terminal states about which it says nothing."""
    states, actions = (range(axis.count) if axis.labels is None else axis.labels for axis in axes)
    ends = [states[s] for s in axes.states.ends]
    if not isinstance(kernel, dict):
        return kernel
    missing = [state for state in ends if state not in kernel and str(state) not in kernel]
    return {**kernel, **{state: {action: {state: 1.0} for action in actions} for state in missing}}


def policy(value: Any, axes: Axes, offer: Offer | None = None, normalise: bool = False) -> FloatArray:
    """[S,A] from what `policytest.sources.tasks.policy` understands; "uniform" is over the actions that are offered."""
    if isinstance(value, str) and value == "uniform" and offer is not None:
        return np.asarray(offer.available / offer.available.sum(axis=1, keepdims=True))
    states, actions = (None if axis.labels is None else tuple(axis.labels) for axis in axes)
    return policy_table(
        value, Places(axes.states.count, axes.actions.count, states, actions), normalise, axes.states.ends
    )


def axes_of(content: dict[str, Any], given: str, offer: Offer | None = None) -> Axes:
    """States and actions: their lists of names, or the sizes of what is given as an array."""
    sizes = list(offer.available.shape) if offer is not None else _sizes(content)
    axes = []
    for kind, key, size in (("state", "states", sizes[0]), ("action", "actions", sizes[1])):
        labels = content.get(key)
        count = size if labels is None else len(labels)
        if count is None:
            raise InputError(f"{given} is given by names, but {key} is missing; list the names there")
        if labels is not None:
            arrays.names(key, labels, count if size is None else size)
        axes.append(Axis(kind, count, labels, content.get("terminal") or () if kind == "state" else ()))
    by_name.check_size(*(axis.count for axis in axes))
    return Axes(*axes)


def _sizes(content: dict[str, Any]) -> list[int | None]:
    """S and A as far as arrays show them."""
    for key in ("policy", *TABLES):
        shape: tuple[int, ...] = getattr(content.get(key), "shape", ())
        if len(shape) == 3 or (len(shape) == 2 and not arrays.is_sparse(content[key])):
            return [int(shape[0]), int(shape[1])]
    return [None, None]


# ---------------------------------------------------------------- kernels


def consistent(task: Task, kernel: Any) -> Kernel:
    """A kernel whose rows are distributions on the task's support."""
    checked = task.check_kernel("kernel", kernel)
    task.rows_of("kernel", checked)
    return checked


def _rescaled(kernel: Kernel) -> Kernel:
    """The kernel with each row that has a positive sum divided by it."""
    if arrays.is_sparse(kernel):
        totals = np.asarray(kernel.sum(axis=1)).ravel()
        kernel.data /= np.repeat(np.where(totals > 0, totals, 1.0), np.diff(kernel.indptr))
        return kernel
    totals = kernel.sum(axis=-1, keepdims=True)
    return np.asarray(kernel / np.where(totals > 0, totals, 1.0))


def _check_available(policy: Any, offer: Offer, content: dict[str, Any]) -> None:
    """Refuse a policy that takes an action where the model does not offer it."""
    available: BoolArray = offer.available
    table = arrays.real_array("policy", policy, available.shape)
    wrong = (table > 0) & ~available
    if wrong.any():
        s, a = (int(i) for i in np.argwhere(wrong)[0])
        states = Axis("state", available.shape[0], content.get("states"))
        actions = Axis("action", available.shape[1], content.get("actions"))
        there = ", ".join(actions.label(int(k)) for k in np.flatnonzero(available[s])[:8])
        raise InputError(
            f"policy takes action {actions.label(a)} in state {states.label(s)} with probability {table[s, a]:.6g}, "
            f"but the model offers only {there} there"
        )
