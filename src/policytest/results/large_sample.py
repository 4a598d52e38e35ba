"""The words about large-sample answers: what they are called, what they rest on, and how heavy the tails are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from policytest._base.table import Document, Row
from policytest._base.text import number, probability
from policytest.data.returns import Tails
from policytest.methods.large_sample import LOOKS
from policytest.results.saved import Seen

if TYPE_CHECKING:
    from policytest.results.verdict import Verdict

KIND = "large-sample"
LABEL = f"{KIND} answer"
FINITE_VARIANCE = "returns have a finite variance"
AS_IT_GROWS = "there are many episodes (the answer is valid as their number grows, not for every number)"
ASSUMED = (FINITE_VARIANCE, AS_IT_GROWS)
WHY = "it is approximate: right as the number of episodes grows, not for every number"
CERTIFY = (
    "For a certified answer, declare what bounds an episode (return_range, or reward_range with a horizon), or ask for "
    "a probability: outcome=pt.at_least(200)."
)
HEAVY_KURTOSIS, HEAVY_SHARE = 10.0, 0.1
"""From both of these on the tails of returns are told: a normal distribution has the kurtosis 3."""


def assumed(assumptions: Sequence[str], approximate: bool) -> tuple[str, ...]:
    """All that a result rests on; each once, also of a saved one, which has these already."""
    return tuple(dict.fromkeys((*assumptions, *(ASSUMED if approximate else ()))))


def title(said: str) -> str:
    """The first line of a result that says this."""
    return f"{said} ({LABEL}, not certified)"


def is_one_look(v: Verdict) -> bool:
    """Whether it was to be looked at once."""
    return v.method.startswith(LOOKS["one"])


def end_of(v: Verdict, sure: str) -> str:
    """What each end of the interval of a verdict holds with."""
    return f"each end holds with probability of about {sure}{'' if is_one_look(v) else ', at any time'}"


def lead(v: Verdict, samples: str) -> str:
    """How the answer came about."""
    return f"A {LABEL}, after {samples}, with a probability of error of about {probability(v.delta)}: {WHY}."


def guarantee() -> list[str]:
    """What is left of the guarantee."""
    return [
        "This is the limit for many episodes, if returns have a finite variance. Nothing is proved for this number of "
        "them, and skewed or heavy-tailed returns need more.",
        CERTIFY,
    ]


def told(tails: Tails | None, seen: Seen, unit: str = "episode") -> str:
    """What to know of heavy tails, in a line; "" where they are not heavy."""
    if tails is None or tails.kurtosis < HEAVY_KURTOSIS or tails.largest_share < HEAVY_SHARE:
        return ""
    return (
        f"one {unit} of {number(seen.episodes or 0)} carries {tails.largest_share:.0%} of the variance (kurtosis "
        f"{number(tails.kurtosis)}): the answer may change with the next such {unit}"
    )


def rows(seen: Seen, about: str = "value") -> list[Row]:
    """The tails of returns in a summary."""
    tails = seen.tails
    if tails is None:
        return []
    unit = "pair" if about == "difference" else "episode"
    words = told(tails, seen, unit)
    remark = words or f"of the variance is carried by one {unit} of {number(seen.episodes or 0)}"
    return [Row(f"largest {unit}", f"{tails.largest_share:.1%}", remark)]


def data(approximate: bool, seen: Seen, about: str = "value") -> Document:
    """The same for a program."""
    if not approximate:
        return {"approximate": False}
    tails = seen.tails
    unit = "pair" if about == "difference" else "episode"
    found = None if tails is None else {**tails._asdict(), "words": told(tails, seen, unit)}
    return {"approximate": True, "tails": found}
