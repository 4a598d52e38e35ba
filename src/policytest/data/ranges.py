"""Ranges that are declared: where every reward, or every return, lies. One end, or both, may be unknown.

A bet on "above" cannot lose more than its stake if no return is below ``low``, whatever the largest may be; a bet on
"below" needs ``high`` alone. So one known end serves one side (`policytest.eprocess.capital`).
"""

from __future__ import annotations

import math

import numpy as np

from policytest._base import arrays
from policytest._base.arrays import BoolArray, FloatArray
from policytest._base.errors import InputError
from policytest._base.text import number

Range = tuple[float, float]
GivenRange = tuple[float | None, float | None] | None
"""As it is passed."""
NO_RANGE = (-math.inf, math.inf)
ROUNDING = 1e-9  # of the range: how far a reward or a return may lie outside
REFUSE, WARN = "refuse", "warn"  # what becomes of a return outside its range: an error, or the end of the certificate
DECLARED = "as declared"
LARGEST = float(np.finfo(np.float64).max)
NO_BOUND = (
    "returns have no known range: pass return_range=(low, high), or reward_range=(low, high) with a horizon or a "
    "discount below 1"
)
LARGE_SAMPLE = (
    "{} no known range, so this will be a large-sample answer, which is not certified; for a certified one "
    "pass return_range=(low, high), or reward_range=(low, high) with a horizon or a discount below 1, where one known "
    "end is enough for one answer; or ask for a probability: outcome=pt.at_least(200)"
)


def two_ends(name: str, given: object) -> list[tuple[str, object]]:
    """Both ends of (low, high), with their names."""
    if not isinstance(given, tuple | list | np.ndarray) or len(given) != 2:
        raise InputError(f"{name} is {arrays.shown(given)}; pass two numbers (low, high)")
    return [(f"{name}[{i}]", end) for i, end in enumerate(given)]


def ends_of(name: str, given: object) -> Range | None:
    """(low, high): two numbers in this order. None, or an infinity, stands for an end that is not known.

    >>> ends_of("return_range", (-1000, None)), ends_of("return_range", None)
    ((-1000.0, inf), None)
    """
    if given is None:
        return None
    low, high = (_end(*end, unknown) for end, unknown in zip(two_ends(name, given), NO_RANGE, strict=True))
    if not low <= high or low == math.inf or high == -math.inf:
        raise InputError(
            f"{name} is ({low:g}, {high:g}); pass (low, high), the first not above the second, or None for an end that "
            "is not known"
        )
    return low, high


def _end(name: str, given: object, unknown: float) -> float:
    if given is None:
        return unknown
    if isinstance(given, float | np.floating) and math.isinf(given):
        return float(given)
    return arrays.real_number(name, given)


def finite_ends(ends: Range) -> Range:
    """The same, with the largest numbers there are where an end is not known: what lies between them is finite."""
    return max(ends[0], -LARGEST), min(ends[1], LARGEST)


def slack_of(ends: Range, more: float = 0.0) -> float:
    """How far a number may lie outside by rounding; ``more`` where numbers are less precise."""
    return (ROUNDING + more) * (1.0 + sum(abs(end) for end in ends if math.isfinite(end)))


def outside(found: FloatArray, ends: Range) -> BoolArray:
    """Which numbers lie outside, by more than rounding."""
    slack = slack_of(ends)
    return np.asarray((found < ends[0] - slack) | (found > ends[1] + slack))


def kept_in(found: float, ends: Range) -> float:
    """The nearest number of a range."""
    return min(max(found, ends[0]), ends[1])


def range_words(what: str, ends: Range) -> str:
    """What is assumed of a declared range.

    >>> range_words("returns", (0.0, 500.0)), range_words("returns", (-1000.0, math.inf))
    ('returns lie in [0, 500], as declared', 'returns are at least -1,000, as declared')
    """
    low, high = map(number, ends)
    if math.isinf(ends[0]) != math.isinf(ends[1]):
        return f"{what} are {f'at least {low}' if math.isinf(ends[1]) else f'at most {high}'}, {DECLARED}"
    return f"{what} lie in [{low}, {high}], {DECLARED}"


def outside_words(what: str, where: str, value: float, ends: Range) -> str:
    """That a number lies outside its range."""
    return f"the {what} of {where} is {value:.9g}, outside {what}_range ({ends[0]:g}, {ends[1]:g})".replace(
        "outcome_range", "return_range"
    )


def inner_point(bounds: Range) -> float:
    """A number inside: the middle; near the one end that is known; 0 without one.

    >>> inner_point((0.0, 3.0)), inner_point((2.0, math.inf)), inner_point((-math.inf, 2.0)), inner_point(NO_RANGE)
    (1.5, 3.0, 1.0, 0.0)
    """
    low, high = bounds
    if math.isinf(low):
        return 0.0 if math.isinf(high) else high - 1.0
    return low + 1.0 if math.isinf(high) else 0.5 * (low + high)


def has_no_end(bounds: Range) -> bool:
    """Whether no end is known: then no bet is sure to lose no more than its stake."""
    return not any(map(math.isfinite, bounds))


def check_bounds(bounds: Range, refusal: str = NO_BOUND) -> None:
    """Refuse returns without a known end, on which there are no bets."""
    if has_no_end(bounds):
        raise InputError(refusal)


def times(end: float, weight: float) -> float:
    """The product, where 0 times infinity is 0."""
    return end * weight if end and weight else 0.0
