"""One log, one question, several sets of assumptions: what each of them gives, and whether they contradict each other.

Each rung has an interval that contains V with probability at least 1 - delta/2 if its assumptions hold. If those of the
Markov table and of a weaker rung hold, then V lies in both intervals with probability at least 1 - delta. So where the
two are disjoint, what the table assumes beyond the weaker rung is refuted, with error at most delta. An interval whose
lower end is above its upper end is empty: then the data refute the assumptions of this rung by themselves.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import number, plural, probability
from policytest.results.by_task import ByTask

MARKOV, PROPENSITIES, EPISODES = "markov", "propensities", "episodes"
WORDS = {
    MARKOV: "a Markov table",
    PROPENSITIES: "episodes with propensities",
    EPISODES: "independent episodes",
}
ANSWERS = {"above": "above", "below": "below", "within": "within", None: "undecided"}


@dataclass(frozen=True)
class Rung:
    """What one set of assumptions gives: an interval at delta/2, the answer at delta, the data used."""

    assumption: str
    interval: tuple[float, float]
    answer: str | None
    rows: int
    episodes: int | None = None

    @property
    def words(self) -> str:
        """The assumption in words."""
        return WORDS.get(self.assumption, self.assumption)

    @property
    def reach(self) -> str:
        """The interval in words."""
        return "no value" if self.empty else f"{number(self.interval[0])} to {number(self.interval[1])}"

    @property
    def empty(self) -> bool:
        """Whether the data contradict every value."""
        return self.interval[0] > self.interval[1]

    def contradicts(self, other: Rung) -> bool:
        """Whether two intervals that are not empty have no point in common."""
        lower, upper = (max(self.interval[0], other.interval[0]), min(self.interval[1], other.interval[1]))
        return lower > upper and not (self.empty or other.empty)


@dataclass(frozen=True, eq=False)
class AssumptionLadder(Shown):
    """A rung for each set of assumptions, the strongest first, which is that of the Markov table."""

    rungs: tuple[Rung, ...]
    threshold: float
    delta: float

    @property
    def refuting(self) -> Rung | None:
        """The first weaker rung whose interval has no point in common with that of the Markov table."""
        return next((rung for rung in self.rungs[1:] if rung.contradicts(self.rungs[0])), None)

    @property
    def refuted(self) -> bool:
        """Whether the log refutes the Markov model, with a probability of error of at most delta."""
        return self.rungs[0].empty or self.refuting is not None

    @property
    def words(self) -> str:
        """The refutation as a sentence; "" where there is none."""
        table, error = self.rungs[0], f"(error at most {probability(self.delta)})"
        if table.empty:
            return f"The Markov model is refuted: no value agrees with what {table.words} makes of the log {error}"
        if self.refuting is None:
            return ""
        return (
            f"The Markov model is refuted: by {self.refuting.words} alone the value lies in {self.refuting.reach}, by "
            f"{table.words} in {table.reach} {error}"
        )

    @property
    def notes(self) -> tuple[str, ...]:
        """What is refuted, as sentences."""
        weaker = [f"The data refute the assumptions of {rung.words}" for rung in self.rungs[1:] if rung.empty]
        return tuple(f"{words}." for words in (self.words, *weaker) if words)

    @cached_property
    def summary(self) -> Table:
        """A row a rung."""
        rows = []
        for rung in self.rungs:
            used = f"{plural(rung.rows, 'row')}" + (f", {plural(rung.episodes, 'episode')}" if rung.episodes else "")
            rows.append(Row(rung.words, rung.reach, f"{ANSWERS[rung.answer]}; {used}"))
        title = (
            f"By assumption: intervals of error {probability(self.delta / 2)} each, threshold {number(self.threshold)}"
        )
        return Table(title, tuple(rows), self.notes)

    def data(self) -> Document:
        """What a program reads."""
        rungs = [{**vars(rung), "interval": list(rung.interval)} for rung in self.rungs]
        about = {"threshold": self.threshold, "delta": self.delta, "refuted": self.refuted, "words": self.words}
        return {"rungs": rungs, **about}


@dataclass(frozen=True)
class Alongside:
    """Further results from the data of a verdict.

    Attributes
    ----------
    one_look
        Of recorded data, the usual interval for one look at them: approximate and not certified. None also if it has
        no point in common with the interval of the verdict.
    ladder
        What the same log gives with fewer assumptions, if that was asked for.
    by_task
        Of trials of several tasks, the answer for each.
    """

    one_look: tuple[float, float] | None = None
    ladder: AssumptionLadder | None = None
    by_task: ByTask | None = None
