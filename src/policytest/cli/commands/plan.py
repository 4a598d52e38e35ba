"""``policytest plan``: how many samples will it take?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from policytest.cli.exit_codes import DONE
from policytest.cli.inputs import check_place, find_model
from policytest.cli.options import (
    Debug,
    Delta,
    Html,
    Json,
    ModelName,
    Seed,
)
from policytest.cli.results import quiet_stdout, show

if TYPE_CHECKING:
    pass


def plan(
    model: ModelName,
    threshold: Annotated[float | None, typer.Option(help="The bar R; otherwise the file's, otherwise 0.")] = None,
    delta: Delta = 0.05,
    seed: Seed = 0,
    json: Json = False,
    html: Html = None,
    debug: Debug = False,
) -> int:
    """How many samples will it take, and where should they go? The model's kernel is the guess."""
    check_place(html)
    problem = find_model(model)
    with quiet_stdout(json):
        from policytest._checks import InputError
        from policytest.planning import plan as make_plan

        if problem.kernel is None:
            raise InputError(f"{model} has no kernel to plan with; add the key kernel: a guess, from pilot draws say")
        bar = threshold if threshold is not None else problem.threshold or 0.0
        found = make_plan(problem.task, problem.kernel, bar, delta, rng=seed)
    show(found, json, html, "How many samples will it take?", f"Model: {model}")
    return DONE
