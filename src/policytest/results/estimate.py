"""An interval for a value, and an estimate within epsilon."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property

from policytest._base.table import Row, Shown, Table, to_json
from policytest._base.text import number, probability
from policytest.data.counts import Counts
from policytest.mdp.task import Names, Task, about_task, given


@dataclass(frozen=True)
class Interval:
    """``lower`` <= V <= ``upper`` with probability at least 1-delta, at all times at once.

    ``certified``: both ends are proved. Otherwise one of them rests on a local search.
    """

    lower: float
    upper: float
    certified: bool

    @property
    def width(self) -> float:
        """upper - lower."""
        return self.upper - self.lower

    def __and__(self, other: Interval) -> Interval:
        """The intersection; where the two contradict each other, the gap between them."""
        lower, upper = max(self.lower, other.lower), min(self.upper, other.upper)
        return Interval(min(lower, upper), max(lower, upper), self.certified and other.certified)

    def __contains__(self, value: float) -> bool:
        return self.lower <= value <= self.upper


@dataclass(frozen=True, eq=False)
class Estimate(Shown):
    """The value, within epsilon: |V - ``value``| <= epsilon with probability at least 1-delta, if ``reached``.

    ``lower`` and ``upper`` hold in any case. ``samples`` counts every transition drawn.
    """

    value: float
    lower: float
    upper: float
    samples: int
    certified: bool
    epsilon: float
    delta: float
    reached: bool
    method: str
    counts: Counts = field(repr=False)
    task: Task | Names = field(default=Names(None, None), repr=False)

    @cached_property
    def summary(self) -> Table:
        """As one table, for text, HTML and JSON."""
        half = 0.5 * (self.upper - self.lower)
        rows = (
            Row("value", number(self.value), f"within {number(half)}", "value", self.value),
            Row(
                "interval",
                f"{number(self.lower)} to {number(self.upper)}",
                "at all times, with probability 1 - delta",
                "interval",
                [self.lower, self.upper],
            ),
            Row(
                "wanted precision", number(self.epsilon), "" if self.reached else "not reached", "epsilon", self.epsilon
            ),
            Row("delta", probability(self.delta), "probability that it misses, at most", "delta", self.delta),
            Row("samples", number(self.samples), "", "samples", self.samples),
            Row("certified", *self._proof(), "certified", self.certified),
        )
        title = f"The value is {number(self.value)}, give or take {number(half)}"
        return Table(title if self.reached else f"{title}: the wanted precision is not reached", rows)

    def _proof(self) -> tuple[str, str]:
        if not self.certified:
            return "no", ""
        return "yes", f"proved{given(self.task.assumptions)}"

    def to_json(self) -> str:
        """One JSON document, with "schema": 1."""
        extra = {"method": self.method, "reached": self.reached, "visits": self.counts.visits}
        return to_json({"schema": 1, **self.summary.data(), **extra, **about_task(self.task)})
