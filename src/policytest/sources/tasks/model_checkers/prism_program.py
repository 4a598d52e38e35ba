"""Programs in PRISM's language (``.prism``, ``.nm``, ``.pm``): Storm builds the model, with exact numbers.

Storm is an optional package. Its export is read like any other ``.drn`` file: with all labels, reward models, values of
variables and names of actions. Constants must have values in the program.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from policytest._base.errors import InputError, first_line, needs
from policytest._base.files import read_text
from policytest.sources.tasks.model_checkers import drn
from policytest.sources.tasks.model_checkers.listing import Listing

ENDINGS = (".prism", ".nm", ".pm")


def read(path: Path, reward_model: str | None = None, rewarded: bool = True) -> Listing:
    """The model that a program describes; of several reward models the named one."""
    read_text(path)  # what is wrong with the file itself is said as of other files
    try:
        storm = needs("stormpy", "storm")
    except InputError as error:
        raise InputError(
            f"{error}, or export the model: storm --prism {path.name} --buildfull --exportbuild model.drn"
        ) from None
    with tempfile.TemporaryDirectory() as folder:
        built = Path(folder, "model.drn")
        _build(storm, path, built)
        return drn.read(built, reward_model, rewarded)


def _build(storm: Any, path: Path, to: Path) -> None:
    """Let Storm build the model and write it to a file; its own messages are left out."""
    developer, io = needs("stormpy.developer", "storm"), needs("stormpy.io", "storm")
    level = developer.get_log_level()
    developer.set_log_level(developer.LogLevel.OFF)
    try:
        program = storm.parse_prism_program(str(path))
        model = storm.build_model[storm.Rational](program, options=storm.BuilderOptions(build_full=True))
        io.export_to_drn(model, str(to))
    except RuntimeError as error:
        said = first_line(error).rstrip(".:, ")
        raise InputError(f"Storm cannot build this program ({said}); fix it there") from None
    finally:
        developer.set_log_level(level)
