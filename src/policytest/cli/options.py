"""The options that several commands share, each defined once."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from policytest.cli.exit_codes import debugging
from policytest.cli.inputs import BUILT_IN


def _set_debug(wanted: bool) -> None:
    if wanted:
        debugging.set(True)


class Method(StrEnum):
    """Names of the methods."""

    combined = "combined"
    betting = "betting"
    ptst = "ptst"
    boxes = "boxes"
    monte_carlo = "monte-carlo"


class Boundary(StrEnum):
    """Names of the boundaries."""

    mixture = "mixture"
    paper = "paper"


class Allocation(StrEnum):
    """Names of the sampling rules."""

    uniform = "uniform"
    optimal = "optimal"
    adaptive = "adaptive"
    forward = "forward"


Debug = Annotated[bool, typer.Option("--debug", callback=_set_debug, is_eager=True, help="Show where an error arose.")]
Delta = Annotated[float, typer.Option(help="The probability of a wrong answer, at most.")]
Seed = Annotated[int, typer.Option(help="The seed of all randomness.")]
ModelName = Annotated[str, typer.Argument(help=f"A .json or .npz task file, or one of: {', '.join(BUILT_IN)}.")]
MaxSamples = Annotated[int | None, typer.Option(help="Give up after this many samples.")]
SimulatorPlace = Annotated[str | None, typer.Option("--simulator", help="Sample from this: package.module:name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as a web page.")]
