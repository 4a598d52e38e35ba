r"""Conditions on the variables of states, as in PRISM: ``d != 6``, ``(d=1 | d=2) & !done``, ``"six" | x >= y``.

    condition  = conjunction {"|" conjunction}
    conjunction = negation {"&" negation}
    negation   = "!" negation | "(" condition ")" | value [("=" | "!=" | "<" | "<=" | ">" | ">=") value]
    value      = number | true | false | variable | label | "label"

As in PRISM, ``!x=2`` is ``!(x=2)``. A name without quotes is a variable, or a label where no variable is called so.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from policytest._base import arrays
from policytest._base.arrays import BoolArray
from policytest._base.errors import InputError
from policytest._base.text import did_you_mean

_TOKEN = re.compile(r'\s*(?:(<=|>=|!=|==|[=<>&|!()])|(-?\d+(?:\.\d+)?)|"([^"]*)"|([A-Za-z_][\w.]*))', re.ASCII)
_MARKS = re.compile(r'[=<>!&|"]')
Values: TypeAlias = npt.NDArray[np.generic]
"""A truth value, a number or a text for each state, or one for all."""
_COMPARISONS: dict[str, Callable[[Values, Values], Values]] = {
    "=": operator.eq,
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


def is_condition(text: str) -> bool:
    """Whether a text can only be meant as a condition, by its signs."""
    return _MARKS.search(text) is not None


def columns(valuations: Sequence[str]) -> dict[str, Values]:
    """The values of each variable, [S], from the valuations of all states, such as ``x=2 & !done``."""
    found: dict[str, list[float | bool | str]] = {}
    for holds in valuations:
        for part in holds.split(" & "):
            name, equals, value = part.removeprefix("!").partition("=")
            found.setdefault(name, []).append(_number(value) if equals else not part.startswith("!"))
    return {name: np.array(values) for name, values in found.items()}


def _number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text


def where(
    condition: str, variables: Mapping[str, Values], labels: Mapping[str, Sequence[int]], n_states: int
) -> list[int]:
    """The states in which a condition holds.

    >>> where("x!=1 & !done", {"x": np.array([0.0, 1, 2]), "done": np.array([False, False, True])}, {}, 3)
    [0]
    """
    holds = _Parser(condition, variables, labels, n_states).condition()
    return np.flatnonzero(np.broadcast_to(holds, n_states)).tolist()


class _Parser:
    """Reads a condition from left to right; every part is a truth value, or a number, for each state."""

    def __init__(
        self, text: str, variables: Mapping[str, Values], labels: Mapping[str, Sequence[int]], n_states: int
    ) -> None:
        self.text, self.variables, self.labels, self.n_states = text, variables, labels, n_states
        self.at, self.ahead = 0, ("", "")
        self._next()

    def condition(self) -> BoolArray:
        """The whole text."""
        found = self._truth(self._either())
        if self.ahead[0] != "end":
            raise self._wrong(f"unexpected {self._ahead_in_words()}")
        return found

    def _next(self) -> tuple[str, str]:
        """The token at hand; the one after it is now ahead."""
        taken = self.ahead
        if not self.text[self.at :].strip():
            self.ahead = "end", "end"
            return taken
        found = _TOKEN.match(self.text, self.at)
        if found is None:
            raise self._wrong(f"unexpected {self.text[self.at :].strip()[0]!r}")
        self.at = found.end()
        kinds = zip(("sign", "number", "label", "name"), found.groups(), strict=True)
        self.ahead = next((kind, word) for kind, word in kinds if word is not None)
        return taken

    def _ahead_in_words(self) -> str:
        return "the end" if self.ahead[0] == "end" else repr(self.ahead[1])

    def _is(self, *signs: str) -> bool:
        return self.ahead[0] == "sign" and self.ahead[1] in signs

    def _either(self) -> Values:
        found = self._both()
        while self._is("|"):
            self._next()
            found = self._truth(found) | self._truth(self._both())
        return found

    def _both(self) -> Values:
        found = self._negation()
        while self._is("&"):
            self._next()
            found = self._truth(found) & self._truth(self._negation())
        return found

    def _negation(self) -> Values:
        if self._is("!"):
            self._next()
            return ~self._truth(self._negation())
        if self._is("("):
            self._next()
            found = self._either()
            if not self._is(")"):
                raise self._wrong("a parenthesis is not closed")
            self._next()
            return found
        left = self._value()
        if not self._is(*_COMPARISONS):
            return left
        sign = self._next()[1]
        right = self._value()
        kinds = {side.dtype.kind for side in (left, right)}
        if len(kinds) > 1 or (kinds != {"f"} and sign not in ("=", "==", "!=")):
            raise self._wrong(f"{sign} compares numbers" + (", or two truth values" if "=" in sign else ""))
        return _COMPARISONS[sign](left, right)

    def _value(self) -> Values:
        if self.ahead[0] in ("sign", "end"):
            raise self._wrong(f"expected a variable, a label or a number, found {self._ahead_in_words()}")
        kind, word = self._next()
        if kind == "number":
            return np.array(float(word))
        if kind == "name" and word in self.variables:
            return self.variables[word]
        if kind == "name" and word in ("true", "false"):
            return np.array(word == "true")
        if word not in self.labels:
            known = [*(self.variables if kind == "name" else ()), *self.labels]
            listed = f"known are {', '.join(map(repr, known))}" if known else "the model has no values of variables"
            what = "variable or label" if kind == "name" else "label"
            raise self._wrong(f"there is no {what} {word!r}; {did_you_mean(word, known) or listed}")
        holds = np.zeros(self.n_states, dtype=bool)
        holds[list(self.labels[word])] = True
        return holds

    def _truth(self, value: Values) -> BoolArray:
        if value.dtype.kind != "b":
            raise self._wrong("a number stands where something is true or false; compare it, as in x=2")
        return value.astype(np.bool_, copy=False)

    def _wrong(self, why: str) -> InputError:
        return InputError(f"the condition {arrays.shown(self.text)}: {why}")
