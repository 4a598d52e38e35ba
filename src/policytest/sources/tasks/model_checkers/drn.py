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
name (or number) and rewards, each transition as ``target : probability``. Storm writes one blank after the name of
each reward model, and the name of an unnamed one is empty. So names are split at single blanks, and ``rewards=""``
selects the unnamed model. Types MDP and DTMC are read; parameters, intervals, observations and rates are refused. A
remark ``//[x=2 & !done]`` after the line of a state has the values of its variables. The file carries no discount,
policy or threshold; see `policytest.sources.tasks.files`.
"""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import Kernel
from policytest._base.errors import InputError
from policytest._base.rows import flat
from policytest._base.text import plural
from policytest.mdp.task import Task
from policytest.sources.tasks.model_checkers.listing import Listing, index, number, text_lines

NO_NAME = "__NOLABEL__"
_PLAIN = re.compile(r"[A-Za-z_][\w.\-]*", re.ASCII)
_STATE = re.compile(r"(\S+)(?:\s+\[([^\]]*)\])?(.*)")
_VALUES = re.compile(r"//\s*\[(.+)\]")
_LABEL = re.compile(r'"([^"]+)"|([^\s"]+)')
_SECTIONS = ("@parameters", "@placeholders", "@reward_models", "@nr_states", "@nr_choices", "@model")


def read(path: Path, reward_model: str | None = None, rewarded: bool = True) -> Listing:
    """The model in a DRN file; of several reward models the named one, of none if rewards are not asked for."""
    lines = text_lines(path)
    header, start = _header(lines)
    rewards = _Rewards(header.get("@reward_models", []) or _one_unnamed(lines[start:]), reward_model, rewarded)
    listing = Listing(has_rewards=rewards.wanted is not None)
    _body(lines, start, listing, rewards, header["@type"] == ["DTMC"])
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
        if section == "@reward_models" and not (words and words[0].startswith(("@", "//"))):
            header[section] += line.removesuffix(" ").split(" ") if line else []
            continue
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


class _Rewards:
    """The reward models of a file, and the place of the wanted one among them; None if there are none."""

    def __init__(self, names: list[str], wanted: str | None, rewarded: bool) -> None:
        self.names, self.listed = names, ", ".join(repr(name) for name in names) or "none"
        if len(set(names)) < len(names):
            raise InputError(f"@reward_models has a name twice: {self.listed}; write one blank between two names")
        if rewarded and wanted is None and len(names) > 1:
            raise InputError(
                f"it has the reward models {self.listed}; say which with rewards={next(filter(None, names))!r}"
            )
        if wanted is not None and wanted not in names:
            raise InputError(f"rewards is {wanted!r}; the reward models of the file are {self.listed}")
        self.wanted = names.index(wanted) if wanted is not None else 0 if names and rewarded else None

    def reward(self, text: str | None, place: str) -> float:
        """The wanted one of the numbers in brackets, of which there is one for each reward model."""
        parts = text.split(",") if text and text.strip() else []
        if parts and len(parts) != len(self.names):
            raise InputError(
                f"{place}: {plural(len(parts), 'reward')}, but @reward_models has {self.listed}; Storm writes one "
                "blank after each name, also after the empty name of an unnamed model: export the model again"
            )
        return number(place, parts[self.wanted].strip()) if parts and self.wanted is not None else 0.0


def _one_unnamed(body: list[str]) -> list[str]:
    """The one unnamed reward model of a file in which an editor removed the blank, told by the first state."""
    first = next((line for line in body if line.startswith("state ")), "")
    return [""] if re.search(r"\[[^\],]+\]", first) else []


def _body(lines: list[str], start: int, listing: Listing, rewards: _Rewards, chain: bool) -> None:
    state, choice, offered, values = -1, None, 0, dict[int, list[str]]()
    for at in range(start, len(lines)):
        line, place = lines[at].strip(), f"line {at + 1}"
        if not line or line.startswith("//"):
            if state >= 0 and choice is None and (found := _VALUES.fullmatch(line)):
                values[state] = [part.strip() for part in found[1].split("&")]
            continue
        if line.startswith("state "):
            state, choice, offered = state + 1, None, 0
            _state(line[6:], place, state, listing, rewards)
        elif line.startswith("action "):
            if state < 0:
                raise InputError(f"{place}: an action before the first state")
            name, numbers, rest = _parts(line[7:], place)
            if rest.strip():
                raise InputError(f"{place}: {rest.strip()[:40]!r} after the action; expected name and [rewards]")
            is_number = name.isascii() and name.isdigit()
            k = index(place, name, "choice") if is_number else offered
            label = None if is_number or chain or name == NO_NAME else name
            choice = listing.add_choice(state, k, label, rewards.reward(numbers, place))
            offered += 1
        else:
            if choice is None:
                raise InputError(f"{place}: expected `state` or `action`, found {line[:40]!r}")
            target, colon, value = line.partition(":")
            if not colon:
                raise InputError(f"{place}: expected `target : probability`, found {line[:40]!r}")
            probability = number(place, value.strip())
            listing.add_transition(choice, index(place, target.strip(), "state"), probability, at + 1)
    listing.number_states(state + 1, values)


def _state(text: str, place: str, expected: int, listing: Listing, rewards: _Rewards) -> None:
    name, numbers, rest = _parts(text, place)
    if index(place, name, "state") != expected:
        raise InputError(f"{place}: state {name} where state {expected} is due; states come in order, none left out")
    if rest.lstrip().startswith(("!", "{")):
        raise InputError(f"{place}: rates (!) and observations ({{}}) cannot be read")
    reward = rewards.reward(numbers, place)
    if reward:
        listing.state_reward[expected] = reward
    for quoted, plain in _LABEL.findall(rest):
        listing.groups.setdefault(quoted or plain, []).append(expected)


def _parts(text: str, place: str) -> tuple[str, str | None, str]:
    match = _STATE.fullmatch(text.strip())
    if match is None:
        raise InputError(f"{place}: {text[:40]!r} cannot be read")
    return match[1], match[2], match[3]


# ---------------------------------------------------------------- writing


def drn_bytes(task: Task, kernel: Kernel | None) -> bytes:
    """The transitions, the rewards and the initial state of a task, of pairs that are available and have mass."""
    if kernel is None:
        raise InputError("kernel is None; a .drn file is a list of transitions, so pass the kernel")
    if task.rewards_on_successor:
        raise InputError("rewards are on (s,a,x), and a .drn file has none on transitions; use .json, .toml or .npz")
    S, A = task.n_states, task.n_actions
    names = _choice_names(task)
    listed = flat(arrays.kernel("kernel", kernel, S, A), S)
    there = np.ones((S, A), dtype=bool) if task.available is None else task.available
    rewards = np.zeros((S, A)) if task.observes_rewards else task.rewards
    lines, choices = [], 0
    initial = np.flatnonzero(task.initial > 0)
    for s in range(S):
        lines.append(f"state {s} [0]" + (" init" if len(initial) == 1 and initial[0] == s else ""))
        before = choices
        for a in np.flatnonzero(there[s]).tolist():
            entries = slice(listed.indptr[s * A + a], listed.indptr[s * A + a + 1])
            row = [(x, p) for x, p in zip(listed.indices[entries], listed.data[entries], strict=True) if p > 0]
            if row:
                choices += 1
                lines.append(f"\taction {names[a]} [{float(rewards[s, a])!r}]")
                lines += [f"\t\t{x} : {float(p)!r}" for x, p in row]
        if choices == before:
            raise InputError(f"kernel has no row with mass in state {s}; a .drn file needs a choice in every state")
    head = ["@type: MDP", "@parameters", "", "@reward_models", "reward", "@nr_states", str(S)]
    return "\n".join([*head, "@nr_choices", str(choices), "@model", *lines, ""]).encode("utf-8")


def _choice_names(task: Task) -> list[str]:
    """The names of the actions if a DRN file can hold them, their numbers otherwise."""
    given = task.actions or ()
    names = [name for name in given if isinstance(name, str) and name != NO_NAME and _PLAIN.fullmatch(name)]
    return names if len(names) == task.n_actions else [str(a) for a in range(task.n_actions)]
