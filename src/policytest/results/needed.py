"""How many more samples an undecided test needs: `Needed`."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from policytest._base.arrays import IntArray
from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import nats, number, plural, probability
from policytest.results.sentences import Subject

if TYPE_CHECKING:
    from policytest.results.verdict import Verdict

CHANCE = 0.8  # that the samples forecast are enough
MAX_SAMPLES = 100_000  # of one simulated run
UNKNOWN = "not known"
LEAST = "on average; lower bound at the estimate, for this sampling"


class Simulated(NamedTuple):
    """The simulated tests behind a forecast: ``settled`` of ``runs``, the others cut after ``most`` more of ``unit``.

    >>> Simulated(20, 3, 5000, "rows").words
    '3 of 20 simulated tests reached an answer within 5,000 more rows'
    """

    runs: int
    settled: int
    most: int
    unit: str

    @property
    def words(self) -> str:
        """What was simulated: all that a forecast says if too many tests were cut."""
        tests = plural(self.runs, "simulated test")
        return f"{number(self.settled)} of {tests} reached an answer within {number(self.most)} more {self.unit}"


@dataclass(frozen=True, eq=False)
class Needed(Shown):
    """How many more samples an undecided test needs, and from which pairs.

    Attributes
    ----------
    method
        The rule that this is about.
    samples
        How many more samples, drawn as ``pairs`` [S,A] says, settle it with a probability of about ``chance``. Infinite
        if the data do not say on which side the value is, or if too many simulated tests were cut. A finite number of a
        simulated method is never below ``least``.
    uniform
        The same for uniform sampling; None for methods that choose the pairs themselves.
    expected
        The same if they turn out just as the estimate says; for methods that were simulated, with probability 1/2.
    fresh, at_least
        {method name: (mean, low, high)}: what a new run of other methods takes, and those that were cut; see `Plan`.
    spread
        Of `Episodes`: {"episodes": (mean, low, high), "transitions": ...} of how many more settle it; nine runs in ten
        lie between low and high. Infinite where runs were cut.
    simulated
        What was `Simulated`; None for the KL rule, and if nothing was.
    least
        The verdict's lower bound less the samples so far: at the estimate, a test that goes on sampling in these shares
        needs as many more on average. 0 where no bound is known.
    words
        All of it in a sentence.
    """

    task: Subject = field(repr=False)
    method: str
    samples: float
    uniform: float | None
    expected: float
    chance: float
    pairs: IntArray = field(repr=False)
    evidence: float
    required: float
    words: str
    fresh: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    at_least: frozenset[str] = frozenset()
    spread: dict[str, tuple[float, float, float]] = field(default_factory=dict)
    simulated: Simulated | None = None
    least: float = 0.0

    @cached_property
    def summary(self) -> Table:
        """The answer as one table, for text, HTML and JSON."""
        odds = f"settles it with a probability of about {probability(self.chance)}"
        rows = [
            Row("method", self.method, "", "method", self.method),
            Row("evidence now", nats(self.evidence), f"of {nats(self.required)} required", "evidence", self.evidence),
            Row("more samples", *self._shown(self.samples, odds), "samples", self.samples),
            Row(*self._middle(), "expected", self.expected),
        ]
        if self.least:
            rows.append(Row("more samples, at least", number(self.least), LEAST, "least", self.least))
        if self.uniform is not None:
            rows.insert(3, Row("drawn uniformly", number(self.uniform), odds, "uniform", self.uniform))
        for unit, (mean, *ends) in self.spread.items():
            rows.append(Row(f"more {unit}", *self._shown(mean, f"mean; {nine_in_ten('runs', *ends)}", few)))
        for name, found in self.fresh.items():
            shown, remark = samples_in_words(found, name in self.at_least)
            rows.append(Row(f"or a new run: {name}", shown, remark))
        return Table(self.words, tuple(rows))

    def _shown(self, samples: float, remark: str, shown: Callable[[float], str] = number) -> tuple[str, str]:
        """A number of samples; where simulated tests were cut before it, what was simulated."""
        if math.isfinite(samples):
            return shown(samples), remark
        if self.simulated is not None:
            return UNKNOWN, self.simulated.words
        return (UNKNOWN, "nothing was simulated") if self.least else (number(samples), remark)

    def _middle(self) -> tuple[str, str, str]:
        """The label, the number and a remark of what settles it as often as not."""
        if self.uniform is not None:
            return "as the estimate says", number(self.expected), "more samples"
        return "more samples, median", *self._shown(self.expected, "settles it with a probability of about 0.5")

    def data(self) -> Document:
        """What a program reads."""
        return {
            **self.summary.data(),
            "least": self.least,
            "simulated": None if self.simulated is None else self.simulated._asdict(),
            "uniform": self.uniform,
            "chance": self.chance,
            "required": self.required,
            "pairs": self.pairs,
            "fresh": {name: list(found) for name, found in self.fresh.items()},
            "at_least": sorted(self.at_least),
            "spread": {unit: list(found) for unit, found in self.spread.items()},
            "words": self.words,
        }


def forecast(verdict: Verdict, chance: float, samples: float, words: str) -> Needed:
    """What a verdict still needs, as long as nothing else is known of it."""
    return Needed(
        task=verdict.task,
        method=verdict.method,
        samples=samples,
        uniform=None,
        expected=samples,
        chance=chance,
        pairs=np.zeros_like(verdict.counts.visits),
        evidence=max(verdict.evidence),
        required=verdict.required,
        words=words,
    )


def not_known(what: str, simulated: Simulated) -> str:
    """What a forecast says if too many simulated tests were cut.

    >>> not_known("rows", Simulated(20, 3, 5000, "rows"))
    'How many more rows are needed is not known: 3 of 20 simulated tests reached an answer within 5,000 more rows'
    """
    return f"How many more {what} are needed is not known: {simulated.words}"


def samples_in_words(found: tuple[float, float, float], is_cut: bool) -> tuple[str, str]:
    """(what is shown, a remark) of a predicted mean and its range."""
    mean, low, high = found
    if not math.isfinite(mean):
        return "without end", "at the threshold itself no number of samples is enough"
    if is_cut:
        return f"at least {few(mean)} samples", "simulated runs were cut before they ended"
    if not math.isfinite(high):
        return f"{few(mean)} samples", f"mean, at least {few(low)}; no upper end is known"
    return f"{few(mean)} samples", f"mean, between {few(low)} and {few(high)}"


def nine_in_ten(what: str, low: float, high: float) -> str:
    """A remark on single ones.

    >>> nine_in_ten("tests", 12, 3456), nine_in_ten("runs", 7, math.inf)
    ('nine tests in ten take 12 to 3,460', 'nineteen runs in twenty take 7 or more')
    """
    if math.isfinite(high):
        return f"nine {what} in ten take {few(low)} to {few(high)}"
    return f"nineteen {what} in twenty take {few(low)} or more"


def digits(x: float) -> float:
    """Three significant digits; whole numbers where it has more."""
    return float(f"{x:.3g}") if math.isfinite(x) and abs(x) < 1e4 else round(x) if math.isfinite(x) else x


def few(x: float) -> str:
    """A number of samples in words, rounded to what is known of it."""
    if not math.isfinite(x):
        return number(x)
    return number(round(float(f"{x:.3g}")) if x >= 10 else digits(x))
