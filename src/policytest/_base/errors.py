"""The exceptions of the package, and what to install when an optional library is missing."""

from __future__ import annotations

import importlib
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from policytest._base.text import short

WHILE_DRAWING = "raised while drawing from the simulator"  # a note on what a simulator raises
PRECISION = 2e-8  # the largest relative error of a value that is returned


class InputError(ValueError):
    """Bad input: ``what`` names the argument, the place and the value, ``remedy`` what to do. A long message is cut."""

    def __init__(self, what: object = "", remedy: str = "") -> None:
        self.what, self.remedy = str(what), remedy
        super().__init__(short(f"{what}; {remedy}" if remedy else self.what))


def not_an_instance(name: str, given: object, example: str) -> InputError:
    """The error for a class, or something else, that was passed where an object is expected.

    >>> print(not_an_instance("method", int, "TDBetting()"))
    method must be an instance, for example TDBetting(); got the class int
    >>> print(not_an_instance("method", "int", "TDBetting()"))
    method must be an instance, for example TDBetting(); got 'int'
    """
    got = f"the class {given.__name__}" if isinstance(given, type) else repr(given)
    return InputError(f"{name} must be an instance, for example {example}; got {got}")


class NotGoodEnough(Exception):  # noqa: N818 - what happened, in words of the field
    """`Verdict.require` did not get the answer it asks for: the message is the verdict in short, ``verdict`` all of it.

    >>> str(NotGoodEnough("below 475"))
    'below 475'
    """

    def __init__(self, message: str = "", verdict: Any = None) -> None:  # a `Verdict`
        super().__init__(message)
        self.verdict = verdict


class Undecided(NotGoodEnough):
    """There is no answer: the data, the time or the budget did not suffice."""


class PrecisionError(InputError, ArithmeticError):
    """A task whose values cannot be computed in double precision."""


class AssumptionWarning(UserWarning):
    """An assumption fails; the message names the guarantee that is lost with it."""


on_interruption: ContextVar[Callable[[], None]] = ContextVar("on_interruption", default=lambda: None)
"""Called at the first Ctrl-C of a run, which then ends after the draw at hand; the command line says so."""


def blame_simulator(error: BaseException) -> None:
    """Note that a simulator raised this error.

    A StopIteration is raised as an error that names it: it would end the generator that runs the test, and arrive as
    something else.
    """
    if isinstance(error, StopIteration):
        raise InputError(
            "the simulator, the environment or the agent raised StopIteration: an iterator in it has run out",
            "make it endless, or let the episode end before",
        ) from error
    error.add_note(WHILE_DRAWING)


def interrupted(error: BaseException | None) -> bool:
    """Whether an error is Ctrl-C: compiled code and DuckDB turn a KeyboardInterrupt into errors of their own."""
    while error is not None:
        if isinstance(error, KeyboardInterrupt) or type(error).__name__ == "InterruptException":
            return True
        if isinstance(error, RuntimeError) and str(error) == "Query interrupted":
            return True
        error = error.__cause__ or error.__context__
    return False


def needs(package: str, extra: str) -> Any:
    """An optional package, imported here and now; where it is missing, the error says how to get it."""
    try:
        return importlib.import_module(package)
    except ImportError as error:
        raise InputError(
            f"this needs {package.split('.')[0]}, which is not installed; run {installation(extra)}"
        ) from error


class Needed:
    """An optional package, imported when something of it is first used; as `needs` otherwise."""

    def __init__(self, package: str, extra: str) -> None:
        self._package, self._extra = package, extra

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # asked of any object, such as __wrapped__ by doctest
            raise AttributeError(name)
        return getattr(needs(self._package, self._extra), name)


def installation(extra: str) -> str:
    """The command that installs what an extra of this package needs, wherever the package itself came from.

    >>> installation("gym")
    "pip install 'gymnasium>=1.0'"
    """
    from importlib import metadata

    wanted = [line.partition(";") for line in metadata.requires("policytest") or ()]
    named = sorted(text.strip() for text, _, marker in wanted if re.search(rf"extra == ['\"]{extra}['\"]", marker))
    return shlex.join(["pip", "install", *named])


def first_line(error: BaseException) -> str:
    """The first line of what an error says, or its kind."""
    return str(error).strip().partition("\n")[0] or type(error).__name__


def unreadable(path: object, error: OSError) -> InputError:
    """The error for a file that the system does not let one read."""
    return InputError(f"{path}: cannot be read ({error.strerror or error}); check the path")


@contextmanager
def naming(place: object) -> Iterator[None]:
    """Errors about a file that begin with its name."""
    try:
        yield
    except InputError as error:
        raise InputError(f"{place}: {error}") from None
    except OSError as error:
        raise unreadable(place, error) from None


def check_precision(error: float) -> None:
    """Refuse to go on with values whose relative error may exceed `PRECISION`."""
    if not error <= PRECISION:
        raise PrecisionError(
            f"the linear solver stopped at a relative error of {error:.2g}; no value is returned: use a discount "
            "further from 1, or rewards and probabilities of more similar sizes"
        )
