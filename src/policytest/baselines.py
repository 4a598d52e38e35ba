r"""Baselines behind the interface of `PTST`: a bound on T* in place of the worst case, boxes, and Monte-Carlo returns.

*`KLBTS`* stops when t/U(omega) >= beta(t, delta), with omega = n/t and U(omega) >= T*(omega) the bound of Al Marjani
and Proutiere (2021) at the empirical kernel p; Delta = |V_p - R|, and Var, MD are those of gamma V_p under row p_sa:

    U(omega) = max_sa H_sa/omega_sa,   H_sa = max( 16 Var_sa/(Delta(1-gamma))^2 , 6 (MD_sa/(Delta(1-gamma)))^(4/3) ).

*Why it is sound.* If q lies beyond R, then Delta <= |V_p - V_q| = |sum_sa d_q(s,a) (q - p)_sa gamma V_p|, so that some
row has |(q - p) gamma V_p| >= D = Delta(1-gamma). By Cauchy and Schwarz, with the squared Hellinger distance below
k = KL(p_sa, q_sa) and E_q (gamma V_p - mean)^2 <= Var + MD^2 sqrt(2k),  D^2 <= 4 k Var + 2 sqrt(2) MD^2 k^(3/2). One of
the two terms is at least D^2/2, and then k >= 1/H_sa; half the constants of H would do. So loss(q) >= t/U.

*`RectangularKL`* gives each of the K unknown rows its own confidence set at the level delta/K, for all times at once,

    n_sa KL(p_hat_sa, q_sa) <= log(K/delta) + g_a(N_sa)        (g_a: see `policytest.boundaries.MixtureBoundary`),

and answers when robust policy evaluation over the product of these boxes keeps R out. *Its proof:* by Jensen,

    q.c >= y + exp( sum_x p(x) log(c(x) - y) - b )     for every q with KL(p, q) <= b, and every y <= min c.

With the best y this bounds one Bellman step from below, for any values U; if it loses at most e of U in every state,
then no kernel in the box has a value below rho.U - e/(1-gamma).

*`MonteCarlo`* bets on truncated discounted returns from rho. What comes after the horizon H, in state x, is replaced by
gamma^H times the lowest value of x over all allowed kernels for the side "above", by the highest for "below": 0 where
the episode has ended. Scaled to [0, 1] by the least and the largest return of any path (mirrored for "below") this is
X; if the answer would be wrong its mean is at most m, the threshold scaled likewise. Then

    betting      sum_j w_j prod (1 + f_j (X/m - 1))                         for fractions f_j in (0, 1)
    bernstein    prod exp( l (X - m) - (X - mu)^2 (-log(1-l) - l) )         for mu and l in (0, 1/2] from the past
    hoeffding    prod exp( l (X - m) - l^2/8 )                              for l from the past

are nonnegative supermartingales: each ever reaches 1/delta with probability at most delta. The last two, with their
choices of mu and l, are the predictable plug-in processes of Waudby-Smith and Ramdas (2024).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy import optimize, special

from policytest import _checks, _kernels, ptst
from policytest._checks import FloatArray, InputError, IntArray
from policytest._rows import Rows
from policytest.boundaries import Boundary, MixtureBoundary, information
from policytest.method import Outcome
from policytest.simulators import checked_draw, cumulative_rows
from policytest.source import WHILE_DRAWING, Recorded, Source
from policytest.task import Task, check_error, extreme_state_values, value_range
from policytest.worst_case.projection_free import ProjectionFree

GROWTH = 0.005  # the rules are looked at when the samples have grown by this share
LARGEST_BUDGET = 50.0  # of a row, in nats, where the worst values are sought; the proof takes the true one
BOX_ITERATIONS, BISECTIONS, LARGEST_EVIDENCE = 200, 60, 1e6
SHARES = (1 - 1e-6, 0.999, 0.99, 0.9, 0.5)  # of the evidence found, tried in turn until one is proved
KINDS = ("betting", "bernstein", "hoeffding")
FRACTIONS = 0.995 * 2.0 ** -np.arange(12.0)  # of the largest bet
LOG_WEIGHTS = np.log(0.7 ** np.arange(12) / (0.7 ** np.arange(12)).sum())
TUNED = np.log(20.0)  # the level for which the plug-in processes choose l; any is valid
BATCH, BATCH_GROWTH = 16, 1 / 32  # rollouts at once: so many, or this share of those made
REMAINDER = 0.05  # gamma^H is at most this, and falls as one over the root of the number of rollouts


class _Settings:
    """What the methods here share: they sample as PTST does."""

    allocation: Any = "uniform"

    def start(self, task: Task, sim: Any, threshold: float, rng: Any) -> ptst.Run:
        """The test at work on a simulator."""
        allocation = "uniform" if self.allocation is None else self.allocation
        return self._run(task, threshold, Source(task, sim, allocation, threshold, rng))

    def replay(self, task: Task, threshold: float, source: Recorded) -> ptst.Run:
        """The test at work on recorded transitions."""
        return self._run(task, threshold, source)

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> ptst.Run:
        raise NotImplementedError

    def _keep_shares(self) -> None:
        if isinstance(self.allocation, list | tuple | np.ndarray):
            object.__setattr__(self, "allocation", _checks.real_array("allocation", self.allocation))

    def _sampling(self) -> str:
        given, kind = isinstance(self.allocation, np.ndarray), self.allocation
        if given or kind is None:
            return "given shares" if given else "uniform sampling"
        return f"{kind if isinstance(kind, str) else type(kind).__name__} sampling".lower()


@dataclass(frozen=True, eq=False)
class KLBTS(_Settings):
    """The rule t/U(omega) >= beta(t, delta) of KLB-TS, for policy testing with known rewards.

    Parameters
    ----------
    policies
        1: U as above. Sound, so that answers are certified. 2: the reading of the paper's text, which compares pi
        with a second policy, of value R: (sqrt(max H(pi)/omega) + sqrt(max H(pi')/omega))^2, Delta = V^pi - V^pi'.
        That pi' has value R is true of the true kernel at most, so this rule and its evidence alone prove nothing:
        an answer is certified only where the rule with one policy gives it as well.
    boundary, allocation
        As in `PTST`; None is uniform, and in `identify` the allocation of KLB-TS itself.
    alternative
        pi' [S,A], for policies=2.

    Paper: `app:exp_details`.
    """

    policies: int = 1
    boundary: Boundary = field(default_factory=MixtureBoundary)
    allocation: Any = None
    alternative: Any = None

    def __post_init__(self) -> None:
        if self.policies not in (1, 2) or isinstance(self.policies, bool):
            raise InputError(f"policies is {self.policies!r}; pass 1 or 2")
        if (self.policies == 2) != (self.alternative is not None):
            raise InputError("alternative: pass the second policy [S,A] with policies=2, and none with policies=1")
        if self.alternative is not None:
            table = _checks.real_array("alternative", self.alternative, (None, None))
            object.__setattr__(self, "alternative", _checks.probability_rows("alternative", table))
        if isinstance(self.boundary, type) or not hasattr(self.boundary, "terms"):
            raise InputError(f"boundary is {self.boundary!r}; pass one such as MixtureBoundary(), with its parentheses")
        self._keep_shares()

    def bound(self, task: Task, kernel: Any, threshold: float = 0.0) -> float:
        """U(omega) at this kernel for uniform omega, an upper bound on T*(omega)."""
        centred = task.centred(threshold)
        rows, p, is_open = centred.rows_of("kernel", centred.check_kernel("kernel", kernel))
        if is_open:
            raise InputError("kernel is sparse and any state may follow; declare the task's support")
        unknown = np.diff(rows.start) > 1
        omega = np.where(unknown, 1.0 / unknown.sum(), 0.0)
        return 1.0 / _distances(self, centred, rows, p, omega, unknown)[0]

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> KLBTSRun:
        if self.policies == 2:
            _checks.check_shape("alternative", self.alternative.shape, task.policy.shape)
            untaken = (self.alternative > 0) & (task.policy == 0)
            if untaken.any():
                place = task.place(int(np.argmax(untaken)))
                raise InputError(f"alternative takes {place}, which the policy never does and the test never samples")
        return KLBTSRun(self, task, threshold, source)

    def describe(self) -> str:
        """The method in a few words."""
        words = "one policy" if self.policies == 1 else "two policies"
        return f"KLB-TS for {words}, {type(self.boundary).__name__}, {self._sampling()}"


def _hardest(task: Task, rows: Rows, p: FloatArray, V: FloatArray, n: FloatArray, among: Any, D: float) -> float:
    """max H_sa/n_sa among these rows, with Var and MD of r(s,a,x) + gamma V(x); infinite where one was not sampled."""
    if not D > 0 or not (n[among] > 0).all():
        return np.inf
    worth, first = task.discount * V[rows.successor] + (rows.gain if len(rows.gain) else 0.0), rows.start[:-1]
    mean = rows.sums(p * worth)
    variance = rows.sums(p * (worth - rows.per_entry(mean)) ** 2)
    most = np.maximum(np.maximum.reduceat(worth, first) - mean, mean - np.minimum.reduceat(worth, first))
    H = np.maximum(16.0 * variance / D**2, 6.0 * (np.maximum(most, 0.0) / D) ** (4 / 3))
    return float((H[among] / n[among]).max(initial=1e-300))


def _distances(
    method: KLBTS, task: Task, rows: Rows, p: FloatArray, n: FloatArray, unknown: Any, rounding: float = 0.0
) -> tuple[float, float]:
    """Lower bounds on the loss of kernels beyond 0: that of the rule, and one that is proved."""
    V, value, error = _evaluate(task, rows, p)
    rest = 1.0 - task.discount
    proved = 1.0 / _hardest(task, rows, p, V, n, unknown, (abs(value) - error - rounding) * rest)
    if method.policies == 1:
        return proved, proved
    other = rows._replace(prob=method.alternative.ravel()[rows.pair])
    W, its_value, _ = _evaluate(task, other, p)
    D = float(np.sign(value)) * (value - its_value) * rest
    mine = _hardest(task, rows, p, V, n, unknown, D)
    return (mine**0.5 + _hardest(task, rows, p, W, n, unknown & (other.prob > 0), D) ** 0.5) ** -2.0, proved


def _evaluate(task: Task, rows: Rows, p: FloatArray) -> tuple[FloatArray, float, float]:
    """[S] values, the value from rho, and a bound on its error."""
    V, _, error = _kernels.values_and_occupancy(rows, p, task.discount, task.initial)
    check_error(error)
    return V, float(task.initial @ V), max(2e-14, 2.0 * error) * float(np.abs(V).max())


class LookingRun(ptst.Run):
    """Samples and counts as PTST does; the rule is looked at when the samples have grown by 0.5%. Later is sound."""

    method: Any

    def __init__(self, method: Any, task: Task, threshold: float, source: Source | Recorded) -> None:
        super().__init__(method, task, threshold, source)
        if self.tally.is_open:
            raise InputError("the task lets any of very many states follow; declare `support`, or pass method=PTST()")
        self.blind_until = int(self.tally.unknown.sum())

    def step(self, level: float, most: int) -> None:
        """Go on to the next look, or to the end of a block."""
        k, x = self.source.ahead(self.tally, np.inf, most, max(self.blind_until - self.samples, 1))
        used = self.tally.observe(k, x, np.inf)
        self.source.take(used)
        self.samples += used
        if self.samples >= self.blind_until:
            self.look(level)
            self.blind_until = self.samples + max(1, int(np.ceil(GROWTH * self.samples)))

    def look(self, level: float) -> None:
        """Answer, where the rule decides."""
        side = self.tally.value()[1]
        self.answer = ("above" if side > 0 else "below") if side and self.decides(side, level) else None

    judge = reconsider = look

    def end(self, level: float) -> None:
        """A look at the end of the samples. Without an answer the run can go on as it was."""
        before = self.state()
        self.look(level)
        if self.answer is None:
            self.restore(before)

    def begin(self, level: float) -> None:
        """A pause adds no look: a resumed run looks when the uninterrupted one does."""

    def decides(self, side: int, level: float) -> bool:
        """Whether the rule excludes the other side."""
        raise NotImplementedError

    def proof(self) -> tuple[float, float]:
        """All of the evidence."""
        return self.evidence()

    def outcome(self, level: float) -> Outcome:
        """What the answer rests on, and the nearest kernel that a local search finds."""
        side, t = self.tally.value()[1], float(self.tally.n.sum())
        nearest = self._nearest(side, ProjectionFree(starts=4), np.inf) if side else None
        per_nat = t / nearest.upper if nearest is not None and nearest.upper > 0 else np.inf
        witness = nearest.kernel if nearest is not None else None
        return Outcome(self.evidence(), witness, per_nat * information(level))


class KLBTSRun(LookingRun):
    """KLB-TS at work. Its interval is that of `PTST`, over the ball of the same boundary."""

    def _reach(self) -> tuple[float, float]:
        """t/U - (dimension term), and the part of it that is proved."""
        tally = self.tally
        parts = tally.task, tally.rows, tally.estimate(), tally.n, tally.unknown, tally.rounding
        found, proved = _distances(self.method, *parts)
        return found - tally.dimension(), proved - tally.dimension()

    def decides(self, side: int, level: float) -> bool:
        """t/U >= beta."""
        return self._reach()[0] >= level

    def evidence(self) -> tuple[float, float]:
        """t/U - (dimension term) on the side of the estimate: at most that of `PTST` with the same boundary."""
        return self._sides(0)

    def proof(self) -> tuple[float, float]:
        """That of the rule with one policy, which is sound."""
        return self._sides(1)

    def _sides(self, part: int) -> tuple[float, float]:
        side, base = self.tally.value()[1], -self.tally.dimension()
        reached = self._reach()[part] if side else base
        return (reached if side > 0 else base, reached if side < 0 else base)


@dataclass(frozen=True, eq=False)
class RectangularKL(_Settings):
    """KL boxes, one for each unknown row at the level delta/K, and robust policy evaluation. Answers are certified.

    Parameters
    ----------
    allocation
        As in `PTST`.
    prior
        a of the Dirichlet mixture of each row.
    """

    allocation: Any = "uniform"
    prior: float = 0.5

    def __post_init__(self) -> None:
        object.__setattr__(self, "prior", _checks.real_number("prior", self.prior))
        _checks.positive(prior=self.prior)
        self._keep_shares()

    @property
    def boundary(self) -> MixtureBoundary:
        """The mixture of each row."""
        return MixtureBoundary(self.prior)

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> RectangularRun:
        return RectangularRun(self, task, threshold, source)

    def describe(self) -> str:
        """The method in a few words."""
        return f"rectangular KL boxes, {self._sampling()}"


class RectangularRun(LookingRun):
    """Boxes and robust policy evaluation at work."""

    _settled = (-1, 0.0)  # (samples, level) of the last answer

    def _budgets(self, level: float) -> FloatArray:
        """[K] the radii of the boxes, (level + log K + g_a(N_sa))/n_sa; infinite for rows never visited."""
        rows, N, n, a, lnG = self.tally.rows, self.tally.N, self.tally.n, self.method.prior, special.gammaln
        m, K = np.diff(rows.start), max(self.tally.unknown.sum(), 1)
        seen = rows.sums(special.xlogy(N, N) - (lnG(N + a) - lnG(a))) - special.xlogy(n, n)
        radius = np.maximum(level + np.log(K) + seen + lnG(n + m * a) - lnG(m * a), 0.0)
        return np.where(m == 1, 0.0, np.where(n > 0, radius / np.maximum(n, 1.0), np.inf))

    def _worst(self, side: int, level: float) -> tuple[float, FloatArray]:
        """The smallest side * (V - R) found over the box, and side * the values of the kernel that has it."""
        rows, task = self.tally.rows, self.tally.task
        b = np.minimum(self._budgets(level), LARGEST_BUDGET)
        start = task.discount, task.initial, self.tally.estimate(), b, float(side), BOX_ITERATIONS
        _, q, value, _ = _kernels.robust_box(rows, *start)
        return side * value, side * _evaluate(task, rows, q)[0]

    def proved(self, side: int, level: float) -> float:
        """A lower bound on side * (V - R) over the box, whatever the solver did."""
        tally, task, rows = self.tally, self.tally.task, self.tally.rows
        U = self._worst(side, level)[1]
        worth = task.discount * U[rows.successor] + (side * rows.gain if len(rows.gain) else 0.0)
        least, slack = _row_minima(rows, tally.estimate(), worth, self._budgets(level))
        step = np.bincount(rows.state, rows.prob * (side * rows.reward + least), minlength=task.n_states)
        lost = min(0.0, float((step - U).min())) - slack - 1e-13 * float(np.abs(U).max())
        return float(task.initial @ U) + lost / (1.0 - task.discount) - tally.rounding

    def decides(self, side: int, level: float) -> bool:
        """Whether the box lies on one side of R."""
        self.tally.solves += 1
        decided = self._worst(side, level)[0] > 0 and self.proved(side, level) > 0
        self._settled = (self.samples, level) if decided else self._settled
        return decided

    def evidence(self) -> tuple[float, float]:
        """The largest level at which it would answer now, 0 where there is none; on the side of the estimate."""
        side, reached, high = self.tally.value()[1], 0.0, 1.0

        def excess(level: float) -> float:
            return self._worst(side, level)[0]

        if side and excess(0.0) > 0:
            while high < LARGEST_EVIDENCE and excess(high) > 0:
                high *= 4.0
            found = optimize.brentq(excess, 0.0, high, xtol=1e-6) if excess(high) <= 0 else high
            reached = next((share * found for share in SHARES if self.proved(side, share * found) > 0), 0.0)
            reached = max(reached, self._settled[1]) if self._settled[0] == self.samples else reached
        return (reached if side > 0 else 0.0, reached if side < 0 else 0.0)

    def interval(self, level: float) -> tuple[float, float]:
        """The values over the box; with probability at least 1 - delta, all of these intervals hold the value."""
        (low, high), R = value_range(self.task), self.threshold
        return max(low, R + self.proved(1, level)), min(high, R - self.proved(-1, level))


def _row_minima(rows: Rows, p: FloatArray, c: FloatArray, b: FloatArray) -> tuple[FloatArray, float]:
    """[K] lower bounds on min q.c over KL(p_k, q) <= b_k, and what rounding can do to them.

    max over y <= min c of y + exp(sum p log(c - y) - b), by bisection in log(min c - y); each y gives a valid bound.
    """
    first = rows.start[:-1]
    least = np.minimum.reduceat(c, first)
    above = c - rows.per_entry(least)
    span = np.maximum(np.maximum.reduceat(above, first), 1e-200)
    low, high = np.log(1e-13 * span), np.log(1e7 * span)
    for _ in range(BISECTIONS):
        t = 0.5 * (low + high)
        u = above + rows.per_entry(np.exp(t))
        too_near = np.log(rows.sums(p / u)) + rows.sums(p * np.log(u)) > b
        low, high = np.where(too_near, t, low), np.where(too_near, high, t)
    t = np.exp(high)
    bound = least - t + np.exp(rows.sums(p * np.log(above + rows.per_entry(t))) - b)
    return np.asarray(np.maximum(bound, least)), 1e-14 * float(np.where(span > 1e-200, t, 0.0).max())


@dataclass(frozen=True)
class MonteCarlo(_Settings):
    """Tests on truncated discounted returns from rho, whose every transition counts as a sample. Answers are certified.

    Parameters
    ----------
    kind
        "betting", "bernstein" or "hoeffding".
    horizon
        The length of a rollout. Gaps below what may come after it are never decided. None: it grows with the logarithm
        of the number of rollouts, so that the remainder stays below the statistical error.
    """

    kind: str = "betting"
    horizon: int | None = None
    boundary = MixtureBoundary()  # of the tally; not used

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InputError(f"kind is {self.kind!r}; pass one of {', '.join(map(repr, KINDS))}")
        if self.horizon is not None:
            _checks.positive(horizon=_checks.whole_number("horizon", self.horizon))

    def replay(self, task: Task, threshold: float, source: Recorded) -> ptst.Run:
        """Recorded transitions are no rollouts."""
        raise InputError("MonteCarlo needs rollouts, which data do not hold; pass method=PTST() or TDBetting()")

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> MonteCarloRun:
        return MonteCarloRun(self, task, threshold, source)

    def describe(self) -> str:
        """The method in a few words."""
        return f"Monte Carlo, {self.kind}" + (f", horizon {self.horizon}" if self.horizon else "")


class MonteCarloRun(ptst.Run):
    """Rollouts in lock-step, in batches that are never divided. Rewards are centred: values are compared with 0."""

    method: Any

    def __init__(self, method: Any, task: Task, threshold: float, source: Source | Recorded) -> None:
        super().__init__(method, task, threshold, source)
        (S, A), centred = task.policy.shape, self.tally.task
        self.actions = cumulative_rows(np.arange(S + 1) * A, task.policy.ravel()).reshape(S, A)
        self.initial = cumulative_rows(np.array([0, S]), task.initial)
        self.rest = [extreme_state_values(centred, sense) for sense in ("min", "max")]  # [S] of what may follow
        self.settled = self.rest[1] - self.rest[0] <= 2.0 * self.tally.rounding  # [S] nothing unknown follows
        self.low, self.high = _least_return(centred, 1.0), -_least_return(centred, -1.0)
        self.lower, self.upper = np.zeros(0), np.zeros(0)  # of each rollout: the return, with the rest at its ends
        self.peaks = (0.0, 0.0)

    def begin(self, level: float) -> None:
        """What was seen before a pause may suffice."""
        self.exhausted = False
        self.reconsider(level)

    def step(self, level: float, most: int) -> None:
        """One batch of rollouts; where that could take more samples than are left, none."""
        count, H, source = max(BATCH, int(BATCH_GROWTH * len(self.lower))), self._horizon(), self.source
        assert isinstance(source, Source)
        self.exhausted = count * H > most
        if self.exhausted:
            return
        before = source.rng.bit_generator.state
        source.drawing = True
        try:
            sizes = [1] * count if source.travels else [count]  # one that travels follows one rollout at a time
            parts = [self._roll(source, size, H) for size in sizes]
            ends, k, x = (np.concatenate(part, axis=-1) for part in zip(*parts, strict=True))
        except BaseException as error:
            error.add_note(WHILE_DRAWING)
            source.rng.bit_generator.state = before
            raise
        finally:
            source.drawing = False
        self.tally.observe(k, x, np.inf)
        self.samples += len(k)
        self.lower, self.upper = np.concatenate([[self.lower, self.upper], ends], axis=1)
        self.peaks = self._peak(1), self._peak(-1)
        self.reconsider(level)

    def end(self, level: float) -> None:
        """Nothing was put off."""

    def reconsider(self, level: float) -> None:
        """Answer if the evidence reaches the level."""
        above, below = self.peaks
        self.answer = None if max(above, below) < level else "above" if above >= below else "below"

    def why_undecided(self) -> str:
        """Batches are not divided."""
        return "the samples that are left do not suffice for a batch of rollouts" if self.exhausted else ""

    def _horizon(self) -> int:
        if self.method.horizon is not None or self.task.discount == 0:
            return self.method.horizon or 1
        share = REMAINDER / np.sqrt(1.0 + len(self.lower) / BATCH)
        return max(1, int(np.ceil(np.log(share) / np.log(self.task.discount))))

    def _roll(self, source: Source, count: int, H: int) -> tuple[FloatArray, IntArray, IntArray]:
        """The lower and upper ends of so many returns, and the transitions that were drawn (rows, successors)."""
        task, rng, rows, gain = self.task, source.rng, self.tally.rows, self.tally.rows.gain
        S, A = task.policy.shape
        keys = rows.of_entry() * S + rows.successor if len(gain) else np.zeros(0)
        state = np.searchsorted(self.initial, rng.random(count), side="right")
        total, weight, drawn = np.zeros(count), 1.0, [np.zeros((2, 0), dtype=np.int64)]
        for _ in range(H):
            if self.settled[state].all():
                break
            action = (self.actions[state] <= rng.random(count)[:, None]).sum(axis=1)
            k = task._row_of_pair[state * A + action]
            x = self.tally.only_successor[k]
            unknown = x < 0
            if unknown.any():
                x[unknown] = checked_draw(source.draw, state[unknown], action[unknown], rng, S)
                drawn.append(np.stack([k[unknown], x[unknown]]))
            total += weight * rows.reward[k]
            if len(gain):  # an excluded successor is refused when it is counted
                total += weight * gain[np.minimum(np.searchsorted(keys, k * S + x), len(gain) - 1)]
            weight *= task.discount
            state = x
        k, x = np.concatenate(drawn, axis=1)
        return np.array([total + weight * rest[state] for rest in self.rest]), k, x

    def _scaled(self, sign: int, value: float) -> tuple[FloatArray, float]:
        """X of each rollout, with the rest at its worst for the side, and m; a little more, for rounding."""
        low, high, worst = (self.low, self.high, self.lower) if sign > 0 else (-self.high, -self.low, -self.upper)
        span = max(high - low, 1e-300)
        X = np.clip((worst - low) / span, 0.0, 1.0)
        return X, float(np.clip((sign * value - low) / span + 1e-12, 1e-12, 1.0))

    def _peak(self, sign: int, value: float = 0.0) -> float:
        """The logarithm of the largest capital that the side has had, betting against this value."""
        return float(_logs(self.method.kind, *self._scaled(sign, value)).max(initial=0.0))

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the largest capital that each side has had at the end of a rollout."""
        return self.peaks

    def interval(self, level: float) -> tuple[float, float]:
        """The values that no side has ever refuted at delta/2."""
        low, high = (end - self.threshold for end in value_range(self.task))
        ends = []
        for sign, refuted, kept in ((1, low, high), (-1, high, low)):
            for _ in range(40):
                middle = 0.5 * (refuted + kept)
                crossed = self._peak(sign, middle) >= level + np.log(2.0)
                refuted, kept = (middle, kept) if crossed else (refuted, middle)
            ends.append(refuted + self.threshold)
        return ends[0], ends[1]

    def outcome(self, level: float) -> Outcome:
        """The capital is the proof."""
        return Outcome(self.peaks, None, np.nan)

    def proof(self) -> tuple[float, float]:
        """All of the evidence."""
        return self.peaks

    @property
    def estimate(self) -> float:
        """The mean return, what may follow in the middle of its range; without any, the middle of all values."""
        if not len(self.lower):
            return 0.5 * sum(value_range(self.task))
        return float((0.5 * (self.lower + self.upper)).mean()) + self.threshold

    def state(self) -> dict[str, Any]:
        """All that is needed to go on later, as arrays."""
        return {**super().state(), "lower": self.lower, "upper": self.upper}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a kept state; one that cannot have arisen is refused."""
        super().restore(state)
        self.lower, self.upper = (np.array(state.get(name), dtype=np.float64) for name in ("lower", "upper"))
        room, sound = 1e-9 * (self.high - self.low), self.lower.ndim == 1 and self.lower.shape == self.upper.shape
        inside = sound and (self.low <= self.lower + room) & (self.lower <= self.upper + room)
        if not np.all(inside & (self.upper <= self.high + room)):
            raise InputError("resume: what was kept is not a state of this run (impossible returns); start again")
        self.peaks = self._peak(1), self._peak(-1)


def _least_return(task: Task, sign: float) -> float:
    """At most the least of sign * the discounted return, along any path from rho that policy and support allow."""
    gamma = task.discount
    if task.any_successor:
        rows = task._pairs
        earned = sign * rows.reward
        first = earned[task.initial[rows.state] > 0].min()
        return float(first + gamma / (1.0 - gamma) * earned.min())
    rows = task._rows
    top = float((sign * rows.rewards()).max())  # rewards below 0, so that no path ends early
    worst = _kernels.worst_paths(rows, rows.reward - sign * top, np.zeros(task.n_states), sign, gamma)
    return float(worst[task.initial > 0].min()) + top / (1.0 - gamma)


def _logs(kind: str, X: FloatArray, m: float) -> FloatArray:
    """The logarithm of the capital after each of these, betting that their mean is above m."""
    if kind == "betting":
        paths = np.log1p(np.outer(FRACTIONS, X / m - 1.0)).cumsum(axis=1) + LOG_WEIGHTS[:, None]
        return np.asarray(np.logaddexp.reduce(paths, axis=0))
    t = np.arange(1.0, len(X) + 1.0)
    if kind == "hoeffding":
        bet = np.minimum(np.sqrt(8.0 * TUNED / (t * np.log1p(t))), 1.0)
        return np.asarray(np.cumsum(bet * (X - m) - bet**2 / 8.0))
    total = np.cumsum(X)
    before = (0.5 + total - X) / t  # the mean of those before, with one more at 1/2
    squares = (X - (0.5 + total) / (t + 1.0)) ** 2
    variance = (0.25 + np.cumsum(squares) - squares) / t
    bet = np.minimum(np.sqrt(2.0 * TUNED / (variance * t * np.log1p(t))), 0.5)
    return np.asarray(np.cumsum(bet * (X - m) - (X - before) ** 2 * (-np.log1p(-bet) - bet)))
