"""The drivers with PTST on the local solver unless told otherwise: its stopping time is known exactly."""

from __future__ import annotations

from functools import partial, wraps
from typing import Any

import policytest as pt

PTST = partial(pt.PTST, solver=pt.ProjectionFree())


def _with_plain_method(driver: Any) -> Any:
    @wraps(driver)
    def call(*args: Any, **settings: Any) -> Any:
        at = driver.__code__.co_varnames.index("method")
        if len(args) <= at and settings.get("method") is None:
            settings["method"] = PTST()
        return driver(*args, **settings)

    return call


decide, assess, checks, stopping_times = map(_with_plain_method, (pt.decide, pt.assess, pt.checks, pt.stopping_times))
