r"""PRISM's explicit files, and Storm's dialect of them: ``model.tra`` with companions of the same name.

| file | first line | lines |
|---|---|---|
| ``.tra`` | ``n c m``: states, choices, transitions | ``state choice target probability [action]`` |
| ``.sta`` | ``(x,y)``: the variables | ``0:(0,1)``: the names of the states |
| ``.lab`` | ``0="init" 1="goal"`` | ``state: label label`` |
| ``.srew`` | ``n m``: states, lines | ``state reward`` |
| ``.trew`` | ``n c m``: states, choices, lines | ``state choice target reward`` |

In Storm's dialect, told by the first line ``mdp`` or ``dtmc`` of the ``.tra`` file, actions have no names, labels are
declared between ``#DECLARATION`` and ``#END`` and follow as ``state label label``, and rewards are in
``.state.rew`` and ``.trans.rew``, without a first line.

A header ``n m`` (Storm: ``dtmc``) is a Markov chain, whose lines have no choice, in ``.trew`` and ``.trans.rew`` too.
Lines that begin with ``#`` are remarks. All companions are optional; the older endings ``.rews`` and ``.rewt`` are
known too. PRISM numbers the files of several reward structures (``model1.srew``, ``model2.srew``): name the number.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from policytest._base.errors import InputError, naming
from policytest.sources.tasks.model_checkers.listing import Listing, check_states, index, number, text_lines

OF_STATES, OF_TRANSITIONS = (".srew", ".rews", ".state.rew"), (".trew", ".rewt", ".trans.rew")
_DECLARED = re.compile(r'(\d{1,15})="([^"]*)"', re.ASCII)
_STATE_NAME = re.compile(r"(\d{1,15}):(\(.*\))", re.ASCII)
_ROW_FORM = "this is the row form; export the plain one (PRISM: without -exportrows)"


def read(path: Path, reward_structure: str | None = None, rewarded: bool = True) -> Listing:
    """The model in a .tra file and its companions; of several reward structures the numbered one, if one is asked."""
    listing = Listing()
    choices, chain = _transitions(path, listing)
    _companion(path, "", (".sta",), lambda file: _states(file, listing))
    _companion(path, "", (".lab",), lambda file: _labels(file, listing))
    if not rewarded:
        return listing
    which = reward_structure or ""
    found = [
        _companion(path, which, OF_STATES, lambda file: _state_rewards(file, listing)),
        _companion(path, which, OF_TRANSITIONS, lambda file: _transition_rewards(file, listing, choices, chain)),
    ]
    listing = replace(listing, has_rewards=any(found))
    if reward_structure is not None and not listing.has_rewards:
        raise InputError(f"rewards is {reward_structure!r}, but there is no {path.stem}{which}.srew and no .trew")
    several = [f"{path.stem}1{ending}" for ending in (*OF_STATES, *OF_TRANSITIONS)]
    numbered = next((name for name in several if path.with_name(name).exists()), None)
    if not listing.has_rewards and numbered:
        raise InputError(f'there are several reward structures ({numbered}, ...); say which with rewards="1"')
    return listing


def companions(path: Path) -> list[Path]:
    """The files that are read with a .tra file where they are there; of several reward structures none."""
    return [path.with_name(path.stem + ending) for ending in (".sta", ".lab", *OF_STATES, *OF_TRANSITIONS)]


def _companion(path: Path, which: str, endings: tuple[str, ...], use: Callable[[Path], None]) -> bool:
    """Read the first companion that exists; whether there is one. Its errors name it."""
    for ending in endings:
        file = path.with_name(f"{path.stem}{which}{ending}")
        if os.path.lexists(file):
            with naming(file.name):
                use(file)
            return True
    return False


def _rows(path: Path) -> Iterator[tuple[str, list[str]]]:
    """(place, words) of each line that says something; remarks are skipped."""
    for at, line in enumerate(text_lines(path)):
        words = line.split()
        if words and not words[0].startswith("#"):
            yield f"line {at + 1}", words


# ---------------------------------------------------------------- transitions


def _transitions(path: Path, listing: Listing) -> tuple[dict[tuple[int, int], int], bool]:
    """Fill the listing; the place of each choice (state, number), and whether it is a Markov chain."""
    rows = _rows(path)
    place, first = next(rows, ("line 1", []))
    declared: list[int] = []
    if first and first[0].lower() in ("mdp", "dtmc"):
        chain = first[0].lower() == "dtmc"
    elif len(first) in (2, 3) and all(word.isdigit() for word in first):
        declared = [index(place, word, "number") for word in first]
        chain = len(first) == 2
    else:
        raise InputError(
            f"{place}: expected `states choices transitions` (PRISM) or `mdp` (Storm), found {' '.join(first)[:40]!r}"
        )
    choices: dict[tuple[int, int], int] = {}
    largest = -1
    for place, words in rows:
        s, k, x, value, name = _transition(place, words, chain)
        if (s, k) not in choices:
            choices[s, k] = listing.add_choice(s, k, name)
        elif listing.choice_name[choices[s, k]] != name:
            raise InputError(f"{place}: choice {k} of state {s} has two names; it has one action")
        listing.add_transition(choices[s, k], x, number(place, value), int(place.split()[1]))
        largest = max(largest, s, x)
    listing.number_states(declared[0] if declared else largest + 1, {})
    _check_declared(declared, listing, chain)
    check_states(listing)
    return choices, chain


def _transition(place: str, words: list[str], chain: bool) -> tuple[int, int, int, str, str | None]:
    if any(":" in word for word in words[:3]):
        raise InputError(f"{place}: {_ROW_FORM}")
    wanted = 3 if chain else 4
    if len(words) not in (wanted, wanted + 1):
        form = "state target probability" if chain else "state choice target probability [action]"
        raise InputError(f"{place}: {len(words)} words; expected `{form}`")
    s, x = index(place, words[0], "state"), index(place, words[wanted - 2], "state")
    k = 0 if chain else index(place, words[1], "choice")
    return s, k, x, words[wanted - 1], words[wanted] if len(words) > wanted and not chain else None


def _check_declared(declared: list[int], listing: Listing, chain: bool) -> None:
    found = [len(listing.target)] if chain else [len(listing.choice_name), len(listing.target)]
    for what, said, there in zip(
        ["transitions"] if chain else ["choices", "transitions"], declared[1:], found, strict=False
    ):
        if said != there:
            raise InputError(f"the first line says {said} {what}, but there are {there}; the file may be cut short")


# ---------------------------------------------------------------- companions


def _states(path: Path, listing: Listing) -> None:
    rows = list(_rows(path))
    if not rows or not "".join(rows[0][1]).startswith("("):
        raise InputError("the first line must list the variables, such as (x,y)")
    names: dict[int, str] = {}
    for place, words in rows[1:]:
        match = _STATE_NAME.fullmatch("".join(words))
        if match is None:
            raise InputError(f"{place}: expected `0:(...)`, found {' '.join(words)[:40]!r}")
        if int(match[1]) in names:
            raise InputError(f"{place}: state {match[1]} is there twice; keep one")
        names[int(match[1])] = match[2]
    if sorted(names) != list(range(listing.n_states)):
        raise InputError(f"it names {len(names)} states, but the model has {listing.n_states}, numbered from 0")
    variables = "".join(rows[0][1]).strip("()").split(",")
    listing.name_states(names, {s: _values(variables, name) for s, name in names.items()})


def _values(variables: list[str], name: str) -> list[str]:
    """What holds in the state (2,false): x=2, and !done."""
    said = zip(variables, name.strip("()").split(","), strict=False)
    return [{"true": x, "false": f"!{x}"}.get(value, f"{x}={value}") for x, value in said]


def _labels(path: Path, listing: Listing) -> None:
    lines = [line.strip() for line in text_lines(path)]
    if any(line.upper().startswith("#DECLARATION") for line in lines):
        _storm_labels(lines, listing)
        return
    rows = list(_rows(path))
    declared = dict(_DECLARED.findall(" ".join(rows[0][1]))) if rows else {}
    if not declared:
        raise InputError('the first line must declare the labels, such as 0="init" 1="goal"')
    listing.declare(declared.values())
    for place, words in rows[1:]:
        state = index(place, words[0].removesuffix(":"), "state")
        for word in words[1:]:
            if word not in declared:
                raise InputError(f"{place}: label {word[:40]!r} is not declared in the first line")
            listing.groups[declared[word]].append(state)


def _storm_labels(lines: list[str], listing: Listing) -> None:
    ends = [at for at, line in enumerate(lines) if line.upper().startswith("#END")]
    if not ends:
        raise InputError("there is #DECLARATION but no #END")
    declared = {word for line in lines[: ends[0]] if not line.startswith("#") for word in line.split()}
    listing.declare(sorted(declared))
    for at in range(ends[0] + 1, len(lines)):
        words = lines[at].split()
        for word in words[1:]:
            if word not in declared:
                raise InputError(f"line {at + 1}: label {word[:40]!r} is not declared")
            listing.groups[word].append(index(f"line {at + 1}", words[0], "state"))


def _state_rewards(path: Path, listing: Listing) -> None:
    for place, words in _counted(path, [listing.n_states]):
        if len(words) != 2:
            raise InputError(f"{place}: {len(words)} words; expected `state reward`")
        state = index(place, words[0], "state")
        if state in listing.state_reward:
            raise InputError(f"{place}: state {state} is there twice; keep one")
        listing.state_reward[state] = number(place, words[1])


def _transition_rewards(path: Path, listing: Listing, choices: dict[tuple[int, int], int], chain: bool) -> None:
    body = _counted(path, [listing.n_states] if chain else [listing.n_states, len(choices)])
    if path.name.endswith(".trans.rew") and body and not body[0][1][0].isdigit():  # a word on the kind of model
        body = body[1:]
    known = set(zip(listing.source, listing.target, strict=True))
    for place, words in body:
        s, k, x, value, _ = _transition(place, words, chain)
        at = (choices.get((s, k), -1), x)
        if at not in known:
            raise InputError(f"{place}: the model has no transition from state {s} by choice {k} to state {x}")
        if at in listing.on_transitions:
            raise InputError(f"{place}: this transition is there twice; keep one")
        listing.on_transitions[at] = number(place, value)


def _counted(path: Path, sizes: list[int]) -> list[tuple[str, list[str]]]:
    """The lines of a file of rewards; PRISM's first line repeats the sizes of the model, then the number of lines."""
    rows = list(_rows(path))
    if path.name.endswith((".state.rew", ".trans.rew")):  # Storm's have none
        return rows
    said = [index(rows[0][0], word, "number") for word in rows[0][1]] if rows else []
    if said != [*sizes, len(rows[1:])]:
        raise InputError(
            f"the first line says {' '.join(map(str, said)) or 'nothing'}; expected "
            f"{' '.join(map(str, [*sizes, len(rows[1:])]))}, the sizes of the model and the number of lines"
        )
    return rows[1:]
