"""Where a verdict comes from: the method, the seed, and the versions of the libraries."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, TypedDict

from policytest.mdp.task import Task
from policytest.results.sentences import ONE_SIDED

LIBRARIES = ("policytest", "numpy", "scipy", "numba")


def versions() -> dict[str, str]:
    """The versions of the libraries that compute a verdict, by name."""
    return {name: str(importlib.import_module(name).__version__) for name in LIBRARIES}


class ProvenanceData(TypedDict):
    """The key ``provenance`` of a verdict's JSON."""

    method: str
    seed: int | None
    budget: int | None
    versions: dict[str, str]


@dataclass(frozen=True)
class Provenance:
    """Where a verdict comes from.

    Attributes
    ----------
    method, settings
        The method in words, and the method itself; None if no method was needed, and in a saved verdict.
    seed
        The seed of the run; None if it was a Generator, if the run was resumed, or if nothing was drawn.
    asked_of
        The task with listed rewards, if the verdict's task is its outcome table.
    interval_kind
        What the ends of the interval promise. Files of early versions, which do not say so, have two-sided intervals.
    budget
        What the run was allowed, if that was fixed beforehand: transitions of a table, episodes, or pairs of them.
    versions
        The versions of the libraries, by name.
    """

    method: str = ""
    settings: Any = field(default=None, repr=False)  # a `Method`, or settings of a comparison
    seed: int | None = None
    asked_of: Task | None = field(default=None, repr=False)
    interval_kind: str = ONE_SIDED
    budget: int | None = None
    versions: Mapping[str, str] = field(default_factory=versions, repr=False)

    def data(self) -> ProvenanceData:
        """What a program reads."""
        return {"method": self.method, "seed": self.seed, "budget": self.budget, "versions": dict(self.versions)}
