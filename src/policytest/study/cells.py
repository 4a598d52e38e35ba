"""A sweep as pure data: which methods run on which problems, for which deltas and seeds, and on which random numbers.

A `Trial` is one method on one problem. A `Cell` is one run of it, with one seed, and gives the stopping time of every
delta at once. The random numbers of a cell depend on the name of its problem and on its seed, on nothing else: not on
the method, so that methods which sample in the same way are compared on the same draws; not on the order of cells, the
number of workers, or what else the sweep holds.
"""

from __future__ import annotations

import hashlib
import importlib
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeGuard, TypeVar

import numpy as np

from policytest._base.arrays import FloatArray, Kernel
from policytest._base.errors import InputError
from policytest.data.episodes import Episodes
from policytest.kl.boundaries import check_delta
from policytest.mdp.task import Task
from policytest.mdp.values import value, value_range_error
from policytest.methods import checkpoint
from policytest.methods.run import Method

T = TypeVar("T", bound=Hashable)
MOST_CELLS = 1_000_000
LONGEST_NAME = 200


@dataclass(frozen=True, eq=False)
class Problem:
    """A task, the kernel that plays the truth, and the threshold; ``alternative`` is a second policy, or None.

    Or `Episodes`, without a kernel: their mean return is known where ``mean`` says it, and ``source`` is their address.
    """

    name: str
    task: Task | Episodes
    kernel: Kernel | None
    threshold: float
    alternative: FloatArray | None = None
    mean: float = math.nan
    source: str = ""

    @property
    def table(self) -> Task | None:
        """The task, where it is a table: `Episodes` have none."""
        return self.task if isinstance(self.task, Task) else None

    @cached_property
    def value(self) -> float:
        """The true value of the policy; nan where it is not known."""
        return self.mean if self.table is None else float(value(self.table, self.kernel))

    @cached_property
    def side(self) -> str | None:
        """The right answer; None at V = R, where every answer is an error, and where the value is not known."""
        gap = self.value - self.threshold
        error = 0.0 if self.table is None else 4 * value_range_error(self.table)
        if not abs(gap) > error:
            return None
        return "above" if gap > 0 else "below"


@dataclass(frozen=True, eq=False)
class Trial:
    """One method, under the name it has in the sweep, on one problem."""

    problem: Problem
    name: str
    method: Method
    max_samples: int | None = None


@dataclass(frozen=True, order=True)
class Cell:
    """One run: problem, method and seed."""

    instance: str
    method: str
    seed: int


@dataclass(frozen=True, eq=False)
class Sweep:
    """Trials x seeds, each run for all deltas. Made by `sweep`, `policytest.study.spec.read` or `paper_sweep`.

    ``bounds``: whether the lower bound of each problem is computed. ``notes`` are printed under the summary.
    """

    title: str
    trials: tuple[Trial, ...]
    deltas: tuple[float, ...]
    seeds: tuple[int, ...]
    bounds: bool = True
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.trials:
            raise InputError("the sweep is empty: no method runs on any instance; add one")
        object.__setattr__(self, "deltas", check_deltas(self.deltas))
        object.__setattr__(self, "seeds", check_seeds(self.seeds))
        seen: dict[str, Problem] = {}
        for trial in self.trials:
            if seen.setdefault(trial.problem.name, trial.problem) is not trial.problem:
                raise InputError(f"two instances are called {trial.problem.name!r}; names must differ")
        names = [(trial.problem.name, trial.name) for trial in self.trials]
        for (instance, method), times in Counter(names).items():
            if times > 1:
                raise InputError(f"the method {method!r} appears twice on {instance!r}; names must differ")
        if len(names) * len(self.seeds) > MOST_CELLS:
            raise InputError(
                f"the sweep has {len(names) * len(self.seeds):,} cells; at most {MOST_CELLS:,} are allowed"
            )

    @cached_property
    def problems(self) -> tuple[Problem, ...]:
        """The problems, in order."""
        return tuple({trial.problem.name: trial.problem for trial in self.trials}.values())

    @cached_property
    def cells(self) -> dict[Cell, Trial]:
        """Every cell with its trial, in the order of the table."""
        return {Cell(t.problem.name, t.name, seed): t for t in self.trials for seed in self.seeds}

    @cached_property
    def fingerprint(self) -> str:
        """A digest of all that fixes the numbers; seeds may be added later, so they are left out."""
        parts = [importlib.import_module("policytest").__version__, repr(self.deltas), repr(self.bounds)]
        for trial in self.trials:
            p = trial.problem
            settings = [trial.method, p.kernel, -1 if trial.max_samples is None else trial.max_samples]
            parts += [p.name, trial.name, checkpoint.fingerprint(p.task, p.threshold, settings)]
            parts += [p.source] if p.source else []
        return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def stream(instance: str, seed: int) -> np.random.Generator:
    """The random numbers of the cells of this problem and seed, whatever the method.

    >>> first, again, other = (stream(name, 3).random() for name in ("2x2", "2x2", "3x3"))
    >>> first == again, first == other
    (True, False)
    """
    words = np.frombuffer(hashlib.sha256(instance.encode()).digest(), dtype="<u4")
    return np.random.default_rng(np.random.SeedSequence([seed, *words.tolist()]))


# ---------------------------------------------------------------- checks


def check_deltas(deltas: object) -> tuple[float, ...]:
    """Distinct probabilities strictly between 0 and 1."""
    if isinstance(deltas, float) or _is_whole(deltas):
        deltas = [deltas]
    checked = []
    for index, delta in enumerate(_some("deltas", deltas, "a list of probabilities, such as [0.1, 0.01]")):
        with placed(f"deltas[{index}]"):
            checked.append(check_delta(delta))
    return distinct("deltas", checked, "{:g}".format)


def check_seeds(seeds: object) -> tuple[int, ...]:
    """A number of seeds K, for 0, ..., K-1, or a list of distinct ones."""
    if _is_whole(seeds):
        if not 1 <= seeds <= MOST_CELLS:
            raise InputError(f"seeds is {seeds}; at least one is needed, and at most {MOST_CELLS:,} are allowed")
        return tuple(range(int(seeds)))
    values = _some("seeds", seeds, "how many, or a list of whole numbers")
    for index, seed in enumerate(values):
        if not (_is_whole(seed) and 0 <= seed < 2**63):
            raise InputError(f"seeds[{index}] is {seed!r}; seeds are whole numbers from 0 on")
    return distinct("seeds", list(map(int, values)))


def _is_whole(value: object) -> TypeGuard[int]:
    """Whether this is a whole number, of Python or of NumPy."""
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Errors within say where they arose."""
    try:
        yield
    except (InputError, TypeError) as error:  # TypeError: a setting of another type
        raise InputError(f"{place}: {error}") from None


def distinct(name: str, found: Sequence[T], words: Callable[[T], str] = str) -> tuple[T, ...]:
    """These; refused if one of them is there more than once."""
    for one, times in Counter(found).items():
        if times > 1:
            raise InputError(f"{name} has {words(one)} twice; keep one")
    return tuple(found)


def check_name(kind: str, name: object) -> str:
    """A name that can head a line of a table."""
    if not isinstance(name, str) or not name.strip() or len(name) > LONGEST_NAME or not name.isprintable():
        raise InputError(f"{kind} is called {name!r}; a name is 1 to {LONGEST_NAME} printable characters")
    return name


def listed(name: str, given: object, wanted: str) -> list[Any]:
    """What a list, or anything else that can be gone through, holds; a text or a table is no list."""
    if isinstance(given, str | bytes | Mapping) or not isinstance(given, Iterable):
        raise InputError(f"{name} is {given!r}; pass {wanted}")
    return list(given)


def _some(name: str, given: object, wanted: str) -> list[Any]:
    """What a list holds, one entry at least."""
    if found := listed(name, given, wanted):
        return found
    raise InputError(f"{name} is empty; pass {wanted}")
