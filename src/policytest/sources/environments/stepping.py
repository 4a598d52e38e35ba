r"""An environment without a table, as a simulator: it is stepped, episode by episode, and nothing else.

*Drawing.* Asked for a successor of (s, a), the simulator steps the environment with a if it stands in s. If not, it
brings it there by episodes from `reset` under the policy, until s is met, and then steps. By the strong Markov property
the step has the law p(.|s,a), whatever happened before: the time at which s is met depends on the past only. So every
answer is a fresh draw, and any method may ask for any pair. Methods that follow trajectories (betting, which is the
default of `decide`, and `Forward`) ask for the pair at which the environment stands anyway, and waste nothing; an
allocation that jumps about, such as "uniform", spends most steps on the way. They count as samples like all others.

*Starts.* The law of `reset` is part of what is unknown. The task has one more state, "start": its reward is 0, and its
successor is drawn by `reset`. All other rewards are divided by gamma, so that

    V(start) = 0 + gamma sum_x p(x|start) V(x)/gamma = V(rho).

If ``initial`` is given it is taken to be the law of `reset`, and there is no such state; an episode that starts in s is
then found by resetting until s comes up, 1/rho(s) times on average.

*Ends.* An episode that terminates at x has reached an absorbing state with reward 0. Which one? If ``terminal`` lists
the states that end episodes, x itself; a termination elsewhere is an error, and so is none there. Otherwise, with
rewards on (s,a), one state "ended" for all; with rewards on (s,a,x), a copy (x, "ended") of each state. All of it is
known. A *truncated* episode has not ended: its last transition counts as any other, and a new episode begins.

*Rewards* that are known are compared with those that are paid at every step. With `Observed(low, high)` those that are
paid are handed on, divided by gamma where "start" is a state.

*Goals.* An episode is over for the task when it enters a goal, or a state to avoid, whether the environment ends it
there or not; an episode that terminates elsewhere has failed. What the environment pays does not matter then.

*A horizon* of H steps is one of H + 1 steps where "start" is a state.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest.data.shared_generators import by_one_thread
from policytest.data.simulators import cumulative
from policytest.data.walks import TERMINATED, TRUNCATED, first_observation, five_parts, truth
from policytest.mdp.observed import Observed
from policytest.mdp.task import Task
from policytest.questions.cells import has_cells
from policytest.sources.checks import close
from policytest.sources.environments.stepped_copies import Moved, SteppedCopies
from policytest.sources.environments.table import asked_task, check_size, differs, full_support, state_index
from policytest.sources.labels import Places
from policytest.sources.tasks.by_name import Content
from policytest.sources.tasks.policy import policy_table

Drawn: TypeAlias = IntArray | tuple[IntArray, FloatArray]
"""Next states; with the rewards, where these are observed."""
FUNCTION_LIMIT = 5_000_000  # calls of a function of (s, a, next state)
OBSERVATIONS_ARE_MARKOV = "what follows depends on the observation and the action alone"
LONGEST_WAY = 1_000_000  # steps, or resets, to a state that is asked for


class Stepped(Protocol):
    """What is used of a Gymnasium environment."""

    def reset(self, *, seed: int | None = None) -> object:
        """A new episode: the observation, and more."""

    def step(self, action: int) -> object:
        """The observation, the reward, whether the episode ended or was cut, and more."""


class Stepping:
    """A simulator that steps an environment; see the module.

    ``steps`` and ``resets`` say how often the environment was moved, on the way to the pairs asked for as well;
    ``extra_steps`` are those on the way (with resets, where the start is a state of the task), which count as samples.
    ``truncations`` says how many steps were truncated. The environment is seeded from the generator it is first called
    with, and again whenever that is another one: a run with a seed can be repeated. It can be resumed too,
    but goes on with a new episode, and so in another way than it would have without the interruption.
    """

    def __init__(self, env: Stepped, at: Places, task: Task, layout: SteppedStates, policy: FloatArray) -> None:
        self.env, self.at, self.layout = env, at, layout
        self.n_states, self.n_actions = task.n_states, task.n_actions
        self.steps = self.resets = self.extra_steps = self.truncations = 0
        self._actions = cumulative(policy)
        self._rng: Any = None
        self._seed: int | None = None  # of the next reset, if that begins a rollout of a copy
        self._state = -1  # where the environment stands; -1: nowhere, the episode is over
        self._paid = 0.0  # for the last step
        self._before = -1, -1  # the pair of the step before in the episode
        self._has_cells = has_cells(task)
        self._begin()

    def draw(self, states: IntArray, actions: IntArray, rng: np.random.Generator) -> Any:
        """The next state of each pair; and the rewards, where these are observed."""
        with by_one_thread(self, "the simulator, which steps an environment,"):
            return self._drawn(states, actions, rng)

    def _drawn(self, states: IntArray, actions: IntArray, rng: np.random.Generator) -> Drawn:
        if rng is not self._rng:
            self._rng, self._state = None, -1
            self._begin()
            seed = int(rng.integers(2**31 - 1))
            self._reset(seed)
            self._rng = rng
        found, paid = list[int](), list[float]()
        for s, a in zip(states, actions, strict=True):
            self._paid = 0.0
            found.append(self._counted(int(s), int(a)))
            paid.append(self._paid * self.layout.scale)
        x = np.array(found, dtype=np.int64)
        return (x, np.array(paid)) if isinstance(self.layout.rewards, Observed) else x

    def _counted(self, s: int, a: int) -> int:
        """The next state; what else the environment did on the way is counted apart."""
        before = self._moves
        try:
            x = self._next(s, a)
        except BaseException:
            self.extra_steps += self._moves - before
            raise
        self.extra_steps += max(self._moves - before - 1, 0)
        return x

    # ------------------------------------------------------------ many rollouts at once

    def in_processes(self, workers: int) -> SteppedCopies:
        """So many copies, each in a process of its own."""
        return SteppedCopies(self, workers)

    def start_again(self, seed: int) -> None:
        """A copy begins a rollout: its random numbers, and those of its environment, are those of this seed."""
        self._rng, self._state = np.random.default_rng(seed), -1
        self._seed = int(self._rng.integers(2**31 - 1))

    def next(self, s: int, a: int) -> tuple[Any, Counter[tuple[int, ...]]]:
        """What a copy answers, and the steps that were made, as `walked` has them."""
        self._begin()
        return self.draw(np.array([s]), np.array([a]), self._rng), self._followers

    def moved(self) -> Moved:
        """The counters."""
        return Moved(self.steps, self.resets, self.extra_steps, self.truncations)

    def count(self, moved: Moved, followers: Counter[tuple[int, ...]]) -> None:
        """Moves that a copy has made."""
        for name, number in moved._asdict().items():
            setattr(self, name, getattr(self, name) + number)
        self._followers.update(followers)

    @property
    def walked(self) -> tuple[list[IntArray], int] | None:
        """If states are cells, the steps of the run as `diagnose_grouped` takes them, and the number of moves."""
        if not self._has_cells:
            return None
        rows = np.array([(*row, n) for row, n in self._followers.items()], dtype=np.int64).reshape(-1, 6)
        return list(rows.T), self.steps + self.resets - self._begun

    def _begin(self) -> None:
        """A run begins: another one with the same seed makes the same steps, which must not count twice."""
        self._followers: Counter[tuple[int, ...]] = Counter()
        self._begun = self.steps + self.resets

    @property
    def starts_unknown(self) -> bool:
        """Whether the start is a state of the task, whose successor `reset` draws."""
        return self.layout.start >= 0

    @property
    def _moves(self) -> int:
        return self.steps + (self.resets if self.starts_unknown else 0)

    def _next(self, s: int, a: int) -> int:
        if s == self.layout.start:
            return self._reset()
        if not (0 <= s < self.n_states and 0 <= a < self.n_actions):
            raise InputError(f"(s={s}, a={a}) is not a pair of the task; states are 0 to {self.n_states - 1}")
        if self.layout.ended(s):
            return s
        if self._state != s:
            self._go_to(s)
        return self._step(a)

    def _go_to(self, s: int) -> None:
        """Bring the environment to a state by episodes under the policy."""
        initial, resets, truncations = self.layout.initial, self.resets, self.truncations
        if initial is not None and initial[s] > 0:
            for _ in range(LONGEST_WAY):
                if self._reset() == s:
                    return
        else:
            until = self.steps + LONGEST_WAY
            while self.steps < until:
                if self._state < 0:
                    self._reset()
                if self._state == s:
                    return
                self._step(int(np.argmax(self._actions[self._state] > self._rng.random())))
        raise InputError(
            f"state {self.at.states.label(s)} was not met in {LONGEST_WAY:,} steps of the environment; "
            + (
                "all episodes were truncated before: raise or remove the time limit of the environment"
                if self.truncations - truncations >= self.resets - resets > 0
                else "use a method that follows trajectories: TDBetting() or PTST(allocation=Forward())"
            )
        )

    def _reset(self, seed: int | None = None) -> int:
        """A new episode; where it starts."""
        self._state, self._before = -1, (-1, -1)
        self.resets += 1
        seed, self._seed = self._seed if seed is None else seed, None
        observation = first_observation(self.env.reset() if seed is None else self.env.reset(seed=seed))
        s = state_index(lambda: "env.reset answered", observation, self.at)
        layout = self.layout
        if layout.terminal is not None and layout.terminal[s]:
            raise InputError(f"env.reset answered {self.at.states.label(s)}, a terminal state; correct terminal")
        if layout.initial is not None and layout.initial[s] == 0:
            label = self.at.states.label(s)
            raise InputError(f"env.reset answered {label}, which has probability 0 in initial; correct initial")
        self._state = s
        return s

    def _step(self, a: int) -> int:
        """One step from where the environment stands; the state it leads to, in the task."""
        s, at = self._state, self.at
        self._state = -1
        self.steps += 1
        try:
            answer = self.env.step(at.actions.numbers[a])
        except Exception as error:
            error.add_note(f"raised by env.step at {at.place(s, a)}")
            raise
        observation, paid, ended, cut, _ = five_parts(answer)
        x = state_index(lambda: f"env.step at {at.place(s, a)} answered", observation, at)
        if type(paid) is not float or not math.isfinite(paid):
            paid = arrays.real_number(f"the reward of env.step at {at.place(s, a)}", paid)
        self._paid = float(paid)
        said = self.layout.reward(s, a, x)
        if said is not None and not close(said, paid):
            raise differs(at.place(s, a, x), said, paid)
        terminated, truncated = truth(TERMINATED, ended), truth(TRUNCATED, cut)
        self.truncations += truncated
        arrival = self.layout.arrival(s, a, x, terminated, at)
        if self._has_cells and self._before[0] >= 0:
            self._followers[*self._before, s, a, arrival] += 1
        self._before = s, a
        if not (terminated or truncated or self.layout.ended(arrival)):
            self._state = x
        return arrival


class Asked(NamedTuple):
    """The question, where it is not a discounted sum: the steps of an episode, and the states to reach and to avoid."""

    horizon: int | None = None
    goal: BoolArray | None = None
    avoid: BoolArray | None = None

    @property
    def over(self) -> BoolArray | None:
        """[S] goals and states to avoid; None where no goal is asked for."""
        return self.goal if self.goal is None or self.avoid is None else self.goal | self.avoid


class Given(NamedTuple):
    """What is said of an environment that is stepped, as people write it; None where nothing is."""

    policy: object
    discount: float
    rewards: object
    initial: object = None
    terminal: object = None
    asked: Asked = Asked()


class SteppedStates:
    """Which states the task has beside those of the environment, and what they are for."""

    def __init__(
        self,
        at: Places,
        rewards: FloatArray | Observed | None,
        terminal: BoolArray | None,
        initial: FloatArray | None,
        asked: Asked,
    ) -> None:
        S = self.S = at.n_states
        self.rewards, self.terminal, self.initial, self.asked = rewards, terminal, initial, asked
        over = asked.over if terminal is None else terminal
        self.over = np.zeros(S, dtype=bool) if over is None else over  # the states in which episodes are over
        self.copies = isinstance(rewards, np.ndarray) and rewards.ndim == 3  # an ended copy of each state
        self.endings = 0 if terminal is not None else S if self.copies else 1
        self.start = S + self.endings if initial is None else -1
        self.size = S + self.endings + (initial is None)
        self.scale = 1.0  # what a reward of 1 is in the task

    def ended(self, s: int) -> bool:
        """Whether nothing can happen any more in this state of the task."""
        return bool(self.over[s]) if 0 <= s < self.S else self.S <= s < self.S + self.endings

    def reward(self, s: int, a: int, x: int) -> float | None:
        """What is said to be paid for a transition of the environment; None where nothing is said."""
        if not isinstance(self.rewards, np.ndarray):
            return None
        return float(self.rewards[s, a] if self.rewards.ndim == 2 else self.rewards[s, a, x])

    def arrival(self, s: int, a: int, x: int, terminated: bool, at: Places) -> int:
        """The state of the task that a transition leads to."""
        if self.terminal is None:
            return x if not terminated or self.over[x] else self.S + (x if self.copies else 0)
        if terminated != self.terminal[x]:
            what = "ended the episode, but terminal does not list" if terminated else "went on, but terminal lists"
            raise InputError(
                f"the step {at.place(s, a, x)} {what} {at.states.label(x)}; correct terminal, or leave it out"
            )
        return x

    def task(self, at: Places, policy: FloatArray, discount: float, assumptions: Sequence[str] = ()) -> Task:
        """The task that is tested."""
        S, A, size = self.S, at.n_actions, self.size
        check_size(size, A, "pass terminal to save copies, or number observations more coarsely")
        absorbing = np.array([self.ended(s) for s in range(size)])
        unknown_start, H = self.initial is None, self.asked.horizon
        if unknown_start and not discount > 0:
            raise InputError("discount is 0, and where episodes start is unknown; pass initial, rho[s]")
        self.scale = 1.0 / discount if unknown_start else 1.0
        pi = np.zeros((size, A))
        pi[:S], pi[S:, 0] = policy, 1.0
        rho = np.zeros(size)
        if self.initial is None:
            rho[self.start] = 1.0
        else:
            rho[:S] = self.initial
        known: Content = {"policy": pi, "initial": rho, "actions": at.actions.own_names}
        known["states"] = self._names(at)
        known["support"] = None if not absorbing.any() and not unknown_start else self._support(absorbing, A)
        known["assumptions"] = assumptions
        H = H + 1 if H is not None and unknown_start else H
        goal = None if self.asked.goal is None else np.append(self.asked.goal, np.zeros(size - S, dtype=bool))
        return asked_task(self._rewards(absorbing), absorbing, goal, discount, H, **known)

    def _rewards(self, absorbing: BoolArray) -> FloatArray | Observed | None:
        if isinstance(self.rewards, Observed):
            return Observed(*(self._padded(end, absorbing) for end in (self.rewards.low, self.rewards.high)))
        return None if self.rewards is None else self._padded(self.rewards, absorbing)

    def _padded(self, given: FloatArray, absorbing: BoolArray) -> FloatArray:
        """Rewards [S,A] or [S,A,S] of the environment, in the units of the task and for its states; 0 at the ends."""
        S, A = self.S, given.shape[1]
        table = np.zeros((self.size, A, self.size)[: given.ndim])
        if given.ndim == 2:
            table[:S] = given
        else:
            table[:S, :, :S] = given
            if self.endings:
                table[:S, :, S : 2 * S] = given
        table[absorbing] = 0.0
        return table * self.scale

    def _support(self, absorbing: BoolArray, A: int) -> BoolArray:
        entered = np.ones(self.size, dtype=bool)
        if self.start >= 0:
            entered[self.start] = False
        support = full_support(absorbing, entered, A)
        if self.start >= 0:
            support[self.start] = entered & ~absorbing
        return support

    def _names(self, at: Places) -> tuple[Hashable, ...] | None:
        if self.size == self.S:
            return at.states.own_names
        names: list[Hashable] = [at.states.name(s) for s in range(self.S)]
        if self.endings:
            names += [(at.states.name(s), "ended") for s in range(self.S)] if self.copies else ["ended"]
        return (*names, *(["start"] if self.start >= 0 else []))


def stepped_task(at: Places, given: Given, assumptions: Sequence[str] = ()) -> tuple[Task, SteppedStates, FloatArray]:
    """The task that is tested, its states, and the policy [S,A], from what is given."""
    ends = None if given.terminal is None else given_states("terminal", given.terminal, at)
    rho = None if given.initial is None else given_initial(given.initial, at)
    rewards = None if given.asked.goal is not None else given_rewards(given.rewards, at)
    layout = SteppedStates(at, rewards, ends, rho, given.asked)
    pi = policy_table(given.policy, at, free=np.flatnonzero(layout.over))
    return layout.task(at, pi, given.discount, assumptions), layout, pi


# ---------------------------------------------------------------- what must be given


def given_rewards(rewards: object, at: Places) -> FloatArray | Observed:
    """Rewards [S,A], or [S,A,S] where they depend on the next state, from an array or a function of (s, a, x)."""
    S, A = at.n_states, at.n_actions
    if isinstance(rewards, Observed):
        return rewards.filled((S, A))
    if callable(rewards):
        if S * A * S > FUNCTION_LIMIT:
            raise InputError(f"rewards is a function, and there are {S * A * S:,} transitions; pass an array [S,A]")
        table = arrays.real_array("rewards", _tabulated(rewards, at), (S, A, S))
    else:
        table = arrays.real_array("rewards", rewards)
        arrays.check_shape("rewards", table.shape, (S, A, S) if table.ndim == 3 else (S, A))
    return table[:, :, 0].copy() if table.ndim == 3 and (table == table[:, :, :1]).all() else table


def _tabulated(function: Callable[[int, int, int], Any], at: Places) -> list[list[list[float]]]:
    """The function at all (s, a, x), which are spoken of as the environment does."""
    shown, codes = at.states.numbers, at.actions.numbers
    try:
        return [[[float(function(s, a, x)) for x in shown] for a in codes] for s in shown]
    except (TypeError, ValueError, LookupError) as error:
        raise InputError(
            f"rewards as a function of (s, a, next state) failed: {error}; it must give a number"
        ) from error


def given_states(name: str, given: Any, at: Places) -> BoolArray:
    """[S] these states, from a list of them or from booleans."""
    array = arrays.any_array(name, given)
    if array.dtype.kind == "b":
        arrays.check_shape(name, array.shape, (at.n_states,))
        return array
    mask = np.zeros(at.n_states, dtype=bool)
    for state in [given] if isinstance(given, str | int) else list(given):
        mask[at.states.find(name, state, or_number=True)] = True
    return mask


def given_initial(initial: Any, at: Places) -> FloatArray:
    """rho [S] from probabilities, {state: probability}, or the one state in which every episode starts."""
    rho = np.zeros(at.n_states)
    if isinstance(initial, Mapping):
        for state, probability in initial.items():
            rho[at.states.find("initial", state, or_number=True)] += arrays.real_number("initial", probability)
    elif np.ndim(initial) == 0 or at.states.has(initial):
        rho[at.states.find("initial", initial, or_number=True)] = 1.0
    else:
        rho = arrays.real_array("initial", initial, (at.n_states,))
    return arrays.probability_rows("initial", rho)
