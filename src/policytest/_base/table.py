"""One table, three renderings: text for a terminal, HTML for a notebook or a page, JSON for a program.

Every result of the package shows itself through a `Table`, so that what is printed, what a notebook shows and
what a program reads cannot differ. Labels and names come from users: HTML is escaped, and characters that would
move a terminal's cursor are written as escapes.

JSON has no infinities and no NaN. Infinities are written as the strings "inf" and "-inf", which Python's ``float()``
reads back, and NaN, where there is no number, as null; everything `to_json` writes is valid JSON.
"""

from __future__ import annotations

import html
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from policytest._base.text import plain

Document = dict[str, Any]
"""What a JSON document holds, by its keys; who reads one checks it there."""


@dataclass(frozen=True)
class Row:
    """One line of a table: what it is, what to show, a short remark; and for programs a key and the raw value."""

    label: str
    shown: str
    remark: str = ""
    key: str | None = None
    raw: object = None


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

    def data(self) -> Document:
        """The raw values of the rows that have a key."""
        return {row.key: row.raw for row in self.rows if row.key is not None}


_CAPTION = "caption-side: top; text-align: left; font-weight: bold; padding: 0.3em 0"
_CELL = "text-align: left; padding: 0.2em 1.2em 0.2em 0; vertical-align: top"


class Shown:
    """A result that is shown by its ``summary``: as text, and as HTML in notebooks.

    ``schema`` is the version of its JSON document, one for each kind of result.
    """

    schema: ClassVar[int] = 1
    summary: Any

    def data(self) -> Document:
        """What a program reads: numbers, strings, lists and arrays by their keys."""
        return dict(self.summary.data())

    def to_json(self) -> str:
        """One JSON document, whose first key is "schema"; infinite numbers are written as strings."""
        return to_json({"schema": self.schema, **self.data()})

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
_STYLE = "html { color-scheme: light dark; font: 16px/1.5 system-ui } body { max-width: 46rem; margin: 2rem auto }"


def page(title: str, *fragments: str) -> str:
    """A complete, self-contained HTML document: the title as heading, then fragments, which are HTML already."""
    viewport = '<meta name="viewport" content="width=device-width, initial-scale=1">'
    head = f'<meta charset="utf-8">\n{viewport}\n{GENERATOR}\n<title>{escape(title)}</title>\n<style>{_STYLE}</style>'
    body = "\n".join([f"<h1>{escape(title)}</h1>", *fragments])
    whole = f"<head>\n{head}\n</head>\n<body>\n<main>\n{body}\n</main>\n</body>"
    return f'<!DOCTYPE html>\n<html lang="en">\n{whole}\n</html>\n'


def paragraph(text: str) -> str:
    """The text as an HTML paragraph."""
    return f"<p>{escape(text)}</p>"


def escape(text: str) -> str:
    """Text made safe for HTML, in content and in quoted attributes."""
    return html.escape(plain(text), quote=True)


# ---------------------------------------------------------------- JSON


def to_json(data: Mapping[str, object]) -> str:
    """A JSON document. Infinities become "inf" and "-inf", NaN becomes null; arrays become lists.

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


def _jsonable(value: object) -> object:
    if isinstance(value, Mapping):
        if odd := [key for key in value if not isinstance(key, str)]:
            raise TypeError(f"the key {odd[0]!r} is not a string")
        return {key: _jsonable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_jsonable(item) for item in value]
    if hasattr(value, "tolist") and hasattr(value, "dtype"):  # NumPy scalars and arrays, without importing NumPy
        return value.tolist() if value.dtype.kind in "biu" else _jsonable(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(float(value))
    return value
