"""What else the same data say, beside a verdict: for comparison, not part of its guarantee."""

from __future__ import annotations

from dataclasses import dataclass

from policytest.results.ladder import AssumptionLadder


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
    """

    one_look: tuple[float, float] | None = None
    ladder: AssumptionLadder | None = None
