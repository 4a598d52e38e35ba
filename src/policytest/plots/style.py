"""How every picture looks: colours that the colour-blind tell apart, with a line style and a marker each.

The colours are those of Okabe and Ito. matplotlib is imported where it is used, and pyplot never: a picture is a
`Figure` of its own, which needs no screen and leaves nothing behind.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from policytest._base.errors import needs
from policytest._base.text import number, plain

if TYPE_CHECKING:
    from matplotlib.artist import Artist
    from matplotlib.axes import Axes
    from matplotlib.axis import Axis
    from matplotlib.colors import Colormap

INK, MUTED, FAINT = "#1c2024", "#5b6470", "#c9ced6"
BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY = "#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"
Dashes: TypeAlias = str | tuple[int, tuple[int, ...]]
SERIES: tuple[tuple[str, Dashes, str], ...] = (
    (BLUE, "-", "o"),
    (VERMILION, "--", "s"),
    (GREEN, "-.", "^"),
    (PURPLE, ":", "D"),
    (ORANGE, (0, (5, 1, 1, 1, 1, 1)), "v"),
    (SKY, (0, (1, 1)), "P"),
    (INK, (0, (8, 2)), "X"),
    ("#8c510a", "-", "<"),
    ("#7f7f7f", "--", ">"),
    ("#4b3b9b", "-.", "p"),
)
WIDTH, HEIGHT = 4.8, 3.2  # inches: at this width the letters stay readable on a telephone
LONGEST = 22  # letters of a name
LINE = 0.18  # inches that a line of a legend takes
Look: TypeAlias = dict[str, Any]
"""How something looks: settings of matplotlib, by name."""
LEGEND: Look = {
    "loc": "lower left",
    "bbox_to_anchor": (-0.02, 1.0),
    "frameon": False,
    "fontsize": 8.5,
    "labelcolor": INK,
    "borderaxespad": 0.2,
    "handlelength": 2.6,
    "columnspacing": 1.2,
}


def axes(ax: Axes | None = None, height: float = HEIGHT) -> Axes:
    """The given axes, or new ones in a figure of their own."""
    if ax is None:
        needs("matplotlib.figure", "report")
        from policytest.plots.shown import ShownAxes, ShownFigure

        figure = ShownFigure(figsize=(WIDTH, height), layout="constrained")
        ax = figure.add_subplot(axes_class=ShownAxes)
    for side in ("top", "right"):
        ax.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        ax.spines[side].set_color(MUTED)
    ax.tick_params(colors=INK, labelsize=9, color=MUTED)
    ax.set_axisbelow(True)
    return ax


def labels(ax: Axes, x: str = "", y: str = "") -> None:
    """The words at the axes."""
    ax.set_xlabel(x, color=INK, fontsize=9.5)
    ax.set_ylabel(y, color=INK, fontsize=9.5)


def finished(
    ax: Axes,
    x: str = "",
    y: str = "",
    grid: Literal["x", "y", "both"] | None = None,
    columns: int = 2,
    handles: Sequence[Artist] = (),
) -> Axes:
    """The axes with their words, grid lines of "x", "y" or "both", and a legend."""
    if grid:
        ax.grid(axis=grid, color=FAINT, linewidth=0.5)
    labels(ax, x, y)
    legend(ax, columns, handles)
    return ax


def legend(ax: Axes, columns: int = 2, handles: Sequence[Artist] = ()) -> None:
    """Above the axes, where it covers nothing; none where there is nothing to tell apart.

    It has as many columns, up to ``columns``, as there is room for; a figure that is made here grows with its lines.
    ``handles`` are shown instead of the labelled artists.
    """
    shown = list(handles) or ax.get_legend_handles_labels()[0]
    if not shown:
        return
    figure: Any = ax.figure
    room = 1.1 * ax.get_position().width * figure.bbox.width
    for ncols in range(columns, 0, -1):
        made = ax.legend(handles=shown, ncols=ncols, **LEGEND)
        if made.get_window_extent().width <= room:
            break
    if hasattr(figure, "_repr_svg_"):  # made here
        figure.set_figheight(figure.get_figheight() + LINE * max(-(-len(shown) // ncols) - 2, 0))


def reach(places: Sequence[float], share: float = 0.12) -> tuple[float, float]:
    """The ends of an axis on which these places have some room."""
    room = share * (max(places) - min(places)) or max(abs(places[0]), 1.0) * 0.1
    return min(places) - room, max(places) + room


def number_line(ax: Axes, ends: tuple[float, float], row: int, size: float, label: str | None) -> None:
    """An interval as a bar at this height, with marks at its finite ends; cut at the ends of the axis."""
    left, right = ax.get_xlim()
    bar = [max(ends[0], left), min(ends[1], right)]
    ax.plot(bar, [row, row], color=BLUE, linewidth=7, solid_capstyle="butt", alpha=0.45, label=label)
    finite = [end for end in ends if math.isfinite(end)]
    ax.plot(finite, [row] * len(finite), "|", color=BLUE, markersize=size, markeredgewidth=2)


def threshold_line(ax: Axes, threshold: float, about: str = "value", width: float = 1.6, level: bool = False) -> None:
    """A dashed line at the threshold, or at the margin of a "difference": upright, or level."""
    draw, word = ax.axhline if level else ax.axvline, "margin" if about == "difference" else "threshold"
    draw(threshold, color=VERMILION, linestyle="--", linewidth=width, label=f"{word} {number(threshold)}")


def nothing(ax: Axes, words: str) -> Axes:
    """Axes that say why there is nothing to see."""
    ax.set_axis_off()
    ax.text(0.5, 0.5, escape(words), ha="center", va="center", color=INK, fontsize=9.5, transform=ax.transAxes)
    return ax


def thousands(axis: Axis) -> None:
    """Numbers of samples with separators, 20,000 rather than 2e4; on a log axis at the decades."""
    ticker = needs("matplotlib.ticker", "report")
    axis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x:,.0f}" if x >= 1 or x == 0 else f"{x:g}"))


def few_ticks(axis: Axis, most: int = 5) -> None:
    """Ticks at round numbers, so many at most."""
    axis.set_major_locator(needs("matplotlib.ticker", "report").MaxNLocator(most))


def log_axis(ax: Axes, which: Literal["x", "y"]) -> None:
    """A log axis with labels at its decades; also between them where there are few decades."""
    ticker = needs("matplotlib.ticker", "report")
    ax.set(**{f"{which}scale": "log"})
    axis: Axis = getattr(ax, f"{which}axis")
    low, high = sorted(axis.get_view_interval())
    few = low > 0 and high / low < 30
    axis.set_major_locator(ticker.LogLocator(subs=(1.0, 2.0, 5.0) if few else (1.0,), numticks=6))
    axis.set_minor_formatter(ticker.NullFormatter())
    thousands(axis)


def name(index: int, names: Sequence[Hashable] | None, longest: int = LONGEST) -> str:
    """The name of a state or an action, or its number; cut where it is long."""
    return str(index) if names is None else short(str(names[index]), longest)


def short(text: str, longest: int = LONGEST) -> str:
    """A name that fits, with nothing in it that matplotlib would read as a formula."""
    text = plain(text)
    return escape(text if len(text) <= longest else f"{text[: longest - 1]}…")


def escape(text: str) -> str:
    """A dollar is a dollar."""
    return text.replace("$", r"\$")


def few_digits(x: float) -> str:
    """A number for a crowded place: 242, 12.3k, 4.1M.

    >>> few_digits(242), few_digits(12345), few_digits(4.1e6), few_digits(0.05)
    ('242', '12k', '4.1M', '0.05')
    """
    if not math.isfinite(x):
        return str(x)
    for unit, letter in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if abs(x) >= unit * 10 or (abs(x) >= unit and unit > 1e3):
            return f"{x / unit:.2g}{letter}" if abs(x) < 100 * unit else f"{x / unit:.0f}{letter}"
    return f"{x:,.0f}" if abs(x) >= 100 or x == int(x) else f"{x:.2g}"


def blues() -> Colormap:
    """From almost white to dark blue: an order that print and the colour-blind keep."""
    colors = needs("matplotlib.colors", "report")
    shades = ["#f1f6fa", "#7db7d9", BLUE, "#00324f"]
    found: Colormap = colors.LinearSegmentedColormap.from_list("policytest", shades, N=32)
    return found
