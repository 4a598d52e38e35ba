r"""Task files: a task, and optionally the kernel that plays the truth and a threshold, in several formats.

| name | read | written | for |
|---|---|---|---|
| ``.json`` | yes | yes | programs and people |
| ``.toml`` | yes | yes | people: comments, tables by names |
| ``.npz`` | yes | yes | size |
| ``.drn`` | yes | yes | Storm |
| ``.tra`` | yes | no | PRISM, and Storm's dialect, with companions (``.sta``, ``.lab``, ``.srew``, ``.trew``) |
| ``.prism`` | yes | no | programs in PRISM's language (also ``.nm``, ``.pm``); Storm builds them |

The first three have the same keys; see `policytest.sources.tasks.keys`. The others list transitions and rewards but
carry no discount, policy or threshold: pass them, or write them into a *side file* ``model.task.toml`` or
``model.task.json`` beside ``model.drn``, with the same keys. What is passed counts before what a file says.

A file that `save_model` wrote is read back exactly, and it is replaced in one step: an interrupted write leaves the
old file. Nothing in a file is ever evaluated or unpickled.
"""

from __future__ import annotations

import os
from collections.abc import Hashable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, Kernel
from policytest._base.errors import InputError, naming, unreadable
from policytest._base.files import write_file
from policytest._base.rows import looping
from policytest.mdp.task import Task
from policytest.sources.environments.bins import Bins
from policytest.sources.tasks import by_name, json, keys, npz, policy_files, toml
from policytest.sources.tasks.by_name import Content, Offer
from policytest.sources.tasks.keys import Model
from policytest.sources.tasks.model_checkers import drn, prism, prism_program
from policytest.sources.tasks.model_checkers import listing as listing_module

__all__ = ["Model", "load_model", "save_model"]

PathLike: TypeAlias = str | os.PathLike[str]
TABULAR = (".json", ".toml", ".npz")
LISTED = (".drn", ".tra")
CHECKED = (*LISTED, *prism_program.ENDINGS)  # models of model checkers
FORMATS = (*TABULAR, *LISTED)
SIDES = (".task.toml", ".task.json")
CONSTANTS = "constants"
"""What only programs in PRISM's language have, in a side file or passed."""


def load_model(
    path: PathLike,
    *,
    discount: object = None,
    policy: object = None,
    initial: object = None,
    rewards: object = None,
    threshold: object = None,
    horizon: object = None,
    goal: object = None,
    avoid: object = None,
    terminal: object = None,
    known_support: bool = False,
    normalise: bool = False,
    constants: Mapping[str, object] | None = None,
) -> Model:
    """Read a task file; the module lists the formats.

    Parameters
    ----------
    path
        The file; its ending tells the format.
    discount, initial, threshold
        Instead of what the file says, or because it does not say. ``initial`` may be a state, ``{state: probability}``,
        "log" (the first states of a log tell: see `policytest.sources.start_from_log`), or for ``.drn`` and ``.tra`` a
        label, whose states then are equally likely; there the default is the one state labelled init.
    policy
        An array, ``{state: action}``, ``{state: {action: probability}}``, "uniform", or the path of a policy file.
    rewards
        For ``.drn`` and ``.tra``: which of several reward models, "" for the unnamed one. Or an array.
    horizon
        The number of steps of an episode, instead of what the file says.
    goal, avoid
        States to reach, and states that must not come before: the value is then the probability of that, within the
        horizon if there is one. Rewards, discount and threshold of the file belong to another question, and are not
        used. Lists of states; for models of model checkers also of labels, and of conditions such as ``d!=6 & !done``.
        A state in both counts as reached, as in PCTL's ``!avoid U goal``, and a warning says so.
    terminal
        States in which an episode ends, in the same way, for ``.drn`` and ``.tra``: with discount 1 and no horizon
        the value is the mean reward until then.
    known_support
        The kernel's zeros are known to the test: only successors to which the kernel gives mass are possible.
    normalise
        Rescale the rows of policy, initial and kernel to sum to 1.
    constants
        For programs in PRISM's language: the values of the constants that they leave undefined, such as
        ``{"N": 4, "p": "1/3"}``. They count before those in the side file.

    Anything wrong with the file is an `InputError` that names the file, the place and the remedy.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    suffix = suffix if suffix in prism_program.ENDINGS else _suffix(path, FORMATS, "read")
    given = {"discount": discount, "initial": initial, "threshold": threshold, "rewards": rewards, "policy": policy}
    given |= {"horizon": horizon, "goal": goal, "avoid": avoid, "terminal": terminal}
    given |= {"support": "kernel" if known_support else None, "normalise": normalise or None, CONSTANTS: constants}
    given = {key: value for key, value in given.items() if value is not None}
    try:
        if terminal is not None and suffix in TABULAR:
            raise InputError("terminal is passed for models of model checkers; write it into this file")
        _check_constants(constants, suffix)
        read = _tabular if suffix in TABULAR else _listed
        content, offer = read(path, suffix, given)
        return _completed(content, offer, suffix)
    except InputError as error:
        raise InputError(f"{path}: {_in_words_of_the_file(str(error), suffix, path)}") from None
    except OSError as error:
        raise unreadable(path, error) from None


def companions(path: Path) -> list[Path]:
    """The file and all that are read with it, where they are there."""
    suffix = path.suffix.lower()
    sides = [path.with_name(path.stem + ending) for ending in SIDES] if suffix in CHECKED else []
    return [path, *sides, *(prism.companions(path) if suffix == ".tra" else ())]


def save_model(
    path: PathLike,
    task: Task,
    kernel: Kernel | None = None,
    threshold: float | None = None,
    bins: Bins | None = None,
    budget: int | None = None,
) -> None:
    """Write a task file that `load_model` reads back exactly: ``.json``, ``.toml``, ``.npz``, or ``.drn``.

    Each file is replaced in one step, so that no reader ever finds half of it. A ``.drn`` file needs a kernel and
    rewards on (s,a); what it cannot hold goes into a side file, ``model.task.json`` beside ``model.drn``.
    """
    path = Path(path)
    suffix = _suffix(path, (*TABULAR, ".drn"), "written")
    arrays.instance("task", task, Task)
    content = keys.storable(Model(task, kernel, threshold, bins, budget=budget))
    if suffix == ".drn":
        body = drn.drn_bytes(task, kernel)
        kept = {key: value for key, value in content.items() if key not in ("kernel", "rewards", "available")}
        if path.with_name(path.stem + SIDES[0]).exists():
            raise InputError(f"{path}: there is a side file {path.stem}{SIDES[0]} already; remove it first")
        write_file(path.with_name(path.stem + SIDES[1]), json.as_bytes(kept))
        write_file(path, body)
        return
    write_file(path, {".json": json, ".toml": toml, ".npz": npz}[suffix].as_bytes(content))


def _suffix(path: Path, known: tuple[str, ...], verb: str) -> str:
    suffix = path.suffix.lower()
    if suffix not in known:
        found = f"ends in {path.suffix!r}" if path.suffix else "has no suffix"
        can = f"which cannot be {verb}" if suffix in FORMATS else "so the format is unknown"
        raise InputError(f"{path}: the name {found}, {can}; use {', '.join(known[:-1])} or {known[-1]}")
    return suffix


def _in_words_of_the_file(message: str, suffix: str, path: Path) -> str:
    side = f"{path.stem}{SIDES[0]}" if suffix in CHECKED else "the file"
    remedy = f'set "normalise" to true in {side}'
    for words in ("pass normalise=True", "divide each row by its sum, in double precision,"):
        message = message.replace(words, remedy)
    return message


# ---------------------------------------------------------------- tables under keys


def _tabular(path: Path, suffix: str, given: Content) -> tuple[Content, Offer | None]:
    """The content of a file that holds a whole task, with what was passed in its place."""
    if suffix == ".npz":
        content = npz.read(path, ())
    else:
        content = _object(json.read(path) if suffix == ".json" else toml.read(path))
    keys.check_keys(content, [key for key in keys.required_keys({*content, *given}) if key not in given])
    return keys.overridden(content, _passed(given, content, None)), None


def _object(content: object) -> Content:
    if not isinstance(content, dict):
        raise InputError(
            f"it holds a {type(content).__name__}; a task file is an object with the keys {', '.join(keys.REQUIRED)}"
        )
    return keys.from_parts({key: value for key, value in content.items() if value is not None})


def _passed(given: Content, content: Content, offer: Offer | None) -> Content:
    """What was passed, as content: a policy in whichever form as an array."""
    passed = dict(given)
    policy = passed.get("policy")
    uniform = by_name.is_word(policy, "uniform")
    if policy is None or (uniform and offer is not None):
        return passed
    at = keys.places_named(_shown_sizes(content), "policy", offer)
    normalise = given.get("normalise", content.get("normalise")) is True
    if isinstance(policy, str | os.PathLike) and not uniform:
        passed["policy"] = policy_files.read_policy(Path(policy), at, offer, normalise)
    else:
        passed["policy"] = keys.policy(policy, at, offer, normalise)
    return passed


def _shown_sizes(content: Content) -> Content:
    """The content with lists as arrays where they show how many states and actions there are."""
    shown = dict(content)
    for key in ("policy", "rewards", "kernel", "support"):
        match shown.get(key):
            case [list(), *_] as table:
                try:
                    shown[key] = np.array(table)
                except ValueError:  # ragged: refused where it is read
                    del shown[key]
    return shown


# ---------------------------------------------------------------- lists of transitions


def _listed(path: Path, suffix: str, given: Content) -> tuple[Content, Offer]:
    """The content of a model checker's file, of its side file, and what was passed."""
    side = _side(path)
    constants = {**_check_constants(side.pop(CONSTANTS, None), suffix), **given.pop(CONSTANTS, {})}
    asked = keys.overridden(side, given)
    keys.check_question(asked)
    which = asked.pop("rewards") if isinstance(asked.get("rewards"), str) else None
    rewarded = asked.keys().isdisjoint({"goal", *keys.OBSERVED})
    if suffix in LISTED:
        listing = {".drn": drn, ".tra": prism}[suffix].read(path, which, rewarded)
    else:
        listing = prism_program.read(path, which, rewarded, constants)
    normalise = asked.get("normalise", False) is True
    tables, offer = listing_module.content(listing, asked.get("actions"), _width(side.get("policy")), normalise)
    named = tables | {name: asked[name] for name in keys.NAMES if name in asked}
    ends = _ends(asked, named, offer)
    over = {s for states in ends.values() for s in states}
    tables["kernel"] = looping(tables["kernel"], over)  # what follows the end is not asked
    if "rewards" in tables:
        tables["rewards"] = looping(tables["rewards"], over, 0.0)
    content = tables | asked | {key: _named(states, named) for key, states in ends.items()}
    content |= _passed({key: given[key] for key in ("policy", "normalise") if key in given}, content, offer)
    if "initial" not in content:
        content["initial"] = _one_state(offer)
    if "policy" not in content and (offer.available.sum(axis=1) == 1).all():
        content["policy"] = "uniform"  # there is nothing to choose
    return content, offer


def _check_constants(constants: object, suffix: str) -> Mapping[str, object]:
    """Constants as a table; refused where there is no program."""
    if not constants:
        return {}
    if suffix not in prism_program.ENDINGS:
        raise InputError(
            f"constants are for programs in PRISM's language ({', '.join(prism_program.ENDINGS)}); leave them out here"
        )
    if not isinstance(constants, Mapping):
        raise InputError(f"constants is {arrays.shown(constants)}; it is a table of values such as {{N = 4}}")
    return constants


def _ends(asked: Content, named: Content, offer: Offer) -> dict[str, list[int]]:
    """The states that lists of names, numbers and labels stand for."""
    at = keys.places_named(named, "terminal", offer)
    return {
        key: [s for name in keys.names_of(key, asked[key]) for s in offer.states(key, name, at)]
        for key in keys.ENDS
        if asked.get(key) is not None
    }


def _named(states: list[int], content: Content) -> tuple[Hashable, ...]:
    names = content.get("states")
    return tuple(s if names is None else names[s] for s in states)


def _width(table: object) -> int:
    """How many entries the rows of a list of lists have; 0 of anything else."""
    match table:
        case [list() as row, *_]:
            return len(row)
    return 0


def _one_state(offer: Offer) -> FloatArray:
    states = offer.groups.get("init", [])
    if len(states) != 1:
        raise InputError(
            f"{len(states) or 'no'} states are labelled init; pass initial"
            + ('="init" to begin in each of them with equal probability' if states else ", the state to begin in")
        )
    rho = np.zeros(offer.available.shape[0])
    rho[states[0]] = 1.0
    return rho


def _side(path: Path) -> Content:
    """The content of the side file; empty where there is none."""
    beside = [path.with_name(path.stem + ending) for ending in SIDES]
    found = [file for file in beside if os.path.lexists(file)]
    if len(found) > 1:
        raise InputError(f"there are two side files, {found[0].name} and {found[1].name}; keep one")
    if not found:
        return {}
    with naming(found[0].name):
        content = _object(toml.read(found[0]) if found[0].suffix == ".toml" else json.read(found[0]))
        keys.check_keys([key for key in content if key != CONSTANTS], ())
        content |= {name: keys.names_of(name, content[name]) for name in keys.NAMES if name in content}
        if "kernel" in content:
            raise InputError("a side file has no kernel, the transitions are in the model; remove the kernel")
    return content


def _completed(content: Content, offer: Offer | None, suffix: str) -> Model:
    missing = [key for key in keys.required_keys(content) if key not in content]
    if missing and offer is not None:
        option = "" if missing[0] == "rewards" else f"pass {missing[0]}=... (--{missing[0]} on the command line), or "
        raise InputError(
            f"missing: {', '.join(missing)}, which this {suffix} file does not hold; "
            f"{option}write a side file that ends in {SIDES[0]}"
        )
    return keys.model(content, offer)
