"""``policytest assess``: do these logs settle it already?"""

from __future__ import annotations

import sys
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from policytest._base.errors import InputError
from policytest._base.table import Document, Shown, Table
from policytest._base.text import number, plural
from policytest.cli import options as o
from policytest.cli.episodes import Episodes, assess_episodes, is_log, read_episodes, table_columns
from policytest.cli.exit_codes import as_options, complain
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import as_typed, option
from policytest.cli.inputs import find_method, find_model, read_log, the_bar
from policytest.cli.output import ended, quiet_stdout, show, tell, with_forecast, write_report
from policytest.cli.progress import progress
from policytest.cli.trials import GOOD, TrialQuestion, Trials, answered, check_trials, check_unused, is_table

if TYPE_CHECKING:
    from policytest.mdp.task import Task
    from policytest.results.diagnosis import Diagnosis
    from policytest.results.verdict import Verdict
    from policytest.sources.logged.log import Log
    from policytest.sources.tasks.files import Model

ORDERED = ("betting", "log-betting")
"""Methods that need the order of the transitions."""
NO_LOG = (
    "no log: name its files after the task (with --assume propensities or episodes no task is needed; for a table of "
    "trials, name the agent that is asked about with --a NAME)"
)
TITLE = "Is this policy good enough?"
FEW = 5
"""Pairs and states that a warning names."""


@dataclass(frozen=True)
class Assessment(Shown):
    """A verdict, the log it rests on, and what the log says about the assumptions."""

    schema = 2  # that of the verdict

    verdict: Verdict
    log: Log
    diagnosis: Diagnosis | None

    @property
    def summary(self) -> Table:
        """The verdict, with the log as notes."""
        whole = self.verdict.summary
        if below := self.log.suppress_below:
            from policytest.report.story import safe_rows

            whole = Table(whole.title, safe_rows(whole.rows, below))  # the notes tell how often pairs were seen
        told = self.log.summary
        notes = [f"Warning: {warning}" for warning in self.warnings]
        notes += [f"Data: {told.title}."]
        notes += [f"  {row.label}: {row.shown} {row.remark}".rstrip() for row in told.rows if row.shown != "0"]
        notes += [as_options(note) for note in told.notes]
        if self.diagnosis is not None:
            notes += [f"Warning: {warning}" for warning in self.diagnosis.warnings]
            notes += [f"Hint: {hint}" for hint in self.diagnosis.hints]
        return Table(whole.title, whole.rows, (*whole.notes, *notes))

    @property
    def warnings(self) -> list[str]:
        """What the log does not say."""
        from policytest.results.verdict import unseen_pairs

        task, counts = self.verdict.task, self.log.counts
        unseen = unseen_pairs(task, counts)
        states, actions = task.states or range(task.n_states), task.actions or range(task.n_actions)
        never_left = [states[s] for s in sorted({s for s, _ in unseen}) if not counts.visits[s].any()]
        found = []
        if unseen:
            pairs = ", ".join(f"({states[s]}, {actions[a]})" for s, a in unseen[:FEW])
            more = ", ..." if unseen[FEW:] else ""
            found.append(f"the log has no row of {pairs}{more}, which the policy takes: anything may follow there")
        free = [state for state in never_left if _can_end(task, [state])]
        if free and _can_end(task, free):
            found.append(
                f"no row begins in {_listed(free[:FEW])}; if episodes end there, say so in the task: "
                f"terminal = [{_listed([*(task.terminal or ()), *free])}]"
            )
        if earning := [state for state in never_left if state not in free]:
            found.append(
                f"no row begins in {_listed(earning[:FEW])}, and the task pays a reward there; if episodes end there, "
                "put that reward on the transitions that lead there, and add the state to terminal"
            )
        return found

    def data(self) -> Document:
        """That of the verdict, with "log", "warnings" and "diagnosis"; small counts are left out."""
        content = {**self.verdict.data(), "warnings": self.warnings}
        if below := self.log.suppress_below:
            visits = content["visits"]
            if ((visits > 0) & (visits < below)).any():
                del content["visits"]  # all of them: one number alone follows from the sum
            samples = None if 0 < content["samples"] < below else content["samples"]
            content |= {"samples": samples, "changes": [], "still_needed": None}
        content["log"] = {"schema": self.log.schema, **self.log.data()}
        if self.diagnosis is not None:
            content["diagnosis"] = {"schema": self.diagnosis.schema, **self.diagnosis.data()}
        return content

    def provenance(self) -> dict[str, str | list[str]]:
        """The rows, and where they came from."""
        rows = {row.label: f"{row.shown} {row.remark}".strip() for row in self.log.summary.rows}
        data = [f"{file.name}, {plural(file.size, 'byte')}, {file.fingerprint}" for file in self.log.files]
        return {**rows, **({"logs": data} if data else {})}


def _can_end(task: Task, states: Sequence[Hashable]) -> bool:
    """Whether the task takes these states as terminal ones: it does not if they earn something."""
    try:
        replace(task, terminal=(*(task.terminal or ()), *states))
    except InputError:
        return False
    return True


def _listed(states: Iterable[Hashable]) -> str:
    """Names of states as a task file has them."""
    import json

    return ", ".join(json.dumps(state, default=str) for state in states)


@dataclass(frozen=True)
class Counts:
    """Counts that are kept from one day to the next."""

    add_to: Path | None = option("Add these logs to counts that --save wrote.", "FILE")
    save: Path | None = option("Save the counts, for --add-to; the method is then ptst.", "FILE")
    suppress_below: int = option(o.HIDE, "N", default=0, min=0)

    @property
    def kept(self) -> bool:
        """Whether the test is to be the same every day: one that needs no order."""
        return self.add_to is not None or self.save is not None


def assess(
    model: o.ModelName,
    data: Annotated[
        list[str] | None, typer.Argument(help="Logs: CSV, Parquet or JSON lines; files, folders or patterns.")
    ] = None,
    *,
    threshold: float | None = o.THRESHOLD,
    delta: float = o.DELTA,
    question: o.Question,
    method: o.LogMethod | None = option(
        "How to test; by default betting where the log has an order column, else ptst.", under=o.METHOD
    ),
    rows: Annotated[o.Data, o.Only("column", "skip", "by_episode")],
    diagnose: bool = option(
        "Also test whether the data are Markov and stationary; answers about bins need it.", default=True, under=o.DATA
    ),
    kept: Counts,
    episodes: Episodes,
    trials: Annotated[Trials, o.Only("a", "tasks", "budget")],
    output: o.Output,
) -> int:
    """Do these logs already settle whether the value is above the threshold?

    A row is a transition, with the columns s, a, s_next and perhaps order, episode, count, reward. If the logs do not
    suffice, the answer says how much more is needed, and from which pairs. With --assume propensities or episodes a row
    is a step of an episode, with the columns reward and perhaps episode, order, propensity, target.

    With --a, of a table with a row a trial in the place of the task: is the success rate, or the mean outcome, of this
    agent above the threshold? With a column task it is the mean over tasks.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 the logs do not settle it or the answer is not certified, 4
    internal error.
    """
    if trials.a is not None and is_table(model, trials):
        check_unused((question, rows, kept, episodes), "--column", "--return-range", method=method, data=data)
        trials = replace(trials, return_range=episodes.return_range)
        return answered(TrialQuestion(model, trials, rows.column, delta, threshold), output, GOOD)
    check_trials(trials)
    if episodes.assume != o.LogAssumption.markov:
        _only_of_tables(method, rows, kept, episodes.ladder)
        names = [model, *(data or ())]
        files = names if is_log(model) else names[1:]
        if not files:
            raise InputError(NO_LOG)
        check_files(files_of(question, log=files), {"--html": output.html})
        with quiet_stdout(output.json):
            verdict, told = assess_episodes(names, threshold, delta, rows.column, question, episodes, method)
        show(verdict, output, TITLE, told)
        return ended(verdict, output.accept_uncertified, f"undecided: {verdict.reason}")
    if not episodes.ladder:
        episodes.check_unused()
    if not data:
        raise InputError(NO_LOG)
    with quiet_stdout(output.json):
        problem = find_model(model, question)
        check_files(files_of(question, model, log=data), {"--save": kept.save, "--html": output.html})
        bar = the_bar(threshold, problem)
        log = _read(data, problem, rows, kept.add_to, output.quiet)
        log = log.by_episode() if rows.by_episode else log
        diagnosis = _diagnosed(log, problem.task) if diagnose and kept.add_to is None else None
        log = _with_cells(log, problem.task, diagnosis)
        verdict = _judged(log, problem.task, method, kept.kept, bar, delta)
        verdict = with_forecast(verdict, output.quiet)
        if episodes.ladder:
            from policytest.questions.ladder import with_ladder

            recorded = read_episodes(data, rows.column, problem, question, episodes)
            verdict = with_ladder(verdict, log.observed(), recorded)
        below = kept.suppress_below
        found = Assessment(verdict, log.shown(below), None if diagnosis is None else diagnosis.shown(below))
        if kept.save is not None:
            log.save(kept.save)
            complain(f"{kept.save} holds the counts of {plural(log.counts.total, 'transition')}")
    tell(found, output.json)
    if output.html is not None:
        about = (f"Model: {model}", f"Data: {found.log.summary.title}.", *map(as_options, found.log.summary.notes))
        parts: Document = {"diagnosis": found.diagnosis, "provenance": found.provenance(), "warnings": found.warnings}
        write_report(output.html, verdict, TITLE, about, suppress_below=below, **parts)
    if verdict.answer and verdict.samples < log.counts.total and not output.quiet and not below:
        these = "all of them" if verdict.counts.total > verdict.samples else "these"
        complain(
            f"answered after {plural(verdict.samples, 'transition')} of {number(log.counts.total)}; the "
            f"estimate and the interval rest on {these}"
        )
    return ended(verdict, output.accept_uncertified, f"undecided: {verdict.reason}")


def _read(data: list[str], model: Model, rows: o.Data, add_to: Path | None, quiet: bool) -> Log:
    """The logs, added to the counts that were saved."""
    from policytest.sources.logged.log import Log

    before = None if add_to is None else Log.load(add_to, model.task)
    with progress(sys.stderr, quiet) as shown:
        return read_log(data, model, replace(rows, column=table_columns(rows.column)), shown.notice, before)


def _only_of_tables(method: str | None, rows: o.Data, kept: Counts, ladder: bool) -> None:
    """Refuse options that have no meaning for episodes alone."""
    given = {
        f"--method {method}": method not in (None, "large-sample"),
        **as_typed(rows),
        **as_typed(kept),
        "--ladder": ladder,
    }
    for name, value in given.items():
        if value and name != "--column":
            raise InputError(f"{name} is for a Markov table; leave it out, or use --assume markov")


def _judged(log: Log, task: Task, method: str | None, kept: bool, bar: float, delta: float) -> Verdict:
    """The verdict by this method, or by the one that suits the log."""
    from policytest.questions.assess import assess as assess_data

    if kept and method in ORDERED:
        raise InputError(f"--method {method} needs the order of the rows, which --save does not keep; leave it out")
    free = method is None and not kept
    observed = log.observed() if free else log.transitions() if method in ORDERED else log.counts
    verdict = assess_data(task, observed, bar, delta, None if method is None else find_method(method))
    if free and not log.in_order():
        used = "ptst" if "KL boxes" not in verdict.method else "boxes"
        complain(
            f"no order column, so the order-free method {used} was used; with one, betting mostly needs far fewer rows"
        )
    return verdict


def _with_cells(log: Log, task: Task, diagnosis: Diagnosis | None) -> Log:
    """The log with what the diagnosis says of its cells, where its states are cells."""
    from policytest.questions.cells import has_cells, said_of_cells

    return log.with_cells(said_of_cells(diagnosis)) if has_cells(task) else log


def _diagnosed(log: Log, task: Task) -> Diagnosis | None:
    """What the log says about the assumptions; None where it has no order, or where that cannot be computed."""
    if log.columns is None and log.frame is None:
        return None
    from policytest.sources.logged.diagnose import diagnose_log

    try:
        return diagnose_log(task, log)
    except InputError as error:  # it must not cost the verdict
        complain(f"the assumptions were not tested: {as_options(str(error))}")
        return None
