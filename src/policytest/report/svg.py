"""A picture as SVG that can stand inside a page: its ids its own, its text text, its ink that of the page."""

from __future__ import annotations

import io
import re
import warnings
from typing import Any

from policytest._base.errors import needs
from policytest._base.table import escape
from policytest.plots import style

_INKS = {
    style.INK: "currentColor",
    style.MUTED: f"var(--muted, {style.MUTED})",
    style.FAINT: f"var(--faint, {style.FAINT})",
}


def inline(ax: Any, key: str, title: str, description: str) -> str:
    """The figure of these axes as an ``<svg>`` element; the same picture gives the same text.

    ``key`` goes in front of every id, so that figures on one page cannot mix up their parts. ``title`` and
    ``description`` are what a screen reader says.
    """
    settings = {"svg.fonttype": "none", "svg.hashsalt": key, "font.family": "sans-serif"}
    content = io.StringIO()
    with needs("matplotlib", "report").rc_context(settings), warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Glyph")  # letters are drawn by the browser, which has more fonts
        about = {"Date": None, "Creator": None, "Format": None, "Type": None}
        ax.figure.savefig(content, format="svg", transparent=True, metadata=about)
    drawing = content.getvalue()
    drawing = drawing[drawing.index("<svg") :]
    for clutter in (r"<!--.*?-->", r"<metadata>.*?</metadata>", r"<style\b.*?</style>"):
        drawing = re.sub(clutter, "", drawing, flags=re.DOTALL)
    box = re.search(r'viewBox="([^"]+)"', drawing)
    assert box is not None
    drawing = re.sub(r'\bid="([^"]+)"', rf'id="{key}-\1"', drawing)
    drawing = re.sub(r'(?:xlink:)?href="#([^"]+)"', rf'href="#{key}-\1"', drawing)
    drawing = re.sub(r"url\(#([^)]+)\)", rf"url(#{key}-\1)", drawing)
    for color, ink in _INKS.items():
        drawing = re.sub(rf"(?<=[:\s]){color}\b", ink, drawing, flags=re.IGNORECASE)
    drawing = re.sub(r"font: [\d.]+px [^;\"]*", lambda font: _font(font.group()), drawing)
    drawing = re.sub(r"\s*\n\s*", "\n", drawing)
    body = drawing[drawing.index(">") + 1 :]
    return (
        f'<svg viewBox="{box.group(1)}" role="img" aria-labelledby="{key}-title" aria-describedby="{key}-desc">'
        f'<title id="{key}-title">{escape(title)}</title><desc id="{key}-desc">{escape(description)}</desc>{body}'
    )


def _font(declared: str) -> str:
    """The size alone; the letters are those of the page."""
    size = re.search(r"[\d.]+px", declared)
    return f"font-size: {size.group() if size else '9px'}"
