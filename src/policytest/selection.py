r"""Which policy is best? Among some that are given, or among all.

*Among K policies.* Each unordered pair is a comparison (`policytest.comparison`), whose two sides have capital of their
own; a policy is out once another one's capital against it reaches (K-1)/delta. Let b be a best policy. That j is better
than b is false for each j, so b is thrown out with probability at most (K-1) delta/(K-1) = delta. While b is in, the
last one that is left is b, or as good. The current leader is compared with those that are left, each in turn.

*Among all policies.* The candidate pi is the optimal deterministic policy of the fitted model. It is optimal, from
every state that can be reached from rho at all, if and only if no deviation pays (policy improvement):

    gap(s,a) = V^pi(s) - Q^pi(s,a) >= 0     for every such s and every a other than pi(s).

Each deviation is tested by betting against gap(s,a) <= 0: two rollouts from s, A follows pi, B takes a first and then
follows pi. They part at once, and then move in turn, with one weight w and one coin, g = 1 or
w/g <= (S + L)/-(B_A(x) + B_B(y)). Should they meet, the rest does not differ, and the rollout ends. By the proof in
`policytest.comparison`, on the state s copied for the start, S >= -L and has mean at most gap - (V0(s) - Q0(s,a)):
S + w (E_A(x) + E_B(y)) is a martingale, and E_A + E_B = 0 where they meet.

*Nothing is paid for the number of deviations.* pi is returned only if all of them are refuted. If it is not optimal,
let (s,a) be the first with gap(s,a) < 0: which one that is does not depend on data. Its capital alone would have to
reach 1/delta', which happens with probability at most delta'.

*Candidates change*; the j-th distinct one has delta' = 6 delta/(pi^2 j^2), which sum to delta, and capital of its own,
which it keeps if it comes back. It is chosen from the past, so this holds conditionally, and by the sum for all.

All comparisons share their counts: what one has drawn improves the model of the others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy import sparse

from policytest import _checks, _kernels
from policytest._checks import BoolArray, FloatArray, InputError, IntArray
from policytest._display import Row, Shown, Table, number, probability, to_json
from policytest.betting import REFIT
from policytest.boundaries import check_delta
from policytest.comparison import (
    CoupledPlan,
    CoupledRun,
    Half,
    Pool,
    Side,
    _exact,
    cumulative,
    known_difference,
    reached,
)
from policytest.counts import Counts
from policytest.sequential import sampling_limit
from policytest.simulators import checked_draw
from policytest.tally import FULL_ENTRIES, _centring_error
from policytest.task import Task, extreme_state_values, value_range, value_range_error

EXPLORED = 10  # draws of each pair before the first candidate
TURN, TURN_SHARE = 64, 0.02  # samples of a comparison at a time: at least, and as a share of all so far


def _why(answered: bool, samples: int, limit: int) -> str:
    """Why there is no answer."""
    if answered:
        return ""
    return "all samples that were allowed are used" if samples >= limit else "rollouts meet nothing that is unknown"


@dataclass(frozen=True, eq=False)
class Selection(Shown):
    """Which policy is best, and what that rests on.

    Attributes
    ----------
    policy, index
        The policy [S,A]; its place among ``policies`` where these were given, else None.
    answered, certified
        Whether it is the best one, or as good, with probability at least 1-delta. If not, it is the best by estimate.
    samples, counts
        Every transition drawn.
    values
        Estimates from the fitted model: [K] the value of each given policy from rho, or [S] of the policy returned.
    settled
        How many of the ``questions`` are settled: of rivals that are out, or of deviations that do not pay.
    """

    policy: FloatArray
    index: int | None
    samples: int
    certified: bool
    answered: bool
    values: FloatArray
    delta: float
    settled: int
    questions: int
    counts: Counts = field(repr=False)
    reason: str = ""

    @cached_property
    def summary(self) -> Table:
        """The selection as one table, for text, HTML and JSON."""
        among = self.index is not None
        what = "rivals that are out" if among else "deviations that do not pay"
        title = f"Policy {self.index} is the best" if among else "This policy is optimal"
        actions: Any = self.index if among else self.policy.argmax(axis=1)
        shown = str(self.index) if among else " ".join(map(str, actions[:20])) + (" ..." if len(actions) > 20 else "")
        rows = (
            Row("policy" if among else "action in each state", shown, "", "policy", self.policy),
            Row("certified", "yes" if self.certified else "no", "", "certified", self.certified),
            Row("samples", number(self.samples), "", "samples", self.samples),
            Row("delta", probability(self.delta), "probability of a wrong answer, at most", "delta", self.delta),
            Row(what, f"{self.settled} of {self.questions}", "", "settled", [self.settled, self.questions]),
        )
        return Table(f"{title} (certified)" if self.answered else f"Undecided: {self.reason}", rows)

    def to_json(self) -> str:
        """One JSON document, with "schema": 1."""
        extra = {"index": self.index, "answered": self.answered, "reason": self.reason, "values": self.values}
        return to_json({"schema": 1, **self.summary.data(), **extra})


def identify(
    rewards: Any,
    initial: Any,
    discount: float,
    sim: Any,
    delta: float = 0.05,
    policies: Sequence[Any] | None = None,
    rng: Any = 0,
    max_samples: int | None = None,
    support: Any = None,
) -> Selection:
    """The best of some policies, or of all, with error at most delta.

    Parameters
    ----------
    rewards, initial, discount, support
        As in `Task`.
    sim
        The simulator: `draw(states, actions, rng)`.
    policies
        Arrays [S,A]: the best of these is sought. None: an optimal policy, from every state that rho can lead to.
    delta, rng, max_samples
        The probability of error; a seed or a Generator; stop undecided after this many samples.

    Ties are not settled by samples: where the best two are exactly as good, only ``max_samples`` ends the search.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> found = identify(two.task.rewards, two.task.initial, 0.9, pt.TabularSimulator(two.kernel),
    ...                  policies=[two.alternative_policy, two.task.policy])
    >>> found.index, found.certified
    (1, True)
    """
    delta, limit = check_delta(delta), sampling_limit(max_samples)
    if policies is None:
        return _best_of_all(_evenly(rewards, initial, discount, support), sim, delta, rng, limit)
    return _best_of(_candidates(rewards, policies, initial, discount, support), sim, delta, rng, limit)


# ---------------------------------------------------------------- among some


def _candidates(rewards: Any, policies: Any, initial: Any, discount: float, support: Any) -> list[Task]:
    """A task for each policy."""
    if isinstance(policies, np.ndarray) and policies.ndim != 3:
        raise InputError(f"policies has shape {policies.shape}; pass a list of arrays [S,A]")
    try:
        listed = list(policies)
    except TypeError:
        raise InputError(f"policies is {policies!r}; pass a list of arrays [S,A]") from None
    if not listed:
        raise InputError("policies is empty; pass at least one array [S,A], or None for the best of all policies")
    tasks = []
    for index, policy in enumerate(listed):
        try:
            tasks.append(Task(rewards, policy, initial, discount, support))
        except InputError as error:
            raise InputError(f"policies[{index}]: {error}") from None
        _checks.check_shape(f"policies[{index}]", tasks[-1].policy.shape, tasks[0].policy.shape)
    return tasks


class Tournament:
    """The best of K: pairwise comparisons of the leader with those that are left."""

    def __init__(self, tasks: list[Task], sim: Any, delta: float, rng: Any) -> None:
        self.tasks, self.pool = tasks, Pool(tasks, sim, rng)
        self.sides = [Side(task, self.pool) for task in tasks]
        self.level = math.log(max(len(tasks) - 1, 1) / delta)
        self.left = list(range(len(tasks)))
        self.runs: dict[tuple[int, int], CoupledRun] = {}
        self.refit_at, self.values = 0.0, np.zeros(len(tasks))
        self._without_samples()
        self._estimate()

    def _without_samples(self) -> None:
        """Throw out what ranges of values decide; of policies that are known to be as good, the later ones."""
        for i in range(len(self.tasks)):
            for j in range(i + 1, len(self.tasks)):
                if i in self.left and j in self.left:
                    known = known_difference(self.tasks[i], self.tasks[j])
                    if known.settles(0.0):
                        self.left.remove(i if known.answer(0.0) == "below" else j)

    def _estimate(self) -> None:
        """The values that the model gives the policies."""
        q = self.pool.model()
        self.values = np.array([float(side.task.initial @ side.values(q)[0]) for side in self.sides])
        self.refit_at = REFIT * self.pool.samples + 1.0

    @property
    def leader(self) -> int:
        """The best, by estimate, of those that are left."""
        return max(self.left, key=lambda i: float(self.values[i]))

    def play(self, limit: int) -> bool:
        """Compare until one is left; whether that is so."""
        while len(self.left) > 1 and self.pool.samples < limit:
            if self.pool.samples >= self.refit_at:
                self._estimate()
            pairs = [(min(self.leader, j), max(self.leader, j)) for j in self.left if j != self.leader]
            open_pairs = [pair for pair in pairs if not self._run(pair).exhausted]
            if not open_pairs:
                return False
            self._turn(min(open_pairs, key=lambda pair: self._run(pair).samples), limit)
        return len(self.left) == 1

    def _run(self, pair: tuple[int, int]) -> CoupledRun:
        if pair not in self.runs:
            self.runs[pair] = CoupledRun(self.tasks[pair[0]], self.tasks[pair[1]], 0.0, self.pool)
        return self.runs[pair]

    def _turn(self, pair: tuple[int, int], limit: int) -> None:
        """Some samples for one comparison; the loser is out."""
        run, samples = self._run(pair), self.pool.samples
        run.step(self.level, min(max(TURN, int(TURN_SHARE * samples)), limit - samples))
        if run.answer is not None:
            self.left.remove(pair[1] if run.answer == "above" else pair[0])


def _best_of(tasks: list[Task], sim: Any, delta: float, rng: Any, limit: int) -> Selection:
    tournament = Tournament(tasks, sim, delta, rng)
    answered = tournament.play(limit)
    tournament._estimate()
    best, pool = tournament.leader, tournament.pool
    return Selection(
        policy=tasks[best].policy,
        index=best,
        samples=pool.samples,
        certified=answered,
        answered=answered,
        values=tournament.values,
        delta=delta,
        settled=len(tasks) - len(tournament.left),
        questions=len(tasks) - 1,
        counts=pool.tally.counts(),
        reason=_why(answered, pool.samples, limit),
    )


# ---------------------------------------------------------------- among all


def _evenly(rewards: Any, initial: Any, discount: float, support: Any) -> Task:
    """The task of the policy that takes every action alike: its rows are all pairs."""
    S = len(_checks.real_array("initial", initial, (None,)))
    if _checks.is_sparse(rewards):
        A = rewards.shape[0] // max(S, 1)
    else:
        array = _checks.real_array("rewards", rewards)
        if array.ndim not in (2, 3):
            raise InputError(f"rewards has shape {array.shape}, expected (S, A) or (S, A, S)")
        A = array.shape[1]
    if S == 0 or A == 0:
        raise InputError(f"rewards and initial have {S} states and {A} actions; at least one of each is needed")
    return Task(rewards, np.full((S, A), 1.0 / A), initial, discount, support)


class Fit(NamedTuple):
    """What all deviations from one candidate share: V0 and Q0, worst paths, and the worst steps [K] of A and of B."""

    V: FloatArray
    Q: FloatArray  # [K]
    base: FloatArray
    B_a: FloatArray
    B_b: FloatArray
    lowest_a: FloatArray
    lowest_b: FloatArray


class Candidate:
    """A deterministic policy, and the tests of its deviations."""

    def __init__(self, task: Task, actions: IntArray, pool: Pool, matter: BoolArray, level: float) -> None:
        A = task.n_actions
        self.actions, self.pool, self.level = actions, pool, level
        task = Task(task.rewards, np.eye(A)[actions], task.initial, task.discount, task.support)
        self.centre = 0.5 * sum(value_range(task))
        self.rounding = 2.0 * (value_range_error(task) + _centring_error(task, self.centre))
        self.side = Side(_exact(task, self.centre), pool)
        self._fit: tuple[int, Fit] | None = None
        self.settled = self._without_samples()
        self.asked = matter[:, None] & (np.arange(A) != actions[:, None])
        self.settled &= self.asked
        self.tests: dict[tuple[int, int], Deviation] = {}

    def _without_samples(self) -> BoolArray:
        """[S,A] deviations that do not pay, whatever the kernel is."""
        side, rows = self.side, self.pool.tally.rows
        task, A = side.task, side.task.n_actions
        low, high = extreme_state_values(task, "min"), extreme_state_values(task, "max")
        gain = side.gain if side.on_successor else rows.per_entry(side.reward)
        most = np.maximum.reduceat(gain + task.discount * high[rows.successor], rows.start[:-1])
        never = low[rows.state] > most + 4.0 * self.rounding
        follow = np.arange(task.n_states) * A + self.actions  # rows of the candidate's own actions
        only, at = self.pool.tally.only_successor, rows.start[:-1]
        own = follow[rows.state]
        alike = (only >= 0) & (only == only[own]) & (gain[at[own]] >= gain[at])
        return np.asarray(never | alike).reshape(-1, A)

    @property
    def undecided(self) -> list[tuple[int, int]]:
        """The deviations still to be settled."""
        return [(int(s), int(a)) for s, a in np.argwhere(self.asked & ~self.settled)]

    def fit(self) -> Fit:
        """V0 and the worst paths, from the model at this sample."""
        if self._fit is None or self._fit[0] != self.pool.samples:
            self._fit = self.pool.samples, self._fitted()
        return self._fit[1]

    def _fitted(self) -> Fit:
        side, q = self.side, self.pool.model()
        assert q is not None
        V, _ = side.values(q)
        Q = action_values(side, q, V)
        base = side.reward  # the candidate is deterministic: its advantages are 0
        B_a, B_b = side.worst(V, base, 1.0), side.worst(V, base, -1.0)
        steps = side.lowest_steps(V, base, B_a, 1.0), side.lowest_steps(V, base, B_b, -1.0)
        return Fit(V, Q, base, B_a, B_b, *steps)

    def test(self, place: tuple[int, int]) -> Deviation:
        """The test of one deviation."""
        if place not in self.tests:
            self.tests[place] = Deviation(self, *place)
        return self.tests[place]

    def turn(self, limit: int) -> bool:
        """Some samples for the deviation that has had fewest; False where there is none to go on with."""
        undecided = [place for place in self.undecided if not self.test(place).exhausted]
        if not undecided:
            return False
        place, samples = min(undecided, key=lambda place: self.test(place).samples), self.pool.samples
        test = self.test(place)
        test.step(self.level, min(max(TURN, int(TURN_SHARE * samples)), limit - samples))
        self.settled[place] = test.answer is not None
        return True


def action_values(side: Side, q: FloatArray, V: FloatArray) -> FloatArray:
    """[K] r(s,a) + gamma sum_x q(x|s,a) V(x)."""
    rows = side.pool.tally.rows
    worth = side.task.discount * V[rows.successor] + (side.gain if side.on_successor else 0.0)
    return np.asarray(side.reward + rows.sums(q * worth))


class Deviation(CoupledRun):
    """Whether V^pi(s) - Q^pi(s,a) > 0: A follows pi from s, B takes a first. The start is the state s, copied as S."""

    def __init__(self, candidate: Candidate, s: int, a: int) -> None:
        self.candidate, self.pool, self.at = candidate, candidate.pool, (s, a)
        self.task, self.threshold = candidate.side.task, 0.0
        self.source, self.tally, self.rounding = self.pool.source, self.pool.tally, candidate.rounding
        self.a = self.b = candidate.side
        self._start_empty()
        self.plan = self._with_bets(self._fit())

    def _fit(self) -> Any:
        """V0(S) = V0(s) for A and Q0(s,a) for B."""
        samples, (s, a), fit = self.pool.samples, self.at, self.candidate.fit()
        self.refit_at = max(REFIT * samples, samples + 1.0)
        own, other = self._row(s, int(self.candidate.actions[s])), self._row(s, a)
        lead = float(fit.V[s] - fit.Q[other])
        least = fit.lowest_a[own] + fit.lowest_b[other] - lead
        size = np.abs(fit.V).max() + np.abs(fit.base).max() / (1.0 - self.task.discount)
        start = min(0.0, float(least)) - 1e-12 * float(size)
        half_a = Half(np.append(fit.V, fit.V[s]), fit.B_a, fit.base, self.a.gain)
        half_b = Half(np.append(fit.V, fit.Q[other]), fit.B_b, fit.base, self.b.gain)
        L = max(-start, self._lowest_range(half_a, half_b, lead))
        return CoupledPlan(half_a, half_b, np.append(np.zeros(self.task.n_states), start), L, 1.0, lead)

    def _row(self, s: int, a: int) -> int:
        return int(self.pool.task._row_of_pair[s * self.task.n_actions + a])

    def _tables(self) -> tuple[Any, ...]:
        """From S on, A and B part at once; after that both follow the candidate."""
        if self._laws is None:
            (s, a), policy = self.at, self.task.policy
            S, A = policy.shape
            together, leaving = np.zeros((S + 1, 2 * A)), np.zeros((S + 1, A))
            together[:S, :A], together[S, A:], leaving[S, a] = policy, policy[s], 1.0
            follow = cumulative(policy)
            self._laws = (
                self.pool.tally.only_successor,
                np.append(np.arange(S), s),
                cumulative(np.eye(S + 1)[[S]])[0],
                cumulative(together),
                cumulative(leaving),
                follow,
                follow,
                self.task.discount,
                True,
            )
        return self._laws


class Search:
    """Best policy identification: candidates from the model, each with the tests of its deviations."""

    def __init__(self, task: Task, sim: Any, delta: float, rng: Any, limit: int) -> None:
        self.task, self.delta, self.limit = task, delta, limit
        self.pool = Pool([task], sim, rng, FULL_ENTRIES)
        if self.pool.tally.is_open:
            raise InputError(f"the task has {task.n_states} states and no support; declare `support` to identify in it")
        self.even = Side(task, self.pool)
        self.matter = self._reachable()
        self.tried: dict[bytes, Candidate] = {}
        self._explore()
        self.refit_at = 0.0
        self.candidate = self._propose(np.zeros(task.n_states, dtype=np.int64))

    def _reachable(self) -> BoolArray:
        """[S] the states to which some actions may lead from rho."""
        rows, S = self.pool.tally.rows, self.task.n_states
        edges = sparse.csr_array((np.ones(rows.n_entries), (rows.state[rows.of_entry()], rows.successor)), shape=(S, S))
        return reached(edges, self.task.initial > 0)

    def _explore(self) -> None:
        """A few draws of each pair, so that the first candidate is not a guess."""
        pool, A = self.pool, self.task.n_actions
        rows = pool.tally.rows
        k = np.flatnonzero((pool.tally.only_successor < 0) & self.matter[rows.state])
        k = np.tile(k, EXPLORED)[: self.limit]
        if len(k):
            pair = rows.pair[k]
            x = checked_draw(pool.source.draw, pair // A, pair % A, pool.source.rng, self.task.n_states)
            pool.tally.observe(k, x, np.inf)
            pool.samples += len(k)

    def _propose(self, actions: IntArray) -> Candidate:
        """The candidate of the model at this sample."""
        self.refit_at = REFIT * self.pool.samples + 1.0
        actions = self._optimal(actions)
        key = actions.tobytes()
        if key not in self.tried:
            level = -math.log(self.delta) + math.log(math.pi**2 / 6.0) + 2.0 * math.log(len(self.tried) + 1.0)
            self.tried[key] = Candidate(self.task, actions, self.pool, self.matter, level)
        return self.tried[key]

    def _optimal(self, actions: IntArray) -> IntArray:
        """Policy iteration on the model, from these actions; they are kept where others are not better."""
        q, side, S, A = self.pool.model(), self.even, self.task.n_states, self.task.n_actions
        assert q is not None
        actions, states = actions.copy(), np.arange(S)
        for _ in range(100 * S):
            rows = side.rows()._replace(prob=np.eye(A)[actions].ravel())
            V, _, _ = _kernels.values_and_occupancy(rows, q, self.task.discount, self.task.initial)
            Q = action_values(side, q, V).reshape(S, A)
            better = Q.max(axis=1) > Q[states, actions] + 1e-9 * np.abs(V).max()
            if not better.any():
                break
            actions[better] = Q.argmax(axis=1)[better]
        return actions

    def go(self) -> bool:
        """Test deviations until all are settled; whether that is so."""
        while self.candidate.undecided:
            if self.pool.samples >= self.limit:
                return False
            if self.pool.samples >= self.refit_at:
                self.candidate = self._propose(self.candidate.actions)
            if self.candidate.undecided and not self.candidate.turn(self.limit):
                return False
        return True


def _best_of_all(task: Task, sim: Any, delta: float, rng: Any, limit: int) -> Selection:
    search = Search(task, sim, delta, rng, limit)
    answered = search.go()
    candidate, pool = search.candidate, search.pool
    return Selection(
        policy=np.eye(task.n_actions)[candidate.actions],
        index=None,
        samples=pool.samples,
        certified=answered,
        answered=answered,
        values=candidate.fit().V + candidate.centre,
        delta=delta,
        settled=int(candidate.settled.sum()),
        questions=int(candidate.asked.sum()),
        counts=pool.tally.counts(),
        reason=_why(answered, pool.samples, limit),
    )
