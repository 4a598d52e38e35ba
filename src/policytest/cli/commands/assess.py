"""``policytest assess``: do these logs settle it already?"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from policytest._base.table import Table
from policytest._base.text import number, plural
from policytest.cli.exit_codes import CODES, complain
from policytest.cli.files import check_files, files_of_model
from policytest.cli.inputs import find_method, find_model, named_columns, the_bar
from policytest.cli.options import (
    Columns,
    Debug,
    Delta,
    Discount,
    Html,
    InitialState,
    Json,
    Method,
    ModelName,
    PolicyName,
    Quiet,
    RequireCertified,
    RewardModel,
    Skip,
    SuppressBelow,
    Threshold,
)
from policytest.cli.output import certified_or_not, quiet_stdout, show, with_forecast, write_report
from policytest.cli.progress import progress

ORDERED = ("combined", "betting")
"""Methods that need the order of the transitions."""
FEW = 5
"""Pairs and states that a warning names."""


@dataclass(frozen=True)
class Assessment:
    """A verdict, the log it rests on, and what the log says about the assumptions."""

    verdict: Any
    log: Any
    diagnosis: Any

    @property
    def summary(self) -> Table:
        """The verdict, with the log as notes."""
        whole = self.verdict.summary
        if below := self.log.suppress_below:
            from policytest.report.story import safe_rows

            whole = Table(whole.title, safe_rows(whole.rows, below))  # the notes tell how often pairs were seen
        notes = [f"Warning: {warning}" for warning in self.warnings]
        notes += [f"Data: {self.log.summary.title}."]
        notes += [
            f"  {row.label}: {row.shown} {row.remark}".rstrip() for row in self.log.summary.rows if row.shown != "0"
        ]
        if self.diagnosis is not None:
            notes += [f"Warning: {warning}" for warning in self.diagnosis.warnings]
            notes += [f"Hint: {hint}" for hint in self.diagnosis.hints]
        return Table(whole.title, whole.rows, (*whole.notes, *notes))

    @property
    def warnings(self) -> list[str]:
        """What the log does not say."""
        import json

        from policytest.results.verdict import unseen_pairs

        task, counts = self.verdict.task, self.log.counts
        unseen = unseen_pairs(task, counts)
        never_left = [s for s in {s for s, _ in unseen} if not counts.visits[s].any()]
        states, actions = task.states or range(task.n_states), task.actions or range(task.n_actions)
        found = []
        if unseen:
            pairs = ", ".join(f"({states[s]}, {actions[a]})" for s, a in unseen[:FEW]) + (
                ", ..." if unseen[FEW:] else ""
            )
            found.append(f"the log has no row of {pairs}, which the policy takes: anything may follow there")
        if never_left:
            names = [json.dumps(states[s], default=str) for s in sorted(never_left)]
            found.append(
                f"no row begins in {', '.join(names[:FEW])}; if episodes end there, say so in the task: "
                f"terminal = [{', '.join(names)}]"
            )
        return found

    def to_json(self) -> str:
        """The verdict's document, with "log", "warnings" and "diagnosis" in it."""
        import json

        content = json.loads(self.verdict.to_json())
        content["warnings"] = self.warnings
        if below := self.log.suppress_below:
            if any(0 < n < below for row in content["visits"] for n in row):
                del content["visits"]  # all of them: one number alone follows from the sum
            samples = None if 0 < content["samples"] < below else content["samples"]
            content |= {"samples": samples, "changes": [], "still_needed": None}
        content["log"] = json.loads(self.log.to_json())
        if self.diagnosis is not None:
            content["diagnosis"] = json.loads(self.diagnosis.to_json())
        return json.dumps(content, indent=2)

    def provenance(self) -> dict[str, Any]:
        """The rows, and where they came from."""
        rows = {row.label: f"{row.shown} {row.remark}".strip() for row in self.log.summary.rows}
        data = [f"{file.name}, {plural(file.size, 'byte')}, {file.fingerprint}" for file in self.log.files]
        return {**rows, **({"logs": data} if data else {})}


def assess(
    model: ModelName,
    data: Annotated[list[str], typer.Argument(help="Logs: CSV, Parquet or JSON lines; files, folders or patterns.")],
    threshold: Threshold = None,
    delta: Delta = 0.05,
    method: Annotated[
        Method | None, typer.Option(help="How to test; otherwise combined where there is a column order, else ptst.")
    ] = None,
    columns: Columns = None,
    skip: Skip = None,
    by_episode: Annotated[
        bool,
        typer.Option("--by-episode", help="The order begins anew in each episode; ids were given when episodes began."),
    ] = False,
    add_to: Annotated[Path | None, typer.Option(metavar="FILE", help="Add to the counts that --save kept.")] = None,
    save: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Keep the counts here, for --add-to; then judged by ptst.")
    ] = None,
    diagnose: Annotated[bool, typer.Option(help="Test the assumptions too: Markov, and the same at all times.")] = True,
    suppress_below: SuppressBelow = 0,
    json: Json = False,
    quiet: Quiet = False,
    html: Html = None,
    require_certified: RequireCertified = False,
    policy: PolicyName = None,
    discount: Discount = None,
    rewards: RewardModel = None,
    initial: InitialState = None,
    debug: Debug = False,
) -> int:
    """Do these logs settle already whether the value is above the threshold?

    A row is a transition, with the columns s, a, s_next and perhaps order, episode, count, reward. If the logs do not
    suffice, the answer says how much more is needed, and from which pairs.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 the logs do not settle it, 4 internal error.
    """
    with quiet_stdout(json):
        problem = find_model(model, policy, discount, rewards, initial)
        from policytest.sources.logged.paths import find

        check_files((*files_of_model(model), policy, *find(data)), {"--save": save, "--html": html})
        found = _assess(
            problem, data, method, by_episode,
            {"columns": named_columns(columns), "skip": tuple(skip or ())}, quiet,
            (add_to, save, diagnose, suppress_below),
            {"threshold": the_bar(threshold, problem), "delta": delta},
        )  # fmt: skip
    show(found, json, None, "", "")
    if html is not None:
        about = (f"Model: {model}", f"Data: {found.log.summary.title}.")
        more = {"provenance": found.provenance(), "suppress_below": suppress_below, "diagnosis": found.diagnosis}
        more["warnings"] = found.warnings
        write_report(html, found.verdict, "Is this policy good enough?", about, **more)
    if found.verdict.answer is None:
        complain(f"undecided: {found.verdict.reason}")
    elif found.verdict.samples < found.log.counts.total and not quiet and not suppress_below:
        complain(
            f"answered after {plural(found.verdict.samples, 'transition')} of {number(found.log.counts.total)}; the "
            "estimate and the interval rest on these"
        )
    return certified_or_not(found.verdict, require_certified, CODES[found.verdict.answer])


def _assess(
    problem: Any,
    data: list[str],
    method: Any,
    by_episode: bool,
    reading: dict[str, Any],
    quiet: bool,
    extras: Any,
    question: Any,
) -> Assessment:
    from policytest._base.errors import InputError
    from policytest.questions.assess import assess as assess_data
    from policytest.sources.logged.log import Log
    from policytest.sources.logged.read import logs

    add_to, save, diagnose, suppress_below = extras
    before = None if add_to is None else Log.load(add_to, problem.task)
    with progress(sys.stderr, quiet) as shown:
        read = _Reading(shown.notice)
        log = logs(data if len(data) > 1 else data[0], problem.task, **reading, add_to=before, progress=read)
    kept = add_to is not None or save is not None  # the same test every day: one that needs no order
    if kept and method in ORDERED:
        raise InputError(f"--method {method} needs the order of the rows, which --save does not keep; leave it out")
    free = method is None and not kept  # to choose what suits the log
    in_order = log.in_order(by_episode) if free else method in ORDERED
    chosen = find_method(method or ("combined" if in_order else "ptst"), None, None, None, problem)
    observed = log.transitions(by_episode) if in_order else log.counts
    verdict = with_forecast(assess_data(problem.task, observed, method=chosen, **question), quiet)
    diagnosis = _diagnosed(log, problem.task, by_episode) if diagnose and before is None else None
    if free and not in_order:
        complain("judged by ptst, for want of an order; with a column order, betting mostly needs far fewer rows")
    if save is not None:
        log.save(save)
        complain(f"{save} holds the counts of {plural(log.counts.total, 'transition')}")
    diagnosis = None if diagnosis is None else diagnosis.shown(suppress_below)
    return Assessment(verdict, log.shown(suppress_below), diagnosis)


def _diagnosed(log: Any, task: Any, by_episode: bool) -> Any:
    """What the log says about the assumptions; nothing, where it has no order, or where that cannot be computed."""
    if log.frame is None or "order" not in log.frame.roles:
        return None
    from policytest._base.errors import InputError
    from policytest.sources.logged.diagnose import diagnose_log

    try:
        return diagnose_log(task, log, by_episode)
    except InputError as error:  # it must not cost the verdict
        complain(f"the assumptions were not tested: {error}")
        return None


class _Reading:
    """How far the reading is: told once a second, and in steps of a tenth at least; short work is not mentioned."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.due, self.share = tell, time.monotonic() + 1.0, 0.0

    def __call__(self, share: float) -> None:
        if share >= self.share + 0.1 and time.monotonic() >= self.due:
            self.share, self.due = share, time.monotonic() + 1.0
            self.tell(f"reading: {100 * share:.0f}%")
