"""What trials say about each of several tasks, beside the answer about their mean."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from policytest._base.table import Document, Row, Table
from policytest._base.text import number, plural, probability

DIFFERENCES = {"above": "better", "below": "not better", "within": "as good", None: "undecided"}
VALUES = {"above": "above", "below": "below", "within": "within", None: "undecided"}


class TaskAnswer(NamedTuple):
    """What one task gives: its outcomes, their mean, the interval and the answer at delta/T."""

    task: str
    outcomes: int
    estimate: float
    interval: tuple[float, float]
    answer: str | None

    def words(self, about: str) -> str:
        """The answer in words, of a "value" or a "difference"."""
        return (DIFFERENCES if about == "difference" else VALUES)[self.answer]

    @property
    def reach(self) -> str:
        """The interval in words."""
        return "{} to {}".format(*map(number, self.interval))


@dataclass(frozen=True)
class ByTask:
    """The answers of all tasks; with probability at least 1 - delta none of them is wrong."""

    tasks: tuple[TaskAnswer, ...]
    threshold: float
    delta: float
    about: str = "value"

    @property
    def summary(self) -> Table:
        """A row a task."""
        unit = "pair" if self.about == "difference" else "trial"
        rows = tuple(
            Row(one.task, one.words(self.about), f"{number(one.estimate)}, {one.reach}; {plural(one.outcomes, unit)}")
            for one in self.tasks
        )
        return Table(self.title, rows)

    @property
    def title(self) -> str:
        """What is asked of each, and how surely it is answered."""
        bar = f"{'margin' if self.about == 'difference' else 'threshold'} {number(self.threshold)}"
        share = f"{probability(self.delta)}/{len(self.tasks)}"
        return f"Each task by itself ({bar}), at delta = {share} each, so that all hold together"

    def data(self) -> Document:
        """What a program reads."""
        tasks = [{**one._asdict(), "interval": list(one.interval)} for one in self.tasks]
        return {"tasks": tasks, "threshold": self.threshold, "delta": self.delta, "about": self.about}
