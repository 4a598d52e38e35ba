"""How every command ends: the result on stdout, the web page where one is wanted, the way on where there is none."""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policytest._display import page, paragraph, plural
from policytest.cli.exit_codes import read_or_not, say

if TYPE_CHECKING:
    from policytest.verdict import Verdict


def quiet_stdout(as_json: bool) -> contextlib.AbstractContextManager[Any]:
    """Whatever a simulator prints goes to stderr where stdout is to hold one JSON document."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def show(found: Any, as_json: bool, html: Path | None, title: str, about: str) -> None:
    """The result on stdout, and as a web page where one is wanted."""
    with read_or_not():
        say(found.to_json() if as_json else found.summary.text())
    if html is not None:
        write(html, page(title, paragraph(about), found.summary.html()))


def how_to_go_on(verdict: Verdict, checkpoint: Path | None) -> str:
    """What an undecided user may do next."""
    if not verdict.snapshot:
        return f"undecided: {verdict.reason}"
    remedy = (
        "with --checkpoint FILE a run can be continued"
        if checkpoint is None
        else f"{checkpoint} holds the run, and the same command continues it (with a larger --max-samples if need be)"
    )
    return f"undecided after {plural(verdict.samples, 'sample')}; {remedy}"


def write(file: Path, text: str) -> None:
    """Write a text file in one step."""
    from policytest._files import write_file

    write_file(file, text.encode("utf-8"))
