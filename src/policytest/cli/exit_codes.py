"""From any ending of a command to its exit code, and the words that go with it.

0 and 1 are answers, so nothing else may end with them. `exit_code` catches whatever happens, including what Python
would turn into a 1 (a crash, output that nobody reads) and what a simulator might do (call `sys.exit`).
"""

from __future__ import annotations

import ast
import contextlib
import errno
import os
import re
import shlex
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from enum import IntEnum
from typing import TextIO

import typer

from policytest._base.errors import WHILE_DRAWING, InputError, interrupted, on_interruption
from policytest._base.text import plain, short
from policytest.cli.groups import dashed


class Code(IntEnum):
    """What an exit code means: "above" is also "done", and "undecided" any result without a reliable answer."""

    ABOVE = 0
    BELOW = 1
    USAGE = 2
    UNDECIDED = 3
    INTERNAL = 4
    WITHIN = 5


DONE = Code.ABOVE
CODES = {"above": Code.ABOVE, "below": Code.BELOW, "within": Code.WITHIN, None: Code.UNDECIDED}
debugging: ContextVar[bool] = ContextVar("debugging", default=False)
"""Whether to show the traceback of an error."""


def exit_code(command: Callable[[], int]) -> int:
    """Run a command; the exit code it returns, or the one for what ended it."""
    on_interruption.set(_say_that_it_ends)
    with warnings.catch_warnings():
        warnings.simplefilter("always", UserWarning)  # a lost assumption is told, whatever the interpreter's options
        warnings.showwarning = _shown_once()
        try:
            code = command()
            flush(sys.stdout)
        except BaseException as error:
            code = _ending(error)
    with contextlib.suppress(OSError, ValueError):
        flush(sys.stderr)
    return int(code)


def _say_that_it_ends() -> None:
    """Said at the first Ctrl-C; in a signal handler, where stderr may be at work."""
    with contextlib.suppress(RuntimeError):
        complain("interrupted: the run ends after the draw at hand; press Ctrl-C again to give that up")


def _ending(error: BaseException) -> int:
    """The exit code for what ended a command, after a word on stderr."""
    if isinstance(error, typer.Exit):
        return DONE if error.exit_code == 0 else Code.USAGE
    if debugging.get():
        _to_stderr("".join(traceback.format_exception(error)).rstrip())
    if _is_broken_pipe(error):
        discard(sys.stdout)
        complain("interrupted: a pipe broke before there was an answer")
        return Code.UNDECIDED
    if isinstance(error, typer.Abort) or interrupted(error):
        complain("interrupted")
        return Code.UNDECIDED
    if (message := _input_error(error) or _surroundings(error)) is not None:
        complain(f"error: {message}")
        return Code.USAGE
    hint = "" if debugging.get() else " (--debug shows where)"
    blame = "the simulator failed" if WHILE_DRAWING in getattr(error, "__notes__", ()) else "internal error"
    complain(f"{blame}: {type(error).__name__}: {short(str(error))}{hint}")
    return Code.INTERNAL


def _is_broken_pipe(error: BaseException) -> bool:
    """Rich, which prints the help, turns a broken pipe into an exit with 1."""
    return isinstance(error.__context__ if isinstance(error, SystemExit) else error, BrokenPipeError)


def _input_error(error: BaseException) -> str | None:
    """The message of an `InputError`, or of what Typer raises for a wrong option; None for anything else."""
    if isinstance(error, InputError):
        return f"{error.what}; {as_options(error.remedy)}" if error.remedy else as_options(error.what)
    if (wrong_option := getattr(error, "format_message", None)) is None:
        return None
    if (replaced := REPLACED.get(getattr(error, "option_name", ""))) is not None:
        return replaced
    context, said = getattr(error, "ctx", None), str(wrong_option())
    if "'--method'" in said and "'combined' is not one of" in said:
        return NO_COMBINED
    if "-range'" in said and "valid" in said:
        return UNKNOWN_END.format(*[str(said).split("'")[1]] * 2)
    return f"{said} (see {context.command_path if context else 'policytest'} --help)"


def _surroundings(error: BaseException) -> str | None:
    """What is wrong around the command rather than in it: a working folder that is gone, a full standard output."""
    if not isinstance(error, OSError):
        return None
    try:
        os.getcwd()
    except OSError:
        return "the working folder is gone; change to a folder that exists"
    if WHILE_DRAWING in getattr(error, "__notes__", ()):
        return None
    if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO) and error.filename is None:
        discard(sys.stdout)
        return f"standard output cannot be written ({error.strerror}); free some space, or send it elsewhere"
    return None


SAME = ("skip", "rewards", "initial", "discount", "policy", "horizon", "by_episode", "add_to", "avoid", "cut")
OPTIONS = {
    "columns": "--column",
    "constants": "--const",
    "on_range": "--on-range",
    **{name: dashed(name) for name in SAME},
}
"""The options of arguments that messages may name."""
REPLACED = {
    "--require-certified": (
        "--require-certified is gone: without it, an answer that is not certified exits with 3; leave it out "
        "(--accept-uncertified accepts such an answer)"
    )
}
"""Options of earlier versions, and what replaces them."""
UNKNOWN_END = "{} takes two numbers; inf or -inf is an end that is not known, as in {} -1000 inf"
NO_COMBINED = "--method combined is gone; use --method betting (the default), or --method ptst for very small delta"
PHRASES = {
    "max_samples is ": "--max-samples is ",
    "max_seconds is": "--max-seconds is",
    "budget is": "--budget is",
    "power is": "--power is",
    "budget: ": "--budget: ",
    "(max_samples stops a run)": "(--max-samples stops a run)",
    "or max_samples to stop the search": "or --max-samples to stop the search",
    "pass policies=[...] and no method": "pass --candidate FILE and no method",
    "pass budget=": "pass --budget ",
    "parallel is": "--parallel is",
    "parallel: ": "--parallel: ",
    "leave parallel out": "leave --parallel out",
    "leave out budget": "leave out --budget",
    "checkpoint is for": "--checkpoint is for",
    " (reward_tolerance=1e-6 for single precision)": "",
    ", read one alone and pass add_to=log.counts": ", count one of them alone",
    "known_support=True of load_model": "--support kernel",
    "known_support=True": "known_support=true in the address",
    "total_rewards=(low, high), a": "total_rewards = [low, high] in the task file, a",
    'weigh them with columns={"propensity": ...}, or ask a Markov table instead': (
        "weigh them (--column propensity=NAME, with --ladder or --assume propensities), or ask a Markov table alone "
        "(--assume markov, without --ladder)"
    ),
    "or pass a horizon instead": "or pass --horizon instead",
    "pass initial, ": "pass --initial STATE, ",
    "use log.counts": "use --method ptst",
    "pass return_range=(low, high), or reward_range=(low, high) with a horizon or a discount below 1": (
        "pass --return-range LOW HIGH, or --reward-range LOW HIGH with --horizon or a --discount below 1"
    ),
    "outcome=pt.at_least(200)": "--outcome 'at least 200'",
    "pass return_range=(low, high), where outcomes must lie whatever happens; (0, 1) for successes": (
        "pass --return-range LOW HIGH, where outcomes must lie whatever happens; 0 1 for successes"
    ),
    "ratio is ": "--ratio is ",
    "leave pair out: trials are": "leave pairs out (--column pair=): trials are",
    "smallest_propensity is a bound of propensities, and the log has none; pass propensity and target, or leave ": (
        "--smallest-propensity needs propensities; use --assume propensities or --ladder and name their column with "
        "--column propensity=NAME, or leave "
    ),
    "below smallest_propensity;": "below --smallest-propensity;",
    "less than smallest_propensity to": "less than --smallest-propensity to",
    "leave smallest_propensity out": "leave --smallest-propensity out",
    "leave return_range out": "leave --return-range out",
    "leave discount out": "leave --discount out",
    "outside reward_range": "outside --reward-range",
    "outside return_range": "outside --return-range",
    "ends of return_range": "ends of --return-range",
    "propensity is given, and target is not; pass both, of the logged action: propensity mu(a|s) and target pi(a|s)": (
        "the log has a column propensity and none for target, pi(a|s) of the logged action; name it with --column "
        "target=NAME, or name a task file before the log, whose policy is the target"
    ),
}
"""What only Python can do, and what the command line does instead."""
ARGUMENT = (
    rf"\b({'|'.join(OPTIONS)})=(\{{.*?\}}|\(.*?\)|\[.*?\]|'[^']*'|\"[^\"]*\"|True|\.\.\.)"
    r"(?: \(--\w+ on the command line\))?"
)


def as_options(message: str) -> str:
    """A message that names arguments of Python, with the options of the command line instead.

    >>> as_options('leave it alone with columns={"reward": None}, or leave them out with skip=("s", "a",)')
    'leave it alone with --column reward=, or leave them out with --skip s --skip a'
    >>> as_options("say which with rewards='cost'; pass one kind at a time, and add_to")
    'say which with --rewards cost; pass one kind at a time, and --add-to'
    """
    for phrase, words in PHRASES.items():
        message = message.replace(phrase, words)
    message = re.sub(ARGUMENT, _as_option, message)
    return re.sub(r"\b(and|with|without) add_to\b", r"\1 --add-to", message)


def _as_option(found: re.Match[str]) -> str:
    """columns={"s": "state"} as --column s=state, and so on."""
    try:
        option, value = OPTIONS[found[1]], ast.literal_eval(found[2])
    except (SyntaxError, ValueError):  # a name with brackets in it
        return found[0]
    if value is True or value is ...:
        return option
    if isinstance(value, dict):
        return " ".join(f"{option} {part}={'NAME' if name is ... else name or ''}" for part, name in value.items())
    return " ".join(f"{option} {shlex.quote(str(part))}" for part in ((value,) if isinstance(value, str) else value))


def say(text: str) -> None:
    """Print lines on stdout, now, nothing in which steers the terminal. Raises BrokenPipeError if nobody reads it."""
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    text = "\n".join(map(plain, text.split("\n")))
    print(text.encode(encoding, "backslashreplace").decode(encoding), flush=True)


def complain(text: str) -> None:
    """Print one line on stderr, below 500 characters, nothing in which steers the terminal."""
    _to_stderr(short(plain(text), 499))


def _to_stderr(text: str) -> None:
    """Print on stderr; if nobody reads that, so be it."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        discard(sys.stderr)


@contextlib.contextmanager
def read_or_not() -> Iterator[None]:
    """For output after the answer is known: a reader that went away does not change the exit code."""
    try:
        yield
    except BrokenPipeError:
        discard(sys.stdout)


def flush(stream: TextIO | None) -> None:
    """Write out what is buffered now: a failure when the interpreter ends would change the exit code."""
    if stream is not None:
        try:
            stream.flush()
        except OSError:
            discard(stream)
            raise


def discard(stream: TextIO | None) -> None:
    """Send what is still buffered, and all that follows, nowhere."""
    with contextlib.suppress(OSError, ValueError, AttributeError):  # not a real file: nothing can fail later
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())  # type: ignore[union-attr]
        os.close(nowhere)


def _shown_once() -> Callable[..., None]:
    """Shows each warning once, however often an environment repeats it."""
    seen = set[str]()

    def show(message: Warning | str, *_: object, **__: object) -> None:
        if (told := f"warning: {as_options(str(message))}") not in seen:
            seen.add(told)
            complain(told)

    return show
