"""``policytest watch``: follow a growing log, and speak when it suffices."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer

from policytest._base.text import nats, plural
from policytest.cli import options as o
from policytest.cli.exit_codes import complain
from policytest.cli.files import check_files, files_of
from policytest.cli.groups import option
from policytest.cli.inputs import find_method, find_model, named_columns, the_bar
from policytest.cli.output import ended, quiet_stdout, show, with_forecast
from policytest.cli.trials import GOOD, WHICH, TrialQuestion, Trials, check_trials, check_unused, is_table, watched

if TYPE_CHECKING:
    from collections.abc import Iterator

    from policytest.data.transitions import Transitions
    from policytest.questions.watch import Watch
    from policytest.sources.logged.stream import Parser

EVERY = 2.0
"""Seconds between two lines of progress, at least."""


def watch(
    model: o.ModelName,
    log: Annotated[str, typer.Argument(help="A growing file of JSON lines or CSV; - for standard input.")] = "-",
    *,
    threshold: float | None = o.THRESHOLD,
    delta: float = o.DELTA,
    question: o.Question,
    method: o.LogMethod | None = option("How to test; by default betting.", under=o.METHOD),
    data: Annotated[o.Data, o.Only("column", "skip")],
    follow: bool = option("Wait for new lines at the end of the file.", default=True, under=o.DATA),
    idle: float | None = option("Stop undecided after this many seconds without a new line.", under=o.SAMPLING, min=0),
    sampling: Annotated[o.Sampling, o.Only("max_samples")],
    trials: Trials,
    output: o.Output,
) -> int:
    """Follow a growing log of transitions, and answer as soon as it settles the question.

    Each line is a transition: {"s": ..., "a": ..., "s_next": ...}, or a row of CSV after a header. Without s_next, the
    next line of the same episode says what followed. The answer is the one of `assess` on the lines so far; looking all
    the time costs nothing, the guarantee holds at every moment.

    With --a, and perhaps --b, of a table with a row a trial in the place of the model: the answer of `assess`, or of
    `compare`, on the trials so far.

    Exit codes: 0 above, 1 below, 2 usage or input error, 3 undecided at the end, not certified or interrupted, 4
    internal error.
    """
    if trials.a is not None and (model == "-" or is_table(model, trials)):
        unused = {"max_samples": sampling.max_samples, "method": method, "log": log != "-" and log}
        check_unused((question, data), "--column", **unused)
        bar = trials.margin if trials.b is not None else threshold
        asked = TrialQuestion(model, trials, data.column, delta, bar)
        return watched(asked, output, GOOD if trials.b is None else WHICH, follow, idle)
    check_trials(trials)
    check_files((*files_of(question, model), log), {"--html": output.html})
    max_samples = sampling.max_samples
    with quiet_stdout(output.json):
        from policytest.questions.driver import sampling_limit
        from policytest.questions.watch import Watch
        from policytest.sources.logged.stream import Parser, lines

        problem = find_model(model, question)
        sampling_limit(max_samples)
        bar = the_bar(threshold, problem)
        test = Watch(problem.task, bar, delta, find_method(method))
        place = "standard input" if log == "-" else log
        parser = Parser(problem.task, named_columns(data.column), tuple(data.skip or ()), place, bins=problem.bins)
        due = 0.0
        try:
            for new in () if test.found else _parts(parser, lines(log, follow, idle=idle)):
                room = len(new) if max_samples is None else max_samples - test.size
                new = new.first(room)
                found = test.add(new.s, new.a, new.x, new.other_rewards, new.selected, new.r, new.episode)
                if found is not None or (max_samples is not None and test.size >= max_samples):
                    break
                if not output.quiet and (test.size or parser.waiting) and time.monotonic() >= due:
                    due = time.monotonic() + EVERY
                    _tell(test, parser)
        except KeyboardInterrupt:
            complain("interrupted")
        verdict = with_forecast(test.verdict(), output.quiet)
    if parser.left_out:
        complain(f"{plural(parser.left_out, 'row')} dropped (--skip)")
    if parser.unfinished:
        complain(f"{plural(parser.unfinished, 'last row')} of unfinished episodes left out")
    notes = [f"Note: {note}." for note in parser.notes]
    for note in () if output.quiet else notes:
        complain(note)
    about = (f"Model: {model}; log: {place}, {plural(parser.line, 'line')} read", *notes)
    show(verdict, output, "Is this policy good enough?", about)
    return ended(
        verdict, output.accept_uncertified, f"undecided after {plural(test.size, 'transition')}: {verdict.reason}"
    )


def _parts(parser: Parser, arriving: Iterator[list[bytes]]) -> Iterator[Transitions]:
    """The transitions as they become known; and when the log has ended, those after rows that waited in vain."""
    for new in arriving:
        yield parser.transitions(new)
    yield parser.end()


def _tell(test: Watch, parser: Parser) -> None:
    size, evidence, level = test.check()
    wait = ""
    if (first := parser.waiting.first) is not None:
        wait = f"; {plural(len(parser.waiting), 'row')} from line {first.line} on wait for the next row of its episode"
    complain(f"{plural(size, 'transition')}: evidence {nats(max(*evidence, 0.0))} of {nats(level)}{wait}")
