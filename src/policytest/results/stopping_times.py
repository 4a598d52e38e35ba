"""When one run stops for each of several deltas."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from policytest._base.arrays import FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class StoppingTimes:
    """When one run stops for each delta: ``samples`` int[k], and ``answers`` object[k], None where it did not.

    ``certified`` bool[k]: whether the answer rests on a proof. ``solves``: worst-case problems of the whole run.
    """

    deltas: FloatArray
    samples: IntArray
    answers: Any
    solves: int
    certified: Any
