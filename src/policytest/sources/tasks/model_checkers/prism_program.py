"""Programs in PRISM's language (``.prism``, ``.nm``, ``.pm``): Storm builds the model, with exact numbers.

Storm is an optional package. Its export is read like any other ``.drn`` file: with all labels, reward models, values of
variables and names of actions. Constants that the program leaves undefined (``const int N;``) get their values from
``constants``: whole numbers, numbers (also as text, ``"1/3"``), and truth values.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from policytest._base import arrays
from policytest._base.errors import InputError, first_line, needs
from policytest._base.files import read_text
from policytest._base.text import did_you_mean, plural
from policytest.sources.labels import item
from policytest.sources.tasks.model_checkers import drn
from policytest.sources.tasks.model_checkers.listing import Listing, number

ENDINGS = (".prism", ".nm", ".pm")
LARGEST = 2**31 - 1
"""The largest whole number of PRISM."""
EXAMPLES: dict[str, Any] = {"int": 1, "double": 0.5, "bool": True}


def read(
    path: Path, reward_model: str | None = None, rewarded: bool = True, constants: Mapping[str, Any] | None = None
) -> Listing:
    """The model that a program describes with these constants; of several reward models the named one."""
    read_text(path)  # what is wrong with the file itself is said as of other files
    try:
        storm = needs("stormpy", "storm")
    except InputError as error:
        values = ",".join(f"{name}={value}" for name, value in (constants or {}).items())
        values = values and f" --constants {values}"
        raise InputError(
            f"{error}, or export the model: storm --prism {path.name}{values} --buildfull --exportbuild model.drn"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "model.drn")
        labels = _build(storm, path, built, constants or {})
        listing = drn.read(built, reward_model, rewarded)
    listing.declare(labels)  # the export omits labels that no state has
    return listing


def _build(storm: Any, path: Path, to: Path, constants: Mapping[str, Any]) -> list[str]:
    """Let Storm build the model and write it to a file, its own messages left out; the labels of the program."""
    io = needs("stormpy.io", "storm")
    with _messages_of_storm("fix the program, or the values of its constants" if constants else "fix it there"):
        program = storm.parse_prism_program(str(path))
        definitions = _definitions(program, constants, storm.Rational)
        if definitions:
            program, _ = storm.instantiate_constants(program, definitions)
        model = storm.build_model[storm.Rational](program, options=storm.BuilderOptions(build_full=True))
        io.export_to_drn(model, str(to))
        return [label.name for label in program.labels]


@contextmanager
def _messages_of_storm(remedy: str) -> Iterator[None]:
    """Storm prints nothing, and what it refuses is an `InputError`. (StormError is not a RuntimeError.)"""
    developer, own = needs("stormpy.developer", "storm"), needs("stormpy.exceptions", "storm").StormError
    level = developer.get_log_level()
    developer.set_log_level(developer.LogLevel.OFF)
    try:
        yield
    except (own, RuntimeError, IndexError) as error:
        said = first_line(error).rstrip(".:, ")
        raise InputError(f"Storm cannot build this program ({said}); {remedy}") from None
    finally:
        developer.set_log_level(level)


# ---------------------------------------------------------------- constants


def _definitions(program: Any, given: Mapping[str, Any], rational: Any) -> dict[str, Any]:
    """The value of every constant that the program leaves undefined, as Storm takes it."""
    known = {constant.name: constant.defined for constant in program.constants}
    kinds = {constant.name: _kind(constant.type) for constant in program.get_undefined_constants()}
    for name in given:
        if name not in known:
            listed = ", ".join(kinds) or "none"
            raise InputError(
                f"the program has no constant {name!r}",
                did_you_mean(name, known) or f"its constants without a value: {listed}",
            )
        if known[name]:
            raise InputError(f"the program gives the constant {name} a value itself", f"leave {name} out")
    values = {name: _value(name, given[name], kind) for name, kind in kinds.items() if name in given}
    missing = [f"{name} ({kind})" for name, kind in kinds.items() if name not in given]
    if missing:
        example = {name: given.get(name, EXAMPLES[kind]) for name, kind in kinds.items()}
        raise InputError(
            f"the program has {plural(len(missing), 'constant')} without a value, {', '.join(missing)}; "
            f"pass values, for example constants={example!r}"
        )
    return {name: rational(str(value)) if kinds[name] == "double" else value for name, value in values.items()}


def _kind(type_of_storm: Any) -> str:
    return "int" if type_of_storm.is_integer else "bool" if type_of_storm.is_boolean else "double"


def _value(name: str, given: object, kind: str) -> bool | int | Fraction:
    """The value of a constant: a truth value, a whole number, or an exact number."""
    place, given = f"the constant {name}", item(given)
    text = str(given).strip().lower()
    if kind == "bool":
        if text not in ("true", "false"):
            raise InputError(f"{place} is {arrays.shown(given)}; it must be true or false")
        return text == "true"
    number(place, text)
    exact = Fraction(text)
    if kind == "double":
        return exact
    if exact.denominator != 1 or abs(exact) > LARGEST:
        raise InputError(f"{place} is {arrays.shown(given)}; it must be a whole number, at most {LARGEST:,}")
    return int(exact)
