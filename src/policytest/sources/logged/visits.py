"""Rows of a growing log, kept until their outcome is known.

Where a row is a visit, the state that follows it is that of the next row of its episode. Until that row arrives, the
visit waits, and all rows after it wait too: transitions come out in the order of their rows, which is the order in
which `policytest.assess` takes them. In the order in which outcomes become known, a test would look at the quick ones
first, and where patients who get worse come back sooner these are a selection by the outcome.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass


@dataclass
class Arrived:
    """A row that arrived: indices (x is None: not known yet), how often, its line, its time and its rewards."""

    s: int
    a: int
    x: int | None
    copies: int
    line: int
    reward: float | None  # nan: not reported; None: not a number
    ignored: float  # a reward that is only compared
    moment: float = 0.0
    episode: int = 0

    def lead_to(self, x: int) -> None:
        """The next state is known now."""
        self.x = x


class Waiting:
    """Rows in, in their order; out as soon as the outcomes of all rows before them are known."""

    def __init__(self) -> None:
        self._rows: deque[Arrived] = deque()
        self._open: dict[str, Arrived] = {}
        self._last: dict[str, float] = {}
        self._longest, self._latest = 0.0, -float("inf")

    def __len__(self) -> int:
        return len(self._rows)

    @property
    def first(self) -> Arrived | None:
        """The row whose outcome all others wait for."""
        return self._rows[0] if self._rows else None

    def add(self, row: Arrived, episode: str = "") -> None:
        """One more row, of this episode."""
        self._rows.append(row)
        if row.x is None:
            self._open[episode] = row

    def previous(self, episode: str, moment: float) -> Arrived | None:
        """The row before, in an episode that has a row at this time; None where no row waits for its outcome."""
        self._longest = max(self._longest, moment - self._last.get(episode, moment))
        self._last[episode], self._latest = moment, max(self._latest, moment)
        return self._open.pop(episode, None)

    def released(self) -> list[Arrived]:
        """All rows whose outcomes are known, up to the first that still waits."""
        found = []
        while self._rows and self._rows[0].x is not None:
            found.append(self._rows.popleft())
        return found

    def closed(self) -> tuple[list[Arrived], int, int]:
        """At the end of the log: rows with an outcome, how many have none, and how many of these stopped early.

        An episode stopped early if the log goes on longer after it than any episode ever paused.
        """
        left = [row for row in self._rows if row.x is None]
        found = [row for row in self._rows if row.x is not None]
        stopped = sum(row.moment + self._longest < self._latest for row in left)
        self._rows.clear()
        self._open.clear()
        return found, len(left), stopped
