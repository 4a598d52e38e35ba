"""Returns outside the range that was declared: refused, or noted, so that the run goes on without a certificate.

All that bets rest on, beside independence, is that range. A return outside it shows that the declaration was wrong, and
that later ones may lie outside, too: from then on nothing is certified. What is bet with it is the nearest end of the
range, so that the capital stays a number and not negative; the estimate is of the returns as they are.
"""

from __future__ import annotations

import math
import warnings

import numpy as np

from policytest._base.arrays import FloatArray
from policytest._base.errors import AssumptionWarning
from policytest.data.episodes import Episodes
from policytest.data.ranges import REFUSE, Range, kept_in, outside_words

OF_RETURN, OF_REWARD = 0.0, 1.0


class RewardNotes:
    """Rewards as they are, and the first of an episode that lies outside reward_range; nan without one."""

    def __init__(self, about: Episodes) -> None:
        self.about, self.first = about, math.nan

    def __call__(self, reward: object, t: int, seed: int) -> float:
        """A reward, if it is a number."""
        paid = self.about.checked_reward(reward, t, seed)
        if math.isnan(self.first) and self.about.is_beyond(paid):
            self.first = paid
        return paid


class RangeWatch:
    """The first return, or reward, of some episodes that was outside its range; ``who`` is the agent, of two."""

    def __init__(self, about: Episodes, who: str = "") -> None:
        self.about, self.who = about, who
        self.first: tuple[float, int, int, float] | None = None  # what, the number of its episode, its seed, its value

    @property
    def words(self) -> tuple[str, ...]:
        """What was outside, in a sentence without an end; none without any."""
        if self.first is None:
            return ()
        what, number, seed, value = self.first
        of_reward = what == OF_REWARD
        name = "reward" if of_reward else self.about.counted
        ends = self.about.known_rewards if of_reward else self.about.bounds
        assert ends is not None
        return (outside_words(name, f"episode {number}{self.who} (seed {seed})", value, ends),)

    def whole(self, total: float, number: int, seed: int) -> float:
        """The return of an episode that has ended, in its range."""
        if self.about.on_range == REFUSE:
            return self.about.checked_return(total, seed, number)
        if self.about.is_outside(self.about.checked_return(total, seed, number)):
            self._note(OF_RETURN, number, seed, total)
        return kept_in(total, self.about.bounds)

    def unfinished(self, t: int, earned: float, number: int, seed: int) -> Range:
        """Where the return of an episode lies that was given up after t steps with rewards worth ``earned``."""
        least, most = self.about.unfinished(t, earned)
        self.whole(min(max(0.5 * sum(self.about.bounds), least), most), number, seed)
        return kept_in(least, self.about.bounds), kept_in(most, self.about.bounds)

    def reward(self, paid: float, number: int, seed: int) -> None:
        """The first reward of an episode outside its range; nan without one."""
        if not math.isnan(paid):
            self._note(OF_REWARD, number, seed, paid)

    def _note(self, what: float, number: int, seed: int, value: float) -> None:
        if self.first is None:
            self.first = what, number, seed, value
            warnings.warn(f"{self.words[0]}: no answer of this run is certified", AssumptionWarning, stacklevel=2)

    def state(self) -> FloatArray:
        """[4], or nothing."""
        return np.array(self.first or (), dtype=np.float64)

    def restore(self, kept: FloatArray) -> None:
        """Go on from that."""
        if len(kept) not in (0, 4):
            raise ValueError("what was outside the range is not known")
        self.first = (float(kept[0]), int(kept[1]), int(kept[2]), float(kept[3])) if len(kept) else None
