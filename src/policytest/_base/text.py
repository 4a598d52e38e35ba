"""Numbers and labels as text: for terminals, pages and messages."""

from __future__ import annotations

import difflib
import math
import numbers
from collections.abc import Iterable


def plain(text: str) -> str:
    r"""Text on one line, without characters that steer a terminal.

    >>> plain("two\nlines \x1b[2J")
    'two lines \\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else " " if c.isspace() else c.encode("unicode_escape").decode() for c in text)


def short(text: str, most: int = 480) -> str:
    """At most this many characters of a message: its beginning, which names the place, and its end, the remedy.

    >>> short("policy.csv: the columns are " + 1000 * "x" + "; expected state, action", 70)
    'policy.csv: the columns are xxxxxxxxxxxxxxxx ... xpected state, action'
    """
    end = (most - 5) // 3
    return text if len(text) <= most else f"{text[: most - 5 - end]} ... {text[-end:]}"


# ---------------------------------------------------------------- numbers in words


def number(x: float) -> str:
    """A number to read: whole ones in full with separators, others to six significant digits.

    >>> number(45096), number(0.123456789), number(float("inf"))
    ('45,096', '0.123457', 'infinite')
    """
    if isinstance(x, numbers.Integral):
        return f"{int(x):,}"
    return _unusual(x) or f"{x + 0.0:,.6g}"


def probability(x: float) -> str:
    """A probability to four significant digits; one that is not 0 or 1 is never shown as 0 or 1.

    >>> probability(0.05), probability(1 - 1e-7), probability(0.0)
    ('0.05', '1 - 1e-07', 'below 1e-300')
    """
    if not math.isfinite(x):
        return _unusual(x)
    if x < 1e-300:
        return "below 1e-300"
    if 0.9999 < x < 1:
        return f"1 - {1 - x:.2g}"
    return f"{x:.4g}"


def nats(x: float) -> str:
    """An amount of evidence, to four significant digits; what rounding leaves of 0 is 0.

    >>> nats(2.995732), nats(float("-inf"))
    ('2.996 nats', '-infinite')
    """
    shown = _unusual(x) or f"{0.0 if abs(x) < 1e-9 else x:.4g}"
    return shown if not math.isfinite(x) else f"{shown} {'nat' if shown == '1' else 'nats'}"


def plural(n: int, noun: str, many: str | None = None) -> str:
    """A count with its noun.

    >>> plural(1, "sample"), plural(45096, "sample"), plural(2, "policy", "policies")
    ('1 sample', '45,096 samples', '2 policies')
    """
    return f"{int(n):,} {noun if n == 1 else many or noun + 's'}"


def did_you_mean(given: object, known: Iterable[str], otherwise: str = "") -> str:
    """The known name nearest to this one, as a question; ``otherwise`` if none is near.

    >>> did_you_mean("unifrom", ["uniform", "optimal"], "pass one of uniform, optimal")
    "did you mean 'uniform'?"
    """
    close = difflib.get_close_matches(str(given), list(known), n=1)
    return f"did you mean {plain(close[0])!r}?" if close else otherwise


def _unusual(x: float) -> str:
    """Words for what is not finite, "" otherwise."""
    if math.isnan(x):
        return "unknown"
    return "" if math.isfinite(x) else "infinite" if x > 0 else "-infinite"
