"""When one run stops for each of several deltas."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from policytest._base.arrays import BoolArray, FloatArray, IntArray


@dataclass(frozen=True, eq=False)
class StoppingTimes:
    """When one run stops for each delta: ``samples`` int[k], and ``answers`` object[k], None where it did not.

    ``certified`` bool[k]: whether the answer rests on a proof. ``solves``: worst-case problems of the whole run.
    """

    deltas: FloatArray
    samples: IntArray
    answers: npt.NDArray[np.object_]
    solves: int
    certified: BoolArray
