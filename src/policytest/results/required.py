"""A verdict that must have a certain answer, for tests and gates: what `Verdict.require` checks, and its message.

    pt.decide(agent, threshold=200, budget=300, max_seconds=600).require("above")

A gate must not open by mistake, so everything but the required answer raises: another answer, no answer, and an answer
that is not certified, unless the caller accepts that. If the data refute what the answer assumes, nothing is accepted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from policytest._base import arrays
from policytest._base.errors import InputError, NotGoodEnough, Undecided
from policytest._base.table import Row, Table
from policytest._base.text import did_you_mean, probability
from policytest.results import sentences

if TYPE_CHECKING:
    from policytest.results.verdict import Verdict

ANSWERS = ("above", "below", "within")
SHOWN = ("threshold", "estimate", "interval", "samples", "episodes")
"""The rows of the summary that a message has."""


def wanted_answers(given: object) -> tuple[str, ...]:
    """One answer, or several of which any will do.

    >>> wanted_answers("above"), wanted_answers(("above", "within"))
    (('above',), ('above', 'within'))
    """
    answers = (given,) if isinstance(given, str) or not isinstance(given, Iterable) else tuple(given)
    choices = 'pass "above", "below" or "within", or a tuple of these'
    for answer in answers:
        if not isinstance(answer, str) or answer not in ANSWERS:
            near = did_you_mean(answer, ANSWERS)
            raise InputError(f"answer is {arrays.shown(answer)}", f"{near} {choices}".strip())
    if not answers:
        raise InputError("answer is empty", choices)
    return answers


def check_answer(verdict: Verdict, answer: object, accept_uncertified: bool) -> None:
    """Raise unless the verdict has this answer, or one of these, and is certified or accepted."""
    wanted, accepts = wanted_answers(answer), arrays.flag("accept_uncertified", accept_uncertified)
    if verdict.answer is None:
        raise Undecided(_message(verdict, wanted), verdict)
    if verdict.answer not in wanted:
        raise NotGoodEnough(_message(verdict, wanted), verdict)
    if not verdict.certified and (not accepts or verdict.refutes_model):
        raise NotGoodEnough(_message(verdict, wanted, _remedy(verdict, accepts)), verdict)


def _message(verdict: Verdict, wanted: tuple[str, ...], remedy: str = "") -> str:
    """The answer and its reason, the numbers that it rests on, and what was required; not the whole summary."""
    rows = [row for row in verdict.summary.rows if row.key in SHOWN]
    rows = [replace(row, remark="") if row.key == "samples" else row for row in rows]
    delta = probability(verdict.delta)
    error = f"about {delta}" if verdict.approximate else f"{delta} at most"
    asked = Row("required answer", " or ".join(wanted), f"wrong with probability {error}")
    return Table(sentences.title(verdict), (asked, *rows), (remedy,) if remedy else ()).text()


def _remedy(verdict: Verdict, accepts: bool) -> str:
    """How to accept an answer that is not certified, if that can be."""
    if accepts:
        return "accept_uncertified does not apply, because the data refute what the answer assumes."
    if verdict.refutes_model:
        return "It cannot be accepted, because the data refute what it assumes."
    return f'To accept an answer that is not certified: require("{verdict.answer}", accept_uncertified=True).'
