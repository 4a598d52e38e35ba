"""One table, three renderings: text for a terminal, HTML for a notebook or a page, JSON for a program.

Every result of the package shows itself through a `Table`, so that what is printed, what a notebook shows and
what a program reads cannot differ. Labels and names come from users: HTML is escaped, and characters that would
move a terminal's cursor are written as escapes.

JSON has no infinities and no NaN. They are written as the strings "inf", "-inf" and "nan", which Python's
``float()`` reads back; everything `to_json` writes is valid JSON.
"""

from __future__ import annotations

import html
import json
import math
import numbers
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Row:
    """One line of a table: what it is, what to show, a short remark; and for programs a key and the raw value."""

    label: str
    shown: str
    remark: str = ""
    key: str | None = None
    raw: Any = None


@dataclass(frozen=True)
class Table:
    """A title, rows, and notes underneath.

    >>> table = Table("above", (Row("samples", "45,096", key="samples", raw=45096),), ("Drawn uniformly.",))
    >>> print(table.text())
    above
      samples  45,096
    Drawn uniformly.
    >>> table.data()
    {'samples': 45096}
    """

    title: str
    rows: tuple[Row, ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Aligned plain text: the title, a line for each row, the notes. Nothing is wrapped."""
        cells = [(plain(row.label), plain(row.shown), plain(row.remark)) for row in self.rows]
        wide = [max((len(row[column]) for row in cells), default=0) for column in (0, 1)]
        lines = [f"  {label:<{wide[0]}}  {shown:<{wide[1]}}  {remark}".rstrip() for label, shown, remark in cells]
        return "\n".join([plain(self.title), *lines, *(plain(note) for note in self.notes)])

    def html(self) -> str:
        """A fragment: one ``<table>`` and a paragraph for each note. No colours, so it suits light and dark pages."""
        caption = f'<caption style="{_CAPTION}">{escape(self.title)}</caption>'
        rows = "\n".join(_html_row(row) for row in self.rows)
        notes = "".join("\n" + paragraph(note) for note in self.notes)
        return f'<table style="border-collapse: collapse">{caption}\n<tbody>\n{rows}\n</tbody></table>{notes}'

    def data(self) -> dict[str, Any]:
        """The raw values of the rows that have a key."""
        return {row.key: row.raw for row in self.rows if row.key is not None}

    def page(self, heading: str) -> str:
        """A complete HTML document with this table alone."""
        return page(heading, self.html())


_CAPTION = "caption-side: top; text-align: left; font-weight: bold; padding: 0.3em 0"
_CELL = "text-align: left; padding: 0.2em 1.2em 0.2em 0; vertical-align: top"


class Shown:
    """A result that is shown by its ``summary``: as text, and as HTML in notebooks."""

    summary: Any

    def __str__(self) -> str:
        return str(self.summary.text())

    def _repr_html_(self) -> str:
        return str(self.summary.html())


def _html_row(row: Row) -> str:
    cells = [
        f'<th scope="row" style="{_CELL}; font-weight: normal">{escape(row.label)}</th>',
        f'<td style="{_CELL}; font-variant-numeric: tabular-nums">{escape(row.shown)}</td>',
        f'<td style="{_CELL}; opacity: 0.75">{escape(row.remark)}</td>',
    ]
    return f"<tr>{''.join(cells)}</tr>"


GENERATOR = '<meta name="generator" content="policytest">'
PAGE_MARKS = (GENERATOR, "default-src 'none'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action")
"""How a page of policytest is recognised, also one of before it said so."""
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 46rem; margin: 2rem auto; padding: 0 1rem;
       overflow-wrap: break-word; }
h1 { font-size: 1.5rem; line-height: 1.25; }
.wide { overflow-x: auto; }
th, td { border-bottom: 1px solid rgb(128 128 128 / 35%); }
@media print { body { max-width: none; margin: 0; font-size: 11pt; } }
"""


def page(title: str, *fragments: str) -> str:
    """A complete, self-contained HTML document: the title as heading, then fragments, which are HTML already."""
    body = "\n".join(f'<div class="wide">\n{fragment}\n</div>' for fragment in fragments)
    head = f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n{GENERATOR}\n'
        f"{head}\n</head>\n<body>\n<main>\n<h1>{escape(title)}</h1>\n{body}\n</main>\n</body>\n</html>\n"
    )


def paragraph(text: str) -> str:
    """The text as an HTML paragraph."""
    return f"<p>{escape(text)}</p>"


def escape(text: str) -> str:
    """Text made safe for HTML, in content and in quoted attributes alike."""
    return html.escape(plain(text), quote=True)


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


# ---------------------------------------------------------------- JSON


def to_json(data: Mapping[str, Any]) -> str:
    """A JSON document. Infinities and NaN become "inf", "-inf" and "nan"; arrays become lists.

    >>> print(to_json({"estimate": float("inf"), "evidence": (1.5, 2)}))
    {
      "estimate": "inf",
      "evidence": [
        1.5,
        2
      ]
    }
    """
    return json.dumps(_jsonable(data), indent=2, allow_nan=False)


def _jsonable(value: Any) -> Any:
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"the key {odd[0]!r} is not a string")
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if hasattr(value, "tolist"):  # NumPy scalars and arrays, without importing NumPy
        return _jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(float(value))
    return value


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


def _unusual(x: float) -> str:
    """Words for what is not finite, "" otherwise."""
    if math.isnan(x):
        return "unknown"
    return "" if math.isfinite(x) else "infinite" if x > 0 else "-infinite"
