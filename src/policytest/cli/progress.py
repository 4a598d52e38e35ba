"""What a run shows while it works: a live line on a terminal, a few plain lines elsewhere.

`Lines`, or a `Bar`, is handed to ``decide`` and called with every check, thousands of times a second; most calls end at
once. Nothing shown here goes into a result, so this is the one place with a clock. A stream that breaks (a closed
terminal, a pipe nobody reads) silences the display and never stops the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Self, TextIO

from policytest._base.text import nats, number, plain, plural
from policytest.cli.exit_codes import complain

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.progress import Progress

    from policytest.results.selection import SelectionCheck
    from policytest.results.verdict import Check

COMPILING = "compiling what this command needs, once: up to a minute; later runs start at once"
REFRESH = 0.25
"""Seconds between two updates of the live line, at least."""
FIRST_INTERVAL = 1.0
"""Seconds before the first value interval: short runs need none."""
SHARE = 0.1
"""The largest share of the time that value intervals may take."""
WIDE = 110
"""Columns that the whole live line takes; on a narrower terminal it is shorter."""
FIRST_LINE = 1000
"""The first plain line is shown after this many samples, and then each time they have doubled."""
COUNTED_LINES = 10
"""Plain lines about finished runs, at most."""


@contextmanager
def compiling_told(quiet: bool) -> Iterator[None]:
    """Say, once, when code has to be compiled that is not in the cache on disk."""
    if quiet:
        yield
        return
    from numba.core.event import Listener, install_listener

    class Told(Listener):
        told = False

        def on_start(self, event: object) -> None:
            if not self.told:
                self.told = True
                complain(COMPILING)

        def on_end(self, event: object) -> None:
            pass

    with install_listener("numba:compile", Told()):
        yield


class Lines:
    """Plain lines about the checks it is called with: one each time the samples have doubled; none without a stream.

    ``with Lines(sys.stderr) as shown: decide(..., progress=shown)``
    """

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        self._begun = False
        self._next: float = FIRST_LINE
        self._next_count = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.write(self.close)

    def __call__(self, check: Check | SelectionCheck) -> None:
        """Show one check; not the first, which is made before anything is drawn and often before all is compiled."""
        if self._begun and self._stream is not None:
            self.show(check)
        self._begun = True

    def write(self, action: Callable[..., object], *arguments: object) -> None:
        """Do something to the stream, unless it broke before."""
        if self._stream is not None:
            try:
                action(*arguments)
            except (OSError, ValueError):  # ValueError: the stream was closed
                self._stream = None

    def line(self, words: str) -> None:
        """A line that stays."""
        self.write(lambda: print(words, file=self._stream, flush=True))

    def notice(self, words: str) -> None:
        """What is being done, now."""
        self.line(words)

    def show(self, check: Check | SelectionCheck) -> None:
        """A line about a check, when it is time."""
        if check.samples >= self._next:
            evidence = f"evidence at most {nats(max(check.evidence))} of {nats(check.required)}"
            what = "value estimate" if _episodes(check) == "" else "estimate"
            self.tell(check.samples, f"{_episodes(check)}{evidence}, {what} {number(check.estimate)}")

    def tell(self, samples: int, words: str) -> None:
        """Words about the run after this many samples, when it is time."""
        if samples >= self._next:
            while samples >= self._next:
                self._next *= 2
            self.line(f"{number(samples)} samples, {words}")

    def count(self, done: int, total: int, problem: str = "") -> None:
        """How many of several runs are finished, at every tenth of them; and each problem with one."""
        if problem:
            self.line(plain(problem))
        if done >= self._next_count or done == total:
            self._next_count = done + total / COUNTED_LINES
            self.line(f"{done:,} of {plural(total, 'run')}")

    def close(self) -> None:
        """Nothing to put back."""


class Bar(Lines):
    """One live line on a terminal, which disappears at the end."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        super().__init__(console.file)  # type: ignore[arg-type]
        self._clock = clock
        shared = sys.stdout is not None and sys.stdout.isatty()  # what a simulator prints then appears above the line
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=shared)
        self._first: tuple[float, int] | None = None
        self._due = 0.0
        self._interval = LatestInterval(clock)
        self._runs: Progress | None = None
        self.write(self._live.start)

    def line(self, words: str) -> None:
        """A line above the live one."""
        self.write(lambda: self._live.console.print(words, markup=False, highlight=False))

    def notice(self, words: str) -> None:
        """These words in place of the line."""
        from rich.text import Text

        self._update(Text(words, no_wrap=True, overflow="ellipsis"))

    def show(self, check: Check | SelectionCheck) -> None:
        """The line, at most four times a second."""
        now = self._clock()
        if self._first is None:
            self._first = now, check.samples
        if now >= self._due:
            self._update(self._line(check, now))
            self._due = self._clock() + REFRESH

    def tell(self, samples: int, words: str) -> None:
        """The line, at most four times a second."""
        if self._clock() >= self._due:
            self.notice(f"{number(samples)} samples, {words}")
            self._due = self._clock() + REFRESH

    def count(self, done: int, total: int, problem: str = "") -> None:
        """A bar of the runs, with the time they still take."""
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

        if self._runs is None:
            self._runs = Progress(TextColumn("runs"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
            self._runs.add_task("runs")
        if problem:
            self.line(plain(problem))
        self._runs.update(self._runs.task_ids[0], total=total, completed=done)
        self._update(self._runs.get_renderable())

    def close(self) -> None:
        """Remove the line."""
        self._live.stop()

    def _update(self, shown: RenderableType) -> None:
        self.write(lambda: self._live.update(shown, refresh=True))

    def _line(self, check: Check | SelectionCheck, now: float) -> RenderableType:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        wide = self._live.console.width >= WIDE
        begun, before = self._first or (now, check.samples)
        speed = (check.samples - before) / (now - begun) if now > begun else 0.0
        strongest = max(check.evidence)
        grid = Table.grid(padding=(0, 2))
        for _ in range(4):
            grid.add_column(no_wrap=True)
        grid.add_row(
            f"{number(check.samples)} samples"
            + (f", {float(f'{speed:.3g}'):,.0f}/s" if wide and speed >= 1 else "")
            + (f", {_episodes(check)[:-2]}" if wide and _episodes(check) else ""),
            ProgressBar(check.required, min(max(strongest, 0.0), check.required), width=20 if wide else 10),
            ("evidence at most " if wide else "") + f"{strongest:.3g} of {check.required:.3g} nats",
            self._interval(check),
        )
        return grid


def _episodes(check: Check | SelectionCheck) -> str:
    """How many episodes there were, and a comma; nothing where a test is not about episodes."""
    found = getattr(check, "episodes", None)
    return "" if found is None else f"{plural(found, 'episode')}, "


class Reading:
    """How far the reading is: told once a second, and in steps of a tenth at least; short work is not mentioned."""

    def __init__(self, tell: Callable[[str], None]) -> None:
        self.tell, self.due, self.share = tell, time.monotonic() + 1.0, 0.0

    def __call__(self, share: float) -> None:
        """This share of the log is read."""
        if share >= self.share + 0.1 and time.monotonic() >= self.due:
            self.share, self.due = share, time.monotonic() + 1.0
            self.tell(f"reading: {100 * share:.0f}%")


class LatestInterval:
    """The value interval in words, computed again only while that takes a small share of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: float | None = None
        self._words = ""

    def __call__(self, check: Check | SelectionCheck) -> str:
        """The latest interval, or none yet."""
        begun = self._clock()
        if self._due is None:
            self._due = begun + FIRST_INTERVAL
        if begun >= self._due:
            low, high = check.interval()
            self._words = f"value in [{low:.4g}, {high:.4g}]"
            ended = self._clock()
            self._due = ended + (ended - begun) / SHARE
        return self._words


def progress(stream: TextIO | None, quiet: bool = False) -> Lines:
    """The progress that suits a stream: live on a terminal, lines elsewhere, nothing if quiet or without one."""
    if not quiet and stream is not None and stream.isatty():
        from rich.console import Console

        console = Console(file=stream)
        if not console.is_dumb_terminal:
            return Bar(console)
    return Lines(None if quiet else stream)
