"""What a diagnosis says: a `Finding` for each assumption tested, and a `Diagnosis` of them all."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from policytest._base import arrays
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.table import Document, Row, Shown, Table
from policytest._base.text import nats, number, plural, probability

CONFOUNDING = (
    "Not testable: if actions were chosen with information that is not in the state (a doctor who saw more than the "
    "record), the rows of a pair are not a fair sample of what the policy would meet, and no statistic of these data "
    "can show it."
)
STANDING = (
    "These are warnings about the model, and the answer stays what it is: delta bounds its error if the model holds. "
    "If states are bins, an answer is certified only without them. No warning is no proof that the model holds."
)


@dataclass(frozen=True)
class Offender:
    """The pair where the label matters most, and there the cell that is furthest from what its pair does."""

    state: int
    action: int
    evidence: float  # nats, of this pair alone
    transitions: int
    label: int
    rows: int  # with this label
    successor: int
    share: float  # of this successor among the rows with this label
    overall: float  # and among all rows of the pair
    words: str

    def smallest(self) -> int:
        """The smallest positive number of rows that these numbers tell of, or let one compute."""
        part, column = round(self.rows * self.share), round(self.transitions * self.overall)
        others = self.transitions - self.rows
        cells = (part, self.rows - part, column - part, others - (column - part))  # with this label and without
        return min(n for n in cells if n > 0)


@dataclass(frozen=True)
class Finding:
    """One assumption tested: ``evidence`` against it in nats, ``p_value`` = exp(-evidence), at most 1.

    ``adjusted`` is the p-value after Holm's correction for all tests of the diagnosis. ``effect`` is the conditional
    mutual information of the next state and the label, in nats per transition, less its bias df/(2n), at least 0.
    ``g_test`` is the p-value of the usual chi-square approximation over the pairs all of whose cells expect at least
    5 rows (NaN where it would mislead): more sensitive, but only about right, and used for hints alone. ``reason`` says
    why there was nothing to test.
    """

    key: str
    label: str
    transitions: int
    evidence: float
    effect: float
    g_test: float = math.nan  # p-value of the usual G-test over the pairs with large cells; approximate, for comparison
    worst: Offender | None = None
    split: float | None = None  # of a change over time: the share of the rows before it
    reason: str = ""
    adjusted: float = 1.0

    @property
    def p_value(self) -> float:
        """exp(-evidence), at most 1."""
        return math.exp(-max(self.evidence, 0.0))


@dataclass(frozen=True, eq=False)
class Diagnosis(Shown):
    """What the data say about the assumptions behind a verdict; where states are cells, it is certified by them too.

    Attributes
    ----------
    findings
        One `Finding` for each test.
    level
        Tests whose corrected p-value is at most this are warned of: if all assumptions hold, the probability of any
        warning from them is at most this.
    broken
        How many rows of an episode do not begin where the row before them ended.
    notes
        What else there is to say, such as what could not be tested.
    """

    findings: tuple[Finding, ...]
    level: float
    transitions: int
    broken: int = 0
    notes: tuple[str, ...] = ()
    suppress_below: int = 0

    def shown(self, suppress_below: int = 0) -> Diagnosis:
        """The same diagnosis, which names no pair that shows a number of rows between 1 and ``suppress_below`` - 1."""
        if arrays.whole_number("suppress_below", suppress_below) < 0:
            raise InputError(f"suppress_below is {suppress_below}; it cannot be negative")
        return replace(self, suppress_below=int(suppress_below))

    def _worst(self, finding: Finding) -> Offender | None:
        worst = finding.worst
        return None if worst is None or worst.smallest() < self.suppress_below else worst

    def _shown(self, n: int) -> int | None:
        """The number, or None where it is too small to be shown."""
        return None if 0 < n < self.suppress_below else n

    @property
    def ok(self) -> bool:
        """Whether there is nothing to warn of."""
        return not self.warnings

    @property
    def refuted(self) -> bool:
        """Whether a test refutes the Markov model; if it holds, with a probability of at most ``level``."""
        return any(finding.adjusted <= self.level for finding in self.findings)

    @cached_property
    def warnings(self) -> tuple[str, ...]:
        """Plain sentences, one for each assumption that the data speak against."""
        found = [
            _sentence(finding, self._worst(finding)) for finding in self.findings if finding.adjusted <= self.level
        ]
        if self.broken:
            few = 0 < self.broken < self.suppress_below
            rows = "A few rows" if few else plural(self.broken, "row")
            found.append(
                f"{rows} of an episode {'does' if self.broken == 1 and not few else 'do'} not begin in the state in "
                "which the row before ended: rows are missing or not in order."
            )
        return tuple(found)

    @cached_property
    def hints(self) -> tuple[str, ...]:
        """What only the usual G-test finds, which is more sensitive but approximate: worth a look, not a warning."""
        return tuple(
            f"Worth a look: by the usual G-test, which is only about right, the next state depends on {finding.label} "
            f"(about p = {probability(finding.g_test)}, {number(finding.effect)} nats per transition)."
            for finding in self.findings
            if finding.adjusted > self.level and finding.g_test * len(self.findings) <= self.level
        )

    def warn(self) -> None:
        """Issue an `AssumptionWarning` for each of the warnings."""
        for sentence in self.warnings:
            warnings.warn(sentence, AssumptionWarning, stacklevel=2)

    @cached_property
    def summary(self) -> Table:
        """One row for each test; the warnings and what cannot be tested underneath."""
        rows = tuple(
            Row(
                f"depends on {finding.label}",
                "not tested" if finding.reason else f"p = {probability(finding.adjusted)}",
                finding.reason or _remark(finding),
                finding.key,
                {
                    "p_value": finding.p_value,
                    "adjusted": finding.adjusted,
                    "evidence": finding.evidence,
                    "effect": finding.effect,
                    "g_test": finding.g_test,
                    "transitions": self._shown(finding.transitions),
                    "split": finding.split,
                    "reason": finding.reason,
                    "worst": None if (worst := self._worst(finding)) is None else dict(vars(worst)),
                },
            )
            for finding in self.findings
        )
        seen = self._shown(self.transitions)
        words = number(seen) if seen is not None else f"fewer than {self.suppress_below}"
        count = Row("transitions", words, "", "transitions", seen)
        title = (
            "Assumptions: the data speak against the model"
            if self.warnings
            else "Assumptions: nothing in the data speaks against the model"
        )
        return Table(title, (count, *rows), (*self.warnings, *self.hints, *self.notes, CONFOUNDING, STANDING))

    def data(self) -> Document:
        """What a program reads."""
        broken = None if 0 < self.broken < self.suppress_below else self.broken
        extra = {"level": self.level, "broken": broken, "warnings": list(self.warnings), "hints": list(self.hints)}
        return {**self.summary.data(), **extra, "notes": [*self.notes, CONFOUNDING, STANDING]}


def _remark(finding: Finding) -> str:
    effect = f", effect {number(finding.effect)} nats per transition" if finding.evidence > 0 else ""
    usual = "" if math.isnan(finding.g_test) else f"; the usual G-test, about p = {probability(finding.g_test)}"
    return f"{nats(finding.evidence)}{effect}{usual}"


def _sentence(finding: Finding, worst: Offender | None) -> str:
    strength = f"p = {probability(finding.adjusted)}, {number(finding.effect)} nats per transition"
    place = f"; most at {worst.words}" if worst else ""
    if finding.key != "period":
        return (
            f"The next state depends on {finding.label}, beyond the state and action at hand ({strength}{place}). The "
            "process is not Markov in these states, and delta is not guaranteed; put what matters of the past into the "
            "state."
        )
    at = "" if finding.split is None else f", most between the first {finding.split:.0%} of the rows and the rest"
    return (
        f"The transitions change over time{at} ({strength}{place}). One kernel does not describe all rows, and delta "
        "is not guaranteed for today's; use the rows since the change, or put its cause into the state."
    )


def holm(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    """Corrected p-values: the i-th smallest of m times m - i + 1, made monotone, at most 1."""
    order = sorted(range(len(findings)), key=lambda i: findings[i].p_value)
    adjusted, largest = {}, 0.0
    for rank, i in enumerate(order):
        largest = min(1.0, max(largest, findings[i].p_value * (len(findings) - rank)))
        adjusted[i] = largest
    return tuple(replace(finding, adjusted=adjusted[i]) for i, finding in enumerate(findings))
