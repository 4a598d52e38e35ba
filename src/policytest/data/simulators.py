"""Where samples come from: `draw(states, actions, rng) -> next states`, integer arrays of one length.

The generative model of section 3.2: any pair may be sampled at will. A simulator is any object with such a `draw`, or
such a function itself. It is called with as many pairs at once as can be drawn without drawing one too many.

Where the rewards of a task are observed, `draw` returns (next states, rewards). In other tasks these rewards are not
used: the task says what they are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol, TypeGuard

import numpy as np
import numpy.typing as npt

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray, IntArray, Kernel
from policytest._base.compiled import draws
from policytest._base.errors import InputError
from policytest.mdp.observed import Observed


class Simulator(Protocol):
    """What a test needs of a simulator.

    A simulator may also have an attribute ``replayable`` that is true: its draws depend on the generator ``rng`` and
    on nothing else, and they are free. Then draws may be made ahead, and those never looked at are not counted.

    One that has to travel to the pairs it is asked for counts the steps on the way in ``extra_steps``. They count as
    samples too, and rollouts are then made one after the other.
    """

    def draw(self, states: IntArray, actions: IntArray, rng: np.random.Generator) -> IntArray:
        """The next state of each pair."""
        ...


Draw = Callable[[IntArray, IntArray, np.random.Generator], object]
SimulatorLike = Simulator | Draw


class DrawTable(NamedTuple):
    """The successors of each pair s*A + a, with cumulative probabilities; ``empty`` marks pairs without any."""

    start: IntArray
    successor: npt.NDArray[np.int32]
    cumulative: FloatArray
    empty: BoolArray


class TabularSimulator:
    """Draws from a kernel [S,A,S], or a CSR array of shape (S*A, S); one uniform number for each draw.

    Rows without any mass are allowed: they cannot be drawn from. With ``rewards``, a function (s, a, x, rng) -> r that
    is called with integer arrays and returns as many rewards, `draw` returns (next states, rewards).

    >>> sim = TabularSimulator([[[0.0, 1.0]], [[1.0, 0.0]]])
    >>> sim.draw([0, 1, 0], [0, 0, 0], np.random.default_rng(0))
    array([1, 0, 1])
    """

    replayable = True

    def __init__(self, kernel: object, rewards: Callable[..., object] | None = None) -> None:
        if rewards is not None and not callable(rewards):
            raise InputError(f"rewards is {arrays.shown(rewards)}; pass a function (s, a, x, rng) -> r of arrays")
        self.rewards = rewards
        S, A = _shape(kernel)
        self.n_states, self.n_actions = S, A
        table = arrays.kernel("kernel", kernel, S, A)
        filled = np.flatnonzero(arrays.row_totals(table, slice(None), S) != 0)
        table = arrays.kernel_rows("kernel", table, filled, S, lambda pair, *x: str((*divmod(pair, A), *x)))
        if arrays.is_sparse(table):
            start, successor, entries = table.indptr.astype(np.int64), table.indices.astype(np.int32), table.data
        else:
            start = np.arange(S * A + 1, dtype=np.int64) * S
            successor, entries = np.tile(np.arange(S, dtype=np.int32), S * A), table.ravel()
        empty = np.ones(S * A, dtype=bool)
        empty[filled] = False
        self._table = DrawTable(start, successor, cumulative_rows(start, entries), empty)

    def table(self) -> DrawTable:
        """What compiled code draws from."""
        return self._table

    def draw(self, states: object, actions: object, rng: np.random.Generator) -> Any:
        """The next state of each pair; the first k of m draws are the k draws. With ``rewards``, and the rewards."""
        pair = self._pairs(states, actions)
        u = rng.random(len(pair))
        x = np.asarray(draws.draw(*self._table[:3], pair, u))
        return x if self.rewards is None else (x, self.rewards(*np.divmod(pair, self.n_actions), x, rng))

    def walk(
        self, actions: FloatArray, initial: FloatArray, restart: float, state: int, u: FloatArray
    ) -> tuple[IntArray, IntArray, IntArray]:
        """A trajectory under a policy, both given by cumulative sums; see `policytest.kl.sampling.Forward`."""
        pair, x, after = draws.walk(*self._table[:3], actions, initial, restart, state, u)
        self._check_filled(pair)
        return pair, x, after

    def _pairs(self, states: object, actions: object) -> IntArray:
        s = arrays.index_list("states", states, self.n_states)
        a = arrays.index_list("actions", actions, self.n_actions)
        if s.shape != a.shape:
            raise InputError(f"states has shape {s.shape}, actions {a.shape}; pass two lists of one length")
        pair = s * self.n_actions + a
        self._check_filled(pair)
        return pair

    def _check_filled(self, pair: IntArray) -> None:
        if (at := arrays.first(self._table.empty[pair])) is not None:
            place = divmod(int(pair[at]), self.n_actions)
            raise InputError(f"kernel at {place} sums to 0; there is nothing to draw from")


def is_table(sim: object) -> TypeGuard[TabularSimulator]:
    """Whether compiled code may draw from its table: a subclass with a `draw` of its own is called."""
    return getattr(type(sim), "draw", None) is TabularSimulator.draw


def draw_function(sim: SimulatorLike) -> Draw:
    """The `draw` of a simulator, or the function itself."""
    draw: Draw = sim.draw if hasattr(sim, "draw") else sim
    if isinstance(sim, type) or not callable(draw):
        raise InputError(
            f"sim is {sim!r}; pass an object with a method draw(states, actions, rng), or such a function, "
            "for instance TabularSimulator(kernel)"
        )
    if not takes_three(draw):
        raise InputError(
            f"sim is {sim!r}, whose call signature is {inspect.signature(draw)}; it is called as "
            "draw(states, actions, rng) with two integer arrays and a Generator"
        )
    return draw


def takes_three(draw: Draw) -> bool:
    """Whether it can be called with three arguments, as far as its signature says."""
    try:
        inspect.signature(draw).bind(None, None, None)
    except TypeError:
        return False
    except ValueError:  # compiled code may not say
        return True
    return True


def checked_draw(draw: Draw, states: IntArray, actions: IntArray, rng: np.random.Generator, n_states: int) -> IntArray:
    """Draw, and refuse an answer that is not one allowed state index for each pair; rewards are left out."""
    return checked_states(_parts(draw(states, actions, rng))[0], states, actions, n_states)


def rewarded_draw(
    draw: Draw,
    states: IntArray,
    actions: IntArray,
    rng: np.random.Generator,
    observed: Observed,
    scale: float,
) -> tuple[IntArray, FloatArray]:
    """Draw next states and their rewards, in units of the task's; those outside the declared range are refused."""
    n_states, n_actions = observed.low.shape
    answer, rewards = _parts(draw(states, actions, rng))
    x = checked_states(answer, states, actions, n_states)
    if rewards is None:
        raise InputError(
            "sim.draw answered with next states alone, and the task's rewards are observed; return (next states, "
            "rewards)"
        )
    found = arrays.real_array("the rewards of sim.draw", rewards) / scale
    if found.shape != states.shape:
        raise InputError(
            f"sim.draw was asked for {len(states)} rewards and answered with shape {found.shape}; it must return one "
            "for each pair"
        )
    if (at := arrays.first(observed.outside(states * n_actions + actions, found))) is not None:
        s, a = int(states[at]), int(actions[at])
        raise InputError(
            f"sim.draw answered the reward {found[at] * scale:g} for (s={s}, a={a}, x={x[at]}), "
            f"{observed.expected(s * n_actions + a, scale)}; fix the simulator or {observed.remedy}"
        )
    return x, found


def _parts(answer: object) -> tuple[object, object]:
    """Next states, and rewards if they come with them."""
    if isinstance(answer, tuple) and len(answer) == 2 and np.ndim(answer[0]) == 1:
        return answer[0], answer[1]
    return answer, None


def checked_states(given: object, states: IntArray, actions: IntArray, n_states: int) -> IntArray:
    """The answer of a simulator, if it is one allowed state index for each pair."""
    answer = arrays.numbers("the answer of sim.draw", given)
    if answer.shape != states.shape:
        raise InputError(
            f"sim.draw was asked for {len(states)} next states and answered with shape {answer.shape}; "
            "it must return one for each pair"
        )
    if not np.issubdtype(answer.dtype, np.integer):
        raise InputError(f"sim.draw answered with type {answer.dtype}; next states are integers, 0 to {n_states - 1}")
    if (at := arrays.first((answer < 0) | (answer >= n_states))) is not None:
        raise InputError(
            f"sim.draw answered {answer[at]} for (s={states[at]}, a={actions[at]}); next states are 0 to {n_states - 1}"
        )
    return answer.astype(np.int64)


def _shape(kernel: Kernel) -> tuple[int, int]:
    shape = arrays.numbers("kernel", kernel).shape if not arrays.is_sparse(kernel) else kernel.shape
    if arrays.is_sparse(kernel):
        if len(shape) != 2 or 0 in shape or shape[0] % shape[1]:
            raise InputError(f"kernel is sparse with shape {shape}, expected (S*A, S) (row s*A + a, column x)")
        return int(shape[1]), int(shape[0] // shape[1])
    if len(shape) != 3 or shape[0] != shape[2] or 0 in shape:
        raise InputError(f"kernel has shape {shape}, expected (S, A, S)")
    return int(shape[0]), int(shape[1])


def cumulative(table: FloatArray) -> FloatArray:
    """Running sums of each row of a table, for draws."""
    count, width = table.shape
    return cumulative_rows(np.arange(count + 1) * width, table.ravel()).reshape(count, width)


def cumulative_rows(start: IntArray, entries: FloatArray) -> FloatArray:
    """Running sums within each row start[k]:start[k+1]; 2 from the last entry with mass on: no later one is drawn."""
    sums = np.zeros(len(entries))
    for width in np.unique(np.diff(start)):
        if width:
            rows = np.flatnonzero(np.diff(start) == width)
            at = start[rows][:, None] + np.arange(width)
            block = entries[at]
            later: IntArray = np.cumsum(block[:, ::-1] > 0, axis=1)[:, ::-1] - (block > 0)
            sums[at] = np.where(later > 0, np.cumsum(block, axis=1), 2.0)
    return sums
