"""Monte-Carlo returns: rollouts of fixed length, judged by bets or by Hoeffding's inequality."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import FloatArray, IntArray
from policytest._base.compiled import rollouts
from policytest._base.errors import InputError, blame_simulator
from policytest.data.simulators import checked_draw, cumulative_rows
from policytest.mdp.task import Task
from policytest.mdp.values import extreme_state_values, value_range
from policytest.methods.baselines.looking import BATCH, BATCH_GROWTH
from policytest.methods.betting.plan import RESERVE, with_reserve
from policytest.methods.boundaries import MixtureBoundary
from policytest.methods.interface import Outcome, beside
from policytest.methods.ptst import PTSTRun
from policytest.methods.sampler import Recorded, SampledMethod, Source

SHARES = (1 - 1e-6, 0.999, 0.99, 0.9, 0.5)  # of the evidence found, tried in turn until one is proved
KINDS = ("betting", "bernstein", "hoeffding")
FRACTIONS = np.append(0.995 * 2.0 ** -np.arange(12.0), RESERVE)  # of the largest bet
LOG_WEIGHTS = with_reserve(np.log(0.7 ** np.arange(12) / (0.7 ** np.arange(12)).sum()))
TUNED = np.log(20.0)  # the evidence for which the plug-in processes choose l; any is valid
REMAINDER = 0.05  # gamma^H is at most this, and falls as one over the root of the number of rollouts


@dataclass(frozen=True)
class MonteCarlo(SampledMethod["MonteCarloRun"]):
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
            arrays.positive(horizon=arrays.whole_number("horizon", self.horizon))

    def replay(self, task: Task, threshold: float, source: Recorded) -> MonteCarloRun:
        """Recorded transitions are no rollouts."""
        raise InputError("MonteCarlo needs rollouts, which data do not hold; pass method=PTST() or TDBetting()")

    def _run(self, task: Task, threshold: float, source: Source | Recorded) -> MonteCarloRun:
        return MonteCarloRun(self, task, threshold, source)

    def describe(self) -> str:
        """The method in a few words."""
        return f"Monte Carlo, {self.kind}" + (f", horizon {self.horizon}" if self.horizon else "")


class MonteCarloRun(PTSTRun):
    """Rollouts in lock-step, in batches that are never divided. Rewards are centred: values are compared with 0."""

    method: Any

    def __init__(self, method: object, task: Task, threshold: float, source: Source | Recorded) -> None:
        super().__init__(method, task, threshold, source)
        (S, A), centred = task.policy.shape, self.tally.task
        self.actions = cumulative_rows(np.arange(S + 1) * A, task.policy.ravel()).reshape(S, A)
        self.initial = cumulative_rows(np.array([0, S]), task.initial)
        self.rest = [extreme_state_values(centred, sense) for sense in ("min", "max")]  # [S] of what may follow
        self.settled = self.rest[1] - self.rest[0] <= 2.0 * self.tally.rounding  # [S] nothing unknown follows
        self.low, self.high = _least_return(centred, 1.0), -_least_return(centred, -1.0)
        self.lower, self.upper = np.zeros(0), np.zeros(0)  # of each rollout: the return, with the rest at its ends
        self.peaks = (0.0, 0.0)

    def begin(self, required: float) -> None:
        """What was seen before a pause may suffice."""
        self.exhausted = False
        self.reconsider(required)

    def step(self, required: float, most: int) -> None:
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
            source.rng.bit_generator.state = before
            blame_simulator(error)
            raise
        finally:
            source.drawing = False
        self.tally.observe(k, x, np.inf)
        self.samples += len(k)
        self.lower, self.upper = np.concatenate([[self.lower, self.upper], ends], axis=1)
        self.peaks = self._peak(1), self._peak(-1)
        self.reconsider(required)

    def end(self, required: float) -> None:
        """Nothing was put off."""

    def reconsider(self, required: float) -> None:
        """Answer if the evidence reaches what is required."""
        above, below = self.peaks
        self.answer = None if max(above, below) < required else "above" if above >= below else "below"

    def why_undecided(self) -> str:
        """Batches are not divided."""
        return "the samples that are left do not suffice for a batch of rollouts" if self.exhausted else ""

    def _horizon(self) -> int:
        if self.method.horizon is not None or self.task.discount == 0:
            return self.method.horizon or 1
        share = REMAINDER / np.sqrt(1.0 + len(self.lower) / BATCH)
        return max(1, int(np.ceil(np.log(share) / np.log(self.task.discount))))

    def _roll(self, source: Source, count: int, H: int) -> tuple[FloatArray, IntArray, IntArray]:
        """The lower and upper ends of ``count`` returns, and the transitions that were drawn (rows, successors)."""
        task, rng, rows, gain = self.task, source.rng, self.tally.rows, self.tally.rows.gain
        S, A = task.policy.shape
        keys = rows.of_entry() * S + rows.successor if len(gain) else np.zeros(0)
        state = np.searchsorted(self.initial, rng.random(count), side="right")
        total, weight, drawn = np.zeros(count), 1.0, [np.zeros((2, 0), dtype=np.int64)]
        for _ in range(H):
            if self.settled[state].all():
                break
            action = (self.actions[state] <= rng.random(count)[:, None]).sum(axis=1)
            k = task.layout.row_of_pair[state * A + action]
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

    def interval(self, required: float) -> tuple[float, float]:
        """The values that no side has ever refuted at delta/2."""
        return self._unrefuted(required + np.log(2.0))

    def verdict_interval(self, required: float) -> tuple[float, float]:
        """The values that no side has ever refuted at delta, by the bets of the answer."""
        return beside(self._unrefuted(required), self.threshold, self.answer)

    def _unrefuted(self, required: float) -> tuple[float, float]:
        """The values against which no side's capital has ever reached exp(required), by bisection."""
        low, high = (end - self.threshold for end in value_range(self.task))
        ends = []
        for sign, refuted, kept in ((1, low, high), (-1, high, low)):
            for _ in range(40):
                middle = 0.5 * (refuted + kept)
                crossed = self._peak(sign, middle) >= required
                refuted, kept = (middle, kept) if crossed else (refuted, middle)
            ends.append(refuted + self.threshold)
        return ends[0], ends[1]

    def outcome(self, required: float) -> Outcome:
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
            raise InputError("cannot resume: the checkpoint is inconsistent (impossible returns); start again")
        self.peaks = self._peak(1), self._peak(-1)


def _least_return(task: Task, sign: float) -> float:
    """At most the least of sign * the discounted return, along any path from rho that policy and support allow."""
    gamma = task.discount
    if task.any_successor:
        rows = task.layout.pairs
        earned = sign * rows.reward
        first = earned[task.initial[rows.state] > 0].min()
        return float(first + gamma / (1.0 - gamma) * earned.min())
    rows = task.layout.rows
    top = float((sign * rows.rewards()).max())  # rewards below 0, so that no path ends early
    nothing = np.zeros(task.n_states)
    worst = rollouts.worst_paths(rows, rows.reward - sign * top, nothing, nothing, sign, gamma)
    return float(worst[task.initial > 0].min()) + top / (1.0 - gamma)


def _logs(kind: str, X: FloatArray, m: float) -> FloatArray:
    """The logarithm of the capital after each X, betting that their mean is above m."""
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
