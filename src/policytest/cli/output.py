"""How every command ends: the result on stdout, the web page where one is wanted, the way on where there is none."""

from __future__ import annotations

import contextlib
import importlib.util
import shlex
import sys
from collections.abc import Sequence
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policytest._base.table import Shown, page, paragraph
from policytest._base.text import plural
from policytest.cli.exit_codes import CODES, Code, complain, read_or_not, say
from policytest.cli.progress import progress

if TYPE_CHECKING:
    from policytest.cli.options import Output
    from policytest.plots import Trace
    from policytest.results.estimate import Estimate
    from policytest.results.selection import Selection
    from policytest.results.verdict import Verdict

FORECAST_ENTRIES = 2_000  # the largest task with a forecast
FORECAST_SAMPLES = 5_000, 100_000  # further samples of a simulated run: as many as there are, within these limits
REPORT_NEEDS = ("matplotlib", "jinja2")
OUTPUT = {"--html": True, "--out": True, "--json": False, "--quiet": False, "--debug": False}
"""Options that change no result, and whether a value follows."""
arguments: ContextVar[tuple[str, ...]] = ContextVar("arguments", default=())
"""What followed the name of the program, for the report."""


def quiet_stdout(as_json: bool) -> contextlib.AbstractContextManager[object]:
    """Whatever a simulator prints goes to stderr where stdout is to hold one JSON document."""
    return contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()


def show(found: Shown, output: Output, title: str, about: str | Sequence[str], trace: Trace | None = None) -> None:
    """The result on stdout, and as a web page where one is wanted; a trace of the run adds pictures to it."""
    tell(found, output.json)
    if output.html is not None:
        write_report(output.html, found, title, about, trace)


def tell(found: Shown, as_json: bool) -> None:
    """The result on stdout."""
    with read_or_not():
        say(found.to_json() if as_json else found.summary.text())


def write_report(
    file: Path, found: Shown, title: str, about: str | Sequence[str] = (), trace: Trace | None = None, **more: Any
) -> None:
    """The report of a result; where what it needs is not installed a plain page, and a line that says so.

    ``more`` goes to `policytest.report.render`; its provenance is put before what the command line says.
    """
    paragraphs = (about,) if isinstance(about, str) else tuple(about)
    if not can_report():
        write(file, page(title, *map(paragraph, paragraphs), found.summary.html()))
        from policytest._base.errors import installation

        complain(f"{file} is a plain page; {installation('report')} gives it pictures")
        return
    from policytest.report import render

    sources = {**more.pop("provenance", {}), **provenance()}
    write(file, render(found, trace=trace, provenance=sources, title=title, background=paragraphs, **more))


def can_report() -> bool:
    """Whether the packages are installed that reports need."""
    return all(importlib.util.find_spec(name) is not None for name in REPORT_NEEDS)


def course(html: Path | None) -> Trace | None:
    """A trace for the pictures of a report, if there will be one."""
    if html is None or not can_report():
        return None
    from policytest.plots import Trace

    return Trace()


def provenance() -> dict[str, str | list[str]]:
    """What the report says about where the result comes from: the command line, and the files that it names."""
    given = arguments.get()
    if not given:
        return {}
    from policytest.cli.inputs import BUILT_IN

    kept = _without_output(given)
    named = [part.rpartition("=")[2] for part in kept[1:] if part not in BUILT_IN]
    files = [file for file in named if file and is_file(file)]
    found: dict[str, str | list[str]] = {"command": shlex.join(["policytest", *kept])}
    return found | {"files": [fingerprint(file) for file in files]} if files else found


def fingerprint(file: str) -> str:
    """A file by its name, size and hash."""
    import hashlib

    try:
        with open(file, "rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
    except OSError:  # it must not cost the answer
        return f"{Path(file).name}, not readable"
    return f"{Path(file).name}, {plural(Path(file).stat().st_size, 'byte')}, sha256 {digest[:16]}"


def is_file(name: str) -> bool:
    """Whether there is such a file; whatever is odd about the name."""
    try:
        return Path(name).is_file()
    except (OSError, ValueError):
        return False


def _without_output(given: Sequence[str]) -> list[str]:
    """The command line without the options that change no result."""
    kept, skip = [], False
    for part in given:
        name = part.partition("=")[0]
        if skip or name in OUTPUT:
            skip = not skip and OUTPUT[name] and "=" not in part
        else:
            kept.append(part)
    return kept


def with_forecast(verdict: Verdict, quiet: bool) -> Verdict:
    """An undecided verdict with the forecast of what is missing, in tasks where that is soon known."""
    from dataclasses import replace

    from policytest.questions.driver import INTERRUPTED

    if not verdict.may_be_forecast or verdict.reason == INTERRUPTED:  # who pressed Ctrl-C does not wait for it
        return verdict
    layout = getattr(verdict.task, "layout", None)  # episodes have none
    if layout is not None and layout.n_entries > FORECAST_ENTRIES:
        return verdict
    with progress(sys.stderr, quiet) as shown:
        shown.notice("undecided: simulating how many more samples it takes")
        needed = verdict.still_needed(max_samples=forecast_limit(verdict.samples))
        return replace(verdict, forecast=replace(verdict.forecast, needed=needed))


def forecast_limit(samples: int) -> int:
    """How many further samples are simulated."""
    least, most = FORECAST_SAMPLES
    return min(max(least, samples), most)


def ended(verdict: Verdict, accept_uncertified: bool, undecided: str) -> int:
    """The exit code of a verdict; without an answer that it may stand for, stderr says so."""
    if verdict.answer is None:
        complain(undecided)
        return Code.UNDECIDED
    return CODES[verdict.answer] if is_accepted(verdict, accept_uncertified) else Code.UNDECIDED


def is_accepted(found: Verdict | Estimate | Selection, accept_uncertified: bool) -> bool:
    """Whether the exit code may be that of an answer: it is certified, or not certified and accepted all the same."""
    if found.certified:
        return True
    from policytest.results.sentences import uncertified_label, why_uncertified

    why = f"{uncertified_label(found)}: {why_uncertified(found)}"
    if found.refutes_model:
        complain(f"{why}; --accept-uncertified does not apply to a model that the data refute")
    elif accept_uncertified:
        return True
    else:
        complain(f"{why} (exit code 3; --accept-uncertified exits with the code of the answer)")
    return False


def how_to_go_on(verdict: Verdict, checkpoint: Path | None) -> str:
    """What an undecided user may do next."""
    from policytest.questions.driver import NOT_KEPT

    if not verdict.snapshot:
        return f"undecided: {verdict.reason}"
    if verdict.reason.startswith(NOT_KEPT):
        return (
            f"undecided after {plural(verdict.samples, 'sample')}: {verdict.reason}; free some space, and the same "
            f"command goes on from what {checkpoint} holds"
        )
    limit = "--budget" if "budget" in verdict.reason else "--max-samples"
    remedy = f"{checkpoint} holds the run, and the same command continues it (with a larger {limit} if need be)"
    if checkpoint is None:
        remedy = "with --checkpoint FILE a run can be continued"
    return f"undecided after {plural(verdict.samples, 'sample')}; {remedy}"


def write(file: Path, text: str) -> None:
    """Write a text file in one step."""
    from policytest._base.files import write_file

    write_file(file, text.encode("utf-8"))
