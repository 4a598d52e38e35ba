"""What a result that was read from a file keeps of its data and of its forecast."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from policytest._base.arrays import IntArray
from policytest._base.table import Document
from policytest.data.counts import Counts
from policytest.data.returns import Histogram, Returns, Tails
from policytest.results.changes import Change


@dataclass(frozen=True, eq=False)
class Visits:
    """What a saved result keeps of its counts: [S,A] how often each pair was drawn, and what is wrong with the data.

    Of a verdict also the changes that its witness, which is not saved, had led to.
    """

    visits: IntArray
    selected: bool = False
    other_rewards: bool = False
    episodes: int | None = None
    total: int | None = None  # not known of a saved one
    histogram: Histogram | None = None
    tails: Tails | None = None
    flaws: tuple[str, ...] = ()
    refutes_model: bool = False
    doubts: tuple[str, ...] = ()
    changes: tuple[Change, ...] = ()


Seen = Counts | Returns | Visits
"""What was observed: transitions of a table, episodes, or what a file says of either."""


class SavedForecast(NamedTuple):
    """What a saved result keeps of `Needed`: its sentence, and its document."""

    words: str
    document: Document

    def data(self) -> Document:
        """The document."""
        return dict(self.document)
