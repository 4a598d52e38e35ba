"""A result as one HTML file: the answer in the first line, then pictures, numbers, and what it all rests on.

    report.write(verdict, "report.html", trace=trace)

The file is complete in itself: it loads nothing, runs no script, and opens offline; the same result gives the same
file.
Needs matplotlib and jinja2.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib import metadata, resources
from pathlib import Path

from policytest._base.arrays import whole_number
from policytest._base.errors import InputError, needs
from policytest._base.files import write_file
from policytest._base.table import Shown
from policytest._base.text import plain
from policytest.plots.trace import Trace
from policytest.report.figures import figures_of
from policytest.report.story import ColumnTable, Story, tell
from policytest.results.diagnosis import Diagnosis
from policytest.results.load import read

__all__ = ["read", "render", "write"]


def write(
    result: Shown,
    path: str | os.PathLike[str],
    *,
    trace: Trace | None = None,
    provenance: Mapping[str, object] | None = None,
    title: str | None = None,
    suppress_below: int = 0,
    background: str | Sequence[str] = (),
    warnings: Iterable[str] = (),
    diagnosis: Diagnosis | None = None,
) -> Path:
    """Write the report of a result to a file, which appears complete or not at all; the path of the file.

    Parameters
    ----------
    result
        A `Verdict` (of `decide`, `assess` or `compare`), an `Estimate`, a `Plan`, a `Selection` or a study.
    trace
        A `plots.Trace` of the run: adds the pictures of its course.
    provenance
        What to say about the data, {"files": ..., "rows": ..., "seed": ...}. The entry "command" is shown as the way to
        reproduce the result.
    title
        The question that was asked, in place of the usual one.
    suppress_below
        Counts below this are hidden (privacy), and what would give them away.
    background, warnings
        More paragraphs on what was asked, and on what to know before relying on the answer.
    diagnosis
        What `diagnose` says about the data: its warnings, and its table.
    """
    page = render(
        result,
        trace=trace,
        provenance=provenance,
        title=title,
        suppress_below=suppress_below,
        background=background,
        warnings=warnings,
        diagnosis=diagnosis,
    )
    write_file(path, page.encode("utf-8"))
    return Path(path)


def render(
    result: Shown,
    *,
    trace: Trace | None = None,
    provenance: Mapping[str, object] | None = None,
    title: str | None = None,
    suppress_below: int = 0,
    background: str | Sequence[str] = (),
    warnings: Iterable[str] = (),
    diagnosis: Diagnosis | None = None,
) -> str:
    """The report as one HTML document; the arguments are those of `write`.

    >>> import policytest as pt
    >>> two = pt.instances.paper(2)
    >>> page = render(pt.decide(two.task, pt.TabularSimulator(two.kernel), threshold=0.0), provenance={"seed": 0})
    >>> page.splitlines()[0], "Its value is above 0." in page
    ('<!DOCTYPE html>', True)
    """
    if "summary" not in dir(result):
        raise InputError(f"result is a {type(result).__name__}; pass a Verdict, Estimate, Plan, Selection or study")
    if trace is not None and not isinstance(trace, Trace):
        raise InputError(f"trace is a {type(trace).__name__}; pass a plots.Trace, or none")
    if provenance is not None and not isinstance(provenance, Mapping):
        raise InputError(f"provenance is a {type(provenance).__name__}; pass a dict, such as {{'seed': 0}}")
    below = whole_number("suppress_below", suppress_below)
    if below < 0:
        raise InputError(f"suppress_below is {below}; pass 0 to show all counts, or the smallest that may be shown")
    jinja2, markup = needs("jinja2", "report"), needs("markupsafe", "report").Markup
    story = tell(result, title, below)
    paragraphs = (background,) if isinstance(background, str) else tuple(background)
    story = replace(story, background=(*story.background, *paragraphs), warnings=(*story.warnings, *warnings))
    if diagnosis is not None:
        story = _diagnosed(story, diagnosis)
    shown = [
        {"title": figure.title, "caption": figure.caption, "svg": markup(figure.svg())}
        for figure in figures_of(result, trace, below)
    ]
    facts = dict(provenance or {})
    command = facts.pop("command", None)
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, finalize=_finalize, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(resources.files("policytest.report").joinpath("page.html").read_text("utf-8"))
    sources = [*((str(label), _lines(value)) for label, value in facts.items()), ("versions", _versions())]
    recipe, version = story.recipe if command is None else _lines(command), metadata.version("policytest")
    page = template.render(story=story, figures=shown, provenance=sources, recipe=recipe, version=version)
    return f"{str(page).rstrip()}\n"


def _diagnosed(story: Story, diagnosis: Diagnosis) -> Story:
    """The story with what the data say about the assumptions."""
    rows = tuple((row.label, row.shown, row.remark) for row in diagnosis.summary.rows)
    table = ColumnTable("Do the data speak against the assumptions?", ("test", "found", "remark"), rows, 3)
    return replace(story, warnings=(*diagnosis.warnings, *story.warnings), tables=(*story.tables, table))


def _finalize(value: object) -> object:
    """Names come from users: nothing in them steers anything."""
    return plain(value) if type(value) is str else value


def _lines(value: object) -> list[str]:
    """Anything as lines of text."""
    if isinstance(value, str):
        return value.splitlines() or [""]
    if isinstance(value, Mapping):
        return [f"{key}: {item}" for key, item in value.items()]
    if isinstance(value, Iterable):
        return [str(item) for item in value]
    return [f"{value:,}" if type(value) is int else str(value)]


def _versions() -> list[str]:
    found = [f"policytest {metadata.version('policytest')}", f"Python {platform.python_version()}"]
    return [", ".join([*found, *(f"{name} {metadata.version(name)}" for name in ("numpy", "scipy", "numba"))])]
