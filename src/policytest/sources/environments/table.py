r"""The table of an environment as a task: ``P[s][a]`` = list of (probability, next state, reward, terminated).

What the rules of an environment say is known: its rewards, where it starts, and which arrivals end an episode. The
probabilities are what is unknown. So the table is taken apart:

*Successors* that are listed several times for one pair are summed.

*Ends.* Where an episode has ended nothing more is earned: a state at which every arrival ends the episode is absorbing
with reward 0, and its rows are known, whatever the table says about them. A state at which some arrivals end it and
others do not (or where episodes start) gets an absorbing copy, (state, "ended").

*Ambiguous arrivals.* A task needs rewards that are a function of (s,a,x). If one pair lists one successor with two
rewards, or once as an end and once not, then their average depends on the probabilities, which are unknown: it must not
be used. With ``split`` the successor has a copy for each kind of arrival, (state, "reward -100"), and which one follows
is one more unknown of the kernel. Copies have the policy and the true rows of their state; the test does not know that.

*Successors that are not listed.* If the kernel is unknown, so is its support, and rewards must be defined for all
successors. They are if they depend on the pair alone. They are if they depend on the state of arrival alone; a state
that no listed arrival enters is then taken never to be entered. Otherwise they must be given, or the lists of
successors declared known. Validity asks only that the rewards are right where the true kernel has mass.

Only rows that an episode can reach matter in all this; the others keep what they say, first listed first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray, Kernel
from policytest._base.errors import InputError
from policytest._base.rows import entries_at, looping
from policytest.data.walks import truth
from policytest.mdp.horizon import reaching
from policytest.mdp.task import Task
from policytest.sources.checks import close
from policytest.sources.labels import Places
from policytest.sources.tasks.by_name import assembled

Arrival: TypeAlias = tuple[int, bool, float | None]
"""A kind of arrival: the state, whether the episode ends there, and the reward where kinds are told apart by it."""
FULL_LIMIT = 20_000_000  # entries up to which all successors can be allowed


@dataclass(frozen=True, eq=False)
class Listed:
    """The entries of a table, in their order: five arrays of one length."""

    pair: IntArray
    x: IntArray
    p: FloatArray
    r: FloatArray
    ends: BoolArray

    def only(self, mask: BoolArray) -> Listed:
        """Some of them."""
        return Listed(self.pair[mask], self.x[mask], self.p[mask], self.r[mask], self.ends[mask])


@dataclass(frozen=True, eq=False)
class Rules:
    """What a table says: everything of a task but policy and discount, and the kernel.

    ``origin`` [S'] is the state of the environment that each state stands for, ``absorbing`` [S'] where nothing more is
    earned; states from S on are copies.
    """

    kernel: Kernel
    rewards: Kernel
    support: Kernel | None
    initial: FloatArray
    states: tuple[Hashable, ...] | None
    origin: IntArray
    absorbing: BoolArray
    notes: tuple[str, ...]


def read_table(P: object, at: Places) -> Listed:
    """The entries of ``P`` with a positive probability, each row checked."""
    if at.states.numbers[0] != 0 and not isinstance(P, Mapping):
        raise InputError(
            f"env.P is a {type(P).__name__} while observations start at {at.states.numbers[0]}; use a dictionary by "
            "observation, which leaves no doubt which row is whose"
        )
    found: list[tuple[int, int, float, float, bool]] = []
    for s in range(at.n_states):
        for a in range(at.n_actions):
            where = _pair_of(at, s, a)
            row = [_entry(f"{where}[{i}]", entry, at) for i, entry in enumerate(_row(P, at, s, a, where))]
            total = sum(entry[0] for entry in row)
            if not abs(total - 1.0) <= arrays.SUM_TOLERANCE:
                raise InputError(f"{where} sums to {total:.9g}, not 1; fix the table of the environment")
            found += [(s * at.n_actions + a, x, p, r, ends) for p, x, r, ends in row if p > 0]
    pair, x, p, r, ends = zip(*found, strict=True)
    return Listed(np.array(pair), np.array(x), np.array(p), np.array(r), np.array(ends, dtype=bool))


def _pair_of(at: Places, s: int, a: int) -> str:
    return f"env.P[{at.states.numbers[s]}][{at.actions.numbers[a]}]"


def _row(P: Any, at: Places, s: int, a: int, where: str) -> list[object]:
    try:
        row = P[at.states.numbers[s]][at.actions.numbers[a]]
        return list(row)
    except (KeyError, IndexError, TypeError):
        raise InputError(f"{where} is missing; the table needs a list of entries for every pair") from None


def _entry(where: str, entry: Any, at: Places) -> tuple[float, int, float, bool]:
    try:
        p, x, r, ends = entry
    except (TypeError, ValueError):
        raise InputError(f"{where} is {entry!r}; expected (probability, next state, reward, terminated)") from None
    p, r = arrays.real_number(f"{where}, the probability,", p), arrays.real_number(f"{where}, the reward,", r)
    if p < 0:
        raise InputError(f"{where} has the probability {p:.6g}; probabilities cannot be negative")
    return p, state_index(lambda: f"{where} leads to", x, at), r, truth(f"{where}, whether it is terminated,", ends)


def state_index(what: Callable[[], str], observation: object, at: Places) -> int:
    """The state that an environment shows, refused unless it is one of its numbers."""
    if type(observation) is int:
        number = observation
    else:
        array = np.asarray(observation)
        if array.size != 1 or array.dtype.kind not in "iu":
            raise InputError(f"{what()} {observation!r}; states are whole numbers, those of the observation space")
        number = int(array.item())
    first = at.states.numbers[0]
    if not first <= number < first + at.n_states:
        raise InputError(f"{what()} {number}; states are {first} to {first + at.n_states - 1}")
    return number - first


# ---------------------------------------------------------------- from entries to rules


def rules(
    listed: Listed, at: Places, initial: FloatArray, *, split: bool, known_support: bool, rewards: FloatArray | None
) -> Rules:
    """The task and the kernel that a table stands for; the module says how. ``rewards`` [S,A] or [S,A,S], if given."""
    S, A = at.n_states, at.n_actions
    live = reachable(listed, initial > 0, S, A)
    real = listed.only(live[listed.pair // A])
    terminal = np.zeros(S, dtype=bool)
    terminal[real.x[real.ends]] = True
    terminal &= ~live
    if rewards is not None:
        _agree(rewards, real, at)
    parted = _ambiguous(real, at, split)
    target, extra = _targets(real, S, terminal, parted)
    origin = np.concatenate([np.arange(S), [x for x, _, _ in extra]]).astype(np.int64)
    absorbing = np.concatenate([terminal, [ends for _, ends, _ in extra]]).astype(bool)
    idle = listed.only(~(live | terminal)[listed.pair // A])
    whole = _copied(real, idle, target, origin, absorbing, A)
    size = len(origin)
    kernel = assembled(whole.pair, whole.x, whole.p, size, A)
    entered = np.zeros(size, dtype=bool)
    entered[target] = True
    if rewards is None:
        matters = np.append(live, ~absorbing[S:])
        table, on_arrival = _rewards(whole, matters, size, A, known_support, origin, at)
    else:
        table, on_arrival = spread(rewards, origin), False
    table = looping(table, np.flatnonzero(absorbing), 0.0)
    support = _support(kernel, absorbing, entered if on_arrival else None, size, A, known_support)
    names = at.states.own_names if not extra else _names(at, extra)
    return Rules(
        kernel=kernel,
        rewards=table,
        support=support,
        initial=np.concatenate([initial, np.zeros(size - S)]),
        states=names,
        origin=origin,
        absorbing=absorbing,
        notes=_notes(absorbing, extra, known_support, on_arrival),
    )


def ends_of(absorbing: BoolArray, names: Sequence[Hashable] | None) -> list[Hashable] | None:
    """The states in which episodes end, by their names where they have some; None where there is no such state."""
    return [s if names is None else names[s] for s in np.flatnonzero(absorbing).tolist()] or None


def asked_task(
    rewards: Kernel, over: BoolArray, goal: BoolArray | None, discount: float, horizon: int | None, **known: Any
) -> Task:
    """The task whose episodes end in the states that are over; with a goal that of reaching it. ``known``: the rest."""
    names = known["states"]
    if goal is None:
        return Task(rewards, discount=discount, terminal=ends_of(over, names), horizon=horizon, **known)
    goals, others = (ends_of(mask, names) or () for mask in (goal, over & ~goal))
    return Task.reaching(goals, others, within=horizon, **known)


def reachable(listed: Listed, start: BoolArray, S: int, A: int) -> BoolArray:
    """[S] the states an episode can be in, by any actions, before it ends."""
    going = ~listed.ends
    back = sparse.csr_array((np.ones(going.sum()), (listed.x[going], listed.pair[going] // A)), shape=(S, S))
    return reaching(back, start)


def _ambiguous(real: Listed, at: Places, split: bool) -> set[int]:
    """The states with more than one kind of arrival from one pair; refused, unless they are to be split."""
    seen: dict[tuple[int, int], tuple[float, bool]] = {}
    parted = set()
    for pair, x, r, ends in zip(real.pair, real.x, real.r, real.ends, strict=True):
        before = seen.setdefault((int(pair), int(x)), (float(r), bool(ends)))
        if before == (r, ends):
            continue
        if not split:
            s, a = divmod(int(pair), at.n_actions)
            differ = f"rewards {before[0]:g} and {r:g}" if before[0] != r else "and without the end of the episode"
            raise InputError(
                f"{_pair_of(at, s, a)} leads to {at.states.numbers[int(x)]} with {differ}, and a task needs one reward "
                "for each (s, a, next state), since an average would depend on what is unknown; "
                'pass ambiguous="split" for a copy of the state for each kind of arrival'
            )
        parted.add(int(x))
    return parted


def _targets(real: Listed, S: int, terminal: BoolArray, parted: set[int]) -> tuple[IntArray, list[Arrival]]:
    """Where each entry leads, and the copies (state, ended, reward) that are needed, numbered from S on."""
    kinds = [
        (int(x), bool(ends), float(r) if int(x) in parted else None)
        for x, ends, r in zip(real.x, real.ends, real.r, strict=True)
    ]
    number: dict[Arrival, int] = {}
    extra: list[Arrival] = []
    taken: set[int] = set()
    for kind, _ in sorted(
        Counter(kinds).items(), key=lambda item: (item[0][0], -item[1], item[0][1], item[0][2] or 0.0)
    ):
        x, ends, _ = kind
        if ends == terminal[x] and x not in taken:  # the state itself stands for its most frequent kind of arrival
            number[kind] = x
            taken.add(x)
        else:
            number[kind] = S + len(extra)
            extra.append(kind)
    return np.array([number[kind] for kind in kinds], dtype=np.int64), extra


def _copied(real: Listed, idle: Listed, target: IntArray, origin: IntArray, absorbing: BoolArray, A: int) -> Listed:
    """All entries: those that matter with their targets, the same for copies, loops at ends, and the idle ones."""
    S = int((origin == np.arange(len(origin))).sum())
    parts = [(real.pair, target, real.p, real.r)]
    for copy in range(S, len(origin)):
        if not absorbing[copy]:
            own = real.pair // A == origin[copy]
            parts.append((copy * A + real.pair[own] % A, target[own], real.p[own], real.r[own]))
    ends = (np.flatnonzero(absorbing)[:, None] * A + np.arange(A)).ravel()
    parts.append((ends, ends // A, np.ones(len(ends)), np.zeros(len(ends))))
    parts.append((idle.pair, idle.x, idle.p, idle.r))
    pair, x, p, r = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Listed(pair, x, p, r, np.zeros(len(pair), dtype=bool))


# ---------------------------------------------------------------- rewards and support


def _rewards(
    whole: Listed, matters: BoolArray, size: int, A: int, known: bool, origin: IntArray, at: Places
) -> tuple[Kernel, bool]:
    """r[s,a], or r[s,a,x]; and whether it is the reward of the state of arrival, for all successors."""
    of_pair = np.zeros(size * A)
    of_pair[whole.pair[::-1]] = whole.r[::-1]  # the first listed stands
    real = whole.only(matters[whole.pair // A])
    odd = real.r != of_pair[real.pair]
    if not odd.any():
        return of_pair.reshape(size, A), False
    if known:
        keys, first = np.unique(whole.pair * size + whole.x, return_index=True)
        return assembled(keys // size, keys % size, whole.r[first], size, A), False
    arrival = np.zeros(size)
    arrival[real.x] = real.r
    if (real.r != arrival[real.x]).any():
        s, a = divmod(int(real.pair[np.argmax(odd)]), A)
        raise InputError(
            f"{_pair_of(at, int(origin[s]), a)} has rewards that depend on the pair and on the next state, and the "
            "table says nothing about successors it does not list; pass "
            "known_support=True (those listed are all there are), or rewards=, a function of (s, a, next state)"
        )
    check_size(size, A)
    return np.broadcast_to(arrival, (size, A, size)).copy(), True


def spread(given: FloatArray, origin: IntArray) -> FloatArray:
    """Rewards [S,A] or [S,A,S] of the environment, for its states and their copies."""
    return given[origin] if given.ndim == 2 else given[origin][:, :, origin]


def _support(
    kernel: Kernel, absorbing: BoolArray, entered: BoolArray | None, size: int, A: int, known: bool
) -> Kernel | None:
    if known:
        return kernel > 0 if not arrays.is_sparse(kernel) else sparse.csr_array(kernel > 0).astype(np.float64)
    if not absorbing.any() and (entered is None or entered.all()):
        return None
    full = full_support(absorbing, np.ones(size, dtype=bool) if entered is None else entered, A)
    listed = kernel > 0  # rows that no episode reaches may lead to states that none enters
    return full | (listed.toarray().reshape(full.shape) if arrays.is_sparse(listed) else listed)


def check_size(size: int, A: int, remedy: str = "") -> None:
    """Refuse tasks in which there are too many transitions for all of them to be allowed."""
    if size * A * size > FULL_LIMIT:
        remedy = remedy or "pass known_support=True if the successors that the table lists are all there are"
        raise InputError(
            f"{size:,} states and {A} actions make {size * A * size:,} transitions, too many to allow all of them; "
            f"{remedy}"
        )


def full_support(absorbing: BoolArray, entered: BoolArray, A: int) -> BoolArray:
    """[S,A,S] any state that can be entered, from every state but the absorbing ones, which stay."""
    size = len(absorbing)
    check_size(size, A)
    support = np.broadcast_to(entered, (size, A, size)).copy()
    support[absorbing] = np.eye(size, dtype=bool)[absorbing][:, None, :]
    return support


def _agree(rewards: FloatArray, real: Listed, at: Places) -> None:
    """Refuse given rewards that differ from those of the table."""
    said = entries_at(rewards, real.pair, real.x)
    if (i := arrays.first(~close(said, real.r))) is not None:
        raise differs(at.place(*divmod(int(real.pair[i]), at.n_actions), int(real.x[i])), said[i], real.r[i])


def differs(place: str, said: float, paid: float) -> InputError:
    """The error for a reward that is not what the environment pays."""
    return InputError(
        f"rewards at {place} are {said:g}, but the environment pays {paid:g}; rewards must be a known function of "
        "(s, a, next state)"
    )


def _names(at: Places, extra: list[Arrival]) -> tuple[Hashable, ...]:
    names: list[Hashable] = [at.states.name(s) for s in range(at.n_states)]
    for x, ends, r in extra:
        names.append((names[x], *([] if r is None else [f"reward {r:g}"]), *(["ended"] if ends else [])))
    return tuple(names)


def _notes(absorbing: BoolArray, extra: list[Arrival], known: bool, on_arrival: bool) -> tuple[str, ...]:
    notes = []
    if absorbing.any():
        notes.append("Where an episode has ended the state is absorbing with reward 0, and that is known.")
    if extra:
        notes.append(f"Copies were added for kinds of arrival: {len(extra)} of {len(absorbing)} states.")
    if known:
        notes.append("The successors that the table lists are known to be all there are.")
    elif on_arrival:
        notes.append("Which successors are possible is unknown; the reward is that of the state of arrival.")
    else:
        notes.append("Which successors are possible is unknown.")
    return tuple(notes)
