r"""Recorded trials of agents, matched: the outcomes that bets are made on, and why the bets are fair.

A trial is an episode of an agent with one outcome: a success, a partial credit, a return.

*Two agents.* A trial of A and one of B make a pair, and its outcome is D = G_A - G_B. Trials with the same label
``pair`` (a seed, a start) belong together; without labels the k-th trial of A and the k-th of B do, and the surplus of
either agent waits. *Fair, whenever trials are made:* imagine all trials that could ever be made of each agent written
down in their order. Which agent is tried next, and whether another trial is made at all, may depend on all outcomes so
far: it only determines how much of these two lists is read, not which trials form the k-th pair. Along the list of
pairs E[D_k | pairs before] = V_A - V_B, so that capital on it reaches 1/delta with probability at most delta if that is
not above the margin, and so has any part of the list that was read. With labels, a pair counts when both of its trials
are there, and labels that one agent alone has are left out. So whether and when a trial is made must not depend on the
outcome of the other trial with its label, or pairs in which that one has succeeded might come first. That is an
assumption of the verdict where there are labels.

*Several tasks.* The value is the mean of V_t over the T tasks. A round is one pair of each task, the k-th of each, and
is complete with its last pair; capital is looked at after whole rounds only. All T bets of a round stake the same
fraction f, fixed before the round, of the same room. Trials are independent of each other, so that

    E[prod over t of (1 + f (D_t - R)/room) | rounds before] = prod over t of (1 + f (V_t - R)/room)
                                                             <= (1 + f (V - R)/room)^T <= 1     if V <= R,

by the inequality of the arithmetic and the geometric mean. (In the midst of a round this fails: the tasks so far may be
those in which A is better.) One bet on the mean of a round would be fair as well, but it cannot lose more than its
stake only with f <= 1, where the product stakes f for each task: with T = 10 tasks of which the growth would be best
at f = 1/2 each, the mean wants f = 5. With one trial of each of 500 tasks there is one round, which may suffice.

*More trials of one agent.* With a ``ratio`` of 1 to 4, fixed beforehand, each trial of A is compared with the mean of
the next 4 of B: D has the same mean, the same range and a smaller variance, and all of the above holds. (The ratio must
not be chosen by how many trials there happen to be. Bets on each agent by itself, whose product is looked at for the
worst common value c, V_A <= c <= V_B, would need no ratio; but they pay about log(n)/2 nats for not knowing c, and
take 18 to 45% more trials than the same ratio fixed beforehand: `benchmarks/trials.py`.)
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.errors import InputError
from policytest._base.text import number, plural
from policytest.data.logged_episodes import LoggedEpisodes

TRIALS, IN_ITS_TASK = "trials are independent runs of their agent, each with the same ", " in its task"
IN_ORDER = "they are listed in the order in which they were made, and none was left out for its outcome"
NOT_BY_THE_PARTNER = "whether and when a trial was made did not depend on the outcome of the one with the same label"
MOST_NAMED = 5  # labels that a message lists


@dataclass(frozen=True, eq=False)
class MatchedTrials:
    """The trials of one agent, or of two, in rounds: one of each task, and of each agent.

    ``index`` has for each agent, [n, r], the trials of each outcome, and ``found`` the same for each task, beyond the
    last round too. ``tasks`` are their names, "" if there are none; ``labelled`` says that pairs have labels.
    """

    logs: tuple[LoggedEpisodes, ...]
    tasks: tuple[str, ...]
    index: tuple[IntArray, ...]
    found: tuple[tuple[IntArray, ...], ...]
    labelled: bool = False
    agent_policy: ClassVar[str] = ""
    score: ClassVar[None] = None
    critic: ClassVar[None] = None
    asked_about: ClassVar[str] = "mean outcome"
    horizon: ClassVar[None] = None
    states: None = field(default=None, init=False)
    actions: None = field(default=None, init=False)

    @classmethod
    def of(cls, logs: Sequence[LoggedEpisodes], ratio: Sequence[int] = (1, 1)) -> MatchedTrials:
        """The trials of these agents, by task, and by pair where they have labels for it."""
        for log in logs:
            _check(log)
        tasks, members = _by_task(logs)
        labelled = len(logs) > 1 and _all_or_none("pair", logs)
        _all_or_none("order", logs)
        if labelled and any(r != 1 for r in ratio):
            raise InputError("ratio is for trials without labels, and these have a pair; leave one of the two out")
        found = [_matched(logs, own, task, labelled, ratio) for task, own in zip(tasks, members, strict=True)]
        rounds = min(len(part[0]) for part in found)
        index = tuple(
            np.stack([part[k][:rounds] for part in found], axis=1).reshape(rounds * len(tasks), -1)
            for k in range(len(logs))
        )
        return cls(tuple(logs), tasks, index, tuple(found), labelled)

    def of_task(self, t: int) -> MatchedTrials:
        """Those of one task: all of them, also beyond the last round."""
        return MatchedTrials(self.logs, (self.tasks[t],), self.found[t], (self.found[t],), self.labelled)

    @property
    def rivals(self) -> tuple[str, ...]:
        """What the two agents are called; () of one."""
        names = tuple(log.agent or f"policy {letter}" for log, letter in zip(self.logs, "AB", strict=False))
        return names if len(self.logs) == 2 else ()

    @property
    def name(self) -> str:
        """What the trials are of."""
        return self.logs[0].name

    @cached_property
    def outcomes(self) -> FloatArray:
        """[n] the outcome of each trial, or the difference of each pair."""
        groups = zip(self.logs, self.index, strict=True)
        first, *others = (log.outcomes.returns[trials].mean(axis=1) for log, trials in groups)
        return np.asarray(first - others[0] if others else first, dtype=np.float64)

    @property
    def steps(self) -> IntArray:
        """[n] how many trials each outcome takes."""
        return np.full(len(self.index[0]), sum(trials.shape[1] for trials in self.index), dtype=np.int64)

    @property
    def rounds(self) -> int:
        """How many there are."""
        return len(self.index[0]) // len(self.tasks)

    @property
    def waiting(self) -> tuple[int, ...]:
        """How many trials of each agent are in no round."""
        return tuple(log.n_episodes - trials.size for log, trials in zip(self.logs, self.index, strict=True))

    @property
    def bounds(self) -> tuple[float, float]:
        """Where the outcomes lie."""
        (low, high), *others = (log.bounds for log in self.logs)
        return (low - others[0][1], high - others[0][0]) if others else (low, high)

    @property
    def words(self) -> tuple[str, str]:
        """What one outcome is of, and several."""
        return ("pair of trials", "pairs of trials") if len(self.logs) == 2 else ("trial", "trials")

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee rests on."""
        return assumptions_of(self.logs, len(self.tasks), self.labelled)

    @property
    def outside(self) -> tuple[str, ...]:
        """Which outcome of each log was outside its range, in words."""
        return outside_of(self.logs)

    def value_of(self, returns: FloatArray | list[float]) -> float:
        """Their mean; rounds have as many of each task."""
        return float(np.mean(returns))


def _check(log: object) -> None:
    if not isinstance(log, LoggedEpisodes):
        raise InputError(
            f"trials are LoggedEpisodes, and this is a {type(log).__name__}; pass LoggedEpisodes for each agent"
        )
    if log.weighted:
        raise InputError(
            "the log has propensities, and trials are of the agent itself; ask value_interval(log) for each policy"
        )


def _said(log: LoggedEpisodes, k: int) -> str:
    """An agent in a message."""
    return log.agent or f"log {k + 1}"


def _all_or_none(name: str, logs: Sequence[LoggedEpisodes]) -> bool:
    """Whether they say it, all of them."""
    given = [getattr(log, name) is not None for log in logs]
    if any(given) and not all(given):
        has, lacks = given.index(True), given.index(False)
        raise InputError(
            f"{_said(logs[has], has)} has {name} and {_said(logs[lacks], lacks)} has not; pass {name} for all, or none"
        )
    return all(given)


def _by_task(logs: Sequence[LoggedEpisodes]) -> tuple[tuple[str, ...], list[list[IntArray]]]:
    """The tasks in the order in which they first appear, and for each of them the trials of each agent."""
    if not _all_or_none("task", logs):
        return ("",), [[np.arange(log.n_episodes) for log in logs]]
    named = [[str(one) for one in log.task.tolist()] for log in logs]
    tasks = tuple(dict.fromkeys(name for names in named for name in names))
    for k, names in enumerate(named):
        if missing := [task for task in tasks if task not in set(names)]:
            some = ", ".join(map(repr, missing[:MOST_NAMED])) + (", ..." if missing[MOST_NAMED:] else "")
            raise InputError(
                f"{_said(logs[k], k)} has no trial of {plural(len(missing), 'task')} that others have ({some}); record "
                "them, or leave these tasks out for all agents, for a reason other than their outcomes"
            )
    places = {task: t for t, task in enumerate(tasks)}
    codes = [np.array([places[name] for name in names]) for names in named]
    return tasks, [[np.flatnonzero(code == t) for code in codes] for t in range(len(tasks))]


def assumptions_of(logs: Sequence[LoggedEpisodes], tasks: int, labelled: bool) -> tuple[str, ...]:
    """What a guarantee rests on, of trials in so many tasks, which perhaps belong together by their labels."""
    ranges = dict.fromkeys("outcomes lie in [{}, {}]".format(*map(number, log.bounds)) for log in logs)
    alike = f"{TRIALS}{_measure(logs)}{IN_ITS_TASK if tasks > 1 else ''}"
    return (alike, IN_ORDER, *ranges, *((NOT_BY_THE_PARTNER,) if labelled else ()))


def _measure(logs: Sequence[LoggedEpisodes]) -> str:
    """What the outcomes average to: a success rate, if they are 0 and 1 and can be nothing beyond."""
    seen = (log.outcomes.returns for log in logs if log.bounds == (0.0, 1.0))
    found = [bool(np.isin(returns, (0.0, 1.0)).all()) for returns in seen]
    return "success rate" if len(found) == len(logs) and all(found) else "mean outcome"


def outside_of(logs: Sequence[LoggedEpisodes]) -> tuple[str, ...]:
    """Which outcome of each log was outside its range, in words: then nothing that rests on these logs is certified."""
    return tuple(words + (f" (of {log.agent})" if log.agent else "") for log in logs for words in log.outside)


def in_turn(logs: Sequence[LoggedEpisodes]) -> tuple[tuple[str, ...], list[list[IntArray]]]:
    """The tasks; and for each of them the trials of each agent in the order of rounds.

    With labels they are those that all agents have; without, some agents may have more than others.
    """
    for log in logs:
        _check(log)
    tasks, members = _by_task(logs)
    _all_or_none("order", logs)
    if not _all_or_none("pair", logs):
        return tasks, members
    return tasks, [list(_by_label(logs, own, task)) for task, own in zip(tasks, members, strict=True)]


def _matched(
    logs: Sequence[LoggedEpisodes], members: list[IntArray], task: str, labelled: bool, ratio: Sequence[int]
) -> tuple[IntArray, ...]:
    """For each agent, [n, r], the trials of a task that make an outcome: those with a label, or the next ones."""
    if labelled:
        return tuple(trials[:, None] for trials in _by_label(logs, members, task))
    n = min(len(trials) // r for trials, r in zip(members, ratio, strict=False))
    return tuple(trials[: n * r].reshape(n, r) for trials, r in zip(members, ratio, strict=False))


def _by_label(logs: Sequence[LoggedEpisodes], members: list[IntArray], task: str) -> IntArray:
    """[K, n] the trials with the same label, in the order in which they were complete."""
    places: list[dict[Hashable, int]] = []
    for k, (log, trials) in enumerate(zip(logs, members, strict=True)):
        labels = log.pair[trials].tolist()
        found = dict(zip(labels, trials.tolist(), strict=True))
        if len(found) < len(labels):
            label, times = Counter(labels).most_common(1)[0]
            where = f" in task {task!r}" if task else ""
            raise InputError(
                f"{_said(log, k)} has {times} trials with the pair {arrays.shown(label)}{where}; label each trial of "
                "an agent differently, or leave pair out: trials are then paired in their order"
            )
        places.append(found)
    common = [label for label in places[0] if all(label in others for others in places[1:])]
    if not common:
        first, second = (arrays.shown(next(iter(found))) for found in places[:2])
        where = f" in task {task!r}" if task else ""
        raise InputError(
            f"no pair is in all logs{where} (there are {first} and {second}, for instance); leave pair out: trials are "
            "then paired in their order"
        )
    index = np.array([[found[label] for label in common] for found in places])
    made = [trials if log.order is None else log.order[trials] for log, trials in zip(logs, index, strict=True)]
    return index[:, np.argsort(np.max(made, axis=0), kind="stable")]
