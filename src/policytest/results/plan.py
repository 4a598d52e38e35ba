"""How many samples a test will take: a `Plan`, made before sampling."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import NamedTuple

from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import number, probability
from policytest.mdp.task import about_task
from policytest.methods.run import Method
from policytest.results import sentences
from policytest.results.needed import digits, few, nine_in_ten, samples_in_words
from policytest.results.sentences import Subject
from policytest.worst_case.lower_bound import Allocation

Range = tuple[float, float, float]
FACTOR = 1.5  # within which a prediction counts as right


class Powered(NamedTuple):
    """The smallest budget that was tried whose simulated tests give the right answer often enough.

    ``share`` of the ``runs`` did, with this standard ``error``; None: not even with ``most`` of the ``unit``.

    >>> Powered(57, 0.8, 0.81, 0.02, 400, "episodes", 1000).words
    'a budget of 57 episodes answers with probability 0.8'
    """

    budget: int | None
    power: float
    share: float
    error: float
    runs: int
    unit: str
    most: int

    @property
    def words(self) -> str:
        """What was found."""
        if self.budget is None:
            return f"no budget up to {number(self.most)} {self.unit} answers with probability {probability(self.power)}"
        return f"a budget of {number(self.budget)} {self.unit} answers with probability {probability(self.power)}"

    @property
    def remark(self) -> str:
        """What it rests on."""
        share, error = (probability(round(part, 3)) for part in (self.share, self.error))
        return f"{share} of {number(self.runs)} simulated tests, standard error {error}"


@dataclass(frozen=True, eq=False)
class Plan(Shown):
    """What a test will take, if the guess is right.

    Attributes
    ----------
    value
        V of the guess.
    time
        A bracket of T*, the characteristic time of the best allocation at the guess. The lower end is proved; the
        upper one is too, in tasks of up to 10 states, and infinite elsewhere.
    bound
        T* kl(delta, 1-delta), of the lower end: no test needs fewer samples on average.
    allocation, saving
        The best `Allocation` at the guess, and T* of the uniform allocation relative to it. The allocation is None
        where no row is unknown.
    samples
        {method name: (mean, low, high)}, of every transition drawn. For one kernel the range is the uncertainty of the
        simulated mean; else it covers that of the guess as well: nine times in ten it holds the true mean.
    runs
        {method name: (low, high)}: nine single runs in ten need between low and high samples. Only for methods with at
        least 20 simulated runs. A single run may need far fewer samples than the mean, and also than ``bound``.
    sure
        {method name: probability}: around a pilot, that the true mean is within a factor 1.5 of the stated one. Empty
        for kernels.
    methods
        {method name: method}, ready for `decide`.
    at_least
        The names of methods whose runs were cut at ``max_samples``: their numbers are lower bounds.
    guesses
        How many kernels the guess has: one, several, or those drawn around a pilot.
    episodes
        Of `Episodes`: {method name: (mean, low, high)} of the number of episodes, beside their transitions in
        ``samples``. The mean is that of a test whose returns are the pilot's; nine tests in ten lie between low and
        high, with the uncertainty of the pilot.
    powered
        The smallest budget that answers with a wanted probability, if one was asked for; ``budget`` is its number.
    about
        "value"; or "difference", the plan of a comparison, whose episodes are pairs.
    """

    task: Subject = field(repr=False)
    threshold: float
    delta: float
    value: float
    time: tuple[float, float]
    bound: float
    allocation: Allocation | None = field(repr=False)
    saving: float
    samples: dict[str, Range]
    methods: dict[str, Method] = field(repr=False)
    at_least: frozenset[str]
    notes: tuple[str, ...] = ()
    sure: dict[str, float] = field(default_factory=dict)
    episodes: dict[str, Range] = field(default_factory=dict)
    runs: dict[str, tuple[float, float]] = field(default_factory=dict)
    guesses: int = 1
    powered: Powered | None = None
    about: str = "value"

    @property
    def budget(self) -> int | None:
        """The smallest budget that answers with the wanted probability; None if none was asked for, or found."""
        return None if self.powered is None else self.powered.budget

    @cached_property
    def summary(self) -> Table:
        """The plan as one table, for text, HTML and JSON."""
        alone = self.about == "value"
        rows = (
            Row("threshold R" if alone else "margin", number(self.threshold), "", "threshold", self.threshold),
            Row("delta", probability(self.delta), sentences.ERROR, "delta", self.delta),
            Row(f"{self.about} of the guess", number(self.value), "", "value", self.value),
            *(() if self.episodes else self._bounds()),
            *(row for name in self.samples for row in self._rows(name)),
            *self._budget(),
        )
        return Table(self._title(), rows, self.notes)

    def _budget(self) -> list[Row]:
        """The budget that was asked for."""
        if (found := self.powered) is None:
            return []
        shown = "not found" if found.budget is None else f"{number(found.budget)} {found.unit}"
        return [Row("budget", shown, f"{found.words}: {found.remark}", "budget", found.budget)]

    def _bounds(self) -> tuple[Row, ...]:
        """What holds for every method."""
        return (
            Row("characteristic time T*", self._time(), "of the best allocation", "time", list(self.time)),
            Row("no test needs fewer than", *self.fewest_in_words(), "bound", self.bound),
            Row("the best allocation saves", self.saved_in_words(), "of uniform sampling's T*", "saving", self.saving),
        )

    def _title(self) -> str:
        """What it takes, and the budget."""
        return self._takes() + ("" if self.powered is None else f"; {self.powered.words}")

    def _takes(self) -> str:
        best, least = sentences.best_methods(self)
        if least is None:
            return "No number of samples is enough" if self.samples and self.bound else "A plan"
        at_least = f"{least}: at least {few(self.samples[least][0])}"
        if best is None:
            return f"{at_least} samples"
        found = f"{best}: about {few(self.samples[best][0])} samples"
        if best in self.episodes:
            return f"{found}, {few(self.episodes[best][0])} {self._unit}"
        return found if least == best else f"{found}; or {at_least}"

    def _time(self) -> str:
        low, high = self.time
        if self.is_unbounded:
            return "not known"
        if not math.isfinite(low):
            return "infinite"
        return f"{number(digits(low))} to {number(digits(high))}" if math.isfinite(high) else f"at least {few(low)}"

    @property
    def is_unbounded(self) -> bool:
        """Whether no lower bound is known: beyond the discounted table."""
        return self.time == (0.0, math.inf)

    def fewest_in_words(self) -> tuple[str, str]:
        """The lower bound, and what it counts."""
        if self.is_unbounded:
            return "not known", ""
        if not math.isfinite(self.bound):
            return "no number", "is enough"
        if self.guesses == 1:
            where = ""
        elif any(mean < self.bound for mean, *_ in self.samples.values()):
            return "not known", f"the guesses differ too much; at their middle {few(self.bound)} samples on average"
        else:
            where = ", at the middle of the guesses"
        return few(self.bound), f"samples on average{where}; a single run may need fewer"

    def saved_in_words(self) -> str:
        """What the best allocation saves of uniform sampling."""
        if self.is_unbounded:
            return "not known"
        return f"{1.0 - 1.0 / self.saving:.0%}" if math.isfinite(self.saving) and self.saving > 1.0 else "nothing"

    @property
    def _unit(self) -> str:
        """What its episodes are."""
        return "episodes" if self.about == "value" else "pairs of episodes"

    def _rows(self, name: str) -> list[Row]:
        if name in self.episodes:
            units = {self._unit: self.episodes[name], "samples": self.samples[name]}
            words = "at least " if name in self.at_least else ""
            return [
                Row(f"{name}, {unit}", words + few(mean), f"mean; {nine_in_ten('tests', *ends)}")
                for unit, (mean, *ends) in units.items()
            ]
        shown, remark = samples_in_words(self.samples[name], name in self.at_least)
        if name in self.sure and math.isfinite(self.samples[name][2]):
            remark += f"; within a factor {FACTOR:g} with probability {probability(round(self.sure[name], 2))}"
        if name in self.runs:
            remark += f"; {nine_in_ten('runs', *self.runs[name])}"
        return [Row(name, shown, remark)]

    def data(self) -> Document:
        """What a program reads."""
        extra = {
            "samples": {name: list(found) for name, found in self.samples.items()},
            "sure": self.sure,
            "methods": {name: method.describe() for name, method in self.methods.items()},
            "at_least": sorted(self.at_least),
            "allocation": None if self.allocation is None else self.allocation.weights,
            "guesses": self.guesses,
            "notes": list(self.notes),
            "episodes": {name: list(found) for name, found in self.episodes.items()},
            "runs": {name: list(ends) for name, ends in self.runs.items()},
            "time": list(self.time),
            "bound": self.bound,
            "saving": self.saving,
            "budget": self.budget,
            "power": None if self.powered is None else self.powered._asdict(),
            "about": self.about,
        }
        return {**self.summary.data(), **extra, **about_task(self.task)}
