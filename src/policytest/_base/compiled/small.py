"""Small compiled loops that every unit uses, and the decorators that compile.

Explicit loops, not array expressions: they compile in a tenth of the time. numba's cache on disk does not notice an
edit of a callee in another file: after a change of this file delete the cached code of the others.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from functools import wraps
from typing import Any, NamedTuple, ParamSpec, TypeVar

import numba
import numpy as np
import numpy.typing as npt

from policytest._base.arrays import FloatArray as Reals
from policytest._base.arrays import IntArray as Ints

Parts = ParamSpec("Parts")
Result = TypeVar("Result")

TINY = 1e-300
SETTINGS: Any = {"nogil": True, "error_model": "numpy", "no_cfunc_wrapper": True}
INSIDE: Any = {**SETTINGS, "no_cpython_wrapper": True}  # for what only compiled code calls


def _jitted(function: Callable[..., Any], settings: dict[str, Any]) -> Any:
    """numba-compile, cached on disk where the machine allows it (a read-only install may not)."""
    njit: Any = numba.njit
    try:
        return njit(cache=True, **settings)(function)
    except RuntimeError:  # no writable place for the cache
        return njit(**settings)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """Compile what only compiled code calls: a wrapper for Python would be optimised with it, in the same time again.

    A call from Python ends the process; `entry` is for that.
    """
    return _jitted(function, INSIDE)


def inlined(function: Callable[..., Any]) -> Any:
    """Compile it into whatever calls it: a call with tuples of arrays costs more than most steps of a rollout."""
    return _jitted(function, {**INSIDE, "forceinline": True})


def entry(function: Callable[Parts, Result]) -> Callable[Parts, Result]:
    """A kernel that Python calls: says what to delete when the cache on disk is damaged."""
    kernel: Any = _jitted(function, SETTINGS)

    @wraps(function)
    def call(*arguments: Parts.args, **none: Parts.kwargs) -> Result:
        try:
            return kernel(*arguments)
        except (EOFError, pickle.UnpicklingError) as error:
            folder = kernel.stats.cache_path
            raise RuntimeError(
                f"the compiled-code cache is damaged ({error}); delete the folder {folder} and run again"
            ) from error

    call.kernel = kernel  # type: ignore[attr-defined]
    return call


# ---------------------------------------------------------------- small loops
# Explicit loops, not array expressions: they compile in a tenth of the time.


@compiled
def copy_to(source: Reals, out: Reals) -> None:
    for i in range(len(out)):
        out[i] = source[i]


@compiled
def dot(x: Reals, y: Reals) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i] * y[i]
    return total


@compiled
def largest_of(x: Reals) -> float:
    """max |x_i|; not a number if any entry is."""
    top = 0.0
    for i in range(len(x)):
        if not abs(x[i]) <= top:
            top = abs(x[i])
            if np.isnan(top):
                break
    return top


@compiled
def add_to(x: Reals, factor: float, y: Reals) -> None:
    """x <- x + factor y."""
    for i in range(len(x)):
        x[i] += factor * y[i]


@compiled
def mix_to(q: Reals, step: float, target: Reals, out: Reals) -> None:
    """out = (1 - step) q + step target; exactly the target at step 1, however small its entries."""
    for i in range(len(out)):
        out[i] = (1.0 - step) * q[i] + step * target[i]


@compiled
def total_of(x: Reals) -> float:
    total = 0.0
    for i in range(len(x)):
        total += x[i]
    return total


@compiled
def kept_inside(proposal: float, low: float, high: float, current: float, factor: float) -> float:
    """The proposal, if strictly inside the bracket of a positive root; else a step of the search for its far end."""
    if low < proposal < high:
        return proposal
    if high == np.inf:
        return factor * current + TINY
    if low == 0.0:
        return high / factor
    return np.sqrt(low) * np.sqrt(high)


# ---------------------------------------------------------------- KL and the row problem


@compiled
def excess_of(q: float, p: float) -> float:
    """u - 1 - log u at u = q/p > 0, accurate near 1 (a series in q - p) and near 0 (no difference is taken)."""
    delta = (q - p) / p
    if abs(delta) < 0.02:
        total = 0.0
        for power in range(11, 1, -1):  # Horner: delta^2/2 - delta^3/3 + ...
            total = total * delta + (1.0 if power % 2 == 0 else -1.0) / power
        return total * delta * delta
    return delta - np.log(q / p)


@compiled
def row_loss(N: Reals, n: float, q: Reals, first: int, last: int) -> float:
    """n KL(N/n, q) of one row as a sum of non-negative terms: N (u - 1 - log u) with u = q n/N, plus n q(unseen)."""
    loss = 0.0
    for e in range(first, last):
        if N[e] > 0.0:
            if q[e] <= 0.0:
                return np.inf
            loss += N[e] * excess_of(q[e] * n, N[e])
        else:
            loss += n * q[e]
    return loss


@compiled
def loss_of(start: Ints, N: Reals, n: Reals, q: Reals) -> float:
    """loss(q) = sum_k n_k KL(N_k/n_k, q_k), centre first."""
    loss = 0.0
    for k in range(len(n)):
        if n[k] > 0.0:
            loss += row_loss(N, n[k], q, start[k], start[k + 1])
    return loss


@compiled
def place_of(start: Ints, successor: Ints, k: int, x: int) -> int:
    """The entry of successor x in row k, or -1 where it is not listed; at once in rows that list every state."""
    low = start[k]
    high = start[k + 1]
    if low + x < high and successor[low + x] == x:
        return low + x
    while low < high:
        middle = (low + high) // 2
        if successor[middle] < x:
            low = middle + 1
        else:
            high = middle
    return low if low < start[k + 1] and successor[low] == x else -1


@compiled
def first_above(cumulative: Reals, first: int, last: int, u: float) -> int:
    """The first entry whose cumulative probability exceeds u."""
    while first < last:
        middle = (first + last) // 2
        if cumulative[middle] > u:
            last = middle
        else:
            first = middle + 1
    return first


# ---------------------------------------------------------------- capital
# The capital of F bets is an array [F + 1]: what each has made of its share of the first unit, divided by a common
# factor, and the logarithm of that factor. Powers of two, so that dividing by them changes no digit.

NEGLIGIBLE = 1e-290  # of the common unit: what has lost more than that has lost all
LARGEST_CAPITAL = 2.0**300  # in the common unit; another one is taken beyond it, and below one over it
LOG_LARGEST = 300.0 * 0.6931471805599453
MOST_WON = 1e100  # in units of what a full bet can lose; to take more as this makes the capital smaller


@compiled
def stake(capital: Reals, fractions: Reals, ratio: float) -> None:
    """Settle one outcome: each capital times 1 + f ratio, where ``ratio`` >= -1 is what a full bet wins."""
    ratio = min(max(ratio, -1.0), MOST_WON)
    for b in range(len(fractions)):
        after = capital[b] * (1.0 + fractions[b] * ratio)
        capital[b] = after if after > NEGLIGIBLE else 0.0


@compiled
def evidence_of(capital: Reals) -> float:
    """The logarithm of the sum of all capitals; takes another common unit where that is needed."""
    F = len(capital) - 1
    total, odd, last = 0.0, 0.0, F - F % 2
    for b in range(0, last, 2):  # two sums, which the processor forms at once
        total += capital[b]
        odd += capital[b + 1]
    if last < F:
        total += capital[last]
    total += odd
    while LARGEST_CAPITAL < total < np.inf:
        for b in range(F):
            capital[b] /= LARGEST_CAPITAL
        total /= LARGEST_CAPITAL
        capital[F] += LOG_LARGEST
    while 0.0 < total < 1.0 / LARGEST_CAPITAL:
        for b in range(F):
            capital[b] *= LARGEST_CAPITAL
        total *= LARGEST_CAPITAL
        capital[F] -= LOG_LARGEST
    return np.log(total) + capital[F]


@compiled
def settle(capital: Reals, fractions: Reals, ratio: float) -> float:
    """Settle one outcome; the evidence: the logarithm of the sum of all capitals."""
    stake(capital, fractions, ratio)
    return evidence_of(capital)


@compiled
def settle_again(capital: Reals, fractions: Reals, before: float, after: float) -> None:
    """An outcome that was settled with the ratio ``before`` is worth ``after`` instead."""
    for b in range(len(fractions)):
        changed = capital[b] * ((1.0 + fractions[b] * after) / (1.0 + fractions[b] * before))
        capital[b] = changed if changed > NEGLIGIBLE else 0.0


# ---------------------------------------------------------------- rollouts

# The steps stand in each kernel: a function that takes these records and has several ends costs four times as much as
# the step itself, since numba then counts references to all their arrays.
#
# One rollout earns a sum S of weighted residuals with mean at most sign (V_q - rho.V0), and never below -L. Two
# policies stay together for as long as they agree. The proofs: `policytest.payoffs.td_rollouts`, and `.two_policies`.

BLOCK_ENDS, CROSSED, WAITING, LAST_ROLLOUT, OUT_OF_BOUNDS, OTHER_CROSSED = 0, 1, 2, 3, 4, 5  # why a call ended
BETWEEN, TOGETHER, A_ALONE, B_ALONE, B_PARTS, B_NEXT, A_IN_TURN, B_IN_TURN = 0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0
BRANCHING = 8.0  # one policy, in several branches
LARGEST_WEIGHT, SMALLEST_WEIGHT, SMALLEST_CHANCE = 50.0, 1e-3, 0.1
NOT_THERE = -1  # instead of a successor: its stack is empty


class Residuals(NamedTuple):
    """What one policy bets with: the parts of r - eta + gamma V0(x) - V0(s), and its worst sums."""

    V: Reals  # [S] V0
    base: Reals  # [K] r^pi(s) - eta(s,a); without the reward where that is on the successor
    gain: Reals  # [E] that reward, or empty
    B: Reals  # [S] the worst sum along any path of this policy; positive (TINY) where nothing follows


class Stakes(NamedTuple):
    """The bets of one side, and what a rollout can win and lose."""

    B: Reals  # the worst sums, of all policies together; empty where rollouts do not serve this side
    fractions: Reals  # of the largest bet
    capital: Reals  # [F + 1]; changed in place
    L: float
    sign: float
    lead: float


NOT_SERVED = Stakes(np.zeros(0), np.zeros(0), np.zeros(0), 0.0, 0.0, 0.0)


class Dynamics(NamedTuple):
    """Where rollouts of one policy, or of two, go. A state of the start may be a copy of a state of the kernel."""

    start: Ints  # [K+1] of the rows
    successor: npt.NDArray[np.int32]  # [E]
    row_of_pair: Ints
    only: Ints  # [K] the successor of known rows, -1 for the others
    real: Ints  # the states of the kernel, of which these are copies
    initial: Reals  # [S] running sums of rho
    together: Reals  # [S,A] or [S,2A] running sums: a common action, or one that only A takes
    leaving: Reals  # [S,A] running sums: the action of B where A has taken one of its own
    alone_a: Reals  # [S,A] running sums of pi_A
    alone_b: Reals
    discount: float
    meets: bool  # both follow one policy once they have parted
    layer: int = 0  # with a horizon: the states of a step; the place of (t, s) is t * layer + s, that of a row t K + k
    longest: float = 0.0  # steps after which a rollout ends at its worst; 0: coins end it surely
    total_low: float = 0.0  # bounds on the total of an episode; equal: there are none
    total_high: float = 0.0


class Draws(NamedTuple):
    """Where successors come from: the rows of a table, or a stack of each pair."""

    is_table: bool
    start: Ints
    successor: npt.NDArray[np.int32]
    cumulative: Reals
    at: Ints  # the next one of each stack; changed in place
    reward: Reals = np.zeros(0)  # observed with each of a stack, or empty


class Limits(NamedTuple):
    """When a call ends: the level is crossed, the samples are used up, at the first end of a rollout that is due."""

    level: float
    most: int
    due: float  # samples from which on a rollout that ends is the last one


class Transcript(NamedTuple):
    """What a call fills in: the transitions, and the sums of the rollouts that ended."""

    pair: Ints
    x: Ints
    sums: Reals
    reward: Reals = np.zeros(0)  # where rewards are observed
    mirrored: Reals = np.zeros(0)  # the sums of the other side, where rollouts serve both


class RolloutState(NamedTuple):
    """A rollout on its way; it goes on from here in the next call."""

    phase: float = BETWEEN
    state: float = 0.0  # of A, or of both; BRANCHING: the number of open branches
    earned: float = 0.0  # S
    weight: float = 0.0  # BRANCHING: the sum of the other side, where rollouts serve both
    steps_left: float = 0.0  # where they are limited
    state_b: float = -1.0
    weight_b: float = 0.0
    total: float = 0.0  # earned in the episode, where its total has bounds


class Call(NamedTuple):
    """What a call goes on from, what it may use, and what it fills in."""

    at: RolloutState
    u: Reals  # [rows, 3] random numbers
    limits: Limits
    seen: Transcript


class Advance(NamedTuple):
    """How far a call came."""

    ending: int
    used: int  # rows of random numbers
    steps: int  # transitions
    samples: int  # those of them that were drawn
    rollouts: int  # that ended
    missing_pair: int  # the pair whose draw is waited for, or -1
    at: RolloutState
    own_steps: float = 0.0  # of the rollouts that ended before their steps were used up, where these are limited
    cut: int = 0  # rollouts whose steps were used up


def called_with_records(kernel: Callable[Parts, tuple[Any, ...]]) -> Callable[Parts, Advance]:
    """A kernel of rollouts that gets its records as plain tuples, which numba recognises in half the time.

    A simulator may be called very often. The kernel makes records of them again, which costs nothing there.
    """

    plain: Any = kernel

    @wraps(kernel)
    def call(*records: Parts.args, **none: Parts.kwargs) -> Advance:
        found = Advance(*plain(*(tuple(part) if isinstance(part, tuple) else part for part in records)))
        return found._replace(at=RolloutState(*found.at))

    return call


@compiled
def settled(stakes: Stakes, earned: float) -> float:
    """Settle the bets of a rollout on a side that it serves; the evidence."""
    if len(stakes.B) == 0:
        return -np.inf
    return settle(stakes.capital, stakes.fractions, (stakes.lead + earned) / (stakes.L - stakes.lead))


@inlined
def ending_at(evidence: float, other: float, samples: int, limits: Limits) -> int:
    """Whether a call ends with the rollout that has just ended; BLOCK_ENDS: not yet.

    ``other`` is the evidence of the other side, where the rollout serves both.
    """
    if evidence >= limits.level:
        return CROSSED
    if other >= limits.level:
        return OTHER_CROSSED
    return LAST_ROLLOUT if samples >= limits.due else BLOCK_ENDS


@inlined
def chance_of(weight: float, budget: float, least: float, other_budget: float = 0.0, other_least: float = 0.0) -> float:
    """The probability of going on: with the largest weight that keeps every path above -L, on both sides if need be."""
    target = LARGEST_WEIGHT
    if least < 0.0:
        target = min(target, budget / -least)
    if other_least < 0.0:
        target = min(target, other_budget / -other_least)
    return min(1.0, max(SMALLEST_CHANCE, weight / max(target, TINY)))


@inlined
def coin(
    weight: float, budget: float, least: float, u: float, other_budget: float = 0.0, other_least: float = 0.0
) -> tuple[bool, float, float]:
    """(whether it ends here, its weight, what is added to S): going on the weight grows; tiny weights end at worst."""
    chance = chance_of(weight, budget, least, other_budget, other_least)
    if u >= chance or least > 0.0:
        return True, weight, 0.0
    weight /= chance
    if weight < SMALLEST_WEIGHT:
        return True, weight, weight * least
    return False, weight, 0.0


@inlined
def drawn(draws: Draws, pair: int, u: float) -> tuple[int, float]:
    """What follows a pair, and the observed reward; NOT_THERE where its stack is empty."""
    if draws.is_table:
        return draws.successor[first_above(draws.cumulative, draws.start[pair], draws.start[pair + 1], u)], 0.0
    at = draws.at[pair]
    if at == draws.start[pair + 1]:
        return NOT_THERE, 0.0
    draws.at[pair] += 1
    return draws.successor[at], draws.reward[at] if len(draws.reward) > 0 else 0.0


@inlined
def one_step_later(dynamics: Dynamics, s: int, k: int, x: int) -> tuple[int, int]:
    """The places of row k and of its successor x where there is a horizon: in the step of place s, and in the next."""
    if dynamics.layer == 0:
        return k, x
    t = s // dynamics.layer
    return k + t * (len(dynamics.start) - 1), x + (t + 1) * dynamics.layer


@inlined
def residual(side: Residuals, gamma: float, s: int, k: int, y: int, r: float, e: int) -> float:
    """r - eta + gamma V0(y) - V0(s); e is the entry of y, if rewards are on entries."""
    found = r + (side.base[k] + gamma * side.V[y] - side.V[s])
    return found + side.gain[e] if len(side.gain) > 0 else found
