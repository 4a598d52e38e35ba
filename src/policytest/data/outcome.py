"""What counts of an episode where that is not its return: a success, a partial credit, a return of at least 200.

An outcome is a function ``f(rewards, info)`` of all rewards of an episode and of the info dictionary of its last step.
It stands where the return stood: its mean is the value, and its range is the range of bets. So an indicator needs no
bound on rewards: its range is (0, 1), and its mean is a probability. Of the indicator of ``G >= c`` it is P(G >= c),
which is at least 1/2 if, and only if, a median of G is at least c.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from policytest._base import arrays
from policytest._base.arrays import FloatArray
from policytest._base.errors import InputError

INDICATOR = (0.0, 1.0)
AT_LEAST, AT_MOST = "at least", "at most"
SPOKEN = re.compile(rf"({AT_LEAST}|{AT_MOST})\s+(\S+)")
LIKE_A_LEVEL = re.compile(r"\s*(at\s|[<>=≤≥])", re.IGNORECASE)  # meant as one, and not a key
MOST_KEYS = 12  # of an info dictionary that are listed
EXAMPLE = 'pass a function of (rewards, info), pt.at_least(200), or a key of the info of the last step: "is_success"'


class EpisodeOutcome(Protocol):
    """A number of an episode, and the words for it."""

    @property
    def name(self) -> str:
        """What is asked about: its mean, or the probability that it stands for."""

    @property
    def words(self) -> str:
        """What it is, in a sentence that begins with "its outcome is"."""

    @property
    def range(self) -> tuple[float, float] | None:
        """Where it lies, if that is known."""

    def __call__(self, rewards: FloatArray, info: Mapping[str, Any]) -> object:
        """The number."""


@dataclass(frozen=True, repr=False)
class ReturnBeyond:
    """1 if the sum of the rewards is at least, or at most, ``level``, else 0. Made by `at_least` and `at_most`."""

    level: float
    side: str = AT_LEAST

    def __repr__(self) -> str:
        return f"{self.side.replace(' ', '_')}({self.level:.12g})"

    @property
    def name(self) -> str:
        """The probability."""
        return f"probability that the return is {self._condition}"

    @property
    def words(self) -> str:
        """When it is 1."""
        return f"1 if the sum of its rewards is {self._condition}, else 0"

    @property
    def range(self) -> tuple[float, float]:
        """That of an indicator."""
        return INDICATOR

    @property
    def _condition(self) -> str:
        return f"{self.side} {self.level:,.12g}"

    def __call__(self, rewards: FloatArray, info: object = None) -> float:
        """Of an episode. The sum is rounded once, so that a thousand times 0.3 is 300."""
        total = math.fsum(rewards)
        return float(total >= self.level if self.side == AT_LEAST else total <= self.level)


def at_least(level: float) -> ReturnBeyond:
    """Whether the return of an episode is at least ``level``: an outcome of `Episodes`.

    The threshold is then a probability, from 0 to 1, and no range of rewards or returns needs to be declared.

    >>> at_least(200)([120.0, 80.0]), at_least(200)([199.0])
    (1.0, 0.0)
    """
    return ReturnBeyond(arrays.real_number("level", level))


def at_most(level: float) -> ReturnBeyond:
    """Whether the return of an episode is at most ``level``: an outcome of `Episodes`.

    >>> at_most(10)([3.0, 4.0])
    1.0
    """
    return ReturnBeyond(arrays.real_number("level", level), AT_MOST)


@dataclass(frozen=True)
class InInfo:
    """What the info dictionary of the last step says under a key: a truth value, or a number."""

    key: str

    @property
    def name(self) -> str:
        """Its mean."""
        return f"mean {self.key}"

    @property
    def words(self) -> str:
        """Where it is found."""
        return f"{self.key} in the info of its last step"

    @property
    def range(self) -> tuple[float, float]:
        """That of a success, or of a partial credit."""
        return INDICATOR

    def __call__(self, rewards: FloatArray, info: Mapping[str, Any]) -> object:
        """Of an episode; a key that is missing is refused, since it may be misspelt."""
        if not isinstance(info, Mapping):
            raise InputError(f"outcome: the info of the last step is {arrays.shown(info)}; it must be a dictionary")
        if self.key not in info:
            keys = ", ".join(arrays.shown(key) for key in list(info)[:MOST_KEYS])
            there = f"its keys are {keys}{' ...' if len(info) > MOST_KEYS else ''}" if keys else "it is empty"
            raise InputError(
                f"outcome: the info of the last step of an episode has no key {arrays.shown(self.key)}; {there}: name "
                "one that every episode ends with, or pass a function of (rewards, info)"
            )
        return info[self.key]


@dataclass(frozen=True)
class ByFunction:
    """What a function of (rewards, info) returns; it may say its own ``name``, ``words`` and ``range``."""

    function: Callable[[FloatArray, Mapping[str, Any]], object]

    @property
    def name(self) -> str:
        """Its mean."""
        own = getattr(self.function, "name", None)
        return own if isinstance(own, str) else f"mean {self._called or 'outcome'}"

    @property
    def words(self) -> str:
        """Which function it is."""
        own = getattr(self.function, "words", None)
        return own if isinstance(own, str) else f"what {self._called or 'the function'} says of its rewards and info"

    @property
    def range(self) -> tuple[float, float] | None:
        """As far as it says."""
        return getattr(self.function, "range", None)

    @property
    def _called(self) -> str:
        """The name of the function; "" of one without a name."""
        found = str(getattr(self.function, "__name__", type(self.function).__name__))
        return found if found.isidentifier() and found != "partial" else ""

    def __call__(self, rewards: FloatArray, info: Mapping[str, Any]) -> object:
        """Of an episode."""
        return self.function(rewards, info)


def episode_outcome(given: object) -> EpisodeOutcome | None:
    """The outcome that is meant: a function, the key of an info dictionary, or "at least 200"; None without one.

    >>> episode_outcome("at least 200"), episode_outcome("is_success")
    (at_least(200), InInfo(key='is_success'))
    """
    if given is None or isinstance(given, ReturnBeyond):
        return given
    if isinstance(given, str):
        return _spoken(given)
    if isinstance(given, type) or not callable(given):
        raise InputError(f"outcome is {arrays.shown(given)}; {EXAMPLE}")
    try:
        inspect.signature(given).bind(None, None)
    except ValueError:  # built-in: it does not say
        pass
    except TypeError:
        said = arrays.shown(given)
        raise InputError(f"outcome is called with (rewards, info), and {said} does not take both; {EXAMPLE}") from None
    return ByFunction(given)


def _spoken(text: str) -> EpisodeOutcome:
    """Words of a command or a file."""
    if (found := SPOKEN.fullmatch(text.strip())) is not None:
        side, level = found.groups()
        try:
            return ReturnBeyond(arrays.real_number("outcome", float(level)), side)
        except ValueError:
            raise InputError(f'outcome is {text!r}; pass a number after "{side}", such as "{side} 200"') from None
    if not text.strip() or LIKE_A_LEVEL.match(text) or _is_number(text):
        raise InputError(f'outcome is {text!r}; pass "at least 200", or a key of the info of the last step')
    return InInfo(text)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
