"""Commands about recorded trials: a table with a row a trial, in the place of a model."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from policytest._base.errors import InputError
from policytest._base.text import nats, plural
from policytest.cli import options as o
from policytest.cli.episodes import is_log
from policytest.cli.exit_codes import DONE, Code, complain
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import dashed, option
from policytest.cli.inputs import named_columns
from policytest.cli.output import ended, is_accepted, quiet_stdout, show

if TYPE_CHECKING:
    from policytest.results.verdict import Verdict
    from policytest.sources.logged.trials import Trials as Table

MOST_NAMED = 8
"""Agents that a line lists."""
WHICH, GOOD = "Which agent is better?", "Is this agent good enough?"
"""Titles of pages."""
EVERY = 2.0
"""Seconds between two lines of progress, at least."""
NOT_FOR_TRIALS = "{} is not for recorded trials (a table in the place of the model); leave it out"


@dataclass(frozen=True)
class Trials:
    """Of a table with a row a trial: whose trials, and of which tasks."""

    a: str | None = option("A table of trials: the agent that is asked about, by its name in the table.", "NAME")
    b: str | None = option("A table of trials: the agent that it is compared with.", "NAME")
    tasks: list[str] | None = option(
        "A table of trials: one of the tasks, which were fixed beforehand; may be repeated. By default all of them.",
        "NAME",
        names=("--task",),
    )
    ratio: tuple[int, int] | None = option(
        "A table of trials without pairs: how many of --a, and of --b, make an outcome, fixed beforehand; by default 1 "
        "1. With 1 4 each trial of --a is compared with the mean of the next 4 of --b.",
        "N N",
    )
    return_range: o.Range = option("A table of trials: where every outcome lies.", "LOW HIGH")
    margin: float = option("A table of trials: by how much --a must be better than --b.", default=0.0)
    budget: int | None = option(
        "A table of trials: how many there will be in each task at most, of each agent, fixed beforehand.", "N"
    )


@dataclass(frozen=True)
class TrialQuestion:
    """What is asked about a table of trials."""

    table: str
    agents: Trials
    columns: list[str] | None
    delta: float
    bar: float | None
    indifference: float = 0.0
    compares: bool = False  # whether two agents are needed

    def read(self, place: str | None = None) -> Table:
        """The trials of all agents; a place is where a copy of the rows so far is, of a table that is growing."""
        from policytest.sources.logged.trials import read_trials

        columns = named_columns(self.columns)
        if self.agents.b is None and not self.compares:
            columns.setdefault("pair", None)  # nothing is paired
        ends, tasks = self.agents.return_range, self.agents.tasks
        return read_trials(place or self.table, columns, ends, tasks, growing=place is not None)

    def verdict(self, found: Table) -> Verdict:
        """The answer, by all trials there are."""
        from policytest.questions.assess import assess
        from policytest.questions.compare import compare

        first = found[self.first_of(found)]
        if self.agents.b is None:
            if self.compares:
                raise InputError(
                    f"the table has the agents {listed(found.agents)}; say which to compare with: --b NAME"
                )
            if self.bar is None:
                raise InputError("no threshold: pass --threshold R, or name the agent to compare with (--b NAME)")
            return assess(first, threshold=self.bar, delta=self.delta, budget=self.agents.budget)
        if self.agents.b == self.agents.a:
            raise InputError(f"--a and --b are both {self.agents.a!r}; name two agents")
        return compare(
            first,
            found[self.agents.b],
            delta=self.delta,
            margin=self.bar or 0.0,
            indifference=self.indifference,
            budget=self.agents.budget,
            ratio=self.agents.ratio or (1, 1),
        )

    def first_of(self, found: Table) -> str:
        """The agent that is asked about; the only one in the table if nobody is named."""
        if self.agents.a is not None:
            return self.agents.a
        if len(found.agents) == 1 and self.agents.b is None:
            return found.agents[0]
        raise InputError(f"the table has the agents {listed(found.agents)}; say which is asked about: --a NAME")

    def about(self, found: Table) -> tuple[str, ...]:
        """What the table was read as, and what was left out."""
        asked = [name for name in (self.agents.a or self.first_of(found), self.agents.b) if name is not None]
        return self.about_others(found, [name for name in found.agents if name not in asked])

    def about_others(self, found: Table, others: list[str]) -> tuple[str, ...]:
        """The same, where these agents were left out."""
        left = [f"Left out: {plural(found.of_agents(others), 'row')} of {listed(others)}."] if others else []
        left += [f"Left out: {plural(found.left_out, 'row')} of other tasks."] if found.left_out else []
        return (f"Trials: {self.table}, {plural(found.rows, 'row')}.", found.about_columns, *left)


def listed(names: tuple[str, ...] | list[str]) -> str:
    """Names of agents on a line."""
    return ", ".join(names[:MOST_NAMED]) + (", ..." if len(names) > MOST_NAMED else "")


def is_table(model: str, agents: Trials) -> bool:
    """Whether a command is about a table of trials: by its name; refused where only the options say so."""
    if is_log(model) and not model.startswith(("gym:", "python:")):
        return True
    for name, value in (("--a", agents.a), ("--b", agents.b), ("--task", agents.tasks), ("--ratio", agents.ratio)):
        if value:
            raise InputError(
                f"{name} is for a table of trials, and {model} is not one; name a CSV, JSON lines or Parquet file"
            )
    return False


def check_unused(groups: Sequence[object], *used: str, **others: object) -> None:
    """Refuse options that have no meaning for trials: those of groups that are not at their default, and others."""
    given = {dashed(name): value for name, value in others.items() if value}
    for group in groups:
        given |= {dashed(name): value for name, value, default in _options(group) if value != default}
    for name in given:
        if name not in used:
            raise InputError(NOT_FOR_TRIALS.format(name))


def check_trials(given: Trials) -> None:
    """Refuse options of trials where no agent is named."""
    for name, value in vars(given).items():
        name = "task" if name == "tasks" else name
        if value:
            raise InputError(
                f"{dashed(name)} is for a table of trials; name the agent that is asked about with --a NAME"
            )


def _options(group: Any) -> Iterator[tuple[str, object, object]]:
    """The options of a group: names, values, and what they are if nothing is said."""
    for one in fields(group):
        yield one.name, getattr(group, one.name), one.default


def answered(asked: TrialQuestion, output: o.Output, title: str) -> int:
    """The answer by the trials that are there: what a command prints, and its exit code."""

    def judged() -> tuple[Verdict, tuple[str, ...]]:
        found = asked.read()
        return asked.verdict(found), asked.about(found)

    return told(asked.table, output, title, judged)


def told(table: str, output: o.Output, title: str, judged: Callable[[], tuple[Verdict, tuple[str, ...]]]) -> int:
    """Print a verdict and what it is about."""
    check_files([] if table == "-" else files_of(o.Question(), log=[table]), {"--html": output.html})
    with quiet_stdout(output.json):
        verdict, about = judged()
    for words in () if output.quiet else about[1:]:
        complain(words)
    show(verdict, output, title, about)
    return ended(verdict, output.accept_uncertified, f"undecided: {verdict.reason}")


def identified(asked: TrialQuestion, names: list[str], output: o.Output) -> int:
    """Which agent is best, of all in the table, or of those with these names."""
    from policytest.questions.identify import identify

    check_files(files_of(o.Question(), log=[asked.table]), {"--html": output.html})
    with quiet_stdout(output.json):
        found = asked.read()
        names = names or list(found.agents)
        selection = identify(
            [found[name] for name in names],
            delta=asked.delta,
            indifference=asked.indifference,
            budget=asked.agents.budget,
        )
    others = [name for name in found.agents if name not in names]
    about = asked.about_others(found, others)
    for words in () if output.quiet else about[1:]:
        complain(words)
    show(selection, output, "Which agent is best?", about)
    if selection.answered:
        return DONE if is_accepted(selection, output.accept_uncertified) else Code.UNDECIDED
    complain(f"undecided: {selection.reason}")
    return Code.UNDECIDED


# ---------------------------------------------------------------- a table that grows


def watched(asked: TrialQuestion, output: o.Output, title: str, follow: bool, idle: float | None) -> int:
    """Follow a growing table, and end as `answered`."""
    return told(asked.table, output, title, lambda: _followed(asked, follow, idle, output.quiet))


def _followed(asked: TrialQuestion, follow: bool, idle: float | None, quiet: bool) -> tuple[Verdict, tuple[str, ...]]:
    """The verdict as soon as there is one, of a growing table: that of the same command on the rows so far."""
    verdict, due = None, 0.0
    missing = "there is no trial yet"
    about: tuple[str, ...] = ()
    try:
        for place in _copies(asked.table, follow, idle):
            found = asked.read(place)
            if awaited := _awaited(asked, found):
                if awaited != missing and not quiet:
                    complain(f"waiting: {awaited}")
                missing = awaited
                continue
            verdict, about = asked.verdict(found), asked.about(found)
            if verdict.answer is not None:
                break
            if not quiet and time.monotonic() >= due:
                due = time.monotonic() + EVERY
                evidence = nats(max(*verdict.evidence, 0.0))
                complain(f"{plural(found.rows, 'trial')}: evidence {evidence} of {nats(verdict.required)}")
    except KeyboardInterrupt:
        complain("interrupted")
    if verdict is None:
        raise InputError(f"{asked.table}: {missing}", "start again when there are some; check the names")
    return verdict, about


def _awaited(asked: TrialQuestion, found: Table) -> str:
    """Which agent has no trial in which task yet, and what there is instead; "" once each has one in each task."""
    tasks = found.tasks if asked.agents.tasks is None else asked.agents.tasks
    for name in (asked.agents.a, asked.agents.b):
        if name is None:
            continue
        if name not in found.logs:
            others = f"; there are trials of {listed(found.agents)}" if found.agents else ""
            others += f"; {plural(found.left_out, 'row')} of other tasks left out" if found.left_out else ""
            return f"there is no trial of {name} yet{others}"
        if (column := found[name].task) is not None:
            done = list(dict.fromkeys(column.tolist()))
            if lacks := [task for task in tasks if task not in done]:
                return f"there is no trial of {name} in the task {lacks[0]} yet; there are trials in {listed(done)}"
    return ""


def _copies(table: str, follow: bool, idle: float | None) -> Iterator[str]:
    """The complete lines so far, in a file of the same kind, each time there are more of them."""
    from policytest.sources.logged.stream import lines

    with tempfile.TemporaryDirectory(prefix="policytest-") as folder:
        copy, rows = "", 0
        for new in lines(table, follow, idle=idle):
            filled = [line for line in new if line.strip()]
            if not filled:
                continue
            if not copy:
                name = Path(table).name if table != "-" else "trials.jsonl" if filled[0][:1] == b"{" else "trials.csv"
                copy = os.path.join(folder, name)
            with open(copy, "ab") as file:
                file.writelines(new)
            rows += len(filled)
            if rows > (0 if copy.endswith((".jsonl", ".ndjson")) else 1):  # a header is not a trial
                yield copy
