r"""What independent episodes hardly ever do: never repeat, always repeat, or drift. Said, where it can be seen.

A test on episodes rests on their independence, and on one mean for all of them. No data prove that, some speak against
it, and three faults are common enough to be looked for:

- *An environment that ignores its seed.* A short episode is repeated once, after the run: another return means that
  pairs with equal seeds share no luck, and that a run cannot be resumed. Answers stand. (`payoffs.returns`)
- *Episodes that are all the same*, with different seeds: `SAME` of them, with the same return, the same steps and the
  same last observation. Either nothing in them is random, and one would have said as much; or the environment ignores
  its seeds, and the answer is about this one.
- *A drift*: an agent that learns, an environment that warms up. With ranks q_i of n returns (means of ranks where some
  are equal) and places i, the correlation r of the two has under every law of independent returns, by symmetry over
  the n! orders,

      E r = 0,    Var r = 1/(n - 1),

  ties or not, and sqrt(n - 1) r is about normal. A p-value below `ALARM` is told. The orders are not quite alike at the
  end of a test that stops where its last returns were good: hence the small level.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Sequence

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.text import number, plural, probability

SAME = 20  # episodes that are all the same
ALARM, FEWEST = 1e-4, 30  # of a p-value of a drift; episodes that it is looked for in
UNKNOWN = 0  # the mark of an episode that is not compared


def mark_of(*shown: object) -> int:
    """A number that tells what an episode has shown from other things; `UNKNOWN` where it cannot be read."""
    found = UNKNOWN
    for part in shown:
        try:
            read = np.asarray(part)
        except Exception:
            return UNKNOWN
        text = repr(part).encode() if read.dtype.kind == "O" else read.tobytes()
        found = zlib.crc32(text, found)
    return found or 1


class Marks:
    """Whether all episodes so far were the same."""

    def __init__(self) -> None:
        self.first, self.same, self.compared, self.count = UNKNOWN, True, True, 0

    def add(self, mark: int) -> None:
        """One more episode."""
        self.first = mark if self.count == 0 else self.first
        self.compared = self.compared and mark != UNKNOWN
        self.same = self.compared and self.same and mark == self.first
        self.count += 1

    def take_back(self) -> None:
        """The last episode will come once more."""
        self.count -= 1

    def words(self, returned: float) -> tuple[str, ...]:
        """That they were, if they were."""
        if not self.same or self.count < SAME:
            return ()
        return (
            f"all {plural(self.count, 'episode')} were the same, with the return {number(returned)}: either nothing in "
            "them is random, and one would have said as much, or the environment ignores its seeds, and the answer is "
            "about this one episode",
        )

    def state(self) -> FloatArray:
        """[4] to go on from."""
        return np.array([self.first, self.same, self.compared, self.count], dtype=np.float64)

    def restore(self, kept: FloatArray) -> None:
        """Go on from there."""
        self.first, self.same, self.compared, self.count = int(kept[0]), bool(kept[1]), bool(kept[2]), int(kept[3])


def trend(returns: FloatArray | Sequence[float]) -> tuple[float, float]:
    """(r, p): the rank correlation of returns with their places, and its p-value, of both sides.

    >>> r, p = trend([1.0, 2.0, 3.0, 4.0])
    >>> round(r, 3), round(p, 3)
    (1.0, 0.083)
    """
    n = len(returns)
    _, place, count = np.unique(np.asarray(returns), return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - 0.5 * (count - 1.0))[place]
    spread = float(ranks.std()) * float(np.arange(n).std()) if n > 1 else 0.0
    if spread == 0.0:
        return 0.0, 1.0
    r = float(np.mean((ranks - ranks.mean()) * (np.arange(n) - 0.5 * (n - 1)))) / spread
    return r, math.erfc(abs(r) * math.sqrt(0.5 * (n - 1.0)))


def drift(returns: FloatArray | Sequence[float], what: str = "mean return") -> tuple[str, ...]:
    """That the mean seems to change over the episodes, if it does."""
    n = len(returns)
    if n < FEWEST:
        return ()
    r, p = trend(returns)
    if p >= ALARM:
        return ()
    first, second = (float(np.mean(half)) for half in (returns[: n // 2], returns[n // 2 :]))
    return (
        f"the {what} seems to change over the episodes: {number(first)} in the first half, {number(second)} in the "
        f"second (rank correlation {r:.2f}, p = {probability(p)}); the answer is about the episodes so far, not about "
        "those to come",
    )
