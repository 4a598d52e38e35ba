"""The methods of commands that ask about more than one policy."""

from __future__ import annotations

from typing import Any

from policytest.cli.inputs import find_method


def method_of_pairs(method: Any, boundary: Any, prior: Any, allocation: Any, problem: Any) -> Any:
    """The method that the options describe, for more than one policy; None, betting, where they say nothing."""
    from policytest._base.errors import InputError

    if allocation == "optimal":
        raise InputError("--allocation optimal is for the value of one policy; use adaptive, uniform or forward")
    return find_method(method, boundary, prior, allocation, problem)
