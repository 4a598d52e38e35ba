"""Methods, boundaries, sampling rules and solvers by name: one table for the command line and for studies.

A method is found by its name here or by that of its class, however capitalised: ``betting`` and ``TDBetting`` are one.
Only what is asked for is imported, so that the names themselves cost nothing.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from policytest._base.errors import InputError
from policytest._base.text import did_you_mean

if TYPE_CHECKING:
    from policytest._base.arrays import Kernel
    from policytest.kl.boundaries import Boundary


class Named(NamedTuple):
    """Where something is defined, its name there, and the settings that a description of it may give."""

    module: str
    name: str
    settings: tuple[str, ...] = ()

    def load(self) -> Callable[..., Any]:
        """The class, or the function that makes it."""
        found: Any = importlib.import_module(f"policytest.{self.module}")
        return cast(Callable[..., Any], reduce(getattr, self.name.split("."), found))


METHODS = {
    "betting": Named("methods.td_betting", "TDBetting"),
    "log-betting": Named("methods.log_betting", "LogBetting", ("coins",)),
    "ptst": Named("methods.ptst", "PTST", ("boundary", "solver", "allocation", "batch")),
    "ptst-as-printed": Named("methods.ptst", "PTST.as_printed"),
    "klb-ts": Named("methods.baselines.klbts", "KLBTS", ("policies", "boundary", "allocation")),
    "boxes": Named("methods.baselines.boxes", "RectangularKL", ("prior", "allocation")),
    "monte-carlo": Named("methods.baselines.monte_carlo", "MonteCarlo", ("kind", "horizon")),
    "returns": Named("methods.return_betting", "ReturnBetting"),
    "large-sample": Named("methods.large_sample", "LargeSample", ("looks",)),
}
REPLACED = {"combined": "write TDBetting() (the default), or PTST() for very small delta"}
"""Methods of earlier versions, and what replaces them."""
BOUNDARIES = {
    "mixture": Named("kl.boundaries", "MixtureBoundary"),
    "paper": Named("kl.boundaries", "PaperBoundary"),
}
SAMPLING_RULES = {
    "uniform": None,
    "optimal": Named("kl.sampling", "Optimal"),
    "adaptive": Named("kl.sampling", "Adaptive"),
    "forward": Named("kl.sampling", "Forward"),
}
SOLVERS = {
    "certified": Named("worst_case.certified", "Certified"),
    "projection-free": Named("worst_case.projection_free", "ProjectionFree"),
    "slsqp": Named("worst_case.slsqp", "SLSQPHeuristic"),
    "nested-pgd": Named("worst_case.nested_pgd", "NestedPGD"),
}


def method_entry(place: str, name: object) -> Named:
    """The method of this name; ``place`` is where the name was given, for the error.

    >>> method_entry("methods.mine", "TDBetting") == method_entry("methods.mine", "betting")
    True
    """
    by_class = {entry.name.lower(): entry for entry in METHODS.values()}
    key = name.lower() if isinstance(name, str) else ""
    if key in REPLACED:
        raise InputError(f"{place}: {name} is gone", REPLACED[key])
    found = {**by_class, **METHODS}.get(key)
    return found or unknown_name(place, name, [entry.name for entry in METHODS.values()])


def make_boundary(name: str, prior: float | None = None) -> Boundary:
    """The boundary of this name; ``prior`` is that of a mixture."""
    make = BOUNDARIES[name].load()
    boundary: Boundary = make() if prior is None else make(prior)
    return boundary


def make_sampling_rule(name: str, kernel: Kernel | None) -> object:
    """The sampling rule of this name; "optimal" is that of the kernel."""
    entry = SAMPLING_RULES[name]
    return "uniform" if entry is None else entry.load()(kernel) if name == "optimal" else entry.load()()


def unknown_name(place: str, given: object, known: Iterable[str], more: str = "") -> NoReturn:
    """Refuse a name that is not known, with the nearest one or a list of them."""
    remedy = did_you_mean(given, known, f"pass one of {', '.join(known)}")
    raise InputError(f"{place}: there is no {given!r}", f"{remedy}{', ' + more if more else ''}")
