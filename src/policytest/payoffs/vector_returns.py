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

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, BoolArray, FloatArray
from policytest._base.errors import InputError, blame_simulator
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed, generator, restored, stored
from policytest.data.vector_walks import VectorWalk
from policytest.data.walks import LARGEST_SEED
from policytest.payoffs.declared_range import RangeWatch
from policytest.payoffs.independence import UNKNOWN, Marks, mark_of
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes

FIRST_BLOCK = 16  # episodes of each row before the first new seed
SHARE = 4  # later blocks have a quarter of the episodes before them
PATIENCE = 64  # steps of the vector without an episode to hand on, before the driver has a look


class Ended(NamedTuple):
    """An episode that is over: its steps, its return, and where that lies if its rest was not seen."""

    steps: int
    total: float
    low: float
    high: float
    mark: int = UNKNOWN  # of what it has shown last


NOT_ENDED = Ended(0, np.nan, np.nan, np.nan)


class VectoredEpisodes(EpisodeSupply):
    """Episodes of a vector of environments, as a supply."""

    def __init__(self, episodes: Episodes, walk: VectorWalk, rng: Seed) -> None:
        self.about, self.walk, self.rng = episodes, walk, generator(rng)
        self.low, self.high = episodes.bounds
        self.rewards = episodes.reward_limits
        self.watch, self.marks = RangeWatch(episodes), Marks()
        self.before = self.dropped = 0
        self.thread: int | None = None  # where it stepped the vector, which then was not begun again by another one
        self.earlier: list[float] = []  # the seed of an earlier block, and the return of its first episode
        self._new_block()

    @property
    def outside(self) -> tuple[str, ...]:
        """Which return, or reward, was outside its range, in words."""
        return self.watch.words

    @property
    def doubts(self) -> tuple[str, ...]:
        """Whether all episodes were the same."""
        return self.marks.words(self.handed[-1]) if self.handed else ()

    # ------------------------------------------------------------ handing on

    @property
    def extra(self) -> int:
        """The transitions of episodes that were not handed on."""
        return self.dropped + self.made - self.handed_steps

    def take(self, most: int) -> Outcomes:
        """The episodes that are next in the order of their beginnings; none where the first does not end soon."""
        first = self.extra
        with self._drawing():
            if self.walk.user is not self:
                self._repeat()
            if len(self.handed) == self.size:
                self.before, self.dropped = self.before + self.size, self.extra
                self.earlier = [float(self.seed), self.handed[0]]
                self._new_block()
                self._repeat()
            left = -(-(most - (self.extra - first)) // self.walk.n)  # steps of the vector
            for _ in range(min(left, PATIENCE)):
                if len(self.handed) in self.ready or self.stop():
                    break
                self._step()
            return self._hand_on()

    @contextmanager
    def _drawing(self) -> Iterator[None]:
        """Step the vector; one that two threads step at the same time is refused, since neither would get on."""
        self.drawing, here = True, threading.get_ident()
        try:
            with self.walk.turn:
                other = getattr(self.walk.user, "thread", here)
                if self.walk.user is not self and self.thread is not None and other != here:
                    raise InputError(
                        "env: another thread steps this vector of environments, too; pass each thread a vector of its "
                        "own"
                    )
                self.thread = here
                yield
        except BaseException as error:
            self.walk.serve(None)  # what it was doing is repeated
            if isinstance(error, EOFError | BrokenPipeError | ConnectionResetError):
                raise InputError(
                    f"a process of the vector {self.walk.name} has ended ({type(error).__name__}): out of memory, "
                    "killed, or ended by the environment itself",
                    'run its environments in one process to see which: vectorization_mode="sync"',
                ) from error
            blame_simulator(error)
            raise
        finally:
            self.drawing = False

    def put_back(self, episodes: int) -> None:
        """The last episodes that were handed on are the next."""
        for ended in reversed(self.last[-episodes:]):
            self.handed.pop()
            self.handed_steps -= ended.steps
            self.ready[len(self.handed)] = ended
            self.marks.take_back()

    def _hand_on(self) -> Outcomes:
        if len(self.handed) not in self.ready:
            return NO_OUTCOMES
        self.last: list[Ended] = []
        while len(self.handed) in self.ready:
            self.last.append(self.ready.pop(len(self.handed)))
            self.handed.append(self.last[-1].total)
            self.marks.add(self.last[-1].mark)
        steps, total, low, high = (np.array(column) for column in zip(*(ended[:4] for ended in self.last), strict=True))
        self.handed_steps += int(steps.sum())
        return Outcomes(low, high, total, steps)

    # ------------------------------------------------------------ a block: what follows a reset of all rows

    def _new_block(self) -> None:
        self.seed = int(self.rng.integers(LARGEST_SEED))
        self.handed: list[float] = []
        self._clear()

    def _clear(self) -> None:
        self.size = max(FIRST_BLOCK * self.walk.n, self.before // SHARE)
        self.begun = self.made = self.handed_steps = 0
        self.ready: dict[int, Ended] = {}

    def repeat(self) -> None:
        """Repeat the block of a resumed run, or the first episode of the one before where it has none yet."""
        with self._drawing():
            if self.handed:
                self._repeat()
            elif self.earlier:
                block, (seed, first) = (self.seed, self.handed), self.earlier
                self.seed, self.handed = int(seed), [first]
                self._repeat()
                self.seed, self.handed = block
                self._clear()
                self.walk.serve(None)

    def _repeat(self) -> None:
        """Reset all rows with the seed of the block, and go on to where its episodes were handed on."""
        n, kept = self.walk.n, self.handed
        self._clear()
        self.total, self.scale = np.zeros(n), np.ones(n)
        self.steps, self.number = np.zeros(n, dtype=np.int64), np.zeros(n, dtype=np.int64)
        self.longest = 0  # of the steps, or more
        self.history: list[FloatArray] = []  # the rewards of the latest steps, where an outcome needs them
        self.walk.begin(self.seed)
        self._begin(np.ones(n, dtype=np.bool_))
        for index, expected in enumerate(kept):
            while index not in self.ready and index < self.size:
                self._step()
            ended = self.ready.pop(index, NOT_ENDED)
            if ended.total != expected:
                raise InputError(
                    f"cannot resume: an episode had the return {expected:.9g}, and now has {ended.total:.9g}, so these "
                    "are other environments or another agent, or they did not repeat an episode for the same seed; "
                    "pass the same, or start a new run"
                )
            self.handed_steps += ended.steps
        self.walk.serve(self)

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
        if self.about.judge is not None:
            self.history.append(rewards.copy())
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
        last = self.about.last_step
        over = ended if self.longest < last else ended | (self.steps >= last)
        if np.count_nonzero(over):
            self._end(over, ended)
            self.longest = int(self.steps.max())

    def _end(self, over: BoolArray, ended: BoolArray) -> None:
        """Keep the episodes that are over, and go on to the next."""
        counted = over & (self.number >= 0)
        whole = ended if self.about.horizon is None else ended | (self.steps >= self.about.horizon)
        if self.about.judge is not None:
            self._judge(counted, ended)
        columns = (column[counted].tolist() for column in (self.number, self.total, self.steps, whole))
        for row, number, total, steps, is_whole in zip(np.flatnonzero(counted), *columns, strict=True):
            ended_here = self._outcome(number, total, steps, is_whole)
            self.ready[number] = ended_here._replace(mark=self._mark(row, total, steps))
        self.number[over] = -1
        begun = self.walk.renew(ended, counted & ~ended)
        if np.count_nonzero(begun):
            self._begin(begun)
        if self.walk.waiting is None and (self.number < 0).all():  # every row was cut: reset them all
            self.size = min(self.size, self.begun)

    def _mark(self, row: int, total: float, steps: int) -> int:
        """Of what a row has shown last, where observations are one array."""
        seen = self.walk.observations
        return mark_of(seen[row], total, steps) if isinstance(seen, np.ndarray) else UNKNOWN

    def _judge(self, over: BoolArray, ended: BoolArray) -> None:
        """Put the outcomes of episodes that are over in the place of their returns."""
        del self.history[: len(self.history) - self.longest]
        for row in np.flatnonzero(over).tolist():
            rewards = np.array([paid[row] for paid in self.history[-int(self.steps[row]) :]])
            info = self.walk.last_info(row, bool(ended[row]))
            self.total[row] = self.about.outcome_of(rewards, info, self.seed)

    def _outcome(self, number: int, total: float, steps: int, is_whole: bool) -> Ended:
        """An episode that is over; one whose rest was not seen has a return in the middle of what it may be."""
        number += self.before + 1
        if is_whole:
            staked = self.watch.whole(total, number, self.seed)
            return Ended(steps, total if self.watch.first else staked, staked, staked)
        low, high = self.watch.unfinished(steps, total, number, self.seed)
        return Ended(steps, 0.5 * (low + high), low, high)

    def _checked(self, rewards: FloatArray, only_reset: BoolArray | None) -> FloatArray:
        """The rewards, some of which are outside the range; refused where that is in an episode that counts."""
        low, high = self.rewards
        checked, counted = rewards.copy(), self.number >= 0
        if only_reset is not None:
            counted &= ~only_reset
        for row in np.flatnonzero(~((rewards >= low) & (rewards <= high))):
            at = rewards[row], int(self.steps[row]), self.seed
            checked[row] = self.about.checked_reward(*at) if counted[row] else 0.0
            if counted[row] and self.about.is_beyond(checked[row]):
                self.watch.reward(checked[row], self.before + int(self.number[row]) + 1, self.seed)
        return checked

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The seed of the block, what it has given, and how many transitions are of episodes under way."""
        under_way = self.made - self.handed_steps
        return {
            "rng": stored(self.rng),
            "block": np.array([self.walk.n, self.seed, self.before, self.dropped, under_way], dtype=np.int64),
            "block_returns": np.array(self.handed, dtype=np.float64),
            "earlier": np.array(self.earlier, dtype=np.float64),
            "outside": self.watch.state(),
            "marks": self.marks.state(),
        }

    def restore(self, state: Arrays) -> None:
        """Go on with the block, which is repeated when the next episode is taken."""
        n, seed, before, dropped, under_way = (int(kept) for kept in state["block"])
        if n != self.walk.n:
            raise InputError(
                f"resume: that run had a vector of {n} environments, not of {self.walk.n}; pass the same, or start a "
                "new run"
            )
        if min(seed, before, dropped, under_way) < 0:
            raise ValueError("the block is not one")
        self.watch.restore(state["outside"])
        self.marks.restore(state["marks"])
        self.rng, self.seed, self.before, self.dropped = restored(state["rng"]), seed, before, dropped
        self.handed = [float(total) for total in state["block_returns"]]
        self.earlier = [float(part) for part in state["earlier"]]
        if len(self.earlier) not in (0, 2):
            raise ValueError("the earlier block is not one")
        self._clear()
        self.made = under_way  # until they are repeated
        if len(self.handed) > self.size:
            raise ValueError("the block has too many episodes")
        self.walk.serve(None)
