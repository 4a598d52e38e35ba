"""The options that several commands share, each defined once."""

from __future__ import annotations

import math
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from policytest.cli.exit_codes import debugging
from policytest.cli.inputs import BUILT_IN


def _set_debug(wanted: bool) -> None:
    if wanted:
        debugging.set(True)


def _whole(text: str) -> int:
    """A whole number, also as 1e6."""
    number = float(text)
    if not math.isfinite(number) or number != int(number):
        raise ValueError(text)
    return int(text) if text.lstrip("+-").isdigit() else int(number)


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
ModelName = Annotated[
    str,
    typer.Argument(
        help=f"A task file, an environment such as gym:FrozenLake-v1?map_name=8x8, or one of: {', '.join(BUILT_IN)}."
    ),
]
PolicyName = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="Instead of the model's policy: a policy file, or uniform."),
]
Discount = Annotated[float | None, typer.Option(help="Instead of the model's discount.")]
RewardModel = Annotated[
    str | None,
    typer.Option("--rewards", metavar="NAME", help='Which reward model of a .drn or .tra file; "" is the unnamed one.'),
]
InitialState = Annotated[
    str | None,
    typer.Option(
        "--initial", metavar="STATE", help="Instead of the model's initial distribution: a state, or a label."
    ),
]
MaxSamples = Annotated[
    int | None, typer.Option(parser=_whole, metavar="N", help="Give up after this many samples; 1e6 will do.")
]
SimulatorPlace = Annotated[str | None, typer.Option("--simulator", help="Sample from this: package.module:name.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Quiet = Annotated[bool, typer.Option("--quiet", help="Show no progress.")]
Html = Annotated[Path | None, typer.Option(metavar="FILE", help="Write the result as a web page.")]
Threshold = Annotated[float | None, typer.Option(help="The bar R. Required, unless the task file has one.")]
RequireCertified = Annotated[
    bool, typer.Option("--require-certified", help="Exit with 3 if the answer is not certified.")
]
Columns = Annotated[
    list[str] | None,
    typer.Option("--column", metavar="PART=NAME", help="Another name of a column, such as s=state; may be repeated."),
]
Skip = Annotated[
    list[str] | None,
    typer.Option("--skip", metavar="PART", help="Leave rows out whose label there is unknown: s, a; may be repeated."),
]
SuppressBelow = Annotated[
    int, typer.Option(min=0, help="Show no number of rows from 1 to this, less one, in what is said about the data.")
]
BoundaryName = Annotated[Boundary | None, typer.Option("--boundary", help="The boundary of ptst.")]
Prior = Annotated[float | None, typer.Option(help="The prior of its mixture boundary.")]
AllocationName = Annotated[Allocation | None, typer.Option("--allocation", help="Which pairs ptst samples.")]
Checkpoint = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Save the run here, and go on from here if it exists.")
]
