r"""KLB-TS for its own question: which policy is best? A baseline behind `identify`.

The rule of Al Marjani and Proutiere (2021), for known rewards. With the optimal policy pi of the empirical kernel p,
its values V, gaps D_sa = V(s) - Q(s,a) and the least gap D, variances Var_sa and largest deviations MD_sa of gamma V
(with rewards on successors) under row p_sa, and the range W of rewards,

    T2_sa = max( 16 Var_sa/D_sa^2 , 6 (MD_sa/D_sa)^(4/3) ),
    T4    = min( max( 27 W^2/(D^2 (1-gamma)^3), 8 W/(D (1-gamma)^2.5), 14 (max MD/(D (1-gamma)))^(4/3) ),
                 max( 16 max Var/(D (1-gamma))^2, 6 (max MD/(D (1-gamma)))^(4/3) ) ),
    U(omega) = max over s, a other than pi(s) of T2_sa/omega_sa  +  max over s of T4/omega_(s,pi(s)),

it stops when t/U(omega) >= beta(t, delta), omega = n/t. It samples by tracking the shares at which U is least:
proportional to T2_sa for a other than pi(s), and to sqrt(T4 sum T2/S) for each (s,pi(s)); a share sqrt(pairs/samples)
goes to all pairs equally.

*What is proved.* Let q have Q_q^pi(s,a) >= V_q^pi(s). With W = V_q^pi - V_p^pi,

    D_sa <= gamma (q-p)_sa.V + gamma q_sa.W - W(s) <= x + (1+gamma)/(1-gamma) y,

x = |gamma (q-p)_sa.V|, and y the largest of the same at the pairs (s',pi(s')). By the proof in `baselines.klbts`
each row has x^2 <= 4 k Var + 2 sqrt(2) MD^2 k^(3/2) with k = KL(p_sa, q_sa); so k is at least the inverse of this,
k_sa(x), and over all ways to divide D_sa

    loss(q) >= min over theta in [0,1] of  n_sa k_sa(theta D_sa)
                                           + min over s' of n k_(s',pi(s'))((1-theta) D_sa (1-gamma)/(1+gamma)).

The minimum is bounded from below on a grid of theta: both terms are monotone. An answer of the rule is *certified* only
where this bound reaches beta as well, which it usually does.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray, IntArray
from policytest._base.errors import InputError
from policytest.data.randomness import Seed
from policytest.data.simulators import SimulatorLike
from policytest.kl.sampler import Source
from policytest.kl.sampling import Adaptive, Optimal
from policytest.kl.sampling_balanced import Proportional
from policytest.kl.witness import WitnessedCounts, centring_error, check_listed
from policytest.mdp.task import Task
from policytest.mdp.values import value_range, value_range_error
from policytest.methods.baselines.klbts import KLBTS, spread
from policytest.methods.kl_rules import GROWTH
from policytest.questions.identify.policies import (
    Search,
    action_values,
    by_pair,
    deviations,
    equal_shares,
    first_actions,
    fixed_shares,
    following,
    may_be_reached,
    never_pay,
    optimal_actions,
)
from policytest.results.selection import Selection, SelectionCheck

THETAS = np.linspace(0.0, 1.0, 257)  # the grid on which D is divided
OWN = Adaptive(first=2, growth=1.2)  # how often its own shares are computed again
LEAST_GAP = 1e-6  # of the range of values: smaller gaps count as this in shares


class Gaps(NamedTuple):
    """What the rule needs of a kernel: optimal actions, and for each pair its gap, variance and largest deviation."""

    actions: IntArray
    V: FloatArray
    gap: FloatArray  # [S,A]
    variance: FloatArray  # [S,A] of gamma V, with rewards on successors
    largest: FloatArray  # [S,A] MD
    asked: BoolArray  # [S,A] deviations that are not known to be of no use


class KLBTSSearch(Search):
    """KLB-TS at work. The rule is looked at when the samples have grown by 0.5%; later is sound."""

    def __init__(self, task: Task, method: KLBTS, sim: SimulatorLike, delta: float, rng: Seed) -> None:
        self.task, self.method, self.delta, self.required = task, method, delta, -math.log(delta)
        centre = 0.5 * sum(value_range(task))
        self.centre, self.rounding = centre, 4.0 * (value_range_error(task) + centring_error(task, centre))
        check_listed(task)
        self.tally = WitnessedCounts(task, centre, method.boundary)
        self.matter = may_be_reached(task)
        self.sampled = self.matter[:, None] & task.layout.unknown_pairs
        self.samples, self.stopped, self.proved = 0, False, False
        self.actions = first_actions(task)
        self.known: dict[bytes, BoolArray] = {}
        self.now = self.gaps(self.tally.estimate())
        self.source = Source(task, sim, self._allocation(), 0.0, rng)

    def _allocation(self) -> object:
        given, even = self.method.allocation, equal_shares(self.sampled, self.tally.rows)
        if isinstance(given, Adaptive | Optimal):
            raise InputError("method: leave allocation out, so that KLBTS tracks its own shares, or pass shares [S,A]")
        if given is None:
            return Proportional(OWN, self._shares, even)
        return fixed_shares(given, even)

    @property
    def answered(self) -> bool:
        """Whether the rule has stopped."""
        return self.stopped

    @property
    def samples_used(self) -> int:
        """The samples, and the steps that the simulator made on the way to them."""
        return self.samples + self.source.extra

    def go(self, limit: int) -> Iterator[SelectionCheck]:
        """Sample until the rule stops."""
        self._look(first=True)
        yield self._check()
        look_at = int(self.sampled.sum())
        while not self.answered and self.samples_used < limit and self.sampled.any():
            k, x = self.source.ahead(self.tally, np.inf, limit - self.samples_used, max(look_at - self.samples, 1))
            used = self.tally.observe(k, x, np.inf)
            self.source.take(used)
            self.samples += used
            if self.samples >= look_at:
                self._look()
                look_at = self.samples + max(1, int(np.ceil(GROWTH * self.samples)))
            yield self._check()

    def _look(self, first: bool = False) -> None:
        """Stop, where the rule says so; at first only where nothing is asked."""
        self.now = self.gaps(self.tally.estimate())
        self.actions = self.now.actions
        if not self.now.asked.any():
            self.stopped = self.proved = True
        elif not first:
            beta = self.required + self.tally.dimension()
            self.stopped = self.distance(self.now) >= beta
            self.proved = self.stopped and self.proved_distance(self.now) >= beta

    # ------------------------------------------------------------ the rule

    def gaps(self, p: FloatArray) -> Gaps:
        """Gaps, variances and largest deviations at a kernel given by its entries."""
        task, rows = self.tally.task, self.tally.rows
        actions, V = optimal_actions(task, rows, p, self.actions)
        gap = by_pair(rows, V[rows.state] - action_values(rows, p, V, task.discount), task, np.inf)
        worth = task.discount * V[rows.successor] + (rows.gain if len(rows.gain) else 0.0)
        known = np.diff(rows.start) == 1
        variance, largest = (by_pair(rows, np.where(known, 0.0, part), task, 0.0) for part in spread(rows, p, worth))
        return Gaps(actions, V, gap, variance, largest, self._asked(actions))

    def _asked(self, actions: IntArray) -> BoolArray:
        key = actions.tobytes()
        if key not in self.known:
            task = following(self.tally.task, actions)
            never = never_pay(task, self.tally.rows, self.tally.only_successor, actions, self.rounding)
            self.known[key] = deviations(self.task, actions, self.matter) & ~never
        return self.known[key]

    def difficulty(self, now: Gaps, least: float = 0.0) -> tuple[FloatArray, float]:
        """T2 [S,A], zero where nothing is asked, and T4. Gaps below ``least`` count as that."""
        gap, rest = np.maximum(now.gap, least), 1.0 - self.task.discount
        low, high = self.task.reward_bounds
        with np.errstate(divide="ignore", invalid="ignore"):
            T2 = np.maximum(16.0 * now.variance / gap**2, 6.0 * (now.largest / gap) ** (4 / 3))
            T2 = np.where(now.asked & (now.largest > 0), np.where(gap > 0, T2, np.inf), 0.0)
            D = max(float(gap[now.asked].min()), 0.0) * rest if now.asked.any() else np.inf
            matter = self.matter, now.actions[self.matter]
            MD, Var = float(now.largest[matter].max()), float(now.variance[matter].max())
            if MD == 0.0:
                return T2, 0.0
            if not D > 0:
                return T2, np.inf
            third = 14.0 * (MD / D) ** (4 / 3)
            general = max(27.0 * (high - low) ** 2 / (D**2 * rest), 8.0 * (high - low) / (D * rest**1.5), third)
            return T2, min(general, max(16.0 * Var / D**2, 6.0 * (MD / D) ** (4 / 3)))

    def distance(self, now: Gaps) -> float:
        """t/U(omega): the loss of alternatives is at least this, by the authors' theorem; 0 where a row is unseen."""
        T2, T4 = self.difficulty(now)
        n = by_pair(self.tally.rows, self.tally.n, self.task, 0.0)
        own = np.zeros_like(self.sampled)
        own[np.arange(len(own)), now.actions] = self.matter
        needed = ((T2 > 0) | own) & self.sampled
        if not (n[needed] > 0).all() or not np.isfinite(T4):
            return 0.0
        first = float((T2[T2 > 0] / n[T2 > 0]).max(initial=0.0))
        second = float((T4 / n[own & self.sampled]).max(initial=0.0))
        return 1.0 / (first + second) if first + second > 0 else np.inf

    def proved_distance(self, now: Gaps) -> float:
        """The bound of the module's proof on the loss of every alternative."""
        n, gamma = by_pair(self.tally.rows, self.tally.n, self.task, 0.0), self.task.discount
        gap = now.gap[now.asked] - self.rounding - 1e-12 * float(np.abs(now.V).max())
        if not (gap > 0).all():
            return 0.0
        s, a = np.nonzero(now.asked)
        own = np.flatnonzero(self.matter), now.actions[self.matter]
        x = gap[:, None] * THETAS[:-1]
        deviating = n[s, a][:, None] * _least_kl(x, now.variance[s, a][:, None], now.largest[s, a][:, None])
        y = gap[:, None] * (1.0 - THETAS[1:]) * (1.0 - gamma) / (1.0 + gamma)
        following_it = np.full(y.shape, np.inf)
        for row, column in zip(*own, strict=True):
            bound = n[row, column] * _least_kl(y, now.variance[row, column], now.largest[row, column])
            following_it = np.minimum(following_it, bound)
        return float((deviating + following_it).min())

    def _shares(self, entries: FloatArray, even: FloatArray, omega: FloatArray) -> FloatArray:
        """[K] the shares of KLB-TS at a kernel; those so far where they are not defined."""
        now = self.gaps(entries)
        low, high = value_range(self.task)
        T2, T4 = self.difficulty(now, LEAST_GAP * (high - low))
        total = float(T2.sum())
        if not (np.isfinite(total) and np.isfinite(T4) and total + T4 > 0):
            return omega
        found, own = T2.copy(), (np.arange(len(T2)), now.actions)
        found[own] = np.sqrt(T4 * total / self.matter.sum()) if total > 0 else 1.0
        found = np.where(self.sampled, found, 0.0)
        return np.asarray(found.ravel()[self.tally.rows.pair] / found.sum()) if found.any() else omega

    # ------------------------------------------------------------ what it can say

    def _check(self) -> SelectionCheck:
        asked = int(self.now.asked.sum())
        return SelectionCheck(self.samples_used, asked if self.answered else 0, asked, self.required, self._about)

    def _about(self) -> tuple[float, float, tuple[float, float]]:
        value = float(self.task.initial @ self.now.V) + self.centre
        return self.distance(self.now) - self.tally.dimension(), value, value_range(following(self.task, self.actions))

    def result(self, reason: str) -> Selection:
        """The optimal policy of the empirical kernel."""
        own = self.method.allocation is None
        words = self.method.describe().replace("one policy", "identification", 1)
        questions = int((self.task.policy[self.matter] > 0).sum() - self.matter.sum())
        settled = questions if self.answered else questions - int(self.now.asked.sum())
        policy, method = (
            following(self.task, self.now.actions).policy,
            words.replace("uniform sampling", "its own shares"),
        )
        return self.selected(
            policy, None, self.now.V + self.centre, (settled, questions), method if own else words, self.proved, reason
        )


def _least_kl(x: FloatArray, variance: object, largest: object) -> FloatArray:
    """The least k with x^2 <= 4 k Var + 2 sqrt(2) MD^2 k^(3/2); infinite where x > 0 and the row cannot move."""
    a, b = np.broadcast_arrays(4.0 * np.asarray(variance), 2.0 * math.sqrt(2.0) * np.asarray(largest) ** 2)
    a, b = np.broadcast_to(a, x.shape), np.broadcast_to(b, x.shape)
    with np.errstate(divide="ignore", invalid="ignore"):
        z = np.where(b > 0, np.cbrt(x**2 / b), np.inf)  # of b z^3 + a z^2 = x^2, from the right: z = sqrt(k)
        z = np.where(a > 0, np.minimum(z, np.sqrt(x**2 / np.where(a > 0, a, 1.0))), z)
        for _ in range(60):
            slope = 3.0 * b * z**2 + 2.0 * a * z
            step = np.where(slope > 0, (b * z**3 + a * z**2 - x**2) / np.where(slope > 0, slope, 1.0), 0.0)
            z = np.where(np.isfinite(z), np.maximum(z - step, 0.0), z)
    k = z**2 * (1.0 - 1e-9)
    return np.asarray(np.where(x <= 0, 0.0, k))
