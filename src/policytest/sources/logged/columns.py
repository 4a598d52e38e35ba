"""Which column of a table has which role.

`s` and `a` are required; `count`, `order`, `episode` and `reward` are used where they are. `s_next` is required unless
there are `order` and `episode`: with one row for each visit it is the s of the next row of the episode. A mapping
``columns={"s": "state"}`` gives other names, and ``columns={"reward": None}`` ignores a column. A column reward that is
ignored is still compared with the task's rewards, under the name `IGNORED`: where they differ, nothing is refused, but
no answer from the data is certified.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from policytest._base.errors import InputError
from policytest._base.text import did_you_mean, plain

Columns: TypeAlias = Mapping[str, str | None]
"""The name of the column of a role, or of the role itself where it is not named; None: it is ignored."""
LABELS = ("s", "a", "s_next")
LATER = ("next", "after")  # in the name of a column that may hold next states
OPTIONAL = ("count", "order", "episode", "reward")
ROLES = LABELS + OPTIONAL
PROBABILITIES = ("propensity", "target")
EPISODE_ROLES = ("episode", "order", "reward", *PROBABILITIES)
"""The columns of recorded episodes; s and a beside them where a task gives the target."""
IGNORED = "ignored_reward"
BINNED, NEXT_BINNED = "bins.", "next_bins."
"""Before the name of a column of numbers, whose bins make the states, and of one whose bins make the next states."""
_OFTEN = {
    "s": ("state", "obs", "observation", "s_t", "from", "source", "page", "segment", "stage", "cell", "status", "node"),
    "a": ("action", "act", "a_t", "treatment", "slot", "move", "offer", "choice", "decision", "arm", "drug", "dose"),
    "s_next": ("next_state", "state_next", "next_s", "next_obs", "next_observation", "s_prime", "sp", "x", "to"),
    "order": ("timestamp", "time", "date", "datetime", "ts", "day", "week", "month", "step", "t", "index"),
    "episode": ("session", "patient", "customer", "user", "visitor", "client", "subject", "run", "trajectory", "id"),
}
"""What columns of a role are often called, also with ``_id`` after it."""


TRIAL_ROLES = ("agent", "outcome", "task", "pair", "order")
"""The columns of recorded trials."""
WRITTEN = ("agent", "outcome", "task", "pair")
"""Those that are taken as they are written."""
SUCCESSES = ("success", "is_success", "succeeded", "solved", "passed", "correct", "win", "won", "completed", "resolved")
_OFTEN_OF_TRIALS = {
    "agent": ("policy", "agent", "model", "algorithm", "algo", "checkpoint"),
    "outcome": (*SUCCESSES, "score", "return", "reward"),
    "task": ("task", "env", "environment"),
    "pair": ("pair", "seed", "trial"),
    "order": (),
}
"""What they are often called, also with ``_id`` after it; a success is 0 or 1."""


def ignoring(role: str) -> str:
    """How to ignore a column."""
    return f'ignore the column with columns={{"{role}": None}}'


class OwnColumns(dict[str, str | None]):
    """The argument ``columns`` of something else than transitions, which finds its columns by rules of its own."""

    needed: tuple[str, ...] = ()
    """The roles that a header must have."""

    def resolved(self, there: Sequence[str], place: str) -> dict[str, str]:
        """The name of the column of each role."""
        raise NotImplementedError


class EpisodeColumns(OwnColumns):
    """The argument ``columns`` of recorded episodes: `reward` is required, the others are used where they are.

    With ``labels``, of a task, s and a are read too, if they are there: for the target where there are propensities and
    no target, for which they are required, and without propensities to see whether the policy takes these actions. Its
    states may be cells of the ``binned`` columns; s is then not required.
    """

    needed = ("reward",)

    def __init__(self, columns: Columns, labels: bool = False, binned: Sequence[str] = ()) -> None:
        super().__init__(columns)
        self.labels, self.binned = labels, tuple(binned)

    def resolved(self, there: Sequence[str], place: str) -> dict[str, str]:
        """The name of the column of each role."""
        found: dict[str, str] = {}
        for role in EPISODE_ROLES:
            name = self.get(role, role)
            if name in there:
                found[role] = str(name)
            elif role == "reward" or (name is not None and role in self):
                raise self._missing(role, there, place)
        needed = "propensity" in found and "target" not in found
        for role in ("s", "a") if self.labels else ():
            name = self.get(role, role)
            if name in there and (needed or role in self or name not in found.values()):
                found[role] = str(name)
            elif role in self or (needed and not (role == "s" and self.binned)):
                raise self._missing(role, there, place)
        for name in self.binned:
            if name in there:
                found[BINNED + name] = name
            elif needed:
                raise _no_numbers(name, there, place)
        for name in found.values():
            if list(there).count(name) > 1:
                raise InputError(f"{place} has the column {plain(name)!r} twice; rename one of them")
        return found

    def _missing(self, role: str, there: Sequence[str], place: str) -> InputError:
        name = str(self.get(role, role))
        return InputError(
            f"{place} has no column {plain(name)!r} for {role}; the columns are {_listed(there)}; name it with "
            f'columns={{"{role}": ...}}'
        )


def _listed(there: Sequence[str]) -> str:
    """The names of the columns, the first twenty of them."""
    return (", ".join(repr(plain(column)) for column in there[:20]) or "none") + (", ..." if len(there) > 20 else "")


def _no_numbers(name: str, there: Sequence[str], place: str) -> InputError:
    """The error for a column that the bins of the task name, and that is not there."""
    return InputError(
        f"{place} has no column {plain(name)!r}, whose numbers the bins of the task cut; the columns are "
        f"{_listed(there)}; rename the column of the log, or the bins in the task file"
    )


def check_mapping(columns: object) -> dict[str, str | None]:
    """The argument ``columns``, checked as far as that is possible without the table."""
    return _checked(columns, ROLES)


def check_episode_mapping(columns: object, labels: bool, binned: Sequence[str] = ()) -> EpisodeColumns:
    """The same, of recorded episodes."""
    return EpisodeColumns(_checked(columns, (*EPISODE_ROLES, "s", "a")), labels, binned)


class TrialColumns(OwnColumns):
    """The argument ``columns`` of recorded trials: `agent` and `outcome` are required, the others used where they are.

    A role that is not named is the column that has its name, or the one column that is often called so; ``found`` says
    which. Where there are several, the user has to say.
    """

    def __init__(self, columns: object) -> None:
        super().__init__(_checked(columns, TRIAL_ROLES))
        if None in (self.get("agent", ""), self.get("outcome", "")):
            raise InputError("columns has None for agent or outcome; both are required")
        self.found: dict[str, str] = {}

    def resolved(self, there: Sequence[str], place: str) -> dict[str, str]:
        """The name of the column of each role."""
        found: dict[str, str] = {}
        for role in TRIAL_ROLES:
            if role in self:
                name = self[role]
                if name is not None and name not in there:
                    remedy = did_you_mean(name, there) or f"the columns are {_listed(there)}"
                    raise InputError(f"{place} has no column {plain(name)!r} for {role}; {remedy}")
            else:
                name = self._often(role, there, place)
            if name is not None:
                found[role] = name
        for name in found.values():
            if list(there).count(name) > 1:
                raise InputError(f"{place} has the column {plain(name)!r} twice; rename one of them")
        self.found = found
        return found

    def _often(self, role: str, there: Sequence[str], place: str) -> str | None:
        """The column of a role that nobody has named."""
        if role in there:
            return role
        lower = {name.lower().removesuffix("_id"): name for name in there if name not in self.values()}
        lower |= {name.lower(): name for name in there if name not in self.values()}
        meant = list(dict.fromkeys(lower[word] for word in _OFTEN_OF_TRIALS[role] if word in lower))
        if len(meant) > 1:
            some = " or ".join(map(repr, map(plain, meant)))
            leave = "" if role in ("agent", "outcome") else f', or use neither with columns={{"{role}": None}}'
            raise InputError(
                f"{place}: the column for {role} may be {some}; say which with "
                f'columns={{"{role}": "{plain(meant[0])}"}}{leave}'
            )
        if not meant and role in ("agent", "outcome"):
            raise InputError(
                f"{place} has no column for {role}; the columns are {_listed(there)}; name it with "
                f'columns={{"{role}": ...}}'
            )
        return meant[0] if meant else None


def _checked(columns: object, roles: Sequence[str]) -> dict[str, str | None]:
    if columns is None:
        return {}
    if not isinstance(columns, Mapping):
        raise InputError(f'columns is a {type(columns).__name__}; pass a mapping such as {{"s": "state"}}')
    for role, name in columns.items():
        if role not in roles:
            remedy = did_you_mean(role, roles) or f"the roles are {', '.join(roles)}"
            raise InputError(f"columns has the key {role!r}; {remedy} (the key is the role, the value is your column)")
        if name is None and role in ("s", "a"):
            raise InputError(f"columns[{role!r}] is None; s and a are required")
        if name is not None and not isinstance(name, str):
            raise InputError(f"columns[{role!r}] is {name!r}; pass the name of a column, a string")
    named = [name for name in columns.values() if name is not None]
    for name in named:
        if named.count(name) > 1:
            raise InputError(f"column {name!r} is mapped to two roles; map each column to one")
    return dict(columns)


def with_bins(columns: Columns, now: Sequence[str], following: Sequence[str]) -> dict[str, str | None]:
    """The mapping with a role for each column that is binned; states and next states are then cells of these."""
    return {**columns, **{BINNED + name: name for name in now}, **{NEXT_BINNED + name: name for name in following}}


def check_bins(roles: Collection[str], names: Sequence[str], following: Sequence[str]) -> None:
    """Refuse a column of next states beside states that are cells of numbers."""
    if "s_next" in roles and not following:
        raise InputError(
            f"data has a column s_next, and bins make states of {', '.join(names)}; add next = ... to the bins, the "
            'columns of the next state, or find it in the next row of the episode with columns={"s_next": None}'
        )


def resolve(columns: Columns, there: Sequence[str], place: str) -> dict[str, str]:
    """The name of the column of each role, for a table (or a file: `place`) with these columns."""
    if isinstance(columns, OwnColumns):
        return columns.resolved(there, place)
    found: dict[str, str] = {}
    binned = [role for role in columns if role.startswith((BINNED, NEXT_BINNED))]
    following = any(role.startswith(NEXT_BINNED) for role in binned)
    optional = {*OPTIONAL, *(("s",) if binned else ()), *(("s_next",) if following else ())}
    for role in (*ROLES, *binned):
        name = columns.get(role, role)
        if name is None or (role not in columns and _has_none(role, columns, there, role in optional)):
            continue
        if name not in there:
            if role in binned:
                raise _no_numbers(name, there, place)
            raise InputError(
                f"{place} has no column {plain(name)!r} for {role}; {_suggestion(role, name, there, columns)}"
            )
        if list(there).count(name) > 1:
            raise InputError(f"{place} has the column {plain(name)!r} twice; rename one of them")
        found[role] = name
    if not (following or "s_next" in found or {"order", "episode"} <= found.keys()):
        raise InputError(
            f"{place} has no column 's_next' for s_next; {_suggestion('s_next', 's_next', there, columns)}"
        )
    if columns.get("reward", "") is None and list(there).count("reward") == 1 and "reward" not in found.values():
        found[IGNORED] = "reward"
    return found


def _has_none(role: str, columns: Columns, there: Sequence[str], optional: bool) -> bool:
    """Whether a role that nobody has named stays without a column: it is optional, or its column has another role."""
    if role not in there and optional:
        return True
    if role in columns.values():
        if role in LABELS:
            raise InputError(f"column {role!r} is mapped to another role; name the column for {role} in columns")
        return True
    return role == "s_next" and role not in there and not _meant(role, role, there)


def _suggestion(role: str, name: str, there: Sequence[str], columns: Columns) -> str:
    """What is there, and what might have been meant: for this role, and for other labels that nobody has named."""
    close, visits = _close(role, name, there, columns)
    asked = {part: found for part, found in _first(close).items() if part != "s_next" or found != "..."}
    meant = f"name {'them' if len(asked) > 1 else 'it'} with {_mapping(asked)}"
    if asked and "..." not in asked.values():
        meant = f"did you mean {_mapping(asked)}?"
    if role == "s_next":
        beside = {**({"s_next": "None"} if close[role] else {}), **_first(visits)}
        meant = f"{meant} Or find" if asked else 'name it with columns={"s_next": ...}, or find'
        meant += f" it in the next row of the episode, with {_mapping(beside)}"
    return f"the columns are {_listed(there)}; {meant}"


def _close(
    role: str, name: str, there: Sequence[str], columns: Columns
) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """The columns that may be meant for this role and others without one; and those that tell which row comes next."""
    free = [column for column in there if column not in columns.values()]
    close = {role: _meant(role, name, free)}
    needed = [part for part in LABELS if part != "s" or not any(one.startswith(BINNED) for one in columns)]
    close |= {other: _meant(other, other, free) for other in needed if other not in (role, *columns, *there)}
    rest = [column for column in free if not any(column in found for found in close.values())]
    visits = {part: _meant(part, part, rest) for part in ("order", "episode") if columns.get(part, part) not in there}
    if role in ("s", "a") and all(visits.values()) and not close.get("s_next", ["s_next"]):
        close |= visits  # each row is a visit, and the next row of the episode tells the next state
    return close, visits


def _first(found: Mapping[str, list[str]]) -> dict[str, str]:
    """The most likely column of each role, as it is written in ``columns``."""
    return {role: f'"{plain(names[0])}"' if names else "..." for role, names in found.items()}


def _mapping(named: Mapping[str, str]) -> str:
    """The argument ``columns``, as it is written."""
    entries = ", ".join(f'"{role}": {name}' for role, name in named.items())
    return f"columns={{{entries}}}"


def _meant(role: str, name: str, there: Sequence[str]) -> list[str]:
    """Columns that might have been meant, the most likely one first."""
    lower = {column.lower().removesuffix("_id"): column for column in reversed(there)}
    lower |= {column.lower(): column for column in reversed(there)}
    close = [lower[word] for word in (name.lower(), role, *_OFTEN.get(role, ())) if word in lower]
    close += [column for column in there if role == "s_next" and any(word in column.lower() for word in LATER)]
    return close + difflib.get_close_matches(name, there, n=1, cutoff=0.75)
