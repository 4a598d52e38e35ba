"""Several agents side by side: rounds of episodes, each agent's in the order in which they begin.

*From one seed.* Where all agents have environments of their own, or functions, a round is the episodes of one seed
(`policytest.payoffs.pairs`).

*In order.* A vector of environments hands its episodes on in the order in which they began
(`policytest.payoffs.vector_returns`), one that ends early waiting for those before it. The k-th of each agent make the
k-th round, whatever their lengths: to take the episodes that are over first would prefer short ones, in each vector
differently.

- *With a seed for each episode* (`SyncVectorEnv`, `AsyncVectorEnv`, single environments): the k-th episode of each
  agent has the k-th seed, so that a round shares the luck of the environment.
- *Otherwise* a vector is seeded once, and a row goes on with the random numbers that earlier episodes have left. Its
  episodes are independent of those of other agents: a comparison is as valid, and takes more rounds.

*Validity.* Let H_k be all that the first k episodes of each agent have used of random numbers. The seed of the k-th
episode is drawn independently of H_(k-1), and so is everything else that it uses: the numbers of agents, and those of
rows that are seeded once, come from generators that no two agents share. So each return of round k has its mean given
H_(k-1), on which all bets rest. With one seed for the rows of two vectors that are seeded once, this would be
false: the k-th episode of A would use random numbers that an earlier, longer episode of B has shown.
"""

from __future__ import annotations

import copy
import math
from collections import deque
from collections.abc import Callable, Sequence

import numpy as np

from policytest._base.arrays import Arrays
from policytest._base.errors import InputError
from policytest._base.record import part_of, record
from policytest.data.episodes import Episodes
from policytest.data.randomness import Seed, generator
from policytest.data.vector_walks import VectorWalk
from policytest.payoffs.outcomes import NO_OUTCOMES, EpisodeSupply, Outcomes
from policytest.payoffs.pairs import PairedEpisodes, TogetherEpisodes, difference_bounds
from policytest.payoffs.parallel_returns import in_processes
from policytest.payoffs.returns import DrawnEpisodes, Episode, WholeEpisodes
from policytest.payoffs.rounds import Round, RoundSupply
from policytest.payoffs.vector_returns import VectoredEpisodes

SHARED_BLOCK = 4
"""Episodes of each row before another agent has its turn with a vector that agents share."""


def takes_seeds(agents: Sequence[Episodes]) -> bool:
    """Whether each episode of each of these agents can have a seed of its own."""
    return all(one.walk.is_plain for one in agents if isinstance(one.walk, VectorWalk))


def _has_vectors(agents: Sequence[Episodes]) -> bool:
    return any(isinstance(one.walk, VectorWalk) for one in agents)


def pairs_of(a: Episodes, b: Episodes, rng: Seed) -> EpisodeSupply:
    """The differences of two agents."""
    return PairsInOrder(a, b, rng) if _has_vectors((a, b)) else DrawnEpisodes(PairedEpisodes(a, b), rng)


def rounds_of(agents: Sequence[Episodes], rng: Seed) -> RoundsFromSeeds | RoundsInOrder:
    """The rounds of several agents."""
    return RoundsInOrder(agents, rng) if _has_vectors(agents) else RoundsFromSeeds(agents, rng)


# ---------------------------------------------------------------- from one seed


class RoundsFromSeeds(RoundSupply):
    """Each seed is used for an episode of each agent."""

    def __init__(self, agents: Sequence[Episodes], rng: Seed) -> None:
        self.player = TogetherEpisodes(*agents)
        self.drawn = DrawnEpisodes(self.player, rng)
        self.bounds = [one.bounds for one in agents]

    def work_in_parallel(self, workers: int) -> None:
        """Have so many rounds under way in as many processes; which agents play is decided when a round begins."""
        self.drawn = in_processes(self.drawn, workers)

    def take(self, agents: Sequence[int], most: int) -> Round | None:
        """The episodes of the next seed; None if it is given up."""
        self.player.ask(tuple(agents))
        if self.rounds_left < math.inf:
            self.drawn.expect(int(self.rounds_left))
        self.drawing = True
        try:
            played: list[Episode | None] | None = self.drawn.next(most)
        finally:
            self.drawing = False
        return None if played is None else _round_of(played)

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Give up the round at hand where this is true."""
        self.drawn.stop_when(stopped)

    @property
    def extra(self) -> int:
        """The transitions of a round that was given up, and of those under way at the end."""
        return self.drawn.extra

    def wait(self) -> None:
        """Wait for the rounds that have begun."""
        self.drawn.wait()

    def close(self) -> None:
        """End processes."""
        self.drawn.close()


def _round_of(played: list[Episode | None]) -> Round:
    """The episodes as a round."""
    none = Episode(np.nan, 0)
    total, steps, unseen = zip(*(episode or none for episode in played), strict=True)
    middle, rest = np.array(total, dtype=np.float64), np.array(unseen, dtype=np.float64)
    return Round(middle + rest[:, 0], middle + rest[:, 1], middle, np.array(steps, dtype=np.int64))


# ---------------------------------------------------------------- in order


class InOrder:
    """One supply for each agent, of which the k-th episodes belong together."""

    def __init__(self, agents: Sequence[Episodes], rng: Seed) -> None:
        base = generator(rng)
        seeds, *own = (np.random.default_rng(base.integers(2**63, size=4)) for _ in range(len(agents) + 1))
        walks = [one.walk if isinstance(one.walk, VectorWalk) else None for one in agents]
        self.supplies: list[EpisodeSupply] = []
        for i, (one, walk, alone) in enumerate(zip(agents, walks, own, strict=True)):
            common = copy.deepcopy(seeds)
            if walk is None:
                self.supplies.append(DrawnEpisodes(WholeEpisodes(one), common))
                continue
            same = [j for j, other in enumerate(walks) if other is not None and other.is_of(walk)]
            walk.share_with(walks[same[0]] or walk)
            block = SHARED_BLOCK if len(same) > 1 else None
            given = common if walk.is_plain else None
            self.supplies.append(VectoredEpisodes(one, walk, alone, given, block, ahead=i < same[-1]))
        # a single environment comes last: what it has run cannot be put back
        self.order = sorted(range(len(agents)), key=lambda i: walks[i] is None)

    @property
    def extra(self) -> int:
        """The transitions of episodes that were not handed on."""
        return sum(supply.extra for supply in self.supplies)

    def take(self, agents: Sequence[int], most: int) -> dict[int, Outcomes]:
        """As many episodes of each of these agents; none where one of them has none yet."""
        found, before = dict[int, Outcomes](), self.extra
        for i in (i for i in self.order if i in agents):
            used = self.extra - before + sum(int(taken.steps.sum()) for taken in found.values())
            taken = self.supplies[i].take(max(most - used, 1))
            if not len(taken.returns):
                found[i] = NO_OUTCOMES
                break
            found[i] = taken
        fewest = min(len(taken.returns) for taken in found.values())
        for i, taken in found.items():
            if len(taken.returns) > fewest:
                self.supplies[i].put_back(len(taken.returns) - fewest)
        return {i: found[i].part(0, fewest) for i in agents} if fewest else {}

    def put_back(self, rounds: int) -> None:
        """The last episodes of all are the next."""
        for supply in self.supplies:
            supply.put_back(rounds)


class PairsInOrder(EpisodeSupply):
    """The differences of two agents, the k-th episode of A with the k-th of B."""

    def __init__(self, a: Episodes, b: Episodes, rng: Seed) -> None:
        self.both = InOrder((a, b), rng)
        self.low, self.high = difference_bounds(a, b)

    def take(self, most: int) -> Outcomes:
        """The next pairs."""
        self.drawing = True
        try:
            found = self.both.take((0, 1), most)
        finally:
            self.drawing = False
        if not found:
            return NO_OUTCOMES
        a, b = found[0], found[1]
        return Outcomes(a.above - b.below, a.below - b.above, a.returns - b.returns, a.steps + b.steps)

    def put_back(self, episodes: int) -> None:
        """The last pairs are the next."""
        self.both.put_back(episodes)

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Give up the episodes at hand where this is true."""
        for supply in self.both.supplies:
            supply.stop_when(stopped)

    @property
    def extra(self) -> int:
        """The transitions of episodes that were not handed on."""
        return self.both.extra

    def close(self) -> None:
        """Nothing more is taken for now."""
        for supply in self.both.supplies:
            supply.close()

    def repeat(self) -> None:
        """Both repeat their latest episodes."""
        for supply in self.both.supplies:
            supply.repeat()

    def state(self) -> Arrays:
        """Both, as arrays."""
        first, second = (supply.state() for supply in self.both.supplies)
        return record(a=first, b=second)

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state."""
        for name, supply in zip("ab", self.both.supplies, strict=True):
            if not (kept := part_of(state, name)):
                raise InputError("resume: that run had no vector of environments; pass the same, or start a new run")
            supply.restore(kept)


class RoundsInOrder(RoundSupply):
    """The k-th episodes of several agents."""

    def __init__(self, agents: Sequence[Episodes], rng: Seed) -> None:
        self.all, self.waiting = InOrder(agents, rng), deque[Round]()
        self.bounds = [one.bounds for one in agents]

    def work_in_parallel(self, workers: int) -> None:
        """Refused."""
        for supply in self.all.supplies:
            in_processes(supply, workers)

    def take(self, agents: Sequence[int], most: int) -> Round | None:
        """The next episode of each."""
        if not self.waiting:
            self.drawing = True
            try:
                found = self.all.take(agents, most)
            finally:
                self.drawing = False
            self.waiting.extend(_rounds_of(found, len(self.bounds)))
        return self.waiting.popleft() if self.waiting else None

    def stop_when(self, stopped: Callable[[], bool]) -> None:
        """Give up the episodes at hand where this is true."""
        for supply in self.all.supplies:
            supply.stop_when(stopped)

    @property
    def extra(self) -> int:
        """The transitions of episodes that were not handed on."""
        return self.all.extra + sum(int(one.steps.sum()) for one in self.waiting)


def _rounds_of(found: dict[int, Outcomes], agents: int) -> list[Round]:
    """One round for each episode."""
    if not found:
        return []
    n = len(next(iter(found.values())).returns)
    low, high, returns = (np.full((n, agents), np.nan) for _ in range(3))
    steps = np.zeros((n, agents), dtype=np.int64)
    for i, taken in found.items():
        low[:, i], high[:, i], returns[:, i], steps[:, i] = taken
    return list(map(Round, low, high, returns, steps))
