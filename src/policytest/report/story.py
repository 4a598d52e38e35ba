"""What a page says, as plain data, and the small words that every kind of result uses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from policytest._base.table import Row
from policytest._base.text import number, plural, probability
from policytest.mdp.task import Names, Task

YES, NO, OPEN = "yes", "no", "open"


@dataclass(frozen=True)
class Fact:
    """A number to be seen at once."""

    label: str
    shown: str
    remark: str = ""


@dataclass(frozen=True)
class Grid:
    """A table with columns, the first so many of which are words and the others numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    words: int = 1


@dataclass(frozen=True)
class Story:
    """All that a page says, apart from its pictures and where the data come from."""

    question: str
    word: str
    claim: str
    lead: str
    tone: str = OPEN
    badge: str = ""
    proof: str = ""
    facts: tuple[Fact, ...] = ()
    background: tuple[str, ...] = ()
    next_steps: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    changes_title: str = ""
    changes_words: str = ""
    changes: tuple[tuple[str, str, str, str], ...] = ()
    tables: tuple[Grid, ...] = ()
    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()
    guarantee: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    recipe: tuple[str, ...] = ()
    recipe_words: str = "The same seed and the same data give the same result."

    @property
    def headline(self) -> str:
        """The answer as one line."""
        return f"{self.word} {self.claim}".strip()


MARKOV = (
    "The next state depends on the current state and the action alone, and by the same law throughout.",
    "Rewards, policy, initial distribution and discount are the ones given; so is the support, where one was declared.",
)
DRAWS = "Draws are independent given their state and action, and no sample was chosen by looking ahead."


def own_assumptions(task: Task | Names) -> tuple[str, ...]:
    """The assumptions of a task as sentences of their own."""
    return tuple(f"{words[:1].upper()}{words[1:]}." for words in task.assumptions)


# ---------------------------------------------------------------- small words


def how_many(count: int, suppress_below: int) -> str:
    """A number of samples, or that it is small."""
    return f"fewer than {suppress_below} samples" if 0 < count < suppress_below else plural(count, "sample")


def safe_rows(rows: Sequence[Row], suppress_below: int) -> tuple[Row, ...]:
    """The rows of the summary, small counts hidden."""
    return tuple(
        Row(row.label, f"fewer than {suppress_below}", row.remark, row.key)
        if row.key == "samples" and isinstance(row.raw, int) and 0 < row.raw < suppress_below
        else row
        for row in rows
    )


def four_digits(x: float) -> str:
    """Four digits: enough for a headline."""
    return f"{x + 0.0:,.4g}" if math.isfinite(x) and abs(x) < 1e4 else number(x)


def three_digits(x: float) -> str:
    """A p-value to three digits."""
    return probability(float(f"{x:.3g}")) if 0 < x < 1 else probability(x)


def sure(delta: float) -> str:
    """1 - delta."""
    return probability(float(f"{1 - delta:.12g}"))


def rounded(x: float) -> str:
    """Three digits of a number of samples."""
    if not math.isfinite(x):
        return number(x)
    return f"{float(f'{x:.3g}'):,.0f}" if abs(x) >= 10 else f"{x:.3g}"


def is_positive(x: float) -> bool:
    """Whether it is a positive number, and not an infinite one."""
    return math.isfinite(x) and x > 0
