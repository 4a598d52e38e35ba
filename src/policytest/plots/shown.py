"""Figures and axes that a notebook shows as pictures, without pyplot and without ``%matplotlib inline``.

Imported where a picture is made, since matplotlib is optional.
"""

from __future__ import annotations

import io

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure


class ShownFigure(Figure):
    """A figure; the last line of a cell shows it."""

    def _repr_svg_(self) -> str:
        content = io.StringIO()
        with rc_context({"svg.hashsalt": "policytest"}):
            self.savefig(content, format="svg", metadata={"Date": None})
        return content.getvalue()


class ShownAxes(Axes):
    """Axes in such a figure, shown as the figure."""

    def _repr_svg_(self) -> str:
        figure = self.figure
        return figure._repr_svg_() if isinstance(figure, ShownFigure) else ""
