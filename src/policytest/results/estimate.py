"""An interval for a value, and an estimate within epsilon."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar

from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import number, probability
from policytest.mdp.task import Names, about_task
from policytest.results import large_sample, sentences
from policytest.results.saved import Seen
from policytest.results.sentences import Subject


def inside(estimate: float, ends: tuple[float, float] | None) -> float:
    """The point of an interval that is nearest to an estimate: results never show one outside its own interval.

    An interval rests on earlier moments too, so that the estimate of the last one may lie outside. nan if the interval
    is empty.

    >>> inside(0.7, (0.2, 0.5)), inside(0.3, (0.2, 0.5)), inside(0.3, (0.5, 0.2)), inside(0.3, None)
    (0.5, 0.3, nan, 0.3)
    """
    if ends is None or math.isnan(estimate) or any(map(math.isnan, ends)):
        return estimate
    low, high = ends
    return min(max(estimate, low), high) if low <= high else math.nan


def is_empty(ends: tuple[float, float]) -> bool:
    """Whether the data contradict every value, by more than rounding: then they refute what the result assumes."""
    low, high = ends
    return low > high + 1e-12 * (1.0 + abs(low) + abs(high))


@dataclass(frozen=True)
class Interval:
    """``lower`` <= V <= ``upper`` with probability at least 1-delta, at all times at once (two-sided).

    ``certified``: both ends are proved. Otherwise one of them rests on a local search. ``looks`` is "one" for the usual
    interval of one look at a finished log, which is approximate and never certified. ``budget``: the episodes that were
    allowed, if that was fixed beforehand; the interval is then by bets that aim at the end of it. ``approximate``: it
    holds as the number of episodes grows (`LargeSample`, and one look), not for every number.
    """

    lower: float
    upper: float
    certified: bool
    looks: str = "any"
    budget: int | None = None
    approximate: bool = False

    def __post_init__(self) -> None:
        """An interval without a point proves nothing but that an assumption fails."""
        object.__setattr__(self, "certified", self.certified and not is_empty((self.lower, self.upper)))

    @property
    def width(self) -> float:
        """upper - lower."""
        return self.upper - self.lower

    def __and__(self, other: Interval) -> Interval:
        """The intersection; where the two contradict each other, the gap between them."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        approximate = self.approximate or other.approximate
        return Interval(
            min(lower, upper), max(lower, upper), self.certified and other.certified, approximate=approximate
        )

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True, eq=False)
class Estimate(Shown):
    """The value, within epsilon: |V - ``value``| <= epsilon with probability at least 1-delta, if ``reached``.

    ``lower`` and ``upper`` hold in any case. ``samples`` counts every transition drawn. ``budget`` is what was allowed,
    if that was fixed beforehand; ``epsilon`` is then None if the interval at its end was asked for, and that was
    ``reached`` if no limit ended the run before. ``approximate``: it is a large-sample answer (`LargeSample`);
    ``reason``: why it has no interval yet, if so.
    """

    about: ClassVar[str] = "value"

    value: float
    lower: float
    upper: float
    samples: int
    certified: bool
    epsilon: float | None
    delta: float
    reached: bool
    method: str
    counts: Seen = field(repr=False)
    task: Subject = field(default=Names(None, None), repr=False)
    budget: int | None = None
    approximate: bool = False
    reason: str = ""

    def __post_init__(self) -> None:
        """The value is one of its interval."""
        object.__setattr__(self, "value", inside(self.value, (self.lower, self.upper)))
        object.__setattr__(self, "certified", self.certified and not self._is_empty)

    @property
    def flaws(self) -> tuple[str, ...]:
        """Why no guarantee holds, in words: of the data, or since they contradict every value."""
        return (*self.counts.flaws, *((sentences.CONTRADICTED,) if self._is_empty else ()))

    @property
    def refutes_model(self) -> bool:
        """Whether the data refute what the result assumes; then no option accepts it."""
        return self.counts.refutes_model or self._is_empty

    @property
    def _is_empty(self) -> bool:
        return is_empty((self.lower, self.upper))

    @cached_property
    def summary(self) -> Table:
        """As one table, for text, HTML and JSON."""
        width = sentences.half_width(self)
        half = f"within {number(width)}" if math.isfinite(width) else "the mean so far"
        proof = sentences.proof(self.certified, self.task.assumptions, self.flaws, self.approximate)
        rows = (
            Row(sentences.measured(self), number(self.value), half, "value", self.value),
            sentences.interval_row(
                "interval", (self.lower, self.upper), sentences.two_sided(self.delta, self.approximate)
            ),
            *self._wanted(),
            *sentences.budget_rows(self.budget, self.counts),
            Row("delta", probability(self.delta), "probability that the interval misses, at most", "delta", self.delta),
            Row("samples", number(self.samples), "", "samples", self.samples),
            *sentences.episode_rows(self.counts, self.samples),
            *sentences.agent_rows(self.task),
            *(large_sample.rows(self.counts) if self.approximate else ()),
            Row("certified", sentences.YES_NO[self.certified], proof, "certified", self.certified),
        )
        notes = [*((self.reason,) if self.reason else ()), *(f"beware: {words}" for words in self.counts.doubts)]
        return Table(sentences.estimate_title(self), rows, tuple(f"{sentences.capital(words)}." for words in notes))

    def _wanted(self) -> list[Row]:
        """The precision that was asked for, if one was."""
        if self.epsilon is None:
            return []
        missed = "" if self.reached else "not reached"
        return [Row("wanted precision", number(self.epsilon), missed, "epsilon", self.epsilon)]

    def data(self) -> Document:
        """What a program reads."""
        extra = {
            "epsilon": self.epsilon,
            "budget": self.budget,
            "interval_kind": sentences.TWO_SIDED,
            "method": self.method,
            "reached": self.reached,
            "reason": self.reason,
            **large_sample.data(self.approximate, self.counts),
            "flaws": list(self.flaws),
            **sentences.doubts_data(self.counts),
            "refutes_model": self.refutes_model,
        }
        seen = {"visits": self.counts.visits, **sentences.histogram_data(self.counts)}
        about = about_task(self.task)
        about["assumptions"] = list(large_sample.assumed(about["assumptions"], self.approximate))
        return {**self.summary.data(), **extra, **seen, **about}
