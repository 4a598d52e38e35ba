r"""Minari datasets: recorded episodes, as the log of a task.

    lake = sources.gymnasium("FrozenLake-v1", policy, discount=0.99)
    data = sources.minari("lake/random-v0", lake)
    assess(lake.task, data.transitions(), threshold=0.3)
    data.diagnose()

An episode of T steps has T actions and T+1 observations; step t is the transition (o_t, a_t, o_{t+1}).

*Terminated* episodes end: the last step leads to the final observation, which in the task must be an end, absorbing
with reward 0, or to a state "ended" that is added; nothing is recorded after it. *Truncated* episodes do not end: their
last step is a transition like any other, and what would have followed is simply not there. So a time limit never
counts as an end, just as in `policytest.sources.gymnasium`.

Where a task is made here and the start is not given, each episode also tells where it began: a transition from an
added state "start", which does not depend on what happened in the episode.

Episodes are taken in the order of their ids. For methods that look at the data in order that is right only if ids were
given when episodes *began*, and each began after the one before had ended, or the rule that chose the actions learnt
nothing from other episodes. Ids given at the end (several environments recorded at once) put short episodes first, and
then the order tells about outcomes.

A dataset that is a selection of the episodes of another one (`filter_episodes`) may have been selected by outcome: it
warns, and no answer from it is certified.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import IntArray
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.rows import entries_at
from policytest._base.table import Row, Table
from policytest._base.text import plural
from policytest.data.transitions import Transitions
from policytest.mdp.task import Task
from policytest.questions.diagnose import PERIODS, diagnose
from policytest.results.diagnosis import Diagnosis
from policytest.sources.checks import ROUNDING, check_support, first_other, wrong_reward
from policytest.sources.environments.bins import SAME_EFFECT, Bins
from policytest.sources.environments.gymnasium import Environment
from policytest.sources.environments.minari_episodes import Steps, numbers, open_dataset, read
from policytest.sources.environments.stepping import Given, SteppedStates, stepped_task
from policytest.sources.labels import Places, places_in
from policytest.sources.logged.counting import new_counts
from policytest.sources.logged.log import Log
from policytest.sources.logged.paths import File
from policytest.sources.tasks.by_name import Content
from policytest.sources.tasks.policy import places_shown

SETTINGS = ("policy", "discount", "rewards", "initial", "terminal", "states", "actions")


@dataclass(frozen=True, eq=False)
class Dataset(Log):
    """A log with its task and its episodes.

    Attributes
    ----------
    task
        What the transitions belong to.
    name
        Of the dataset.
    episodes
        The id of the episode of each transition.
    ended, cut
        Episodes that terminated, and episodes that did not.
    """

    task: Task = field(default=None, repr=False)  # type: ignore[assignment]
    name: str = ""
    episodes: IntArray = field(default_factory=lambda: np.zeros(0, np.int64), repr=False)
    recorded: Transitions = field(default=None, repr=False)  # type: ignore[assignment]
    ended: int = 0
    cut: int = 0

    def transitions(self, by_episode: bool = True) -> Transitions:
        """The transitions, one episode after another in the order of their ids.

        Right for methods that look at them in order only if ids were given when episodes began, and each began after
        the one before had ended, or the rule that chose the actions learnt nothing from other episodes.
        """
        return replace(self.recorded, cells=self.counts.cells, episode=self.episodes)

    def diagnose(self, periods: int = PERIODS, level: float = 0.05) -> Diagnosis:
        """Do the transitions look Markov and stationary? See `policytest.diagnose`."""
        return diagnose(self.task, self.recorded, self.episodes, periods, level)

    @cached_property
    def summary(self) -> Table:
        """The log, and how its episodes ended."""
        table = Log.summary.func(self)  # type: ignore[attr-defined]
        total = self.ended + self.cut
        rows = (
            Row("episodes", self._number(total), key="episodes", raw=self._raw(total)),
            Row("terminated", self._number(self.ended), "their last step is an end", "ended", self._raw(self.ended)),
            Row("not terminated", self._number(self.cut), "truncated, which is not an end", "cut", self._raw(self.cut)),
        )
        kept = tuple(row for row in table.rows if row.key not in ("n_files",))
        title = table.title.replace("from 1 file", f"from the dataset {self.name}")
        return Table(title, (*rows, *kept), table.notes)


def minari(
    dataset: object,
    task: Task | Environment | None = None,
    *,
    policy: object = None,
    discount: float | None = None,
    rewards: object = None,
    initial: object = None,
    terminal: object = None,
    states: Sequence[Hashable] | None = None,
    actions: Sequence[Hashable] | None = None,
    bins: Bins | None = None,
    action_bins: Bins | None = None,
    check_rewards: bool = True,
    reward_tolerance: float = 1e-6,
) -> Dataset:
    """The transitions of a Minari dataset, as the log of a task.

    Parameters
    ----------
    dataset
        A Minari dataset, or the id of one that is on this machine (``MINARI_DATASETS_PATH``); nothing is downloaded.
    task
        A `Task` with one state for each observation, in which final observations are ends; or what
        `policytest.sources.gymnasium` made of the environment. None: the task is made of what follows.
    policy, discount, rewards, initial, terminal, states, actions
        As in `policytest.sources.gymnasium` for an environment that is stepped. Rewards must be given: those in the
        data say nothing about transitions that did not occur.
    bins, action_bins
        For observations or actions that are not Discrete: what `policytest.sources.discretise` made.
    check_rewards, reward_tolerance
        Whether to refuse data whose rewards are not the task's, and how far they may be from them, in absolute or
        relative terms (environments often pay in single precision). If they differ and are not refused, no answer from
        the data is certified.
    """
    settings = dict(zip(SETTINGS, (policy, discount, rewards, initial, terminal, states, actions), strict=True))
    tolerance = arrays.real_number("reward_tolerance", reward_tolerance)
    source = open_dataset(dataset)
    name = str(getattr(source, "id", None) or getattr(getattr(source, "spec", None), "dataset_id", "of episodes"))
    observations = numbers(source, "observation_space", bins, "bins")
    codes = numbers(source, "action_space", action_bins, "action_bins")
    at, made, layout = _task(task, settings, observations, codes, bins)
    if made.observes_rewards or (layout is not None and layout.asked.goal is not None):
        raise InputError("rewards of a dataset's task are known: r[s,a], r[s,a,x] or a function of (s, a, next state)")
    rests_on = (*(bins.assumptions if bins else ()), *((SAME_EFFECT,) if action_bins else ()))
    if rests_on:
        made = replace(made, assumptions=tuple(dict.fromkeys((*made.assumptions, *rests_on))))
    steps = read(source, observations, codes, bins, action_bins)
    if not len(steps.s):
        raise InputError(f"dataset {name} has no steps; there is nothing to count")
    x = _arrivals(made, at, layout, steps)
    pairs = steps.s * at.n_actions + steps.a
    check_support(made, pairs, x, made.policy.ravel() > 0, lambda i: f"episode {steps.episode[i]} has")
    other = _compared(made, at, layout, steps, tolerance if check_rewards else None, name)
    return _log(source, name, made, layout, steps, x, other)


# ---------------------------------------------------------------- the task


def _task(
    task: Task | Environment | None, settings: Content, observations: range, codes: range, bins: Bins | None
) -> tuple[Places, Task, SteppedStates | None]:
    S, A = len(observations), len(codes)
    if task is not None:
        extra = [name for name, value in settings.items() if value is not None]
        if extra:
            raise InputError(f"{extra[0]} is for a task that is made here; a task is given, which has its own")
        known = (task.task, task.simulator) if isinstance(task, Environment) else (task, None)
        made, layout = known[0], getattr(known[1], "layout", None)
        arrays.instance("task", made, Task)
        sizes = (made.n_states if layout is None else layout.S, made.n_actions)
        if sizes != (S, A):
            raise InputError(
                f"the dataset has {plural(S, 'observation')} and {plural(A, 'action')}, the task has {sizes[0]} and "
                f"{sizes[1]}; pass the task of this environment, or policy, rewards and discount"
            )
        return places_shown(observations, codes), made, layout
    for name in ("policy", "rewards", "discount"):
        if settings[name] is None:
            raise InputError(f"{name} is missing; pass a task, or policy, rewards and discount to make one")
    names = settings["states"] if settings["states"] is not None or bins is None else bins.states
    at = places_shown(observations, codes, names, settings["actions"])
    return at, *stepped_task(at, Given(*(settings[name] for name in Given._fields[:5])))[:2]


def _arrivals(task: Task, at: Places, layout: SteppedStates | None, steps: Steps) -> IntArray:
    """The state of the task that each step leads to."""
    if layout is None:
        for s in np.unique(steps.x[steps.terminated]):
            _check_end(task, at, steps, int(s))
        return steps.x
    if layout.terminal is None:
        ended = layout.S + (steps.x if layout.copies else 0)
        return np.where(steps.terminated, ended, steps.x)
    if (i := arrays.first(steps.terminated != layout.terminal[steps.x])) is not None:
        layout.arrival(int(steps.s[i]), int(steps.a[i]), int(steps.x[i]), bool(steps.terminated[i]), at)
    return steps.x


def _check_end(task: Task, at: Places, steps: Steps, s: int) -> None:
    """Refuse a final observation that is not an end in the task, or from which other episodes went on."""
    onwards = np.flatnonzero(steps.s == s)
    if onwards.size:
        raise InputError(
            f"observation {at.states.numbers[s]} ends episode "
            f"{steps.episode[(steps.x == s) & steps.terminated][0]}, but "
            f"episode {steps.episode[onwards[0]]} goes on from it: it is not always an end; leave the task out and "
            "pass policy, rewards and discount, and ends become states of their own"
        )
    pairs = s * task.n_actions + np.flatnonzero(task.policy[s] > 0)
    rewards = entries_at(task.rewards, pairs, np.full(len(pairs), s))
    allowed = task.support is not None and entries_at(task.support, pairs, np.full(len(pairs), s)).all()
    stays = allowed and task.known_rows.ravel()[pairs].all()
    if not stays or (rewards != 0).any():
        raise InputError(
            f"observation {at.states.numbers[s]} ends episodes, but the task goes on from it"
            + (f" and pays {rewards[rewards != 0][0]:.6g}" if stays else "")
            + "; let its row allow only itself, with reward 0, or leave the task out and pass policy, rewards, discount"
        )


# ---------------------------------------------------------------- checks


def _compared(
    task: Task, at: Places, layout: SteppedStates | None, steps: Steps, tolerance: float | None, name: str
) -> bool:
    """Whether the dataset pays other rewards than the task, beyond rounding, where the policy goes; warns if so.

    With a ``tolerance`` rewards that vary given (s, a, next state), or are further from the task's, are refused.
    """
    pair = steps.s * at.n_actions + steps.a
    expected = entries_at(task.rewards if layout is None else layout.rewards, pair, steps.x)
    matters = task.policy[steps.s, steps.a] > 0
    i = None if tolerance is None else first_other(expected, steps.reward, steps.reward, tolerance, matters)
    if i is not None and tolerance is not None:
        paid = steps.reward[(pair == pair[i]) & (steps.x == steps.x[i])]
        place = at.place(int(steps.s[i]), int(steps.a[i]), int(steps.x[i]))
        wrong = wrong_reward("the reward in the dataset", place, expected[i], paid.min(), paid.max(), tolerance)
        raise InputError(
            f"{wrong}. Estimated rewards, such as means of these, void the guarantee; with check_rewards=False no "
            "answer is certified"
        )
    if first_other(expected, steps.reward, steps.reward, ROUNDING, matters) is None:
        return False
    warnings.warn(
        f"the rewards in the dataset {name} differ from the task's: no answer from it is certified",
        AssumptionWarning,
        stacklevel=3,
    )
    return True


# ---------------------------------------------------------------- the log


def _log(
    source: object, name: str, task: Task, layout: SteppedStates | None, steps: Steps, x: IntArray, other_rewards: bool
) -> Dataset:
    s, a, episode = steps.s, steps.a, steps.episode
    if layout is not None and layout.start >= 0:  # each episode first tells where it begins
        at = np.flatnonzero(steps.first)
        x = np.insert(x, at, s[at])
        episode = np.insert(episode, at, episode[at])
        s, a = np.insert(s, at, layout.start), np.insert(a, at, 0)
    selected = _is_selection(source, name)
    recorded = Transitions(s, a, x, None, selected, other_rewards)
    counts = new_counts(task, selected, other_rewards)
    counts.record(s, a, x)
    taken = task.layout.unknown_pairs.ravel()
    ends = np.append(np.flatnonzero(steps.first)[1:] - 1, len(steps.s) - 1)
    ended = int(steps.terminated[ends].sum())
    mark = hashlib.blake2b(digest_size=16)
    for column in (s, a, x, episode):
        mark.update(np.ascontiguousarray(column).tobytes())
    return Dataset(
        counts=counts,
        rows=len(s),
        used=len(s),
        left_out=(),
        idle=int((~taken[s * task.n_actions + a]).sum()),
        files=(File(name, 4 * s.nbytes, mark.hexdigest()),),
        at=places_in(task),
        taken=taken,
        task=task,
        name=name,
        episodes=episode,
        recorded=recorded,
        ended=ended,
        cut=len(ends) - ended,
    )


def _is_selection(source: object, name: str) -> bool:
    """A dataset can be a selection of the episodes of another one; by what, it does not say."""
    everything = getattr(getattr(source, "storage", None), "total_episodes", None)
    chosen: Iterator[int] | None = getattr(source, "episode_indices", None)
    if everything is None or chosen is None or len(list(chosen)) >= int(everything):
        return False
    warnings.warn(
        f"dataset {name} is a selection of its {int(everything):,} episodes; if they were chosen by what happened in "
        "them, delta bounds nothing, and no answer from it is certified",
        AssumptionWarning,
        stacklevel=4,
    )
    return True
