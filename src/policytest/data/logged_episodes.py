r"""Recorded episodes: of the policy itself, or of another policy whose propensities were logged. No table.

    log = LoggedEpisodes(episode, reward, propensity, target, horizon=20, reward_range=(0, 1))
    assess(log, threshold=12)

The value is that of the *target* policy: the mean of G = r_0 + gamma r_1 + ... of its episodes. Where another policy mu
drew the actions, w_t = prod over u <= t of pi(a_u|s_u)/mu(a_u|s_u) turns means: E_mu[w_t X] = E_pi[X] for every X that
is known after step t, whatever the states are and whether or not they are Markov. Without propensities w_t = 1.

*The outcome of an episode, and its bound.* Let C_t be the discounted rewards up to and with step t, and

    L_t = max(floor, C_t + min(lo, 0) (gamma^(t+1) + ... + gamma^(H-1))),

the least return that an episode can still have after step t: rewards are at least lo, an episode that has ended earns
0, and returns are at least ``floor`` where ``return_range`` says so. Before the first step L_{-1} = low, with lo in
place of min(lo, 0) for step 0, which every episode has. L_t never falls; after the last step it is raised to G:

    Z = low + w_0 (L_0 - L_{-1}) + ... + w_T (L_T - L_{T-1}) + w_T (G - L_T).

(The last term: the steps from the end to the horizon earn 0, with the last weight, whose conditional mean is itself.)

*The mean of Z is V:* each increment is known after its step, so that E_mu[w_t (L_t - L_{t-1})] = E_pi[L_t - L_{t-1}],
and under pi the increments add up to G - low. *Z >= low:* weights and increments are not negative. So
1 + f (Z - R)/(R - low) is a bet that cannot lose more than its stake, with no bound on the weights. For the other side
the same holds of the largest return that an episode can still have, which never rises: Z' = high - ... <= high.

Without a ``return_range`` the increments are gamma^t (r_t - lo): these are the weighted sums of Karampatziakis, Mineiro
and Ramdas (2021); horizon 1 is the contextual bandit. Without weights Z = Z' = G.

*What is assumed* is listed in `LoggedEpisodes.assumptions`. A propensity is the probability with which the logged
action was drawn, fixed before it was drawn. The logging policy may adapt: to the earlier steps of an episode, and to
earlier episodes; in that case episodes must not overlap in time.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from functools import cached_property
from typing import ClassVar, NamedTuple, cast

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import AnyArray, AsArray, BoolArray, FloatArray, IntArray
from policytest._base.compiled.weights import Scale, weigh_episodes
from policytest._base.errors import AssumptionWarning, InputError
from policytest._base.text import number, plural
from policytest.data.episodes import EPISODES_ARE_INDEPENDENT, WIDEN, geometric
from policytest.data.ranges import (
    NO_RANGE,
    REFUSE,
    ROUNDING,
    WARN,
    GivenRange,
    Range,
    ends_of,
    has_no_end,
    outside,
    outside_words,
    range_words,
)

ON_PROPENSITIES = (
    EPISODES_ARE_INDEPENDENT,
    "each propensity is the probability with which its action was drawn, fixed before the draw (the logging policy may "
    "adapt to the past)",
    "every action that the target policy may take had a positive propensity",
)
ON_SMALLEST = "no action, logged or not, had a propensity below {bound}, which was known before the data"
ON_CRITICS = "v is the mean of q under the target policy, and both were fixed before the episode"
CUT = "an episode counts up to its first {steps}, where it was cut"
LONGER = "fix the episode ids, pass a longer horizon, or drop the rows after it with cut=True"
ROUNDED = 1e-6  # of a propensity: how far one may be off in a column of 32 bits
NOT_ITS_OWN = "without propensities they are read as episodes of this policy, and they are of another one"
WEIGH_OR_NOT = 'weigh them with columns={"propensity": ...}, or ask a Markov table instead'
FINITE, SHARE = "every entry must be a finite number", "pass a probability above 0, at most 1"
COLUMNS: dict[str, tuple[Callable[[FloatArray], BoolArray], str]] = {
    "reward": (np.isfinite, FINITE),
    "propensity": (
        lambda mu: (mu > 0) & (mu <= 1),
        "an action that was drawn had a probability above 0, at most 1; log the one with which it was drawn",
    ),
    "target": (lambda pi: (pi >= 0) & (pi <= 1), "pass the probability of the logged action, from 0 to 1"),
    "q": (np.isfinite, FINITE),
    "v": (np.isfinite, FINITE),
    "smallest_propensity": (lambda mu: (mu > 0) & (mu <= 1), SHARE),
}
"""The columns of numbers, what each entry must be, and the remedy."""


class WeighedEpisodes(NamedTuple):
    """Of each episode: the outcomes of both sides, the return, and the weight at its end.

    ``plain``: the sum of w_t gamma^t r_t, where neither side has a bound.
    """

    above: FloatArray
    below: FloatArray
    returns: FloatArray
    weights: FloatArray
    plain: FloatArray | None = None

    @property
    def estimates(self) -> FloatArray:
        """Unbiased estimates of V: the mean of both sides, or the one side that has a bound."""
        if self.plain is not None:
            return self.plain
        above, below = (not np.isnan(side).any() for side in (self.above, self.below))
        return np.asarray(0.5 * (self.above + self.below)) if above and below else self.above if above else self.below


@dataclass(frozen=True, eq=False, repr=False)
class LoggedEpisodes:
    """Recorded episodes, row by row: each column has one entry a row, the rows of an episode in their order.

    Parameters
    ----------
    episode
        The id of each row's episode: numbers, text or anything hashable. Rows of an episode need not be adjacent.
        None: each row is an episode, as in a contextual bandit; the horizon is then 1. Episodes come in the order of
        their first rows, and must be complete.
    reward
        The reward of each row.
    propensity, target
        The probability of the logged action, fixed before it was drawn: under the policy that was at work, mu(a|s),
        and under the policy that is asked about, pi(a|s). Without them the question is about the policy at work.
    discount, horizon
        gamma in [0, 1], and the largest number of steps of an episode (None: no limit).
    reward_range, return_range
        (low, high) of each reward, and of the return of an episode; at least one of them. None or an
        infinity is an end that is not known: the side that needs it is then not tested. Every reward and every return
        is checked.
    q, v
        For doubly robust outcomes: estimates of the return from this row on, fixed before the episode. q of the logged
        action, v the mean of q under the target policy: v = sum over a of pi(a|s) q(s,a). They need
        ``smallest_propensity``, a finite ``reward_range``, and a horizon or a discount below 1.
    smallest_propensity
        A lower bound of the propensities of all actions, also of those that were never drawn: one number, or one a row.
        It must be known before the data: the smallest propensity in the log is not such a bound, since an action that
        was never drawn may have had a smaller one. A bound that the log contradicts is refused.
    rows
        Where each entry of ``reward`` is the return of an episode that was added up elsewhere: its number of rows. Only
        the returns are then checked.
    on_range
        What becomes of a reward, or a return, outside its declared range: "refuse", an error; or "warn": it counts as
        the nearest end of the range, and nothing is certified.
    cut
        Drop the rows of an episode after ``horizon`` of them: the value is that of its first steps. Otherwise longer
        episodes are refused.

    >>> import policytest as pt
    >>> log = pt.LoggedEpisodes(None, [1, 0, 1], [0.5, 0.25, 0.5], [0.9, 0.05, 0.9], reward_range=(0, 1))
    >>> log.n_episodes, log.outcomes.above.tolist(), log.outcomes.below.tolist()
    (3, [1.8, 0.0, 1.8], [1.0, 0.8, 1.0])
    """

    episode: AsArray
    reward: AsArray
    propensity: AsArray = None
    target: AsArray = None
    discount: float = 1.0
    horizon: int | None = None
    reward_range: GivenRange = None
    return_range: GivenRange = None
    q: AsArray = None
    v: AsArray = None
    smallest_propensity: AsArray = None
    rows: AsArray = None
    on_range: str = REFUSE
    cut: bool = False
    start: IntArray = field(init=False)  # [n + 1] the rows of episode i are start[i] .. start[i + 1] - 1
    outside: tuple[str, ...] = field(init=False)  # which reward, or return, was outside its range, in words
    agent_policy: ClassVar[str] = ""
    states: None = field(default=None, init=False)
    actions: None = field(default=None, init=False)

    def __post_init__(self) -> None:
        """Check every column, and put the rows of each episode together."""
        discount = arrays.share("discount", self.discount)
        n = arrays.numbers("reward", self.reward).size
        if not n:
            raise InputError("reward has no entries; pass a row for each step of an episode")
        grouped = Grouped.of(self.episode, n)
        keep: dict[str, object] = {"discount": discount, "horizon": self._checked_horizon(), "start": grouped.start}
        keep |= {name: ends_of(name, getattr(self, name)) for name in ("reward_range", "return_range")}
        keep |= {name: self._checked_column(name, grouped) for name in COLUMNS}
        keep |= {"rows": self._checked_rows(n), "episode": grouped.ids}
        arrays.one_of("on_range", self.on_range, (REFUSE, WARN))
        for name, value in (keep | {"outside": ()}).items():
            object.__setattr__(self, name, value)
        self._check_together()
        if arrays.flag("cut", self.cut):
            grouped = self._cut_off(grouped)
        self._check_episodes(grouped)
        if self.smallest_propensity is not None:
            for wrong, rule in against_smallest(self.propensity, self.target, self.smallest_propensity):
                grouped.refuse(wrong, "propensity", self.propensity, rule)
        if self.q is not None:
            self._check_critics(grouped)

    # ------------------------------------------------------------ what it is about

    @property
    def weighted(self) -> bool:
        """Whether another policy was at work."""
        return self.propensity is not None

    @property
    def name(self) -> str:
        """What its episodes are of."""
        return "the log"

    @property
    def n_episodes(self) -> int:
        """The number of episodes."""
        return len(self.start) - 1

    @property
    def steps(self) -> IntArray:
        """[n] the rows of each episode."""
        return np.diff(self.start) if self.rows is None else self.rows

    def __len__(self) -> int:
        return int(self.steps.sum())

    def __repr__(self) -> str:
        by = "with propensities" if self.weighted else "of the policy itself"
        return f"LoggedEpisodes({self.n_episodes:,} episodes {by}, {len(self):,} rows)"

    @property
    def known_rewards(self) -> Range | None:
        """The range of rewards, with infinities for ends that are not known."""
        return cast("Range | None", self.reward_range)

    @property
    def known_returns(self) -> Range | None:
        """The range of returns, likewise."""
        return cast("Range | None", self.return_range)

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What a guarantee rests on."""
        if not self.weighted:
            return (EPISODES_ARE_INDEPENDENT, *self.declared)
        return ON_PROPENSITIES + self._on_smallest + (() if self.q is None else (ON_CRITICS,)) + self.declared

    @property
    def declared(self) -> tuple[str, ...]:
        """The ranges that are taken at their word, and where episodes were cut."""
        given = (("rewards", self.known_rewards), ("returns", self.known_returns))
        found = tuple(range_words(what, ends) for what, ends in given if ends is not None and ends != NO_RANGE)
        cut = (CUT.format(steps=plural(self.horizon, "step")),) if self.cut and self.horizon is not None else ()
        return cut + found

    @property
    def _on_smallest(self) -> tuple[str, ...]:
        """The assumption about propensities that are not in the log."""
        if self.smallest_propensity is None:
            return ()
        least, most = float(self.smallest_propensity.min()), float(self.smallest_propensity.max())
        return (ON_SMALLEST.format(bound=number(least) if least == most else "the smallest_propensity of its row"),)

    @cached_property
    def scale(self) -> Scale:
        """What outcomes are measured by."""
        return scale_of(self.discount, self.horizon, self.known_rewards, self.known_returns)

    @property
    def bounds(self) -> Range:
        """(low, high): where the return of an episode lies."""
        return self.scale.low, self.scale.high

    @cached_property
    def ratio(self) -> FloatArray:
        """pi/mu of each row; empty where there are no propensities."""
        return np.asarray(self.target / self.propensity) if self.weighted else np.zeros(0)

    @cached_property
    def largest_inverse(self) -> FloatArray:
        """1/(smallest propensity) of each row, at least that of each logged action: bounds may be off by rounding."""
        return np.asarray((1.0 + ROUNDED) / self.smallest_propensity)

    @cached_property
    def outcomes(self) -> WeighedEpisodes:
        """The outcomes of all episodes; nan on a side that has no bound."""
        found = weigh_episodes(self.start, self.reward, self.ratio, self.scale)
        for side, end in enumerate(self.bounds):
            if not math.isfinite(end):
                found[side] = np.nan
            elif self.outside:  # a return beyond its range counts as the end of it
                found[side] = np.maximum(found[side], end) if side == 0 else np.minimum(found[side], end)
        return WeighedEpisodes(*found)._replace(plain=self._plain() if has_no_end(self.bounds) else None)

    def _plain(self) -> FloatArray:
        """The sum of w_t gamma^t r_t of each episode, step by step."""
        total, weight = np.zeros(self.n_episodes), np.ones(self.n_episodes)
        lengths = np.diff(self.start)
        for t in range(int(lengths.max())):
            here = np.flatnonzero(lengths > t)
            rows = self.start[here] + t
            if self.weighted:
                weight[here] *= self.ratio[rows]
            total[here] += self.discount**t * weight[here] * self.reward[rows]
        return total

    def still_possible(self) -> tuple[FloatArray, FloatArray]:
        """What an episode can earn from each row on, in units of that row: at least, and at most."""
        assert self.known_rewards is not None
        t = np.arange(len(self.reward)) - np.repeat(self.start[:-1], np.diff(self.start))
        left = self._left(t.astype(np.float64))
        lo, hi = self.known_rewards
        least, most = min(lo, 0.0), max(hi, 0.0)
        low = np.where(t == 0, lo, least) + (least * left if least else 0.0)
        high = np.where(t == 0, hi, most) + (most * left if most else 0.0)
        return low, high

    def _left(self, t: FloatArray) -> FloatArray:
        """gamma + ... + gamma^(H-1-t): what the steps after step t count, from there."""
        if self.horizon is None:
            return np.full(len(t), geometric(self.discount, None) - 1.0)
        steps = self.horizon - 1.0 - t
        return steps if self.discount == 1.0 else self.discount * (1.0 - self.discount**steps) / (1.0 - self.discount)

    # ------------------------------------------------------------ checks

    def _checked_horizon(self) -> int | None:
        if self.episode is None and self.rows is None:
            if self.horizon not in (None, 1):
                raise InputError(f"horizon is {self.horizon!r}, and without episode each row is one; pass episode")
            return 1
        if self.horizon is None:
            return None
        arrays.positive(horizon=(horizon := arrays.whole_number("horizon", self.horizon)))
        return horizon

    def _checked_rows(self, n: int) -> IntArray | None:
        if self.rows is None:
            return None
        if self.episode is not None or self.propensity is not None:
            raise InputError("rows is for returns that were added up already, without episode and propensity; leave it")
        found = arrays.index_list("rows", self.rows)
        arrays.check_shape("rows", found.shape, (n,))
        return found

    def _checked_column(self, name: str, grouped: Grouped) -> FloatArray | None:
        """A column whose entries keep their rule, the rows of each episode together."""
        given = getattr(self, name)
        if given is None and name != "reward":
            return None
        n = int(grouped.start[-1])
        column = np.array(arrays.numbers(name, given), dtype=np.float64)
        if name == "smallest_propensity" and column.ndim == 0:
            column = np.full(n, float(column))
        if column.shape != (n,):
            raise InputError(f"{name} has shape {column.shape}, expected ({n},): one entry a row")
        column = column if grouped.order is None else column[grouped.order]
        right, rule = COLUMNS[name]
        grouped.refuse(~right(column), name, column, rule)
        return column

    def _check_together(self) -> None:
        """Propensities come with targets; critics with all that they need."""
        if (self.propensity is None) != (self.target is None):
            given, missing = ("target", "propensity") if self.propensity is None else ("propensity", "target")
            raise InputError(
                f"{given} is given, and {missing} is not; pass both, of the logged action: propensity mu(a|s) and "
                "target pi(a|s)"
            )
        if (self.q is None) != (self.v is None):
            raise InputError(f"{'v' if self.q is None else 'q'} is given alone; pass both q and v, or neither")
        if self.q is not None and (self.propensity is None or self.smallest_propensity is None):
            missing = "propensity and target" if self.propensity is None else "smallest_propensity"
            raise InputError(
                f"q and v need {missing}: q is subtracted with the weight of the action, which has a bound only where "
                "propensities have one; pass it, or leave out q and v"
            )
        if self.smallest_propensity is not None and self.propensity is None:
            raise InputError(
                "smallest_propensity is a bound of propensities, and the log has none; pass propensity and target, or "
                "leave it out"
            )

    def _check_episodes(self, grouped: Grouped) -> None:
        """Episodes of at most ``horizon`` rows; rewards and returns in their ranges; a bound on one side at least."""
        lengths = self.steps
        if self.horizon is not None and (at := arrays.first(lengths > self.horizon)) is not None:
            raise InputError(
                f"episode {grouped.name(at)} has {lengths[at]:,} rows, and the horizon is {self.horizon:,}; {LONGER}"
            )
        if self.known_rewards is not None and self.rows is None:
            wrong = outside(self.reward, self.known_rewards)
            if self.on_range == WARN and (at := arrays.first(wrong)) is not None:
                episode = grouped.name(int(np.searchsorted(self.start, at, side="right")) - 1)
                self._note(outside_words("reward", f"episode {episode}", self.reward[at], self.known_rewards))
            else:
                rule = f"it is outside reward_range ({{:g}}, {{:g}}); {WIDEN}"
                grouped.refuse(wrong, "reward", self.reward, rule, self.known_rewards)
            np.clip(self.reward, *self.known_rewards, out=self.reward)
        possible = self.known_returns if self.rows is None else self.bounds
        if possible is not None and (at := arrays.first(outside(self.outcomes.returns, possible))) is not None:
            where, total = f"episode {grouped.name(at)}", self.outcomes.returns[at]
            words = outside_words("return", where, total, possible)
            if not self.known_returns:
                words = words.replace("return_range", "what rewards in their range give,")
            if self.on_range == REFUSE:
                raise InputError(f"{words}; {WIDEN}")
            self._note(words)

    def _note(self, words: str) -> None:
        """Something was outside its range; the first is told."""
        if not self.outside:
            object.__setattr__(self, "outside", (words,))
            self.__dict__.pop("outcomes", None)  # they are kept in the range from now on
            warnings.warn(f"{words}: nothing that rests on this log is certified", AssumptionWarning, stacklevel=5)

    def _cut_off(self, grouped: Grouped) -> Grouped:
        """Drop the rows of each episode after the horizon."""
        if self.horizon is None or self.rows is not None:
            why = (
                "there is no horizon; pass one" if self.horizon is None else "returns were added up already; pass rows"
            )
            raise InputError(f"cut: {why}, or leave cut out")
        kept = np.arange(len(self.reward)) - np.repeat(self.start[:-1], np.diff(self.start)) < self.horizon
        start = np.concatenate([[0], np.cumsum(np.minimum(np.diff(self.start), self.horizon))])
        object.__setattr__(self, "start", start)
        for name in COLUMNS:
            if getattr(self, name) is not None:
                object.__setattr__(self, name, getattr(self, name)[kept])
        return Grouped(start, np.flatnonzero(kept) if grouped.order is None else grouped.order[kept], grouped.ids)

    def _check_critics(self, grouped: Grouped) -> None:
        """q and v between the ends of what can still be earned; pi q at most v, counted from either end.

        What is wrong by rounding is put right, so that the bound of outcomes is exact.
        """
        if self.known_rewards is None or not all(map(math.isfinite, self.reward_scale[-2:])):
            raise InputError(
                "q and v need a reward_range with two finite ends, and a horizon or a discount below 1; pass them"
            )
        low, high = self.still_possible()
        slack = ROUNDING * (1.0 + high - low)
        rule = "episodes cannot earn that from this row on; clip q to what they can, and take v as its mean under pi"
        for name in ("q", "v"):
            column = getattr(self, name)
            grouped.refuse((column < low - slack) | (column > high + slack), name, column, rule)
        rule = "it is not the mean of q under the target policy, of which q of the logged action has the share target"
        for q, v in ((self.q - low, self.v - low), (high - self.q, high - self.v)):
            grouped.refuse(self.target * q > v + slack, "v", self.v, f"{rule}; pass v = sum over a of pi(a|s) q(s,a)")
        np.clip(self.q, low, high, out=self.q)
        least, most = low + self.target * (self.q - low), high - self.target * (high - self.q)
        np.clip(self.v, least, np.maximum(least, most), out=self.v)

    @cached_property
    def reward_scale(self) -> Scale:
        """That of rewards alone, whatever is known of returns."""
        return scale_of(self.discount, self.horizon, self.known_rewards, None)


class Grouped(NamedTuple):
    """The rows of each episode together: ``order`` is None where they are already."""

    start: IntArray
    order: IntArray | None
    ids: AnyArray | None

    @classmethod
    def of(cls, episode: object, n: int) -> Grouped:
        """Group n rows by their ids; episodes come in the order of their first rows."""
        if episode is None:
            return cls(np.arange(n + 1), None, None)
        ids = arrays.any_array("episode", episode)
        if ids.ndim != 1 or len(ids) != n:
            raise InputError(f"episode has shape {ids.shape}, expected ({n},): one id a row, as in reward")
        if (at := arrays.first(_missing(ids))) is not None:
            raise InputError(f"episode[{at}] is missing; every row needs the id of its episode")
        heads = np.flatnonzero(np.concatenate([[True], ids[1:] != ids[:-1]]))
        codes = _codes(ids[heads])
        count, ends = int(codes.max()) + 1, np.append(heads, n)
        if count == len(heads):
            return cls(ends, None, ids[heads])
        of_row = np.repeat(codes, np.diff(ends))
        first = np.full(count, n)
        np.minimum.at(first, codes, heads)
        start = np.concatenate([[0], np.cumsum(np.bincount(of_row, minlength=count))])
        return cls(start, np.argsort(of_row, kind="stable"), ids[first])

    def name(self, i: int) -> str:
        """An episode in words."""
        return arrays.shown(i if self.ids is None else self.ids[i : i + 1].tolist()[0])

    def refuse(self, wrong: BoolArray, name: str, column: FloatArray, rule: str, about: Range = NO_RANGE) -> None:
        """Refuse the first wrong entry: its row as it was passed, its episode, and what to do."""
        if (at := arrays.first(wrong)) is None:
            return
        row = at if self.order is None else int(self.order[at])
        episode = int(np.searchsorted(self.start, at, side="right")) - 1
        where = "" if self.ids is None else f" (episode {self.name(episode)})"
        raise InputError(f"{name}[{row}]{where} is {column[at]:.9g}; {rule.format(*about)}")


def _missing(ids: AnyArray) -> BoolArray:
    if ids.dtype.kind in "fc":
        return np.asarray(np.isnan(ids))
    if ids.dtype.kind in "mM":
        return np.asarray(np.isnat(ids))
    found = (one is None or one != one for one in ids.tolist()) if ids.dtype.kind == "O" else ()
    return np.array([*found] or np.zeros(len(ids)), dtype=bool)


def _codes(ids: AnyArray) -> IntArray:
    """0, 1, ... for each id, in the order of their first appearance."""
    if ids.dtype.kind == "O":
        known: dict[Hashable, int] = {}
        try:
            return np.array([known.setdefault(one, len(known)) for one in ids.tolist()])
        except TypeError:
            raise InputError("episode has ids that are not hashable; pass numbers, text or tuples") from None
    _, first, codes = np.unique(ids, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first))[codes.ravel()])


def against_smallest(mu: FloatArray, pi: FloatArray, bound: FloatArray | float) -> list[tuple[BoolArray, str]]:
    """The rows that contradict a bound of all propensities, and what to say of them.

    The logged action had a smaller one; or it leaves at most 1 - mu, nothing if mu is 1, to every other action, and the
    target policy may take one of these.
    """
    remedy = "pass a bound that the logging policy kept to for every action, or leave smallest_propensity out"
    left = "it leaves less than smallest_propensity to the other actions, some of which the target policy takes"
    return [
        (mu < bound * (1.0 - ROUNDED), f"it is below smallest_propensity; {remedy}"),
        ((pi < 1.0 - ROUNDED) & (bound > 1.0 - mu + ROUNDED), f"{left}; {remedy}"),
    ]


def scale_of(discount: float, horizon: int | None, rewards: Range | None, returns: Range | None) -> Scale:
    """The least and the largest return, and what they follow from."""
    (least, most), (floor, ceiling) = rewards or NO_RANGE, returns or NO_RANGE
    later = geometric(discount, horizon) - 1.0
    low = max(floor, least + (least * later if least < 0 and later else 0.0))
    high = min(ceiling, most + (most * later if most > 0 and later else 0.0))
    if low > high:
        raise InputError(f"return_range is {returns}, which rewards in {rewards} cannot give; correct one of them")
    return Scale(discount, -1 if horizon is None else horizon, least, most, floor, ceiling, low, high)
