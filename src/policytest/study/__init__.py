"""Studies: methods compared over instances, deltas and seeds, as one tidy table. Resumable and parallel.

`run` runs a `Sweep`, which `sweep` makes from a description and `read` from a TOML file; `paper_sweep` is that of the
paper's figure. `load` reads a saved table back.
"""

import importlib
from collections.abc import Callable

from policytest.study.cells import Cell, Problem, Sweep, Trial, stream
from policytest.study.runner import Step, run
from policytest.study.spec import read, sweep
from policytest.study.table import Study, load

__all__ = [
    "Cell",
    "Problem",
    "Step",
    "Study",
    "Sweep",
    "Trial",
    "load",
    "paper_sweep",
    "read",
    "run",
    "stream",
    "sweep",
]


def __getattr__(name: str) -> Callable[..., Sweep]:
    if name != "paper_sweep":
        raise AttributeError(f"module 'policytest.study' has no attribute {name!r}")
    found: Callable[..., Sweep] = importlib.import_module("policytest.paper.experiments").paper_sweep
    return found  # of a layer above, on first use
