"""The summary of a study: for each instance a line for each method and a column for each delta, as text and HTML."""

from __future__ import annotations

from dataclasses import dataclass

from policytest._base.table import escape, paragraph
from policytest._base.text import plain

_CELL = "text-align: right; padding: 0.2em 0 0.2em 1.2em; font-variant-numeric: tabular-nums"
_LABEL = "text-align: left; padding: 0.2em 0; font-weight: normal"
_CAPTION = "caption-side: top; text-align: left; font-weight: bold; padding: 0.6em 0 0.3em"


@dataclass(frozen=True)
class Line:
    """A label, a cell for each column, and a remark."""

    label: str
    cells: tuple[str, ...]
    remark: str = ""


@dataclass(frozen=True)
class Block:
    """The lines of one instance."""

    heading: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]

    def text(self) -> list[str]:
        """Aligned lines."""
        table = [Line("", self.columns), *self.lines]
        first = max(len(plain(line.label)) for line in table)
        wide = [max(map(len, column)) for column in zip(*(line.cells for line in table), strict=True)]
        shown = [plain(self.heading)]
        for line in table:
            cells = "".join(f"  {cell:>{width}}" for cell, width in zip(line.cells, wide, strict=True))
            shown.append(f"  {plain(line.label):<{first}}{cells}" + (f"  {line.remark}" if line.remark else ""))
        return shown

    def html(self) -> str:
        """One ``<table>``."""
        heads = "".join(f'<th scope="col" style="{_CELL}">{escape(column)}</th>' for column in ("", *self.columns, ""))
        rows = "\n".join(
            f'<tr><th scope="row" style="{_LABEL}">{escape(line.label)}</th>'
            + "".join(f'<td style="{_CELL}">{escape(cell)}</td>' for cell in (*line.cells, line.remark))
            + "</tr>"
            for line in self.lines
        )
        return (
            f'<table style="border-collapse: collapse"><caption style="{_CAPTION}">{escape(self.heading)}</caption>\n'
            f"<thead><tr>{heads}</tr></thead>\n<tbody>\n{rows}\n</tbody></table>"
        )


@dataclass(frozen=True)
class Grid:
    """A title, blocks, and notes underneath.

    >>> block = Block("2x2", ("delta = 0.1",), (Line("PTST", ("287 (29)",)),))
    >>> print(Grid("study", (block,), ("Thirty runs.",)).text())
    study: mean samples (standard error)
    2x2
            delta = 0.1
      PTST     287 (29)
    Thirty runs.
    """

    title: str
    blocks: tuple[Block, ...]
    notes: tuple[str, ...] = ()

    def text(self) -> str:
        """Plain text, nothing wrapped."""
        lines = [f"{plain(self.title)}: mean samples (standard error)"]
        for block in self.blocks:
            lines += block.text()
        return "\n".join([*lines, *(plain(note) for note in self.notes)])

    def html(self) -> str:
        """A fragment: a table for each instance, a paragraph for each note."""
        heading = paragraph(f"{self.title}: mean samples (standard error)")
        return "\n".join([heading, *(block.html() for block in self.blocks), *(paragraph(note) for note in self.notes)])
