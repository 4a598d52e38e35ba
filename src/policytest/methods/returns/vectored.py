r"""Episodes of a vector of environments, handed on in the order in which they began.

Call G_j the return of the j-th episode to begin; ties are in the order of the rows. When it begins is a function of the
episodes before it, because a row begins where an earlier episode ended. So, given all of G_1, ..., G_{j-1}, the mean of
G_j is V, as if one episode were run after the other, and a bet on G_j that was chosen from those is fair. An episode
that ends early waits for those that began before it.

The order in which episodes *end* has no such property: of n that run at once, the first to end is the shortest. Where
long episodes earn more, its mean is below V, and so is that of the next ones: the long episodes are still under way.

*Pauses.* What is under way when a run pauses cannot be kept, and to leave it out would prefer short episodes again,
if a clock decides when to pause. So the vector is reset with a new seed from time to time: after a number of episodes
that depends on earlier ones only, and what began after that number is left out, whatever would come of it. A run that
goes on repeats what followed the last reset, with the same seed, and compares the returns with those it had; an
environment or an agent that does not repeat itself is refused.

All transitions count as samples, also those of episodes that were under way or left out (``extra``).
"""

from __future__ import annotations

from typing import Any

import numpy as np

from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.errors import WHILE_DRAWING, InputError
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed, generator, restored, stored
from policytest.data.vector_walks import VectorWalk
from policytest.data.walks import LARGEST_SEED
from policytest.methods.returns.outcomes import NO_OUTCOMES, Outcomes

FIRST_BLOCK = 16  # episodes of each row before the first new seed
SHARE = 4  # later blocks have a quarter of the episodes before them
PATIENCE = 64  # steps of the vector without an episode to hand on, before the driver has a look
LARGEST = float(np.finfo(np.float64).max)


class VectoredEpisodes:
    """Episodes of a vector of environments, as a supply."""

    exhausted = False
    drawing = False

    def __init__(self, episodes: Episodes, walk: VectorWalk, rng: Seed) -> None:
        self.about, self.walk, self.rng = episodes, walk, generator(rng)
        self.low, self.high = episodes.bounds
        self.rewards = episodes.reward_range or (-LARGEST, LARGEST)
        self.before = self.dropped = 0
        self._new_block()

    # ------------------------------------------------------------ handing on

    @property
    def extra(self) -> int:
        """The transitions of episodes that were not handed on."""
        return self.dropped + self.made - self.handed_steps

    def take(self, most: int) -> Outcomes:
        """The episodes that are next in the order of their beginnings; none where the first does not end soon."""
        self.drawing, first = True, self.extra
        try:
            if self.walk.user is not self:
                self._repeat()
            if len(self.handed) == self.size:
                self.before, self.dropped = self.before + self.size, self.extra
                self._new_block()
                self._repeat()
            left = -(-(most - (self.extra - first)) // self.walk.n)  # steps of the vector
            for _ in range(min(left, PATIENCE)):
                if len(self.handed) in self.ready:
                    break
                self._step()
            return self._hand_on()
        except BaseException as error:
            error.add_note(WHILE_DRAWING)
            self.walk.user = None  # what it was doing is repeated
            raise
        finally:
            self.drawing = False

    def put_back(self, episodes: int) -> None:
        """The last episodes that were handed on are the next."""
        for total, steps in reversed(self.last[-episodes:]):
            self.handed.pop()
            self.handed_steps -= steps
            self.ready[len(self.handed)] = total, steps

    def look(self, threshold: float, lead: float, both_sides: bool) -> None:
        """Whole episodes serve every question."""

    def _hand_on(self) -> Outcomes:
        if len(self.handed) not in self.ready:
            return NO_OUTCOMES
        self.last: list[tuple[float, int]] = []
        while len(self.handed) in self.ready:
            self.last.append(self.ready.pop(len(self.handed)))
            self.handed.append(self.last[-1][0])
        found, steps = np.array([total for total, _ in self.last]), np.array([steps for _, steps in self.last])
        self.handed_steps += int(steps.sum())
        return Outcomes(found, found, found, steps)

    # ------------------------------------------------------------ a block: what follows a reset of all rows

    def _new_block(self) -> None:
        self.seed = int(self.rng.integers(LARGEST_SEED))
        self.handed: list[float] = []
        self._clear()

    def _clear(self) -> None:
        self.size = max(FIRST_BLOCK * self.walk.n, self.before // SHARE)
        self.begun = self.made = self.handed_steps = 0
        self.ready: dict[int, tuple[float, int]] = {}

    def _repeat(self) -> None:
        """Reset all rows with the seed of the block, and go on to where its episodes were handed on."""
        n, kept = self.walk.n, self.handed
        self._clear()
        self.total, self.scale = np.zeros(n), np.ones(n)
        self.steps, self.number = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.longest = 0  # of the steps, or more
        self.walk.begin(self.seed)
        self._begin(np.ones(n, dtype=np.bool_))
        for index, expected in enumerate(kept):
            while index not in self.ready and index < self.size:
                self._step()
            total, steps = self.ready.pop(index, (np.nan, 0))
            if total != expected:
                raise InputError(
                    f"cannot resume: the environments or the agent did not repeat an episode for the same seed (its "
                    f"return was {expected:.9g}, and is {total:.9g}); start a new run"
                )
            self.handed_steps += steps
        self.walk.user = self

    def _begin(self, rows: BoolArray) -> None:
        """Number the episodes that begin; those beyond the block's have none."""
        self.total[rows], self.scale[rows], self.steps[rows] = 0.0, 1.0, 0
        after = self.begun + int(np.count_nonzero(rows))
        numbers = np.arange(self.begun, after)
        numbers[numbers >= self.size] = -1
        self.number[rows], self.begun = numbers, after

    def _step(self) -> None:
        """One step of all rows."""
        rewards, ended, only_reset = self.walk.step()
        low, high = self.rewards
        if not (np.minimum.reduce(rewards) >= low and np.maximum.reduce(rewards) <= high):  # also where one is nan
            rewards = self._checked(rewards, only_reset)
        if self.about.discount < 1.0:
            rewards = self.scale * rewards
            self.scale *= self.about.discount
        self.total += rewards
        self.steps += 1
        self.longest += 1
        self.made += self.walk.n
        if only_reset is not None:
            self.made -= int(np.count_nonzero(only_reset))
            self._begin(only_reset)
        horizon = self.about.horizon
        over = ended if horizon is None or self.longest < horizon else ended | (self.steps >= horizon)
        if np.count_nonzero(over):
            self._end(over, ended)
            self.longest = int(self.steps.max())

    def _end(self, over: BoolArray, ended: BoolArray) -> None:
        """Keep the episodes that are over, and go on to the next."""
        counted = over & (self.number >= 0)
        columns = (column[counted].tolist() for column in (self.number, self.total, self.steps))
        for number, total, steps in zip(*columns, strict=True):
            self.ready[number] = self.about.checked_return(total, self.seed), steps
        self.number[over] = -1
        begun = self.walk.renew(ended, counted & ~ended)
        if np.count_nonzero(begun):
            self._begin(begun)
        if self.walk.waiting is None and (self.number < 0).all():  # every row was cut: reset them all
            self.size = min(self.size, self.begun)

    def _checked(self, rewards: FloatArray, only_reset: BoolArray | None) -> FloatArray:
        """The rewards, some of which are outside the range; refused where that is in an episode that counts."""
        low, high = self.rewards
        checked, counted = rewards.copy(), self.number >= 0
        if only_reset is not None:
            counted &= ~only_reset
        for row in np.flatnonzero(~((rewards >= low) & (rewards <= high))):
            at = rewards[row], int(self.steps[row]), self.seed
            checked[row] = self.about.checked_reward(*at) if counted[row] else 0.0
        return checked

    # ------------------------------------------------------------ keeping

    def state(self) -> dict[str, Any]:
        """The seed of the block, and what it has given."""
        return {
            "rng": stored(self.rng),
            "block": np.array([self.walk.n, self.seed, self.before, self.dropped], dtype=np.int64),
            "block_returns": np.array(self.handed, dtype=np.float64),
        }

    def restore(self, state: dict[str, Any]) -> None:
        """Go on with the block, which is repeated when the next episode is taken."""
        n, seed, before, dropped = (int(kept) for kept in state["block"])
        if n != self.walk.n:
            raise InputError(
                f"resume: that run had a vector of {n} environments, not of {self.walk.n}; pass the same, or start a "
                "new run"
            )
        if min(seed, before, dropped) < 0:
            raise ValueError("the block is not one")
        self.rng, self.seed, self.before, self.dropped = restored(state["rng"]), seed, before, dropped
        self.handed = [float(total) for total in state["block_returns"]]
        self._clear()
        if len(self.handed) > self.size:
            raise ValueError("the block has too many episodes")
        self.walk.user = None
