r"""Which pair to sample next: the sampling rule of section 6, static and beyond.

Every rule is predictable (the next pair depends on the past only), so the boundaries hold for all of them. Pairs that
the policy never takes, and rows with a single allowed successor, are never sampled: nothing can be learned there.

*Tracking* of an allocation omega (line 4 of Algorithm 1) samples argmin N_sa/omega_sa, ties to the first pair. Every
pair with omega > 0 is therefore sampled once at the start, and the visits stay within a constant of t omega:

    t omega_sa - W <= N_sa(t) <= t omega_sa + 1,     W the number of pairs with omega_sa > 0.

Paper: `alg:static_algorithm`, `lem:tracking`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import Arrays, FloatArray, IntArray, Kernel
from policytest._base.compiled import draws
from policytest._base.errors import AssumptionWarning, InputError
from policytest.data.simulators import Draw, SimulatorLike, checked_draw, cumulative, is_table
from policytest.mdp.task import Task
from policytest.worst_case.lower_bound import check_allocation, optimal_allocation, uniform_allocation


class Rule(Protocol):
    """A sampling rule at work on one task. Rows are numbered as in `task.layout.pairs`."""

    def plan(self, n: FloatArray, estimate: Callable[[], Kernel], most: int) -> IntArray:
        """The next rows to sample, at most ``most``, given visits [K]; `estimate()` is the empirical kernel."""

    def state(self) -> Arrays:
        """What must be kept to go on later."""

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""


def sampling_rule(allocation: object, task: Task, threshold: float) -> Rule | Walk:
    """The rule for "uniform", for an array of shares [S,A], or for a sampling object."""
    if isinstance(allocation, str):
        if allocation != "uniform":
            raise InputError(
                f'allocation is {allocation!r}; pass "uniform", shares [S,A], Optimal(kernel), Adaptive() or Forward()'
            )
        return Tracking(shares(task, uniform_allocation(task)))
    if hasattr(allocation, "begin") and not isinstance(allocation, type):
        rule: Rule | Walk = allocation.begin(task, threshold)
        return rule
    if isinstance(allocation, type):
        raise InputError(f"allocation is the class {allocation.__name__}; pass an object, {allocation.__name__}()")
    return Tracking(shares(task, check_allocation(task, allocation)))


def shares(task: Task, weights: FloatArray) -> FloatArray:
    """[K] the shares of the rows that can be sampled, summing to 1; warns where one would never be."""
    kept = np.where(task.layout.unknown_pairs, weights, 0.0)
    if not kept.any():
        raise InputError("allocation gives nothing to the pairs that the policy takes and whose rows are not known")
    never = task.layout.unknown_pairs & (kept == 0)
    if never.any():
        warnings.warn(
            f"allocation never samples {task.place(int(np.argmax(never.ravel())))}"
            + (f" and {never.sum() - 1} more pairs" if never.sum() > 1 else "")
            + " that the policy takes: the error guarantee stands, but the test may never stop",
            AssumptionWarning,
            stacklevel=4,
        )
    return np.asarray(kept.ravel()[task.layout.pairs.pair] / kept.sum())


@dataclass
class Tracking:
    """Track shares omega [K]: argmin n_k/omega_k, ties to the first row."""

    omega: FloatArray

    def plan(self, n: FloatArray, estimate: Callable[[], Kernel], most: int) -> IntArray:
        """The next rows; a function of the visits alone."""
        return np.asarray(draws.track(n, self.omega, most))

    def state(self) -> Arrays:
        """Nothing: the visits say it all."""
        return {}

    def restore(self, state: Arrays) -> None:
        """Nothing to do."""


@dataclass(frozen=True, eq=False)
class Optimal:
    """Track the allocation with the smallest characteristic time if this kernel, a guess, is the truth.

    A share ``explore`` goes to all pairs equally, so that a wrong guess costs samples and never stops the test.
    """

    kernel: Kernel
    explore: float = 0.05

    def __post_init__(self) -> None:
        _check_share(self.explore)

    def begin(self, task: Task, threshold: float) -> Tracking:
        """Compute the allocation once."""
        best = optimal_allocation(task, self.kernel, threshold).weights
        return Tracking(shares(task, _mixed(task, best, self.explore)))


@dataclass(frozen=True)
class Adaptive:
    """Track the best allocation for the current estimate, with forced exploration.

    The target is computed again whenever the number of samples has grown by the factor ``growth``, from ``first``
    samples a pair on; until then sampling is uniform. A share sqrt(pairs/samples) goes to all pairs equally.

    Parameters
    ----------
    first
        Samples a pair before the first target.
    growth
        Factor between targets.
    tolerance, max_solves
        Of `optimal_allocation`.
    """

    first: int = 10
    growth: float = 1.5
    tolerance: float = 0.02
    max_solves: int = 60

    def __post_init__(self) -> None:
        arrays.positive(first=arrays.whole_number("first", self.first))
        arrays.positive(tolerance=arrays.real_number("tolerance", self.tolerance))
        arrays.positive(max_solves=arrays.whole_number("max_solves", self.max_solves))
        if not (isinstance(self.growth, int | float) and 1 < self.growth < np.inf):
            raise InputError(f"growth is {self.growth}; it is a factor above 1")

    def begin(self, task: Task, threshold: float) -> TargetTracking:
        """Start with the uniform allocation."""

        def target(kernel: Kernel, omega: FloatArray, explore: float) -> FloatArray:
            best = optimal_allocation(task, kernel, threshold, tolerance=self.tolerance, max_solves=self.max_solves)
            return shares(task, _mixed(task, best.weights, explore))

        return TargetTracking(self, target, shares(task, uniform_allocation(task)))


class TargetTracking:
    """Tracking of a target that follows the estimate: the shares, and the samples at which they are computed again.

    ``target`` takes the empirical kernel, the shares so far [K] and the part of all samples that is spread equally.
    """

    def __init__(
        self, settings: Adaptive, target: Callable[[Kernel, FloatArray, float], FloatArray], omega: FloatArray
    ) -> None:
        self.settings, self.target, self.omega = settings, target, omega
        self.due = settings.first * int((omega > 0).sum())

    def plan(self, n: FloatArray, estimate: Callable[[], Kernel], most: int) -> IntArray:
        """Track the target up to the next time it is due."""
        samples = int(n.sum())
        if samples >= self.due:
            explore = min(1.0, float(np.sqrt((self.omega > 0).sum() / samples)))
            self.omega = self.target(estimate(), self.omega, explore)
            self.due = int(np.ceil(self.settings.growth * samples)) + 1
        return np.asarray(draws.track(n, self.omega, min(most, self.due - samples)))

    def state(self) -> Arrays:
        """The target and when it is due."""
        return {"omega": self.omega, "due": np.array([float(self.due)])}

    def restore(self, state: Arrays) -> None:
        """Go on with a kept target."""
        self.omega, self.due = np.array(state["omega"]), int(state["due"][0])


@dataclass(frozen=True)
class Forward:
    """Follow trajectories: start from rho, act by the policy, start again with probability ``restart`` a step.

    For environments that cannot be reset to any state. The boundaries hold for it too; pairs that are never reached
    stay unknown, and the test cannot stop where they could matter. ``restart`` is 1-gamma unless given: then a state
    is visited in proportion to its discounted occupancy. The simulator is asked for one step at a time.
    """

    restart: float | None = None

    def __post_init__(self) -> None:
        if self.restart is not None and not 0 < arrays.real_number("restart", self.restart) <= 1:
            raise InputError(f"restart is {self.restart}; it is a probability above 0")

    def begin(self, task: Task, threshold: float) -> Walk:
        """Start from rho."""
        return Walk(task, 1.0 - task.discount if self.restart is None else float(self.restart))


class Walk:
    """`Forward` at work: three uniform numbers a step, for the action, the successor and the restart."""

    def __init__(self, task: Task, restart: float) -> None:
        self.task, self.restart = task, restart
        self.actions, self.initial = cumulative(task.policy), cumulative(task.initial[None, :])[0]
        self.position = -1  # not started

    def steps(self, sim: SimulatorLike, draw: Draw, rng: np.random.Generator, most: int) -> tuple[IntArray, IntArray]:
        """The pairs s*A + a and successors of the next steps: one, or many at once from a table."""
        if self.position < 0:
            self.position = int(np.argmax(self.initial > rng.random()))
        if is_table(sim):
            u = rng.random((most, 3))
            pair, x, after = sim.walk(self.actions, self.initial, self.restart, self.position, u)
            self.position = int(after[-1])
            return pair, x
        s = self.position
        u = rng.random(2)
        a = int(np.argmax(self.actions[s] > u[0]))
        x = checked_draw(draw, np.array([s]), np.array([a]), rng, self.task.n_states)
        again = u[1] < self.restart
        self.position = int(np.argmax(self.initial > u[1] / self.restart)) if again else int(x[0])
        return np.array([s * self.task.n_actions + a]), x

    def state(self) -> Arrays:
        """Where the trajectory is."""
        return {"position": np.array([float(self.position)])}

    def restore(self, state: Arrays) -> None:
        """Go on from there."""
        self.position = int(state["position"][0])


def _mixed(task: Task, weights: FloatArray, explore: float) -> FloatArray:
    return np.asarray((1 - explore) * weights + explore * uniform_allocation(task))


def _check_share(explore: object) -> None:
    if not 0 <= arrays.real_number("explore", explore) <= 1:
        raise InputError(f"explore is {explore}; it is a share between 0 and 1")
