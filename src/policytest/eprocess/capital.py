r"""The e-process: capital that bets on outcomes make, and what it proves.

Outcomes Z have E[Z | past] = V and Z >= low. With x = (Z - R)/(R - low) >= -1, and fractions f in [0, 1] chosen
before Z,

    1 + f x  >=  1 - f     has mean at most 1 if V <= R.

*No upper bound is needed.* If Z is above R, 1 + f x is above 1, however large Z is; only a Z below R makes it less
than 1, and then by f at most. So with low known and high unknown the side "above" bets as it does anyway, on whatever
upper tail, and the side "below", for which -Z has no bound, stakes nothing: its room is infinite. Outcomes need not be
clipped either: for c >= R the capital with min(Z, c) is never larger than with Z. (It would be as valid, since
E[min(Z, c) | past] <= V for every c that is known before Z. Clipping from *below* raises the mean: it is no proof of
anything.) What a heavy tail spoils is only the guess of a good fraction, to which a fifth of the capital is staked; the
steady fractions are not guessed (`benchmarks/one_end.py` has what that costs).

So each product over outcomes, and their average with fixed shares, is a nonnegative supermartingale: by Ville's
inequality it ever reaches 1/delta with probability at most delta if V <= R. The other side bets on -Z.

*At the end of the range*, R = low, no bet is needed: all Z >= R, so that one Z > R refutes V <= R with certainty.

Outcomes are kept, by segments with the same bet: they serve any other threshold (`policytest.eprocess.interval`), and
a kept state is only believed if they make its capital.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from policytest._base.arrays import Arrays, FloatArray
from policytest._base.compiled.capital import settle_path
from policytest._base.record import numbers_of, part_of, record
from policytest.eprocess.interval import Score, Settled, ends
from policytest.eprocess.strategies import ENDS, NONE, FractionGrid, IntervalGrid, Strategy

SIDES = (1.0, -1.0)  # "above" and "below"
AGREES = 1e-9  # nats, between a capital that was kept and that of the outcomes
LARGEST_LOG = 700.0  # of a capital that is still a number
HOPELESS = -600.0  # nats: what has less than this share of the capital may be 0


class Bet(NamedTuple):
    """What is staked on the outcomes of a segment."""

    room: float  # R - low, what a full bet can lose
    fractions: FloatArray
    wide: FloatArray  # those of intervals

    def same_as(self, other: Bet) -> bool:
        """Whether the two stake the same."""
        parts = (self.fractions, other.fractions), (self.wide, other.wide)
        return self.room == other.room and all(np.array_equal(*part) for part in parts)

    def factors(self, won: float) -> FloatArray:
        """[F] what an outcome makes of the capital of each fraction."""
        return 1.0 + self.fractions * max(won / self.room, -1.0)


class BetSegment:
    """Consecutive outcomes with the same bet."""

    def __init__(self, bet: Bet, won: FloatArray) -> None:
        self.bet, self._won, self._size = bet, np.array(won, dtype=np.float64), len(won)

    def __len__(self) -> int:
        return self._size

    @property
    def won(self) -> FloatArray:
        """Z - R of its outcomes, of a side "below" R - Z."""
        return self._won[: self._size]

    def add(self, won: FloatArray) -> None:
        """More outcomes; the room for them doubles."""
        size = self._size + len(won)
        if size > len(self._won):
            self._won = np.append(self.won, np.empty(size))
        self._won[self._size : size], self._size = won, size


class EProcess:
    """The capital of the bets on one side, and the outcomes that it was made with.

    ``capital`` [F + 1] is that of `policytest._base.compiled.small`; compiled code may settle outcomes with it in
    place, which `keep` then remembers.
    """

    def __init__(
        self, shares: FloatArray, wide_shares: FloatArray, rounding: float = 0.0, score: Score | None = None
    ) -> None:
        self.shares, self.wide_shares, self.rounding, self.score = shares, wide_shares, rounding, score
        self.capital = np.append(shares, 0.0)
        self.segments: list[BetSegment] = []
        self.certain = False  # one outcome has refuted the end of the range

    @property
    def count(self) -> int:
        """How many outcomes were settled."""
        return sum(map(len, self.segments))

    def settle(self, bet: Bet, won: FloatArray, level: float = math.inf) -> tuple[float, int]:
        """Settle outcomes: the largest evidence after any of them; the first that reaches the level, or their number.

        Without a room that is finite nothing is staked, and nothing kept.
        """
        if not 0 < bet.room < math.inf:
            beyond = self._first_beyond(bet, won)
            self.certain = self.certain or beyond < len(won)
            return math.inf if beyond < len(won) else -math.inf, beyond
        _, largest, crossed = settle_path(self.capital, bet.fractions, self.scored(won), bet.room, level, False)
        self.keep(bet, won)
        return float(largest), int(crossed)

    def reach(self, bet: Bet, won: FloatArray, level: float) -> int:
        """How many of these outcomes there are up to the first that reaches the level; nothing is settled."""
        if not 0 < bet.room < math.inf:
            return min(self._first_beyond(bet, won) + 1, len(won))
        return int(settle_path(self.capital.copy(), bet.fractions, self.scored(won), bet.room, level, True)[0])

    def scored(self, won: FloatArray) -> FloatArray:
        """What bets are settled with: Z - R, or its score."""
        return won if self.score is None else self.score.of(won)

    def _first_beyond(self, bet: Bet, won: FloatArray) -> int:
        """The first outcome beyond the end of the range, up to rounding; their number where none is."""
        beyond = won > self.rounding
        return int(beyond.argmax()) if bet.room <= 0 and beyond.any() else len(won)

    def stake(self, bet: Bet, won: float) -> None:
        """Settle one outcome that compiled code left to us; `keep` remembers it."""
        settle_path(self.capital, bet.fractions, np.array([won]), bet.room, math.inf, False)

    def keep(self, bet: Bet, won: FloatArray) -> None:
        """These outcomes were settled."""
        if not len(won):
            return
        if self.segments and self.segments[-1].bet.same_as(bet):
            self.segments[-1].add(won)
        else:
            self.segments.append(BetSegment(bet, won))

    def evidence(self, bet: Bet | None = None, worst: float = 0.0) -> float:
        """The logarithm of the capital; with a bet, of what is left of it after one more outcome, ``worst``."""
        if self.certain:
            return math.inf
        return self.evidence_after(1.0 if bet is None else bet.factors(worst))

    def evidence_after(self, factors: FloatArray | float) -> float:
        """The same once the capital of each fraction is multiplied by these."""
        return math.inf if self.certain else float(np.log((self.capital[:-1] * factors).sum()) + self.capital[-1])

    @property
    def parts(self) -> FloatArray:
        """[F] the capital on each fraction."""
        return np.asarray(self.capital[:-1] * math.exp(min(self.capital[-1], LARGEST_LOG)))

    def settled(self, as_staked: bool, bet: Bet | None = None, worst: float = 0.0, along: bool = False) -> Settled:
        """The outcomes, to be settled against any threshold; with a bet, one more that is at worst this.

        ``as_staked``: with the fractions of the test, which at the tested threshold have its capital. Otherwise with
        those of intervals.
        """
        parts = [(segment.bet, segment.won) for segment in self.segments]
        if bet is not None:
            parts.append((bet, np.array([worst])))
        bets = [one for one, _ in parts]
        return Settled(
            np.concatenate([NONE, *(won for _, won in parts)]),
            np.array([one.room for one in bets]),
            np.array([len(won) for _, won in parts], dtype=np.int64),
            np.array([one.fractions if as_staked else one.wide for one in bets]),
            self.shares if as_staked else self.wide_shares,
            along,
            self.score,
        )

    # ------------------------------------------------------------ keeping

    def state(self) -> Arrays:
        """The capital and the outcomes, as arrays."""
        bets = [segment.bet for segment in self.segments]
        return {
            "capital": self.capital.copy(),
            "won": np.concatenate([NONE, *(segment.won for segment in self.segments)]),
            "lengths": np.array([len(segment) for segment in self.segments], dtype=np.float64),
            "bets": self.as_rows(bets),
            "certain": np.array([self.certain]),
        }

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state; capital that the outcomes do not make is refused."""
        won, lengths = numbers_of(state, "won", None), numbers_of(state, "lengths", None).astype(np.int64)
        bets = self.of_rows(state["bets"])
        settled = (lengths > 0).all() and all(0 < bet.room < math.inf for bet in bets)
        if not settled or lengths.sum() != len(won):
            raise ValueError("the outcomes are not those of the bets")
        again = EProcess(self.shares, self.wide_shares, score=self.score)
        for bet, part in zip(bets, np.split(won, np.cumsum(lengths)[:-1]) if len(lengths) else [], strict=True):
            again.settle(bet, part)
        kept = numbers_of(state, "capital", len(self.capital))
        if not _agree(kept, again.capital):
            raise ValueError("the capital is not that of the outcomes")
        self.capital, self.segments, self.certain = kept, again.segments, bool(state["certain"][0])

    def as_rows(self, bets: list[Bet]) -> FloatArray:
        """[n, 1 + F + W] bets, for a kept state."""
        width = 1 + len(self.shares) + len(self.wide_shares)
        return np.array([[bet.room, *bet.fractions, *bet.wide] for bet in bets]).reshape(-1, width)

    def of_rows(self, rows: FloatArray) -> list[Bet]:
        """The bets of a kept state; what cannot be one is refused."""
        F, found = len(self.shares), np.array(rows, dtype=np.float64)
        staked = found[:, 1:]
        if found.shape[1] != 1 + F + len(self.wide_shares) or not ((staked >= 0) & (staked < 1)).all():
            raise ValueError("the bets are not fractions")
        return [Bet(float(room), rest[:F], rest[F:]) for room, rest in zip(found[:, 0], staked, strict=True)]


def _agree(first: FloatArray, second: FloatArray) -> bool:
    """Whether two capitals are the same up to rounding, but for what is hopeless."""
    if (first[:-1] < 0).any():
        return False
    with np.errstate(divide="ignore"):
        logs = [np.log(one[:-1]) + one[-1] for one in (first, second)]
    matter = np.maximum(*logs) > logs[1].max() + HOPELESS
    kept, made = logs[0][matter], logs[1][matter]
    return bool((np.abs(kept - made) <= AGREES * (1.0 + np.abs(made))).all())


class TwoSided:
    """The e-processes of both sides of one question: against "V <= R", and against "V >= R"."""

    def __init__(
        self,
        strategy: Strategy,
        wide: FractionGrid | IntervalGrid = ENDS,
        rounding: float = 0.0,
        score: Score | None = None,
    ) -> None:
        shares = np.exp(strategy.log_weights), np.exp(wide.log_weights)
        self.above, self.below = (EProcess(*shares, rounding, score) for _ in SIDES)

    def __getitem__(self, sign: float) -> EProcess:
        return self.above if sign > 0 else self.below

    def __iter__(self) -> Iterator[EProcess]:
        return iter((self.above, self.below))

    @property
    def count(self) -> int:
        """How many outcomes were settled on either side."""
        return self.above.count + self.below.count

    def evidence(self) -> tuple[float, float]:
        """The logarithm of the capital of each side."""
        return self.above.evidence(), self.below.evidence()

    def not_refuted(
        self, span: tuple[float, float], threshold: float, level: float, as_staked: bool
    ) -> tuple[float, float]:
        """The values in this range that neither side refutes at this level."""
        above, below = (side.settled(as_staked) for side in self)
        return ends(above, below, span, threshold, level)

    def state(self) -> Arrays:
        """Both, as arrays."""
        return record(above=self.above.state(), below=self.below.state())

    def restore(self, state: Arrays) -> None:
        """Go on from a kept state; see `EProcess.restore`."""
        self.above.restore(part_of(state, "above"))
        self.below.restore(part_of(state, "below"))


def with_rounding_margin(level: float) -> float:
    """A little more than a level: what reaches it in compiled code reaches the level, however it is added up."""
    return level + 1e-12 * (1.0 + abs(level))
