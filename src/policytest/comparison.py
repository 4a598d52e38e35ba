r"""Which of two policies is better? Betting on the difference of their temporal differences, along coupled rollouts.

Two policies A and B meet the same unknown kernel q; the question is whether V^A - V^B exceeds a margin m. Choose V0 and
advantages eta for each, from what was seen before, sum_a pi_A eta_A = 0 and sum_a pi_B eta_B = 0, and for a side
sign = 1 ("the difference is above m") or -1

    D_A(s,a,x) =  sign (r_A(s,a,x) - eta_A(s,a) + gamma V0_A(x) - V0_A(s)),
    D_B(s,a,x) = -sign (r_B(s,a,x) - eta_B(s,a) + gamma V0_B(x) - V0_B(s)).

*The coupling.* Both start in the same s from rho. While they are together, an action is drawn from the maximal coupling
of pi_A(.|s) and pi_B(.|s): with probability sum_a min(pi_A, pi_B) the same one, and one draw x serves both; else a from
(pi_A - pi_B)^+ and b from (pi_B - pi_A)^+, normalised, and one draw each: they part, and go on alone. Each chain by
itself is the one of its policy.

*The worst path.* With the sets of actions that these three laws may take,

    B_A(s)  <= min(0, D_A(s,a,x) + gamma B_A(x)),  B_B likewise: as for one policy, see `policytest.betting`,
    B(s)    <= min(0, min over common a, x of (D_A + D_B)(s,a,x) + gamma B(x),
                      min over a, x of D_A(s,a,x) + gamma B_A(x)  +  min over b, y of D_B(s,b,y) + gamma B_B(y)),
    L        = max of -B(s) over rho(s) > 0.

One *rollout* has the sum S = 0 and the weight w = 1/g at its start, and goes on with probability g, w <= L/-B(s).
Together: add w (D_A + D_B), move, go on with probability g and the weight gamma w/g, where g = 1 or
gamma w/g <= (S + L)/-B(x). At a parting: add w D_A(s,a,x) + w D_B(s,b,y); both have the weight gamma w. Then A is run
to its end with S + L + w_B B_B(y) in place of S + L, w_B = gamma w being kept for B; then B with S + L, its coin first.
Where a weight has become very small, add w times B, B_A or B_B there, and end that part.

*S never falls below -L.* Together S + w B(s) >= -L; in the phase of A  S + w_A B_A(x) + w_B B_B(y) >= -L; in that of
B  S + w_B B_B(y) >= -L. Steps keep these by the inequalities above, so does the parting, by the last one; coins by the
choice of g, and where g = 1 since nothing changes; the end of a part since the B's are not positive.

*The mean of S is at most sign (V^A - V^B - rho.(V0_A - V0_B)).* Let E_A = sign (V^A - V0_A), E_B = -sign (V^B - V0_B).
S + w (E_A + E_B)(s) together, S + w_A E_A(x) + w_B E_B(y) apart, is a martingale: given s the action of A has the law
pi_A and that of B the law pi_B, together or not, eta_A and eta_B are centred, so the mean of D_A is
E_A(s) - gamma E_q E_A(x), and so for B; a coin multiplies a weight by 1/g with probability g. And B_A <= E_A,
B_B <= E_B, B <= E_A + E_B: iterate their inequalities along the coupled chain.

So with lead = sign (rho.(V0_A - V0_B) - m) the factor 1 + f (lead + S)/(L - lead), 0 <= f <= 1, is never negative and
has mean at most 1 unless sign (V^A - V^B - m) > 0. The rest is as for one policy: products, Ville, sides, intervals.

While two policies agree nothing is paid for twice, and what they share cancels: the closer they are, the smaller S.
Inside, the rewards of A are centred by c + m and those of B by c, so that differences are compared with 0.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from policytest import _checks, _kernels
from policytest._checks import BoolArray, FloatArray, InputError, IntArray
from policytest._rows import Rows
from policytest.betting import (
    BLOCK,
    LARGE,
    LARGEST_BLOCK,
    MOST_LISTED,
    PAIR_MASS,
    REFIT,
    SHARES,
    STATE_MASS,
    BettingRun,
    Supply,
    TDBetting,
    expected_growth,
)
from policytest.boundaries import MixtureBoundary
from policytest.counts import Counts
from policytest.method import Outcome
from policytest.sequential import _question, _verdict, sampling_limit
from policytest.simulators import cumulative_rows
from policytest.tally import Tally, _centring_error
from policytest.task import Task, value_range, value_range_error
from policytest.verdict import Verdict

STEADY, MULTIPLES = 0.995 * 2.0 ** (-0.5 * np.arange(4)), np.array([1.0, 2.0, 4.0])
LOG_WEIGHTS = np.log(np.array([0.63, 0.063, 0.0063, 0.0007, 0.1, 0.1, 0.1]))  # of the steady bets and the adaptive ones
SAME = 1e-14  # probabilities that differ by less are rounded ones of the same number
IDLE_BLOCKS = 200  # of random numbers in which no sample was drawn, before a run gives up
EQUAL = "the difference does not depend on what is unknown, and equals the margin"


def compare(
    task_a: Task,
    task_b: Task,
    sim: Any,
    delta: float = 0.05,
    margin: float = 0.0,
    method: TDBetting | None = None,
    rng: Any = 0,
    max_samples: int | None = None,
) -> Verdict:
    """Is policy A better than policy B by more than the margin? Sample until that is settled, error at most delta.

    Parameters
    ----------
    task_a, task_b
        Two tasks that differ in their policies, and perhaps in their rewards, and in nothing else.
    sim
        The simulator of the kernel that both meet: `draw(states, actions, rng)`.
    delta, margin
        If V^A - V^B <= margin, "above" is answered with probability at most delta; if >=, so is "below".
    method
        `TDBetting()`, which is the default.
    rng, max_samples
        A seed or a Generator; stop undecided after this many samples.

    In the Verdict, ``threshold`` is the margin, and ``estimate`` and ``interval`` are about the difference V^A - V^B.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> other = pt.Task(two.task.rewards, two.alternative_policy, two.task.initial, two.task.discount)
    >>> compare(two.task, other, pt.TabularSimulator(two.kernel)).answer
    'above'
    """
    _, margin, level = _question(task_a, _checks.real_number("margin", margin), delta)
    _checks.instance("task_b", task_b, Task)
    check_alike(task_a, task_b)
    check_method(method)
    limit = sampling_limit(max_samples)
    known = known_difference(task_a, task_b)
    if known.settles(margin):
        return replace(known.verdict(task_a, margin, delta), about="difference")
    pool = Pool([task_a, task_b], sim, rng)
    run = CoupledRun(task_a, task_b, margin, pool)
    run.begin(level)
    while run.answer is None and run.samples < limit and not run.exhausted:
        run.step(level, limit - run.samples)
    return replace(_verdict(run, delta, "all samples that were allowed are used", {}), about="difference")


# ---------------------------------------------------------------- what is asked


@dataclass(frozen=True)
class CoupledBetting:
    """The method of a comparison, for its verdict."""

    seed: int = 0

    def describe(self) -> str:
        """The method in a few words."""
        return "betting on temporal differences, policy A against policy B in coupled rollouts"


def check_method(method: Any) -> None:
    """Refuse everything but betting on every transition."""
    if method is not None and (not isinstance(method, TDBetting) or method.draws is not None):
        raise InputError(f"method is {method!r}; a comparison is made by TDBetting(), which is the default")


def check_alike(task_a: Task, task_b: Task) -> None:
    """Refuse tasks that differ in more than policy and rewards, and say in what."""
    for name in ("n_states", "n_actions", "discount"):
        first, second = getattr(task_a, name), getattr(task_b, name)
        if first != second:
            raise InputError(f"task_a.{name} is {first} and task_b.{name} is {second}; they must be the same")
    if not np.array_equal(task_a.initial, task_b.initial):
        at = int(np.argmax(task_a.initial != task_b.initial))
        raise InputError(
            f"task_a.initial[{at}] is {task_a.initial[at]:.9g} and task_b.initial[{at}] is {task_b.initial[at]:.9g}; "
            "both policies must start alike"
        )
    if not _same_table(task_a.support, task_b.support, task_a.n_states):
        raise InputError("task_a.support and task_b.support differ; both policies meet the same kernel: pass the same")


def _same_table(first: Any, second: Any, S: int) -> bool:
    """Whether two tables on (s,a,x), dense or sparse, have the same entries."""
    if first is None or second is None:
        return first is second
    if not _checks.is_sparse(first) and not _checks.is_sparse(second):
        return bool(np.array_equal(first, second))
    one, two = (
        sparse.csr_array(t if _checks.is_sparse(t) else t.reshape(-1, S)).astype(np.float64) for t in (first, second)
    )
    return bool(abs(one - two).sum() == 0)


@dataclass(frozen=True)
class KnownDifference:
    """Where V^A - V^B lies for every kernel that is allowed, and how exactly the ends are known."""

    low: float
    high: float
    error: float

    def settles(self, margin: float) -> bool:
        """Whether no sample is needed, or none can help."""
        return self.answer(margin) is not None or self.high - self.low <= self.error

    def answer(self, margin: float) -> str | None:
        """Where the margin is outside."""
        if margin < self.low - self.error:
            return "above"
        return "below" if margin > self.high + self.error else None

    def verdict(self, task: Task, margin: float, delta: float) -> Verdict:
        """The answer without samples."""
        answer = self.answer(margin)
        return Verdict(
            task=task,
            threshold=margin,
            delta=delta,
            answer=answer,
            samples=0,
            certified=answer is not None,
            evidence=(np.inf if answer == "above" else 0.0, np.inf if answer == "below" else 0.0),
            estimate=self.low if self.high - self.low <= self.error else math.nan,
            interval=(self.low, self.high),
            witness=None,
            lower_bound=0.0,
            solves=0,
            counts=Counts(task.n_states, task.n_actions, sparse=_checks.is_sparse(task.support)),
            reason="" if answer else EQUAL,
            method="the range of the difference of policy A and policy B over all kernels",
        )


def known_difference(task_a: Task, task_b: Task) -> KnownDifference:
    """The range of V^A - V^B: 0 where the two never differ, else from the two ranges of values."""
    if never_differ(task_a, task_b):
        return KnownDifference(0.0, 0.0, 0.0)
    (low_a, high_a), (low_b, high_b) = value_range(task_a), value_range(task_b)
    error = 4.0 * (value_range_error(task_a) + value_range_error(task_b))
    return KnownDifference(low_a - high_b, high_a - low_b, error)


def never_differ(task_a: Task, task_b: Task) -> bool:
    """Whether policies and rewards agree wherever the two can get together, whatever the kernel."""
    S = task_a.n_states
    same = (np.abs(task_a.policy - task_b.policy) <= SAME).all(axis=1)
    if not same[task_a.initial > 0].all():
        return False
    if task_a.support is None and S * len(task_a._pairs.pair) > MOST_LISTED:
        return bool(same.all()) and _same_rewards(task_a, task_b)
    rows = task_a._rows
    alike = _rewards_on(task_a, rows) == _rewards_on(task_b, rows)
    state = rows.state[rows.of_entry()]
    same[state[~alike]] = False
    edges = sparse.csr_array((np.ones(rows.n_entries), (state, rows.successor)), shape=(S, S))
    return bool(same[reached(edges, task_a.initial > 0)].all())


def _rewards_on(task: Task, rows: Rows) -> FloatArray:
    """[E] the rewards of a task on the entries of any rows."""
    if task.rewards_on_successor:
        return rows.pick(task.rewards, task.n_states)
    return rows.per_entry(task.rewards.ravel()[rows.pair])


def reached(edges: Any, start: BoolArray) -> BoolArray:
    """[S] the states to which the edges lead from the start, and the start."""
    found = start.copy()
    while True:
        wider = found | ((edges.T @ found.astype(np.float64)) > 0)
        if (wider == found).all():
            return found
        found = wider


def _same_rewards(task_a: Task, task_b: Task) -> bool:
    if task_a.rewards_on_successor != task_b.rewards_on_successor:
        return False
    return task_a.rewards is task_b.rewards or _same_table(task_a.rewards, task_b.rewards, task_a.n_states)


# ---------------------------------------------------------------- what is shared


class Pool:
    """What all comparisons of one question share: the rows that some policy takes, the counts, the supply of draws."""

    def __init__(self, tasks: list[Task], sim: Any, rng: Any, most_listed: int = MOST_LISTED) -> None:
        first = tasks[0]
        with_successor = next((task for task in tasks if task.rewards_on_successor), None)
        policy = np.mean([task.policy for task in tasks], axis=0)
        self.task = replace(
            first,
            policy=policy / policy.sum(axis=1, keepdims=True),
            rewards=np.zeros(first.policy.shape) if with_successor is None else with_successor.rewards,
        )
        self.tally = Tally(self.task, 0.0, MixtureBoundary(), most_listed)
        self.source = Supply(self.task, sim, rng)
        self.samples = 0
        self._fitted: tuple[int, FloatArray] | None = None

    def model(self) -> FloatArray | None:
        """[E] the fitted kernel, the same for all policies; None where few of the allowed successors are listed."""
        tally = self.tally
        if tally.is_open:
            return None
        if self._fitted is None or self._fitted[0] != self.samples:
            q = _kernels.shrunk_rows(tally.rows, tally.N, tally.n, self.task.n_states, PAIR_MASS, STATE_MASS)
            self._fitted = self.samples, q
        return self._fitted[1]


class Side:
    """One policy on the shared rows. Rewards are centred."""

    def __init__(self, task: Task, pool: Pool) -> None:
        self.task, self.pool = task, pool
        rows, S = pool.tally.rows, task.n_states
        self.prob = task.policy.ravel()[rows.pair]
        self.k = np.flatnonzero(self.prob > 0)
        self.on_successor = task.rewards_on_successor
        self.reward = np.zeros(len(rows.pair)) if self.on_successor else task.rewards.ravel()[rows.pair]
        self.gain = rows.pick(task.rewards, S) if self.on_successor else np.zeros(0)
        self.policy_reward = np.bincount(rows.state, self.prob * self.reward, minlength=S).astype(np.float64)

    def rows(self) -> Rows:
        """The shared rows, with this policy and these rewards."""
        return self.pool.tally.rows._replace(prob=self.prob, reward=self.reward, gain=self.gain)

    def values(self, q: FloatArray | None) -> tuple[FloatArray, FloatArray | None]:
        """V0, and the occupancy of the fitted kernel."""
        task = self.task
        if q is None:
            return self._open_values(), None
        V, d, _ = _kernels.values_and_occupancy(self.rows(), q, task.discount, task.initial)
        return np.where(np.isfinite(V), V, 0.0), d

    def _open_values(self) -> FloatArray:
        """Values where any state may follow and few do: rows of pairs drawn to those of states, and these to the mean.

        As in `policytest.betting`, but counts come from more than one policy: actions are weighted by this one.
        """
        tally, S, gamma = self.pool.tally, self.task.n_states, self.task.discount
        rows = tally.rows
        visits = np.bincount(rows.state, tally.n, minlength=S)
        P = sparse.csr_array((tally.N, rows.successor, rows.start), shape=(len(rows.pair), S))
        V = self.policy_reward / (1.0 - gamma)
        for _ in range(2000):
            earned = P @ V
            by_state = np.bincount(rows.state, earned, minlength=S) + STATE_MASS * V.mean()
            by_state /= visits + STATE_MASS
            mean = (earned + PAIR_MASS * by_state[rows.state]) / (tally.n + PAIR_MASS)
            new = self.policy_reward + gamma * np.bincount(rows.state, self.prob * mean, minlength=S)
            moved, V = np.abs(new - V).max(), new
            if moved <= 1e-6 * np.abs(V).max():
                break
        return V

    def base(self, V: FloatArray, q: FloatArray | None, share: float) -> FloatArray:
        """[K] r^pi(s) - eta(s,a), eta a share of the advantages of the model; without rewards on successors."""
        rows, S = self.pool.tally.rows, self.task.n_states
        base = np.zeros(len(rows.pair)) if self.on_successor else self.policy_reward[rows.state]
        if share == 0.0 or q is None:
            return base
        worth = self.task.discount * V[rows.successor] + (self.gain if self.on_successor else 0.0)
        mean = rows.sums(q * worth)
        by_state = np.bincount(rows.state, self.prob * mean, minlength=S)
        return np.asarray(base - share * (mean - by_state[rows.state]))

    def worst(self, V: FloatArray, base: FloatArray, sign: float) -> FloatArray:
        """[S] B_A or B_B: the worst sum of residuals along any path of this policy."""
        task, gamma = self.task, self.task.discount
        if not task.any_successor:
            rows, _ = part_of(self.rows(), self.k)
            return np.asarray(_kernels.worst_paths(rows, base[self.k], V, sign, gamma))
        least = least_by_state(sign * base, self.pool.tally.rows.state, self.k, task.n_states)
        lowest = min(float((sign * V).min()), float(least.min()) / (1.0 - gamma))
        size = np.abs(base).max() / (1.0 - gamma) + np.abs(V).max()
        return np.asarray(np.minimum(0.0, least - sign * V + gamma * lowest) - 1e-12 * size)

    def lowest_steps(self, V: FloatArray, base: FloatArray, B: FloatArray, sign: float) -> FloatArray:
        """[K] the least of D(s,a,x) + gamma B(x) over x."""
        rows, gamma = self.pool.tally.rows, self.task.discount
        if self.task.any_successor:
            return np.asarray(sign * (base - V[rows.state]) + gamma * float((sign * V + B).min()))
        step = sign * self.residuals(V, base) + gamma * B[rows.successor]
        return np.minimum.reduceat(step, rows.start[:-1])

    def residuals(self, V: FloatArray, base: FloatArray) -> FloatArray:
        """[E] r - eta + gamma V0(x) - V0(s)."""
        rows, gamma = self.pool.tally.rows, self.task.discount
        gain = self.gain if self.on_successor else 0.0
        return np.asarray(rows.per_entry(base - V[rows.state]) + gain + gamma * V[rows.successor])


def part_of(rows: Rows, k: IntArray) -> tuple[Rows, IntArray]:
    """Some of the rows, with their entries; and which entries these are."""
    width = np.diff(rows.start)[k]
    start = np.concatenate([[0], np.cumsum(width)]).astype(np.int64)
    entries = np.repeat(rows.start[k] - start[:-1], width) + np.arange(start[-1])
    gain = rows.gain[entries] if len(rows.gain) else rows.gain
    chosen = Rows(rows.pair[k], rows.state[k], rows.prob[k], rows.reward[k], start, rows.successor[entries], gain)
    return chosen, entries


def least_by_state(values: FloatArray, state: IntArray, k: IntArray, S: int) -> FloatArray:
    """[S] the least value over these rows of a state, infinite where there is none."""
    least = np.full(S, np.inf)
    np.minimum.at(least, state[k], values[k])
    return least


class Coupling(NamedTuple):
    """The maximal coupling of two policies, [S,A] each: common + first = pi_A, common + second = pi_B."""

    common: FloatArray
    first: FloatArray
    second: FloatArray


def maximal_coupling(policy_a: FloatArray, policy_b: FloatArray) -> Coupling:
    """The same action with the largest probability: common = min(pi_A, pi_B)."""
    first, second = np.maximum(policy_a - policy_b, 0.0), np.maximum(policy_b - policy_a, 0.0)
    first[first <= SAME], second[second <= SAME] = 0.0, 0.0
    part = (first.sum(axis=1) > 0) & (second.sum(axis=1) > 0)
    first[~part], second[~part] = 0.0, 0.0
    return Coupling(policy_a - first, first, second)


def cumulative(table: FloatArray) -> FloatArray:
    """Running sums of each row of a table, for draws."""
    count, width = table.shape
    return cumulative_rows(np.arange(count + 1) * width, table.ravel()).reshape(count, width)


# ---------------------------------------------------------------- the bet


class Half(NamedTuple):
    """What one policy of a comparison bets with."""

    V: FloatArray  # V0
    B: FloatArray  # the worst sum along any path of its own
    base: FloatArray  # [K] r^pi(s) - eta(s,a); without the reward where that is on the successor
    gain: FloatArray  # [E] that reward, or empty


class CoupledPlan(NamedTuple):
    """What the next rollouts bet with; all of it from the past."""

    a: Half
    b: Half
    B: FloatArray  # the worst sum along any path of the two together
    L: float
    sign: float
    lead: float  # sign (rho.(V0_A - V0_B) - margin)
    bets: Any = STEADY  # the fractions of the largest bet

    @property
    def room(self) -> float:
        """L - lead: what a full bet stakes."""
        return self.L - self.lead


class CoupledRun(BettingRun):
    """The comparison of two policies at work; of `BettingRun` it keeps the purse, the loop and what they can say."""

    plan: Any

    def __init__(self, task_a: Task, task_b: Task, margin: float, pool: Pool) -> None:
        self.method, self.task, self.threshold, self.pool = CoupledBetting(), task_a, margin, pool
        self.source, self.tally = pool.source, pool.tally
        self.known = known_difference(task_a, task_b)
        centre = 0.25 * (sum(value_range(task_a)) + sum(value_range(task_b)))
        self.rounding = sum(value_range_error(task) + _centring_error(task, centre) for task in (task_a, task_b))
        self.a, self.b = Side(_exact(task_a, centre + margin), pool), Side(_exact(task_b, centre), pool)
        self.coupling = maximal_coupling(self.a.task.policy, self.b.task.policy)
        self._start_empty()
        self.plan = self._with_bets(self._fit())

    def _start_empty(self) -> None:
        """Nothing was bet yet."""
        self.samples, self.rollouts, self.refit_at, self.idle = 0, 0, 0.0, 0
        self.answer: str | None = None
        self.exhausted, self.averaged, self.draws = False, None, 0
        self.capital, self.walker = np.zeros((2, len(LOG_WEIGHTS))), np.zeros(6)
        self.recent: FloatArray = np.zeros(2)  # rollouts and the sum of their S^2, earlier ones counting less
        self.numbers, self.block = np.zeros((0, 3)), BLOCK if self.source.is_table else 64
        self.bets: list[tuple[list[FloatArray], float, float, float]] = []
        self._laws: tuple[Any, ...] | None = None

    # ------------------------------------------------------------ the loop

    def step(self, level: float, most: int) -> None:
        """Rollouts, until an answer, a refit, the end of a block of random numbers, or of the samples."""
        if self.pool.samples >= self.refit_at and self.walker[0] == 0.0:
            self.plan = self._with_bets(self._fit())
        before, ending = self.samples, _kernels.WAITING
        while ending == _kernels.WAITING:
            self._refill()
            ending, wanted = self._roll(level, most - (self.samples - before))
            if ending == _kernels.WAITING:
                self.source.provide(wanted)
        if ending == _kernels.CROSSED:
            self.answer = "above" if self.plan.sign > 0 else "below"
        self.idle = 0 if self.samples > before else self.idle + 1
        self.exhausted = self.answer is None and self.idle >= IDLE_BLOCKS

    def _refill(self) -> None:
        if not len(self.numbers):
            self.numbers = self.source.rng.random((self.block, 3))
            self.block = min(2 * self.block, LARGEST_BLOCK) if self.source.is_table else self.block

    def _roll(self, level: float, most: int) -> tuple[int, int]:
        """One call of the compiled code; how it ended, and the pair that is waited for."""
        size, side = len(self.numbers), 0 if self.plan.sign > 0 else 1
        pair, x, sums = np.empty(size, dtype=np.int64), np.empty(size, dtype=np.int64), np.empty(size)
        plan = (tuple(self.plan.a), tuple(self.plan.b), *self.plan[2:6])
        ending, used, steps, samples, rollouts, wanted, _ = _kernels.bet_coupled(
            self._world(), plan, (self.plan.bets, LOG_WEIGHTS, self.capital[side]), self.walker, self.source.arrays(),
            self.numbers, (level, most, max(self.refit_at - self.pool.samples, 0.0)), pair, x, sums,
        )  # fmt: skip
        self.numbers = self.numbers[used:]
        self._record(pair[:steps], x[:steps])
        self.samples += samples
        self.pool.samples += samples
        if rollouts:
            self._keep(sums[:rollouts])
            self.rollouts += rollouts
            self.recent += rollouts, float((sums[:rollouts] ** 2).sum())
        return int(ending), int(wanted)

    def _record(self, pair: IntArray, x: IntArray) -> None:
        """Every transition that was drawn is counted; those of known rows are not draws."""
        k = self.pool.task._row_of_pair[pair]
        drawn = self._tables()[0][k] < 0
        if drawn.any():
            self.tally.observe(k[drawn], x[drawn], np.inf)

    def _world(self) -> tuple[Any, ...]:
        rows, (only, *laws) = self.tally.rows, self._tables()
        return rows.start, rows.successor, self.pool.task._row_of_pair, only, *laws

    def _tables(self) -> tuple[Any, ...]:
        """Known successors, the laws of states and actions, the discount; for the compiled code."""
        if self._laws is None:
            (common, first, second), task = self.coupling, self.a.task
            self._laws = (
                self.pool.tally.only_successor,
                np.arange(task.n_states),
                cumulative(task.initial[None, :])[0],
                cumulative(np.concatenate([common, first], axis=1)),
                cumulative(second / np.maximum(second.sum(axis=1, keepdims=True), 1e-300)),
                cumulative(task.policy),
                cumulative(self.b.task.policy),
                task.discount,
                False,
            )
        return self._laws

    def why_undecided(self) -> str:
        """Where rollouts end before they meet anything unknown."""
        return "rollouts meet nothing that is unknown" if self.exhausted else ""

    # ------------------------------------------------------------ the fit

    def _fit(self) -> Any:
        """V0 of both from the common model, the side of the bet, and the share of advantages that promises most."""
        samples, q, initial = self.pool.samples, self.pool.model(), self.a.task.initial
        self.refit_at = max(REFIT * samples, samples + 1.0)
        (V_a, d_a), (V_b, d_b) = self.a.values(q), self.b.values(q)
        sign = 1.0 if float(initial @ (V_a - V_b)) >= 0 else -1.0
        shares = SHARES if q is not None and len(q) <= LARGE else (0.0,)
        weights = self._visits(q, d_a, d_b) if len(shares) > 1 else None
        best, chosen = -np.inf, None
        for share in shares:
            plan = self._coupled_plan((V_a, V_b), q, sign, share)
            promised = self._promised(plan, q, weights) if weights is not None else 0.0
            if promised > best or chosen is None:
                best, chosen = promised, plan
        return chosen

    def _with_bets(self, plan: CoupledPlan) -> CoupledPlan:
        """Steady fractions, and multiples of f = gap room/(v + gap^2), the best one where gains are small.

        All are chosen before the rollouts they are for; gap is what the model expects, or what noise may hide.
        """
        room = plan.room
        v = (room * room + self.recent[1]) / (1.0 + self.recent[0])
        gap = max(plan.lead, 0.5 * math.sqrt(v / (self.rollouts + 1.0)))
        self.recent *= 0.5
        best = gap * room / (v + gap * gap) if 0 < v + gap * gap < np.inf else 1.0
        fitted = np.clip(MULTIPLES * best, 1e-6, 0.995)
        return plan._replace(bets=np.concatenate([STEADY, fitted]))

    def _coupled_plan(
        self, V: tuple[FloatArray, FloatArray], q: FloatArray | None, sign: float, share: float
    ) -> CoupledPlan:
        """The bet for these values, with this share of the fitted advantages."""
        a, b = self._half(self.a, V[0], q, sign, share), self._half(self.b, V[1], q, -sign, share)
        return self._joined(a, b, sign)

    def _half(self, side: Side, V: FloatArray, q: FloatArray | None, sign: float, share: float) -> Half:
        base = side.base(V, q, share)
        return Half(V, side.worst(V, base, sign), base, side.gain)

    def _joined(self, a: Half, b: Half, sign: float) -> CoupledPlan:
        """The bet that two halves make, with the worst path of the two together."""
        initial = self.a.task.initial
        B = self._joint_worst(a, b, self._parting(a, b, sign), sign)
        lead = sign * float(initial @ (a.V - b.V))
        L = max(float(-B[initial > 0].min()), self._lowest_range(a, b, lead))
        return CoupledPlan(a, b, B, L, sign, lead)

    def _lowest_range(self, a: Half, b: Half, lead: float) -> float:
        """L may always be larger: where lead is as large, rounding must not decide."""
        size = float(np.abs(a.V).max() + np.abs(b.V).max())
        return lead + 4.0 * self.rounding + 1e-9 * size + 1e-300

    def _parting(self, a: Half, b: Half, sign: float) -> FloatArray:
        """[S] the worst that can follow when the two part at s; infinite where they do not."""
        pair, state, S = self.tally.rows.pair, self.tally.rows.state, self.task.n_states
        total = np.zeros(S)
        for side, half, sense, law in (
            (self.a, a, sign, self.coupling.first),
            (self.b, b, -sign, self.coupling.second),
        ):
            taken = np.flatnonzero(law.ravel()[pair] > 0)
            lowest = side.lowest_steps(half.V, half.base, half.B, sense)
            total += least_by_state(lowest, state, taken, S)
        return total

    def _joint_worst(self, a: Half, b: Half, floor: FloatArray, sign: float) -> FloatArray:
        """[S] B. Where any state may follow any pair the worst path has a closed form, as for one policy."""
        rows, gamma, S = self.tally.rows, self.a.task.discount, self.task.n_states
        shared = np.flatnonzero(self.coupling.common.ravel()[rows.pair] > 0)
        U, base = a.V - b.V, a.base - b.base
        if not (self.a.task.any_successor and self.b.task.any_successor):
            chosen, entries = part_of(rows._replace(gain=np.zeros(0)), shared)
            chosen = chosen._replace(gain=_difference(a.gain, b.gain, entries))
            return np.asarray(_kernels.coupled_paths(chosen, base[shared], U, floor, sign, gamma))
        least = least_by_state(sign * base, rows.state, shared, S)
        ends = np.minimum(floor, 0.0)
        lowest = min(float((sign * U + ends).min()), float(least.min()) / (1.0 - gamma))
        finite = np.abs(ends).max() + np.abs(base[shared]).max(initial=0.0) / (1.0 - gamma)
        size = finite + np.abs(a.V).max() + np.abs(b.V).max()
        return np.asarray(np.minimum(ends, least - sign * U + gamma * lowest) - 1e-12 * size)

    def _visits(self, q: Any, d_a: Any, d_b: Any) -> tuple[FloatArray, FloatArray, FloatArray]:
        """[K] the discounted numbers of visits of each pair that the model expects: together, A alone, B alone."""
        rows, task = self.tally.rows, self.a.task
        together = self.coupling.common.ravel()[rows.pair]
        _, d, _ = _kernels.values_and_occupancy(rows._replace(prob=together), q, task.discount, task.initial)
        both = d[rows.state] * together
        alone = [np.maximum(own[rows.state] * s.prob - both, 0.0) for own, s in ((d_a, self.a), (d_b, self.b))]
        return both, alone[0], alone[1]

    def _promised(self, plan: CoupledPlan, q: Any, weights: tuple[FloatArray, FloatArray, FloatArray]) -> float:
        """The growth of the capital a rollout that the model expects."""
        if not plan.room > 0:
            return -np.inf
        rows = self.tally.rows
        mine, theirs = (side.residuals(half.V, half.base) for side, half in ((self.a, plan.a), (self.b, plan.b)))
        v = 0.0
        for weight, residual in zip(weights, (mine - theirs, mine, theirs), strict=True):
            v += float(weight @ rows.sums(q * (residual / plan.room) ** 2))
        return expected_growth(v, plan.lead / plan.room, self.rollouts)

    # ------------------------------------------------------------ what it can say

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side; within a rollout, of what is left of it at worst."""
        capital = self.capital.copy()
        if self.walker[0] != 0.0:
            capital[0 if self.plan.sign > 0 else 1] += self._pending()
        first, second = np.logaddexp.reduce(capital + LOG_WEIGHTS, axis=1)
        return float(first), float(second)

    def _pending(self) -> FloatArray:
        """The logarithms of the factors of an unfinished rollout, at worst."""
        plan, (phase, s, earned, weight, y, other) = self.plan, self.walker
        if phase == _kernels.TOGETHER:
            worst = earned + weight * plan.B[int(s)]
        elif phase in (_kernels.B_PARTS, _kernels.B_IN_TURN):
            worst = -plan.L
        else:
            worst = earned + other * plan.b.B[int(y)]
            worst += weight * plan.a.B[int(s)] if phase in (_kernels.A_ALONE, _kernels.A_IN_TURN) else 0.0
        return np.asarray(np.log1p(np.maximum(plan.bets * (plan.lead + worst) / plan.room, -1.0 + 1e-15)))

    def interval(self, level: float) -> tuple[float, float]:
        """The differences that no side's capital refutes at delta/2 each: valid at the ends of all rollouts at once."""
        low, high = self.known.low - self.threshold, self.known.high - self.threshold
        lower = self.refuter(1.0).up_to(low, high, level + np.log(2.0))
        upper = -self.refuter(-1.0).up_to(-high, -low, level + np.log(2.0))
        return lower + self.threshold, upper + self.threshold

    def outcome(self, level: float) -> Outcome:
        """The capital is the proof."""
        return Outcome(self.evidence(), self.answer is not None, None, math.nan)

    @property
    def estimate(self) -> float:
        """The difference of the values under the empirical kernel."""
        entries, task = self.tally.estimate(), self.a.task
        values = [
            _kernels.values_and_occupancy(side.rows(), entries, task.discount, task.initial)[0]
            for side in (self.a, self.b)
        ]
        return float(task.initial @ (values[0] - values[1])) + self.threshold

    def state(self) -> dict[str, Any]:
        """Comparisons are not resumed."""
        return {}

    def restore(self, state: dict[str, Any]) -> None:
        """Comparisons are not resumed."""
        raise InputError("a comparison cannot be resumed; start it again")


def _exact(task: Task, centre: float) -> Task:
    """The task with centred rewards, and a policy whose rows sum to 1 to the last digit."""
    return replace(task.centred(centre), policy=task.policy / task.policy.sum(axis=1, keepdims=True))


def _difference(first: FloatArray, second: FloatArray, entries: IntArray) -> FloatArray:
    """The difference of rewards on successors; empty where there are none."""
    if not len(first) and not len(second):
        return np.zeros(0)
    return np.asarray((first[entries] if len(first) else 0.0) - (second[entries] if len(second) else 0.0))
