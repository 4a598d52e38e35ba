r"""One policy in a large task with declared supports: a refit touches what was visited lately, not all states.

The bets are those of `betting.run`. Values and advantages may be any functions of the past, so that only their choice
is new here, and the worst sums B, which must satisfy  B(s) <= min(0, D(s,a,x) + gamma B(x)).

*The reference.* The model of small tasks is fitted to all rows before the first sample, and again when the samples have
grown by a factor, which is larger in larger tasks. Its values are U, and eta_0 is a share of its advantages.

*The values.* Let Z be the states visited since then. Outside of Z,  V0 = U.  On Z, V0 solves the equations of the rows
as they are fitted now, with these values outside: a system of |Z| unknowns.

*The worst sums.* In terms of W = B + sign V0 the inequality is  W(s) <= sign V0(s)  and

    W(s) <= sign (r(s,a,x) - eta(s,a)) + gamma W(x)  for every pi(a|s) > 0 and allowed x,

where V0 does not occur. With eta_0 for eta, W is found once for the reference. It serves for every V0 that is not below
it (V0 is raised to it where it is), and  B = W - sign V0.

*The advantages.* W also serves for every eta with

    sign eta(s,a) <= slack(s,a) = sign r^pi(s) + min over x of [sign r(s,a,x) + gamma W(x)] - W(s),

where r^pi is left out if rewards are on successors. eta_0 satisfies this. In each state of Z, eta is the point closest
to the advantages as they are fitted now, on the segment from eta_0 to them, that satisfies it; its mean stays 0.

Once the slack is known W is lowered by more than rounding can do: for W - c there is (1-gamma) c to spare.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from scipy import sparse

from policytest._base.arrays import Arrays, FloatArray, IntArray
from policytest._base.compiled import rollouts
from policytest._base.compiled.small import TINY, Residuals
from policytest._base.linear import solved, system_of
from policytest._base.rows import Rows, first_of_state
from policytest.mdp.task import Task
from policytest.payoffs.plan import LARGE, SHARES, BettingPlan
from policytest.payoffs.policy_bet import PolicyBet, part_of, rounded
from policytest.payoffs.pool import PAIR_MASS, STATE_MASS, Pool

ROUGH, CLOSE, CLOSER = 1e-3, 1e-5, 1e-7  # relative residuals of linear systems: of visits, values, the estimate
SEVERAL = 20_000  # states up to which all shares of the advantages are tried; above, every second one
FIRST, GROWN, STATES = 100, 1.5, 12_500  # the reference is fitted again at FIRST samples, then when they have grown


class Visited(NamedTuple):
    """The states visited since the reference, with the model fitted to them."""

    states: IntArray  # [Z]
    own: IntArray  # [rows] the place of the state of a row
    k: IntArray  # [rows] the row of the task
    rows: Rows  # laid out by themselves; states and successors are those of the task
    entries: IntArray  # the entries of the task
    q: FloatArray  # [entries]
    d: FloatArray  # [Z] discounted visits of a rollout


class Reach(NamedTuple):
    """What the reference says about one side, with one share of its advantages."""

    W: FloatArray  # [S]
    slack: FloatArray  # [K]
    base: FloatArray  # [K] r^pi - eta_0
    squares: FloatArray  # [S] the mean of D^2
    total: float  # its sum over the visits of a rollout


class VisitedBet(PolicyBet):
    """One policy in a large task."""

    def __init__(self, task: Task, pool: Pool, rounding: float = 0.0, alone: bool = False) -> None:
        super().__init__(task, pool, rounding, alone)
        entries, S = pool.tally.rows.n_entries, task.n_states
        self.first = np.searchsorted(pool.tally.rows.state, np.arange(S + 1))  # the first row of each state
        self.shares = SHARES if S <= SEVERAL else SHARES[::2] if entries <= LARGE else SHARES[:1]
        self.growth = max(GROWN, S / STATES)
        self.inside = np.full(S, -1, dtype=np.int64)  # the place among the visited states
        self.refer(pool.tally.N, pool.tally.n)

    # ------------------------------------------------------------ the reference

    def refer(self, N: FloatArray, n: FloatArray) -> None:
        """Fit the reference to these counts."""
        rows, task = self.rows(), self.task
        self.seen, self.n = np.flatnonzero(N), n.copy()
        self.counts = N[self.seen]
        self.q = rollouts.shrunk_rows(rows, N, n, task.n_states, PAIR_MASS, STATE_MASS)
        moves, reward = system_of(rows, self.q, task.discount)
        self.prior = rounded(solved(moves, reward, task.layout.uniform_values[0], CLOSE))
        self.visits = solved(moves.T, task.initial, task.initial, ROUGH)
        self.V, self.reaches = self.prior, dict[tuple[float, float], Reach]()
        self.onward: dict[float, IntArray] = {}  # the worst paths of the last share

    def state(self) -> Arrays:
        """The counts of the reference."""
        return {"reference_at": self.seen, "reference_N": self.counts}

    def restore(self, state: Arrays) -> None:
        """The reference of these counts, which are part of the present ones."""
        tally = self.pool.tally
        N, at = np.zeros(len(tally.N)), np.array(state["reference_at"], dtype=np.int64)
        N[at] = state["reference_N"]
        if (N < 0).any() or (N > tally.N).any():
            raise ValueError("the counts of the reference are not part of the counts")
        self.refer(N, tally.rows.sums(N))

    def reach(self, sign: float, share: float) -> Reach:
        """The worst sums and the advantages of the reference."""
        if (sign, share) not in self.reaches:
            rows, gamma, U = self.rows(), self.task.discount, self.prior
            centre = self.centre[rows.state]
            base = centre - share * self._advantages(rows, self.q, U) if share else centre
            W = rollouts.lowest_sums(
                rows, base, sign * U, sign, gamma, self.onward.setdefault(sign, np.full(len(U), -1))
            )
            step = gamma * W[rows.successor] + sign * self.paid
            slack = sign * centre - W[rows.state] + np.minimum.reduceat(step, rows.start[:-1])
            squares = self._squares(rows, self.q, U, base)
            W -= 1e-13 * (np.abs(W).max() + np.abs(U).max()) / (1.0 - gamma)
            self.reaches[sign, share] = Reach(W, slack, base, squares, float(self.visits @ squares))
        return self.reaches[sign, share]

    def estimate(self) -> float:
        """The value of the empirical kernel, whose unvisited rows are uniform."""
        tally, rows = self.pool.tally, self.rows()
        q = rows.per_entry(1.0 / np.diff(rows.start))
        drawn, entries = part_of(rows, np.flatnonzero(tally.n))
        q[entries] = tally.N[entries] / drawn.per_entry(drawn.sums(tally.N[entries]))
        return float(self.task.initial @ solved(*system_of(rows, q, self.task.discount), self.V, CLOSER))

    # ------------------------------------------------------------ the fit

    def fit(self) -> FloatArray:
        """[S] V0; the states visited since the reference are found again."""
        tally, samples = self.pool.tally, self.pool.samples
        if samples >= self.growth * max(float(self.n.sum()), FIRST):
            self.refer(tally.N, tally.n)
        V, part = self.prior.copy(), self._changed()
        V[self.closed] = self.closed_values
        self.visited = part
        if not len(part.states):
            return V
        rows, gamma, m = part.rows, self.task.discount, len(part.states)
        place, flow = self.inside[rows.successor], rows.per_entry(gamma * rows.prob)
        worth = np.where(place < 0, gamma * V[rows.successor], 0.0) + (rows.gain if self.on_successor else 0.0)
        reward = self.centre[part.states] + np.bincount(part.own, rows.prob * rows.sums(part.q * worth))
        start = np.append(rows.start[first_of_state(rows)], rows.start[-1])
        before, after = (
            sparse.csr_array((np.where(place < 0, 0.0, q * flow), np.maximum(place, 0), start), shape=(m, m))
            for q in (self.q[part.entries], part.q)
        )
        V[part.states] = rounded(solved(after, reward, V[part.states], CLOSE))
        self.visited = part._replace(d=solved(after.T, part.d - before.T @ part.d, part.d, CLOSE))
        return V

    def _changed(self) -> Visited:
        """The states visited since the reference, with their rows fitted as in small tasks."""
        tally = self.pool.tally
        states = np.unique(tally.rows.state[np.flatnonzero(tally.n != self.n)])
        width = self.first[states + 1] - self.first[states]
        own = np.repeat(np.arange(len(states)), width)
        k = np.repeat(self.first[states] - np.cumsum(width) + width, width) + np.arange(len(own))
        rows, entries = part_of(self.rows(), k)
        N, n = tally.N[entries], tally.n[k]
        q = rollouts.shrunk_rows(rows, N, n, self.task.n_states, PAIR_MASS, STATE_MASS)
        self.inside[:] = -1
        self.inside[states] = np.arange(len(states))
        return Visited(states, own, k, rows, entries, q, self.visits[states])

    def planned(self, V: FloatArray, sign: float, share: float) -> Residuals:
        """The bet on these values, with this share of the advantages as far as the worst sums allow."""
        part, reach = self.visited, self.reach(sign, share)
        V, base = sign * np.maximum(sign * V, reach.W), reach.base.copy()
        if len(part.states):
            centre, slack = self.centre[part.rows.state], reach.slack[part.k]
            least, aim = centre - base[part.k], share * self._advantages(part.rows, part.q, V)
            base[part.k] = centre - least - self._towards(sign * least, sign * aim, slack) * (aim - least)
        return self._with_worst(V, base, sign, reach)

    def _with_worst(self, V: FloatArray, base: FloatArray, sign: float, reach: Reach) -> Residuals:
        """B = W - sign V0; nothing is left to bet on in closed states."""
        B = np.minimum(reach.W - sign * V, 0.0)
        B[self.closed] = TINY
        return Residuals(V, base, self.gain, B)

    def _towards(self, least: FloatArray, aim: FloatArray, slack: FloatArray) -> FloatArray:
        """[rows] in each state the largest share of the way for which the result is at most the slack."""
        room, wanted = np.maximum(slack - least, 0.0), aim - least
        share = np.divide(room, wanted, out=np.ones(len(room)), where=wanted > room)
        first = first_of_state(self.visited.rows)
        return np.minimum.reduceat(share, first)[self.visited.own]

    def bet(self, V: FloatArray, base: FloatArray, sign: float) -> Residuals:
        """The bet on kept values and advantages; refused unless the worst sums of a share hold for them."""
        size, state = 1e-9 * float(np.abs(V).max()), self.pool.tally.rows.state
        self.visited = part = self._changed()
        for reach in (self.reach(sign, share) for share in self.shares):
            off = base - reach.base
            off[part.k] = 0.0
            allowed = sign * (self.centre[state] - base) <= reach.slack + size
            if not off.any() and allowed.all() and (sign * V >= reach.W - size).all():
                return self._with_worst(V, base, sign, reach)
        raise ValueError("the worst sums do not hold")

    def noise(self, plan: BettingPlan, share: float) -> float:
        """The mean of S^2 to expect, in units of room^2: of the reference, and of the states visited since then."""
        part, reach = self.visited, self.reach(plan.sign, share)
        before = self.visits[part.states] @ reach.squares[part.states]
        after = part.d @ self._squares(part.rows, part.q, plan.a.V, plan.a.base[part.k])
        return float(reach.total - before + after) / plan.room**2

    def _squares(self, rows: Rows, q: FloatArray, V: FloatArray, base: FloatArray) -> FloatArray:
        """The mean of D^2 in each state of these rows."""
        D = rows.per_entry(base - V[rows.state]) + self.task.discount * V[rows.successor]
        squares = rows.sums(q * (D + rows.gain if self.on_successor else D) ** 2)
        return np.asarray(np.add.reduceat(rows.prob * squares, first_of_state(rows)))

    def _advantages(self, rows: Rows, q: FloatArray, V: FloatArray) -> FloatArray:
        """[rows] those of this kernel, on all rows of some states."""
        mean = rows.sums(q * (self.task.discount * V[rows.successor] + (rows.gain if self.on_successor else 0.0)))
        first = first_of_state(rows)
        width = np.diff(np.append(first, len(mean)))
        return np.asarray(mean - np.repeat(np.add.reduceat(rows.prob * mean, first), width))
