"""What a run shows while it works: a live line on a terminal, a few plain lines elsewhere.

A `Progress` is handed to ``decide`` and called with every check, thousands of times a second; most calls return at
once. Nothing shown here goes into a result, so this is the one place with a clock. A stream that breaks (a closed
terminal, a pipe nobody reads) silences the display and never stops the run.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TextIO

from policytest._base.text import nats, number
from policytest.cli.exit_codes import complain

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


@contextmanager
def compiling_told(quiet: bool) -> Iterator[None]:
    """Say, once, when code has to be compiled that is not in the cache on disk."""
    if quiet:
        yield
        return
    from numba.core.event import Listener, install_listener

    class Told(Listener):
        told = False

        def on_start(self, event: Any) -> None:
            if not self.told:
                self.told = True
                complain(COMPILING)

        def on_end(self, event: Any) -> None:
            pass

    with install_listener("numba:compile", Told()):
        yield


class Check(Protocol):
    """What is shown of a stopping check."""

    @property
    def samples(self) -> int:
        """Samples so far."""
        ...

    @property
    def evidence(self) -> tuple[float, float]:
        """In nats, against V <= R and against V >= R; at most this, as far as is known without solving."""
        ...

    @property
    def required(self) -> float:
        """The evidence that decides."""
        ...

    @property
    def estimate(self) -> float:
        """The value of the policy in the empirical kernel."""
        ...

    def interval(self) -> tuple[float, float]:
        """The value interval, computed when called."""
        ...


class Display(Protocol):
    """Where checks are shown."""

    def notice(self, message: str) -> None:
        """Show a message."""
        ...

    def show(self, check: Check) -> None:
        """Show a check, if it is time to."""
        ...

    def tell(self, samples: int, words: str) -> None:
        """Show these words about so many samples, if it is time to."""
        ...

    def close(self) -> None:
        """Leave the stream as it was."""
        ...


class Progress:
    """Shows the checks it is called with. ``with Progress(display) as progress: decide(..., progress=progress)``."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._begun = self._broken = False

    def __enter__(self) -> Progress:
        return self

    def __call__(self, check: Check) -> None:
        """Show one check; not the first, which is made before anything is drawn and often before all is compiled."""
        if not self._begun:
            self._begun = True
            return
        self._guard(self._display.show, check)

    def tell(self, samples: int, words: str) -> None:
        """Show words about so many samples, where there is no check."""
        self._guard(self._display.tell, samples, words)

    def notice(self, words: str) -> None:
        """Show a message, now."""
        self._guard(self._display.notice, words)

    def __exit__(self, *_: object) -> None:
        self._guard(self._display.close)

    def _guard(self, show: Callable[..., None], *arguments: Any) -> None:
        if not self._broken:
            try:
                show(*arguments)
            except (OSError, ValueError):  # ValueError: the stream was closed
                self._broken = True


class Silent:
    """Shows nothing."""

    def notice(self, message: str) -> None:
        """Nothing."""

    def show(self, check: Check) -> None:
        """Nothing."""

    def tell(self, samples: int, words: str) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""


class Lines:
    """A plain line each time the samples have doubled: two dozen lines for ten billion samples."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._next = FIRST_LINE

    def notice(self, message: str) -> None:
        """The message on a line."""
        print(message, file=self._stream, flush=True)

    def show(self, check: Check) -> None:
        """A line, when it is time."""
        if check.samples >= self._next:
            self.tell(
                check.samples,
                f"evidence at most {nats(max(check.evidence))} of {nats(check.required)}, "
                f"value estimate {number(check.estimate)}",
            )

    def tell(self, samples: int, words: str) -> None:
        """A line, when it is time."""
        if samples >= self._next:
            while samples >= self._next:
                self._next *= 2
            self.notice(f"{number(samples)} samples, {words}")

    def close(self) -> None:
        """Nothing to put back."""


class Bar:
    """One live line on a terminal, which disappears at the end."""

    def __init__(self, console: Any, clock: Callable[[], float] = time.monotonic) -> None:
        from rich.live import Live

        self._clock = clock
        shared = sys.stdout is not None and sys.stdout.isatty()  # what a simulator prints then appears above the line
        self._live = Live(console=console, auto_refresh=False, transient=True, redirect_stdout=shared)
        self._begun: tuple[float, int] | None = None
        self._due = 0.0
        self._interval = Interval(clock)
        self._live.start()

    def notice(self, message: str) -> None:
        """The message in place of the line."""
        from rich.text import Text

        self._live.update(Text(message, no_wrap=True, overflow="ellipsis"), refresh=True)

    def show(self, check: Check) -> None:
        """The line, at most four times a second."""
        now = self._clock()
        if self._begun is None:
            self._begun = now, check.samples
        if now >= self._due:
            self._live.update(self._line(check, now), refresh=True)
            self._due = self._clock() + REFRESH

    def tell(self, samples: int, words: str) -> None:
        """The line, at most four times a second."""
        now = self._clock()
        if now >= self._due:
            self.notice(f"{number(samples)} samples, {words}")
            self._due = self._clock() + REFRESH

    def close(self) -> None:
        """Remove the line."""
        self._live.stop()

    def _line(self, check: Check, now: float) -> Any:
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        wide = self._live.console.width >= WIDE
        begun, before = self._begun or (now, check.samples)
        speed = (check.samples - before) / (now - begun) if now > begun else 0.0
        strongest = max(check.evidence)
        grid = Table.grid(padding=(0, 2))
        for _ in range(4):
            grid.add_column(no_wrap=True)
        grid.add_row(
            f"{number(check.samples)} samples" + (f", {float(f'{speed:.3g}'):,.0f}/s" if wide and speed >= 1 else ""),
            ProgressBar(check.required, min(max(strongest, 0.0), check.required), width=20 if wide else 10),
            ("evidence at most " if wide else "") + f"{strongest:.3g} of {check.required:.3g} nats",
            self._interval(check),
        )
        return grid


class Interval:
    """The value interval in words, computed anew only while that takes a small share of the time."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._due: float | None = None
        self._words = ""

    def __call__(self, check: Check) -> str:
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


def progress(stream: TextIO | None, quiet: bool = False) -> Progress:
    """The progress that suits a stream: live on a terminal, lines elsewhere, nothing if quiet or without one."""
    return Progress(_display(stream, quiet))


def _display(stream: TextIO | None, quiet: bool) -> Display:
    if quiet or stream is None:
        return Silent()
    if stream.isatty():
        from rich.console import Console

        console = Console(file=stream)
        if not console.is_dumb_terminal:
            return Bar(console)
    return Lines(stream)
