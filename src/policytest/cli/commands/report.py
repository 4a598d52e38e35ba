"""``policytest report``: a saved result as a web page."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from policytest._base.errors import InputError
from policytest._base.text import plain
from policytest.cli import options as o
from policytest.cli.exit_codes import DONE, say
from policytest.cli.files import check_files
from policytest.cli.groups import REQUIRED, option
from policytest.cli.output import fingerprint


def report(
    result: Annotated[str, typer.Argument(help="What --json printed: a file, or - for standard input.")],
    out: Path = option("Where to write the web page.", "FILE", default=REQUIRED),
    title: str | None = option("The question, as the heading of the page."),
    suppress_below: int = option(o.HIDE, "N", default=0, min=0),
) -> int:
    """Turn a result that --json printed into one HTML file, with pictures.

    The file is complete in itself: it loads nothing, and opens offline. Exit codes: 0 done, 2 usage or input error, 4
    internal error.
    """
    check_files((result,), {"--out": out})
    from policytest.report import write
    from policytest.results.load import parse, read

    if result == "-":
        found, source = parse(_standard_input(), "standard input"), "standard input"
    else:
        found, source = read(result), fingerprint(result)
    write(found, out, title=title, provenance={"result": source}, suppress_below=suppress_below)
    say(plain(f"The report is in {out}"))
    return DONE


def _standard_input() -> str:
    from policytest._base.files import TEXT_LIMIT

    if sys.stdin is None:
        raise InputError("standard input is closed; pass the name of a file")
    try:
        text = sys.stdin.read(TEXT_LIMIT + 1)
    except UnicodeDecodeError:
        raise InputError("standard input is not a JSON document (it is not text)") from None
    if len(text) > TEXT_LIMIT:
        raise InputError(f"standard input has more than {TEXT_LIMIT:,} characters; no result is that long")
    return text
