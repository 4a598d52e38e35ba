r"""Storm's direct encoding, ``.drn``: a model as plain text.

    @type: MDP
    @parameters

    @reward_models
    profit
    @nr_states
    3
    @nr_choices
    5
    @model
    state 0 [0] init
        action wait [0]
                0 : 0.5
                1 : 0.5
    ...

After the header, each state with its rewards (one for each reward model) and its labels, each of its choices with a
name (or number) and rewards, each transition as ``target : probability``. Types MDP and DTMC are read;
parameters, intervals, observations and rates are refused. The file carries no discount, policy or threshold; see
`policytest.sources.files`.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np

from policytest import _checks
from policytest._checks import InputError, Kernel
from policytest.sources.explicit import Listing, index, number, text_lines
from policytest.task import Task

NO_NAME = "__NOLABEL__"
_PLAIN = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)
_STATE = re.compile(r"(\S+)(?:\s+\[([^\]]*)\])?(.*)")
_LABEL = re.compile(r'"([^"]+)"|([^\s"]+)')
_SECTIONS = ("@parameters", "@placeholders", "@reward_models", "@nr_states", "@nr_choices", "@model")


def read(path: Path, reward_model: str | None = None) -> Listing:
    """The model in a DRN file; of several reward models the named one."""
    lines = text_lines(path)
    header, start = _header(lines)
    listing = Listing()
    wanted = _reward_place(header.get("@reward_models", []), reward_model)
    _body(lines, start, listing, wanted, header["@type"] == ["DTMC"])
    for name, found in (("@nr_states", listing.n_states), ("@nr_choices", len(listing.choice_name))):
        if name in header and index(name, " ".join(header[name]), "number") != found:
            raise InputError(f"{name} says {' '.join(header[name])}, but there are {found}; the file may be cut short")
    return listing


def _header(lines: list[str]) -> tuple[dict[str, list[str]], int]:
    """The words of each section, and the line after ``@model``."""
    header: dict[str, list[str]] = {}
    section = ""
    for at, line in enumerate(lines):
        words = line.split()
        if not words or words[0].startswith("//"):
            continue
        if words[0].startswith("@"):
            section = words[0].rstrip(":")
            if section in header:
                raise InputError(f"line {at + 1}: {section} is there twice; keep one")
            header[section] = words[1:]
            if section not in (*_SECTIONS, "@type", "@value_type"):
                raise InputError(f"line {at + 1}: {section} is not known; this is not a DRN file that can be read")
            if section == "@model":
                _check_header(header)
                return header, at + 1
        elif not section:
            raise InputError(f"line {at + 1}: expected @type: MDP, found {line[:40]!r}; this is not a DRN file")
        else:
            header[section] += words
    raise InputError("there is no @model; this is not a DRN file, or it is cut short")


def _check_header(header: dict[str, list[str]]) -> None:
    kind = " ".join(header.get("@type", []))
    if kind not in ("MDP", "DTMC"):
        raise InputError(f"@type is {kind or 'missing'}; only MDP and DTMC can be read")
    if header.get("@parameters"):
        raise InputError(
            f"it has the parameters {' '.join(header['@parameters'][:5])}; put numbers in their place first"
        )
    if header.get("@placeholders"):
        raise InputError("it has @placeholders; export it without them (--no-placeholders)")
    values = " ".join(header.get("@value_type", ["double"]))
    if values not in ("double", "rational"):
        raise InputError(f"@value_type is {values}; only double and rational can be read")


def _reward_place(names: list[str], wanted: str | None) -> int | None:
    """Which of the reward models; None if there is none."""
    if wanted is not None:
        if wanted not in names:
            raise InputError(f"rewards is {wanted!r}; the reward models of the file are {', '.join(names) or 'none'}")
        return names.index(wanted)
    if len(names) > 1:
        raise InputError(f"it has the reward models {', '.join(names)}; say which with rewards={names[0]!r}")
    return 0 if names else None


def _body(lines: list[str], start: int, listing: Listing, wanted: int | None, chain: bool) -> None:
    state, choice, offered = -1, None, 0
    listing.has_rewards = wanted is not None
    for at in range(start, len(lines)):
        line, place = lines[at].strip(), f"line {at + 1}"
        if not line or line.startswith("//"):
            continue
        if line.startswith("state "):
            state, choice, offered = state + 1, None, 0
            _state(line[6:], place, state, listing, wanted)
        elif line.startswith("action "):
            if state < 0:
                raise InputError(f"{place}: an action before the first state")
            name, rewards, rest = _parts(line[7:], place)
            if rest.strip():
                raise InputError(f"{place}: {rest.strip()[:40]!r} after the action; expected name and [rewards]")
            is_number = name.isascii() and name.isdigit()
            k = index(place, name, "choice") if is_number else offered
            label = None if is_number or chain or name == NO_NAME else name
            choice = listing.add_choice(state, k, label, _reward(rewards, wanted, place))
            offered += 1
        else:
            if choice is None:
                raise InputError(f"{place}: expected `state` or `action`, found {line[:40]!r}")
            target, colon, value = line.partition(":")
            if not colon:
                raise InputError(f"{place}: expected `target : probability`, found {line[:40]!r}")
            found = number(place, value.strip())
            listing.add_transition(choice, index(place, target.strip(), "state"), found, at + 1)
    listing.n_states = state + 1


def _state(text: str, place: str, expected: int, listing: Listing, wanted: int | None) -> None:
    name, rewards, rest = _parts(text, place)
    if index(place, name, "state") != expected:
        raise InputError(f"{place}: state {name} where state {expected} is due; states come in order, none left out")
    if rest.lstrip().startswith(("!", "{")):
        raise InputError(f"{place}: rates (!) and observations ({{}}) cannot be read")
    reward = _reward(rewards, wanted, place)
    if reward:
        listing.state_reward[expected] = reward
    for quoted, plain in _LABEL.findall(rest):
        listing.groups.setdefault(quoted or plain, []).append(expected)


def _parts(text: str, place: str) -> tuple[str, str | None, str]:
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{place}: {text[:40]!r} cannot be read")
    return match[1], match[2], match[3]


def _reward(text: str | None, wanted: int | None, place: str) -> float:
    if text is None or wanted is None:
        return 0.0
    parts = text.split(",")
    return number(place, parts[wanted].strip()) if wanted < len(parts) else 0.0


# ---------------------------------------------------------------- writing


def drn_bytes(task: Task, kernel: Kernel | None) -> bytes:
    """The transitions, the rewards and the initial state of a task; pairs without mass are left out."""
    if kernel is None:
        raise InputError("kernel is None; a .drn file is a list of transitions, so pass the kernel")
    if task.rewards_on_successor:
        raise InputError("rewards are on (s,a,x), and a .drn file has none on transitions; use .json, .toml or .npz")
    S, A = task.n_states, task.n_actions
    names = _choice_names(task)
    rows = _rows(kernel, S, A)
    lines, choices = [], 0
    initial = np.flatnonzero(task.initial > 0)
    for s in range(S):
        lines.append(f"state {s} [0]" + (" init" if len(initial) == 1 and initial[0] == s else ""))
        before = choices
        for a in range(A):
            targets, entries = rows(s * A + a)
            if len(targets):
                choices += 1
                lines.append(f"\taction {names[a]} [{float(task.rewards[s, a])!r}]")
                lines += [f"\t\t{x} : {float(p)!r}" for x, p in zip(targets.tolist(), entries.tolist(), strict=True)]
        if choices == before:
            raise InputError(f"kernel has no row with mass in state {s}; a .drn file needs a choice in every state")
    head = ["@type: MDP", "@parameters", "", "@reward_models", "reward", "@nr_states", str(S)]
    return "\n".join([*head, "@nr_choices", str(choices), "@model", *lines, ""]).encode("utf-8")


def _choice_names(task: Task) -> list[str]:
    """The names of the actions if a DRN file can hold them, their numbers otherwise."""
    if task.actions is not None and all(_can_hold(name) for name in task.actions):
        return [str(name) for name in task.actions]
    return [str(a) for a in range(task.n_actions)]


def _can_hold(name: Any) -> bool:
    return isinstance(name, str) and name != NO_NAME and _PLAIN.fullmatch(name) is not None


def _rows(kernel: Kernel, S: int, A: int) -> Any:
    """A function from a pair to its successors with mass, and their probabilities."""
    checked = _checks.kernel("kernel", kernel, S, A)

    def row(pair: int) -> tuple[Any, Any]:
        if _checks.is_sparse(checked):
            part = slice(int(checked.indptr[pair]), int(checked.indptr[pair + 1]))
            targets, entries = checked.indices[part], checked.data[part]
        else:
            targets, entries = np.arange(S), checked.reshape(-1, S)[pair]
        return targets[entries > 0], entries[entries > 0]

    return row
