r"""What is known: rewards, policy, initial distribution, discount; and the value of a kernel under it.

Section 3 of the paper. The kernel p[s,a,x] (x the next state) is the unknown; a `Task` is everything else.
For a kernel q,

    V_q(s)  = sum_a pi(a|s) [ r(s,a) + gamma sum_x q(x|s,a) V_q(x) ],      V_q(rho) = sum_s rho_s V_q(s),
    d_q(x)  = rho_x + gamma sum_{s,a} d_q(s) pi(a|s) q(x|s,a).

Departures from the paper: rewards may depend on the next state; each row may declare its *support*, the
successors it can have; rho may have zeros and pi too (pairs with pi(a|s) = 0 do not matter and are ignored
everywhere). The occupancy d is *unnormalised*: it sums to 1/(1-gamma), the paper's is (1-gamma) times this.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Iterable, Sequence
from copy import copy
from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from scipy import sparse

from policytest._base import arrays
from policytest._base.arrays import AnyArray, AsArray, BoolArray, FloatArray, IntArray, Kernel, Table
from policytest._base.errors import InputError
from policytest._base.rows import Rows, flat, looping, stored_at
from policytest._base.table import Document
from policytest._base.text import plural
from policytest.mdp import horizon
from policytest.mdp.layout import Layout, support_sizes
from policytest.mdp.observed import Observed

DENSE_REWARD_LIMIT = 50_000_000
MOST_STEPS = 200_000_000  # entries of a table over steps, states and actions
_ARRAYS = ("policy", "initial", "support", "rewards", "available")


@dataclass(frozen=True, eq=False)
class Task:
    """A policy to be tested in an MDP whose transition kernel is unknown.

    Paper: section 3.1.

    Parameters
    ----------
    rewards
        r[s,a], or r[s,a,x] as an array [S,A,S] or a CSR array of shape (S*A, S). Any finite scale and sign. Or
        `Observed(low, high)` or `Observed(values=[...])`: rewards come with the data.
    policy
        pi[s,a], rows sum to 1.
    initial
        rho[s], sums to 1.
    discount
        gamma in [0, 1]. With 1 an episode must end: in a terminal state, or at the horizon.
    support
        Which successors a row may have: booleans [S,A,S], or a CSR array of shape (S*A, S); None: all.
        A row with a single allowed successor is a *known* row: it need not be sampled.
    states, actions
        Optional names.
    normalise
        Rescale the rows of ``policy`` and ``initial`` to sum to 1 (tables printed with few digits).
    terminal
        States, by name or index, in which an episode ends: they are followed by themselves, for good, at reward 0. The
        rows of such states are known, and need not be in any log.
    assumptions
        What the model rests on beyond what is said here, as sentences that can follow "if", such as "the cells are
        Markov". They change no number; every result repeats them: "proved, if the cells are Markov".
    available
        Booleans [S,A]: which actions there are in a state; None: all. The policy takes no other, nor do rows of logs.
    start
        The index of a state that only stands for the start of episodes: logs tell what follows it. See
        `policytest.sources.start_from_log`, which adds it.
    horizon
        The number of steps of an episode, if it is limited: V = E sum_{t < H} gamma^t r_t. None: no limit.
    total_rewards
        (low, high), with discount 1 and no horizon: the total reward of any episode lies between them.
    goal
        Terminal states whose reaching is what is paid; set by `Task.reaching`. An episode that starts in one of them
        has reached it: it has earned 1 before its first step.

    >>> task = Task(rewards=[[1.0], [0.0]], policy=[[1.0], [1.0]], initial=[1.0, 0.0], discount=0.5)
    >>> task.layout.value_ends[:2]
    (1.0, 2.0)
    """

    rewards: AsArray
    policy: AsArray
    initial: AsArray
    discount: float
    support: AsArray = None
    states: Sequence[Hashable] | None = None
    actions: Sequence[Hashable] | None = None
    normalise: InitVar[bool] = False
    terminal: Sequence[Hashable] | None = None
    assumptions: Sequence[str] = ()
    available: AsArray = None
    start: int | None = None
    horizon: int | None = None
    total_rewards: tuple[float, float] | None = None
    goal: Sequence[Hashable] | None = None
    agent_policy: ClassVar[str] = ""  # a table has one policy; see `Episodes`
    bounds: ClassVar[None] = None  # nor is the range of returns declared

    def __post_init__(self, normalise: bool) -> None:
        def put(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        policy = arrays.real_array("policy", self.policy, (None, None))
        if policy.shape[0] == 0 or policy.shape[1] == 0:
            raise InputError(f"policy has shape {policy.shape}; a task needs at least one state and one action")
        normalise = arrays.flag("normalise", normalise)
        policy = arrays.probability_rows("policy", policy, normalise)
        S, A = policy.shape
        initial = arrays.real_array("initial", self.initial, (S,))
        put("policy", policy)
        put("initial", arrays.probability_rows("initial", initial, normalise))
        put("discount", arrays.share("discount", self.discount))
        put("horizon", _horizon(self.horizon, S * A))
        put("total_rewards", _total_rewards(self.total_rewards, self))
        put("states", arrays.names("states", self.states, S))
        put("actions", arrays.names("actions", self.actions, A))
        put("assumptions", _assumptions(self.assumptions))
        put("available", _available(self.available, self))
        put("support", _support(self.support, self))
        put("terminal", _terminal("terminal", self.terminal))
        ends = _indices("terminal", self.terminal, self.states, S)
        if len(ends):
            put("support", _with_ends(self.support, ends, self))
        put("rewards", _rewards(self.rewards, self))
        if isinstance(self.rewards, Observed):
            put("rewards", self.rewards.without(ends))
        _check_ends(ends, self)
        put("goal", _terminal("goal", self.goal))
        if len(np.setdiff1d(self.goals, ends)):
            raise InputError("goal: these states must be terminal, and entering one earns 1; use Task.reaching")
        if self.start is not None and not 0 <= arrays.whole_number("start", self.start) < S:
            raise InputError(f"start is {self.start}; it is the index of a state, from 0 to {S - 1}")
        for name in _ARRAYS:
            arrays.freeze(getattr(self, name))
        if self.is_total:
            _check_totals(self)

    @classmethod
    def reaching(
        cls,
        goal: Sequence[Hashable],
        avoid: Sequence[Hashable] = (),
        *,
        policy: AsArray,
        initial: AsArray,
        within: int | None = None,
        support: AsArray = None,
        states: Sequence[Hashable] | None = None,
        **rest: Any,
    ) -> Task:
        """The task whose value is the probability of reaching a goal, before any state to avoid, within some steps.

        Reward 1 on entering a goal, and for an episode that starts in one; goals and states to avoid are terminal;
        discount 1. A state that is in both counts as reached, as in PCTL's ``!avoid U goal``, and a warning says so.
        ``rest`` are further arguments of `Task`: actions, normalise, assumptions, available.

        >>> task = Task.reaching([2], [1], policy=[[1.0]] * 3, initial=[1.0, 0.0, 0.0])
        >>> task.terminal, task.discount, task.layout.value_ends[:2]
        ((2, 1), 1.0, (0.0, 1.0))
        """
        S, A = arrays.real_array("policy", policy, (None, None)).shape
        names = arrays.names("states", states, S)
        both = ("goal", goal), ("avoid", avoid)
        goals, avoided = (_indices(name, _terminal(name, given), names, S) for name, given in both)
        if not len(goals):
            raise InputError("goal is empty; pass the states to reach, by name or by index")
        tell_of_both(np.intersect1d(goals, avoided), names)
        avoided = np.setdiff1d(avoided, goals)
        onward = np.setdiff1d(np.arange(S), np.concatenate([goals, avoided]))
        pairs = (onward[:, None] * A + np.arange(A)).ravel()
        if arrays.is_sparse(support):
            at_goal = np.isin(np.arange(S), goals).astype(np.float64)
            kept = np.isin(np.arange(S * A), pairs).astype(np.float64)
            rewards = sparse.csr_array(
                sparse.diags_array(kept) @ support.astype(np.float64) @ sparse.diags_array(at_goal)
            )
            rewards.eliminate_zeros()
        else:
            if S * A * S > DENSE_REWARD_LIMIT:
                raise InputError(f"support: with {S:,} states declare it as a SciPy CSR array of shape (S*A, S)")
            rewards = np.zeros((S, A, S))
            rewards.reshape(-1, S)[pairs[:, None], goals] = 1.0
        terminal = [*(_terminal("goal", goal) or ()), *(int(s) if names is None else names[s] for s in avoided)]
        rest = {"terminal": terminal, "horizon": within, "goal": goal, **rest}
        return cls(rewards, policy, initial, 1.0, support, states, **rest)

    def __getstate__(self) -> dict[str, object]:
        return {name: value for name, value in self.__dict__.items() if name != "layout"}

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        for name in _ARRAYS:
            arrays.freeze(getattr(self, name))

    @property
    def n_states(self) -> int:
        """S."""
        return int(self.policy.shape[0])

    @property
    def n_actions(self) -> int:
        """A."""
        return int(self.policy.shape[1])

    @property
    def is_discounted_table(self) -> bool:
        """Whether all is as in the paper: a discount below 1, no horizon, known rewards."""
        return self.discount < 1.0 and self.horizon is None and not self.observes_rewards

    @property
    def is_total(self) -> bool:
        """Whether the value is the total of an episode that only terminal states end: discount 1, no horizon."""
        return self.discount == 1.0 and self.horizon is None

    @property
    def goals(self) -> IntArray:
        """The indices of the states to reach; none where the value is not the probability of that."""
        return _indices("goal", self.goal, self.states, self.n_states)

    @property
    def reached_at_start(self) -> float:
        """The probability that an episode starts in the goal, which it then has reached: a part of every value."""
        return float(self.initial[self.goals].sum()) if self.goal else 0.0

    @property
    def observes_rewards(self) -> bool:
        """Whether rewards come with the data."""
        return isinstance(self.rewards, Observed)

    @property
    def steps(self) -> int | None:
        """The steps of an episode with a horizon, and the one from an added start; None without a horizon."""
        return None if self.horizon is None else self.horizon + (self.start is not None)

    @property
    def expected_steps(self) -> float:
        """A bound on sum_t gamma^t, for errors; of totals, which have none, the number of states."""
        if self.steps is not None:
            return float(self.steps)
        return 1.0 / (1.0 - self.discount) if self.discount < 1.0 else float(self.n_states)

    @property
    def reward_table(self) -> Table:
        """The rewards; not numbers on [S,A] where they are observed, so that nothing can be computed from them."""
        return np.full(self.policy.shape, np.nan) if self.observes_rewards else self.rewards

    @property
    def rewards_on_successor(self) -> bool:
        """Whether the reward is a table on the next state too, r[s,a,x]."""
        return arrays.is_sparse(self.rewards) or (not self.observes_rewards and self.rewards.ndim == 3)

    @property
    def any_successor(self) -> bool:
        """Whether any state may follow any pair, at the same reward: no support, and rewards on (s,a)."""
        return self.support is None and not self.rewards_on_successor

    @property
    def reward_scale(self) -> float:
        """What is paid for a transition, in units of the task's reward: an added start costs a step of discounting."""
        return 1.0 if self.start is None else self.discount

    @property
    def known_rows(self) -> arrays.BoolArray:
        """[S,A] rows with a single allowed successor, and a known reward: nothing about them is unknown."""
        known: arrays.BoolArray = np.full((self.n_states, self.n_actions), self.n_states == 1)
        if self.support is not None:
            known = np.asarray(support_sizes(self.support) == 1).reshape(self.n_states, self.n_actions)
        return known & (self.rewards.low == self.rewards.high) if self.observes_rewards else known

    @property
    def ends(self) -> list[int]:
        """States in which episodes end: whatever is done they are followed by themselves, at reward 0."""
        if self.support is None:
            return []
        closed = np.flatnonzero(self.known_rows.all(axis=1))
        stays = _at_loops(self.support, closed, self).all(axis=1)
        tables = [self.rewards.low, self.rewards.high] if self.observes_rewards else [self.rewards]
        return [
            int(s) for s in closed[stays & ~np.any([_at_loops(t, closed, self).any(axis=1) for t in tables], axis=0)]
        ]

    @property
    def reward_bounds(self) -> tuple[float, float]:
        """The smallest and the largest reward of pairs with pi > 0 and allowed successors."""
        if isinstance(self.rewards, Observed):
            taken = self.policy > 0
            return float(self.rewards.low[taken].min()), float(self.rewards.high[taken].max())
        listed = self.layout.rows.gain if self.rewards_on_successor else self.layout.pairs.reward
        return float(listed.min()), float(listed.max())

    @cached_property
    def layout(self) -> Layout:
        """The pairs that the policy takes, numbered, with their allowed successors; made on first use."""
        return Layout(self)

    def centred(self, threshold: float) -> Task:
        """The same task with rewards r - (1-gamma) R, whose values are V - R: near R no digits are lost.

        It declares no terminal states: what follows them earns -(1-gamma) R here, not 0. The last one is kept.

        Paper: footnote 1 of section 3.2.
        """
        self.check_discounted_table("this method", self._remedy)
        return self.layout.kept(("centred", threshold), lambda: self._shifted(threshold))

    def _shifted(self, threshold: float) -> Task:
        shift = (1.0 - self.discount) * threshold
        if arrays.is_sparse(self.rewards):  # successors without a stored reward earn 0
            allowed = flat(self.support, self.n_states)
            rewards = sparse.csr_array(self.rewards.multiply(allowed) - shift * allowed.astype(np.float64))
            rewards.sum_duplicates()
        else:
            rewards = self.rewards - shift
        arrays.freeze(rewards)
        task = copy(self)  # without its layout; all else is checked already
        object.__setattr__(task, "rewards", rewards)
        object.__setattr__(task, "terminal", None)
        task.layout.take_over(self.layout, threshold)
        return task

    def check_discounted_table(self, what: str, remedy: str = "use the default method, or TDBetting()") -> None:
        """Refuse a task with observed rewards, a horizon or discount 1, where the discounted table is needed."""
        if self.is_discounted_table:
            return
        has = "observed rewards" if self.observes_rewards else "a horizon" if self.horizon else "discount 1"
        raise InputError(
            f"the task has {has}, and {what} needs known rewards, a discount below 1 and no horizon; {remedy}"
        )

    @property
    def _remedy(self) -> str:
        listed = ", or list the values of rewards, Observed(values=[...])" if self.observes_rewards else ""
        return "use the default method, or TDBetting()" + (listed if self.discount < 1 and not self.horizon else "")

    def state_name(self, s: int) -> str:
        """A state in words, with its name where the task has one."""
        return _label(s, self.states)

    def place(self, pair: int, successor: int | None = None) -> str:
        """A state-action pair (and successor) in words, with names where the task has them."""
        return Names(self.states, self.actions).place(*divmod(int(pair), self.n_actions), successor)

    def check_kernel(self, name: str, kernel: object) -> Kernel:
        """A kernel in one of the two forms, every row with pi > 0 a probability vector."""
        checked = arrays.kernel(name, kernel, self.n_states, self.n_actions)
        return arrays.kernel_rows(name, checked, self.layout.pairs.pair, self.n_states, self.place)

    def check_support(self, name: str, counts: Kernel) -> None:
        """Refuse counts of transitions, from pairs that the policy takes, which the support excludes."""
        if self.support is None:
            return
        seen = flat(counts, self.n_states)
        outside = (seen - seen.multiply(flat(self.support, self.n_states))).tocoo()
        wrong = (outside.data > 0) & (self.policy.ravel()[outside.row] > 0)
        if (first := arrays.first(wrong)) is not None:
            place = self.place(outside.row[first], outside.col[first])
            raise InputError(
                f"{name} has {outside.data[first]:.0f} times the transition {place}, which is outside the support of "
                "the task; fix the data or widen the support"
            )

    def rows_of(self, name: str, kernel: Kernel) -> tuple[Rows, FloatArray, bool]:
        """The listed rows for a checked kernel, its entries on them, and whether the rows are open."""
        is_open = arrays.is_sparse(kernel) and self.any_successor
        if is_open:
            stored = kernel[self.layout.pairs.pair]
            rows = self.layout.listed(np.diff(stored.indptr), stored.indices)
        else:
            rows = self.layout.rows
        return rows, rows.gather(name, kernel, self.n_states, self.place), is_open


class Names(NamedTuple):
    """What a saved result keeps of its task: the names of states and actions, the assumptions, which policy was run."""

    states: Sequence[Hashable] | None
    actions: Sequence[Hashable] | None
    assumptions: tuple[str, ...] = ()
    agent_policy: str = ""
    rivals: tuple[str, ...] = ()
    bounds: None = None

    def place(self, s: int, a: int, x: int | None = None) -> str:
        """A state, an action (and a next state) in words, with names where there are some."""
        words = [f"s={_label(s, self.states)}", f"a={_label(a, self.actions)}"]
        if x is not None:
            words.append(f"x={_label(x, self.states)}")
        return f"({', '.join(words)})"


class Described(Protocol):
    """What a result says of its task, of episodes, or of a log of them."""

    @property
    def states(self) -> Sequence[Hashable] | None:
        """The names of states."""

    @property
    def actions(self) -> Sequence[Hashable] | None:
        """The names of actions."""

    @property
    def assumptions(self) -> Sequence[str]:
        """What a guarantee rests on."""

    @property
    def agent_policy(self) -> str:
        """Which policy of an agent was run, where it has two."""


def counting_task(task: Task) -> Task:
    """The discounted table with the same rows, start and policy, and nothing to earn: for counting transitions."""
    return Task(np.zeros(task.policy.shape), task.policy, task.initial, 0.0, task.support)


def about_task(task: Described) -> Document:
    """What the JSON of a result says of its task; `Names` is made of it."""
    labels = {"states": task.states, "actions": task.actions}
    names = {key: None if given is None else [str(label) for label in given] for key, given in labels.items()}
    found: Document = {**names, "assumptions": list(task.assumptions)}
    found |= {"agent_policy": task.agent_policy} if task.agent_policy else {}
    return found | ({"rivals": list(rivals)} if (rivals := rivals_of(task)) else {})


def rivals_of(task: Described) -> tuple[str, ...]:
    """What two agents that are compared are called; () where they have no names."""
    found: tuple[str, ...] = getattr(task, "rivals", ())
    return found


def given(assumptions: Sequence[str]) -> str:
    """The end of a sentence that says what is proved.

    >>> "proved" + given(()), "proved" + given(["the cells are Markov"])
    ('proved', 'proved, if the cells are Markov')
    """
    between = ", and " if any("," in words for words in assumptions) else " and "
    return f", if {between.join(assumptions)}" if assumptions else ""


def _terminal(name: str, given: object) -> tuple[Hashable, ...] | None:
    """The states at which episodes end, as declared."""
    if given is None:
        return None
    if isinstance(given, str) or not isinstance(given, Sequence | np.ndarray):
        raise InputError(f"{name} is {arrays.shown(given)}; pass a list of states, by name or by index")
    return tuple(label.item() if isinstance(label, np.generic) else label for label in given)


def _indices(name: str, given: Sequence[Hashable] | None, states: Sequence[Hashable] | None, S: int) -> IntArray:
    """The indices of these states, given by name or index, in increasing order."""
    places: dict[Hashable, int] = {label: index for index, label in enumerate(states or ())}
    found = []
    for place, label in enumerate(given or ()):
        index = places.get(label, label) if isinstance(label, Hashable) else label
        if not isinstance(index, int) or isinstance(index, bool) or not 0 <= index < S:
            known = f"the states are {', '.join(map(repr, states[:5]))}, ..." if states else "use an index"
            raise InputError(
                f"{name}[{place}] is {arrays.shown(label)}, which is not a state; {arrays.shown(known, str)}"
            )
        found.append(index)
    return np.unique(np.array(found, dtype=np.int64))


def _with_ends(support: Table, ends: IntArray, task: Task) -> Table:
    """The support in which terminal states are followed by themselves alone."""
    S, A = task.n_states, task.n_actions
    if arrays.is_sparse(support):
        return _support(looping(support.astype(np.float64), ends), task)
    if support is None and S * A * S > DENSE_REWARD_LIMIT:
        raise InputError(
            f"terminal: with {S:,} states and any successor, {S * A * S:,} entries would be needed; declare `support` "
            "as a SciPy CSR array, in which rows of terminal states have themselves alone"
        )
    return looping(np.ones((S, A, S), dtype=bool) if support is None else support, ends)


def _at_loops(table: Table, states: IntArray, task: Task) -> AnyArray:
    """[n,A] the entries of a table (rewards, support) where these states are followed by themselves."""
    if not arrays.is_sparse(table):
        return np.asarray(table[states] if table.ndim == 2 else table[states, :, states])
    pairs = states[:, None] * task.n_actions + np.arange(task.n_actions)
    return stored_at(table, (pairs * task.n_states + states[:, None]).ravel()).reshape(pairs.shape)


def _check_ends(ends: IntArray, task: Task) -> None:
    """Nothing is earned once an episode has ended."""
    if task.observes_rewards:
        return
    earned = _at_loops(task.rewards, ends, task)
    if (place := arrays.first_place((earned != 0) & (task.policy[ends] > 0))) is not None:
        at, a = place
        raise InputError(
            f"terminal: rewards at (s={ends[at]}, a={a}) are {earned[at, a]:g}, but nothing is earned after the end; "
            "put what the end earns on the transition that leads there, or leave the state out of terminal"
        )


def _assumptions(given: object) -> tuple[str, ...]:
    if isinstance(given, str) or not isinstance(given, Iterable) or not all(isinstance(one, str) for one in given):
        raise InputError(f'assumptions is {given!r}; pass a list of sentences, such as ["the cells are Markov"]')
    return tuple(given)


def _horizon(horizon: object, pairs: int) -> int | None:
    if horizon is None:
        return None
    if (steps := arrays.whole_number("horizon", horizon)) < 1:
        raise InputError(f"horizon is {horizon}; it is the number of steps of an episode, at least 1, or None")
    if steps * pairs > MOST_STEPS:
        raise InputError(
            f"horizon is {steps:,}: tables by step and pair would have {steps * pairs:,} entries; pass at most "
            f"{MOST_STEPS // pairs:,} steps, or no horizon (with a discount below 1, or with terminal states)"
        )
    return steps


def _total_rewards(given: object, task: Task) -> tuple[float, float] | None:
    if given is None:
        return None
    low, high = (float(end) for end in arrays.real_array("total_rewards", given, (2,)))
    if not low < high:
        raise InputError(f"total_rewards is ({low:g}, {high:g}); pass (low, high) with low < high")
    if not task.is_total:
        raise InputError("total_rewards is for discount 1 without a horizon; leave it out")
    return low, high


def tell_of_both(both: IntArray, states: Sequence[Hashable] | None) -> None:
    """Warn that a state which is a goal and to be avoided counts as reached, as in PCTL's ``!avoid U goal``."""
    if len(both):
        more = f" and {plural(len(both) - 1, 'more state')}" if len(both) > 1 else ""
        warnings.warn(
            f"goal and avoid both have the state {_label(int(both[0]), states)}{more}: entering it counts as reaching "
            "the goal, as in PCTL's !avoid U goal",
            stacklevel=3,
        )


def _check_totals(task: Task) -> None:
    """Without a discount and a horizon episodes end in terminal states, and their total has a bound on some side."""
    if not task.ends:
        raise InputError(
            "discount is 1 and no state is terminal, so that episodes never end and values may be infinite; pass a "
            "discount below 1, a horizon, or the terminal states"
        )
    if task.total_rewards is None and not any(np.isfinite(task.layout.value_ends[:2])):
        raise InputError(
            "discount is 1 and the total of an episode may be infinite on both sides: rewards and costs can go on for "
            f"ever; {horizon.REMEDIES}"
        )


def _available(available: object, task: Task) -> BoolArray | None:
    """[S,A] which actions there are; refused if the policy takes another."""
    if available is None:
        return None
    table = truth_table("available", arrays.real_array("available", available, task.policy.shape))
    if (place := arrays.first_place((task.policy > 0) & ~table)) is not None:
        s, a = place
        there = ", ".join(_label(int(k), task.actions) for k in np.flatnonzero(table[s])[:8]) or "none"
        raise InputError(
            f"policy takes {task.place(s * task.n_actions + a)} with probability {task.policy[s, a]:.6g}, but that "
            f"action is not available there; the actions there are: {there}"
        )
    return table


def truth_table(name: str, table: FloatArray, places: bool = True) -> arrays.BoolArray:
    """Ones and zeros as booleans; an error names the place of another number, if there are ``places`` to name."""
    if (place := arrays.first_place(~np.isin(table, (0.0, 1.0)))) is not None:
        where = place if places else ""
        raise InputError(f"{name}{where} is {table[tuple(place)]:.6g}; expected True and False (or 1 and 0)")
    return table > 0


def _support(support: Table, task: Task) -> Table:
    if support is None:
        return None
    S, A = task.n_states, task.n_actions
    if arrays.is_sparse(support):
        allowed = arrays.csr("support", support, (S * A, S))
        allowed.eliminate_zeros()
        truth_table("support", allowed.data, places=False)
        allowed = allowed.astype(bool)
    else:
        allowed = truth_table("support", arrays.real_array("support", support, (S, A, S)))
    if (pair := arrays.first((support_sizes(allowed) == 0) & (task.policy.ravel() > 0))) is not None:
        raise InputError(f"support at {task.place(pair)} allows no successor; every pair the policy takes needs one")
    return allowed


def _rewards(rewards: Table, task: Task) -> Table | Observed:
    S, A = task.n_states, task.n_actions
    if isinstance(rewards, Observed):
        return rewards.filled((S, A))
    if arrays.is_sparse(rewards):
        table = arrays.csr("rewards", rewards, (S * A, S))
        if task.support is not None:
            return table
        if S * A * S > DENSE_REWARD_LIMIT:
            raise InputError(
                f"rewards is sparse while any of {S} states may follow any pair; declare `support` "
                "(successors without a stored reward would earn 0), or pass rewards as [S,A]"
            )
        return table.toarray().reshape(S, A, S)
    array = arrays.real_array("rewards", rewards)
    arrays.check_shape("rewards", array.shape, (S, A, S) if array.ndim == 3 else (S, A))
    return array


def _label(index: int, labels: Sequence[Hashable] | None) -> str:
    return str(index) if labels is None else f"{index} {labels[index]!r}"
